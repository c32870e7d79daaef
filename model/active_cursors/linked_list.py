"""The linked list of `ActiveManagedCursorContainerImpl`: sorted, flushed lazily, with counters shared by groups.

Source: PIP-430; the class in July 2026; apache/pulsar#26511 and #26629, which change the class. The list is
`State.nodes` of `model/active_cursors/machine.py`. If versions differ, `Config` in that module has a rule.

    list      nodes sorted by position; nodes at equal positions form a group and share one counter, the number of
              nodes up to the end of the group (`numberOfCursorsAtSamePositionOrBefore`)
    pending   `add` and `updateCursor` do not change the list: they record a new position of the node, a pending update.
              If the node has an old position, then `removeCursor`, and `add` or `updateCursor` without a position,
              record a pending removal of the node
    flush     a query of positions first applies what is pending (`processPendingPositions`). The list is rebuilt if the
              number of pending updates is at least half the number of nodes in the list, rounded down. Otherwise the
              pending removals are applied, then the pending updates one by one, in the order of a
              `java.util.PriorityQueue`: largest old position first, nodes without a position last
    cleanup   `removeCursor` drops the nodes of removed cursors without a flush (`compacted`) after many removals (see
              `removals_before_cleanup`), and if no cursor is left

Not modelled: the links between the nodes of a list that has lost its head and tail (`detach_list`); that a flush of
Pulsar fails if it moves a node without a counter forward. With `untracked_keeps_position`, a rebuild gives a node a
position, but no counter, if the node was never in the list, and both an update and a removal of it are pending.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from model.positions import Position
from model.values import record

if TYPE_CHECKING:
    from model.active_cursors.machine import Config


@record
class Node(NamedTuple):
    """A node of the list (`ActiveManagedCursorContainerImpl.Node`)."""

    cursor: int  # the cursor's name
    object: int  # number of the cursor object: identifies the node; a repeated `add` may change the number
    present: bool  # whether the container has the cursor: false after `removeCursor`
    position: Position | None  # as of the last flush; None outside the list, except with `untracked_keeps_position`
    pending: Position | None  # `pendingPosition`: the position of the pending update, or None
    removing: bool  # `pendingRemove`: whether a removal of the node is pending
    counter: int  # number of the counter that the node shares with its group; 0 for none


@record
class CursorList(NamedTuple):
    """The list, and the pending updates and removals."""

    linked: tuple[Node, ...] = ()  # in list order
    unlinked: tuple[Node, ...] = ()  # nodes that are not in the list, by object
    updates: tuple[int, ...] = ()  # `pendingPositionUpdates`: objects, as the array of the priority queue
    removals: tuple[int, ...] = ()  # `pendingRemovedCursors`: objects, at most one for each name, in the order of names
    counts: tuple[int, ...] = ()  # values of counter 1, 2, ...
    tracked: int = 0  # `trackedNodeCount`: the number of nodes in the list; stale after `detach_list`
    removed: int = 0  # `removalsSinceLastCleanup`: removals since the last cleanup or flush


def node_of(s: CursorList, object: int) -> Node:
    """Returns the node of an object."""
    return next(n for n in s.linked + s.unlinked if n.object == object)


def node_pending_removal(s: CursorList, cursor: int) -> Node | None:
    """Returns the node of a name whose removal is pending, or None."""
    return next((n for n in (node_of(s, o) for o in s.removals) if n.cursor == cursor), None)


def with_node(s: CursorList, old: Node, new: Node) -> CursorList:
    """Returns the list with `new` in place of `old`."""
    linked = tuple(new if n.object == old.object else n for n in s.linked)
    unlinked = tuple(new if n.object == old.object else n for n in s.unlinked)
    return s._replace(linked=linked, unlinked=unlinked)


def by_object(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Returns the nodes sorted by object."""
    return tuple(sorted(nodes, key=lambda n: n.object))


# ---- the priority queue of pending updates ------------------------------------------------------------


def comes_first(a: Node, b: Node) -> bool:
    """Returns whether the comparator orders `a` before `b`: largest position first, nodes without a position last."""
    return a.position is not None and (b.position is None or a.position > b.position)


