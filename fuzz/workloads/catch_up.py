"""Catch-up: subscriptions drain the same backlog from different positions, while producers continue."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from fuzz.workloads.caches.plan import Consumer, Plan, Subscription, in_time, scaled, steady
from fuzz.workloads.caches.study import seconds_of_inflow, study


class Parameters(NamedTuple):
    """Parameters without a comment are described in `fuzz/workloads/caches/study.py`."""

    scale: float = 0.02
    seconds: int = 10
    rate: int = 10_000
    topics: int = 2
    size: int = 1024
    fan_out: int = 5
    backlog_s: int = 20  # seconds of production that are in storage at the start
    stagger_ms: int = 300  # each subscription starts this time of production ahead of the next one
    drain: float = 3.0  # the speed of a consumer, as a multiple of its topic's rate
    tailing: int = 1  # number of further subscriptions of each topic; these start with the next entry that is added
    waits: int = 0  # whether readers wait for misses


def plan(p: Parameters, rng: Random) -> Plan:
    """Returns the plan of a run; `rng` changes a consumer's time for a message by at most 5 %."""
    end = p.seconds * 1_000_000
    rate = p.rate * p.scale / p.topics
    queue = scaled(1000, p.scale)
    subscriptions = []
    for topic in range(p.topics):
        for i in range(p.fan_out):
            think = round(1_000_000 / (rate * p.drain) * rng.uniform(0.95, 1.05))
            start = round(rate * p.stagger_ms / 1000 * (p.fan_out - 1 - i))
            subscriptions.append(Subscription(topic, (Consumer(queue, think),), start=start))
        subscriptions += [Subscription(topic, (Consumer(queue),), start=None) for _ in range(p.tailing)]
    backlog = [(topic, p.size) for _ in range(round(rate * p.backlog_s)) for topic in range(p.topics)]
    adds = in_time(*[steady(topic, rate, p.size, end, topic) for topic in range(p.topics)])
    return Plan(p.topics, adds, subscriptions, end, p.scale, backlog=backlog, batch=scaled(100, p.scale))


workload = study(
    "catch_up",
    "subscriptions drain one backlog from different positions",
    Parameters(),
    plan,
    lambda p: seconds_of_inflow(p.rate * p.scale * p.size, (0.3, 1, 3, 10)),
)
