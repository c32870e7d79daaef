"""The buffered writer of a transaction log: records in, entries out, every caller told what became of its record.

Source: PIP-160 (sections "Approach" and "Configuration Changes"); shipped as `TxnLogBufferedWriter`. Step grain: one
call of the writer, one end of a write; `advance_time` makes the timer fire whenever it is due, `run_writer_tasks` runs
so many tasks of the writer's thread.

    add       a record comes to the buffer, whose batch is written as soon as it has enough records, else enough bytes;
              a record that is large alone is written alone and plain, after what is in the buffer
    tick      the timer: what is in the buffer is written; then it is set anew, whatever came of it
    write     an entry is one batch, or one plain record; several may be in flight
    ended     each record of an entry is told its position with its place in the batch, in order; or that it failed
    close     what is in the buffer fails, what is in flight ends as it may, what comes later fails

An entry may be stored though its write failed: then its callers were told so, and a reader finds it all the same.
With batching off each record is written within its call, alone and plain.

Decisions. The tick is a free-running one, as shipped, and not the proposal's mark of the first request: both keep the
bound, and the proposal's is the profile `proposal`. A size limit is a trigger, as shipped; `size-is-a-cap` flushes
before it would be exceeded. A batch with one record has its header, so that a batch is a batch. An exception of
batching off becomes an answer, so that each record has exactly one wherever it fails. A batch that cannot be serialised
fails as a whole; looking for the one record would be a repair that nobody asked for. A closed writer's buffer is empty:
whoever else gets those lists must not find another's records. A close fails what is in the buffer, so that it is over
soon and no caller waits for a ledger that may be gone; `flush-on-close` writes it. A second close waits for the first:
who is told that the writer is closed may rely on it.

Not modelled, of the writer: what the bytes are; callbacks that throw (they are logged, and change nothing), or an
exception while one is registered; a record that its caller changes later; the tick of the timer's wheel; a tick that
cannot be handed to the thread, or set again (as shipped, the delay is never kept after that); pools of buffers (the
implementation's `check` looks after its own) and a second writer that draws from the same one; metrics
(impl/txn_writer/metrics.py has them). Of what is around it: a ledger that accepts again after it was fenced (its writer is
closed, the log is opened anew), or that refuses for a while, since no new one could be created; that as shipped a store
closes the ledger before the writer, so that a flush in between meets a closed one; the broker's checks at startup (at
least 10 records, at least 131072 bytes).
"""

from __future__ import annotations

from typing import Annotated

from model.machine import Machine, Refused, Step, refused
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
    start,
)
from model.values import AtLeast

txn_writer = Machine("txn_writer", Config, start, source="PIP-160")

Size = Annotated[int, AtLeast(0)]
Span = Annotated[int, AtLeast(0)]
Count = Annotated[int, AtLeast(0)]


class Happening:
    """What a step tells, gathered on the way."""

    __slots__ = ("answers", "closed", "flushes", "writes")

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.answers: list[Answer] = []
        self.flushes: list[Flush] = []
        self.closed = 0

    def fail(self, numbers: tuple[int, ...], why: Outcome) -> None:
        """Records are told that they failed."""
        self.answers += [Answer(number, why) for number in numbers]

    def told(self, s: State, number: int, *, thrown: bool = False) -> tuple[State, Told]:
        """The state after the step, and what is told."""
        flushes = tuple(self.flushes)
        if self.answers:
            answered = {answer.record for answer in self.answers}
            left = tuple([number for number in s.unanswered if number not in answered])
            s = s._replace(unanswered=left, flushes=flushes)
        elif s.flushes != flushes:
            s = s._replace(flushes=flushes)
        return s, Told(number, tuple(self.writes), tuple(self.answers), flushes, self.closed, thrown)


# ---- writes -------------------------------------------------------------------------------------------


