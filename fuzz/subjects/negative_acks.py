"""How to drive the tracker of negative acknowledgements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuzz.subject import Scope, Subject
from impl.negative_acks.tracker import NegativeAcks
from invariants import negative_acks as invariants
from model.negative_acks.delay import UNITS_OF
from model.negative_acks.ids import MessageId, Told
from model.negative_acks.machine import Config, Slot, State, delay_of, negative_acks, period
from model.negative_acks.tree import Node, Tree
from model.positions import Position

#: neighbours and ends in two ledgers, entry ids at the edges of 32 and 64 bits, and ids that no stored message has
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

#: ids of all kinds, of which some are kept
TOLD = (
    Told(),
    Told("plain", 0),
    Told("plain", 1, traced=True),
    Told("batch", 0, batch_index=3),
    Told("batch", -1, traced=True, batch_index=0),
    Told("topic", 2, traced=True),
    Told("chunk", 0, first_chunk=Position(1, 0)),
)


def grain(cfg: Config) -> int:
    """How long a slot is."""
    return (1 if cfg.precision_of == "units" else UNITS_OF[cfg.unit]) << cfg.precision_bits


def spans(cfg: Config, s: State) -> tuple[int, ...]:
    """Nothing, a little, to around the timer's deadline, to slots, and to the end of the slot that an id goes to.

    Nothing much longer than a delay or a slot: regular timers would run too often.
    """
    little = 1 if cfg.unit == "ms" else 7_000_001
    length, wait, clock = grain(cfg), delay_of(cfg, None) or 0, s.now + s.skew
    end = length - (clock + wait) % length
    found = [0, little, 3 * little, end - 1, end]
    if s.timer is not None:
        left = s.timer - s.now
        found += [left - 1, left, left + 1]
        if cfg.timer == "ticker":
            found.append(left + 2 * period(cfg))
        found += [slot.time - clock for slot in s.slots[:3]]
    regular = cfg.timer in ("idle_period", "every_nack", "ticker")
    most = 60 * (period(cfg) if regular else max(wait, length, 20 * UNITS_OF[cfg.unit]))
    if min(found) >= 0 and max(found) <= most:
        return tuple(found)
    return tuple([span for span in found if 0 <= span <= most])


#: Mostly none, so that runs are on time; or a little, a long one, and one with which no run comes.
LAGS = {unit: (0, 0, 0, 0, 1, 2 * by, 80 * by, 2 * 10**9 * by) for unit, by in UNITS_OF.items()}


def lags(cfg: Config, s: State) -> tuple[int, ...]:
    """How late runs are."""
    return LAGS[cfg.unit]


def jumps(cfg: Config, s: State) -> tuple[int, ...]:
    """A little, and over a slot, in both directions; back to the steady clock."""
    little, slot = UNITS_OF[cfg.unit], grain(cfg)
    return (little, -little, slot + little, -slot - little, -s.skew)


def kind_of_state(cfg: Config, s: State) -> tuple[object, ...]:
    """How many slots, entries and repetitions there are; where timer and first slot stand; what is kept."""
    entries = [entry for slot in s.slots for entry in slot.entries]
    clock = s.now + s.skew
    return (
        s.life,
        min(len(s.slots), 5),
        min(len(entries), 6),
        min(len(entries) - len(set(entries)), 2),
        s.timer is None or (s.timer > s.now) - (s.timer < s.now),
        bool(s.slots) and (s.slots[0].time > clock) - (s.slots[0].time < clock),
        min(len(s.kept), 3),
        min(len(s.chunks), 2),
        (s.skew > 0) - (s.skew < 0),
        len({entry.ledger for entry in entries}),
    )


# ---- bounds for the engines that visit every state -----------------------------------------------------


def pending(s: State) -> int:
    """How many entries the slots hold, each as often as it stands in one."""
    return sum(len(slot.entries) for slot in s.slots)


def overdue(s: State) -> int:
    """For how long the timer's deadline has passed."""
    return 0 if s.timer is None else max(s.now - s.timer, 0)


def reach(s: State) -> int:
    """How far from now a slot is, before or after."""
    return max((abs(slot.time - s.now - s.skew) for slot in s.slots), default=0)


