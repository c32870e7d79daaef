"""Campaigns: results depend on the seeds alone, also if the driver dies."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fuzz.campaign import driver as campaign
from fuzz.campaign import folder
from fuzz.campaign.driver import Inline, Live, run_campaign
from fuzz.campaign.folder import Plan, State, check_folder, commit, open_campaign, read_plan, read_state, trace_name
from fuzz.campaign.local import Request, Run, run_request, shrunk, target_of_request
from fuzz.campaign.store import HadoopStore, LocalStore, MemoryStore, Store
from fuzz.campaign.worker import (
    BLOCK,
    FindingRow,
    Spec,
    Task,
    TaskResult,
    merged,
    result_from,
    result_text,
    run_task,
    task_from,
    task_text,
)
from fuzz.run.coverage import Row
from fuzz.run.finding import Cause, Kind
from fuzz.subject import find_profile
from model.machine import BadValue
from tests.conftest import NoWorkers, planned_steps

MUTANT = Spec("range_cache", mutant="eviction-pops-unchecked-entry")
UNMUTATED = Spec("range_cache")
PLAN = Plan((MUTANT,), 0)
TRACES = 2 * BLOCK + 7


class Cut(Inline):
    """Runs tasks in this process. The campaign cuts its work into tasks as if there were this number of slots."""

    def __init__(self, slots: int) -> None:
        super().__init__()
        self.slots = slots


def run(
    store: Store, *, plan: Plan = PLAN, traces: int = TRACES, slots: int = 1, partitions: int | None = None
) -> State:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(campaign, "run_task", remembered)
        return run_campaign(store, plan, open_campaign(store, plan), Cut(slots), traces=traces, partitions=partitions)


@functools.cache
def remembered(task: Task) -> TaskResult:
    """Runs each task once: most tests are about the folder."""
    return run_task(task)


def essence(state: State) -> tuple[list[FindingRow], dict[str, list[Row]], int, int]:
    """Returns the results that must not depend on how the work is divided."""
    coverage = {name: total.rows() for name, total in state.coverage.items()}
    return state.merge_findings(), coverage, state.traces, state.steps


def content(store: LocalStore) -> dict[Path, bytes]:
    """Returns the files of a store."""
    return {path: path.read_bytes() for path in store.root.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[LocalStore, State]:
    """A finished campaign: the store, and the state that was run."""
    store = LocalStore(tmp_path_factory.mktemp("finished") / "c")
    return store, run(store)


@pytest.fixture(scope="module")
def whole(finished: tuple[LocalStore, State]) -> State:
    """The campaign without interruption."""
    return finished[1]


def test_the_seeded_bug_is_found_and_findings_are_merged(whole: State) -> None:
    findings = whole.merge_findings()
    assert findings
    assert len({f.signature for f in findings}) == len(findings)
    assert all(f.reproduced and f.cause == "outcome:time_pass" and f.shrunk_length <= 5 for f in findings)
    assert sum(r["raw_findings"] for r in whole.runs) > len(findings)


@pytest.mark.parametrize(
    ("slots", "partitions"),
    [
        pytest.param(*each, marks=[pytest.mark.nightly] * (each != (3, 16)))
        for each in [(1, 2), (2, None), (3, 16), (8, 1)]
    ],
)
def test_results_do_not_depend_on_how_seeds_are_cut(whole: State, slots: int, partitions: int | None) -> None:
    assert essence(run(MemoryStore(), slots=slots, partitions=partitions)) == essence(whole)


def test_the_state_read_equals_the_state_that_was_run(finished: tuple[LocalStore, State]) -> None:
    store, whole = finished
    assert essence(read_state(store, read_plan(store))) == essence(whole)
    names = {trace_name(f) for f in whole.merge_findings()}
    assert set(store.sizes("traces")) == names


class Killed(BaseException):
    """The driver dies here."""


class FileSystem:
    """A Hadoop file system in memory, and the JVM around it. The driver dies at the call with the number `dies_at`.

    The driver does not die if `dies_at` is -1. `shows_partial_files`: a file that is being written is visible, cut off,
    as on HDFS; otherwise it appears when its stream is closed, as on an object store. There is no rename and no delete.
    """

    def __init__(self, files: dict[str, bytes], dies_at: int, *, shows_partial_files: bool) -> None:
        self.stored = files
        self.calls_left = dies_at
        self.shows_partial_files = shows_partial_files
        self.org = self.apache = self.hadoop = self.fs = self.commons = self.io = self.IOUtils = self
        self.sparkContext = self._jvm = self._jsc = self

    def call(self) -> None:
        self.calls_left -= 1
        if self.calls_left == 0:
            raise Killed

    def hadoopConfiguration(self) -> None:  # noqa: N802
        return None

    def Path(self, path: str) -> Any:  # noqa: N802
        return SimpleNamespace(name=path, getFileSystem=lambda conf: self, getName=lambda: path.rpartition("/")[2])

    def exists(self, path: Any) -> bool:
        self.call()
        return path.name in self.stored or any(name.startswith(path.name + "/") for name in self.stored)

    def open(self, path: Any) -> Any:
        self.call()
        return SimpleNamespace(data=self.stored[path.name], close=lambda: None)

    def toByteArray(self, stream: Any) -> bytes:  # noqa: N802
        self.call()
        return bytes(stream.data)

    def listStatus(self, path: Any) -> list[Any]:  # noqa: N802
        self.call()
        inside = {n: d for n, d in self.stored.items() if n.startswith(path.name + "/")}
        return [SimpleNamespace(getPath=lambda n=n: self.Path(n), getLen=lambda d=d: len(d)) for n, d in inside.items()]

    def create(self, path: Any, overwrite: bool) -> Any:
        self.call()
        written = bytearray()

        def show() -> None:
            self.stored[path.name] = bytes(written)

        def write(data: bytearray) -> None:
            written.extend(data[: len(data) // 2])
            if self.shows_partial_files:
                show()
            self.call()
            written.extend(data[len(data) // 2 :])

        def close() -> None:
            if len(written) and sys.exc_info()[0] is None:
                self.call()
                show()

        if self.shows_partial_files:
            show()
        return SimpleNamespace(write=write, close=close)


@pytest.mark.parametrize("shows_partial_files", [True, False])
def test_a_driver_may_die_at_any_call_of_the_file_system(
    shows_partial_files: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies at a call, resumes, dies again and resumes. Nothing is lost, and nothing counts twice."""
    monkeypatch.setattr(campaign, "ROUND_SECONDS", (0.05, 0.05))
    monkeypatch.setattr(campaign, "run_task", remembered)
    traces = 2 * BLOCK
    expected = essence(run(MemoryStore(), traces=traces))
    for dies_at in range(1, 1000):
        files: dict[str, bytes] = {}
        deaths = 0
        for calls in (dies_at, dies_at // 2 + 1, -1):
            store = HadoopStore(FileSystem(files, calls, shows_partial_files=shows_partial_files), "mem://campaign")
            try:
                state = run_campaign(store, PLAN, open_campaign(store, PLAN), Cut(1), traces=traces)
                assert essence(state) == expected
            except Killed:
                deaths += 1
        assert essence(read_state(store, PLAN)) == expected
        if deaths == 0:
            break
    assert deaths == 0, "the driver died at every call"
    assert dies_at > 50, "several rounds"


def test_an_incomplete_commit_file_is_ignored() -> None:
    files: dict[str, bytes] = {}
    disk = FileSystem(files, -1, shows_partial_files=True)
    run(HadoopStore(disk, "mem://campaign"), traces=BLOCK)
    [commit_file] = [name for name in files if "/commits/" in name]
    files[commit_file] = files[commit_file][: len(files[commit_file]) // 2]
    assert read_state(HadoopStore(disk, "mem://campaign"), PLAN).rounds == 0


def test_a_file_system_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise OSError("Permission denied")

    store = HadoopStore(FileSystem({}, -1, shows_partial_files=True), "mem://campaign")
    for name in ("exists", "create"):
        monkeypatch.setattr(store.files, name, fails)
    for access in (lambda: store.read("a"), lambda: store.write("a", b""), lambda: store.sizes("a")):
        with pytest.raises(BadValue, match=r"^Spark cannot reach mem://campaign/a: Permission denied[^\n]*\Z"):
            access()
    (tmp_path / "campaign.json").mkdir()
    with pytest.raises(BadValue, match=r"campaign\.json cannot be read: "):
        LocalStore(tmp_path).read("campaign.json")


def test_a_finished_campaign_is_not_run_again(finished: tuple[LocalStore, State]) -> None:
    store, whole = finished
    before = content(store)

    class NothingToDo(Inline):
        def submit(self, tasks: Sequence[Task]) -> Future[list[TaskResult]]:
            raise AssertionError(tasks)

    state = run_campaign(store, PLAN, open_campaign(store, PLAN), NothingToDo(), traces=TRACES)
    assert essence(state) == essence(whole)
    assert content(store) == before


def test_more_traces_go_on_with_the_next_seeds() -> None:
    store = MemoryStore()
    plan = Plan((UNMUTATED,), 10)
    run(store, plan=plan, traces=100)
    state = run(store, plan=plan, traces=300)
    assert state.traces == 300
    assert essence(state) == essence(run(MemoryStore(), plan=plan, traces=300))
    seeds = [s for r in state.runs for s in range(r["first_seed"], r["first_seed"] + r["traces"])]
    assert sorted(seeds) == list(range(10, 310))
    assert {110, 10 + 2 * BLOCK} <= {r["first_seed"] for r in state.runs}  # the rest of a block, then whole blocks


def test_seconds_mean_further_seconds() -> None:
    """The bounds are a tenth of the seconds."""
    store = MemoryStore()
    plan = Plan((UNMUTATED,), 0)
    first = run_campaign(store, plan, open_campaign(store, plan), Inline(), seconds=0.5)
    before = first.seconds
    again = run_campaign(store, plan, open_campaign(store, plan), Inline(), seconds=0.5)
    assert before > 0.05
    assert again.seconds > before + 0.05


def test_progress_is_reported() -> None:
    store, reported = MemoryStore(), list[Live]()
    plan = Plan((UNMUTATED,), 0)
    run_campaign(
        store,
        plan,
        open_campaign(store, plan),
        Inline(),
        traces=100,
        progress=lambda state, live: reported.append(live),
    )
    assert reported[-1] == Live(100, planned_steps(UNMUTATED.subject, range(100)), 0)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (Plan((MUTANT,), 1), "another seed (0, this is 1)"),
        (Plan((UNMUTATED,), 0), "another component, profile or mutant"),
        (Plan((MUTANT._replace(profile="stash"),), 0), "another component, profile or mutant"),
    ],
)
def test_a_folder_of_other_parameters_is_rejected_unchanged(other: Plan, expected: str, tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    run(store, traces=BLOCK)
    before = content(store)
    with pytest.raises(BadValue) as problem:
        open_campaign(store, other)
    assert expected in str(problem.value)
    assert "use another --out" in str(problem.value)
    assert content(store) == before


def test_a_folder_of_another_version_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    run(store, traces=BLOCK)
    monkeypatch.setattr(folder, "code_version", lambda: "0.0+other")
    with pytest.raises(BadValue, match="holds a campaign of another version"):
        open_campaign(store, PLAN)


def test_a_check_writes_nothing(tmp_path: Path) -> None:
    assert check_folder(LocalStore(tmp_path / "new"), PLAN) is False
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("table", ["runs", "findings", "coverage"])
@pytest.mark.parametrize("how", ["missing", "cut off", "one bit differs"])
def test_a_missing_or_damaged_table_of_a_committed_round_is_an_error(table: str, how: str, tmp_path: Path) -> None:
    """Otherwise a round without its table of findings would count as one that found nothing."""
    store = LocalStore(tmp_path)
    for traces in (BLOCK, 2 * BLOCK):
        run(store, traces=traces)
    _, second = sorted((tmp_path / table).iterdir())
    if how == "missing":
        second.unlink()
    elif how == "cut off":
        second.write_bytes(second.read_bytes()[:-1])
    else:
        data = bytearray(second.read_bytes())
        data[len(data) // 2] ^= 1
        second.write_bytes(data)
    with pytest.raises(BadValue) as problem:
        read_state(store, PLAN)
    assert f"{second} is missing or damaged" in str(problem.value)


def test_a_missing_round_between_two_others_is_an_error(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for traces in (BLOCK, 2 * BLOCK):
        run(store, traces=traces)
    first, second = sorted((tmp_path / "commits").iterdir())
    kept = second.read_bytes()
    second.unlink()
    assert read_state(store, PLAN).rounds == 1
    second.write_bytes(kept)
    first.unlink()
    with pytest.raises(BadValue, match="has no complete file of round 1"):
        read_state(store, PLAN)


def test_a_folder_without_campaign_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="holds no campaign"):
        read_plan(LocalStore(tmp_path))
    (tmp_path / "campaign.json").write_text("[]")
    with pytest.raises(BadValue, match="is not a campaign's manifest"):
        read_plan(LocalStore(tmp_path))


def test_a_round_without_its_commit_file_does_not_count() -> None:
    store = MemoryStore()
    state = open_campaign(store, PLAN)
    result = run_task(Task(MUTANT, 0, BLOCK))
    commit(store, 1, [result], 1.0)
    assert essence(read_state(store, PLAN))[2] == result.traces
    [commit_file] = [name for name in store.files if name.startswith("commits/")]
    del store.files[commit_file]
    assert essence(read_state(store, PLAN)) == essence(state)


@pytest.mark.parametrize(("seconds", "shortest", "longest"), [(60, 2.0, 4.0), (6, 0.3, 1.1)])
def test_tasks_are_long_and_every_component_gets_its_share(
    seconds: float, shortest: float, longest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A campaign of 13 components on two slots. In a minute, tasks take 2 to 4 s. In six seconds, they are shorter."""
    monkeypatch.setattr(campaign, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    specs = tuple(Spec("range_cache", profile=str(i))._replace(subject=f"c{i}", steps=100) for i in range(13))
    state = State(speed={spec.subject: 1000.0 for spec in specs})
    rounds = campaign._Rounds(Plan(specs, 0), state, 2, traces=None, seconds=seconds, partitions=None)
    tasks = list[Task]()
    while sum(task.traces for task in tasks) < 2 * seconds * 1000 and (following := rounds.next_round()):
        tasks += following
        rounds.round_ended()
    lengths = [task.traces / 1000 for task in tasks]
    assert shortest <= min(lengths)
    assert max(lengths) <= longest
    by_component = {s.subject: sum(t.traces for t in tasks if t.spec.subject == s.subject) for s in specs}
    assert min(by_component.values()) > 0
    assert max(by_component.values()) <= 2 * min(by_component.values()) + BLOCK


def test_a_block_stops_at_the_finding_limit_and_counts_skipped_traces() -> None:
    result = run_task(Task(Spec("range_cache", mutant="replay-is-lost"), 0, 2 * BLOCK))
    assert result.skipped_traces > 0
    assert result.traces + result.skipped_traces == 2 * BLOCK


def test_tasks_and_results_are_unchanged_as_text() -> None:
    task = Task(MUTANT, 3, BLOCK)
    assert task_from(task_text(task)) == task
    result = run_task(task)
    assert result_from(result_text(result)) == result


def test_a_worker_of_another_version_rejects_a_task() -> None:
    text = task_text(Task(UNMUTATED, 0, 1)).replace('"version":"', '"version":"x')
    with pytest.raises(BadValue, match="ship the driver's environment to the workers"):
        task_from(text)


def test_findings_are_merged_by_signature_and_smallest_seed() -> None:
    result = run_task(Task(MUTANT, 0, BLOCK))
    one = result.findings[0]
    later = one._replace(seed=one.seed + 100)
    assert merged([later, one, later]) == [one]
    assert len(merged([one, one._replace(signature="another")])) == 2


# ---- runs on one machine ------------------------------------------------------------------------------


def test_a_property_that_no_trace_can_violate_is_refused() -> None:
    request = Request(Spec("range_cache"), 0, property="size_pass_stashes_entries_with_expected_reads")
    with pytest.raises(BadValue, match="does not apply to the profile reference: no trace can violate it"):
        target_of_request(request)
    target = target_of_request(request._replace(spec=Spec("range_cache", profile="stash")))
    assert target.config == find_profile(target.subject, "stash")


def test_a_run_of_one_property_ends_at_its_first_violation() -> None:
    request = Request(Spec("batch_acks", profile="pulsar-2026-07"), 0, property="added_entry_is_unacknowledged")
    run = run_request(request)
    assert [found.cause for found in run.findings] == ["property:added_entry_is_unacknowledged"]


def test_a_finding_that_does_not_show_again_is_kept() -> None:
    cause = Cause(Kind.UNSTABLE, "difference")
    found = shrunk(Request(Spec("range_cache"), 0), cause, 3, None, 1)
    assert (found.cause, found.shown, found.reproduced) == (str(cause), 0, False)
    assert found.shrunk_length == found.length > 0


def test_queued_causes_get_their_share_of_the_shrinking_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes shrink five findings. At the first, a process has three findings left to shrink, this one included."""
    turns = list[int]()

    def with_five_causes(_pool: object, _request: Request, run: Run, *_: object) -> None:
        run.causes = {Cause(Kind.CRASH, str(number)): number for number in range(5)}

    monkeypatch.setattr("fuzz.campaign.local.Workers", NoWorkers)
    monkeypatch.setattr("fuzz.campaign.local.shrunk", lambda *arguments: turns.append(arguments[-1]))
    monkeypatch.setattr("fuzz.campaign.local.merged", lambda findings: findings)
    monkeypatch.setattr("fuzz.campaign.local._run_seeds_in", with_five_causes)
    run_request(Request(Spec("range_cache"), 0, seconds=5.0, jobs=2))
    assert turns == [3, 2, 2, 1, 1]
