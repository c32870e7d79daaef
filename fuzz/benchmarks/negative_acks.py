"""Nacks and redeliveries a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pyroaring import BitMap

from fuzz.benchmarks.negative_acks_space import ROWS, Row, nacks
from fuzz.benchmarks.runner import Benchmark, Measured, in_turns
from impl.negative_acks.buckets import Slots

COUNT = 200_000
_TURNS = 3


class Nested:
    """The proposal's structure: slot, ledger, bitmap; a run looks at the slots in order."""

    def __init__(self) -> None:
        self.slots: dict[int, dict[int, Any]] = {}

    def add(self, time: int, ledger: int, entry: int) -> None:
        """An entry comes to a slot."""
        slot = self.slots.get(time)
        if slot is None:
            slot = self.slots[time] = {}
        bitmap = slot.get(ledger)
        if bitmap is None:
            bitmap = slot[ledger] = BitMap()
        bitmap.add(entry)

    def take(self, limit: int) -> list[tuple[int, list[tuple[int, list[int]]]]]:
        """Takes out all slots up to a time."""
        due = sorted([time for time in self.slots if time <= limit])
        return [(time, [(ledger, list(b)) for ledger, b in sorted(self.slots.pop(time).items())]) for time in due]


def seconds(make: Callable[[], Any], given: list[tuple[int, int, int]], *, taking: bool) -> float:
    """Seconds to add all, or to take all out again, a slot at a time."""
    body = make()
    started = time.perf_counter()
    for slot, ledger, entry in given:
        body.add(slot, ledger, entry)
    added = time.perf_counter()
    if not taking:
        return added - started
    count = sum(
        len(entries)
        for slot in dict.fromkeys(slot for slot, _, _ in given)
        for _, found in body.take(slot)
        for _, entries in found
    )
    assert count == len(given), count
    return time.perf_counter() - added


def speed(row: Row, *, taking: bool) -> Callable[[], Measured]:
    """Entries a second, ours against the proposal's structure."""

    def run() -> Measured:
        given = list(nacks(row._replace(nacks=COUNT)))
        ours, nested = in_turns(
            lambda: seconds(Slots, given, taking=taking), lambda: seconds(Nested, given, taking=taking), _TURNS
        )
        return Measured(COUNT / ours, COUNT / nested, nested / ours)

    return run


CHOSEN = [row for row in ROWS if row.name in ("1_per_ms", "50_per_ms", "random_1_percent_of_50_per_ms")]

benchmarks = [
    Benchmark(
        f"negative_acks_speed.{row.name}.{'redeliveries' if taking else 'nacks'}",
        "entries/s",
        "ours against slot, ledger, bitmap",
        speed(row, taking=taking),
    )
    for row in CHOSEN
    for taking in (False, True)
]
