"""The container of active cursors: stateful tests, and worked examples, most with upstream's numbers."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from fuzz.explore.search import bounded, explore
from fuzz.mutation.kill_matrix import Job, run_job
from fuzz.mutation.operators import generated_of
from fuzz.mutation.seeding import reasons_of
from fuzz.run.stateful import stateful_test
from fuzz.subject import find_subject
from impl.active_cursors.container import ActiveCursors, Order
from model.active_cursors import linked_list as cursor_list
from model.active_cursors import machine as m
from model.active_cursors.machine import Config, Found, Slowest, State
from model.machine import Failed, Refused
from model.positions import Position

SUBJECT = find_subject("active_cursors")

TestActiveCursors = stateful_test(SUBJECT)
TestTheMendedList = stateful_test(SUBJECT, "mended-list", examples=30)
TestTheMendedHeap = stateful_test(SUBJECT, "mended-heap", examples=30)

RANK = "number_at_same_position_or_before"
BASE = Config()
MENDED = m.mended_list.config
SHIPPED = m.recorded_any_call.config
SHIPPED_HEAP = m.recorded_heap_any_call.config
#: containers that are the definition in another way
ALIKE = [BASE, MENDED, BASE._replace(container="heap"), BASE._replace(container="sorted_set")]


def after(cfg: Config, *steps: tuple[Any, ...], start: State | None = None) -> tuple[State, Any]:
    """The state after some actions, and the last one's outcome. A whole number stands for an entry of ledger 1."""
    s, outcome = start or m.start(cfg), None
    for name, *given in steps:
        arguments = list(given)
        if name in ("add_cursor", "update_cursor", "cursor_updated") and isinstance(given[1], int):
            arguments[1] = Position(1, given[1])
        s, outcome = m.active_cursors.step(cfg, s, name, tuple(arguments))
    return s, outcome


def added(entries: Iterable[int | None]) -> list[tuple[Any, ...]]:
    """Additions of cursors 0, 1, ... at these entries."""
    return [("add_cursor", number, entry, True) for number, entry in enumerate(entries)]


def ranks(cfg: Config, s: State) -> list[Any]:
    """The rank of each cursor."""
    return [after(cfg, (RANK, c.cursor), start=s)[1] for c in s.cursors]


# ---- rank and slowest


@pytest.mark.parametrize("cfg", ALIKE, ids=lambda cfg: cfg.container)
def test_all_at_one_position_have_the_rank_of_the_last_of_them(cfg: Config) -> None:
    """Positions 1, 2, then 996 times 3, then 4 and 5: each cursor at 3 has rank 998."""
    cfg = cfg._replace(cursors=1000)
    body = ActiveCursors(cfg)
    for number, entry in enumerate([1, 2, *[3] * 996, 4, 5]):
        body.add_cursor(number, Position(1, entry), True)
    found = [body.number_at_same_position_or_before(number) for number in range(1000)]
    assert found == [1, 2, *[998] * 996, 999, 1000]


@pytest.mark.parametrize("cfg", ALIKE, ids=lambda cfg: cfg.container)
def test_a_cursor_between_two_others_before_all_and_behind_all(cfg: Config) -> None:
    s, _ = after(cfg, *added([2, 4, 6, 8]))
    for entry, own, others in [(5, 3, [1, 2, 4]), (1, 1, [2, 3, 4]), (9, 4, [1, 2, 3]), (4, 3, [1, 3, 4])]:
        moved, _ = after(cfg, ("update_cursor", 2, entry), start=s)
        found = ranks(cfg, moved)
        assert (found[2], found[:2] + found[3:]) == (own, others)


@pytest.mark.parametrize("cfg", ALIKE, ids=lambda cfg: cfg.container)
def test_an_untracked_cursor_has_rank_zero_and_counts_for_the_size_only(cfg: Config) -> None:
    s, size = after(cfg, *added([3, None, 1]), ("size",))
    assert (size, ranks(cfg, s)) == (3, [2, 0, 1])
    assert after(cfg, (RANK, 7), start=s)[1] == 0
    s, slowest = after(cfg, ("update_cursor", 1, 0), ("slowest_position",), start=s)
    assert (slowest, ranks(cfg, s)) == (Position(1, 0), [3, 1, 2])


def test_a_ledger_comes_before_the_entries_in_it() -> None:
    cursors = [("add_cursor", 0, Position(2, -1), True), ("add_cursor", 1, Position(1, 900), True)]
    s, slowest = after(BASE, *cursors, ("slowest_position",))
    assert (slowest, ranks(BASE, s)) == (Position(1, 900), [2, 1])


