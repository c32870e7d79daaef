"""Guarantees of the caches of a broker of branch 4.0, before PIP-430.

The total is the bytes of all caches. The trigger is 98 % of the maximum. A cache is enabled if it is neither absent nor
disabled. An insert is rejected if it returns false. Any other action is rejected (`Refused`) if it cannot begin. An
action fails (`Failed`) if the policy throws in it.
"""

from __future__ import annotations

from itertools import pairwise

from invariants.legacy_cache import without_lowest
from invariants.properties import Event, always, sometimes
from model.legacy_cache import Entry
from model.legacy_manager import CacheState, Config, Counters, State, StorageRead, legacy_manager
from model.machine import Failed, Refused
from model.positions import Position
from model.range_cache import Removed
from model.watermark import TRIGGER_SHARE

READS = ("read", "read_one")
INVALIDATIONS = ("invalidate_entries_before", "invalidate_ledger", "clear_cache", "clear_all", "remove_entry_cache")


def entries_of(held: CacheState) -> tuple[Entry, ...]:
    """Returns the entries of a cache; none if the cache is absent or disabled."""
    return () if isinstance(held, str) else held


def total_bytes(s: State) -> int:
    """Returns the bytes of all caches."""
    return sum(e.bytes for held in s.caches for e in entries_of(held))


def entry_count(s: State) -> int:
    """Returns the number of cached entries."""
    return sum(len(entries_of(held)) for held in s.caches)


@always(legacy_manager)
def entries_are_ordered_by_position(cfg: Config, s: State) -> bool:
    """The entries of a cache are ordered by position; a cache holds at most one entry at a position."""
    held = [entries_of(each) for each in s.caches]
    return all(all(a.position < b.position for a, b in pairwise(each)) for each in held)


@always(legacy_manager)
def insertions_equal_cached_plus_evicted(cfg: Config, s: State) -> bool:
    """Every inserted entry is cached or counted as evicted."""
    return s.counters.insertions == s.counters.evicted_entries + entry_count(s)


@always(legacy_manager)
def at_most_one_eviction_in_progress(cfg: Config, s: State) -> bool:
    """At most one eviction task is queued; one is queued if and only if an eviction is in progress.

    With `eviction_task` "immediate", none is queued; whether an eviction is in progress is not checked then.
    """
    return len(s.tasks) == int(s.eviction_in_progress) or (cfg.eviction_task == "immediate" and not s.tasks)


@always(legacy_manager)
def counters_are_monotonic(cfg: Config, before: State, event: Event, after: State) -> bool:
    """No counter decreases."""
    return all(a >= b for a, b in zip(after.counters, before.counters, strict=True))


