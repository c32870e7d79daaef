"""Range caches: a stateful test, and examples, some with the numbers of PIP-430."""

from __future__ import annotations

import pytest

from fuzz.run.stateful import stateful_test
from fuzz.subject import find_subject
from impl.range_cache import RangeCaches
from model import range_cache as m
from model import watermark
from model.machine import Refused
from model.positions import FIRST_POSITION, Position
from model.range_cache import Config, Entry, Removed, State
from tests.conftest import stepped

TestRangeCache = stateful_test(find_subject("range_cache"))

TTL = 1000
BASE = Config(caches=2, ttl_ns=TTL, max_requeue_times=5)
A, B, C = Position(1, 0), Position(1, 1), Position(2, 0)


def after(cfg: Config, *steps: tuple[object, ...], start: State | None = None) -> tuple[State, object]:
    """Returns the state after some actions, and the last outcome. Under the reference, the implementation must agree."""
    s, outcomes = stepped(m.range_cache, cfg, steps, start, RangeCaches)
    return s, outcomes[-1]


def live(s: State) -> list[Entry]:
    return [e for e in s.queue if e is not None]


# ---- putting and looking up


def test_duplicate_put_changes_only_the_handler() -> None:
    s, outcome = after(BASE, ("put", 0, A, 10, 2), ("put", 0, B, 5, 2), ("advance", 7), ("put", 0, A, 99, 3))
    assert outcome is False
    assert [(e.position, e.bytes, e.timestamp_ns, e.expected_reads) for e in live(s)] == [(A, 10, 0, 3), (B, 5, 0, 2)]


def test_duplicate_put_keeps_the_handler_before_2026_09() -> None:
    s, _ = after(BASE._replace(duplicate_put="keep"), ("put", 0, A, 10, 2), ("put", 0, A, 10, 3))
    assert live(s)[0].expected_reads == 2


def test_duplicate_put_can_remove_the_handler() -> None:
    s, _ = after(BASE, ("put", 0, A, 10, 2), ("put", 0, A, 10, 0))
    assert live(s)[0].expected_reads is None


def test_held_entry_keeps_its_handler_after_duplicate_put() -> None:
    s, outcome = after(BASE, ("put", 0, A, 10, 2), ("get", 0, A, True), ("put", 0, A, 10, 5), ("release", 1, True))
    assert outcome == m.Count(1)
    assert live(s)[0].expected_reads == 5


@pytest.mark.parametrize("expected_reads", [0, -1])
def test_no_handler_is_created_for_zero_or_negative_expected_reads(expected_reads: int) -> None:
    s, _ = after(BASE, ("put", 0, A, 10, expected_reads), ("get", 0, A, True), ("replay", 1))
    assert live(s)[0].expected_reads is None


def test_put_with_mismatched_position_is_rejected() -> None:
    s, outcome = after(BASE, ("put_mismatched", 0, A, B, 10, 1))
    assert isinstance(outcome, Refused)
    assert s == m.start(BASE)


def test_get_sets_accessed_and_exists_does_not() -> None:
    s, _ = after(BASE, ("put", 0, A, 10, 0), ("put", 0, B, 10, 0), ("exists", 0, A), ("get", 0, B, False))
    assert [e.accessed for e in live(s)] == [False, True]


def test_get_range_crosses_ledgers_skips_gaps_and_is_inclusive() -> None:
    _, hits = after(BASE, ("put", 0, C, 1, 0), ("put", 0, A, 1, 0), ("get_range", 0, A, C, False))
    assert isinstance(hits, tuple)
    assert [h.position for h in hits] == [A, C]


def test_reinserted_entry_has_a_new_slot_at_the_tail() -> None:
    s, _ = after(
        BASE,
        ("put", 0, A, 10, 0),
        ("put", 0, B, 10, 0),
        ("remove_range", 0, A, A, True),
        ("advance", 5),
        ("put", 0, A, 10, 0),
    )
    assert [e and (e.position, e.timestamp_ns) for e in s.queue] == [None, (B, 0), (A, 5)]


