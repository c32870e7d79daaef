"""A campaign: fuzzing in rounds of Spark tasks, with results in Parquet tables.

    campaign.json     the parameters: version, seed, specs. Other parameters need another folder
    commits/          one file for each round: its tables. The round is committed when this file is complete
    runs/             one table for each round, a row for each task: seeds, traces, steps, seconds, seconds of shrinking
    findings/         one table for each round: shrunk findings, each with its trace
    coverage/         one table for each round: coverage in the model's terms
    traces/           one file for each finding, named by its content
    report.html       the report

Two rounds are submitted at a time, so that no slot waits for the last task of a round. The tables of a round that was
not committed are ignored, and its seeds are run again (`fuzz/campaign/store.py`). So the driver may die at any moment:
the same command resumes the campaign, loses no committed result and counts nothing twice.

A task runs seeds of one component, for about TASK_SECONDS. The next task is for the component with the least time so
far. So the length of a task does not depend on the number of components, and all components get equal time.

A task returns a few hundred rows for any number of traces. The driver writes the tables itself, which costs less than a
Spark job.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from fuzz.campaign import store as tables
from fuzz.campaign.kinds import kind_of, run_task
from fuzz.campaign.store import Store, commits, read_table, table_of
from fuzz.campaign.worker import (
    BLOCK,
    Found,
    Spec,
    Task,
    TaskResult,
    merged,
    result_from,
    result_text,
    task_from,
    task_text,
)
from fuzz.platform.json import NotJSON, from_json, to_json
from fuzz.platform.spark import tasks_run
from fuzz.platform.version import code_version
from fuzz.run.coverage import Row, Total
from model.machine import BadValue

RUNS = pa.schema(
    [
        ("round", pa.int32()),
        ("subject", pa.string()),
        ("first_seed", pa.int64()),
        ("traces", pa.int64()),
        ("skipped", pa.int64()),
        ("steps", pa.int64()),
        ("seconds", pa.float64()),
        ("shrinking_seconds", pa.float64()),
        ("raw_findings", pa.int64()),
        ("round_seconds", pa.float64()),
    ]
)
FINDINGS = pa.schema(
    [
        ("round", pa.int32()),
        ("subject", pa.string()),
        ("profile", pa.string()),
        ("signature", pa.string()),
        ("cause", pa.string()),
        ("seed", pa.int64()),
        ("length", pa.int32()),
        ("shrunk_length", pa.int32()),
        ("message", pa.string()),
        ("shown", pa.int32()),
        ("replays", pa.int32()),
        ("trace", pa.string()),
    ]
)
COVERAGE = pa.schema(
    [
        ("round", pa.int32()),
        ("subject", pa.string()),
        ("kind", pa.string()),
        ("key", pa.string()),
        ("times", pa.int64()),
        ("first_seed", pa.int64()),
    ]
)

MANIFEST = "campaign.json"
#: Length of a task: the overhead of starting it is small, and so is the loss if its executor dies.
TASK_SECONDS = 3.0
#: Length of the shortest task, if there is too little time for a longer one of each component.
SHORTEST_TASK_SECONDS = 0.3
#: Minimum and maximum length of a round.
ROUND_SECONDS = (4.0, 30.0)
#: No round is started if less time than this remains.
_SHORTEST_ROUND = 0.5


class Plan(NamedTuple):
    """The parameters of a campaign, as in the manifest. A folder has one plan."""

    specs: tuple[Spec, ...]
    seed: int
    version: str = ""  # of the code that runs it; empty: this code's

    def manifest(self) -> dict[str, Any]:
        """Returns the content of campaign.json."""
        return {
            "brokerproof": self.version or code_version(),
            "seed": self.seed,
            "block": BLOCK,
            "specs": [s._asdict() for s in self.specs],
        }


class Live(NamedTuple):
    """The sum of all completed tasks, committed or not. For display only: a repeated task counts twice."""

    traces: int
    steps: int
    findings: int


class Workers(Protocol):
    """Runs tasks: on Spark, in processes of this machine, or in this process."""

    #: tasks that run at the same time
    slots: int
    #: rounds that are submitted before the first has ended
    ahead: int

    def submit(self, tasks: Sequence[Task]) -> Future[list[TaskResult]]:
        """Submits a round; the future returns the results of its tasks."""

    def live(self) -> Live:
        """Returns the sum of the completed tasks."""


@dataclass
class State:
    """The sum of the committed rounds of a campaign."""

    rounds: int = 0
    traces: int = 0
    steps: int = 0
    seconds: float = 0.0
    next_seed: dict[str, int] = field(default_factory=dict)
    speed: dict[str, float] = field(default_factory=dict)  # traces per second of one slot, by subject
    findings: list[Found] = field(default_factory=list)
    coverage: dict[str, Total] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)

    def add(self, results: Sequence[TaskResult], round_seconds: float) -> None:
        """Adds a committed round."""
        self.rounds += 1
        self.seconds += round_seconds
        for result in results:
            subject = result.task.spec.subject
            self.traces += result.traces
            self.steps += result.steps
            end = result.task.first_seed + result.task.traces
            self.next_seed[subject] = max(self.next_seed.get(subject, 0), end)
            if result.seconds > 0:
                self.speed[subject] = result.task.traces / result.seconds
            total = self.coverage.setdefault(subject, Total())
            for row in result.coverage:
                total.add(row)
            self.findings.extend(result.findings)

    @property
    def shrinking_share(self) -> float:
        """The share of the workers' time in which they replayed and shrank findings; schedules do not measure it."""
        seconds = sum(row["seconds"] for row in self.runs)
        return sum(row["shrinking_seconds"] for row in self.runs) / seconds if seconds else 0.0

    def merged_findings(self) -> list[Found]:
        """Returns the findings so far, one for each signature."""
        self.findings = merged(self.findings)
        return self.findings


