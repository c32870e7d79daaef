"""Recordings of a real system: how they map to a machine, and how a trace is replayed.

A recording module in `fuzz/recordings/` maps a recorded component to a subject and a profile. It maps each recorded
operation to actions, and outcomes and observations to their recorded form. It lists the known deviations of the
recorded version from the reference. A trace that the engines wrote needs no mapping: its operations are actions.

A recorded decision table is a CSV file, named after its component. Each row is an operation; `Recording.results` names
the columns of its result.

Each operation of a sequential trace runs on model and implementation. Their outcomes and states must be equal, the
outcome must equal the recorded result, and the model's observation the recorded one. A concurrent history is checked
for linearizability against the model alone.
"""

from __future__ import annotations

import importlib
import itertools
import math
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from fuzz.defects.table import defects_of
from fuzz.platform.json import to_json
from fuzz.run.call import Call
from fuzz.run.compare import same
from fuzz.run.finding import Cause, Kind
from fuzz.run.linearize import Result, Timed, linearize
from fuzz.run.pair import Depth, Pair
from fuzz.run.watchdog import HANG_SECONDS, Hang, watchdog
from fuzz.subject import Subject, find_profile, find_subject
from fuzz.target import Target
from fuzz.trace.file import ABSENT, BadTrace, Fetched, Operation, Trace, read_table, read_traces
from model.machine import BadValue, Failed, Refused, plain

#: The key that marks the opening line of a trace that the engines wrote. Its value is the version of the code.
OWN = "brokerproof"


class Deviation(NamedTuple):
    """A known deviation of a recorded version from the reference."""

    name: str
    settings: tuple[str, ...]  # the config fields that the deviation changes
    breaks: str  # the property that it violates; empty for a different design
    smallest: str = ""  # the recorded trace that shows it after the fewest operations; empty if none does


@dataclass(frozen=True)
class Recording:
    """How recordings of one component map to a subject."""

    component: str  # its name in the recordings
    subject: str
    profile: str  # of the version that was recorded
    settings: Callable[[Mapping[str, Any]], Mapping[str, Any]]  # recorded config -> settings of the machine
    actions: Callable[[Any, Any, Operation, Mapping[str, Any]], Sequence[tuple[str, Mapping[str, Any]]]]
    result: Callable[[Any, str, Any, Mapping[str, Any]], Any]  # (config, op, outcome, recorded config) -> recorded form
    observation: Callable[[Any, Any, Mapping[str, Any]], Any]  # (config, observation, recorded config) -> recorded form
    #: (observation in recorded form, recorded one) -> the value that must equal the recorded one. It drops fields that
    #: were not recorded, and resolves a choice that the specification leaves
    as_recorded: Callable[[Any, Any], Any] = lambda seen, recorded: seen
    kind: Callable[[Mapping[str, Any]], bool] = lambda config: True  # whether the mapping applies to a recorded config
    results: frozenset[str] = frozenset()  # the columns of a decision table that are results
    #: known deviations: ids of the defect table, each with its `Deviation.smallest`
    defects: Mapping[str, str] = field(default_factory=dict)
    #: known deviations without a row in the defect table: a different design, or a part of a defect
    others: tuple[Deviation, ...] = ()

    @cached_property
    def deviations(self) -> tuple[Deviation, ...]:
        """The known deviations of the recorded version from the reference."""
        rows = {row.id: row for row in defects_of(self.subject)} if self.defects else {}
        known = [Deviation(name, rows[name].rules, rows[name].property, trace) for name, trace in self.defects.items()]
        of_component = f"{self.component}/dev/"
        return tuple([d._replace(smallest=d.smallest and of_component + d.smallest) for d in (*known, *self.others)])


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


def recordings() -> list[Recording]:
    """The mappings of all recorded components."""
    package = importlib.import_module("fuzz.recordings")  # its modules import this one
    modules = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return [r for name in modules for r in importlib.import_module(f"fuzz.recordings.{name}").recordings]


def recording_of(trace: Trace) -> Recording:
    """The mapping of a trace to a subject. Raises BadTrace when no mapping has its component."""
    if OWN in trace.header:
        return own_recording(trace.component)
    for each in recordings():
        if each.component == trace.component and each.kind(trace.config):
            return each
    known = ", ".join(sorted({r.component for r in recordings()}))
    raise BadTrace(
        trace.path, trace.line, f"no subject for the component {trace.component}; recordings are known of {known}"
    )


