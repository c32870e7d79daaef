"""The explanation of a trace: its steps and their changes, the violated guarantee, and why a property is false.

The trace is replayed up to the first difference, with this version of the code. Every step is compared in full. If the
trace is a finding, no property is checked at first, except the one that the finding violates (`explain`). If the trace
is of a foreign program, only the model runs: the difference from the program is in the header of the trace.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from fuzz.charts import Chart, chart_of
from fuzz.report.changes import changes
from fuzz.report.in_pulsar import java_of, needed_rules
from fuzz.report.records import Arrow, Condition, Explanation, Step
from fuzz.report.text import first_sentence, text_of
from fuzz.report.why import why
from fuzz.run.call import Call
from fuzz.run.checks import NONE_SKIPPED, Skipped, Values, event_of
from fuzz.run.compare import as_data
from fuzz.run.finding import Cause, Difference, Kind
from fuzz.run.pair import Pair
from fuzz.run.replay import hang_difference
from fuzz.run.watchdog import HANG_SECONDS, Hang, time_limit, watchdog
from fuzz.seeding import subject_or_mutant
from fuzz.subject import Subject
from fuzz.target import Target
from fuzz.trace.agreement import cause_of, skipped_of
from fuzz.trace.file import Operation, Trace
from invariants.properties import Event, Property
from model.machine import BadValue, Failed, Refused, plain

#: Replaces `HANG_SECONDS` for a trace that is no hang, because computing the changes of each step takes time, too.
_EXPLAIN_SECONDS = 10 * HANG_SECONDS
#: The guarantee that a finding of each kind violates. A finding of another kind violates a property.
GUARANTEES = {
    Kind.OUTCOME: "The implementation returns the model's outcome.",
    Kind.VIEW: "The implementation has the same state as the model.",
    Kind.STRUCTURE: "The structural invariants of the implementation hold.",
    Kind.PROTOCOL: "The program answers as the protocol of `brokerproof sut` requires.",
    Kind.LOAD: "An instance created from the state of another one behaves like that one, and shares no data with it.",
    Kind.STUTTER: "A refused action leaves the state unchanged.",
    Kind.CRASH: "No action raises an exception.",
    Kind.HANG: "Every action returns.",
    Kind.UNSTABLE: "A failure that was seen appears again when its trace is replayed with every step checked.",
    Kind.CANONICAL: "States that the explorer treats as one, because they have the same canonical form, behave alike.",
}
#: The guarantees that replace those of `GUARANTEES` if two profiles of the model are compared.
GUARANTEES_OF_PROFILES = {
    Kind.OUTCOME: "Both profiles return the same outcome.",
    Kind.VIEW: "Both profiles lead to the same state.",
}


def explain(trace: Trace) -> Explanation:
    """Returns the explanation of a trace of actions.

    For a finding, the first replay checks only the violated property, if there is one. If this replay shows no
    difference, a second replay checks all properties, except for a trace of a foreign program. If this version of the
    code cannot run the trace, `Explanation.problem` says why, and there are no steps.
    """
    try:
        return _explain(trace)
    except Exception as problem:  # for example, another version of the code wrote the trace
        text = f"this version of the code cannot run the trace: {problem}"
        return Explanation(kind=None, guarantee="", steps=[], conditions=[], problem=text)


def _explain(trace: Trace) -> Explanation:
    """As `explain`. Raises BadValue or another exception if this version of the code cannot run the trace."""
    subject = subject_or_mutant(trace.component, trace.header.get("mutant"))
    machine = subject.machine
    cfg = machine.configure(trace.config)
    other_config = machine.configure(trace.header["against"]) if "against" in trace.header else None
    header_cause = cause_of(trace)
    chart = chart_of(trace.component)
    is_foreign = "program" in trace.header  # whether the trace is of a foreign program; then the model runs alone
    calls = [_call_of(subject, cfg, operation) for operation in trace.operations]
    is_hang = header_cause is not None and header_cause.kind is Kind.HANG and not is_foreign
    limit = time_limit(len(calls), HANG_SECONDS if is_hang else _EXPLAIN_SECONDS)

    def replayed(skipped: Skipped) -> tuple[Pair, list[Step], Difference | None, list[Condition]]:
        """Replays the trace. Returns the pair, the steps, the first difference, and why a property is false."""
        pair, steps = Pair(Target(subject, cfg, other_config, model_only=is_foreign), skipped), list[Step]()
        before = pair.state
        try:
            with watchdog(limit):
                for operation, call in zip(trace.operations, calls, strict=True):
                    before, history = pair.state, pair.values
                    difference = pair.step(call.copy())
                    arrow = _arrow(chart, pair, operation, before) if chart is not None else None
                    steps.append(_step(pair, operation, before, difference, arrow))
                    if difference is not None:
                        is_property = difference.cause.kind is Kind.PROPERTY
                        return pair, steps, difference, _conditions(pair, before, history, call) if is_property else []
        except Hang:
            hanging = trace.operations[min(len(steps), len(calls) - 1)]
            difference = hang_difference(hanging.op, limit)
            # if the time ran out after the last step, `steps` is complete, and the added step is cut off
            return pair, [*steps, _step(pair, hanging, before, difference)][: len(calls)], difference, []
        return pair, steps, None, []

    pair, steps, difference, conditions = replayed(skipped_of(subject, trace))
    if difference is None and not is_foreign:
        pair, steps, difference, conditions = replayed(NONE_SKIPPED)
    cause = difference.cause if difference is not None else header_cause
    broken = named_property(subject, cause)
    if is_foreign and difference is None and cause is not None:  # the header has the difference from the program
        difference = Difference(cause, trace.header["message"], trace.header["expected"], trace.header["actual"])
        if cause.kind is Kind.OUTCOME and steps:
            steps[-1] = msgspec.structs.replace(steps[-1], other_outcome=difference.actual, differs=True)
    return Explanation(
        kind=cause.kind if cause is not None else None,
        guarantee=guarantee_of(subject, cause, other_config is not None) if cause is not None else "",
        steps=steps,
        conditions=conditions,
        expected=difference.expected if difference is not None else trace.header.get("expected"),
        actual=difference.actual if difference is not None else trace.header.get("actual"),
        field=_field_of(pair, cause) if other_config is None and not is_foreign else "",
        state=plain(pair.state),
        other="implementation" if other_config is None else "other profile",
        actors=dict(chart.actors(cfg, [(each.op, each.args) for each in trace.operations])) if chart else {},
        classes=list(machine.java),
        source=source_of(broken) if broken is not None else "",
        rules=needed_rules(subject, cfg, calls[: len(steps)], difference.cause) if broken and difference else [],
    )


def _field_of(pair: Pair, cause: Cause | None) -> str:
    """Returns the field of the state in which model and implementation differ; empty if the cause names no field."""
    fields = getattr(pair.state, "_fields", ())
    return cause.what if cause is not None and cause.kind is Kind.VIEW and cause.what in fields else ""


def _call_of(subject: Subject, cfg: Any, operation: Operation) -> Call:
    """Returns the call of an operation. Raises BadValue for an unknown action or bad arguments."""
    actions = subject.machine.actions
    if operation.op not in actions:
        raise BadValue(f"{subject.name} has no action {operation.op}; it has {', '.join(actions)}")
    return Call(operation.op, actions[operation.op].arguments(operation.args, cfg))


def named_property(subject: Subject, cause: Cause | None) -> Property | None:
    """Returns the property of a subject that a cause names; None if the cause names none."""
    name = cause.what if cause is not None and cause.kind in (Kind.PROPERTY, Kind.EVENTUALLY) else None
    return next((each for each in subject.properties if each.name == name), None)


def source_of(broken: Property) -> str:
    """Returns where a property begins, as file:line."""
    function = inspect.unwrap(broken.holds)
    return f"{function.__module__.replace('.', '/')}.py:{function.__code__.co_firstlineno}"


def _arrow(chart: Chart, pair: Pair, operation: Operation, before: Any) -> Arrow | None:
    """Returns the last step as an arrow of the chart; None if the chart does not show the step.

    A chart shows a step if it has an arrow for the action, if the action was not refused, and if sender and receiver
    are actors.
    """
    # the roles of sender and receiver; role -> actor
    role_pair, roles = chart.arrows.get(operation.op), chart.roles(pair.cfg, before, operation.args)
    if role_pair is None or isinstance(pair.outcome, Refused) or not roles.keys() >= set(role_pair):
        return None
    source, target = (roles[role] for role in role_pair)
    event = Event(operation.op, operation.args, pair.outcome)
    text = chart.text(pair.cfg, before, event, pair.state)
    is_fault = pair.subject.machine.actions[operation.op].fault or isinstance(pair.outcome, Failed)
    is_lost = isinstance(pair.outcome, str) and pair.outcome in chart.without_effect
    return Arrow(source, target, text, is_lost, is_fault)


def _step(
    pair: Pair, operation: Operation, before: Any, difference: Difference | None, arrow: Arrow | None = None
) -> Step:
    """Returns the record of the last step of a pair. `before` is the model's state before this step."""
    differs = difference is not None and difference.cause.kind is Kind.OUTCOME
    return Step(
        action=operation.op,
        arguments=operation.args,
        outcome=as_data(pair.outcome),
        other_outcome=as_data(pair.other_outcome) if differs else None,
        differs=differs,
        changes=list(changes(plain(before), plain(pair.state))),
        arrow=arrow,
        java=java_of(pair.subject.machine, operation.op),
    )


