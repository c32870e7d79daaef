"""Guarantees of the entry cache: sizes, insertion, eviction, removal, metrics; then coverage goals and liveness.

`permits.py`, `reads.py`, `names.py` and `settings.py` beside this module have the other guarantees. An insertion that
leaves the total size above the trigger, 98 % of the maximum, schedules an eviction task unless one is scheduled. The
task evicts down to the watermark. If `eviction_task` is "immediate", tasks run "at once", in the step of the insertion.
Copies that are held for pending requests have negative numbers; open copies, which readers have, have positive ones.
"""

from __future__ import annotations

import math

from invariants.entry_cache.derived import (
    EVICTIONS,
    READ_COUNT_CHANGES,
    REMOVALS,
    STORAGE_ANSWERS,
    answered,
    asked_range,
    awaited_parts,
    by_key,
    copy_groups,
    entries,
    held_by,
    is_above_trigger,
    is_above_watermark,
    limited,
    read_counts,
    read_of,
    reads_queued,
    stored_sizes,
    tasks_queued,
)
from invariants.entry_cache.permits import estimated_bytes
from invariants.properties import Event, always, eventually, sometimes
from model.entry_cache.machine import entry_cache
from model.entry_cache.state import ABSENT, DISABLED, Config, Reading, Released, State
from model.machine import Refused
from model.positions import FIRST_POSITION, Position
from model.range_cache import Entry

# ---- states -----------------------------------------------------------------------------------


@always(entry_cache)
def cache_size_equals_sum_of_entry_sizes(cfg: Config, s: State) -> bool:
    """The size of a range cache is the sum of the sizes that its entries had when they were inserted."""
    sums = [0] * len(s.owners)
    for e in entries(s):
        sums[e.cache] += e.bytes
    return tuple(sums) == s.ranges.sizes


@always(entry_cache)
def total_equals_sum_of_cache_sizes(cfg: Config, s: State) -> bool:
    """The total size is nonnegative, and equals the sum of the sizes of all range caches, including removed ones."""
    return s.total_bytes == sum(s.ranges.sizes) >= 0


@always(entry_cache)
def position_is_cached_at_most_once(cfg: Config, s: State) -> bool:
    """A range cache has at most one entry at a position; the removal queue has it once."""
    return len(by_key(s)) == len(entries(s))


@always(entry_cache)
def queue_timestamps_are_nondecreasing(cfg: Config, s: State) -> bool:
    """Timestamps do not decrease from head to tail of the removal queue, and none is in the future.

    So a time pass can stop at the first entry that is not expired.
    """
    times = [e.timestamp_ns for e in entries(s)]
    times.append(s.ranges.now_ns)
    return times == sorted(times)


@always(entry_cache)
def at_most_one_eviction_task(cfg: Config, s: State) -> bool:
    """At most one eviction task is scheduled, and `evictionInProgress` is set exactly while one is."""
    return s.tasks == int(s.eviction_in_progress)


@always(entry_cache)
def held_copies_belong_to_pending_requests(cfg: Config, s: State) -> bool:
    """The copies of entries that are held for requests belong to pending requests: none leaks.

    Every copy belongs to one read count handler.
    """
    numbers = [copy for group in copy_groups(s) for copy in group]
    held = [h.copy for q in s.requests for h in held_by(q.part)]
    return len(numbers) == len(set(numbers)) and sorted(held) == sorted([copy for copy in numbers if copy < 0])


@always(entry_cache)
def pending_request_waits_for_permits_or_storage(cfg: Config, s: State) -> bool:
    """A pending request waits for permits or for an outstanding storage read."""
    if not s.requests:
        return True
    waiting = {w.request for w in s.limiter.waiting} | {number for number, _ in awaited_parts(s)}
    return all(q.number in waiting for q in s.requests)


@always(entry_cache)
def storage_read_lists_its_waiting_requests(cfg: Config, s: State) -> bool:
    """An outstanding storage read lists exactly the requests that wait for it, once for each waiting part.

    At least one part waits for each read, and the read covers all these parts.
    """
    reads, parts = {r.number: r for r in s.reads}, awaited_parts(s)
    listed = sorted([(number, r.number) for r in s.reads for number in r.waiting])
    if listed != sorted([(number, part.read) for number, part in parts]) or () in [r.waiting for r in s.reads]:
        return False
    return all(reads[p.read].first <= p.first and p.last <= reads[p.read].last for _, p in parts)


