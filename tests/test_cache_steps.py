"""The range caches at the grain of the source: a stateful test, and interleavings by example."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz.explore.search import Exploration, explore
from fuzz.run.stateful import stateful_test
from fuzz.subject import find_subject
from fuzz.tlc.manifest import Run, all_runs
from fuzz.tlc.module import camel
from fuzz.tlc.runs import MODULES
from model.cache_steps.machine import LOCKED, cache_steps
from model.cache_steps.threads import RIGHT, Config, State, start

TestCacheSteps = stateful_test(find_subject("cache_steps"))

BASE = Config(positions=3, pool=3, inserters=2, removers=1, readers=1)
RUNS = {run.name: run for run in all_runs(MODULES) if run.component == "cache_steps"}
SIZE_PASS = ("begin_eviction", "measure")
EVICT_ONE = ("peek", "visit_for_size", "unmap_evicted", "clear_evicted", "subtract_evicted", "pop", "recycle")
REMOVE_ONE = (("find_next", 0), ("take", 0), ("unmap", 0), ("clear", 0))

Action = tuple[Any, ...] | str


def after(cfg: Config, *steps: Action, on: State | None = None) -> tuple[State, Any]:
    """The state after some steps, and the last one's outcome."""
    s, outcome = on or start(cfg), None
    for step in steps:
        name, *arguments = (step,) if isinstance(step, str) else step
        s, outcome = cache_steps.step(cfg, s, name, tuple(arguments))
    return s, outcome


def profile(name: str) -> Config:
    """The settings of these examples with the rules of a profile."""
    rules: Config = cache_steps.profiles[name].config
    return rules._replace(positions=3, pool=3, inserters=2, removers=1, readers=1)


def put(position: int, wrapper: int, inserter: int = 0) -> list[Action]:
    """An entry is inserted and counted by its cache; not yet in the total."""
    return [("insert", inserter, 0, position, wrapper), ("publish", inserter), ("count_in_cache", inserter)]


def added(position: int, wrapper: int, inserter: int = 0) -> list[Action]:
    """An entry is inserted, and the total counts it; the eviction is not yet scheduled."""
    return [*put(position, wrapper, inserter), ("count_in_total", inserter)]


def whole(position: int, wrapper: int) -> list[Action]:
    """A whole insert that schedules an eviction."""
    return [*added(position, wrapper), ("schedule", 0)]


# ---- what holds


def test_an_entry_is_inserted_and_evicted_and_nothing_is_left() -> None:
    s, goal = after(BASE, *whole(1, 0), *SIZE_PASS)
    assert (goal, s.sizes, s.total, s.mapped, s.queue) == (2, (2,), 2, (None, 0, None), (0,))
    s, _ = after(BASE, *EVICT_ONE, "peek", "report_evicted", "end_eviction", on=s)
    assert s == start(BASE)


def test_the_total_is_negative_for_a_moment() -> None:
    """An entry that its cache has counted can be removed, and reported, before the total counts it."""
    removed = [("remove", 0, 0, 2), *REMOVE_ONE, ("find_next", 0), ("subtract", 0), ("report", 0)]
    s, total = after(BASE, *put(2, 0), *removed)
    assert (total, s.sizes) == (-3, (0,))
    s, triggers = after(BASE, ("count_in_total", 0), on=s)
    assert (triggers, s.total) == (False, 0)


def test_an_entry_waits_for_its_cache_to_count_it() -> None:
    s, _ = after(BASE, *whole(0, 0), *SIZE_PASS, ("insert", 1, 0, 1, 1), ("publish", 1), *EVICT_ONE, "peek")
    assert after(BASE, "visit_for_size", on=s)[1] == LOCKED
    assert after(BASE, ("remove", 0, 0, 2), ("find_next", 0), ("take", 0), on=s)[1] == LOCKED
    assert after(BASE, ("count_in_cache", 1), "visit_for_size", on=s)[1] == "STOP"


