"""Seeds bugs for tests, proofs, the kill matrix and campaigns.

A seeded bug is a change in the source text of one module. A mutant of `fuzz/mutants/<component>.toml`, and the control
of a claim, replace one passage of the text. Other changes are made by mutation operators. `seed_source` imports the
component's modules again, one of them from the changed text, and returns their subject; `sys.modules` keeps the
original modules. `use_source` makes the process import a module from changed text.

A seeded bug that changes nothing would survive every check. So it is an error if the passage does not occur exactly
once, if the replacement leaves the same program, or if the subject does not import the changed module.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import importlib
import importlib.util
import pkgutil
import sys
import threading
import tomllib
import warnings
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from importlib.resources import files
from types import ModuleType
from typing import Any, NamedTuple

from fuzz.subject import Subject, find_subject, subject_names
from model.machine import BadComponent, BadValue

#: An error message lists all known ids if there are at most this many, otherwise the similar ones.
_MAX_LISTED_IDS = 12
#: The layers in which a component has a module or a package of its name.
_LAYERS = ("model", "impl", "invariants", "fuzz.subjects")
_import_lock = threading.RLock()


class Mutant(NamedTuple):
    """One bug of the table `fuzz/mutants/<component>.toml`."""

    id: str  # starts with `spec-` if the bug is in the model
    subject: str
    origin: str  # the upstream issue, pull request, test or revision, or "synthetic", the default
    about: str  # the symptom, in one sentence
    module: str  # full name of the changed module; by default the module of the component that contains `find`
    find: str
    replace: str
    profile: str = "reference"  # the profile under which the checks run


# ---- the table ----------------------------------------------------------------------------------------


def mutants_of(subject: str) -> list[Mutant]:
    """Returns the mutants of a component, in the order of its file. Raises BadValue if the file is not valid."""
    return list(_read_mutants(subject))


@functools.cache
def _read_mutants(subject: str) -> tuple[Mutant, ...]:
    path = f"fuzz/mutants/{subject}.toml"
    try:
        return tuple(
            Mutant(name, subject, **{"origin": "synthetic", **table, "module": _module_of(subject, name, table)})
            for name, table in _read_file(subject).get("mutant", {}).items()
        )
    except (AttributeError, KeyError, TypeError) as problem:
        raise BadValue(f"{path}: {problem}; a mutant is a table [mutant.ID] with about, find, replace") from None


def _module_of(subject: str, mutant_id: str, table: dict[str, str]) -> str:
    """Returns the `module` of a mutant's table. By default, this is the component's module that has the passage `find`.

    That module is in `model/` if the id starts with `spec-`, else in `impl/`. If no module has the passage, returns the
    first module of the component. Raises BadValue if several modules have the passage.
    """
    if "module" in table:
        return table["module"]
    modules = modules_of("model" if mutant_id.startswith("spec-") else "impl", subject)
    found = [m for m in modules if table["find"] in source_of(m)]
    if len(found) > 1:
        raise BadValue(f"the text `find` of mutant {mutant_id} occurs in {' and '.join(found)}; add its `module`")
    return (found or modules)[0]


@functools.cache
def _read_file(subject: str) -> dict[str, Any]:
    resource = files("fuzz") / "mutants" / f"{subject}.toml"
    if not resource.is_file():
        return {}
    try:
        return tomllib.loads(resource.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise BadValue(f"fuzz/mutants/{subject}.toml: {problem}") from None


def reasons_to_keep(subject: str) -> dict[str, str]:
    """Returns the table `stays`: property -> the reason to keep it, although it is no mutant's only killer."""
    return {str(k): str(v) for k, v in _read_file(subject).get("stays", {}).items()}


@functools.cache
def equivalents_of(subject: str) -> dict[tuple[str, str], str]:
    """Returns the reasons why generated mutants are equivalent, by module and id (`function: line => changed line`).

    They are the rows `[[equivalent]]` of a component's file: a module, the ids of mutants, and the reason. An id that
    ends with `=>` covers all changes of its line.
    """
    found: dict[tuple[str, str], str] = {}
    for row in _read_file(subject).get("equivalent", []):
        if set(row) != {"module", "mutants", "reason"} or not row["reason"]:
            raise BadValue(f"fuzz/mutants/{subject}.toml: [[equivalent]] needs module, mutants and reason, got {row}")
        for each in row["mutants"]:
            if found.setdefault((row["module"], each), row["reason"]) != row["reason"]:
                raise BadValue(f"fuzz/mutants/{subject}.toml: two reasons for {each} of {row['module']}")
    return found


