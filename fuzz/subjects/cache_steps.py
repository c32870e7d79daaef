"""How to drive the threads of the range caches, step by step."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from fuzz.subject import Domain, Scope, Subject
from fuzz.tlc.values import as_model
from impl.cache_steps import CacheThreads
from invariants import cache_steps as invariants
from invariants.cache_steps import at_rest
from model.cache_steps.machine import cache_steps
from model.cache_steps.state import (
    NO_INSERT,
    NO_LOOKUP,
    NO_REMOVAL,
    Config,
    State,
    Wrapper,
)

#: For each step of an inserting, removing or reading thread: the field of the state that has the threads, the argument
#: that names the thread, and the program counters at which the step is enabled.
STEPS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "insert": ("inserts", "inserter", ("idle",)),
    "publish": ("inserts", "inserter", ("offer", "put")),
    "count_in_cache": ("inserts", "inserter", ("count",)),
    "count_in_total": ("inserts", "inserter", ("total",)),
    "schedule": ("inserts", "inserter", ("schedule", "retry")),
    "remove": ("removals", "remover", ("idle",)),
    "find_next": ("removals", "remover", ("find",)),
    "take": ("removals", "remover", ("take",)),
    "unmap": ("removals", "remover", ("unmap",)),
    "mark_removed": ("removals", "remover", ("mark_removed",)),
    "subtract": ("removals", "remover", ("subtract",)),
    "report": ("removals", "remover", ("report",)),
    "find": ("lookups", "reader", ("idle",)),
    "compare": ("lookups", "reader", ("compare",)),
    "set_accessed": ("lookups", "reader", ("set_accessed",)),
    "retain": ("lookups", "reader", ("retain",)),
}
#: For each program counter of the evicting thread, the steps that it enables: at `visit`, that of the current pass.
EVICTING: Mapping[str, tuple[str, ...]] = {
    "idle": ("begin_eviction", "begin_periodic_eviction"),
    "measure": ("measure",),
    "peek": ("peek",),
    "visit": ("visit_for_size", "visit_for_time"),
    "requeue": ("requeue",),
    "unmap": ("unmap_evicted",),
    "mark_removed": ("mark_evicted_removed",),
    "subtract": ("subtract_evicted",),
    "pop": ("pop",),
    "recycle": ("recycle",),
    "report": ("report_evicted",),
    "end": ("end_eviction",),
}
#: Weight factor of the evicting thread's steps that its program counter does not enable: they are refused.
FACTOR_OF_REFUSED = 0.02


def enabled_threads(threads: str, counters: tuple[str, ...]) -> Domain:
    """Returns a domain: the threads in a field of the state that are at one of the program counters."""
    field = State._fields.index(threads)

    def domain(cfg: Config, s: Any) -> tuple[int, ...]:
        return tuple([n for n, thread in enumerate(s[field]) if thread[0] in counters])  # thread[0] is `at`

    return domain


def enabled_threads_and_first(threads: str, counters: tuple[str, ...]) -> Domain:
    """Returns a domain: the enabled threads, as `enabled_threads`; if there are some, also thread 0.

    The step of thread 0 is refused if thread 0 is not enabled.
    """
    field = State._fields.index(threads)

    def domain(cfg: Config, s: Any) -> tuple[int, ...]:
        enabled = [n for n, thread in enumerate(s[field]) if thread[0] in counters]
        if enabled and enabled[0]:
            enabled.append(0)
        return tuple(enabled)

    return domain


def free_wrappers(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns the wrappers in the pool."""
    return tuple([n for n, w in enumerate(s.wrappers) if w.pooled])


