"""A backlog drain as in the OpenMessaging Benchmark: consumers stay connected and pause, then drain the backlog.

With `cut_ms`, connections are cut during the drain. Consumers connect again, and get unacknowledged messages again. The
defaults are those of the benchmark's files with 1 GB of backlog: 10 topics of 3 partitions, 1 subscription, 100,000
messages of 1 KiB a second, and producers that continue during the drain.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from fuzz.workloads.caches.plan import Command, Consumer, Plan, Subscription, in_time, scaled, steady
from fuzz.workloads.caches.study import seconds_of_inflow, study


class Parameters(NamedTuple):
    """Parameters without a comment are described in `fuzz/workloads/caches/study.py`."""

    scale: float = 0.003
    seconds: int = 25
    rate: int = 100_000
    topics: int = 30
    size: int = 1024
    subscriptions: int = 1  # of each topic
    queue: int = 1000
    backlog_s: int = 10  # time for which the consumers pause at the start
    drain: float = 2.0  # the speed of a consumer, as a multiple of its topic's rate
    producers_pause: int = 0  # whether producers stop when the drain begins
    cut_ms: int = 0  # time between two cuts of all connections, from the start of the drain on; 0: none
    back_ms: int = 100  # time from a cut to the next connection of a consumer
    waits: int = 0  # whether readers wait for misses


def plan(p: Parameters, rng: Random) -> Plan:
    """Returns the plan of a run; `rng` changes a consumer's time for a message by at most 5 %."""
    end, paused = p.seconds * 1_000_000, p.backlog_s * 1_000_000
    rate = p.rate * p.scale / p.topics
    subscriptions = []
    for topic in range(p.topics):
        for _ in range(p.subscriptions):
            think = round(1_000_000 / (rate * p.drain) * rng.uniform(0.95, 1.05))
            subscriptions.append(Subscription(topic, (Consumer(scaled(p.queue, p.scale), think),)))
    # the only consumer of a subscription, consumer 0, pauses before the first entry is added
    commands = [Command(1, "stall", (number, 0, paused)) for number in range(len(subscriptions))]
    for at in range(paused + p.cut_ms * 1000, end, p.cut_ms * 1000) if p.cut_ms else ():
        for number in range(len(subscriptions)):
            commands.append(Command(at, "disconnect", (number,)))
            commands.append(Command(at + p.back_ms * 1000, "connect", (number,)))
    produced = paused if p.producers_pause else end
    adds = in_time(*[steady(topic, rate, p.size, produced, 2 + topic) for topic in range(p.topics)])
    return Plan(p.topics, adds, subscriptions, end, p.scale, commands, batch=scaled(100, p.scale))


workload = study(
    "drain",
    "connected consumers pause, and then drain their backlog",
    Parameters(),
    plan,
    lambda p: seconds_of_inflow(p.rate * p.scale * p.size, (0.3, 1, 3, 10)),
)
