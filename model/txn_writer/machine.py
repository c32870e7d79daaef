"""Buffered writer of a transaction log: batches records into ledger entries and completes their callbacks (PIP-160).

The writer collects records in a buffer, and writes them as one entry of a ledger: a batch. It flushes the buffer when
there are enough records or bytes, or after a delay (a tick of its timer). Each record has a callback: it succeeds with
the position at which the record is stored, or fails. A large record is not batched, but written alone as a plain entry.

Models `TxnLogBufferedWriter` on one managed ledger. A batching writer works in tasks of a single-threaded executor: a
call (add or close) or a due timer (tick) submits a task. One step is one call, one completion of a ledger write, a run
of queued tasks, an advance of the clock, or a rollover or fence of the ledger.

    add       appends a record to the buffer, and flushes the buffer at `max_records` records, else at `max_bytes`
              bytes. A large record (`max_bytes` or more) flushes the buffer and is then written alone, as a plain entry
    tick      the free-running timer flushes the buffer and is re-armed, even if the flush fails
    write     an entry is one batch or one plain record; several may be in flight
    complete  the callbacks of an entry complete in order, with position, batch size and batch index, or all fail
    close     buffered and later records fail; writes in flight are not affected

A failed write may be durable; a reader of the log then finds records whose callbacks failed. Without batching, each
call writes its record as a plain entry.

As in the shipped writer, the timer is free-running, `max_bytes` triggers a flush but does not limit a batch, and close
fails buffered records. The profiles `pip-160`, `size-is-a-cap` and `flush-on-close` have the alternatives.

Differences from the shipped writer (each a rule of `Config`; see `fuzz/defects/txn_writer.toml`):
  * a record or batch that cannot be serialised fails its callbacks;
  * the future of a second close completes with that of the first;
  * the buffer of a closed writer is empty. The shipped writer keeps the buffered records (`dataArray`). It also keeps
    the reference to their callbacks (`FlushContext`), although the close has returned this object to a pool, from which
    another writer may take it.

Not modelled:
  * the bytes of an entry, and metrics (`model/txn_writer/wire.py` has both as data);
  * exceptions thrown by callbacks or during their registration, and records mutated after the call;
  * the granularity of the timer, and a timer that cannot be submitted or re-armed;
  * object pools and writers that share one (`check` of the implementation covers its pool);
  * a fenced or failed ledger that accepts writes again;
  * the store: the order in which it closes its ledger and its writer, and its minima for the settings.
"""

from __future__ import annotations

from typing import Annotated

from model.machine import Machine, Refused, Step, refused
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
    is_batching,
    start,
)
from model.values import AtLeast

txn_writer = Machine(
    "txn_writer",
    Config,
    start,
    source="PIP-160",
    java={
        "TxnLogBufferedWriter": ("asyncAddData", "close", "internalAsyncAddData", "trigFlushByTimingTask"),
        "BookKeeperBatchedWriteCallback": ("addComplete", "addFailed"),
        "ManagedLedgerImpl": ("ledgerClosed",),
        "ManagedLedgerFencedException": (),
    },
)

Size = Annotated[int, AtLeast(0)]
Span = Annotated[int, AtLeast(0)]
Count = Annotated[int, AtLeast(0)]


class EffectCollector:
    """Collects the effects of one step in order: each function of the step adds its own."""

    __slots__ = ("callbacks", "closed", "flushes", "writes")

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.callbacks: list[Callback] = []
        self.flushes: list[Flush] = []
        self.closed = 0

    def fail(self, records: tuple[int, ...], why: Outcome) -> None:
        """Completes the callbacks of records with a failure."""
        self.callbacks += [Callback(record, why) for record in records]

    def step(self, s: State, number: int, *, thrown: bool = False) -> tuple[State, Effects]:
        """Returns the step: the state with this step's flushes and without the completed callbacks, and the effects."""
        flushes = tuple(self.flushes)
        if self.callbacks:
            completed_records = {callback.record for callback in self.callbacks}
            pending = tuple([record for record in s.pending_callbacks if record not in completed_records])
            s = s._replace(pending_callbacks=pending, flushes=flushes)
        elif s.flushes != flushes:
            s = s._replace(flushes=flushes)
        return s, Effects(number, tuple(self.writes), tuple(self.callbacks), flushes, self.closed, thrown)


# ---- writes -------------------------------------------------------------------------------------------


