"""Model and second side, step by step: the comparator that explains a difference.

The second side is what the model is compared with: the component's implementation (or a mutant of it), the model under
another profile, or a foreign program. A pair without a second side runs the model alone and checks its properties.

`Pair.step` executes a call on both sides and returns the difference, if there is one. A `Depth` selects what the step
compares. Every step compares outcomes, and checks that the model returns the same state object for a refused action.

Replay, shrinking, edge cover, the Hypothesis state machine and recordings use pairs. The fast loops of lockstep, of the
explorer and of `sut` only detect that something differs; the calls are then repeated on a pair.
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
    false_in_state,
    folded,
    property_difference,
)
from fuzz.run.compare import (
    as_data,
    exact,
    observation_difference,
    outcome_difference,
    refusal_returned_other_state,
    same,
    state_difference,
    stutter_difference,
)
from fuzz.run.finding import Cause, Difference, Kind, Misbehaved
from fuzz.subject import Subject
from fuzz.target import Second, Target


class Depth(Flag):
    """What a step compares or checks besides outcomes and refusals."""

    OUTCOME = 0
    VIEW = auto()  # the model's state and the implementation's view; for another second side, the two observations
    EXACT = auto()  # with VIEW, for an implementation: also the classes of all parts, and the two observations
    STRUCTURE = auto()  # the structural invariants: the implementation's own check
    PROPERTIES = auto()
    STATE = VIEW | STRUCTURE
    ALL = VIEW | EXACT | STRUCTURE | PROPERTIES


#: The flags as integers, because operations on flags are slow.
_VIEW, _EXACT, _STRUCTURE, _PROPERTIES = (
    each.value for each in (Depth.VIEW, Depth.EXACT, Depth.STRUCTURE, Depth.PROPERTIES)
)
#: `load_difference` loads a copy of the implementation before each of this many last calls.
LOADED_STEPS = 32


class ImplementationSide:
    """The implementation as second side: an instance in its initial state, or loaded with a given state.

    Each action is executed by the instance's method of the same name.
    """

    def __init__(self, subject: Subject, cfg: Any, state: Any = None) -> None:
        implementation = subject.implementation
        self.agrees = exact
        self.subject, self.machine, self.cfg = subject, subject.machine, cfg
        self.instance: Any = implementation(cfg) if state is None else implementation.load(cfg, state)

    @property
    def methods(self) -> list[Callable[..., Any]]:
        """The bound methods in the order of the actions, so that a fast loop looks up no names."""
        return [getattr(self.instance, name) for name in self.machine.actions]

    def act(self, name: str, arguments: Arguments) -> Any:
        """Takes one action. Returns its outcome."""
        return getattr(self.instance, name)(*arguments)

    def difference(self, state: Any, exactly: bool = False) -> Difference | None:
        """Returns how the view differs from the model's state, or None.

        With `exactly`, the classes of all parts, and the observations of state and view, must be equal, too.
        """
        view = self.machine.with_history(self.instance.view(), state)
        different = state_difference(state, view, exact if exactly else same)
        if different is None and exactly:
            ours, theirs = self.machine.observe(self.cfg, state), self.machine.observe(self.cfg, view)
            return observation_difference(ours, theirs, "model and implementation")
        return different

    def broken_structure(self) -> Difference | None:
        """Returns the first violation of a structural invariant that the implementation reports, or None."""
        for line in self.instance.check():
            message = f"the implementation violates a structural invariant: {line}"
            return Difference(Cause(Kind.STRUCTURE, line), message, None, line)
        return None


class ProfileSide:
    """The model under another profile as second side.

    Observations are compared in place of states, because the states of two profiles may have different forms.
    """

    def __init__(self, subject: Subject, cfg: Any, other_config: Any, state: Any = None) -> None:
        self.machine = subject.machine
        self.agrees = same
        self.cfg = cfg
        self.other_config = other_config
        self.state = subject.machine.start(other_config) if state is None else state

    def act(self, name: str, arguments: Arguments) -> Any:
        """Takes one action. Returns its outcome."""
        self.state, outcome = self.machine.actions[name].run(self.other_config, self.state, *arguments)
        return outcome

    @property
    def methods(self) -> list[Callable[..., Any]]:
        """The actions as functions of their arguments, in the machine's order."""
        return [functools.partial(self._call, name) for name in self.machine.actions]

    def _call(self, name: str, *arguments: Any) -> Any:
        return self.act(name, arguments)

    def difference(self, state: Any, exactly: bool = False) -> Difference | None:  # noqa: ARG002
        """Returns how the observations of the two states differ, or None. `exactly` is ignored."""
        machine = self.machine
        return observation_difference(machine.observe(self.cfg, state), machine.observe(self.other_config, self.state))

    def broken_structure(self) -> Difference | None:
        """Returns None: a model has no structural invariants of its own."""
        return None


