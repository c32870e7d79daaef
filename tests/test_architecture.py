"""The architecture: layers, engines that know no component, code and documents that keep the rules."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from fuzz.seeding import mutants_of
from fuzz.subject import find_subject, subject_names
from model.values import fit, rule_of
from tests.conftest import ROOT

LAYERS = ("model", "impl", "invariants", "fuzz")
SOURCES = [p for layer in LAYERS for p in sorted((ROOT / layer).rglob("*.py"))]
#: the packages with data of the components: their modules name components
FOLDERS = ("subjects", "recordings", "benchmarks", "workloads", "charts", "answers", "scenarios")
OF_COMPONENTS = tuple(f"fuzz/{name}/" for name in FOLDERS)
ENGINES = [p for p in sorted((ROOT / "fuzz").rglob("*.py")) if not any(r in p.as_posix() for r in OF_COMPONENTS)]
DATA_FILES = [p for layer in LAYERS for p in sorted((ROOT / layer).rglob("*.toml"))]
DOCUMENTS = [
    p
    for part in (".", *LAYERS, "tests", "tla")
    for p in sorted((ROOT / part).glob("*.md" if part == "." else "**/*.md"))
]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imported(path: Path) -> set[str]:
    """Returns the modules that a file imports, at the top or inside functions."""
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def test_imports_never_point_upwards_and_have_no_cycles() -> None:
    """The contracts stand in pyproject.toml."""
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.parametrize("path", sorted((ROOT / "model").rglob("*.py")), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_a_model_imports_the_standard_library_only(path: Path) -> None:
    assert {name.split(".")[0] for name in imported(path)} <= {"model", *sys.stdlib_module_names}


#: The modules from which an implementation may import dicts: they have the wire format, names of metrics and units of
#: time, but no rules.
DATA = ("model.txn_writer.wire", "model.cache_metrics", "model.values")
#: Implementations and properties state the rules in their own code. Proofs use the model's functions.
INDEPENDENT = [p for layer in ("impl", "invariants") for p in (ROOT / layer).rglob("*.py") if "proofs" not in p.parts]


@pytest.mark.parametrize("path", sorted(INDEPENDENT), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_an_implementation_or_property_shares_types_with_the_model_and_no_rule(path: Path) -> None:
    """A function that model and oracle both used would hide its bugs. Functions that only make a value are allowed."""
    shared = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            shared += [alias.name for alias in node.names if alias.name.split(".")[0] == "model"]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "model":
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                value = getattr(module, alias.name, None)
                is_rule = isinstance(value, dict) and "impl" in path.parts and node.module not in DATA
                if value is None or inspect.isroutine(value) or inspect.ismodule(value) or is_rule:
                    shared.append(f"{node.module}.{alias.name}")
    constructors = {"model.machine.refused", "model.values.record"}
    assert set(shared) <= constructors


@pytest.mark.parametrize("path", ENGINES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_engine_names_a_component(path: Path) -> None:
    """The word canary is also a term: it counts as the name of the component only as a string."""
    text, components = path.read_text(), subject_names(without_canaries=True)
    named = [n for n in components if re.search(rf"\b{n}\b", text)]
    named += [n for n in subject_names() if n not in components and re.search(rf"[\"']{n}[\"']", text)]
    types = [
        w for n in subject_names() for w in (find_subject(n).implementation.__name__,) if re.search(rf"\b{w}\b", text)
    ]
    assert named + types == []


@pytest.mark.parametrize("name", subject_names())
def test_every_property_that_is_written_is_checked(name: str) -> None:
    """This includes a property in a module that the component's package does not import."""
    folder, kinds = ROOT / "invariants", {"always", "sometimes", "eventually"}
    files = [*folder.glob(f"{name}.py"), *(folder / name).glob("*.py")]
    functions = [n for path in files for n in parsed(path).body if isinstance(n, ast.FunctionDef)]
    decorated = {
        n.name: {getattr(d.func, "id", "") for d in n.decorator_list if isinstance(d, ast.Call)} for n in functions
    }
    assert {n for n, by in decorated.items() if by & kinds} == {p.name for p in find_subject(name).properties}


@pytest.mark.parametrize("name", subject_names(without_canaries=True))
def test_a_component_has_one_name_in_every_layer(name: str) -> None:
    modules = [ROOT / layer / name for layer in ("model", "impl", "invariants", "fuzz/subjects")]
    modules.append(ROOT / "tests" / f"test_{name}")
    assert [m for m in modules if not m.is_dir() and not m.with_suffix(".py").exists()] == []


