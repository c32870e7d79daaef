"""The shipped heap and the sorted set of active cursors, and what each keeps of a cursor that is added again.

Source: `ManagedCursorContainerImpl`, which a broker uses without PIP-430's strategy, and the sorted set of its
benchmarks, both as recorded. They are what the machine of `model/active_cursors/machine.py` keeps in mind under the containers
`heap` and `sorted_set`, and nothing of the definition.

    heap     an array: the items at 2i + 1 and 2i + 2 are not slower than the one at i, so the first is the slowest
    removal  the last item takes the place of the one that goes, and sinks; whether it also rises is a rule
    set      the items by position, then by age
"""

from __future__ import annotations

from typing import NamedTuple

from model.positions import Position


class Item(NamedTuple):
    """A tracked cursor in a heap or a set."""

    position: Position
    object: int  # of the cursor; later ones are larger
    cursor: int


Items = tuple[Item, ...]


def place_of(items: Items, object: int) -> int:
    """Where a cursor's item stands."""
    return next(i for i, item in enumerate(items) if item.object == object)


# ---- the heap -----------------------------------------------------------------------------------------


def risen(items: Items, place: int) -> Items:
    """The item goes up as long as the one above is slower to come: as long as it stands at a larger position."""
    heap = list(items)
    while place > 0 and heap[(place - 1) // 2].position > heap[place].position:
        above = (place - 1) // 2
        heap[place], heap[above] = heap[above], heap[place]
        place = above
    return tuple(heap)


def sunk(items: Items, place: int) -> Items:
    """The item goes down as long as one below is slower; of two that are equal, the right one takes its place."""
    heap = list(items)
    while True:
        left, right, lower = 2 * place + 1, 2 * place + 2, None
        if right < len(heap) and heap[right].position < heap[place].position:
            lower = left if heap[left].position < heap[right].position else right
        elif left < len(heap) and heap[left].position < heap[place].position:
            lower = left
        if lower is None:
            return tuple(heap)
        heap[place], heap[lower] = heap[lower], heap[place]
        place = lower


def pushed(items: Items, item: Item) -> Items:
    """The heap with another item."""
    return risen((*items, item), len(items))


def moved(items: Items, place: int, position: Position) -> Items:
    """The heap after an item has got another position."""
    items = items[:place] + (items[place]._replace(position=position),) + items[place + 1 :]
    if place == 0 or items[(place - 1) // 2].position <= position:
        return sunk(items, place)
    return risen(items, place)


def taken_out(items: Items, place: int, sinks_only: bool) -> Items:
    """The heap without an item: the last one takes its place.

    Below its new place it sinks. It may also have to rise, for it may come from another branch: a heap in which it
    `sinks_only` can be out of order from then on.
    """
    last, rest = items[-1], items[:-1]
    if place == len(rest):
        return rest
    rest = rest[:place] + (last,) + rest[place + 1 :]
    if sinks_only or place == 0 or rest[(place - 1) // 2].position <= last.position:
        return sunk(rest, place)
    return risen(rest, place)


# ---- the sorted set -----------------------------------------------------------------------------------


def with_item(items: Items, item: Item) -> Items:
    """The set with another item."""
    return tuple(sorted((*items, item)))


def without(items: Items, object: int) -> Items:
    """The set without a cursor's item, if it has one."""
    return tuple(item for item in items if item.object != object)


def rank(items: Items, position: Position) -> int:
    """How many items of the set stand at the position or before it."""
    return sum([1 for item in items if item.position <= position])
