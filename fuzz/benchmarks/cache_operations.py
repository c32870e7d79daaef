"""Benchmarks of our range caches against well-known Python caches, on the same stream of adds and reads.

Producers add entries, and subscriptions read them at constant lags. A missing entry is added again. All caches have
the same capacity in entries, and evict the others. Our caches also keep sizes, timestamps and expected read counts.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import time
from collections.abc import Callable
from typing import Any

from fuzz.benchmarks.runner import Benchmark, Measured, in_turns
from impl.range_cache import RangeCaches
from model.positions import Position
from model.range_cache import Config

#: Topics, entries and subscriptions of each topic, entries between two subscriptions, and entries that a cache holds.
TOPICS, ENTRIES, FAN_OUT, LAG, CAPACITY = 4, 10_000, 5, 300, 4_000
#: For each operation: whether it is an add (otherwise a read), the entry's topic and the entry's number.
Stream = list[tuple[bool, int, int]]


def stream() -> Stream:
    """Returns a stream that adds entries to the topics in turn.

    After each add, the topic's subscriptions read one entry each; the i-th subscription is i * LAG entries behind.
    """
    events: Stream = []
    for at in range(ENTRIES):
        for topic in range(TOPICS):
            events.append((True, topic, at))
            events += [(False, topic, at - i * LAG) for i in range(FAN_OUT) if at >= i * LAG]
    return events


def ours(events: Stream) -> float:
    """Returns the operations a second of `impl/range_cache`, with size passes. Each entry has 100 bytes."""
    caches = RangeCaches(Config(caches=TOPICS, max_bytes=CAPACITY * 100))
    started = time.perf_counter()
    for is_add, topic, entry in events:
        position = Position(1, entry)
        if is_add:
            caches.put(topic, position, 100, FAN_OUT)
            caches.evict_to_watermark()
        elif caches.get(topic, position, False) is None:  # False: without a copy for the reader
            caches.put(topic, position, 100, 1)
            caches.evict_to_watermark()
        else:
            caches.mark_read(topic, position)
    return len(events) / (time.perf_counter() - started)


def speed_of(make: Callable[[], Any]) -> Callable[[Stream], float]:
    """Returns a function that measures the operations a second of the cache that `make` returns, which is a mapping."""

    def run(events: Stream) -> float:
        cache = make()
        started = time.perf_counter()
        for is_add, topic, entry in events:
            key = (topic, entry)
            if is_add or cache.get(key) is None:
                cache[key] = entry
        return len(events) / (time.perf_counter() - started)

    return run


def memoised(events: Stream) -> float:
    """Returns the operations a second of `functools.lru_cache`. An add and a read are the same call."""

    @functools.lru_cache(CAPACITY)
    def load(topic: int, entry: int) -> int:  # noqa: ARG001
        return entry

    started = time.perf_counter()
    for _, topic, entry in events:
        load(topic, entry)
    return len(events) / (time.perf_counter() - started)


def maker_of(module: str, name: str, *arguments: Any) -> Callable[[], Any]:
    """Returns a function that makes a cache of a module's class, with the capacity and further arguments."""
    return lambda: getattr(importlib.import_module(module), name)(CAPACITY, *arguments)


#: Name of the benchmark -> module and measurement of a library. A library that is not installed has no benchmark.
LIBRARIES: dict[str, tuple[str, Callable[[Stream], float]]] = {
    "functools_lru_cache": ("functools", memoised),
    "cachetools_lru": ("cachetools", speed_of(maker_of("cachetools", "LRUCache"))),
    "cachetools_fifo": ("cachetools", speed_of(maker_of("cachetools", "FIFOCache"))),
    "cachetools_ttl": ("cachetools", speed_of(maker_of("cachetools", "TTLCache", 60))),
    "lru_dict": ("lru", speed_of(maker_of("lru", "LRU"))),
    "cachebox_lru": ("cachebox", speed_of(maker_of("cachebox", "LRUCache"))),
}


def against(library: Callable[[Stream], float]) -> Measured:
    """Measures our caches and a library's on the same stream."""
    events = stream()
    value, baseline = in_turns(lambda: ours(events), lambda: library(events))
    return Measured(value, baseline, value / baseline)


benchmarks = [
    Benchmark(
        "cache_operations",
        name,
        "operations/s",
        f"adds and reads of range caches with read counts; baseline: {name}",
        functools.partial(against, library),
    )
    for name, (module, library) in LIBRARIES.items()
    if importlib.util.find_spec(module) is not None
]
