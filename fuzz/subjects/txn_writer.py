"""How to drive the buffered writer of a transaction log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuzz.subject import Scope, Subject
from fuzz.tlc.values import as_model
from impl.txn_writer.writer import TxnWriter
from invariants import txn_writer as invariants
from model.txn_writer.machine import txn_writer
from model.txn_writer.state import Buffered, Config, Record, State, Task, Write, is_batching

#: Where the serialisation of a record fails (`FailsOn`): mostly nowhere.
FAILS_ON = ("nothing",) * 12 + ("size", "single", "single", "batch")


def sizes(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns 0, 1, fractions of `max_bytes`, and sizes around the space left in the buffer and around `max_bytes`.

    With the largest `max_bytes` and much space left, returns 0 and 1.
    """
    left, most = cfg.max_bytes - s.size, cfg.max_bytes
    if most == 1000 and left > 500:
        return 0, 1  # small records: many are buffered before `max_bytes` is reached
    found = (0, 1, most // 3, most // 3, most // 2, left - 1, left, left + 1, most - 1, most, most + 3)
    return tuple([size for size in found if size >= 0])


def spans(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns 0, short times, times around the timer's deadline, and several periods of the timer, in milliseconds."""
    if s.timer is None:
        return (0, 1, cfg.max_delay_ms)
    left = s.timer - s.now
    periods = [left + n * cfg.max_delay_ms for n in (1, 3, 20)]
    return (0, 1, 1, left - 1, left, left, left + 1, *periods)


def longest_span(cfg: Config) -> int:
    """Returns the longest time of a step: 1000 periods of the timer."""
    return 1000 * cfg.max_delay_ms


def situation(cfg: Config, s: State) -> str:
    """Returns "closed", "tasks" (some are queued), "writes" (only writes are in flight) or "idle"."""
    if s.status == "closed":
        return "closed"
    if s.tasks:
        return "tasks"
    return "writes" if s.in_flight else "idle"


def coverage_key(cfg: Config, s: State) -> tuple[object, ...]:
    """Returns how full the buffer is, and facts about queue, writes in flight, timer and last entry."""
    # 0: empty; otherwise 1, plus 1 if at least half of `max_bytes`, plus 2 if at least half of `max_records`
    fill = 0 if not s.buffer else 1 + (2 * s.size >= cfg.max_bytes) + 2 * (2 * len(s.buffer) >= cfg.max_records)
    return (
        s.status,
        fill,
        min(len(s.tasks), 4),
        "tick" in s.tasks,
        "close" in s.tasks,
        min(len(s.in_flight), 4),
        s.timer is None,
        bool(s.log) and (s.log[-1].batched, s.log[-1].succeeded, min(len(s.log[-1].records), 3)),
        s.fenced,
        "batch" in [each.fails_on for each in s.buffer],
        min(s.closers, 2),
        is_batching(cfg),
    )


# ---- measures that scopes bound -------------------------------------------------------------------------


def records(s: State) -> int:
    """Returns the number of records of a canonical state, in which records are numbered from 1."""
    return s.next_record - 1


def tasks(s: State) -> int:
    """Returns the number of queued tasks."""
    return len(s.tasks)


def ledgers(s: State) -> int:
    """Returns the id of the ledger of the next entry."""
    return s.ledger


def closers(s: State) -> int:
    """Returns the number of pending close futures."""
    return s.closers


def age(s: State) -> int:
    """Returns the age of the oldest buffered record; 0 without one."""
    return s.now - s.buffer[0].since if s.buffer else 0


SMOKE = Scope(
    actions=("add", "close", "run_writer_tasks", "advance_time", "complete_write", "fail_write"),
    settings={"max_records": 2, "max_bytes": 3, "max_delay_ms": 2, "executor": "queued"},
    domains={
        "size": (1, 3),
        "fails_on": ("nothing",),
        "count": (1,),
        "by": (1,),
        "durable": (True,),
    },
    bounds={"records": 3, "tasks": 3, "closers": 1, "age": 3},
    reasons={
        "actions": "fill and flush the buffer; excludes fences and rollover",
        "max_records": "two: the lowest limit with which the writer batches",
        "max_bytes": "three: more than two small records; they are flushed because of `max_records`",
        "max_delay_ms": "two: a record can be added between two ticks",
        "executor": "queued: an immediate executor equals a queued one whose tasks run at once",
        "size": "a small record, and one of `max_bytes`",
        "fails_on": "none: failures are in the scope failures",
        "count": "one task at a time",
        "by": "one millisecond at a time",
        "durable": "true: a failed write leaves an entry; a lost write, which leaves none, is in the scope ci",
        "records": "three pending or stored records: a batch and one before or after it",
        "tasks": "three: a tick, a record and a close; excludes longer queues",
        "closers": "one: a second close is in the scope failures",
        "age": "one more than `max_delay_ms`; excludes longer waits for a slow executor",
    },
)

CI = SMOKE.changed(
    actions=(*SMOKE.actions, "fence"),
    settings={"max_records": 3, "max_bytes": 4, "max_delay_ms": 1},
    domains={"size": (1, 3, 4), "durable": (False, True)},
    bounds={"tasks": 2, "age": 2},
    reasons={
        "actions": "those of the scope smoke, and fence",
        "max_records": "three: two small records can be buffered without a flush",
        "max_bytes": "four: a record of one byte and one of three reach it",
        "max_delay_ms": "one: every millisecond is a tick",
        "size": "one, three, and `max_bytes`",
        "durable": "both, after each failed write",
        "tasks": "two; excludes longer queues",
    },
)

FAILURES = SMOKE.changed(
    actions=("add", "close", "run_writer_tasks", "advance_time"),
    settings={"max_records": 3, "max_bytes": 2, "max_delay_ms": 1, "writes": "immediate"},
    domains={"size": (1, 2), "fails_on": ("nothing", "size", "single", "batch")},
    bounds={"tasks": 2, "closers": 2, "age": 2},
    reasons={
        "actions": "serialisation and close; excludes failed writes, fences and rollovers",
        "max_records": "three: not reached, because `max_bytes` flushes the buffer first",
        "max_bytes": "two: two records of one byte reach it",
        "max_delay_ms": "one: every millisecond is a tick",
        "writes": "at once: writes in flight are in the other scopes",
        "fails_on": "no failure, and every kind of failure",
        "tasks": "two; excludes longer queues",
        "closers": "two: the second close comes while the first is pending",
    },
)

NIGHTLY = SMOKE.changed(
    actions=tuple(txn_writer.actions),
    domains={"fails_on": ("nothing", "batch"), "durable": (False, True)},
    bounds={"closers": 2, "ledgers": 2},
    reasons={
        "actions": "all actions of the model",
        "fails_on": "no failure, and a record whose batch cannot be serialised",
        "durable": "both, after each failed write",
        "closers": "two: the second close comes while the first is pending",
        "ledgers": "two: a write in flight can be stored in either ledger",
    },
)


# ---- the TLA+ twin ------------------------------------------------------------------------------------


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """Returns the state for the twin's variables. The twin has no clock; its records are numbered from 1."""
    tasks = tuple([task_of(each) for each in variables["tasks"]])
    in_flight = tuple([as_model(Write, w, number=i) for i, w in enumerate(variables["in_flight"], 1)])
    numbers = {"next_record": 0, "next_write": len(in_flight) + 1}
    s: State = as_model(State, variables, now=0, tasks=tasks, in_flight=in_flight, flushes=(), **numbers)
    known = [each.number for each in (*tasks, *s.buffer) if not isinstance(each, str)]
    known += [*s.pending_callbacks, *[number for each in (*in_flight, *s.log) for number in each.records]]
    return s._replace(next_record=max(known, default=0) + 1)


def task_of(task: Mapping[str, Any]) -> Task:
    """Returns the task for a task of the twin."""
    return as_model(Record, task["record"]) if task["is"] == "record" else task["is"]  # type: ignore[no-any-return]


# ---- corrupted states that `check` must report ----------------------------------------------------------


def second_timer_is_armed(_cfg: Config, s: State) -> State | None:
    """A timer is armed although a tick is queued."""
    return s._replace(timer=s.now + 1) if "tick" in s.tasks else None


def timer_is_overdue(_cfg: Config, s: State) -> State | None:
    """The timer is overdue."""
    return s._replace(timer=s.now) if s.timer is not None else None


def timer_is_missing(_cfg: Config, s: State) -> State | None:
    """Records are buffered, but no timer is armed."""
    return s._replace(timer=None) if s.buffer and s.timer is not None and s.status == "open" else None


def buffer_size_is_wrong(_cfg: Config, s: State) -> State:
    """The buffer size exceeds the sum of its records."""
    return s._replace(size=s.size + 1)


def record_in_flight_has_completed(_cfg: Config, s: State) -> State | None:
    """The callback of a record in flight is no longer pending."""
    return s._replace(pending_callbacks=s.pending_callbacks[1:]) if s.in_flight else None


def record_is_lost(_cfg: Config, s: State) -> State:
    """A record whose callback is pending is neither queued, nor buffered, nor in flight."""
    return s._replace(pending_callbacks=(*s.pending_callbacks, s.next_record), next_record=s.next_record + 1)


def closed_writer_has_buffer(_cfg: Config, s: State) -> State | None:
    """A closed writer has a buffered record."""
    return s._replace(buffer=(Buffered(0, 1, "nothing", s.now),), size=1) if s.status == "closed" else None


def close_future_of_open_writer(_cfg: Config, s: State) -> State | None:
    """The close future of an open writer is pending."""
    return s._replace(closers=1) if s.status == "open" else None


def next_position_is_taken(_cfg: Config, s: State) -> State | None:
    """The next position is that of a stored entry."""
    return s._replace(next_entry=0) if s.log and s.next_entry else None


def record_is_in_flight_twice(_cfg: Config, s: State) -> State | None:
    """A write is in flight twice."""
    return s._replace(in_flight=(s.in_flight[0], *s.in_flight)) if s.in_flight else None


subject = Subject(
    txn_writer,
    TxnWriter,
    invariants,
    domains={
        "size": sizes,
        "fails_on": FAILS_ON,
        "count": (1, 1, 2, 3, 100, 0),
        "by": spans,
        "durable": (False, True),
    },
    settings={
        "batching": (True,) * 9 + (False,),
        "max_records": (3, 2, 5, 10, 65, 3, 2, 4, 1),
        "max_bytes": (30, 7, 100, 2, 1000, 1, 50, 0),
        "max_delay_ms": (10, 1, 3, 100),
        "start": (0, 1000),
        "executor": ("queued", "immediate"),
        "writes": ("queued", "queued", "immediate"),
    },
    weights={
        "add": 9,
        "close": 0.12,
        "run_writer_tasks": 0.5,
        "advance_time": 3,
        "complete_write": 0.3,
        "fail_write": 0.1,
        "roll_ledger": 0.3,
        "fence": 0.04,
    },
    situation=situation,
    in_situation={
        "tasks": {"run_writer_tasks": 8, "complete_write": 3, "close": 1.5},
        "writes": {"complete_write": 7, "fail_write": 5, "run_writer_tasks": 0.5},
        "closed": {"add": 0.5, "close": 10, "complete_write": 10, "fail_write": 10},
    },
    swarms={
        "slow ledger": {"complete_write": 0.2, "fail_write": 0.3, "close": 0.5},
        "slow thread": {"run_writer_tasks": 0.3, "advance_time": 2, "close": 2},
        "idle": {"add": 0.3, "close": 0.2},
        "closing": {"close": 12, "run_writer_tasks": 0.5},
        "fenced": {"fence": 20, "complete_write": 0.5},
        "large batches": {"add": 20, "run_writer_tasks": 4, "close": 0.2, "fence": 0.2},
    },
    largest={"by": longest_span},
    abstract=coverage_key,
    measures={"records": records, "tasks": tasks, "ledgers": ledgers, "closers": closers, "age": age},
    scopes={"smoke": SMOKE, "ci": CI, "failures": FAILURES, "nightly": NIGHTLY},
    corrupt={
        "second_timer_is_armed": second_timer_is_armed,
        "timer_is_overdue": timer_is_overdue,
        "timer_is_missing": timer_is_missing,
        "buffer_size_is_wrong": buffer_size_is_wrong,
        "record_in_flight_has_completed": record_in_flight_has_completed,
        "record_is_lost": record_is_lost,
        "closed_writer_has_buffer": closed_writer_has_buffer,
        "close_future_of_open_writer": close_future_of_open_writer,
        "next_position_is_taken": next_position_is_taken,
        "record_is_in_flight_twice": record_is_in_flight_twice,
    },
    steps=96,
    tla="TxnWriter",
    from_tla=from_tla,
)
