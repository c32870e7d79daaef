"""Breadth-first search of a scope: every state once, every transition on the implementation, exact counts.

    states = the canonical form of the initial state
    for each of the states, in the order in which they were found:
        check the state properties
        for each action with each of its arguments:
            load the implementation with the state, act on both, compare outcome, view and structure
            check the step properties, and that a refused action leaves the state unchanged
            if the canonical form of the next state is new:
                append it to the states if it is within the scope's bounds; otherwise only check its state properties

A failure is a violated property, a difference, or an exception of the model, of a property or of the implementation.
After a failure, the search continues; only a hang ends it. The search records the first failure of each property, and
otherwise the first of each kind at each action. States are found in the order of their depth, so the failures that are
not recorded have no shorter traces. Each recorded failure is then replayed from the initial state (`explained`), which
gives the counterexample. Processes on all cores share the work if many states are unexpanded
(`fuzz/explore/shared.py`).

The canonical form of a state represents all states that differ from it only in generated names, such as ids. The search
visits canonical forms only. In each form, it takes the calls whose arguments are in the domains of this form. In a
trace from the initial state, the states may have other generated names; `Space.concrete` finds the calls of the trace.
If one of these calls does not exist, the canonical form merges different states: a finding of the kind `canonical`.

The search does not check properties that take history variables (`invariants/properties.py`), because a history
variable would multiply the states. `fuzz/explore/edge_cover.py` checks these properties on its runs.

After the search, `eventually` properties are checked on the graph. A counterexample is a trace to a fair cycle in which
the property is never true (`_fair_cycle`).
"""

from __future__ import annotations

import contextlib
import itertools
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from fuzz.explore.shared import WORTH_SHARING, run_shared
from fuzz.platform.processes import usable_cores
from fuzz.run.call import Arguments, Call, Calls
from fuzz.run.checks import Check, Skipped, all_but, checks_for
from fuzz.run.compare import same, stutter_difference
from fuzz.run.finding import Cause, Difference, Finding, Kind
from fuzz.run.generate import PossibleCalls, usable
from fuzz.run.pair import Depth, Pair, crash
from fuzz.run.replay import replay
from fuzz.run.watchdog import Hang, watchdog
from fuzz.subject import Scope, Subject, find_profile
from fuzz.target import Second, Target
from invariants.properties import Event
from model.machine import BadValue, Refused, plain

#: The target of a transition to a state outside the scope's bounds.
OUTSIDE = -1
#: The watchdog is set, and progress is reported, once for this many states.
_STATES_PER_WATCHDOG = 256
#: The limit of processor time for `_STATES_PER_WATCHDOG` states together, which usually take less than a second, or for
#: a block of `fuzz/explore/shared.py`. Beyond this limit, the current step counts as hung.
_HANG_SECONDS = 10.0
#: In the check of liveness, fair steps may exceed the scope's bounds by this much, so that a bound does not disable
#: them.
LIVENESS_MARGIN = 2
#: The maximum number of states on one machine. A scope that has more may be infinite.
LIMIT = 10_000_000

#: Called with the number of states expanded and found.
Progress = Callable[[int, int], None]


#: An action with arguments: the action's name, its function and its index in the machine's order; the arguments.
Move = tuple[str, Callable[..., Any], int, Arguments]


class Lasso(NamedTuple):
    """A counterexample of an `eventually` property: a trace to a fair cycle in which the property is never true.

    The calls end where the cycle begins.
    """

    name: str  # the name of the property
    guarantee: str
    calls: Calls


@dataclass
class Graph:
    """The states of a scope, in the order of their depth, and their transitions.

    A state's number is its index in `states`. The transitions of state i are `targets[offsets[i]:offsets[i + 1]]`, in
    the order of `Space.moves`; only expanded states have transitions. A target is the number of a state, or OUTSIDE. A
    move at which the model raised an exception is a transition to the same state. `parents[i]` is the number of the
    state before state i on a shortest trace.
    """

    states: list[Any]
    parents: array[int]
    offsets: array[int]
    targets: array[int]

    def depths(self) -> list[int]:
        """Returns the depth of each state: the number of steps of a shortest trace from the initial state."""
        depths = [0] * len(self.states)
        for number in range(1, len(self.states)):
            depths[number] = depths[self.parents[number]] + 1
        return depths

    def path(self, number: int) -> list[int]:
        """Returns the numbers of the states of a shortest trace from the initial state to the one with this number."""
        path = [number]
        while number:
            number = self.parents[number]
            path.append(number)
        return path[::-1]


