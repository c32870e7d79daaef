"""Storage reads that several requests share (`PendingReadsManager`).

Source: the class since apache/pulsar#24346. Used by `model/entry_cache/reads.py`.

    a range that a joinable read includes    joins that read
    a range that a joinable read overlaps    joins that read for the common part; the rest is read separately
    any other range                          is read from storage

An outstanding read for a range cache is joinable until the range cache is cleared, the ledger that is read is
invalidated, or another read of this ledger for the same range cache fails. A read for a disabled cache is never joined.

The range of a request is a tree of parts:

    permits    the whole range, before the limiter has granted the request's permits
    awaited    waits for one outstanding read
    found      its entries are held; some may be missing if storage returned too few
    failed     its read failed
    joined     consists of the part in common with an outstanding read, and of the parts before and after that part
    mixed      a partial cache hit: consists of cached entries, and of the gaps between or beside them
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from model.values import record


class Held(NamedTuple):
    """An entry that is held for a pending request."""

    entry: int
    bytes: int
    copy: int  # the number of the copy that is held


@record
class Part(NamedTuple):
    """A range of entry ids that a request holds or waits for; with its `parts`, a tree."""

    kind: Literal["found", "failed", "permits", "awaited", "joined", "mixed"]
    first: int
    last: int
    read: int = 0  # awaited: number of the outstanding read; otherwise 0
    held: tuple[Held, ...] = ()  # found: the entries, in order
    parts: tuple[Part, ...] = ()  # joined, mixed: in order


@record
class StorageRead(NamedTuple):
    """An outstanding read: storage has not completed it."""

    number: int
    range_cache: int  # number of the range cache into which the entries are inserted; negative if disabled
    cache: int  # number of the topic
    ledger: int
    first: int
    last: int
    expected_reads: int  # of the request that issued this read
    joinable: bool  # whether later requests may join it
    waiting: tuple[int, ...]  # requests, in order of arrival; a request occurs once for each part that waits


@record
class Request(NamedTuple):
    """A pending read request."""

    number: int
    range_cache: int  # number of the range cache that is read; negative if disabled
    cache: int  # number of the topic
    ledger: int
    expected_reads: int
    part: Part


def is_settled(part: Part) -> bool:
    """Whether the part is "found" or "failed", so that it no longer waits."""
    return part.kind in ("found", "failed")


def is_complete(part: Part) -> bool:
    """Whether all entries of the range are held; after a short answer of storage, some are missing."""
    return part.kind == "found" and len(part.held) == part.last - part.first + 1


def all_held(parts: tuple[Part, ...]) -> tuple[Held, ...]:
    """Returns the held entries of parts, in order."""
    return tuple([h for part in parts for h in (part.held if part.kind == "found" else all_held(part.parts))])


def awaited(part: Part) -> Iterator[Part]:
    """Yields the parts that wait for an outstanding read, from left to right."""
    if part.kind == "awaited":
        yield part
    for each in part.parts:
        yield from awaited(each)


def includes(read: StorageRead, first: int, last: int) -> bool:
    """Whether the read covers the whole range."""
    return read.first <= first and last <= read.last


def overlaps(read: StorageRead, first: int, last: int) -> bool:
    """Whether the read covers a part of the range."""
    return read.first <= last and first <= read.last


def split(read: StorageRead, first: int, last: int) -> tuple[tuple[int, int], ...]:
    """Splits a range that overlaps a read: into the part before the read, the common part, and the part after the read.

    Returns three pairs of a first and a last entry id; the last id of an empty pair is before the first.
    """
    low, high = max(first, read.first), min(last, read.last)
    return (first, low - 1), (low, high), (high + 1, last)


def candidate(
    reads: tuple[StorageRead, ...], range_cache: int, ledger: int, first: int, last: int
) -> StorageRead | None:
    """`PendingReadsManager.findPendingRead`: returns the outstanding read to join, or None if no joinable one overlaps.

    A read that includes the range comes first; then a read that lacks entries only on the right (rank 1), only on the
    left (rank 2), or on both sides (rank 3). Joinable reads do not overlap, so only rank 3 can have several reads. The
    latest one is joined. Pulsar joins the one that comes last in the order of a `ConcurrentHashMap`.
    """
    by_rank: dict[int, StorageRead] = {}
    for read in reads:
        if read.joinable and read.range_cache == range_cache and read.ledger == ledger and overlaps(read, first, last):
            if includes(read, first, last):
                return read
            misses_left, misses_right = first < read.first, read.last < last
            by_rank[2 * misses_left + misses_right] = read
    return by_rank[min(by_rank)] if by_rank else None


def without_joining(reads: tuple[StorageRead, ...], range_cache: int, ledger: int | None) -> tuple[StorageRead, ...]:
    """Makes the reads of a ledger (None: of all ledgers) for a range cache unjoinable; returns all reads.

    Source: `PendingReadsManager.invalidateLedger` and `clear`.
    """
    return tuple(
        [
            read._replace(joinable=False) if read.range_cache == range_cache and ledger in (None, read.ledger) else read
            for read in reads
        ]
    )