def _conditions(pair: Pair, before: Any, history: Values, call: Call) -> list[Condition]:
    """Returns why the first false property is false. Properties of states come first, then properties of steps.

    `call` is the last step, `before` the model's state before this step, and `history` has the values of the history
    variables in this state.
    """
    checks, index = pair.checks, list(pair.subject.machine.actions).index(call.action)
    event = event_of(pair.subject, call.action, call.arguments, pair.outcome)
    for holds, _, indices in checks.of_states:
        arguments = (pair.cfg, pair.state, *[pair.values[i] for i in indices])
        if not holds(*arguments):
            return _why(holds, arguments)
    for holds, _, indices in checks.of_steps[index]:
        arguments = (pair.cfg, before, event, pair.state, *[history[i] for i in indices])
        if not holds(*arguments):
            return _why(holds, arguments)
    return []


def _why(holds: Callable[..., bool], arguments: Sequence[Any]) -> list[Condition]:
    """Returns the conditions that decide whether a property holds.

    Comparisons with None are left out if there are other conditions.
    """
    reasons = why(holds, arguments)
    return [
        Condition(
            reason.condition, reason.holds, _differing_items({text: readable(value) for text, value in reason.operands})
        )
        for reason in reasons
        if not reason.is_guard or all(each.is_guard for each in reasons)
    ]


