"""How to drive the range caches."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fuzz.subject import CoarseModels, Offset, Scope, Subject
from impl.range_cache import RangeCaches
from invariants import range_cache as invariants
from model.machine import Refused, plain
from model.positions import FIRST_POSITION, Position
from model.range_cache import Config, Entry, OrphanedCopies, Removed, State, find, range_cache, start

#: Three ledgers, so that a range can cross one. Entries 63 and 64 end and begin a page; 2**32 exceeds a Java `int`.
POSITIONS = (
    Position(1, 0),
    Position(1, 1),
    Position(1, 6),
    Position(1, 63),
    Position(1, 64),
    Position(2, 0),
    Position(3, 0),
    Position(1, 2**32),
)


def open_copies(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns the open copies, and the newest copy even if it is closed; a release of a closed copy is rejected."""
    held = [c for e in s.queue + s.stash if e is not None and e.copies for c in e.copies]
    held += [c for g in s.orphaned_copies for c in g.copies]
    newest = s.next_copy - 1
    return (*held, newest) if newest and newest not in held else tuple(held)


def thresholds(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns thresholds around now minus TTL, now, and now plus 1.

    A pass with the threshold now plus 1 visits a requeued entry again, because the entry has the timestamp now.
    """
    edge = s.now_ns - cfg.ttl_ns
    return edge, edge + 1, edge - 1, s.now_ns, s.now_ns + 1


def amounts(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns numbers of bytes: small ones, the total size, one more, half of it, and 0 and -1, which are rejected."""
    total = sum(s.sizes)
    return 1, 10, 11, total, total + 1, total // 2, 0, -1


def coverage_key(cfg: Config, s: State) -> tuple[object, ...]:
    """Returns capped numbers and other facts of the entries, detached wrappers, read counts, requeues and copies."""
    live = expecting = most_requeues = 0
    negative = accessed = held = released = False
    for e in s.queue + s.stash:
        if e is not None:
            live += 1
            count = e.expected_reads
            if count is not None:
                expecting += count > 0
                negative |= count < 0
            most_requeues = e.requeue_count if e.requeue_count > most_requeues else most_requeues
            accessed |= e.accessed
            held |= e.copies != ()
            released |= e.released
    detached = len(s.queue) + len(s.stash) - live
    detached_head = bool(s.queue) and s.queue[0] is None
    return (
        live if live < 4 else 4,
        detached if detached < 2 else 2,
        detached_head,
        expecting if expecting < 3 else 3,
        negative,
        accessed,
        most_requeues if most_requeues < 3 else 3,
        held,
        len(s.orphaned_copies) if len(s.orphaned_copies) < 2 else 2,
        released,
    )


# ---- measures that scopes bound -----------------------------------------------------------------------


def slots(s: State) -> int:
    """Returns the number of slots of the queue and the stash, including detached wrappers."""
    return len(s.queue) + len(s.stash)


def open_copies_count(s: State) -> int:
    """Returns the number of open copies."""
    return sum([len(e.copies) for e in s.queue + s.stash if e is not None]) + sum(
        [len(g.copies) for g in s.orphaned_copies]
    )


def age(s: State) -> int:
    """Returns the longest time since the insertion or last requeue of an entry."""
    return max([s.now_ns - e.timestamp_ns for e in s.queue + s.stash if e is not None], default=0)


def counts(s: State) -> list[int]:
    """Returns the read counts of all entries and orphaned copies that have one."""
    return [
        h.expected_reads
        for h in (*s.queue, *s.stash, *s.orphaned_copies)
        if h is not None and h.expected_reads is not None
    ]


def highest_count(s: State) -> int:
    """Returns the largest read count."""
    return max(counts(s), default=0)


def lowest_count(s: State) -> int:
    """Returns the absolute value of the smallest negative read count; 0 if no read count is negative."""
    return -min(counts(s), default=0)


def most_requeues(s: State) -> int:
    """Returns the largest `requeue_count`."""
    return max([e.requeue_count for e in s.queue + s.stash if e is not None], default=0)


NEAR_EXPIRY = Offset("now_ns", (-1, 0, 1))

#: Reasons for the choices that several scopes share.
REASONS = {
    "ttl_ns": "one: the smallest TTL with an age below, at and above it",
    "max_bytes": "the size of two entries, which is above the trigger; an eviction to the watermark leaves one of them",
    "watermark": "one half: exact as a double; the proofs cover rounding",
    "threshold_ns": "now minus the TTL, now, and now plus 1, with which a pass visits a requeued entry again",
    "bytes": "two: a pass can free more than requested; excludes entries of different sizes",
    "bytes_to_free": "less than an entry has, as much, and more",
    "advance.nanos": "the smallest step; a longer step equals several of them",
    "first": "before every entry; excludes ranges that begin between two entries",
    "last": "a range up to each position",
    "slots": "excludes states with a third slot, such as two entries behind a detached wrapper",
    "age": "TTL plus one: an older entry is expired as well; excludes entries that stay longer",
    "requeues": "one more than the maximum; a larger count changes no decision",
    "lowest_count": "minus one: a smaller read count only needs more replays to become positive",
}

SMOKE = Scope(
    actions=("put", "get", "exists", "mark_read", "remove_range", "clear", "time_pass", "size_pass", "advance"),
    settings={"caches": 1, "ttl_ns": 1, "max_requeue_times": 1, "extend_ttl_of_recently_accessed": True},
    domains={
        "position": (Position(1, 0), Position(2, 0)),
        "first": (FIRST_POSITION,),
        "last": (Position(1, 0), Position(2, 0)),
        "last_inclusive": (True,),
        "bytes": (2,),
        "expected_reads": (0, 1),
        "hold": (False,),
        "threshold_ns": NEAR_EXPIRY,
        "bytes_to_free": (1, 2, 3),
        "advance.nanos": (1,),
    },
    bounds={"slots": 2, "age": 2, "lowest_count": 0, "requeues": 2},
    reasons=REASONS
    | {
        "actions": "those that add, read and evict; excludes copies, range lookups, ledgers and dynamic settings",
        "caches": "one: excludes interaction of caches",
        "max_requeue_times": "one: excludes a second requeue for expected reads",
        "extend_ttl_of_recently_accessed": "true: both reasons for a requeue occur",
        "position": "two positions in two ledgers",
        "last_inclusive": "inclusive; the larger scopes also have exclusive ranges",
        "expected_reads": "no read count handler, and one expected read",
        "hold": "false: no copies; mark_read decrements read counts",
        "lowest_count": "zero: excludes negative read counts",
    },
)

CI = Scope(
    actions=(
        "put",
        "get",
        "get_range",
        "release",
        "replay",
        "remove_range",
        "invalidate_ledger",
        "time_pass",
        "size_pass",
        "evict_to_watermark",
        "non_evictable_size",
        "advance",
    ),
    settings={"caches": 2, "ttl_ns": 1, "max_requeue_times": 1, "max_bytes": 4, "watermark": 0.5},
    domains={
        "position": (Position(1, 0),),
        "first": (FIRST_POSITION,),
        "last": (Position(1, 0),),
        "last_inclusive": (True, False),
        "ledger": (1,),
        "bytes": (2,),
        "expected_reads": (0, 1),
        "hold": (True, False),
        "threshold_ns": NEAR_EXPIRY,
        "bytes_to_free": (1, 2, 3),
        "advance.nanos": (1,),
    },
    bounds={"slots": 2, "open_copies": 1, "age": 2, "lowest_count": 1, "highest_count": 2, "requeues": 2},
    reasons=REASONS
    | {
        "actions": "excludes exists, mark_read, clear, mismatched puts, over_release, settings and clock steps",
        "caches": "two: caches share the removal queue",
        "max_requeue_times": "one: excludes a second requeue for expected reads",
        "position": "one in each cache: order and ranges within a cache are in the other scopes",
        "last_inclusive": "inclusive and exclusive",
        "ledger": "the only one",
        "expected_reads": "no read count handler, and one expected read",
        "hold": "with and without a copy",
        "open_copies": "one: excludes copies that share a read count",
        "highest_count": "two: two replays at a read count of 0, or one at 1",
    },
)

NIGHTLY = Scope(
    actions=CI.actions + ("exists", "mark_read", "clear", "set_max_requeue_times"),
    settings=CI.settings,
    domains=dict(CI.domains)
    | {
        "position": (Position(1, 0), Position(2, 0)),
        "last": (Position(1, 0), Position(2, 0)),
        "ledger": (1, 2),
        "set_max_requeue_times.value": (0, 1),
    },
    bounds=CI.bounds,
    reasons=dict(CI.reasons)
    | {
        "actions": "excludes mismatched puts, over_release, set_extend_ttl and clock steps",
        "position": "two in each cache, in two ledgers",
        "ledger": "both ledgers of the scope",
        "set_max_requeue_times.value": "no requeue for expected reads, and one",
    },
)


# ---- the TLA+ twin ------------------------------------------------------------------------------------


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """Returns the state for the twin's variables. The twin counts copies; here copies have numbers, from 1."""
    following = 1

    def numbered(copies: int) -> tuple[int, ...]:
        nonlocal following
        following += copies
        return tuple(range(following - copies, following))

    def entry(e: Mapping[str, Any]) -> Entry:
        fields = {**e, "position": Position(*e["position"]), "copies": numbered(e["copies"])}
        return Entry(**fields)

    queue = tuple(None if slot is None else entry(slot) for slot in variables["queue"])
    stash = tuple(entry(e) for e in variables["stash"])
    # a bag has each element with the number of its occurrences
    bag = dict(variables["orphaned_copies"]) if variables["orphaned_copies"] else {}
    orphaned_copies = [
        OrphanedCopies(numbered(copies), count) for (copies, count), times in bag.items() for _ in range(times)
    ]
    return State(
        now_ns=0,
        queue=queue,
        stash=stash,
        sizes=tuple(variables["sizes"][c] for c in range(cfg.caches)),
        orphaned_copies=tuple(orphaned_copies),
        next_copy=following,
        max_requeue_times=variables["max_requeue_times"],
        extend_ttl_of_recently_accessed=variables["extend_ttl_of_recently_accessed"],
    )


# ---- corrupted states that `check` must reject --------------------------------------------------------


def size_too_large(_cfg: Config, s: State) -> State:
    """The size of the first cache is one byte too large."""
    return s._replace(sizes=(s.sizes[0] + 1, *s.sizes[1:]))


def size_too_small(_cfg: Config, s: State) -> State:
    """The size of the last cache is one byte too small."""
    return s._replace(sizes=(*s.sizes[:-1], s.sizes[-1] - 1))


def entry_queued_twice(_cfg: Config, s: State) -> State | None:
    """An entry has two slots in the queue."""
    live = [e for e in s.queue if e is not None]
    return s._replace(queue=(*s.queue, live[0]), sizes=with_bytes(s, live[0])) if live else None


def with_bytes(s: State, e: Entry) -> tuple[int, ...]:
    """Returns the sizes of the caches with the bytes of an entry added."""
    return s.sizes[: e.cache] + (s.sizes[e.cache] + e.bytes,) + s.sizes[e.cache + 1 :]


def next_copy_number_is_in_use(_cfg: Config, s: State) -> State | None:
    """The next copy number is that of an open copy."""
    copies = [c for h in (*s.queue, *s.stash, *s.orphaned_copies) if h is not None for c in h.copies]
    return s._replace(next_copy=max(copies)) if copies else None


def copy_numbers_restart(_cfg: Config, s: State) -> State | None:
    """Copies are open, and the next copy number is 0."""
    return s._replace(next_copy=0) if open_copies_count(s) else None


def changes_nothing(cfg: Config, action: str, outcome: Any) -> bool:
    """Returns whether an action with this plain outcome changes no state.

    With `released_value_stays_counted`, a removal may remove an entry that its outcome does not count.
    """
    if action in ("remove_range", "invalidate_ledger", "clear"):
        return outcome == {"entries": 0, "bytes": 0} and not cfg.released_value_stays_counted
    return action == "exists" or (action == "mark_read" and outcome is None)


# ---- outlines and representatives of states, for the check of concurrent histories -----------------------


def outline_of(cfg: Config, s: State, key: tuple[int, Position]) -> State:
    """Returns the outline of a state for a key: the bytes of the entry, and whether its value is deallocated.

    A key is a cache and a position.
    """
    e = find(s, *key)
    return start(cfg)._replace(queue=() if e is None else (Entry(*key, e.bytes, None, (), 0, 0, False, e.released),))


def key_of(action: str, arguments: tuple[Any, ...]) -> tuple[int, Position] | None:
    """Returns the key of an action on one position; None for other actions."""
    has_key = action in ("put", "put_mismatched", "get", "exists", "mark_read", "over_release")
    return arguments[:2] if has_key else None


#: Actions that evict from any cache.
PASSES = ("time_pass", "size_pass", "evict_to_watermark")


def concerns(cfg: Config, key: tuple[int, Position], action: str, arguments: tuple[Any, ...], outcome: Any) -> bool:
    """Returns whether an action with this outcome depends on the entry at the key, or may change the entry."""
    if action in PASSES:
        return cfg.released_value_stays_counted or outcome != {"entries": 0, "bytes": 0}
    if action not in ("get_range", "remove_range", "invalidate_ledger", "clear"):
        return key == key_of(action, arguments)
    (cache, *within), (of_cache, position) = arguments, key  # `within`: first and last position of a range
    is_outside = len(within) > 1 and not within[0] <= position <= within[1]
    return cache == of_cache and not is_outside


def after_call(
    cfg: Config, s: State, key: tuple[int, Position], action: str, arguments: tuple[Any, ...], outcome: Any
) -> Iterator[State]:
    """Yields the outlines that are possible after an action; none if the action cannot have this plain outcome.

    `s` is the outline before the action, a state with at most the entry at the key. The action is taken in `s`. Only
    the part of the outcome that this entry determines is compared. A pass may evict the entry or not.
    """
    after, alone = range_cache.step(cfg, s, action, arguments)
    expected, position = plain(alone), plain(key[1])
    try:
        if action in PASSES:
            yield s
            if s.queue:
                yield start(cfg)
            return
        if isinstance(alone, Removed):
            is_possible = all(outcome[each] >= expected[each] for each in expected)
        elif action == "get_range" and not isinstance(alone, Refused):
            hits = [[hit["bytes"] for hit in each if hit["position"] == position] for each in (outcome, expected)]
            is_possible = hits[0] == hits[1]
        elif action == "get" and outcome is not None:
            is_possible = expected is not None and outcome["bytes"] == expected["bytes"]
        elif action == "mark_read":
            is_possible = (outcome is None) is (expected is None)
        else:
            is_possible = bool(outcome == expected)
    except (KeyError, TypeError):  # no outcome of this action
        return
    if is_possible:
        yield outline_of(cfg, after, key)


def without_hidden_order(cfg: Config, later: Iterable[tuple[str, Mapping[str, Any]]]) -> Callable[[State], State]:
    """Returns a function from a state to its representative. `later` are the actions that may follow.

    The representative lacks what no later action distinguishes. Detached wrappers are dropped. Each timestamp is
    rounded down to a threshold of a later time pass; a timestamp below all thresholds becomes the lowest one minus 1.
    If no size pass may follow, adjacent entries with equal timestamps are sorted: a time pass visits all of them or
    none.
    """
    if cfg.retention == "stash" or not cfg.size_pass_requeues_expired:
        return lambda s: s  # with either rule, size passes compare timestamps with the clock
    calls = list(later)
    thresholds = sorted({arguments["threshold_ns"] for action, arguments in calls if action == "time_pass"})
    earliest = thresholds[0] - 1 if thresholds else 0
    is_sorted = not any(action in ("size_pass", "evict_to_watermark") for action, _ in calls)
    kept = {earliest, *thresholds}

    def rounded_down(e: Entry) -> Entry:
        at = bisect.bisect_right(thresholds, e.timestamp_ns)
        return e._replace(timestamp_ns=thresholds[at - 1] if at else earliest)

    def representative(s: State) -> State:
        queue = [e if e.timestamp_ns in kept else rounded_down(e) for e in s.queue if e is not None]
        if is_sorted:
            queue = [e for _, run in itertools.groupby(queue, lambda e: e.timestamp_ns) for e in sorted(run)]
        return s._replace(queue=tuple(queue))

    return representative


subject = Subject(
    range_cache,
    RangeCaches,
    invariants,
    domains={
        "cache": (0, 1, 2),
        "position": POSITIONS,
        "value_position": POSITIONS[:2],
        "first": (FIRST_POSITION, *POSITIONS),
        "last": POSITIONS,
        "last_inclusive": (True, False),
        "ledger": (1, 2, 3),
        "bytes": (10, 1, 0),
        "expected_reads": (1, 0, 2, 3, -1, 200),
        "hold": (True, False),
        "copy": open_copies,
        "delivered": (True, False),
        "threshold_ns": thresholds,
        "bytes_to_free": amounts,
        "advance.nanos": (1, 9, 10, 11),
        "set_max_requeue_times.value": (0, 1, 2, 5),
        "set_extend_ttl.value": (True, False),
        "step_clock_back.nanos": (),  # never taken: only recordings have it, for a race of two puts
    },
    settings={
        "caches": (2, 3),
        "ttl_ns": (10,),
        "max_bytes": (21, 11, 100, 51),
        "watermark": (0.9, 0.5, 0.0, 1.0),
        "max_requeue_times": (2, 5, 1, 0),
        "extend_ttl_of_recently_accessed": (False, True),
    },
    weights={
        "put": 6,
        "put_mismatched": 0.2,
        "get": 7,
        "get_range": 0.8,
        "exists": 0.7,
        "release": 2,
        "replay": 1,
        "mark_read": 1.5,
        "remove_range": 0.6,
        "invalidate_ledger": 0.2,
        "clear": 0.1,
        "time_pass": 2.5,
        "size_pass": 0.8,
        "evict_to_watermark": 0.6,
        "non_evictable_size": 0.3,
        "advance": 6,
        "set_max_requeue_times": 0.1,
        "set_extend_ttl": 0.1,
        "over_release": 0.1,
    },
    swarms={
        "lookups": {
            "get": 5,
            "get_range": 3,
            "release": 3,
            "replay": 3,
            "remove_range": 0,
            "clear": 0,
            "invalidate_ledger": 0,
        },
        "removals": {"remove_range": 6, "invalidate_ledger": 4, "clear": 2, "get": 0.3},
        "pressure": {"size_pass": 6, "evict_to_watermark": 4, "time_pass": 0},
        "expiry": {"advance": 3, "time_pass": 3, "size_pass": 0, "evict_to_watermark": 0},
        "deallocated_values": {"over_release": 20},
        "long_queue": {
            "put": 20,
            "remove_range": 2,
            "time_pass": 0.05,
            "size_pass": 0.05,
            "evict_to_watermark": 0.05,
            "non_evictable_size": 0.1,
        },
        "read_counts": {
            "mark_read": 8,
            "replay": 6,
            "non_evictable_size": 6,
            "get": 2,
            "advance": 0.3,
            "time_pass": 0.1,
            "size_pass": 0.1,
            "evict_to_watermark": 0.1,
            "remove_range": 0.2,
            "invalidate_ledger": 0.2,
        },
    },
    guidance={
        "weights": "used: without weights, the median of steps to find a seeded bug doubles, and one bug is not found",
        "swarms": "used: without swarms, one seeded bug is not found; the median hardly changes",
        "situations": "not used: with weights that depend on the state, the median is not lower",
        "corpus": "not used: traces that begin like an earlier trace with new coverage needed more steps",
    },
    abstract=coverage_key,
    measures={
        "slots": slots,
        "open_copies": open_copies_count,
        "age": age,
        "highest_count": highest_count,
        "lowest_count": lowest_count,
        "requeues": most_requeues,
    },
    scopes={"smoke": SMOKE, "ci": CI, "nightly": NIGHTLY},
    coarse_models=CoarseModels(outline_of, after_call, key_of, concerns),
    reduction=without_hidden_order,
    corrupt={
        "size_too_large": size_too_large,
        "size_too_small": size_too_small,
        "entry_queued_twice": entry_queued_twice,
        "next_copy_number_is_in_use": next_copy_number_is_in_use,
        "copy_numbers_restart": copy_numbers_restart,
    },
    largest={"max_requeue_times": 300, "set_max_requeue_times.value": 300},  # a pass visits an entry that many times
    unchanged=changes_nothing,
    tla="RangeCache",
    from_tla=from_tla,
)
