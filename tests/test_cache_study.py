"""The study of eviction policies: the optimum, the policies for comparison, the variants and the simulation."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from fuzz.campaign.grid import cell_from, cell_text, run_cell, run_grid, run_here
from fuzz.campaign.store import LocalStore, MemoryStore, commits
from fuzz.cli import run
from fuzz.commands.compare import CompareResult
from fuzz.run.generate import generate, plan_trace
from fuzz.subject import find_profile, find_subject
from fuzz.workloads import Cell, find_workload, workload_names
from fuzz.workloads.caches import policies
from fuzz.workloads.caches.cache import Environment, Log, Rules
from fuzz.workloads.caches.central import (
    Central,
    Known,
    NextReader,
    Queue,
    Readers,
    SeparateCounters,
    Settings,
    Stash,
)
from fuzz.workloads.caches.optimum import Optimum
from fuzz.workloads.caches.plan import Add, Command, Consumer, Plan, Subscription, steady
from fuzz.workloads.caches.policies import POLICIES, available
from fuzz.workloads.caches.predictions import page, predictions
from fuzz.workloads.caches.predictions import run as judged
from fuzz.workloads.caches.results import policies as policy_table
from fuzz.workloads.caches.simple import LRU, Legacy, LibraryCache, Simple, has_library
from fuzz.workloads.caches.simulation import Simulation
from fuzz.workloads.file import EVENTS
from impl.range_cache import RangeCaches
from model.machine import BadValue
from model.positions import Position
from model.range_cache import Config
from tests.conftest import ROOT

needs_library = pytest.mark.skipif(not has_library(), reason="libcachesim is not installed (the extra `study`)")
#: Parameters with which a run of each workload takes a fraction of a second.
SHORT = {
    "tailing": {"seconds": 4, "scale": 0.005, "fan_out": 5, "spread_ms": 1500},
    "catch_up": {"seconds": 3, "backlog_s": 8, "scale": 0.01, "topics": 1},
    "key_shared": {"produce_s": 5, "seconds": 8},
    "rolling_restart": {"seconds": 12, "restart_ms": 2000, "scale": 0.001, "partitions": 4, "subscriptions": 4},
    "reconnect": {"seconds": 8, "scale": 0.004, "topics": 2, "fan_out": 4},
    "topics_mix": {"seconds": 4, "scale": 0.01, "topics": 20},
    "mix": {"seconds": 4, "scale": 0.005, "topics": 4, "catch_up_share": 0.3},
    "churn": {"seconds": 8, "every_s": 3, "away_s": 1, "consumers": 6, "topics": 2, "scale": 0.005},
    "drain": {"seconds": 9, "backlog_s": 4, "topics": 4, "scale": 0.0005},
}
#: The workloads that are tested for every change.
ALWAYS = ("tailing", "rolling_restart")
WORKLOADS = [pytest.param(n, marks=[] if n in ALWAYS else pytest.mark.nightly) for n in SHORT]


def cell(workload: str, policy: str, size: int | None = None, seed: int = 0, **settings: float) -> Cell:
    """Returns a cell with short parameters. The default size is the second smallest of the workload."""
    found = find_workload(workload)
    parameters = found.with_parameters({k: str(v) for k, v in {**SHORT[workload], **settings}.items()})
    return Cell(workload, policy, size or found.sizes(parameters)[1], seed, parameters)


def measured(workload: str, policy: str, size: int | None = None, **settings: float) -> dict[str, Any]:
    return run_cell(cell(workload, policy, size, **settings))[0]


# ---- published figures


def replayed(cache: Any, logs: list[Log], objects: int = 2000) -> float:
    """Returns the hit ratio of a stream in which object i is read at times i, i + 5 and i + 50, without adds."""
    logs[0].sizes = [1] * objects
    logs[0].added_us = [0] * objects
    misses = 0
    for at, entry in sorted((i + after, i) for i in range(objects) for after in (0, 5, 50)):
        cache.now_us = at
        for number, entries in cache.read(0, 0, entry, entry, False).issued:
            misses += entries
            cache.complete(number)
    if isinstance(cache, Optimum):
        misses = cache.solve().storage_entries
    return 1 - misses / (3 * objects)


def sanity(make: Any) -> float:
    """Returns the hit ratio of the stream of `replayed` in a cache of 40 objects."""
    logs = [Log()]
    return round(replayed(make(Environment(logs, 40)), logs), 4)


def test_published_sanity_vector_of_lru_and_the_optimum() -> None:
    assert sanity(LRU) == 0.3333
    assert sanity(Optimum) == pytest.approx(1 / 3 + 35 / 45 / 3, abs=0.003)


@needs_library
def test_published_sanity_vector_of_the_library() -> None:
    """S3-FIFO and SIEVE demote new objects at once, before their first re-read."""
    figures = {
        name: sanity(lambda env, name=name: LibraryCache(env, name)) for name in ("LRU", "FIFO", "S3FIFO", "Sieve")
    }
    assert figures == {"LRU": 0.3333, "FIFO": 0.3333, "S3FIFO": 0.0127, "Sieve": 0.012}


# ---- checks on the simulation


def beaten(workload: str, names: list[str]) -> list[str]:
    """Returns the policies with fewer storage reads than the optimum. There must be none."""
    best = measured(workload, "optimum")["storage_entries"]
    return [name for name in names if measured(workload, name)["storage_entries"] < best]


@pytest.mark.parametrize("workload", SHORT)
def test_no_policy_beats_the_optimum(workload: str) -> None:
    assert beaten(workload, ["4.0", "5.0", "next-reader", "lru"] if workload in ALWAYS else ["5.0"]) == []


@pytest.mark.nightly
@pytest.mark.parametrize("workload", SHORT)
def test_no_policy_at_all_beats_the_optimum(workload: str) -> None:
    """The stash of the first draft is left out: it exceeds the size of the cache."""
    online = [name for name in available(tuple(POLICIES)) if not POLICIES[name].offline and name != "stash"]
    assert beaten(workload, online) == []


def test_a_cache_that_is_too_large_beats_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the two tests above: a cache that exceeds its size is detected."""
    too_large = POLICIES["lru"]._replace(make=lambda env: LRU(env._replace(max_bytes=8 * env.max_bytes)))
    monkeypatch.setitem(POLICIES, "lru", too_large)
    assert beaten("tailing", ["lru", "5.0"]) == ["lru"]


