"""Stores of the tables of a campaign or grid: a folder on this machine, or on any file system that Spark supports.

Object stores have no atomic rename, and HDFS shows files that are still being written. So a commit does not rely on
atomic rename or atomic writes. Instead, a table is valid only if a complete commit file names it.

    commit        writes the tables of a round, then its commit file. The name of a table's file contains the start of
                  the file's digest, so an existing table is not overwritten with other content when the round is
                  written again. The commit file has the path, length and digest of each table, and its own digest.
    commits       returns the rounds that have a complete commit file. Incomplete commit files, and tables that no
                  commit file names, are ignored. They are left by a driver that died.
    read_table    returns the rows of a committed table, after a check of its digest.

The driver may die at any call. If the commit file is complete, every table that the commit file names is complete. A
round without a complete commit file is run again.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from fuzz.platform.files import UNFINISHED, write_whole
from fuzz.platform.json import NotJSON, from_json, to_json
from fuzz.platform.spark import file_system, reported_access_errors
from model.machine import BadValue

_COMMITS = "commits"


class Store(Protocol):
    """A folder of files, named by paths relative to it. `read`, `write` and `sizes` raise BadValue if access fails."""

    def read(self, name: str) -> bytes | None:
        """Returns the content of a file, or None if there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Writes a file, or replaces it. If the writer dies, the file may be missing or incomplete."""

    def sizes(self, folder: str) -> dict[str, int]:
        """Returns the visible files of a folder by name, with their lengths in bytes; none if the folder is missing."""

    def path(self, name: str) -> str:
        """Returns the path or URI of a file; with an empty name, of the store's folder."""


class LocalStore:
    """A folder on this machine. `write` is atomic here (`fuzz/platform/files.py`)."""

    def __init__(self, root: Path) -> None:
        """The first `write` creates the folder."""
        self.root = root

    def read(self, name: str) -> bytes | None:
        """As Store.read."""
        path = self.root / name
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as problem:
            raise BadValue(f"{path} cannot be read: {problem.strerror}; choose another --out") from None

    def write(self, name: str, data: bytes) -> None:
        """As Store.write."""
        path = self.root / name
        try:
            write_whole(path, data)
        except OSError as problem:
            raise BadValue(f"{path} cannot be written: {problem.strerror}; choose another --out") from None

    def sizes(self, folder: str) -> dict[str, int]:
        """As Store.sizes."""
        path = self.root / folder
        if not path.is_dir():
            return {}
        try:
            return {p.name: p.stat().st_size for p in sorted(path.iterdir()) if _is_visible(p.name)}
        except OSError as problem:
            raise BadValue(f"{path} cannot be read: {problem.strerror}; choose another --out") from None

    def path(self, name: str) -> str:
        """As Store.path."""
        return str(self.root / name)


class MemoryStore:
    """A store in memory, for tests."""

    def __init__(self) -> None:
        """Creates an empty store."""
        self.files: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        """As Store.read."""
        return self.files.get(name)

    def write(self, name: str, data: bytes) -> None:
        """As Store.write."""
        self.files[name] = data

    def sizes(self, folder: str) -> dict[str, int]:
        """As Store.sizes."""
        inside = {
            n.removeprefix(folder + "/"): len(data) for n, data in self.files.items() if n.startswith(folder + "/")
        }
        return dict(sorted(inside.items()))

    def path(self, name: str) -> str:
        """As Store.path."""
        return f"memory:{name}"


