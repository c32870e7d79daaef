"""A Spark session for the engines, wherever Spark runs."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from fuzz.platform.java import provide_java
from model.machine import BadValue

#: Spark's own log, errors only.
_LOGGING = str(files("fuzz") / "templates" / "log4j2.properties")
#: Settings that only make sense when everything runs on this machine.
_LOCAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_LOGGING}",
}
_ALWAYS = {
    "spark.python.worker.reuse": "true",
    "spark.ui.showConsoleProgress": "false",
}
#: Executors come one after the other: as many slots for so many seconds are all that there are for now.
_SETTLED_SECONDS = 3.0
#: How long to wait for that. Executors that come later are given work too, but rounds are not cut for them.
_PATIENCE_SECONDS = 60.0


def started_by_spark_submit() -> bool:
    """Whether spark-submit runs this process: then the master and all settings come from it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextlib.contextmanager
def session(name: str, master: str | None = None, settings: dict[str, str] | None = None) -> Iterator[Any]:
    """A Spark session, stopped at the end. Raises BadValue when there is no Java or no such master.

    Without a master: spark-submit's, else all cores of this machine. Without spark-submit, a cluster's workers run the
    Python that has this one's path, unless PYSPARK_PYTHON names another. Starting a session takes several seconds.
    """
    chosen = master or (None if started_by_spark_submit() else "local[*]")
    if not started_by_spark_submit():
        provide_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    is_local = chosen is not None and chosen.startswith("local")
    if is_local:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if chosen is not None:
        builder = builder.master(chosen)
    for key, value in {**_ALWAYS, **(_LOCAL if is_local else {}), **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as problem:
        raise BadValue(
            f"Spark does not start with master {chosen}: {_said(problem)}; check --master and Java"
        ) from None
    try:
        yield spark
    finally:
        with contextlib.suppress(Exception):
            spark.stop()


def slots(spark: Any) -> int:
    """How many tasks run at a time.

    On a cluster it waits until executors have come and no more are coming, some seconds, a minute at most: Spark
    hands out a session before it has any, and says two until then.
    """
    context = spark.sparkContext
    most = int(context.defaultParallelism)
    if context.master.startswith("local") and not context.master.startswith("local-cluster"):
        return most
    begun = since = time.monotonic()
    while time.monotonic() - begun < _PATIENCE_SECONDS:
        time.sleep(0.1)
        now = int(context.defaultParallelism)
        if now != most or _executors(context) == 0:
            most, since = now, time.monotonic()
        elif time.monotonic() - since >= _SETTLED_SECONDS:
            break
    return most


@contextlib.contextmanager
def tasks_run() -> Iterator[None]:
    """Jobs run inside. Raises BadValue when their tasks fail."""
    try:
        yield
    except Exception as problem:
        said = _of_worker(problem)
        lacking = "; the workers lack this code: see the README on clusters" if "ModuleNotFound" in said else ""
        raise BadValue(f"Spark could not run the tasks: {said}{lacking}") from None


def file_system(spark: Any, uri: str) -> tuple[Any, Any]:
    """The Hadoop file system of a URI, and its Hadoop path. Raises BadValue when Spark has none for the URI."""
    with reaching(uri):
        path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(uri)
        return path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), path


@contextlib.contextmanager
def reaching(uri: str) -> Iterator[None]:
    """Calls of a Hadoop file system. Raises BadValue when one fails."""
    try:
        yield
    except BadValue:
        raise
    except Exception as problem:
        raise BadValue(
            f"Spark cannot reach {uri}: {_said(problem)}; check the URI and Spark's packages for it"
        ) from None


def _executors(context: Any) -> int:
    """How many executors there are now; the driver, which Spark counts too, is none."""
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1


def _said(problem: Exception) -> str:
    """What went wrong, in one line, without the line that only says where."""
    lines = [line.strip(": ") for line in str(problem).splitlines()]
    telling = [line for line in lines if line and not line.startswith("An error occurred while calling")]
    return (telling[0] if telling else type(problem).__name__)[:300]


def _of_worker(problem: Exception) -> str:
    """Returns the reason of a failure on a worker in one line: the last of its Python traceback, if any."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    named = [
        line
        for line in lines
        if ": " in line and line.split(": ")[0].rpartition(".")[2].endswith(("Error", "Value", "Exception"))
    ]
    return (named[0] if named else lines[0] if lines else type(problem).__name__)[:400]
