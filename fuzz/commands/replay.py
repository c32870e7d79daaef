"""`brokerproof replay`: runs traces of findings, corpora and recordings, and compares outcomes and observations."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from rich.console import Console
from rich.markup import escape

from fuzz.campaign.store import LocalStore, as_parquet, check_writable, is_local, local_path
from fuzz.commands import Count, Record, Result
from fuzz.platform.json import to_json
from fuzz.platform.progress import showing
from fuzz.platform.spark import session, started_by_spark_submit
from fuzz.report.explain import explain
from fuzz.report.records import Explanation
from fuzz.report.terminal import show_explanation
from fuzz.report.text import text_of
from fuzz.run.finding import Kind
from fuzz.trace.agreement import Disagreement, Mismatch, cause_of, label_of
from fuzz.trace.file import ABSENT, BadTrace, Trace, is_trace_file
from fuzz.trace.parallel import ReplayedTrace, processes_for, replay_files
from fuzz.trace.spark import SETTINGS, replay_on_spark
from model.machine import BadValue

#: Number of operations of a recording that are shown before the one that differs.
_CONTEXT = 5
#: The table in --out: a row for each trace. It has the trace's first difference that no known deviation explains. If
#: there is none, it has the first difference.
_TABLE = pa.schema(
    [
        ("file", pa.string()),
        ("trace", pa.string()),
        ("component", pa.string()),
        ("operations", pa.int64()),
        ("agreed", pa.bool_()),
        ("line", pa.int64()),
        ("op", pa.string()),
        ("fields", pa.list_(pa.string())),
        ("expected", pa.string()),  # as JSON
        ("actual", pa.string()),  # as JSON
        ("known_deviation", pa.string()),
    ]
)


class RecordedOperation(Record):
    """An operation of a recording with its recorded result."""

    op: str
    args: dict[str, Any]
    result: Any
    line: int


class DifferenceRow(Record):
    """A difference of a trace, and the known deviation that explains it, if there is one."""

    trace: str
    line: Count
    op: str
    expected: Any  # as in `Mismatch`
    actual: Any
    kind: Disagreement
    fields: list[str]  # `Mismatch.labels`
    known_deviation: str | None
    message: str | None
    #: the last operations, up to the one that differs; empty if `explain` can show the difference
    before: list[RecordedOperation]
    explanation: Explanation | None  # null for a recording, a history, a known deviation, and with --profile
    reproduced: bool  # whether the trace is a finding, and fails as the finding says


class ReplayResult(Result):
    """The numbers of traces, and the differences: on Spark, those of at most 10,000 traces (`fuzz/trace/spark.py`)."""

    traces: Count
    operations: Count
    agreed: Count
    differences: list[DifferenceRow]
    out: str | None

    @property
    def found(self) -> bool:
        """Whether there is a difference that no known deviation explains."""
        return any(each.known_deviation is None for each in self.differences)


class Options(NamedTuple):
    """The options of the command line."""

    inputs: Sequence[str]
    profile: str | None = None
    master: str | None = None
    out: str | None = None


def run(options: Options, console: Console) -> ReplayResult:
    """Replays every trace of the files and folders.

    Uses Spark if a file or `out` is not on this machine, if a master is named, or if spark-submit started this process.
    Raises BadValue if `out` exists, for a folder without trace files, and at the first line that is not in the trace
    format. Then nothing is written.
    """
    inputs = [each for uri in options.inputs for each in _inputs(uri)]
    out = local_path(options.out) if options.out is not None and is_local(options.out) else options.out
    if isinstance(out, Path):
        check_writable(out)  # before the work
        if out.exists():
            raise BadValue(f"{out} exists; choose another --out")
    if options.master is None and not started_by_spark_submit() and not any(isinstance(e, str) for e in (*inputs, out)):
        result, table = _run_here([Path(each) for each in inputs], options.profile, console)
        if out is not None:
            columns = [list(column) for column in zip(*table, strict=True)]
            LocalStore(Path(out)).write("part-00000.parquet", as_parquet(pa.table(columns, schema=_TABLE)))
    else:
        result = _run_on_spark(options, [_uri(each) for each in inputs], None if out is None else _uri(out), console)
    result.out = options.out
    return result


def _run_here(paths: list[Path], profile: str | None, console: Console) -> tuple[ReplayResult, list[tuple[Any, ...]]]:
    """Replays on this machine. Returns the result, and the rows of the table."""
    jobs = processes_for(paths)
    with showing(console, "replaying") if jobs == 1 else nullcontext() as update:
        replayed = replay_files(paths, profile, jobs, update)
    result = ReplayResult(
        traces=len(replayed),
        operations=sum(each.operations for each in replayed),
        agreed=sum(not each.mismatches for each in replayed),
        differences=[row for each in replayed for row in _difference_rows(each, profile)],
        out=None,
    )
    return result, [_table_row(str(paths[each.position[0]]), each) for each in replayed]


def _run_on_spark(options: Options, uris: list[str], out: str | None, console: Console) -> ReplayResult:
    """Replays as a Spark job. Workers return the differences as JSON."""
    profile = options.profile

    def report(file: str, each: ReplayedTrace) -> tuple[tuple[Any, ...], bytes]:
        return _table_row(file, each), to_json(_difference_rows(each, profile))

    with session("brokerproof replay", options.master, SETTINGS) as spark, showing(console, "replaying"):
        replays = replay_on_spark(spark, uris, profile, report, _TABLE, out)
    return ReplayResult(
        traces=replays.traces,
        operations=replays.operations,
        agreed=replays.agreed,
        differences=[
            row for text in replays.disagreeing for row in msgspec.json.decode(text, type=list[DifferenceRow])
        ],
        out=None,
    )


def _inputs(uri: str) -> list[Path] | list[str]:
    """Returns the file, or the trace files below the folder, if the URI is on this machine; otherwise the URI.

    Raises BadTrace if no trace file is below the folder.
    """
    # a local path with a colon looks like a URI of another file system
    path = Path(uri) if Path(uri).exists() else local_path(uri)
    if not is_local(uri) and not path.exists():
        return [uri]
    if not path.is_dir():
        return [path]
    below = sorted(each for each in path.rglob("*") if is_trace_file(each.name) and each.is_file())
    if not below:
        raise BadTrace(path, 0, "no file below this folder ends in .jsonl, .jsonl.gz, .csv or .csv.gz")
    return below


def _uri(file: Path | str) -> str:
    """Returns the URI of a file for Hadoop, which does not decode %."""
    return f"file://{file.absolute()}" if isinstance(file, Path) else file


def _table_row(file: str, each: ReplayedTrace) -> tuple[Any, ...]:
    """Returns the row of a trace in `_TABLE`."""
    first = (file, each.id, each.component, each.operations, not each.mismatches)
    if not each.mismatches:
        return *first, None, None, None, None, None, None
    # the first mismatch without a known deviation; if all have one, the first of all
    found = min(each.mismatches, key=lambda m: m.known_deviation is not None)
    expected, actual = (to_json(value).decode() for value in (found.expected, found.actual))
    return *first, found.line, found.op, found.labels, expected, actual, found.known_deviation


def _difference_rows(each: ReplayedTrace, profile: str | None) -> list[DifferenceRow]:
    # without a mismatch, there is no trace
    return [] if each.trace is None else [_difference_row(each.trace, found, profile) for found in each.mismatches]


def _difference_row(trace: Trace, mismatch: Mismatch, profile: str | None) -> DifferenceRow:
    # whether `explain` can show the difference: it runs a sequential trace of actions under the profile of the trace
    has_gaps = any(each.gap is not None for each in trace.operations)
    is_own = trace.has_actions and profile is None and mismatch.found_order is None and not has_gaps
    explanation = explain(trace) if is_own and mismatch.known_deviation is None else None
    up_to = [each for each in trace.operations if each.line <= mismatch.line]
    if mismatch.found_order is not None:  # a concurrent history: its operations in the order that was found
        up_to = [*mismatch.found_order, *[each for each in trace.operations if each.line == mismatch.line]]
    return DifferenceRow(
        trace=mismatch.trace,
        line=mismatch.line,
        op=mismatch.op,
        expected=mismatch.expected,
        actual=mismatch.actual,
        kind=mismatch.kind,
        fields=mismatch.labels,
        known_deviation=mismatch.known_deviation,
        message=mismatch.message or trace.header.get("message"),
        before=[]
        if is_own
        else [
            RecordedOperation(
                op=o.op,
                args=o.args if o.gap is None else {"at_most": o.gap},
                result=None if o.result is ABSENT else o.result,
                line=o.line,
            )
            for o in up_to[-_CONTEXT - 1 :]
        ],
        explanation=explanation,
        reproduced=is_own and _is_cause(trace, mismatch),
    )


def _is_cause(trace: Trace, mismatch: Mismatch) -> bool:
    """Returns whether the trace is a finding, and this difference has the cause of the finding."""
    cause = cause_of(trace)
    if cause is None:
        return False
    if mismatch.cause is None:  # also if the whole replay hung: then the step that hung is not known
        return mismatch.kind is Disagreement.HANG and cause.kind is Kind.HANG
    return label_of(mismatch.cause) == label_of(cause)


# ---- showing ------------------------------------------------------------------------------------------


def show(console: Console, result: ReplayResult) -> None:
    """Prints the differences that no known deviation explains, then the totals."""
    for row in result.differences:
        if row.known_deviation is None:
            _show_difference(console, row)
    known = [row.known_deviation for row in result.differences if row.known_deviation is not None]
    for name in sorted(set(known)):
        console.print(f"known deviation {name}: {(count := known.count(name)):,} {'trace' if count == 1 else 'traces'}")
    reproduced = sum(row.reproduced for row in result.differences)
    if reproduced:
        console.print(f"{reproduced:,} {'finding' if reproduced == 1 else 'findings'} reproduced")
    console.print(f"{result.agreed:,} of {result.traces:,} traces agree ({result.operations:,} operations)")


def _show_difference(console: Console, row: DifferenceRow) -> None:
    where = f"{row.trace}, line {row.line}: {row.op}, {', '.join(row.fields)}"
    console.print(f"[bold red]{'reproduced' if row.reproduced else 'differs'}[/] {escape(where)}")
    if row.explanation is not None and row.explanation.kind is not None:
        show_explanation(console, row.explanation, row.message)
        return
    for each in row.before:
        arguments = ", ".join(f"{k}={text_of(v)}" for k, v in each.args.items())
        console.print(f"  line {each.line:<6} {escape(f'{each.op}({arguments})')}")
        console.print(f"              recorded {escape(text_of(each.result))}", style="dim")
    is_recorded = row.kind in (Disagreement.RESULT, Disagreement.OBSERVE)
    names = ("recorded", "model") if is_recorded else ("expected", "actual")
    for name, value in zip(names, (row.expected, row.actual), strict=True):
        console.print(f"  {name:11} {escape(text_of(value))}")
    if row.message:
        console.print(f"  {escape(row.message)}")
