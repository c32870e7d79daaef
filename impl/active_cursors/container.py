"""Active cursors, with structures whose cost is right.

The same behaviour as `model/active_cursors/machine.py`. The definition is kept by an order of our own, which needs no flush
and no rebuild:

    order     the positions of all tracked cursors, one each, sorted, in some 64 to 128 blocks, however many there are
    move      two binary searches; a cursor that passes nobody is changed where it stands, any other leaves its block
              and comes into another
    rank      the sizes of the blocks before its own, and a binary search in that one
    slowest   the first of all

The containers that are shipped are in `impl/active_cursors/linked_list.py` and `impl/active_cursors/heap.py`, with the costs that theirs
have. Complexities below count dictionary operations as one, and so the shift of a block in memory, of n/64 words at
most; n are the tracked cursors.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from typing import Any, Protocol

from impl.active_cursors.heap import CursorHeap, CursorSet
from impl.active_cursors.linked_list import LazyList
from model.active_cursors.heap import Items
from model.active_cursors.linked_list import CursorList
from model.active_cursors.machine import Config, Cursor, Found, Slowest, State
from model.machine import Failed, Refused
from model.positions import Position

#: A block never holds more than this, and one more for so many keys; it splits in half.
_LEAST_CAPACITY, _BLOCKS = 4, 64
#: Entry ids from minus this to this, exclusive, are told apart in one number with their ledger.
_HALF = 2**63


class Order:
    """Keys in order, equal ones included, in blocks."""

    __slots__ = ("_blocks", "_ends", "_sizes", "_total")

    def __init__(self, keys: Iterable[Any] = ()) -> None:
        self._blocks: list[list[Any]] = []
        self._ends: list[Any] = []  # the last key of each block
        self._sizes: list[int] = []
        self._total = 0
        ordered = sorted(keys)
        length = max(_LEAST_CAPACITY, len(ordered) // _BLOCKS) * 3 // 4
        for start in range(0, len(ordered), length):
            block = ordered[start : start + length]
            self._blocks.append(block)
            self._ends.append(block[-1])
            self._sizes.append(len(block))
        self._total = len(ordered)

    def __len__(self) -> int:
        return self._total

    def first(self) -> Any:
        """The smallest key, which there must be. O(1)."""
        return self._blocks[0][0]

    def rank(self, key: Any) -> int:
        """How many keys are as small as this one or smaller. O(log n), and a sum over the blocks before its own."""
        at = bisect_right(self._ends, key)
        before = sum(self._sizes[:at])
        return before + bisect_right(self._blocks[at], key) if at < len(self._ends) else before

    def add(self, key: Any) -> None:
        """Another key. O(log n)."""
        self._total += 1
        if not self._blocks:
            self._blocks, self._ends, self._sizes = [[key]], [key], [1]
            return
        at = bisect_right(self._ends, key)
        if at == len(self._ends):
            at -= 1
            self._ends[at] = key
            self._blocks[at].append(key)
        else:
            insort(self._blocks[at], key)
        self._sizes[at] += 1
        if self._sizes[at] > self._capacity():
            self._split(at)

    def remove(self, key: Any) -> None:
        """One key fewer; it must be there. O(log n)."""
        at = bisect_left(self._ends, key)
        self._take(at, bisect_left(self._blocks[at], key))

    def move(self, old: Any, new: Any) -> None:
        """A key becomes another one. O(log n); O(1) after the searches where it passes no other."""
        at = bisect_left(self._ends, old)
        block = self._blocks[at]
        place = bisect_left(block, old)
        if (block[place - 1] <= new if place else at == 0) and place + 1 < len(block) and new <= block[place + 1]:
            block[place] = new
            return
        self._take(at, place)
        self.add(new)

    def _capacity(self) -> int:
        return _LEAST_CAPACITY + self._total // _BLOCKS

    def _take(self, at: int, place: int) -> None:
        """Takes a key out of its block. With a neighbour that has room for both in half a block, it becomes one."""
        self._total -= 1
        block = self._blocks[at]
        del block[place]
        self._sizes[at] -= 1
        if not block:
            del self._blocks[at], self._ends[at], self._sizes[at]
            return
        self._ends[at] = block[-1]
        beside = at - 1 if at else 1
        if beside < len(self._sizes) and self._sizes[at] + self._sizes[beside] <= self._capacity() // 2:
            self._join(min(at, beside))

    def _split(self, at: int) -> None:
        block = self._blocks[at]
        half = len(block) // 2
        self._blocks[at : at + 1] = [block[:half], block[half:]]
        self._ends[at : at + 1] = [block[half - 1], block[-1]]
        self._sizes[at : at + 1] = [half, len(block) - half]

    def _join(self, at: int) -> None:
        """The block after this one becomes part of it."""
        joined = self._blocks[at] + self._blocks[at + 1]
        self._blocks[at : at + 2] = [joined]
        self._ends[at : at + 2] = [joined[-1]]
        self._sizes[at : at + 2] = [len(joined)]

    def keys(self) -> list[Any]:
        """All keys in order. O(n)."""
        return [key for block in self._blocks for key in block]

    def check(self) -> list[str]:
        """Structural invariants that do not hold, one line each. O(n)."""
        wrong = []
        if self.keys() != sorted(self.keys()):
            wrong.append("the keys are not in order")
        if not all(self._blocks) or self._ends != [block[-1] for block in self._blocks if block]:
            wrong.append("a block is empty, or its last key is not the one that is known")
        if self._sizes != [len(block) for block in self._blocks] or self._total != sum(self._sizes):
            wrong.append("the keys are not as many as they are believed to be")
        if any(size > self._capacity() + _LEAST_CAPACITY for size in self._sizes) and self._total < _BLOCKS:
            wrong.append("a block is too full")
        return wrong


class Slot:
    """An active cursor, and whatever its container knows it by."""

    __slots__ = ("cursor", "durable", "key", "object", "position")

    def __init__(self, cursor: int, position: Position | None, durable: bool, object: int) -> None:
        self.cursor = cursor
        self.position = position
        self.durable = durable
        self.object = object
        self.key: Any = None


class Container(Protocol):
    """How the positions of cursors are kept. `slot.position` is already the new one."""

    def add(self, slot: Slot, old: Slot | None, /) -> None:
        """A cursor was added, in the place of an old one if there was one of its name."""

    def move(self, slot: Slot, old: Position | None, /) -> None:
        """A cursor was at the old position."""

    def remove(self, slot: Slot, left: int, /) -> None:
        """A cursor was removed; so many are left."""

    def rank(self, slot: Slot | None, /) -> int | None:
        """The cursor's rank; None if it has none although it should."""

    def slowest(self) -> Position | None:
        """The smallest position."""

    def check(self, slots: Iterable[Slot], /) -> list[str]:
        """Structural invariants that do not hold, one line each."""

    def nodes(self) -> CursorList | None:
        """What the model's list keeps in mind."""

    def items(self) -> Items:
        """What the model's heap or set keeps in mind."""

    def load(self, slots: Iterable[Slot], state: State, /) -> None:
        """Takes over a state of the model."""


