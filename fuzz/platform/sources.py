"""The files that a component's checks depend on. A verdict is cached until one of these files changes."""

from __future__ import annotations

import ast
import functools
import hashlib
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from model.machine import BadValue

ROOT = Path(__file__).parents[2]
_LAYERS = ("model", "impl", "invariants", "fuzz")
#: Folders of `fuzz/` with files of single components. Checks of every component depend on all other files of `fuzz/`.
_BY_COMPONENT = ("subjects", "recordings", "defects", "mutants", "benchmarks", "charts")
#: The modules that a TLA+ module refers to.
_TLA_MODULES = re.compile(r"\b(?:EXTENDS|INSTANCE)\s+(\w+(?:\s*,\s*\w+)*)")


def files_of(component: str, twin: str | None = None) -> frozenset[Path]:
    """Returns the files that checks of a component depend on, relative to the root.

    They are the component's own files, what these import, the engines, the versions of the packages, and all
    recordings. If the component has a twin in TLA+, named `twin`: also the twin's modules and the list of TLC's runs.
    """
    own = [f"{layer}.{component}" for layer in ("model", "impl", "invariants", "invariants.proofs")]
    own += [f"fuzz.{folder}.{component}" for folder in ("subjects", "recordings")]
    found = {path for name in own for path in _module_files(name)}
    found |= {path for name in own for path in ROOT.joinpath(*name.split(".")).rglob("*.py")}
    found |= _imported(found)
    found |= {path for folder in _BY_COMPONENT for path in (ROOT / "fuzz" / folder).glob(f"{component}.*")}
    found |= _engine_files()
    found |= {ROOT / "requirements.lock", *(ROOT / "tests" / "recordings").glob("*.gz")}
    if twin is not None:
        found |= {*_twin_files(twin), *(ROOT / "tla").glob(f"runs/{component}.toml")}
    return frozenset(path.relative_to(ROOT) for path in found if path.is_file())


def _twin_files(twin: str) -> set[Path]:
    """Returns the files of a twin's modules, and of those that they extend or instantiate, directly or not."""
    found, pending = set[Path](), set((ROOT / "tla").glob(f"{twin}*.tla"))
    while pending:
        path = pending.pop()
        found.add(path)
        names = _TLA_MODULES.findall(path.read_text(encoding="utf-8"))
        named = {path.with_name(f"{name.strip()}.tla") for each in names for name in each.split(",")}
        pending |= {each for each in named - found if each.is_file()}
    return found


def is_imported(module: str, component: str) -> bool:
    """Returns whether `fuzz/subjects/<component>.py` imports a module, directly or not."""
    found = _imported(_module_files(f"fuzz.subjects.{component}"))
    return bool(_module_files(module) & found)


def components_used_by(package: str, components: Iterable[str]) -> list[str]:
    """Returns those of the components whose model a package imports, directly or not."""
    found = _imported(ROOT.joinpath(*package.split(".")).rglob("*.py"))
    models = {path.relative_to(ROOT / "model").parts[0] for path in found if path.is_relative_to(ROOT / "model")}
    return [name for name in components if {name, f"{name}.py"} & models]


def _imported(files: Iterable[Path]) -> set[Path]:
    """Returns the given files, and the files of the modules that these files import, directly or not."""
    found = set(files)
    pending = list(found)
    while pending:
        new = {path for each in _imports(pending.pop()) for path in _module_files(each)} - found
        found |= new
        pending += new
    return found


def changed_since(revision: str) -> frozenset[Path]:
    """Returns the files that differ from a revision, and untracked files, relative to the root.

    Raises BadValue for an unknown revision, and if git cannot be run.
    """
    commands = (
        ["git", "diff", "--name-only", "--relative", "--end-of-options", revision, "--"],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    found: set[Path] = set()
    for command in commands:
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
        except OSError as problem:
            raise BadValue(f"--since needs git: {problem}") from None
        if done.returncode:
            raise BadValue(f"--since {revision}: {done.stderr.strip().splitlines()[0]}")
        found |= {Path(line) for line in done.stdout.splitlines()}
    return frozenset(found)


def has_deleted_source(changed: Iterable[Path]) -> bool:
    """Returns whether one of the changed files was deleted, and a check may have depended on that file."""
    return any(path.parts[0] in (*_LAYERS, "tla", "tests") and not (ROOT / path).exists() for path in changed)


def digest_of(files: Iterable[Path], *parameters: object) -> str:
    """Returns a digest of the names and contents of files, and of the `repr` of parameters."""
    digest = hashlib.sha256(repr(parameters).encode())
    for path in sorted(files):
        digest.update(str(path).encode() + b"\0" + _content_digest(path) + b"\0")
    return digest.hexdigest()[:16]


@functools.cache
def _content_digest(path: Path) -> bytes:
    return hashlib.sha256((ROOT / path).read_bytes()).digest()


@functools.cache
def _engine_files() -> frozenset[Path]:
    """Returns the files of `fuzz/` that belong to no single component."""
    folders = [ROOT / "fuzz" / name for name in _BY_COMPONENT]
    components = {path.stem for path in folders[0].glob("*.py")} - {"__init__"}
    every = (path for path in (ROOT / "fuzz").rglob("*") if path.suffix in (".py", ".toml", ".html"))
    return frozenset(path for path in every if path.parent not in folders or path.stem not in components)


@functools.cache
def _module_files(name: str) -> frozenset[Path]:
    """Returns the file of a module; of a package, only `__init__.py`, because `_imports` names its modules, too."""
    path = ROOT.joinpath(*name.split("."))
    return frozenset(each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file())


@functools.cache
def _imports(path: Path) -> frozenset[str]:
    """Returns the names of the modules of this project that a file imports.

    `from M import N` gives M and M.N, because N may be a module.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *[f"{node.module}.{alias.name}" for alias in node.names]}
    return frozenset(name for name in found if name.split(".")[0] in _LAYERS)
