"""The caches of a broker of branch 4.0: a stateful test, and examples of its defects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fuzz.run.call import Call
from fuzz.run.pair import Pair
from fuzz.run.stateful import stateful_test
from fuzz.subject import find_subject
from fuzz.subjects.legacy_manager import most_bytes_with_different_shares
from fuzz.target import resolve
from invariants.legacy_manager import entries_of, invalidation_removes_exactly_its_range
from invariants.properties import Event
from model import legacy_manager as m
from model.cache_metrics import COUNTERS, ENTRIES, USED_SIZE
from model.entry_cache import state as entry_cache
from model.legacy_manager import Config, Counters, State
from model.machine import Failed
from model.positions import Position

TestLegacyManager = stateful_test(find_subject("legacy_manager"))


def filled(cfg: Config, entries: int, bytes: int = 10) -> State:
    s = m.start(cfg)
    for i in range(entries):
        s, outcome = m.insert(cfg, s, i % cfg.caches, Position(1, i), bytes)
        assert outcome is True
    return s


def test_insert_is_rejected_although_its_own_eviction_freed_bytes() -> None:
    cfg = Config(caches=1, max_bytes=100, watermark=0.8, eviction_task="immediate")
    s, outcome = m.insert(cfg, filled(cfg, 10), 0, Position(1, 99), 10)
    assert outcome is False
    assert m.total_bytes(s) == 80


def test_eviction_fails_if_the_watermark_leaves_nothing_to_free() -> None:
    cfg = Config(caches=1, max_bytes=100, watermark=1.0, eviction_task="immediate")
    s, outcome = m.insert(cfg, filled(cfg, 10), 0, Position(1, 99), 10)
    assert isinstance(outcome, Failed)
    assert s.counters.size_evictions == 1
    assert not s.eviction_in_progress


def test_eviction_task_uses_the_size_at_its_scheduling() -> None:
    cfg = Config(caches=1, max_bytes=100, watermark=0.5, eviction_task="queued")
    s, _ = m.insert(cfg, filled(cfg, 10), 0, Position(1, 99), 10)
    assert s.tasks == (100,)
    s, _ = m.clear_cache(cfg, s, 0)
    s, _ = m.insert(cfg, s, 0, Position(1, 0), 10)
    s, outcome = m.run_eviction_task(cfg, s)
    assert outcome == 1, "it frees 50 bytes although there are only 10 left"


def test_partly_cached_range_is_read_from_storage_completely() -> None:
    cfg = Config(caches=1)
    s, _ = m.insert(cfg, m.start(cfg), 0, Position(1, 1), 10)
    s, found = m.read(cfg, s, 0, 1, 0, 2, False)
    assert found.storage_reads == (m.StorageRead(1, 0, 1, 0, 2),)
    assert s.counters.miss_entries == 3


def test_insert_that_evicts_or_is_rejected_below_the_maximum_violates_a_property() -> None:
    cfg = Config(caches=1, eviction_task="queued")
    before = filled(cfg, 2)
    right, _ = m.insert(cfg, before, 0, Position(1, 2), 10)
    counted = right.counters._replace(evicted_entries=1)
    evicting = right._replace(caches=(m.entries_of(right.caches[0])[1:],), counters=counted)
    violated = {
        "insert_adds_absent_entry_below_maximum": [(False, before), (True, evicting)],
        "action_changes_only_its_fields": [(True, evicting)],
    }
    checked = set()
    for p in find_subject("legacy_manager").properties:
        if p.kind == "always" and p.of_step and (not p.on or "insert" in p.on):
            checked.add(p.name)
            for outcome, after in ((True, right), (False, before), (True, evicting)):
                event = Event("insert", {"cache": 0, "position": Position(1, 2), "bytes": 10}, outcome)
                expected = (outcome, after) not in violated.get(p.name, [])
                assert p.holds(cfg, before, event, after) is expected, (p.name, outcome)
    assert checked >= violated.keys()


def test_cache_created_with_maximum_zero_stays_disabled() -> None:
    cfg = Config(caches=1, max_bytes=0)
    s, _ = m.set_max_bytes(cfg, m.start(cfg), 100)
    assert m.insert(cfg, s, 0, Position(1, 0), 10)[1] is False
    s, _ = m.remove_entry_cache(cfg, s, 0)
    assert m.insert(cfg, s, 0, Position(1, 0), 10)[1] is True


@pytest.mark.parametrize("eviction_task", ["immediate", "queued"])
def test_insert_into_absent_cache_under_maximum_zero_schedules_no_eviction(eviction_task: Any) -> None:
    """The insert creates the cache disabled. It schedules no eviction although the total is above the trigger.

    No property fails.
    """
    target = resolve("legacy_manager")
    pair = Pair(replace(target, config=target.config._replace(caches=2, max_bytes=100, eviction_task=eviction_task)))
    for call in (
        Call("insert", (0, Position(1, 0), 10)),
        Call("remove_entry_cache", (1,)),
        Call("set_max_bytes", (0,)),
        Call("insert", (1, Position(1, 0), 10)),
    ):
        assert pair.step(call) is None
    assert (pair.outcome, pair.state.caches[1]) == (False, "disabled")
    assert (pair.state.tasks, pair.state.counters.size_evictions) == ((), 0)


def test_share_in_doubles_keeps_an_entry_too_many() -> None:
    """The two largest caches, of 27 and 22 bytes, have to free 49 bytes.

    In doubles, 49 * (27 / 49) is below 27 and is truncated to 26, so an entry of one byte stays.
    """
    cfg = Config(caches=3, max_bytes=60, share_arithmetic="double")
    for arithmetic, left in (("integers", []), ("double", [1])):
        cfg = cfg._replace(share_arithmetic=arithmetic)
        s = m.start(cfg)
        for cache, entry, size in ((0, 0, 26), (0, 1, 1), (1, 0, 22), (2, 0, 11)):
            s, _ = m.insert(cfg, s, cache, Position(1, entry), size)
        s, _ = m.insert(cfg, s, 2, Position(1, 1), 0)  # schedules the task
        assert s.tasks == (60,)
        s, _ = m.set_watermark(cfg, s, 11.5 / 60)
        s, _ = m.run_eviction_task(cfg, s)
        assert [e.bytes for e in m.entries_of(s.caches[0])] == left


def test_every_counter_has_a_prometheus_metric() -> None:
    assert set(COUNTERS) == set(Counters._fields) == set(entry_cache.Counters._fields)
    names = [each.name for each in (*COUNTERS.values(), ENTRIES, USED_SIZE)]
    assert len(set(names)) == len(names)
    assert all(name.startswith("pulsar_ml_cache_") for name in names)


def test_invalidation_of_a_ledger_ends_at_entry_0_of_the_next_one() -> None:
    """An entry with a negative id is before entry 0 of its ledger, and so in the range of the ledger before."""
    cfg = Config(caches=1)
    before, _ = m.insert(cfg, m.start(cfg), 0, Position(2, -1), 9)
    after, outcome = m.invalidate_ledger(cfg, before, 0, 1)
    assert entries_of(after.caches[0]) == ()
    event = Event("invalidate_ledger", {"cache": 0, "ledger": 1}, outcome)
    assert invalidation_removes_exactly_its_range.holds(cfg, before, event, after)
    assert not invalidation_removes_exactly_its_range.holds(cfg, before, event, before)


def test_shares_of_terabytes_are_compared_for_a_few_numbers_of_bytes_only() -> None:
    assert most_bytes_with_different_shares(3, 2) <= 5
    assert most_bytes_with_different_shares(1 << 50, 1) in (0, *range((1 << 50) - 1000, (1 << 50) + 2))
