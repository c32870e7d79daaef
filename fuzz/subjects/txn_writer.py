"""How to drive the buffered writer of a transaction log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuzz.subject import Scope, Subject
from impl.txn_writer.writer import TxnWriter
from invariants import txn_writer as invariants
from model.positions import Position
from model.txn_writer.machine import txn_writer
from model.txn_writer.state import Buffered, Config, Entry, Record, State, Task, Write, is_batching

#: Mostly records that serialise, or of which one in some cannot, in each of the ways.
FAILURES = ("nothing",) * 12 + ("size", "single", "single", "batch")


def sizes(cfg: Config, s: State) -> tuple[int, ...]:
    """None, a few bytes, what makes the buffer one too small, just large enough and one too large, and large ones."""
    left, most = cfg.max_bytes - s.size, cfg.max_bytes
    if most == 1000 and left > 500:
        return 0, 1  # so that many records come together before there are enough bytes
    found = (0, 1, most // 3, most // 3, most // 2, left - 1, left, left + 1, most - 1, most, most + 3)
    return tuple([size for size in found if size >= 0])


def spans(cfg: Config, s: State) -> tuple[int, ...]:
    """Nothing, a little, to around the timer's deadline, and over several of them."""
    if s.timer is None:
        return (0, 1, cfg.max_delay_ms)
    left = s.timer - s.now
    periods = [left + n * cfg.max_delay_ms for n in (1, 3, 20)]
    return (0, 1, 1, left - 1, left, left, left + 1, *periods)


def situation(cfg: Config, s: State) -> str:
    """What is likely next."""
    if s.status == "closed":
        return "closed"
    if s.tasks:
        return "tasks"
    return "writes" if s.in_flight else "idle"


def coverage_key(cfg: Config, s: State) -> tuple[object, ...]:
    """How much is buffered, queued, in flight; where the timer is; how the last entry ended."""
    fill = 0 if not s.buffer else 1 + (2 * s.size >= cfg.max_bytes) + 2 * (2 * len(s.buffer) >= cfg.max_records)
    return (
        s.status,
        fill,
        min(len(s.tasks), 4),
        "tick" in s.tasks,
        "close" in s.tasks,
        min(len(s.in_flight), 4),
        s.timer is None,
        bool(s.log) and (s.log[-1].batched, s.log[-1].acknowledged, min(len(s.log[-1].records), 3)),
        s.fenced,
        "batch" in [each.fails_on for each in s.buffer],
        min(s.closers, 2),
        is_batching(cfg),
    )


# ---- bounds for the engines that visit every state -----------------------------------------------------


def records(s: State) -> int:
    """How many records are known; in a canonical state, those that are somewhere."""
    return s.next_record - 1


def tasks(s: State) -> int:
    """How many tasks wait for the thread."""
    return len(s.tasks)


def ledgers(s: State) -> int:
    """Which ledger the next entry comes into."""
    return s.ledger


def closers(s: State) -> int:
    """How many callers of close wait."""
    return s.closers


def age(s: State) -> int:
    """For how long the first record in the buffer has waited."""
    return s.now - s.buffer[0].since if s.buffer else 0


SMOKE = Scope(
    actions=("add", "close", "run_writer_tasks", "advance_time", "complete_write", "fail_write"),
    settings={"max_records": 2, "max_bytes": 3, "max_delay_ms": 2, "thread": "queued"},
    domains={
        "size": (1, 3),
        "fails_on": ("nothing",),
        "count": (1,),
        "by": (1,),
        "durable": (True,),
    },
    bounds={"records": 3, "tasks": 3, "closers": 1, "age": 3},
    reasons={
        "actions": "what fills and empties the buffer; hides fences and other ledgers",
        "max_records": "two, the fewest that make a batch",
        "max_bytes": "more than two small records have: only their number fills the buffer",
        "max_delay_ms": "two: a record may come between two ticks",
        "thread": "queued: a thread that runs at once is one that always runs before anything else",
        "size": "small, and large alone",
        "fails_on": "nothing: failures are in the scope of failures",
        "count": "one task; several are that several times",
        "by": "the least step of time; longer ones are several of it",
        "durable": "stored all the same; one that is not is forgotten as if it had never been",
        "records": "three that are somewhere: a batch, and one before or after it",
        "tasks": "three: a tick, a record and a close; hides longer queues",
        "closers": "one: a second caller is in the scope of failures",
        "age": "longer than the delay; hides how much longer a record waits for a slow thread",
    },
)

CI = Scope(
    actions=(*SMOKE.actions, "fence"),
    settings={"max_records": 3, "max_bytes": 4, "max_delay_ms": 1, "thread": "queued"},
    domains=dict(SMOKE.domains) | {"size": (1, 3, 4), "durable": (False, True)},
    bounds={"records": 3, "tasks": 2, "closers": 1, "age": 2},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "as in the scope smoke, and the fence",
        "max_records": "three: two records may wait, for whichever limit",
        "max_bytes": "four: a small record and one that is nearly large fill the buffer",
        "max_delay_ms": "one: every step of time is a tick",
        "size": "small, nearly large, and large alone",
        "durable": "both, after each failed write",
        "tasks": "two: one before the other; hides longer queues",
    },
)

