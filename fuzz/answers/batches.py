"""Which messages of batches an application has not acknowledged, by the model of the cursor.

With batch index acks, each acknowledgement reaches the cursor. Without them, an entry is acknowledged at the cursor
when the application has acknowledged all messages of the entry that were delivered to the application. Until then, a
cumulative acknowledgement of a message of the entry acknowledges the entries before this entry.
"""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.answers.cursor import Cursor
from model.ack_set import mask_of, words_of

#: The number of an entry, and a batch index.
Message = tuple[int, int]
#: The ledger of all entries.
LEDGER = 1


class Batches:
    """The entries of one ledger, and the cursor of a subscription that gets all acknowledgements of the client."""

    def __init__(self) -> None:
        self.cursor = Cursor([0], [])  # one ledger, still without entries
        self.sizes: list[int] = []
        self._pending: dict[int, set[int]] = {}  # entry -> batch indexes that were delivered and are not acknowledged

    def add(self, size: int) -> None:
        """Adds an entry with `size` messages."""
        self.cursor.add_entry(len(self.sizes), size)
        self.sizes.append(size)

    def deliver(self, messages: Iterable[Message]) -> None:
        """Records delivered messages. If an entry is delivered again, its earlier deliveries no longer count."""
        found: dict[int, set[int]] = {}
        for entry, index in messages:
            found.setdefault(entry, set()).add(index)
        self._pending |= found

    def left(self) -> list[Message]:
        """Returns the messages that are not acknowledged, in order."""
        return [(entry, index) for entry, size in enumerate(self.sizes) for index in self._indexes(entry, size)]

    def _indexes(self, entry: int, size: int) -> list[int]:
        words = self.cursor.remaining(entry)
        mask = (1 << size) - 1 if words is None else mask_of(words)
        return [index for index in range(size) if mask >> index & 1]

    def acknowledge(self, message: Message, *, cumulative: bool, index_acks: bool) -> None:
        """Acknowledges a message or, if `cumulative`, all messages up to this one.

        `index_acks`: whether the client has batch index acks.
        """
        entry, index = message
        size, acked = self.sizes[entry], range(index + 1) if cumulative else (index,)
        pending = self._pending.setdefault(entry, set(range(size)))
        pending.difference_update(acked)
        if index_acks:
            mask = (1 << size) - 1
            for each in acked:
                mask &= ~(1 << each)
            self.cursor.acknowledge([(LEDGER, entry, words_of(mask) if mask else None)], cumulative=cumulative)
        elif not pending:
            self.cursor.acknowledge([(LEDGER, entry, None)], cumulative=cumulative)
        elif cumulative and entry:  # before entry 0 is nothing to acknowledge
            self.cursor.acknowledge([(LEDGER, entry - 1, None)], cumulative=True)
