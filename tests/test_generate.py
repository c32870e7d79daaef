"""Seeds: the same everywhere, driven by the state, and reaching every edge that the subject names."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from fuzz.run.call import copy_of
from fuzz.run.generate import decoder, generate, recipe
from fuzz.subject import Offset, find_profile, find_subject, subject_names
from model.machine import BadValue
from model.positions import Position
from tests.conftest import ROOT

SUBJECT = find_subject("range_cache")
REFERENCE = find_profile(SUBJECT, "reference")


def test_a_seed_is_the_same_in_every_process() -> None:
    """Also under another hash seed: nothing depends on the order of sets or on hashes of texts."""
    code = (
        "from fuzz.subject import *; from fuzz.run.generate import *; s = find_subject('range_cache');"
        "print([list(generate(s, find_profile(s, 'reference'), seed)) for seed in range(5)])"
    )
    ran = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": h, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
        ).stdout
        for h in ("1", "2")
    ]
    assert ran[0] == ran[1]
    here = [list(generate(SUBJECT, REFERENCE, seed)) for seed in range(5)]
    assert ran[0].decode().strip() == str(here)


def test_seeds_differ() -> None:
    assert len({tuple(generate(SUBJECT, REFERENCE, seed)) for seed in range(100)}) == 100


def test_every_swarm_comes_and_every_value_of_a_domain_that_depends_on_the_state() -> None:
    assert {recipe(SUBJECT, REFERENCE, seed)[0].swarm for seed in range(200)} == {"", *SUBJECT.swarms}
    chance = random.Random(1)
    plan = decoder(
        replace(SUBJECT, domains={**SUBJECT.domains, "advance.nanos": Offset("now_ns", (1, 2, 5))}), REFERENCE
    )
    state = SUBJECT.machine.start(REFERENCE)._replace(now_ns=10)
    drawn = {plan.plans["advance"].draw(REFERENCE, state, chance) for _ in range(100)}
    assert drawn == {(11,), (12,), (15,)}


def test_a_setting_of_the_profile_stays() -> None:
    fifo = find_profile(SUBJECT, "fifo")
    assert {recipe(SUBJECT, fifo, seed)[0].config.max_requeue_times for seed in range(50)} == {0}
    assert {recipe(SUBJECT, REFERENCE, seed)[0].config.max_requeue_times for seed in range(50)} >= {0, 1, 2, 5}


@pytest.mark.parametrize("name", subject_names(without_canaries=True))
def test_every_value_of_every_fixed_domain_comes(name: str) -> None:
    subject = find_subject(name)
    config = find_profile(subject, "reference")
    seen: dict[str, set[object]] = {}
    for seed in range(400):
        for action, arguments in generate(subject, config, seed):
            for param, value in zip(subject.machine.actions[action].params, arguments, strict=True):
                seen.setdefault(f"{action}.{param.name}", set()).add(value)
    for action in subject.machine.actions.values():
        plan = decoder(subject, recipe(subject, config, 0)[0].config).plans[action.name]
        for param, domain in zip(
            action.params,
            plan.domains(
                recipe(subject, config, 0)[0].config, subject.machine.start(recipe(subject, config, 0)[0].config)
            ),
            strict=True,
        ):
            if isinstance(subject.domain(action.name, param.name), tuple):
                assert seen.get(f"{action.name}.{param.name}", set()) >= set(domain), f"{action.name}.{param.name}"


def test_weights_follow_the_situation() -> None:
    subject = find_subject("legacy_cache")
    cfg = find_profile(subject, "reference")

    def share(situation: str) -> float:
        counts = Counter(plan.name for plan, _ in decoder(subject, cfg).table("", situation))
        return counts["put"] / counts["time_pass"]

    assert share("empty") > 2 * share("") > 2 * share("full")


def test_a_swarm_may_leave_an_action_out() -> None:
    assert "size_pass" not in {plan.name for plan, _ in decoder(SUBJECT, REFERENCE).table("expiry", "")}


def test_equal_arguments_are_not_identical() -> None:
    """A bug that compares keys by identity must show."""
    first = Position(1, 2)
    second = copy_of((first, 3))[0]
    assert second == first
    assert second is not first
    positions = [x for _, a in decoder(SUBJECT, REFERENCE).table("", "") for x in a or () if isinstance(x, Position)]
    assert len({id(p) for p in positions}) > 10 * len(set(positions))


def test_a_subject_without_a_domain_is_refused() -> None:
    with pytest.raises(BadValue, match="has no domain for"):
        decoder(replace(SUBJECT, domains={}), REFERENCE)


def test_every_lists_each_combination_once() -> None:
    state = SUBJECT.machine.start(REFERENCE)
    every = list(decoder(SUBJECT, REFERENCE).every(REFERENCE, state, ("put", "release", "time_pass")))
    assert len(every) == len(set(every))
    assert Counter(name for name, _ in every) == {"put": 2 * 8 * 3 * 6, "time_pass": 5}, (
        "no copy is open, so none is released"
    )
