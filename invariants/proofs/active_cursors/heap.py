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

#: Any whole number for each cursor: items whose sum stays the same, whatever the numbers, are the same items.
WEIGHTS = {"weight": lambda item: z3.Function("weight", z3.IntSort(), z3.IntSort())(item.fields["object"])}


def some_items(name: str) -> Seq:
    """Any items."""
    return Seq.unknown(Item, name, WEIGHTS)


def above(place: Any) -> Any:
    """The place above another."""
    return (place - 1) / 2


def in_order(items: Seq, upper: Any, lower: Any) -> Any:
    """The item at the upper place does not stand behind the one at the lower place."""
    one, other = (items.at(as_term(place)).fields["position"] for place in (upper, lower))
    return ordered("<=", one, other)


def _below_the_first(items: Seq, place: Any) -> Any:
    return z3.And(place > 0, place < items.length)


def is_heap(items: Seq, place: Any) -> Any:
    """At this place all is in order with the one above."""
    return z3.Implies(_below_the_first(items, place), in_order(items, above(place), place))


def is_heap_but_above(items: Seq, hole: Any, place: Any) -> Any:
    """A heap, but that the item at the hole may be faster than the one above; those below it know that one, too."""
    up = above(place)
    over_hole = z3.Implies(z3.And(up == hole, hole > 0), in_order(items, above(hole), place))
    return z3.Implies(
        _below_the_first(items, place), z3.And(z3.Implies(place != hole, is_heap(items, place)), over_hole)
    )


def is_heap_but_below(items: Seq, hole: Any, place: Any) -> Any:
    """A heap, but that the item at the hole may be slower than those below, which are in order with the one above."""
    up = above(place)
    over_hole = z3.Implies(z3.And(up == hole, hole > 0), in_order(items, above(hole), place))
    elsewhere = z3.Implies(up != hole, is_heap(items, place))
    return z3.Implies(_below_the_first(items, place), z3.And(elsewhere, over_hole))


# ---- siftUp and siftDown -----------------------------------------------------------------------------------

Shape = Callable[[Seq, Any, Any], Any]
#: the precondition of each: a heap except at one index
SHAPES: dict[Callable[..., Any], Shape] = {
    cursor_heap.sifted_up: is_heap_but_above,
    cursor_heap.sifted_down: is_heap_but_below,
}


def puts_in_order(proof: Proof, function: Callable[..., Any]) -> None:
    """Shows that siftUp or siftDown turns a heap except at one index into a heap of the same items."""
    shape = SHAPES[function]
    items, place = some_items("items"), z3.Int("at_first")
    head: dict[str, Any] = {"items": items, "heap": some_items("heap"), "index": z3.Int("index")}
    inside = [place >= 0, place < items.length]

    def holds_together(n: Names) -> Any:
        same = z3.And(n["heap"].length == items.length, n["heap"].total("weight") == items.total("weight"))
        return z3.And(n["index"] >= 0, n["index"] < n["heap"].length, same)

    given = [*inside, holds_together(head)]
    loop = Reader(given).loop(function)
    shaped = Invariant("a heap except at one index", lambda n, i: shape(n["heap"], n["index"], i), 1)
    induction = Induction(proof, loop, head, [Invariant("the same items", holds_together), shaped], inside)
    handed_in = Invariant("", lambda n, i: shape(items, place, i), 1)
    induction.begins(loop.begin(items, place), (handed_in,))
    ways = [way for way in induction.goes_round() if loop.reader.can_be(way.when)]
    for end in induction.ends(ways):
        after = end.value
        induction.show("a heap", end, lambda i, after=after: is_heap(after, i), [z3.Int("any0")])
        same = z3.And(after.length == items.length, after.total("weight") == items.total("weight"))
        induction.show("the same items", end, lambda same=same: same)
    kinds = {"heap": list[Item], "index": int}
    _against_rounds(proof, function, LoopEvaluator(loop.goes_on(head), loop.round(head), kinds))


