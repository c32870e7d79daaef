"""Range caches behind one removal queue: how long a broker keeps a message in memory.

Source: PIP-430, "Centralized Cache Eviction with RangeCacheRemovalQueue" and "Expected Read Count" strategy.
Step grain: one call on a cache, or one whole eviction pass. The broker serialises passes on the queue's
monitor; what may happen between the steps of an insert and a removal is in `cache_steps`.

    put          absent: the entry goes to the queue's tail with the time of now
                 present: not inserted, though its counter may be exchanged for the newcomer's
    get          marks the entry as accessed; a caller may hold a copy, which shares the read counter
    release      the copy goes back; a delivered one lowers the counter
    time pass    from the head: DETACHED -> dropped; not expired -> STOP;
                 due for an extension -> REQUEUE at the tail; else REMOVE
    size pass    from the head, round and round, until enough is free:
                 DETACHED -> dropped; due -> REQUEUE; else REMOVE

    due for an extension: recently accessed (if that is switched on), or it
    expects reads and has been requeued fewer than the maximum number of times

State: the queue is the state. An entry that is cached stands in exactly one slot of it (or, in the early
draft, in the stash), and a cache is the set of entries that name it. An entry removed by position leaves its
slot behind, DETACHED (None here), until a pass walks over it. Copies are held by number; all copies of one
entry and the entry itself share one read counter, so they stand together: with the entry while it is cached,
as `OrphanedCopies` after.

Not modelled: the cursors. Expected reads are what the ledger hands in: the number of active cursors for a new
entry, the rank of the reading cursor for one that was read from storage. Nor when passes are scheduled, buffers
and their reference counts (but see `over_release`), copying on insert, the wrapper's lock and its reuse, memory
overhead of slots. A released value that is removed by position leaves a slot that still has its key in the
broker; here it is DETACHED like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Literal, NamedTuple

from model import watermark
from model.machine import Machine, Setting, Step, refused
from model.positions import Position, start_of
from model.values import AtLeast, Below, Between, record

# ---- settings and rules -------------------------------------------------------------------------------


class Config(NamedTuple):
    """Settings of the broker, then the rules on which versions or proposals differ."""

    #: how many topics have a cache on this broker; caches are numbered from 0
    caches: Annotated[int, AtLeast(1)] = 2
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
    #: the size that all caches together should stay below
    max_bytes: Annotated[
        int, AtLeast(1), Setting("managedLedgerCacheSizeMB", "a fifth of direct memory; here a library's")
    ] = 134_217_728
    #: the share of the maximum that a size pass brings the caches down to
    watermark: Annotated[float, Between(0, 1), Setting("managedLedgerCacheEvictionWatermark", "0.9")] = 0.9
    #: whether entries count expected reads at all (they do not in the first central queue, before requeueing)
    counts_reads: Annotated[bool, Setting("cacheEvictionByExpectedReadCount", "true")] = True

    #: what becomes of the counter of an entry that is added again: kept, or the newcomer's takes its place
    duplicate_put: Literal["keep", "latest_handler"] = "latest_handler"
    #: a range whose first position is after its last: an empty range, or an error
    inverted_range: Literal["empty", "illegal_argument"] = "empty"
    #: whether leaving the cache lowers the counter that open copies still share
    removal_marks_read: bool = False
    #: whether a copy that is given back undelivered lowers the counter
    undelivered_release_marks_read: bool = False
    #: whether a requeue for recent access uses up an extension for expected reads (one shared counter)
    access_requeue_counts: bool = True
    #: whether a size pass spares an entry that is due for an extension although its time is over
    size_pass_requeues_expired: bool = True
    #: whether the bytes of an entry stay counted when its value had been released behind the cache's back
    released_value_stays_counted: bool = False
    #: how an entry is spared: requeued at the tail, or stashed aside until its time is over (the early draft)
    retention: Literal["requeue", "stash"] = "requeue"


# ---- state --------------------------------------------------------------------------------------------


@record
class Entry(NamedTuple):
    """A cached message and its slot in the removal queue: the broker's wrapper and its value in one."""

    cache: int
    position: Position
    bytes: int  # frozen at insertion
    expected_reads: int | None  # None: this entry counts no reads; may be negative
    copies: tuple[int, ...]  # numbers of the open copies that share the counter, ascending
    timestamp_ns: int  # when it was put, or last put back
    requeue_count: int  # for whatever reason, in whatever pass
    accessed: bool  # looked up since it was put, or last put back
    released: bool  # someone gave back a reference that was the cache's


