"""Range caches of a broker and the removal queue that they share (PIP-430).

Each topic has a cache of entries. The cached entries of all topics wait in one removal queue for eviction. A time pass
evicts expired entries from the head of the queue; a size pass evicts entries until enough bytes are freed. The read
count of an entry is the number of reads that are still expected. An entry that was accessed or has expected reads may
be due for requeue: a pass moves it to the tail instead. A reader gets a copy of the entry, and later releases the copy.

Models `RangeCache`, `RangeCacheRemovalQueue`, `RangeCacheEntryWrapper`, `EntryReadCountHandlerImpl`, and of the manager
`doEvictToWatermarkWhenOverThreshold`. One step is one call or one pass; in `model/cache_steps`, threads interleave.

The removal queue (`queue`) has a wrapper for each cached entry that is not in `stash`. A caller that removes the entry
(`remove_range`, `invalidate_ledger`, `clear`) detaches the wrapper: the slot in the queue is None, until a pass or
`non_evictable_size` drops the slot. The wrapper's value is an `EntryImpl`, like a copy; only `over_release` deallocates
the value of a cached entry. Entry and copies share the read count: they have one `EntryReadCountHandler`. When an entry
leaves the cache or gets another handler, its copies become `orphaned_copies`.

    put          adds an entry, with a wrapper at the tail of the queue. If the position is already cached (a duplicate
                 put), adds nothing; with `duplicate_put` "latest_handler", replaces the cached entry's handler
    get          returns an entry and sets its `accessed`; with `hold`, makes a copy for the caller
    release      releases a copy; decrements the read count if the copy was delivered to a consumer
    time_pass    `evictLEntriesBeforeTimestamp`. Visits wrappers from the head. Drops a detached one (MISSING); ends at
                 an unexpired entry (STOP); moves an entry that is due for requeue to the tail, with a new timestamp
                 (REQUEUE); evicts any other (REMOVE). An entry is expired if its timestamp is before the threshold
    size_pass    `evictLeastAccessedEntries`. As a time pass, but for entries of any age; ends (STOP) when enough bytes
                 are freed. One pass can visit a requeued entry again

An entry is due for requeue if `accessed` and `extend_ttl_of_recently_accessed` are set, or if it has expected reads (a
read count above 0) and `requeue_count` is below `max_requeue_times`. A size pass ignores age, except in two unshipped
designs, where an entry older than the TTL is expired. Without `size_pass_requeues_expired`, it evicts expired entries
even if due. With `retention` "stash", it moves unexpired entries with expected reads to `stash`; no pass requeues.

Not modelled: cursors (`expected_reads` is an argument: for an added entry, the number of active cursors; for an entry
from storage, `getNumberOfCursorsAtSamePositionOrBefore` of its reader); when passes are scheduled; buffers and
reference counts, except `over_release`, whose effect on the handler is left out; the reuse of wrappers; an endless size
pass of the draft with a stash; memory (`model/cache_metrics.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Literal, NamedTuple

from model import watermark
from model.cache_classes import RANGE_CACHE, SHIPPED
from model.machine import Machine, Setting, Step, refused
from model.positions import Position
from model.values import AtLeast, Below, Between, Origin, Rule, record

# ---- settings and rules -------------------------------------------------------------------------------


class Config(NamedTuple):
    """Broker settings, then the rules in which versions of Pulsar or PIP-430 differ from the reference."""

    #: number of topics with a cache on this broker; caches are numbered from 0
    caches: Annotated[int, AtLeast(1)] = 2
    #: TTL of size passes that consider age; a time pass has its threshold as an argument
    ttl_ns: Annotated[int, AtLeast(0), Setting("managedLedgerCacheEvictionTimeThresholdMillis", 1000, 1_000_000)] = (
        1_000_000_000
    )
    #: `maxRequeueCountWhenHasExpectedReads`: an entry with expected reads is requeued if its `requeue_count` is lower
    max_requeue_times: Annotated[
        int,
        AtLeast(0),
        Setting("managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes", (("4.1", 5),)),
    ] = 5
    #: whether a pass requeues an entry accessed since its insertion or last requeue; such requeues have no maximum
    extend_ttl_of_recently_accessed: Annotated[
        bool,
        Setting("managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed", (("4.1", True), ("5.0", False))),
    ] = False
    #: maximum size of all caches together; the default is that of `ManagedLedgerFactoryConfig`
    max_bytes: Annotated[
        int, AtLeast(1), Setting("managedLedgerCacheSizeMB", "a fifth of direct memory, at least 64 MB")
    ] = 134_217_728
    #: fraction of the maximum size down to which a size pass evicts
    watermark: Annotated[float, Between(0, 1), Setting("managedLedgerCacheEvictionWatermark", 0.9)] = 0.9
    #: whether entries have expected read counts
    counts_reads: Annotated[bool, Setting("cacheEvictionByExpectedReadCount", (("4.1", True),))] = True

    #: latest_handler: a duplicate put replaces the entry's handler, unless the value is deallocated. keep: never
    duplicate_put: Annotated[
        Literal["keep", "latest_handler"],
        Rule(Origin.RECORDED, {"keep": f"RangeEntryCacheImpl.insert, {SHIPPED}", "latest_handler": "master 2026-09"}),
    ] = "latest_handler"
    #: outcome for a range whose first position is after its last
    inverted_range: Annotated[
        Literal["empty", "illegal_argument"],
        Rule(Origin.RECORDED, {"illegal_argument": f"RangeCache.getRange, {SHIPPED}", "empty": "master 2026-09"}),
    ] = "empty"
    #: whether the removal or eviction of an entry decrements the read count that the entry's copies share
    removal_marks_read: Annotated[
        bool, Rule(Origin.RECORDED, {True: f"EntryImpl.deallocate of the cached entry, {SHIPPED}"})
    ] = False
    #: whether the release of an undelivered copy decrements the read count
    undelivered_release_marks_read: Annotated[
        bool, Rule(Origin.READ, {True: f"RangeEntryCacheImpl.doAsyncReadEntriesByPosition, {SHIPPED}"})
    ] = False
    #: whether a requeue for recent access increments `requeue_count`
    access_requeue_counts: Annotated[
        bool, Rule(Origin.INFERRED, {False: 'PIP-430, "Requeuing Mechanism": the maximum is for expected reads'})
    ] = True
    #: whether a size pass requeues an expired entry that is due for requeue; otherwise the pass removes the entry
    size_pass_requeues_expired: Annotated[
        bool, Rule(Origin.READ, {False: "evictLeastAccessedEntries(sizeToFree, expirationTimestamp), PIP-430"})
    ] = True
    #: whether the size of a cache still includes a removed entry whose value was already deallocated
    released_value_stays_counted: Annotated[
        bool, Rule(Origin.READ, {True: "RangeCache.removeEntry, 4.1 to master 2026-09"})
    ] = False
    #: how a size pass spares an entry with expected reads: by a requeue, or by a move to `State.stash`
    retention: Annotated[
        Literal["requeue", "stash"],
        Rule(Origin.READ, {"stash": "RangeCacheRemovalQueueStash, first draft of apache/pulsar#24623"}),
    ] = "requeue"


# ---- state --------------------------------------------------------------------------------------------


@record
class Entry(NamedTuple):
    """A cached entry, with the fields of its wrapper (`RangeCacheEntryWrapper`)."""

    cache: int
    position: Position
    bytes: int  # length at insertion
    expected_reads: int | None  # expectedReadCount of its handler; None without a handler; may be negative
    copies: tuple[int, ...]  # numbers of the entry's copies, which share its handler; ascending
    timestamp_ns: int  # time of the insertion or last requeue
    requeue_count: int  # requeues since insertion; requeues for recent access count only with `access_requeue_counts`
    accessed: bool  # looked up since insertion or the last requeue
    released: bool  # the value is deallocated (`over_release`) although the entry is cached; not the release of a copy


class OrphanedCopies(NamedTuple):
    """Copies that share a read count (None without a handler). No cached entry shares this count."""

    copies: tuple[int, ...]
    expected_reads: int | None


@record
class State(NamedTuple):
    """All range caches of a broker."""

    now_ns: int
    queue: tuple[Entry | None, ...]  # head first; None is a detached wrapper
    stash: tuple[Entry, ...]  # entries that size passes moved out of the queue; empty unless `retention` is "stash"
    sizes: tuple[int, ...]  # bytes of each cache
    orphaned_copies: tuple[OrphanedCopies, ...]  # ordered by the numbers of the copies
    next_copy: int  # number of the next copy
    max_requeue_times: int  # dynamic setting; `Config` has the initial value
    extend_ttl_of_recently_accessed: bool  # likewise


def start(cfg: Config) -> State:
    """Returns the state with empty caches at time zero."""
    return State(0, (), (), (0,) * cfg.caches, (), 1, cfg.max_requeue_times, cfg.extend_ttl_of_recently_accessed)


class Hit(NamedTuple):
    """An entry that a lookup returns; `copy` is the number of the caller's copy, None without `hold`."""

    position: Position
    bytes: int
    expected_reads: int | None
    copy: int | None


