"""Range caches and their removal queue, with concurrent threads.

Each topic has a cache: a map from positions to cached entries. All caches share a removal queue, from which entries are
evicted. If the total size exceeds a trigger, a task runs a size pass: it evicts entries down to a watermark. A periodic
task first runs a time pass, which evicts expired entries. Threads insert, look up, remove and evict at the same time; a
trace interleaves their steps. A wrapper holds an entry in the map and in the queue. Wrappers are reused from a pool.

Models `RangeCache`, `RangeCacheRemovalQueue` and `RangeEntryCacheManagerImpl` (PIP-430; master 2026-07, before
`RangeCache` had pages) at the grain of their linearisation points. The total is `currentSize` of the manager, the size
of a cache is `RangeCache.size`, and the trigger is `evictionTriggerThreshold`.

    insert    fill a pooled wrapper under its lock, and map it; offer it to the removal queue; add the entry's bytes to
              the size of the cache, and unlock the wrapper; add the bytes to the total; if the total is above the
              trigger and `evictionInProgress` is null, set `evictionInProgress` and submit an eviction task
    remove    for each position of a range: find the wrapper; lock it; if it still has the key, unmap it and mark it as
              removed (`markRemoved`). At the end subtract the removed bytes from the cache's size, then from the total
    evict     one thread, one task at a time. Peek the head; under its lock, decide. STOP: end the pass. REQUEUE: move
              the head to the tail. REMOVE: unmap the wrapper, mark it as removed, subtract the entry's bytes from the
              size of the cache; then, or if MISSING, pop and recycle the wrapper. At the end of the pass subtract all
              freed bytes from the total, at the end of a task that an insert submitted set `evictionInProgress` to null
    look up   find the wrapper; compare its key; set `accessed` without the lock; retain the value, check its position

One step is one access to a shared structure, but `insert` fills a wrapper and maps, queues or recycles it; `publish`
maps or recycles one; `count_in_total` adds to `currentSize` and reads `evictionInProgress`; `schedule` sets
`evictionInProgress` and submits the task; a visit tests the head and clears `accessed`; `requeue` polls and adds;
`retain` retains the value, checks it and may release it; `subtract` can clear the range in the map (`clears_in_bulk`).

State: map, removal queue, wrappers, sizes, total, `evictionInProgress`, scheduled tasks, and the program counter of
each thread (`at`). The locks follow from `at`. A step is refused if the thread is not at this step, if another thread
holds a lock that the step needs, or if there is no pooled wrapper, scheduled task or value for the step. A wrapper has
a number. A lookup can still hold the number after the wrapper was recycled and perhaps reused (a late lookup). A key is
the number of a position among the positions of all caches. The entry at position p of a cache has p + 1 bytes.

Not modelled: time (`visit_for_time` takes `expired` as an argument), expected reads and `requeueCount` (see
`model/range_cache`), buffers and reference counts, ledgers, an `EntryImpl` that is recycled while its wrapper still
refers to it. A range lookup is several lookups.
"""

from __future__ import annotations

from typing import Annotated, Literal

from model.cache_steps.state import (
    NO_EVICTION,
    NO_INSERT,
    NO_LOOKUP,
    NO_REMOVAL,
    Config,
    Eviction,
    Insert,
    Lookup,
    Removal,
    State,
    Wrapper,
    bytes_of,
    cache_of,
    is_locked,
    key_of,
    marked_removed,
    recycled,
    start,
    stays_counted,
    unmapped,
    with_bytes,
    with_item,
)
from model.machine import Machine, Refused, Step
from model.values import Below

ELSEWHERE = Refused("illegal_state", "the thread is not at this step")
LOCKED = Refused("illegal_state", "another thread holds the wrapper's lock")
IN_USE = Refused("illegal_state", "the wrapper is not in the pool")
NO_TASK = Refused("illegal_state", "no task is scheduled")
NO_VALUE = Refused("illegal_state", "no value to deallocate at this position")

#: Result of an eviction predicate for the head of the queue.
EvictionResult = Literal["MISSING", "STOP", "REQUEUE", "REMOVE"]

