"""Traces from seeds: equal in every process, dependent on the state, with every value of every domain."""

from __future__ import annotations

import itertools
import random
import statistics
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from fuzz.run.call import copy_of
from fuzz.run.generate import chooser, generate, plan_trace, possible_calls
from fuzz.run.lockstep import CHECK_EVERY, THOROUGH_EVERY, is_checked_thoroughly, phase_of
from fuzz.run.wide import Wide, dictionary, leaves, numbers_in, with_leaf
from fuzz.seeding import seed_source, source_of
from fuzz.subject import Offset, Subject, find_profile, find_subject, subject_names
from model.machine import BadValue, plain
from model.positions import Position
from model.values import UNITS_PER_MS
from tests.conftest import ROOT

SUBJECT = find_subject("range_cache")
REFERENCE = find_profile(SUBJECT, "reference")


def test_a_seed_is_the_same_in_every_process() -> None:
    """This holds also under another hash seed: nothing depends on the order of sets or on hashes of texts."""
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
    assert {plan_trace(SUBJECT, REFERENCE, seed)[0].swarm for seed in range(200)} == {"", *SUBJECT.swarms}
    chance = random.Random(1)
    calls = possible_calls(
        replace(SUBJECT, domains={**SUBJECT.domains, "advance.nanos": Offset("now_ns", (1, 2, 5))}), REFERENCE
    )
    state = SUBJECT.machine.start(REFERENCE)._replace(now_ns=10)
    drawn = {calls.actions["advance"].draw(REFERENCE, state, chance) for _ in range(100)}
    assert drawn == {(11,), (12,), (15,)}


def test_a_setting_of_the_profile_stays() -> None:
    fifo = find_profile(SUBJECT, "fifo")
    assert {plan_trace(SUBJECT, fifo, seed)[0].config.max_requeue_times for seed in range(50)} == {0}
    assert {plan_trace(SUBJECT, REFERENCE, seed)[0].config.max_requeue_times for seed in range(50)} >= {0, 1, 2, 5}


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
        plan = possible_calls(subject, plan_trace(subject, config, 0)[0].config).actions[action.name]
        for param, domain in zip(
            action.params,
            plan.domains(
                plan_trace(subject, config, 0)[0].config,
                subject.machine.start(plan_trace(subject, config, 0)[0].config),
            ),
            strict=True,
        ):
            if isinstance(subject.domain(action.name, param.name), tuple):
                assert seen.get(f"{action.name}.{param.name}", set()) >= set(domain), f"{action.name}.{param.name}"


def test_weights_follow_the_situation() -> None:
    subject = find_subject("legacy_cache")
    cfg = find_profile(subject, "reference")

    def share(situation: str) -> float:
        counts = Counter(plan.name for plan, _ in possible_calls(subject, cfg).table("", situation))
        return counts["put"] / counts["time_pass"]

    assert share("empty") > 2 * share("") > 2 * share("full")


def test_a_swarm_may_leave_an_action_out() -> None:
    assert "size_pass" not in {plan.name for plan, _ in possible_calls(SUBJECT, REFERENCE).table("expiry", "")}


def test_equal_arguments_are_not_identical() -> None:
    """Otherwise a bug that compares keys by identity would not show."""
    first = Position(1, 2)
    second = copy_of((first, 3))[0]
    assert second == first
    assert second is not first
    positions = [
        x for _, a in possible_calls(SUBJECT, REFERENCE).table("", "") for x in a or () if isinstance(x, Position)
    ]
    assert len({id(p) for p in positions}) > 10 * len(set(positions))


def test_a_subject_without_a_domain_is_refused() -> None:
    with pytest.raises(BadValue, match="has no domain for"):
        possible_calls(replace(SUBJECT, domains={}), REFERENCE)


def test_every_lists_each_combination_once() -> None:
    state = SUBJECT.machine.start(REFERENCE)
    every = list(possible_calls(SUBJECT, REFERENCE).every(REFERENCE, state, ("put", "release", "time_pass")))
    assert len(every) == len(set(every))
    assert Counter(name for name, _ in every) == {"put": 2 * 8 * 3 * 6, "time_pass": 5}, (
        "no copy is open, so none is released"
    )


# ---- wide values, bursts and long traces ----------------------------------------------------------------


def test_the_dictionary_has_the_integers_of_the_source_and_their_neighbours() -> None:
    text = (
        "PAGE_BITS, LARGE = 11, 60 * 1000\ndef f(x, y=2**10 - 1):\n"
        "    return x >> PAGE_BITS, x >> 9, -77, x << 1 << 3, ~5 & 0xFF, 3 * LARGE // 7, 1 // 0, 'no 6', True, 1.5"
    )
    operands, results = (
        {11, 60, 1000, 2, 10, 1, 9, 77, 3, 5, 255, 7, 0},
        {60_000, 1024, 1023, -77, -6, 250, 180_000, 25_714},
    )
    assert numbers_in(text) == operands | results | {2048, 512, 8}
    words = dictionary("range_cache")
    assert words == tuple(sorted(set(words)))
    assert {0, 63, 64, 65, 255, 256, 257, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, -1, -(2**63)} <= set(words)
    assert 2**63 not in words, "a Java long"