class Count(NamedTuple):
    """An expected read count; None without a handler."""

    expected_reads: int | None


class Removed(NamedTuple):
    """Number and bytes of the entries that a removal or a pass removed, or that `non_evictable_size` counted."""

    entries: int
    bytes: int


NOTHING = Removed(0, 0)

range_cache = Machine("range_cache", Config, start, source="PIP-430", java=RANGE_CACHE)

Cache = Annotated[int, Below("caches")]
Bytes = Annotated[int, AtLeast(0)]
Nanos = Annotated[int, AtLeast(0)]


def initial_count(cfg: Config, expected_reads: int) -> int | None:
    """`maybeCreate`: returns the read count of a new handler; None (no handler) below 1 or without `counts_reads`."""
    return expected_reads if cfg.counts_reads and expected_reads > 0 else None


def marked_read(count: int | None) -> int | None:
    """`EntryReadCountHandlerImpl.markRead`: returns the read count minus 1, also below 0; None without a handler."""
    return None if count is None else count - 1


def replayed(count: int | None) -> int | None:
    """`EntryReadCountHandlerImpl.incrementExpectedReadCount`: returns the read count plus 1; None without a handler."""
    return None if count is None else count + 1


def has_expected_reads(count: int | None) -> bool:
    """`EntryReadCountHandlerImpl.hasExpectedReads`: whether there is a handler and its count is at least 1."""
    return count is not None and count >= 1


