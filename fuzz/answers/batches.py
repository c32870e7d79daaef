"""What an application's acknowledgements leave of batches, by the model of the cursor.

With index acks, an acknowledgement reaches the cursor at once. Without, the client waits for the acknowledgements of
all messages of an entry that it has delivered; a cumulative one acknowledges the entries before, at least.
"""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.answers.cursor import Cursor
from model.ack_set import mask_of, words_of

#: An entry by its number, and a batch index.
Message = tuple[int, int]
LEDGER = 1


class Batches:
    """The entries of one ledger, and the cursor that a faithful client makes."""

    def __init__(self) -> None:
        self.cursor = Cursor([0], [])
        self.sizes: list[int] = []
        self._waiting: dict[int, set[int]] = {}  # batch indexes that were delivered and are not acknowledged

    def add(self, size: int) -> None:
        """Adds an entry."""
        self.cursor.add_entry(len(self.sizes), size)
        self.sizes.append(size)

    def deliver(self, messages: Iterable[Message]) -> None:
        """Delivers entries. Of an entry that is delivered again, the client waits for acks of these messages only."""
        found: dict[int, set[int]] = {}
        for entry, index in messages:
            found.setdefault(entry, set()).add(index)
        self._waiting |= found

    def left(self) -> list[Message]:
        """The messages that are not acknowledged, in order."""
        return [(entry, index) for entry, size in enumerate(self.sizes) for index in self._indexes(entry, size)]

    def _indexes(self, entry: int, size: int) -> list[int]:
        words = self.cursor.remaining(entry)
        mask = (1 << size) - 1 if words is None else mask_of(words)
        return [index for index in range(size) if mask >> index & 1]

    def acknowledge(self, message: Message, *, cumulative: bool, index_acks: bool) -> None:
        """The application acknowledges a message."""
        entry, index = message
        size, gone = self.sizes[entry], range(index + 1) if cumulative else (index,)
        waiting = self._waiting.setdefault(entry, set(range(size)))
        waiting.difference_update(gone)
        if index_acks:
            mask = (1 << size) - 1
            for each in gone:
                mask &= ~(1 << each)
            self.cursor.acknowledge([(LEDGER, entry, words_of(mask) if mask else None)], cumulative=cumulative)
        elif not waiting:
            self.cursor.acknowledge([(LEDGER, entry, None)], cumulative=cumulative)
        elif cumulative and entry:
            self.cursor.acknowledge([(LEDGER, entry - 1, None)], cumulative=True)
