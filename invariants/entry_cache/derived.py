"""What the properties of the entry cache derive from states and events.

As in the model, `cache` is the number of a topic. `range_cache` and the field `cache` of an `Entry` are numbers of
range caches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from invariants.properties import Event, once_per_state
from model.entry_cache.shared_reads import Held, Part, StorageRead
from model.entry_cache.state import Answered, Config, Reading, Released, State
from model.positions import Position
from model.range_cache import Entry, OrphanedCopies

#: Actions in which storage answers an outstanding read.
STORAGE_ANSWERS = ("complete_storage_read", "answer_oddly")
#: Actions that can issue storage reads, and complete or fail requests.
READINGS = ("read", "read_one", *STORAGE_ANSWERS, "release", "expire_waiting_reads")
#: Actions that change the read count of a delivered copy.
READ_COUNT_CHANGES = ("release", "replay")
#: Actions that run an eviction: the scheduled task and the periodic eviction.
EVICTIONS = ("run_eviction_task", "do_cache_eviction")
#: Actions that remove entries of one topic.
REMOVALS = ("invalidate_entries_before", "invalidate_ledger", "clear_cache", "remove_entry_cache")

#: Range cache and position of an entry.
Key = tuple[int, Position]


@once_per_state
def entries(s: State) -> list[Entry]:
    """Returns all cached entries, in the order of the removal queue."""
    return [e for e in s.ranges.queue if e is not None]


@once_per_state
def by_key(s: State) -> dict[Key, Entry]:
    """Returns all cached entries by range cache and position."""
    return {(e.cache, e.position): e for e in entries(s)}


@once_per_state
def read_counts(s: State) -> dict[int, int | None]:
    """Returns the read count of each copy, open or held."""
    holders: tuple[Entry | OrphanedCopies, ...] = (*entries(s), *s.ranges.orphaned_copies)
    return {copy: holder.expected_reads for holder in holders for copy in holder.copies}


@once_per_state
def copy_groups(s: State) -> list[tuple[int, ...]]:
    """Returns the copies, grouped by the read count handler that they share."""
    holders: tuple[Entry | OrphanedCopies, ...] = (*entries(s), *s.ranges.orphaned_copies)
    return [holder.copies for holder in holders if holder.copies]


def parts_in(part: Part) -> Iterator[Part]:
    """Yields a part and the parts that it consists of, from left to right."""
    yield part
    for each in part.parts:
        yield from parts_in(each)


def held_by(part: Part) -> list[Held]:
    """Returns the entries that a part of a request holds."""
    return [h for each in parts_in(part) for h in each.held]


@once_per_state
def awaited_parts(s: State) -> list[tuple[int, Part]]:
    """Returns the parts of requests that wait for a storage read, with the request's number."""
    return [(q.number, part) for q in s.requests for part in parts_in(q.part) if part.kind == "awaited"]


def answered(event: Event) -> tuple[Answered, ...]:
    """Returns the requests that a step completed or failed, in the order of their completion."""
    return event.outcome.answered if isinstance(event.outcome, Reading | Released) else ()


def read_of(before: State, event: Event) -> StorageRead | None:
    """Returns the outstanding read that a step answers."""
    number = event.arguments["storage_read"]
    return next((r for r in before.reads if r.number == number), None)


def stored_sizes(cfg: Config, cache: int, ledger: int) -> tuple[int, ...]:
    """Returns the sizes of the entries of a ledger in storage; no sizes if the ledger does not exist."""
    rows = (each.entry_bytes for each in reversed(cfg.stored) if (each.cache, each.ledger) == (cache, ledger))
    return next(rows, ())


def asked_range(before: State, event: Event, number: int) -> tuple[int, int, int, int]:
    """Returns topic, ledger, first and last entry of a request pending before a step, or made by the step."""
    for q in before.requests:
        if q.number == number:
            return q.cache, q.ledger, q.part.first, q.part.last
    args = event.arguments
    if event.name == "read_one":
        return args["cache"], args["position"].ledger, args["position"].entry, args["position"].entry
    return args["cache"], args["ledger"], args["first"], args["last"]


def is_above_trigger(s: State) -> bool:
    """Whether the total size is above the eviction trigger, 98 % of the maximum."""
    return s.total_bytes > math.floor(0.98 * s.max_bytes)


def is_above_watermark(s: State) -> bool:
    """Whether the total size is above the watermark, so that a size pass has bytes to free."""
    return s.total_bytes > math.floor(s.watermark * s.max_bytes)


def reads_queued(cfg: Config) -> bool:
    """Whether storage answers a read in a later step."""
    return cfg.storage_reads == "queued"


def limited(cfg: Config) -> bool:
    """Whether the limiter is switched on."""
    return cfg.max_reads_in_flight_bytes > 0


def tasks_queued(cfg: Config) -> bool:
    """Whether eviction tasks run in a later step."""
    return cfg.eviction_task == "queued"