cache_steps = Machine(
    "cache_steps",
    Config,
    start,
    source="PIP-430",
    java={
        "RangeCache": ("put", "removeRange", "removeEntry", "get"),
        "RangeCacheRemovalQueue": (
            "addEntry",
            "evictEntries",
            "evictLeastAccessedEntries",
            "evictLEntriesBeforeTimestamp",
        ),
        "RangeCacheEntryWrapper": ("withWriteLock", "markRemoved", "getValue", "recycle"),
        "RangeEntryCacheManagerImpl": (
            "entryAdded",
            "triggerEvictionWhenNeeded",
            "entriesRemoved",
            "doCacheEviction",
            "doEvictToWatermarkWhenOverThreshold",
        ),
        "EntryImpl": ("release",),
    },
)

Inserter = Annotated[int, Below("inserters")]
Remover = Annotated[int, Below("removers")]
Reader = Annotated[int, Below("readers")]
Cache = Annotated[int, Below("caches")]
PositionIndex = Annotated[int, Below("positions")]

# ---- inserting ----------------------------------------------------------------------------------------


@cache_steps.action
def insert(
    cfg: Config,
    s: State,
    inserter: Inserter,
    cache: Cache,
    position: PositionIndex,
    wrapper: Annotated[int, Below("pool")],
) -> Step[State, bool]:
    """`RangeCache.put`: fills a pooled wrapper under its lock and maps it; returns whether the position was free.

    If the position was not free, the wrapper is recycled. Filling does not clear `accessed`, which a late lookup may
    have set. Two rules leave the mapping to `publish`. With `put_is_atomic=False`, this step only tests the position
    and fills the wrapper. With `published_first="queue"`, it fills and queues the wrapper, and returns true.
    """
    if s.inserts[inserter].at != "idle":
        return s, ELSEWHERE
    w = s.wrappers[wrapper]
    if not w.pooled:
        return s, IN_USE
    if is_locked(cfg, s, wrapper):
        return s, LOCKED
    key = key_of(cfg, cache, position)
    if cfg.published_first == "map" and s.mapped[key] is not None:
        back = recycled(cfg, w)
        return (s if w == back else s._replace(wrappers=with_item(s.wrappers, wrapper, back))), False
    filled = Wrapper(key, w.accessed, released=False, pooled=False)
    s = s._replace(wrappers=with_item(s.wrappers, wrapper, filled))
    if cfg.published_first == "queue":
        return _with_insert(s._replace(queue=(*s.queue, wrapper)), inserter, Insert("put", wrapper, key)), True
    if cfg.put_is_atomic:
        s = s._replace(mapped=with_item(s.mapped, key, wrapper))
        return _with_insert(s, inserter, Insert("offer", wrapper, key)), True
    return _with_insert(s, inserter, Insert("put", wrapper, key)), True


@cache_steps.action
def publish(cfg: Config, s: State, inserter: Inserter) -> Step[State, bool]:
    """`addEntry`: offers the mapped wrapper to the removal queue, which is unbounded; returns true.

    A wrapper that `insert` did not map (at `put`) is mapped instead; the step returns whether the position was free. If
    it was not: with `put_is_atomic=False`, the thread still offers the wrapper; with `published_first="queue"`, the
    wrapper is already queued, and is recycled.
    """
    i = s.inserts[inserter]
    if i.wrapper is None or i.key is None or i.at == "count":  # neither at `put` nor at `offer`
        return s, ELSEWHERE
    if i.at == "offer":
        s = s._replace(queue=(*s.queue, i.wrapper))
        return _with_insert(s, inserter, i._replace(at="count")), True
    is_free = s.mapped[i.key] is None
    if is_free:
        s = s._replace(mapped=with_item(s.mapped, i.key, i.wrapper))
    if cfg.published_first == "map":
        return _with_insert(s, inserter, i._replace(at="offer")), is_free
    if is_free:
        return _with_insert(s, inserter, i._replace(at="count")), True
    s = s._replace(wrappers=with_item(s.wrappers, i.wrapper, recycled(cfg, s.wrappers[i.wrapper])))
    return _with_insert(s, inserter, NO_INSERT), False


