"""The broker's cache as it was before the central removal queue: caches under a common limit, reads, storage.

Source: the manager and policy that PIP-430 replaces ("Motivation"), as in branch 4.0.
Step grain: one call, or one run of the eviction task. The task may run inside the insert that starts it, or later.

    insert    over the trigger and no eviction marked: one is marked and a task started for the size of now;
              then refused if that size is not below the maximum, or the position is taken; else stored
    task      the policy over all caches, down from the size at its start to the watermark; then unmarked
    read      all cached: from the cache; otherwise the whole range is one read from storage, and may be stored
    evict     the time and size passes of `legacy_cache`, asked of one cache

State: each cache is absent (the next use creates it), disabled (it was created while the maximum was zero) or
a tuple of entries; then the mark, the waiting tasks, storage that may fail, and the counters that metrics show.
Not modelled: copying on insert, reference counts, concurrent readers.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from model import watermark
from model.legacy_cache import (
    Cache,
    Entry,
    Nanos,
    added,
    expired_front,
    front_of_size,
    lookup,
    observe_entries,
    shares,
    size,
    taken,
)
from model.machine import Failed, Machine, Setting, Step, refused
from model.positions import EARLIEST, Position, start_of
from model.range_cache import NOTHING, Removed, inside
from model.values import AtLeast, Between, record

Bytes = Annotated[int, AtLeast(0)]


class Config(NamedTuple):
    """Settings of the broker, and what stands in storage."""

    #: how many topics have a cache on this broker; caches are numbered from 0, the order in which the policy sees them
    caches: Annotated[int, AtLeast(1)] = 2
    #: the limit for all caches together; zero disables the caches that are created then
    max_bytes: Annotated[int, AtLeast(0), Setting("managedLedgerCacheSizeMB", "a fifth of direct memory")] = 100
    #: the share of the maximum that an eviction aims at
    watermark: Annotated[float, Between(0, 1), Setting("managedLedgerCacheEvictionWatermark", "0.9")] = 0.9
    #: how long an entry may stay; here only a hint at which thresholds are interesting
    ttl_ns: Annotated[int, AtLeast(0), Setting("managedLedgerCacheEvictionTimeThresholdMillis", "1000 ms")] = (
        1_000_000_000
    )
    #: whether the eviction task runs inside the insert that starts it, or waits for its turn
    eviction_task: Literal["immediate", "queued"] = "queued"
    #: how a cache's share is worked out: in whole numbers, or by a quotient of doubles that may fall a byte short
    share_arithmetic: Literal["whole", "double"] = "whole"
    #: sizes of the entries in storage: by cache, by ledger (from 1), by entry
    storage: tuple[tuple[tuple[Bytes, ...], ...], ...] = (((10,) * 8, (7,) * 8),) * 2


class Counters(NamedTuple):
    """What metrics show, since the start."""

    insertions: int = 0
    hit_entries: int = 0
    hit_bytes: int = 0
    miss_entries: int = 0
    miss_bytes: int = 0
    evicted_entries: int = 0  # by any removal
    size_evictions: int = 0  # failed ones too


#: One cache: absent, disabled, or its entries in the order of positions.
Held = tuple[Entry, ...] | Literal["absent", "disabled"]


@record
class State(NamedTuple):
    """The broker's cache."""

    now_ns: int
    caches: tuple[Held, ...]
    max_bytes: int
    watermark: float
    eviction_in_progress: bool
    tasks: tuple[int, ...]  # waiting eviction tasks: the size at each one's start signal
    storage_reads: int  # how many storage reads there have been
    failing_reads: int  # how many of the next storage reads fail
    counters: Counters


class StorageRead(NamedTuple):
    """A read of a whole range from storage, numbered from 1."""

    number: int
    cache: int
    ledger: int
    first: int
    last: int


class Found(NamedTuple):
    """What a read gives: outcome, entries (position, bytes) and the storage reads that it took."""

    outcome: Literal["ok", "failed"]
    entries: tuple[tuple[Position, int], ...]
    storage_reads: tuple[StorageRead, ...]


