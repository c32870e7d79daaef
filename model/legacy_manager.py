"""The caches of a broker of branch 4.0, before PIP-430: their common maximum size, and reads through a cache.

Each topic has a cache for its entries. The caches of a broker share a maximum size. If the total size exceeds a trigger
(98 % of the maximum), an insert schedules a task, which evicts entries down to a watermark. A read takes its entries
from the cache only if all of them are cached; otherwise it takes all of them from storage (the bookies).

Models `RangeEntryCacheManagerImpl` and `RangeEntryCacheImpl` as they are in branch 4.0; PIP-430 replaces their eviction
("Motivation"). One step is one call, or one run of the eviction task. With `eviction_task` "immediate", the task runs
inside the insert that schedules it.

    insert    schedules an eviction task if the total size is above the trigger (98 % of the maximum) and
              `evictionInProgress` is not set. Rejects the entry (returns false) if the total size was at the maximum or
              above when the call began, or if the position is cached; otherwise caches the entry. An insert into a
              disabled cache only returns false
    task      clears `evictionInProgress`, and lets the eviction policy (`model/legacy_cache`) free the bytes by which
              the total size at scheduling exceeds the watermark; fails if there is nothing to free, or no cache to
              evict from
    read      takes the range from the cache if every entry is cached. Otherwise reads the whole range from storage, and
              with `store_in_cache` inserts the entries
    passes    a time pass or size pass of one cache, as in `model/legacy_cache`

A cache is absent (the next use creates it), disabled (it was created while the maximum was zero), or a tuple of
entries.

Not modelled: copying on insert, reference counts, concurrent readers (`PendingReadsManager`), `InflightReadsLimiter`.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from model import watermark
from model.legacy_cache import (
    Cache,
    Entry,
    Nanos,
    added,
    count_to_free,
    expired_count,
    lookup,
    number_and_bytes,
    observe_entries,
    shares,
    size,
)
from model.machine import Failed, Machine, Setting, Step, refused
from model.positions import FIRST_POSITION, Position, start_of
from model.range_cache import NOTHING, Removed, is_in_range
from model.values import AtLeast, Between, Origin, Rule, record

Bytes = Annotated[int, AtLeast(0)]


class Config(NamedTuple):
    """Broker settings, a rule, and the entries in storage."""

    #: number of topics with a cache; caches are numbered from 0, and the policy gets them in this order
    caches: Annotated[int, AtLeast(1)] = 2
    #: maximum size of all caches; a cache that is created while the maximum is zero is disabled
    max_bytes: Annotated[
        int, AtLeast(0), Setting("managedLedgerCacheSizeMB", "a fifth of direct memory, at least 64 MB")
    ] = 100
    #: fraction of the maximum down to which the task evicts
    watermark: Annotated[float, Between(0, 1), Setting("managedLedgerCacheEvictionWatermark", 0.9)] = 0.9
    #: TTL; used only to draw the thresholds of random traces, because a time pass has its threshold as an argument
    ttl_ns: Annotated[int, AtLeast(0), Setting("managedLedgerCacheEvictionTimeThresholdMillis", 1000, 1_000_000)] = (
        1_000_000_000
    )
    #: immediate: the eviction task runs inside the insert that schedules it. queued: the task runs in a later step
    eviction_task: Literal["immediate", "queued"] = "queued"
    #: how the share of a cache is computed: in integers, or with a rounded quotient of doubles, which can be a byte off
    share_arithmetic: Annotated[
        Literal["integers", "double"],
        Rule(Origin.RECORDED, {"double": "EntryCacheDefaultEvictionPolicy.doEviction, 4.0"}),
    ] = "integers"
    #: sizes of the entries in storage, by cache, ledger (from 1) and entry
    storage: tuple[tuple[tuple[Bytes, ...], ...], ...] = (((10,) * 8, (7,) * 8),) * 2


class Counters(NamedTuple):
    """Counters of `ManagedLedgerFactoryMBeanImpl`, since the start."""

    insertions: int = 0
    hit_entries: int = 0
    hit_bytes: int = 0
    miss_entries: int = 0
    miss_bytes: int = 0
    evicted_entries: int = 0  # entries removed by any eviction or invalidation
    size_evictions: int = 0  # runs of the eviction task, failed runs included


#: The state of a cache: absent, disabled, or its entries ordered by position.
CacheState = tuple[Entry, ...] | Literal["absent", "disabled"]


@record
class State(NamedTuple):
    """The broker's caches."""

    now_ns: int
    caches: tuple[CacheState, ...]
    max_bytes: int
    watermark: float
    eviction_in_progress: bool
    tasks: tuple[int, ...]  # queued eviction tasks: the total size when each was scheduled
    issued_reads: int  # number of storage reads since the start
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
    """Result of a read: the outcome, the entries (position, bytes), and the storage read, if there was one."""

    outcome: Literal["ok", "failed"]
    entries: tuple[tuple[Position, int], ...]
    storage_reads: tuple[StorageRead, ...]


