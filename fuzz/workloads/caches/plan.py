"""The plan of a run of the cache study: topics, producers, subscriptions, commands.

Times are microseconds from the start of the run. A plan depends on parameters and a seed, and not on the policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from fuzz.workloads.caches.cache import BACKLOG_CHECK_US, TTL_US


class Add(NamedTuple):
    """An entry that a producer sends."""

    at_us: int
    topic: int
    size: int  # bytes
    key: int = 0


class Consumer(NamedTuple):
    """A consumer: its receiver queue, and the time that it needs for a message."""

    queue: int = 1000
    think_us: int = 0
    pause_share: float = 0.0  # the probability of a pause after a message
    pause_us: int = 0  # the longest pause; lengths are uniformly distributed


class Subscription(NamedTuple):
    """A subscription of a topic, with its cursor. Each key belongs to one consumer of a Key_Shared subscription."""

    topic: int
    consumers: tuple[Consumer, ...] = (Consumer(),)
    kind: Literal["shared", "key_shared", "scripted"] = "shared"  # scripted: reads are commands
    start: int | None = 0  # the first entry; None: the next entry that is added
    connect_us: int = 0  # when its consumers connect for the first time
    delay_us: int = 0  # time between the add and the read of an entry: a constant lag


CommandName = Literal[
    "connect", "disconnect", "seek", "restart", "stall", "leave", "join", "store", "read", "reread", "ack"
]


class Command(NamedTuple):
    """A call at a given time: the name of a method of `Simulation`, and its arguments."""

    at_us: int
    name: CommandName
    arguments: tuple[int, ...]


class Plan(NamedTuple):
    """The plan of one run."""

    topics: int
    adds: Iterable[Add]  # ordered by time
    subscriptions: Sequence[Subscription]
    end_us: int
    scale: float = 1.0  # factor of settings that count entries
    commands: Sequence[Command] = ()
    brokers: Sequence[int] = ()  # the broker of each topic; empty: all topics are on one broker
    backlog: Sequence[tuple[int, int]] = ()  # topic, size: entries that are in storage before the start
    batch: int = 100  # dispatcherMaxReadBatchSize
    latency_us: int = 500  # time from a dispatcher's read to the delivery
    hit_us: int = 100  # the same time for cached entries, if readers wait for misses
    ack_us: int = 5_000  # ack group time
    ttl_us: int = TTL_US
    check_us: int = BACKLOG_CHECK_US  # time from a broker's start to its first check of backlogs; then once a minute
    ledger_entries: int = 0  # managedLedgerMaxEntriesPerLedger; 0: a topic has one ledger
    reconnect_us: tuple[int, int] = (100_000, 200_000)  # shortest and longest time from a restart to a connection
    #: number of messages sent and not consumed, over all subscriptions, at which producers pause; None: they never do
    outstanding: int | None = None
    stop_us: int = 100_000  # length of a producer's pause
    #: keySharedLookAheadMsgInReplayThresholdPerConsumer and ...PerSubscription
    look_ahead_entries: tuple[int, int] = (2_000, 20_000)

    def look_ahead(self, consumers: int) -> int:
        """Returns the number of entries in the replay queue at which a subscription reads no further entries."""
        each, most = self.look_ahead_entries
        return scaled(min(each * consumers, most), self.scale)


def steady(topic: int, rate: float, size: int, end_us: int, start_us: int = 0, keys: int = 1) -> list[Add]:
    """Returns adds of equal size at `rate` entries a second, from `start_us` to `end_us`. The keys take turns."""
    number = int(rate * (end_us - start_us) / 1_000_000)
    return [Add(start_us + int(i * 1_000_000 / rate), topic, size, i % keys) for i in range(number)]


def in_time(*streams: Iterable[Add]) -> list[Add]:
    """Returns the entries of several producers, ordered by time."""
    return sorted(add for stream in streams for add in stream)


def scaled(number: float, scale: float) -> int:
    """Returns a number of entries times the scale, at least 1."""
    return max(1, round(number * scale))
