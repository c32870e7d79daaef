"""Prometheus metrics of the broker's entry cache (`ManagedLedgerFactoryMBeanImpl`, `ManagedLedgerCacheMetrics`).

`model/entry_cache` and `model/legacy_manager` count events from the start (`Counters`). The broker also exports
insertions and evicted entries as counters, but hits, misses and size evictions as figures of a statistics period.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple


class Metric(NamedTuple):
    """A metric as the broker exports it."""

    name: str
    kind: Literal["counter", "gauge"]
    unit: str
    about: str


#: Field of `Counters` in both models -> metric.
COUNTERS = {
    "insertions": Metric("pulsar_ml_cache_inserted_entries_total", "counter", "entries", "inserted entries"),
    "evicted_entries": Metric(
        "pulsar_ml_cache_evicted_entries_total", "counter", "entries", "entries removed by eviction or invalidation"
    ),
    "size_evictions": Metric("pulsar_ml_cache_evictions", "gauge", "evictions", "size evictions in the last minute"),
    "hit_entries": Metric("pulsar_ml_cache_hits_rate", "gauge", "entries/s", "entries read from the cache"),
    "hit_bytes": Metric("pulsar_ml_cache_hits_throughput", "gauge", "bytes/s", "bytes read from the cache"),
    "miss_entries": Metric("pulsar_ml_cache_misses_rate", "gauge", "entries/s", "entries read from storage"),
    "miss_bytes": Metric("pulsar_ml_cache_misses_throughput", "gauge", "bytes/s", "bytes read from storage"),
}

#: `pulsar_ml_cache_entries`: inserted minus evicted entries.
ENTRIES = Metric("pulsar_ml_cache_entries", "gauge", "entries", "cached entries")
#: The total size. Without `managedLedgerCacheCopyEntries`, more memory can be in use (`pinned_bytes`).
USED_SIZE = Metric("pulsar_ml_cache_used_size", "gauge", "bytes", "sum of the cached entries' lengths")


def pinned_bytes(answers: Iterable[Iterable[tuple[int, bool]]], *, copies_entries: bool = False) -> int:
    """Returns the bytes of memory that cached entries keep in use, which eviction does not consider.

    `answers` has the answers of storage to reads: for each of its entries, the length and whether the entry is cached.
    With `managedLedgerCacheCopyEntries` (`copies_entries`), a cached entry keeps its own length in use. Otherwise, it
    is a slice of the answer's buffer and keeps the whole buffer in use.
    """
    total = 0
    for answer in answers:
        entries = list(answer)
        cached = sum([length for length, is_cached in entries if is_cached])
        keeps_all = not copies_entries and any(is_cached for _, is_cached in entries)
        total += sum([length for length, _ in entries]) if keeps_all else cached
    return total
