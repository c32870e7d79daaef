"""Mutation testing: which checks detect (kill) bugs in `model/` and `impl/`.

A seeded bug is written by hand (`fuzz/mutants/`). A generated mutant is made by a mutation operator (`operators.py`).
"""

from __future__ import annotations

from enum import StrEnum


class Check(StrEnum):
    """What can kill a mutant. `kill_matrix` runs the first five."""

    IMPORT = "import"  # imports the mutated module
    FUZZ = "fuzz"  # random traces, in lockstep or of the model alone
    CHECK = "check"  # corrupted states, which the implementation's own check must detect
    EXPLORE = "explore"  # every state of the smoke scope
    COVER = "cover"  # every transition of that scope
    # `model_checks` describes the others
    DEFECTS = "defects"
    RECORDINGS = "recordings"
    CANONICAL = "canonical"
    EXAMPLES = "examples"
    TWIN = "twin"
