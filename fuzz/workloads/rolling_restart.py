"""Rolling restart of two brokers with tailing consumers: `BrokerEntryCacheRollingRestartTest`.

At scale 1 the parameters are those of the test: 10 partitions, 50,000 messages a second, 10 subscriptions of each
partition, entries of 8192 bytes, a cache of 250 MB for each broker, a restart every 7.5 s. The pauses of consumers, and
the time until a client is connected again, are assumptions. Ledgers do not roll over unless `ledger_entries` is set.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from fuzz.workloads.caches.plan import Command, Consumer, Plan, Subscription, in_time, scaled, steady
from fuzz.workloads.caches.study import study


class Parameters(NamedTuple):
    """Parameters without a comment are described in `fuzz/workloads/caches/study.py`."""

    scale: float = 0.004
    seconds: int = 35  # the producers stop 5 s before the end
    rate: int = 50_000
    partitions: int = 10
    subscriptions: int = 10
    size: int = 8192
    queue: int = 200
    outstanding: int = 500_000  # number of messages sent and not consumed at which the producers pause
    restart_ms: int = 7_500  # time between two restarts
    restarts: int = 3
    back_ms: int = 200  # the longest time until a consumer is connected after a restart; the shortest time is half
    stall_every_ms: int = 3_000  # mean time between two pauses of a client (a subscription of all partitions)
    stall_ms: int = 500  # the longest pause
    ledger_entries: int = 0  # number of entries of a full ledger; 100,000 in the test. 0: a topic has one ledger
    waits: int = 0  # whether readers wait for misses


def plan(p: Parameters, rng: Random) -> Plan:
    """Returns the plan of a run; `rng` draws the owners of partitions, connection times and pauses."""
    end, produce = p.seconds * 1_000_000, (p.seconds - 5) * 1_000_000
    rate = p.rate * p.scale / p.partitions
    consumer = Consumer(scaled(p.queue, p.scale))
    subscriptions: list[Subscription] = []
    commands: list[Command] = []
    for _ in range(p.subscriptions):
        at_us = 0
        pauses: list[tuple[int, int]] = []  # the pauses of one client, which has a consumer of every partition
        while p.stall_ms and (at_us := at_us + round(rng.expovariate(1 / (p.stall_every_ms * 1000)))) < end:
            pauses.append((at_us, rng.randint(1, p.stall_ms * 1000)))
        connect_us = rng.randint(20_000, 40_000)
        for partition in range(p.partitions):
            commands += [Command(at, "stall", (len(subscriptions), 0, length)) for at, length in pauses]
            subscriptions.append(Subscription(partition, (consumer,), connect_us=connect_us))
    commands += [Command(i * p.restart_ms * 1000, "restart", ((i - 1) % 2,)) for i in range(1, p.restarts + 1)]
    return Plan(
        p.partitions,
        in_time(*[steady(t, rate, p.size, produce, 1_000_000 + t) for t in range(p.partitions)]),
        subscriptions,
        end,
        p.scale,
        sorted(commands),
        brokers=[rng.randrange(2) for _ in range(p.partitions - 1)] + [1],  # broker 1 always owns the last partition
        batch=scaled(100, p.scale),
        reconnect_us=(p.back_ms * 500, p.back_ms * 1000),
        outstanding=scaled(p.outstanding, p.scale),
        ledger_entries=p.ledger_entries and scaled(p.ledger_entries, p.scale),
    )


workload = study(
    "rolling_restart",
    "two brokers with tailing consumers restart in turn",
    Parameters(),
    plan,
    lambda p: tuple([round(mb * 2**20 * p.scale) for mb in (62, 125, 250, 500)]),
)
