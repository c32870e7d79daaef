"""What the caches before the central removal queue promise, and the weaknesses that they were replaced for.

A weakness is a witness here, not a broken promise: this machine states what those versions did. Run against
the promises of `invariants/range_cache.py` it would fail them; that is why there is a central queue.
"""

from __future__ import annotations

from itertools import pairwise

from invariants.properties import Event, always, sometimes
from model.legacy_cache import Config, Entry, State, legacy_cache, size
from model.machine import Refused
from model.range_cache import NOTHING

REMOVALS = ("remove_range", "invalidate_ledger", "clear", "time_pass", "size_pass")


def gone(before: State, after: State) -> list[list[Entry]]:
    """The entries that left each cache in a step."""
    return [[e for e in was if e not in now] for was, now in zip(before.caches, after.caches, strict=True)]


@always(legacy_cache)
def entries_are_in_order(cfg: Config, s: State) -> bool:
    """A cache holds at most one entry at a position, in the order of positions."""
    return all(all(a.position < b.position for a, b in pairwise(held)) for held in s.caches)


@always(legacy_cache, on=REMOVALS)
def removal_reports_entries_and_bytes_that_left(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A removal reports exactly the entries and bytes that left, and they left the cache that was asked."""
    if isinstance(event.outcome, Refused):
        return True
    left = gone(before, after)
    asked = left[event.arguments["cache"]]
    others = sum(len(each) for each in left) - len(asked)
    return not others and (event.outcome.entries, event.outcome.bytes) == (len(asked), size(tuple(asked)))


@always(legacy_cache, on=("put",))
def duplicate_put_changes_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A put at a taken position reports that and changes nothing."""
    position, cache = event.arguments["position"], event.arguments["cache"]
    if any(e.position == position for e in before.caches[cache]):
        return event.outcome is False and after == before
    return event.outcome is True and len(after.caches[cache]) == len(before.caches[cache]) + 1


@always(legacy_cache, on=("get", "get_range", "exists"))
def reading_changes_nothing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup changes nothing: reading does not protect an entry."""
    return after == before


@always(legacy_cache, on=("get_range",))
def lookup_returns_cached_entries_of_range(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup gives the entries at the asked positions, in order, and nothing else."""
    if isinstance(event.outcome, Refused):
        return True
    asked = event.arguments
    wanted = [
        (e.position, e.bytes) for e in before.caches[asked["cache"]] if asked["first"] <= e.position <= asked["last"]
    ]
    return [tuple(h) for h in event.outcome] == wanted


@always(legacy_cache, on=("get_range", "remove_range"))
def inverted_range_is_empty(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A range whose first position is after its last holds nothing; asking for it is no error.

    A version that gives an error breaks it.
    """
    if event.arguments["first"] <= event.arguments["last"]:
        return True
    return after == before and event.outcome in ((), NOTHING)


@always(legacy_cache, on=("time_pass", "size_pass"))
def a_pass_takes_the_lowest_positions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A pass takes entries from the lowest position on, without leaving one out."""
    cache = event.arguments["cache"]
    was, now = before.caches[cache], after.caches[cache]
    return was[len(was) - len(now) :] == now


@always(legacy_cache, on=("time_pass",))
def time_pass_keeps_unexpired_entries(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A time pass takes no entry that is younger than the threshold; equal counts as expired."""
    threshold = event.arguments["threshold_ns"]
    return all(e.timestamp_ns <= threshold for e in gone(before, after)[event.arguments["cache"]])


@always(legacy_cache, on=("time_pass",))
def a_time_pass_takes_an_expired_head(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a time pass the entry at the lowest position is younger than the threshold."""
    held = after.caches[event.arguments["cache"]]
    return not held or held[0].timestamp_ns > event.arguments["threshold_ns"]


@always(legacy_cache, on=("size_pass",))
def size_pass_frees_requested_bytes(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A size pass of one cache frees what was asked, or all it has, and not more than one entry too much."""
    if isinstance(event.outcome, Refused):
        return True
    wanted, cache = event.arguments["bytes_to_free"], event.arguments["cache"]
    taken = gone(before, after)[cache]
    freed = size(tuple(taken))
    return freed >= min(wanted, size(before.caches[cache])) and (not taken or freed - taken[-1].bytes < wanted)


@always(legacy_cache, on=("evict_proportionally",))
def the_policy_asks_the_largest(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The policy takes from no cache while a larger one of those it was given goes untouched."""
    if isinstance(event.outcome, Refused):
        return True
    asked = {e.cache for e in event.outcome}
    untouched = [size(before.caches[c]) for c in event.arguments["caches"] if c not in asked]
    return all(size(before.caches[c]) >= largest for c in asked for largest in untouched)


@always(legacy_cache, on=("evict_proportionally",))
def the_policy_reports_what_left(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Each eviction that the policy reports is what left that cache, and nothing else left."""
    if isinstance(event.outcome, Refused):
        return True
    left = {c: (len(each), size(tuple(each))) for c, each in enumerate(gone(before, after)) if each}
    return left == {e.cache: tuple(e.removed) for e in event.outcome if e.removed.entries}


@always(legacy_cache, on=("evict_proportionally",))
def a_share_is_a_whole_part(cfg: Config, before: State, event: Event, after: State) -> bool:
    """What the policy asks of a cache is the whole part of its share by size among the largest that make up half.

    A version that rounds the quotient of two sizes first asks a byte too little now and then, and breaks it.
    """
    if isinstance(event.outcome, Refused):
        return True
    largest = sorted((size(before.caches[c]) for c in event.arguments["caches"]), reverse=True)
    chosen = [n for i, n in enumerate(largest) if sum(largest[:i]) < sum(largest) // 2]
    wanted = event.arguments["bytes_to_free"]
    return all(e.bytes_to_free == wanted * size(before.caches[e.cache]) // sum(chosen) for e in event.outcome)


@sometimes(legacy_cache, on=("time_pass",))
def a_young_entry_hides_an_old_one(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a time pass an expired entry is still there, behind a younger one at a lower position."""
    return any(e.timestamp_ns <= event.arguments["threshold_ns"] for e in after.caches[event.arguments["cache"]])


@sometimes(legacy_cache, on=("time_pass",))
def expired_exactly_at_the_threshold(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A time pass takes an entry whose time is exactly the threshold."""
    threshold = event.arguments["threshold_ns"]
    return any(e.timestamp_ns == threshold for e in gone(before, after)[event.arguments["cache"]])


@sometimes(legacy_cache, on=("evict_proportionally",))
def the_policy_frees_less_than_asked(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The policy frees less than it was asked although the caches held more than that."""
    if isinstance(event.outcome, Refused):
        return False
    held = sum(size(before.caches[c]) for c in set(event.arguments["caches"]))
    freed = sum(e.removed.bytes for e in event.outcome)
    return bool(freed < min(event.arguments["bytes_to_free"], held))


@sometimes(legacy_cache, on=("evict_proportionally",))
def several_caches_share(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The policy asks two caches in one round."""
    return not isinstance(event.outcome, Refused) and len(event.outcome) >= 2


@sometimes(legacy_cache, on=("get_range",))
def a_range_over_two_ledgers(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A lookup gives entries of two ledgers."""
    return not isinstance(event.outcome, Refused) and len({h.position.ledger for h in event.outcome}) >= 2
