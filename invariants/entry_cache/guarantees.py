"""Guarantees of the entry cache."""

from __future__ import annotations

import math

from invariants.entry_cache.names import canonical_form_renames_only
from invariants.entry_cache.permits import (
    read_asks_for_its_estimated_size,
    timer_fails_exactly_the_overdue_requests_in_front,
)
from invariants.entry_cache.settings import time_and_settings_change_only_by_their_actions
from invariants.properties import Event, always, eventually, once_per_state, sometimes
from model.entry_cache.machine import entry_cache
from model.entry_cache.shared_reads import Part, StorageRead, all_held, awaited
from model.entry_cache.state import ABSENT, DISABLED, Answered, Config, Delivered, Reading, Released, State
from model.machine import Refused
from model.positions import FIRST_POSITION, Position
from model.range_cache import Entry, OrphanedCopies

__all__ = [
    "canonical_form_renames_only",
    "read_asks_for_its_estimated_size",
    "time_and_settings_change_only_by_their_actions",
    "timer_fails_exactly_the_overdue_requests_in_front",
]

ANSWERS = ("complete_storage_read", "answer_oddly")
READINGS = ("read", "read_one", *ANSWERS, "release", "expire_waiting_reads")
COUNTING = ("release", "replay")
EVICTIONS = ("run_eviction_task", "do_cache_eviction")
REMOVALS = ("invalidate_entries_before", "invalidate_ledger", "clear_cache", "remove_entry_cache")

Key = tuple[int, Position]


@once_per_state
def entries(s: State) -> list[Entry]:
    """Returns all cached entries."""
    return [e for e in s.ranges.queue if e is not None]


@once_per_state
def by_key(s: State) -> dict[Key, Entry]:
    """Returns all cached entries by range cache and position."""
    return {(e.cache, e.position): e for e in entries(s)}


@once_per_state
def counters(s: State) -> dict[int, int | None]:
    """Returns the read count of each copy, open or held."""
    holders: tuple[Entry | OrphanedCopies, ...] = (*entries(s), *s.ranges.orphaned_copies)
    return {copy: holder.expected_reads for holder in holders for copy in holder.copies}


@once_per_state
def groups(s: State) -> list[tuple[int, ...]]:
    """Returns the groups of copies that share a read count."""
    holders: tuple[Entry | OrphanedCopies, ...] = (*entries(s), *s.ranges.orphaned_copies)
    return [holder.copies for holder in holders if holder.copies]


@once_per_state
def awaited_parts(s: State) -> list[tuple[int, Part]]:
    """Returns the parts of requests that wait for a storage read, with the request's number."""
    return [(q.number, part) for q in s.requests for part in awaited(q.part)]


def answered(event: Event) -> tuple[Answered, ...]:
    """Returns the requests that a step completed or failed."""
    return event.outcome.answered if isinstance(event.outcome, Reading | Released) else ()


def read_of(before: State, event: Event) -> StorageRead | None:
    """Returns the outstanding read that a step answers."""
    number = event.arguments["storage_read"]
    return next((r for r in before.reads if r.number == number), None)


def is_above_trigger(s: State) -> bool:
    """Whether the total size is above the eviction trigger, 98 % of the maximum."""
    return s.total_bytes > math.floor(0.98 * s.max_bytes)


def is_above_watermark(s: State) -> bool:
    """Whether the total size is above the watermark, so that a size pass has bytes to free."""
    return s.total_bytes > math.floor(s.watermark * s.max_bytes)


def queued(cfg: Config) -> bool:
    """Whether storage answers in a later step."""
    return cfg.storage_reads == "queued"


def limited(cfg: Config) -> bool:
    """Whether the limiter is switched on."""
    return cfg.max_reads_in_flight_bytes > 0


def tasks_queued(cfg: Config) -> bool:
    """Whether eviction tasks run in a later step."""
    return cfg.eviction_task == "queued"


# ---- of every state -----------------------------------------------------------------------------------


@always(entry_cache)
def cache_size_equals_sum_of_entry_sizes(cfg: Config, s: State) -> bool:
    """The size of a range cache is the sum of the sizes of its entries at insertion."""
    sums = [0] * len(s.owners)
    for e in entries(s):
        sums[e.cache] += e.bytes
    return tuple(sums) == s.ranges.sizes


