"""Managed ledger with dispatchers and cache: a stateful test, and worked examples of PIP-430."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz.run.checks import broken_properties, checks_for, event_of
from fuzz.run.generate import chooser, plan_trace
from fuzz.run.stateful import stateful_test
from fuzz.subject import find_subject
from impl.managed_ledger.ledger import ManagedLedger
from invariants.managed_ledger.counts import (
    count_follows_deliveries_to_come,
    count_of_entry_from_storage_equals_deliveries_to_come,
    deliveries_to_come,
)
from invariants.managed_ledger.guarantees import total_above_trigger_has_eviction_queued
from invariants.properties import Event
from model.machine import Refused
from model.managed_ledger.machine import SHIPPED, managed_ledger
from model.managed_ledger.state import Config, Dispatched, State
from model.positions import Position
from model.values import setting_of
from tests.conftest import stepped

TestManagedLedger = stateful_test(find_subject("managed_ledger"))

#: An action and its arguments.
Call = tuple[Any, ...]


def run(cfg: Config, *calls: Call, s: State | None = None) -> State:
    """Returns the state after calls that must all be accepted. Under the reference, the implementation must agree."""
    s, outcomes = stepped(managed_ledger, cfg, calls, s, ManagedLedger)
    assert [(call, each) for call, each in zip(calls, outcomes[1:], strict=True) if isinstance(each, Refused)] == []
    return s


def outcome_of(cfg: Config, s: State, name: str, *arguments: Any) -> Any:
    return managed_ledger.step(cfg, s, name, arguments)[1]


def counts(s: State) -> dict[tuple[int, int], int | None]:
    """Returns the expected read counts of the cached entries, by position."""
    return {tuple(e.position): e.expected_reads for e in s.caches.ranges.queue if e is not None}


def joining(subscription: int, permits: int = 5) -> tuple[Call, ...]:
    return ("connect", subscription, 0), ("flow", subscription, 0, permits)


def reading(subscription: int, kind: str = "normal") -> tuple[Call, ...]:
    return ("read_more_entries", subscription), ("dispatch", subscription, kind)


SHARED = Config(subscriptions=3, types=("shared",))


def test_added_entry_expects_a_read_of_each_active_cursor() -> None:
    s = run(SHARED, *joining(0), *joining(1), ("add_entry",))
    assert counts(s) == {(0, 0): 2}
    s = run(SHARED, *reading(0), ("release", 0), s=s)
    assert counts(s) == {(0, 0): 1}
    s = run(SHARED, *reading(1), ("release", 1), s=s)
    assert counts(s) == {(0, 0): 0}


def test_added_entries_are_cached_without_count_in_grace_period_only() -> None:
    s = run(SHARED, ("add_entry",), ("advance", 1999), ("add_entry",), ("advance", 1), ("add_entry",))
    assert counts(s) == {(0, 0): None, (0, 1): None}
    s = run(SHARED, *joining(0), ("disconnect", 0, 0), ("advance", 1999), ("add_entry",), s=s)
    assert counts(s) == {(0, 0): None, (0, 1): None, (0, 3): None}


def test_entry_from_storage_expects_reads_of_cursors_at_or_before_its_reader() -> None:
    """Three cursors are at 0, 1 and 2. The second one reads from storage: two reads of each entry are expected."""
    cfg = SHARED._replace(grace_ms=0)
    s = run(cfg, *[("add_entry",)] * 3, ("seek", 1, Position(0, 1)), ("seek", 2, Position(0, 2)))
    s = run(cfg, *joining(0), *joining(1), *joining(2), ("read_more_entries", 1), s=s)
    s = run(cfg, ("complete_storage_read", 1, True), s=s)
    assert counts(s) == {(0, 1): 2, (0, 2): 2}
    assert [deliveries_to_come(s)[Position(0, i)] for i in (1, 2)] == [2, 3], "the cursor between them is not counted"


def test_entry_from_storage_is_not_cached_for_cursor_that_became_inactive() -> None:
    cfg = SHARED._replace(grace_ms=0)
    s = run(cfg, ("add_entry",), *joining(0), ("read_more_entries", 0), ("disconnect", 0, 0))
    assert counts(run(cfg, ("complete_storage_read", 1, True), s=s)) == {}


def test_replay_raises_count_before_the_release_lowers_it() -> None:
    """Two consumers have a permit each, and one of them leaves during the read of two entries.

    The second entry is put back, and is still cached when it is read for replay.
    """
    s = run(SHARED, *joining(0, 1), ("connect", 0, 1), ("flow", 0, 1, 1), ("add_entry",), ("add_entry",))
    s = run(SHARED, ("read_more_entries", 0), ("disconnect", 0, 1), ("dispatch", 0, "normal"), s=s)
    assert s.subscriptions[0].replay == (Position(0, 1),)
    assert counts(s)[0, 1] == 1
    s = run(SHARED, ("flow", 0, 0, 1), *reading(0, "replay"), ("release", 0), ("release", 0), s=s)
    assert counts(s) == {(0, 0): 0, (0, 1): 0}


def test_redelivery_is_not_counted() -> None:
    s = run(SHARED, *joining(0), ("add_entry",), *reading(0), ("release", 0), ("redeliver", 0, 0))
    assert counts(s) == {(0, 0): 0}
    assert deliveries_to_come(s) == {(0, 0): 1}
    assert counts(run(SHARED, *reading(0, "replay"), ("release", 0), s=s)) == {(0, 0): -1}


def test_replay_of_entry_that_was_cached_again_is_not_counted() -> None:
    """The entry expires after it was read, and another cursor's read caches it again, with a new count.

    The copy of the first reader still has the old count.
    """
    cfg = SHARED._replace(subscriptions=2, max_requeue_times=0, grace_ms=0)
    s = run(cfg, *joining(0, 1), ("connect", 0, 1), ("add_entry",), ("read_more_entries", 0), ("advance", 1001))
    s = run(cfg, ("do_cache_eviction",), *joining(1), ("read_more_entries", 1), ("complete_storage_read", 1, True), s=s)
    s = run(cfg, ("disconnect", 0, 0), ("dispatch", 0, "normal"), s=s)
    assert s.subscriptions[0].replay == (Position(0, 0),)
    entry = next(e for e in s.caches.ranges.queue if e is not None)
    assert (entry.expected_reads, deliveries_to_come(s)[entry.position]) == (1, 2)


def test_partial_cache_hit_that_is_read_again_is_no_delivery_from_the_cache() -> None:
    """Entries 0 and 2 are read from storage for entry 1, which is cached. One of the reads fails, the other completes."""
    cfg = SHARED._replace(grace_ms=0)
    s = run(cfg, ("add_entry",), *joining(0), ("add_entry",), ("disconnect", 0, 0), ("add_entry",), *joining(0))
    s = run(cfg, ("read_more_entries", 0), ("complete_storage_read", 1, False), s=s)
    assert (counts(s), deliveries_to_come(s)) == ({(0, 1): 1}, {(0, 1): 1})
    arguments = 2, True
    after, outcome = managed_ledger.step(cfg, s, "complete_storage_read", arguments)
    assert [tuple(each)[2:] for each in outcome.issued] == [(0, 0, 2)]
    assert (counts(after), deliveries_to_come(after)) == ({(0, 1): 1, (0, 2): 1}, {(0, 1): 0, (0, 2): 0})
    event = event_of(find_subject("managed_ledger"), "complete_storage_read", arguments, outcome)
    assert count_follows_deliveries_to_come.holds(cfg, s, event, after)
    assert count_of_entry_from_storage_equals_deliveries_to_come.holds(cfg, s, event, after)


def answered_with(cfg: Config, s: State, storage_read: int) -> tuple[State, Event]:
    """Returns the state after storage completes a read, and the event."""
    after, outcome = managed_ledger.step(cfg, s, "complete_storage_read", (storage_read, True))
    return after, event_of(find_subject("managed_ledger"), "complete_storage_read", (storage_read, True), outcome)


TWO_KINDS = Config(types=("shared", "failover"), grace_ms=0)


def test_cancelled_read_that_fails_moves_the_read_position_back_without_a_count() -> None:
    """The second cursor's read of entries 3 to 6 has joined a read of 0 to 5, is cancelled, and fails with its rest."""
    s = run(TWO_KINDS, *[("add_entry",)] * 7, *joining(1, 3), ("read_more_entries", 1))
    s = run(TWO_KINDS, ("complete_storage_read", 1, True), ("dispatch", 1, "normal"), *[("release", 1)] * 3, s=s)
    s = run(TWO_KINDS, ("advance", 1001), ("do_cache_eviction",), *joining(0, 6), ("read_more_entries", 0), s=s)
    s = run(TWO_KINDS, ("flow", 1, 0, 4), ("read_more_entries", 1), ("redeliver", 1, 0), s=s)
    s = run(TWO_KINDS, ("complete_storage_read", 3, False), s=s)
    after, event = answered_with(TWO_KINDS, s, 2)
    assert (s.subscriptions[1].read_position, after.subscriptions[1].read_position) == ((0, 3), (0, 0))
    assert counts(after)[0, 0] == 1
    assert deliveries_to_come(after)[Position(0, 0)] == 2
    assert count_of_entry_from_storage_equals_deliveries_to_come.holds(TWO_KINDS, s, event, after)