def submitted(cfg: Config, s: State, batched: bool, records: tuple[int, ...], size: int, out: EffectCollector) -> State:
    """`ManagedLedger.asyncAddEntry`: submits an entry. A fenced ledger fails the entry's callbacks at once.

    With `writes` `immediate`, the write completes in this call.
    """
    if s.fenced:
        out.fail(records, "fenced")
        return s
    write = Write(s.next_write, batched, records, size)
    out.writes.append(write)
    s = s._replace(next_write=s.next_write + 1)
    if cfg.writes == "immediate":
        return completed(s, write, out)
    return s._replace(in_flight=(*s.in_flight, write))


def stored(s: State, write: Write, succeeded: bool) -> State:
    """Returns the state after the ledger has stored an entry at the next position."""
    entry = Entry(Position(s.ledger, s.next_entry), write.batched, write.records, succeeded)
    return s._replace(log=(*s.log, entry), next_entry=s.next_entry + 1)


def completed(s: State, write: Write, out: EffectCollector) -> State:
    """Stores an entry and completes its callbacks, in batch order, with the position and, in a batch, the index."""
    position, batch_size = Position(s.ledger, s.next_entry), len(write.records)
    if write.batched:
        out.callbacks += [Callback(number, "ok", position, i, batch_size) for i, number in enumerate(write.records)]
    else:
        out.callbacks += [Callback(number, "ok", position) for number in write.records]
    return stored(s, write, True)


def flushed(cfg: Config, s: State, trigger: Trigger, out: EffectCollector) -> tuple[State, bool]:
    """`TxnLogBufferedWriter.doFlush`: submits the buffer as one batch, or fails its records.

    The buffer is not empty. The records fail if the batch cannot be serialised, or if the writer is not open and
    `close_buffered` is `fails`. Returns the state, and whether the buffer was emptied: false if an exception escapes.
    """
    records = tuple([each.number for each in s.buffer])
    out.flushes.append(Flush(trigger, len(records), s.size, s.now - s.buffer[0].since))
    if "batch" in [each.fails_on for each in s.buffer]:
        if cfg.unserialisable_batch == "escapes":
            return s, False
        out.fail(records, "serialization")
    elif s.status != "open" and cfg.close_buffered == "fails":
        out.fail(records, "closed")
    else:
        s = submitted(cfg, s, True, records, s.size + cfg.header_bytes, out)
    # a timer that counts from the first record is cancelled
    return s._replace(buffer=(), size=0, timer=s.timer if cfg.delay_from == "tick" else None), True


def written_plain(cfg: Config, s: State, record: Record, out: EffectCollector) -> State:
    """Returns the state after a record was written as a plain entry, or could not be serialised."""
    if record.fails_on == "single":
        out.fail((record.number,), "serialization")
        return s
    return submitted(cfg, s, False, (record.number,), record.size, out)


# ---- tasks of the executor -----------------------------------------------------------------------------


def run_add(cfg: Config, s: State, record: Record, out: EffectCollector) -> State:
    """`internalAsyncAddData`: adds a record to the buffer; a large record flushes the buffer and is written alone.

    With `size_limit` `cap`, a record that would make the buffer exceed `max_bytes` also flushes the buffer first. If
    the exception of a flush before the record escapes, the record is dropped. The record fails if the writer is not
    open, or if its size cannot be computed.
    """
    if s.status != "open":
        out.fail((record.number,), "closed")
        return s
    if record.fails_on == "size":
        out.fail((record.number,), "serialization")
        return s
    is_large, ok = record.size >= cfg.max_bytes, True
    if is_large and s.buffer:
        s, ok = flushed(cfg, s, "large", out)
    elif cfg.size_limit == "cap" and s.buffer and s.size + record.size > cfg.max_bytes:
        s, ok = flushed(cfg, s, "size", out)
    if not ok:  # the exception of the flush escapes
        return s
    return written_plain(cfg, s, record, out) if is_large else buffered(cfg, s, record, out)


def buffered(cfg: Config, s: State, record: Record, out: EffectCollector) -> State:
    """Appends a record and flushes at max records, else at max size. One add never triggers two flushes."""
    timer = s.timer
    # a queued tick flushes this record, so no timer is needed
    if cfg.delay_from == "first_record" and not s.buffer and "tick" not in s.tasks:
        timer = s.now + cfg.max_delay_ms
    s = s._replace(buffer=(*s.buffer, Buffered(*record, s.now)), size=s.size + record.size, timer=timer)
    if len(s.buffer) >= cfg.max_records:
        return flushed(cfg, s, "records", out)[0]
    return flushed(cfg, s, "size", out)[0] if s.size >= cfg.max_bytes else s