class Side(Protocol):
    """A second side. Its methods may raise Misbehaved, and any exception of an implementation or a model."""

    def agrees(self, outcome: Any, theirs: Any, /) -> bool:
        """Returns whether the side's outcome (`theirs`) equals the model's.

        What the side cannot represent, such as a class, is not compared.
        """

    @property
    def methods(self) -> list[Callable[..., Any]]:
        """The actions as functions of their arguments, in the machine's order, for the fast loop of lockstep."""

    def act(self, name: str, arguments: Arguments) -> Any:
        """Takes one action. Returns its outcome."""

    def difference(self, state: Any, exactly: bool = False) -> Difference | None:
        """Returns how the side's state differs from the model's, or None."""

    def broken_structure(self) -> Difference | None:
        """Returns the first violation of a structural invariant that the side reports, or None."""


def second_side(target: Target, state: Any = None, second: Second | None = None) -> Side | None:
    """Returns the second side of a target, in its initial state or in the given one; None if the model runs alone.

    `second` is `target.second`, for callers that have computed it. Raises ValueError if a state is given and the second
    side is a program, and what the implementation's constructor or `load` raises.
    """
    if second is None:
        second = target.second
    if second is Second.IMPLEMENTATION:
        return ImplementationSide(target.subject, target.config, state)
    if second is Second.PROFILE:
        return ProfileSide(target.subject, target.config, target.other_config, state)
    if second is Second.PROGRAM:
        if state is not None:
            raise ValueError("a program cannot be loaded with a state")
        program: Side = target.program.side(target.subject, target.config)
        return program
    return None