def test_a_removal_and_an_eviction_meet_and_the_entry_is_counted_once() -> None:
    """The removal found the wrapper, the eviction cleared it first: the removal gives back what is another's."""
    s, _ = after(BASE, *whole(1, 0), ("remove", 0, 0, 2), ("find_next", 0), *SIZE_PASS, *EVICT_ONE)
    s, is_mine = after(BASE, ("take", 0), on=s)
    assert (is_mine, s.sizes) == (False, (0,))
    s, _ = after(BASE, ("find_next", 0), "peek", "report_evicted", "end_eviction", on=s)
    assert s == start(BASE)


def test_the_slot_of_a_removed_entry_stays_until_an_eviction_meets_it() -> None:
    s, _ = after(BASE, *whole(1, 0), ("remove", 0, 0, 2), *REMOVE_ONE, *whole(1, 1)[:3])
    assert (s.mapped, s.queue, s.wrappers[0].key, s.wrappers[1].key) == ((None, 1, None), (0, 1), None, 1)
    s, verdict = after(BASE, *SIZE_PASS, "peek", "visit_for_size", on=s)
    assert verdict == "MISSING"
    s, _ = after(BASE, "pop", "recycle", on=s)
    assert (s.queue, s.wrappers[0].pooled) == ((1,), True)


def test_a_late_lookup_marks_another_entry() -> None:
    """Its wrapper was put away and used again: the other entry gets a second visit, and the lookup gets nothing."""
    cfg = BASE._replace(extend_ttl_of_recently_accessed=True)
    s, _ = after(cfg, *whole(0, 0), ("find", 0, 0, 0), ("compare", 0), *SIZE_PASS, *EVICT_ONE, *added(2, 0, 1))
    s, _ = after(cfg, ("mark", 0), on=s)
    assert (s.wrappers[0].key, s.wrappers[0].accessed) == (2, True)
    s, given = after(cfg, ("retain", 0), on=s)
    assert given is None
    s, _ = after(cfg, "peek", "visit_for_size", "report_evicted", "end_eviction", on=s)
    s, verdict = after(cfg, "begin_periodic_eviction", "peek", ("visit_for_time", True), on=s)
    assert verdict == "REQUEUE"


def test_a_mark_on_a_free_wrapper_is_there_when_it_is_used_again() -> None:
    s, _ = after(BASE, *whole(0, 0), ("find", 0, 0, 0), ("compare", 0), *SIZE_PASS, *EVICT_ONE, ("mark", 0))
    assert (s.wrappers[0].pooled, s.wrappers[0].accessed) == (True, True)
    s, _ = after(BASE, ("insert", 0, 0, 2, 0), on=s)
    assert s.wrappers[0].accessed


def test_a_position_is_taken_when_it_is_in_the_map_and_not_when_it_is_counted() -> None:
    s, is_new = after(BASE, ("insert", 0, 0, 1, 0), ("insert", 1, 0, 1, 1))
    assert is_new is False
    assert (s.mapped, s.queue, s.wrappers[1].pooled) == ((None, 0, None), (), True)


def test_the_second_of_two_triggers_leaves_the_marker() -> None:
    s, _ = after(BASE, *added(0, 0), *added(1, 1, 1), ("schedule", 0))
    s, scheduled = after(BASE, ("schedule", 1), on=s)
    assert (scheduled, s.marker, s.scheduled) == (False, True, 1)


# ---- what went wrong, and what does


def test_as_shipped_the_second_of_two_triggers_erases_the_marker_and_both_schedule() -> None:
    cfg = profile("marker-erased")
    s, _ = after(cfg, *added(0, 0), *added(1, 1, 1), ("schedule", 0), ("schedule", 1))
    assert (s.marker, s.scheduled) == (False, 1)
    s, _ = after(cfg, ("schedule", 1), ("schedule", 1), on=s)
    assert (s.marker, s.scheduled) == (True, 2)


def test_as_shipped_the_periodic_task_takes_the_marker_of_a_task_that_waits() -> None:
    steps = [*whole(0, 0), "begin_periodic_eviction", "peek", ("visit_for_time", False), "measure", *EVICT_ONE]
    s, _ = after(profile("marker-overwritten"), *steps, "peek", "report_evicted", "end_eviction")
    assert (s.marker, s.scheduled) == (False, 1)
    s, _ = after(BASE, *steps, "peek", "report_evicted", "end_eviction")
    assert (s.marker, s.scheduled) == (True, 1)


