"""Linearizability of a concurrent history (Herlihy and Wing), as Wing and Gong search it, with Lowe's memoisation.

A history has operations of several threads, each with the times of its invocation and its return. It is linearizable if
the operations have an order that the model can take, outcomes included, in which no operation comes after one that was
invoked after its return. An operation without return may have taken effect at any later time, or never.

The search goes from return to return. A thread's operations do not overlap, so a point of the search is how many
operations of each thread are placed, and the model's state. The returning operation is placed in every point, after any
of the operations in flight (just-in-time linearization); equal points are one. An operation that changes nothing is
placed as soon as its outcome is the recorded one: where it may come later, it may come here, too. The points are
compared by the state itself: a canonical form would merge states that names in later arguments and outcomes tell apart.
A pass that holds too many points drops the least likely ones, and can then find an order, but refute nothing.

A history that is not linearizable has a first return after which no point is left. No order of the operations that
returned before can be followed by this operation: it is reported.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import StrEnum
from math import inf
from typing import Any, NamedTuple

#: The most steps of the model that a history may take: some seconds.
BUDGET_STEPS = 1_000_000
#: States before the operation that no order can place, of which outcomes are shown.
_MOST_STATES = 8
#: The most points that a pass keeps, pass by pass.
_MOST_POINTS = (64, 1024, inf)


class Result(StrEnum):
    """Whether a history is linearizable."""

    LINEARIZABLE = "linearizable"
    NOT_LINEARIZABLE = "not_linearizable"
    UNDECIDED = "undecided"  # the budget is used up


class Timed(NamedTuple):
    """An operation of a thread. `returned` is infinite if it has not returned."""

    thread: Hashable
    invoked: float
    returned: float
    operation: Any


class Verdict(NamedTuple):
    """`order` is a linearization, or the longest prefix of one. `operation` is the one that no order can place.

    `states` are some of the model's states in which that operation was tried. A partitioned history has the order of
    each of its parts, one after another.
    """

    result: Result
    order: tuple[Timed, ...]
    operation: Timed | None = None
    states: tuple[Any, ...] = ()
    steps: int = 0


#: (operation, state) -> the states after every allowed step with the recorded outcome.
Steps = Callable[[Any, Any], Iterable[Any]]


def linearize(
    history: Sequence[Timed],
    start: Any,
    steps: Steps,
    *,
    accepts: Callable[[Any], bool] = lambda state: True,
    part_of: Callable[[Any], Hashable] = lambda operation: None,
    is_read: Callable[[Any], bool] = lambda operation: False,
    budget: int = BUDGET_STEPS,
) -> Verdict:
    """Decides a history. `accepts` says whether the state at its end is right.
    If only that fails, the verdict has no operation.

    `is_read` says of an operation that was executed whether it leaves every state unchanged, given its outcome.
    `part_of` assigns operations to independent parts of the state: a history is linearizable if every part is.
    `accepts` is asked about a history of one part only. Cost: steps of the model, at most the budget.
    """
    parts: dict[Hashable, list[Timed]] = {}
    for each in history:
        parts.setdefault(part_of(each.operation), []).append(each)
    order: list[Timed] = []
    taken, undecided = 0, False
    for part in parts.values():
        search = _Search(part, steps, accepts if len(parts) == 1 else lambda state: True, is_read, budget - taken)
        verdict = search.run(start)
        taken += verdict.steps
        if verdict.result is Result.NOT_LINEARIZABLE:
            return verdict._replace(steps=taken)
        undecided = undecided or verdict.result is Result.UNDECIDED
        order += verdict.order
    return Verdict(Result.UNDECIDED if undecided else Result.LINEARIZABLE, tuple(order), steps=taken)


#: How many operations of each thread are placed, and the model's state.
_Point = tuple[tuple[int, ...], Any]


class _Path(NamedTuple):
    """How a point was reached, the last operation first.

    An operation likely took effect in the middle between invocation and return. `cost` counts the others, those placed
    after an operation with a later middle; `latest` is the latest middle, doubled.
    """

    cost: int
    latest: float
    operation: Timed | None
    before: _Path | None


class _OutOfBudget(Exception):
    """The budget is used up."""


class _Search:
    """The search in one part of a history."""

    def __init__(
        self,
        history: list[Timed],
        steps: Steps,
        accepts: Callable[[Any], bool],
        is_read: Callable[[Any], bool],
        budget: int,
    ) -> None:
        threads: dict[Hashable, list[Timed]] = {}
        for each in sorted(history, key=lambda each: (each.invoked, each.returned)):
            threads.setdefault(each.thread, []).append(each)
        self.threads = list(threads.values())
        self.returns = sorted(
            (each.returned, n, i) for n, t in enumerate(self.threads) for i, each in enumerate(t) if each.returned < inf
        )
        self.steps = steps
        self.accepts = accepts
        self.is_read = is_read
        self.budget = budget
        self.taken = 0

    def run(self, start: Any) -> Verdict:
        """Decides the history, with more and more points at a time."""
        verdict = Verdict(Result.UNDECIDED, ())
        try:
            for most in _MOST_POINTS:
                verdict = self._pass(start, most)
                if verdict.result is not Result.UNDECIDED:
                    break
        except _OutOfBudget:
            pass
        return verdict._replace(steps=self.taken)

    def _pass(self, start: Any, most: float) -> Verdict:
        """Places each operation at its return, at the latest. Undecided if points were dropped and none is left."""
        points: dict[_Point, _Path] = {((0,) * len(self.threads), start): _Path(0, -inf, None, None)}
        is_exact = True
        for returned, n, i in self.returns:
            after = self._placed(points, returned, (n, i))
            if not after:
                result = Result.NOT_LINEARIZABLE if is_exact else Result.UNDECIDED
                return Verdict(result, _order(points), self.threads[n][i], _states(points))
            if len(after) > most:
                after = dict(heapq.nsmallest(int(most), after.items(), key=lambda each: each[1].cost))
                is_exact = False
            points = after
        ends = {p: path for p, path in self._placed(points, inf, None).items() if self.accepts(p[1])}
        if ends:
            return Verdict(Result.LINEARIZABLE, _order(ends))
        return Verdict(Result.NOT_LINEARIZABLE if is_exact else Result.UNDECIDED, _order(points), None, _states(points))

    def _placed(
        self, points: dict[_Point, _Path], limit: float, returning: tuple[int, int] | None
    ) -> dict[_Point, _Path]:
        """The points in which the returning operation, by thread and index, is placed, after others in flight.

        Without one, all points that these lead to: what never returned may have taken effect, or not.
        """
        done: dict[_Point, _Path] = {}
        seen, todo = dict(points), list(points.items())
        while todo:
            point, path = todo.pop()
            placed, state = point
            if returning is None or placed[returning[0]] > returning[1]:
                done[point] = path
                if returning is not None:
                    continue
            following: list[tuple[_Point, _Path]] = []
            for n, (thread, i) in enumerate(zip(self.threads, placed, strict=True)):
                if i == len(thread) or thread[i].invoked > limit:
                    continue
                operation = thread[i]
                self.taken += 1
                if self.taken > self.budget:
                    raise _OutOfBudget
                middle, latest = operation.invoked + operation.returned, path.latest
                added = _Path(path.cost + (middle < latest), max(middle, latest), operation, path)
                after_all = (*placed[:n], i + 1, *placed[n + 1 :])
                states = list(self.steps(operation.operation, state))
                if states and operation.returned < inf and self.is_read(operation.operation):
                    following = [((after_all, state), added)]
                    break
                following += [((after_all, after), added) for after in states]
            for each in following:
                if each[0] not in seen:
                    seen[each[0]] = each[1]
                    todo.append(each)
        return done


def _order(points: dict[_Point, _Path]) -> tuple[Timed, ...]:
    """The operations in the likeliest order that leads to one of the points."""
    order, path = list[Timed](), min(points.values(), key=lambda each: each.cost, default=None)
    while path is not None and path.operation is not None:
        order.append(path.operation)
        path = path.before
    return tuple(reversed(order))


def _states(points: dict[_Point, _Path]) -> tuple[Any, ...]:
    """Some of the model's states at the points."""
    return tuple(dict.fromkeys(state for _, state in points))[:_MOST_STATES]