def test_optimum_is_monotone_in_the_size_a_watermark_costs_reads_and_a_ttl_saves_none() -> None:
    sizes = find_workload("tailing").sizes(cell("tailing", "optimum").parameters)
    misses = [measured("tailing", "optimum", size)["storage_entries"] for size in sizes]
    assert misses == sorted(misses, reverse=True)
    assert misses[0] > misses[-1]
    assert measured("tailing", "optimum-90")["storage_entries"] > misses[1]
    assert measured("tailing", "optimum-ttl")["storage_entries"] >= misses[1]


def test_bounds_of_unequal_sizes_enclose_the_optimum() -> None:
    upper, lower = measured("topics_mix", "optimum"), measured("topics_mix", "optimum-feasible")
    assert (upper["bound"], lower["bound"]) == ("upper", "lower")
    assert upper["storage_entries"] < lower["storage_entries"]


@needs_library
def test_lru_is_that_of_the_library() -> None:
    ours, theirs = measured("catch_up", "lru"), measured("catch_up", "library-lru")
    assert {**ours, "policy": ""} == {**theirs, "policy": "", "dead_bytes_mean": ours["dead_bytes_mean"]}


def test_without_limits_only_entries_that_are_older_than_the_cache_are_misses() -> None:
    assert measured("tailing", "lru", 1 << 30)["storage_entries"] == 0
    backlog = measured("catch_up", "lru", 1 << 30)["storage_entries"]
    parameters = cell("catch_up", "lru").parameters
    assert 0 < backlog <= parameters.rate * parameters.scale * parameters.backlog_s


def test_with_one_subscription_and_no_lag_counts_and_the_queue_alone_are_equal() -> None:
    rows = [measured("tailing", policy, fan_out=1, spread_ms=0) for policy in ("fifo", "5.0", "lru", "4.0")]
    assert {(row["storage_entries"], row["reads"] > 0) for row in rows} == {(0, True)}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_all_policies_see_the_same_stream(workload: str) -> None:
    rows = [measured(workload, policy) for policy in ("4.0", "5.0", "lru", "optimum")]
    assert len({(row["reads"], row["consumed"]) for row in rows}) == 1
    assert rows[0]["reads"] >= rows[0]["consumed"] > 300