def submitted(cfg: Config, s: State, batched: bool, records: tuple[int, ...], size: int, out: Happening) -> State:
    """An entry goes to the ledger; one that is fenced refuses it at once."""
    if s.fenced:
        out.fail(records, "fenced")
        return s
    write = Write(s.next_write, batched, records, size)
    out.writes.append(write)
    s = s._replace(next_write=s.next_write + 1)
    if cfg.writes == "at_once":
        return completed(s, write, out)
    return s._replace(in_flight=(*s.in_flight, write))


def stored(s: State, write: Write, told: bool) -> State:
    """The ledger has a further entry."""
    entry = Entry(Position(s.ledger, s.next_entry), write.batched, write.records, told)
    return s._replace(log=(*s.log, entry), next_entry=s.next_entry + 1)


def completed(s: State, write: Write, out: Happening) -> State:
    """An entry is stored; each record is told where, in the order of the batch."""
    position, batch = Position(s.ledger, s.next_entry), len(write.records)
    if write.batched:
        out.answers += [Answer(number, "ok", position, i, batch) for i, number in enumerate(write.records)]
    else:
        out.answers += [Answer(number, "ok", position) for number in write.records]
    return stored(s, write, True)


def flushed(cfg: Config, s: State, reason: Reason, out: Happening) -> tuple[State, bool]:
    """The buffer goes to the ledger as one batch and is empty; false if an exception has escaped and left it."""
    records = tuple([each.number for each in s.buffer])
    out.flushes.append(Flush(reason, len(records), s.size, s.now - s.buffer[0].since))
    if "batch" in [each.fails_on for each in s.buffer]:
        if cfg.unserialisable_batch == "escapes":
            return s, False
        out.fail(records, "serialization")
    elif s.status != "open" and cfg.close_buffered == "fails":
        out.fail(records, "closed")
    else:
        s = submitted(cfg, s, True, records, s.size + cfg.header_bytes, out)
    return s._replace(buffer=(), size=0, timer=s.timer if cfg.delay_from == "tick" else None), True


def alone(cfg: Config, s: State, record: Record, out: Happening) -> State:
    """A record is written alone, as it is."""
    if record.fails_on == "single":
        out.fail((record.number,), "serialization")
        return s
    return submitted(cfg, s, False, (record.number,), record.size, out)


# ---- tasks of the writer's thread ---------------------------------------------------------------------


def taken(cfg: Config, s: State, record: Record, out: Happening) -> State:
    """A record comes to the buffer, which may be flushed: before it for its size, after it for its place."""
    if s.status != "open":
        out.fail((record.number,), "closed")
        return s
    if record.fails_on == "size":
        out.fail((record.number,), "serialization")
        return s
    is_large, went = record.size >= cfg.max_bytes, True
    if is_large and s.buffer:
        s, went = flushed(cfg, s, "large", out)
    elif cfg.size_limit == "cap" and s.buffer and s.size + record.size > cfg.max_bytes:
        s, went = flushed(cfg, s, "size", out)
    if not went:
        return s
    return alone(cfg, s, record, out) if is_large else buffered(cfg, s, record, out)


def buffered(cfg: Config, s: State, record: Record, out: Happening) -> State:
    """A record is in the buffer, which is flushed if it has enough records or, if not that, enough bytes."""
    timer = s.timer
    if cfg.delay_from == "first_record" and not s.buffer and "tick" not in s.tasks:
        timer = s.now + cfg.max_delay_ms
    s = s._replace(buffer=(*s.buffer, Buffered(*record, s.now)), size=s.size + record.size, timer=timer)
    if len(s.buffer) >= cfg.max_records:
        return flushed(cfg, s, "records", out)[0]
    return flushed(cfg, s, "size", out)[0] if s.size >= cfg.max_bytes else s


def ticked(cfg: Config, s: State, out: Happening) -> State:
    """What is in the buffer is flushed; then the timer is set anew, unless the writer closes."""
    if s.buffer and s.status != "closed":
        s, _ = flushed(cfg, s, "delay", out)
    if s.status == "open" and (cfg.delay_from == "tick" or s.buffer):
        return s._replace(timer=s.now + cfg.max_delay_ms)
    return s