class HadoopStore:
    """A folder on a file system that Spark supports, accessed through the driver's JVM.

    Files are created, overwritten, read and listed. No file is renamed or deleted.
    """

    def __init__(self, spark: Any, uri: str) -> None:
        """Raises BadValue when Spark has no file system for the URI."""
        self.uri = uri.rstrip("/")
        self.jvm = spark.sparkContext._jvm
        self.files, _ = file_system(spark, self.uri)

    def _path(self, name: str) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path(f"{self.uri}/{name}" if name else self.uri)

    def read(self, name: str) -> bytes | None:
        """As Store.read."""
        path = self._path(name)
        with reported_access_errors(self.path(name)):
            if not self.files.exists(path):
                return None
            stream = self.files.open(path)
            try:
                return bytes(self.jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def write(self, name: str, data: bytes) -> None:
        """As Store.write."""
        with reported_access_errors(self.path(name)):
            stream = self.files.create(self._path(name), True)  # True: overwrite
            try:
                stream.write(bytearray(data))
            finally:
                stream.close()

    def sizes(self, folder: str) -> dict[str, int]:
        """As Store.sizes."""
        path = self._path(folder)
        with reported_access_errors(self.path(folder)):
            if not self.files.exists(path):
                return {}
            found = {status.getPath().getName(): int(status.getLen()) for status in self.files.listStatus(path)}
        return {name: found[name] for name in sorted(found) if _is_visible(name)}

    def path(self, name: str) -> str:
        """As Store.path."""
        return f"{self.uri}/{name}"


def _is_visible(name: str) -> bool:
    """Returns whether a file is visible: not unfinished, and not hidden as Hadoop's `.crc` checksums are."""
    return not name.endswith(UNFINISHED) and not name.startswith(".")


def is_local(uri: str) -> bool:
    """Returns whether a URI names a path on this machine: it has no scheme, or the scheme `file`."""
    return urlsplit(uri).scheme in ("", "file")


def local_path(uri: str) -> Path:
    """Returns the path of a local URI."""
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else Path(uri)


def check_writable(folder: Path) -> None:
    """Raises BadValue when a folder cannot be written. Writes nothing."""
    nearest = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    if not nearest.is_dir():
        raise BadValue(f"{folder} cannot be written: {nearest} is not a folder; choose another --out")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise BadValue(f"{folder} cannot be written: {nearest} is read-only; choose another --out")


def check_writable_file(option: str, path: Path) -> None:
    """Raises BadValue when the file of an option cannot be written: there is no folder for it, or it is a folder."""
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir():
        problem = "it is a folder" if path.is_dir() else f"there is no folder {folder}"
        raise BadValue(f"{option} {path} cannot be written: {problem}")


# ---- commits ------------------------------------------------------------------------------------------


class File(NamedTuple):
    """The file of a committed table: its path in the store, its length, and the SHA-256 of its content in hex."""

    path: str
    bytes: int
    sha256: str


class Commit(NamedTuple):
    """A committed round: its number, and the file of each table."""

    number: int
    tables: Mapping[str, File]


def commit(store: Store, number: int, tables: Mapping[str, pa.Table]) -> Commit:
    """Writes a round's tables, then its commit file. Returns the commit. Cost: linear in the size of the tables.

    The names of the files contain the number of the attempt, which is the number of commit files that earlier attempts
    at this round have left. If several commit files of a round are complete, that of the earliest attempt counts.
    """
    earlier = [name for name in store.sizes(_COMMITS) if name.startswith(f"{_round_name(number)}-")]
    attempt = f"{_round_name(number)}-{len(earlier):04d}"
    files = {}
    for name, table in tables.items():
        data = as_parquet(table)
        digest = hashlib.sha256(data).hexdigest()
        file = File(f"{name}/{attempt}-{digest[:12]}.parquet", len(data), digest)
        store.write(file.path, data)
        files[name] = file
    body = {"round": number, "tables": {name: file._asdict() for name, file in files.items()}}
    store.write(f"{_COMMITS}/{attempt}.json", to_json({**body, "sha256": _digest(body)}))
    return Commit(number, files)


def commits(store: Store) -> list[Commit]:
    """Returns the committed rounds in order.

    Raises BadValue when a round below the last has no complete commit file, or when a table that a commit names is
    missing or has another length: otherwise findings would be lost silently.
    """
    bodies: dict[int, dict[str, Any]] = {}  # by number of the round
    for name in store.sizes(_COMMITS):
        body = _commit_body(store.read(f"{_COMMITS}/{name}"))
        if body is not None:
            bodies.setdefault(body["round"], body)
    sizes: dict[str, dict[str, int]] = {}  # by table: the length of each file
    committed = []
    for number in range(1, max(bodies, default=0) + 1):
        if number not in bodies:
            raise BadValue(
                f"{store.path(_COMMITS)} has no complete file of round {number}: restore it, or use another --out"
            )
        files = {table: File(**file) for table, file in bodies[number]["tables"].items()}
        for table, file in files.items():
            name = file.path.removeprefix(f"{table}/")
            if sizes.setdefault(table, store.sizes(table)).get(name) != file.bytes:
                raise BadValue(f"{store.path(file.path)} is missing or damaged: restore it, or use another --out")
        committed.append(Commit(number, files))
    return committed


def _commit_body(data: bytes | None) -> dict[str, Any] | None:
    """Returns the content of a commit file without its digest; None if the file is incomplete or the digest wrong."""
    try:
        body = from_json(data or b"")
        digest = body.pop("sha256")
    except (NotJSON, AttributeError, KeyError):
        return None
    return body if digest == _digest(body) else None


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(to_json(body)).hexdigest()


def _round_name(number: int) -> str:
    return f"round-{number:05d}"


# ---- tables -------------------------------------------------------------------------------------------


def as_parquet(table: pa.Table) -> bytes:
    """Returns a table as the content of a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def table_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Returns rows as a table. Raises an Arrow error for a row that does not fit the schema."""
    return pa.Table.from_pylist(list(rows), schema=schema)


def read_table(store: Store, file: File, schema: pa.Schema) -> list[dict[str, Any]]:
    """Returns the rows of a committed table. Raises BadValue if its file is missing, damaged or of another schema."""
    data = store.read(file.path)
    if data is None or hashlib.sha256(data).hexdigest() != file.sha256:
        raise BadValue(f"{store.path(file.path)} is missing or damaged: restore it, or use another --out")
    table = pq.read_table(io.BytesIO(data))
    if not table.schema.equals(schema, check_metadata=False):
        raise BadValue(f"{store.path(file.path)} has other columns than this version writes; use another --out")
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
