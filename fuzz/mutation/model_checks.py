"""The checks, other than the properties, that can kill a generated mutant of a model.

    defects       the component's rows of the defect table cannot be loaded, for example because a profile no longer
                  differs from `reference` in the rules of a row
    recordings    a recorded trace no longer agrees with the model, under the profile of the recorded version
    canonical     a state and its canonical form behave differently, or a canonical form is not its own canonical form
    examples      a test of the component fails. Tests in classes, nightly and Spark tests, and tests that refer to
                  `invariants/`, to a function of `impl/`, or to `fuzz/` beyond `fuzz.subject` are deselected. A test
                  that constructs an implementation is skipped
    twin          exploring the smoke scope fails, or gives another graph than exploring it with the original model,
                  whose graph TLC has confirmed. Two graphs are equal if they have the same states and the same targets
                  of transitions, both in the order of the search

All checks but `twin` run in a forked process in which the mutated source replaces the original module. `python -m
fuzz.mutation.model_checks` is a server that has imported no component. Each line that it reads is a JSON object that
describes a mutant; the server forks a process for the mutant and answers with a line.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from fuzz.defects.table import defects_of
from fuzz.explore.canonical import misbehaviour
from fuzz.explore.counts import counts_of
from fuzz.explore.search import Graph, explore, find_space
from fuzz.mutation import Check
from fuzz.platform.json import from_json, to_json
from fuzz.run.generate import generate, plan_trace
from fuzz.seeding import use_source
from fuzz.subject import Subject, find_subject
from model.machine import BadValue

_ROOT = Path(__file__).parents[2]
_SCOPE = "smoke"
#: Limits of the processor time and of the wall-clock time of all checks of a mutant but `twin`. A mutant that waits
#: uses no processor time.
_SECONDS, _WAITING_SECONDS = 60, 600.0
#: Number and length of the random traces of the check `canonical`, which looks at every 17th state.
_TRACES, _STEPS, _EVERY = 6, 120, 17


class _Answer(NamedTuple):
    """The server's answer: an error, or the check that kills the mutant and what it found; else all empty."""

    error: str = ""
    check: str = ""
    found: str = ""


def killer(mutated: Subject, module: str, source: str, *, twin: bool = False) -> tuple[Check, str] | None:
    """Returns the first check that kills a mutated model, and what the check found; None if the mutant survives.

    `mutated` is the subject with `source` in place of `module`. The check `twin` runs only if `twin` is true and the
    subject has a smoke scope. A check that hangs, or ends its process, kills the mutant. Raises RuntimeError if the
    server cannot use the source, or if the forked process ends before its first check.
    """
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(to_json({"subject": mutated.name, "module": module, "source": source}) + b"\n")
    server.stdin.flush()
    answer = _Answer(*from_json(server.stdout.readline()))
    if answer.error:
        raise RuntimeError(answer.error)
    if answer.check:
        return Check(answer.check), answer.found
    return (Check.TWIN, "") if twin and _SCOPE in mutated.scopes and not _has_original_graph(mutated) else None


