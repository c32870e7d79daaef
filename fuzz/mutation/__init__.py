"""Mutation testing: generates mutants, and finds out which checks kill them and the seeded bugs."""

from __future__ import annotations

from enum import StrEnum


class Check(StrEnum):
    """What can kill a mutant. `kill_matrix` has the first five, `model_checks` the others."""

    IMPORT = "import"  # the mutated module cannot be imported
    FUZZ = "fuzz"  # random traces, in lockstep or of the model alone
    CHECK = "check"  # the implementation's own check misses a corrupted state
    EXPLORE = "explore"  # every state of the smoke scope
    COVER = "cover"  # every transition of that scope
    DEFECTS = "defects"
    RECORDINGS = "recordings"
    CANONICAL = "canonical"
    EXAMPLES = "examples"
    TWIN = "twin"
