"""What the entry cache promises.

A property that some shipped version breaks says so in its last sentence.
"""

from __future__ import annotations

from invariants.properties import Event, always, eventually, once_per_state, sometimes
from model import watermark
from model.entry_cache import reads_limiter
from model.entry_cache.machine import entry_cache
from model.entry_cache.shared_reads import Part, StorageRead, all_held, awaited, overlaps
from model.entry_cache.state import ABSENT, DISABLED, Answered, Config, Delivered, Reading, Released, State, derived
from model.machine import Refused
from model.positions import EARLIEST, Position
from model.range_cache import Entry, OrphanedCopies

ANSWERS = ("complete_storage_read", "answer_oddly")
READINGS = ("read", "read_one", *ANSWERS, "release", "expire_waiting_reads")
COUNTING = ("release", "replay")
EVICTIONS = ("run_eviction_task", "do_cache_eviction")
REMOVALS = ("invalidate_entries_before", "invalidate_ledger", "clear_cache", "remove_entry_cache")

Key = tuple[int, Position]


@once_per_state
def entries(s: State) -> list[Entry]:
    """All cached entries."""
    return [e for e in s.ranges.queue if e is not None]


@once_per_state
def by_key(s: State) -> dict[Key, Entry]:
    """All cached entries by range cache and position."""
    return {(e.cache, e.position): e for e in entries(s)}


@once_per_state
def counters(s: State) -> dict[int, int | None]:
    """The counter of each copy, open or held, by its number."""
    holders: tuple[Entry | OrphanedCopies, ...] = (*entries(s), *s.ranges.orphaned_copies)
    return {copy: holder.expected_reads for holder in holders for copy in holder.copies}


@once_per_state
def groups(s: State) -> list[tuple[int, ...]]:
    """The copies that share a counter."""
    holders: tuple[Entry | OrphanedCopies, ...] = (*entries(s), *s.ranges.orphaned_copies)
    return [holder.copies for holder in holders if holder.copies]


@once_per_state
def waiting_parts(s: State) -> list[tuple[int, Part]]:
    """Each request's parts that wait for a read, by the request's number."""
    return [(q.number, part) for q in s.requests for part in awaited(q.part)]


def answered(event: Event) -> tuple[Answered, ...]:
    """The requests that a step answered."""
    return event.outcome.answered if isinstance(event.outcome, Reading | Released) else ()


def read_of(before: State, event: Event) -> StorageRead | None:
    """The outstanding read that a step answers."""
    number = event.arguments["storage_read"]
    return next((r for r in before.reads if r.number == number), None)


def is_over(s: State) -> bool:
    """The total is above the trigger."""
    return watermark.is_over_threshold(s.total_bytes, s.max_bytes)


def queued(cfg: Config) -> bool:
    """Storage answers later."""
    return cfg.storage_reads == "queued"


def limited(cfg: Config) -> bool:
    """The limiter is switched on."""
    return cfg.max_reads_in_flight_bytes > 0


def tasks_queued(cfg: Config) -> bool:
    """Eviction tasks run later."""
    return cfg.eviction_task == "queued"


# ---- of every state -----------------------------------------------------------------------------------


@always(entry_cache)
def cache_size_equals_sum_of_entry_sizes(cfg: Config, s: State) -> bool:
    """The size of a range cache is the sum of its entries' bytes as they were when they came."""
    sums = [0] * len(s.owners)
    for e in entries(s):
        sums[e.cache] += e.bytes
    return tuple(sums) == s.ranges.sizes


@always(entry_cache)
def total_equals_sum_of_cache_sizes(cfg: Config, s: State) -> bool:
    """The total is the sum of all range caches, those of removed topics included, so it is never negative."""
    return s.total_bytes == sum(s.ranges.sizes) >= 0


@always(entry_cache)
def position_is_cached_at_most_once(cfg: Config, s: State) -> bool:
    """A range cache holds at most one entry at a position, in exactly one slot."""
    return len(by_key(s)) == len(entries(s))


@always(entry_cache)
def queue_timestamps_are_nondecreasing(cfg: Config, s: State) -> bool:
    """From head to tail no entry is older than the one before it, so that a time pass may stop early."""
    times = [e.timestamp_ns for e in entries(s)]
    times.append(s.ranges.now_ns)
    return times == sorted(times)


