"""Planted bugs: each applies, each is found, and planting one leaves the honest code alone."""

from __future__ import annotations

import pytest

from fuzz.lockstep import Lockstep
from fuzz.mutants import Mutant, find_mutant, mutants_of, mutated_source, plant, source_of
from fuzz.shrink import shrink
from fuzz.subject import find_profile, find_subject, subject_names
from model.machine import BadValue

ALL = [m for name in subject_names() for m in mutants_of(name)]


@pytest.mark.parametrize("mutant", ALL, ids=lambda m: m.id)
def test_a_planted_bug_is_found_and_shrinks(mutant: Mutant) -> None:
    subject = plant(mutant)
    lockstep = Lockstep(subject, find_profile(subject, "reference"))
    finding = next((f for f in map(lockstep.run, range(3000)) if f is not None), None)
    assert finding is not None, f"{mutant.id} survived {lockstep.coverage.steps} steps"
    short = shrink(subject, finding)
    assert short.cause == finding.cause
    assert len(short.actions) <= 6


@pytest.mark.parametrize("name", subject_names(honest_only=True))
def test_planting_leaves_the_honest_code_alone(name: str) -> None:
    before = find_subject(name)
    for mutant in mutants_of(name):
        planted = plant(mutant)
        assert planted is not before
        assert planted.implementation is not before.implementation or planted.machine is not before.machine
    assert find_subject(name) is before
    lockstep = Lockstep(before, find_profile(before, "reference"))
    assert [lockstep.run(seed) for seed in range(30)] == [None] * 30


def test_a_mutant_that_no_longer_applies_fails_loudly() -> None:
    mutant = ALL[0]
    with pytest.raises(BadValue, match="stands 0 times"):
        mutated_source(mutant._replace(find="there is no such text"))
    with pytest.raises(BadValue, match=r"stands \d+ times in impl.range_cache, must be once"):
        mutated_source(mutant._replace(find="self"))
    with pytest.raises(BadValue, match="changes nothing"):
        mutated_source(mutant._replace(replace=mutant.find + "  # a comment"))


def test_a_mutant_says_where_it_comes_from() -> None:
    assert all(m.origin and m.about and m.id == m.id.lower() for m in ALL)
    assert len({m.id for m in ALL}) == len(ALL)


def test_an_unknown_mutant_is_said_with_the_known_ones() -> None:
    with pytest.raises(BadValue, match="there is no mutant nope of range_cache; there are clear-reports"):
        find_mutant("nope", ["range_cache"])


def test_a_bug_in_the_model_alone_is_found_too() -> None:
    """The twin tells: whichever of the two is wrong."""
    text = "    return timestamp_ns < threshold_ns\n"
    assert source_of("model.range_cache").count(text) == 1
    mutant = Mutant(
        "inclusive-expiry", "range_cache", "synthetic", "", "model.range_cache", text, text.replace("<", "<=")
    )
    subject = plant(mutant)
    lockstep = Lockstep(subject, find_profile(subject, "reference"))
    assert any(lockstep.run(seed) for seed in range(100))


def test_everything_of_a_planted_subject_is_planted() -> None:
    """Modules that were imported before must not slip in: their classes are others, and their checks would not bite."""
    honest = find_subject("range_cache")
    for mutant in mutants_of("range_cache"):
        subject = plant(mutant)
        assert subject.invariants is not honest.invariants
        assert subject.machine is not honest.machine
        assert vars(subject.invariants)["Count"] is not vars(honest.invariants)["Count"]
        [state_class] = {type(subject.machine.start(find_profile(subject, "reference")))}
        assert vars(subject.invariants)["State"] is state_class
    assert find_subject("range_cache") is honest


def test_a_bug_in_a_property_can_be_planted() -> None:
    text = "    return tuple(sums) == s.sizes\n"
    mutant = Mutant("x", "range_cache", "synthetic", "", "invariants.range_cache", text, "    return not any(sums)\n")
    subject = plant(mutant)
    lockstep = Lockstep(subject, find_profile(subject, "reference"))
    finding = next(f for f in map(lockstep.run, range(20)) if f is not None)
    assert finding.cause == "property:sizes_are_sums"
