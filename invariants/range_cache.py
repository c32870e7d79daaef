"""What the range caches promise.

A property that some shipped version or proposal breaks says so in its last sentence.
"""

from __future__ import annotations

from invariants.properties import Event, always, eventually, once_per_state, sometimes
from model import watermark
from model.machine import Refused
from model.range_cache import (
    NOTHING,
    Config,
    Count,
    Entry,
    OrphanedCopies,
    State,
    has_expected_reads,
    initial_count,
    range_cache,
    should_requeue,
)

PASSES = ("time_pass", "size_pass", "evict_to_watermark")
BY_POSITION = ("remove_range", "invalidate_ledger", "clear")
READINGS = ("get", "get_range")
COUNTING = ("release", "replay", "mark_read")

Key = tuple[int, tuple[int, int]]


@once_per_state
def entries(s: State) -> list[Entry]:
    """All cached entries."""
    return [e for e in s.queue + s.stash if e is not None]


@once_per_state
def by_key(s: State) -> dict[Key, Entry]:
    """All cached entries by cache and position."""
    return {(e.cache, e.position): e for e in entries(s)}


@once_per_state
def counters(s: State) -> dict[int, int | None]:
    """The counter of each open copy, by the copy's number."""
    shared = {}
    holders: tuple[Entry | OrphanedCopies, ...] = (*entries(s), *s.orphaned_copies)
    for holder in holders:
        for copy in holder.copies:
            shared[copy] = holder.expected_reads
    return shared


def untouched(before: State, after: State) -> bool:
    """No slot, entry or copy is another than before: nothing to look at for most properties of steps."""
    return (
        after.queue is before.queue and after.orphaned_copies is before.orphaned_copies and after.stash is before.stash
    )


def ordinary_threshold(before: State, event: Event) -> bool:
    """A time pass whose threshold is not in the future, as the broker's own passes are."""
    return event.name == "time_pass" and event.arguments["threshold_ns"] <= before.now_ns


# ---- of every state -----------------------------------------------------------------------------------


@always(range_cache)
def sizes_are_sums(cfg: Config, s: State) -> bool:
    """The size of a cache is the sum of its entries' bytes as they were at insertion.

    A version that keeps the bytes of an entry whose value was released elsewhere breaks it.
    """
    sums = [0] * cfg.caches
    for e in entries(s):
        sums[e.cache] += e.bytes
    return tuple(sums) == s.sizes


@always(range_cache)
def one_entry_per_position(cfg: Config, s: State) -> bool:
    """A cache holds at most one entry at a position, in exactly one slot."""
    return len(by_key(s)) == len(entries(s))


@always(range_cache)
def queue_is_in_order_of_time(cfg: Config, s: State) -> bool:
    """From head to tail no entry is older than the one before it, so that a time pass may stop early."""
    times = [e.timestamp_ns for e in s.queue if e is not None]
    times.append(s.now_ns)
    return times == sorted(times)


@always(range_cache)
def a_copy_has_one_counter(cfg: Config, s: State) -> bool:
    """An open copy shares exactly one counter, with its entry or with the other copies of it."""
    copies = [c for e in entries(s) for c in e.copies] + [c for g in s.orphaned_copies for c in g.copies]
    return len(copies) == len(counters(s)) and (not copies or max(copies) < s.next_copy)


# ---- of every step ------------------------------------------------------------------------------------


@always(range_cache, on=(*PASSES, *BY_POSITION))
def removal_counts_an_entry_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A removal reports exactly the entries and bytes that left the caches in it."""
    if isinstance(event.outcome, Refused):
        return True
    kept = by_key(after)
    gone = [e for key, e in by_key(before).items() if key not in kept and not e.released]
    reported = event.outcome
    overreleased = [e for key, e in by_key(before).items() if key not in kept and e.released]
    if overreleased and cfg.released_value_stays_counted:
        return (reported.entries, reported.bytes) == (len(gone), sum(e.bytes for e in gone))
    gone += overreleased
    return (reported.entries, reported.bytes) == (len(gone), sum(e.bytes for e in gone))


@always(range_cache)
def a_copy_stays_open_until_released(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A copy, once given out, stays until its own release, whatever becomes of its entry."""
    if not counters(before):
        return True
    released = event.arguments["copy"] if event.name == "release" else None
    still_open = counters(after)
    for copy in counters(before):
        if copy not in still_open and copy != released:
            return False
    return released not in still_open


