"""The container of active cursors: stateful tests, and worked examples, most with upstream's numbers."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from fuzz.explore.search import explore, find_space
from fuzz.run.stateful import stateful_test
from fuzz.subject import find_subject
from impl.active_cursors import ActiveCursors, Order
from invariants.active_cursors import retained
from model.active_cursors import machine as m
from model.active_cursors.machine import Config, Found, Slowest, State
from model.machine import Failed, Refused
from model.positions import Position
from tests.conftest import stepped

SUBJECT = find_subject("active_cursors")

TestActiveCursors = stateful_test(SUBJECT)
TestRepairedList = stateful_test(SUBJECT, "repaired-list", examples=30)
TestRepairedHeap = stateful_test(SUBJECT, "repaired-heap", examples=30)

COUNT = "number_at_same_position_or_before"
BASE = Config()
REPAIRED = m.repaired_list.config
SHIPPED = m.recorded_any_call.config
SHIPPED_HEAP = m.recorded_heap_any_call.config
#: configs under which all counts and slowest positions are right
ALIKE = [BASE, REPAIRED, BASE._replace(container="sorted_set")]


def after(cfg: Config, *steps: tuple[Any, ...], start: State | None = None) -> tuple[State, Any]:
    """Returns the state after some actions, and the last outcome. An integer is an entry id of ledger 1.

    Under the reference, the implementation must agree.
    """
    calls = []
    for name, *given in steps:
        arguments = list(given)
        if name in ("add_cursor", "update_cursor", "cursor_updated") and isinstance(given[1], int):
            arguments[1] = Position(1, given[1])
        calls.append((name, *arguments))
    s, outcomes = stepped(m.active_cursors, cfg, calls, start, ActiveCursors)
    return s, outcomes[-1]


def added(entries: Iterable[int | None]) -> list[tuple[Any, ...]]:
    """Returns additions of cursors 0, 1, ... at these entries."""
    return [("add_cursor", number, entry, True) for number, entry in enumerate(entries)]


def counts(cfg: Config, s: State) -> list[Any]:
    """Returns the count of each cursor."""
    return [after(cfg, (COUNT, c.cursor), start=s)[1] for c in s.cursors]


# ---- counts and the slowest position


@pytest.mark.parametrize("cfg", ALIKE, ids=lambda cfg: cfg.container)
def test_cursors_at_one_position_have_equal_counts(cfg: Config) -> None:
    """Positions 1, 2, then 996 times 3, then 4 and 5: each cursor at 3 has the count 998."""
    s, _ = after(cfg._replace(cursors=1000), *added([1, 2, *[3] * 996, 4, 5]))
    assert [after(cfg, (COUNT, name), start=s)[1] for name in (0, 1, 2, 500, 997, 998, 999)] == [
        1,
        2,
        998,
        998,
        998,
        999,
        1000,
    ]
    if cfg == BASE:
        loaded = ActiveCursors.load(cfg, s)
        found = [loaded.number_at_same_position_or_before(name) for name in range(1000)]
        assert found == [1, 2, *[998] * 996, 999, 1000]


@pytest.mark.parametrize("cfg", ALIKE, ids=lambda cfg: cfg.container)
def test_counts_after_moves_between_before_and_behind_others(cfg: Config) -> None:
    s, _ = after(cfg, *added([2, 4, 6, 8]))
    for entry, own, others in [(5, 3, [1, 2, 4]), (1, 1, [2, 3, 4]), (9, 4, [1, 2, 3]), (4, 3, [1, 3, 4])]:
        moved, _ = after(cfg, ("update_cursor", 2, entry), start=s)
        found = counts(cfg, moved)
        assert (found[2], found[:2] + found[3:]) == (own, others)


@pytest.mark.parametrize("cfg", ALIKE, ids=lambda cfg: cfg.container)
def test_an_untracked_cursor_counts_for_the_size_only(cfg: Config) -> None:
    s, size = after(cfg, *added([3, None, 1]), ("size",))
    assert (size, counts(cfg, s)) == (3, [2, 0, 1])
    assert after(cfg, (COUNT, 7), start=s)[1] == 0
    s, slowest = after(cfg, ("update_cursor", 1, 0), ("slowest_position",), start=s)
    assert (slowest, counts(cfg, s)) == (Position(1, 0), [3, 1, 2])


def test_positions_compare_by_ledger_first() -> None:
    cursors = [("add_cursor", 0, Position(2, -1), True), ("add_cursor", 1, Position(1, 900), True)]
    s, slowest = after(BASE, *cursors, ("slowest_position",))
    assert (slowest, counts(BASE, s)) == (Position(1, 900), [2, 1])


def test_a_name_refers_to_the_object_that_was_added_last() -> None:
    s, found = after(BASE, *added([1]), ("add_cursor", 0, 5, False), ("get_cursor", 0))
    assert found == Found(0, 2)
    assert after(BASE, ("remove_cursor", 0), ("get_cursor", 0), start=s)[1] is None


def test_an_update_returns_the_slowest_position_before_and_after() -> None:
    s, returned = after(BASE, *added([1, 4]), ("cursor_updated", 0, 9))
    assert returned == Slowest(Position(1, 1), Position(1, 4))
    assert after(BASE, ("cursor_updated", 5, 0), start=s) == (s, None)
    assert isinstance(after(SHIPPED, *added([1]), ("cursor_updated", 0, 9))[1], Refused)


# ---- the grace period


def test_added_entries_are_cached_for_less_than_the_grace_period() -> None:
    cfg = BASE._replace(grace_ms=10)
    ask = ("should_cache_added_entries",)
    assert after(cfg, ("advance", 9), ask)[1] is True, "the grace period also starts at creation"
    assert after(cfg, ("advance", 10), ask)[1] is False
    s, _ = after(cfg, *added([None]), ("advance", 50), ("remove_cursor", 0))
    assert [after(cfg, ("advance", t), ask, start=s)[1] for t in (0, 9, 10, 11)] == [True, True, False, False]
    assert after(cfg, ("advance", 9), ("remove_cursor", 0), ("advance", 1), ask, start=s)[1] is False


@pytest.mark.parametrize("grace_ms", [0, -1])
def test_a_grace_period_of_zero_or_less_is_off(grace_ms: int) -> None:
    assert after(BASE._replace(grace_ms=grace_ms), ("should_cache_added_entries",))[1] is False


# ---- the shipped list


@pytest.mark.parametrize(
    ("entries", "last_to", "asked", "shipped", "right"),
    [((1, 2, 5, 5), 6, 2, 4, 3), ((1, 2, 4, 6), 4, 2, 3, 4)],
    ids=["leaves", "joins"],
)
def test_the_tail_of_the_list_leaves_or_joins_a_group(
    entries: tuple[int, ...], last_to: int, asked: int, shipped: int, right: int
) -> None:
    steps = [*added(entries), ("slowest_position",), ("update_cursor", 3, last_to), (COUNT, asked)]
    assert after(SHIPPED, *steps)[1] == shipped
    assert after(REPAIRED, *steps)[1] == after(BASE, *steps)[1] == right


def test_a_rebuild_of_the_list_is_right() -> None:
    """Without a query in between, four updates are pending, and the list is rebuilt."""
    assert after(SHIPPED, *added((1, 2, 5, 5)), ("update_cursor", 3, 6), (COUNT, 2))[1] == 3


@pytest.mark.parametrize("cfg", [SHIPPED, m.later.config], ids=["2026-07", "2026-09"])
def test_the_list_loses_a_cursor_that_is_untracked_and_added_again(cfg: Config) -> None:
    steps = [*added([2]), ("slowest_position",), ("update_cursor", 0, None), ("add_cursor", 0, 4, True)]
    assert after(cfg, *steps, ("slowest_position",))[1] is None
    assert after(REPAIRED, *steps, (COUNT, 0))[1] == 1


def test_untracking_a_cursor_without_position_detaches_the_list() -> None:
    steps = [*added([1, 2, 3, 4, None]), ("slowest_position",), ("update_cursor", 4, None), ("slowest_position",)]
    assert after(SHIPPED, *steps)[1] is None
    assert after(m.later.config, *steps)[1] == after(REPAIRED, *steps)[1] == Position(1, 1)


@pytest.mark.parametrize(
    ("cfg", "kept"), [(SHIPPED, 200), (m.later.config, 8), (REPAIRED, 8)], ids=["2026-07", "2026-09", "repaired"]
)
def test_removed_nodes_stay_in_the_shipped_list_until_a_query(cfg: Config, kept: int) -> None:
    """Two hundred cursors come and go. The other lists drop removed nodes after every 64 removals, so 8 remain."""
    steps = [("add_cursor", 0, 0, True)]
    for name in range(1, 201):
        steps += [("add_cursor", name, name, True), ("remove_cursor", name)]
    s, _ = after(cfg._replace(cursors=201), *steps)
    assert s.nodes is not None
    assert retained(s.nodes) == kept
    s, _ = after(cfg, ("slowest_position",), start=s)
    assert s.nodes is not None
    assert retained(s.nodes) == 0


def test_the_list_fails_for_a_node_without_counter() -> None:
    steps = [*added([None]), ("update_cursor", 0, None), ("add_cursor", 0, 4, True), (COUNT, 0)]
    assert isinstance(after(SHIPPED, *steps)[1], Failed)
    assert after(REPAIRED, *steps)[1] == 1


def test_a_broker_adds_no_present_cursor_and_passes_no_null_position() -> None:
    cfg = m.recorded.config
    s, _ = after(cfg, *added([1]))
    for step in (("add_cursor", 0, 2, True), ("update_cursor", 0, None)):
        again, refusal = after(cfg, step, start=s)
        assert isinstance(refusal, Refused)
        assert again is s


# ---- the shipped heap


def test_the_slowest_position_of_the_heap_is_too_large_after_a_removal() -> None:
    steps = [*added([6, 1, 4, 6, 5, 2]), ("remove_cursor", 0), ("update_cursor", 1, 11), ("update_cursor", 5, 7)]
    assert after(SHIPPED_HEAP, *steps, ("slowest_position",))[1] == Position(1, 5)
    repaired = m.repaired_heap.config
    assert after(repaired, *steps, ("slowest_position",))[1] == Position(1, 4)


def test_the_heap_keeps_the_item_of_a_replaced_cursor() -> None:
    steps = [*added([1]), ("add_cursor", 0, 5, True), ("remove_cursor", 0), ("slowest_position",)]
    s, slowest = after(SHIPPED_HEAP, *steps)
    assert (slowest, s.durables) == (Position(1, 1), 1)
    assert after(m.repaired_heap.config, *steps)[1] is None


def test_the_heap_rejects_counts_and_null_positions() -> None:
    s, refusal = after(SHIPPED_HEAP, *added([1]), (COUNT, 0))
    assert isinstance(refusal, Refused)
    assert isinstance(after(SHIPPED_HEAP, ("update_cursor", 0, None), start=s)[1], Refused)


# ---- the implementation's sorted order


def test_the_order_equals_a_sorted_list_after_any_operations() -> None:
    chance, order, plain = random.Random(5), Order(range(0, 900, 3)), list(range(0, 900, 3))
    for turn in range(6_000):
        if plain and chance.random() < (0.7 if turn % 2000 > 1200 else 0.3):
            gone = plain.pop(chance.randrange(len(plain)))
            order.remove(gone)
        else:
            key = chance.randrange(300)
            plain.append(key)
            order.add(key)
        if plain and turn % 3 == 0:
            at, key = chance.randrange(len(plain)), chance.randrange(300)
            order.move(plain[at], key)
            plain[at] = key
        if turn % 50 == 0:
            key = chance.randrange(-1, 301)
            assert order.rank(key) == sum(k <= key for k in plain)
            assert order.check() == []
            assert order.keys() == sorted(plain)
    assert len(order) == len(plain)


def test_a_block_may_stay_full_while_others_lose_their_keys() -> None:
    order = Order(range(6_400))
    for key in range(60, 6_400):
        order.remove(key)
    assert (order.keys(), order.check()) == (list(range(60)), [])


def test_positions_that_do_not_fit_one_number_are_sorted_too() -> None:
    body = ActiveCursors(BASE)
    positions = [Position(1, 5), Position(2, -1), Position(1, 2**63), Position(1, 2**63 - 1), Position(-1, -1)]
    for number, position in enumerate(positions):
        body.add_cursor(number, position, True)
    found = [body.number_at_same_position_or_before(number) for number in range(5)]
    assert found == [1 + sorted(positions).index(p) for p in positions]
    assert body.slowest_position() == Position(-1, -1)
    assert body.check() == []


# ---- exhaustive


@pytest.mark.parametrize("profile", ["repaired-heap", "slowest-only"])
def test_the_repaired_heap_has_no_violation_in_a_scope(profile: str) -> None:
    found = explore(find_space(SUBJECT, "lazy", profile))
    assert found.violations == []
    assert found.distinct_states == {"repaired-heap": 333, "slowest-only": 81}[profile]


@pytest.mark.nightly
def test_the_repaired_list_has_no_violation_in_a_scope() -> None:
    found = explore(find_space(SUBJECT, "lazy", "repaired-list"))
    assert (found.distinct_states, found.violations) == (67_233, [])
