"""The balanced tree that the Go client walks over while it removes what it meets.

Source: the shipped Go client, whose slots are an AVL tree (gods 1.18). A side model of `model/negative_acks/machine.py`: only
the tree's shape tells which due slots a walk leaves behind.

    a removed node with a right child takes over its successor's key: the walk, which stands on it, goes on after that
    a removed node without one leaves the tree: the walk goes on at what was its parent, be that before or after it
    the walk ends at a key that is not yet due, at a missing parent, or behind the last key

A tree is nested tuples, and None where there is nothing.
"""

from __future__ import annotations

from typing import NamedTuple, Union

from model.values import record

Tree = Union["Node", None]


@record
class Node(NamedTuple):
    """A key with the smaller ones to its left and the larger ones to its right."""

    time: int
    height: int
    left: Tree
    right: Tree


def height(tree: Tree) -> int:
    """How many nodes the longest way down has."""
    return 0 if tree is None else tree.height


def joined(time: int, left: Tree, right: Tree) -> Node:
    """A node of these parts, which may differ by two in height: then it is turned."""
    if height(left) > height(right) + 1 and left is not None:
        if height(left.left) < height(left.right):
            left = turned_left(left)
        return turned_right(node(time, left, right))
    if height(right) > height(left) + 1 and right is not None:
        if height(right.right) < height(right.left):
            right = turned_right(right)
        return turned_left(node(time, left, right))
    return node(time, left, right)


def node(time: int, left: Tree, right: Tree) -> Node:
    """A node of these parts."""
    return Node(time, max(height(left), height(right)) + 1, left, right)


def turned_left(tree: Node) -> Node:
    """The right child comes up."""
    up = tree.right
    assert up is not None
    return node(up.time, node(tree.time, tree.left, up.left), up.right)


def turned_right(tree: Node) -> Node:
    """The left child comes up."""
    up = tree.left
    assert up is not None
    return node(up.time, up.left, node(tree.time, up.right, tree.right))


def planted(tree: Tree, time: int) -> Node:
    """The tree with a key, which it may have already. O(log n)."""
    if tree is None:
        return node(time, None, None)
    if time == tree.time:
        return tree
    if time < tree.time:
        return joined(tree.time, planted(tree.left, time), tree.right)
    return joined(tree.time, tree.left, planted(tree.right, time))


def removed(tree: Tree, time: int) -> Tree:
    """The tree without a key, which it has. O(log n)."""
    assert tree is not None
    if time < tree.time:
        return joined(tree.time, removed(tree.left, time), tree.right)
    if time > tree.time:
        return joined(tree.time, tree.left, removed(tree.right, time))
    if tree.right is None:
        return tree.left
    successor = first(tree.right)
    return joined(successor, tree.left, removed(tree.right, successor))


def first(tree: Node) -> int:
    """The smallest key."""
    return tree.time if tree.left is None else first(tree.left)


def after(tree: Tree, time: int) -> int | None:
    """The smallest key that is larger, or None."""
    found = None
    while tree is not None:
        if time < tree.time:
            found, tree = tree.time, tree.left
        else:
            tree = tree.right
    return found


def walked(tree: Tree, now: int) -> tuple[tuple[int, ...], Tree]:
    """What a walk removes of the keys up to now, in its order, and the tree that it leaves behind. O(n log n)."""
    taken: list[int] = []
    at = None if tree is None else first(tree)
    while at is not None and at <= now:
        taken.append(at)
        above, has_right = around(tree, at)
        successor = after(tree, at)
        tree = removed(tree, at)
        at = after(tree, successor) if has_right and successor is not None else above
    return tuple(taken), tree


def around(tree: Tree, time: int) -> tuple[int | None, bool]:
    """The key of the parent of a key that is there, or None for the root; and whether it has a right child."""
    above = None
    while tree is not None and tree.time != time:
        above, tree = tree.time, tree.left if time < tree.time else tree.right
    return above, tree is not None and tree.right is not None


def moved(tree: Tree, by: int) -> Tree:
    """The same shape, all keys later by so much."""
    return tree and Node(tree.time + by, tree.height, moved(tree.left, by), moved(tree.right, by))


def keys(tree: Tree) -> tuple[int, ...]:
    """All keys in order."""
    return () if tree is None else (*keys(tree.left), tree.time, *keys(tree.right))
