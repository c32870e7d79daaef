"""Bytes that storage reads may occupy at a time: `InflightReadsLimiter`, as in `model/entry_cache/reads_limiter.py`.

The permits of a request are found by its number, and the request by the number of a copy, so a release costs the same
whatever the number of reads in flight.
"""

from __future__ import annotations

from collections import deque

from impl.entry_cache.shared_reads import Asking
from model.entry_cache.reads_limiter import Grant, Limiter, Rules, Waiting


class Permits:
    """The limiter of reads in flight."""

    def __init__(self, rules: Rules) -> None:
        self.most, self.queue_size, self.timeout_ns = rules
        self.free = self.most
        self.waiting: deque[tuple[Asking, int, int]] = deque()  # request, permits, queued at
        self.held: dict[int, list[int]] = {}  # request -> permits, copies not yet released
        self.of_copy: dict[int, int] = {}

    def fits(self, permits: int) -> bool:
        """Whether a request for these permits can be granted now. O(1)."""
        return self.free >= permits or (permits > self.most and self.free == self.most)

    def take(self, request: int, permits: int) -> None:
        """Grants a request its permits, at most all of them. O(1)."""
        taken = min(permits, self.most)
        self.free -= taken
        self.held[request] = [taken, 0]

    def acquire(self, asking: Asking, permits: int, now_ns: int) -> str:
        """Grants permits, or queues or refuses the request. Returns granted, waiting or refused. O(1)."""
        if not self.most:
            return "granted"
        if self.fits(permits):
            self.take(asking.number, permits)
            return "granted"
        if len(self.waiting) >= self.queue_size:
            return "refused"
        self.waiting.append((asking, permits, now_ns))
        return "waiting"

    def free_permits(self, request: int) -> bool:
        """Frees the permits of a request. Returns whether it had any. O(1)."""
        held = self.held.pop(request, None)
        if held is None:
            return False
        self.free += held[0]
        return True

    def bind(self, request: int, copies: list[int]) -> None:
        """Ties a request's permits to copies: they are freed with the release of the last one. O(n)."""
        self.held[request][1] = len(copies)
        self.of_copy.update((copy, request) for copy in copies)

    def last_of(self, copy: int) -> int | None:
        """Releases a copy. Returns its request if that was the request's last copy. O(1)."""
        request = self.of_copy.pop(copy, None)
        if request is None:
            return None
        held = self.held[request]
        held[1] -= 1
        return None if held[1] else request

    def grant_queued(self, now_ns: int) -> tuple[list[Asking], list[Asking]]:
        """From the head of the queue: requests that are granted permits, and requests past the timeout. O(both)."""
        granted: list[Asking] = []
        failed: list[Asking] = []
        while self.waiting:
            asking, permits, since_ns = self.waiting[0]
            if now_ns - since_ns > self.timeout_ns:
                failed.append(asking)
            elif self.fits(permits):
                self.take(asking.number, permits)
                granted.append(asking)
            else:
                break
            self.waiting.popleft()
        return granted, failed

    def expire(self, now_ns: int) -> list[Asking]:
        """The timer: removes requests past the timeout from the head of the queue. O(those)."""
        failed = []
        while self.waiting and now_ns - self.waiting[0][2] >= self.timeout_ns:
            failed.append(self.waiting.popleft()[0])
        return failed

    def view(self) -> Limiter:
        """The model's limiter. O(all)."""
        if not self.held and not self.waiting:
            return Limiter(self.free, (), ())
        copies: dict[int, list[int]] = {}
        for copy, request in sorted(self.of_copy.items()):
            copies.setdefault(request, []).append(copy)
        waiting = tuple([Waiting(asking.number, permits, since_ns) for asking, permits, since_ns in self.waiting])
        grants = [Grant(request, held[0], tuple(copies.get(request, ()))) for request, held in self.held.items()]
        return Limiter(self.free, waiting, tuple(sorted(grants)))

    def load(self, limiter: Limiter, requests: dict[int, Asking]) -> None:
        """Takes over the model's limiter; `requests` has the queued ones by number. O(all)."""
        self.free = limiter.free
        self.waiting.extend((requests[request], permits, since_ns) for request, permits, since_ns in limiter.waiting)
        for request, permits, copies in limiter.grants:
            self.held[request] = [permits, len(copies)]
            self.of_copy.update((copy, request) for copy in copies)
