"""Replay of one trace: whether it agrees with the model.

    sequential trace     each operation runs on the model. Outcome and observation must be as recorded. If the target
                         has a second side (`fuzz/target.py`), the operation runs on this side, too: outcomes and states
                         of the two must be equal
    trace with gaps      a gap stands for operations that were not recorded. After a gap, the model runs alone, from
                         every state to which such operations may have led (`fuzz/run/gaps.py`)
    concurrent history   the model runs alone, and must be able to execute the calls in some order with the recorded
                         results (`fuzz/run/linearize.py`)

If the operations of a sequential trace are actions (`Trace.has_actions`), the replay also checks the properties and the
implementation's structural invariants (`check`). The operations before the first gap are a sequential trace. The replay
of a finding also loads copies of the implementation, as `fuzz/run/replay.py` does.

A recording of Pulsar can be replayed under a profile other than that of the recorded version. The known differences are
`Deviation`s (`fuzz/trace/recording.py`): each names the config fields in which the recorded version differs from the
reference. After a mismatch, the replay searches for the smallest set of deviations that explains the mismatch, and
replays the trace with the fields of these deviations set as in the recorded version. So mismatches after a known
deviation are found, too. The replay ends at the first mismatch that no deviation explains.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from fuzz.platform.json import to_json
from fuzz.run.call import Call
from fuzz.run.checks import NONE_SKIPPED, Skipped, all_but
from fuzz.run.compare import same
from fuzz.run.finding import Cause, Kind
from fuzz.run.gaps import Agreement, GapSearch, GapVerdict
from fuzz.run.generate import possible_calls
from fuzz.run.linearize import CoarseModel, Reduction, Result, Tally, Timed, linearize
from fuzz.run.pair import Depth, Pair, load_difference
from fuzz.run.watchdog import Hang, time_limit, watchdog
from fuzz.subject import Subject, find_profile, find_subject
from fuzz.target import Target
from fuzz.trace.file import ABSENT, BadTrace, Operation, Trace
from fuzz.trace.recording import Deviation, TraceMapping, mapping_of, message_of
from model.machine import BadValue

#: In a gap, the recorded values of an action's arguments are combined only if they have at most this many combinations.
#: Otherwise, the action's recorded calls are tried as they are. Calls with values of the domains are tried in any case.
_MOST_COMBINED = 200
#: Limit of the processor time of a search for an order or for the calls in gaps. Usually, the search reaches its limit
#: of steps earlier.
_SEARCH_SECONDS = 60.0


class Disagreement(StrEnum):
    """How a replay disagrees with its trace, or why there is no verdict."""

    RESULT = "result"  # the recorded result is not the model's
    OBSERVE = "observe"  # the recorded observation is not the model's
    ORDER = "order"  # a concurrent history has no order with the recorded results
    FINAL = "final"  # no order with the recorded results leads to the final observation
    DIFFERENCE = "difference"  # model and second side differ, or a property or check fails: see `Mismatch.cause`
    UNDECIDED = "undecided"  # the search has reached its limit
    HANG = "hang"  # the replay did not end in time


class Mismatch(NamedTuple):
    """Where a replay does not agree with its trace, or has no verdict.

    `op` is empty if the mismatch concerns no single operation. A recording tests the model, so the recorded value is
    the expected one. A concurrent history tests the recorded program, so the roles are swapped.

                                  `expected`                       `actual`
    recording                     the recorded value               the model's value
    recording, after a gap        the recorded value               the values that the model allows
    model and second side differ  the model's value                the second side's value
    concurrent history            the values that the model allows the recorded value
    """

    trace: str
    line: int
    op: str
    expected: Any
    actual: Any
    kind: Disagreement
    known_deviation: str | None = None
    message: str | None = None
    found_order: tuple[Operation, ...] | None = None  # of a concurrent history: an order with which the search ended
    #: for OBSERVE, if the observations are objects: the fields that differ; empty after a gap
    observed_fields: tuple[str, ...] = ()
    cause: Cause | None = None  # if the kind is DIFFERENCE

    @property
    def labels(self) -> list[str]:
        """What differs, for tables: `label_of` the cause, or `observe.FIELD` for each field, or else the kind."""
        if self.cause is not None:
            return [label_of(self.cause)]
        return [f"{self.kind}.{name}" for name in self.observed_fields] or [str(self.kind)]


@dataclass
class Replayed:
    """The result of replaying one trace."""

    trace: Trace
    operations: int = 0  # number of operations, without gaps
    mismatches: list[Mismatch] = field(default_factory=list)


class Replayer:
    """Replays the traces of one mapping (`TraceMapping`) under one profile, by default that of the recorded version.

    With `model_only`, the model runs alone even under `reference`, where the implementation would otherwise run, too.
    """

    def __init__(
        self, mapping: TraceMapping, subject: Subject, profile: str | None = None, *, model_only: bool = False
    ) -> None:
        self.mapping = mapping
        self.subject = subject
        self.profile = profile
        self.model_only = model_only

    def replay(self, trace: Trace) -> Replayed:
        """Replays a trace. The result has the mismatches, each with the known deviation that explains it, if any does.

        If only several known deviations together explain a mismatch, the mismatch is in the result once for each of
        these deviations. Raises BadTrace for a bad config, an unknown operation or bad arguments. Cost: O(operations),
        and after a mismatch the same for each set of deviations that is tried. Gaps and concurrent histories need a
        search, which costs more.
        """
        has_gaps, is_history = any(each.gap is not None for each in trace.operations), is_concurrent(trace)
        if self.mapping.fold is not None and (has_gaps or is_history):
            what = f"a recording of {trace.component} can have no gaps and no threads"
            raise BadTrace(trace.path, trace.line, f"{what}: each result depends on all earlier operations")
        try:
            if not has_gaps and not is_history:
                return self._replay(trace)
            with watchdog(time_limit(len(trace.operations)) + _SEARCH_SECONDS):
                return self._check_order(trace) if is_history else self._replay_past_gaps(trace)
        except Hang as problem:
            message = f"the replay did not end within {problem.seconds:g} s of processor time"
            hang = Mismatch(trace.id, trace.line, "", None, None, Disagreement.HANG, None, message)
            return Replayed(trace, sum(each.gap is None for each in trace.operations), [hang])

    def _replay(self, trace: Trace) -> Replayed:
        """Replays a sequential trace without gaps.

        After a mismatch that deviations explain, replays the trace again with these deviations.
        """
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
            mismatch = self.first_mismatch(trace, self._with_deviations(base, trace, known))
        if self.mapping.fold is not None:
            # `first_mismatch` passes over the mismatches that `fold` explains by a deviation. Of each such deviation,
            # the first mismatch is added: the dict keeps the last value of a key, so the mismatches are reversed
            with watchdog(time_limit(len(trace.operations))):
                named = [m for m in self.mismatches(trace, base) if m.known_deviation is not None]
            replayed.mismatches += {m.known_deviation: m for m in reversed(named)}.values()
        return replayed

    def _replay_past_gaps(self, trace: Trace) -> Replayed:
        """Replays a trace with gaps. The operations before the first gap are replayed as a trace of their own."""
        first = next(i for i, each in enumerate(trace.operations) if each.gap is not None)
        before = replace(trace, operations=trace.operations[:first])
        replayed = self._replay(before)
        replayed.trace, replayed.operations = trace, sum(each.gap is None for each in trace.operations)
        if any(each.known_deviation is None for each in replayed.mismatches):
            return replayed
        # after the first gap, the model has the deviations that explained the mismatches before this gap
        base = self._config(trace, self.profile)
        names = {each.known_deviation for each in replayed.mismatches}
        cfg = self._with_deviations(base, trace, [each for each in self.mapping.deviations if each.name in names])
        pair = self._pair(trace, cfg)
        for operation in before.operations:
            for call in self.calls(trace, cfg, pair.state, operation):
                pair.step(call, Depth.OUTCOME)
        bad_arguments = list[BadTrace]()
        search = GapSearch(
            trace.operations[first:],
            self._successors_in_gap(trace, cfg, pair.state),
            self._possible_steps(trace, cfg, bad_arguments),
            lambda operation, state, result: self._wrong_field(trace, cfg, operation, state, result),
            gap_of=lambda operation: operation.gap,
        )
        verdict = search.run(pair.state)
        if verdict.agreement is Agreement.DISAGREES and bad_arguments and not verdict.possible:
            # every state was dropped at bad arguments, and none at a value that differs: so the trace is bad
            raise bad_arguments[0]
        if verdict.agreement is not Agreement.AGREES:
            replayed.mismatches.append(_gap_mismatch(trace, verdict))
        return replayed

    def _successors_in_gap(self, trace: Trace, cfg: Any, before_gaps: Any) -> Callable[[Any], Iterator[Any]]:
        """Returns a function from a state to the states after each call that may have been made in a gap.

        These calls are those of `_recorded_calls`, and all calls with arguments from the subject's domains. The
        arguments of some recorded calls are computed from the state; here they are computed once, in `before_gaps`, the
        state before the first gap.
        """
        machine, recorded = self.subject.machine, self._recorded_calls(trace, cfg, before_gaps)
        every = possible_calls(self.subject, cfg).every

        def calls(state: Any) -> Iterator[Call]:
            yield from recorded
            for name in machine.actions:
                # a domain with too many values cannot be listed. For example, the config of a recording of active
                # cursors has 2**133 cursors, because a cursor's number encodes its name
                with suppress(OverflowError, MemoryError):
                    yield from (call for call in every(cfg, state, (name,)) if call not in recorded)

        def successors(state: Any) -> Iterator[Any]:
            for call in calls(state):
                yield machine.step(cfg, state, *call)[0]

        return successors

    def _recorded_calls(self, trace: Trace, cfg: Any, state: Any) -> dict[Call, None]:
        """Returns the calls of recorded actions with all combinations of the action's recorded arguments.

        For an action with more than `_MOST_COMBINED` combinations, returns the recorded calls only. The result is an
        ordered set: its values are None.
        """
        recorded: dict[str, dict[Call, None]] = {}  # by action
        for operation in trace.operations:
            if operation.gap is not None:
                continue
            with suppress(BadTrace):
                for call in self.calls(trace, cfg, state, operation):
                    recorded.setdefault(call.action, {})[call] = None
        calls: dict[Call, None] = {}
        for action, of_action in recorded.items():
            # for each parameter, its recorded values
            values = [dict.fromkeys(each) for each in zip(*[call.arguments for call in of_action], strict=True)]
            is_small = math.prod(map(len, values)) <= _MOST_COMBINED
            calls |= {Call(action, each): None for each in itertools.product(*values)} if is_small else of_action
        return calls

    def _wrong_field(
        self, trace: Trace, cfg: Any, operation: Operation, state: Any, result: Any
    ) -> tuple[Disagreement, Any] | None:
        """Returns what differs from the recording (`result`, or else `observe`) and the model's value; else None."""
        if operation.result is not ABSENT and not same(result, operation.result):
            return Disagreement.RESULT, result
        if operation.observe is not ABSENT:
            observed = self._observed(trace, cfg, state, operation.observe)
            if not same(observed, operation.observe):
                return Disagreement.OBSERVE, observed
        return None

    def _observed(self, trace: Trace, cfg: Any, state: Any, recorded: Any) -> Any:
        """Returns the model's observation of a state in recorded form. `recorded` is the recorded observation."""
        seen = self.mapping.observation(cfg, self.subject.machine.observe(cfg, state), trace.config)
        return self.mapping.as_recorded(seen, recorded)

    def _check_order(self, trace: Trace) -> Replayed:
        """Replays a concurrent history. A mismatch says: not linearizable, or no verdict.

        If the operations are actions, the subject says which of them are independent or reads.
        """
        cfg, replayed = self._config(trace, self.profile), Replayed(trace)
        replayed.operations, start = len(trace.operations), self._pair(trace, cfg).state
        bad_arguments = list[BadTrace]()
        possible_steps = self._possible_steps(trace, cfg, bad_arguments)
        #: `id` of each read: an operation that changes no state in which it has the recorded result. A refusal need not
        #: be one: in another state, the action may fail with the same result, and change the state
        reads = {
            id(each)
            for each in trace.operations
            if trace.has_actions and each.result is not ABSENT and self.subject.unchanged(cfg, each.op, each.result)
        }

        def successors(operation: Operation, state: Any) -> Iterator[Any]:
            for after, result in possible_steps(operation, state):
                if operation.result is ABSENT or same(result, operation.result):
                    yield after

        def part_of(operation: Operation) -> Hashable:
            return self.subject.partition(operation.op, operation.args) if trace.has_actions else None

        final = trace.header.get("final", ABSENT)
        verdict = linearize(
            timed(trace),
            start,
            successors,
            accepts=lambda state: final is ABSENT or same(self._observed(trace, cfg, state, final), final),
            part_of=part_of,
            is_read=lambda operation: id(operation) in reads,
            coarse_models=self._coarse_models(trace, cfg, start),
            reduction=self._reduction(trace, cfg),
            tally=self._tally(trace),
        )
        order = tuple([each.operation for each in verdict.order])
        if verdict.result is Result.UNDECIDED:
            message = f"not decided within {verdict.steps:,} steps of the search"
            replayed.mismatches = [
                Mismatch(trace.id, trace.line, "", None, None, Disagreement.UNDECIDED, None, message, order)
            ]
        elif verdict.blocked is not None:
            blocked, kind = verdict.blocked.operation, Disagreement.ORDER
            possible = _distinct(result for state in verdict.states for _, result in possible_steps(blocked, state))
            if bad_arguments and not possible:  # the arguments of the blocked operation fit no state
                raise bad_arguments[0]
            message = (
                "not linearizable: no order of this call and the calls that returned before it has the recorded "
                f"results; the order that was found has {len(order):,} calls"
            )
            replayed.mismatches = [
                Mismatch(trace.id, blocked.line, blocked.op, possible, blocked.result, kind, None, message, order)
            ]
        elif verdict.result is Result.NOT_LINEARIZABLE:
            message = "not linearizable: no order with the recorded results leads to the final observation"
            possible = _distinct(self._observed(trace, cfg, state, final) for state in verdict.states)
            replayed.mismatches = [
                Mismatch(trace.id, trace.line, "", possible, final, Disagreement.FINAL, None, message, order)
            ]
        return replayed

    def _coarse_models(self, trace: Trace, cfg: Any, start: Any) -> list[CoarseModel]:
        """Returns a coarse model for each key of the trace's calls (`CoarseModels.key_of`), such as a position.

        The first is for the key of the most calls. Without `key_of`, there is one model, with the key None. Returns an
        empty list if the subject has no coarse models, if a result was not recorded, or if the operations are not
        actions: a coarse model takes actions with plain outcomes.
        """
        of_subject = self.subject.coarse_models
        if of_subject is None or not trace.has_actions or any(each.result is ABSENT for each in trace.operations):
            return []
        calls = {id(each): self.calls(trace, cfg, None, each)[0] for each in trace.operations}
        keys: list[Any] = [None]
        if of_subject.key_of is not None:
            counts = Counter(of_subject.key_of(*call) for call in calls.values())
            keys = [key for key, _ in counts.most_common() if key is not None]

        def coarse(key: Any) -> CoarseModel:
            return CoarseModel(
                of_subject.of(cfg, start, key),
                lambda operation, state: of_subject.after(cfg, state, key, *calls[id(operation)], operation.result),
                lambda operation: of_subject.concerns(cfg, key, *calls[id(operation)], operation.result),
            )

        return [coarse(key) for key in keys]

    def _tally(self, trace: Trace) -> Tally | None:
        """Returns the subject's tally; None if the subject has none, or if the operations are not actions."""
        name = self.subject.tally
        if name is None or not trace.has_actions:
            return None
        return Tally(lambda state: getattr(state, name), lambda state, number: state._replace(**{name: number}))

    def _reduction(self, trace: Trace, cfg: Any) -> Reduction | None:
        """Returns the subject's reduction; None if the subject has none, or if the operations are not actions."""
        reduction = self.subject.reduction
        if reduction is None or not trace.has_actions:
            return None
        return lambda operations: reduction(cfg, [(each.op, each.args) for each in operations])

    def _possible_steps(
        self, trace: Trace, cfg: Any, bad_arguments: list[BadTrace]
    ) -> Callable[[Operation, Any], list[tuple[Any, Any]]]:
        """Returns a function from an operation and a state of the model to the operation's step.

        The step is the state after the operation, and the outcome in recorded form. If the arguments do not fit the
        state, the function returns no step, and `bad_arguments` has the problem. For example, the recorded time of the
        operation is before the state's `now_ns`. Raises BadTrace if operations are actions, and arguments are bad.
        """
        machine, as_recorded, config = self.subject.machine, self.mapping.result, trace.config
        # if operations are actions, their calls do not depend on the state, and are made once
        actions = trace.operations if trace.has_actions else ()
        fixed = {id(each): self.calls(trace, cfg, None, each) for each in actions if each.gap is None}

        def steps(operation: Operation, state: Any) -> list[tuple[Any, Any]]:
            try:
                calls = fixed.get(id(operation)) or self.calls(trace, cfg, state, operation)
            except BadTrace as problem:
                bad_arguments[:] = [problem]
                return []
            for call in calls:
                state, outcome = machine.step(cfg, state, *call)
            return [(state, as_recorded(cfg, operation.op, outcome, config))]

        return steps

    def _explanation(self, trace: Trace, base: Any, known: list[Deviation], mismatch: Mismatch) -> list[Deviation]:
        """Returns the smallest set of deviations that explains a mismatch; an empty list if there is none.

        A set explains the mismatch if a replay with the set and with the `known` deviations shows no mismatch, or its
        first one at a later line. A deviation that does not change the config is not tried. Under the profile of the
        recorded version, no deviation changes the config.
        """
        cfg = self._with_deviations(base, trace, known)
        others = [each for each in self.mapping.deviations if self._with_deviations(cfg, trace, [each]) != cfg]
        for count in range(1, len(others) + 1):
            for chosen in itertools.combinations(others, count):
                first = self.first_mismatch(trace, self._with_deviations(base, trace, [*known, *chosen]))
                if first is None or first.line > mismatch.line:
                    return list(chosen)
        return []

    def _with_deviations(self, base: Any, trace: Trace, deviations: list[Deviation]) -> Any:
        """Returns `base` with the values of the recorded version for the fields of the deviations."""
        recorded = self._config(trace, None)
        return base._replace(**{name: getattr(recorded, name) for d in deviations for name in d.fields})

    def _config(self, trace: Trace, profile: str | None) -> Any:
        """Returns the config of a trace under a profile; None stands for the profile of the recorded version.

        If the operations are actions and a profile is given, only the settings that generation draws for each trace
        (`Subject.settings`) are taken from the trace. Rules and other settings are those of the profile. Raises
        BadTrace.
        """
        machine = self.subject.machine
        try:
            settings = dict(self.mapping.settings(trace.config))
            if profile is not None and trace.has_actions:
                settings = {name: settings[name] for name in self.subject.settings if name in settings}
            base = find_profile(self.subject, profile or self.mapping.profile)
            return machine.configure(settings, base)
        except (BadValue, KeyError, TypeError) as problem:
            raise BadTrace(trace.path, trace.line, f"config of {trace.id}: {message_of(problem)}") from None

    def first_mismatch(self, trace: Trace, cfg: Any) -> Mismatch | None:
        """Returns the first mismatch without a `known_deviation`, or None. Raises Hang and BadTrace."""
        with watchdog(time_limit(len(trace.operations))):
            return next((each for each in self.mismatches(trace, cfg) if each.known_deviation is None), None)

    def mismatches(self, trace: Trace, cfg: Any) -> Iterator[Mismatch]:
        """Yields the mismatches of a sequential trace without gaps. Later ones may be consequences of the first.

        Ends at a difference between model and second side, or at a violated property. The replay of a finding checks
        only the property that the finding violates, so none if it violates none. If this replay shows no mismatch, a
        second one checks all properties. Raises BadTrace.
        """
        agrees, skipped = True, skipped_of(self.subject, trace)
        for each in self._mismatches(trace, cfg, skipped):
            agrees = False
            yield each
        if agrees and skipped:
            yield from self._mismatches(trace, cfg, NONE_SKIPPED)

    def _mismatches(self, trace: Trace, cfg: Any, skipped: Skipped) -> Iterator[Mismatch]:
        """Yields the mismatches of a replay that does not check the skipped properties.

        After a wrong result, the observation of the operation is not compared.
        """
        mapping, config, fold, folded = self.mapping, trace.config, self.mapping.fold, None
        pair, depth = self._pair(trace, cfg, skipped), Depth.ALL if trace.has_actions else Depth.VIEW
        for operation in trace.operations:
            calls = self.calls(trace, cfg, pair.state if fold is None else folded, operation)
            for call in calls:
                difference = pair.step(call, depth if call is calls[-1] else Depth.OUTCOME)
                if difference is not None:
                    expected, actual, cause = difference.expected, difference.actual, difference.cause
                    kind = Disagreement.DIFFERENCE
                    yield Mismatch(trace.id, operation.line, operation.op, expected, actual, kind, cause=cause)
                    return
            deviation = None
            if fold is not None:
                folded, result, deviation = fold(cfg, folded, operation, pair.outcome, config)
            elif operation.result is not ABSENT:
                result = mapping.result(cfg, operation.op, pair.outcome, config)
            if operation.result is not ABSENT and not same(result, operation.result):
                found = Mismatch(trace.id, operation.line, operation.op, operation.result, result, Disagreement.RESULT)
                yield found._replace(known_deviation=deviation)
                continue
            if operation.observe is not ABSENT:
                seen = self._observed(trace, cfg, pair.state, operation.observe)
                if not same(seen, operation.observe):
                    yield self._observation_mismatch(trace, operation, seen)
        if cause_of(trace) is not None and trace.operations:
            done = [call for each in trace.operations for call in self.calls(trace, cfg, None, each)]
            different = load_difference(pair.target, done)
            if different is not None:
                last, expected, actual = trace.operations[-1], different.expected, different.actual
                kind, cause = Disagreement.DIFFERENCE, different.cause
                yield Mismatch(trace.id, last.line, last.op, expected, actual, kind, cause=cause)

    def _pair(self, trace: Trace, cfg: Any, skipped: Skipped = NONE_SKIPPED) -> Pair:
        """Returns the model and the second side in the initial state of a trace.

        If the trace is a finding of a comparison with another profile, the key `against` of its opening line is the
        config of that profile. If a recorded config has `start_ns`, the time of the initial state is `start_ns`.
        """
        machine = self.subject.machine
        other, started = trace.header.get("against"), trace.config.get("start_ns")
        target = Target(self.subject, cfg, machine.configure(other) if other else None, self.model_only)
        start = machine.start(cfg)
        if not trace.has_actions and isinstance(started, int) and hasattr(start, "now_ns"):
            return Pair(target, skipped, start=start._replace(now_ns=started))
        return Pair(target, skipped)

    def calls(self, trace: Trace, cfg: Any, state: Any, operation: Operation) -> list[Call]:
        """Returns the calls of the actions that an operation maps to in a state.

        Raises BadTrace for an unknown action or bad arguments.
        """
        actions, calls = self.subject.machine.actions, list[Call]()
        try:
            for name, arguments in self.mapping.actions(cfg, state, operation, trace.config):
                if name not in actions:
                    raise BadValue(f"{self.subject.name} has no action {name}; it has {', '.join(actions)}")
                calls.append(Call(name, actions[name].arguments(arguments, cfg)))
        except (BadValue, KeyError, TypeError, IndexError, ValueError) as problem:
            raise BadTrace(trace.path, operation.line, f"operation {operation.op}: {message_of(problem)}") from None
        return calls

    def _observation_mismatch(self, trace: Trace, operation: Operation, seen: Any) -> Mismatch:
        """Returns the mismatch of a recorded observation and the model's, with the values of the fields that differ."""
        recorded = operation.observe
        if not isinstance(recorded, dict) or not isinstance(seen, dict):
            return Mismatch(trace.id, operation.line, operation.op, recorded, seen, Disagreement.OBSERVE)
        fields = sorted(k for k in {*recorded, *seen} if not same(recorded.get(k, ABSENT), seen.get(k, ABSENT)))
        expected, actual = {k: recorded.get(k) for k in fields}, {k: seen.get(k) for k in fields}
        kind, differ = Disagreement.OBSERVE, tuple(fields)
        return Mismatch(trace.id, operation.line, operation.op, expected, actual, kind, observed_fields=differ)


