"""Guarantees of the range caches of branch 4.0, before PIP-430.

The policy is `EntryCacheDefaultEvictionPolicy.doEviction`. An entry is expired if its timestamp is the threshold of the
time pass or earlier. The coverage goals show two problems that PIP-430 solves: an expired entry stays cached behind an
unexpired one, and an eviction frees fewer bytes than requested.
"""

from __future__ import annotations

from itertools import pairwise

from invariants.properties import Event, always, sometimes
from model.legacy_cache import Config, Entry, Hit, State, legacy_cache
from model.machine import Refused
from model.positions import Position
from model.range_cache import NOTHING

#: Removals by position; `clear` covers all positions of a cache.
RANGES = ("remove_range", "invalidate_ledger", "clear")
#: Removals by position, and the passes of one cache.
REMOVALS = (*RANGES, "time_pass", "size_pass")


def size(entries: tuple[Entry, ...] | list[Entry]) -> int:
    """Returns the bytes of the entries."""
    return sum(e.bytes for e in entries)


def removed(before: State, after: State) -> list[list[Entry]]:
    """Returns the entries that a step removed, by cache."""
    return [[e for e in was if e not in now] for was, now in zip(before.caches, after.caches, strict=True)]


def without_lowest(entries: tuple[Entry, ...], bytes_to_free: int) -> tuple[Entry, ...]:
    """Returns the entries that remain after the lowest positions are removed until enough bytes are freed."""
    while entries and bytes_to_free > 0:
        bytes_to_free -= entries[0].bytes
        entries = entries[1:]
    return entries


def named(s: State, event: Event) -> Entry | None:
    """Returns the entry at the cache and position that are arguments of an action, or None."""
    held = s.caches[event.arguments["cache"]]
    return next((e for e in held if e.position == event.arguments["position"]), None)


@always(legacy_cache)
def entries_are_ordered_by_position(cfg: Config, s: State) -> bool:
    """The entries of a cache are ordered by position; a cache holds at most one entry at a position."""
    return all(all(a.position < b.position for a, b in pairwise(held)) for held in s.caches)


