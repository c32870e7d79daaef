"""Replay of one trace: its operations in order, or all orders of a concurrent history.

Each operation of a sequential trace runs on model and implementation. Their outcomes and states must be equal, the
outcome must equal the recorded result, and the model's observation the recorded one. In a trace that an engine wrote,
properties and structure are checked as well; in a finding also `load`, as in `fuzz/run/replay.py`. After a gap, the
model runs alone, from every state that the recording allows. A concurrent history is checked for linearizability
against the model alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from fuzz.platform.json import to_json
from fuzz.run.call import Call
from fuzz.run.checks import NONE_SKIPPED, Skipped, all_but
from fuzz.run.compare import same
from fuzz.run.finding import Cause, Kind
from fuzz.run.gaps import Result as Agreement
from fuzz.run.gaps import Search
from fuzz.run.gaps import Verdict as Fit
from fuzz.run.generate import possible_calls
from fuzz.run.linearize import Result, Successors, Timed, linearize
from fuzz.run.pair import Depth, Pair, load_difference
from fuzz.run.watchdog import HANG_SECONDS, Hang, watchdog
from fuzz.subject import Subject, find_profile, find_subject
from fuzz.target import Target
from fuzz.trace.file import ABSENT, BadTrace, Operation, Trace
from fuzz.trace.recording import OWN, Deviation, Recording, recording_of, said
from model.machine import BadValue, Refused

#: In a gap, an action with more combinations of recorded arguments is taken with the recorded combinations only.
_MOST_COMBINED = 200
#: Processor time for the search for an order, or for the calls in gaps: more than their budgets of steps take.
_SEARCH_SECONDS = 60.0


class Mismatch(NamedTuple):
    """An operation at which a replay does not agree with its trace, and how."""

    trace: str
    line: int
    op: str
    expected: Any
    actual: Any
    fields: list[str]
    known_deviation: str | None = None
    message: str | None = None
    prefix: tuple[Operation, ...] | None = None  # the longest order found of a concurrent history


@dataclass
class Replayed:
    """The result of replaying one trace."""

    trace: Trace
    operations: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)


class Replayer:
    """Replays traces of one recording under one profile (default: that of the recorded version)."""

    def __init__(
        self, recording: Recording, subject: Subject, profile: str | None = None, *, model_only: bool = False
    ) -> None:
        self.recording = recording
        self.subject = subject
        self.profile = profile
        self.model_only = model_only  # without the implementation

    def replay(self, trace: Trace) -> Replayed:
        """Returns the mismatches of a trace, each with the known deviation that explains it, if there is one.

        Raises BadTrace for an unknown operation or invalid arguments. Cost: one run, and after a mismatch one for each
        set of deviations that is tried.
        """
        gaps, is_history = any(each.gap is not None for each in trace.operations), is_concurrent(trace)
        limit = _time_limit(trace)
        try:
            if not gaps and not is_history:
                return self._replay(trace)
            limit += _SEARCH_SECONDS
            with watchdog(limit):
                return self._check_order(trace) if is_history else self._replay_past_gaps(trace)
        except Hang:
            message = f"the replay did not end within {limit:g} s of processor time"
            hang = Mismatch(trace.id, trace.line, "", None, None, ["hang"], None, message)
            return Replayed(trace, len(trace.operations), [hang])

    def _replay(self, trace: Trace) -> Replayed:
        base = self._config(trace, self.profile)
        known: list[Deviation] = []
        replayed = Replayed(trace, len(trace.operations))
        mismatch = self.first_mismatch(trace, base)
        while mismatch is not None:
            deviations = self._explanation(trace, base, known, mismatch)
            if not deviations:
                replayed.mismatches.append(mismatch)
                break
            replayed.mismatches += [mismatch._replace(known_deviation=each.name) for each in deviations]
            known += deviations
            mismatch = self.first_mismatch(trace, self._with(base, trace, known))
        if self.recording.fold is not None:
            with watchdog(_time_limit(trace)):
                named = [m for m in self.mismatches(trace, base) if m.known_deviation is not None]
            replayed.mismatches += {m.known_deviation: m for m in reversed(named)}.values()
        return replayed

    def _replay_past_gaps(self, trace: Trace) -> Replayed:
        """Replays a trace with gaps. What precedes the first gap is replayed as any other trace."""
        first = next(i for i, each in enumerate(trace.operations) if each.gap is not None)
        before = replace(trace, operations=trace.operations[:first])
        replayed = self._replay(before)
        replayed.trace, replayed.operations = trace, sum(each.gap is None for each in trace.operations)
        if any(each.known_deviation is None for each in replayed.mismatches):
            return replayed
        base = self._config(trace, self.profile)
        names = {each.known_deviation for each in replayed.mismatches}
        cfg = self._with(base, trace, [each for each in self.recording.deviations if each.name in names])
        pair = self._pair(trace, cfg)
        for operation in before.operations:
            for call in self.calls(trace, cfg, pair.state, operation):
                pair.step(call, Depth.OUTCOME)
        outcomes, impossible = self._outcomes(trace, cfg), list[BadTrace]()

        def where_possible(operation: Operation, state: Any) -> Iterable[tuple[Any, Any]]:
            try:
                return [(after, result) for after, result, _ in outcomes(operation, state)]
            except BadTrace as problem:  # such as a time before that of the state
                impossible[:] = [problem]
                return ()

        search = Search(
            trace.operations[first:],
            self._moves(trace, cfg, pair.state),
            where_possible,
            lambda operation, state, result: self._unlike_recorded(trace, cfg, operation, state, result),
            gap_of=lambda operation: operation.gap,
        )
        verdict = search.run(pair.state)
        if verdict.result is Agreement.DISAGREES and impossible and not verdict.possible:
            raise impossible[0]
        if verdict.result is not Agreement.AGREES:
            replayed.mismatches.append(_past_gap(trace, verdict))
        return replayed

    def _moves(self, trace: Trace, cfg: Any, state: Any) -> Callable[[Any], Iterator[Any]]:
        """Returns a function from a state to the states after each call that a gap may hide.

        The calls are all actions with the arguments of the subject's domains in the state, and all combinations of
        recorded arguments; where a recorded argument depends on the state, as in `state`, that before the first gap.
        """
        machine, recorded = self.subject.machine, self._recorded_calls(trace, cfg, state)
        every = possible_calls(self.subject, cfg).every

        def calls(state: Any) -> Iterator[Call]:
            yield from recorded
            with suppress(OverflowError):  # a recorded setting without a bound: the domains cannot be listed
                yield from (call for call in every(cfg, state) if call not in recorded)

        def moves(state: Any) -> Iterator[Any]:
            for call in calls(state):
                yield machine.step(cfg, state, *call)[0]
                yield from (after for after, _ in machine.alternatives(cfg, state, *call))

        return moves

    def _recorded_calls(self, trace: Trace, cfg: Any, state: Any) -> dict[Call, None]:
        """Returns each recorded action with all combinations of its recorded arguments, or as recorded if too many."""
        found: dict[str, dict[Call, None]] = {}
        for operation in trace.operations:
            with suppress(BadTrace):
                for call in self.calls(trace, cfg, state, operation) if operation.gap is None else ():
                    found.setdefault(call.action, {})[call] = None
        calls: dict[Call, None] = {}
        for action, seen in found.items():
            values = [dict.fromkeys(each) for each in zip(*[call.arguments for call in seen], strict=True)]
            is_small = math.prod(map(len, values)) <= _MOST_COMBINED
            calls |= {Call(action, each): None for each in itertools.product(*values)} if is_small else seen
        return calls

    def _unlike_recorded(
        self, trace: Trace, cfg: Any, operation: Operation, state: Any, result: Any
    ) -> tuple[str, Any] | None:
        """Returns the field that is not as recorded, result or observe, and its value; None if both are."""
        if operation.result is not ABSENT and not same(result, operation.result):
            return "result", result
        if operation.observe is not ABSENT:
            observed = self._observed(trace, cfg, state, operation.observe)
            if not same(observed, operation.observe):
                return "observe", observed
        return None

    def _observed(self, trace: Trace, cfg: Any, state: Any, recorded: Any) -> Any:
        """Returns the observation of a state in recorded form."""
        seen = self.recording.observation(cfg, self.subject.machine.observe(cfg, state), trace.config)
        return self.recording.as_recorded(seen, recorded)

    def _check_order(self, trace: Trace) -> Replayed:
        """Decides whether a concurrent history is linearizable."""
        cfg, replayed = self._config(trace, self.profile), Replayed(trace)
        replayed.operations, start = len(trace.operations), self._pair(trace, cfg).state
        outcomes, refused = self._outcomes(trace, cfg), set[int]()

        def steps(operation: Operation, state: Any) -> Iterator[Any]:
            for after, result, is_refused in outcomes(operation, state):
                if operation.result is ABSENT or same(result, operation.result):
                    if is_refused and operation.result is not ABSENT:
                        refused.add(id(operation))
                    yield after

        reads = {
            id(each): each.result is not ABSENT and self.subject.unchanged(cfg, each.op, each.result)
            for each in trace.operations
        }

        final = trace.header.get("final", ABSENT)
        verdict = linearize(
            timed(trace),
            start,
            steps,
            accepts=lambda state: final is ABSENT or same(self._observed(trace, cfg, state, final), final),
            part_of=lambda operation: self.subject.partition(operation.op, operation.args),
            is_read=lambda operation: reads[id(operation)] or id(operation) in refused,
            outline=self._outline(trace, cfg, start),
        )
        prefix = tuple([each.operation for each in verdict.order])
        if verdict.result is Result.UNDECIDED:
            message = f"not decided within {verdict.steps:,} steps of the model"
            replayed.mismatches = [Mismatch(trace.id, trace.line, "", None, None, ["undecided"], None, message, prefix)]
        elif verdict.operation is not None:
            last = verdict.operation.operation
            possible = _distinct(result for state in verdict.states for _, result, _ in outcomes(last, state))
            message = (
                f"not linearizable: no order of the calls has this result; the longest prefix is {len(prefix):,} calls"
            )
            replayed.mismatches = [
                Mismatch(trace.id, last.line, last.op, possible, last.result, ["order"], None, message, prefix)
            ]
        elif verdict.result is Result.NOT_LINEARIZABLE:
            message = "not linearizable: no order of the calls leads to the final observation"
            possible = _distinct(self._observed(trace, cfg, state, final) for state in verdict.states)
            replayed.mismatches = [
                Mismatch(trace.id, trace.line, "", possible, final, ["final"], None, message, prefix)
            ]
        return replayed

    def _outline(self, trace: Trace, cfg: Any, start: Any) -> tuple[Any, Successors] | None:
        """Returns the first state and the steps of the subject's outline. It needs all results, in plain form."""
        outline = self.subject.outline
        if outline is None or OWN not in trace.header or any(each.result is ABSENT for each in trace.operations):
            return None

        def steps(operation: Operation, state: Any) -> Iterator[Any]:
            after = outline.after(cfg, state, operation.op, operation.result)
            if after is not None:
                yield after

        return outline.of(cfg, start), steps

    def _outcomes(self, trace: Trace, cfg: Any) -> Callable[[Operation, Any], Iterator[tuple[Any, Any, bool]]]:
        """Returns a function from operation and state to the allowed steps.

        A step is the state after it, the outcome in recorded form, and whether the operation was refused.
        """
        machine, form, config = self.subject.machine, self.recording.result, trace.config
        own = trace.operations if OWN in trace.header else ()
        fixed = {id(each): self.calls(trace, cfg, None, each) for each in own if each.gap is None}

        def outcomes(operation: Operation, state: Any) -> Iterator[tuple[Any, Any, bool]]:
            *first, last = fixed.get(id(operation)) or self.calls(trace, cfg, state, operation)
            for call in first:
                state, _ = machine.step(cfg, state, *call)
            for after, outcome in (machine.step(cfg, state, *last), *machine.alternatives(cfg, state, *last)):
                yield after, form(cfg, operation.op, outcome, config), outcome.__class__ is Refused

        return outcomes

    def _explanation(self, trace: Trace, base: Any, known: list[Deviation], mismatch: Mismatch) -> list[Deviation]:
        """Returns the smallest set of deviations with which the first mismatch comes later, or there is none.

        Deviations that the config has already are not tried: all of them under the profile of the recorded version.
        """
        cfg = self._with(base, trace, known)
        others = [each for each in self.recording.deviations if self._with(cfg, trace, [each]) != cfg]
        for count in range(1, len(others) + 1):
            for together in itertools.combinations(others, count):
                later = self.first_mismatch(trace, self._with(base, trace, [*known, *together]))
                if later is None or later.line > mismatch.line:
                    return list(together)
        return []

    def _with(self, base: Any, trace: Trace, deviations: list[Deviation]) -> Any:
        """Returns the config in which the given deviations are enabled."""
        recorded = self._config(trace, None)
        return base._replace(**{name: getattr(recorded, name) for d in deviations for name in d.settings})

    def _config(self, trace: Trace, profile: str | None) -> Any:
        machine = self.subject.machine
        try:
            settings = dict(self.recording.settings(trace.config))
            if profile is not None and OWN in trace.header:
                settings = {name: settings[name] for name in self.subject.settings if name in settings}
            base = find_profile(self.subject, profile or self.recording.profile)
            return machine.configure(settings, base)
        except (BadValue, KeyError, TypeError) as problem:
            raise BadTrace(trace.path, trace.line, f"config of {trace.id}: {said(problem)}") from None

    def first_mismatch(self, trace: Trace, cfg: Any) -> Mismatch | None:
        """The first operation at which the trace does not agree, and not because of a known deviation. Raises Hang."""
        with watchdog(_time_limit(trace)):
            return next((each for each in self.mismatches(trace, cfg) if each.known_deviation is None), None)

    def mismatches(self, trace: Trace, cfg: Any) -> Iterator[Mismatch]:
        """Yields the operations at which the trace does not agree. Those after the first may be consequences of it.

        Ends at a difference between model and implementation. Of the properties, a finding checks the one that it
        names; it checks all of them if nothing differs.
        """
        agrees, skipped = True, skipped_of(self.subject, trace)
        for each in self._mismatches(trace, cfg, skipped):
            agrees = False
            yield each
        if agrees and skipped:
            yield from self._mismatches(trace, cfg, NONE_SKIPPED)

    def _mismatches(self, trace: Trace, cfg: Any, skipped: Skipped) -> Iterator[Mismatch]:
        recording, config, fold, view = self.recording, trace.config, self.recording.fold, None
        pair, depth = self._pair(trace, cfg, skipped), Depth.ALL if OWN in trace.header else Depth.VIEW
        for operation in trace.operations:
            calls = self.calls(trace, cfg, pair.state if fold is None else view, operation)
            for call in calls:
                difference = pair.step(call, depth if call is calls[-1] else Depth.OUTCOME)
                if difference is not None:
                    expected, actual, cause = difference.expected, difference.actual, difference.cause
                    yield Mismatch(trace.id, operation.line, operation.op, expected, actual, [field_of(cause)])
                    return
            if fold is not None:
                view, result = fold(cfg, view, operation, pair.outcome, config)
            elif operation.result is not ABSENT:
                result = recording.result(cfg, operation.op, pair.outcome, config)
            if operation.result is not ABSENT and not same(result, operation.result):
                found = Mismatch(trace.id, operation.line, operation.op, operation.result, result, ["result"])
                yield found._replace(known_deviation=recording.known(result, config))
                continue
            if operation.observe is not ABSENT:
                seen = self._observed(trace, cfg, pair.state, operation.observe)
                if not same(seen, operation.observe):
                    yield self._unlike(trace, operation, seen)
        if OWN in trace.header and "cause" in trace.header and trace.operations:
            done = [call for each in trace.operations for call in self.calls(trace, cfg, None, each)]
            different = load_difference(pair.target, done)
            if different is not None:
                last, fields = trace.operations[-1], [str(different.cause)]
                yield Mismatch(trace.id, last.line, last.op, different.expected, different.actual, fields)

    def _pair(self, trace: Trace, cfg: Any, skipped: Skipped = NONE_SKIPPED) -> Pair:
        """Returns the model and the second side in the initial state of the trace."""
        machine = self.subject.machine
        against, started = trace.header.get("against"), trace.config.get("start_ns")
        target = Target(self.subject, cfg, machine.configure(against) if against else None, self.model_only)
        start = machine.start(cfg)
        if OWN not in trace.header and isinstance(started, int) and hasattr(start, "now_ns"):
            return Pair(target, skipped, start=start._replace(now_ns=started))
        return Pair(target, skipped)

    def calls(self, trace: Trace, cfg: Any, state: Any, operation: Operation) -> list[Call]:
        """Returns the calls of an operation, with validated arguments. Raises BadTrace."""
        actions, calls = self.subject.machine.actions, list[Call]()
        try:
            for name, arguments in self.recording.actions(cfg, state, operation, trace.config):
                if name not in actions:
                    raise BadValue(f"{self.subject.name} has no operation {name}; it has {', '.join(actions)}")
                calls.append(Call(name, actions[name].arguments(arguments, cfg)))
        except (BadValue, KeyError, TypeError, IndexError, ValueError) as problem:
            raise BadTrace(trace.path, operation.line, f"operation {operation.op}: {said(problem)}") from None
        return calls

    def _unlike(self, trace: Trace, operation: Operation, seen: Any) -> Mismatch:
        """Returns the mismatch of an observation: the fields that differ, with their values."""
        recorded = operation.observe
        if not isinstance(recorded, dict) or not isinstance(seen, dict):
            return Mismatch(trace.id, operation.line, operation.op, recorded, seen, ["observe"])
        fields = sorted(k for k in {*recorded, *seen} if not same(recorded.get(k, ABSENT), seen.get(k, ABSENT)))
        expected, actual = {k: recorded.get(k) for k in fields}, {k: seen.get(k) for k in fields}
        return Mismatch(trace.id, operation.line, operation.op, expected, actual, [f"observe.{k}" for k in fields])


