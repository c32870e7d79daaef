"""The cursor of a subscription, by the model `batch_acks`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from model.ack_set import words_of
from model.batch_acks.machine import Ack, batch_acks, reference
from model.batch_acks.state import Config, entry_number, is_deleted, position_of, remaining_of
from model.machine import Failed, Refused
from model.positions import Position

#: Ledger, entry, and the words of an ack set; None without an ack set.
Id = tuple[int, int, tuple[int, ...] | None]


class Cursor:
    """A cursor. Entries are numbered from 0 across ledgers. Every change is a step of the model."""

    def __init__(self, ledgers: Sequence[int], sizes: Sequence[int], first: int = 0) -> None:
        """Creates a cursor that reads from entry `first` on.

        `ledgers` has the number of entries of each ledger, `sizes` the number of messages of each entry.
        """
        self.config: Config = reference.config._replace(batch_sizes=(1,), entries=0)
        self.state: Any = batch_acks.start(self.config)._replace(ledgers=tuple(ledgers))
        for number, size in enumerate(sizes):
            self._learn(number, size)
        if first:
            self.step("ack_cumulative", position_of(self.state.ledgers, first - 1), None)

    def step(self, action: str, *arguments: Any) -> Any:
        """Takes a step. Returns its outcome."""
        self.state, outcome = batch_acks.step(self.config, self.state, action, arguments)
        return outcome

    def _learn(self, number: int, size: int) -> None:
        """Puts the batch size of an entry into the config, which repeats `batch_sizes` cyclically over the entries.

        The sizes of later entries do not count yet: they are put into the config when these entries are added.
        """
        sizes = self.config.batch_sizes
        if sizes[number % len(sizes)] != size:
            known = [sizes[n % len(sizes)] for n in range(number)]
            self.config = self.config._replace(batch_sizes=(*known, size, *[1] * (number + 1)))

    def add_entry(self, number: int, size: int) -> Position:
        """Adds the entry `number`, the next one, with `size` messages. Returns its position."""
        self._learn(number, size)
        position: Position = self.step("add_entry")
        return position

    def read(self) -> int | None:
        """Reads the next entry that is not deleted. Returns its number, or None if there is none."""
        self.step("begin_read")
        delivered = self.step("end_read")
        return None if delivered is None else self.state.read_position - 1

    def remaining(self, number: int) -> tuple[int, ...] | None:
        """Returns the ack set of an entry: empty if the entry is deleted, None if none of its messages is acked."""
        if is_deleted(self.state.acks, number):
            return ()
        mask = remaining_of(self.state.acks, number)
        return None if mask is None else words_of(mask)

    def left(self, number: int, size: int) -> int:
        """Returns how many messages of an entry of `size` messages are not acknowledged."""
        mask = remaining_of(self.state.acks, number)  # a bit for each message that is not acknowledged; None: all bits
        unacked = size if mask is None else mask.bit_count()
        return 0 if is_deleted(self.state.acks, number) else unacked

    def deleted(self) -> list[int]:
        """Returns the numbers of the individually deleted entries."""
        acks = self.state.acks
        return [number for number in range(acks.first_unacked, acks.deleted.bit_length()) if acks.deleted >> number & 1]

    def number_of(self, ledger: int, entry: int) -> int | None:
        """Returns the number of the entry at a position; None if there is no entry."""
        return entry_number(self.state.ledgers, Position(ledger, entry))

    def acknowledge(self, ids: Iterable[Id], *, cumulative: bool) -> bool:
        """Acknowledges entries, or messages of entries by ack sets. Returns whether the cursor accepts all acks."""
        acks = tuple([Ack(Position(ledger, entry), ack_set) for ledger, entry, ack_set in ids])
        if cumulative:
            outcomes = [self.step("ack_cumulative", *each) for each in acks]
        else:
            outcomes = [self.step("ack_individual", acks)]
        return not any(isinstance(each, Refused | Failed) for each in outcomes)

    def move(self, *, crashed: bool) -> None:
        """Opens the cursor on another broker: after a crash with the last written state, otherwise after a close."""
        if crashed:
            self.step("crash", False)  # False: a write in flight is lost
        else:
            self.step("reopen", self.state.batch_acks)

    def reset(self, number: int) -> None:
        """Resets the cursor (a seek) to the entry `number`; the number after the last entry is allowed."""
        self.step("reset", position_of(self.state.ledgers, number), None)
        self.step("written")

    def observe(self) -> dict[str, object]:
        """Returns what an outside observer can see of the cursor."""
        seen: dict[str, object] = batch_acks.observe(self.config, self.state)
        return seen