def _similar(mutant_id: str, ids: list[str]) -> list[str]:
    return difflib.get_close_matches(mutant_id, list(dict.fromkeys(ids)), 5, 0.0)


def find_mutant(mutant_id: str, subjects: list[str] | None = None) -> Mutant:
    """Returns the mutant with that id among those of `subjects`, by default of all. Raises BadValue if none has it."""
    names = subjects or subject_names()
    every = [m for name in names for m in mutants_of(name)]
    for mutant in every:
        if mutant.id == mutant_id:
            return mutant
    ids = [m.id for m in every]
    known = ", ".join(ids) if len(ids) <= _MAX_LISTED_IDS else f"similar are {', '.join(_similar(mutant_id, ids))}"
    where = names[0] if len(names) == 1 else "any component"
    raise BadValue(f"there is no mutant {mutant_id} of {where}; {known or 'it has none'}")


# ---- text ---------------------------------------------------------------------------------------------


def source_of(module: str) -> str:
    """Returns the source text of a module, without importing it. Raises BadValue if the module does not exist."""
    try:
        spec = importlib.util.find_spec(module)
    except (ModuleNotFoundError, ValueError):
        spec = None
    if spec is None or spec.loader is None or not hasattr(spec.loader, "get_source"):
        raise BadValue(f"there is no module {module}")
    return str(spec.loader.get_source(module))


def replaced_source(what: str, module: str, find: str, replace: str) -> str:
    """Returns the text of a module with one passage replaced; `what` names the bug in errors.

    Raises BadValue unless the passage occurs exactly once and the result is another valid program.
    """
    source = source_of(module)
    count = source.count(find)
    if count != 1:
        raise BadValue(f"{what} no longer applies: its text occurs {count} times in {module}, expected once")
    changed = source.replace(find, replace)
    try:
        parsed = ast.parse(changed)
    except SyntaxError as problem:
        raise BadValue(f"{what} leaves a syntax error in {module}: {problem}") from None
    if ast.dump(parsed) == _program_of(source):
        raise BadValue(f"{what} changes nothing in {module}")
    return changed


@functools.lru_cache(maxsize=8)
def _program_of(source: str) -> str:
    """Returns the syntax tree of a source text as text: without layout and comments."""
    return ast.dump(ast.parse(source))


def mutated_source(mutant: Mutant) -> str:
    """Returns the changed text of the mutant's module. Raises BadValue if `replaced_source` does."""
    return replaced_source(f"the mutant {mutant.id}", mutant.module, mutant.find, mutant.replace)


# ---- subjects -----------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def seed_bug(mutant: Mutant) -> Subject:
    """Returns the mutant's subject, built from modules with the bug.

    Raises BadValue if `mutated_source` or `seed_source` does.
    """
    return seed_source(mutant.subject, mutant.module, mutated_source(mutant))


def seed_source(subject: str, module: str, source: str) -> Subject:
    """Returns the subject, built with changed text of a module. Also raises what the import of the text raises.

    Raises BadValue if the subject does not import the module. The original modules are imported first, because
    `typing.get_type_hints` later looks up types of seeded records by module name.
    """
    find_subject(subject)
    fresh = _FreshModules(subject, module, source)
    with fresh:
        seeded: Subject = importlib.import_module(f"fuzz.subjects.{subject}").subject
    if not fresh.is_imported:
        raise BadValue(f"{subject} does not import {module}, so a bug in it changes nothing")
    return dataclasses.replace(seeded, seeded_source=(module, source))


def subject_or_mutant(name: str, mutant_id: str | None) -> Subject:
    """Returns the subject, with a mutant's bug if an id is given.

    Raises BadValue for an unknown name or id, BadComponent if the implementation lacks a method.
    """
    subject = find_subject(name)
    implementation = subject.implementation
    for method in (*subject.machine.actions, "check", "view", "load"):
        if not callable(getattr(implementation, method, None)):
            raise BadComponent(
                f"{implementation.__module__}.{implementation.__name__} has no method {method}, "
                f"which model.{name} requires"
            )
    return subject if mutant_id is None else seed_bug(find_mutant(mutant_id, [name]))