@dataclass
class Exploration:
    """The result of an exploration. `graph` is None after an exploration on Spark."""

    distinct_states: int
    transitions: int
    depth: int  # the largest depth of a state
    seconds: float
    #: the shortest finding of each cause: violated properties, differences, exceptions and hangs
    violations: list[Finding] = field(default_factory=list)
    lassos: list[Lasso] = field(default_factory=list)
    graph: Graph | None = None


def find_scope(subject: Subject, name: str) -> Scope:
    """Returns the scope of that name. Raises BadValue, with the names of all scopes, if there is none."""
    if name not in subject.scopes:
        raise BadValue(f"{subject.name} has no scope {name}; it has {', '.join(subject.scopes) or 'none'}")
    return subject.scopes[name]


class MergedStates(Exception):
    """A canonical form merges different states: a state lacks a step that its canonical form has.

    `calls` lead to `state`. The action `name` leads from the canonical form of `state` to the canonical form `target`.
    From `state` itself, this action leads to no state with the canonical form `target`. `name` is "step" if no call
    leads from the canonical form to `target` either: then the model may be nondeterministic.
    """

    def __init__(self, space: Space, calls: Calls, state: Any, name: str, target: Any) -> None:
        if name == "step":
            why = "no call leads to the next canonical form, neither from the trace's last state nor from its form"
        else:
            why = f"{name} leads to the next canonical form from the form of the last state, but not from this state"
        message = f"the canonical form merges different states: {why} (the trace itself agrees in a replay)"
        difference = Difference(Cause(Kind.CANONICAL, name), message, plain(target), plain(state))
        super().__init__(message)
        self.finding = Finding(space.cfg, tuple(calls), difference)


