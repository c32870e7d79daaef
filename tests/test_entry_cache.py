"""The entry cache: a stateful test, and examples of evictions, reads, joined reads and permits."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz.run.call import Call
from fuzz.run.replay import replay
from fuzz.run.stateful import stateful_test
from fuzz.subject import find_subject
from fuzz.target import Target
from impl.entry_cache.manager import EntryCaches
from impl.entry_cache.metrics import scrape
from invariants.properties import Event
from model.cache_metrics import pinned_bytes
from model.entry_cache import machine as m
from model.entry_cache.state import ABSENT, DISABLED, Config, Counters, Reading, Released, State, Stored, start
from model.machine import Refused
from model.positions import Position
from model.range_cache import Entry, Removed
from tests.conftest import stepped

TestEntryCache = stateful_test(find_subject("entry_cache"))

TEN = Stored(0, 1, (10,) * 10)
BASE = Config(caches=2, stored=(TEN, Stored(1, 1, (10,) * 10)), max_bytes=100, watermark=0.5, ttl_ns=1000)
AT_ONCE = BASE._replace(storage_reads="immediate", eviction_task="immediate")
AS_SHIPPED = m.recorded.config._replace(**{n: getattr(BASE, n) for n in ("stored", "max_bytes", "watermark", "ttl_ns")})


def after(cfg: Config, *steps: tuple[Any, ...], on: State | None = None) -> tuple[State, Any]:
    """Returns the state after some actions, and the last outcome. Under the reference, the implementation must agree."""
    s, outcomes = stepped(m.entry_cache, cfg, steps, on, EntryCaches)
    return s, outcomes[-1]


def put(*entries: int, expected_reads: int = 1) -> list[tuple[Any, ...]]:
    """Returns inserts of these entries, of ten bytes each."""
    return [("insert", 0, Position(1, entry), 10, expected_reads) for entry in entries]


def live(s: State) -> list[Entry]:
    return [e for e in s.ranges.queue if e is not None]


def test_of_two_rows_for_one_ledger_in_storage_the_last_one_counts() -> None:
    cfg = BASE._replace(stored=(TEN, Stored(0, 1, (7,))))
    target = Target(find_subject("entry_cache"), m.entry_cache.profiles["reference"]).with_config(cfg)
    asked = [Call("read_one", (0, Position(1, 0))), Call("read", (0, 1, 0, 1, 1))]
    assert replay(target, [*asked, Call("complete_storage_read", (1, True))]) is None
    assert isinstance(after(cfg, ("read_one", 0, Position(1, 0)), ("read", 0, 1, 0, 1, 1))[1], Refused)


def executed(cfg: Config, before: State, step: tuple[Any, ...]) -> tuple[Event, State]:
    """Returns the event of a step, and the state after it."""
    s, outcome = after(cfg, step, on=before)
    names = [p.name for p in m.entry_cache.actions[step[0]].params]
    return Event(step[0], dict(zip(names, step[1:], strict=True)), outcome), s


def violated(cfg: Config, before: State, step: tuple[Any, ...], **changed: Any) -> list[str]:
    """Returns the safety properties that a step violates if it also changes these fields of the state."""
    event, right = executed(cfg, before, step)
    safety = [p for p in find_subject("entry_cache").properties if p.kind == "always" and p.of_step and p.given(cfg)]
    checked = [p for p in safety if not p.on or event.name in p.on]
    assert [p.name for p in checked if not p.holds(cfg, before, event, right)] == []
    return [p.name for p in checked if not p.holds(cfg, before, event, right._replace(**changed))]


@pytest.mark.parametrize(
    ("earlier", "single"),
    [((), Position(1, 7)), ((("read", 0, 1, 4, 5, 3), ("release", 1), ("release", 2)), Position(1, 3))],
)
def test_failed_single_read_starts_a_queued_read(earlier: tuple[Any, ...], single: Position) -> None:
    """Its permits go to a queued request, which caches entries 4 and 5 or, if an earlier read did, counts two hits."""
    cfg = AT_ONCE._replace(max_reads_in_flight_bytes=300, permits_timeout_ns=10)
    queued = ("read", 0, 1, 0, 1, 0), ("read", 0, 1, 2, 2, 0), ("read", 0, 1, 0, 3, 0), ("advance", 5)
    last = 5 if earlier else 3  # the copy of entry 2, whose permits are not enough for a queued read
    due = ("read", 0, 1, 4, 5, 1), ("release", last), ("advance", 6), ("fail_next_storage_reads", 1)
    s, _ = after(cfg, *earlier, *queued, *due)
    now, read = after(cfg, ("read_one", 0, single), on=s)
    assert [(each.request, each.ok) for each in read.answered[-3:]] == [
        (s.next_request, False),
        (s.next_request - 2, False),
        (s.next_request - 1, True),
    ]
    assert len(live(now)) == 2
    assert now.counters.hit_entries == (2 if earlier else 0)
    assert violated(cfg, s, ("read_one", 0, single)) == []


def reached(cfg: Config, before: State, step: tuple[Any, ...], goal: str) -> bool:
    """Returns whether a step reaches a coverage goal."""
    [p] = [p for p in find_subject("entry_cache").properties if p.name == goal]
    return bool(p.holds(cfg, before, *executed(cfg, before, step)))


def issued(outcome: Any) -> list[tuple[int, int]]:
    assert isinstance(outcome, Reading)
    return [(i.first, i.last) for i in outcome.issued]


def got(outcome: Any) -> list[tuple[int, bool, list[int]]]:
    """Returns the answered requests: the number, whether the read succeeded, and the entry ids."""
    assert isinstance(outcome, Reading | Released)
    return [(a.request, a.ok, [e.position.entry for e in a.entries]) for a in outcome.answered]


# ---- adding and evicting


def test_the_trigger_is_98_percent_and_the_target_the_watermark() -> None:
    s, _ = after(AT_ONCE, *put(*range(9)))
    assert s.total_bytes == 90
    s, _ = after(AT_ONCE, *put(9), on=s)
    assert (s.total_bytes, s.counters.size_evictions, s.counters.evicted_entries) == (50, 1, 5)


def test_entries_are_accepted_while_a_task_waits_and_only_one_is_begun() -> None:
    s, _ = after(BASE, *put(*range(10)))
    assert (s.eviction_in_progress, s.tasks, s.total_bytes) == (True, 1, 100)
    s, outcome = after(BASE, ("insert", 1, Position(1, 0), 30, 0), on=s)
    assert outcome is True
    assert (s.tasks, s.total_bytes) == (1, 130)
    s, evicted = after(BASE, ("run_eviction_task",), on=s)
    assert (evicted, s.eviction_in_progress, s.tasks, s.total_bytes) == (6, False, 0, 50), (
        "the entry that expects no reads is evicted first"
    )


def test_a_task_checks_the_trigger_again() -> None:
    s, evicted = after(BASE, *put(*range(10)), ("clear_cache", 0), *put(0), ("run_eviction_task",))
    assert (evicted, s.total_bytes, s.eviction_in_progress) == (0, 10, False)


def test_the_periodic_eviction_does_not_clear_eviction_in_progress() -> None:
    steps = *put(*range(10)), ("do_cache_eviction",), *put(*range(10))
    assert after(BASE, *steps)[0].tasks == 1
    shipped, _ = after(AS_SHIPPED, *steps)
    assert shipped.tasks == 2, "the shipped version clears it, so a second task is scheduled"


def test_a_watermark_above_the_trigger_evicts_entry_by_entry() -> None:
    cfg = AT_ONCE._replace(watermark=1.0)
    s, _ = after(cfg, *put(*range(10)))
    assert s.total_bytes == 100
    s, _ = after(cfg, ("insert", 1, Position(1, 0), 10, 0), on=s)
    assert (s.total_bytes, s.counters.evicted_entries) == (100, 1)


def test_expiry_is_strict() -> None:
    s, evicted = after(BASE, *put(0, expected_reads=0), ("advance", 1000), ("do_cache_eviction",))
    assert evicted == 0
    assert after(BASE, ("advance", 1), ("do_cache_eviction",), on=s)[1] == 1


def test_size_pass_removes_expired_entry_in_the_text_of_pip_430() -> None:
    steps = *put(0, expected_reads=9), ("advance", 1001), *put(*range(1, 10), expected_reads=0), ("run_eviction_task",)
    rules = {name: m.entry_cache.profiles[name].config.size_pass_requeues_expired for name in ("reference", "pip-430")}
    kept = {
        name: [e.position.entry for e in live(after(BASE._replace(size_pass_requeues_expired=rule), *steps)[0])]
        for name, rule in rules.items()
    }
    assert kept == {"reference": [6, 7, 8, 9, 0], "pip-430": [5, 6, 7, 8, 9]}


def test_a_new_maximum_evicts_nothing_by_itself() -> None:
    s, _ = after(BASE, *put(0, 1, 2), ("set_max_cache_bytes", 10), ("set_eviction_watermark", 0.0))
    assert (s.total_bytes, s.tasks) == (30, 0)
    assert after(BASE, ("do_cache_eviction",), on=s)[0].total_bytes == 0


def test_setting_that_schedules_an_eviction_violates_a_property() -> None:
    """A lower maximum schedules nothing, although the total size is above the new trigger."""
    s, _ = after(BASE, *put(0, 1, 2))
    wrong = violated(BASE, s, ("set_max_cache_bytes", 10), tasks=1, eviction_in_progress=True)
    assert "eviction_is_scheduled_exactly_above_trigger" in wrong


def test_insert_that_evicts_below_the_trigger_violates_a_property() -> None:
    s, _ = after(AT_ONCE, *put(0))
    wrong = violated(AT_ONCE, s, put(1)[0], ranges=s.ranges)
    assert "absent_entry_is_cached_present_entry_is_kept" in wrong


def test_requeue_that_keeps_the_timestamp_violates_a_property() -> None:
    """A requeued entry moves to the tail with a new timestamp; `requeueCount` alone must not change."""
    s, _ = after(BASE, *put(0), ("advance", 1001))
    kept = live(s)[0]._replace(requeue_count=1)
    wrong = violated(BASE, s, ("do_cache_eviction",), ranges=s.ranges._replace(queue=(kept,)))
    assert "eviction_reports_entries_that_left" in wrong


def test_an_entry_that_comes_again_has_the_latest_counter() -> None:
    s, outcome = after(BASE, *put(0, expected_reads=3), *put(0, expected_reads=2))
    assert outcome is False
    assert [e.expected_reads for e in live(s)] == [2]
    assert [e.expected_reads for e in live(after(AS_SHIPPED, *put(0, expected_reads=3), *put(0))[0])] == [3]


def test_invalidation_ends_before_the_position() -> None:
    s, _ = after(BASE, *put(0, 1, 2), ("invalidate_entries_before", 0, Position(1, 2)))
    assert [e.position.entry for e in live(s)] == [2]
    assert s.ranges.queue[:2] == (None, None)


# ---- reading


def test_all_cached_is_answered_at_once() -> None:
    s, outcome = after(BASE, *put(0, 1), ("read", 0, 1, 0, 1, 5))
    assert got(outcome) == [(1, True, [0, 1])]
    assert all(e.accessed and e.expected_reads == 1 for e in live(s))
    assert after(BASE, ("release", 2), on=s)[1] == Released(0, (), ())


def test_entries_from_storage_are_cached_only_if_reads_are_expected() -> None:
    for expected, bytes_cached in ((0, 0), (2, 30)):
        s, _ = after(BASE, ("read", 0, 1, 0, 2, expected), ("complete_storage_read", 1, True))
        assert s.total_bytes == bytes_cached
    _, outcome = after(BASE, ("read_one", 0, Position(1, 4)), ("complete_storage_read", 1, True))
    assert got(outcome) == [(1, True, [4])]


def test_gaps_are_read_one_by_one() -> None:
    s, outcome = after(BASE, *put(1, 3), ("read", 0, 1, 0, 4, 1))
    assert issued(outcome) == [(0, 0), (2, 2), (4, 4)]
    for number in (2, 1):
        s, outcome = after(BASE, ("complete_storage_read", number, True), on=s)
        assert got(outcome) == []
    assert got(after(BASE, ("complete_storage_read", 3, True), on=s)[1]) == [(1, True, [0, 1, 2, 3, 4])]


def test_a_partial_hit_whose_gap_fails_is_read_again_in_one_piece() -> None:
    """As recorded (partial_hit_storage_fails), the shipped version lowers the counts of entries 1 and 3 from 3 to 2."""
    steps = *put(1, 3, expected_reads=3), ("fail_next_storage_reads", 1), ("read", 0, 1, 0, 4, 1)
    s, outcome = after(AT_ONCE._replace(max_bytes=1000), *steps)
    assert issued(outcome) == [(0, 0), (2, 2), (4, 4), (0, 4)]
    assert {d.expected_reads for a in outcome.answered for d in a.entries} == {1}, "nothing was delivered twice"
    shipped = AS_SHIPPED._replace(storage_reads="immediate", max_bytes=1000)
    s, outcome = after(shipped, *steps)
    assert [d.expected_reads for a in outcome.answered for d in a.entries] == [1, 0, 0, 0, 0]
    assert {e.position.entry: e.expected_reads for e in live(s)} == {0: 1, 1: 2, 2: 0, 3: 2, 4: 0}


def test_without_a_cached_entry_there_is_no_second_attempt() -> None:
    s, outcome = after(BASE, ("read", 0, 1, 0, 4, 1), ("complete_storage_read", 1, False))
    assert got(outcome) == [(1, False, [])]
    assert (s.requests, s.reads, s.ranges.orphaned_copies) == ((), (), ())


def test_short_answer_completes_a_read_but_not_a_gap() -> None:
    _, outcome = after(BASE, ("read", 0, 1, 0, 4, 1), ("answer_oddly", 1, 2, "short"))
    assert got(outcome) == [(1, True, [0, 1])]
    s, outcome = after(BASE, *put(0), ("read", 0, 1, 0, 4, 1), ("answer_oddly", 1, 2, "short"))
    assert got(outcome) == []
    assert issued(outcome) == [(0, 4)]
    assert sorted(e.position.entry for e in live(s)) == [0, 1, 2], "the entries that storage returned are cached"


def test_partial_hit_with_short_answer_hung_in_older_versions() -> None:
    cfg = BASE._replace(short_answer="never_answered")
    s, outcome = after(cfg, *put(0), ("read", 0, 1, 0, 4, 1), ("answer_oddly", 1, 2, "short"))
    assert (got(outcome), issued(outcome)) == ([], [])
    assert len(s.requests) == 1
    assert s.reads == ()


@pytest.mark.parametrize("oddity", ["twice", "beyond", "other_ledger", "wraps"])
def test_unrequested_entries_are_dropped(oddity: str) -> None:
    s, outcome = after(BASE, ("read", 0, 1, 2, 5, 1), ("answer_oddly", 1, 2, oddity))
    assert got(outcome) == [(1, True, [2, 3])]
    assert [e.position for e in live(s)] == [Position(1, 2), Position(1, 3)]


def test_partial_hit_with_short_answer_fails_in_later_versions() -> None:
    cfg = BASE._replace(short_answer="fails")
    s, outcome = after(cfg, *put(0), ("read", 0, 1, 0, 4, 1), ("answer_oddly", 1, 2, "short"))
    assert (got(outcome), issued(outcome)) == ([(1, False, [])], [])
    assert (s.requests, s.reads) == ((), ())
    _, outcome = after(cfg, *put(0), ("read", 0, 1, 0, 4, 1), ("complete_storage_read", 1, False))
    assert issued(outcome) == [(0, 4)], "a gap that fails is read again"


@pytest.mark.parametrize(
    ("oddity", "cached"),
    [
        ("twice", []),
        ("beyond", [Position(1, 6)]),
        ("other_ledger", [Position(2, 4)]),
        ("wraps", [Position(1, 4 + 2**32)]),
    ],
)
def test_shipped_cache_takes_whatever_storage_returns(oddity: str, cached: list[Position]) -> None:
    cfg = BASE._replace(caches_unexpected_entries=True)
    for expected_reads in (1, 0):
        s, outcome = after(cfg, ("read", 0, 1, 2, 5, expected_reads), ("answer_oddly", 1, 2, oddity))
        assert got(outcome) == [(1, True, [2, 3])]
        assert [e.position for e in live(s)] == ([Position(1, 2), Position(1, 3), *cached] if expected_reads else [])
        assert s.total_bytes == sum(e.bytes for e in live(s))
        assert [e.bytes for e in live(s)][2:] == [10 if oddity == "beyond" else 1 for _ in live(s)[2:]]


@pytest.mark.parametrize(("version", "count"), [("pulsar-4.1", 1), ("pulsar-5.0", 2)])
def test_duplicate_entry_of_an_answer_replaces_the_handler_in_5_0(version: str, count: int) -> None:
    """Then the release of the delivered copy does not lower the count of the cached entry."""
    cfg = AS_SHIPPED._replace(duplicate_put=m.entry_cache.profiles[version].config.duplicate_put)
    s, _ = after(cfg, ("read", 0, 1, 0, 1, 2), ("answer_oddly", 1, 1, "twice"), ("release", 1))
    assert [e.expected_reads for e in live(s)] == [count]


def test_metrics_of_a_statistics_period() -> None:
    """Two insertions, one of them evicted; then a hit of 10 bytes within two seconds."""
    before = Counters(insertions=2, evicted_entries=1)
    found = scrape(before, before._replace(hit_entries=1, hit_bytes=10, size_evictions=1), 10, 2.0)
    assert found == {
        "pulsar_ml_cache_inserted_entries_total": 2,
        "pulsar_ml_cache_evicted_entries_total": 1,
        "pulsar_ml_cache_entries": 1,
        "pulsar_ml_cache_used_size": 10,
        "pulsar_ml_cache_hits_rate": 0.5,
        "pulsar_ml_cache_hits_throughput": 5.0,
        "pulsar_ml_cache_misses_rate": 0,
        "pulsar_ml_cache_misses_throughput": 0,
        "pulsar_ml_cache_evictions": 1,
    }


def test_used_size_understates_memory_without_copies() -> None:
    """Four of five entries of one answer are evicted: the used size is 10 bytes, and the buffer has 50."""
    answers = [[(10, False)] * 4 + [(10, True)], [(10, False)] * 5]
    assert pinned_bytes(answers) == 50
    assert pinned_bytes(answers, copies_entries=True) == 10


@pytest.mark.parametrize("arguments", [(0, 1, 3, 2, 1), (0, 1, 0, 10, 1), (0, 7, 0, 0, 1)])
def test_a_range_that_makes_no_sense_is_refused(arguments: tuple[int, ...]) -> None:
    s, outcome = after(BASE, ("read", *arguments))
    assert isinstance(outcome, Refused)
    assert s == start(BASE)


# ---- sharing


def test_outstanding_read_is_joined_and_copies_share_one_count() -> None:
    steps = ("read", 0, 1, 0, 5, 2), ("read", 0, 1, 0, 5, 1), ("read", 0, 1, 2, 3, 1)
    s, outcome = after(BASE, *steps)
    assert issued(outcome) == []
    s, outcome = after(BASE, ("complete_storage_read", 1, True), on=s)
    assert got(outcome) == [(1, True, [0, 1, 2, 3, 4, 5]), (2, True, [0, 1, 2, 3, 4, 5]), (3, True, [2, 3])]
    assert after(BASE, ("release", 3), ("release", 13), on=s)[1] == Released(0, (), ())


@pytest.mark.parametrize(
    ("outstanding", "asked", "rest"),
    [((0, 3), (2, 6), [(4, 6)]), ((4, 8), (2, 6), [(2, 3)]), ((4, 5), (2, 8), [(2, 3), (6, 8)])],
)
def test_rest_beside_an_outstanding_read_is_read(
    outstanding: tuple[int, int], asked: tuple[int, int], rest: list[tuple[int, int]]
) -> None:
    s, outcome = after(BASE, ("read", 0, 1, *outstanding, 1), ("read", 0, 1, *asked, 2))
    assert issued(outcome) == rest
    for number in range(1 + len(rest), 0, -1):
        s, outcome = after(BASE, ("complete_storage_read", number, True), on=s)
    assert (2, True, list(range(asked[0], asked[1] + 1))) in got(outcome)


def test_failed_read_fails_joined_requests_after_their_other_parts_complete() -> None:
    s, outcome = after(
        BASE,
        ("read", 0, 1, 0, 5, 1),
        ("read", 0, 1, 2, 3, 1),
        ("read", 0, 1, 4, 7, 1),
        ("complete_storage_read", 1, False),
    )
    assert got(outcome) == [(1, False, []), (2, False, [])]
    s, outcome = after(BASE, ("complete_storage_read", 2, True), on=s)
    assert got(outcome) == [(3, False, [])]
    assert [e.expected_reads for e in live(s)] == [1, 1], "read from storage, and never delivered"


@pytest.mark.parametrize("step", [("invalidate_ledger", 0, 1), ("clear_cache", 0), ("clear_all",)])
def test_reads_are_not_joined_after_an_invalidation(step: tuple[Any, ...]) -> None:
    _, outcome = after(BASE, ("read", 0, 1, 0, 2, 1), step, ("read", 0, 1, 0, 2, 1))
    assert issued(outcome) == [(0, 2)]


def test_read_that_misses_on_the_right_is_preferred() -> None:
    s, outcome = after(BASE, ("read", 0, 1, 4, 6, 1), ("read", 0, 1, 0, 1, 1), ("read", 0, 1, 1, 5, 1))
    assert issued(outcome) == [(2, 3)], "entries 4 and 5 come from the first read, which is joined, too"
    assert [len(r.waiting) for r in s.reads] == [2, 2, 1]


def test_first_joined_read_is_the_one_that_misses_on_the_right() -> None:
    """A short answer makes the request of 1 to 5 start again. It joins the outstanding read of 0 to 1.

    Its rest, 2 to 5, is a partial hit that joins the read of 5 to 7. When that read fails, the rest is read again.
    """
    around = (("read", 0, 1, 0, 1, 0), ("read", 0, 1, 5, 7, 0))
    s, outcome = after(BASE, *put(3), *around, ("read", 0, 1, 1, 5, 0))
    assert issued(outcome) == [(2, 2), (4, 4)]
    s, _ = after(BASE, *[("complete_storage_read", number, True) for number in (1, 2, 3)], *around, on=s)
    s, outcome = after(BASE, ("answer_oddly", 4, 0, "short"), on=s)
    assert issued(outcome) == [(2, 2), (4, 4)]
    s, _ = after(BASE, *[("complete_storage_read", number, True) for number in (5, 7, 8)], on=s)
    _, outcome = after(BASE, ("complete_storage_read", 6, False), on=s)
    assert (got(outcome), issued(outcome)) == ([(5, False, [])], [(2, 5)])


# ---- caches that come and go


def test_a_removed_cache_may_still_be_filled_but_is_never_found() -> None:
    s, _ = after(BASE, ("read", 0, 1, 0, 1, 1), ("remove_entry_cache", 0))
    assert s.topic_caches[0] == ABSENT
    s, outcome = after(BASE, ("complete_storage_read", 1, True), ("read", 0, 1, 0, 1, 1), on=s)
    assert issued(outcome) == [(0, 1)]
    assert (s.topic_caches[0], s.total_bytes, [e.cache for e in live(s)]) == (2, 20, [0, 0])
    s, _ = after(BASE, ("clear_all",), on=s)
    assert s.total_bytes == 20, "`clear_all` does not clear the removed cache"
    s, _ = after(BASE, ("set_max_cache_bytes", 10), ("do_cache_eviction",), on=s)
    assert s.total_bytes == 0, "an eviction does"


def test_a_cache_made_while_the_maximum_is_zero_stays_disabled() -> None:
    cfg = BASE._replace(max_bytes=0)
    s, outcome = after(cfg, ("set_max_cache_bytes", 1000), *put(0))
    assert (outcome, s.topic_caches[0]) == (False, DISABLED)
    s, _ = after(cfg, ("read", 0, 1, 0, 2, 3), ("complete_storage_read", 1, True), on=s)
    assert [g.expected_reads for g in s.ranges.orphaned_copies] == [None] * 3
    assert after(cfg, ("remove_entry_cache", 0), *put(0), on=s)[1] is True


# ---- permits

#: A read of n entries wants n * (10 + 64) bytes.
LIMITED = BASE._replace(max_reads_in_flight_bytes=200, permits_timeout_ns=100, permits_queue_size=2)


def test_a_read_waits_for_permits_and_small_ones_overtake_it() -> None:
    s, outcome = after(LIMITED, ("read", 0, 1, 0, 0, 0), ("read", 0, 1, 1, 2, 0))
    assert issued(outcome) == []
    assert [w.permits for w in s.limiter.waiting] == [148]
    assert issued(after(LIMITED, ("read", 0, 1, 3, 3, 0), on=s)[1]) == [(3, 3)]


def test_permits_come_back_with_the_last_entry() -> None:
    s, _ = after(LIMITED, ("read", 0, 1, 0, 1, 0), ("complete_storage_read", 1, True), ("read", 0, 1, 2, 3, 0))
    s, outcome = after(LIMITED, ("release", 1), on=s)
    assert outcome.issued == ()
    s, outcome = after(LIMITED, ("release", 2), on=s)
    assert [(i.first, i.last) for i in outcome.issued] == [(2, 3)]


def test_oversized_read_takes_all_permits() -> None:
    s, outcome = after(LIMITED, ("read", 0, 1, 0, 9, 0))
    assert (issued(outcome), s.limiter.free) == ([(0, 9)], 0)
    s, outcome = after(LIMITED, ("complete_storage_read", 1, False), on=s)
    assert s.limiter.free == 200


def test_read_of_exactly_the_maximum_is_not_oversized() -> None:
    cfg = LIMITED._replace(max_reads_in_flight_bytes=148)
    for last, is_oversized in ((1, False), (2, True)):
        assert reached(cfg, start(cfg), ("read", 0, 1, 0, last, 0), "oversized_read_takes_all_permits") is is_oversized


def test_queued_read_that_starts_after_a_failure_is_no_second_attempt() -> None:
    """If a gap fails, its range is read again. If another read fails, only its permits are returned."""
    goal, failure = "partial_cache_hit_is_read_again", ("complete_storage_read", 1, False)
    s, _ = after(BASE, *put(1), ("read", 0, 1, 0, 1, 1))
    assert reached(BASE, s, failure, goal)
    s, _ = after(LIMITED, ("read", 0, 1, 0, 1, 0), ("read", 0, 1, 2, 3, 0))
    assert issued(after(LIMITED, failure, on=s)[1]) == [(2, 3)]
    assert not reached(LIMITED, s, failure, goal)


def test_permit_queue_is_bounded_and_requests_time_out() -> None:
    wide = ("read", 0, 1, 0, 9, 0)
    s, outcome = after(LIMITED, wide, wide, wide, wide)
    assert got(outcome) == [(4, False, [])]
    s, outcome = after(LIMITED, ("advance", 99), ("expire_waiting_reads",), on=s)
    assert got(outcome) == []
    assert got(after(LIMITED, ("advance", 1), ("expire_waiting_reads",), on=s)[1]) == [(2, False, []), (3, False, [])]


def test_request_behind_a_timed_out_one_gets_free_permits() -> None:
    """In the shipped limiter, the timer grants nothing: the second request waits although its permits are free."""
    steps: list[tuple[Any, ...]] = [
        ("read", 0, 1, 0, 0, 0),  # 74 of 200
        ("read", 0, 1, 1, 1, 0),  # 148
        ("read", 0, 1, 2, 3, 0),  # wants 148, waits
        ("advance", 1),
        ("read", 0, 1, 4, 4, 0),  # wants 74, waits
        ("complete_storage_read", 1, True),
        ("release", 1),  # 126 are free: not enough for the first queued request
        ("advance", 99),
        ("expire_waiting_reads",),
    ]
    _, outcome = after(LIMITED, *steps)
    assert (got(outcome), issued(outcome)) == ([(3, False, [])], [(4, 4)])
    s, outcome = after(LIMITED._replace(timer_grants_next=False), *steps)
    assert issued(outcome) == []
    assert (s.limiter.free, [w.permits for w in s.limiter.waiting]) == (126, [74])


def test_a_disabled_cache_asks_for_permits_too() -> None:
    s, _ = after(LIMITED._replace(max_bytes=0), ("read", 0, 1, 0, 1, 0))
    assert s.limiter.free == 200 - 148


# ---- metrics


def test_the_metrics_count_entries() -> None:
    s, _ = after(BASE, *put(1), ("read", 0, 1, 0, 4, 1), ("complete_storage_read", 2, True))
    c = s.counters
    assert (c.hit_entries, c.hit_bytes, c.miss_entries, c.miss_bytes) == (1, 10, 3, 30)
    assert after(BASE, ("non_evictable_size",), on=s)[1] == Removed(4, 40)