@cache_steps.action
def count_in_cache(cfg: Config, s: State, inserter: Inserter) -> Step[State, int]:
    """`RangeCache.put`: adds the bytes to the size of the cache and unlocks the wrapper; returns the size."""
    i = s.inserts[inserter]
    if i.at != "count" or i.key is None:
        return s, ELSEWHERE
    s = s._replace(sizes=with_bytes(cfg, s, i.key, bytes_of(cfg, i.key)))
    return _with_insert(s, inserter, Insert("total", None, i.key)), s.sizes[cache_of(cfg, i.key)]


@cache_steps.action
def count_in_total(cfg: Config, s: State, inserter: Inserter) -> Step[State, bool]:
    """`entryAdded`: adds the bytes to the total; returns whether the thread goes on to schedule an eviction."""
    i = s.inserts[inserter]
    if i.at != "total" or i.key is None:
        return s, ELSEWHERE
    s = s._replace(total=s.total + bytes_of(cfg, i.key))
    wants = s.total > cfg.trigger_bytes and not s.eviction_in_progress
    return _with_insert(s, inserter, Insert("schedule", None, None) if wants else NO_INSERT), wants


@cache_steps.action
def schedule(cfg: Config, s: State, inserter: Inserter) -> Step[State, bool]:
    """`triggerEvictionWhenNeeded`: if `evictionInProgress` is still null, sets it and schedules a task.

    Returns whether it scheduled a task. With `late_trigger="erases"`, a thread that finds `evictionInProgress` set
    writes null, and reads `evictionInProgress` again in another such step (at `retry`).
    """
    i = s.inserts[inserter]
    if i.at == "retry":
        return _with_insert(s, inserter, NO_INSERT if s.eviction_in_progress else i._replace(at="schedule")), False
    if i.at != "schedule":
        return s, ELSEWHERE
    if not s.eviction_in_progress:
        return _with_insert(s._replace(eviction_in_progress=True, scheduled=s.scheduled + 1), inserter, NO_INSERT), True
    if cfg.late_trigger == "keeps":
        return _with_insert(s, inserter, NO_INSERT), False
    return _with_insert(s._replace(eviction_in_progress=False), inserter, i._replace(at="retry")), False


def _with_insert(s: State, inserter: int, i: Insert) -> State:
    return s._replace(inserts=with_item(s.inserts, inserter, i))


# ---- removing by position -----------------------------------------------------------------------------


@cache_steps.action
def remove(cfg: Config, s: State, remover: Remover, cache: Cache, last: PositionIndex) -> Step[State, None]:
    """`removeRange` with `lastInclusive`: begins to remove the entries of a cache up to and including a position."""
    if s.removals[remover].at != "idle":
        return s, ELSEWHERE
    size_at_start = s.sizes[cache] if cfg.removal_reports == "size_at_start" else 0
    r = Removal("find", key_of(cfg, cache, 0), key_of(cfg, cache, last), None, 0, size_at_start)
    return _with_removal(s, remover, r), None


@cache_steps.action
def find_next(cfg: Config, s: State, remover: Remover) -> Step[State, int | None]:
    """`removeRange`: finds the next mapped position of the range; returns its key, or None at the end of the range."""
    r = s.removals[remover]
    if r.at != "find" or r.key is None or r.last is None:
        return s, ELSEWHERE
    for key in range(r.key, r.last + 1):
        wrapper = s.mapped[key]
        if wrapper is not None:
            return _with_removal(s, remover, r._replace(at="take", key=key, wrapper=wrapper)), key
    # a removal that has nothing to subtract, report or unmap ends here
    must_subtract = r.removed or r.size_at_start or cfg.clears_in_bulk
    return _with_removal(s, remover, r._replace(at="subtract", key=None) if must_subtract else NO_REMOVAL), None