def read_with_gaps(gaps: int) -> State:
    """The second cursor's read has cached entries and gaps, and the first gap has failed.

    Entries 0, 2, .. are gaps, and the entries between them are cached. The first subscription reads entry 2 for replay.
    """
    cached = *joining(0, 0), *joining(1, 0), ("add_entry",), ("disconnect", 0, 0), ("disconnect", 1, 0)
    entries, reads = 2 * gaps - 1, [("complete_storage_read", 1 + i, True) for i in range(gaps)]
    s = run(TWO_KINDS, ("add_entry",), *[*cached, ("add_entry",)] * (gaps - 1), *joining(0, entries))
    s = run(TWO_KINDS, ("read_more_entries", 0), *reads, ("dispatch", 0, "normal"), s=s)
    s = run(TWO_KINDS, *[("acknowledge", 0, Position(0, i)) for i in range(entries) if i != 2], s=s)
    s = run(TWO_KINDS, ("redeliver", 0, 0), *[("release", 0)] * entries, ("advance", 1001), ("do_cache_eviction",), s=s)
    s = run(TWO_KINDS, *joining(1, entries), ("read_more_entries", 1), s=s)
    s = run(TWO_KINDS, ("complete_storage_read", gaps + 1, False), ("flow", 0, 0, 1), ("read_more_entries", 0), s=s)
    assert s.subscriptions[0].replay_read is not None
    return s