def test_a_seeded_bug_adds_its_integers_to_the_dictionary() -> None:
    """A bug that shows only at a number in its own code must be found."""
    source = source_of("impl.range_cache")
    line = "    def advance(self, nanos: int) -> None:\n"
    assert source.count(line) == 1
    bug = source.replace(line, f"{line}        nanos += nanos == 777 * 1000\n")
    seeded = seed_source("range_cache", "impl.range_cache", bug)

    def drawn(subject: Subject) -> set[int]:
        traces = [Wide(subject, REFERENCE, random.Random(seed)) for seed in range(1000)]
        return {nanos for wide in traces for nanos in wide.arguments("advance", (1,))}

    assert drawn(seeded) >= {777, 776_999, 777_000, 777_001}
    assert 777_000 not in drawn(SUBJECT)


def test_integers_inside_a_value_are_named_and_replaced() -> None:
    action = find_subject("batch_acks").machine.actions["ack_individual"]
    param, value = action.params[0], value_with_words("batch_acks", "ack_individual")
    found = list(leaves(param.annotation, value, param.name))
    assert {leaf.name for leaf in found} == {"ledger", "entry", "ack_set"}
    for leaf in found:
        changed = with_leaf(value, leaf.path, 12345)
        assert type(changed) is type(value)
        assert [x.value for x in leaves(param.annotation, changed, "")].count(12345) == 1


def value_with_words(name: str, action: str) -> object:
    """Returns a first argument of the action that has the words of an ack set."""
    subject = find_subject(name)
    calls = (c for seed in range(9) for c in generate(subject, find_profile(subject, "reference"), seed))
    return next(c.arguments[0] for c in calls if c.action == action and "(1," in str(c.arguments) and len(c.arguments))


def kinds_of(seeds: int) -> dict[str, list[int]]:
    """Returns the seeds of each kind of trace."""
    found: dict[str, list[int]] = {"ordinary": [], "wide": [], "bursts": [], "long": []}
    for seed in range(seeds):
        plan = plan_trace(SUBJECT, REFERENCE, seed)[0]
        names = [n for n, has in (("wide", plan.wide), ("bursts", plan.bursts), ("long", plan.steps == 1024)) if has]
        for each in names or ["ordinary"]:
            found[each].append(seed)
    return found


def test_a_share_of_the_seeds_gives_wide_values_bursts_and_long_traces() -> None:
    counts = {name: len(seeds) for name, seeds in kinds_of(640).items()}
    assert counts == {"ordinary": 530, "wide": 80, "bursts": 40, "long": 10}
    [long] = kinds_of(64)["long"]
    assert len(list(generate(SUBJECT, REFERENCE, long))) >= 1000
    assert [plan_trace(SUBJECT, REFERENCE, seed, 10)[0].steps for seed in range(64)] == [10] * 64, "as asked for"


@pytest.mark.parametrize("name", subject_names())
def test_wide_values_are_legal(name: str) -> None:
    """Under every profile: the annotations allow each argument and setting, and the model takes it or refuses it."""
    subject = find_subject(name)
    for profile in subject.machine.profiles.values():
        for seed in (4, 15, 31):
            cfg = plan_trace(subject, profile.config, seed)[0].config
            assert subject.machine.configure(plain(cfg)) == cfg
            for action, arguments in generate(subject, profile.config, seed):
                given = subject.machine.actions[action]
                assert given.arguments(given.named(arguments), cfg) == arguments


def test_large_values_do_not_drown_small_ones() -> None:
    """Some wide traces have ledger ids from 2^31 on. Most calls have the ledger ids of the subject's domain."""
    ledgers: list[list[int]] = []
    for seed in kinds_of(640)["wide"]:
        calls = generate(SUBJECT, REFERENCE, seed)
        ledgers.append([x.ledger for call in calls for x in call.arguments if isinstance(x, Position)])
    large = [sum(ledger >= 2**31 for ledger in each) / len(each) for each in ledgers]
    assert any(each > 0.9 for each in large), "shifted ids: nearly all calls of a trace have large ledger ids"
    assert any(0.05 < each < 0.5 for each in large), "replaced ids: some calls of a trace have them"
    assert statistics.mean(large) < 0.25
    assert 0 in {ledger for each in ledgers for ledger in each}, "0 is a ledger id"


