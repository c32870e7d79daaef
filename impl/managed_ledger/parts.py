"""Parts of `impl/managed_ledger/ledger.py`: the topic's entry cache, the replay queue, consumers, subscriptions."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable

from impl.entry_cache.manager import EntryCaches
from impl.entry_cache.shared_reads import OutstandingRead
from model.entry_cache.state import Config as CacheConfig
from model.managed_ledger.state import Config, Consumer, Read, ReadEntry, Subscription
from model.positions import Position
from model.values import UNITS_PER_MS

KeyOf = Callable[[Position], int]


def cache_config(cfg: Config) -> CacheConfig:
    """Returns the config of the entry cache. `stored` is empty: `TopicCache.store_entry` adds entries to storage."""
    return CacheConfig(
        caches=1,
        stored=(),
        eviction_task=cfg.eviction_task,
        ttl_ns=cfg.ttl_ms * UNITS_PER_MS["ns"],
        max_requeue_times=cfg.max_requeue_times,
        extend_ttl_of_recently_accessed=cfg.extend_ttl_of_recently_accessed,
        max_bytes=cfg.max_bytes,
        watermark=cfg.watermark,
    )


class TopicCache(EntryCaches):
    """The entry cache of one topic. The expected read count of entries from storage is set when storage answers."""

    #: request -> expected read count of the entries that the request reads from storage
    expected: Callable[[int], int]

    def store_entry(self, position: Position, bytes: int) -> None:
        """Adds an entry to storage, at the end of a ledger. O(entries of the ledger)."""
        self._stored[0, position.ledger] = (*self._stored.get((0, position.ledger), ()), bytes)

    def delete(self, ledger: int) -> None:
        """Deletes a ledger from storage and cache. O(cached entries of the ledger)."""
        self.invalidate_ledger(0, ledger)
        del self._stored[0, ledger]

    def outstanding(self, storage_read: int) -> OutstandingRead | None:
        """Returns an outstanding storage read. O(1)."""
        return self._reads.get(storage_read)

    def pending_requests(self) -> set[int]:
        """Returns the numbers of the pending requests. O(requests)."""
        return set(self._requests)

    def discard(self, copy: int) -> None:
        """Releases a copy that was not delivered; the count does not change. O(1)."""
        self._ranges.remove_copy(copy)

    @property
    def next_request(self) -> int:
        """Returns the number of the next request."""
        return self._next_request

    def _receive_entries(self, read: OutstandingRead, entries: int) -> None:
        """Receives entries from storage. Their count is `expected` of the request that issued the read, as of now."""
        read.initiator.expected_reads = self.expected(read.initiator.number)
        super()._receive_entries(read, entries)
        read.initiator.expected_reads = 0  # as in the model, in which a request to the cache has the count 0


class ReplayQueue:
    """The positions of the entries to read again: in one sorted list, and in a sorted list for each key."""

    def __init__(self, key_of: KeyOf, positions: Iterable[Position] = ()) -> None:
        self._key_of = key_of
        self.positions: list[Position] = []
        self._by_key: dict[int, list[Position]] = {}
        for position in positions:
            self.add(position)

    def add(self, position: Position) -> None:
        """Adds an entry unless the queue has it. O(n) in memory moves."""
        at = bisect_left(self.positions, position)
        if at == len(self.positions) or self.positions[at] != position:
            self.positions.insert(at, position)
            insort(self._by_key.setdefault(self._key_of(position), []), position)

    def remove(self, position: Position) -> None:
        """Removes an entry if the queue has it. O(n) in memory moves."""
        at = bisect_left(self.positions, position)
        if at < len(self.positions) and self.positions[at] == position:
            del self.positions[at]
            key = self._key_of(position)
            self._by_key[key].remove(position)
            if not self._by_key[key]:
                del self._by_key[key]

    def has_earlier(self, position: Position) -> bool:
        """Whether the queue has an earlier entry with the same key. O(1)."""
        same = self._by_key.get(self._key_of(position))
        return same is not None and same[0] < position

    def __contains__(self, position: Position) -> bool:
        at = bisect_left(self.positions, position)
        return at < len(self.positions) and self.positions[at] == position

    def __len__(self) -> int:
        return len(self.positions)

    def keys_are_consistent(self) -> bool:
        """Whether the lists for the keys have exactly the entries of the queue. For `check`."""
        return sorted(p for same in self._by_key.values() for p in same) == self.positions


class ConnectedConsumer:
    """A connected consumer. `pending` has the entries that the consumer holds: sent, not acknowledged."""

    def __init__(self, number: int, permits: int = 0, pending: Iterable[Position] = ()) -> None:
        self.number = number
        self.permits = permits
        self.pending = set(pending)


class DispatcherRead:
    """An outstanding read of a dispatcher. If a request failed (`failed`), the read ends with its last request."""

    def __init__(self, read: Read | None = None) -> None:
        self.requests = set(read.requests) if read else set()
        self.entries = list(read.entries) if read else []
        self.cancelled = read.cancelled if read else False
        self.failed = read.failed if read else False

    def view(self) -> Read:
        """Returns the model's read. None: the rule `replay_order` of the reference needs no `min_replayed_position`."""
        entries = tuple(sorted(self.entries))
        return Read(tuple(sorted(self.requests)), entries, self.cancelled, self.failed, None)


