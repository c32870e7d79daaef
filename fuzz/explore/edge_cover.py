"""Every transition of an explored graph, run on the implementation from the first state on.

The explorer loads the implementation into each state; here it gets there by itself. Runs go along the tree of
shortest paths to a state that has transitions left, then from transition to transition until none is left there.

What a run shows is replayed with every step checked. A difference that the replay does not show is a finding of the
kind `unstable`; a canonical form that puts states together that are not one is a finding of the kind `canonical`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any, NamedTuple

from fuzz.explore.search import OUTSIDE, Bounded, Graph, NotOneState, Tell
from fuzz.run.generate import Arguments
from fuzz.run.lockstep import HANG_SECONDS, Difference, Finding, Hang, all_but, replay, same, watchdog

#: Progress is told once in so many runs.
_TELL_EVERY = 256
#: Steps for which the watchdog is set once, and the processor time after which they hang.
_LOT = 1024
_HANG_SECONDS = 10.0
_UNSTABLE = "a run along the graph saw a difference that a replay with every step checked does not show"


class Covered(NamedTuple):
    """What came of covering a graph."""

    transitions: int
    runs: int
    steps: int
    finding: Finding | None


def cover(space: Bounded, graph: Graph, tell: Tell | None = None) -> Covered:
    """Runs every transition at least once; ends at the first difference. Cost: some 20 microseconds a step."""
    walker = _Walker(space, graph)
    runs = steps = 0
    for root in range(len(graph.states)):
        while walker.left[root]:
            runs += 1
            finding, taken = walker.run_from(root)
            steps += taken
            if finding is not None:
                return Covered(walker.covered, runs, steps, finding)
            if tell is not None and not runs % _TELL_EVERY:
                tell(walker.covered, len(graph.targets))
    return Covered(walker.covered, runs, steps, None)


class _Walker:
    def __init__(self, space: Bounded, graph: Graph) -> None:
        self.space = space
        self.graph = graph
        #: transitions of each state not yet taken, those that stay in it last, for they are taken from the end
        self.left = [self._order(number) for number in range(len(graph.states))]
        self.covered = 0

    def _order(self, number: int) -> list[int]:
        first, end = self.graph.offsets[number], self.graph.offsets[number + 1]
        rank = {OUTSIDE: 0, number: 2}
        return sorted(range(end - first), key=lambda k: rank.get(self.graph.targets[first + k], 1))

    def run_from(self, root: int) -> tuple[Finding | None, int]:
        """One run: to a state that has transitions left, and on for as long as there are some."""
        run, steps, before = _Run(self.space), self._steps(root), -1
        try:
            while len(run.actions) != before:
                before = len(run.actions)
                with watchdog(_HANG_SECONDS):
                    if not all(run.take(*step) for step in islice(steps, _LOT)):
                        return run.finding(), len(run.actions)
        except NotOneState as problem:
            return problem.finding, len(run.actions)
        except Hang:
            return run.finding(), len(run.actions)
        return None, len(run.actions)

    def _steps(self, root: int) -> Iterator[tuple[Any, int, Any]]:
        """The steps of a run: a state's form, which of its moves is taken, and the form after it, if in the scope."""
        graph = self.graph
        for at, target in pairwise(graph.path(root)):
            first, end = graph.offsets[at], graph.offsets[at + 1]
            yield graph.states[at], graph.targets[first:end].index(target), graph.states[target]
        at = root
        while self.left[at]:
            k = self.left[at].pop()
            self.covered += 1
            target = graph.targets[graph.offsets[at] + k]
            yield graph.states[at], k, None if target == OUTSIDE else graph.states[target]
            if target == OUTSIDE:
                return
            at = target


class _Run:
    """Model and implementation side by side, led through canonical states."""

    def __init__(self, space: Bounded) -> None:
        self.space = space
        self.state = space.machine.start(space.cfg)
        self.body = space.subject.implementation(space.cfg)
        self.actions: list[tuple[str, Arguments]] = []

    def take(self, form: Any, k: int, target: Any) -> bool:
        """Takes what is the k-th move of a canonical state; whether both sides agree on it and after it.

        Raises NotOneState when the canonical state and the one at hand turn out to be two.
        """
        name, after, outcome, arguments = self._move(form, k, target)
        self.state = after
        self.actions.append((name, arguments))
        try:
            theirs = getattr(self.body, name)(*arguments)
            return same(outcome, theirs) and self.body.view() == self.state
        except Exception:
            return False

    def _move(self, form: Any, k: int, target: Any) -> tuple[str, Any, Any, Arguments]:
        """The same move in the state at hand, where what is named on the way may have other names.

        Its name, the state after it, its outcome and its arguments.
        """
        space, canonical, cfg = self.space, self.space.machine.canonical, self.space.cfg
        name, act, _, arguments = space.moves(form)[k]
        if target is None:
            target = canonical(cfg, act(cfg, form, *arguments)[0])
        choice = [arguments]
        if k >= len(space.fixed):
            here = space.moves(self.state)
            choice = [each for other, _, _, each in (*here[k : k + 1], *here[len(space.fixed) :]) if other == name]
        for each in choice:
            after, outcome = act(cfg, self.state, *each)
            if canonical(cfg, after) == target:
                return name, after, outcome, each
        raise NotOneState(space, self.actions, self.state, name, target)

    def finding(self) -> Finding:
        """What is wrong in this run. A walk compares outcomes and views, so no property is asked."""
        space = self.space
        nothing = Finding(space.cfg, tuple(self.actions), Difference("unstable", "walk", _UNSTABLE, None, None))
        return (
            replay(
                space.subject,
                space.cfg,
                self.actions,
                muted=all_but(space.subject, nothing),
                hang_seconds=HANG_SECONDS * (1 + len(self.actions) / 100),
            )
            or nothing
        )
