"""The tracker of negative acknowledgements: stateful tests, and worked examples with upstream's numbers."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from fuzz.benchmarks.negative_acks_space import ROWS, Row, hash_map_bytes, nacks, packed, taken
from fuzz.explore.search import Bounded, bounded, explore
from fuzz.run.stateful import stateful_test
from fuzz.subject import find_profile, find_subject
from impl.negative_acks.buckets import Slots
from model.machine import BadValue, Failed, Refused
from model.negative_acks import delay as redelivery_delay
from model.negative_acks import machine as m
from model.negative_acks import tree as nack_tree
from model.negative_acks.ids import MessageId, Told
from model.negative_acks.machine import Config, Nacked, Passed, Redelivery, State
from model.positions import Position

SUBJECT = find_subject("negative_acks")

TestNegativeAcks = stateful_test(SUBJECT)
TestTheCoalescingOption = stateful_test(SUBJECT, "coalescing", examples=20)

BASE = Config(precision_bits=0, least_delay_ms=0, backoff=(10_000, 20_000, 600_000))
JAVA = m.recorded.config._replace(precision_bits=0, backoff=BASE.backoff)
BEFORE = m.before_393.config
CPP = m.cpp.config
GO = m.go.config._replace(precision_bits=0, backoff=())
MS = 1_000_000

#: short for an entry of ledger 1, nacked as a message with this redelivery count
A, B, C = Position(1, 0), Position(1, 1), Position(1, 2)


PLAIN = Told()


def nack(entry: Position, count: int | None = None, told: Told = PLAIN) -> tuple[Any, ...]:
    return ("nack", entry, count, told)


def wait(by: int, lag: int = 0) -> tuple[Any, ...]:
    return ("advance_time", by, lag)


def after(cfg: Config, *steps: tuple[Any, ...], start: State | None = None) -> tuple[State, Any]:
    """The state after some actions, and the last one's outcome."""
    s, outcome = start or m.start(cfg), None
    for name, *arguments in steps:
        s, outcome = m.negative_acks.step(cfg, s, name, tuple(arguments))
    return s, outcome


def came(cfg: Config, *steps: tuple[Any, ...]) -> list[tuple[int, list[Position]]]:
    """When which entries were redelivered, in all the time that passes."""
    s, found = m.start(cfg), []
    for step in steps:
        s, outcome = after(cfg, step, start=s)
        if isinstance(outcome, Passed):
            found += [(r.at, [each.position for each in r.ids]) for r in outcome.redeliveries]
    return found


# ---- when things come back


def test_a_short_nack_after_a_long_one_is_not_kept_waiting() -> None:
    """600 s at 0 and 10 s at 1 s: the second comes at 11 s. The Java client redelivers both at 600 s."""
    steps = [nack(A, 2), wait(1_000), nack(B, 0), wait(700_000)]
    assert came(BASE, *steps) == [(11_000, [B]), (600_000, [A])]
    assert came(JAVA, *steps) == [(600_000, [A, B])]


def test_two_nacks_of_an_entry_do_not_interfere() -> None:
    """PIP-393: 10 s, then 20 s. Before it, the second moved the first."""
    steps = [nack(A, 0), nack(A, 1), wait(30_000)]
    assert came(BASE, *steps) == [(10_000, [A]), (20_000, [A])]
    old = BEFORE._replace(backoff=tuple(delay * MS for delay in BASE.backoff))
    [(at, entries)] = came(old, nack(A, 0), nack(A, 1), wait(30_000 * MS))
    assert entries == [A]
    assert at > 20_000 * MS


