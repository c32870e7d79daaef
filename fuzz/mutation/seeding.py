"""Planted bugs: what the harness must find.

A mutant is a small replacement in one source file, kept in `fuzz/mutants/` with the bug it comes from. Planting
one gives a subject whose modules were imported anew with the replacement made, in memory only; the honest
modules are not touched. A replacement that no longer applies, or applies twice, fails loudly: a mutant that
changes nothing would be a test of nothing.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import pkgutil
import sys
import threading
import tomllib
import warnings
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, NamedTuple

import fuzz.subjects
from fuzz.subject import Subject, find_subject
from model.machine import BadComponent, BadValue

#: The layers in which a component has a module or a package of its name, lowest first.
_LAYERS = ("model", "impl", "invariants", "fuzz.subjects")
_importing = threading.RLock()


class Mutant(NamedTuple):
    """One planted bug."""

    id: str
    subject: str
    origin: str  # the upstream issue, pull request, test or revision, or "synthetic"
    about: str  # the symptom, in one sentence
    module: str  # as imported, with its floor in front
    find: str
    replace: str
    profile: str = "reference"  # under which it shows


def mutants_of(subject: str) -> list[Mutant]:
    """The planted bugs of a component, in the order of their file; none if it has no file."""
    return list(_read_mutants(subject))


@functools.cache
def _read_mutants(subject: str) -> tuple[Mutant, ...]:
    place = f"fuzz/mutants/{subject}.toml"
    try:
        found = tuple(Mutant(subject=subject, **table) for table in _read_file(subject).get("mutant", []))
    except TypeError as problem:
        raise BadValue(f"{place}: {problem}; a mutant has id, origin, about, module, find, replace") from None
    ids = [m.id for m in found]
    for each in ids:
        if ids.count(each) > 1:
            raise BadValue(f"{place}: the mutant {each} is there twice")
    return found


@functools.cache
def _read_file(subject: str) -> dict[str, Any]:
    resource = files("fuzz") / "mutants" / f"{subject}.toml"
    if not resource.is_file():
        return {}
    try:
        return tomllib.loads(resource.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise BadValue(f"fuzz/mutants/{subject}.toml: {problem}") from None


def reasons_of(subject: str, table: str) -> dict[str, str]:
    """The sentences of a table in a component's file of mutants: why a property stays, why a mutant changes nothing."""
    return {str(k): str(v) for k, v in _read_file(subject).get(table, {}).items()}


def find_mutant(mutant_id: str, subjects: list[str] | None = None) -> Mutant:
    """The mutant of that id. Raises BadValue, naming the ones there are, when there is none."""
    names = subjects or sorted(m.name for m in pkgutil.iter_modules(fuzz.subjects.__path__))
    every = [m for name in names for m in mutants_of(name)]
    for mutant in every:
        if mutant.id == mutant_id:
            return mutant
    raise BadValue(
        f"there is no mutant {mutant_id} of {', '.join(names)}; there are {', '.join(m.id for m in every) or 'none'}"
    )


def mutated_source(mutant: Mutant) -> str:
    """The source of the mutant's module with the replacement made.

    Raises BadValue when the text to replace does not stand there exactly once, or when the result is the same
    program or none.
    """
    source = source_of(mutant.module)
    count = source.count(mutant.find)
    if count != 1:
        raise BadValue(
            f"the mutant {mutant.id} no longer applies: its text stands {count} times in {mutant.module}, must be once"
        )
    changed = source.replace(mutant.find, mutant.replace)
    try:
        parsed = ast.parse(changed)
    except SyntaxError as problem:
        raise BadValue(f"the mutant {mutant.id} makes no Python of {mutant.module}: {problem}") from None
    if ast.dump(parsed) == ast.dump(ast.parse(source)):
        raise BadValue(f"the mutant {mutant.id} changes nothing in {mutant.module}")
    return changed


