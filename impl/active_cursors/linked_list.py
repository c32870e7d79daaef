"""The shipped list of active cursors, linked as it is there: see `model/active_cursors/linked_list.py`.

A call only takes notes, O(1). A query with nothing pending is O(1), too; with something pending it flushes: O(n log n)
when it builds the list anew, else O(n) for each removal and first placing, and for each move what it passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from model.active_cursors import linked_list as cursor_list
from model.active_cursors.linked_list import ListRules
from model.positions import Position


class Tracked(Protocol):
    """What the list looks at of a cursor."""

    cursor: int
    object: int
    position: Position | None


class Loaded(Protocol):
    """What is taken over of a state."""

    @property
    def nodes(self) -> cursor_list.CursorList | None:
        """The list."""


class Counter:
    """How many nodes there are up to the end of a group, shared by the group's nodes."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value


class Node:
    """A cursor in the list, or on its way there or out of it."""

    __slots__ = (
        "counter",
        "cursor",
        "is_linked",
        "is_queued",
        "is_removing",
        "next",
        "object",
        "pending",
        "position",
        "present",
        "previous",
    )

    def __init__(self, cursor: int, object: int) -> None:
        self.cursor = cursor
        self.object = object
        self.present = True
        self.position: Position | None = None
        self.pending: Position | None = None
        self.is_queued = False
        self.is_removing = False
        self.counter: Counter | None = None
        self.is_linked = False
        self.previous: Node | None = None
        self.next: Node | None = None

    def count(self, by: int) -> None:
        """Changes the counter for all who share it."""
        if self.counter is not None:
            self.counter.value += by