class OrphanedCopies(NamedTuple):
    """Open copies of an entry that is no longer cached, and the counter they share."""

    copies: tuple[int, ...]
    expected_reads: int | None


@record
class State(NamedTuple):
    """All caches of a broker."""

    now_ns: int
    queue: tuple[Entry | None, ...]  # oldest first; None is a DETACHED slot
    stash: tuple[Entry, ...]  # only when entries are spared by stashing
    sizes: tuple[int, ...]  # bytes of each cache
    orphaned_copies: tuple[OrphanedCopies, ...]  # in the order of the copies' numbers
    next_copy: int
    max_requeue_times: int  # settings that can be changed while the broker runs
    extend_ttl_of_recently_accessed: bool


def start(cfg: Config) -> State:
    """Empty caches, at time zero."""
    return State(0, (), (), (0,) * cfg.caches, (), 1, cfg.max_requeue_times, cfg.extend_ttl_of_recently_accessed)


class Hit(NamedTuple):
    """What a lookup gives: the entry as it was found, and the number of the copy if one is held."""

    position: Position
    bytes: int
    expected_reads: int | None
    copy: int | None


class Count(NamedTuple):
    """A read counter as it stands; None if it was never defined."""

    expected_reads: int | None


class Removed(NamedTuple):
    """What a removal or an eviction pass took away."""

    entries: int
    bytes: int


NOTHING = Removed(0, 0)

range_cache = Machine("range_cache", Config, start, source="PIP-430")

Cache = Annotated[int, Below("caches")]
Bytes = Annotated[int, AtLeast(0)]
Nanos = Annotated[int, AtLeast(0)]

# ---- small rules --------------------------------------------------------------------------------------


def initial_count(cfg: Config, expected_reads: int) -> int | None:
    """A count of zero or less is no count at all: the entry will never expect reads (EntryReadCountHandler)."""
    return expected_reads if cfg.counts_reads and expected_reads > 0 else None


def marked_read(count: int | None) -> int | None:
    """One read fewer to expect, without a floor: it may go negative."""
    return None if count is None else count - 1


def replayed(count: int | None) -> int | None:
    """One read more to expect. An undefined count stays undefined."""
    return None if count is None else count + 1


def has_expected_reads(count: int | None) -> bool:
    """At least one read is expected, and the count has been defined (EntryReadCountHandler.hasExpectedReads)."""
    return count is not None and count >= 1


def should_requeue(s: State, e: Entry) -> bool:
    """Recently accessed, without limit; or expecting reads, up to the maximum ("Requeuing Mechanism")."""
    return (s.extend_ttl_of_recently_accessed and e.accessed) or (
        has_expected_reads(e.expected_reads) and e.requeue_count < s.max_requeue_times
    )


def requeues_after(cfg: Config, s: State, e: Entry) -> int:
    """One counter for all reasons; in the variant, a requeue that recent access alone justifies is not counted."""
    if cfg.access_requeue_counts or not (s.extend_ttl_of_recently_accessed and e.accessed):
        return e.requeue_count + 1
    return e.requeue_count


def is_expired(timestamp_ns: int, threshold_ns: int) -> bool:
    """Older than the threshold, strictly."""
    return timestamp_ns < threshold_ns


def inside(position: Position, first: Position, last: Position, last_inclusive: bool) -> bool:
    """Whether a position is in a range; the first one always belongs to it."""
    return first <= position and (position <= last if last_inclusive else position < last)


# ---- finding and changing entries ---------------------------------------------------------------------


def find(s: State, cache: int, position: Position) -> Entry | None:
    """The entry that a cache holds at a position."""
    for e in s.queue + s.stash:
        if e is not None and e.position == position and e.cache == cache:
            return e
    return None


def in_range(s: State, cache: int, first: Position, last: Position, last_inclusive: bool) -> list[Entry]:
    """What a cache holds in a range, in the order of positions."""
    held = [e for e in s.queue + s.stash if e is not None and e.cache == cache]
    return sorted(e for e in held if inside(e.position, first, last, last_inclusive))


def replace_entry(s: State, old: Entry, new: Entry) -> State:
    """The same state with `new` where `old` stood."""
    if old in s.queue:
        i = s.queue.index(old)
        return s._replace(queue=s.queue[:i] + (new,) + s.queue[i + 1 :])
    i = s.stash.index(old)
    return s._replace(stash=s.stash[:i] + (new,) + s.stash[i + 1 :])


