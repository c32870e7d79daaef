"""The explanation of a finding: its steps and their changes, the guarantee, and the condition that is false.

The terminal, the JSON output and the HTML report show the same record. It is computed from the trace alone, which is
replayed with every step checked.
"""

from __future__ import annotations

import difflib
import inspect
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from rich.console import Console
from rich.markup import escape

from fuzz.campaign.worker import Found
from fuzz.charts import Chart, chart_of
from fuzz.defects.table import NO_REPORT, Defect, defects_of
from fuzz.platform.json import to_json
from fuzz.report.confirm import NeededRule, java_of, needed_rules
from fuzz.report.why import Reason, why
from fuzz.run.call import Call
from fuzz.run.checks import NONE_SKIPPED, Skipped, Values, event_of
from fuzz.run.compare import shown as as_data
from fuzz.run.finding import Cause, Difference, Kind
from fuzz.run.pair import Pair
from fuzz.seeding import subject_or_mutant
from fuzz.subject import Subject
from fuzz.target import Target
from fuzz.trace.file import Operation, Trace, read_traces
from fuzz.trace.replayer import skipped_of
from invariants.properties import Event, Property
from model.machine import BadValue, Failed, Refused, plain

#: The violated guarantee for each kind of finding except broken properties.
GUARANTEES = {
    Kind.OUTCOME: "The implementation returns the model's outcome.",
    Kind.VIEW: "The implementation is in the model's state.",
    Kind.STRUCTURE: "The structural invariants of the implementation hold.",
    Kind.PROTOCOL: "The program keeps to the protocol.",
    Kind.LOAD: "An implementation loaded with a state is in that state.",
    Kind.STUTTER: "A refused action leaves the state unchanged.",
    Kind.CRASH: "No action raises an exception.",
    Kind.HANG: "Every action returns.",
    Kind.UNSTABLE: "A replay with every step checked shows the same difference.",
    Kind.CANONICAL: "The canonical form maps different states to different forms.",
}
#: The same for a comparison of two profiles of the model, where there is no implementation.
GUARANTEES_OF_PROFILES = {
    Kind.OUTCOME: "Both profiles return the same outcome.",
    Kind.VIEW: "Both profiles lead to the same state.",
}
#: Kinds of findings whose expected and actual values are states, or parts of states.
OF_STATES = (Kind.VIEW, Kind.LOAD, Kind.STUTTER)
#: The terminal shows at most this many characters of a value; the trace file has the whole value.
_WIDTH = 240


class Change(msgspec.Struct, frozen=True):
    """A change of the state by a step. `path` is the changed part, such as `cursors[2].position`."""

    path: str
    kind: Literal["added", "removed", "changed"]
    before: Any
    after: Any


class Arrow(msgspec.Struct, frozen=True):
    """An arrow in a sequence chart: its two actors and its text. A lost message has no effect."""

    source: str
    target: str
    text: str
    is_lost: bool
    is_fault: bool


class Step(msgspec.Struct, frozen=True):
    """One step of a trace. `other_outcome` is the second side's outcome, set only if it differs.

    `java` has the classes and methods of Pulsar that the action models.
    """

    action: str
    arguments: dict[str, Any]
    outcome: Any
    other_outcome: Any
    differs: bool
    changes: list[Change]
    arrow: Arrow | None = None  # of a component with a chart, unless the step was refused
    java: list[str] = []


class Condition(msgspec.Struct, frozen=True):
    """A part of a property's expression, its truth value, and the values of its subexpressions."""

    text: str
    value: bool
    values: dict[str, Any]