class LazyList:
    """The list."""

    def __init__(self, rules: ListRules) -> None:
        self.rules = rules
        self._nodes: dict[int, Node] = {}  # of the cursors that are present, by name
        self._removals: dict[int, Node] = {}  # of those that a flush will take out, by name
        self._queue: list[Node] = []
        self._head: Node | None = None
        self._tail: Node | None = None
        self._tracked = 0
        self._removed = 0

    # ---- calls that take notes

    def add(self, slot: Tracked, _old: Tracked | None) -> None:
        """O(1). The cursor's object becomes the one that the node keeps."""
        rules, node = self.rules, self._nodes.get(slot.cursor)
        if node is not None:
            if rules.readding_keeps_object == "never":
                node.object = slot.object
            self._note(node, slot.position, rules.adding_keeps_removal, False)
        else:
            node = self._removals.pop(slot.cursor, None) if slot.position is not None else None
            if node is None:
                node = Node(slot.cursor, slot.object)
            elif rules.readding_keeps_object != "until_flushed":
                node.object = slot.object
            node.present, node.is_removing = True, False
            self._nodes[slot.cursor] = node
            if slot.position is not None:
                self._enqueue(node, slot.position)
        slot.object = node.object

    def move(self, slot: Tracked, _old: Position | None) -> None:
        """O(1)."""
        self._note(self._nodes[slot.cursor], slot.position, False, self.rules.untracked_keeps_position)

    def _note(self, node: Node, position: Position | None, keeps_removal: bool, always_removes: bool) -> None:
        if position is None:
            node.pending = None
            if node.position is not None or always_removes:
                self._mark(node)
        else:
            if node.is_removing and not keeps_removal:
                node.is_removing = False
                if self._removals.get(node.cursor) is node:
                    del self._removals[node.cursor]
            self._enqueue(node, position)

    def _mark(self, node: Node) -> None:
        node.is_removing = True
        self._removals[node.cursor] = node

    def _enqueue(self, node: Node, position: Position) -> None:
        if not node.is_queued:
            node.is_queued = True
            self._queue.append(node)
        node.pending = position

    def remove(self, slot: Tracked, left: int) -> None:
        """O(1), and now and then O(n) to forget what was removed."""
        node = self._nodes.pop(slot.cursor)
        node.present, node.pending = False, None
        if node.position is not None:
            self._mark(node)
        if self.rules.drops_removed_nodes:
            self._removed += 1
            if self._removed >= max(self.rules.removals_before_cleanup, left) or not left:
                self._clean_up()

    def _clean_up(self) -> None:
        self._removed = 0
        self._queue = [node for node in self._queue if node.present]
        gone = [name for name, node in self._removals.items() if not node.present]
        if not gone:
            return
        for name in gone:
            del self._removals[name]
        rank = 0
        for node in list(self._in_order()):
            if node.present:
                rank += 1
                assert node.counter is not None
                node.counter.value = rank
            else:
                self._detach(node)
                self._tracked -= 1

    # ---- the flush

    def flush(self) -> None:
        """Brings the list up to date."""
        self._removed = 0
        if not self._removals and not self._queue:
            return
        queue, self._queue = self._queue, []
        if len(queue) >= self._tracked // 2:
            self._build_anew()
            return
        for name in sorted(self._removals):
            self._unlink(self._removals[name])
        self._removals.clear()
        queue.sort(key=lambda node: (node.cursor, node.object))
        placed = [node for node in queue if node.position is not None]
        placed.sort(key=lambda node: node.position or (), reverse=True)
        for node in (*placed, *[node for node in queue if node.position is None]):
            node.is_queued = False
            if node.pending is not None:
                self._settle(node, node.pending)
                node.pending = None

    def _build_anew(self) -> None:
        self._head = self._tail = None
        self._removals.clear()
        members = []
        for name in sorted(self._nodes):
            node = self._nodes[name]
            node.is_queued = node.is_linked = False
            node.previous = node.next = None
            node.position, node.pending = node.pending or node.position, None
            if node.position is None or node.is_removing:
                self._leave_behind(node)
            else:
                members.append(node)
        members.sort(key=lambda node: node.position or ())
        self._tracked = len(members)
        for rank, node in enumerate(members, 1):
            before = self._tail
            if before is not None and before.position == node.position:
                node.counter = before.counter
                node.count(1)
            else:
                node.counter = Counter(rank)
            self._attach(node, before)

    def _leave_behind(self, node: Node) -> None:
        node.is_removing = False
        if not self.rules.untracked_keeps_position:
            node.position = node.counter = None

    def _unlink(self, node: Node) -> None:
        self._tracked -= 1
        if not node.is_linked:
            node.is_removing = False
            for each in list(self._in_order()):
                each.previous = each.next = None
                each.is_linked = False
            self._head = self._tail = None
            return
        first, following = node.previous, node.next
        changed = following
        while first is not None and first.position == node.position:
            changed, first = first, first.previous
        self._detach(node)
        self._count_groups(changed, -1)
        self._leave_behind(node)

    @staticmethod
    def _count_groups(node: Node | None, by: int) -> None:
        last = None
        while node is not None:
            if node.position != last:
                node.count(by)
                last = node.position
            node = node.next

    def _settle(self, node: Node, position: Position) -> None:
        if node.position is None:
            node.position = position
            self._insert(node)
        elif node.position != position:
            before, after = node.previous, node.next
            if (before is None or _at(before) <= position) and (after is None or position <= _at(after)):
                self._move_in_place(node, position)
            elif node.position < position:
                self._move_forward(node, position)
            else:
                self._move_backward(node, position)

    def _insert(self, node: Node) -> None:
        self._tracked += 1
        position, smaller = _at(node), 0
        behind, same, current = None, None, self._head
        while current is not None and _at(current) <= position:
            if current.position == position:
                same = same or current
            else:
                smaller += 1
            behind, current = current, current.next
        node.counter = Counter(smaller + 1) if same is None else same.counter
        self._attach(node, behind)
        self._count_groups(node.next if same is None else same, 1)

    def _move_in_place(self, node: Node, position: Position) -> None:
        forward = _at(node) < position
        node.position = position
        if node is self._tail and self.rules.tail_keeps_counts:
            return
        if forward:
            node.count(-1)
        before, after = node.previous, node.next
        if before is not None and before.position == position:
            node.counter = before.counter
            node.count(1)
        elif after is not None and after.position == position:
            node.counter = after.counter
        else:
            node.counter = Counter(_rank(before) + 1)

    def _move_forward(self, node: Node, position: Position) -> None:
        last, behind, after = node.position, node.previous, node.next
        self._detach(node)
        node.count(-1)
        while after is not None and _at(after) < position:
            if after.position != last:
                after.count(-1)
                last = after.position
            behind, after = after, after.next
        joins = after is not None and after.position == position
        node.counter = after.counter if after is not None and joins else Counter(_rank(behind) + 1)
        node.position = position
        self._attach(node, behind)

    def _move_backward(self, node: Node, position: Position) -> None:
        last, behind = node.position, node.previous
        self._detach(node)
        while behind is not None and _at(behind) > position:
            if behind.position != last:
                behind.count(1)
                last = behind.position
            behind = behind.previous
        if behind is not None and behind.position == position:
            node.counter = behind.counter
            node.count(1)
        else:
            node.counter = Counter(_rank(behind) + 1)
        node.position = position
        self._attach(node, behind)

    def _attach(self, node: Node, behind: Node | None) -> None:
        node.is_linked = True
        node.previous = behind
        node.next = self._head if behind is None else behind.next
        if behind is None:
            self._head = node
        else:
            behind.next = node
        if node.next is None:
            self._tail = node
        else:
            node.next.previous = node

    def _detach(self, node: Node) -> None:
        if node.previous is None:
            self._head = node.next
        else:
            node.previous.next = node.next
        if node.next is None:
            self._tail = node.previous
        else:
            node.next.previous = node.previous
        node.previous = node.next = None
        node.is_linked = False

    # ---- questions

    def rank(self, slot: Tracked | None) -> int | None:
        """O(1) once it is flushed; None for a node that has a position and was never counted."""
        self.flush()
        node = None if slot is None else self._nodes[slot.cursor]
        if node is None or node.position is None:
            return 0
        return None if node.counter is None else node.counter.value

    def slowest(self) -> Position | None:
        """O(1) once it is flushed."""
        self.flush()
        return None if self._head is None else self._head.position

    # ---- for the engines

    def _in_order(self) -> Iterator[Node]:
        node = self._head
        while node is not None:
            yield node
            node = node.next

    def check(self, slots: Iterable[Tracked]) -> list[str]:
        """O(n)."""
        line, wrong = list(self._in_order()), []
        if any(node.next is not None and _at(node) > _at(node.next) for node in line):
            wrong.append("the list is not in order")
        if any(node.next is not None and node.next.previous is not node for node in line):
            wrong.append("the list is not linked backward as it is forward")
        if (line[-1] if line else None) is not self._tail or not all(node.is_linked for node in line):
            wrong.append("the list does not end at its tail, or a node of it does not know that it is linked")
        if any(slot.object != self._nodes[slot.cursor].object for slot in slots):
            wrong.append("a node stands for another object than its cursor")
        if not self.rules.untracked_keeps_position and self._tracked != len(line):
            wrong.append("the list does not have as many nodes as it believes")
        return wrong

    def items(self) -> tuple[()]:
        """There are none."""
        return ()

    def nodes(self) -> cursor_list.CursorList:
        """The list as the model has it. O(n log n)."""
        line = list(self._in_order())
        waiting = {*self._nodes.values(), *self._queue, *self._removals.values()}
        others = sorted((node for node in waiting if not node.is_linked), key=lambda node: node.object)
        numbers: dict[Counter, int] = {}

        def as_model(node: Node) -> cursor_list.Node:
            number = 0 if node.counter is None else numbers.setdefault(node.counter, len(numbers) + 1)
            return cursor_list.Node(
                node.cursor,
                node.object,
                node.present,
                node.position,
                node.pending,
                node.is_queued,
                node.is_removing,
                number,
            )

        linked, rest = tuple(map(as_model, line)), tuple(map(as_model, others))
        removals = tuple(self._removals[name].object for name in sorted(self._removals))
        counts = tuple(counter.value for counter in numbers)
        return cursor_list.CursorList(linked, rest, removals, counts, self._tracked, self._removed)

    def load(self, _slots: Iterable[Tracked], state: Loaded) -> None:
        """O(n)."""
        kept = state.nodes
        assert kept is not None
        counters = [Counter(count) for count in kept.counts]
        for each in kept.linked + kept.others:
            node = Node(each.cursor, each.object)
            node.present, node.position, node.pending = each.present, each.position, each.pending
            node.is_queued, node.is_removing = each.queued, each.removing
            node.counter = counters[each.counter - 1] if each.counter else None
            if each.present:
                self._nodes[each.cursor] = node
            if each.queued:
                self._queue.append(node)
            if each.object in kept.removals:
                self._removals[each.cursor] = node
            if each in kept.linked:
                self._attach(node, self._tail)
        self._tracked, self._removed = kept.tracked, kept.removed


def _at(node: Node) -> Position:
    assert node.position is not None
    return node.position


def _rank(node: Node | None) -> int:
    return 0 if node is None or node.counter is None else node.counter.value
