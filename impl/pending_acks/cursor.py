"""The subscription's cursor as the pending-ack handle uses it, in memory and as persisted.

Entries are numbered from 0. Individually deleted entries are a set, and ack sets a dictionary of masks. So an ack is
O(1), plus the entries that the mark-delete position passes. The persisted state is a copy.
"""

from __future__ import annotations

from model.batch_acks.state import Acks, Partial


class Cursor:
    """The cursor. `first_unacked` is the entry after the mark-delete position."""

    __slots__ = ("_sizes", "ack_sets", "deleted", "dirty", "durable", "durable_first_unacked", "first_unacked")

    def __init__(self, batch_sizes: tuple[int, ...]) -> None:
        self._sizes = batch_sizes
        self.first_unacked = self.durable_first_unacked = 0
        self.deleted: set[int] = set()
        self.ack_sets: dict[int, int] = {}  # by entry: the mask of unacknowledged messages
        #: of the persisted state: individually deleted entries, and ack sets
        self.durable: tuple[frozenset[int], dict[int, int]] = frozenset(), {}
        self.dirty = False  # whether memory differs from the persisted state

    def everything(self, entry: int) -> int:
        """Returns the mask of all messages of an entry. O(1)."""
        return (1 << self._sizes[entry % len(self._sizes)]) - 1

    def is_deleted(self, entry: int) -> bool:
        """Returns whether the whole entry is acknowledged. O(1)."""
        return entry < self.first_unacked or entry in self.deleted

    def acked(self, entry: int) -> int:
        """Returns the mask of the acknowledged messages of an entry. O(1)."""
        if entry < self.first_unacked or entry in self.deleted:
            return self.everything(entry)
        left = self.ack_sets.get(entry)
        return 0 if left is None else self.everything(entry) & ~left

    def durably_acked(self, entry: int) -> int:
        """Returns the mask of the messages of an entry whose acknowledgement is persisted. O(1)."""
        deleted, ack_sets = self.durable
        if entry < self.durable_first_unacked or entry in deleted:
            return self.everything(entry)
        left = ack_sets.get(entry)
        return 0 if left is None else self.everything(entry) & ~left

    def ack(self, entry: int, ack_set: int) -> None:
        """Acks the messages of an entry whose bits are clear in an ack set; 0 acks the whole entry.

        O(1 + entries that the mark-delete position passes).
        """
        if entry < self.first_unacked or entry in self.deleted:
            return
        old = self.ack_sets.get(entry)
        left = ack_set & (self.everything(entry) if old is None else old)
        if left == 0:
            self.ack_sets.pop(entry, None)
            self.deleted.add(entry)
            self.dirty = True
            if entry == self.first_unacked:
                self._advance()
        elif left != old:
            self.ack_sets[entry] = left
            self.dirty = True

    def ack_before(self, end: int) -> None:
        """Acks all entries before `end`. O(entries that the mark-delete position passes)."""
        if end <= self.first_unacked:
            return
        for entry in range(self.first_unacked, end):
            self.deleted.discard(entry)
            self.ack_sets.pop(entry, None)
        self.first_unacked = end
        self.dirty = True
        self._advance()

    def _advance(self) -> None:
        """Moves the mark-delete position over the deleted entries that follow it."""
        deleted, entry = self.deleted, self.first_unacked
        while entry in deleted:
            deleted.remove(entry)
            entry += 1
        self.first_unacked = entry

    def persist(self) -> bool:
        """Persists memory; returns whether the persisted state changed. O(entries after the mark-delete position)."""
        if not self.dirty:
            return False
        self.durable = frozenset(self.deleted), self.ack_sets.copy()
        self.durable_first_unacked, self.dirty = self.first_unacked, False
        return True

    def crash(self) -> None:
        """Restores memory from the persisted state. O(entries after the mark-delete position)."""
        deleted, ack_sets = self.durable
        self.deleted, self.ack_sets = set(deleted), ack_sets.copy()
        self.first_unacked, self.dirty = self.durable_first_unacked, False

    def check(self) -> list[str]:
        """Returns the violated structural invariants, one line each."""
        wrong = []
        for name, first, deleted, ack_sets in (
            ("memory", self.first_unacked, self.deleted, self.ack_sets),
            ("storage", self.durable_first_unacked, *self.durable),
        ):
            if any(entry <= first for entry in deleted):
                wrong.append(
                    f"{name} has an individually deleted entry that the mark-delete position should have passed"
                )
            if any(entry < first or entry in deleted for entry in ack_sets):
                wrong.append(f"{name} has the ack set of a deleted entry")
            if any(not 0 < left < self.everything(entry) for entry, left in ack_sets.items()):
                wrong.append(f"{name} has an ack set that leaves nothing or everything")
        if self.durable_first_unacked > self.first_unacked:
            wrong.append("storage is ahead of memory")
        return wrong

    def view(self) -> tuple[Acks, Acks]:
        """Returns the model's form of memory and of the persisted state."""
        memory = _acks(self.first_unacked, self.deleted, self.ack_sets)
        return memory, _acks(self.durable_first_unacked, *self.durable)

    def load(self, memory: Acks, storage: Acks) -> None:
        """Loads memory and the persisted state from the model's form."""
        self.first_unacked, self.deleted, self.ack_sets = (
            memory.first_unacked,
            _entries(memory.deleted),
            dict(memory.partial),
        )
        self.durable_first_unacked = storage.first_unacked
        self.durable = frozenset(_entries(storage.deleted)), dict(storage.partial)
        self.dirty = memory != storage


def _acks(first_unacked: int, deleted: set[int] | frozenset[int], ack_sets: dict[int, int]) -> Acks:
    mask = 0
    for entry in deleted:
        mask |= 1 << entry
    return Acks(first_unacked, mask, tuple([Partial(*each) for each in sorted(ack_sets.items())]))


def _entries(mask: int) -> set[int]:
    return {n for n in range(mask.bit_length()) if mask >> n & 1}
