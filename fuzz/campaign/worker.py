"""Seeds as units of work, the same on one machine and on a cluster.

Seeds come in blocks of fixed size. What a block finds is a function of the code and the block alone: which
findings it keeps, how they shrink, what it covered. Tasks are any number of blocks, so that neither the number
of workers nor that of partitions changes a result.

Within a block, the first finding of each cause is kept, replayed twice, and shrunk. A property that was seen
broken is skipped for the rest of the block, so that a common defect does not hide a rare one behind it. A block
that finds too much stops early. All that is a function of the block alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from fuzz.platform.json import from_json, to_json
from fuzz.platform.version import code_version
from fuzz.run.checks import NONE_SKIPPED, all_but
from fuzz.run.coverage import Row, Total
from fuzz.run.finding import Cause, Finding
from fuzz.run.lockstep import Lockstep
from fuzz.run.replay import replay
from fuzz.run.shrink import shrink
from fuzz.target import Second, Target, resolve
from fuzz.trace.file import ABSENT, Operation, Trace, content_name
from model.machine import BadValue, plain

#: Traces in a block. Small, so that a task can be cut to any length; large, so that its overhead is nothing.
BLOCK = 64
#: Findings, kept or not, after which a block stops: a bug that shows in every trace needs no more traces.
ENOUGH = 8


class Spec(NamedTuple):
    """What is run: everything but the seeds."""

    subject: str
    profile: str = "reference"
    against: str | None = None
    mutant: str | None = None
    steps: int | None = None  # of one trace; None: as the subject says


class Task(NamedTuple):
    """A run of seeds of one spec: whole blocks, but for the last one's end."""

    spec: Spec
    first_seed: int
    traces: int


class Found(NamedTuple):
    """A finding as a row: shrunk, with the trace that shows it."""

    subject: str
    profile: str
    signature: str
    cause: str
    seed: int
    length: int
    shrunk_length: int
    message: str
    reproduced: bool
    trace: str  # the shrunk trace, as it stands in a file


class Part(NamedTuple):
    """What came of a task."""

    task: Task
    traces: int
    skipped: int  # traces that a block with too many findings left out
    steps: int
    seconds: float
    raw_findings: int  # before any were put together
    findings: tuple[Found, ...]
    coverage: tuple[Row, ...]


def target_of(spec: Spec) -> Target:
    """The target of a spec's names. Raises BadValue when a name is unknown."""
    return resolve(spec.subject, spec.profile, spec.against, spec.mutant)


def run_task(task: Task) -> Part:
    """Runs a task's seeds, block by block. Cost: a few microseconds a step, seconds for each shrunk finding."""
    started = time.perf_counter()
    target = target_of(task.spec)
    total, found = Total(), list[Found]()
    traces = steps = raw = 0
    lockstep = Lockstep(target, steps=task.spec.steps)
    for first in range(task.first_seed, task.first_seed + task.traces, BLOCK):
        count = min(BLOCK, task.first_seed + task.traces - first)
        done, findings = _run_block(lockstep, range(first, first + count))
        traces += done
        raw += len(findings)
        found += [found_of(target, task.spec, f) for f in _first_of_each_cause(findings)]
    steps = lockstep.coverage.steps
    for row in lockstep.coverage.rows():
        total.add(row)
    seconds = time.perf_counter() - started
    return Part(task, traces, task.traces - traces, steps, seconds, raw, tuple(found), tuple(total.rows()))


def _run_block(lockstep: Lockstep, seeds: range) -> tuple[int, list[Finding]]:
    """How many traces of a block were run, and what they found."""
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
    first: dict[Cause, Finding] = {}
    for finding in findings:
        first.setdefault(finding.cause, finding)
    return list(first.values())


def found_of(target: Target, spec: Spec, finding: Finding, until: float | None = None) -> Found:
    """A finding replayed twice, shrunk, and written down."""
    skipped = all_but(target.subject, finding.broken_property)
    again = [replay(target.drawn(finding.config), finding.calls, skipped=skipped) for _ in range(2)]
    reproduced = all(f is not None and f.cause == finding.cause for f in again)
    short = shrink(target, finding, until=until) if reproduced else finding
    trace = trace_of(target, spec, short)
    text = b"".join(trace.lines()).decode()
    seed = finding.seed if finding.seed is not None else -1
    return Found(
        spec.subject,
        spec.profile,
        short.signature,
        str(short.cause),
        seed,
        len(finding.calls),
        len(short.calls),
        short.difference.message,
        reproduced,
        text,
    )


def trace_of(target: Target, spec: Spec, finding: Finding) -> Trace:
    """A finding as a trace: its actions with what the model says of them, and what is wrong at the end."""
    target = target.drawn(finding.config)
    machine = target.subject.machine
    operations, state = list[Operation](), machine.start(finding.config)
    for name, arguments in finding.calls:
        data: dict[str, Any] = {"op": name, "args": machine.actions[name].named(arguments)}
        try:
            state, outcome = machine.step(finding.config, state, name, arguments)
            data["result"] = plain(outcome)
        except Exception as problem:  # the model itself is what fails
            data["result"] = {"raised": repr(problem)}
        operations.append(Operation(data["op"], data["args"], data["result"], ABSENT, 0))
    header: dict[str, Any] = {
        "brokerproof": code_version(),
        "profile": spec.profile,
        "seed": finding.seed,
        "cause": str(finding.cause),
        "signature": finding.signature,
        "message": finding.difference.message,
        "expected": finding.difference.expected,
        "actual": finding.difference.actual,
    }
    if spec.mutant is not None:
        header["mutant"] = spec.mutant
    if target.second is Second.PROFILE:
        header["against"] = plain(target.against)
    name = content_name(to_json([machine.name, finding.signature, [o[:2] for o in operations]]))
    return Trace(f"{machine.name}/{name}", machine.name, plain(finding.config), operations, header)


# ---- as text, for the way between driver and workers --------------------------------------------------


def task_text(task: Task) -> str:
    """A task as JSON."""
    return to_json({**task._asdict(), "spec": task.spec._asdict(), "version": code_version()}).decode()


def task_from(text: str) -> Task:
    """A task from JSON. Raises BadValue when this worker runs other code than the driver."""
    data = from_json(text)
    if data["version"] != code_version():
        raise BadValue(
            f"this worker has version {code_version()} and the driver {data['version']}; "
            "ship the driver's environment to the workers"
        )
    return Task(Spec(**data["spec"]), data["first_seed"], data["traces"])


def part_text(part: Part) -> str:
    """A part as JSON."""
    data = part._asdict()
    data["task"] = {**part.task._asdict(), "spec": part.task.spec._asdict()}
    data["findings"] = [f._asdict() for f in part.findings]
    data["coverage"] = [list(r) for r in part.coverage]
    return to_json(data).decode()


def part_from(text: str) -> Part:
    """A part from JSON."""
    data = from_json(text)
    task = data.pop("task")
    data["task"] = Task(Spec(**task["spec"]), task["first_seed"], task["traces"])
    data["findings"] = tuple(Found(**f) for f in data["findings"])
    data["coverage"] = tuple(Row(*r) for r in data["coverage"])
    return Part(**data)


# ---- putting parts together ---------------------------------------------------------------------------


def merged(findings: Iterable[Found]) -> list[Found]:
    """One finding for each subject, profile and signature: that of the smallest seed, in a fixed order."""
    best: dict[tuple[str, str, str], Found] = {}
    for each in findings:
        key = each.subject, each.profile, each.signature
        if key not in best or each.seed < best[key].seed:
            best[key] = each
    return [best[key] for key in sorted(best)]
