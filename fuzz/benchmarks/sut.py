"""Foreign programs: operations a second through a pipe, a trace in a request, against a call in a request."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from fuzz.benchmarks.runner import Benchmark, Measured, in_turns
from fuzz.run.call import Call
from fuzz.run.generate import generate, recipe
from fuzz.run.pair import Depth, Pair
from fuzz.sut.hunt import Hunter
from fuzz.sut.program import Program
from fuzz.target import Target, resolve

_COMPONENT = "active_cursors"
_SECONDS = 4.0


def _sut() -> Measured:
    target = resolve(_COMPONENT)
    command = (sys.executable, "-m", "fuzz.sut.serve", _COMPONENT)
    house = str(Path(__file__).parents[2])
    paths = os.pathsep.join(each for each in (house, os.environ.get("PYTHONPATH")) if each)
    with patch.dict(os.environ, PYTHONPATH=paths):
        program = Program(command, target.subject)
        program.start()
    target = replace(target, program=program)
    try:
        value, baseline = in_turns(lambda: _in_windows(target), lambda: _in_single_steps(target))
    finally:
        program.close()
    return Measured(value, baseline, value / baseline)


def _in_windows(target: Target) -> float:
    hunted = Hunter(target).run(0, None, time.monotonic() + _SECONDS)
    return hunted.steps / hunted.seconds


def _in_single_steps(target: Target) -> float:
    """The same traces, with the same comparisons."""
    steps, seed, started = 0, 0, time.perf_counter()
    while time.perf_counter() - started < _SECONDS:
        plan, _ = recipe(target.subject, target.config, seed)
        calls: list[Call] = list(generate(target.subject, target.config, seed))
        pair = Pair(target.drawn(plan.config))
        for call in calls[:-1]:
            assert pair.step(call, Depth.OUTCOME) is None
        assert pair.step(calls[-1], Depth.VIEW) is None
        steps += len(calls)
        seed += 1
    return steps / (time.perf_counter() - started)


benchmarks = [
    Benchmark("sut", "operations/s", "a Python program, a trace in a request; against a call in a request", _sut)
]
