"""Sequence charts of traces as SVG. The actors and arrows are those of the component's `Chart` (`fuzz/charts/`).

python -m fuzz.report.sequence TRACE > CHART.svg
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from fuzz.report.explain import explain
from fuzz.report.records import Explanation, Step
from fuzz.trace.file import read_traces
from model.machine import BadValue

#: Pixels: between lifelines, between steps, above the first step, and the width of a loop.
LANE, ROW, HEAD, LOOP = 156, 24, 52, 26
#: Pixels from the left to the end of the steps' numbers, and to the first lifeline.
NUMBER, LEFT = 26, 104
INK, SOFT, RED = "#1d2733", "#8793a0", "#c62828"
_STYLE = (
    "svg text{font:11px system-ui,sans-serif;fill:#1d2733}svg .n{fill:#8793a0;text-anchor:end}"
    "svg .a{text-anchor:middle}svg .h{font-weight:600;text-anchor:middle}svg .bad{fill:#c62828}"
    "svg .t{paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}"
)


class _Row(NamedTuple):
    """A step, and the indices of its actors' lifelines."""

    number: int
    step: Step
    source: int
    target: int


def sequence_chart(explanation: Explanation) -> str:
    """Returns the steps of a trace as SVG; an empty string if no step has an arrow (a component may have no chart)."""
    found = [(number, step, step.arrow) for number, step in enumerate(explanation.steps, 1) if step.arrow is not None]
    if not found:
        return ""
    taking_part = {name for _, _, arrow in found for name in (arrow.source, arrow.target)}
    names = [name for name in explanation.actors if name in taking_part]
    lanes = {name: i for i, name in enumerate(names)}
    rows = [_Row(number, step, lanes[arrow.source], lanes[arrow.target]) for number, step, arrow in found]
    width, height = LEFT + LANE * (len(names) - 1) + 150, HEAD + ROW * len(rows) + 16
    box = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img" aria-label="sequence chart">',
        f"<style>{_STYLE}</style>",
        "<defs>" + "".join(_marker(*each) for each in (("ink", INK), ("red", RED), ("soft", SOFT))) + "</defs>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        *_lifelines([explanation.actors[name] for name in names], height),
    ]
    failing = len(explanation.steps) if explanation.kind is not None else None
    for at, row in enumerate(rows):
        lines += _arrow(row, HEAD + ROW * at + 18, is_last=row.number == failing)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _marker(name: str, colour: str) -> str:
    head = f'<path d="M0 0 8 4 0 8z" fill="{colour}"/>'
    size = 'viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7"'
    return f'<marker id="{name}" {size} orient="auto">{head}</marker>'


def _lifelines(headings: Sequence[str], height: int) -> list[str]:
    lines = []
    for i, heading in enumerate(headings):
        x = LEFT + LANE * i
        lines.append(f'<path d="M{x} {HEAD - 8}V{height - 8}" stroke="{SOFT}" stroke-dasharray="2 3"/>')
        lines.append(f'<rect x="{x - 70}" y="10" width="140" height="30" rx="6" fill="#f5f7f9" stroke="{SOFT}"/>')
        lines.append(f'<text class="h" x="{x}" y="29">{escape(heading)}</text>')
    return lines


def _arrow(row: _Row, y: int, is_last: bool) -> list[str]:
    """Returns the arrow of a step, or a loop at one lifeline.

    Faults, failed steps, and the last step of a finding (`is_last`) are red. Other messages without effect are grey.
    """
    arrow = row.step.arrow
    assert arrow is not None, "a row has an arrow"
    is_bad = arrow.is_fault or is_last
    colour, head = (RED, "red") if is_bad else (SOFT, "soft") if arrow.is_lost else (INK, "ink")
    stroke = f'stroke="{colour}" fill="none" marker-end="url(#{head})"'
    stroke += ' stroke-dasharray="5 3"' if arrow.is_lost or arrow.is_fault else ""
    source, target = (LEFT + LANE * lane for lane in (row.source, row.target))
    label = f"{escape(arrow.text)}</text>"
    bad = " bad" if is_bad else ""
    number = f'<text class="n" x="{NUMBER}" y="{y + 4}">{row.number}</text>'
    if source == target:
        loop = f'<path d="M{source} {y - 6}h{LOOP}v10H{source + 2}" {stroke}/>'
        return [number, loop, f'<text class="t{bad}" x="{source + LOOP + 6}" y="{y + 2}">{label}']
    end = target + (-1 if target > source else 1)
    middle = (source + target) / 2
    return [
        number,
        f'<path d="M{source} {y}H{end}" {stroke}/>',
        f'<text class="t a{bad}" x="{middle:g}" y="{y - 4}">{label}',
    ]


def charts(paths: Sequence[Path]) -> Mapping[str, str]:
    """Returns the chart of each trace in the files, by the trace's id. Raises BadValue for a trace without a chart."""
    found = {}
    for path in paths:
        for trace in read_traces(path):
            explanation = explain(trace)
            found[str(trace.id)] = sequence_chart(explanation)
            if not found[str(trace.id)]:
                raise BadValue(f"{path}: {explanation.problem or f'{trace.component} has no module in fuzz/charts/'}")
    return found


if __name__ == "__main__":
    try:
        print(*charts([Path(each) for each in sys.argv[1:]]).values(), sep="\n", end="")
    except BadValue as problem:
        sys.exit(str(problem))
