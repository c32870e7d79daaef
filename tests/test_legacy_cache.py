"""Range caches of branch 4.0: a stateful test, and examples of their defects."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz.run.stateful import stateful_test
from fuzz.subject import find_subject
from impl.legacy_cache import LegacyCaches
from invariants.properties import Event
from model import legacy_cache as m
from model.legacy_cache import Config, Entry, Eviction, State
from model.machine import Refused
from model.positions import Position
from model.range_cache import Removed

TestLegacyCache = stateful_test(find_subject("legacy_cache"))


def test_shares_of_many_small_caches_are_truncated_to_zero() -> None:
    """Fifty of the hundred caches hold half of all bytes. Each has to free 0.2 of 10 bytes, truncated to zero."""
    cfg = Config(caches=100)
    s = m.start(cfg)
    for cache in range(100):
        s, _ = m.put(cfg, s, cache, Position(1, 0), 1, 0)
    after, evictions = m.evict_proportionally(cfg, s, tuple(range(100)), 10)
    assert evictions == ()
    assert after == s


def test_time_pass_stops_at_a_young_entry_before_an_expired_one() -> None:
    cfg = Config()
    s = m.start(cfg)._replace(caches=((Entry(Position(1, 0), 5, 90), Entry(Position(1, 1), 5, 10)), ()), now_ns=100)
    assert m.time_pass(cfg, s, 0, 50) == (s, Removed(0, 0))


def test_entry_at_the_threshold_is_expired() -> None:
    cfg = Config()
    s, _ = m.put(cfg, m.start(cfg), 0, Position(1, 0), 5, 50)
    assert m.time_pass(cfg, s, 0, 50)[1] == Removed(1, 5)


def test_size_pass_removes_lowest_positions_first() -> None:
    cfg = Config()
    s = m.start(cfg)
    for entry in (2, 0, 1):
        s, _ = m.put(cfg, s, 0, Position(1, entry), 10, entry)
    s, _ = m.get(cfg, s, 0, Position(1, 0))
    s, _ = m.size_pass(cfg, s, 0, 11)
    assert [e.position.entry for e in s.caches[0]] == [2]


def test_largest_caches_with_half_of_all_bytes_share_by_size() -> None:
    assert m.shares([(0, 10), (1, 30), (2, 20), (3, 5)], 50, "integers") == [(1, 30), (2, 20)]


def test_share_in_doubles_can_be_a_byte_too_small() -> None:
    sizes = [(0, 12), (1, 10), (2, 10)]
    assert m.shares(sizes, 55, "integers") == [(0, 30), (1, 25)]
    assert m.shares(sizes, 55, "double") == [(0, 29), (1, 25)]


@pytest.mark.parametrize(
    ("left", "asked", "violated"),
    [
        ((10, 10, 0), ((0, 10), (1, 10)), None),
        ((20, 10, 0), ((0, 10), (1, 10)), "policy_removes_lowest_positions_for_its_requests"),
        ((10, 0, 0), ((0, 10),), "policy_share_is_truncated_proportion"),
    ],
)
def test_policy_that_frees_too_much_or_skips_a_cache_violates_a_property(left: Any, asked: Any, violated: Any) -> None:
    """Three caches hold 20 bytes each. The first two, the fewest that hold half of all bytes, have to free 10 bytes each.

    `left` is the number of bytes that leave each cache. `asked` has the requests: a cache and the bytes to free.
    """
    cfg = Config(caches=3)
    full = State(0, (tuple(Entry(Position(1, i), 10, 0) for i in range(2)),) * 3)
    after = full._replace(caches=tuple(held[freed // 10 :] for held, freed in zip(full.caches, left, strict=True)))
    outcome = tuple(Eviction(c, share, Removed(left[c] // 10, left[c])) for c, share in asked)
    event = Event("evict_proportionally", {"caches": (0, 1, 2), "bytes_to_free": 20}, outcome)
    checked = [p for p in find_subject("legacy_cache").properties if p.kind == "always" and event.name in p.on]
    assert [p.name for p in checked if not p.holds(cfg, full, event, after)] == ([violated] if violated else [])


def test_cache_listed_twice_is_rejected() -> None:
    """Otherwise the policy would evict the cache's share twice, and report other bytes than were removed."""
    cfg = Config()
    s, _ = m.put(cfg, m.start(cfg), 0, Position(1, 0), 5, 0)
    after, outcome = m.evict_proportionally(cfg, s, (0, 1, 0), 10)
    assert isinstance(outcome, Refused)
    assert after is s
    caches = LegacyCaches.load(cfg, s)
    assert caches.evict_proportionally((0, 1, 0), 10) == outcome
    assert caches.view() == s
