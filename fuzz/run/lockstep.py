"""Lockstep: seeded traces on model and second side, as fast as possible.

The fast loop compares outcomes at every step, and views and properties at every sixteenth and the last step, because a
wrong state usually stays wrong. At the end of a trace it checks the implementation's structure. One trace in
`COPY_EVERY` is compared exactly at its end (classes and observations), and a second implementation, loaded with the
view of a late step, executes the later calls.

The fast loop only detects that something is wrong. The calls are then replayed with every step checked, to find out
what is wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from fuzz.run.call import Arguments, Call
from fuzz.run.checks import (
    NONE_SKIPPED,
    Check,
    Skipped,
    Values,
    all_but,
    broken_properties,
    checks_for,
    event_of,
    folded,
    is_reached,
)
from fuzz.run.compare import refusal_changed_state, same
from fuzz.run.coverage import Coverage
from fuzz.run.finding import Cause, Difference, Finding, Kind
from fuzz.run.generate import Recipe, Rng, chooser, generate, recipe
from fuzz.run.pair import Copy, ImplementationSide, Side, second_side
from fuzz.run.replay import replay
from fuzz.run.watchdog import Hang, time_limit, watchdog
from fuzz.target import Target
from invariants.properties import Event
from model.machine import Refused

#: The view and the properties are compared at least this often.
CHECK_EVERY = 16
#: One trace in this many is compared exactly, and its last calls also run on a loaded copy of the implementation.
COPY_EVERY = 4


class _Second:
    """The second side in the fast loop; in one trace in `COPY_EVERY` with a copy that is loaded near the end.

    The copy executes its calls after the trace. If it shares state with the original, a comparison then fails.
    """

    def __init__(self, side: Side, plan: Recipe) -> None:
        self.side = side
        self.methods = side.methods
        self.last = plan.steps - 1
        self.copy: Copy | None = None
        self.is_exact = plan.seed % COPY_EVERY == 0
        self.copy_at = self.last - CHECK_EVERY if self.is_exact else -1

    def has_diverged(self, step: int, outcome: Any, theirs: Any, state: Any) -> bool:
        """Returns whether outcome or view differ; the last state of one trace in `COPY_EVERY` is compared exactly."""
        exactly = self.is_exact and step == self.last
        if not self.side.agrees(outcome, theirs) or self.side.difference(state, exactly) is not None:
            return True
        if self.copy is None and step + CHECK_EVERY > self.copy_at >= 0 and isinstance(self.side, ImplementationSide):
            self.copy = Copy(self.side, step + 1)
            self.methods[:] = self.copy.recording(self.methods)
        return False

    def differs_at_end(self, state: Any) -> bool:
        """Returns whether the structure is broken, the copy differs, or the copy's steps changed the original."""
        if self.side.broken_structure() is not None:
            return True
        if not isinstance(self.side, ImplementationSide):
            return False
        if self.copy is None:
            return Copy(self.side, self.last + 1).difference(state, exactly=False) is not None
        return self.copy.difference(state) is not None or self.side.difference(state) is not None


#: A step of the model: the action, its arguments and its outcome.
Taken = tuple[str, Arguments, Any]


