"""Search for the calls in the gaps of a recording: do some calls explain the operations after the gaps?

A gap has a number N, and stands for at most N calls that were not recorded. After a gap, the model may be in any state
to which at most N calls lead. A recording agrees if the later operations can be executed in one of these states with
the recorded results and observations. It disagrees if there is no such state.

    agenda = the states at the first gap, each with 0 calls
    while the agenda is not empty:
        remove a state: of those at the latest gap in the agenda, one with the fewest calls
        unless this state was removed at this gap before:
            execute the operations from this state up to the next gap, and add the states there, each with 0 calls
            if the operations reach the end of the recording: the recording agrees
        if the gap may have one more call: for each call, add the state after the call, with the number of calls + 1,
            unless this state was added at this gap with this number of calls or a smaller one

The search drops a state when an operation from it has a result or an observation that differs from the recorded one.
Most states are dropped at the first operation. The number of steps is limited: if the search reaches the limit (the
budget), the recording is undecided.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

#: The default budget of a search: some seconds. A step is one operation, or one call of a gap, in one state.
BUDGET_STEPS = 100_000
#: The maximum number of differences that are kept. All are at the same operation.
_MAX_DIFFERENCES = 8


class Agreement(StrEnum):
    """Whether a recording with gaps agrees with the model."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNDECIDED = "undecided"  # the search reached the budget


class GapVerdict(NamedTuple):
    """Whether a recording agrees. If not: at which operation the search got furthest, and what differed there.

    `operation` is the last operation of the recording at which a value differed from the recorded one. If no value
    differed, `operation` is the first item, which may be a gap. `field` is `result`, or `observe` if an observation is
    among the differences that were kept. If the recording agrees, `operation`, `field` and `possible` are empty.
    """

    agreement: Agreement
    operation: Any = None
    field: str = ""
    possible: tuple[Any, ...] = ()  # some values that the model has for the field, where the recording has another one
    states: int = 0  # of all gaps: the number of states from which the operations after the gap were executed
    steps: int = 0  # number of steps taken


#: A state -> the state after each call that may have been made in a gap.
Successors = Callable[[Any], Iterable[Any]]
#: (operation, state) -> the possible steps, each as the state after it and its result.
PossibleSteps = Callable[[Any, Any], Iterable[tuple[Any, Any]]]
#: (operation, state after it, result) -> None if result and observation are as recorded; otherwise the field that
#: differs (`result` or `observe`) and the model's value.
Judge = Callable[[Any, Any, Any], tuple[str, Any] | None]


class _OutOfBudget(Exception):
    """The search reached the budget."""


class GapSearch:
    """The search for a trace of the model that fits a recording with gaps.

    `items` are the operations and gaps of the recording. `gap_of` returns the maximum number of calls in a gap, and
    None for an operation. `budget` limits the number of steps.
    """

    def __init__(
        self,
        items: Sequence[Any],
        successors: Successors,
        possible_steps: PossibleSteps,
        judge: Judge,
        *,
        gap_of: Callable[[Any], int | None],
        budget: int = BUDGET_STEPS,
    ) -> None:
        self.items = items
        #: for each item: the maximum number of calls in a gap, None for an operation
        self.max_calls = [gap_of(each) for each in items]
        self.successors = successors
        self.possible_steps = possible_steps
        self.judge = judge
        self.budget = budget
        self.steps = 0
        self.furthest = -1  # the largest index of an operation at which a value differed
        self.differences: list[tuple[str, Any]] = []  # at `furthest`: field, the model's value

    def run(self, start: Any) -> GapVerdict:
        """Searches from the state `start`. Returns the verdict on the recording. Cost: at most `budget` steps."""
        #: (index of a gap, state): the operations after the gap were executed from this state
        tried: set[tuple[int, Any]] = set()
        #: (index of a gap, state) -> the fewest calls of the gap that lead to this state
        fewest: dict[tuple[int, Any], int] = {}
        #: -(index of a gap), number of calls of the gap, a unique number, state; the smallest is removed first
        agenda: list[tuple[int, int, int, Any]] = []
        unique = itertools.count()  # without the unique numbers, the heap would compare states

        def add(gap: int, calls: int, state: Any) -> None:
            if fewest.get((gap, state), calls + 1) > calls:  # not added before, or only with more calls
                fewest[gap, state] = calls
                heapq.heappush(agenda, (-gap, calls, next(unique), state))

        agreement = Agreement.DISAGREES
        try:
            for index, state in self._states_at_next_gap(0, start):
                if index == len(self.items):
                    return GapVerdict(Agreement.AGREES, steps=self.steps)
                add(index, 0, state)
            while agenda:
                negated, calls, _, state = heapq.heappop(agenda)
                gap = -negated
                if fewest[gap, state] < calls:  # the state was added again, with fewer calls
                    continue
                if (gap, state) not in tried:
                    tried.add((gap, state))
                    for index, after in self._states_at_next_gap(gap + 1, state):
                        if index == len(self.items):
                            return GapVerdict(Agreement.AGREES, states=len(tried), steps=self.steps)
                        add(index, 0, after)
                if calls < (self.max_calls[gap] or 0):
                    for after in self.successors(state):
                        self._count_step()
                        add(gap, calls + 1, after)
        except _OutOfBudget:
            agreement = Agreement.UNDECIDED
        field = "observe" if any(name == "observe" for name, _ in self.differences) else "result"
        values = tuple([value for name, value in self.differences if name == field])
        return GapVerdict(agreement, self.items[max(0, self.furthest)], field, values, len(tried), self.steps)

    def _states_at_next_gap(self, index: int, state: Any) -> list[tuple[int, Any]]:
        """Executes the operations from `index` on in `state`, up to the next gap or the end of the recording.

        Returns the states there, each with the index of the gap or, at the end, the number of items. Records the
        differences of the states that are dropped.
        """
        states = {state: None}
        while index < len(self.items) and self.max_calls[index] is None and states:
            following: dict[Any, None] = {}
            for each in states:
                self._count_step()
                for after, result in self.possible_steps(self.items[index], each):
                    different = self.judge(self.items[index], after, result)
                    if different is None:
                        following[after] = None
                    elif index >= self.furthest:
                        earlier = self.differences if index == self.furthest else []
                        self.differences = [*earlier, different][:_MAX_DIFFERENCES]
                        self.furthest = index
            states = following
            index += 1
        return [(index, each) for each in states]

    def _count_step(self) -> None:
        if self.steps >= self.budget:
            raise _OutOfBudget
        self.steps += 1
