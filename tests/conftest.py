"""What the tests share. `tests/README.md` says where a test goes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from fuzz import cli
from fuzz.platform.json import from_json
from fuzz.run.call import Call
from fuzz.run.generate import plan_trace
from fuzz.run.pair import Pair
from fuzz.subject import Subject
from fuzz.target import Target, resolve
from fuzz.tlc.runs import MODULES
from model.machine import Machine

ROOT = Path(__file__).parent.parent
RECORDINGS = ROOT / "tests" / "recordings"

# What makes the output of a command another one: colours, and the width of help.
for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE", "COLUMNS", "LINES", "TERMINAL_WIDTH"):
    os.environ.pop(name, None)

# An example may take any time, on a busy machine too, and every run has the same examples.
settings.register_profile(
    "tests", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest file first: begun last, it would leave the other worker idle."""
    items.sort(key=lambda item: "spark" not in item.keywords)


def altered_twin(folder: Path, module: str, *changes: tuple[str, str]) -> Path:
    """Copies the TLA+ modules into a new folder, with texts of a twin, each of which is there once, replaced."""
    shutil.copytree(MODULES, folder)
    for old, new in changes:
        parts = [path for path in sorted(folder.glob(f"{module}*.tla")) if not path.stem.endswith("Properties")]
        [path] = [path for path in parts if old in path.read_text()]
        text = path.read_text()
        assert text.count(old) == 1, old
        path.write_text(text.replace(old, new))
    return folder


def planned_steps(subject: str, seeds: Iterable[int]) -> int:
    """The steps of the traces of these seeds under the reference; some seeds give long traces."""
    target = resolve(subject)
    return sum(plan_trace(target.subject, target.config, seed)[0].steps for seed in seeds)


def stepped(
    machine: Machine[Any, Any], cfg: Any, steps: Iterable[Any], start_at: Any = None, implementation: Any = None
) -> tuple[Any, list[Any]]:
    """The state after some steps, each an action and its arguments, and their outcomes, after None.

    An implementation that is given must agree in every step, if the config has the reference's rules. Where an
    implementation must not be created (`fuzz/mutation/model_checks.py`), the model runs alone.
    """
    s, outcomes, body = start_at or machine.start(cfg), list[Any]([None]), None
    if implementation is not None and machine.is_reference(cfg):
        with contextlib.suppress(pytest.skip.Exception):
            body = implementation.load(cfg, s)
    for name, *arguments in steps:
        s, outcome = machine.step(cfg, s, str(name), tuple(arguments))
        outcomes.append(outcome)
        if body is not None:
            assert getattr(body, name)(*arguments) == outcome
            assert machine.with_history(body.view(), s) == s
            assert body.check() == []
    return s, outcomes


def ticking(seconds: float) -> Any:
    """Stands in for the module `time`: a clock that each look advances, so that a limit is a number of looks."""
    looks = count()
    return SimpleNamespace(monotonic=lambda: next(looks) * seconds)


def wait_for(ready: Callable[[], Any], process: subprocess.Popen[Any]) -> None:
    """Returns when the process has come so far; fails if it ends before."""
    while not ready():
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.05)


def descendants(top: int, word: bytes = b"") -> list[int]:
    """A process and those below it whose command line has a word."""
    parents, names = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                names[int(folder.name)] = (folder / "cmdline").read_bytes()
            except (OSError, IndexError):
                continue  # it has just ended

    def descends(process: int) -> bool:
        while process in parents:
            if process == top:
                return True
            process = parents[process]
        return False

    return sorted(p for p, name in names.items() if word in name and descends(p))


def assert_agreement(subject: Subject, cfg: Any, steps: Iterable[Any]) -> None:
    """Asserts that the implementation agrees in every step, each an action and its arguments, and no property fails.

    Does nothing while a mutated model is judged, where constructors of implementations skip their test.
    """
    with contextlib.suppress(pytest.skip.Exception):
        pair = Pair(Target(subject, cfg))
        for name, *arguments in steps:
            assert pair.step(Call(name, tuple(arguments))) is None


class Ran(NamedTuple):
    """What a command gave: exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON object that it must be."""
        assert self.out.count("\n") == 1, self.out
        return from_json(self.out)


@pytest.fixture
def brokerproof(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command line in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Ran:
        capfd.readouterr()
        code = cli.run([str(a) for a in arguments])
        captured = capfd.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


class NoWorkers(Executor):
    """Runs everything in this process, at once."""

    def __init__(self, jobs: int, how: str) -> None:
        pass

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments, **named))
        return future
