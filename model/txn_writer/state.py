"""Buffered writer of a transaction log: settings, rules, state, and the effects of a step.

Records are numbered in call order. Sizes are bytes of serialised records, times are milliseconds. A write is one entry
submitted to the ledger: a plain entry with one record, or a batch. A batch has a header, even if it has one record.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from model.machine import Setting
from model.positions import Position
from model.values import AtLeast, Origin, Rule, record

# ---- settings and rules -------------------------------------------------------------------------------


class Config(NamedTuple):
    """Broker settings, the environment of the writer, and rules in which versions and proposals differ.

    The settings are those of the transaction log. The pending-ack store uses the same writer with the settings
    `transactionPendingAckBatchedWrite*`, which have the same defaults.
    """

    #: whether records are batched; effective only with `max_records` above 1
    batching: Annotated[bool, Setting("transactionLogBatchedWriteEnabled", False)] = True
    #: a batch is flushed when it has this many records
    max_records: Annotated[int, AtLeast(0), Setting("transactionLogBatchedWriteMaxRecords", 512)] = 512
    #: a batch is flushed when its records have this many bytes. A record of this size or more, a large record, is
    #: written alone
    max_bytes: Annotated[int, AtLeast(0), Setting("transactionLogBatchedWriteMaxSize", 4_194_304)] = 4194304
    #: the period or delay of the timer that triggers a flush (`delay_from`), in milliseconds
    max_delay_ms: Annotated[int, AtLeast(1), Setting("transactionLogBatchedWriteMaxDelayInMillis", 1)] = 1

    #: the time at which the writer is constructed
    start: int = 0
    #: bytes of magic and version before a batch
    header_bytes: Annotated[int, AtLeast(0)] = 4
    #: when a task of the writer's executor runs. `immediate`: within the call that submits the task. `queued`: in
    #: `run_writer_tasks`
    executor: Literal["immediate", "queued"] = "immediate"
    #: when a ledger write completes. `immediate`: within the call that submits the write. `queued`: in
    #: `complete_write`, in submission order
    writes: Literal["immediate", "queued"] = "queued"

    #: the effect of a batch that cannot be serialised. `fails`: all its records fail. `escapes`: the exception reaches
    #: the executor, and the batch stays in the buffer. With `escapes`, a record that caused the flush and is not yet
    #: buffered, such as a large record, is lost: its callback is never invoked
    unserialisable_batch: Annotated[
        Literal["fails", "escapes"], Rule(Origin.RECORDED, {"escapes": "TxnLogBufferedWriter.doFlush, master 2026-07"})
    ] = "fails"
    #: the effect of a record that cannot be serialised, without batching. `callback`: its callback fails. `exception`:
    #: the call throws, and the callback never completes
    unserialisable_unbatched: Annotated[
        Literal["callback", "exception"],
        Rule(Origin.RECORDED, {"exception": "TxnLogBufferedWriter.asyncAddData, master 2026-07"}),
    ] = "callback"
    #: when the future of a second close completes. `waits`: with the future of the first close. `returns`: at once
    second_close: Annotated[
        Literal["waits", "returns"], Rule(Origin.RECORDED, {"returns": "TxnLogBufferedWriter.close, master 2026-07"})
    ] = "waits"
    #: the buffer of a closed writer. `empty`: the buffer has no record. `stale`: the buffer keeps its records. The
    #: shipped `close` does not clear `dataArray`, and keeps the reference to the `FlushContext` that it recycles
    closed_buffer: Annotated[
        Literal["empty", "stale"],
        Rule(Origin.RECORDED, {"stale": "TxnLogBufferedWriter.close, master 2026-07; apache/pulsar#17399"}),
    ] = "empty"
    #: the meaning of `max_bytes`. `trigger`: a batch is flushed when it reaches `max_bytes`, so its records have less
    #: than twice `max_bytes`. `cap`: if a record would make the batch exceed `max_bytes`, the batch is flushed before
    #: the record is added
    size_limit: Annotated[
        Literal["trigger", "cap"],
        Rule(Origin.INFERRED, {"cap": "our design for what PIP-160 says: a batch never exceeds the size"}),
    ] = "trigger"
    #: the timer of the delay trigger. `tick`: the timer runs whether or not records are buffered; each processed tick
    #: arms it for `max_delay_ms`. `first_record`: the first record of a batch arms the timer
    delay_from: Annotated[Literal["tick", "first_record"], Rule(Origin.READ, {"first_record": "PIP-160, Approach"})] = (
        "tick"
    )
    #: the effect of close on buffered records
    close_buffered: Annotated[
        Literal["fails", "flushes"], Rule(Origin.INFERRED, {"flushes": "an alternative; PIP-160 does not define close"})
    ] = "fails"


def is_batching(cfg: Config) -> bool:
    """Whether records are batched (`TxnLogBufferedWriter.batchEnabled`). `max_records` below 2 disables batching."""
    return cfg.batching and cfg.max_records > 1


# ---- state --------------------------------------------------------------------------------------------

#: Where the serialisation of a record fails. nothing: nowhere; size: in `getSerializedSize`; single: when the record is
#: written as a plain entry; batch: when its batch is flushed.
FailsOn = Literal["nothing", "size", "single", "batch"]
#: The trigger of a flush: max records, max size, a large record, max delay, or close.
Trigger = Literal["records", "size", "large", "delay", "close"]
#: The result of a callback. ok: success; closed: the writer is not open; fenced: the ledger is fenced (both are
#: `ManagedLedgerFencedException`); write_failed: the write failed; serialization: `ManagedLedgerInterceptException`.
Outcome = Literal["ok", "closed", "fenced", "write_failed", "serialization"]


class Record(NamedTuple):
    """A record that was given to `asyncAddData` and is not buffered."""

    number: int
    size: int
    fails_on: FailsOn


class Buffered(NamedTuple):
    """A buffered record; `since` is the time at which it was buffered."""

    number: int
    size: int
    fails_on: FailsOn
    since: int


class Write(NamedTuple):
    """An entry submitted to the ledger. The size of a batch includes the header."""

    number: int
    batched: bool
    records: tuple[int, ...]  # the numbers of the records
    size: int


class Entry(NamedTuple):
    """A durable entry. If `succeeded` is false, its write was reported as failed, and its records' callbacks failed."""

    position: Position
    batched: bool
    records: tuple[int, ...]
    succeeded: bool


