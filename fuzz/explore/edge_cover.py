"""Runs every transition of an explored graph on the implementation, in traces from the initial state.

The explorer loads the implementation with each state; here the implementation reaches each state by actions. Each trace
(a *run*) follows a shortest path to a state with untaken transitions, then takes untaken transitions. The run ends in a
state that has no untaken transition, was not expanded, or is outside the scope's bounds. Under a profile with other
rules than the reference's, the model runs alone. If a hang has ended the search, only the transitions of the expanded
states are covered.

Runs also check the properties that take history variables, which the search does not check. The values of these
variables depend on the trace that leads to a state; only their values on the runs are checked.

A difference or hang is replayed with every step checked. If the replay does not show it, the finding is of the kind
`unstable`. If a state lacks a step that its canonical form has, the finding is of the kind `canonical`: the canonical
form merges different states.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any, NamedTuple

from fuzz.explore.search import OUTSIDE, Graph, MergedStates, Progress, Space
from fuzz.run.call import Call
from fuzz.run.checks import Skipped
from fuzz.run.finding import Cause, Difference, Finding, Kind
from fuzz.run.pair import Depth, Pair
from fuzz.run.replay import replay
from fuzz.run.watchdog import Hang, watchdog
from fuzz.subject import Subject

#: Progress is reported once in this many runs.
_PROGRESS_EVERY = 256
#: The watchdog is set once for this many steps. If they take `_HANG_SECONDS` of processor time, a step has hung.
_STEPS_PER_WATCHDOG = 1024
_HANG_SECONDS = 10.0
_UNSTABLE = "a run along the graph saw a difference or a hang that a replay with every step checked does not show"


class Covered(NamedTuple):
    """The result of covering a graph."""

    transitions: int  # number of covered transitions
    runs: int
    steps: int
    finding: Finding | None  # the first finding, which ends the cover


def cover(space: Space, graph: Graph, progress: Progress | None = None) -> Covered:
    """Executes every transition of a graph at least once, or up to the first finding.

    `progress` receives the numbers of covered and of all transitions. Cost: about 20 microseconds a step.
    """
    walker = _Walker(space, graph)
    runs = steps = 0
    for root in range(len(walker.left)):
        while walker.left[root]:
            runs += 1
            finding, taken = walker.run_from(root)
            steps += taken
            if finding is not None:
                return Covered(walker.covered, runs, steps, finding)
            if progress is not None and not runs % _PROGRESS_EVERY:
                progress(walker.covered, len(graph.targets))
    return Covered(walker.covered, runs, steps, None)


class _Walker:
    """Executes the runs. Keeps the untaken transitions."""

    def __init__(self, space: Space, graph: Graph) -> None:
        self.space = space
        self.graph = graph
        #: the untaken transitions of each expanded state, as indices among its moves. Runs take them from the end of
        #: the list: self-loops first, OUTSIDE last
        self.left = [self._order(number) for number in range(len(graph.offsets) - 1)]
        self.covered = 0

    def _order(self, number: int) -> list[int]:
        """Returns the indices of a state's transitions, in the order of `left`."""
        first, end = self.graph.offsets[number], self.graph.offsets[number + 1]
        rank = {OUTSIDE: 0, number: 2}
        return sorted(range(end - first), key=lambda index: rank.get(self.graph.targets[first + index], 1))

    def run_from(self, root: int) -> tuple[Finding | None, int]:
        """Executes a run that begins with a shortest path to `root`. Returns its finding or None, and its length."""
        run, steps, before, agrees = _Run(self.space), self._steps(root), -1, True
        try:
            while agrees and len(run.calls) != before:  # until `steps` yields no further step
                before = len(run.calls)
                with watchdog(_HANG_SECONDS):
                    agrees = all(run.take(*step) for step in islice(steps, _STEPS_PER_WATCHDOG))
        except MergedStates as problem:
            return problem.finding, len(run.calls)
        except Hang:
            agrees = False
        return None if agrees else run.finding(), len(run.calls)

    def _steps(self, root: int) -> Iterator[tuple[Any, int, Any]]:
        """Yields the steps of a run: canonical state, index of a move, next canonical state.

        The next state is None if it is outside the bounds. Removes the transitions after `root` from `left`, but not
        those of the path to `root`.
        """
        graph = self.graph
        for source, target in pairwise(graph.path(root)):
            first, end = graph.offsets[source], graph.offsets[source + 1]
            yield graph.states[source], graph.targets[first:end].index(target), graph.states[target]
        source = root
        while self.left[source]:
            index = self.left[source].pop()
            self.covered += 1
            target = graph.targets[graph.offsets[source] + index]
            yield graph.states[source], index, None if target == OUTSIDE else graph.states[target]
            if target == OUTSIDE or target >= len(self.left):
                return
            source = target


class _Run:
    """A run of model and implementation along canonical states. Every step compares outcomes and views."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.skipped = properties_without_history(space.subject)
        self.pair = Pair(space.target, self.skipped)
        self.depth = Depth.VIEW | Depth.PROPERTIES if self.pair.checks.histories else Depth.VIEW
        self.calls: list[Call] = []

    def take(self, form: Any, index: int, target: Any) -> bool:
        """Takes the step that corresponds to a move of the state's canonical form.

        `form` is the canonical form, `index` the index of the move there, `target` the canonical form of the next
        state, or None if it is outside the scope. Returns whether both sides agree, and no property with history
        variables is violated. Raises MergedStates if there is no such step.
        """
        call = self._call(form, index, target)
        self.calls.append(call)
        return self.pair.step(call, self.depth) is None

    def _call(self, form: Any, index: int, target: Any) -> Call:
        """Returns the call that `take` executes: the move with the generated names of the state that was reached."""
        space, canonical, cfg, state = self.space, self.space.machine.canonical, self.space.cfg, self.pair.state
        name, act, _, arguments = space.moves(form)[index]
        if target is None:
            target = canonical(cfg, act(cfg, form, *arguments)[0])
        candidates = [arguments]  # a fixed move has the same arguments in every state
        if index >= len(space.fixed_moves):  # any other move: the one with the same index is tried first
            here = space.moves(state)
            candidates = [
                each
                for other, _, _, each in (*here[index : index + 1], *here[len(space.fixed_moves) :])
                if other == name
            ]
        for each in candidates:
            try:
                if canonical(cfg, act(cfg, state, *each)[0]) == target:
                    return Call(name, each)
            except Exception:
                return Call(name, each)  # the pair's step reports the exception of the model
        raise MergedStates(space, self.calls, state, name, target)

    def finding(self) -> Finding:
        """Returns the finding of a replay of the run's calls; an UNSTABLE finding if the replay shows nothing."""
        space = self.space
        again = replay(space.target, self.calls, skipped=self.skipped)
        unstable = Difference(Cause(Kind.UNSTABLE, "cover"), _UNSTABLE)
        return again or Finding(space.cfg, tuple(self.calls), unstable)


def properties_without_history(subject: Subject) -> Skipped:
    """Returns the names of the properties without history variables, which the search checks."""
    return frozenset(p.name for p in subject.properties if not p.histories)
