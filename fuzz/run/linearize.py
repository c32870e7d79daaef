"""Linearizability of a concurrent history (Herlihy and Wing), as Wing and Gong search it, with Lowe's memoisation.

A history has operations of several threads, each with the times of its invocation and its return. A history is
linearizable if the model can execute its operations with the recorded outcomes in some order that keeps real time: an
operation that returned before another was invoked comes first. An operation that did not return may have taken effect
at any time after its invocation, or never.

The search builds orders from the front: to *place* an operation is to append it to an order. Operations of one thread
may overlap. The search divides them into lanes, in which no two overlap, and places the operations of a lane in turn.
So an order leads to a *point*: how many operations of each lane are placed, and the model's state after them. Of the
orders that lead to the same point, the search continues only the first.

The search goes from return to return (just-in-time linearization). At a return, each point at which the returning
operation is not placed is extended: by any operations in flight, then by the returning operation. A point that cannot
be extended is dropped. A read, an operation that changes nothing, is placed as soon as it has the recorded outcome: an
order that has the read later stays valid if the read is moved here. States are compared as they are: a canonical form
would merge states that differ in generated names, to which later arguments and outcomes refer.

The search makes passes. A pass has a limit of points: after a return with more points, it drops those with the least
likely orders (`_Path`). A pass that has dropped points can still find an order, but cannot refute the history. If it
finds none, the next pass begins at the return at which this pass first dropped points. Its limit is higher; the last
pass has no limit. The first pass finds an order of most linearizable histories. Before later passes, cheaper searches
try to refute the history:

    after the first pass     by a coarse model. It allows every history that the model allows, and has fewer states, so
                             a search in it is cheaper. Operations that do not concern it are left out of this search
    after the second pass    by a reduction, which merges states from which all remaining operations have the same
                             outcomes. So there are fewer points. This search cannot confirm a history: it does not
                             know the final state of an order, and so not whether this state is right

A tally is a number in the state that no outcome shows, such as a version. The passes leave the tally out of the states,
so there are fewer points. If they find an order whose final state, with its tally, is wrong, a second search computes
for each point the tallies of all orders that lead to this point.

If no order has the recorded outcomes, there is a first return after which no point is left. The verdict has the
returning operation as `blocked`: this operation can follow no order of the operations that returned earlier.
"""

from __future__ import annotations

import copy
import heapq
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import StrEnum
from math import inf
from typing import Any, NamedTuple

from model.machine import BadValue

#: The maximum number of steps by default: they take some seconds. A step of the search tries to place an operation at a
#: point. If the search has tried the operation in the same state before, the model does not execute it again.
BUDGET_STEPS = 1_000_000
#: The maximum number of states in a verdict.
_MOST_STATES = 8
#: The maximum number of points that each of the passes keeps.
_MOST_POINTS = (16, 64, 1024, inf)
#: The maximum number of points that each of the passes with a reduction keeps. If there is an order, the first of these
#: passes usually finds it at a low cost. If there is probably none, this pass is left out.
_MOST_REDUCED = (256, inf)
#: The search forgets its nodes (`_Node`) if it has more than this many, plus four for each point.
_MOST_NODES = 10_000


class Result(StrEnum):
    """Whether a history is linearizable: the result of a search, or of one of its passes.

    A search is undecided if the budget is used up, a pass if it dropped points and found no order.
    """

    LINEARIZABLE = "linearizable"
    NOT_LINEARIZABLE = "not_linearizable"
    UNDECIDED = "undecided"


class Timed(NamedTuple):
    """An operation of a thread, with its times on one clock. `returned` is infinite if the operation did not return."""

    thread: Hashable
    invoked: float
    returned: float
    operation: Any


class Verdict(NamedTuple):
    """The result of a search.

    The operations in `order` have the recorded outcomes. If the history is linearizable, `order` is a linearization. If
    `linearize` divided the history into parts, `order` has the linearization of one part after that of another. If the
    history is not linearizable or not decided, `order` is one with which the search ended. It may be empty.

    If the history is not linearizable, `blocked` is the operation that no order can place, and `states` are some of the
    model's states in which it was tried. If only the final state is wrong, `blocked` is None, and `states` are some of
    the final states. If the result is UNDECIDED, `blocked` and `states` prove nothing.
    """

    result: Result
    order: tuple[Timed, ...]
    blocked: Timed | None = None
    states: tuple[Any, ...] = ()
    steps: int = 0  # steps of the search


#: (operation, state) -> the states after every allowed step with the recorded outcome.
Successors = Callable[[Any, Any], Iterable[Any]]


