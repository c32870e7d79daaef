"""The grid of measurements of `brokerproof compare`, on this machine or on Spark.

A cell is a workload, policy, size, seed and parameters; they determine its rows, the results. With a store, rows are
committed in rounds (`fuzz/campaign/store.py`), and cells with committed rows are not run again:

    grid.json     version of the code and workload; a folder of another one is rejected
    commits/      one file for each round
    rows/         one table for each round: a line for each row, with its cell
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from fuzz.campaign.store import Store, commit, commits, read_table, table_of
from fuzz.platform.json import from_json, to_json
from fuzz.platform.spark import slots, tasks_run
from fuzz.platform.version import check_version, code_version
from fuzz.workloads import Cell, find_workload
from model.machine import BadValue

_GRID, _ROWS = "grid.json", "rows"
#: Cells of a round: on this machine, and on Spark for each slot.
_ROUND, _PER_SLOT = 16, 8
_COLUMNS = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}

Rows = list[dict[str, Any]]
Runner = Callable[[Sequence[Cell]], Iterable[Rows]]


def cell_text(cell: Cell) -> str:
    """A cell as JSON."""
    return to_json({**cell._asdict(), "parameters": cell.parameters._asdict()}).decode()


def cell_from(text: str) -> Cell:
    """The cell that a JSON text encodes."""
    data = from_json(text)
    parameters = find_workload(data["workload"]).parameters._replace(**data["parameters"])
    return Cell(**{**data, "parameters": parameters})


def run_cell(cell: Cell) -> Rows:
    """The rows of a cell."""
    return [msgspec.to_builtins(row) for row in find_workload(cell.workload).measure(cell)]


def run_here(cells: Sequence[Cell]) -> Iterator[Rows]:
    """Runs cells on this machine."""
    return map(run_cell, cells)


def on_spark(spark: Any) -> Runner:
    """Runs cells as tasks of a Spark job, a cell each, because cells differ in length."""
    version = code_version()

    def work(texts: Iterable[str]) -> Iterator[str]:
        check_version(version)
        for text in texts:
            yield to_json(run_cell(cell_from(text))).decode()

    def run(cells: Sequence[Cell]) -> list[Rows]:
        texts = [cell_text(cell) for cell in cells]
        with tasks_run():
            lines = spark.sparkContext.parallelize(texts, len(texts)).mapPartitions(work).collect()
        return [from_json(line) for line in lines]

    return run


def round_of(spark: Any) -> int:
    """The number of cells of a round."""
    return _ROUND if spark is None else _PER_SLOT * slots(spark)


def run_grid(
    name: str,
    row: type[msgspec.Struct],
    cells: Sequence[Cell],
    runner: Runner,
    size: int,
    store: Store | None,
    update: Callable[[int], None],
) -> Rows:
    """Runs the cells that the store lacks, in rounds of a size. Returns the rows of all cells, in order."""
    done: dict[str, Rows] = {}
    rounds = 0
    if store is not None:
        schema = schema_of(row)
        _claim(store, name)
        for each in commits(store):
            rounds = each.number
            for line in read_table(store, each.tables[_ROWS], schema):
                done.setdefault(line.pop("cell"), []).append(_row(row, line))
    missing = [cell for cell in cells if cell_text(cell) not in done]
    update(len(cells) - len(missing))
    for part in [missing[i : i + size] for i in range(0, len(missing), size)]:
        found: Rows = []
        for cell, rows in zip(part, runner(part), strict=True):
            done[cell_text(cell)] = rows
            found += [{"cell": cell_text(cell), **_line(each)} for each in rows]
            update(len(done))
        if store is not None:
            rounds += 1
            commit(store, rounds, {_ROWS: table_of(found, schema)})
    return [each for cell in cells for each in done[cell_text(cell)]]


def _claim(store: Store, name: str) -> None:
    """Writes the folder's version and workload. Raises BadValue if it has others.

    If the writer died, the file is incomplete, and no round is committed: it is written again.
    """
    own, data = to_json({"version": code_version(), "workload": name}), store.read(_GRID)
    if data is None or (own.startswith(data) and not commits(store)):
        store.write(_GRID, own)
    elif data != own:
        raise BadValue(f"{store.path(_GRID)} is of another workload or version of the code; use another --out")


def schema_of(row: type[msgspec.Struct]) -> pa.Schema:
    """The columns of rows; lists are JSON."""
    fields = [("cell", pa.string())]
    for name, annotation in typing.get_type_hints(row).items():
        fields.append((name, _COLUMNS.get(_plain(annotation), pa.string())))
    return pa.schema(fields)


def _plain(annotation: Any) -> Any:
    """The annotation without None."""
    of = [each for each in typing.get_args(annotation) if each is not type(None)]
    return of[0] if type(None) in typing.get_args(annotation) else annotation


def _line(row: dict[str, Any]) -> dict[str, Any]:
    return {key: to_json(value).decode() if isinstance(value, list) else value for key, value in row.items()}


def _row(row: type[msgspec.Struct], line: dict[str, Any]) -> dict[str, Any]:
    lists = [f.name for f in msgspec.structs.fields(row) if typing.get_origin(f.type) is list]
    return {key: from_json(value) if key in lists else value for key, value in line.items()}
