"""Limits the bytes of reads in flight: `InflightReadsLimiter`, as in `model/entry_cache/reads_limiter.py`.

A request gets permits for its estimated bytes, or waits for them. A dictionary maps each request to its permits, and
another maps each copy to its request, so the cost of a release does not depend on the number of reads in flight.
"""

from __future__ import annotations

from collections import deque

from impl.entry_cache.shared_reads import PendingRequest
from model.entry_cache.reads_limiter import Grant, Limiter, Settings, Waiting


class Permits:
    """The limiter of reads in flight."""

    def __init__(self, settings: Settings) -> None:
        self.maximum, self.queue_size, self.timeout_ns = settings
        self.free = self.maximum
        self.waiting: deque[tuple[PendingRequest, int, int]] = deque()  # request, permits, time of queueing
        self.held: dict[int, list[int]] = {}  # request -> permits, number of its delivered copies that are not released
        self.of_copy: dict[int, int] = {}  # delivered copy that is not released -> its request

    def fits(self, permits: int) -> bool:
        """Returns whether enough permits are free. A request for more than the maximum needs all to be free. O(1)."""
        return self.free >= permits or (permits > self.maximum and self.free == self.maximum)

    def take(self, request: int, permits: int) -> None:
        """Grants permits to a request; all permits if it asks for more than the maximum. O(1)."""
        taken = min(permits, self.maximum)
        self.free -= taken
        self.held[request] = [taken, 0]

    def acquire(self, pending: PendingRequest, permits: int, now_ns: int) -> str:
        """Grants permits, or queues or rejects the request. Returns "granted", "waiting" or "rejected". O(1).

        A `maximum` of 0 disables the limiter: the request is granted without permits.
        """
        if not self.maximum:
            return "granted"
        if self.fits(permits):
            self.take(pending.number, permits)
            return "granted"
        if len(self.waiting) >= self.queue_size:
            return "rejected"
        self.waiting.append((pending, permits, now_ns))
        return "waiting"

    def free_permits(self, request: int) -> bool:
        """Frees the permits of a request. Returns whether it had any. O(1)."""
        held = self.held.pop(request, None)
        if held is None:
            return False
        self.free += held[0]
        return True

    def bind(self, request: int, copies: list[int]) -> None:
        """Binds the permits of a request to its copies: the release of the last copy frees them. O(copies)."""
        self.held[request][1] = len(copies)
        self.of_copy.update((copy, request) for copy in copies)

    def release_copy(self, copy: int) -> int | None:
        """Releases a copy. If this was the last copy of its request, returns the request, otherwise None. O(1).

        The caller then frees the permits of the returned request.
        """
        request = self.of_copy.pop(copy, None)
        if request is None:
            return None
        held = self.held[request]
        held[1] -= 1
        return None if held[1] else request

    def grant_queued(self, now_ns: int) -> tuple[list[PendingRequest], list[PendingRequest]]:
        """Removes requests from the head of the queue as long as they fit, or have waited longer than the timeout.

        Returns the requests that fit, to which permits are granted, and the requests that have waited too long.
        O(removed).
        """
        granted: list[PendingRequest] = []
        failed: list[PendingRequest] = []
        while self.waiting:
            pending, permits, since_ns = self.waiting[0]
            if now_ns - since_ns > self.timeout_ns:
                failed.append(pending)
            elif self.fits(permits):
                self.take(pending.number, permits)
                granted.append(pending)
            else:
                break
            self.waiting.popleft()
        return granted, failed

    def expire(self, now_ns: int) -> list[PendingRequest]:
        """Removes requests that have waited at least as long as the timeout from the head of the queue. O(removed)."""
        failed = []
        while self.waiting and now_ns - self.waiting[0][2] >= self.timeout_ns:
            failed.append(self.waiting.popleft()[0])
        return failed

    def view(self) -> Limiter:
        """Returns the model's limiter. O(c log c) for c copies and requests."""
        if not self.held and not self.waiting:
            return Limiter(self.free, (), ())
        copies: dict[int, list[int]] = {}
        for copy, request in sorted(self.of_copy.items()):
            copies.setdefault(request, []).append(copy)
        waiting = tuple([Waiting(pending.number, permits, since_ns) for pending, permits, since_ns in self.waiting])
        grants = [Grant(request, held[0], tuple(copies.get(request, ()))) for request, held in self.held.items()]
        return Limiter(self.free, waiting, tuple(sorted(grants)))

    def load(self, limiter: Limiter, requests: dict[int, PendingRequest]) -> None:
        """Loads the model's limiter; `requests` has the queued requests by number. O(copies and requests)."""
        self.free = limiter.free
        self.waiting.extend((requests[request], permits, since_ns) for request, permits, since_ns in limiter.waiting)
        for request, permits, copies in limiter.grants:
            self.held[request] = [permits, len(copies)]
            self.of_copy.update((copy, request) for copy in copies)