def _against_rounds(proof: Proof, function: Callable[..., Any], rounds: LoopEvaluator) -> None:
    """Compares the loop with what it runs to, by working its terms out round by round."""
    for items, place, position, _ in heaps(30):
        changed = (*items[:place], items[place]._replace(position=position), *items[place + 1 :])
        left = rounds.run({}, {"heap": changed, "index": place})
        proof.compare(f"{function.__name__} of {changed} at {place}", left["heap"], function(changed, place))


class Handed(NamedTuple):
    """What a function hands to siftUp or siftDown."""

    function: Callable[..., Any]
    items: Seq
    place: Any


def ends_in_order(proof: Proof, what: str, ways: list[Path], items: Seq, more: Any, given: list[Any]) -> None:
    """Shows that every way ends in a heap, or hands one but for one place on; and that `more` has come to the sum."""
    heap = Invariant("", lambda n, i: is_heap(items, i), 1)
    place = z3.Int("any0")
    for way in ways:
        if isinstance(way.value, Handed):
            function, after, hole = way.value
            goal, inside = SHAPES[function](after, hole, place), z3.And(hole >= 0, hole < after.length)
        else:
            after, inside = way.value, True
            goal = is_heap(after, place)
        known = [*given, *way.when]
        follows(proof, f"after {what}", lambda _, g=goal: g, [place], [heap], {}, known, (items, after))
        same = z3.And(as_term(inside), after.total("weight") == items.total("weight") + more)
        follows(proof, f"the items after {what}", lambda g=same: g, [], [heap], {}, known, (items, after))


