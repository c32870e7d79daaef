"""The exact numbers of states and transitions, and the depth, of each scope under the reference: `counts.toml`.

TLC finds the same number of states in every scope that has a run (`fuzz/tlc/manifest.py`). `brokerproof explore`,
`brokerproof tla` and the tests compare with this table.
"""

from __future__ import annotations

import functools
import tomllib
from importlib.resources import files
from typing import NamedTuple

from model.machine import BadValue


class Counts(NamedTuple):
    """The result of a search of the whole scope."""

    distinct_states: int
    transitions: int
    depth: int


@functools.cache
def all_counts() -> dict[tuple[str, str], Counts]:
    """The counts by component and scope. Raises BadValue for an invalid table."""
    text = (files("fuzz") / "explore" / "counts.toml").read_text(encoding="utf-8")
    try:
        tables = tomllib.loads(text)
        return {(name, scope): Counts(*row) for name, table in tables.items() for scope, row in table.items()}
    except (tomllib.TOMLDecodeError, TypeError, AttributeError) as problem:
        raise BadValue(f"fuzz/explore/counts.toml: {problem}; a row is scope = [states, transitions, depth]") from None


def counts_of(component: str, scope: str) -> Counts | None:
    """The counts of a scope under the reference, or None."""
    return all_counts().get((component, scope))
