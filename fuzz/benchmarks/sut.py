"""Benchmarks of foreign programs: a whole trace in each request through the pipe, against one call in each request."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from fuzz.benchmarks.runner import Benchmark, Measured, in_turns
from fuzz.run.call import Call
from fuzz.run.generate import generate, plan_trace
from fuzz.run.pair import Depth, Pair
from fuzz.sut.hunt import Hunter
from fuzz.sut.program import Program
from fuzz.target import Target, resolve

_COMPONENT = "active_cursors"
_SECONDS = 4.0


def _sut() -> Measured:
    with _running() as target:
        value, baseline = in_turns(lambda: _in_traces(target), lambda: _in_single_steps(target))
    return Measured(value, baseline, value / baseline)


def _processor_time() -> Measured:
    value, baseline = in_turns(lambda: _processor_seconds(_in_traces), lambda: _processor_seconds(_in_single_steps))
    return Measured(1e6 * value, 1e6 * baseline, baseline / value)


def _processor_seconds(run: Callable[[Target], float]) -> float:
    """Returns the processor seconds of an operation in both processes together, without the start of the program."""
    rate = 0.0  # operations a second of the last run

    def spent(seconds: float) -> float:
        """Returns the processor seconds of a run with the start of the program; for 0, of the start alone."""
        nonlocal rate
        started = sum(os.times()[:4])
        with _running() as target:
            rate = run(target) if seconds else 0.0
        return sum(os.times()[:4]) - started

    # the second call sets the rate that the divisor uses
    return (-spent(0.0) + spent(_SECONDS)) / (rate * _SECONDS)


@contextmanager
def _running() -> Iterator[Target]:
    """Yields the target, with a Python program in place of the implementation."""
    target = resolve(_COMPONENT)
    command = (sys.executable, "-m", "fuzz.sut.serve", _COMPONENT)
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join(each for each in (root, os.environ.get("PYTHONPATH")) if each)
    with patch.dict(os.environ, PYTHONPATH=paths):
        program = Program(command, target.subject)
        program.start()
    try:
        yield replace(target, program=program)
    finally:
        program.close()


def _in_traces(target: Target) -> float:
    """Returns the operations a second with a trace in each request."""
    hunted = Hunter(target).run(0, None, time.monotonic() + _SECONDS)
    return hunted.steps / hunted.seconds


def _in_single_steps(target: Target) -> float:
    """Returns the operations a second with a call in each request: the same traces, with the same comparisons."""
    steps, seed, started = 0, 0, time.perf_counter()
    while time.perf_counter() - started < _SECONDS:
        plan, _ = plan_trace(target.subject, target.config, seed)
        calls: list[Call] = list(generate(target.subject, target.config, seed))
        pair = Pair(target.with_config(plan.config))
        for call in calls[:-1]:
            assert pair.step(call, Depth.OUTCOME) is None
        assert pair.step(calls[-1], Depth.VIEW) is None
        steps += len(calls)
        seed += 1
    return steps / (time.perf_counter() - started)


benchmarks = [
    Benchmark("sut", "", "operations/s", "a Python program, a trace in a request; against a call in a request", _sut),
    Benchmark(
        "sut", "processor_time", "us/operation", "both processes, a trace in a request; against a call", _processor_time
    ),
]
