"""A subscription's cursor as pending acks use it: what is acknowledged, in memory and in storage.

Entries are numbered from 0. Deleted entries after the mark are a set, parts are a dictionary of masks, so an
acknowledgement is O(1) and a cumulative one looks at what it passes. Storage is a copy, made when it is written.
"""

from __future__ import annotations

from model.batch_acks.state import Acks, Partial


class Cursor:
    """What is acknowledged in memory, and what is durable. `dirty`: the two differ."""

    __slots__ = ("_sizes", "deleted", "dirty", "durable", "durable_mark", "mark", "parts")

    def __init__(self, batch_sizes: tuple[int, ...]) -> None:
        self._sizes = batch_sizes
        self.mark = self.durable_mark = 0
        self.deleted: set[int] = set()
        self.parts: dict[int, int] = {}  # what is left of an entry, as a mask
        self.durable: tuple[frozenset[int], dict[int, int]] = frozenset(), {}
        self.dirty = False

    def everything(self, entry: int) -> int:
        """The mask of all messages of an entry. O(1)."""
        return (1 << self._sizes[entry % len(self._sizes)]) - 1

    def is_deleted(self, entry: int) -> bool:
        """Whether all of an entry is acknowledged. O(1)."""
        return entry < self.mark or entry in self.deleted

    def acked(self, entry: int) -> int:
        """The mask of the messages that are acknowledged. O(1)."""
        if entry < self.mark or entry in self.deleted:
            return self.everything(entry)
        left = self.parts.get(entry)
        return 0 if left is None else self.everything(entry) & ~left

    def durably_acked(self, entry: int) -> int:
        """The mask of the messages that are acknowledged in storage. O(1)."""
        deleted, parts = self.durable
        if entry < self.durable_mark or entry in deleted:
            return self.everything(entry)
        left = parts.get(entry)
        return 0 if left is None else self.everything(entry) & ~left

    def ack(self, entry: int, leaves: int) -> None:
        """Acknowledges an entry but for what is left; the mark moves. O(1), and what the mark passes."""
        if entry < self.mark or entry in self.deleted:
            return
        old = self.parts.get(entry)
        left = leaves & (self.everything(entry) if old is None else old)
        if left == 0:
            self.parts.pop(entry, None)
            self.deleted.add(entry)
            self.dirty = True
            if entry == self.mark:
                self._settle()
        elif left != old:
            self.parts[entry] = left
            self.dirty = True

    def ack_before(self, end: int) -> None:
        """Acknowledges everything before an entry. O(what the mark passes)."""
        if end <= self.mark:
            return
        for entry in range(self.mark, end):
            self.deleted.discard(entry)
            self.parts.pop(entry, None)
        self.mark = end
        self.dirty = True
        self._settle()

    def _settle(self) -> None:
        """The mark moves over what is deleted from it on."""
        deleted, mark = self.deleted, self.mark
        while mark in deleted:
            deleted.remove(mark)
            mark += 1
        self.mark = mark

    def persist(self) -> bool:
        """What is in memory becomes durable; whether there was anything. O(what is after the mark)."""
        if not self.dirty:
            return False
        self.durable, self.durable_mark, self.dirty = (frozenset(self.deleted), self.parts.copy()), self.mark, False
        return True

    def crash(self) -> None:
        """Memory is what is durable. O(what is after the mark)."""
        deleted, parts = self.durable
        self.mark, self.deleted, self.parts, self.dirty = self.durable_mark, set(deleted), parts.copy(), False

    def check(self) -> list[str]:
        """What is wrong with the structure, one line each."""
        wrong = []
        for name, mark, deleted, parts in (
            ("memory", self.mark, self.deleted, self.parts),
            ("storage", self.durable_mark, *self.durable),
        ):
            if any(entry <= mark for entry in deleted):
                wrong.append(f"{name} has an entry deleted at its mark or before it")
            if any(entry < mark or entry in deleted for entry in parts):
                wrong.append(f"{name} has a part of a deleted entry")
            if any(not 0 < left < self.everything(entry) for entry, left in parts.items()):
                wrong.append(f"{name} has a part that is none")
        if self.durable_mark > self.mark:
            wrong.append("storage is ahead of memory")
        return wrong

    def view(self) -> tuple[Acks, Acks]:
        """The model's form of memory and of storage."""
        return _acks(self.mark, self.deleted, self.parts), _acks(self.durable_mark, *self.durable)

    def load(self, acks: Acks, durable: Acks) -> None:
        """Takes over both from the model."""
        self.mark, self.deleted, self.parts = acks.mark, _bits(acks.deleted), dict(acks.partial)
        self.durable_mark = durable.mark
        self.durable = frozenset(_bits(durable.deleted)), dict(durable.partial)
        self.dirty = acks != durable


def _acks(mark: int, deleted: set[int] | frozenset[int], parts: dict[int, int]) -> Acks:
    mask = 0
    for entry in deleted:
        mask |= 1 << entry
    return Acks(mark, mask, tuple([Partial(*part) for part in sorted(parts.items())]))


def _bits(mask: int) -> set[int]:
    return {n for n in range(mask.bit_length()) if mask >> n & 1}
