"""Tasks of a campaign: consecutive seeds of one subject. A task runs in one process, on this machine or on a worker.

`run_task` runs the tasks of components, in which a seed stands for a trace. `fuzz/campaign/schedules.py` runs those of
real clients, in which a seed stands for a schedule; the types of tasks and results are the same.

Seeds are grouped in blocks of a fixed size. The findings of a block, their shrunk traces and the block's coverage
depend only on the code, the spec and the seeds of the block, unless a trace takes nearly as long as `time_limit`. A
task has whole blocks. So the findings do not depend on the number of workers or of Spark's partitions. If `--traces`
ends a campaign within a block, the last block has fewer seeds. A resumed campaign runs the other seeds of this block as
a block of their own.

Within a block, the first finding of each cause is replayed twice, and shrunk if both replays show it. A property that
was violated is not checked in the rest of the block, so that a common defect does not hide a rare one. After ENOUGH
findings, the remaining seeds of a block are skipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from fuzz.platform.json import from_json, to_json
from fuzz.platform.version import check_version, code_version
from fuzz.run.checks import NONE_SKIPPED
from fuzz.run.coverage import Row, total_of
from fuzz.run.finding import Cause, Finding
from fuzz.run.lockstep import Lockstep
from fuzz.run.replay import replay, skipped_for
from fuzz.run.shrink import shrink
from fuzz.run.watchdog import Hang, time_limit, watchdog
from fuzz.target import Second, Target, resolve
from fuzz.trace.file import ABSENT, ENGINE_KEY, Operation, Trace, content_name
from model.machine import plain

#: Traces in a block. Smaller blocks would have more overhead; larger ones would make the durations of tasks differ
#: more.
BLOCK = 64
#: Number of findings after which the rest of a block is skipped.
ENOUGH = 8


class Spec(NamedTuple):
    """The parameters of a task besides its seeds. `brokerproof fuzz` has options of the same names."""

    subject: str  # the name of a component, or `client.SCENARIO`
    profile: str = "reference"
    #: the model is compared with itself under this profile. None: the model is compared with the implementation, or
    #: runs alone if `profile` has other rules than the reference
    against: str | None = None
    mutant: str | None = None
    steps: int | None = None  # the number of steps of every trace; None: the subject and the kind of trace decide


class Task(NamedTuple):
    """Consecutive seeds of one spec: whole blocks, except where `--traces` divides a block."""

    spec: Spec
    first_seed: int
    traces: int  # number of seeds


class FindingRow(NamedTuple):
    """A finding as a table row.

    The trace is shrunk if every replay showed the finding; a schedule, if no known deviation explains the finding.
    `length` and `shrunk_length` are numbers of calls, or of steps of a schedule, before and after shrinking.
    """

    subject: str
    profile: str
    signature: str
    cause: str
    seed: int  # -1: not made from a seed
    length: int
    shrunk_length: int
    message: str
    shown: int  # the number of replays that showed the finding
    replays: int
    trace: str  # the trace in the format of trace files, or the schedule as a line of JSON

    @property
    def reproduced(self) -> bool:
        """Whether every replay showed the finding."""
        return self.shown == self.replays


class TaskResult(NamedTuple):
    """The result of a task."""

    task: Task
    traces: int  # number of traces that were run
    skipped_traces: int  # number of traces that were not run, because their block had ENOUGH findings
    steps: int
    seconds: float
    raw_findings: int  # number of traces with a finding; for schedules, number of `findings`
    findings: tuple[FindingRow, ...]
    coverage: tuple[Row, ...]
    shrinking_seconds: float = 0.0  # the part of `seconds` that `shrunk_row` took


def target_of(spec: Spec) -> Target:
    """Returns the target that a spec names. Raises BadValue if `resolve` does."""
    return resolve(spec.subject, spec.profile, spec.against, spec.mutant)


def run_task(task: Task) -> TaskResult:
    """Runs the traces of a task's seeds, block by block. Raises BadValue if `target_of` does.

    Cost: much less than a millisecond for each step, seconds for each shrunk finding.
    """
    started = time.perf_counter()
    target = target_of(task.spec)
    rows = list[FindingRow]()
    traces = raw = 0
    shrinking = 0.0
    lockstep = Lockstep(target, steps=task.spec.steps)
    for first in range(task.first_seed, task.first_seed + task.traces, BLOCK):
        count = min(BLOCK, task.first_seed + task.traces - first)
        done, findings = _run_block(lockstep, range(first, first + count))
        traces += done
        raw += len(findings)
        shrinking_started = time.perf_counter()
        rows += [shrunk_row(target, task.spec, f) for f in _first_of_each_cause(findings)]
        shrinking += time.perf_counter() - shrinking_started
    seconds = time.perf_counter() - started
    return TaskResult(
        task,
        traces=traces,
        skipped_traces=task.traces - traces,
        steps=lockstep.coverage.steps,
        seconds=seconds,
        raw_findings=raw,
        findings=tuple(rows),
        coverage=tuple(total_of(lockstep.coverage).rows()),  # rows with equal keys become one row
        shrinking_seconds=shrinking,
    )


def _run_block(lockstep: Lockstep, seeds: range) -> tuple[int, list[Finding]]:
    """Runs the traces of a block. Returns the number of traces that were run, and their findings."""
    findings: list[Finding] = []
    lockstep.skipped = NONE_SKIPPED
    for done, seed in enumerate(seeds, 1):
        finding = lockstep.run(seed)
        if finding is not None:
            findings.append(finding)
            if finding.broken_property is not None:
                lockstep.skipped |= {finding.broken_property}
            if len(findings) == ENOUGH:
                return done, findings
    return len(seeds), findings


def _first_of_each_cause(findings: Iterable[Finding]) -> list[Finding]:
    """Returns the first finding of each cause, in order."""
    first: dict[Cause, Finding] = {}
    for finding in findings:
        first.setdefault(finding.cause, finding)
    return list(first.values())


def shrunk_row(
    target: Target,
    spec: Spec,
    finding: Finding,
    until: float | None = None,
    shrinker: Callable[..., Finding] = shrink,
) -> FindingRow:
    """Replays a finding twice, and shrinks it if both replays show it. Returns the finding as a row.

    The replays skip the properties of `skipped_for`. `shrinker` is called with the target, the finding and `until`: the
    value of `time.monotonic()` at which shrinking ends, or None.
    """
    skipped = skipped_for(target, finding)
    replays = [replay(target.with_config(finding.config), finding.calls, skipped=skipped) for _ in range(2)]
    shown = sum([f is not None and f.cause == finding.cause for f in replays])
    shrunk = shrinker(target, finding, until=until) if shown == len(replays) else finding
    return FindingRow(
        subject=spec.subject,
        profile=spec.profile,
        signature=shrunk.signature,
        cause=str(shrunk.cause),
        seed=finding.seed if finding.seed is not None else -1,
        length=len(finding.calls),
        shrunk_length=len(shrunk.calls),
        message=shrunk.difference.message,
        shown=shown,
        replays=len(replays),
        trace=b"".join(trace_of(target, spec, shrunk).lines()).decode(),
    )


def trace_of(target: Target, spec: Spec, finding: Finding) -> Trace:
    """Returns a finding as a trace: the calls with the model's outcomes. The header has the finding's difference."""
    target = target.with_config(finding.config)
    machine = target.subject.machine
    operations, state = list[Operation](), machine.start(finding.config)
    for name, arguments in finding.calls:
        data: dict[str, Any] = {"op": name, "args": machine.actions[name].named(arguments)}
        try:
            with watchdog(time_limit(1)):
                state, outcome = machine.step(finding.config, state, name, arguments)
            data["result"] = plain(outcome)
        except (Hang, Exception) as problem:  # for example, a finding that the model crashes or hangs
            data["result"] = {"raised": repr(problem)}
        operations.append(Operation(data["op"], data["args"], data["result"], ABSENT, 0))  # 0: not read from a file
    header: dict[str, Any] = {
        ENGINE_KEY: code_version(),
        "profile": spec.profile,
        "seed": finding.seed,
        "cause": finding.cause._asdict(),
        "signature": finding.signature,
        "message": finding.difference.message,
        "expected": finding.difference.expected,
        "actual": finding.difference.actual,
    }
    if spec.mutant is not None:
        header["mutant"] = spec.mutant
    if target.program is not None:
        header["program"] = list(target.program.command)
    if target.second is Second.PROFILE:
        header["against"] = plain(target.other_config)  # the config of the other profile, not its name
    config, calls = plain(finding.config), [operation[:2] for operation in operations]
    name = content_name(to_json([machine.name, finding.signature, config, calls]))
    return Trace(f"{machine.name}/{name}", machine.name, config, operations, header)


# ---- as text, between driver and workers --------------------------------------------------


def task_text(task: Task) -> str:
    """Returns a task as JSON."""
    return to_json({**task._asdict(), "spec": task.spec._asdict(), "version": code_version()}).decode()


def task_from(text: str) -> Task:
    """Returns the task of a JSON text. Raises BadValue if the driver runs another version of the code."""
    data = from_json(text)
    check_version(data["version"])
    return Task(Spec(**data["spec"]), data["first_seed"], data["traces"])


def result_text(result: TaskResult) -> str:
    """Returns a result as JSON."""
    data = result._asdict()
    data["task"] = {**result.task._asdict(), "spec": result.task.spec._asdict()}
    data["findings"] = [f._asdict() for f in result.findings]
    data["coverage"] = [list(r) for r in result.coverage]
    return to_json(data).decode()


def result_from(text: str) -> TaskResult:
    """Returns the result with this JSON, as the inverse of `result_text`."""
    data = from_json(text)
    task = data.pop("task")
    data["task"] = Task(Spec(**task["spec"]), task["first_seed"], task["traces"])
    data["findings"] = tuple(FindingRow(**f) for f in data["findings"])
    data["coverage"] = tuple(Row(*r) for r in data["coverage"])
    return TaskResult(**data)


# ---- deduplication ---------------------------------------------------------------------------


def merged(findings: Iterable[FindingRow]) -> list[FindingRow]:
    """Returns one finding for each combination of subject, profile and signature: the one with the smallest `seed`.

    The result is sorted by subject, profile and signature.
    """
    best: dict[tuple[str, str, str], FindingRow] = {}
    for each in findings:
        key = each.subject, each.profile, each.signature
        if key not in best or each.seed < best[key].seed:
            best[key] = each
    return [best[key] for key in sorted(best)]
