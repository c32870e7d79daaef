"""Guarantees of the range caches between the steps of concurrent operations."""

from __future__ import annotations

from invariants.properties import Event, always, eventually, once_per_state, sometimes
from model.cache_steps.machine import LOCKED, cache_steps
from model.cache_steps.threads import Config, State
from model.machine import Refused

#: All steps except those that begin an operation; begin_eviction begins a scheduled task.
STEPS_ON = (
    "publish",
    "count_in_cache",
    "count_in_total",
    "schedule",
    "find_next",
    "take",
    "unmap",
    "clear",
    "subtract",
    "report",
    "begin_eviction",
    "measure",
    "peek",
    "visit_for_size",
    "visit_for_time",
    "requeue",
    "unmap_evicted",
    "clear_evicted",
    "subtract_evicted",
    "pop",
    "recycle",
    "report_evicted",
    "end_eviction",
    "compare",
    "mark",
    "retain",
)
VISITS = ("visit_for_size", "visit_for_time")


@once_per_state
def at_rest(s: State) -> bool:
    """Whether every thread is idle; tasks may be scheduled."""
    return (
        s.eviction.at == "idle"
        and all(i.at == "idle" for i in s.inserts)
        and all(r.at == "idle" for r in s.removals)
        and all(k.at == "idle" for k in s.lookups)
    )


@once_per_state
def lock_holders(s: State) -> list[int]:
    """The wrapper of each thread that holds a lock; of the evicting thread after it has unmapped."""
    held = [i.wrapper for i in s.inserts] + [r.wrapper for r in s.removals if r.at in ("unmap", "clear")]
    held.append(s.eviction.wrapper if s.eviction.at in ("clear", "subtract") else None)
    return [n for n in held if n is not None]


def done(event: Event) -> bool:
    """Whether the step was taken."""
    return not isinstance(event.outcome, Refused)


# ---- states -------------------------------------------------------------------------------------------


@always(cache_steps)
def cache_size_equals_sum_of_entry_sizes(cfg: Config, s: State) -> bool:
    """While every thread is idle, the size of each cache is the sum of its live entries' bytes."""
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
    """While every thread is idle, the total is the sum of all cache sizes."""
    return s.total == sum(s.sizes) or not at_rest(s)


@always(cache_steps)
def cache_size_is_nonnegative(cfg: Config, s: State) -> bool:
    """The size of a cache is never negative: the lock keeps an entry from being removed before it is counted."""
    return min(s.sizes) >= 0


@always(cache_steps)
def mapped_wrapper_has_exactly_one_slot(cfg: Config, s: State) -> bool:
    """A wrapper has at most one slot in the removal queue; a mapped wrapper that is not locked has one."""
    slots = set(s.queue)
    return len(slots) == len(s.queue) and all(
        n in slots for n in s.mapped if n is not None and n not in lock_holders(s)
    )


@always(cache_steps)
def pooled_wrapper_is_unreferenced(cfg: Config, s: State) -> bool:
    """A pooled wrapper is neither queued nor mapped, and has no key."""
    used = {*s.queue, *s.mapped}
    return not any(w.pooled and (w.key is not None or n in used) for n, w in enumerate(s.wrappers))


@always(cache_steps)
def wrapper_is_pooled_queued_or_held(cfg: Config, s: State) -> bool:
    """A wrapper is in the pool, in the queue, or held by the thread that inserts or recycles it."""
    somewhere = {*s.queue, s.eviction.wrapper, *[i.wrapper for i in s.inserts]}
    return all(w.pooled or n in somewhere for n, w in enumerate(s.wrappers))


@always(cache_steps)
def mapped_wrapper_has_its_key(cfg: Config, s: State) -> bool:
    """A wrapper that is mapped at a position has the key of that position."""
    return all(n is None or s.wrappers[n].key == key for key, n in enumerate(s.mapped))


@always(cache_steps)
def live_entry_is_mapped(cfg: Config, s: State) -> bool:
    """A live entry that is not locked is mapped at its position."""
    live = [n for n, w in enumerate(s.wrappers) if w.key is not None and not w.pooled and not w.released]
    return all(s.mapped[s.wrappers[n].key or 0] == n or n in lock_holders(s) for n in live)