def add_orphaned_copies(
    copies: tuple[int, ...], count: int | None, orphaned_copies: tuple[OrphanedCopies, ...]
) -> tuple[OrphanedCopies, ...]:
    """Adds open copies that no cached entry stands for; without copies nobody can see the counter any more."""
    return tuple(sorted((*orphaned_copies, OrphanedCopies(copies, count)))) if copies else orphaned_copies


def stays_counted(cfg: Config, e: Entry) -> bool:
    """Whether a leaving entry's bytes stay counted, because its value had been released elsewhere."""
    return e.released and cfg.released_value_stays_counted


def account_for_removed(cfg: Config, s: State, gone: Iterable[Entry]) -> tuple[State, Removed]:
    """Subtracts the bytes of entries that have left their slots, and lets their open copies go on alone.

    The outcome is what a removal reports: the entries whose bytes it subtracted.
    """
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
    """An entry is added to its cache and, at the tail, to the removal queue; true if it was absent.

    An entry that is already cached keeps its bytes, time, place and access mark; only its counter may be
    exchanged for the newcomer's (PIP-430, "Entry Tracking"; the counter rule is a later change).
    """
    count = initial_count(cfg, expected_reads)
    present = find(s, cache, position)
    if present is None:
        entry = Entry(cache, position, bytes, count, (), s.now_ns, 0, False, False)
        sizes = s.sizes[:cache] + (s.sizes[cache] + bytes,) + s.sizes[cache + 1 :]
        return s._replace(queue=s.queue + (entry,), sizes=sizes), True
    if cfg.duplicate_put == "keep" or present.released:
        return s, False
    s = replace_entry(s, present, present._replace(expected_reads=count, copies=()))
    return s._replace(
        orphaned_copies=add_orphaned_copies(present.copies, present.expected_reads, s.orphaned_copies)
    ), False


@range_cache.action
def put_mismatched(
    cfg: Config, s: State, cache: Cache, position: Position, value_position: Position, bytes: Bytes, expected_reads: int
) -> Step[State, bool]:
    """A value that knows another position than its key is refused; otherwise it is an ordinary put."""
    if position != value_position:
        return refused(s, "illegal_argument", "the value's position is not the key")
    return put(cfg, s, cache, position, bytes, expected_reads)


@range_cache.action
def get(cfg: Config, s: State, cache: Cache, position: Position, hold: bool) -> Step[State, Hit | None]:
    """A lookup marks the entry as accessed; with `hold` the caller keeps a copy that shares its read counter.

    A value that was released elsewhere cannot be given out: a miss, though the entry is marked.
    """
    present = find(s, cache, position)
    if present is None:
        return s, None
    s, hits = look_up(s, [present], hold)
    return s, (hits[0] if hits else None)


@range_cache.action
def get_range(
    cfg: Config, s: State, cache: Cache, first: Position, last: Position, hold: bool
) -> Step[State, tuple[Hit, ...]]:
    """A lookup of every entry from first to last, both included, gaps skipped, ledgers crossed."""
    if first > last and cfg.inverted_range == "illegal_argument":
        return refused(s, "illegal_argument", "the first position is after the last")
    return look_up(s, in_range(s, cache, first, last, True), hold)


def look_up(s: State, found: Iterable[Entry], hold: bool) -> tuple[State, tuple[Hit, ...]]:
    """Marks entries as accessed and gives out those that can be, each with a new copy if held."""
    hits: list[Hit] = []
    for e in found:
        gives = hold and not e.released
        copies = (*e.copies, s.next_copy) if gives else e.copies
        if not e.released:
            hits.append(Hit(e.position, e.bytes, e.expected_reads, s.next_copy if hold else None))
        if gives or not e.accessed:
            s = replace_entry(s, e, e._replace(accessed=True, copies=copies))
        if gives:
            s = s._replace(next_copy=s.next_copy + 1)
    return s, tuple(hits)


@range_cache.action
def exists(cfg: Config, s: State, cache: Cache, position: Position) -> Step[State, bool]:
    """Whether the position is cached; asking does not mark the entry as accessed."""
    return s, find(s, cache, position) is not None


# ---- counting reads -----------------------------------------------------------------------------------


@range_cache.action
def release(cfg: Config, s: State, copy: int, delivered: bool) -> Step[State, Count]:
    """A copy goes back. One that was delivered lowers the counter ("Dynamic Updates"); the outcome is the counter."""
    counts = delivered or cfg.undelivered_release_marks_read
    return change_read_count(s, copy, marked_read if counts else unchanged, keep_copy=False)


