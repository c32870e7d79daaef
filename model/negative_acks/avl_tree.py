"""AVL tree of bucket times that the Go client walks while it removes keys (gods 1.18, `avltree.Iterator`).

A walk is the loop in `negativeAcksTracker.track` since apache/pulsar-client-go#1410, which removes each key that it
visits. A removal can move the iterator past due keys; the walk skips their buckets. The shape of the tree determines
which keys are skipped.

    node with a right child       the removal copies the successor's key into the node; the iterator then continues with
                                  the key after the successor's
    node without a right child    the removal unlinks the node; the iterator continues with the key of the node's parent
    end of the walk               the key with which the iterator would continue is not due, or does not exist

A tree is nested tuples; the empty tree is None.
"""

from __future__ import annotations

from typing import NamedTuple, Union

from model.values import record

Tree = Union["Node", None]


@record
class Node(NamedTuple):
    """A key with the smaller keys to its left and the larger keys to its right."""

    time: int
    height: int
    left: Tree
    right: Tree


def height(tree: Tree) -> int:
    """Returns the height of a tree: the number of nodes on its longest path from the root."""
    return 0 if tree is None else tree.height


def balanced(time: int, left: Tree, right: Tree) -> Node:
    """Returns the tree with this key and these subtrees, rotated if the heights of the subtrees differ by two."""
    if height(left) > height(right) + 1 and left is not None:
        if height(left.left) < height(left.right):
            left = rotated_left(left)
        return rotated_right(node(time, left, right))
    if height(right) > height(left) + 1 and right is not None:
        if height(right.right) < height(right.left):
            right = rotated_right(right)
        return rotated_left(node(time, left, right))
    return node(time, left, right)


def node(time: int, left: Tree, right: Tree) -> Node:
    """Returns the node with this key and these subtrees. Does not rotate."""
    return Node(time, max(height(left), height(right)) + 1, left, right)


def rotated_left(tree: Node) -> Node:
    """Returns the tree with the right child as its root."""
    root = tree.right
    assert root is not None
    return node(root.time, node(tree.time, tree.left, root.left), root.right)


def rotated_right(tree: Node) -> Node:
    """Returns the tree with the left child as its root."""
    root = tree.left
    assert root is not None
    return node(root.time, root.left, node(tree.time, root.right, tree.right))


def inserted(tree: Tree, time: int) -> Node:
    """Returns the tree with a key added; unchanged if the tree has the key. O(log n)."""
    if tree is None:
        return node(time, None, None)
    if time == tree.time:
        return tree
    if time < tree.time:
        return balanced(tree.time, inserted(tree.left, time), tree.right)
    return balanced(tree.time, tree.left, inserted(tree.right, time))


def removed(tree: Tree, time: int) -> Tree:
    """Returns the tree with a key removed. The key must be present. O(log n)."""
    assert tree is not None
    if time < tree.time:
        return balanced(tree.time, removed(tree.left, time), tree.right)
    if time > tree.time:
        return balanced(tree.time, tree.left, removed(tree.right, time))
    if tree.right is None:
        return tree.left
    successor = first(tree.right)
    return balanced(successor, tree.left, removed(tree.right, successor))


def first(tree: Node) -> int:
    """Returns the smallest key of a tree."""
    return tree.time if tree.left is None else first(tree.left)


def after(tree: Tree, time: int) -> int | None:
    """Returns the smallest key larger than `time`, or None."""
    found = None
    while tree is not None:
        if time < tree.time:
            found, tree = tree.time, tree.left
        else:
            tree = tree.right
    return found


def walk(tree: Tree, now: int) -> tuple[tuple[int, ...], Tree]:
    """Returns the keys that a walk at time `now` removes, in removal order, and the remaining tree. O(n log n)."""
    removed_keys: list[int] = []
    at = None if tree is None else first(tree)
    while at is not None and at <= now:
        removed_keys.append(at)
        parent, has_right = parent_and_right(tree, at)
        successor = after(tree, at)
        tree = removed(tree, at)
        at = after(tree, successor) if has_right and successor is not None else parent
    return tuple(removed_keys), tree


def parent_and_right(tree: Tree, time: int) -> tuple[int | None, bool]:
    """Returns the key of a node's parent (None for the root), and whether the node has a right child."""
    parent = None
    while tree is not None and tree.time != time:
        parent, tree = tree.time, tree.left if time < tree.time else tree.right
    return parent, tree is not None and tree.right is not None


def shifted(tree: Tree, by: int) -> Tree:
    """Returns the tree with `by` added to every key."""
    return tree and Node(tree.time + by, tree.height, shifted(tree.left, by), shifted(tree.right, by))


def keys(tree: Tree) -> tuple[int, ...]:
    """Returns all keys in order."""
    return () if tree is None else (*keys(tree.left), tree.time, *keys(tree.right))
