"""When the broker starts a size pass, and how much it asks for.

Source: semantics of `RangeEntryCacheManagerImpl` after PIP-430, section "High Level Design", part 1.

The broker multiplies a long by a double and cuts the product to a long. The product is rounded to the
nearest double before it is cut, and so are these functions: Python's float is the same IEEE 754 double.
Above 2**53 bytes the whole numbers themselves are rounded first; such a cache does not exist.
"""

from __future__ import annotations

#: The share of the maximum above which eviction starts. A constant in the broker, not a setting.
TRIGGER_SHARE = 0.98


def share_of(max_bytes: int, share: float) -> int:
    """The whole bytes of a share of the maximum: a double product cut to a long."""
    return int(max_bytes * share)


def is_over_threshold(total_bytes: int, max_bytes: int) -> bool:
    """Eviction starts strictly above the trigger's share of the maximum."""
    return total_bytes > share_of(max_bytes, TRIGGER_SHARE)


def bytes_to_evict(total_bytes: int, max_bytes: int, watermark: float) -> int:
    """What a size pass is asked to free: down to the watermark. Not positive when already below it."""
    return total_bytes - share_of(max_bytes, watermark)