def start(cfg: Config) -> State:
    """Returns the state with empty caches, which are disabled if the maximum is zero."""
    return State(
        now_ns=0,
        caches=(new_cache(cfg.max_bytes),) * cfg.caches,
        max_bytes=cfg.max_bytes,
        watermark=cfg.watermark,
        eviction_in_progress=False,
        tasks=(),
        issued_reads=0,
        failing_reads=0,
        counters=Counters(),
    )


legacy_manager = Machine(
    "legacy_manager",
    Config,
    start,
    source="before PIP-430",
    java={
        "RangeEntryCacheManagerImpl": (
            "removeEntryCache",
            "updateCacheSizeAndThreshold",
            "updateCacheEvictionWatermark",
        ),
        "RangeEntryCacheImpl": (
            "insert",
            "asyncReadEntry",
            "invalidateEntries",
            "invalidateAllEntries",
            "invalidateEntriesBeforeTimestamp",
            "evictEntries",
        ),
        "EntryCacheDefaultEvictionPolicy": ("doEviction",),
    },
)

# ---- caches and counters ------------------------------------------------------------------------------


def new_cache(max_bytes: int) -> CacheState:
    """Returns a new cache: an empty one, or a disabled one (`EntryCacheDisabled`) if the maximum is zero."""
    return () if max_bytes > 0 else "disabled"


def entries_of(held: CacheState) -> tuple[Entry, ...]:
    """Returns the entries of a cache; none if it is absent or disabled."""
    return () if isinstance(held, str) else held


def total_bytes(s: State) -> int:
    """Returns the total size: the bytes of all caches (`RangeEntryCacheManagerImpl.currentSize`)."""
    return sum([size(entries_of(held)) for held in s.caches])


def get_entry_cache(s: State, cache: int) -> State:
    """`getEntryCache`: returns the state in which the cache is not absent; creates an absent cache."""
    return with_cache(s, cache, new_cache(s.max_bytes)) if s.caches[cache] == "absent" else s


def with_cache(s: State, cache: int, held: CacheState) -> State:
    """Returns the state with the state of one cache replaced."""
    return s._replace(caches=s.caches[:cache] + (held,) + s.caches[cache + 1 :])


def add_to_counters(s: State, **more: int) -> State:
    """Returns the state with counters increased."""
    return s._replace(counters=s.counters._replace(**{k: getattr(s.counters, k) + n for k, n in more.items()}))


def remove_lowest(s: State, cache: int, count: int) -> tuple[State, Removed]:
    """Removes the entries at the `count` lowest positions of a cache, and counts them as evicted."""
    entries = entries_of(s.caches[cache])
    if not count:
        return s, NOTHING
    s = add_to_counters(with_cache(s, cache, entries[count:]), evicted_entries=count)
    return s, number_and_bytes(entries[:count])


# ---- inserting ----------------------------------------------------------------------------------------


@legacy_manager.action
def insert(cfg: Config, s: State, cache: Cache, position: Position, bytes: Bytes) -> Step[State, bool]:
    """`RangeEntryCacheImpl.insert`: inserts an entry into its cache; returns whether the entry was inserted.

    The total size is read first (`hasSpaceInCache`). If it is at least the maximum, the entry is rejected, even if an
    eviction inside this call frees enough bytes. If the eviction inside this call fails, the insert fails.
    """
    s = get_entry_cache(s, cache)
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
    return add_to_counters(s, insertions=1), True


def start_eviction(cfg: Config, s: State, size_at_scheduling: int) -> tuple[State, int | Failed | None]:
    """Sets `evictionInProgress`. Queues a task and returns None, or runs the task and returns the result of `evict`."""
    s = s._replace(eviction_in_progress=True)
    if cfg.eviction_task == "queued":
        return s._replace(tasks=(*s.tasks, size_at_scheduling)), None
    return evict(cfg, s, size_at_scheduling)


