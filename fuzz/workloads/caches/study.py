"""How a plan (`fuzz/workloads/caches/plan.py`) becomes a workload of `brokerproof compare`.

The parameters of such workloads have common names:

    seconds    length of the run
    rate       entries that producers add in a second, to all topics together
    topics     number of topics; `partitions` is the same
    size       bytes of an entry
    fan_out    subscriptions of each topic; `subscriptions` is the same
    queue      messages that the receiver queue of a consumer takes
    scale      factor of rates, queues, batches, default cache sizes and settings that count entries, so that a
               workload can be run with fewer entries
    waits      1: a reader waits for its misses, so that the policy changes the stream of reads; 0: it does not
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
    """What a policy costs on a workload with a cache of some size."""

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
    "reads": "entries that dispatchers asked for, redeliveries included; each is a hit or comes from storage",
    "hit ratio": "share of the reads that are hits: without a storage read of their own. A read that joins the storage "
    "read of another cursor is a hit",
    "bytes cached": "peak: the largest of a broker; mean: over time, of all brokers together",
    "dead bytes": "mean bytes of cached entries that no connected cursor will read",
    "eviction visits": "slots, entries and caches that evictions and invalidations visited; of a library, evictions",
    "bound": "of an optimum: exact, or an upper or lower bound on the hits of the best possible eviction",
}


def study(
    name: str,
    about: str,
    parameters: Any,
    plan: Callable[[Any, Random], Plan],
    sizes: Callable[[Any], tuple[int, ...]],
) -> Workload:
    """The workload that runs a plan under the policies.

    `plan` makes the plan of given parameters, with a random generator for all that a seed decides. `sizes` returns the
    default cache sizes in bytes for given parameters.
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
    """Runs a cell. The plan and the simulation's random choices do not depend on the policy and the size.

    Raises BadValue if the policy cannot run here, or not with `waits`.
    """
    policy, waits = find_policy(cell.policy), bool(getattr(cell.parameters, "waits", 0))
    if waits and policy.offline:
        raise BadValue(f"policy {cell.policy} needs a given stream of reads: not with --set waits=1")
    seed = zlib.crc32(f"{cell.workload.partition(':')[0]} {cell.seed}".encode())
    made = plan(cell.parameters, Random(seed))  # noqa: S311
    totals = Simulation(made, policy.make, cell.size, seed, waits).run()
    bound = "exact" if totals.is_exact else "lower" if cell.policy == "optimum-feasible" else "upper"
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
    """Cache sizes in bytes: what the producers send in each of these numbers of seconds."""
    return tuple([max(1, round(bytes_per_second * each)) for each in seconds])
