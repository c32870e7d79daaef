"""Shrinking: the length of shrunk traces, and that they show the same finding."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import replace
from itertools import islice, starmap
from types import ModuleType
from typing import Any

import pytest

from fuzz.campaign.corpus import collect
from fuzz.campaign.local import Request, shrunk
from fuzz.campaign.worker import Spec, shrunk_row, trace_of
from fuzz.defects.table import find_defect
from fuzz.explore.search import explore, find_space
from fuzz.mutation.kill_matrix import fuzz_mutant, is_of_model
from fuzz.run.call import Call
from fuzz.run.checks import all_but
from fuzz.run.finding import Finding
from fuzz.run.lockstep import Lockstep
from fuzz.run.replay import replay
from fuzz.run.shrink import shortest, shrink
from fuzz.run.watchdog import Hang, watchdog
from fuzz.seeding import find_mutant, mutants_of, seed_bug
from fuzz.subject import Subject, find_profile, find_subject
from fuzz.target import Target, resolve
from impl.range_cache import RangeCaches
from invariants.properties import always
from model.canary import Config as CanaryConfig
from model.canary import State as CanaryState
from model.machine import Machine
from model.positions import Position
from model.range_cache import Config, Removed, State

#: by mutant, the length of its shortest counterexample, worked out by hand
SHORTEST = {
    "clear-reports-size-before-clearing": 3,
    "lookup-compares-key-by-identity": 2,
    "duplicate-put-leaves-slot-in-queue": 2,
    "max-requeue-setting-ignored-at-start": 1,
    "undelivered-release-marks-read": 3,
    "replay-is-lost": 3,
    "deallocated-value-stays-counted": 3,
}


def findings(target: Target, seeds: int = 120, most: int | None = None) -> list[Finding]:
    lockstep = Lockstep(target)
    return list(islice((f for f in map(lockstep.run, range(seeds)) if f is not None), most))


def seeded(mutant: str) -> Target:
    return resolve(find_mutant(mutant).subject, mutant=mutant)


@pytest.mark.parametrize("most", [2, pytest.param(10, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("mutant", SHORTEST)
def test_results_are_as_short_as_can_be(mutant: str, most: int) -> None:
    """The median is the shortest length. No result has more than one step more."""
    target = seeded(mutant)
    lengths = [len(shrink(target, f).calls) for f in findings(target, most=most)]
    assert lengths, "nothing was found"
    assert sorted(lengths)[len(lengths) // 2] == SHORTEST[mutant]
    assert max(lengths) <= SHORTEST[mutant] + 1


def test_arguments_and_settings_are_the_simplest() -> None:
    target = resolve("range_cache", "pulsar-2026-07")
    for finding in findings(target, 40):
        if finding.broken_property == "latest_put_sets_expected_read_count":
            short = shrink(target, finding)
            assert short.calls == (("put", (0, (1, 0), 10, 1)), ("put", (0, (1, 0), 10, 0)))
            simplest = {name: values[0] for name, values in target.subject.settings.items()}
            assert short.config == target.config._replace(**simplest)
            return
    pytest.fail("the property was not broken")


def test_a_result_is_the_same_finding_and_reproduces() -> None:
    target = resolve("range_cache", "stash")
    found = findings(target, most=5)
    assert len(found) == 5
    for finding in found:
        short = shrink(target, finding)
        assert short.cause == finding.cause
        skipped = all_but(target.subject, short.broken_property)
        again = replay(target.with_config(short.config), short.calls, skipped=skipped)
        assert again is not None
        assert again.signature == short.signature
        assert len(again.calls) == len(short.calls)


def test_shrinking_is_a_function_of_the_finding() -> None:
    target = seeded("eviction-pops-unchecked-entry")
    finding = findings(target, seeds=20, most=1)[0]
    once, again = (shrink(target, finding, budget_steps=20_000) for _ in range(2))
    assert once == again
    assert len(once.calls) < len(finding.calls)


def test_a_small_budget_gives_what_it_has() -> None:
    target = seeded("replay-is-lost")
    finding = findings(target, seeds=20, most=1)[0]
    short = shrink(target, finding, budget_steps=40)
    assert short.cause == finding.cause
    assert len(short.calls) <= len(finding.calls)


def test_one_profile_against_another_shrinks_too() -> None:
    target = resolve("range_cache", against="stash")
    finding = next(f for f in map(Lockstep(target).run, range(100)) if f is not None)
    assert len(shrink(target, finding).calls) <= 3


class ShortQueue(RangeCaches):
    """A bug: the removal queue keeps the last 100 wrappers only."""

    def __init__(self, cfg: Config) -> None:
        super().__init__(cfg)
        self._queue = deque(maxlen=100)


class NarrowSize(RangeCaches):
    """A bug: the sizes of entries have 32 bits."""

    def put(self, cache: int, position: Position, bytes: int, expected_reads: int) -> bool:
        return super().put(cache, position, bytes % 2**32, expected_reads)


def of_implementation(implementation: type) -> Target:
    target = resolve("range_cache")
    return replace(target, subject=replace(target.subject, implementation=implementation))


def test_bursts_are_removed_as_wholes_first() -> None:
    """The failure needs the puts only. Shrinking first removes the burst of lookups, and the burst of three actions."""
    target = of_implementation(ShortQueue)
    puts = [Call("put", (0, Position(1, n), 1, 1)) for n in range(130)]
    gets = [Call("get", (0, Position(2, 0), False))] * 200
    in_turn = [gets[0], Call("advance", (1,)), Call("clear", (1,))] * 100
    finding = replay(target, [*gets, *puts[:100], *in_turn, *puts[100:]])
    assert finding is not None
    short = shrink(target, finding, budget_steps=1500)
    assert [call.action for call in short.calls] == ["put"] * 101, "within the steps of a few traces"


def test_wide_values_become_small() -> None:
    """A value of several calls becomes small in all of them at once, and only as far as the cause stays."""
    target = of_implementation(NarrowSize)
    far = Position(2**40, 2**31 - 1)
    calls = [Call("put", (0, far, 2**53 + 2**32, 2**16)), Call("get", (0, far, False)), Call("advance", (2**62,))]
    wide = target.config._replace(ttl_ns=2**63 - 1)
    finding = replay(target.with_config(wide), calls)
    assert finding is not None
    short = shrink(target, finding)
    assert short.calls == (("put", (0, (1, 0), 2**32, 1)),)
    assert short.config.ttl_ns == 10


def test_a_trace_ends_where_another_call_shows_the_cause() -> None:
    class Wrong(RangeCaches):
        def clear(self, cache: int) -> Removed:
            self.now_ns += 1
            return super().clear(cache)

        def time_pass(self, threshold_ns: int) -> Removed:
            self.now_ns += len(self._queue) >= 3
            return super().time_pass(threshold_ns)

    target = of_implementation(Wrong)
    puts = [Call("put", (0, Position(1, n), 10, 1)) for n in (0, 1, 6)]
    finding = replay(target, [*puts, Call("time_pass", (-10,))])
    assert finding is not None
    assert finding.calls[-1].action == "time_pass"
    assert shrink(target, finding).calls == (("clear", (0,)),)


def test_settings_of_the_profile_stay() -> None:
    """A trace draws only settings that the profile leaves at their defaults, and shrinking changes only these."""
    target = resolve("batch_acks", "pulsar-4.0")
    finding = Lockstep(target).run(5)
    assert finding is not None
    short, drawn = shrink(target, finding, budget_steps=6000), target.subject.drawn_settings(target.config)
    assert short.config == target.config._replace(**{name: getattr(short.config, name) for name in drawn})
    assert short.config != finding.config


def test_a_candidate_whose_implementation_cannot_be_made_in_time_is_no_counterexample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hangs(*_: Any) -> Any:
        raise Hang(1.0)

    target = seeded("clear-reports-size-before-clearing")
    [finding] = findings(target, most=1)
    for engine in ("shrink", "replay"):
        monkeypatch.setattr(f"fuzz.run.{engine}.Pair", hangs)
    assert shrink(target, finding).cause == finding.cause


def test_a_later_seed_gives_a_shorter_trace_with_the_same_cause() -> None:
    """`shortest` finds a shorter trace than `shrink`, because it also searches later seeds for the cause."""
    target = resolve("cache_steps", "bytes-kept")
    finding = Lockstep(target).run(9)
    assert finding is not None
    short, best = shrink(target, finding), shortest(target, finding)
    assert len(short.calls) > len(best.calls) == 15
    assert best.cause == short.cause == finding.cause
    assert best.seed == finding.seed


@pytest.mark.parametrize(
    ("component", "defect", "calls", "least"),
    [
        (
            "cache_steps",
            "periodic-task-erases-eviction-in-progress",
            [
                ("insert", (0, 0, 0, 0)),
                *[(name, (0,)) for name in ("publish", "count_in_cache", "count_in_total")],
                *[("begin_periodic_eviction", ()), ("peek", ()), ("visit_for_time", (True,))],
                *[(name, ()) for name in ("unmap_evicted", "mark_evicted_removed", "subtract_evicted")],
                *[(name, ()) for name in ("pop", "recycle", "peek")],
                *[(name, ()) for name in ("report_evicted", "measure", "end_eviction")],
                ("schedule", (0,)),
                *[(name, ()) for name in ("begin_periodic_eviction", "peek", "measure", "end_eviction")],
            ],
            10,
        ),
        (
            "bundle_transfer",
            "stale-owner-loads-topic-again",
            [
                *[("transfer", (1,)), ("override_stuck", (1,)), ("deliver", (1,)), ("jump", (2,)), ("deliver", (1,))],
                *[("lose_session", (1,)), ("override", (0,)), ("register", (1,)), ("break_connection", (0, 2))],
                *[("lookup", (0, 2, 1)), ("connect", (0, 2)), ("begin_load", (0, 1)), ("open_topic", (0, 1, 0))],
            ],
            11,
        ),
    ],
)
def test_another_order_and_another_call_make_a_trace_shorter(
    component: str, defect: str, calls: list[tuple[str, Any]], least: int
) -> None:
    row = find_defect(component, defect)
    target = Target(find_subject(component), row.config())
    finding = replay(target, list(starmap(Call, calls)), skipped=all_but(target.subject, row.property))
    assert finding is not None
    assert len(finding.calls) == len(calls) > len(shrink(target, finding).calls) == least


@pytest.mark.nightly
def test_results_against_the_explorers_shortest() -> None:
    """For the bugs that the smoke scope shows, the median trace is a shortest one, which the explorer finds.

    No trace is longer than 1.5 times the shortest, or than the shortest and one step.
    """
    pairs = {}
    for mutant in mutants_of("range_cache"):
        if is_of_model(mutant) or mutant.profile != "reference":
            continue
        subject = seed_bug(mutant)
        shortest = {v.cause: len(v.calls) for v in explore(find_space(subject, "smoke"), properties=False).violations}
        finding, _ = fuzz_mutant(subject, "reference", of_model=False, seconds=30.0)
        assert finding is not None
        short = shrink(Target(subject, find_profile(subject, "reference")), finding)
        if short.cause in shortest:
            pairs[mutant.id] = len(short.calls), shortest[short.cause]
    assert len(pairs) >= 10
    assert statistics.median(ours - best for ours, best in pairs.values()) <= 0
    assert all(ours <= max(best + 1, 1.5 * best) for ours, best in pairs.values()), pairs


def fragile() -> Machine[Any, Any]:
    """Returns a machine in which a trace without its first call raises another exception."""
    machine: Machine[Any, Any] = Machine("canary", CanaryConfig, lambda cfg: CanaryState(0, 0), source="test")

    @machine.action
    def make(cfg: Any, s: Any) -> Any:
        """Makes."""
        return s._replace(tokens=1), None

    @machine.action
    def use(cfg: Any, s: Any) -> Any:
        """Raises KeyError before `make`."""
        return s._replace(taken={1: 1}[s.tokens]), None

    @machine.action
    def fail(cfg: Any, s: Any) -> Any:
        """Raises IndexError after `use`."""
        return s, [0, 0][s.taken * 2]

    @machine.action
    def spin(cfg: Any, s: Any) -> Any:
        """Does not return after `use`."""
        while s.taken:
            pass
        return s, None

    return machine


@pytest.mark.parametrize(("last", "cause"), [("fail", "crash:fail IndexError"), ("spin", "hang:spin")])
def test_a_model_that_raises_or_hangs_is_shrunk(last: str, cause: str) -> None:
    target = Target(Subject(fragile(), None, ModuleType("none"), {}), CanaryConfig(), model_only=True)
    finding = replay(target, [Call(name, ()) for name in ("make", "make", "use", last)], hang_seconds=0.1)
    assert finding is not None
    with watchdog(20):
        short = shrink(target, finding)
        trace = trace_of(target, Spec("canary"), short)
    assert str(short.cause) == cause
    assert [call.action for call in short.calls] == ["make", "use", last]
    assert ["raised" in (each.result or ()) for each in trace.operations] == [False, False, True]


@pytest.mark.parametrize("last", ["fail", "spin"])
def test_a_corpus_has_the_steps_before_the_model_fails(last: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [Call(name, ()) for name in ("make", "use", last)]
    subject = Subject(fragile(), None, ModuleType("none"), {}, abstract=lambda cfg, s: tuple(s))
    monkeypatch.setattr("fuzz.campaign.corpus.target_of", lambda spec: Target(subject, CanaryConfig()))
    monkeypatch.setattr("fuzz.campaign.corpus.generate", lambda *_: iter(calls))
    monkeypatch.setattr("fuzz.campaign.corpus.HANG_SECONDS", 0.05)
    with watchdog(20):
        [trace] = collect(Spec("canary"), [0])
    assert [each.op for each in trace.operations] == ["make", "use"]


def test_an_exception_of_a_property_is_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    @always(find_subject("range_cache").machine)
    def clock_has_an_index(cfg: Config, s: State) -> bool:
        """The clock is an index of a list with one element."""
        return [True][s.now_ns]

    properties = ModuleType("properties")
    vars(properties)["clock_has_an_index"] = clock_has_an_index
    target = Target(replace(find_subject("range_cache"), invariants=properties), Config(), model_only=True)
    [finding] = findings(target, most=1)
    assert len(finding.calls) > 1
    row = shrunk_row(target, Spec("range_cache"), finding)
    assert (row.cause, row.shown, row.shrunk_length) == ("crash:advance IndexError", row.replays, 1)
    monkeypatch.setattr("fuzz.campaign.local.target_of_request", lambda request: target)
    assert finding.seed is not None
    row = shrunk(Request(Spec("range_cache"), 0), finding.cause, finding.seed, None, 1)
    assert (row.shown, row.shrunk_length) == (row.replays, 1)


def test_a_hang_is_shrunk_although_a_property_is_false_before() -> None:
    class Endless(RangeCaches):
        def clear(self, cache: int) -> Removed:
            while self.now_ns:
                pass
            return super().clear(cache)

    @always(find_subject("range_cache").machine)
    def clock_is_zero(cfg: Config, s: State) -> bool:
        """The clock is at zero."""
        return s.now_ns == 0

    properties = ModuleType("properties")
    vars(properties)["clock_is_zero"] = clock_is_zero
    subject = replace(find_subject("range_cache"), implementation=Endless, invariants=properties)
    target = Target(subject, find_profile(subject, "reference"))
    calls = [Call("clear", (0,)), Call("advance", (1,)), Call("clear", (0,))]
    finding = replay(target, calls, skipped=frozenset(["clock_is_zero"]), hang_seconds=0.1)
    assert finding is not None
    assert [call.action for call in shrink(target, finding, budget_steps=100).calls] == ["advance", "clear"]
