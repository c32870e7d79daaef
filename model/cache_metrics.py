"""Prometheus metrics of the broker's entry cache (`ManagedLedgerFactoryMBeanImpl`, `ManagedLedgerCacheMetrics`).

`COUNTERS` names the metric of each field of `Counters` in `model/entry_cache` and `model/legacy_manager`. The broker
exports hits, misses and evictions as rates of its statistics period; the models count events from the start.
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


#: Field of `Counters` -> metric.
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
#: The total size. Without `managedLedgerCacheCopyEntries` it is less than the memory in use; see `pinned_bytes`.
USED_SIZE = Metric("pulsar_ml_cache_used_size", "gauge", "bytes", "sum of the cached entries' lengths")


def pinned_bytes(answers: Iterable[Iterable[tuple[int, bool]]], *, copies_entries: bool = False) -> int:
    """Returns the bytes of memory that cached entries keep in use. Eviction depends on the total size instead.

    `answers` has the answers of storage. An answer is a list of entries; an entry is (length, whether it is cached).
    Without `managedLedgerCacheCopyEntries` (`copies_entries`), a cached entry is a slice of the answer's buffer and
    keeps the whole buffer in use. With this setting, a cached entry keeps only its own length in use.
    """
    total = 0
    for answer in answers:
        entries = list(answer)
        cached = sum([length for length, is_cached in entries if is_cached])
        keeps_all = not copies_entries and any(is_cached for _, is_cached in entries)
        total += sum([length for length, _ in entries]) if keeps_all else cached
    return total
