"""What a rank, a move and the slowest position cost among many cursors.

Readers that tail and catch up: cursors stand close together, many at one position, and each move is a short one, now
and then a long one or one backward. The baselines are a sorted list from a library that is known to be fast, and the
definition, which looks at every cursor.
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
#: Cursors at one position, on average, when all begin.
_TIED = 10
#: Calls of one measurement, and measurements of each in turns.
_CALLS, _TURNS = 20_000, 5
#: The definition is so slow that it is called less often.
_CALLS_OF_DEFINITION = 40


class Cursors(Protocol):
    """What is measured."""

    def update_cursor(self, cursor: int, position: Position, /) -> Any:
        """A cursor moves."""

    def number_at_same_position_or_before(self, cursor: int, /) -> Any:
        """Its rank."""

    def slowest_position(self, /) -> Any:
        """The smallest position."""


class SortedCursors:
    """The same with a sorted list of positions, and the position of each name."""

    def __init__(self, positions: list[Position]) -> None:
        self.positions = dict(enumerate(positions))
        self.line: Any = importlib.import_module("sortedcontainers").SortedList(positions)

    def update_cursor(self, cursor: int, position: Position, /) -> None:
        """The old position goes, the new one comes."""
        self.line.remove(self.positions[cursor])
        self.positions[cursor] = position
        self.line.add(position)

    def number_at_same_position_or_before(self, cursor: int, /) -> int:
        """By bisection."""
        rank: int = self.line.bisect_right(self.positions[cursor])
        return rank

    def slowest_position(self, /) -> Position:
        """The first of the line."""
        first: Position = self.line[0]
        return first


class Definition:
    """The same by looking at every cursor."""

    def __init__(self, positions: list[Position]) -> None:
        self.positions = dict(enumerate(positions))

    def update_cursor(self, cursor: int, position: Position, /) -> None:
        """Nothing but the position is kept."""
        self.positions[cursor] = position

    def number_at_same_position_or_before(self, cursor: int, /) -> int:
        """Counts."""
        own = self.positions[cursor]
        return sum([1 for position in self.positions.values() if position <= own])

    def slowest_position(self, /) -> Position:
        """The minimum."""
        return min(self.positions.values())


def ours(positions: list[Position]) -> ActiveCursors:
    """Our cursors at these positions."""
    body = ActiveCursors(Config(cursors=len(positions)))
    for cursor, position in enumerate(positions):
        body.add_cursor(cursor, position, True)
    return body


class Load(NamedTuple):
    """Where the cursors begin, and the moves that they make."""

    positions: list[Position]
    moves: list[tuple[int, Position]]


def load(cursors: int, calls: int) -> Load:
    """The same for everybody: cursors of one number, and so many moves."""
    chance = random.Random(cursors)  # noqa: S311
    entries = [chance.randrange(cursors // _TIED) for _ in range(cursors)]
    positions, moves = [Position(1, entry) for entry in entries], []
    for turn in range(calls):
        cursor = chance.randrange(cursors)
        by = chance.randrange(-cursors // 20, cursors // 10) if turn % 10 == 0 else chance.randrange(3)
        entries[cursor] = max(0, entries[cursor] + by)
        moves.append((cursor, Position(1, entries[cursor])))
    return Load(positions, moves)


def moving(body: Cursors, work: Load) -> list[Any]:
    """Moves only."""
    for cursor, position in work.moves:
        body.update_cursor(cursor, position)
    return []


def ranking(body: Cursors, work: Load) -> list[Any]:
    """Ranks only."""
    return [body.number_at_same_position_or_before(cursor) for cursor, _ in work.moves]


def asking_slowest(body: Cursors, work: Load) -> list[Any]:
    """The slowest position after each move."""
    slowest = []
    for cursor, position in work.moves:
        body.update_cursor(cursor, position)
        slowest.append(body.slowest_position())
    return slowest


def asking_all(body: Cursors, work: Load) -> list[Any]:
    """Rank and slowest position after each move."""
    answers = []
    for cursor, position in work.moves:
        body.update_cursor(cursor, position)
        answers.append((body.number_at_same_position_or_before(cursor), body.slowest_position()))
    return answers


Task = Callable[[Cursors, Load], list[Any]]


def seconds(body: Cursors, work: Load, task: Task) -> tuple[float, list[Any]]:
    """How long one call takes, and what was answered."""
    started = time.perf_counter()
    answers = task(body, work)
    return (time.perf_counter() - started) / len(work.moves), answers


def against(baseline: Callable[[list[Position]], Cursors], task: Task, calls: int = _CALLS) -> Measured:
    """Calls a second among many cursors, ours and a baseline's; both must answer the same."""
    work, pairs = load(MANY, calls), []
    for _ in range(_TURNS):
        mine, answers = seconds(ours(work.positions), work, task)
        theirs, expected = seconds(baseline(work.positions), work, task)
        assert answers == expected
        pairs.append((1 / mine, 1 / theirs))
    value, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Measured(value, other, value / other)


def growth() -> Measured:
    """How many times as much a move and its questions cost among many as among few, ours and the sorted list's."""
    few, many = load(FEW, _CALLS), load(MANY, _CALLS)
    grown = []
    for make in (ours, SortedCursors):
        pairs = [
            (seconds(make(many.positions), many, asking_all)[0], seconds(make(few.positions), few, asking_all)[0])
            for _ in range(_TURNS)
        ]
        grown.append(statistics.median(p[0] for p in pairs) / statistics.median(p[1] for p in pairs))
    return Measured(grown[0], grown[1], grown[1] / grown[0])


benchmarks = [
    Benchmark(
        "active_cursors.rank",
        "ranks/s",
        f"the rank of one of {MANY:,} cursors, against a sorted list",
        lambda: against(SortedCursors, ranking),
    ),
    Benchmark(
        "active_cursors.update",
        "moves/s",
        f"a move of one of {MANY:,} cursors, against a sorted list",
        lambda: against(SortedCursors, moving),
    ),
    Benchmark(
        "active_cursors.slowest",
        "moves/s",
        f"a move and the slowest of {MANY:,} cursors, against a sorted list",
        lambda: against(SortedCursors, asking_slowest),
    ),
    Benchmark(
        "active_cursors.definition",
        "moves/s",
        f"a move, its rank and the slowest of {MANY:,} cursors, against looking at each",
        lambda: against(Definition, asking_all, _CALLS_OF_DEFINITION),
    ),
    Benchmark(
        "active_cursors.growth",
        f"times the cost among {FEW:,}",
        f"a move, its rank and the slowest among {MANY:,} cursors, against a sorted list",
        growth,
    ),
]