def recorded_traces(path: Path | Fetched, part: int = 0, parts: int = 1) -> Iterator[Trace]:
    """Yields the traces of a file, as `read_traces`; a decision table is one trace. Raises BadTrace."""
    if not path.name.removesuffix(".gz").endswith(".csv"):
        yield from read_traces(path, part, parts)
    elif part == 0:
        name = path.name.partition(".")[0]
        trace = Trace(f"{name}/dev/table", name, {}, [], {}, str(path), 1)
        results = recording_of(trace).results
        for line, row in read_table(path):
            if not results < row.keys():
                raise BadTrace(path, 1, f"a table of {name} needs the columns {', '.join(sorted(results))}")
            arguments = {column: text for column, text in row.items() if column not in results}
            said = {column: row[column] for column in results}
            trace.operations.append(Operation(name, arguments, said, ABSENT, line))
        yield trace


def own_recording(subject: str) -> Recording:
    """Returns the mapping of traces that the engines wrote: operations are actions, results are outcomes."""
    return Recording(
        component=subject,
        subject=subject,
        profile="reference",
        settings=lambda config: config,
        actions=lambda cfg, state, operation, config: [(operation.op, operation.args)],
        result=lambda cfg, op, outcome, config: plain(outcome),
        observation=lambda cfg, seen, config: seen,
    )


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
        with watchdog(HANG_SECONDS * (1 + len(trace.operations) / 100)):
            try:
                return self._check_order(trace) if is_concurrent(trace) else self._replay(trace)
            except Hang:
                hang = Mismatch(trace.id, trace.line, "", None, None, ["hang"])
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
        return replayed

    def _check_order(self, trace: Trace) -> Replayed:
        """Decides whether a concurrent history is linearizable."""
        recording, cfg, replayed = self.recording, self._config(trace, self.profile), Replayed(trace)
        replayed.operations, start = len(trace.operations), self._pair(trace, cfg).state
        outcomes = self._outcomes(trace, cfg)

        def steps(operation: Operation, state: Any) -> Iterator[Any]:
            for after, result in outcomes(operation, state):
                if operation.result is ABSENT or same(result, operation.result):
                    yield after

        def observed(state: Any) -> Any:
            seen = recording.observation(cfg, self.subject.machine.observe(cfg, state), trace.config)
            return recording.as_recorded(seen, final)

        final = trace.header.get("final", ABSENT)
        verdict = linearize(
            timed(trace),
            start,
            steps,
            accepts=lambda state: final is ABSENT or same(observed(state), final),
            part_of=lambda operation: self.subject.partition(operation.op, operation.args),
        )
        prefix = tuple([each.operation for each in verdict.order])
        if verdict.result is Result.UNDECIDED:
            message = f"not decided within {verdict.steps:,} steps of the model"
            replayed.mismatches = [Mismatch(trace.id, trace.line, "", None, None, ["undecided"], None, message, prefix)]
        elif verdict.operation is not None:
            last = verdict.operation.operation
            possible = _distinct(result for state in verdict.states for _, result in outcomes(last, state))
            message = (
                f"not linearizable: no order of the calls has this result; the longest prefix is {len(prefix):,} calls"
            )
            replayed.mismatches = [
                Mismatch(trace.id, last.line, last.op, possible, last.result, ["order"], None, message, prefix)
            ]
        elif verdict.result is Result.NOT_LINEARIZABLE:
            message = "not linearizable: no order of the calls leads to the final observation"
            possible = _distinct(observed(state) for state in verdict.states)
            replayed.mismatches = [
                Mismatch(trace.id, trace.line, "", possible, final, ["final"], None, message, prefix)
            ]
        return replayed

    def _outcomes(self, trace: Trace, cfg: Any) -> Callable[[Operation, Any], Iterator[tuple[Any, Any]]]:
        """Returns a function from operation and state to the allowed steps: next state, outcome in recorded form."""
        machine, form, config = self.subject.machine, self.recording.result, trace.config
        fixed = {id(each): self.calls(trace, cfg, None, each) for each in trace.operations if OWN in trace.header}

        def outcomes(operation: Operation, state: Any) -> Iterator[tuple[Any, Any]]:
            *first, last = fixed.get(id(operation)) or self.calls(trace, cfg, state, operation)
            for call in first:
                state, _ = machine.step(cfg, state, *call)
            for after, outcome in (machine.step(cfg, state, *last), *machine.alternatives(cfg, state, *last)):
                yield after, form(cfg, operation.op, outcome, config)

        return outcomes

    def _explanation(self, trace: Trace, base: Any, known: list[Deviation], mismatch: Mismatch) -> list[Deviation]:
        """Returns the smallest set of deviations with which the first mismatch comes later, or there is none."""
        others = [each for each in self.recording.deviations if each not in known]
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
            raise BadTrace(trace.path, trace.line, f"config of {trace.id}: {_said(problem)}") from None

    def first_mismatch(self, trace: Trace, cfg: Any) -> Mismatch | None:
        """The first operation at which model, implementation and recording do not agree."""
        return next(self.mismatches(trace, cfg), None)

    def mismatches(self, trace: Trace, cfg: Any) -> Iterator[Mismatch]:
        """Yields the operations at which the trace does not agree. Those after the first may be consequences of it.

        Ends at a difference between model and implementation.
        """
        recording, config, observe = self.recording, trace.config, self.subject.machine.observe
        pair, depth = self._pair(trace, cfg), Depth.ALL if OWN in trace.header else Depth.VIEW
        for operation in trace.operations:
            calls = self.calls(trace, cfg, pair.state, operation)
            for call in calls:
                difference = pair.step(call, depth if call is calls[-1] else Depth.OUTCOME)
                if difference is not None:
                    expected, actual, cause = difference.expected, difference.actual, difference.cause
                    yield Mismatch(trace.id, operation.line, operation.op, expected, actual, [_field(cause)])
                    return
            if operation.result is not ABSENT:
                result = recording.result(cfg, operation.op, pair.outcome, config)
                if not same(result, operation.result):
                    yield Mismatch(trace.id, operation.line, operation.op, operation.result, result, ["result"])
                    continue
            if operation.observe is not ABSENT:
                seen = recording.observation(cfg, observe(cfg, pair.state), config)
                seen = recording.as_recorded(seen, operation.observe)
                if not same(seen, operation.observe):
                    yield self._unlike(trace, operation, seen)

    def _pair(self, trace: Trace, cfg: Any) -> Pair:
        """Returns the model and the second side in the initial state of the trace."""
        machine = self.subject.machine
        against, started = trace.header.get("against"), trace.config.get("start_ns")
        target = Target(self.subject, cfg, machine.configure(against) if against else None, self.model_only)
        start = machine.start(cfg)
        if OWN not in trace.header and isinstance(started, int) and hasattr(start, "now_ns"):
            return Pair(target, start=start._replace(now_ns=started))
        return Pair(target)

    def calls(self, trace: Trace, cfg: Any, state: Any, operation: Operation) -> list[Call]:
        """Returns the calls of an operation, with validated arguments. Raises BadTrace."""
        actions, calls = self.subject.machine.actions, list[Call]()
        try:
            for name, arguments in self.recording.actions(cfg, state, operation, trace.config):
                if name not in actions:
                    raise BadValue(f"{self.subject.name} has no operation {name}; it has {', '.join(actions)}")
                calls.append(Call(name, actions[name].arguments(arguments, cfg)))
        except (BadValue, KeyError, TypeError, IndexError, ValueError) as problem:
            raise BadTrace(trace.path, operation.line, f"operation {operation.op}: {_said(problem)}") from None
        return calls

    def _unlike(self, trace: Trace, operation: Operation, seen: Any) -> Mismatch:
        """Returns the mismatch of an observation: the fields that differ, with their values."""
        recorded = operation.observe
        if not isinstance(recorded, dict) or not isinstance(seen, dict):
            return Mismatch(trace.id, operation.line, operation.op, recorded, seen, ["observe"])
        fields = sorted(k for k in {*recorded, *seen} if recorded.get(k, ABSENT) != seen.get(k, ABSENT))
        expected, actual = {k: recorded.get(k) for k in fields}, {k: seen.get(k) for k in fields}
        return Mismatch(trace.id, operation.line, operation.op, expected, actual, [f"observe.{k}" for k in fields])


def _field(cause: Cause) -> str:
    """Returns the entry of `Mismatch.fields` for a difference between model and implementation."""
    return str(cause.kind) if cause.kind in (Kind.OUTCOME, Kind.CRASH) else str(cause)


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


def _said(problem: Exception) -> str:
    """Returns the message of an exception; a KeyError is a missing argument."""
    if isinstance(problem, KeyError):
        return f"lacks {problem.args[0]!r}"
    return str(problem)


def error_or(outcome: Any, otherwise: Callable[[Any], Any]) -> Any:
    """Returns a refusal or failure in recorded form, and `otherwise(outcome)` for any other outcome."""
    return {"error": outcome.kind} if isinstance(outcome, Refused | Failed) else otherwise(outcome)
