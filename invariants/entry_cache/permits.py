"""Permits of the reads in flight (`InflightReadsLimiter`): which requests hold permits, wait for permits, or fail."""

from __future__ import annotations

from invariants.entry_cache.derived import answered, copy_groups, limited, reads_queued, stored_sizes
from invariants.entry_cache.reads import failed_at_once
from invariants.properties import Event, always
from model.entry_cache.machine import entry_cache
from model.entry_cache.state import Config, Reading, State
from model.machine import Refused


@always(entry_cache, on=("read", "read_one"), given=limited)
def read_asks_for_its_estimated_size(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read asks for as many permits as its estimated size; if these exceed the maximum, the read gets all permits.

    The estimate for each entry is the mean entry size of the ledger, rounded down, at least 1, plus 64 bytes.
    """
    number, estimate = before.next_request, estimated_bytes(cfg, event)
    # Both sets are empty if the read was rejected or has already failed; otherwise one of them has one element.
    wanted = {w.permits for w in after.limiter.waiting if w.request == number}
    granted = {g.permits for g in after.limiter.grants if g.request == number}
    return wanted <= {estimate} and granted <= {min(estimate, cfg.max_reads_in_flight_bytes)}


def estimated_bytes(cfg: Config, event: Event) -> int:
    """Returns the estimated size of the read that a step requests."""
    args = event.arguments
    if event.name == "read_one":
        ledger, entries = args["position"].ledger, 1
    else:
        ledger, entries = args["ledger"], args["last"] - args["first"] + 1
    sizes = stored_sizes(cfg, args["cache"], ledger)
    return int(entries * (max(sum(sizes) // max(len(sizes), 1), 1) + 64))


@always(entry_cache, on=("expire_waiting_reads",))
def timer_fails_exactly_the_overdue_requests_in_front(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The timer fails exactly the queued requests before the first one that has waited less than the timeout."""
    failed = [a.request for a in event.outcome.answered if not a.ok] if isinstance(event.outcome, Reading) else []
    overdue = []
    for w in before.limiter.waiting:
        if before.ranges.now_ns - w.since_ns < cfg.permits_timeout_ns:
            break
        overdue.append(w.request)
    # If storage answers at once, a queued request that the timer starts can also fail in this step.
    return failed[: len(overdue)] == overdue and (cfg.storage_reads == "immediate" or len(failed) == len(overdue))


@always(entry_cache)
def free_and_granted_permits_equal_maximum(cfg: Config, s: State) -> bool:
    """Free and granted permits are nonnegative and add up to the maximum.

    If the limiter is off, no permits are granted and no request waits.
    """
    granted = [g.permits for g in s.limiter.grants]
    if not limited(cfg):
        return (s.limiter.free, granted, s.limiter.waiting) == (0, [], ())
    return s.limiter.free + sum(granted) == cfg.max_reads_in_flight_bytes and min([s.limiter.free, *granted]) >= 0


@always(entry_cache, given=limited)
def request_reads_only_with_permits(cfg: Config, s: State) -> bool:
    """A pending request either waits for permits or holds them.

    A completed request holds its permits until its last delivered entry is released: the grants list exactly the open
    copies, each once, and a grant without copies belongs to a pending request.
    """
    waiting = {w.request for w in s.limiter.waiting}
    granted = {g.request for g in s.limiter.grants}
    named = sorted(copy for g in s.limiter.grants for copy in g.copies)
    if named != sorted(copy for group in copy_groups(s) for copy in group if copy > 0):
        return False
    pending = {q.number for q in s.requests}
    if not all(g.copies or g.request in pending for g in s.limiter.grants):
        return False
    waits = {q.number for q in s.requests if q.part.kind == "permits"}
    return waits == waiting & pending and granted & pending == pending - waits


@always(entry_cache, given=limited)
def first_queued_request_does_not_fit(cfg: Config, s: State) -> bool:
    """The first queued request needs more permits than are free."""
    if not s.limiter.waiting:
        return True
    wanted = min(s.limiter.waiting[0].permits, cfg.max_reads_in_flight_bytes)  # a larger request gets all permits
    return s.limiter.free < wanted


@always(entry_cache, on=("read", "read_one"), given=limited)
def idle_limiter_grants_every_read(cfg: Config, before: State, event: Event, after: State) -> bool:
    """If all permits are free, a read gets its permits at once; a read larger than the maximum gets all of them."""
    is_idle = before.limiter.free == cfg.max_reads_in_flight_bytes
    if not is_idle or isinstance(event.outcome, Refused):
        return True
    return after.limiter.waiting == before.limiter.waiting and not failed_at_once(before, event, after)


@always(entry_cache, given=limited)
def permit_queue_is_bounded(cfg: Config, s: State) -> bool:
    """At most `permits_queue_size` requests wait for permits."""
    return len(s.limiter.waiting) <= cfg.permits_queue_size


@always(entry_cache, given=lambda cfg: limited(cfg) and reads_queued(cfg))
def queued_request_fails_only_after_timeout(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A queued request fails only if it has waited at least as long as the timeout."""
    failed = {answer.request for answer in answered(event) if not answer.ok}
    least = before.ranges.now_ns - cfg.permits_timeout_ns
    return all(w.since_ns <= least for w in before.limiter.waiting if w.request in failed)


@always(entry_cache, given=limited)
def permit_queue_is_first_in_first_out(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A request joins the end of the queue with the current time. Requests leave the queue only from the head."""
    # The requests that stayed are the last ones of the old queue and the first ones of the new queue, in this order.
    was, now = before.limiter.waiting, after.limiter.waiting
    stayed = [w for w in now if w.request < before.next_request]
    joined = [w.since_ns for w in now if w.request >= before.next_request]
    keeps_order = [*now[: len(stayed)]] == stayed == [*was[len(was) - len(stayed) :]]
    return keeps_order and joined in ([], [before.ranges.now_ns])
