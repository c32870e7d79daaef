"""`brokerproof compare`: simulates a workload under each policy or protocol variant, and reports the costs of each.

A simulation is a cell (`fuzz/workloads/__init__.py`): a workload under a policy, with a size and a seed. Its result is
rows, whose fields are the measured costs.
"""

from __future__ import annotations

import contextlib
import io
import statistics
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from fuzz.campaign.grid import cells_per_round, on_spark, run_grid, run_here
from fuzz.campaign.store import (
    HadoopStore,
    LocalStore,
    Store,
    check_writable,
    check_writable_file,
    is_local,
    local_path,
)
from fuzz.commands import Result
from fuzz.platform.progress import showing
from fuzz.platform.version import code_version
from fuzz.report.campaign import pyplot
from fuzz.workloads import Cell, Workload, find_workload
from model.machine import BadValue

#: The axis of a measure is linear if no value is larger, otherwise logarithmic.
_LINEAR = 1000
#: The suffixes of plots.
_PLOTS = (".png", ".svg", ".pdf")
#: The name of the plot in a folder, if there is one workload. With several, a plot has the name of its workload.
_PLOT = "compare.svg"


class CompareResult(Result):
    """The costs: `policies` has the rows of all cells. The keys of a row are the fields of `Workload.row`."""

    workload: str
    policies: list[dict[str, Any]]
    out: str | None
    plots: list[str]
    version: str


class Options(NamedTuple):
    """The options of the command line. An empty list means the defaults of the workload; for `seeds`, only seed 0."""

    workload: str
    policies: list[str]
    sizes: list[int]
    seeds: list[int]
    settings: list[str]
    spark: bool = False
    master: str | None = None
    out: str | None = None


def run(options: Options, console: Console) -> CompareResult:
    """Runs the cells of the workloads. If `out` is a folder, writes rows and plots there; if it is a file, one plot.

    Raises BadValue for an unknown name or wrong value, and for a file that cannot be written.
    """
    workloads = find_workloads(options.workload)
    cells = [cell for each in workloads for cell in cells_of(each, options)]
    suffix = PurePosixPath(options.out or "").suffix
    plot = Path(options.out) if options.out is not None and suffix in _PLOTS else None
    folder = options.out if plot is None else None
    if plot is not None and len(workloads) > 1:
        raise BadValue(f"--out {plot} takes the plot of one workload; with several, --out must be a folder")
    if plot is not None:
        check_writable_file("--out", plot)
    if folder is not None and suffix:
        raise BadValue(f"--out {folder} must be a .png, .svg or .pdf file, or a folder, whose name has no dot")
    if folder is not None and is_local(folder):
        check_writable(local_path(folder))
    needs_spark = options.spark or options.master is not None or (folder is not None and not is_local(folder))
    with contextlib.ExitStack() as stack:
        spark = None
        if needs_spark:
            from fuzz.platform.spark import session

            spark = stack.enter_context(session("brokerproof compare", options.master))
        store: Store | None = None
        if folder is not None:
            store = LocalStore(local_path(folder)) if is_local(folder) else HadoopStore(spark, folder)
        update = stack.enter_context(showing(console, f"comparing {options.workload}"))
        runner = run_here if spark is None else on_spark(spark)
        rows = run_grid(
            options.workload,
            workloads[0].row,
            cells,
            runner,
            cells_per_round(spark),
            store,
            lambda n: update(n, len(cells), f"{n:,} of {len(cells):,} cells"),
        )
        drawn = list[str]()
        if store is not None:
            for each in workloads:
                name = _PLOT if len(workloads) == 1 else f"{each.name}.svg"
                store.write(name, draw(each, rows, "svg"))
                drawn.append(store.path(name))
        elif plot is not None:
            try:
                plot.write_bytes(draw(workloads[0], rows, plot.suffix[1:]))
            except OSError as problem:
                raise BadValue(f"{plot}: cannot be written: {problem.strerror}") from None
            drawn.append(str(plot))
    return CompareResult(workload=options.workload, policies=rows, out=folder, plots=drawn, version=code_version())


def find_workloads(names: str) -> list[Workload]:
    """Returns the workloads whose names are separated by commas.

    Raises BadValue for an unknown name, and if the rows of the workloads have different types.
    """
    # the path in `file:PATH` may contain commas
    found = [find_workload(name) for name in ([names] if ":" in names else names.split(","))]
    if len({each.row for each in found}) > 1:
        raise BadValue(f"{names} have different columns; compare them one by one")
    return found


