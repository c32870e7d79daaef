"""A subscription's pending-ack store, with structures whose cost is right.

The same behaviour as `model/pending_acks/machine.py`. k are the parts that a request is of, h the transactions that hold a part
of one entry, which are few:

    cursor   marks, a set and a dictionary (impl/pending_acks/cursor.py)
    claims   by transaction and by entry (impl/pending_acks/claims.py): a request is checked in O(k h), an end releases
             in O(k)
    log      entries from the first that is kept; bytes for what survives a crash (impl/pending_acks/log.py)
    index    two lists: a key is made in O(1), what goes is found in O(log keys)

Who is about to be aborted is counted, so that a low watermark is a walk over the holders and no search in the buffer.
"""

from __future__ import annotations

from collections import deque

from impl.pending_acks.claims import Claims, Leaves
from impl.pending_acks.cursor import Cursor
from impl.pending_acks.log import Log, SparseIndex
from model.machine import Failed, Refused
from model.pending_acks.machine import NOTHING, AckOf, Answer, Effects
from model.pending_acks.state import Call, Config, Cumulative, Entry, Messages, Part, Record, State

#: What an end takes along: a transaction's own parts, and a cumulative acknowledgement.
Ended = tuple[dict[int, Leaves], Cumulative | None]

_NOT_IN_FLIGHT = Refused("illegal_state", "no entry is in flight")
_NOTHING_TO_READ = Refused("illegal_state", "there is nothing to read")
_NOT_OPEN = Refused("illegal_state", "the store must be opened first")