def comes_later(a: Node, b: Node) -> bool:
    """Returns whether the comparator orders `a` after `b`; of two nodes without a position, each is after the other."""
    return a.position is None or (b.position is not None and a.position < b.position)


def offered(queue: tuple[int, ...], object: int, nodes: Mapping[int, Node]) -> tuple[int, ...]:
    """`PriorityQueue.offer`: returns the queue with another element."""
    heap, at = [*queue, object], len(queue)
    while at > 0 and comes_first(nodes[object], nodes[heap[(at - 1) // 2]]):
        heap[at], at = heap[(at - 1) // 2], (at - 1) // 2
    heap[at] = object
    return tuple(heap)


def sift_down(heap: list[int], at: int, object: int, nodes: Mapping[int, Node]) -> None:
    """`PriorityQueue.siftDown`: puts an element at an index, and moves it down while it is ordered after a child."""
    while at < len(heap) // 2:
        child = 2 * at + 1
        if child + 1 < len(heap) and comes_later(nodes[heap[child]], nodes[heap[child + 1]]):
            child += 1
        if not comes_later(nodes[object], nodes[heap[child]]):
            break
        heap[at], at = heap[child], child
    heap[at] = object


def poll(queue: list[int], nodes: Mapping[int, Node]) -> int:
    """`PriorityQueue.poll`: removes the first element of the list `queue` and returns it."""
    first, last = queue[0], queue.pop()
    if queue:
        sift_down(queue, 0, last, nodes)
    return first


def without_removed(queue: tuple[int, ...], nodes: Mapping[int, Node]) -> tuple[int, ...]:
    """`PriorityQueue.removeIf`: returns the queue without nodes of removed cursors, as a heap."""
    heap = [o for o in queue if nodes[o].present]
    if len(heap) < len(queue):
        for at in range(len(heap) // 2 - 1, -1, -1):
            sift_down(heap, at, heap[at], nodes)
    return tuple(heap)


def object_to_node(nodes: Iterable[Node]) -> dict[int, Node]:
    """Returns a map from objects to their nodes."""
    return {n.object: n for n in nodes}


# ---- calls that only record a change ------------------------------------------------------------------


def update_queued(s: CursorList, node: Node, position: Position) -> CursorList:
    """`queuePositionUpdate`: returns the list with a pending update of a node, which is queued at most once."""
    s = with_node(s, node, node._replace(pending=position))
    if node.object in s.updates:
        return s
    return s._replace(updates=offered(s.updates, node.object, object_to_node(s.linked + s.unlinked)))


def removal_pending(s: CursorList, node: Node) -> CursorList:
    """Returns the list with a pending removal of a node, in place of an earlier pending removal under the same name."""
    removals = [o for o in s.removals if node_of(s, o).cursor != node.cursor]
    s = with_node(s, node, node._replace(removing=True))
    by_name = sorted([*removals, node.object], key=lambda o: (node_of(s, o).cursor, o))
    return s._replace(removals=tuple(by_name))


def removal_cancelled(s: CursorList, node: Node) -> CursorList:
    """Returns the list without the pending removal of a node."""
    s = with_node(s, node, node._replace(removing=False))
    return s._replace(removals=tuple(o for o in s.removals if o != node.object))


def added(
    rules: Config, s: CursorList, old_object: int | None, cursor: int, object: int, position: Position | None
) -> tuple[CursorList, int]:
    """`add`: returns the list, and the cursor object that the name then refers to.

    `old_object` is the object that the name refers to before the call; None if the name is absent. A position becomes a
    pending update of the node, and cancels a pending removal, except with `add_keeps_pending_removal`. Without a
    position, the node gets a pending removal if it has an old position.
    """
    if old_object is None:
        return added_absent(rules, s, cursor, object, position)
    node = node_of(s, old_object)
    if rules.readd_keeps_object == "never":
        s, node = with_object(s, node, object)
    if position is None:
        s = with_node(s, node, node._replace(pending=None))
        node = node_of(s, node.object)
        return (s if node.position is None else removal_pending(s, node)), node.object
    if node.removing and not rules.add_keeps_pending_removal:
        s = removal_cancelled(s, node)
        node = node_of(s, node.object)
    return update_queued(s, node, position), node.object


def added_absent(
    rules: Config, s: CursorList, cursor: int, object: int, position: Position | None
) -> tuple[CursorList, int]:
    """`add` of an absent name: returns the list, and the cursor object that the name then refers to.

    If there is a position, a node of the name whose removal is pending is reused; with `readd_keeps_object`
    "until_flushed", the node keeps its cursor object. Without a position or such a node, a new node is added.
    """
    node = None if position is None else node_pending_removal(s, cursor)
    if node is None:
        node = Node(cursor, object, present=True, position=None, pending=None, removing=False, counter=0)
        s = s._replace(unlinked=by_object((*s.unlinked, node)))
        return (s if position is None else update_queued(s, node, position)), object
    s = removal_cancelled(s, node)
    node = node_of(s, node.object)
    if rules.readd_keeps_object != "until_flushed":
        s, node = with_object(s, node, object)
    assert position is not None
    reused = node._replace(present=True)
    return update_queued(with_node(s, node, reused), reused, position), node.object


def with_object(s: CursorList, node: Node, object: int) -> tuple[CursorList, Node]:
    """Returns the list with another cursor object in a node, and the new node."""
    new = node._replace(object=object)
    s = with_node(s, node, new)
    updates, removals = (tuple(object if o == node.object else o for o in each) for each in (s.updates, s.removals))
    return with_counters_renumbered(s._replace(updates=updates, removals=removals, unlinked=by_object(s.unlinked))), new


def updated(rules: Config, s: CursorList, object: int, position: Position | None) -> CursorList:
    """`updateCursor`: returns the list with a pending update of the node of a cursor.

    A position cancels a pending removal. If `position` is None, the removal becomes pending, and a node in the queue of
    pending updates stays there, but without a pending position. A node without a position needs no removal, but gets
    one with `untracked_keeps_position`.
    """
    node = node_of(s, object)
    if position is not None:
        if node.removing:
            s = removal_cancelled(s, node)
            node = node_of(s, object)
        return update_queued(s, node, position)
    s = with_node(s, node, node._replace(pending=None))
    if node.position is None and not rules.untracked_keeps_position:
        return s
    return removal_pending(s, node_of(s, object))


def removed(rules: Config, s: CursorList, object: int, cursors_left: int) -> CursorList:
    """`removeCursor`: returns the list with a pending removal, if the node has a position.

    A node without a position is not in the list. A node in the queue of pending updates stays there until the next
    flush or cleanup, but without a pending position. `cursors_left`, the number of cursors after the removal, is for
    the cleanup.
    """
    node = node_of(s, object)
    gone = node._replace(present=False, pending=None)
    s = with_node(s, node, gone)
    if gone.position is not None:
        s = removal_pending(s, gone)
    s = with_counters_renumbered(s._replace(unlinked=reachable(s, s.unlinked)))
    if not rules.drops_removed_nodes:
        return s
    s = s._replace(removed=s.removed + 1)
    if s.removed >= max(rules.removals_before_cleanup, cursors_left) or cursors_left == 0:
        return compacted(s)
    return s


def reachable(s: CursorList, nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Returns those of the nodes that are present, or in the pending updates or removals; sorted by object."""
    return by_object(n for n in nodes if n.present or n.object in s.updates or n.object in s.removals)


def compacted(s: CursorList) -> CursorList:
    """`compactRemovedNodes`: returns the list without nodes of removed cursors; updates of other nodes stay pending."""
    linked, counts = s.linked, list(s.counts)
    removals = tuple(o for o in s.removals if node_of(s, o).present)
    if removals != s.removals:
        linked = tuple(n for n in linked if n.present)
        for number, node in enumerate(linked, 1):
            counts[node.counter - 1] = number  # the last node of a group sets the final value
    updates = without_removed(s.updates, object_to_node(s.linked + s.unlinked))
    unlinked = tuple(n for n in s.unlinked if n.present)
    tracked = s.tracked - (len(s.linked) - len(linked))
    return with_counters_renumbered(CursorList(linked, unlinked, updates, removals, tuple(counts), tracked))


# ---- flush --------------------------------------------------------------------------------------------


class Flush:
    """A mutable copy of a list, which a flush changes."""

    def __init__(self, s: CursorList) -> None:
        self.linked = list(s.linked)
        self.unlinked = list(s.unlinked)
        self.updates = list(s.updates)
        self.counts = list(s.counts)
        self.tracked = s.tracked

    def new_counter(self, count: int) -> int:
        """Creates a counter; returns its number."""
        self.counts.append(count)
        return len(self.counts)

    def change(self, counter: int, by: int) -> None:
        """Adds `by` to the counter whose number is `counter`; does nothing for 0, which stands for no counter."""
        if counter:
            self.counts[counter - 1] += by

    def change_groups(self, start: int, by: int) -> None:
        """`updateCounters`: adds `by` to the counter of each group that has a node at or after the index `start`."""
        last = None
        for node in self.linked[start:]:
            if node.position != last:
                self.change(node.counter, by)
                last = node.position

    def count_at(self, index: int) -> int:
        """Returns the count of the node at an index; 0 for index -1."""
        return self.counts[self.linked[index].counter - 1] if index >= 0 else 0

    def index_of(self, object: int) -> int | None:
        """Returns the index of a node in the list, or None."""
        return next((i for i, n in enumerate(self.linked) if n.object == object), None)

    def poll(self) -> Node | None:
        """Removes the first object from the queue of updates; returns its node, or None if the queue is empty."""
        if not self.updates:
            return None
        nodes = object_to_node(self.linked + self.unlinked)
        return nodes[poll(self.updates, nodes)]

    def list(self) -> CursorList:
        """Returns the flushed list: nothing is pending."""
        linked, unlinked = ([n._replace(pending=None) for n in each] for each in (self.linked, self.unlinked))
        present = by_object(n for n in unlinked if n.present)
        return with_counters_renumbered(CursorList(tuple(linked), present, (), (), tuple(self.counts), self.tracked))


def flushed(rules: Config, s: CursorList) -> CursorList:
    """`processPendingPositions`: returns the list after all pending updates and removals."""
    s = s if s.removed == 0 else s._replace(removed=0)
    if not s.removals and not s.updates:
        return s
    if len(s.updates) >= s.tracked // 2:
        return rebuilt(rules, s)
    flush = Flush(s)
    for removal in s.removals:
        unlink(rules, flush, removal)
    while (node := flush.poll()) is not None:
        if node.pending is not None:
            apply_update(rules, flush, node)
    return flush.list()


def rebuilt(rules: Config, s: CursorList) -> CursorList:
    """`rebuildEntireList`: returns the list with every present node that has a position and no pending removal.

    The nodes are sorted by position, and at equal positions by name. Pulsar keeps nodes at equal positions in the
    iteration order of its cursor map. `fuzz/recordings/active_cursors.py` maps recorded names to numbers in this order.
    """
    linked, unlinked = [], []
    for node in sorted((n for n in s.linked + s.unlinked if n.present), key=lambda n: n.cursor):
        position = node.pending or node.position  # a position is a non-empty tuple, never false
        if position is None or node.removing:
            unlinked.append(untracked(rules, node._replace(position=position, pending=None)))
        else:
            linked.append(node._replace(position=position, pending=None))
    linked.sort(key=lambda n: n.position or Position(0, 0))  # every linked node has a position
    counts = list(s.counts)
    for index, node in enumerate(linked):
        if index == 0 or node.position != linked[index - 1].position:
            counts.append(0)  # the counter of a new group
        counts[-1] = index + 1
        linked[index] = node._replace(counter=len(counts))
    return with_counters_renumbered(CursorList(tuple(linked), by_object(unlinked), (), (), tuple(counts), len(linked)))


def unlink(rules: Config, flush: Flush, object: int) -> None:
    """`removeNodeFromList`: removes a node from the list; its group and all later groups no longer count it."""
    index = flush.index_of(object)
    flush.tracked -= 1
    if index is None:
        detach_list(flush, object)
        return
    node = flush.linked.pop(index)
    # the index of the first remaining node of the removed node's group; if none remains, that of the next node
    start = next(i for i in range(index, -1, -1) if i == 0 or flush.linked[i - 1].position != node.position)
    flush.change_groups(start, -1)
    flush.unlinked.append(untracked(rules, node))


def untracked(rules: Config, node: Node) -> Node:
    """Returns a node after it left the list: without position and counter, except with `untracked_keeps_position`."""
    if rules.untracked_keeps_position:
        return node._replace(removing=False)
    return node._replace(position=None, counter=0, removing=False)


def detach_list(flush: Flush, object: int) -> None:
    """`removeNodeFromList` of a node outside the list: sets head and tail to null, so the list loses all its nodes."""
    flush.unlinked = [n._replace(removing=n.removing and n.object != object) for n in flush.unlinked + flush.linked]
    flush.linked = []


def apply_update(rules: Config, flush: Flush, node: Node) -> None:
    """Applies the pending update of a node: inserts or moves the node; does nothing if its position is unchanged."""
    index, position = flush.index_of(node.object), node.pending
    assert position is not None
    if index is None:
        flush.unlinked = [n for n in flush.unlinked if n.object != node.object]
        if node.position is None:
            insert(flush, node._replace(position=position))
        else:
            flush.unlinked.append(move_outside_list(flush, node, position))
    elif node.position != position:
        if fits(flush, index, position):
            move_in_place(rules, flush, index, position)
        else:
            move_away(flush, index, position)


def insert(flush: Flush, node: Node) -> None:
    """`insertNodeIntoList`: inserts a node behind those at its position; its group and all later groups count it."""
    flush.tracked += 1
    position = node.position
    assert position is not None
    first = sum(1 for n in flush.linked if position_of(n) < position)
    behind = sum(1 for n in flush.linked if position_of(n) <= position)
    if behind > first:
        flush.linked.insert(behind, node._replace(counter=flush.linked[first].counter))
        flush.change_groups(first, 1)
    else:
        flush.linked.insert(first, node._replace(counter=flush.new_counter(first + 1)))
        flush.change_groups(first + 1, 1)


def position_of(node: Node) -> Position:
    """Returns the position of a node that is in the list."""
    assert node.position is not None
    return node.position


def fits(flush: Flush, index: int, position: Position) -> bool:
    """`isAlreadyInCorrectPosition`: whether the list stays sorted if the node at an index moves to the position."""
    is_after_previous = index == 0 or position_of(flush.linked[index - 1]) <= position
    return is_after_previous and (index + 1 == len(flush.linked) or position <= position_of(flush.linked[index + 1]))


def move_in_place(rules: Config, flush: Flush, index: int, position: Position) -> None:
    """Gives a new position to a node that passes no other node. The node joins a neighbour's group or forms its own.

    With `tail_keeps_counts`, the counters do not change if the node is the tail, although the tail may leave a shared
    group or join the previous group.
    """
    node = flush.linked[index]
    flush.linked[index] = node._replace(position=position)
    if rules.tail_keeps_counts and index == len(flush.linked) - 1:
        return
    if position_of(node) < position:
        flush.change(node.counter, -1)  # the old group is before the node now, and no longer counts it
    if index > 0 and flush.linked[index - 1].position == position:
        counter = flush.linked[index - 1].counter
        flush.change(counter, 1)
    elif index + 1 < len(flush.linked) and flush.linked[index + 1].position == position:
        counter = flush.linked[index + 1].counter  # the group after the node counts it already
    else:
        counter = flush.new_counter(flush.count_at(index - 1) + 1)
    flush.linked[index] = flush.linked[index]._replace(counter=counter)


def move_outside_list(flush: Flush, node: Node, position: Position) -> Node:
    """Returns a node with a new position; the node is outside the list, and stays there.

    Only with `untracked_keeps_position`, a node outside the list has an old position. The node gets a new counter with
    the value 1. An equal position changes nothing.
    """
    if node.position == position:
        return node
    if position_of(node) < position:
        flush.change(node.counter, -1)
    return node._replace(position=position, counter=flush.new_counter(1))


def move_away(flush: Flush, index: int, position: Position) -> None:
    """`moveNodeToNewPosition`: moves a node past others.

    A move forward decrements the counts of the node's old group and of each group that the node passes; a group that
    the node joins counts it already. A move backward increments the counts of each group that the node passes or joins;
    the old group counts the node already.
    """
    node = flush.linked.pop(index)  # from here on, indexes are those of the list without the node
    if position_of(node) < position:
        new_index = next(
            (i for i in range(index, len(flush.linked)) if position_of(flush.linked[i]) >= position), len(flush.linked)
        )
        passed = flush.linked[index:new_index]
        flush.change(node.counter, -1)
        joins = new_index < len(flush.linked) and flush.linked[new_index].position == position
        change_passed(flush, passed, position_of(node), -1)
        counter = flush.linked[new_index].counter if joins else flush.new_counter(flush.count_at(new_index - 1) + 1)
    else:
        new_index = next((i + 1 for i in range(index - 1, -1, -1) if position_of(flush.linked[i]) <= position), 0)
        change_passed(flush, flush.linked[new_index:index][::-1], position_of(node), 1)
        if new_index > 0 and flush.linked[new_index - 1].position == position:
            counter = flush.linked[new_index - 1].counter
            flush.change(counter, 1)
        else:
            counter = flush.new_counter(flush.count_at(new_index - 1) + 1)
    flush.linked.insert(new_index, node._replace(position=position, counter=counter))


def change_passed(flush: Flush, passed: list[Node], old: Position, by: int) -> None:
    """Adds `by` to the counter of each group of the nodes `passed`, except the group at the position `old`.

    A moving node passes these nodes in this order, and `old` is its old position.
    """
    last = old
    for node in passed:
        if node.position != last:
            flush.change(node.counter, by)
            last = position_of(node)


# ---- queries on a flushed list ------------------------------------------------------------------------


def slowest(s: CursorList) -> Position | None:
    """Returns the position of the head; None for an empty list."""
    return s.linked[0].position if s.linked else None


def number_at_same_position_or_before(s: CursorList, object: int) -> int | None:
    """Returns the count of a node's group; 0 without a position; None for a node with a position and no counter."""
    node = node_of(s, object)
    if node.position is None:
        return 0
    return s.counts[node.counter - 1] if node.counter else None


# ---- canonical names ----------------------------------------------------------------------------------


def with_counters_renumbered(s: CursorList) -> CursorList:
    """Returns the list with counters numbered in the order of their nodes, and without unused ones."""
    numbers: dict[int, int] = {0: 0}  # 0 stands for no counter
    for node in s.linked + s.unlinked:
        numbers.setdefault(node.counter, len(numbers))
    counts = [0] * (len(numbers) - 1)
    for old, new in numbers.items():
        if new:
            counts[new - 1] = s.counts[old - 1]

    def renumbered(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(n._replace(counter=numbers[n.counter]) for n in nodes)

    return s._replace(linked=renumbered(s.linked), unlinked=renumbered(s.unlinked), counts=tuple(counts))


def with_objects_renumbered(s: CursorList, numbers: dict[int, int]) -> CursorList:
    """Returns the list with its objects renumbered by `numbers`; objects that `numbers` lacks are added to it."""
    for node in s.linked + s.unlinked:
        numbers.setdefault(node.object, len(numbers) + 1)

    def renumbered(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(n._replace(object=numbers[n.object]) for n in nodes)

    removals = sorted((node_of(s, o).cursor, numbers[o]) for o in s.removals)
    renamed = s._replace(
        linked=renumbered(s.linked),
        unlinked=by_object(renumbered(s.unlinked)),
        updates=tuple(numbers[o] for o in s.updates),
        removals=tuple(o for _, o in removals),
    )
    return with_counters_renumbered(renamed)
