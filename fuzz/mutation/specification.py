"""Judges of a mutated model that look at neither the implementation nor the properties.

    recordings    a recorded trace no longer agrees under the profile of its version
    examples      a worked example of the component's tests fails; tests that reach into `impl/` or `fuzz/` are left out
    twin          the graph of the smallest scope is not that of the original model, which the twin's graph is equal to

The first two run in a process of their own, in which the mutated text is the module:
`python -m fuzz.mutation.specification SUBJECT MODULE`, with the text on standard input.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from fuzz.explore.counts import counts_of
from fuzz.explore.search import Graph, bounded, explore
from fuzz.seeding import use_source
from fuzz.subject import Subject, find_subject
from model.machine import BadValue

_ROOT = Path(__file__).parents[2]
_SCOPE = "smoke"
#: Seconds for the recordings and the examples of a component.
_SECONDS = 300.0
_RECORDINGS, _EXAMPLES = "recordings", "examples"


def killer(subject: Subject, module: str, source: str) -> str:
    """The first judge that rejects a subject whose model has other text for one module; empty if none does."""
    try:
        said = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "fuzz.mutation.specification", subject.name, module],
            input=source,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{_EXAMPLES} hang"
    verdict = said.stdout.rpartition("verdict:")[2].strip()
    if said.returncode:
        return f"{_RECORDINGS} {said.stderr.strip().splitlines()[-1][:80]}"
    return verdict or ("twin" if _SCOPE in subject.scopes and not _has_the_twins_graph(subject) else "")


class _TooLargeError(Exception):
    """The mutated model has more states than the original."""


def _has_the_twins_graph(subject: Subject) -> bool:
    honest = _graph_of(find_subject(subject.name))
    try:
        changed = _graph_of(subject)
    except (Exception, _TooLargeError):
        return False
    return (honest.states, honest.targets) == (changed.states, changed.targets)


@functools.lru_cache(maxsize=2)
def _graph_of(subject: Subject) -> Graph:
    counts = counts_of(subject.name, _SCOPE)

    def progress(_done: int, known: int) -> None:
        if counts is not None and known > counts.distinct_states:
            raise _TooLargeError

    graph = explore(bounded(subject, _SCOPE), implementation=False, properties=False, progress=progress).graph
    assert graph is not None, "an exploration on this machine keeps its graph"
    return graph


# ---- in the process -----------------------------------------------------------------------------------


def _disagreement(name: str) -> str:
    """The id of the first recorded trace that does not agree; empty if all agree."""
    from fuzz.trace.file import read_traces
    from fuzz.trace.recording import Replayer, recording_of, recordings

    if not any(each.subject == name for each in recordings()):
        return ""
    for path in sorted((_ROOT / "tests" / "recordings").glob("*.jsonl.gz")):
        for trace in read_traces(path):
            recording = recording_of(trace)
            if recording.subject != name:
                continue
            try:
                if Replayer(recording, find_subject(name)).replay(trace).mismatches:
                    return trace.id
            except BadValue:
                return trace.id
    return ""


def _failing_example(name: str) -> str:
    """The first worked example that fails; empty if all pass or there is none."""
    import pytest

    plugin = _Examples()
    files = [str(path) for path in sorted((_ROOT / "tests").glob(f"test_{name}*.py"))]
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not nightly and not spark"]
    if files:
        pytest.main([*options, *files], plugins=[plugin])
    return plugin.failed


class _Examples:
    """Pytest plugin: keeps tests of the model alone, and the first failure."""

    failed = ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Hook of pytest: drops each test that reaches into the implementation or the engines."""
        items[:] = [item for item in items if not _reaches(item)]

    def pytest_collectreport(self, report: Any) -> None:
        """Hook of pytest: a module that cannot be imported is a failure."""
        if report.failed:
            self.failed = self.failed or str(report.nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Hook of pytest: notes the first failure."""
        if report.failed:
            self.failed = self.failed or str(report.nodeid)


def _reaches(item: Any) -> bool:
    function = getattr(item, "function", None)
    if not isinstance(function, FunctionType) or item.cls is not None:
        return True
    fixtures = [each.func for found in item._fixtureinfo.name2fixturedefs.values() for each in found]
    functions = [function, *[each for each in fixtures if isinstance(each, FunctionType)]]
    return any(_is_of_engines(value) for each in functions for value in _named_in(each, set()))


def _is_of_engines(value: Any) -> bool:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    packages = {str(each).partition(".")[0] for each in (name, type(value).__module__)}
    return not packages.isdisjoint(("impl", "fuzz", "invariants"))


def _named_in(function: FunctionType, seen: set[int]) -> Iterator[Any]:
    """The global values that a function names, and those that the functions among them name."""
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


def _judge(name: str, module: str, source: str) -> str:
    use_source(module, source)
    with contextlib.redirect_stdout(sys.stderr):
        trace = _disagreement(name)
        if trace:
            return f"{_RECORDINGS} {trace}"
        example = _failing_example(name)
        return f"{_EXAMPLES} {example.rpartition('::')[2] or example}" if example else ""


if __name__ == "__main__":
    print("verdict:", _judge(sys.argv[1], sys.argv[2], sys.stdin.read()))
