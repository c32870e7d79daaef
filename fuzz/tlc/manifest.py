"""TLC's runs: those derived from scopes and from the defect table, and those written in `tla/runs/<component>.toml`.

    derived    for each scope whose actions the twin has: the invariants hold, and TLC finds the same number of states
               as the explorer, in a small scope also the same steps. In a large scope the explorer does not run; its
               number of states is that of `fuzz/explore/counts.toml`
               for each row of the defect table whose property the twin states: the reference with the row's rules
               violates the property
    written    everything else: liveness under fairness and its controls, other profiles, further actions and values

A written run is a table with the run's name. Its keys are the fields of `Run`, such as:

    scope      a scope of the component; `settings`, `actions`, `without`, `only`, `domains` and `bounds` change it
    about      one line
    checks     properties by name, or `always` for all safety properties that the twin states; by default `always`
               under the reference's rules, and none under others
    violates   instead of `checks`: the property that TLC must find violated
    fair       the fair actions, instead of those that the liveness properties name
    profile    default: reference
    nightly    if true, the run is made only if `--scope` names its scope

The table `defaults` has defaults for the other tables of its file and for the component's derived runs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from fuzz.defects.table import defects_of
from fuzz.explore.counts import Counts, counts_of
from fuzz.explore.search import Space, find_scope
from fuzz.subject import Offset, Scope, Subject, find_profile, find_subject, subject_names
from fuzz.tlc.module import ALWAYS, EVENTUALLY, Module, camel, read_module
from model.machine import BadValue, plain

#: The folder beside the modules that has the written runs, one file for each component.
RUNS = "runs"
REFERENCE = "reference"
#: The steps of larger scopes are not compared: the graph takes minutes to write, read and compare.
_MAX_STATES_FOR_EDGES = 25_000
#: The derived runs of larger scopes are nightly.
_MAX_STATES_BY_DEFAULT = 60_000


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One run of TLC."""

    component: str
    name: str
    scope: str
    about: str = ""
    profile: str = REFERENCE
    checks: tuple[str, ...] | None = None
    violates: str = ""
    fair: tuple[str, ...] | None = None
    settings: Mapping[str, Any] = {}  # replace those of the scope
    actions: tuple[str, ...] = ()  # in addition to those of the scope
    without: tuple[str, ...] = ()  # actions of the scope that are not driven
    only: Mapping[str, Any] = {}  # by argument, the values of its domain that are kept; for an Offset, the offsets
    domains: Mapping[str, Any] = {}  # by argument, other values
    bounds: Mapping[str, int] = {}  # replace those of the scope
    nightly: bool = False
    counts: Counts | None = None  # the stored counts, if the run is derived from a scope

    @property
    def id(self) -> str:
        """The unique name of the run."""
        return f"{self.component}_{self.name}"

    @property
    def subject(self) -> Subject:
        """The component."""
        return find_subject(self.component)

    @property
    def module(self) -> str:
        """The name of the twin's module."""
        return str(self.subject.tla)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The properties that are checked: names of operators, or `always` or `eventually` for all of this kind."""
        if self.violates:
            return (self.violates,)
        if self.checks is not None:
            return self.checks
        other_rules = set(self.settings) & set(self.subject.machine.rules)
        return () if other_rules or self.profile != REFERENCE else (ALWAYS,)

    @property
    def compares_edges(self) -> bool:
        """Whether TLC's steps are compared with the explorer's."""
        liveness = {EVENTUALLY} | {camel(p.name) for p in self.subject.properties if p.kind == EVENTUALLY}
        small = self.counts is None or self.counts.distinct_states <= _MAX_STATES_FOR_EDGES
        return small and not self.violates and not liveness & set(self.wanted)

    def space(self) -> Space:
        """Returns the state space of the model within the run's scope.

        Raises BadValue for an unknown scope, profile, setting, action, measure, argument or value.
        """
        return Space(self.subject, self.profile, _narrowed(self, find_scope(self.subject, self.scope)))


def all_runs(folder: Path) -> list[Run]:
    """Returns the runs of each component that has a file of written runs in the folder: derived, then written ones.

    Raises BadValue for an invalid file, and if there is no file.
    """
    found: list[Run] = []
    for name in subject_names():
        path = folder / RUNS / f"{name}.toml"
        if path.is_file():
            defaults, written = _read(path, name)
            module = read_module(folder, str(find_subject(name).tla))
            found += [*_of_scopes(name, module, defaults), *_of_defects(name, module, defaults), *written]
    if not found:
        raise BadValue(f"{folder / RUNS} has no runs; the TLA+ modules come with the sources, not with the package")
    return found


def _of_scopes(name: str, module: Module, defaults: Mapping[str, Any]) -> Iterator[Run]:
    """Yields the runs that are derived from the scopes of a component."""
    for scope, each in find_subject(name).scopes.items():
        if all(camel(action) in module.operators for action in each.actions):
            counts = counts_of(name, scope)
            large = counts is not None and counts.distinct_states > _MAX_STATES_BY_DEFAULT
            about = "the whole scope under the reference"
            yield _run_of(name, scope, {"scope": scope, "about": about, "nightly": large}, defaults, counts)


def _of_defects(name: str, module: Module, defaults: Mapping[str, Any]) -> Iterator[Run]:
    """Yields the runs that are derived from the rows of a component's defect table."""
    for row in defects_of(name):
        if camel(row.property) in module.operators:
            changed = {rule: plain(value) for rule, value in row.changes().items()}
            table = {"scope": "smoke", **row.tlc, "violates": camel(row.property), "about": row.symptom}
            table["settings"] = {**row.tlc.get("settings", {}), **changed}
            yield _run_of(name, row.id.replace("-", "_"), table, defaults)