def test_a_profile_in_nanoseconds_gets_no_bare_milliseconds() -> None:
    """Wide durations are in the unit of the profile's clock."""
    subject = find_subject("negative_acks")
    found: dict[str, set[int]] = {}
    for profile in ("cpp", "reference"):
        cfg = find_profile(subject, profile)
        for seed in range(200):
            wide = Wide(subject, cfg, random.Random(seed))
            drawn = [wide.arguments("advance_time", (0, 0)) for _ in range(20)]
            found.setdefault(cfg.clock_unit, set()).update(lag for _, lag in drawn)
    assert len(found["ns"]) > 10
    assert all(lag % UNITS_PER_MS["ns"] == 0 for lag in found["ns"])
    assert any(lag % UNITS_PER_MS["ns"] for lag in found["ms"])


def test_bursts_repeat_an_action_with_consecutive_arguments() -> None:
    found = Counter[str]()
    for seed in kinds_of(1280)["bursts"]:
        calls = list(generate(SUBJECT, REFERENCE, seed))
        for _, same in itertools.groupby(calls, key=lambda call: call.action):
            length = len(list(same))
            assert length < 700  # a burst has at most 600 steps; calls around it may be of its action
            found["65 or more"] += length >= 65
            found["255 or more"] += length >= 255
        entries = [call.arguments[1].entry for call in calls if call.action == "put"]
        steps = ["1" if b - a == 1 else " " for a, b in itertools.pairwise(entries)]
        found["consecutive puts"] += "1" * 64 in "".join(steps)
        in_turn = [
            "1" if a.action == c.action != b.action and not b.arguments else " "
            for a, b, c in zip(calls, calls[1:], calls[2:], strict=False)
        ]
        found["with steps of the system"] += any("1" * 64 in "".join(in_turn[i::2]) for i in (0, 1))
    assert found["65 or more"] > 60
    assert found["255 or more"] > 10
    assert found["consecutive puts"] > 0
    assert found["with steps of the system"] > 2


def test_some_traces_with_bursts_have_the_largest_number_of_cursors() -> None:
    subject = find_subject("active_cursors")
    plans = [plan_trace(subject, find_profile(subject, "reference"), seed)[0] for seed in range(640)]
    assert sum(plan.bursts and plan.config.cursors == 300 for plan in plans) > 4


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "transactions"), [("txn_log", "txns"), ("pending_acks", "individual_acks")])
def test_many_transactions_are_open_in_traces_with_bursts(name: str, transactions: str) -> None:
    subject = find_subject(name)
    base, most = find_profile(subject, "reference"), list[int]()
    for seed in kinds_of(8000)["bursts"]:
        (plan, rng), open_ones = plan_trace(subject, base, seed), 0
        choose, state = chooser(subject, plan, rng), subject.machine.start(plan.config)
        for _ in range(plan.steps):
            action, arguments = choose(state)
            state, _ = action.run(plan.config, state, *arguments)
            open_ones = max(open_ones, len(getattr(state, transactions)))
        most.append(open_ones)
    assert sum(each >= 65 for each in most) > 3


@pytest.mark.parametrize("name", subject_names())
def test_every_action_with_a_weight_is_in_every_table(name: str) -> None:
    """A small weight gives one entry, so the shares may exceed the table: the last actions must not be cut off.

    If the arguments of an action are listed in a table, the table has every combination.
    """
    subject = find_subject(name)
    calls = possible_calls(subject, subject.machine.config())
    for swarm in ("", *subject.swarms):
        for situation in ("", *subject.in_situation):
            factors = subject.swarms.get(swarm, {}), subject.in_situation.get(situation, {})
            weighted = {
                name
                for name, action in calls.actions.items()
                if action.listed and subject.weights.get(name, 1) and all(each.get(name, 1) for each in factors)
            }
            table = calls.table(swarm, situation) if weighted else []
            assert {action.name for action, _ in table} == weighted
            for action in {each.name: each for each, arguments in table if arguments is not None}.values():
                assert {arguments for other, arguments in table if other is action} == set(action.listed)


def test_which_steps_are_checked_does_not_depend_on_the_kind_of_trace() -> None:
    for seeds in kinds_of(64 * CHECK_EVERY).values():
        assert {phase_of(seed, CHECK_EVERY) for seed in seeds} == set(range(CHECK_EVERY))
    for seeds in kinds_of(64 * CHECK_EVERY * 8 * THOROUGH_EVERY).values():
        thorough = [seed for seed in seeds if is_checked_thoroughly(seed)]
        assert 0.2 < len(thorough) / len(seeds) < 0.3
        assert {phase_of(seed, CHECK_EVERY) for seed in thorough} == set(range(CHECK_EVERY))
