"""The table `counts.toml`: the exact numbers of states and transitions, and the depth, of scopes under the reference.

`brokerproof explore` compares states and transitions with this table, the tests also the depth, `brokerproof tla` the
states of large scopes. If the manifest of the component's TLA+ specification has a run of a scope
(`fuzz/tlc/manifest.py`), TLC finds the same number of states.
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
    depth: int  # the largest distance of a state from the initial state


@functools.cache
def all_counts() -> dict[tuple[str, str], Counts]:
    """Returns the counts by (component, scope). Raises BadValue for an invalid table."""
    text = (files("fuzz") / "explore" / "counts.toml").read_text(encoding="utf-8")
    try:
        tables = tomllib.loads(text)
        return {(name, scope): Counts(*row) for name, table in tables.items() for scope, row in table.items()}
    except (tomllib.TOMLDecodeError, TypeError, AttributeError) as problem:
        raise BadValue(f"fuzz/explore/counts.toml: {problem}; a row is scope = [states, transitions, depth]") from None


def counts_of(component: str, scope: str) -> Counts | None:
    """Returns the counts of a scope under the reference; None if the table has no row for it."""
    return all_counts().get((component, scope))
