"""All consumers disconnect at once and connect again at random times, while producers continue."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from fuzz.workloads.caches.plan import Command, Consumer, Plan, Subscription, in_time, scaled, steady
from fuzz.workloads.caches.study import seconds_of_inflow, study
from model.machine import BadValue


class Parameters(NamedTuple):
    """Parameters without a comment are described in `fuzz/workloads/caches/study.py`."""

    scale: float = 0.01
    seconds: int = 14
    rate: int = 20_000
    topics: int = 5
    size: int = 1024
    fan_out: int = 10
    leave_s: int = 4  # all consumers disconnect at every multiple of this time
    back_ms: int = 500  # the shortest time until a consumer is connected again
    back_most_ms: int = 2_500  # the longest time until a consumer is connected again
    seek_back_ms: int = 0  # a returning subscription seeks to this time before its disconnection; 0: no seek
    waits: int = 0  # whether readers wait for misses


def plan(p: Parameters, rng: Random) -> Plan:
    """Returns the plan of a run; `rng` draws the times of connections.

    Raises BadValue if `back_most_ms` is below `back_ms`.
    """
    if p.back_most_ms < p.back_ms:
        raise BadValue(f"--set back_most_ms={p.back_most_ms}: it must be at least back_ms, which is {p.back_ms}")
    end = p.seconds * 1_000_000
    rate = p.rate * p.scale / p.topics
    consumer = Consumer(scaled(1000, p.scale))
    subscriptions = [Subscription(topic, (consumer,)) for topic in range(p.topics) for _ in range(p.fan_out)]
    commands = []
    for leave in range(p.leave_s * 1_000_000, end, p.leave_s * 1_000_000):
        for number in range(len(subscriptions)):
            back = leave + rng.randint(p.back_ms * 1000, p.back_most_ms * 1000)
            commands.append(Command(leave, "disconnect", (number,)))
            if p.seek_back_ms:
                entry = round(rate * (leave / 1_000_000 - p.seek_back_ms / 1000))
                commands.append(Command(back, "seek", (number, max(0, entry))))
            else:
                commands.append(Command(back, "connect", (number,)))
    adds = in_time(*[steady(topic, rate, p.size, end, topic) for topic in range(p.topics)])
    return Plan(p.topics, adds, subscriptions, end, p.scale, sorted(commands), batch=scaled(100, p.scale))


workload = study(
    "reconnect",
    "all consumers leave, and come back at random times while producers continue",
    Parameters(),
    plan,
    lambda p: seconds_of_inflow(p.rate * p.scale * p.size, (0.3, 1, 3, 6)),
)
