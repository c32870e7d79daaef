"""What the broker's cache before the central removal queue promises, and what it was seen to do instead."""

from __future__ import annotations

from itertools import pairwise

from invariants.properties import Event, always, sometimes
from model import watermark
from model.legacy_cache import front_of_size, shares, size
from model.legacy_manager import Config, Counters, State, entries_of, legacy_manager, total_bytes
from model.machine import Failed, Refused

READS = ("read", "read_one")


def entry_count(s: State) -> int:
    """How many entries are cached."""
    return sum(len(entries_of(held)) for held in s.caches)


@always(legacy_manager)
def entries_are_in_order(cfg: Config, s: State) -> bool:
    """A cache holds at most one entry at a position, in the order of positions."""
    held = [entries_of(each) for each in s.caches]
    return all(all(a.position < b.position for a, b in pairwise(each)) for each in held)


@always(legacy_manager)
def what_went_in_came_out_or_is_there(cfg: Config, s: State) -> bool:
    """Every entry that was inserted is cached or was counted as evicted."""
    return s.counters.insertions == s.counters.evicted_entries + entry_count(s)


@always(legacy_manager)
def one_eviction_at_a_time(cfg: Config, s: State) -> bool:
    """At most one eviction task waits, and exactly while an eviction is marked."""
    return len(s.tasks) == int(s.eviction_in_progress) or (cfg.eviction_task == "immediate" and not s.tasks)


@always(legacy_manager)
def counters_never_fall(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A counter never goes back."""
    return all(a >= b for a, b in zip(after.counters, before.counters, strict=True))


@always(legacy_manager, on=("insert",))
def nothing_goes_in_at_the_maximum(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An entry is refused when the caches hold the maximum or more as the call begins (in this generation only)."""
    return event.outcome is not True or total_bytes(before) < before.max_bytes


@always(legacy_manager, on=("insert",))
def an_insert_reports_what_it_did(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An insert reports success exactly when the entry went in."""
    return (event.outcome is True) == (after.counters.insertions == before.counters.insertions + 1)


@always(legacy_manager, on=READS)
def a_read_counts_each_entry_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read that succeeds counts every entry as a hit or as a miss, all alike; one that fails counts none (#20257)."""
    if isinstance(event.outcome, Refused | Failed):
        return True
    was, now = before.counters, after.counters
    hits, misses = now.hit_entries - was.hit_entries, now.miss_entries - was.miss_entries
    got = len(event.outcome.entries)
    return (hits, misses) == ((0, got) if event.outcome.storage_reads else (got, 0))


@always(legacy_manager, on=READS)
def a_read_gives_the_whole_range(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read that succeeds gives every entry of its range, in order."""
    if isinstance(event.outcome, Refused | Failed) or event.outcome.outcome == "failed":
        return True
    asked = event.arguments
    if event.name == "read_one":
        return [p for p, _ in event.outcome.entries] == [asked["position"]]
    return [p.entry for p, _ in event.outcome.entries] == list(range(asked["first"], asked["last"] + 1))


@always(legacy_manager, on=("read_one",))
def a_single_read_stores_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """What a single read brings from storage does not go into the cache."""
    return after.counters.insertions == before.counters.insertions


@always(legacy_manager, on=("run_eviction_task",))
def the_task_takes_whole_shares(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction takes from each cache what the whole part of its share asks for.

    A version that rounds the quotient of two sizes first asks a byte too little now and then, and breaks it.
    """
    if isinstance(event.outcome, Refused | Failed):
        return True
    wanted = watermark.bytes_to_evict(before.tasks[0], before.max_bytes, before.watermark)
    existing = [(c, size(held)) for c, held in enumerate(before.caches) if not isinstance(held, str)]
    asked = dict(shares(existing, wanted, "whole"))
    return all(
        entries_of(after.caches[c]) == entries[front_of_size(entries, asked.get(c, 0)) :]
        for c, entries in enumerate(map(entries_of, before.caches))
    )


@always(legacy_manager, on=("remove_entry_cache",))
def a_removed_cache_holds_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A topic that goes leaves no entry behind."""
    return bool(after.caches[event.arguments["cache"]] == "absent")


@sometimes(legacy_manager, on=("insert",))
def over_the_maximum(cfg: Config, before: State, event: Event, after: State) -> bool:
    """One insert goes past the maximum."""
    return event.outcome is True and total_bytes(after) > after.max_bytes


@sometimes(legacy_manager, on=("insert",), given=lambda cfg: cfg.eviction_task == "immediate")
def refused_though_room_was_made(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An insert is refused for lack of space although the eviction inside it has just made room."""
    return event.outcome is False and total_bytes(after) < after.max_bytes <= total_bytes(before)


@sometimes(legacy_manager, on=("run_eviction_task",), given=lambda cfg: cfg.eviction_task == "queued")
def the_task_aims_at_an_old_size(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A task starts from another size than the caches have by then."""
    return bool(before.tasks) and before.tasks[0] != total_bytes(before)


@sometimes(legacy_manager)
def an_eviction_fails(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An eviction has nothing to aim at, because of the watermark or for lack of caches, and fails."""
    return isinstance(event.outcome, Failed)


@sometimes(legacy_manager, on=("run_eviction_task",), given=lambda cfg: cfg.eviction_task == "queued")
def the_watermark_is_missed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A task ends above the watermark, for shares are rounded down and only the largest caches are asked."""
    target = watermark.share_of(after.max_bytes, after.watermark)
    return isinstance(event.outcome, int) and total_bytes(after) > target


@sometimes(legacy_manager, on=READS)
def a_partly_cached_range_is_read_whole(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A range of which a part is cached is read from storage as a whole."""
    if isinstance(event.outcome, Refused | Failed) or not event.outcome.storage_reads:
        return False
    held = {e.position for e in entries_of(before.caches[event.arguments["cache"]])}
    return any(p in held for p, _ in event.outcome.entries)


@sometimes(legacy_manager, on=READS)
def a_storage_read_fails(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A read from storage fails, and the request with it."""
    return not isinstance(event.outcome, Refused | Failed) and event.outcome.outcome == "failed"


@sometimes(legacy_manager)
def a_disabled_cache(cfg: Config, s: State) -> bool:
    """A cache was created while the maximum was zero."""
    return "disabled" in s.caches


@sometimes(legacy_manager)
def a_cache_is_disabled_below_a_maximum(cfg: Config, s: State) -> bool:
    """A cache stays disabled although the maximum is no longer zero."""
    return "disabled" in s.caches and s.max_bytes > 0 and s.counters != Counters()
