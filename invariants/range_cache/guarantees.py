"""Guarantees of the range caches and their removal queue.

`model/range_cache.py` defines queue, stash, wrapper, copy, handler, read count, and the words deallocated and expired.
`step_clock_back`, which only recordings have, can break the order of the timestamps, on which time passes rely. After
it, `queue_timestamps_are_nondecreasing` and the properties of time passes need not be true.

    open copy    a copy that is not yet released
    readable     an entry is readable unless its value is deallocated (`Entry.released`)
    due          an entry is due for requeue if it was accessed and recent access extends the TTL, or if it has expected
                 reads and `requeueCount` is below the maximum (`is_due`). For a size pass without
                 `size_pass_requeues_expired`, an expired entry is not due (`is_requeued`)
    removal      a removal by position: `remove_range`, `invalidate_ledger` or `clear`
    trigger      `evictionTriggerThreshold`, 98 % of `max_bytes`
    size check   `evict_to_watermark`
    size pass    the action `size_pass`, or a size check that finds the total above trigger and watermark
    pass         a time pass or a size pass
"""

from __future__ import annotations

from invariants.properties import Event, always
from invariants.range_cache.derived import (
    LOOKUPS,
    PASSES,
    PUTS,
    READ_COUNT_CHANGES,
    REMOVALS,
    Key,
    by_key,
    bytes_to_free,
    copy_groups,
    entries,
    expects_reads,
    has_past_threshold,
    is_due,
    is_requeued,
    key_of,
    read_counts,
    requeues_left,
    unchanged,
)
from model.machine import Refused
from model.range_cache import NOTHING, Config, Count, Entry, Removed, State, range_cache

# ---- states -------------------------------------------------------------------------------------------


@always(range_cache)
def cache_size_equals_sum_of_entry_sizes(cfg: Config, s: State) -> bool:
    """The size of a cache is the sum of its entries' lengths at insertion."""
    sums = [0] * cfg.caches
    for e in entries(s):
        sums[e.cache] += e.bytes
    return tuple(sums) == s.sizes


@always(range_cache)
def position_is_cached_at_most_once(cfg: Config, s: State) -> bool:
    """A cache holds at most one entry at a position, in exactly one slot of the queue or the stash."""
    return len(by_key(s)) == len(entries(s))


@always(range_cache)
def queue_timestamps_are_nondecreasing(cfg: Config, s: State) -> bool:
    """Timestamps do not decrease from the head of the queue to its tail, and none is in the future."""
    times = [e.timestamp_ns for e in s.queue if e is not None]
    times.append(s.now_ns)
    return times == sorted(times)


@always(range_cache)
def open_copy_shares_exactly_one_read_count(cfg: Config, s: State) -> bool:
    """An open copy belongs to exactly one cached entry or to one group of `orphaned_copies`.

    The number of the copy is below `next_copy`.
    """
    copies = [c for e in entries(s) for c in e.copies] + [c for g in s.orphaned_copies for c in g.copies]
    return len(copies) == len(read_counts(s)) and (not copies or max(copies) < s.next_copy)


# ---- puts ---------------------------------------------------------------------------------------------