@range_cache.action
def replay(cfg: Config, s: State, copy: int) -> Step[State, Count]:
    """The copy's entry goes to the replay queue: it will be read once more ("Dynamic Updates")."""
    return change_read_count(s, copy, replayed, keep_copy=True)


@range_cache.action
def mark_read(cfg: Config, s: State, cache: Cache, position: Position) -> Step[State, Count | None]:
    """Lowers the counter of a cached entry directly; it is not a lookup."""
    present = find(s, cache, position)
    if present is None:
        return s, None
    count = marked_read(present.expected_reads)
    return (s if count is None else replace_entry(s, present, present._replace(expected_reads=count))), Count(count)


def unchanged(count: int | None) -> int | None:
    """The counter of a copy that nobody read."""
    return count


def change_read_count(
    s: State, copy: int, change: Callable[[int | None], int | None], keep_copy: bool
) -> Step[State, Count]:
    """Changes the counter that an open copy shares, wherever it stands, and closes the copy unless it is kept."""
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
    return refused(s, "not_open", "no open copy has this number")


# ---- removing by position -----------------------------------------------------------------------------


@range_cache.action
def remove_range(
    cfg: Config, s: State, cache: Cache, first: Position, last: Position, last_inclusive: bool
) -> Step[State, Removed]:
    """Removes a cache's entries from first to last; each leaves a DETACHED slot in the queue."""
    if first > last and cfg.inverted_range == "illegal_argument":
        return refused(s, "illegal_argument", "the first position is after the last")
    return detach(cfg, s, in_range(s, cache, first, last, last_inclusive))


@range_cache.action
def invalidate_ledger(cfg: Config, s: State, cache: Cache, ledger: int) -> Step[State, Removed]:
    """Removes a cache's entries of one ledger: from its first position up to the next ledger's, not included."""
    return detach(cfg, s, in_range(s, cache, start_of(ledger), start_of(ledger + 1), False))


@range_cache.action
def clear(cfg: Config, s: State, cache: Cache) -> Step[State, Removed]:
    """Removes everything that a cache holds at the start of the call, and reports what it removed."""
    return detach(cfg, s, [e for e in s.queue + s.stash if e is not None and e.cache == cache])


def detach(cfg: Config, s: State, gone: list[Entry]) -> tuple[State, Removed]:
    """Entries leave by position: their slots stay behind, DETACHED ("MISSING" to the pass that meets them)."""
    if not gone:
        return s, NOTHING
    queue = tuple(None if e in gone else e for e in s.queue)
    stash = tuple(e for e in s.stash if e not in gone)
    return account_for_removed(cfg, s._replace(queue=queue, stash=stash), gone)


# ---- eviction -----------------------------------------------------------------------------------------

Verdict = Literal["MISSING", "STOP", "REQUEUE", "REMOVE"]


def time_pass_predicate(cfg: Config, s: State, e: Entry | None, freed: int, threshold_ns: int) -> Verdict:
    """What a time pass does with the head of the queue, in exactly this order."""
    if e is None:
        return "MISSING"
    if not is_expired(e.timestamp_ns, threshold_ns):
        return "STOP"
    if should_requeue(s, e):
        return "REQUEUE"
    return "REMOVE"


def size_pass_predicate(cfg: Config, s: State, e: Entry | None, freed: int, bytes_to_free: int) -> Verdict:
    """What a size pass does with the head of the queue, in exactly this order. Age is irrelevant."""
    if e is None:
        return "MISSING"
    if freed >= bytes_to_free:
        return "STOP"
    if should_requeue(s, e) and not is_past_sparing(cfg, s, e):
        return "REQUEUE"
    return "REMOVE"


def is_past_sparing(cfg: Config, s: State, e: Entry) -> bool:
    """In the variant, a size pass does not spare an entry whose time is over."""
    return not cfg.size_pass_requeues_expired and is_expired(e.timestamp_ns, s.now_ns - cfg.ttl_ns)


#: What to do with the head of the queue, given the bytes freed so far and the limit of the pass.
Visit = Callable[[Config, State, Entry | None, int, int], Verdict]


