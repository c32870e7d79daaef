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

# These variables change the output of a command: its colours, and the width of its help.
for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE", "COLUMNS", "LINES", "TERMINAL_WIDTH"):
    os.environ.pop(name, None)

# An example has no deadline, because the machine may be busy. Every run has the same examples.
settings.register_profile(
    "tests", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the tests with Spark, the slowest, first: begun last, they would leave the other workers idle."""
    items.sort(key=lambda item: "spark" not in item.keywords)


def altered_twin(folder: Path, module: str, *changes: tuple[str, str]) -> Path:
    """Copies the TLA+ modules into a new folder, and replaces texts of a twin. Each text must occur once."""
    shutil.copytree(MODULES, folder)
    for old, new in changes:
        parts = [path for path in sorted(folder.glob(f"{module}*.tla")) if not path.stem.endswith("Properties")]
        [path] = [path for path in parts if old in path.read_text()]
        text = path.read_text()
        assert text.count(old) == 1, old
        path.write_text(text.replace(old, new))
    return folder


def planned_steps(subject: str, seeds: Iterable[int]) -> int:
    """Returns the number of steps of the seeds' traces under the reference. Some seeds give long traces."""
    target = resolve(subject)
    return sum(plan_trace(target.subject, target.config, seed)[0].steps for seed in seeds)


def stepped(
    machine: Machine[Any, Any], cfg: Any, steps: Iterable[Any], start_at: Any = None, implementation: Any = None
) -> tuple[Any, list[Any]]:
    """Runs steps, each an action and its arguments. Returns the state after them, and None followed by the outcomes.

    So the outcome of the first step has index 1. If an implementation is given and the config has the reference's
    rules, the implementation must agree in every step. While a mutated model is checked
    (`fuzz/mutation/model_checks.py`), the model runs alone: loading an implementation then raises `Skipped`.
    """
    s, outcomes, loaded = start_at or machine.start(cfg), list[Any]([None]), None
    if implementation is not None and machine.is_reference(cfg):
        with contextlib.suppress(pytest.skip.Exception):
            loaded = implementation.load(cfg, s)
    for name, *arguments in steps:
        s, outcome = machine.step(cfg, s, str(name), tuple(arguments))
        outcomes.append(outcome)
        if loaded is not None:
            assert getattr(loaded, name)(*arguments) == outcome
            assert machine.with_history(loaded.view(), s) == s
            assert loaded.check() == []
    return s, outcomes


def ticking(seconds: float) -> Any:
    """Returns a module `time` for tests. Each call of `monotonic` advances the clock by `seconds`.

    So a time limit is a number of calls.
    """
    calls = count()
    return SimpleNamespace(monotonic=lambda: next(calls) * seconds)


def wait_for(ready: Callable[[], Any], process: subprocess.Popen[Any]) -> None:
    """Returns as soon as `ready` returns a true value. Fails if the process ends before."""
    while not ready():
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.05)


def descendants(top: int, word: bytes = b"") -> list[int]:
    """Returns the ids of a process and its descendants, if their command lines have the word."""
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
    """Runs steps, each an action and its arguments. The implementation must agree, and no property may fail.

    Does nothing while a mutated model is checked: the constructors of implementations then raise `Skipped`.
    """
    with contextlib.suppress(pytest.skip.Exception):
        pair = Pair(Target(subject, cfg))
        for name, *arguments in steps:
            assert pair.step(Call(name, tuple(arguments))) is None


class Ran(NamedTuple):
    """The result of a command: exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Returns the JSON object on standard output, which must be one line."""
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
    """Replaces `Workers` in tests: runs everything in this process, at once."""

    def __init__(self, jobs: int, how: str) -> None:
        pass

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments, **named))
        return future
