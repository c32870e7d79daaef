"""Traces: one JSON Lines format for findings, recordings, corpora and histories of threads.

    {"trace": id, "component": name, "config": {...}, ...}        opens a trace
    {"op": name, "args": {...}, "result": ..., "observe": ...}    an operation
    {"op": ..., "thread": name, "invoked": 3, "returned": 8}      an operation of a concurrent history
    {"gap": 2}                                                    at most two calls of actions were not recorded here

`result` and `observe` are optional; if one is absent, it is not compared. The opening line may have further keys, an
operation may not. If the opening line has the key `operations`, its value is the number of operation and gap lines. If
the opening line has the key `brokerproof`, operations are actions of the model, and results are their plain outcomes;
otherwise a mapping of the component says what the operations mean (`fuzz/trace/recording.py`).
`returned` is null if the operation did not return. Overlapping operations are concurrent, also in one thread. An
operation that did not return overlaps all operations that were invoked later.

A file is plain or gzip'd UTF-8 text with one object on each line. A trace is data: reading it executes nothing.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fuzz.platform.files import write_whole
from fuzz.platform.json import NotJSON, from_json, to_json
from model.machine import BadValue

#: Compression formats that are rejected: the first bytes of such a file, and the name of the format.
_PACKED = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "zip",
    b"\x04\x22\x4d\x18": "lz4",
}

#: The key of the opening line that says that the operations are actions of the model. Engines write the version of the
#: code as its value.
ENGINE_KEY = "brokerproof"


class Absent:
    """The class of `ABSENT`, which stands for a missing field. A field that is null is not missing, and is None."""

    def __reduce__(self) -> str:
        return "ABSENT"  # so a copy, or an instance from another process, is the one instance of this process

    def __repr__(self) -> str:
        return "absent"


ABSENT = Absent()


class BadTrace(BadValue):
    """A file that cannot be read, or a trace that cannot be replayed. The message has file, line and problem."""

    def __init__(self, path: object, line: int, what: str) -> None:
        super().__init__(f"{path}:{line}: {what}" if line else f"{path}: {what}")
        self.line = line


class Fetched(NamedTuple):
    """The content of a trace file that is in memory, for example because Spark has read the file."""

    uri: str
    data: bytes

    @property
    def name(self) -> str:
        """The last part of the URI."""
        return self.uri.rpartition("/")[2]

    def __str__(self) -> str:
        return self.uri


def is_trace_file(name: str) -> bool:
    """Returns whether a file of that name is read when a folder is replayed."""
    return name.removesuffix(".gz").endswith((".jsonl", ".csv")) and not name.startswith((".", "_"))


class Span(NamedTuple):
    """The thread of an operation, and the times of its invocation and return, on one clock for each history."""

    thread: str | int
    invoked: int
    returned: int | None


#: The keys of an operation in a file.
_KEYS = ("op", "args", "result", "observe", *Span._fields)


class Operation(NamedTuple):
    """An operation or a gap of a trace."""

    op: str
    args: dict[str, Any]
    result: Any  # ABSENT if it was not recorded
    observe: Any  # ABSENT if it was not recorded
    line: int  # the number of the line in the file
    span: Span | None = None  # in a concurrent history; otherwise None
    gap: int | None = None  # in a gap: the maximum number of calls that were not recorded; None in an operation


@dataclass
class Trace:
    """A trace: the config, and the operations with their results and observations, if these were recorded."""

    id: str
    component: str
    config: dict[str, Any]
    operations: list[Operation]
    header: dict[str, Any] = field(default_factory=dict)  # the other keys of the opening line
    path: str = ""  # the file from which the trace was read
    line: int = 0  # the number of the opening line in this file, from 1

    @property
    def has_actions(self) -> bool:
        """Whether the operations are actions of the model: an engine wrote the trace, or a user added `ENGINE_KEY`."""
        return ENGINE_KEY in self.header

    def lines(self) -> Iterator[bytes]:
        """Yields the trace as lines of a file, each with its newline."""
        opening = {"trace": self.id, "component": self.component, "config": self.config}
        yield to_json({**opening, **self.header, "operations": len(self.operations)}) + b"\n"
        for each in self.operations:
            line: dict[str, Any] = {"op": each.op, "args": each.args} if each.gap is None else {"gap": each.gap}
            if each.result is not ABSENT:
                line["result"] = each.result
            if each.observe is not ABSENT:
                line["observe"] = each.observe
            line.update({} if each.span is None else each.span._asdict())
            yield to_json(line) + b"\n"


def content_name(data: bytes) -> str:
    """Returns a file name for content: 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(data).hexdigest()[:16]