class Space:
    """The state space of a subject within a scope, under a profile: config, start, and the moves in each state.

    `start` is the canonical form of the initial state. Raises BadValue for an unknown profile, a bad setting of the
    scope, or an argument without a domain.
    """

    def __init__(self, subject: Subject, profile: str, scope: Scope) -> None:
        self.subject = subject
        self.scope = scope
        self.machine = subject.machine
        self.cfg = self.machine.configure(scope.settings, find_profile(subject, profile))
        self.target = Target(subject, self.cfg)
        self.start = self.machine.canonical(self.cfg, self.machine.start(self.cfg))
        self.bounds = [(subject.measures[name], most) for name, most in scope.bounds.items()]
        actions = self.machine.actions.values()
        domains = tuple(
            tuple(usable(self._domain(a.name, p.name), p.annotation, self.cfg) for p in a.params) for a in actions
        )
        self._calls = PossibleCalls(subject, domains)
        in_scope = [self._calls.actions[name] for name in scope.actions]
        #: the moves of actions whose arguments all have fixed domains; the same in every state, and first in `moves`
        self.fixed_moves = [
            (a.name, a.run, a.index, arguments) for a in in_scope if not a.free for arguments in a.listed
        ]
        #: the actions with an argument whose domain depends on the state
        self.free_actions = [a for a in in_scope if a.free]
        #: names of actions -> their fixed moves, each with its index
        self._fixed_of: dict[frozenset[str], list[tuple[int, Move]]] = {}

    def _domain(self, action: str, param: str) -> Any:
        """Returns the domain of an argument: that of the scope, or else that of the subject."""
        for key in (f"{action}.{param}", param):
            if key in self.scope.domains:
                return self.scope.domains[key]
        return self.subject.domain(action, param)

    def moves(self, state: Any) -> list[Move]:
        """Returns the moves in a state, in a fixed order: the scope's actions with all combinations of arguments."""
        if not self.free_actions:
            return self.fixed_moves
        moves = list(self.fixed_moves)
        for action in self.free_actions:
            name, run, index = action.name, action.run, action.index
            moves += [(name, run, index, each) for each in itertools.product(*action.domains(self.cfg, state))]
        return moves

    def moves_of(self, state: Any, names: frozenset[str]) -> list[tuple[int, Move]]:
        """Returns the moves of the actions of these names in a state, each with its index in `moves`."""
        fixed = self._fixed_of.get(names)
        if fixed is None:
            fixed = self._fixed_of[names] = [each for each in enumerate(self.fixed_moves) if each[1][0] in names]
        if not any(action.name in names for action in self.free_actions):
            return fixed
        first = len(self.fixed_moves)
        return [*fixed, *(each for each in enumerate(self.moves(state)[first:], first) if each[1][0] in names)]

    def plain_call(self, call: Call) -> Call:
        """Returns a call whose only argument has the arguments as plain data, by name."""
        return Call(call.action, (self.machine.actions[call.action].named(call.arguments),))

    def call_of(self, plain_call: Call) -> Call:
        """Returns the call that `plain_call` was made from."""
        [named] = plain_call.arguments
        return Call(plain_call.action, self.machine.actions[plain_call.action].arguments(named, self.cfg))

    def form_after(self, state: Any, index: int) -> Any:
        """Returns the canonical form of the state after the move with this index in `moves`."""
        _, act, _, arguments = (self.fixed_moves if index < len(self.fixed_moves) else self.moves(state))[index]
        return self.machine.canonical(self.cfg, act(self.cfg, state, *arguments)[0])

    def within(self, state: Any, margin: int = 0) -> bool:
        """Returns whether no measure of a state exceeds its bound by more than `margin`."""
        for measure, most in self.bounds:  # noqa: SIM110 (called for every new state)
            if measure(state) > most + margin:
                return False
        return True

    def concrete(self, path: list[Any]) -> list[Call]:
        """Returns the calls of a trace from the initial state through states with the given canonical forms.

        Raises MergedStates if the trace reaches a state from which no call leads to the next canonical form.
        """
        state, calls = self.machine.start(self.cfg), list[Call]()
        for form, target in pairwise(path):
            found = self._first_move(state, target)
            if found is None:
                from_form = self._first_move(form, target)
                name = "step" if from_form is None else from_form[0][0]
                raise MergedStates(self, calls, state, name, target)
            (name, _, _, arguments), state = found
            calls.append(Call(name, arguments))
        return calls

    def _first_move(self, state: Any, target: Any) -> tuple[Move, Any] | None:
        """Returns the first move to a state with the canonical form `target`, and that state; None if there is none."""
        for move in self.moves(state):
            _, act, _, arguments = move
            with contextlib.suppress(Exception):  # a move that raises leads nowhere
                after, _ = act(self.cfg, state, *arguments)
                if self.machine.canonical(self.cfg, after) == target:
                    return move, after
        return None


def find_space(subject: Subject, scope: str, profile: str = "reference") -> Space:
    """Returns the state space of a subject within its scope of that name. Raises BadValue for unknown names."""
    return Space(subject, profile, find_scope(subject, scope))


# ---- the search ---------------------------------------------------------------------------------------


class Failure(NamedTuple):
    """What is wrong in the state with this number, or at a call in this state; no replay has explained it yet.

    If a property raised an exception, `raised_by` is the name of the property.
    """

    cause: Cause
    number: int
    call: Call | None
    message: str = ""
    raised_by: str | None = None


def explore(
    space: Space,
    *,
    implementation: bool = True,
    properties: bool = True,
    progress: Progress | None = None,
    jobs: int | None = None,
) -> Exploration:
    """Visits every state of a scope once. Cost: tens of microseconds a transition with everything checked.

    Without `implementation`, the model runs alone; without `properties`, no property is checked. An `eventually`
    property is checked if the scope has all actions in the property's `fair`, and no step hung. Runs in `jobs`
    processes, by default one for each core; the result does not depend on their number. `progress` receives the numbers
    of expanded and of found states. Raises BadValue if there are more than LIMIT states, or if a process ends early.
    """
    started = time.perf_counter()
    search = Search(space, implementation, properties)
    search.run(progress, usable_cores() if jobs is None else jobs)
    graph = search.graph
    violations = [
        explained(space, failure, [graph.states[i] for i in graph.path(failure.number)]) for failure in search.failures
    ]
    is_fully_expanded = len(graph.offsets) == len(graph.states) + 1
    lassos = list[Lasso]()
    if properties and is_fully_expanded:
        try:
            lassos += _lassos(space, graph)
        except MergedStates as problem:
            violations.append(problem.finding)
    depth, seconds = max(graph.depths()), time.perf_counter() - started
    return Exploration(
        len(graph.states), len(graph.targets), depth, seconds, shortest_by_cause(violations), lassos, graph
    )