def should_requeue(s: State, e: Entry) -> bool:
    """`shouldRequeue`: whether an entry is due for requeue."""
    return (s.extend_ttl_of_recently_accessed and e.accessed) or (
        has_expected_reads(e.expected_reads) and e.requeue_count < s.max_requeue_times
    )


def requeue_count_after(cfg: Config, s: State, e: Entry) -> int:
    """Returns `requeueCount` after a requeue: one more; without `access_requeue_counts`, the same for recent access."""
    if cfg.access_requeue_counts or not (s.extend_ttl_of_recently_accessed and e.accessed):
        return e.requeue_count + 1
    return e.requeue_count


def is_expired(timestamp_ns: int, threshold_ns: int) -> bool:
    """Whether a timestamp is before the threshold; one that equals the threshold is not expired."""
    return timestamp_ns < threshold_ns


def is_in_range(position: Position, first: Position, last: Position, last_inclusive: bool) -> bool:
    """Whether a position is in the range from `first`, inclusive, to `last`, inclusive only if `last_inclusive`."""
    return first <= position and (position <= last if last_inclusive else position < last)


# ---- finding and changing entries ---------------------------------------------------------------------


def find(s: State, cache: int, position: Position) -> Entry | None:
    """Returns the entry of a cache at a position, or None."""
    for e in s.queue + s.stash:
        if e is not None and e.position == position and e.cache == cache:
            return e
    return None


def entries_in_range(s: State, cache: int, first: Position, last: Position, last_inclusive: bool) -> list[Entry]:
    """Returns the entries of a cache in a range, ordered by position."""
    cached = [e for e in s.queue + s.stash if e is not None and e.cache == cache]
    return sorted(e for e in cached if is_in_range(e.position, first, last, last_inclusive))


def replace_entry(s: State, old: Entry, new: Entry) -> State:
    """Returns the state with `new` in place of `old`, in the queue or in the stash."""
    if old in s.queue:
        i = s.queue.index(old)
        return s._replace(queue=s.queue[:i] + (new,) + s.queue[i + 1 :])
    i = s.stash.index(old)
    return s._replace(stash=s.stash[:i] + (new,) + s.stash[i + 1 :])


