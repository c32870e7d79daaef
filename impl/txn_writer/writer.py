"""Buffered writer of a transaction log, with pooled buffers.

Implements `model/txn_writer` with all settings, and with every rule at its default (the profile `reference`). A batch
consists of parallel lists. The writer takes a batch from a pool when the previous batch is flushed, and recycles the
batch when its callbacks are complete. Each action collects its effects in lists and returns them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from model.machine import Refused
from model.positions import Position
from model.txn_writer.state import (
    Buffered,
    Callback,
    Config,
    Effects,
    Entry,
    FailsOn,
    Flush,
    Outcome,
    Record,
    State,
    Task,
    Trigger,
    Write,
)

_NO_WRITE = Refused("illegal_state", "no write is in flight")
_FENCED = Refused("illegal_state", "the ledger is fenced")


class Metrics(Protocol):
    """Receiver of flush metrics (`TxnLogBufferedWriterMetricsStats`)."""

    def flushed(self, trigger: Trigger, records: int, size: int, waited_ms: int) -> None:
        """A batch of `records` records and `size` bytes is flushed; its oldest record waited for `waited_ms`."""


class Batch:
    """The records of one batch, in parallel lists (`FlushContext`): number, size, `fails_on`, time of the addition."""

    __slots__ = ("fails_on", "numbers", "since", "size", "sizes", "unserialisable")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.sizes: list[int] = []
        self.fails_on: list[FailsOn] = []
        self.since: list[int] = []
        self.size = 0
        self.unserialisable = False  # whether a record of this batch makes its serialisation fail

    def append(self, number: int, size: int, fails_on: FailsOn, now: int) -> None:
        """Adds a record. O(1)."""
        self.numbers.append(number)
        self.sizes.append(size)
        self.fails_on.append(fails_on)
        self.since.append(now)
        self.size += size
        if fails_on == "batch":
            self.unserialisable = True

    def clear(self) -> None:
        """Removes all records. O(records)."""
        self.numbers.clear()
        self.sizes.clear()
        self.fails_on.clear()
        self.since.clear()
        self.size = 0
        self.unserialisable = False

    def view(self) -> tuple[Buffered, ...]:
        """Returns the records in the model's form. O(records)."""
        return tuple(
            [Buffered(*each) for each in zip(self.numbers, self.sizes, self.fails_on, self.since, strict=True)]
        )

    def check(self) -> list[str]:
        """Returns the violated structural invariants, one line each. O(records)."""
        if not len(self.numbers) == len(self.sizes) == len(self.fails_on) == len(self.since):
            return ["the lists of a batch differ in length"]
        if self.size != sum(self.sizes) or self.unserialisable != ("batch" in self.fails_on):
            return ["the size or the unserialisable flag of a batch is wrong"]
        return []


class Pool:
    """A pool of recycled batches."""

    def __init__(self) -> None:
        self.created = 0
        self.free: list[Batch] = []

    def take(self) -> Batch:
        """Returns an empty batch. O(1)."""
        if self.free:
            return self.free.pop()
        self.created += 1
        return Batch()

    def recycle(self, batch: Batch) -> None:
        """Recycles a batch. O(records)."""
        batch.clear()
        self.free.append(batch)