@always(legacy_manager, on=("insert",))
def insert_at_maximum_is_rejected(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An insert is rejected or fails if the total size before the insert is the maximum or more."""
    return event.outcome is not True or total_bytes(before) < before.max_bytes


@always(legacy_manager, on=("insert",))
def insert_returns_whether_entry_was_stored(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An insert returns whether the entry was stored."""
    return (event.outcome is True) == (after.counters.insertions == before.counters.insertions + 1)


@always(legacy_manager, on=READS)
def read_counts_each_entry_once_as_hit_or_miss(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read counts each entry that it returns once, all as hits or all as misses.

    A read that fails with the exception of the policy is not checked.
    """
    if isinstance(event.outcome, Refused | Failed):
        return True
    was, now = before.counters, after.counters
    hits, misses = now.hit_entries - was.hit_entries, now.miss_entries - was.miss_entries
    got = len(event.outcome.entries)
    return (hits, misses) == ((0, got) if event.outcome.storage_reads else (got, 0))


@always(legacy_manager, on=READS)
def read_returns_whole_range(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A successful read returns all entries of its range in order.

    The entries come from the cache if every entry is cached, otherwise from one storage read; if this read fails, there
    are none. A read is rejected if and only if storage does not have the range. It fails with the exception of the
    policy only if `eviction_task` is "immediate".
    """
    asked = event.arguments
    cache: int = asked["cache"]
    ledger, first = asked["position"] if event.name == "read_one" else (asked["ledger"], asked["first"])
    last = first if event.name == "read_one" else asked["last"]
    ledgers = dict(enumerate(cfg.storage[cache], 1)) if cache in range(len(cfg.storage)) else {}
    stored = dict(enumerate(ledgers.get(ledger, ())))
    wanted = range(first, last + 1)
    if not wanted or any(entry not in stored for entry in wanted):
        return isinstance(event.outcome, Refused)
    if isinstance(event.outcome, Failed):
        return cfg.eviction_task == "immediate"
    held = {e.position: e.bytes for e in entries_of(before.caches[cache])}
    positions = [Position(ledger, entry) for entry in wanted]
    if all(p in held for p in positions):
        found = [(p, held[p]) for p in positions]
        return (event.outcome.outcome, list(event.outcome.entries), event.outcome.storage_reads) == ("ok", found, ())
    issued = StorageRead(before.issued_reads + 1, cache, ledger, first, last)
    found = [(p, stored[p.entry]) for p in positions] if event.outcome.outcome == "ok" else []
    return (list(event.outcome.entries), event.outcome.storage_reads) == (found, (issued,))


@always(legacy_manager, on=("read",))
def read_stores_entries_only_on_request(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read caches the entries that it reads from storage if the caller requests it; otherwise it caches none.

    The timestamp of a new entry is the current time. On request, entries may still stay out of the cache: if the cache
    is disabled, if the total can reach the maximum during the read, or if evictions run in the read (`eviction_task`
    "immediate"). A read fails with an illegal argument only if the caller requests caching and an eviction runs in it.
    """
    if isinstance(event.outcome, Failed) and event.outcome.kind == "illegal_argument":
        return bool(
            event.arguments["store_in_cache"] and after.counters.size_evictions > before.counters.size_evictions
        )
    if isinstance(event.outcome, Refused | Failed) or not event.arguments["store_in_cache"]:
        return after.counters.insertions == before.counters.insertions
    from_storage = dict(event.outcome.entries) if event.outcome.storage_reads else {}
    held = {e.position: e for e in entries_of(after.caches[event.arguments["cache"]])}
    new = [e for p, e in held.items() if e not in entries_of(before.caches[event.arguments["cache"]])]
    may_be_full = total_bytes(before) + sum(from_storage.values()) >= before.max_bytes
    is_disabled = after.caches[event.arguments["cache"]] == "disabled"
    return all(from_storage.get(e.position) == e.bytes and e.timestamp_ns == before.now_ns for e in new) and (
        may_be_full or is_disabled or cfg.eviction_task == "immediate" or held.keys() >= from_storage.keys()
    )


@always(legacy_manager, on=("read_one",))
def single_read_is_not_cached(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`read_one` caches no entry."""
    return after.counters.insertions == before.counters.insertions


@always(legacy_manager, on=("run_eviction_task",))
def eviction_task_removes_truncated_shares(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction task removes the lowest positions of each cache until it has freed the cache's share.

    Only the largest caches that together hold half of all bytes have a share: the bytes to free, in proportion to the
    cache's size, rounded down.
    """
    if isinstance(event.outcome, Refused | Failed):
        return True
    wanted = before.tasks[0] - int(before.max_bytes * before.watermark)
    sizes = [sum(e.bytes for e in entries_of(held)) for held in before.caches]
    largest = sorted(sizes, reverse=True)
    chosen = [n for k, n in enumerate(largest) if sum(largest[:k]) < sum(largest) // 2]
    # the chosen caches; of caches of equal size, those with the smaller numbers
    order = sorted(range(len(sizes)), key=lambda c: -sizes[c])[: len(chosen)]
    for c, held in enumerate(before.caches):
        share = wanted * sizes[c] // sum(chosen) if c in order else 0
        if entries_of(after.caches[c]) != without_lowest(entries_of(held), share):
            return False
    return True


@always(legacy_manager, on=("insert",))
def insert_stores_entry_as_given(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A successful insert stores the entry with its position, bytes and the current time."""
    if event.outcome is not True:
        return True
    given = event.arguments
    entry = Entry(given["position"], given["bytes"], before.now_ns)
    return entry in entries_of(after.caches[given["cache"]])


@always(legacy_manager, on=("insert",), given=lambda cfg: cfg.eviction_task == "queued")
def insert_adds_absent_entry_below_maximum(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An insert adds its entry if the position is free, the total below the maximum, and the cache not disabled.

    Otherwise it adds none. It changes no other entry.
    """
    given = event.arguments
    held = [entries_of(each) for each in before.caches]
    is_free = given["position"] not in [e.position for e in held[given["cache"]]]
    if is_free and total_bytes(before) < before.max_bytes and after.caches[given["cache"]] != "disabled":
        entry = Entry(given["position"], given["bytes"], before.now_ns)
        held[given["cache"]] = tuple(sorted((*held[given["cache"]], entry)))
    return [entries_of(each) for each in after.caches] == held


@always(legacy_manager, on=INVALIDATIONS)
def invalidation_removes_exactly_its_range(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An invalidation removes exactly the entries of its range.

    The range is the positions from (-1, 0) to the argument (exclusive), the positions from entry 0 of a ledger to entry
    0 of the next one (exclusive), or one cache; `clear_all` removes all entries.
    """
    asked = event.arguments

    def stays(c: int, e: Entry) -> bool:
        if event.name == "clear_all":
            return False
        if c != asked["cache"]:
            return True
        if event.name == "invalidate_entries_before":
            return not (-1, 0) <= e.position < asked["position"]
        if event.name == "invalidate_ledger":
            return not (asked["ledger"], 0) <= e.position < (asked["ledger"] + 1, 0)
        return False

    return all(
        entries_of(after.caches[c]) == tuple(e for e in entries_of(held) if stays(c, e))
        for c, held in enumerate(before.caches)
    )


@always(legacy_manager, on=READS)
def read_counts_the_bytes_it_returns(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read adds the bytes that it returns to the hit bytes or the miss bytes.

    A read that fails with the exception of the policy is not checked.
    """
    if isinstance(event.outcome, Refused | Failed):
        return True
    was, now, size = before.counters, after.counters, sum(n for _, n in event.outcome.entries)
    expected = (0, size) if event.outcome.storage_reads else (size, 0)
    return (now.hit_bytes - was.hit_bytes, now.miss_bytes - was.miss_bytes) == expected


@always(legacy_manager)
def storage_failures_count_down(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A storage read fails if and only if `failing_reads` is above 0, and then lowers `failing_reads` by 1."""
    if event.name == "fail_next_storage_reads":
        return bool(after.failing_reads == event.arguments["number"])
    # the policy can throw in a read, but only after the storage read has succeeded
    if event.name not in READS or isinstance(event.outcome, Refused | Failed):
        return bool(after.failing_reads == before.failing_reads)
    failed = bool(event.outcome.storage_reads) and before.failing_reads > 0
    return (event.outcome.outcome == "failed") == failed and after.failing_reads == before.failing_reads - failed


@always(legacy_manager)
def clock_and_settings_change_only_by_their_actions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Clock, maximum and watermark change only by `advance` and their setters, which change nothing else."""
    changes = {
        "advance": lambda: before._replace(now_ns=before.now_ns + event.arguments["nanos"]),
        "set_max_bytes": lambda: before._replace(max_bytes=event.arguments["value"]),
        "set_watermark": lambda: before._replace(watermark=event.arguments["value"]),
    }
    if event.name in changes:
        return after == changes[event.name]()
    return (after.now_ns, after.max_bytes, after.watermark) == (before.now_ns, before.max_bytes, before.watermark)


@always(legacy_manager, on=("insert",))
def eviction_is_scheduled_exactly_above_trigger(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An insert schedules an eviction if and only if the total before it is above the trigger and none is in progress.

    An insert into a disabled cache schedules none.
    """
    is_above = total_bytes(before) > int(before.max_bytes * TRIGGER_SHARE)
    cache = before.caches[event.arguments["cache"]]
    is_disabled = cache == "disabled" or (cache == "absent" and before.max_bytes == 0)
    schedules = is_above and not before.eviction_in_progress and not is_disabled
    if cfg.eviction_task == "immediate":
        return (after.counters.size_evictions > before.counters.size_evictions) == schedules
    return len(after.tasks) == len(before.tasks) + schedules


@always(legacy_manager, on=("run_eviction_task",))
def eviction_task_ends_its_eviction(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A task clears `evictionInProgress`, counts an eviction and returns the number of evicted entries.

    A task fails if and only if there is nothing to free or no enabled cache. The action is rejected if and only if no
    task is queued.
    """
    if not before.tasks:
        return isinstance(event.outcome, Refused)
    frees_nothing = before.tasks[0] <= int(before.max_bytes * before.watermark)
    fails = frees_nothing or all(isinstance(held, str) for held in before.caches)
    evicted = after.counters.evicted_entries - before.counters.evicted_entries
    if isinstance(event.outcome, Failed) is not fails or not (fails or event.outcome == evicted):
        return False
    counted = after.counters.size_evictions == before.counters.size_evictions + 1
    return counted and (after.eviction_in_progress, after.tasks) == (False, before.tasks[1:])


@always(legacy_manager, on=("time_pass", "size_pass"))
def pass_removes_exactly_the_front_of_its_cache(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A time pass removes the lowest positions up to the first unexpired entry, a size pass until it has freed enough.

    A time pass returns the number of removed entries, a size pass number and bytes. A size pass is rejected if and only
    if the requested bytes are zero or less. A pass changes no other cache.
    """
    asked = event.arguments
    rejected = event.name == "size_pass" and asked["bytes_to_free"] <= 0
    if isinstance(event.outcome, Refused) or rejected:
        return isinstance(event.outcome, Refused) and rejected
    held = entries_of(before.caches[asked["cache"]])
    if event.name == "size_pass":
        kept = without_lowest(held, asked["bytes_to_free"])
    else:
        kept = held[next((i for i, e in enumerate(held) if e.timestamp_ns > asked["threshold_ns"]), len(held)) :]
    gone = held[: len(held) - len(kept)]
    removed = Removed(len(gone), sum(e.bytes for e in gone))
    others = [c for c in range(len(before.caches)) if c != asked["cache"]]
    return (
        entries_of(after.caches[asked["cache"]]) == kept
        and all(after.caches[c] == before.caches[c] for c in others)
        and event.outcome == (removed if event.name == "size_pass" else len(gone))
    )


#: The fields of the state that an action may change.
MAY_CHANGE = {
    "insert": {"caches", "eviction_in_progress", "tasks", "counters"},
    "read": {"caches", "eviction_in_progress", "tasks", "counters", "issued_reads", "failing_reads"},
    "read_one": {"caches", "counters", "issued_reads", "failing_reads"},
    "run_eviction_task": {"caches", "eviction_in_progress", "tasks", "counters"},
    "fail_next_storage_reads": {"failing_reads"},
    "advance": {"now_ns"},
    "set_max_bytes": {"max_bytes"},
    "set_watermark": {"watermark"},
    **{name: {"caches", "counters"} for name in (*INVALIDATIONS, "time_pass", "size_pass")},
}


@always(legacy_manager)
def action_changes_only_its_fields(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An action changes only parts of the state that it may change (`MAY_CHANGE`); only reads count hits and misses.

    An insert or a read evicts entries only if the eviction task runs in it.
    """
    may_evict = cfg.eviction_task == "immediate" or event.name not in ("insert", *READS)
    if not may_evict and after.counters.evicted_entries != before.counters.evicted_entries:
        return False
    changed = {name for name, a, b in zip(State._fields, before, after, strict=True) if a is not b and a != b}
    # counters[1:5]: entries and bytes of hits and misses
    return changed <= MAY_CHANGE[event.name] and (event.name in READS or before.counters[1:5] == after.counters[1:5])


@always(legacy_manager)
def cache_is_disabled_iff_created_at_maximum_zero(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The use of an absent cache creates the cache; the new cache is disabled if and only if the maximum is 0.

    Only `remove_entry_cache` makes a cache absent. Otherwise a cache stays disabled or enabled.
    """
    for c, (was, now) in enumerate(zip(before.caches, after.caches, strict=True)):
        is_used = event.arguments.get("cache") == c
        if is_used and event.name == "remove_entry_cache":
            expected = "absent"
        elif was == "absent" and is_used and not isinstance(event.outcome, Refused):
            expected = "disabled" if before.max_bytes <= 0 else "enabled"
        else:
            expected = was if isinstance(was, str) else "enabled"
        if (now if isinstance(now, str) else "enabled") != expected:
            return False
    return True


@sometimes(legacy_manager, on=("insert",))
def insert_exceeded_maximum(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An insert makes the total size exceed the maximum."""
    return event.outcome is True and total_bytes(after) > after.max_bytes


@sometimes(legacy_manager, on=("insert",), given=lambda cfg: cfg.eviction_task == "immediate")
def insert_rejected_after_eviction_made_room(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An insert is rejected although its own eviction has freed enough bytes."""
    return event.outcome is False and total_bytes(after) < after.max_bytes <= total_bytes(before)


@sometimes(legacy_manager, on=("run_eviction_task",), given=lambda cfg: cfg.eviction_task == "queued")
def task_used_stale_size(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A task uses the total size at the time of its scheduling, which has changed since."""
    return bool(before.tasks) and before.tasks[0] != total_bytes(before)


@sometimes(legacy_manager)
def eviction_failed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction fails because there is nothing to free or no enabled cache."""
    return isinstance(event.outcome, Failed)


@sometimes(legacy_manager, on=("run_eviction_task",), given=lambda cfg: cfg.eviction_task == "queued")
def task_ended_above_watermark(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A task leaves the total size above the watermark: shares are rounded down, or the total grew after scheduling."""
    target = int(after.max_bytes * after.watermark)
    return isinstance(event.outcome, int) and total_bytes(after) > target


@sometimes(legacy_manager, on=("read",))
def partly_cached_range_read_from_storage(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A range of which some entries are cached is read from storage as a whole."""
    if isinstance(event.outcome, Refused | Failed) or not event.outcome.storage_reads:
        return False
    held = {e.position for e in entries_of(before.caches[event.arguments["cache"]])}
    return any(p in held for p, _ in event.outcome.entries)


@sometimes(legacy_manager, on=READS)
def storage_read_failed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A storage read fails."""
    return not isinstance(event.outcome, Refused | Failed) and event.outcome.outcome == "failed"


@sometimes(legacy_manager)
def cache_was_disabled(cfg: Config, s: State) -> bool:
    """A cache is disabled: it was created while the maximum was zero."""
    return "disabled" in s.caches


@sometimes(legacy_manager)
def cache_stayed_disabled(cfg: Config, s: State) -> bool:
    """A cache is still disabled although the maximum is above zero, and calls have been counted in the metrics."""
    return "disabled" in s.caches and s.max_bytes > 0 and s.counters != Counters()
