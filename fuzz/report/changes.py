"""The parts in which two values of plain data differ, such as the model's states before and after a step."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from fuzz.platform.json import to_json


class Change(msgspec.Struct, frozen=True):
    """A difference between two values, such as the model's states before and after a step."""

    path: str  # the changed part, such as `cursors[2].position`; empty for the whole value
    kind: Literal["added", "removed", "changed"]
    before: Any  # None if the part was added
    after: Any  # None if the part was removed


def changes(before: Any, after: Any, path: str = "") -> Iterator[Change]:
    """Yields the smallest parts in which two values of plain data differ."""
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        for key, value in before.items():
            if value != after[key]:
                yield from changes(value, after[key], f"{path}.{key}" if path else str(key))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _list_changes(before, after, path)
    elif before != after:
        yield Change(path, "changed", before, after)


def _list_changes(before: list[Any], after: list[Any], path: str) -> Iterator[Change]:
    """Yields the changes of a list: those of its elements if an element has parts, otherwise one for the whole list."""
    if not any(isinstance(each, dict | list) for each in before + after):
        if before != after:
            yield Change(path, "changed", before, after)
        return
    matcher = difflib.SequenceMatcher(None, [to_json(v) for v in before], [to_json(v) for v in after], autojunk=False)
    # A code is (kind, a, b, c, d): before[a:b] became after[c:d]. The path of a removed element has its index in
    # `before`, any other path an index in `after`.
    codes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    changed = [i for i, (old, new) in enumerate(zip(before, after, strict=False)) if old != new]
    if len(before) == len(after) and len(changed) < sum(max(b - a, d - c) for _, a, b, c, d in codes):
        # Fewer elements changed at their index than were inserted and removed. So the list is no queue: its elements,
        # such as brokers, keep their indices.
        for i in changed:
            yield from changes(before[i], after[i], f"{path}[{i}]")
        return
    for kind, a, b, c, d in codes:
        paired = min(b - a, d - c) if kind == "replace" else 0
        for i in range(paired):
            yield from changes(before[a + i], after[c + i], f"{path}[{c + i}]")
        yield from (Change(f"{path}[{i}]", "removed", before[i], None) for i in range(a + paired, b))
        yield from (Change(f"{path}[{i}]", "added", None, after[i]) for i in range(c + paired, d))
