"""When a size pass starts, and how many bytes it must free (`RangeEntryCacheManagerImpl`, PIP-430).

`updateCacheSizeAndThreshold` and `doEvictToWatermarkWhenOverThreshold` multiply a long by a double and cast the
product to long. Python computes the same: its float is an IEEE 754 double, and both round longs above 2**53.
"""

from __future__ import annotations

#: `evictionTriggerThresholdPercent`: `evictionTriggerThreshold` as a fraction of the maximum size. A constant of the
#: broker, not a setting.
TRIGGER_SHARE = 0.98


def share_of(max_bytes: int, share: float) -> int:
    """Returns a fraction of the maximum size: the product of two doubles, truncated."""
    return int(max_bytes * share)


def is_over_threshold(total_bytes: int, max_bytes: int) -> bool:
    """Whether the total size is strictly above `evictionTriggerThreshold`."""
    return total_bytes > share_of(max_bytes, TRIGGER_SHARE)


def bytes_to_evict(total_bytes: int, max_bytes: int, watermark: float) -> int:
    """`sizeToEvict`: returns the bytes above the watermark, a fraction of the maximum; may be zero or negative."""
    return total_bytes - share_of(max_bytes, watermark)