# ---- the folder ---------------------------------------------------------------------------------------


def check_folder(store: Store, plan: Plan) -> bool:
    """Returns whether the folder holds a campaign of this plan, False if it holds none. Writes nothing.

    Raises BadValue when it holds a campaign of another plan or version.
    """
    text = store.read(MANIFEST)
    wanted = plan.manifest()
    if text is None or (not commits(store) and to_json(wanted, indent=True).startswith(text)):
        if commits(store):
            raise BadValue(f"{store.path('')} has tables but no {MANIFEST}; use another --out")
        return text is not None and to_json(wanted, indent=True) == text
    try:
        found = from_json(text)
        differs = [key for key in wanted if found.get(key) != wanted[key]]
    except (NotJSON, AttributeError):
        raise BadValue(f"{store.path(MANIFEST)} is not a campaign's manifest; use another --out") from None
    if differs:
        key = differs[0]
        name = {"brokerproof": "version", "specs": "subjects, profile or mutant"}.get(key, key)
        here, now = (to_json(each).decode() for each in (found.get(key), wanted[key]))
        raise BadValue(
            f"{store.path('')} holds a campaign of another {name} ({here}, this is {now}); use another --out"
        )
    return True


def open_campaign(store: Store, plan: Plan) -> State:
    """Returns the committed state of this plan's campaign; a new folder gets its manifest.

    Raises BadValue as check_folder.
    """
    if check_folder(store, plan):
        return read_state(store, plan)
    store.write(MANIFEST, to_json(plan.manifest(), indent=True))
    return State(next_seed={spec.subject: plan.seed for spec in plan.specs})


def read_plan(store: Store) -> Plan:
    """Returns the plan of the campaign in a folder, of any version. Raises BadValue when the folder holds none."""
    text = store.read(MANIFEST)
    if text is None:
        raise BadValue(f"{store.path('')} holds no campaign: there is no {MANIFEST}")
    try:
        data = from_json(text)
        return Plan(tuple(Spec(**s) for s in data["specs"]), data["seed"], data["brokerproof"])
    except (NotJSON, KeyError, TypeError):
        raise BadValue(f"{store.path(MANIFEST)} is not a campaign's manifest") from None


