"""Properties: what must always hold, what must sometimes happen, what must eventually come true.

    always      of a state, (config, state), or of a step, (config, before, event, after)
    sometimes   a witness, same forms: a run in which it never happened has not tested enough
    eventually  a goal, (config, state), that is reached once only the named fair actions go on happening

A property is a function; its docstring is the guarantee, and the text of the error when it is broken.
Its parameters say whether it speaks of states or of steps. `on` limits a step property to some actions,
`given` to the configs for which it is meant.
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
    """An action that happened: its name, its arguments by name, and its outcome."""

    name: str
    arguments: Mapping[str, Any]
    outcome: Any


class Property(NamedTuple):
    """A named predicate and the guarantee it stands for."""

    name: str
    kind: Kind
    of_step: bool
    on: tuple[str, ...]  # actions it speaks of; empty means all
    given: Callable[[Any], bool]  # configs it is meant for
    fair: tuple[str, ...]  # of an eventually: the actions that go on happening
    holds: Callable[..., bool]
    guarantee: str


def always(
    machine: Machine[Any, Any], *, on: tuple[str, ...] = (), given: Callable[[Any], bool] | None = None
) -> Callable[[Callable[..., bool]], Property]:
    """Decorator: this must be true of every state, or of every step."""
    return lambda holds: _property("always", machine, holds, on, given, ())


def sometimes(
    machine: Machine[Any, Any], *, on: tuple[str, ...] = (), given: Callable[[Any], bool] | None = None
) -> Callable[[Callable[..., bool]], Property]:
    """Decorator: this must become true in a run at least once."""
    return lambda holds: _property("sometimes", machine, holds, on, given, ())


def eventually(
    machine: Machine[Any, Any], *, fair: tuple[str, ...], given: Callable[[Any], bool] | None = None
) -> Callable[[Callable[..., bool]], Property]:
    """Decorator: from every state, this comes true if only the fair actions happen, each again and again."""
    return lambda holds: _property("eventually", machine, holds, (), given, fair)


def properties_of(module: ModuleType) -> tuple[Property, ...]:
    """The properties that a module of `invariants/` states, in their order there."""
    return tuple(p for p in vars(module).values() if isinstance(p, Property))


def once_per_state(derive: Callable[[Any], V]) -> Callable[[Any], V]:
    """Decorator: what many properties derive from a state is derived once, and kept for the last two states.

    States are told apart by identity: cheaper than by value, and a step's two states are all it takes.
    """
    latest: Any = None
    earlier: Any = None
    of_latest: Any = None
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
) -> Property:
    name = getattr(holds, "__name__", "")
    guarantee = " ".join((inspect.getdoc(holds) or "").split())
    if not guarantee:
        raise TypeError(f"the property {name} has no docstring: the guarantee must be said")
    for action in (*on, *fair):
        if action not in machine.actions:
            raise TypeError(f"the property {name} speaks of {action}, which {machine.name} does not have")
    parameters = len(inspect.signature(holds).parameters)
    if parameters not in (2, 4):
        raise TypeError(f"the property {name} takes (cfg, state) or (cfg, before, event, after)")
    return Property(name, kind, parameters == 4, on, given or (lambda cfg: True), fair, holds, guarantee)
