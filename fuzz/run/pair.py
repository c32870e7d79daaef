"""Model and second side, step by step: the one comparator of all engines.

Lockstep, replay, shrinking, the explorer, its edge cover, the Hypothesis state machine and recordings choose the next
call. `Pair.step` executes it on both sides and returns the difference, if there is one. A `Depth` selects what it
compares. Every step compares outcomes, and checks that a refused action leaves the state unchanged.

The second side is the component's implementation, the model under another profile, or a foreign program. A pair
without a second side runs the model alone and checks its properties.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from enum import Flag, auto
from typing import Any, Protocol, cast

from fuzz.run.call import Arguments, Call, Calls
from fuzz.run.checks import (
    NONE_SKIPPED,
    Skipped,
    Values,
    broken_properties,
    checks_for,
    event_of,
    folded,
    property_difference,
)
from fuzz.run.compare import (
    exact,
    observation_difference,
    outcome_difference,
    refusal_changed_state,
    same,
    shown,
    state_difference,
    stutter_difference,
)
from fuzz.run.finding import Cause, Difference, Kind, Misbehaved
from fuzz.subject import Subject
from fuzz.target import Second, Target


class Depth(Flag):
    """What a step compares besides outcomes and refusals."""

    OUTCOME = 0
    VIEW = auto()  # the second side's view with the model's state
    EXACT = auto()  # the class of each part of the view, and the observation of the view
    STRUCTURE = auto()  # the implementation's own check
    PROPERTIES = auto()
    STATE = VIEW | STRUCTURE
    ALL = VIEW | EXACT | STRUCTURE | PROPERTIES


_VIEW, _EXACT, _STRUCTURE, _PROPERTIES = (
    each.value for each in (Depth.VIEW, Depth.EXACT, Depth.STRUCTURE, Depth.PROPERTIES)
)
#: Number of states at the end of a trace from which a copy of the implementation is loaded and continues the trace.
LOADED_STEPS = 32


class ImplementationSide:
    """The implementation as second side; its methods by action."""

    def __init__(self, subject: Subject, cfg: Any, state: Any = None) -> None:
        kind = subject.implementation
        self.agrees = exact
        self.subject, self.machine, self.cfg = subject, subject.machine, cfg
        self.instance: Any = kind(cfg) if state is None else kind.load(cfg, state)

    @property
    def methods(self) -> list[Callable[..., Any]]:
        """The methods in the order of the actions, for a loop that takes many steps."""
        return [getattr(self.instance, name) for name in self.machine.actions]

    def act(self, name: str, arguments: Arguments) -> Any:
        """Takes one action. Returns its outcome."""
        return getattr(self.instance, name)(*arguments)

    def difference(self, state: Any, exactly: bool = False) -> Difference | None:
        """Returns how the view differs from the model's state; `exactly` also compares classes and observations."""
        view = self.machine.with_history(self.instance.view(), state)
        different = state_difference(state, view, exact if exactly else same)
        if different is None and exactly:
            ours, theirs = self.machine.observe(self.cfg, state), self.machine.observe(self.cfg, view)
            return observation_difference(ours, theirs, "model and implementation")
        return different

    def broken_structure(self) -> Difference | None:
        """Returns the first problem that the implementation's own check reports, or None."""
        for line in self.instance.check():
            return Difference(
                Cause(Kind.STRUCTURE, line), f"the implementation's structure is broken: {line}", None, line
            )
        return None


class ProfileSide:
    """The model under another profile as second side. Its observations are compared with the model's."""

    def __init__(self, subject: Subject, cfg: Any, against: Any, state: Any = None) -> None:
        self.machine = subject.machine
        self.agrees = same
        self.cfg = cfg
        self.against = against
        self.state = subject.machine.start(against) if state is None else state

    def act(self, name: str, arguments: Arguments) -> Any:
        """Takes one action. Returns its outcome."""
        self.state, outcome = self.machine.actions[name].run(self.against, self.state, *arguments)
        return outcome

    @property
    def methods(self) -> list[Callable[..., Any]]:
        """The actions as methods, in their order, for a loop that takes many steps."""
        return [functools.partial(self._call, name) for name in self.machine.actions]

    def _call(self, name: str, *arguments: Any) -> Any:
        return self.act(name, arguments)

    def difference(self, state: Any, exactly: bool = False) -> Difference | None:  # noqa: ARG002
        """Returns how the observations of the two states differ, or None."""
        machine = self.machine
        return observation_difference(machine.observe(self.cfg, state), machine.observe(self.against, self.state))

    def broken_structure(self) -> Difference | None:
        """None: a model has no structure of its own."""
        return None