def test_partial_cache_hit_that_is_read_again_may_join_a_read() -> None:
    """The cursor reads its range again. Entry 0 comes from a new storage read, entry 2 from that of a replay read."""
    s = run(TWO_KINDS, ("disconnect", 0, 0), s=read_with_gaps(2))
    after, event = answered_with(TWO_KINDS, s, 4)
    assert [tuple(each)[2:] for each in event.outcome.issued] == [(0, 0, 0)]
    assert (counts(after)[0, 2], deliveries_to_come(after)[Position(0, 2)]) == (1, 0)
    assert count_of_entry_from_storage_equals_deliveries_to_come.holds(TWO_KINDS, s, event, after)

    s = run(TWO_KINDS, ("complete_storage_read", 5, True), s=read_with_gaps(3))
    before, (after, event) = s, answered_with(TWO_KINDS, s, 6)
    assert [tuple(each)[2:] for each in event.outcome.issued] == [(0, 0, 0)]
    assert deliveries_to_come(after)[Position(0, 2)] < deliveries_to_come(before)[Position(0, 2)]
    assert count_follows_deliveries_to_come.holds(TWO_KINDS, s, event, after)


@pytest.mark.parametrize("order", [(3, 4), (4, 3)])
def test_joined_range_of_partial_cache_hit_fails_before_the_hit_is_read_again(order: tuple[int, int]) -> None:
    """A gap of the hit has failed. Another one has joined two storage reads, of which one fails: its copies are released."""
    cfg = SHARED._replace(grace_ms=0)
    adding, cached = [("add_entry",)] * 3, [("connect", 0, 0), ("add_entry",), ("disconnect", 0, 0)]
    s = run(cfg, *adding[:2], *cached, *adding, ("connect", 0, 0), ("seek", 1, Position(0, 4)), ("connect", 1, 0))
    s = run(cfg, ("flow", 1, 0, 1), ("flow", 0, 0, 10), ("read_more_entries", 1), ("read_more_entries", 0), s=s)
    s = run(cfg, ("complete_storage_read", 1, False), s=s)
    for number in order:
        before, (s, event) = s, answered_with(cfg, s, number)
        assert count_follows_deliveries_to_come.holds(cfg, before, event, s)
        assert count_of_entry_from_storage_equals_deliveries_to_come.holds(cfg, before, event, s)


