"""Active cursors of a managed ledger, as an order-statistics container (PIP-430).

Implements the `reference` rules and all settings of `model/active_cursors`. A cursor with a position is tracked. An
`Order` has the positions of the tracked cursors as keys, duplicates included. The keys are sorted, in blocks:

    move      two binary searches find the old key. A new key between the old key's neighbours in the block replaces the
              old key; otherwise the old key is removed and the new key is added
    rank      the number of cursors at a position or before it: the sum of the sizes of the earlier blocks, and a binary
              search in the block of the position
    slowest   the first key

In the costs, n is the number of tracked cursors. Each of these counts as one step: a dictionary operation, shifting
the keys of one block in memory (about n/64 keys), shifting the references to the blocks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from typing import Any

from model.active_cursors.machine import Config, Cursor, Found, Slowest, State
from model.machine import Failed, Refused
from model.positions import Position

#: With n keys, the capacity of a block is `_LEAST_CAPACITY + n // _BLOCKS`: a large order has about `_BLOCKS` blocks or
#: more. A block that exceeds the capacity when a key is added is split in half.
_LEAST_CAPACITY, _BLOCKS = 4, 64
#: The key of a position is one number, ledger id * 2**64 + entry id, if the entry id is from -_HALF to _HALF - 1.
_HALF = 2**63


class Order:
    """A sorted multiset of keys, in blocks. No block is empty."""

    __slots__ = ("_blocks", "_last_keys", "_most", "_sizes", "_total")

    def __init__(self, keys: Iterable[Any] = ()) -> None:
        """Takes the keys in any order. O(n log n)."""
        self._blocks: list[list[Any]] = []
        self._last_keys: list[Any] = []  # the last key of each block
        self._sizes: list[int] = []  # the number of keys of each block
        ordered = sorted(keys)
        length = max(_LEAST_CAPACITY, len(ordered) // _BLOCKS) * 3 // 4  # keys in a new block: below the capacity
        for start in range(0, len(ordered), length):
            block = ordered[start : start + length]
            self._blocks.append(block)
            self._last_keys.append(block[-1])
            self._sizes.append(len(block))
        self._total = self._most = len(ordered)  # `_most` is the largest total so far, for `check`

    def __len__(self) -> int:
        return self._total

    def first(self) -> Any:
        """Returns the smallest key of a non-empty order. O(1)."""
        return self._blocks[0][0]

    def rank(self, key: Any) -> int:
        """Returns the number of keys that are at most `key`. O(log n + number of blocks)."""
        at = bisect_right(self._last_keys, key)
        before = sum(self._sizes[:at])
        return before + bisect_right(self._blocks[at], key) if at < len(self._last_keys) else before

    def add(self, key: Any) -> None:
        """Adds a key. O(log n)."""
        self._total += 1
        self._most = max(self._most, self._total)
        if not self._blocks:
            self._blocks, self._last_keys, self._sizes = [[key]], [key], [1]
            return
        at = bisect_right(self._last_keys, key)
        if at == len(self._last_keys):  # the key goes to the end of the last block
            at -= 1
            self._last_keys[at] = key
            self._blocks[at].append(key)
        else:
            insort(self._blocks[at], key)
        self._sizes[at] += 1
        if self._sizes[at] > self._capacity():
            self._split(at)

    def remove(self, key: Any) -> None:
        """Removes one occurrence of a key that is present. O(log n)."""
        at = bisect_left(self._last_keys, key)
        self._take(at, bisect_left(self._blocks[at], key))

    def move(self, old: Any, new: Any) -> None:
        """Replaces one occurrence of a key. O(log n)."""
        at = bisect_left(self._last_keys, old)
        block = self._blocks[at]
        index = bisect_left(block, old)
        # `new` can replace `old` if `new` lies between the neighbours of `old` in the block. The first key of the first
        # block needs no neighbour before it. The first key of any other block, and the last key of a block, are removed
        # and added.
        if (block[index - 1] <= new if index else at == 0) and index + 1 < len(block) and new <= block[index + 1]:
            block[index] = new
            return
        self._take(at, index)
        self.add(new)

    def _capacity(self) -> int:
        return _LEAST_CAPACITY + self._total // _BLOCKS

    def _take(self, at: int, index: int) -> None:
        """Removes a key of block `at`. Joins the block with a neighbour if together they fill at most half a block."""
        self._total -= 1
        block = self._blocks[at]
        del block[index]
        self._sizes[at] -= 1
        if not block:
            del self._blocks[at], self._last_keys[at], self._sizes[at]
            return
        self._last_keys[at] = block[-1]
        beside = at - 1 if at else 1  # the block before or, for the first block, after
        if beside < len(self._sizes) and self._sizes[at] + self._sizes[beside] <= self._capacity() // 2:
            self._join(min(at, beside))

    def _split(self, at: int) -> None:
        block = self._blocks[at]
        half = len(block) // 2
        self._blocks[at : at + 1] = [block[:half], block[half:]]
        self._last_keys[at : at + 1] = [block[half - 1], block[-1]]
        self._sizes[at : at + 1] = [half, len(block) - half]

    def _join(self, at: int) -> None:
        joined = self._blocks[at] + self._blocks[at + 1]
        self._blocks[at : at + 2] = [joined]
        self._last_keys[at : at + 2] = [joined[-1]]
        self._sizes[at : at + 2] = [len(joined)]

    def keys(self) -> list[Any]:
        """Returns all keys in order. O(n)."""
        return [key for block in self._blocks for key in block]

    def check(self) -> list[str]:
        """Returns the violated structural invariants, one line each. O(n)."""
        wrong = []
        if self.keys() != sorted(self.keys()):
            wrong.append("the keys are not sorted")
        if not all(self._blocks) or self._last_keys != [block[-1] for block in self._blocks if block]:
            wrong.append("a block is empty, or its last key is stale")
        if self._sizes != [len(block) for block in self._blocks] or self._total != sum(self._sizes):
            wrong.append("the number of keys is stale")
        # The capacity falls with the total, and a removal splits no block. So the limit is the capacity at `_most`.
        if any(size > _LEAST_CAPACITY + self._most // _BLOCKS for size in self._sizes):
            wrong.append("a block is too full")
        return wrong


class Slot:
    """An active cursor and its key in the order; the key is None for an untracked cursor.

    `cursor` is the cursor's name, an integer. `object` is the number of the cursor object: a name that is added again
    gets a new object.
    """

    __slots__ = ("cursor", "durable", "key", "object", "position")

    def __init__(self, cursor: int, position: Position | None, durable: bool, object: int) -> None:
        self.cursor = cursor
        self.position = position
        self.durable = durable
        self.object = object
        self.key: Any = None


def unpacked(key: int) -> Position:
    """Returns the position that a key stands for: the inverse of `ActiveCursors._key`, for keys that are numbers."""
    ledger = (key + _HALF) >> 64
    return Position(ledger, key - (ledger << 64))


class ActiveCursors:
    """The active cursors of a managed ledger. The actions of `model/active_cursors` are methods of the same names.

    A key is the position as one number, which compares faster than a pair of ledger id and entry id. When a position
    comes whose entry id does not fit, all keys become pairs, and remain pairs: O(n log n), once. The other costs leave
    this out.
    """

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self.now_ms = cfg.start_ms
        self._cursors: dict[int, Slot] = {}
        self._last_removal_ms = cfg.start_ms
        self._next_object = 1
        self._version = 0
        self._durables = 0
        self._order = Order()
        self._is_wide = False  # whether the keys are pairs

    # ---- changes

    def add_cursor(self, cursor: int, position: Position | None, durable: bool) -> int:
        """Adds a cursor under a name, or replaces the one of that name; returns the new object's number. O(log n)."""
        replaced = self._cursors.get(cursor)
        if replaced is not None:
            self._untrack(replaced)
            self._durables -= replaced.durable
        slot = Slot(cursor, position, durable, self._next_object)
        self._cursors[cursor] = slot
        self._next_object += 1
        self._version += 1
        self._durables += durable
        self._track(slot)
        return slot.object

    def update_cursor(self, cursor: int, position: Position | None) -> None:
        """Moves a cursor; without a position, untracks the cursor. An unknown name is ignored. O(log n)."""
        slot = self._cursors.get(cursor)
        if slot is None:
            return
        self._version += 1
        if slot.position is None or position is None:
            self._untrack(slot)
            slot.position = position
            self._track(slot)
            return
        slot.position = position
        key = self._key(position)
        self._order.move(slot.key, key)
        slot.key = key

    def cursor_updated(self, cursor: int, position: Position | None) -> Slowest | None:
        """Moves a cursor; returns the slowest positions before and after. None for an unknown name. O(log n)."""
        if cursor not in self._cursors:
            return None
        previous = self.slowest_position()
        self.update_cursor(cursor, position)
        return Slowest(previous, self.slowest_position())

    def remove_cursor(self, cursor: int) -> bool:
        """Removes a cursor; returns whether the name was known. O(log n)."""
        slot = self._cursors.pop(cursor, None)
        if slot is None:
            return False
        self._last_removal_ms = self.now_ms
        self._version += 1
        self._durables -= slot.durable
        self._untrack(slot)
        return True

    def remove_while_iterating(self, cursor: int) -> Refused | Failed:
        """Fails for a known name, because the iterator does not support removal; refuses an unknown name. O(1)."""
        if cursor not in self._cursors:
            return Refused("illegal_state", "the iteration does not reach this cursor")
        return Failed("illegal_argument", "a cursor is removed by its name, not by the iterator")

    def _key(self, position: Position) -> Any:
        """Returns the key of a position. Makes all keys pairs if the position is the first that needs a pair."""
        ledger, entry = position
        if self._is_wide:
            return position
        if -_HALF <= entry < _HALF:
            return (ledger << 64) + entry
        self._is_wide = True
        tracked = [slot for slot in self._cursors.values() if slot.key is not None]
        for slot in tracked:
            slot.key = unpacked(slot.key)
        self._order = Order(slot.key for slot in tracked)
        return position

    def _track(self, slot: Slot) -> None:
        if slot.position is not None:
            key = self._key(slot.position)
            slot.key = key
            self._order.add(key)

    def _untrack(self, slot: Slot) -> None:
        if slot.key is not None:
            self._order.remove(slot.key)
            slot.key = None

    # ---- queries

    def get_cursor(self, cursor: int) -> Found | None:
        slot = self._cursors.get(cursor)
        return None if slot is None else Found(cursor, slot.object)

    def number_at_same_position_or_before(self, cursor: int) -> int:
        """Returns the number of tracked cursors at the cursor's position or before. O(log n + number of blocks)."""
        slot = self._cursors.get(cursor)
        return 0 if slot is None or slot.key is None else self._order.rank(slot.key)

    def slowest_position(self) -> Position | None:
        if not len(self._order):
            return None
        first: Position | int = self._order.first()
        return unpacked(first) if isinstance(first, int) else first

    def size(self) -> int:
        return len(self._cursors)

    def should_cache_added_entries(self) -> bool:
        """Returns whether added entries are cached: cursors exist, or the grace period is not over. O(1)."""
        # a `grace_ms` of 0 or less switches the grace period off
        return bool(self._cursors) or 0 < self.cfg.grace_ms > self.now_ms - self._last_removal_ms

    def advance(self, millis: int) -> None:
        self.now_ms += millis

    # ---- for the engines

    def check(self) -> list[str]:
        wrong = self._order.check()
        slots = self._cursors.values()
        if self._order.keys() != sorted(self._key(slot.position) for slot in slots if slot.position is not None):
            wrong.append("the keys of the order are not those of the tracked cursors")
        if any((slot.key is None) != (slot.position is None) for slot in slots):
            wrong.append("a tracked cursor has no key, or an untracked one has one")
        if any(slot.cursor != name for name, slot in self._cursors.items()):
            wrong.append("a cursor is stored under another name than its own")
        if any(slot.object >= self._next_object for slot in slots):
            wrong.append("an object has a number that was not assigned yet")
        if self._last_removal_ms > self.now_ms:
            wrong.append("the last removal is in the future")
        if sum(slot.durable for slot in slots) != self._durables:
            wrong.append("the number of durable cursors is stale")
        return wrong

    def view(self) -> State:
        slots = [self._cursors[name] for name in sorted(self._cursors)]
        cursors = tuple([Cursor(slot.cursor, slot.position, slot.durable, slot.object) for slot in slots])
        removed, objects = self._last_removal_ms, self._next_object
        # None and (): the reference does not have the data structures of the shipped containers
        return State(self.now_ms, cursors, removed, objects, self._version, self._durables, None, ())

    @classmethod
    def load(cls, cfg: Config, state: State) -> ActiveCursors:
        self = cls(cfg)
        self.now_ms = state.now_ms
        self._last_removal_ms = state.last_removal_ms
        self._next_object = state.next_object
        self._version = state.version
        self._durables = state.durables
        for cursor in state.cursors:
            slot = self._cursors[cursor.cursor] = Slot(*cursor)  # `Slot` takes the fields of `Cursor`, in their order
            self._track(slot)
        return self
