"""Tailing and catch-up subscriptions share a broker.

With the probability `catch_up_share`, a subscription drains a backlog. Otherwise, it tails with a small lag. We found
no published share of catch-up subscriptions. The default is 0.1; the predictions also use 0.01 and 0.5.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from fuzz.workloads.caches.plan import Consumer, Plan, Subscription, in_time, scaled, steady
from fuzz.workloads.caches.study import seconds_of_inflow, study


class Parameters(NamedTuple):
    """Parameters without a comment are described in `fuzz/workloads/caches/study.py`."""

    scale: float = 0.02
    seconds: int = 12
    rate: int = 20_000
    topics: int = 10
    size: int = 1024
    fan_out: int = 4
    spread_ms: int = 600  # the largest lag of a tailing subscription
    catch_up_share: float = 0.1  # the probability that a subscription catches up
    behind_s: int = 10  # seconds of production in storage at the start; catch-up starts in the oldest fifth
    drain: float = 1.5  # the mean speed of a consumer that catches up, as a multiple of its topic's rate
    check_ms: int = 1_000  # when the broker first checks the backlogs of cursors; then once a minute
    waits: int = 0  # whether readers wait for misses


def plan(p: Parameters, rng: Random) -> Plan:
    """Returns the plan of a run; `rng` draws lags, and the subscriptions that catch up with their starts and speeds."""
    end = p.seconds * 1_000_000
    rate = p.rate * p.scale / p.topics
    queue = scaled(1000, p.scale)
    backlog = round(rate * p.behind_s)
    subscriptions = []
    for topic in range(p.topics):
        for _ in range(p.fan_out):
            if rng.random() < p.catch_up_share:
                think = round(1_000_000 / (rate * p.drain) * rng.uniform(0.9, 1.1))
                start = round(backlog * rng.uniform(0, 0.2))
                subscriptions.append(Subscription(topic, (Consumer(queue, think),), start=start))
            else:
                delay = round(p.spread_ms * 1000 * rng.random())
                subscriptions.append(Subscription(topic, (Consumer(queue),), start=None, delay_us=delay))
    stored = [(topic, p.size) for _ in range(backlog) for topic in range(p.topics)]
    adds = in_time(*[steady(topic, rate, p.size, end, topic) for topic in range(p.topics)])
    return Plan(
        p.topics,
        adds,
        subscriptions,
        end,
        p.scale,
        backlog=stored,
        check_us=p.check_ms * 1000,
        batch=scaled(100, p.scale),
    )


workload = study(
    "mix",
    "tailing subscriptions, and some that catch up",
    Parameters(),
    plan,
    lambda p: seconds_of_inflow(p.rate * p.scale * p.size, (0.1, 0.3, 1, 3)),
)