class KnownDefect(msgspec.Struct, frozen=True):
    """The row of the component's defect table for the property that a finding violates."""

    id: str
    symptom: str
    mechanism: str
    consequence: str
    severity: str
    versions: str
    link: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of a trace. `kind` is None if the replay shows no difference."""

    kind: Kind | None
    guarantee: str
    steps: list[Step]
    conditions: list[Condition]  # why a violated property is false
    expected: Any = None
    actual: Any = None
    state: Any = None  # the model's, after the last step
    other: str = "implementation"  # the second side: implementation or other profile
    problem: str = ""  # what is wrong, if no replay can show it: this code cannot run the trace, or a client is real
    actors: dict[str, str] = {}  # of the sequence chart, in order, with their headings
    classes: list[str] = []  # the classes of Pulsar that the component models, the main one first
    source: str = ""  # the file and line of a violated property
    rules: list[NeededRule] = []  # the rules of the profile that the violation of a property needs


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with its explanation."""

    subject: str
    profile: str
    signature: str
    cause: str
    seed: int
    length: int
    shrunk_length: int
    reproduced: bool
    shown: int  # in how many of how many replays
    replays: int
    trace: str  # path or URI
    message: str
    defect: KnownDefect | None
    explanation: Explanation
    replay: str  # the command that replays it


# ---- making -------------------------------------------------------------------------------------------


def shown(found: Found, path: str, replay: str = "brokerproof replay {}") -> Shown:
    """Returns a finding with its explanation. `path` is its trace file; `replay` is the command that replays it.

    Cost: one replay with every step checked.
    """
    trace = parse_trace(found.trace)
    return Shown(
        subject=found.subject,
        profile=found.profile,
        signature=found.signature,
        cause=found.cause,
        seed=found.seed,
        length=found.length,
        shrunk_length=found.shrunk_length,
        reproduced=found.reproduced,
        shown=found.shown,
        replays=found.replays,
        trace=path,
        message=found.message,
        defect=known_defect(found.subject, found.profile, found.cause) if "mutant" not in trace.header else None,
        explanation=explain(trace),
        replay=replay.format(path),
    )


