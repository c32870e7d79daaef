"""The explorer: exact counts, shortest counterexamples, and the failures that it must find.

The *edge cover* (`cover`) executes every transition of an explored graph, in traces from the initial state.
"""

from __future__ import annotations

import os
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

import fuzz.explore.shared
from fuzz.explore.counts import all_counts, counts_of
from fuzz.explore.edge_cover import cover
from fuzz.explore.search import OUTSIDE, Failure, Graph, Space, explained, explore, find_space
from fuzz.explore.spark import call_from_json
from fuzz.run.call import Call
from fuzz.run.finding import Cause, Finding, Kind
from fuzz.run.replay import replay
from fuzz.seeding import find_mutant, seed_bug, seed_source, source_of
from fuzz.subject import Scope, find_subject, subject_names
from invariants.properties import Event, always
from model.machine import BadValue, plain

RANGE_CACHE = find_subject("range_cache")
SMOKE = RANGE_CACHE.scopes["smoke"]

SCOPES = [(name, scope) for name in subject_names() for scope in find_subject(name).scopes]


@pytest.mark.parametrize(
    ("subject", "scope"), [pytest.param(*key, marks=[pytest.mark.nightly] * (key[1] != "smoke")) for key in SCOPES]
)
def test_a_scope_has_the_stored_counts_and_no_violation(subject: str, scope: str) -> None:
    found = explore(find_space(find_subject(subject), scope))
    assert (found.distinct_states, found.transitions, found.depth) == counts_of(subject, scope)
    if not find_subject(subject).canary:
        assert [v.signature for v in found.violations] == []
        assert [lasso.name for lasso in found.lassos] == []


@pytest.mark.parametrize(("subject", "scope"), SCOPES)
def test_every_bound_says_what_it_excludes(subject: str, scope: str) -> None:
    each = find_subject(subject).scopes[scope]
    assert all(len(sentence.split()) >= 3 for sentence in each.exclusions().values())
    assert set(each.reasons) >= {"actions", *each.settings, *each.domains, *each.bounds}


def test_every_scope_has_stored_counts() -> None:
    assert set(SCOPES) == set(all_counts())


@pytest.mark.parametrize("name", ["txn_rollout", pytest.param("range_cache", marks=pytest.mark.nightly)])
def test_every_transition_is_run_from_the_first_state(name: str) -> None:
    space = find_space(find_subject(name), "smoke")
    found = explore(space, implementation=False, properties=False)
    assert found.graph is not None
    walked = cover(space, found.graph)
    assert walked.finding is None
    assert walked.transitions == found.transitions


def test_the_edge_cover_finds_a_difference_that_only_a_trace_shows() -> None:
    """The constructor of the implementation ignores a setting. `load`, which the explorer uses, sets it."""
    space = find_space(seed_bug(find_mutant("max-requeue-setting-ignored-at-start")), "smoke")
    found = explore(space, properties=False)
    assert found.violations == []
    assert found.graph is not None
    walked = cover(space, found.graph)
    assert walked.finding is not None


@pytest.fixture(scope="module")
def smoke_graph() -> Graph:
    graph = explore(find_space(RANGE_CACHE, "smoke"), implementation=False, properties=False).graph
    assert graph is not None
    return graph


def edge_cover_finding(implementation: type, graph: Graph) -> Finding:
    """Returns the finding of the edge cover with an implementation of range_cache."""
    finding = cover(Space(replace(RANGE_CACHE, implementation=implementation), "reference", SMOKE), graph).finding
    assert finding is not None
    return finding


class Wrong(RANGE_CACHE.implementation):  # type: ignore[misc]
    """Is wrong from its second `advance` on. If `heals`, `load` or `check` repairs it; only a replay calls these."""

    steps, checked, heals = 0, False, True

    def advance(self, nanos: int) -> None:
        self.steps += 1
        self.now_ns += nanos + (self.steps > 1 and not self.checked)

    def check(self) -> list[str]:
        self.checked = self.heals
        return list(super().check())

    @classmethod
    def load(cls, cfg: Any, state: Any) -> Any:
        loaded = super().load(cfg, state)
        loaded.checked = cls.heals
        return loaded


