"""Tailing fan-out: every subscription reads each entry after a constant lag. The lags are evenly spread."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from fuzz.workloads.caches.plan import Consumer, Plan, Subscription, in_time, scaled, steady
from fuzz.workloads.caches.study import seconds_of_inflow, study


class Parameters(NamedTuple):
    """Parameters without a comment are described in `fuzz/workloads/caches/study.py`."""

    scale: float = 0.01
    seconds: int = 12
    rate: int = 20_000
    topics: int = 2
    size: int = 1024
    fan_out: int = 10
    spread_ms: int = 500  # the largest lag, before it is changed at random
    far: int = 0  # number of further subscriptions of each topic; these are connected and read nothing
    check_ms: int = 1_000  # when the broker first checks the backlogs of cursors; then once a minute
    waits: int = 0  # whether readers wait for misses


def plan(p: Parameters, rng: Random) -> Plan:
    """Returns the plan of a run; `rng` changes every lag by at most 20 %."""
    end = p.seconds * 1_000_000
    rate = p.rate * p.scale / p.topics
    consumer = Consumer(queue=scaled(1000, p.scale))
    subscriptions = []
    for topic in range(p.topics):
        for i in range(p.fan_out):
            lag = p.spread_ms * 1000 * i / max(1, p.fan_out - 1)
            delay = round(lag * rng.uniform(0.8, 1.2))
            subscriptions.append(Subscription(topic, (consumer,), delay_us=delay))
        # a lag that is longer than the run: nothing is read
        subscriptions += [Subscription(topic, (consumer,), delay_us=2 * end) for _ in range(p.far)]
    adds = in_time(*[steady(topic, rate, p.size, end, topic) for topic in range(p.topics)])
    return Plan(p.topics, adds, subscriptions, end, p.scale, check_us=p.check_ms * 1000, batch=scaled(100, p.scale))


workload = study(
    "tailing",
    "every subscription tails at a constant lag",
    Parameters(),
    plan,
    lambda p: seconds_of_inflow(p.rate * p.scale * p.size, (0.1, 0.3, 1, 3)),
)
