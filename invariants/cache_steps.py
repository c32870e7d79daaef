"""What range caches promise between the steps of their operations, and what holds only when nobody is in the middle."""

from __future__ import annotations

from invariants.properties import Event, always, eventually, once_per_state, sometimes
from model.cache_steps.machine import LOCKED, cache_steps
from model.cache_steps.threads import Config, State, bytes_of, cache_of, key_of
from model.machine import Refused

#: All steps but those that begin something; begin_eviction begins a task that waits already.
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
    """Whether no thread is in the middle of anything; tasks may wait."""
    return (
        s.eviction.at == "idle"
        and all(i.at == "idle" for i in s.inserts)
        and all(r.at == "idle" for r in s.removals)
        and all(k.at == "idle" for k in s.lookups)
    )


@once_per_state
def lock_holders(s: State) -> list[int]:
    """The wrapper of each thread that holds a lock; the evicting thread's from when it has unmapped."""
    held = [i.wrapper for i in s.inserts] + [r.wrapper for r in s.removals if r.at in ("unmap", "clear")]
    held.append(s.eviction.wrapper if s.eviction.at in ("clear", "subtract") else None)
    return [n for n in held if n is not None]


def done(event: Event) -> bool:
    """Whether the step was taken, not refused."""
    return not isinstance(event.outcome, Refused)


# ---- of every state -----------------------------------------------------------------------------------


@always(cache_steps)
def cache_size_equals_sum_of_entry_sizes(cfg: Config, s: State) -> bool:
    """When no thread is in the middle of anything, each cache's size is the sum of its live entries' bytes."""
    if not at_rest(s):
        return True
    sums = [0] * cfg.caches
    for w in s.wrappers:
        if w.key is not None and not w.pooled:
            sums[cache_of(cfg, w.key)] += bytes_of(cfg, w.key)
    return tuple(sums) == s.sizes


@always(cache_steps)
def the_total_is_the_sum(cfg: Config, s: State) -> bool:
    """When no thread is in the middle of anything, the total is the sum of all sizes, and so never negative."""
    return s.total == sum(s.sizes) or not at_rest(s)


@always(cache_steps)
def a_size_is_never_negative(cfg: Config, s: State) -> bool:
    """A cache's size is at no moment negative: its lock keeps an entry from being removed before it is counted."""
    return min(s.sizes) >= 0


@always(cache_steps)
def an_entry_has_one_slot(cfg: Config, s: State) -> bool:
    """A wrapper stands in the removal queue once at most; one that is in the map, and not locked, stands there."""
    slots = set(s.queue)
    return len(slots) == len(s.queue) and all(
        n in slots for n in s.mapped if n is not None and n not in lock_holders(s)
    )


@always(cache_steps)
def a_free_wrapper_is_nowhere_else(cfg: Config, s: State) -> bool:
    """A wrapper that is in the pool is not in the queue, not in the map, and carries no key."""
    used = {*s.queue, *s.mapped}
    return not any(w.pooled and (w.key is not None or n in used) for n, w in enumerate(s.wrappers))


@always(cache_steps)
def no_wrapper_is_lost(cfg: Config, s: State) -> bool:
    """A wrapper is in the pool, in the queue, or in the hands of the thread that puts it there."""
    somewhere = {*s.queue, s.eviction.wrapper, *[i.wrapper for i in s.inserts]}
    return all(w.pooled or n in somewhere for n, w in enumerate(s.wrappers))


@always(cache_steps)
def a_wrapper_knows_its_position(cfg: Config, s: State) -> bool:
    """A wrapper that the map has at a position carries that position."""
    return all(n is None or s.wrappers[n].key == key for key, n in enumerate(s.mapped))


@always(cache_steps)
def a_live_entry_is_found(cfg: Config, s: State) -> bool:
    """An entry that is live, and not locked, is in the map at its position: lookups and removals can find it."""
    live = [n for n, w in enumerate(s.wrappers) if w.key is not None and not w.pooled and not w.released]
    return all(s.mapped[s.wrappers[n].key or 0] == n or n in lock_holders(s) for n in live)


