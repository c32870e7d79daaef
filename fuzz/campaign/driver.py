"""The driver of a campaign: runs the seeds of several subjects on Spark, or in tests in this process.

A subject is a component, or a scenario of a real client. The driver cuts the seeds of a subject into tasks of about
TASK_SECONDS. A slot, which is a core of Spark or this process, runs one task at a time. The next task is for the
subject whose planned tasks have the smallest sum of expected durations. So all subjects get about equal time.

Tasks run in rounds. The results of a round are committed together. On Spark, two rounds are submitted at a time: a slot
for which the first round has no task left runs tasks of the second. The driver may die at any moment: the same command
resumes the campaign after the last committed round. No committed result is lost or counted twice. The seeds of a round
that was not committed are run again.

A task returns a few hundred rows for any number of traces. So the driver writes the tables itself, which costs less
than a Spark job.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple, Protocol

from fuzz.campaign.folder import Plan, State, commit, write_traces
from fuzz.campaign.kinds import kind_of, run_task
from fuzz.campaign.store import Store
from fuzz.campaign.worker import Spec, Task, TaskResult, result_from, result_text, task_from, task_text
from fuzz.platform.spark import reported_task_errors

#: Expected duration of a task. The overhead of starting a task is small in comparison, and little is lost if the
#: executor of a task dies. `--partitions`, the limit of traces and the block length may make tasks shorter or longer.
TASK_SECONDS = 3.0
#: The minimum of the expected duration of a task. Tasks are shorter than TASK_SECONDS if the time of the campaign is
#: too short for such a task of each subject.
SHORTEST_TASK_SECONDS = 0.3
#: Minimum and maximum of the expected duration of a round. A round is shorter if less time or fewer traces are left.
ROUND_SECONDS = (4.0, 30.0)
#: If fewer seconds remain, no further round is started. The first round of a command is started in any case, and has at
#: least this expected duration.
_SHORTEST_ROUND = 0.5


class Live(NamedTuple):
    """The counts of all tasks that ended since the command began, committed or not. `Live` is for display only.

    A task that Spark repeats counts twice.
    """

    traces: int
    steps: int
    findings: int


class TaskRunner(Protocol):
    """Runs tasks: `SparkWorkers` or, in tests, `Inline`."""

    slots: int  # the number of tasks that run at the same time
    ahead: int  # the largest number of rounds that are submitted and not yet committed

    def submit(self, tasks: Sequence[Task]) -> Future[list[TaskResult]]:
        """Submits a round. The future completes with the results of its tasks, in their order."""

    def live(self) -> Live:
        """Returns the counts of all tasks that ended so far."""


# ---- rounds -----------------------------------------------------------------------------------------


#: Called after each round and, on Spark, about twice a second while a round runs. The arguments are the committed state
#: and the counts of all tasks that ended so far.
Progress = Callable[[State, Live], None]
_POLL_SECONDS = 0.5


def run_campaign(
    store: Store,
    plan: Plan,
    state: State,
    workers: TaskRunner,
    *,
    traces: int | None = None,
    seconds: float | None = None,
    partitions: int | None = None,
    progress: Progress = lambda state, live: None,
) -> State:
    """Runs and commits rounds until each subject has the given number of traces, or the given seconds have passed.

    Returns the given state, to which the rounds are added. `traces` includes skipped traces (`fuzz/campaign/worker.py`)
    and those of earlier commands; `seconds` start with this call. Without a limit the campaign does not end. A round
    has about `partitions` tasks; for None, its expected duration determines their number. A round that has started is
    completed, so `seconds` may be exceeded. At least one round runs if traces are left. Raises BadValue if a task
    cannot run or the store cannot be written.
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
        write_traces(store, state.merge_findings())
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
        #: by subject: the first seed that is not planned yet
        self.next_seed = {s.subject: state.next_seed.get(s.subject, plan.seed) for s in plan.specs}
        #: by subject: the seed after the last one; None without a limit
        self.end_seed = {s.subject: plan.seed + traces for s in plan.specs} if traces is not None else None
        self.deadline = time.perf_counter() + seconds if seconds is not None else None
        # if there is little time, tasks are shorter, so that every subject gets a task
        share = TASK_SECONDS if seconds is None else seconds * slots / len(plan.specs)
        self.task_seconds = min(TASK_SECONDS, max(SHORTEST_TASK_SECONDS, share))
        self.planned_seconds = {s.subject: 0.0 for s in plan.specs}  # seconds of one slot planned so far
        self.in_flight: deque[list[Task]] = deque()
        self.rounds_before = state.rounds
        self.assumed = {s.subject: kind_of(s.subject).speed(s) for s in plan.specs}  # seeds per second of one slot

    def next_round(self) -> list[Task]:
        """Returns the tasks of the next round; none when all traces are planned or the time is used up."""
        low, high = ROUND_SECONDS
        # within the limits `low` and `high`, a round takes a quarter of the time of all committed rounds
        duration = min(high, max(low, self.state.seconds / 4))
        if self.deadline is not None:
            left = self.deadline - time.perf_counter() - sum(self._estimate(tasks) for tasks in self.in_flight)
            if left < _SHORTEST_ROUND and (self.in_flight or self.state.rounds > self.rounds_before):
                return []
            duration = min(duration, max(left, _SHORTEST_ROUND))
        # the seconds of all slots together
        budget = min(self.slots * duration, sum(self._left(spec) / self._speed(spec) for spec in self.plan.specs))
        tasks_per_slot = max(1, round(budget / self.task_seconds / self.slots))
        count = self.partitions or self.slots * tasks_per_slot
        tasks = list[Task]()
        # a subject's last task may be short. So if `count` tasks have less than half of the budget, tasks are added
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
        """Returns the number of seeds of a subject that are not planned yet; infinity without a limit."""
        return float("inf") if self.end_seed is None else self.end_seed[spec.subject] - self.next_seed[spec.subject]

    def _speed(self, spec: Spec) -> float:
        """Returns the seeds per second of one slot: the latest measurement, or an assumption if there is none."""
        return self.state.speed.get(spec.subject, self.assumed[spec.subject])

    def _seconds(self, task: Task) -> float:
        """Returns the expected seconds of a task."""
        return task.traces / self._speed(task.spec)

    def _estimate(self, tasks: Sequence[Task]) -> float:
        """Returns the expected seconds of a round: all slots work on its tasks at the same time."""
        return sum(self._seconds(task) for task in tasks) / self.slots

    def _next_task(self, spec: Spec, seconds: float) -> Task:
        """Plans and returns the next task of a spec, which takes about the given seconds and has at least one block.

        The last task of a spec may be shorter than a block. If an earlier command has ended within a block, the first
        task has only the rest of this block, so that later blocks begin at the same seeds as in a campaign without
        interruption.
        """
        first, block = self.next_seed[spec.subject], kind_of(spec.subject).block
        traces = max(block, round(self._speed(spec) * seconds / block) * block)
        if begun := (first - self.plan.seed) % block:
            traces = block - begun
        task = Task(spec, first, int(min(traces, self._left(spec))))
        self.next_seed[spec.subject] += task.traces
        self.planned_seconds[spec.subject] += self._seconds(task)
        return task