def test_readers_that_wait_for_misses_consume_no_more() -> None:
    given, waiting = measured("key_shared", "4.0"), measured("key_shared", "4.0", waits=1)
    assert 0 < waiting["consumed"] <= given["consumed"]
    with pytest.raises(BadValue, match="needs a given stream"):
        measured("key_shared", "optimum", waits=1)


def test_a_seed_determines_every_number() -> None:
    assert measured("rolling_restart", "5.0") == measured("rolling_restart", "5.0")
    assert run_cell(cell("rolling_restart", "5.0", seed=1))[0]["reads"] != measured("rolling_restart", "5.0")["reads"]


def test_only_the_stash_exceeds_the_maximum_size() -> None:
    """The size is measured at the end of each event. The stash is that of PIP-430's first draft."""
    rows = [measured("tailing", name) for name in ("4.0", "fifo", "stash", "4.1", "5.0", "lru")]
    assert [r["policy"] for r in rows if r["bytes_cached_peak"] > r["cache_bytes"]] == ["stash"]


# ---- requirements of Pulsar's own tests, with their settings


def ran(plan: Plan, policy: str = "5.0", size: int = 1 << 20) -> Simulation:
    simulation = Simulation(plan, POLICIES[policy].make, size, 0, waits=False)
    simulation.run()
    return simulation


def test_cache_is_empty_three_ttl_after_the_last_read() -> None:
    """Five subscriptions tail 150 messages a second for 3 s. All entries are read, and then evicted."""
    adds = steady(0, 150, 100, 3_000_000)
    simulation = ran(Plan(1, adds, [Subscription(0) for _ in range(5)], 3_200_000))
    assert {w.handler.expected for w in simulation.caches[0].queue.live()} == {0}
    assert ran(Plan(1, adds, [Subscription(0) for _ in range(5)], 6_100_000)).caches[0].size() == 0


def test_entries_wait_for_a_subscription_that_reads_later() -> None:
    """Four of five subscriptions tail; the fifth is 2 s behind, which is less than six TTL, and reads from the cache."""
    late = Subscription(0, delay_us=2_000_000)
    plan = Plan(1, steady(0, 150, 100, 3_000_000), [late, *[Subscription(0) for _ in range(4)]], 3_200_000)
    counts = {w.handler.expected for w in ran(plan).caches[0].queue.live()}
    assert counts == {0, 1}
    assert ran(plan._replace(end_us=9_000_000)).storage_reads == 0
    assert ran(plan._replace(end_us=9_000_000)).caches[0].size() == 0


def test_flow_after_a_batch_of_messages_needs_no_storage_read() -> None:
    """20,000 messages are added while the only consumer is paused. The consumer then resumes (apache/pulsar#16421)."""
    plan = Plan(1, [Add(i, 0, 10) for i in range(20_000)], [Subscription(0)], 3_000_000)
    plan = plan._replace(commands=[Command(1, "stall", (0, 0, 1_000_000))])
    simulation = ran(plan)
    assert (simulation.storage_reads, simulation.consumed) == (0, 20_000)


def test_a_drainer_s_reads_serve_the_others_only_if_they_are_cached() -> None:
    """Ten subscriptions drain a backlog of 200 messages with a receiver queue of 10, one after another."""
    readers = [Subscription(0, (Consumer(10),), connect_us=1000 * i) for i in range(10)]
    plan = Plan(1, [], readers, 2_000_000, backlog=[(0, 10)] * 200)
    entries = {policy: ran(plan, policy).storage_entries for policy in ("fifo", "fifo-backlog", "5.0")}
    assert entries["fifo"] > 5 * entries["fifo-backlog"]
    # without counts, entries below the first cursor are invalidated before the second connects
    assert (entries["5.0"], entries["fifo-backlog"]) == (200, 290)


