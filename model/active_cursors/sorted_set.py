"""The sorted set of `ActiveManagedCursorContainerNavigableSetImpl`, which exists for tests and benchmarks.

The set has the items of a heap (model/active_cursors/heap.py), sorted by position, then by object.
"""

from __future__ import annotations

from model.active_cursors.heap import Item, Items
from model.positions import Position


def with_item(items: Items, item: Item) -> Items:
    """Returns the set with `item` added."""
    return tuple(sorted((*items, item)))


def without_item(items: Items, object: int) -> Items:
    """Returns the set without the item of a cursor object."""
    return tuple(item for item in items if item.object != object)


def number_at_or_before(items: Items, position: Position) -> int:
    """Returns how many items are at the position or before it; the items need not be sorted."""
    return sum([1 for item in items if item.position <= position])
