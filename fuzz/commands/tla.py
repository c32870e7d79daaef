"""`brokerproof tla`: TLC on the TLA+ twins."""

from __future__ import annotations

from typing import Annotated

import msgspec
from rich.console import Console
from rich.markup import escape

from fuzz.commands import Count, Record, Result, Seconds
from fuzz.tlc.process import Verdict
from fuzz.tlc.runs import run_tla


class TlaRow(Record):
    """A run of TLC, compared with the expected result and with the model in the same scope."""

    module: str
    run: str
    scope: str
    profile: str
    distinct_states: Count
    model_distinct_states: Count | None  # null unless TLC succeeded and was expected to
    edges_checked: Count
    expected_result: Annotated[str, msgspec.Meta(pattern=r"^(success|violated \w+)$")]
    result: Annotated[str, msgspec.Meta(pattern=r"^(success|violated( \w+)?|timeout|error: .*)$")]
    seconds: Seconds
    differences: list[str]
    log: str


class TlaResult(Result):
    """A row for each run."""

    modules: list[TlaRow]

    @property
    def found(self) -> bool:
        """Whether the result of a run differs from the expected one."""
        return any(row.differences for row in self.modules)


def run(modules: list[str], scope: str | None, console: Console, *, nightly: bool = False) -> TlaResult:
    """Makes the runs of TLC that `fuzz.tlc.manifest.chosen` selects. Raises BadValue if `run_tla` does."""
    results = run_tla(modules, scope, console, nightly=nightly)
    return TlaResult(modules=[msgspec.convert(result.row(), TlaRow) for result in results])


def show(console: Console, result: TlaResult) -> None:
    """Prints a line for each run, and its differences."""
    for row in result.modules:
        states = f"{row.distinct_states:,} distinct states"
        if row.model_distinct_states == row.distinct_states:
            states += ", equal to the model's"
        edges = f", {row.edges_checked:,} transitions compared" if row.edges_checked else ""
        verdict = row.result if row.result == Verdict.SUCCESS else f"{row.result}, as expected"
        verdict = "[bold red]differs[/]" if row.differences else verdict
        console.print(f"{row.module} {row.run}: {verdict}, {states}{edges} ({row.seconds:.1f} s)")
        for line in row.differences:
            console.print(f"  {escape(line)}")
