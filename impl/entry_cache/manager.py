"""Implementation of the broker's entry cache.

Implements the `reference` rules and all settings of `model/entry_cache`:

    range caches   those of `impl/range_cache.py`: a paged index for each, one double-ended removal queue for all
    reads          joinable reads of a ledger are kept sorted; the read to join is found by bisection
    requests       a tree of ranges for each (`impl/entry_cache/shared_reads.py`)
    limiter        a double-ended queue, and the permits by request (`impl/entry_cache/reads_limiter.py`)
    copies         one handler shared by a cached entry and all its copies. As in the model, a delivered copy is open,
                   and has a positive number; a copy for a pending request is held, and has a negative number

A handler is a `ReadCountHandler`. A topic has one range cache at a time, or none. The parameter `cache` is the topic's
number, and `range_cache` the number of a range cache, or ABSENT or DISABLED.

Dictionary and queue operations cost O(1). In the other costs, n is the number of entries of a read, w the number of
parts of requests that await a storage read, and r the number of joinable reads of a ledger. The costs of a step that
adds entries leave out the evictions that it causes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import cast

from impl.entry_cache.reads_limiter import Permits
from impl.entry_cache.shared_reads import JoinableReads, OutstandingRead, PendingRequest, RequestedRange
from impl.range_cache import PagedRangeCache, RangeCaches, ReadCountHandler, Wrapper
from model.entry_cache.machine import ENTRY_OVERHEAD
from model.entry_cache.reads_limiter import Settings
from model.entry_cache.state import (
    ABSENT,
    DISABLED,
    Answered,
    Config,
    Counters,
    Delivered,
    Issued,
    Reading,
    Released,
    State,
)
from model.machine import Refused
from model.positions import FIRST_POSITION, Position
from model.range_cache import Config as RangeConfig
from model.range_cache import Count, Removed
from model.watermark import TRIGGER_SHARE


class BrokerRangeCaches(RangeCaches):
    """The range caches of a broker, with further operations for the entry cache."""

    def create(self) -> int:
        """Creates a range cache. Returns its number. O(1)."""
        self._caches.append(PagedRangeCache())
        return len(self._caches) - 1

    def find(self, range_cache: int, position: Position) -> Wrapper | None:
        """Returns the wrapper at a position, or None. O(1)."""
        return self._caches[range_cache].find(position)

    def add(self, wrapper: Wrapper) -> None:
        """Inserts an entry into its cache and at the queue's tail. O(1)."""
        range_cache = self._caches[wrapper.cache]
        range_cache.add(wrapper)
        range_cache.bytes += wrapper.bytes
        self._queue.append(wrapper)

    def add_copy(self, copy: int, handler: ReadCountHandler) -> None:
        """Adds a copy with this number and handler. O(1)."""
        self._copies[copy] = handler

    def remove_copy(self, copy: int) -> ReadCountHandler:
        """Removes a copy and returns its handler, whose count stays the same. O(1)."""
        return self._copies.pop(copy)

    def next_copy_number(self) -> int:
        """Returns a new number for an open copy. O(1)."""
        following = self._next_copy
        self._next_copy = following + 1
        return following

    def handler(self, copy: int) -> ReadCountHandler | None:
        """Returns the handler of a copy; None if there is no copy with this number. O(1)."""
        return self._copies.get(copy)

    def copies(self) -> list[int]:
        """Returns the numbers of all copies, open and held. O(copies)."""
        return list(self._copies)

    def remove(self, wrappers: Iterable[Wrapper]) -> Removed:
        """Removes the entries of these wrappers, which stay in the queue, detached. O(entries)."""
        return self._detach(wrappers)

    def all_of(self, range_cache: int) -> list[Wrapper]:
        """Returns the wrappers of a range cache. O(entries)."""
        return list(self._caches[range_cache])

    def of(self, range_cache: int, ledger: int) -> list[Wrapper]:
        """Returns the wrappers of a ledger in a range cache. O(entries)."""
        return self._caches[range_cache].of_ledger(ledger)

    def before(self, range_cache: int, position: Position) -> list[Wrapper]:
        """Returns the wrappers before a position in a range cache. Cost as `PagedRangeCache.between`."""
        return self._caches[range_cache].between(FIRST_POSITION, position, False)

    def total_bytes(self) -> int:
        """Returns the bytes of all range caches. O(range caches)."""
        return sum([range_cache.bytes for range_cache in self._caches])

    def sort_copies(self) -> None:
        """Sorts the copies by number. O(c log c) for c copies."""
        self._copies = dict(sorted(self._copies.items()))