def _time_limit(trace: Trace) -> float:
    """The processor time of one run of a trace after which it counts as a hang."""
    return HANG_SECONDS * (1 + len(trace.operations) / 100)


def skipped_of(subject: Subject, trace: Trace) -> Skipped:
    """Returns the properties that a replay of a finding leaves out: all but the one that it violates.

    Another property may fail at an earlier step. None is left out of a trace that is no finding.
    """
    if OWN not in trace.header or "cause" not in trace.header:
        return NONE_SKIPPED
    return all_but(subject, Cause.parse(trace.header["cause"]).broken_property)


def field_of(cause: Cause) -> str:
    """Returns the entry of `Mismatch.fields` for a difference between model and implementation."""
    return str(cause.kind) if cause.kind in (Kind.OUTCOME, Kind.CRASH) else str(cause)


def _past_gap(trace: Trace, verdict: Fit) -> Mismatch:
    """Returns the mismatch of a recording with gaps: the furthest operation."""
    last, fields, message = verdict.operation, [verdict.field], f"none of {verdict.states:,} states after the gap fits"
    if verdict.result is Agreement.UNDECIDED:
        fields, message = ["undecided"], f"not decided within {verdict.steps:,} steps of the model"
    recorded = last.result if verdict.field == "result" else last.observe
    recorded = None if recorded is ABSENT else recorded
    return Mismatch(trace.id, last.line, last.op, recorded, _distinct(verdict.possible), fields, None, message)


def is_concurrent(trace: Trace) -> bool:
    """Whether a trace is a history of several threads. Raises BadTrace if only some operations have a thread."""
    spans = [each for each in trace.operations if each.span is not None]
    if spans and len(spans) < len(trace.operations):
        line = next(each.line for each in trace.operations if each.span is None)
        raise BadTrace(trace.path, line, "this operation needs thread, invoked and returned, as the others have them")
    return bool(spans)


def timed(trace: Trace) -> list[Timed]:
    """The operations of a concurrent history with their times."""
    spans = [(each, each.span) for each in trace.operations if each.span is not None]
    return [
        Timed(span.thread, span.invoked, math.inf if span.returned is None else span.returned, each)
        for each, span in spans
    ]


def _distinct(values: Iterable[Any]) -> list[Any]:
    """The values without repetitions, in order."""
    return list({to_json(each): each for each in values}.values())


def replayer_of(trace: Trace, profile: str | None = None, *, subject: Subject | None = None) -> Replayer:
    """The replayer for a trace's component."""
    recording = recording_of(trace)
    return Replayer(recording, subject or find_subject(recording.subject), profile)