def test_a_name_gives_the_object_that_was_added_last() -> None:
    s, found = after(BASE, *added([1]), ("add_cursor", 0, 5, False), ("get_cursor", 0))
    assert found == Found(0, 2)
    assert after(BASE, ("remove_cursor", 0), ("get_cursor", 0), start=s)[1] is None


def test_an_update_tells_the_slowest_before_and_after() -> None:
    s, told = after(BASE, *added([1, 4]), ("cursor_updated", 0, 9))
    assert told == Slowest(Position(1, 1), Position(1, 4))
    assert after(BASE, ("cursor_updated", 5, 0), start=s) == (s, None)
    assert isinstance(after(SHIPPED, *added([1]), ("cursor_updated", 0, 9))[1], Refused)


# ---- the grace period


def test_new_entries_are_cached_for_less_than_the_grace_period() -> None:
    cfg = BASE._replace(grace_ms=10)
    ask = ("should_cache_added_entries",)
    assert after(cfg, ("advance", 9), ask)[1] is True, "a container that was just made waits, too"
    assert after(cfg, ("advance", 10), ask)[1] is False
    s, _ = after(cfg, *added([None]), ("advance", 50), ("remove_cursor", 0))
    assert [after(cfg, ("advance", t), ask, start=s)[1] for t in (0, 9, 10, 11)] == [True, True, False, False]
    assert after(cfg, ("advance", 9), ("remove_cursor", 0), ("advance", 1), ask, start=s)[1] is False


@pytest.mark.parametrize("grace_ms", [0, -1])
def test_a_grace_period_of_nothing_is_none(grace_ms: int) -> None:
    assert after(BASE._replace(grace_ms=grace_ms), ("should_cache_added_entries",))[1] is False


# ---- the shipped list


@pytest.mark.parametrize(
    ("entries", "last_to", "asked", "shipped", "right"),
    [((1, 2, 5, 5), 6, 2, 4, 3), ((1, 2, 4, 6), 4, 2, 3, 4)],
    ids=["leaves", "joins"],
)
def test_the_lists_last_cursor_leaves_or_joins_a_group(
    entries: tuple[int, ...], last_to: int, asked: int, shipped: int, right: int
) -> None:
    steps = [*added(entries), ("slowest_position",), ("update_cursor", 3, last_to), (RANK, asked)]
    assert after(SHIPPED, *steps)[1] == shipped
    assert after(MENDED, *steps)[1] == after(BASE, *steps)[1] == right


def test_the_list_that_is_built_anew_is_right() -> None:
    """Without the question in between, all four nodes are queued, and the list is built anew."""
    assert after(SHIPPED, *added((1, 2, 5, 5)), ("update_cursor", 3, 6), (RANK, 2))[1] == 3


@pytest.mark.parametrize("cfg", [SHIPPED, m.later.config], ids=["2026-07", "2026-09"])
def test_the_list_forgets_who_is_untracked_and_added_again(cfg: Config) -> None:
    steps = [*added([2]), ("slowest_position",), ("update_cursor", 0, None), ("add_cursor", 0, 4, True)]
    assert after(cfg, *steps, ("slowest_position",))[1] is None
    assert after(MENDED, *steps, (RANK, 0))[1] == 1


def test_the_list_is_lost_when_one_is_untracked_that_never_was_tracked() -> None:
    steps = [*added([1, 2, 3, 4, None]), ("slowest_position",), ("update_cursor", 4, None), ("slowest_position",)]
    assert after(SHIPPED, *steps)[1] is None
    assert after(m.later.config, *steps)[1] == after(MENDED, *steps)[1] == Position(1, 1)


@pytest.mark.parametrize(
    ("cfg", "kept"), [(SHIPPED, 1000), (m.later.config, 40), (MENDED, 40)], ids=["2026-07", "2026-09", "mended"]
)
def test_removed_cursors_wait_in_the_shipped_list_for_a_question(cfg: Config, kept: int) -> None:
    """A thousand cursors come and go; a later list drops them after every 64 removals: 40 since the last time."""
    body = ActiveCursors(cfg._replace(cursors=1001))
    body.add_cursor(0, Position(1, 0), True)
    for number in range(1, 1001):
        body.add_cursor(number, Position(1, number), True)
        body.remove_cursor(number)
    assert cursor_list.garbage(nodes_of(body)) == kept
    body.slowest_position()
    assert cursor_list.garbage(nodes_of(body)) == 0


