"""Guarantees of the range caches between the steps of concurrent threads (`model/cache_steps/machine.py`).

A wrapper is live if it has a key and is not in the pool. A lookup is late if it has the number of a wrapper that was
recycled since. The program counter of a thread (`at`) stands for the step that the thread takes next.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

from invariants.properties import Event, always, eventually, once_per_state, sometimes
from model.cache_steps.machine import LOCKED, cache_steps
from model.cache_steps.state import REFERENCE_RULES, Config, State, Wrapper
from model.machine import Refused

#: The steps of threads, except those that begin an operation. `begin_eviction` is here: its task is already scheduled.
CONTINUING_STEPS = (
    "publish",
    "count_in_cache",
    "count_in_total",
    "schedule",
    "find_next",
    "take",
    "unmap",
    "mark_removed",
    "subtract",
    "report",
    "begin_eviction",
    "measure",
    "peek",
    "visit_for_size",
    "visit_for_time",
    "requeue",
    "unmap_evicted",
    "mark_evicted_removed",
    "subtract_evicted",
    "pop",
    "recycle",
    "report_evicted",
    "end_eviction",
    "compare",
    "set_accessed",
    "retain",
)
VISITS = ("visit_for_size", "visit_for_time")


@once_per_state
def at_rest(s: State) -> bool:
    """Whether every thread is idle; eviction tasks may be scheduled."""
    return (
        s.eviction.at == "idle"
        and all(i.at == "idle" for i in s.inserts)
        and all(r.at == "idle" for r in s.removals)
        and all(k.at == "idle" for k in s.lookups)
    )


@once_per_state
def locked_wrappers(s: State) -> list[int]:
    """Returns the wrapper of each lock that a thread holds, except the lock that an eviction holds at `unmap`."""
    held = [i.wrapper for i in s.inserts] + [r.wrapper for r in s.removals if r.at in ("unmap", "mark_removed")]
    held.append(s.eviction.wrapper if s.eviction.at in ("mark_removed", "subtract") else None)
    return [n for n in held if n is not None]


def is_accepted(event: Event) -> bool:
    """Whether the step was accepted; otherwise it was refused."""
    return not isinstance(event.outcome, Refused)


# ---- states -------------------------------------------------------------------------------------------


@always(cache_steps)
def cache_size_equals_sum_of_entry_sizes(cfg: Config, s: State) -> bool:
    """While every thread is idle, the size of each cache is the sum of the bytes of its entries."""
    if not at_rest(s):
        return True
    sums = [0] * cfg.caches
    for w in s.wrappers:
        if w.key is not None and not w.pooled:
            cache, position = divmod(w.key, cfg.positions)
            sums[cache] += position + 1
    return tuple(sums) == s.sizes


@always(cache_steps)
def total_equals_sum_of_cache_sizes(cfg: Config, s: State) -> bool:
    """While every thread is idle, the total size is the sum of the sizes of all caches."""
    return s.total == sum(s.sizes) or not at_rest(s)


@always(cache_steps)
def cache_size_is_nonnegative(cfg: Config, s: State) -> bool:
    """The size of a cache is never negative: an insert locks its wrapper until the entry's bytes are added."""
    return min(s.sizes) >= 0


@always(cache_steps)
def mapped_wrapper_has_exactly_one_slot(cfg: Config, s: State) -> bool:
    """A wrapper is at most once in the queue; a wrapper in the map that is not locked is also in the queue."""
    slots = set(s.queue)
    return len(slots) == len(s.queue) and all(
        n in slots for n in s.mapped if n is not None and n not in locked_wrappers(s)
    )


@always(cache_steps)
def pooled_wrapper_is_unreferenced(cfg: Config, s: State) -> bool:
    """A wrapper in the pool is neither in the queue nor in the map, and has no key. A late lookup may refer to it."""
    used = {*s.queue, *s.mapped}
    return not any(w.pooled and (w.key is not None or n in used) for n, w in enumerate(s.wrappers))