@cache_steps.action
def take(cfg: Config, s: State, remover: Remover) -> Step[State, bool]:
    """`withWriteLock`: locks the wrapper; returns whether it still has the key. If not, unlocks it at once.

    With `removal_rechecks_key=False`, the key is not compared, and the step returns true. With
    `removal_passes_released_values=False`, a wrapper with a deallocated value is unlocked at once: the step returns
    false, and the removal finds the wrapper again.
    """
    r = s.removals[remover]
    if r.at != "take" or r.wrapper is None or r.key is None:
        return s, ELSEWHERE
    if is_locked(cfg, s, r.wrapper):
        return s, LOCKED
    w = s.wrappers[r.wrapper]
    if w.released and not cfg.removal_passes_released_values:
        return _with_removal(s, remover, r._replace(at="find", wrapper=None)), False
    if w.key != r.key and cfg.removal_rechecks_key:
        return _with_removal(s, remover, r._replace(at="find", key=r.key + 1, wrapper=None)), False
    return _with_removal(s, remover, r._replace(at="unmap")), True


@cache_steps.action
def unmap(cfg: Config, s: State, remover: Remover) -> Step[State, None]:
    """`removeEntry`: unmaps the wrapper under its lock; its slot stays in the removal queue."""
    r = s.removals[remover]
    if r.at != "unmap" or r.wrapper is None or r.key is None:
        return s, ELSEWHERE
    s = s._replace(mapped=unmapped(s, r.key, r.wrapper))
    return _with_removal(s, remover, r._replace(at="mark_removed")), None


@cache_steps.action
def mark_removed(cfg: Config, s: State, remover: Remover) -> Step[State, int]:
    """`markRemoved`: marks the wrapper as removed and unlocks it; returns the bytes removed so far.

    If the wrapper no longer has the key (with `removal_rechecks_key`), or if its value is deallocated (with
    `released_value_stays_counted`), the step only unlocks it.
    """
    r = s.removals[remover]
    if r.at != "mark_removed" or r.wrapper is None or r.key is None:
        return s, ELSEWHERE
    w, removed = s.wrappers[r.wrapper], r.removed
    if not stays_counted(cfg, w) and (w.key == r.key or not cfg.removal_rechecks_key):
        removed += bytes_of(cfg, r.key)
        s = s._replace(wrappers=with_item(s.wrappers, r.wrapper, marked_removed(w)))
    return _with_removal(s, remover, r._replace(at="find", key=r.key + 1, wrapper=None, removed=removed)), removed


@cache_steps.action
def subtract(cfg: Config, s: State, remover: Remover) -> Step[State, int]:
    """`removeRange`: subtracts the removed bytes from the size of the cache; returns the new size.

    With `clears_in_bulk`, also unmaps all positions of the range.
    """
    r = s.removals[remover]
    if r.at != "subtract" or r.last is None:
        return s, ELSEWHERE
    cache = cache_of(cfg, r.last)
    s = s._replace(sizes=with_item(s.sizes, cache, s.sizes[cache] - r.removed))
    if cfg.clears_in_bulk:
        first = key_of(cfg, cache, 0)
        s = s._replace(mapped=(*s.mapped[:first], *(None,) * (r.last + 1 - first), *s.mapped[r.last + 1 :]))
    reports = r.size_at_start if cfg.removal_reports == "size_at_start" else r.removed
    after = r._replace(at="report", last=None, removed=reports, size_at_start=0) if reports else NO_REMOVAL
    return _with_removal(s, remover, after), s.sizes[cache]


@cache_steps.action
def report(cfg: Config, s: State, remover: Remover) -> Step[State, int]:
    """`entriesRemoved`: subtracts the bytes that the removal reports from the total; returns the new total."""
    r = s.removals[remover]
    if r.at != "report":
        return s, ELSEWHERE
    s = s._replace(total=s.total - r.removed)
    return _with_removal(s, remover, NO_REMOVAL), s.total


def _with_removal(s: State, remover: int, r: Removal) -> State:
    return s._replace(removals=with_item(s.removals, remover, r))


# ---- evicting -----------------------------------------------------------------------------------------


@cache_steps.action
def begin_eviction(cfg: Config, s: State) -> Step[State, None]:
    """`triggerEvictionWhenNeeded`: the evicting thread begins a task that was scheduled."""
    if s.eviction.at != "idle":
        return s, ELSEWHERE
    if not s.scheduled:
        return s, NO_TASK
    return s._replace(scheduled=s.scheduled - 1, eviction=NO_EVICTION._replace(at="measure")), None


