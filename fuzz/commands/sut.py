"""`brokerproof sut`: compares the model with a foreign program, over standard input and output (`fuzz/sut/`)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import join
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape

from fuzz.campaign.folder import trace_name
from fuzz.campaign.store import LocalStore, check_writable
from fuzz.campaign.summary import coverage_of
from fuzz.campaign.worker import FindingRow, Spec, merged, target_of
from fuzz.commands import PerSecond, Record
from fuzz.commands.fuzz import ActionCount, Coverage, FuzzResult, show_verdict
from fuzz.platform.processes import termination_as_interrupt
from fuzz.platform.progress import Update, showing
from fuzz.platform.version import code_version
from fuzz.report.finding import explained
from fuzz.report.terminal import show_findings
from fuzz.run.checks import all_but
from fuzz.run.coverage import Total
from fuzz.run.finding import Misbehaved
from fuzz.run.link import Limits
from fuzz.run.replay import replay
from fuzz.sut.hunt import Hunted, Hunter, shrunk
from fuzz.sut.program import VERSION, Hello, Program
from fuzz.target import Target
from fuzz.trace.agreement import replayer_of
from fuzz.trace.file import read_traces
from model.machine import BadValue

#: Folder of the traces of findings.
OUT = Path("build/sut")
#: Shrinking may take the time that fuzzing left of the time limit, and at least this share of the limit. Without a
#: limit, shrinking may take these seconds.
_SHRINK_SHARE, _SHRINK_SECONDS = 0.5, 10.0


class Options(NamedTuple):
    """The options of the command."""

    spec: Spec
    command: Sequence[str]
    seed: int
    traces: int | None
    seconds: float | None
    limits: Limits
    trace: Path | None  # replay only the first trace in this file
    out: Path | None


class Abilities(Record):
    """The program's hello, its first message: what the program supports. A list is null if the program supports all."""

    version: int
    name: str
    actions: list[str] | None
    settings: list[str] | None
    observes: list[str] | None


class SutResult(FuzzResult):
    """The result of `fuzz`, and the program's hello; null if the program sent no hello."""

    command: list[str]
    protocol: Abilities | None
    operations_per_second: PerSecond


@termination_as_interrupt()
def run(options: Options, console: Console) -> SutResult:
    """Tests a program, or replays a trace on the program. Writes the trace of each finding.

    Raises BadValue for unknown names, for a program that cannot be started, and for a folder that cannot be written.
    """
    started, spec = time.monotonic(), options.spec
    named, folder, total = target_of(spec), LocalStore(options.out or OUT), Total()
    check_writable(folder.root)
    program = Program(options.command, named.subject, options.limits)
    try:
        try:
            subject = program.start().restricted(named.subject)
        except Misbehaved:
            subject = named.subject  # the first trace fails in the same way, and that is the finding
        target = replace(named, subject=subject, program=program)
        with showing(console, "starting") as update:
            path = options.trace
            done = _hunted(target, options, update) if path is None else _replayed(target, path)
            update(0, None, "shrinking")
            found = _shrunk(target, options, done)
    finally:
        program.close()
    for each in found:
        folder.write(f"traces/{trace_name(each)}", each.trace.encode())
    for row in done.coverage:
        total.add(row)
    covered = coverage_of(spec, options.seed, total)
    actions = {name: ActionCount(**counts) for name, counts in covered.pop("actions").items()}
    speed = done.steps / done.seconds if done.seconds else 0.0
    # `explained` puts the path of a finding's trace into the braces
    again = f"brokerproof sut {spec.subject} --profile {spec.profile} --trace {{}} -- {join(options.command)}"
    return SutResult(
        subject=spec.subject,
        profile=spec.profile,
        against=None,
        seed=options.seed,
        traces=done.traces,
        steps=done.steps,
        seconds=time.monotonic() - started,
        fuzzing_seconds=done.seconds,
        steps_per_second=speed,
        processes=1,
        compared_with=target.second,
        coverage=Coverage(actions=actions, **covered),
        missed_coverage=[],
        findings=[explained(each, folder.path(f"traces/{trace_name(each)}"), again) for each in found],
        version=code_version(),
        command=list(options.command),
        protocol=_abilities(program.hello),
        operations_per_second=speed,
    )


def _hunted(target: Target, options: Options, update: Update) -> Hunted:
    """Runs seeds on model and program. Shows the progress."""
    started = time.monotonic()  # without the program's start

    def progress(traces: int, steps: int, findings: int) -> None:
        speed = steps / max(time.monotonic() - started, 1e-9)
        update(traces, options.traces, f"{traces:,} traces  {speed:,.0f} operations/s  {findings} findings")

    until = None if options.seconds is None else started + options.seconds
    return Hunter(target, options.spec.steps).run(options.seed, options.traces, until, progress)


def _replayed(target: Target, path: Path) -> Hunted:
    """Replays the first trace of a file. The program gets each call in a request of its own.

    No property is checked: properties are about the model's states, not about the program. Raises BadValue for a trace
    of another component.
    """
    machine, started = target.subject.machine, time.monotonic()
    trace = next(read_traces(path))
    replayer = replayer_of(trace, subject=target.subject)
    if replayer.mapping.subject != target.subject.name:
        raise BadValue(f"{path} has a trace of {replayer.mapping.subject}, not of {target.subject.name}")
    cfg = machine.configure(trace.config)
    calls = [call for each in trace.operations for call in replayer.calls(trace, cfg, None, each)]
    seed = trace.header.get("seed")
    finding = replay(replace(target, config=cfg), calls, seed=seed, skipped=all_but(target.subject, None))
    return Hunted(1, len(calls), time.monotonic() - started, (), [] if finding is None else [finding])


def _shrunk(target: Target, options: Options, done: Hunted) -> list[FindingRow]:
    """Shrinks the findings. Each may take an equal part of the time for shrinking. Returns the findings as rows."""
    limit, count = options.seconds, max(1, len(done.findings))
    left = _SHRINK_SECONDS if limit is None else max(limit - done.seconds, limit * _SHRINK_SHARE)
    return merged(shrunk(target, options.spec, finding, left / count) for finding in done.findings)


def _abilities(hello: Hello | None) -> Abilities | None:
    if hello is None:
        return None
    lists = {k: None if v is None else list(v) for k, v in hello._asdict().items() if k != "name"}
    return Abilities(version=VERSION, name=hello.name, **lists)


def show(console: Console, result: SutResult) -> None:
    """Prints the findings step by step, the program's abilities, then the totals."""
    show_findings(console, result.findings)
    if result.protocol is not None:
        hello = result.protocol
        lists = {"actions": hello.actions, "settings": hello.settings, "observes": hello.observes}
        parts = [f"{key} {', '.join(names) or 'none'}" for key, names in lists.items() if names is not None]
        console.print(escape(f"{hello.name}: {'; '.join(parts) or 'all actions, settings and observations'}"))
    speed = f"{result.fuzzing_seconds:.1f} s of fuzzing ({result.operations_per_second:,.0f} operations/s)"
    console.print(f"{result.subject}, profile {result.profile}: {speed}, {result.seconds:.1f} s in all")
    show_verdict(console, result.findings, result.steps, result.traces, result.seed)