def read_state(store: Store, plan: Plan) -> State:
    """Returns the sum of the committed rounds of a campaign.

    Raises BadValue when a table of a committed round is missing: its findings would be lost silently.
    """
    state = State()
    state.next_seed = {spec.subject: plan.seed for spec in plan.specs}
    specs = {spec.subject: spec for spec in plan.specs}
    for committed in commits(store):
        rows = read_table(store, committed.tables["runs"], RUNS)
        findings = read_table(store, committed.tables["findings"], FINDINGS)
        coverage = read_table(store, committed.tables["coverage"], COVERAGE)
        results = []
        for row in rows:
            task = Task(specs[row["subject"]], row["first_seed"], row["traces"] + row["skipped"])
            results.append(
                TaskResult(
                    task, row["traces"], row["skipped"], row["steps"], row["seconds"], row["raw_findings"], (), ()
                )
            )
        state.runs += rows
        state.add(results, rows[0]["round_seconds"] if rows else 0.0)
        for row in findings:
            row.pop("round")
            state.findings.append(Found(**row))
        for row in coverage:
            total = state.coverage.setdefault(row["subject"], Total())
            total.add(Row(row["kind"], row["key"], row["times"], row["first_seed"]))
    state.merged_findings()
    return state


def commit(store: Store, number: int, results: Sequence[TaskResult], round_seconds: float) -> list[dict[str, Any]]:
    """Commits a round; returns its rows of `runs`."""
    findings = [{"round": number, **f._asdict()} for f in merged(f for p in results for f in p.findings)]
    totals: dict[str, Total] = {}
    for result in results:
        for row in result.coverage:
            totals.setdefault(result.task.spec.subject, Total()).add(row)
    coverage = [
        {"round": number, "subject": subject, **row._asdict()}
        for subject in sorted(totals)
        for row in totals[subject].rows()
    ]
    runs = [
        {
            "round": number,
            "subject": p.task.spec.subject,
            "first_seed": p.task.first_seed,
            "traces": p.traces,
            "skipped": p.skipped,
            "steps": p.steps,
            "seconds": p.seconds,
            "shrinking_seconds": p.shrinking_seconds,
            "raw_findings": p.raw_findings,
            "round_seconds": round_seconds,
        }
        for p in results
    ]
    rows = {"findings": (findings, FINDINGS), "coverage": (coverage, COVERAGE), "runs": (runs, RUNS)}
    tables.commit(store, number, {name: table_of(*each) for name, each in rows.items()})
    return runs


def write_traces(store: Store, findings: Iterable[Found]) -> None:
    """Writes each finding's trace to a file named by its content, unless the file is complete."""
    sizes = store.sizes("traces")
    for each in findings:
        name, data = trace_name(each), each.trace.encode()
        if sizes.get(name) != len(data):
            store.write(f"traces/{name}", data)


def trace_name(found: Found) -> str:
    """Returns the file name of a finding's trace."""
    opening = from_json(found.trace.split("\n", 1)[0])
    return str(opening["trace"]).replace("/", "-") + ".jsonl"


# ---- rounds -----------------------------------------------------------------------------------------


#: Called about twice a second with the committed state and with the sum of all tasks that have ended.
Progress = Callable[[State, Live], None]
_POLL_SECONDS = 0.5


