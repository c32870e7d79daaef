"""Nacks and redeliveries per second: compressed buckets against the structure of PIP-393."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pyroaring import BitMap

from fuzz.benchmarks.negative_acks_space import ROWS, Row, nacks
from fuzz.benchmarks.runner import Benchmark, Measured, in_turns
from impl.negative_acks.buckets import Buckets

COUNT = 200_000
_TURNS = 3


class Nested:
    """The structure of PIP-393: bucket -> ledger -> bitmap of entries."""

    def __init__(self) -> None:
        self.buckets: dict[int, dict[int, Any]] = {}

    def add(self, time: int, ledger: int, entry: int) -> None:
        """Adds an entry to the bucket with this time."""
        bucket = self.buckets.get(time)
        if bucket is None:
            bucket = self.buckets[time] = {}
        bitmap = bucket.get(ledger)
        if bitmap is None:
            bitmap = bucket[ledger] = BitMap()
        bitmap.add(entry)

    def take(self, limit: int) -> list[tuple[int, list[tuple[int, list[int]]]]]:
        """Removes and returns all buckets up to the time `limit`, ascending: time, and ledgers with their entries."""
        due = sorted([time for time in self.buckets if time <= limit])
        return [(time, [(ledger, list(b)) for ledger, b in sorted(self.buckets.pop(time).items())]) for time in due]


def seconds(make: Callable[[], Any], given: list[tuple[int, int, int]], *, redeliver: bool) -> float:
    """Returns the seconds to add the entries `given` or, with `redeliver`, to remove them bucket by bucket."""
    structure = make()
    started = time.perf_counter()
    for bucket, ledger, entry in given:
        structure.add(bucket, ledger, entry)
    added = time.perf_counter()
    if not redeliver:
        return added - started
    count = sum(
        len(entries)
        for bucket in dict.fromkeys(bucket for bucket, _, _ in given)
        for _, found in structure.take(bucket)
        for _, entries in found
    )
    assert count == len(given), count
    return time.perf_counter() - added


def speed(row: Row, *, redeliver: bool) -> Callable[[], Measured]:
    """Returns the measurement of a row: entries per second, against the structure of PIP-393."""

    def run() -> Measured:
        given = list(nacks(row._replace(nacks=COUNT)))
        ours, nested = in_turns(
            lambda: seconds(Buckets, given, redeliver=redeliver),
            lambda: seconds(Nested, given, redeliver=redeliver),
            _TURNS,
        )
        return Measured(COUNT / ours, COUNT / nested, nested / ours)

    return run


CHOSEN = [row for row in ROWS if row.name in ("1_per_ms", "50_per_ms", "random_1_percent_of_50_per_ms")]

benchmarks = [
    Benchmark(
        "negative_acks_speed",
        f"{row.name}.{'redeliveries' if redeliver else 'nacks'}",
        "entries/s",
        "compressed buckets against bucket, ledger, bitmap",
        speed(row, redeliver=redeliver),
    )
    for row in CHOSEN
    for redeliver in (False, True)
]
