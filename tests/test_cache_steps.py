"""Range caches with threads: a stateful test, and example interleavings."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz.explore.search import Exploration, explore
from fuzz.run.stateful import stateful_test
from fuzz.subject import find_subject
from fuzz.tlc.manifest import Run, all_runs
from fuzz.tlc.module import camel
from fuzz.tlc.runs import MODULES
from impl.cache_steps import CacheThreads
from model.cache_steps.machine import LOCKED, cache_steps
from model.cache_steps.state import REFERENCE_RULES, Config, State, start
from tests.conftest import stepped

TestCacheSteps = stateful_test(find_subject("cache_steps"))

BASE = Config(positions=3, pool=3, inserters=2, removers=1, readers=1)
RUNS = {run.name: run for run in all_runs(MODULES) if run.component == "cache_steps"}
#: The steps that begin a size pass, that evict one entry, and that remove one entry.
SIZE_PASS = ("begin_eviction", "measure")
EVICT_ONE = ("peek", "visit_for_size", "unmap_evicted", "mark_evicted_removed", "subtract_evicted", "pop", "recycle")
REMOVE_ONE = (("find_next", 0), ("take", 0), ("unmap", 0), ("mark_removed", 0))

Action = tuple[Any, ...] | str


def after(cfg: Config, *steps: Action, on: State | None = None) -> tuple[State, Any]:
    """Returns the state after some steps, and the last outcome. Under the reference, the implementation must agree."""
    calls = [(step,) if isinstance(step, str) else step for step in steps]
    s, outcomes = stepped(cache_steps, cfg, calls, on, CacheThreads)
    return s, outcomes[-1]


def profile(name: str) -> Config:
    """Returns the rules of a profile with the settings of these examples."""
    rules: Config = cache_steps.profiles[name].config
    return rules._replace(positions=3, pool=3, inserters=2, removers=1, readers=1)


def put(position: int, wrapper: int, inserter: int = 0) -> list[Action]:
    """Returns the steps that insert an entry and count it in its cache, but not yet in the total."""
    return [("insert", inserter, 0, position, wrapper), ("publish", inserter), ("count_in_cache", inserter)]


def added(position: int, wrapper: int, inserter: int = 0) -> list[Action]:
    """Returns the steps that insert an entry and count it in the total, but schedule no eviction yet."""
    return [*put(position, wrapper, inserter), ("count_in_total", inserter)]


def whole(position: int, wrapper: int) -> list[Action]:
    """Returns the steps of a whole insert, which schedules an eviction."""
    return [*added(position, wrapper), ("schedule", 0)]


# ---- reference


def test_insert_and_eviction_return_to_the_initial_state() -> None:
    s, goal = after(BASE, *whole(1, 0), *SIZE_PASS)
    assert (goal, s.sizes, s.total, s.mapped, s.queue) == (2, (2,), 2, (None, 0, None), (0,))
    s, _ = after(BASE, *EVICT_ONE, "peek", "report_evicted", "end_eviction", on=s)
    assert s == start(BASE)


def test_total_is_negative_if_removal_reports_before_insert() -> None:
    """An entry that its cache has counted can be removed, and reported, before the total counts it."""
    removed = [("remove", 0, 0, 2), *REMOVE_ONE, ("find_next", 0), ("subtract", 0), ("report", 0)]
    s, total = after(BASE, *put(2, 0), *removed)
    assert (total, s.sizes) == (-3, (0,))
    s, triggers = after(BASE, ("count_in_total", 0), on=s)
    assert (triggers, s.total) == (False, 0)


def test_wrapper_is_locked_until_its_cache_counts_the_bytes() -> None:
    s, _ = after(BASE, *whole(0, 0), *SIZE_PASS, ("insert", 1, 0, 1, 1), ("publish", 1), *EVICT_ONE, "peek")
    assert after(BASE, "visit_for_size", on=s)[1] == LOCKED
    assert after(BASE, ("remove", 0, 0, 2), ("find_next", 0), ("take", 0), on=s)[1] == LOCKED
    assert after(BASE, ("count_in_cache", 1), "visit_for_size", on=s)[1] == "STOP"


def test_concurrent_removal_and_eviction_count_the_entry_once() -> None:
    """The removal finds the wrapper, but the eviction removes the entry first. The removal does not count the entry."""
    s, _ = after(BASE, *whole(1, 0), ("remove", 0, 0, 2), ("find_next", 0), *SIZE_PASS, *EVICT_ONE)
    s, is_mine = after(BASE, ("take", 0), on=s)
    assert (is_mine, s.sizes) == (False, (0,))
    s, _ = after(BASE, ("find_next", 0), "peek", "report_evicted", "end_eviction", on=s)
    assert s == start(BASE)


def test_slot_of_removed_entry_stays_until_an_eviction_visits_it() -> None:
    s, _ = after(BASE, *whole(1, 0), ("remove", 0, 0, 2), *REMOVE_ONE, *whole(1, 1)[:3])
    assert (s.mapped, s.queue, s.wrappers[0].key, s.wrappers[1].key) == ((None, 1, None), (0, 1), None, 1)
    s, verdict = after(BASE, *SIZE_PASS, "peek", "visit_for_size", on=s)
    assert verdict == "MISSING"
    s, _ = after(BASE, "pop", "recycle", on=s)
    assert (s.queue, s.wrappers[0].pooled) == ((1,), True)


def test_late_lookup_sets_accessed_of_a_reused_wrapper() -> None:
    """During the lookup, the wrapper is recycled and reused. The lookup misses; the new entry counts as accessed."""
    cfg = BASE._replace(extend_ttl_of_recently_accessed=True)
    s, _ = after(cfg, *whole(0, 0), ("find", 0, 0, 0), ("compare", 0), *SIZE_PASS, *EVICT_ONE, *added(2, 0, 1))
    s, _ = after(cfg, ("set_accessed", 0), on=s)
    assert (s.wrappers[0].key, s.wrappers[0].accessed) == (2, True)
    s, given = after(cfg, ("retain", 0), on=s)
    assert given is None
    s, _ = after(cfg, "peek", "visit_for_size", "report_evicted", "end_eviction", on=s)
    s, verdict = after(cfg, "begin_periodic_eviction", "peek", ("visit_for_time", True), on=s)
    assert verdict == "REQUEUE"


def test_accessed_set_on_a_pooled_wrapper_survives_its_reuse() -> None:
    s, _ = after(BASE, *whole(0, 0), ("find", 0, 0, 0), ("compare", 0), *SIZE_PASS, *EVICT_ONE, ("set_accessed", 0))
    assert (s.wrappers[0].pooled, s.wrappers[0].accessed) == (True, True)
    s, _ = after(BASE, ("insert", 0, 0, 2, 0), on=s)
    assert s.wrappers[0].accessed


def test_position_is_taken_once_it_is_mapped() -> None:
    s, is_new = after(BASE, ("insert", 0, 0, 1, 0), ("insert", 1, 0, 1, 1))
    assert is_new is False
    assert (s.mapped, s.queue, s.wrappers[1].pooled) == ((None, 0, None), (), True)


def test_late_trigger_keeps_the_future() -> None:
    s, _ = after(BASE, *added(0, 0), *added(1, 1, 1), ("schedule", 0))
    s, scheduled = after(BASE, ("schedule", 1), on=s)
    assert (scheduled, s.eviction_in_progress, s.scheduled) == (False, True, 1)


# ---- profiles with a seeded or shipped bug: the name of a test begins with the profile


def test_future_erased_both_triggers_schedule_a_task() -> None:
    cfg = profile("future-erased")
    s, _ = after(cfg, *added(0, 0), *added(1, 1, 1), ("schedule", 0), ("schedule", 1))
    assert (s.eviction_in_progress, s.scheduled) == (False, 1)
    s, _ = after(cfg, ("schedule", 1), ("schedule", 1), on=s)
    assert (s.eviction_in_progress, s.scheduled) == (True, 2)


def test_future_overwritten_periodic_task_clears_future_of_scheduled_task() -> None:
    steps = [*whole(0, 0), "begin_periodic_eviction", "peek", ("visit_for_time", False), "measure", *EVICT_ONE]
    s, _ = after(profile("future-overwritten"), *steps, "peek", "report_evicted", "end_eviction")
    assert (s.eviction_in_progress, s.scheduled) == (False, 1)
    s, _ = after(BASE, *steps, "peek", "report_evicted", "end_eviction")
    assert (s.eviction_in_progress, s.scheduled) == (True, 1)


def test_queue_before_map_wrapper_of_duplicate_is_queued_twice() -> None:
    cfg = profile("queue-before-map")
    s, _ = after(cfg, *put(1, 0), ("insert", 1, 0, 1, 1), ("publish", 1), *put(2, 1, 1))
    assert s.queue == (0, 1, 1)


def test_put_in_two_steps_counts_the_losing_put() -> None:
    cfg = profile("put-in-two-steps")
    s, is_new = after(cfg, ("insert", 0, 0, 1, 0), ("insert", 1, 0, 1, 1), ("publish", 0), ("publish", 1))
    assert is_new is False
    s, size = after(cfg, ("publish", 0), ("publish", 1), ("count_in_cache", 0), ("count_in_cache", 1), on=s)
    assert (size, s.mapped) == (4, (None, 0, None))


def test_removed_twice_counts_an_evicted_entry() -> None:
    cfg = profile("removed-twice")
    s, _ = after(cfg, *whole(1, 0), ("remove", 0, 0, 2), ("find_next", 0), *SIZE_PASS, *EVICT_ONE)
    s, _ = after(cfg, ("take", 0), ("unmap", 0), ("mark_removed", 0), ("find_next", 0), ("subtract", 0), on=s)
    assert s.sizes == (-2,)


def test_retains_unchecked_returns_another_entry() -> None:
    steps = [*whole(0, 0), ("find", 0, 0, 0), ("compare", 0), *SIZE_PASS, *EVICT_ONE, *put(2, 0), ("set_accessed", 0)]
    assert after(profile("retains-unchecked"), *steps, ("retain", 0))[1] == 2
    assert after(BASE, *steps, ("retain", 0))[1] is None


def test_each_profile_changes_one_rule() -> None:
    """Each profile but the reference has one bug, and each bug has a profile."""
    wrong = [
        tuple(rule for rule, right in REFERENCE_RULES.items() if getattr(p.config, rule) != right)
        for p in cache_steps.profiles.values()
    ]
    assert sorted(wrong) == [(), *sorted((rule,) for rule in REFERENCE_RULES)]


#: The property that each control of the manifest violates first, and the length of a shortest trace to it. The other
#: controls violate a liveness property.
BREAKS = {
    "queue_before_map": ("pooled_wrapper_is_unreferenced", 4),
    "put_in_two_steps": ("live_entry_is_mapped", 6),
    "cleared_in_bulk": ("live_entry_is_mapped", 6),
    "reports_what_was_there": ("total_equals_sum_of_cache_sizes", 12),
    "removed_twice": ("entry_is_counted_by_one_remover", 17),
    "evicts_unchecked": ("eviction_removes_checked_head", 21),
    "retains_unchecked": ("lookup_returns_requested_position_only", 22),
    "recycled_uncleared": ("recycled_wrapper_is_cleared", 17),
    "future_erased": ("eviction_is_in_progress_while_task_exists", 10),
    "future_overwritten": ("eviction_is_in_progress_while_task_exists", 17),
    "bytes_kept": ("cache_size_equals_sum_of_entry_sizes", 16),
}
#: The controls whose exploration takes long.
LONG = {"future_erased"}


def explored(run: Run) -> Exploration:
    """Explores the space of the run."""
    return explore(run.space(), implementation=False)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.nightly] if n in LONG else []) for n in BREAKS])
def test_control_violates_its_property_in_minimal_number_of_steps(name: str) -> None:
    run = RUNS[name]
    first = explored(run).violations[0]
    assert (first.broken_property, len(first.calls)) == BREAKS[name]
    assert run.violates == camel(BREAKS[name][0])


def test_released_never_passed_removal_does_not_terminate() -> None:
    found = explored(RUNS["released_never_passed"])
    assert found.violations == []
    assert [lasso.name for lasso in found.lassos] == ["every_operation_terminates"]


def test_every_profile_has_a_control_that_violates_a_property() -> None:
    broken = {run.profile for run in RUNS.values() if run.violates}
    assert broken == set(cache_steps.profiles), "the control of the reference has endless lookups"
