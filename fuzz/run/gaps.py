"""Replay past gaps: which states can the model be in after operations that were not recorded?

A gap stands for at most N operations that were not recorded. After a gap the model may be in any state that at most
N calls lead to. A recording agrees if the later operations can be executed in one of these states with the recorded
outcomes and observations. It disagrees if there is no such state.

    agenda = the states at the first gap, each with no call taken in the gap
    while the agenda is not empty: take the state at the last gap reached, with the fewest calls taken in it
        execute the operations from it up to the next gap, and add the states there to the agenda
        if the operations reach the end of the recording: it agrees
        if the gap may have one more call: for each call, add the state after it to the agenda, unless it was there
            with as few calls

A state is dropped at the first operation that is not as recorded, so most states take one step. If the budget is used
up, the verdict is undecided.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

#: The maximum number of steps of the model in a search: some seconds.
BUDGET_STEPS = 100_000
#: The maximum number of possible values in a verdict.
_MOST_SHOWN = 8


class Result(StrEnum):
    """Whether a recording with gaps agrees with the model."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNDECIDED = "undecided"  # the budget is used up


class Verdict(NamedTuple):
    """`operation` is the furthest one that no state allowed, `field` what differed: result or observe."""

    result: Result
    operation: Any = None
    field: str = ""
    possible: tuple[Any, ...] = ()  # values that the field could have had
    states: int = 0  # how many were tried after the gaps
    steps: int = 0


#: A state -> the states after every call that may have been taken in a gap.
Moves = Callable[[Any], Iterable[Any]]
#: (operation, state) -> the allowed steps: the state after it, and the outcome.
Outcomes = Callable[[Any, Any], Iterable[tuple[Any, Any]]]
#: (operation, state after it, outcome) -> None if they are as recorded, or the field that differs and its value.
Judge = Callable[[Any, Any, Any], tuple[str, Any] | None]


class _OutOfBudget(Exception):
    """The budget is used up."""


class Search:
    """The search for a run of the model that fits a recording with gaps.

    `gap_of` returns the maximum number of calls in a gap, and None for an operation.
    """

    def __init__(
        self,
        items: Sequence[Any],
        moves: Moves,
        outcomes: Outcomes,
        judge: Judge,
        *,
        gap_of: Callable[[Any], int | None],
        budget: int = BUDGET_STEPS,
    ) -> None:
        self.items = items
        self.gaps = [gap_of(each) for each in items]
        self.moves = moves
        self.outcomes = outcomes
        self.judge = judge
        self.budget = budget
        self.steps = 0
        self.furthest = -1
        self.wrong: list[tuple[str, Any]] = []  # at the furthest operation

    def run(self, start: Any) -> Verdict:
        """Decides the recording. Cost: at most the budget in steps of the model."""
        tried: set[tuple[int, Any]] = set()  # after the gap at that index
        fewest: dict[tuple[int, Any], int] = {}  # in the gap at that index: the fewest calls that lead to the state
        agenda: list[tuple[int, int, int, Any]] = []
        order = itertools.count()  # so that the agenda never compares states

        def add(index: int, used: int, state: Any) -> None:
            if fewest.get((index, state), used + 1) > used:
                fewest[index, state] = used
                heapq.heappush(agenda, (-index, used, next(order), state))

        result = Result.DISAGREES
        try:
            for index, state in self._executed(0, start):
                if index == len(self.items):
                    return Verdict(Result.AGREES, steps=self.steps)
                add(index, 0, state)
            while agenda:
                negated, used, _, state = heapq.heappop(agenda)
                gap = -negated
                if fewest[gap, state] < used:
                    continue
                if (gap, state) not in tried:
                    tried.add((gap, state))
                    for index, after in self._executed(gap + 1, state):
                        if index == len(self.items):
                            return Verdict(Result.AGREES, states=len(tried), steps=self.steps)
                        add(index, 0, after)
                if used < (self.gaps[gap] or 0):
                    for after in self.moves(state):
                        self._count()
                        add(gap, used + 1, after)
        except _OutOfBudget:
            result = Result.UNDECIDED
        field = "observe" if any(name == "observe" for name, _ in self.wrong) else "result"
        values = tuple([value for name, value in self.wrong if name == field])
        return Verdict(result, self.items[max(0, self.furthest)], field, values, len(tried), self.steps)

    def _executed(self, index: int, state: Any) -> Iterable[tuple[int, Any]]:
        """The index of the next gap or the end, and each state there after the operations from `index` on."""
        states = {state: None}
        while index < len(self.items) and self.gaps[index] is None and states:
            following: dict[Any, None] = {}
            for each in states:
                self._count()
                for after, outcome in self.outcomes(self.items[index], each):
                    different = self.judge(self.items[index], after, outcome)
                    if different is None:
                        following[after] = None
                    elif index >= self.furthest:
                        self.wrong = [*(self.wrong if index == self.furthest else ()), different][:_MOST_SHOWN]
                        self.furthest = index
            states = following
            index += 1
        return [(index, each) for each in states]

    def _count(self) -> None:
        self.steps += 1
        if self.steps > self.budget:
            raise _OutOfBudget