def ended(cfg: Config, s: State, out: Happening) -> State:
    """The writer is closed: what is in the buffer fails or goes, no timer is set, those who wait are told."""
    went = bool(s.buffer) and cfg.close_buffered == "flushes"
    if went:
        s, went = flushed(cfg, s, "close", out)
    if not went:
        out.fail(tuple([each.number for each in s.buffer]), "closed")
    out.closed += s.closers
    s = s._replace(status="closed", timer=None, closers=0)
    return s._replace(buffer=(), size=0) if cfg.closed_buffer == "empty" else s


def run(cfg: Config, s: State, task: Task, out: Happening) -> State:
    """A task runs."""
    if isinstance(task, Record):
        return taken(cfg, s, task, out)
    return ticked(cfg, s, out) if task == "tick" else ended(cfg, s, out)


def given(cfg: Config, s: State, task: Task, out: Happening) -> State:
    """The writer's thread gets a task."""
    if cfg.thread == "immediate":
        return run(cfg, s, task, out)
    return s._replace(tasks=(*s.tasks, task))


# ---- calls --------------------------------------------------------------------------------------------


@txn_writer.action
def add(cfg: Config, s: State, size: Size, fails_on: FailsOn) -> Step[State, Told]:
    """A record is to be written ("Aggregate multiple records and write to Bookies"); the outcome has its number.

    Its callback is told later, or within this call. `fails_on` says which way of serialising it does not work.
    """
    number, out = s.next_record, Happening()
    record = Record(number, size, fails_on)
    s = s._replace(unanswered=(*s.unanswered, number), next_record=number + 1)
    if is_batching(cfg):
        return out.told(given(cfg, s, record, out), number)
    if s.status != "open":
        out.fail((number,), "closed")
        return out.told(s, number)
    if fails_on == "single" and cfg.unserialisable_alone == "exception":
        return out.told(s, number, thrown=True)
    return out.told(alone(cfg, s, record, out), number)


@txn_writer.action
def close(cfg: Config, s: State) -> Step[State, Told]:
    """The writer is to be closed; the number is 1 if that is done on return, as it is with batching off."""
    out = Happening()
    if s.status == "closed" or (s.status == "closing" and cfg.second_close == "returns"):
        return out.told(s, 1)
    if s.status == "closing":
        return out.told(s._replace(closers=s.closers + 1), 0)
    if not is_batching(cfg):
        out.closed = 1
        return out.told(s._replace(status="closed"), 1)
    s = given(cfg, s._replace(status="closing", closers=1), "close", out)
    return out.told(s, out.closed)


@txn_writer.action
def run_writer_tasks(cfg: Config, s: State, count: Count) -> Step[State, Told]:
    """The writer's thread runs tasks, in the order in which it got them; the number is how many ran."""
    out, tasks = Happening(), s.tasks[:count]
    if tasks:
        s = s._replace(tasks=s.tasks[count:])
    for task in tasks:
        s = run(cfg, s, task, out)
    return out.told(s, len(tasks))


@txn_writer.action
def advance_time(cfg: Config, s: State, by: Span) -> Step[State, Told]:
    """Time passes; whenever the timer is due, the writer's thread gets a tick. The number is how often it was."""
    end, fired, out = s.now + by, 0, Happening()
    while s.timer is not None and s.timer <= end:
        s = given(cfg, s._replace(now=s.timer, timer=None), "tick", out)
        fired += 1
    return out.told(s._replace(now=end), fired)


# ---- the ledger ---------------------------------------------------------------------------------------


def no_write(s: State) -> tuple[State, Refused]:
    """There is nothing that could end."""
    return refused(s, "illegal_state", "no write is in flight")


@txn_writer.action
def complete_write(cfg: Config, s: State) -> Step[State, Told]:
    """The first write in flight is stored; each of its records is told its position, batch size and batch index."""
    if not s.in_flight:
        return no_write(s)
    write, out = s.in_flight[0], Happening()
    return out.told(completed(s._replace(in_flight=s.in_flight[1:]), write, out), write.number)


