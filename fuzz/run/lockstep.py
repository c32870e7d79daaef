"""Lockstep: seeded traces on the model and on a second side (`fuzz/run/pair.py`), as fast as possible.

The fast loop compares outcomes at every step. At every 16th step and at the last (the *checked* steps), it compares the
second side's state with the model's and checks the properties, because a wrong state usually stays wrong. At the end of
a trace, it runs the implementation's own check, loads a copy of the implementation with the implementation's state, and
compares the copy's state with the model's.

One trace in `THOROUGH_EVERY` is checked thoroughly. Its initial state is compared and checked, too. At its last step,
the observations and the classes of all parts of the states are compared, too. The copy is loaded up to 32 steps before
the last step; after the trace, the copy executes the calls that followed. In a trace of at most 16 steps, the copy is
loaded at the end.

The fast loop only detects that something is wrong. A replay with every step checked finds out what is wrong.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from typing import Any

from fuzz.run.call import Arguments, Call
from fuzz.run.checks import (
    NONE_SKIPPED,
    Check,
    Checks,
    Skipped,
    Values,
    all_but,
    broken_properties,
    checks_for,
    event_of,
    false_in_state,
    folded,
    is_reached,
)
from fuzz.run.compare import refusal_changed_state, same
from fuzz.run.coverage import Coverage
from fuzz.run.finding import Cause, Difference, Finding, Kind
from fuzz.run.generate import KINDS_EVERY, NoCall, Rng, TracePlan, chooser, generate, plan_trace
from fuzz.run.pair import Copy, ImplementationSide, Side, crash_cause, second_side
from fuzz.run.replay import replay
from fuzz.run.watchdog import Hang, time_limit, watchdog
from fuzz.target import Target
from invariants.properties import Event
from model.machine import Refused

#: The interval, in steps, at which states are compared and properties are checked.
CHECK_EVERY = 16
#: One trace in this many is checked thoroughly.
THOROUGH_EVERY = 4


def phase_of(seed: int, every: int) -> int:
    """Returns the phase of a seed's trace: a step is checked if step % every is the phase.

    The kind of a trace depends on seed % KINDS_EVERY (`fuzz/run/generate.py`). Adding seed // KINDS_EVERY gives the
    seeds of each kind all phases.
    """
    return (seed + seed // KINDS_EVERY) % every


def is_checked_thoroughly(seed: int) -> bool:
    """Returns whether a seed's trace is checked thoroughly. A hash decides, independently of its kind and phase."""
    return (seed * 0x9E3779B1 >> 16) % THOROUGH_EVERY == 0


class _SecondSide:
    """A second side in the fast loop, and the copy that is loaded near the end of a thoroughly checked trace.

    The copy executes its calls after the trace. If the copy shares state with the second side, a later comparison
    fails.
    """

    def __init__(self, side: Side, plan: TracePlan, *, is_thorough: bool) -> None:
        self.side = side
        self.methods = side.methods
        self.last = plan.steps - 1
        self.copy: Copy | None = None
        self.is_thorough = is_thorough
        #: the copy is loaded at the first checked step from this one on
        self.copy_from = self.last - 2 * CHECK_EVERY + 1 if is_thorough and self.last >= CHECK_EVERY else plan.steps

    def has_diverged(self, step: int, outcome: Any, theirs: Any, state: Any) -> bool:
        """Returns whether, at a checked step, the outcomes differ in value or class, or the states after it differ.

        `theirs` is the second side's outcome. Loads the copy at the first checked step from `copy_from` on.
        """
        exactly = self.is_thorough and step == self.last
        if not self.side.agrees(outcome, theirs) or self.side.difference(state, exactly) is not None:
            return True
        if self.copy is None and step >= self.copy_from and isinstance(self.side, ImplementationSide):
            self.copy = Copy(self.side, step + 1)
            self.methods[:] = self.copy.recording(self.methods)  # in place: the loop calls through this list
        return False

    def differs_at_end(self, state: Any) -> bool:
        """Returns whether the second side's own check fails, the copy differs, or its calls changed the second side.

        If there is no copy yet, one is loaded and compared at once. Only implementations are copied.
        """
        if self.side.broken_structure() is not None:
            return True
        if not isinstance(self.side, ImplementationSide):
            return False
        if self.copy is None:
            return Copy(self.side, self.last + 1).difference(state, exactly=False) is not None
        return self.copy.difference(state) is not None or self.side.difference(state) is not None


def _is_wrong_at_start(checks: Checks, cfg: Any, state: Any, values: Values, side: Side | None) -> bool:
    """Returns whether a property is false in the initial state, or an implementation's view differs from this state."""
    if any(True for _ in false_in_state(checks, cfg, state, values)):
        return True
    return isinstance(side, ImplementationSide) and side.difference(state, exactly=True) is not None


