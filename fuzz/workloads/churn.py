"""Churn of clients: consumers of Shared subscriptions are scaled down and up again (apache/pulsar#14985).

Every `every_s` seconds, a share of each subscription's consumers leaves at once. `away_s` seconds later, others take
their place. Entries that the leaving consumers have not acknowledged are read again, and delivered to the consumers
that stay.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from fuzz.workloads.caches.plan import Command, Consumer, Plan, Subscription, in_time, scaled, steady
from fuzz.workloads.caches.study import seconds_of_inflow, study


class Parameters(NamedTuple):
    """Parameters without a comment are described above or in `fuzz/workloads/caches/study.py`."""

    scale: float = 0.01
    seconds: int = 30
    rate: int = 20_000
    topics: int = 5
    size: int = 1024
    subscriptions: int = 2  # of each topic
    consumers: int = 20  # of each subscription
    queue: int = 1000
    busy: float = 0.9  # load of a consumer (processing time / time) while all consumers are connected
    every_s: int = 8
    away_s: int = 4
    share: float = 0.5  # share of the consumers that leaves
    ttl_ms: int = 1000  # managedLedgerCacheEvictionTimeThresholdMillis
    waits: int = 0  # whether readers wait for misses


def plan(p: Parameters, rng: Random) -> Plan:
    """Returns the plan of a run; `rng` draws the consumers that leave."""
    end = p.seconds * 1_000_000
    rate = p.rate * p.scale / p.topics
    think = round(1_000_000 * p.busy * p.consumers / rate)
    consumers = (Consumer(scaled(p.queue, p.scale), think),) * p.consumers
    subscriptions = [Subscription(topic, consumers) for topic in range(p.topics) for _ in range(p.subscriptions)]
    commands = []
    for at in range(p.every_s * 1_000_000, end, p.every_s * 1_000_000):
        for number in range(len(subscriptions)):
            for client in rng.sample(range(p.consumers), min(p.consumers, round(p.consumers * p.share))):
                commands.append(Command(at, "leave", (number, client)))
                commands.append(Command(at + p.away_s * 1_000_000, "join", (number, client)))
    adds = in_time(*[steady(topic, rate, p.size, end, topic) for topic in range(p.topics)])
    batch = scaled(100, p.scale)
    return Plan(p.topics, adds, subscriptions, end, p.scale, commands, batch=batch, ttl_us=p.ttl_ms * 1000)


workload = study(
    "churn",
    "consumers leave and others join; unacknowledged messages are read again",
    Parameters(),
    plan,
    lambda p: seconds_of_inflow(p.rate * p.scale * p.size, (0.3, 1, 3, 10)),
)