def test_messages_of_a_consumer_that_leaves_are_read_again() -> None:
    """Ten messages are sent to a consumer that works for a second on each; after 2.5 s another one takes over."""
    plan = Plan(1, steady(0, 1000, 10, 10_000), [Subscription(0, (Consumer(10, 1_000_000), Consumer(20)))], 9_000_000)
    plan = plan._replace(commands=[Command(0, "leave", (0, 1)), Command(2_500_000, "leave", (0, 0))])
    assert (ran(plan).reads, ran(plan).consumed) == (10, 2)
    plan = plan._replace(commands=[*plan.commands, Command(2_600_000, "join", (0, 1))])
    after = {policy: ran(plan, policy) for policy in ("4.0", "4.0-mark-delete", "5.0", "lru")}
    assert {(each.reads, each.consumed) for each in after.values()} == {(18, 10)}
    assert {each.cursors[0].first_unacked for each in after.values()} == {10}
    # an entry is released when it is sent: then no read of it is expected, and it is evicted after the TTL
    assert {name: each.storage_entries for name, each in after.items()} == {
        "4.0": 8,
        "4.0-mark-delete": 8,
        "5.0": 8,
        "lru": 0,
    }
    longer = plan._replace(ttl_us=10_000_000)
    assert {name: ran(longer, name).storage_entries for name in after} == {
        "4.0": 8,
        "4.0-mark-delete": 0,
        "5.0": 0,
        "lru": 0,
    }


def test_without_counts_a_cursor_that_connects_again_waits_for_the_check_of_backlogs() -> None:
    """The only consumer is away from 1 s to 1.05 s. The check runs once a minute: later entries are not cached."""
    commands = [Command(1_000_000, "disconnect", (0,)), Command(1_050_000, "connect", (0,))]
    plan = Plan(1, steady(0, 100, 10, 3_000_000), [Subscription(0)], 3_100_000, commands=commands)
    assert {name: ran(plan, name).storage_entries for name in ("fifo", "fifo-backlog", "5.0")} == {
        "fifo": 200,
        "fifo-backlog": 5,
        "5.0": 0,
    }
    later = ran(plan._replace(adds=steady(0, 100, 10, 62_000_000), end_us=62_100_000), "fifo")
    assert 5_800 < later.storage_entries < 6_000


def test_without_counts_lagging_cursors_are_active_until_the_first_check_of_backlogs() -> None:
    size, hour = 1 << 30, 3_600_000
    assert measured("tailing", "fifo", size, spread_ms=600, check_ms=hour)["storage_entries"] == 0
    assert measured("tailing", "fifo", size, spread_ms=600)["storage_entries"] > 500
    assert measured("tailing", "fifo-backlog", size, spread_ms=600)["storage_entries"] == 0


def test_reads_end_with_a_ledger_and_acknowledged_ledgers_leave_the_cache() -> None:
    """Ledgers have 10 entries. A second subscription is half a second behind; before it reads, no ledger is trimmed."""
    late = Subscription(0, delay_us=500_000)
    plan = Plan(1, [Add(1, 0, 10) for _ in range(25)], [Subscription(0), late], 400_000, ledger_entries=10)
    names = [*available(("4.0", "5.0", "lru", "sieve")), "optimum"]
    held = {name: ran(plan, name).caches[0].size() for name in names if name != "optimum"}
    assert set(held.values()) == {250}
    done = {name: ran(plan._replace(end_us=900_000), name) for name in names}
    assert {name: each.caches[0].size() for name, each in done.items()} == {
        name: {"4.0": 0, "optimum": 0}.get(name, 50) for name in names
    }
    assert {each.reads for each in done.values()} == {50}
    assert {each.storage_entries for name, each in done.items() if name != "optimum"} == {0}
    behind = plan._replace(subscriptions=[Subscription(0, start=0)], adds=[], backlog=[(0, 10)] * 25)
    assert (ran(behind).storage_reads, ran(behind._replace(ledger_entries=0)).storage_reads) == (3, 1)


# ---- the caches


class SimpleWithQueue(Simple):
    """The read path of branch 4.0 (`Simple`) with the queue of `impl/range_cache`, without counts."""

    def __init__(self, env: Environment) -> None:
        super().__init__(env, Rules(None, 0, invalidates=False))
        self.ranges = RangeCaches(
            Config(
                caches=len(env.logs), max_bytes=env.max_bytes, max_requeue_times=0, extend_ttl_of_recently_accessed=True
            )
        )

    def find(self, topic: int, entry: int) -> bool:
        return self.ranges.get(topic, Position(1, entry), False) is not None

    def put(self, topic: int, entry: int) -> None:
        self.ranges.now_ns = self.now_us * 1000
        self.ranges.put(topic, Position(1, entry), self.env.logs[topic].sizes[entry], 1)
        self.ranges.evict_to_watermark()

    def evict(self) -> None:
        self.ranges.now_ns = self.now_us * 1000
        self.ranges.time_pass(self.ranges.now_ns - 1_000_000_000)
        self.ranges.evict_to_watermark()

    def size(self) -> int:
        return sum(store.bytes for store in self.ranges._caches)