def readable(value: Any) -> Any:
    """Returns a value of a property's expression as plain data; a set becomes a sorted list."""
    if isinstance(value, set | frozenset):
        return [readable(each) for each in sorted(value, key=repr)]
    if isinstance(value, dict):
        return {text_of(readable(key)) if not isinstance(key, str) else key: readable(v) for key, v in value.items()}
    if isinstance(value, list) or (isinstance(value, tuple) and not hasattr(value, "_fields")):
        return [readable(each) for each in value]
    return as_data(value)


def _differing_items(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of a condition, by source text.

    If the first two values are objects with the same keys, their equal items are left out, unless all are equal.
    """
    texts = list(values)
    if len(texts) < 2:
        return values
    left, right = (values[text] for text in texts[:2])
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        differing = [k for k in left if left[k] != right[k]]
        both = {text: {k: values[text][k] for k in differing} for text in texts[:2]} if differing else {}
        return {**values, **both}
    return values


def guarantee_of(subject: Subject, cause: Cause, of_profiles: bool = False) -> str:
    """Returns the guarantee that a finding violates, in one sentence. `of_profiles`: two profiles are compared."""
    if of_profiles and cause.kind in GUARANTEES_OF_PROFILES:
        return GUARANTEES_OF_PROFILES[cause.kind]
    broken = named_property(subject, cause)
    return first_sentence(broken.guarantee) if broken is not None else GUARANTEES.get(cause.kind, "")