class Side(Protocol):
    """A second side."""

    def agrees(self, outcome: Any, theirs: Any, /) -> bool:
        """Whether the model's outcome and the side's are the same."""

    @property
    def methods(self) -> list[Callable[..., Any]]:
        """The actions in their order, for a loop that takes many steps."""

    def act(self, name: str, arguments: Arguments) -> Any:
        """Takes one action. Returns its outcome."""

    def difference(self, state: Any, exactly: bool = False) -> Difference | None:
        """Returns how the side's state differs from the model's, or None."""

    def broken_structure(self) -> Difference | None:
        """Returns the first problem that the side's own check reports, or None."""


def second_side(target: Target, state: Any = None, second: Second | None = None) -> Side | None:
    """The second side of a target, in its first state or in the given one; None if the model runs alone.

    `second` is `target.second`, for callers that have computed it.
    """
    if second is None:
        second = target.second
    if second is Second.IMPLEMENTATION:
        return ImplementationSide(target.subject, target.config, state)
    if second is Second.PROFILE:
        return ProfileSide(target.subject, target.config, target.against, state)
    if second is Second.PROGRAM:
        program: Side = target.program.side(target.subject, target.config)
        return program
    return None


class Pair:
    """Model and second side of a target, from the first state on.

    `state` and `outcome` are the model's after the last step, `other_outcome` the second side's. An exception in the
    second side's constructor is the difference of the first step. `start` replaces the initial state. Without
    `fold_history` history variables keep their initial values, for steps from states that no trace led to.
    """

    def __init__(
        self, target: Target, skipped: Skipped = NONE_SKIPPED, *, start: Any = None, fold_history: bool = True
    ) -> None:
        self.target = target
        self.cfg = target.config
        self.subject = target.subject
        self.checks = checks_for(self.subject, self.cfg, skipped)
        self.values: Values = self.checks.first_values(self.cfg)
        self.outcome: Any = None
        self.other_outcome: Any = None
        self._actions = {each.name: (each.run, i) for i, each in enumerate(self.subject.machine.actions.values())}
        self._problem: Difference | None = None
        self.side: Side | None = None
        self.state = self.subject.machine.start(self.cfg) if start is None else start
        self._folds = self.checks.folds if fold_history else ((),) * len(self._actions)
        try:
            self.second = target.second
            self.side = second_side(target, start, self.second)
        except Exception as problem:
            self._problem = crash("second side", "start", problem)

    def load(self, state: Any) -> None:
        """Puts both sides into a state of the model. An exception in `load` is the difference of the next step."""
        self.state, self._problem = state, None
        try:
            self.side = second_side(self.target, state, self.second)
        except Exception as problem:
            self._problem = crash("second side", "load", problem)

    def step(self, call: Call, depth: Depth = Depth.ALL) -> Difference | None:
        """Executes a call on both sides. Returns the first difference, or None."""
        if self._problem is not None:
            return self._problem
        action, arguments = call
        run, index = self._actions[action]
        before, wanted, self.outcome, self.other_outcome = self.state, depth._value_, None, None
        who = "model"
        try:
            after, outcome = run(self.cfg, before, *arguments)
            self.state, self.outcome = after, outcome
            who = "second side"
            side = self.side
            if side is not None:
                self.other_outcome = theirs = side.act(action, arguments)
                if not side.agrees(outcome, theirs) and not self._takes_another_step(side, before, call):
                    return outcome_difference(action, outcome, theirs)
                after, outcome = self.state, self.outcome
            if refusal_changed_state(before, outcome, after):
                return stutter_difference(action, before, after)
            if side is not None:
                different = side.difference(after, wanted & _EXACT != 0) if wanted & _VIEW else None
                if different is None and wanted & _STRUCTURE:
                    different = side.broken_structure()
                if different is not None:
                    return different
            folds = self._folds[index]
            if folds or wanted & _PROPERTIES:
                who = "property"
                event, values = event_of(self.subject, action, arguments, outcome), self.values
                if folds:
                    self.values = folded(folds, self.cfg, values, before, event, after)
                if wanted & _PROPERTIES:
                    for each in broken_properties(
                        self.checks, self.cfg, before, event, index, after, values, self.values
                    ):
                        return property_difference(each)
        except Exception as problem:
            return crash(who, action, problem)
        return None

    def _takes_another_step(self, side: Side, before: Any, call: Call) -> bool:
        """Takes another allowed step of the model with the second side's outcome. Returns whether there is one."""
        for state, outcome in self.subject.machine.alternatives(self.cfg, before, *call):
            if side.agrees(outcome, self.other_outcome):
                self.state, self.outcome = state, outcome
                return True
        return False