def totals(workload: str, make: Any, **settings: float) -> Any:
    asked = cell(workload, "5.0", **settings)
    plan: Any = __import__(f"fuzz.workloads.{workload}", fromlist=["plan"]).plan(asked.parameters, Random(5))
    return Simulation(plan, make, asked.size, 5, waits=False).run()


@pytest.mark.parametrize("workload", WORKLOADS)
def test_both_read_paths_cost_the_same(workload: str) -> None:
    """`EntryCaches` and the read path `Simple` use the same queue: gaps, joined reads and cached entries are equal."""
    settings = Settings(
        Rules(None, 0),
        counts="none",
        caches_storage_reads=True,
        max_requeue_times=0,
        extend_ttl_of_recently_accessed=True,
    )
    ours, theirs = totals(workload, lambda env: Central(env, settings)), totals(workload, SimpleWithQueue)
    assert ours.storage_reads > 10
    assert ours._replace(dead_mean=None, visits=0) == theirs._replace(dead_mean=None, visits=0)


def test_whole_ranges_of_branch_4_0_cost_more_than_gaps() -> None:
    class Gaps(Legacy):
        whole_range = False

    rules = Rules(None, 0, invalidates=True)
    short = {"scale": 0.05, "tailing": 5, "seconds": 2, "backlog_s": 4}
    whole, gaps = [totals("catch_up", lambda env, kind=kind: kind(env, rules), **short) for kind in (Legacy, Gaps)]
    assert whole.storage_entries > gaps.storage_entries


@pytest.mark.parametrize(
    ("queue", "profile", "differs"), [(Stash, "stash", Queue), (SeparateCounters, "separate-counters", Queue)]
)
def test_variants_of_the_queue_are_those_of_the_model(queue: Any, profile: str, differs: Any) -> None:
    """A variant returns what the model returns under the variant's profile; the shipped queue does not."""
    subject = find_subject("range_cache")
    disagreed = 0
    for seed in range(40):
        config = plan_trace(subject, find_profile(subject, profile), seed)[0].config
        calls = generate(subject, find_profile(subject, profile), seed, 120)
        state, body, other = subject.machine.start(config), queue(config), differs(config)
        for name, arguments in calls:
            if name in ("non_evictable_size", "over_release"):
                continue
            state, expected = subject.machine.step(config, state, name, arguments)
            assert getattr(body, name)(*arguments) == expected, (seed, name, arguments)
            disagreed += getattr(other, name)(*arguments) != expected
    assert disagreed


def test_next_reader_evicts_dead_entries_first_then_the_furthest_from_its_reader() -> None:
    logs = [Log()]
    logs[0].sizes, logs[0].added_us = [10] * 100, [1000 * i for i in range(100)]
    cache = Central(Environment(logs, 100), Settings(queue=NextReader, max_requeue_times=1 << 30))
    for entry in range(10):
        cache.add(0, entry)
    cache.connect(0, 1, 4)
    cache.connect(0, 2, 8)
    assert sorted(entry for _, entry, _ in cache.contents()) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    for entry in range(10, 13):
        cache.add(0, entry)
    assert sorted(entry for _, entry, _ in cache.contents()) == [4, 5, 6, 7, 8, 9, 10, 11, 12]
    cache.add(0, 13)
    assert sorted(entry for _, entry, _ in cache.contents()) == [4, 5, 6, 7, 8, 9, 10, 11, 12]


@pytest.mark.parametrize(
    ("spent", "held", "held_after"),
    [
        ("stays", [0, 1, 2, 3], [1, 2, 3, 4]),
        ("removed", [0, 2, 3], [0, 2, 3, 4]),
        ("first", [0, 1, 2, 3], [0, 2, 3, 4]),
    ],
)
def test_an_entry_whose_last_expected_read_is_done(spent: Any, held: list[int], held_after: list[int]) -> None:
    """The only active cursor reads entry 1. Then entries 3 and 4 are added, and entry 4 exceeds the trigger."""
    logs = [Log()]
    logs[0].sizes, logs[0].added_us = [10] * 9, [0] * 9
    cache = Central(Environment(logs, 50), Settings(spent=spent, max_requeue_times=0))
    cache.connect(0, 1, 0)
    for entry in range(3):
        cache.add(0, entry)
    cache.read(0, 1, 1, 1, True)
    for _, copies in cache.answered:
        cache.release(copies[0])
    cache.add(0, 3)
    assert sorted(entry for _, entry, _ in cache.contents()) == held
    cache.add(0, 4)
    assert sorted(entry for _, entry, _ in cache.contents()) == held_after


