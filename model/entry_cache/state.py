"""Settings, state and outcomes of the entry cache; `model/entry_cache/machine.py` describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from model import range_cache as ranges
from model.entry_cache import reads_limiter as limiter
from model.entry_cache.reads_limiter import Limiter
from model.entry_cache.shared_reads import Request, StorageRead
from model.machine import Setting
from model.positions import Position
from model.values import AtLeast, Between, Origin, Rule, record

# ---- settings and rules -------------------------------------------------------------------------------


class Stored(NamedTuple):
    """The entries of a ledger in storage: their sizes, from entry 0 on."""

    cache: int
    ledger: int
    entry_bytes: tuple[Annotated[int, AtLeast(0)], ...]


class Config(NamedTuple):
    """Settings of the broker and its environment, then the rules on which versions differ."""

    #: number of topics; their caches are numbered from 0
    caches: Annotated[int, AtLeast(1)] = 2
    #: the entries in storage; if several rows have one ledger, the last row counts
    stored: tuple[Stored, ...] = (
        Stored(0, 1, (10, 11, 9, 10)),
        Stored(0, 2, (10, 10)),
        Stored(1, 1, (10, 7, 13, 10)),
    )
    #: whether storage answers in the same step or later
    storage_reads: Literal["immediate", "queued"] = "queued"
    #: whether an eviction task runs in the step that triggers it or later
    eviction_task: Literal["immediate", "queued"] = "queued"
    #: TTL: an older entry is removed or requeued by the periodic eviction
    ttl_ns: Annotated[int, AtLeast(0), Setting("managedLedgerCacheEvictionTimeThresholdMillis", 1000, 1_000_000)] = (
        1_000_000_000
    )
    #: `maxRequeueCountWhenHasExpectedReads`: a pass requeues an entry with expected reads if `requeue_count` is lower
    max_requeue_times: Annotated[
        int,
        AtLeast(0),
        Setting("managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes", (("4.1", 5),)),
    ] = 5
    #: whether an entry that was accessed since insertion or its last requeue is requeued, without a maximum
    extend_ttl_of_recently_accessed: Annotated[
        bool, Setting("managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed", (("4.1", True), ("5.0", False)))
    ] = False
    #: maximum size of all caches together; a cache that is created while it is 0 stays disabled until it is removed
    max_bytes: Annotated[
        int, AtLeast(0), Setting("managedLedgerCacheSizeMB", "a fifth of direct memory, at least 64 MB")
    ] = 134_217_728
    #: fraction of the maximum size down to which a size pass evicts
    watermark: Annotated[float, Between(0, 1), Setting("managedLedgerCacheEvictionWatermark", 0.9)] = 0.9
    #: bytes of storage reads in flight; 0 switches the limiter off
    max_reads_in_flight_bytes: Annotated[
        int,
        AtLeast(0),
        Setting(
            "managedLedgerMaxReadsInFlightSizeInMB",
            (("4.0", 0), ("5.0", "15 % of direct memory, at least dispatcherMaxReadSizeBytes")),
            1 << 20,
        ),
    ] = 0
    #: how long a read waits for permits; without limit if the broker's setting is 0 or less, which is not modelled
    permits_timeout_ns: Annotated[
        int, AtLeast(1), Setting("managedLedgerMaxReadsInFlightPermitsAcquireTimeoutMillis", 60_000, 1_000_000)
    ] = 60_000_000_000
    #: how many reads may wait for permits
    permits_queue_size: Annotated[
        int, AtLeast(0), Setting("managedLedgerMaxReadsInFlightPermitsAcquireQueueSize", 10_000)
    ] = 10_000

    #: read count handler of a cached entry after another is inserted at its position: its own, or that of the other
    duplicate_put: Annotated[
        Literal["keep", "latest_handler"],
        Rule(
            Origin.RECORDED,
            {
                "keep": "RangeEntryCacheImpl.insert, 4.1 to master 2026-07",
                "latest_handler": "EntryImpl.updateExpectedReadCount, master 2026-09",
            },
        ),
    ] = "latest_handler"
    #: whether removal from the cache decrements the read count that open copies share
    removal_marks_read: Annotated[
        bool, Rule(Origin.RECORDED, {True: "EntryImpl.deallocate of the cached entry, 4.1 to master 2026-07"})
    ] = False
    #: whether the release of held copies that were not delivered decrements their read counts
    undelivered_release_marks_read: Annotated[
        bool,
        Rule(Origin.RECORDED, {True: "RangeEntryCacheImpl.doAsyncReadEntriesByPosition, 4.1 to master 2026-07"}),
    ] = False
    #: whether a size pass requeues an entry that is due for requeue and expired, or removes it
    size_pass_requeues_expired: Annotated[
        bool, Rule(Origin.READ, {False: "evictLeastAccessedEntries(sizeToFree, expirationTimestamp), PIP-430"})
    ] = True
    #: whether the rejection of an entry from storage decrements the read count that the reader shares
    rejection_marks_read: Annotated[
        bool, Rule(Origin.RECORDED, {True: "RangeEntryCacheImpl.insert, 4.1 to master 2026-07"})
    ] = False
    #: whether the periodic eviction clears `evictionInProgress` although a task is scheduled
    periodic_eviction_erases_mark: Annotated[
        bool, Rule(Origin.RECORDED, {True: "RangeEntryCacheManagerImpl.doCacheEviction, 4.1 to master 2026-07"})
    ] = False
    #: whether the limiter's timer grants permits to requests behind those that it fails
    timer_grants_next: Annotated[
        bool, Rule(Origin.READ, {False: "InflightReadsLimiter.timeoutCheck, 4.1 to master 2026-07"})
    ] = True
    #: a partial cache hit of which storage returns too few entries. read_again: the whole range is read again, as after
    #: a failed read of a gap. fails: the request fails. never_answered: its list has null slots, on which `OpReadEntry`
    #: fails, and the reader is never answered. The reference reads again: the reader then gets what storage has
    short_answer: Annotated[
        Literal["read_again", "fails", "never_answered"],
        Rule(
            Origin.READ,
            {
                "never_answered": "RangeEntryCacheImpl.doAsyncReadEntriesByPosition, 4.1 to master 2026-07",
                "fails": "since OpReadEntryNullSlotTest, master 2026-09",
            },
        ),
    ] = "read_again"
    #: whether an unexpected entry from storage is cached at its own position. The reference ignores it: storage that
    #: returns unexpected entries cannot be trusted with their positions
    caches_unexpected_entries: Annotated[
        bool,
        Rule(Origin.READ, {True: "RangeEntryCacheImpl.readFromStorage, 4.1 to master 2026-09"}),
    ] = False


# ---- state --------------------------------------------------------------------------------------------

#: In place of a range cache's number: ABSENT if the topic's cache was removed and not used since, DISABLED if the cache
#: was created while the maximum size was 0 (`EntryCacheDisabled`).
ABSENT, DISABLED = -1, -2


@record
class Counters(NamedTuple):
    """Counters of the broker's metrics since its start."""

    insertions: int = 0
    hit_entries: int = 0
    hit_bytes: int = 0
    miss_entries: int = 0
    miss_bytes: int = 0
    evicted_entries: int = 0  # removed by invalidation or clearing, too
    size_evictions: int = 0


