"""The version of the code. The same version finds a finding again from the finding's spec and seed."""

from __future__ import annotations

import functools
import hashlib
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.resources.abc import Traversable

from model.machine import BadValue

#: The packages whose sources determine the trace of a seed, and its findings.
_PACKAGES = ("model", "impl", "invariants", "fuzz")
_SUFFIXES = (".py", ".toml")


@functools.cache
def code_version() -> str:
    """Returns the release, and a digest of all Python and TOML files of the packages that determine a finding."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        for name, text in sorted(_texts(files(package), package)):
            digest.update(name.encode() + b"\0" + text + b"\0")
    return f"{_release()}+{digest.hexdigest()[:12]}"


def check_version(driver: str) -> None:
    """Raises BadValue if this worker runs other code than the driver."""
    if driver != code_version():
        raise BadValue(
            f"this worker has version {code_version()} and the driver {driver}; "
            "ship the driver's environment to the workers"
        )


def _release() -> str:
    try:
        return version("brokerproof")
    except PackageNotFoundError:  # the packages were copied, not installed
        return "0"


def _texts(folder: Traversable, path: str) -> list[tuple[str, bytes]]:
    found = []
    for each in folder.iterdir():
        name = f"{path}/{each.name}"
        if each.is_dir() and each.name != "__pycache__":
            found += _texts(each, name)
        elif each.name.endswith(_SUFFIXES):
            found.append((name, each.read_bytes()))
    return found
