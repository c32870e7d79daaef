"""How to drive the caches of a broker of branch 4.0."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from fuzz.subject import Subject
from impl.legacy_manager import LegacyManager
from invariants import legacy_manager as invariants
from model.legacy_cache import share_of, shares, size
from model.legacy_manager import Config, State, entries_of, legacy_manager, total_bytes
from model.positions import Position

POSITIONS = (
    Position(1, 0),
    Position(1, 1),
    Position(1, 2),
    Position(1, 7),
    Position(2, 0),
    Position(2, 7),
    Position(3, 0),
)


def thresholds(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns timestamps around now minus TTL, and now."""
    edge = s.now_ns - cfg.ttl_ns
    return edge, edge + 1, edge - 1, s.now_ns


#: How many numbers of bytes to free are tried. Caches can have terabytes, because sizes of entries can be wide values.
_TRIED = 1000


def watermarks(cfg: Config, s: State) -> tuple[float, ...]:
    """Returns the watermark with which the queued task frees `bytes_with_different_shares`, or typical ones."""
    wanted = bytes_with_different_shares(s) if s.tasks else 0
    # a task frees the total size at its scheduling (`s.tasks[0]`), minus the watermark in bytes, rounded down
    return ((s.tasks[0] - wanted + 0.5) / s.max_bytes,) if wanted else (0.9, 0.5, 0.0, 0.99, 1.0)


def bytes_with_different_shares(s: State) -> int:
    """Returns a number of bytes for the queued task to free, with which integers and doubles give different shares.

    The rule `share_arithmetic` says which of the two a task uses. Returns 0 if the task does not evict from exactly two
    caches, if there is no such number, or if no watermark makes the task free this number of bytes.
    """
    sizes = sorted(size(entries_of(held)) for held in s.caches)
    selected = shares(list(enumerate(sizes)), sum(sizes), "integers")  # which caches, whatever the number of bytes
    if len(selected) != 2:
        return 0
    wanted = most_bytes_with_different_shares(sizes[selected[0][0]], sizes[selected[1][0]])
    return wanted if 0 <= s.tasks[0] - wanted < s.max_bytes else 0


@lru_cache(maxsize=8192)
def most_bytes_with_different_shares(larger: int, smaller: int) -> int:
    """Returns the largest number of bytes to free with which integers and doubles give different shares.

    The arguments are the sizes of the two caches that share the bytes. Tries the `_TRIED` largest numbers; returns 0 if
    none of them is such a number.
    """
    total = larger + smaller

    def differs(wanted: int) -> bool:
        sizes = (larger, smaller)
        return any(share_of(wanted, n, total, "integers") != share_of(wanted, n, total, "double") for n in sizes)

    return next(filter(differs, range(total, max(0, total - _TRIED), -1)), 0)


def situation(cfg: Config, s: State) -> str:
    """Returns the first of these situations that the state is in; "" if none.

    sharing    a task is queued, and a watermark exists with which integers and doubles give different shares
    evicting   a task is queued
    full       the total size is at the maximum or above, so inserts are rejected
    """
    if s.tasks:
        return "sharing" if bytes_with_different_shares(s) else "evicting"
    return "full" if total_bytes(s) >= s.max_bytes else ""


def coverage_key(cfg: Config, s: State) -> tuple[object, ...]:
    """Returns facts about the caches, the total size, the queued task, storage, and the order of timestamps."""
    # -: the cache is absent or disabled
    fills = sorted("-" if isinstance(held, str) else str(min(len(held), 3)) for held in s.caches)
    total = total_bytes(s)
    return (
        *fills,
        "disabled" in s.caches,
        # 3: above the maximum; 2: at the maximum; 1: above its half; 0: not above
        (total > s.max_bytes) + (total >= s.max_bytes) + (total * 2 > s.max_bytes),
        # the sign of the difference between the size at the scheduling of the task and the size now
        bool(s.tasks) and (s.tasks[0] > total) - (s.tasks[0] < total),
        s.failing_reads > 0,
        any(a.timestamp_ns > b.timestamp_ns for h in s.caches for a, b in pairwise(entries_of(h))),
    )


subject = Subject(
    legacy_manager,
    LegacyManager,
    invariants,
    domains={
        "cache": (0, 1, 2),
        "position": POSITIONS,
        "ledger": (1, 2, 3, 0),
        "first": (0, 1, 6, -1),
        "last": (1, 3, 7, 8),
        "store_in_cache": (True, False),
        "bytes": (9, 1, 9, 1, 9, 1, 25, 0),  # repeated values are drawn more often
        "number": (1, 2, 0),
        "threshold_ns": thresholds,
        "bytes_to_free": (1, 11, 30, 0),
        "nanos": (1, 9, 10, 11),
        "set_max_bytes.value": (50, 100, 0, 20),
        "set_watermark.value": watermarks,
    },
    settings={
        "ttl_ns": (10,),
        "caches": (3, 2, 3),
        "max_bytes": (101, 50, 20, 101, 0),
        "watermark": (0.9, 0.5, 0.1, 0.99),
        "eviction_task": ("queued", "immediate", "queued"),
        # two ledgers of eight entries each, for three topics or for the first topic only
        "storage": ((((10,) * 8, (7, 1, 0, 30, 7, 7, 7, 9)),) * 3, (((10,) * 8, (7, 1, 0, 30, 7, 7, 7, 9)),)),
    },
    weights={
        "insert": 10,
        "read": 3,
        "read_one": 1,
        "fail_next_storage_reads": 0.3,
        "run_eviction_task": 2,
        "time_pass": 1,
        "size_pass": 0.5,
        "invalidate_entries_before": 0.5,
        "invalidate_ledger": 0.3,
        "clear_cache": 0.2,
        "clear_all": 0.1,
        "remove_entry_cache": 0.3,
        "advance": 2,
        "set_max_bytes": 0.3,
        "set_watermark": 0.2,
    },
    situation=situation,
    in_situation={
        "evicting": {"run_eviction_task": 3},
        "sharing": {"run_eviction_task": 20, "set_watermark": 400},  # first the watermark with different shares
        "": {"run_eviction_task": 0.1},
    },
    swarms={
        "publishers": {"read": 0.2, "read_one": 0, "size_pass": 0, "time_pass": 0.2},
        "readers": {"read": 4, "read_one": 2, "insert": 0.3},
        "sharers": {
            "insert": 2,
            "run_eviction_task": 2,
            "read": 0.1,
            "read_one": 0,
            "time_pass": 0.1,
            "size_pass": 0.1,
            "invalidate_entries_before": 0.1,
            "invalidate_ledger": 0.1,
            "remove_entry_cache": 0.1,
            "clear_all": 0,
            "clear_cache": 0.1,
            "advance": 0.2,
        },
    },
    abstract=coverage_key,
)
