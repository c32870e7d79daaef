"""The shipped list of active cursors: sorted, lazily brought up to date, with counts that groups share.

Source: PIP-430's `ActiveManagedCursorContainerImpl`, as recorded and as later changed. It is what the machine of
`model/active_cursors/machine.py` keeps in mind under the container `linked_list`, and nothing of the definition.

    linked     the nodes in the order of their positions; those at one position form a group and share a counter,
               which is the number of nodes up to the group's end
    pending    a call only notes what has changed; a query flushes
    flush      half as many nodes queued as tracked, or more: the list is built anew;
               else removals first, then each queued node is placed or moved, the farthest old position first

A flush must not be observable. What the recorded version does otherwise is one small function or one line each,
under a flag of the config: the tail shortcut (`keeps_counts_at_tail`), what untracking leaves behind (`unlinked`,
`lose_the_list`), what adding a present cursor forgets (`added`).

Not modelled: the links that nodes of a lost list still have to each other, and what is left half done when a flush
fails on a node that has a position and was never counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from model.positions import Position
from model.values import record


class ListRules(Protocol):
    """The flags of the config that this list looks at; `model/active_cursors/machine.py` says what they mean."""

    @property
    def tail_keeps_counts(self) -> bool:
        """The tail shortcut."""

    @property
    def untracked_keeps_position(self) -> bool:
        """What untracking leaves behind."""

    @property
    def adding_keeps_removal(self) -> bool:
        """What adding a present cursor forgets."""

    @property
    def readding_keeps_object(self) -> str:
        """Which additions leave the name to the old object."""

    @property
    def drops_removed_nodes(self) -> bool:
        """Whether nodes of removed cursors are dropped without a query."""

    @property
    def removals_before_cleanup(self) -> int:
        """After how many removals."""


@record
class Node(NamedTuple):
    """What the list remembers of a cursor."""

    cursor: int
    object: int  # of the cursor that it was made for; it identifies the node
    present: bool  # whether it stands for a cursor of the container; one that was removed may wait for a flush
    position: Position | None  # where the last flush put it
    pending: Position | None  # where the next one will
    queued: bool  # whether a flush will look at it
    removing: bool  # whether a flush will take it out
    counter: int  # the number of the counter that it shares; 0 if it was never counted


@record
class CursorList(NamedTuple):
    """The list, and what has not been flushed yet."""

    linked: tuple[Node, ...] = ()  # in the order of the list
    others: tuple[Node, ...] = ()  # nodes that do not stand in the list, by their objects
    removals: tuple[int, ...] = ()  # objects of the nodes that a flush will take out, one a name, by name
    counts: tuple[int, ...] = ()  # of counter 1, 2, ...
    tracked: int = 0  # how many nodes the list believes to have
    removed: int = 0  # removals since the last cleanup


def node_of(kept: CursorList, object: int) -> Node:
    """The node of that identity."""
    return next(n for n in kept.linked + kept.others if n.object == object)


def waiting_for(kept: CursorList, cursor: int) -> Node | None:
    """The node that waits under this name for its removal."""
    return next((n for n in (node_of(kept, o) for o in kept.removals) if n.cursor == cursor), None)


def exchange(kept: CursorList, old: Node, new: Node) -> CursorList:
    """The same list with `new` where `old` was."""
    linked = tuple(new if n.object == old.object else n for n in kept.linked)
    others = tuple(new if n.object == old.object else n for n in kept.others)
    return kept._replace(linked=linked, others=others)


def garbage(kept: CursorList) -> int:
    """How many nodes are remembered for cursors that are gone."""
    return sum(not n.present for n in kept.linked + kept.others)


# ---- calls that only take notes -----------------------------------------------------------------------


def queue(node: Node, position: Position) -> Node:
    """The position is noted; a flush will look at the node."""
    return node._replace(pending=position, queued=True)


def due_for_removal(kept: CursorList, node: Node) -> CursorList:
    """A flush will take the node out. One node a name: another one that waited under it is forgotten."""
    others = [o for o in kept.removals if node_of(kept, o).cursor != node.cursor]
    marked = exchange(kept, node, node._replace(removing=True))
    by_name = sorted([*others, node.object], key=lambda o: (node_of(kept, o).cursor, o))
    return marked._replace(removals=tuple(by_name))


def no_longer_due(kept: CursorList, node: Node) -> CursorList:
    """The removal is called off."""
    marked = exchange(kept, node, node._replace(removing=False))
    return marked._replace(removals=tuple(o for o in kept.removals if o != node.object))


def added(
    rules: ListRules, kept: CursorList, present: int | None, cursor: int, object: int, position: Position | None
) -> tuple[CursorList, int]:
    """After an addition: the list, and the object that the name gives from now on.

    `present` is the object that the name gave before. A name that was removed and not yet flushed gets its node back.
    """
    if present is None:
        return added_anew(rules, kept, cursor, object, position)
    node = node_of(kept, present)
    if rules.readding_keeps_object == "never":
        kept, node = with_object(kept, node, object)
    if position is None:
        kept = exchange(kept, node, node._replace(pending=None))
        node = node_of(kept, node.object)
        return (kept if node.position is None else due_for_removal(kept, node)), node.object
    if node.removing and not rules.adding_keeps_removal:
        kept = no_longer_due(kept, node)
        node = node_of(kept, node.object)
    return exchange(kept, node, queue(node, position)), node.object


def added_anew(
    rules: ListRules, kept: CursorList, cursor: int, object: int, position: Position | None
) -> tuple[CursorList, int]:
    """After the addition of a name that is absent."""
    waiting = None if position is None else waiting_for(kept, cursor)
    if waiting is None:
        node = Node(cursor, object, True, None, None, False, False, 0)
        node = node if position is None else queue(node, position)
        return kept._replace(others=by_object((*kept.others, node))), object
    kept = no_longer_due(kept, waiting)
    node = node_of(kept, waiting.object)
    if rules.readding_keeps_object != "until_flushed":
        kept, node = with_object(kept, node, object)
    assert position is not None
    return exchange(kept, node, queue(node._replace(present=True), position)), node.object


def with_object(kept: CursorList, node: Node, object: int) -> tuple[CursorList, Node]:
    """The node stands for another object from now on."""
    new = node._replace(object=object)
    kept = exchange(kept, node, new)
    removals = tuple(object if o == node.object else o for o in kept.removals)
    return with_counters_in_order(kept._replace(removals=removals, others=by_object(kept.others))), new


def by_object(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Nodes in the order of their identities."""
    return tuple(sorted(nodes, key=lambda n: n.object))


