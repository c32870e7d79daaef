"""Positions: where a message stands in a managed ledger.

A managed ledger is a chain of BookKeeper ledgers; a position is a ledger's id and an entry's id in it.
Positions are ordered by ledger first, then by entry. Both are 64-bit in the broker and unbounded here.
"""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """Ledger id and entry id; ordered by ledger, then by entry."""

    ledger: int
    entry: int

    def as_plain(self) -> list[int]:
        """[ledger, entry], as recordings write it."""
        return [self.ledger, self.entry]


#: Where a range starts that means "from the beginning": before every position that can be stored.
EARLIEST = Position(-1, 0)


def start_of(ledger: int) -> Position:
    """The first position that the ledger can hold."""
    return Position(ledger, 0)