class CoarseModel(NamedTuple):
    """A coarse model, and the operations that concern it."""

    start: Any
    successors: Successors
    #: whether an operation depends on the state of the coarse model or changes this state
    concerns: Callable[[Any], bool] = lambda operation: True


#: The operations that may follow -> a function from a state to its representative. In states with the same
#: representative, each of these operations has the same outcome, and the next states have the same representative.
Reduction = Callable[[Iterable[Any]], Callable[[Any], Any]]


class Tally(NamedTuple):
    """A number in the state, to which each operation adds an amount of at least 0.

    Neither an outcome nor the amount depends on the number.
    """

    of: Callable[[Any], int]
    replaced: Callable[[Any, int], Any]  # (state, number) -> the state with this number


def linearize(
    history: Sequence[Timed],
    start: Any,
    successors: Successors,
    *,
    accepts: Callable[[Any], bool] | None = None,
    part_of: Callable[[Any], Hashable] = lambda operation: None,
    is_read: Callable[[Any], bool] = lambda operation: False,
    coarse_models: Sequence[CoarseModel] = (),
    reduction: Reduction | None = None,
    tally: Tally | None = None,
    budget: int = BUDGET_STEPS,
) -> Verdict:
    """Decides whether a history is linearizable, from the state `start`.

    `accepts` says whether a final state is right; without `accepts`, every final state is. `is_read` says whether an
    operation that has the recorded outcome leaves the state unchanged, in every state. It is called only for an
    operation that the model has executed with this outcome.

    `part_of` assigns each operation to one of the independent parts of the state. Each part has its own search. If the
    linearizations of the parts, one after another, do not lead to an accepted state, the history is decided as a whole.
    Coarse models are searched only if all operations are of one part: a coarse model may depend on every operation.

    A coarse model does not have the model's states. If it refutes the history, the verdict has the states of the first
    pass, if this pass was blocked at the same operation; otherwise no states. If a reduction refutes the history, the
    states are representatives. Raises BadValue if an operation decreases the tally. Cost: at most `budget` steps, and
    at most as many steps in all coarse models together.
    """
    parts: dict[Hashable, list[Timed]] = {}
    for each in history:
        parts.setdefault(part_of(each.operation), []).append(each)
    order: list[Timed] = []
    taken, undecided = 0, False
    for part in parts.values():
        search = _Search(part, successors, accepts if len(parts) == 1 else None, is_read, budget - taken, tally)
        verdict = search.run(start, coarse_models if len(parts) == 1 else (), reduction)
        taken += verdict.steps
        if verdict.result is Result.NOT_LINEARIZABLE:
            return verdict._replace(steps=taken)
        undecided = undecided or verdict.result is Result.UNDECIDED
        order += verdict.order
    if (
        accepts is not None
        and len(parts) != 1  # the search of a single part has checked the final state
        and not undecided
        and not _ends_accepted(order, start, successors, accepts)
    ):
        search = _Search(list(history), successors, accepts, is_read, budget - taken, tally)
        verdict = search.run(start, (), reduction)
        return verdict._replace(steps=taken + verdict.steps)
    return Verdict(Result.UNDECIDED if undecided else Result.LINEARIZABLE, tuple(order), steps=taken)


def _ends_accepted(order: Iterable[Timed], start: Any, successors: Successors, accepts: Callable[[Any], bool]) -> bool:
    """Returns whether the operations in an order lead to an accepted state."""
    states = {start: None}
    for each in order:
        states = dict.fromkeys(after for state in states for after in successors(each.operation, state))
    return any(accepts(state) for state in states)


class _Node:
    """A state of the model, and the operations that were tried in it. Equal states are one node."""

    __slots__ = ("added", "moves", "state")

    def __init__(self, state: Any) -> None:
        self.state = state
        #: operation, by lane and index -> whether it is a read, and the nodes after it
        self.moves: dict[tuple[int, int], tuple[bool, list[_Node]]] = {}
        #: operation, by lane and index -> the amount that it adds to the tally, for each of its nodes in `moves`
        self.added: dict[tuple[int, int], list[int]] = {}


#: For each lane, how many of its operations are placed; and the model's state after them.
_Point = tuple[tuple[int, ...], _Node]


class _Path(NamedTuple):
    """How a point was reached: the last operation that was placed, and the path before it.

    An operation likely took effect in the middle of its interval from invocation to return. So the likeliest order has
    increasing middles.
    """

    cost: int  # number of operations that were placed after one with a later middle
    latest: float  # the largest invoked + returned, which is twice the middle
    operation: Timed | None
    before: _Path | None


_Points = dict[_Point, _Path]


class _OutOfBudget(Exception):
    """The budget is used up."""