class Pair:
    """The model and the second side of a target, from the initial state or from `start` on.

    `state` and `outcome` are those of the model after the latest step, `values` has the values of the properties'
    history variables after this step, and `other_outcome` is the second side's outcome. Properties in `skipped` are not
    checked. An exception of the second side's constructor or `load` is the difference of every step. With
    `fold_history=False`, for callers that check no property with history variables, `values` keeps the initial values.
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
        self._is_unchecked = start is None  # whether the next step begins with a check of the initial state
        self.side: Side | None = None
        self.state = self.subject.machine.start(self.cfg) if start is None else start
        self._folds = self.checks.folds if fold_history else ((),) * len(self._actions)
        try:
            self.second = target.second
            self.side = second_side(target, start, self.second)
        except Exception as problem:
            self._problem = crash(_SECOND, "start" if start is None else "load", problem)

    def load(self, state: Any) -> None:
        """Puts both sides into a state of the model. `values` is unchanged.

        If the second side's `load` raises an exception, this exception is the difference of every later step.
        """
        self.state, self._problem, self._is_unchecked = state, None, False
        try:
            self.side = second_side(self.target, state, self.second)
        except Exception as problem:
            self._problem = crash(_SECOND, "load", problem)

    def step(self, call: Call, depth: Depth = Depth.ALL) -> Difference | None:
        """Executes a call on both sides, and compares and checks what `depth` selects. Returns the first difference.

        The first step from the initial state begins with a check of this state, as deep as `depth`. The call is not
        executed if this check fails, or if the second side's constructor or `load` has raised an exception. After a
        difference, the two sides may be in different states, until `load` is called. Raises KeyError for an unknown
        action.
        """
        different = self._initial_difference(depth._value_) if self._is_unchecked else self._problem
        if different is not None:
            return different
        action, arguments = call
        run, index = self._actions[action]
        before, wanted, self.outcome, self.other_outcome = self.state, depth._value_, None, None
        who = _MODEL
        try:
            after, outcome = run(self.cfg, before, *arguments)
            self.state, self.outcome = after, outcome
            side = self.side
            if side is not None:
                who = _SECOND
                self.other_outcome = theirs = side.act(action, arguments)
                if not side.agrees(outcome, theirs):
                    return outcome_difference(action, outcome, theirs)
                who = _MODEL
            if refusal_returned_other_state(before, outcome, after):
                return stutter_difference(action, before, after)
            if side is not None:
                who = _VIEW_OR_CHECK
                different = side.difference(after, wanted & _EXACT != 0) if wanted & _VIEW else None
                if different is None and wanted & _STRUCTURE:
                    different = side.broken_structure()
                if different is not None:
                    return different
            folds = self._folds[index]
            if folds or wanted & _PROPERTIES:
                who = _PROPERTY
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

    def _initial_difference(self, wanted: int) -> Difference | None:
        """Returns the difference for an exception of the second side's constructor, or else of the initial state.

        Returns None if there is neither. `wanted` is the value of a `Depth`. View and structure are checked for an
        implementation only.
        """
        self._is_unchecked = False
        side, different, who = self.side, self._problem, _VIEW_OR_CHECK
        if different is not None:
            return different
        try:
            if isinstance(side, ImplementationSide):
                different = side.difference(self.state, wanted & _EXACT != 0) if wanted & _VIEW else None
                if different is None and wanted & _STRUCTURE:
                    different = side.broken_structure()
            if different is None and wanted & _PROPERTIES:
                who = _PROPERTY
                for each in false_in_state(self.checks, self.cfg, self.state, self.values):
                    different = property_difference(each)
                    break
        except Exception as problem:
            return crash(who, "start", problem)
        return different and different._replace(message=f"in the initial state: {different.message}")


class Copy:
    """A second instance of the implementation, loaded with the view of the first during a trace or at its end.

    After the trace, the copy executes the calls that followed. If its outcomes then differ from those of the first
    instance, or its state from the model's, then `view` or `load` drops state, or shares state that it should copy.
    """

    def __init__(self, side: ImplementationSide, loaded_after: int) -> None:
        self.loaded_after = loaded_after  # number of calls of the trace before the copy was loaded
        self.side = ImplementationSide(side.subject, side.cfg, side.instance.view())
        #: the later calls of the trace: action, arguments, and the first instance's outcome
        self.steps: list[tuple[str, Arguments, Any]] = []

    def recorded(self, methods: list[Callable[..., Any]]) -> list[Callable[..., Any]]:
        """Returns the first instance's methods, wrapped to record their calls and outcomes for `difference`."""

        def wrapped(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                outcome = method(*arguments)
                self.steps.append((name, arguments, outcome))
                return outcome

            return call

        return [wrapped(name, method) for name, method in zip(self.side.machine.actions, methods, strict=True)]

    def difference(self, state: Any, exactly: bool = True) -> Difference | None:
        """Executes the recorded calls. Returns the first outcome that differs, or else how the copy's state is wrong.

        The copy's state must equal `state` and have no broken structural invariant. Returns None if nothing is wrong.
        With `exactly`, the classes of all parts, and the observations, must be equal, too.
        """
        action = "state"
        try:
            for action, arguments, outcome in self.steps:
                theirs = self.side.act(action, arguments)
                if not same(outcome, theirs):
                    return self._wrong(action, "returns another outcome", as_data(outcome), as_data(theirs))
            action = "state"
            different = self.side.difference(state, exactly) or self.side.broken_structure()
        except Exception as problem:
            return self._wrong(action, f"raises {type(problem).__name__}: {problem}", None, None)
        if different is None:
            return None
        return self._wrong("state", f"differs at the end: {different.message}", different.expected, different.actual)

    def _wrong(self, what: str, how: str, expected: Any, actual: Any) -> Difference:
        message = f"in a copy of the implementation that is loaded after call {self.loaded_after}, {what} {how}"
        return Difference(Cause(Kind.LOAD, what), message, expected, actual)


def load_difference(target: Target, calls: Calls) -> Difference | None:
    """Repeats a trace, and loads copies of the implementation: before each of the last calls, and after the last call.

    A replay of the trace must have shown no difference. Returns the first difference of these:

        while the trace is repeated     of the first instance, which `view` must have changed
        after the trace                 of a copy, after the calls that followed its loading
        after the copies' calls         of the first instance, with which a copy must have shared state

    Returns None if nothing differs, or if the second side is no implementation.
    """
    if target.second is not Second.IMPLEMENTATION:
        return None
    pair, copies, different = Pair(target, fold_history=False), list[Copy](), None
    for count, call in enumerate((*calls, None)):  # `count` calls were executed; None: there are no more
        if count >= len(calls) - LOADED_STEPS:
            try:
                copies.append(Copy(cast(ImplementationSide, pair.side), count))
            except Exception as problem:
                return Difference(Cause(Kind.LOAD, "load"), f"view or load raised {type(problem).__name__}: {problem}")
        if call is not None:
            different = pair.step(call.copy(), Depth.STRUCTURE)
            if different is not None:
                break
            for each in copies:
                each.steps.append((call.action, call.copy().arguments, pair.outcome))
    for each in copies if different is None else ():
        different = different or each.difference(pair.state)
    if different is None:
        try:
            different = cast(ImplementationSide, pair.side).difference(pair.state)
        except Exception as problem:
            different = crash(_VIEW_OR_CHECK, "view", problem)
    return different and different._replace(cause=Cause(Kind.LOAD, different.cause.what))


_MODEL, _SECOND, _VIEW_OR_CHECK, _PROPERTY = "model", "second side", "view or check of the second side", "property"


def crash(who: str, action: str, problem: Exception) -> Difference:
    """Returns the difference for an exception: that of a Misbehaved, otherwise a CRASH.

    `who` says which code raised the exception, `action` where: an action, "start", "load" or "view".
    """
    if isinstance(problem, Misbehaved):
        return problem.difference
    function = traceback.extract_tb(problem.__traceback__)[-1].name
    message = f"the {who} raised {type(problem).__name__} at {action}: {problem} (in {function})"
    return Difference(crash_cause(action, problem), message, None, f"{who}: {problem!r}")


def crash_cause(where: str, problem: Exception) -> Cause:
    """Returns the cause for an exception. `Cause` describes `where`."""
    return Cause(Kind.CRASH, f"{where} {type(problem).__name__}")
