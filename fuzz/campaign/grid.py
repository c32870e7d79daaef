"""The grid of measurements of `brokerproof compare`, on this machine or on Spark.

A cell is a workload, policy, size, seed and parameters. The results of a cell are rows, which depend on the cell
alone. With a store, rows are committed in rounds (`fuzz/campaign/store.py`), and cells with committed rows are not run
again. The store has:

    grid.json     version of the code, and the argument WORKLOAD of `compare`. If one differs, the folder is rejected
    commits/      commit files. A round is committed if it has a complete commit file
    rows/         one table for each round: the rows, each with its cell
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from fuzz.campaign.store import Store, commit, commits, read_table, table_of
from fuzz.platform.json import from_json, to_json
from fuzz.platform.spark import reported_task_errors, slots
from fuzz.platform.version import check_version, code_version
from fuzz.workloads import Cell, find_workload
from model.machine import BadValue

_GRID, _ROWS = "grid.json", "rows"
#: Cells of a round: on this machine, and on Spark for each slot.
_CELLS_HERE, _CELLS_PER_SLOT = 16, 8
#: Type of a field -> type of its column. A field of another type has a column of texts; a list is written as JSON.
_COLUMNS = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}

#: Rows as dictionaries from a field's name to its value.
Rows = list[dict[str, Any]]
#: Runs cells. Returns the rows of each, in the cells' order.
Runner = Callable[[Sequence[Cell]], Iterable[Rows]]


def cell_text(cell: Cell) -> str:
    """Returns a cell as JSON."""
    return to_json({**cell._asdict(), "parameters": cell.parameters._asdict()}).decode()


def cell_from(text: str) -> Cell:
    """Returns the cell with this JSON, as the inverse of `cell_text`. Raises BadValue if there is no such workload."""
    data = from_json(text)
    parameters = find_workload(data["workload"]).parameters._replace(**data["parameters"])
    return Cell(**{**data, "parameters": parameters})


def run_cell(cell: Cell) -> Rows:
    """Measures a cell. Returns its rows. Raises BadValue for a policy or parameters that cannot run."""
    return [msgspec.to_builtins(row) for row in find_workload(cell.workload).measure(cell)]


def run_here(cells: Sequence[Cell]) -> Iterator[Rows]:
    """Runs cells in this process. Yields the rows of each cell. A cell runs when its rows are requested."""
    return map(run_cell, cells)


def on_spark(spark: Any) -> Runner:
    """Returns a runner that runs each cell as a task of its own, because some cells run much longer than others.

    The runner raises BadValue if a task fails, or if a worker has another version of the code.
    """
    version = code_version()

    def work(texts: Iterable[str]) -> Iterator[str]:
        check_version(version)
        for text in texts:
            yield to_json(run_cell(cell_from(text))).decode()

    def run(cells: Sequence[Cell]) -> list[Rows]:
        texts = [cell_text(cell) for cell in cells]
        with reported_task_errors():
            lines = spark.sparkContext.parallelize(texts, len(texts)).mapPartitions(work).collect()
        return [from_json(line) for line in lines]

    return run


def cells_per_round(spark: Any) -> int:
    """Returns the number of cells in a round. `spark` is None for a run on this machine."""
    return _CELLS_HERE if spark is None else _CELLS_PER_SLOT * slots(spark)


def run_grid(
    name: str,
    row_type: type[msgspec.Struct],
    cells: Sequence[Cell],
    runner: Runner,
    round_length: int,
    store: Store | None,
    update: Callable[[int], None],
) -> Rows:
    """Runs the cells that the store lacks. Returns the rows of all cells, in the cells' order.

    `name` is the argument WORKLOAD of `compare`, `row_type` the type of the workload's rows, and `round_length` the
    number of cells of a round. `update` is called with the number of `cells` that have rows. Raises BadValue if the
    runner does, if the store is damaged, and if the store is of another workload or version.
    """
    done: dict[str, Rows] = {}
    rounds = 0
    if store is not None:
        schema = schema_of(row_type)
        _open_store(store, name)
        for each in commits(store):
            rounds = each.number
            for entry in read_table(store, each.tables[_ROWS], schema):
                done.setdefault(entry.pop("cell"), []).append(_row_of(row_type, entry))
    missing = [cell for cell in cells if cell_text(cell) not in done]
    update(len(cells) - len(missing))
    for start in range(0, len(missing), round_length):
        batch = missing[start : start + round_length]
        entries: Rows = []
        for cell, rows in zip(batch, runner(batch), strict=True):
            done[cell_text(cell)] = rows
            entries += [{"cell": cell_text(cell), **_entry_of(each)} for each in rows]
            update(sum(cell_text(each) in done for each in cells))
        if store is not None:
            rounds += 1
            commit(store, rounds, {_ROWS: table_of(entries, schema)})
    return [each for cell in cells for each in done[cell_text(cell)]]


def _open_store(store: Store, name: str) -> None:
    """Writes grid.json if this file is missing. Raises BadValue if the file has another version or other workloads.

    If the driver died while it wrote grid.json, the file is incomplete and no round is committed. The file is then
    written again.
    """
    own, data = to_json({"version": code_version(), "workload": name}), store.read(_GRID)
    if data is None or (own.startswith(data) and not commits(store)):
        store.write(_GRID, own)
    elif data != own:
        raise BadValue(f"{store.path(_GRID)} is of another workload or version of the code; use another --out")


def schema_of(row_type: type[msgspec.Struct]) -> pa.Schema:
    """Returns the columns of a table of rows: the cell, then a row's fields."""
    fields = [("cell", pa.string())]
    for name, annotation in typing.get_type_hints(row_type).items():
        fields.append((name, _COLUMNS.get(_plain(annotation), pa.string())))
    return pa.schema(fields)


def _plain(annotation: Any) -> Any:
    """Returns the type of an optional field without None, and any other annotation unchanged."""
    types = [each for each in typing.get_args(annotation) if each is not type(None)]
    return types[0] if type(None) in typing.get_args(annotation) else annotation


def _entry_of(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row as an entry of a table, in which lists are JSON texts."""
    return {key: to_json(value).decode() if isinstance(value, list) else value for key, value in row.items()}


def _row_of(row_type: type[msgspec.Struct], entry: dict[str, Any]) -> dict[str, Any]:
    """Returns the row of an entry of a table, as the inverse of `_entry_of`. `row_type` says which fields are lists."""
    lists = [f.name for f in msgspec.structs.fields(row_type) if typing.get_origin(f.type) is list]
    return {key: from_json(value) if key in lists else value for key, value in entry.items()}