class _Search:
    """The search for an order of some operations: those of one part of a history, or of the whole history."""

    def __init__(
        self,
        history: list[Timed],
        successors: Successors,
        accepts: Callable[[Any], bool] | None,
        is_read: Callable[[Any], bool],
        budget: int,
        tally: Tally | None = None,
    ) -> None:
        of_threads: dict[Hashable, list[list[Timed]]] = {}
        for each in sorted(history, key=lambda each: (each.invoked, each.returned)):
            lanes = of_threads.setdefault(each.thread, [])
            # `<=`: if one operation of a thread returns at the time at which another is invoked, they do not overlap
            lane = next((lane for lane in lanes if lane[-1].returned <= each.invoked), None)
            if lane is None:
                lanes.append([each])
            else:
                lane.append(each)
        self.lanes = [lane for lanes in of_threads.values() for lane in lanes]
        #: the time, lane and index of each operation that returned, in the order of the times
        self.returns = sorted(
            (each.returned, n, i)
            for n, lane in enumerate(self.lanes)
            for i, each in enumerate(lane)
            if each.returned < inf
        )
        self.successors = successors
        self.tally = tally
        #: which final states are right; with a tally, the passes accept all
        self.accepts = accepts if tally is None else None
        self.accepts_with_tally = None if tally is None else accepts
        self.is_read = is_read
        self.budget = budget
        self.steps = 0
        self.nodes: dict[Any, _Node] = {}  # by state
        self.reduction: Reduction | None = None
        #: a state -> its representative under the reduction; without a reduction, the state itself
        self.representative: Callable[[Any], Any] = lambda state: state
        #: the number of points beyond which the representatives are computed again, for the operations that remain
        self.renew_above = inf

    def run(self, start: Any, coarse_models: Sequence[CoarseModel] = (), reduction: Reduction | None = None) -> Verdict:
        """Decides the history. A pass begins at the return at which the previous pass first dropped points."""
        verdict = Verdict(Result.UNDECIDED, ())
        begin = 0, {((0,) * len(self.lanes), self._node(start)): _Path(0, -inf, None, None)}
        try:
            blocked: list[Timed | None] = []
            for most in _MOST_POINTS:
                verdict, begin = self._pass(*begin, most)
                blocked.append(verdict.blocked)
                if verdict.result is Result.UNDECIDED and len(blocked) == 1:
                    verdict = self._with_coarse_models(verdict, coarse_models)
                if verdict.result is Result.UNDECIDED and len(blocked) == 2 and reduction is not None:
                    # if both passes were blocked at one operation, there is probably no order to find
                    is_likely_wrong = blocked[0] is not None and blocked[0] is blocked[1]
                    most_points = _MOST_REDUCED[-1:] if is_likely_wrong else _MOST_REDUCED
                    verdict = self._with_reduction(verdict, begin, reduction, most_points)
                if verdict.result is not Result.UNDECIDED:
                    break
            accepts, is_found = self.accepts_with_tally, verdict.result is Result.LINEARIZABLE
            if accepts is not None and is_found and not _ends_accepted(verdict.order, start, self.successors, accepts):
                verdict = Verdict(Result.UNDECIDED, verdict.order)  # the verdict if `_tallied` raises _OutOfBudget
                verdict = self._tallied(start, accepts)
        except _OutOfBudget:
            pass
        return verdict._replace(steps=self.steps)

    def _tallied(self, start: Any, accepts: Callable[[Any], bool]) -> Verdict:
        """Decides whether an order ends in an accepted state, by the tallies of all orders. Raises _OutOfBudget.

        The points are those of a search from return to return. Points with fewer operations are extended first, so all
        tallies of a point are known when it is extended.
        """
        assert self.tally is not None
        first, offset = ((0,) * len(self.lanes), self._node(start)), self.tally.of(start)
        tallies = {first: 1}  # point -> its tallies, less the offset; bit t is set if t is one of them
        #: point -> the points before it, each with the amount added to the tally and the operation placed
        before: dict[_Point, list[tuple[_Point, int, Timed]]] = {first: []}
        points = [first]
        # the last element stands for the end of the history: there, every point is kept and extended
        for returned, n, i in [*self.returns, (inf, 0, inf)]:
            todo: dict[int, dict[_Point, None]] = {}  # by number of operations
            for point in points:
                todo.setdefault(sum(point[0]), {})[point] = None
            points = []
            while todo:
                for point in todo.pop(min(todo)):
                    is_placed = i != inf and point[0][n] > i
                    if is_placed or i == inf:
                        points.append(point)
                    if is_placed:
                        continue
                    for operation, following in self._following(point, returned):
                        for after, added in zip(following, self._added(point, following), strict=True):
                            tallies[after] = tallies.get(after, 0) | tallies[point] << added
                            before.setdefault(after, []).append((point, added, operation))
                            todo.setdefault(sum(after[0]), {})[after] = None
        ends = [(end, tally) for end in points for tally in _bits(tallies[end])]
        for end, tally in ends:
            if accepts(self.tally.replaced(end[1].state, offset + tally)):
                return Verdict(Result.LINEARIZABLE, _order_with_tally(end, tally, tallies, before))
        states = [self.tally.replaced(end[1].state, offset + tally) for end, tally in ends[:_MOST_STATES]]
        return Verdict(
            Result.NOT_LINEARIZABLE, _order_with_tally(*ends[0], tallies, before), None, tuple(dict.fromkeys(states))
        )

    def _added(self, point: _Point, following: list[_Point]) -> list[int]:
        """Returns, for each of `following`, how much the operation that leads there from `point` adds to the tally."""
        placed, node = point
        n = next(n for n, count in enumerate(following[0][0]) if count != placed[n])  # the lane of the operation
        return node.added[n, placed[n]]

    def _with_coarse_models(self, found: Verdict, coarse_models: Iterable[CoarseModel]) -> Verdict:
        """Returns a verdict NOT_LINEARIZABLE if a coarse model refutes the history; else `found`, a pass's verdict."""
        history, left = [each for lane in self.lanes for each in lane], self.budget
        for model in coarse_models:
            concerned = [each for each in history if model.concerns(each.operation)]
            search = _Search(concerned, model.successors, None, lambda operation: False, left)
            coarse = search.run(model.start)
            if coarse.result is Result.NOT_LINEARIZABLE:
                states = found.states if found.blocked is coarse.blocked else ()
                return Verdict(Result.NOT_LINEARIZABLE, found.order, coarse.blocked, states)
            left -= coarse.steps
        return found

    def _with_reduction(
        self, found: Verdict, begin: tuple[int, _Points], reduction: Reduction, most_points: Sequence[float]
    ) -> Verdict:
        """Returns a verdict NOT_LINEARIZABLE if a search with the reduction refutes the history; otherwise `found`.

        `found` is the verdict of a pass, `begin` the index of a return and all points before this return, and
        `most_points` the maximum number of points that each pass keeps. Raises _OutOfBudget.
        """
        search, verdict = copy.copy(self), found
        search.accepts, search.reduction = None, reduction
        try:
            for most in most_points:
                verdict, begin = search._pass(*begin, most)
                if verdict.result is not Result.UNDECIDED:
                    break
        finally:
            self.steps = search.steps
        return verdict if verdict.result is Result.NOT_LINEARIZABLE else found

    def _pass(self, first: int, points: _Points, most: float) -> tuple[Verdict, tuple[int, _Points]]:
        """Makes a pass from the return with the index `first` on, with all points before this return.

        The pass keeps at most `most` points. If the pass has dropped points and finds no order, the verdict is
        UNDECIDED. Returns the verdict, and where the next pass begins: the first return at which this pass dropped
        points, or `first`, with all points before that return.
        """
        if self.reduction is not None:
            points = self._renewed(points, first)
        begin_next = first, points
        is_exact = True  # no point was dropped
        for at in range(first, len(self.returns)):
            returned, n, i = self.returns[at]
            after, tried = self._extended(points, returned, (n, i))
            if not after:
                result = Result.NOT_LINEARIZABLE if is_exact else Result.UNDECIDED
                return Verdict(result, _order(points), self.lanes[n][i], _states(tried)), begin_next
            if len(after) > most:
                if is_exact:
                    begin_next = at, points
                after = dict(heapq.nsmallest(int(most), after.items(), key=lambda each: each[1].cost))
                is_exact = False
            # renewing merges points, if there is a reduction, and forgets nodes that no point needs
            is_full = len(after) > self.renew_above or len(self.nodes) > _MOST_NODES + 4 * len(after)
            points = self._renewed(after, at + 1) if is_full else after
        at_end, _ = self._extended(points, inf, None)
        ends = {point: path for point, path in at_end.items() if self._accepts(point[1].state)}
        if ends:
            return Verdict(Result.LINEARIZABLE, _order(ends)), begin_next
        result = Result.NOT_LINEARIZABLE if is_exact else Result.UNDECIDED
        return Verdict(result, _order(points), None, _states(at_end)), begin_next

    def _accepts(self, state: Any) -> bool:
        return self.accepts is None or self.accepts(state)

    def _extended(self, points: _Points, limit: float, returning: tuple[int, int] | None) -> tuple[_Points, _Points]:
        """Extends points. Returns the points at which the returning operation is placed, and all points reached.

        `returning` is the lane and index of the returning operation. Operations that were invoked up to the time
        `limit` may be placed before the returning one. If `returning` is None, both results are all points reached,
        including the given ones.
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
                twice_middle, latest = operation.invoked + operation.returned, path.latest
                added = _Path(path.cost + (twice_middle < latest), max(twice_middle, latest), operation, path)
                for each in following:
                    if each not in seen:
                        seen[each] = added
                        todo.append((each, added))
        return done, seen

    def _following(self, point: _Point, limit: float) -> list[tuple[Timed, list[_Point]]]:
        """Returns the operations that can be placed next, with the points after each; if one is a read, only that one.

        Raises _OutOfBudget.
        """
        placed, node = point
        found: list[tuple[Timed, list[_Point]]] = []
        for n, (lane, i) in enumerate(zip(self.lanes, placed, strict=True)):
            if i == len(lane) or lane[i].invoked > limit:
                continue
            if self.steps >= self.budget:
                raise _OutOfBudget
            self.steps += 1
            is_read, after = node.moves.get((n, i)) or self._move(node, n, i)
            if after:
                placed_after = (*placed[:n], i + 1, *placed[n + 1 :])
                extension = lane[i], [(placed_after, each) for each in after]
                if is_read:
                    return [extension]
                found.append(extension)
        return found

    def _move(self, node: _Node, n: int, i: int) -> tuple[bool, list[_Node]]:
        """Executes operation `i` of lane `n` in a node. Returns whether it is a read, and the nodes after it."""
        operation = self.lanes[n][i]
        states = list(self.successors(operation.operation, node.state))
        after = [node if each is node.state else self._node(each) for each in states]
        # an operation that did not return has no recorded outcome: it may change the state
        is_read = bool(after) and operation.returned < inf and self.is_read(operation.operation)
        # the state of a node has the tally 0, so the tally of a state after the operation is the added amount
        if self.tally is not None:
            node.added[n, i] = added = [0] if is_read else [self.tally.of(each) for each in states]
            if min(added, default=0) < 0:
                raise BadValue(f"the tally decreases by {-min(added)} at {operation.operation}: a tally only increases")
        move = node.moves[n, i] = (is_read, [node] if is_read else after)
        return move

    def _node(self, state: Any) -> _Node:
        if self.tally is not None:
            state = self.tally.replaced(state, 0)
        state = self.representative(state)
        node = self.nodes.get(state)
        if node is None:
            node = self.nodes[state] = _Node(state)
        return node

    def _renewed(self, points: _Points, at: int) -> _Points:
        """Forgets all nodes. Returns the points before the return with the index `at`, with new nodes.

        With a reduction, states with the same representative become one node.
        """
        if self.reduction is not None:
            since = self.returns[at][0] if at < len(self.returns) else inf
            history = (each for lane in self.lanes for each in lane)
            self.representative = self.reduction(each.operation for each in history if each.returned >= since)
        self.nodes = {}
        renewed: _Points = {}
        for (placed, node), path in points.items():
            renewed.setdefault((placed, self._node(node.state)), path)
        if self.reduction is not None:
            self.renew_above = 2 * len(renewed)
        return renewed


def _order(points: _Points) -> tuple[Timed, ...]:
    """Returns the operations in the likeliest order among the paths of the points."""
    order, path = list[Timed](), min(points.values(), key=lambda each: each.cost, default=None)
    while path is not None and path.operation is not None:
        order.append(path.operation)
        path = path.before
    return tuple(reversed(order))


def _bits(numbers: int) -> Iterable[int]:
    """Yields the indices of the bits that are set, in increasing order."""
    while numbers:
        lowest = numbers & -numbers
        yield lowest.bit_length() - 1
        numbers ^= lowest


def _order_with_tally(
    point: _Point, tally: int, tallies: dict[_Point, int], before: dict[_Point, list[tuple[_Point, int, Timed]]]
) -> tuple[Timed, ...]:
    """Returns the operations in an order that leads to a point with a tally."""
    order = list[Timed]()
    while before[point]:
        point, tally, operation = next(
            (earlier, tally - added, placed)
            for earlier, added, placed in before[point]
            if tally >= added and tallies[earlier] >> (tally - added) & 1  # `tally - added` is a tally of `earlier`
        )
        order.append(operation)
    return tuple(reversed(order))


def _states(points: _Points) -> tuple[Any, ...]:
    """Returns at most `_MOST_STATES` of the model's states at the points."""
    return tuple(dict.fromkeys(node.state for _, node in points))[:_MOST_STATES]