def run_tick(cfg: Config, s: State, out: EffectCollector) -> State:
    """`trigFlushByTimingTask`: flushes the buffer by max delay, and re-arms the timer of an open writer.

    A timer that counts from the first record is re-armed only if the flush left records in the buffer. A closed writer
    flushes nothing.
    """
    if s.buffer and s.status != "closed":
        s, _ = flushed(cfg, s, "delay", out)
    if s.status == "open" and (cfg.delay_from == "tick" or s.buffer):
        return s._replace(timer=s.now + cfg.max_delay_ms)
    return s


def run_close(cfg: Config, s: State, out: EffectCollector) -> State:
    """The task of `close`: fails buffered records, cancels the timer, completes the close futures.

    With `close_buffered` `flushes`, buffered records are flushed instead.
    """
    if s.buffer and cfg.close_buffered == "flushes":
        s, _ = flushed(cfg, s, "close", out)
    # after a flush, the buffer has records only if an exception escaped
    out.fail(tuple([each.number for each in s.buffer]), "closed")
    out.closed += s.closers
    s = s._replace(status="closed", timer=None, closers=0)
    return s._replace(buffer=(), size=0) if cfg.closed_buffer == "empty" else s


def run_task(cfg: Config, s: State, task: Task, out: EffectCollector) -> State:
    """Runs an executor task."""
    if isinstance(task, Record):
        return run_add(cfg, s, task, out)
    return run_tick(cfg, s, out) if task == "tick" else run_close(cfg, s, out)


def execute(cfg: Config, s: State, task: Task, out: EffectCollector) -> State:
    """Submits a task to the executor, which runs the task now or queues it (`Config.executor`)."""
    if cfg.executor == "immediate":
        return run_task(cfg, s, task, out)
    return s._replace(tasks=(*s.tasks, task))


# ---- calls --------------------------------------------------------------------------------------------


@txn_writer.action
def add(cfg: Config, s: State, size: Size, fails_on: FailsOn) -> Step[State, Effects]:
    """`TxnLogBufferedWriter.asyncAddData`: adds a record.

    The record's callback completes in this call or in a later step. The callback never completes if the call throws, or
    if a flush before the record throws (`run_add`). `fails_on` is where the serialisation of the record fails.
    """
    number, out = s.next_record, EffectCollector()
    record = Record(number, size, fails_on)
    s = s._replace(pending_callbacks=(*s.pending_callbacks, number), next_record=number + 1)
    if is_batching(cfg):
        return out.step(execute(cfg, s, record, out), number)
    if s.status != "open":
        out.fail((number,), "closed")
        return out.step(s, number)
    if fails_on == "single" and cfg.unserialisable_unbatched == "exception":
        return out.step(s, number, thrown=True)
    return out.step(written_plain(cfg, s, record, out), number)


@txn_writer.action
def close(cfg: Config, s: State) -> Step[State, Effects]:
    """`TxnLogBufferedWriter.close`: closes the writer. With batching, a task of the executor does so (`run_close`).

    A second close does not close again; `second_close` defines when its future completes. Without batching, the
    returned future is always complete.
    """
    out = EffectCollector()
    if s.status == "closed" or (s.status == "closing" and cfg.second_close == "returns"):
        return out.step(s, 1)
    if s.status == "closing":
        return out.step(s._replace(closers=s.closers + 1), 0)
    if not is_batching(cfg):
        out.closed = 1
        return out.step(s._replace(status="closed"), 1)
    s = execute(cfg, s._replace(status="closing", closers=1), "close", out)
    return out.step(s, out.closed)


@txn_writer.action
def run_writer_tasks(cfg: Config, s: State, count: Count) -> Step[State, Effects]:
    """`internalAsyncAddData` or another task: the executor runs the first `count` queued tasks, or all if fewer."""
    out, tasks = EffectCollector(), s.tasks[:count]
    if tasks:
        s = s._replace(tasks=s.tasks[count:])
    for task in tasks:
        s = run_task(cfg, s, task, out)
    return out.step(s, len(tasks))


@txn_writer.action
def advance_time(cfg: Config, s: State, by: Span) -> Step[State, Effects]:
    """`trigFlushByTimingTask`: advances the clock. Each time the timer is due, a tick is submitted to the executor."""
    until, fired, out = s.now + by, 0, EffectCollector()
    while s.timer is not None and s.timer <= until:
        s = execute(cfg, s._replace(now=s.timer, timer=None), "tick", out)
        fired += 1
    return out.step(s._replace(now=until), fired)


# ---- the ledger ---------------------------------------------------------------------------------------


def no_write(s: State) -> tuple[State, Refused]:
    """Returns the rejection of `complete_write` and `fail_write` when no write is in flight."""
    return refused(s, "illegal_state", "no write is in flight")


