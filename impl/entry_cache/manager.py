"""The broker's entry cache with efficient structures; the reference rules of `model/entry_cache`.

    range caches   those of `impl/range_cache.py`: a paged index for each, one double-ended removal queue
    reads          joinable reads of a ledger are kept sorted; the read to join is found by bisection
    requests       a tree of ranges for each (`impl/entry_cache/shared_reads.py`)
    limiter        a double-ended queue, and the permits by request (`impl/entry_cache/reads_limiter.py`)
    copies         one handler shared by a cached entry and all its copies

Complexities count dictionary and queue operations as one; n is the number of entries of a read.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import cast

from impl.entry_cache.reads_limiter import Permits
from impl.entry_cache.shared_reads import Asking, Joinable, Outstanding, Wanted
from impl.range_cache import PagedRangeCache, RangeCaches, ReadCountHandler, Wrapper
from model.entry_cache.machine import ENTRY_OVERHEAD
from model.entry_cache.reads_limiter import Rules
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
from model.positions import EARLIEST, Position
from model.range_cache import Config as RangeConfig
from model.range_cache import Count, Removed
from model.watermark import TRIGGER_SHARE


class Store(RangeCaches):
    """The range caches, with the operations that the entry cache needs besides their actions."""

    def create(self) -> int:
        """Creates a range cache. Returns its number. O(1)."""
        self._caches.append(PagedRangeCache())
        return len(self._caches) - 1

    def slot(self, store: int, position: Position) -> Wrapper | None:
        """The wrapper at a position, or None. O(1)."""
        return self._caches[store].find(position)

    def add(self, slot: Wrapper) -> None:
        """Inserts an entry into its cache and at the queue's tail. O(1)."""
        store = self._caches[slot.cache]
        store.add(slot)
        store.bytes += slot.bytes
        self._queue.append(slot)

    def hold(self, copy: int, counter: ReadCountHandler) -> None:
        """Opens a copy that shares a read count, under this number. O(1)."""
        self._copies[copy] = counter

    def unhold(self, copy: int) -> ReadCountHandler:
        """Closes a copy. Returns its read count. O(1)."""
        return self._copies.pop(copy)

    def number(self) -> int:
        """The number of the next open copy. O(1)."""
        following = self._next_copy
        self._next_copy = following + 1
        return following

    def counter(self, copy: int) -> ReadCountHandler | None:
        """The read count of an open copy. O(1)."""
        return self._copies.get(copy)

    def copies(self) -> list[int]:
        """The numbers of all copies. O(copies)."""
        return list(self._copies)

    def remove(self, slots: Iterable[Wrapper]) -> Removed:
        """Removes wrappers by position. O(entries)."""
        return self._detach(slots)

    def all_of(self, store: int) -> list[Wrapper]:
        """The wrappers of a range cache. O(entries)."""
        return list(self._caches[store])

    def of(self, store: int, ledger: int) -> list[Wrapper]:
        """The wrappers of a ledger in a range cache. O(entries)."""
        return self._caches[store].of_ledger(ledger)

    def before(self, store: int, position: Position) -> list[Wrapper]:
        """The wrappers before a position in a range cache. Cost as `PagedRangeCache.between`."""
        return self._caches[store].between(EARLIEST, position, False)

    def sizes(self) -> int:
        """The bytes of all range caches. O(range caches)."""
        return sum([store.bytes for store in self._caches])

    def in_order(self) -> None:
        """Sorts the copies by number. O(n log n)."""
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
    """The entry caches of a broker. Methods are named as the actions."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self._stored = {(each.cache, each.ledger): each.entry_bytes for each in cfg.stored}
        self._topic_caches = list(range(cfg.caches)) if cfg.max_bytes else [DISABLED] * cfg.caches
        self._owners = list(range(cfg.caches)) if cfg.max_bytes else []
        self._store = Store(range_config(cfg, len(self._owners)))
        self.total_bytes = 0
        self._max_bytes = cfg.max_bytes
        self._watermark = cfg.watermark
        self._set_trigger()
        self._marked = False
        self._tasks = 0
        self._failing = 0
        self._queued = {"immediate": False, "queued": True}[cfg.storage_reads]
        self._tasks_queued = {"immediate": False, "queued": True}[cfg.eviction_task]
        self._reads: dict[int, Outstanding] = {}
        self._joinable: dict[tuple[int, int], Joinable] = {}
        self._requests: dict[int, Asking] = {}
        self._permits = Permits(Rules(cfg.max_reads_in_flight_bytes, cfg.permits_queue_size, cfg.permits_timeout_ns))
        self._next_request = self._next_read = 1
        self._next_held = -1
        self._insertions = self._hit_entries = self._hit_bytes = self._miss_entries = self._miss_bytes = 0
        self._evicted_entries = self._size_evictions = 0
        self._issued: list[Issued] = []
        self._answered: list[Answered] = []

    # ---- the total, and eviction

    def _set_trigger(self) -> None:
        self._trigger = int(TRIGGER_SHARE * self._max_bytes)

    def _get_entry_cache(self, cache: int) -> int:
        store = self._topic_caches[cache]
        if store != ABSENT:
            return store
        if self._max_bytes == 0:
            store = DISABLED
        else:
            store = self._store.create()
            self._owners.append(cache)
        self._topic_caches[cache] = store
        return store

    def _forget(self, removed: Removed) -> int:
        self.total_bytes -= removed.bytes
        self._evicted_entries += removed.entries
        return removed.entries

    def _size_check(self) -> int:
        total = self.total_bytes
        wanted = total - int(self._watermark * self._max_bytes)
        if total <= self._trigger or wanted <= 0:
            return 0
        self._size_evictions += 1
        return self._forget(cast("Removed", self._store.size_pass(wanted)))

    def _add(self, slot: Wrapper) -> None:
        self._store.add(slot)
        self._insertions += 1
        self.total_bytes += slot.bytes
        if self.total_bytes > self._trigger and not self._marked:
            if self._tasks_queued:
                self._marked = True
                self._tasks += 1
            else:
                self._size_check()

    def run_eviction_task(self) -> int | Refused:
        """Runs a queued eviction task. Cost as `RangeCaches.size_pass`."""
        if not self._tasks:
            return Refused("illegal_state", "no eviction task is queued")
        self._tasks -= 1
        evicted = self._size_check()
        self._marked = False
        return evicted

    def do_cache_eviction(self) -> int:
        """Periodic eviction. Cost as `RangeCaches.time_pass` and `size_pass`."""
        expired = self._forget(self._store.time_pass(self._store.now_ns - self.cfg.ttl_ns))
        return expired + self._size_check()

    # ---- adding entries

    def insert(self, cache: int, position: Position, bytes: int, expected_reads: int) -> bool:
        """Caches a new entry. Returns whether it was absent. O(1), and an eviction if one is due."""
        store = self._get_entry_cache(cache)
        if store == DISABLED:
            return False
        present = self._store.slot(store, position)
        counter = ReadCountHandler(expected_reads if expected_reads > 0 else None)
        if present is None:
            self._add(Wrapper(store, position, bytes, counter, self._store.now_ns))
            return True
        present.counter = counter
        return False

    # ---- reading

    def read(self, cache: int, ledger: int, first: int, last: int, expected_reads: int) -> Reading | Refused:
        """Reads a range of a ledger, both ends included. O(n) when it is cached or storage answers at once.

        With a limiter, also O(entries of the ledger), for their average size.
        """
        stored = self._stored.get((cache, ledger), ())
        if first > last:
            return Refused("illegal_argument", "the first entry is after the last")
        if last >= len(stored):
            return Refused("illegal_argument", "the ledger has no such entry")
        number = self._next_request
        self._next_request = number + 1
        asking = Asking(number, self._get_entry_cache(cache), cache, ledger, expected_reads)
        asking.root = Wanted("permits", asking, first, last)
        permits = 0
        if self._permits.most:
            permits = (last - first + 1) * (max(1, sum(stored) // len(stored)) + ENTRY_OVERHEAD)
        verdict = self._permits.acquire(asking, permits, self._store.now_ns)
        if verdict == "refused":
            return Reading(number, (), (Answered(number, False, ()),))
        self._requests[number] = asking
        if verdict == "granted":
            self._begin(asking)
        return self._reading(number)

    def read_one(self, cache: int, position: Position) -> Reading | Refused:
        """Reads one entry; a storage read of it expects no reads. Cost as `read`."""
        if position.entry < 0:
            return Refused("illegal_argument", "the ledger has no such entry")
        return self.read(cache, position.ledger, position.entry, position.entry, 0)

    def _reading(self, number: int | None) -> Reading:
        reading = Reading(number, tuple(self._issued), tuple(self._answered))
        self._issued.clear()
        self._answered.clear()
        return reading

    def _begin(self, asking: Asking) -> None:
        root = asking.root
        asking.root = self._read_range(asking, root.first, root.last)
        self._continue_request(asking)

    def _read_range(self, asking: Asking, first: int, last: int) -> Wanted:
        """Holds the cached entries of a range and reads its gaps. O(n)."""
        store, ledger, number = asking.store, asking.ledger, self._next_held
        if store == DISABLED:
            return self._ask(asking, first, last)
        find, hold = self._store.slot, self._store.hold
        parts: list[Wanted] = []
        following = first
        for entry in range(first, last + 1):
            slot = find(store, Position(ledger, entry))
            if slot is None:
                continue
            if entry > following:
                parts.append(Wanted("gap", asking, following, entry - 1))
            slot.accessed = True
            hold(number, slot.counter)
            hit = Wanted("found", asking, entry, entry)
            hit.held.append((entry, slot.bytes, number))
            parts.append(hit)
            number -= 1
            self._hit_bytes += slot.bytes
            following = entry + 1
        self._hit_entries += self._next_held - number
        self._next_held = number
        if not parts:
            return self._ask(asking, first, last)
        if following <= last:
            parts.append(Wanted("gap", asking, following, last))
        whole = Wanted("mixed", asking, first, last)
        whole.parts = [self._ask(asking, p.first, p.last) if p.kind == "gap" else p for p in parts]
        if len(parts) == last - first + 1 and all(part.kind == "found" for part in parts):
            self._join_up(whole)
        return whole

    def _ask(self, asking: Asking, first: int, last: int) -> Wanted:
        """Joins an outstanding read, or starts one. O(log reads), and n when storage answers at once."""
        joinable = self._joinable.get((asking.store, asking.ledger))
        read = None if joinable is None else joinable.best(first, last)
        if read is None:
            return self._ask_storage(asking, first, last)
        low, high = max(first, read.first), min(last, read.last)
        common = Wanted("awaited", asking, low, high)
        common.read = read.number
        read.waiting.append(common)
        if (low, high) == (first, last):
            return common
        whole = Wanted("joined", asking, first, last)
        left = [self._read_range(asking, first, low - 1)] if first < low else []
        right = [self._read_range(asking, high + 1, last)] if high < last else []
        whole.parts = [*left, common, *right]
        return whole

    def _ask_storage(self, asking: Asking, first: int, last: int) -> Wanted:
        number = self._next_read
        self._next_read = number + 1
        self._issued.append(Issued(number, asking.cache, asking.ledger, first, last))
        read = Outstanding(number, asking, first, last)
        wanted = Wanted("awaited", asking, first, last)
        read.waiting.append(wanted)
        if self._queued:
            wanted.read = number
            self._reads[number] = read
            if read.joinable:
                self._joinable.setdefault((asking.store, asking.ledger), Joinable()).add(read)
        elif self._failing:
            self._failing -= 1
            wanted.kind = "failed"
        else:
            wanted.kind = "found"
            self._take_in(read, last - first + 1)
        return wanted

    def _take_in(self, read: Outstanding, entries: int) -> None:
        """Caches entries from storage whose reads are expected, and holds copies for each awaiting part.

        O(n) for each awaiting part.
        """
        asking = read.asking
        store, ledger = asking.store, asking.ledger
        sizes = self._stored[asking.cache, ledger]
        expected = asking.expected_reads if store >= 0 and asking.expected_reads > 0 else None
        waiting = read.in_turn()
        for entry in range(read.first, read.first + entries):
            size = sizes[entry]
            counter = ReadCountHandler(expected)
            for wanted in waiting:
                if wanted.first <= entry <= wanted.last:
                    self._store.hold(self._next_held, counter)
                    wanted.held.append((entry, size, self._next_held))
                    self._next_held -= 1
            self._miss_entries += 1
            self._miss_bytes += size
            if expected is not None:
                self._offer(store, Position(ledger, entry), size, counter)

    def _offer(self, store: int, position: Position, size: int, counter: ReadCountHandler) -> None:
        """Caches an entry from storage, unless its position is cached. O(1), and an eviction if one is due."""
        present = self._store.slot(store, position)
        if present is None:
            self._add(Wrapper(store, position, size, counter, self._store.now_ns))
        else:
            present.counter = counter

    # ---- answers

    def complete_storage_read(self, storage_read: int, success: bool) -> Reading | Refused:
        """Completes or fails a storage read. O(n) for each awaiting part."""
        read = self._reads.get(storage_read)
        if read is None:
            return Refused("not_open", "no outstanding read has this number")
        return self._answer(read, read.last - read.first + 1 if success else None)

    def answer_oddly(self, storage_read: int, entries: int, oddity: str) -> Reading | Refused:
        """Completes a storage read with fewer entries, perhaps also a foreign one. O(n) for each awaiting part."""
        read = self._reads.get(storage_read)
        if read is None:
            return Refused("not_open", "no outstanding read has this number")
        if entries > read.last - read.first:
            return Refused("illegal_argument", "the answer must have fewer entries than the read")
        ledger = read.asking.ledger
        brought = [Position(ledger, read.first + i) for i in range(entries)]
        if oddity == "twice":
            brought += brought[:1]
        elif oddity == "beyond":
            brought.append(Position(ledger, read.last + 1))
        elif oddity == "other_ledger":
            brought.append(Position(ledger + 1, read.first + entries))
        elif oddity == "wraps":
            brought.append(Position(ledger, read.first + entries + 2**32))
        return self._answer(read, self._accepted(read, brought))

    def _accepted(self, read: Outstanding, brought: list[Position]) -> int:
        """Length of the answer's prefix that has the requested entries in order. O(n)."""
        following = read.first
        for ledger, entry in brought:
            if ledger != read.asking.ledger or entry != following or entry > read.last:
                break
            following += 1
        return following - read.first

    def fail_next_storage_reads(self, count: int) -> Refused | None:
        if self._queued:
            return Refused("illegal_state", "a queued read fails when it is completed")
        self._failing = count
        return None

    def _answer(self, read: Outstanding, entries: int | None) -> Reading:
        asking = read.asking
        del self._reads[read.number]
        if read.joinable:
            self._unlist(read)
        if entries is not None:
            self._take_in(read, entries)
        elif asking.store >= 0:
            self._no_joining(asking.store, asking.ledger)
        waiting = read.in_turn()
        for wanted in waiting:
            wanted.kind = "failed" if entries is None else "found"
            wanted.read = 0
        for asking in dict.fromkeys([wanted.request for wanted in waiting]):
            self._continue_request(asking)
        return self._reading(None)

    def _continue_request(self, asking: Asking) -> None:
        """Advances a request until it awaits a read or completes. O(its parts)."""
        root = asking.root
        self._settle(root)
        if root.kind == "found":
            self._deliver(asking, root.held)
        elif root.kind == "failed":
            del self._requests[asking.number]
            self._answered.append(Answered(asking.number, False, ()))
            self._release_permits(asking.number)

    def _settle(self, wanted: Wanted) -> None:
        """Settles a tree from left to right, as far as no part is pending. O(parts)."""
        for part in wanted.parts:
            self._settle(part)
        if wanted.parts and all(part.is_settled() for part in wanted.parts):
            self._join_up(wanted)

    def _join_up(self, wanted: Wanted) -> None:
        """Joins settled parts to one range, or releases them; a mixed range is then read again."""
        parts = wanted.parts
        if all(part.is_complete() for part in parts):
            wanted.kind = "found"
            wanted.held = [each for part in parts for each in part.held]
            wanted.parts = []
            return
        for copy in wanted.copies():
            self._store.unhold(copy)
        wanted.parts = []
        if wanted.kind == "joined":
            wanted.kind = "failed"
        else:
            self._become(wanted, self._ask(wanted.request, wanted.first, wanted.last))
            self._settle(wanted)

    def _become(self, wanted: Wanted, other: Wanted) -> None:
        """Replaces a range's contents by those of another one."""
        wanted.kind, wanted.read, wanted.held, wanted.parts = other.kind, other.read, other.held, other.parts
        if other.kind == "awaited":
            waiting = self._reads[other.read].waiting
            waiting[waiting.index(other)] = wanted

    def _deliver(self, asking: Asking, held: list[tuple[int, int, int]]) -> None:
        del self._requests[asking.number]
        store, entries = self._store, []
        for entry, size, copy in held:
            counter = store.unhold(copy)
            number = store.number()
            store.hold(number, counter)
            entries.append(Delivered(Position(asking.ledger, entry), size, counter.expected, number))
        self._answered.append(Answered(asking.number, True, tuple(entries)))
        if asking.number in self._permits.held:
            if entries:
                self._permits.bind(asking.number, [each.copy for each in entries])
            else:
                self._release_permits(asking.number)

    # ---- permits

    def _release_permits(self, request: int) -> None:
        """Frees a request's permits; queued requests start, or fail with a timeout."""
        if self._permits.free_permits(request):
            self._start_queued_requests()

    def _start_queued_requests(self) -> None:
        permits = self._permits
        while permits.waiting:
            granted, failed = permits.grant_queued(self._store.now_ns)
            if not granted and not failed:
                return
            self._give_up(failed)
            for asking in granted:
                self._begin(asking)

    def _give_up(self, failed: list[Asking]) -> None:
        for asking in failed:
            del self._requests[asking.number]
            self._answered.append(Answered(asking.number, False, ()))

    def expire_waiting_reads(self) -> Reading:
        """The limiter's timer. O(requests that fail or start)."""
        failed = self._permits.expire(self._store.now_ns)
        self._give_up(failed)
        if failed:
            self._start_queued_requests()
        return self._reading(None)

    # ---- copies

    def release(self, copy: int) -> Released | Refused:
        """Releases a reader's copy. O(1), and the requests that start with the freed permits."""
        counter = self._store.counter(copy)
        if counter is None:
            return Refused("not_open", "no entry held by a reader has this number")
        self._store.unhold(copy)
        counter.mark_read()
        count = counter.expected
        request = self._permits.last_of(copy)
        if request is None:
            return Released(count, (), ())
        self._release_permits(request)
        reading = self._reading(None)
        return Released(count, reading.issued, reading.answered)

    def replay(self, copy: int) -> Count | Refused:
        return self._store.replay(copy)

    # ---- removing

    def invalidate_entries_before(self, cache: int, position: Position) -> None:
        """Removes a topic's entries before a position. Cost as `PagedRangeCache.between`."""
        store = self._get_entry_cache(cache)
        if store >= 0:
            self._forget(self._store.remove(self._store.before(store, position)))

    def invalidate_ledger(self, cache: int, ledger: int) -> None:
        """Removes a ledger's entries from a topic's cache. O(entries, and outstanding reads of it)."""
        store = self._get_entry_cache(cache)
        if store >= 0:
            self._forget(self._store.remove(self._store.of(store, ledger)))
            self._no_joining(store, ledger)

    def clear_cache(self, cache: int) -> None:
        """Empties a topic's cache. O(its entries, and outstanding reads of all)."""
        self._empty(self._get_entry_cache(cache))

    def clear_all(self) -> None:
        """Empties every topic's cache. O(their entries)."""
        for store in self._topic_caches:
            self._empty(store)

    def remove_entry_cache(self, cache: int) -> None:
        """Removes a topic's cache and empties it. O(its entries)."""
        store, self._topic_caches[cache] = self._topic_caches[cache], ABSENT
        self._empty(store)

    def _empty(self, store: int) -> None:
        if store >= 0:
            self._forget(self._store.remove(self._store.all_of(store)))
            for number, ledger in [key for key in self._joinable if key[0] == store]:
                self._no_joining(number, ledger)

    def _no_joining(self, store: int, ledger: int) -> None:
        listed = self._joinable.pop((store, ledger), None)
        if listed is not None:
            for read in listed.reads:
                read.joinable = False

    def _unlist(self, read: Outstanding) -> None:
        key = read.asking.store, read.asking.ledger
        listed = self._joinable[key]
        listed.discard(read)
        if not listed.reads:
            del self._joinable[key]

    def non_evictable_size(self) -> Removed:
        """Count and bytes of entries with expected reads or without a read count; drops detached slots. O(queue)."""
        return self._store.non_evictable_size()

    # ---- time and settings

    def advance(self, nanos: int) -> None:
        self._store.advance(nanos)

    def set_max_cache_bytes(self, value: int) -> None:
        self._max_bytes = value
        self._set_trigger()

    def set_eviction_watermark(self, value: float) -> None:
        self._watermark = value

    def set_max_requeue_times(self, value: int) -> None:
        self._store.set_max_requeue_times(value)

    def set_extend_ttl(self, value: bool) -> None:
        self._store.set_extend_ttl(value)

    # ---- for the engines

    def check(self) -> list[str]:
        wrong = self._store.check()
        if self.total_bytes != self._store.sizes():
            wrong.append("the total is not the sum of the caches' sizes")
        if self._trigger != int(TRIGGER_SHARE * self._max_bytes):
            wrong.append("the trigger is not that of the maximum")
        listed = {id(read) for each in self._joinable.values() for read in each.reads}
        if listed != {id(read) for read in self._reads.values() if read.joinable}:
            wrong.append("the listed reads are not the outstanding ones that can be joined")
        for each in self._joinable.values():
            apart = all(a.last < b.first for a, b in pairwise(each.reads))
            if not apart or each.firsts != [read.first for read in each.reads] or not each.reads:
                wrong.append("joinable reads of one ledger overlap, or are out of order")
        held = [copy for asking in self._requests.values() for copy in asking.root.copies()]
        if sorted(held) != sorted(copy for copy in self._store.copies() if copy < 0):
            wrong.append("the copies that requests hold are not those that are held")
        if any(copy <= self._next_held for copy in held):
            wrong.append("a held copy has a number that was not given yet")
        permits = self._permits
        if permits.most and permits.free + sum([taken for taken, _ in permits.held.values()]) != permits.most:
            wrong.append("the free permits and those that are held are not all there are")
        return wrong

    def view(self) -> State:
        self._store.in_order()
        return State(
            self._store.view(),
            tuple(self._owners),
            tuple(self._topic_caches),
            self.total_bytes,
            self._max_bytes,
            self._watermark,
            self._marked,
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
        self._store = Store.load(range_config(cfg, len(state.owners)), state.ranges)
        self._owners, self._topic_caches = list(state.owners), list(state.topic_caches)
        self.total_bytes, self._max_bytes, self._watermark = state.total_bytes, state.max_bytes, state.watermark
        self._set_trigger()
        self._marked, self._tasks, self._failing = state.marked, state.tasks, state.failing
        self._next_request, self._next_read = state.next_request, state.next_read
        self._next_held = state.next_held
        self._requests = {request.number: Asking.load(request) for request in state.requests}
        for r in state.reads:
            read = self._reads[r.number] = Outstanding.load(r, self._requests)
            if read.joinable:
                self._joinable.setdefault((r.store, r.ledger), Joinable()).add(read)
        self._permits.load(state.limiter, self._requests)
        c = state.counters
        self._insertions, self._hit_entries, self._hit_bytes = c.insertions, c.hit_entries, c.hit_bytes
        self._miss_entries, self._miss_bytes = c.miss_entries, c.miss_bytes
        self._evicted_entries, self._size_evictions = c.evicted_entries, c.size_evictions
        return self