class Copy:
    """An implementation loaded with the original's view during a trace. It executes the later calls after the trace.

    If it then differs from the model, `load` has dropped state, or has shared state that it should have copied.
    """

    def __init__(self, side: ImplementationSide, loaded_after: int) -> None:
        self.loaded_after = loaded_after
        self.side = ImplementationSide(side.subject, side.cfg, side.instance.view())
        self.steps: list[tuple[str, Arguments, Any]] = []

    def recorded(self, methods: list[Callable[..., Any]]) -> list[Callable[..., Any]]:
        """Returns the original's methods, wrapped to record each call as a step of the copy."""

        def recorded(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                outcome = method(*arguments)
                self.steps.append((name, arguments, outcome))
                return outcome

            return call

        return [recorded(name, method) for name, method in zip(self.side.machine.actions, methods, strict=True)]

    def difference(self, state: Any, exactly: bool = True) -> Difference | None:
        """Executes the recorded steps. Returns how an outcome or the last state differs, or None."""
        action = "state"
        try:
            for action, arguments, outcome in self.steps:
                theirs = self.side.act(action, arguments)
                if not same(outcome, theirs):
                    return self._wrong(action, "returns another outcome", shown(outcome), shown(theirs))
            different = self.side.difference(state, exactly) or self.side.broken_structure()
        except Exception as problem:
            return self._wrong(action, f"raises {type(problem).__name__}: {problem}", None, None)
        if different is None:
            return None
        return self._wrong("state", f"differs at the end: {different.message}", different.expected, different.actual)

    def _wrong(self, what: str, how: str, expected: Any, actual: Any) -> Difference:
        message = f"an implementation loaded after call {self.loaded_after} executed the later calls: {what} {how}"
        return Difference(Cause(Kind.LOAD, what), message, expected, actual)


def load_difference(target: Target, calls: Calls) -> Difference | None:
    """Returns how a copy loaded in one of the last states of a trace differs after the later calls, or None.

    A change of the original by the copies' calls is also a difference: they share state.
    """
    if target.second is not Second.IMPLEMENTATION:
        return None
    pair, copies, different = Pair(target, fold_history=False), list[Copy](), None
    for count, call in enumerate((*calls, None)):
        if count >= len(calls) - LOADED_STEPS:
            try:
                copies.append(Copy(cast(ImplementationSide, pair.side), count))
            except Exception as problem:
                return Difference(Cause(Kind.LOAD, "load"), f"load raised {type(problem).__name__}: {problem}")
        if call is not None:
            different = pair.step(call.copy(), Depth.STRUCTURE)
            if different is not None:
                break
            for each in copies:
                each.steps.append((call.action, call.copy().arguments, pair.outcome))
    for each in copies if different is None else ():
        different = different or each.difference(pair.state)
    if different is None:
        different = cast(ImplementationSide, pair.side).difference(pair.state)
    return different and different._replace(cause=Cause(Kind.LOAD, different.cause.what))


def crash(who: str, action: str, problem: Exception) -> Difference:
    """The difference for an exception in the model, the second side or a property."""
    if isinstance(problem, Misbehaved):
        return problem.difference
    function = traceback.extract_tb(problem.__traceback__)[-1].name
    message = f"{action} raised {type(problem).__name__}: {problem} (in {function})"
    return Difference(Cause(Kind.CRASH, f"{action} {type(problem).__name__}"), message, None, f"{who}: {problem!r}")