def start(cfg: Config) -> State:
    """All caches are created at the start, empty, or disabled if the maximum is zero."""
    return State(0, (created(cfg.max_bytes),) * cfg.caches, cfg.max_bytes, cfg.watermark, False, (), 0, 0, Counters())


legacy_manager = Machine("legacy_manager", Config, start, source="before PIP-430")

# ---- small rules --------------------------------------------------------------------------------------


def created(max_bytes: int) -> Held:
    """A cache that is created while the maximum is zero is disabled, and stays so."""
    return () if max_bytes > 0 else "disabled"


def entries_of(held: Held) -> tuple[Entry, ...]:
    """The entries of a cache; none if it is absent or disabled."""
    return () if isinstance(held, str) else held


def total_bytes(s: State) -> int:
    """The bytes of all caches."""
    return sum([size(entries_of(held)) for held in s.caches])


def used(s: State, cache: int) -> State:
    """The state after a cache is used: an absent one is created first."""
    return with_cache(s, cache, created(s.max_bytes)) if s.caches[cache] == "absent" else s


def with_cache(s: State, cache: int, held: Held) -> State:
    """The state with another content of one cache."""
    return s._replace(caches=s.caches[:cache] + (held,) + s.caches[cache + 1 :])


def count(s: State, **more: int) -> State:
    """The state with counters raised."""
    return s._replace(counters=s.counters._replace(**{k: getattr(s.counters, k) + n for k, n in more.items()}))


def remove_front(s: State, cache: int, number: int) -> tuple[State, Removed]:
    """Takes that many entries of a cache from the lowest position on, counted as evicted."""
    entries = entries_of(s.caches[cache])
    if not number:
        return s, NOTHING
    s = count(with_cache(s, cache, entries[number:]), evicted_entries=number)
    return s, taken(entries[:number])


# ---- inserting ----------------------------------------------------------------------------------------


@legacy_manager.action
def insert(cfg: Config, s: State, cache: Cache, position: Position, bytes: Bytes) -> Step[State, bool]:
    """A published entry is offered to its cache; true if it was stored.

    The size is taken before anything else: an entry is refused at the maximum even if an eviction inside
    this very call has just made room.
    """
    s = used(s, cache)
    if s.caches[cache] == "disabled":
        return s, False
    before = total_bytes(s)
    if watermark.is_over_threshold(before, s.max_bytes) and not s.eviction_in_progress:
        s, outcome = start_eviction(cfg, s, before)
        if isinstance(outcome, Failed):
            return s, outcome
    entries = entries_of(s.caches[cache])
    if before >= s.max_bytes or lookup(entries, position) is not None:
        return s, False
    s = with_cache(s, cache, added(entries, Entry(position, bytes, s.now_ns)))
    return count(s, insertions=1), True


def start_eviction(cfg: Config, s: State, size_at_signal: int) -> tuple[State, int | Failed | None]:
    """Marks an eviction and starts its task for the size of now."""
    s = s._replace(eviction_in_progress=True)
    if cfg.eviction_task == "queued":
        return s._replace(tasks=(*s.tasks, size_at_signal)), None
    return evict(cfg, s, size_at_signal)


def evict(cfg: Config, s: State, size_at_signal: int) -> tuple[State, int | Failed]:
    """The task: the policy over all caches, from the size at the start signal down to the watermark of now."""
    s = count(s._replace(eviction_in_progress=False), size_evictions=1)
    wanted = watermark.bytes_to_evict(size_at_signal, s.max_bytes, s.watermark)
    existing = [(c, size(held)) for c, held in enumerate(s.caches) if not isinstance(held, str)]
    if wanted <= 0 or not existing:
        return s, Failed("illegal_argument", "the policy needs bytes to free and at least one cache")
    before = s.counters.evicted_entries
    for cache, share in shares(existing, wanted, cfg.share_arithmetic):
        s, _ = remove_front(s, cache, front_of_size(entries_of(s.caches[cache]), share))
    return s, s.counters.evicted_entries - before


