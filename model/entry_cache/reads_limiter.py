"""Limiter of the bytes of the reads in flight (`InflightReadsLimiter`): a read needs a permit per estimated byte.

Source: the class in Pulsar 4.1; requests are queued since apache/pulsar#23901. Settings:
`managedLedgerMaxReadsInFlight*`. In every profile, a read of a disabled cache needs permits, too (in Pulsar since
apache/pulsar#26296).

    acquire   a request fits if its permits are free, or if it exceeds the maximum and all permits are free. A request
              that fits is granted at once, even if others wait. Any other request is queued, or rejected if the queue
              is full
    release   permits are returned. Then, from the head of the queue: a request that has waited longer than the timeout
              fails; a request that fits is granted; the first other request, and all behind it, keep waiting
    timer     from the head of the queue, requests that have waited as long as the timeout, or longer, fail. If any
              fails, the timer then grants requests as a release does (with `timer_grants_next`)

A maximum of 0 switches the limiter off. Not modelled: callbacks that throw (the broker loses their permits); a timeout
of 0 or less, with which no request times out; that `SpscArrayQueue` rounds its capacity up to a power of two (with the
default of 10,000 it admits 16,384 requests).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from model.values import record


class Waiting(NamedTuple):
    """A request that waits for permits."""

    request: int
    permits: int  # bytes
    since_ns: int


class Grant(NamedTuple):
    """Permits that a request holds while it is pending, and then until all its delivered entries are released."""

    request: int
    permits: int  # bytes
    copies: tuple[int, ...]  # the delivered copies that are not released; none while the request is pending


@record
class Limiter(NamedTuple):
    """Free permits, the queue, and granted permits."""

    free: int  # bytes
    waiting: tuple[Waiting, ...]  # in order of arrival
    grants: tuple[Grant, ...]  # in the order of the requests' numbers


class Settings(NamedTuple):
    """The limiter's settings."""

    max_bytes: int  # 0: switched off
    queue_size: int
    timeout_ns: int


#: Outcome of `acquire`. waiting: the request is queued. rejected: the queue is full.
Verdict = Literal["granted", "waiting", "rejected"]


def start(settings: Settings) -> Limiter:
    """Returns the initial state: all permits are free."""
    return Limiter(settings.max_bytes, (), ())


def fits(settings: Settings, free: int, permits: int) -> bool:
    """Whether a request fits: enough permits are free, or the request exceeds the maximum and all are free."""
    return free >= permits or (permits > settings.max_bytes and free == settings.max_bytes)


def fails_at_release(waiting: Waiting, now_ns: int, timeout_ns: int) -> bool:
    """`internalRelease`: whether a queued request has waited longer than the timeout."""
    return now_ns - waiting.since_ns > timeout_ns


def fails_at_timer(waiting: Waiting, now_ns: int, timeout_ns: int) -> bool:
    """`timeoutCheck`: whether a queued request has waited as long as the timeout, or longer."""
    return now_ns - waiting.since_ns >= timeout_ns


def take(settings: Settings, limiter: Limiter, request: int, permits: int) -> Limiter:
    """Returns the limiter after a request was granted its permits, or all permits if it exceeds the maximum."""
    taken = min(permits, settings.max_bytes)
    grants = tuple(sorted((*limiter.grants, Grant(request, taken, ()))))
    return limiter._replace(free=limiter.free - taken, grants=grants)


def acquire(settings: Settings, limiter: Limiter, request: int, permits: int, now_ns: int) -> tuple[Limiter, Verdict]:
    """`acquire`: a request that fits is granted at once, and so overtakes queued ones.

    Any other request is queued, or rejected if the queue is full. If the maximum is 0, every request is granted.
    """
    if settings.max_bytes == 0:
        return limiter, "granted"
    if fits(settings, limiter.free, permits):
        return take(settings, limiter, request, permits), "granted"
    if len(limiter.waiting) >= settings.queue_size:
        return limiter, "rejected"
    return limiter._replace(waiting=(*limiter.waiting, Waiting(request, permits, now_ns))), "waiting"


def free_permits(limiter: Limiter, request: int) -> Limiter:
    """`internalRelease`, first part: makes the permits of a request free; no change if the request holds none."""
    for grant in limiter.grants:
        if grant.request == request:
            others = tuple(g for g in limiter.grants if g is not grant)
            return limiter._replace(free=limiter.free + grant.permits, grants=others)
    return limiter


def grant_queued(settings: Settings, limiter: Limiter, now_ns: int) -> tuple[Limiter, list[int], list[int]]:
    """`internalRelease`, second part: grants or fails queued requests, from the head of the queue.

    Returns the limiter, the granted requests and the failed ones.
    """
    granted: list[int] = []
    failed: list[int] = []
    while limiter.waiting:
        head, rest = limiter.waiting[0], limiter.waiting[1:]
        if fails_at_release(head, now_ns, settings.timeout_ns):
            limiter = limiter._replace(waiting=rest)
            failed.append(head.request)
        elif fits(settings, limiter.free, head.permits):
            limiter = take(settings, limiter._replace(waiting=rest), head.request, head.permits)
            granted.append(head.request)
        else:
            break
    return limiter, granted, failed


def expire(settings: Settings, limiter: Limiter, now_ns: int) -> tuple[Limiter, list[int]]:
    """`timeoutCheck`, the timer: removes the requests at the head that have waited as long as the timeout, or longer.

    Returns the limiter and the removed requests.
    """
    failed: list[int] = []
    while limiter.waiting and fails_at_timer(limiter.waiting[0], now_ns, settings.timeout_ns):
        failed.append(limiter.waiting[0].request)
        limiter = limiter._replace(waiting=limiter.waiting[1:])
    return limiter, failed
