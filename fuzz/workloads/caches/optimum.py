"""The best that any eviction could reach on a stream of adds and reads: offline, with the future known.

An entry is used when it is added and at each read. Reads less than a storage read's latency after the first of a group
are one use, because they can join its storage read. Keeping an entry from one use to the next saves a storage read of
it; the question is which of these intervals to choose so that the kept bytes never exceed the cache.

    equal sizes     exact: sweep the intervals by start; when one too many overlaps, drop the one that ends last. This
                    is Belady's rule with bypass, a maximum k-colourable subgraph of an interval graph
    unequal sizes   NP-hard. Upper bound: the smaller of two relaxations. (1) All intervals have the smallest size; the
                    exact rule. (2) Only the sum of bytes times duration over the whole life of the cache is limited;
                    the cheapest intervals come first. Lower bound: the sweep, whose choice is feasible

The number of storage reads is that of the chosen intervals: a figure that this choice reaches, not a bound.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fuzz.workloads.caches.cache import Cache, Environment, Reading, Rules
from fuzz.workloads.caches.simple import runs

#: A moment: the time in microseconds, then the number of the event. Intervals that end in an event free their bytes
#: for those that start in it or later.
Moment = tuple[int, float]


class Interval(NamedTuple):
    """Two uses of an entry with nothing between them."""

    start: Moment
    end: Moment
    size: int


class Use(NamedTuple):
    """The first read of a group."""

    request: int
    topic: int
    entry: int
    interval: int  # its number; -1 for an entry that was never added here


def kept(intervals: Sequence[Interval], capacity: int) -> list[bool]:
    """Whether the sweep keeps each interval; exact for equal sizes, else feasible. O(n log n)."""
    chosen = [False] * len(intervals)
    by_start = sorted(range(len(intervals)), key=lambda i: intervals[i].start)
    ending: list[tuple[Moment, int]] = []  # those that are kept, the first to end first
    last: list[tuple[float, float, int]] = []  # the same, the last to end first
    used = 0
    for i in by_start:
        each = intervals[i]
        if each.end <= each.start:
            chosen[i] = True
            continue
        while ending and ending[0][0] <= each.start:
            _, ended = heapq.heappop(ending)
            if chosen[ended]:
                used -= intervals[ended].size
        chosen[i] = True
        used += each.size
        heapq.heappush(ending, (each.end, i))
        heapq.heappush(last, (-each.end[0], -each.end[1], i))
        while used > capacity:
            dropped = heapq.heappop(last)[2]
            if chosen[dropped] and intervals[dropped].end > each.start:
                chosen[dropped] = False
                used -= intervals[dropped].size
    return chosen


def most_by_area(intervals: Sequence[Interval], capacity: int) -> int:
    """An upper bound on the number of kept intervals: their bytes times duration fit the cache's. O(n log n)."""
    if not intervals:
        return 0
    span = max(i.end[0] for i in intervals) - min(i.start[0] for i in intervals)
    budget, number = capacity * span, 0
    for cost in sorted([i.size * (i.end[0] - i.start[0]) for i in intervals]):
        budget -= cost
        if budget < 0:
            break
        number += 1
    return number


def occupancy(intervals: Sequence[Interval], chosen: Sequence[bool]) -> tuple[int, int]:
    """The largest number of kept bytes, and bytes times microseconds. O(n log n)."""
    changes: list[tuple[Moment, int]] = []
    area = 0
    for interval, is_kept in zip(intervals, chosen, strict=True):
        if is_kept:
            changes += [(interval.start, interval.size), (interval.end, -interval.size)]
            area += interval.size * (interval.end[0] - interval.start[0])
    used = most = 0
    for _, change in sorted(changes):
        used += change
        most = max(most, used)
    return most, area


class Solved(NamedTuple):
    """What the optimum reads from storage during the life of one cache."""

    storage_reads: int
    storage_entries: int
    bytes_peak: int
    byte_us: int
    is_exact: bool


class Optimum(Cache):
    """Records uses instead of caching. Valid only if readers do not wait for misses, so that the stream is given."""

    def __init__(self, env: Environment, share: float = 1.0, ttl_us: int | None = None, lower: bool = False) -> None:
        """With a share of the cache's bytes, and intervals of at most `ttl_us`."""
        super().__init__(env, Rules())
        self._capacity = int(env.max_bytes * share)
        self._ttl_us = ttl_us
        self._lower = lower
        self._events = self._requests = 0
        self._free_from: dict[tuple[int, int], Moment] = {}  # entry -> start of the interval to its next use
        self._joined_until: dict[tuple[int, int], int] = {}
        self._intervals: list[Interval] = []
        self._uses: list[Use] = []

    def add(self, topic: int, entry: int) -> None:
        """As Cache.add."""
        self._events += 1
        self._free_from[topic, entry] = (self.now_us, self._events)

    def read(self, topic: int, cursor: int, first: int, last: int, replayed: bool) -> Reading:  # noqa: ARG002
        """As Cache.read; completed at once."""
        self._events += 1
        self._requests += 1
        latency = self.env.latency_us
        sizes = self.env.logs[topic].sizes
        for entry in range(first, last + 1):
            key = (topic, entry)
            if self.now_us < self._joined_until.get(key, -1):
                continue
            start, end = self._free_from.get(key), (self.now_us, self._events)
            number = -1
            if start is not None and (self._ttl_us is None or end[0] - start[0] <= self._ttl_us):
                number = len(self._intervals)
                # reads that join storage reads can leave no time between two uses
                self._intervals.append(Interval(min(start, end), end, sizes[entry]))
            self._uses.append(Use(self._requests, topic, entry, number))
            self._joined_until[key] = self.now_us + latency
            self._free_from[key] = (self.now_us + latency, math.inf) if latency else end
        self.answered.append((self._requests, ()))
        return Reading(self._requests, [])

    def complete(self, storage_read: int) -> None:
        """Never called: no storage read is issued."""

    def size(self) -> int:
        """Unknown until the end."""
        return 0

    def solve(self) -> Solved:
        """The best choice for the stream so far. O(n log n)."""
        chosen = kept(self._intervals, self._capacity)
        peak, byte_us = occupancy(self._intervals, chosen)
        missed = [use for use in self._uses if use.interval < 0 or not chosen[use.interval]]
        reads = sum(1 for _ in _gaps(missed))
        sizes = {i.size for i in self._intervals}
        is_exact = len(sizes) <= 1
        entries = len(missed)
        if not is_exact and not self._lower:
            least = min(sizes)
            alike = kept([i._replace(size=1) for i in self._intervals], self._capacity // max(1, least))
            most = min(sum(alike), most_by_area(self._intervals, self._capacity))
            entries = len(self._uses) - max(sum(chosen), most)
        return Solved(min(reads, entries), entries, peak, byte_us, is_exact)


def _gaps(missed: Sequence[Use]) -> Iterator[tuple[int, int]]:
    """The storage reads of missed entries: a read for each maximal range in each request."""
    by_request: dict[tuple[int, int], list[int]] = {}
    for use in missed:
        by_request.setdefault((use.request, use.topic), []).append(use.entry)
    for entries in by_request.values():
        yield from runs(entries)