def updated(rules: ListRules, kept: CursorList, object: int, position: Position | None) -> CursorList:
    """After an update of a cursor: its new position is noted, or that it will not be tracked."""
    node = node_of(kept, object)
    if position is not None:
        if node.removing:
            kept = no_longer_due(kept, node)
            node = node_of(kept, object)
        return exchange(kept, node, queue(node, position))
    kept = exchange(kept, node, node._replace(pending=None))
    if node.position is None and not rules.untracked_keeps_position:
        return kept
    return due_for_removal(kept, node_of(kept, object))


def removed(rules: ListRules, kept: CursorList, object: int, cursors_left: int) -> CursorList:
    """After a removal. A node that was never placed stays queued, one that was waits in the list, until a flush."""
    node = node_of(kept, object)
    gone = node._replace(present=False, pending=None)
    kept = exchange(kept, node, gone)
    if gone.position is not None:
        kept = due_for_removal(kept, gone)
    kept = with_counters_in_order(kept._replace(others=remembered(kept, kept.others)))
    if not rules.drops_removed_nodes:
        return kept
    kept = kept._replace(removed=kept.removed + 1)
    if kept.removed >= max(rules.removals_before_cleanup, cursors_left) or cursors_left == 0:
        return cleaned_up(kept)
    return kept


