"""Linearizability of a concurrent history (Herlihy and Wing), as Wing and Gong search it, with Lowe's memoisation.

A history has operations of several threads, each with the times of its invocation and its return. It is linearizable if
the operations have an order that the model can take, outcomes included, in which no operation comes after one that was
invoked after its return. An operation without return may have taken effect at any later time, or never.

A point of the search is the number of operations of each thread that are placed, and the model's state. Operations of a
thread that overlap are divided among several threads. The search goes from return to return. It extends every point by
the returning operation, after any operations in flight (just-in-time linearization), and merges equal points. An
operation that changes nothing is placed as soon as it has the recorded outcome, because an order that has it later can
have it here, too. States are compared as they are: a canonical form would merge states that differ in generated names,
which later arguments and outcomes refer to. A pass that has too many points drops the least likely ones. It can then
find an order, but not refute the history.

An outline is a coarse model, which allows every history that the model allows. It has few states, so it refutes a
history whose contradiction does not depend on what the points of the model differ in.

A history that is not linearizable has a first return after which no point is left. The verdict reports the returning
operation: it can follow no order of the operations that returned before.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import StrEnum
from math import inf
from typing import Any, NamedTuple

#: The maximum number of steps of the model in a search: some seconds.
BUDGET_STEPS = 1_000_000
#: The maximum number of states in a verdict.
_MOST_STATES = 8
#: The maximum number of points that each pass keeps.
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
    accepts: Callable[[Any], bool] | None = None,
    part_of: Callable[[Any], Hashable] = lambda operation: None,
    is_read: Callable[[Any], bool] = lambda operation: False,
    outline: tuple[Any, Steps] | None = None,
    budget: int = BUDGET_STEPS,
) -> Verdict:
    """Decides a history.

    `accepts` decides whether the state at the end is right. If it accepts none, the verdict has no operation. `is_read`
    tells whether an operation leaves every state unchanged in which it has the recorded outcome; it is called after a
    step of the operation. `part_of` assigns operations to independent parts of the state, which are decided one by one.
    If the order that this gives does not end in an accepted state, the history is decided as a whole. `outline` has the
    first state and the steps of a coarse model; if only the outline refutes the history, the states are those of the
    longest order found, if the operation was tried there. Cost: steps of the model and of the outline, at most the
    budget of each.
    """
    parts: dict[Hashable, list[Timed]] = {}
    for each in history:
        parts.setdefault(part_of(each.operation), []).append(each)
    order: list[Timed] = []
    taken, undecided = 0, False
    for part in parts.values():
        search = _Search(part, steps, accepts if len(parts) == 1 else None, is_read, budget - taken)
        verdict = search.run(start, outline)
        taken += verdict.steps
        if verdict.result is Result.NOT_LINEARIZABLE:
            return verdict._replace(steps=taken)
        undecided = undecided or verdict.result is Result.UNDECIDED
        order += verdict.order
    if accepts is not None and len(parts) != 1 and not undecided and not _ends_accepted(order, start, steps, accepts):
        verdict = _Search(list(history), steps, accepts, is_read, budget - taken).run(start)
        return verdict._replace(steps=taken + verdict.steps)
    return Verdict(Result.UNDECIDED if undecided else Result.LINEARIZABLE, tuple(order), steps=taken)


def _ends_accepted(order: list[Timed], start: Any, steps: Steps, accepts: Callable[[Any], bool]) -> bool:
    """Whether the operations in an order lead to an accepted state."""
    states = {start: None}
    for each in order:
        states = dict.fromkeys(after for state in states for after in steps(each.operation, state))
    return any(accepts(state) for state in states)


class _Node:
    """A state of the model, and the steps that were tried in it. Equal states that a search keeps are one node."""

    __slots__ = ("moves", "state")

    def __init__(self, state: Any) -> None:
        self.state = state
        #: operation, by thread and index -> whether it is a read, and the nodes after it
        self.moves: dict[tuple[int, int], tuple[bool, list[_Node]]] = {}


#: The number of operations of each thread that are placed, and the model's state.
_Point = tuple[tuple[int, ...], _Node]


class _Path(NamedTuple):
    """How a point was reached, the last operation first.

    An operation likely took effect in the middle between invocation and return. `cost` counts the others, those placed
    after an operation with a later middle; `latest` is the latest middle, doubled.
    """

    cost: int
    latest: float
    operation: Timed | None
    before: _Path | None


_Points = dict[_Point, _Path]


class _OutOfBudget(Exception):
    """The budget is used up."""


class _Search:
    """The search in one part of a history."""

    def __init__(
        self,
        history: list[Timed],
        steps: Steps,
        accepts: Callable[[Any], bool] | None,
        is_read: Callable[[Any], bool],
        budget: int,
    ) -> None:
        threads: dict[Hashable, list[list[Timed]]] = {}
        for each in sorted(history, key=lambda each: (each.invoked, each.returned)):
            lanes = threads.setdefault(each.thread, [])
            lane = next((lane for lane in lanes if lane[-1].returned <= each.invoked), None)
            if lane is None:
                lanes.append([each])
            else:
                lane.append(each)
        self.threads = [lane for lanes in threads.values() for lane in lanes]
        self.returns = sorted(
            (each.returned, n, i) for n, t in enumerate(self.threads) for i, each in enumerate(t) if each.returned < inf
        )
        self.steps = steps
        self.accepts = accepts
        self.is_read = is_read
        self.budget = budget
        self.taken = 0
        self.nodes: dict[Any, _Node] = {}

    def run(self, start: Any, outline: tuple[Any, Steps] | None = None) -> Verdict:
        """Decides the history. A pass keeps more points than the one before, and begins where that dropped some."""
        verdict = Verdict(Result.UNDECIDED, ())
        begin = 0, {((0,) * len(self.threads), self._node(start)): _Path(0, -inf, None, None)}
        try:
            for most in _MOST_POINTS:
                verdict, begin = self._pass(*begin, most)
                if verdict.result is Result.UNDECIDED and outline is not None:
                    verdict, outline = self._outlined(verdict, *outline), None
                if verdict.result is not Result.UNDECIDED:
                    break
        except _OutOfBudget:
            pass
        return verdict._replace(steps=self.taken)

    def _outlined(self, found: Verdict, start: Any, steps: Steps) -> Verdict:
        """The verdict of a pass, or that the outline refutes the history."""
        history = [each for thread in self.threads for each in thread]
        outlined = _Search(history, steps, None, lambda operation: False, self.budget).run(start)
        if outlined.result is not Result.NOT_LINEARIZABLE:
            return found
        states = found.states if found.operation is outlined.operation else ()
        return Verdict(Result.NOT_LINEARIZABLE, found.order, outlined.operation, states)

    def _pass(self, first: int, points: _Points, most: float) -> tuple[Verdict, tuple[int, _Points]]:
        """Places each operation at its return or before. Undecided if points were dropped and none is left.

        Begins at a return, with all points before it. Returns the verdict and where the pass dropped points.
        """
        complete = first, points
        is_exact = True
        for at in range(first, len(self.returns)):
            returned, n, i = self.returns[at]
            after, tried = self._placed(points, returned, (n, i))
            if not after:
                result = Result.NOT_LINEARIZABLE if is_exact else Result.UNDECIDED
                return Verdict(result, _order(points), self.threads[n][i], _states(tried)), complete
            if len(after) > most:
                if is_exact:
                    complete = at, points
                after = dict(heapq.nsmallest(int(most), after.items(), key=lambda each: each[1].cost))
                is_exact = False
            points = after
            self._forget(points)
        at_end, _ = self._placed(points, inf, None)
        ends = {point: path for point, path in at_end.items() if self._accepts(point[1].state)}
        if ends:
            return Verdict(Result.LINEARIZABLE, _order(ends)), complete
        result = Result.NOT_LINEARIZABLE if is_exact else Result.UNDECIDED
        return Verdict(result, _order(points), None, _states(at_end)), complete

    def _accepts(self, state: Any) -> bool:
        return self.accepts is None or self.accepts(state)

    def _placed(self, points: _Points, limit: float, returning: tuple[int, int] | None) -> tuple[_Points, _Points]:
        """The points in which the returning operation, by thread and index, is placed, after others in flight.

        Without a returning operation: all points that follow, with any of the operations that never returned. Also
        returns all points that were reached.
        """
        done: _Points = {}
        seen, todo = dict(points), list(points.items())
        while todo:
            point, path = todo.pop()
            if returning is None or point[0][returning[0]] > returning[1]:
                done[point] = path
                if returning is not None:
                    continue
            for operation, following in self._following(point, limit):
                middle, latest = operation.invoked + operation.returned, path.latest
                added = _Path(path.cost + (middle < latest), max(middle, latest), operation, path)
                for each in following:
                    if each not in seen:
                        seen[each] = added
                        todo.append((each, added))
        return done, seen

    def _following(self, point: _Point, limit: float) -> list[tuple[Timed, list[_Point]]]:
        """The operations in flight that can be placed next, with the points after each; a read alone."""
        placed, node = point
        found: list[tuple[Timed, list[_Point]]] = []
        for n, (thread, i) in enumerate(zip(self.threads, placed, strict=True)):
            if i == len(thread) or thread[i].invoked > limit:
                continue
            self.taken += 1
            if self.taken > self.budget:
                raise _OutOfBudget
            is_read, after = node.moves.get((n, i)) or self._move(node, n, i)
            if after:
                placed_after = (*placed[:n], i + 1, *placed[n + 1 :])
                following = thread[i], [(placed_after, each) for each in after]
                if is_read:
                    return [following]
                found.append(following)
        return found

    def _move(self, node: _Node, n: int, i: int) -> tuple[bool, list[_Node]]:
        """Executes an operation in a state."""
        operation = self.threads[n][i]
        after = [self._node(each) for each in self.steps(operation.operation, node.state)]
        is_read = bool(after) and operation.returned < inf and self.is_read(operation.operation)
        move = node.moves[n, i] = (is_read, [node] if is_read else after)
        return move

    def _node(self, state: Any) -> _Node:
        node = self.nodes.get(state)
        if node is None:
            node = self.nodes[state] = _Node(state)
        return node

    def _forget(self, points: _Points) -> None:
        """Forgets states that are in no point, once they are many. What a forgotten state led to is forgotten, too."""
        if len(self.nodes) > 10_000 + 4 * len(points):
            self.nodes = {node.state: node for _, node in points}
            for node in self.nodes.values():
                node.moves.clear()


def _order(points: _Points) -> tuple[Timed, ...]:
    """The operations in the likeliest order that leads to one of the points."""
    order, path = list[Timed](), min(points.values(), key=lambda each: each.cost, default=None)
    while path is not None and path.operation is not None:
        order.append(path.operation)
        path = path.before
    return tuple(reversed(order))


def _states(points: _Points) -> tuple[Any, ...]:
    """Some of the model's states at the points."""
    return tuple(dict.fromkeys(node.state for _, node in points))[:_MOST_STATES]
