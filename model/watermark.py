"""When a size pass starts, and how many bytes it frees (`RangeEntryCacheManagerImpl`, PIP-430).

`updateCacheSizeAndThreshold` and `doEvictToWatermarkWhenOverThreshold` multiply a long by a double and cast the
product to long. Python's float is the same IEEE 754 double. Above 2**53 bytes the long itself would be rounded.
"""

from __future__ import annotations

#: `evictionTriggerThresholdPercent`: a constant of the broker, not a setting.
TRIGGER_SHARE = 0.98


def share_of(max_bytes: int, share: float) -> int:
    """A fraction of the maximum size: the double product, truncated."""
    return int(max_bytes * share)


def is_over_threshold(total_bytes: int, max_bytes: int) -> bool:
    """Whether the total size is strictly above `evictionTriggerThreshold`."""
    return total_bytes > share_of(max_bytes, TRIGGER_SHARE)


def bytes_to_evict(total_bytes: int, max_bytes: int, watermark: float) -> int:
    """`sizeToEvict`: the bytes above the watermark; not positive at or below it."""
    return total_bytes - share_of(max_bytes, watermark)
