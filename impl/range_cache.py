"""Range caches behind one removal queue, with structures whose cost is right.

The same behaviour as `model/range_cache.py`, mutable and indexed:

    queue       a double-ended queue of slots, so that a pass costs what it removes, puts back or finds
                detached, and never depends on how many caches or entries there are
    cache       ledger -> page of 64 entry ids -> slot, so that insertion and lookup cost the same in a
                cache of any size, and a range costs its own extent
    counter     one object shared by a slot and the open copies of its entry

Complexities below count dictionary and queue operations as one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Self

from model import watermark
from model.machine import Refused
from model.positions import Position
from model.range_cache import NOTHING, Config, Count, Entry, Hit, OrphanedCopies, Removed, State

#: A page holds this many consecutive entry ids, as two to the power.
_PAGE_BITS = 6


def page_of(entry: int) -> int:
    """The page in which an entry id stands. O(1)."""
    return entry >> _PAGE_BITS


class ReadCountHandler:
    """How many reads are still expected; None when that was never defined."""

    __slots__ = ("expected",)

    def __init__(self, expected: int | None) -> None:
        self.expected = expected

    def expects_reads(self) -> bool:
        """Whether at least one read is expected. O(1)."""
        return self.expected is not None and self.expected > 0

    def lower(self) -> None:
        """One read happened. O(1)."""
        if self.expected is not None:
            self.expected -= 1

    def raise_(self) -> None:
        """One more read will happen. O(1)."""
        if self.expected is not None:
            self.expected += 1


class Wrapper:
    """A place in the removal queue, and the entry that stands there until it is detached."""

    __slots__ = (
        "accessed",
        "bytes",
        "cache",
        "counter",
        "live",
        "position",
        "released",
        "requeue_count",
        "timestamp_ns",
    )

    def __init__(self, cache: int, position: Position, size: int, counter: ReadCountHandler, timestamp_ns: int) -> None:
        self.cache = cache
        self.position = position
        self.bytes = size
        self.counter = counter
        self.timestamp_ns = timestamp_ns
        self.requeue_count = 0
        self.accessed = False
        self.released = False
        self.live = True


class PagedRangeCache:
    """One topic's entries by position: ledgers, of pages, of slots."""

    __slots__ = ("bytes", "ledgers")

    def __init__(self) -> None:
        self.bytes = 0
        self.ledgers: dict[int, dict[int, dict[int, Wrapper]]] = {}

    def find(self, position: Position) -> Wrapper | None:
        """The slot at a position, or None. O(1)."""
        ledger, entry = position
        pages = self.ledgers.get(ledger)
        if pages is None:
            return None
        page = pages.get(page_of(entry))
        return None if page is None else page.get(entry)

    def add(self, slot: Wrapper) -> None:
        """Lists a slot at its position, which must be free. O(1)."""
        ledger, entry = slot.position
        pages = self.ledgers.get(ledger)
        if pages is None:
            pages = self.ledgers[ledger] = {}
        page = pages.get(page_of(entry))
        if page is None:
            page = pages[page_of(entry)] = {}
        page[entry] = slot

    def discard(self, position: Position) -> None:
        """Unlists the slot at a position; empty pages and ledgers go with it. O(1)."""
        ledger, entry = position
        pages = self.ledgers[ledger]
        page = pages[page_of(entry)]
        del page[entry]
        if not page:
            del pages[page_of(entry)]
            if not pages:
                del self.ledgers[ledger]

    def between(self, first: Position, last: Position, last_inclusive: bool) -> list[Wrapper]:
        """The slots from first to last, in the order of positions.

        O(l + p + n log n) for l ledgers in the cache, p pages in the ledgers of the range, n entries in its pages.
        """
        found: list[Wrapper] = []
        first_page, last_page = (first.ledger, page_of(first.entry)), (last.ledger, page_of(last.entry))
        for ledger in sorted(x for x in self.ledgers if first.ledger <= x <= last.ledger):
            pages = self.ledgers[ledger]
            for number in sorted(n for n in pages if first_page <= (ledger, n) <= last_page):
                page = pages[number]
                found += [page[entry] for entry in sorted(page)]
        if last_inclusive:
            return [slot for slot in found if first <= slot.position <= last]
        return [slot for slot in found if first <= slot.position < last]

    def of_ledger(self, ledger: int) -> list[Wrapper]:
        """The slots of a ledger, in no order. O(entries of the ledger)."""
        return [slot for page in self.ledgers.get(ledger, {}).values() for slot in page.values()]

    def __iter__(self) -> Iterator[Wrapper]:
        for pages in self.ledgers.values():
            for page in pages.values():
                yield from page.values()