@record
class State(NamedTuple):
    """The entry caches of a broker."""

    ranges: ranges.State
    owners: tuple[int, ...]  # the topic for which each range cache was created
    topic_caches: tuple[int, ...]  # the range cache of each topic, or ABSENT or DISABLED
    total_bytes: int
    max_bytes: int
    watermark: float
    eviction_in_progress: bool  # `evictionInProgress` is set
    tasks: int  # scheduled eviction tasks
    failing: int  # how many of the next storage reads fail (`storage_reads` "immediate" only)
    reads: tuple[StorageRead, ...]  # outstanding, by number
    requests: tuple[Request, ...]  # pending, by number
    limiter: Limiter
    next_request: int  # number of the next request
    next_read: int  # number of the next storage read
    next_held: int  # number of the next held copy; negative
    counters: Counters


def start(cfg: Config) -> State:
    """Empty caches, one for each topic, at time zero."""
    empty = ranges.start(derived(cfg).ranges)
    topic_caches = tuple(range(cfg.caches)) if cfg.max_bytes else (DISABLED,) * cfg.caches
    if not cfg.max_bytes:
        empty = empty._replace(sizes=())
    return State(
        ranges=empty,
        owners=topic_caches if cfg.max_bytes else (),
        topic_caches=topic_caches,
        total_bytes=0,
        max_bytes=cfg.max_bytes,
        watermark=cfg.watermark,
        eviction_in_progress=False,
        tasks=0,
        failing=0,
        reads=(),
        requests=(),
        limiter=limiter.start(derived(cfg).limiter),
        next_request=1,
        next_read=1,
        next_held=-1,
        counters=Counters(),
    )


class Derived(NamedTuple):
    """The configs of this machine's parts."""

    ranges: ranges.Config
    limiter: limiter.Rules
    stored: Mapping[tuple[int, int], tuple[int, ...]]  # by cache and ledger


_KEPT: list[tuple[Config, Derived]] = []


def derived(cfg: Config) -> Derived:
    """Returns the derived config; the latest is cached because every step asks for it."""
    if _KEPT and _KEPT[0][0] is cfg:
        return _KEPT[0][1]
    same = {name: getattr(cfg, name) for name in ranges.Config._fields if name in Config._fields}
    rules = limiter.Rules(cfg.max_reads_in_flight_bytes, cfg.permits_queue_size, cfg.permits_timeout_ns)
    stored = {(each.cache, each.ledger): each.entry_bytes for each in cfg.stored}
    found = Derived(ranges.Config(**same), rules, stored)
    _KEPT[:] = [(cfg, found)]
    return found


class Issued(NamedTuple):
    """A storage read that a step issued."""

    number: int
    cache: int
    ledger: int
    first: int
    last: int


class Delivered(NamedTuple):
    """An entry that was delivered: its copy is open until it is released."""

    position: Position
    bytes: int
    expected_reads: int | None
    copy: int


class Answered(NamedTuple):
    """A request that completed or failed."""

    request: int
    ok: bool
    entries: tuple[Delivered, ...]


class Reading(NamedTuple):
    """What a call caused: reads sent to storage, and requests that completed or failed."""

    request: int | None
    issued: tuple[Issued, ...]
    answered: tuple[Answered, ...]


class Released(NamedTuple):
    """The read count after a release, and what the returned permits caused."""

    expected_reads: int | None
    issued: tuple[Issued, ...]
    answered: tuple[Answered, ...]
