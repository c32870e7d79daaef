"""State machines, and the terms that all engines and components share.

The model of a component is a machine: a config, a state, and actions.

    State        immutable, compared by value; integers for time, sizes and ids
    Action       a pure function (config, state, *arguments) -> (state, outcome)
    Fault        an action of the environment: crash, lost reply, failed write, clock step
    Refusal      the outcome of an action that is not allowed; the state afterwards is the same object
    Failure      the outcome of an action that was begun and did not succeed; the action may have changed the state
    Config       a named tuple: settings of Pulsar's broker or client (`Setting`), rules in which versions or proposals
                 differ (`Rule`), and sizes, such as the number of caches. The command line and error messages call
                 every field a setting
    Profile      a named config. In `reference`, every rule has its default: Pulsar's behaviour with its known defects
                 corrected. Other profiles are shipped versions, clients, texts of proposals or alternative designs
    Canonical    symmetry reduction: states that behave alike, such as states that differ only in generated ids, have
                 one canonical form
    Observation  what an outside observer can see of a state, as plain data

A machine has no clock, no randomness and no I/O: time passes by an action. Properties are in `invariants/`. What
engines need to drive a machine is in its subject (`fuzz/subjects/`): domains of arguments, weights of actions, and
bounds (scopes).

A machine is built by decorating functions:

    lease = Machine("lease", Config, start, source="section 3 of the proposal")

    @lease.action
    def acquire(cfg: Config, s: State, client: int) -> Step[State, int]:
        '''A client acquires a lease that is free or expired (section 1).'''
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar, cast

from model.values import (
    RELEASES,
    BadComponent,
    BadValue,
    Fitter,
    Setting,
    fields_in_bounds,
    fields_of,
    fitter,
    plain,
    record,
    rule_of,
    setting_of,
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

    `kind` is an error of Pulsar, such as `null_pointer`, or one of the model. Two kinds are always the model's own:
    `not_open` (an argument names nothing that exists) and `not_enabled` (the step cannot happen in this state). `why`
    is the message.
    """

    kind: str
    why: str


class Failed(NamedTuple):
    """The outcome of an action that was begun and did not succeed; such an action may have changed the state.

    `kind` and `why` are as in `Refused`.
    """

    kind: str
    why: str


#: The result of an action: the state after it, and the outcome that the caller receives.
Step = tuple[S, O | Refused | Failed]


def refused(state: S, kind: str, why: str) -> tuple[S, Refused]:
    """Returns the step of a refused action: the same state object, and `Refused`."""
    return state, Refused(kind, why)


class Param(NamedTuple):
    """A parameter of an action: its name and its annotated type."""

    name: str
    annotation: Any


