"""Pending requests, their storage reads, and the reads that a request can join.

Same behaviour as `model/entry_cache/shared_reads.py`. The joinable reads of a ledger never overlap. They are sorted,
and the read to join is found by bisection. w is the number of parts of requests that await a storage read, and r the
number of joinable reads of a ledger.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from model.entry_cache.shared_reads import Held, Part, Request, StorageRead


class RequestedRange:
    """A range of entry ids of a request, with its parts: a tree, like the model's `Part`."""

    __slots__ = ("first", "held", "kind", "last", "parts", "read", "request")

    def __init__(self, kind: str, request: PendingRequest, first: int, last: int) -> None:
        self.kind = kind  # that of a `Part`; or "gap" until `EntryCaches._join_or_read` replaces the range
        self.request = request
        self.first = first
        self.last = last
        self.read = 0  # number of the storage read that an "awaited" range awaits; otherwise 0
        self.held: list[tuple[int, int, int]] = []  # entry, bytes, number of the held copy
        self.parts: list[RequestedRange] = []

    def is_settled(self) -> bool:
        """Returns whether the range is found or failed: no entry of it is pending. O(1)."""
        return self.kind in ("found", "failed")

    def is_complete(self) -> bool:
        """Returns whether the range is found with all its entries; storage may have returned too few. O(1)."""
        return self.kind == "found" and len(self.held) == self.last - self.first + 1

    def copies(self) -> list[int]:
        """Returns the numbers of the held copies in the tree. O(parts and entries)."""
        return [copy for _, _, copy in self.held] + [copy for part in self.parts for copy in part.copies()]

    def awaiting(self, read: int) -> list[RequestedRange]:
        """Returns the parts that await a storage read, from left to right. O(parts)."""
        if self.kind == "awaited" and self.read == read:
            return [self]
        return [each for part in self.parts for each in part.awaiting(read)]

    def view(self) -> Part:
        """Returns the model's form. O(parts and entries)."""
        held = tuple([Held(*each) for each in self.held])
        parts = tuple([part.view() for part in self.parts])
        return Part(self.kind, self.first, self.last, self.read, held, parts)  # type: ignore[arg-type]

    @classmethod
    def load(cls, pending: PendingRequest, part: Part) -> RequestedRange:
        """Returns a tree from the model's. O(parts and entries)."""
        self = cls(part.kind, pending, part.first, part.last)
        self.read = part.read
        self.held = [(h.entry, h.bytes, h.copy) for h in part.held]
        self.parts = [cls.load(pending, each) for each in part.parts]
        return self


class PendingRequest:
    """A pending request. `root` is its whole range, and is set after the creation."""

    __slots__ = ("cache", "expected_reads", "ledger", "number", "range_cache", "root")

    def __init__(self, number: int, range_cache: int, cache: int, ledger: int, expected_reads: int) -> None:
        self.number = number
        self.range_cache = range_cache
        self.cache = cache
        self.ledger = ledger
        self.expected_reads = expected_reads
        self.root: RequestedRange

    def view(self) -> Request:
        """Returns the model's form. O(parts and entries)."""
        return Request(self.number, self.range_cache, self.cache, self.ledger, self.expected_reads, self.root.view())

    @classmethod
    def load(cls, request: Request) -> PendingRequest:
        """Returns a request from the model's. O(parts and entries)."""
        self = cls(request.number, request.range_cache, request.cache, request.ledger, request.expected_reads)
        self.root = RequestedRange.load(self, request.part)
        return self


class OutstandingRead:
    """An outstanding storage read."""

    __slots__ = ("first", "initiator", "joinable", "last", "number", "waiting")

    def __init__(self, number: int, pending: PendingRequest, first: int, last: int) -> None:
        self.number = number
        # the request that issued the read: its range cache gets the entries, with its expected reads
        self.initiator = pending
        self.first = first
        self.last = last
        self.joinable = pending.range_cache >= 0
        self.waiting: list[RequestedRange] = []

    def in_request_order(self) -> list[RequestedRange]:
        """Returns the awaiting parts: by request in the order of joining, then from left to right. O(w log w)."""
        if len(self.waiting) < 2:
            return self.waiting
        turns: dict[int, int] = {}
        for requested in self.waiting:
            turns.setdefault(requested.request.number, len(turns))
        return sorted(self.waiting, key=lambda requested: (turns[requested.request.number], requested.first))

    def view(self) -> StorageRead:
        """Returns the model's storage read. O(w)."""
        a = self.initiator
        waiting = tuple([requested.request.number for requested in self.waiting])
        return StorageRead(
            self.number,
            a.range_cache,
            a.cache,
            a.ledger,
            self.first,
            self.last,
            a.expected_reads,
            self.joinable,
            waiting,
        )

    @classmethod
    def load(cls, r: StorageRead, requests: dict[int, PendingRequest]) -> OutstandingRead:
        """Returns a storage read from the model's; `requests` has the requests by number. O(their parts)."""
        # `r` does not name its initiator; this object has the fields of the initiator that are used
        self = cls(
            r.number,
            PendingRequest(next(iter(r.waiting), 0), r.range_cache, r.cache, r.ledger, r.expected_reads),
            r.first,
            r.last,
        )
        self.joinable = r.joinable
        left: dict[int, list[RequestedRange]] = {}  # request -> its awaiting parts that are not in `waiting` yet
        for number in r.waiting:
            if number not in left:
                left[number] = requests[number].root.awaiting(r.number)
            self.waiting.append(left[number].pop(0))
        return self


class JoinableReads:
    """The joinable reads of one ledger of one cache: ranges that do not overlap, in order."""

    __slots__ = ("firsts", "reads")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.reads: list[OutstandingRead] = []

    def add(self, read: OutstandingRead) -> None:
        """Adds a read. O(r)."""
        index = bisect_left(self.firsts, read.first)
        self.firsts.insert(index, read.first)
        self.reads.insert(index, read)

    def discard(self, read: OutstandingRead) -> None:
        """Removes a read. O(r)."""
        index = bisect_left(self.firsts, read.first)
        del self.firsts[index], self.reads[index]

    def best(self, first: int, last: int) -> OutstandingRead | None:
        """Returns the read to join for a range: see `candidate` of the model. O(log r + reads in the range)."""
        index = bisect_right(self.firsts, first)
        if index and self.reads[index - 1].last >= first:
            return self.reads[index - 1]  # it includes the range, or lacks entries only on the right
        end = bisect_right(self.firsts, last)
        if end == index:
            return None
        if self.reads[end - 1].last >= last:
            return self.reads[end - 1]  # it lacks entries only on the left
        return max(self.reads[index:end], key=lambda read: read.number)
