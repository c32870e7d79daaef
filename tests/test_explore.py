"""The explorer: exact counts, shortest counterexamples, and what it must find."""

from __future__ import annotations

import pytest

from fuzz.cover import cover
from fuzz.explore import OUTSIDE, Bounded, bounded, explore
from fuzz.lockstep import replay
from fuzz.mutants import find_mutant, plant, plant_source, source_of
from fuzz.subject import Scope, find_subject, subject_names
from model.machine import BadValue

#: scope: distinct states, transitions, depth. Counted by TLC as well, on a twin written by hand: see test_tla.py.
COUNTS = {
    ("range_cache", "smoke"): (3_693, 73_860, 18),
    ("range_cache", "ci"): (17_942, 529_035, 19),
}
SCOPES = [(name, scope) for name in subject_names() for scope in find_subject(name).scopes]


@pytest.mark.parametrize(("subject", "scope"), COUNTS)
def test_a_scope_has_exactly_so_many_states_and_nothing_is_wrong_in_them(subject: str, scope: str) -> None:
    found = explore(bounded(find_subject(subject), scope))
    assert (found.distinct_states, found.transitions, found.depth) == COUNTS[subject, scope]
    assert [v.finding.signature for v in found.violations] == []
    assert [lasso.name for lasso in found.lassos] == []


@pytest.mark.parametrize(("subject", "scope"), SCOPES)
def test_every_bound_says_what_it_hides(subject: str, scope: str) -> None:
    each = find_subject(subject).scopes[scope]
    assert all(len(sentence.split()) >= 3 for sentence in each.hides().values())
    assert set(each.because) >= {"actions", *each.settings, *each.domains, *each.most}


def test_every_honest_subject_that_has_scopes_is_counted_here() -> None:
    assert {s for s, scope in SCOPES if find_subject(s).honest} <= {s for s, _ in COUNTS}


def test_every_transition_is_run_from_the_first_state() -> None:
    space = bounded(find_subject("range_cache"), "smoke")
    found = explore(space, implementation=False, properties=False)
    assert found.graph is not None
    walked = cover(space, found.graph)
    assert walked.finding is None
    assert walked.transitions == found.transitions


def test_the_walk_finds_a_difference_that_only_a_run_shows() -> None:
    """A start that ignores its config: loading a state sets what the start forgot."""
    space = bounded(plant(find_mutant("maximum-is-ignored-at-start")), "smoke")
    found = explore(space, properties=False)
    assert found.violations == []
    assert found.graph is not None
    walked = cover(space, found.graph)
    assert walked.finding is not None


def test_the_graph_is_the_models() -> None:
    """Each target of each transition, taken again by hand for a part of the states."""
    space = bounded(find_subject("range_cache"), "smoke")
    graph = explore(space, implementation=False, properties=False).graph
    assert graph is not None
    numbers = {state: i for i, state in enumerate(graph.states)}
    assert len(numbers) == len(graph.states)
    for number in range(0, len(graph.states), 37):
        targets = graph.targets[graph.offsets[number] : graph.offsets[number + 1]]
        for (_, act, _, arguments), target in zip(space.moves(graph.states[number]), targets, strict=True):
            form = space.machine.canonical(space.cfg, act(space.cfg, graph.states[number], *arguments)[0])
            assert target == (numbers[form] if space.within(form) else OUTSIDE)


def test_a_counterexample_is_shortest_and_replays() -> None:
    space = bounded(find_subject("range_cache"), "smoke", "pulsar-2026-07")
    violations = explore(space).violations
    assert [(v.finding.cause, v.depth) for v in violations] == [("property:latest_put_sets_the_counter", 2)]
    again = replay(space.subject, space.cfg, violations[0].finding.actions)
    assert again is not None
    assert again.cause == violations[0].finding.cause


@pytest.mark.parametrize(
    ("mutant", "cause"),
    [
        ("clear-reports-the-size-before", "view:sizes"),
        ("duplicate-leaves-its-slot", "view:queue"),
    ],
)
def test_planted_bugs_are_found(mutant: str, cause: str) -> None:
    violations = explore(bounded(plant(find_mutant(mutant)), "smoke"), properties=False).violations
    assert cause in [v.finding.cause for v in violations]


def test_a_step_that_does_not_come_back_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.explore._HANG_SECONDS", 1.0)
    found = explore(bounded(plant(find_mutant("mark-survives-reuse")), "smoke"), properties=False)
    assert "hang:size_pass" in [v.finding.cause for v in found.violations]


def test_a_goal_that_fair_actions_miss_is_a_lasso() -> None:
    """Expiry that never comes: time passes and passes go round without emptying the cache."""
    source = source_of("model.range_cache")
    rule = "    return timestamp_ns < threshold_ns\n"
    assert source.count(rule) == 1
    never = plant_source("range_cache", "model.range_cache", source.replace(rule, "    return False\n"))
    found = explore(bounded(never, "smoke"), implementation=False)
    assert "no_entry_lives_for_ever" in [lasso.name for lasso in found.lassos]
    assert all(lasso.actions for lasso in found.lassos)


def test_a_scope_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = find_subject("range_cache")
    smoke = subject.scopes["smoke"]
    endless = Scope(smoke.actions, smoke.settings, smoke.domains, {"slots": 2}, smoke.because)
    monkeypatch.setattr("fuzz.explore.LIMIT", 5_000)
    with pytest.raises(BadValue, match="bound a measure that grows"):
        explore(Bounded(subject, "reference", endless), implementation=False, properties=False)


def test_an_unknown_scope_names_the_known_ones() -> None:
    with pytest.raises(BadValue, match="has no scope huge; it has smoke, ci, nightly"):
        bounded(find_subject("range_cache"), "huge")


@pytest.mark.nightly
def test_the_nightly_scope() -> None:
    found = explore(bounded(find_subject("range_cache"), "nightly"))
    assert (found.distinct_states, found.violations) == (350_844, [])