def add_orphaned_copies(
    copies: tuple[int, ...], count: int | None, orphaned_copies: tuple[OrphanedCopies, ...]
) -> tuple[OrphanedCopies, ...]:
    """Returns `orphaned_copies` with a group of `copies`, which share the read count `count`. Adds no empty group."""
    return tuple(sorted((*orphaned_copies, OrphanedCopies(copies, count)))) if copies else orphaned_copies


def stays_counted(cfg: Config, e: Entry) -> bool:
    """Whether `RangeCache.removeEntry` neither subtracts the bytes of an entry from the size nor counts the removal."""
    return e.released and cfg.released_value_stays_counted


def account_for_removed(cfg: Config, s: State, gone: Iterable[Entry]) -> tuple[State, Removed]:
    """Counts entries that left queue and stash, and subtracts their bytes, unless `stays_counted`; orphans copies."""
    sizes, orphaned_copies, entries, freed = list(s.sizes), s.orphaned_copies, 0, 0
    for e in gone:
        if not stays_counted(cfg, e):
            sizes[e.cache] -= e.bytes
            entries += 1
            freed += e.bytes
        if e.copies:
            count = marked_read(e.expected_reads) if cfg.removal_marks_read else e.expected_reads
            orphaned_copies = add_orphaned_copies(e.copies, count, orphaned_copies)
    return s._replace(sizes=tuple(sizes), orphaned_copies=orphaned_copies), Removed(entries, freed)


# ---- putting and looking up ---------------------------------------------------------------------------


@range_cache.action
def put(
    cfg: Config, s: State, cache: Cache, position: Position, bytes: Bytes, expected_reads: int
) -> Step[State, bool]:
    """`RangeCache.put`: inserts an entry. At a cached position, returns false, and `duplicate_put` applies."""
    count = initial_count(cfg, expected_reads)
    present = find(s, cache, position)
    if present is None:
        entry = Entry(cache, position, bytes, count, (), s.now_ns, requeue_count=0, accessed=False, released=False)
        sizes = s.sizes[:cache] + (s.sizes[cache] + bytes,) + s.sizes[cache + 1 :]
        return s._replace(queue=s.queue + (entry,), sizes=sizes), True
    if cfg.duplicate_put == "keep" or present.released:
        return s, False
    s = replace_entry(s, present, present._replace(expected_reads=count, copies=()))
    orphaned = add_orphaned_copies(present.copies, present.expected_reads, s.orphaned_copies)
    return s._replace(orphaned_copies=orphaned), False


@range_cache.action
def put_mismatched(
    cfg: Config, s: State, cache: Cache, position: Position, value_position: Position, bytes: Bytes, expected_reads: int
) -> Step[State, bool]:
    """`RangeCache.put` with an explicit key: IllegalArgumentException if the value has another position, else `put`."""
    if position != value_position:
        return refused(s, "illegal_argument", "the value's position is not the key")
    return put(cfg, s, cache, position, bytes, expected_reads)


@range_cache.action
def get(cfg: Config, s: State, cache: Cache, position: Position, hold: bool) -> Step[State, Hit | None]:
    """`RangeCache.get`: sets `accessed` of the entry at a position, and returns it unless its value is deallocated."""
    present = find(s, cache, position)
    if present is None:
        return s, None
    s, hits = look_up(s, [present], hold)
    return s, (hits[0] if hits else None)


@range_cache.action
def get_range(
    cfg: Config, s: State, cache: Cache, first: Position, last: Position, hold: bool
) -> Step[State, tuple[Hit, ...]]:
    """`RangeCache.getRange`: looks up the entries from first to last, both inclusive; gaps are skipped."""
    if first > last and cfg.inverted_range == "illegal_argument":
        return refused(s, "illegal_argument", "the first position is after the last")
    return look_up(s, entries_in_range(s, cache, first, last, True), hold)