class Flush(NamedTuple):
    """A flush, as the metrics of the writer see it."""

    trigger: Trigger
    records: int  # number of records (the `records` of a `Write` are their numbers)
    size: int  # bytes of the records, without the header (the `size` of a `Write` includes the header)
    waited: int  # age of the oldest record, in milliseconds


#: A task of the single-threaded executor: a record, a timer tick, or a close.
Task = Record | Literal["tick", "close"]


@record
class State(NamedTuple):
    """A buffered writer and its ledger."""

    now: int
    status: Literal["open", "closing", "closed"]
    tasks: tuple[Task, ...]  # queued tasks of the executor, in order
    buffer: tuple[Buffered, ...]
    size: int  # bytes of the buffered records (`bytesSize`)
    timer: int | None  # deadline of the armed timer; None: the timer is not armed
    in_flight: tuple[Write, ...]  # in submission order
    pending_callbacks: tuple[int, ...]  # records whose callbacks have not completed
    closers: int  # number of pending close futures
    fenced: bool  # the ledger rejects further writes
    ledger: int  # ledger id of the next entry
    next_entry: int  # entry id of the next entry
    log: tuple[Entry, ...]
    next_record: int  # number of the next record
    next_write: int  # number of the next write
    flushes: tuple[Flush, ...]  # of the last step; no later step depends on them


def start(cfg: Config) -> State:
    """Returns an open writer with an empty buffer. With `delay_from` "tick", a batching writer arms its timer."""
    ticks = is_batching(cfg) and cfg.delay_from == "tick"
    timer = cfg.start + cfg.max_delay_ms if ticks else None
    return State(
        now=cfg.start,
        status="open",
        tasks=(),
        buffer=(),
        size=0,
        timer=timer,
        in_flight=(),
        pending_callbacks=(),
        closers=0,
        fenced=False,
        ledger=1,
        next_entry=0,
        log=(),
        next_record=1,
        next_write=1,
        flushes=(),
    )


# ---- effects of a step --------------------------------------------------------------------------------


class Callback(NamedTuple):
    """The completion of a record's callback: `TxnLogBufferedWriter.AddDataCallback`.

    A successful callback has the position; in a batch, also the batch index and the number of records of the batch.
    """

    record: int
    outcome: Outcome
    position: Position | None = None
    batch_index: int | None = None
    batch_size: int | None = None


class Effects(NamedTuple):
    """What a step does: the writes that it submits, the callbacks that it completes, and its flushes.

    `number` depends on the action. `add`: the number of the record. `complete_write`, `fail_write`: the number of the
    write. `roll_ledger`: the id of the new ledger. `run_writer_tasks`: how many tasks ran. `advance_time`: how many
    ticks were submitted. `close`: 1 if the returned future is complete, else 0. `fence`: 0.
    """

    number: int
    writes: tuple[Write, ...] = ()
    callbacks: tuple[Callback, ...] = ()
    flushes: tuple[Flush, ...] = ()
    #: number of close futures that this step completes; 0 at a `close` of a closed writer, although its `number` is 1
    closed: int = 0
    thrown: bool = False  # the call threw an exception