#: Why the scopes are as they are; each scope adds what is its own.
WHY = {
    "redelivery_delay_ms": "three: longer than a slot, and no multiple of it",
    "precision_bits": "one: slots of two milliseconds, the shortest in which a time is at the start or not",
    "backoff": "a short and a long delay, so that a later nack can be due first",
    "least_delay_ms": "none: it would only be another delay",
    "entry": "two, which may share a slot or not; hides what a third does between them",
    "count": "an id, the first delivery and a later one",
    "told": "an id of no kind: what is kept of ids is in the scope of ids",
    "advance_time.by": "the least step; longer ones are several of it, with runs on time in between",
    "advance_time.lag": "on time, and so late that no run comes: its task then runs at any later time",
    "overdue": "longer than a slot; hides runs that come later than that",
    "pending": "entries in three or two slots each; hides more",
    "reach": "slots that began longer ago are due alike",
}

SMOKE = Scope(
    actions=("nack", "close", "advance_time", "timer_task_runs"),
    settings={"redelivery_delay_ms": 3, "precision_bits": 1, "backoff": (3, 8), "least_delay_ms": 0},
    domains={
        "entry": (Position(1, 0), Position(1, 1)),
        "count": (0, 1),
        "told": (Told(),),
        "advance_time.by": (1,),
        "advance_time.lag": (0, 9),
    },
    bounds={"pending": 6, "overdue": 3, "reach": 9},
    reasons=WHY
    | {
        "actions": "what fills and empties slots; hides faults and chunked messages",
        "count": "the first delivery and a later one; an id is like the first",
        "redelivery_delay_ms": "not used: there is a backoff",
    },
)

CI = Scope(
    actions=("nack", "ack", "close", "advance_time", "timer_task_runs", "redelivery_fails"),
    settings=dict(SMOKE.settings) | {"backoff": (2, 5)},
    domains=dict(SMOKE.domains)
    | {"entry": (Position(1, 0), Position(1, 1), Position(2, 0)), "ack.entry": (Position(1, 0),)},
    bounds={"pending": 6, "overdue": 3, "reach": 6},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "all but what concerns ids",
        "entry": "two in one ledger and one in another",
        "ack.entry": "one: nothing changes",
    },
)

IDS = Scope(
    actions=("nack", "remember_chunks", "advance_time"),
    settings=dict(SMOKE.settings) | {"backoff": (2,)},
    domains={
        "entry": (Position(1, 0), Position(1, 1)),
        "count": (0,),
        "told": (Told(), Told("plain", 0, traced=True), Told("chunk", 0, first_chunk=Position(1, 0))),
        "last": (Position(1, 1),),
        "partition": (0,),
        "pieces": ((Position(1, 0), Position(1, 1)),),
        "advance_time.by": (1,),
        "advance_time.lag": (0,),
    },
    bounds={"pending": 4},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "what concerns ids",
        "backoff": "one delay: times are in the other scopes",
        "count": "the first delivery",
        "told": "an id that is not kept, one that is traced, and that of a chunk",
        "last": "one chunked message, whose last entry is one of the two",
        "partition": "one: it is only told",
        "pieces": "two, the fewest that there are",
        "advance_time.lag": "every run is on time",
    },
)

NIGHTLY = Scope(
    actions=tuple(negative_acks.actions),
    settings=dict(SMOKE.settings) | {"backoff": (1, 3, 6)},
    domains=dict(CI.domains)
    | {
        "count": (None, 1, 2),
        "remember_chunks.last": (Position(1, 1),),
        "partition": (0,),
        "pieces": ((Position(1, 0), Position(1, 1)),),
        "wall_clock_jumps.by": (1, -3),
    },
    bounds={"pending": 6, "overdue": 3, "reach": 8},
    reasons=dict(CI.reasons)
    | {
        "actions": "all that there are",
        "backoff": "three delays, of which the shortest is shorter than a slot",
        "count": WHY["count"],
        "remember_chunks.last": IDS.reasons["last"],
        "partition": IDS.reasons["partition"],
        "pieces": IDS.reasons["pieces"],
        "wall_clock_jumps.by": "forward and back; the reference does not see it",
    },
)


