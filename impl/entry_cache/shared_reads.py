"""Pending requests, the storage reads that they wait for, and which reads can be joined.

Same behaviour as `model/entry_cache/shared_reads.py`. Joinable reads of a ledger never overlap, so they are kept
sorted, and the read to join is found by bisection. n is the number of requests that wait for a read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from model.entry_cache.shared_reads import Held, Part, Request, StorageRead


class Wanted:
    """A range of entry ids of a request, found or pending: a tree, as `Part` of the model."""

    __slots__ = ("first", "held", "kind", "last", "parts", "read", "request")

    def __init__(self, kind: str, request: Asking, first: int, last: int) -> None:
        self.kind = kind  # found, failed, permits, awaited, joined or mixed
        self.request = request
        self.first = first
        self.last = last
        self.read = 0
        self.held: list[tuple[int, int, int]] = []  # entry, bytes, number of the copy
        self.parts: list[Wanted] = []

    def is_settled(self) -> bool:
        """Whether no part of the tree is pending. O(1)."""
        return self.kind in ("found", "failed")

    def is_complete(self) -> bool:
        """Whether all entries of the range are found. O(1)."""
        return self.kind == "found" and len(self.held) == self.last - self.first + 1

    def copies(self) -> list[int]:
        """The numbers of the tree's copies. O(parts and entries)."""
        return [copy for _, _, copy in self.held] + [copy for part in self.parts for copy in part.copies()]

    def awaiting(self, read: int) -> list[Wanted]:
        """The parts that await a storage read, from left to right. O(parts)."""
        if self.kind == "awaited" and self.read == read:
            return [self]
        return [each for part in self.parts for each in part.awaiting(read)]

    def view(self) -> Part:
        """The same in the model's types. O(parts and entries)."""
        held = tuple([Held(*each) for each in self.held])
        parts = tuple([part.view() for part in self.parts])
        return Part(self.kind, self.first, self.last, self.read, held, parts)  # type: ignore[arg-type]

    @classmethod
    def load(cls, asking: Asking, part: Part) -> Wanted:
        """A tree from the model's. O(parts and entries)."""
        self = cls(part.kind, asking, part.first, part.last)
        self.read = part.read
        self.held = [(h.entry, h.bytes, h.copy) for h in part.held]
        self.parts = [cls.load(asking, each) for each in part.parts]
        return self


class Asking:
    """A pending request."""

    __slots__ = ("cache", "expected_reads", "ledger", "number", "root", "store")

    def __init__(self, number: int, store: int, cache: int, ledger: int, expected_reads: int) -> None:
        self.number = number
        self.store = store
        self.cache = cache
        self.ledger = ledger
        self.expected_reads = expected_reads
        self.root: Wanted

    def view(self) -> Request:
        """The same in the model's types. O(parts and entries)."""
        return Request(self.number, self.store, self.cache, self.ledger, self.expected_reads, self.root.view())

    @classmethod
    def load(cls, request: Request) -> Asking:
        """A request from the model's. O(parts and entries)."""
        self = cls(request.number, request.store, request.cache, request.ledger, request.expected_reads)
        self.root = Wanted.load(self, request.part)
        return self


class Outstanding:
    """An outstanding storage read."""

    __slots__ = ("asking", "first", "joinable", "last", "number", "waiting")

    def __init__(self, number: int, asking: Asking, first: int, last: int) -> None:
        self.number = number
        self.asking = asking  # who began it: says where entries go and how many reads they expect
        self.first = first
        self.last = last
        self.joinable = asking.store >= 0
        self.waiting: list[Wanted] = []

    def in_turn(self) -> list[Wanted]:
        """The awaiting parts: requests in the order of their numbers, parts from left to right. O(n log n)."""
        if len(self.waiting) < 2:
            return self.waiting
        turns: dict[int, int] = {}
        for wanted in self.waiting:
            turns.setdefault(wanted.request.number, len(turns))
        return sorted(self.waiting, key=lambda wanted: (turns[wanted.request.number], wanted.first))

    def view(self) -> StorageRead:
        """The model's storage read. O(awaiting parts)."""
        a = self.asking
        waiting = tuple([wanted.request.number for wanted in self.waiting])
        return StorageRead(
            self.number, a.store, a.cache, a.ledger, self.first, self.last, a.expected_reads, self.joinable, waiting
        )

    @classmethod
    def load(cls, r: StorageRead, requests: dict[int, Asking]) -> Outstanding:
        """A storage read from the model's; `requests` has the requests by number. O(their parts)."""
        self = cls(r.number, Asking(r.waiting[0], r.store, r.cache, r.ledger, r.expected_reads), r.first, r.last)
        self.joinable = r.joinable
        left: dict[int, list[Wanted]] = {}
        for number in r.waiting:
            if number not in left:
                left[number] = requests[number].root.awaiting(r.number)
            self.waiting.append(left[number].pop(0))
        return self


class Joinable:
    """The joinable reads of one ledger of one cache: ranges that do not overlap, in order."""

    __slots__ = ("firsts", "reads")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.reads: list[Outstanding] = []

    def add(self, read: Outstanding) -> None:
        """Lists a read. O(reads)."""
        at = bisect_left(self.firsts, read.first)
        self.firsts.insert(at, read.first)
        self.reads.insert(at, read)

    def discard(self, read: Outstanding) -> None:
        """Unlists a read. O(reads)."""
        at = bisect_left(self.firsts, read.first)
        del self.firsts[at], self.reads[at]

    def best(self, first: int, last: int) -> Outstanding | None:
        """The read to join for a range: see `candidate` of the model. O(log reads + reads inside the range)."""
        at = bisect_right(self.firsts, first)
        if at and self.reads[at - 1].last >= first:
            return self.reads[at - 1]  # it has the left end: includes the range, or misses entries on the right
        end = bisect_right(self.firsts, last)
        if end == at:
            return None
        if self.reads[end - 1].last >= last:
            return self.reads[end - 1]  # it has the right end
        return max(self.reads[at:end], key=lambda read: read.number)