class Search:
    """A search: the graph of the states found so far, and the first failures. `start` replaces the initial state."""

    def __init__(self, space: Space, implementation: bool, properties: bool, start: Any = None) -> None:
        self.space = space
        has_second = implementation and space.target.second is Second.IMPLEMENTATION
        #: the implementation's class; None if the model runs alone
        self.implementation: Any = space.subject.implementation if has_second else None
        #: an instance in the state that is being expanded; None if there is none, or if the last move has changed it
        self.instance: Any = None
        checks = checks_for(space.subject, space.cfg, properties_with_history(space.subject))
        actions = space.machine.actions.values()
        #: for each action, the names of its parameters
        self.parameter_names = [each.names for each in actions]
        #: the `always` properties to check: none of them takes history variables
        self.of_states: tuple[Check, ...] = checks.of_states if properties else ()
        self.of_steps: tuple[tuple[Check, ...], ...] = checks.of_steps if properties else ((),) * len(actions)
        first = space.start if start is None else start
        self.graph = Graph([first], array("q", [0]), array("q", [0]), array("q"))
        #: state -> its number
        self.numbers: dict[Any, int] = {first: 0}
        self.failures: list[Failure] = []
        #: for each state after the first, the index in `graph.targets` of the transition that found it.
        #: `fuzz/explore/shared.py` starts a new list for each batch, which has only the states found in this batch
        self.found_by: list[int] = []
        #: the key of each recorded failure (`fail`)
        self.failure_keys: set[tuple[Kind, str]] = set()
        #: states outside the bounds whose properties were checked
        self.outside: set[Any] = set()
        #: the move that is taken and checked at the moment; None while the expanded state is checked
        self.current_move: Move | None = None
        #: the name of the property that hung; None if none did
        self.hung_property: str | None = None

    def run(self, progress: Progress | None, jobs: int = 1) -> None:
        """Expands states in the order in which they were found, until all are expanded or a step hangs.

        Raises BadValue if there are more than LIMIT states, or if a process ends early.
        """
        states = self.graph.states
        number = 0
        while number < len(states):
            if jobs > 1 and len(states) - number >= WORTH_SHARING:
                run_shared(self, number, jobs, _HANG_SECONDS, LIMIT, progress)
                return
            end = min(number + _STATES_PER_WATCHDOG, len(states))
            try:
                with watchdog(_HANG_SECONDS):
                    while number < end:
                        self.expand(number)
                        number += 1
            except Hang:  # the search ends here, because steps of other states may hang, too
                self.hang(number)
                self.forget_expansion(number)
                return
            if progress is not None:
                progress(number, len(states))
            if len(states) > LIMIT:
                raise BadValue(f"more than {LIMIT:,} states: bound a measure that grows, or use --spark")

    def expand(self, number: int) -> None:
        """Checks the state with this number, and takes every move there. Adds new states, transitions and failures."""
        space, graph, numbers, implementation = self.space, self.graph, self.numbers, self.implementation
        cfg, state, canonical = space.cfg, graph.states[number], space.machine.canonical
        targets, states, parents, of_steps = graph.targets, graph.states, graph.parents, self.of_steps
        self.instance = self.current_move = None
        self.check_state(number, state)
        for move in space.moves(state):
            self.current_move = move
            name, act, index, arguments = move
            try:
                after, outcome = act(cfg, state, *arguments)
                # a known state is its own canonical form, so most states need none
                target = number if after is state else numbers.get(after)
                if target is None:
                    form = canonical(cfg, after)
                    target = numbers.get(form)
            except Exception as problem:
                self.fail_with_exception("model", name, number, Call(name, arguments), problem)
                targets.append(number)
                continue
            if implementation is not None and not self.agrees(state, move, after, outcome):
                self.explain_move(number, Call(name, arguments))
            if of_steps[index]:
                self.check_step(number, state, move, outcome, after)
            if after is state:
                targets.append(number)
                continue
            if outcome.__class__ is Refused:
                self.fail_at_call(stutter_difference(name, state, after), number, Call(name, arguments))
            if target is None:
                if space.within(form):
                    target = numbers[form] = len(states)
                    states.append(form)
                    parents.append(number)
                    self.found_by.append(len(targets))
                else:
                    target = OUTSIDE
                    if self.of_states and form not in self.outside:
                        self.outside.add(form)
                        self.check_state(number, form, Call(name, arguments))
            targets.append(target)
        graph.offsets.append(len(targets))

    def check_state(self, number: int, state: Any, call: Call | None = None) -> None:
        """Records the state properties that are false in `state`.

        Without a call, `state` has this number. With a call, `state` is outside the bounds: the call leads there from
        the state with this number.
        """
        for holds, each, _ in self.of_states:
            try:
                is_true = holds(self.space.cfg, state)
            except Hang:
                self.hung_property = each.name
                raise
            except Exception as problem:
                self.fail_with_exception("property", each.name, number, call, problem)
                continue
            if not is_true:
                self.fail(Failure(Cause(Kind.PROPERTY, each.name), number, call))

    def check_step(self, number: int, state: Any, move: Move, outcome: Any, after: Any) -> None:
        """Records the step properties that a move violates."""
        name, _, index, arguments = move
        event = Event(name, dict(zip(self.parameter_names[index], arguments, strict=True)), outcome)
        for holds, each, _ in self.of_steps[index]:
            try:
                is_true = holds(self.space.cfg, state, event, after)
            except Hang:
                self.hung_property = each.name
                raise
            except Exception as problem:
                self.fail_with_exception("property", each.name, number, Call(name, arguments), problem)
                continue
            if not is_true:
                self.fail(Failure(Cause(Kind.PROPERTY, each.name), number, Call(name, arguments)))

    def hang(self, number: int) -> None:
        """Records a hang in the state with this number: of a property, or of the current move."""
        call = self.current_move and Call(self.current_move[0], self.current_move[3])
        what = "property" if call is None or self.hung_property is not None else call.action
        self.fail(Failure(Cause(Kind.HANG, what), number, call, f"{self.hung_property or what} did not return"))

    def forget_expansion(self, number: int) -> None:
        """Removes the transitions of the state in which a step hung, and the states that these transitions found."""
        graph = self.graph
        del graph.targets[graph.offsets[-1] :]
        while graph.parents[-1] == number and len(graph.states) > number + 1:
            graph.parents.pop()
            self.found_by.pop()
            del self.numbers[graph.states.pop()]

    def agrees(self, state: Any, move: Move, after: Any, outcome: Any) -> bool:
        """Takes a move on the implementation. Returns whether outcome, view and structure agree with the model's step.

        Like the fast loop of lockstep, this only detects a difference; `explain_move` explains it.
        """
        name, _, _, arguments = move
        cfg, instance = self.space.cfg, self.instance
        self.instance = None
        try:
            if instance is None:
                instance = self.implementation.load(cfg, state)
            theirs = getattr(instance, name)(*arguments)
            if theirs is not outcome and not same(outcome, theirs):
                return False
            view = self.space.machine.with_history(instance.view(), after)
            if not same(after, view) or instance.check():
                return False
        except Exception:
            return False
        if after is state or after == state:
            self.instance = instance  # the next move starts from the same state
        return True

    def explain_move(self, number: int, call: Call) -> None:
        """Repeats a move on a pair, and records the difference. Properties are not checked."""
        pair = Pair(self.space.target, fold_history=False)
        pair.load(self.graph.states[number])
        difference = pair.step(call, Depth.STATE)
        if difference is None:
            message = f"{call.action} differs, but not if it is the first call of a loaded implementation"
            difference = Difference(Cause(Kind.UNSTABLE, call.action), message)
        self.fail_at_call(difference, number, call)

    def fail_with_exception(self, who: str, what: str, number: int, call: Call | None, problem: Exception) -> None:
        """Records an exception of the model or of a property (`who`). `what` is the name of the action or property."""
        difference = crash(who, what, problem)
        self.fail(Failure(difference.cause, number, call, difference.message, what if who == "property" else None))

    def fail_at_call(self, difference: Difference, number: int, call: Call) -> None:
        """Records a difference at a call."""
        self.fail(Failure(difference.cause, number, call, difference.message))

    def fail(self, failure: Failure) -> None:
        """Records a failure, if none has the same key.

        If a property is false or raised an exception, or if there is no call, the key is the cause. Otherwise, the key
        is the kind and the action, so differences in two fields after one action are recorded once.
        """
        cause, of_property = failure.cause, failure.raised_by or failure.cause.broken_property
        key = cause.kind, cause.what if failure.call is None or of_property else failure.call.action
        if key not in self.failure_keys:
            self.failure_keys.add(key)
            self.failures.append(failure)


