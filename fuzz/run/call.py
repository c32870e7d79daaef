"""A call: an action with its arguments. Engines choose calls, and execute them on model and second side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

Arguments = tuple[Any, ...]


class Call(NamedTuple):
    """An action, by name, and its arguments, in the order of its parameters."""

    action: str
    arguments: Arguments

    def copy(self) -> Call:
        """An equal call whose tuples are new objects, as those of a call that was read from a file."""
        return Call(self.action, copy_of(self.arguments))


Calls = Sequence[Call]


def copy_of(value: Any) -> Any:
    """An equal value in which every tuple is a new object: a comparison of positions by identity then fails."""
    if not isinstance(value, tuple):
        return value
    parts = [copy_of(each) for each in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