def nodes_of(body: ActiveCursors) -> cursor_list.CursorList:
    """What the list keeps in mind."""
    nodes = body.view().nodes
    assert nodes is not None
    return nodes


def test_the_list_fails_for_a_cursor_that_it_never_counted() -> None:
    steps = [*added([None]), ("update_cursor", 0, None), ("add_cursor", 0, 4, True), (RANK, 0)]
    assert isinstance(after(SHIPPED, *steps)[1], Failed)
    assert after(MENDED, *steps)[1] == 1


def test_the_brokers_own_use_adds_no_present_cursor_and_takes_no_position_away() -> None:
    cfg = m.recorded.config
    s, _ = after(cfg, *added([1]))
    for step in (("add_cursor", 0, 2, True), ("update_cursor", 0, None)):
        again, refusal = after(cfg, step, start=s)
        assert isinstance(refusal, Refused)
        assert again is s


# ---- the shipped heap


def test_the_heaps_slowest_is_too_large_after_a_removal_from_its_middle() -> None:
    steps = [*added([6, 1, 4, 6, 5, 2]), ("remove_cursor", 0), ("update_cursor", 1, 11), ("update_cursor", 5, 7)]
    assert after(SHIPPED_HEAP, *steps, ("slowest_position",))[1] == Position(1, 5)
    mended = m.mended_heap.config
    assert after(mended, *steps, ("slowest_position",))[1] == Position(1, 4)


def test_the_heap_keeps_what_was_added_again() -> None:
    steps = [*added([1]), ("add_cursor", 0, 5, True), ("remove_cursor", 0), ("slowest_position",)]
    s, slowest = after(SHIPPED_HEAP, *steps)
    assert (slowest, s.durables) == (Position(1, 1), 1)
    assert after(m.mended_heap.config, *steps)[1] is None


def test_the_heap_does_not_count_and_cannot_compare_a_missing_position() -> None:
    s, refusal = after(SHIPPED_HEAP, *added([1]), (RANK, 0))
    assert isinstance(refusal, Refused)
    assert isinstance(after(SHIPPED_HEAP, ("update_cursor", 0, None), start=s)[1], Refused)


# ---- the order that keeps the definition


def test_the_order_is_a_sorted_list_whatever_is_done_to_it() -> None:
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


def test_positions_that_do_not_fit_one_number_are_kept_in_order_too() -> None:
    body = ActiveCursors(BASE)
    places = [Position(1, 5), Position(2, -1), Position(1, 2**63), Position(1, 2**63 - 1), Position(-1, -1)]
    for number, position in enumerate(places):
        body.add_cursor(number, position, True)
    found = [body.number_at_same_position_or_before(number) for number in range(5)]
    assert found == [1 + sorted(places).index(p) for p in places]
    assert body.slowest_position() == Position(-1, -1)
    assert body.check() == []


# ---- bugs that nobody thought of


@pytest.mark.parametrize("share", [0.37, 0.45, 0.68, 0.75, 0.83, 0.96])
def test_a_sample_of_generated_mutants_is_killed(share: float) -> None:
    made = generated_of("impl.active_cursors.container")
    mutant = made[int(share * len(made))]
    killed = run_job(Job("active_cursors", None, mutant, 20.0, 0))
    assert killed.killed or killed.excuse, mutant.id


def test_every_reason_is_that_of_a_mutant_that_there_is() -> None:
    made = {m.id for m in generated_of("impl.active_cursors.container")}
    assert set(reasons_of("active_cursors", "survivors")) <= made


# ---- every state of a scope


@pytest.mark.parametrize("profile", ["mended-heap", "slowest-only"])
def test_the_heap_is_right_in_every_state_of_a_scope_when_its_rules_are_mended(profile: str) -> None:
    found = explore(bounded(SUBJECT, "lazy", profile))
    assert found.violations == []
    assert found.distinct_states == {"mended-heap": 333, "slowest-only": 81}[profile]


@pytest.mark.nightly
def test_every_state_of_a_lazy_list_is_right_when_its_rules_are_mended() -> None:
    found = explore(bounded(SUBJECT, "lazy", "mended-list"))
    assert (found.distinct_states, found.violations) == (14_985, [])


@pytest.mark.nightly
def test_the_nightly_scope() -> None:
    found = explore(bounded(SUBJECT, "nightly"), implementation=False)
    assert (found.distinct_states, found.violations) == (177_147, [])
