"""The offline optimum: the most hits that an eviction could reach if it knew all future adds and reads.

A *use* of an entry is its add, or a group of reads. A group begins with a read, and has all reads until a storage read
for this first one would be answered: they would join this storage read. A cache that keeps an entry from one use to the
next saves a storage read. The optimum chooses as many of these intervals as possible, such that the kept bytes never
exceed the size of the cache.

    upper bound     an interval ends at the first read of a group. The next interval begins when a storage read for that
                    first read would be answered. A policy cannot have more hits by more storage reads in a group
    lower bound     an interval lasts from the last read of a group to the last read of the next group. A cache can keep
                    these intervals: if the first read of a group is a miss, the others join its storage read
    equal sizes     a sweep over the start times (`kept`) maximises the number of intervals. If an interval does not
                    fit, the sweep drops the overlapping interval that ends last (Belady's rule with bypass; a maximum
                    k-colourable subgraph of an interval graph)
    unequal sizes   NP-hard. The sweep's choice is feasible: a lower bound. The upper bound is the smaller of two
                    relaxations. (1) All intervals have the smallest size. (2) Only the sum of bytes times duration
                    over the whole life of the cache is limited, and the cheapest intervals are chosen first

The result is exact if the bounds are equal. Without latency both bounds have the same intervals, so with equal sizes
the result is exact. A policy reports one of the bounds. The reported bytes and storage reads are those of the lower
bound's choice. But there are never more storage reads than entries that the reported bound reads.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fuzz.workloads.caches.cache import Cache, Environment, Reading, Rules
from fuzz.workloads.caches.simple import runs

#: A time in microseconds, and the number of the event; infinity: after all events of this time. The bytes of an
#: interval that ends in an event are free for intervals that start in this event or later.
Moment = tuple[int, float]


class Interval(NamedTuple):
    """The time between two consecutive uses of an entry."""

    start: Moment
    end: Moment
    size: int


class Use(NamedTuple):
    """A group of reads of an entry, described by the first read."""

    request: int
    topic: int
    entry: int
    interval: int  # index of the interval that ends in this use; -1: there is none, and the use is a miss


def kept(intervals: Sequence[Interval], capacity: int) -> list[bool]:
    """Returns for each interval whether the sweep keeps it. Optimal if sizes are equal. O(n log n).

    `capacity` is in bytes.
    """
    chosen = [False] * len(intervals)
    by_start = sorted(range(len(intervals)), key=lambda i: intervals[i].start)
    first_to_end: list[tuple[Moment, int]] = []  # a heap of the kept intervals
    last_to_end: list[tuple[float, float, int]] = []  # the same intervals in reverse order
    used = 0
    for i in by_start:
        each = intervals[i]
        if each.end <= each.start:  # takes no bytes
            chosen[i] = True
            continue
        while first_to_end and first_to_end[0][0] <= each.start:
            _, ended = heapq.heappop(first_to_end)
            if chosen[ended]:
                used -= intervals[ended].size
        chosen[i] = True
        used += each.size
        heapq.heappush(first_to_end, (each.end, i))
        heapq.heappush(last_to_end, (-each.end[0], -each.end[1], i))
        while used > capacity:
            dropped = heapq.heappop(last_to_end)[2]
            if chosen[dropped] and intervals[dropped].end > each.start:
                chosen[dropped] = False
                used -= intervals[dropped].size
    return chosen


def most_by_area(intervals: Sequence[Interval], capacity: int) -> int:
    """Returns an upper bound on the number of intervals that fit. O(n log n).

    The sum of bytes times duration of the chosen intervals is at most that of the cache.
    """
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
    """Returns the most bytes that chosen intervals hold at once, and the sum of bytes times duration. O(n log n)."""
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
    """The result of the optimum for the life of one cache."""

    storage_reads: int
    storage_entries: int
    bytes_peak: int
    byte_us: int  # the sum of bytes times microseconds in the cache
    is_exact: bool  # whether lower and upper bound are equal


class Optimum(Cache):
    """Records uses instead of caching. Valid only if readers do not wait for misses: then the stream is given."""

    def __init__(self, env: Environment, share: float = 1.0, ttl_us: int | None = None, lower: bool = False) -> None:
        """Uses a `share` of the bytes, and intervals of at most `ttl_us`. `lower`: `solve` reports the lower bound."""
        super().__init__(env, Rules())
        self._capacity = int(env.max_bytes * share)
        self._ttl_us = ttl_us
        self._lower = lower
        self._events = self._requests = 0
        #: entry -> the time at which a storage read for its last use is answered
        self._answered_at: dict[tuple[int, int], Moment] = {}
        self._last_read: dict[tuple[int, int], Moment] = {}  # entry -> the last read of its last use, or its add
        self._interval: dict[tuple[int, int], int] = {}  # entry -> the interval that ends in its last use
        self._joined_until: dict[tuple[int, int], int] = {}  # entry -> end of the group of its last use
        self._shortest: list[Interval] = []  # the intervals of the upper bound
        self._held: list[Interval] = []  # the intervals of the lower bound
        self._uses: list[Use] = []

    def add(self, topic: int, entry: int) -> None:
        """See `Cache.add`."""
        self._events += 1
        self._answered_at[topic, entry] = self._last_read[topic, entry] = (self.now_us, self._events)

    def read(self, topic: int, cursor: int, first: int, last: int, replayed: bool) -> Reading:  # noqa: ARG002
        """Records the uses of the entries. The request completes at once, and no storage read is issued."""
        self._events += 1
        self._requests += 1
        now: Moment = (self.now_us, self._events)
        for entry in range(first, last + 1):
            key = (topic, entry)
            if self.now_us < self._joined_until.get(key, -1):  # -1: no group yet
                number = self._interval[key]
                if number >= 0:
                    self._held[number] = self._held[number]._replace(end=now)
            else:
                self._use(key, now)
            self._last_read[key] = now
        self.answered.append((self._requests, ()))
        return Reading(self._requests, [])

    def _use(self, key: tuple[int, int], now: Moment) -> None:
        """Records the first read of a group. It ends an interval if the last use was answered at most `_ttl_us` ago."""
        latency, size = self.env.latency_us, self.env.logs[key[0]].sizes[key[1]]
        start, number = self._answered_at.get(key), -1
        if start is not None and (self._ttl_us is None or now[0] - start[0] <= self._ttl_us):
            number = len(self._held)
            # a read at the time of the answer comes after the answer
            self._shortest.append(Interval(min(start, now), now, size))
            self._held.append(Interval(self._last_read[key], now, size))
        self._interval[key] = number
        self._uses.append(Use(self._requests, *key, number))
        self._joined_until[key] = self.now_us + latency
        self._answered_at[key] = (self.now_us + latency, math.inf) if latency else now

    def complete(self, storage_read: int) -> None:
        """Never called: no storage read is issued."""

    def size(self) -> int:
        """Returns 0: the size is known only after `solve`."""
        return 0

    def solve(self) -> Solved:
        """Returns the result for the stream so far, which reports one of the bounds on hits. O(n log n)."""
        chosen = kept(self._held, self._capacity)
        least = sum(chosen)
        sizes = {i.size for i in self._held}
        if len(sizes) <= 1:
            most = sum(kept(self._shortest, self._capacity))
        else:
            alike = kept([i._replace(size=1) for i in self._shortest], self._capacity // max(1, min(sizes)))
            most = min(sum(alike), most_by_area(self._shortest, self._capacity))
        peak, byte_us = occupancy(self._held, chosen)
        missed = [use for use in self._uses if use.interval < 0 or not chosen[use.interval]]
        entries = len(self._uses) - (least if self._lower else most)
        return Solved(min(sum(1 for _ in _gaps(missed)), entries), entries, peak, byte_us, least == most)


def _gaps(missed: Sequence[Use]) -> Iterator[tuple[int, int]]:
    """Yields the storage reads of missed entries: one for each maximal range in each request."""
    by_request: dict[tuple[int, int], list[int]] = {}
    for use in missed:
        by_request.setdefault((use.request, use.topic), []).append(use.entry)
    for entries in by_request.values():
        yield from runs(entries)
