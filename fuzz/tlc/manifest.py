"""The runs of TLC, which checks a component's twin: its specification in TLA+.

A run is derived from a scope, derived from a defect, or written in `tla/runs/`.

    scope      a run for each scope whose actions the twin has, under `reference`. TLC must find no violated safety
               property, and as many states as the explorer. Up to 25,000 states, the steps are compared, too. In a
               larger scope, the explorer does not run: TLC's number of states must be that of
               `fuzz/explore/counts.toml`
    defect     a run for each row of the defect table whose property the twin states, under `Defect.config`. TLC must
               find that the property is violated
    written    everything else: liveness under fairness, and without fairness (a control, which must be violated); other
               profiles, actions and values

A written run is a table of `tla/runs/<component>.toml`. The name of the table is the name of the run. Its keys are
fields of `Run`, such as:

    scope      a scope of the component; `settings`, `actions`, `without`, `only`, `domains` and `bounds` change it
    about      one line
    checks     the properties that must hold: names, `always` (all safety properties that the twin states) or
               `eventually` (all liveness properties). Default: `always`; but nothing if `profile` is not `reference`,
               or if a key of `settings` is a rule
    violates   in place of `checks`: the property that TLC must find violated
    fair       the fair actions. Default: those that the liveness properties name. With an empty list, no action
               is assumed to be fair; the actions that the liveness properties name still occur
    profile    default: `reference`
    nightly    if true, `brokerproof tla` makes the run only if `--scope` names its scope. The nightly tests and
               `brokerproof check --tier nightly` make it

The table `defaults` has defaults for the other tables of its file, and for the component's derived runs.
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

#: The name of the folder with the written runs, one file for each component. It is in the folder of the modules.
RUNS = "runs"
REFERENCE = "reference"
#: If a scope has more states, the steps of its derived run are not compared: the graph takes minutes to write, read and
#: compare.
_MAX_STATES_FOR_EDGES = 25_000
#: If a scope has more states, its derived run is nightly.
_MAX_STATES_UNLESS_NIGHTLY = 60_000


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
    settings: Mapping[str, Any] = {}  # each replaces the scope's value of this setting
    actions: tuple[str, ...] = ()  # actions that are added to those of the scope
    without: tuple[str, ...] = ()  # actions that are removed from those of the scope
    only: Mapping[
        str, Any
    ] = {}  # by argument: the values of its domain that are kept; if it is an `Offset`, those of `by`
    domains: Mapping[str, Any] = {}  # by argument: the values that replace the domain
    bounds: Mapping[str, int] = {}  # each replaces the scope's bound of this measure
    nightly: bool = False
    counts: Counts | None = None  # of a run that is derived from a scope: the scope's stored counts, if it has any

    @property
    def id(self) -> str:
        """The component and the name of the run, which together are unique."""
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
        """What TLC checks: names of operators, or `always` or `eventually` for all properties of that kind."""
        if self.violates:
            return (self.violates,)
        if self.checks is not None:
            return self.checks
        rules = set(self.settings) & set(self.subject.machine.rules)
        return () if rules or self.profile != REFERENCE else (ALWAYS,)

    @property
    def compares_edges(self) -> bool:
        """Whether TLC's steps are compared with the explorer's.

        They are not if TLC must find a violation, if TLC checks liveness, or if the stored counts have too many states.
        """
        liveness = {EVENTUALLY} | {camel(p.name) for p in self.subject.properties if p.kind == EVENTUALLY}
        has_few_states = self.counts is None or self.counts.distinct_states <= _MAX_STATES_FOR_EDGES
        return has_few_states and not self.violates and not liveness & set(self.wanted)

    def space(self) -> Space:
        """Returns the state space of the model within the scope, with the run's changes of the scope.

        Raises BadValue for an unknown scope, profile, setting, action, measure, argument or value.
        """
        return Space(self.subject, self.profile, _changed_scope(self, find_scope(self.subject, self.scope)))


def all_runs(folder: Path) -> list[Run]:
    """Returns the derived and then the written runs of each component that has a file of written runs.

    `folder` has the modules and, in `runs/`, these files. Raises BadValue for an invalid file or run, and if there is
    no file.
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
    """Yields a run for each scope of a component whose actions the twin has."""
    for scope_name, scope in find_subject(name).scopes.items():
        if all(camel(action) in module.operators for action in scope.actions):
            counts = counts_of(name, scope_name)
            is_nightly = counts is not None and counts.distinct_states > _MAX_STATES_UNLESS_NIGHTLY
            about = "the whole scope under the reference"
            table = {"scope": scope_name, "about": about, "nightly": is_nightly}
            yield _run_of(name, scope_name, table, defaults, counts)