def test_before_393_a_redelivery_is_late_by_up_to_a_third_of_the_delay() -> None:
    """An hour's delay is checked every twenty minutes: a nack a second after a check comes twenty minutes late."""
    hour = 3_600_000
    cfg = BEFORE._replace(redelivery_delay_ms=hour)
    steps = [nack(A), wait(1_000 * MS), nack(B), wait(2 * hour * MS)]
    assert came(cfg, *steps) == [(4 * hour // 3 * MS, [A, B])], "what is due at a check waits for the next one"
    exact = BASE._replace(redelivery_delay_ms=hour, backoff=())
    assert came(exact, nack(A), wait(1_000), nack(B), wait(2 * hour)) == [(hour, [A]), (hour + 1_000, [B])]


def test_in_the_cpp_client_nothing_comes_while_nacks_keep_coming() -> None:
    """A delay of 60 s, and a nack every 19 s for ten minutes: the first redelivery is at 609 s, not at 60 s."""
    steps = [step for i in range(32) for step in (nack(Position(1, i)), wait(19_000 * MS))]
    assert came(CPP, *steps, wait(100_000 * MS))[0][0] == 609_000 * MS
    exact = [step for i in range(32) for step in (nack(Position(1, i)), wait(19_000))]
    assert came(Config(precision_bits=0), *exact)[0] == (60_000, [Position(1, 0)])


def test_the_cpp_client_cuts_off_nanoseconds() -> None:
    """Eight bits of a nanosecond count are 256 ns: nacks 0.1 ms apart share no slot, where they should."""
    steps = [nack(A), wait(100_000), nack(B)]
    assert len(after(CPP, *steps)[0].slots) == 2
    right = CPP._replace(precision_of="milliseconds")
    assert len(after(right, *steps)[0].slots) == 1


def test_the_go_client_leaves_every_other_slot_behind() -> None:
    """Seven slots that are due at once take three ticks: 1, 2, 4 and 6; then 3 and 5; then 7."""
    tree: nack_tree.Tree = None
    for time in range(1, 8):
        tree = nack_tree.planted(tree, time)
    walks = []
    while tree is not None:
        taken, tree = nack_tree.walked(tree, 100)
        walks.append(taken)
    assert walks == [(1, 2, 4, 6), (3, 5), (7,)]
    cfg = GO._replace(redelivery_delay_ms=900)
    steps = [step for i in range(7) for step in (nack(Position(1, i)), wait(7 * MS))]
    found = came(cfg, wait(310 * MS), *steps, wait(2_000 * MS))
    assert [[entry.entry for entry in entries] for _, entries in found] == [[0, 1, 3, 5], [2, 4], [6]]


def test_a_slot_is_less_than_its_length_early_and_never_late() -> None:
    """Eight bits: at most 255 ms early, whatever the time; three seconds after 1000 and 1100 straddle an edge."""
    cfg = Config(redelivery_delay_ms=3_000)
    assert [slot.time for slot in after(cfg, wait(1_000), nack(A), wait(100), nack(A))[0].slots] == [3_840, 4_096]
    early = [3_000 + now - m.slot_time(cfg, 3_000 + now) for now in range(2_000)]
    assert (min(early), max(early)) == (0, 255)


def test_a_slot_that_has_begun_is_redelivered_at_the_next_run() -> None:
    """Twelve bits are 4096 ms: with 100 ms of delay a slot may have begun before the nack."""
    cfg = Config(redelivery_delay_ms=100, precision_bits=12)
    s, outcome = after(cfg, wait(5_000), nack(A))
    assert (outcome, s.timer) == (Nacked(100, False, True), 5_000)
    assert after(cfg, wait(0), start=s)[1] == Passed(1, (Redelivery(5_000, (MessageId(A),)),))


def test_a_late_timer_takes_what_has_become_due() -> None:
    cfg = Config(redelivery_delay_ms=1_000, precision_bits=0)
    steps = [step for i in range(4) for step in (nack(Position(1, i)), wait(100))]
    assert came(cfg, *steps, wait(2_000, 250)) == [
        (1_250, [Position(1, 0), Position(1, 1), Position(1, 2)]),
        (1_550, [Position(1, 3)]),
    ]


# ---- what is refused


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"precision_bits": -1}, "negative_acks.precision_bits is -1, must be integer from 0 to 40"),
        ({"precision_bits": 41}, "negative_acks.precision_bits is 41, must be integer from 0 to 40"),
        ({"redelivery_delay_ms": -1}, "negative_acks.redelivery_delay_ms is -1, must be integer of 0 or more"),
    ],
)
def test_a_setting_out_of_its_limits_is_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(BadValue) as problem:
        m.negative_acks.configure(settings)
    assert said in str(problem.value)
    assert m.negative_acks.configure({"precision_bits": 40}).precision_bits == 40


@pytest.mark.parametrize("entry", [Position(-1, 0), Position(1, -1)])
def test_ids_below_zero_are_refused_and_leave_no_trace(entry: Position) -> None:
    for cfg, is_refused in [(BASE, True), (JAVA, False), (GO, False), (CPP, False)]:
        s = m.start(cfg)
        again, outcome = after(cfg, nack(entry), start=s)
        assert isinstance(outcome, Refused) == is_refused
        assert (again is s) == is_refused


def test_a_negative_delay_is_refused_with_its_count() -> None:
    cfg = BASE._replace(backoff=(5, -1))
    s = m.start(cfg)
    again, outcome = after(cfg, nack(A, 7), start=s)
    assert again is s
    assert outcome == Refused("illegal_argument", "the backoff's delay for redelivery count 7 is -1")


# ---- backoffs


