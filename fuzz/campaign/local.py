"""Local fuzzing: runs consecutive seeds on this machine, up to a number of traces or seconds.

The first phase runs seeds and records the first seed of each cause. A frequent defect must not hide a rare one, so a
violated property is skipped from then on: it is not checked again. Then the trace that violated the property is
replayed, with every step checked. As long as a replay violates another property, this property is skipped, too, and the
trace is replayed again.

For each cause, the second phase shrinks the finding of the recorded seed and findings of later seeds, and keeps the
shortest one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from typing import NamedTuple

from fuzz.campaign.worker import BLOCK, ENOUGH, FindingRow, Spec, merged, shrunk_row, target_of
from fuzz.platform.processes import Workers
from fuzz.run.checks import NONE_SKIPPED, Skipped, all_but
from fuzz.run.coverage import Row, Total
from fuzz.run.finding import Cause, Difference, Kind
from fuzz.run.generate import plan_trace
from fuzz.run.lockstep import Lockstep
from fuzz.run.shrink import shortest
from fuzz.target import Target, check_mutant
from model.machine import BadValue

#: Seconds reserved for shrinking the finding of one cause, and the largest fraction of a run that is reserved for all.
_SHRINK_SECONDS, _SHRINK_FRACTION = 1.0, 0.5
#: Seconds between two reports of progress. After a chunk that takes less time, chunks get larger.
_REPORT_SECONDS = 0.2
#: The largest number of blocks in a chunk, which is the work that one process gets at a time.
_MAX_BLOCKS = 64


class Request(NamedTuple):
    """The parameters of a run.

    The first phase ends after `traces` seeds, or early enough to leave time for shrinking within `seconds`. With
    `stop_at_first` or `property`, the first finding also ends this phase. Without any of these, the run does not end.
    """

    spec: Spec
    seed: int  # the first seed
    traces: int | None = None
    seconds: float | None = None  # of both phases
    jobs: int = 1  # processes
    #: the only property to check, on the model alone; None: all properties are checked, and the second side is compared
    property: str | None = None
    stop_at_first: bool = False  # whether the first phase ends at the first finding


@dataclass
class Run:
    """The result of a run."""

    traces: int = 0
    steps: int = 0
    seconds: float = 0.0
    fuzzing_seconds: float = 0.0  # of the first phase
    coverage: Total = field(default_factory=Total)
    causes: dict[Cause, int] = field(default_factory=dict)  # each with the smallest seed that showed it so far
    findings: list[FindingRow] = field(default_factory=list)

    def add_causes(self, causes: dict[Cause, int]) -> None:
        """Adds causes with their seeds. Of two seeds of a cause, the smaller one is kept."""
        for cause, seed in causes.items():
            self.causes[cause] = min(seed, self.causes.get(cause, seed))


#: Called with the run so far and the name of the phase.
Progress = Callable[[Run, str], None]


class _Chunk(NamedTuple):
    """Consecutive seeds for one process: whole blocks; only the last block of a run may be incomplete.

    `until` is the `time.monotonic()` at which the first phase ends, or None.
    """

    request: Request
    first: int  # the first seed
    traces: int  # the number of seeds
    skipped: Skipped  # the properties that earlier seeds violated
    until: float | None


class _ChunkResult(NamedTuple):
    """The result of a chunk, and the seconds that it took."""

    seconds: float
    traces: int
    steps: int
    causes: dict[Cause, int]
    coverage: tuple[Row, ...]


def target_of_request(request: Request) -> Target:
    """Returns the target of a request. If the request has a property, the model runs alone.

    Raises BadValue for an unknown name, and for a property that no trace can violate: it is no safety property, or it
    does not apply to the profile. Also raises the BadValue of `check_mutant`.
    """
    target = target_of(request.spec)
    if request.property is None:
        return target
    kinds = {p.name: p.kind for p in target.subject.properties}
    always = [name for name, kind in kinds.items() if kind == "always"]
    name, subject = request.property, request.spec.subject
    if name not in kinds:
        raise BadValue(f"{subject} has no property {name}; it has {', '.join(always)}")
    if kinds[name] == "sometimes":
        raise BadValue(f"{name} is a coverage goal, --property takes a safety property: {', '.join(always)}")
    if kinds[name] == "eventually":
        raise BadValue(f"{name} is a liveness property: check it with `brokerproof explore {subject}`")
    [chosen] = [p for p in target.subject.properties if p.name == name]
    # traces draw settings, so a property may apply to some traces only: the first BLOCK seeds are tried
    if not any(chosen.given(plan_trace(target.subject, target.config, seed)[0].config) for seed in range(BLOCK)):
        raise BadValue(f"{name} does not apply to the profile {request.spec.profile}: no trace can violate it")
    alone = Target(target.subject, target.config, model_only=True)
    check_mutant(alone, request.spec.mutant)
    return alone


def run_request(request: Request, progress: Progress = lambda run, phase: None) -> Run:
    """Runs a request. Returns the result. Raises BadValue if `target_of_request` does.

    A run that checks one property stops at the first finding, because a violated property is not checked again.
    `progress` is called a few times a second while seeds run, then before findings are shrunk.
    """
    request = request._replace(stop_at_first=request.stop_at_first or request.property is not None)
    started, run = time.monotonic(), Run()
    end = started + request.seconds if request.seconds is not None else None
    target_of_request(request)
    if request.jobs == 1:
        _run_seeds_here(request, run, started, progress)
        run.fuzzing_seconds = time.monotonic() - started
        for number, (cause, seed) in enumerate(_in_order(run), 1):
            progress(run, f"shrinking {number} of {len(run.causes)}")
            run.findings.append(shrunk(request, cause, seed, end, len(run.causes) - number + 1))
    else:
        with Workers(request.jobs, "spawn") as pool:
            _run_seeds_in(pool, request, run, started, progress)
            run.fuzzing_seconds = time.monotonic() - started
            progress(run, "shrinking")
            # for each finding in order: how many findings one process still has to shrink, including this one
            shares = [-(-left // request.jobs) for left in range(len(run.causes), 0, -1)]
            arguments = [(request, *found, end, n) for found, n in zip(_in_order(run), shares, strict=True)]
            run.findings = [future.result() for future in [pool.submit(shrunk, *each) for each in arguments]]
    run.findings = merged(run.findings)
    run.seconds = time.monotonic() - started
    return run


def _in_order(run: Run) -> list[tuple[Cause, int]]:
    """Returns the causes with their seeds, ordered by seed."""
    return sorted(run.causes.items(), key=lambda each: (each[1], each[0]))


def _shrinking_deadline(end: float | None, findings: int) -> float | None:
    """Divides the time until `end` equally among findings. Returns the end of the first share; None without `end`."""
    return None if end is None else (now := time.monotonic()) + max(0.0, end - now) / findings


def _fuzzing_deadline(request: Request, started: float, causes: int) -> float | None:
    """Returns the end of the first phase, given the number of causes found so far; None without a limit of time."""
    if request.seconds is None:
        return None
    reserved = min(_SHRINK_FRACTION * request.seconds, _SHRINK_SECONDS * causes / request.jobs)
    return started + request.seconds - reserved


# ---- running seeds ------------------------------------------------------------------------------------


def _run_seeds_here(request: Request, run: Run, started: float, progress: Progress) -> None:
    """Executes the first phase in this process. Adds its results to `run`."""
    lockstep = _lockstep(request)
    reported = 0.0
    for done, causes in _seeds(lockstep, request.seed, request.traces):
        run.traces, run.steps = done, lockstep.coverage.steps
        run.add_causes(causes)
        now = time.monotonic()
        if now - reported > _REPORT_SECONDS:
            reported = now
            progress(run, "fuzzing")
        until = _fuzzing_deadline(request, started, len(run.causes))
        if (run.causes and request.stop_at_first) or (until is not None and now >= until):
            break
    for row in lockstep.coverage.rows():
        run.coverage.add(row)


def _run_seeds_in(pool: ProcessPoolExecutor, request: Request, run: Run, started: float, progress: Progress) -> None:
    """Executes the first phase in the processes of the pool. Adds its results to `run`."""
    end_seed = None if request.traces is None else request.seed + request.traces
    next_seed, blocks = request.seed, 1
    pending: list[Future[_ChunkResult]] = []
    while True:
        until = _fuzzing_deadline(request, started, len(run.causes))
        is_over = (until is not None and time.monotonic() >= until) or (bool(run.causes) and request.stop_at_first)
        while not is_over and len(pending) < 2 * request.jobs and (end_seed is None or next_seed < end_seed):
            count = blocks * BLOCK if end_seed is None else min(blocks * BLOCK, end_seed - next_seed)
            # `what` is the name of the violated property
            skipped = frozenset(cause.what for cause in run.causes if cause.broken_property is not None)
            pending.append(pool.submit(_run_chunk, _Chunk(request, next_seed, count, skipped, until)))
            next_seed += count
        if not pending:
            return
        ready, _ = wait(pending, _REPORT_SECONDS, FIRST_COMPLETED)
        results = [each.result() for each in pending if each in ready]
        pending = [each for each in pending if each not in ready]
        for result in results:
            run.traces += result.traces
            run.steps += result.steps
            run.add_causes(result.causes)
            for row in result.coverage:
                run.coverage.add(row)
        # larger chunks have less overhead, but a run that stops at the first finding would wait for them
        if any(each.seconds < _REPORT_SECONDS for each in results) and not request.stop_at_first:
            blocks = min(_MAX_BLOCKS, blocks + 1)
        progress(run, "fuzzing")


def _run_chunk(chunk: _Chunk) -> _ChunkResult:
    """Runs a chunk's seeds in a process of the pool, until they are done or the first phase ends."""
    lockstep, started = _lockstep(chunk.request), time.monotonic()
    lockstep.skipped |= chunk.skipped
    traces, causes = 0, dict[Cause, int]()
    for done, found in _seeds(lockstep, chunk.first, chunk.traces):
        traces = done
        for cause, seed in found.items():
            causes.setdefault(cause, seed)
        if chunk.until is not None and time.monotonic() >= chunk.until:
            break
        if causes and chunk.request.stop_at_first:
            break
    rows = tuple(lockstep.coverage.rows())
    return _ChunkResult(time.monotonic() - started, traces, lockstep.coverage.steps, causes, rows)


