"""Positions in a managed ledger.

A managed ledger is a chain of BookKeeper ledgers. A position is a ledger id and an entry id (`Position`); positions are
ordered by ledger, then by entry. Both ids are 64-bit in the broker and unbounded here.
"""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """A ledger id and an entry id."""

    ledger: int
    entry: int

    def as_plain(self) -> list[int]:
        """Returns [ledger, entry], the form of a position in recordings."""
        return [self.ledger, self.entry]


#: `firstPosition` in `RangeEntryCacheImpl.invalidateEntries`. No entry of a broker is before it: ledger ids are
#: nonnegative. (`PositionFactory.EARLIEST` is (-1, -1).)
FIRST_POSITION = Position(-1, 0)


def start_of(ledger: int) -> Position:
    """Returns the position of the first entry of a ledger."""
    return Position(ledger, 0)
