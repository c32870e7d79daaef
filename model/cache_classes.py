"""The classes of Pulsar that `model/range_cache` models, and the methods that its actions name."""

from __future__ import annotations

#: The versions of Pulsar in which most rules of `model/range_cache` were recorded or read.
SHIPPED = "4.1 to master 2026-07"

RANGE_CACHE: dict[str, tuple[str, ...]] = {
    "RangeCache": ("put", "get", "getRange", "exists", "removeRange", "clear"),
    "RangeCacheRemovalQueue": (
        "evictLEntriesBeforeTimestamp",
        "evictLeastAccessedEntries",
        "getNonEvictableSize",
        "setMaxRequeueCountWhenHasExpectedReads",
        "setExtendTTLOfRecentlyAccessed",
    ),
    "RangeCacheEntryWrapper": (),
    "EntryReadCountHandlerImpl": ("markRead", "incrementExpectedReadCount"),
    "RangeEntryCacheManagerImpl": ("doEvictToWatermarkWhenOverThreshold",),
    "RangeEntryCacheImpl": ("invalidateAllEntries",),
    "EntryImpl": ("release",),
}