def _read(path: Path, component: str) -> tuple[Mapping[str, Any], list[Run]]:
    """Returns the defaults and the written runs of a file. Raises BadValue."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        defaults = tables.pop("defaults", {})
        return defaults, [_run_of(component, name, table, defaults) for name, table in tables.items()]
    except (ValueError, AttributeError, TypeError) as problem:  # no TOML, no UTF-8, a value in place of a table
        raise BadValue(f"{path}: {problem}") from None


def _run_of(
    component: str, name: str, table: Mapping[str, Any], defaults: Mapping[str, Any], counts: Counts | None = None
) -> Run:
    """Returns the run that a table describes. Raises BadValue."""
    merged = {**defaults, **table}
    merged["settings"] = {**defaults.get("settings", {}), **table.get("settings", {})}
    if not name.isidentifier():
        raise BadValue(f"a run's name has letters, digits and _, got {name}")
    try:
        return msgspec.convert({**merged, "component": component, "name": name, "counts": counts}, Run)
    except msgspec.ValidationError as problem:
        raise BadValue(f"the run {name}: {problem}") from None


def _narrowed(run: Run, scope: Scope) -> Scope:
    """Returns the scope with the run's changes. Raises BadValue."""
    subject = run.subject
    for action in (*run.actions, *run.without, *(run.fair or ())):
        if action not in subject.machine.actions:
            raise BadValue(f"the run {run.id} names the action {action}, which {subject.name} does not have")
    for measure in run.bounds:
        if measure not in subject.measures:
            raise BadValue(f"the run {run.id} bounds {measure}; measures are {', '.join(subject.measures) or 'none'}")
    settings = {**scope.settings, **run.settings}
    cfg = subject.machine.configure(settings, find_profile(subject, run.profile))
    domains = {**scope.domains, **{key: _fitted(run, key, values, cfg) for key, values in run.domains.items()}}
    for key, values in run.only.items():
        every = domains[key] if key in domains else subject.domains.get(key)
        known = every.by if isinstance(every, Offset) else every
        if not isinstance(known, tuple):
            raise BadValue(f"the run {run.id}: `only` needs fixed values of {key}, which depend on the state")
        left = tuple(each for each in known if plain(each) in values)
        if len(left) != len(values):
            raise BadValue(f"the run {run.id}: `only` has {values} for {key}, whose values are {plain(known)}")
        domains[key] = replace(every, by=left) if isinstance(every, Offset) else left
    driven = [action for action in dict.fromkeys((*scope.actions, *run.actions)) if action not in run.without]
    bounds = {**scope.bounds, **run.bounds}
    return replace(scope, settings=settings, actions=tuple(driven), domains=domains, bounds=bounds)


def _fitted(run: Run, key: str, values: Any, cfg: Any) -> tuple[Any, ...]:
    """Returns the values in a run's table as values of the model. `key` is `argument` or `action.argument`."""
    wanted, _, argument = key.rpartition(".")
    for action in run.subject.machine.actions.values():
        for name, fits, where in action.fitters:
            if name == argument and wanted in ("", action.name):
                return tuple(fits(_with_none(value), where, cfg) for value in values)
    raise BadValue(f"the run {run.id} has values of {key}, which no action of {run.component} has")


def _with_none(value: Any) -> Any:
    """Returns a value of TOML with None for the string "None", because TOML has no null."""
    if isinstance(value, dict):
        return {key: _with_none(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_none(each) for each in value]
    return None if value == "None" else value


def chosen(runs: list[Run], modules: list[str], scope: str | None) -> list[Run]:
    """Returns the runs of the named modules, or of all, in a scope; without a scope, all but the nightly runs.

    Raises BadValue if there is no such module, or no run of these modules in the scope.
    """
    known = list(dict.fromkeys(run.module for run in runs))
    for module in modules:
        if module not in known:
            raise BadValue(f"no run has the module {module}; there are {', '.join(known)}")
    of_modules = [run for run in runs if not modules or run.module in modules]
    if scope is None:
        return [run for run in of_modules if not run.nightly]
    found = [run for run in of_modules if run.scope == scope]
    if not found:
        scopes = ", ".join(dict.fromkeys(run.scope for run in of_modules))
        raise BadValue(f"no run has the scope {scope}; there are {scopes}")
    return found