# ---- workers -------------------------------------------------------------------------------


class Inline:
    """Runs tasks in this process, one after the other, for tests."""

    slots = 1
    ahead = 1

    def __init__(self) -> None:
        """No task has ended."""
        self._live = Live(0, 0, 0)

    def submit(self, tasks: Sequence[Task]) -> Future[list[TaskResult]]:
        """Runs the tasks of a round, then returns. Outside the main thread, the watchdog cannot stop a hanging step."""
        future: Future[list[TaskResult]] = Future()
        results = []
        for task in tasks:
            results.append(run_task(task))
            self._live = _plus(self._live, results[-1])
        future.set_result(results)
        return future

    def live(self) -> Live:
        """As TaskRunner.live."""
        return self._live


def _plus(live: Live, result: TaskResult) -> Live:
    return Live(live.traces + result.traces, live.steps + result.steps, live.findings + len(result.findings))


class SparkWorkers:
    """Runs tasks as stateless Spark tasks. Arguments and results are JSON texts."""

    ahead = 2

    def __init__(self, spark: Any, slots: int, partitions: int | None = None) -> None:
        """`slots` tasks run at a time. A round has at most `partitions` partitions; None: a partition for each task."""
        self.context = spark.sparkContext
        self.slots = slots
        self.partitions = partitions
        self._threads = ThreadPoolExecutor(self.ahead)
        self._counts = [self.context.accumulator(0) for _ in Live._fields]
        self._warm_up = Live(0, 0, 0)  # the counts of the warm-up, which `live` excludes

    def warm_up(self, specs: Sequence[Spec]) -> dict[str, float]:
        """Starts the Python workers with a short task of each spec in every slot.

        Returns the seeds per second of one slot by subject. The results of these tasks are dropped, and `live` does not
        count their traces. Raises BadValue if the workers cannot run this code.
        """
        texts = [task_text(Task(spec, 0, kind_of(spec.subject).warm_up)) for spec in specs] * self.slots
        results = self._collect(texts, self.slots)
        self._warm_up = Live(*[count.value for count in self._counts])
        return {result.task.spec.subject: result.task.traces / max(result.seconds, 1e-6) for result in results}

    def submit(self, tasks: Sequence[Task]) -> Future[list[TaskResult]]:
        """As TaskRunner.submit. A task whose executor is lost is run again on another one.

        The future raises BadValue if a task fails.
        """
        texts = [task_text(t) for t in tasks]
        tracker = self.context.statusTracker()
        active = len(tracker.getActiveJobsIds())
        future = self._threads.submit(self._collect, texts, min(self.partitions or len(texts), len(texts)))
        deadline = time.monotonic() + 2.0
        # Spark runs jobs in the order in which they start. Wait until this job starts, for two seconds at most: the job
        # of the next round must not start earlier
        while not future.done() and len(tracker.getActiveJobsIds()) <= active and time.monotonic() < deadline:
            time.sleep(0.01)
        return future

    def _collect(self, texts: list[str], partitions: int) -> list[TaskResult]:
        """Runs tasks as one Spark job with the given number of partitions. Returns the results, in the tasks' order."""
        traces, steps, findings = self._counts

        def work(partition: Iterator[str]) -> Iterator[str]:
            for text in partition:
                result = run_task(task_from(text))
                traces.add(result.traces)
                steps.add(result.steps)
                findings.add(len(result.findings))
                yield result_text(result)

        with reported_task_errors():
            lines = self.context.parallelize(texts, partitions).mapPartitions(work).collect()
        return [result_from(text) for text in lines]

    def live(self) -> Live:
        """As TaskRunner.live."""
        return Live(*[count.value - before for count, before in zip(self._counts, self._warm_up, strict=True)])