class RangeCaches:
    """All range caches of a broker and the removal queue that they share. Methods are named as the actions."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self.now_ns = 0
        self.max_requeue_times = cfg.max_requeue_times
        self.extend_ttl_of_recently_accessed = cfg.extend_ttl_of_recently_accessed
        self._keeps_first = {"keep": True, "latest_handler": False}[cfg.duplicate_put]
        self._refuses_inverted = {"empty": False, "illegal_argument": True}[cfg.inverted_range]
        self._stashes = {"requeue": False, "stash": True}[cfg.retention]
        self._caches = [PagedRangeCache() for _ in range(cfg.caches)]
        self._queue: deque[Wrapper] = deque()
        self._stash: dict[Wrapper, None] = {}
        self._copies: dict[int, ReadCountHandler] = {}
        self._next_copy = 1

    # ---- putting and looking up

    def put(self, cache: int, position: Position, bytes: int, expected_reads: int) -> bool:
        """Adds an entry; true if it was absent. O(1)."""
        home = self._caches[cache]
        counts = self.cfg.counts_reads and expected_reads > 0
        present = home.find(position)
        if present is None:
            slot = Wrapper(cache, position, bytes, ReadCountHandler(expected_reads if counts else None), self.now_ns)
            home.add(slot)
            home.bytes += bytes
            self._queue.append(slot)
            return True
        if not (self._keeps_first or present.released):
            present.counter = ReadCountHandler(expected_reads if counts else None)
        return False

    def put_mismatched(
        self, cache: int, position: Position, value_position: Position, bytes: int, expected_reads: int
    ) -> bool | Refused:
        """As put, but the value says which position it has. O(1)."""
        if value_position != position:
            return Refused("illegal_argument", "the value's position is not the key")
        return self.put(cache, position, bytes, expected_reads)

    def get(self, cache: int, position: Position, hold: bool) -> Hit | None:
        """Looks an entry up, and holds a copy if asked. O(1)."""
        slot = self._caches[cache].find(position)
        if slot is None:
            return None
        slot.accessed = True
        return None if slot.released else self._give(slot, hold)

    def get_range(self, cache: int, first: Position, last: Position, hold: bool) -> tuple[Hit, ...] | Refused:
        """Looks up every entry from first to last, both included. As PagedRangeCache.between."""
        if first > last and self._refuses_inverted:
            return Refused("illegal_argument", "the first position is after the last")
        found = self._caches[cache].between(first, last, True)
        for slot in found:
            slot.accessed = True
        return tuple([self._give(slot, hold) for slot in found if not slot.released])

    def exists(self, cache: int, position: Position) -> bool:
        """Whether the position is cached. O(1)."""
        return self._caches[cache].find(position) is not None

    def _give(self, slot: Wrapper, hold: bool) -> Hit:
        copy = None
        if hold:
            copy = self._next_copy
            self._next_copy = copy + 1
            self._copies[copy] = slot.counter
        return Hit(slot.position, slot.bytes, slot.counter.expected, copy)

    # ---- counting reads

    def release(self, copy: int, delivered: bool) -> Count | Refused:
        """Takes a copy back. O(1)."""
        counter = self._copies.pop(copy, None)
        if counter is None:
            return Refused("not_open", "no open copy has this number")
        if delivered or self.cfg.undelivered_release_marks_read:
            counter.lower()
        return Count(counter.expected)

    def replay(self, copy: int) -> Count | Refused:
        """One more read of the copy's entry will come. O(1)."""
        counter = self._copies.get(copy)
        if counter is None:
            return Refused("not_open", "no open copy has this number")
        counter.raise_()
        return Count(counter.expected)

    def mark_read(self, cache: int, position: Position) -> Count | None:
        """Lowers the counter of a cached entry. O(1)."""
        slot = self._caches[cache].find(position)
        if slot is None:
            return None
        slot.counter.lower()
        return Count(slot.counter.expected)

    # ---- removing by position

    def remove_range(self, cache: int, first: Position, last: Position, last_inclusive: bool) -> Removed | Refused:
        """Removes a range of one cache. As PagedRangeCache.between."""
        if first > last and self._refuses_inverted:
            return Refused("illegal_argument", "the first position is after the last")
        return self._detach(self._caches[cache].between(first, last, last_inclusive))

    def invalidate_ledger(self, cache: int, ledger: int) -> Removed:
        """Removes one ledger's entries of one cache. O(entries removed)."""
        return self._detach(self._caches[cache].of_ledger(ledger))

    def clear(self, cache: int) -> Removed:
        """Removes all entries of one cache. O(entries of that cache)."""
        return self._detach(list(self._caches[cache]))

    def _detach(self, slots: Iterable[Wrapper]) -> Removed:
        removed = freed = 0
        for slot in slots:
            self._stash.pop(slot, None)
            if self._unmap(slot):
                removed += 1
                freed += slot.bytes
        return Removed(removed, freed)

    def _unmap(self, slot: Wrapper) -> bool:
        """Takes an entry out of its cache; false if its bytes stay counted. O(1)."""
        home = self._caches[slot.cache]
        home.discard(slot.position)
        slot.live = False
        if self.cfg.removal_marks_read:
            slot.counter.lower()
        if slot.released and self.cfg.released_value_stays_counted:
            return False
        home.bytes -= slot.bytes
        return True

    # ---- eviction

    def should_requeue(self, slot: Wrapper) -> bool:
        """Whether a pass puts the entry back instead of removing it. O(1)."""
        if slot.accessed and self.extend_ttl_of_recently_accessed:
            return True
        return slot.requeue_count < self.max_requeue_times and slot.counter.expects_reads()

    def _requeue(self, slot: Wrapper) -> None:
        by_access = slot.accessed and self.extend_ttl_of_recently_accessed
        if self.cfg.access_requeue_counts or not by_access:
            slot.requeue_count += 1
        slot.timestamp_ns = self.now_ns
        slot.accessed = False
        self._queue.append(slot)

    def time_pass(self, threshold_ns: int) -> Removed:
        """Removes what is older than the threshold. O(slots removed, put back or found detached)."""
        if self._stashes:
            return self._stash_time_pass(threshold_ns)
        queue = self._queue
        removed = freed = 0
        while queue:
            slot = queue[0]
            if slot.live:
                if slot.timestamp_ns >= threshold_ns:
                    break
                queue.popleft()
                if self.should_requeue(slot):
                    self._requeue(slot)
                elif self._unmap(slot):
                    removed += 1
                    freed += slot.bytes
            else:
                queue.popleft()
        return Removed(removed, freed)

    def size_pass(self, bytes_to_free: int) -> Removed | Refused:
        """Removes from the head until enough is free. O(slots removed, put back or found detached)."""
        if bytes_to_free <= 0:
            return Refused("illegal_argument", "the bytes to free must be more than zero")
        if self._stashes:
            return self._stash_size_pass(bytes_to_free)
        queue = self._queue
        expired_before = None if self.cfg.size_pass_requeues_expired else self.now_ns - self.cfg.ttl_ns
        removed = freed = 0
        while queue:
            slot = queue[0]
            if slot.live:
                if freed >= bytes_to_free:
                    break
                queue.popleft()
                is_past_sparing = expired_before is not None and slot.timestamp_ns < expired_before
                if self.should_requeue(slot) and not is_past_sparing:
                    self._requeue(slot)
                elif self._unmap(slot):
                    removed += 1
                    freed += slot.bytes
            else:
                queue.popleft()
        return Removed(removed, freed)

    def evict_to_watermark(self) -> Removed:
        """A size pass if all caches together are over the trigger. O(caches), then as size_pass."""
        total = sum([home.bytes for home in self._caches])
        wanted = watermark.bytes_to_evict(total, self.cfg.max_bytes, self.cfg.watermark)
        if wanted <= 0 or not watermark.is_over_threshold(total, self.cfg.max_bytes):
            return NOTHING
        evicted = self.size_pass(wanted)
        assert isinstance(evicted, Removed)
        return evicted

    def non_evictable_size(self) -> Removed:
        """Entries that expect reads or do not count them; drops detached slots. O(queue)."""
        self._queue = deque([slot for slot in self._queue if slot.live])
        kept = [
            slot.bytes
            for slot in (*self._queue, *self._stash)
            if slot.counter.expected is None or slot.counter.expected >= 1
        ]
        return Removed(len(kept), sum(kept))

    # ---- the early draft's stash

    def _stash_time_pass(self, threshold_ns: int) -> Removed:
        removed = freed = 0
        expired = [slot for slot in self._stash if slot.timestamp_ns < threshold_ns]
        while self._queue and not (self._queue[0].live and self._queue[0].timestamp_ns >= threshold_ns):
            slot = self._queue.popleft()
            if slot.live:
                expired.append(slot)
        for slot in expired:
            self._stash.pop(slot, None)
            if self._unmap(slot):
                removed += 1
                freed += slot.bytes
        return Removed(removed, freed)

    def _stash_size_pass(self, bytes_to_free: int) -> Removed:
        threshold_ns = self.now_ns - self.cfg.ttl_ns
        removed = freed = 0
        stashed = list(self._stash)
        for slot in stashed:
            if freed >= bytes_to_free:
                break
            if slot.timestamp_ns < threshold_ns or not slot.counter.expects_reads():
                del self._stash[slot]
                if self._unmap(slot):
                    removed += 1
                    freed += slot.bytes
        while self._queue and not (self._queue[0].live and freed >= bytes_to_free):
            slot = self._queue.popleft()
            if not slot.live:
                continue
            if slot.timestamp_ns >= threshold_ns and slot.counter.expects_reads():
                self._stash[slot] = None
            elif self._unmap(slot):
                removed += 1
                freed += slot.bytes
        return Removed(removed, freed)

    # ---- time and settings

    def advance(self, nanos: int) -> None:
        """Time passes. O(1)."""
        self.now_ns += nanos

    def set_max_requeue_times(self, value: int) -> None:
        """Changes the maximum. O(1)."""
        self.max_requeue_times = value

    def set_extend_ttl(self, value: bool) -> None:
        """Switches the extension for recent access. O(1)."""
        self.extend_ttl_of_recently_accessed = value

    def step_clock_back(self, nanos: int) -> None:
        """The clock goes back. O(1)."""
        self.now_ns -= nanos

    def over_release(self, cache: int, position: Position) -> Refused | None:
        """The value of an entry is given back behind the cache's back. O(1)."""
        slot = self._caches[cache].find(position)
        if slot is None or slot.released:
            return Refused("illegal_state", "no value to release at this position")
        slot.released = True
        return None

    # ---- for the engines

    def check(self) -> list[str]:
        """Structural invariants that do not hold, one line each. O(all)."""
        wrong = []
        mapped = [slot for home in self._caches for slot in home]
        queued = [slot for slot in self._queue if slot.live] + list(self._stash)
        if Counter(queued) != Counter(mapped):
            wrong.append("the caches and the live slots of the queue do not hold the same entries, each once")
        if any(self._caches[slot.cache].find(slot.position) is not slot for slot in mapped):
            wrong.append("an entry is not found at its own position")
        if any(not page for home in self._caches for pages in home.ledgers.values() for page in pages.values()):
            wrong.append("an empty page is kept")
        if any(not pages for home in self._caches for pages in home.ledgers.values()):
            wrong.append("an empty ledger is kept")
        if any(copy >= self._next_copy for copy in self._copies):
            wrong.append("an open copy has a number that was not given yet")
        if not self.cfg.released_value_stays_counted:
            for number, home in enumerate(self._caches):
                if home.bytes != sum([slot.bytes for slot in home]):
                    wrong.append(f"cache {number} does not hold as many bytes as it says")
        return wrong

    def view(self) -> State:
        """The model's state of which this is an implementation. O(all)."""
        holders: dict[ReadCountHandler, tuple[int, ...]] = {}
        for copy, counter in self._copies.items():
            holders[counter] = (*holders.get(counter, ()), copy)
        take = holders.pop
        queue = tuple([_entry(slot, take(slot.counter, ())) if slot.live else None for slot in self._queue])
        stash = tuple([_entry(slot, take(slot.counter, ())) for slot in self._stash])
        orphaned_copies = (
            sorted([OrphanedCopies(copies, counter.expected) for counter, copies in holders.items()]) if holders else ()
        )
        return State(
            self.now_ns,
            queue,
            stash,
            tuple([home.bytes for home in self._caches]),
            tuple(orphaned_copies),
            self._next_copy,
            self.max_requeue_times,
            self.extend_ttl_of_recently_accessed,
        )

    @classmethod
    def load(cls, cfg: Config, state: State) -> Self:
        """An implementation in the given state of the model. O(all)."""
        self = cls(cfg)
        self.now_ns = state.now_ns
        self.max_requeue_times = state.max_requeue_times
        self.extend_ttl_of_recently_accessed = state.extend_ttl_of_recently_accessed
        self._next_copy = state.next_copy
        for e in state.queue:
            self._queue.append(_DETACHED if e is None else self._loaded(e))
        for e in state.stash:
            self._stash[self._loaded(e)] = None
        for group in state.orphaned_copies:
            counter = ReadCountHandler(group.expected_reads)
            self._copies.update((copy, counter) for copy in group.copies)
        for home, size in zip(self._caches, state.sizes, strict=True):
            home.bytes = size
        self._copies = dict(sorted(self._copies.items()))
        return self

    def _loaded(self, e: Entry) -> Wrapper:
        counter = ReadCountHandler(e.expected_reads)
        slot = Wrapper(e.cache, e.position, e.bytes, counter, e.timestamp_ns)
        slot.requeue_count, slot.accessed, slot.released = e.requeue_count, e.accessed, e.released
        self._copies.update((copy, counter) for copy in e.copies)
        self._caches[e.cache].add(slot)
        return slot


def _entry(slot: Wrapper, copies: tuple[int, ...]) -> Entry:
    return Entry(
        slot.cache,
        slot.position,
        slot.bytes,
        slot.counter.expected,
        copies,
        slot.timestamp_ns,
        slot.requeue_count,
        slot.accessed,
        slot.released,
    )


#: stands for every detached slot of a loaded state; nothing else of it is ever read
_DETACHED = Wrapper.__new__(Wrapper)
_DETACHED.live = False
