"""Settings, state and outcomes of the entry cache; what they are for is said in `model/entry_cache/machine.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from model import range_cache as ranges
from model.entry_cache import reads_limiter as limiter
from model.entry_cache.reads_limiter import Limiter
from model.entry_cache.shared_reads import Request, StorageRead
from model.machine import Setting
from model.positions import Position
from model.values import AtLeast, Between, record

# ---- settings and rules -------------------------------------------------------------------------------


class Stored(NamedTuple):
    """What storage holds of a ledger: the bytes of its entries, from entry 0 on."""

    cache: int
    ledger: int
    entry_bytes: tuple[int, ...]


class Config(NamedTuple):
    """Settings of the broker and its surroundings, then the rules on which versions differ."""

    #: how many topics there are; their caches are numbered from 0
    caches: Annotated[int, AtLeast(1)] = 2
    #: what can be read from storage
    stored: tuple[Stored, ...] = (
        Stored(0, 1, (10, 11, 9, 10)),
        Stored(0, 2, (10, 10)),
        Stored(1, 1, (10, 7, 13, 10)),
    )
    #: whether storage answers in the step that asks, or later
    storage_reads: Literal["immediate", "queued"] = "queued"
    #: whether an eviction task runs in the step that triggers it, or later
    eviction_task: Literal["immediate", "queued"] = "queued"
    #: how long an entry may stay without an extension
    ttl_ns: Annotated[int, AtLeast(0), Setting("managedLedgerCacheEvictionTimeThresholdMillis", "1000 ms")] = (
        1_000_000_000
    )
    #: how often an entry with expected reads is put back at the tail; 0 switches that off
    max_requeue_times: Annotated[
        int, AtLeast(0), Setting("managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes", "5")
    ] = 5
    #: whether an entry that was looked up since its last visit is put back at the tail, however often
    extend_ttl_of_recently_accessed: Annotated[
        bool, Setting("managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed", "true in 4.1 and 4.2, false from 5.0.0")
    ] = False
    #: the size that all caches together should stay below; a cache that is created while it is 0 is disabled
    max_bytes: Annotated[int, AtLeast(0), Setting("managedLedgerCacheSizeMB", "a fifth of direct memory")] = 134_217_728
    #: the share of the maximum that a size pass brings the caches down to
    watermark: Annotated[float, Between(0, 1), Setting("managedLedgerCacheEvictionWatermark", "0.9")] = 0.9
    #: the bytes that reads may be promised at a time; 0 switches the limiter off
    max_reads_in_flight_bytes: Annotated[int, AtLeast(0), Setting("managedLedgerMaxReadsInFlightSizeInMB", "0")] = 0
    #: how long a read waits for its permits
    permits_timeout_ns: Annotated[
        int, AtLeast(0), Setting("managedLedgerMaxReadsInFlightPermitsAcquireTimeoutMillis", "60000 ms")
    ] = 60_000_000_000
    #: how many reads may wait for permits
    permits_queue_size: Annotated[
        int, AtLeast(0), Setting("managedLedgerMaxReadsInFlightPermitsAcquireQueueSize", "10000")
    ] = 10_000

    #: what becomes of the counter of an entry that is added again: kept, or the newcomer's takes its place
    duplicate_put: Literal["keep", "latest_handler"] = "latest_handler"
    #: whether leaving the cache lowers the counter that open copies still share
    removal_marks_read: bool = False
    #: whether giving back what was gathered for a read, but never delivered, lowers the counters
    undelivered_release_marks_read: bool = False
    #: whether the cache's rejection of an entry from storage lowers the counter that the reader shares
    rejection_counts_as_read: bool = False
    #: whether the periodic eviction takes the mark off although a task is still queued
    periodic_eviction_erases_mark: bool = False
    #: whether the limiter's timer, too, hands permits on to those who waited behind one that it fails
    timer_hands_permits_on: bool = True
    #: what comes of a request that needs all of a range when storage answers short: read again, or never answered
    short_answer: Literal["read_again", "never_answered"] = "read_again"


# ---- state --------------------------------------------------------------------------------------------

#: In place of a range cache's number: the topic's cache was removed and not used since; it stores nothing.
ABSENT, DISABLED = -1, -2


@record
class Counters(NamedTuple):
    """What the broker's metrics count from its start."""

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
    owners: tuple[int, ...]  # of each range cache ever created: whose it is, or was
    homes: tuple[int, ...]  # of each topic: its range cache, or ABSENT or DISABLED
    total_bytes: int
    max_bytes: int
    watermark: float
    marked: bool  # an eviction is in progress
    tasks: int  # eviction tasks that are queued
    failing: int  # how many of the next storage reads fail, where they are answered at once
    reads: tuple[StorageRead, ...]
    requests: tuple[Request, ...]
    limiter: Limiter
    next_request: int
    next_read: int
    next_held: int
    counters: Counters


def start(cfg: Config) -> State:
    """Empty caches, one for each topic, at time zero."""
    empty = ranges.start(derived(cfg).ranges)
    homes = tuple(range(cfg.caches)) if cfg.max_bytes else (DISABLED,) * cfg.caches
    if not cfg.max_bytes:
        empty = empty._replace(sizes=())
    return State(
        ranges=empty,
        owners=homes if cfg.max_bytes else (),
        homes=homes,
        total_bytes=0,
        max_bytes=cfg.max_bytes,
        watermark=cfg.watermark,
        marked=False,
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
    """What a config says in the words of the parts that this machine is made of."""

    ranges: ranges.Config
    limiter: limiter.Rules
    stored: Mapping[tuple[int, int], tuple[int, ...]]  # by cache and ledger


_KEPT: list[tuple[Config, Derived]] = []


def derived(cfg: Config) -> Derived:
    """The config in other words; kept for the latest one, since it is asked for at every step."""
    if _KEPT and _KEPT[0][0] is cfg:
        return _KEPT[0][1]
    same = {name: getattr(cfg, name) for name in ranges.Config._fields if name in Config._fields}
    rules = limiter.Rules(cfg.max_reads_in_flight_bytes, cfg.permits_queue_size, cfg.permits_timeout_ns)
    stored = {(each.cache, each.ledger): each.entry_bytes for each in cfg.stored}
    found = Derived(ranges.Config(**same), rules, stored)
    _KEPT[:] = [(cfg, found)]
    return found


class Issued(NamedTuple):
    """A read that storage was asked for."""

    number: int
    cache: int
    ledger: int
    first: int
    last: int


class Delivered(NamedTuple):
    """An entry that a reader got: its copy is open until it is released."""

    position: Position
    bytes: int
    expected_reads: int | None
    copy: int


class Answered(NamedTuple):
    """A request that is answered, well or not."""

    request: int
    ok: bool
    entries: tuple[Delivered, ...]


class Reading(NamedTuple):
    """What a call set off: the reads that storage was asked for, and the requests that were answered."""

    request: int | None
    issued: tuple[Issued, ...]
    answered: tuple[Answered, ...]


class Released(NamedTuple):
    """The counter after a copy was released, and what the permits set off that became free."""

    expected_reads: int | None
    issued: tuple[Issued, ...]
    answered: tuple[Answered, ...]