def run_campaign(
    store: Store,
    plan: Plan,
    state: State,
    workers: Workers,
    *,
    traces: int | None = None,
    seconds: float | None = None,
    partitions: int | None = None,
    progress: Progress = lambda state, live: None,
) -> State:
    """Runs rounds until each subject has the given number of traces, or for the given further seconds.

    A round that started is completed, so the seconds are exceeded by at most the last tasks of a round.
    """
    rounds = _Rounds(plan, state, workers.slots, traces=traces, seconds=seconds, partitions=partitions)
    pending: deque[Future[list[TaskResult]]] = deque()
    last_end = time.perf_counter()
    while True:
        while len(pending) < workers.ahead and (tasks := rounds.next_round()):
            pending.append(workers.submit(tasks))
        if not pending:
            return state
        while not wait(list(pending)[:1], timeout=_POLL_SECONDS).done:
            progress(state, workers.live())
        results = pending.popleft().result()
        rounds.round_ended()
        now = time.perf_counter()
        state.runs += commit(store, state.rounds + 1, results, now - last_end)
        state.add(results, now - last_end)
        last_end = now
        write_traces(store, state.merged_findings())
        progress(state, workers.live())


class _Rounds:
    """Cuts the remaining seeds into tasks, a round at a time."""

    def __init__(
        self, plan: Plan, state: State, slots: int, *, traces: int | None, seconds: float | None, partitions: int | None
    ) -> None:
        self.plan = plan
        self.state = state
        self.slots = slots
        self.partitions = partitions
        self.planned = {s.subject: state.next_seed.get(s.subject, plan.seed) for s in plan.specs}
        self.end = {s.subject: plan.seed + traces for s in plan.specs} if traces is not None else None
        self.deadline = time.perf_counter() + seconds if seconds is not None else None
        #: with little time, tasks are shorter, so that every component gets one
        share = TASK_SECONDS if seconds is None else seconds * slots / len(plan.specs)
        self.task_seconds = min(TASK_SECONDS, max(SHORTEST_TASK_SECONDS, share))
        self.planned_seconds = {s.subject: 0.0 for s in plan.specs}  # seconds of one slot planned so far
        self.in_flight: deque[list[Task]] = deque()
        self.rounds_before = state.rounds
        self.assumed = {s.subject: kind_of(s.subject).speed(s) for s in plan.specs}

    def next_round(self) -> list[Task]:
        """Returns the tasks of the next round; none when the traces or the time are used up."""
        low, high = ROUND_SECONDS
        wanted = min(high, max(low, self.state.seconds / 4))
        if self.deadline is not None:
            left = self.deadline - time.perf_counter() - sum(self._estimate(tasks) for tasks in self.in_flight)
            if left < _SHORTEST_ROUND and (self.in_flight or self.state.rounds > self.rounds_before):
                return []
            wanted = min(wanted, max(left, _SHORTEST_ROUND))
        budget = min(self.slots * wanted, sum(self._left(spec) / self._speed(spec) for spec in self.plan.specs))
        turns = max(1, round(budget / self.task_seconds / self.slots))
        count = self.partitions or self.slots * turns  # every slot has a task
        tasks = list[Task]()
        for _ in range(count + len(self.plan.specs)):
            open_specs = [spec for spec in self.plan.specs if self._left(spec) > 0]
            if not open_specs or (len(tasks) >= count and sum(self._seconds(task) for task in tasks) >= budget / 2):
                break
            least = min(open_specs, key=lambda spec: self.planned_seconds[spec.subject])
            tasks.append(self._next_task(least, budget / count))
        if tasks:
            self.in_flight.append(tasks)
        return tasks

    def round_ended(self) -> None:
        """Removes the oldest round from those in flight."""
        self.in_flight.popleft()

    def _left(self, spec: Spec) -> float:
        """Returns how many traces of a component are not planned yet."""
        return float("inf") if self.end is None else self.end[spec.subject] - self.planned[spec.subject]

    def _speed(self, spec: Spec) -> float:
        """Returns traces per second of one slot; an assumption before the first measurement."""
        return self.state.speed.get(spec.subject, self.assumed[spec.subject])

    def _seconds(self, task: Task) -> float:
        return task.traces / self._speed(task.spec)

    def _estimate(self, tasks: Sequence[Task]) -> float:
        """Returns the expected length of a round in seconds."""
        return sum(self._seconds(task) for task in tasks) / self.slots

    def _next_task(self, spec: Spec, seconds: float) -> Task:
        """Returns the next task of a component, of about the given seconds. It has whole blocks, except at the end."""
        first, block = self.planned[spec.subject], kind_of(spec.subject).block
        traces = max(block, round(self._speed(spec) * seconds / block) * block)
        task = Task(spec, first, int(min(traces, self._left(spec))))
        self.planned[spec.subject] += task.traces
        self.planned_seconds[spec.subject] += self._seconds(task)
        return task


