"""Config and state of the cache steps: shared structures, threads and locks.

`model/cache_steps/machine.py` has the actions, and explains the terms. The program counter of a thread (`at`) is "idle"
or stands for the thread's next action: the action that a comment names, otherwise the action with the same name.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, TypeVar

from model.machine import Setting
from model.values import AtLeast, Origin, Rule, record

T = TypeVar("T")

# ---- settings and rules -------------------------------------------------------------------------------


class Config(NamedTuple):
    """Numbers of caches, positions, wrappers and threads; broker settings; rules in which versions differ."""

    #: number of topics with a cache; caches are numbered from 0
    caches: Annotated[int, AtLeast(1)] = 1
    #: number of positions of each cache; the entry at position p (from 0) has p + 1 bytes
    positions: Annotated[int, AtLeast(1)] = 2
    #: number of wrappers; the broker allocates a new one when its pool is empty
    pool: Annotated[int, AtLeast(1)] = 3
    #: number of inserting threads
    inserters: Annotated[int, AtLeast(1)] = 2
    #: number of threads that remove ranges
    removers: Annotated[int, AtLeast(0)] = 1
    #: number of threads that look up positions
    readers: Annotated[int, AtLeast(0)] = 1
    #: `evictionTriggerThreshold`: an insert schedules an eviction task if the total is above the trigger
    trigger_bytes: Annotated[int, AtLeast(0), Setting("managedLedgerCacheSizeMB", "98 % of it")] = 0
    #: the watermark: a size pass evicts down to this total
    target_bytes: Annotated[int, AtLeast(0), Setting("managedLedgerCacheEvictionWatermark", "0.9 of it")] = 0
    #: whether a pass requeues an entry accessed since its insertion or last requeue; such requeues have no maximum
    extend_ttl_of_recently_accessed: Annotated[
        bool, Setting("managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed", (("4.1", True), ("5.0", False)))
    ] = False

    #: where an insert adds its wrapper first; with "queue", the wrapper of a rejected duplicate stays in the queue
    published_first: Annotated[
        Literal["map", "queue"],
        Rule(Origin.READ, {"queue": "RangeCache.put in apache/pulsar#24363, revision 9534b612"}),
    ] = "map"
    #: whether a put tests and writes the map in one step; otherwise two puts at a position can both count their entry
    put_is_atomic: Annotated[
        bool, Rule(Origin.READ, {False: "RangeCache.put (computeIfAbsent) before apache/pulsar#21302"})
    ] = True
    #: whether a removal, when it subtracts, also unmaps all positions of its range, without marking their wrappers
    clears_in_bulk: Annotated[
        bool, Rule(Origin.READ, {True: "RangeCache.clear (entries.clear) before apache/pulsar#21302"})
    ] = False
    #: what a removal subtracts from the total: the bytes it removed, or the size of the cache when the removal began
    removal_reports: Annotated[
        Literal["removed", "size_at_start"],
        Rule(Origin.READ, {"size_at_start": "EntryCacheImpl.clear before apache/pulsar#10225"}),
    ] = "removed"
    #: whether a removal checks, under the lock, that the wrapper still has the key at which the removal found it;
    #: without this check, the removal counts the bytes of the entry in any case
    removal_rechecks_key: Annotated[
        bool, Rule(Origin.READ, {False: "RangeCache.removeRange before apache/pulsar#22789 (issue #10433)"})
    ] = True
    #: which wrapper an eviction unmaps: the one that it checked, or the one that is then mapped at the position
    eviction_unmaps: Annotated[
        Literal["checked", "mapped"],
        Rule(
            Origin.INFERRED,
            {"mapped": "RangeCache, removal by key, as the description of apache/pulsar#18076 proposes"},
        ),
    ] = "checked"
    #: whether a lookup checks that the retained value has the requested position
    retaining_checks_position: Annotated[
        bool, Rule(Origin.READ, {False: "RangeCache.get before apache/pulsar#22789"})
    ] = True
    #: whether recycling a wrapper clears `accessed`
    recycling_clears_accessed: Annotated[
        bool,
        Rule(
            Origin.INFERRED,
            {
                False: (
                    "no known version, but RangeCacheEntryWrapper.recycle left messageMetadataInitialized "
                    "set before apache/pulsar#25987"
                )
            },
        ),
    ] = True
    #: what a thread that read null from `evictionInProgress` does with the field if another thread has set it since:
    #: it leaves the field as it is ("keeps"), or writes null ("erases")
    late_trigger: Annotated[
        Literal["keeps", "erases"],
        Rule(
            Origin.READ,
            {"erases": "RangeEntryCacheManagerImpl.triggerEvictionWhenNeeded, 4.1, before apache/pulsar#25988"},
        ),
    ] = "keeps"
    #: whether the periodic task overwrites `evictionInProgress` with its own future, and sets it to null at its end
    periodic_task_overwrites_future: Annotated[
        bool, Rule(Origin.READ, {True: "RangeEntryCacheManagerImpl.doCacheEviction, 4.1 to master 2026-07"})
    ] = False
    #: whether the size still includes the bytes of a removed entry whose value was already deallocated
    released_value_stays_counted: Annotated[
        bool, Rule(Origin.READ, {True: "RangeCache.removeEntry, 4.1 to master 2026-09"})
    ] = False
    #: whether a removal continues after a deallocated value; otherwise it finds the same value again and does not end
    removal_passes_released_values: Annotated[
        bool, Rule(Origin.READ, {False: "RangeCache.clear before apache/pulsar#22814"})
    ] = True


# ---- state --------------------------------------------------------------------------------------------


class Wrapper(NamedTuple):
    """`RangeCacheEntryWrapper`."""

    key: int | None  # key of the entry; None after `markRemoved`, and in the pool
    accessed: bool  # set by a lookup; cleared by a requeue and by recycling
    released: bool  # whether the value was deallocated (`over_release`) while the entry was mapped
    pooled: bool  # whether the wrapper is in the pool, available to an insert


class Insert(NamedTuple):
    """An inserting thread."""

    at: Literal[
        "idle",
        "put",  # `publish`, which maps the wrapper
        "offer",  # `publish`, which offers the wrapper to the queue
        "count",  # `count_in_cache`
        "total",  # `count_in_total`
        "schedule",
        "retry",  # `schedule`, which reads `evictionInProgress` again
    ]
    wrapper: int | None  # the wrapper that the thread fills and holds the lock of; None from `total` on
    key: int | None  # key of the entry; None from `schedule` on


class Removal(NamedTuple):
    """A thread that removes a range; it holds the lock of its wrapper at `unmap` and `mark_removed`."""

    at: Literal[
        "idle",
        "find",  # `find_next`
        "take",
        "unmap",
        "mark_removed",
        "subtract",
        "report",
    ]
    key: int | None  # key of the entry that the thread found; at `find`, the next key to look at
    last: int | None  # the last key of the range; None at `report`
    wrapper: int | None  # the wrapper that the thread found; None at `find` and from `subtract` on
    removed: int  # bytes removed so far; at `report`, the bytes to subtract from the total
    size_at_start: int  # size of the cache when the removal began; only with `removal_reports="size_at_start"`


class Eviction(NamedTuple):
    """The evicting thread; it holds the lock of its wrapper from the result REMOVE until it has subtracted.

    With `eviction_unmaps="mapped"`, it holds the lock of the wrapper that it unmaps, from `mark_removed` on.
    """

    at: Literal[
        "idle",
        "measure",
        "peek",
        "visit",  # `visit_for_size` in a size pass, `visit_for_time` in a time pass
        "requeue",
        "unmap",  # `unmap_evicted`
        "mark_removed",  # `mark_evicted_removed`
        "subtract",  # `subtract_evicted`
        "pop",
        "recycle",
        "report",  # `report_evicted`
        "end",  # `end_eviction`
    ]
    periodic: bool  # whether its task is the periodic one (`doCacheEviction`), not one that an insert scheduled
    wrapper: int | None  # the head that it peeked or popped, or the wrapper that it unmaps
    key: int | None  # key of the entry that it removes
    goal: int | None  # bytes to free in a size pass; None in a time pass; 0 outside a pass
    freed: int  # bytes freed in this pass, and not yet reported


class Lookup(NamedTuple):
    """A thread that looks up a position."""

    at: Literal["idle", "compare", "set_accessed", "retain"]
    key: int | None  # the requested key
    wrapper: int | None


@record
class State(NamedTuple):
    """Shared structures, then the threads."""

    mapped: tuple[int | None, ...]  # by key: number of the wrapper
    queue: tuple[int, ...]  # numbers of the wrappers in the removal queue, head first
    wrappers: tuple[Wrapper, ...]  # by number
    sizes: tuple[int, ...]  # by cache: `RangeCache.size`
    total: int  # `RangeEntryCacheManagerImpl.currentSize`
    eviction_in_progress: bool  # `evictionInProgress` is not null: an eviction task is scheduled or runs
    scheduled: int  # eviction tasks that the evicting thread has not begun
    inserts: tuple[Insert, ...]
    removals: tuple[Removal, ...]
    eviction: Eviction
    lookups: tuple[Lookup, ...]


#: The rules with their values in the profile `reference`.
REFERENCE_RULES = {
    name: Config._field_defaults[name] for name in Config._fields[Config._fields.index("published_first") :]
}


FREE = Wrapper(key=None, accessed=False, released=False, pooled=True)
NO_INSERT = Insert("idle", wrapper=None, key=None)
NO_REMOVAL = Removal("idle", key=None, last=None, wrapper=None, removed=0, size_at_start=0)
NO_EVICTION = Eviction("idle", periodic=False, wrapper=None, key=None, goal=0, freed=0)
NO_LOOKUP = Lookup("idle", key=None, wrapper=None)


def start(cfg: Config) -> State:
    """Returns the state with empty caches, every wrapper in the pool and every thread idle."""
    return State(
        mapped=(None,) * (cfg.caches * cfg.positions),
        queue=(),
        wrappers=(FREE,) * cfg.pool,
        sizes=(0,) * cfg.caches,
        total=0,
        eviction_in_progress=False,
        scheduled=0,
        inserts=(NO_INSERT,) * cfg.inserters,
        removals=(NO_REMOVAL,) * cfg.removers,
        eviction=NO_EVICTION,
        lookups=(NO_LOOKUP,) * cfg.readers,
    )


# ---- keys, locks and wrappers -------------------------------------------------------------------------


def key_of(cfg: Config, cache: int, position: int) -> int:
    """Returns the key of a position: its number among the positions of all caches."""
    return cache * cfg.positions + position


def cache_of(cfg: Config, key: int) -> int:
    """Returns the cache of a key."""
    return key // cfg.positions


def bytes_of(cfg: Config, key: int) -> int:
    """Returns the bytes of the entry at a key."""
    return key % cfg.positions + 1


def is_locked(cfg: Config, s: State, wrapper: int) -> bool:
    """Whether a thread holds the lock of the wrapper."""
    # an inserting thread, and a removing thread except at `take`, have a wrapper only while they hold its lock
    for i in s.inserts:
        if i.wrapper == wrapper:
            return True
    for r in s.removals:
        if r.wrapper == wrapper and r.at != "take":
            return True
    e = s.eviction
    if e.wrapper != wrapper:
        return False
    return e.at in ("mark_removed", "subtract") or (e.at == "unmap" and cfg.eviction_unmaps == "checked")


def with_item(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    """Returns the items with `item` at an index."""
    return (*items[:index], item, *items[index + 1 :])


def with_bytes(cfg: Config, s: State, key: int, more: int) -> tuple[int, ...]:
    """Returns the sizes, with `more` bytes (negative: fewer) for the cache of a key."""
    cache = cache_of(cfg, key)
    return with_item(s.sizes, cache, s.sizes[cache] + more)


def recycled(cfg: Config, w: Wrapper) -> Wrapper:
    """`RangeCacheEntryWrapper.recycle`: returns the wrapper with its fields reset.

    Without `recycling_clears_accessed`, `accessed` stays.
    """
    return FREE if cfg.recycling_clears_accessed else FREE._replace(accessed=w.accessed)


def marked_removed(w: Wrapper) -> Wrapper:
    """`RangeCacheEntryWrapper.markRemoved`: returns the wrapper without its entry; `accessed` stays."""
    return w._replace(key=None, released=False)


def unmapped(s: State, key: int, wrapper: int) -> tuple[int | None, ...]:
    """Returns the map without the wrapper at the key; if another wrapper is mapped there, it stays."""
    return with_item(s.mapped, key, None) if s.mapped[key] == wrapper else s.mapped


def stays_counted(cfg: Config, w: Wrapper) -> bool:
    """Whether a removal or eviction only unmaps a wrapper: its value is deallocated, its bytes stay in the size."""
    return w.released and cfg.released_value_stays_counted
