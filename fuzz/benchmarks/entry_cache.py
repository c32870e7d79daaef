"""What sharing reads of storage saves, and what finding the read to share costs."""

from __future__ import annotations

import statistics
import time

from fuzz.benchmarks.runner import Benchmark, Measured
from impl.entry_cache.manager import EntryCaches
from impl.entry_cache.shared_reads import Asking, Joinable, Outstanding
from model.entry_cache.shared_reads import StorageRead, candidate
from model.entry_cache.state import Config, Issued, Reading, Stored

FEW, MANY = 10, 10_000
#: Lookups of one measurement, and measurements of each in turns.
_LOOKUPS, _TURNS = 300, 9
#: Readers that catch up side by side, each some entries behind the one before; entries of a read and of a ledger.
READERS, BEHIND, AT_A_TIME, ENTRIES = 50, 7, 100, 2_000


def bisected(reads: int) -> float:
    """Seconds to find the read to join among so many outstanding ones."""
    joinable = Joinable()
    for i in range(reads):
        joinable.add(Outstanding(i, Asking(0, 0, 0, 1, 1), 10 * i, 10 * i + 5))
    started = time.perf_counter()
    for i in range(_LOOKUPS):
        found = joinable.best(10 * (i * 37 % reads) + 2, 10 * (i * 37 % reads) + 8)
        assert found is not None
    return time.perf_counter() - started


def scanned(reads: int) -> float:
    """The same by looking at every outstanding read, as the broker's table of them does."""
    outstanding = tuple(StorageRead(i, 0, 0, 1, 10 * i, 10 * i + 5, 1, True, (1,)) for i in range(reads))
    started = time.perf_counter()
    for i in range(_LOOKUPS // 30):
        found = candidate(outstanding, 0, 1, 10 * (i * 37 % reads) + 2, 10 * (i * 37 % reads) + 8)
        assert found is not None
    return 30 * (time.perf_counter() - started)


def joining() -> Measured:
    """The growth of finding the read to join from 10 outstanding reads to 10,000, by bisection and by scanning."""
    ours = statistics.median(bisected(MANY) for _ in range(_TURNS)) / statistics.median(
        bisected(FEW) for _ in range(_TURNS)
    )
    scanning = statistics.median(scanned(MANY) for _ in range(3)) / statistics.median(scanned(FEW) for _ in range(3))
    return Measured(ours, scanning, scanning / ours)


def entries_from_storage(sharing: bool) -> int:
    """How many entries storage delivers while readers catch up, when it answers after all have asked."""
    body = EntryCaches(Config(caches=1, stored=(Stored(0, 1, (100,) * ENTRIES),)))
    delivered = 0
    for first in range(0, ENTRIES - AT_A_TIME - READERS * BEHIND, AT_A_TIME):
        issued: list[Issued] = []
        for reader in range(READERS):
            asked = body.read(0, 1, first + reader * BEHIND, first + reader * BEHIND + AT_A_TIME - 1, 0)
            assert isinstance(asked, Reading)
            issued += asked.issued
            if not sharing:
                body.invalidate_ledger(0, 1)  # what is outstanding can not be joined any more
        for each in issued:
            body.complete_storage_read(each.number, True)
            delivered += each.last - each.first + 1
    return delivered


def sharing() -> Measured:
    """Entries that storage delivers to readers that catch up side by side, with shared reads and without."""
    shared, alone = entries_from_storage(True), entries_from_storage(False)
    return Measured(shared, alone, alone / shared)


benchmarks = [
    Benchmark(
        "joining",
        f"times the cost with {FEW}",
        f"finding the read to join among {MANY:,} outstanding ones, against looking at each",
        joining,
    ),
    Benchmark(
        "sharing",
        "entries from storage",
        f"{READERS} readers that catch up {BEHIND} entries apart, against reads that are not shared",
        sharing,
    ),
]
