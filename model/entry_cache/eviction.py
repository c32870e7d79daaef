"""Total size and eviction of the entry cache (`RangeEntryCacheManagerImpl`); used by `model/entry_cache/machine.py`."""

from __future__ import annotations

from collections.abc import Callable

from model import range_cache as ranges
from model import watermark
from model.entry_cache.state import Config, State, derived
from model.range_cache import Entry, Removed


def entries_removed(s: State, after: ranges.State, removed: Removed) -> State:
    """`entriesRemoved`: subtracts the bytes of removed entries from the total, and counts the entries as evicted.

    `after` has the range caches after the removal.
    """
    counters = s.counters
    if removed.entries:
        counters = counters._replace(evicted_entries=counters.evicted_entries + removed.entries)
    return s._replace(ranges=after, total_bytes=s.total_bytes - removed.bytes, counters=counters)


def size_check(cfg: Config, s: State) -> tuple[State, int]:
    """`doEvictToWatermarkWhenOverThreshold`: runs a size pass if the total size is above `evictionTriggerThreshold`.

    The pass evicts down to the watermark. If the watermark is above the threshold, the total size must be above both.
    Returns the state and the number of entries evicted.
    """
    bytes_to_evict = watermark.bytes_to_evict(s.total_bytes, s.max_bytes, s.watermark)
    if bytes_to_evict <= 0 or not watermark.is_over_threshold(s.total_bytes, s.max_bytes):
        return s, 0
    after, removed = ranges.evict_entries(derived(cfg).ranges, s.ranges, ranges.size_pass_predicate, bytes_to_evict)
    s = entries_removed(s, after, removed)
    return s._replace(counters=s.counters._replace(size_evictions=s.counters.size_evictions + 1)), removed.entries


def trigger_eviction(cfg: Config, s: State) -> State:
    """`triggerEvictionWhenNeeded`: schedules an eviction task if the total size is above `evictionTriggerThreshold`.

    If `evictionInProgress` is set, no other task is scheduled. With `eviction_task` "immediate", the size check runs
    in this step, and no task is scheduled.
    """
    if s.eviction_in_progress or not watermark.is_over_threshold(s.total_bytes, s.max_bytes):
        return s
    if cfg.eviction_task == "immediate":
        return size_check(cfg, s)[0]
    return s._replace(eviction_in_progress=True, tasks=s.tasks + 1)


def entry_added(cfg: Config, s: State, entry: Entry) -> State:
    """`entryAdded`: returns the state after an entry was added to its range cache and the removal queue.

    The added entry may trigger an eviction.
    """
    sizes = s.ranges.sizes
    range_cache = entry.cache
    sizes = sizes[:range_cache] + (sizes[range_cache] + entry.bytes,) + sizes[range_cache + 1 :]
    counters = s.counters._replace(insertions=s.counters.insertions + 1)
    after = s.ranges._replace(queue=(*s.ranges.queue, entry), sizes=sizes)
    s = s._replace(ranges=after, total_bytes=s.total_bytes + entry.bytes, counters=counters)
    return trigger_eviction(cfg, s)


def insert_duplicate(
    cfg: Config, caches: ranges.State, present: Entry, count: int | None, copies: tuple[int, ...]
) -> ranges.State:
    """Returns the range caches after the rejection of an entry because an entry at its position (`present`) is cached.

    The rejected entry has a read count handler with the count `count` (None: no handler), which the copies `copies`
    share. With `duplicate_put` "latest_handler", the cached entry gets this handler, and the copies with the old
    handler become orphaned. With "keep", `copies` become orphaned; with `rejection_marks_read`, their count is first
    decremented.
    """
    if cfg.duplicate_put == "latest_handler":
        caches = ranges.replace_entry(caches, present, present._replace(expected_reads=count, copies=copies))
        return caches._replace(
            orphaned_copies=ranges.add_orphaned_copies(present.copies, present.expected_reads, caches.orphaned_copies)
        )
    if cfg.rejection_marks_read:
        count = ranges.marked_read(count)
    return caches._replace(orphaned_copies=ranges.add_orphaned_copies(copies, count, caches.orphaned_copies))


def remove(cfg: Config, s: State, gone: list[Entry]) -> State:
    """Returns the state without the entries `gone`, which an invalidation or a clear removes.

    Their wrappers stay in the removal queue, detached.
    """
    after, removed = ranges.remove_entries(derived(cfg).ranges, s.ranges, gone)
    return entries_removed(s, after, removed) if gone else s


def entries_of(s: State, range_cache: int, wanted: Callable[[Entry], bool]) -> list[Entry]:
    """Returns the entries of a range cache that satisfy a predicate; none for ABSENT or DISABLED."""
    return [e for e in s.ranges.queue if e is not None and e.cache == range_cache and wanted(e)]
