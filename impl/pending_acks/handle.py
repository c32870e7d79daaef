"""Pending-ack handle of a subscription (`PendingAckHandleImpl` and `MLPendingAckStore` in Pulsar).

Implements the `reference` rules and all settings of `model/pending_acks`. The parts:

    cursor    mark-delete position, acknowledged entries, ack sets (impl/pending_acks/cursor.py)
    pending   acks by transaction and by entry (impl/pending_acks/pending.py)
    log       the entries that are not mark-deleted (impl/pending_acks/log.py)
    index     a list of ack positions and a list of log positions (impl/pending_acks/log.py): a binary search in the
              ack positions finds the log position up to which the log can be mark-deleted

A request is *unlogged* while its record is buffered or in flight. In the costs, k is the number of positions of a
request or record, h the number of acks of one entry, pending or unlogged, p the number of pending individual acks of a
transaction, and c the cost to find a conflict: O(k h) for individual acks, and O(h + transactions with pending acks +
positions of unlogged acks) for a cumulative ack.

A low watermark aborts every transaction that has pending acks and an id at or below the low watermark, unless an abort
of the transaction is unlogged. Unlogged aborts are counted by transaction, so no request is scanned.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from impl.pending_acks.cursor import Cursor
from impl.pending_acks.log import Log, SparseIndex
from impl.pending_acks.pending import AckSet, PendingAcksIndex
from model.machine import Failed, Refused
from model.pending_acks.machine import NOTHING, AckArgument, Effects, Reply
from model.pending_acks.state import (
    INTERNAL,
    Config,
    CumulativeAck,
    LogEntry,
    LogRecord,
    PositionAck,
    Redelivery,
    Request,
    State,
)


class Ended(NamedTuple):
    """The pending acks that a commit or abort ends: individual acks by entry, and a cumulative ack."""

    individual: dict[int, AckSet]
    cumulative: CumulativeAck | None


_NOT_IN_FLIGHT = Refused("not_enabled", "no entry is in flight")
_NOTHING_TO_READ = Refused("not_enabled", "there is nothing to read")
_NOT_READY = Refused("not_ready", "the status of the handle is error or closed; open it first")


class PendingAcks:
    """A handle. The actions of `model/pending_acks` are methods of the same names."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self._sizes = cfg.batch_sizes
        self._cursor = Cursor(cfg.batch_sizes)
        self._log = Log(cfg.batch_sizes, cfg.batched_writes)
        self._index = SparseIndex(cfg.min_lag, cfg.max_lag, cfg.lag_exponent)
        self._pending = PendingAcksIndex()
        self._status = "none"
        #: `_replayed`: log position of the next entry to replay; outside a replay, that of the log's first entry
        self._replayed = self._failed_reads = 0
        self._accept_queue: list[Request] = []
        self._buffer: list[Request] = []
        self._in_flight: deque[list[Request]] = deque()
        self._unlogged_aborts: dict[int, int] = {}  # by transaction: number of aborts that are buffered or in flight
        self._low_watermark = 0
        self._next_request = 1

    # ---- messages

    def _everything(self, entry: int) -> int:
        """Returns the mask of all messages of an entry."""
        return (1 << self._sizes[entry % len(self._sizes)]) - 1

    def _messages(self, entry: int, ack_set: AckSet) -> int:
        """Returns the mask of the messages that an ack acknowledges."""
        return self._everything(entry) & ~(ack_set or 0)

    def _invalid(self, entry: int, ack_set: AckSet) -> Refused | None:
        """Returns the refusal of an invalid ack set; None if the ack set is valid."""
        if ack_set and ack_set >= self._everything(entry):
            why = f"the ack set of entry {entry} acks nothing or has a bit after the batch"
            return Refused("illegal_argument", why)
        return None

    def _ack(self, entry: int, ack_set: AckSet) -> None:
        """Acks an entry in the cursor. An ack of some messages has no effect without `batch_index_acks`."""
        if not ack_set:
            self._cursor.ack(entry, 0)
        elif self.cfg.batch_index_acks:
            self._cursor.ack(entry, ack_set)

    # ---- conflicts

    def _overlap(self, txn: int, entry: int, ack_set: AckSet) -> str:
        """Returns why an individual ack of one position overlaps pending or unlogged acks, '' if it does not. O(h).

        The ack is compared with all individual acks of the entry, including those of `txn`, and with the cumulative ack
        of another transaction.
        """
        pending = self._pending
        txns, unlogged = pending.by_entry.get(entry), pending.unlogged.get(entry)
        messages = self._messages(entry, ack_set)
        if txns or unlogged:
            if ack_set is None:
                return f"entry {entry} is pending"
            others = [*(txns.values() if txns else ()), *([each for _, each in unlogged] if unlogged else ())]
            if any(messages & ~(other or 0) for other in others):
                return f"a message of entry {entry} is pending"
        cumulative = self._cumulative()
        if cumulative is not None and cumulative.txn != txn:
            last, left = cumulative.ack
            if entry < last or (entry == last and messages & ~(left or 0)):
                return f"transaction {cumulative.txn} has a cumulative ack of entry {entry}"
        return ""

    def _cumulative_overlap(self, txn: int, ack: PositionAck) -> str:
        """Returns why a cumulative ack conflicts with pending or unlogged acks, '' if it does not. O(c)."""
        other = self._cumulative()
        if other is not None and other.txn != txn:
            return f"transaction {other.txn} has a cumulative ack"
        if other is not None and self._first_position_after(ack) <= self._first_position_after(other.ack):
            return "the transaction has a cumulative ack at or after that position"
        if self._pending.has_other_up_to(txn, ack.entry, self._messages(*ack)):
            return f"another transaction has a pending ack at or before entry {ack.entry}"
        return ""

    @staticmethod
    def _first_position_after(ack: PositionAck) -> tuple[int, int]:
        """Returns a key that orders cumulative acks by the first message after them.

        The key is (entry, 1 + i), where i is the index of the first message that is not acked. If the whole entry is
        acked, the key is (next entry, 0).
        """
        entry, ack_set = ack
        return (entry, (ack_set & -ack_set).bit_length()) if ack_set else (entry + 1, 0)

    def _cumulative(self) -> CumulativeAck | None:
        """Returns the latest cumulative ack that is pending or unlogged; None if there is none. O(1)."""
        if self._pending.unlogged_cumulative:
            last = self._pending.unlogged_cumulative[-1]
            return CumulativeAck(last.txn, last.acks[0])
        return self._pending.cumulative

    def _conflict(self, record: LogRecord) -> str:
        """Returns why an ack request conflicts, '' if it does not. O(c)."""
        cursor = self._cursor
        if record.cumulative:
            ack = record.acks[0]
            if ack.entry < cursor.first_unacked:
                return f"entry {ack.entry} is acknowledged"
            return self._cumulative_overlap(record.txn, ack)
        for entry, ack_set in record.acks:
            if cursor.is_deleted(entry):
                return f"entry {entry} is acknowledged"
            if (
                ack_set is not None
                and entry in cursor.ack_sets
                and self._messages(entry, ack_set) & cursor.acked(entry)
            ):
                return f"a message of entry {entry} is acknowledged"
            why = self._overlap(record.txn, entry, ack_set)
            if why:
                return why
        return ""

    # ---- requests

    def _append(self, request: Request) -> None:
        """Buffers a record or, if writes are not batched, starts the append of a log entry with this record. O(k)."""
        op, _, txn, _ = request.record
        if op == "ack":
            self._pending.submit(request.record)
        elif op == "abort":
            self._unlogged_aborts[txn] = self._unlogged_aborts.get(txn, 0) + 1
        if self.cfg.batched_writes:
            self._buffer.append(request)
        else:
            self._in_flight.append([request])

    def _remove_unlogged(self, request: Request) -> None:
        """Removes a request from the unlogged acks and aborts. O(k h)."""
        op, _, txn, _ = request.record
        if op == "ack":
            self._pending.complete(request.record)
        elif op == "abort":
            self._unlogged_aborts[txn] -= 1
            if not self._unlogged_aborts[txn]:
                del self._unlogged_aborts[txn]

    def _accept(self, request: Request) -> str:
        """Appends the record of a request in a ready handle; returns '', or why it conflicts. O(c) for an ack."""
        record = request.record
        if record.op == "ack":
            why = self._conflict(record)
            if not why:
                self._append(request)
            return why
        cumulative = self._cumulative()
        # as in Pulsar, the record of a commit or abort has an ack type, too; here, the type has no effect
        is_cumulative = cumulative is not None and cumulative.txn == record.txn
        self._append(
            Request(request.number, LogRecord(record.op, is_cumulative, record.txn, ()), request.low_watermark)
        )
        return ""

    def _receive(self, record: LogRecord, low_watermark: int) -> Reply | Refused | Failed:
        """Accepts, queues or fails a request, depending on the status. O(c) for an ack."""
        status, number = self._status, self._next_request
        if status == "ready":
            why = self._accept(Request(number, record, low_watermark))
            if why:
                return Failed("conflict", why)
        elif status in ("error", "closed"):
            return _NOT_READY
        else:
            if status == "none":
                self._initialize()
            self._accept_queue.append(Request(number, record, low_watermark))
        self._next_request = number + 1
        return Reply(number, "queued")

    def ack_individual(self, txn: int, acks: tuple[AckArgument, ...]) -> Reply | Refused | Failed:
        """Acks positions individually. O(c)."""
        if not acks:
            return Refused("illegal_argument", "acks is empty")
        for entry, ack_set in acks:
            refusal = self._invalid(entry, ack_set)
            if refusal is not None:
                return refusal
        if len(acks) > 1 and len({entry for entry, _ in acks}) < len(acks):
            return Refused("illegal_argument", "acks names an entry twice")
        positions = tuple([PositionAck(entry, ack_set or None) for entry, ack_set in acks])
        return self._receive(LogRecord("ack", False, txn, positions), 0)

    def ack_cumulative(self, txn: int, entry: int, ack_set: int | None) -> Reply | Refused | Failed:
        """Acks everything up to a position. O(c)."""
        refusal = self._invalid(entry, ack_set)
        if refusal is not None:
            return refusal
        # the ack leaves the last messages of the batch: if the set bits are contiguous and end at the last message,
        # adding the lowest set bit gives the bit after the batch
        if ack_set and ack_set + (ack_set & -ack_set) != self._everything(entry) + 1:
            return Refused("illegal_argument", f"ack_set is {ack_set}, which does not leave the tail of the batch")
        return self._receive(LogRecord("ack", True, txn, (PositionAck(entry, ack_set or None),)), 0)

    def commit(self, txn: int, low_watermark: int) -> Reply | Refused | Failed:
        return self._receive(LogRecord("commit", False, txn, ()), low_watermark)

    def abort(self, txn: int, low_watermark: int) -> Reply | Refused | Failed:
        return self._receive(LogRecord("abort", False, txn, ()), low_watermark)

    # ---- the subscription

    def acknowledge(self, entry: int, ack_set: int | None) -> Refused | None:
        refusal = self._invalid(entry, ack_set)
        if refusal is None:
            self._ack(entry, ack_set or None)
        return refusal

    def persist(self) -> bool:
        """Persists the cursor. O(entries after the mark-delete position)."""
        return self._cursor.persist()

    # ---- the log

    def flush(self) -> int | Refused:
        if not self._buffer:
            return Refused("not_enabled", "the buffer is empty")
        self._in_flight.append(self._buffer)
        count, self._buffer = len(self._buffer), []
        return count

    def _ended(self, txn: int) -> Ended:
        """Returns the pending acks that a commit or abort ends. O(1)."""
        cumulative = self._pending.cumulative
        if cumulative is not None and cumulative.txn != txn:
            cumulative = None
        return Ended(self._pending.by_txn.get(txn, {}), cumulative)

    def _remove(self, txn: int, ended: Ended) -> None:
        """Removes the ended acks of a transaction. O(p)."""
        self._pending.remove(txn)
        if ended.cumulative is not None:
            self._pending.cumulative = None

    def _commit(self, ended: Ended) -> None:
        """Acks in the cursor what a commit ends. O(p), and the entries that the mark-delete position passes."""
        acks, cumulative = ended
        for entry, ack_set in acks.items():
            self._ack(entry, ack_set)
        if cumulative is not None:
            entry, ack_set = cumulative.ack
            # without an ack set, the entry is acked here, and `_ack` changes nothing
            self._cursor.ack_before(entry + (ack_set is None))
            self._ack(entry, ack_set)

    def _redeliveries(self, ended: Ended) -> list[Redelivery]:
        """Returns what an abort redelivers: messages of the ended individual acks that the cursor has not acknowledged.

        O(p log p). No other transaction has these messages pending.
        """
        acks = sorted(ended.individual.items())
        left = [(entry, self._messages(entry, ack_set) & ~self._cursor.acked(entry)) for entry, ack_set in acks]
        return [Redelivery(entry, messages) for entry, messages in left if messages]

    def _add(self, record: LogRecord) -> None:
        """Adds a pending ack. O(k)."""
        if record.cumulative:
            self._pending.cumulative = CumulativeAck(record.txn, record.acks[0])
            return
        for entry, ack_set in record.acks:
            self._pending.add(record.txn, entry, ack_set)

    def _apply(self, request: Request, cursor_rejects: bool, redelivered: list[Redelivery]) -> str:
        """Applies a durable record; returns the result of the request, and appends to `redelivered`.

        O(k) for an ack; O(p log p + transactions) for a commit or abort; a commit also costs the entries that the
        mark-delete position passes. If the cursor rejects the acks of a commit, the status becomes error.
        """
        record = request.record
        if record.op == "ack":
            self._add(record)
            return "done"
        ended = self._ended(record.txn)
        if ended.individual or ended.cumulative is not None:
            if cursor_rejects and record.op == "commit":
                self._status = "error"
                return "failed"
            self._remove(record.txn, ended)
            if record.op == "abort":
                redelivered += self._redeliveries(ended)
            else:
                self._commit(ended)
        self._apply_low_watermark(request.low_watermark)
        return "done"

    def _apply_low_watermark(self, low_watermark: int) -> None:
        """Aborts transactions with pending acks and an id up to the highest low watermark so far. O(transactions)."""
        self._low_watermark = highest = max(self._low_watermark, low_watermark)
        if highest == 0:
            return
        txns = dict.fromkeys(self._pending.by_txn)
        if self._pending.cumulative is not None:
            txns.setdefault(self._pending.cumulative.txn)
        for txn in txns:
            if txn <= highest and txn not in self._unlogged_aborts:
                self._accept(Request(INTERNAL, LogRecord("abort", False, txn, ()), highest))

    def _stop(self, status: str) -> list[Reply]:
        """Sets the status, clears memory, and fails queued and buffered requests. O(sum of k h of these requests)."""
        # an internal abort, whose number is 0, has no caller and no reply
        failed = [Reply(each.number, "failed") for each in (*self._accept_queue, *self._buffer) if each.number]
        for request in self._buffer:
            self._remove_unlogged(request)
        self._accept_queue, self._buffer = [], []
        self._pending.clear_memory()
        self._index.clear()
        self._replayed, self._failed_reads, self._low_watermark = self._log.base, 0, 0
        self._status = status
        return failed

    def _index_entry(self, entry: LogEntry, position: int) -> int:
        """Adds a log entry to the index, and mark-deletes the log up to the last key that can be removed.

        Returns the number of log entries that are mark-deleted. O(sum of k of its records), and O(keys + entries of the
        log) if this number is not 0.
        """
        last = -1  # the last entry of the topic that the log entry acks
        for record in entry:
            for ack in record.acks:
                last = max(last, ack.entry)
        self._index.add(len(entry), last, position)
        end = self._index.cut(self._cursor.durable_first_unacked)
        if end is None:
            return 0
        count = self._log.mark_delete(end)
        # the first entry of the log is now at `end`
        self._replayed = max(self._replayed, end)
        return count

    def _complete(self, cursor_rejects: bool) -> Effects | Refused:
        """Completes the append of the first entry in flight, and applies its records.

        Costs of `_remove_unlogged` and `_apply` for each record, and of `_index_entry`.
        """
        if not self._in_flight:
            return _NOT_IN_FLIGHT
        requests = self._in_flight.popleft()
        entry = tuple([request.record for request in requests])
        self._log.append(entry)
        was_ready = self._status == "ready"
        replies: list[Reply] = []
        redelivered: list[Redelivery] = []
        for request in requests:
            self._remove_unlogged(request)
        for request in requests:
            result = self._apply(request, cursor_rejects, redelivered) if self._status == "ready" else "failed"
            if request.number:
                replies.append(Reply(request.number, result))  # type: ignore[arg-type]
        if self._status == "ready":
            count = self._index_entry(entry, self._log.end - 1)
            return Effects(tuple(replies), tuple(redelivered), count)
        if was_ready:
            replies += self._stop("error")
        return Effects(tuple(replies), tuple(redelivered), 0)

    def written(self) -> Effects | Refused:
        """Completes the append of the first entry in flight, and applies its records."""
        return self._complete(False)

    def cursor_refuses(self) -> Effects | Refused:
        """As `written`, but the cursor rejects the acks that the records commit."""
        return self._complete(True)

    def write_fails(self, durable: bool) -> Effects | Refused:
        """Fails the append of the first entry in flight. `durable`: the log has the entry nevertheless."""
        if not self._in_flight:
            return _NOT_IN_FLIGHT
        requests = self._in_flight.popleft()
        for request in requests:
            self._remove_unlogged(request)
        if durable:
            self._log.append(tuple([request.record for request in requests]))
        replies = [Reply(request.number, "failed") for request in requests if request.number]
        if self._status == "ready":
            replies += self._stop("error")
        return Effects(tuple(replies), (), 0)

    # ---- open, replay, close, crash

    def _initialize(self) -> None:
        self._status = "initializing"
        self._replayed = self._log.base

    def open_store(self) -> Refused | None:
        if self._status in ("initializing", "ready"):
            return Refused("not_enabled", "the handle is open")
        if self._in_flight:
            return Refused("not_enabled", "entries are in flight")
        self._initialize()
        return None

    def _is_reading(self) -> bool:
        return self._status == "initializing" and self._replayed < self._log.end

    def read_entry(self) -> int | Refused:
        """Replays the next log entry. Returns the number of log entries that are mark-deleted."""
        if not self._is_reading():
            return _NOTHING_TO_READ
        position = self._replayed
        entry = self._log.read(position)
        for record in entry:
            self._replay(record)
        self._replayed = position + 1
        self._failed_reads = 0
        return self._index_entry(entry, position)

    def _replay(self, record: LogRecord) -> None:
        """Replays a record. O(c) for an ack; for others O(p), and the entries that the mark-delete position passes.

        An ack that conflicts with pending acks is dropped. Also dropped are a cumulative ack of an entry at or before
        the durable mark-delete position and, of an individual ack, each position whose messages are all durably acked.
        """
        if record.op != "ack":
            ended = self._ended(record.txn)
            if record.op == "commit":
                self._commit(ended)
            self._remove(record.txn, ended)
        elif record.cumulative:
            ack = record.acks[0]
            if ack.entry >= self._cursor.durable_first_unacked and not self._cumulative_overlap(record.txn, ack):
                self._pending.cumulative = CumulativeAck(record.txn, ack)
        elif not any(self._overlap(record.txn, *ack) for ack in record.acks):
            for entry, ack_set in record.acks:
                if self._messages(entry, ack_set) & ~self._cursor.durably_acked(entry):
                    self._pending.add(record.txn, entry, ack_set)

    def end_replay(self) -> Effects | Refused:
        """Makes the handle ready after the replay, and accepts the queued requests. O(c) for each of them."""
        if self._status != "initializing" or self._is_reading():
            return Refused("not_enabled", "no replay is complete")
        queue, self._accept_queue = self._accept_queue, []
        self._status, self._failed_reads, self._replayed = "ready", 0, self._log.base
        conflicts = [request.number for request in queue if self._accept(request)]
        return Effects(tuple([Reply(number, "conflict") for number in conflicts]), (), 0)

    def read_fails(self, stops: bool) -> Effects | Refused:
        """Fails a read of the replay. The replay stops if `stops`, or after `max_failed_reads` failures in a row."""
        if not self._is_reading():
            return _NOTHING_TO_READ
        self._failed_reads += 1
        if not stops and self._failed_reads < self.cfg.max_failed_reads:
            return NOTHING
        return Effects(tuple(self._stop("error")), (), 0)

    def close(self) -> Effects | Refused:
        """Closes the handle. Cost of `_stop`."""
        if self._status not in ("initializing", "ready"):
            return Refused("not_enabled", "the handle is not open")
        return Effects(tuple(self._stop("closed")), (), 0)

    def crash(self, survive: int) -> Refused | None:
        """Loses memory. The first `survive` entries in flight are durable. Encodes the log: O(size of the log)."""
        if survive > len(self._in_flight):
            return Refused("not_enabled", f"fewer than {survive} entries are in flight")
        for requests in list(self._in_flight)[:survive]:
            self._log.append(tuple([request.record for request in requests]))
        self._log.encode()
        self._cursor.crash()
        self._stop("none")
        self._in_flight.clear()
        self._pending = PendingAcksIndex()
        self._unlogged_aborts = {}
        return None

    # ---- for the engines

    def check(self) -> list[str]:
        wrong = self._cursor.check() + self._pending.check() + self._index.check(self._log.base, self._log.end)
        if self._status != "ready" and self._buffer:
            wrong.append("a handle that is not ready has buffered requests")
        if self._status != "initializing" and self._accept_queue:
            wrong.append("the accept queue is not empty and no replay is running")
        pending = self._pending
        has_state = pending.by_txn or pending.cumulative or self._index.current_lag or self._low_watermark
        if has_state and self._status not in ("initializing", "ready"):
            wrong.append("a handle that is not open has pending acks, index lag or a low watermark")
        requests = [request for each in (*self._in_flight, self._buffer) for request in each]
        if not all(self._in_flight):
            wrong.append("an entry in flight has no records")
        aborts = [request.record.txn for request in requests if request.record.op == "abort"]
        if {txn: aborts.count(txn) for txn in aborts} != self._unlogged_aborts:
            wrong.append("the count of unlogged aborts is wrong")
        numbers = [request.number for request in (*requests, *self._accept_queue) if request.number]
        if sorted(set(numbers)) != numbers or (numbers and numbers[-1] >= self._next_request):
            wrong.append("the requests are not in order")
        if not self._log.base <= self._replayed <= self._log.end:
            wrong.append("the replay position is outside the log")
        return wrong

    def view(self) -> State:
        base, (cursor, durable_cursor) = self._log.base, self._cursor.view()
        # `State.read_position` equals `State.replayed`, because every replay starts at the first entry of the log
        replayed = self._replayed - base if self._status == "initializing" else 0
        return State(
            cursor,
            durable_cursor,
            self._log.view(),
            replayed,
            self._index.view(base),
            self._status,  # type: ignore[arg-type]
            replayed,
            self._failed_reads,
            tuple(self._accept_queue),
            tuple(self._buffer),
            tuple([tuple(requests) for requests in self._in_flight]),
            self._pending.view(),
            self._pending.cumulative,
            self._low_watermark,
            self._next_request,
        )

    @classmethod
    def load(cls, cfg: Config, state: State) -> PendingAcks:
        handle = cls(cfg)
        handle._cursor.load(state.cursor, state.durable_cursor)
        handle._log.load(state.log)
        handle._index.load(state.log_index)
        handle._pending.load(state.individual_acks, state.cumulative_ack)
        handle._status = state.status
        handle._replayed, handle._failed_reads = state.replayed, state.failed_reads
        for requests in (*state.in_flight, state.buffer):
            for request in requests:
                handle._append(request)  # for the unlogged acks and aborts; the next lines replace the queues
        handle._in_flight = deque([list(requests) for requests in state.in_flight])
        handle._accept_queue, handle._buffer = list(state.accept_queue), list(state.buffer)
        handle._low_watermark, handle._next_request = state.low_watermark, state.next_request
        return handle
