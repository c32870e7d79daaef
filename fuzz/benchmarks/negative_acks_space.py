"""How many bytes an entry takes that waits for its redelivery: the table of PIP-393's space analysis, measured anew.

Each structure is filled in a process of its own, in which every allocation of Python's is one of the C library's, so
that the library knows what it has handed out: objects, tables, bitmaps. Rows are fillings:

    in order    1,000,000 nacks of all messages of a stream, as the proposal's tests have them
    sparse      1,000,000 nacks of some messages of a stream
    few         100,000 nacks with so few entries in a slot that bitmaps lose

The structure that is compared with is the proposal's, slot, ledger, bitmap, of the same bitmaps; the hash map from
before it takes 32 bytes a place, in a table whose size is a power of two that is at most 66 % full.
"""

from __future__ import annotations

import functools
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pyroaring import BitMap

import fuzz.benchmarks
from fuzz.benchmarks.runner import Benchmark, Line, Measured, Plot, Point
from impl.negative_acks.buckets import Slots
from model.machine import BadValue
from model.negative_acks.delay import trimmed

MIB = 2**20
#: What the clock shows at the first nack; where it stands in a slot decides how many slots there are.
START = 1_731_650_000_000
FIRST_LEDGER = 10_000


class Row(NamedTuple):
    """A filling, and what the proposal says of it in bytes an entry."""

    name: str
    rate: int  # messages a millisecond
    bits: int
    entries: int  # of a ledger
    nacks: int = 1_000_000
    every: float = 1  # one in so many messages is nacked; less than one: at random, with this chance
    predicted: float | None = None
    measured: float | None = None


ROWS = (
    Row("1_per_ms", 1, 10, 1_000, predicted=4.0, measured=3.35 * MIB / 1e6),
    Row("50_per_ms", 50, 10, 50_000, predicted=0.163, measured=0.33 * MIB / 1e6),
    Row("500_per_ms", 500, 10, 50_000, predicted=0.163, measured=0.18 * MIB / 1e6),
    Row("1_per_ms_large_ledgers", 1, 10, 50_000),
    Row("every_2nd_of_50_per_ms", 50, 10, 50_000, every=2),
    Row("every_10th_of_500_per_ms", 500, 10, 50_000, every=10),
    Row("random_1_percent_of_50_per_ms", 50, 10, 50_000, every=0.01),
    Row("random_1_percent_of_500_per_ms", 500, 10, 50_000, every=0.01),
    Row("few.1_per_slot", 1, 0, 50_000, 100_000),
    Row("few.4_per_slot", 1, 2, 50_000, 100_000),
    Row("few.16_per_slot", 1, 4, 50_000, 100_000),
    Row("few.256_per_slot", 1, 8, 50_000, 100_000),
)