#: A step of the model: the action, its arguments and its outcome.
Taken = tuple[str, Arguments, Any]


class Lockstep:
    """Runs seeds of one target and records their coverage. `steps` replaces the length of every trace."""

    def __init__(self, target: Target, *, steps: int | None = None) -> None:
        self.target = target
        self.subject = target.subject
        self.steps = steps
        self.coverage = Coverage(target.subject)
        #: properties that are not checked. A caller adds each violated property, because a violation hides later ones
        self.skipped: Skipped = NONE_SKIPPED
        #: the interval of the checked steps
        self.check_every = CHECK_EVERY
        #: if set, called with each step whose outcomes are equal
        self.record: Callable[[Taken], object] | None = None
        #: whether a trace may end in a state in which no action can be taken; otherwise such a state is a crash
        self.may_end_early = False
        #: the config of the latest trace, and the model's state at its end
        self.last: tuple[Any, Any] = None, None
        self._goals_by_selection: dict[tuple[int, ...], list[list[Check]]] = {}

    def check_only(self, property_name: str) -> None:
        """Restricts the checks to one property, and to every step. States are then compared at every step, too."""
        self.skipped, self.check_every = all_but(self.subject, property_name), 1

    def run(self, seed: int) -> Finding | None:
        """Runs the trace of a seed. Returns None, or if anything is wrong, what a replay with everything checked finds.

        If the replay shows nothing, the finding is UNSTABLE, or a CRASH if the fast loop raised an exception.
        """
        self.coverage.traces += 1
        plan, rng = plan_trace(self.subject, self.target.config, seed, self.steps)
        cause, found = Cause(Kind.UNSTABLE, "difference"), "found a difference"
        try:
            with watchdog(time_limit(plan.steps)):
                if not self._run(plan, rng):
                    return None
        except Hang:
            cause, found = Cause(Kind.UNSTABLE, "hang"), f"took more than {time_limit(plan.steps):g} s"
        except Exception as problem:  # perhaps of code that a replay does not run: the generation of calls, a goal
            function = traceback.extract_tb(problem.__traceback__)[-1].name
            cause, found = crash_cause(function, problem), f"raised {type(problem).__name__}: {problem}"
        finding = self.checked(seed)
        if finding is not None:
            return finding
        message = f"the fast loop {found}, which a replay with every step checked does not show"
        return self.finding_of(seed, Difference(cause, message))

    def _run(self, plan: TracePlan, rng: Rng) -> bool:  # noqa: PLR0912, PLR0915 (the fast loop calls as little as it can)
        """Runs a planned trace. Returns whether anything is wrong. Raises Hang, and what the code under test raises."""
        subject, coverage, seed, cfg = self.subject, self.coverage, plan.seed, plan.config
        side = second_side(self.target.with_config(cfg))
        is_thorough = is_checked_thoroughly(seed)
        second = None if side is None else _SecondSide(side, plan, is_thorough=is_thorough)
        methods = None if second is None else second.methods
        checks, open_goals = checks_for(subject, cfg, self.skipped), self._open_goals(cfg)
        folds, values = checks.folds, checks.first_values(cfg)
        choose, abstract = chooser(subject, plan, rng), subject.abstract
        pairs, refused, seen, size = coverage.pairs, coverage.refused, coverage.abstract, len(coverage.actions)
        row, last, every = size * size, plan.steps - 1, self.check_every
        phase = phase_of(seed, every)
        state, record, theirs, step = subject.machine.start(cfg), self.record, None, -1
        try:
            if is_thorough and _is_wrong_at_start(checks, cfg, state, values, side):
                return True
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
        except NoCall:
            if not self.may_end_early:
                raise
            step -= 1
            return False
        finally:
            coverage.steps += step + 1
            self.last = cfg, state

    def _open_goals(self, cfg: Any) -> list[list[Check]]:
        """Returns for each action the coverage goals that apply under a config and were not reached yet."""
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
        """Records the goals that a step reaches, and removes them from the open goals of all configs."""
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
        return replay(self.target.with_config(plan.config), calls, seed=seed, skipped=self.skipped)

    def finding_of(self, seed: int, difference: Difference) -> Finding:
        """Returns a finding with all calls of a seed, for a difference that no replay shows."""
        plan, calls = self._trace(seed)
        return Finding(plan.config, tuple(calls), difference, seed)

    def _trace(self, seed: int) -> tuple[TracePlan, list[Call]]:
        """Returns the plan of a seed's trace and its calls, up to one at which the model raises or hangs."""
        plan, _ = plan_trace(self.subject, self.target.config, seed, self.steps)
        calls: list[Call] = []
        with contextlib.suppress(Exception, Hang), watchdog(time_limit(plan.steps)):
            calls.extend(generate(self.subject, self.target.config, seed, self.steps))
        return plan, calls
