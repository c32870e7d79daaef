"""Range caches and their threads.

Implements the `reference` rules and all settings of `model/cache_steps`, on the broker's structures:

    wrapper     object with a lock; `holder` is the thread that holds the lock, or None
    map         key -> wrapper; only keys with a wrapper
    queue       double-ended queue of wrappers
    threads     objects with a program counter (`at`) and local variables

Every step is O(1), except `find_next`. `model/cache_steps/state` explains keys, program counters and local variables.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from model.cache_steps.machine import ELSEWHERE, IN_USE, LOCKED, NO_TASK, NO_VALUE, EvictionResult
from model.cache_steps.state import Config, Eviction, Insert, Lookup, Removal, State
from model.cache_steps.state import Wrapper as WrapperState
from model.machine import Refused


class Wrapper:
    """`RangeCacheEntryWrapper` and its lock. `released`: the value was deallocated while the wrapper was mapped."""

    __slots__ = ("accessed", "holder", "key", "number", "pooled", "released")

    def __init__(self, number: int) -> None:
        self.number = number
        self.key: int | None = None
        self.accessed = False
        self.released = False
        self.pooled = True
        self.holder: Thread | None = None

    def recycle(self) -> None:
        """Clears the key and the flags, and puts the wrapper into the pool. O(1)."""
        self.key = None
        self.accessed = False
        self.released = False
        self.pooled = True


class Thread:
    """A thread's program counter, wrapper and key."""

    __slots__ = ("at", "key", "wrapper")
    #: program counters at which the thread holds the lock of its wrapper
    holding: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.rest()

    def rest(self) -> None:
        """Becomes idle. O(1)."""
        self.at: Any = "idle"
        self.wrapper: Wrapper | None = None
        self.key: int | None = None

    def lock(self, wrapper: Wrapper) -> None:
        """Takes a free lock. O(1)."""
        wrapper.holder = self
        self.wrapper = wrapper

    def unlock(self) -> None:
        """Releases the lock of its wrapper, and forgets the wrapper. O(1)."""
        if self.wrapper is not None:
            self.wrapper.holder = None
            self.wrapper = None


class Inserting(Thread):
    """A thread that inserts."""

    __slots__ = ()
    holding = frozenset(("offer", "count"))


class Removing(Thread):
    """A thread that removes ranges."""

    __slots__ = ("last", "removed", "size_at_start")
    holding = frozenset(("unmap", "mark_removed"))

    def rest(self) -> None:
        """Becomes idle. O(1)."""
        super().rest()
        self.last: int | None = None
        self.removed = 0
        self.size_at_start = 0  # always 0 under the reference


class Evicting(Thread):
    """The thread that evicts."""

    __slots__ = ("freed", "goal", "periodic")
    holding = frozenset(("unmap", "mark_removed", "subtract"))

    def rest(self) -> None:
        """Becomes idle. O(1)."""
        super().rest()
        self.periodic = False
        self.goal: int | None = 0  # bytes to free in a size pass; None in a time pass
        self.freed = 0


class LookingUp(Thread):
    """A thread that looks up."""

    __slots__ = ()


