"""A Spark session for the engines, wherever Spark runs."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from fuzz.java import provide_java
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


def started_by_spark_submit() -> bool:
    """Whether spark-submit runs this process: then the master and all settings come from it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextlib.contextmanager
def session(name: str, master: str | None = None, settings: dict[str, str] | None = None) -> Iterator[Any]:
    """A Spark session, stopped at the end. Raises BadValue when there is no Java or no such master.

    Without a master: spark-submit's, else all cores of this machine. Starting one takes several seconds.
    """
    chosen = master or (None if started_by_spark_submit() else "local[*]")
    if not started_by_spark_submit():
        provide_java()
    is_local = chosen is not None and chosen.startswith("local")
    if is_local:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if chosen is not None:
        builder = builder.master(chosen)
    for key, value in {**_ALWAYS, **(_LOCAL if is_local else {}), **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, Exception) as problem:
        said = next((line for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
        raise BadValue(f"Spark does not start with master {chosen}: {said[:300]}; check --master and Java") from None
    try:
        yield spark
    finally:
        with contextlib.suppress(Exception):
            spark.stop()


def slots(spark: Any) -> int:
    """How many tasks run at a time."""
    return int(spark.sparkContext.defaultParallelism)