def test_a_duplicate_that_is_in_the_queue_already_stays_there_and_its_wrapper_comes_again() -> None:
    cfg = profile("queue-before-map")
    s, _ = after(cfg, *put(1, 0), ("insert", 1, 0, 1, 1), ("publish", 1), *put(2, 1, 1))
    assert s.queue == (0, 1, 1)


def test_a_put_that_lost_is_counted_all_the_same() -> None:
    cfg = profile("put-in-two-steps")
    s, is_new = after(cfg, ("insert", 0, 0, 1, 0), ("insert", 1, 0, 1, 1), ("publish", 0), ("publish", 1))
    assert is_new is False
    s, size = after(cfg, ("publish", 0), ("publish", 1), ("count_in_cache", 0), ("count_in_cache", 1), on=s)
    assert (size, s.mapped) == (4, (None, 0, None))


def test_a_removal_that_does_not_look_again_counts_what_was_evicted() -> None:
    cfg = profile("removed-twice")
    s, _ = after(cfg, *whole(1, 0), ("remove", 0, 0, 2), ("find_next", 0), *SIZE_PASS, *EVICT_ONE)
    s, _ = after(cfg, ("take", 0), ("unmap", 0), ("clear", 0), ("find_next", 0), ("subtract", 0), on=s)
    assert s.sizes == (-2,)


def test_a_lookup_that_does_not_look_again_gives_another_entry() -> None:
    steps = [*whole(0, 0), ("find", 0, 0, 0), ("compare", 0), *SIZE_PASS, *EVICT_ONE, *put(2, 0), ("mark", 0)]
    assert after(profile("retains-unchecked"), *steps, ("retain", 0))[1] == 2
    assert after(BASE, *steps, ("retain", 0))[1] is None


def test_every_rule_that_has_a_choice_has_a_profile_that_makes_it() -> None:
    """A profile is one bug, and each bug is a profile: else a control would be missing."""
    wrong = [
        tuple(rule for rule, right in RIGHT.items() if getattr(p.config, rule) != right)
        for p in cache_steps.profiles.values()
    ]
    assert sorted(wrong) == [(), *sorted((rule,) for rule in RIGHT)]


#: What breaks first in each control of the manifest, and how many steps the shortest run to it has. The others break
#: what must come in the end.
BREAKS = {
    "queue_before_map": ("pooled_wrapper_is_unreferenced", 4),
    "put_in_two_steps": ("live_entry_is_mapped", 6),
    "cleared_in_bulk": ("live_entry_is_mapped", 6),
    "reports_what_was_there": ("total_equals_sum_of_cache_sizes", 12),
    "removed_twice": ("entry_is_counted_by_one_remover", 17),
    "evicts_unchecked": ("eviction_removes_checked_head", 21),
    "retains_unchecked": ("lookup_returns_requested_position_only", 22),
    "recycled_uncleared": ("recycled_wrapper_is_cleared", 17),
    "marker_erased": ("marker_is_set_while_task_exists", 10),
    "marker_overwritten": ("marker_is_set_while_task_exists", 17),
    "bytes_kept": ("cache_size_equals_sum_of_entry_sizes", 16),
}
LONG = {"marker_erased"}


def explored(run: Run) -> Exploration:
    """What the explorer finds in the run's space."""
    return explore(run.space(), implementation=False)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.nightly] if n in LONG else []) for n in BREAKS])
def test_a_control_breaks_its_promise_in_so_many_steps(name: str) -> None:
    run = RUNS[name]
    first = explored(run).violations[0].finding
    assert (first.broken_property, len(first.calls)) == BREAKS[name]
    assert run.violates == camel(BREAKS[name][0])


def test_a_removal_that_never_passes_a_released_value_goes_round_without_end() -> None:
    found = explored(RUNS["released_never_passed"])
    assert found.violations == []
    assert [lasso.name for lasso in found.lassos] == ["every_operation_terminates"]


def test_every_profile_is_a_control_and_all_break_something() -> None:
    broken = {run.profile for run in RUNS.values() if run.violates}
    assert broken == set(cache_steps.profiles), "reference: with lookups that go on for ever"
