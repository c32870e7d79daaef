"""Benchmarks of shared storage reads: how many entries are read, and the cost of finding a read to join."""

from __future__ import annotations

import statistics
import time

from fuzz.benchmarks.runner import Benchmark, Measured
from impl.entry_cache.manager import EntryCaches
from impl.entry_cache.shared_reads import JoinableReads, OutstandingRead, PendingRequest
from model.entry_cache.shared_reads import StorageRead, candidate
from model.entry_cache.state import Config, Issued, Reading, Stored

FEW, MANY = 10, 10_000
#: Lookups per measurement, and number of measurements; the slow scans are measured three times.
_LOOKUPS, _TURNS = 300, 9
#: Catch-up readers, the distance between two of them in entries, entries of a read, and entries of the ledger.
READERS, DISTANCE, BATCH, ENTRIES = 50, 7, 100, 2_000


def bisected(reads: int) -> float:
    """Returns the seconds of `_LOOKUPS` lookups by bisection among this number of outstanding reads."""
    joinable = JoinableReads()
    for i in range(reads):
        joinable.add(OutstandingRead(i, PendingRequest(0, 0, 0, 1, 1), 10 * i, 10 * i + 5))
    started = time.perf_counter()
    for i in range(_LOOKUPS):
        found = joinable.best(10 * (i * 37 % reads) + 2, 10 * (i * 37 % reads) + 8)
        assert found is not None
    return time.perf_counter() - started


def scanned(reads: int) -> float:
    """Returns the seconds of `_LOOKUPS` lookups by a scan of this number of reads, as in `PendingReadsManager`.

    Scans are slow: only a thirtieth of the lookups is made, and the measured time is multiplied by 30.
    """
    outstanding = tuple(StorageRead(i, 0, 0, 1, 10 * i, 10 * i + 5, 1, True, (1,)) for i in range(reads))
    started = time.perf_counter()
    for i in range(_LOOKUPS // 30):
        found = candidate(outstanding, 0, 1, 10 * (i * 37 % reads) + 2, 10 * (i * 37 % reads) + 8)
        assert found is not None
    return 30 * (time.perf_counter() - started)


def joining() -> Measured:
    """Measures how the cost of a lookup grows from 10 to 10,000 outstanding reads, by bisection and by scan."""
    ours = statistics.median(bisected(MANY) for _ in range(_TURNS)) / statistics.median(
        bisected(FEW) for _ in range(_TURNS)
    )
    scanning = statistics.median(scanned(MANY) for _ in range(3)) / statistics.median(scanned(FEW) for _ in range(3))
    return Measured(ours, scanning, scanning / ours)


def entries_from_storage(is_shared: bool) -> int:
    """Returns the number of entries that storage reads for catch-up readers, with shared reads or without.

    Each reader requests a batch. Then storage answers, and the readers request the next batch.
    """
    implementation = EntryCaches(Config(caches=1, stored=(Stored(0, 1, (100,) * ENTRIES),)))
    delivered = 0
    for first in range(0, ENTRIES - BATCH - READERS * DISTANCE, BATCH):
        issued: list[Issued] = []
        for reader in range(READERS):
            reading = implementation.read(0, 1, first + reader * DISTANCE, first + reader * DISTANCE + BATCH - 1, 0)
            assert isinstance(reading, Reading)
            issued += reading.issued
            if not is_shared:
                implementation.invalidate_ledger(0, 1)  # outstanding reads are no longer joinable
        for each in issued:
            implementation.complete_storage_read(each.number, True)
            delivered += each.last - each.first + 1
    return delivered


def sharing() -> Measured:
    """Measures the entries that storage delivers to catch-up readers, with and without shared reads."""
    shared, alone = entries_from_storage(True), entries_from_storage(False)
    return Measured(shared, alone, alone / shared)


benchmarks = [
    Benchmark(
        "joining",
        "",
        f"times the cost with {FEW} reads",
        f"find the read to join among {MANY:,} outstanding reads; baseline: linear scan",
        joining,
    ),
    Benchmark(
        "sharing",
        "",
        "entries from storage",
        f"{READERS} catch-up readers, {DISTANCE} entries apart; baseline: reads are not shared",
        sharing,
    ),
]