def modules_of(layer: str, subject: str) -> list[str]:
    """Returns the names of a component's modules in a layer: one, or those of its package; none if absent."""
    name = f"{layer}.{subject}"
    spec = importlib.util.find_spec(name)
    if spec is None:
        return []
    inner = pkgutil.iter_modules(spec.submodule_search_locations or ())
    return [name, *sorted(f"{name}.{each.name}" for each in inner)]


# ---- importing ----------------------------------------------------------------------------------------


class _Source:
    """Import hook and loader of one module from changed text. `inspect.getsource` returns that text."""

    def __init__(self, module: str, source: str) -> None:
        self.module = module
        self.source = source
        self.is_imported = False

    def find_spec(self, name: str, path: Any = None, _target: object = None) -> ModuleSpec | None:
        """Import hook: finds this module only."""
        if name != self.module:
            return None
        loader: Any = self
        spec = ModuleSpec(name, loader, origin=f"seeded/{name}.py")
        spec.has_location = True
        original = PathFinder.find_spec(name, path)
        spec.submodule_search_locations = original.submodule_search_locations if original else None
        return spec

    def create_module(self, _spec: Any) -> None:
        """Import hook: the default module object."""

    def exec_module(self, module: Any) -> None:
        """Import hook: executes the changed text."""
        self.is_imported = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # a seeded bug may cause one
            code = compile(self.source, module.__spec__.origin, "exec")
        exec(code, module.__dict__)  # noqa: S102

    def get_source(self, _name: str) -> str:
        """The changed text, for `linecache`."""
        return self.source


def use_source(module: str, source: str) -> None:
    """Makes this process import a module from changed text. Raises RuntimeError if the module is already imported."""
    if module in sys.modules:
        raise RuntimeError(f"{module} has been imported before the bug was seeded")
    hook: Any = _Source(module, source)
    sys.meta_path.insert(0, hook)


class _FreshModules(_Source):
    """Context manager: the component's modules are imported again inside it, one of them from changed text."""

    def __init__(self, subject: str, module: str, source: str) -> None:
        super().__init__(module, source)
        of_subject = tuple(f"{layer}.{subject}" for layer in _LAYERS)
        self.names = {module, *of_subject}
        self.names |= {n for n in sys.modules if n.startswith(tuple(f"{name}." for name in of_subject))}

    def __enter__(self) -> None:
        _import_lock.acquire()
        self.names |= set(_dependents(self.names))
        self.kept: dict[str, Any] = {n: sys.modules.pop(n) for n in self.names if n in sys.modules}
        for name in self.names:
            _set_in_parent(name, None)  # `from invariants import x` imports x only if `invariants` has no attribute x
        hook: Any = self
        sys.meta_path.insert(0, hook)

    def __exit__(self, *problem: object) -> None:
        hook: Any = self
        sys.meta_path.remove(hook)
        for name in self.names:
            sys.modules.pop(name, None)
        sys.modules.update(self.kept)
        for name in self.names:
            _set_in_parent(name, self.kept.get(name))
        _import_lock.release()


def _set_in_parent(name: str, module: Any) -> None:
    """Sets a module as attribute of its package; None removes the attribute."""
    package, _, child = name.rpartition(".")
    parent = sys.modules.get(package)
    if parent is not None and module is not None:
        setattr(parent, child, module)
    elif parent is not None and hasattr(parent, child):
        delattr(parent, child)


def _module_name(value: Any) -> Any:
    """Returns the name of a module, or of the module in which any other value or its class was defined."""
    return value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)


def _dependents(names: set[str]) -> Iterator[str]:
    """Yields the imported modules of `_LAYERS` that use those of `names`, also indirectly. Adds them to `names`.

    A module uses another if one of its globals is the other module, or was defined there.
    """
    todo = list(names)
    while todo:
        wanted = todo.pop()
        for name, module in list(sys.modules.items()):
            is_component = name.startswith(_LAYERS) and name not in names and module is not None
            if is_component and any(_module_name(value) == wanted for value in vars(module).values()):
                names.add(name)
                todo.append(name)
                yield name
