"""Checks that can kill a mutated model besides the properties.

    defects       a row of the defect table no longer fits its profile
    recordings    a recorded trace no longer agrees under the profile of its version
    canonical     a state and its canonical form no longer behave alike
    examples      a worked example in the component's tests fails. Tests that use `impl/` or an engine are deselected;
                  the constructor of an implementation skips the test that calls it
    twin          the state graph of the smoke scope differs from the original model's, which equals the TLA+ twin's

All but the last run in a process that imports the mutated source as the module. `python -m fuzz.mutation.specification`
is a server that has imported no component. It reads a JSON object from each line, forks one process for the mutant, and
answers with a JSON string.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from fuzz.defects.table import defects_of
from fuzz.explore.canonical import misbehaviour
from fuzz.explore.counts import counts_of
from fuzz.explore.search import Graph, bounded, explore
from fuzz.platform.json import from_json, to_json
from fuzz.run.generate import generate, recipe
from fuzz.seeding import use_source
from fuzz.subject import Subject, find_subject
from model.machine import BadValue

_ROOT = Path(__file__).parents[2]
_SCOPE = "smoke"
#: Timeout in seconds for all checks but the last of one mutant. A timeout kills the mutant.
_SECONDS = 60.0
#: Number and length of the traces whose states are compared with their canonical forms, and the interval in steps.
_TRACES, _STEPS, _EVERY = 6, 120, 17
_RECORDINGS, _EXAMPLES = "recordings", "examples"


def killer(subject: Subject, module: str, source: str, *, twin: bool = False) -> str:
    """Returns the first check that kills a mutated model; empty if it survives."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(to_json({"subject": subject.name, "module": module, "source": source}) + b"\n")
    server.stdin.flush()
    verdict = str(from_json(server.stdout.readline()))
    if verdict or not twin or _SCOPE not in subject.scopes:
        return verdict
    return "" if _has_original_graph(subject) else "twin"


