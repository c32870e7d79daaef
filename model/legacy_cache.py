"""Range caches of branch 4.0: no removal queue. An eviction removes the lowest positions of a cache first.

A range cache holds entries of one topic in memory, ordered by position. An eviction begins at the lowest position: a
time pass removes entries until it meets one that has not expired, and a size pass removes entries until enough bytes
are freed. The eviction policy of the broker divides the bytes to free among the largest caches.

Models `RangeCache` (package `mledger.util`), `RangeEntryCacheImpl` and `EntryCacheDefaultEvictionPolicy` as they are in
branch 4.0; PIP-430 replaces their eviction ("Motivation"). One step is one call on a cache, one round of the policy
over several caches, or the passing of time.

    put                    caches an entry with its creation time, unless the position is cached
    get                    returns an entry, and changes nothing
    time_pass              removes the lowest positions of one cache, up to the first unexpired entry, which stays
    size_pass              removes the lowest positions of one cache, until enough bytes are freed
    evict_proportionally   the policy (`doEviction`): chooses the largest caches until they hold half of all bytes, and
                           shares the bytes to free between them in proportion to size. Each chosen cache with a share
                           above zero makes a size pass that frees its share

An entry is expired if its timestamp is the threshold of the time pass or earlier.

State: the clock, and the entries of each cache, ordered by position. Not modelled: reference counts and buffers.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

from model.machine import Machine, Setting, Step, refused
from model.positions import Position, start_of
from model.range_cache import NOTHING, Removed, is_in_range
from model.values import AtLeast, Below, Origin, Rule, record

#: `PercentOfSizeToConsiderForEviction`: the largest caches are considered until they hold this share of all bytes.
SHARE_CONSIDERED = 0.5


class Config(NamedTuple):
    """Settings, then the rules in which the reference differs from the shipped version."""

    #: number of topics with a cache; caches are numbered from 0
    caches: Annotated[int, AtLeast(1)] = 2
    #: TTL; used only to draw timestamps and thresholds of random traces: a time pass has its threshold as an argument
    ttl_ns: Annotated[int, AtLeast(0), Setting("managedLedgerCacheEvictionTimeThresholdMillis", 1000, 1_000_000)] = (
        1_000_000_000
    )
    #: outcome for a range whose first position is after its last
    inverted_range: Annotated[
        Literal["empty", "illegal_argument"],
        Rule(Origin.RECORDED, {"illegal_argument": "RangeCache.getRange and removeRange, 4.0"}),
    ] = "empty"
    #: how the share of a cache is computed: in integers, or with a rounded quotient of doubles, which can be a byte off
    share_arithmetic: Annotated[
        Literal["integers", "double"],
        Rule(Origin.RECORDED, {"double": "EntryCacheDefaultEvictionPolicy.doEviction, 4.0"}),
    ] = "integers"


class Entry(NamedTuple):
    """A cached entry."""

    position: Position
    bytes: int  # length at insertion
    timestamp_ns: int  # creation time of the `EntryImpl`


@record
class State(NamedTuple):
    """All caches of a broker."""

    now_ns: int
    caches: tuple[tuple[Entry, ...], ...]  # each ordered by position


class Hit(NamedTuple):
    """An entry that a lookup returns."""

    position: Position
    bytes: int


class Eviction(NamedTuple):
    """A request of the policy to one cache, and number and bytes of the entries that the cache removed."""

    cache: int
    bytes_to_free: int
    removed: Removed


def start(cfg: Config) -> State:
    """Returns the state with empty caches at time zero."""
    return State(0, ((),) * cfg.caches)


legacy_cache = Machine(
    "legacy_cache",
    Config,
    start,
    source="before PIP-430",
    java={
        "RangeCache": ("put", "get", "getRange", "exists", "removeRange", "clear"),
        "RangeEntryCacheImpl": ("invalidateAllEntries", "invalidateEntriesBeforeTimestamp", "evictEntries"),
        "EntryCacheDefaultEvictionPolicy": ("doEviction",),
    },
)

Cache = Annotated[int, Below("caches")]
Bytes = Annotated[int, AtLeast(0)]
Nanos = Annotated[int, AtLeast(0)]

# ---- functions that legacy_manager uses, too -----------------------------------------------------------


def lookup(entries: tuple[Entry, ...], position: Position) -> Entry | None:
    """Returns the entry at a position, or None."""
    for e in entries:
        if e.position == position:
            return e
    return None


def added(entries: tuple[Entry, ...], entry: Entry) -> tuple[Entry, ...]:
    """Returns the entries with `entry` added, ordered by position."""
    index = bisect(entries, entry)
    return (*entries[:index], entry, *entries[index:])


def size(entries: tuple[Entry, ...]) -> int:
    """Returns the bytes of all entries."""
    return sum([e.bytes for e in entries])


def expired_count(entries: tuple[Entry, ...], threshold_ns: int) -> int:
    """`RangeCache.evictLEntriesBeforeTimestamp`: returns how many of the lowest positions a time pass removes.

    The pass stops at the first unexpired entry, so expired entries at higher positions stay (PIP-430, "Motivation"). An
    entry whose timestamp is the threshold is expired.
    """
    unexpired = (i for i, e in enumerate(entries) if e.timestamp_ns > threshold_ns)
    return next(unexpired, len(entries))


def count_to_free(entries: tuple[Entry, ...], bytes_to_free: int) -> int:
    """`RangeCache.evictLeastAccessedEntries`: returns how many of the lowest positions a size pass removes."""
    freed = 0
    for i, e in enumerate(entries):
        if freed >= bytes_to_free:
            return i
        freed += e.bytes
    return len(entries)


def number_and_bytes(entries: tuple[Entry, ...]) -> Removed:
    """Returns number and bytes of entries."""
    return Removed(len(entries), size(entries))


def share_of(bytes_to_free: int, size: int, total: int, arithmetic: str) -> int:
    """Returns bytes_to_free * size / total, truncated; with doubles, a byte off if the quotient is rounded badly."""
    return bytes_to_free * size // total if arithmetic == "integers" else int(bytes_to_free * (size / total))


def shares(sizes: list[tuple[int, int]], bytes_to_free: int, arithmetic: str) -> list[tuple[int, int]]:
    """`EntryCacheDefaultEvictionPolicy.doEviction`: returns the chosen caches, and the bytes that each must free.

    `sizes` has each cache with its size. The largest caches are chosen until they hold half of all bytes; caches of
    equal size keep their order. Shares are truncated; a cache with a share of zero is skipped.
    """
    all_bytes = sum(n for _, n in sizes)
    # half of all bytes, truncated; the two branches differ only above 2**53
    needed = all_bytes // 2 if arithmetic == "integers" else int(all_bytes * SHARE_CONSIDERED)
    chosen: list[tuple[int, int]] = []
    for cache, n in sorted(sizes, key=lambda each: -each[1]):
        if sum(m for _, m in chosen) >= needed:
            break
        chosen.append((cache, n))
    chosen_bytes = sum(n for _, n in chosen)
    asked = [(cache, share_of(bytes_to_free, n, chosen_bytes, arithmetic)) for cache, n in chosen]
    return [(cache, share) for cache, share in asked if share > 0]


def with_cache(s: State, cache: int, entries: tuple[Entry, ...]) -> State:
    """Returns the state with `entries` in one cache."""
    return s._replace(caches=s.caches[:cache] + (entries,) + s.caches[cache + 1 :])


# ---- putting and looking up ---------------------------------------------------------------------------


@legacy_cache.action
def put(cfg: Config, s: State, cache: Cache, position: Position, bytes: Bytes, timestamp_ns: int) -> Step[State, bool]:
    """`RangeCache.put`: inserts an entry unless its position is cached; returns whether it inserted the entry."""
    if lookup(s.caches[cache], position) is not None:
        return s, False
    return with_cache(s, cache, added(s.caches[cache], Entry(position, bytes, timestamp_ns))), True


@legacy_cache.action
def put_mismatched(
    cfg: Config, s: State, cache: Cache, position: Position, value_position: Position, bytes: Bytes
) -> Step[State, bool]:
    """`RangeCache.put` with an explicit key: IllegalArgumentException if the value has another position.

    Otherwise the same as `put`, with the current time as timestamp.
    """
    if position != value_position:
        return refused(s, "illegal_argument", "the value's position is not the key")
    return put(cfg, s, cache, position, bytes, s.now_ns)


@legacy_cache.action
def get(cfg: Config, s: State, cache: Cache, position: Position) -> Step[State, Hit | None]:
    """`RangeCache.get`: returns the entry at a position, or None."""
    found = lookup(s.caches[cache], position)
    return s, None if found is None else Hit(found.position, found.bytes)


@legacy_cache.action
def get_range(cfg: Config, s: State, cache: Cache, first: Position, last: Position) -> Step[State, tuple[Hit, ...]]:
    """`RangeCache.getRange`: returns the entries from first to last, both inclusive; gaps are skipped."""
    if first > last and cfg.inverted_range == "illegal_argument":
        return refused(s, "illegal_argument", "the first position is after the last")
    return s, tuple(Hit(e.position, e.bytes) for e in s.caches[cache] if is_in_range(e.position, first, last, True))


@legacy_cache.action
def exists(cfg: Config, s: State, cache: Cache, position: Position) -> Step[State, bool]:
    """`RangeCache.exists`: returns whether the position is cached."""
    return s, lookup(s.caches[cache], position) is not None


# ---- removing -----------------------------------------------------------------------------------------


@legacy_cache.action
def remove_range(
    cfg: Config, s: State, cache: Cache, first: Position, last: Position, last_inclusive: bool
) -> Step[State, Removed]:
    """`RangeCache.removeRange`: removes the entries from first to last, the last one only if `last_inclusive`."""
    if first > last and cfg.inverted_range == "illegal_argument":
        return refused(s, "illegal_argument", "the first position is after the last")
    return remove_where(s, cache, lambda e: is_in_range(e.position, first, last, last_inclusive))


@legacy_cache.action
def invalidate_ledger(cfg: Config, s: State, cache: Cache, ledger: int) -> Step[State, Removed]:
    """`RangeEntryCacheImpl.invalidateAllEntries`: removes the entries of one ledger."""
    return remove_where(s, cache, lambda e: is_in_range(e.position, start_of(ledger), start_of(ledger + 1), False))


@legacy_cache.action
def clear(cfg: Config, s: State, cache: Cache) -> Step[State, Removed]:
    """`RangeCache.clear`: removes all entries of a cache."""
    return remove_where(s, cache, lambda e: True)


def remove_where(s: State, cache: int, is_removed: Callable[[Entry], bool]) -> tuple[State, Removed]:
    """Removes the entries of a cache for which `is_removed` is true."""
    gone = tuple(e for e in s.caches[cache] if is_removed(e))
    if not gone:
        return s, NOTHING
    return with_cache(s, cache, tuple(e for e in s.caches[cache] if not is_removed(e))), number_and_bytes(gone)


def remove_lowest(s: State, cache: int, count: int) -> tuple[State, Removed]:
    """Removes the entries at the `count` lowest positions of a cache."""
    if not count:
        return s, NOTHING
    return with_cache(s, cache, s.caches[cache][count:]), number_and_bytes(s.caches[cache][:count])


# ---- eviction -----------------------------------------------------------------------------------------


@legacy_cache.action
def time_pass(cfg: Config, s: State, cache: Cache, threshold_ns: int) -> Step[State, Removed]:
    """`invalidateEntriesBeforeTimestamp`: removes the lowest positions of a cache, up to the first unexpired entry."""
    return remove_lowest(s, cache, expired_count(s.caches[cache], threshold_ns))


@legacy_cache.action
def size_pass(cfg: Config, s: State, cache: Cache, bytes_to_free: int) -> Step[State, Removed]:
    """`evictEntries`: removes the lowest positions of one cache until enough bytes are freed."""
    if bytes_to_free <= 0:
        return refused(s, "illegal_argument", "the bytes to free must be more than zero")
    return remove_lowest(s, cache, count_to_free(s.caches[cache], bytes_to_free))


@legacy_cache.action
def evict_proportionally(
    cfg: Config, s: State, caches: tuple[Cache, ...], bytes_to_free: int
) -> Step[State, tuple[Eviction, ...]]:
    """`EntryCacheDefaultEvictionPolicy.doEviction`: one round over the given caches; returns its evictions."""
    if bytes_to_free <= 0 or not caches:
        return refused(s, "illegal_argument", "the policy needs bytes to free and at least one cache")
    if len(set(caches)) < len(caches):
        return refused(s, "illegal_argument", "the policy is given each cache once")
    done: list[Eviction] = []
    for cache, share in shares([(c, size(s.caches[c])) for c in caches], bytes_to_free, cfg.share_arithmetic):
        s, gone = remove_lowest(s, cache, count_to_free(s.caches[cache], share))
        done.append(Eviction(cache, share, gone))
    return s, tuple(done)


# ---- time ---------------------------------------------------------------------------------------------


@legacy_cache.action
def advance(cfg: Config, s: State, nanos: Nanos) -> Step[State, None]:
    """Advances the clock."""
    return s._replace(now_ns=s.now_ns + nanos), None


# ---- canonical form, observation, profiles ------------------------------------------------------------


@legacy_cache.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Makes timestamps relative to the clock, and sets the clock to zero."""
    caches = tuple(tuple(e._replace(timestamp_ns=e.timestamp_ns - s.now_ns) for e in held) for held in s.caches)
    return s._replace(now_ns=0, caches=caches)


@legacy_cache.observation
def observe(cfg: Config, s: State) -> dict[str, object]:
    """Returns the content of each cache."""
    return {"caches": [observe_entries(held) for held in s.caches]}


def observe_entries(entries: tuple[Entry, ...]) -> dict[str, object]:
    """Returns the number of entries, their bytes, and each entry as [ledger, entry, bytes, time], by position."""
    keys = [[ledger, entry, n, time] for (ledger, entry), n, time in entries]
    return {"entries": len(entries), "bytes": size(entries), "keys": keys}


reference = legacy_cache.profile(
    "reference", "branch 4.0, but inverted ranges are empty, and shares are computed in integers", Config()
)

recorded = legacy_cache.release(
    "4.0",
    rules=Config(inverted_range="illegal_argument", share_arithmetic="double"),
    about="recorded from the master of 2025-07-28, in which these classes are as on branch 4.0",
)