@always(entry_cache)
def total_equals_sum_of_cache_sizes(cfg: Config, s: State) -> bool:
    """The total size is the sum of the sizes of all range caches, including those of removed topics; it is never
    negative.
    """
    return s.total_bytes == sum(s.ranges.sizes) >= 0


@always(entry_cache)
def position_is_cached_at_most_once(cfg: Config, s: State) -> bool:
    """A range cache holds at most one entry for a position, in exactly one wrapper."""
    return len(by_key(s)) == len(entries(s))


@always(entry_cache)
def queue_timestamps_are_nondecreasing(cfg: Config, s: State) -> bool:
    """Timestamps do not decrease from head to tail of the removal queue, so a time pass may stop early."""
    times = [e.timestamp_ns for e in entries(s)]
    times.append(s.ranges.now_ns)
    return times == sorted(times)


@always(entry_cache)
def at_most_one_eviction_task(cfg: Config, s: State) -> bool:
    """At most one eviction task is scheduled, and `evictionInProgress` is set exactly while one is."""
    return s.tasks == int(s.marked)


@always(entry_cache)
def held_copies_belong_to_pending_requests(cfg: Config, s: State) -> bool:
    """Every copy has one read count, and the held copies are exactly those of pending requests: none leaks."""
    numbers = [copy for group in groups(s) for copy in group]
    held = [h.copy for q in s.requests for h in q.part.held or all_held(q.part.parts)]
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
    """Every outstanding read lists the requests that wait for it, and covers what each of them needs from it."""
    reads, parts = {r.number: r for r in s.reads}, awaited_parts(s)
    listed = sorted([(number, r.number) for r in s.reads for number in r.waiting])
    if listed != sorted([(number, part.read) for number, part in parts]) or () in [r.waiting for r in s.reads]:
        return False
    return all(reads[p.read].first <= p.first and p.last <= reads[p.read].last for _, p in parts)


@always(entry_cache)
def joinable_reads_do_not_overlap(cfg: Config, s: State) -> bool:
    """Joinable outstanding reads of a ledger do not overlap: no entry is read twice at the same time."""
    joinable = [r for r in s.reads if r.joinable]
    if len(joinable) < 2:
        return True
    return not any(
        a.store == b.store and a.ledger == b.ledger and max(a.first, b.first) <= min(a.last, b.last)
        for i, a in enumerate(joinable)
        for b in joinable[:i]
    )


@always(entry_cache)
def free_and_granted_permits_equal_maximum(cfg: Config, s: State) -> bool:
    """Free and granted permits add up to the maximum, and none is negative; without a maximum none is granted."""
    granted = [g.permits for g in s.limiter.grants]
    if not limited(cfg):
        return (s.limiter.free, granted, s.limiter.waiting) == (0, [], ())
    return s.limiter.free + sum(granted) == cfg.max_reads_in_flight_bytes and min([s.limiter.free, *granted]) >= 0


@always(entry_cache, given=limited)
def request_reads_only_with_permits(cfg: Config, s: State) -> bool:
    """A request either waits for permits or holds them; delivered entries keep them until the last one is released."""
    waiting = {w.request for w in s.limiter.waiting}
    granted = {g.request for g in s.limiter.grants}
    named = sorted(copy for g in s.limiter.grants for copy in g.copies)
    if named != sorted(copy for group in groups(s) for copy in group if copy > 0):
        return False
    pending = {q.number for q in s.requests}
    if not all(g.copies or g.request in pending for g in s.limiter.grants):
        return False
    return all((q.number in waiting) == (q.part.kind == "permits") != (q.number in granted) for q in s.requests)


@always(entry_cache, given=limited)
def first_queued_request_does_not_fit(cfg: Config, s: State) -> bool:
    """The first queued request does not fit: no request waits for permits that are free."""
    if not s.limiter.waiting:
        return True
    wanted = min(s.limiter.waiting[0].permits, cfg.max_reads_in_flight_bytes)  # a larger request gets all permits
    return s.limiter.free < wanted


# ---- of every step: adding and evicting ---------------------------------------------------------------