class CacheThreads:
    """Range caches and the threads that work on them. Methods are named as the actions."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self._keys = cfg.caches * cfg.positions
        self._map: dict[int, Wrapper] = {}
        self._queue: deque[Wrapper] = deque()
        self._wrappers = [Wrapper(number) for number in range(cfg.pool)]
        self._sizes = [0] * cfg.caches
        self._total = 0
        self._eviction_in_progress = False
        self._tasks = 0
        self._inserts = [Inserting() for _ in range(cfg.inserters)]
        self._removals = [Removing() for _ in range(cfg.removers)]
        self._eviction = Evicting()
        self._lookups = [LookingUp() for _ in range(cfg.readers)]

    def _unmap(self, key: int, wrapper: Wrapper) -> None:
        if self._map.get(key) is wrapper:
            del self._map[key]

    def _key(self, cache: int, position: int) -> int:
        return self.cfg.positions * cache + position

    def _bytes(self, key: int) -> int:
        return 1 + key % self.cfg.positions

    # ---- inserting

    def insert(self, inserter: int, cache: int, position: int, wrapper: int) -> bool | Refused:
        me, w = self._inserts[inserter], self._wrappers[wrapper]
        if me.at != "idle":
            return ELSEWHERE
        if not w.pooled:
            return IN_USE
        if w.holder is not None:
            return LOCKED
        key = self._key(cache, position)
        if key in self._map:
            # a late lookup may have set `accessed` of the pooled wrapper
            w.recycle()
            return False
        me.lock(w)
        me.key = w.key = key
        w.pooled = w.released = False
        self._map[key] = w
        me.at = "offer"
        return True

    def publish(self, inserter: int) -> bool | Refused:
        me = self._inserts[inserter]
        if me.at != "offer" or me.wrapper is None:
            return ELSEWHERE
        self._queue.append(me.wrapper)
        me.at = "count"
        return True

    def count_in_cache(self, inserter: int) -> int | Refused:
        me = self._inserts[inserter]
        if me.at != "count" or me.key is None:
            return ELSEWHERE
        size = self._grow(me.key, self._bytes(me.key))
        me.unlock()
        me.at = "total"
        return size

    def _grow(self, key: int, more: int) -> int:
        """Adds bytes (negative: subtracts) to the size of the cache of a key; returns the new size. O(1)."""
        cache = key // self.cfg.positions
        self._sizes[cache] += more
        return self._sizes[cache]

    def count_in_total(self, inserter: int) -> bool | Refused:
        """Adds the bytes to the total; returns whether an eviction is to be scheduled. O(1)."""
        me = self._inserts[inserter]
        if me.at != "total" or me.key is None:
            return ELSEWHERE
        self._total += self._bytes(me.key)
        wants = not self._eviction_in_progress and self._total > self.cfg.trigger_bytes
        me.rest()
        if wants:
            me.at = "schedule"
        return wants

    def schedule(self, inserter: int) -> bool | Refused:
        me = self._inserts[inserter]
        if me.at != "schedule":
            return ELSEWHERE
        if self._eviction_in_progress:
            me.rest()
            return False
        self._eviction_in_progress = True
        self._tasks += 1
        me.rest()
        return True

    # ---- removing by position

    def remove(self, remover: int, cache: int, last: int) -> Refused | None:
        me = self._removals[remover]
        if me.at != "idle":
            return ELSEWHERE
        me.at = "find"
        me.key = self._key(cache, 0)
        me.last = self._key(cache, last)
        return None

    def find_next(self, remover: int) -> int | Refused | None:
        """Finds the next wrapper of the range. O(positions up to it)."""
        me = self._removals[remover]
        if me.at != "find" or me.key is None or me.last is None:
            return ELSEWHERE
        for key in range(me.key, me.last + 1):
            wrapper = self._map.get(key)
            if wrapper is not None:
                me.at = "take"
                me.key = key
                me.wrapper = wrapper
                return key
        if me.removed:
            me.at = "subtract"
            me.key = None
        else:
            me.rest()
        return None

    def take(self, remover: int) -> bool | Refused:
        """Locks the found wrapper, unless another thread has removed its entry or reused the wrapper. O(1)."""
        me = self._removals[remover]
        w = me.wrapper
        if me.at != "take" or w is None or me.key is None:
            return ELSEWHERE
        if w.holder is not None:
            return LOCKED
        if w.key != me.key:
            me.at = "find"
            me.key += 1
            me.wrapper = None
            return False
        me.lock(w)
        me.at = "unmap"
        return True

    def unmap(self, remover: int) -> Refused | None:
        me = self._removals[remover]
        if me.at != "unmap" or me.wrapper is None or me.key is None:
            return ELSEWHERE
        self._unmap(me.key, me.wrapper)
        me.at = "mark_removed"
        return None

    def mark_removed(self, remover: int) -> int | Refused:
        """Clears the wrapper and counts its bytes if it still has the key; returns the bytes removed so far. O(1)."""
        me = self._removals[remover]
        w = me.wrapper
        if me.at != "mark_removed" or w is None or me.key is None:
            return ELSEWHERE
        if w.key == me.key:
            w.key = None
            w.released = False
            me.removed += self._bytes(me.key)
        me.unlock()
        me.at = "find"
        me.key += 1
        return me.removed

    def subtract(self, remover: int) -> int | Refused:
        me = self._removals[remover]
        if me.at != "subtract" or me.last is None:
            return ELSEWHERE
        size, removed = self._grow(me.last, -me.removed), me.removed
        me.rest()
        if removed:
            me.at = "report"
            me.removed = removed
        return size

    def report(self, remover: int) -> int | Refused:
        me = self._removals[remover]
        if me.at != "report":
            return ELSEWHERE
        self._total -= me.removed
        me.rest()
        return self._total

    # ---- evicting

    def begin_eviction(self) -> Refused | None:
        if self._eviction.at != "idle":
            return ELSEWHERE
        if not self._tasks:
            return NO_TASK
        self._tasks -= 1
        self._eviction.at = "measure"
        return None

    def begin_periodic_eviction(self) -> Refused | None:
        me = self._eviction
        if me.at != "idle":
            return ELSEWHERE
        me.at = "peek"
        me.periodic = True
        me.goal = None
        return None

    def measure(self) -> int | Refused:
        """Begins a size pass if the total is above trigger and watermark. Returns the bytes to free, else 0. O(1)."""
        me = self._eviction
        if me.at != "measure":
            return ELSEWHERE
        wanted = self._total - self.cfg.target_bytes
        me.goal = wanted if wanted > 0 and self._total > self.cfg.trigger_bytes else 0
        me.at = "peek" if me.goal else "end"
        return me.goal

    def peek(self) -> bool | Refused:
        me = self._eviction
        if me.at != "peek":
            return ELSEWHERE
        if not self._queue:
            self._end_pass()
            return False
        me.wrapper = self._queue[0]
        me.at = "visit"
        return True

    def _end_pass(self) -> None:
        """Ends a pass; if bytes were freed, they are first subtracted from the total. O(1)."""
        me = self._eviction
        me.wrapper = None
        if me.freed:
            me.at = "report"
        else:
            self._after_pass()

    def _after_pass(self) -> None:
        """After a time pass (the goal is None), the size check follows; after a size pass, the task ends. O(1)."""
        me = self._eviction
        me.at = "measure" if me.goal is None else "end"
        me.goal = me.freed = 0

    def visit_for_size(self) -> EvictionResult | Refused:
        me = self._eviction
        if me.at != "visit" or me.goal is None:
            return ELSEWHERE
        return self._decide(me.freed >= me.goal)

    def visit_for_time(self, expired: bool) -> EvictionResult | Refused:
        me = self._eviction
        if me.at != "visit" or me.goal is not None:
            return ELSEWHERE
        return self._decide(not expired)

    def _decide(self, stops: bool) -> EvictionResult | Refused:
        """Visits the peeked head; `stops` is whether a live head ends the pass. O(1)."""
        me = self._eviction
        w = me.wrapper
        assert w is not None, "a visited head has been peeked"
        if w.holder is not None:
            return LOCKED
        if w.key is None:
            me.at = "pop"
            return "MISSING"
        if stops:
            self._end_pass()
            return "STOP"
        if self.cfg.extend_ttl_of_recently_accessed and w.accessed:
            w.accessed = False
            me.at = "requeue"
            return "REQUEUE"
        me.at = "unmap"
        me.key = w.key
        me.lock(w)
        return "REMOVE"

    def requeue(self) -> Refused | None:
        me = self._eviction
        if me.at != "requeue":
            return ELSEWHERE
        self._queue.rotate(-1)  # the head becomes the tail
        me.at = "peek"
        me.wrapper = None
        return None

    def unmap_evicted(self) -> bool | Refused:
        me = self._eviction
        if me.at != "unmap" or me.wrapper is None or me.key is None:
            return ELSEWHERE
        self._unmap(me.key, me.wrapper)
        me.at = "mark_removed"
        return True

    def mark_evicted_removed(self) -> bool | Refused:
        me = self._eviction
        w = me.wrapper
        if me.at != "mark_removed" or w is None:
            return ELSEWHERE
        w.key = None
        w.released = False
        me.at = "subtract"
        return True

    def subtract_evicted(self) -> int | Refused:
        """Subtracts the bytes from the cache; returns the bytes that the pass has freed so far. O(1)."""
        me = self._eviction
        if me.at != "subtract" or me.key is None or me.wrapper is None:
            return ELSEWHERE
        more = self._bytes(me.key)
        self._grow(me.key, -more)
        me.freed += more
        me.wrapper.holder = None  # releases the lock, and keeps the wrapper
        me.key = None
        me.at = "pop"
        return me.freed

    def pop(self) -> Refused | None:
        me = self._eviction
        if me.at != "pop":
            return ELSEWHERE
        me.wrapper = self._queue.popleft()
        me.at = "recycle"
        return None

    def recycle(self) -> Refused | None:
        me = self._eviction
        if me.at != "recycle" or me.wrapper is None:
            return ELSEWHERE
        me.wrapper.recycle()
        me.wrapper = None
        me.at = "peek"
        return None

    def report_evicted(self) -> int | Refused:
        me = self._eviction
        if me.at != "report":
            return ELSEWHERE
        self._total -= me.freed
        self._after_pass()
        return self._total

    def end_eviction(self) -> Refused | None:
        me = self._eviction
        if me.at != "end":
            return ELSEWHERE
        if not me.periodic:
            self._eviction_in_progress = False
        me.rest()
        return None

    # ---- looking up

    def find(self, reader: int, cache: int, position: int) -> bool | Refused:
        me = self._lookups[reader]
        if me.at != "idle":
            return ELSEWHERE
        key = self._key(cache, position)
        wrapper = self._map.get(key)
        if wrapper is None:
            return False
        me.at = "compare"
        me.key = key
        me.wrapper = wrapper
        return True

    def compare(self, reader: int) -> bool | Refused:
        me = self._lookups[reader]
        if me.at != "compare" or me.wrapper is None:
            return ELSEWHERE
        if me.wrapper.holder is not None:
            return LOCKED
        if me.wrapper.key == me.key:
            me.at = "set_accessed"
            return True
        me.rest()
        return False

    def set_accessed(self, reader: int) -> Refused | None:
        me = self._lookups[reader]
        if me.at != "set_accessed" or me.wrapper is None:
            return ELSEWHERE
        me.wrapper.accessed = True
        me.at = "retain"
        return None

    def retain(self, reader: int) -> int | Refused | None:
        me = self._lookups[reader]
        w, requested = me.wrapper, me.key
        if me.at != "retain" or w is None:
            return ELSEWHERE
        me.rest()
        if w.released or w.key != requested:
            return None
        return w.key

    def over_release(self, cache: int, position: int) -> Refused | None:
        wrapper = self._map.get(self._key(cache, position))
        if wrapper is None or wrapper.released:
            return NO_VALUE
        wrapper.released = True
        return None

    # ---- for the engines

    def _threads(self) -> list[Thread]:
        return [*self._inserts, *self._removals, self._eviction, *self._lookups]

    def _holds(self, thread: Thread) -> bool:
        """Whether a thread holds the lock of its wrapper, by its program counter. O(1)."""
        return thread.at in thread.holding

    def check(self) -> list[str]:
        wrong = []
        holders = [t for t in self._threads() if self._holds(t)]
        if any(t.wrapper is None or t.wrapper.holder is not t for t in holders):
            wrong.append("a thread works on a wrapper without holding its lock")
        if len([w for w in self._wrappers if w.holder is not None]) != len(holders):
            wrong.append("a thread holds a lock that its program counter does not imply")
        return wrong + self._unaccounted()

    def _unaccounted(self) -> list[str]:
        """Returns the violated invariants of wrappers and, if every thread is idle, of slots and sizes."""
        wrong = []
        queued = set(self._queue)
        if len(queued) != len(self._queue):
            wrong.append("a wrapper is in the queue twice")
        if any(w.pooled and (w.key is not None or w in queued) for w in self._wrappers):
            wrong.append("a wrapper in the pool is in use")
        if any(w.key != key for key, w in self._map.items()):
            wrong.append("a mapped wrapper has another key")
        if any(t.at != "idle" for t in self._threads()):
            return wrong
        if any(w not in queued for w in self._map.values()):
            wrong.append("an entry has no slot in the queue")
        sums = [0] * self.cfg.caches
        for key in self._map:
            sums[key // self.cfg.positions] += self._bytes(key)
        if sums != self._sizes:
            wrong.append("the size of a cache is not the sum of its entries' bytes")
        if sum(sums) != self._total:
            wrong.append("the total is not the sum of all cache sizes")
        return wrong

    def view(self) -> State:
        e, number = self._eviction, _number
        return State(
            tuple([number(self._map.get(key)) for key in range(self._keys)]),
            tuple([w.number for w in self._queue]),
            tuple([WrapperState(w.key, w.accessed, w.released, w.pooled) for w in self._wrappers]),
            tuple(self._sizes),
            self._total,
            self._eviction_in_progress,
            self._tasks,
            tuple([Insert(t.at, number(t.wrapper), t.key) for t in self._inserts]),
            tuple(
                [Removal(t.at, t.key, t.last, number(t.wrapper), t.removed, t.size_at_start) for t in self._removals]
            ),
            Eviction(e.at, e.periodic, number(e.wrapper), e.key, e.goal, e.freed),
            tuple([Lookup(t.at, t.key, number(t.wrapper)) for t in self._lookups]),
        )

    @classmethod
    def load(cls, cfg: Config, state: State) -> CacheThreads:
        self = cls(cfg)
        for w, carried in zip(self._wrappers, state.wrappers, strict=True):
            w.key, w.accessed, w.released, w.pooled = carried
        self._map = {key: self._wrappers[n] for key, n in enumerate(state.mapped) if n is not None}
        self._queue.extend([self._wrappers[n] for n in state.queue])
        self._sizes = list(state.sizes)
        self._total, self._eviction_in_progress, self._tasks = state.total, state.eviction_in_progress, state.scheduled
        for removing, r in zip(self._removals, state.removals, strict=True):
            removing.last, removing.removed, removing.size_at_start = r.last, r.removed, r.size_at_start
        e = state.eviction
        self._eviction.periodic, self._eviction.goal, self._eviction.freed = e.periodic, e.goal, e.freed
        states: list[Any] = [*state.inserts, *state.removals, e, *state.lookups]
        for thread, t in zip(self._threads(), states, strict=True):
            thread.at, thread.key = t.at, t.key
            thread.wrapper = None if t.wrapper is None else self._wrappers[t.wrapper]
            if thread.wrapper is not None and self._holds(thread):
                thread.wrapper.holder = thread
        return self


def _number(wrapper: Wrapper | None) -> int | None:
    return None if wrapper is None else wrapper.number
