"""The pending-ack log as a ledger has it, and its sparse index (PIP-153).

Positions count from the first entry that was ever written: trimming moves none of them. What survives a crash are real
bytes (PIP-160), and a replay reads records from them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from impl.ack_set import array, number
from impl.txn_writer.records import PendingAck, PendingAckRecord, batched_entry, plain_entry, read_entry
from model.pending_acks.log_index import Key, LogIndex
from model.pending_acks.state import Entry, Part, Record

_OPS = {"ack": "ACK", "commit": "COMMIT", "abort": "ABORT"}
_WORDS = {"ACK": "ack", "COMMIT": "commit", "ABORT": "abort"}
#: the ledger of the topic in which the entries are
_LEDGER = 1


class Log:
    """Entries of records, each as they came or as bytes; `base` is the position of the first that is kept."""

    __slots__ = ("_batching", "_entries", "_sizes", "base")

    def __init__(self, batch_sizes: Sequence[int], batching: bool) -> None:
        self._sizes = batch_sizes
        self._batching = batching
        self._entries: list[Entry | bytes] = []
        self.base = 0

    @property
    def end(self) -> int:
        """The position of the next entry."""
        return self.base + len(self._entries)

    def append(self, entry: Entry) -> None:
        """An entry was written. O(1)."""
        self._entries.append(entry)

    def read(self, position: int) -> Entry:
        """The records of an entry. O(its bytes)."""
        entry = self._entries[position - self.base]
        if isinstance(entry, bytes):
            entry = self._entries[position - self.base] = self._decoded(entry)
        return entry

    def trim(self, end: int) -> int:
        """The entries before a position go; how many. O(their number)."""
        count = end - self.base
        del self._entries[:count]
        self.base = end
        return count

    def close(self) -> None:
        """All that is left of the log are bytes. O(them)."""
        self._entries = [each if isinstance(each, bytes) else self._encoded(each) for each in self._entries]

    def view(self) -> tuple[Entry, ...]:
        """All records, entry by entry."""
        return tuple([self._decoded(each) if isinstance(each, bytes) else each for each in self._entries])

    def load(self, entries: tuple[Entry, ...]) -> None:
        """Takes over a log whose first entry is the first that was ever written."""
        self._entries, self.base = list(entries), 0

    # ---- bytes

    def _encoded(self, entry: Entry) -> bytes:
        records = [self._record(each) for each in entry]
        return batched_entry(records) if self._batching else plain_entry(records[0])

    def _record(self, each: Record) -> PendingAckRecord:
        positions = tuple([self._position(part, not each.cumulative) for part in each.parts])
        return PendingAckRecord(
            _OPS[each.op], "Cumulative" if each.cumulative else "Individual", each.txn, 0, positions
        )

    def _position(self, part: Part, has_size: bool) -> PendingAck:
        size = self._sizes[part.entry % len(self._sizes)] if has_size else None
        return PendingAck(_LEDGER, part.entry, array(part.leaves) if part.leaves else (), size)

    def _decoded(self, data: bytes) -> Entry:
        records = []
        for op, ack_type, txn, _, positions in read_entry(PendingAckRecord, data).records:
            parts = [Part(entry, number(ack_set) if ack_set else None) for _, entry, ack_set, _ in positions]
            records.append(Record(_WORDS[op], ack_type == "Cumulative", txn, tuple(parts)))  # type: ignore[arg-type]
        return tuple(records)


class SparseIndex:
    """Keys in order, two lists of numbers: what goes is found by binary search and cut off in front."""

    __slots__ = ("_min_lag", "entries", "lag", "max_ack", "max_lag", "positions")

    def __init__(self, min_lag: int) -> None:
        self._min_lag = min_lag
        self.entries: list[int] = []
        self.positions: list[int] = []
        self.clear()

    def clear(self) -> None:
        """Nothing was counted yet. O(1)."""
        self.entries, self.positions = [], []
        self.lag, self.max_lag, self.max_ack = 0, self._min_lag, -1

    def count(self, records: int, entry: int, position: int) -> None:
        """One more entry of the log was written or read; `entry` is the last it acknowledges, or -1. O(1)."""
        self.lag += records
        if entry < 0:
            return
        self.max_ack = max(self.max_ack, entry)
        if self.lag < self.max_lag:
            return
        if self.entries and self.entries[-1] == self.max_ack:
            self.positions[-1] = position
        else:
            self.entries.append(self.max_ack)
            self.positions.append(position)
        self.lag = 0
        self._spread()

    def _spread(self) -> None:
        self.max_lag = self._min_lag * (len(self.entries) or 1)

    def cut(self, mark: int) -> int | None:
        """The keys before a mark go; the position after the last of them, or None if none goes. O(log keys)."""
        if not self.entries or self.entries[0] >= mark:
            return None
        gone = bisect_left(self.entries, mark)
        end = self.positions[gone - 1] + 1
        del self.entries[:gone], self.positions[:gone]
        self._spread()
        return end

    def check(self, base: int, end: int) -> list[str]:
        """What is wrong with the structure, one line each."""
        wrong = []
        for name, column in (("entries", self.entries), ("positions", self.positions)):
            if any(one >= other for one, other in pairwise(column)):
                wrong.append(f"the {name} of the index are not in order")
        if self.positions and not base <= self.positions[0] <= self.positions[-1] < end:
            wrong.append("a key stands where no entry of the log is")
        if self.entries and self.entries[-1] > self.max_ack:
            wrong.append("a key is after all that is acknowledged")
        if self.max_lag != self._min_lag * max(len(self.entries), 1):
            wrong.append("the lag does not fit the number of keys")
        return wrong

    def view(self, base: int) -> LogIndex:
        """The model's form of it, in which positions count from the first entry that is kept."""
        keys = tuple([Key(entry, at - base) for entry, at in zip(self.entries, self.positions, strict=True)])
        return LogIndex(self.lag, self.max_lag, self.max_ack, keys)

    def load(self, index: LogIndex) -> None:
        """Takes over an index of a log whose base is 0."""
        self.lag, self.max_lag, self.max_ack = index.lag, index.max_lag, index.max_ack
        self.entries, self.positions = [key.entry for key in index.keys], [key.at for key in index.keys]
