"""The offline optimum of the cache study: the fewest storage reads of a cache that knows the future.

An interval is the time between two uses of an entry; a cache that keeps the entry so long saves a storage read. `kept`
(the sweep) chooses intervals quickly, and `Optimum` computes the optimum or bounds of it from them. These tests compare
both with definitions that try all possibilities.
"""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

from fuzz.workloads.caches.cache import Environment, Log
from fuzz.workloads.caches.optimum import Interval, Optimum, kept, most_by_area, occupancy


def most_kept(intervals: list[Interval], capacity: int) -> int:
    """Returns the size of the largest subset of the intervals that fits at all times. Tries all subsets."""
    best = 0
    for chosen in itertools.product((False, True), repeat=len(intervals)):
        if sum(chosen) > best and occupancy(intervals, chosen)[0] <= capacity:
            best = sum(chosen)
    return best


def drawn(rng: Random, sizes: tuple[int, ...]) -> list[Interval]:
    """Returns nine random intervals of these sizes."""
    starts = [rng.randrange(20) for _ in range(9)]
    return [Interval((s, i), (s + rng.randrange(1, 10), i), rng.choice(sizes)) for i, s in enumerate(starts)]


def test_sweep_is_optimal_for_equal_sizes_and_bounds_the_optimum_otherwise() -> None:
    rng = Random(1)
    for _ in range(60):
        capacity = rng.randrange(1, 5)
        equal, unequal = drawn(rng, (1,)), drawn(rng, (1, 2, 3))
        assert sum(kept(equal, capacity)) == most_kept(equal, capacity)
        chosen, best = kept(unequal, capacity), most_kept(unequal, capacity)
        assert occupancy(unequal, chosen)[0] <= capacity
        assert sum(chosen) <= best <= most_by_area(unequal, capacity)
        assert best <= sum(kept([i._replace(size=1) for i in unequal], capacity))


def test_keeping_the_first_to_come_is_not_optimal() -> None:
    """The control of the test above: a choice in the order of the starts is often worse."""
    rng, worse = Random(1), 0
    for _ in range(60):
        intervals = sorted(drawn(rng, (1,)))
        chosen = [False] * len(intervals)
        for i in range(len(intervals)):
            chosen[i] = True
            chosen[i] = occupancy(intervals, chosen)[0] <= 2
        worse += sum(chosen) < most_kept(intervals, 2)
    assert worse > 10


def fewest_read(stream: list[tuple[int, int | None, int]], capacity: int, latency_us: int) -> int:
    """Returns the fewest entries read from storage, over all choices of what a cache keeps after each event.

    `stream` has times, readers (None: the entry is added) and entries. All entries have size 1.
    """
    states: dict[tuple[frozenset[int], frozenset[tuple[int, int]]], int] = {(frozenset(), frozenset()): 0}
    for at, reader, entry in stream:
        for is_event in (False, True):  # first the answers of storage until now, then the event
            following: dict[tuple[frozenset[int], frozenset[tuple[int, int]]], int] = {}
            for (cached, outstanding), cost in states.items():
                present, waiting, paid = set(cached), set(outstanding), cost
                if not is_event:
                    for answered, asked in sorted(outstanding):
                        if answered <= at:
                            present.add(asked)
                            waiting.discard((answered, asked))
                elif reader is None:
                    present.add(entry)
                elif entry not in present and entry not in {asked for _, asked in waiting}:
                    waiting.add((at + latency_us, entry))
                    paid += 1
                for size in range(min(capacity, len(present)) + 1):
                    for kept_entries in itertools.combinations(sorted(present), size):
                        state = (frozenset(kept_entries), frozenset(waiting))
                        following[state] = min(paid, following.get(state, paid))
            states = following
    return min(states.values())


def solved(stream: list[tuple[int, int | None, int]], capacity: int, latency_us: int, lower: bool = False) -> Any:
    """Returns what `Optimum` reports for a stream: the upper bound of the hits, or with `lower` the lower bound."""
    log = Log()
    log.sizes = [1] * 9
    cache = Optimum(Environment([log], capacity, latency_us=latency_us), lower=lower)
    for at, reader, entry in stream:
        cache.now_us = at
        if reader is None:
            cache.add(0, entry)
        else:
            cache.read(0, reader, entry, entry, False)
    return cache.solve()


def test_bounds_enclose_the_fewest_storage_reads() -> None:
    """This holds also if reads join storage reads in flight. Without latency, the bounds are equal."""
    rng, equal = Random(3), 0
    for _ in range(150):
        times = sorted(rng.sample(range(40), 9))
        stream = [(at, None if rng.random() < 0.3 else 1, rng.randrange(3)) for at in times]
        for latency_us in (0, 6):
            fewest = fewest_read(stream, 1, latency_us)
            best, worst = solved(stream, 1, latency_us), solved(stream, 1, latency_us, lower=True)
            assert best.storage_entries <= fewest <= worst.storage_entries
            assert best.is_exact == (best.storage_entries == worst.storage_entries) == worst.is_exact
            assert best.is_exact or latency_us
            equal += bool(best.is_exact and latency_us)
    assert 50 < equal < 150


def test_with_latency_the_bounds_may_differ() -> None:
    """After the hit at time 1, the cache can keep entry 0 or entry 1, not both. The optimistic bound keeps both."""
    stream = [(0, None, 0), (1, 1, 0), (1, None, 1), (2, 2, 0), (100, 1, 1)]
    assert fewest_read(stream, 1, 10) == 1
    assert (solved(stream, 1, 10).storage_entries, solved(stream, 1, 10).is_exact) == (0, False)
    assert solved(stream, 1, 10, lower=True).storage_entries == 1
