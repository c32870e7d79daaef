"""The heap of `ManagedCursorContainerImpl`, which a broker uses when `cacheEvictionByExpectedReadCount` is off.

The heap has items: `State.items` of `model/active_cursors/machine.py`. Each tracked cursor has one item. With
`add_keeps_old_item`, a replaced cursor object keeps its item beside that of the new object.

    heap     an array: the items at the indexes 2i + 1 and 2i + 2 are the children of the item at i, and have no smaller
             position. So the first item has the smallest position
    removal  the last item moves to the index of the removed item, and sifts up or down; with
             `removal_only_sifts_down` it sifts only down
"""

from __future__ import annotations

from typing import NamedTuple

from model.positions import Position


class Item(NamedTuple):
    """A cursor object with its position, in a heap or a set."""

    position: Position
    object: int  # number of the cursor object
    cursor: int  # its name


Items = tuple[Item, ...]


def index_of(items: Items, object: int) -> int:
    """Returns the index of the item of a cursor object."""
    return next(i for i, item in enumerate(items) if item.object == object)


def sifted_up(items: Items, index: int) -> Items:
    """`siftUp`: returns the heap after the item at an index moved up, past each parent at a larger position."""
    heap = list(items)
    while index > 0 and heap[(index - 1) // 2].position > heap[index].position:
        parent = (index - 1) // 2
        heap[index], heap[parent] = heap[parent], heap[index]
        index = parent
    return tuple(heap)


def sifted_down(items: Items, index: int) -> Items:
    """`siftDown`: returns the heap after the item at an index moved down, while a child is at a smaller position.

    The child at the smaller position moves up; if both children are at one position, the right child.
    """
    heap = list(items)
    while True:
        # slower: the index of the child at the smaller position; None if no child is before the item
        left, right, slower = 2 * index + 1, 2 * index + 2, None
        if right < len(heap) and heap[right].position < heap[index].position:
            slower = left if heap[left].position < heap[right].position else right
        elif left < len(heap) and heap[left].position < heap[index].position:
            slower = left
        if slower is None:
            return tuple(heap)
        heap[index], heap[slower] = heap[slower], heap[index]
        index = slower


def pushed(items: Items, item: Item) -> Items:
    """Returns the heap with `item` added."""
    return sifted_up((*items, item), len(items))


def moved(items: Items, index: int, position: Position) -> Items:
    """Returns the heap after the item at an index moved to another position."""
    items = items[:index] + (items[index]._replace(position=position),) + items[index + 1 :]
    if index == 0 or items[(index - 1) // 2].position <= position:
        return sifted_down(items, index)
    return sifted_up(items, index)


def removed(items: Items, index: int, only_sifts_down: bool) -> Items:
    """Returns the heap without the item at an index: the last item takes its index and sifts.

    If the last item comes from another branch, it may have to sift up. With `only_sifts_down` it does not sift up; then
    the heap can be out of order.
    """
    last, rest = items[-1], items[:-1]
    if index == len(rest):
        return rest
    rest = rest[:index] + (last,) + rest[index + 1 :]
    if only_sifts_down or index == 0 or rest[(index - 1) // 2].position <= last.position:
        return sifted_down(rest, index)
    return sifted_up(rest, index)