def parse_trace(text: str) -> Trace:
    """Returns the trace that a text in the trace format contains."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        path.write_text(text, encoding="utf-8")
        return next(read_traces(path))


def known_defect(subject: str, profile: str, cause: str) -> KnownDefect | None:
    """Returns the row of the defect table for a profile and the property in `cause`, or None."""
    name = Cause.parse(cause).broken_property
    for each in defects_of(subject):
        if each.profile == profile and each.property == name:
            return shown_defect(each)
    return None


def shown_defect(row: Defect) -> KnownDefect:
    """Returns what a finding shows of a row of the defect table."""
    return KnownDefect(row.id, row.symptom, row.mechanism, row.consequence, row.severity, row.versions, row.link)


def explain(trace: Trace) -> Explanation:
    """Replays a trace that the engines wrote, with every step checked, up to the first difference.

    Of the properties, it checks the one that the trace names. If nothing differs, it checks all of them.
    """
    try:
        return _explain(trace)
    except Exception as problem:  # a trace of another version of the code
        text = f"this version of the code cannot run the trace: {problem}"
        return Explanation(kind=None, guarantee="", steps=[], conditions=[], problem=text)


def _explain(trace: Trace) -> Explanation:
    subject = subject_or_mutant(trace.component, trace.header.get("mutant"))
    machine = subject.machine
    cfg = machine.configure(trace.config)
    against = machine.configure(trace.header["against"]) if "against" in trace.header else None
    cause = Cause.parse(trace.header["cause"]) if "cause" in trace.header else None
    chart = chart_of(trace.component)
    is_foreign = "program" in trace.header  # not run: its results are in the header
    calls = [_call_of(subject, cfg, operation) for operation in trace.operations]

    def replayed(skipped: Skipped) -> tuple[Pair, list[Step], Difference | None, list[Condition]]:
        pair, steps = Pair(Target(subject, cfg, against, model_only=is_foreign), skipped), list[Step]()
        for operation, call in zip(trace.operations, calls, strict=True):
            before, values = pair.state, pair.values
            difference = pair.step(call.copy())
            arrow = _arrow(chart, pair, operation, before) if chart is not None else None
            steps.append(_step(pair, operation, before, difference, arrow))
            if difference is not None:
                return pair, steps, difference, _conditions(pair, before, values, call)
        return pair, steps, None, []

    pair, steps, difference, conditions = replayed(skipped_of(subject, trace))
    if difference is None and not is_foreign:
        pair, steps, difference, conditions = replayed(NONE_SKIPPED)
    cause = difference.cause if difference is not None else cause
    broken = broken_property_of(subject, cause)
    if is_foreign and difference is None and cause is not None:
        difference = Difference(cause, trace.header["message"], trace.header["expected"], trace.header["actual"])
        if cause.kind is Kind.OUTCOME and steps:
            steps[-1] = msgspec.structs.replace(steps[-1], other_outcome=difference.actual, differs=True)
    return Explanation(
        kind=cause.kind if cause is not None else None,
        guarantee=guarantee_of(subject, cause, against is not None) if cause is not None else "",
        steps=steps,
        conditions=conditions,
        expected=difference.expected if difference is not None else trace.header.get("expected"),
        actual=difference.actual if difference is not None else trace.header.get("actual"),
        state=plain(pair.state),
        other="implementation" if against is None else "other profile",
        actors=dict(chart.actors(cfg, [(each.op, each.args) for each in trace.operations])) if chart else {},
        classes=list(machine.java),
        source=source_of(broken) if broken is not None else "",
        rules=needed_rules(subject, cfg, calls[: len(steps)], difference.cause) if broken and difference else [],
    )


def _call_of(subject: Subject, cfg: Any, operation: Operation) -> Call:
    actions = subject.machine.actions
    if operation.op not in actions:
        raise BadValue(f"{subject.name} has no action {operation.op}; it has {', '.join(actions)}")
    return Call(operation.op, actions[operation.op].arguments(operation.args, cfg))


def broken_property_of(subject: Subject, cause: Cause | None) -> Property | None:
    """Returns the property of a subject that a cause names; None if it names none."""
    name = cause.what if cause is not None and cause.kind in (Kind.PROPERTY, Kind.EVENTUALLY) else None
    return next((each for each in subject.properties if each.name == name), None)


def source_of(broken: Property) -> str:
    """Returns the file of a property and its first line, as file:line."""
    function = inspect.unwrap(broken.holds)
    return f"{function.__module__.replace('.', '/')}.py:{function.__code__.co_firstlineno}"


def _arrow(chart: Chart, pair: Pair, operation: Operation, before: Any) -> Arrow | None:
    """Returns the last step as an arrow of the chart; None if it was refused, or its roles have no actor."""
    pair_of, roles = chart.arrows.get(operation.op), chart.roles(pair.cfg, before, operation.args)
    if pair_of is None or isinstance(pair.outcome, Refused) or not roles.keys() >= set(pair_of):
        return None
    event = Event(operation.op, operation.args, pair.outcome)
    text = chart.text(pair.cfg, before, event, pair.state)
    is_fault = pair.subject.machine.actions[operation.op].fault or isinstance(pair.outcome, Failed)
    is_lost = isinstance(pair.outcome, str) and pair.outcome in chart.lost
    return Arrow(roles[pair_of[0]], roles[pair_of[1]], text, is_lost, is_fault)


def _step(
    pair: Pair, operation: Operation, before: Any, difference: Difference | None, arrow: Arrow | None = None
) -> Step:
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


def _conditions(pair: Pair, before: Any, values: Values, call: Call) -> list[Condition]:
    """Returns why the first property is false that the last state or the last step violates."""
    checks, index = pair.checks, list(pair.subject.machine.actions).index(call.action)
    event = event_of(pair.subject, call.action, call.arguments, pair.outcome)
    for holds, _, indices in checks.of_states:
        arguments = (pair.cfg, pair.state, *[pair.values[i] for i in indices])
        if not holds(*arguments):
            return _why(holds, arguments)
    for holds, _, indices in checks.of_steps[index]:
        arguments = (pair.cfg, before, event, pair.state, *[values[i] for i in indices])
        if not holds(*arguments):
            return _why(holds, arguments)
    return []


def _why(holds: Callable[..., bool], arguments: Sequence[Any]) -> list[Condition]:
    """Returns the conditions that decide a property, without the guards against None if there are others."""
    reasons = why(holds, arguments)
    return [
        Condition(
            reason.condition, reason.holds, _differing_keys({text: readable(value) for text, value in reason.operands})
        )
        for reason in reasons
        if not _is_guard(reason) or all(map(_is_guard, reasons))
    ]


def _is_guard(reason: Reason) -> bool:
    return reason.condition.endswith((" is None", " is not None"))


def readable(value: Any) -> Any:
    """Returns a value of a property's expression as plain data; a set becomes a sorted list."""
    if isinstance(value, set | frozenset):
        return [readable(each) for each in sorted(value, key=repr)]
    if isinstance(value, dict):
        return {text_of(readable(key)) if not isinstance(key, str) else key: readable(v) for key, v in value.items()}
    if isinstance(value, list) or (isinstance(value, tuple) and not hasattr(value, "_fields")):
        return [readable(each) for each in value]
    return as_data(value)


