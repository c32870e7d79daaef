"""Subjects: a subject is a component, with the data that the engines need to drive it.

    domains     by `ARGUMENT` or `ACTION.ARGUMENT`, the values of an argument. If the model compares the argument with a
                limit, the domain has values below and above the limit
    settings    by name, the values of a setting. Each trace draws one of these values, if the profile leaves the
                setting at its default
    weights     how often each action is chosen, relative to the others. `situation` names the situation of a state,
                such as "writes" if writes are in flight; `in_situation` has factors of the weights by this name
    swarms      by name, factors of the weights. A trace uses one swarm or none. A swarm that excludes some actions
                reaches states that need many steps of the other actions
    largest     the largest values of integers whose size costs time or memory. Some traces draw large integers
                (`fuzz/run/wide.py`)
    abstract    a state -> its abstract state, which is a coverage key
    measures    by name, a state -> a number that a scope may bound
    scopes      bounds for the engines that visit every state

Each module of `fuzz/subjects/` has one subject, named `subject`. No engine has other knowledge of a component.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from invariants.properties import Property, properties_of
from model.machine import BadValue, Machine

#: The values of one argument: a tuple, or a function (config, state) -> tuple.
Domain = tuple[Any, ...] | Callable[[Any, Any], tuple[Any, ...]]


class Implementation(Protocol):
    """The methods of an implementation, besides one for each action."""

    def check(self) -> list[str]:
        """Returns the violated structural invariants, one line each."""

    def view(self) -> Any:
        """Returns the implementation's state as a state of the model."""

    @classmethod
    def load(cls, cfg: Any, state: Any) -> Implementation:
        """Returns an implementation in the given state."""


@dataclass(frozen=True)
class Offset:
    """A domain of sums: a field of the state plus each number of `by`. An example is times around the current time."""

    field: str
    by: tuple[int, ...]

    def __call__(self, _cfg: Any, state: Any) -> tuple[int, ...]:
        """Returns the values in this state."""
        base = getattr(state, self.field)
        return tuple(base + each for each in self.by)


@dataclass(frozen=True)
class Scope:
    """Bounds that make the number of a component's states finite. A scope says what each bound excludes.

    Only `actions` are taken. `settings` replace those of the profile, `domains` those of the subject. `bounds` limits
    measures of the subject. A step to a state beyond a bound is checked, and so are the properties of this state, but
    this state is not expanded. `reasons` has a sentence for the choice of actions and for each setting, domain and
    bound. The sentence says what is excluded, or why nothing of interest is excluded.
    """

    actions: tuple[str, ...]
    settings: Mapping[str, Any]
    domains: Mapping[str, Domain]
    bounds: Mapping[str, int]
    reasons: Mapping[str, str]

    def changed(self, actions: tuple[str, ...] | None = None, **entries: Mapping[str, Any]) -> Scope:
        """Returns this scope with other actions, if any are given, and with entries added to its mappings or replaced.

        The keys of `entries` are fields of the scope.
        """
        merged = {name: {**getattr(self, name), **new} for name, new in entries.items()}
        return replace(self, actions=actions or self.actions, **merged)

    def exclusions(self) -> dict[str, str]:
        """Returns the sentence for the choice of actions and for each setting, domain and bound."""
        return {name: self.reasons[name] for name in ("actions", *self.settings, *self.domains, *self.bounds)}


class CoarseModels(NamedTuple):
    """Coarse models of a component, with which a concurrent history (`fuzz/run/linearize.py`) is refuted faster.

    A coarse model allows every history that the component allows, and has fewer states. So if no order of a history is
    possible in a coarse model, then none is possible in the model. There is a coarse model for each key, such as a
    position.

    An *outline* is a state of a coarse model. `of` returns the outline of a state for a key. `after` yields the
    outlines that are possible after an action with its arguments and its plain outcome (`model.values.plain`), none if
    the action cannot have this outcome. `key_of` returns the key of an action, or None if the action has none.
    `concerns` returns whether an action with this outcome depends on the outline for a key or changes this outline.
    """

    of: Callable[[Any, Any, Any], Hashable]  # config, state, key
    #: config, outline, key, action, arguments, plain outcome
    after: Callable[[Any, Any, Any, str, tuple[Any, ...], Any], Iterable[Hashable]]
    #: action, arguments; without `key_of`, there is one coarse model, with the key None
    key_of: Callable[[str, tuple[Any, ...]], Hashable | None] | None = None
    #: config, key, action, arguments, plain outcome
    concerns: Callable[[Any, Any, str, tuple[Any, ...], Any], bool] = lambda cfg, key, action, arguments, outcome: True