class TxnWriter:
    """A buffered writer and its ledger. Each action is a method of the same name."""

    def __init__(self, cfg: Config, metrics: Metrics | None = None) -> None:
        self.cfg = cfg
        self.now = cfg.start
        self._metrics = metrics
        self._max_records, self._max_bytes, self._delay = cfg.max_records, cfg.max_bytes, cfg.max_delay_ms
        # `_queued`: tasks wait in the executor's queue until `run_writer_tasks`
        self._batching, self._queued = cfg.batching and cfg.max_records >= 2, cfg.executor == "queued"
        self._status: Any = "open"
        self._tasks: deque[Task] = deque()
        self._pool = Pool()
        self._buffer = self._pool.take()
        self._timer = cfg.start + cfg.max_delay_ms if self._batching else None
        self._tick_queued = False  # whether a tick is in `_tasks`; only `check` reads it
        self._in_flight: deque[tuple[Write, Batch | None]] = deque()  # a plain entry has no batch
        self._pending_callbacks: dict[int, None] = {}  # a set of record numbers in insertion order
        self._closers = 0  # number of pending close futures
        self._fenced = False
        self._ledger, self._next_entry = 1, 0
        self._log: list[Entry] = []
        self._next_record = self._next_write = 1
        self._last_flushes: tuple[Flush, ...] = ()
        self._reset_effects()

    # ---- effects of a step

    def _reset_effects(self) -> None:
        self._writes: list[Write] = []
        self._callbacks: list[Callback] = []
        self._flushes: list[Flush] = []
        self._completed = 0  # number of close futures, not of writes, that the step completes

    def _effects(self, number: int) -> Effects:
        """Returns the effects of this step and clears the collectors. O(effects).

        `number` is the action's result; `Effects` says what it means for each action.
        """
        if not (self._callbacks or self._flushes or self._writes or self._completed):
            self._last_flushes = ()
            return Effects(number)
        for callback in self._callbacks:
            del self._pending_callbacks[callback.record]
        self._last_flushes = flushes = tuple(self._flushes)
        effects = Effects(number, tuple(self._writes), tuple(self._callbacks), flushes, self._completed)
        self._reset_effects()
        return effects

    def _fail(self, numbers: Sequence[int], why: Outcome) -> None:
        self._callbacks += [Callback(number, why) for number in numbers]

    # ---- writes

    def _submit(self, batch: Batch | None, records: tuple[int, ...], size: int) -> None:
        """Submits an entry to the ledger; a fenced ledger fails it at once. A plain entry has no batch. O(records)."""
        if self._fenced:
            self._fail(records, "fenced")
            self._recycle(batch)
            return
        write = Write(self._next_write, batch is not None, records, size)
        self._next_write += 1
        self._writes.append(write)
        if self.cfg.writes == "immediate":
            self._complete(write, batch)
        else:
            self._in_flight.append((write, batch))

    def _recycle(self, batch: Batch | None) -> None:
        if batch is not None:
            self._pool.recycle(batch)

    def _store(self, write: Write, succeeded: bool) -> Position:
        """Appends an entry to the log. `succeeded` is false for a failed write whose entry is durable all the same."""
        position = Position(self._ledger, self._next_entry)
        self._next_entry += 1
        self._log.append(Entry(position, write.batched, write.records, succeeded))
        return position

    def _complete(self, write: Write, batch: Batch | None) -> None:
        """Stores an entry and completes its callbacks. O(records)."""
        position = self._store(write, True)
        if batch is None:
            self._callbacks.append(Callback(write.records[0], "ok", position))
            return
        numbers, count = batch.numbers, len(batch.numbers)
        self._callbacks += [Callback(number, "ok", position, index, count) for index, number in enumerate(numbers)]
        self._pool.recycle(batch)

    def _flush(self, trigger: Trigger) -> None:
        """Submits the buffer as one batch, or fails its records. O(records).

        The records fail if the batch cannot be serialised, or if the writer is not open.
        """
        batch = self._buffer
        count, size, waited = len(batch.numbers), batch.size, self.now - batch.since[0]
        self._flushes.append(Flush(trigger, count, size, waited))
        if self._metrics is not None:
            self._metrics.flushed(trigger, count, size, waited)
        self._buffer = self._pool.take()
        if batch.unserialisable:
            self._fail(batch.numbers, "serialization")
            self._pool.recycle(batch)
        elif self._status != "open":
            self._fail(batch.numbers, "closed")
            self._pool.recycle(batch)
        else:
            self._submit(batch, tuple(batch.numbers), size + self.cfg.header_bytes)

    def _write_plain(self, number: int, size: int, fails_on: FailsOn) -> None:
        if fails_on == "single":
            self._callbacks.append(Callback(number, "serialization"))
        else:
            self._submit(None, (number,), size)

    # ---- tasks of the executor

    def _process_record(self, number: int, size: int, fails_on: FailsOn) -> None:
        """Adds a record to the buffer, or writes a large record as a plain entry. O(1), plus a flush.

        The record fails if the writer is not open, or if the size of the record cannot be computed.
        """
        if self._status != "open":
            self._callbacks.append(Callback(number, "closed"))
            return
        if fails_on == "size":
            self._callbacks.append(Callback(number, "serialization"))
            return
        batch = self._buffer
        if size >= self._max_bytes:
            if batch.numbers:
                self._flush("large")
            self._write_plain(number, size, fails_on)
            return
        batch.append(number, size, fails_on, self.now)
        if len(batch.numbers) >= self._max_records:
            self._flush("records")
        elif batch.size >= self._max_bytes:
            self._flush("size")

    def _process_tick(self) -> None:
        """Flushes buffered records on the delay trigger; an open writer re-arms the timer. O(1), plus a flush."""
        self._tick_queued = False
        if self._buffer.numbers and self._status != "closed":
            self._flush("delay")
        if self._status == "open":
            self._timer = self.now + self._delay

    def _process_close(self) -> None:
        """Closes the writer: buffered records fail, and all pending close futures complete. O(records)."""
        self._fail(self._buffer.numbers, "closed")
        self._buffer.clear()
        self._status, self._timer = "closed", None
        self._completed, self._closers = self._closers, 0

    def _process(self, task: Task) -> None:
        if isinstance(task, Record):
            self._process_record(*task)
        elif task == "tick":
            self._process_tick()
        else:
            self._process_close()

    # ---- calls

    def add(self, size: int, fails_on: FailsOn) -> Effects:
        """Adds a record (`asyncAddData`). O(1), plus a flush."""
        number = self._next_record
        self._next_record = number + 1
        self._pending_callbacks[number] = None
        if self._batching:
            if self._queued:
                self._tasks.append(Record(number, size, fails_on))
            else:
                self._process_record(number, size, fails_on)
        elif self._status != "open":
            self._callbacks.append(Callback(number, "closed"))
        else:
            self._write_plain(number, size, fails_on)
        return self._effects(number)

    def close(self) -> Effects:
        """Closes the writer, or submits the task that does so. O(records)."""
        if self._status == "closed":
            return self._effects(1)
        self._closers += 1
        if self._status == "closing":
            return self._effects(0)
        self._status = "closing"
        if self._batching and self._queued:
            self._tasks.append("close")
        else:
            self._process_close()
        return self._effects(self._completed)

    def run_writer_tasks(self, count: int) -> Effects:
        """Runs executor tasks. O(1) each, plus flushes."""
        tasks, ran = self._tasks, 0
        while tasks and ran < count:
            self._process(tasks.popleft())
            ran += 1
        return self._effects(ran)

    def advance_time(self, by: int) -> Effects:
        """Advances the clock. O(1) for each tick, plus its flush."""
        end, fired = self.now + by, 0
        while self._timer is not None and self._timer <= end:
            self.now, self._timer = self._timer, None
            fired += 1
            if self._queued:
                self._tasks.append("tick")
                self._tick_queued = True
            else:
                self._process_tick()
        self.now = end
        return self._effects(fired)

    # ---- the ledger

    def complete_write(self) -> Effects | Refused:
        """Completes the first write in flight. O(records)."""
        if not self._in_flight:
            return _NO_WRITE
        write, batch = self._in_flight.popleft()
        self._complete(write, batch)
        return self._effects(write.number)

    def fail_write(self, durable: bool) -> Effects | Refused:
        """Fails the first write in flight. O(records)."""
        if not self._in_flight:
            return _NO_WRITE
        write, batch = self._in_flight.popleft()
        self._fail(write.records, "write_failed")
        self._recycle(batch)
        if durable:
            self._store(write, False)
        return self._effects(write.number)

    def roll_ledger(self) -> Effects:
        self._ledger += 1
        self._next_entry = 0
        return self._effects(self._ledger)

    def fence(self) -> Effects | Refused:
        """Fences the ledger: it rejects later writes. O(1)."""
        if self._fenced:
            return _FENCED
        self._fenced = True
        return self._effects(0)

    # ---- for the engines

    def check(self) -> list[str]:
        return [*self._check_batches(), *self._check_limits(), *self._check_timer(), *self._check_callbacks()]

    def _check_batches(self) -> list[str]:
        """Checks that every batch is in exactly one place: the buffer, one write in flight, or the pool."""
        used = [self._buffer, *[batch for _, batch in self._in_flight if batch is not None]]
        wrong = [line for batch in (*used, *self._pool.free) for line in batch.check()]
        ids = {id(batch) for batch in (*used, *self._pool.free)}
        if len(ids) != self._pool.created or len(used) + len(self._pool.free) != self._pool.created:
            wrong.append("a batch is leaked or shared")
        if any(batch.numbers for batch in self._pool.free):
            wrong.append("a free batch has records")
        for write, batch in self._in_flight:
            numbers = [] if batch is None else batch.numbers
            if write.batched != (batch is not None) or (batch is not None and numbers != list(write.records)):
                wrong.append("a write in flight and its batch differ")
        return wrong

    def _check_limits(self) -> list[str]:
        buffer, wrong = self._buffer, []
        if buffer.numbers and not self._batching:
            wrong.append("records are buffered although batching is off")
        # if max_bytes is 0, the empty buffer is not full
        is_full = len(buffer.numbers) >= self._max_records or buffer.size >= max(self._max_bytes, 1)
        if self._batching and is_full:
            wrong.append("the buffer has reached a threshold")
        if buffer.numbers and self._status == "closed":
            wrong.append("a closed writer has buffered records")
        if self._tasks and not (self._queued and self._batching):
            wrong.append("a task is queued although the executor is unused")
        return wrong

    def _check_timer(self) -> list[str]:
        wrong = []
        ticks = sum([task == "tick" for task in self._tasks])
        if ticks != self._tick_queued or ticks + (self._timer is not None) > 1:
            wrong.append("the flag of a queued tick is wrong, or more than one timer or tick is outstanding")
        if self._timer is not None and (self._timer <= self.now or self._status == "closed"):
            wrong.append("the timer is overdue, or armed after close")
        if self._batching and self._status == "open" and self._timer is None and not ticks:
            wrong.append("no timer is armed and no tick is queued")
        return wrong

    def _check_callbacks(self) -> list[str]:
        wrong = []
        pending = [task.number for task in self._tasks if isinstance(task, Record)]
        pending += [number for write, _ in self._in_flight for number in write.records]
        pending += self._buffer.numbers if self._status != "closed" else []
        if len(set(pending)) != len(pending) or not self._pending_callbacks.keys() >= set(pending):
            wrong.append("a record is pending twice, or its callback is already complete")
        if len(pending) != len(self._pending_callbacks):
            wrong.append("a record is lost before its callback completed")
        if bool(self._closers) != (self._status == "closing") or (self._status == "closing") != (
            "close" in self._tasks
        ):
            wrong.append("pending close futures, the status `closing` and the close task do not agree")
        positions = [entry.position for entry in self._log]
        if positions != sorted(set(positions)) or (positions and positions[-1] >= (self._ledger, self._next_entry)):
            wrong.append("entries are not in position order")
        return wrong

    def view(self) -> State:
        return State(
            self.now,
            self._status,
            tuple(self._tasks),
            self._buffer.view(),
            self._buffer.size,
            self._timer,
            tuple([write for write, _ in self._in_flight]),
            tuple(self._pending_callbacks),
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
        writer = cls(cfg)
        writer.now, writer._status, writer._timer = state.now, state.status, state.timer
        writer._tasks = deque(state.tasks)
        writer._tick_queued = "tick" in state.tasks
        for each in state.buffer:
            writer._buffer.append(*each)
        writer._buffer.size = state.size
        for write in state.in_flight:
            batch = writer._pool.take() if write.batched else None
            if batch is not None:
                for number in write.records:  # only the numbers of records in flight matter
                    batch.append(number, 0, "nothing", state.now)
            writer._in_flight.append((write, batch))
        writer._pending_callbacks = dict.fromkeys(state.pending_callbacks)
        writer._closers, writer._fenced = state.closers, state.fenced
        writer._ledger, writer._next_entry, writer._log = state.ledger, state.next_entry, list(state.log)
        writer._next_record, writer._next_write = state.next_record, state.next_write
        writer._last_flushes = state.flushes
        return writer