def _of_defects(name: str, module: Module, defaults: Mapping[str, Any]) -> Iterator[Run]:
    """Yields a run for each row of a component's defect table whose property the twin states."""
    for row in defects_of(name):
        if camel(row.property) in module.operators:
            changed = {rule: plain(value) for rule, value in row.changes().items()}
            table = {"scope": "smoke", **row.tlc, "violates": camel(row.property), "about": row.symptom}
            table["settings"] = {**row.tlc.get("settings", {}), **changed}
            yield _run_of(name, row.id.replace("-", "_"), table, defaults)


def _read(path: Path, component: str) -> tuple[Mapping[str, Any], list[Run]]:
    """Returns the defaults and the written runs of a file. Raises BadValue if the file is invalid."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        defaults = tables.pop("defaults", {})
        return defaults, [_run_of(component, name, table, defaults) for name, table in tables.items()]
    except (ValueError, AttributeError, TypeError) as problem:  # no TOML, no UTF-8, a value in place of a table
        raise BadValue(f"{path}: {problem}") from None


def _run_of(
    component: str, name: str, table: Mapping[str, Any], defaults: Mapping[str, Any], counts: Counts | None = None
) -> Run:
    """Returns the run that a table describes. Raises BadValue for a wrong name or key, and for a value of a wrong type.

    A key of `defaults` applies if the table does not have this key. The settings of both are merged.
    """
    merged = {**defaults, **table}
    merged["settings"] = {**defaults.get("settings", {}), **table.get("settings", {})}
    if not name.isidentifier():
        raise BadValue(f"a run's name has letters, digits and _, got {name}")
    try:
        return msgspec.convert({**merged, "component": component, "name": name, "counts": counts}, Run)
    except msgspec.ValidationError as problem:
        raise BadValue(f"the run {name}: {problem}") from None


def _changed_scope(run: Run, scope: Scope) -> Scope:
    """Returns the scope with the run's changes. Raises BadValue for a change that does not fit the subject or scope."""
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
        domain = domains[key] if key in domains else subject.domains.get(key)
        fixed = domain.by if isinstance(domain, Offset) else domain
        if not isinstance(fixed, tuple):
            raise BadValue(
                f"the run {run.id}: `only` cannot restrict {key}: it has no domain, or its values depend on the state"
            )
        kept = tuple(each for each in fixed if plain(each) in values)
        if len(kept) != len(values):
            raise BadValue(f"the run {run.id}: `only` has {values} for {key}, whose values are {plain(fixed)}")
        domains[key] = replace(domain, by=kept) if isinstance(domain, Offset) else kept
    actions = [action for action in dict.fromkeys((*scope.actions, *run.actions)) if action not in run.without]
    bounds = {**scope.bounds, **run.bounds}
    return replace(scope, settings=settings, actions=tuple(actions), domains=domains, bounds=bounds)


def _fitted(run: Run, key: str, values: Any, cfg: Any) -> tuple[Any, ...]:
    """Returns the values in a run's table as values of the model. `key` is `argument` or `action.argument`.

    Raises BadValue for an unknown argument, and for a value that does not fit it.
    """
    action_name, _, argument = key.rpartition(".")
    for action in run.subject.machine.actions.values():
        for name, converted, label in action.fitters:
            if name == argument and action_name in ("", action.name):
                return tuple(converted(_with_none(value), label, cfg) for value in values)
    raise BadValue(f"the run {run.id} has values of {key}, which no action of {run.component} has")


def _with_none(value: Any) -> Any:
    """Returns a value from TOML, with None in place of the string "None", because TOML has no null."""
    if isinstance(value, dict):
        return {key: _with_none(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_none(each) for each in value]
    return None if value == "None" else value


def chosen(runs: list[Run], modules: list[str], scope: str | None, *, nightly: bool = False) -> list[Run]:
    """Returns the runs of the named modules in a scope; without a scope, in all scopes.

    Without a scope, nightly runs are left out unless `nightly` is true. If `modules` is empty, the runs are of all
    modules. Raises BadValue if a module has no run, or if these modules have no run in the scope.
    """
    with_runs = list(dict.fromkeys(run.module for run in runs))
    for module in modules:
        if module not in with_runs:
            raise BadValue(f"no run has the module {module}; there are {', '.join(with_runs)}")
    of_modules = [run for run in runs if not modules or run.module in modules]
    if scope is None:
        return [run for run in of_modules if nightly or not run.nightly]
    found = [run for run in of_modules if run.scope == scope]
    if not found:
        scopes = ", ".join(dict.fromkeys(run.scope for run in of_modules))
        raise BadValue(f"no run has the scope {scope}; there are {scopes}")
    return found