@legacy_manager.action
def run_eviction_task(cfg: Config, s: State) -> Step[State, int]:
    """The oldest waiting task has its turn; the outcome is the number of entries evicted."""
    if not s.tasks:
        return refused(s, "illegal_state", "no eviction task is waiting")
    return evict(cfg, s._replace(tasks=s.tasks[1:]), s.tasks[0])


# ---- reading ------------------------------------------------------------------------------------------


@legacy_manager.action
def read(
    cfg: Config, s: State, cache: Cache, ledger: int, first: int, last: int, store_in_cache: bool
) -> Step[State, Found]:
    """A range of one ledger: from the cache if every entry is there, otherwise the whole range from storage."""
    return fetch(cfg, s, cache, ledger, first, last, store_in_cache)


@legacy_manager.action
def read_one(cfg: Config, s: State, cache: Cache, position: Position) -> Step[State, Found]:
    """One entry; what comes from storage is never stored in the cache."""
    return fetch(cfg, s, cache, position.ledger, position.entry, position.entry, False)


def in_storage(cfg: Config, cache: int, ledger: int, first: int, last: int) -> bool:
    """Whether storage has the whole range."""
    ledgers = cfg.storage[cache] if cache < len(cfg.storage) else ()
    return 1 <= ledger <= len(ledgers) and 0 <= first <= last < len(ledgers[ledger - 1])


def fetch(cfg: Config, s: State, cache: int, ledger: int, first: int, last: int, store: bool) -> Step[State, Found]:
    """What both reads do."""
    if not in_storage(cfg, cache, ledger, first, last):
        return refused(s, "illegal_argument", "storage does not have this range")
    s = used(s, cache)
    asked = [Position(ledger, entry) for entry in range(first, last + 1)]
    held = {e.position: e for e in entries_of(s.caches[cache])}
    hits = [held[p] for p in asked if p in held]
    if len(hits) == len(asked):
        s = count(s, hit_entries=len(hits), hit_bytes=sum([e.bytes for e in hits]))
        return s, Found("ok", tuple([(e.position, e.bytes) for e in hits]), ())
    s = s._replace(storage_reads=s.storage_reads + 1)
    issued = (StorageRead(s.storage_reads, cache, ledger, first, last),)
    if s.failing_reads:
        return s._replace(failing_reads=s.failing_reads - 1), Found("failed", (), issued)
    stored = tuple([(p, cfg.storage[cache][ledger - 1][p.entry]) for p in asked])
    s = count(s, miss_entries=len(stored), miss_bytes=sum([n for _, n in stored]))
    for position, size_in_storage in stored if store else ():
        s, outcome = insert(cfg, s, cache, position, size_in_storage)
        if isinstance(outcome, Failed):
            return s, outcome
    return s, Found("ok", stored, issued)


@legacy_manager.fault
def fail_next_storage_reads(cfg: Config, s: State, number: Annotated[int, AtLeast(0)]) -> Step[State, None]:
    """The next storage reads fail; replaces what was said before."""
    return s._replace(failing_reads=number), None


# ---- removing -----------------------------------------------------------------------------------------


@legacy_manager.action
def time_pass(cfg: Config, s: State, cache: Cache, threshold_ns: int) -> Step[State, int]:
    """One cache gives up what is not younger than the threshold; the outcome is the number of entries."""
    s = used(s, cache)
    s, gone = remove_front(s, cache, expired_front(entries_of(s.caches[cache]), threshold_ns))
    return s, gone.entries


@legacy_manager.action
def size_pass(cfg: Config, s: State, cache: Cache, bytes_to_free: int) -> Step[State, Removed]:
    """One cache gives up its lowest positions until enough is free."""
    if bytes_to_free <= 0:
        return refused(s, "illegal_argument", "the bytes to free must be more than zero")
    s = used(s, cache)
    return remove_front(s, cache, front_of_size(entries_of(s.caches[cache]), bytes_to_free))


