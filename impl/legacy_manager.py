"""The caches of a broker of branch 4.0, before PIP-430.

Implements the `reference` rules and all settings of `model/legacy_manager`. Each cache is an `OrderedCache` of
`impl/legacy_cache`.
"""

from __future__ import annotations

from collections import deque

from impl.legacy_cache import OrderedCache, proportional_shares
from model.legacy_manager import CacheState, Config, Counters, Found, State, StorageRead
from model.machine import Failed, Refused
from model.positions import Position
from model.range_cache import Removed
from model.watermark import TRIGGER_SHARE

#: The failure of the eviction policy if there is nothing to free or no cache.
_NO_POLICY = Failed("illegal_argument", "the policy needs bytes to free and at least one cache")


class LegacyManager:
    """The caches of a broker under one size limit. Methods are named as the actions."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self.now_ns = 0
        self.max_bytes = cfg.max_bytes
        self.watermark = cfg.watermark
        self.total_bytes = 0
        self.eviction_in_progress = False
        # None: the cache is disabled; an absent cache has no key
        self._caches: dict[int, OrderedCache | None] = {c: self._created() for c in range(cfg.caches)}
        self._tasks: deque[int] = deque()
        self._issued_reads = 0
        self._failing_reads = 0
        self._insertions = self._evicted = self._size_evictions = 0
        self._hits = self._hit_bytes = self._misses = self._miss_bytes = 0

    def _created(self) -> OrderedCache | None:
        return OrderedCache() if self.max_bytes > 0 else None

    def _use(self, cache: int) -> OrderedCache | None:
        """Returns the cache of a topic, or None if it is disabled; creates an absent cache. O(1)."""
        if cache not in self._caches:
            self._caches[cache] = self._created()
        return self._caches[cache]

    def _took(self, removed: Removed) -> Removed:
        """Subtracts removed entries from the total size, counts them as evicted, and returns them. O(1)."""
        self.total_bytes -= removed.bytes
        self._evicted += removed.entries
        return removed

    # ---- inserting

    def insert(self, cache: int, position: Position, bytes: int) -> bool | Failed:
        """Inserts an entry unless the total size has reached the maximum, or the position is cached.

        First starts an eviction task if the total size is above the trigger and no task is pending: the task is queued,
        or runs at once. The total size is the one before the task. If the task fails, so does the insert. A disabled
        cache takes no entry, and starts no task. Complexity of OrderedCache.add, and of an eviction if the task runs.
        """
        home = self._use(cache)
        if home is None:
            return False
        total = self.total_bytes
        if not self.eviction_in_progress and total > int(self.max_bytes * TRIGGER_SHARE):
            self.eviction_in_progress = True
            if self.cfg.eviction_task == "queued":
                self._tasks.append(total)
            elif isinstance(self._evict(total), Failed):
                return _NO_POLICY
        if total >= self.max_bytes or not home.add(position, bytes, self.now_ns):
            return False
        self.total_bytes += bytes
        self._insertions += 1
        return True

    def _evict(self, size_at_scheduling: int) -> int | Failed:
        """Runs a task; returns the number of evicted entries. O(caches log caches + evicted)."""
        self.eviction_in_progress = False
        self._size_evictions += 1
        wanted = size_at_scheduling - int(self.max_bytes * self.watermark)
        existing = {c: home for c, home in sorted(self._caches.items()) if home is not None}
        if wanted <= 0 or not existing:
            return _NO_POLICY
        sizes = [(c, home.bytes) for c, home in existing.items()]
        asked = proportional_shares(sizes, wanted)
        return sum([self._took(existing[cache].take_until_free(share)).entries for cache, share in asked])

    def run_eviction_task(self) -> int | Failed | Refused:
        """Runs the oldest queued task. O(caches log caches + evicted)."""
        if not self._tasks:
            return Refused("illegal_state", "no eviction task is queued")
        return self._evict(self._tasks.popleft())

    # ---- reading

    def read(self, cache: int, ledger: int, first: int, last: int, store_in_cache: bool) -> Found | Failed | Refused:
        """Reads a range from the cache if all its entries are cached, else from storage. O(entries), and inserts."""
        ledgers = self.cfg.storage[cache] if cache < len(self.cfg.storage) else ()
        if ledger < 1 or ledger > len(ledgers) or first < 0 or first > last or last >= len(ledgers[ledger - 1]):
            return Refused("illegal_argument", "storage does not have this range")
        home = self._use(cache)
        asked = [Position(ledger, entry) for entry in range(first, last + 1)]
        if home is not None and all(position in home.entries for position in asked):
            hits = tuple([(position, home.entries[position].bytes) for position in asked])
            self._hits += len(hits)
            self._hit_bytes += sum([size for _, size in hits])
            return Found("ok", hits, ())
        self._issued_reads += 1
        issued = (StorageRead(self._issued_reads, cache, ledger, first, last),)
        if self._failing_reads > 0:
            self._failing_reads -= 1
            return Found("failed", (), issued)
        stored = tuple([(position, ledgers[ledger - 1][position.entry]) for position in asked])
        self._misses += len(stored)
        self._miss_bytes += sum([size for _, size in stored])
        if store_in_cache:
            for position, size in stored:
                outcome = self.insert(cache, position, size)
                if isinstance(outcome, Failed):
                    return outcome
        return Found("ok", stored, issued)

    def read_one(self, cache: int, position: Position) -> Found | Failed | Refused:
        return self.read(cache, position.ledger, position.entry, position.entry, False)

    def fail_next_storage_reads(self, number: int) -> None:
        self._failing_reads = number

    # ---- removing

    def time_pass(self, cache: int, threshold_ns: int) -> int:
        """Removes the entries of one cache before the first unexpired entry. Complexity of OrderedCache.take."""
        home = self._use(cache)
        return 0 if home is None else self._took(home.take_expired(threshold_ns)).entries

    def size_pass(self, cache: int, bytes_to_free: int) -> Removed | Refused:
        """Removes entries of one cache until enough bytes are freed. Complexity of OrderedCache.take."""
        if bytes_to_free <= 0:
            return Refused("illegal_argument", "the bytes to free must be more than zero")
        home = self._use(cache)
        return Removed(0, 0) if home is None else self._took(home.take_until_free(bytes_to_free))

    def invalidate_entries_before(self, cache: int, position: Position) -> None:
        """Removes the entries from (-1, 0) on that are before a position. Complexity of OrderedCache.take."""
        home = self._use(cache)
        if home is not None:
            self._took(home.take(home.count_before(Position(-1, 0), False), home.count_before(position, False)))

    def invalidate_ledger(self, cache: int, ledger: int) -> None:
        """Removes the entries of a ledger. Complexity of OrderedCache.take."""
        home = self._use(cache)
        if home is not None:
            first, end = Position(ledger, 0), Position(ledger + 1, 0)
            self._took(home.take(home.count_before(first, False), home.count_before(end, False)))

    def clear_cache(self, cache: int) -> None:
        """Removes all entries of one cache. O(n)."""
        self._clear(self._use(cache))

    def clear_all(self) -> None:
        """Removes all entries. O(all)."""
        for home in self._caches.values():
            self._clear(home)

    def remove_entry_cache(self, cache: int) -> None:
        """Removes a cache and its entries. O(n)."""
        self._clear(self._caches.pop(cache, None))

    def _clear(self, home: OrderedCache | None) -> None:
        if home is not None:
            self._took(home.take(0, len(home.positions)))

    # ---- time and settings

    def advance(self, nanos: int) -> None:
        self.now_ns += nanos

    def set_max_bytes(self, value: int) -> None:
        self.max_bytes = value

    def set_watermark(self, value: float) -> None:
        self.watermark = value

    # ---- for the engines

    def check(self) -> list[str]:
        homes = [home for home in self._caches.values() if home is not None]
        wrong = [line for home in homes for line in home.check()]
        if self.total_bytes != sum([home.bytes for home in homes]):
            wrong.append("the total is not the sum of the caches")
        return wrong

    def view(self) -> State:
        counters = Counters(
            self._insertions,
            self._hits,
            self._hit_bytes,
            self._misses,
            self._miss_bytes,
            self._evicted,
            self._size_evictions,
        )
        return State(
            self.now_ns,
            tuple([self._held(cache) for cache in range(self.cfg.caches)]),
            self.max_bytes,
            self.watermark,
            self.eviction_in_progress,
            tuple(self._tasks),
            self._issued_reads,
            self._failing_reads,
            counters,
        )

    def _held(self, cache: int) -> CacheState:
        if cache not in self._caches:
            return "absent"
        home = self._caches[cache]
        return "disabled" if home is None else home.view()

    @classmethod
    def load(cls, cfg: Config, state: State) -> LegacyManager:
        self = cls(cfg)
        self.now_ns, self.max_bytes, self.watermark = state.now_ns, state.max_bytes, state.watermark
        self.eviction_in_progress = state.eviction_in_progress
        self._tasks = deque(state.tasks)
        self._issued_reads, self._failing_reads = state.issued_reads, state.failing_reads
        held = [(c, h) for c, h in enumerate(state.caches) if h != "absent"]
        self._caches = {c: None if isinstance(h, str) else OrderedCache(h) for c, h in held}
        self.total_bytes = sum([home.bytes for home in self._caches.values() if home is not None])
        (
            self._insertions,
            self._hits,
            self._hit_bytes,
            self._misses,
            self._miss_bytes,
            self._evicted,
            self._size_evictions,
        ) = state.counters
        return self
