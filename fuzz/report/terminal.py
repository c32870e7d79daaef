"""Prints findings in the terminal, step by step; the project's README says how to read them."""

from __future__ import annotations

import msgspec
from rich.console import Console
from rich.markup import escape

from fuzz.defects.table import NO_REPORT
from fuzz.report.changes import changes
from fuzz.report.finding import grouped
from fuzz.report.records import OF_STATES, ExplainedFinding, Explanation
from fuzz.report.text import call_text, change_text, outcome_text, rule_text, text_of
from fuzz.run.finding import Kind

#: The terminal shows at most this many characters of a value; the trace file has the whole value.
_WIDTH = 240


def show_findings(console: Console, findings: list[ExplainedFinding]) -> None:
    """Prints findings grouped by cause: the shortest of each group with its steps, each other finding as a line."""
    groups = grouped(findings)
    for number, (first, *others) in enumerate(groups, 1):
        _show_heading(console, first, f"finding {number} of {len(groups)}")
        show_explanation(console, first.explanation, first.message)
        _show_line(console, "replay", first.replay)
        for other in others:
            steps = "1 step" if other.shrunk_length == 1 else f"{other.shrunk_length} steps"
            _show_line(console, "also", f"seed {other.seed}, {steps}: {other.replay}")
        console.print()


def _show_heading(console: Console, finding: ExplainedFinding, number: str) -> None:
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
        for heading, text in (("mechanism", defect.mechanism), ("consequence", defect.consequence)):
            if text:
                _show_line(console, heading, text)
        _show_line(console, "upstream", defect.link or NO_REPORT)
    if finding.related is not None:
        row = finding.related
        _show_line(console, "related", f"{row.id}: {row.symptom} ({row.severity}; {row.versions})")


def show_explanation(console: Console, explanation: Explanation, message: str | None = None) -> None:
    """Prints the lines of `_show_guarantee`, the steps, and why the last step violates the guarantee.

    `message` is the message of the finding: it says what a failure without values is, such as a hang.
    """
    _show_guarantee(console, explanation)
    if explanation.problem:
        _show_line(console, "problem", explanation.problem)
    for number, step in enumerate(explanation.steps, 1):
        java = f"  [dim]{', '.join(step.java)}[/]" if step.java else ""
        console.print(f"  {number:>11}  [bold]{_truncated(call_text(step))}[/]{java}")
        if step.differs:
            _show_detail(console, f"model {outcome_text(step.outcome)}")
            _show_detail(console, f"{explanation.other} {outcome_text(step.other_outcome)}")
        elif step.outcome is not None:
            _show_detail(console, outcome_text(step.outcome))
        for change in step.changes:
            _show_detail(console, change_text(change))
    if explanation.kind in OF_STATES:
        expected, actual = explanation.expected, explanation.actual  # None if `view` or `load` raised an exception
        for change in changes(expected, actual, explanation.field) if expected is not None else ():
            text = change_text(msgspec.structs.replace(change, path=change.path or "state"))
            _show_line(console, "differs", f"model -> {explanation.other}: {text}")
    elif explanation.kind in (Kind.CRASH, Kind.STRUCTURE, Kind.HANG, Kind.PROTOCOL, Kind.UNSTABLE, Kind.CANONICAL):
        is_told = explanation.actual is None or explanation.kind is Kind.CANONICAL  # its values are whole states
        _show_line(console, "actual", (message or "") if is_told else str(explanation.actual))
    for condition in explanation.conditions:
        _show_line(console, "is true" if condition.value else "is false", condition.text)
        lines = [f"{text} = {text_of(value)}" for text, value in condition.values.items()]
        # lines that are too long are left out if there are others
        for line in [each for each in lines if len(each) <= _WIDTH] or lines:
            _show_detail(console, line)


def _show_guarantee(console: Console, explanation: Explanation) -> None:
    """Prints the guarantee, the file and line of its property, the needed rules, and the classes of Pulsar."""
    if explanation.guarantee:
        _show_line(console, "guarantee", explanation.guarantee)
    if explanation.source:
        _show_line(console, "property", explanation.source)
    for rule in explanation.rules:
        _show_line(console, "because", rule_text(rule))
    if explanation.classes:
        _show_line(console, "in Java", ", ".join(explanation.classes))


def _show_line(console: Console, heading: str, text: str) -> None:
    console.print(f"  [dim]{heading:>11}[/]  {_truncated(text)}")


def _show_detail(console: Console, text: str) -> None:
    console.print(f"                 {_truncated(text)}", style="dim")


def _truncated(text: str) -> str:
    return escape(text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…")
