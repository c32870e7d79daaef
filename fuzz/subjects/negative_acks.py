"""How to drive the negative-ack tracker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fuzz.subject import CoarseModels, Scope, Subject
from impl.negative_acks.tracker import NegativeAcks
from invariants import negative_acks as invariants
from model.machine import plain
from model.negative_acks.avl_tree import Node, Tree
from model.negative_acks.delay import Backoff
from model.negative_acks.machine import (
    Bucket,
    Config,
    Elapsed,
    Nacked,
    State,
    delay_of,
    negative_acks,
    timer_interval,
)
from model.negative_acks.message_ids import MessageId, NackedId
from model.positions import Position
from model.values import UNITS_PER_MS

#: adjacent and last entries of two ledgers, entry ids at the limits of 32 and 64 bits, and negative ids
ENTRIES = (
    Position(1, 0),
    Position(1, 1),
    Position(1, 2),
    Position(1, 3),
    Position(1, 5),
    Position(2, 0),
    Position(2, 1),
    Position(2, 2**32 - 1),
    Position(2, 2**32),
    Position(2, 2**63 - 1),
    Position(1, 300),
    Position(1, -1),
    Position(-1, 0),
)

#: ids of all kinds; the tracker retains some kinds
MESSAGE_IDS = (
    NackedId(),
    NackedId("message_id", 0),
    NackedId("message_id", 1, traced=True),
    NackedId("batch", 0, batch_index=3),
    NackedId("batch", -1, traced=True, batch_index=0),
    NackedId("topic", 2, traced=True),
    NackedId("chunk", 0, first_chunk=Position(1, 0)),
)

#: Backoffs with these lists of delays. The delays are in milliseconds, even if the clock has another unit.
BACKOFFS = tuple(
    Backoff("ms", delays)
    for delays in ((), (4, 9, 1, 30), (2, 5), (20, 10, 5, 2), (200, 90, 300, 150, 250), (0, 3, -2, 7))
)


def bucket_length(cfg: Config) -> int:
    """Returns the length of a bucket in clock units."""
    return (1 if cfg.precision_unit == "clock_units" else UNITS_PER_MS[cfg.clock_unit]) << cfg.precision_bits


def duration_limit(cfg: Config) -> int:
    """Returns the limit of a duration: 60 intervals of a periodic timer; 2**63 with any other timer."""
    is_periodic = cfg.timer in ("interval_when_idle", "interval_on_each_nack", "ticker")
    return 60 * timer_interval(cfg) if is_periodic else 2**63


def durations(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns durations: 0, short ones, those to the first three buckets, and those around the timer's deadline.

    The duration `boundary` moves the due time of a new nack to the start of the next bucket. Durations of many delays
    or buckets are left out, because a periodic timer would run too often.
    """
    short = 1 if cfg.clock_unit == "ms" else 7_000_001  # no whole number of milliseconds
    length, delay, clock = bucket_length(cfg), delay_of(cfg, None) or 0, s.now + s.wall_offset
    boundary = length - (clock + delay) % length
    found = [0, short, 3 * short, boundary - 1, boundary]
    if s.timer is not None:
        left = s.timer - s.now
        found += [left - 1, left, left + 1]
        if cfg.timer == "ticker":
            found.append(left + 2 * timer_interval(cfg))
        found += [bucket.time - clock for bucket in s.buckets[:3]]
    most = 60 * max(delay, length, 20 * UNITS_PER_MS[cfg.clock_unit])
    most = min(most, duration_limit(cfg))
    if min(found) >= 0 and max(found) <= most:  # the usual case
        return tuple(found)
    return tuple([each for each in found if 0 <= each <= most])


#: Lags of the timer: half of them 0 (runs are on time); short; long; and so long that no run happens.
LAGS = {unit: (0, 0, 0, 0, 1, 2 * by, 80 * by, 2 * 10**9 * by) for unit, by in UNITS_PER_MS.items()}


