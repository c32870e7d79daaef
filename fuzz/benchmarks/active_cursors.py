"""Benchmarks of three operations on many cursors.

The operations move a cursor, count the cursors at the same position or before, and query the smallest position.
Workload: tailing and catch-up readers. Cursors are close together and several share a position. Nine moves in ten are
short; the tenth may be long or backward. Baselines: `sortedcontainers.SortedList`, and a scan of all cursors.
"""

from __future__ import annotations

import importlib
import random
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from fuzz.benchmarks.runner import Benchmark, Measured
from impl.active_cursors import ActiveCursors
from model.active_cursors.machine import Config
from model.positions import Position

FEW, MANY = 1_000, 100_000
#: Average number of cursors at one position at the start.
_CURSORS_PER_POSITION = 10
#: Calls per measurement, and number of measurements.
_CALLS, _TURNS = 20_000, 5
#: Calls per measurement if `Definition` is the baseline, which is slow.
_CALLS_OF_DEFINITION = 40


class Cursors(Protocol):
    """The operations that are measured."""

    def update_cursor(self, cursor: int, position: Position, /) -> Any:
        """Moves a cursor."""

    def number_at_same_position_or_before(self, cursor: int, /) -> Any:
        """Returns the number of cursors at the cursor's position or before."""

    def slowest_position(self, /) -> Any:
        """Returns the smallest position."""


class SortedCursors:
    """Baseline: a sorted list of positions, and the position of each cursor."""

    def __init__(self, positions: list[Position]) -> None:
        self.positions = dict(enumerate(positions))
        self.sorted: Any = importlib.import_module("sortedcontainers").SortedList(positions)

    def update_cursor(self, cursor: int, position: Position, /) -> None:
        """Removes the old position and adds the new one."""
        self.sorted.remove(self.positions[cursor])
        self.positions[cursor] = position
        self.sorted.add(position)

    def number_at_same_position_or_before(self, cursor: int, /) -> int:
        """Counts by bisection."""
        count: int = self.sorted.bisect_right(self.positions[cursor])
        return count

    def slowest_position(self, /) -> Position:
        """Returns the first position."""
        first: Position = self.sorted[0]
        return first


class Definition:
    """Baseline: a scan of all cursors."""

    def __init__(self, positions: list[Position]) -> None:
        self.positions = dict(enumerate(positions))

    def update_cursor(self, cursor: int, position: Position, /) -> None:
        """Stores the position."""
        self.positions[cursor] = position

    def number_at_same_position_or_before(self, cursor: int, /) -> int:
        """Counts by a scan."""
        own = self.positions[cursor]
        return sum([1 for position in self.positions.values() if position <= own])

    def slowest_position(self, /) -> Position:
        """Returns the minimum by a scan."""
        return min(self.positions.values())


def implementation(positions: list[Position]) -> ActiveCursors:
    """Returns the implementation with cursors at these positions."""
    cursors = ActiveCursors(Config(cursors=len(positions)))
    for cursor, position in enumerate(positions):
        cursors.add_cursor(cursor, position, True)
    return cursors


class Load(NamedTuple):
    """Initial positions and moves."""

    positions: list[Position]
    moves: list[tuple[int, Position]]


def load(cursors: int, calls: int) -> Load:
    """Returns a workload that depends only on the numbers of cursors and moves."""
    rng = random.Random(cursors)  # noqa: S311
    entries = [rng.randrange(cursors // _CURSORS_PER_POSITION) for _ in range(cursors)]
    positions, moves = [Position(1, entry) for entry in entries], []
    for number in range(calls):
        cursor = rng.randrange(cursors)
        by = rng.randrange(-cursors // 20, cursors // 10) if number % 10 == 0 else rng.randrange(3)
        entries[cursor] = max(0, entries[cursor] + by)
        moves.append((cursor, Position(1, entries[cursor])))
    return Load(positions, moves)


def move(cursors: Cursors, workload: Load) -> list[Any]:
    """Executes the moves, which have no answers."""
    for cursor, position in workload.moves:
        cursors.update_cursor(cursor, position)
    return []


def count(cursors: Cursors, workload: Load) -> list[Any]:
    """Queries the count of the cursor of each move, without moving it."""
    return [cursors.number_at_same_position_or_before(cursor) for cursor, _ in workload.moves]


def move_and_query_slowest(cursors: Cursors, workload: Load) -> list[Any]:
    """Queries the slowest position after each move."""
    slowest = []
    for cursor, position in workload.moves:
        cursors.update_cursor(cursor, position)
        slowest.append(cursors.slowest_position())
    return slowest


def move_and_query_all(cursors: Cursors, workload: Load) -> list[Any]:
    """Queries count and slowest position after each move."""
    answers = []
    for cursor, position in workload.moves:
        cursors.update_cursor(cursor, position)
        answers.append((cursors.number_at_same_position_or_before(cursor), cursors.slowest_position()))
    return answers


Task = Callable[[Cursors, Load], list[Any]]


def seconds(cursors: Cursors, workload: Load, task: Task) -> tuple[float, list[Any]]:
    """Returns the seconds per move, and the answers."""
    started = time.perf_counter()
    answers = task(cursors, workload)
    return (time.perf_counter() - started) / len(workload.moves), answers


def against(baseline: Callable[[list[Position]], Cursors], task: Task, calls: int = _CALLS) -> Measured:
    """Measures calls per second of the implementation and a baseline, whose answers must be equal."""
    workload, pairs = load(MANY, calls), []
    for _ in range(_TURNS):
        own_seconds, answers = seconds(implementation(workload.positions), workload, task)
        other_seconds, expected = seconds(baseline(workload.positions), workload, task)
        assert answers == expected
        pairs.append((1 / own_seconds, 1 / other_seconds))
    value, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Measured(value, other, value / other)


def growth() -> Measured:
    """Measures how many times a move and its queries cost more among MANY cursors than among FEW."""
    few, many = load(FEW, _CALLS), load(MANY, _CALLS)
    grown = []
    for make in (implementation, SortedCursors):
        pairs = [
            (
                seconds(make(many.positions), many, move_and_query_all)[0],
                seconds(make(few.positions), few, move_and_query_all)[0],
            )
            for _ in range(_TURNS)
        ]
        grown.append(statistics.median(p[0] for p in pairs) / statistics.median(p[1] for p in pairs))
    return Measured(grown[0], grown[1], grown[1] / grown[0])


benchmarks = [
    Benchmark(
        "active_cursors",
        "rank",
        "queries/s",
        f"the count of one of {MANY:,} cursors; baseline: sorted list",
        lambda: against(SortedCursors, count),
    ),
    Benchmark(
        "active_cursors",
        "update",
        "moves/s",
        f"a move of one of {MANY:,} cursors; baseline: sorted list",
        lambda: against(SortedCursors, move),
    ),
    Benchmark(
        "active_cursors",
        "slowest",
        "moves/s",
        f"a move and the slowest of {MANY:,} cursors; baseline: sorted list",
        lambda: against(SortedCursors, move_and_query_slowest),
    ),
    Benchmark(
        "active_cursors",
        "definition",
        "moves/s",
        f"a move, its count and the slowest of {MANY:,} cursors; baseline: scan of all cursors",
        lambda: against(Definition, move_and_query_all, _CALLS_OF_DEFINITION),
    ),
    Benchmark(
        "active_cursors",
        "growth",
        f"times the cost among {FEW:,}",
        f"a move, its count and the slowest among {MANY:,} cursors; baseline: sorted list",
        growth,
    ),
]