def skipped_of(subject: Subject, trace: Trace) -> Skipped:
    """Returns the properties that a replay does not check: for a finding, all except the one that it violates.

    The replay of a finding that violates no property checks none. Another property may fail at an earlier step, and
    would end the replay there. The replay of a trace that is no finding checks all properties.
    """
    cause = cause_of(trace)
    return NONE_SKIPPED if cause is None else all_but(subject, cause.broken_property)


def cause_of(trace: Trace) -> Cause | None:
    """Returns the cause of a finding; None if the trace is no finding. Raises BadTrace for a bad cause.

    In the findings of earlier versions of the code, the cause is a text. Such a trace counts as no finding.
    """
    found = trace.header.get("cause")
    if not trace.has_actions or found is None or isinstance(found, str):
        return None
    try:
        return Cause(Kind(found["kind"]), str(found["what"]))
    except (KeyError, TypeError, ValueError):
        wanted = f"cause must have the keys what and kind; kind is one of {', '.join(Kind)}"
        raise BadTrace(trace.path, trace.line, f"{wanted}; got {found}") from None


def label_of(cause: Cause) -> str:
    """Returns a cause as text: `KIND:WHAT`. For OUTCOME, CRASH and HANG only `KIND`: `Mismatch.op` names the action."""
    return str(cause.kind) if cause.kind in (Kind.OUTCOME, Kind.CRASH, Kind.HANG) else str(cause)


