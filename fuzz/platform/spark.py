"""A Spark session for the engines, on this machine or on a cluster."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from fuzz.platform.java import provide_java
from model.machine import BadValue

#: The configuration of Spark's log: errors only.
_LOGGING = str(files("fuzz") / "templates" / "log4j2.properties")
#: The master URLs that Spark accepts; for another one, its launcher prints a stack trace.
_MASTER = re.compile(r"local(-cluster)?(\[.*\])?|(spark|k8s)://.+|yarn")
#: Settings of a session in local mode.
_LOCAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_LOGGING}",
}
#: Settings of every session.
_ALWAYS = {
    "spark.python.worker.reuse": "true",
    "spark.ui.showConsoleProgress": "false",
}
#: Executors of a cluster start one after the other. If the number of slots stays the same for this long, all have
#: started.
_SETTLED_SECONDS = 3.0
#: The longest wait for the executors. Executors that start later get tasks, too, but do not change the number of tasks.
_PATIENCE_SECONDS = 60.0


def started_by_spark_submit() -> bool:
    """Returns whether spark-submit started this process, and so determines the master and the workers' Python."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextlib.contextmanager
def session(name: str, master: str | None = None, settings: dict[str, str] | None = None) -> Iterator[Any]:
    """Yields a Spark session for the `with` body. Raises BadValue if there is no Java or the master cannot be reached.

    The master is the given one, else that of spark-submit, else local mode with all cores. `settings` are added to
    ours. Without spark-submit, the workers of a cluster run the Python at the path of this process's Python, unless the
    environment variable PYSPARK_PYTHON names another. Cost: several seconds.
    """
    if master is not None and not _MASTER.fullmatch(master):
        raise BadValue(f"--master {master} must be local[N], spark://HOST:PORT, k8s://URL or yarn")
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
            f"Spark does not start with master {chosen}: {_first_line_of(problem)}; check --master and Java"
        ) from None
    try:
        yield spark
    finally:
        with contextlib.suppress(Exception):
            spark.stop()


def slots(spark: Any) -> int:
    """Returns the number of tasks that can run at a time.

    A session on a cluster begins without executors, and reports two slots until one has started. So this function waits
    until executors have started and the number of slots stays the same, for a minute at most.
    """
    context = spark.sparkContext
    count = int(context.defaultParallelism)
    if context.master.startswith("local") and not context.master.startswith("local-cluster"):
        return count
    begun = since = time.monotonic()
    while time.monotonic() - begun < _PATIENCE_SECONDS:
        time.sleep(0.1)
        now = int(context.defaultParallelism)
        if now != count or _executors(context) == 0:
            count, since = now, time.monotonic()
        elif time.monotonic() - since >= _SETTLED_SECONDS:
            break
    return count


@contextlib.contextmanager
def reported_task_errors() -> Iterator[None]:
    """Turns an exception of the `with` body, which runs Spark jobs, into a BadValue with the worker's message."""
    try:
        yield
    except Exception as problem:
        message = _worker_message_of(problem)
        hint = "; the workers lack this code: fuzz/README.md says how to ship it"
        lacking = hint if "ModuleNotFound" in message else ""
        raise BadValue(f"Spark could not run the tasks: {message}{lacking}") from None


def file_system(spark: Any, uri: str) -> tuple[Any, Any]:
    """Returns the Hadoop file system of a URI, and the URI as a Hadoop path. Raises BadValue if there is none."""
    with reported_access_errors(uri):
        path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(uri)
        return path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), path


@contextlib.contextmanager
def reported_access_errors(uri: str) -> Iterator[None]:
    """Turns an exception of the `with` body, which calls the file system of a URI, into a BadValue."""
    try:
        yield
    except BadValue:
        raise
    except Exception as problem:
        raise BadValue(
            f"Spark cannot reach {uri}: {_first_line_of(problem)}; check the URI and Spark's packages for it"
        ) from None


def _executors(context: Any) -> int:
    """Returns the number of executors now. Spark's count includes the driver, which is no executor."""
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1


def _first_line_of(problem: Exception) -> str:
    """Returns the first line of an exception's message that says what is wrong, or the exception's name."""
    lines = [line.strip(": ") for line in str(problem).splitlines()]
    telling = [line for line in lines if line and not line.startswith("An error occurred while calling")]
    return (telling[0] if telling else type(problem).__name__)[:300]


def _worker_message_of(problem: Exception) -> str:
    """Returns the first line of a failed job's message that names a Python exception; without one, the first line."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    named = [
        line
        for line in lines
        if ": " in line and line.split(": ")[0].rpartition(".")[2].endswith(("Error", "Value", "Exception"))
    ]
    return (named[0] if named else lines[0] if lines else type(problem).__name__)[:400]