@always(entry_cache)
def at_most_one_eviction_task(cfg: Config, s: State) -> bool:
    """There is at most one eviction task, and the mark stands exactly while there is one.

    A version whose periodic eviction takes the mark off breaks it: tasks pile up.
    """
    return s.tasks == int(s.marked)


@always(entry_cache)
def copies_are_accounted_for(cfg: Config, s: State) -> bool:
    """A copy has one counter, and the copies that are held are exactly those of the requests: none leaks."""
    numbers = [copy for group in groups(s) for copy in group]
    held = [h.copy for q in s.requests for h in q.part.held or all_held(q.part.parts)]
    return len(numbers) == len(set(numbers)) and sorted(held) == sorted([copy for copy in numbers if copy < 0])


@always(entry_cache)
def every_request_waits_for_something(cfg: Config, s: State) -> bool:
    """A request that is not answered waits for permits, or for a read that storage has not answered.

    A version in which a mixed read is never answered when storage answers short breaks it.
    """
    if not s.requests:
        return True
    waiting = {w.request for w in s.limiter.waiting} | {number for number, _ in waiting_parts(s)}
    return all(q.number in waiting for q in s.requests)


@always(entry_cache)
def who_waits_for_a_read_is_listed(cfg: Config, s: State) -> bool:
    """Every outstanding read lists those who wait for it, and is awaited by someone, for what it brings."""
    reads, parts = {r.number: r for r in s.reads}, waiting_parts(s)
    listed = sorted([(number, r.number) for r in s.reads for number in r.waiting])
    if listed != sorted([(number, part.read) for number, part in parts]) or () in [r.waiting for r in s.reads]:
        return False
    return all(reads[p.read].first <= p.first and p.last <= reads[p.read].last for _, p in parts)


@always(entry_cache)
def nothing_is_read_twice_at_a_time(cfg: Config, s: State) -> bool:
    """Outstanding reads of a ledger that can be joined do not overlap: a second reader would have joined."""
    joinable = [r for r in s.reads if r.joinable]
    if len(joinable) < 2:
        return True
    return not any(
        a.store == b.store and a.ledger == b.ledger and overlaps(a, b.first, b.last)
        for i, a in enumerate(joinable)
        for b in joinable[:i]
    )


@always(entry_cache, given=limited)
def permits_add_up(cfg: Config, s: State) -> bool:
    """The free permits and those that are granted are all there are, and none of them is negative."""
    granted = [g.permits for g in s.limiter.grants]
    return s.limiter.free + sum(granted) == cfg.max_reads_in_flight_bytes and min([s.limiter.free, *granted]) >= 0


@always(entry_cache, given=limited)
def nobody_reads_without_permits(cfg: Config, s: State) -> bool:
    """A request either waits for permits or has them, and an entry that was handed out keeps those of its read."""
    waiting = {w.request for w in s.limiter.waiting}
    granted = {g.request for g in s.limiter.grants}
    named = sorted(copy for g in s.limiter.grants for copy in g.copies)
    if named != sorted(copy for group in groups(s) for copy in group if copy > 0):
        return False
    return all((q.number in waiting) == (q.part.kind == "permits") != (q.number in granted) for q in s.requests)


@always(entry_cache, given=limited)
def who_waits_for_permits_could_not_have_them(cfg: Config, s: State) -> bool:
    """The request that has waited longest would not fit: nobody waits for permits that are free.

    A version in which the timer fails a request and hands nothing on breaks it.
    """
    rules, waiting = derived(cfg).limiter, s.limiter.waiting
    return not waiting or not reads_limiter.fits(rules, s.limiter.free, waiting[0].permits)


# ---- of every step: adding and evicting ---------------------------------------------------------------