def cells_of(workload: Workload, options: Options) -> list[Cell]:
    """Returns the cells of a workload: one for each combination of seed, size and policy.

    Raises BadValue for an unknown policy, for a policy that this machine cannot run, and for a wrong parameter.
    """
    for policy in options.policies:
        if policy not in workload.policies:
            raise BadValue(f"{workload.name} has no policy {policy}; it has {', '.join(workload.policies)}")
        workload.check(policy)
    settings: dict[str, str] = {}
    for text in options.settings:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise BadValue(f"--set {text} must be NAME=VALUE")
        settings[name] = value
    parameters = workload.with_parameters(settings)
    return [
        Cell(workload.name, policy, size, seed, parameters)
        for seed in options.seeds or [0]
        for size in options.sizes or workload.sizes(parameters)
        for policy in options.policies or workload.default
    ]


def show(console: Console, result: CompareResult) -> None:
    """Prints a table, and the meaning of policies and columns. Columns with lists are in the JSON object only."""
    workloads = find_workloads(result.workload)
    workload = workloads[0]
    for each in workloads:
        console.print(f"[bold]{each.name}[/]: {escape(each.about)}")
    console.print()
    constant = {"workload"} if len(workloads) == 1 else set()
    shown = [key for key, value in result.policies[0].items() if not isinstance(value, list) and key not in constant]
    titles = [workload.title(key) for key in shown]
    # without a minimum, a heading of long words is cut
    table = Table(*[Column(title, min_width=max(map(len, title.split()))) for title in titles], box=None)
    for row in result.policies:
        table.add_row(*[_shown(row[key]) for key in shown])
    console.print(table)
    console.print()
    policies = {row["policy"] for row in result.policies}
    for word, meaning in workload.meanings.items():
        if word in policies or word not in workload.policies:  # a policy that was compared, or a column
            console.print(f"  [bold]{escape(f'{word:15}')}[/] {escape(meaning)}")
    for plot in result.plots:
        console.print(f"plot  {escape(plot)}")


def _shown(value: Any) -> str:
    """Returns a value for the table: an integer with separators, a float with four decimals."""
    if value is None:
        return "-"
    return f"{value:,}" if type(value) is int else f"{value:.4f}" if isinstance(value, float) else str(value)


def draw(workload: Workload, rows: list[dict[str, Any]], kind: str) -> bytes:
    """Draws each measure of a workload over the size: a line for each policy, with the mean of the seeds.

    Returns the picture in the file format `kind`, such as svg.
    """
    # rows without the field `workload` are all of this workload
    rows = [row for row in rows if row.get("workload", workload.name) == workload.name]
    plots = pyplot()
    columns = 3
    figure, axes = plots.subplots(-(-len(workload.measures) // columns), columns, figsize=(12, 8), squeeze=False)
    for measure, axis in zip(workload.measures, axes.flat, strict=False):
        for policy in dict.fromkeys(row["policy"] for row in rows):
            points = points_of(workload, rows, policy, measure)
            axis.plot(list(points), list(points.values()), marker="o", markersize=3, label=policy)
        axis.set_title(workload.title(measure))
        axis.set_xscale("log")
        axis.xaxis.set_minor_formatter("")
        axis.set_yscale("symlog" if max(row[measure] for row in rows) > _LINEAR else "linear")
        axis.set_ylim(bottom=0)
        axis.set_xlabel(workload.size)
    axes.flat[0].legend(fontsize="x-small")
    figure.tight_layout()
    picture = io.BytesIO()
    # without a date, equal rows give an equal svg
    figure.savefig(picture, format=kind, metadata={"Date": None} if kind == "svg" else None)
    plots.close(figure)
    return picture.getvalue()


def points_of(workload: Workload, rows: list[dict[str, Any]], policy: str, measure: str) -> dict[int, float]:
    """Returns the mean of a measure over the seeds, by size.

    If several rows have the same policy, size and seed, the first counts: for `transfer`, that without deduplication.
    """
    first: dict[tuple[int, int], float] = {}
    for row in rows:
        if row["policy"] == policy:
            first.setdefault((row[workload.size], row.get("seed", 0)), row[measure])
    sizes = sorted({size for size, _ in first})
    return {size: statistics.fmean([v for (s, _), v in first.items() if s == size]) for size in sizes}
