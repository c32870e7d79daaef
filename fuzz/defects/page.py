"""The defect table as documents.

python -m fuzz.defects.page > fuzz/defects/README.md    every defect with all its fields
python -m fuzz.defects.page README.md                   the worst ones, between the marks of a document
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from fuzz.defects.table import Defect, all_defects, not_expressible
from fuzz.subject import subject_names
from model.machine import BadValue

#: The lines of a document between which a table is written.
BEGIN, END = "<!-- generated -->", "<!-- end -->"
#: Defects in the table of the project's README.
WORST = 12

_HEAD = """# Known defects

Defects of shipped versions of Apache Pulsar and of proposals, the most severe first. `brokerproof evidence` finds and
shrinks each. This page is generated from the tables beside it: `python -m fuzz.defects.page > fuzz/defects/README.md`.
"""
_ISSUE = re.compile(r"(apache/[\w-]+)#(\d+)")


def linked(text: str) -> str:
    """The text with each `apache/repository#number` as a link to that issue."""
    return _ISSUE.sub(r"[\1#\2](https://github.com/\1/issues/\2)", text)


def page_of(defects: Sequence[Defect]) -> str:
    """The page as Markdown; the defects are in the order of their severity."""
    lines = [_HEAD]
    for severity, rows in groupby(defects, key=lambda defect: defect.severity):
        lines.append(f"## {severity.capitalize()}\n")
        for row in rows:
            rules = ", ".join(f"`{rule}`" for rule in row.rules)
            lines += [
                f"### {row.component}: {row.id}\n",
                f"{' '.join(filter(None, (row.symptom, row.mechanism, row.consequence)))}\n",
                f"- versions: {row.versions} ({row.origin}); profile `{row.profile}`",
                f"- reported: {linked(row.link) or 'not known to be'}",
                f"- breaks `{row.property}` by {rules}\n",
            ]
    lines.append("## Reports that a machine cannot show\n")
    for name in subject_names():
        lines += [f"- {name}: {linked(report)}. {why}" for report, why in not_expressible(name).items()]
    return "\n".join(lines).rstrip("\n")


def write_into(path: Path, table: str) -> None:
    """Puts the table between the marks of a document. Raises BadValue when it has none."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise BadValue(f"{path}: cannot be read: {problem.strerror}") from None
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise BadValue(f"{path}: needs the lines {BEGIN} and {END}, once each, for the table to stand between")
    before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    path.write_text(f"{before}\n{table}\n{after}", encoding="utf-8")


def worst_of(defects: Sequence[Defect], count: int) -> str:
    """A table of the worst defects as Markdown, each with the command that finds it."""
    lines = ["| symptom | severity | versions | found by |", "|---|---|---|---|"]
    for row in defects[:count]:
        command = f"brokerproof fuzz {row.component} --profile {row.profile} --property {row.property}"
        lines.append(f"| {row.symptom} | {row.severity} | {row.versions} | `{command}` |")
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:]:
        write_into(Path(sys.argv[1]), worst_of(all_defects(), WORST))
    else:
        print(page_of(all_defects()))
