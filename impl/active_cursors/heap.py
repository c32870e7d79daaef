"""The shipped heap and the sorted set of active cursors: see `model/active_cursors/heap.py`.

The heap is an array of items that know their places, with costs as theirs: O(log n) to add, move and remove, O(1) for
the slowest. It does not count; where a config makes it count, that is O(n), as it is in the set.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Any, Protocol

from model.active_cursors import heap as cursor_heap
from model.active_cursors.heap import Items
from model.positions import Position


class Tracked(Protocol):
    """What a heap or a set looks at of a cursor."""

    cursor: int
    object: int
    position: Position | None
    key: Any


class Rules(Protocol):
    """The settings that matter here."""

    @property
    def adding_leaves_old_item(self) -> bool:
        """Whether what a present cursor was tracked by stays for ever when it is added again."""

    @property
    def removal_only_sinks(self) -> bool:
        """Whether the item that takes a removed one's place only sinks."""


class Loaded(Protocol):
    """What is taken over of a state."""

    @property
    def items(self) -> Items:
        """The items of the heap or the set."""


class Item:
    """A tracked cursor in the heap, and its place there."""

    __slots__ = ("cursor", "object", "place", "position")

    def __init__(self, position: Position, object: int, cursor: int) -> None:
        self.position = position
        self.object = object
        self.cursor = cursor
        self.place = -1


class CursorHeap:
    """The heap."""

    def __init__(self, cfg: Rules) -> None:
        self.cfg = cfg
        self._heap: list[Item] = []

    def add(self, slot: Tracked, old: Tracked | None) -> None:
        """O(log n)."""
        if old is not None and not self.cfg.adding_leaves_old_item:
            self.remove(old)
        if slot.position is not None:
            item = slot.key = Item(slot.position, slot.object, slot.cursor)
            item.place = len(self._heap)
            self._heap.append(item)
            self._rise(item)

    def move(self, slot: Tracked, _old: Position | None) -> None:
        """O(log n)."""
        item = slot.key
        if not isinstance(item, Item) or slot.position is None:
            self.add(slot, None)
            return
        item.position = slot.position
        above = self._heap[(item.place - 1) // 2]
        if item.place == 0 or above.position <= item.position:
            self._sink(item)
        else:
            self._rise(item)

    def remove(self, slot: Tracked, _left: int = 0) -> None:
        """O(log n)."""
        item = slot.key
        if not isinstance(item, Item):
            return
        last = self._heap[-1]
        self._swap(item, last)
        self._heap.pop()
        if last is not item:
            self._sink(last)
            if not self.cfg.removal_only_sinks:
                self._rise(last)

    def _rise(self, item: Item) -> None:
        while item.place > 0:
            above = self._heap[(item.place - 1) // 2]
            if above.position <= item.position:
                return
            self._swap(item, above)

    def _sink(self, item: Item) -> None:
        heap = self._heap
        while 2 * item.place + 1 < len(heap):
            below = heap[2 * item.place + 1]
            if 2 * item.place + 2 < len(heap):
                right = heap[2 * item.place + 2]
                if right.position <= below.position and right.position < item.position:
                    below = right
            if below.position >= item.position:
                return
            self._swap(item, below)

    def _swap(self, one: Item, other: Item) -> None:
        one.place, other.place = other.place, one.place
        self._heap[one.place] = one
        self._heap[other.place] = other

    def rank(self, slot: Tracked | None) -> int:
        """O(n)."""
        if slot is None or slot.position is None:
            return 0
        return len([item for item in self._heap if item.position <= slot.position])

    def slowest(self) -> Position | None:
        """O(1)."""
        return self._heap[0].position if self._heap else None

    def check(self, slots: Iterable[Tracked]) -> list[str]:
        """O(n)."""
        wrong = []
        if any(item.place != i for i, item in enumerate(self._heap)):
            wrong.append("an item does not know its place in the heap")
        for slot in slots:
            item = slot.key
            if slot.position is not None and not (isinstance(item, Item) and item.position == slot.position):
                wrong.append("a tracked cursor's item is at another position")
        return wrong

    def nodes(self) -> None:
        """There are none."""
        return

    def items(self) -> Items:
        """The array. O(n)."""
        return tuple([cursor_heap.Item(item.position, item.object, item.cursor) for item in self._heap])

    def load(self, slots: Iterable[Tracked], state: Loaded) -> None:
        """O(n)."""
        for place, each in enumerate(state.items):
            item = Item(*each)
            item.place = place
            self._heap.append(item)
        by_object = {item.object: item for item in self._heap}
        for slot in slots:
            slot.key = by_object.get(slot.object)


class CursorSet:
    """The sorted set: positions, told apart by the age of their cursors."""

    def __init__(self, cfg: Rules) -> None:
        self.cfg = cfg
        self._items: list[cursor_heap.Item] = []

    def add(self, slot: Tracked, old: Tracked | None) -> None:
        """O(log n) and a shift in memory."""
        if old is not None and not self.cfg.adding_leaves_old_item:
            self.remove(old)
        if slot.position is not None:
            insort(self._items, cursor_heap.Item(slot.position, slot.object, slot.cursor))

    def move(self, slot: Tracked, old: Position | None) -> None:
        """O(log n) and a shift in memory."""
        if old is not None:
            self._discard(cursor_heap.Item(old, slot.object, slot.cursor))
        self.add(slot, None)

    def remove(self, slot: Tracked, _left: int = 0) -> None:
        """O(log n) and a shift in memory."""
        if slot.position is not None:
            self._discard(cursor_heap.Item(slot.position, slot.object, slot.cursor))

    def _discard(self, item: cursor_heap.Item) -> None:
        del self._items[bisect_left(self._items, item)]

    def rank(self, slot: Tracked | None) -> int:
        """O(n): it walks from the first item on, as the shipped one does."""
        if slot is None or slot.position is None:
            return 0
        rank = 0
        for item in self._items:
            if item.position > slot.position:
                break
            rank += 1
        return rank

    def slowest(self) -> Position | None:
        """O(1)."""
        return self._items[0].position if self._items else None

    def check(self, slots: Iterable[Tracked]) -> list[str]:
        """O(n log n)."""
        wrong = [] if self._items == sorted(self._items) else ["the items are not in order"]
        held = {(item.position, item.object) for item in self._items}
        if any(slot.position is not None and (slot.position, slot.object) not in held for slot in slots):
            wrong.append("a tracked cursor has no item at its position")
        return wrong

    def nodes(self) -> None:
        """There are none."""
        return

    def items(self) -> Items:
        """The items in order. O(n)."""
        return tuple(self._items)

    def load(self, _slots: Iterable[Tracked], state: Loaded) -> None:
        """O(n)."""
        self._items = list(state.items)