def unpacked(key: int) -> Position:
    """The position that is packed in a number."""
    ledger = (key + _HALF) >> 64
    return Position(ledger, key - (ledger << 64))


class InOrder:
    """The definition, kept in an order of positions.

    A key is the position as one number, which compares faster than a pair. The first position whose entry id does not
    fit that makes all keys pairs from then on.
    """

    def __init__(self) -> None:
        self._order = Order()
        self._slots: dict[Slot, None] = {}  # the tracked ones
        self._is_wide = False

    def _key(self, position: Position) -> Any:
        ledger, entry = position
        if self._is_wide:
            return position
        if -_HALF <= entry < _HALF:
            return (ledger << 64) + entry
        self._is_wide = True
        for slot in self._slots:
            slot.key = unpacked(slot.key)
        self._order = Order(slot.key for slot in self._slots)
        return position

    def add(self, slot: Slot, old: Slot | None) -> None:
        """O(log n)."""
        if old is not None:
            self._forget(old)
        if slot.position is not None:
            slot.key = self._key(slot.position)
            self._slots[slot] = None
            self._order.add(slot.key)

    def move(self, slot: Slot, old: Position | None) -> None:
        """O(log n)."""
        if slot.position is None or old is None:
            self._forget(slot)
            self.add(slot, None)
            return
        key = self._key(slot.position)
        self._order.move(slot.key, key)
        slot.key = key

    def remove(self, slot: Slot, _left: int) -> None:
        """O(log n)."""
        self._forget(slot)

    def _forget(self, slot: Slot) -> None:
        if slot in self._slots:
            del self._slots[slot]
            self._order.remove(slot.key)

    def rank(self, slot: Slot | None) -> int:
        """O(log n), and a sum over the blocks before its own."""
        return 0 if slot is None or slot.position is None else self._order.rank(slot.key)

    def slowest(self) -> Position | None:
        """O(1)."""
        if not len(self._order):
            return None
        first: Position | int = self._order.first()
        return unpacked(first) if isinstance(first, int) else first

    def check(self, slots: Iterable[Slot]) -> list[str]:
        """O(n log n)."""
        wrong = self._order.check()
        keys = sorted(self._key(slot.position) for slot in slots if slot.position is not None)
        if self._order.keys() != keys:
            wrong.append("the order does not hold the position of each tracked cursor, each once")
        return wrong

    def nodes(self) -> None:
        """Nothing lazy is here."""
        return

    def items(self) -> Items:
        """Nothing that the model names."""
        return ()

    def load(self, slots: Iterable[Slot], _state: State) -> None:
        """O(n log n)."""
        for slot in slots:
            self.add(slot, None)


