"""The cache of a broker in the simulation, and the cursors that are active.

Times are microseconds. Topics, entries and cursors are numbers; the entries of a topic are numbered across its ledgers.
A subclass determines which entries are cached, how a range is read, and which entries are evicted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from impl.active_cursors import ActiveCursors
from model.active_cursors.machine import Config
from model.positions import Position

#: The ledger id in all positions, because entries are numbered across ledgers.
LEDGER = 1
#: `managedLedgerCacheEvictionTimeThresholdMillis` and `managedLedgerCacheEvictionWatermark`.
TTL_US, WATERMARK = 1_000_000, 0.9
#: `managedLedgerCursorBackloggedThreshold`, and the period of the task that compares backlogs with this threshold.
BACKLOG_THRESHOLD, BACKLOG_CHECK_US = 1_000, 60_000_000


class Log:
    """The entries of a topic in storage."""

    __slots__ = ("added_us", "keys", "ledgers", "sizes")

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.added_us: list[int] = []
        self.keys: list[int] = []  # the key of each entry's messages
        self.ledgers = [0]  # the first entry of each undeleted ledger

    def roll_over(self) -> None:
        """Closes the ledger: the next entry is the first entry of a new ledger. An empty ledger stays open."""
        if len(self.sizes) > self.ledgers[-1]:
            self.ledgers.append(len(self.sizes))

    def end_of_ledger(self, entry: int) -> int:
        """Returns the number of the entry after the last one of this entry's ledger."""
        following = bisect_right(self.ledgers, entry)
        return self.ledgers[following] if following < len(self.ledgers) else len(self.sizes)


class Environment(NamedTuple):
    """The broker and the workload, as far as a cache needs them."""

    logs: Sequence[Log]  # by topic
    max_bytes: int
    scale: float = 1.0  # factor of the workload's rates, and of settings that count entries
    latency_us: int = 0  # the latency of a storage read
    ttl_us: int = TTL_US
    check_us: int = BACKLOG_CHECK_US  # time from the broker's start to its first check of backlogs


class Rules(NamedTuple):
    """When a cursor is active, and what is removed when a cursor advances."""

    #: a connected cursor is active if its backlog is less than this number of entries, times the scale. Compared when
    #: the cursor is first connected, and then once a minute. None: every connected cursor is active
    backlog_threshold: int | None = None
    grace_ttl: int = 2  # added entries are cached for this multiple of the TTL after the last active cursor left
    invalidates: bool = False  # whether entries below the slowest active cursor are removed
    by_mark_delete: bool = False  # a cursor's position is its first unacknowledged entry, not its read position


class Reading(NamedTuple):
    """A started request."""

    request: int  # its number
    issued: list[tuple[int, int]]  # the storage reads that it issued: each with its number, and its number of entries


