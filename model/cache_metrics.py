"""Prometheus metrics of the broker's entry cache (`ManagedLedgerFactoryMBeanImpl`, `ManagedLedgerCacheMetrics`).

`model/entry_cache` and `model/legacy_manager` count events from the start (`Counters`). The broker does this only for
insertions and evicted entries. Of hits, misses and size evictions, it exports the value of the last statistics period.
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
    """Returns the bytes of memory that cached entries from storage keep in use. Eviction considers only the total size.

    Storage answers a read with one buffer. Each item of `answers` is an answer: for each entry in the buffer, its
    length, and whether it is still cached. A cached entry is a slice of the buffer, and keeps the whole buffer in use.
    With `managedLedgerCacheCopyEntries` (`copies_entries`), the cached entry is a copy, and keeps only its own length.
    """
    total = 0
    for answer in answers:
        entries = list(answer)
        cached = sum([length for length, is_cached in entries if is_cached])
        keeps_all = not copies_entries and any(is_cached for _, is_cached in entries)
        total += sum([length for length, _ in entries]) if keeps_all else cached
    return total
