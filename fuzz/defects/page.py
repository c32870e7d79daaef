"""The defect table as documents.

python -m fuzz.defects.page > fuzz/defects/README.md    every defect with all its fields
python -m fuzz.defects.page README.md                   the worst ones, between the marks of this document
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from fuzz.defects.table import NO_REPORT, Defect, all_defects, defects_of, not_expressible, suspected
from fuzz.seeding import mutants_of
from fuzz.subject import subject_names
from model.machine import BadValue

#: The marks of a document: the lines between which a generated text is written.
BEGIN, END = "<!-- generated -->", "<!-- end -->"
#: Number of defects in the table of the project's README.
WORST = 12

_HEAD = """# Known defects

These are defects of Apache Pulsar and of proposals, the most severe first. The heading of a defect has its component
(a modelled part of Pulsar) and an id. The text describes the symptom, the mechanism and the consequence. Below it are

- **versions**: the affected versions; "master 2026-07" is Pulsar's master branch in July 2026. A range that ends there
  or with master 2026-09 ends with the newest source that we know. The defect is repaired only if the text says so. In
  parentheses is how we know of the defect: `recorded` (traces of the real class show it), `observed` (a real client or
  broker did it), `read` (in the source) or `inferred` (from other rules). Then comes a profile (a model of one version)
  that has the defect;
- **upstream**: the issue or pull request, if we know one;
- **violates**: the property that fails under this profile, and the rules of the profile that cause the failure.
  `brokerproof subjects COMPONENT` describes the properties and rules.

`brokerproof evidence COMPONENT --defect ID` finds a defect by fuzzing, and prints a short trace that shows it. This
page is generated from the tables beside it: `python -m fuzz.defects.page > fuzz/defects/README.md`.
"""
#: An issue or pull request: repository and number.
ISSUE = re.compile(r"(apache/[\w-]+)#(\d+)")


def linked(text: str) -> str:
    """Returns the text with each `apache/repository#number` as a link to that issue."""
    return ISSUE.sub(r"[\1#\2](https://github.com/\1/issues/\2)", text)


def page_of(defects: Sequence[Defect]) -> str:
    """Returns the page as Markdown. `defects` are in the order of their severity."""
    lines = [_HEAD]
    for severity, rows in groupby(defects, key=lambda defect: defect.severity):
        lines.append(f"## {severity.capitalize()}\n")
        for row in rows:
            rules = ", ".join(f"`{rule}`" for rule in row.rules)
            lines += [
                f"### {row.component}: {row.id}\n",
                f"{' '.join(filter(None, (row.symptom, row.mechanism, row.consequence)))}\n",
                f"- versions: {row.versions} ({row.origin}); profile `{row.profile}`",
                f"- upstream: {linked(row.link) or NO_REPORT}",
                f"- violates `{row.property}`, because of {rules}\n",
            ]
    lines.append("## Suspected defects\n")
    lines.append(
        "Each item has a suspicion (from a report or the source), our decision in bold, and commands that show why. "
        "`pulsar-2026-09` is the profile of Pulsar's master branch in September 2026. The reference is the profile "
        "with the known defects corrected.\n"
    )
    for case in [case for name in subject_names() for case in suspected(name)]:
        shown_by = "\n".join(f"      {command}" for command in case.commands())
        lines.append(f"- {case.component}: {linked(case.suspicion)} **{linked(case.decision)}**\n\n{shown_by}\n")
    lines.append("## Upstream reports\n")
    lines.append(
        "For each component: the number of reports, and the reports. Each report is followed by what shows the "
        "reported behaviour: defects above, bugs that we insert on purpose (*), and tests.\n"
    )
    for name in subject_names():
        shown = shown_reports(name)
        each = ", ".join(f"{linked(report)} {', '.join(ids)}" for report, ids in shown.items())
        lines += [f"- {name} ({len(shown)}): {each}"] if shown else []
    lines.append("\n## Reports outside the models\n")
    lines.append("The model of the component cannot show the reported behaviour. The reason follows the report.\n")
    for name in subject_names():
        lines += [f"- {name}: {linked(report)}. {why}" for report, why in not_expressible(name).items()]
    return "\n".join(lines).rstrip("\n")


def shown_reports(component: str) -> dict[str, list[str]]:
    """Returns what shows each upstream report: ids of defects, ids of seeded bugs (with a *), names of tests."""
    sources = [(row.link, row.id) for row in defects_of(component)]
    sources += [(bug.origin, f"{bug.id}*") for bug in mutants_of(component)]
    sources += [(each.suspicion, test) for each in suspected(component) for test in each.tests]
    found: dict[str, list[str]] = {}
    numbers: dict[str, int] = {}
    for text, name in sources:
        for report in ISSUE.finditer(text):
            found.setdefault(report[0], []).append(name)
            numbers[report[0]] = int(report[2])
    return {report: found[report] for report in sorted(found, key=lambda each: numbers[each])}


def table_in(path: Path) -> str:
    """Returns the text between the marks of a document. Raises BadValue if it cannot be read or has no marks."""
    return _around(path)[1]


def write_into(path: Path, text: str) -> None:
    """Writes a generated text between the marks of a document.

    Raises BadValue if the document has no marks, or cannot be read or written.
    """
    before, _, after = _around(path)
    try:
        path.write_text(f"{before}\n{text}\n{after}", encoding="utf-8")
    except OSError as problem:
        raise BadValue(f"{path}: cannot be written: {problem.strerror}") from None


def _around(path: Path) -> tuple[str, str, str]:
    """Returns a document in three parts: up to the end of the first mark, between the marks, from the second mark."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise BadValue(f"{path}: cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise BadValue(f"{path}: is no text in UTF-8 ({problem.reason} at byte {problem.start})") from None
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise BadValue(f"{path}: needs the lines {BEGIN} and {END} in this order, once each")
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:begin], text[begin:end].strip(), text[end:]


def worst_of(defects: Sequence[Defect], count: int) -> str:
    """Returns a table of the first `count` defects as Markdown, each with the command that finds it."""
    lines = ["| symptom | severity | versions | found by |", "|---|---|---|---|"]
    for row in defects[:count]:
        lines.append(f"| {row.symptom} | {row.severity} | {row.versions} | `{row.command()}` |")
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:]:
        write_into(Path(sys.argv[1]), worst_of(all_defects(), WORST))
    else:
        print(page_of(all_defects()))