@always(range_cache, on=PUTS)
def put_appends_entry_as_given(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A put at an absent position is rejected, or appends an entry at the tail with the given bytes and read count.

    The entry's timestamp is the current time, its `accessed` is false and its `requeueCount` is 0. A put that is
    rejected or finds the position cached appends nothing.
    """
    cache, position = key_of(event)
    if event.outcome is not True:
        may_fail = isinstance(event.outcome, Refused) or (cache, position) in by_key(before)
        return may_fail and len(after.queue) == len(before.queue)
    wanted = event.arguments["expected_reads"]
    count = wanted if wanted >= 1 and cfg.counts_reads else None
    entry = Entry(cache, position, event.arguments["bytes"], count, (), before.now_ns, 0, False, False)
    return (cache, position) not in by_key(before) and after.queue == (*before.queue, entry)


@always(range_cache, on=PUTS)
def duplicate_put_changes_at_most_the_read_count(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A put at a cached position adds no entry, and changes at most the read count and copies of the cached entry."""
    present = by_key(before).get(key_of(event))
    if present is None:
        return True
    kept = by_key(after)[key_of(event)]
    same = kept._replace(expected_reads=None, copies=()) == present._replace(expected_reads=None, copies=())
    return event.outcome is not True and same and after.sizes == before.sizes


@always(range_cache, on=("put",))
def latest_put_sets_expected_read_count(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a put, the entry at the position, if readable, has the expected read count of the put.

    If this count is zero or less, or if `counts_reads` is false, the entry has no handler.
    """
    e, wanted = by_key(after)[key_of(event)], event.arguments["expected_reads"]
    return e.released or e.expected_reads == (wanted if wanted >= 1 and cfg.counts_reads else None)


@always(range_cache, on=("put_mismatched",))
def put_rejects_value_of_another_position(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A put is rejected with an error exactly if the value's position is not the key."""
    differs = event.arguments["position"] != event.arguments["value_position"]
    return isinstance(event.outcome, Refused) is bool(differs)


# ---- lookups ------------------------------------------------------------------------------------------


@always(range_cache, on=("get_range", "remove_range"))
def inverted_range_is_empty(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup or removal of a range whose first position is after its last finds nothing, and is no error."""
    if event.arguments["first"] <= event.arguments["last"]:
        return True
    return after == before and event.outcome in ((), NOTHING)


@always(range_cache, on=LOOKUPS)
def lookup_returns_cached_entries_of_range(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup returns exactly the readable entries in its range, ordered by position, with bytes and read counts.

    With `hold`, the lookup opens a copy of each returned entry.
    """
    if isinstance(event.outcome, Refused):
        return True
    asked = event.arguments
    first, last = (asked["position"],) * 2 if event.name == "get" else (asked["first"], asked["last"])
    readable = sorted(e for e in entries(before) if e.cache == asked["cache"] and not e.released)
    wanted = [(e.position, e.bytes, e.expected_reads) for e in readable if first <= e.position <= last]
    # `get_range` returns hits, `get` one hit or None
    hits = event.outcome if event.name == "get_range" else [event.outcome] if event.outcome else []
    numbers = [before.next_copy + i if asked["hold"] else None for i in range(len(hits))]
    if [(h.position, h.bytes, h.expected_reads) for h in hits] != wanted or [h.copy for h in hits] != numbers:
        return False
    return not asked["hold"] or all(h.copy in by_key(after)[asked["cache"], h.position].copies for h in hits)


@always(range_cache, on=LOOKUPS)
def lookup_marks_exactly_entries_of_range_accessed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup sets `accessed` of every entry in its range, readable or not.

    The lookup changes no other field of any entry, except copies.
    """
    if isinstance(event.outcome, Refused):
        return True
    asked, kept = event.arguments, by_key(after)
    first, last = (asked["position"],) * 2 if event.name == "get" else (asked["first"], asked["last"])
    for key, e in by_key(before).items():
        found = key[0] == asked["cache"] and first <= key[1] <= last
        if kept[key]._replace(copies=()) != e._replace(copies=(), accessed=e.accessed or found):
            return False
    return True


@always(range_cache, on=("exists",))
def exists_returns_whether_position_is_cached(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`exists` returns whether the position is cached, and changes nothing."""
    return event.outcome is (key_of(event) in by_key(before)) and after == before


@always(range_cache)
def accessed_is_cleared_only_by_requeue(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`accessed` of a cached entry becomes false only by a requeue."""
    if unchanged(before, after):
        return True
    marked = [k for k, e in by_key(before).items() if e.accessed]
    if not marked:
        return True
    kept = by_key(after)
    lost = [k for k in marked if k in kept and not kept[k].accessed]
    return not lost or (event.name in PASSES and all(kept[k].timestamp_ns == after.now_ns for k in lost))


@always(range_cache, on=("non_evictable_size",))
def non_evictable_size_counts_entries_that_may_be_read(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`getNonEvictableSize` returns number and bytes of the entries that have expected reads or no handler.

    It drops all detached wrappers, and changes nothing else.
    """
    sizes = [e.bytes for e in entries(before) if e.expected_reads is None or e.expected_reads > 0]
    live = tuple(e for e in before.queue if e is not None)
    return event.outcome == Removed(len(sizes), sum(sizes)) and after == before._replace(queue=live)


# ---- read counts --------------------------------------------------------------------------------------


@always(range_cache)
def copy_stays_open_until_released(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An open copy stays open until its own release, also if its entry is removed."""
    if not read_counts(before):
        return True
    released = event.arguments["copy"] if event.name == "release" else None
    still_open = read_counts(after)
    for copy in read_counts(before):
        if copy not in still_open and copy != released:
            return False
    return released not in still_open


@always(range_cache)
def copies_keep_sharing_their_read_count(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Open copies that share a read count keep sharing this count, also with their entry while the entry is cached.

    Exception: with `duplicate_put` "latest_handler", a duplicate put gives a readable entry a new handler. No open copy
    has the new handler.
    """
    if not read_counts(before) or (unchanged(before, after) and event.name not in PUTS):
        return True
    still_open = read_counts(after)

    def staying_open(copies: tuple[int, ...]) -> tuple[int, ...]:
        # those that were open before the step, and are open after it
        return tuple(c for c in copies if c < before.next_copy and c in still_open)

    groups = [{staying_open(copies) for copies in copy_groups(s)} - {()} for s in (before, after)]
    replaces_handler = event.outcome is False and event.name in PUTS and cfg.duplicate_put == "latest_handler"
    replaced, kept = key_of(event) if replaces_handler else None, by_key(after)
    for key, e in by_key(before).items():
        sharing = () if key == replaced and not e.released else staying_open(e.copies)
        if key in kept and staying_open(kept[key].copies) != sharing:
            return False
    return groups[0] == groups[1]


@always(range_cache, on=READ_COUNT_CHANGES)
def read_count_change_returns_new_read_count(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`release`, `replay` and `mark_read` return the read count after the change.

    `release` and `replay` are rejected if the copy is not open; `mark_read` returns None if the position is not cached.
    """
    change, _, _ = _change_of(before, event)
    if event.name == "mark_read":
        e = by_key(before).get(key_of(event))
        if e is None:
            return event.outcome is None
        count = e.expected_reads
    elif event.arguments["copy"] not in read_counts(before):
        return isinstance(event.outcome, Refused)
    else:
        count = read_counts(before)[event.arguments["copy"]]
    if event.name == "release" and cfg.undelivered_release_marks_read:
        change = -1  # this rule violates `only_reads_and_replays_change_read_count`, not this property
    return bool(event.outcome == Count(None if count is None else count + change))


@always(range_cache)
def only_reads_and_replays_change_read_count(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read lowers a read count by 1, a replay raises a read count by 1, and nothing else changes a read count.

    A read is the release of a delivered copy, or `markRead`. A duplicate put may give the entry a new read count; the
    open copies keep the old one. Not checked: that `markRead` of an entry without open copies changes its count.
    """
    if unchanged(before, after) and event.name not in READ_COUNT_CHANGES:
        return True
    change, copies, key = _change_of(before, event)
    counts_after = read_counts(after)
    for copy, count in read_counts(before).items():
        expected = count if count is None or copy not in copies else count + change
        if counts_after.get(copy, expected) != expected:
            return False
    replaced = key_of(event) if event.name in PUTS else None
    kept = by_key(after)
    for each, e in by_key(before).items():
        now = kept.get(each)
        if now is not None and now is not e and each != replaced:
            count = e.expected_reads
            if now.expected_reads != (count if count is None or each != key else count + change):
                return False
    return True


def _change_of(before: State, event: Event) -> tuple[int, tuple[int, ...], Key | None]:
    """Returns by how much an event changes a read count, the open copies that share the count, and their entry's key.

    The change is that of the reference: an undelivered release changes nothing. The key is None if the entry is not
    cached.
    """
    if event.name == "mark_read":
        e = by_key(before).get(key_of(event))
        return (-1, e.copies, key_of(event)) if e else (0, (), None)
    if event.name not in READ_COUNT_CHANGES:
        return 0, (), None
    change = 1 if event.name == "replay" else -int(event.arguments["delivered"])
    for key, e in by_key(before).items():
        if event.arguments["copy"] in e.copies:
            return change, e.copies, key
    sharing = [g.copies for g in before.orphaned_copies if event.arguments["copy"] in g.copies]
    return change, sharing[0] if sharing else (), None


# ---- removal ------------------------------------------------------------------------------------------


@always(range_cache, on=REMOVALS)
def removal_detaches_exactly_its_range(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A removal by position removes exactly the entries of its cache in its range, and changes no other slot.

    The range of `invalidate_ledger` is one ledger; the range of `clear` is the whole cache. The wrapper of a removed
    entry stays in the queue, detached; the stash keeps no such wrapper.
    """
    if isinstance(event.outcome, Refused):
        return after == before
    asked = event.arguments

    def covers(e: Entry) -> bool:
        if e.cache != asked["cache"]:
            return False
        if event.name == "remove_range":
            at_end = asked["last_inclusive"] and e.position == asked["last"]
            return bool(asked["first"] <= e.position and (e.position < asked["last"] or at_end))
        return event.name == "clear" or e.position.ledger == asked["ledger"]

    wanted = tuple(None if e is None or covers(e) else e for e in before.queue)
    return after.queue == wanted and after.stash == tuple(e for e in before.stash if not covers(e))


@always(range_cache)
def entries_leave_only_by_removal_or_pass(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Only a removal or a pass removes an entry, and only a put adds one."""
    if unchanged(before, after):
        return True
    was, kept = by_key(before).keys(), by_key(after).keys()
    return (event.name in PASSES or event.name in REMOVALS or was <= kept) and (event.name in PUTS or kept <= was)


@always(range_cache, on=(*PASSES, *REMOVALS))
def removal_reports_entries_and_bytes_that_left(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A removal or a pass returns the number and the bytes of exactly the entries that it removes.

    If `released_value_stays_counted` is true, entries that are not readable are not counted.
    """
    if isinstance(event.outcome, Refused):
        return True
    kept = by_key(after)
    gone = [e for key, e in by_key(before).items() if key not in kept]
    if cfg.released_value_stays_counted:
        gone = [e for e in gone if not e.released]
    return bool(event.outcome == Removed(len(gone), sum(e.bytes for e in gone)))


# ---- eviction passes ----------------------------------------------------------------------------------


@always(range_cache, on=PASSES)
def pass_preserves_size_read_count_and_copies(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry that a pass does not remove keeps its bytes, its read count and its copies.

    A pass changes no entry from readable to not readable, or back.
    """
    was = by_key(before)
    return all(
        (e.bytes, e.expected_reads, e.copies, e.released)
        == (was[k].bytes, was[k].expected_reads, was[k].copies, was[k].released)
        for k, e in by_key(after).items()
    )


@always(range_cache, on=PASSES)
def requeues_for_expected_reads_are_capped(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A pass raises `requeueCount` above `max_requeue_times` only by a requeue for recent access, and then by 1."""
    was = by_key(before)
    for key, e in by_key(after).items():
        by_access = before.extend_ttl_of_recently_accessed and was[key].accessed
        limit = max(before.max_requeue_times, was[key].requeue_count + 1 if by_access else was[key].requeue_count)
        if e.requeue_count > limit:
            return False
    return True


@always(range_cache, on=PASSES)
def pass_requeues_only_due_entries(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A pass requeues only entries that are due for requeue.

    A requeue that `requeueCount` does not count is not checked.
    """
    was = by_key(before)
    requeued = [was[k] for k, e in by_key(after).items() if e.requeue_count != was[k].requeue_count]
    return all(is_requeued(cfg, before, event, e) for e in requeued)


@always(range_cache, on=("time_pass",))
def time_pass_leaves_no_expired_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a time pass no cached entry has a timestamp before the threshold, unless the threshold is in the future."""
    threshold = event.arguments["threshold_ns"]
    return not has_past_threshold(before, event) or all(e.timestamp_ns >= threshold for e in entries(after))


@always(range_cache, on=("time_pass",))
def time_pass_keeps_unexpired_entries(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A time pass changes no entry whose timestamp is the threshold or later, unless the threshold is in the future."""
    kept = by_key(after)
    young = [(k, e) for k, e in by_key(before).items() if e.timestamp_ns >= event.arguments["threshold_ns"]]
    return not has_past_threshold(before, event) or all(kept.get(k) == e for k, e in young)


@always(range_cache, on=("time_pass",))
def time_pass_keeps_due_entries(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A time pass removes no entry that is due for requeue, unless the threshold is in the future."""
    kept = by_key(after)
    due = [k for k, e in by_key(before).items() if is_due(before, e)]
    return not has_past_threshold(before, event) or all(k in kept for k in due)


@always(range_cache, on=("size_pass",))
def size_pass_frees_requested_bytes(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A size pass frees at least the requested bytes, or all cached bytes."""
    if isinstance(event.outcome, Refused):
        return True
    present = sum(e.bytes for e in entries(before))
    freed = present - sum(e.bytes for e in entries(after))
    return bool(freed >= min(event.arguments["bytes_to_free"], present))


@always(range_cache, on=("size_pass",))
def size_pass_rejects_nonpositive_bytes(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A size pass is rejected exactly if the requested bytes are zero or less."""
    return isinstance(event.outcome, Refused) is bool(event.arguments["bytes_to_free"] <= 0)


@always(range_cache, on=("size_pass", "evict_to_watermark"))
def size_pass_frees_no_more_than_needed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Without the largest entry that it removes, a size pass would have freed less than requested."""
    if isinstance(event.outcome, Refused):
        return True
    kept = by_key(after)
    gone = [e.bytes for k, e in by_key(before).items() if k not in kept]
    return not gone or sum(gone) - max(gone) < bytes_to_free(cfg, before, event)


@always(range_cache, on=("size_pass", "evict_to_watermark"))
def size_pass_evicts_due_entries_last(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A size pass removes an entry that was due for requeue only if all entries that were not due are removed."""
    kept = by_key(after)
    due_gone = any(k not in kept and is_requeued(cfg, before, event, e) for k, e in by_key(before).items())
    other_kept = any(k in kept and not is_requeued(cfg, before, event, e) for k, e in by_key(before).items())
    return not (due_gone and other_kept)


@always(range_cache, on=PASSES)
def pass_evicts_in_queue_order(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Of two entries that are not due for requeue, a pass removes the one nearer to the head first."""
    kept = by_key(after)
    plain = [e for e in before.queue if e is not None and not is_requeued(cfg, before, event, e)]
    gone = [(e.cache, e.position) not in kept for e in plain]
    return gone == sorted(gone, reverse=True)


@always(range_cache, on=PASSES, given=lambda cfg: cfg.retention == "requeue")
def pass_removes_entry_when_its_requeues_are_used_up(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A pass requeues an entry at each visit while the entry is due for requeue, and then removes the entry.

    A size pass first removes the entries with the fewest requeues left; among equals, the entry nearest to the head. A
    time pass visits an entry at most once, unless the threshold is in the future; that case is not checked. A requeue
    raises `requeueCount` by 1, except a requeue for recent access without `access_requeue_counts`.
    """
    kept, live = by_key(after), [e for e in before.queue if e is not None]
    order = {(e.cache, e.position): (requeues_left(cfg, before, event, e), i) for i, e in enumerate(live)}
    if event.name == "time_pass":
        if not has_past_threshold(before, event):
            return True
        visits = {k: int(by_key(before)[k].timestamp_ns < event.arguments["threshold_ns"]) for k in kept}
    else:
        # the entry that is removed last: how often it was requeued before, and its slot
        requeues, slot = max([order[k] for k in order if k not in kept], default=(0, -1))
        if any(order[k] < (requeues, slot) for k in kept):
            return False
        # each lap visits every kept entry; the last lap ends at the slot
        visits = {k: requeues + (order[k][1] < slot) for k in kept}
    for key, times in visits.items():
        e = by_key(before)[key]
        is_uncounted = e.accessed and before.extend_ttl_of_recently_accessed and not cfg.access_requeue_counts
        # in one pass, at most the first requeue of an entry is for recent access
        if kept[key].requeue_count != e.requeue_count + times - (is_uncounted and times > 0):
            return False
    return True


@always(range_cache, on=("time_pass", "size_pass"))
def pass_leaves_no_detached_wrapper_at_head(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After `time_pass` or `size_pass`, the head of the queue is not the slot of a removed entry.

    (A size check that finds too few bytes visits no wrapper.)
    """
    return isinstance(event.outcome, Refused) or not after.queue or after.queue[0] is not None


@always(range_cache, on=("size_pass", "evict_to_watermark"), given=lambda cfg: cfg.retention == "stash")
def size_pass_stashes_entries_with_expected_reads(cfg: Config, before: State, event: Event, after: State) -> bool:
    """With a stash, a size pass removes no unexpired entry with expected reads, and stashes only such entries.

    If the size pass frees fewer bytes than requested, only such entries are left, all in the stash.
    """
    if isinstance(event.outcome, Refused):
        return True

    def is_kept(e: Entry) -> bool:
        return expects_reads(e) and before.now_ns - e.timestamp_ns <= cfg.ttl_ns

    kept = by_key(after)
    gone = [e for k, e in by_key(before).items() if k not in kept]
    if any(is_kept(e) for e in gone) or any(not is_kept(e) for e in after.stash if e not in before.stash):
        return False
    counted = [e.bytes for e in gone if not (e.released and cfg.released_value_stays_counted)]
    return sum(counted) >= bytes_to_free(cfg, before, event) or all(
        is_kept(e) and e in after.stash for e in entries(after)
    )


@always(range_cache, on=("evict_to_watermark",))
def size_check_evicts_down_to_watermark(cfg: Config, before: State, event: Event, after: State) -> bool:
    """If the total is above the trigger, the size check frees the bytes above the watermark.

    The size check evicts all entries if their bytes are not enough. It changes nothing if the total is not above the
    trigger, or not above the watermark.
    """
    wanted = bytes_to_free(cfg, before, event)
    if wanted <= 0:
        return after == before and bool(event.outcome == NOTHING)
    return sum(before.sizes) - sum(after.sizes) >= wanted or not entries(after)


# ---- time and settings --------------------------------------------------------------------------------


@always(range_cache)
def clock_changes_only_by_its_actions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Only `advance` and `step_clock_back` move the clock; `advance` adds its argument, and changes nothing else."""
    if event.name == "advance":
        return after == before._replace(now_ns=before.now_ns + event.arguments["nanos"])
    return after.now_ns == before.now_ns or event.name == "step_clock_back"


@always(range_cache)
def dynamic_settings_change_only_by_their_actions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A setter gives a dynamic setting the given value and changes nothing else. No other action changes a setting."""
    if event.name == "set_max_requeue_times":
        return after == before._replace(max_requeue_times=event.arguments["value"])
    if event.name == "set_extend_ttl":
        return after == before._replace(extend_ttl_of_recently_accessed=event.arguments["value"])
    return (after.max_requeue_times, after.extend_ttl_of_recently_accessed) == (
        before.max_requeue_times,
        before.extend_ttl_of_recently_accessed,
    )


@always(range_cache, on=("release", "remove_range", "over_release"))
def canonical_form_renames_only(cfg: Config, before: State, event: Event, after: State) -> bool:
    """States that behave alike have one canonical form: copies are numbered from 1, times are relative to now.

    The canonical form changes nothing else. Other numbers of the copies, or another clock with the same ages of
    entries, do not change the canonical form.
    """
    canonical = range_cache.canonical
    form = canonical(cfg, after)
    contents = [
        (  # all but clock and `next_copy`; times relative to now; numbers of copies replaced by how many share a count
            [e and (e[:4], len(e.copies), e.timestamp_ns - s.now_ns, e[6:]) for e in s.queue + s.stash],
            sorted((len(g.copies), repr(g.expected_reads)) for g in s.orphaned_copies),
            (s.sizes, s.max_requeue_times, s.extend_ttl_of_recently_accessed),
        )
        for s in (after, form)
    ]
    numbers = sorted(read_counts(form))
    is_canonical = numbers == list(range(1, form.next_copy)) and form.now_ns == 0
    return contents[0] == contents[1] and is_canonical and canonical(cfg, _renamed(form)) == form


def _renamed(s: State) -> State:
    """Returns the state with the numbers of its open copies in reverse order, and all times one nanosecond later.

    The groups of orphaned copies are in reverse order.
    """

    def reversed_numbers(copies: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(s.next_copy - copy for copy in reversed(copies))

    return s._replace(
        now_ns=s.now_ns + 1,
        queue=tuple(
            e and e._replace(copies=reversed_numbers(e.copies), timestamp_ns=e.timestamp_ns + 1) for e in s.queue
        ),
        stash=tuple(e._replace(copies=reversed_numbers(e.copies), timestamp_ns=e.timestamp_ns + 1) for e in s.stash),
        orphaned_copies=tuple(g._replace(copies=reversed_numbers(g.copies)) for g in reversed(s.orphaned_copies)),
    )