FAILURES_SCOPE = Scope(
    actions=("add", "close", "run_writer_tasks", "advance_time"),
    settings={"max_records": 3, "max_bytes": 2, "max_delay_ms": 1, "thread": "queued", "writes": "at_once"},
    domains=dict(SMOKE.domains) | {"size": (1, 2), "fails_on": ("nothing", "size", "single", "batch")},
    bounds={"records": 3, "tasks": 2, "closers": 2, "age": 2},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "what serialises, and a close; hides the ledger's part",
        "max_records": "three: a batch that fails has a record before and one behind it",
        "max_bytes": "two, so that a record of one byte and another fill the buffer",
        "max_delay_ms": "one: every step of time is a tick",
        "writes": "at once: what the ledger does is in the other scopes",
        "size": "small, and large alone",
        "fails_on": "each way, and none of them",
        "tasks": "two: one before the other; hides longer queues",
        "closers": "two: the second one comes while the first one waits",
    },
)

NIGHTLY = Scope(
    actions=tuple(txn_writer.actions),
    settings=dict(SMOKE.settings),
    domains=dict(SMOKE.domains) | {"fails_on": ("nothing", "batch"), "durable": (False, True)},
    bounds={"records": 3, "tasks": 3, "closers": 2, "ledgers": 2, "age": 3},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "all that there are",
        "fails_on": "nothing, and a record that takes its batch along",
        "durable": "both, after each failed write",
        "closers": "two: the second one comes while the first one waits",
        "ledgers": "two: what is in flight comes into either",
    },
)


# ---- the TLA+ twin ------------------------------------------------------------------------------------


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """A state of the TLA+ twin, in which it is time 0 and the records that are known have the lowest numbers."""
    v = variables
    tasks, waiting = tuple([read_task(each) for each in v["tasks"]]), v["in_flight"]
    buffer = tuple([Buffered(b["number"], b["size"], b["fails_on"], b["since"]) for b in v["buffer"]])
    in_flight = tuple([Write(i, w["batched"], w["records"], w["size"]) for i, w in enumerate(waiting, 1)])
    log = tuple([Entry(Position(*e["position"]), e["batched"], e["records"], e["acknowledged"]) for e in v["log"]])
    known = [each.number for each in (*tasks, *buffer) if not isinstance(each, str)]
    known += [*v["pending_callbacks"], *[number for each in (*waiting, *v["log"]) for number in each["records"]]]
    return State(
        0,
        v["status"],
        tasks,
        buffer,
        v["size"],
        v["timer"],
        in_flight,
        v["pending_callbacks"],
        v["closers"],
        v["fenced"],
        v["ledger"],
        v["next_entry"],
        log,
        max(known, default=0) + 1,
        len(in_flight) + 1,
        (),
    )


def read_task(task: Mapping[str, Any]) -> Task:
    """A task of the twin."""
    if task["is"] == "record":
        each = task["record"]
        return Record(each["number"], each["size"], each["fails_on"])
    return "tick" if task["is"] == "tick" else "close"


# ---- states that `check` must not let pass ------------------------------------------------------------


def a_second_timer(s: State) -> State | None:
    """A timer is set though a tick waits already."""
    return s._replace(timer=s.now + 1) if "tick" in s.tasks else None


def a_timer_of_the_past(s: State) -> State | None:
    """The timer is overdue."""
    return s._replace(timer=s.now) if s.timer is not None else None


def no_timer(s: State) -> State | None:
    """Something is buffered, and nothing will flush it."""
    return s._replace(timer=None) if s.buffer and s.timer is not None and s.status == "open" else None


def more_bytes(s: State) -> State:
    """The buffer has more bytes than its records."""
    return s._replace(size=s.size + 1)


def answered_twice(s: State) -> State | None:
    """A record in flight was answered already."""
    return s._replace(pending_callbacks=s.pending_callbacks[1:]) if s.in_flight else None


def never_answered(s: State) -> State:
    """A record is nowhere, and its caller waits."""
    return s._replace(pending_callbacks=(*s.pending_callbacks, s.next_record), next_record=s.next_record + 1)


def buffered_after_close(s: State) -> State | None:
    """A closed writer still has something."""
    return s._replace(buffer=(Buffered(0, 1, "nothing", s.now),), size=1) if s.status == "closed" else None


def a_close_that_never_comes(s: State) -> State | None:
    """Somebody waits for an open writer to be closed."""
    return s._replace(closers=1) if s.status == "open" else None


def an_entry_ahead(s: State) -> State | None:
    """The next entry would come where one is."""
    return s._replace(next_entry=0) if s.log and s.next_entry else None


def in_two_places(s: State) -> State | None:
    """A record is in flight twice."""
    return s._replace(in_flight=(s.in_flight[0], *s.in_flight)) if s.in_flight else None


subject = Subject(
    txn_writer,
    TxnWriter,
    invariants,
    domains={
        "size": sizes,
        "fails_on": FAILURES,
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
        "thread": ("queued", "immediate"),
        "writes": ("queued", "queued", "at_once"),
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
    abstract=coverage_key,
    measures={"records": records, "tasks": tasks, "ledgers": ledgers, "closers": closers, "age": age},
    scopes={"smoke": SMOKE, "ci": CI, "failures": FAILURES_SCOPE, "nightly": NIGHTLY},
    corrupt={
        "a_second_timer": a_second_timer,
        "a_timer_of_the_past": a_timer_of_the_past,
        "no_timer": no_timer,
        "more_bytes": more_bytes,
        "answered_twice": answered_twice,
        "never_answered": never_answered,
        "buffered_after_close": buffered_after_close,
        "a_close_that_never_comes": a_close_that_never_comes,
        "an_entry_ahead": an_entry_ahead,
        "in_two_places": in_two_places,
    },
    steps=96,
    tla="TxnWriter",
    from_tla=from_tla,
)