# ---- the TLA+ twin ------------------------------------------------------------------------------------


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """A state of the TLA+ twin, in which slots are a set of pairs and nothing is kept of ids."""
    pairs = sorted((time, Position(*entry)) for time, entry in variables["pairs"])
    times = dict.fromkeys(time for time, _ in pairs)
    slots = tuple([Slot(time, tuple([entry for at, entry in pairs if at == time])) for time in times])
    now, life, tree = variables["now"], variables["life"], read_tree(variables["tree"])
    return State(now, 0, life, slots, variables["deadline"], (), (), tree)


def read_tree(tree: Mapping[str, Any] | None) -> Tree:
    """A tree of the twin."""
    if tree is None:
        return None
    return Node(tree["time"], tree["height"], read_tree(tree["left"]), read_tree(tree["right"]))


# ---- states that `check` must not let pass ------------------------------------------------------------


def no_timer(s: State) -> State | None:
    """Something is pending, and no timer is set."""
    return s._replace(timer=None) if s.slots and s.timer is not None else None


def a_late_timer(s: State) -> State | None:
    """The timer is set for later than the first slot."""
    return s._replace(timer=max(s.slots[0].time - s.skew, s.now) + 1) if s.slots and s.timer is not None else None


def a_timer_for_nothing(s: State) -> State | None:
    """Nothing is pending, and a timer is set."""
    return None if s.slots or s.life != "open" else s._replace(timer=s.now + 5)


def an_id_too_many(s: State) -> State:
    """An id is kept of an entry that was never nacked."""
    return s._replace(kept=(*s.kept, MessageId(Position(9, 9), 0)))


def pending_after_close(s: State) -> State | None:
    """The tracker is closed and still holds something."""
    return s._replace(life="closed", timer=None) if s.slots else None


def a_slot_without_entries(s: State) -> State | None:
    """The timer is set for a slot with nothing in it."""
    if len(s.slots) < 2 or s.timer is None or s.timer <= s.now:
        return None
    return s._replace(slots=(Slot(s.slots[0].time, ()), *s.slots[1:]))


subject = Subject(
    negative_acks,
    NegativeAcks,
    invariants,
    domains={
        "entry": ENTRIES,
        "ack.entry": ENTRIES[:2],
        "count": (None, 0, 1, 2, 3, 4),
        "told": TOLD,
        "last": (Position(1, 1), Position(1, 2), Position(2, 1)),
        "partition": (0, -1),
        "pieces": (
            (Position(1, 0), Position(1, 1)),
            (Position(1, 0), Position(1, 1), Position(1, 2)),
            (Position(2, 0), Position(2, 1)),
            (Position(2, 1),),
        ),
        "advance_time.by": spans,
        "advance_time.lag": lags,
        "wall_clock_jumps.by": jumps,
    },
    settings={
        "redelivery_delay_ms": (10, 3, 30, 0, 4),
        "precision_bits": (2, 0, 1, 3, 4),
        "backoff": ((), (4, 9, 1, 30), (2, 5), (20, 10, 5, 2), (200, 90, 300, 150, 250), (0, 3, -2, 7)),
        "least_delay_ms": (1, 0, 5),
    },
    weights={
        "nack": 10,
        "ack": 0.3,
        "close": 0.1,
        "advance_time": 5,
        "timer_task_runs": 0.5,
        "redelivery_fails": 0.3,
        "remember_chunks": 0.5,
        "wall_clock_jumps": 0.3,
    },
    swarms={
        "crowd": {"advance_time": 0.15, "close": 0.1, "timer_task_runs": 0.2, "redelivery_fails": 0.2},
        "patience": {"advance_time": 4, "close": 0.2},
        "closing": {"close": 15},
        "pieces": {"remember_chunks": 6},
        "races": {"timer_task_runs": 6, "redelivery_fails": 4, "wall_clock_jumps": 6},
    },
    abstract=kind_of_state,
    measures={"pending": pending, "overdue": overdue, "reach": reach},
    scopes={"smoke": SMOKE, "ci": CI, "ids": IDS, "nightly": NIGHTLY},
    corrupt={
        "no_timer": no_timer,
        "a_late_timer": a_late_timer,
        "a_timer_for_nothing": a_timer_for_nothing,
        "an_id_too_many": an_id_too_many,
        "pending_after_close": pending_after_close,
        "a_slot_without_entries": a_slot_without_entries,
    },
    steps=128,
    tla="NegativeAcks",
    from_tla=from_tla,
)