@cache_steps.action
def begin_periodic_eviction(cfg: Config, s: State) -> Step[State, None]:
    """`doCacheEviction`: the evicting thread begins its periodic task: a time pass, then the size check (`measure`).

    With `periodic_task_overwrites_future`, sets `evictionInProgress`.
    """
    if s.eviction.at != "idle":
        return s, ELSEWHERE
    is_set = s.eviction_in_progress or cfg.periodic_task_overwrites_future
    begun = Eviction("peek", periodic=True, wrapper=None, key=None, goal=None, freed=0)
    return s._replace(eviction_in_progress=is_set, eviction=begun), None


@cache_steps.action
def measure(cfg: Config, s: State) -> Step[State, int]:
    """`doEvictToWatermarkWhenOverThreshold`: begins a size pass if the total is above trigger and watermark.

    Returns the bytes to free; 0 ends the task.
    """
    e = s.eviction
    if e.at != "measure":
        return s, ELSEWHERE
    goal = max(s.total - cfg.target_bytes, 0) if s.total > cfg.trigger_bytes else 0
    return s._replace(eviction=e._replace(at="peek" if goal else "end", goal=goal)), goal


@cache_steps.action
def peek(cfg: Config, s: State) -> Step[State, bool]:
    """`evictEntries`: peeks the head; returns false and ends the pass if the queue is empty."""
    e = s.eviction
    if e.at != "peek":
        return s, ELSEWHERE
    if not s.queue:
        return s._replace(eviction=at_end_of_pass(e)), False
    return s._replace(eviction=e._replace(at="visit", wrapper=s.queue[0])), True


@cache_steps.action
def visit_for_size(cfg: Config, s: State) -> Step[State, EvictionResult]:
    """`evictLeastAccessedEntries`: a size pass tests the head under its lock.

    The result is MISSING without a key; STOP if enough bytes are freed; REQUEUE if `accessed` is set, with
    `extend_ttl_of_recently_accessed`; else REMOVE.
    """
    e = s.eviction
    if e.at != "visit" or e.goal is None:
        return s, ELSEWHERE
    return decide(cfg, s, e.freed >= e.goal)


@cache_steps.action
def visit_for_time(cfg: Config, s: State, expired: bool) -> Step[State, EvictionResult]:
    """`evictLEntriesBeforeTimestamp`: a time pass tests the head under its lock.

    The result is MISSING without a key; STOP if not expired; REQUEUE if `accessed` is set, with
    `extend_ttl_of_recently_accessed`; else REMOVE.
    """
    if s.eviction.at != "visit" or s.eviction.goal is not None:
        return s, ELSEWHERE
    return decide(cfg, s, not expired)


def decide(cfg: Config, s: State, stops: bool) -> Step[State, EvictionResult]:
    """Returns the state after a visit of the head under its lock, and the result; REQUEUE clears `accessed`.

    `stops` is whether the pass ends at a head that has a key.
    """
    e = s.eviction
    assert e.wrapper is not None, "a visited head has been peeked"
    if is_locked(cfg, s, e.wrapper):
        return s, LOCKED
    w = s.wrappers[e.wrapper]
    if w.key is None:
        return s._replace(eviction=e._replace(at="pop")), "MISSING"
    if stops:
        return s._replace(eviction=at_end_of_pass(e)), "STOP"
    if w.accessed and cfg.extend_ttl_of_recently_accessed:
        wrappers = with_item(s.wrappers, e.wrapper, w._replace(accessed=False))
        return s._replace(wrappers=wrappers, eviction=e._replace(at="requeue")), "REQUEUE"
    return s._replace(eviction=e._replace(at="unmap", key=w.key)), "REMOVE"


def at_end_of_pass(e: Eviction) -> Eviction:
    """Returns the evicting thread at the end of a pass.

    The thread first reports the freed bytes, if there are any. After a time pass, it then measures the total; after a
    size pass, it ends the task.
    """
    if e.freed:
        return e._replace(at="report", wrapper=None)
    return e._replace(at="measure" if e.goal is None else "end", wrapper=None, goal=0)


