"""State diagrams, drawn from the transition tables of machines: figures for the report, Mermaid for documents.

python -m fuzz.report.diagram model/README.md    writes all diagrams between the marks of the document
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fuzz.defects.page import write_into
from fuzz.subject import find_subject, subject_names

#: A transition table: state -> the next states.
Table = Mapping[str, Iterable[str]]


def transitions(table: Table) -> list[tuple[str, str]]:
    """Returns the transitions (state, next state) in the order of the table. The next states of a state are sorted."""
    return [(state, after) for state, following in table.items() for after in sorted(following)]


def draw(axes: Any, title: str, table: Table) -> None:
    """Draws the states on a circle, with an arrow for each transition."""
    names = list(dict.fromkeys(name for pair in transitions(table) for name in pair))
    angles = {name: 2 * math.pi * i / len(names) for i, name in enumerate(names)}
    points = {name: (math.sin(angle), math.cos(angle)) for name, angle in angles.items()}
    box = {"boxstyle": "round", "facecolor": "white", "edgecolor": "grey"}
    for state, after in transitions(table):
        line = {"arrowstyle": "->", "connectionstyle": "arc3,rad=0.15", "color": "grey", "shrinkA": 16, "shrinkB": 18}
        axes.annotate("", points[after], points[state], arrowprops=line)
    for name, point in points.items():
        axes.text(*point, name, ha="center", va="center", bbox=box)
    axes.set_title(title)
    axes.set(xlim=(-1.3, 1.3), ylim=(-1.2, 1.2))
    axes.axis("off")


def mermaid(table: Table) -> str:
    """Returns the diagram as Mermaid text."""
    lines = [f"    {state} --> {after}" for state, after in transitions(table)]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def all_diagrams() -> str:
    """Returns the diagrams of all machines as Markdown."""
    return "\n\n".join(
        f"`{name}`, {title}:\n\n{mermaid(table)}"
        for name in subject_names()
        for title, table in find_subject(name).machine.diagrams.items()
    )


if __name__ == "__main__":
    write_into(Path(sys.argv[1]), all_diagrams())
