"""The clock and the dynamic settings of the entry cache."""

from __future__ import annotations

from typing import Any

from invariants.properties import Event, always
from model.entry_cache.machine import entry_cache
from model.entry_cache.state import Config, State


@always(entry_cache)
def time_and_settings_change_only_by_their_actions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The clock and each dynamic setting change only by their own action, which changes nothing else.

    `advance` adds its argument to the clock; a setter gives its setting the given value.
    """
    value: Any = event.arguments.get("value")
    ranges = before.ranges
    expected = {
        "advance": lambda: before._replace(ranges=ranges._replace(now_ns=ranges.now_ns + event.arguments["nanos"])),
        "set_max_cache_bytes": lambda: before._replace(max_bytes=value),
        "set_eviction_watermark": lambda: before._replace(watermark=value),
        "set_max_requeue_times": lambda: before._replace(ranges=ranges._replace(max_requeue_times=value)),
        "set_extend_ttl": lambda: before._replace(ranges=ranges._replace(extend_ttl_of_recently_accessed=value)),
    }
    if event.name in expected:
        return bool(after == expected[event.name]())
    return _settings(after) == _settings(before)


def _settings(s: State) -> tuple[object, ...]:
    """Returns the clock and the dynamic settings."""
    ranges = s.ranges
    return (ranges.now_ns, s.max_bytes, s.watermark, ranges.max_requeue_times, ranges.extend_ttl_of_recently_accessed)
