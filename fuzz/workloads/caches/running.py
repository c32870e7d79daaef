"""The state of a run: cursors, their consumers, outstanding reads; and the totals at the end."""

from __future__ import annotations

from typing import NamedTuple

from fuzz.workloads.caches.cache import Cache
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
        "number",
        "plan",
        "position",
        "reading",
        "replay",
        "replayed_keys",
        "turn",
        "waiting",
    )

    def __init__(self, number: int, plan: Subscription) -> None:
        self.number, self.plan = number, plan
        self.clients = [Client(i, consumer) for i, consumer in enumerate(plan.consumers)]
        self.position = self.first_unacked = 0  # the read position; the entry after the mark-delete position
        self.asked = 0  # scripted: the first entry that no outstanding read has asked for
        self.acked: set[int] = set()  # entries after first_unacked
        self.replay: list[int] = []
        self.replayed_keys: dict[int, int] = {}
        self.connected = self.reading = self.waiting = False
        self.epoch = self.turn = 0


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