def properties_with_history(subject: Subject) -> Skipped:
    """Returns the names of the properties that take history variables."""
    return frozenset(p.name for p in subject.properties if p.histories)


# ---- counterexamples ----------------------------------------------------------------------------------


def explained(space: Space, failure: Failure, path: list[Any]) -> Finding:
    """Replays a trace through the states of `path` and the failure's call. Returns the finding of the replay.

    For a failure of a property, the model runs alone and only this property is checked, because a difference of the
    implementation could end the replay earlier. For another failure, no property is checked. Generated names may differ
    in the trace, so each call of the failure's action is tried as the last call. If no replay shows the failure's
    cause, the result is the first finding of another cause. If no replay shows anything, the result is made of the
    failure. If there is no trace through these states, the finding says that the canonical form merges different
    states.
    """
    try:
        calls = space.concrete(path)
    except MergedStates as problem:
        return problem.finding
    cause, of_property = failure.cause, failure.raised_by or failure.cause.broken_property
    message = failure.message or f"{cause.what} is false"
    message += "; a trace to this state does not show it" if calls or failure.call else " in the initial state"
    target = replace(space.target, model_only=True) if of_property is not None else space.target
    last_calls: list[tuple[Call, ...]] = [()]
    if failure.call is not None:
        state = space.machine.start(space.cfg)
        for name, arguments in calls:
            state, _ = space.machine.step(space.cfg, state, name, arguments)
        last_calls = [(Call(name, each),) for name, _, _, each in space.moves(state) if name == failure.call.action]
    other: Finding | None = None
    for last in last_calls:
        again = replay(target, (*calls, *last), skipped=all_but(space.subject, of_property))
        if again is not None and again.cause == cause:
            return again
        other = other or again
    if other is not None:
        return other
    last = (failure.call,) if failure.call else ()
    return Finding(space.cfg, (*calls, *last), Difference(cause, message))


