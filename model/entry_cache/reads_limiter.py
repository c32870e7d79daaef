"""How much memory reads from storage may be promised at a time (the broker's InflightReadsLimiter).

Source: semantics of `InflightReadsLimiter` after pull requests 23901 and 26296. A side model: `model/entry_cache/machine.py`
asks it before every read and tells it when a read's last entry is given back.

    acquire   it fits: taken at once, even when others wait
              it never fits, and everything is free: everything is taken
              otherwise it waits in a queue, unless the queue is full
    release   the permits come back; then from the head of the queue:
              waited too long -> failed; fits -> granted; else stop
    expire    from the head: waited long enough -> failed; then as at a release

A limiter whose maximum is 0 is switched off. Not modelled: callbacks that throw (the broker loses their permits).
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
    """Permits that a request holds until the last of its entries is given back."""

    request: int
    permits: int  # bytes
    copies: tuple[int, ...]  # its entries that are not yet given back; none before it is answered


@record
class Limiter(NamedTuple):
    """The permits that are left, who waits for some, and who holds the others."""

    free: int  # bytes
    waiting: tuple[Waiting, ...]  # the one that waits longest first
    grants: tuple[Grant, ...]  # by request


class Rules(NamedTuple):
    """The limiter's settings."""

    max_bytes: int  # 0: switched off
    queue_size: int
    timeout_ns: int


Answer = Literal["granted", "waiting", "refused"]


def start(rules: Rules) -> Limiter:
    """All permits are free."""
    return Limiter(rules.max_bytes, (), ())


def fits(rules: Rules, free: int, permits: int) -> bool:
    """There are enough, or there can never be enough and nobody holds any."""
    return free >= permits or (permits > rules.max_bytes and free == rules.max_bytes)


def is_overdue(waiting: Waiting, now_ns: int, timeout_ns: int) -> bool:
    """At a release, who has waited longer than the timeout."""
    return now_ns - waiting.since_ns > timeout_ns


def is_expired(waiting: Waiting, now_ns: int, timeout_ns: int) -> bool:
    """At the timer, who has waited as long as the timeout."""
    return now_ns - waiting.since_ns >= timeout_ns


def take(rules: Rules, limiter: Limiter, request: int, permits: int) -> Limiter:
    """The request holds its permits, or all there are if it wants more than that."""
    taken = min(permits, rules.max_bytes)
    grants = tuple(sorted((*limiter.grants, Grant(request, taken, ()))))
    return limiter._replace(free=limiter.free - taken, grants=grants)


def acquire(rules: Rules, limiter: Limiter, request: int, permits: int, now_ns: int) -> tuple[Limiter, Answer]:
    """A request asks for permits. Small ones overtake those that wait."""
    if rules.max_bytes == 0:
        return limiter, "granted"
    if fits(rules, limiter.free, permits):
        return take(rules, limiter, request, permits), "granted"
    if len(limiter.waiting) >= rules.queue_size:
        return limiter, "refused"
    return limiter._replace(waiting=(*limiter.waiting, Waiting(request, permits, now_ns))), "waiting"


def give_back(limiter: Limiter, request: int) -> Limiter:
    """The request's permits are free again."""
    for grant in limiter.grants:
        if grant.request == request:
            others = tuple(g for g in limiter.grants if g is not grant)
            return limiter._replace(free=limiter.free + grant.permits, grants=others)
    return limiter


def hand_on(rules: Rules, limiter: Limiter, now_ns: int) -> tuple[Limiter, list[int], list[int]]:
    """After a release, from the head of the queue: the requests that are granted, and those that waited too long."""
    granted: list[int] = []
    failed: list[int] = []
    while limiter.waiting:
        head, rest = limiter.waiting[0], limiter.waiting[1:]
        if is_overdue(head, now_ns, rules.timeout_ns):
            limiter = limiter._replace(waiting=rest)
            failed.append(head.request)
        elif fits(rules, limiter.free, head.permits):
            limiter = take(rules, limiter._replace(waiting=rest), head.request, head.permits)
            granted.append(head.request)
        else:
            break
    return limiter, granted, failed


def expire(rules: Rules, limiter: Limiter, now_ns: int) -> tuple[Limiter, list[int]]:
    """At the timer, from the head of the queue: the requests that waited as long as the timeout."""
    failed: list[int] = []
    while limiter.waiting and is_expired(limiter.waiting[0], now_ns, rules.timeout_ns):
        failed.append(limiter.waiting[0].request)
        limiter = limiter._replace(waiting=limiter.waiting[1:])
    return limiter, failed
