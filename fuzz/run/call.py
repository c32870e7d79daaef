"""A call: an action with its arguments. Engines choose calls, and a `Pair` executes them (`fuzz/run/pair.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

Arguments = tuple[Any, ...]


class Call(NamedTuple):
    """An action, by name, and its arguments, in the order of its parameters."""

    action: str
    arguments: Arguments

    def copy(self) -> Call:
        """Returns an equal call whose non-empty tuples are new objects, as in a call that was read from a file."""
        return Call(self.action, copy_of(self.arguments))


Calls = Sequence[Call]


def copy_of(value: Any) -> Any:
    """Returns an equal value in which each non-empty tuple is a new object.

    With such copies, an implementation that wrongly compares positions by identity (`is`) fails.
    """
    if not isinstance(value, tuple):
        return value
    parts = [copy_of(each) for each in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