def lags(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns lags of the timer, in clock units."""
    return LAGS[cfg.clock_unit]


def wall_clock_steps(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns short steps, steps longer than a bucket, and the step to the time of the monotonic clock."""
    short, length = UNITS_PER_MS[cfg.clock_unit], bucket_length(cfg)
    return (short, -short, length + short, -length - short, -s.wall_offset)


def coverage_key(cfg: Config, s: State) -> tuple[object, ...]:
    """Returns capped numbers of buckets, entries and ids; whether timer and first bucket are before or after now."""
    entries = [entry for bucket in s.buckets for entry in bucket.entries]
    clock = s.now + s.wall_offset
    return (
        s.status,
        min(len(s.buckets), 5),
        min(len(entries), 6),
        min(len(entries) - len(set(entries)), 2),
        s.timer is None or (s.timer > s.now) - (s.timer < s.now),
        bool(s.buckets) and (s.buckets[0].time > clock) - (s.buckets[0].time < clock),
        min(len(s.retained_ids), 3),
        min(len(s.chunked_messages), 2),
        (s.wall_offset > 0) - (s.wall_offset < 0),
        len({entry.ledger for entry in entries}),
    )


# ---- scopes -------------------------------------------------------------------------------------------


def pending(s: State) -> int:
    """Returns the number of pending nacks."""
    return sum(len(bucket.entries) for bucket in s.buckets)


def overdue(s: State) -> int:
    """Returns by how much the timer's deadline has passed."""
    return 0 if s.timer is None else max(s.now - s.timer, 0)


def reach(s: State) -> int:
    """Returns the largest distance of a bucket time from now."""
    return max((abs(bucket.time - s.now - s.wall_offset) for bucket in s.buckets), default=0)


#: Reasons for the choices that several scopes share.
REASONS = {
    "precision_bits": "one: buckets of two milliseconds, the shortest that have a time besides their start",
    "backoff": "a short and a long delay: a later nack can be due first",
    "min_delay_ms": "zero: a minimum has the effect of another delay",
    "entry": "two, in one bucket or in two; excludes a third entry between them",
    "redelivery_count": "a nack by id, with the delay of the first delivery; the second and the third delivery",
    "message_id": "a plain id: retained ids are in the scope ids",
    "advance_time.by": "the shortest step; a longer step equals several of them, with runs on time in between",
    "advance_time.timer_lag": "on time, or so late that no run happens: the timer task then runs at any later time",
    "overdue": "longer than a bucket; excludes later runs",
    "pending": "each entry in two or three buckets; excludes more nacks",
    "reach": "excludes more distant buckets; a bucket that is due for longer has no other effect",
}

SMOKE = Scope(
    actions=("nack", "close", "advance_time", "run_timer_task"),
    settings={"redelivery_delay_ms": 3, "precision_bits": 1, "backoff": Backoff("ms", (3, 8)), "min_delay_ms": 0},
    domains={
        "entry": (Position(1, 0), Position(1, 1)),
        "redelivery_count": (0, 1),
        "message_id": (NackedId(),),
        "advance_time.by": (1,),
        "advance_time.timer_lag": (0, 9),
    },
    bounds={"pending": 6, "overdue": 3, "reach": 9},
    reasons=REASONS
    | {
        "actions": "actions that fill and empty buckets; excludes faults and chunked messages",
        "redelivery_count": "the first and the second delivery; a nack by id has the delay of the first",
        "redelivery_delay_ms": "not used: the backoff has the delays",
    },
)

CI = SMOKE.changed(
    actions=("nack", "ack", "close", "advance_time", "run_timer_task", "fail_redelivery"),
    settings={"backoff": Backoff("ms", (2, 5))},
    domains={"entry": (Position(1, 0), Position(1, 1), Position(2, 0)), "ack.entry": (Position(1, 0),)},
    bounds={"reach": 6},
    reasons={
        "actions": "all actions except those of message ids and the wall clock",
        "entry": "two in one ledger and one in another",
        "ack.entry": "one entry: an ack changes nothing",
    },
)

IDS = Scope(
    actions=("nack", "receive_chunks", "advance_time"),
    settings=dict(SMOKE.settings) | {"backoff": Backoff("ms", (2,))},
    domains={
        "entry": (Position(1, 0), Position(1, 1)),
        "redelivery_count": (0,),
        "message_id": (
            NackedId(),
            NackedId("message_id", 0, traced=True),
            NackedId("chunk", 0, first_chunk=Position(1, 0)),
        ),
        "last_chunk": (Position(1, 1),),
        "partition": (0,),
        "chunks": ((Position(1, 0), Position(1, 1)),),
        "advance_time.by": (1,),
        "advance_time.timer_lag": (0,),
    },
    bounds={"pending": 4},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "nacks, chunked messages and time",
        "backoff": "one delay: times are in the other scopes",
        "redelivery_count": "the first delivery",
        "message_id": "an id that is not retained, the id of a traced message, and the id of a chunked message",
        "last_chunk": "one chunked message: its last chunk is one of the two entries",
        "partition": "one partition: it is only reported",
        "chunks": "two chunks, the minimum",
        "advance_time.timer_lag": "every run is on time",
    },
)

