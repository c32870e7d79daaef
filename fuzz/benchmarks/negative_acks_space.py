"""Memory per nacked entry: the table of PIP-393's "Space complexity analysis", completed and measured again.

Each structure is filled in a process of its own. In this process, Python allocates all memory from the C library, so
the library's statistics count objects, tables and bitmaps. Rows, by the beginnings of their names:

    N_per_ms         1,000,000 nacks of all messages of a stream, as in the proposal's tests
    middle           the same where a bucket has between 4,096 and 50,000 entries
    rollover         the same with ledgers as large as `managedLedgerMinLedgerRolloverTimeMinutes` makes them
    every, random    1,000,000 nacks of some messages of a stream
    few              100,000 nacks with few entries per bucket: bitmaps may take more memory than a hash map

Predictions of the bytes per entry of Roaring bitmaps, for a row with M nacks per bucket:

    proposal    4 for M < 4,096, 8,192 / M up to 50,000, 0.163 above
    ceiling     ceil(M / 50,000) * 8,192 / M: the proposal's formula, which the proposal simplifies by dropping `ceil`
    corrected   an array container has 2 bytes per value and at most 4,096 values, a bitset container 8,192 bytes;
                buckets, ledgers and ranges of 65,536 ids divide the entries into containers

The baseline before PIP-393 is `ConcurrentLongLongPairHashMap`: 32 bytes per slot; its capacity is a power of two,
which doubles above the fill factor of 0.66 and halves below the idle factor of 0.15.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import json
import math
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pyroaring import BitMap

import fuzz.benchmarks
from fuzz.benchmarks.runner import Benchmark, Line, Measured, Plot, Point
from impl.negative_acks.buckets import Buckets
from model.machine import BadValue
from model.negative_acks.delay import trim_lower_bits

MIB = 2**20
#: Time of the first nack, in milliseconds.
START = 1_731_650_000_000
FIRST_LEDGER = 10_000
#: `managedLedgerMaxEntriesPerLedger`, and milliseconds of `managedLedgerMinLedgerRolloverTimeMinutes`.
MAX_ENTRIES_PER_LEDGER, MIN_ROLLOVER_MS = 50_000, 600_000
#: Roaring: values of the largest array container, bytes of a bitset container, ids per container.
MAX_ARRAY_VALUES, BITSET_BYTES, CONTAINER_IDS = 4096, 8192, 2**16
#: `ConcurrentLongLongPairHashMap`: slots at creation (the power of two above 256 / 0.66), bytes per slot, factors.
INITIAL_SLOTS, SLOT_BYTES, FILL_PERCENT, IDLE_PERCENT = 512, 32, 66, 15


class Row(NamedTuple):
    """A workload, and the proposal's measurement in bytes per entry, if there is one."""

    name: str
    rate: int  # messages per millisecond
    bits: int  # a bucket is 2**bits milliseconds long
    entries: int  # per ledger
    nacks: int = 1_000_000
    every: float = 1  # every n-th message is nacked; below one: at random, with this probability
    measured: float | None = None

    @property
    def spacing(self) -> float:
        """Messages per nack."""
        return self.every if self.every >= 1 else 1 / self.every

    @property
    def per_bucket(self) -> float:
        """M: nacks per bucket."""
        return (self.rate << self.bits) / self.spacing


def entries_at_rollover(rate: int) -> int:
    """Returns the entries of a ledger that rolls over at the maximum of entries, but not before the minimum time."""
    return max(MAX_ENTRIES_PER_LEDGER, rate * MIN_ROLLOVER_MS)


ROWS = (
    Row("1_per_ms", 1, 10, 1_000, measured=3.35 * MIB / 1e6),
    Row("50_per_ms", 50, 10, 50_000, measured=0.33 * MIB / 1e6),
    Row("500_per_ms", 500, 10, 50_000, measured=0.18 * MIB / 1e6),
    Row("1_per_ms_large_ledgers", 1, 10, 50_000),
    Row("middle.5_per_ms", 5, 10, 50_000),
    Row("middle.10_per_ms", 10, 10, 50_000),
    Row("rollover.50_per_ms", 50, 10, entries_at_rollover(50)),
    Row("rollover.500_per_ms", 500, 10, entries_at_rollover(500)),
    Row("every_2nd_of_50_per_ms", 50, 10, 50_000, every=2),
    Row("every_10th_of_500_per_ms", 500, 10, 50_000, every=10),
    Row("random_1_percent_of_50_per_ms", 50, 10, 50_000, every=0.01),
    Row("random_1_percent_of_500_per_ms", 500, 10, 50_000, every=0.01),
    Row("few.1_per_bucket", 1, 0, 50_000, 100_000),
    Row("few.4_per_bucket", 1, 2, 50_000, 100_000),
    Row("few.16_per_bucket", 1, 4, 50_000, 100_000),
    Row("few.256_per_bucket", 1, 8, 50_000, 100_000),
)


