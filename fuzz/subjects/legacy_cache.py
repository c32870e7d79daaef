"""How to drive the range caches of branch 4.0."""

from __future__ import annotations

from itertools import pairwise

from fuzz.subject import Subject
from impl.legacy_cache import LegacyCaches
from invariants import legacy_cache as invariants
from model.legacy_cache import Config, State, legacy_cache, size
from model.positions import FIRST_POSITION, Position

#: neighbours, another ledger, and an entry id beyond 32 bits
POSITIONS = (Position(1, 0), Position(1, 1), Position(1, 2), Position(2, 0), Position(2, 2**32))


def times(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns timestamps for an added entry: now, 1 ns ago, and one TTL ago."""
    return s.now_ns, s.now_ns - cfg.ttl_ns, s.now_ns - 1


def thresholds(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns timestamps around now minus TTL, and now."""
    edge = s.now_ns - cfg.ttl_ns
    return edge, edge + 1, edge - 1, s.now_ns


def amounts(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns numbers of bytes to free: zero, small ones, the total size, one more, and half of it.

    With 55 and 110, the policy's shares in integers and in doubles often differ (`share_arithmetic`).
    """
    total = sum(size(held) for held in s.caches)
    return 1, 10, 3, total, total + 1, total // 2, 0, 55, 110


def situation(cfg: Config, s: State) -> str:
    """Returns "empty", "" or "full" (more than 10 entries)."""
    held = sum(len(each) for each in s.caches)
    return "full" if held > 10 else "" if held else "empty"


def coverage_key(cfg: Config, s: State) -> tuple[object, ...]:
    """Returns numbers of entries, whether an entry is younger than the next, and whether sizes are equal or zero."""
    fills = sorted((min(len(held), 4) for held in s.caches), reverse=True)
    younger_first = any(a.timestamp_ns > b.timestamp_ns for held in s.caches for a, b in pairwise(held))
    sizes = sorted(size(held) for held in s.caches)
    return (*fills, younger_first, len(set(sizes)) < len(sizes), sizes[0] == 0)


subject = Subject(
    legacy_cache,
    LegacyCaches,
    invariants,
    domains={
        "cache": (0, 1, 2),
        "caches": ((0, 1), (0, 1, 2), (2, 1, 0), (1,), (), (0, 1, 0)),
        "position": POSITIONS,
        "value_position": POSITIONS[:2],
        "first": (FIRST_POSITION, *POSITIONS),
        "last": POSITIONS,
        "last_inclusive": (True, False),
        "ledger": (1, 2, 3),
        "bytes": (5, 6, 1, 0),
        "timestamp_ns": times,
        "threshold_ns": thresholds,
        "bytes_to_free": amounts,
        "nanos": (1, 9, 10, 11),
    },
    settings={"ttl_ns": (10,), "caches": (3,)},
    weights={
        "put": 10,
        "put_mismatched": 0.3,
        "get": 1,
        "get_range": 1,
        "exists": 0.5,
        "remove_range": 0.7,
        "invalidate_ledger": 0.3,
        "clear": 0.2,
        "time_pass": 2,
        "size_pass": 1,
        "evict_proportionally": 2,
        "advance": 3,
    },
    situation=situation,
    in_situation={
        "empty": {"put": 4, "time_pass": 0.3, "size_pass": 0.3, "evict_proportionally": 0.3},
        "full": {"put": 0.4, "time_pass": 2, "evict_proportionally": 2},
    },
    swarms={
        "policy": {"evict_proportionally": 5, "time_pass": 0, "size_pass": 0, "remove_range": 0},
        "time": {"time_pass": 5, "advance": 2, "evict_proportionally": 0, "size_pass": 0},
    },
    abstract=coverage_key,
)
