"""The buffered writer of a transaction log: settings, rules, state, and what a step tells.

A record is known by its number, in the order of the calls; sizes are bytes of serialised records, times milliseconds.
A write is one entry on its way to the ledger: a plain one with one record, or a batch, which has a header even around
a single record, so that a reader tells one from the other by the first bytes.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from model.machine import Setting
from model.positions import Position
from model.values import AtLeast, record

# ---- settings and rules -------------------------------------------------------------------------------


class Config(NamedTuple):
    """Settings, the circumstances of a run, then the rules on which versions and proposals differ.

    The settings have the names of a transaction log. The same writer serves pending acknowledgements, under
    `transactionPendingAckBatchedWriteEnabled` and so on, with the same defaults.
    """

    #: whether records are batched; a batch of at most one record means that they are not
    batching: Annotated[bool, Setting("transactionLogBatchedWriteEnabled", "false")] = True
    #: with how many records a batch is written
    max_records: Annotated[int, AtLeast(0), Setting("transactionLogBatchedWriteMaxRecords", "512")] = 512
    #: with how many bytes of records a batch is written; a record of as many is written alone
    max_bytes: Annotated[int, AtLeast(0), Setting("transactionLogBatchedWriteMaxSize", "4194304")] = 4194304
    #: after how long the timer comes, in milliseconds; a record waits so long at most, and as long as the thread is
    #: busy
    max_delay_ms: Annotated[int, AtLeast(1), Setting("transactionLogBatchedWriteMaxDelayInMillis", "1")] = 1

    #: the time at the start, in milliseconds
    start: int = 0
    #: how many bytes magic and version of a batch take
    header_bytes: Annotated[int, AtLeast(0)] = 4
    #: when tasks of the writer's thread run: within the call that makes them, or when they are told to
    thread: Literal["immediate", "queued"] = "immediate"
    #: when a write ends: within the call that begins it, or when it is told to, first in first out
    writes: Literal["at_once", "queued"] = "queued"

    #: a batch with a record that cannot be serialised among others: all its records fail; or the exception escapes, the
    #: batch stays in the buffer, and the large record that made it be written is forgotten
    unserialisable_batch: Literal["fails", "escapes"] = "fails"
    #: with batching off, a record that cannot be serialised: its callback is told, or its caller gets an exception
    unserialisable_alone: Literal["callback", "exception"] = "callback"
    #: a second close while the first one is running: told when the writer is closed, or at once
    second_close: Literal["waits", "returns"] = "waits"
    #: what the buffer of a closed writer holds: nothing, or still what it held
    closed_buffer: Literal["empty", "stale"] = "empty"
    #: what max_bytes is: a size with which a batch is written, so that it has less than twice as much; or a size that
    #: no batch exceeds, for it is written before
    size_limit: Literal["trigger", "cap"] = "trigger"
    #: what the delay counts from: a tick that comes again and again, or the first record of the batch
    delay_from: Literal["tick", "first_record"] = "tick"
    #: what becomes of buffered records at close
    close_buffered: Literal["fails", "flushes"] = "fails"


def is_batching(cfg: Config) -> bool:
    """Whether records are batched at all."""
    return cfg.batching and cfg.max_records > 1


# ---- state --------------------------------------------------------------------------------------------

#: Where serialising a record fails: when its size is asked for, when it is written alone, when it is in a batch.
FailsOn = Literal["nothing", "size", "single", "batch"]
#: Why a buffer is flushed: it has enough records; enough bytes; a record comes that is large alone; the timer; close.
Reason = Literal["records", "size", "large", "delay", "close"]
#: How a record's callback is told.
Outcome = Literal["ok", "closed", "fenced", "write_failed", "serialization"]


class Record(NamedTuple):
    """A record whose task waits for the writer's thread."""

    number: int
    size: int
    fails_on: FailsOn


class Buffered(NamedTuple):
    """A record in the buffer, and since when."""

    number: int
    size: int
    fails_on: FailsOn
    since: int


class Write(NamedTuple):
    """An entry on its way to the ledger; its size counts the header of a batch."""

    number: int
    batched: bool
    records: tuple[int, ...]
    size: int


class Entry(NamedTuple):
    """An entry in the ledger. Its callers were told so, or that it had failed."""

    position: Position
    batched: bool
    records: tuple[int, ...]
    told: bool


class Flush(NamedTuple):
    """A buffer that was flushed: why, how many records and bytes it had, how long its first record had waited."""

    reason: Reason
    records: int
    size: int
    waited: int


#: What waits for the writer's thread: a record, the timer's tick, or the end of a close.
Task = Record | Literal["tick", "close"]


@record
class State(NamedTuple):
    """A writer, and the ledger behind it."""

    now: int
    status: Literal["open", "closing", "closed"]
    tasks: tuple[Task, ...]
    buffer: tuple[Buffered, ...]
    size: int  # of the buffer's records
    timer: int | None  # its deadline
    in_flight: tuple[Write, ...]
    unanswered: tuple[int, ...]  # records whose callbacks were not told yet
    closers: int  # callers of close who wait
    fenced: bool  # the ledger takes no further write
    ledger: int  # of the next entry
    next_entry: int
    log: tuple[Entry, ...]
    next_record: int
    next_write: int
    flushes: tuple[Flush, ...]  # of the last step, for an observer; they change nothing


def start(cfg: Config) -> State:
    """Nothing is buffered; a tick comes after the delay."""
    ticks = is_batching(cfg) and cfg.delay_from == "tick"
    timer = cfg.start + cfg.max_delay_ms if ticks else None
    return State(cfg.start, "open", (), (), 0, timer, (), (), 0, False, 1, 0, (), 1, 1, ())


# ---- what a step tells --------------------------------------------------------------------------------


class Answer(NamedTuple):
    """What a record's callback is told; where the record is if it is stored, with its place in a batch."""

    record: int
    outcome: Outcome
    position: Position | None = None
    place: int | None = None  # in its batch
    batch: int | None = None  # how many records the batch has


class Told(NamedTuple):
    """What came of a step.

    The number is that of the action: of the record, the ledger or the write; how many tasks ran, how often the timer
    fired; of a close, 1 if it is done.
    """

    number: int
    writes: tuple[Write, ...] = ()
    answers: tuple[Answer, ...] = ()
    flushes: tuple[Flush, ...] = ()
    closed: int = 0  # callers of close who are told that it is done
    thrown: bool = False  # the caller gets an exception