@always(entry_cache)
def joinable_reads_do_not_overlap(cfg: Config, s: State) -> bool:
    """Outstanding storage reads of one ledger and cache do not overlap, if requests can join them."""
    joinable = [r for r in s.reads if r.joinable]
    if len(joinable) < 2:
        return True
    return not any(
        a.range_cache == b.range_cache and a.ledger == b.ledger and max(a.first, b.first) <= min(a.last, b.last)
        for i, a in enumerate(joinable)
        for b in joinable[:i]
    )


# ---- steps: adding and evicting ---------------------------------------------------------------


@always(entry_cache, on=("insert",))
def absent_entry_is_cached_present_entry_is_kept(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An insert adds an entry that is not cached; of a cached entry, it changes at most the read count.

    An absent entry is appended whatever the total size is. If tasks run at once, an eviction that the insert triggers
    may remove or requeue the entry. A disabled cache takes no entry.
    """
    range_cache = after.topic_caches[event.arguments["cache"]]
    key = range_cache, event.arguments["position"]
    present = by_key(before).get(key)
    if range_cache == DISABLED:
        return event.outcome is False and after.ranges is before.ranges
    if present is None:
        wanted = event.arguments["expected_reads"]
        count, now_ns = wanted if wanted > 0 else None, before.ranges.now_ns
        entry = Entry(*key, event.arguments["bytes"], count, (), now_ns, 0, False, False)
        appended = after.ranges.queue == (*before.ranges.queue, entry)
        grown = before._replace(total_bytes=before.total_bytes + entry.bytes)
        return event.outcome is True and (appended or (not tasks_queued(cfg) and is_above_trigger(grown)))
    now = by_key(after)[key]
    same = now._replace(expected_reads=None, copies=()) == present._replace(expected_reads=None, copies=())
    return event.outcome is False and same and after.total_bytes == before.total_bytes


@always(entry_cache, on=("insert",))
def latest_insert_sets_expected_read_count(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After an insert, the entry has the given expected read count; none if the given one is below 1.

    This says nothing if no entry is cached there: the cache is disabled, or an eviction has removed the entry at once.
    """
    e = by_key(after).get((after.topic_caches[event.arguments["cache"]], event.arguments["position"]))
    expected = event.arguments["expected_reads"]
    return e is None or e.expected_reads == (expected if expected > 0 else None)


@always(entry_cache)
def eviction_is_scheduled_exactly_above_trigger(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a step that raises the total size to above the trigger, an eviction is in progress.

    Only a step that adds an entry and ends above the trigger schedules an eviction task. If tasks run at once, none is
    ever scheduled.
    """
    scheduled = after.tasks > before.tasks
    if not tasks_queued(cfg):
        return not scheduled
    if after.total_bytes > before.total_bytes and is_above_trigger(after) and not after.eviction_in_progress:
        return False
    return not scheduled or (is_above_trigger(after) and after.counters.insertions > before.counters.insertions)


@always(entry_cache, given=lambda cfg: not tasks_queued(cfg))
def immediate_eviction_reaches_watermark(cfg: Config, before: State, event: Event, after: State) -> bool:
    """If tasks run at once, no step that raises the total size leaves it above both the trigger and the watermark.

    Exception: no entry is left to evict.
    """
    if after.total_bytes <= before.total_bytes or not is_above_trigger(after):
        return True
    return not is_above_watermark(after) or not entries(after)


@always(entry_cache, on=EVICTIONS)
def eviction_reaches_watermark(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a task or the periodic eviction, the total size is not above both the trigger and the watermark.

    Exception: no entry is left to evict.
    """
    over = is_above_trigger(after) and is_above_watermark(after)
    return isinstance(event.outcome, Refused) or not over or not entries(after)


@always(entry_cache, on=("run_eviction_task",))
def eviction_frees_no_more_than_needed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A task evicts no more than needed: had the largest evicted entry stayed, the size would exceed the watermark."""
    kept = by_key(after)
    sizes = [e.bytes for key, e in by_key(before).items() if key not in kept]
    return not sizes or after.total_bytes + max(sizes) > math.floor(before.watermark * before.max_bytes)


@always(entry_cache, on=("do_cache_eviction",))
def periodic_eviction_below_trigger_keeps_due_entries(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The periodic eviction removes an entry that is due for requeue only if the total size is above the trigger.

    An expired entry is due for requeue if it has expected reads and its `requeueCount` is below the maximum, or if it
    was accessed and recent access extends the TTL. The total size is that before the time pass.
    """
    caches = before.ranges

    def is_due(e: Entry) -> bool:
        for_reads = (e.expected_reads or 0) > 0 and e.requeue_count < caches.max_requeue_times
        return for_reads or (e.accessed and caches.extend_ttl_of_recently_accessed)

    due = [key for key, e in by_key(before).items() if is_due(e) and e.timestamp_ns < caches.now_ns - cfg.ttl_ns]
    return is_above_trigger(before) or all(key in by_key(after) for key in due)


@always(entry_cache, on=("run_eviction_task",))
def task_below_trigger_evicts_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A task ends the eviction in progress; if the total size is not above the trigger, it evicts nothing.

    The action is rejected only if no task is scheduled.
    """
    if isinstance(event.outcome, Refused):
        return not before.tasks
    done = after.tasks == before.tasks - 1 and not after.eviction_in_progress
    return done and (is_above_trigger(before) or (after.ranges is before.ranges and event.outcome == 0))


@always(entry_cache, on=("do_cache_eviction",))
def periodic_eviction_leaves_no_expired_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After the periodic eviction, every entry was inserted or last requeued within the TTL."""
    return all(e.timestamp_ns >= after.ranges.now_ns - cfg.ttl_ns for e in entries(after))


@always(entry_cache, on=EVICTIONS)
def eviction_reports_entries_that_left(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction returns the number of evicted entries, and counts these in the metric.

    The eviction can requeue other entries, once or several times. A requeue sets the timestamp to now, clears
    `accessed` and raises `requeueCount`, and changes nothing else.
    """
    if isinstance(event.outcome, Refused):
        return True
    was, kept = by_key(before), by_key(after)
    left = len(was) - len(kept)

    def is_requeued(old: Entry, e: Entry) -> bool:
        only = old._replace(timestamp_ns=before.ranges.now_ns, accessed=False, requeue_count=e.requeue_count)
        return e == only and e.requeue_count > old.requeue_count

    if not all(e == was[key] or is_requeued(was[key], e) for key, e in kept.items()):
        return False
    return bool(event.outcome == left == after.counters.evicted_entries - before.counters.evicted_entries)


@always(entry_cache, on=REMOVALS)
def removal_removes_exactly_its_range(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A removal removes exactly the entries of its range from the topic's cache.

    The range of `clear_cache` and `remove_entry_cache` is the whole cache.
    """
    range_cache = before.topic_caches[event.arguments["cache"]]
    removed = {key for key in by_key(before) if key[0] == range_cache and _is_in_removed_range(event, key[1])}
    return by_key(after).keys() == by_key(before).keys() - removed


def _is_in_removed_range(event: Event, position: Position) -> bool:
    """Whether a removal covers a position."""
    if event.name == "invalidate_entries_before":
        return bool(FIRST_POSITION <= position < event.arguments["position"])
    # `invalidate_ledger` covers its ledger; `clear_cache` and `remove_entry_cache` cover every position.
    return event.name != "invalidate_ledger" or position.ledger == event.arguments["ledger"]


@always(entry_cache, on=("clear_all",))
def clear_all_empties_caches_of_all_topics(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`clear_all` removes exactly the entries in the caches of topics; entries of removed caches stay."""
    return by_key(after).keys() == {k for k in by_key(before) if k[0] not in before.topic_caches}


# ---- steps: outcomes and metrics --------------------------------------------------------


@always(entry_cache, on=("read", "read_one", *STORAGE_ANSWERS, *READ_COUNT_CHANGES))
def call_is_rejected_exactly_if_its_object_is_missing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A call is rejected exactly if the range, copy or storage read that it names does not exist.

    A range exists if its first entry is not after its last, and storage has all its entries. `release` and `replay`
    need a copy with the given number, an answer of storage an outstanding read with the given number. In addition,
    `answer_oddly` is rejected if `entries` is not less than the number of entries of the read.
    """
    args = event.arguments
    if event.name in READ_COUNT_CHANGES:
        return isinstance(event.outcome, Refused) is (args["copy"] not in read_counts(before))
    if event.name in STORAGE_ANSWERS:
        r = read_of(before, event)
        too_long = r is not None and event.name == "answer_oddly" and args["entries"] >= r.last - r.first + 1
        return isinstance(event.outcome, Refused) is (r is None or too_long)
    cache, ledger, first, last = asked_range(before, event, before.next_request)
    sizes = stored_sizes(cfg, cache, ledger)
    return isinstance(event.outcome, Refused) is not (0 <= first <= last < len(sizes))


@always(entry_cache, on=READ_COUNT_CHANGES)
def release_and_replay_return_the_new_read_count(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`release` returns the read count minus 1, `replay` plus 1; both return None if there is no count."""
    if isinstance(event.outcome, Refused):
        return True
    count, change = read_counts(before)[event.arguments["copy"]], 1 if event.name == "replay" else -1
    return bool(event.outcome.expected_reads == (None if count is None else count + change))


@always(entry_cache, on=("insert", *EVICTIONS))
def metrics_count_insertions_and_evictions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The metrics count one insertion for an insert that adds an entry, and one size eviction for each size pass.

    A task runs a size pass exactly if the total size is above both the trigger and the watermark. An insert and a
    periodic eviction run at most one.
    """
    was, now = before.counters, after.counters
    if event.name == "insert" and now.insertions - was.insertions != int(event.outcome is True):
        return False
    runs = int(is_above_trigger(before) and is_above_watermark(before))
    if event.name == "run_eviction_task" and before.tasks:
        return now.size_evictions - was.size_evictions == runs
    return was.size_evictions <= now.size_evictions <= was.size_evictions + 1


@always(entry_cache, on=("do_cache_eviction",))
def periodic_eviction_below_trigger_keeps_unexpired_entries(
    cfg: Config, before: State, event: Event, after: State
) -> bool:
    """The periodic eviction removes an unexpired entry only if the total size is above the trigger."""
    kept, least = by_key(after), before.ranges.now_ns - cfg.ttl_ns
    young = [k for k, e in by_key(before).items() if e.timestamp_ns >= least]
    return is_above_trigger(before) or all(k in kept for k in young)


# ---- coverage goals --------------------------------------------------------------------


@sometimes(entry_cache, given=reads_queued)
def storage_read_shared_by_two_requests(cfg: Config, s: State) -> bool:
    """Two requests wait for the same storage read."""
    return any(len(set(r.waiting)) >= 2 for r in s.reads)


@sometimes(entry_cache, given=reads_queued)
def read_joined_with_gaps_on_both_sides(cfg: Config, s: State) -> bool:
    """A request has joined a storage read of the middle of its range, and looks both ends up on its own."""
    return any(q.part.kind == "joined" and len(q.part.parts) == 3 for q in s.requests)


@sometimes(entry_cache, given=reads_queued)
def partial_cache_hit_waits_for_gaps(cfg: Config, s: State) -> bool:
    """A request holds cached entries while it waits for others from storage."""
    return any(q.part.kind == "mixed" for q in s.requests)


@sometimes(entry_cache, given=reads_queued)
def joined_read_with_cached_neighbours(cfg: Config, s: State) -> bool:
    """A request that has joined a storage read already holds other entries of its range while it waits."""
    joined = [p for q in s.requests if q.part.kind == "joined" for p in q.part.parts]
    return any(p.kind in ("mixed", "found") and held_by(p) for p in joined)


@sometimes(entry_cache, on=("complete_storage_read",))
def partial_cache_hit_is_read_again(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The storage read of some entries of a request fails, and the request reads its whole range again."""
    again = {number for number, part in awaited_parts(after) if part.read >= before.next_read}
    began = {q.number for q in before.requests if q.part.kind != "permits"}
    return not event.arguments["success"] and not again.isdisjoint(began)


# With a limiter, an answer can start queued requests, which may join reads, too.
@sometimes(entry_cache, on=STORAGE_ANSWERS, given=lambda cfg: reads_queued(cfg) and not limited(cfg))
def repeated_read_joins_outstanding_read(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When storage answers, a request reads its range again, and joins an outstanding storage read."""
    had = {r.number: len(r.waiting) for r in before.reads}
    return any(len(r.waiting) > had.get(r.number, len(r.waiting)) for r in after.reads)


@sometimes(entry_cache, on=("answer_oddly",))
def short_answer_is_delivered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A request completes with fewer entries than it requested."""
    return any(
        a.ok and len(a.entries) < last - first + 1
        for a in answered(event)
        for _, _, first, last in [asked_range(before, event, a.request)]
    )


@sometimes(entry_cache, on=STORAGE_ANSWERS)
def storage_entry_was_cached_in_the_meantime(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Storage returns an entry that was cached while the read was outstanding."""
    r = read_of(before, event)
    if r is None or not isinstance(event.outcome, Reading) or r.expected_reads <= 0:
        return False
    # The answer has all entries of the read; `entries` of them if it is short; none after a failure.
    end = r.last + 1 if event.arguments.get("success") else r.first + event.arguments.get("entries", 0)
    return any((r.range_cache, Position(r.ledger, i)) in by_key(before) for i in range(r.first, end))


@sometimes(entry_cache, given=tasks_queued)
def total_size_exceeds_maximum(cfg: Config, s: State) -> bool:
    """The total size is above the maximum while an eviction task is scheduled."""
    return s.eviction_in_progress and s.total_bytes > s.max_bytes > 0


@sometimes(entry_cache, on=("run_eviction_task",), given=tasks_queued)
def task_runs_below_trigger(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction task evicts nothing, because the total size is not above the trigger any more."""
    return event.outcome == 0 and not is_above_trigger(before)


@sometimes(entry_cache, given=reads_queued)
def removed_cache_is_filled(cfg: Config, s: State) -> bool:
    """A read that began before the removal of its topic's cache inserts entries into the removed cache."""
    return any(e.cache not in s.topic_caches for e in entries(s))


@sometimes(entry_cache)
def cache_is_disabled(cfg: Config, s: State) -> bool:
    """A topic's cache is disabled: it was created while the maximum size was 0, which is positive now."""
    return DISABLED in s.topic_caches and s.max_bytes > 0


@sometimes(entry_cache)
def cache_is_absent(cfg: Config, s: State) -> bool:
    """A topic's cache was removed and not used since."""
    return ABSENT in s.topic_caches


@sometimes(entry_cache, on=("read", "read_one"), given=limited)
def small_read_overtakes_queued_read(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read gets its permits at once, while another read waits for permits."""
    new = before.next_request
    return bool(before.limiter.waiting) and any(g.request == new for g in after.limiter.grants)


# Each entry needs at least 65 permits, so with at most 150 a read of three entries always exceeds the maximum.
@sometimes(entry_cache, on=("read",), given=lambda cfg: 0 < cfg.max_reads_in_flight_bytes <= 150)
def oversized_read_takes_all_permits(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read that needs more permits than exist gets all permits."""
    # All permits were free before, and none is free after.
    takes_all = before.limiter.free == cfg.max_reads_in_flight_bytes > 0 == after.limiter.free
    return takes_all and estimated_bytes(cfg, event) > cfg.max_reads_in_flight_bytes


@sometimes(entry_cache, on=("read", "read_one"), given=limited)
def full_permit_queue_rejects(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read fails at once because the queue for permits is full."""
    # The read fails without a storage read, so it had no permits.
    return any(not a.ok for a in answered(event)) and after.next_read == before.next_read


@sometimes(entry_cache, on=("expire_waiting_reads",), given=lambda cfg: limited(cfg) and cfg.permits_queue_size > 0)
def queued_read_times_out(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read fails because it has waited too long for permits."""
    return bool(answered(event))


@sometimes(entry_cache, on=("release",), given=lambda cfg: limited(cfg) and cfg.permits_queue_size > 0)
def released_permits_start_queued_read(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A request returns its permits when its last copy is released, and a queued read starts with them."""
    return isinstance(event.outcome, Released) and bool(event.outcome.issued)


# ---- liveness ------------------------------------------------------------------------


@eventually(entry_cache, fair=("complete_storage_read", "release"))
def every_request_completes(cfg: Config, s: State) -> bool:
    """If storage keeps answering and readers release their entries, every request completes or fails."""
    return not s.requests


@eventually(entry_cache, fair=("run_eviction_task",))
def scheduled_eviction_completes(cfg: Config, s: State) -> bool:
    """A scheduled eviction completes; then the total size is not above both trigger and watermark, or no entry is left.

    If tasks run at once, none is scheduled, and the total size is not checked. The total size can stay above the
    trigger after `set_max_cache_bytes` lowers the maximum, because this schedules no task. No scope that checks this
    property has that action.
    """
    is_small = not is_above_trigger(s) or not is_above_watermark(s)
    return not s.tasks and (is_small or not tasks_queued(cfg) or not entries(s))
