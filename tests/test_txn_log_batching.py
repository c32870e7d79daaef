"""The simulation behind the benchmark of batched transaction logs: nothing is lost, and the times are as by hand."""

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
    STEPS,
    STORED_US,
    Found,
    Log,
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
def test_every_record_is_in_exactly_one_entry_and_is_read_back(concurrent: int, batching: bool) -> None:
    log = Simulation(ON if batching else OFF, concurrent, FEW).run()
    read = records_of(log)
    assert log.transactions == FEW
    assert len(read) == log.records == STEPS * FEW
    of: dict[int, list[str]] = {}
    for each in read:
        of.setdefault(each.txnid_least_bits, []).append(each.op)
    assert sorted(of) == list(range(FEW))
    assert set(map(tuple, of.values())) == {("NEW", "ADD_PARTITION", "ADD_SUBSCRIPTION", "UPDATE", "UPDATE")}
    assert replayed(log.entries) == {}


def test_without_batching_every_record_is_an_entry() -> None:
    log = Simulation(OFF, 10, FEW).run()
    assert len(log.entries) == log.records
    assert not any(read_entry(TransactionRecord, entry).batched for entry in log.entries)


def test_the_more_concurrent_the_fewer_entries() -> None:
    entries = [len(Simulation(ON, concurrent, FEW).run().entries) for concurrent in (1, 10, 100, 200)]
    assert all(more > fewer for more, fewer in pairwise(entries))
    assert entries[0] == STEPS * FEW


def test_a_batch_has_no_more_records_than_it_may() -> None:
    """Where more come in a millisecond than a batch may have, they go before the tick."""
    sizes = [
        Counter(len(read_entry(TransactionRecord, entry).records) for entry in log.entries)
        for log in (Simulation(ON._replace(max_records=most), 100, FEW).run() for most in (7, 512))
    ]
    assert max(sizes[0]) == 7
    assert sizes[0][7] > 50
    assert 7 < max(sizes[1]) < 512


def test_a_request_takes_as_long_as_by_hand() -> None:
    """One client that never works: to the coordinator, to the next tick, to the ledger, and back."""
    alone = 2 * NETWORK_US + STORED_US
    off = Simulation(OFF, 1, 1, work_us=0).run()
    assert off.waited_us == STEPS * alone
    now = 0
    for _ in range(STEPS):
        there = now + NETWORK_US
        tick = there - there % DELAY_US + DELAY_US
        now = tick + STORED_US + NETWORK_US
    assert Simulation(ON, 1, 1, work_us=0).run().waited_us == now > off.waited_us


def test_no_request_waits_longer_than_a_tick() -> None:
    for concurrent in (1, 100):
        log = Simulation(ON, concurrent, FEW).run()
        least = log.records * (2 * NETWORK_US + STORED_US)
        assert least < log.waited_us <= least + log.records * DELAY_US


def test_entries_wait_for_each_other_at_a_busy_ledger() -> None:
    """Two clients at once, without batching: the second entry is stored so much later."""
    log = Simulation(OFF, 2, 2, work_us=0, busy_us=BUSY_US).run()
    alone = 2 * NETWORK_US + STORED_US + BUSY_US
    assert log.waited_us == 2 * STEPS * alone + BUSY_US, "the second client is behind the first from then on"


def test_a_simulation_is_the_same_each_time() -> None:
    assert Simulation(ON, 20, FEW).run() == Simulation(ON, 20, FEW).run()


def test_what_a_replay_finds() -> None:
    steps = [record(step, 7, 3, 5_000, 9) for step in range(STEPS)]
    other = record(0, 8, 4, 5_000, 9)
    subscription = Subscription("persistent://public/default/payments-partition-3", "billing")
    seen = Found("COMMITTING", ("persistent://public/default/orders-partition-3",), (subscription,))
    assert replayed([batched_entry([*steps[:2], other]), *[plain_entry(step) for step in steps[2:4]]]) == {
        7: seen,
        8: Found("OPEN", (), ()),
    }
    assert replayed([batched_entry([other, *steps])]) == {8: Found("OPEN", (), ())}


def test_every_row_is_measured_and_drawn() -> None:
    names = {each.name for each in benchmarks}
    assert len(names) == 5 * len(CONCURRENT)
    drawn = {point.result for plot in plots for line in plot.lines for point in line.points}
    assert drawn <= names
    assert {name.split(".")[1] for name in names} == {str(n) for n in CONCURRENT}