# ---- workers -------------------------------------------------------------------------------


class Inline:
    """Runs tasks in this process, one after the other."""

    slots = 1
    ahead = 1

    def __init__(self) -> None:
        """Starts nothing."""
        self._ended = Live(0, 0, 0)

    def submit(self, tasks: Sequence[Task]) -> Future[list[TaskResult]]:
        """Runs the round before it returns. In the main thread, the watchdog can stop a step that hangs."""
        future: Future[list[TaskResult]] = Future()
        results = []
        for task in tasks:
            results.append(run_task(task))
            self._ended = _plus(self._ended, results[-1])
        future.set_result(results)
        return future

    def live(self) -> Live:
        """As Workers.live."""
        return self._ended


def _plus(live: Live, result: TaskResult) -> Live:
    return Live(live.traces + result.traces, live.steps + result.steps, live.findings + len(result.findings))


class SparkWorkers:
    """Runs tasks as stateless Spark tasks. Arguments and results are JSON texts."""

    ahead = 2

    def __init__(self, spark: Any, slots: int, partitions: int | None = None) -> None:
        """`partitions` is the number of partitions of a round; by default one for each task."""
        self.context = spark.sparkContext
        self.slots = slots
        self.partitions = partitions
        self._threads = ThreadPoolExecutor(self.ahead)
        self._counts = [self.context.accumulator(0) for _ in Live._fields]
        self._before = Live(0, 0, 0)

    def warm_up(self, specs: Sequence[Spec]) -> dict[str, float]:
        """Starts the Python workers; returns the traces per second of one worker for each subject.

        Their traces do not count. Raises BadValue when they cannot run this code.
        """
        texts = [task_text(Task(spec, 0, kind_of(spec.subject).warm_up)) for spec in specs] * self.slots
        results = self._collect(texts, self.slots)
        self._before = Live(*[count.value for count in self._counts])
        return {result.task.spec.subject: result.task.traces / max(result.seconds, 1e-6) for result in results}

    def submit(self, tasks: Sequence[Task]) -> Future[list[TaskResult]]:
        """Runs a round on the cluster. A task whose executor is lost is run again elsewhere."""
        texts = [task_text(t) for t in tasks]
        tracker = self.context.statusTracker()
        active = len(tracker.getActiveJobsIds())
        future = self._threads.submit(self._collect, texts, min(self.partitions or len(texts), len(texts)))
        deadline = time.monotonic() + 2.0
        while not future.done() and len(tracker.getActiveJobsIds()) <= active and time.monotonic() < deadline:
            time.sleep(0.01)  # Spark runs jobs in the order of submission: a round must not overtake the previous one
        return future

    def _collect(self, texts: list[str], pieces: int) -> list[TaskResult]:
        traces, steps, findings = self._counts

        def work(each: Iterator[str]) -> Iterator[str]:
            for text in each:
                result = run_task(task_from(text))
                traces.add(result.traces)
                steps.add(result.steps)
                findings.add(len(result.findings))
                yield result_text(result)

        with tasks_run():
            lines = self.context.parallelize(texts, pieces).mapPartitions(work).collect()
        return [result_from(text) for text in lines]

    def live(self) -> Live:
        """As Workers.live."""
        return Live(*[count.value - before for count, before in zip(self._counts, self._before, strict=True)])