@functools.lru_cache(maxsize=1)
def _server() -> subprocess.Popen[bytes]:
    """Returns this process's server, which is started at the first call and exits when this process does."""
    return subprocess.Popen(
        [sys.executable, "-m", "fuzz.mutation.model_checks"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
    )


class _FailedError(Exception):
    """The exploration has a finding, such as an exception or a hang, or finds more states than the scope has."""


def _has_original_graph(subject: Subject) -> bool:
    """Returns whether exploring a mutated subject gives the same graph as the original one."""
    original = _graph_of(find_subject(subject.name))
    try:
        changed = _graph_of(subject)
    except Exception:  # _FailedError, or an exception of the model in its initial state
        return False
    return (original.states, original.targets) == (changed.states, changed.targets)


@functools.lru_cache(maxsize=2)
def _graph_of(subject: Subject) -> Graph:
    """Returns the graph of the smoke scope. Raises _FailedError, and what the model raises in its initial state."""
    counts = counts_of(subject.name, _SCOPE)

    def progress(_done: int, known: int) -> None:
        if counts is not None and known > counts.distinct_states:
            raise _FailedError(f"more than {counts.distinct_states:,} states")

    found = explore(find_space(subject, _SCOPE), implementation=False, properties=False, progress=progress)
    if found.violations:
        raise _FailedError(found.violations[0].difference.message)
    assert found.graph is not None, "an exploration on this machine keeps its graph"
    return found.graph


# ---- in the server and its forked processes -----------------------------------------------------------


def _wrong_defect(name: str) -> str:
    """Loads the component's defects. Returns an empty text; raises an exception if a row does not fit the model."""
    defects_of(name)
    return ""


def _wrong_canonical_form(name: str) -> str:
    """Returns how a state of random traces violates the law of canonical forms (`misbehaviour`); empty if none does."""
    subject = find_subject(name)
    for seed in range(_TRACES):
        cfg = plan_trace(subject, subject.machine.config(), seed)[0].config
        state = subject.machine.start(cfg)
        for step, (action, arguments) in enumerate(generate(subject, subject.machine.config(), seed, _STEPS)):
            state, _ = subject.machine.step(cfg, state, action, arguments)
            if step % _EVERY == 0 and (found := misbehaviour(subject, cfg, state)):
                return found
    return ""


def _disagreeing_trace(name: str) -> str:
    """Returns the id of the first recorded trace with which the model disagrees; empty if it agrees with all."""
    from fuzz.trace.agreement import Replayer
    from fuzz.trace.recording import mapping_of, mappings, recorded_traces

    components = {each.component for each in mappings() if each.subject == name}
    for path in sorted((_ROOT / "tests" / "recordings").glob("*.gz")) if components else ():
        for trace in recorded_traces(path):
            if trace.component not in components:
                break  # all traces of a file are of one component
            mapping = mapping_of(trace)
            if mapping.subject != name:  # the config of a trace may select another subject
                continue
            try:
                if Replayer(mapping, find_subject(name), model_only=True).replay(trace).mismatches:
                    return trace.id
            except BadValue:
                return trace.id
    return ""


def _failing_example(name: str) -> str:
    """Returns the first of the component's tests that fails; empty if all pass or there is none."""
    import pytest

    plugin = _Examples()
    files = [str(path) for path in sorted((_ROOT / "tests").glob(f"test_{name}*.py"))]
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not nightly and not spark"]
    if files:
        pytest.main([*options, *files], plugins=[plugin])
    return plugin.failed.rpartition("::")[2] or plugin.failed


class _Examples:
    """Pytest plugin: deselects tests that need more than the model, and records the first failure."""

    failed = ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Hook of pytest: deselects tests, and makes tests that construct an implementation skip."""
        items[:] = [item for item in items if not _needs_more_than_model(item)]
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
    """Replaces the constructors of all imported classes of `impl/`: a test that calls one is skipped."""
    import pytest

    def skip(*_args: object, **_named: object) -> None:
        pytest.skip("needs the implementation")

    for name, module in list(sys.modules.items()):
        for value in vars(module).values() if name.startswith("impl.") else ():
            if isinstance(value, type) and value.__module__ == name:
                value.__new__ = skip  # type: ignore[assignment,method-assign]


def _needs_more_than_model(item: Any) -> bool:
    """Returns whether a test is in a class, or uses something above `model/`, itself or in a fixture."""
    function = getattr(item, "function", None)
    if not isinstance(function, FunctionType) or item.cls is not None:
        return True
    fixtures = [each.func for found in item._fixtureinfo.name2fixturedefs.values() for each in found]
    functions = [function, *[each for each in fixtures if isinstance(each, FunctionType)]]
    return any(_is_above_model(value) for each in functions for value in _globals_used_by(each, set()))


def _is_above_model(value: Any) -> bool:
    """Returns whether a global comes from `invariants/`, from `fuzz/` beyond `fuzz.subject`, or from `impl/`.

    A class of `impl/` does not count: its constructor skips the test.
    """
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    modules = {str(each) for each in (name, type(value).__module__)} - {"fuzz.subject"}
    if isinstance(value, type):
        modules = {each for each in modules if not each.startswith("impl.")}
    return not {each.partition(".")[0] for each in modules}.isdisjoint(("impl", "fuzz", "invariants"))


def _globals_used_by(function: FunctionType, seen: set[int]) -> Iterator[Any]:
    """Yields the globals that a function uses, directly or by functions of its own module.

    For a Hypothesis test, also those of the test's body. `seen` has the ids of the globals that were yielded before.
    """
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
                    yield from _globals_used_by(value, seen)


_CHECKS: dict[Check, Callable[[str], str]] = {
    Check.DEFECTS: _wrong_defect,
    Check.RECORDINGS: _disagreeing_trace,
    Check.CANONICAL: _wrong_canonical_form,
    Check.EXAMPLES: _failing_example,
}


def _run_checks(request: dict[str, str], writer: int) -> None:
    """Runs the checks up to the first that kills the mutant. Writes its answers as lines; the last one counts.

    Before each check, writes that the check crashed: this is the last answer if the check ends the process.
    """

    def answer(*, error: str = "", check: str = "", found: str = "") -> None:
        os.write(writer, to_json(_Answer(error, check, found)) + b"\n")

    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS + 1))
    try:
        use_source(request["module"], request["source"])
    except Exception as problem:
        answer(error=str(problem))
        return
    for name, check in _CHECKS.items():
        answer(check=name, found="crash")
        try:
            found = check(request["subject"])
        except Exception as problem:
            found = f"{type(problem).__name__}: {problem}"
        if found:
            answer(check=name, found=found)
            return
    answer()


def _serve() -> None:
    """Serves requests. First imports what is slow to import, but no component, so that forked processes are fast."""
    import hypothesis  # noqa: F401
    import pytest  # noqa: F401

    import fuzz.run.stateful
    import fuzz.trace.recording  # noqa: F401

    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what tests print must not mix with the answers
    for line in sys.stdin.buffer:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                _run_checks(from_json(line), writer)
            os._exit(0)
        os.close(writer)
        answer = _last_answer(reader)
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGXCPU:  # the limit of processor time
            answer = answer._replace(found="timeout")
        answers.write(to_json(answer) + b"\n")


def _last_answer(reader: int) -> _Answer:
    """Returns the last answer of a forked process.

    If the process does not end in time, the answer is a timeout of the check that began last.
    """
    data, until, ended = b"", time.monotonic() + _WAITING_SECONDS, False
    while not ended and select.select([reader], [], [], max(0.0, until - time.monotonic()))[0]:
        read = os.read(reader, 1 << 16)
        data += read
        ended = not read
    if not data:
        return _Answer("a forked process did not start its checks")
    answer = _Answer(*from_json(data.splitlines()[-1]))
    return answer if ended else answer._replace(found="timeout")


if __name__ == "__main__":
    _serve()