@cache_steps.action
def requeue(cfg: Config, s: State) -> Step[State, None]:
    """`evictEntries`: moves the head to the tail.

    Pulsar calls `poll` and then `add`. An `offer` between the two has the same effect as an `offer` before `poll`.
    """
    e = s.eviction
    if e.at != "requeue" or e.wrapper is None:
        return s, ELSEWHERE
    return s._replace(queue=(*s.queue[1:], e.wrapper), eviction=e._replace(at="peek", wrapper=None)), None


@cache_steps.action
def unmap_evicted(cfg: Config, s: State) -> Step[State, bool]:
    """`removeEntry`: unmaps the wrapper under its lock; returns true.

    With `eviction_unmaps="mapped"`, unmaps the wrapper that is now mapped at the position; returns false without one.
    """
    e = s.eviction
    if e.at != "unmap" or e.wrapper is None or e.key is None:
        return s, ELSEWHERE
    if cfg.eviction_unmaps == "checked":
        return s._replace(mapped=unmapped(s, e.key, e.wrapper), eviction=e._replace(at="mark_removed")), True
    present = s.mapped[e.key]
    # the step needs the lock of the mapped wrapper or, if no wrapper is mapped, the lock of the head
    if is_locked(cfg, s, e.wrapper if present is None else present):
        return s, LOCKED
    if present is None:
        return s._replace(eviction=e._replace(at="pop", key=None)), False
    return s._replace(mapped=unmapped(s, e.key, present), eviction=e._replace(at="mark_removed", wrapper=present)), True


@cache_steps.action
def mark_evicted_removed(cfg: Config, s: State) -> Step[State, bool]:
    """`markRemoved`: marks the wrapper as removed under its lock; returns true.

    With `released_value_stays_counted`, a wrapper with a deallocated value is only unlocked; returns false.
    """
    e = s.eviction
    if e.at != "mark_removed" or e.wrapper is None:
        return s, ELSEWHERE
    w = s.wrappers[e.wrapper]
    if stays_counted(cfg, w):
        return s._replace(eviction=e._replace(at="pop", key=None)), False
    wrappers = with_item(s.wrappers, e.wrapper, marked_removed(w))
    return s._replace(wrappers=wrappers, eviction=e._replace(at="subtract")), True


@cache_steps.action
def subtract_evicted(cfg: Config, s: State) -> Step[State, int]:
    """`removeEntry`: subtracts the bytes from the size of the cache and releases the lock.

    Returns the bytes freed in this pass.
    """
    e = s.eviction
    if e.at != "subtract" or e.key is None:
        return s, ELSEWHERE
    more = bytes_of(cfg, e.key)
    freed = e.freed + more
    return s._replace(
        sizes=with_bytes(cfg, s, e.key, -more), eviction=e._replace(at="pop", key=None, freed=freed)
    ), freed


@cache_steps.action
def pop(cfg: Config, s: State) -> Step[State, None]:
    """`evictEntries`: pops the head; with `eviction_unmaps="mapped"`, another wrapper may have been unmapped."""
    e = s.eviction
    if e.at != "pop":
        return s, ELSEWHERE
    return s._replace(queue=s.queue[1:], eviction=e._replace(at="recycle", wrapper=s.queue[0])), None


@cache_steps.action
def recycle(cfg: Config, s: State) -> Step[State, None]:
    """`RangeCacheEntryWrapper.recycle`: recycles the wrapper; a late lookup may still hold it."""
    e = s.eviction
    if e.at != "recycle" or e.wrapper is None:
        return s, ELSEWHERE
    wrappers = with_item(s.wrappers, e.wrapper, recycled(cfg, s.wrappers[e.wrapper]))
    return s._replace(wrappers=wrappers, eviction=e._replace(at="peek", wrapper=None)), None


@cache_steps.action
def report_evicted(cfg: Config, s: State) -> Step[State, int]:
    """`entriesRemoved`: subtracts the freed bytes from the total; returns the new total."""
    e = s.eviction
    if e.at != "report":
        return s, ELSEWHERE
    after = e._replace(at="measure" if e.goal is None else "end", goal=0, freed=0)
    s = s._replace(total=s.total - e.freed, eviction=after)
    return s, s.total


