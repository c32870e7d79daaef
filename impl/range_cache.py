"""Range caches of a broker and their removal queue, with indexes.

Implements the `reference` rules and all settings of `model/range_cache`:

    queue     double-ended queue of wrappers: the cost of a pass is the number of wrappers that it removes, requeues or
              finds detached; it does not depend on the number of caches and entries
    cache     ledger -> page of 64 entry ids -> wrapper: O(1) insertion and lookup; a range costs as much as
              `PagedRangeCache.between`
    handler   one object shared by a wrapper and open copies of its entry; a duplicate put gives the wrapper another
              one. If an entry has no handler in the model, its object has no count (None)

Complexities count dictionary and queue operations as one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Self

from model.machine import Refused
from model.positions import Position
from model.range_cache import NOTHING, Config, Count, Entry, Hit, OrphanedCopies, Removed, State
from model.watermark import TRIGGER_SHARE

#: A page holds 2**_PAGE_BITS consecutive entry ids.
_PAGE_BITS = 6


def page_of(entry: int) -> int:
    """Returns the page of an entry id. O(1)."""
    return entry >> _PAGE_BITS


class ReadCountHandler:
    """The expected read count of an entry. `expected` is None if the entry has no handler in the model."""

    __slots__ = ("expected",)

    def __init__(self, expected: int | None) -> None:
        self.expected = expected

    def has_expected_reads(self) -> bool:
        """Whether at least one read is expected. O(1)."""
        return self.expected is not None and self.expected > 0

    def mark_read(self) -> None:
        """Decrements the count, if there is one. O(1)."""
        if self.expected is not None:
            self.expected -= 1

    def increment(self) -> None:
        """Increments the count, if there is one. O(1)."""
        if self.expected is not None:
            self.expected += 1


class Wrapper:
    """A cached entry, also an element of the removal queue.

    `live` is false once the wrapper is detached: its entry was removed by position, or evicted. `released`: the cached
    value was deallocated.
    """

    __slots__ = (
        "accessed",
        "bytes",
        "cache",
        "handler",
        "live",
        "position",
        "released",
        "requeue_count",
        "timestamp_ns",
    )

    def __init__(self, cache: int, position: Position, size: int, handler: ReadCountHandler, timestamp_ns: int) -> None:
        self.cache = cache
        self.position = position
        self.bytes = size
        self.handler = handler
        self.timestamp_ns = timestamp_ns
        self.requeue_count = 0
        self.accessed = False
        self.released = False
        self.live = True


class PagedRangeCache:
    """The wrappers of one topic by position: ledger id -> page -> entry id -> wrapper."""

    __slots__ = ("bytes", "ledgers")

    def __init__(self) -> None:
        self.bytes = 0
        self.ledgers: dict[int, dict[int, dict[int, Wrapper]]] = {}

    def find(self, position: Position) -> Wrapper | None:
        """Returns the wrapper at a position, or None. O(1)."""
        ledger, entry = position
        pages = self.ledgers.get(ledger)
        if pages is None:
            return None
        page = pages.get(page_of(entry))
        return None if page is None else page.get(entry)

    def add(self, wrapper: Wrapper) -> None:
        """Maps a wrapper at its position, which must be free. O(1)."""
        ledger, entry = wrapper.position
        pages = self.ledgers.get(ledger)
        if pages is None:
            pages = self.ledgers[ledger] = {}
        page = pages.get(page_of(entry))
        if page is None:
            page = pages[page_of(entry)] = {}
        page[entry] = wrapper

    def discard(self, position: Position) -> None:
        """Unmaps the wrapper at a position; drops a page or ledger that becomes empty. O(1)."""
        ledger, entry = position
        pages = self.ledgers[ledger]
        page = pages[page_of(entry)]
        del page[entry]
        if not page:
            del pages[page_of(entry)]
            if not pages:
                del self.ledgers[ledger]

    def between(self, first: Position, last: Position, last_inclusive: bool) -> list[Wrapper]:
        """Returns the wrappers from first to last, ordered by position; the last one only if `last_inclusive`.

        O(l + p + n log n) for l ledgers in the cache, p pages in the ledgers of the range, n entries in the pages that
        overlap the range.
        """
        found: list[Wrapper] = []
        first_page, last_page = (first.ledger, page_of(first.entry)), (last.ledger, page_of(last.entry))
        for ledger in sorted(x for x in self.ledgers if first.ledger <= x <= last.ledger):
            pages = self.ledgers[ledger]
            for number in sorted(n for n in pages if first_page <= (ledger, n) <= last_page):
                page = pages[number]
                found += [page[entry] for entry in sorted(page)]
        if last_inclusive:
            return [wrapper for wrapper in found if first <= wrapper.position <= last]
        return [wrapper for wrapper in found if first <= wrapper.position < last]

    def of_ledger(self, ledger: int) -> list[Wrapper]:
        """Returns the wrappers of a ledger, unordered. O(entries of the ledger)."""
        return [wrapper for page in self.ledgers.get(ledger, {}).values() for wrapper in page.values()]

    def __iter__(self) -> Iterator[Wrapper]:
        for pages in self.ledgers.values():
            for page in pages.values():
                yield from page.values()


class RangeCaches:
    """All range caches of a broker and their removal queue. Methods are named as the actions."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self.now_ns = 0
        self.max_requeue_times = cfg.max_requeue_times
        self.extend_ttl_of_recently_accessed = cfg.extend_ttl_of_recently_accessed
        self._caches = [PagedRangeCache() for _ in range(cfg.caches)]
        self._queue: deque[Wrapper] = deque()
        self._copies: dict[int, ReadCountHandler] = {}
        self._next_copy = 1

    # ---- putting and looking up

    def put(self, cache: int, position: Position, bytes: int, expected_reads: int) -> bool:
        home = self._caches[cache]
        counts = self.cfg.counts_reads and expected_reads > 0
        handler = ReadCountHandler(expected_reads if counts else None)
        present = home.find(position)
        if present is None:
            wrapper = Wrapper(cache, position, bytes, handler, self.now_ns)
            home.add(wrapper)
            home.bytes += bytes
            self._queue.append(wrapper)
            return True
        # a deallocated value keeps its handler
        if not present.released:
            present.handler = handler
        return False

    def put_mismatched(
        self, cache: int, position: Position, value_position: Position, bytes: int, expected_reads: int
    ) -> bool | Refused:
        if value_position != position:
            return Refused("illegal_argument", "the value's position is not the key")
        return self.put(cache, position, bytes, expected_reads)

    def get(self, cache: int, position: Position, hold: bool) -> Hit | None:
        wrapper = self._caches[cache].find(position)
        if wrapper is None:
            return None
        wrapper.accessed = True
        return None if wrapper.released else self._hit(wrapper, hold)

    def get_range(self, cache: int, first: Position, last: Position, hold: bool) -> tuple[Hit, ...]:
        """Looks up every entry from first to last. Complexity of PagedRangeCache.between."""
        found = self._caches[cache].between(first, last, True)
        for wrapper in found:
            wrapper.accessed = True
        return tuple([self._hit(wrapper, hold) for wrapper in found if not wrapper.released])

    def exists(self, cache: int, position: Position) -> bool:
        return self._caches[cache].find(position) is not None

    def _hit(self, wrapper: Wrapper, hold: bool) -> Hit:
        copy = None
        if hold:
            copy = self._next_copy
            self._next_copy = copy + 1
            self._copies[copy] = wrapper.handler
        return Hit(wrapper.position, wrapper.bytes, wrapper.handler.expected, copy)

    # ---- copies and replays

    def release(self, copy: int, delivered: bool) -> Count | Refused:
        handler = self._copies.pop(copy, None)
        if handler is None:
            return Refused("not_open", "no reader holds a copy with this number")
        if delivered:
            handler.mark_read()
        return Count(handler.expected)

    def replay(self, copy: int) -> Count | Refused:
        handler = self._copies.get(copy)
        if handler is None:
            return Refused("not_open", "no reader holds a copy with this number")
        handler.increment()
        return Count(handler.expected)

    def mark_read(self, cache: int, position: Position) -> Count | None:
        wrapper = self._caches[cache].find(position)
        if wrapper is None:
            return None
        wrapper.handler.mark_read()
        return Count(wrapper.handler.expected)

    # ---- removal by position

    def remove_range(self, cache: int, first: Position, last: Position, last_inclusive: bool) -> Removed:
        """Removes a range of one cache. Complexity of PagedRangeCache.between."""
        return self._detach(self._caches[cache].between(first, last, last_inclusive))

    def invalidate_ledger(self, cache: int, ledger: int) -> Removed:
        """Removes the entries of a ledger from one cache. O(entries removed)."""
        return self._detach(self._caches[cache].of_ledger(ledger))

    def clear(self, cache: int) -> Removed:
        """Removes all entries of one cache. O(entries of the cache)."""
        return self._detach(list(self._caches[cache]))

    def _detach(self, wrappers: Iterable[Wrapper]) -> Removed:
        removed = freed = 0
        for wrapper in wrappers:
            self._unmap(wrapper)
            removed += 1
            freed += wrapper.bytes
        return Removed(removed, freed)

    def _unmap(self, wrapper: Wrapper) -> None:
        """Unmaps an entry, detaches its wrapper, and subtracts its bytes from the size of the cache. O(1)."""
        home = self._caches[wrapper.cache]
        home.discard(wrapper.position)
        wrapper.live = False
        home.bytes -= wrapper.bytes

    # ---- eviction passes

    def should_requeue(self, wrapper: Wrapper) -> bool:
        """Whether a pass requeues the entry instead of removing it. O(1)."""
        if wrapper.accessed and self.extend_ttl_of_recently_accessed:
            return True
        return wrapper.requeue_count < self.max_requeue_times and wrapper.handler.has_expected_reads()

    def _requeue(self, wrapper: Wrapper) -> None:
        wrapper.requeue_count += 1
        wrapper.timestamp_ns = self.now_ns
        wrapper.accessed = False
        self._queue.append(wrapper)

    def time_pass(self, threshold_ns: int) -> Removed:
        """Evicts expired entries. O(wrappers removed, requeued or found detached)."""
        queue = self._queue
        removed = freed = 0
        while queue:
            wrapper = queue[0]
            if wrapper.live:
                if wrapper.timestamp_ns >= threshold_ns:
                    break
                queue.popleft()
                if self.should_requeue(wrapper):
                    self._requeue(wrapper)
                else:
                    self._unmap(wrapper)
                    removed += 1
                    freed += wrapper.bytes
            else:
                queue.popleft()
        return Removed(removed, freed)

    def size_pass(self, bytes_to_free: int) -> Removed | Refused:
        """Evicts until enough bytes are freed. O(wrappers removed, requeued or found detached)."""
        if bytes_to_free <= 0:
            return Refused("illegal_argument", "the bytes to free must be more than zero")
        queue = self._queue
        removed = freed = 0
        while queue:
            wrapper = queue[0]
            if wrapper.live:
                if freed >= bytes_to_free:
                    break
                queue.popleft()
                if self.should_requeue(wrapper):
                    self._requeue(wrapper)
                else:
                    self._unmap(wrapper)
                    removed += 1
                    freed += wrapper.bytes
            else:
                queue.popleft()
        return Removed(removed, freed)

    def evict_to_watermark(self) -> Removed:
        """Runs a size pass down to the watermark, if the total size exceeds the trigger and the watermark.

        O(caches), then as `size_pass`.
        """
        total = sum([home.bytes for home in self._caches])
        excess = total - int(self.cfg.max_bytes * self.cfg.watermark)
        if excess <= 0 or total <= int(self.cfg.max_bytes * TRIGGER_SHARE):
            return NOTHING
        evicted = self.size_pass(excess)
        assert isinstance(evicted, Removed)
        return evicted

    def non_evictable_size(self) -> Removed:
        """Counts the entries without a read count or with expected reads, and their bytes. O(queue).

        Also drops the detached wrappers from the queue.
        """
        self._queue = deque([wrapper for wrapper in self._queue if wrapper.live])
        kept = [w.bytes for w in self._queue if w.handler.expected is None or w.handler.expected >= 1]
        return Removed(len(kept), sum(kept))

    # ---- time, dynamic settings and faults

    def advance(self, nanos: int) -> None:
        self.now_ns += nanos

    def set_max_requeue_times(self, value: int) -> None:
        self.max_requeue_times = value

    def set_extend_ttl(self, value: bool) -> None:
        self.extend_ttl_of_recently_accessed = value

    def step_clock_back(self, nanos: int) -> None:
        self.now_ns -= nanos

    def over_release(self, cache: int, position: Position) -> Refused | None:
        wrapper = self._caches[cache].find(position)
        if wrapper is None or wrapper.released:
            return Refused("illegal_state", "no value to deallocate at this position")
        wrapper.released = True
        return None

    # ---- for the engines

    def check(self) -> list[str]:
        wrong = []
        mapped: list[Wrapper] = []
        for number, home in enumerate(self._caches):
            size = 0
            for ledger, pages in home.ledgers.items():
                if not pages:
                    wrong.append("an empty ledger is kept")
                for index, page in pages.items():
                    if not page:
                        wrong.append("an empty page is kept")
                    for entry, wrapper in page.items():
                        size += wrapper.bytes
                        if (wrapper.cache, *wrapper.position) != (number, ledger, entry) or page_of(entry) != index:
                            wrong.append("an entry is not mapped at its own position")
                    mapped += page.values()
            if home.bytes != size:
                wrong.append(f"the size of cache {number} is not the sum of its entries' bytes")
        queued = [wrapper for wrapper in self._queue if wrapper.live]
        if len(queued) != len(mapped) or set(queued) != set(mapped):
            wrong.append("the caches and the live wrappers of the queue are not the same")
        if self._copies and max(self._copies) >= self._next_copy:
            wrong.append("the number of an open copy can be given again")
        return wrong

    def view(self) -> State:
        holders: dict[ReadCountHandler, tuple[int, ...]] = {}  # handler -> its copies, in ascending order
        for copy, handler in self._copies.items():
            holders[handler] = (*holders.get(handler, ()), copy)
        take = holders.pop
        queue = tuple([_entry(w, take(w.handler, ())) if w.live else None for w in self._queue])
        # the handlers that are left belong to no cached entry
        orphaned = sorted([OrphanedCopies(copies, handler.expected) for handler, copies in holders.items()])
        return State(
            self.now_ns,
            queue,
            (),  # the reference has no stash
            tuple([home.bytes for home in self._caches]),
            tuple(orphaned),
            self._next_copy,
            self.max_requeue_times,
            self.extend_ttl_of_recently_accessed,
        )

    @classmethod
    def load(cls, cfg: Config, state: State) -> Self:
        self = cls(cfg)
        self.now_ns = state.now_ns
        self.max_requeue_times = state.max_requeue_times
        self.extend_ttl_of_recently_accessed = state.extend_ttl_of_recently_accessed
        self._next_copy = state.next_copy
        for e in state.queue:
            self._queue.append(_DETACHED if e is None else self._loaded(e))
        for group in state.orphaned_copies:
            handler = ReadCountHandler(group.expected_reads)
            self._copies.update((copy, handler) for copy in group.copies)
        for home, size in zip(self._caches, state.sizes, strict=True):
            home.bytes = size
        self._copies = dict(sorted(self._copies.items()))  # in the order of the numbers, as `view` needs
        return self

    def _loaded(self, e: Entry) -> Wrapper:
        handler = ReadCountHandler(e.expected_reads)
        wrapper = Wrapper(e.cache, e.position, e.bytes, handler, e.timestamp_ns)
        wrapper.requeue_count, wrapper.accessed, wrapper.released = e.requeue_count, e.accessed, e.released
        self._copies.update((copy, handler) for copy in e.copies)
        self._caches[e.cache].add(wrapper)
        return wrapper


def _entry(wrapper: Wrapper, copies: tuple[int, ...]) -> Entry:
    return Entry(
        wrapper.cache,
        wrapper.position,
        wrapper.bytes,
        wrapper.handler.expected,
        copies,
        wrapper.timestamp_ns,
        wrapper.requeue_count,
        wrapper.accessed,
        wrapper.released,
    )


#: Stands for every detached wrapper of a loaded state; its other attributes are never read.
_DETACHED = Wrapper.__new__(Wrapper)
_DETACHED.live = False