class Lockstep:
    """Runs seeds of one target and records their coverage."""

    def __init__(self, target: Target, *, steps: int | None = None) -> None:
        self.target = target
        self.subject = target.subject
        self.steps = steps
        self.coverage = Coverage(target.subject)
        #: properties that are not checked, because an earlier trace violated them: a common violation hides a rare one
        self.skipped: Skipped = NONE_SKIPPED
        #: interval, in steps, at which the view is compared and the properties are checked
        self.check_every = CHECK_EVERY
        self.configs: set[Any] = set()
        #: called after each step with the action's name, its arguments and the model's outcome
        self.record: Callable[[Taken], object] | None = None
        self.last: tuple[Any, Any] = None, None  # config of the last trace, and the state after it
        self._goals_by_selection: dict[tuple[int, ...], list[list[Check]]] = {}

    def check_only(self, property_name: str) -> None:
        """Checks one property and no other, at every step: alone it costs little."""
        self.skipped, self.check_every = all_but(self.subject, property_name), 1

    def run(self, seed: int) -> Finding | None:
        """Runs one seed. Returns a finding, replayed with everything checked, or None. Cost: microseconds a step."""
        self.coverage.traces += 1
        plan, rng = recipe(self.subject, self.target.config, seed, self.steps)
        try:
            with watchdog(time_limit(plan.steps)):
                wrong = self._run(plan, rng)
        except (Hang, Exception):
            wrong = True
        return self._explain(seed) if wrong else None

    def _run(self, plan: Recipe, rng: Rng) -> bool:
        """Runs the trace of a recipe. Returns whether anything is wrong in it."""
        subject, coverage, seed, cfg = self.subject, self.coverage, plan.seed, plan.config
        self.configs.add(cfg)
        target = self.target.drawn(cfg)
        side = second_side(target)
        second = None if side is None else _Second(side, plan)
        methods = None if second is None else second.methods
        checks, open_goals = checks_for(subject, cfg, self.skipped), self._open_goals(cfg)
        folds, values = checks.folds, checks.first_values(cfg)
        choose, abstract = chooser(subject, plan, rng), subject.abstract
        pairs, refused, seen, size = coverage.pairs, coverage.refused, coverage.abstract, len(coverage.actions)
        row, last, every = size * size, plan.steps - 1, self.check_every
        phase = seed % every  # over all seeds, every step of a trace is checked
        state, record, theirs = subject.machine.start(cfg), self.record, None
        step = -1
        try:
            for step in range(plan.steps):
                chosen, arguments = choose(state)
                action = chosen.index
                after, outcome = chosen.run(cfg, state, *arguments)
                if methods is not None:
                    theirs = methods[action](*arguments)
                    if theirs is not outcome and not same(outcome, theirs):
                        return True
                if record is not None:
                    record((chosen.name, arguments, outcome))
                pairs[row + action] += 1
                row = action * size
                if outcome.__class__ is Refused:
                    refused[action] += 1
                    if refusal_changed_state(state, outcome, after):
                        return True
                values_before = values
                if folds[action]:
                    event = event_of(subject, chosen.name, arguments, outcome)
                    values = folded(folds[action], cfg, values, state, event, after)
                if open_goals[action]:
                    event = event_of(subject, chosen.name, arguments, outcome)
                    self._record_reached(open_goals[action], seed, cfg, state, event, after, values_before, values)
                if step % every == phase or step == last:
                    event = event_of(subject, chosen.name, arguments, outcome)
                    broken = broken_properties(checks, cfg, state, event, action, after, values_before, values)
                    diverged = second is not None and second.has_diverged(step, outcome, theirs, after)
                    if diverged or any(True for _ in broken):
                        return True
                    key = abstract(cfg, after)
                    if key not in seen:
                        seen[key] = seed
                state = after
            return second is not None and second.differs_at_end(state)
        finally:
            coverage.steps += step + 1
            self.last = cfg, state

    def _open_goals(self, cfg: Any) -> list[list[Check]]:
        """The coverage goals not reached yet, by the index of the action after which they can be reached."""
        checks = checks_for(self.subject, cfg)
        goals = self._goals_by_selection.get(checks.selected)
        if goals is None:
            reached = self.coverage.goals
            of_states = [goal for goal in checks.state_goals if goal[1].name not in reached]
            goals = [of_states + [g for g in steps if g[1].name not in reached] for steps in checks.step_goals]
            self._goals_by_selection[checks.selected] = goals
        return goals

    def _record_reached(
        self,
        goals: list[Check],
        seed: int,
        cfg: Any,
        before: Any,
        event: Event,
        after: Any,
        values_before: Values,
        values: Values,
    ) -> None:
        """Records the goals that a step reaches, and removes them from the open ones."""
        for goal in list(goals):
            if is_reached(goal, cfg, before, event, after, values_before, values):
                self.coverage.goals.setdefault(goal[1].name, seed)
                for by_action in self._goals_by_selection.values():
                    for each in by_action:
                        if goal in each:
                            each.remove(goal)

    def checked(self, seed: int) -> Finding | None:
        """Replays a seed's calls with everything checked at every step. Returns the first finding, or None."""
        plan, calls = self._trace(seed)
        return replay(self.target.drawn(plan.config), calls, seed=seed, skipped=self.skipped)

    def _explain(self, seed: int) -> Finding:
        """Returns the finding of a seed for which the fast loop detected a difference."""
        finding = self.checked(seed)
        if finding is not None:
            return finding
        plan, calls = self._trace(seed)
        message = "the fast loop found a difference that a replay with every step checked does not show"
        return Finding(plan.config, tuple(calls), Difference(Cause(Kind.UNSTABLE, "replay"), message), seed)

    def _trace(self, seed: int) -> tuple[Recipe, list[Call]]:
        """The recipe of a seed, and its calls; they end where the model raises or hangs."""
        plan, _ = recipe(self.subject, self.target.config, seed, self.steps)
        calls: list[Call] = []
        with contextlib.suppress(Exception, Hang), watchdog(time_limit(plan.steps)):
            calls.extend(generate(self.subject, self.target.config, seed, self.steps))
        return plan, calls