def look_up(s: State, found: Iterable[Entry], hold: bool) -> tuple[State, tuple[Hit, ...]]:
    """Sets `accessed` of entries; returns those whose value is not deallocated, each with a new copy if `hold`."""
    hits: list[Hit] = []
    for e in found:
        held = hold and not e.released
        copies = (*e.copies, s.next_copy) if held else e.copies
        if not e.released:
            hits.append(Hit(e.position, e.bytes, e.expected_reads, s.next_copy if hold else None))
        if held or not e.accessed:
            s = replace_entry(s, e, e._replace(accessed=True, copies=copies))
        if held:
            s = s._replace(next_copy=s.next_copy + 1)
    return s, tuple(hits)


@range_cache.action
def exists(cfg: Config, s: State, cache: Cache, position: Position) -> Step[State, bool]:
    """`RangeCache.exists`: returns whether the position is cached; does not set `accessed`."""
    return s, find(s, cache, position) is not None


# ---- copies -------------------------------------------------------------------------------------------


@range_cache.action
def release(cfg: Config, s: State, copy: int, delivered: bool) -> Step[State, Count]:
    """`EntryImpl.release`: releases a copy and returns its read count, decremented if the copy was delivered.

    With `undelivered_release_marks_read`, the count is decremented in any case.
    """
    is_counted = delivered or cfg.undelivered_release_marks_read
    return change_read_count(s, copy, marked_read if is_counted else unchanged, keep_copy=False)


@range_cache.action
def replay(cfg: Config, s: State, copy: int) -> Step[State, Count]:
    """`incrementExpectedReadCount`: increments and returns the read count of a copy that enters the replay queue."""
    return change_read_count(s, copy, replayed, keep_copy=True)


@range_cache.action
def mark_read(cfg: Config, s: State, cache: Cache, position: Position) -> Step[State, Count | None]:
    """`EntryReadCountHandlerImpl.markRead`: a read without a copy; returns the new read count, None if not cached."""
    present = find(s, cache, position)
    if present is None:
        return s, None
    count = marked_read(present.expected_reads)
    return (s if count is None else replace_entry(s, present, present._replace(expected_reads=count))), Count(count)


def unchanged(count: int | None) -> int | None:
    """Returns the same read count."""
    return count


def change_read_count(
    s: State, copy: int, change: Callable[[int | None], int | None], keep_copy: bool
) -> Step[State, Count]:
    """Changes and returns the read count of a copy's handler; releases the copy unless `keep_copy`."""
    for e in s.queue + s.stash:
        if e is not None and copy in e.copies:
            count = change(e.expected_reads)
            copies = e.copies if keep_copy else tuple(c for c in e.copies if c != copy)
            return replace_entry(s, e, e._replace(expected_reads=count, copies=copies)), Count(count)
    for group in s.orphaned_copies:
        if copy in group.copies:
            count = change(group.expected_reads)
            copies = group.copies if keep_copy else tuple(c for c in group.copies if c != copy)
            others = tuple(g for g in s.orphaned_copies if g is not group)
            return s._replace(orphaned_copies=add_orphaned_copies(copies, count, others)), Count(count)
    return refused(s, "not_open", "no reader holds a copy with this number")


# ---- removal by position ------------------------------------------------------------------------------


@range_cache.action
def remove_range(
    cfg: Config, s: State, cache: Cache, first: Position, last: Position, last_inclusive: bool
) -> Step[State, Removed]:
    """`RangeCache.removeRange`: removes the entries from first to last, the last one only if `last_inclusive`."""
    if first > last and cfg.inverted_range == "illegal_argument":
        return refused(s, "illegal_argument", "the first position is after the last")
    return remove_entries(cfg, s, entries_in_range(s, cache, first, last, last_inclusive))


@range_cache.action
def invalidate_ledger(cfg: Config, s: State, cache: Cache, ledger: int) -> Step[State, Removed]:
    """`RangeEntryCacheImpl.invalidateAllEntries`: removes the entries of one ledger."""
    cached = [e for e in s.queue + s.stash if e and e.cache == cache]
    return remove_entries(cfg, s, [e for e in cached if e.position.ledger == ledger])


@range_cache.action
def clear(cfg: Config, s: State, cache: Cache) -> Step[State, Removed]:
    """`RangeCache.clear`: removes all entries of a cache."""
    return remove_entries(cfg, s, [e for e in s.queue + s.stash if e is not None and e.cache == cache])