def shortest_by_cause(findings: list[Finding]) -> list[Finding]:
    """Returns the shortest finding of each cause, in the order of length."""
    best: dict[Cause, Finding] = {}
    for each in sorted(findings, key=lambda finding: (len(finding.calls), finding.cause)):
        best.setdefault(each.cause, each)
    return list(best.values())


# ---- liveness -----------------------------------------------------------------------------------------


def _lassos(space: Space, graph: Graph) -> Iterator[Lasso]:
    """Yields a counterexample of each violated `eventually` property. Raises MergedStates."""
    in_scope = set(space.scope.actions)
    for each in space.subject.properties:
        if each.kind == "eventually" and each.given(space.cfg) and in_scope >= set(each.fair):
            path = _fair_cycle(space, graph, each.holds, frozenset(each.fair))
            if path is not None:
                yield Lasso(each.name, each.guarantee, space.concrete(path))


def _fair_cycle(space: Space, graph: Graph, holds: Callable[..., bool], fair: frozenset[str]) -> list[Any] | None:
    """Returns the states of a trace to a fair cycle in which a property is never true; None if there is no such cycle.

    The trace takes any actions within the bounds. Beyond the bounds and in the cycle, it takes only fair actions
    (`invariants/properties.py`). A fair cycle is a strongly connected component of states in which `holds` is false,
    and in which a run can stay forever without being unfair to an action: each fair action is taken in the component,
    or is disabled in one of its states (weak fairness). A single state in which all fair actions are disabled is a fair
    cycle, too. An action is disabled in a state if each of its calls raises an exception, or leaves the canonical state
    unchanged.

    Fair steps may exceed the bounds by LIVENESS_MARGIN. A step beyond the margin counts as a step that returns to the
    same state. So the result may be a cycle that does not exist: then widen the bound. Cost: linear in states and fair
    transitions.
    """
    # the graph of the search, to which `_fair_steps` adds the states outside the bounds and within the margin
    wide = Graph(list(graph.states), array("q", graph.parents), graph.offsets, graph.targets)
    numbers = {state: i for i, state in enumerate(wide.states)}
    is_true = [holds(space.cfg, state) for state in wide.states]
    edges: dict[int, list[tuple[str, int]]] = {}
    enabled: dict[int, set[str]] = {}
    number = 0
    while number < len(wide.states):
        if number >= len(is_true):
            is_true.append(holds(space.cfg, wide.states[number]))
        if not is_true[number]:
            enabled[number] = set()
            edges[number] = list(_fair_steps(space, wide, numbers, number, holds, fair, is_true, enabled[number]))
        number += 1
    for component in _components(edges):
        members = set(component)
        untaken = fair - {name for number in component for name, target in edges[number] if target in members}
        if not untaken.intersection(*[enabled[i] for i in component]):  # none is enabled in all states of the component
            return [wide.states[i] for i in wide.path(min(component))]
    return None


