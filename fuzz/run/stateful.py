"""A Hypothesis state machine for any component, made from its subject.

Each action is a rule whose arguments are drawn from the subject's domains in the current state. The rule fails if
`Pair.step` returns a difference.

    TestComponent = stateful_test(find_subject(name))

Generation and shrinking are those of Hypothesis, so this is a second, independent search. A benchmark compares it with
the fast loop of `fuzz/run/lockstep.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from fuzz.run.call import Call
from fuzz.run.generate import possible_calls
from fuzz.run.pair import Depth, Pair
from fuzz.subject import Subject, find_profile
from fuzz.target import Target
from model.machine import Action


class _Lockstep(RuleBasedStateMachine):
    """The base class; `stateful_machine` adds the rules."""

    subject: Subject
    profile_config: Any
    check_every: int
    pair: Pair
    steps_taken = 0

    @initialize(data=st.data())
    def draw_settings(self, data: st.DataObject) -> None:
        """Makes the pair. Draws the subject's settings for which the profile has the default value."""
        defaults = self.subject.machine.config._field_defaults
        drawn = {
            name: data.draw(st.sampled_from(values), label=name)
            for name, values in self.subject.settings.items()
            if getattr(self.profile_config, name) == defaults[name]
        }
        self.pair = Pair(Target(self.subject, self.profile_config._replace(**drawn)))

    def domains(self, action: str) -> list[tuple[Any, ...]]:
        """Returns the values that each argument of an action can take in the current state."""
        cfg = self.pair.cfg
        return possible_calls(self.subject, cfg).actions[action].domains(cfg, self.pair.state)


def stateful_machine(
    subject: Subject, profile: str = "reference", *, check_every: int = 1
) -> type[RuleBasedStateMachine]:
    """Returns a state machine class, with a rule for each action of which no argument has an empty domain.

    Outcomes are compared at every step, everything else at every `check_every`-th step.
    """
    config = find_profile(subject, profile)
    members: dict[str, Any] = {"subject": subject, "profile_config": config, "check_every": check_every}
    for action in subject.machine.actions.values():
        if all(subject.domain(action.name, p.name) != () for p in action.params):
            members[f"take_{action.name}"] = _rule(action)
    return type(f"{subject.name}_machine", (_Lockstep,), members)


def _rule(action: Action) -> Callable[..., None]:
    def take(self: Any, data: st.DataObject) -> None:
        values = zip(action.params, self.domains(action.name), strict=True)
        arguments = tuple([data.draw(st.sampled_from(domain), label=p.name) for p, domain in values])
        self.steps_taken += 1
        depth = Depth.ALL if self.steps_taken % self.check_every == 0 else Depth.OUTCOME
        difference = self.pair.step(Call(action.name, arguments).copy(), depth)
        assert difference is None, difference

    take.__name__ = take.__qualname__ = action.name
    has_arguments = precondition(lambda self: all(self.domains(action.name)))
    taken: Callable[..., None] = has_arguments(rule(data=st.data())(take))
    return taken


def stateful_test(subject: Subject, profile: str = "reference", *, examples: int = 60) -> type:
    """Returns a test case for pytest to collect: a class whose one test runs the state machine with every step checked.

    `examples` is the maximum number of traces. Every run draws the same traces.
    """
    machine = stateful_machine(subject, profile)
    case: type = machine.TestCase
    case.settings = settings(  # type: ignore[attr-defined]
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    return case
