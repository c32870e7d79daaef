"""What happens in a run of the cache study, as data: topics, producers, subscriptions, commands.

Times are microseconds from the start of the run. A plan is made from parameters and a seed, for all policies alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from fuzz.workloads.caches.cache import BACKLOG_CHECK_US, TTL_US


class Add(NamedTuple):
    """A producer sends an entry."""

    at_us: int
    topic: int
    size: int  # bytes
    key: int = 0


class Consumer(NamedTuple):
    """A consumer: its receiver queue, and the time that it takes for a message."""

    queue: int = 1000
    think_us: int = 0
    pause_share: float = 0.0  # the probability of a pause after a message
    pause_us: int = 0  # the longest pause; lengths are uniform


class Subscription(NamedTuple):
    """A subscription of a topic, with its cursor. Each key belongs to one consumer of a Key_Shared subscription."""

    topic: int
    consumers: tuple[Consumer, ...] = (Consumer(),)
    kind: Literal["shared", "key_shared", "scripted"] = "shared"  # scripted: reads are commands
    start: int | None = 0  # first entry; None: the next one to be added
    connect_us: int = 0
    delay_us: int = 0  # entries are read this long after they were added: a constant lag


CommandName = Literal[
    "connect", "disconnect", "seek", "restart", "stall", "leave", "join", "store", "read", "reread", "ack"
]


class Command(NamedTuple):
    """Something that happens at a time: the name of a method of `Simulation`, and its arguments."""

    at_us: int
    name: CommandName
    arguments: tuple[int, ...]


class Plan(NamedTuple):
    """What happens in one run."""

    topics: int
    adds: Iterable[Add]  # ordered by time
    subscriptions: Sequence[Subscription]
    end_us: int
    scale: float = 1.0  # factor of settings that count entries
    commands: Sequence[Command] = ()
    brokers: Sequence[int] = ()  # the broker of each topic; all on one if empty
    backlog: Sequence[tuple[int, int]] = ()  # topic, size: entries that are in storage before the start
    batch: int = 100  # dispatcherMaxReadBatchSize
    latency_us: int = 500  # from a dispatcher's read to the delivery
    hit_us: int = 100  # the same for cached entries, if readers wait for misses
    ack_us: int = 5_000  # ack group time
    ttl_us: int = TTL_US
    check_us: int = BACKLOG_CHECK_US  # from a broker's start to its first check of backlogs; then once a minute
    ledger_entries: int = 0  # managedLedgerMaxEntriesPerLedger; 0: a topic has one ledger
    reconnect_us: tuple[int, int] = (100_000, 200_000)  # from a restart to a consumer's connection: least, most
    outstanding: int | None = None  # messages sent and not consumed, over all subscriptions, that stop the producers
    stop_us: int = 100_000  # for how long producers stop
    #: keySharedLookAheadMsgInReplayThresholdPerConsumer and ...PerSubscription
    look_ahead_entries: tuple[int, int] = (2_000, 20_000)

    def look_ahead(self, consumers: int) -> int:
        """The number of entries in the replay queue at which a subscription reads no further entries."""
        each, most = self.look_ahead_entries
        return scaled(min(each * consumers, most), self.scale)


def steady(topic: int, rate: float, size: int, end_us: int, start_us: int = 0, keys: int = 1) -> list[Add]:
    """Adds of equal size at `rate` entries a second, from `start_us` to `end_us`; the keys 0 to keys - 1 take turns."""
    number = int(rate * (end_us - start_us) / 1_000_000)
    return [Add(start_us + int(i * 1_000_000 / rate), topic, size, i % keys) for i in range(number)]


def in_time(*streams: Iterable[Add]) -> list[Add]:
    """Several producers' entries, ordered by time."""
    return sorted(add for stream in streams for add in stream)


def scaled(number: float, scale: float) -> int:
    """A number of entries under the scale, at least 1."""
    return max(1, round(number * scale))
