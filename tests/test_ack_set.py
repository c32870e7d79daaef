"""Ack sets: stateful tests, invalid input, and worked examples."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from fuzz.run.stateful import stateful_test
from fuzz.subject import find_subject
from impl.ack_set import AckSets
from model import ack_set as m
from model.ack_set import AckPosition, Batch, Config, State, mask_of, words_of
from model.machine import BadValue, Refused
from tests.conftest import ROOT

SUBJECT = find_subject("ack_set")

TestAckSet = stateful_test(SUBJECT)

REFERENCE, SHIPPED = m.reference.config, m.shipped.config


def ask(cfg: Config, name: str, *arguments: Any) -> Any:
    """Returns the model's outcome of a query without open batches. The implementation must agree (reference only)."""
    s, outcome = m.ack_set.step(cfg, m.start(cfg), name, arguments)
    assert s == m.start(cfg)
    assert not m.ack_set.is_reference(cfg) or getattr(AckSets(cfg), name)(*arguments) == outcome
    return outcome


@pytest.mark.parametrize(
    ("words", "mask"),
    [
        ((), 0),
        ((0, 0), 0),
        ((-1,), 2**64 - 1),
        ((-(2**63),), 2**63),
        ((0, 1), 2**64),
        ((-1, -1, 5), 5 * 2**128 + 2**128 - 1),
    ],
)
def test_words_are_signed_and_the_first_one_is_the_lowest(words: tuple[int, ...], mask: int) -> None:
    assert mask_of(words) == mask
    trimmed = words if words and words[-1] else ()
    assert words_of(mask) == trimmed


@pytest.mark.parametrize(
    ("size", "current", "other", "reference", "shipped"),
    [
        (128, (-1,), (-1,), True, False),  # both acknowledge 64..127, whose words were trimmed
        (10, (1022,), (1022 - 32 + 1,), False, True),  # one acknowledges message 0, one message 5; padding clear
        (10, (-2,), (-33,), False, False),  # the same messages; padding set, as callers pass it
        (10, (-2,), (-34,), True, True),
        (64, (), (), True, False),  # both acknowledge everything
        (10, None, (), False, False),
    ],
)
def test_overlap_in_reference_and_shipped_version(
    size: int, current: Any, other: Any, reference: bool, shipped: bool
) -> None:
    assert ask(REFERENCE._replace(batch_size=size), "is_ack_set_overlap", current, other) is reference
    assert ask(SHIPPED._replace(batch_size=size), "is_ack_set_overlap", current, other) is shipped


def at(words: Any, entry: int = 0) -> AckPosition:
    """Returns a position with an ack set."""
    return AckPosition(1, entry, True, words)


@pytest.mark.parametrize(
    ("current", "other", "difference"),
    [
        (at((3,)), at((3,)), 0),
        (at((8,)), at((2,)), 2),
        (at(None), at((2,)), 2),  # a whole entry is the largest
        (at((2,)), at((0, 0)), -2),
        (at(()), at(None), 0),
        (at((0, 1)), at((1,)), 64),
        (at((1,), entry=1), at(None), 1),
    ],
)
def test_comparison(current: AckPosition, other: AckPosition, difference: int) -> None:
    assert ask(REFERENCE, "compare_with_ack_set", current, other) == difference


def test_intersection_of_positions_and_positions_without_ack_set() -> None:
    plain = AckPosition(1, 0, False, None)
    assert ask(REFERENCE, "and_position_ack_set", at((6,)), at((3, 1))) == m.Updated((2,))
    assert ask(REFERENCE, "and_position_ack_set", at((6,)), at((1,))) == m.Updated(())
    assert ask(REFERENCE, "and_position_ack_set", at((6,)), None) == m.Updated((6,))
    assert ask(REFERENCE, "and_position_ack_set", None, at((6,))) is None
    assert ask(REFERENCE, "and_position_ack_set", at((6,)), plain).kind == "illegal_state"
    assert ask(REFERENCE, "and_position_ack_set", at((6,)), at(None)).kind == "null_pointer"
    assert ask(REFERENCE, "compare_with_ack_set", None, plain).kind == "illegal_argument"


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("set_index", (1, 10), "index is 10, beyond the batch of 10"),
        ("get_index", (1, 11), "index is 11, beyond the batch of 10"),
        ("set_range", (1, 3, 11), "end is 11, beyond the batch of 10"),
        ("clear_range", (1, 3, 2), "begin is 3, after its end 2"),
        ("and_with", (1, (1024,)), "words have a bit beyond the batch of 10"),
        ("and_with", (1, (0, 1)), "words have a bit beyond the batch of 10"),
        ("flip_range", (2, 0, 1), "batch 2 is not open"),
    ],
)
def test_an_invalid_call_is_rejected_without_effect(name: str, arguments: tuple[Any, ...], said: str) -> None:
    s = State((Batch(1, 0b1010),), 2)
    after, refusal = m.ack_set.step(REFERENCE, s, name, arguments)
    assert after is s
    assert isinstance(refusal, Refused)
    assert refusal.why == said
    implementation = AckSets.load(REFERENCE, s)
    assert getattr(implementation, name)(*arguments) == refusal
    assert implementation.view() == s


def test_an_unknown_batch_size_bounds_nothing() -> None:
    """An overlap is then determined in the longer of the two arrays."""
    cfg, s = Config(batch_size=0), State((Batch(1, 0b1010),), 2)
    assert m.set_index(cfg, s, 1, 500)[0].batches[0].bits == 1 << 500 | 0b1010
    assert m.and_with(cfg, s, 1, (2, 7))[0].batches[0].bits == 0b10
    assert m.is_ack_set_overlap(cfg, s, (-1, -1), (-1,)) == (s, False)
    assert m.is_ack_set_overlap(cfg, s, (-1, -2), (-1,)) == (s, True)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("clear_index", {"batch": 1, "index": -1}, "clear_index.index is -1, must be integer of 0 or more"),
        ("and_with", {"batch": 1, "words": [2**63]}, "and_with.words[0] is 9223372036854775808, must be integer from"),
        ("is_ack_set_empty", {"ack_set": None}, "is_ack_set_empty.ack_set is None, must be a list"),
    ],
)
def test_an_invalid_argument_is_named(name: str, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(BadValue) as problem:
        SUBJECT.machine.actions[name].arguments(arguments, REFERENCE)
    assert said in str(problem.value)


def test_a_bug_can_be_seeded_before_the_component_is_imported() -> None:
    """The types of the component are later looked up by the names of their modules, so seeding must load these modules."""
    code = (
        "from fuzz.seeding import *; from fuzz.run.lockstep import *; from fuzz.subject import *; from fuzz.target import *;"
        "s = seed_bug([m for m in mutants_of('ack_set') if m.id == 'spec-flip-sets'][0]);"
        "lockstep = Lockstep(Target(s, find_profile(s, 'reference')));"
        "print(next(str(f.cause) for f in map(lockstep.run, range(100)) if f is not None))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    assert ran.stdout.strip() == "view:batches"
