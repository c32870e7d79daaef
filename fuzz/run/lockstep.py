"""Lockstep: seeded traces on the model and on a second side (`fuzz/run/pair.py`), as fast as possible.

The fast loop compares outcomes at every step. At the *checked* steps, it also compares the second side's state with the
model's, checks the properties, and records the abstract state for the coverage. By default, every 16th step and the
last step are checked, because a wrong state usually stays wrong. With another profile as second side, observations are
compared in place of states.

After the trace, an implementation checks its structural invariants (`check`). Its `view` and `load` are checked, too:
a second instance, the *copy*, is loaded with the state of the first, and the copy's state is compared with the model's.

One trace in `THOROUGH_EVERY` is checked thoroughly. Its initial state is checked, too. There and at the last step, the
comparison with an implementation includes the observations and the classes of all parts. If the trace has more than 16
steps, the copy is loaded during the trace, after the first checked one of the last 32 steps. After the trace, the copy
executes the calls that followed.

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
from fuzz.run.compare import refusal_returned_other_state, same
from fuzz.run.coverage import Coverage
from fuzz.run.finding import Cause, Difference, Finding, Kind
from fuzz.run.generate import KINDS_EVERY, NoCall, Rng, TracePlan, chooser, generate, plan_trace
from fuzz.run.pair import Copy, ImplementationSide, Side, crash_cause, second_side
from fuzz.run.replay import replay
from fuzz.run.watchdog import Hang, time_limit, watchdog
from fuzz.target import Target
from invariants.properties import Event
from model.machine import Refused

#: The default interval, in steps, at which states are compared and properties are checked.
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
    """Returns whether a seed's trace is checked thoroughly. A hash makes this independent of kind and phase."""
    return (seed * 0x9E3779B1 >> 16) % THOROUGH_EVERY == 0