@dataclass(frozen=True, eq=False)
class Subject:
    """A component, and the data that the engines need to drive it."""

    machine: Machine[Any, Any]
    implementation: Any
    invariants: ModuleType
    domains: Mapping[str, Domain]
    settings: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    situation: Callable[[Any, Any], str] = lambda cfg, s: ""  # (config, state) -> the name of the state's situation
    in_situation: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    swarms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    #: kind of guidance (`fuzz/benchmarks/guidance.py`), such as "swarms" -> text: whether traces use it, and why
    guidance: Mapping[str, str] = field(default_factory=dict)
    abstract: Callable[[Any, Any], tuple[Any, ...]] = lambda cfg, s: ()
    measures: Mapping[str, Callable[[Any], int]] = field(default_factory=dict)
    scopes: Mapping[str, Scope] = field(default_factory=dict)
    # this field and the next four speed up the check of a concurrent history (`fuzz/run/linearize.py`)
    #: for a state of independent parts: (action, arguments) -> the part that the action reads and changes
    partition: Callable[[str, Mapping[str, Any]], Hashable] = lambda action, arguments: None
    #: (config, action, plain outcome) -> whether the action with this outcome leaves every state unchanged
    unchanged: Callable[[Any, str, Any], bool] = lambda cfg, action, outcome: False
    coarse_models: CoarseModels | None = None
    #: (config, actions that may follow, with arguments) -> a function from a state to its representative. In states
    #: with the same representative, each of these actions has the same outcome, and the next states have the same
    #: representative
    reduction: Callable[[Any, Iterable[tuple[str, Mapping[str, Any]]]], Callable[[Any], Any]] | None = None
    #: the name of a field of the state: a number that no outcome shows, and to which each action adds an amount that
    #: does not depend on the number
    tally: str | None = None
    #: by name, a way to corrupt a state: (config, state) -> the corrupted state, or None if this way is not possible.
    #: Loading a corrupted state into an implementation must raise an exception, or `check` must report a violation
    corrupt: Mapping[str, Callable[[Any, Any], Any]] = field(default_factory=dict)
    #: for integers whose size costs time or memory: the largest value, a number or a function of the config. The key is
    #: the name of an argument, setting or field, or `ACTION.NAME` for an argument or field of one action only
    largest: Mapping[str, int | Callable[[Any], int]] = field(default_factory=dict)
    steps: int = 256  # the length of an ordinary trace; long traces and traces with bursts have more steps
    #: a run of at least this number of steps fails if it did not reach a coverage goal, or if an action was never taken
    #: or only refused
    min_steps_for_coverage: int = 400_000
    tla: str | None = None  # the twin's TLA+ module
    from_tla: Callable[[Any, Mapping[str, Any]], Any] | None = None  # config and the twin's variables -> a state
    canary: bool = False  # whether the component is wrong on purpose
    #: the name of the module with a seeded bug, and its changed source (`fuzz/seeding.py`); None: without a seeded bug
    seeded_source: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        """The component's name, the same in every layer."""
        return self.machine.name

    @property
    def properties(self) -> tuple[Property, ...]:
        """The component's safety properties, coverage goals and liveness properties."""
        return properties_of(self.invariants)

    def domain(self, action: str, param: str) -> Domain:
        """Returns the domain of an argument. Raises BadValue if the subject has none."""
        for key in (f"{action}.{param}", param):
            if key in self.domains:
                return self.domains[key]
        raise BadValue(f"the subject {self.name} has no domain for {action}.{param}")

    def drawn_settings(self, profile_config: Any) -> dict[str, tuple[Any, ...]]:
        """Returns the settings that traces draw, with their values: those that the profile leaves at their defaults."""
        defaults = self.machine.config._field_defaults
        return {name: v for name, v in self.settings.items() if getattr(profile_config, name) == defaults[name]}


def subject_names(*, without_canaries: bool = False) -> list[str]:
    """Returns the names of all subjects, or of all but the canaries, in alphabetical order."""
    package = importlib.import_module("fuzz.subjects")  # its modules import this one
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return [n for n in names if not find_subject(n).canary] if without_canaries else names


def find_subject(name: str) -> Subject:
    """Returns the subject of that name. Raises BadValue, naming the subjects, if there is none."""
    if name not in subject_names():
        raise BadValue(f"there is no subject {name}; there are {', '.join(subject_names())}")
    subject: Subject = importlib.import_module(f"fuzz.subjects.{name}").subject
    return subject


def module_of(name: str) -> ModuleType:
    """Returns the module whose docstring describes a component: `machine` of the model's package, if there is one."""
    inner = f"model.{name}.machine"
    is_package = getattr(importlib.import_module(f"model.{name}"), "__path__", None) is not None
    return importlib.import_module(inner if is_package and importlib.util.find_spec(inner) else f"model.{name}")


class Introduction(NamedTuple):
    """What a component is: the first two paragraphs of the docstring that describes it, each as one line of text."""

    title: str
    picture: str  # a few plain sentences for a reader who knows Pulsar as an operator


def introduction_of(name: str) -> Introduction:
    """Returns the introduction of a component."""
    paragraphs = (inspect.getdoc(module_of(name)) or "").split("\n\n")
    title, picture = (" ".join(each.split()) for each in (*paragraphs, "", "")[:2])
    return Introduction(title, picture)


def find_profile(subject: Subject, name: str) -> Any:
    """Returns the config of a profile or release. Raises BadValue, naming the profiles, for an unknown name."""
    found = profile_name(subject, name)
    if found is None:
        raise BadValue(f"{subject.name} has no profile {name}; it has {', '.join(profile_names(subject))}")
    return subject.machine.profiles[found].config


def profile_names(subject: Subject) -> list[str]:
    """Returns the names of the profiles, and `pulsar-RELEASE` for each release that has a profile.

    `find_profile` takes these names, and `RELEASE` without the prefix.
    """
    names = dict.fromkeys((*subject.machine.profiles, *(f"pulsar-{each}" for each in subject.machine.releases)))
    return list(names)


def profile_name(subject: Subject, name: str) -> str | None:
    """Returns the name of the profile that `name` stands for; None if there is no such profile.

    `name` is the name of a profile, `RELEASE` or `pulsar-RELEASE`.
    """
    found = subject.machine.releases.get(name.removeprefix("pulsar-"), name)
    return found if found in subject.machine.profiles else None