@always(range_cache)
def only_delivery_lowers_a_counter(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A counter is its initial value plus the replays minus the deliveries: nothing else changes it.

    A version in which leaving the cache, or giving back an undelivered copy, counts as a read breaks it.
    """
    if untouched(before, after) and event.name not in COUNTING:
        return True
    change, copies, key = _counter_change(before, event)
    now_of = counters(after)
    for copy, count in counters(before).items():
        expected = count if count is None or copy not in copies else count + change
        if now_of.get(copy, expected) != expected:
            return False
    given_anew = _put_key(event) if event.name in ("put", "put_mismatched") else None
    kept = by_key(after)
    for each, e in by_key(before).items():
        now = kept.get(each)
        if now is not None and now is not e and each != given_anew:
            count = e.expected_reads
            if now.expected_reads != (count if count is None or each != key else count + change):
                return False
    return True


def _counter_change(before: State, event: Event) -> tuple[int, tuple[int, ...], Key | None]:
    """By how much an event changes a counter, the open copies that share it, and their entry if it is cached."""
    if event.name == "mark_read":
        e = by_key(before).get(_put_key(event))
        return (-1, e.copies, _put_key(event)) if e else (0, (), None)
    if event.name not in COUNTING:
        return 0, (), None
    change = 1 if event.name == "replay" else -int(event.arguments["delivered"])
    for key, e in by_key(before).items():
        if event.arguments["copy"] in e.copies:
            return change, e.copies, key
    sharing = [g.copies for g in before.orphaned_copies if event.arguments["copy"] in g.copies]
    return change, sharing[0] if sharing else (), None


def _put_key(event: Event) -> Key:
    return event.arguments["cache"], event.arguments["position"]


@always(range_cache, on=("put",))
def duplicate_put_leaves_the_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A put at a cached position reports that and changes nothing of the entry but its counter."""
    key = _put_key(event)
    present = by_key(before).get(key)
    if present is None:
        return event.outcome is True and key in by_key(after) and len(after.queue) == len(before.queue) + 1
    now = by_key(after)[key]
    same = now._replace(expected_reads=None, copies=()) == present._replace(expected_reads=None, copies=())
    return event.outcome is False and same and after.sizes == before.sizes and len(after.queue) == len(before.queue)


@always(range_cache, on=("put",))
def latest_put_sets_the_counter(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a put the entry expects the reads of that put, for it knows the cursors of now best.

    A version that keeps the first counter breaks it.
    """
    e = by_key(after)[_put_key(event)]
    return e.released or e.expected_reads == initial_count(cfg, event.arguments["expected_reads"])


@always(range_cache, on=("get_range", "remove_range"))
def an_inverted_range_is_empty(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A range whose first position is after its last holds nothing; asking for it is no error.

    A version that gives an error breaks it.
    """
    if event.arguments["first"] <= event.arguments["last"]:
        return True
    return after == before and event.outcome in ((), NOTHING)


@always(range_cache, on=READINGS)
def a_lookup_gives_what_was_asked(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup gives the live entries at the asked positions, in order, as they are, and nothing else."""
    if isinstance(event.outcome, Refused):
        return True
    asked = event.arguments
    first, last = (asked["position"],) * 2 if event.name == "get" else (asked["first"], asked["last"])
    held = sorted(e for e in entries(before) if e.cache == asked["cache"] and not e.released)
    wanted = [(e.position, e.bytes, e.expected_reads) for e in held if first <= e.position <= last]
    hits = event.outcome if event.name == "get_range" else [event.outcome] if event.outcome else []
    return [(h.position, h.bytes, h.expected_reads) for h in hits] == wanted


@always(range_cache)
def an_access_mark_stays_until_requeue(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry that was looked up stays marked until a pass puts it back at the tail."""
    marked = [] if untouched(before, after) else [k for k, e in by_key(before).items() if e.accessed]
    if not marked:
        return True
    kept = by_key(after)
    lost = [k for k in marked if k in kept and not kept[k].accessed]
    return not lost or (event.name in PASSES and all(kept[k].timestamp_ns == after.now_ns for k in lost))


@always(range_cache, on=READINGS)
def a_lookup_marks_what_it_finds(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Every entry that a lookup gives out is marked as accessed; asking whether one exists marks nothing."""
    if isinstance(event.outcome, Refused) or not event.outcome:
        return True
    hits = event.outcome if event.name == "get_range" else [event.outcome]
    kept = by_key(after)
    return all(kept[event.arguments["cache"], h.position].accessed for h in hits)


@always(range_cache, on=PASSES)
def a_requeue_changes_nothing_else(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry that a pass puts back keeps its bytes, counter and copies; it stays readable throughout."""
    was = by_key(before)
    return all(
        (e.bytes, e.expected_reads, e.copies, e.released)
        == (was[k].bytes, was[k].expected_reads, was[k].copies, was[k].released)
        for k, e in by_key(after).items()
    )


@always(range_cache, on=PASSES)
def extensions_are_limited(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Expected reads extend an entry's life up to the maximum, all requeues counted; only access goes past it."""
    was = by_key(before)
    for key, e in by_key(after).items():
        by_access = before.extend_ttl_of_recently_accessed and was[key].accessed
        limit = max(before.max_requeue_times, was[key].requeue_count + 1 if by_access else was[key].requeue_count)
        if e.requeue_count > limit:
            return False
    return True


@always(range_cache, on=PASSES)
def only_what_is_due_is_spared(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A pass puts back only entries that were due for an extension; one without a count gets none for reads."""
    was = by_key(before)
    spared = [was[k] for k, e in by_key(after).items() if e.requeue_count != was[k].requeue_count]
    return all(should_requeue(before, e) for e in spared)


@always(range_cache, on=("time_pass",))
def a_time_pass_leaves_nothing_older(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a time pass no entry in the caches is older than the threshold."""
    threshold = event.arguments["threshold_ns"]
    return not ordinary_threshold(before, event) or all(e.timestamp_ns >= threshold for e in entries(after))


@always(range_cache, on=("time_pass",))
def a_time_pass_takes_nothing_younger(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A time pass touches no entry whose age is the threshold's or less."""
    kept = by_key(after)
    young = [(k, e) for k, e in by_key(before).items() if e.timestamp_ns >= event.arguments["threshold_ns"]]
    return not ordinary_threshold(before, event) or all(kept.get(k) == e for k, e in young)


@always(range_cache, on=("time_pass",))
def a_due_entry_survives_a_time_pass(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry that is due for an extension is not removed at its first visit.

    A design in which expected reads do not extend the time to live breaks it.
    """
    kept = by_key(after)
    due = [k for k, e in by_key(before).items() if should_requeue(before, e)]
    return not ordinary_threshold(before, event) or all(k in kept for k in due)


@always(range_cache, on=("size_pass",))
def a_size_pass_reaches_its_goal(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A size pass frees what was asked, or everything there is.

    A design that sets entries with expected reads aside, and a version in which a released value keeps its
    bytes, break it.
    """
    if isinstance(event.outcome, Refused):
        return True
    present = sum(e.bytes for e in entries(before))
    freed = present - sum(e.bytes for e in entries(after))
    return bool(freed >= min(event.arguments["bytes_to_free"], present))


@always(range_cache, on=("size_pass",))
def a_size_pass_takes_no_more_than_needed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Without its last removal a size pass would not have reached its goal."""
    if isinstance(event.outcome, Refused):
        return True
    kept = by_key(after)
    gone = [e.bytes for k, e in by_key(before).items() if k not in kept]
    return not gone or sum(gone) - max(gone) < event.arguments["bytes_to_free"]


@always(range_cache, on=("size_pass",), given=lambda cfg: cfg.size_pass_requeues_expired)
def expected_reads_go_last(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A size pass removes an entry that was due for an extension only when all that were not due are gone."""
    kept = by_key(after)
    due_gone = any(k not in kept and should_requeue(before, e) for k, e in by_key(before).items())
    other_kept = any(k in kept and not should_requeue(before, e) for k, e in by_key(before).items())
    return not (due_gone and other_kept)


@always(range_cache, on=PASSES, given=lambda cfg: cfg.size_pass_requeues_expired)
def first_in_first_out(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Of two entries that are not due for an extension, a pass removes the one that stands in front first."""
    kept = by_key(after)
    plain = [e for e in before.queue if e is not None and not should_requeue(before, e)]
    gone = [(e.cache, e.position) not in kept for e in plain]
    return gone == sorted(gone, reverse=True)


@always(range_cache, on=PASSES)
def no_detached_slot_at_the_head(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A pass drains the detached slots that it meets, also those in front of the entry at which it stops."""
    ran = not isinstance(event.outcome, Refused) and after is not before
    return not ran or event.name == "evict_to_watermark" or not after.queue or after.queue[0] is not None


@always(range_cache, on=("evict_to_watermark",))
def the_size_check_reaches_the_watermark(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Below the trigger the size check does nothing; above it, it brings the caches to the watermark or empties them.

    A design that sets entries with expected reads aside breaks it, and so does a size that is never given back.
    """
    total = sum(before.sizes)
    if not watermark.is_over_threshold(total, cfg.max_bytes):
        return after == before
    wanted = watermark.bytes_to_evict(total, cfg.max_bytes, cfg.watermark)
    return total - sum(after.sizes) >= max(wanted, 0) or not entries(after)


# ---- what a run must have seen ------------------------------------------------------------------------


def requeued(cfg: Config) -> bool:
    """Designs that spare entries by putting them back."""
    return cfg.retention == "requeue"


def counting(cfg: Config) -> bool:
    """Designs in which entries are put back for their expected reads."""
    return requeued(cfg) and cfg.counts_reads and cfg.max_requeue_times > 0


def _rises(before: State, after: State) -> list[tuple[Entry, int]]:
    """Entries that a pass kept, and how often it put them back."""
    kept = by_key(after)
    return [(e, kept[k].requeue_count - e.requeue_count) for k, e in by_key(before).items() if k in kept]


@sometimes(range_cache, on=PASSES, given=counting)
def requeued_for_expected_reads(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A pass puts an entry back only because it expects reads."""
    return any(rise and not e.accessed for e, rise in _rises(before, after))


@sometimes(range_cache, on=PASSES, given=requeued)
def requeued_for_recent_access(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A pass puts an entry back only because it was looked up."""
    return any(rise and not has_expected_reads(e.expected_reads) for e, rise in _rises(before, after))


@sometimes(range_cache, on=PASSES, given=counting)
def access_used_up_an_extension(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry that expects reads reaches the maximum by a requeue for recent access."""
    return any(
        rise
        and e.accessed
        and has_expected_reads(e.expected_reads)
        and e.requeue_count + rise == before.max_requeue_times
        for e, rise in _rises(before, after)
    )


@sometimes(range_cache, on=("size_pass",), given=counting)
def size_pass_went_round_twice(cfg: Config, before: State, event: Event, after: State) -> bool:
    """One size pass puts the same entry back twice or more."""
    return any(rise >= 2 for _, rise in _rises(before, after))


@sometimes(range_cache, on=("time_pass",), given=lambda cfg: cfg.counts_reads)
def removed_with_reads_left(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A time pass removes an entry that still expects reads, for it has no extension left."""
    kept = by_key(after)
    return any(k not in kept and has_expected_reads(e.expected_reads) for k, e in by_key(before).items())


@sometimes(range_cache, on=("size_pass",), given=counting)
def size_pass_took_the_last_resort(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A size pass removes an entry that was due for an extension when it began."""
    kept = by_key(after)
    return any(k not in kept and should_requeue(before, e) for k, e in by_key(before).items())


@sometimes(range_cache, on=PASSES)
def drained_detached_then_stopped(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A pass removes nothing but detached slots at the head."""
    return event.outcome == NOTHING and len(after.queue) < len(before.queue) and bool(after.queue)


@sometimes(range_cache, on=PASSES)
def detached_behind_a_live_head(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a pass a detached slot waits behind an entry that is not expired."""
    return None in after.queue


@sometimes(range_cache, on=("time_pass",))
def stopped_exactly_at_the_threshold(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A time pass stops at an entry that is exactly as old as the threshold."""
    live = [e for e in after.queue if e is not None]
    return bool(live) and live[0].timestamp_ns == event.arguments["threshold_ns"] < before.now_ns


@sometimes(range_cache, on=("time_pass",), given=counting)
def met_again_in_one_time_pass(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A time pass with a threshold in the future puts an entry back and then removes it."""
    kept = by_key(after)
    return any(k not in kept and should_requeue(before, e) for k, e in by_key(before).items())


@sometimes(range_cache, given=lambda cfg: cfg.counts_reads)
def a_negative_count(cfg: Config, s: State) -> bool:
    """An entry has been read more often than expected."""
    return any(e.expected_reads is not None and e.expected_reads < 0 for e in entries(s))


@sometimes(range_cache)
def a_copy_outlives_its_entry(cfg: Config, s: State) -> bool:
    """A copy is open whose entry is no longer cached."""
    return bool(s.orphaned_copies)


@sometimes(range_cache, given=lambda cfg: cfg.counts_reads)
def a_shared_counter(cfg: Config, s: State) -> bool:
    """Two open copies and the cached entry share one counter."""
    return any(len(e.copies) >= 2 and e.expected_reads is not None for e in entries(s))


@sometimes(range_cache, on=("put",), given=lambda cfg: cfg.counts_reads and cfg.duplicate_put == "latest_handler")
def counter_exchanged_under_open_copies(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A duplicate put gives the entry a new counter while copies with the old one are open."""
    present = by_key(before).get(_put_key(event))
    return present is not None and bool(present.copies)


@sometimes(range_cache, on=("replay",), given=counting)
def replay_made_an_entry_due_again(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay brings a counter from none to one expected read."""
    return bool(event.outcome == Count(1))


@sometimes(range_cache, on=("replay",), given=lambda cfg: cfg.counts_reads)
def replay_of_a_negative_counter(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay raises a counter that was below zero, and the entry still expects nothing."""
    count = event.outcome.expected_reads if isinstance(event.outcome, Count) else None
    return count is not None and count <= 0


@sometimes(range_cache, on=("release",), given=lambda cfg: cfg.counts_reads)
def released_undelivered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A copy with a counter is given back undelivered."""
    return event.arguments["delivered"] is False and isinstance(event.outcome, Count) and event.outcome != Count(None)


@sometimes(range_cache, on=("get_range",))
def a_range_over_two_ledgers(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup gives entries of two ledgers."""
    hits = () if isinstance(event.outcome, Refused) else event.outcome
    return len({h.position.ledger for h in hits}) >= 2


@sometimes(range_cache, on=READINGS)
def a_lookup_of_a_released_value(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup meets an entry whose value was released elsewhere, and marks it without giving it out."""
    kept = by_key(after)
    return any(e.released and not e.accessed and k in kept and kept[k].accessed for k, e in by_key(before).items())


@sometimes(range_cache, on=("evict_to_watermark",))
def the_size_check_evicted(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The size check finds the caches over the trigger and evicts."""
    return bool(event.outcome != NOTHING)


@sometimes(range_cache, given=lambda cfg: cfg.retention == "stash")
def an_entry_is_stashed(cfg: Config, s: State) -> bool:
    """A size pass has set an entry aside."""
    return bool(s.stash)


# ---- what must come in the end ------------------------------------------------------------------------


@eventually(range_cache, fair=("advance", "time_pass"))
def no_entry_lives_for_ever(cfg: Config, s: State) -> bool:
    """Once nothing is put or looked up, time passes empty the caches, expected reads or not."""
    return not entries(s)


@eventually(range_cache, fair=("advance", "time_pass"))
def no_slot_stays_detached(cfg: Config, s: State) -> bool:
    """A detached slot is dropped no later than when every entry in front of it has expired."""
    return None not in s.queue


@eventually(range_cache, fair=("evict_to_watermark",), given=requeued)
def the_caches_come_below_the_trigger(cfg: Config, s: State) -> bool:
    """The size check brings the caches below the trigger, whatever reads their entries expect."""
    return not watermark.is_over_threshold(sum(s.sizes), cfg.max_bytes) or not entries(s)
