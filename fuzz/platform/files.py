"""Atomic writes of files."""

from __future__ import annotations

import os
from pathlib import Path

#: The suffix of a file that is being written.
UNFINISHED = ".unfinished"


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file, and its folder if absent. A reader sees the old content or all of the new content.

    The content is written to another file, which is then renamed. Several processes may write the same file. Raises
    OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}{UNFINISHED}")
    unfinished.write_bytes(data)
    unfinished.replace(path)