def remembered(kept: CursorList, nodes: Iterable[Node]) -> tuple[Node, ...]:
    """The nodes outside the list that anything still refers to."""
    return by_object(n for n in nodes if n.present or n.queued or n.object in kept.removals)


def cleaned_up(kept: CursorList) -> CursorList:
    """Nodes of removed cursors go, and the counts of those that stay are set; positions stay as they are."""
    linked, counts = kept.linked, list(kept.counts)
    removals = tuple(o for o in kept.removals if node_of(kept, o).present)
    if removals != kept.removals:
        linked = tuple(n for n in linked if n.present)
        for number, node in enumerate(linked, 1):
            counts[node.counter - 1] = number
    others = tuple(n for n in kept.others if n.present)
    tracked = kept.tracked - (len(kept.linked) - len(linked))
    return with_counters_in_order(CursorList(linked, others, removals, tuple(counts), tracked))


# ---- the flush ----------------------------------------------------------------------------------------


class Bench:
    """The list while a flush works on it."""

    def __init__(self, kept: CursorList) -> None:
        self.line = list(kept.linked)
        self.others = list(kept.others)
        self.counts = list(kept.counts)
        self.tracked = kept.tracked

    def new_counter(self, count: int) -> int:
        """Another counter, which begins with this count."""
        self.counts.append(count)
        return len(self.counts)

    def change(self, counter: int, by: int) -> None:
        """Changes a counter for all who share it. A node that was never counted has none."""
        if counter:
            self.counts[counter - 1] += by

    def change_groups(self, start: int, by: int) -> None:
        """Changes the counter of each group from that place of the list on: of each first node at a position."""
        last = None
        for node in self.line[start:]:
            if node.position != last:
                self.change(node.counter, by)
                last = node.position

    def count_at(self, place: int) -> int:
        """The count of the node at that place; 0 in front of the list."""
        return self.counts[self.line[place].counter - 1] if place >= 0 else 0

    def list(self) -> CursorList:
        """The list as it is now, with nothing pending."""
        line, others = ([n._replace(queued=False, pending=None) for n in each] for each in (self.line, self.others))
        here = tuple(n for n in others if n.present)
        return with_counters_in_order(CursorList(tuple(line), by_object(here), (), tuple(self.counts), self.tracked))


def is_flushed(kept: CursorList) -> bool:
    """Nothing is pending."""
    return not kept.removals and not any(n.queued for n in kept.linked + kept.others)


def flushed(rules: ListRules, kept: CursorList) -> CursorList:
    """What a query does first."""
    kept = kept if kept.removed == 0 else kept._replace(removed=0)
    if is_flushed(kept):
        return kept
    pending = sum(n.queued for n in kept.linked + kept.others)
    if pending >= kept.tracked // 2:
        return built_anew(rules, kept)
    bench = Bench(kept)
    for leaving in kept.removals:
        unlinked(rules, bench, leaving)
    for node in in_order_of_flush(bench.line + bench.others):
        if node.pending is not None:
            settle(rules, bench, node)
    return bench.list()


def in_order_of_flush(nodes: Iterable[Node]) -> list[Node]:
    """The queued nodes: the farthest old position first, those never placed last; equal ones by name."""
    queued = [n for n in nodes if n.queued]
    placed = sorted((n for n in queued if n.position is not None), key=lambda n: (n.cursor, n.object))
    placed.sort(key=lambda n: n.position or Position(0, 0), reverse=True)
    return placed + sorted((n for n in queued if n.position is None), key=lambda n: (n.cursor, n.object))


