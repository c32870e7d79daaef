"""The broker's entry cache: `RangeEntryCacheManagerImpl` and `RangeEntryCacheImpl` (PIP-430).

A broker keeps recent entries of its topics in memory, so that subscriptions share them. Each topic has a range cache.
If the total size of all range caches exceeds a trigger, a task evicts entries down to a watermark. A periodic task
evicts expired entries, except those that are due for requeue: they stay for longer, for example because reads of them
are expected. A request to read a range of entries takes those that are cached, and reads the others from storage (the
bookies). It may also join an outstanding storage read of the same entries. Permits limit the bytes that all requests
together may hold; a request without permits waits in a queue.

Composed of `model/range_cache.py`, `model/entry_cache/shared_reads.py` (`PendingReadsManager`),
`model/entry_cache/reads_limiter.py` (`InflightReadsLimiter`) and `model/watermark.py`; `reads.py` and `eviction.py`
beside this module have its rules for reads and evictions. One step is one call on the cache, one eviction task, or one
answer of storage. `model/cache_steps` interleaves threads inside such calls.

    insert     caches an entry, and adds its bytes to the total size. If the position is already cached, rejects the
               entry; the cached entry may get the read count handler of the rejected one
    schedule   after an addition: if the total size is above the trigger (98 % of the maximum) and `evictionInProgress`
               is not set, sets `evictionInProgress` and schedules an eviction task
    task       runs a size check: if the total size is above the trigger, a size pass evicts entries down to the
               watermark. Then clears `evictionInProgress`
    periodic   runs a time pass, then a size check (`doCacheEviction`)
    read       acquires permits for the request from the limiter; the request may wait for permits, or fail. A request
               with permits looks its range up:
               all entries cached: a cache hit, which completes at once
               none cached: if an outstanding storage read overlaps the range, the request joins that read for the
               common part, and looks the rest up again. Otherwise the request reads the range from storage
               some cached: a partial cache hit. The request holds the cached entries, and reads each gap as a range
               with none cached. After a gap's read fails or is too short, the request reads the whole range again
    storage    completes or fails a read; entries with expected reads are cached. Fault: storage returns too few
               entries, and possibly an unexpected one (a duplicate, or an entry that was not requested)

State: the range caches and their removal queue; for each topic, the number of its range cache; total size and
`evictionInProgress`; outstanding storage reads and the requests that wait for them; the limiter. After the removal of a
topic's cache, the next use creates another range cache; reads that started before the removal still fill the old one. A
pending request holds copies of the entries that it has found. Held copies are numbered from -1 down. When the request
completes, the reader gets them: they become open copies, numbered from 1 up.

In the code, `cache` is the number of a topic, and `range_cache` the number of a range cache. `model/range_cache.py`
knows no topics: the field `cache` of its `Entry` is the number of a range cache.

Not modelled: cursors (`expected_reads` is an argument; see `model/range_cache.py`); copying on insert; ledgers that
grow during a read; values deallocated while cached (see `model/range_cache.py`); threads. What shipped versions do
after a faulty answer of storage is modelled by two rules only: `short_answer` and `caches_unexpected_entries`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from model import range_cache as ranges
from model.entry_cache import canonical_form
from model.entry_cache import reads_limiter as limiter
from model.entry_cache.eviction import entries_of, entries_removed, entry_added, insert_duplicate, remove, size_check
from model.entry_cache.reads import Effects, answer, begin, fail_timed_out, release_permits, start_queued_requests
from model.entry_cache.shared_reads import Part, Request, StorageRead, without_joining
from model.entry_cache.state import (
    ABSENT,
    DISABLED,
    Answered,
    Config,
    Counters,
    Reading,
    Released,
    State,
    derived,
    start,
)
from model.machine import Machine, Step, refused
from model.positions import FIRST_POSITION, Position
from model.range_cache import Count, Entry, Removed
from model.values import AtLeast, Below, Between

entry_cache = Machine(
    "entry_cache",
    Config,
    start,
    source="PIP-430",
    java={
        "RangeEntryCacheManagerImpl": (
            "doEvictToWatermarkWhenOverThreshold",
            "doCacheEviction",
            "removeEntryCache",
            "updateCacheSizeAndThreshold",
            "updateCacheEvictionWatermark",
        ),
        "RangeEntryCacheImpl": ("asyncReadEntry", "invalidateEntries", "invalidateAllEntries"),
        "RangeCacheRemovalQueue": (
            "getNonEvictableSize",
            "setMaxRequeueCountWhenHasExpectedReads",
            "setExtendTTLOfRecentlyAccessed",
        ),
        "PendingReadsManager": ("invalidateLedger",),
        "InflightReadsLimiter": ("acquire", "timeoutCheck"),
        "EntryReadCountHandlerImpl": (),
        "EntryImpl": ("release",),
    },
)

Cache = Annotated[int, Below("caches")]
Bytes = Annotated[int, AtLeast(0)]
Nanos = Annotated[int, AtLeast(0)]
EntryId = Annotated[int, AtLeast(0)]

#: Estimated overhead of an entry in a read, in bytes (`RangeEntryCacheImpl.BOOKKEEPER_READ_OVERHEAD_PER_ENTRY`).
ENTRY_OVERHEAD = 64

# ---- caches of topics ---------------------------------------------------------------------------------


def get_entry_cache(s: State, cache: int) -> tuple[State, int]:
    """`getEntryCache`: returns the state, and the number of the range cache of a topic (`range_cache`), or DISABLED.

    If the topic has no cache, a cache is created; it is disabled if the maximum size is then 0.
    """
    range_cache = s.topic_caches[cache]
    if range_cache != ABSENT:
        return s, range_cache
    if s.max_bytes == 0:
        return s._replace(topic_caches=with_topic_cache(s, cache, DISABLED)), DISABLED
    range_cache = len(s.owners)
    grown = s.ranges._replace(sizes=(*s.ranges.sizes, 0))
    topic_caches = with_topic_cache(s, cache, range_cache)
    return s._replace(ranges=grown, owners=(*s.owners, cache), topic_caches=topic_caches), range_cache


def with_topic_cache(s: State, cache: int, range_cache: int) -> tuple[int, ...]:
    """Returns `State.topic_caches` with `range_cache` as the number of the range cache of a topic."""
    return s.topic_caches[:cache] + (range_cache,) + s.topic_caches[cache + 1 :]


# ---- eviction -----------------------------------------------------------------------------------------


@entry_cache.action
def run_eviction_task(cfg: Config, s: State) -> Step[State, int]:
    """`doEvictToWatermarkWhenOverThreshold`: runs a scheduled eviction task, and clears `evictionInProgress`.

    Returns the number of entries evicted.
    """
    if not s.tasks:
        return refused(s, "illegal_state", "no eviction task is queued")
    s, evicted = size_check(cfg, s)
    return s._replace(tasks=s.tasks - 1, eviction_in_progress=False), evicted


@entry_cache.action
def do_cache_eviction(cfg: Config, s: State) -> Step[State, int]:
    """`doCacheEviction`: a time pass, then a size check; runs every `managedLedgerCacheEvictionIntervalMs`.

    Returns the number of entries evicted. With `periodic_eviction_clears_in_progress`, this call clears
    `evictionInProgress` although a task is scheduled; then a second task can be scheduled.
    """
    after, removed = ranges.evict_entries(
        derived(cfg).ranges, s.ranges, ranges.time_pass_predicate, s.ranges.now_ns - cfg.ttl_ns
    )
    s, evicted = size_check(cfg, entries_removed(s, after, removed))
    if s.eviction_in_progress and cfg.periodic_eviction_clears_in_progress:
        s = s._replace(eviction_in_progress=False)
    return s, removed.entries + evicted


# ---- adding entries -----------------------------------------------------------------------------------


@entry_cache.action
def insert(
    cfg: Config, s: State, cache: Cache, position: Position, bytes: Bytes, expected_reads: int
) -> Step[State, bool]:
    """`RangeEntryCacheImpl.insert`: caches an entry if its position is absent; returns whether it did.

    At a cached position, `insert_duplicate` applies. An insert is never rejected for lack of space. A disabled cache
    takes no entry.
    """
    s, range_cache = get_entry_cache(s, cache)
    if range_cache == DISABLED:
        return s, False
    present = ranges.find(s.ranges, range_cache, position)
    count = ranges.initial_count(derived(cfg).ranges, expected_reads)
    if present is None:
        added = Entry(
            cache=range_cache,
            position=position,
            bytes=bytes,
            expected_reads=count,
            copies=(),
            timestamp_ns=s.ranges.now_ns,
            requeue_count=0,
            accessed=False,
            released=False,
        )
        return entry_added(cfg, s, added), True
    return s._replace(ranges=insert_duplicate(cfg, s.ranges, present, count, ())), False


# ---- reading ------------------------------------------------------------------------------------------


@entry_cache.action
def read(
    cfg: Config, s: State, cache: Cache, ledger: int, first: EntryId, last: EntryId, expected_reads: int
) -> Step[State, Reading]:
    """`asyncReadEntry` of a range of a ledger, both ends included.

    The request first acquires permits for its estimated size (`InflightReadsLimiter.acquire`). If it does not fit, it
    waits or, if the queue is full, fails. An entry that this request reads from storage gets the read count
    `expected_reads`.
    """
    derived_cfg = derived(cfg)
    stored = derived_cfg.stored.get((cache, ledger), ())
    if first > last:
        return refused(s, "illegal_argument", "the first entry is after the last")
    if last >= len(stored):
        return refused(s, "illegal_argument", "the ledger has no such entry")
    s, range_cache = get_entry_cache(s, cache)
    number, permits = s.next_request, estimated_bytes(stored, last - first + 1)
    limits, verdict = limiter.acquire(derived_cfg.limiter, s.limiter, number, permits, s.ranges.now_ns)
    s = s._replace(next_request=number + 1, limiter=limits)
    if verdict == "rejected":
        return s, Reading(number, (), (Answered(number, False, ()),))
    request = Request(number, range_cache, cache, ledger, expected_reads, Part("permits", first, last))
    if verdict == "waiting":
        return s._replace(requests=(*s.requests, request)), Reading(number, (), ())
    effects = Effects([], [])
    s = begin(cfg, s, request, effects)
    return s, Reading(number, tuple(effects.issued), tuple(effects.answered))


@entry_cache.action
def read_one(cfg: Config, s: State, cache: Cache, position: Position) -> Step[State, Reading]:
    """`asyncReadEntry` of one position, as for a replay.

    If this request reads from storage, no reads are expected, so the entry is not cached.
    """
    if position.entry < 0:  # `EntryId`, the type of the arguments of `read`, excludes such entries
        return refused(s, "illegal_argument", "the ledger has no such entry")
    return read(cfg, s, cache, position.ledger, position.entry, position.entry, 0)


def estimated_bytes(stored: tuple[int, ...], entries: int) -> int:
    """Returns the estimated size of a read: for each entry, the mean entry size of the ledger plus an overhead.

    The mean is rounded down, and at least 1. Source: `getEstimatedEntrySize`.
    """
    return entries * (max(1, sum(stored) // len(stored)) + ENTRY_OVERHEAD)


@entry_cache.action
def expire_waiting_reads(cfg: Config, s: State) -> Step[State, Reading]:
    """`InflightReadsLimiter.timeoutCheck`: the timer fails the requests at the head of the queue that have timed out.

    If any failed, the next queued requests are then granted permits, up to the first one that does not fit. Without
    `timer_grants_next`, they wait for the next release.
    """
    limits, failed = limiter.expire(derived(cfg).limiter, s.limiter, s.ranges.now_ns)
    if not failed:
        return s, Reading(None, (), ())
    effects = Effects([], [])
    s = fail_timed_out(s._replace(limiter=limits), failed, effects)
    if cfg.timer_grants_next:
        s = start_queued_requests(cfg, s, effects)
    return s, Reading(None, tuple(effects.issued), tuple(effects.answered))


# ---- storage answers ----------------------------------------------------------------------------------


@entry_cache.action
def complete_storage_read(cfg: Config, s: State, storage_read: int, success: bool) -> Step[State, Reading]:
    """Storage completes or fails an outstanding read. The waiting requests continue in the order of their arrival.

    After a failure, no other outstanding read of the same range cache and ledger can be joined any more
    (`PendingReadsManager.invalidateLedger`).
    """
    r = outstanding(s, storage_read)
    if r is None:
        return refused(s, "not_open", "no outstanding storage read has this number")
    return answer(cfg, s, r, r.last - r.first + 1 if success else None)


#: What else is wrong with an answer of storage that has too few entries. short: nothing. In the other cases, the answer
#: also has an unexpected entry. twice: the first entry again, if there is one. beyond: the entry after the range.
#: other_ledger: an entry of the next ledger. wraps: the first missing entry id plus 2**32, so a cast to int yields the
#: missing id
Oddity = Literal["short", "twice", "beyond", "other_ledger", "wraps"]


@entry_cache.fault
def answer_oddly(
    cfg: Config, s: State, storage_read: int, entries: Annotated[int, AtLeast(0)], oddity: Oddity
) -> Step[State, Reading]:
    """Storage returns only the first `entries` entries of a read, and possibly an unexpected entry.

    The unexpected entry is not delivered; it is cached only with `caches_unexpected_entries`. A request for a missing
    entry completes without that entry, unless the request is a partial cache hit or has joined a read for only a part
    of its range (see `settle`).
    """
    r = outstanding(s, storage_read)
    if r is None:
        return refused(s, "not_open", "no outstanding storage read has this number")
    if entries > r.last - r.first:
        return refused(s, "illegal_argument", "the answer must have fewer entries than the read")
    positions = odd_answer(r, entries, oddity)
    accepted = accepted_entries(r, positions)
    return answer(cfg, s, r, accepted, positions[accepted:] if cfg.caches_unexpected_entries else [])


def outstanding(s: State, number: int) -> StorageRead | None:
    """Returns the outstanding storage read with a number, or None."""
    return next((r for r in s.reads if r.number == number), None)


def odd_answer(r: StorageRead, entries: int, oddity: Oddity) -> list[Position]:
    """Returns the positions in the answer: the first `entries` of the read, then at most one unexpected position."""
    requested = [Position(r.ledger, r.first + i) for i in range(entries)]
    odd = {
        "short": [],
        "twice": requested[:1],
        "beyond": [Position(r.ledger, r.last + 1)],
        "other_ledger": [Position(r.ledger + 1, r.first + entries)],
        "wraps": [Position(r.ledger, r.first + entries + 2**32)],
    }
    return requested + odd[oddity]


def accepted_entries(r: StorageRead, positions: list[Position]) -> int:
    """Returns how many leading positions of an answer are those of the read, in order."""
    for i, position in enumerate(positions):
        if position != Position(r.ledger, r.first + i) or position.entry > r.last:
            return i
    return len(positions)


@entry_cache.fault
def fail_next_storage_reads(cfg: Config, s: State, count: Annotated[int, AtLeast(0)]) -> Step[State, None]:
    """Makes the next `count` storage reads fail, and replaces an earlier `count`.

    Refused with `storage_reads` "queued": there, the argument `success` of `complete_storage_read` makes a read fail.
    """
    if cfg.storage_reads == "queued":
        return refused(s, "illegal_state", "a queued read fails when it is completed")
    return s._replace(failing=count), None


# ---- copies -------------------------------------------------------------------------------------------


@entry_cache.action
def release(cfg: Config, s: State, copy: Annotated[int, AtLeast(1)]) -> Step[State, Released]:
    """`EntryImpl.release`: decrements the expected read count of a delivered entry (PIP-430, "Dynamic Updates").

    When all entries that a request delivered are released, the permits of the request are returned.
    """
    caches, count = ranges.change_read_count(s.ranges, copy, ranges.marked_read, keep_copy=False)
    if not isinstance(count, Count):
        return s, count
    s = s._replace(ranges=caches)
    if not s.limiter.grants:
        return s, Released(count.expected_reads, (), ())
    effects = Effects([], [])
    for grant in s.limiter.grants:
        if copy in grant.copies:
            left = tuple([c for c in grant.copies if c != copy])
            grants = tuple([g._replace(copies=left) if g is grant else g for g in s.limiter.grants])
            s = s._replace(limiter=s.limiter._replace(grants=grants))
            if not left:
                s = release_permits(cfg, s, grant.request, effects)
            break
    return s, Released(count.expected_reads, tuple(effects.issued), tuple(effects.answered))


@entry_cache.action
def replay(cfg: Config, s: State, copy: Annotated[int, AtLeast(1)]) -> Step[State, Count]:
    """`EntryReadCountHandlerImpl.incrementExpectedReadCount`: increments the expected read count of a delivered entry.

    The dispatcher has added the entry to the replay queue (PIP-430, "Dynamic Updates"). The copy stays open.
    """
    caches, count = ranges.change_read_count(s.ranges, copy, ranges.replayed, keep_copy=True)
    return (s._replace(ranges=caches), count) if isinstance(count, Count) else (s, count)


# ---- removing -----------------------------------------------------------------------------------------


@entry_cache.action
def invalidate_entries_before(cfg: Config, s: State, cache: Cache, position: Position) -> Step[State, None]:
    """`invalidateEntries`: removes the entries of a topic before a position, also those of earlier ledgers.

    An entry before `FIRST_POSITION`, which no broker has, stays.
    """
    s, range_cache = get_entry_cache(s, cache)
    return remove(cfg, s, entries_of(s, range_cache, lambda e: FIRST_POSITION <= e.position < position)), None


@entry_cache.action
def invalidate_ledger(cfg: Config, s: State, cache: Cache, ledger: int) -> Step[State, None]:
    """`invalidateAllEntries`: removes a topic's entries of a ledger.

    Outstanding reads of the ledger for the topic's range cache can no longer be joined.
    """
    s, range_cache = get_entry_cache(s, cache)
    s = remove(cfg, s, entries_of(s, range_cache, lambda e: e.position.ledger == ledger))
    return s._replace(reads=without_joining(s.reads, range_cache, ledger)) if s.reads and range_cache >= 0 else s, None


@entry_cache.action
def clear_cache(cfg: Config, s: State, cache: Cache) -> Step[State, None]:
    """`RangeEntryCacheImpl.clear`: removes all entries of a topic.

    Outstanding reads for the topic's range cache can no longer be joined.
    """
    s, range_cache = get_entry_cache(s, cache)
    return emptied(cfg, s, range_cache), None


def emptied(cfg: Config, s: State, range_cache: int) -> State:
    """Returns the state without the entries of a range cache; outstanding reads for it can no longer be joined."""
    s = remove(cfg, s, entries_of(s, range_cache, lambda e: True))
    return s._replace(reads=without_joining(s.reads, range_cache, None)) if s.reads and range_cache >= 0 else s


@entry_cache.action
def clear_all(cfg: Config, s: State) -> Step[State, None]:
    """`RangeEntryCacheManagerImpl.clear`: clears the caches of all topics. Removed caches keep their entries."""
    for range_cache in s.topic_caches:
        if range_cache >= 0:
            s = emptied(cfg, s, range_cache)
    return s, None


@entry_cache.action
def remove_entry_cache(cfg: Config, s: State, cache: Cache) -> Step[State, None]:
    """`removeEntryCache`: unregisters the range cache of a topic and clears it; the next use creates another one.

    Reads that are outstanding can still insert entries into the removed cache. Such entries count in the total size and
    are evicted. Only a request from before the removal can still find them.
    """
    range_cache = s.topic_caches[cache]
    if range_cache == ABSENT:
        return s, None
    s = s._replace(topic_caches=with_topic_cache(s, cache, ABSENT))
    return (emptied(cfg, s, range_cache) if range_cache >= 0 else s), None


@entry_cache.action
def non_evictable_size(cfg: Config, s: State) -> Step[State, Removed]:
    """`getNonEvictableSize`: returns number and bytes of the entries without a read count or with expected reads.

    Drops the detached wrappers of the removal queue.
    """
    after, counted = ranges.non_evictable_size(derived(cfg).ranges, s.ranges)
    assert isinstance(counted, Removed)
    return s._replace(ranges=after), counted


# ---- time and settings --------------------------------------------------------------------------------


@entry_cache.action
def advance(cfg: Config, s: State, nanos: Nanos) -> Step[State, None]:
    """Advances the clock."""
    return s._replace(ranges=s.ranges._replace(now_ns=s.ranges.now_ns + nanos)), None


@entry_cache.action
def set_max_cache_bytes(cfg: Config, s: State, value: Bytes) -> Step[State, None]:
    """`updateCacheSizeAndThreshold`: changes the maximum; this alone evicts nothing."""
    return s._replace(max_bytes=value), None


@entry_cache.action
def set_eviction_watermark(cfg: Config, s: State, value: Annotated[float, Between(0, 1)]) -> Step[State, None]:
    """`updateCacheEvictionWatermark`: changes the watermark; this alone evicts nothing."""
    return s._replace(watermark=value), None


@entry_cache.action
def set_max_requeue_times(cfg: Config, s: State, value: Annotated[int, AtLeast(0)]) -> Step[State, None]:
    """`setMaxRequeueCountWhenHasExpectedReads`: changes the dynamic setting; entries keep their `requeueCount`."""
    return s._replace(ranges=s.ranges._replace(max_requeue_times=value)), None


@entry_cache.action
def set_extend_ttl(cfg: Config, s: State, value: bool) -> Step[State, None]:
    """`setExtendTTLOfRecentlyAccessed`: changes the dynamic setting; entries keep `accessed`."""
    return s._replace(ranges=s.ranges._replace(extend_ttl_of_recently_accessed=value)), None


# ---- canonical form and observation -------------------------------------------------------------------


@entry_cache.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Makes times relative to now, sets the counters to zero, and numbers range caches, requests, reads and copies.

    Range caches of topics come first, then removed ones that still hold or await entries. Held copies are numbered in
    the order of their requests. Open copies are numbered in the order of the limiter's grants, then of the removal
    queue, then of the groups of orphaned copies.
    """
    s = s._replace(counters=Counters())
    return canonical_form.renumber_copies(
        canonical_form.renumber_requests(canonical_form.renumber_range_caches(canonical_form.from_now(s)))
    )