@pytest.mark.parametrize(("heals", "cause"), [(True, "unstable:cover"), (False, "view:now_ns")])
def test_finding_of_the_edge_cover_that_no_replay_shows_is_unstable(
    heals: bool, cause: str, smoke_graph: Graph
) -> None:
    """The paths to the remaining transitions fail, too. The edge cover must end nevertheless."""
    finding = edge_cover_finding(type("Body", (Wrong,), {"heals": heals}), smoke_graph)
    assert str(finding.cause) == cause
    assert [call.action for call in finding.calls].count("advance") == 2


def test_edge_cover_that_does_not_end_is_a_hang(smoke_graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(RANGE_CACHE.implementation):  # type: ignore[misc]
        def clear(self, cache: int) -> Any:
            while self.now_ns:
                pass
            return super().clear(cache)

    monkeypatch.setattr("fuzz.explore.edge_cover._HANG_SECONDS", 0.5)
    assert edge_cover_finding(Endless, smoke_graph).cause == Cause(Kind.HANG, "clear")


def test_the_edge_cover_checks_no_property_without_history_variables() -> None:
    """Such a property fails earlier, at the second put, and must not hide the difference."""

    @always(RANGE_CACHE.machine, on=("put",))
    def every_put_adds(cfg: Any, before: Any, event: Event, after: Any) -> bool:
        """Every put adds an entry, which is false of a duplicate."""
        return bool(event.outcome)

    properties = ModuleType("properties")
    vars(properties)["every_put_adds"] = every_put_adds

    class Late(RANGE_CACHE.implementation):  # type: ignore[misc]
        puts = 0

        def put(self, *arguments: Any) -> Any:
            added = super().put(*arguments)
            self.puts += not added
            return added

        def time_pass(self, threshold_ns: int) -> Any:
            self.now_ns += self.puts > 0
            return super().time_pass(threshold_ns)

    space = Space(replace(RANGE_CACHE, implementation=Late, invariants=properties), "reference", SMOKE)
    graph = explore(space, implementation=False, properties=False).graph
    assert graph is not None
    finding = cover(space, graph).finding
    assert finding is not None
    assert finding.cause == Cause(Kind.OUTCOME, "time_pass")
    asked = replay(space.target, finding.calls)
    assert asked is not None
    assert asked.broken_property == "every_put_adds"


def test_the_search_calls_the_implementation_s_own_check() -> None:
    """Outcomes and views agree: only `check` reports that something is wrong."""

    class Loose(RANGE_CACHE.implementation):  # type: ignore[misc]
        def check(self) -> list[str]:
            return ["a counter is loose"] if self.now_ns else list(super().check())

    space = Space(replace(RANGE_CACHE, implementation=Loose), "reference", SMOKE)
    causes = [violation.cause for violation in explore(space, properties=False, jobs=1).violations]
    assert causes == [Cause(Kind.STRUCTURE, "a counter is loose")]


@pytest.fixture(scope="module")
def torn() -> Space:
    """A space with a wrong canonical form: it clears `accessed`, and so joins states that behave differently."""
    source = source_of("model.range_cache")
    rule = "e._replace(timestamp_ns=e.timestamp_ns - s.now_ns, copies=copies)"
    assert source.count(rule) == 1
    wrong = rule.replace("copies=copies", "copies=copies, accessed=False")
    return find_space(seed_source("range_cache", "model.range_cache", source.replace(rule, wrong)), "smoke")


def test_a_canonical_form_that_joins_states_is_a_finding_of_the_edge_cover(torn: Space) -> None:
    graph = explore(torn, implementation=False, properties=False).graph
    assert graph is not None
    finding = cover(torn, graph).finding
    assert finding is not None
    assert finding.cause.kind is Kind.CANONICAL
    assert replay(torn.target, finding.calls) is None
    assert finding.difference.actual == plain(_end(torn, finding))


def test_a_canonical_form_that_joins_states_is_a_finding_of_the_explorer(torn: Space) -> None:
    """The calls on the path to a failed state can lead to another state. The finding then blames the canonical form."""
    graph = explore(torn, implementation=False, properties=False).graph
    assert graph is not None
    failures = [Failure(Cause(Kind.PROPERTY, "any"), number, None) for number in range(len(graph.states))]
    kinds = [explained(torn, f, [graph.states[i] for i in graph.path(f.number)]) for f in failures]
    joined = [finding for finding in kinds if finding.cause.kind is Kind.CANONICAL]
    assert joined
    assert all(finding.difference.actual == plain(_end(torn, finding)) for finding in joined)
    assert {finding.cause for finding in kinds if finding not in joined} == {Cause(Kind.PROPERTY, "any")}


def _end(space: Space, finding: Finding) -> Any:
    state = space.machine.start(space.cfg)
    for name, arguments in finding.calls:
        state, _ = space.machine.step(space.cfg, state, name, arguments)
    return state


@pytest.mark.parametrize(("subject", "profile"), [("range_cache", "pulsar-2026-07"), ("txn_rollout", "reference")])
def test_the_number_of_processes_changes_nothing(subject: str, profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """States, their numbers, parents, transitions and violations equal those of one process."""
    monkeypatch.setattr("fuzz.explore.search.WORTH_SHARING", 2)
    space = find_space(find_subject(subject), "smoke", profile)
    alone, shared = (explore(space, implementation=False, jobs=jobs) for jobs in (1, 3))
    assert alone.graph == shared.graph
    assert alone.violations == shared.violations
    assert bool(alone.violations) == (profile != "reference")


def test_processes_that_share_a_frontier_run_the_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    """They find the same failures of a seeded bug as one process, although only this process imported its classes."""
    monkeypatch.setattr("fuzz.explore.search._HANG_SECONDS", 0.5)
    monkeypatch.setattr("fuzz.explore.search.WORTH_SHARING", 2)
    for mutant in ("duplicate-put-leaves-slot-in-queue", "requeue-keeps-accessed"):
        space = find_space(seed_bug(find_mutant(mutant)), "smoke")
        alone, shared = (explore(space, properties=False, jobs=jobs).violations for jobs in (1, 2))
        assert alone
        assert [v.cause for v in alone] == [v.cause for v in shared]


def test_the_graph_is_the_models() -> None:
    """For some states of the graph, the model takes every transition again, and reaches the same target."""
    space = find_space(find_subject("range_cache"), "smoke")
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
    space = find_space(find_subject("range_cache"), "smoke", "pulsar-2026-07")
    violations = explore(space).violations
    assert [(str(v.cause), len(v.calls)) for v in violations] == [("property:latest_put_sets_expected_read_count", 2)]
    again = replay(space.target, violations[0].calls)
    assert again is not None
    assert again.cause == violations[0].cause


@pytest.mark.parametrize(
    ("mutant", "cause"),
    [
        ("clear-reports-size-before-clearing", "view:sizes"),
        ("duplicate-put-leaves-slot-in-queue", "view:queue"),
    ],
)
def test_seeded_bugs_are_found(mutant: str, cause: str) -> None:
    violations = explore(find_space(seed_bug(find_mutant(mutant)), "smoke"), properties=False).violations
    assert cause in [str(v.cause) for v in violations]


def test_hanging_step_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.explore.search._HANG_SECONDS", 1.0)
    found = explore(find_space(seed_bug(find_mutant("requeue-keeps-accessed")), "smoke"), properties=False)
    assert Cause(Kind.HANG, "size_pass") in [v.cause for v in found.violations]
    assert found.graph is not None
    assert len(found.graph.offsets) <= len(found.graph.states), "not every state is expanded"


def test_a_goal_that_fair_actions_miss_is_a_lasso() -> None:
    """No entry ever expires: advances and time passes repeat for ever, and the cache is never emptied.

    A lasso is a trace to such a cycle.
    """
    source = source_of("model.range_cache")
    rule = "    return timestamp_ns < threshold_ns\n"
    assert source.count(rule) == 1
    never = seed_source("range_cache", "model.range_cache", source.replace(rule, "    return False\n"))
    found = explore(find_space(never, "smoke"), implementation=False)
    assert "every_entry_is_eventually_evicted" in [lasso.name for lasso in found.lassos]
    assert all(lasso.calls for lasso in found.lassos)


def test_a_scope_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = find_subject("range_cache")
    smoke = subject.scopes["smoke"]
    endless = Scope(smoke.actions, smoke.settings, smoke.domains, {"slots": 2}, smoke.reasons)
    monkeypatch.setattr("fuzz.explore.search.LIMIT", 5_000)
    with pytest.raises(BadValue, match="bound a measure that grows"):
        explore(Space(subject, "reference", endless), implementation=False, properties=False)


def test_an_unknown_scope_names_the_known_ones() -> None:
    with pytest.raises(BadValue, match="has no scope huge; it has smoke, ci, nightly"):
        find_space(find_subject("range_cache"), "huge")


def test_false_property_is_reported_beside_a_difference_on_its_path() -> None:
    @always(RANGE_CACHE.machine)
    def queue_is_short(cfg: Any, s: Any) -> bool:
        """At most one entry is in the queue."""
        return len(s.queue) < 2

    class Late(RANGE_CACHE.implementation):  # type: ignore[misc]
        def put(self, *arguments: Any) -> Any:
            self.now_ns += 1
            return super().put(*arguments)

    properties = ModuleType("properties")
    vars(properties)["queue_is_short"] = queue_is_short
    space = Space(replace(RANGE_CACHE, implementation=Late, invariants=properties), "reference", SMOKE)
    assert {str(v.cause) for v in explore(space, jobs=1).violations} == {
        "property:queue_is_short",
        "view:now_ns",
    }


def test_a_cause_is_not_hidden_by_another_at_the_same_action() -> None:
    class Late(RANGE_CACHE.implementation):  # type: ignore[misc]
        def put(self, cache: int, position: Any, size: int, expected_reads: int) -> Any:
            self.now_ns += expected_reads == 0
            outcome = super().put(cache, position, size, expected_reads)
            return outcome if expected_reads == 0 else "another"

    space = Space(replace(RANGE_CACHE, implementation=Late), "reference", SMOKE)
    found = explore(space, properties=False, jobs=1).violations
    assert {str(each.cause) for each in found} == {"view:now_ns", "outcome:put"}


def test_a_process_that_ends_early_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other processes must not keep the pipe of the ended process open."""
    work = fuzz.explore.shared._work

    def dies(member: Any, number: int, *rest: Any) -> None:
        if number == 1:
            os._exit(1)
        work(member, number, *rest)

    monkeypatch.setattr("fuzz.explore.shared._work", dies)
    monkeypatch.setattr("fuzz.explore.search.WORTH_SHARING", 2)
    with pytest.raises(BadValue, match="ended early"):
        explore(find_space(RANGE_CACHE, "smoke"), implementation=False, jobs=3)


def test_states_expanded_before_a_hang_are_covered_with_any_number_of_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hang ends the search, so some states are not expanded. The model runs the transitions of the others."""
    monkeypatch.setattr("fuzz.explore.search._HANG_SECONDS", 1.0)
    monkeypatch.setattr("fuzz.explore.search.WORTH_SHARING", 2)
    space = find_space(seed_bug(find_mutant("requeue-keeps-accessed")), "smoke")
    alone, shared = (explore(space, properties=False, jobs=jobs) for jobs in (1, 2))
    assert Cause(Kind.HANG, "size_pass") in [v.cause for v in alone.violations]
    assert alone.graph is not None
    assert alone.graph == shared.graph
    assert len(alone.graph.offsets) <= len(alone.graph.states)
    model = find_space(RANGE_CACHE, "smoke")
    walked = cover(model, alone.graph)
    assert (walked.finding, walked.transitions) == (None, len(alone.graph.targets))


def test_a_failure_on_a_worker_keeps_its_call() -> None:
    assert call_from_json(find_space(RANGE_CACHE, "smoke"), "clear", b'{"cache":0}') == Call("clear", (0,))
    assert call_from_json(find_space(RANGE_CACHE, "smoke"), "", b"{}") is None


# ---- what the search must not leave out ---------------------------------------------------------------

CANARY = find_subject("canary")
FALSE_PROPERTY = "property:at_most_four_tokens_are_taken"


def causes(space: Space, **options: Any) -> list[str]:
    """Returns the causes of all violations in the canary. None of them may hide a state: the canary has 63."""
    found = explore(space, jobs=1, **options)
    assert found.distinct_states == 63
    return sorted(str(violation.cause) for violation in found.violations)


@pytest.mark.parametrize(
    ("find", "wrong", "cause"),
    [
        (
            "    given = min(tokens, s.tokens)\n",
            "    given = min(tokens, s.tokens) + 0 // (s.tokens - 5)\n",
            "crash:take",
        ),
        ("refused(s, ", "refused(s._replace(taken=0), ", "stutter:add"),
    ],
)
def test_a_model_that_fails_alone_is_a_finding(find: str, wrong: str, cause: str) -> None:
    source = source_of("model.canary")
    assert source.count(find) == 1
    space = find_space(seed_source("canary", "model.canary", source.replace(find, wrong)), "smoke")
    violations = explore(space, implementation=False).violations
    [finding] = [v for v in violations if str(v.cause).startswith(cause)]
    assert finding.calls[-1].action == cause.partition(":")[2]
    assert (
        replay(replace(space.target, model_only=True), finding.calls, skipped=frozenset([FALSE_PROPERTY])) is not None
    )
    graph = explore(space, implementation=False, properties=False).graph
    assert graph is not None
    assert cover(space, graph).finding is not None


def test_properties_are_checked_in_states_outside_the_bounds() -> None:
    """The property holds in all states within the bounds. A step from one of them leads to a state that violates it."""
    space = Space(CANARY, "reference", replace(CANARY.scopes["smoke"], bounds={"taken": 4}))
    found = explore(space, implementation=False)
    assert found.distinct_states == 45
    assert [(str(v.cause), v.calls[-1].action) for v in found.violations] == [(FALSE_PROPERTY, "take")]


def test_an_exception_of_a_property_is_a_finding() -> None:
    @always(CANARY.machine)
    def raises_in_a_state(cfg: Any, s: Any) -> bool:
        """It has no value with five tokens."""
        return bool(1 // (s.tokens - 5) <= 1)

    @always(CANARY.machine, on=("take",))
    def raises_at_a_step(cfg: Any, before: Any, event: Event, after: Any) -> bool:
        """It has no value with five tokens before."""
        return bool(1 // (before.tokens - 5) <= 1)

    properties = ModuleType("properties")
    vars(properties).update(raises_in_a_state=raises_in_a_state, raises_at_a_step=raises_at_a_step)
    space = Space(replace(CANARY, invariants=properties), "reference", CANARY.scopes["smoke"])
    expected = ["crash:add ZeroDivisionError", "crash:take ZeroDivisionError"]
    assert causes(space, implementation=False) == expected
    assert causes(space) == [*expected, "view:tokens"]


def test_a_load_that_fails_hides_no_state_and_no_property() -> None:
    class Unloadable(CANARY.implementation):  # type: ignore[misc]
        @classmethod
        def load(cls, cfg: Any, state: Any) -> Any:
            raise ZeroDivisionError

    space = Space(replace(CANARY, implementation=Unloadable), "reference", CANARY.scopes["smoke"])
    assert causes(space) == ["load:load", FALSE_PROPERTY]


@pytest.mark.parametrize("bound", [6, 1], ids=["within the bounds", "outside the bounds"])
@pytest.mark.parametrize("of_step", [False, True], ids=["state", "step"])
def test_a_property_that_hangs_is_not_blamed_on_a_call(
    of_step: bool, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    @always(CANARY.machine)
    def hangs_in_a_state(cfg: Any, s: Any) -> bool:
        """It has no value after two tokens were taken."""
        while s.taken == 2:
            pass
        return True

    @always(CANARY.machine)
    def hangs_at_a_step(cfg: Any, before: Any, event: Event, after: Any) -> bool:
        """It has no value at a step that takes the second token."""
        while after.taken == 2:
            pass
        return True

    properties = ModuleType("properties")
    vars(properties)["hangs"] = hangs_at_a_step if of_step else hangs_in_a_state
    monkeypatch.setattr("fuzz.explore.search._HANG_SECONDS", 0.2)
    scope = replace(CANARY.scopes["smoke"], bounds={"taken": bound})
    space = Space(replace(CANARY, invariants=properties), "reference", scope)
    [violation] = explore(space, implementation=False, jobs=1).violations
    assert violation.cause == Cause(Kind.HANG, "property")
    assert violation.calls[-1].action == "take"
    assert violation.difference.message.startswith("hangs_at_a_step" if of_step else "hangs_in_a_state")


def test_a_failure_of_a_seeded_bug_comes_from_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seeded bug has its own copies of the classes, and its call has such an object as an argument."""
    monkeypatch.setattr("fuzz.explore.search.WORTH_SHARING", 2)
    bug = find_mutant("ack-set-replaces-previous-one")
    broken = seed_bug(bug)
    scope = replace(broken.scopes["smoke"], actions=("ack_individual", "flush", "written"))
    found = [explore(Space(broken, bug.profile, scope), jobs=jobs).violations for jobs in (1, 2)]
    assert [str(each.cause) for each in found[0]] == [str(each.cause) for each in found[1]] != []
