"""Caches behind one read path: branch 4.0, LRU, and policies of a library, for comparison.

A read looks up each of its entries. Each gap is read from storage; with `whole_range`, the whole range is read from
storage if any entry is missing. A range that overlaps an outstanding storage read waits for that storage read, and only
the remainder is read.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from fuzz.workloads.caches.cache import LEDGER, WATERMARK, Cache, Environment, Reading, Rules
from impl.entry_cache.shared_reads import JoinableReads, OutstandingRead, PendingRequest
from impl.legacy_manager import LegacyManager
from model.legacy_manager import Config
from model.machine import Failed
from model.positions import Position

#: The library of `LibraryCache`. Its licence is the GPL, so it is an optional extra.
LIBRARY = "libcachesim"


def has_library() -> bool:
    """Returns whether the library is installed."""
    return importlib.util.find_spec(LIBRARY) is not None


class Simple(Cache):
    """The read path of a cache. Subclasses hold the entries."""

    whole_range = False  # whether a read with a missing entry reads the whole range from storage
    caches_storage_reads = True  # whether entries that are read from storage are cached

    def __init__(self, env: Environment, rules: Rules) -> None:
        super().__init__(env, rules)
        self._requests = self._storage_reads = 0
        self._joinable: dict[int, JoinableReads] = {}
        self._outstanding: dict[int, OutstandingRead] = {}
        self._awaited: dict[int, set[int]] = {}  # request -> storage reads
        self._awaiting: dict[int, list[int]] = {}  # storage read -> requests
        self._trimmed: dict[int, int] = {}  # topic -> first entry whose ledger is not deleted

    def find(self, topic: int, entry: int) -> bool:
        """Returns whether an entry is cached. A policy may count the lookup as a use of the entry."""
        raise NotImplementedError

    def put(self, topic: int, entry: int) -> None:
        """Caches an entry, if it is not cached and fits."""
        raise NotImplementedError

    def drop(self, topic: int, entry: int) -> None:
        """Removes an entry of a deleted ledger, if it is cached."""

    def trim(self, topic: int, end: int) -> None:
        """See `Cache.trim`."""
        for entry in range(self._trimmed.get(topic, 0), end):
            self.drop(topic, entry)
        self._trimmed[topic] = end

    def add(self, topic: int, entry: int) -> None:
        """See `Cache.add`. Caches the entry while cursors are active, and during the grace period."""
        if self.active(topic).should_cache_added_entries():
            self.put(topic, entry)

    def read(self, topic: int, cursor: int, first: int, last: int, replayed: bool) -> Reading:  # noqa: ARG002
        """See `Cache.read`."""
        self._requests += 1
        request = self._requests
        missing = [entry for entry in range(first, last + 1) if not self.find(topic, entry)]
        if missing and self.whole_range:
            missing = list(range(first, last + 1))
        issued: list[tuple[int, int]] = []
        self._awaited[request] = set()
        for low, high in runs(missing):
            self._await_reads(request, topic, low, high, replayed, issued)
        self._complete_requests([request])
        return Reading(request, issued)

    def _await_reads(
        self, request: int, topic: int, low: int, high: int, replayed: bool, issued: list[tuple[int, int]]
    ) -> None:
        """Makes a request wait for storage reads of a range: it joins outstanding ones, and issues one for each gap.

        Issued storage reads are added to `issued`, each with its number of entries.
        """
        joinable = self._joinable.setdefault(topic, JoinableReads())
        read = joinable.best(low, high)
        if read is None:
            self._storage_reads += 1
            # `JoinableReads` does not use the last argument; this class stores in it whether the entries may be cached
            initiator = PendingRequest(0, topic, topic, LEDGER, int(not replayed))
            read = self._outstanding[self._storage_reads] = OutstandingRead(self._storage_reads, initiator, low, high)
            joinable.add(read)
            issued.append((read.number, high - low + 1))
        self._awaited[request].add(read.number)
        self._awaiting.setdefault(read.number, []).append(request)
        if low < read.first:
            self._await_reads(request, topic, low, read.first - 1, replayed, issued)
        if high > read.last:
            self._await_reads(request, topic, read.last + 1, high, replayed, issued)

    def complete(self, storage_read: int) -> None:
        """See `Cache.complete`."""
        read = self._outstanding.pop(storage_read)
        topic = read.initiator.cache
        self._joinable[topic].discard(read)
        if self.caches_storage_reads and read.initiator.expected_reads:
            for entry in range(read.first, read.last + 1):
                self.put(topic, entry)
        requests = self._awaiting.pop(storage_read)
        for request in requests:
            self._awaited[request].discard(storage_read)
        self._complete_requests(requests)

    def _complete_requests(self, requests: list[int]) -> None:
        for request in requests:
            if not self._awaited[request]:
                del self._awaited[request]
                self.answered.append((request, ()))


def runs(entries: list[int]) -> Iterator[tuple[int, int]]:
    """Yields the first and last number of each maximal range of consecutive numbers. `entries` is ascending."""
    start = 0
    for i, entry in enumerate(entries):
        if i + 1 == len(entries) or entries[i + 1] != entry + 1:
            yield entries[start], entry
            start = i + 1


class Manager(LegacyManager):
    """`impl/legacy_manager`, with queries for the study."""

    visits = 0  # see `Cache.visits`

    def caches(self) -> list[tuple[int, Any]]:
        """Returns the topics that have a cache, each with the cache."""
        return [(topic, cache) for topic, cache in self._caches.items() if cache is not None]

    def holds(self, topic: int, entry: int) -> bool:
        """Returns whether the entry is cached."""
        cache = self._caches.get(topic)
        return cache is not None and Position(LEDGER, entry) in cache.entries

    def _evict(self, size_at_scheduling: int) -> int | Failed:
        evicted = super()._evict(size_at_scheduling)
        self.visits += len(self._caches) + (0 if isinstance(evicted, Failed) else evicted)
        return evicted


class Legacy(Simple):
    """Branch 4.0: each topic has a cache, which is evicted separately; storage reads are not cached."""

    whole_range = True
    caches_storage_reads = False

    def __init__(self, env: Environment, rules: Rules) -> None:
        super().__init__(env, rules)
        cfg = Config(caches=len(env.logs), max_bytes=env.max_bytes, watermark=WATERMARK, eviction_task="immediate")
        self.manager = Manager(cfg)

    def find(self, topic: int, entry: int) -> bool:
        """See `Simple.find`."""
        return self.manager.holds(topic, entry)

    def put(self, topic: int, entry: int) -> None:
        """See `Simple.put`. Does nothing while the cache is full."""
        self.manager.now_ns = self.now_us * 1000
        self.manager.insert(topic, Position(LEDGER, entry), self.env.logs[topic].sizes[entry])

    def evict(self) -> None:
        """See `Cache.evict`: runs the time pass of every topic that has entries."""
        threshold = (self.now_us - self.env.ttl_us) * 1000
        for topic, cache in self.manager.caches():
            if cache.positions:
                self.manager.visits += 1 + self.manager.time_pass(topic, threshold)

    def trim(self, topic: int, end: int) -> None:
        """See `Cache.trim`: removes the entries of a ledger with one call."""
        self.invalidate(topic, Position(LEDGER, end))

    def invalidate(self, topic: int, slowest: Position | None) -> None:
        """See `Cache.invalidate`."""
        before = self.manager._evicted
        if slowest is None:
            self.manager.clear_cache(topic)
        else:
            self.manager.invalidate_entries_before(topic, slowest)
        self.manager.visits += self.manager._evicted - before

    def size(self) -> int:
        """See `Cache.size`."""
        return self.manager.total_bytes

    def visits(self) -> int:
        """See `Cache.visits`."""
        return self.manager.visits

    def contents(self) -> Iterator[tuple[int, int, int]]:
        """See `Cache.contents`."""
        return ((t, p.entry, e.bytes) for t, cache in self.manager.caches() for p, e in cache.entries.items())


class LRU(Simple):
    """Evicts the least recently added or read entry; no TTL, no cursors."""

    def __init__(self, env: Environment) -> None:
        super().__init__(env, Rules())
        self._entries: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._bytes = 0

    def add(self, topic: int, entry: int) -> None:
        """Caches every added entry."""
        self.put(topic, entry)

    def find(self, topic: int, entry: int) -> bool:
        """See `Simple.find`."""
        if (topic, entry) not in self._entries:
            return False
        self._entries.move_to_end((topic, entry))
        return True

    def put(self, topic: int, entry: int) -> None:
        """See `Simple.put`."""
        size = self.env.logs[topic].sizes[entry]
        if self.find(topic, entry) or size > self.env.max_bytes:
            return
        while self._bytes + size > self.env.max_bytes:
            self._bytes -= self._entries.popitem(last=False)[1]
            self.visited += 1
        self._entries[topic, entry] = size
        self._bytes += size

    def drop(self, topic: int, entry: int) -> None:
        """See `Simple.drop`."""
        self._bytes -= self._entries.pop((topic, entry), 0)

    def size(self) -> int:
        """See `Cache.size`."""
        return self._bytes

    def contents(self) -> Iterator[tuple[int, int, int]]:
        """See `Cache.contents`."""
        return ((topic, entry, size) for (topic, entry), size in self._entries.items())


class LibraryCache(Simple):
    """A policy of the library; `name` is its class in the library. No TTL, no cursors."""

    def __init__(self, env: Environment, name: str) -> None:
        super().__init__(env, Rules())
        library: Any = importlib.import_module(LIBRARY)
        self._request = library.Request()
        self._cache = getattr(library, name)(env.max_bytes)
        self._inserted = 0

    def add(self, topic: int, entry: int) -> None:
        """Caches every added entry."""
        self.put(topic, entry)

    def _of(self, topic: int, entry: int) -> Any:
        self._request.obj_id = (topic << 40) + entry + 1
        self._request.obj_size = self.env.logs[topic].sizes[entry]
        return self._request

    def drop(self, topic: int, entry: int) -> None:
        """See `Simple.drop`."""
        self._inserted -= self._cache.remove((topic << 40) + entry + 1)

    def find(self, topic: int, entry: int) -> bool:
        """See `Simple.find`."""
        return self._cache.find(self._of(topic, entry), True) is not None

    def put(self, topic: int, entry: int) -> None:
        """See `Simple.put`."""
        self._inserted += not self._cache.get(self._of(topic, entry))

    def size(self) -> int:
        """See `Cache.size`."""
        return int(self._cache.get_occupied_byte())

    def visits(self) -> int:
        """Returns the number of evicted entries. The library does not count other entries that an eviction visits."""
        return self._inserted - int(self._cache.get_n_obj())