def remove_entries(cfg: Config, s: State, gone: list[Entry]) -> tuple[State, Removed]:
    """Removes entries. Wrappers in the queue stay there, detached (`RangeCacheEntryWrapper.markRemoved`)."""
    if not gone:
        return s, NOTHING
    queue = tuple(None if e in gone else e for e in s.queue)
    stash = tuple(e for e in s.stash if e not in gone)
    return account_for_removed(cfg, s._replace(queue=queue, stash=stash), gone)


# ---- eviction passes ----------------------------------------------------------------------------------

EvictionResult = Literal["MISSING", "STOP", "REQUEUE", "REMOVE"]


def time_pass_predicate(cfg: Config, s: State, e: Entry | None, freed: int, threshold_ns: int) -> EvictionResult:
    """Returns what a time pass does with the wrapper at the head."""
    if e is None:
        return "MISSING"
    if not is_expired(e.timestamp_ns, threshold_ns):
        return "STOP"
    if should_requeue(s, e):
        return "REQUEUE"
    return "REMOVE"


def size_pass_predicate(cfg: Config, s: State, e: Entry | None, freed: int, bytes_to_free: int) -> EvictionResult:
    """Returns what a size pass does with the wrapper at the head."""
    if e is None:
        return "MISSING"
    if freed >= bytes_to_free:
        return "STOP"
    if should_requeue(s, e) and not is_removed_as_expired(cfg, s, e):
        return "REQUEUE"
    return "REMOVE"


def is_removed_as_expired(cfg: Config, s: State, e: Entry) -> bool:
    """Whether a size pass removes an entry because it is expired; only if `size_pass_requeues_expired` is false."""
    return not cfg.size_pass_requeues_expired and is_expired(e.timestamp_ns, s.now_ns - cfg.ttl_ns)


#: (config, state, head, bytes freed so far, limit of the pass: threshold or bytes to free) -> result for the head
Predicate = Callable[[Config, State, Entry | None, int, int], EvictionResult]


def evict_entries(cfg: Config, s: State, predicate: Predicate, limit: int) -> tuple[State, Removed]:
    """`RangeCacheRemovalQueue.evictEntries`: one pass, from the head to the first STOP or the end of the queue."""
    queue, gone, freed, head = list(s.queue), [], 0, 0
    while head < len(queue):
        e = queue[head]
        result = predicate(cfg, s, e, freed, limit)
        if result == "STOP":
            break
        head += 1
        if e is None:  # MISSING
            continue
        if result == "REQUEUE":
            queue.append(  # `markRequeued`
                e._replace(timestamp_ns=s.now_ns, accessed=False, requeue_count=requeue_count_after(cfg, s, e))
            )
        else:
            gone.append(e)
            freed += 0 if stays_counted(cfg, e) else e.bytes
    if head:
        s = s._replace(queue=tuple(queue[head:]))
    return account_for_removed(cfg, s, gone) if gone else (s, NOTHING)


@range_cache.action
def time_pass(cfg: Config, s: State, threshold_ns: int) -> Step[State, Removed]:
    """`RangeCacheRemovalQueue.evictLEntriesBeforeTimestamp`: evicts expired entries that are not due for requeue."""
    if cfg.retention == "stash":
        return stash_time_pass(cfg, s, threshold_ns)
    return evict_entries(cfg, s, time_pass_predicate, threshold_ns)


@range_cache.action
def size_pass(cfg: Config, s: State, bytes_to_free: int) -> Step[State, Removed]:
    """`evictLeastAccessedEntries`: evicts until enough bytes are freed; entries that are due for requeue come last."""
    if bytes_to_free <= 0:
        return refused(s, "illegal_argument", "the bytes to free must be more than zero")
    if cfg.retention == "stash":
        return stash_size_pass(cfg, s, bytes_to_free)
    return evict_entries(cfg, s, size_pass_predicate, bytes_to_free)


@range_cache.action
def evict_to_watermark(cfg: Config, s: State) -> Step[State, Removed]:
    """`doEvictToWatermarkWhenOverThreshold`: if the total exceeds 98 % of `max_bytes`, evicts down to the watermark."""
    total = sum(s.sizes)
    wanted = watermark.bytes_to_evict(total, cfg.max_bytes, cfg.watermark)
    if not watermark.is_over_threshold(total, cfg.max_bytes) or wanted <= 0:  # the watermark can be above the trigger
        return s, NOTHING
    return size_pass(cfg, s, wanted)


