"""Replay of trace files as a Spark job, over any file system that Spark supports.

Spark reads a whole file and passes its content to Python. Several tasks read a large file, and each task replays one
part of the file (`fuzz/trace/parallel.py`). The verdicts do not depend on the number of tasks. A partition is a
partition of Spark, not a part of a file.
"""

from __future__ import annotations

import gc
import heapq
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from fuzz.platform.spark import file_system, reported_access_errors, reported_task_errors, slots
from fuzz.platform.version import check_version, code_version
from fuzz.trace.file import BadTrace, Fetched, is_trace_file
from fuzz.trace.parallel import ReplayedTrace, Replayers, replay_file
from model.machine import BadValue

#: Settings of the session: small files are distributed to many tasks.
SETTINGS = {"spark.files.openCostInBytes": "65536"}
#: The maximum number of parts of a file. The task of a part reads the whole file.
_MOST_PARTS = 64
_TASKS_PER_SLOT = 2
#: The maximum size of a file in bytes: Spark passes the content as one array.
_MOST_BYTES = 2**31 - 1024
#: The maximum number of disagreeing traces that are reported, and that each partition sends to the driver. If there are
#: more, traces whose mismatches are known deviations are left out first.
_MOST_DISAGREEING = 10_000

#: A worker collects garbage after this many new objects: rarely, because traces have hardly any reference cycles.
_GARBAGE = 100_000

#: (file, replayed trace) -> the trace's row of the table, and its report. If the trace disagrees, the driver receives
#: the report.
Report = Callable[[str, ReplayedTrace], tuple[tuple[Any, ...], bytes]]


class Replays(NamedTuple):
    """The totals of a job, and the reports of at most `_MOST_DISAGREEING` disagreeing traces, in the files' order."""

    traces: int
    operations: int
    agreed: int
    disagreeing: list[bytes]


class _Result(NamedTuple):
    """The result of a task for one trace."""

    position: tuple[int, int]  # index of the file, and line
    operations: int
    rank: int | None  # 1 if known deviations explain every mismatch, 0 if not; None if there is no mismatch
    problem: str  # why the trace cannot be replayed; empty if it was replayed
    row: tuple[Any, ...]
    report: bytes


class _Sum(NamedTuple):
    """The totals of one partition."""

    traces: int
    operations: int
    agreed: int
    problems: list[tuple[tuple[int, int], str]]  # position, problem
    disagreeing: list[tuple[int, tuple[int, int], bytes]]  # rank, position, report


def replay_on_spark(
    spark: Any, uris: Sequence[str], profile: str | None, report: Report, schema: pa.Schema, out: str | None
) -> Replays:
    """Replays every trace of the files and folders `uris` under `profile`, by default that of the recorded version.

    `report` returns a trace's row, with the columns of `schema`, and its report. If the folder `out` is given, the rows
    are written to it as Parquet. Raises BadValue, and writes nothing, if `out` exists, if a file does not exist or is
    too large, or if a trace cannot be read or replayed. The message is about the first such trace.
    """
    from pyspark import StorageLevel
    from pyspark.sql.pandas.types import from_arrow_schema

    found = [file for uri in uris for file in _files(spark, uri)]
    if out is not None and _exists(spark, out):
        raise BadValue(f"{out} exists; choose another --out")
    tasks = _TASKS_PER_SLOT * slots(spark)
    total = sum(size for _, size in found) or 1
    parts = [min(_MOST_PARTS, max(1, math.ceil(tasks * size / total))) for _, size in found]
    context = spark.sparkContext
    #: path -> for each occurrence in `found`: the index there, and the number of parts
    occurrences: dict[str, list[tuple[int, int]]] = {}
    for number, ((path, _), count) in enumerate(zip(found, parts, strict=True)):
        occurrences.setdefault(path, []).append((number, count))
    shared, version = context.broadcast(occurrences), code_version()

    def results_of(part: int) -> Any:
        """Returns the results for this part of every file that has more than `part` parts."""
        names = [path for path, [(_, count), *_] in occurrences.items() if count > part]

        def work(contents: Iterable[tuple[str, bytes]]) -> Iterator[_Result]:
            check_version(version)
            gc.freeze()  # the collector need not visit the modules
            gc.set_threshold(_GARBAGE)
            replayers: Replayers = {}
            for path, data in contents:
                file = Fetched(path.removeprefix("file:"), data)
                for number, count in shared.value[path]:
                    for each in replay_file(number, file, profile, part, count, replayers):
                        yield _result_of(file, each, report)

        return context.binaryFiles(",".join(map(_as_pattern, names)), tasks).mapPartitions(work)

    results = context.union([results_of(part) for part in range(max(parts))])
    if out is not None:
        results.persist(StorageLevel.MEMORY_AND_DISK)
    with reported_task_errors():
        sums = results.mapPartitions(_summed).collect()
    problems = sorted(problem for each in sums for problem in each.problems)
    if problems:
        raise BadValue(problems[0][1])
    if out is not None:
        with reported_task_errors():
            rows = results.map(lambda result: result.row)
            spark.createDataFrame(rows, from_arrow_schema(schema), verifySchema=False).write.parquet(out)
        results.unpersist()
    reported = heapq.nsmallest(_MOST_DISAGREEING, (each for partition in sums for each in partition.disagreeing))
    return Replays(
        traces=sum(each.traces for each in sums),
        operations=sum(each.operations for each in sums),
        agreed=sum(each.agreed for each in sums),
        disagreeing=[text for _, _, text in sorted(reported, key=lambda each: each[1])],  # by position
    )