@always(cache_steps)
def wrapper_is_pooled_queued_or_held(cfg: Config, s: State) -> bool:
    """A wrapper is in the pool, in the queue, or held by the thread that inserts or recycles it."""
    queued_or_held = {*s.queue, s.eviction.wrapper, *[i.wrapper for i in s.inserts]}
    return all(w.pooled or n in queued_or_held for n, w in enumerate(s.wrappers))


@always(cache_steps)
def mapped_wrapper_has_its_key(cfg: Config, s: State) -> bool:
    """A wrapper in the map has the position (key) under which the map has the wrapper."""
    return all(n is None or s.wrappers[n].key == key for key, n in enumerate(s.mapped))


@always(cache_steps)
def live_entry_is_mapped(cfg: Config, s: State) -> bool:
    """A wrapper that has a key is in the map, unless it is locked or the value of its entry is deallocated."""
    live = [n for n, w in enumerate(s.wrappers) if w.key is not None and not w.pooled and not w.released]
    # `or 0` is for the type checker: a live wrapper has a key
    return all(s.mapped[s.wrappers[n].key or 0] == n or n in locked_wrappers(s) for n in live)


@always(cache_steps)
def lock_has_at_most_one_holder(cfg: Config, s: State) -> bool:
    """At most one thread holds the lock of a wrapper. The lock that an eviction holds at `unmap` is not checked."""
    return len(set(locked_wrappers(s))) == len(locked_wrappers(s))


@always(cache_steps)
def eviction_removes_checked_head(cfg: Config, s: State) -> bool:
    """An eviction removes the entry that it has checked: its wrapper is still the head of the queue."""
    return s.eviction.at not in ("mark_removed", "subtract") or s.queue[:1] == (s.eviction.wrapper,)


@always(cache_steps)
def at_most_one_eviction_task(cfg: Config, s: State) -> bool:
    """At most one eviction task that an insert scheduled is pending or running."""
    return s.scheduled + (s.eviction.at != "idle" and not s.eviction.periodic) <= 1


@always(cache_steps)
def eviction_is_in_progress_while_task_exists(cfg: Config, s: State) -> bool:
    """`evictionInProgress` is set while an eviction task that an insert scheduled is pending or running."""
    return s.eviction_in_progress or (not s.scheduled and (s.eviction.at == "idle" or s.eviction.periodic))


# ---- steps --------------------------------------------------------------------------------------------