def built_anew(rules: ListRules, kept: CursorList) -> CursorList:
    """The list from scratch, from the cursors that are present, in the order of their names where they are equal."""
    linked, others = [], []
    for node in sorted((n for n in kept.linked + kept.others if n.present), key=lambda n: n.cursor):
        position = node.pending or node.position
        if position is None or node.removing:
            others.append(left_behind(rules, node._replace(position=position, pending=None, queued=False)))
        else:
            linked.append(node._replace(position=position, pending=None, queued=False))
    linked.sort(key=lambda n: n.position or Position(0, 0))
    counts = list(kept.counts)
    for place, node in enumerate(linked):
        if place == 0 or node.position != linked[place - 1].position:
            counts.append(0)
        counts[-1] = place + 1
        linked[place] = node._replace(counter=len(counts))
    built = CursorList(tuple(linked), by_object(others), (), tuple(counts), len(linked))
    return with_counters_in_order(built)


def unlinked(rules: ListRules, bench: Bench, object: int) -> None:
    """A node leaves the list: all groups from its own on count one node fewer."""
    place = place_of(bench, object)
    bench.tracked -= 1
    if place is None:
        lose_the_list(bench, object)
        return
    node = bench.line.pop(place)
    start = next(i for i in range(place, -1, -1) if i == 0 or bench.line[i - 1].position != node.position)
    bench.change_groups(start, -1)
    bench.others.append(left_behind(rules, node))


def left_behind(rules: ListRules, node: Node) -> Node:
    """What untracking leaves of a node: nothing, or a stale position and a share in a counter."""
    if rules.untracked_keeps_position:
        return node._replace(removing=False)
    return node._replace(position=None, counter=0, removing=False)


def lose_the_list(bench: Bench, object: int) -> None:
    """A node that does not stand in the list is taken out of it all the same: the list has no head any more."""
    bench.others = [n._replace(removing=n.removing and n.object != object) for n in bench.others + bench.line]
    bench.line = []


def place_of(bench: Bench, object: int) -> int | None:
    """Where in the list the node stands."""
    return next((i for i, n in enumerate(bench.line) if n.object == object), None)


def settle(rules: ListRules, bench: Bench, node: Node) -> None:
    """A queued node gets its new position."""
    place, position = place_of(bench, node.object), node.pending
    assert position is not None
    if place is None:
        bench.others = [n for n in bench.others if n.object != node.object]
        if node.position is None:
            insert(bench, node._replace(position=position))
        else:
            bench.others.append(move_outside_the_list(bench, node, position))
    elif node.position != position:
        if fits(bench, place, position):
            move_in_place(rules, bench, place, position)
        else:
            move_away(bench, place, position)


def insert(bench: Bench, node: Node) -> None:
    """A node comes into the list, behind those at its position; from its group on, all groups count it."""
    bench.tracked += 1
    position = node.position
    assert position is not None
    first = sum(1 for n in bench.line if at(n) < position)
    behind = sum(1 for n in bench.line if at(n) <= position)
    if behind > first:
        bench.line.insert(behind, node._replace(counter=bench.line[first].counter))
        bench.change_groups(first, 1)
    else:
        bench.line.insert(first, node._replace(counter=bench.new_counter(first + 1)))
        bench.change_groups(first + 1, 1)


def at(node: Node) -> Position:
    """The position of a node that stands in the list."""
    assert node.position is not None
    return node.position


def fits(bench: Bench, place: int, position: Position) -> bool:
    """The node may have this position where it stands."""
    before_fits = place == 0 or at(bench.line[place - 1]) <= position
    return before_fits and (place + 1 == len(bench.line) or position <= at(bench.line[place + 1]))


def keeps_counts_at_tail(rules: ListRules, bench: Bench, place: int) -> bool:
    """The tail shortcut: the last node of the list has nobody behind it, so no count changes when it moves.

    Forgotten is who stands in front of it: a group that it leaves, or one that it joins.
    """
    return rules.tail_keeps_counts and place == len(bench.line) - 1


