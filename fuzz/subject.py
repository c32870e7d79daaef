"""A subject: how to drive one component. Data, no logic.

    domains     which values each argument takes: the edges of every comparison, not just a range
    settings    which values of the config a trace may draw, over its profile
    weights     how often each action is chosen, and how that changes with the situation
    swarms      other weights, one of which a trace may draw: a trace that does less goes deeper
    scopes      bounds for the engines that visit every state
    abstract    what counts as the same kind of state, for coverage

The subjects of this project are the modules of `fuzz/subjects/`, each with one name `subject`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol

import fuzz.subjects
from invariants.properties import Property, properties_of
from model.machine import BadValue, Machine

#: the values of one argument: always the same, or depending on the state
Domain = tuple[Any, ...] | Callable[[Any, Any], tuple[Any, ...]]


class Implementation(Protocol):
    """What an implementation gives to the engines, besides one method per action."""

    def check(self) -> list[str]:
        """Structural invariants that do not hold, one line each."""

    def view(self) -> Any:
        """The model's state of which this is an implementation."""

    @classmethod
    def load(cls, cfg: Any, state: Any) -> Implementation:
        """An implementation in the given state."""


@dataclass(frozen=True)
class Offset:
    """A domain of values relative to a field of the state, such as times around now."""

    field: str
    by: tuple[int, ...]

    def __call__(self, _cfg: Any, state: Any) -> tuple[int, ...]:
        """The values in this state."""
        base = getattr(state, self.field)
        return tuple(base + each for each in self.by)


@dataclass(frozen=True)
class Scope:
    """Bounds that make a component's states finite, each with what it excludes.

    `actions` are those that are driven; `settings` go over the profile's config; `domains` replace the subject's;
    `bounds` limits measures of the subject, and a step to a state beyond one is not taken. `reasons` has a sentence
    for the choice of actions, each setting, each domain and each bound: why it is sound, or what it excludes.
    """

    actions: tuple[str, ...]
    settings: Mapping[str, Any]
    domains: Mapping[str, Domain]
    bounds: Mapping[str, int]
    reasons: Mapping[str, str]

    def exclusions(self) -> dict[str, str]:
        """The sentence for the choice of actions and for each setting, domain and bound."""
        return {name: self.reasons[name] for name in ("actions", *self.settings, *self.domains, *self.bounds)}


@dataclass(frozen=True, eq=False)
class Subject:
    """One component with everything the engines need to drive it."""

    machine: Machine[Any, Any]
    implementation: Any
    invariants: ModuleType
    domains: Mapping[str, Domain]
    settings: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    situation: Callable[[Any, Any], str] = lambda cfg, s: ""
    in_situation: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    swarms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    #: which of the ways to guide generation are used, and why; `brokerproof bench guidance` measures them
    guidance: Mapping[str, str] = field(default_factory=dict)
    abstract: Callable[[Any, Any], tuple[Any, ...]] = lambda cfg, s: ()
    measures: Mapping[str, Callable[[Any], int]] = field(default_factory=dict)
    scopes: Mapping[str, Scope] = field(default_factory=dict)
    #: states made wrong, or None where that is not possible: an implementation that is loaded with one must notice
    corrupt: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    names: tuple[str, ...] = ()  # arguments that name something given on the way: later ones shift when one goes
    steps: int = 256  # of one trace
    min_steps_for_coverage: int = 400_000  # steps after which a witness or action that never came is a failure
    tla: str | None = None  # the twin's TLA+ module
    from_tla: Callable[[Any, Mapping[str, Any]], Any] | None = None  # config and the twin's variables -> a state
    canary: bool = False

    @property
    def name(self) -> str:
        """The component's name, the same on every floor."""
        return self.machine.name

    @property
    def properties(self) -> tuple[Property, ...]:
        """What must hold of the component."""
        return properties_of(self.invariants)

    def domain(self, action: str, param: str) -> Domain:
        """The values of an argument. Raises BadValue when the subject does not say them."""
        for key in (f"{action}.{param}", param):
            if key in self.domains:
                return self.domains[key]
        raise BadValue(f"the subject {self.name} has no domain for {action}.{param}")


def subject_names(*, without_canaries: bool = False) -> list[str]:
    """The names of all subjects, in order."""
    names = sorted(m.name for m in pkgutil.iter_modules(fuzz.subjects.__path__))
    return [n for n in names if not find_subject(n).canary] if without_canaries else names


def find_subject(name: str) -> Subject:
    """The subject of that name. Raises BadValue, naming the ones there are, when there is none."""
    if name not in [m.name for m in pkgutil.iter_modules(fuzz.subjects.__path__)]:
        known = ", ".join(sorted(m.name for m in pkgutil.iter_modules(fuzz.subjects.__path__)))
        raise BadValue(f"there is no subject {name}; there are {known}")
    subject: Subject = importlib.import_module(f"fuzz.subjects.{name}").subject
    return subject


def find_profile(subject: Subject, name: str) -> Any:
    """The config of a profile. Raises BadValue, naming the ones there are, when there is none."""
    if name not in subject.machine.profiles:
        raise BadValue(f"{subject.name} has no profile {name}; it has {', '.join(subject.machine.profiles)}")
    return subject.machine.profiles[name].config
