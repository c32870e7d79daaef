"""What is deleted of a transaction log: a mark, and a window of bits after it.

The window begins at the mark, so that it is no longer than the oldest transaction that lives makes it: bit i is entry
mark + i. Parts of entries are a dictionary from entry to the mask of what is left. With w entries in the window and k
parts, a deletion is O(w / 64), and so is a move of the mark; a record of the cursor is put together when it is written,
O(w / 64 + k log k).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from model.batch_acks.state import Acks, Partial
from model.txn_log.state import Config


class Kept(NamedTuple):
    """A record of the cursor: the mark, the window, and the parts in order."""

    mark: int
    window: int
    parts: tuple[tuple[int, int], ...]

    def view(self) -> Acks:
        """The model's form of it. O(w / 64 + k)."""
        return Acks(self.mark, self.window << self.mark, tuple([Partial(*part) for part in self.parts]))


def kept_from(acks: Acks) -> Kept:
    """The record that the model has. O(w / 64 + k)."""
    return Kept(acks.mark, acks.deleted >> acks.mark, tuple([(p.entry, p.remaining) for p in acks.partial]))


def _trailing_ones(window: int) -> int:
    return (window ^ (window + 1)).bit_length() - 1


class Cursor:
    """The deletions of an open store."""

    __slots__ = ("_counts_parts_as_dirty", "dirty", "mark", "parts", "window")

    def __init__(self, cfg: Config) -> None:
        self.mark = self.window = 0
        self.parts: dict[int, int] = {}
        self.dirty = False
        self._counts_parts_as_dirty = cfg.partial_deletes_are_dirty

    def is_deleted(self, entry: int) -> bool:
        """Whether nothing is left of an entry. O(w / 64)."""
        return entry < self.mark or self.window >> (entry - self.mark) & 1 == 1

    def left(self, entry: int, size: int) -> int:
        """The mask of the records of an entry that are not deleted. O(w / 64)."""
        return 0 if self.is_deleted(entry) else self.parts.get(entry, (1 << size) - 1)

    def delete(self, places: Iterable[tuple[int, int, int]], deletes_parts: bool) -> None:
        """Deletes records: entry, index, and how many records the entry has. O(w / 64) each."""
        changed = False
        for entry, at, size in places:
            if self.is_deleted(entry) or (size > 1 and not deletes_parts):
                continue
            before = self.parts.get(entry, (1 << size) - 1)
            left = before & ~(1 << at)
            if left == 0:
                self.parts.pop(entry, None)
                self.window |= 1 << (entry - self.mark)
                changed = True
            elif left != before:
                self.parts[entry] = left
                changed = True
        if changed:
            self.dirty = self.dirty or self._counts_parts_as_dirty or self.window != 0
            self._settle()

    def _settle(self) -> None:
        """The mark moves over what is deleted. O(w / 64)."""
        if self.window & 1:
            by = _trailing_ones(self.window)
            self.mark += by
            self.window >>= by

    def take(self, kept: Kept, with_parts: bool) -> None:
        """The deletions become those of a record, with parts of entries or without. O(k)."""
        self.mark, self.window = kept.mark, kept.window
        self.parts = dict(kept.parts) if with_parts else {}
        self.dirty = False
        self._settle()

    def kept(self) -> Kept:
        """All of it, as a record would hold it that could. O(k log k)."""
        return Kept(self.mark, self.window, tuple(sorted(self.parts.items())))


# ---- records that cannot hold everything --------------------------------------------------------------


def starts_of(kept: Kept, first: int, ledgers: Sequence[int]) -> int:
    """The window's bits with which ranges begin: none goes over the end of a ledger. O(w / 64) for each ledger."""
    window = kept.window
    starts = window & ~(window << 1)
    for begin in accumulate(ledgers[:-1], initial=first):
        if begin > kept.mark:
            starts |= window & 1 << (begin - kept.mark)
    return starts


def capped(cfg: Config, kept: Kept, first: int, ledgers: Sequence[int]) -> Kept:
    """What a record holds: all, or all up to the first entry that it has no room for. O(w / 64 * ranges).

    As shipped, ranges and parts are each cut on their own, and there is room for one range more.
    """
    ranges = starts_of(kept, first, ledgers) if kept.window else 0
    most = cfg.max_ranges + (not cfg.range_cap_is_exact)
    parts = kept.parts[: cfg.max_batch_records]
    limit = None
    if ranges.bit_count() > most:
        for _ in range(most):
            ranges &= ranges - 1
        limit = (ranges & -ranges).bit_length() - 1
    window = kept.window if limit is None else kept.window & ((1 << limit) - 1)
    if cfg.caps_keep == "each_its_own":
        return Kept(kept.mark, window, parts)
    if len(parts) < len(kept.parts):
        lost = kept.parts[len(parts)][0] - kept.mark
        limit = lost if limit is None else min(limit, lost)
    if limit is None:
        return kept
    mask = (1 << limit) - 1
    return Kept(kept.mark, window & mask, tuple([part for part in parts if part[0] - kept.mark < limit]))


def closed(cfg: Config, kept: Kept, first: int, ledgers: Sequence[int]) -> Kept:
    """What is left of a record after a clean close: the metadata store may forget parts. O(w / 64 * ranges)."""
    found = capped(cfg, kept, first, ledgers)
    in_metadata = starts_of(found, first, ledgers).bit_count() <= cfg.max_ranges_in_metadata
    return found._replace(parts=()) if in_metadata and not cfg.metadata_keeps_sets else found