class ActiveCursors:
    """The active cursors of a topic. Methods are named as the actions."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self.now_ms = cfg.start_ms
        self._cursors: dict[int, Slot] = {}
        self._last_removal_ms = cfg.start_ms
        self._next_object = 1
        self._version = 0
        self._durables = 0
        self._only_brokers_calls = {"any": False, "of_the_broker": True}[cfg.calls]
        self._kept = container_of(cfg)

    # ---- cursors come, move and go

    def add_cursor(self, cursor: int, position: Position | None, durable: bool) -> int | Refused:
        """Adds a cursor under a name. As the container's."""
        old = self._cursors.get(cursor)
        if old is not None and self._only_brokers_calls:
            return Refused("illegal_argument", "the broker looks for the cursor before it adds one")
        number = self._next_object
        slot = Slot(cursor, position, durable, number)
        self._cursors[cursor] = slot
        self._next_object = number + 1
        self._version += 1
        if durable:
            self._durables += 1
        if old is not None and old.durable and not self.cfg.adding_leaves_old_item:
            self._durables -= 1
        self._kept.add(slot, old)
        return number

    def update_cursor(self, cursor: int, position: Position | None) -> Refused | None:
        """Moves a cursor. As the container's."""
        slot, refusal = self._to_move(cursor, position)
        if slot is None:
            return refusal
        old, slot.position = slot.position, position
        self._version += 1
        self._kept.move(slot, old)
        return None

    def _to_move(self, cursor: int, position: Position | None) -> tuple[Slot | None, Refused | None]:
        """The cursor that an update moves, if it is one that can be moved, or why the update is refused. O(1)."""
        if position is None and self._only_brokers_calls:
            return None, Refused("illegal_argument", "the broker takes no position away")
        slot = self._cursors.get(cursor)
        if slot is None or (slot.position is None and not self.cfg.update_begins_tracking):
            return None, None
        if position is None and self.cfg.container == "heap":
            return None, Refused("null_pointer", "a heap cannot compare a missing position")
        return slot, None

    def cursor_updated(self, cursor: int, position: Position | None) -> Slowest | Refused | None:
        """Moves a cursor, and tells the slowest position before and after. As the container's."""
        if not self.cfg.tells_slowest:
            return Refused("unsupported", "the list is brought up to date lazily and does not know")
        slot, refusal = self._to_move(cursor, position)
        if slot is None:
            return refusal
        previous = self._kept.slowest()
        self.update_cursor(cursor, position)
        return Slowest(previous, self._kept.slowest())

    def remove_cursor(self, cursor: int) -> bool:
        """Removes a cursor. As the container's."""
        slot = self._cursors.pop(cursor, None)
        if slot is None:
            return False
        self._last_removal_ms = self.now_ms
        self._version += 1
        self._durables -= slot.durable
        self._kept.remove(slot, len(self._cursors))
        return True

    def remove_while_iterating(self, cursor: int) -> Refused | Failed:
        """Fails at a cursor that is there. O(1)."""
        if cursor not in self._cursors:
            return Refused("illegal_state", "the iteration does not come to this cursor")
        return Failed("illegal_argument", "a cursor is removed by its name, not by the iterator")

    # ---- questions

    def get_cursor(self, cursor: int) -> Found | None:
        """The cursor of a name. O(1)."""
        slot = self._cursors.get(cursor)
        return None if slot is None else Found(cursor, slot.object)

    def number_at_same_position_or_before(self, cursor: int) -> int | Refused | Failed:
        """The rank of a cursor. As the container's."""
        if not self.cfg.counts_cursors:
            return Refused("unsupported", "the heap does not count")
        rank = self._kept.rank(self._cursors.get(cursor))
        if rank is None:
            return Failed("null_pointer", "the cursor has a position in the list and was never counted")
        return rank

    def slowest_position(self) -> Position | None:
        """The smallest tracked position. As the container's."""
        return self._kept.slowest()

    def size(self) -> int:
        """How many cursors there are. O(1)."""
        return len(self._cursors)

    def should_cache_added_entries(self) -> bool:
        """Whether new entries are cached. O(1)."""
        return bool(self._cursors) or 0 < self.cfg.grace_ms > self.now_ms - self._last_removal_ms

    def advance(self, millis: int) -> None:
        """Time passes. O(1)."""
        self.now_ms += millis

    # ---- for the engines

    def check(self) -> list[str]:
        """Structural invariants that do not hold, one line each. O(all)."""
        wrong = self._kept.check(self._cursors.values())
        if any(slot.cursor != name for name, slot in self._cursors.items()):
            wrong.append("a cursor does not stand under its own name")
        if any(slot.object >= self._next_object for slot in self._cursors.values()):
            wrong.append("a cursor has a number that was not given yet")
        if self._last_removal_ms > self.now_ms:
            wrong.append("the last removal is still to come")
        durables = sum(slot.durable for slot in self._cursors.values())
        if durables != self._durables and not self.cfg.adding_leaves_old_item:
            wrong.append("the durable cursors are not as many as they are believed to be")
        return wrong

    def view(self) -> State:
        """The model's state of which this is an implementation. O(all)."""
        cursors = self._cursors
        return State(
            self.now_ms,
            tuple([_cursor(cursors[name]) for name in sorted(cursors)]),
            self._last_removal_ms,
            self._next_object,
            self._version,
            self._durables,
            self._kept.nodes(),
            self._kept.items(),
        )

    @classmethod
    def load(cls, cfg: Config, state: State) -> ActiveCursors:
        """An implementation in the given state of the model. O(all)."""
        self = cls(cfg)
        self.now_ms = state.now_ms
        self._last_removal_ms = state.last_removal_ms
        self._next_object = state.next_object
        self._version = state.version
        self._durables = state.durables
        self._cursors = {c.cursor: Slot(*c) for c in state.cursors}
        self._kept.load(list(self._cursors.values()), state)
        return self


def container_of(cfg: Config) -> Container:
    """What keeps the positions under a config."""
    if cfg.container == "linked_list":
        return LazyList(cfg)
    if cfg.container == "heap":
        return CursorHeap(cfg)
    return CursorSet(cfg) if cfg.container == "sorted_set" else InOrder()


def _cursor(slot: Slot) -> Cursor:
    return Cursor(slot.cursor, slot.position, slot.durable, slot.object)