def _gap_mismatch(trace: Trace, verdict: GapVerdict) -> Mismatch:
    """Returns the mismatch of a recording with gaps, at the furthest operation that the search reached."""
    furthest, message = verdict.operation, f"none of {verdict.states:,} states after the gap fits"
    kind = Disagreement(verdict.field)
    if verdict.agreement is Agreement.UNDECIDED:
        kind, message = Disagreement.UNDECIDED, f"not decided within {verdict.steps:,} steps of the model"
    recorded = furthest.result if verdict.field == "result" else furthest.observe
    recorded = None if recorded is ABSENT else recorded
    return Mismatch(trace.id, furthest.line, furthest.op, recorded, _distinct(verdict.possible), kind, None, message)


def is_concurrent(trace: Trace) -> bool:
    """Returns whether a trace is a concurrent history. Raises BadTrace if only some operations have a thread."""
    spans = [each for each in trace.operations if each.span is not None]
    if spans and len(spans) < len(trace.operations):
        line = next(each.line for each in trace.operations if each.span is None)
        raise BadTrace(trace.path, line, "this operation needs thread, invoked and returned, as the others have them")
    return bool(spans)


def timed(trace: Trace) -> list[Timed]:
    """Returns the operations of a concurrent history with their threads and times."""
    spans = [(each, each.span) for each in trace.operations if each.span is not None]
    return [
        Timed(span.thread, span.invoked, math.inf if span.returned is None else span.returned, each)
        for each, span in spans
    ]


def _distinct(values: Iterable[Any]) -> list[Any]:
    """Returns the values without repetitions, in order."""
    return list({to_json(each): each for each in values}.values())


def replayer_of(trace: Trace, profile: str | None = None, *, subject: Subject | None = None) -> Replayer:
    """Returns the replayer for a trace. `subject` replaces the mapping's subject. Raises BadTrace and BadValue."""
    mapping = mapping_of(trace)
    return Replayer(mapping, subject or find_subject(mapping.subject), profile)
