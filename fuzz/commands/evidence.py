"""`brokerproof evidence`: finds each defect of the defect table by fuzzing, and shrinks its trace.

The config is the reference with the rules of the defect's row, so that one defect does not hide another. Only the row's
property is checked. Limits are numbers of steps, not times, so every machine finds the same numbers of steps and
lengths with the same code.
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

#: Steps of random traces after which a defect counts as not found: a few minutes.
MOST_STEPS = 2_000_000
#: If a shrunk trace has more steps, the next findings are shrunk as well, and the shortest trace counts.
LONG = 10
#: How many findings of one defect are shrunk at most, and the budget of each in steps.
_MOST_SHRUNK, _SHRINK_STEPS = 6, 60_000
_HEAD = """| defect | symptom | severity | versions | upstream | steps | length |
|---|---|---|---|---|---|---|"""
_NOT_SHOWN = "not shown |"


class EvidenceRow(Record):
    """A defect, and the effort to find it.

    `steps` is the number of steps of random traces up to the end of the first trace that shows the defect, `seconds`
    the processor time of these steps, `length` the number of steps of the shortest shrunk trace. All three are null if
    no trace shows the defect.
    """

    subject: str
    id: str
    symptom: str
    severity: Severity
    versions: str
    link: str
    profile: str
    property: str
    command: str
    steps: Count | None
    seconds: Seconds | None
    length: Count | None
    explanation: Explanation | None  # of the shortest shrunk trace, if one defect was named


class EvidenceResult(Result):
    """A row for each defect; with `--write`, for each that has no result in that file yet."""

    defects: list[EvidenceRow]
    version: str

    @property
    def found(self) -> bool:
        """Whether a defect of the table was not found."""
        return any(row.steps is None for row in self.defects)


def run(
    components: list[str], most_steps: int, write: Path | None, console: Console, defect_id: str | None = None
) -> EvidenceResult:
    """Finds and shrinks each defect of the components (default: all), each in at most `most_steps` steps of traces.

    With `defect_id`, finds only this defect of the one component, and explains its trace. With `write`, defects that
    have a result in that file are not searched, and each new result is written at once. Raises BadValue for an unknown
    component or defect, and for a file that has no marks or cannot be written.
    """
    for name in components:
        find_subject(name)
    if defect_id is not None and len(components) != 1:
        raise BadValue(f"--defect needs exactly one SUBJECT, got {len(components)}")
    named = None if defect_id is None else find_defect(components[0], defect_id)
    known = written_in(write) if write is not None else {}
    chosen = [d for d in all_defects() if d.component in (components or subject_names()) and key_of(d) not in known]
    chosen = [d for d in chosen if named in (None, d)]
    rows: list[EvidenceRow] = []
    if write is not None:
        write_into(write, table_of(all_defects(), known))  # an error is reported before the work
    with showing(console, "finding defects") as update:
        for defect in chosen:
            row = found_by_fuzzing(defect, most_steps, explained=named is not None)
            rows.append(row)
            if write is not None:
                known[key_of(defect)] = result_of(row)
                write_into(write, table_of(all_defects(), known))
            counter(update, "defects")(len(rows), len(chosen))
    return EvidenceResult(defects=rows, version=code_version())


def found_by_fuzzing(defect: Defect, most_steps: int, *, explained: bool = False) -> EvidenceRow:
    """Finds and shrinks one defect. With `explained`, the row has the shortest shrunk trace step by step."""
    subject = find_subject(defect.component)
    target = Target(subject, defect.config())
    lockstep = Lockstep(target)
    lockstep.check_only(defect.property)
    begun, steps, seconds, found = time.process_time(), None, None, list[Finding]()
    for seed in itertools.takewhile(lambda _: lockstep.coverage.steps < most_steps, itertools.count()):
        finding = lockstep.run(seed)
        if finding is not None and finding.broken_property == defect.property:
            if steps is None:
                steps, seconds = lockstep.coverage.steps, time.process_time() - begun
            found.append(shrink(target, finding, budget_steps=_SHRINK_STEPS))
            if len(found[-1].calls) <= LONG or len(found) == _MOST_SHRUNK:
                break
    shortest = min(found, key=lambda each: len(each.calls), default=None)
    trace = trace_of(target, Spec(defect.component), shortest) if shortest is not None and explained else None
    same = ("id", "symptom", "severity", "versions", "link", "profile", "property")
    return EvidenceRow(
        subject=defect.component,
        **{name: getattr(defect, name) for name in same},
        command=defect.command(),
        steps=steps,
        seconds=seconds,
        length=None if shortest is None else len(shortest.calls),
        explanation=None if trace is None else explain(trace),
    )


def key_of(row: Defect | EvidenceRow) -> str:
    """Returns the cell of the table that identifies the defect."""
    return f"`{row.component if isinstance(row, Defect) else row.subject}`: `{row.id}`"


def result_of(row: EvidenceRow) -> str:
    """Returns the cells `steps` and `length` of the table."""
    return _NOT_SHOWN if row.steps is None else f"{row.steps:,} | {row.length}"


def table_of(rows: Iterable[Defect | EvidenceRow], results: Mapping[str, str]) -> str:
    """Returns the evidence as a Markdown table. `results` has the cells of `result_of`, by the cell of `key_of`."""
    cells = [(key_of(r), r.symptom, r.severity, r.versions, linked(r.link), results.get(key_of(r), "|")) for r in rows]
    return "\n".join([_HEAD, *(f"| {' | '.join(each)} |" for each in cells)])


def written_in(path: Path) -> dict[str, str]:
    """Returns the results in the table of a document, by the first cell of their rows.

    A row that was not searched, or whose defect was not shown, has no result.
    """
    rows = [line.strip("| ").split(" | ") for line in table_in(path).splitlines()]
    return {row[0]: " | ".join(row[-2:]) for row in rows if len(row) == 7 and row[-1].isdecimal()}


def show(console: Console, result: EvidenceResult) -> None:
    """Prints the trace of a defect that was named, then the table as Markdown."""
    for row in result.defects:
        if row.explanation is not None:
            show_explanation(console, row.explanation)
            console.print()
    if not result.defects:
        console.print("no known defect to find")
        return
    console.print(escape(table_of(result.defects, {key_of(row): result_of(row) for row in result.defects})))
