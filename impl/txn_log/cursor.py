"""What the cursor of a transaction log has deleted (acknowledged): a mark-delete position and a bit window after it.

Bit i of the window is set if entry `first_unacked + i` is deleted. The window is long only while an old transaction is
ongoing: its records are not deleted, so the mark-delete position cannot pass them. Ack sets are a dictionary from entry
to the mask of remaining records; a mask of records counts as O(1). The window has w entries, and k entries are
partially deleted. The deletion of a record and an advance of the mark-delete position are O(w / 64), and a snapshot is
O(k log k).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from model.batch_acks.state import Acks, Partial
from model.txn_log.state import Config


class Snapshot(NamedTuple):
    """Deletions as Pulsar persists them (`PositionInfo`), before or after truncation to the limits of the config."""

    first_unacked: int
    window: int  # bit i is set if entry `first_unacked + i` is deleted
    partial: tuple[tuple[int, int], ...]  # partially deleted entries in order, each with the mask of remaining records

    def view(self) -> Acks:
        """Returns these deletions in the model's form. O((first_unacked + w) / 64 + k)."""
        return Acks(
            self.first_unacked, self.window << self.first_unacked, tuple([Partial(*each) for each in self.partial])
        )


def snapshot_of(acks: Acks) -> Snapshot:
    """Returns the snapshot of the model's deletions. O((first_unacked + w) / 64 + k)."""
    return Snapshot(
        acks.first_unacked, acks.deleted >> acks.first_unacked, tuple([(p.entry, p.remaining) for p in acks.partial])
    )


def _trailing_ones(window: int) -> int:
    """Returns the number of deleted entries at the beginning of the window. O(w / 64)."""
    return (window ^ (window + 1)).bit_length() - 1


class Cursor:
    """The deletions in memory. `dirty`: they have changed since they were persisted or recovered."""

    __slots__ = ("dirty", "first_unacked", "partial", "window")

    def __init__(self) -> None:
        self.first_unacked = self.window = 0
        self.partial: dict[int, int] = {}
        self.dirty = False

    def is_deleted(self, entry: int) -> bool:
        """Returns whether all records of an entry are deleted. O(w / 64)."""
        return entry < self.first_unacked or self.window >> (entry - self.first_unacked) & 1 == 1

    def remaining(self, entry: int, size: int) -> int:
        """Returns the mask of the records of an entry that are not deleted. O(w / 64)."""
        return 0 if self.is_deleted(entry) else self.partial.get(entry, (1 << size) - 1)

    def delete(self, positions: Iterable[tuple[int, int, int]]) -> None:
        """Deletes records, each given as entry, batch index and batch size. O(w / 64) each."""
        changed = False
        for entry, index, size in positions:
            if self.is_deleted(entry):
                continue
            before = self.partial.get(entry, (1 << size) - 1)
            remaining = before & ~(1 << index)
            if remaining == 0:
                self.partial.pop(entry, None)
                self.window |= 1 << (entry - self.first_unacked)
                changed = True
            elif remaining != before:
                self.partial[entry] = remaining
                changed = True
        if changed:
            self.dirty = True
            self._advance()

    def _advance(self) -> None:
        """Advances the mark-delete position over deleted entries. O(w / 64)."""
        if self.window & 1:
            by = _trailing_ones(self.window)
            self.first_unacked += by
            self.window >>= by

    def recover(self, snapshot: Snapshot) -> None:
        """Replaces the deletions by those of a persisted snapshot. O(w / 64 + k)."""
        self.first_unacked, self.window = snapshot.first_unacked, snapshot.window
        self.partial = dict(snapshot.partial)
        self.dirty = False
        self._advance()

    def snapshot(self) -> Snapshot:
        """Returns all deletions, before truncation. O(k log k)."""
        return Snapshot(self.first_unacked, self.window, tuple(sorted(self.partial.items())))


# ---- truncation ---------------------------------------------------------------------------------------


def range_starts(snapshot: Snapshot, first_entry: int, ledger_sizes: Sequence[int]) -> int:
    """Returns a window in which the bit of the first entry of each range is set. O(w / 64 * ledgers).

    A range is a run of deleted entries of one ledger. `first_entry` is the first entry of the first ledger.
    """
    window = snapshot.window
    starts = window & ~(window << 1)
    for begin in accumulate(ledger_sizes[:-1], initial=first_entry):
        if begin > snapshot.first_unacked:
            starts |= window & 1 << (begin - snapshot.first_unacked)
    return starts


def truncated(cfg: Config, snapshot: Snapshot, first_entry: int, ledger_sizes: Sequence[int]) -> Snapshot:
    """Returns the deletions that fit into the limits. O(w / 64 * (ledgers + ranges) + k).

    These are the deletions before the first range beyond `max_ranges` ranges, and before the first ack set beyond
    `max_ack_sets` ack sets.
    """
    # a set bit for each range
    ranges = range_starts(snapshot, first_entry, ledger_sizes) if snapshot.window else 0
    partial = snapshot.partial[: cfg.max_ack_sets]
    limits = []  # window indexes from which on deletions are dropped
    if ranges.bit_count() > cfg.max_ranges:
        for _ in range(cfg.max_ranges):
            ranges &= ranges - 1  # drops the lowest range
        limits.append((ranges & -ranges).bit_length() - 1)
    if len(partial) < len(snapshot.partial):
        limits.append(snapshot.partial[len(partial)][0] - snapshot.first_unacked)
    if not limits:
        return snapshot
    limit = min(limits)
    kept = tuple([each for each in partial if each[0] - snapshot.first_unacked < limit])
    return Snapshot(snapshot.first_unacked, snapshot.window & ((1 << limit) - 1), kept)