def free_wrappers_and_one_in_use(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns the wrappers in the pool; if there are some, also the head of the queue, which is in use."""
    free = free_wrappers(cfg, s)
    return (*free, s.queue[0]) if free and s.queue else free


def situation(cfg: Config, s: State) -> str:
    """Returns the evicting thread's program counter, and which of inserts, removals and lookups are in progress."""
    return SITUATIONS[
        s.eviction.at,
        s.inserts.count(NO_INSERT) < len(s.inserts),
        s.removals.count(NO_REMOVAL) < len(s.removals),
        s.lookups.count(NO_LOOKUP) < len(s.lookups),
    ]


def factors(at: str, busy: Mapping[str, bool]) -> dict[str, float]:
    """Returns the weight factors for a program counter of the evicting thread, and for the kinds of busy threads.

    Steps of the evicting thread at other program counters are rare. If no thread of a kind is busy, the steps that
    continue an operation of this kind are never chosen.
    """
    elsewhere = {step: FACTOR_OF_REFUSED for other, steps in EVICTING.items() if other != at for step in steps}
    of_idle_threads = {
        step: 0.0 for step, (threads, _, counters) in STEPS.items() if not busy[threads] and counters != ("idle",)
    }
    return elsewhere | of_idle_threads


#: The evicting thread's program counter, and whether inserts, removals and lookups are in progress -> the situation.
SITUATIONS: dict[tuple[str, bool, bool, bool], str] = {}
#: situation -> its weight factors
IN_SITUATION: dict[str, dict[str, float]] = {}
for each in itertools.product(EVICTING, (False, True), (False, True), (False, True)):
    busy_threads = dict(zip(("inserts", "removals", "lookups"), each[1:], strict=True))
    SITUATIONS[each] = " ".join([each[0], *[threads for threads, some in busy_threads.items() if some]])
    IN_SITUATION[SITUATIONS[each]] = factors(each[0], busy_threads)


def coverage_key(cfg: Config, s: State) -> tuple[object, ...]:
    """Returns the program counters of all threads except lookups, and facts about queue, total and eviction tasks."""
    keys = [s.wrappers[n].key for n in s.queue]
    return (
        s.eviction.at,
        s.eviction.periodic,
        *sorted([i.at for i in s.inserts]),
        *sorted([r.at for r in s.removals]),
        None in keys,
        len(keys),
        s.total < 0,
        s.eviction_in_progress,
        s.scheduled,
    )


# ---- measures that scopes bound -----------------------------------------------------------------------


def busy(s: State) -> int:
    """Returns the number of threads that are not idle."""
    threads: tuple[Any, ...] = (*s.inserts, *s.removals, s.eviction, *s.lookups)
    return sum([thread.at != "idle" for thread in threads])


def most_bytes(s: State) -> int:
    """Returns the largest absolute value of all numbers of bytes."""
    return max(abs(s.total), s.eviction.freed, *map(abs, s.sizes), *[r.removed for r in s.removals])


def tasks(s: State) -> int:
    """Returns the number of scheduled eviction tasks."""
    return s.scheduled


def slots(s: State) -> int:
    """Returns the number of slots of the removal queue."""
    return len(s.queue)


#: Domains of the scopes: only enabled threads take a step.
ENABLED = {
    f"{step}.{argument}": enabled_threads(threads, counters) for step, (threads, argument, counters) in STEPS.items()
}
ENABLED["insert.wrapper"] = free_wrappers

#: Reasons for the choices that several scopes share.
REASONS = dict.fromkeys(ENABLED, "enabled threads; the refusal of others is left to fuzzing") | {
    "caches": "one: the total of several caches is left to fuzzing",
    "trigger_bytes": "zero: every counted insert exceeds the trigger and may schedule an eviction",
    "target_bytes": "zero: a size pass frees all bytes that were counted when it began",
    "extend_ttl_of_recently_accessed": "on: accessed entries are requeued",
    "pool": "two wrappers: excludes defects that need three wrappers in the queue",
    "inserters": "two: they race for a position and for `evictionInProgress`",
    "removers": "one: excludes two concurrent removals",
    "cache": "the only one",
    "busy": "two operations in progress: excludes races of three threads",
    "tasks": "two: the reference schedules at most one; some other profile schedules any number",
    "slots": "one more than wrappers: the reference queues a wrapper at most once, some other profile twice",
    "expired": "any entry may be expired or not",
}
ALL = tuple(cache_steps.actions)

SMOKE = Scope(
    actions=tuple(name for name in ALL if name not in ("begin_periodic_eviction", "over_release")),
    settings={
        "caches": 1,
        "positions": 1,
        "pool": 2,
        "inserters": 2,
        "removers": 1,
        "readers": 1,
        "trigger_bytes": 0,
        "target_bytes": 0,
        "extend_ttl_of_recently_accessed": True,
    },
    domains=ENABLED | {"cache": (0,), "position": (0,), "last": (0,), "expired": (True, False)},
    bounds={"busy": 2, "bytes": 2, "tasks": 2, "slots": 3},
    reasons=REASONS
    | {
        "actions": "excludes the periodic task, and values that an extra release deallocates",
        "positions": "one: excludes a wrapper that is reused for another position",
        "readers": "one: excludes two concurrent lookups",
        "position": "the only one",
        "last": "the only one",
        "bytes": "two entries of one byte: excludes a pass that frees more than was counted when it began",
    },
)

CI = SMOKE.changed(
    actions=tuple(name for name in ALL if name != "over_release"),
    settings={"positions": 2, "readers": 0},
    domains={"position": (0, 1), "last": (0, 1)},
    bounds={"bytes": 3},
    reasons={
        "actions": "excludes values that an extra release deallocates",
        "positions": "two, of one and two bytes",
        "readers": "none: lookups are in the other scopes",
        "position": "both, in any order",
        "last": "up to either position",
        "bytes": "entries of one and two bytes: excludes a time pass that frees more than was counted when it began",
    },
)

NIGHTLY = Scope(
    actions=ALL,
    settings=dict(CI.settings) | {"readers": 1},
    domains=CI.domains,
    bounds=CI.bounds,
    reasons=dict(CI.reasons)
    | {
        "actions": "all actions of the model",
        "readers": "one: excludes two concurrent lookups",
    },
)

CROWD = Scope(
    actions=SMOKE.actions,
    settings=dict(CI.settings) | {"pool": 3},
    domains=CI.domains,
    bounds=dict(CI.bounds) | {"busy": 4, "slots": 4},
    reasons=dict(CI.reasons)
    | {
        "actions": "excludes the periodic task, and values that an extra release deallocates",
        "pool": "three wrappers, one more than positions: the wrapper of a removed entry can stay in the queue",
        "busy": "all threads: two inserts, a removal and an eviction",
    },
)

LOOKUPS = Scope(
    actions=SMOKE.actions,
    settings=dict(CI.settings) | {"inserters": 1, "readers": 1},
    domains=CI.domains,
    bounds=dict(CI.bounds) | {"busy": 3},
    reasons=dict(CI.reasons)
    | {
        "actions": "excludes the periodic task, and values that an extra release deallocates",
        "inserters": "one: races of inserts are in the other scopes",
        "readers": "one: excludes two concurrent lookups",
        "busy": "three of the four threads at a time",
    },
)


# ---- the TLA+ twin ------------------------------------------------------------------------------------


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """Returns the state for the twin's variables."""
    found: State = as_model(State, variables)
    return found


# ---- corrupted states that `check` must reject ------------------------------------------------------------


def size_too_large(_cfg: Config, s: State) -> State | None:
    """All threads are idle, and the size of the first cache is one byte too large."""
    return s._replace(sizes=(s.sizes[0] + 1, *s.sizes[1:])) if at_rest(s) else None


def total_too_large(_cfg: Config, s: State) -> State | None:
    """All threads are idle, and the total is one byte too large."""
    return s._replace(total=s.total + 1) if at_rest(s) else None


def wrapper_queued_twice(_cfg: Config, s: State) -> State | None:
    """The head of the removal queue is in the queue twice."""
    return s._replace(queue=(*s.queue, s.queue[0])) if s.queue else None


def queued_wrapper_is_pooled(_cfg: Config, s: State) -> State | None:
    """The head of the removal queue is also in the pool."""
    if not s.queue:
        return None
    wrappers = list(s.wrappers)
    wrappers[s.queue[0]] = Wrapper(None, False, False, True)
    return s._replace(wrappers=tuple(wrappers))


def wrapper_mapped_at_another_position(_cfg: Config, s: State) -> State | None:
    """A wrapper is mapped at a key that is not its own."""
    key = next((key for key, n in enumerate(s.mapped) if n is not None), None)
    if key is None or len(s.mapped) == 1:
        return None
    return s._replace(mapped=(*s.mapped[1:], s.mapped[0]))


def lock_has_two_holders(_cfg: Config, s: State) -> State | None:
    """All inserting threads are at the same step with the same wrapper, whose lock only one thread can hold."""
    holder = next((i for i in s.inserts if i.wrapper is not None), None)
    if holder is None or s.inserts.count(holder) == len(s.inserts):
        return None
    return s._replace(inserts=(holder,) * len(s.inserts))


subject = Subject(
    cache_steps,
    CacheThreads,
    invariants,
    domains={
        **{
            f"{step}.{argument}": enabled_threads_and_first(threads, counters)
            for step, (threads, argument, counters) in STEPS.items()
        },
        "insert.wrapper": free_wrappers_and_one_in_use,
        "cache": (0, 1),
        "position": (0, 1, 2),
        "last": (0, 1, 2),
        "expired": (True, False),
    },
    settings={
        "caches": (1, 2),
        "positions": (2, 3),
        "pool": (3, 2),
        "inserters": (2, 3),
        "removers": (1, 2),
        "readers": (1, 2),
        "trigger_bytes": (0, 2),
        "target_bytes": (1, 0),
        "extend_ttl_of_recently_accessed": (True, False),
    },
    weights={"insert": 0.5, "remove": 0.2, "find": 0.7, "begin_periodic_eviction": 0.2, "over_release": 0.02},
    situation=situation,
    in_situation=IN_SITUATION,
    swarms={
        "calm": {"insert": 0.3, "remove": 0.2, "find": 0.2, "begin_periodic_eviction": 0.3},
        "readers": {"find": 4, "remove": 0.1},
        "writers": {"find": 0, "insert": 3, "remove": 0.1},
        "removers": {"remove": 5, "find": 0.2},
        "late": {"find": 3, "set_accessed": 0.1, "retain": 0.2, "take": 0.2, "remove": 0.3},
    },
    abstract=coverage_key,
    measures={"busy": busy, "bytes": most_bytes, "tasks": tasks, "slots": slots},
    scopes={"smoke": SMOKE, "ci": CI, "nightly": NIGHTLY, "crowd": CROWD, "lookups": LOOKUPS},
    corrupt={
        "size_too_large": size_too_large,
        "total_too_large": total_too_large,
        "wrapper_queued_twice": wrapper_queued_twice,
        "queued_wrapper_is_pooled": queued_wrapper_is_pooled,
        "wrapper_mapped_at_another_position": wrapper_mapped_at_another_position,
        "lock_has_two_holders": lock_has_two_holders,
    },
    tla="CacheSteps",
    from_tla=from_tla,
)
