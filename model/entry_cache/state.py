"""Settings, rules, state and outcomes of the entry cache (`model/entry_cache/machine.py`)."""

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
    """The entries of a ledger in storage."""

    cache: int  # number of the topic
    ledger: int  # ledger id
    entry_bytes: tuple[Annotated[int, AtLeast(0)], ...]  # size of each entry, from entry id 0 on


class Config(NamedTuple):
    """Settings of the broker and its environment, then the rules in which versions differ."""

    #: number of topics; their caches are numbered from 0
    caches: Annotated[int, AtLeast(1)] = 2
    #: the entries in storage; of two items for the same topic and ledger, the last one applies
    stored: tuple[Stored, ...] = (
        Stored(0, 1, (10, 11, 9, 10)),
        Stored(0, 2, (10, 10)),
        Stored(1, 1, (10, 7, 13, 10)),
    )
    #: immediate: storage answers a read in the step that issues it. queued: storage answers in a later step
    storage_reads: Literal["immediate", "queued"] = "queued"
    #: immediate: an eviction task runs in the step that triggers it. queued: the task runs in a later step
    eviction_task: Literal["immediate", "queued"] = "queued"
    #: TTL: the periodic eviction removes or requeues entries that are older. Size passes use the TTL only if
    #: `size_pass_requeues_expired` is false
    ttl_ns: Annotated[int, AtLeast(0), Setting("managedLedgerCacheEvictionTimeThresholdMillis", 1000, 1_000_000)] = (
        1_000_000_000
    )
    #: `maxRequeueCountWhenHasExpectedReads`: an entry with expected reads is requeued if its `requeue_count` is below
    #: this number
    max_requeue_times: Annotated[
        int,
        AtLeast(0),
        Setting("managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes", (("4.1", 5),)),
    ] = 5
    #: whether an entry that was accessed since its insertion or last requeue is requeued, without a maximum
    extend_ttl_of_recently_accessed: Annotated[
        bool, Setting("managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed", (("4.1", True), ("5.0", False)))
    ] = False
    #: maximum size of all caches together; a cache that is created while the maximum is 0 is disabled until its removal
    max_bytes: Annotated[
        int, AtLeast(0), Setting("managedLedgerCacheSizeMB", "a fifth of direct memory, at least 64 MB")
    ] = 134_217_728
    #: fraction of the maximum size down to which a size pass evicts
    watermark: Annotated[float, Between(0, 1), Setting("managedLedgerCacheEvictionWatermark", 0.9)] = 0.9
    #: maximum of the estimated bytes of all reads in flight; 0 switches the limiter off
    max_reads_in_flight_bytes: Annotated[
        int,
        AtLeast(0),
        Setting(
            "managedLedgerMaxReadsInFlightSizeInMB",
            (("4.0", 0), ("5.0", "15 % of direct memory, at least dispatcherMaxReadSizeBytes")),
            1 << 20,
        ),
    ] = 0
    #: how long a read waits for permits. In the broker, 0 or less means no limit; this is not modelled
    permits_timeout_ns: Annotated[
        int, AtLeast(1), Setting("managedLedgerMaxReadsInFlightPermitsAcquireTimeoutMillis", 60_000, 1_000_000)
    ] = 60_000_000_000
    #: maximum number of reads that wait for permits
    permits_queue_size: Annotated[
        int, AtLeast(0), Setting("managedLedgerMaxReadsInFlightPermitsAcquireQueueSize", 10_000)
    ] = 10_000

    #: which read count handler a cached entry has after another entry is inserted at its position. keep: its own.
    #: latest_handler: that of the other entry, so none if the other entry has none
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
    #: whether the removal of an entry from the cache decrements the read count that the entry shares with its copies
    removal_marks_read: Annotated[
        bool, Rule(Origin.RECORDED, {True: "EntryImpl.deallocate of the cached entry, 4.1 to master 2026-07"})
    ] = False
    #: whether the release of held copies that are not delivered decrements their read counts
    undelivered_release_marks_read: Annotated[
        bool,
        Rule(Origin.RECORDED, {True: "RangeEntryCacheImpl.doAsyncReadEntriesByPosition, 4.1 to master 2026-07"}),
    ] = False
    #: what a size pass does with an expired entry that is due for requeue: requeues it (true) or removes it (false)
    size_pass_requeues_expired: Annotated[
        bool, Rule(Origin.READ, {False: "evictLeastAccessedEntries(sizeToFree, expirationTimestamp), PIP-430"})
    ] = True
    #: whether the rejection of an entry from storage, because its position is cached, decrements the read count that
    #: the rejected entry shares with the reader's copies. Only with `duplicate_put` "keep"
    rejection_marks_read: Annotated[
        bool, Rule(Origin.RECORDED, {True: "RangeEntryCacheImpl.insert, 4.1 to master 2026-07"})
    ] = False
    #: whether the periodic eviction clears `evictionInProgress` although a task is scheduled
    periodic_eviction_clears_in_progress: Annotated[
        bool, Rule(Origin.RECORDED, {True: "RangeEntryCacheManagerImpl.doCacheEviction, 4.1 to master 2026-07"})
    ] = False
    #: whether the limiter's timer grants permits to requests behind those that it fails
    timer_grants_next: Annotated[
        bool, Rule(Origin.READ, {False: "InflightReadsLimiter.timeoutCheck, 4.1 to master 2026-07"})
    ] = True
    #: what happens if storage returns too few entries for a gap of a partial cache hit.
    #: read_again: the whole range is read again, as after a failed read of a gap; the reader gets what storage has.
    #: fails: the request fails.
    #: never_answered: the list of entries has null slots, `OpReadEntry` fails on them, and the request never completes.
    #: `settle` in `reads.py` has the rules for other requests
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
    #: whether an unexpected entry from storage is cached at its own position. The reference ignores such an entry:
    #: storage that returns unexpected entries cannot be trusted with their positions
    caches_unexpected_entries: Annotated[
        bool,
        Rule(Origin.READ, {True: "RangeEntryCacheImpl.readFromStorage, 4.1 to master 2026-09"}),
    ] = False