@cache_steps.action
def end_eviction(cfg: Config, s: State) -> Step[State, None]:
    """`triggerEvictionWhenNeeded`: the task ends and sets `evictionInProgress` to null.

    The periodic task does so only with `periodic_task_overwrites_future`.
    """
    e = s.eviction
    if e.at != "end":
        return s, ELSEWHERE
    keeps = e.periodic and not cfg.periodic_task_overwrites_future
    return s._replace(eviction_in_progress=s.eviction_in_progress and keeps, eviction=NO_EVICTION), None


# ---- looking up ---------------------------------------------------------------------------------------


@cache_steps.action
def find(cfg: Config, s: State, reader: Reader, cache: Cache, position: PositionIndex) -> Step[State, bool]:
    """`RangeCache.get`: finds the wrapper at a position; returns whether there is one."""
    if s.lookups[reader].at != "idle":
        return s, ELSEWHERE
    key = key_of(cfg, cache, position)
    wrapper = s.mapped[key]
    if wrapper is None:
        return s, False
    return _with_lookup(s, reader, Lookup("compare", key, wrapper)), True


@cache_steps.action
def compare(cfg: Config, s: State, reader: Reader) -> Step[State, bool]:
    """`getValue`: compares the wrapper's key with the requested key, while the lock is free; returns whether equal."""
    k = s.lookups[reader]
    if k.at != "compare" or k.wrapper is None:
        return s, ELSEWHERE
    if is_locked(cfg, s, k.wrapper):
        return s, LOCKED
    is_same = s.wrappers[k.wrapper].key == k.key
    return _with_lookup(s, reader, k._replace(at="set_accessed") if is_same else NO_LOOKUP), is_same


@cache_steps.action
def set_accessed(cfg: Config, s: State, reader: Reader) -> Step[State, None]:
    """`getValue`: sets `accessed` without the lock; the wrapper may have been recycled or reused meanwhile."""
    k = s.lookups[reader]
    if k.at != "set_accessed" or k.wrapper is None:
        return s, ELSEWHERE
    w = s.wrappers[k.wrapper]
    s = s._replace(wrappers=with_item(s.wrappers, k.wrapper, w._replace(accessed=True)))
    return _with_lookup(s, reader, k._replace(at="retain")), None


@cache_steps.action
def retain(cfg: Config, s: State, reader: Reader) -> Step[State, int | None]:
    """`RangeCache.get`: retains the value; returns its key if it is not deallocated and has the requested position.

    Returns None otherwise. With `retaining_checks_position=False`, the position is not compared.
    """
    k = s.lookups[reader]
    if k.at != "retain" or k.wrapper is None:
        return s, ELSEWHERE
    w = s.wrappers[k.wrapper]
    is_given = not w.released and (w.key == k.key or not cfg.retaining_checks_position)
    return _with_lookup(s, reader, NO_LOOKUP), w.key if is_given else None


def _with_lookup(s: State, reader: int, k: Lookup) -> State:
    return s._replace(lookups=with_item(s.lookups, reader, k))


@cache_steps.fault
def over_release(cfg: Config, s: State, cache: Cache, position: PositionIndex) -> Step[State, None]:
    """`EntryImpl.release`: deallocates the value of a cached entry, as one release too many does."""
    wrapper = s.mapped[key_of(cfg, cache, position)]
    if wrapper is None or s.wrappers[wrapper].released:
        return s, NO_VALUE
    w = s.wrappers[wrapper]._replace(released=True)
    return s._replace(wrappers=with_item(s.wrappers, wrapper, w)), None


