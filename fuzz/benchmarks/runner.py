"""Benchmarks: our code and a baseline, measured in the same run.

Machines are shared and noisy, so a number alone says little: our code and the baseline take turns, and the medians are
compared. A higher ratio is better: it is our value over the baseline or, if a lower value is better, as for memory, the
baseline over our value.

This module has the benchmarks of the engines. The other modules of the package have those of components, of foreign
programs and of the real client.
"""

from __future__ import annotations

import gzip
import importlib
import json
import os
import pkgutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pyarrow as pa
from rich.console import Console

import fuzz.benchmarks
from fuzz.benchmarks import guidance
from fuzz.campaign.driver import SparkWorkers, run_campaign
from fuzz.campaign.folder import Plan, open_campaign
from fuzz.campaign.store import LocalStore
from fuzz.campaign.worker import BLOCK, Spec, Task, run_task
from fuzz.explore.search import find_space
from fuzz.run.lockstep import CHECK_EVERY, Lockstep
from fuzz.subject import Subject, find_profile, find_subject, subject_names
from fuzz.target import Target
from fuzz.tlc.module import ALWAYS, Twin, read_module
from fuzz.tlc.process import Job, Verdict, run_tlc
from fuzz.tlc.runs import MODULES
from fuzz.trace.parallel import processes_for, replay_files, replay_part
from model.machine import BadValue

#: How often our code and the baseline are measured.
_TURNS = 3
_LOCKSTEP_SECONDS = 3.0
#: The scope on which the explorer and TLC are compared.
_SCOPE = "ci"
_RECORDINGS = Path("tests/recordings")


class Measured(NamedTuple):
    """Our value and the baseline, in the benchmark's unit, and a ratio that is above 1 if our value is better.

    It is the ratio of the two values; for guidance, the mean of the ratios of the seeded bugs.
    """

    value: float
    baseline: float
    ratio: float


class Benchmark(NamedTuple):
    """A named measurement. Benchmarks of one group differ in `part`; one of them may have an empty part."""

    group: str
    part: str
    unit: str
    about: str
    run: Callable[[], Measured]

    @property
    def name(self) -> str:
        """The group, and the part if there is one."""
        return f"{self.group}.{self.part}" if self.part else self.group


class Point(NamedTuple):
    """A point of a line in a plot: a measured result at some x."""

    x: float
    result: str  # the name of the benchmark
    column: str = "value"  # or `baseline`


class Line(NamedTuple):
    """A line in a plot."""

    label: str
    points: tuple[Point, ...]


class Plot(NamedTuple):
    """A plot of some results, with logarithmic axes. A module of the package may list its plots in `plots`."""

    title: str
    about: str
    x: str
    y: str
    lines: tuple[Line, ...]


def all_benchmarks() -> list[Benchmark]:
    """Returns all benchmarks: the engines', then those of the other modules."""
    found = [_lockstep(find_subject(name)) for name in subject_names(without_canaries=True)]
    found += [
        Benchmark(
            "campaign", "", "steps/s", "a Spark campaign, against a plain process pool of as many workers", _campaign
        ),
        Benchmark(
            "replay",
            "",
            "operations/s",
            "all recordings, against reading their JSON with the standard library",
            _replay,
        ),
        Benchmark(
            "replay", "spark", "operations/s", "all recordings on Spark, against a process pool", _replay_on_spark
        ),
    ]
    subjects = [find_subject(name) for name in subject_names(without_canaries=True)]
    with_twin = [subject for subject in subjects if subject.tla]  # a twin is a component's TLA+ module
    found += [_exploring(subject, checked=False) for subject in with_twin]
    found += [_exploring(subject, checked=True) for subject in with_twin]
    found += [_guidance(subject, kind) for subject in with_twin for kind in guidance.kinds_of(subject)]
    for module in other_modules():
        found += module.benchmarks
    return found


