"""The simulation of the batching benchmark: no record is lost, and latencies equal hand-computed ones."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from fuzz.benchmarks.txn_log_batching import (
    BUSY_US,
    CONCURRENT,
    DELAY_US,
    NETWORK_US,
    OFF,
    ON,
    PERSIST_US,
    STEPS,
    Log,
    Recovered,
    Simulation,
    benchmarks,
    plots,
    record,
    replayed,
)
from impl.txn_writer.records import Subscription, TransactionRecord, batched_entry, plain_entry, read_entry

FEW = 200


def records_of(log: Log) -> list[TransactionRecord]:
    return [each for entry in log.entries for each in read_entry(TransactionRecord, entry).records]


@pytest.mark.parametrize("concurrent", [1, 10, 100])
@pytest.mark.parametrize("batching", [True, False])
def test_every_record_is_in_exactly_one_entry(concurrent: int, batching: bool) -> None:
    log = Simulation(ON if batching else OFF, concurrent, FEW).run()
    read = records_of(log)
    assert log.transactions == FEW
    assert len(read) == log.records == STEPS * FEW
    ops: dict[int, list[str]] = {}
    for each in read:
        ops.setdefault(each.txnid_least_bits, []).append(each.op)
    assert sorted(ops) == list(range(FEW))
    assert set(map(tuple, ops.values())) == {("NEW", "ADD_PARTITION", "ADD_SUBSCRIPTION", "UPDATE", "UPDATE")}
    assert replayed(log.entries) == {}


def test_without_batching_every_record_is_an_entry() -> None:
    log = Simulation(OFF, 10, FEW).run()
    assert len(log.entries) == log.records
    assert not any(read_entry(TransactionRecord, entry).batched for entry in log.entries)


def test_entries_decrease_with_concurrency() -> None:
    entries = [len(Simulation(ON, concurrent, FEW).run().entries) for concurrent in (1, 10, 100, 200)]
    assert all(before > after for before, after in pairwise(entries))
    assert entries[0] == STEPS * FEW


def test_batch_has_at_most_max_records() -> None:
    """A batch that is full before the tick is flushed at once."""
    sizes = [
        Counter(len(read_entry(TransactionRecord, entry).records) for entry in log.entries)
        for log in (Simulation(ON._replace(max_records=max_records), 100, FEW).run() for max_records in (7, 512))
    ]
    assert max(sizes[0]) == 7
    assert sizes[0][7] > 50
    assert 7 < max(sizes[1]) < 512


def test_latency_of_one_client_equals_hand_computed_latency() -> None:
    """Without think time, a request takes the network, the wait for the next tick, the persistence, and the network."""
    latency = 2 * NETWORK_US + PERSIST_US
    off = Simulation(OFF, 1, 1, think_us=0).run()
    assert off.latency_us == STEPS * latency
    now = 0
    for _ in range(STEPS):
        received = now + NETWORK_US
        tick = received - received % DELAY_US + DELAY_US
        now = tick + PERSIST_US + NETWORK_US
    assert Simulation(ON, 1, 1, think_us=0).run().latency_us == now > off.latency_us


def test_batching_adds_at_most_one_tick_of_latency() -> None:
    for concurrent in (1, 100):
        log = Simulation(ON, concurrent, FEW).run()
        minimum = log.records * (2 * NETWORK_US + PERSIST_US)
        assert minimum < log.latency_us <= minimum + log.records * DELAY_US


def test_entries_queue_at_a_busy_ledger() -> None:
    """Two clients start at once, without batching: the second entry is persisted `BUSY_US` later."""
    log = Simulation(OFF, 2, 2, think_us=0, busy_us=BUSY_US).run()
    latency = 2 * NETWORK_US + PERSIST_US + BUSY_US
    assert log.latency_us == 2 * STEPS * latency + BUSY_US, "only the first entry of the second client queues"


def test_simulation_is_deterministic() -> None:
    assert Simulation(ON, 20, FEW).run() == Simulation(ON, 20, FEW).run()


def test_replay_returns_ongoing_transactions() -> None:
    steps = [record(step, 7, 3, 5_000, 9) for step in range(STEPS)]
    other = record(0, 8, 4, 5_000, 9)
    subscription = Subscription("persistent://public/default/payments-partition-3", "billing")
    committing = Recovered("COMMITTING", ("persistent://public/default/orders-partition-3",), (subscription,))
    assert replayed([batched_entry([*steps[:2], other]), *[plain_entry(step) for step in steps[2:4]]]) == {
        7: committing,
        8: Recovered("OPEN", (), ()),
    }
    assert replayed([batched_entry([other, *steps])]) == {8: Recovered("OPEN", (), ())}


def test_every_metric_is_measured_at_every_concurrency() -> None:
    """There are five metrics. The plots show no others."""
    names = {each.name for each in benchmarks}
    assert len(names) == 5 * len(CONCURRENT)
    plotted = {point.result for plot in plots for line in plot.lines for point in line.points}
    assert plotted <= names
    assert {name.split(".")[1] for name in names} == {str(n) for n in CONCURRENT}
