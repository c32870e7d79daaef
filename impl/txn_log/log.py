"""A coordinator's transaction log, with structures whose cost is right.

The same behaviour as `model/txn_log/machine.py`. With b records in an entry, p records of a transaction, and w entries after
the mark:

    transactions    a dictionary by id, in the order of ids: the first one gives the watermark
    places          appended to a list of the transaction; a transaction that ends deletes p records, O(p * w / 64)
    deletions       impl/txn_log/cursor.py: bits from the mark on
    entries         impl/txn_log/entries.py: bytes once the store was opened again, and read back from them by a replay
    replay          O(records that are not deleted)
    deadlines       looked through when somebody asks, O(transactions log transactions); no heap, since few expire
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from impl.txn_log.cursor import Cursor, Kept, capped, closed, kept_from
from impl.txn_log.entries import LogEntry
from model.machine import Failed, Refused
from model.txn_log.replay import Open, Recovered
from model.txn_log.state import Answer, Config, Entry, Op, Place, Promise, Record, State, Status, Target, Told, Txn

#: status -> where a transaction may go next
_NEXT = {
    "OPEN": ("COMMITTING", "ABORTING"),
    "COMMITTING": ("COMMITTED",),
    "ABORTING": ("ABORTED",),
    "COMMITTED": (),
    "ABORTED": (),
}
_ENDED = ("COMMITTED", "ABORTED")
#: end -> with which it may be known
_BEFORE = {"COMMITTED": ("OPEN", "COMMITTING", "COMMITTED"), "ABORTED": ("OPEN", "ABORTING", "ABORTED")}


class Live:
    """A transaction that lives. Its places are entry, index, and how many records the entry has."""

    __slots__ = ("deadline_ms", "partitions", "places", "status", "subscriptions")

    def __init__(self, deadline_ms: int) -> None:
        self.status: Status = "OPEN"
        self.partitions = self.subscriptions = 0
        self.deadline_ms = deadline_ms
        self.places: list[tuple[int, int, int]] = []


class TxnLog:
    """A store on its log. Methods are named as the actions."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self._status = "ready"
        self._ledger = "open"
        self._batching = cfg.batching
        self._cursor_works = True
        self._buffer: list[Record] = []
        self._in_flight: deque[Entry] = deque()
        self._first = 0
        self._ledgers = [0]
        self._log: list[LogEntry] = []
        self._ledger_id = self._last_id = -1
        self._txns: dict[int, Live] = {}
        self._cursor = Cursor(cfg)
        self._durable = Kept(0, 0, ())
        self._read_next = self._now_ms = 0
        self._promised: dict[int, tuple[Status, int, int]] = {}
        self._told_id = self._told_watermark = -1
        self._configure()

    def _configure(self) -> None:
        """What follows from settings and from how the store was opened."""
        self._full = self.cfg.max_records if self._batching and self.cfg.max_records > 1 else 0
        always = self.cfg.parts_are_deletable == "always" or self.cfg.batch_index_acks
        self._deletes_parts = always or self._full > 0

    # ---- operations

    def _not_ready(self) -> Refused:
        return Refused("illegal_state", f"the store is {self._status}, not ready")

    def new_transaction(self, timeout_ms: int) -> tuple[Answer, ...] | Refused:
        """Gives the next id. O(1), and a flush."""
        if 0 < self.cfg.max_active <= len(self._txns):
            return Refused("too_many", f"{len(self._txns)} transactions live")
        if self._status != "ready":
            return self._not_ready()
        self._last_id = txn = self._last_id + 1
        return self._append(Record(txn, "NEW", txn, 0, None, self._now_ms, timeout_ms))

    def add_participant(self, txn: int, op: Op, name: int) -> tuple[Answer, ...] | Refused:
        """A partition or subscription for a transaction. O(1), and a flush."""
        if self._status != "ready":
            return self._not_ready()
        if txn not in self._txns:
            return Refused("not_found", f"no transaction {txn} lives")
        return self._append(Record(txn, op, self._last_id, name))

    def update_status(self, txn: int, to: Target) -> tuple[Answer, ...] | Refused:
        """Another status for a transaction. O(1), and a flush."""
        if self._status != "ready":
            return self._not_ready()
        live = self._txns.get(txn)
        if live is None:
            return Refused("not_found", f"no transaction {txn} lives")
        if live.status == to:
            return (Answer(txn, "UPDATE", "done"),)
        return self._append(Record(txn, "UPDATE", self._last_id, 0, to))

    def low_watermark(self) -> int | Refused:
        """The id up to which all have ended. O(1), or the records on their way when none lives."""
        if self._status != "ready":
            return self._not_ready()
        watermark = self._watermark()
        self._told_watermark = max(self._told_watermark, watermark)
        return watermark

    def _watermark(self) -> int:
        for txn in self._txns:
            return txn - 1
        if self.cfg.empty_watermark == "zero":
            return 0
        known = self._id_in_log()
        for entry in (*self._in_flight, self._buffer):
            for record in entry:
                if record.op == "NEW":
                    return min(known, record.txn - 1)
        return known

    def _id_in_log(self) -> int:
        """The last id that a store would find. O(1)."""
        return self._log[-1].records[-1].last_id if self._ledgers[-1] else self._ledger_id

    def expired(self) -> tuple[int, ...] | Refused:
        """Open transactions whose deadline is over, the earliest first. O(n log n)."""
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
        """Time passes. O(1)."""
        self._now_ms += by_ms

    # ---- appends

    def _append(self, record: Record) -> tuple[Answer, ...]:
        if not self._full:
            return self._submit((record,))
        self._buffer.append(record)
        return self.flush() if len(self._buffer) >= self._full else ()

    def flush(self) -> tuple[Answer, ...]:
        """Writes what waits as one entry. O(b)."""
        if not self._buffer:
            return ()
        entry = tuple(self._buffer)
        self._buffer.clear()
        return self._submit(entry)

    def _submit(self, entry: Entry) -> tuple[Answer, ...]:
        """An entry goes to the ledger, or fails at once. O(b)."""
        if self._ledger == "fenced":
            return _told(entry, "fenced")
        if self._ledger == "write_failed":
            self._ledger = "closed"
            return _told(entry, "not_written")
        if self._ledger == "closed":
            self._new_ledger()
        self._in_flight.append(entry)
        return ()

    def _new_ledger(self) -> None:
        self._ledger = "open"
        if self._ledgers[-1]:
            self._ledgers.append(0)
        self._ledger_id = self._last_id

    def written(self) -> tuple[Answer, ...] | Refused:
        """The first entry in flight is durable. O(b), and what is deleted."""
        if not self._in_flight:
            return Refused("illegal_state", "no entry is in flight")
        entry = self._in_flight.popleft()
        number, size = self._first + len(self._log), len(entry)
        self._add(entry)
        answers = []
        for at, record in enumerate(entry):
            done = self._apply(record, (number, at, size), self._now_ms + record.timeout_ms)
            if done:
                self._promise(record)
            answers.append(Answer(record.txn, record.op, "done" if done else "invalid_status"))
        return tuple(answers)

    def _add(self, entry: Entry) -> None:
        self._log.append(LogEntry(entry, self._full > 0))
        self._ledgers[-1] += 1

    def _promise(self, record: Record) -> None:
        """Remembers what a caller is told. O(1)."""
        live = self._txns.get(record.txn)
        if live is not None:
            self._promised[record.txn] = live.status, live.partitions, live.subscriptions
        else:
            _, partitions, subscriptions = self._promised[record.txn]
            self._promised[record.txn] = record.to or "OPEN", partitions, subscriptions
        self._told_id = max(self._told_id, record.txn)

    def _apply(self, record: Record, place: tuple[int, int, int], deadline_ms: int) -> bool:
        """A durable record has its effect, or has none and is deleted. O(1), or what a whole transaction has."""
        txn, op = record.txn, record.op
        live = self._txns.get(txn)
        if op == "NEW":
            if live is None:
                live = self._txns[txn] = Live(deadline_ms)
            live.places.append(place)
            return True
        if live is None or not self._is_in_time(live, record):
            self._delete((place,))
            return False
        live.places.append(place)
        if record.to is not None:
            live.status = record.to
            if record.to in _ENDED:
                del self._txns[txn]
                self._delete(live.places)
        elif op == "ADD_PARTITION":
            live.partitions |= 1 << record.name
        else:
            live.subscriptions |= 1 << record.name
        return True

    def _is_in_time(self, live: Live, record: Record) -> bool:
        return live.status == "OPEN" if record.to is None else record.to in _NEXT[live.status]

    def _delete(self, places: Sequence[tuple[int, int, int]]) -> None:
        if self._cursor_works:
            self._cursor.delete(places, self._deletes_parts)

    # ---- failures of the ledger and of the cursor

    def write_fails(self, durable: int) -> tuple[Answer, ...] | Refused:
        """Nothing of what is in flight is confirmed. O(records in flight)."""
        if not self._in_flight:
            return Refused("illegal_state", "no entry is in flight")
        self._ledger = "write_failed"
        return self._lose(durable)

    def _lose(self, durable: int) -> tuple[Answer, ...]:
        """What is in flight comes to an end that nobody knows; the first so many entries are in the log."""
        told = [answer for entry in self._in_flight for answer in _told(entry, "unknown")]
        if self._in_flight and self._status == "ready" and self.cfg.unknown_outcome == "reopens":
            self._status = "stopped"
        self._keep(durable)
        return tuple(told)

    def _keep(self, durable: int) -> None:
        for entry in list(self._in_flight)[:durable]:
            self._add(entry)
        self._in_flight.clear()

    def creation_fails(self) -> tuple[Answer, ...] | Refused:
        """No new ledger can be made, and what is in flight was never sent. O(records in flight)."""
        if self._ledger != "open":
            return Refused("illegal_state", f"the ledger is {self._ledger}, not open")
        told = [answer for entry in self._in_flight for answer in _told(entry, "not_written")]
        self._ledger = "write_failed" if self._in_flight else "closed"
        self._in_flight.clear()
        return tuple(told)

    def fence(self, durable: int) -> tuple[Answer, ...] | Refused:
        """Another broker takes the log. O(records in flight)."""
        if self._ledger == "fenced":
            return Refused("illegal_state", "the ledger is fenced")
        self._ledger = "fenced"
        return self._lose(durable)

    def cursor_breaks(self) -> Refused | None:
        """No deletion succeeds from now on. O(1)."""
        if not self._cursor_works:
            return Refused("illegal_state", "the cursor does not work")
        self._cursor_works = False
        return None

    # ---- ledgers and the cursor's record

    def roll_ledger(self) -> int | Refused:
        """The log goes on in a new ledger. O(1)."""
        if self._ledger != "open":
            return Refused("illegal_state", f"the ledger is {self._ledger}, not open")
        if self._ledgers[-1] == 0:
            return Refused("illegal_state", "the ledger is empty")
        self._new_ledger()
        return len(self._ledgers)

    def trim(self) -> int:
        """Drops whole ledgers before the mark that is stored. O(dropped), and the records that are kept."""
        count, first = 0, self._first
        while count < len(self._ledgers) - 1 and first + self._ledgers[count] <= self._durable.mark:
            first += self._ledgers[count]
            count += 1
        if count:
            del self._ledgers[:count]
            del self._log[: first - self._first]
            self._first, self._ledger_id = first, self._last_id
            kept = {record.txn for entry in self._log for record in entry.records}
            for txn in [t for t, (status, *_) in self._promised.items() if status in _ENDED and t not in kept]:
                del self._promised[txn]
        return count

    def persist(self) -> bool | Refused:
        """Writes the deletions. O(w / 64 + k log k) with k parts."""
        if self._ledger == "fenced" or not self._cursor_works:
            return Refused("illegal_state", "the cursor cannot be written")
        if not self._cursor.dirty:
            return False
        self._durable = capped(self.cfg, self._cursor.kept(), self._first, self._ledgers)
        self._cursor.dirty = False
        return True

    # ---- the end, and the beginning

    def reopen(self, batching: bool) -> tuple[Answer, ...] | Refused:
        """A clean close, and a new beginning. O(bytes that were not written yet), and as persist."""
        if self._in_flight:
            return Refused("illegal_state", "entries are in flight")
        told = _told(self._buffer, "closed")
        if self._ledger != "fenced" and self._cursor_works:
            self._durable = closed(self.cfg, self._cursor.kept(), self._first, self._ledgers)
        self._open(batching)
        return told

    def crash(self, durable: int) -> None:
        """Memory is lost. O(bytes that were not written yet)."""
        self._keep(durable)
        self._open(self._batching)

    def _open(self, batching: bool) -> None:
        """A store begins with what is in the ledgers and in the cursor's record."""
        for entry in self._log:
            entry.forget()
        self._last_id = self._ledger_id = self._id_in_log()
        self._status, self._ledger, self._cursor_works = "replaying", "open", True
        self._batching = batching
        self._configure()
        self._buffer.clear()
        self._txns.clear()
        if self._ledgers[-1]:
            self._ledgers.append(0)
        self._cursor.take(self._durable, self._deletes_parts)
        self._read_next = self._cursor.mark

    def _next_entry(self) -> int | None:
        for number in range(self._read_next, self._first + len(self._log)):
            if not self._cursor.is_deleted(number):
                return number
        return None

    def replay_entry(self) -> int | Refused:
        """Reads the next entry that is not deleted. O(b), and what is deleted."""
        if self._status != "replaying":
            return Refused("illegal_state", f"the store is {self._status}, not replaying")
        number = self._next_entry()
        if number is None:
            return Refused("illegal_state", "the log has been read to its end")
        entry = self._log[number - self._first]
        left = self._cursor.left(number, entry.size)
        self._read_next = number + 1
        for at, record in enumerate(entry.records):
            if left >> at & 1:
                self._replay(record, (number, at, entry.size))
        return left.bit_count()

    def _replay(self, record: Record, place: tuple[int, int, int]) -> None:
        """A record has its effect again; its deadline counts from when it was made. As `_apply`."""
        txn, before = record.txn, self._txns.get(record.txn)
        done = self._apply(record, place, record.start_ms + record.timeout_ms)
        if not done or record.to is None or record.to not in _ENDED:
            return
        known = self._promised.get(txn)
        if known is not None and known[0] in _BEFORE[record.to]:
            self._promised[txn] = record.to, known[1], known[2]
        if before is not None and not self._cursor_works and not self.cfg.replay_removes_first:
            self._txns[txn] = before

    def replay_completes(self) -> Recovered | Refused:
        """The store is ready. O(n)."""
        if self._status != "replaying":
            return Refused("illegal_state", f"the store is {self._status}, not replaying")
        if self._next_entry() is not None:
            return Refused("illegal_state", "the log has not been read to its end")
        return self._complete()

    def _complete(self) -> Recovered:
        self._status, self._read_next = "ready", 0
        self._txns = dict(sorted(self._txns.items()))
        ended = {t: p for t, p in self._promised.items() if p[0] in _ENDED and t not in self._txns}
        found = {t: (live.status, live.partitions, live.subscriptions) for t, live in self._txns.items()}
        self._promised = ended | found
        return Recovered(
            tuple([t for t, live in self._txns.items() if live.status == "COMMITTING"]),
            tuple([t for t, live in self._txns.items() if live.status == "ABORTING"]),
            tuple([Open(t, live.deadline_ms) for t, live in self._txns.items() if live.status == "OPEN"]),
        )

    def read_fails(self) -> Recovered | Failed | Refused:
        """Reading stops for good. O(1), or as a replay that completes."""
        if self._status != "replaying":
            return Refused("illegal_state", f"the store is {self._status}, not replaying")
        if self.cfg.stopped_replay == "complete":
            return self._complete()
        self._status, self._read_next = "failed", 0
        return Failed("read_failed", "the log could not be read to its end")

    # ---- what the engines ask for

    def view(self) -> State:
        """The model's state. O(records that are kept)."""
        txns = [
            Txn(t, live.status, live.partitions, live.subscriptions, live.deadline_ms, _places(live))
            for t, live in sorted(self._txns.items())
        ]
        return State(
            self._status,  # type: ignore[arg-type]
            self._ledger,  # type: ignore[arg-type]
            self._batching,
            self._cursor_works,
            tuple(self._buffer),
            tuple(self._in_flight),
            self._first,
            tuple(self._ledgers),
            tuple([entry.records for entry in self._log]),
            self._ledger_id,
            tuple(txns),
            self._last_id,
            self._cursor.kept().view(),
            self._durable.view(),
            self._cursor.dirty,
            self._read_next,
            self._now_ms,
            tuple([Promise(t, *known) for t, known in sorted(self._promised.items())]),
            self._told_id,
            self._told_watermark,
        )

    @classmethod
    def load(cls, cfg: Config, s: State) -> TxnLog:
        """A store in a state of the model. O(size of the state)."""
        self = cls(cfg)
        self._status, self._ledger, self._batching, self._cursor_works = s.status, s.ledger, s.batching, s.cursor_works
        self._configure()
        self._buffer, self._in_flight = list(s.buffer), deque(s.in_flight)
        self._first, self._ledgers, self._ledger_id, self._last_id = s.first, list(s.ledgers), s.ledger_id, s.last_id
        self._log = [LogEntry(entry, len(entry) > 1) for entry in s.log]
        for t in s.txns:
            live = self._txns[t.id] = Live(t.deadline_ms)
            live.status, live.partitions, live.subscriptions = t.status, t.partitions, t.subscriptions
            live.places = [(p.entry, p.at, len(s.log[p.entry - s.first])) for p in t.places]
        self._cursor.mark, self._cursor.window, parts = kept_from(s.acks)
        self._cursor.parts, self._cursor.dirty = dict(parts), s.dirty
        self._durable = kept_from(s.durable)
        self._read_next, self._now_ms = s.read_next, s.now_ms
        self._promised = {p.id: (p.status, p.partitions, p.subscriptions) for p in s.promised}
        self._told_id, self._told_watermark = s.told_id, s.told_watermark
        return self

    def check(self) -> list[str]:
        """Structural invariants that do not hold. O(size of the store)."""
        wrong = []
        end = self._first + len(self._log)
        if sum(self._ledgers) != len(self._log) or 0 in self._ledgers[:-1]:
            wrong.append("the ledgers do not hold the entries of the log, or one but the last is empty")
        if self._status == "ready" and list(self._txns) != sorted(self._txns):
            wrong.append("transactions are not in the order of their ids")
        cursor = self._cursor
        if cursor.window & 1 or cursor.mark + cursor.window.bit_length() > end or self._durable.mark < self._first:
            wrong.append("the mark is not before what is deleted, or what is deleted is not in the log")
        for entry, left in cursor.parts.items():
            size = self._log[entry - self._first].size if self._first <= entry < end else 0
            if cursor.is_deleted(entry) or not 0 < left < (1 << size) - 1:
                wrong.append("a part is of an entry that is deleted, or not there, or is all or nothing of it")
        places = [place for live in self._txns.values() for place in live.places]
        if len(set(places)) != len(places) or any(not self._first <= entry < end for entry, _, _ in places):
            wrong.append("two transactions share a record, or have one that is not in the log")
        if self._full and len(self._buffer) >= self._full:
            wrong.append("the buffer is full and was not flushed")
        return wrong


def _told(records: Sequence[Record], told: Told) -> tuple[Answer, ...]:
    """All callers are told the same. O(records)."""
    return tuple([Answer(record.txn, record.op, told) for record in records])


def _places(live: Live) -> tuple[Place, ...]:
    return tuple([Place(entry, at) for entry, at, _ in live.places])
