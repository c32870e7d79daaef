"""The kernel: the terms that every engine and every component share.

A component is a machine: a config, a state, and actions.

    State        immutable, compared by value; integers for time, sizes and ids
    Action       a pure function (config, state, *arguments) -> (state, outcome)
    Fault        an action of the environment: crash, lost reply, failed write, clock step
    Refusal      the outcome of an action that is not allowed; the state is the same object
    Failure      the outcome of an action that was begun and did not succeed; the state may differ
    Config       settings of the broker or client, and rules, on which versions differ (`Setting`, `Rule`)
    Profile      a named config: the reference, a shipped version, or another design of a proposal
    Canonical    symmetry reduction: states that differ only in names given at run time have one canonical form
    Observation  what an outside observer can see of a state, as plain data
    Alternative  another step that the specification allows, where it leaves a choice

A machine has no clock, no randomness and no I/O: time passes by an action. Bounds are in the subject's scopes, domains
and weights in the subject, properties in `invariants/`.

A machine is built by decorating functions:

    lease = Machine("lease", Config, start, source="the toy of the design notes")

    @lease.action
    def acquire(cfg: Config, s: State, client: int) -> Step[State, int]:
        '''A client acquires a lease that is free or expired (section 1).'''
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar, cast

from model.values import (
    BadComponent,
    BadValue,
    Fitter,
    Setting,
    fields_of,
    fitter,
    plain,
    record,
    rule_of,
    setting_of,
    settings_named,
)

__all__ = [
    "Action",
    "BadComponent",
    "BadValue",
    "Failed",
    "Machine",
    "Param",
    "Profile",
    "Refused",
    "Setting",
    "Step",
    "plain",
    "record",
    "refused",
]

C = TypeVar("C")
S = TypeVar("S")
O = TypeVar("O")  # noqa: E741  (an outcome, as S is a state)
P = ParamSpec("P")


class Refused(NamedTuple):
    """The outcome of an action that was not allowed; the state is unchanged.

    `kind` is the kind of error that a broker would report (illegal_argument, illegal_state, null_pointer, unsupported,
    not_ready), `not_open` for an unknown name, or `not_enabled` for a step that cannot happen in the state. `why` is
    the message.
    """

    kind: str
    why: str


class Failed(NamedTuple):
    """The outcome of an action that was begun and did not succeed; unlike a refusal, it may have changed the state."""

    kind: str
    why: str


#: The result of an action: the state after it, and the outcome that the caller receives.
Step = tuple[S, O | Refused | Failed]


def refused(state: S, kind: str, why: str) -> tuple[S, Refused]:
    """Returns a refusal: the same state object, and the reason."""
    return state, Refused(kind, why)


class Param(NamedTuple):
    """An argument of an action: its name and its annotated type."""

    name: str
    kind: Any


class Action(NamedTuple):
    """A named action. `run` is (config, state, *arguments) -> (state, outcome)."""

    name: str
    run: Callable[..., tuple[Any, Any]]
    params: tuple[Param, ...]
    docstring: str
    fault: bool
    fitters: tuple[tuple[str, Fitter, str], ...]  # of each parameter: its name, its fitter, its name in messages
    names: tuple[str, ...]  # of the parameters

    def arguments(self, data: Mapping[str, Any], cfg: Any) -> tuple[Any, ...]:
        """Returns the arguments in order, from plain data by name. Raises BadValue, naming one that does not fit."""
        if len(data) == len(self.fitters):
            try:
                return tuple([fits(data[name], label, cfg) for name, fits, label in self.fitters])
            except KeyError:
                pass  # an unknown name: the message is below
        for name in data:
            if name not in self.names:
                raise BadValue(f"{self.name} has no argument {name}; it takes {', '.join(self.names) or 'none'}")
        raise BadValue(f"{self.name} lacks its argument {next(name for name in self.names if name not in data)}")

    def named(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        """Returns plain data by name, from the arguments in order."""
        return {p.name: plain(value) for p, value in zip(self.params, arguments, strict=True)}


class Profile(NamedTuple):
    """A named config, and one line about it."""

    name: str
    about: str
    config: Any


class Machine(Generic[C, S]):
    """A component's state machine: built by decorators in `model/`, driven by the engines.

    `start` returns the first state of a config; `source` names the proposal that the machine specifies. `java` maps
    each class of Pulsar that the machine models, the main one first, to the methods that docstrings of actions mention,
    separated by blanks. `history` names the fields of the state that are history variables; no implementation has them.
    """

    def __init__(
        self,
        name: str,
        config: type[C],
        start: Callable[[C], S],
        *,
        source: str,
        java: Mapping[str, str] | None = None,
        history: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.history = history
        self.config = config
        self.settings = fields_of(config)
        #: the config fields that are rules; an implementation follows the reference's value of each
        self.rules = tuple(n for n, kind in self.settings.items() if rule_of(kind) is not None)
        self._fit_config = fitter(cast(Hashable, config))
        self.start = start
        self.source = source
        #: class -> the methods that docstrings of actions mention
        self.java = {name: tuple(methods.split()) for name, methods in (java or {}).items()}
        self.actions: dict[str, Action] = {}
        self.profiles: dict[str, Profile] = {}
        #: release -> its profile
        self.releases: dict[str, str] = {}
        #: (config, state) -> the representative of all states that differ only in names given at run time
        self.canonical: Callable[[C, S], S] = lambda cfg, s: s
        #: state diagrams by name: which states may follow a state; drawn in the report and in `model/README.md`
        self.diagrams: dict[str, Mapping[str, Iterable[str]]] = {}
        #: (config, state) -> what an outside observer can see, as plain data
        self.observe: Callable[[C, S], Any] = lambda cfg, s: plain(s)
        #: (config, state, action, arguments) -> the other steps that the specification allows
        self.alternatives: Callable[[C, S, str, tuple[Any, ...]], Iterable[tuple[S, Any]]] = lambda *_: ()

    def action(
        self, run: Callable[Concatenate[C, S, P], tuple[S, Any]]
    ) -> Callable[Concatenate[C, S, P], tuple[S, Any]]:
        """Decorator: this function is an action. It must have a docstring."""
        self._add(run, fault=False)
        return run

    def fault(
        self, run: Callable[Concatenate[C, S, P], tuple[S, Any]]
    ) -> Callable[Concatenate[C, S, P], tuple[S, Any]]:
        """Decorator: this function is a fault, an action of the environment."""
        self._add(run, fault=True)
        return run

    def canonical_form(self, form: Callable[[C, S], S]) -> Callable[[C, S], S]:
        """Decorator: this function maps states that differ only in names given at run time to one state."""
        self.canonical = form
        return form

    def observation(self, observe: Callable[[C, S], Any]) -> Callable[[C, S], Any]:
        """Decorator: this function returns what an outside observer can see of a state, as plain data."""
        self.observe = observe
        return observe

    def other_steps(
        self, steps: Callable[[C, S, str, tuple[Any, ...]], Iterable[tuple[S, Any]]]
    ) -> Callable[[C, S, str, tuple[Any, ...]], Iterable[tuple[S, Any]]]:
        """Decorator: this function returns the steps that the specification allows instead of the action's own."""
        self.alternatives = steps
        return steps

    def with_history(self, view: S, state: S) -> S:
        """Returns an implementation's view with the history variables of the model's state."""
        if not self.history:
            return view
        return view._replace(**{name: getattr(state, name) for name in self.history})  # type: ignore[attr-defined, no-any-return]

    def profile(self, name: str, about: str, config: C) -> Profile:
        """Names a config. Raises BadValue for a bad setting."""
        profile = Profile(name, about, self.configure(plain(config)))
        self.profiles[name] = profile
        return profile

    def release(self, *releases: str, rules: C, about: str = "") -> Profile:
        """Returns the profile of releases with equal default settings: these rules, with those defaults.

        A profile with this config is reused; otherwise one is made, named after the first release. `about` says where
        the rules are from. Raises BadComponent if the defaults differ.
        """
        defaults = [self.defaults(release) for release in releases]
        if any(each != defaults[0] for each in defaults):
            raise BadComponent(f"{self.name}: the defaults of {', '.join(releases)} differ: {defaults}")
        config = self.configure(defaults[0], rules)
        profile = next((each for each in self.profiles.values() if each.config == config), None)
        if profile is None:
            numbers = ", ".join(releases)
            profile = self.profile(f"pulsar-{releases[0]}", f"the defaults of {numbers}; rules: {about}", config)
        self.releases |= dict.fromkeys(releases, profile.name)
        return profile

    def defaults(self, release: str) -> dict[str, Any]:
        """Returns the numeric default settings of a release, in the units of the fields."""
        found = {}
        for name, kind in self.settings.items():
            mark = setting_of(kind)
            default = mark.default_in(release) if mark is not None else None
            if mark is not None and isinstance(default, int | float):
                found[name] = default * mark.per_unit if mark.per_unit != 1 else default
        return found

    def configure(self, settings: Mapping[str, Any], base: C | None = None) -> C:
        """Returns a config: the plain settings, and `base` or the fields' defaults for the others.

        Raises BadValue, naming the setting that is unknown or has a bad value.
        """
        for name in settings:
            if name not in self.settings:
                raise BadValue(f"{self.name} has no setting {name}; it has {', '.join(self.settings)}")
        merged = {**(plain(base) if base is not None else {}), **settings}
        config: C = self._fit_config(merged, self.name, None)
        return config

    def is_reference(self, cfg: C) -> bool:
        """Returns whether every rule of the config has the reference's value; settings may differ. O(rules)."""
        defaults = self.config._field_defaults  # type: ignore[attr-defined]
        return all(getattr(cfg, name) == defaults[name] for name in self.rules)

    def step(self, cfg: C, state: S, name: str, arguments: tuple[Any, ...]) -> tuple[S, Any]:
        """Takes a step of the action of that name. Raises KeyError for an unknown action."""
        return self.actions[name].run(cfg, state, *arguments)

    def _add(self, run: Callable[..., tuple[S, Any]], *, fault: bool) -> None:
        docstring = inspect.getdoc(run)
        name = run.__name__
        if not docstring:
            raise BadComponent(f"{self.name}.{name} has no docstring; the docstring must say what the action does")
        if name in self.actions:
            raise BadComponent(f"{self.name}.{name} is defined twice")
        kinds = fields_of(run)
        params = tuple(Param(n, kinds[n]) for n in list(inspect.signature(run).parameters)[2:])
        for p in params:
            for setting in sorted(settings_named(p.kind)):
                if setting not in self.settings:
                    known = ", ".join(self.settings) or "none"
                    raise BadComponent(
                        f"{self.name}.{name}.{p.name} is below {setting}, which is no setting; the settings are {known}"
                    )
        fitters = tuple((p.name, fitter(p.kind), f"{name}.{p.name}") for p in params)
        self.actions[name] = Action(name, run, params, docstring, fault, fitters, tuple([p.name for p in params]))
