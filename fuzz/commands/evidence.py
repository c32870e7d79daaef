"""`brokerproof evidence`: finds each known defect by fuzzing, and shrinks the traces that show it.

The known defects are the rows of the defect table (`fuzz/defects/table.py`). Each has a search of its own. The model
runs under `Defect.config`, the reference with only this defect, and only the property that the defect violates is
checked. So no other defect can end a trace first.

The evidence table has for each defect the steps until a trace shows it, and the length of the shortest shrunk trace.
Searches are limited by steps, not by time. So the same code writes the same table on every machine.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from fuzz.campaign.worker import Spec, trace_of
from fuzz.commands import Count, Record, Result, Seconds
from fuzz.defects.page import linked, table_in, write_into
from fuzz.defects.table import Defect, Severity, all_defects, find_defect
from fuzz.platform.progress import counter, showing
from fuzz.platform.version import code_version
from fuzz.report.explain import explain
from fuzz.report.records import Explanation
from fuzz.report.terminal import show_explanation
from fuzz.run.finding import Finding
from fuzz.run.lockstep import Lockstep
from fuzz.run.shrink import shrink
from fuzz.subject import find_subject, subject_names
from fuzz.target import Target
from model.machine import BadValue

#: The search for a defect begins no trace after this many steps, which take a few minutes.
MOST_STEPS = 2_000_000
#: The search ends earlier if a shrunk trace has at most this many steps.
SHORT_ENOUGH = 10
#: The search ends after this many shrunk traces.
_MOST_SHRUNK = 6
#: Shrinking one trace takes at most this many steps.
_SHRINK_STEPS = 60_000
#: The head of the evidence table.
_HEAD = """| defect | symptom | severity | versions | upstream | steps | length |
|---|---|---|---|---|---|---|"""
#: The last two cells of a row, joined by a bar: if the search did not find the defect, and if there was no search.
_NOT_SHOWN, _NOT_SEARCHED = "not shown |", "|"


class EvidenceRow(Record):
    """A defect, and the effort to find it.

    `steps` counts the steps of all random traces up to the first one that shows the defect, including this one.
    `seconds` is the processor time of these steps, and `length` the number of steps of the shortest shrunk trace. All
    three are null if no trace shows the defect.
    """

    subject: str
    id: str
    symptom: str
    severity: Severity
    versions: str
    link: str
    profile: str
    property: str
    command: str  # finds the defect under `profile`, which may have other defects, too
    steps: Count | None
    seconds: Seconds | None
    length: Count | None
    explanation: Explanation | None  # of the shortest shrunk trace; null unless `--defect` named the defect


class EvidenceResult(Result):
    """A row for each defect that was searched."""

    defects: list[EvidenceRow]
    version: str

    @property
    def found(self) -> bool:
        """Whether the exit code is FOUND: here, if fuzzing missed a defect."""
        return any(row.steps is None for row in self.defects)


def run(
    components: list[str], most_steps: int, write: Path | None, console: Console, defect_id: str | None = None
) -> EvidenceResult:
    """Searches the defects of the components (default: all). A search begins no trace after `most_steps` steps.

    With `defect_id`, searches only this defect, and explains its trace. `components` then has one name. `write` is a
    document that has the evidence table between two marks (`fuzz/defects/page.py`). A defect with a result in the
    document is not searched. Each new result is written to the document at once. Raises BadValue for an unknown
    component or defect, and for a document that has no marks or cannot be written.
    """
    for name in components:
        find_subject(name)
    if defect_id is not None and len(components) != 1:
        raise BadValue(f"--defect needs exactly one SUBJECT, got {len(components)}")
    only = None if defect_id is None else find_defect(components[0], defect_id)
    results = results_in(write) if write is not None else {}
    chosen = [d for d in all_defects() if d.component in (components or subject_names()) and key_of(d) not in results]
    chosen = [d for d in chosen if only is None or d == only]
    rows: list[EvidenceRow] = []
    if write is not None:
        write_into(write, table_of(all_defects(), results))  # an error is reported before the work
    with showing(console, "finding defects") as update:
        for defect in chosen:
            row = search_for(defect, most_steps, explained=only is not None)
            rows.append(row)
            if write is not None:
                results[key_of(defect)] = result_of(row)
                write_into(write, table_of(all_defects(), results))
            counter(update, "defects")(len(rows), len(chosen))
    return EvidenceResult(defects=rows, version=code_version())


def search_for(defect: Defect, most_steps: int, *, explained: bool = False) -> EvidenceRow:
    """Searches one defect, and shrinks its traces. Returns its row; `explained` adds an explanation to the row."""
    subject = find_subject(defect.component)
    target = Target(subject, defect.config())
    lockstep = Lockstep(target)
    lockstep.check_only(defect.property)
    begun, steps, seconds, shrunk = time.process_time(), None, None, list[Finding]()
    for seed in itertools.takewhile(lambda _: lockstep.coverage.steps < most_steps, itertools.count()):
        finding = lockstep.run(seed)
        # any other finding, such as an exception of the model, does not show the defect
        if finding is not None and finding.broken_property == defect.property:
            if steps is None:
                steps, seconds = lockstep.coverage.steps, time.process_time() - begun
            shrunk.append(shrink(target, finding, budget_steps=_SHRINK_STEPS))
            if len(shrunk[-1].calls) <= SHORT_ENOUGH or len(shrunk) == _MOST_SHRUNK:
                break
    shortest = min(shrunk, key=lambda each: len(each.calls), default=None)
    trace = trace_of(target, Spec(defect.component), shortest) if shortest is not None and explained else None
    copied = ("id", "symptom", "severity", "versions", "link", "profile", "property")
    return EvidenceRow(
        subject=defect.component,
        **{name: getattr(defect, name) for name in copied},
        command=defect.command(),
        steps=steps,
        seconds=seconds,
        length=None if shortest is None else len(shortest.calls),
        explanation=None if trace is None else explain(trace),
    )


def key_of(row: Defect | EvidenceRow) -> str:
    """Returns the first cell of the defect's row in the evidence table. It identifies the defect."""
    return f"`{row.component if isinstance(row, Defect) else row.subject}`: `{row.id}`"


def result_of(row: EvidenceRow) -> str:
    """Returns the last two cells of the defect's row in the evidence table: `steps` and `length`."""
    return _NOT_SHOWN if row.steps is None else f"{row.steps:,} | {row.length}"


def table_of(rows: Iterable[Defect | EvidenceRow], results: Mapping[str, str]) -> str:
    """Returns the evidence as a Markdown table. `results` has the last two cells of table rows, by their first cell."""
    cells = [
        (key_of(r), r.symptom, r.severity, r.versions, linked(r.link), results.get(key_of(r), _NOT_SEARCHED))
        for r in rows
    ]
    return "\n".join([_HEAD, *(f"| {' | '.join(each)} |" for each in cells)])


def results_in(path: Path) -> dict[str, str]:
    """Returns the results in the table of a document, as `table_of` takes them.

    A defect that was not searched or not found has no result.
    """
    rows = [line.strip("| ").split(" | ") for line in table_in(path).splitlines()]
    return {row[0]: " | ".join(row[-2:]) for row in rows if len(row) == 7 and row[-1].isdecimal()}


def show(console: Console, result: EvidenceResult) -> None:
    """Prints the trace of the defect that `--defect` named, then the table as Markdown."""
    for row in result.defects:
        if row.explanation is not None:
            show_explanation(console, row.explanation)
            console.print()
    if not result.defects:
        console.print("no known defect to find")
        return
    console.print(escape(table_of(result.defects, {key_of(row): result_of(row) for row in result.defects})))
