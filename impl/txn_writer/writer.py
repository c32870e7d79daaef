"""The buffered writer of a transaction log, mutable and fast.

A batch is a few parallel lists, taken from a pool when the one before it goes to the ledger, and given back when its
records have been told. Steps append to lists of what is to be told, and the step's end hands them out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from model.machine import Refused
from model.positions import Position
from model.txn_writer.state import (
    Answer,
    Buffered,
    Config,
    Entry,
    FailsOn,
    Flush,
    Outcome,
    Reason,
    Record,
    State,
    Task,
    Told,
    Write,
    is_batching,
)

_NO_WRITE = Refused("illegal_state", "no write is in flight")
_FENCED = Refused("illegal_state", "the ledger is fenced")


class Metrics(Protocol):
    """Who counts flushes."""

    def flushed(self, reason: Reason, records: int, size: int, waited_ms: int) -> None:
        """A buffer with so many records and bytes goes to the ledger; its first record waited for so long."""


class Batch:
    """Records that go to the ledger together, in parallel lists."""

    __slots__ = ("failing", "numbers", "poisoned", "since", "size", "sizes")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.sizes: list[int] = []
        self.failing: list[FailsOn] = []
        self.since: list[int] = []
        self.size = 0
        self.poisoned = False  # one of them cannot be serialised in a batch

    def append(self, number: int, size: int, fails_on: FailsOn, now: int) -> None:
        """A record more. O(1)."""
        self.numbers.append(number)
        self.sizes.append(size)
        self.failing.append(fails_on)
        self.since.append(now)
        self.size += size
        if fails_on == "batch":
            self.poisoned = True

    def clear(self) -> None:
        """None of them. O(n)."""
        self.numbers.clear()
        self.sizes.clear()
        self.failing.clear()
        self.since.clear()
        self.size = 0
        self.poisoned = False

    def view(self) -> tuple[Buffered, ...]:
        """The records as the model has them. O(n)."""
        return tuple([Buffered(*each) for each in zip(self.numbers, self.sizes, self.failing, self.since, strict=True)])

    def check(self) -> list[str]:
        """Structural invariants that do not hold, one line each. O(n)."""
        if not len(self.numbers) == len(self.sizes) == len(self.failing) == len(self.since):
            return ["the lists of a batch are not of one length"]
        if self.size != sum(self.sizes) or self.poisoned != ("batch" in self.failing):
            return ["a batch does not know its size, or whether it can be serialised"]
        return []


class Pool:
    """Batches that are used again and again."""

    def __init__(self) -> None:
        self.made = 0
        self.free: list[Batch] = []

    def take(self) -> Batch:
        """An empty batch. O(1)."""
        if self.free:
            return self.free.pop()
        self.made += 1
        return Batch()

    def give(self, batch: Batch) -> None:
        """The batch is not needed any more. O(n)."""
        batch.clear()
        self.free.append(batch)


class TxnWriter:
    """A writer and the ledger behind it. Methods are named as the actions; complexities are those of one record."""

    def __init__(self, cfg: Config, metrics: Metrics | None = None) -> None:
        self.cfg = cfg
        self.now = cfg.start
        self._metrics = metrics
        self._max_records, self._max_bytes, self._delay = cfg.max_records, cfg.max_bytes, cfg.max_delay_ms
        self._batching, self._queued = is_batching(cfg), cfg.thread == "queued"
        self._ticks, self._caps = cfg.delay_from == "tick", cfg.size_limit == "cap"
        self._escapes, self._fails_at_close = cfg.unserialisable_batch == "escapes", cfg.close_buffered == "fails"
        self._status: Any = "open"
        self._tasks: deque[Task] = deque()
        self._pool = Pool()
        self._buffer = self._pool.take()
        self._timer = cfg.start + cfg.max_delay_ms if self._batching and self._ticks else None
        self._tick_waits = False
        self._in_flight: deque[tuple[Write, Batch | None]] = deque()
        self._unanswered: dict[int, None] = {}
        self._closers = 0
        self._fenced = False
        self._ledger, self._next_entry = 1, 0
        self._log: list[Entry] = []
        self._next_record = self._next_write = 1
        self._last_flushes: tuple[Flush, ...] = ()
        self._begin()

    # ---- what a step tells

    def _begin(self) -> None:
        self._writes: list[Write] = []
        self._answers: list[Answer] = []
        self._flushes: list[Flush] = []
        self._closed = 0

    def _tell(self, number: int, *, thrown: bool = False) -> Told:
        """What has happened since the last step. O(1), and what is told."""
        if not (self._answers or self._flushes or self._writes or self._closed):
            self._last_flushes = ()
            return Told(number, (), (), (), 0, thrown)
        for answer in self._answers:
            del self._unanswered[answer.record]
        self._last_flushes = flushes = tuple(self._flushes)
        told = Told(number, tuple(self._writes), tuple(self._answers), flushes, self._closed, thrown)
        self._begin()
        return told

    def _fail(self, numbers: Sequence[int], why: Outcome) -> None:
        self._answers += [Answer(number, why) for number in numbers]

    # ---- writes

    def _submit(self, batch: Batch | None, records: tuple[int, ...], size: int) -> None:
        """An entry goes to the ledger. O(records)."""
        if self._fenced:
            self._fail(records, "fenced")
            self._recycle(batch)
            return
        write = Write(self._next_write, batch is not None, records, size)
        self._next_write += 1
        self._writes.append(write)
        if self.cfg.writes == "at_once":
            self._complete(write, batch)
        else:
            self._in_flight.append((write, batch))

    def _recycle(self, batch: Batch | None) -> None:
        if batch is not None:
            self._pool.give(batch)

    def _store(self, write: Write, told: bool) -> Position:
        position = Position(self._ledger, self._next_entry)
        self._next_entry += 1
        self._log.append(Entry(position, write.batched, write.records, told))
        return position

    def _complete(self, write: Write, batch: Batch | None) -> None:
        """An entry is stored. O(records)."""
        position = self._store(write, True)
        if batch is None:
            self._answers.append(Answer(write.records[0], "ok", position))
            return
        numbers = batch.numbers
        size = len(numbers)
        self._answers += [Answer(number, "ok", position, place, size) for place, number in enumerate(numbers)]
        self._pool.give(batch)

    def _flush(self, reason: Reason) -> bool:
        """The buffer goes to the ledger, unless an exception escapes: then it stays. O(records)."""
        batch = self._buffer
        count, size, waited = len(batch.numbers), batch.size, self.now - batch.since[0]
        self._flushes.append(Flush(reason, count, size, waited))
        if self._metrics is not None:
            self._metrics.flushed(reason, count, size, waited)
        if batch.poisoned and self._escapes:
            return False
        self._buffer = self._pool.take()
        if not self._ticks:
            self._timer = None
        if batch.poisoned:
            self._fail(batch.numbers, "serialization")
            self._pool.give(batch)
        elif self._status != "open" and self._fails_at_close:
            self._fail(batch.numbers, "closed")
            self._pool.give(batch)
        else:
            self._submit(batch, tuple(batch.numbers), size + self.cfg.header_bytes)
        return True

    def _write_alone(self, number: int, size: int, fails_on: FailsOn) -> None:
        if fails_on == "single":
            self._answers.append(Answer(number, "serialization"))
        else:
            self._submit(None, (number,), size)

    # ---- tasks of the writer's thread

    def _take(self, number: int, size: int, fails_on: FailsOn) -> None:
        """A record comes to the buffer. O(1), and a flush."""
        if self._status != "open":
            self._answers.append(Answer(number, "closed"))
            return
        if fails_on == "size":
            self._answers.append(Answer(number, "serialization"))
            return
        batch = self._buffer
        if size >= self._max_bytes:
            if not batch.numbers or self._flush("large"):
                self._write_alone(number, size, fails_on)
            return
        if self._caps and batch.numbers and batch.size + size > self._max_bytes:
            if not self._flush("size"):
                return
            batch = self._buffer
        if not (self._ticks or batch.numbers or self._tick_waits):
            self._timer = self.now + self._delay
        batch.append(number, size, fails_on, self.now)
        if len(batch.numbers) >= self._max_records:
            self._flush("records")
        elif batch.size >= self._max_bytes:
            self._flush("size")

    def _tick(self) -> None:
        """The timer's task. O(1), and a flush."""
        self._tick_waits = False
        if self._buffer.numbers and self._status != "closed":
            self._flush("delay")
        if self._status == "open" and (self._ticks or self._buffer.numbers):
            self._timer = self.now + self._delay

    def _end(self) -> None:
        """The writer is closed. O(records)."""
        if self._buffer.numbers and (self._fails_at_close or not self._flush("close")):
            self._fail(self._buffer.numbers, "closed")
        if self.cfg.closed_buffer == "empty":
            self._buffer.clear()
        self._status, self._timer = "closed", None
        self._closed, self._closers = self._closers, 0

    def _run(self, task: Task) -> None:
        if isinstance(task, Record):
            self._take(*task)
        elif task == "tick":
            self._tick()
        else:
            self._end()

    # ---- calls

    def add(self, size: int, fails_on: FailsOn) -> Told:
        """A record is to be written. O(1), and a flush."""
        number = self._next_record
        self._next_record = number + 1
        self._unanswered[number] = None
        if self._batching:
            if self._queued:
                self._tasks.append(Record(number, size, fails_on))
            else:
                self._take(number, size, fails_on)
        elif self._status != "open":
            self._answers.append(Answer(number, "closed"))
        elif fails_on == "single" and self.cfg.unserialisable_alone == "exception":
            return self._tell(number, thrown=True)
        else:
            self._write_alone(number, size, fails_on)
        return self._tell(number)

    def close(self) -> Told:
        """The writer is to be closed. O(records)."""
        if self._status == "closed" or (self._status == "closing" and self.cfg.second_close == "returns"):
            return self._tell(1)
        self._closers += 1
        if self._status == "closing":
            return self._tell(0)
        self._status = "closing"
        if self._batching and self._queued:
            self._tasks.append("close")
        else:
            self._end()
        return self._tell(self._closed)

    def run_writer_tasks(self, count: int) -> Told:
        """The writer's thread runs tasks. O(1) each, and flushes."""
        tasks, ran = self._tasks, 0
        while tasks and ran < count:
            self._run(tasks.popleft())
            ran += 1
        return self._tell(ran)

    def advance_time(self, by: int) -> Told:
        """Time passes. O(1) each time the timer is due, and a flush."""
        end, fired = self.now + by, 0
        while self._timer is not None and self._timer <= end:
            self.now, self._timer = self._timer, None
            fired += 1
            if self._queued:
                self._tasks.append("tick")
                self._tick_waits = True
            else:
                self._tick()
        self.now = end
        return self._tell(fired)

    # ---- the ledger

    def complete_write(self) -> Told | Refused:
        """The first write in flight is stored. O(records)."""
        if not self._in_flight:
            return _NO_WRITE
        write, batch = self._in_flight.popleft()
        self._complete(write, batch)
        return self._tell(write.number)

    def fail_write(self, durable: bool) -> Told | Refused:
        """The first write in flight fails. O(records)."""
        if not self._in_flight:
            return _NO_WRITE
        write, batch = self._in_flight.popleft()
        self._fail(write.records, "write_failed")
        self._recycle(batch)
        if durable:
            self._store(write, False)
        return self._tell(write.number)

    def roll_ledger(self) -> Told:
        """The next entry comes into a new ledger. O(1)."""
        self._ledger += 1
        self._next_entry = 0
        return self._tell(self._ledger)

    def fence(self) -> Told | Refused:
        """The ledger refuses what comes from now on. O(1)."""
        if self._fenced:
            return _FENCED
        self._fenced = True
        return self._tell(0)

    # ---- what the engines need

    def check(self) -> list[str]:
        """Structural invariants that do not hold, one line each. O(all)."""
        return [*self._check_batches(), *self._check_limits(), *self._check_timer(), *self._check_answers()]

    def _check_batches(self) -> list[str]:
        """Every batch is in one place, and given back exactly once."""
        used = [self._buffer, *[batch for _, batch in self._in_flight if batch is not None]]
        wrong = [line for batch in (*used, *self._pool.free) for line in batch.check()]
        places = {id(batch) for batch in (*used, *self._pool.free)}
        if len(places) != self._pool.made or len(used) + len(self._pool.free) != self._pool.made:
            wrong.append("a batch is lost, or in two places")
        if any(batch.numbers for batch in self._pool.free):
            wrong.append("a batch that is free still has records")
        for write, batch in self._in_flight:
            numbers = [] if batch is None else batch.numbers
            if write.batched != (batch is not None) or (batch is not None and numbers != list(write.records)):
                wrong.append("a write in flight and its batch have different records")
        return wrong

    def _check_limits(self) -> list[str]:
        buffer, wrong = self._buffer, []
        if buffer.numbers and not self._batching:
            wrong.append("something is buffered though nothing is batched")
        is_full = len(buffer.numbers) >= self._max_records or buffer.size >= max(self._max_bytes, 1)
        if self._batching and not self._escapes and is_full:
            wrong.append("the buffer has reached a limit")
        if buffer.numbers and self._status == "closed" and self.cfg.closed_buffer == "empty":
            wrong.append("something is buffered in a closed writer")
        if self._tasks and not (self._queued and self._batching):
            wrong.append("a task waits for a thread that is not used")
        return wrong

    def _check_timer(self) -> list[str]:
        wrong = []
        ticks = sum([task == "tick" for task in self._tasks])
        if ticks != self._tick_waits or ticks + (self._timer is not None) > 1:
            wrong.append("there is more than one timer or tick")
        if self._timer is not None and (self._timer <= self.now or self._status == "closed"):
            wrong.append("the timer is set for the past, or after close")
        due = self._ticks or bool(self._buffer.numbers)
        if self._batching and self._status == "open" and due and self._timer is None and not ticks:
            wrong.append("no timer is set, and no tick waits")
        return wrong

    def _check_answers(self) -> list[str]:
        wrong = []
        held = [task.number for task in self._tasks if isinstance(task, Record)]
        held += [number for write, _ in self._in_flight for number in write.records]
        held += self._buffer.numbers if self._status != "closed" else []
        if len(set(held)) != len(held) or not self._unanswered.keys() >= set(held):
            wrong.append("a record is in two places, or was answered already")
        if not self._escapes and self.cfg.unserialisable_alone == "callback" and len(held) != len(self._unanswered):
            wrong.append("a record is nowhere, and was never answered")
        if bool(self._closers) != (self._status == "closing") or (self._status == "closing") != (
            "close" in self._tasks
        ):
            wrong.append("somebody waits for a close that does not come")
        positions = [entry.position for entry in self._log]
        if positions != sorted(set(positions)) or (positions and positions[-1] >= (self._ledger, self._next_entry)):
            wrong.append("the entries are not in the order of their positions")
        return wrong

    def view(self) -> State:
        """The model's state of this. O(all)."""
        return State(
            self.now,
            self._status,
            tuple(self._tasks),
            self._buffer.view(),
            self._buffer.size,
            self._timer,
            tuple([write for write, _ in self._in_flight]),
            tuple(self._unanswered),
            self._closers,
            self._fenced,
            self._ledger,
            self._next_entry,
            tuple(self._log),
            self._next_record,
            self._next_write,
            self._last_flushes,
        )

    @classmethod
    def load(cls, cfg: Config, state: State) -> TxnWriter:
        """A writer in a given state. O(all)."""
        body = cls(cfg)
        body.now, body._status, body._timer = state.now, state.status, state.timer
        body._tasks = deque(state.tasks)
        body._tick_waits = "tick" in state.tasks
        for each in state.buffer:
            body._buffer.append(*each)
        body._buffer.size = state.size
        for write in state.in_flight:
            batch = body._pool.take() if write.batched else None
            if batch is not None:
                for number in write.records:  # of what is in flight, only the numbers are ever needed
                    batch.append(number, 0, "nothing", state.now)
            body._in_flight.append((write, batch))
        body._unanswered = dict.fromkeys(state.unanswered)
        body._closers, body._fenced = state.closers, state.fenced
        body._ledger, body._next_entry, body._log = state.ledger, state.next_entry, list(state.log)
        body._next_record, body._next_write = state.next_record, state.next_write
        body._last_flushes = state.flushes
        return body