def test_the_multiplier_backoff_is_the_java_clients() -> None:
    table = redelivery_delay.multiplier_backoff(10_000, 600_000, 2.0)
    assert table == (10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 600_000, 600_000)
    assert redelivery_delay.multiplier_backoff(0, 600_000, 2.0) == (0,)
    assert redelivery_delay.multiplier_backoff(10, 1_000, 1.5)[:5] == (10, 15, 22, 33, 50)
    for least, most, multiplier in [(-1, 5, 2.0), (6, 5, 2.0), (1, 5, 1.0)]:
        with pytest.raises(ValueError, match="makes no sense"):
            redelivery_delay.multiplier_backoff(least, most, multiplier)


def test_the_go_backoff_overflows() -> None:
    """apache/pulsar-client-go#1385 mended the counts from 55 on; these are below zero."""
    table = redelivery_delay.go_backoff()
    below = [count for count, delay in enumerate(table) if delay < 0]
    assert below == [34, 35, 36, 38, 39, 40, 43, 44, 46, 48, 49, 52, 54]
    assert (table[:3], table[10], table[54], table[55]) == (
        (10**9, 2 * 10**9, 4 * 10**9),
        6 * 10**11,
        -(2**63),
        6 * 10**11,
    )


def test_an_id_has_the_first_delay_however_often_it_is_nacked() -> None:
    assert [after(BASE, *[nack(A)] * n)[1].delay for n in (1, 2, 5)] == [10_000] * 3


def test_the_least_delay_holds_for_backoffs_too() -> None:
    cfg = Config(backoff=(1, 500))
    assert [after(cfg, nack(A, count))[1].delay for count in (0, 1)] == [100, 500]
    shipped = m.recorded.config._replace(backoff=(1, 500))
    assert [after(shipped, nack(A, count))[1].delay for count in (0, 1)] == [1, 500]


def test_a_ticker_without_a_period_fails() -> None:
    cfg = GO._replace(redelivery_delay_ms=0)
    assert after(cfg, nack(A))[1].kind == "panic"
    assert after(GO, nack(A, 0))[1].kind == "null_pointer"


# ---- close, failures and clocks


def test_close_is_final_and_a_late_task_does_no_harm() -> None:
    steps = [nack(A), ("close",), ("close",)]
    s, outcome = after(BASE, *steps, ("timer_task_runs",))
    assert (s.slots, s.timer, outcome) == ((), None, None)
    again, refusal = after(BASE, nack(B), start=s)
    assert again is s
    assert isinstance(refusal, Refused)
    s, outcome = after(JAVA, *steps, ("timer_task_runs",))
    assert outcome.kind == "null_pointer"
    assert after(JAVA, nack(B), start=s)[0].timer == 10_000, "slots and timer are back"


def test_a_consumer_that_fails_loses_what_was_due_and_nothing_else() -> None:
    s, outcome = after(BASE, nack(A, 0), nack(B, 1), wait(10_000, 99), ("redelivery_fails",))
    assert isinstance(outcome, Failed)
    assert (s.timer, [slot.entries for slot in s.slots]) == (20_000, [(B,)])


@pytest.mark.parametrize("by", [50_000, -5_000])
def test_a_jump_of_the_wall_clock_delays_the_java_client_only(by: int) -> None:
    steps = [wait(100_000), nack(A, 0), wait(1), nack(B, 0), ("wall_clock_jumps", by), wait(50_000)]
    assert came(BASE, *steps) == [(110_000, [A]), (110_001, [B])]
    shipped = came(JAVA, *steps)
    assert shipped == ([(110_000, [A, B])] if by > 0 else [(115_000, [A]), (115_001, [B])])


# ---- message ids


def test_all_messages_of_a_batch_are_one_entry() -> None:
    steps = [nack(A, None, Told("batch", 0, batch_index=i)) for i in range(5)]
    assert came(BASE, *steps, wait(10_000)) == [(10_000, [A])]


def test_a_chunked_message_comes_back_whole() -> None:
    """Three pieces; before PIP-393 only the last one comes."""
    chunks = ("remember_chunks", C, 0, (A, B, C))
    told = Told("chunk", 0, first_chunk=A)
    [(_, entries)] = came(BASE, chunks, nack(C, None, told), wait(10_000))
    assert entries == [A, B, C, C]
    [(_, entries)] = came(BEFORE._replace(redelivery_delay_ms=300), chunks, nack(C, None, told), wait(10**9))
    assert entries == [C]
    by_plain_id = [chunks, nack(C), wait(10_000)]
    assert [entries for _, entries in came(BASE, *by_plain_id)] == [[A, B, C, C]]
    assert [entries for _, entries in came(JAVA, *by_plain_id)] == [[C]]


