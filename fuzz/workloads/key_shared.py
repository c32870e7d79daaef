"""Key_Shared subscriptions with slow consumers, with the numbers of the test `testTailingReadsKeySharedSlowConsumer`.

An entry whose consumer has no permits is added to the replay queue. When the consumer has permits again, the entry is
read again, alone.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from fuzz.workloads.caches.plan import Consumer, Plan, Subscription, scaled, steady
from fuzz.workloads.caches.study import seconds_of_inflow, study


class Parameters(NamedTuple):
    """There is one topic. Parameters without a comment are described in `fuzz/workloads/caches/study.py`."""

    scale: float = 1.0
    produce_s: int = 10  # time for which producers send
    seconds: int = 12
    rate: int = 60
    size: int = 68
    keys: int = 100  # number of different keys
    random_keys: int = 0  # 1: keys are drawn at random; 0: keys take turns
    subscriptions: int = 5
    consumers: int = 2  # of each subscription
    queue: int = 10
    pause_share: float = 0.05  # the probability that a consumer pauses after a message
    pause_ms: int = 500  # the longest pause
    waits: int = 0  # whether readers wait for misses


def plan(p: Parameters, rng: Random) -> Plan:
    """Returns the plan of a run; `rng` draws the keys if they are random."""
    consumer = Consumer(scaled(p.queue, p.scale), 0, p.pause_share, p.pause_ms * 1000)
    subscriptions = [Subscription(0, (consumer,) * p.consumers, "key_shared") for _ in range(p.subscriptions)]
    adds = steady(0, p.rate * p.scale, p.size, p.produce_s * 1_000_000, keys=p.keys)
    if p.random_keys:
        adds = [add._replace(key=rng.randrange(p.keys)) for add in adds]
    return Plan(1, adds, subscriptions, p.seconds * 1_000_000, p.scale, batch=scaled(100, p.scale))


workload = study(
    "key_shared",
    "Key_Shared subscriptions with consumers that pause at random",
    Parameters(),
    plan,
    lambda p: seconds_of_inflow(p.rate * p.scale * p.size, (0.3, 1.1, 3, 10)),
)
