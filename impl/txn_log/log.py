"""Implementation of the transaction log of a coordinator.

Implements the `reference` rules and all settings of `model/txn_log`. In the costs, there are n ongoing transactions, p
records of a transaction, b records in an entry, w entries in the window of deletions, and k ack sets:

    transactions    a dictionary, in id order while the store is ready; the low watermark is one below its first key
    positions       a list for each transaction; the end of a transaction deletes p records, O(p * w / 64)
    deletions       `impl/txn_log/cursor.py`: a bit for each entry after the mark-delete position
    entries         `impl/txn_log/entries.py`: serialised when the store is closed or crashes, parsed by the replay
    replay          skips deleted entries, O(w / 64) each; applies the undeleted records of the others
    deadlines       all transactions are scanned on request; the expired ones are sorted, O(n log n)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from impl.txn_log.cursor import Cursor, Snapshot, snapshot_of, truncated
from impl.txn_log.entries import LogEntry
from model.machine import Failed, Refused
from model.txn_log.replay import OpenTxn, Recovered
from model.txn_log.state import (
    Completion,
    Config,
    Entry,
    Op,
    Record,
    RecordPosition,
    Result,
    State,
    Status,
    Target,
    Txn,
)

#: status -> legal next statuses
_NEXT: dict[Status, tuple[Target, ...]] = {
    "OPEN": ("COMMITTING", "ABORTING"),
    "COMMITTING": ("COMMITTED",),
    "ABORTING": ("ABORTED",),
    "COMMITTED": (),
    "ABORTED": (),
}
_ENDED = ("COMMITTED", "ABORTED")


class OngoingTxn:
    """An ongoing transaction. `positions`: entry, batch index and batch size of each record that took effect."""

    __slots__ = ("deadline_ms", "partitions", "positions", "status", "subscriptions")

    def __init__(self, deadline_ms: int) -> None:
        self.status: Status = "OPEN"
        self.partitions = self.subscriptions = 0
        self.deadline_ms = deadline_ms
        self.positions: list[tuple[int, int, int]] = []


class TxnLog:
    """A transaction metadata store and its log. The actions of `model/txn_log` are methods of the same names."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self._status = "ready"
        self._ledger = "open"  # the state of the managed ledger: open, write_failed, closed or fenced
        self._batching = cfg.batching
        self._deletions_succeed = True
        self._buffer: list[Record] = []
        self._in_flight: deque[Entry] = deque()
        self._first_entry = 0
        self._ledgers = [0]  # the number of entries of each untrimmed ledger
        self._log: list[LogEntry] = []  # the untrimmed entries, from `_first_entry` on
        self._property_id = self._last_id = -1  # `_property_id`: the managed ledger's property `max_local_txn_id`
        self._txns: dict[int, OngoingTxn] = {}
        self._cursor = Cursor()
        self._durable = Snapshot(0, 0, ())  # the persisted deletions
        self._read_position = self._now_ms = 0
        self._configure()

    def _configure(self) -> None:
        """Sets `_batch_size`, the number of records of a full batch; 0: records are not batched."""
        self._batch_size = self.cfg.max_records if self._batching and self.cfg.max_records > 1 else 0

    # ---- operations

    def _not_ready(self) -> Refused:
        return Refused("illegal_state", f"the store is {self._status}, not ready")

    def new_transaction(self, timeout_ms: int) -> tuple[Completion, ...] | Refused:
        """Begins a transaction with the next id. O(1), plus a flush."""
        if 0 < self.cfg.max_active <= len(self._txns):
            return Refused("too_many", f"{len(self._txns)} transactions are ongoing")
        if self._status != "ready":
            return self._not_ready()
        self._last_id = txn = self._last_id + 1
        return self._append(Record(txn, "NEW", txn, 0, None, self._now_ms, timeout_ms))

    def add_participant(self, txn: int, op: Op, name: int) -> tuple[Completion, ...] | Refused:
        """Adds a partition or subscription to a transaction. O(1), plus a flush."""
        if self._status != "ready":
            return self._not_ready()
        if txn not in self._txns:
            return Refused("not_found", f"transaction {txn} is not ongoing")
        return self._append(Record(txn, op, self._last_id, name))

    def update_status(self, txn: int, to: Target) -> tuple[Completion, ...] | Refused:
        """Updates the status of a transaction. O(1), plus a flush."""
        if self._status != "ready":
            return self._not_ready()
        live = self._txns.get(txn)
        if live is None:
            return Refused("not_found", f"transaction {txn} is not ongoing")
        if live.status == to:
            return (Completion(txn, "UPDATE", "success"),)
        return self._append(Record(txn, "UPDATE", self._last_id, 0, to))

    def low_watermark(self) -> int | Refused:
        """Returns the low watermark. O(1), or O(buffered and in-flight records) without ongoing transactions."""
        if self._status != "ready":
            return self._not_ready()
        return self._watermark()

    def _watermark(self) -> int:
        for txn in self._txns:  # the first key, if there is one
            return txn - 1
        known = self._recoverable_id()
        for entry in (*self._in_flight, self._buffer):
            for record in entry:
                if record.op == "NEW":
                    return min(known, record.txn - 1)
        return known

    def _recoverable_id(self) -> int:
        """Returns the last assigned id as a reopened store recovers it, from the last entry or the ledger property.

        O(1), or O(bytes) right after `forget`, when the entry must be parsed.
        """
        return self._log[-1].records[-1].last_id if self._ledgers[-1] else self._property_id

    def expired(self) -> tuple[int, ...] | Refused:
        """Returns the OPEN transactions past their deadline, in the order of deadlines. O(n log n)."""
        if self._status != "ready":
            return self._not_ready()
        late = [
            (live.deadline_ms, txn)
            for txn, live in self._txns.items()
            if live.status == "OPEN" and live.deadline_ms < self._now_ms
        ]
        late.sort()
        return tuple([txn for _, txn in late])

    def advance_time(self, by_ms: int) -> None:
        self._now_ms += by_ms

    # ---- appends

    def _append(self, record: Record) -> tuple[Completion, ...]:
        if not self._batch_size:
            return self._submit((record,))
        self._buffer.append(record)
        return self.flush() if len(self._buffer) >= self._batch_size else ()

    def flush(self) -> tuple[Completion, ...]:
        """Submits the current batch. O(b)."""
        if not self._buffer:
            return ()
        entry = tuple(self._buffer)
        self._buffer.clear()
        return self._submit(entry)

    def _submit(self, entry: Entry) -> tuple[Completion, ...]:
        """Submits an entry to the ledger, or fails it at once. O(b)."""
        if self._ledger == "fenced":
            return _complete_all(entry, "fenced")
        if self._ledger == "write_failed":
            self._ledger = "closed"
            return _complete_all(entry, "not_written")
        if self._ledger == "closed":
            self._new_ledger()
        self._in_flight.append(entry)
        return ()

    def _new_ledger(self) -> None:
        """Adds a ledger, or replaces the last one if it is empty; stores the last id in the ledger property. O(1)."""
        self._ledger = "open"
        if self._ledgers[-1]:
            self._ledgers.append(0)
        self._property_id = self._last_id

    def complete_write(self) -> tuple[Completion, ...] | Refused:
        """Completes the write of the first entry in flight, and applies its records. O(b), plus their deletions."""
        if not self._in_flight:
            return Refused("illegal_state", "no entry is in flight")
        entry = self._in_flight.popleft()
        number, size = self._first_entry + len(self._log), len(entry)
        self._add(entry)
        completions = []
        for index, record in enumerate(entry):
            effective = self._apply(record, (number, index, size), self._now_ms + record.timeout_ms)
            completions.append(Completion(record.txn, record.op, "success" if effective else "invalid_status"))
        return tuple(completions)

    def _add(self, entry: Entry) -> None:
        """Adds a durable entry to the log. O(1)."""
        self._log.append(LogEntry(entry, self._batch_size > 0))
        self._ledgers[-1] += 1

    def _apply(self, record: Record, position: tuple[int, int, int], deadline_ms: int) -> bool:
        """Applies a durable record. Returns whether it has an effect; a record without an effect is deleted.

        O(1), or O(w / 64) if the record is deleted, or O(p * w / 64) if it ends its transaction.
        """
        txn, op = record.txn, record.op
        live = self._txns.get(txn)
        if op == "NEW":
            if live is None:
                live = self._txns[txn] = OngoingTxn(deadline_ms)
            live.positions.append(position)
            return True
        if live is None or not self._is_legal(live, record):
            self._delete((position,))
            return False
        live.positions.append(position)
        if record.to is not None:
            live.status = record.to
            if record.to in _ENDED:
                del self._txns[txn]
                self._delete(live.positions)
        elif op == "ADD_PARTITION":
            live.partitions |= 1 << record.name
        else:
            live.subscriptions |= 1 << record.name
        return True

    def _is_legal(self, live: OngoingTxn, record: Record) -> bool:
        return live.status == "OPEN" if record.to is None else record.to in _NEXT[live.status]

    def _delete(self, positions: Sequence[tuple[int, int, int]]) -> None:
        if self._deletions_succeed:
            self._cursor.delete(positions)

    # ---- failures of the ledger and of the cursor

    def fail_write(self, durable: int) -> tuple[Completion, ...] | Refused:
        """Fails all entries in flight as unknown; the first `durable` of them are in the log. O(their records)."""
        if not self._in_flight:
            return Refused("illegal_state", "no entry is in flight")
        self._ledger = "write_failed"
        return self._fail_in_flight(durable)

    def _fail_in_flight(self, durable: int) -> tuple[Completion, ...]:
        """Fails all entries in flight as unknown; the first `durable` of them are in the log.

        If entries were in flight, a ready store stops.
        """
        completions = [each for entry in self._in_flight for each in _complete_all(entry, "unknown")]
        if self._in_flight and self._status == "ready":
            self._status = "stopped"
        self._keep_durable(durable)
        return tuple(completions)

    def _keep_durable(self, durable: int) -> None:
        """Adds the first `durable` entries in flight to the log, and drops the others."""
        for entry in list(self._in_flight)[:durable]:
            self._add(entry)
        self._in_flight.clear()

    def fail_ledger_creation(self) -> tuple[Completion, ...] | Refused:
        """Fails the creation of the next ledger; entries in flight are not in the log. O(records in flight)."""
        if self._ledger != "open":
            return Refused("illegal_state", f"the ledger is {self._ledger}, not open")
        completions = [each for entry in self._in_flight for each in _complete_all(entry, "not_written")]
        self._ledger = "write_failed" if self._in_flight else "closed"
        self._in_flight.clear()
        return tuple(completions)

    def fence(self, durable: int) -> tuple[Completion, ...] | Refused:
        """Fences the ledger: another broker owns the log. Fails all entries in flight as unknown. O(their records)."""
        if self._ledger == "fenced":
            return Refused("illegal_state", "the ledger is fenced")
        self._ledger = "fenced"
        return self._fail_in_flight(durable)

    def break_cursor(self) -> Refused | None:
        if not self._deletions_succeed:
            return Refused("illegal_state", "the cursor does not work")
        self._deletions_succeed = False
        return None

    # ---- ledgers and the persisted cursor

    def roll_ledger(self) -> int | Refused:
        if self._ledger != "open":
            return Refused("illegal_state", f"the ledger is {self._ledger}, not open")
        if self._ledgers[-1] == 0:
            return Refused("illegal_state", "the ledger is empty")
        self._new_ledger()
        return len(self._ledgers)

    def trim(self) -> int:
        """Trims ledgers up to the persisted mark-delete position; returns their number. O(entries in the log)."""
        count, first = 0, self._first_entry
        while count < len(self._ledgers) - 1 and first + self._ledgers[count] <= self._durable.first_unacked:
            first += self._ledgers[count]
            count += 1
        if count:
            del self._ledgers[:count]
            del self._log[: first - self._first_entry]
            self._first_entry, self._property_id = first, self._last_id
        return count

    def persist(self) -> bool | Refused:
        """Persists the deletions. Returns false if the cursor is not dirty. O(k log k) and the cost of `truncated`."""
        if self._ledger == "fenced" or not self._deletions_succeed:
            return Refused("illegal_state", "the cursor cannot be persisted")
        if not self._cursor.dirty:
            return False
        self._durable = truncated(self.cfg, self._cursor.snapshot(), self._first_entry, self._ledgers)
        self._cursor.dirty = False
        return True

    # ---- restart and replay

    def reopen(self, batching: bool) -> tuple[Completion, ...] | Refused:
        """Closes the store cleanly and opens it again. Cost of `persist` and of `_open`."""
        if self._in_flight:
            return Refused("illegal_state", "entries are in flight")
        completions = _complete_all(self._buffer, "closed")
        if self._ledger != "fenced" and self._deletions_succeed:
            self._durable = truncated(self.cfg, self._cursor.snapshot(), self._first_entry, self._ledgers)
        self._open(batching)
        return completions

    def crash(self, durable: int) -> None:
        """Crashes the broker and opens the store again. Cost of `_open`."""
        self._keep_durable(durable)
        self._open(self._batching)

    def _open(self, batching: bool) -> None:
        """Opens the store from its ledgers and the persisted cursor: memory is empty, and the replay is to begin.

        O(n + entries in the log + records that are not yet serialised + w / 64 + k).
        """
        for entry in self._log:
            entry.forget()
        self._last_id = self._property_id = self._recoverable_id()
        self._status, self._ledger, self._deletions_succeed = "replaying", "open", True
        self._batching = batching
        self._configure()
        self._buffer.clear()
        self._txns.clear()
        if self._ledgers[-1]:
            self._ledgers.append(0)
        self._cursor.recover(self._durable)
        self._read_position = self._cursor.first_unacked

    def _next_entry(self) -> int | None:
        for number in range(self._read_position, self._first_entry + len(self._log)):
            if not self._cursor.is_deleted(number):
                return number
        return None

    def replay_entry(self) -> int | Refused:
        """Replays the next entry that is not deleted; returns the number of replayed records.

        O(b), plus their deletions, and O(w / 64) for each deleted entry that is skipped.
        """
        if self._status != "replaying":
            return Refused("illegal_state", f"the store is {self._status}, not replaying")
        number = self._next_entry()
        if number is None:
            return Refused("illegal_state", "the log has been read to its end")
        entry = self._log[number - self._first_entry]
        remaining = self._cursor.remaining(number, entry.size)
        self._read_position = number + 1
        for index, record in enumerate(entry.records):
            if remaining >> index & 1:
                self._replay(record, (number, index, entry.size))
        return remaining.bit_count()

    def _replay(self, record: Record, position: tuple[int, int, int]) -> None:
        """Applies a record of the replay. Its deadline is start time plus timeout. Cost as `_apply`."""
        self._apply(record, position, record.start_ms + record.timeout_ms)

    def complete_replay(self) -> Recovered | Refused:
        """Ends the replay; the store is ready. O(n log n), and O(w / 64) for each deleted entry that is skipped."""
        if self._status != "replaying":
            return Refused("illegal_state", f"the store is {self._status}, not replaying")
        if self._next_entry() is not None:
            return Refused("illegal_state", "the log has not been read to its end")
        self._status, self._read_position = "ready", 0
        self._txns = dict(sorted(self._txns.items()))
        return Recovered(
            tuple([t for t, live in self._txns.items() if live.status == "COMMITTING"]),
            tuple([t for t, live in self._txns.items() if live.status == "ABORTING"]),
            tuple([OpenTxn(t, live.deadline_ms) for t, live in self._txns.items() if live.status == "OPEN"]),
        )

    def fail_read(self) -> Failed | Refused:
        """Reading stops for good; the store does not open. O(1)."""
        if self._status != "replaying":
            return Refused("illegal_state", f"the store is {self._status}, not replaying")
        self._status, self._read_position = "failed", 0
        return Failed("read_failed", "the log could not be read to its end")

    # ---- for the engines

    def view(self) -> State:
        """Returns the model's state, with the initial values of history variables. O(size of the state)."""
        txns = [
            Txn(t, live.status, live.partitions, live.subscriptions, live.deadline_ms, _positions(live))
            for t, live in sorted(self._txns.items())
        ]
        return State(
            self._status,  # type: ignore[arg-type]
            self._ledger,  # type: ignore[arg-type]
            self._batching,
            self._deletions_succeed,
            tuple(self._buffer),
            tuple(self._in_flight),
            self._first_entry,
            tuple(self._ledgers),
            tuple([entry.records for entry in self._log]),
            self._property_id,
            tuple(txns),
            self._last_id,
            self._cursor.snapshot().view(),
            self._durable.view(),
            self._cursor.dirty,
            self._read_position,
            self._now_ms,
            (),
            -1,
            -1,
        )

    @classmethod
    def load(cls, cfg: Config, s: State) -> TxnLog:
        self = cls(cfg)
        self._status, self._ledger, self._batching, self._deletions_succeed = (
            s.status,
            s.ledger,
            s.batching,
            s.deletions_succeed,
        )
        self._configure()
        self._buffer, self._in_flight = list(s.buffer), deque(s.in_flight)
        self._first_entry, self._ledgers = s.first_entry, list(s.ledgers)
        self._property_id, self._last_id = s.ledger_property_id, s.last_id
        # the model does not know the form of an entry with one record; both forms have the same record
        self._log = [LogEntry(entry, len(entry) > 1) for entry in s.log]
        for t in s.txns:
            live = self._txns[t.id] = OngoingTxn(t.deadline_ms)
            live.status, live.partitions, live.subscriptions = t.status, t.partitions, t.subscriptions
            live.positions = [(p.entry, p.batch_index, len(s.log[p.entry - s.first_entry])) for p in t.positions]
        self._cursor.first_unacked, self._cursor.window, partial = snapshot_of(s.acks)
        self._cursor.partial, self._cursor.dirty = dict(partial), s.dirty
        self._durable = snapshot_of(s.durable)
        self._read_position, self._now_ms = s.read_position, s.now_ms
        return self

    def check(self) -> list[str]:
        wrong = []
        end = self._first_entry + len(self._log)
        if sum(self._ledgers) != len(self._log) or 0 in self._ledgers[:-1]:
            wrong.append("ledger sizes differ from the log, or a ledger other than the last is empty")
        if self._status == "ready" and list(self._txns) != sorted(self._txns):
            wrong.append("transactions are not in id order")
        cursor = self._cursor
        beyond = cursor.first_unacked + cursor.window.bit_length() > end
        if cursor.window & 1 or beyond or self._durable.first_unacked < self._first_entry:
            wrong.append("the mark-delete position or the deleted range is outside the log")
        for entry, remaining in cursor.partial.items():
            size = self._log[entry - self._first_entry].size if self._first_entry <= entry < end else 0
            if cursor.is_deleted(entry) or not 0 < remaining < (1 << size) - 1:
                wrong.append("an ack set is empty, full, or of a deleted or missing entry")
        positions = [position for live in self._txns.values() for position in live.positions]
        in_log = all(self._first_entry <= entry < end for entry, _, _ in positions)
        if len(set(positions)) != len(positions) or not in_log:
            wrong.append("two transactions share a position, or a position is not in the log")
        if self._batch_size and len(self._buffer) >= self._batch_size:
            wrong.append("the buffer is full but was not flushed")
        return wrong


def _complete_all(records: Sequence[Record], result: Result) -> tuple[Completion, ...]:
    """Completes the futures of all records with one result. O(records)."""
    return tuple([Completion(record.txn, record.op, result) for record in records])


def _positions(live: OngoingTxn) -> tuple[RecordPosition, ...]:
    return tuple([RecordPosition(entry, index) for entry, index, _ in live.positions])
