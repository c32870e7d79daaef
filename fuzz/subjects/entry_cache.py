"""How to drive the entry cache."""

from __future__ import annotations

from fuzz.subject import Subject
from impl.entry_cache import EntryCaches
from invariants import entry_cache as invariants
from model.entry_cache import entry_cache
from model.entry_cache_state import Config, State, Stored
from model.positions import Position

POSITIONS = tuple(Position(ledger, entry) for ledger in (1, 2) for entry in range(6))


def open_copies(cfg: Config, s: State) -> tuple[int, ...]:
    """Copies that can be released or replayed, and the newest one if it is closed: a refusal."""
    held = [c for h in (*s.ranges.queue, *s.ranges.loose) if h is not None and h.copies for c in h.copies if c > 0]
    newest = s.ranges.next_copy - 1
    return (*held, newest) if newest and newest not in held else tuple(held)


def outstanding_reads(cfg: Config, s: State) -> tuple[int, ...]:
    """Reads that storage can answer, and the newest one if it is answered: a refusal."""
    open_reads = tuple([r.number for r in s.reads])
    newest = s.next_read - 1
    return (*open_reads, newest) if newest and newest not in open_reads else open_reads


def kind_of_state(cfg: Config, s: State) -> tuple[object, ...]:
    """What is outstanding and how it is shared, whether an eviction is due, and who waits for permits."""
    kinds = tuple(sorted({q.part.kind for q in s.requests}))
    live = sum([e is not None for e in s.ranges.queue])
    shared = max([len(r.waiting) for r in s.reads], default=0)
    return (
        live if live < 4 else 4,
        kinds,
        len(s.reads) if len(s.reads) < 3 else 3,
        shared if shared < 3 else 3,
        any(not r.joinable for r in s.reads),
        s.marked,
        s.tasks if s.tasks < 2 else 2,
        bool(s.limiter.waiting),
        len(s.limiter.grants) if len(s.limiter.grants) < 3 else 3,
        len(s.owners) > cfg.caches,
        min(s.homes),
    )


subject = Subject(
    entry_cache,
    EntryCaches,
    invariants,
    domains={
        "cache": (0, 1),
        "ledger": (1, 2, 3),
        "position": POSITIONS,
        "first": (0, 1, 2, 3, 4, 5),
        "last": (0, 1, 2, 3, 4, 5, 6),
        "bytes": (10, 1, 0, 40),
        "expected_reads": (1, 0, 2, 3, -1),
        "storage_read": outstanding_reads,
        "success": (True, True, False),
        "entries": (0, 1, 2),
        "oddity": ("short", "twice", "beyond", "other_ledger", "wraps"),
        "count": (1, 2, 0, 3),
        "copy": open_copies,
        "nanos": (1, 9, 10, 11),
        "set_max_cache_bytes.value": (0, 21, 51, 100),
        "set_eviction_watermark.value": (0.0, 0.5, 0.9, 1.0),
        "set_max_requeue_times.value": (0, 1, 2, 5),
        "set_extend_ttl.value": (True, False),
    },
    settings={
        "storage_reads": ("queued", "queued", "immediate"),
        "eviction_task": ("queued", "immediate"),
        "ttl_ns": (10,),
        "max_bytes": (51, 100, 21, 1000, 0),
        "watermark": (0.9, 0.5, 0.0, 1.0),
        "max_requeue_times": (2, 5, 1, 0),
        "extend_ttl_of_recently_accessed": (False, True),
        "max_reads_in_flight_bytes": (0, 0, 150, 300, 1000),
        "permits_timeout_ns": (10, 20),
        "permits_queue_size": (2, 1, 0),
        "stored": (
            (
                Stored(0, 1, (10, 11, 9, 10, 1, 10)),
                Stored(0, 2, (10, 10, 0, 10, 30, 10)),
                Stored(1, 1, (10, 7, 13, 10, 10, 10)),
            ),
        ),
    },
    weights={
        "insert": 6,
        "read": 5,
        "read_one": 1,
        "complete_storage_read": 4,
        "answer_oddly": 0.5,
        "fail_next_storage_reads": 0.2,
        "run_eviction_task": 1,
        "do_cache_eviction": 2,
        "release": 6,
        "replay": 1,
        "invalidate_entries_before": 0.5,
        "invalidate_ledger": 0.3,
        "clear_cache": 0.1,
        "clear_all": 0.05,
        "remove_entry_cache": 0.1,
        "non_evictable_size": 0.2,
        "set_max_cache_bytes": 0.1,
        "set_eviction_watermark": 0.1,
        "set_max_requeue_times": 0.1,
        "set_extend_ttl": 0.1,
        "expire_waiting_reads": 0.3,
        "advance": 6,
    },
    abstract=kind_of_state,
    names=("copy", "storage_read"),
)
