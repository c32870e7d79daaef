"""Workloads of `brokerproof compare` that run a plan (`fuzz/workloads/caches/plan.py`) in the simulation.

The parameters of these workloads have common names:

    seconds    length of the run
    rate       entries that producers add in a second, to all topics together
    topics     number of topics; also named `partitions`
    size       bytes of an entry
    fan_out    number of subscriptions of each topic; also named `subscriptions`
    queue      number of messages that the receiver queue of a consumer holds
    scale      factor of rates, queues, batches, default cache sizes and settings that count entries. With a smaller
               scale, a workload has fewer entries
    waits      1: a reader waits for its misses, and the policy changes the stream of reads; 0: no reader waits
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from random import Random
from typing import Annotated, Any

import msgspec

from fuzz.workloads import Cell, Workload
from fuzz.workloads.caches.plan import Plan
from fuzz.workloads.caches.policies import DEFAULT, POLICIES, available, find_policy
from fuzz.workloads.caches.simulation import Simulation
from model.machine import BadValue

Count = Annotated[int, msgspec.Meta(ge=0)]


class Row(msgspec.Struct):
    """The costs of a policy on a workload with one cache size."""

    policy: str
    workload: str
    cache_bytes: Count
    seed: int
    reads: Count
    hit_ratio: float
    storage_reads: Count
    storage_entries: Count
    bytes_cached_peak: Count
    bytes_cached_mean: Count
    dead_bytes_mean: Count | None
    eviction_visits: Count
    consumed: Count
    bound: str


MEANINGS = {
    "reads": "entries that dispatchers requested, redeliveries included; each is a hit or is read from storage",
    "hit ratio": "share of the reads without a storage read of their own; a read that joins another cursor's storage "
    "read is a hit",
    "bytes cached": "peak: the maximum of one broker; mean: over time, of all brokers together",
    "dead bytes": "mean bytes of cached entries that no connected cursor will read",
    "eviction visits": "slots, entries and caches that evictions and invalidations visited; of a library: evicted ones",
    "bound": "for an optimum: exact, or an upper or lower bound on the hits of the best possible eviction",
}


def study(
    name: str,
    about: str,
    parameters: Any,
    plan: Callable[[Any, Random], Plan],
    sizes: Callable[[Any], tuple[int, ...]],
) -> Workload:
    """Returns the workload that runs a plan under the policies.

    `plan` returns the plan for parameters and a random generator, which depends on the seed. `sizes` returns the
    default cache sizes in bytes for parameters.
    """

    def measure(cell: Cell) -> Iterator[Row]:
        yield measured(cell, plan)

    return Workload(
        name=name,
        about=about,
        policies=tuple(POLICIES),
        default=available(DEFAULT),
        size="cache_bytes",
        sizes=sizes,
        measures=(
            "hit_ratio",
            "storage_reads",
            "storage_entries",
            "bytes_cached_peak",
            "bytes_cached_mean",
            "eviction_visits",
        ),
        meanings={name: policy.about for name, policy in POLICIES.items()} | MEANINGS,
        row=Row,
        parameters=parameters,
        check=find_policy,
        measure=measure,
    )


def measured(cell: Cell, plan: Callable[[Any, Random], Plan]) -> Row:
    """Runs a cell and returns its row. The plan and the random choices do not depend on the policy and the size.

    Raises BadValue if the policy cannot run here, or is offline and `waits` is set.
    """
    policy, waits = find_policy(cell.policy), bool(getattr(cell.parameters, "waits", 0))
    if waits and policy.offline:
        raise BadValue(f"policy {cell.policy} needs a given stream of reads: not with --set waits=1")
    seed = zlib.crc32(f"{cell.workload.partition(':')[0]} {cell.seed}".encode())
    planned = plan(cell.parameters, Random(seed))  # noqa: S311
    totals = Simulation(planned, policy.make, cell.size, seed, waits).run()
    inexact = "lower" if cell.policy == "optimum-feasible" else "upper"
    bound = "exact" if totals.is_exact else inexact
    return Row(
        policy=cell.policy,
        workload=cell.workload,
        cache_bytes=cell.size,
        seed=cell.seed,
        reads=totals.reads,
        hit_ratio=round(1 - totals.storage_entries / totals.reads, 6) if totals.reads else 1.0,
        storage_reads=totals.storage_reads,
        storage_entries=totals.storage_entries,
        bytes_cached_peak=totals.bytes_peak,
        bytes_cached_mean=totals.bytes_mean,
        dead_bytes_mean=totals.dead_mean,
        eviction_visits=totals.visits,
        consumed=totals.consumed,
        bound=bound if policy.offline else "",
    )


def seconds_of_inflow(bytes_per_second: float, seconds: tuple[float, ...]) -> tuple[int, ...]:
    """Returns cache sizes in bytes: as many as the producers send in each of these numbers of seconds."""
    return tuple([max(1, round(bytes_per_second * each)) for each in seconds])