@functools.lru_cache(maxsize=1)
def _server() -> subprocess.Popen[bytes]:
    """Starts the server of this process. It exits when its standard input is closed."""
    return subprocess.Popen(
        [sys.executable, "-m", "fuzz.mutation.specification"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
    )


class _TooLargeError(Exception):
    """The mutated model has more states than the original."""


def _has_original_graph(subject: Subject) -> bool:
    original = _graph_of(find_subject(subject.name))
    try:
        changed = _graph_of(subject)
    except (Exception, _TooLargeError):
        return False
    return (original.states, original.targets) == (changed.states, changed.targets)


@functools.lru_cache(maxsize=2)
def _graph_of(subject: Subject) -> Graph:
    counts = counts_of(subject.name, _SCOPE)

    def progress(_done: int, known: int) -> None:
        if counts is not None and known > counts.distinct_states:
            raise _TooLargeError

    graph = explore(bounded(subject, _SCOPE), implementation=False, properties=False, progress=progress).graph
    assert graph is not None, "an exploration on this machine keeps its graph"
    return graph


# ---- in the forked process ----------------------------------------------------------------------------


def _misbehaviour(name: str) -> str:
    """Returns how a state that random traces reach differs from its canonical form; empty if none does."""
    subject = find_subject(name)
    for seed in range(_TRACES):
        cfg = recipe(subject, subject.machine.config(), seed)[0].config
        state = subject.machine.start(cfg)
        for step, (action, arguments) in enumerate(generate(subject, subject.machine.config(), seed, _STEPS)):
            state, _ = subject.machine.step(cfg, state, action, arguments)
            if step % _EVERY == 0 and (found := misbehaviour(subject, cfg, state)):
                return found
    return ""


def _disagreeing_trace(name: str) -> str:
    """Returns the id of the first recorded trace that does not agree; empty if all agree."""
    from fuzz.trace.recording import recorded_traces, recording_of, recordings
    from fuzz.trace.replayer import Replayer

    components = {each.component for each in recordings() if each.subject == name}
    for path in sorted((_ROOT / "tests" / "recordings").glob("*.gz")) if components else ():
        for trace in recorded_traces(path):
            if trace.component not in components:
                break  # all traces of a file are of one component
            recording = recording_of(trace)
            if recording.subject != name:
                continue
            try:
                if Replayer(recording, find_subject(name), model_only=True).replay(trace).mismatches:
                    return trace.id
            except BadValue:
                return trace.id
    return ""


def _failing_example(name: str) -> str:
    """Returns the first worked example that fails; empty if all pass or there is none."""
    import pytest

    plugin = _Examples()
    files = [str(path) for path in sorted((_ROOT / "tests").glob(f"test_{name}*.py"))]
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not nightly and not spark"]
    if files:
        pytest.main([*options, *files], plugins=[plugin])
    return plugin.failed


class _Examples:
    """Pytest plugin: deselects all tests but those of the model, and records the first failure."""

    failed = ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Hook of pytest: deselects tests that use the implementation or an engine."""
        items[:] = [item for item in items if not _uses_engine(item)]
        _forbid_implementations()

    def pytest_collectreport(self, report: Any) -> None:
        """Hook of pytest: a module that cannot be imported is a failure."""
        if report.failed:
            self.failed = self.failed or str(report.nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Hook of pytest: records the first failure."""
        if report.failed:
            self.failed = self.failed or str(report.nodeid)


def _forbid_implementations() -> None:
    """Makes every constructor of a class in `impl/` skip the test that calls it."""
    import pytest

    def skip(*_args: object, **_named: object) -> None:
        pytest.skip("needs the implementation")

    for name, module in list(sys.modules.items()):
        for value in vars(module).values() if name.startswith("impl.") else ():
            if isinstance(value, type) and value.__module__ == name:
                value.__new__ = skip  # type: ignore[assignment,method-assign]


def _uses_engine(item: Any) -> bool:
    function = getattr(item, "function", None)
    if not isinstance(function, FunctionType) or item.cls is not None:
        return True
    fixtures = [each.func for found in item._fixtureinfo.name2fixturedefs.values() for each in found]
    functions = [function, *[each for each in fixtures if isinstance(each, FunctionType)]]
    return any(_is_of_engine_layers(value) for each in functions for value in _named_in(each, set()))


def _is_of_engine_layers(value: Any) -> bool:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    modules = {str(each) for each in (name, type(value).__module__)} - {"fuzz.subject"}
    if isinstance(value, type):
        modules = {each for each in modules if not each.startswith("impl.")}  # its constructor skips the test
    return not {each.partition(".")[0] for each in modules}.isdisjoint(("impl", "fuzz", "invariants"))


def _named_in(function: FunctionType, seen: set[int]) -> Iterator[Any]:
    """Yields the global values that a function uses, directly or through functions of its module."""
    todo: list[CodeType] = [function.__code__]
    inner = getattr(getattr(function, "hypothesis", None), "inner_test", None)
    if inner is not None:
        todo.append(inner.__code__)
    while todo:
        code = todo.pop()
        todo += [each for each in code.co_consts if isinstance(each, CodeType)]
        for name in code.co_names:
            if name in function.__globals__ and id(value := function.__globals__[name]) not in seen:
                seen.add(id(value))
                yield value
                if isinstance(value, FunctionType) and value.__module__ == function.__module__:
                    yield from _named_in(value, seen)


def _verdict(name: str, module: str, source: str) -> str:
    use_source(module, source)
    try:
        defects_of(name)
    except Exception as problem:
        return f"defects {problem}"
    try:
        trace = _disagreeing_trace(name)
    except Exception as problem:
        return f"{_RECORDINGS} {type(problem).__name__}"
    if trace:
        return f"{_RECORDINGS} {trace}"
    try:
        if found := _misbehaviour(name):
            return f"canonical {found}"
    except Exception as problem:
        return f"canonical {type(problem).__name__}"
    example = _failing_example(name)
    return f"{_EXAMPLES} {example.rpartition('::')[2] or example}" if example else ""


def _serve() -> None:
    """Serves requests. Imports everything but the components first, so that a forked process starts fast."""
    import hypothesis  # noqa: F401
    import pytest  # noqa: F401

    import fuzz.run.stateful
    import fuzz.trace.recording  # noqa: F401

    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # for the output of examples
    for line in sys.stdin.buffer:
        request = from_json(line)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                verdict = _verdict(request["subject"], request["module"], request["source"])
                os.write(writer, to_json(verdict))
            os._exit(0)
        os.close(writer)
        ready, _, _ = select.select([reader], [], [], _SECONDS)
        answer = os.read(reader, 1 << 16) if ready else to_json(f"{_EXAMPLES} hang")
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        answers.write((answer or to_json(f"{_EXAMPLES} crash")) + b"\n")


if __name__ == "__main__":
    _serve()