@range_cache.action
def non_evictable_size(cfg: Config, s: State) -> Step[State, Removed]:
    """`getNonEvictableSize`: counts entries without a handler or with expected reads; drops detached wrappers."""
    live = tuple(e for e in s.queue if e is not None)
    sizes = [e.bytes for e in live + s.stash if e.expected_reads is None or has_expected_reads(e.expected_reads)]
    return s._replace(queue=live), Removed(len(sizes), sum(sizes))


# ---- the stash of the first draft ---------------------------------------------------------------------


def must_be_stashed(cfg: Config, s: State, e: Entry) -> bool:
    """Whether a size pass stashes an entry, or leaves it in the stash: it has expected reads and is not expired."""
    return has_expected_reads(e.expected_reads) and not is_expired(e.timestamp_ns, s.now_ns - cfg.ttl_ns)


def stash_time_pass(cfg: Config, s: State, threshold_ns: int) -> tuple[State, Removed]:
    """Evicts the expired entries of the stash, and of the queue up to the first unexpired one; ignores read counts."""
    gone = [e for e in s.stash if is_expired(e.timestamp_ns, threshold_ns)]
    stash = tuple(e for e in s.stash if not is_expired(e.timestamp_ns, threshold_ns))
    head = 0
    for e in s.queue:
        if e is not None:
            if not is_expired(e.timestamp_ns, threshold_ns):
                break
            gone.append(e)
        head += 1
    return account_for_removed(cfg, s._replace(queue=s.queue[head:], stash=stash), gone)


def stash_size_pass(cfg: Config, s: State, bytes_to_free: int) -> tuple[State, Removed]:
    """Evicts from stash, then queue, until enough bytes are freed. Entries that `must_be_stashed` move to the stash."""
    stash: list[Entry] = []
    gone: list[Entry] = []
    freed = head = 0
    for e in s.stash:
        is_evicted = freed < bytes_to_free and not must_be_stashed(cfg, s, e)
        (gone if is_evicted else stash).append(e)
        freed += e.bytes if is_evicted and not stays_counted(cfg, e) else 0
    for slot in s.queue:
        if slot is not None:
            if freed >= bytes_to_free:
                break
            is_evicted = not must_be_stashed(cfg, s, slot)
            (gone if is_evicted else stash).append(slot)
            freed += slot.bytes if is_evicted and not stays_counted(cfg, slot) else 0
        head += 1
    return account_for_removed(cfg, s._replace(queue=s.queue[head:], stash=tuple(stash)), gone)


# ---- time, dynamic settings and faults ----------------------------------------------------------------


@range_cache.action
def advance(cfg: Config, s: State, nanos: Nanos) -> Step[State, None]:
    """Advances the clock."""
    return s._replace(now_ns=s.now_ns + nanos), None


@range_cache.action
def set_max_requeue_times(cfg: Config, s: State, value: Annotated[int, AtLeast(0)]) -> Step[State, None]:
    """`setMaxRequeueCountWhenHasExpectedReads`: changes the dynamic setting; entries keep their `requeueCount`."""
    return s._replace(max_requeue_times=value), None


@range_cache.action
def set_extend_ttl(cfg: Config, s: State, value: bool) -> Step[State, None]:
    """`setExtendTTLOfRecentlyAccessed`: changes the dynamic setting; entries keep `accessed`."""
    return s._replace(extend_ttl_of_recently_accessed=value), None


@range_cache.fault
def step_clock_back(cfg: Config, s: State, nanos: Nanos) -> Step[State, None]:
    """Moves the clock back. A later put then has an earlier timestamp, as can happen to concurrent puts."""
    return s._replace(now_ns=s.now_ns - nanos), None


@range_cache.fault
def over_release(cfg: Config, s: State, cache: Cache, position: Position) -> Step[State, None]:
    """`EntryImpl.release`: deallocates the value of a cached entry, as one release too many does."""
    present = find(s, cache, position)
    if present is None or present.released:
        return refused(s, "illegal_state", "no value to deallocate at this position")
    return replace_entry(s, present, present._replace(released=True)), None


