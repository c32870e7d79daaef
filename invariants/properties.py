"""Properties of a component, and the history variables that they need.

    always      safety: a predicate of a state, (config, state), or of a step, (config, before, event, after)
    sometimes   a coverage goal, also a predicate of a state or a step: fuzzing that never makes it true has not tested
                enough
    eventually  liveness: a predicate of a state, (config, state). From every reachable state, if only the actions in
                `fair` occur, each weakly fair, the predicate becomes true

A property is a function. Its docstring is the guarantee; a finding shows the first sentence. The number of parameters
distinguishes state properties from step properties. `on` restricts a step property to some actions, `given`
restricts a property to some configs.

A history variable (ghost variable) is a value that only properties need, such as "the largest id acknowledged so far".
Engines fold a history variable over the events of a trace. Neither the model's state nor the implementation has the
value. (The fields of a state that `Machine.history` names are history variables of another kind.)

    @history(log, initial=lambda cfg: -1, on=("allocate",))
    def largest_id(cfg: Config, value: int, before: State, event: Event, after: State) -> int:
        '''The largest transaction id that a caller received; -1 if none.'''
        return value if isinstance(event.outcome, Refused) else max(value, event.outcome)

    @always(log, on=("allocate",), history=(largest_id,))
    def allocated_ids_grow(cfg: Config, before: State, event: Event, after: State, largest: int) -> bool:

A property names its history variables in `history`. Their values follow the other arguments of the property. A step
property receives the values before the step, a state property the values in the state.

Every engine that runs traces folds history variables: lockstep, replay, shrinking, the Hypothesis state machine,
recordings, and the edge cover, whose traces together take every transition of an explored scope. The explorer's search
does not fold them: history variables would multiply the states, and the number of states must equal TLC's. So a
property with a history variable is never "exhausted": no engine checks it with every value that the variable can have.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeVar

from model.machine import Machine

V = TypeVar("V")

Kind = Literal["always", "sometimes", "eventually"]


class Event(NamedTuple):
    """An executed action: its name, its arguments by name, and its outcome."""

    name: str
    arguments: Mapping[str, Any]
    outcome: Any


class History(NamedTuple):
    """A history variable: its value in the initial state, and the function that updates it at each step.

    `fold` is (config, value, before, event, after) -> value; values are immutable. `about` is the docstring of `fold`.
    """

    name: str
    initial: Callable[[Any], Any]
    fold: Callable[[Any, Any, Any, Event, Any], Any]
    on: tuple[str, ...]  # actions that can change the value; empty means all
    about: str


class Property(NamedTuple):
    """A named predicate and the guarantee that it checks."""

    name: str
    kind: Kind
    of_step: bool  # whether the predicate is of a step; otherwise of a state
    on: tuple[str, ...]  # actions to which the property applies; empty means all
    given: Callable[[Any], bool]  # whether the property applies under a config
    fair: tuple[str, ...]  # for `eventually`: the actions under weak fairness
    holds: Callable[..., bool]
    guarantee: str
    histories: tuple[History, ...] = ()  # their values follow the other arguments of `holds`


def always(
    machine: Machine[Any, Any],
    *,
    on: tuple[str, ...] = (),
    given: Callable[[Any], bool] | None = None,
    history: tuple[History, ...] = (),
) -> Callable[[Callable[..., bool]], Property]:
    """Decorator: the predicate is true in every state, or in every step."""
    return lambda holds: _property("always", machine, holds, on, given, (), history)


def sometimes(
    machine: Machine[Any, Any],
    *,
    on: tuple[str, ...] = (),
    given: Callable[[Any], bool] | None = None,
    history: tuple[History, ...] = (),
) -> Callable[[Callable[..., bool]], Property]:
    """Decorator: the predicate is true at least once in a long enough fuzzing run."""
    return lambda holds: _property("sometimes", machine, holds, on, given, (), history)


def eventually(
    machine: Machine[Any, Any], *, fair: tuple[str, ...], given: Callable[[Any], bool] | None = None
) -> Callable[[Callable[..., bool]], Property]:
    """Decorator: from every reachable state, if only the fair actions occur, the predicate becomes true."""
    return lambda holds: _property("eventually", machine, holds, (), given, fair, ())


def history(
    machine: Machine[Any, Any], *, initial: Callable[[Any], Any], on: tuple[str, ...] = ()
) -> Callable[[Callable[..., Any]], History]:
    """Decorator: the function updates a history variable at a step. `initial` maps a config to the initial value."""

    def made(fold: Callable[..., Any]) -> History:
        name, about = _documented(fold, "history variable")
        _check_actions(machine, name, on)
        parameters = len(inspect.signature(fold).parameters)
        if parameters != 5:
            raise TypeError(
                f"history variable {name} must take (cfg, value, before, event, after), got {parameters} parameters"
            )
        return History(name, initial, fold, on, about)

    return made


def properties_of(module: ModuleType) -> tuple[Property, ...]:
    """Returns the properties in a module of `invariants/`, in source order; of a package, those of its modules.

    In a package the module `guarantees` comes last. If a step violates several properties, the first is reported, and
    properties of states come before those of steps.
    """
    inner = [  # the submodules of a package
        each for name, each in vars(module).items() if getattr(each, "__name__", "") == f"{module.__name__}.{name}"
    ]
    inner.sort(key=lambda each: (each.__name__.endswith(".guarantees"), each.__name__))
    found = [p for p in vars(module).values() if isinstance(p, Property)]
    return tuple(dict.fromkeys([*[p for each in inner for p in properties_of(each)], *found]))


def once_per_state(derive: Callable[[Any], V]) -> Callable[[Any], V]:
    """Decorator: caches the two results that a function computed last.

    These are mostly for the states before and after a step. States are compared by identity, which is cheaper than by
    value.
    """
    latest: Any = None  # the state of the last computed result
    earlier: Any = None  # the state of the one before
    of_latest: Any = None  # the results for these states
    of_earlier: Any = None

    @functools.wraps(derive)
    def derived(state: Any) -> V:
        nonlocal latest, earlier, of_latest, of_earlier
        if state is latest:
            return of_latest  # type: ignore[no-any-return]
        if state is earlier:
            return of_earlier  # type: ignore[no-any-return]
        earlier, of_earlier = latest, of_latest
        latest, of_latest = state, derive(state)
        return of_latest  # type: ignore[no-any-return]

    return derived


def _property(
    kind: Kind,
    machine: Machine[Any, Any],
    holds: Callable[..., bool],
    on: tuple[str, ...],
    given: Callable[[Any], bool] | None,
    fair: tuple[str, ...],
    histories: tuple[History, ...],
) -> Property:
    name, guarantee = _documented(holds, "property")
    _check_actions(machine, name, (*on, *fair))
    parameters = len(inspect.signature(holds).parameters) - len(histories)
    if parameters not in (2, 4):
        raise TypeError(
            f"property {name} must take (cfg, state) or (cfg, before, event, after), and then a value for each of its "
            f"{len(histories)} history variables"
        )
    return Property(name, kind, parameters == 4, on, given or (lambda cfg: True), fair, holds, guarantee, histories)


def _documented(function: Callable[..., Any], what: str) -> tuple[str, str]:
    """Returns the name of a function, and its docstring as one line. Raises TypeError if there is no docstring."""
    name = getattr(function, "__name__", "")
    text = " ".join((inspect.getdoc(function) or "").split())
    if not text:
        raise TypeError(f"{what} {name} has no docstring; the docstring must state the guarantee")
    return name, text


def _check_actions(machine: Machine[Any, Any], name: str, actions: tuple[str, ...]) -> None:
    for action in actions:
        if action not in machine.actions:
            raise TypeError(f"{name} names the action {action}; {machine.name} has {', '.join(machine.actions)}")
