"""Many topics of one broker: Zipf rates, and different sizes, fan-outs and lags. Some subscriptions read nothing."""

from __future__ import annotations

import math
from random import Random
from typing import NamedTuple

from fuzz.workloads.caches.plan import Add, Consumer, Plan, Subscription, in_time, scaled, steady
from fuzz.workloads.caches.study import seconds_of_inflow, study


class Parameters(NamedTuple):
    """Parameters without a comment are described in `fuzz/workloads/caches/study.py`."""

    scale: float = 0.03
    seconds: int = 12
    rate: int = 20_000
    topics: int = 60
    least_size: int = 128  # bytes of the smallest possible entry
    most_size: int = 8192  # bytes of the largest possible entry
    fan_out: int = 6  # the largest fan-out
    spread_ms: int = 2_000  # the largest lag
    far_share: float = 0.1  # the probability that a subscription is connected and reads nothing
    check_ms: int = 2_000  # when the broker first checks the backlogs of cursors; then once a minute
    waits: int = 0  # whether readers wait for misses


def plan(p: Parameters, rng: Random) -> Plan:
    """Returns the plan of a run; `rng` draws sizes, fan-outs, lags and the subscriptions that read nothing."""
    end = p.seconds * 1_000_000
    weights = [1 / (rank + 1) for rank in range(p.topics)]
    consumer = Consumer(scaled(1000, p.scale))
    subscriptions: list[Subscription] = []
    streams: list[list[Add]] = []
    for topic, weight in enumerate(weights):
        rate = p.rate * p.scale * weight / sum(weights)
        base = steady(topic, rate, 0, end, rng.randrange(1_000_000))
        streams.append(
            [add._replace(size=round(p.least_size * (p.most_size / p.least_size) ** rng.random())) for add in base]
        )
        for _ in range(rng.randint(1, p.fan_out)):
            # a lag of 2 * end is longer than the run: nothing is read
            delay = 2 * end if rng.random() < p.far_share else round(p.spread_ms * 1000 * rng.random() ** 2)
            subscriptions.append(Subscription(topic, (consumer,), delay_us=delay))
    return Plan(
        p.topics, in_time(*streams), subscriptions, end, p.scale, check_us=p.check_ms * 1000, batch=scaled(100, p.scale)
    )


def mean_size(p: Parameters) -> float:
    """Returns the expected size of an entry in bytes. The logarithm of a size is uniformly distributed."""
    if p.most_size == p.least_size:
        return p.most_size
    return (p.most_size - p.least_size) / math.log(p.most_size / p.least_size)


workload = study(
    "topics_mix",
    "many topics with different rates, sizes, fan-outs and lags",
    Parameters(),
    plan,
    lambda p: seconds_of_inflow(p.rate * p.scale * mean_size(p), (0.1, 0.3, 1, 3)),
)