def test_the_top_level_has_only_known_files_and_folders() -> None:
    """Without git, there is no list of the repository's files: then the folder may have others, too."""
    git = shutil.which("git")
    listed = (
        subprocess.run([git, "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
        if git
        else []
    )
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


def test_ruff_reports_nothing() -> None:
    run("ruff", "check", ".")


def test_ruff_would_not_format_anything() -> None:
    run("ruff", "format", "--check", ".")


def test_mypy_reports_nothing() -> None:
    run("mypy")


@pytest.mark.parametrize(
    "path", [*SOURCES, *sorted((ROOT / "tests").glob("*.py"))], ids=lambda p: p.relative_to(ROOT).as_posix()
)
def test_files_can_be_read_in_a_sitting(path: Path) -> None:
    tree = parsed(path)
    assert len(path.read_text().splitlines()) <= 720
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 70, f"{node.name} cannot be seen whole"


def test_no_file_names_this_machine_or_a_package_index() -> None:
    files = [
        p
        for p in (
            *SOURCES,
            *DATA_FILES,
            *DOCUMENTS,
            *[ROOT / name for name in ("Makefile", "pyproject.toml", "requirements.lock")],
        )
        if p.exists()
    ]
    for path in files:
        text = path.read_text()
        for word in ("/work/", "/root/", "pypi.org", "files.pythonhosted", "--index-url", "--extra-index", "../shared"):
            assert word not in text, f"{path.name} names {word}"


#: references to documents that are not in the repository: numbers of their lists, such as [12], [P3], (B9); "the notes"
ELSEWHERE = re.compile(r"(?<!\w)\[[PDBL]?\d+(\.\d|[,\]])|\b[BL]\d+b?\)|\bthe notes\b")


@pytest.mark.parametrize("name", subject_names())
def test_texts_about_a_component_refer_to_nothing_outside_the_repository(name: str) -> None:
    texts = [p.guarantee for p in find_subject(name).properties]
    texts += [text for m in mutants_of(name) for text in (m.origin, m.about)]
    texts += [action.docstring for action in find_subject(name).machine.actions.values()]
    for path in (*SOURCES, ROOT / "tests" / f"test_{name}.py"):
        if (name in path.parts or path.stem.startswith((name, f"test_{name}"))) and path.exists():
            nodes = [n for n in ast.walk(parsed(path)) if isinstance(n, ast.Module | ast.FunctionDef)]
            texts += [ast.get_docstring(node) or "" for node in nodes]
    assert [text for text in texts if ELSEWHERE.search(text)] == []


@pytest.mark.parametrize("name", subject_names())
def test_a_rule_says_where_each_of_its_other_values_is_from(name: str) -> None:
    machine = find_subject(name).machine
    for field, kind in machine.fields.items():
        rule, reference = rule_of(kind), machine.config._field_defaults.get(field)
        others = {getattr(profile.config, field) for profile in machine.profiles.values()} - {reference}
        if rule is None:
            continue
        sources = [rule.sources, *rule.others.values()]
        missing = others - {value for each in sources for value in each}
        assert missing == set(), f"{field}: the sources name no version or proposal with {missing}"
        assert all(fit(kind, value, field) == value for each in sources for value in each)


def test_nothing_is_pickled_or_evaluated() -> None:
    """Traces and tables are data. Only our own source is compiled: to seed a bug, for the method of a record, and to
    evaluate the parts of a property."""
    for path in SOURCES:
        calls = {n.func.id for n in ast.walk(parsed(path)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        allowed = (
            {"exec"} if (path.parent.name, path.name) in (("fuzz", "seeding.py"), ("model", "values.py")) else set()
        )
        if (path.parent.name, path.name) == ("report", "why.py"):
            allowed = {"eval"}
        assert calls & {"eval", "exec"} <= allowed, path
        assert not imported(path) & {"pickle", "cloudpickle", "shelve", "marshal"}, path


def test_documents_name_every_component() -> None:
    """The table of the README has all components, and `tla/README.md` lists those without a twin."""
    rows = [line.split("|") for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| ")]
    start = next(i for i, row in enumerate(rows) if row[2].strip() == "components")
    named = [re.findall(r"`(\w+)`", row[2]) for row in rows[start + 1 :] if len(row) == 4]
    assert {each for names in named for each in names} >= set(subject_names(without_canaries=True))
    [bare] = re.findall(r"`ack_set`.*? have no twin", (ROOT / "tla" / "README.md").read_text(), re.DOTALL)
    twinless = [n for n in subject_names(without_canaries=True) if find_subject(n).tla is None]
    assert re.findall(r"`(\w+)`", bare) == twinless


def test_the_reader_s_commands_are_there() -> None:
    """The README also says once that the project is not affiliated with Apache."""
    readme, make = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    for target in ("setup", "campaign", "test", "nightly", "bench"):
        assert re.search(rf"^{target}:", make, re.MULTILINE), target
    assert "make campaign" in readme
    assert "make test" in readme
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert readme.count("not affiliated") == 1
