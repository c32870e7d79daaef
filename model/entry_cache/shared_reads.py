"""Reads from storage that several requests share (the broker's PendingReadsManager).

Source: PIP-430's read path, with the rules of pull requests 12258 and 15955 for sharing. A side model of
`model/entry_cache/machine.py`, which says what happens to the entries.

    a range that an outstanding read includes            joins it
    a range that an outstanding read overlaps            joins it for what they have in common;
                                                         what is missing on either side is looked up anew
    any other range                                      is read from storage

What a request waits for is a tree of parts, each a range of entry ids:

    found      the entries are at hand (held copies)
    failed     there is no answer
    permits    waits for the limiter, before anything else
    awaited    waits for one outstanding read
    joined     parts side by side: what an outstanding read brings, and what was missing beside it
    mixed      parts side by side: entries from the cache, and the gaps between them; if any of it fails,
               the whole range is read again
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from model.values import record


class Held(NamedTuple):
    """An entry at hand for a request that is not answered yet."""

    entry: int
    bytes: int
    copy: int  # the number of a copy that shares the entry's read counter


@record
class Part(NamedTuple):
    """What a request has, or waits for, of a range of entry ids."""

    kind: Literal["found", "failed", "permits", "awaited", "joined", "mixed"]
    first: int
    last: int
    read: int = 0  # awaited: the outstanding read
    held: tuple[Held, ...] = ()  # found: the entries, in order
    parts: tuple[Part, ...] = ()  # joined, mixed: in order


@record
class StorageRead(NamedTuple):
    """A read that storage has not answered yet."""

    number: int
    store: int  # the range cache that the entries go to; negative for none
    cache: int  # the cache (topic) that is read
    ledger: int
    first: int
    last: int
    expected_reads: int  # of the request that began it
    joinable: bool
    waiting: tuple[int, ...]  # the requests that wait for it, in the order in which they came; one may come twice


@record
class Request(NamedTuple):
    """A read that is not answered yet."""

    number: int
    store: int
    cache: int
    ledger: int
    expected_reads: int
    part: Part


def is_settled(part: Part) -> bool:
    """Nothing is waited for any more."""
    return part.kind in ("found", "failed")


def is_complete(part: Part) -> bool:
    """All entries of the range are at hand; a short answer of storage leaves some out."""
    return part.kind == "found" and len(part.held) == part.last - part.first + 1


def all_held(parts: tuple[Part, ...]) -> tuple[Held, ...]:
    """The entries that parts hold, in order."""
    return tuple([h for part in parts for h in (part.held if part.kind == "found" else all_held(part.parts))])


def awaited(part: Part) -> Iterator[Part]:
    """The parts that wait for an outstanding read, from left to right."""
    if part.kind == "awaited":
        yield part
    for each in part.parts:
        yield from awaited(each)


def includes(read: StorageRead, first: int, last: int) -> bool:
    """Everything that is asked for is on its way."""
    return read.first <= first and last <= read.last


def overlaps(read: StorageRead, first: int, last: int) -> bool:
    """Something that is asked for is on its way."""
    return read.first <= last and first <= read.last


def split(read: StorageRead, first: int, last: int) -> tuple[tuple[int, int], ...]:
    """A range that overlaps a read: what is missing before it, what they have in common, what is missing behind it.

    Each is the first and the last entry; where nothing is missing, the last one comes before the first.
    """
    low, high = max(first, read.first), min(last, read.last)
    return (first, low - 1), (low, high), (high + 1, last)


def candidate(reads: tuple[StorageRead, ...], store: int, ledger: int, first: int, last: int) -> StorageRead | None:
    """The outstanding read to join: one that includes the range, else one that misses entries only on the right,
    else only on the left, else on both sides; among equals the latest.
    """
    by_worth: dict[int, StorageRead] = {}
    for read in reads:
        if read.joinable and read.store == store and read.ledger == ledger and overlaps(read, first, last):
            if includes(read, first, last):
                return read
            misses_left, misses_right = first < read.first, read.last < last
            by_worth[2 * misses_left + misses_right] = read
    return by_worth[min(by_worth)] if by_worth else None


def without_joining(reads: tuple[StorageRead, ...], store: int, ledger: int | None) -> tuple[StorageRead, ...]:
    """Nobody joins the outstanding reads of a cache's ledger (None: of all its ledgers) any more."""
    return tuple(
        [
            read._replace(joinable=False) if read.store == store and ledger in (None, read.ledger) else read
            for read in reads
        ]
    )