@txn_writer.fault
def fail_write(cfg: Config, s: State, durable: bool) -> Step[State, Told]:
    """The first write in flight fails, and so does each of its records, no other. It may be stored all the same."""
    if not s.in_flight:
        return no_write(s)
    write, out = s.in_flight[0], Happening()
    s = s._replace(in_flight=s.in_flight[1:])
    out.fail(write.records, "write_failed")
    return out.told(stored(s, write, False) if durable else s, write.number)


@txn_writer.action
def roll_ledger(cfg: Config, s: State) -> Step[State, Told]:
    """What is stored from now on comes into a new ledger, even if it is in flight; the outcome has its number."""
    return Happening().told(s._replace(ledger=s.ledger + 1, next_entry=0), s.ledger + 1)


@txn_writer.fault
def fence(cfg: Config, s: State) -> Step[State, Told]:
    """Another broker has the ledger: it refuses whatever comes from now on. What is in flight ends as it may."""
    if s.fenced:
        return refused(s, "illegal_state", "the ledger is fenced")
    return Happening().told(s._replace(fenced=True), 0)


# ---- names and observers ------------------------------------------------------------------------------


@txn_writer.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """It is time 0, and records and writes that are still known have the lowest numbers."""
    known = {each.number for each in s.tasks if isinstance(each, Record)}
    known.update([each.number for each in s.buffer], s.unanswered)
    known.update(*[each.records for each in s.in_flight], *[each.records for each in s.log])
    names = {number: i for i, number in enumerate(sorted(known), 1)}

    def renamed(records: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([names[number] for number in records])

    return s._replace(
        now=0,
        tasks=tuple([t._replace(number=names[t.number]) if isinstance(t, Record) else t for t in s.tasks]),
        buffer=tuple([b._replace(number=names[b.number], since=b.since - s.now) for b in s.buffer]),
        timer=None if s.timer is None else s.timer - s.now,
        in_flight=tuple([w._replace(number=i, records=renamed(w.records)) for i, w in enumerate(s.in_flight, 1)]),
        unanswered=renamed(s.unanswered),
        log=tuple([e._replace(records=renamed(e.records)) for e in s.log]),
        next_record=len(names) + 1,
        next_write=len(s.in_flight) + 1,
        flushes=(),
    )


@txn_writer.observation
def observe(cfg: Config, s: State) -> dict[str, object]:
    """What the writer holds, what it waits for, and what is stored."""
    return {
        "state": s.status,
        "buffered_records": len(s.buffer),
        "buffered_bytes": s.size,
        "next_timer_ms": s.timer,
        "queued_tasks": len(s.tasks),
        "outstanding_writes": [write.number for write in s.in_flight],
        "unanswered_records": list(s.unanswered),
        "flushes": [list(flush) for flush in s.flushes],
        "entries": [[entry.position.as_plain(), entry.batched, list(entry.records)] for entry in s.log],
    }


# ---- profiles -----------------------------------------------------------------------------------------

reference = txn_writer.profile("reference", "what this specification holds to be right", Config())

shipped = txn_writer.profile(
    "pulsar-2026-07",
    "as recorded from Apache Pulsar master, 2026-07-23",
    Config(
        unserialisable_batch="escapes",
        unserialisable_alone="exception",
        second_close="returns",
        closed_buffer="stale",
    ),
)

proposal = txn_writer.profile(
    "proposal",
    "the text of the proposal: the delay counts from the first record of each batch",
    Config(delay_from="first_record"),
)

size_is_a_cap = txn_writer.profile(
    "size-is-a-cap",
    "an option of the reference: a batch is written before it would have more than max_bytes",
    Config(size_limit="cap"),
)

flush_on_close = txn_writer.profile(
    "flush-on-close",
    "an option of the reference: a close writes what is in the buffer",
    Config(close_buffered="flushes"),
)