def test_read_that_joined_a_storage_read_and_was_passed_by_mark_delete_is_not_counted() -> None:
    """Two cursors read entries 0 and 1 by one storage read. The mark-delete position of the second one passes entry 0."""
    cfg = SHARED._replace(grace_ms=0)
    s = run(cfg, ("add_entry",), ("add_entry",), *joining(0), *joining(1))
    s = run(cfg, ("read_more_entries", 0), ("read_more_entries", 1), ("mark_delete", 1, Position(0, 0)), s=s)
    arguments = 1, True
    after, outcome = managed_ledger.step(cfg, s, "complete_storage_read", arguments)
    assert counts(after) == {(0, 0): 1, (0, 1): 1}, "the second cursor is after the reader"
    assert deliveries_to_come(after) == {(0, 0): 2, (0, 1): 2}
    event = event_of(find_subject("managed_ledger"), "complete_storage_read", arguments, outcome)
    assert count_of_entry_from_storage_equals_deliveries_to_come.holds(cfg, s, event, after)


def test_acknowledged_entry_of_failed_replay_read_remains_counted() -> None:
    """Entries 0 and 1 are replayed from storage, and entry 2 from the cache. Then the mark-delete position passes them.

    The request for entry 0 fails. With the request for entry 1, the replay read ends, and entry 2 is not replayed.
    """
    cfg = SHARED._replace(grace_ms=0)
    s = run(cfg, ("add_entry",), ("add_entry",), *joining(0, 6), ("add_entry",), ("read_more_entries", 0))
    s = run(cfg, ("complete_storage_read", 1, True), ("dispatch", 0, "normal"), ("release", 0), ("release", 0), s=s)
    s = run(cfg, ("advance", 1001), ("do_cache_eviction",), ("redeliver", 0, 0), ("read_more_entries", 0), s=s)
    s = run(cfg, ("mark_delete", 0, Position(0, 2)), ("complete_storage_read", 2, False), s=s)
    assert (counts(s), deliveries_to_come(s)) == ({(0, 2): 1}, {(0, 2): 2})
    arguments = 3, True
    after, outcome = managed_ledger.step(cfg, s, "complete_storage_read", arguments)
    assert (counts(after), deliveries_to_come(after)) == ({(0, 2): 1}, {(0, 2): 1})
    event = event_of(find_subject("managed_ledger"), "complete_storage_read", arguments, outcome)
    assert count_follows_deliveries_to_come.holds(cfg, s, event, after)