NIGHTLY = CI.changed(
    actions=tuple(negative_acks.actions),
    settings={"backoff": Backoff("ms", (1, 3, 6))},
    domains={
        "redelivery_count": (None, 1, 2),
        "receive_chunks.last_chunk": (Position(1, 1),),
        "partition": (0,),
        "chunks": ((Position(1, 0), Position(1, 1)),),
        "step_wall_clock.by": (1, -3),
    },
    bounds={"reach": 8},
    reasons={
        "actions": "all actions of the model",
        "backoff": "three delays; the shortest is shorter than a bucket",
        "redelivery_count": REASONS["redelivery_count"],
        "receive_chunks.last_chunk": IDS.reasons["last_chunk"],
        "partition": IDS.reasons["partition"],
        "chunks": IDS.reasons["chunks"],
        "step_wall_clock.by": "forward and back; the reference ignores the wall clock",
    },
)


# ---- the TLA+ twin ------------------------------------------------------------------------------------


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """Returns the state for the twin's variables. The twin has a set of pairs (time, entry), and no message ids."""
    pairs = sorted((time, Position(*entry)) for time, entry in variables["nacks"])
    times = dict.fromkeys(time for time, _ in pairs)
    buckets = tuple([Bucket(time, tuple([entry for at, entry in pairs if at == time])) for time in times])
    tree = tree_from_tla(variables["avl_tree"])
    return State(variables["now"], 0, variables["status"], buckets, variables["deadline"], (), (), tree)


def tree_from_tla(tree: Mapping[str, Any] | None) -> Tree:
    """Returns the tree for a tree of the twin."""
    if tree is None:
        return None
    return Node(tree["time"], tree["height"], tree_from_tla(tree["left"]), tree_from_tla(tree["right"]))


# ---- outlines, for the check of concurrent histories -----------------------------------------------------


def without_nacks(cfg: Config, s: State, _key: None = None) -> State:
    """Returns the outline of a state: its clocks and status, without pending nacks and message ids."""
    return s._replace(buckets=(), timer=None, retained_ids=(), chunked_messages=(), avl_tree=None)


def after_call(
    cfg: Config, s: State, _key: None, action: str, arguments: tuple[Any, ...], outcome: Any
) -> Iterator[State]:
    """Yields the outline after an action, unless the action cannot have this plain outcome.

    Clocks and status determine whether an action is refused, the delay of a nack, and the possible times of runs. No
    other part of an outcome is compared, because it depends on the pending nacks.
    """
    after, expected = negative_acks.step(cfg, s, action, arguments)
    try:
        if isinstance(expected, Nacked):
            is_possible = outcome == {**plain(expected), "timer_changed": outcome["timer_changed"]}
        elif isinstance(expected, Elapsed):
            is_possible = all(s.now <= each["at"] <= after.now for each in outcome["redeliveries"])
        elif expected is None and action == "run_timer_task":
            is_possible = outcome is None or outcome["at"] == s.now
        else:
            is_possible = outcome == plain(expected) or (action == "fail_redelivery" and expected is None)
    except (KeyError, TypeError):  # no outcome of this action
        return
    if is_possible:
        yield without_nacks(cfg, after)