def _fair_steps(
    space: Space,
    wide: Graph,
    numbers: dict[Any, int],
    number: int,
    holds: Callable[..., bool],
    fair: frozenset[str],
    is_true: list[bool],
    enabled: set[str],
) -> Iterator[tuple[str, int]]:
    """Yields the fair steps from a state to states in which the property is false: action, number of the next state.

    Adds new states to `wide` and `numbers`, and the names of enabled actions to `enabled`. The search has recorded the
    targets inside the scope; only transitions that left the scope are taken again. `is_true` has the value of `holds`
    in each state of the scope.
    """
    # None: the state is outside the scope, and the search has taken no move there. Only such a state can raise below: a
    # move that raised in the scope has its own state as target
    first = wide.offsets[number] if number < len(wide.offsets) - 1 else None
    for k, (name, act, _, arguments) in space.moves_of(wide.states[number], fair):
        target = OUTSIDE if first is None else wide.targets[first + k]
        if target != OUTSIDE:
            if target != number:
                enabled.add(name)
                if not is_true[target]:
                    yield name, target
            continue
        try:
            form = space.machine.canonical(space.cfg, act(space.cfg, wide.states[number], *arguments)[0])
        except Exception:  # noqa: S112 (outside the scope, a failure is no finding)
            continue
        if form == wide.states[number]:
            continue
        enabled.add(name)
        if holds(space.cfg, form):
            continue
        if form not in numbers and space.within(form, LIVENESS_MARGIN):
            numbers[form] = len(wide.states)
            wide.states.append(form)
            wide.parents.append(number)
        yield name, numbers.get(form, number)  # beyond the margin, a self-loop


def _components(edges: dict[int, list[tuple[str, int]]]) -> Iterator[list[int]]:
    """Yields the strongly connected components of a graph (Tarjan's algorithm, without recursion)."""
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    number: dict[int, int] = {}
    for root, out_of_root in edges.items():
        if root in number:
            continue
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(out_of_root))]
        while work:
            node, following = work[-1]
            for _, target in following:
                if target not in number:
                    number[target] = low[target] = len(number)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(edges[target])))
                    break
                if target in on_stack:
                    low[node] = min(low[node], number[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    component = [stack.pop()]
                    while component[-1] != node:
                        component.append(stack.pop())
                    on_stack.difference_update(component)
                    yield component
