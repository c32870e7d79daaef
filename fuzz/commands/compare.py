"""`brokerproof compare`: what the policies of a workload cost, measured on runs of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from fuzz.commands import Result
from fuzz.platform.progress import showing
from fuzz.platform.version import code_version
from fuzz.report.campaign import pyplot
from fuzz.workloads import Workload, find_workload
from model.machine import BadValue

#: The largest value on a linear axis.
_LINEAR = 1000


class CompareResult(Result):
    """The rows of a workload: `policies` has the fields that its row type names, with the policy first."""

    workload: str
    policies: list[dict[str, Any]]
    plot: str | None
    version: str


def run(name: str, policies: list[str], sizes: list[int], out: Path | None, console: Console) -> CompareResult:
    """Runs a workload. Raises BadValue for an unknown workload or policy, and for a file that cannot be written."""
    workload = find_workload(name)
    for policy in policies:
        if policy not in workload.policies:
            raise BadValue(f"{name} has no policy {policy}; it has {', '.join(workload.policies)}")
    if out is not None and (out.suffix not in (".png", ".svg", ".pdf") or not out.absolute().parent.is_dir()):
        raise BadValue(f"--out {out} must be a .png, .svg or .pdf file in a folder that exists")
    rows: list[dict[str, Any]] = []
    with showing(console, f"comparing {name}") as update:
        for row in workload.run(tuple(policies) or workload.policies, tuple(sizes) or workload.sizes):
            rows.append(msgspec.to_builtins(row))
            update(len(rows), None, str(rows[-1]["policy"]))
    if out is not None:
        draw(workload, rows, out)
    return CompareResult(workload=name, policies=rows, plot=str(out) if out else None, version=code_version())


def show(console: Console, result: CompareResult) -> None:
    """Prints a table and what its words mean; fields that are lists are in the JSON object only."""
    workload = find_workload(result.workload)
    console.print(f"[bold]{workload.name}[/]: {escape(workload.about)}\n")
    shown = [key for key, value in result.policies[0].items() if not isinstance(value, list)]
    titles = [key.replace("_", " ") for key in shown]
    # without a minimum, a heading of long words is cut
    table = Table(*[Column(title, min_width=max(map(len, title.split()))) for title in titles], box=None)
    for row in result.policies:
        table.add_row(*[f"{row[key]:,}" if type(row[key]) is int else str(row[key]) for key in shown])
    console.print(table)
    console.print()
    for word, meaning in workload.meanings.items():
        console.print(f"  [bold]{escape(f'{word:15}')}[/] {escape(meaning)}")
    if result.plot is not None:
        console.print(f"plot  {result.plot}")


def draw(workload: Workload, rows: list[dict[str, Any]], out: Path) -> None:
    """Draws each measure over the size, with a line for each policy. Raises BadValue if the file cannot be written."""
    plots = pyplot()
    columns = 3
    figure, axes = plots.subplots(-(-len(workload.measures) // columns), columns, figsize=(11, 8), squeeze=False)
    for measure, axis in zip(workload.measures, axes.flat, strict=False):
        for policy in dict.fromkeys(row["policy"] for row in rows):
            points = {row[workload.size]: row[measure] for row in reversed(rows) if row["policy"] == policy}
            axis.plot(list(points), list(points.values()), marker="o", markersize=3, label=policy)
        axis.set_title(measure.replace("_", " "))
        axis.set_xscale("log")
        axis.set_yscale("symlog" if max(row[measure] for row in rows) > _LINEAR else "linear")
        axis.set_xlabel(workload.size)
    axes.flat[0].legend()
    figure.tight_layout()
    try:
        figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)
    except OSError as problem:
        raise BadValue(f"{out}: cannot be written: {problem.strerror}") from None
    finally:
        plots.close(figure)
