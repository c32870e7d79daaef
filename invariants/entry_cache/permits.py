"""Permits of the reads in flight (`InflightReadsLimiter`): how many a read asks for, and when it gives up."""

from __future__ import annotations

from invariants.properties import Event, always
from model.entry_cache.machine import entry_cache
from model.entry_cache.state import Config, Reading, State


@always(entry_cache, on=("read", "read_one"), given=lambda cfg: cfg.max_reads_in_flight_bytes > 0)
def read_asks_for_its_estimated_size(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read asks for the mean entry size of its ledger, at least 1, and 64 bytes for each of its entries.

    A read that asks for more than the maximum gets all permits.
    """
    number, asked = before.next_request, event.arguments
    wanted = {w.permits for w in after.limiter.waiting if w.request == number}
    granted = {g.permits for g in after.limiter.grants if g.request == number}
    position = asked.get("position")
    ledger, first, last = (asked["ledger"], asked["first"], asked["last"]) if position is None else (*position, None)
    sizes = [
        b for each in cfg.stored if (each.cache, each.ledger) == (asked["cache"], ledger) for b in each.entry_bytes
    ]
    entries = 1 if last is None else last - first + 1
    estimate = entries * (max(sum(sizes) // max(len(sizes), 1), 1) + 64)
    return wanted <= {estimate} and granted <= {min(estimate, cfg.max_reads_in_flight_bytes)}


@always(entry_cache, on=("expire_waiting_reads",))
def timer_fails_exactly_the_overdue_requests_in_front(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The timer fails the first queued requests that have waited as long as the timeout, up to one that has not."""
    failed = [a.request for a in event.outcome.answered if not a.ok] if isinstance(event.outcome, Reading) else []
    overdue = []
    for w in before.limiter.waiting:
        if before.ranges.now_ns - w.since_ns < cfg.permits_timeout_ns:
            break
        overdue.append(w.request)
    return failed[: len(overdue)] == overdue and (cfg.storage_reads == "immediate" or len(failed) == len(overdue))
