"""`brokerproof bench`: the benchmarks, each against its baseline in the same run."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Column, Table

from fuzz.benchmarks.runner import run_bench
from fuzz.campaign.store import check_writable_file
from fuzz.commands import Record, Result
from fuzz.report.bench import write_report


class BenchRow(Record):
    """The result of a benchmark. A higher `ratio` is better.

    `ratio` is `value` over `baseline`, or `baseline` over `value` if a lower value is better, as for memory and time.
    """

    name: str
    value: float
    unit: str
    baseline: float
    ratio: float


class BenchResult(Result):
    """A row for each benchmark."""

    results: list[BenchRow]


def run(names: list[str], out: Path | None, console: Console) -> BenchResult:
    """Runs the benchmarks whose names start with one of the given names, by default all. Writes the report to `out`.

    Raises BadValue if `run_bench` does, and if `out` cannot be written.
    """
    if out is not None:
        check_writable_file("--out", out)
    rows = run_bench(names, console)
    if out is not None:
        write_report(out, rows)
    return BenchResult(results=[msgspec.convert(row, BenchRow) for row in rows])


def show(console: Console, result: BenchResult) -> None:
    """Prints a table."""
    table = Table(Column("benchmark", overflow="fold"), "value", "unit", "baseline", "ratio", box=None)
    for row in result.results:
        table.add_row(row.name, _number(row.value), row.unit, _number(row.baseline), f"{row.ratio:.2f}")
    console.print(table)


def _number(value: float) -> str:
    return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