def test_exclusive_end_at_first_entry_of_a_ledger_excludes_the_ledger() -> None:
    _, outcome = after(BASE, ("put", 0, A, 10, 0), ("put", 0, C, 7, 0), ("remove_range", 0, FIRST_POSITION, C, False))
    assert outcome == Removed(1, 10)


def test_get_of_deallocated_value_is_a_miss_and_sets_accessed() -> None:
    s, outcome = after(BASE, ("put", 0, A, 10, 0), ("over_release", 0, A), ("get", 0, A, True))
    assert outcome is None
    assert live(s)[0].accessed


# ---- counting reads


def test_replay_and_release_of_a_postponed_delivery_cancel_out() -> None:
    """The count rises at `replay`, and falls when the copy is released. Later it falls once more, at the delivery."""
    s, outcome = after(
        BASE,
        ("put", 0, A, 10, 1),
        ("get", 0, A, True),
        ("replay", 1),
        ("release", 1, True),
        ("get", 0, A, True),
        ("release", 2, True),
    )
    assert outcome == m.Count(0)
    assert live(s)[0].expected_reads == 0


def test_negative_read_count_expects_reads_only_after_enough_replays() -> None:
    steps: list[tuple[object, ...]] = [("put", 0, A, 10, 1), *[("mark_read", 0, A)] * 3, ("get", 0, A, True)]
    s, _ = after(BASE, *steps, ("replay", 1), ("replay", 1))
    assert live(s)[0].expected_reads == 0
    assert not m.has_expected_reads(live(s)[0].expected_reads)
    s, _ = after(BASE, ("replay", 1), start=s)
    assert m.has_expected_reads(live(s)[0].expected_reads)


def test_removal_decrements_read_count_only_by_removal_marks_read() -> None:
    steps = ("put", 0, A, 10, 3), ("get", 0, A, True), ("clear", 0)
    assert after(BASE, *steps, ("release", 1, True))[1] == m.Count(2)
    assert after(BASE._replace(removal_marks_read=True), *steps, ("release", 1, True))[1] == m.Count(1)


def test_undelivered_release_decrements_read_count_only_by_rule() -> None:
    steps = ("put", 0, A, 10, 3), ("get", 0, A, True), ("release", 1, False)
    assert after(BASE, *steps)[1] == m.Count(3)
    assert after(BASE._replace(undelivered_release_marks_read=True), *steps)[1] == m.Count(2)


# ---- eviction: what follows from the rules of the two passes


def test_entry_at_the_threshold_is_not_expired() -> None:
    s, outcome = after(BASE, ("put", 0, A, 10, 0), ("advance", TTL), ("time_pass", 0))
    assert outcome == Removed(0, 0)
    assert after(BASE, ("advance", 1), ("time_pass", 1), start=s)[1] == Removed(1, 10)


def test_requeues_for_recent_access_count_towards_the_maximum() -> None:
    """With a maximum of 2, two requeues for accesses leave no requeue for expected reads."""
    cfg = BASE._replace(max_requeue_times=2, extend_ttl_of_recently_accessed=True)
    s, _ = after(cfg, ("put", 0, A, 10, 9))
    for _ in range(2):
        s, _ = after(cfg, ("get", 0, A, False), ("advance", TTL + 1), start=s)
        s, outcome = after(cfg, ("time_pass", s.now_ns - TTL), start=s)
        assert outcome == Removed(0, 0)
    s, _ = after(cfg, ("advance", TTL + 1), start=s)
    assert after(cfg, ("time_pass", s.now_ns - TTL), start=s)[1] == Removed(1, 10)


def test_requeue_for_recent_access_is_not_limited_by_the_maximum() -> None:
    cfg = BASE._replace(max_requeue_times=0, extend_ttl_of_recently_accessed=True)
    s, _ = after(cfg, ("put", 0, A, 10, 0))
    for _ in range(50):
        s, _ = after(cfg, ("get", 0, A, False), ("advance", TTL + 1), start=s)
        s, _ = after(cfg, ("time_pass", s.now_ns - TTL), start=s)
    assert live(s)[0].requeue_count == 50


