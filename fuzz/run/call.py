"""A call: an action with its arguments. Every engine chooses calls; `Pair.step` takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

Arguments = tuple[Any, ...]


class Call(NamedTuple):
    """An action, by name, and its arguments, in the order of its parameters."""

    action: str
    arguments: Arguments

    def copy(self) -> Call:
        """An equal call whose argument objects are new, as a call read from a file has."""
        return Call(self.action, copy_of(self.arguments))


Calls = Sequence[Call]


def copy_of(value: Any) -> Any:
    """An equal value that is another object: some bugs show only when equal keys are not identical."""
    if not isinstance(value, tuple):
        return value
    parts = [copy_of(each) for each in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