@always(cache_steps)
def a_lock_has_one_holder(cfg: Config, s: State) -> bool:
    """No two threads hold the lock of one wrapper."""
    return len(set(lock_holders(s))) == len(lock_holders(s))


@always(cache_steps)
def eviction_takes_what_it_checked(cfg: Config, s: State) -> bool:
    """The entry that an eviction removes is the one that it has decided on, which still stands at the head."""
    return s.eviction.at not in ("clear", "subtract") or s.queue[:1] == (s.eviction.wrapper,)


@always(cache_steps)
def one_eviction_task_at_most(cfg: Config, s: State) -> bool:
    """At most one eviction task waits or runs at a time, however many threads see that the total is too large."""
    return s.scheduled + (s.eviction.at != "idle" and not s.eviction.periodic) <= 1


@always(cache_steps)
def a_task_has_its_marker(cfg: Config, s: State) -> bool:
    """While an eviction task waits or runs the marker is set, so that nobody schedules another."""
    return s.marker or (not s.scheduled and (s.eviction.at == "idle" or s.eviction.periodic))


# ---- of every step ------------------------------------------------------------------------------------


@always(cache_steps, on=("clear", "clear_evicted"))
def removal_reports_entries_and_bytes_that_left(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Whoever removes an entry counts it only if it is the one who cleared it: range removal and eviction never both.

    So the cache's reference to it is given back once.
    """
    if not done(event):
        return True
    if event.name == "clear_evicted":
        e = before.eviction
        return e.wrapper is None or not event.outcome or before.wrappers[e.wrapper].key == e.key
    was, now = before.removals[event.arguments["remover"]], after.removals[event.arguments["remover"]]
    return was.wrapper is None or now.removed == was.removed or before.wrappers[was.wrapper].key == was.key


@always(cache_steps, on=("retain",))
def lookup_returns_cached_entries_of_range(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup gives the entry at the asked position or nothing, though its wrapper may have been used again."""
    asked = before.lookups[event.arguments["reader"]].key
    return not done(event) or event.outcome in (None, asked)


@always(cache_steps, on=("recycle",))
def a_wrapper_goes_to_the_pool_clear(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A wrapper that goes back to the pool has no key and no mark left, so that its next entry starts afresh."""
    if not done(event) or before.eviction.wrapper is None:
        return True
    w = after.wrappers[before.eviction.wrapper]
    return w.key is None and not w.accessed and not w.released


@always(cache_steps, on=("insert",))
def a_rejected_duplicate_changes_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An insert at a taken position leaves the map, the queue, the counts and the entry there as they were."""
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
def a_mark_stays_until_it_is_taken(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The mark of access goes only when its entry is put back, or its wrapper goes back to the pool."""
    if after.wrappers is before.wrappers or not any(w.accessed for w in before.wrappers):
        return True
    lost = [n for n, w in enumerate(before.wrappers) if w.accessed and not after.wrappers[n].accessed]
    if event.name in VISITS:
        return not lost or event.outcome == "REQUEUE"
    goes_to_the_pool = event.name == "recycle" or (event.name in ("insert", "publish") and not event.outcome)
    return not lost or goes_to_the_pool


@always(cache_steps, on=("find_next",))
def a_removal_leaves_nothing_out(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A removal passes no entry of its range: what was there when it began is gone when it ends, by whoever's hand."""
    if not done(event):
        return True
    r = before.removals[event.arguments["remover"]]
    assert r.key is not None, "a removal that looks knows where"
    assert r.last is not None, "and how far"
    ahead = [key for key in range(r.key, r.last + 1) if before.mapped[key] is not None]
    return bool(event.outcome == (ahead[0] if ahead else None))


# ---- what a run must have seen ------------------------------------------------------------------------


@sometimes(cache_steps, on=("mark",))
def a_late_lookup_marks_another_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup marks a wrapper that was put away and used again for another position: that entry may stay longer."""
    k = before.lookups[event.arguments["reader"]]
    return done(event) and k.wrapper is not None and before.wrappers[k.wrapper].key not in (None, k.key)


@sometimes(cache_steps, on=("mark",))
def a_late_lookup_marks_a_free_wrapper(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup marks a wrapper that is in the pool: its next entry begins marked."""
    k = before.lookups[event.arguments["reader"]]
    return done(event) and k.wrapper is not None and before.wrappers[k.wrapper].pooled


@sometimes(cache_steps, on=("retain",))
def a_lookup_misses_what_it_found(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup that found its wrapper and compared its key gives nothing: the entry has gone since."""
    return done(event) and event.outcome is None


@sometimes(cache_steps, on=("take",))
def a_removal_comes_after_an_eviction(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A removal takes the lock of a wrapper that it found, and an eviction has cleared it meanwhile."""
    return event.outcome is False


@sometimes(cache_steps, on=VISITS)
def an_eviction_meets_a_removal(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction finds the head locked by the removal that is about to clear it."""
    n = before.eviction.wrapper
    return event.outcome == LOCKED and any(r.wrapper == n for r in before.removals)


@sometimes(cache_steps, on=VISITS)
def an_eviction_meets_an_insert(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction finds the head locked by the insert that has not counted it yet."""
    n = before.eviction.wrapper
    return event.outcome == LOCKED and any(i.wrapper == n for i in before.inserts)


@sometimes(cache_steps)
def the_total_is_negative(cfg: Config, s: State) -> bool:
    """The total is below zero for a moment: an entry was removed, and reported, before it was counted there."""
    return s.total < 0


@sometimes(cache_steps, on=("insert",))
def two_inserts_race_for_a_position(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An insert is rejected for an entry that another thread is still inserting."""
    if event.outcome is not False:
        return False
    key = key_of(cfg, event.arguments["cache"], event.arguments["position"])
    return any(i.wrapper is not None and i.key == key for i in before.inserts)


@sometimes(cache_steps, on=("schedule",))
def two_triggers_race(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Two threads find that no marker is set, and the second comes too late to set it."""
    return event.outcome is False


@sometimes(cache_steps, on=VISITS)
def a_detached_slot_is_met(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction meets a slot whose entry was removed by position."""
    return bool(event.outcome == "MISSING")


@sometimes(cache_steps, on=VISITS, given=lambda cfg: cfg.extend_ttl_of_recently_accessed)
def an_entry_is_put_back(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction puts an entry back, for it was looked up."""
    return bool(event.outcome == "REQUEUE")


@sometimes(cache_steps, on=("insert",))
def a_position_is_taken_again_before_it_is_cleared(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An insert puts an entry where another has left the map, whose wrapper still carries the position."""
    if event.outcome is not True:
        return False
    key = key_of(cfg, event.arguments["cache"], event.arguments["position"])
    return any(w.key == key for w in before.wrappers)


@sometimes(cache_steps, on=("begin_periodic_eviction",))
def the_periodic_task_comes_first(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The periodic task begins while another waits for the thread."""
    return done(event) and before.scheduled > 0


@sometimes(cache_steps)
def nobody_sees_to_the_total(cfg: Config, s: State) -> bool:
    """All is at rest, the total is over the trigger, and no task waits: that is left to the next insert."""
    return at_rest(s) and s.total > cfg.trigger_bytes and not s.scheduled


@sometimes(cache_steps)
def a_released_value_is_listed(cfg: Config, s: State) -> bool:
    """An entry is in the map whose value was released elsewhere."""
    return any(n is not None and s.wrappers[n].released for n in s.mapped)


# ---- what must come in the end ------------------------------------------------------------------------


@eventually(cache_steps, fair=STEPS_ON)
def every_operation_ends(cfg: Config, s: State) -> bool:
    """If no thread begins anything new, each comes to the end of what it does, and no task is left waiting.

    Lookups that come again and again can keep a size pass from ending: they mark what it has just put back.
    """
    return at_rest(s) and not s.scheduled
