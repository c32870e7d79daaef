"""Negative-ack tracker: stateful tests, and worked examples with upstream's numbers."""

from __future__ import annotations

import functools
import random
from itertools import pairwise
from typing import Any

import pytest

from fuzz.benchmarks import negative_acks_space as space
from fuzz.benchmarks.negative_acks_space import ROWS, Row, bytes_per_entry, nacks, packed
from fuzz.run.stateful import stateful_test
from fuzz.subject import find_subject
from impl.negative_acks.buckets import Buckets
from impl.negative_acks.tracker import NegativeAcks
from model.machine import BadValue, Failed, Refused
from model.negative_acks import avl_tree
from model.negative_acks import delay as redelivery_delay
from model.negative_acks import machine as m
from model.negative_acks.delay import Backoff
from model.negative_acks.machine import Config, Elapsed, Nacked, Redelivery, State
from model.negative_acks.message_ids import MessageId, NackedId
from model.positions import Position
from tests.conftest import stepped

SUBJECT = find_subject("negative_acks")

TestNegativeAcks = stateful_test(SUBJECT)

BASE = Config(precision_bits=0, min_delay_ms=0, backoff=Backoff("ms", (10_000, 20_000, 600_000)))
JAVA = m.recorded.config._replace(precision_bits=0, backoff=BASE.backoff)
BEFORE = m.before_393.config
CPP = m.cpp.config
GO = m.go.config._replace(precision_bits=0)
MS = 1_000_000

#: entries of ledger 1
A, B, C = Position(1, 0), Position(1, 1), Position(1, 2)


PLAIN = NackedId()


def nack(entry: Position, redelivery_count: int | None = None, message_id: NackedId = PLAIN) -> tuple[Any, ...]:
    return ("nack", entry, redelivery_count, message_id)


def wait(by: int, timer_lag: int = 0) -> tuple[Any, ...]:
    return ("advance_time", by, timer_lag)


def after(cfg: Config, *steps: tuple[Any, ...], start: State | None = None) -> tuple[State, Any]:
    """Returns the state after some actions, and the last outcome. Under the reference, the implementation must agree."""
    s, outcomes = stepped(m.negative_acks, cfg, steps, start, NegativeAcks)
    return s, outcomes[-1]


def redelivered(cfg: Config, *steps: tuple[Any, ...]) -> list[tuple[int, list[Position]]]:
    """Returns time and entries of each redelivery command."""
    s, found = m.start(cfg), []
    for step in steps:
        s, outcome = after(cfg, step, start=s)
        if isinstance(outcome, Elapsed):
            found += [(r.at, [each.position for each in r.ids]) for r in outcome.redeliveries]
    return found


# ---- redelivery times


def test_a_shorter_nack_does_not_wait_for_a_longer_one() -> None:
    """A nack for 600 s at 0 s, and a nack for 10 s at 1 s, due at 11 s. The Java client redelivers both at 600 s."""
    steps = [nack(A, 2), wait(1_000), nack(B, 0), wait(700_000)]
    assert redelivered(BASE, *steps) == [(11_000, [B]), (600_000, [A])]
    assert redelivered(JAVA, *steps) == [(600_000, [A, B])]


def test_two_nacks_of_an_entry_do_not_interfere() -> None:
    """PIP-393: nacks for 10 s and for 20 s. Before it, the second replaced the first."""
    steps = [nack(A, 0), nack(A, 1), wait(30_000)]
    assert redelivered(BASE, *steps) == [(10_000, [A]), (20_000, [A])]
    [(at, entries)] = redelivered(BEFORE._replace(backoff=BASE.backoff), nack(A, 0), nack(A, 1), wait(30_000 * MS))
    assert entries == [A]
    assert at > 20_000 * MS


