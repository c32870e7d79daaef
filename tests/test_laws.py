"""What holds for every component."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any

import pytest

from fuzz.explore.canonical import misbehaviour
from fuzz.mutation.kill_matrix import undetected_corruption
from fuzz.platform.json import from_json, to_json
from fuzz.run.checks import checks_for
from fuzz.run.compare import same
from fuzz.run.coverage import total_of
from fuzz.run.generate import generate, plan_trace, possible_calls
from fuzz.run.lockstep import Lockstep
from fuzz.subject import Subject, find_profile, find_subject, subject_names
from fuzz.target import resolve
from model.machine import BadComponent, BadValue, Machine, Refused, plain
from model.values import RELEASES, AtLeast, Below, Setting, fit

NAMES = subject_names(without_canaries=True)
SEEDS = range(12)


def states(subject: Subject, profile: str, steps: int = 60) -> list[tuple[object, object]]:
    """Returns configs and states that a few seeds reach."""
    reached = []
    for seed in SEEDS:
        cfg = plan_trace(subject, find_profile(subject, profile), seed)[0].config
        state = subject.machine.start(cfg)
        for name, arguments in generate(subject, find_profile(subject, profile), seed, steps):
            state, _ = subject.machine.step(cfg, state, name, arguments)
            reached.append((cfg, state))
    return reached


def profiles() -> list[tuple[str, str]]:
    return [(name, profile) for name in NAMES for profile in find_subject(name).machine.profiles]


def every_profile() -> list[Any]:
    """Returns the parameters of a test of all profiles. Only the reference is tested for every change."""
    return [pytest.param(*pair, marks=[pytest.mark.nightly] * (pair[1] != "reference")) for pair in profiles()]


def implemented() -> list[tuple[str, str]]:
    """Returns the profiles with the rules of the reference: those that the implementation has."""
    machines = {name: find_subject(name).machine for name in NAMES}
    return [(n, p) for n, p in profiles() if machines[n].is_reference(machines[n].profiles[p].config)]


@pytest.mark.parametrize(("name", "profile"), every_profile())
def test_a_refusal_leaves_the_same_state(name: str, profile: str) -> None:
    subject, refused = find_subject(name), 0
    for cfg, state in states(subject, profile)[::7]:
        for action, arguments in possible_calls(subject, cfg).every(cfg, state):
            after, outcome = subject.machine.step(cfg, state, action, arguments)
            if isinstance(outcome, Refused):
                refused += 1
                assert after is state, (action, arguments)
    assert refused, "no action was ever refused: the law was not tried"


@pytest.mark.parametrize(("name", "profile"), every_profile())
def test_states_that_differ_only_in_names_behave_alike(name: str, profile: str) -> None:
    subject = find_subject(name)
    renamed = [each for each in states(subject, profile) if subject.machine.canonical(*each) != each[1]]
    for cfg, state in renamed[:: 1 + len(renamed) // 18]:
        assert misbehaviour(subject, cfg, state) == ""
    assert renamed, "no state was renamed: the law was not tried"


@pytest.mark.parametrize(("name", "profile"), implemented())
def test_an_implementation_can_be_loaded_in_any_state(name: str, profile: str) -> None:
    """`load` is the inverse of `view`, and a loaded implementation executes a third of all calls as the model does."""
    subject = find_subject(name)
    for cfg, state in states(subject, profile)[::23]:
        implementation = subject.implementation.load(cfg, state)
        assert subject.machine.with_history(implementation.view(), state) == state
        assert implementation.check() == []
        for action, arguments in list(possible_calls(subject, cfg).every(cfg, state))[::3]:
            implementation = subject.implementation.load(cfg, state)
            after, outcome = subject.machine.step(cfg, state, action, arguments)
            assert getattr(implementation, action)(*arguments) == outcome, (action, arguments)
            assert subject.machine.with_history(implementation.view(), after) == after, (action, arguments)
            assert implementation.check() == []


@pytest.mark.parametrize("name", NAMES)
def test_observations_and_outcomes_are_plain_data(name: str) -> None:
    """JSON preserves them, and the arguments of the actions."""
    subject = find_subject(name)
    for cfg, state in states(subject, "reference")[::17]:
        seen = subject.machine.observe(cfg, state)
        assert same(from_json(to_json(seen)), seen)
        for action, arguments in list(possible_calls(subject, cfg).every(cfg, state))[::11]:
            outcome = plain(subject.machine.step(cfg, state, action, arguments)[1])
            assert same(from_json(to_json(outcome)), outcome), (action, arguments)
            named = subject.machine.actions[action].named(arguments)
            assert same(subject.machine.actions[action].arguments(from_json(to_json(named)), cfg), arguments)


@pytest.mark.parametrize("name", NAMES)
def test_every_action_and_profile_is_documented(name: str) -> None:
    machine = find_subject(name).machine
    assert all(action.docstring for action in machine.actions.values())
    assert all(profile.about for profile in machine.profiles.values())
    assert "reference" in machine.profiles


@pytest.mark.parametrize("most", [1500, pytest.param(6000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", NAMES)
def test_the_reference_breaks_no_property_and_reaches_every_goal_and_action(name: str, most: int) -> None:
    """Runs `most` traces. A run of 1500 traces ends at the first multiple of 100 at which nothing is missing."""
    subject, target, configs = find_subject(name), resolve(name), set[Any]()
    lockstep = Lockstep(target)

    def missed() -> list[str]:
        checks = [checks_for(subject, cfg) for cfg in configs]
        wanted = {p.name for each in checks for goals in (each.state_goals, *each.step_goals) for _, p, _ in goals}
        return [
            *(wanted - set(lockstep.coverage.goals)),
            *total_of(lockstep.coverage).unreached(subject, list(configs)),
        ]

    for seed in range(most):
        assert lockstep.run(seed) is None
        configs.add(plan_trace(subject, target.config, seed)[0].config)
        if most == 1500 and seed % 100 == 99 and not missed():
            break
    assert missed() == []


def test_a_machine_refuses_an_action_without_a_docstring() -> None:
    machine: Machine[object, int] = Machine(
        "toy", type(find_profile(find_subject("range_cache"), "reference")), lambda cfg: 0, source="toy"
    )

    def silent(cfg: object, state: int) -> tuple[int, None]:
        return state, None

    with pytest.raises(TypeError, match="no docstring"):
        machine.action(silent)


def test_a_release_has_its_default_settings_and_a_name() -> None:
    machine = find_subject("batch_acks").machine
    # the fields `batch_acks`, `max_ranges`, `max_ack_sets` and `max_ranges_in_metadata`
    caps = [find_profile(find_subject("batch_acks"), f"pulsar-{release}")[2:6] for release in RELEASES]
    assert caps == [
        (acks, *most)
        for acks, most in zip((False, True, True, True), [(10_000, 10_000, 1000)] * 3 + [(200_000,) * 3], strict=True)
    ]
    assert Setting("x", (("4.1", 5),)).default_in("4.0") is None
    assert find_subject("entry_cache").machine.defaults("4.0")["permits_timeout_ns"] == 60_000_000_000
    with pytest.raises(BadComponent, match=r"the defaults of 4\.0, 4\.1 differ"):
        machine.release("4.0", "4.1", rules=machine.profiles["reference"].config)
    with pytest.raises(BadComponent, match=r"there is no release 3\.9; there are 4\.0"):
        machine.release("3.9", rules=machine.profiles["reference"].config)
    with pytest.raises(BadComponent, match="has two profiles reference"):
        machine.profile("reference", "again", machine.profiles["reference"].config)


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_of_a_release_is_made_from_its_defaults(name: str) -> None:
    machine = find_subject(name).machine
    assert {p for p in machine.profiles if re.fullmatch(r"pulsar-\d\.\d", p)} <= set(machine.releases.values())
    for release, profile in machine.releases.items():
        config = machine.profiles[profile].config
        assert {field: getattr(config, field) for field in machine.defaults(release)} == machine.defaults(release)


def test_a_machine_refuses_an_argument_below_an_unknown_setting() -> None:
    machine: Machine[object, int] = Machine(
        "toy", type(find_profile(find_subject("range_cache"), "reference")), lambda cfg: 0, source="toy"
    )

    def lost(cfg: object, state: int, each: tuple[Annotated[int, Below("cashes")], ...]) -> tuple[int, None]:
        """Counts what is lost."""
        return state, None

    with pytest.raises(
        BadValue, match=r'toy.lost.each has the bound Below\("cashes"\), but .* no setting cashes; .* caches, ttl_ns'
    ):
        machine.action(lost)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ttl_ns": -1}, "range_cache.ttl_ns is -1, must be integer of 0 or more"),
        ({"watermark": 1.5}, "range_cache.watermark is 1.5, must be number from 0 to 1"),
        ({"caches": 0}, "range_cache.caches is 0, must be integer of 1 or more"),
        ({"caches": True}, "range_cache.caches is True, must be integer"),
        ({"duplicate_put": "maybe"}, "must be one of keep, latest_handler"),
        ({"tll_ns": 3}, "range_cache has no setting tll_ns; it has caches, ttl_ns"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_its_name(settings: dict[str, object], said: str) -> None:
    with pytest.raises(BadValue) as problem:
        find_subject("range_cache").machine.configure(settings)
    assert said in str(problem.value)


def test_both_ends_of_a_bound_fit() -> None:
    machine = find_subject("range_cache").machine
    for watermark in (0.0, 1.0):
        cfg = machine.configure({"watermark": watermark, "caches": 1, "ttl_ns": 0})
        assert cfg[:2] + (cfg.watermark,) == (1, 0, watermark)
    assert same(fit(Annotated[float, AtLeast(0)], 0, "x"), 0.0)
    assert fit(Annotated[int, Below("caches")], 1, "x", machine.configure({"caches": 2})) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            {"cache": 2, "position": [1, 0], "hold": True},
            "get.cache is 2, must be integer from 0, below the setting caches (2)",
        ),
        ({"cache": 0, "position": [1], "hold": True}, "get.position is [1], must be [ledger, entry]"),
        ({"cache": 0, "position": [1, "x"], "hold": True}, "get.position is 'x', must be integer"),
        ({"cache": 0, "position": [1, 0], "hold": 1}, "get.hold is 1, must be true or false"),
        ({"cache": 0, "hold": True}, "get lacks its argument position"),
        ({"cache": 0, "position": [1, 0], "hold": True, "x": 1}, "get has no argument x"),
    ],
)
def test_a_wrong_argument_is_refused_by_its_name(arguments: dict[str, object], said: str) -> None:
    machine = find_subject("range_cache").machine
    with pytest.raises(BadValue) as problem:
        machine.actions["get"].arguments(arguments, machine.profiles["reference"].config)
    assert said in str(problem.value)


@pytest.mark.parametrize("name", [name for name in NAMES if find_subject(name).corrupt])
def test_check_notices_states_made_wrong(name: str) -> None:
    assert undetected_corruption(find_subject(name)) is None


def test_a_check_that_sees_nothing_is_noticed() -> None:
    class Blind(find_subject("range_cache").implementation):  # type: ignore[misc, name-defined]
        def check(self) -> list[str]:
            return []

    assert undetected_corruption(replace(find_subject("range_cache"), implementation=Blind)) == "size_too_large"