def other_modules() -> list[ModuleType]:
    """Returns the other modules of `fuzz/benchmarks/` that have a list `benchmarks`, ordered by name."""
    names = sorted(m.name for m in pkgutil.iter_modules(fuzz.benchmarks.__path__))
    modules = [importlib.import_module(f"fuzz.benchmarks.{name}") for name in names]
    return [module for module in modules if hasattr(module, "benchmarks")]


def run_bench(names: list[str], console: Console) -> list[dict[str, Any]]:
    """Runs the benchmarks whose names start with one of `names`; all if there are none. Returns a row for each.

    Raises BadValue if no benchmark has such a name, or if one cannot run here.
    """
    known = all_benchmarks()
    chosen = [b for b in known if not names or any(b.name.startswith(n) for n in names)]
    if not chosen:
        first = dict.fromkeys(b.group for b in known)
        raise BadValue(f"there is no benchmark {', '.join(names)}; their names begin with {', '.join(first)}")
    results = []
    for each in chosen:
        console.print(f"{each.name}: {each.about}")  # no spinner: its thread would be measured too
        measured = each.run()
        results.append({"name": each.name, "unit": each.unit, **measured._asdict()})
    return results


def in_turns(ours: Callable[[], float], baseline: Callable[[], float], turns: int = _TURNS) -> tuple[float, float]:
    """Returns the medians of two measurements, each made `turns` times, alternately."""
    pairs = [(ours(), baseline()) for _ in range(turns)]
    return statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs)


# ---- lockstep -----------------------------------------------------------------------------------------


def _lockstep(subject: Subject) -> Benchmark:
    """Returns the benchmark of lockstep on one core against a Hypothesis rule machine with the same checks."""
    about = f"steps of {subject.name} on one core, against a Hypothesis rule machine with the same checks"

    def run() -> Measured:
        value, baseline = in_turns(lambda: _fast_steps(subject), lambda: _hypothesis_steps(subject))
        return Measured(value, baseline, value / baseline)

    return Benchmark("lockstep", subject.name, "steps/s", about, run)


def _fast_steps(subject: Subject) -> float:
    """Returns the steps per second of lockstep, after a block of traces that is not measured."""
    lockstep = Lockstep(Target(subject, find_profile(subject, "reference")))
    for seed in range(BLOCK):
        lockstep.run(seed)
    before, started, seed = lockstep.coverage.steps, time.perf_counter(), BLOCK
    while time.perf_counter() - started < _LOCKSTEP_SECONDS:
        lockstep.run(seed)
        seed += 1
    return (lockstep.coverage.steps - before) / (time.perf_counter() - started)


