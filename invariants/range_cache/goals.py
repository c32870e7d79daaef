"""Coverage goals and liveness of the range caches."""

from __future__ import annotations

from invariants.properties import Event, eventually, sometimes
from invariants.range_cache.derived import (
    LOOKUPS,
    PASSES,
    REMOVALS,
    by_key,
    entries,
    expects_reads,
    is_due,
    key_of,
)
from model.machine import Refused
from model.range_cache import NOTHING, Config, Count, Entry, State, range_cache
from model.watermark import TRIGGER_SHARE

# ---- coverage goals -----------------------------------------------------------------------------------


def requeues(cfg: Config) -> bool:
    """Whether passes requeue entries; with `retention` "stash", no pass does."""
    return cfg.retention == "requeue"


def requeues_for_reads(cfg: Config) -> bool:
    """Whether passes requeue entries for expected reads."""
    return requeues(cfg) and cfg.counts_reads and cfg.max_requeue_times > 0


def _kept_with_times_requeued(before: State, after: State) -> list[tuple[Entry, int]]:
    """Returns the entries that a pass kept, each with the number of requeues that `requeueCount` counts."""
    kept = by_key(after)
    return [(e, kept[k].requeue_count - e.requeue_count) for k, e in by_key(before).items() if k in kept]


@sometimes(range_cache, on=PASSES, given=requeues_for_reads)
def requeued_for_expected_reads(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A pass requeues an entry that was not accessed, because reads of it are expected."""
    return any(times and not e.accessed for e, times in _kept_with_times_requeued(before, after))


@sometimes(range_cache, on=PASSES, given=lambda cfg: requeues(cfg) and cfg.access_requeue_counts)
def requeued_for_recent_access(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A pass requeues an entry without expected reads, because it was accessed."""
    return any(times and not expects_reads(e) for e, times in _kept_with_times_requeued(before, after))


@sometimes(range_cache, on=PASSES, given=lambda cfg: requeues_for_reads(cfg) and cfg.access_requeue_counts)
def access_requeue_reached_the_maximum(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A requeue for recent access brings an entry with expected reads to the maximum number of requeues."""
    return before.extend_ttl_of_recently_accessed and any(
        times == 1 and e.accessed and expects_reads(e) and e.requeue_count + 1 == before.max_requeue_times
        for e, times in _kept_with_times_requeued(before, after)
    )


@sometimes(range_cache, on=("size_pass",), given=requeues_for_reads)
def size_pass_requeued_entry_twice(cfg: Config, before: State, event: Event, after: State) -> bool:
    """One size pass requeues the same entry twice or more."""
    return any(times >= 2 for _, times in _kept_with_times_requeued(before, after))


@sometimes(range_cache, on=("time_pass",), given=lambda cfg: cfg.counts_reads)
def time_pass_evicted_entry_with_expected_reads(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A time pass removes an entry that has expected reads."""
    kept = by_key(after)
    return any(k not in kept and expects_reads(e) for k, e in by_key(before).items())


@sometimes(range_cache, on=("size_pass",), given=requeues_for_reads)
def size_pass_evicted_due_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A size pass removes an entry that was due for requeue when the pass began."""
    kept = by_key(after)
    return any(k not in kept and is_due(before, e) for k, e in by_key(before).items())


@sometimes(range_cache, on=("time_pass",))
def time_pass_dropped_only_detached_wrappers(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A time pass evicts nothing and drops slots of removed entries; afterwards, the queue is not empty."""
    all_kept = by_key(after).keys() == by_key(before).keys() and after.stash == before.stash
    return all_kept and len(after.queue) < len(before.queue) and bool(after.queue)


@sometimes(range_cache, on=("time_pass",))
def detached_wrapper_behind_unexpired_head(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A time pass stops at an unexpired entry; behind it, the queue still has the slot of a removed entry."""
    return None in after.queue


@sometimes(range_cache, on=("time_pass",))
def time_pass_stopped_exactly_at_threshold(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A time pass stops at an entry whose timestamp is exactly the threshold."""
    live = [e for e in after.queue if e is not None]
    # `< now`, because the timestamp of an entry that this pass requeued is now
    return bool(live) and live[0].timestamp_ns == event.arguments["threshold_ns"] < before.now_ns


@sometimes(range_cache, on=("time_pass",), given=requeues_for_reads)
def time_pass_visited_entry_twice(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A time pass with a threshold in the future requeues an entry and then removes it."""
    kept = by_key(after)  # the first visit of an entry that is due requeues the entry
    return any(k not in kept and is_due(before, e) for k, e in by_key(before).items())


@sometimes(range_cache, given=lambda cfg: cfg.counts_reads)
def negative_expected_read_count(cfg: Config, s: State) -> bool:
    """The read count of a cached entry is negative: the entry was read more often than expected."""
    return any(e.expected_reads is not None and e.expected_reads < 0 for e in entries(s))


@sometimes(range_cache, on=(*PASSES, *REMOVALS))
def copy_outlives_its_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A pass or a removal removes an entry of which a copy is open."""
    kept = by_key(after)
    return any(e.copies and k not in kept for k, e in by_key(before).items())


@sometimes(range_cache, given=lambda cfg: cfg.counts_reads)
def two_copies_share_read_count_with_entry(cfg: Config, s: State) -> bool:
    """Two open copies and the cached entry share one read count."""
    return any(len(e.copies) >= 2 and e.expected_reads is not None for e in entries(s))


@sometimes(range_cache, on=("put",), given=lambda cfg: cfg.counts_reads and cfg.duplicate_put == "latest_handler")
def duplicate_put_orphaned_open_copies(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A second put at a position gives the entry a new read count, while open copies keep the old one."""
    present = by_key(before).get(key_of(event))
    return present is not None and bool(present.copies) and not present.released


@sometimes(range_cache, on=("replay",), given=requeues_for_reads)
def replay_raised_read_count_to_one(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay (an entry will be redelivered) raises a read count from 0 to 1."""
    return bool(event.outcome == Count(1))


@sometimes(range_cache, on=("replay",), given=lambda cfg: cfg.counts_reads)
def replay_left_read_count_nonpositive(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay raises a negative read count, and the new count is still zero or less."""
    count = event.outcome.expected_reads if isinstance(event.outcome, Count) else None
    return count is not None and count <= 0


@sometimes(range_cache, on=("release",), given=lambda cfg: cfg.counts_reads)
def counted_copy_released_undelivered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A copy that has a read count is released without delivery to a consumer."""
    return event.arguments["delivered"] is False and isinstance(event.outcome, Count) and event.outcome != Count(None)


@sometimes(range_cache, on=("get_range",))
def range_lookup_crossed_ledgers(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup returns entries of two ledgers."""
    hits = () if isinstance(event.outcome, Refused) else event.outcome
    return len({h.position.ledger for h in hits}) >= 2


@sometimes(range_cache, on=LOOKUPS)
def lookup_missed_deallocated_value(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup sets `accessed` of an entry whose value is deallocated, and does not return the entry."""
    kept = by_key(after)
    return any(e.released and not e.accessed and k in kept and kept[k].accessed for k, e in by_key(before).items())


@sometimes(range_cache, on=("evict_to_watermark",))
def size_check_evicted(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The size check finds that all caches together are too large (above the trigger), and evicts entries."""
    return bool(event.outcome != NOTHING)


@sometimes(range_cache, given=lambda cfg: cfg.retention == "stash")
def entry_was_stashed(cfg: Config, s: State) -> bool:
    """A size pass has moved an entry out of the queue, into a separate list (the stash)."""
    return bool(s.stash)


# ---- liveness -----------------------------------------------------------------------------------------


@eventually(range_cache, fair=("advance", "time_pass"))
def every_entry_is_eventually_evicted(cfg: Config, s: State) -> bool:
    """If only the clock advances and time passes run, these empty the caches, whatever the read counts are."""
    return not entries(s)


@eventually(range_cache, fair=("advance", "time_pass"))
def every_detached_wrapper_is_eventually_dropped(cfg: Config, s: State) -> bool:
    """If only the clock advances and time passes run, these drop all detached wrappers."""
    return None not in s.queue


@eventually(range_cache, fair=("evict_to_watermark",), given=requeues)
def size_check_eventually_ends_at_or_below_trigger(cfg: Config, s: State) -> bool:
    """If only size checks run, the total ends at the trigger or below, or the caches are empty, whatever the counts.

    This holds only if the watermark is not above the trigger, as in all scopes.
    """
    return sum(s.sizes) <= int(cfg.max_bytes * TRIGGER_SHARE) or not entries(s)