def test_discarded_read_counts_as_read_in_shipped_versions() -> None:
    """All consumers leave while an entry is read. None has received the entry, and the cursor will read it again."""
    calls = (*joining(0), *joining(1), ("add_entry",), ("read_more_entries", 0), ("disconnect", 0, 0))
    calls = (*calls, ("connect", 0, 0), ("dispatch", 0, "normal"))
    for cfg, left in ((SHARED, 2), (SHARED._replace(discard_lowers_count=True), 1)):
        assert counts(run(cfg, *calls)) == {(0, 0): left}


def test_key_is_sent_out_of_order_if_only_the_first_replayed_entry_is_compared() -> None:
    """Consumer 1 holds entry 1 and leaves while entry 3, with the same key, is read for replay.

    Entry 0 waits for replay all the time, so the first entry of the replay queue is not new (apache/pulsar#12885).
    """
    calls: list[Call] = [("connect", 0, 0), ("connect", 0, 1), ("flow", 0, 0, 3), ("flow", 0, 1, 1)]
    calls += [*[("add_entry",)] * 4, *reading(0), ("redeliver", 0, 0), *reading(0, "replay"), ("redeliver", 0, 0)]
    calls += [("flow", 0, 1, 1), ("read_more_entries", 0), ("disconnect", 0, 1), ("flow", 0, 0, 5)]
    for order, sent in ((Config().replay_order, ()), (SHIPPED.replay_order, ((Position(0, 3), 0),))):
        cfg = Config(subscriptions=1, types=("key_shared",), entry_keys=(0, 1), replay_order=order)
        s = run(cfg, *calls)
        assert s.subscriptions[0].replay == tuple([Position(0, i) for i in range(4)])
        assert outcome_of(cfg, s, "dispatch", 0, "replay").sent == sent


@pytest.mark.parametrize(
    ("kind", "granted", "outcome"),
    [
        ("replay", 2, Dispatched((), (), (), (Position(0, 3),))),
        ("normal", 1, Dispatched((), (Position(0, 4),), (), ())),
    ],
)
def test_shipped_dispatcher_sends_no_read_if_first_entry_of_replay_queue_is_new(
    kind: str, granted: int, outcome: Dispatched
) -> None:
    """Entry 3 waits for a permit of consumer 1, which leaves during a read: entry 1 becomes the first to replay."""
    cfg = Config(subscriptions=1, types=("key_shared",), entry_keys=(0, 1), replay_order=SHIPPED.replay_order)
    calls: list[Call] = [("connect", 0, 0), ("connect", 0, 1), ("flow", 0, 0, 9), ("flow", 0, 1, 1)]
    calls += [*[("add_entry",)] * 4, *reading(0), ("add_entry",), *[("flow", 0, 1, 1)] * (granted - 1)]
    s = run(cfg, *calls, ("read_more_entries", 0), ("disconnect", 0, 1))
    assert outcome_of(cfg, s, "dispatch", 0, kind) == outcome


def test_old_replay_read_is_sent_twice_in_shipped_versions() -> None:
    """A replay read outlives the session that began it: its entry is sent, and again after the cursor is rewound."""
    calls = (*joining(0, 1), ("add_entry",), *reading(0), ("redeliver", 0, 0), ("flow", 0, 0, 1))
    calls = (
        *calls,
        ("read_more_entries", 0),
        ("disconnect", 0, 0),
        *joining(0),
        ("dispatch", 0, "replay"),
        *reading(0),
    )
    s = run(SHARED._replace(discards_cancelled_replay_read=False), *calls)
    assert [each.position for each in s.subscriptions[0].sent] == [Position(0, 0)] * 3
    assert len(run(SHARED, *calls).subscriptions[0].sent) == 2