class Cache:
    """One broker's cache under a policy. The caller sets `now_us` before each call, and empties `answered`."""

    def __init__(self, env: Environment, rules: Rules) -> None:
        self.env, self.rules = env, rules
        self.now_us = 0
        self.visited = 0  # see `visits`
        #: completed requests, each with a copy of each of its entries; no copies if the policy does not count reads
        self.answered: list[tuple[int, tuple[int, ...]]] = []
        self.cursors: dict[int, ActiveCursors] = {}
        self.positions: dict[int, dict[int, int]] = {}  # topic -> connected cursor -> position
        self._read_positions: dict[tuple[int, int], int] = {}  # topic and cursor -> read position
        self._slowest: dict[int, Position | None] = {}
        self._checked_us: int | None = None

    # ---- cursors

    def active(self, topic: int) -> ActiveCursors:
        """Returns the active cursors of a topic, with the clock at the current time."""
        found = self.cursors.get(topic)
        if found is None:
            now_ms, grace_ms = self.now_us // 1000, self.rules.grace_ttl * self.env.ttl_us // 1000
            found = ActiveCursors(Config(cursors=1, start_ms=now_ms, grace_ms=grace_ms))
            self.cursors[topic] = found
            self.positions[topic] = {}
        found.now_ms = self.now_us // 1000
        return found

    def connect(self, topic: int, cursor: int, position: int, again: bool = False) -> None:
        """Connects a cursor: it gets its first consumer, and becomes active if its backlog is below the threshold.

        `again`: the cursor had consumers before. Before PIP-430, only the task that runs once a minute makes such a
        cursor active.
        """
        self.active(topic)
        self.positions[topic][cursor] = self._read_positions[topic, cursor] = position
        if not again or self.rules.backlog_threshold is None:
            self._activate(topic, cursor)

    def _activate(self, topic: int, cursor: int) -> None:
        """Makes a connected cursor active if its backlog is below the threshold, otherwise inactive."""
        active, position, threshold = self.active(topic), self.positions[topic][cursor], self.rules.backlog_threshold
        backlog = len(self.env.logs[topic].sizes) - self._read_positions[topic, cursor]
        if threshold is None or backlog < max(1, threshold * self.env.scale):
            if active.get_cursor(cursor) is None:
                active.add_cursor(cursor, Position(LEDGER, position), True)
        elif active.remove_cursor(cursor):
            self._progress(topic)

    def disconnect(self, topic: int, cursor: int) -> None:
        """Disconnects a cursor: it loses its last consumer."""
        self.positions[topic].pop(cursor, None)
        if self.active(topic).remove_cursor(cursor):
            self._progress(topic)

    def moved(self, topic: int, cursor: int, position: int) -> None:
        """Changes the read position of a cursor."""
        self._read_positions[topic, cursor] = position
        if not self.rules.by_mark_delete:
            self._move(topic, cursor, position)

    def acked(self, topic: int, cursor: int, first_unacked: int) -> None:
        """Changes the mark-delete position of a cursor. `first_unacked` is the entry after the mark-delete position."""
        if self.rules.by_mark_delete:
            self._move(topic, cursor, first_unacked)

    def _move(self, topic: int, cursor: int, position: int) -> None:
        if cursor in self.positions.get(topic, ()):
            self.positions[topic][cursor] = position
            self.active(topic).update_cursor(cursor, Position(LEDGER, position))
            self._progress(topic)

    def _progress(self, topic: int) -> None:
        """Invalidates entries if the slowest active cursor has moved, and the rules invalidate."""
        if not self.rules.invalidates:
            return
        slowest = self.active(topic).slowest_position()
        if slowest != self._slowest.get(topic):
            self._slowest[topic] = slowest
            self.invalidate(topic, slowest)

    def tick(self) -> None:
        """Evicts; with a backlog threshold, also activates and deactivates cursors once a minute. Runs every 10 ms."""
        if self._checked_us is None:
            # so the first check is after `check_us`
            self._checked_us = self.now_us + self.env.check_us - BACKLOG_CHECK_US
        if self.rules.backlog_threshold is not None and self.now_us - self._checked_us >= BACKLOG_CHECK_US:
            self._checked_us = self.now_us
            for topic, connected in self.positions.items():
                for cursor in list(connected):
                    self._activate(topic, cursor)
        self.evict()

    # ---- entries

    def add(self, topic: int, entry: int) -> None:
        """Caches an entry that was added to the topic, if the policy caches added entries."""
        raise NotImplementedError

    def read(self, topic: int, cursor: int, first: int, last: int, replayed: bool) -> Reading:
        """Starts a read of the entries `first` to `last`.

        A replayed entry is read alone. If it is read from storage, its expected read count is 0.
        """
        raise NotImplementedError

    def complete(self, storage_read: int) -> None:
        """Completes the storage read of this number. Requests that are now complete are added to `answered`."""
        raise NotImplementedError

    def release(self, copy: int) -> None:
        """Releases a reader's copy of an entry."""

    def replay(self, copy: int) -> None:
        """Notes that the entry of a copy is added to the replay queue."""

    def evict(self) -> None:
        """Runs the periodic eviction."""

    def invalidate(self, topic: int, slowest: Position | None) -> None:
        """Removes the entries below a position, that of the slowest active cursor. None: there is none; removes all."""

    def trim(self, topic: int, end: int) -> None:
        """Removes the entries before `end`: their ledgers are deleted."""
        self.invalidate(topic, Position(LEDGER, end))

    # ---- measures

    def size(self) -> int:
        """Returns the bytes of all cached entries."""
        raise NotImplementedError

    def visits(self) -> int:
        """Returns the number of entries and caches that evictions and invalidations visited."""
        return self.visited

    def contents(self) -> Iterator[tuple[int, int, int]] | None:
        """Returns topic, entry and size of every cached entry; None if the cache cannot list its entries."""
        return None
