"""Predictions of the study beside measured figures: prints the page `fuzz/workloads/PREDICTIONS.md`.

    python -m fuzz.workloads.caches.predictions                 prints the page without measured figures
    python -m fuzz.workloads.caches.predictions FOLDER          runs the predicted cells first; FOLDER keeps their rows

The predictions are in `predictions.toml`. Each was committed before the first run of its cells.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from fuzz.platform.json import from_json, to_json
from fuzz.platform.version import code_version
from fuzz.workloads import Cell, find_workload

INTRODUCTION = """\
`python -m fuzz.workloads.caches.predictions FOLDER` writes this page from `caches/predictions.toml`. A row is a
prediction for one cache size, and predicts a range of a figure. The figure is a measure of one policy, or compares the
measures of two policies, as difference (`-`) or quotient (`/`; a divisor below 1 counts as 1). The README beside this
page explains policies and terms. A prediction is made before the first run with its policies and cache size, and not
changed later. Measured figures change when the simulation is corrected. Before the first prediction, only `tailing` had
been run once, at another scale, and one published figure was known: apache/pulsar#26627 measured about 45 % fewer
cached entries without the access extension."""


class Prediction(msgspec.Struct, forbid_unknown_fields=True):
    """The measure of a policy, alone or compared with another policy, is predicted to lie between two figures."""

    workload: str
    claim: str
    left: str  # the policy
    measure: str  # a field of the rows
    least: float
    most: float
    right: str | None = None  # the other policy
    ratio: bool = False  # whether the two are divided; otherwise they are subtracted
    size: int | None = None  # index of the default cache size; None: every default size
    set: dict[str, float] = {}  # parameters
    right_has_defaults: bool = False  # whether `right` has the default parameters; otherwise those of `set`

    def cells(self) -> Iterator[tuple[Cell, Cell | None]]:
        """Yields the cells of `left` and `right` at each predicted size, with seed 0."""
        workload = find_workload(self.workload)
        parameters, others = [
            workload.with_parameters({name: f"{value:.12g}" for name, value in settings.items()})
            for settings in (self.set, {} if self.right_has_defaults else self.set)
        ]
        for index, size in enumerate(workload.sizes(parameters)):
            if self.size in (None, index):
                cell = Cell(self.workload, self.left, size, 0, parameters)
                yield cell, None if self.right is None else cell._replace(policy=self.right, parameters=others)

    def figure(self, left: float, right: float | None) -> float:
        """Returns the predicted quantity: `left`, `left` - `right`, or, with `ratio`, `left` / max(`right`, 1)."""
        if right is None:
            return left
        return left / max(right, 1) if self.ratio else left - right

    def holds(self, figure: float) -> bool:
        """Returns whether a figure is in the predicted range."""
        return self.least <= round(figure, 6) <= self.most


def predictions() -> list[Prediction]:
    """Returns all predictions, in the order of the file."""
    text = (files("fuzz") / "workloads" / "caches" / "predictions.toml").read_text()
    return msgspec.convert(tomllib.loads(text)["prediction"], list[Prediction])


def command(cell: Cell) -> str:
    """Returns the command that measures a cell, without its size."""
    default = find_workload(cell.workload).parameters._asdict()
    settings = [f"--set {k}={v:.12g}" for k, v in cell.parameters._asdict().items() if v != default[k]]
    return " ".join(["brokerproof compare", cell.workload, f"--policy {cell.policy}", *settings])


def page(known: dict[str, Any]) -> Iterator[str]:
    """Yields the lines of the page. `known` has the measured rows by `key`."""
    yield "# Predictions of the policy study"
    yield ""
    yield INTRODUCTION
    for name in dict.fromkeys(each.workload for each in predictions()):
        parameters = find_workload(name).parameters._asdict()
        yield ""
        yield f"## {name}"
        yield ""
        yield "Parameters: " + ", ".join(f"`{k}={v:.12g}`" for k, v in parameters.items()) + "."
        yield ""
        yield "| claim | figure | cache bytes | predicted | measured | held | command |"
        yield "|---|---|---|---|---|---|---|"
        for each in predictions():
            if each.workload == name:
                yield from rows(each, known)


def rows(each: Prediction, known: dict[str, Any]) -> Iterator[str]:
    """Yields the lines of a prediction in the table."""
    against = "" if each.right is None else f" {'/' if each.ratio else '-'} {each.right}"
    if each.right_has_defaults:
        against += " with default parameters"
    for left, right in each.cells():
        measured = held = ""
        values = [known.get(key(c), {}).get(each.measure) for c in (left, right) if c is not None]
        if None not in values:
            figure = each.figure(*values, *[None] * (2 - len(values)))
            measured, held = f"{figure:,.4g}", "yes" if each.holds(figure) else "**no**"
        both = f"{command(left)} --cache-bytes {left.size}"
        if right is not None and right.parameters == left.parameters:
            both = both.replace(" --cache-bytes", f" --policy {each.right} --cache-bytes")
        elif right is not None:
            both += f"`, `{command(right)} --cache-bytes {right.size}"
        yield (
            f"| {each.claim} | {each.measure} of {each.left}{against} | {left.size:,} "
            f"| {each.least:,g} to {each.most:,g} | {measured} | {held} | `{both}` |"
        )


def key(cell: Cell) -> str:
    """Returns the key of a cell among the measured rows."""
    return to_json([*cell[:4], cell.parameters._asdict()]).decode()


def run(folder: Path) -> dict[str, Any]:
    """Returns the rows of all predicted cells by `key`. Measures those that the folder lacks for this code version."""
    path = folder / f"predicted-{code_version()}.json"
    known: dict[str, Any] = from_json(path.read_bytes()) if path.exists() else {}
    wanted = {key(c): c for each in predictions() for pair in each.cells() for c in pair if c is not None}
    for name, cell in wanted.items():
        if name not in known:
            known[name] = msgspec.to_builtins(next(iter(find_workload(cell.workload).measure(cell))))
            path.write_bytes(to_json(known))
    return known


if __name__ == "__main__":
    sys.stdout.write("\n".join(page(run(Path(sys.argv[1])) if sys.argv[1:] else {})) + "\n")
