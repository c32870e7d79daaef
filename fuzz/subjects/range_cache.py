"""How to drive the range caches."""

from __future__ import annotations

from fuzz.subject import Subject
from impl.range_cache import RangeCaches
from invariants import range_cache as invariants
from model.positions import EARLIEST, Position
from model.range_cache import Config, State, range_cache

#: two ledgers, so that ranges cross them; entries 63 and 64 are the last of one page and the first of the next
POSITIONS = (
    Position(1, 0),
    Position(1, 1),
    Position(1, 2),
    Position(1, 63),
    Position(1, 64),
    Position(2, 0),
    Position(2, 1),
)


def open_copies(cfg: Config, s: State) -> tuple[int, ...]:
    """Copies that can be released or replayed."""
    held = [c for e in s.queue + s.stash if e is not None and e.copies for c in e.copies]
    return (*held, *[c for g in s.loose for c in g.copies])


def thresholds(cfg: Config, s: State) -> tuple[int, ...]:
    """Around the edge of the time to live, and in the future, where a pass meets an entry twice."""
    edge = s.now_ns - cfg.ttl_ns
    return edge, edge + 1, edge - 1, s.now_ns, s.now_ns + 1


def amounts(cfg: Config, s: State) -> tuple[int, ...]:
    """Nothing, little, and around all there is."""
    total = sum(s.sizes)
    return 1, 10, 11, total, total + 1, total // 2, 0


def situation(cfg: Config, s: State) -> str:
    """What the next action should depend on."""
    if len(s.queue) > 6:
        return "full"
    if len(s.loose) > 2:
        return "holding"
    return "" if s.queue else "empty"


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
            most_requeues = e.requeues if e.requeues > most_requeues else most_requeues
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
        len(s.loose) if len(s.loose) < 2 else 2,
        released,
    )


subject = Subject(
    range_cache,
    RangeCaches,
    invariants,
    domains={
        "cache": (0, 1),
        "position": POSITIONS,
        "value_position": POSITIONS[:2],
        "first": (EARLIEST, *POSITIONS),
        "last": POSITIONS,
        "last_inclusive": (True, False),
        "ledger": (1, 2, 3),
        "bytes": (10, 1, 0),
        "expected_reads": (1, 0, 2, 3, -1),
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
        "ttl_ns": (10,),
        "max_bytes": (20, 50, 100),
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
    situation=situation,
    in_situation={
        "empty": {"put": 3, "time_pass": 0.2, "size_pass": 0.2, "get": 0.3, "get_range": 0.3, "remove_range": 0.2},
        "full": {"put": 0.2, "time_pass": 2, "size_pass": 2, "evict_to_watermark": 2},
        "holding": {"release": 4, "replay": 2},
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
    },
    abstract=kind_of_state,
    names=("copy",),
    tla="RangeCache",
)
