"""Policies with one removal queue for all topics: `impl/entry_cache`, and variants of its queue."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from typing import Literal, NamedTuple

from fuzz.workloads.caches.cache import LEDGER, WATERMARK, Cache, Environment, Reading, Rules
from impl.entry_cache.manager import BrokerRangeCaches, EntryCaches, range_config
from impl.range_cache import Wrapper
from model.entry_cache.state import Config, Released
from model.entry_cache.state import Reading as Answer
from model.machine import Refused
from model.positions import Position
from model.range_cache import Config as RangeConfig
from model.range_cache import Removed


class Queue(BrokerRangeCaches):
    """The range caches with their removal queue. `visits` is the number that `Central.visits` returns."""

    def __init__(self, cfg: RangeConfig) -> None:
        super().__init__(cfg)
        self.visits = 0
        self.spent: deque[Wrapper] = (
            deque()
        )  # entries whose last expected read is done; empty unless `Settings.spent` is "first"
        self.owner: Central

    def _requeue(self, wrapper: Wrapper) -> None:
        super()._requeue(wrapper)
        self.visits += 1

    def is_needed(self, wrapper: Wrapper) -> bool:
        """Returns whether the entry should stay cached: here, whether it has expected reads."""
        return wrapper.handler.has_expected_reads()

    def _counted(self, length_before: int, removed: Removed) -> Removed:
        """Adds the slots that a pass removed, and the slot at which it stopped, to `visits`. Returns `removed`."""
        self.visits += length_before - len(self._queue) + bool(self._queue)  # `_requeue` has counted requeues
        return removed

    def time_pass(self, threshold_ns: int) -> Removed:
        """See `RangeCaches.time_pass`."""
        return self._counted(len(self._queue), super().time_pass(threshold_ns))

    def size_pass(self, bytes_to_free: int) -> Removed | Refused:
        """Removes spent entries. If they are too few, continues with `RangeCaches.size_pass`."""
        entries = freed = 0
        while self.spent and freed < bytes_to_free:
            self.visits += 1
            wrapper = self.spent.popleft()
            if wrapper.live and not self.is_needed(wrapper):
                self._unmap(wrapper)
                entries, freed = entries + 1, freed + wrapper.bytes
        if freed and freed >= bytes_to_free:  # if 0 bytes or less are asked for, the call below refuses
            return Removed(entries, freed)
        slots, removed = len(self._queue), super().size_pass(bytes_to_free - freed)
        if isinstance(removed, Refused):
            return removed
        return self._counted(slots, Removed(entries + removed.entries, freed + removed.bytes))

    def live(self) -> Iterator[Wrapper]:
        """Yields all cached entries."""
        return (wrapper for store in self._caches for wrapper in store)


class SeparateCounters(Queue):
    """A requeue for recent access does not count towards the limit of requeues."""

    def _requeue(self, wrapper: Wrapper) -> None:
        recent = wrapper.accessed and self.extend_ttl_of_recently_accessed
        super()._requeue(wrapper)
        wrapper.requeue_count -= recent


class Stash(Queue):
    """The first draft of PIP-430: size passes move entries with expected reads to a list, the stash."""

    def __init__(self, cfg: RangeConfig) -> None:
        super().__init__(cfg)
        self.stash: list[Wrapper] = []

    def _remove(self, wrapper: Wrapper) -> int:
        self._unmap(wrapper)
        return wrapper.bytes

    def time_pass(self, threshold_ns: int) -> Removed:
        """Removes expired entries, also those with expected reads. O(stash + removed)."""
        entries = freed = 0
        self.visits += len(self.stash)
        expired = [w for w in self.stash if w.live and w.timestamp_ns < threshold_ns]
        self.stash = [w for w in self.stash if w.live and w.timestamp_ns >= threshold_ns]
        slots = len(self._queue)
        while self._queue and (not self._queue[0].live or self._queue[0].timestamp_ns < threshold_ns):
            head = self._queue.popleft()
            if head.live:
                expired.append(head)
        for wrapper in expired:
            entries, freed = entries + 1, freed + self._remove(wrapper)
        return self._counted(slots, Removed(entries, freed))

    def size_pass(self, bytes_to_free: int) -> Removed | Refused:
        """Removes entries without expected reads, and expired entries, until enough bytes are free.

        Visits the stash first, then the queue. Visited entries of the queue that are not removed move to the stash.
        O(stash + visited).
        """
        if bytes_to_free <= 0:
            return Refused("illegal_argument", "the bytes to free must be more than zero")
        expired_ns = self.now_ns - self.cfg.ttl_ns
        entries = freed = 0
        stayed: list[Wrapper] = []
        slots = len(self._queue)
        self.visits += len(self.stash)
        waiting = deque([w for w in self.stash if w.live])
        while waiting or self._queue:
            if waiting:
                wrapper = waiting.popleft()
                if freed >= bytes_to_free:
                    stayed.append(wrapper)
                    continue
            else:
                if self._queue[0].live and freed >= bytes_to_free:
                    break
                wrapper = self._queue.popleft()
                if not wrapper.live:
                    continue
            if wrapper.handler.has_expected_reads() and wrapper.timestamp_ns >= expired_ns:
                stayed.append(wrapper)
            else:
                entries, freed = entries + 1, freed + self._remove(wrapper)
        self.stash = stayed
        return self._counted(slots, Removed(entries, freed))


class Readers(Queue):
    """Requeues an entry while an active cursor is at the entry or before it, whatever its expected read count."""

    def should_requeue(self, wrapper: Wrapper) -> bool:
        """Returns whether a pass requeues the entry: it is needed, and has requeues left. O(1)."""
        return wrapper.requeue_count < self.max_requeue_times and self.is_needed(wrapper)

    def is_needed(self, wrapper: Wrapper) -> bool:
        """Returns whether an active cursor will read the entry: the slowest is at the entry or before it. O(1)."""
        slowest = self.owner.active(wrapper.cache).slowest_position()
        return slowest is not None and slowest <= wrapper.position


class Known(Readers):
    """Requeues an entry while an active cursor is at the entry or before it, or while the entry has expected reads."""

    def is_needed(self, wrapper: Wrapper) -> bool:
        """Returns whether an active cursor is at the entry or before it, or the entry has expected reads. O(1)."""
        return wrapper.handler.has_expected_reads() or super().is_needed(wrapper)


class NextReader(Known):
    """Evicts entries without a known reader first, then the entries whose next reader is furthest away in time."""

    def size_pass(self, bytes_to_free: int) -> Removed | Refused:
        """Removes entries until `bytes_to_free` are freed, in the order of the class docstring. O(n log n), n slots."""
        live = [w for w in self._queue if w.live]
        self.visits += len(self._queue)
        entries = freed = 0
        for wrapper in sorted(live, key=lambda w: (-self.wait_us(w), w.timestamp_ns)):
            if freed >= bytes_to_free:
                break
            self._unmap(wrapper)
            entries, freed = entries + 1, freed + wrapper.bytes
        self._queue = deque([w for w in live if w.live])
        return Removed(entries, freed)

    def wait_us(self, wrapper: Wrapper) -> int:
        """Returns the time to the entry's next reader: 0 if only replays are expected, 2^62 if no read is expected."""
        wait = self.owner.wait_us(wrapper.cache, wrapper.position.entry)
        if wait is None:
            return 0 if wrapper.handler.has_expected_reads() else 1 << 62
        return wait