def range_config(cfg: Config, caches: int) -> RangeConfig:
    """Returns the settings of the range caches."""
    return RangeConfig(
        caches=caches,
        ttl_ns=cfg.ttl_ns,
        max_requeue_times=cfg.max_requeue_times,
        extend_ttl_of_recently_accessed=cfg.extend_ttl_of_recently_accessed,
        max_bytes=cfg.max_bytes,
        watermark=cfg.watermark,
    )


class EntryCaches:
    """The entry caches of a broker. The actions of `model/entry_cache` are methods of the same names."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        # the sizes of the entries in storage, by topic and ledger
        self._stored = {(each.cache, each.ledger): each.entry_bytes for each in cfg.stored}
        self._topic_caches = list(range(cfg.caches)) if cfg.max_bytes else [DISABLED] * cfg.caches  # by topic
        self._owners = list(range(cfg.caches)) if cfg.max_bytes else []  # the topics, by range cache
        self._ranges = BrokerRangeCaches(range_config(cfg, len(self._owners)))
        self.total_bytes = 0
        self._max_bytes = cfg.max_bytes
        self._watermark = cfg.watermark
        self._update_trigger()
        self._eviction_in_progress = False
        self._tasks = 0  # the number of queued eviction tasks
        self._failing = 0  # the number of next storage reads that fail
        # whether storage answers a read in a later step, and whether an eviction task runs in a later step
        self._queued = {"immediate": False, "queued": True}[cfg.storage_reads]
        self._tasks_queued = {"immediate": False, "queued": True}[cfg.eviction_task]
        self._reads: dict[int, OutstandingRead] = {}
        self._joinable: dict[tuple[int, int], JoinableReads] = {}
        self._requests: dict[int, PendingRequest] = {}
        self._permits = Permits(Settings(cfg.max_reads_in_flight_bytes, cfg.permits_queue_size, cfg.permits_timeout_ns))
        self._next_request = self._next_read = 1
        self._next_held = -1
        self._insertions = self._hit_entries = self._hit_bytes = self._miss_entries = self._miss_bytes = 0
        self._evicted_entries = self._size_evictions = 0
        self._issued: list[Issued] = []  # effects of the current step, like `_answered`
        self._answered: list[Answered] = []

    # ---- the total, and eviction

    def _update_trigger(self) -> None:
        """Sets `_trigger`, 98 % of the maximum size."""
        self._trigger = int(TRIGGER_SHARE * self._max_bytes)

    def _get_entry_cache(self, cache: int) -> int:
        """Returns the range cache of a topic. If it is ABSENT, creates one; DISABLED if the maximum size is 0. O(1)."""
        range_cache = self._topic_caches[cache]
        if range_cache != ABSENT:
            return range_cache
        if self._max_bytes == 0:
            range_cache = DISABLED
        else:
            range_cache = self._ranges.create()
            self._owners.append(cache)
        self._topic_caches[cache] = range_cache
        return range_cache

    def _account_for_removed(self, removed: Removed) -> int:
        """Updates total size and metrics after a removal; returns the number of entries removed. O(1)."""
        self.total_bytes -= removed.bytes
        self._evicted_entries += removed.entries
        return removed.entries

    def _size_check(self) -> int:
        """Runs a size pass if the total is above trigger and watermark; returns the number of entries evicted.

        Cost as `RangeCaches.size_pass`.
        """
        total = self.total_bytes
        bytes_to_evict = total - int(self._watermark * self._max_bytes)
        if total <= self._trigger or bytes_to_evict <= 0:
            return 0
        self._size_evictions += 1
        return self._account_for_removed(cast("Removed", self._ranges.size_pass(bytes_to_evict)))

    def _add(self, wrapper: Wrapper) -> None:
        """Caches an entry. If the total is above the trigger and no task is queued, queues or runs one. O(1)."""
        self._ranges.add(wrapper)
        self._insertions += 1
        self.total_bytes += wrapper.bytes
        if self.total_bytes > self._trigger and not self._eviction_in_progress:
            if self._tasks_queued:
                self._eviction_in_progress = True
                self._tasks += 1
            else:
                self._size_check()

    def run_eviction_task(self) -> int | Refused:
        """Runs a scheduled eviction task; returns the number of entries evicted. Cost as `RangeCaches.size_pass`."""
        if not self._tasks:
            return Refused("illegal_state", "no eviction task is queued")
        self._tasks -= 1
        evicted = self._size_check()
        self._eviction_in_progress = False
        return evicted

    def do_cache_eviction(self) -> int:
        """Runs the periodic eviction; returns the number of entries evicted. Cost as `time_pass` and `size_pass`."""
        expired = self._account_for_removed(self._ranges.time_pass(self._ranges.now_ns - self.cfg.ttl_ns))
        return expired + self._size_check()

    # ---- adding entries

    def insert(self, cache: int, position: Position, bytes: int, expected_reads: int) -> bool:
        """Caches an entry. Returns false for a disabled cache or a cached entry, whose handler is replaced. O(1)."""
        range_cache = self._get_entry_cache(cache)
        if range_cache == DISABLED:
            return False
        present = self._ranges.find(range_cache, position)
        handler = ReadCountHandler(expected_reads if expected_reads > 0 else None)
        if present is None:
            self._add(Wrapper(range_cache, position, bytes, handler, self._ranges.now_ns))
            return True
        present.handler = handler
        return False

    # ---- reading

    def read(self, cache: int, ledger: int, first: int, last: int, expected_reads: int) -> Reading | Refused:
        """Reads a range of a ledger, both ends included. O(n), and O(r) for each gap between cached entries.

        With a limiter, the permits are the estimated bytes of the range, from the average size of the ledger's entries:
        O(entries of the ledger).
        """
        stored = self._stored.get((cache, ledger), ())
        if first > last:
            return Refused("illegal_argument", "the first entry is after the last")
        if last >= len(stored):
            return Refused("illegal_argument", "the ledger has no such entry")
        number = self._next_request
        self._next_request = number + 1
        pending = PendingRequest(number, self._get_entry_cache(cache), cache, ledger, expected_reads)
        pending.root = RequestedRange("permits", pending, first, last)
        permits = 0
        if self._permits.maximum:
            permits = (last - first + 1) * (max(1, sum(stored) // len(stored)) + ENTRY_OVERHEAD)
        verdict = self._permits.acquire(pending, permits, self._ranges.now_ns)
        if verdict == "rejected":
            return Reading(number, (), (Answered(number, False, ()),))
        self._requests[number] = pending
        if verdict == "granted":
            self._begin(pending)
        return self._reading(number)

    def read_one(self, cache: int, position: Position) -> Reading | Refused:
        """Reads one entry; if this request reads from storage, no reads are expected. Cost as `read`."""
        if position.entry < 0:
            return Refused("illegal_argument", "the ledger has no such entry")
        return self.read(cache, position.ledger, position.entry, position.entry, 0)

    def _reading(self, number: int | None) -> Reading:
        """Returns the effects of this step, and forgets them. O(effects)."""
        reading = Reading(number, tuple(self._issued), tuple(self._answered))
        self._issued.clear()
        self._answered.clear()
        return reading

    def _begin(self, pending: PendingRequest) -> None:
        root = pending.root
        pending.root = self._read_range(pending, root.first, root.last)
        self._continue_request(pending)

    def _read_range(self, pending: PendingRequest, first: int, last: int) -> RequestedRange:
        """Holds copies of the cached entries of a range, and reads its gaps. O(n), and O(r) for each gap."""
        range_cache, ledger, number = pending.range_cache, pending.ledger, self._next_held
        if range_cache == DISABLED:
            return self._join_or_read(pending, first, last)
        find, add_copy = self._ranges.find, self._ranges.add_copy
        parts: list[RequestedRange] = []
        following = first  # the entry after the last part
        for entry in range(first, last + 1):
            wrapper = find(range_cache, Position(ledger, entry))
            if wrapper is None:
                continue
            if entry > following:
                parts.append(RequestedRange("gap", pending, following, entry - 1))
            wrapper.accessed = True
            add_copy(number, wrapper.handler)
            hit = RequestedRange("found", pending, entry, entry)
            hit.held.append((entry, wrapper.bytes, number))
            parts.append(hit)
            number -= 1
            self._hit_bytes += wrapper.bytes
            following = entry + 1
        self._hit_entries += self._next_held - number
        self._next_held = number
        if not parts:
            return self._join_or_read(pending, first, last)
        if following <= last:
            parts.append(RequestedRange("gap", pending, following, last))
        whole = RequestedRange("mixed", pending, first, last)
        whole.parts = [self._join_or_read(pending, p.first, p.last) if p.kind == "gap" else p for p in parts]
        # A complete cache hit becomes one found range. `_complete_ranges` merges a partial one when all gaps are read.
        if len(parts) == last - first + 1 and all(part.kind == "found" for part in parts):
            self._merge_parts(whole)
        return whole

    def _join_or_read(self, pending: PendingRequest, first: int, last: int) -> RequestedRange:
        """Joins an outstanding read, and reads the parts that the read lacks; or reads from storage.

        O(r), the cost of `_read_range` for these parts, and O(n) if storage answers at once.
        """
        joinable = self._joinable.get((pending.range_cache, pending.ledger))
        read = None if joinable is None else joinable.best(first, last)
        if read is None:
            return self._read_storage(pending, first, last)
        low, high = max(first, read.first), min(last, read.last)
        common = RequestedRange("awaited", pending, low, high)
        common.read = read.number
        read.waiting.append(common)
        if (low, high) == (first, last):
            return common
        whole = RequestedRange("joined", pending, first, last)
        left = [self._read_range(pending, first, low - 1)] if first < low else []
        right = [self._read_range(pending, high + 1, last)] if high < last else []
        whole.parts = [*left, common, *right]
        return whole

    def _read_storage(self, pending: PendingRequest, first: int, last: int) -> RequestedRange:
        """Issues a storage read. O(r) if it is answered in a later step, otherwise O(n)."""
        number = self._next_read
        self._next_read = number + 1
        self._issued.append(Issued(number, pending.cache, pending.ledger, first, last))
        read = OutstandingRead(number, pending, first, last)
        requested = RequestedRange("awaited", pending, first, last)
        read.waiting.append(requested)
        if self._queued:
            requested.read = number
            self._reads[number] = read
            if read.joinable:
                self._joinable.setdefault((pending.range_cache, pending.ledger), JoinableReads()).add(read)
        elif self._failing:
            self._failing -= 1
            requested.kind = "failed"
        else:
            requested.kind = "found"
            self._receive_entries(read, last - first + 1)
        return requested

    def _receive_entries(self, read: OutstandingRead, entries: int) -> None:
        """Storage returns this number of leading entries of a read. O(n w + w log w).

        The entries are cached if reads are expected, and copies are held for each part that awaits the read.
        """
        pending = read.initiator
        range_cache, ledger = pending.range_cache, pending.ledger
        sizes = self._stored[pending.cache, ledger]
        expected = pending.expected_reads if range_cache >= 0 and pending.expected_reads > 0 else None
        waiting = read.in_request_order()
        for entry in range(read.first, read.first + entries):
            size = sizes[entry]
            handler = ReadCountHandler(expected)
            for requested in waiting:
                if requested.first <= entry <= requested.last:
                    self._ranges.add_copy(self._next_held, handler)
                    requested.held.append((entry, size, self._next_held))
                    self._next_held -= 1
            self._miss_entries += 1
            self._miss_bytes += size
            if expected is not None:
                self._cache_entry(range_cache, Position(ledger, entry), size, handler)

    def _cache_entry(self, range_cache: int, position: Position, size: int, handler: ReadCountHandler) -> None:
        """Caches an entry from storage. If its position is cached, the cached entry gets the handler. O(1)."""
        present = self._ranges.find(range_cache, position)
        if present is None:
            self._add(Wrapper(range_cache, position, size, handler, self._ranges.now_ns))
        else:
            present.handler = handler

    # ---- answers

    def complete_storage_read(self, storage_read: int, success: bool) -> Reading | Refused:
        """Storage completes or fails a read. Cost of `_answer`."""
        read = self._reads.get(storage_read)
        if read is None:
            return Refused("not_open", "no outstanding storage read has this number")
        return self._answer(read, read.last - read.first + 1 if success else None)

    def answer_oddly(self, storage_read: int, entries: int, oddity: str) -> Reading | Refused:
        """Storage returns too few entries of a read, and an unexpected one if `oddity` says so. Cost of `_answer`."""
        read = self._reads.get(storage_read)
        if read is None:
            return Refused("not_open", "no outstanding storage read has this number")
        if entries > read.last - read.first:
            return Refused("illegal_argument", "the answer must have fewer entries than the read")
        ledger = read.initiator.ledger
        returned = [Position(ledger, read.first + i) for i in range(entries)]
        if oddity == "twice":
            returned += returned[:1]
        elif oddity == "beyond":
            returned.append(Position(ledger, read.last + 1))
        elif oddity == "other_ledger":
            returned.append(Position(ledger + 1, read.first + entries))
        elif oddity == "wraps":
            returned.append(Position(ledger, read.first + entries + 2**32))
        return self._answer(read, self._accepted(read, returned))

    def _accepted(self, read: OutstandingRead, returned: list[Position]) -> int:
        """Returns the number of leading entries of the answer that are the requested ones in order. O(n)."""
        following = read.first
        for ledger, entry in returned:
            if ledger != read.initiator.ledger or entry != following or entry > read.last:
                break
            following += 1
        return following - read.first

    def fail_next_storage_reads(self, count: int) -> Refused | None:
        if self._queued:
            return Refused("illegal_state", "a queued read fails when it is completed")
        self._failing = count
        return None

    def _answer(self, read: OutstandingRead, entries: int | None) -> Reading:
        """Storage returns this number of leading entries of a read, or fails (None).

        O(n w + w log w + r), and the cost to continue each awaiting request.
        """
        initiator = read.initiator
        del self._reads[read.number]
        if read.joinable:
            self._unlist(read)
        if entries is not None:
            self._receive_entries(read, entries)
        elif initiator.range_cache >= 0:
            self._make_unjoinable(initiator.range_cache, initiator.ledger)
        waiting = read.in_request_order()
        for requested in waiting:
            requested.kind = "failed" if entries is None else "found"
            requested.read = 0
        for pending in dict.fromkeys([requested.request for requested in waiting]):
            self._continue_request(pending)
        return self._reading(None)

    def _continue_request(self, pending: PendingRequest) -> None:
        """Completes or fails a request, unless it awaits a read. O(its parts and entries), and ranges read again."""
        root = pending.root
        self._complete_ranges(root)
        if root.kind == "found":
            self._deliver(pending, root.held)
        elif root.kind == "failed":
            del self._requests[pending.number]
            self._answered.append(Answered(pending.number, False, ()))
            self._release_permits(pending.number)

    def _complete_ranges(self, requested: RequestedRange) -> None:
        """Merges the settled parts of a tree, from left to right. O(parts and entries), and ranges read again."""
        for part in requested.parts:
            self._complete_ranges(part)
        if requested.parts and all(part.is_settled() for part in requested.parts):
            self._merge_parts(requested)

    def _merge_parts(self, requested: RequestedRange) -> None:
        """Replaces the settled parts of a range by their entries, if every part is complete.

        Otherwise, the copies of the parts are released; then a joined range fails, and a mixed range is read again.
        """
        parts = requested.parts
        if all(part.is_complete() for part in parts):
            requested.kind = "found"
            requested.held = [each for part in parts for each in part.held]
            requested.parts = []
            return
        for copy in requested.copies():
            self._ranges.remove_copy(copy)
        requested.parts = []
        if requested.kind == "joined":
            requested.kind = "failed"
        else:
            again = self._join_or_read(requested.request, requested.first, requested.last)
            self._replace_contents(requested, again)
            self._complete_ranges(requested)

    def _replace_contents(self, target: RequestedRange, source: RequestedRange) -> None:
        """Copies the contents of a range to another one. If `source` awaits a read, `target` awaits it instead."""
        target.kind, target.read, target.held, target.parts = source.kind, source.read, source.held, source.parts
        if source.kind == "awaited":
            waiting = self._reads[source.read].waiting
            waiting[waiting.index(source)] = target

    def _deliver(self, pending: PendingRequest, held: list[tuple[int, int, int]]) -> None:
        """Completes a request: its held copies become open copies. O(n)."""
        del self._requests[pending.number]
        range_caches, entries = self._ranges, []
        for entry, size, copy in held:
            handler = range_caches.remove_copy(copy)
            number = range_caches.next_copy_number()
            range_caches.add_copy(number, handler)
            entries.append(Delivered(Position(pending.ledger, entry), size, handler.expected, number))
        self._answered.append(Answered(pending.number, True, tuple(entries)))
        if pending.number in self._permits.held:
            if entries:
                self._permits.bind(pending.number, [each.copy for each in entries])
            else:
                self._release_permits(pending.number)

    # ---- permits

    def _release_permits(self, request: int) -> None:
        """Frees a request's permits, if it has any; then queued requests start, or fail because of the timeout."""
        if self._permits.free_permits(request):
            self._start_queued_requests()

    def _start_queued_requests(self) -> None:
        """Grants permits until nothing changes: a request that is started can end at once, and free permits."""
        permits = self._permits
        while permits.waiting:
            granted, failed = permits.grant_queued(self._ranges.now_ns)
            if not granted and not failed:
                return
            self._fail_requests(failed)
            for pending in granted:
                self._begin(pending)

    def _fail_requests(self, failed: list[PendingRequest]) -> None:
        for pending in failed:
            del self._requests[pending.number]
            self._answered.append(Answered(pending.number, False, ()))

    def expire_waiting_reads(self) -> Reading:
        """Runs the limiter's timer. O(requests that fail), and the cost of the requests that start."""
        failed = self._permits.expire(self._ranges.now_ns)
        self._fail_requests(failed)
        if failed:
            self._start_queued_requests()
        return self._reading(None)

    # ---- copies

    def release(self, copy: int) -> Released | Refused:
        """Releases a reader's copy. O(1), and the cost of the requests that start with the freed permits."""
        handler = self._ranges.handler(copy)
        if handler is None:
            return Refused("not_open", "no reader holds a copy with this number")
        self._ranges.remove_copy(copy)
        handler.mark_read()
        count = handler.expected
        request = self._permits.release_copy(copy)
        if request is None:
            return Released(count, (), ())
        self._release_permits(request)
        reading = self._reading(None)
        return Released(count, reading.issued, reading.answered)

    def replay(self, copy: int) -> Count | Refused:
        return self._ranges.replay(copy)

    # ---- removing

    def invalidate_entries_before(self, cache: int, position: Position) -> None:
        """Removes a topic's entries before a position. Cost as `PagedRangeCache.between`."""
        range_cache = self._get_entry_cache(cache)
        if range_cache >= 0:
            self._account_for_removed(self._ranges.remove(self._ranges.before(range_cache, position)))

    def invalidate_ledger(self, cache: int, ledger: int) -> None:
        """Removes a ledger's entries from a topic's cache. O(r + entries of the ledger)."""
        range_cache = self._get_entry_cache(cache)
        if range_cache >= 0:
            self._account_for_removed(self._ranges.remove(self._ranges.of(range_cache, ledger)))
            self._make_unjoinable(range_cache, ledger)

    def clear_cache(self, cache: int) -> None:
        """Empties a topic's cache. O(its entries, and the joinable reads of all caches)."""
        self._empty(self._get_entry_cache(cache))

    def clear_all(self) -> None:
        """Empties every topic's cache. O(their entries), and for each topic O(joinable reads of all caches)."""
        for range_cache in self._topic_caches:
            self._empty(range_cache)

    def remove_entry_cache(self, cache: int) -> None:
        """Removes a topic's cache and empties it. O(its entries, and the joinable reads of all caches)."""
        range_cache, self._topic_caches[cache] = self._topic_caches[cache], ABSENT
        self._empty(range_cache)

    def _empty(self, range_cache: int) -> None:
        """Removes all entries of a range cache; no outstanding read of it can be joined any more."""
        if range_cache >= 0:
            self._account_for_removed(self._ranges.remove(self._ranges.all_of(range_cache)))
            for number, ledger in [key for key in self._joinable if key[0] == range_cache]:
                self._make_unjoinable(number, ledger)

    def _make_unjoinable(self, range_cache: int, ledger: int) -> None:
        """From now on, no request can join an outstanding read of this ledger. O(r)."""
        listed = self._joinable.pop((range_cache, ledger), None)
        if listed is not None:
            for read in listed.reads:
                read.joinable = False

    def _unlist(self, read: OutstandingRead) -> None:
        """Removes a read from the joinable reads. O(r)."""
        key = read.initiator.range_cache, read.initiator.ledger
        listed = self._joinable[key]
        listed.discard(read)
        if not listed.reads:
            del self._joinable[key]

    def non_evictable_size(self) -> Removed:
        """Returns number and bytes of entries with expected reads or no handler; drops detached wrappers. O(queue)."""
        return self._ranges.non_evictable_size()

    # ---- time and settings

    def advance(self, nanos: int) -> None:
        self._ranges.advance(nanos)

    def set_max_cache_bytes(self, value: int) -> None:
        self._max_bytes = value
        self._update_trigger()

    def set_eviction_watermark(self, value: float) -> None:
        self._watermark = value

    def set_max_requeue_times(self, value: int) -> None:
        self._ranges.set_max_requeue_times(value)

    def set_extend_ttl(self, value: bool) -> None:
        self._ranges.set_extend_ttl(value)

    # ---- for the engines

    def check(self) -> list[str]:
        wrong = self._ranges.check()
        if self.total_bytes != self._ranges.total_bytes():
            wrong.append("the total size is not the sum of the sizes of the caches")
        if self._trigger != int(TRIGGER_SHARE * self._max_bytes):
            wrong.append("the trigger does not belong to the maximum size")
        listed = {id(read) for each in self._joinable.values() for read in each.reads}
        if listed != {id(read) for read in self._reads.values() if read.joinable}:
            wrong.append("the listed reads are not the joinable outstanding reads")
        for each in self._joinable.values():
            apart = all(a.last < b.first for a, b in pairwise(each.reads))
            if not apart or each.firsts != [read.first for read in each.reads] or not each.reads:
                wrong.append("joinable reads of one ledger overlap, or are out of order")
        held = [copy for pending in self._requests.values() for copy in pending.root.copies()]
        if sorted(held) != sorted(copy for copy in self._ranges.copies() if copy < 0):
            wrong.append("the copies of requests are not the copies with negative numbers")
        if any(copy <= self._next_held for copy in held):
            wrong.append("the copy of a request has a number that is not assigned yet")
        permits = self._permits
        if permits.maximum and permits.free + sum([taken for taken, _ in permits.held.values()]) != permits.maximum:
            wrong.append("free and granted permits do not add up to the maximum")
        return wrong

    def view(self) -> State:
        self._ranges.sort_copies()
        return State(
            self._ranges.view(),
            tuple(self._owners),
            tuple(self._topic_caches),
            self.total_bytes,
            self._max_bytes,
            self._watermark,
            self._eviction_in_progress,
            self._tasks,
            self._failing,
            tuple([read.view() for read in self._reads.values()]),
            tuple([self._requests[number].view() for number in sorted(self._requests)]),
            self._permits.view(),
            self._next_request,
            self._next_read,
            self._next_held,
            Counters(
                self._insertions,
                self._hit_entries,
                self._hit_bytes,
                self._miss_entries,
                self._miss_bytes,
                self._evicted_entries,
                self._size_evictions,
            ),
        )

    @classmethod
    def load(cls, cfg: Config, state: State) -> EntryCaches:
        self = cls(cfg)
        self._ranges = BrokerRangeCaches.load(range_config(cfg, len(state.owners)), state.ranges)
        self._owners, self._topic_caches = list(state.owners), list(state.topic_caches)
        self.total_bytes, self._max_bytes, self._watermark = state.total_bytes, state.max_bytes, state.watermark
        self._update_trigger()
        self._eviction_in_progress, self._tasks, self._failing = state.eviction_in_progress, state.tasks, state.failing
        self._next_request, self._next_read = state.next_request, state.next_read
        self._next_held = state.next_held
        self._requests = {request.number: PendingRequest.load(request) for request in state.requests}
        for r in state.reads:
            read = self._reads[r.number] = OutstandingRead.load(r, self._requests)
            if read.joinable:
                self._joinable.setdefault((r.range_cache, r.ledger), JoinableReads()).add(read)
        self._permits.load(state.limiter, self._requests)
        c = state.counters
        self._insertions, self._hit_entries, self._hit_bytes = c.insertions, c.hit_entries, c.hit_bytes
        self._miss_entries, self._miss_bytes = c.miss_entries, c.miss_bytes
        self._evicted_entries, self._size_evictions = c.evicted_entries, c.size_evictions
        return self
