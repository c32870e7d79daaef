"""`brokerproof evidence`: each row of the defect table is found by fuzzing, and its trace shrunk.

The row's config is the reference with the row's rules, so that one defect does not hide another; every property but
the row's is skipped.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from fuzz.commands import Count, Record, Result, Seconds
from fuzz.defects.page import linked, write_into
from fuzz.defects.table import Defect, Severity, all_defects
from fuzz.platform.progress import counter, showing
from fuzz.platform.version import code_version
from fuzz.run.checks import all_but
from fuzz.run.lockstep import Lockstep
from fuzz.run.shrink import shrink
from fuzz.subject import find_subject, subject_names
from fuzz.target import Target

#: A shrunk trace with more steps is long: the next findings are shrunk, too, and the shortest trace counts.
LONG = 10


class EvidenceRow(Record):
    """A defect and the finding that shows it; `seconds`, of processor time, and `length` are null if there is none."""

    subject: str
    id: str
    symptom: str
    severity: Severity
    versions: str
    link: str
    profile: str
    property: str
    command: str
    seconds: Seconds | None
    length: Count | None


class EvidenceResult(Result):
    """A row for each defect."""

    defects: list[EvidenceRow]
    version: str

    @property
    def found(self) -> bool:
        """Whether a defect of the table was not found."""
        return any(row.seconds is None for row in self.defects)


def run(components: list[str], seconds: float, write: Path | None, console: Console) -> EvidenceResult:
    """Finds and shrinks each defect of the components (default: all), for at most `seconds` each.

    Raises BadValue for an unknown component.
    """
    for name in components:
        find_subject(name)
    rows = [defect for defect in all_defects() if defect.component in (components or subject_names())]
    shown: list[EvidenceRow] = []
    with showing(console, "finding defects") as update:
        for row in rows:
            shown.append(found_by_fuzzing(row, seconds))
            counter(update)(len(shown), len(rows))
    if write is not None:
        write_into(write, table_of(shown))
    return EvidenceResult(defects=shown, version=code_version())


def found_by_fuzzing(row: Defect, seconds: float) -> EvidenceRow:
    """Finds and shrinks one defect. Processor time, so that the table is the same on a busy machine."""
    subject = find_subject(row.component)
    target = Target(subject, row.config())
    lockstep = Lockstep(target)
    lockstep.skipped = all_but(subject, row.property)
    started, begun, found, length = time.perf_counter(), time.process_time(), None, None
    for seed in itertools.takewhile(lambda _: time.perf_counter() - started < seconds, itertools.count()):
        finding = lockstep.run(seed)
        if finding is not None and finding.broken_property == row.property:
            found = found or time.process_time() - begun
            steps = len(shrink(target, finding).calls)
            length = min(steps, length or steps)
            if length <= LONG:
                break
    command = f"brokerproof fuzz {row.component} --profile {row.profile} --property {row.property} --stop-at-first"
    same = ("id", "symptom", "severity", "versions", "link", "profile", "property")
    fields = {name: getattr(row, name) for name in same}
    return EvidenceRow(subject=row.component, **fields, command=command, seconds=found, length=length)


def table_of(shown: Sequence[EvidenceRow]) -> str:
    """The evidence as a Markdown table."""
    lines = ["| defect | severity | versions | reported | breaks | seconds | steps |", "|---|---|---|---|---|---|---|"]
    for s in shown:
        seconds = "not shown" if s.seconds is None else "< 0.1" if s.seconds < 0.05 else f"{s.seconds:.1f}"
        breaks = f"`{s.subject}`: `{s.property}`"
        cells = (s.symptom, s.severity, s.versions, linked(s.link), breaks, seconds, str(s.length or ""))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def show(console: Console, result: EvidenceResult) -> None:
    """Prints the table as Markdown."""
    console.print(escape(table_of(result.defects)))