class Settings(NamedTuple):
    """A policy with one removal queue."""

    rules: Rules = Rules()
    #: which active cursors count towards the expected read count of an entry. near: those whose distance in entries is
    #: at most the number of entries that fit into the cache; near_1000: those whose distance is at most 1000 * scale
    counts: Literal["none", "all", "near", "near_1000"] = "all"
    caches_storage_reads: bool = False  # with `counts` "none": whether an entry read from storage is cached
    least_count_to_cache: int = 1  # an entry read from storage is cached if at least this number of cursors count
    #: what happens to a spent entry, whose last expected read is done. stays: nothing; removed: it is removed at once;
    #: first: a size pass removes it before other entries
    spent: Literal["stays", "removed", "first"] = "stays"
    ttl_us: int | None = None  # None: the TTL of the workload
    max_requeue_times: int = 5
    extend_ttl_of_recently_accessed: bool = False
    queue: type[Queue] = Queue


class Central(Cache):
    """The entry caches of a broker under a policy with one removal queue."""

    def __init__(self, env: Environment, settings: Settings) -> None:
        super().__init__(env, settings.rules)
        self.settings = settings
        cfg = Config(
            caches=len(env.logs),
            stored=(),
            storage_reads="queued",
            eviction_task="immediate",
            ttl_ns=(settings.ttl_us or env.ttl_us) * 1000,
            max_requeue_times=settings.max_requeue_times,
            extend_ttl_of_recently_accessed=settings.extend_ttl_of_recently_accessed,
            max_bytes=env.max_bytes,
            watermark=WATERMARK,
        )
        self.entries = EntryCaches(cfg)
        self.queue = settings.queue(range_config(cfg, len(env.logs)))
        self.queue.owner = self
        self.entries._ranges = self.queue
        self.entries._stored = {(t, LEDGER): log.sizes for t, log in enumerate(env.logs)}  # type: ignore[misc]
        self._reader: dict[int, tuple[int, int, bool]] = {}  # storage read -> topic, cursor, whether it is a replay
        # `_topic` and `_held` are empty if spent entries stay
        self._topic: dict[int, int] = {}  # outstanding request -> topic
        self._held: dict[int, tuple[int, Position]] = {}  # unreleased copy -> topic, position
        self._sorted_positions: dict[
            int, tuple[int, list[int]]
        ] = {}  # topic -> version of its cursors, their sorted positions

    # ---- expected reads

    def _near(self) -> int | None:
        """Returns the distance in entries beyond which a cursor does not count; None if every cursor counts."""
        if self.settings.counts == "near_1000":
            return max(1, round(1000 * self.env.scale))
        if self.settings.counts == "near":
            inserted = max(1, self.entries._insertions)
            # the mean size of the cached entries; never 0
            average = (self.entries.total_bytes + 1) / max(1, inserted - self.entries._evicted_entries)
            return max(1, int(self.env.max_bytes / average))
        return None

    def expected_at_add(self, topic: int, entry: int) -> int:
        """Returns the expected read count of an added entry: the number of cursors that count."""
        if self.settings.counts == "none":
            return 0
        near, active = self._near(), self.active(topic)
        if near is None:
            return active.size()
        return sum([entry - position <= near for position in self.positions[topic].values()])

    def expected_of_read(self, topic: int, cursor: int) -> int:
        """Returns the expected read count of entries from a completed storage read for a cursor."""
        if self.settings.counts == "none":  # 1 if the entries are cached, 0 if not
            return int(self.settings.caches_storage_reads)
        near, own = self._near(), self.positions.get(topic, {}).get(cursor)
        if near is None:
            return self.active(topic).number_at_same_position_or_before(cursor)
        return 0 if own is None else sum([0 <= own - position <= near for position in self.positions[topic].values()])

    def wait_us(self, topic: int, entry: int) -> int | None:
        """Returns an estimate of the time until the next read of an entry; None if no cursor will read it.

        The next reader is the nearest cursor at the entry or before it. The estimate is the time between the add of
        the entry at the next reader's position and the add of this entry.
        """
        version = self.active(topic)._version
        known = self._sorted_positions.get(topic)
        if known is None or known[0] != version:
            known = self._sorted_positions[topic] = (version, sorted(self.positions[topic].values()))
        at = bisect_right(known[1], entry)
        if not at:
            return None
        added_us = self.env.logs[topic].added_us
        return added_us[entry] - added_us[known[1][at - 1]]

    # ---- entries

    def _now(self) -> None:
        self.queue.now_ns = self.now_us * 1000

    def add(self, topic: int, entry: int) -> None:
        """Caches the entry while cursors are active and during the grace period, with its expected read count."""
        if self.active(topic).should_cache_added_entries():
            self._now()
            size = self.env.logs[topic].sizes[entry]
            self.entries.insert(topic, Position(LEDGER, entry), size, self.expected_at_add(topic, entry))

    def read(self, topic: int, cursor: int, first: int, last: int, replayed: bool) -> Reading:
        """Reads through `EntryCaches`, which issues a storage read for each gap, or joins an outstanding one."""
        self._now()
        answer = self.entries.read(topic, LEDGER, first, last, 0)
        assert isinstance(answer, Answer)
        assert answer.request is not None
        if self.settings.spent != "stays":
            self._topic[answer.request] = topic
        for each in answer.issued:
            self._reader[each.number] = topic, cursor, replayed
        self._take(answer)
        return Reading(answer.request, [(each.number, each.last - each.first + 1) for each in answer.issued])

    def complete(self, storage_read: int) -> None:
        """See `Cache.complete`. Determines the expected read count; with 0, the entries are not cached."""
        self._now()
        topic, cursor, replayed = self._reader.pop(storage_read)
        expected = 0 if replayed else self.expected_of_read(topic, cursor)
        if expected < self.settings.least_count_to_cache:
            expected = 0
        self.entries._reads[storage_read].initiator.expected_reads = expected
        answer = self.entries.complete_storage_read(storage_read, True)
        assert isinstance(answer, Answer)
        assert not answer.issued
        self._take(answer)

    def _take(self, answer: Answer) -> None:
        """Adds the requests that a step of `EntryCaches` completed to `self.answered`."""
        for each in answer.answered:
            self.answered.append((each.request, tuple([entry.copy for entry in each.entries])))
            if self.settings.spent != "stays":
                topic = self._topic.pop(each.request)
                self._held |= {entry.copy: (topic, entry.position) for entry in each.entries}

    def release(self, copy: int) -> None:
        """Decrements the entry's expected read count. If none is left, `Settings.spent` applies."""
        released = self.entries.release(copy)
        if self.settings.spent != "stays":
            assert isinstance(released, Released)
            slot = self.queue.find(*self._held.pop(copy))
            if slot is None or released.expected_reads is None or slot.handler.has_expected_reads():
                return
            if self.settings.spent == "first":
                self.queue.spent.append(slot)
            else:
                self.queue.visits += 1
                self.entries._account_for_removed(self.queue.remove([slot]))

    def replay(self, copy: int) -> None:
        """Increments the entry's expected read count."""
        self.entries.replay(copy)

    def evict(self) -> None:
        """Runs a time pass, and a size pass if the caches are too large."""
        self._now()
        self.entries.do_cache_eviction()

    def invalidate(self, topic: int, slowest: Position | None) -> None:
        """See `Cache.invalidate`. The slots of removed entries stay in the queue."""
        before = self.entries._evicted_entries
        if slowest is None:
            self.entries.clear_cache(topic)
        else:
            self.entries.invalidate_entries_before(topic, slowest)
        self.queue.visits += self.entries._evicted_entries - before

    def visits(self) -> int:
        """Returns the number of slots that passes visited, plus entries that invalidations and releases removed."""
        return self.queue.visits

    def size(self) -> int:
        """See `Cache.size`."""
        return self.entries.total_bytes

    def contents(self) -> Iterator[tuple[int, int, int]]:
        """See `Cache.contents`."""
        return ((w.cache, w.position.entry, w.bytes) for w in self.queue.live())