def _hypothesis_steps(subject: Subject) -> float:
    """Returns the steps per second of a rule machine without shrinking. Its runs have the same length as traces."""
    from hypothesis import HealthCheck, Phase, settings
    from hypothesis.stateful import run_state_machine_as_test

    from fuzz.run.stateful import stateful_machine

    machine: Any = stateful_machine(subject, check_every=CHECK_EVERY)
    taken = 0

    class Counted(machine):  # type: ignore[misc]
        """Counts its steps."""

        def teardown(self) -> None:
            """Hook of Hypothesis, called after every example."""
            nonlocal taken
            taken += self.steps_taken

    chosen = settings(
        max_examples=60,
        stateful_step_count=subject.steps,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    started = time.perf_counter()
    run_state_machine_as_test(Counted, settings=chosen)
    return taken / (time.perf_counter() - started)


# ---- exploring ----------------------------------------------------------------------------------------


#: The program of the explorer's process. It imports no more than an exploration needs.
_EXPLORER = """
import sys
from fuzz.explore.search import find_space, explore
from fuzz.subject import find_subject

name, scope, checked = sys.argv[1:]
space = find_space(find_subject(name), scope)
print(explore(space, implementation=checked == "checked", properties=checked == "checked").distinct_states)
"""


def _exploring(subject: Subject, *, checked: bool) -> Benchmark:
    """Returns the benchmark of the explorer against TLC on the same scope, each from the start of its process.

    With `checked`, both check properties, and the explorer also runs each transition on the implementation. Without,
    they only count states.
    """
    part = f"{subject.name}.checked" if checked else subject.name
    ours = "with all properties, and every transition on the implementation" if checked else "states only"
    theirs = "which checks the twin's invariants" if checked else "states only"
    about = f"{ours}, on all cores, against TLC with two workers, {theirs}; both with their start-up"

    def run() -> Measured:
        value, baseline = in_turns(lambda: _explored_speed(subject, checked), lambda: _tlc_speed(subject, checked))
        return Measured(value, baseline, value / baseline)

    return Benchmark("explore", part, "states/s", about, run)


def _explored_speed(subject: Subject, checked: bool) -> float:
    """Returns the distinct states per second of the explorer, with the start of Python."""
    root = str(Path(fuzz.benchmarks.__path__[0]).parents[1])
    paths = os.pathsep.join(each for each in (os.environ.get("PYTHONPATH"), root) if each)
    command = [sys.executable, "-c", _EXPLORER, subject.name, _SCOPE, "checked" if checked else "bare"]
    started = time.perf_counter()
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=True)  # noqa: S603
    return int(done.stdout) / (time.perf_counter() - started)


def _tlc_speed(subject: Subject, checked: bool) -> float:
    """Returns the distinct states per second of TLC, with the start of Java. Raises BadValue if TLC fails."""
    module = read_module(MODULES, str(subject.tla))
    twin = Twin(module, find_space(subject, _SCOPE), (ALWAYS,) if checked else ())
    text, config = twin.text("MC_bench", twin.checks)
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            "MC_bench", text, config, MODULES, Path(folder) / "tlc", is_long=True, dump=False, timeout_seconds=3600
        )
        outcome = run_tlc(job)
        if outcome.result.verdict is not Verdict.SUCCESS:
            raise BadValue(f"TLC on {subject.tla}: {outcome.result}")
    return outcome.distinct_states / outcome.seconds


# ---- guidance -----------------------------------------------------------------------------------------


def _guidance(subject: Subject, kind: str) -> Benchmark:
    """Returns the benchmark of the steps until a seeded bug is killed, with a kind of guidance and without."""
    about = f"median steps until a seeded bug of {subject.name} is killed: guided by {kind}, against unguided"

    def run() -> Measured:
        found = guidance.effect(subject.name, kind)
        return Measured(found.with_it, found.without, found.ratio)

    return Benchmark("guidance", f"{subject.name}.{kind}", "steps", about, run)


# ---- campaign -----------------------------------------------------------------------------------------


def _campaign() -> Measured:
    """Measures the same seeds of all subjects except canaries on Spark and in a process pool.

    A campaign on Spark also writes its tables; the pool writes nothing.
    """
    from fuzz.platform.spark import session, slots

    specs = tuple(Spec(name) for name in subject_names(without_canaries=True))
    with session("brokerproof bench") as spark:
        workers = SparkWorkers(spark, slots(spark))
        speed = workers.warm_up(specs)
        with ProcessPoolExecutor(workers.slots, mp_context=get_context("spawn")) as pool:
            # these tasks are not measured; they start the processes
            list(pool.map(run_task, [Task(s, 0, BLOCK) for s in specs for _ in range(workers.slots)]))
            # traces of each spec that take about 20 seconds on all slots
            traces = max(BLOCK, round(_traces_for(specs, 20.0 * workers.slots) / BLOCK) * BLOCK)
            value, baseline = in_turns(
                lambda: _on_spark(specs, workers, speed, traces), lambda: _in_pool(specs, pool, workers.slots, traces)
            )
    return Measured(value, baseline, value / baseline)