@always(legacy_cache, on=("put", "put_mismatched"))
def put_stores_entry_as_given(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A successful put adds the entry, with its position, bytes and timestamp, at a position that was not cached.

    The timestamp is the one given, or the current time (`put_mismatched`). A put that returns false or is rejected
    changes nothing.
    """
    if event.outcome is not True:
        return after == before
    given = event.arguments
    entry = Entry(given["position"], given["bytes"], given.get("timestamp_ns", before.now_ns))
    now = list(before.caches)
    now[given["cache"]] = tuple(sorted((*now[given["cache"]], entry)))
    return named(before, event) is None and after == before._replace(caches=tuple(now))


@always(legacy_cache, on=("put", "put_mismatched"))
def put_fails_exactly_for_duplicate_or_mismatch(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A put is rejected if and only if its value has another position; else it returns whether it cached the entry."""
    if event.arguments.get("value_position", event.arguments["position"]) != event.arguments["position"]:
        return isinstance(event.outcome, Refused)
    return event.outcome is (named(before, event) is None)


@always(legacy_cache, on=("get", "get_range", "exists"))
def lookup_changes_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup changes nothing."""
    return after == before


@always(legacy_cache, on=("get", "exists"))
def lookup_returns_cached_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`get` returns position and bytes of the entry, or None; `exists` returns whether the position is cached."""
    found = named(before, event)
    if event.name == "exists":
        return event.outcome is (found is not None)
    return bool(event.outcome == (None if found is None else Hit(found.position, found.bytes)))


@always(legacy_cache, on=("get_range",))
def lookup_returns_cached_entries_of_range(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A range lookup returns exactly the entries in its range, ordered by position."""
    if isinstance(event.outcome, Refused):
        return True
    asked = event.arguments
    held = before.caches[asked["cache"]]
    wanted = [(e.position, e.bytes) for e in held if asked["first"] <= e.position <= asked["last"]]
    return [tuple(h) for h in event.outcome] == wanted


@always(legacy_cache, on=("get_range", "remove_range"))
def inverted_range_is_empty(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A range whose first position is after its last is empty; it is no error."""
    if event.arguments["first"] <= event.arguments["last"]:
        return True
    return after == before and event.outcome in ((), NOTHING)


@always(legacy_cache, on=RANGES)
def removal_removes_exactly_its_range(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`remove_range`, `invalidate_ledger` and `clear` remove exactly a range, a ledger or all entries of a cache."""
    if isinstance(event.outcome, Refused):
        return after == before
    asked = event.arguments

    def covers(at: Position) -> bool:
        if event.name == "remove_range":
            at_end = asked["last_inclusive"] and at == asked["last"]
            return bool(asked["first"] <= at and (at < asked["last"] or at_end))
        return event.name == "clear" or (asked["ledger"], 0) <= at < (asked["ledger"] + 1, 0)

    now = list(before.caches)
    now[asked["cache"]] = tuple(e for e in now[asked["cache"]] if not covers(e.position))
    return after == before._replace(caches=tuple(now))


@always(legacy_cache, on=REMOVALS)
def removal_reports_entries_and_bytes_that_left(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A removal or pass returns number and bytes of the entries that it removes, all of them from its cache."""
    if isinstance(event.outcome, Refused):
        return True
    by_cache = removed(before, after)
    own = by_cache[event.arguments["cache"]]
    others = sum(len(each) for each in by_cache) - len(own)
    return not others and (event.outcome.entries, event.outcome.bytes) == (len(own), size(own))


@always(legacy_cache, on=("time_pass", "size_pass"))
def pass_removes_lowest_positions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A pass removes the lowest positions of its cache: it keeps no entry below one that it removes."""
    cache = event.arguments["cache"]
    was, now = before.caches[cache], after.caches[cache]
    return was[len(was) - len(now) :] == now


@always(legacy_cache, on=("time_pass",))
def time_pass_keeps_unexpired_entries(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A time pass removes only entries whose timestamp is the threshold or earlier."""
    threshold = event.arguments["threshold_ns"]
    return all(e.timestamp_ns <= threshold for e in removed(before, after)[event.arguments["cache"]])


@always(legacy_cache, on=("time_pass",))
def time_pass_removes_expired_head(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a time pass the entry at the lowest position is not expired."""
    held = after.caches[event.arguments["cache"]]
    return not held or held[0].timestamp_ns > event.arguments["threshold_ns"]


@always(legacy_cache, on=("size_pass",))
def size_pass_frees_requested_bytes(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A size pass frees at least the requested bytes, or all bytes of its cache.

    Without the removed entry at the highest position, the size pass would have freed fewer bytes than requested. A size
    pass is rejected if the requested bytes are zero or less.
    """
    wanted, cache = event.arguments["bytes_to_free"], event.arguments["cache"]
    if wanted <= 0:
        return isinstance(event.outcome, Refused)
    gone = removed(before, after)[cache]
    freed = size(gone)
    enough = freed >= min(wanted, size(before.caches[cache]))
    return enough and (not gone or freed - gone[-1].bytes < wanted)


@always(legacy_cache, on=("evict_proportionally",))
def policy_evicts_from_largest_caches(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The policy evicts from a cache only if it also evicts from every larger one of the given caches."""
    if isinstance(event.outcome, Refused):
        return True
    requested = {e.cache for e in event.outcome}
    other_sizes = [size(before.caches[c]) for c in event.arguments["caches"] if c not in requested]
    return all(size(before.caches[c]) >= other for c in requested for other in other_sizes)


@always(legacy_cache, on=("evict_proportionally",))
def policy_reports_entries_that_left(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The policy reports for each cache the number and bytes of exactly the entries that it removes."""
    if isinstance(event.outcome, Refused):
        return True
    by_cache = {c: (len(each), size(each)) for c, each in enumerate(removed(before, after)) if each}
    return by_cache == {e.cache: tuple(e.removed) for e in event.outcome if e.removed.entries}


@always(legacy_cache, on=("evict_proportionally",))
def policy_share_is_truncated_proportion(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The policy requests from each cache its share of the bytes to free, in proportion to its size, rounded down.

    Only the largest of the given caches that together hold half of their bytes, rounded down, have a share. A cache
    whose share is zero is skipped.
    """
    if isinstance(event.outcome, Refused):
        return True
    largest = sorted((size(before.caches[c]) for c in event.arguments["caches"]), reverse=True)
    chosen = [n for i, n in enumerate(largest) if sum(largest[:i]) < sum(largest) // 2]
    wanted = event.arguments["bytes_to_free"]
    shares = [(n, wanted * n // sum(chosen)) for n in chosen if sum(chosen)]
    requested = [(size(before.caches[e.cache]), e.bytes_to_free) for e in event.outcome]
    return sorted(requested, reverse=True) == [(n, share) for n, share in shares if share]


@always(legacy_cache, on=("evict_proportionally",))
def policy_removes_lowest_positions_for_its_requests(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A cache removes its lowest positions until the bytes that the policy requests are freed.

    The other caches keep all entries.
    """
    if isinstance(event.outcome, Refused):
        return after == before
    requested = {e.cache: e.bytes_to_free for e in event.outcome}
    return after.caches == tuple(without_lowest(held, requested.get(c, 0)) for c, held in enumerate(before.caches))


@always(legacy_cache)
def clock_changes_only_by_advance(cfg: Config, before: State, event: Event, after: State) -> bool:
    """`advance` moves the clock by its argument and changes nothing else; no other action moves the clock."""
    if event.name == "advance":
        return after == before._replace(now_ns=before.now_ns + event.arguments["nanos"])
    return after.now_ns == before.now_ns


@sometimes(legacy_cache, on=("time_pass",))
def expired_entry_hidden_behind_unexpired(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a time pass an expired entry is still cached, behind an unexpired entry at a lower position."""
    return any(e.timestamp_ns <= event.arguments["threshold_ns"] for e in after.caches[event.arguments["cache"]])


@sometimes(legacy_cache, on=("time_pass",))
def time_pass_removed_entry_at_threshold(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A time pass removes an entry whose timestamp is exactly the threshold."""
    threshold = event.arguments["threshold_ns"]
    return any(e.timestamp_ns == threshold for e in removed(before, after)[event.arguments["cache"]])


@sometimes(legacy_cache, on=("evict_proportionally",))
def policy_freed_less_than_requested(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The policy frees fewer bytes than requested, and still leaves entries in the caches that it may evict from."""
    if isinstance(event.outcome, Refused):
        return False
    held = sum(size(before.caches[c]) for c in set(event.arguments["caches"]))
    freed = sum(e.removed.bytes for e in event.outcome)
    return bool(freed < min(event.arguments["bytes_to_free"], held))


@sometimes(legacy_cache, on=("evict_proportionally",))
def policy_evicted_from_two_caches(cfg: Config, before: State, event: Event, after: State) -> bool:
    """In one round, the policy divides the bytes to free between two caches or more."""
    return not isinstance(event.outcome, Refused) and len(event.outcome) >= 2


@sometimes(legacy_cache, on=("get_range",))
def range_lookup_crossed_ledgers(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup returns entries of two ledgers or more."""
    return not isinstance(event.outcome, Refused) and len({h.position.ledger for h in event.outcome}) >= 2