# ---- corrupted states, which `check` must detect ------------------------------------------------------


def timer_is_missing(_cfg: Config, s: State) -> State | None:
    """Nacks are pending, and no timer is armed."""
    return s._replace(timer=None) if s.buckets and s.timer is not None else None


def timer_is_late(_cfg: Config, s: State) -> State | None:
    """The timer's deadline is after the first bucket."""
    if not s.buckets or s.timer is None:
        return None
    return s._replace(timer=max(s.buckets[0].time - s.wall_offset, s.now) + 1)


def timer_without_nacks(_cfg: Config, s: State) -> State | None:
    """No nack is pending, and a timer is armed."""
    return None if s.buckets or s.status != "open" else s._replace(timer=s.now + 5)


def id_without_nack(_cfg: Config, s: State) -> State:
    """An id is retained for an entry that is not pending."""
    return s._replace(retained_ids=(*s.retained_ids, MessageId(Position(9, 9), 0)))


def closed_with_nacks(_cfg: Config, s: State) -> State | None:
    """The tracker is closed, and nacks are pending."""
    return s._replace(status="closed", timer=None) if s.buckets else None


def bucket_is_empty(_cfg: Config, s: State) -> State | None:
    """The timer is armed for a bucket without entries."""
    if len(s.buckets) < 2 or s.timer is None or s.timer <= s.now:
        return None
    return s._replace(buckets=(Bucket(s.buckets[0].time, ()), *s.buckets[1:]))


CORRUPTED = (timer_is_missing, timer_is_late, timer_without_nacks, id_without_nack, closed_with_nacks, bucket_is_empty)

subject = Subject(
    negative_acks,
    NegativeAcks,
    invariants,
    domains={
        "entry": ENTRIES,
        "ack.entry": ENTRIES[:2],
        "redelivery_count": (None, 0, 1, 2, 3, 4),
        "message_id": MESSAGE_IDS,
        "last_chunk": (Position(1, 1), Position(1, 2), Position(2, 1)),
        "partition": (0, -1),
        "chunks": (
            (Position(1, 0), Position(1, 1)),
            (Position(1, 0), Position(1, 1), Position(1, 2)),
            (Position(2, 0), Position(2, 1)),
            (Position(2, 1),),
        ),
        "advance_time.by": durations,
        "advance_time.timer_lag": lags,
        "step_wall_clock.by": wall_clock_steps,
    },
    settings={
        "redelivery_delay_ms": (10, 3, 30, 0, 4),
        "precision_bits": (2, 0, 1, 3, 4),
        "backoff": BACKOFFS,
        "min_delay_ms": (1, 0, 5),
    },
    weights={
        "nack": 10,
        "ack": 0.3,
        "close": 0.1,
        "advance_time": 5,
        "run_timer_task": 0.5,
        "fail_redelivery": 0.3,
        "receive_chunks": 0.5,
        "step_wall_clock": 0.3,
    },
    swarms={
        "backlog": {"advance_time": 0.15, "close": 0.1, "run_timer_task": 0.2, "fail_redelivery": 0.2},
        "elapsing": {"advance_time": 4, "close": 0.2},
        "closing": {"close": 15},
        "chunked": {"receive_chunks": 6},
        "races": {"run_timer_task": 6, "fail_redelivery": 4, "step_wall_clock": 6},
    },
    largest={"by": duration_limit},
    abstract=coverage_key,
    measures={"pending": pending, "overdue": overdue, "reach": reach},
    scopes={"smoke": SMOKE, "ci": CI, "ids": IDS, "nightly": NIGHTLY},
    corrupt={each.__name__: each for each in CORRUPTED},
    coarse_models=CoarseModels(without_nacks, after_call),
    steps=128,
    tla="NegativeAcks",
    from_tla=from_tla,
)