@cache_steps.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Renumbers wrappers in the order of queue, map and threads; the other wrappers follow, ordered by their fields."""
    held = [i.wrapper for i in s.inserts] + [r.wrapper for r in s.removals]
    held += [s.eviction.wrapper, *[k.wrapper for k in s.lookups]]
    used = dict.fromkeys([n for n in (*s.queue, *s.mapped, *held) if n is not None])
    unused = [n for n in range(len(s.wrappers)) if n not in used]
    order = [*used, *sorted(unused, key=lambda n: _fields_of(s.wrappers[n]))]
    if order == sorted(order):
        return s
    number: dict[int | None, int | None] = {None: None, **{old: new for new, old in enumerate(order)}}
    return s._replace(
        mapped=tuple([number[n] for n in s.mapped]),
        queue=tuple([new for n in s.queue if (new := number[n]) is not None]),
        wrappers=tuple([s.wrappers[n] for n in order]),
        inserts=tuple([t._replace(wrapper=number[t.wrapper]) for t in s.inserts]),
        removals=tuple([t._replace(wrapper=number[t.wrapper]) for t in s.removals]),
        eviction=s.eviction._replace(wrapper=number[s.eviction.wrapper]),
        lookups=tuple([t._replace(wrapper=number[t.wrapper]) for t in s.lookups]),
    )


def _fields_of(w: Wrapper) -> tuple[int, bool, bool, bool]:
    return (-1 if w.key is None else w.key), w.accessed, w.released, w.pooled


@cache_steps.observation
def observe(cfg: Config, s: State) -> dict[str, object]:
    """Returns mapped keys, sizes, total, keys in the queue from the head, scheduled tasks and `evictionInProgress`."""
    keys = [[k for k, n in enumerate(s.mapped) if n is not None and cache_of(cfg, k) == c] for c in range(cfg.caches)]
    return {
        "caches": keys,
        "sizes": list(s.sizes),
        "total": s.total,
        "removal_queue": [s.wrappers[n].key for n in s.queue],
        "tasks": s.scheduled,
        "eviction_in_progress": s.eviction_in_progress,
    }


# ---- profiles -----------------------------------------------------------------------------------------

reference = cache_steps.profile("reference", "Pulsar's behaviour with its known defects corrected", Config())

future_erased = cache_steps.profile(
    "future-erased",
    "before apache/pulsar#25988: of two threads that trigger an eviction, the second erases the future of the first",
    Config(late_trigger="erases"),
)

future_overwritten = cache_steps.profile(
    "future-overwritten",
    "4.1 to master 2026-07: the periodic task overwrites the future of a scheduled task, and clears it at its end",
    Config(periodic_task_overwrites_future=True),
)

released_value_stays_counted = cache_steps.profile(
    "bytes-kept",
    "4.1 to master 2026-09: the bytes of a deallocated value stay in the size",
    Config(released_value_stays_counted=True),
)

queue_before_map = cache_steps.profile(
    "queue-before-map",
    "apache/pulsar#24363, revision 9534b612: a wrapper is queued before it is mapped",
    Config(published_first="queue"),
)

put_in_two_steps = cache_steps.profile(
    "put-in-two-steps",
    "before apache/pulsar#21302: two puts at one position are both counted",
    Config(put_is_atomic=False),
)

cleared_in_bulk = cache_steps.profile(
    "cleared-in-bulk",
    "before apache/pulsar#21302: `RangeCache.clear` ends by clearing the map; here, a removal clears its range",
    Config(clears_in_bulk=True),
)

reports_what_was_there = cache_steps.profile(
    "reports-what-was-there",
    "before apache/pulsar#10225: a removal reports the size of the cache at its beginning",
    Config(removal_reports="size_at_start"),
)

removed_twice = cache_steps.profile(
    "removed-twice",
    "before apache/pulsar#22789: a removal does not check that it removes the wrapper that it found",
    Config(removal_rechecks_key=False),
)

evicts_unchecked = cache_steps.profile(
    "evicts-unchecked",
    "removal by key, as in apache/pulsar#18076: an eviction removes what is mapped at a position, not what it checked",
    Config(eviction_unmaps="mapped"),
)

retains_unchecked = cache_steps.profile(
    "retains-unchecked",
    "before apache/pulsar#22789: a lookup does not check the position of the retained value",
    Config(retaining_checks_position=False),
)

recycled_uncleared = cache_steps.profile(
    "recycled-uncleared",
    "like `messageMetadataInitialized` before apache/pulsar#25987: recycling a wrapper leaves `accessed` set",
    Config(recycling_clears_accessed=False),
)

released_never_passed = cache_steps.profile(
    "released-never-passed",
    "before apache/pulsar#22814: a removal that finds a deallocated value does not end",
    Config(removal_passes_released_values=False),
)
