"""The state of a run (cursors, their consumers, outstanding reads), and its totals at the end."""

from __future__ import annotations

from bisect import insort
from typing import NamedTuple

from fuzz.workloads.caches.cache import Cache, Log
from fuzz.workloads.caches.plan import Consumer, Subscription


class Client:
    """A consumer of a subscription. `epoch` counts its disconnections: events of earlier epochs are ignored."""

    __slots__ = ("epoch", "free_us", "number", "permits", "plan", "since_flow", "unacked")

    def __init__(self, number: int, plan: Consumer) -> None:
        self.number, self.plan = number, plan
        self.permits = self.epoch = 0
        self.since_flow = 0  # messages consumed since permits were last returned
        self.free_us = 0  # the time from which the consumer can take the next message
        self.unacked: set[int] = set()  # unacknowledged entries


class Cursor:
    """A subscription in a run. `epoch` counts its disconnections: reads of earlier epochs are ignored."""

    __slots__ = (
        "acked",
        "clients",
        "connected",
        "epoch",
        "first_unacked",
        "log",
        "number",
        "plan",
        "position",
        "reading",
        "replay",
        "replayed_keys",
        "requested",
        "turn",
        "waiting",
    )

    def __init__(self, number: int, plan: Subscription, log: Log) -> None:
        self.number, self.plan, self.log = number, plan, log
        self.clients = [Client(i, consumer) for i, consumer in enumerate(plan.consumers)]
        self.position = self.first_unacked = 0  # the read position, and the entry after the mark-delete position
        self.requested = 0  # for a scripted subscription: the entry after the last entry that it requested
        self.acked: set[int] = set()  # acknowledged entries after first_unacked
        self.replay: list[int] = []  # the replay queue, ascending
        self.replayed_keys: dict[int, int] = {}  # key -> number of its entries in the replay queue
        self.connected = False
        self.reading = False  # whether a read is outstanding
        self.waiting = False  # whether the next added entry starts a read
        self.epoch = 0
        self.turn = 0  # for a Shared subscription: the consumer that got the last entry

    # ---- the replay queue

    def put_into_replay(self, entry: int) -> None:
        """Adds an entry to the replay queue."""
        key = self.log.keys[entry]
        insort(self.replay, entry)
        self.replayed_keys[key] = self.replayed_keys.get(key, 0) + 1

    def take_from_replay(self, entry: int) -> None:
        """Removes an entry from the replay queue."""
        key = self.log.keys[entry]
        self.replay.remove(entry)
        self.replayed_keys[key] -= 1
        if not self.replayed_keys[key]:
            del self.replayed_keys[key]

    def clear_replay(self) -> None:
        """Empties the replay queue."""
        self.replay.clear()
        self.replayed_keys.clear()

    def replayable(self, wanted: int) -> list[int]:
        """Returns the first entries of the replay queue, at most `wanted`.

        On a Key_Shared subscription, returns only entries whose consumers have permits, and no entry after a skipped
        entry of the same key.
        """
        if self.plan.kind == "shared":
            return self.replay[:wanted]
        permits = [client.permits for client in self.clients]
        ready: list[int] = []
        blocked = set()
        for entry in self.replay:
            key = self.log.keys[entry]
            owner = key % len(permits)
            if permits[owner] <= 0:
                blocked.add(key)
            elif key not in blocked:
                permits[owner] -= 1
                ready.append(entry)
                if len(ready) == wanted:
                    break
        return ready

    # ---- dispatch

    def consumer_for(self, entry: int) -> Client | None:
        """Returns the consumer that gets the entry; None if the entry must be replayed, or for a scripted cursor."""
        clients = self.clients
        if self.plan.kind == "key_shared":
            key = self.log.keys[entry]
            client = clients[key % len(clients)]
            earlier = key in self.replayed_keys and any(
                self.log.keys[each] == key for each in self.replay if each < entry
            )
            return client if client.permits > 0 and not earlier else None
        if self.plan.kind == "scripted":
            return None
        for _ in clients:
            self.turn = (self.turn + 1) % len(clients)
            if clients[self.turn].permits > 0:
                return clients[self.turn]
        return None


class Batch:
    """An outstanding read of a dispatcher."""

    __slots__ = ("awaited", "cache", "copies", "cursor", "entries", "epoch", "replayed")

    def __init__(self, cursor: Cursor, cache: Cache, entries: list[int], replayed: bool) -> None:
        self.cursor, self.cache, self.entries, self.replayed = cursor, cache, entries, replayed
        self.epoch = cursor.epoch
        self.awaited = 0  # requests to the cache that are not complete
        self.copies: dict[int, tuple[int, ...]] = {}  # the copies of completed requests, by request


class Totals(NamedTuple):
    """The totals of a run."""

    reads: int  # entries that dispatchers requested
    storage_reads: int
    storage_entries: int  # entries read from storage
    consumed: int  # consumed messages
    bytes_peak: int  # the largest number of cached bytes of one broker
    bytes_mean: int  # the mean over time of the cached bytes of all brokers together
    dead_mean: int | None  # mean bytes of entries that no connected cursor will read; None: not known
    visits: int  # entries and caches that evictions and invalidations visited
    is_exact: bool  # false if the storage reads are a bound of the optimum
