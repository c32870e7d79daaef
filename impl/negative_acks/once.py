"""Slots of time for trackers in which an entry is pending once, as before PIP-393.

when    the slot of each pending entry
slots   the entries of each slot; one that is left by its last entry goes
order   a heap of the slots' times, in which those that are gone are passed over when they come up
"""

from __future__ import annotations

from heapq import heappop, heappush

from impl.negative_acks.buckets import Entries


class OnceSlots:
    """Entries by slot, each in one slot only."""

    def __init__(self, rule: str) -> None:
        self._earliest, self._stays = rule == "earliest", rule == "first_stays"
        self._when: dict[tuple[int, int], int] = {}
        self._slots: dict[int, set[tuple[int, int]]] = {}
        self._order: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._when)

    def first(self) -> int | None:
        """The earliest slot, or None. O(log n) for each that is gone."""
        while self._order and self._order[0] not in self._slots:
            heappop(self._order)
        return self._order[0] if self._order else None

    def add(self, time: int, ledger: int, entry: int) -> None:
        """An entry comes to a slot, and leaves the one where it was, as the rule has it. O(log n)."""
        key = ledger, entry
        before = self._when.get(key)
        if before is not None:
            if self._stays or (self._earliest and before <= time):
                return
            self._leave(key, before)
        self._when[key] = time
        slot = self._slots.get(time)
        if slot is None:
            slot = self._slots[time] = set()
            heappush(self._order, time)
        slot.add(key)

    def _leave(self, key: tuple[int, int], time: int) -> None:
        slot = self._slots[time]
        slot.discard(key)
        if not slot:
            del self._slots[time]

    def take(self, limit: int) -> list[tuple[int, Entries]]:
        """Takes out all slots up to a time, in order. O(log n) each, and what is taken."""
        taken = []
        while (time := self.first()) is not None and time <= limit:
            slot = self._slots.pop(time)
            for key in slot:
                del self._when[key]
            taken.append((time, by_ledger(slot)))
        return taken

    def items(self) -> list[tuple[int, Entries]]:
        """All slots, in order. O(all)."""
        return [(time, by_ledger(self._slots[time])) for time in sorted(self._slots)]

    def check(self) -> list[str]:
        """Structural invariants that do not hold, one line each. O(all)."""
        wrong = []
        if {key: time for time, slot in self._slots.items() for key in slot} != self._when:
            wrong.append("an entry is not in the slot that it is believed to be in")
        if not all(self._slots.values()):
            wrong.append("a slot is empty")
        if not set(self._slots) <= set(self._order):
            wrong.append("a slot's time would never come up")
        return wrong


def by_ledger(keys: set[tuple[int, int]]) -> Entries:
    """Entries by ledger, in order."""
    slot: dict[int, list[int]] = {}
    for ledger, entry in sorted(keys):
        slot.setdefault(ledger, []).append(entry)
    return list(slot.items())
