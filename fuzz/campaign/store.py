"""Where a campaign's tables lie: a folder on this machine, or on any file system that Spark knows.

A file appears whole or not at all: it is written under another name and renamed. That, and writing the table
that counts last, is what makes a campaign survive the death of its driver.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from model.machine import BadValue

_UNFINISHED = ".unfinished"


def _is_finished(name: str) -> bool:
    """Neither being written, nor hidden: some file systems keep checksums beside a file."""
    return not name.endswith(_UNFINISHED) and not name.startswith(".")


class Store(Protocol):
    """A folder of files, named by paths relative to it."""

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None if there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Writes a file, whole or not at all, over one of that name if there is one."""

    def names(self, folder: str) -> list[str]:
        """The names of the finished files in a folder, in order."""

    def place(self, name: str) -> str:
        """Where a file lies, for people."""


class LocalStore:
    """A folder on this machine."""

    def __init__(self, root: Path) -> None:
        """Nothing is created before something is written."""
        self.root = root

    def read(self, name: str) -> bytes | None:
        """As Store.read."""
        try:
            return (self.root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, data: bytes) -> None:
        """As Store.write. Raises BadValue when the folder cannot be written."""
        path = self.root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_name(path.name + _UNFINISHED)
            unfinished.write_bytes(data)
            unfinished.replace(path)
        except OSError as problem:
            raise BadValue(f"{path} cannot be written: {problem.strerror}; choose another --out") from None

    def names(self, folder: str) -> list[str]:
        """As Store.names."""
        path = self.root / folder
        if not path.is_dir():
            return []
        return sorted(p.name for p in path.iterdir() if _is_finished(p.name))

    def place(self, name: str) -> str:
        """As Store.place."""
        return str(self.root / name)


class MemoryStore:
    """No folder at all: what is written is kept until the process ends."""

    def __init__(self) -> None:
        """Empty."""
        self.files: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        """As Store.read."""
        return self.files.get(name)

    def write(self, name: str, data: bytes) -> None:
        """As Store.write."""
        self.files[name] = data

    def names(self, folder: str) -> list[str]:
        """As Store.names."""
        return sorted(n.removeprefix(folder + "/") for n in self.files if n.startswith(folder + "/"))

    def place(self, name: str) -> str:
        """As Store.place."""
        return f"memory:{name}"


class HadoopStore:
    """A folder on a file system that Spark knows, reached through the driver's JVM."""

    def __init__(self, spark: Any, uri: str) -> None:
        """Raises BadValue when Spark has no file system for the URI."""
        self.uri = uri.rstrip("/")
        self.jvm = spark.sparkContext._jvm
        try:
            root = self._path("")
            self.files = root.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        except Exception as problem:
            said = str(problem).splitlines()[0][:200]
            raise BadValue(f"Spark cannot reach {uri}: {said}; check the URI and Spark's packages for it") from None

    def _path(self, name: str) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path(f"{self.uri}/{name}" if name else self.uri)

    def read(self, name: str) -> bytes | None:
        """As Store.read."""
        path = self._path(name)
        if not self.files.exists(path):
            return None
        stream = self.files.open(path)
        try:
            return bytes(self.jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, data: bytes) -> None:
        """As Store.write."""
        path, unfinished = self._path(name), self._path(name + _UNFINISHED)
        stream = self.files.create(unfinished, True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()
        self.files.delete(path, False)
        if not self.files.rename(unfinished, path):
            raise BadValue(f"{self.place(name)} cannot be written: the rename failed")

    def names(self, folder: str) -> list[str]:
        """As Store.names."""
        path = self._path(folder)
        if not self.files.exists(path):
            return []
        found = [status.getPath().getName() for status in self.files.listStatus(path)]
        return sorted(name for name in found if _is_finished(name))

    def place(self, name: str) -> str:
        """As Store.place."""
        return f"{self.uri}/{name}"


def is_local(uri: str) -> bool:
    """Whether a place is a path on this machine, plain or as a file URI; anything else is left to Spark."""
    return urlsplit(uri).scheme in ("", "file")


def local_path(uri: str) -> Path:
    """The path of a place that is local. Only the driver reads and writes it."""
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else Path(uri)


def write_table(store: Store, name: str, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    """Writes rows as a Parquet file of that schema. Raises an Arrow error for a row that does not fit it."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink, compression="zstd")
    store.write(name, sink.getvalue())


def read_table(store: Store, name: str, schema: pa.Schema) -> list[dict[str, Any]]:
    """The rows of a Parquet file. Raises BadValue when it is damaged or has another schema."""
    data = store.read(name)
    if data is None:
        return []
    try:
        table = pq.read_table(io.BytesIO(data))
    except (pa.ArrowInvalid, OSError) as problem:
        raise BadValue(f"{store.place(name)} is not a readable table ({str(problem).splitlines()[0]})") from None
    if not table.schema.equals(schema, check_metadata=False):
        raise BadValue(f"{store.place(name)} has other columns than this version writes; use another --out")
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