def test_cancelled_replay_read_is_not_overtaken() -> None:
    """No entry joins the replay queue before the read is dispatched, so the cursor is rewound (`is_overtaken`)."""
    cfg = SHIPPED._replace(subscriptions=1, types=("key_shared",))
    calls = (*joining(0), *[("add_entry",)] * 2, *reading(0), ("redeliver", 0, 0))
    s = run(cfg, *calls, ("read_more_entries", 0), ("disconnect", 0, 0))
    s = run(cfg, *joining(0), ("connect", 0, 1), ("flow", 0, 1, 5), ("add_entry",), s=s)
    assert isinstance(outcome_of(cfg, s, "read_more_entries", 0), Refused), "so no consumer gets an entry"
    s = run(cfg, ("redeliver", 0, 0), ("disconnect", 0, 1), s=s)
    assert s.subscriptions[0].replay == ()
    read = s.subscriptions[0].replay_read
    assert read is not None
    assert (read.cancelled, read.min_replayed_position) == (True, (0, 0))
    s = run(cfg, ("dispatch", 0, "replay"), s=s)
    assert s.subscriptions[0].read_position == (0, 0)


def test_shadow_topic_caches_what_its_cursors_read_from_storage_only() -> None:
    cfg = SHARED._replace(shadow_topic=True)
    s = run(cfg, *joining(0), *joining(1), ("add_entry",))
    assert counts(s) == {}
    assert counts(run(cfg, ("read_more_entries", 0), ("complete_storage_read", 1, True), s=s)) == {(0, 0): 2}


def test_cache_stays_below_the_trigger_if_eviction_tasks_run_at_once() -> None:
    cfg = SHARED._replace(max_bytes=25, eviction_task="immediate")
    s = run(cfg, *joining(0), *[("add_entry",)] * 3)
    assert total_above_trigger_has_eviction_queued.holds(cfg, s)
    assert s.caches.total_bytes == 20
    full = s._replace(caches=s.caches._replace(total_bytes=25))
    assert not total_above_trigger_has_eviction_queued.holds(cfg, full)


def test_no_eviction_is_due_between_the_trigger_and_a_higher_watermark() -> None:
    cfg = SHARED._replace(max_bytes=100, watermark=1.0)
    s = run(cfg, *[("add_entry",)] * 10, ("run_eviction_task",))
    assert (s.caches.total_bytes, s.caches.tasks) == (100, 0)
    assert total_above_trigger_has_eviction_queued.holds(cfg, s)
    above = s._replace(caches=s.caches._replace(total_bytes=101))
    assert not total_above_trigger_has_eviction_queued.holds(cfg, above)


def test_without_counts_entries_leave_the_cache_behind_the_slowest_read_position() -> None:
    cfg = SHARED._replace(counts_reads=False, subscriptions=2)
    s = run(cfg, *joining(0), *joining(1), ("check_backlogged_cursors",), ("add_entry",), *reading(0))
    assert counts(s) == {(0, 0): None}
    assert counts(run(cfg, *reading(1), s=s)) == {}
    by_mark = cfg._replace(invalidates_by_mark_delete=True)
    s = run(by_mark, *joining(0), *joining(1), ("check_backlogged_cursors",), *[("add_entry",)] * 2)
    s = run(
        by_mark, *reading(0), *reading(1), ("acknowledge", 0, Position(0, 1)), ("mark_delete", 0, Position(0, 0)), s=s
    )
    assert counts(s) == {(0, 0): None, (0, 1): None}
    assert counts(run(by_mark, ("mark_delete", 1, Position(0, 1)), s=s)) == {(0, 1): None}