@always(entry_cache, on=("insert",))
def an_insert_is_cached(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A new entry is cached whatever the total is; at a taken position it is rejected and leaves the old one alone."""
    home = after.homes[event.arguments["cache"]]
    key = home, event.arguments["position"]
    present = by_key(before).get(key)
    if home == DISABLED:
        return event.outcome is False and after.ranges is before.ranges
    if present is None:
        came = by_key(after).get(key)
        kept = came is not None and came.bytes == event.arguments["bytes"] and came.timestamp_ns == after.ranges.now_ns
        return event.outcome is True and (kept or not tasks_queued(cfg))
    now = by_key(after)[key]
    same = now._replace(expected_reads=None, copies=()) == present._replace(expected_reads=None, copies=())
    return event.outcome is False and same and after.total_bytes == before.total_bytes


@always(entry_cache, on=("insert",))
def the_latest_counter_stands(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry that is added again expects the reads of the latest addition, which knows the cursors of now best.

    A version that keeps the first counter breaks it.
    """
    e = by_key(after).get((after.homes[event.arguments["cache"]], event.arguments["position"]))
    expected = event.arguments["expected_reads"]
    return e is None or e.expected_reads == (expected if expected > 0 else None)


@always(entry_cache)
def eviction_begins_above_the_trigger(cfg: Config, before: State, event: Event, after: State) -> bool:
    """What makes the total grow above the trigger begins an eviction, and nothing else does."""
    begun = after.tasks > before.tasks
    if not tasks_queued(cfg):
        return not begun
    grew = after.total_bytes > before.total_bytes
    return (not begun or is_over(after)) and (not (grew and is_over(after)) or after.marked)


@always(entry_cache, given=lambda cfg: not tasks_queued(cfg))
def an_immediate_eviction_reaches_the_watermark(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Where tasks run at once, nothing that is added leaves the total above both the trigger and the watermark."""
    if after.total_bytes <= before.total_bytes or not is_over(after):
        return True
    return watermark.bytes_to_evict(after.total_bytes, after.max_bytes, after.watermark) <= 0 or not entries(after)


@always(entry_cache, on=EVICTIONS)
def an_eviction_reaches_the_watermark(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a task, or the periodic eviction, the total is not above both the trigger and the watermark."""
    over = is_over(after) and watermark.bytes_to_evict(after.total_bytes, after.max_bytes, after.watermark) > 0
    return isinstance(event.outcome, Refused) or not over or not entries(after)


@always(entry_cache, on=("run_eviction_task",))
def a_task_below_the_trigger_evicts_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A task that finds the total below the trigger again takes off its mark, and no entry."""
    if isinstance(event.outcome, Refused):
        return not before.tasks
    done = after.tasks == before.tasks - 1 and not after.marked
    return done and (is_over(before) or (after.ranges is before.ranges and event.outcome == 0))


@always(entry_cache, on=("do_cache_eviction",))
def the_periodic_eviction_leaves_nothing_old(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After the periodic eviction no entry is older than the time to live."""
    return all(e.timestamp_ns >= after.ranges.now_ns - cfg.ttl_ns for e in entries(after))


@always(entry_cache, on=EVICTIONS)
def an_eviction_says_what_left(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction reports the entries that left, the metric counts them, and the others keep bytes and counter."""
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
def a_removal_takes_what_was_named(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A removal takes exactly the entries of the topic's cache that it names, and the total with them."""
    home = before.homes[event.arguments["cache"]]
    gone = {k for k in by_key(before) if k[0] == home and _is_named(event, k[1])} if home >= 0 else set()
    return by_key(after).keys() == by_key(before).keys() - gone


def _is_named(event: Event, position: Position) -> bool:
    if event.name == "invalidate_entries_before":
        return bool(EARLIEST <= position < event.arguments["position"])
    return event.name != "invalidate_ledger" or position.ledger == event.arguments["ledger"]


@always(entry_cache, on=("clear_all",))
def clearing_all_leaves_nothing_of_the_topics(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After everything was cleared the topics' caches are empty; what removed ones were given since stays."""
    return by_key(after).keys() == {k for k in by_key(before) if k[0] not in before.homes}


# ---- of every step: reading ---------------------------------------------------------------------------


@always(entry_cache, on=READINGS)
def a_read_gets_what_it_asked_for(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An answered read has the entries of its range, in order, without gaps, and all unless storage fell short."""
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
def every_request_is_answered_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A request is answered exactly when it stops waiting, and never again."""
    if before.requests is after.requests and event.name not in READINGS:
        return True
    done = [answer.request for answer in answered(event)]
    waiting_before, waiting_after = {q.number for q in before.requests}, {q.number for q in after.requests}
    if event.name in ("read", "read_one") and isinstance(event.outcome, Reading):
        waiting_before.add(before.next_request)
    return sorted(done) == sorted(waiting_before - waiting_after) and waiting_after <= waiting_before


@always(entry_cache)
def only_delivered_releases_decrement_read_count(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A counter is what it began with, plus the replays, minus the entries that readers gave back; nothing else counts.

    A version breaks it in which leaving the cache counts as a read, or giving back what was gathered for a read that
    failed, or the cache's rejection of an entry from storage.
    """
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
        return key == (before.homes[event.arguments["cache"]], event.arguments["position"])
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
def a_failure_ends_joining(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a failed read of a ledger nobody joins the reads of it that were outstanding then."""
    r = read_of(before, event)
    if r is None or event.arguments["success"] or r.store < 0:
        return True
    old = [each for each in after.reads if each.number < before.next_read]
    return not any(each.joinable for each in old if (each.store, each.ledger) == (r.store, r.ledger))


@always(entry_cache, on=("complete_storage_read",))
def what_storage_brings_is_cached_if_reads_are_expected(cfg: Config, before: State, event: Event, after: State) -> bool:
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
def a_single_read_caches_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read of one entry, as for a replay, expects no reads and caches nothing."""
    return by_key(after).keys() <= by_key(before).keys()


@always(entry_cache, on=("complete_storage_read",))
def misses_are_counted_by_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The metrics count every entry that storage brings as a miss, with its bytes."""
    r = read_of(before, event)
    if r is None:
        return True
    stored = derived(cfg).stored[r.cache, r.ledger][r.first : r.last + 1] if event.arguments["success"] else ()
    was, now = before.counters, after.counters
    return (now.miss_entries - was.miss_entries, now.miss_bytes - was.miss_bytes) == (len(stored), sum(stored))


@always(entry_cache, on=("read", "read_one"), given=limited)
def an_idle_limiter_grants_every_read(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When nobody has permits a read gets what it wants, or all there are if it wants more."""
    idle = before.limiter.free == cfg.max_reads_in_flight_bytes
    return not idle or isinstance(event.outcome, Refused) or after.limiter.waiting == before.limiter.waiting


@always(entry_cache, given=limited)
def no_more_wait_than_may(cfg: Config, s: State) -> bool:
    """No more reads wait for permits than the setting allows."""
    return len(s.limiter.waiting) <= cfg.permits_queue_size


@always(entry_cache, given=lambda cfg: limited(cfg) and queued(cfg))
def nobody_who_waits_for_permits_fails_early(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Who waits for permits fails only when it has waited as long as the timeout."""
    failed = {answer.request for answer in answered(event) if not answer.ok}
    least = before.ranges.now_ns - cfg.permits_timeout_ns
    return all(w.since_ns <= least for w in before.limiter.waiting if w.request in failed)


# ---- what must happen now and then --------------------------------------------------------------------


@sometimes(entry_cache, given=queued)
def a_read_is_shared(cfg: Config, s: State) -> bool:
    """Two requests wait for one read of storage."""
    return any(len(set(r.waiting)) >= 2 for r in s.reads)


@sometimes(entry_cache, given=queued)
def a_read_is_joined_in_the_middle(cfg: Config, s: State) -> bool:
    """A request waits for an outstanding read, and for what was missing on its left and on its right."""
    return any(q.part.kind == "joined" and len(q.part.parts) == 3 for q in s.requests)


@sometimes(entry_cache, given=queued)
def a_mixed_read_waits(cfg: Config, s: State) -> bool:
    """A request holds entries from the cache while it waits for others from storage."""
    return any(q.part.kind == "mixed" for q in s.requests)


@sometimes(entry_cache, given=queued)
def a_joined_read_has_cached_entries(cfg: Config, s: State) -> bool:
    """What was missing beside an outstanding read is in part cached."""
    return any(p.kind in ("mixed", "found") for q in s.requests if q.part.kind == "joined" for p in q.part.parts)


@sometimes(entry_cache, on=("complete_storage_read",))
def a_mixed_read_is_read_again(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A gap's read fails, and the whole range is asked for again."""
    return isinstance(event.outcome, Reading) and not event.arguments["success"] and bool(event.outcome.issued)


@sometimes(entry_cache, on=ANSWERS, given=lambda cfg: queued(cfg) and not limited(cfg))
def a_read_again_joins(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A range that is read again joins a read that is outstanding."""
    had = {r.number: len(r.waiting) for r in before.reads}
    return any(len(r.waiting) > had.get(r.number, len(r.waiting)) for r in after.reads)


@sometimes(entry_cache, on=("answer_oddly",))
def a_short_answer_is_delivered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A request gets fewer entries than it asked for."""
    return any(
        a.ok and len(a.entries) < last - first + 1
        for a in answered(event)
        for _, _, first, last in [_asked(before, event, a.request)]
    )


@sometimes(entry_cache, on=ANSWERS)
def an_entry_from_storage_is_cached_already(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Storage brings an entry whose position was taken in the meantime."""
    r = read_of(before, event)
    return (
        r is not None
        and isinstance(event.outcome, Reading)
        and r.expected_reads > 0
        and r.store >= 0
        and any((r.store, Position(r.ledger, i)) in by_key(before) for i in range(r.first, r.last + 1))
    )


@sometimes(entry_cache, given=tasks_queued)
def the_total_is_above_the_maximum(cfg: Config, s: State) -> bool:
    """Entries were cached while an eviction task waited, beyond the maximum."""
    return s.marked and s.total_bytes > s.max_bytes > 0


@sometimes(entry_cache, on=("run_eviction_task",), given=tasks_queued)
def a_task_comes_too_late(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A task finds the total below the trigger again."""
    return event.outcome == 0 and not is_over(before)


@sometimes(entry_cache, given=queued)
def a_removed_cache_is_filled(cfg: Config, s: State) -> bool:
    """A read that began before a topic's cache was removed fills the old one."""
    return any(e.cache not in s.homes for e in entries(s))


@sometimes(entry_cache)
def a_cache_is_disabled(cfg: Config, s: State) -> bool:
    """A topic's cache is disabled while there is a maximum again."""
    return DISABLED in s.homes and s.max_bytes > 0


@sometimes(entry_cache)
def a_cache_is_absent(cfg: Config, s: State) -> bool:
    """A topic's cache was removed and not used since."""
    return ABSENT in s.homes


@sometimes(entry_cache, on=("read", "read_one"), given=limited)
def a_small_read_overtakes(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read gets its permits while another waits for some."""
    new = before.next_request
    return bool(before.limiter.waiting) and any(g.request == new for g in after.limiter.grants)


@sometimes(entry_cache, on=("read",), given=lambda cfg: 0 < cfg.max_reads_in_flight_bytes <= 150)
def a_large_read_takes_everything(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read that wants more than there is gets everything."""
    return before.limiter.free == cfg.max_reads_in_flight_bytes > 0 == after.limiter.free


@sometimes(entry_cache, on=("read", "read_one"), given=limited)
def a_full_queue_refuses(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read fails at once, for too many wait for permits."""
    return any(not a.ok for a in answered(event)) and after.next_read == before.next_read


@sometimes(entry_cache, on=("expire_waiting_reads",), given=lambda cfg: limited(cfg) and cfg.permits_queue_size > 0)
def a_read_waits_too_long(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read fails, for it waited too long for its permits."""
    return bool(answered(event))


@sometimes(entry_cache, on=("release",), given=lambda cfg: limited(cfg) and cfg.permits_queue_size > 0)
def permits_are_handed_on(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The last entry of a read is given back, and one that waited begins."""
    return isinstance(event.outcome, Released) and bool(event.outcome.issued)


# ---- what must come in the end ------------------------------------------------------------------------


@eventually(entry_cache, fair=("complete_storage_read", "release"))
def every_request_is_answered(cfg: Config, s: State) -> bool:
    """If storage answers again and again, and readers give back what they got, every request is answered."""
    return not s.requests


@eventually(entry_cache, fair=("run_eviction_task",))
def the_task_runs(cfg: Config, s: State) -> bool:
    """An eviction that was begun comes to its end, and the total below the trigger, unless nothing is left to evict."""
    return not s.tasks and (not is_over(s) or not tasks_queued(cfg) or not entries(s) or _nothing_to_free(s))


def _nothing_to_free(s: State) -> bool:
    """The watermark is above the total: an eviction would take nothing."""
    return watermark.bytes_to_evict(s.total_bytes, s.max_bytes, s.watermark) <= 0