# ---- state --------------------------------------------------------------------------------------------

#: Values in place of a range cache's number. ABSENT: the topic's cache was removed, and the topic has not been used
#: since. DISABLED: the cache was created while the maximum size was 0 (`EntryCacheDisabled`).
ABSENT, DISABLED = -1, -2


@record
class Counters(NamedTuple):
    """Counters of the broker's metrics since its start; `model/cache_metrics.py` names the metrics."""

    insertions: int = 0
    hit_entries: int = 0
    hit_bytes: int = 0
    miss_entries: int = 0
    miss_bytes: int = 0
    evicted_entries: int = 0  # includes entries that were removed by invalidation or clearing
    size_evictions: int = 0


@record
class State(NamedTuple):
    """The entry caches of a broker."""

    ranges: ranges.State
    owners: tuple[int, ...]  # for each range cache, the topic for which it was created
    topic_caches: tuple[int, ...]  # for each topic, the number of its range cache, or ABSENT or DISABLED
    total_bytes: int  # currentSize: bytes of all range caches, including removed ones
    max_bytes: int  # maxSize
    watermark: float  # cacheEvictionWatermark
    eviction_in_progress: bool  # whether evictionInProgress is set
    tasks: int  # number of scheduled eviction tasks
    failing: int  # how many of the next storage reads fail (`storage_reads` "immediate" only)
    reads: tuple[StorageRead, ...]  # outstanding storage reads, in the order of their numbers
    requests: tuple[Request, ...]  # pending requests, in the order of their numbers
    limiter: Limiter
    next_request: int  # number of the next request
    next_read: int  # number of the next storage read
    next_held: int  # number of the next copy that is held for a pending request: -1, then -2 and so on
    counters: Counters


def start(cfg: Config) -> State:
    """Returns the initial state: empty caches, one for each topic, or disabled ones if the maximum size is 0."""
    caches = ranges.start(derived(cfg).ranges)
    topic_caches = tuple(range(cfg.caches)) if cfg.max_bytes else (DISABLED,) * cfg.caches
    if not cfg.max_bytes:
        caches = caches._replace(sizes=())
    return State(
        ranges=caches,
        owners=topic_caches if cfg.max_bytes else (),  # range cache n is created for topic n
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
    """What follows from a config: the configs of the range caches and the limiter, and the entries in storage."""

    ranges: ranges.Config
    limiter: limiter.Settings
    stored: Mapping[tuple[int, int], tuple[int, ...]]  # entry sizes by topic and ledger


#: The config for which `derived` was called last, and its result.
_KEPT: list[tuple[Config, Derived]] = []


def derived(cfg: Config) -> Derived:
    """Returns what follows from a config. The latest result is cached, because every step needs it."""
    if _KEPT and _KEPT[0][0] is cfg:
        return _KEPT[0][1]
    common = {name: getattr(cfg, name) for name in ranges.Config._fields if name in Config._fields}
    settings = limiter.Settings(cfg.max_reads_in_flight_bytes, cfg.permits_queue_size, cfg.permits_timeout_ns)
    stored = {(each.cache, each.ledger): each.entry_bytes for each in cfg.stored}
    found = Derived(ranges.Config(**common), settings, stored)
    _KEPT[:] = [(cfg, found)]
    return found


class Issued(NamedTuple):
    """A storage read that a step issued."""

    number: int
    cache: int  # number of the topic
    ledger: int
    first: int
    last: int


class Delivered(NamedTuple):
    """A delivered entry."""

    position: Position
    bytes: int
    expected_reads: int | None  # read count at delivery; None without a handler
    copy: int  # number of the delivered copy, which is open until its release


class Answered(NamedTuple):
    """A request that completed or failed."""

    request: int
    ok: bool  # true: the request completed; false: it failed
    entries: tuple[Delivered, ...]  # none if the request failed


class Reading(NamedTuple):
    """The effects of a step: storage reads that the step issued, and requests that the step completed or failed."""

    request: int | None  # the new request, if the step is a read; it may also be in `answered`
    issued: tuple[Issued, ...]
    answered: tuple[Answered, ...]


class Released(NamedTuple):
    """The read count after a release, and the effects of the queued requests that the release starts or fails."""

    expected_reads: int | None
    issued: tuple[Issued, ...]
    answered: tuple[Answered, ...]
