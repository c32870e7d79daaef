"""What is checked under a config: the properties of a subject that apply, and the subject's history variables.

`invariants/properties.py` says what properties and history variables are. An engine carries the values of the history
variables from step to step (`Values`): `first_values` in the initial state, then `folded` after each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from fuzz.run.call import Arguments
from fuzz.run.finding import Cause, Difference, Kind
from fuzz.subject import Subject
from invariants.properties import Event, History, Property

#: A predicate, its property, and the history variables that the predicate takes, as indices in `Checks.histories`.
Check = tuple[Callable[..., bool], Property, tuple[int, ...]]
#: The values of the history variables in a state of a trace, in the order of `Checks.histories`.
Values = tuple[Any, ...]
#: The index of a history variable in `Checks.histories`, and its fold.
Fold = tuple[int, Callable[[Any, Any, Any, Event, Any], Any]]


class Checks(NamedTuple):
    """The properties that apply under a config, and the history variables of all properties of the subject.

    The fields `of_steps`, `step_goals` and `folds` have one element for each action, in the machine's order: what
    applies to the steps of this action.
    """

    selected: tuple[int, ...]  # the properties, as indices in `subject.properties`
    of_states: tuple[Check, ...]  # `always` properties of states
    of_steps: tuple[tuple[Check, ...], ...]  # `always` properties of steps
    state_goals: tuple[Check, ...]  # `sometimes` properties of states
    step_goals: tuple[tuple[Check, ...], ...]  # `sometimes` properties of steps
    histories: tuple[History, ...]
    folds: tuple[tuple[Fold, ...], ...]  # of the history variables that the action can change

    def first_values(self, cfg: Any) -> Values:
        """Returns the values of the history variables in the initial state."""
        return tuple([each.initial(cfg) for each in self.histories])


#: The names of properties that are not checked.
Skipped = frozenset[str]
NONE_SKIPPED: Skipped = frozenset()


def checks_for(subject: Subject, cfg: Any, skipped: Skipped = NONE_SKIPPED) -> Checks:
    """Returns the properties of a subject that apply under a config, without the skipped ones. Cost: O(properties)."""
    properties = _properties_of(subject)
    return _checks(subject, tuple([i for i, p in enumerate(properties) if p.name not in skipped and p.given(cfg)]))


def all_but(subject: Subject, property_name: str | None) -> Skipped:
    """Returns the names of all properties but the given one; the names of all properties for None.

    A replay ends at the first violation of a property that it checks. A replay that skips these properties checks only
    the given one.
    """
    return frozenset(p.name for p in subject.properties if p.name != property_name)


@lru_cache(maxsize=64)
def _properties_of(subject: Subject) -> tuple[Property, ...]:
    return subject.properties


@lru_cache(maxsize=256)
def _checks(subject: Subject, selected: tuple[int, ...]) -> Checks:
    every = _properties_of(subject)
    properties = [every[i] for i in selected]
    histories = tuple({h.name: h for p in every for h in p.histories}.values())
    actions = list(subject.machine.actions)

    def check(p: Property) -> Check:
        return p.holds, p, tuple([histories.index(h) for h in p.histories])

    def of_states(kind: str) -> tuple[Check, ...]:
        return tuple([check(p) for p in properties if p.kind == kind and not p.of_step])

    def of_steps(kind: str) -> tuple[tuple[Check, ...], ...]:
        steps = [p for p in properties if p.kind == kind and p.of_step]
        return tuple([tuple([check(p) for p in steps if not p.on or name in p.on]) for name in actions])

    folds = tuple(
        [tuple([(i, h.fold) for i, h in enumerate(histories) if not h.on or name in h.on]) for name in actions]
    )
    goals = of_states("sometimes"), of_steps("sometimes")
    return Checks(selected, of_states("always"), of_steps("always"), *goals, histories, folds)


def event_of(subject: Subject, action: str, arguments: Arguments, outcome: Any) -> Event:
    """Returns the event that properties and folds of history variables receive."""
    names = subject.machine.actions[action].names
    return Event(action, dict(zip(names, arguments, strict=True)), outcome)


def folded(folds: tuple[Fold, ...], cfg: Any, values: Values, before: Any, event: Event, after: Any) -> Values:
    """Returns the values of the history variables after a step. `folds` are those of the step's action."""
    new = list(values)
    for i, fold in folds:
        new[i] = fold(cfg, values[i], before, event, after)
    return tuple(new)


def broken_properties(
    checks: Checks,
    cfg: Any,
    before: Any,
    event: Event,
    action: int,
    after: Any,
    values_before: Values = (),
    values_after: Values = (),
) -> Iterator[Property]:
    """Yields the `always` properties that a step violates: properties of states, then properties of steps.

    `action` is the index of the step's action. The values of history variables may be left out if no property of
    `checks` takes one.
    """
    yield from false_in_state(checks, cfg, after, values_after)
    for holds, each, indices in checks.of_steps[action]:
        if not holds(cfg, before, event, after, *[values_before[i] for i in indices]):
            yield each


def false_in_state(checks: Checks, cfg: Any, state: Any, values: Values) -> Iterator[Property]:
    """Yields the `always` properties that are false in a state."""
    for holds, each, indices in checks.of_states:
        if not (holds(cfg, state, *[values[i] for i in indices]) if indices else holds(cfg, state)):
            yield each


def property_difference(broken: Property) -> Difference:
    """Returns the difference for a violated property."""
    return Difference(Cause(Kind.PROPERTY, broken.name), f"{broken.name}: {broken.guarantee}", True, False)


def is_reached(
    goal: Check, cfg: Any, before: Any, event: Event, after: Any, values_before: Values, values_after: Values
) -> bool:
    """Returns whether a coverage goal holds: a goal of steps for the step, a goal of states for the state after it."""
    holds, each, indices = goal
    if each.of_step:
        return holds(cfg, before, event, after, *[values_before[i] for i in indices])
    return holds(cfg, after, *[values_after[i] for i in indices])