def test_before_393_a_redelivery_is_late_by_up_to_a_third_of_the_delay() -> None:
    """With a delay of one hour the timer runs every 20 minutes: a nack 1 s after a run is almost 20 minutes late."""
    hour = 3_600_000
    cfg = BEFORE._replace(redelivery_delay_ms=hour)
    steps = [nack(A), wait(1_000 * MS), nack(B), wait(2 * hour * MS)]
    assert redelivered(cfg, *steps) == [(4 * hour // 3 * MS, [A, B])], "a nack that is due at a run waits for the next"
    exact = BASE._replace(redelivery_delay_ms=hour, backoff=Backoff())
    assert redelivered(exact, nack(A), wait(1_000), nack(B), wait(2 * hour)) == [(hour, [A]), (hour + 1_000, [B])]


def test_the_cpp_client_redelivers_nothing_while_nacks_keep_coming() -> None:
    """A delay of 60 s, and a nack every 19 s for ten minutes: the first redelivery is at 609 s, not at 60 s."""
    steps = [step for i in range(32) for step in (nack(Position(1, i)), wait(19_000 * MS))]
    assert redelivered(CPP, *steps, wait(100_000 * MS))[0][0] == 609_000 * MS
    exact = [step for i in range(32) for step in (nack(Position(1, i)), wait(19_000))]
    assert redelivered(Config(precision_bits=0), *exact)[0] == (60_000, [Position(1, 0)])


def test_the_cpp_client_trims_nanoseconds() -> None:
    """Eight bits of a nanosecond count are 256 ns: nacks 0.1 ms apart do not share a bucket."""
    steps = [nack(A), wait(100_000), nack(B)]
    assert len(after(CPP, *steps)[0].buckets) == 2
    right = CPP._replace(precision_unit="milliseconds")
    assert len(after(right, *steps)[0].buckets) == 1


def test_the_go_client_skips_due_buckets() -> None:
    """Seven buckets that are due at once take three ticks: 1, 2, 4 and 6; then 3 and 5; then 7."""
    tree: avl_tree.Tree = None
    for time in range(1, 8):
        tree = avl_tree.inserted(tree, time)
    walks = []
    while tree is not None:
        removed, tree = avl_tree.walk(tree, 100)
        walks.append(removed)
    assert walks == [(1, 2, 4, 6), (3, 5), (7,)]
    cfg = GO._replace(redelivery_delay_ms=900)
    steps = [step for i in range(7) for step in (nack(Position(1, i)), wait(7 * MS))]
    found = redelivered(cfg, wait(310 * MS), *steps, wait(2_000 * MS))
    assert [[entry.entry for entry in entries] for _, entries in found] == [[0, 1, 3, 5], [2, 4], [6]]


def test_redelivery_is_at_most_255_ms_early_with_8_bits() -> None:
    """PIP-393 states 512 ms. Nacks for 3 s at 1000 and 1100 are in different buckets."""
    cfg = Config(redelivery_delay_ms=3_000)
    assert [bucket.time for bucket in after(cfg, wait(1_000), nack(A), wait(100), nack(A))[0].buckets] == [3_840, 4_096]
    early = [3_000 + now - m.bucket_time(cfg, 3_000 + now) for now in range(2_000)]
    assert (min(early), max(early)) == (0, 255)


def test_a_nack_in_a_past_bucket_is_redelivered_at_the_next_run() -> None:
    """Twelve bits are 4096 ms: with a delay of 100 ms the bucket time may be before the nack."""
    cfg = Config(redelivery_delay_ms=100, precision_bits=12)
    s, outcome = after(cfg, wait(5_000), nack(A))
    assert (outcome, s.timer) == (Nacked(100, False, True), 5_000)
    assert after(cfg, wait(0), start=s)[1] == Elapsed(1, (Redelivery(5_000, (MessageId(A),)),))


@pytest.mark.parametrize(
    ("delay", "redelivered_after"),
    [(0, 132), (100, 132), (102, 102), (120, 120), (200, 264), (300, 300), (301, 400), (600, 600), (1_000, 1_332)],
)
def test_the_cpp_client_redelivers_at_a_multiple_of_whole_milliseconds(delay: int, redelivered_after: int) -> None:
    """Observed with client 4.2.0: the interval is a third of the delay in whole milliseconds, 33 or more."""
    cfg = CPP._replace(redelivery_delay_ms=delay)
    assert redelivered(cfg, nack(A), wait(3_000 * MS)) == [(redelivered_after * MS, [A])]
    assert m.timer_interval(cfg._replace(redelivery_delay_ms=2_000)) == 666 * MS


def test_the_cpp_client_postpones_redelivery_as_observed() -> None:
    """A delay of 300 ms, 40 nacks in 2 s: nothing until 2050 ms, then 36 entries and two more commands."""
    cfg = CPP._replace(redelivery_delay_ms=300)
    steps = [step for i in range(40) for step in (nack(Position(1, i)), wait(50 * MS))]
    found = redelivered(cfg, *steps, wait(2_000 * MS))
    assert [(at // MS, len(entries)) for at, entries in found] == [(2_050, 36), (2_150, 2), (2_250, 2)]


def test_the_cpp_client_stores_nacks_after_close() -> None:
    """Observed with client 4.2.0: no error, no timer, no redelivery; nacks before close are removed."""
    s, outcome = after(CPP, nack(A), ("close",), nack(B))
    assert isinstance(outcome, Nacked)
    assert (s.status, s.timer, [bucket.entries for bucket in s.buckets]) == ("closed", None, [(B,)])
    assert after(CPP, wait(10**12), start=s)[1] == Elapsed(0, ())


@pytest.mark.parametrize(("clock_unit", "factor"), [("ms", 1), ("ns", MS)])
def test_a_backoff_is_converted_to_the_unit_of_the_clock(clock_unit: Any, factor: int) -> None:
    cfg = Config(clock_unit=clock_unit, backoff=Backoff("ms", (200, 300)))
    assert [m.delay_of(cfg, count) for count in (0, 1)] == [200 * factor, 300 * factor]
    in_ns = Config(backoff=Backoff("ns", (250_999_999,)))
    assert m.delay_of(in_ns, 0) == 250
    nacked = NegativeAcks(in_ns).nack(Position(1, 0), 0, NackedId())
    assert isinstance(nacked, Nacked)
    assert nacked.delay == 250


def test_a_late_timer_redelivers_all_due_buckets() -> None:
    cfg = Config(redelivery_delay_ms=1_000, precision_bits=0)
    steps = [step for i in range(4) for step in (nack(Position(1, i)), wait(100))]
    assert redelivered(cfg, *steps, wait(2_000, 250)) == [
        (1_250, [Position(1, 0), Position(1, 1), Position(1, 2)]),
        (1_550, [Position(1, 3)]),
    ]


# ---- rejections


@pytest.mark.parametrize("entry", [Position(-1, 0), Position(1, -1)])
def test_negative_ids_are_rejected_without_effect(entry: Position) -> None:
    for cfg, is_rejected in [(BASE, True), (JAVA, False), (GO, False), (CPP, False)]:
        s = m.start(cfg)
        again, outcome = after(cfg, nack(entry), start=s)
        assert isinstance(outcome, Refused) == is_rejected
        assert (again is s) == is_rejected


def test_a_negative_delay_is_rejected_with_its_count() -> None:
    cfg = BASE._replace(backoff=Backoff("ms", (5, -1)))
    s = m.start(cfg)
    again, outcome = after(cfg, nack(A, 7), start=s)
    assert again is s
    assert outcome == Refused("illegal_argument", "the backoff's delay for redelivery count 7 is -1")


# ---- backoffs


def test_the_multiplier_backoff() -> None:
    table = redelivery_delay.multiplier_backoff(10_000, 600_000, 2.0)
    assert table == (10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 600_000, 600_000)
    assert redelivery_delay.multiplier_backoff(0, 600_000, 2.0) == (0,)
    assert redelivery_delay.multiplier_backoff(10, 1_000, 1.5)[:5] == (10, 15, 22, 33, 50)
    for minimum, maximum, multiplier in [(-1, 5, 2.0), (6, 5, 2.0), (1, 5, 1.0)]:
        with pytest.raises(ValueError, match="invalid backoff"):
            redelivery_delay.multiplier_backoff(minimum, maximum, multiplier)


def test_the_go_backoff_overflows() -> None:
    """apache/pulsar-client-go#1385 fixed the counts from 55 on."""
    unit, table = redelivery_delay.go_default_backoff()
    assert unit == "ns"
    below = [count for count, delay in enumerate(table) if delay < 0]
    assert below == [34, 35, 36, 38, 39, 40, 43, 44, 46, 48, 49, 52, 54]
    assert (table[:3], table[10], table[54], table[55]) == (
        (10**9, 2 * 10**9, 4 * 10**9),
        6 * 10**11,
        -(2**63),
        6 * 10**11,
    )


def test_a_nack_by_id_always_has_the_first_delay() -> None:
    assert [after(BASE, *[nack(A)] * n)[1].delay for n in (1, 2, 5)] == [10_000] * 3


def test_the_minimum_delay_applies_to_backoffs() -> None:
    cfg = Config(backoff=Backoff("ms", (1, 500)))
    assert [after(cfg, nack(A, count))[1].delay for count in (0, 1)] == [100, 500]
    shipped = m.recorded.config._replace(backoff=Backoff("ms", (1, 500)))
    assert [after(shipped, nack(A, count))[1].delay for count in (0, 1)] == [1, 500]


def test_a_ticker_without_interval_fails() -> None:
    cfg = GO._replace(redelivery_delay_ms=0)
    assert after(cfg, nack(A))[1].kind == "panic"
    assert after(GO, nack(A, 0))[1].kind == "null_pointer"


# ---- close, failures and clocks


def test_close_is_final() -> None:
    steps = [nack(A), ("close",), ("close",)]
    s, outcome = after(BASE, *steps, ("run_timer_task",))
    assert (s.buckets, s.timer, outcome) == ((), None, None)
    again, refusal = after(BASE, nack(B), start=s)
    assert again is s
    assert isinstance(refusal, Refused)
    s, outcome = after(JAVA, *steps, ("run_timer_task",))
    assert outcome.kind == "null_pointer"
    assert after(JAVA, nack(B), start=s)[0].timer == 10_000, "map and timer are created again"


def test_a_consumer_failure_loses_due_nacks_only() -> None:
    s, outcome = after(BASE, nack(A, 0), nack(B, 1), wait(10_000, 99), ("fail_redelivery",))
    assert isinstance(outcome, Failed)
    assert (s.timer, [bucket.entries for bucket in s.buckets]) == (20_000, [(B,)])


@pytest.mark.parametrize("by", [50_000, -5_000])
def test_a_wall_clock_step_moves_redelivery_in_the_java_client_only(by: int) -> None:
    steps = [wait(100_000), nack(A, 0), wait(1), nack(B, 0), ("step_wall_clock", by), wait(50_000)]
    assert redelivered(BASE, *steps) == [(110_000, [A]), (110_001, [B])]
    shipped = redelivered(JAVA, *steps)
    assert shipped == ([(110_000, [A, B])] if by > 0 else [(115_000, [A]), (115_001, [B])])


# ---- message ids


def test_messages_of_a_batch_are_one_entry() -> None:
    steps = [nack(A, None, NackedId("batch", 0, batch_index=i)) for i in range(5)]
    assert redelivered(BASE, *steps, wait(10_000)) == [(10_000, [A])]


def test_a_chunked_message_is_redelivered_whole() -> None:
    """Before PIP-393 only its last chunk is."""
    chunks = ("receive_chunks", C, 0, (A, B, C))
    by_id = NackedId("chunk", 0, first_chunk=A)
    [(_, entries)] = redelivered(BASE, chunks, nack(C, None, by_id), wait(10_000))
    assert entries == [A, B, C, C]
    [(_, entries)] = redelivered(BEFORE._replace(redelivery_delay_ms=300), chunks, nack(C, None, by_id), wait(10**9))
    assert entries == [C]
    by_plain_id = [chunks, nack(C), wait(10_000)]
    assert [entries for _, entries in redelivered(BASE, *by_plain_id)] == [[A, B, C, C]]
    assert [entries for _, entries in redelivered(JAVA, *by_plain_id)] == [[C]]


def test_a_chunk_with_a_batch_index_is_ordered() -> None:
    """No client gives a chunk a batch index. An id without batch index comes before one with."""
    by_chunk, by_index = NackedId("chunk", first_chunk=A), NackedId(traced=True, batch_index=1)
    steps = ("receive_chunks", B, -1, (A, B)), nack(A, None, by_index), nack(B, None, by_chunk), wait(70_000)
    _, elapsed = after(Config(), *steps)
    [(_, ids)] = elapsed.redeliveries
    assert [(each.position, each.batch_index) for each in ids] == [(A, None), (A, 1), (B, None), (B, None)]


def test_a_traced_id_is_redelivered_once() -> None:
    traced = NackedId("topic", 3, traced=True)
    s, outcome = after(BASE, nack(A, 0, traced), nack(A, 1), wait(10_000))
    assert outcome.redeliveries[0].ids == (MessageId(A, 3, "topic"),)
    assert after(BASE, wait(10_000), start=s)[1].redeliveries[0].ids == (MessageId(A),)


# ---- buckets and space


@pytest.mark.parametrize("spread", [1, 7, 300, 100_000])
def test_buckets_equal_a_dictionary_of_sets(spread: int) -> None:
    """Most of the many buckets are sealed. Entry ids are in progressions, random, repeated, negative and large."""
    chance, buckets, plain = random.Random(spread), Buckets(), dict[int, set[tuple[int, int]]]()
    for turn in range(6_000):
        time = turn // 20 + chance.choice((0, 0, 0, 5, 40))
        ledger = chance.choice((3, 3, 3, 4, -1))
        entry = chance.choice((turn, turn, chance.randrange(spread), 2**40 + turn, -turn))
        buckets.add(time, ledger, entry)
        plain.setdefault(time, set()).add((ledger, entry))
        if turn % 500 == 499:
            assert buckets.check() == []
            removed = buckets.take(limit := turn // 20 - chance.randrange(60))
            expected = {t: plain.pop(t) for t in sorted(plain) if t <= limit}
            assert flat(removed) == {t: sorted(each) for t, each in expected.items()}
            assert flat(buckets.items()) == {t: sorted(each) for t, each in plain.items()}
            assert buckets.first() == min(plain)


def flat(items: Any) -> dict[int, list[tuple[int, int]]]:
    times = [time for time, _ in items]
    assert all(a < b for a, b in pairwise(times))
    return {time: [(ledger, e) for ledger, entries in bucket for e in entries] for time, bucket in items}


@pytest.mark.parametrize(("count", "slots"), [(1_000_000, 2**21), (1_384_120, 2**21), (1_384_121, 2**22), (100, 512)])
def test_the_hash_map_doubles_above_its_fill_factor(count: int, slots: int) -> None:
    """A million entries in 64 MiB, as measured in PIP-393."""
    assert space.hash_map_bytes(count) == 32 * slots


def test_the_hash_map_halves_below_its_idle_factor() -> None:
    """PIP-393: at most 32 / 0.15 = 213 bytes per entry. Only removals lead there: a growing map has at most 97."""
    peak = 2**21 * 66 // 100
    idle = 2**21 * 15 // 100
    assert space.hash_map_slots(idle, peak) == 2**21
    assert round(space.hash_map_bytes(idle, peak) / idle) == 213
    assert space.hash_map_slots(idle - 1, peak) == 2**20
    assert space.peak_before_idle(idle) == peak
    assert round(space.hash_map_bytes(peak + 1) / (peak + 1)) == 97
    assert space.hash_map_slots(1, peak) == space.INITIAL_SLOTS


exact_bytes = functools.cache(space.container_bytes)


def row_of(name: str) -> Row:
    return next(row for row in ROWS if row.name == name)


@pytest.mark.parametrize(
    ("name", "proposal", "ceiling", "corrected", "exact"),
    [
        ("1_per_ms", 4.0, 8.0, 2.0, 2.0),
        ("50_per_ms", 0.1638, 0.32, 0.3238, 0.2917),
        ("500_per_ms", 0.1638, 0.176, 0.1798, 0.176),
        ("middle.5_per_ms", 1.6, 1.6, 1.7638, 1.6329),
        ("middle.10_per_ms", 0.8, 0.8, 0.9638, 0.889),
        ("rollover.50_per_ms", 0.1638, 0.32, 0.2851, 0.278),
        ("few.16_per_bucket", 4.0, 512.0, 2.0, 2.0),
    ],
)
def test_the_predictions_of_a_row(name: str, proposal: float, ceiling: float, corrected: float, exact: float) -> None:
    """Bytes per entry by four formulas. The proposal states 0.163 for M = 51,200, but its own formula gives 0.32."""
    row = row_of(name)
    found = (space.by_proposal(row), space.with_ceiling(row), space.corrected(row), exact_bytes(row))
    assert found == pytest.approx((proposal, ceiling, corrected, exact), abs=6e-5)


@pytest.mark.parametrize("row", [row for row in ROWS if row.nacks == 1_000_000], ids=lambda r: r.name)
def test_the_corrected_prediction_is_within_a_seventh(row: Row) -> None:
    assert space.corrected(row) == pytest.approx(exact_bytes(row), rel=1 / 7)


def test_ledgers_do_not_roll_over_before_the_minimum_time() -> None:
    """`managedLedgerMaxEntriesPerLedger` is 50,000, but a ledger lives for 10 minutes: 30 M entries at 50 per ms."""
    assert [space.entries_at_rollover(rate) for rate in (0, 1, 50)] == [50_000, 600_000, 30_000_000]


@pytest.mark.parametrize(
    ("row", "buckets", "bitmaps"), [("1_per_ms", 977, 1968), ("50_per_ms", 20, 39), ("500_per_ms", 3, 22)]
)
def test_the_rows_of_the_proposal_have_its_buckets(row: str, buckets: int, bitmaps: int) -> None:
    [chosen] = [each for each in ROWS if each.name == row]
    filled = {(bucket, ledger) for bucket, ledger, _ in nacks(chosen)}
    assert abs(len({bucket for bucket, _ in filled}) - buckets) <= 1
    assert abs(len(filled) - bitmaps) <= 1


@pytest.mark.parametrize(
    "row", [each for each in ROWS if each.nacks < 1_000_000 or each.every == 0.01], ids=lambda r: r.name
)
def test_compressed_buckets_return_what_was_added(row: Row) -> None:
    row = row._replace(nacks=20_000)
    buckets, plain = packed(row), dict[int, list[tuple[int, int]]]()
    for time, ledger, entry in nacks(row):
        plain.setdefault(time, []).append((ledger, entry))
    assert flat(buckets.items()) == plain
    assert buckets.seal() < 20 * row.nacks
    assert buckets.check() == []
    assert flat(buckets.take(max(plain))) == plain
    assert buckets.first() is None


# ---- memory and settings


@pytest.mark.nightly
def test_compressed_buckets_take_less_memory() -> None:
    """They take at most a third of the memory that PIP-393 measured, and half of what its data structure takes here."""
    pytest.importorskip("pyroaring")
    for row in ROWS:
        ours = bytes_per_entry("packed", row)["allocated"]
        assert row.measured is None or 3 * ours < row.measured, row.name
        assert 2 * ours < bytes_per_entry("bitmaps", row)["allocated"], row.name


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"precision_bits": -1}, "negative_acks.precision_bits is -1, must be integer from 0 to 40"),
        ({"precision_bits": 41}, "negative_acks.precision_bits is 41, must be integer from 0 to 40"),
        ({"redelivery_delay_ms": -1}, "negative_acks.redelivery_delay_ms is -1, must be integer of 0 or more"),
    ],
)
def test_an_invalid_setting_is_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(BadValue) as problem:
        m.negative_acks.configure(settings)
    assert said in str(problem.value)
    assert m.negative_acks.configure({"precision_bits": 40}).precision_bits == 40
