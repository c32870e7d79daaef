"""Values of the entry cache's Prometheus metrics, which `model/cache_metrics.py` describes."""

from __future__ import annotations

from model.cache_metrics import COUNTERS, ENTRIES, USED_SIZE, Metric
from model.entry_cache.state import Counters


def scrape(before: Counters, now: Counters, used_bytes: int, seconds: float) -> dict[str, float]:
    """Returns the value of each metric at the end of a statistics period with this length in seconds. O(1).

    `before` are the counters at the start of the period. Counters count from the broker's start; rates are per second.
    """
    values: dict[str, float] = {USED_SIZE.name: used_bytes}
    values[ENTRIES.name] = now.insertions - now.evicted_entries
    for field, metric in COUNTERS.items():
        values[metric.name] = _value(metric, getattr(before, field), getattr(now, field), seconds)
    return values


def _value(metric: Metric, before: int, now: int, seconds: float) -> float:
    # a counter has the events since the broker's start; a gauge has those of the period, per second or in total
    if metric.kind == "counter":
        return now
    return (now - before) / seconds if metric.unit.endswith("/s") else now - before