def _lockstep(request: Request) -> Lockstep:
    """Returns the `Lockstep` of a request. If the request has a property, only this property is checked."""
    target = target_of_request(request)
    lockstep = Lockstep(target, steps=request.spec.steps)
    if request.property is not None:
        lockstep.check_only(request.property)
    return lockstep


def _seeds(lockstep: Lockstep, first: int, traces: int | None) -> Iterator[tuple[int, dict[Cause, int]]]:
    """Runs `traces` seeds from `first` on. After each, yields the number of traces so far, and the causes of the seed.

    The first block begins at the seed `first`, whatever this number is. If ENOUGH traces of a block have findings that
    are no violated properties, the rest of the block is skipped. Skipped seeds count towards `traces`, but are not in
    the yielded number of traces. In a campaign, traces that violate properties count towards ENOUGH, too
    (`fuzz/campaign/worker.py`).
    """
    done, seed, failed = 0, first, 0  # `failed` counts within the block
    while traces is None or seed < first + traces:
        causes: dict[Cause, int] = {}
        finding = lockstep.run(seed)
        while finding is not None:
            causes.setdefault(finding.cause, seed)
            if finding.broken_property is None:
                failed += 1
                break
            lockstep.skipped |= {finding.broken_property}
            finding = lockstep.replay_seed(seed)
        done += 1
        seed += 1
        yield done, causes
        if failed == ENOUGH:
            seed += -(seed - first) % BLOCK  # the first seed of the next block
        if (seed - first) % BLOCK == 0:
            failed = 0


# ---- shrinking ----------------------------------------------------------------------------------------


def shrunk(request: Request, cause: Cause, seed: int, end: float | None, findings: int) -> FindingRow:
    """Finds the finding of a cause's seed again; then `shrunk_row` replays it twice and shrinks it. Returns the row.

    This process still has to shrink this number of findings, including this one, until `end` (of `time.monotonic()`).
    Each gets an equal share of the time. A finding that does not show again is returned with its whole trace, and
    `shown` is 0.
    """
    target = target_of_request(request)
    lockstep = _lockstep(request)
    lockstep.skipped = all_but(target.subject, cause.broken_property)
    finding = lockstep.replay_seed(seed) or lockstep.run(seed)  # only `run` shows an unstable difference
    if finding is None and cause.kind is Kind.CRASH:  # a crash names no property, so all are skipped
        lockstep.skipped = NONE_SKIPPED
        finding = lockstep.replay_seed(seed)
    if finding is None or finding.cause != cause:
        finding = lockstep.finding_of(seed, Difference(cause, "the seed does not show this when it is run again"))
    return shrunk_row(target, request.spec, finding, _shrinking_deadline(end, findings), shortest)
