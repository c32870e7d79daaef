"""Claims about the heap of active cursors, for any size: heap order is preserved, and the first item is the slowest.

siftUp and siftDown are loops, proved by induction: while an item sifts up, only the order between it and its parent may
be violated; while it sifts down, only the order between it and its children.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.induction import Induction, Invariant, Names, follows
from invariants.proofs.symbolic import LoopEvaluator, Path, Reader, Rec, Seq, as_term, equal, ordered, unknown
from model.active_cursors import heap as cursor_heap
from model.active_cursors import machine as active_cursors
from model.active_cursors.heap import Item, Items
from model.active_cursors.machine import State
from model.positions import Position

HEAP = "model.active_cursors.heap"

#: An arbitrary weight for each cursor: if the sum of weights is unchanged for all weights, the cursors are the same.
#: Random heaps test that a cursor also keeps its position; this is not proved.
WEIGHTS = {"weight": lambda item: z3.Function("weight", z3.IntSort(), z3.IntSort())(item.fields["object"])}


def some_items(name: str) -> Seq:
    """Returns arbitrary items."""
    return Seq.unknown(Item, name, WEIGHTS)


def parent(index: Any) -> Any:
    """Returns the index of the parent."""
    return (index - 1) / 2


def in_order(items: Seq, upper: Any, lower: Any) -> Any:
    """Returns whether the position at the index `upper` is at or before the position at the index `lower`."""
    one, other = (items.at(as_term(index)).fields["position"] for index in (upper, lower))
    return ordered("<=", one, other)


def _has_parent(items: Seq, index: Any) -> Any:
    return z3.And(index > 0, index < items.length)


def is_heap(items: Seq, index: Any) -> Any:
    """Returns whether the item at an index is not before its parent, if it has one."""
    return z3.Implies(_has_parent(items, index), in_order(items, parent(index), index))


def is_heap_except_parent_of(items: Seq, hole: Any, index: Any) -> Any:
    """Returns whether the items are a heap at an index, except that the item at `hole` may be before its parent.

    The children of that item must not be before its parent.
    """
    up = parent(index)
    over_hole = z3.Implies(z3.And(up == hole, hole > 0), in_order(items, parent(hole), index))
    return z3.Implies(_has_parent(items, index), z3.And(z3.Implies(index != hole, is_heap(items, index)), over_hole))


def is_heap_except_children_of(items: Seq, hole: Any, index: Any) -> Any:
    """Returns whether the items are a heap at an index, except that the item at `hole` may be after its children.

    The children must not be before the parent of that item.
    """
    up = parent(index)
    over_hole = z3.Implies(z3.And(up == hole, hole > 0), in_order(items, parent(hole), index))
    elsewhere = z3.Implies(up != hole, is_heap(items, index))
    return z3.Implies(_has_parent(items, index), z3.And(elsewhere, over_hole))


# ---- siftUp and siftDown -----------------------------------------------------------------------------------

Shape = Callable[[Seq, Any, Any], Any]
#: the preconditions of siftUp and siftDown: a heap, except that the order at one index may be violated
SHAPES: dict[Callable[..., Any], Shape] = {
    cursor_heap.sifted_up: is_heap_except_parent_of,
    cursor_heap.sifted_down: is_heap_except_children_of,
}


def sift_restores_heap(proof: Proof, function: Callable[..., Any]) -> None:
    """Proves that siftUp or siftDown makes a heap of the same items, if the items are a heap except at the index."""
    shape = SHAPES[function]
    items, index = some_items("items"), z3.Int("at_first")
    head: dict[str, Any] = {"items": items, "heap": some_items("heap"), "index": z3.Int("index")}
    inside = [index >= 0, index < items.length]

    def holds_together(n: Names) -> Any:
        same = z3.And(n["heap"].length == items.length, n["heap"].total("weight") == items.total("weight"))
        return z3.And(n["index"] >= 0, n["index"] < n["heap"].length, same)

    given = [*inside, holds_together(head)]
    loop = Reader(given).loop(function)
    shaped = Invariant("a heap except at one index", lambda n, i: shape(n["heap"], n["index"], i), 1)
    induction = Induction(proof, loop, head, [Invariant("the same items", holds_together), shaped], inside)
    precondition = Invariant("", lambda n, i: shape(items, index, i), 1)
    induction.base_case(loop.begin(items, index), (precondition,))
    paths = [path for path in induction.step_case() if loop.reader.is_possible(path.when)]
    for end in induction.exit_paths(paths):
        after = end.value
        induction.show("a heap", end, lambda i, after=after: is_heap(after, i), [z3.Int("any0")])
        same = z3.And(after.length == items.length, after.total("weight") == items.total("weight"))
        induction.show("the same items", end, lambda same=same: same)
    kinds = {"heap": list[Item], "index": int}
    _compare_loop(proof, function, LoopEvaluator(loop.condition(head), loop.iteration(head), kinds))


def _compare_loop(proof: Proof, function: Callable[..., Any], loop: LoopEvaluator) -> None:
    """Compares the terms of the loop, evaluated for each iteration, with runs of the function."""
    for items, index, position, _ in heaps(30):
        changed = (*items[:index], items[index]._replace(position=position), *items[index + 1 :])
        left = loop.run({}, {"heap": changed, "index": index})
        proof.compare(f"{function.__name__} of {changed} at {index}", left["heap"], function(changed, index))


class SiftCall(NamedTuple):
    """A call of siftUp or siftDown: the function, its items and its index."""

    function: Callable[..., Any]
    items: Seq
    index: Any


def restores_heap(proof: Proof, what: str, paths: list[Path], items: Seq, more: Any, given: list[Any]) -> None:
    """Proves that every path ends in a heap, or in a call of siftUp or siftDown whose precondition holds.

    Also proves that the sum of weights is that of `items` plus `more`.
    """
    heap = Invariant("", lambda n, i: is_heap(items, i), 1)
    index = z3.Int("any0")
    for path in paths:
        if isinstance(path.value, SiftCall):
            function, after, hole = path.value
            goal, inside = SHAPES[function](after, hole, index), z3.And(hole >= 0, hole < after.length)
        else:
            after, inside = path.value, True
            goal = is_heap(after, index)
        known = [*given, *path.when]
        follows(proof, f"after {what}", lambda _, g=goal: g, [index], [heap], {}, known, (items, after))
        same = z3.And(as_term(inside), after.total("weight") == items.total("weight") + more)
        follows(proof, f"the items after {what}", lambda g=same: g, [], [heap], {}, known, (items, after))


def _recorders() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Returns stubs of siftUp and siftDown that record their arguments."""

    def stand_in(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda items, index: SiftCall(function, items, as_term(index))

    return {function: stand_in(function) for function in SHAPES}


def _weight(item: Rec) -> Any:
    return WEIGHTS["weight"](item)


@claim(
    "heap-removal-keeps-heap-order",
    "z3",
    "For a heap of any size and any of its items: the removal of the item puts the last item in its place. If the last "
    "item then may sift up as well as down, the result is a heap of all other items.",
    Control(
        "the shipped removal: the last item only sifts down",
        HEAP,
        "if only_sifts_down or index == 0 or rest[(index - 1) // 2].position <= last.position:",
        "if not only_sifts_down or index == 0 or rest[(index - 1) // 2].position <= last.position:",
        refutes="after a removal",
    ),
)
def removal_keeps() -> Answer:
    """ManagedCursorContainerImpl.removeCursor as recorded, which only sifts down."""
    proof = Proof()
    items, index = some_items("items"), z3.Int("index")
    given = [index >= 0, index < items.length]
    paths = Reader(given, stubs=_recorders()).paths(cursor_heap.removed, items, index, False)
    restores_heap(proof, "a removal", paths, items, -_weight(items.at(index)), given)
    for function in SHAPES:
        sift_restores_heap(proof, function)
    for some, at, _, _ in heaps(300):
        after = cursor_heap.removed(some, at, False)
        others = sorted((*some[:at], *some[at + 1 :]))
        proof.run(f"without the item at {at}", is_concrete_heap(after) and sorted(after) == others, plain(some))
    return proof.answer()


@claim(
    "heap-additions-and-moves-keep-heap-order",
    "z3",
    "For a heap of any size: the addition of an item gives a heap of the same items and the new one. A move of any "
    "item to any position gives a heap of the same items.",
    Control(
        "the right child moves up, also if the left one is slower",
        HEAP,
        "slower = left if heap[left].position < heap[right].position else right",
        "slower = right",
        refutes="after an iteration, a heap except at one index",
    ),
)
def changes_keep() -> Answer:
    """ManagedCursorContainerImpl as recorded."""
    proof = Proof()
    items, index, item = some_items("items"), z3.Int("index"), unknown(Item, "item", item=True)
    given = [items.length >= 0]
    paths = Reader(given, stubs=_recorders()).paths(cursor_heap.pushed, items, item)
    restores_heap(proof, "an addition", paths, items, _weight(item), given)
    given = [index >= 0, index < items.length]
    paths = Reader(given, stubs=_recorders()).paths(cursor_heap.moved, items, index, unknown(Position, "position"))
    restores_heap(proof, "a move", paths, items, 0, given)
    for function in SHAPES:
        sift_restores_heap(proof, function)
    for some, at, position, number in heaps(300):
        after, new = cursor_heap.pushed(some, Item(position, number, number)), Item(position, number, number)
        proof.run(f"with {new}", is_concrete_heap(after) and sorted(after) == sorted((*some, new)), plain(some))
        after = cursor_heap.moved(some, at, position)
        moved = (*some[:at], some[at]._replace(position=position), *some[at + 1 :])
        proof.run(f"{at} moved to {position}", is_concrete_heap(after) and sorted(after) == sorted(moved), plain(some))
    return proof.answer()


@claim(
    "heap-first-item-is-slowest",
    "z3",
    "For a heap of any size: the slowest position is that of an item, and at or before that of every item. It is None "
    "only if the heap is empty.",
    Control(
        "the last item is returned",
        "model.active_cursors.machine",
        "return s.items[0].position if s.items else None",
        "return s.items[-1].position if s.items else None",
        refutes="the top is the first in order",
    ),
)
def first_is_slowest() -> Answer:
    """`ManagedCursorContainerImpl.getSlowestCursorPosition` (eviction before PIP-430)."""
    proof, reader = Proof(), Reader()
    s, items, index = unknown(State, "s"), some_items("items"), z3.Int("index")
    s = s.replace({"nodes": None, "items": items})
    slowest = reader.call(active_cursors.shipped_slowest, s)
    proof.show(
        "defined if and only if there are items",
        slowest.defined == (items.length > 0),
        [items.length >= 0],
        direct=True,
    )
    first = equal(slowest.value, items.at(z3.IntVal(0)).fields["position"])
    proof.show("the top is the first in order", z3.Implies(items.length > 0, as_term(first)), [items.length >= 0])
    ancestors = [is_heap(items, index), index > 0, index < items.length]  # by induction over the ancestors
    bound = in_order(items, z3.IntVal(0), parent(index))
    proof.possible("an item with a parent", [*ancestors, bound])
    goal = in_order(items, z3.IntVal(0), index)
    proof.lemma("a top that is before a parent is before its child", goal, [*ancestors, bound])
    proof.lemma("the parent has a smaller index", z3.And(parent(index) >= 0, parent(index) < index), [index > 0])
    start = active_cursors.start(active_cursors.recorded_heap.config)
    for some, *_ in heaps(200):
        found = active_cursors.shipped_slowest(start._replace(items=some))
        proof.run(f"slowest {found}", found == min(some).position, plain(some))
    proof.run("no items", active_cursors.shipped_slowest(start) is None)
    return proof.answer()


# ---- random heaps ----------------------------------------------------------------------------------------


def heaps(count: int) -> Iterator[tuple[Items, int, Position, int]]:
    """Yields heaps of 1 to 12 items, with an index, a position and an unused object number; always the same."""
    draw = random.Random(26629)  # noqa: S311
    for _ in range(count):
        size = draw.randint(1, 12)
        items = [Item(Position(1, draw.randint(0, 15)), number, number) for number in range(size)]
        for index in range(size):  # in order of indices, so that each parent is final
            if index and items[(index - 1) // 2].position > items[index].position:
                items[index] = items[index]._replace(position=items[(index - 1) // 2].position)
        yield tuple(items), draw.randrange(size), Position(1, draw.randint(0, 15)), size


def is_concrete_heap(items: Items) -> bool:
    """Returns whether concrete items are a heap."""
    return all(items[(i - 1) // 2].position <= items[i].position for i in range(1, len(items)))


def plain(items: Items) -> list[int]:
    """Returns the entry ids, for messages."""
    return [item.position.entry for item in items]