@pytest.mark.parametrize(("queue", "evicted"), [(Queue, (0, 0)), (Readers, (1, 0)), (Known, (1, 0))])
def test_an_entry_that_a_cursor_will_read_outlives_others(queue: Any, evicted: tuple[int, int]) -> None:
    """Entry 0 of topic 0 is added before a cursor connects to the topic. No cursor connects to topic 1."""
    logs = [Log(), Log()]
    for log in logs:
        log.sizes, log.added_us = [10] * 4, [0] * 4
    cache = Central(Environment(logs, 50), Settings(queue=queue))
    cache.add(0, 0)
    cache.connect(0, 1, 0)
    for entry in range(4):
        cache.add(1, entry)
    assert {(0, 0), *((1, entry) for entry in range(4))} - {each[:2] for each in cache.contents()} == {evicted}


# ---- the command


def test_cells_survive_json_and_the_grid_resumes(tmp_path: Path) -> None:
    workload = find_workload("key_shared")
    cells = [cell("key_shared", policy, seed=seed) for policy in ("fifo", "5.0") for seed in (0, 1)]
    assert [cell_from(cell_text(each)) for each in cells] == cells
    store, ran = LocalStore(tmp_path), []

    def runner(asked: Any) -> Any:
        ran.append(len(asked))
        if len(ran) == 2:
            raise KeyboardInterrupt
        return run_here(asked)

    with pytest.raises(KeyboardInterrupt):
        run_grid("key_shared", workload.row, cells, runner, 3, store, lambda _: None)
    rows = run_grid("key_shared", workload.row, cells, runner, 3, store, lambda _: None)
    assert ran == [3, 1, 1]
    assert (
        rows
        == run_grid("key_shared", workload.row, cells, runner, 3, store, lambda _: None)
        == [r for c in cells for r in run_cell(c)]
    )
    assert [each.number for each in commits(store)] == [1, 2]
    with pytest.raises(BadValue, match="another workload or version"):
        run_grid("other", workload.row, cells, runner, 3, store, lambda _: None)


def test_a_grid_resumes_after_a_death_in_its_first_write() -> None:
    workload, store = find_workload("key_shared"), MemoryStore()
    run_grid("key_shared", workload.row, [], run_here, 3, store, lambda _: None)
    [(name, whole)] = store.files.items()
    for length in range(len(whole)):
        store.files[name] = whole[:length]
        run_grid("key_shared", workload.row, [], run_here, 3, store, lambda _: None)
        assert store.files == {name: whole}


@pytest.mark.spark
@pytest.mark.nightly
def test_spark_gives_the_same_rows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = [
        "compare",
        "key_shared",
        "--policy",
        "fifo",
        "--policy",
        "5.0",
        "--set",
        "seconds=8",
        "--seed",
        "3",
        "--json",
    ]
    rows = []
    for more in (
        [],
        ["--spark", "--master", "local[2]", "--out", str(tmp_path / "grid")],
        ["--out", str(tmp_path / "grid")],
    ):
        assert run([*words, *more]) == 0
        rows.append(msgspec.json.decode(capsys.readouterr().out, type=CompareResult).policies)
    assert rows[0] == rows[1] == rows[2]
    assert (tmp_path / "grid" / "compare.svg").exists()