def _handing() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Stand-ins that say what is handed to siftUp and siftDown."""

    def stand_in(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda items, place: Handed(function, items, as_term(place))

    return {function: stand_in(function) for function in SHAPES}


def _weight(item: Rec) -> Any:
    return WEIGHTS["weight"](item)


@claim(
    "heap-removal-keeps-heap-order",
    "z3",
    "For a heap of any size and any of its items: after the removal of the item, if the last item may sift up as well "
    "as down, the rest is a heap of all other items.",
    Control(
        "the shipped removal: the last item only sifts down",
        HEAP,
        "if only_sifts_down or index == 0 or rest[(index - 1) // 2].position <= last.position:",
        "if not only_sifts_down or index == 0 or rest[(index - 1) // 2].position <= last.position:",
        refutes="after a removal",
    ),
)
def removal_keeps() -> Answer:
    """Source: ManagedCursorContainerImpl.removeCursor as recorded, which only sifts down."""
    proof = Proof()
    items, place = some_items("items"), z3.Int("place")
    given = [place >= 0, place < items.length]
    ways = Reader(given, stubs=_handing()).paths(cursor_heap.removed, items, place, False)
    ends_in_order(proof, "a removal", ways, items, -_weight(items.at(place)), given)
    for function in SHAPES:
        puts_in_order(proof, function)
    for some, at, _, _ in heaps(300):
        after = cursor_heap.removed(some, at, False)
        others = sorted((*some[:at], *some[at + 1 :]))
        proof.run(f"without the item at {at}", runs_in_order(after) and sorted(after) == others, plain(some))
    return proof.answer()


@claim(
    "heap-additions-and-moves-keep-heap-order",
    "z3",
    "For a heap of any size: after an addition and after a move of any item to any position, it is a heap of the same "
    "items, and of the new one after an addition.",
    Control(
        "of two slower children, the right one moves up",
        HEAP,
        "slower = left if heap[left].position < heap[right].position else right",
        "slower = right",
        refutes="after a round, a heap except at one index",
    ),
)
def changes_keep() -> Answer:
    """Source: ManagedCursorContainerImpl as recorded."""
    proof = Proof()
    items, place, item = some_items("items"), z3.Int("place"), unknown(Item, "item", item=True)
    given = [items.length >= 0]
    ways = Reader(given, stubs=_handing()).paths(cursor_heap.pushed, items, item)
    ends_in_order(proof, "an addition", ways, items, _weight(item), given)
    given = [place >= 0, place < items.length]
    ways = Reader(given, stubs=_handing()).paths(cursor_heap.moved, items, place, unknown(Position, "position"))
    ends_in_order(proof, "a move", ways, items, 0, given)
    for function in SHAPES:
        puts_in_order(proof, function)
    for some, at, position, number in heaps(300):
        after, new = cursor_heap.pushed(some, Item(position, number, number)), Item(position, number, number)
        proof.run(f"with {new}", runs_in_order(after) and sorted(after) == sorted((*some, new)), plain(some))
        after = cursor_heap.moved(some, at, position)
        moved = (*some[:at], some[at]._replace(position=position), *some[at + 1 :])
        proof.run(f"{at} moved to {position}", runs_in_order(after) and sorted(after) == sorted(moved), plain(some))
    return proof.answer()


@claim(
    "heap-first-item-is-slowest",
    "z3",
    "For a heap of any size: its slowest position is the position of an item and at or before that of every item, and "
    "is None only if the heap is empty.",
    Control(
        "the last item is returned",
        "model.active_cursors.machine",
        "return s.items[0].position if s.items else None",
        "return s.items[-1].position if s.items else None",
        refutes="it is the first",
    ),
)
def first_is_slowest() -> Answer:
    """Entries before the slowest position have been read by all cursors (eviction before PIP-430)."""
    proof, reader = Proof(), Reader()
    s, items, place = unknown(State, "s"), some_items("items"), z3.Int("place")
    s = s.replace({"nodes": None, "items": items})
    slowest = reader.call(active_cursors.shipped_slowest, s)
    proof.show("there is one", slowest.defined == (items.length > 0), [items.length >= 0], direct=True)
    first = equal(slowest.value, items.at(z3.IntVal(0)).fields["position"])
    proof.show("it is the first", z3.Implies(items.length > 0, as_term(first)), [items.length >= 0])
    all_above = [is_heap(items, place), place > 0, place < items.length]  # by induction over the places above
    bound = in_order(items, z3.IntVal(0), above(place))
    proof.possible("a place below another", [*all_above, bound])
    proof.lemma("the first, one further below", in_order(items, z3.IntVal(0), place), [*all_above, bound])
    proof.lemma("above is nearer", z3.And(above(place) >= 0, above(place) < place), [place > 0])
    start = active_cursors.start(active_cursors.recorded_heap.config)
    for some, *_ in heaps(200):
        found = active_cursors.shipped_slowest(start._replace(items=some))
        proof.run(f"slowest {found}", found == min(some).position, plain(some))
    proof.run("nobody", active_cursors.shipped_slowest(start) is None)
    return proof.answer()


# ---- running heaps ----------------------------------------------------------------------------------------


def heaps(count: int) -> Iterator[tuple[Items, int, Position, int]]:
    """Heaps of one to twelve, always the same; each with one of its places, a position, and a number that is free."""
    draw = random.Random(26629)  # noqa: S311
    for _ in range(count):
        size = draw.randint(1, 12)
        items = [Item(Position(1, draw.randint(0, 15)), number, number) for number in range(size)]
        for place in range(size):  # in the order of places, so that each is behind the one above
            if place and items[(place - 1) // 2].position > items[place].position:
                items[place] = items[place]._replace(position=items[(place - 1) // 2].position)
        yield tuple(items), draw.randrange(size), Position(1, draw.randint(0, 15)), size


def runs_in_order(items: Items) -> bool:
    """Whether running items are a heap."""
    return all(items[(i - 1) // 2].position <= items[i].position for i in range(1, len(items)))


def plain(items: Items) -> list[int]:
    """A heap as a person reads it: the entry ids."""
    return [item.position.entry for item in items]


claims = (removal_keeps, changes_keep, first_is_slowest)