@always(entry_cache, on=("insert",))
def absent_entry_is_cached_present_entry_is_kept(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`insert` caches an absent entry whatever the total size is.

    A present entry is kept, except for its read count.
    """
    store = after.topic_caches[event.arguments["cache"]]
    key = store, event.arguments["position"]
    present = by_key(before).get(key)
    if store == DISABLED:
        return event.outcome is False and after.ranges is before.ranges
    if present is None:
        came = by_key(after).get(key)
        kept = came is not None and came.bytes == event.arguments["bytes"] and came.timestamp_ns == after.ranges.now_ns
        return event.outcome is True and (kept or not tasks_queued(cfg))
    now = by_key(after)[key]
    same = now._replace(expected_reads=None, copies=()) == present._replace(expected_reads=None, copies=())
    return event.outcome is False and same and after.total_bytes == before.total_bytes


@always(entry_cache, on=("insert",))
def latest_insert_sets_expected_read_count(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a duplicate insert, the entry has the expected read count of the latest insert."""
    e = by_key(after).get((after.topic_caches[event.arguments["cache"]], event.arguments["position"]))
    expected = event.arguments["expected_reads"]
    return e is None or e.expected_reads == (expected if expected > 0 else None)


@always(entry_cache)
def eviction_is_scheduled_exactly_above_trigger(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A step that raises the total size above the trigger schedules an eviction, and no other step does."""
    begun = after.tasks > before.tasks
    if not tasks_queued(cfg):
        return not begun
    grew = after.total_bytes > before.total_bytes
    return (not begun or is_above_trigger(after)) and (not (grew and is_above_trigger(after)) or after.marked)


@always(entry_cache, given=lambda cfg: not tasks_queued(cfg))
def immediate_eviction_reaches_watermark(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Where tasks run at once, no insert leaves the total size above both the trigger and the watermark."""
    if after.total_bytes <= before.total_bytes or not is_above_trigger(after):
        return True
    return not is_above_watermark(after) or not entries(after)


@always(entry_cache, on=EVICTIONS)
def eviction_reaches_watermark(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a task or the periodic eviction, the total size is not above both the trigger and the watermark."""
    over = is_above_trigger(after) and is_above_watermark(after)
    return isinstance(event.outcome, Refused) or not over or not entries(after)


@always(entry_cache, on=("run_eviction_task",))
def task_below_trigger_evicts_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A task that finds the total size below the trigger clears `evictionInProgress` and evicts nothing."""
    if isinstance(event.outcome, Refused):
        return not before.tasks
    done = after.tasks == before.tasks - 1 and not after.marked
    return done and (is_above_trigger(before) or (after.ranges is before.ranges and event.outcome == 0))


@always(entry_cache, on=("do_cache_eviction",))
def periodic_eviction_leaves_no_expired_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After the periodic eviction, no entry is older than the time to live."""
    return all(e.timestamp_ns >= after.ranges.now_ns - cfg.ttl_ns for e in entries(after))


@always(entry_cache, on=EVICTIONS)
def eviction_reports_entries_that_left(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction returns the number of entries that left, counts them in the metric, and changes no other entry."""
    if isinstance(event.outcome, Refused):
        return True
    was, kept = by_key(before), by_key(after)
    left = len(was) - len(kept)
    same = all(
        (e.bytes, e.expected_reads, e.copies) == (was[k].bytes, was[k].expected_reads, was[k].copies)
        for k, e in kept.items()
    )
    return same and event.outcome == left == after.counters.evicted_entries - before.counters.evicted_entries


@always(entry_cache, on=REMOVALS)
def removal_removes_exactly_its_range(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A removal removes exactly the entries of the topic's cache in its range, and subtracts them from the total."""
    store = before.topic_caches[event.arguments["cache"]]
    gone = {k for k in by_key(before) if k[0] == store and _is_named(event, k[1])} if store >= 0 else set()
    return by_key(after).keys() == by_key(before).keys() - gone


def _is_named(event: Event, position: Position) -> bool:
    if event.name == "invalidate_entries_before":
        return bool(FIRST_POSITION <= position < event.arguments["position"])
    return event.name != "invalidate_ledger" or position.ledger == event.arguments["ledger"]


@always(entry_cache, on=("clear_all",))
def clear_all_empties_caches_of_all_topics(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After `clear_all` the caches of all topics are empty; entries of removed caches stay."""
    return by_key(after).keys() == {k for k in by_key(before) if k[0] not in before.topic_caches}


# ---- of every step: reading ---------------------------------------------------------------------------


@always(entry_cache, on=ANSWERS)
def answer_caches_only_requested_entries(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A storage answer caches only entries of the range that was read."""
    added = [position for _, position in by_key(after).keys() - by_key(before).keys()]
    ranges_read = [(r.ledger, r.first, r.last) for r in before.reads if r.number == event.arguments["storage_read"]]
    return all(p.ledger == ledger and first <= p.entry <= last for p in added for ledger, first, last in ranges_read)


@always(entry_cache, on=READINGS)
def read_returns_requested_range_in_order(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A completed read has the entries of its range in order, without gaps, and all of them unless storage returned too
    few.
    """
    for answer in answered(event):
        _, ledger, first, last = _asked(before, event, answer.request)
        if [e.position for e in answer.entries] != [Position(ledger, first + i) for i in range(len(answer.entries))]:
            return False
        if answer.ok and len(answer.entries) != last - first + 1 and event.name != "answer_oddly":
            return False
        if not answer.ok and answer.entries:
            return False
    return True


def _asked(before: State, event: Event, number: int) -> tuple[int, int, int, int]:
    """Cache, ledger, and first and last entry of a request."""
    for q in before.requests:
        if q.number == number:
            return q.cache, q.ledger, q.part.first, q.part.last
    asked = event.arguments
    if event.name == "read_one":
        return asked["cache"], asked["position"].ledger, asked["position"].entry, asked["position"].entry
    return asked["cache"], asked["ledger"], asked["first"], asked["last"]


@always(entry_cache)
def request_completes_exactly_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A request completes or fails exactly when it stops being pending, and never again."""
    if before.requests is after.requests and event.name not in READINGS:
        return True
    done = [answer.request for answer in answered(event)]
    waiting_before, waiting_after = {q.number for q in before.requests}, {q.number for q in after.requests}
    if event.name in ("read", "read_one") and isinstance(event.outcome, Reading):
        waiting_before.add(before.next_request)
    return sorted(done) == sorted(waiting_before - waiting_after) and waiting_after <= waiting_before


@always(entry_cache)
def only_delivered_releases_decrement_read_count(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read count is its initial value plus replays minus releases of delivered entries; nothing else changes it."""
    if after.ranges is before.ranges:
        return True
    change, copies = _counter_change(before, event)
    now_of, was_of = counters(after), counters(before)
    for copy, count in was_of.items():
        expected = count if count is None or copy not in copies else count + change
        if now_of.get(copy, expected) != expected:
            return False
    kept = by_key(after)
    for key, e in by_key(before).items():
        now = kept.get(key)
        if now is not None and now is not e and not _may_have_new_counter(before, event, key, now):
            count = e.expected_reads
            if now.expected_reads != (count if count is None or not set(e.copies) & set(copies) else count + change):
                return False
    return all(_is_honest(before, event, answer.request, d) for answer in answered(event) for d in answer.entries)


def _counter_change(before: State, event: Event) -> tuple[int, tuple[int, ...]]:
    """By how much an event changes a counter, and the copies that share it."""
    if event.name not in COUNTING:
        return 0, ()
    sharing = [group for group in groups(before) if event.arguments["copy"] in group]
    return (1 if event.name == "replay" else -1), sharing[0] if sharing else ()


def _may_have_new_counter(before: State, event: Event, key: Key, now: Entry) -> bool:
    """The entry came again in this step: added, or from storage, with the counter that it has now."""
    if event.name == "insert":
        return key == (before.topic_caches[event.arguments["cache"]], event.arguments["position"])
    return now.expected_reads in _fresh(before, event) and now.expected_reads is not None


def _fresh(before: State, event: Event) -> set[int | None]:
    """The counters with which entries may come from storage in this step."""
    asked = {q.expected_reads for q in before.requests} | {r.expected_reads for r in before.reads}
    if event.name == "read":
        asked.add(event.arguments["expected_reads"])
    return {None} | {count for count in asked if count > 0}


def _is_honest(before: State, event: Event, request: int, d: Delivered) -> bool:
    """The entry's counter is one that it had before, or one with which it comes from storage."""
    cache, ledger, _, _ = _asked(before, event, request)
    known: set[int | None] = {e.expected_reads for e in entries(before) if e.position == d.position}
    for q in before.requests:
        if (q.cache, q.ledger) == (cache, ledger):
            known |= {counters(before)[h.copy] for h in all_held((q.part,)) if h.entry == d.position.entry}
    change, copies = _counter_change(before, event)
    known |= {count + change for copy, count in counters(before).items() if copy in copies and count is not None}
    return d.expected_reads in known | _fresh(before, event)


@always(entry_cache, on=("complete_storage_read",))
def failed_ledger_reads_are_not_joined(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a failed read of a ledger, the reads of the ledger that were outstanding then are not joined."""
    r = read_of(before, event)
    if r is None or event.arguments["success"] or r.store < 0:
        return True
    old = [each for each in after.reads if each.number < before.next_read]
    return not any(each.joinable for each in old if (each.store, each.ledger) == (r.store, r.ledger))


@always(entry_cache, on=("complete_storage_read",))
def storage_entries_are_cached_iff_reads_are_expected(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Entries from storage are cached exactly if reads of them are expected."""
    r = read_of(before, event)
    if r is None or not event.arguments["success"]:
        return True
    brought = {(r.store, Position(r.ledger, i)) for i in range(r.first, r.last + 1)}
    new = by_key(after).keys() - by_key(before).keys()
    if r.expected_reads <= 0 or r.store < 0:
        return not new
    return new <= brought and (not tasks_queued(cfg) or brought <= by_key(after).keys())


@always(entry_cache, on=("read_one",))
def single_read_caches_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read of one entry, as for a replay, caches nothing."""
    return by_key(after).keys() <= by_key(before).keys()


@always(entry_cache, on=ANSWERS)
def cache_misses_count_entries_and_bytes(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The metrics count every requested entry from storage as a cache miss, with its size."""
    r = read_of(before, event)
    if r is None or isinstance(event.outcome, Refused):
        return True
    sizes = next(each.entry_bytes for each in cfg.stored if (each.cache, each.ledger) == (r.cache, r.ledger))
    came = r.last - r.first + 1 if event.arguments.get("success") else event.arguments.get("entries", 0)
    stored = sizes[r.first : r.first + came]
    was, now = before.counters, after.counters
    return (now.miss_entries - was.miss_entries, now.miss_bytes - was.miss_bytes) == (len(stored), sum(stored))


@always(entry_cache, on=("read", "read_one"), given=limited)
def idle_limiter_grants_every_read(cfg: Config, before: State, event: Event, after: State) -> bool:
    """If all permits are free, a read is granted its permits, or all permits if it exceeds the maximum."""
    idle = before.limiter.free == cfg.max_reads_in_flight_bytes
    return not idle or isinstance(event.outcome, Refused) or after.limiter.waiting == before.limiter.waiting


@always(entry_cache, given=limited)
def permit_queue_is_bounded(cfg: Config, s: State) -> bool:
    """At most `permits_queue_size` requests wait for permits."""
    return len(s.limiter.waiting) <= cfg.permits_queue_size


@always(entry_cache, given=lambda cfg: limited(cfg) and queued(cfg))
def queued_request_fails_only_after_timeout(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A queued request fails only after it has waited as long as the timeout."""
    failed = {answer.request for answer in answered(event) if not answer.ok}
    least = before.ranges.now_ns - cfg.permits_timeout_ns
    return all(w.since_ns <= least for w in before.limiter.waiting if w.request in failed)


# ---- of every step: outcomes, metrics, settings --------------------------------------------------------


@always(entry_cache, on=("read", "read_one", *ANSWERS, *COUNTING))
def call_is_rejected_exactly_if_its_object_is_missing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read is rejected exactly if storage lacks an entry of its range, other calls if nothing has their number."""
    asked = event.arguments
    if event.name in COUNTING:
        return isinstance(event.outcome, Refused) is (asked["copy"] not in counters(before))
    if event.name in ANSWERS:
        r = read_of(before, event)
        too_long = r is not None and event.name == "answer_oddly" and asked["entries"] >= r.last - r.first + 1
        return isinstance(event.outcome, Refused) is (r is None or too_long)
    cache, ledger, first, last = _asked(before, event, before.next_request)
    sizes = next((each.entry_bytes for each in cfg.stored if (each.cache, each.ledger) == (cache, ledger)), ())
    return isinstance(event.outcome, Refused) is not (0 <= first <= last < len(sizes))


@always(entry_cache, on=COUNTING)
def release_and_replay_return_the_new_read_count(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`release` returns the read count less one, `replay` plus one, and neither returns one without a handler."""
    if isinstance(event.outcome, Refused):
        return True
    count, change = counters(before)[event.arguments["copy"]], 1 if event.name == "replay" else -1
    return bool(event.outcome.expected_reads == (None if count is None else count + change))


@always(entry_cache, on=("read", "read_one"))
def cache_hits_count_entries_and_bytes(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read that does not wait for permits counts the cached entries of its range as cache hits, with their sizes."""
    cache, ledger, first, last = _asked(before, event, before.next_request)
    store = before.topic_caches[cache]
    wanted = [e for e in entries(before) if e.cache == store and e.position.ledger == ledger]
    found = [e.bytes for e in wanted if first <= e.position.entry <= last]
    waits = after.limiter.waiting != before.limiter.waiting
    is_turned_away = after.next_read == before.next_read and any(not a.ok for a in answered(event))
    if isinstance(event.outcome, Refused) or waits or is_turned_away:
        found = []
    was, now = before.counters, after.counters
    return (now.hit_entries - was.hit_entries, now.hit_bytes - was.hit_bytes) == (len(found), sum(found))


@always(entry_cache, on=("insert", *EVICTIONS))
def metrics_count_insertions_and_evictions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The metrics count each added entry, and each size pass of a task: exactly if it finds the total too large."""
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


@always(entry_cache, on=(*REMOVALS, "clear_all"))
def reads_of_removed_entries_are_not_joined(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a ledger or a cache was removed, its outstanding reads are not joined; other reads stay as they are."""
    store = before.topic_caches[event.arguments["cache"]] if "cache" in event.arguments else None

    def is_removed(r: StorageRead) -> bool:
        if event.name in ("invalidate_entries_before", "invalidate_ledger"):
            return event.name == "invalidate_ledger" and (r.store, r.ledger) == (store, event.arguments["ledger"])
        return r.store in before.topic_caches if store is None else r.store == store

    return after.reads == tuple([r._replace(joinable=r.joinable and not is_removed(r)) for r in before.reads])


# ---- what must happen now and then --------------------------------------------------------------------


@sometimes(entry_cache, given=queued)
def storage_read_shared_by_two_requests(cfg: Config, s: State) -> bool:
    """Two requests wait for one storage read."""
    return any(len(set(r.waiting)) >= 2 for r in s.reads)


@sometimes(entry_cache, given=queued)
def read_joined_with_gaps_on_both_sides(cfg: Config, s: State) -> bool:
    """A request waits for an outstanding read, and for entries on both sides of it."""
    return any(q.part.kind == "joined" and len(q.part.parts) == 3 for q in s.requests)


@sometimes(entry_cache, given=queued)
def partial_cache_hit_waits_for_gaps(cfg: Config, s: State) -> bool:
    """A request holds cached entries while it waits for others from storage."""
    return any(q.part.kind == "mixed" for q in s.requests)


@sometimes(entry_cache, given=queued)
def joined_read_with_cached_neighbours(cfg: Config, s: State) -> bool:
    """Entries beside a joined read are cached in part."""
    return any(p.kind in ("mixed", "found") for q in s.requests if q.part.kind == "joined" for p in q.part.parts)


@sometimes(entry_cache, on=("complete_storage_read",))
def partial_cache_hit_is_read_again(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The read of a gap fails, and the whole range is requested again."""
    return isinstance(event.outcome, Reading) and not event.arguments["success"] and bool(event.outcome.issued)


@sometimes(entry_cache, on=ANSWERS, given=lambda cfg: queued(cfg) and not limited(cfg))
def repeated_read_joins_outstanding_read(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A range that is read again joins an outstanding read."""
    had = {r.number: len(r.waiting) for r in before.reads}
    return any(len(r.waiting) > had.get(r.number, len(r.waiting)) for r in after.reads)


@sometimes(entry_cache, on=("answer_oddly",))
def short_answer_is_delivered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A request completes with fewer entries than it requested."""
    return any(
        a.ok and len(a.entries) < last - first + 1
        for a in answered(event)
        for _, _, first, last in [_asked(before, event, a.request)]
    )


@sometimes(entry_cache, on=ANSWERS)
def storage_entry_was_cached_in_the_meantime(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Storage returns an entry whose position was cached in the meantime."""
    r = read_of(before, event)
    return (
        r is not None
        and isinstance(event.outcome, Reading)
        and r.expected_reads > 0
        and r.store >= 0
        and any((r.store, Position(r.ledger, i)) in by_key(before) for i in range(r.first, r.last + 1))
    )


@sometimes(entry_cache, given=tasks_queued)
def total_size_exceeds_maximum(cfg: Config, s: State) -> bool:
    """Entries are cached beyond the maximum while an eviction task is scheduled."""
    return s.marked and s.total_bytes > s.max_bytes > 0


@sometimes(entry_cache, on=("run_eviction_task",), given=tasks_queued)
def task_runs_below_trigger(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A task finds the total size below the trigger."""
    return event.outcome == 0 and not is_above_trigger(before)


@sometimes(entry_cache, given=queued)
def removed_cache_is_filled(cfg: Config, s: State) -> bool:
    """A read that started before the removal of a topic's cache fills the old one."""
    return any(e.cache not in s.topic_caches for e in entries(s))


@sometimes(entry_cache)
def cache_is_disabled(cfg: Config, s: State) -> bool:
    """A topic's cache is disabled although the maximum is positive again."""
    return DISABLED in s.topic_caches and s.max_bytes > 0


@sometimes(entry_cache)
def cache_is_absent(cfg: Config, s: State) -> bool:
    """A topic's cache was removed and not used since."""
    return ABSENT in s.topic_caches


@sometimes(entry_cache, on=("read", "read_one"), given=limited)
def small_read_overtakes_queued_read(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read is granted permits while another waits."""
    new = before.next_request
    return bool(before.limiter.waiting) and any(g.request == new for g in after.limiter.grants)


@sometimes(entry_cache, on=("read",), given=lambda cfg: 0 < cfg.max_reads_in_flight_bytes <= 150)
def oversized_read_takes_all_permits(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read that exceeds the maximum is granted all permits."""
    return before.limiter.free == cfg.max_reads_in_flight_bytes > 0 == after.limiter.free


@sometimes(entry_cache, on=("read", "read_one"), given=limited)
def full_permit_queue_rejects(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read fails at once because the queue for permits is full."""
    return any(not a.ok for a in answered(event)) and after.next_read == before.next_read


@sometimes(entry_cache, on=("expire_waiting_reads",), given=lambda cfg: limited(cfg) and cfg.permits_queue_size > 0)
def queued_read_times_out(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read fails because it has waited too long for permits."""
    return bool(answered(event))


@sometimes(entry_cache, on=("release",), given=lambda cfg: limited(cfg) and cfg.permits_queue_size > 0)
def released_permits_start_queued_read(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The release of the last entry of a read starts a queued one."""
    return isinstance(event.outcome, Released) and bool(event.outcome.issued)


# ---- what must come in the end ------------------------------------------------------------------------


@eventually(entry_cache, fair=("complete_storage_read", "release"))
def every_request_completes(cfg: Config, s: State) -> bool:
    """If storage keeps answering and readers release their entries, every request completes or fails."""
    return not s.requests


@eventually(entry_cache, fair=("run_eviction_task",))
def scheduled_eviction_completes(cfg: Config, s: State) -> bool:
    """A scheduled eviction completes, with the total size below the trigger unless nothing can be evicted."""
    return not s.tasks and (not is_above_trigger(s) or not tasks_queued(cfg) or not entries(s) or _nothing_to_free(s))


def _nothing_to_free(s: State) -> bool:
    """The watermark is above the total: an eviction would take nothing."""
    return not is_above_watermark(s)
