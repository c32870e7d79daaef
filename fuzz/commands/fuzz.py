"""`brokerproof fuzz`: random traces of one component, on this machine."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from fuzz.campaign import corpus
from fuzz.campaign.folder import trace_name
from fuzz.campaign.local import Request, Run, run_request, target_of_request
from fuzz.campaign.store import LocalStore, check_writable
from fuzz.campaign.summary import coverage_of, missed_coverage
from fuzz.commands import Count, PerSecond, Record, Result, Seconds
from fuzz.platform.progress import showing
from fuzz.platform.version import code_version
from fuzz.report.finding import explained
from fuzz.report.records import ExplainedFinding
from fuzz.report.terminal import show_findings
from fuzz.target import Second
from model.machine import BadValue

#: Folder of the traces of findings.
OUT = Path("build/fuzz")


class ActionCount(Record):
    """The number of calls of an action, and of those that were refused."""

    taken: Count
    refused: Count


class Coverage(Record):
    """Coverage of a run (`fuzz/run/coverage.py`).

    `pairs` is the number of different pairs of consecutive actions. `goals` were reached. `never` has goals that were
    not reached, and actions that were not taken or only refused.
    """

    actions: dict[str, ActionCount]
    pairs: Count
    abstract_states: Count
    goals: list[str]
    never: list[str]


class FuzzResult(Result):
    """The result of a run."""

    subject: str
    profile: str
    against: str | None  # the other profile
    seed: Count
    traces: Count
    steps: Count
    seconds: Seconds  # fuzzing and shrinking, by the clock
    fuzzing_seconds: Seconds
    steps_per_second: PerSecond  # while fuzzing, of all processes together
    processes: Count
    compared_with: Second  # the second side: implementation, profile, program (`sut`), or none if the model ran alone
    coverage: Coverage
    #: lines for `never`; none for a run shorter than `min_steps_for_coverage`, and for a run that only searches for a
    #: finding (`--property`, `--stop-at-first`, `--against` or `--mutant`)
    missed_coverage: list[str]
    findings: list[ExplainedFinding]
    version: str

    @property
    def found(self) -> bool:
        """Whether there is a finding or missed coverage."""
        return bool(self.findings or self.missed_coverage)


def run(request: Request, out: Path | None, console: Console) -> FuzzResult:
    """Fuzzes one component. Writes the trace of each finding.

    With `out`, also writes a corpus (`fuzz/campaign/corpus.py`) in the time that is left, unless two profiles are
    compared. Raises BadValue for unknown names, for options that exclude each other, and if the folder cannot be
    written.
    """
    spec, started = request.spec, time.monotonic()
    if spec.against is not None and spec.against == spec.profile:
        raise BadValue(f"--against must name another profile than --profile, both are {spec.profile}")
    if spec.against is not None and request.property is not None:
        raise BadValue("--property checks the model alone: use --against or --property, not both")
    target, folder = target_of_request(request), LocalStore(out or OUT)
    check_writable(folder.root)
    with showing(console, "starting") as update:

        def progress(run: Run, phase: str) -> None:
            speed = run.steps / max(time.monotonic() - started, 1e-9)
            text = f"{phase}: {run.traces:,} traces  {speed:,.0f} steps/s  {len(run.causes)} findings"
            if request.seconds is not None:
                update(min(time.monotonic() - started, request.seconds), request.seconds, text)
            else:
                update(run.traces, request.traces, text)

        done = run_request(request, progress)
    for found in done.findings:
        folder.write(f"traces/{trace_name(found)}", found.trace.encode())
    if out is not None and spec.against is None:
        seeds = _while_time(corpus.first_seeds(done.coverage), request, started)
        corpus.add(out / "corpus", corpus.collect(spec, seeds))
    # a run that checks one property, or ends at the first finding, need not reach the coverage goals
    is_search = request.property is not None or request.stop_at_first
    missed = [] if is_search else missed_coverage(spec, request.seed, done.coverage, done.steps)
    covered = coverage_of(spec, request.seed, done.coverage)
    actions = {name: ActionCount(**counts) for name, counts in covered.pop("actions").items()}
    return FuzzResult(
        subject=spec.subject,
        profile=spec.profile,
        against=spec.against,
        seed=request.seed,
        traces=done.traces,
        steps=done.steps,
        seconds=done.seconds,
        fuzzing_seconds=done.fuzzing_seconds,
        processes=request.jobs,
        compared_with=target.second,
        steps_per_second=done.steps / done.fuzzing_seconds if done.fuzzing_seconds else 0.0,
        coverage=Coverage(actions=actions, **covered),
        missed_coverage=missed,
        findings=[explained(found, folder.path(f"traces/{trace_name(found)}")) for found in done.findings],
        version=code_version(),
    )


def _while_time(seeds: list[int], request: Request, started: float) -> Iterator[int]:
    """Yields seeds until the request's seconds are over."""
    end = started + request.seconds if request.seconds is not None else None
    return itertools.takewhile(lambda _: end is None or time.monotonic() < end, seeds)


#: What was compared. A program (`Second.PROGRAM`) is compared by `brokerproof sut`, which prints its own text.
_SIDES = {
    Second.IMPLEMENTATION: "model and implementation in lockstep",
    Second.PROFILE: "the model under both profiles in lockstep",
    Second.NONE: "the model alone, without the implementation",
}


def show(console: Console, result: FuzzResult) -> None:
    """Prints the findings step by step, then the totals."""
    show_findings(console, result.findings)
    for line in result.missed_coverage:
        console.print(f"[red]failed[/] {escape(line)}")
    profile = result.profile if result.against is None else f"{result.profile} against {result.against}"
    console.print(f"{result.subject}, profile {profile}: {_SIDES[result.compared_with]}")
    processes = "1 process" if result.processes == 1 else f"{result.processes} processes together"
    fuzzing = f"{result.fuzzing_seconds:.1f} s of fuzzing ({result.steps_per_second:,.0f} steps/s of {processes})"
    shrinking = f", {result.seconds - result.fuzzing_seconds:.1f} s of shrinking" if result.findings else ""
    console.print(f"{fuzzing}{shrinking}")
    nothing = "no violated property" if result.compared_with is Second.NONE else "no difference"
    show_verdict(console, result.findings, result.steps, result.traces, result.seed, nothing)


def show_verdict(
    console: Console,
    findings: list[ExplainedFinding],
    steps: int,
    traces: int,
    seed: int,
    nothing: str = "no difference",
) -> None:
    """Prints the numbers of findings, steps and traces. Without a finding, prints `nothing` in place of their number.

    Findings of one subject and cause count as one finding.
    """
    ran = f"{steps:,} steps of {traces:,} traces (seed {seed})"
    count = len({(finding.subject, finding.cause) for finding in findings})
    if count:
        console.print(f"[bold red]{count} {'finding' if count == 1 else 'findings'}[/] in {ran}")
    else:
        console.print(f"{nothing} in {ran}")