@legacy_manager.action
def invalidate_entries_before(cfg: Config, s: State, cache: Cache, position: Position) -> Step[State, None]:
    """Removes a cache's entries of all ledgers up to a position, which stays."""
    return remove_between(s, cache, EARLIEST, position)


@legacy_manager.action
def invalidate_ledger(cfg: Config, s: State, cache: Cache, ledger: int) -> Step[State, None]:
    """Removes a cache's entries of one ledger."""
    return remove_between(s, cache, start_of(ledger), start_of(ledger + 1))


def remove_between(s: State, cache: int, first: Position, end: Position) -> tuple[State, None]:
    """Takes a cache's entries from first up to, not including, end."""
    s = used(s, cache)
    entries = entries_of(s.caches[cache])
    kept = tuple(e for e in entries if not inside(e.position, first, end, False))
    if len(kept) == len(entries):
        return s, None
    return count(with_cache(s, cache, kept), evicted_entries=len(entries) - len(kept)), None


@legacy_manager.action
def clear_cache(cfg: Config, s: State, cache: Cache) -> Step[State, None]:
    """Removes everything from a cache."""
    s = used(s, cache)
    s, _ = remove_front(s, cache, len(entries_of(s.caches[cache])))
    return s, None


@legacy_manager.action
def clear_all(cfg: Config, s: State) -> Step[State, None]:
    """Removes everything from every cache."""
    for cache in range(len(s.caches)):
        s, _ = remove_front(s, cache, len(entries_of(s.caches[cache])))
    return s, None


@legacy_manager.action
def remove_entry_cache(cfg: Config, s: State, cache: Cache) -> Step[State, None]:
    """The topic goes: its cache is cleared and no longer exists; the next use of it creates an empty one."""
    s, _ = remove_front(s, cache, len(entries_of(s.caches[cache])))
    return with_cache(s, cache, "absent"), None


# ---- time and settings --------------------------------------------------------------------------------


@legacy_manager.action
def advance(cfg: Config, s: State, nanos: Nanos) -> Step[State, None]:
    """Time passes."""
    return s._replace(now_ns=s.now_ns + nanos), None


@legacy_manager.action
def set_max_bytes(cfg: Config, s: State, value: Bytes) -> Step[State, None]:
    """The maximum changes while the broker runs; that alone evicts nothing."""
    return s._replace(max_bytes=value), None


@legacy_manager.action
def set_watermark(cfg: Config, s: State, value: Annotated[float, Between(0, 1)]) -> Step[State, None]:
    """The watermark changes while the broker runs; that alone evicts nothing."""
    return s._replace(watermark=value), None


# ---- names, observers, profiles -----------------------------------------------------------------------


@legacy_manager.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """The clock starts at now: only differences matter."""

    def moved(held: Held) -> Held:
        return (
            held if isinstance(held, str) else tuple(e._replace(timestamp_ns=e.timestamp_ns - s.now_ns) for e in held)
        )

    return s._replace(now_ns=0, caches=tuple(moved(held) for held in s.caches))


@legacy_manager.observation
def observe(cfg: Config, s: State) -> dict[str, object]:
    """The sizes, each cache by position, what is running, and the counters."""
    return {
        "total_bytes": total_bytes(s),
        "caches": [_observe_cache(held) for held in s.caches],
        "eviction_in_progress": s.eviction_in_progress,
        "queued_eviction_tasks": len(s.tasks),
        "counters": s.counters._asdict(),
    }


def _observe_cache(held: Held) -> dict[str, object]:
    if held == "disabled":
        return {"disabled": True, "bytes": 0}
    return observe_entries(entries_of(held))


reference = legacy_manager.profile("reference", "a share is a whole part", Config())

recorded = legacy_manager.profile(
    "pulsar-4.0",
    "as recorded from Apache Pulsar master, 2025-07-28; branch 4.0 is the same",
    Config(share_arithmetic="double"),
)