def evict_entries(cfg: Config, s: State, visit: Visit, limit: int) -> tuple[State, Removed]:
    """One pass over the queue, from the head, until it stops or nothing is left.

    A requeued entry goes to the tail with the time of now, its access mark cleared, and one requeue more;
    the same pass may meet it again.
    """
    queue, gone, freed, head = list(s.queue), [], 0, 0
    while head < len(queue):
        e = queue[head]
        verdict = visit(cfg, s, e, freed, limit)
        if verdict == "STOP":
            break
        head += 1
        if e is None:
            continue
        if verdict == "REQUEUE":
            queue.append(e._replace(timestamp_ns=s.now_ns, accessed=False, requeue_count=requeues_after(cfg, s, e)))
        else:
            gone.append(e)
            freed += 0 if stays_counted(cfg, e) else e.bytes
    if head:
        s = s._replace(queue=tuple(queue[head:]))
    return account_for_removed(cfg, s, gone) if gone else (s, NOTHING)


@range_cache.action
def time_pass(cfg: Config, s: State, threshold_ns: int) -> Step[State, Removed]:
    """Removes what is older than the threshold, except what is due for an extension (evictLEntriesBeforeTimestamp).

    The queue is in the order of time, so the pass ends at the first entry that is young enough.
    """
    if cfg.retention == "stash":
        return stash_time_pass(cfg, s, threshold_ns)
    return evict_entries(cfg, s, time_pass_predicate, threshold_ns)


@range_cache.action
def size_pass(cfg: Config, s: State, bytes_to_free: int) -> Step[State, Removed]:
    """Removes entries from the head until enough bytes are free (evictLeastAccessedEntries).

    What is due for an extension is put back and met again in the next lap, so expected reads put an entry
    last, and never keep the pass from its goal.
    """
    if bytes_to_free <= 0:
        return refused(s, "illegal_argument", "the bytes to free must be more than zero")
    if cfg.retention == "stash":
        return stash_size_pass(cfg, s, bytes_to_free)
    return evict_entries(cfg, s, size_pass_predicate, bytes_to_free)


@range_cache.action
def evict_to_watermark(cfg: Config, s: State) -> Step[State, Removed]:
    """The size check: a size pass down to the watermark if all caches together are over the trigger (98 %)."""
    total = sum(s.sizes)
    wanted = watermark.bytes_to_evict(total, cfg.max_bytes, cfg.watermark)
    if not watermark.is_over_threshold(total, cfg.max_bytes) or wanted <= 0:
        return s, NOTHING
    return size_pass(cfg, s, wanted)


@range_cache.action
def non_evictable_size(cfg: Config, s: State) -> Step[State, Removed]:
    """Entries that expect reads or do not count them, and their bytes; drops all DETACHED slots on the way.

    Not a rule of eviction: entries without a count are evicted freely. The broker's own tests use it.
    """
    live = tuple(e for e in s.queue if e is not None)
    kept = [e.bytes for e in live + s.stash if e.expected_reads is None or has_expected_reads(e.expected_reads)]
    return s._replace(queue=live), Removed(len(kept), sum(kept))


# ---- the stash of the early draft ---------------------------------------------------------------------


def is_spared_in_stash(cfg: Config, s: State, e: Entry) -> bool:
    """It expects reads and its time is not over: a size pass of the early draft never takes it."""
    return has_expected_reads(e.expected_reads) and not is_expired(e.timestamp_ns, s.now_ns - cfg.ttl_ns)


def stash_time_pass(cfg: Config, s: State, threshold_ns: int) -> tuple[State, Removed]:
    """First every stashed entry, then the queue; what is older than the threshold goes, expected reads or not."""
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
    """First the stash, then the queue, until enough is free; what is spared is set aside, so the goal may be missed."""
    stash: list[Entry] = []
    gone: list[Entry] = []
    freed = head = 0
    for e in s.stash:
        taken = freed < bytes_to_free and not is_spared_in_stash(cfg, s, e)
        (gone if taken else stash).append(e)
        freed += e.bytes if taken and not stays_counted(cfg, e) else 0
    for slot in s.queue:
        if slot is not None:
            if freed >= bytes_to_free:
                break
            taken = not is_spared_in_stash(cfg, s, slot)
            (gone if taken else stash).append(slot)
            freed += slot.bytes if taken and not stays_counted(cfg, slot) else 0
        head += 1
    return account_for_removed(cfg, s._replace(queue=s.queue[head:], stash=tuple(stash)), gone)


# ---- time and settings --------------------------------------------------------------------------------


@range_cache.action
def advance(cfg: Config, s: State, nanos: Nanos) -> Step[State, None]:
    """Time passes."""
    return s._replace(now_ns=s.now_ns + nanos), None


@range_cache.action
def set_max_requeue_times(cfg: Config, s: State, value: Annotated[int, AtLeast(0)]) -> Step[State, None]:
    """The maximum changes while the broker runs; entries keep their counts."""
    return s._replace(max_requeue_times=value), None


