"""The defect table as a page: `python -m fuzz.defects.page > fuzz/defects/README.md`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from fuzz.defects.table import Defect, all_defects

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
    return "\n".join(lines).rstrip("\n")


if __name__ == "__main__":
    print(page_of(all_defects()))
