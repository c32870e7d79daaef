"""Shrinking: how small results must be, and that they are still the same finding."""

from __future__ import annotations

import statistics

import pytest

from fuzz.explore.search import bounded, explore
from fuzz.mutation.kill_matrix import hunt, is_of_model
from fuzz.mutation.seeding import find_mutant, mutants_of, plant
from fuzz.run.lockstep import Finding, Lockstep, all_but, replay
from fuzz.run.shrink import shrink
from fuzz.subject import Subject, find_profile, find_subject

#: the fewest actions that show each, worked out by hand
SHORTEST = {
    "clear-reports-the-size-before": 3,
    "lookup-by-identity": 2,
    "duplicate-leaves-its-slot": 2,
    "maximum-is-ignored-at-start": 1,
    "undelivered-copies-count": 3,
    "replay-is-lost": 3,
    "released-value-keeps-its-bytes": 3,
}


def findings(subject: Subject, profile: str = "reference", seeds: int = 120) -> list[Finding]:
    lockstep = Lockstep(subject, find_profile(subject, profile))
    return [f for f in map(lockstep.run, range(seeds)) if f is not None]


@pytest.mark.parametrize("mutant", SHORTEST)
def test_results_are_as_short_as_can_be(mutant: str) -> None:
    subject = plant(find_mutant(mutant))
    lengths = [len(shrink(subject, f).actions) for f in findings(subject)[:10]]
    assert lengths, "nothing was found"
    assert sorted(lengths)[len(lengths) // 2] == SHORTEST[mutant]
    assert max(lengths) <= SHORTEST[mutant] + 1


def test_arguments_and_settings_are_the_simplest() -> None:
    subject = find_subject("range_cache")
    for finding in findings(subject, "pulsar-2026-07", 40):
        if finding.broken_property == "latest_put_sets_the_counter":
            short = shrink(subject, finding)
            assert short.actions == (("put", (0, (1, 0), 10, 1)), ("put", (0, (1, 0), 10, 0)))
            assert short.config == find_profile(subject, "pulsar-2026-07")._replace(
                **{name: values[0] for name, values in subject.settings.items()}
            )
            return
    pytest.fail("the property was not broken")


def test_a_result_is_the_same_finding_and_reproduces() -> None:
    subject = find_subject("range_cache")
    for finding in findings(subject, "stash", 30):
        short = shrink(subject, finding)
        assert short.cause == finding.cause
        again = replay(subject, short.config, short.actions, muted=all_but(subject, short))
        assert again is not None
        assert again.signature == short.signature
        assert len(again.actions) == len(short.actions)


def test_shrinking_is_a_function_of_the_finding() -> None:
    subject = plant(find_mutant("pops-what-it-did-not-check"))
    finding = findings(subject, seeds=20)[0]
    assert shrink(subject, finding) == shrink(subject, finding)


def test_a_small_budget_gives_what_it_has() -> None:
    subject = plant(find_mutant("replay-is-lost"))
    finding = findings(subject, seeds=20)[0]
    short = shrink(subject, finding, budget_steps=40)
    assert short.cause == finding.cause
    assert len(short.actions) <= len(finding.actions)


def test_one_profile_against_another_shrinks_too() -> None:
    subject = find_subject("range_cache")
    lockstep = Lockstep(subject, find_profile(subject, "reference"), against=find_profile(subject, "stash"))
    finding = next(f for f in map(lockstep.run, range(100)) if f is not None)
    short = shrink(subject, finding, against=lockstep.other_config(finding.config))
    assert len(short.actions) <= 3


@pytest.mark.nightly
def test_results_against_the_explorers_shortest() -> None:
    """Median the shortest itself, at worst one step or 1.5 times more: of every bug that the smoke scope shows."""
    pairs = {}
    for mutant in mutants_of("range_cache"):
        if is_of_model(mutant) or mutant.profile != "reference":
            continue
        subject = plant(mutant)
        shortest = {v.finding.cause: v.depth for v in explore(bounded(subject, "smoke"), properties=False).violations}
        finding, _ = hunt(subject, "reference", of_model=False, seconds=30.0)
        assert finding is not None
        short = shrink(subject, finding)
        if short.cause in shortest:
            pairs[mutant.id] = len(short.actions), shortest[short.cause]
    assert len(pairs) >= 10
    assert statistics.median(ours - best for ours, best in pairs.values()) <= 0
    assert all(ours <= max(best + 1, 1.5 * best) for ours, best in pairs.values()), pairs