def test_individually_deleted_entries_are_no_backlog() -> None:
    """`ManagedCursorImpl.getNumberOfEntries` subtracts them: a rewound cursor with one entry left becomes active."""
    cfg = Config(subscriptions=1, types=("shared",), counts_reads=False, backlogged_threshold=2)
    s = run(cfg, *[("add_entry",)] * 3, *joining(0), ("read_more_entries", 0), ("complete_storage_read", 1, True))
    s = run(cfg, ("dispatch", 0, "normal"), *[("acknowledge", 0, Position(0, i)) for i in (1, 2)], s=s)
    s = run(cfg, ("disconnect", 0, 0), ("connect", 0, 0), ("check_backlogged_cursors",), s=s)
    assert s.subscriptions[0].read_position == (0, 0)
    assert [c.cursor for c in s.active.cursors] == [0]


def test_added_entry_is_not_cached_for_backlogged_cursor_without_counts() -> None:
    cfg = SHARED._replace(counts_reads=False, backlogged_threshold=1)
    s = run(cfg, *joining(0), ("add_entry",), ("check_backlogged_cursors",), ("add_entry",))
    assert counts(s) == {}
    assert isinstance(outcome_of(SHARED, run(SHARED), "check_backlogged_cursors"), Refused)


def test_entry_from_storage_is_not_cached_if_reader_does_not_cache_reads_without_counts() -> None:
    """After `check_cursors_to_cache_entries`, a cursor caches reads if its backlog is large, and similar to others."""
    cfg = SHARED._replace(counts_reads=False, min_backlog_cursors=2, min_backlog_entries=1)
    steps = (("add_entry",), *joining(0), ("read_more_entries", 0), ("complete_storage_read", 1, True))
    assert counts(run(cfg, *steps)) == {}
    checked = (steps[0], ("check_cursors_to_cache_entries",), *steps[1:])
    assert counts(run(cfg, *checked)) == {(0, 0): 1}
    assert counts(run(cfg._replace(min_backlog_cursors=3), *checked)) == {}, "a cursor is not similar to itself"
    assert counts(run(cfg._replace(min_backlog_entries=2), *checked)) == {}


#: For each broker setting a value, another one, and whether counts are on.
OTHER: dict[str, tuple[Any, Any, bool]] = {
    "counts_reads": (True, False, True),
    "invalidates_by_mark_delete": (False, True, False),
    "grace_ms": (2000, 0, True),
    "ttl_ms": (1000, 5000, True),
    "max_requeue_times": (2, 0, True),
    "extend_ttl_of_recently_accessed": (True, False, True),
    "max_bytes": (1000, 20, True),
    "watermark": (0.9, 0.1, True),
    "backlogged_threshold": (3, 1, False),
    "min_backlog_cursors": (1, 3, False),
    "min_backlog_entries": (0, 2, False),
    "max_backlog_between": (1000, 0, False),
    "read_batch": (4, 1, True),
    "look_ahead": (20_000, 1, True),
}


def test_every_broker_setting_is_listed() -> None:
    settings = {name for name, kind in managed_ledger.fields.items() if setting_of(kind) is not None}
    assert settings == set(OTHER)


@pytest.mark.parametrize("name", OTHER)
def test_a_broker_setting_has_an_effect_that_a_property_shows(name: str) -> None:
    """A ledger with one value of the setting violates a property of ledgers with another value."""
    subject = find_subject("managed_ledger")
    value, other, counts_reads = OTHER[name]
    for seed in range(400):
        plan, rng = plan_trace(subject, Config(), seed)
        cfg = plan.config._replace(**{"counts_reads": counts_reads, name: value})
        judged = cfg._replace(**{name: other})
        checks, s = checks_for(subject, judged), managed_ledger.start(cfg)
        choose = chooser(subject, plan._replace(config=cfg), rng)
        for _ in range(plan.steps):
            chosen, arguments = choose(s)
            before, (s, outcome) = s, chosen.run(cfg, s, *arguments)
            event = event_of(subject, chosen.name, arguments, outcome)
            if any(broken_properties(checks, judged, before, event, chosen.index, s)):
                return
    pytest.fail(f"no property shows {name}")
