"""Seeded bugs and the kill matrix."""

from __future__ import annotations

from enum import StrEnum


class Check(StrEnum):
    """What can kill a mutant. `kill_matrix` has the first five, `model_checks` the others."""

    IMPORT = "import"  # the mutated module cannot be imported
    FUZZ = "fuzz"
    CHECK = "check"  # the implementation's own check misses a corrupted state
    EXPLORE = "explore"
    COVER = "cover"
    DEFECTS = "defects"
    RECORDINGS = "recordings"
    CANONICAL = "canonical"
    EXAMPLES = "examples"
    TWIN = "twin"
