"""The range caches as they were before the central removal queue: each for itself, in the order of positions.

Source: the policies that PIP-430 replaces ("Motivation", points 1 and 2), as in branch 4.0.
Step grain: one call on a cache, or one round of the policy over several.

    put                    absent: stored with the time at which the entry was made; present: not inserted
    get                    changes nothing: reading does not protect an entry
    time pass              of one cache, by position: removes up to the first entry that is younger than the threshold
    size pass              of one cache, by position: removes until enough is free, whatever its age or use
    evict_proportionally   the largest caches that make up half of all bytes give up shares by their size

State: each cache is its entries in the order of positions. Not modelled: reference counts and buffers.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

from model.machine import Machine, Step, refused
from model.positions import Position, start_of
from model.range_cache import NOTHING, Removed, inside
from model.values import AtLeast, Below, record

#: The policy looks at the largest caches until they make up this share of all bytes.
SHARE_CONSIDERED = 0.5


class Config(NamedTuple):
    """What the caches are, and the rules in which the reference departs from what was shipped."""

    #: how many topics have a cache on this broker; caches are numbered from 0
    caches: Annotated[int, AtLeast(1)] = 2
    #: how long an entry may stay; here only a hint at which thresholds are interesting
    ttl_ns: Annotated[int, AtLeast(0)] = 1_000_000_000
    #: a range whose first position is after its last: an empty range, or an error
    inverted_range: Literal["empty", "illegal_argument"] = "empty"
    #: how a cache's share is worked out: in whole numbers, or by a quotient of doubles that may fall a byte short
    share_arithmetic: Literal["whole", "double"] = "whole"


class Entry(NamedTuple):
    """A cached message."""

    position: Position
    bytes: int  # frozen at insertion
    timestamp_ns: int  # when the entry object was made


@record
class State(NamedTuple):
    """All caches of a broker."""

    now_ns: int
    caches: tuple[tuple[Entry, ...], ...]  # each in the order of positions


class Hit(NamedTuple):
    """What a lookup gives."""

    position: Position
    bytes: int


class Eviction(NamedTuple):
    """What the policy asked of one cache, and what that cache gave up."""

    cache: int
    bytes_to_free: int
    removed: Removed


def start(cfg: Config) -> State:
    """Empty caches, at time zero."""
    return State(0, ((),) * cfg.caches)


legacy_cache = Machine("legacy_cache", Config, start, source="before PIP-430")

Cache = Annotated[int, Below("caches")]
Bytes = Annotated[int, AtLeast(0)]
Nanos = Annotated[int, AtLeast(0)]

# ---- rules of one cache, shared with the manager ------------------------------------------------------


def lookup(entries: tuple[Entry, ...], position: Position) -> Entry | None:
    """The entry at a position."""
    for e in entries:
        if e.position == position:
            return e
    return None


def added(entries: tuple[Entry, ...], entry: Entry) -> tuple[Entry, ...]:
    """The entries with one more, in order."""
    place = bisect(entries, entry)
    return (*entries[:place], entry, *entries[place:])


def size(entries: tuple[Entry, ...]) -> int:
    """The bytes of all entries."""
    return sum([e.bytes for e in entries])


def expired_front(entries: tuple[Entry, ...], threshold_ns: int) -> int:
    """How many entries a time pass removes: from the lowest position on, up to the first younger one.

    Old entries behind a young one are not reached ("Correctness" in the proposal's motivation). Equal counts
    as expired.
    """
    young = (i for i, e in enumerate(entries) if e.timestamp_ns > threshold_ns)
    return next(young, len(entries))


def front_of_size(entries: tuple[Entry, ...], bytes_to_free: int) -> int:
    """How many entries a size pass removes: from the lowest position on, until enough is free."""
    freed = 0
    for i, e in enumerate(entries):
        if freed >= bytes_to_free:
            return i
        freed += e.bytes
    return len(entries)


def taken(entries: tuple[Entry, ...]) -> Removed:
    """What a removal reports of the entries that it took."""
    return Removed(len(entries), size(entries))


def whole_part(bytes_to_free: int, part: int, whole: int, arithmetic: str) -> int:
    """The whole part of bytes x part / whole; in doubles the quotient is rounded first, so a byte may be missing."""
    return bytes_to_free * part // whole if arithmetic == "whole" else int(bytes_to_free * (part / whole))


def shares(sizes: list[tuple[int, int]], bytes_to_free: int, arithmetic: str) -> list[tuple[int, int]]:
    """Which caches give up how much, from (cache, size) in the order in which the policy sees them.

    The largest come first, equal ones in that order, until they make up half of all bytes; each gives up
    the whole part of its share, and one whose share is zero nothing (EntryCacheDefaultEvictionPolicy).
    """
    needed = int(sum(n for _, n in sizes) * SHARE_CONSIDERED)
    chosen: list[tuple[int, int]] = []
    for cache, n in sorted(sizes, key=lambda each: -each[1]):
        if sum(m for _, m in chosen) >= needed:
            break
        chosen.append((cache, n))
    total = sum(n for _, n in chosen)
    asked = [(cache, whole_part(bytes_to_free, n, total, arithmetic)) for cache, n in chosen if total]
    return [(cache, share) for cache, share in asked if share > 0]


def put_back(s: State, cache: int, entries: tuple[Entry, ...]) -> State:
    """The state with other entries in one cache."""
    return s._replace(caches=s.caches[:cache] + (entries,) + s.caches[cache + 1 :])


# ---- putting and looking up ---------------------------------------------------------------------------


@legacy_cache.action
def put(cfg: Config, s: State, cache: Cache, position: Position, bytes: Bytes, timestamp_ns: int) -> Step[State, bool]:
    """An entry is stored unless its position is taken; true if it was stored."""
    if lookup(s.caches[cache], position) is not None:
        return s, False
    return put_back(s, cache, added(s.caches[cache], Entry(position, bytes, timestamp_ns))), True


@legacy_cache.action
def put_mismatched(
    cfg: Config, s: State, cache: Cache, position: Position, value_position: Position, bytes: Bytes
) -> Step[State, bool]:
    """A value that knows another position than its key is refused; otherwise it is a put with the time of now."""
    if position != value_position:
        return refused(s, "illegal_argument", "the value's position is not the key")
    return put(cfg, s, cache, position, bytes, s.now_ns)


@legacy_cache.action
def get(cfg: Config, s: State, cache: Cache, position: Position) -> Step[State, Hit | None]:
    """A lookup of one position."""
    found = lookup(s.caches[cache], position)
    return s, None if found is None else Hit(found.position, found.bytes)


@legacy_cache.action
def get_range(cfg: Config, s: State, cache: Cache, first: Position, last: Position) -> Step[State, tuple[Hit, ...]]:
    """A lookup of every entry from first to last, both included."""
    if first > last and cfg.inverted_range == "illegal_argument":
        return refused(s, "illegal_argument", "the first position is after the last")
    return s, tuple(Hit(e.position, e.bytes) for e in s.caches[cache] if inside(e.position, first, last, True))


@legacy_cache.action
def exists(cfg: Config, s: State, cache: Cache, position: Position) -> Step[State, bool]:
    """Whether the position is cached."""
    return s, lookup(s.caches[cache], position) is not None


# ---- removing -----------------------------------------------------------------------------------------


@legacy_cache.action
def remove_range(
    cfg: Config, s: State, cache: Cache, first: Position, last: Position, last_inclusive: bool
) -> Step[State, Removed]:
    """Removes a cache's entries from first to last."""
    if first > last and cfg.inverted_range == "illegal_argument":
        return refused(s, "illegal_argument", "the first position is after the last")
    return remove_where(s, cache, lambda e: inside(e.position, first, last, last_inclusive))


@legacy_cache.action
def invalidate_ledger(cfg: Config, s: State, cache: Cache, ledger: int) -> Step[State, Removed]:
    """Removes a cache's entries of one ledger."""
    return remove_where(s, cache, lambda e: inside(e.position, start_of(ledger), start_of(ledger + 1), False))


@legacy_cache.action
def clear(cfg: Config, s: State, cache: Cache) -> Step[State, Removed]:
    """Removes everything from a cache."""
    return remove_where(s, cache, lambda e: True)


def remove_where(s: State, cache: int, goes: Callable[[Entry], bool]) -> tuple[State, Removed]:
    """Takes the entries of a cache that go, and reports them."""
    gone = tuple(e for e in s.caches[cache] if goes(e))
    if not gone:
        return s, NOTHING
    return put_back(s, cache, tuple(e for e in s.caches[cache] if not goes(e))), taken(gone)


def remove_front(s: State, cache: int, count: int) -> tuple[State, Removed]:
    """Takes that many entries of a cache from the lowest position on, and reports them."""
    if not count:
        return s, NOTHING
    return put_back(s, cache, s.caches[cache][count:]), taken(s.caches[cache][:count])


# ---- eviction -----------------------------------------------------------------------------------------


@legacy_cache.action
def time_pass(cfg: Config, s: State, cache: Cache, threshold_ns: int) -> Step[State, Removed]:
    """One cache gives up what is not younger than the threshold, by position, up to the first that is."""
    return remove_front(s, cache, expired_front(s.caches[cache], threshold_ns))


@legacy_cache.action
def size_pass(cfg: Config, s: State, cache: Cache, bytes_to_free: int) -> Step[State, Removed]:
    """One cache gives up its lowest positions until enough is free."""
    if bytes_to_free <= 0:
        return refused(s, "illegal_argument", "the bytes to free must be more than zero")
    return remove_front(s, cache, front_of_size(s.caches[cache], bytes_to_free))


@legacy_cache.action
def evict_proportionally(
    cfg: Config, s: State, caches: tuple[Cache, ...], bytes_to_free: int
) -> Step[State, tuple[Eviction, ...]]:
    """The policy over several caches: the largest give up shares by their size (PIP-430, "Motivation", point 1)."""
    if bytes_to_free <= 0 or not caches:
        return refused(s, "illegal_argument", "the policy needs bytes to free and at least one cache")
    if len(set(caches)) < len(caches):
        return refused(s, "illegal_argument", "the policy is given each cache once")
    done: list[Eviction] = []
    for cache, share in shares([(c, size(s.caches[c])) for c in caches], bytes_to_free, cfg.share_arithmetic):
        s, gone = remove_front(s, cache, front_of_size(s.caches[cache], share))
        done.append(Eviction(cache, share, gone))
    return s, tuple(done)


# ---- time ---------------------------------------------------------------------------------------------


@legacy_cache.action
def advance(cfg: Config, s: State, nanos: Nanos) -> Step[State, None]:
    """Time passes."""
    return s._replace(now_ns=s.now_ns + nanos), None


# ---- names, observers, profiles -----------------------------------------------------------------------


@legacy_cache.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """The clock starts at now: only differences matter."""
    moved = tuple(tuple(e._replace(timestamp_ns=e.timestamp_ns - s.now_ns) for e in held) for held in s.caches)
    return s._replace(now_ns=0, caches=moved)


@legacy_cache.observation
def observe(cfg: Config, s: State) -> dict[str, object]:
    """Each cache by position."""
    return {"caches": [observe_entries(held) for held in s.caches]}


def observe_entries(entries: tuple[Entry, ...]) -> dict[str, object]:
    """One cache by position: [ledger, entry, bytes, time]."""
    keys = [[ledger, entry, n, time] for (ledger, entry), n, time in entries]
    return {"entries": len(entries), "bytes": size(entries), "keys": keys}


reference = legacy_cache.profile("reference", "an inverted range is empty, and a share is a whole part", Config())

recorded = legacy_cache.profile(
    "pulsar-4.0",
    "as recorded from Apache Pulsar master, 2025-07-28; branch 4.0 is the same",
    Config(inverted_range="illegal_argument", share_arithmetic="double"),
)