def evict(cfg: Config, s: State, size_at_scheduling: int) -> tuple[State, int | Failed]:
    """Runs an eviction task: the policy frees the bytes by which `size_at_scheduling` exceeds the current watermark.

    Returns the number of evicted entries, or the exception of the policy.
    """
    s = add_to_counters(s._replace(eviction_in_progress=False), size_evictions=1)
    wanted = watermark.bytes_to_evict(size_at_scheduling, s.max_bytes, s.watermark)
    existing = [(c, size(held)) for c, held in enumerate(s.caches) if not isinstance(held, str)]
    if wanted <= 0 or not existing:
        return s, Failed("illegal_argument", "the policy needs bytes to free and at least one cache")
    before = s.counters.evicted_entries
    for cache, share in shares(existing, wanted, cfg.share_arithmetic):
        s, _ = remove_lowest(s, cache, count_to_free(entries_of(s.caches[cache]), share))
    return s, s.counters.evicted_entries - before


@legacy_manager.action
def run_eviction_task(cfg: Config, s: State) -> Step[State, int]:
    """`doEviction`: runs the oldest queued task; returns the number of evicted entries."""
    if not s.tasks:
        return refused(s, "illegal_state", "no eviction task is queued")
    return evict(cfg, s._replace(tasks=s.tasks[1:]), s.tasks[0])


# ---- reading ------------------------------------------------------------------------------------------


@legacy_manager.action
def read(
    cfg: Config, s: State, cache: Cache, ledger: int, first: int, last: int, store_in_cache: bool
) -> Step[State, Found]:
    """`asyncReadEntry`: reads a range of one ledger from the cache if every entry is cached, otherwise from storage.

    With `store_in_cache`, inserts the entries that were read from storage; if an insert fails, the read fails.
    """
    if not in_storage(cfg, cache, ledger, first, last):
        return refused(s, "illegal_argument", "storage does not have this range")
    s = get_entry_cache(s, cache)
    asked = [Position(ledger, entry) for entry in range(first, last + 1)]
    cached = {e.position: e for e in entries_of(s.caches[cache])}
    hits = [cached[p] for p in asked if p in cached]
    if len(hits) == len(asked):
        s = add_to_counters(s, hit_entries=len(hits), hit_bytes=sum([e.bytes for e in hits]))
        return s, Found("ok", tuple([(e.position, e.bytes) for e in hits]), ())
    s = s._replace(issued_reads=s.issued_reads + 1)
    issued = (StorageRead(s.issued_reads, cache, ledger, first, last),)
    if s.failing_reads:
        return s._replace(failing_reads=s.failing_reads - 1), Found("failed", (), issued)
    stored = tuple([(p, cfg.storage[cache][ledger - 1][p.entry]) for p in asked])
    s = add_to_counters(s, miss_entries=len(stored), miss_bytes=sum([n for _, n in stored]))
    for position, size_in_storage in stored if store_in_cache else ():
        s, outcome = insert(cfg, s, cache, position, size_in_storage)
        if isinstance(outcome, Failed):
            return s, outcome
    return s, Found("ok", stored, issued)


@legacy_manager.action
def read_one(cfg: Config, s: State, cache: Cache, position: Position) -> Step[State, Found]:
    """`asyncReadEntry` of one position; an entry that is read from storage is not cached."""
    return read(cfg, s, cache, position.ledger, position.entry, position.entry, False)


def in_storage(cfg: Config, cache: int, ledger: int, first: int, last: int) -> bool:
    """Whether storage has the whole range."""
    ledgers = cfg.storage[cache] if cache < len(cfg.storage) else ()
    return 1 <= ledger <= len(ledgers) and 0 <= first <= last < len(ledgers[ledger - 1])


@legacy_manager.fault
def fail_next_storage_reads(cfg: Config, s: State, number: Annotated[int, AtLeast(0)]) -> Step[State, None]:
    """Makes the next `number` storage reads fail, and replaces an earlier `number`."""
    return s._replace(failing_reads=number), None


# ---- removing -----------------------------------------------------------------------------------------


@legacy_manager.action
def time_pass(cfg: Config, s: State, cache: Cache, threshold_ns: int) -> Step[State, int]:
    """`invalidateEntriesBeforeTimestamp`: evicts the lowest positions of one cache, up to the first unexpired entry.

    Returns the number of evicted entries.
    """
    s = get_entry_cache(s, cache)
    s, gone = remove_lowest(s, cache, expired_count(entries_of(s.caches[cache]), threshold_ns))
    return s, gone.entries


@legacy_manager.action
def size_pass(cfg: Config, s: State, cache: Cache, bytes_to_free: int) -> Step[State, Removed]:
    """`evictEntries`: evicts the lowest positions of one cache until enough bytes are freed."""
    if bytes_to_free <= 0:
        return refused(s, "illegal_argument", "the bytes to free must be more than zero")
    s = get_entry_cache(s, cache)
    return remove_lowest(s, cache, count_to_free(entries_of(s.caches[cache]), bytes_to_free))