def _traces_for(specs: tuple[Spec, ...], seconds: float) -> float:
    """Returns how many traces to run of each spec, so that one worker takes `seconds` for all specs together."""
    results = [run_task(Task(spec, 0, 4 * BLOCK)) for spec in specs]
    return seconds / sum(r.seconds / r.traces for r in results)


def _on_spark(specs: tuple[Spec, ...], workers: SparkWorkers, speed: dict[str, float], traces: int) -> float:
    """Returns the steps per second of a campaign on Spark with `traces` of each spec."""
    with tempfile.TemporaryDirectory() as folder:
        store, plan = LocalStore(Path(folder)), Plan(specs, 0)
        started = time.perf_counter()
        state = open_campaign(store, plan)
        state.speed = dict(speed)
        run_campaign(store, plan, state, workers, traces=traces)
        return state.steps / (time.perf_counter() - started)


def _in_pool(specs: tuple[Spec, ...], pool: ProcessPoolExecutor, jobs: int, traces: int) -> float:
    """Returns the steps per second of the same traces in a process pool with `jobs` processes."""
    size = max(BLOCK, round(traces / (3 * jobs) / BLOCK) * BLOCK)  # about three tasks of each spec for each process
    tasks = [Task(spec, first, min(size, traces - first)) for first in range(0, traces, size) for spec in specs]
    started = time.perf_counter()
    results = list(pool.map(run_task, tasks))
    return sum(r.steps for r in results) / (time.perf_counter() - started)


# ---- replay -------------------------------------------------------------------------------------------


def _replay() -> Measured:
    """Measures the operations per second of replaying all recordings, against reading their JSON alone."""
    paths = _recordings()
    value, baseline = in_turns(lambda: _replayed(paths), lambda: _read(paths))
    return Measured(value, baseline, value / baseline)


def _recordings() -> list[Path]:
    paths = sorted(_RECORDINGS.glob("*.jsonl.gz"))
    if not paths:
        raise BadValue(f"there are no recordings in {_RECORDINGS}; run bench from the repository's root")
    return paths


def _replayed(paths: list[Path]) -> float:
    """Returns the operations per second of `brokerproof replay`, on all cores."""
    started = time.perf_counter()
    replayed = replay_files(paths, None, processes_for(paths))
    if any(each.mismatches for each in replayed):
        raise BadValue("the recordings do not agree; run brokerproof replay tests/recordings/*.gz")
    return sum(each.operations for each in replayed) / (time.perf_counter() - started)


def _replay_on_spark() -> Measured:
    """Measures the operations per second of `brokerproof replay --master` against a process pool, without start-up."""
    from fuzz.platform.spark import session
    from fuzz.trace.spark import SETTINGS, replay_on_spark

    paths = _recordings()
    uris, jobs = [f"file://{path.absolute()}" for path in paths], os.cpu_count() or 1

    def on_spark() -> float:
        started = time.perf_counter()
        # None: under the recorded profiles; the table has no columns, and None: it is not written
        done = replay_on_spark(spark, uris, None, lambda file, each: ((), b""), pa.schema([]), None)
        return done.operations / (time.perf_counter() - started)

    def in_pool() -> float:
        started = time.perf_counter()
        shares = pool.map(replay_part, [paths] * jobs, [None] * jobs, range(jobs), [jobs] * jobs)
        return sum(each.operations for share in shares for each in share) / (time.perf_counter() - started)

    with ProcessPoolExecutor(jobs, get_context("fork")) as pool:
        in_pool()  # the processes start before Spark's threads
        with session("brokerproof bench", None, SETTINGS) as spark:
            on_spark()
            value, baseline = in_turns(on_spark, in_pool)
    return Measured(value, baseline, value / baseline)


def _read(paths: list[Path]) -> float:
    """Returns the operations per second of reading the JSON of recordings on one core."""
    operations, started = 0, time.perf_counter()
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            operations += sum("op" in json.loads(line) for line in lines)
    return operations / (time.perf_counter() - started)
