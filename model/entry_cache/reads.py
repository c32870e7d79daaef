"""How a request gets its entries once it has permits (`RangeEntryCacheImpl.doAsyncReadEntriesByPosition`).

Used by `model/entry_cache/machine.py`; `model/entry_cache/shared_reads.py` describes requests and their parts. A
request is a call of a reader. To hold an entry is to make a copy of it for a pending request. A storage read is
outstanding until storage answers; several requests may wait for one storage read.

    read_range        holds cached entries and reads each gap
    join_or_read      joins an outstanding read (`PendingReadsManager`), or reads from storage
    receive_entries   holds entries from storage for all waiting requests, and caches them if reads are expected
    settle            when all parts of a range are settled ("found" or "failed"): completes the range, if all entries
                      are held; otherwise releases the held copies, and fails the range or reads it again
    deliver           completes a request: its held copies become open copies of the reader

`range_cache` is the number of a range cache. The field `cache` of an `Entry` is such a number, too. The field `cache`
of a `Request` or a `StorageRead` is the number of a topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from model import range_cache as ranges
from model.entry_cache import reads_limiter as limiter
from model.entry_cache.eviction import entry_added, insert_duplicate
from model.entry_cache.shared_reads import (
    Held,
    Part,
    Request,
    StorageRead,
    all_held,
    awaited,
    candidate,
    is_complete,
    is_settled,
    split,
    without_joining,
)
from model.entry_cache.state import DISABLED, Answered, Config, Delivered, Issued, Reading, State, derived
from model.positions import Position
from model.range_cache import Entry, OrphanedCopies

#: A cached entry or a group of orphaned copies: each has copies that share a read count.
Holder = TypeVar("Holder", Entry, OrphanedCopies)


class Effects(NamedTuple):
    """Storage reads that a step issued, and requests that it completed or failed; the lists grow during the step."""

    issued: list[Issued]
    answered: list[Answered]


# ---- reading ----------------------------------------------------------------------------


def begin(cfg: Config, s: State, request: Request, effects: Effects) -> State:
    """Reads the range of a request that has been granted its permits. The request then waits, completes or fails."""
    first, last = request.part.first, request.part.last
    s, part = read_range(cfg, s, request, first, last, effects)
    return continue_request(cfg, s, request._replace(part=part), effects)


def read_range(cfg: Config, s: State, request: Request, first: int, last: int, effects: Effects) -> tuple[State, Part]:
    """Holds the cached entries of a range, sets their `accessed`, and reads each gap between or beside them.

    Returns the state, and the part of the request for this range.
    """
    if request.range_cache == DISABLED:
        return join_or_read(cfg, s, request, first, last, effects)
    found = cached_range(s.ranges, request.range_cache, request.ledger, first, last)
    if not found:
        return join_or_read(cfg, s, request, first, last, effects)
    parts: list[Part] = []
    number, following, gaps = s.next_held, first, []  # next copy, next entry id, indices of gaps in parts
    looked_up: dict[int, Entry] = {}  # id() of a found entry -> the entry with its new copy
    for e in found:
        entry = e.position.entry
        if entry > following:
            gaps.append(len(parts))
            parts.append(Part("awaited", following, entry - 1))  # a placeholder, without a read; replaced below
        # The new number is the lowest so far, so the copies stay in ascending order.
        looked_up[id(e)] = e._replace(accessed=True, copies=(number, *e.copies))
        parts.append(Part("found", entry, entry, held=(Held(entry, e.bytes, number),)))
        number, following = number - 1, entry + 1
    caches = s.ranges._replace(queue=tuple([looked_up.get(id(e), e) for e in s.ranges.queue]))
    if following <= last:
        gaps.append(len(parts))
        parts.append(Part("awaited", following, last))
    counters = s.counters._replace(
        hit_entries=s.counters.hit_entries + len(found),
        hit_bytes=s.counters.hit_bytes + sum([e.bytes for e in found]),
    )
    s = s._replace(ranges=caches, next_held=number, counters=counters)
    if not gaps:
        return s, Part("found", first, last, held=all_held(tuple(parts)))
    for i in gaps:
        s, parts[i] = join_or_read(cfg, s, request, parts[i].first, parts[i].last, effects)
    return s, Part("mixed", first, last, parts=tuple(parts))


def cached_range(caches: ranges.State, range_cache: int, ledger: int, first: int, last: int) -> list[Entry]:
    """Returns the entries of a range of a ledger that are in a range cache, in order."""
    cached = [e for e in caches.queue if e is not None and e.cache == range_cache and e.position.ledger == ledger]
    return sorted([e for e in cached if first <= e.position.entry <= last])


def join_or_read(
    cfg: Config, s: State, request: Request, first: int, last: int, effects: Effects
) -> tuple[State, Part]:
    """`PendingReadsManager.readEntries`: joins an outstanding read that overlaps the range, or issues a storage read.

    If the outstanding read covers only a part of the range, `read_range` reads the rest, which the cache may have by
    now. Returns the state, and the part of the request for this range.
    """
    joined = candidate(s.reads, request.range_cache, request.ledger, first, last) if request.range_cache >= 0 else None
    if joined is None:
        return read_from_storage(cfg, s, request, first, last, effects)
    reads = tuple([r._replace(waiting=(*r.waiting, request.number)) if r is joined else r for r in s.reads])
    s = s._replace(reads=reads)
    parts: list[Part] = []
    left, common, right = split(joined, first, last)
    for low, high in (left, common, right):
        if (low, high) == common:
            parts.append(Part("awaited", low, high, joined.number))
        elif low <= high:  # otherwise the range does not extend beyond the read on this side
            s, part = read_range(cfg, s, request, low, high, effects)
            parts.append(part)
    return s, parts[0] if len(parts) == 1 else Part("joined", first, last, parts=tuple(parts))


def read_from_storage(
    cfg: Config, s: State, request: Request, first: int, last: int, effects: Effects
) -> tuple[State, Part]:
    """Issues a storage read of a range; storage answers in this step or later (`storage_reads`).

    Returns the state, and the part of the request for this range.
    """
    number = s.next_read
    effects.issued.append(Issued(number, request.cache, request.ledger, first, last))
    storage_read = StorageRead(
        number=number,
        range_cache=request.range_cache,
        cache=request.cache,
        ledger=request.ledger,
        first=first,
        last=last,
        expected_reads=request.expected_reads,
        joinable=request.range_cache >= 0,
        waiting=(request.number,),
    )
    if cfg.storage_reads == "queued":
        s = s._replace(reads=(*s.reads, storage_read), next_read=number + 1)
        return s, Part("awaited", first, last, number)
    s = s._replace(next_read=number + 1)
    if s.failing:
        return s._replace(failing=s.failing - 1), Part("failed", first, last)
    s, held = receive_entries(cfg, s, storage_read, last - first + 1, ((first, last),))
    return s, Part("found", first, last, held=held[0])


# ---- answers of storage -------------------------------------------------------------------------------


def receive_entries(
    cfg: Config, s: State, storage_read: StorageRead, entry_count: int, wanted: tuple[tuple[int, int], ...]
) -> tuple[State, list[tuple[Held, ...]]]:
    """`readFromStorage`: holds copies of the entries for the waiting parts; caches the entries if reads are expected.

    Storage has returned the first `entry_count` entries of the read. `wanted` has the first and last entry of each
    waiting part. Returns the state, and for each of these parts the held copies of its entries. If reads are expected,
    an entry and its copies share one read count handler; otherwise, and in a disabled cache, they have none.
    """
    stored = derived(cfg).stored[storage_read.cache, storage_read.ledger]
    expected_reads = storage_read.expected_reads if storage_read.range_cache >= 0 else 0
    count = ranges.initial_count(derived(cfg).ranges, expected_reads)
    held: list[list[Held]] = [[] for _ in wanted]
    orphaned_copies: list[OrphanedCopies] = []
    number = s.next_held
    for entry in range(storage_read.first, storage_read.first + entry_count):
        copies: list[int] = []
        for held_by_part, (first, last) in zip(held, wanted, strict=True):
            if first <= entry <= last:
                held_by_part.append(Held(entry, stored[entry], number))
                copies.insert(0, number)  # in ascending order
                number -= 1
        if ranges.has_expected_reads(count):
            position = Position(storage_read.ledger, entry)
            s = insert_read_entry(cfg, s, storage_read, position, stored[entry], count, tuple(copies))
        elif copies:
            orphaned_copies.append(OrphanedCopies(tuple(copies), count))
    if orphaned_copies:
        s = s._replace(
            ranges=s.ranges._replace(orphaned_copies=tuple(sorted((*s.ranges.orphaned_copies, *orphaned_copies))))
        )
    counters = s.counters._replace(
        miss_entries=s.counters.miss_entries + entry_count,
        miss_bytes=s.counters.miss_bytes + sum(stored[storage_read.first : storage_read.first + entry_count]),
    )
    return s._replace(counters=counters, next_held=number), [tuple(each) for each in held]


def insert_read_entry(
    cfg: Config,
    s: State,
    storage_read: StorageRead,
    position: Position,
    size: int,
    count: int | None,
    copies: tuple[int, ...],
) -> State:
    """Inserts an entry from storage into its range cache.

    If an entry at its position is cached, the entry from storage is a duplicate (`insert_duplicate`).
    """
    present = ranges.find(s.ranges, storage_read.range_cache, position)
    if present is not None:
        return s._replace(ranges=insert_duplicate(cfg, s.ranges, present, count, copies))
    added = Entry(
        cache=storage_read.range_cache,
        position=position,
        bytes=size,
        expected_reads=count,
        copies=copies,
        timestamp_ns=s.ranges.now_ns,
        requeue_count=0,
        accessed=False,
        released=False,
    )
    return entry_added(cfg, s, added)


def cache_unexpected_entry(cfg: Config, s: State, r: StorageRead, position: Position) -> State:
    """Inserts an unexpected entry at its own position into the range cache of the read, if reads are expected.

    The entry has the size that `Config.stored` has for its position, or one byte if `Config.stored` lacks the position.
    """
    count = ranges.initial_count(derived(cfg).ranges, r.expected_reads if r.range_cache >= 0 else 0)
    if not ranges.has_expected_reads(count):
        return s
    stored = derived(cfg).stored.get((r.cache, position.ledger), ())
    size = stored[position.entry] if position.entry < len(stored) else 1
    return insert_read_entry(cfg, s, r, position, size, count, ())


def answer(
    cfg: Config, s: State, r: StorageRead, entry_count: int | None, unexpected: Sequence[Position] = ()
) -> tuple[State, Reading]:
    """Returns state and effects after storage answers a read with the first `entry_count` entries of the read's range.

    If `entry_count` is None, the read fails. `unexpected` has the positions of further entries of the answer; these
    entries are cached if reads are expected. The waiting requests continue in the order of their arrival.
    """
    s = s._replace(reads=tuple([each for each in s.reads if each is not r]))
    numbers = tuple(dict.fromkeys(r.waiting))
    requests = {request.number: request for request in s.requests}
    # By request, and in each request from left to right: `with_results` takes the results in this order.
    waiting_parts = [part for number in numbers for part in awaiting(requests[number].part, r.number)]
    if entry_count is None:
        s = s._replace(reads=without_joining(s.reads, r.range_cache, r.ledger)) if r.range_cache >= 0 else s
        results = [Part("failed", part.first, part.last) for part in waiting_parts]
    else:
        s, held = receive_entries(cfg, s, r, entry_count, tuple([(part.first, part.last) for part in waiting_parts]))
        for position in unexpected:
            s = cache_unexpected_entry(cfg, s, r, position)
        results = [Part("found", p.first, p.last, held=h) for p, h in zip(waiting_parts, held, strict=True)]
    effects = Effects([], [])
    for number in numbers:
        request = next(q for q in s.requests if q.number == number)
        s = s._replace(requests=tuple([q for q in s.requests if q is not request]))
        s = continue_request(cfg, s, request._replace(part=with_results(request.part, r.number, results)), effects)
    return s, Reading(None, tuple(effects.issued), tuple(effects.answered))


def awaiting(part: Part, number: int) -> list[Part]:
    """Returns the parts in a tree that wait for the storage read with this number, from left to right."""
    return [each for each in awaited(part) if each.read == number]


def with_results(part: Part, number: int, results: list[Part]) -> Part:
    """Returns a tree in which results replace the parts that waited for the storage read with this number.

    From left to right, each such part is replaced by the first of the results, which is removed from the list.
    """
    if part.kind == "awaited":
        return results.pop(0) if part.read == number else part
    if not part.parts:
        return part
    return part._replace(parts=tuple([with_results(each, number, results) for each in part.parts]))


# ---- completing requests -----------------------------------------------------------------------------------------


def continue_request(cfg: Config, s: State, request: Request, effects: Effects) -> State:
    """Returns the state after a part of a request changed: the request waits, completes or fails.

    The given state does not have the request; the returned state has the request if it waits.
    """
    s, part = settle(cfg, s, request, request.part, effects)
    if not is_settled(part):
        return s._replace(requests=tuple(sorted((*s.requests, request._replace(part=part)))))
    if part.kind == "failed":
        effects.answered.append(Answered(request.number, False, ()))
        return release_permits(cfg, s, request.number, effects)
    return deliver(cfg, s, request, part.held, effects)


def settle(cfg: Config, s: State, request: Request, part: Part, effects: Effects) -> tuple[State, Part]:
    """Completes, fails or reads again each joined or mixed range whose parts are all settled.

    complete   all entries of all parts are held: the range becomes "found"
    failed     a part failed: the held copies of the range are released undelivered. Then a joined range fails, and a
               mixed range is read again as a whole
    short      no part failed, but storage returned too few entries for a part. `short_answer` decides. read_again: as
               if a part had failed. fails: the held copies are released, and the range fails. never_answered: the range
               keeps its parts and held copies, so the request never completes

    A range without parts is not changed: if storage returns too few entries for such a range, the request completes
    with these.
    """
    if not part.parts:
        return s, part
    parts = []
    for each in part.parts:
        s, settled = settle(cfg, s, request, each, effects)
        parts.append(settled)
    part = part._replace(parts=tuple(parts))
    if not all(map(is_settled, parts)):
        return s, part
    if all(map(is_complete, parts)):
        return s, Part("found", part.first, part.last, held=all_held(part.parts))
    is_short = all(p.kind == "found" for p in parts)
    if cfg.short_answer == "never_answered" and is_short:
        return s, part
    s = discard(cfg, s, all_held(part.parts))
    if part.kind == "joined" or (cfg.short_answer == "fails" and is_short):
        return s, Part("failed", part.first, part.last)
    s, again = join_or_read(cfg, s, request, part.first, part.last, effects)
    return settle(cfg, s, request, again, effects)


def discard(cfg: Config, s: State, held: tuple[Held, ...]) -> State:
    """Releases held copies undelivered; with `undelivered_release_marks_read` this decrements their read counts."""
    change = ranges.marked_read if cfg.undelivered_release_marks_read else ranges.unchanged
    caches = s.ranges
    for each in held:
        caches, _ = ranges.change_read_count(caches, each.copy, change, keep_copy=False)
    return s._replace(ranges=caches)


def deliver(cfg: Config, s: State, request: Request, held: tuple[Held, ...], effects: Effects) -> State:
    """Completes a request: its held copies become open copies of the reader."""
    first = s.ranges.next_copy
    caches, counts = renumbered(s.ranges, {h.copy: first + i for i, h in enumerate(held)})
    entries = [
        Delivered(Position(request.ledger, h.entry), h.bytes, counts[first + i], first + i) for i, h in enumerate(held)
    ]
    s = s._replace(ranges=caches)
    effects.answered.append(Answered(request.number, True, tuple(entries)))
    if not s.limiter.grants:
        return s
    if not entries:  # storage returned none, so no release of an entry would return the permits
        return release_permits(cfg, s, request.number, effects)
    copies = tuple([e.copy for e in entries])
    grants = [g._replace(copies=copies) if g.request == request.number else g for g in s.limiter.grants]
    return s._replace(limiter=s.limiter._replace(grants=tuple(grants)))


def renumbered(s: ranges.State, open_numbers: dict[int, int]) -> tuple[ranges.State, dict[int, int | None]]:
    """Returns the range caches after held copies became open copies, and the read count of each of these open copies.

    `open_numbers` maps the number of each held copy that becomes open to its number as an open copy.
    """
    counts: dict[int, int | None] = {}

    def with_open_copies(holder: Holder) -> Holder:
        copies = holder.copies
        # The copies are in ascending order: if the first number is positive, none of them is held.
        if copies[0] > 0 or open_numbers.keys().isdisjoint(copies):
            return holder
        counts.update({open_numbers[c]: holder.expected_reads for c in copies if c in open_numbers})
        return holder._replace(copies=tuple(sorted([open_numbers.get(c, c) for c in copies])))

    queue = tuple([e if e is None or not e.copies else with_open_copies(e) for e in s.queue])
    orphaned_copies = tuple(sorted([with_open_copies(group) for group in s.orphaned_copies]))
    return s._replace(queue=queue, orphaned_copies=orphaned_copies, next_copy=s.next_copy + len(open_numbers)), counts


# ---- permits ------------------------------------------------------------------------------------------


def release_permits(cfg: Config, s: State, request: int, effects: Effects) -> State:
    """Gives the permits of a request back to the limiter, and then starts queued requests.

    Does nothing if no request holds permits, for instance because the limiter is switched off.
    """
    if not s.limiter.grants:
        return s
    return start_queued_requests(cfg, s._replace(limiter=limiter.free_permits(s.limiter, request)), effects)


def start_queued_requests(cfg: Config, s: State, effects: Effects) -> State:
    """From the head of the queue, starts requests that fit and fails requests that have timed out.

    Ends at the first request that neither fits nor has timed out.
    """
    while s.limiter.waiting:
        limits, granted, failed = limiter.grant_queued(derived(cfg).limiter, s.limiter, s.ranges.now_ns)
        if limits is s.limiter:  # no request was granted, and none failed
            return s
        s = fail_timed_out(s._replace(limiter=limits), failed, effects)
        for number in granted:
            request = next(r for r in s.requests if r.number == number)
            s = s._replace(requests=tuple([r for r in s.requests if r is not request]))
            s = begin(cfg, s, request, effects)
    return s


def fail_timed_out(s: State, numbers: list[int], effects: Effects) -> State:
    """Returns the state after requests that have waited too long for permits have failed."""
    effects.answered.extend(Answered(number, False, ()) for number in numbers)
    return s._replace(requests=tuple([r for r in s.requests if r.number not in numbers])) if numbers else s