class LiveSubscription:
    """A subscription: cursor and dispatcher. Its form in the model is `Subscription`."""

    def __init__(self, subscription_type: str, key_of: KeyOf) -> None:
        self.type = subscription_type
        self.key_of = key_of
        self.read_position = Position(0, 0)
        self.mark_delete = Position(0, -1)
        self.acked: set[Position] = set()
        self.caches_reads = False
        self.consumers: dict[int, ConnectedConsumer] = {}
        self.holders: dict[int, dict[int, int]] = {}  # key -> consumer -> number of held entries of the key
        self.replay = ReplayQueue(key_of)
        self.reads: dict[str, DispatcherRead] = {}  # outstanding reads, by kind
        self.sent: list[ReadEntry] = []

    def consumers_by_number(self) -> list[ConnectedConsumer]:
        """Returns the consumers by number. O(n log n)."""
        return [self.consumers[number] for number in sorted(self.consumers)]

    def is_acked(self, position: Position) -> bool:
        """Whether an entry is acknowledged. O(1)."""
        return position <= self.mark_delete or position in self.acked

    # ---- entries that consumers hold

    def hold(self, consumer: ConnectedConsumer, position: Position) -> None:
        """Gives an entry to a consumer. O(1)."""
        consumer.pending.add(position)
        held = self.holders.setdefault(self.key_of(position), {})
        held[consumer.number] = held.get(consumer.number, 0) + 1

    def drop(self, consumer: ConnectedConsumer, position: Position) -> None:
        """Takes an entry from a consumer. O(1)."""
        consumer.pending.discard(position)
        key = self.key_of(position)
        held = self.holders[key]
        held[consumer.number] -= 1
        if not held[consumer.number]:
            del held[consumer.number]
        if not held:
            del self.holders[key]

    def drop_all(self, consumer: ConnectedConsumer) -> list[Position]:
        """Drops all entries that a consumer holds, and returns them in order. O(n log n)."""
        positions = sorted(consumer.pending)
        for position in positions:
            self.drop(consumer, position)
        return positions

    def put_into_replay(self, positions: Iterable[Position]) -> None:
        """Adds unacknowledged entries to the replay queue. As `ReplayQueue.add` for each."""
        for position in positions:
            if not self.is_acked(position):
                self.replay.add(position)

    def is_held_elsewhere(self, consumer: ConnectedConsumer, position: Position) -> bool:
        """Whether another consumer than a given one holds entries with the key of an entry. O(1)."""
        held = self.holders.get(self.key_of(position))
        return held is not None and (len(held) > 1 or consumer.number not in held)

    # ---- for the engines

    def view(self) -> Subscription:
        """Returns the model's subscription."""
        return Subscription(
            self.read_position,
            self.mark_delete,
            tuple(sorted(self.acked)),
            self.caches_reads,
            tuple([Consumer(c.number, c.permits, tuple(sorted(c.pending))) for c in self.consumers_by_number()]),
            tuple(self.replay.positions),
            self.reads["normal"].view() if "normal" in self.reads else None,
            self.reads["replay"].view() if "replay" in self.reads else None,
            tuple(self.sent),
        )

    def load(self, sub: Subscription) -> None:
        """Takes over the model's subscription."""
        self.read_position, self.mark_delete, self.acked = sub.read_position, sub.mark_delete, set(sub.acked)
        self.caches_reads, self.sent = sub.caches_reads, list(sub.sent)
        self.replay = ReplayQueue(self.key_of, sub.replay)
        for c in sub.consumers:
            consumer = self.consumers[c.consumer] = ConnectedConsumer(c.consumer, c.permits)
            for position in c.pending:
                self.hold(consumer, position)
        self.reads = {
            kind: DispatcherRead(read)
            for kind, read in (("normal", sub.normal_read), ("replay", sub.replay_read))
            if read is not None
        }
