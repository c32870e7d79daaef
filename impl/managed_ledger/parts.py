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
    """Returns the settings of the entry cache; storage is empty at first."""
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
    """The entry cache of one topic. It asks for the expected read count of entries when storage answers."""

    #: request -> expected read count of the entries that it reads from storage
    expected: Callable[[int], int]

    def store(self, position: Position, bytes: int) -> None:
        """Storage has one entry more. O(entries of the ledger)."""
        self._stored[0, position.ledger] = (*self._stored.get((0, position.ledger), ()), bytes)

    def delete(self, ledger: int) -> None:
        """Deletes a ledger from storage and cache. O(its cached entries)."""
        self.invalidate_ledger(0, ledger)
        del self._stored[0, ledger]

    def outstanding(self, storage_read: int) -> OutstandingRead | None:
        """Returns an outstanding storage read. O(1)."""
        return self._reads.get(storage_read)

    def pending_requests(self) -> set[int]:
        """Returns the numbers of the pending requests. O(requests)."""
        return set(self._requests)

    def discard(self, copy: int) -> None:
        """Releases a copy that was not delivered. O(1)."""
        self._store.close_copy(copy)

    @property
    def next_request(self) -> int:
        """Returns the number of the next request."""
        return self._next_request

    def _receive_entries(self, read: OutstandingRead, entries: int) -> None:
        read.initiator.expected_reads = self.expected(read.initiator.number)
        super()._receive_entries(read, entries)
        read.initiator.expected_reads = 0


class ReplayQueue:
    """Entries that wait to be read again, sorted, and by key."""

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
        """Whether an earlier entry with the same key waits. O(1)."""
        same = self._by_key.get(self._key_of(position))
        return same is not None and same[0] < position

    def __contains__(self, position: Position) -> bool:
        at = bisect_left(self.positions, position)
        return at < len(self.positions) and self.positions[at] == position

    def __len__(self) -> int:
        return len(self.positions)

    def keys_are_consistent(self) -> bool:
        """Whether the entries by key are those of the queue."""
        return sorted(p for same in self._by_key.values() for p in same) == self.positions


class Client:
    """A connected consumer."""

    def __init__(self, number: int, permits: int = 0, pending: Iterable[Position] = ()) -> None:
        self.number = number
        self.permits = permits
        self.pending = set(pending)


class Reading:
    """A read that is not dispatched."""

    def __init__(self, read: Read | None = None) -> None:
        self.requests = set(read.requests) if read else set()
        self.entries = list(read.entries) if read else []
        self.cancelled = read.cancelled if read else False
        self.failed = read.failed if read else False

    def view(self) -> Read:
        """Returns the model's read."""
        entries = tuple(sorted(self.entries))
        return Read(tuple(sorted(self.requests)), entries, self.cancelled, self.failed, None)


class Topic:
    """A subscription: cursor and dispatcher."""

    def __init__(self, kind: str, key_of: KeyOf) -> None:
        self.kind = kind
        self.key_of = key_of
        self.read_position = Position(0, 0)
        self.mark_delete = Position(0, -1)
        self.acked: set[Position] = set()
        self.caches_reads = False
        self.clients: dict[int, Client] = {}
        self.holders: dict[int, dict[int, int]] = {}  # key -> consumer -> entries that it holds
        self.replay = ReplayQueue(key_of)
        self.reads: dict[str, Reading] = {}
        self.sent: list[ReadEntry] = []

    def order(self) -> list[Client]:
        """Returns the consumers by number. O(n log n)."""
        return [self.clients[number] for number in sorted(self.clients)]

    def is_acked(self, position: Position) -> bool:
        """Whether an entry is acknowledged. O(1)."""
        return position <= self.mark_delete or position in self.acked

    # ---- entries that consumers hold

    def hold(self, client: Client, position: Position) -> None:
        """Gives an entry to a consumer. O(1)."""
        client.pending.add(position)
        held = self.holders.setdefault(self.key_of(position), {})
        held[client.number] = held.get(client.number, 0) + 1

    def drop(self, client: Client, position: Position) -> None:
        """Takes an entry from a consumer. O(1)."""
        client.pending.discard(position)
        key = self.key_of(position)
        held = self.holders[key]
        held[client.number] -= 1
        if not held[client.number]:
            del held[client.number]
        if not held:
            del self.holders[key]

    def drop_all(self, client: Client) -> list[Position]:
        """Drops all entries that a consumer holds, and returns them in order. O(n log n)."""
        positions = sorted(client.pending)
        for position in positions:
            self.drop(client, position)
        return positions

    def put_into_replay(self, positions: Iterable[Position]) -> None:
        """Adds unacknowledged entries to the replay queue. As `ReplayQueue.add` for each."""
        for position in positions:
            if not self.is_acked(position):
                self.replay.add(position)

    def is_held_elsewhere(self, client: Client, position: Position) -> bool:
        """Whether another consumer holds entries with the key of an entry. O(1)."""
        held = self.holders.get(self.key_of(position))
        return held is not None and (len(held) > 1 or client.number not in held)

    # ---- for the engines

    def view(self) -> Subscription:
        """Returns the model's subscription."""
        return Subscription(
            self.read_position,
            self.mark_delete,
            tuple(sorted(self.acked)),
            self.caches_reads,
            tuple([Consumer(c.number, c.permits, tuple(sorted(c.pending))) for c in self.order()]),
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
            client = self.clients[c.consumer] = Client(c.consumer, c.permits)
            for position in c.pending:
                self.hold(client, position)
        self.reads = {
            kind: Reading(read)
            for kind, read in (("normal", sub.normal_read), ("replay", sub.replay_read))
            if read is not None
        }