# ---- canonical form and observation -------------------------------------------------------------------


@range_cache.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Renumbers copies in the order of queue, stash and orphaned copies, and makes times relative to now."""
    if s.now_ns == 0 and s.next_copy == 1:  # nothing to change: times are relative, and no copy was ever made
        return s
    next_number = 1

    def renumbered(copies: tuple[int, ...]) -> tuple[int, ...]:
        nonlocal next_number
        next_number += len(copies)
        return tuple(range(next_number - len(copies), next_number))

    def canonical_entry(e: Entry | None) -> Entry | None:
        if e is None or (not e.copies and not s.now_ns):
            return e
        copies = renumbered(e.copies) if e.copies else ()
        return e._replace(timestamp_ns=e.timestamp_ns - s.now_ns, copies=copies)

    queue = tuple([canonical_entry(e) for e in s.queue])
    stash = tuple([e for e in map(canonical_entry, s.stash) if e is not None])
    orphaned_copies = s.orphaned_copies
    if orphaned_copies:
        by_content = sorted(  # groups without a handler after the others of their length
            orphaned_copies, key=lambda g: (len(g.copies), g.expected_reads is None, g.expected_reads or 0)
        )
        orphaned_copies = tuple([OrphanedCopies(renumbered(g.copies), g.expected_reads) for g in by_content])
    return s._replace(now_ns=0, queue=queue, stash=stash, orphaned_copies=orphaned_copies, next_copy=next_number)


@range_cache.observation
def observe(cfg: Config, s: State) -> dict[str, object]:
    """Returns the sorted entries of each cache, the slots of queue and stash, and the copies with their read counts."""
    cached: list[list[list[object]]] = [[] for _ in s.sizes]
    slots: list[list[object] | None] = []
    copies = [[c, g.expected_reads] for g in s.orphaned_copies for c in g.copies]
    for e in s.queue + s.stash:
        if e is None:
            slots.append(None)
            continue
        ledger, entry = e.position
        cached[e.cache].append([ledger, entry, e.bytes, e.expected_reads])
        slots.append([e.cache, ledger, entry, e.timestamp_ns, e.requeue_count, e.accessed])
        if e.copies:
            copies += [[c, e.expected_reads] for c in e.copies]
    return {
        "caches": [{"entries": len(h), "bytes": b, "keys": sorted(h)} for h, b in zip(cached, s.sizes, strict=True)],
        "removal_queue": slots,
        "open_copies": sorted(copies),
    }


# ---- profiles -----------------------------------------------------------------------------------------

reference = range_cache.profile("reference", "Pulsar's behaviour with its known defects corrected", Config())

pulsar_2026_07 = range_cache.profile(
    "pulsar-2026-07",
    "Apache Pulsar master, 2026-07-23, as recorded",
    Config(
        duplicate_put="keep",
        inverted_range="illegal_argument",
        removal_marks_read=True,
        undelivered_release_marks_read=True,
        released_value_stays_counted=True,
    ),
)

pulsar_4_1 = range_cache.release("4.1", "4.2", rules=pulsar_2026_07.config, about="pulsar-2026-07")
pulsar_5_0 = range_cache.release(
    "5.0",
    rules=Config(removal_marks_read=True, released_value_stays_counted=True),
    about="changed rules as read in master 2026-09, the others as in pulsar-2026-07",
)

pip_430 = range_cache.profile(
    "pip-430",
    "the final text of PIP-430: recent access extends the TTL, and a size pass does not requeue expired entries",
    Config(extend_ttl_of_recently_accessed=True, size_pass_requeues_expired=False),
)

fifo = range_cache.profile(
    "fifo",
    "apache/pulsar#24363, the first removal queue: no requeue, no read counts",
    Config(max_requeue_times=0, counts_reads=False, duplicate_put="keep"),
)

stash = range_cache.profile(
    "stash",
    "first draft of apache/pulsar#24623: a size pass moves entries with expected reads to a stash",
    Config(retention="stash"),
)

separate_counters = range_cache.profile(
    "separate-counters",
    "experiment: a requeue for recent access does not count towards the maximum",
    Config(access_requeue_counts=False, extend_ttl_of_recently_accessed=True),
)
