"""The state of a run: cursors, their consumers, outstanding reads; and the totals at the end."""

from __future__ import annotations

from bisect import insort
from typing import NamedTuple

from fuzz.workloads.caches.cache import Cache, Log
from fuzz.workloads.caches.plan import Consumer, Subscription


class Client:
    """A consumer of a subscription."""

    __slots__ = ("epoch", "free_us", "number", "permits", "plan", "since_flow", "unacked")

    def __init__(self, number: int, plan: Consumer) -> None:
        self.number, self.plan = number, plan
        self.permits = self.since_flow = self.free_us = self.epoch = 0
        self.unacked: set[int] = set()


class Cursor:
    """A subscription while it runs."""

    __slots__ = (
        "acked",
        "asked",
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
        "turn",
        "waiting",
    )

    def __init__(self, number: int, plan: Subscription, log: Log) -> None:
        self.number, self.plan, self.log = number, plan, log
        self.clients = [Client(i, consumer) for i, consumer in enumerate(plan.consumers)]
        self.position = self.first_unacked = 0  # the read position; the entry after the mark-delete position
        self.asked = 0  # scripted: the first entry that no outstanding read has asked for
        self.acked: set[int] = set()  # entries after first_unacked
        self.replay: list[int] = []
        self.replayed_keys: dict[int, int] = {}
        self.connected = self.reading = self.waiting = False
        self.epoch = self.turn = 0

    # ---- the replay queue

    def put_into_replay(self, entry: int) -> None:
        """The entry is to be read again."""
        key = self.log.keys[entry]
        insort(self.replay, entry)
        self.replayed_keys[key] = self.replayed_keys.get(key, 0) + 1

    def take_from_replay(self, entry: int) -> None:
        """The entry has been read again."""
        key = self.log.keys[entry]
        self.replay.remove(entry)
        self.replayed_keys[key] -= 1
        if not self.replayed_keys[key]:
            del self.replayed_keys[key]

    def clear_replay(self) -> None:
        """The cursor is rewound."""
        self.replay.clear()
        self.replayed_keys.clear()

    def replayable(self, wanted: int) -> list[int]:
        """The first entries of the replay queue whose consumers have permits, in order of each key."""
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
        """The consumer that gets the entry now; None if it has to be replayed."""
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
        self.awaited = 0
        self.copies: dict[int, tuple[int, ...]] = {}  # by request


class Totals(NamedTuple):
    """What a run cost."""

    reads: int  # entries that dispatchers asked for
    storage_reads: int
    storage_entries: int
    consumed: int
    bytes_peak: int  # of one broker
    bytes_mean: int  # over time, of the sum of all brokers
    dead_mean: int | None  # of these, bytes that no connected cursor has before it or to replay
    visits: int
    is_exact: bool
