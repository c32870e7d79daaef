"""`brokerproof evidence`: each row of the defect table, found and shrunk."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.console import Console
from rich.markup import escape

from fuzz.commands import Count, Record, Result, Seconds
from fuzz.defects.page import write_into
from fuzz.defects.table import Severity
from fuzz.evidence import Shown, show_all, table_of
from fuzz.platform.progress import counter, showing
from fuzz.platform.version import code_version


class EvidenceRow(Record):
    """A defect and the finding that shows it; `seconds` and `length` are null if there was no finding."""

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
    """Finds each defect of the components, by default all. Raises BadValue for unknown names."""
    with showing(console, "finding defects") as update:
        shown = show_all(components, seconds, counter(update))
    if write is not None:
        write_into(write, table_of(shown))
    rows = [msgspec.convert(each._asdict(), EvidenceRow) for each in shown]
    return EvidenceResult(defects=rows, version=code_version())


def show(console: Console, result: EvidenceResult) -> None:
    """Prints the table as Markdown."""
    rows = [Shown(*[getattr(row, name) for name in Shown._fields]) for row in result.defects]
    console.print(escape(table_of(rows)))