def write_traces(path: Path, traces: Iterable[Trace]) -> None:
    """Writes a file of traces, gzip'd if its name ends in `.gz`. The write is atomic. Raises BadValue if it fails."""
    data = b"".join(line for trace in traces for line in trace.lines())
    try:
        write_whole(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    except OSError as problem:
        raise BadValue(f"{path} cannot be written: {problem.strerror}") from None


def read_traces(path: Path | Fetched, part: int = 0, parts: int = 1) -> Iterator[Trace]:
    """Yields the traces of a part of a file: every trace i, counted from 0, with i % parts == part.

    Raises BadTrace at the first line that does not fit the format, if a trace has another number of operations and gaps
    than its opening line says, or if the file has no trace. Operations of other parts are not parsed. Cost: O(size of
    the file); one trace is in memory at a time.
    """
    trace: Trace | None = None
    opened = 0  # number of opening lines so far; the index of the current trace is one less
    for number, line in enumerate(_lines(path), 1):
        is_ours = (opened - 1) % parts == part or not opened  # before the first opening line, every line is parsed
        if not line.strip() or (not is_ours and b'"trace"' not in line):
            continue
        data = _object(path, number, line)
        if "trace" in data:
            if trace is not None and is_ours:
                yield _whole(path, trace)
            opened += 1
            trace = _opening(path, number, data)
        elif not is_ours:
            continue
        elif trace is None:
            raise BadTrace(
                path, number, 'the first line must open a trace: {"trace": id, "component": name, "config": {...}}'
            )
        else:
            trace.operations.append(_operation(path, number, data))
    if trace is None:
        raise BadTrace(path, 0, "there is no trace in this file; a trace begins with a line that has the key trace")
    if (opened - 1) % parts == part:
        yield _whole(path, trace)


def objects(path: Path | Fetched, *, among_text: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the number and the object of each line that is not blank. Raises BadTrace at a line that is no object.

    With `among_text`, lines that do not begin with `{` are skipped.
    """
    for number, line in enumerate(_lines(path), 1):
        if line.lstrip().startswith(b"{") if among_text else line.strip():
            yield number, _object(path, number, line)


def first_object(path: Path | Fetched) -> tuple[dict[str, Any], bool] | None:
    """Returns the first object of a file, and whether text lines come before it.

    Returns None if no line begins with `{`, or if the first such line is not JSON. Raises BadTrace if the file cannot
    be read.
    """
    is_after_text = False
    for line in filter(bytes.strip, _lines(path)):
        if line.lstrip().startswith(b"{"):
            try:
                return from_json(line), is_after_text
            except NotJSON:
                return None
        is_after_text = True
    return None


def read_table(path: Path | Fetched) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields for each row of a CSV file its line number and its fields by column.

    Raises BadTrace if the file cannot be read, or at a row that has more or fewer fields than the header.
    """
    try:
        rows = csv.DictReader(line.decode() for line in _lines(path))
        for row in rows:
            if None in row or None in row.values():
                raise BadTrace(path, rows.line_num, f"a row must have {len(rows.fieldnames or ())} fields")
            yield rows.line_num, row
    except (UnicodeDecodeError, csv.Error) as problem:
        raise BadTrace(path, 0, f"not CSV: {problem}") from None


def _lines(path: Path | Fetched) -> Iterator[bytes]:
    """Yields the lines of a file, decompressed if it is gzip'd. Raises BadTrace if the file cannot be read."""
    try:
        with path.open("rb") if isinstance(path, Path) else io.BytesIO(path.data) as raw:
            first = raw.read(8)
            raw.seek(0)
            packed = next((name for begin, name in _PACKED.items() if first.startswith(begin)), None)
            if packed is not None:
                raise BadTrace(path, 0, f"is packed with {packed}; unpack it, or pack it with gzip")
            yield from gzip.GzipFile(fileobj=raw) if first.startswith(b"\x1f\x8b") else raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise BadTrace(path, 0, f"the gzip data is damaged or cut off ({problem}); fetch the file again") from None
    except OSError as problem:
        raise BadTrace(path, 0, f"cannot be read: {problem.strerror or problem}") from None


def _object(path: Path | Fetched, number: int, line: bytes) -> dict[str, Any]:
    """Returns the JSON object of a line. Raises BadTrace if the line is no JSON object."""
    try:
        data = from_json(line)
    except NotJSON as problem:
        cut = "" if line.endswith(b"\n") else "; the file seems to be cut off here"
        raise BadTrace(path, number, f"not JSON ({problem}){cut}") from None
    if not isinstance(data, dict):
        raise BadTrace(path, number, "a line must be a JSON object")
    return data


def _opening(path: Path | Fetched, number: int, data: dict[str, Any]) -> Trace:
    """Returns the trace that a line opens, without operations. Raises BadTrace if the line does not fit the format."""
    wanted = {"trace": str, "component": str, "config": dict}
    for key, kind in wanted.items():
        if not isinstance(data.get(key), kind):
            raise BadTrace(
                path, number, f"the line that opens a trace needs {key}, {'an object' if kind is dict else 'a text'}"
            )
    rest = {k: v for k, v in data.items() if k not in wanted}
    return Trace(data["trace"], data["component"], data["config"], [], rest, str(path), number)


def _operation(path: Path | Fetched, number: int, data: dict[str, Any]) -> Operation:
    """Returns the operation or gap of a line. Raises BadTrace if the line does not fit the format."""
    if "gap" in data:
        gap = data["gap"]
        if type(gap) is not int or gap < 1 or len(data) > 1:
            raise BadTrace(path, number, 'a gap needs the largest number of operations in it, nothing else: {"gap": 2}')
        return Operation("gap", {}, ABSENT, ABSENT, number, gap=gap)
    if not isinstance(data.get("op"), str) or not isinstance(data.get("args"), dict):
        raise BadTrace(path, number, 'an operation needs op, a text, and args, an object: {"op": name, "args": {...}}')
    unknown = sorted(data.keys() - _KEYS)
    if unknown:
        raise BadTrace(path, number, f"an operation has no key {unknown[0]}; its keys are {', '.join(_KEYS)}")
    operation = Operation(data["op"], data["args"], data.get("result", ABSENT), data.get("observe", ABSENT), number)
    if data.keys().isdisjoint(Span._fields):
        return operation
    thread, invoked, returned = data.get("thread"), data.get("invoked"), data.get("returned")
    is_timed = type(invoked) is int and (returned is None or (type(returned) is int and invoked <= returned))
    if not isinstance(thread, str | int) or not is_timed:
        raise BadTrace(
            path, number, "an operation of a thread needs thread, and integers invoked <= returned (or null)"
        )
    return operation._replace(span=Span(thread, data["invoked"], returned))


def _whole(path: Path | Fetched, trace: Trace) -> Trace:
    """Returns the trace without the key `operations`. Raises BadTrace if its value is not the number of operations."""
    expected = trace.header.pop("operations", None)
    if expected is not None and expected != len(trace.operations):
        what = f"trace {trace.id} should have {expected} operations and has {len(trace.operations)}"
        raise BadTrace(path, trace.line, f"{what}; the file is cut off or mixed up")
    return trace