def source_of(module: str) -> str:
    """The text of a module, without importing it. Raises BadValue when there is none."""
    try:
        spec = importlib.util.find_spec(module)
    except (ModuleNotFoundError, ValueError):
        spec = None
    if spec is None or spec.loader is None or not hasattr(spec.loader, "get_source"):
        raise BadValue(f"there is no module {module}")
    return str(spec.loader.get_source(module))


@functools.lru_cache(maxsize=64)
def plant(mutant: Mutant) -> Subject:
    """The mutant's subject, built from modules in which the bug is planted."""
    return plant_source(mutant.subject, mutant.module, mutated_source(mutant))


def plant_source(subject: str, module: str, source: str) -> Subject:
    """The subject with other text for one module. The honest modules stay as they are.

    They are imported first: the types of planted records are looked up by the names of their modules, later on.
    """
    find_subject(subject)
    with _FreshModules(subject, module, source):
        planted: Subject = importlib.import_module(f"fuzz.subjects.{subject}").subject
    return planted


def subject_or_mutant(name: str, mutant_id: str | None) -> Subject:
    """The honest subject, or the one with a planted bug. Raises BadValue, also for an incomplete implementation."""
    subject = find_subject(name)
    there = subject.implementation
    for method in (*subject.machine.actions, "check", "view", "load"):
        if not callable(getattr(there, method, None)):
            raise BadComponent(f"{there.__module__}.{there.__name__} has no method {method}, as model.{name} asks for")
    return subject if mutant_id is None else plant(find_mutant(mutant_id, [name]))


class _FreshModules:
    """While inside, the component's modules are imported anew, one of them from other text."""

    def __init__(self, subject: str, module: str, source: str) -> None:
        self.module = module
        self.source = source
        of_subject = tuple(f"{layer}.{subject}" for layer in _LAYERS)
        self.names = {module, *of_subject}
        self.names |= {n for n in sys.modules if n.startswith(tuple(f"{name}." for name in of_subject))}

    def __enter__(self) -> None:
        _importing.acquire()
        self.names |= set(_dependents(self.names))
        self.kept: dict[str, Any] = {n: sys.modules.pop(n) for n in self.names if n in sys.modules}
        for name in self.names:
            _set_in_parent(name, None)  # `from invariants import x` looks there before it imports
        sys.meta_path.insert(0, self)

    def __exit__(self, *problem: object) -> None:
        sys.meta_path.remove(self)
        for name in self.names:
            sys.modules.pop(name, None)
        sys.modules.update(self.kept)
        for name in self.names:
            _set_in_parent(name, self.kept.get(name))
        _importing.release()

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> Any:
        """Import hook: our text for our module, nothing for others."""
        if name != self.module:
            return None
        loader: Any = self
        return importlib.util.spec_from_loader(name, loader, origin=f"<planted in {name}>")

    def create_module(self, spec: Any) -> None:
        """Import hook: an ordinary module."""

    def exec_module(self, module: Any) -> None:
        """Import hook: runs our text."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # a planted bug may look like one
            code = compile(self.source, module.__spec__.origin, "exec")
        exec(code, module.__dict__)  # noqa: S102


def _set_in_parent(name: str, module: Any) -> None:
    """Sets, or with None removes, a module as attribute of its package."""
    package, _, child = name.rpartition(".")
    parent = sys.modules.get(package)
    if parent is not None and module is not None:
        setattr(parent, child, module)
    elif parent is not None and hasattr(parent, child):
        delattr(parent, child)


def _dependents(names: set[str]) -> Iterator[str]:
    """Component modules, already imported, that import one of the given modules: they must see the planted one."""
    todo = list(names)
    while todo:
        wanted = todo.pop()
        for name, module in list(sys.modules.items()):
            is_component = name.startswith(_LAYERS) and name not in names and module is not None
            if is_component and any(getattr(value, "__module__", None) == wanted for value in vars(module).values()):
                names.add(name)
                todo.append(name)
                yield name
