"""`brokerproof replay`: traces of findings, corpora and recordings of a real system, run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from fuzz.commands import Count, Record, Result
from fuzz.platform.progress import showing
from fuzz.report.finding import Explanation, explain, said, show_explanation
from fuzz.trace.file import ABSENT, Trace
from fuzz.trace.parallel import replay_files
from fuzz.trace.recording import OWN, Mismatch

#: Operations of a recording that are shown before the one that differs.
_CONTEXT = 5


class RecordedOperation(Record):
    """An operation of a recording with its recorded result."""

    op: str
    args: dict[str, Any]
    result: Any
    line: int


class DifferenceRow(Record):
    """Where a trace does not agree, and the named deviation that explains it, if one does."""

    trace: str
    line: Count
    op: str
    expected: Any
    actual: Any
    fields: list[str]
    known_deviation: str | None
    message: str | None
    before: list[RecordedOperation]  # of a recording: the operations before the one that differs, and that one
    explanation: Explanation | None  # of a trace that the engines wrote


class ReplayResult(Result):
    """How many traces agree, and all differences."""

    traces: Count
    operations: Count
    agreed: Count
    differences: list[DifferenceRow]

    @property
    def found(self) -> bool:
        """Whether a difference is not explained by a named deviation."""
        return any(each.known_deviation is None for each in self.differences)


def run(paths: list[Path], profile: str | None, console: Console) -> ReplayResult:
    """Replays every trace of the files. Raises BadValue at the first line that is no trace."""
    with showing(console, "replaying") as update:
        replayed = replay_files(paths, profile, update)
    rows = [
        _row(each.trace, mismatch, profile)
        for each in replayed
        if each.trace is not None
        for mismatch in each.mismatches
    ]
    return ReplayResult(
        traces=len(replayed),
        operations=sum(each.operations for each in replayed),
        agreed=sum(not each.mismatches for each in replayed),
        differences=rows,
    )


def _row(trace: Trace, mismatch: Mismatch, profile: str | None) -> DifferenceRow:
    is_own = OWN in trace.header and profile is None and mismatch.prefix is None
    explanation = explain(trace) if is_own and mismatch.known_deviation is None else None
    up_to = [each for each in trace.operations if each.line <= mismatch.line]
    if mismatch.prefix is not None:
        up_to = [*mismatch.prefix, *[each for each in trace.operations if each.line == mismatch.line]]
    return DifferenceRow(
        trace=mismatch.trace,
        line=mismatch.line,
        op=mismatch.op,
        expected=mismatch.expected,
        actual=mismatch.actual,
        fields=list(mismatch.fields),
        known_deviation=mismatch.known_deviation,
        message=mismatch.message or trace.header.get("message"),
        before=[]
        if is_own
        else [
            RecordedOperation(op=o.op, args=o.args, result=None if o.result is ABSENT else o.result, line=o.line)
            for o in up_to[-_CONTEXT - 1 :]
        ],
        explanation=explanation,
    )


# ---- showing ------------------------------------------------------------------------------------------


def show(console: Console, result: ReplayResult) -> None:
    """Prints the differences that no named deviation explains, then the totals."""
    for row in result.differences:
        if row.known_deviation is None:
            _show_difference(console, row)
    known = [row.known_deviation for row in result.differences if row.known_deviation is not None]
    for name in sorted(set(known)):
        console.print(f"known deviation {name}: {known.count(name)} traces")
    console.print(f"{result.agreed:,} of {result.traces:,} traces agree ({result.operations:,} operations)")


def _show_difference(console: Console, row: DifferenceRow) -> None:
    where = f"{row.trace}, line {row.line}: {row.op} in {', '.join(row.fields)}"
    console.print(f"[bold red]differs[/] {escape(where)}")
    if row.explanation is not None and row.explanation.kind is not None:
        show_explanation(console, row.explanation)
        return
    for each in row.before:
        arguments = ", ".join(f"{k}={said(v)}" for k, v in each.args.items())
        console.print(f"  line {each.line:<6} {escape(f'{each.op}({arguments})')}")
        console.print(f"              recorded {escape(said(each.result))}", style="dim")
    console.print(f"  expected    {escape(said(row.expected))}")
    console.print(f"  actual      {escape(said(row.actual))}")
    if row.message:
        console.print(f"  {escape(row.message)}")