@txn_writer.action
def complete_write(cfg: Config, s: State) -> Step[State, Effects]:
    """`addComplete`: completes the first write in flight. Its entry is durable; its records' callbacks succeed."""
    if not s.in_flight:
        return no_write(s)
    write, out = s.in_flight[0], EffectCollector()
    return out.step(completed(s._replace(in_flight=s.in_flight[1:]), write, out), write.number)


@txn_writer.fault
def fail_write(cfg: Config, s: State, durable: bool) -> Step[State, Effects]:
    """`addFailed`: fails the first write in flight and the callbacks of its records. The entry may be durable."""
    if not s.in_flight:
        return no_write(s)
    write, out = s.in_flight[0], EffectCollector()
    s = s._replace(in_flight=s.in_flight[1:])
    out.fail(write.records, "write_failed")
    return out.step(stored(s, write, False) if durable else s, write.number)


@txn_writer.action
def roll_ledger(cfg: Config, s: State) -> Step[State, Effects]:
    """`ledgerClosed`: rolls over to a new ledger, which stores all later completed writes, also those in flight."""
    return EffectCollector().step(s._replace(ledger=s.ledger + 1, next_entry=0), s.ledger + 1)


@txn_writer.fault
def fence(cfg: Config, s: State) -> Step[State, Effects]:
    """`ManagedLedgerFencedException`: the ledger rejects every later write. Writes in flight complete or fail."""
    if s.fenced:
        return refused(s, "illegal_state", "the ledger is fenced")
    return EffectCollector().step(s._replace(fenced=True), 0)


# ---- canonical form and observation -------------------------------------------------------------------


@txn_writer.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Makes times relative to now, renumbers records and writes from 1 in order, and drops the last step's flushes."""
    records = {each.number for each in s.tasks if isinstance(each, Record)}
    records.update([each.number for each in s.buffer], s.pending_callbacks)
    records.update(*[each.records for each in s.in_flight], *[each.records for each in s.log])
    new_number = {number: i for i, number in enumerate(sorted(records), 1)}

    def renumbered(numbers: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([new_number[number] for number in numbers])

    return s._replace(
        now=0,
        tasks=tuple([t._replace(number=new_number[t.number]) if isinstance(t, Record) else t for t in s.tasks]),
        buffer=tuple([b._replace(number=new_number[b.number], since=b.since - s.now) for b in s.buffer]),
        timer=None if s.timer is None else s.timer - s.now,
        in_flight=tuple([w._replace(number=i, records=renumbered(w.records)) for i, w in enumerate(s.in_flight, 1)]),
        pending_callbacks=renumbered(s.pending_callbacks),
        log=tuple([e._replace(records=renumbered(e.records)) for e in s.log]),
        next_record=len(new_number) + 1,
        next_write=len(s.in_flight) + 1,
        flushes=(),
    )


@txn_writer.observation
def observe(cfg: Config, s: State) -> dict[str, object]:
    """Returns the status, buffer, timer, queued tasks, writes in flight, pending callbacks, flushes and entries."""
    return {
        "state": s.status,
        "buffered_records": len(s.buffer),
        "buffered_bytes": s.size,
        "next_timer_ms": s.timer,
        "queued_tasks": len(s.tasks),
        "outstanding_writes": [write.number for write in s.in_flight],
        "unanswered_records": list(s.pending_callbacks),
        "flushes": [list(flush) for flush in s.flushes],
        "entries": [[entry.position.as_plain(), entry.batched, list(entry.records)] for entry in s.log],
    }


# ---- profiles -----------------------------------------------------------------------------------------

reference = txn_writer.profile("reference", "Pulsar's behaviour with its known defects corrected", Config())

shipped = txn_writer.profile(
    "pulsar-2026-07",
    "Apache Pulsar master, 2026-07-23, as recorded",
    Config(
        unserialisable_batch="escapes",
        unserialisable_unbatched="exception",
        second_close="returns",
        closed_buffer="stale",
    ),
)

pip_160 = txn_writer.profile(
    "pip-160",
    "PIP-160 as written: the delay counts from the first record of each batch",
    Config(delay_from="first_record"),
)

size_is_a_cap = txn_writer.profile(
    "size-is-a-cap",
    "alternative: a batch is flushed before it would exceed max_bytes",
    Config(size_limit="cap"),
)

flush_on_close = txn_writer.profile(
    "flush-on-close",
    "alternative: close flushes buffered records",
    Config(close_buffered="flushes"),
)

releases = txn_writer.release("4.0", "4.1", "4.2", "5.0", rules=shipped.config, about="pulsar-2026-07")