class Action(NamedTuple):
    """A named action. `run` is (config, state, *arguments) -> (state, outcome)."""

    name: str
    run: Callable[..., tuple[Any, Any]]
    params: tuple[Param, ...]
    docstring: str
    fault: bool  # whether the action is one of the environment
    #: for each parameter: its name, the function that checks plain data and converts it to a value, and its
    #: label in error messages
    fitters: tuple[tuple[str, Fitter, str], ...]
    names: tuple[str, ...]  # the names of the parameters

    def arguments(self, data: Mapping[str, Any], cfg: Any) -> tuple[Any, ...]:
        """Returns the arguments in the order of the parameters, from plain data by parameter name.

        Raises BadValue if an argument is unknown or missing, or if its data does not fit.
        """
        if len(data) == len(self.fitters):
            try:
                return tuple([fits(data[name], label, cfg) for name, fits, label in self.fitters])
            except KeyError:
                pass  # one name is unknown, and another one is missing: the error is raised below
        for name in data:
            if name not in self.names:
                raise BadValue(f"{self.name} has no argument {name}; it takes {', '.join(self.names) or 'none'}")
        raise BadValue(f"{self.name} lacks its argument {next(name for name in self.names if name not in data)}")

    def named(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        """Returns plain data by parameter name, from the arguments in order: the inverse of the method `arguments`."""
        return {p.name: plain(value) for p, value in zip(self.params, arguments, strict=True)}


class Profile(NamedTuple):
    """A named config, and one line about what it stands for."""

    name: str
    about: str
    config: Any


class Machine(Generic[C, S]):
    """A component's state machine: built by decorators in `model/`, driven by the engines.

    `name` is the component's name, and `config` the class of its configs. `start` returns the initial state under a
    config. `source` names the proposal that the machine specifies. `java` maps each class of Pulsar that the machine
    models (the main class first) to those of its methods that docstrings of actions may name without the class.
    `history` names the fields of the state that only properties need. No implementation has these fields. (A property
    can also declare history variables outside the state: `invariants/properties.py`.)
    """

    def __init__(
        self,
        name: str,
        config: type[C],
        start: Callable[[C], S],
        *,
        source: str,
        java: Mapping[str, tuple[str, ...]] | None = None,
        history: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.history = history
        self.config = config
        #: the annotated type of each field of the config, by name
        self.fields = fields_of(config)
        #: the names of the fields that are rules. Implementations in `impl/` have only the defaults of the rules
        self.rules = tuple(n for n, annotation in self.fields.items() if rule_of(annotation) is not None)
        self._fit_config = fitter(cast(Hashable, config))
        self.start = start
        self.source = source
        self.java = dict(java or {})
        self.actions: dict[str, Action] = {}
        #: names of the config fields that are upper bounds of arguments, such as `caches` in `Below("caches")`
        self.bounds: set[str] = set()
        self.profiles: dict[str, Profile] = {}
        #: release, such as 4.1 -> the name of its profile
        self.releases: dict[str, str] = {}
        #: (config, state) -> the canonical form of the state
        self.canonical: Callable[[C, S], S] = lambda cfg, s: s
        #: state diagrams by title: state -> the states that may follow. The report and `model/README.md` draw them
        self.diagrams: dict[str, Mapping[str, Iterable[str]]] = {}
        #: (config, state) -> what an outside observer can see, as plain data
        self.observe: Callable[[C, S], Any] = lambda cfg, s: plain(s)

    def action(
        self, run: Callable[Concatenate[C, S, P], tuple[S, Any]]
    ) -> Callable[Concatenate[C, S, P], tuple[S, Any]]:
        """Decorator: adds the function as an action of the same name.

        Raises BadComponent if the function has no docstring, if there is already an action of this name, or if a
        `Below` bound of a parameter names a field that the config does not have.
        """
        self._add(run, fault=False)
        return run

    def fault(
        self, run: Callable[Concatenate[C, S, P], tuple[S, Any]]
    ) -> Callable[Concatenate[C, S, P], tuple[S, Any]]:
        """Decorator: adds the function as a fault, an action of the environment. Raises BadComponent like `action`."""
        self._add(run, fault=True)
        return run

    def canonical_form(self, form: Callable[[C, S], S]) -> Callable[[C, S], S]:
        """Decorator: the function returns the canonical form of a state."""
        self.canonical = form
        return form

    def observation(self, observe: Callable[[C, S], Any]) -> Callable[[C, S], Any]:
        """Decorator: the function returns what an outside observer can see of a state, as plain data."""
        self.observe = observe
        return observe

    def with_history(self, view: S, state: S) -> S:
        """Returns `view`, the state of an implementation, with the history variables of the model's state."""
        if not self.history:
            return view
        return view._replace(**{name: getattr(state, name) for name in self.history})  # type: ignore[attr-defined, no-any-return]

    def profile(self, name: str, about: str, config: C) -> Profile:
        """Adds a profile and returns it.

        Raises BadComponent if there is already a profile of this name, and BadValue if a field has a bad value.
        """
        if name in self.profiles:
            raise BadComponent(f"{self.name} has two profiles {name}")
        profile = Profile(name, about, self.configure(plain(config)))
        self.profiles[name] = profile
        return profile

    def release(self, *releases: str, rules: C, about: str = "") -> Profile:
        """Returns the profile of one or more releases, which must have the same default settings (`defaults`).

        The config of the profile has these defaults. All other fields are taken from the config `rules`. If no profile
        has this config, adds the profile `pulsar-RELEASE`, named after the first release. `about` says where the rules
        are from. Raises BadComponent if a release is unknown, if the releases have different defaults, or if there is
        already a profile of this name with another config.
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
        """Returns a release's numeric and Boolean defaults by config field, in the units of the config.

        Raises BadComponent for an unknown release.
        """
        if release not in RELEASES:
            raise BadComponent(f"{self.name}: there is no release {release}; there are {', '.join(RELEASES)}")
        found = {}
        for name, annotation in self.fields.items():
            setting = setting_of(annotation)
            default = setting.default_in(release) if setting is not None else None
            if setting is not None and isinstance(default, int | float):
                found[name] = default * setting.per_unit if setting.per_unit != 1 else default
        return found

    def configure(self, values: Mapping[str, Any], base: C | None = None) -> C:
        """Returns a config from plain data by field.

        A field without data has its value in `base` or, without `base`, its default. Raises BadValue if a field is
        unknown, lacks a value or has a bad value.
        """
        for name in values:
            if name not in self.fields:
                raise BadValue(f"{self.name} has no setting {name}; it has {', '.join(self.fields)}")
        merged = {**(plain(base) if base is not None else {}), **values}
        config: C = self._fit_config(merged, self.name, None)
        return config

    def is_reference(self, cfg: C) -> bool:
        """Returns whether every rule of the config has its default, as in the reference. Other fields may differ."""
        defaults = self.config._field_defaults  # type: ignore[attr-defined]
        return all(getattr(cfg, name) == defaults[name] for name in self.rules)

    def step(self, cfg: C, state: S, name: str, arguments: tuple[Any, ...]) -> tuple[S, Any]:
        """Takes an action. Returns the state after the action, and its outcome. Raises KeyError for an unknown name."""
        return self.actions[name].run(cfg, state, *arguments)

    def _add(self, run: Callable[..., tuple[S, Any]], *, fault: bool) -> None:
        docstring = inspect.getdoc(run)
        name = run.__name__
        if not docstring:
            raise BadComponent(f"{self.name}.{name} has no docstring; the docstring must say what the action does")
        if name in self.actions:
            raise BadComponent(f"{self.name}.{name} is defined twice")
        annotations = fields_of(run)
        params = tuple(Param(n, annotations[n]) for n in list(inspect.signature(run).parameters)[2:])
        for p in params:
            for field in sorted(fields_in_bounds(p.annotation)):
                if field not in self.fields:
                    known = ", ".join(self.fields) or "none"
                    raise BadComponent(
                        f'{self.name}.{name}.{p.name} has the bound Below("{field}"), but the config has no setting '
                        f"{field}; the settings are {known}"
                    )
                self.bounds.add(field)
        fitters = tuple((p.name, fitter(p.annotation), f"{name}.{p.name}") for p in params)
        self.actions[name] = Action(name, run, params, docstring, fault, fitters, tuple([p.name for p in params]))