@legacy_manager.action
def invalidate_entries_before(cfg: Config, s: State, cache: Cache, position: Position) -> Step[State, None]:
    """`RangeEntryCacheImpl.invalidateEntries`: removes the entries of a cache before a position."""
    return remove_between(s, cache, FIRST_POSITION, position)


@legacy_manager.action
def invalidate_ledger(cfg: Config, s: State, cache: Cache, ledger: int) -> Step[State, None]:
    """`RangeEntryCacheImpl.invalidateAllEntries`: removes the entries of one ledger."""
    return remove_between(s, cache, start_of(ledger), start_of(ledger + 1))


def remove_between(s: State, cache: int, first: Position, end: Position) -> tuple[State, None]:
    """Removes the entries of a cache from `first` to `end`, exclusive, and counts them as evicted."""
    s = get_entry_cache(s, cache)
    entries = entries_of(s.caches[cache])
    kept = tuple(e for e in entries if not is_in_range(e.position, first, end, False))
    if len(kept) == len(entries):
        return s, None
    return add_to_counters(with_cache(s, cache, kept), evicted_entries=len(entries) - len(kept)), None


@legacy_manager.action
def clear_cache(cfg: Config, s: State, cache: Cache) -> Step[State, None]:
    """`RangeEntryCacheImpl.clear`: removes all entries of a cache."""
    s = get_entry_cache(s, cache)
    s, _ = remove_lowest(s, cache, len(entries_of(s.caches[cache])))
    return s, None


@legacy_manager.action
def clear_all(cfg: Config, s: State) -> Step[State, None]:
    """`RangeEntryCacheManagerImpl.clear`: removes all entries of every cache."""
    for cache in range(len(s.caches)):
        s, _ = remove_lowest(s, cache, len(entries_of(s.caches[cache])))
    return s, None


@legacy_manager.action
def remove_entry_cache(cfg: Config, s: State, cache: Cache) -> Step[State, None]:
    """`removeEntryCache`: clears and removes the cache of a topic; the next use of the cache creates it again."""
    s, _ = remove_lowest(s, cache, len(entries_of(s.caches[cache])))
    return with_cache(s, cache, "absent"), None


# ---- time and settings --------------------------------------------------------------------------------


@legacy_manager.action
def advance(cfg: Config, s: State, nanos: Nanos) -> Step[State, None]:
    """Advances the clock."""
    return s._replace(now_ns=s.now_ns + nanos), None


@legacy_manager.action
def set_max_bytes(cfg: Config, s: State, value: Bytes) -> Step[State, None]:
    """`updateCacheSizeAndThreshold`: sets the maximum; evicts nothing."""
    return s._replace(max_bytes=value), None


@legacy_manager.action
def set_watermark(cfg: Config, s: State, value: Annotated[float, Between(0, 1)]) -> Step[State, None]:
    """`updateCacheEvictionWatermark`: sets the watermark; evicts nothing."""
    return s._replace(watermark=value), None


# ---- canonical form, observation, profiles ------------------------------------------------------------


@legacy_manager.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Makes timestamps relative to the clock, and sets the clock to zero."""

    def shifted(held: CacheState) -> CacheState:
        return (
            held if isinstance(held, str) else tuple(e._replace(timestamp_ns=e.timestamp_ns - s.now_ns) for e in held)
        )

    return s._replace(now_ns=0, caches=tuple(shifted(held) for held in s.caches))


@legacy_manager.observation
def observe(cfg: Config, s: State) -> dict[str, object]:
    """Returns the total size, the entries of each cache, `evictionInProgress`, the number of tasks and the counters.

    An absent cache is shown as an empty one.
    """
    return {
        "total_bytes": total_bytes(s),
        "caches": [_observe_cache(held) for held in s.caches],
        "eviction_in_progress": s.eviction_in_progress,
        "queued_eviction_tasks": len(s.tasks),
        "counters": s.counters._asdict(),
    }


def _observe_cache(held: CacheState) -> dict[str, object]:
    if held == "disabled":
        return {"disabled": True, "bytes": 0}
    return observe_entries(entries_of(held))


reference = legacy_manager.profile("reference", "branch 4.0, but shares are computed in integers", Config())

recorded = legacy_manager.release(
    "4.0",
    rules=Config(share_arithmetic="double"),
    about="recorded from the master of 2025-07-28, in which these classes are as on branch 4.0",
)