def test_size_pass_requeues_an_entry_up_to_the_maximum() -> None:
    s, outcome = after(BASE, ("put", 0, A, 10, 1), ("put", 0, B, 10, 1), ("advance", 3), ("size_pass", 1))
    assert outcome == Removed(1, 10)
    assert [(e.position, e.requeue_count, e.timestamp_ns) for e in live(s)] == [(B, 5, 3)]
    s, _ = after(BASE, ("advance", TTL + 1), start=s)
    assert after(BASE, ("time_pass", s.now_ns - TTL), start=s)[1] == Removed(1, 10), "reads remain, requeues do not"


def test_a_time_pass_requeues_an_entry_once() -> None:
    s, _ = after(BASE, ("put", 0, A, 10, 1), ("advance", TTL + 1), ("time_pass", 1))
    assert live(s)[0].requeue_count == 1


@pytest.mark.parametrize(
    ("extend", "maximum", "entries"),
    [
        (False, 5, [(1, 0, False), (0, 0, False), (3, 2, False)]),
        (True, 2, [(0, 0, True), (1, 0, True), (1, 2, True), (2, 5, False)]),
        (True, 0, [(1, 0, True), (1, 0, False)]),
    ],
)
def test_visits_of_a_size_pass_that_drains_the_queue(
    extend: bool, maximum: int, entries: list[tuple[int, int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A detached slot is visited once, and an entry once more than it is requeued.

    The requeues for recent access (at most one) and for expected reads (up to the maximum) count together: their number
    is the larger of the two.
    """
    cfg = BASE._replace(max_requeue_times=maximum, extend_ttl_of_recently_accessed=extend)
    queue: list[Entry | None] = [None]
    for i, (expected, requeues, accessed) in enumerate(entries):
        queue.append(Entry(0, Position(1, i), 10, expected or None, (), 0, requeues, accessed, False))
    s = m.start(cfg)._replace(queue=tuple(queue), sizes=(10 * len(entries), 0))
    visits = 0

    def counting(*arguments: object) -> object:
        nonlocal visits
        visits += 1
        return m.size_pass_predicate(*arguments)  # type: ignore[arg-type]

    m.evict_entries(cfg, s, counting, 10 * len(entries))  # type: ignore[arg-type]
    wanted = 1 + sum(1 + max(int(extend and a), max(0, maximum - r) if n else 0) for n, r, a in entries)
    assert visits == wanted


def test_pass_drops_wrappers_of_removed_entries_only_before_its_stop() -> None:
    s, outcome = after(
        BASE,
        ("put", 0, A, 1, 0),
        ("put", 0, B, 1, 0),
        ("put", 0, C, 1, 0),
        ("remove_range", 0, A, A, True),
        ("remove_range", 0, C, C, True),
        ("time_pass", 0),
    )
    assert outcome == Removed(0, 0)
    assert [e and e.position for e in s.queue] == [B, None]


def test_requeue_frees_no_bytes() -> None:
    s, outcome = after(BASE, ("put", 0, A, 10, 1), ("put", 0, B, 3, 0), ("size_pass", 3))
    assert outcome == Removed(1, 3)
    assert s.sizes == (10, 0)


def test_size_pass_removes_entries_with_expected_reads_last() -> None:
    s, _ = after(BASE, ("put", 0, A, 10, 1), ("put", 1, B, 10, 0), ("put", 0, C, 10, 1))
    assert after(BASE, ("size_pass", 10), start=s)[0].sizes == (20, 0)
    assert after(BASE, ("size_pass", 30), start=s)[1] == Removed(3, 30)


@pytest.mark.parametrize("bytes_to_free", [0, -3])
def test_size_pass_rejects_nonpositive_bytes_to_free(bytes_to_free: int) -> None:
    assert isinstance(after(BASE, ("size_pass", bytes_to_free))[1], Refused)


def lifetime(cfg: Config, expected_reads: int, period: int = 10, *, access_once: bool = False) -> int:
    """Returns the age at which the periodic time pass removes an entry."""
    s, _ = after(cfg, ("put", 0, A, 10, expected_reads))
    if access_once:
        s, _ = after(cfg, ("get", 0, A, False), start=s)
    while live(s):
        s, _ = after(cfg, ("advance", period), start=s)
        s, _ = after(cfg, ("time_pass", s.now_ns - cfg.ttl_ns), start=s)
    return s.now_ns


def test_entry_lifetime_by_reason_for_requeue() -> None:
    plain = lifetime(BASE, 0)
    assert TTL < plain <= TTL + 10
    reads = lifetime(BASE, 9)
    assert 6 * TTL < reads <= 6 * (TTL + 10)
    once = lifetime(BASE._replace(extend_ttl_of_recently_accessed=True), 0, access_once=True)
    assert 2 * TTL < once <= 2 * (TTL + 10)
    never = lifetime(BASE._replace(extend_ttl_of_recently_accessed=True), 0)
    assert TTL < never <= TTL + 10, "only an entry that was accessed stays for at least two times to live"


# ---- the size check


@pytest.mark.parametrize(
    ("total", "maximum", "mark", "starts", "wanted"),
    [
        (98, 100, 0.9, False, 8),
        (99, 100, 0.9, True, 9),
        (100, 100, 0.5, True, 50),
        (7, 7, 0.9, True, 1),
        (100, 100, 1.0, True, 0),
    ],
)
def test_watermark_arithmetic(total: int, maximum: int, mark: float, starts: bool, wanted: int) -> None:
    assert watermark.is_over_threshold(total, maximum) is starts
    assert watermark.bytes_to_evict(total, maximum, mark) == wanted


def test_evict_to_watermark_evicts_down_to_the_watermark() -> None:
    cfg = BASE._replace(max_bytes=100, watermark=0.5)
    steps = [("put", 0, Position(1, i), 11, 1) for i in range(9)]
    s, outcome = after(cfg, *steps, ("evict_to_watermark",))
    assert outcome == Removed(5, 55)
    assert sum(s.sizes) == 44


# ---- designs


def test_stashed_entry_survives_size_pass_but_not_time_pass() -> None:
    cfg = m.range_cache.profiles["stash"].config._replace(ttl_ns=TTL)
    s, outcome = after(cfg, ("put", 0, A, 10, 1), ("put", 0, B, 10, 0), ("size_pass", 20))
    assert outcome == Removed(1, 10), "the goal is missed"
    assert [e.position for e in s.stash] == [A]
    assert after(cfg, ("advance", TTL + 1), ("time_pass", 1), start=s)[1] == Removed(1, 10)


def test_deallocated_value_frees_nothing_where_its_bytes_stay_counted() -> None:
    cfg = BASE._replace(released_value_stays_counted=True)
    s, outcome = after(cfg, *[("put", 0, p, 10, 0) for p in (A, B, C)], ("over_release", 0, A), ("size_pass", 10))
    assert outcome == Removed(1, 10)
    assert ([e.position for e in live(s)], s.sizes) == ([C], (20, 0))


def test_profile_fifo_evicts_in_insertion_order() -> None:
    cfg = m.range_cache.profiles["fifo"].config
    s, _ = after(cfg, ("put", 0, A, 10, 5), ("put", 0, B, 10, 0), ("get", 0, A, False), ("size_pass", 1))
    assert [(e.position, e.expected_reads) for e in live(s)] == [(B, None)]
    assert after(cfg, ("put", 0, A, 10, 5))[0].queue[0] == Entry(0, A, 10, None, (), 0, 0, False, False)


def test_separate_counters_requeue_for_access_without_counting() -> None:
    cfg = m.range_cache.profiles["separate-counters"].config._replace(max_requeue_times=1)
    s, _ = after(cfg, ("put", 0, A, 10, 9), ("get", 0, A, False), ("advance", TTL + 1), ("time_pass", 1))
    assert live(s)[0].requeue_count == 0
    s, _ = after(cfg, ("advance", TTL + 1), start=s)
    assert after(cfg, ("time_pass", s.now_ns - TTL), start=s)[1] == Removed(0, 0)


def test_size_pass_removes_expired_entry_in_the_text_of_pip_430() -> None:
    cfg = m.range_cache.profiles["pip-430"].config._replace(ttl_ns=TTL)
    s, _ = after(cfg, ("put", 0, A, 10, 9), ("put", 0, B, 10, 0), ("advance", TTL + 1), ("size_pass", 1))
    assert [e.position for e in live(s)] == [B]