@always(cache_steps)
def lock_has_at_most_one_holder(cfg: Config, s: State) -> bool:
    """At most one thread holds the lock of a wrapper."""
    return len(set(lock_holders(s))) == len(lock_holders(s))


@always(cache_steps)
def eviction_removes_checked_head(cfg: Config, s: State) -> bool:
    """The entry that an eviction removes is the head that it checked."""
    return s.eviction.at not in ("clear", "subtract") or s.queue[:1] == (s.eviction.wrapper,)


@always(cache_steps)
def at_most_one_eviction_task(cfg: Config, s: State) -> bool:
    """At most one eviction task is scheduled or runs at a time."""
    return s.scheduled + (s.eviction.at != "idle" and not s.eviction.periodic) <= 1


@always(cache_steps)
def marker_is_set_while_task_exists(cfg: Config, s: State) -> bool:
    """The eviction marker is set while a task is scheduled or runs."""
    return s.marker or (not s.scheduled and (s.eviction.at == "idle" or s.eviction.periodic))


# ---- steps --------------------------------------------------------------------------------------------


@always(cache_steps, on=("clear", "clear_evicted"))
def entry_is_counted_by_one_remover(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A removal or eviction counts an entry only if it cleared it, so each entry is counted and released once."""
    if not done(event):
        return True
    if event.name == "clear_evicted":
        e = before.eviction
        return e.wrapper is None or not event.outcome or before.wrappers[e.wrapper].key == e.key
    was, now = before.removals[event.arguments["remover"]], after.removals[event.arguments["remover"]]
    return was.wrapper is None or now.removed == was.removed or before.wrappers[was.wrapper].key == was.key


@always(cache_steps, on=("retain",))
def lookup_returns_requested_position_only(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup returns the entry at the requested position or nothing, although its wrapper may have been reused."""
    asked = before.lookups[event.arguments["reader"]].key
    return not done(event) or event.outcome in (None, asked)


@always(cache_steps, on=("recycle",))
def recycled_wrapper_is_cleared(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A recycled wrapper has no key, and neither `accessed` nor `released`."""
    if not done(event) or before.eviction.wrapper is None:
        return True
    w = after.wrappers[before.eviction.wrapper]
    return w.key is None and not w.accessed and not w.released


@always(cache_steps, on=("insert",))
def rejected_insert_changes_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A rejected insert changes neither the map, the queue, the sizes nor any other wrapper."""
    if not done(event) or event.outcome:
        return True
    wrapper = event.arguments["wrapper"]
    others = [n for n in range(cfg.pool) if n != wrapper]
    return (before.mapped, before.queue, before.sizes, before.total) == (
        after.mapped,
        after.queue,
        after.sizes,
        after.total,
    ) and all(before.wrappers[n] == after.wrappers[n] for n in others)


@always(cache_steps)
def accessed_is_cleared_only_by_requeue_or_recycle(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`accessed` is cleared only by a requeue or when the wrapper is recycled."""
    if after.wrappers is before.wrappers or not any(w.accessed for w in before.wrappers):
        return True
    lost = [n for n, w in enumerate(before.wrappers) if w.accessed and not after.wrappers[n].accessed]
    if event.name in VISITS:
        return not lost or event.outcome == "REQUEUE"
    goes_to_the_pool = event.name == "recycle" or (event.name in ("insert", "publish") and not event.outcome)
    return not lost or goes_to_the_pool


@always(cache_steps, on=("find_next",))
def removal_visits_every_entry_of_its_range(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A range removal visits the next mapped position of its range, and skips none."""
    if not done(event):
        return True
    r = before.removals[event.arguments["remover"]]
    assert r.key is not None, "set by remove"
    assert r.last is not None, "set by remove"
    ahead = [key for key in range(r.key, r.last + 1) if before.mapped[key] is not None]
    return bool(event.outcome == (ahead[0] if ahead else None))


# ---- coverage goals -----------------------------------------------------------------------------------


@sometimes(cache_steps, on=("mark",))
def late_lookup_marked_reused_wrapper(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup sets `accessed` of a wrapper that was reused for another position."""
    k = before.lookups[event.arguments["reader"]]
    return done(event) and k.wrapper is not None and before.wrappers[k.wrapper].key not in (None, k.key)


@sometimes(cache_steps, on=("mark",))
def late_lookup_marked_pooled_wrapper(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup sets `accessed` of a wrapper in the pool."""
    k = before.lookups[event.arguments["reader"]]
    return done(event) and k.wrapper is not None and before.wrappers[k.wrapper].pooled


@sometimes(cache_steps, on=("retain",))
def lookup_missed_removed_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup compares the key and returns nothing, because the entry was removed in between."""
    return done(event) and event.outcome is None


@sometimes(cache_steps, on=("take",))
def removal_found_evicted_wrapper(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A removal locks a wrapper that an eviction has cleared."""
    return event.outcome is False


@sometimes(cache_steps, on=VISITS)
def eviction_waited_for_removal(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction finds the head locked by a removal."""
    n = before.eviction.wrapper
    return event.outcome == LOCKED and any(r.wrapper == n for r in before.removals)


@sometimes(cache_steps, on=VISITS)
def eviction_waited_for_insert(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction finds the head locked by an insert."""
    n = before.eviction.wrapper
    return event.outcome == LOCKED and any(i.wrapper == n for i in before.inserts)


@sometimes(cache_steps)
def total_is_transiently_negative(cfg: Config, s: State) -> bool:
    """The total is negative: a removal was reported before the insert was counted."""
    return s.total < 0


@sometimes(cache_steps, on=("insert",))
def inserts_raced_for_position(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An insert is rejected because another thread is inserting at the position."""
    if event.outcome is not False:
        return False
    key = event.arguments["cache"] * cfg.positions + event.arguments["position"]
    return any(i.wrapper is not None and i.key == key for i in before.inserts)


@sometimes(cache_steps, on=("schedule",))
def triggers_raced(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Two threads find no marker, and one of them sets it first."""
    return event.outcome is False


@sometimes(cache_steps, on=VISITS)
def eviction_visited_detached_wrapper(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction visits a detached wrapper."""
    return bool(event.outcome == "MISSING")


@sometimes(cache_steps, on=VISITS, given=lambda cfg: cfg.extend_ttl_of_recently_accessed)
def entry_was_requeued(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction requeues an accessed entry."""
    return bool(event.outcome == "REQUEUE")


@sometimes(cache_steps, on=("insert",))
def position_reused_before_wrapper_cleared(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An insert succeeds at a position whose former wrapper is unmapped but not cleared."""
    if event.outcome is not True:
        return False
    key = event.arguments["cache"] * cfg.positions + event.arguments["position"]
    return any(w.key == key for w in before.wrappers)


@sometimes(cache_steps, on=("begin_periodic_eviction",))
def periodic_task_preceded_scheduled_task(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The periodic task begins while another task is scheduled."""
    return done(event) and before.scheduled > 0


@sometimes(cache_steps)
def total_above_trigger_at_rest(cfg: Config, s: State) -> bool:
    """Every thread is idle, the total is above the trigger, and no task is scheduled."""
    return at_rest(s) and s.total > cfg.trigger_bytes and not s.scheduled


@sometimes(cache_steps)
def deallocated_value_is_mapped(cfg: Config, s: State) -> bool:
    """An entry with a deallocated value is mapped."""
    return any(n is not None and s.wrappers[n].released for n in s.mapped)


# ---- liveness -----------------------------------------------------------------------------------------


@eventually(cache_steps, fair=STEPS_ON)
def every_operation_terminates(cfg: Config, s: State) -> bool:
    """Every operation terminates and no task stays scheduled, once no thread begins a new operation.

    Repeated lookups can keep a size pass from ending, because they mark requeued entries again.
    """
    return at_rest(s) and not s.scheduled
