"""The Go client's slots: a balanced tree with parents, over which a walk goes while nodes are removed.

What the model says of keys, this does with nodes as the client has them: a removed node without a right child keeps the
link to its parent, one with a right child takes over its successor's key. So the walk leaves the same slots behind.
"""

from __future__ import annotations

from impl.negative_acks.buckets import Entries
from impl.negative_acks.once import by_ledger
from model.negative_acks.tree import Node, Tree


class Link:
    """A node of the tree."""

    __slots__ = ("height", "keys", "left", "parent", "right", "time")

    def __init__(self, time: int, parent: Link | None) -> None:
        self.time = time
        self.keys: set[tuple[int, int]] = set()
        self.parent = parent
        self.left: Link | None = None
        self.right: Link | None = None
        self.height = 1


class WalkedSlots:
    """Entries by slot, in a tree."""

    def __init__(self) -> None:
        self._root: Link | None = None

    def __bool__(self) -> bool:
        return self._root is not None

    def first(self) -> int | None:
        """The earliest slot, or None. O(log n)."""
        return None if self._root is None else leftmost(self._root).time

    def add(self, time: int, ledger: int, entry: int) -> None:
        """An entry comes to a slot, where it may be already. O(log n)."""
        above, at = None, self._root
        while at is not None and at.time != time:
            above, at = at, at.left if time < at.time else at.right
        if at is None:
            at = Link(time, above)
            if above is None:
                self._root = at
            elif time < above.time:
                above.left = at
            else:
                above.right = at
            self._mend(above)
        at.keys.add((ledger, entry))

    def take(self, limit: int) -> list[tuple[int, Entries]]:
        """What the walk takes of the slots up to a time, which may not be all. O(log n) each."""
        taken = []
        at = None if self._root is None else leftmost(self._root)
        while at is not None and at.time <= limit:
            taken.append((at.time, by_ledger(at.keys)))
            self._remove(at)
            at = following(at)
        return sorted(taken)

    def _remove(self, link: Link) -> None:
        if link.right is None:
            self._put_in_place(link, link.left)
            self._mend(link.parent)
            return
        successor = leftmost(link.right)
        link.time, link.keys = successor.time, successor.keys
        self._put_in_place(successor, successor.right)
        self._mend(successor.parent)

    def _put_in_place(self, old: Link, new: Link | None) -> None:
        """Another link, or nothing, takes the place of one, which keeps its own links."""
        if new is not None:
            new.parent = old.parent
        if old.parent is None:
            self._root = new
        elif old.parent.left is old:
            old.parent.left = new
        else:
            old.parent.right = new

    def _mend(self, link: Link | None) -> None:
        """From a link up to the root: heights, and turns where they differ by two."""
        while link is not None:
            lean = height(link.left) - height(link.right)
            if lean > 1 and link.left is not None:
                if height(link.left.left) < height(link.left.right):
                    self._turn(link.left, to_left=True)
                link = self._turn(link, to_left=False)
            elif lean < -1 and link.right is not None:
                if height(link.right.right) < height(link.right.left):
                    self._turn(link.right, to_left=False)
                link = self._turn(link, to_left=True)
            else:
                measure(link)
            link = link.parent

    def _turn(self, link: Link, *, to_left: bool) -> Link:
        """A child comes up in the place of a link, which goes down to the other side; the child."""
        up = link.right if to_left else link.left
        assert up is not None
        inner = up.left if to_left else up.right
        self._put_in_place(link, up)
        if to_left:
            link.right, up.left = inner, link
        else:
            link.left, up.right = inner, link
        if inner is not None:
            inner.parent = link
        link.parent = up
        measure(link)
        measure(up)
        return up

    def items(self) -> list[tuple[int, Entries]]:
        """All slots, in order. O(all)."""
        items, at = [], None if self._root is None else leftmost(self._root)
        while at is not None:
            items.append((at.time, by_ledger(at.keys)))
            at = following(at)
        return items

    def shape(self) -> Tree:
        """The tree as the model has it. O(all)."""
        return shape_of(self._root)

    def load(self, tree: Tree) -> None:
        """Takes over the model's tree, without entries. O(all)."""
        self._root = linked(tree, None)

    def check(self) -> list[str]:
        """Structural invariants that do not hold, one line each. O(all)."""
        wrong, links = [], links_of(self._root)
        if [link.time for link in links] != sorted({link.time for link in links}):
            wrong.append("the slots are not in order")
        if any(child.parent is not link for link in links for child in (link.left, link.right) if child is not None):
            wrong.append("a child does not know its parent")
        if any(abs(height(link.left) - height(link.right)) > 1 for link in links):
            wrong.append("the tree is not balanced")
        if not all(link.keys for link in links):
            wrong.append("a slot is empty")
        return wrong


def leftmost(link: Link) -> Link:
    """The first below a link."""
    while link.left is not None:
        link = link.left
    return link


def following(link: Link) -> Link | None:
    """The next one in order, by the links that this one has, whether or not it is still in the tree."""
    if link.right is not None:
        return leftmost(link.right)
    below, above = link, link.parent
    while above is not None and above.right is below:
        below, above = above, above.parent
    return above


def height(link: Link | None) -> int:
    """How many links the longest way down has."""
    return 0 if link is None else link.height


def measure(link: Link) -> None:
    """Sets a link's height by those of its children."""
    link.height = max(height(link.left), height(link.right)) + 1


def links_of(link: Link | None) -> list[Link]:
    """All links, in order."""
    return [] if link is None else [*links_of(link.left), link, *links_of(link.right)]


def shape_of(link: Link | None) -> Tree:
    """A part of the tree as the model has it."""
    return None if link is None else Node(link.time, link.height, shape_of(link.left), shape_of(link.right))


def linked(tree: Tree, parent: Link | None) -> Link | None:
    """A part of the model's tree as links."""
    if tree is None:
        return None
    link = Link(tree.time, parent)
    link.height = tree.height
    link.left, link.right = linked(tree.left, link), linked(tree.right, link)
    return link