class PendingAcks:
    """A store. Methods are named as the actions."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self._sizes = cfg.batch_sizes
        self._cursor = Cursor(cfg.batch_sizes)
        self._log = Log(cfg.batch_sizes, cfg.batching)
        self._index = SparseIndex(cfg.min_lag)
        self._claims = Claims()
        self._status = "none"
        self._read = self._progress = self._attempts = 0
        self._queue: list[Call] = []
        self._buffer: list[Call] = []
        self._in_flight: deque[list[Call]] = deque()
        self._aborting: dict[int, int] = {}  # how many aborts of a transaction are on their way
        self._own_aborts = 0  # how many of them nobody asked for
        self._low_watermark = 0
        self._next_ticket = 1
        self._is_early = {"before_the_append": True, "in_the_log": False}[cfg.conflicts_are_found]
        self._drops_all = {"what_is_acknowledged": False, "the_whole_record": True}[cfg.recovery_drops]
        self._aborts_all = {"all": True, "from_the_first": False}[cfg.low_watermark_aborts]
        self._looks_at_words = self._is_one_set = {"within_batch": False, "words_of_pending": True}[cfg.overlap]
        self._changes_memory = {"open_anew": False, "change_memory": True}[cfg.failed_appends]

    # ---- small rules

    def _everything(self, entry: int) -> int:
        return (1 << self._sizes[entry % len(self._sizes)]) - 1

    def _bits(self, entry: int, leaves: Leaves) -> int:
        return self._everything(entry) & ~(leaves or 0)

    def _wrong_set(self, entry: int, leaves: Leaves) -> Refused | None:
        """Why an ack set is refused, if it is."""
        if leaves and leaves >= self._everything(entry):
            why = f"entry {entry} has a set that acknowledges nothing, or with a bit beyond the batch"
            return Refused("illegal_argument", why)
        return None

    def _counts(self, entry: int, leaves: Leaves) -> None:
        """The cursor takes an acknowledgement, as far as it counts."""
        is_empty = leaves == 0 and (self.cfg.batch_acks or self.cfg.empty_sets_mean_whole)
        if leaves is None or is_empty:
            self._cursor.ack(entry, 0)
        elif self.cfg.batch_acks:
            self._cursor.ack(entry, leaves)

    # ---- conflicts

    def _overlaps(self, entry: int, leaves: int, claim: Leaves) -> bool:
        if claim is None:
            return self.cfg.parts_of_whole_entries_conflict
        both = self._everything(entry) & ~(leaves | claim)
        if self._looks_at_words:
            both &= (1 << 64 * ((claim.bit_length() + 63) // 64)) - 1
        return both != 0

    def _conflict_of(self, entry: int, leaves: Leaves) -> str:
        """Why a transaction cannot acknowledge a part of an entry; empty if it can. O(h)."""
        if self._cursor.is_deleted(entry):
            return f"entry {entry} is acknowledged"
        holders = self._claims.by_entry.get(entry)
        coming = self._claims.coming.get(entry) if self._is_early else None
        if leaves is None:
            return f"entry {entry} is pending" if holders or coming else ""
        if entry in self._cursor.parts and self._bits(entry, leaves) & self._cursor.acked(entry):
            return f"a message of entry {entry} is acknowledged"
        for claim in self._compared((*(holders.values() if holders else ()), *(coming or ()))):
            if self._overlaps(entry, leaves, claim):
                return f"a message of entry {entry} is pending"
        return ""

    def _compared(self, claims: tuple[Leaves, ...]) -> tuple[Leaves, ...]:
        """Each claim on an entry, or the one set of all of them. O(h)."""
        if not (self._is_one_set and claims):
            return claims
        union = -1
        for claim in claims:
            if claim is None:
                return (None,)
            union &= claim
        return (union,)

    @staticmethod
    def _reach(part: Part) -> tuple[int, int]:
        entry, leaves = part
        return (entry, (leaves & -leaves).bit_length()) if leaves else (entry + 1, 0)

    def _claim(self) -> Cumulative | None:
        """The cumulative acknowledgement that counts. O(1)."""
        if self._is_early and self._claims.coming_cumulative:
            last = self._claims.coming_cumulative[-1]
            return Cumulative(last.txn, last.parts[0])
        return self._claims.cumulative

    def _conflict(self, ack: Record) -> str:
        """Why a transaction cannot acknowledge all of this; empty if it can. O(k h)."""
        if not ack.cumulative:
            for entry, leaves in ack.parts:
                why = self._conflict_of(entry, leaves)
                if why:
                    return why
            return ""
        part, other = ack.parts[0], self._claim()
        if part.entry < self._cursor.mark:
            return f"entry {part.entry} is acknowledged"
        if other is None:
            return ""
        if other.txn != ack.txn:
            return f"transaction {other.txn} has a cumulative acknowledgement"
        return "the transaction has acknowledged as much" if self._reach(part) <= self._reach(other.part) else ""

    def _is_never_answered(self, ack: Record) -> bool:
        by_entry = self._claims.by_entry
        return any(p.leaves is not None and None in by_entry.get(p.entry, {}).values() for p in ack.parts)

    # ---- requests

    def _put(self, call: Call) -> None:
        """A record is on its way. O(k)."""
        op, _, txn, _ = call.record
        if op == "ack":
            self._claims.comes(call.record)
        elif op == "abort":
            self._aborting[txn] = self._aborting.get(txn, 0) + 1
            self._own_aborts += call.ticket == 0
        if self.cfg.batching:
            self._buffer.append(call)
        else:
            self._in_flight.append([call])

    def _gone(self, call: Call) -> None:
        """A record is not on its way any more. O(k)."""
        op, _, txn, _ = call.record
        if op == "ack":
            self._claims.came(call.record)
        elif op == "abort":
            self._own_aborts -= call.ticket == 0
            self._aborting[txn] -= 1
            if not self._aborting[txn]:
                del self._aborting[txn]

    def _append(self, call: Call) -> tuple[str, str]:
        """A request comes to the log, or is answered at once; and why it is a conflict."""
        record = call.record
        if record.op == "ack":
            why = self._conflict(record) if self._is_early else ""
            if why:
                return "conflict", why
            self._put(call)
            return "waits", ""
        claim = self._claim()
        is_typed = claim is not None and claim.txn == record.txn
        if claim is not None and not is_typed and self.cfg.cumulative_acks_hide_others:
            if record.op == "commit":
                return "done", ""
            is_typed = True
        self._put(Call(call.ticket, Record(record.op, is_typed, record.txn, ()), call.low_watermark))
        return "waits", ""

    def _request(self, record: Record, low_watermark: int) -> Answer | Refused | Failed:
        """A request comes to the log, or to the queue. O(k h)."""
        status, ticket = self._status, self._next_ticket
        if status == "ready":
            told, why = self._append(Call(ticket, record, low_watermark))
            if why:
                return Failed("conflict", why)
        elif status in ("error", "closed"):
            return _NOT_OPEN
        else:
            told = "waits"
            if status == "none":
                self._begin()
            self._queue.append(Call(ticket, record, low_watermark))
        self._next_ticket = ticket + 1
        return Answer(ticket, told)  # type: ignore[arg-type]

    def ack_individual(self, txn: int, acks: tuple[AckOf, ...]) -> Answer | Refused | Failed:
        """A transaction acknowledges entries. O(k h)."""
        if not acks:
            return Refused("illegal_argument", "acks is empty")
        for entry, leaves in acks:
            refusal = self._wrong_set(entry, leaves)
            if refusal is not None:
                return refusal
        if len(acks) > 1 and len({entry for entry, _ in acks}) < len(acks):
            return Refused("illegal_argument", "acks has an entry twice")
        parts = tuple([Part(entry, leaves or None) for entry, leaves in acks])
        return self._request(Record("ack", False, txn, parts), 0)

    def ack_cumulative(self, txn: int, entry: int, leaves: int | None) -> Answer | Refused | Failed:
        """A transaction acknowledges everything up to an entry. O(1)."""
        refusal = self._wrong_set(entry, leaves)
        if refusal is not None:
            return refusal
        if leaves and leaves + (leaves & -leaves) != self._everything(entry) + 1:
            return Refused("illegal_argument", f"leaves is {leaves}, not the end of a batch")
        return self._request(Record("ack", True, txn, (Part(entry, leaves or None),)), 0)

    def commit(self, txn: int, low_watermark: int) -> Answer | Refused | Failed:
        """A transaction is committed. O(1)."""
        return self._request(Record("commit", False, txn, ()), low_watermark)

    def abort(self, txn: int, low_watermark: int) -> Answer | Refused | Failed:
        """A transaction is aborted. O(1)."""
        return self._request(Record("abort", False, txn, ()), low_watermark)

    # ---- the subscription

    def acknowledge(self, entry: int, leaves: int | None) -> Refused | None:
        """A consumer acknowledges outside of transactions. O(1)."""
        refusal = self._wrong_set(entry, leaves)
        if refusal is None:
            self._counts(entry, leaves or None)
        return refusal

    def persist(self) -> bool:
        """The cursor becomes durable. O(what is after its mark)."""
        return self._cursor.persist()

    # ---- the log

    def flush(self) -> int | Refused:
        """What waits goes out as one entry. O(1)."""
        if not self._buffer:
            return Refused("illegal_state", "nothing waits in the buffer")
        self._in_flight.append(self._buffer)
        count, self._buffer = len(self._buffer), []
        return count

    def _hold(self, ack: Record) -> None:
        """An acknowledgement is pending. O(k)."""
        if ack.cumulative:
            self._claims.cumulative = Cumulative(ack.txn, ack.parts[0])
            return
        for entry, leaves in ack.parts:
            self._claims.hold(ack.txn, entry, leaves)

    def _taken(self, end: Record, *, replayed: bool) -> Ended:
        """What an end takes along. O(1)."""
        parts, claim = self._claims.held.get(end.txn, {}), self._claims.cumulative
        is_anybodys = replayed and end.cumulative and not self.cfg.replayed_ends_have_owners
        if claim is not None and claim.txn != end.txn and not is_anybodys:
            claim = None
        if self.cfg.cumulative_acks_hide_others:
            return ({}, claim) if end.cumulative else (parts, None)
        return parts, claim

    def _release(self, txn: int, ended: Ended) -> None:
        """Nobody holds this any more. O(k)."""
        parts, claim = ended
        if parts:
            self._claims.release(txn)
        if claim is not None:
            self._claims.cumulative = None

    def _acknowledge(self, ended: Ended) -> None:
        """The cursor takes what was committed. O(k), and what the mark passes."""
        parts, claim = ended
        for entry, leaves in parts.items():
            self._counts(entry, leaves)
        if claim is not None:
            entry, leaves = claim.part
            self._cursor.ack_before(entry + (leaves is None))
            self._counts(entry, leaves)

    def _redelivered(self, ended: Ended) -> list[Messages]:
        """What consumers get again. O(k h) and, of a cumulative acknowledgement, the entries up to its own."""
        parts, claim = ended
        ends = {entry: self._bits(entry, leaves) for entry, leaves in parts.items()}
        if claim is not None:
            last, leaves = claim.part
            for entry in range(self._cursor.mark, last):
                ends[entry] = self._everything(entry)
            if last >= self._cursor.mark:
                ends[last] = ends.get(last, 0) | self._bits(last, leaves)
        other, found = self._claims.cumulative, []
        for entry in sorted(ends):
            left = ends[entry] & ~self._cursor.acked(entry)
            if other is not None and entry <= other.part.entry:
                left &= 0 if entry < other.part.entry else other.part.leaves or 0
            for claimed in self._claims.by_entry.get(entry, {}).values():
                left &= claimed or 0
            if left:
                found.append(Messages(entry, left))
        return found

    def _call_back(self, call: Call, refuses: bool, again: list[Messages]) -> str:
        """A record is in the log: what its caller is told; what is redelivered is added to a list."""
        record = call.record
        if record.op == "ack":
            if not self._is_early:
                if self._conflict(record):
                    return "conflict"
                if not record.cumulative and self._is_never_answered(record):
                    return ""
            self._hold(record)
            return "done"
        ended = self._taken(record, replayed=False)
        holds = bool(ended[0]) or ended[1] is not None
        is_refused = refuses and holds and record.op == "commit"
        if is_refused and self.cfg.refused_commits != "are_forgotten":
            if self.cfg.refused_commits == "open_anew":
                self._status = "error"
            return "failed"
        if holds:
            self._release(record.txn, ended)
            if record.op == "abort":
                again += self._redelivered(ended)
            elif not is_refused:
                self._acknowledge(ended)
        self._take_low_watermark(call, bool(ended[0]))
        return "done"

    def _take_low_watermark(self, end: Call, has_parts: bool) -> None:
        """Holders up to the highest low watermark are aborted. O(holders)."""
        if not (has_parts or self._aborts_all):
            return
        self._low_watermark = highest = max(self._low_watermark, end.low_watermark)
        if highest == 0:
            return
        holders = self._claims.held
        if not self._aborts_all:
            first = next(iter(holders), highest + 1)
            stale = [first] if first <= highest and not self._own_aborts else []
        else:
            stale = [txn for txn in holders if txn <= highest and txn not in self._aborting]
            claim = self._claims.cumulative
            if claim is not None and claim.txn <= highest and claim.txn not in holders:
                stale += [claim.txn] if claim.txn not in self._aborting else []
        for txn in stale:
            self._append(Call(0, Record("abort", False, txn, ()), highest))

    def _stop(self, status: str) -> list[Answer]:
        """The store serves no longer. O(those who wait)."""
        told = [Answer(call.ticket, "failed") for call in (*self._queue, *self._buffer) if call.ticket]
        for call in self._buffer:
            self._gone(call)
        self._queue, self._buffer = [], []
        self._forget()
        self._status = status
        return told

    def _forget(self) -> None:
        """Memory is gone. O(1)."""
        self._claims.forget()
        self._index.clear()
        self._progress, self._attempts, self._low_watermark = self._log.base, 0, 0

    def _count(self, entry: Entry, position: int) -> int:
        """An entry of the log is counted, and what may go goes; how many entries. O(records, log keys)."""
        last = -1
        for record in entry:
            for part in record.parts:
                last = max(last, part.entry)
        self._index.count(len(entry), last, position)
        end = self._index.cut(self._cursor.durable_mark)
        if end is None:
            return 0
        gone = self._log.trim(end)
        self._read, self._progress = max(self._read, end), max(self._progress, end)
        return gone

    def _complete(self, refuses: bool) -> Effects | Refused:
        """The first entry in flight is in the log."""
        if not self._in_flight:
            return _NOT_IN_FLIGHT
        calls = self._in_flight.popleft()
        entry = tuple([call.record for call in calls])
        self._log.append(entry)
        was_ready = self._status == "ready"
        answers: list[Answer] = []
        again: list[Messages] = []
        for call in calls:
            self._gone(call)
        for call in calls:
            told = self._call_back(call, refuses, again) if self._status == "ready" else "failed"
            if call.ticket and told:
                answers.append(Answer(call.ticket, told))  # type: ignore[arg-type]
        if self._status == "ready":
            gone = self._count(entry, self._log.end - 1)
            return Effects(tuple(answers), tuple(again), gone)
        if was_ready:
            answers += self._stop("error")
        return Effects(tuple(answers), tuple(again), 0)

    def written(self) -> Effects | Refused:
        """The first entry in flight is in the log. O(its records, each as its kind)."""
        return self._complete(False)

    def cursor_refuses(self) -> Effects | Refused:
        """The same, and the cursor takes nothing."""
        return self._complete(True)

    def write_fails(self, durable: bool) -> Effects | Refused:
        """The first entry in flight failed; perhaps it is in the log. O(those who wait)."""
        if not self._in_flight:
            return _NOT_IN_FLIGHT
        calls = self._in_flight.popleft()
        for call in calls:
            self._gone(call)
        if durable:
            self._log.append(tuple([call.record for call in calls]))
        answers: list[Answer] = []
        is_changed = self._changes_memory and self._status == "ready"
        for call in calls:
            told = "failed" if not is_changed or self._changed(call.record) else ""
            if call.ticket and told:
                answers.append(Answer(call.ticket, "failed"))
        if self._status == "ready" and not is_changed:
            answers += self._stop("error")
        return Effects(tuple(answers), (), 0)

    def _changed(self, record: Record) -> bool:
        """As shipped: memory changes although the append failed. Whether the caller is told."""
        if record.op != "ack":
            return True
        if not record.cumulative:
            if self._is_never_answered(record):
                return False
            self._hold(record)
            return True
        other = self._claims.cumulative
        is_own = other is not None and other.txn == record.txn
        if other is None or (is_own and self._reach(record.parts[0]) > self._reach(other.part)):
            self._hold(record)
        return True

    # ---- the end, and the beginning

    def _begin(self) -> None:
        self._status = "initializing"
        self._progress = self._log.base
        if self.cfg.replay_begins_at_the_mark:
            self._read = self._log.base

    def open_store(self) -> Refused | None:
        """A replay begins. O(1)."""
        if self._status in ("initializing", "ready"):
            return Refused("illegal_state", "the store is open")
        if self._in_flight:
            return Refused("illegal_state", "entries are in flight")
        self._begin()
        return None

    def _is_reading(self) -> bool:
        return self._status == "initializing" and self._progress < self._log.end

    def read_entry(self) -> int | Refused | Failed:
        """The replay reads an entry. O(its records, each as its kind)."""
        if not self._is_reading():
            return _NOTHING_TO_READ
        position = self._read
        if position >= self._log.end:
            return Failed("no_progress", "the log's cursor stands after the last entry")
        entry = self._log.read(position)
        for record in entry:
            self._replay(record)
        self._read = self._progress = position + 1
        self._attempts = 0
        return self._count(entry, position)

    def _replay(self, record: Record) -> None:
        """A record is read again. O(k h)."""
        if record.op != "ack":
            ended = self._taken(record, replayed=True)
            if record.op == "commit":
                self._acknowledge(ended)
            self._release(record.txn, ended)
        elif record.cumulative:
            self._replay_cumulative(record)
        elif self._drops_all:
            if not self._conflict(record) and not self._is_never_answered(record):
                self._hold(record)
        elif self._is_early or not self._is_claimed(record):
            durably = self._cursor.durably_acked
            for entry, leaves in record.parts:
                if self._bits(entry, leaves) & ~durably(entry):
                    self._claims.hold(record.txn, entry, leaves)

    def _is_claimed(self, ack: Record) -> bool:
        """The record was rejected when it came, as far as what is pending tells."""
        if self._is_never_answered(ack):
            return True
        for entry, leaves in ack.parts:
            for claim in self._compared(tuple(self._claims.by_entry.get(entry, {}).values())):
                if leaves is None or self._overlaps(entry, leaves, claim):
                    return True
        return False

    def _replay_cumulative(self, ack: Record) -> None:
        """A cumulative acknowledgement is read again. O(1)."""
        part, other = ack.parts[0], self._claims.cumulative
        if part.entry < self._cursor.durable_mark or (self._drops_all and self._conflict(ack)):
            return
        is_refused = other is not None and (other.txn != ack.txn or self._reach(part) <= self._reach(other.part))
        if is_refused and not self._is_early:
            return
        if not self.cfg.recovery_keeps_cumulative_sets:
            part = Part(part.entry, None)
        self._claims.cumulative = Cumulative(ack.txn, part)

    def _open(self) -> Effects:
        """The store is ready; who has waited comes to the log, in order. O(those who wait)."""
        queue, self._queue = self._queue, []
        self._status, self._attempts, self._progress = "ready", 0, self._log.base
        answers = []
        for call in queue:
            told, _ = self._append(call)
            if told != "waits":
                answers.append(Answer(call.ticket, told))  # type: ignore[arg-type]
        return Effects(tuple(answers), (), 0)

    def end_replay(self) -> Effects | Refused:
        """The store is ready. O(those who wait)."""
        if self._status != "initializing" or self._is_reading():
            return Refused("illegal_state", "no replay has come to its end")
        return self._open()

    def read_fails(self, stops: bool) -> Effects | Refused:
        """A read fails. O(1), or O(those who wait)."""
        if not self._is_reading():
            return _NOTHING_TO_READ
        if stops and not self.cfg.stopped_replay_fails:
            return self._open()
        if not stops:
            if not self.cfg.read_attempts:
                return NOTHING
            self._attempts += 1
            if self._attempts != self.cfg.read_attempts:
                return NOTHING
        return Effects(tuple(self._stop("error")), (), 0)

    def close(self) -> Effects | Refused:
        """The store is closed. O(those who wait)."""
        if self._status not in ("initializing", "ready"):
            return Refused("illegal_state", "the store is not open")
        return Effects(tuple(self._stop("closed")), (), 0)

    def crash(self, survive: int) -> Refused | None:
        """Memory is lost; what is left of the log are bytes. O(log)."""
        if survive > len(self._in_flight):
            return Refused("illegal_state", f"fewer than {survive} entries are in flight")
        for calls in list(self._in_flight)[:survive]:
            self._log.append(tuple([call.record for call in calls]))
        self._log.close()
        self._cursor.crash()
        self._stop("none")
        self._in_flight.clear()
        self._claims = Claims()
        self._aborting, self._own_aborts = {}, 0
        self._read = self._log.base
        return None

    # ---- what the engines need

    def check(self) -> list[str]:
        """Structural invariants that do not hold, one line each. O(everything)."""
        wrong = self._cursor.check() + self._claims.check() + self._index.check(self._log.base, self._log.end)
        if self._status != "ready" and self._buffer:
            wrong.append("the buffer of a store that is not ready is not empty")
        if self._status != "initializing" and self._queue:
            wrong.append("somebody waits for a replay that does not go on")
        has_memory = self._claims.held or self._claims.cumulative or self._index.lag or self._low_watermark
        if has_memory and self._status not in ("initializing", "ready"):
            wrong.append("a store that is not open has memory")
        calls = [call for calls in (*self._in_flight, self._buffer) for call in calls]
        if len(self._in_flight) and not all(self._in_flight):
            wrong.append("an entry in flight has no records")
        aborted = [call.record.txn for call in calls if call.record.op == "abort"]
        if {txn: aborted.count(txn) for txn in aborted} != self._aborting:
            wrong.append("the aborts on their way are not as many as were counted")
        tickets = [call.ticket for call in (*calls, *self._queue) if call.ticket]
        if sorted(set(tickets)) != tickets or (tickets and tickets[-1] >= self._next_ticket):
            wrong.append("the tickets are not in order")
        if not self._log.base <= self._read <= self._log.end:
            wrong.append("the log's cursor stands outside of the log")
        return wrong

    def view(self) -> State:
        """The model's state of this. Where the log's cursor stands counts only until it goes back. O(everything)."""
        base, (acks, durable) = self._log.base, self._cursor.view()
        has_read = self._status == "initializing" or not self.cfg.replay_begins_at_the_mark
        return State(
            acks,
            durable,
            self._log.view(),
            self._read - base if has_read else 0,
            self._index.view(base),
            self._status,  # type: ignore[arg-type]
            max(self._progress - base, 0),
            self._attempts,
            tuple(self._queue),
            tuple(self._buffer),
            tuple([tuple(calls) for calls in self._in_flight]),
            self._claims.holders(),
            self._claims.cumulative,
            self._low_watermark,
            self._next_ticket,
        )

    @classmethod
    def load(cls, cfg: Config, state: State) -> PendingAcks:
        """A store in a given state. O(everything)."""
        body = cls(cfg)
        body._cursor.load(state.acks, state.durable)
        body._log.load(state.log)
        body._index.load(state.log_index)
        body._claims.load(state.held, state.cumulative)
        body._status = state.status
        body._read, body._progress, body._attempts = state.read, state.progress, state.attempts
        for calls in (*state.in_flight, state.buffer):
            for call in calls:
                body._put(call)
        body._in_flight = deque([list(calls) for calls in state.in_flight])
        body._queue, body._buffer = list(state.queue), list(state.buffer)
        body._low_watermark, body._next_ticket = state.low_watermark, state.next_ticket
        return body
