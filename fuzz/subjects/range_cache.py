"""How to drive the range caches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuzz.subject import Offset, Scope, Subject
from impl.range_cache import RangeCaches
from invariants import range_cache as invariants
from model.positions import EARLIEST, Position
from model.range_cache import Config, Entry, OrphanedCopies, State, range_cache

#: three ledgers, so that ranges cross one; entries 63 and 64 are the last of one page and the first of the next,
#: and 2**32, on a third page, does not fit an int
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
    """Copies that can be released or replayed, and the newest one if it is closed: a refusal."""
    held = [c for e in s.queue + s.stash if e is not None and e.copies for c in e.copies]
    held += [c for g in s.orphaned_copies for c in g.copies]
    newest = s.next_copy - 1
    return (*held, newest) if newest and newest not in held else tuple(held)


def thresholds(cfg: Config, s: State) -> tuple[int, ...]:
    """Around the edge of the time to live, and in the future, where a pass meets an entry twice."""
    edge = s.now_ns - cfg.ttl_ns
    return edge, edge + 1, edge - 1, s.now_ns, s.now_ns + 1


def amounts(cfg: Config, s: State) -> tuple[int, ...]:
    """Less than nothing, nothing, little, and around all there is."""
    total = sum(s.sizes)
    return 1, 10, 11, total, total + 1, total // 2, 0, -1


def kind_of_state(cfg: Config, s: State) -> tuple[object, ...]:
    """How full, whether extensions are due or used up, what is detached, and what is held."""
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


# ---- bounds for the engines that visit every state -----------------------------------------------------


def slots(s: State) -> int:
    """Places in the queue and the stash, DETACHED ones included."""
    return len(s.queue) + len(s.stash)


def open_copies_count(s: State) -> int:
    """Open copies."""
    return sum([len(e.copies) for e in s.queue + s.stash if e is not None]) + sum(
        [len(g.copies) for g in s.orphaned_copies]
    )


def age(s: State) -> int:
    """Nanoseconds since the oldest entry was put, or put back."""
    return max([s.now_ns - e.timestamp_ns for e in s.queue + s.stash if e is not None], default=0)


def counts(s: State) -> list[int]:
    """All counters that are defined."""
    return [
        h.expected_reads
        for h in (*s.queue, *s.stash, *s.orphaned_copies)
        if h is not None and h.expected_reads is not None
    ]


def highest_count(s: State) -> int:
    """The largest counter."""
    return max(counts(s), default=0)


def lowest_count(s: State) -> int:
    """How far below zero a counter is."""
    return -min(counts(s), default=0)


def most_requeues(s: State) -> int:
    """How often an entry was put back."""
    return max([e.requeue_count for e in s.queue + s.stash if e is not None], default=0)


NEAR_EXPIRY = Offset("now_ns", (-1, 0, 1))

#: Why the scopes are as they are; each scope adds what is its own.
WHY = {
    "actions": "put_mismatched only adds a refusal to put; over_release and step_clock_back are left to fuzzing",
    "ttl_ns": "one is the least time to live with an age below, at and above it",
    "max_bytes": "the bytes of two entries, which are over the trigger; the watermark leaves one of them",
    "watermark": "a half is a fraction that a double holds exactly; rounding is a matter of the proofs",
    "threshold_ns": "the oldest age that stays, now, and the future, where a pass meets an entry twice",
    "bytes": "two, so that a pass can free more than it was asked; hides entries of different sizes",
    "bytes_to_free": "less than, as much as and more than an entry",
    "advance.nanos": "the least step; longer ones are several of it",
    "first": "ranges from the earliest position: a range that begins between two entries is left to fuzzing",
    "last": "up to either position",
    "slots": "hides what takes a third slot, such as two live entries behind a detached one",
    "age": "older than the time to live is expired all the same; hides only what stays unevicted longer",
    "requeues": "more requeues than the maximum make no difference; access alone can bring an entry there",
    "lowest_count": "a counter below minus one behaves as minus one until it is replayed that much more often",
}

SMOKE = Scope(
    actions=("put", "get", "exists", "mark_read", "remove_range", "clear", "time_pass", "size_pass", "advance"),
    settings={"caches": 1, "ttl_ns": 1, "max_requeue_times": 1, "extend_ttl_of_recently_accessed": True},
    domains={
        "position": (Position(1, 0), Position(2, 0)),
        "first": (EARLIEST,),
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
    reasons=WHY
    | {
        "actions": "what eviction needs, without copies, ranges of lookups, ledgers and settings that change",
        "caches": "one: hides what one cache does to another",
        "max_requeue_times": "one extension: hides that there may be several",
        "extend_ttl_of_recently_accessed": "on, so that both reasons for an extension are there",
        "position": "two, in two ledgers",
        "last_inclusive": "inclusive only; the exclusive end is in the larger scopes",
        "expected_reads": "without a counter, and expecting one read",
        "hold": "no copies: counters are lowered by mark_read alone",
        "lowest_count": "counters do not go below zero here",
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
        "first": (EARLIEST,),
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
    reasons=WHY
    | {
        "caches": "two: what one cache does to another",
        "max_requeue_times": "one extension: hides that there may be several",
        "position": "one in each cache: order and ranges within a cache are in the other scopes",
        "last_inclusive": "both ends, inclusive and exclusive",
        "ledger": "the one that there is",
        "expected_reads": "without a counter, and expecting one read",
        "hold": "with and without a copy",
        "open_copies": "one: hides copies that share a counter with each other",
        "highest_count": "two replays of an entry that expects none, or one of an entry that expects one",
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
        "position": "two in each of two caches, in two ledgers",
        "ledger": "those that there are",
        "set_max_requeue_times.value": "switched off, and one extension",
    },
)


# ---- the twin's states --------------------------------------------------------------------------------


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """A state of the TLA+ twin, which has a number of copies where the model has their numbers."""
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


# ---- states that `check` must not let pass ------------------------------------------------------------


def more_bytes(s: State) -> State:
    """The first cache says a byte too much."""
    return s._replace(sizes=(s.sizes[0] + 1, *s.sizes[1:]))


def fewer_bytes(s: State) -> State:
    """The last cache says a byte too little."""
    return s._replace(sizes=(*s.sizes[:-1], s.sizes[-1] - 1))


def an_entry_twice(s: State) -> State | None:
    """An entry stands in the queue a second time."""
    live = [e for e in s.queue if e is not None]
    return s._replace(queue=(*s.queue, live[0]), sizes=with_bytes(s, live[0])) if live else None


def with_bytes(s: State, e: Entry) -> tuple[int, ...]:
    """The sizes with an entry's bytes once more."""
    return s.sizes[: e.cache] + (s.sizes[e.cache] + e.bytes,) + s.sizes[e.cache + 1 :]