def nacks(row: Row) -> Iterator[tuple[int, int, int]]:
    """Yields bucket time, ledger and entry of each nack of a row, in order."""
    chance, message = random.Random(393), 0  # noqa: S311
    for _ in range(row.nacks):
        time = trim_lower_bits(START + message // row.rate, row.bits, 1)
        yield time, FIRST_LEDGER + message // row.entries, message % row.entries
        if row.every >= 1:
            message += int(row.every)
        else:
            message += 1 + int(math.log(1 - chance.random()) / math.log(1 - row.every))


# ---- predictions --------------------------------------------------------------------------------------


def by_proposal(row: Row) -> float:
    """Returns the proposal's prediction in bytes per entry."""
    m = row.per_bucket
    if m < MAX_ARRAY_VALUES:
        return 4.0
    return BITSET_BYTES / m if m < MAX_ENTRIES_PER_LEDGER else BITSET_BYTES / MAX_ENTRIES_PER_LEDGER


def with_ceiling(row: Row) -> float:
    """Returns the proposal's formula for M above 4,096, with `ceil`, which doubles the result just above M = 50,000."""
    return math.ceil(row.per_bucket / MAX_ENTRIES_PER_LEDGER) * BITSET_BYTES / row.per_bucket


def corrected(row: Row) -> float:
    """Returns the corrected prediction: containers of the mean size, each an array or a bitset.

    A container ends at a boundary: the end of a bucket, of a ledger, or of a range of 65,536 ids in a ledger.
    """
    ranges = math.ceil(row.entries / CONTAINER_IDS) - 1
    boundaries = 1 / row.per_bucket + row.spacing * (1 + ranges) / row.entries  # per nack
    return 2.0 if 1 / boundaries <= MAX_ARRAY_VALUES else BITSET_BYTES * boundaries


def container_bytes(row: Row) -> float:
    """Returns the exact bytes per entry of the containers, without run containers, which `add` never creates."""
    sizes = Counter((bucket, ledger, entry // CONTAINER_IDS) for bucket, ledger, entry in nacks(row))
    return sum(2 * n if n <= MAX_ARRAY_VALUES else BITSET_BYTES for n in sizes.values()) / row.nacks


def hash_map_slots(count: int, peak: int = 0) -> int:
    """Returns the slots of the map before PIP-393 with `count` entries, after removals from `peak` entries."""
    slots = INITIAL_SLOTS
    while max(count, peak) > slots * FILL_PERCENT // 100:
        slots *= 2
    while slots > INITIAL_SLOTS and count < slots * IDLE_PERCENT // 100 and count < slots // 2 * FILL_PERCENT // 100:
        slots //= 2
    return slots


def hash_map_bytes(count: int, peak: int = 0) -> int:
    """Returns the bytes of the map before PIP-393 with `count` entries, after removals from `peak` entries."""
    return SLOT_BYTES * hash_map_slots(count, peak)


def peak_before_idle(count: int) -> int:
    """Returns the largest peak from which removals down to `count` entries do not shrink the map."""
    slots = hash_map_slots(count)
    while count >= 2 * slots * IDLE_PERCENT // 100:
        slots *= 2
    return slots * FILL_PERCENT // 100


# ---- structures ---------------------------------------------------------------------------------------


def packed(row: Row) -> Any:
    """Returns the compressed buckets of the implementation."""
    buckets = Buckets()
    for time, ledger, entry in nacks(row):
        buckets.add(time, ledger, entry)
    return buckets


def bitmaps(row: Row) -> dict[int, dict[int, Any]]:
    """Returns the structure of PIP-393: bucket, ledger, bitmap."""
    buckets: dict[int, dict[int, Any]] = {}
    for time, ledger, entry in nacks(row):
        bucket = buckets.setdefault(time, {})
        if ledger not in bucket:
            bucket[ledger] = BitMap()
        bucket[ledger].add(entry)
    return buckets


def optimized(row: Row) -> dict[int, dict[int, Any]]:
    """Returns the structure of PIP-393 after `runOptimize`, which no client calls."""
    buckets = bitmaps(row)
    for bucket in buckets.values():
        for bitmap in bucket.values():
            bitmap.run_optimize()
            bitmap.shrink_to_fit()
    return buckets


def sets(row: Row) -> dict[int, dict[int, set[int]]]:
    """Returns the structure of PIP-393 with sets for bitmaps."""
    buckets: dict[int, dict[int, set[int]]] = {}
    for time, ledger, entry in nacks(row):
        buckets.setdefault(time, {}).setdefault(ledger, set()).add(entry)
    return buckets


#: The fields of `mallinfo2`.
ACCOUNT = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)

STRUCTURES: dict[str, Callable[[Row], Any]] = {
    "packed": packed,
    "bitmaps": bitmaps,
    "optimized": optimized,
    "sets": sets,
}


def bitmaps_of(structure: Any) -> list[Any]:
    """Returns all bitmaps of a structure of nested dictionaries; none for a structure without bitmaps."""
    if not isinstance(structure, dict):
        return []
    return [b for bucket in structure.values() for b in bucket.values() if isinstance(b, BitMap)]


def serialized(structure: Any) -> int:
    """Returns the bytes of a serialized structure: its pages, or its bitmaps."""
    if isinstance(structure, Buckets):
        return structure.seal()
    return sum(len(bitmap.serialize()) for bitmap in bitmaps_of(structure))


def in_containers(structure: Any) -> int:
    """Returns the bytes of all containers of a structure's bitmaps, as their statistics report them."""
    kinds = ("array", "bitset", "run")
    statistics = [bitmap.get_statistics() for bitmap in bitmaps_of(structure)]
    return sum(each[f"n_bytes_{kind}_containers"] for each in statistics for kind in kinds)


# ---- measuring ----------------------------------------------------------------------------------------


def measure(structure: str, name: str) -> None:
    """Fills a structure and prints its size as JSON. Runs in a process of its own."""

    class Info(ctypes.Structure):
        """Statistics of the C library's allocator, in bytes."""

        _fields_ = [(field, ctypes.c_size_t) for field in ACCOUNT]

    account = ctypes.CDLL(None).mallinfo2
    account.restype = Info
    [row] = [row for row in ROWS if row.name == name]
    STRUCTURES[structure](row._replace(nacks=2_000))  # makes the allocations that happen only once
    gc.collect()
    before, resident = account(), resident_bytes()
    filled = STRUCTURES[structure](row)
    gc.collect()
    after = account()
    found = {
        "allocated": after.uordblks + after.hblkhd - before.uordblks - before.hblkhd,
        "resident": max(resident_bytes() - resident, os.sysconf("SC_PAGE_SIZE")),
    }
    print(json.dumps({**found, "serialized": serialized(filled), "containers": in_containers(filled)}))


def resident_bytes() -> int:
    """Returns the resident set size of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@functools.cache
def bytes_per_entry(structure: str, row: Row) -> dict[str, float]:
    """Returns the bytes per entry of a structure, by the keys that `measure` prints.

    Raises BadValue if this machine cannot measure them.
    """
    root = str(Path(fuzz.benchmarks.__path__[0]).parents[1])
    paths = os.pathsep.join(each for each in (root, os.environ.get("PYTHONPATH")) if each)
    code = f"from fuzz.benchmarks.negative_acks_space import measure; measure({structure!r}, {row.name!r})"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths, "PYTHONMALLOC": "malloc"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BadValue(f"memory is measured with the GNU C library 2.33 or later: {done.stderr.strip()[-200:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return {name: count / row.nacks for name, count in found.items()}


def against(row: Row, baseline: Callable[[Row], float], kind: str = "allocated") -> Callable[[], Measured]:
    """Returns a comparison of compressed buckets with a baseline, in bytes per entry; `kind` is a key of `measure`."""

    def run() -> Measured:
        ours, other = bytes_per_entry("packed", row)[kind], baseline(row)
        return Measured(ours, other, other / ours)

    return run


def prediction(row: Row, predict: Callable[[Row], float], kind: str) -> Callable[[], Measured]:
    """Returns a comparison of the measured structure of PIP-393 with a prediction. An exact prediction has ratio 1."""

    def run() -> Measured:
        here, predicted = bytes_per_entry("bitmaps", row)[kind], predict(row)
        return Measured(here, predicted, predicted / here)

    return run


def of_structure(structure: str, kind: str) -> Callable[[Row], float]:
    """Returns a baseline: the measured bytes per entry of a structure."""
    return lambda row: bytes_per_entry(structure, row)[kind]


def of_hash_map(row: Row) -> float:
    """Returns the bytes per entry of the map before PIP-393 while entries are only added."""
    return hash_map_bytes(row.nacks) / row.nacks


def of_idle_hash_map(row: Row) -> float:
    """Returns the bytes per entry of the map before PIP-393 after removals that leave the largest possible map."""
    return hash_map_bytes(row.nacks, peak_before_idle(row.nacks)) / row.nacks


def of_row(row: Row) -> list[Benchmark]:
    """Returns all benchmarks of a row."""
    group, unit = "negative_acks_space", "bytes per entry"
    found = []
    if row.measured is not None:
        measured, about = row.measured, "ours in memory, against the proposal's measurement"
        found.append(Benchmark(group, row.name, unit, about, against(row, lambda _: measured)))
    predictions: list[tuple[str, str, Callable[[Row], float], str]] = [
        ("predicted", "the proposal's structure in memory, against its prediction", by_proposal, "allocated"),
        ("corrected", "the containers of the proposal's structure, against our formula", corrected, "containers"),
    ]
    if row.per_bucket > MAX_ARRAY_VALUES:
        predictions.append(("ceiling", "the same, against the proposal's formula", with_ceiling, "containers"))
    found += [
        Benchmark(group, f"{row.name}.{part}", unit, about, prediction(row, predict, kind))
        for part, about, predict, kind in predictions
    ]
    with_runs = "the proposal's structure with run containers"
    parts: list[tuple[str, str, Callable[[Row], float], str]] = [
        ("bitmaps", "in memory, against the proposal's structure", of_structure("bitmaps", "allocated"), "allocated"),
        ("optimized", f"in memory, against {with_runs}", of_structure("optimized", "allocated"), "allocated"),
        (
            "serialized_optimized",
            f"serialized, against {with_runs}",
            of_structure("optimized", "serialized"),
            "serialized",
        ),
        (
            "serialized",
            "serialized, against the proposal's structure",
            of_structure("bitmaps", "serialized"),
            "serialized",
        ),
        ("resident", "resident, against the proposal's structure", of_structure("bitmaps", "resident"), "resident"),
        ("sets", "in memory, against dictionaries of sets", of_structure("sets", "allocated"), "allocated"),
        ("hash_map", "in memory, against the map before PIP-393, simulated", of_hash_map, "allocated"),
        ("hash_map_idle", "in memory, against that map after removals", of_idle_hash_map, "allocated"),
        ("hash_map_at_best", "in memory, against 32 / 0.66 by formula", lambda _: 32 / 0.66, "allocated"),
    ]
    found += [
        Benchmark(group, f"{row.name}.{part}", unit, f"ours {about}", against(row, baseline, kind))
        for part, about, baseline, kind in parts
    ]
    return found


benchmarks = [each for row in ROWS for each in of_row(row)]

#: The rows `few`: the number of entries of a bucket, and the benchmark's name.
_FEW = [(2.0**row.bits, f"negative_acks_space.{row.name}") for row in ROWS if row.name.startswith("few")]
plots = (
    Plot(
        "Entries per bucket, and bytes per entry",
        "A bitmap per bucket and ledger takes more memory than a hash map if buckets have few entries: the break-even "
        "is where the lines cross. Compressed buckets store gaps of a byte or less instead.",
        "entries per bucket",
        "bytes per entry",
        (
            Line("ours: compressed buckets", tuple(Point(x, f"{name}.bitmaps") for x, name in _FEW)),
            Line("bucket, ledger, bitmap", tuple(Point(x, f"{name}.bitmaps", "baseline") for x, name in _FEW)),
            Line("bucket, ledger, set", tuple(Point(x, f"{name}.sets", "baseline") for x, name in _FEW)),
            Line("hash map before PIP-393", tuple(Point(x, f"{name}.hash_map", "baseline") for x, name in _FEW)),
        ),
    ),
)