def _summed(results: Iterable[_Result]) -> Iterator[_Sum]:
    """Yields the totals of one partition."""
    traces = operations = agreed = 0
    problems, disagreeing = list[tuple[tuple[int, int], str]](), list[tuple[int, tuple[int, int], bytes]]()
    for result in results:
        if result.problem:
            problems.append((result.position, result.problem))
            continue
        traces += 1
        operations += result.operations
        agreed += result.rank is None
        if result.rank is not None:
            disagreeing.append((result.rank, result.position, result.report))
            if len(disagreeing) > 2 * _MOST_DISAGREEING:  # bounds the memory
                disagreeing = heapq.nsmallest(_MOST_DISAGREEING, disagreeing)
    yield _Sum(traces, operations, agreed, problems, heapq.nsmallest(_MOST_DISAGREEING, disagreeing))


def _result_of(file: Fetched, each: ReplayedTrace, report: Report) -> _Result:
    """Returns the result of a task for a replayed trace."""
    if each.problem:
        return _Result(each.position, 0, None, each.problem, (), b"")
    row, text = report(str(file), each)
    rank = int(all(m.known_deviation is not None for m in each.mismatches)) if each.mismatches else None
    return _Result(each.position, each.operations, rank, "", row, text)


def _as_pattern(path: str) -> str:
    """Returns a pattern that matches only this path, for a list of patterns that are separated by commas."""
    return re.sub(r"[*?\[\]{}\\]", r"\\\g<0>", path).replace(",", r"{\,}")


def _exists(spark: Any, uri: str) -> bool:
    """Returns whether a URI names a file or folder. Raises BadValue if access fails."""
    files, path = file_system(spark, uri)
    with reported_access_errors(uri):
        return bool(files.exists(path))


def _files(spark: Any, uri: str) -> list[tuple[str, int]]:
    """Returns the file of a URI, or the trace files below a folder, each with its size in bytes, sorted by path.

    Raises BadTrace if there is none, or if one is too large.
    """
    if not _exists(spark, uri):
        raise BadTrace(uri, 0, "cannot be read: there is no such file or folder")
    files, path = file_system(spark, uri)
    found = []
    with reported_access_errors(uri):
        is_file, statuses = files.isFile(path), files.listFiles(path, True)
        while statuses.hasNext():
            status = statuses.next()
            if is_file or is_trace_file(status.getPath().getName()):
                found.append((status.getPath().toString(), status.getLen()))
    if not found:
        raise BadTrace(uri, 0, "no file below this folder ends in .jsonl, .jsonl.gz, .csv or .csv.gz")
    for name, size in found:
        if size > _MOST_BYTES:
            raise BadTrace(name, 0, f"has {size:,} bytes, Spark reads {_MOST_BYTES:,} at most; split it between traces")
    return sorted(found)