def move_in_place(rules: ListRules, bench: Bench, place: int, position: Position) -> None:
    """A node gets another position without passing anybody: it leaves its group, and joins a neighbour's or none."""
    node = bench.line[place]
    bench.line[place] = node._replace(position=position)
    if keeps_counts_at_tail(rules, bench, place):
        return
    if at(node) < position:
        bench.change(node.counter, -1)
    if place > 0 and bench.line[place - 1].position == position:
        counter = bench.line[place - 1].counter
        bench.change(counter, 1)
    elif place + 1 < len(bench.line) and bench.line[place + 1].position == position:
        counter = bench.line[place + 1].counter
    else:
        counter = bench.new_counter(bench.count_at(place - 1) + 1)
    bench.line[place] = bench.line[place]._replace(counter=counter)


def move_outside_the_list(bench: Bench, node: Node, position: Position) -> Node:
    """A node that untracking took out of the list, and that kept its position, is taken for one that stands alone."""
    if node.position == position:
        return node
    if at(node) < position:
        bench.change(node.counter, -1)
    return node._replace(position=position, counter=bench.new_counter(1))


def move_away(bench: Bench, place: int, position: Position) -> None:
    """A node passes others: forward, its group and each group passed count one fewer; backward, one more."""
    node = bench.line.pop(place)
    if at(node) < position:
        to = next((i for i in range(place, len(bench.line)) if at(bench.line[i]) >= position), len(bench.line))
        passed = bench.line[place:to]
        bench.change(node.counter, -1)
        joins = to < len(bench.line) and bench.line[to].position == position
        change_passed(bench, passed, at(node), -1)
        counter = bench.line[to].counter if joins else bench.new_counter(bench.count_at(to - 1) + 1)
    else:
        to = next((i + 1 for i in range(place - 1, -1, -1) if at(bench.line[i]) <= position), 0)
        change_passed(bench, bench.line[to:place][::-1], at(node), 1)
        if to > 0 and bench.line[to - 1].position == position:
            counter = bench.line[to - 1].counter
            bench.change(counter, 1)
        else:
            counter = bench.new_counter(bench.count_at(to - 1) + 1)
    bench.line.insert(to, node._replace(position=position, counter=counter))


def change_passed(bench: Bench, passed: list[Node], old: Position, by: int) -> None:
    """The groups that a node passes; its own, at its old position, is no matter of theirs."""
    last = old
    for node in passed:
        if node.position != last:
            bench.change(node.counter, by)
            last = at(node)


# ---- queries on a flushed list ------------------------------------------------------------------------


def slowest(kept: CursorList) -> Position | None:
    """The position of the head."""
    return kept.linked[0].position if kept.linked else None


def rank(kept: CursorList, object: int) -> int | None:
    """The count of a cursor's group; 0 if it has no position, None if it has one and was never counted."""
    node = node_of(kept, object)
    if node.position is None:
        return 0
    return kept.counts[node.counter - 1] if node.counter else None


# ---- names --------------------------------------------------------------------------------------------


def with_counters_in_order(kept: CursorList) -> CursorList:
    """Counters are numbered in the order in which their nodes stand, and those that nobody shares are forgotten."""
    numbers: dict[int, int] = {0: 0}
    for node in kept.linked + kept.others:
        numbers.setdefault(node.counter, len(numbers))
    counts = [0] * (len(numbers) - 1)
    for old, new in numbers.items():
        if new:
            counts[new - 1] = kept.counts[old - 1]

    def renumbered(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(n._replace(counter=numbers[n.counter]) for n in nodes)

    return kept._replace(linked=renumbered(kept.linked), others=renumbered(kept.others), counts=tuple(counts))


def renamed(kept: CursorList, numbers: dict[int, int]) -> CursorList:
    """The list with other numbers for the objects; `numbers` learns those that only the list knows."""
    for node in kept.linked + kept.others:
        numbers.setdefault(node.object, len(numbers) + 1)

    def moved(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(n._replace(object=numbers[n.object]) for n in nodes)

    removals = sorted((node_of(kept, o).cursor, numbers[o]) for o in kept.removals)
    others = by_object(moved(kept.others))
    again = kept._replace(linked=moved(kept.linked), others=others, removals=tuple(o for _, o in removals))
    return with_counters_in_order(again)