class _Comparison:
    """Compares the second side with the model in the fast loop, and the copy of an implementation after the trace.

    `differs_at_end` compares the second side again after the calls of the copy, because a copy that shares state with
    the second side may have changed this state.
    """

    def __init__(self, side: Side, plan: TracePlan, *, is_thorough: bool) -> None:
        self.side = side
        self.methods = side.methods
        self.last = plan.steps - 1
        self.copy: Copy | None = None
        self.is_thorough = is_thorough
        #: the copy is loaded after the first checked step from this one on; after the trace, if there is no such step
        self.copy_from = self.last - 2 * CHECK_EVERY + 1 if is_thorough and self.last >= CHECK_EVERY else plan.steps

    def has_diverged(self, step: int, outcome: Any, theirs: Any, state: Any) -> bool:
        """Returns whether model and second side differ at a checked step: in their outcomes or in the states after it.

        `theirs` is the second side's outcome. An implementation's outcome must also have parts of the same classes,
        which the fast loop does not compare. Loads the copy at the first checked step from `copy_from` on.
        """
        exactly = self.is_thorough and step == self.last
        if not self.side.agrees(outcome, theirs) or self.side.difference(state, exactly) is not None:
            return True
        if self.copy is None and step >= self.copy_from and isinstance(self.side, ImplementationSide):
            self.copy = Copy(self.side, step + 1)
            self.methods[:] = self.copy.recorded(self.methods)  # in place: the loop calls through this list
        return False

    def differs_at_end(self, state: Any) -> bool:
        """Returns whether the second side's own check fails, the copy differs, or the copy changed the second side.

        If no copy was loaded during the trace, loads one and compares it. Only implementations are copied.
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
ModelStep = tuple[str, Arguments, Any]


class Lockstep:
    """Runs seeds of one target and records their coverage. `steps` replaces the length of every trace."""

    def __init__(self, target: Target, *, steps: int | None = None) -> None:
        self.target = target
        self.subject = target.subject
        self.steps = steps
        self.coverage = Coverage(target.subject)
        #: properties that are not checked. The fast loop ends a trace at its first violation. So callers that look for
        #: violations of other properties add each violated property
        self.skipped: Skipped = NONE_SKIPPED
        #: the interval of the checked steps
        self.check_every = CHECK_EVERY
        #: if set, called with each step, except for a step at which model and second side return different outcomes
        self.record: Callable[[ModelStep], object] | None = None
        #: whether a trace may end early, in a state in which no action can be taken; if not, this is a CRASH finding
        self.may_end_early = False
        #: the config of the latest trace
        self.latest_config: Any = None
        #: the model's state at the end of the latest trace; if a step was wrong, the state before this step
        self.latest_state: Any = None
        #: indices of the properties that apply (`Checks.selected`) -> what `_open_goals` returns
        self._goals_by_selection: dict[tuple[int, ...], list[list[Check]]] = {}

    def check_only(self, property_name: str) -> None:
        """Checks one property only, at every step. If there is a second side, compares states at every step, too."""
        self.skipped, self.check_every = all_but(self.subject, property_name), 1

    def run(self, seed: int) -> Finding | None:
        """Runs the trace of a seed. If anything is wrong, returns the finding of `replay_seed`, otherwise None.

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
        except Exception as problem:
            # the cause if the replay does not show the exception: a replay checks no goals and draws no calls
            function = traceback.extract_tb(problem.__traceback__)[-1].name
            cause, found = crash_cause(function, problem), f"raised {type(problem).__name__}: {problem}"
        finding = self.replay_seed(seed)
        if finding is not None:
            return finding
        message = f"the fast loop {found}, which a replay with every step checked does not show"
        return self.finding_of(seed, Difference(cause, message))

    def _run(self, plan: TracePlan, rng: Rng) -> bool:  # noqa: PLR0912, PLR0915 (the fast loop calls as little as it can)
        """Runs a planned trace. Returns whether anything is wrong. Raises Hang, and what the called code raises."""
        subject, coverage, seed, cfg = self.subject, self.coverage, plan.seed, plan.config
        side = second_side(self.target.with_config(cfg))
        is_thorough = is_checked_thoroughly(seed)
        comparison = None if side is None else _Comparison(side, plan, is_thorough=is_thorough)
        methods = None if comparison is None else comparison.methods
        checks, open_goals = checks_for(subject, cfg, self.skipped), self._open_goals(cfg)
        folds, values = checks.folds, checks.first_values(cfg)
        choose, abstract = chooser(subject, plan, rng), subject.abstract
        pairs, refused, seen, size = coverage.pairs, coverage.refused, coverage.abstract, len(coverage.actions)
        # the first index in `pairs` of the pairs with the previous action
        first_pair, last, every = size * size, plan.steps - 1, self.check_every
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
                pairs[first_pair + action] += 1
                first_pair = action * size
                if outcome.__class__ is Refused:
                    refused[action] += 1
                    if refusal_returned_other_state(state, outcome, after):
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
                    diverged = comparison is not None and comparison.has_diverged(step, outcome, theirs, after)
                    if diverged or any(True for _ in broken):
                        return True
                    key = abstract(cfg, after)
                    if key not in seen:
                        seen[key] = seed
                state = after
            return comparison is not None and comparison.differs_at_end(state)
        except NoCall:
            if not self.may_end_early:
                raise
            step -= 1  # no call was executed at this step
            return False
        finally:
            coverage.steps += step + 1
            self.latest_config, self.latest_state = cfg, state

    def _open_goals(self, cfg: Any) -> list[list[Check]]:
        """Returns for each action the goals that its steps may reach: goals under `cfg` that were not reached yet."""
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

    def replay_seed(self, seed: int) -> Finding | None:
        """Replays a seed's calls with every step checked, but not the skipped properties. Returns the first finding."""
        plan, calls = self._trace(seed)
        return replay(self.target.with_config(plan.config), calls, seed=seed, skipped=self.skipped)

    def finding_of(self, seed: int, difference: Difference) -> Finding:
        """Returns a finding with the calls of `_trace`, for a difference that no replay shows."""
        plan, calls = self._trace(seed)
        return Finding(plan.config, tuple(calls), difference, seed)

    def _trace(self, seed: int) -> tuple[TracePlan, list[Call]]:
        """Returns the plan of a seed's trace, and the trace's calls.

        If the model raises an exception or hangs at a call, this call is the last one.
        """
        plan, _ = plan_trace(self.subject, self.target.config, seed, self.steps)
        calls: list[Call] = []
        with contextlib.suppress(Exception, Hang), watchdog(time_limit(plan.steps)):
            calls.extend(generate(self.subject, self.target.config, seed, self.steps))
        return plan, calls
