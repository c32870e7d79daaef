"""What the properties of the range caches compute from states and events."""

from __future__ import annotations

from invariants.properties import Event, once_per_state
from model.positions import Position
from model.range_cache import Config, Entry, OrphanedCopies, State
from model.watermark import TRIGGER_SHARE

PASSES = ("time_pass", "size_pass", "evict_to_watermark")
REMOVALS = ("remove_range", "invalidate_ledger", "clear")
LOOKUPS = ("get", "get_range")
READ_COUNT_CHANGES = ("release", "replay", "mark_read")
PUTS = ("put", "put_mismatched")

#: A cache and a position in it.
Key = tuple[int, Position]


@once_per_state
def entries(s: State) -> list[Entry]:
    """Returns all cached entries."""
    return [e for e in s.queue + s.stash if e is not None]


@once_per_state
def by_key(s: State) -> dict[Key, Entry]:
    """Returns all cached entries by cache and position."""
    return {(e.cache, e.position): e for e in entries(s)}


@once_per_state
def read_counts(s: State) -> dict[int, int | None]:
    """Returns the read count of each open copy, by the copy's number. A copy is open until its release."""
    holders: tuple[Entry | OrphanedCopies, ...] = (*entries(s), *s.orphaned_copies)
    return {copy: holder.expected_reads for holder in holders for copy in holder.copies}


@once_per_state
def copy_groups(s: State) -> list[tuple[int, ...]]:
    """Returns the open copies, grouped by the read count that they share."""
    holders: tuple[Entry | OrphanedCopies, ...] = (*entries(s), *s.orphaned_copies)
    return [holder.copies for holder in holders]


def key_of(event: Event) -> Key:
    """Returns the cache and position that are arguments of an action."""
    return event.arguments["cache"], event.arguments["position"]


def unchanged(before: State, after: State) -> bool:
    """Whether a step changed no slot, no entry and no copy.

    Compares objects by identity: false also if a step replaced a tuple by an equal tuple.
    """
    return (
        after.queue is before.queue and after.orphaned_copies is before.orphaned_copies and after.stash is before.stash
    )


def expects_reads(e: Entry) -> bool:
    """Whether an entry has a read count of 1 or more."""
    return e.expected_reads is not None and e.expected_reads > 0


def is_due(s: State, e: Entry) -> bool:
    """Whether an entry is due for requeue.

    Either it was accessed and recent access extends the TTL, or it has expected reads and `requeueCount` is below the
    maximum.
    """
    if e.accessed and s.extend_ttl_of_recently_accessed:
        return True
    return expects_reads(e) and s.max_requeue_times - e.requeue_count > 0


def is_requeued(cfg: Config, s: State, event: Event, e: Entry) -> bool:
    """Whether a pass requeues an entry when it first visits the entry: the entry is due for requeue.

    If `size_pass_requeues_expired` is false, a size pass does not requeue an expired entry.
    """
    considers_age = event.name != "time_pass" and not cfg.size_pass_requeues_expired
    return is_due(s, e) and not (considers_age and s.now_ns - e.timestamp_ns > cfg.ttl_ns)


def requeues_left(cfg: Config, s: State, event: Event, e: Entry) -> int:
    """Returns how often a pass can requeue an entry; the visit after the last requeue removes the entry."""
    if not is_requeued(cfg, s, event, e):
        return 0
    for_access = int(e.accessed and s.extend_ttl_of_recently_accessed)
    for_reads = max(s.max_requeue_times - e.requeue_count, 0) if expects_reads(e) else 0
    # with `access_requeue_counts`, the requeue for recent access uses up one of those for expected reads
    return max(for_access, for_reads) if cfg.access_requeue_counts else for_access + for_reads


def has_past_threshold(before: State, event: Event) -> bool:
    """Whether a step is a time pass whose threshold is not in the future. A broker's threshold is now minus the TTL."""
    return event.name == "time_pass" and event.arguments["threshold_ns"] <= before.now_ns


def bytes_to_free(cfg: Config, before: State, event: Event) -> int:
    """Returns the bytes that `size_pass` or `evict_to_watermark` must free; zero or less if the latter does nothing."""
    if event.name == "size_pass":
        return int(event.arguments["bytes_to_free"])
    total = sum(before.sizes)
    return total - int(cfg.max_bytes * cfg.watermark) if total > int(cfg.max_bytes * TRIGGER_SHARE) else 0
