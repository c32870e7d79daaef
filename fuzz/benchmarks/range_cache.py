"""Benchmarks of eviction: how the cost of evicting expired entries depends on the number of caches.

We measure one time pass over the central removal queue of all caches (PIP-430). The baseline is the eviction before
PIP-430 (legacy), which makes a time pass over each cache.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

from fuzz.benchmarks.runner import Benchmark, Line, Measured, Plot, Point
from impl.legacy_cache import LegacyCaches
from impl.range_cache import RangeCaches
from model import legacy_cache, range_cache
from model.positions import Position

FEW, MANY = 10, 10_000
#: Entries in all caches together, and how many of them have expired.
ENTRIES, EXPIRED = 20_000, 2_000
#: Number of measurements of `growth`, and of `cycle`.
_TURNS, _CYCLES = 15, 5
#: Numbers of caches, one for each topic. `cycle` compares one central pass with a legacy pass over each cache.
TOPICS = (10, 100, 1_000, 10_000, 100_000)


def central_pass(caches: int) -> float:
    """Returns the processor seconds of one time pass over the central queue, which evicts EXPIRED entries."""
    central = RangeCaches(range_cache.Config(caches=caches))
    for i in range(ENTRIES):
        if i == EXPIRED:
            central.advance(10)
        central.put(i % caches, Position(1, i // caches), 100, 0)
    started = time.process_time()
    removed = central.time_pass(10)
    seconds = time.process_time() - started
    assert removed.entries == EXPIRED, removed
    return seconds


def legacy_round(caches: int) -> float:
    """Returns the processor seconds of one legacy time pass over each cache; together they evict EXPIRED entries."""
    legacy = LegacyCaches(legacy_cache.Config(caches=caches))
    for i in range(ENTRIES):
        legacy.put(i % caches, Position(1, i // caches), 100, 0 if i < EXPIRED else 10)
    started = time.process_time()
    # the legacy pass also evicts entries at the threshold itself
    removed = [legacy.time_pass(cache, 9) for cache in range(caches)]
    seconds = time.process_time() - started
    assert sum(r.entries for r in removed) == EXPIRED
    return seconds


def growth(cost: Callable[[int], float]) -> float:
    """Returns the median cost with MANY caches divided by the median cost with FEW, measured alternately."""
    pairs = [(cost(MANY), cost(FEW)) for _ in range(_TURNS)]
    return statistics.median(p[0] for p in pairs) / statistics.median(p[1] for p in pairs)


def eviction() -> Measured:
    """Measures by which factor the cost grows from FEW to MANY caches: of a central pass; baseline: legacy passes."""
    ours, before = growth(central_pass), growth(legacy_round)
    return Measured(ours, before, before / ours)


def cycle(caches: int) -> Measured:
    """Measures the microseconds of a pass over so many caches: of a central pass; baseline: legacy passes."""
    pairs = [(central_pass(caches), legacy_round(caches)) for _ in range(_CYCLES)]
    ours, before = (statistics.median(column) * 1e6 for column in zip(*pairs, strict=True))
    return Measured(ours, before, before / ours)


benchmarks = [
    Benchmark(
        "eviction",
        "",
        f"times the cost with {FEW} caches",
        f"a time pass over {MANY:,} caches, against the legacy time eviction",
        eviction,
    ),
    *[
        Benchmark(
            "eviction",
            str(topics),
            "us",
            f"a cycle that evicts {EXPIRED:,} of {ENTRIES:,} entries of {topics:,} topics; baseline: legacy passes",
            partial(cycle, topics),
        )
        for topics in TOPICS
    ],
]

plots = (
    Plot(
        "Cost of an eviction cycle",
        f"{EXPIRED:,} of {ENTRIES:,} entries have expired. Without the central queue, every topic's cache is visited.",
        "topics",
        "microseconds",
        (
            Line("central queue", tuple([Point(n, f"eviction.{n}") for n in TOPICS])),
            Line("legacy passes", tuple([Point(n, f"eviction.{n}", "baseline") for n in TOPICS])),
        ),
    ),
)