def nacks(row: Row) -> Iterator[tuple[int, int, int]]:
    """Slot, ledger and entry of each nack of a row, in order."""
    chance, place = random.Random(393), 0  # noqa: S311
    for _ in range(row.nacks):
        yield trimmed(START + place // row.rate, row.bits, 1), FIRST_LEDGER + place // row.entries, place % row.entries
        if row.every >= 1:
            place += int(row.every)
        else:
            place += 1 + int(math.log(1 - chance.random()) / math.log(1 - row.every))


# ---- structures ---------------------------------------------------------------------------------------


def packed(row: Row) -> Any:
    """Ours."""
    slots = Slots()
    for time, ledger, entry in nacks(row):
        slots.add(time, ledger, entry)
    return slots


def bitmaps(row: Row) -> dict[int, dict[int, Any]]:
    """The proposal's: slot, ledger, bitmap."""
    slots: dict[int, dict[int, Any]] = {}
    for time, ledger, entry in nacks(row):
        slot = slots.setdefault(time, {})
        if ledger not in slot:
            slot[ledger] = BitMap()
        slot[ledger].add(entry)
    return slots


def optimized(row: Row) -> dict[int, dict[int, Any]]:
    """The proposal's, with run containers where they pay, as no client has it."""
    slots = bitmaps(row)
    for slot in slots.values():
        for bitmap in slot.values():
            bitmap.run_optimize()
            bitmap.shrink_to_fit()
    return slots


def sets(row: Row) -> dict[int, dict[int, set[int]]]:
    """The same of plain sets."""
    slots: dict[int, dict[int, set[int]]] = {}
    for time, ledger, entry in nacks(row):
        slots.setdefault(time, {}).setdefault(ledger, set()).add(entry)
    return slots


#: The fields of the C library's account of its memory.
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


def serialized(structure: Any) -> int:
    """How many bytes a structure is when it is written: pages as they are, or all bitmaps with their run containers."""
    if isinstance(structure, Slots):
        return structure.seal()
    if not isinstance(structure, dict) or not all(
        isinstance(b, BitMap) for s in structure.values() for b in s.values()
    ):
        return 0
    return sum(len(bitmap.serialize()) for slot in structure.values() for bitmap in slot.values())


def hash_map_bytes(count: int) -> int:
    """What the map from before PIP-393 takes for so many entries that only came."""
    places = 512
    while count > places * 66 // 100:
        places *= 2
    return 32 * places


# ---- measuring ----------------------------------------------------------------------------------------


def measure(structure: str, name: str) -> None:
    """In a process of its own: fills a structure and prints what it takes, as JSON."""
    import ctypes
    import gc

    class Info(ctypes.Structure):
        """The C library's account of its memory, in bytes."""

        _fields_ = [(field, ctypes.c_size_t) for field in ACCOUNT]

    account = ctypes.CDLL(None).mallinfo2
    account.restype = Info
    [row] = [row for row in ROWS if row.name == name]
    STRUCTURES[structure](row._replace(nacks=2_000))  # whatever is made once
    gc.collect()
    before, resident = account(), resident_bytes()
    filled = STRUCTURES[structure](row)
    gc.collect()
    after = account()
    found = {
        "allocated": after.uordblks + after.hblkhd - before.uordblks - before.hblkhd,
        "resident": max(resident_bytes() - resident, os.sysconf("SC_PAGE_SIZE")),
    }
    print(json.dumps({**found, "serialized": serialized(filled)}))


def resident_bytes() -> int:
    """The pages of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@functools.cache
def taken(structure: str, row: Row) -> dict[str, float]:
    """Bytes an entry that a structure takes. Raises BadValue where that cannot be measured."""
    house = str(Path(fuzz.benchmarks.__path__[0]).parents[1])
    paths = os.pathsep.join(each for each in (house, os.environ.get("PYTHONPATH")) if each)
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
    """Ours against something else, in bytes an entry."""

    def run() -> Measured:
        ours, other = taken("packed", row)[kind], baseline(row)
        return Measured(ours, other, other / ours)

    return run


def prediction(row: Row) -> Callable[[], Measured]:
    """What the proposal's structure takes here, against what the proposal predicts."""

    def run() -> Measured:
        here, predicted = taken("bitmaps", row)["allocated"], row.predicted or math.nan
        return Measured(here, predicted, predicted / here)

    return run


def of_structure(structure: str, kind: str) -> Callable[[Row], float]:
    """What another structure takes."""
    return lambda row: taken(structure, row)[kind]


def of_row(row: Row) -> list[Benchmark]:
    """All measurements of a row."""
    name, unit = f"negative_acks_space.{row.name}", "bytes an entry"
    found = []
    if row.measured is not None:
        proposal = row.measured
        found.append(
            Benchmark(
                name, unit, "ours in memory, against the proposal's measurement", against(row, lambda _: proposal)
            )
        )
        found.append(
            Benchmark(
                f"{name}.predicted", unit, "the proposal's structure here, against its prediction", prediction(row)
            )
        )
    hash_map: Callable[[Row], float] = lambda row: hash_map_bytes(row.nacks) / row.nacks  # noqa: E731
    parts: list[tuple[str, str, Callable[[Row], float], str]] = [
        ("bitmaps", "in memory, against the proposal's structure", of_structure("bitmaps", "allocated"), "allocated"),
        ("optimized", "in memory, against it with run containers", of_structure("optimized", "allocated"), "allocated"),
        ("serialized_optimized", "as bytes, against these", of_structure("optimized", "serialized"), "serialized"),
        ("serialized", "as bytes, against its bitmaps", of_structure("bitmaps", "serialized"), "serialized"),
        ("resident", "resident, against the proposal's structure", of_structure("bitmaps", "resident"), "resident"),
        ("sets", "in memory, against dictionaries of sets", of_structure("sets", "allocated"), "allocated"),
        ("hash_map", "in memory, against the map before PIP-393, simulated", hash_map, "allocated"),
        ("hash_map_at_best", "in memory, against 32 / 0.66 by formula", lambda _: 32 / 0.66, "allocated"),
    ]
    found += [
        Benchmark(f"{name}.{part}", unit, f"ours {about}", against(row, baseline, kind))
        for part, about, baseline, kind in parts
    ]
    return found


benchmarks = [each for row in ROWS for each in of_row(row)]

#: Where bitmaps lose: the fewer entries a slot has, the more the containers around them weigh. Ours has none there.
_FEW = [(2.0**row.bits, f"negative_acks_space.{row.name}") for row in ROWS if row.name.startswith("few")]
plots = (
    Plot(
        "Entries in a slot, and bytes an entry",
        "A bitmap for each slot and ledger loses against a hash map where slots have few entries: the break-even is "
        "where its line crosses the map's. Packed pages have no bitmap there, but gaps of a byte or less.",
        "entries in a slot",
        "bytes an entry",
        (
            Line("ours: packed pages", tuple(Point(x, f"{name}.bitmaps") for x, name in _FEW)),
            Line("slot, ledger, bitmap", tuple(Point(x, f"{name}.bitmaps", "baseline") for x, name in _FEW)),
            Line("slot, ledger, set", tuple(Point(x, f"{name}.sets", "baseline") for x, name in _FEW)),
            Line("hash map before PIP-393", tuple(Point(x, f"{name}.hash_map", "baseline") for x, name in _FEW)),
        ),
    ),
)
