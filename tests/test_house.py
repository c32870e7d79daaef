"""The architecture, held: arrows that never point upwards, engines that know no component, clean code and documents."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.mutation.seeding import mutants_of
from fuzz.subject import find_subject, subject_names
from tests.conftest import ROOT

FLOORS = ("model", "impl", "invariants", "fuzz")
#: what each floor may import of the house; only proofs may look at implementations from beside
MAY_IMPORT = {
    "model": {"model"},
    "impl": {"model", "impl"},
    "invariants": {"model", "invariants"},
    "invariants/proofs": {"model", "impl", "invariants"},
    "fuzz": {"model", "impl", "invariants", "fuzz"},
}
SOURCES = [p for floor in FLOORS for p in sorted((ROOT / floor).rglob("*.py"))]
#: the rooms of components, which may of course name them
ROOMS = ("fuzz/subjects/", "fuzz/recordings/", "fuzz/benchmarks/")
ENGINES = [p for p in sorted((ROOT / "fuzz").rglob("*.py")) if not any(r in p.as_posix() for r in ROOMS)]
DOCUMENTS = sorted(ROOT.glob("*.md")) + sorted((ROOT / "tests").glob("*.md"))


def imported(path: Path) -> set[str]:
    """The modules that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_an_arrow_never_points_upwards(path: Path) -> None:
    place = path.relative_to(ROOT).as_posix()
    floor = "invariants/proofs" if place.startswith("invariants/proofs/") else place.split("/")[0]
    tops = {name.split(".")[0] for name in imported(path)}
    assert tops & set(FLOORS) <= MAY_IMPORT[floor]
    if floor == "model":
        assert tops - set(FLOORS) <= set(sys.stdlib_module_names), "a reader of the model needs Python and no more"
    assert "tests" not in tops


@pytest.mark.parametrize("path", ENGINES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_engine_names_a_component(path: Path) -> None:
    text = path.read_text()
    named = [n for n in subject_names() if re.search(rf"\b{n}\b", text)]
    types = [
        w for n in subject_names() for w in (find_subject(n).implementation.__name__,) if re.search(rf"\b{w}\b", text)
    ]
    assert named + types == []


@pytest.mark.parametrize("name", subject_names(without_canaries=True))
def test_a_component_has_one_name_on_every_floor(name: str) -> None:
    rooms = ["model/{}.py", "impl/{}.py", "invariants/{}.py", "fuzz/subjects/{}.py", "tests/test_{}.py"]
    missing = [room.format(name) for room in rooms if not (ROOT / room.format(name)).exists()]
    assert missing == []


def test_the_top_level_is_the_house() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    tops = {name.split("/")[0] for name in listed} or {p.name for p in ROOT.iterdir()}
    allowed = {
        "model",
        "impl",
        "invariants",
        "fuzz",
        "tests",
        "tla",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CONTRIBUTING.md",
        "Makefile",
        "requirements.lock",
        ".ci",
        ".gitignore",
    }
    assert {t for t in tops if t in allowed} >= {"model", "impl", "invariants", "fuzz", "tests", "pyproject.toml"}
    if listed:
        assert tops <= allowed


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def test_ruff_has_nothing_to_say() -> None:
    run("ruff", "check", ".")


def test_ruff_would_not_format_anything() -> None:
    run("ruff", "format", "--check", ".")


def test_mypy_is_strict_and_content() -> None:
    run("mypy")


@pytest.mark.parametrize(
    "path", [*SOURCES, *sorted((ROOT / "tests").glob("*.py"))], ids=lambda p: p.relative_to(ROOT).as_posix()
)
def test_files_can_be_read_in_a_sitting(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert len(path.read_text().splitlines()) <= 720
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 70, f"{node.name} cannot be seen whole"


def test_nothing_speaks_of_this_machine_or_names_an_index() -> None:
    files = [
        p
        for p in (*SOURCES, *DOCUMENTS, ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / "requirements.lock")
        if p.exists()
    ]
    for path in files:
        text = path.read_text()
        for word in ("/work/", "/root/", "pypi.org", "files.pythonhosted", "--index-url", "--extra-index", "../shared"):
            assert word not in text, f"{path.name} names {word}"


#: numbers of lists that are not in the repository: [12], [P3], (B9)
ELSEWHERE = re.compile(r"(?<!\w)\[[PDBL]?\d+(\.\d|[,\]])|\b[BL]\d+b?\)|\bthe notes\b")


@pytest.mark.parametrize("name", subject_names())
def test_what_is_told_of_a_component_can_be_understood_from_here(name: str) -> None:
    told = [p.guarantee for p in find_subject(name).properties]
    told += [text for m in mutants_of(name) for text in (m.origin, m.about)]
    told += [action.rule for action in find_subject(name).machine.actions.values()]
    for path in (*SOURCES, ROOT / "tests" / f"test_{name}.py"):
        if path.stem.startswith((name, f"test_{name}")) and path.exists():
            nodes = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Module | ast.FunctionDef)]
            told += [ast.get_docstring(node) or "" for node in nodes]
    assert [text for text in told if ELSEWHERE.search(text)] == []


def test_nothing_is_pickled_or_evaluated() -> None:
    """Traces and tables are data. Planting a bug compiles our own source, and a record makes its own method: no more."""
    for path in SOURCES:
        calls = {
            n.func.id
            for n in ast.walk(ast.parse(path.read_text()))
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
        }
        allowed = (
            {"exec"} if path.name in ("mutants.py", "values.py") and path.parent.name in ("fuzz", "model") else set()
        )
        assert calls & {"eval", "exec"} <= allowed, path
        assert not imported(path) & {"pickle", "cloudpickle", "shelve", "marshal"}, path


def test_the_reader_s_commands_are_there() -> None:
    readme, make = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    for target in ("setup", "campaign", "test", "nightly", "bench"):
        assert re.search(rf"^{target}:", make, re.MULTILINE), target
    assert "make campaign" in readme
    assert "make test" in readme
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert readme.count("not affiliated") == 1
