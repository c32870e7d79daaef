"""The manifest of TLC's runs: which module in which scope, what is expected, and what the run has of its own."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fuzz.explore.search import Bounded, find_scope
from fuzz.subject import Offset, Scope, Subject, find_subject, subject_names
from fuzz.tlc.process import SUCCESS, VIOLATED
from model.machine import BadValue, plain

#: The folder beside the modules whose files list the runs, one file a component.
RUNS = "runs"


class Run(NamedTuple):
    """One run of the manifest."""

    name: str
    module: str
    scope: str
    about: str
    expected: str = SUCCESS  # or `violated NAME`
    distinct_states: int | None = None  # exactly; none where a violation ends the run
    profile: str = "reference"
    edges: bool = False  # whether the steps are compared, too
    nightly: bool = False  # too long for every change
    #: properties by name, or `always` and `eventually` for all that the subject has of that kind
    checks: tuple[str, ...] = ()
    settings: Mapping[str, Any] = {}  # over those of the scope
    actions: tuple[str, ...] = ()  # besides those of the scope
    only: Mapping[str, Any] = {}  # fewer values of an argument; of an Offset, fewer offsets
    fair: tuple[str, ...] | None = None  # instead of those that the properties name
    constants: Mapping[str, Any] = {}  # of a module that is no subject's twin
    model_values: Mapping[str, Any] = {}  # likewise: a name, or a list of names
    symmetry: str | None = None  # likewise: an operator that gives permutations


def read_manifest(folder: Path) -> list[Run]:
    """The runs listed by the files of `folder/runs`, in the files' order. Raises BadValue for an invalid file.

    A file's table `defaults.<Module>` gives what a run of the module leaves out; tables merge key by key.
    """
    files = sorted((folder / RUNS).glob("*.toml"))
    if not files:
        raise BadValue(f"there is no {folder / RUNS}; the TLA+ modules come with the sources, not with the package")
    runs = [run for path in files for run in _read(path)]
    names = [run.name for run in runs]
    for name in names:
        if names.count(name) > 1:
            raise BadValue(f"{folder / RUNS}: the run {name} is there twice")
    return runs


def _read(path: Path) -> list[Run]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as problem:
        raise BadValue(f"{path}: {problem}") from None
    defaults = tables.get("defaults", {})
    return [_run_of(_over(defaults.get(table.get("module"), {}), table), path) for table in tables.get("run", [])]


def _over(default: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**default, **table}
    for key, value in default.items():
        if isinstance(value, dict) and isinstance(table.get(key), dict):
            merged[key] = {**value, **table[key]}
    return merged


def _run_of(table: Mapping[str, Any], place: Path) -> Run:
    for key in table:
        if key not in Run._fields:
            raise BadValue(f"{place}: a run has no {key}; it has {', '.join(Run._fields)}")
    for key in ("name", "module", "scope", "about"):
        if key not in table:
            raise BadValue(f"{place}: the run {table.get('name', '?')} lacks {key}")
    if not str(table["name"]).isidentifier():
        raise BadValue(f"{place}: {table['name']} is no name for a run; letters, digits and _ are")
    fields: dict[str, Any] = {key: tuple(each) if isinstance(each, list) else each for key, each in table.items()}
    try:
        _check(fields)
    except BadValue as problem:
        raise BadValue(f"{place}: the run {table['name']}: {problem}") from None
    return Run(**fields)


def _check(fields: Mapping[str, Any]) -> None:
    """Raises BadValue when a value is of another type than the run's field has."""
    kinds: dict[str, Any] = {"distinct_states": int, "edges": bool, "nightly": bool}
    kinds |= dict.fromkeys(("checks", "actions", "fair"), tuple)
    kinds |= dict.fromkeys(("settings", "only", "constants", "model_values"), dict)
    for name, value in fields.items():
        kind = kinds.get(name, str)
        if type(value) is not kind:
            raise BadValue(f"{name} is {value!r}, must be {'a list' if kind is tuple else f'of type {kind.__name__}'}")
    expected = fields.get("expected", SUCCESS)
    if expected != SUCCESS and not str(expected).startswith(f"{VIOLATED} "):
        raise BadValue(f"expected is {expected!r}, must be {SUCCESS} or {VIOLATED} and a property's name")


def space_of(run: Run) -> Bounded | None:
    """The model within the run's scope; none for a module that is no subject's twin.

    Raises BadValue for a scope, profile, setting, action or value that there is not.
    """
    for name in subject_names():
        subject = find_subject(name)
        if subject.tla == run.module:
            return Bounded(subject, run.profile, narrowed(run, subject, find_scope(subject, run.scope)))
    return None


def narrowed(run: Run, subject: Subject, scope: Scope) -> Scope:
    """The scope with the run's settings and further actions, and only those of its values that the run leaves."""
    for action in run.actions:
        if action not in subject.machine.actions:
            raise BadValue(f"the run {run.name} drives {action}, which {subject.name} does not have")
    domains = dict(scope.domains)
    for key, values in run.only.items():
        every = domains[key] if key in domains else subject.domains.get(key)
        known = every.by if isinstance(every, Offset) else every
        if not isinstance(known, tuple):
            raise BadValue(f"the run {run.name} has only some values of {key}, which has no fixed ones")
        left = tuple(each for each in known if plain(each) in values)
        if len(left) != len(values):
            raise BadValue(f"the run {run.name} has only {values} of {key}, which has {plain(known)}")
        domains[key] = replace(every, by=left) if isinstance(every, Offset) else left
    settings = {**scope.settings, **run.settings}
    return replace(
        scope, settings=settings, actions=tuple(dict.fromkeys((*scope.actions, *run.actions))), domains=domains
    )


def chosen(runs: list[Run], modules: list[str], scope: str | None) -> list[Run]:
    """The runs of the named modules (default: all) and scope (default: all but nightly ones).

    Raises BadValue when there is none.
    """
    known = list(dict.fromkeys(run.module for run in runs))
    for module in modules:
        if module not in known:
            raise BadValue(f"the manifest has no module {module}; it has {', '.join(known)}")
    of_modules = [run for run in runs if not modules or run.module in modules]
    if scope is None:
        return [run for run in of_modules if not run.nightly]
    found = [run for run in of_modules if run.scope == scope]
    if not found:
        scopes = ", ".join(dict.fromkeys(run.scope for run in of_modules))
        raise BadValue(f"no run has the scope {scope}; there are {scopes}")
    return found