def test_a_traced_id_comes_back_once() -> None:
    traced = Told("topic", 3, traced=True)
    s, outcome = after(BASE, nack(A, 0, traced), nack(A, 1), wait(10_000))
    assert outcome.redeliveries[0].ids == (MessageId(A, 3, "topic"),)
    assert after(BASE, wait(10_000), start=s)[1].redeliveries[0].ids == (MessageId(A),)


# ---- the structure


@pytest.mark.parametrize("spread", [1, 7, 300, 100_000])
def test_slots_are_a_dictionary_of_sets_whatever_is_done_to_them(spread: int) -> None:
    """Many slots, so that most are sealed; entries that come evenly, at random, again, and of all sizes."""
    chance, slots, plain = random.Random(spread), Slots(), {}
    for turn in range(6_000):
        time = turn // 20 + chance.choice((0, 0, 0, 5, 40))
        ledger = chance.choice((3, 3, 3, 4, -1))
        entry = chance.choice((turn, turn, chance.randrange(spread), 2**40 + turn, -turn))
        slots.add(time, ledger, entry)
        plain.setdefault(time, set()).add((ledger, entry))
        if turn % 500 == 499:
            assert slots.check() == []
            taken = slots.take(limit := turn // 20 - chance.randrange(60))
            expected = {t: plain.pop(t) for t in sorted(plain) if t <= limit}
            assert flat(taken) == {t: sorted(each) for t, each in expected.items()}
            assert flat(slots.items()) == {t: sorted(each) for t, each in plain.items()}
            assert slots.first() == min(plain)


def flat(items: Any) -> dict[int, list[tuple[int, int]]]:
    times = [time for time, _ in items]
    assert all(a < b for a, b in pairwise(times))
    return {time: [(ledger, e) for ledger, entries in slot for e in entries] for time, slot in items}


@pytest.mark.parametrize(("count", "places"), [(1_000_000, 2**21), (1_384_120, 2**21), (1_384_121, 2**22), (100, 512)])
def test_the_map_before_393_doubles_at_two_thirds(count: int, places: int) -> None:
    """A million entries in 64 MiB, as PIP-393 measured."""
    assert hash_map_bytes(count) == 32 * places


@pytest.mark.parametrize(
    ("row", "slots", "bitmaps"), [("1_per_ms", 977, 1968), ("50_per_ms", 20, 39), ("500_per_ms", 3, 22)]
)
def test_the_rows_of_the_proposal_are_filled_as_it_did(row: str, slots: int, bitmaps: int) -> None:
    [chosen] = [each for each in ROWS if each.name == row]
    filled = {(slot, ledger) for slot, ledger, _ in nacks(chosen)}
    assert abs(len({slot for slot, _ in filled}) - slots) <= 1
    assert abs(len(filled) - bitmaps) <= 1


@pytest.mark.parametrize(
    "row", [each for each in ROWS if each.nacks < 1_000_000 or each.every == 0.01], ids=lambda r: r.name
)
def test_what_is_packed_is_what_came(row: Row) -> None:
    row = row._replace(nacks=20_000)
    slots, plain = packed(row), {}
    for time, ledger, entry in nacks(row):
        plain.setdefault(time, []).append((ledger, entry))
    assert flat(slots.items()) == plain
    assert slots.seal() < 20 * row.nacks
    assert slots.check() == []
    assert flat(slots.take(max(plain))) == plain
    assert not slots


# ---- every state of a scope


@pytest.mark.parametrize(
    ("profile", "broken"),
    [
        ("pulsar-2026-07", {"the_timer_is_set_for_the_first_slot", "nothing_comes_late", "close_is_final"}),
    ],
)
def test_the_explorer_finds_what_a_profile_breaks(profile: str, broken: set[str]) -> None:
    few = replace(SUBJECT.scopes["smoke"], bounds={"pending": 2, "overdue": 3, "reach": 9})
    found = explore(Bounded(SUBJECT, profile, few), implementation=False)
    assert broken <= {v.finding.broken_property for v in found.violations}
    assert find_profile(SUBJECT, profile) != find_profile(SUBJECT, "reference")


@pytest.mark.nightly
@pytest.mark.parametrize(("scope", "states"), [("ci", 12_461), ("nightly", 39_800)])
def test_the_larger_scopes(scope: str, states: int) -> None:
    found = explore(bounded(SUBJECT, scope))
    assert (found.distinct_states, found.violations, found.lassos) == (states, [], [])


@pytest.mark.nightly
def test_the_order_of_the_memory_that_structures_take() -> None:
    """At least three times less than the proposal measured, in order; at least two times less than its structure."""
    pytest.importorskip("pyroaring")
    for row in ROWS:
        ours = taken("packed", row)["allocated"]
        assert row.measured is None or 3 * ours < row.measured, row.name
        assert 2 * ours < taken("bitmaps", row)["allocated"], row.name