@pytest.mark.nightly
def test_several_workloads_are_one_grid(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = [
        "compare",
        "key_shared,mix",
        "--policy",
        "lru",
        "--set",
        "seconds=2",
        "--out",
        str(tmp_path / "grid"),
        "--json",
    ]
    assert run(words) == 0
    rows = msgspec.json.decode(capsys.readouterr().out, type=CompareResult).policies
    assert [row["workload"] for row in rows] == ["key_shared"] * 4 + ["mix"] * 4
    assert {path.name for path in (tmp_path / "grid").glob("*.svg")} == {"key_shared.svg", "mix.svg"}


def test_json_has_the_keys_of_the_study(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "key_shared", "--policy", "5.0", "--cache-bytes", "5000", "--seed", "2", "--set", "seconds=3"]
    assert run([*words, "--json"]) == 0
    [row] = msgspec.json.decode(capsys.readouterr().out, type=CompareResult).policies
    keys = (
        "policy",
        "cache_bytes",
        "seed",
        "reads",
        "hit_ratio",
        "storage_reads",
        "bytes_cached_peak",
        "eviction_visits",
    )
    assert next(iter(row)) == "policy"
    assert set(keys) <= set(row)
    assert (row["policy"], row["cache_bytes"], row["seed"]) == ("5.0", 5000, 2)


def test_a_recorded_stream_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "stream.csv"
    lines = ["0,t,connect a", "0,t,connect b 0", *[f"{1000 * i},t,add 100" for i in range(1, 51)]]
    lines += [
        "60000,t,read a 50",
        "70000,t,ack a 50",
        "80000,t,read b 20",
        "2000000,t,read b 30",
        "2100000,t,reread b 1",
    ]
    path.write_text("\n".join(["time,topic,event", *lines, "2200000,t,disconnect b"]) + "\n")
    workload = find_workload(f"file:{path}")
    rows = {p: run_cell(Cell(workload.name, p, 1 << 20, 0, workload.parameters))[0] for p in ("fifo", "5.0", "lru")}
    assert {row["reads"] for row in rows.values()} == {101}
    assert {name: row["storage_entries"] for name, row in rows.items()} == {"fifo": 31, "5.0": 1, "lru": 0}


def test_the_document_describes_every_event_of_a_stream(tmp_path: Path) -> None:
    text = (ROOT / "fuzz" / "workloads" / "README.md").read_text()
    assert re.findall(r"^\| `(\w+) [A-Z]", text, re.MULTILINE) == list(EVENTS)
    example = text.partition("    time,topic,event\n")[2].partition("\n\n")[0]
    assert recorded_reads(tmp_path, *map(str.strip, example.splitlines())) == (1, 0)


def recorded_reads(tmp_path: Path, *lines: str) -> tuple[int, int]:
    """Returns the number of entries that a stream reads, and the number that LRU reads from storage."""
    path = tmp_path / "stream.csv"
    path.write_text("\n".join(["time,topic,event", *lines]) + "\n")
    workload = find_workload(f"file:{path}")
    [row] = run_cell(Cell(workload.name, "lru", 1 << 20, 0, workload.parameters))
    return row["reads"], row["storage_entries"]


def test_events_at_the_same_time_happen_in_the_order_of_the_file(tmp_path: Path) -> None:
    assert recorded_reads(tmp_path, "0,t,connect a", "0,t,add 1", "0,t,add 1", "0,t,read a 9", "0,t,add 1") == (2, 0)


def test_a_stream_may_begin_at_any_time_and_have_empty_lines(tmp_path: Path) -> None:
    lines = ["1763859600000000,t,connect a", "1763859600000001,t,add 1", "", "1763859600500000,t,read a 1", ""]
    assert recorded_reads(tmp_path, *lines) == (1, 0)


def test_rows_of_a_changed_file_are_measured_again(tmp_path: Path) -> None:
    path, store = tmp_path / "stream.csv", MemoryStore()
    rows = []
    for entries in (1, 2):
        path.write_text("\n".join(["time,topic,event", "0,t,connect a", *["1,t,add 1"] * entries, "2,t,read a 9"]))
        workload = find_workload(f"file:{path}")
        asked = Cell(workload.name, "lru", 9, 0, workload.parameters)
        rows += run_grid(workload.name, workload.row, [asked], run_here, 1, store, lambda _: None)
    assert [row["reads"] for row in rows] == [1, 2]
    with pytest.raises(BadValue, match=r"has CRC-32 \d+ here, not 5"):
        run_cell(asked._replace(parameters=workload.parameters._replace(checksum=5)))


def test_a_cursor_without_an_entry_first_connects_at_the_end(tmp_path: Path) -> None:
    lines = ["0,t,add 1", "1,t,add 1", "5,t,connect a", "6,t,add 1", "7,t,read a 9", "8,t,seek a 1", "9,t,read a 9"]
    assert recorded_reads(tmp_path, *lines) == (1 + 2, 0)


def test_outstanding_reads_of_a_recorded_cursor_have_different_entries(tmp_path: Path) -> None:
    lines = ["0,t,connect a 0", *["0,t,add 1"] * 5, "1,t,read a 2", "2,t,read a 2", "3,t,disconnect a", "4,t,connect a"]
    assert recorded_reads(tmp_path, *lines) == (4, 0)
    assert recorded_reads(tmp_path, *lines, "5,t,read a 2") == (6, 0)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1,t,read a 5", ":3: cursor a of t is not connected"),
        ("1,t,ack a 1", ":3: cursor a of t is not connected"),
        ("1,t,disconnect a", ":3: cursor a of t is not connected"),
        ("1,t,add", ":3: expected time,topic,event such as"),
        (f"1,t,add {'9' * 5000}", ":3: expected time,topic,event such as"),
        ("1,t,read 5", ":3: expected time,topic,event such as"),
        ("x,t,add 5", ":3: expected time,topic,event such as"),
        ("1,t", ":3: expected time,topic,event such as"),
        ("0,t,add 5", ":3: time 0 is before 1; sort the lines"),
        ("1,t,seek a 2", ":3: seek of entry 2, but t has 1 entries so far; they are numbered from 0"),
        ("1,t,connect a 2", ":3: connect of entry 2, but t has 1 entries so far"),
        ("1,t,connect a 1\n1,t,ack a 2", ":4: ack of entry 2, but t has 1 entries so far"),
        ("1,t,connect a 1\n1,t,reread a 1", ":4: reread of entry 1, but t has 1 entries so far"),
        ("1,t,connect a 1", ": no entry is read"),
    ],
)
def test_wrong_line_of_a_stream(line: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "stream.csv"
    path.write_text(f"time,topic,event\n1,t,add 5\n{line}\n")
    assert run(["compare", f"file:{path}"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tailing", "--set", "nope=1"], "tailing has no parameter nope; it has scale, seconds"),
        (["tailing", "--set", "seconds=x"], "--set seconds=x: seconds must be an integer, at least 1"),
        (["tailing", "--set", "far=-1"], "--set far=-1: far must be an integer, at least 0"),
        (["tailing", "--set", "scale=0"], "--set scale=0: scale must be a number, above 0"),
        (["catch_up", "--set", "drain=0"], "--set drain=0: drain must be a number, above 0"),
        (["reconnect", "--set", "back_most_ms=0"], "--set back_most_ms=0: it must be at least back_ms, which is 500"),
        (["tailing", "--set", "scale"], "--set scale must be NAME=VALUE"),
        (["tailing", "--policy", "9.9"], "tailing has no policy 9.9; it has 4.0"),
        (["file:nowhere.csv"], "nowhere.csv cannot be read: No such file"),
        (["file"], "there is no workload file; there are catch_up, churn, drain, file:PATH"),
        (["tailing:x"], "there is no workload tailing:x"),
        (["tailing,transfer"], "tailing,transfer have different columns; compare them one by one"),
        (
            ["tailing,mix", "--out", "plot.svg"],
            "--out plot.svg takes the plot of one workload; with several, --out must",
        ),
    ],
)
def test_wrong_input(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_policy_of_a_missing_library_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(policies, "has_library", lambda: False)
    assert run(["compare", "key_shared", "--policy", "sieve"]) == 2
    assert "policy sieve needs libcachesim, which is not installed: pip install" in capsys.readouterr().err
    assert "sieve" not in available(policies.DEFAULT)


@pytest.mark.nightly
def test_the_page_of_predictions_is_what_the_runs_give(tmp_path: Path) -> None:
    """Some rows are of policies in libcachesim, which only the extra `study` installs."""
    pytest.importorskip("libcachesim")
    assert (ROOT / "fuzz" / "workloads" / "PREDICTIONS.md").read_text() == "\n".join(page(judged(tmp_path))) + "\n"


def test_predictions_name_policies_measures_and_sizes_that_exist() -> None:
    names = {name.partition(":")[0] for name in workload_names()}
    assert predictions()
    for each in predictions():
        assert each.workload in names
        assert {each.left, each.right} <= {*POLICIES, None}
        assert each.least <= each.most
        assert list(each.cells())


def test_the_document_says_what_each_policy_does() -> None:
    """`python -m fuzz.workloads.caches.results` writes the table."""
    assert policy_table() in (ROOT / "fuzz" / "workloads" / "README.md").read_text()
    assert policy_table().count("\n") == len(POLICIES) + 1