def a_number_not_given(s: State) -> State | None:
    """The highest number of an open copy is still to be given."""
    copies = [c for h in (*s.queue, *s.stash, *s.orphaned_copies) if h is not None for c in h.copies]
    return s._replace(next_copy=max(copies)) if copies else None


def numbers_begin_again(s: State) -> State | None:
    """Numbers that were given are to be given again."""
    return s._replace(next_copy=0) if open_copies_count(s) else None


subject = Subject(
    range_cache,
    RangeCaches,
    invariants,
    domains={
        "cache": (0, 1, 2),
        "position": POSITIONS,
        "value_position": POSITIONS[:2],
        "first": (EARLIEST, *POSITIONS),
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
        "step_clock_back.nanos": (),  # a race of two puts, recorded once; it breaks the order of time by design
    },
    settings={
        "caches": (2, 3),
        "ttl_ns": (10,),
        "max_bytes": (21, 51, 100),
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
        "readers": {
            "get": 5,
            "get_range": 3,
            "release": 3,
            "replay": 3,
            "remove_range": 0,
            "clear": 0,
            "invalidate_ledger": 0,
        },
        "movers": {"remove_range": 6, "invalidate_ledger": 4, "clear": 2, "get": 0.3},
        "pressure": {"size_pass": 6, "evict_to_watermark": 4, "time_pass": 0},
        "patience": {"advance": 3, "time_pass": 3, "size_pass": 0, "evict_to_watermark": 0},
        "broken": {"over_release": 20},
        "crowd": {
            "put": 20,
            "remove_range": 2,
            "time_pass": 0.05,
            "size_pass": 0.05,
            "evict_to_watermark": 0.05,
            "non_evictable_size": 0.1,
        },
        "counting": {
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
        "weights": "used: without them the median of steps to kill doubles, and one planted bug is never found",
        "swarms": "used: the median hardly moves, but without them one planted bug is never found",
        "situations": "not used: weights that changed with the state did not shorten the median",
        "corpus": "not used to generate: traces that began as one that had met something new took longer",
    },
    abstract=kind_of_state,
    measures={
        "slots": slots,
        "open_copies": open_copies_count,
        "age": age,
        "highest_count": highest_count,
        "lowest_count": lowest_count,
        "requeues": most_requeues,
    },
    scopes={"smoke": SMOKE, "ci": CI, "nightly": NIGHTLY},
    corrupt={
        "more_bytes": more_bytes,
        "fewer_bytes": fewer_bytes,
        "an_entry_twice": an_entry_twice,
        "a_number_not_given": a_number_not_given,
        "numbers_begin_again": numbers_begin_again,
    },
    names=("copy",),
    tla="RangeCache",
    from_tla=from_tla,
)
