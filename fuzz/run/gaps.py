"""Replay of a recording with gaps: which states can the model be in after operations that were not recorded?

A gap has a number N, and stands for at most N operations that were not recorded. After a gap, the model may be in any
state to which at most N calls lead. A recording agrees if the later operations can be executed in one of these states
with the recorded outcomes and observations. It disagrees if there is no such state.

    agenda = the states at the first gap, each with 0 calls
    while the agenda is not empty: remove a state at the last gap reached, one with the fewest calls
        execute the operations from this state up to the next gap, and add the states there, each with 0 calls
        if the operations reach the end of the recording: the recording agrees
        if the gap may have one more call: for each call, add the state after the call, with the number of calls + 1,
            unless this state was added at this gap with this number of calls or a smaller one

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
#: The maximum number of differences that are kept for a verdict.
_MOST_SHOWN = 8


class Agreement(StrEnum):
    """Whether a recording with gaps agrees with the model."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNDECIDED = "undecided"  # the budget is used up


class GapVerdict(NamedTuple):
    """The result of a search.

    If the recording agrees, `operation`, `field` and `possible` are empty. Otherwise `operation` is the furthest
    operation at which a value differed from the recorded one, or the first item if no value differed. `field` is
    `observe` if a state that was dropped there had the recorded result, else `result`.
    """

    result: Agreement
    operation: Any = None
    field: str = ""
    possible: tuple[Any, ...] = ()  # some values that the model allows for the field
    states: int = 0  # number of states after a gap from which the later operations were tried
    steps: int = 0  # steps of the model


#: A state -> the states after each call that a gap may stand for.
Moves = Callable[[Any], Iterable[Any]]
#: (operation, state) -> the allowed steps, each as the state after it and the outcome.
Outcomes = Callable[[Any, Any], Iterable[tuple[Any, Any]]]
#: (operation, state after it, outcome) -> None if state and outcome are as recorded, else the field that differs
#: (result or observe) and its value.
Judge = Callable[[Any, Any, Any], tuple[str, Any] | None]


class _OutOfBudget(Exception):
    """The budget is used up."""


class GapSearch:
    """The search for a trace of the model that fits a recording with gaps.

    `items` are the operations and gaps of the recording. `gap_of` returns the maximum number of calls in a gap, and
    None for an operation. `budget` limits the steps of the model.
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
        self.wrong: list[tuple[str, Any]] = []  # differences at the operation with the index `furthest`

    def run(self, start: Any) -> GapVerdict:
        """Returns the verdict on the recording from the state `start` on. Cost: at most `budget` steps of the model."""
        tried: set[tuple[int, Any]] = set()  # index of a gap, state: the operations after the gap were executed from it
        fewest: dict[tuple[int, Any], int] = {}  # index of a gap, state -> the fewest calls of the gap that lead to it
        agenda: list[tuple[int, int, int, Any]] = []
        order = itertools.count()  # so that the agenda never compares states

        def add(index: int, used: int, state: Any) -> None:
            if fewest.get((index, state), used + 1) > used:
                fewest[index, state] = used
                heapq.heappush(agenda, (-index, used, next(order), state))

        result = Agreement.DISAGREES
        try:
            for index, state in self._executed(0, start):
                if index == len(self.items):
                    return GapVerdict(Agreement.AGREES, steps=self.steps)
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
                            return GapVerdict(Agreement.AGREES, states=len(tried), steps=self.steps)
                        add(index, 0, after)
                if used < (self.gaps[gap] or 0):
                    for after in self.moves(state):
                        self._count()
                        add(gap, used + 1, after)
        except _OutOfBudget:
            result = Agreement.UNDECIDED
        field = "observe" if any(name == "observe" for name, _ in self.wrong) else "result"
        values = tuple([value for name, value in self.wrong if name == field])
        return GapVerdict(result, self.items[max(0, self.furthest)], field, values, len(tried), self.steps)

    def _executed(self, index: int, state: Any) -> Iterable[tuple[int, Any]]:
        """Executes the operations from `index` to the next gap or the end.

        Returns each state at the gap or end, with its index.
        """
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