@range_cache.action
def set_extend_ttl(cfg: Config, s: State, value: bool) -> Step[State, None]:
    """The extension for recent access is switched while the broker runs; entries keep their marks."""
    return s._replace(extend_ttl_of_recently_accessed=value), None


@range_cache.fault
def step_clock_back(cfg: Config, s: State, nanos: Nanos) -> Step[State, None]:
    """A put takes its time before another and queues after it, as if the clock had gone back for it."""
    return s._replace(now_ns=s.now_ns - nanos), None


@range_cache.fault
def over_release(cfg: Config, s: State, cache: Cache, position: Position) -> Step[State, None]:
    """Someone gives back a reference that was the cache's: the value is gone, the entry is still listed."""
    present = find(s, cache, position)
    if present is None or present.released:
        return refused(s, "illegal_state", "no value to release at this position")
    return replace_entry(s, present, present._replace(released=True)), None


# ---- names and observers ------------------------------------------------------------------------------


@range_cache.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Copies are numbered in the order in which they stand, and the clock starts at now: only differences matter."""
    if s.now_ns == 0 and s.next_copy == 1:
        return s
    following = 1

    def renumbered(copies: tuple[int, ...]) -> tuple[int, ...]:
        nonlocal following
        following += len(copies)
        return tuple(range(following - len(copies), following))

    def moved(e: Entry | None) -> Entry | None:
        if e is None or (not e.copies and not s.now_ns):
            return e
        copies = renumbered(e.copies) if e.copies else ()
        return e._replace(timestamp_ns=e.timestamp_ns - s.now_ns, copies=copies)

    queue = tuple([moved(e) for e in s.queue])
    stash = tuple([e for e in map(moved, s.stash) if e is not None])
    orphaned_copies = s.orphaned_copies
    if orphaned_copies:
        by_look = sorted(
            orphaned_copies, key=lambda g: (len(g.copies), g.expected_reads is None, g.expected_reads or 0)
        )
        orphaned_copies = tuple([OrphanedCopies(renumbered(g.copies), g.expected_reads) for g in by_look])
    return s._replace(now_ns=0, queue=queue, stash=stash, orphaned_copies=orphaned_copies, next_copy=following)


@range_cache.observation
def observe(cfg: Config, s: State) -> dict[str, object]:
    """Each cache by position, the queue from oldest to newest, and the open copies with their counters."""
    held: list[list[list[object]]] = [[] for _ in s.sizes]
    slots: list[list[object] | None] = []
    copies = [[c, g.expected_reads] for g in s.orphaned_copies for c in g.copies]
    for e in s.queue + s.stash:
        if e is None:
            slots.append(None)
            continue
        ledger, entry = e.position
        held[e.cache].append([ledger, entry, e.bytes, e.expected_reads])
        slots.append([e.cache, ledger, entry, e.timestamp_ns, e.requeue_count, e.accessed])
        if e.copies:
            copies += [[c, e.expected_reads] for c in e.copies]
    return {
        "caches": [{"entries": len(h), "bytes": b, "keys": sorted(h)} for h, b in zip(held, s.sizes, strict=True)],
        "removal_queue": slots,
        "open_copies": sorted(copies),
    }


# ---- profiles -----------------------------------------------------------------------------------------

reference = range_cache.profile("reference", "what this specification holds to be right", Config())

recorded = range_cache.profile(
    "pulsar-2026-07",
    "as recorded from Apache Pulsar master, 2026-07-23",
    Config(
        duplicate_put="keep",
        inverted_range="illegal_argument",
        removal_marks_read=True,
        undelivered_release_marks_read=True,
        released_value_stays_counted=True,
    ),
)

fifo = range_cache.profile(
    "fifo",
    "the first central queue (pull request 24363): no requeue, no read counts",
    Config(max_requeue_times=0, counts_reads=False, duplicate_put="keep"),
)

stash = range_cache.profile(
    "stash",
    "the early draft of PIP-430: a size pass sets entries with expected reads aside",
    Config(retention="stash"),
)

separate_counters = range_cache.profile(
    "separate-counters",
    "an experiment: a requeue for recent access does not use up an extension for expected reads",
    Config(access_requeue_counts=False, extend_ttl_of_recently_accessed=True),
)

two_arguments = range_cache.profile(
    "two-arguments",
    "PIP-430's signature of the size pass, which knows the expiration time: what is over it is not spared",
    Config(size_pass_requeues_expired=False),
)
