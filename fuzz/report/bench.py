"""Benchmarks as one HTML file: the table, and the plots of each component's benchmarks.

Modules of `fuzz/benchmarks/` declare plots as `plots`. Each point of a plot names a benchmark. A plot is omitted if
this run did not measure all of these benchmarks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from fuzz.benchmarks.runner import Plot, other_modules
from fuzz.platform.version import code_version
from fuzz.report.campaign import BLUE, INK, RED, page, picture, pyplot
from model.machine import BadValue

_COLOURS = (BLUE, RED, INK, "#1b7f4b", "#8a5a00")


def declared_plots() -> list[Plot]:
    """Returns the plots that the benchmarks declare."""
    return [plot for module in other_modules() for plot in getattr(module, "plots", ())]


def write_report(path: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Writes the page. Raises BadValue when the file cannot be written. Cost: a picture for each plot."""
    measured = {r["name"]: r for r in results}
    shown = [plot for plot in declared_plots() if all(p.result in measured for line in plot.lines for p in line.points)]
    text = page(
        "bench.html",
        version=code_version(),
        results=results,
        plots=[{"title": plot.title, "about": plot.about, "picture": _drawn(plot, measured)} for plot in shown],
    )
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise BadValue(f"{path}: cannot be written: {problem.strerror}") from None


def _drawn(plot: Plot, measured: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns a plot as a data URI. `measured` has the results by name."""
    figure, axes = pyplot().subplots(figsize=(7.2, 3.6))
    for colour, line in zip(cycle(_COLOURS), plot.lines, strict=False):
        xs = [p.x for p in line.points]
        ys = [measured[p.result][p.column] for p in line.points]
        axes.plot(xs, ys, marker="o", markersize=4, linewidth=1.4, color=colour, label=line.label)
    axes.set(xscale="log", yscale="log", xlabel=plot.x, ylabel=plot.y)
    axes.grid(visible=True, which="major", linewidth=0.4)
    axes.legend(frameon=False)
    return picture(figure)