@always(cache_steps, on=("mark_removed", "mark_evicted_removed"))
def entry_is_counted_by_one_remover(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A removal or eviction subtracts the bytes of an entry only if the wrapper still has the entry's position.

    The same step clears the key (`wrapper_changes_only_by_its_steps`), so no other thread counts the entry.
    """
    if not is_accepted(event):
        return True
    if event.name == "mark_evicted_removed":
        e = before.eviction
        return e.wrapper is None or not event.outcome or before.wrappers[e.wrapper].key == e.key
    was, now = before.removals[event.arguments["remover"]], after.removals[event.arguments["remover"]]
    return was.wrapper is None or now.removed == was.removed or before.wrappers[was.wrapper].key == was.key


@always(cache_steps, on=("retain",))
def lookup_returns_requested_position_only(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup returns the entry at the requested position or none, also if the wrapper was reused meanwhile."""
    requested = before.lookups[event.arguments["reader"]].key
    return not is_accepted(event) or event.outcome in (None, requested)


@always(cache_steps, on=("recycle",))
def recycled_wrapper_is_cleared(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A wrapper that goes back to the pool has no key, and its `accessed` and `released` are false."""
    if not is_accepted(event) or before.eviction.wrapper is None:
        return True
    w = after.wrappers[before.eviction.wrapper]
    return w.key is None and not w.accessed and not w.released


@always(cache_steps, on=("find_next",))
def removal_visits_every_entry_of_its_range(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A removal visits the first mapped position in the rest of its range next; if there is none, it visits no more."""
    if not is_accepted(event):
        return True
    r = before.removals[event.arguments["remover"]]
    assert r.key is not None, "set by remove"
    assert r.last is not None, "set by remove"
    ahead = [key for key in range(r.key, r.last + 1) if before.mapped[key] is not None]
    return bool(event.outcome == (ahead[0] if ahead else None))


# ---- the program of the threads -----------------------------------------------------------------------

#: Step -> the program counters at which a thread takes the step, and the program counters that can follow.
PROGRAM = {
    "insert": ({"idle"}, {"offer", "put", "idle"}),
    "publish": ({"offer", "put"}, {"count", "offer", "idle"}),
    "count_in_cache": ({"count"}, {"total"}),
    "count_in_total": ({"total"}, {"schedule", "idle"}),
    "schedule": ({"schedule", "retry"}, {"idle", "retry", "schedule"}),
    "remove": ({"idle"}, {"find"}),
    "find_next": ({"find"}, {"take", "subtract", "idle"}),
    "take": ({"take"}, {"unmap", "find"}),
    "unmap": ({"unmap"}, {"mark_removed"}),
    "mark_removed": ({"mark_removed"}, {"find"}),
    "subtract": ({"subtract"}, {"report", "idle"}),
    "report": ({"report"}, {"idle"}),
    "begin_eviction": ({"idle"}, {"measure"}),
    "begin_periodic_eviction": ({"idle"}, {"peek"}),
    "measure": ({"measure"}, {"peek", "end"}),
    "peek": ({"peek"}, {"visit", "report", "measure", "end"}),
    "visit_for_size": ({"visit"}, {"pop", "report", "end", "requeue", "unmap"}),
    "visit_for_time": ({"visit"}, {"pop", "report", "measure", "requeue", "unmap"}),
    "requeue": ({"requeue"}, {"peek"}),
    "unmap_evicted": ({"unmap"}, {"mark_removed", "pop"}),
    "mark_evicted_removed": ({"mark_removed"}, {"subtract", "pop"}),
    "subtract_evicted": ({"subtract"}, {"pop"}),
    "pop": ({"pop"}, {"recycle"}),
    "recycle": ({"recycle"}, {"peek"}),
    "report_evicted": ({"report"}, {"measure", "end"}),
    "end_eviction": ({"end"}, {"idle"}),
    "find": ({"idle"}, {"compare", "idle"}),
    "compare": ({"compare"}, {"set_accessed", "idle"}),
    "set_accessed": ({"set_accessed"}, {"retain"}),
    "retain": ({"retain"}, {"idle"}),
}
#: Argument that is the number of a thread -> field of the state with these threads.
ROLES = {"inserter": "inserts", "remover": "removals", "reader": "lookups"}
#: Values of the fields after `at` of an idle thread, by the arguments in `ROLES`; "" stands for the evicting thread.
IDLE = {
    "inserter": (None, None),
    "remover": (None, None, None, 0, 0),
    "reader": (None, None),
    "": (False, None, None, 0, 0),
}


@functools.cache
def impossible_steps(role: str, number: int, at: str) -> list[tuple[Callable[..., Any], tuple[int, ...]]]:
    """Returns the steps that a thread cannot take at a program counter, each with arguments.

    `role` is the name of the argument with the thread's number; it is empty for the evicting thread. All other
    arguments are 0.
    """
    impossible = []
    for name, (counters, _) in PROGRAM.items():
        action = cache_steps.actions[name]
        if at not in counters and next((each for each in action.names if each in ROLES), "") == role:
            impossible.append((action.run, tuple(number if each in ROLES else 0 for each in action.names)))
    return impossible


def thread_of(s: State, event: Event) -> Any:
    """Returns the thread that takes a step: the evicting thread, unless an argument is the number of a thread."""
    for role, threads in ROLES.items():
        if role in event.arguments:
            return getattr(s, threads)[event.arguments[role]]
    return s.eviction


def named_key(cfg: Config, event: Event) -> int:
    """Returns the key of the cache and position that are arguments of a step."""
    return int(event.arguments["cache"] * cfg.positions + event.arguments["position"])


def bytes_at(cfg: Config, key: int | None) -> int:
    """Returns the bytes of the entry at a key; 0 for None."""
    return 0 if key is None else divmod(key, cfg.positions)[1] + 1


def replaced(items: tuple[Any, ...], index: int | None, item: Any) -> tuple[Any, ...]:
    """Returns the items with `item` at an index; unchanged if the index is None."""
    return tuple(item if i == index else each for i, each in enumerate(items))


def is_locked(cfg: Config, s: State, wrapper: int) -> bool:
    """Whether a thread holds the lock of a wrapper, also an eviction at `unmap`."""
    checked = s.eviction.wrapper if s.eviction.at == "unmap" and cfg.eviction_unmaps == "checked" else None
    return wrapper in locked_wrappers(s) or wrapper == checked


@always(cache_steps)
def step_is_refused_exactly_if_it_cannot_happen(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A step is refused if and only if it cannot happen in the state.

    A step cannot happen if its thread is at another step, or if another thread holds the lock that the step needs. An
    insert needs a pooled wrapper, `begin_eviction` a scheduled task, and `over_release` a value to deallocate.
    """
    if event.name == "over_release":
        n = before.mapped[named_key(cfg, event)]
        return is_accepted(event) == (n is not None and not before.wrappers[n].released)
    t = thread_of(before, event)
    possible = t.at in PROGRAM[event.name][0]
    wrapper = None  # the wrapper whose lock the step needs
    if event.name == "insert":
        wrapper = event.arguments["wrapper"]
        possible = possible and before.wrappers[wrapper].pooled
    elif event.name in VISITS:
        possible = possible and (t.goal is None) == (event.name == "visit_for_time")
    elif event.name == "begin_eviction":
        possible = possible and before.scheduled > 0
    if possible and event.name in ("take", "compare", *VISITS):
        wrapper = t.wrapper
    elif possible and event.name == "unmap_evicted" and cfg.eviction_unmaps == "mapped":
        wrapper = t.wrapper if before.mapped[t.key] is None else before.mapped[t.key]
    return is_accepted(event) == (possible and (wrapper is None or not is_locked(cfg, before, wrapper)))


@always(cache_steps)
def thread_follows_its_program(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A step moves its own thread to the next step of the thread's operation, and moves no other thread.

    A pass that freed bytes reports them. After that, a time pass runs the size check, and a size pass ends its task. A
    thread can take only the steps that `PROGRAM` has for its program counter. An idle thread keeps nothing (`IDLE`).
    """
    if not is_accepted(event) or event.name == "over_release":
        return (before.inserts, before.removals, before.eviction, before.lookups) == (
            (after.inserts, after.removals, after.eviction, after.lookups)
        )
    was, now = thread_of(before, event), thread_of(after, event)
    threads = [(*s.inserts, *s.removals, *s.lookups, s.eviction) for s in (before, after)]
    moved = sum(a is not b and a != b for a, b in zip(*threads, strict=True))
    if now.at not in PROGRAM[event.name][1] or moved != (was != now):  # no thread but this one may have moved
        return False
    role = next((each for each in event.arguments if each in ROLES), "")
    impossible = impossible_steps(role, event.arguments.get(role, 0), now.at)
    if now.at == "idle" and now[1:] != IDLE[role]:
        return False
    if not all(isinstance(run(cfg, after, *arguments)[1], Refused) for run, arguments in impossible):
        return False
    ends_pass = (
        (event.name == "peek" and now.at != "visit") or event.outcome == "STOP" or event.name == "report_evicted"
    )
    if ends_pass:
        # freed bytes are reported first; then a time pass (no goal) measures the total, and a size pass ends the task
        follows = "report" if was.freed and event.name != "report_evicted" else "measure" if was.goal is None else "end"
        return bool(now.at == follows and (now.at == "report" or (now.goal, now.freed) == (0, 0)))
    return True


# ---- shared structures --------------------------------------------------------------------------------


@always(cache_steps, given=lambda cfg: all(getattr(cfg, name) == right for name, right in REFERENCE_RULES.items()))
def sizes_and_total_lack_only_what_threads_hold(cfg: Config, s: State) -> bool:
    """The sizes are exact, except for bytes that a thread has still to add, subtract or report."""
    sizes = [0] * cfg.caches
    not_in_total = -s.eviction.freed  # bytes that the sizes include and the total does not
    for key, sign in [
        *[(w.key, 1) for w in s.wrappers if not w.pooled],
        *[(i.key, -1) for i in s.inserts if i.at in ("offer", "count")],  # not counted yet
        (s.eviction.key if s.eviction.at == "subtract" else None, 1),  # marked as removed, not subtracted yet
    ]:
        if key is not None:
            sizes[key // cfg.positions] += sign * bytes_at(cfg, key)
    for r in s.removals:
        if r.last is not None:  # not subtracted yet
            sizes[r.last // cfg.positions] += r.removed
        not_in_total -= r.removed if r.at == "report" else 0
    not_in_total += sum(bytes_at(cfg, i.key) for i in s.inserts if i.at == "total")
    if any(r.size_at_start for r in s.removals):  # the reference rules do not use this field
        return False
    return tuple(sizes) == s.sizes and s.total + not_in_total == sum(s.sizes)


@always(cache_steps)
def queue_changes_only_at_its_ends(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The queue changes only at its ends: wrappers are appended, moved from head to tail, or dropped from the head."""
    queue = before.queue
    if is_accepted(event):
        if event.name == "requeue":
            queue = (*queue[1:], queue[0])
        elif event.name == "pop":
            queue = queue[1:]
        elif event.name == "publish" and thread_of(before, event).at == "offer":
            queue = (*queue, thread_of(before, event).wrapper)
        elif event.name == "insert" and cfg.published_first == "queue":
            queue = (*queue, event.arguments["wrapper"])
    return after.queue == queue


@always(cache_steps)
def map_changes_only_for_the_position_of_a_thread(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Only an insert puts a wrapper into the map, at a free position; only a removal or eviction takes it out.

    With `clears_in_bulk`, a removal unmaps all wrappers of its range when it subtracts their bytes.
    """
    mapped, t = before.mapped, thread_of(before, event)
    if event.name in ("unmap", "unmap_evicted") and is_accepted(event):
        held = thread_of(after, event).wrapper  # `after`: with `eviction_unmaps="mapped"`, the step finds the wrapper
        mapped = replaced(mapped, t.key if mapped[t.key] == held else None, None)
    elif event.name == "insert" and event.outcome is True and cfg.published_first == "map" and cfg.put_is_atomic:
        mapped = replaced(mapped, named_key(cfg, event), event.arguments["wrapper"])
    elif event.name == "publish" and is_accepted(event) and t.at == "put" and mapped[t.key] is None:
        mapped = replaced(mapped, t.key, t.wrapper)
    elif event.name == "subtract" and is_accepted(event) and cfg.clears_in_bulk:
        first = t.last - t.last % cfg.positions
        mapped = tuple(None if first <= key <= t.last else n for key, n in enumerate(mapped))
    return after.mapped == mapped


@always(cache_steps)
def wrapper_changes_only_by_its_steps(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A wrapper changes only when it is filled, marked as removed, recycled, looked up, requeued or deallocated.

    An insert fills the wrapper, or recycles it if the position is not free. A removal or eviction marks it as removed,
    recycling resets it. A lookup sets `accessed`, and a requeue clears `accessed`. Filling and marking do not change
    `accessed`.
    """
    # t: the thread; n: the number of the wrapper that changes, None if none does; now: this wrapper after the step
    t, n, now = thread_of(before, event), None, Wrapper(None, False, False, True)
    if is_accepted(event) and event.name != "over_release":
        n = event.arguments["wrapper"] if event.name == "insert" else t.wrapper
    was = None if n is None else before.wrappers[n]
    if event.name == "over_release" and is_accepted(event):
        n = before.mapped[named_key(cfg, event)]
        now = before.wrappers[n or 0]._replace(released=True)  # `or 0` is for the type checker
    elif was is None:
        n = None
    elif event.name == "insert" and event.outcome is True:
        now = Wrapper(named_key(cfg, event), was.accessed, False, False)
    elif event.name == "set_accessed" or event.outcome == "REQUEUE":
        now = was._replace(accessed=event.name == "set_accessed")
    elif event.name == "mark_evicted_removed" and event.outcome is True:
        now = was._replace(key=None, released=False)
    elif event.name == "mark_removed":  # unless it counts bytes, the step only unlocks the wrapper
        now = was if event.outcome == t.removed else was._replace(key=None, released=False)
    elif event.name in ("insert", "recycle") or (event.name == "publish" and event.outcome is False and t.at == "put"):
        now = now._replace(accessed=was.accessed and not cfg.recycling_clears_accessed)
        # a put in two steps that finds another wrapper mapped keeps its wrapper
        n = None if event.name == "publish" and cfg.published_first == "map" else n
    else:
        n = None
    return after.wrappers == replaced(before.wrappers, n, now)


@always(cache_steps)
def eviction_in_progress_changes_only_by_its_steps(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A thread that finds `evictionInProgress` null sets it and schedules a task; the end of the task clears it.

    With other values of the rules `late_trigger` and `periodic_task_overwrites_future`, a thread that finds the field
    set writes null, and the periodic task sets and clears the field.
    """
    is_set, tasks, t = before.eviction_in_progress, before.scheduled, thread_of(before, event)
    if event.name == "schedule" and is_accepted(event) and t.at == "schedule":
        if event.outcome is is_set:  # the step returns whether the field was null
            return False
        tasks += not is_set
        is_set = not (is_set and cfg.late_trigger == "erases")  # a thread that finds the field set may write null
    elif event.name == "begin_eviction" and is_accepted(event):
        tasks -= 1
    elif event.name == "begin_periodic_eviction" and is_accepted(event):
        is_set = is_set or cfg.periodic_task_overwrites_future
    elif event.name == "end_eviction" and is_accepted(event):
        # the end of a periodic task that has not overwritten the field leaves the field as it is
        is_set = is_set and t.periodic and not cfg.periodic_task_overwrites_future
    return (after.eviction_in_progress, after.scheduled) == (is_set, tasks)


#: Step -> its outcome, as a function of config, state before, state after, and the thread before the step.
OUTCOMES: dict[str, Callable[[Config, State, State, Any], object]] = {
    "count_in_cache": lambda cfg, before, after, t: after.sizes[t.key // cfg.positions],
    "subtract": lambda cfg, before, after, t: after.sizes[t.last // cfg.positions],
    "report": lambda cfg, before, after, t: after.total,
    "report_evicted": lambda cfg, before, after, t: after.total,
    "subtract_evicted": lambda cfg, before, after, t: t.freed + bytes_at(cfg, t.key),
    "measure": lambda cfg, before, after, t: (
        max(0, before.total - cfg.target_bytes) if before.total > cfg.trigger_bytes else 0
    ),
}


@always(cache_steps)
def thread_continues_with_values_of_its_step(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a step, the thread continues with the wrapper, the position and the bytes that the step found.

    A removal goes on to the next position. An insert goes on to schedule a task if the total is above the trigger and
    no eviction is in progress.
    """
    if not is_accepted(event) or event.name == "over_release":
        return True
    was, now, outcome = thread_of(before, event), thread_of(after, event), event.outcome
    w = before.wrappers[was.wrapper] if was.wrapper is not None else None
    wanted: dict[str, Any] = {}
    if event.name in ("insert", "find") and outcome:
        key = named_key(cfg, event)
        wanted = {"key": key, "wrapper": event.arguments.get("wrapper", before.mapped[key])}
    elif event.name == "remove":
        first = event.arguments["cache"] * cfg.positions
        wanted = {"key": first, "last": first + event.arguments["last"], "removed": 0}
    elif event.name == "find_next" and outcome is not None:
        wanted = {"key": outcome, "wrapper": before.mapped[outcome]}
    elif event.name == "take" and w is not None:
        finds_again = w.released and not cfg.removal_passes_released_values
        takes = not finds_again and (w.key == was.key or not cfg.removal_rechecks_key)
        # only a wrapper with another key is passed
        wanted = {"at": "unmap" if takes else "find", "key": was.key + (not takes and not finds_again)}
    elif event.name == "mark_removed":
        is_marked = before.wrappers[was.wrapper] != after.wrappers[was.wrapper]
        # without the check of the key, `removed` is not checked here
        removed = was.removed + bytes_at(cfg, was.key) * is_marked if cfg.removal_rechecks_key else now.removed
        wanted = {"key": was.key + 1, "wrapper": None, "removed": removed}
    elif event.name == "count_in_total":
        triggers = after.total > cfg.trigger_bytes and not before.eviction_in_progress
        wanted = {"at": "schedule" if triggers else "idle"}
    elif event.name == "compare" and w is not None:
        wanted = {"at": "set_accessed" if w.key == was.key else "idle"}
    elif event.name == "peek":
        wanted = {"wrapper": before.queue[0]} if before.queue else {"wrapper": None}
    elif outcome == "REMOVE" and w is not None:
        wanted = {"key": w.key}
    elif event.name in ("begin_eviction", "begin_periodic_eviction"):
        periodic = event.name == "begin_periodic_eviction"
        wanted = {"periodic": periodic, "goal": None if periodic else now.goal, "freed": 0}
    elif event.name in ("measure", "subtract_evicted"):
        wanted = {"goal" if event.name == "measure" else "freed": outcome, "periodic": was.periodic}
    return all(getattr(now, name) == value for name, value in wanted.items())


#: Step -> the program counter of the thread if the step returned true; after false, the thread has another one.
AFTER_TRUE = {
    "count_in_total": "schedule",
    "take": "unmap",
    "peek": "visit",
    "compare": "set_accessed",
    "unmap_evicted": "mark_removed",
    "mark_evicted_removed": "subtract",
}


@always(cache_steps)
def step_returns_what_it_found(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A step returns what it found or did: key, size, bytes removed or to free, eviction result, or a boolean."""
    if not is_accepted(event) or event.name == "over_release":
        return True
    t, outcome = thread_of(before, event), event.outcome
    if isinstance(outcome, bool) and event.name in AFTER_TRUE:
        return bool(outcome == (thread_of(after, event).at == AFTER_TRUE[event.name]))
    if event.name == "publish" and t.at == "offer":
        return outcome is True
    if event.name in OUTCOMES:
        return bool(outcome == OUTCOMES[event.name](cfg, before, after, t))
    if event.name == "find":
        return outcome is (before.mapped[named_key(cfg, event)] is not None)
    if event.name == "mark_removed":
        return bool(outcome == thread_of(after, event).removed)
    w = None if t.wrapper is None else before.wrappers[t.wrapper]
    if w is not None and event.name in VISITS:
        stops = t.freed >= t.goal if event.name == "visit_for_size" else not event.arguments["expired"]
        requeues = w.accessed and cfg.extend_ttl_of_recently_accessed
        return bool(
            outcome == ("MISSING" if w.key is None else "STOP" if stops else "REQUEUE" if requeues else "REMOVE")
        )
    if event.name == "insert" and cfg.published_first == "map":
        return outcome is (before.mapped[named_key(cfg, event)] is None)
    if w is not None and event.name == "retain" and cfg.retaining_checks_position:
        return bool(outcome == (t.key if w.key == t.key and not w.released else None))
    return True


@always(cache_steps)
def observation_shows_entries_by_key(cfg: Config, s: State) -> bool:
    """What a recording shows of a state does not depend on which wrapper has which entry.

    A recording shows cached and queued positions, sizes, total, scheduled tasks and `evictionInProgress`. So the
    canonical form, which only renumbers wrappers, has the same observation.
    """
    observe = cache_steps.observe
    seen, renumbered = observe(cfg, s), cache_steps.canonical(cfg, s)
    mapped = [key for key in range(cfg.caches * cfg.positions) if s.mapped[key] is not None]
    queued = [s.wrappers[n].key for n in s.queue]
    by_cache = [[key for key in mapped if key // cfg.positions == cache] for cache in range(cfg.caches)]
    figures = {
        "sizes": list(s.sizes),
        "total": s.total,
        "tasks": s.scheduled,
        "eviction_in_progress": s.eviction_in_progress,
    }
    if Counter(renumbered.wrappers) != Counter(s.wrappers) or observe(cfg, renumbered) != seen:
        return False
    return bool(seen == {"caches": by_cache, "removal_queue": queued, **figures})


# ---- coverage goals -----------------------------------------------------------------------------------


@sometimes(cache_steps, on=("set_accessed",))
def late_lookup_set_accessed_of_reused_wrapper(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A slow lookup sets `accessed` of a wrapper that meanwhile was reused for another position."""
    t = before.lookups[event.arguments["reader"]]
    return is_accepted(event) and t.wrapper is not None and before.wrappers[t.wrapper].key not in (None, t.key)


@sometimes(cache_steps, on=("set_accessed",))
def late_lookup_set_accessed_of_pooled_wrapper(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A slow lookup sets `accessed` of a wrapper that meanwhile went back to the pool."""
    t = before.lookups[event.arguments["reader"]]
    return is_accepted(event) and t.wrapper is not None and before.wrappers[t.wrapper].pooled


@sometimes(cache_steps, on=("retain",))
def lookup_missed_removed_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup finds the wrapper of its position, and still returns no entry.

    The entry was removed in between, or its value is deallocated.
    """
    return is_accepted(event) and event.outcome is None


@sometimes(cache_steps, on=("take",))
def removal_found_changed_wrapper(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A removal locks a wrapper and leaves it alone: its entry has already left, or its value is deallocated."""
    return event.outcome is False


@sometimes(cache_steps, on=VISITS)
def eviction_waited_for_removal(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction waits for the lock of the head, whose entry a thread removes or waits to remove."""
    n = before.eviction.wrapper
    return event.outcome == LOCKED and any(r.wrapper == n for r in before.removals)


@sometimes(cache_steps, on=VISITS)
def eviction_waited_for_insert(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction waits: the entry at the head of the queue is locked by the thread that inserts it."""
    n = before.eviction.wrapper
    return event.outcome == LOCKED and any(i.wrapper == n for i in before.inserts)


@sometimes(cache_steps)
def total_is_transiently_negative(cfg: Config, s: State) -> bool:
    """The total size is negative for a while: the bytes of an entry were subtracted before they were added."""
    return s.total < 0


@sometimes(cache_steps, on=("insert",))
def inserts_raced_for_position(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An insert fails because another thread is inserting an entry at the same position."""
    if event.outcome is not False:
        return False
    key = event.arguments["cache"] * cfg.positions + event.arguments["position"]
    return any(i.wrapper is not None and i.key == key for i in before.inserts)


@sometimes(cache_steps, on=("schedule",))
def triggers_raced(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Two threads find that no eviction is in progress and that one is needed; only the first schedules it."""
    return event.outcome is False


@sometimes(cache_steps, on=VISITS)
def eviction_visited_detached_wrapper(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction visits a wrapper in the queue whose entry was already removed."""
    return bool(event.outcome == "MISSING")


@sometimes(cache_steps, on=VISITS, given=lambda cfg: cfg.extend_ttl_of_recently_accessed)
def entry_was_requeued(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction moves an entry that was accessed from the head to the tail of the queue."""
    return bool(event.outcome == "REQUEUE")


@sometimes(cache_steps, on=("insert",))
def position_reused_before_wrapper_marked_removed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An insert succeeds at a position whose previous entry is removed or evicted by a thread that is not done yet."""
    if event.outcome is not True:
        return False
    key = event.arguments["cache"] * cfg.positions + event.arguments["position"]
    return any(w.key == key for w in before.wrappers)


@sometimes(cache_steps, on=("begin_periodic_eviction",))
def periodic_task_preceded_scheduled_task(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The periodic eviction begins while a task that an insert scheduled has not begun."""
    return is_accepted(event) and before.scheduled > 0


@sometimes(cache_steps)
def total_above_trigger_at_rest(cfg: Config, s: State) -> bool:
    """The total size is above the trigger, but every thread is idle, and no eviction is scheduled."""
    return at_rest(s) and s.total > cfg.trigger_bytes and not s.scheduled


@sometimes(cache_steps)
def deallocated_value_is_mapped(cfg: Config, s: State) -> bool:
    """An entry is cached although its value was deallocated by one release too many."""
    return any(n is not None and s.wrappers[n].released for n in s.mapped)


# ---- liveness -----------------------------------------------------------------------------------------


@eventually(cache_steps, fair=CONTINUING_STEPS)
def every_operation_terminates(cfg: Config, s: State) -> bool:
    """When no thread begins a new operation, every operation terminates and every scheduled task runs.

    Lookups without end can keep a size pass from ending, because they set `accessed` of requeued entries again.
    """
    return at_rest(s) and not s.scheduled