@entry_cache.observation
def observe(cfg: Config, s: State) -> dict[str, object]:
    """Returns the topics' caches, the removal queue, open copies with read counts, reads, eviction, and metrics."""
    seen: dict[str, Any] = ranges.observe(derived(cfg).ranges, s.ranges)
    disabled, empty = {"disabled": True, "bytes": 0}, {"entries": 0, "bytes": 0, "keys": []}
    # An ABSENT cache is shown as the cache that the next use would create. A slot of `removal_queue` is None for a
    # detached wrapper; in any other slot, the topic replaces the range cache, the first item. Held copies (numbers
    # below 0) are not shown.
    unused = disabled if s.max_bytes == 0 else empty
    return {
        "total_bytes": s.total_bytes,
        "caches": [seen["caches"][c] if c >= 0 else disabled if c == DISABLED else unused for c in s.topic_caches],
        "removal_queue": [slot and [s.owners[slot[0]], *slot[1:]] for slot in seen["removal_queue"]],
        "open_copies": [pair for pair in seen["open_copies"] if pair[0] > 0],
        "eviction_in_progress": s.eviction_in_progress,
        "queued_eviction_tasks": s.tasks,
        "outstanding_storage_reads": [r.number for r in s.reads],
        "waiting_for_permits": [w.request for w in s.limiter.waiting],
        "counters": s.counters._asdict(),
    }


# ---- profiles -----------------------------------------------------------------------------------------

reference = entry_cache.profile("reference", "Pulsar's behaviour with its known defects corrected", Config())

recorded = entry_cache.profile(
    "pulsar-2026-07",
    "Apache Pulsar master, 2026-07-23, as recorded",
    Config(
        duplicate_put="keep",
        removal_marks_read=True,
        undelivered_release_marks_read=True,
        rejection_marks_read=True,
        periodic_eviction_clears_in_progress=True,
        timer_grants_next=False,
        short_answer="never_answered",
        caches_unexpected_entries=True,
    ),
)

pulsar_4_1 = entry_cache.release("4.1", "4.2", rules=recorded.config, about="pulsar-2026-07")
pulsar_5_0 = entry_cache.release(
    "5.0",
    rules=recorded.config._replace(
        duplicate_put="latest_handler", undelivered_release_marks_read=False, short_answer="fails"
    ),
    about="three rules as read in master 2026-09, the others as in pulsar-2026-07",
)

pip_430 = entry_cache.profile(
    "pip-430",
    "the final text of PIP-430: recent access extends the TTL, and a size pass does not requeue expired entries",
    Config(extend_ttl_of_recently_accessed=True, size_pass_requeues_expired=False),
)