def _differing_keys(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of a condition. If the first two are objects with equal keys, only the keys that differ."""
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
    broken = broken_property_of(subject, cause)
    return first_sentence(broken.guarantee) if broken is not None else GUARANTEES.get(cause.kind, "")


def first_sentence(text: str) -> str:
    """Returns the first sentence of a text."""
    head, stop, _ = text.partition(". ")
    return head + stop.strip()


def changes(before: Any, after: Any, path: str = "") -> Iterator[Change]:
    """Yields the smallest parts in which two values of plain data differ."""
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        for key, value in before.items():
            if value != after[key]:
                yield from changes(value, after[key], f"{path}.{key}" if path else str(key))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _list_changes(before, after, path)
    elif before != after:
        yield Change(path, "changed", before, after)


def _list_changes(before: list[Any], after: list[Any], path: str) -> Iterator[Change]:
    if not any(isinstance(each, dict | list) for each in before + after):
        if before != after:
            yield Change(path, "changed", before, after)
        return
    matcher = difflib.SequenceMatcher(None, [to_json(v) for v in before], [to_json(v) for v in after], autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        paired = min(b - a, d - c) if kind == "replace" else 0
        for i in range(paired):
            yield from changes(before[a + i], after[c + i], f"{path}[{c + i}]")
        if kind != "equal":
            yield from (Change(f"{path}[{i}]", "removed", before[i], None) for i in range(a + paired, b))
            yield from (Change(f"{path}[{i}]", "added", None, after[i]) for i in range(c + paired, d))


# ---- showing ------------------------------------------------------------------------------------------


def text_of(data: Any) -> str:
    """Returns plain data as one line of text, with objects as name=value."""
    if isinstance(data, dict):
        return "{" + ", ".join(f"{k}={text_of(v)}" for k, v in data.items()) + "}"
    if isinstance(data, list):
        return "[" + ", ".join(text_of(v) for v in data) + "]"
    return to_json(data).decode()


def call_text(step: Step) -> str:
    """Returns an action with its arguments as text, such as `put(position=[1,2], bytes=10)`."""
    return f"{step.action}({', '.join(f'{k}={text_of(v)}' for k, v in step.arguments.items())})"


def rule_text(rule: NeededRule) -> str:
    """Returns a rule as one line of text: its value, its origin, and the class or proposal that it is from."""
    return f"{rule.name} = {text_of(rule.value)} ({rule.origin}; {rule.source})"


def change_text(change: Change) -> str:
    """Returns a change as one line of text."""
    if change.kind == "added":
        return f"{change.path} added: {text_of(change.after)}"
    if change.kind == "removed":
        return f"{change.path} removed: {text_of(change.before)}"
    return f"{change.path}: {text_of(change.before)} -> {text_of(change.after)}"


def show_findings(console: Console, findings: list[Shown]) -> None:
    """Prints findings grouped by cause: the shortest of each group with its steps, the others as one line each."""
    groups: dict[tuple[str, str, str], list[Shown]] = {}
    for each in findings:
        groups.setdefault((each.subject, each.profile, each.cause), []).append(each)
    for number, group in enumerate(groups.values(), 1):
        first, *others = sorted(group, key=lambda each: (each.shrunk_length, each.seed))
        _show_heading(console, first, f"finding {number} of {len(groups)}")
        show_explanation(console, first.explanation)
        _show_line(console, "replay", first.replay)
        for other in others:
            _show_line(console, "also", f"seed {other.seed}, {other.shrunk_length} steps: {other.replay}")
        console.print()


def _show_heading(console: Console, finding: Shown, number: str) -> None:
    lengths = f"{finding.length} steps, shrunk to {finding.shrunk_length}"
    replays = f"shown in {finding.shown} of {finding.replays} replays"
    console.print(
        f"[bold red]{number}[/]  [bold]{escape(finding.cause)}[/]  "
        f"{finding.subject}, profile {finding.profile}, seed {finding.seed}, {lengths}, "
        f"{replays if finding.reproduced else f'[bold]{replays}[/]'}"
    )
    if finding.defect is not None:
        defect = finding.defect
        _show_line(console, "known", f"{defect.symptom} ({defect.severity}; {defect.versions})")
        for heading, text in (("mechanism", defect.mechanism), ("leads to", defect.consequence)):
            if text:
                _show_line(console, heading, text)
        _show_line(console, "upstream", defect.link or NO_REPORT)


def show_explanation(console: Console, explanation: Explanation) -> None:
    """Prints the guarantee, the classes, the steps, and the conditions that are false after the last one."""
    _show_place(console, explanation)
    if explanation.problem:
        _show_line(console, "problem", explanation.problem)
    for number, step in enumerate(explanation.steps, 1):
        java = f"  [dim]{', '.join(step.java)}[/]" if step.java else ""
        console.print(f"  {number:>9}  [bold]{_truncated(call_text(step))}[/]{java}")
        if step.differs:
            _show_detail(console, f"model returns {text_of(step.outcome)}")
            _show_detail(console, f"{explanation.other} returns {text_of(step.other_outcome)}")
        elif step.outcome is not None:
            _show_detail(console, f"returns {text_of(step.outcome)}")
        for change in step.changes:
            _show_detail(console, change_text(change))
    if explanation.kind in OF_STATES:
        for change in changes(explanation.expected, explanation.actual) if explanation.expected is not None else ():
            text = change_text(msgspec.structs.replace(change, path=change.path or "state"))
            _show_line(console, "differs", f"model -> {explanation.other}: {text}")
    elif explanation.kind in (Kind.CRASH, Kind.STRUCTURE, Kind.HANG, Kind.PROTOCOL, Kind.UNSTABLE):
        _show_line(console, "actual", str(explanation.actual))
    for condition in explanation.conditions:
        _show_line(console, "true" if condition.value else "false", condition.text)
        lines = [f"{text} = {text_of(value)}" for text, value in condition.values.items()]
        for line in [each for each in lines if len(each) <= _WIDTH] or lines:
            _show_detail(console, line)


def _show_place(console: Console, explanation: Explanation) -> None:
    """Prints the guarantee, the rules that break it, and the classes of Pulsar."""
    if explanation.guarantee:
        _show_line(console, "guarantee", explanation.guarantee)
    if explanation.source:
        _show_line(console, "property", explanation.source)
    for rule in explanation.rules:
        _show_line(console, "because", rule_text(rule))
    if explanation.classes:
        _show_line(console, "in Java", ", ".join(explanation.classes))


def _show_line(console: Console, heading: str, text: str) -> None:
    console.print(f"  [dim]{heading:>9}[/]  {_truncated(text)}")


def _show_detail(console: Console, text: str) -> None:
    console.print(f"               {_truncated(text)}", style="dim")


def _truncated(text: str) -> str:
    return escape(text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…")
