"""The pending-ack log and its sparse index (PIP-153).

Log positions count from the first entry that was ever appended; unlike in the model, a mark-delete does not shift them.
A crash encodes the entries, and a replay decodes them: what a restart reads has gone through PIP-160's wire format.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from impl.ack_set import mask_of, words_of
from impl.txn_writer.records import PendingAck, PendingAckRecord, batched_entry, plain_entry, read_entry
from model.pending_acks.log_index import Key, LogIndex
from model.pending_acks.state import LogEntry, LogRecord, PositionAck

_OPS = {"ack": "ACK", "commit": "COMMIT", "abort": "ABORT"}
_OPS_READ = {"ACK": "ack", "COMMIT": "commit", "ABORT": "abort"}
#: The ledger of the topic that has the acked entries.
_LEDGER = 1


class Log:
    """The entries that are not mark-deleted, each as records or encoded. `base` is the position of the first one."""

    __slots__ = ("_batched", "_entries", "_sizes", "base")

    def __init__(self, batch_sizes: Sequence[int], batched: bool) -> None:
        self._sizes = batch_sizes
        self._batched = batched
        self._entries: list[LogEntry | bytes] = []
        self.base = 0

    @property
    def end(self) -> int:
        """Returns the position of the next entry."""
        return self.base + len(self._entries)

    def append(self, entry: LogEntry) -> None:
        """Appends an entry. O(1)."""
        self._entries.append(entry)

    def read(self, position: int) -> LogEntry:
        """Returns the records of an entry. O(its bytes) the first time after `encode`, then O(1)."""
        entry = self._entries[position - self.base]
        if isinstance(entry, bytes):
            entry = self._entries[position - self.base] = self._decoded(entry)
        return entry

    def mark_delete(self, end: int) -> int:
        """Deletes the entries before the log position `end`; returns their number. O(entries of the log)."""
        count = end - self.base
        del self._entries[:count]
        self.base = end
        return count

    def encode(self) -> None:
        """Encodes all entries. O(size of the log)."""
        self._entries = [each if isinstance(each, bytes) else self._encoded(each) for each in self._entries]

    def view(self) -> tuple[LogEntry, ...]:
        """Returns the records of all entries."""
        return tuple([self._decoded(each) if isinstance(each, bytes) else each for each in self._entries])

    def load(self, entries: tuple[LogEntry, ...]) -> None:
        """Loads the model's form; its first entry gets position 0."""
        self._entries, self.base = list(entries), 0

    # ---- encoding

    def _encoded(self, entry: LogEntry) -> bytes:
        records = [self._record(each) for each in entry]
        return batched_entry(records) if self._batched else plain_entry(records[0])

    def _record(self, each: LogRecord) -> PendingAckRecord:
        positions = tuple([self._position(ack, not each.cumulative) for ack in each.acks])
        return PendingAckRecord(
            _OPS[each.op], "Cumulative" if each.cumulative else "Individual", each.txn, 0, positions
        )

    def _position(self, ack: PositionAck, has_size: bool) -> PendingAck:
        """Returns a position of a record; a position of a cumulative ack has no batch size."""
        size = self._sizes[ack.entry % len(self._sizes)] if has_size else None
        return PendingAck(_LEDGER, ack.entry, words_of(ack.ack_set) if ack.ack_set else (), size)

    def _decoded(self, data: bytes) -> LogEntry:
        records = []
        for op, ack_type, txn, _, positions in read_entry(PendingAckRecord, data).records:
            acks = [PositionAck(entry, mask_of(ack_set) if ack_set else None) for _, entry, ack_set, _ in positions]
            records.append(LogRecord(_OPS_READ[op], ack_type == "Cumulative", txn, tuple(acks)))  # type: ignore[arg-type]
        return tuple(records)


class SparseIndex:
    """The keys of `model/pending_acks/log_index.py`, as two ascending lists: `ack_positions` and `log_positions`."""

    __slots__ = (
        "_exponent",
        "_maximum",
        "_minimum",
        "ack_positions",
        "current_lag",
        "log_positions",
        "max_ack",
        "max_index_lag",
    )

    def __init__(self, min_lag: int, max_lag: int | None, exponent: int) -> None:
        self._minimum, self._maximum, self._exponent = min_lag, max_lag, exponent
        self.clear()

    def clear(self) -> None:
        """Empties the index. O(1)."""
        self.ack_positions: list[int] = []
        self.log_positions: list[int] = []
        self.current_lag, self.max_index_lag, self.max_ack = 0, self._minimum, -1

    def add(self, records: int, ack_position: int, log_position: int) -> None:
        """Counts the records of a log entry; if the count reaches `max_index_lag`, adds or replaces a key. O(1).

        `ack_position` is the last entry of the topic that the log entry acks. -1: the log entry has no acks, and adds
        no key.
        """
        self.current_lag += records
        if ack_position < 0:
            return
        self.max_ack = max(self.max_ack, ack_position)
        if self.current_lag < self.max_index_lag:
            return
        if self.ack_positions and self.ack_positions[-1] == self.max_ack:
            self.log_positions[-1] = log_position
        else:
            self.ack_positions.append(self.max_ack)
            self.log_positions.append(log_position)
        self.current_lag = 0
        self.max_index_lag = self._lag()

    def _lag(self) -> int:
        """Returns `max_index_lag` for the number of keys."""
        keys = len(self.ack_positions)
        if keys < 2:  # no power is needed; the maximum does not apply to an index without keys
            return self._minimum if not keys or self._maximum is None else min(self._minimum, self._maximum)
        lag = self._minimum * pow(keys, self._exponent)
        return lag if self._maximum is None or lag < self._maximum else self._maximum

    def cut(self, first_unacked: int) -> int | None:
        """Removes the keys whose `ack_position` is before `first_unacked`, found by binary search.

        Returns the log position after that of the last removed key; None if no key is removed. O(1) for None, otherwise
        O(keys).
        """
        if not self.ack_positions or self.ack_positions[0] >= first_unacked:
            return None
        count = bisect_left(self.ack_positions, first_unacked)
        end = self.log_positions[count - 1] + 1
        del self.ack_positions[:count], self.log_positions[:count]
        self.max_index_lag = self._lag()
        return end

    def check(self, base: int, end: int) -> list[str]:
        """Returns the violated structural invariants, one line each."""
        wrong = []
        for name, column in (("positions of the topic", self.ack_positions), ("log positions", self.log_positions)):
            if any(one >= other for one, other in pairwise(column)):
                wrong.append(f"the {name} of the index are not in order")
        if self.log_positions and not base <= self.log_positions[0] <= self.log_positions[-1] < end:
            wrong.append("a key has a log position outside the log")
        if self.ack_positions and self.ack_positions[-1] > self.max_ack:
            wrong.append("a key is after the last acked position")
        if self.max_index_lag != self._lag():
            wrong.append("the lag does not fit the number of keys")
        return wrong

    def view(self, base: int) -> LogIndex:
        """Returns the model's form, in which log positions count from `base`."""
        columns = zip(self.ack_positions, self.log_positions, strict=True)
        keys = tuple([Key(ack_position, position - base) for ack_position, position in columns])
        return LogIndex(self.current_lag, self.max_index_lag, self.max_ack, keys)

    def load(self, index: LogIndex) -> None:
        """Loads the model's form, in which log positions count from the first entry of the log."""
        self.current_lag, self.max_index_lag, self.max_ack = (
            index.current_lag,
            index.max_index_lag,
            index.max_ack_position,
        )
        self.ack_positions = [key.ack_position for key in index.keys]
        self.log_positions = [key.log_position for key in index.keys]
