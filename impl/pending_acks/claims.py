"""Who has which messages: what transactions hold, and what of it is on its way to the log.

Each holder's parts are a dictionary by entry, and each entry knows its holders, so a conflict is looked for among those
that hold a part of the entry, an end releases what it finds, and nothing is searched.
"""

from __future__ import annotations

from collections import deque

from model.pending_acks.state import Cumulative, Holder, Part, Record

#: What an acknowledgement leaves of an entry; None: it is of the whole entry.
Leaves = int | None


class Claims:
    """What is held in memory, and what is on its way."""

    __slots__ = ("by_entry", "coming", "coming_cumulative", "cumulative", "held")

    def __init__(self) -> None:
        self.held: dict[int, dict[int, Leaves]] = {}  # by transaction, in the order in which they first acknowledged
        self.by_entry: dict[int, dict[int, Leaves]] = {}  # the same by entry
        self.cumulative: Cumulative | None = None
        self.coming: dict[int, list[Leaves]] = {}  # by entry, of acknowledgements on their way
        self.coming_cumulative: deque[Record] = deque()

    # ---- memory

    def hold(self, txn: int, entry: int, leaves: Leaves) -> None:
        """A transaction holds a part of an entry, besides what it holds of it. O(1)."""
        parts = self.held.get(txn)
        if parts is None:
            parts = self.held[txn] = {}
        if entry in parts:
            old = parts[entry]
            leaves = None if old is None or leaves is None else old & leaves
        parts[entry] = leaves
        holders = self.by_entry.get(entry)
        if holders is None:
            self.by_entry[entry] = {txn: leaves}
        else:
            holders[txn] = leaves

    def release(self, txn: int) -> None:
        """A transaction holds no parts any more. O(those that it held)."""
        for entry in self.held.pop(txn, ()):
            holders = self.by_entry[entry]
            del holders[txn]
            if not holders:
                del self.by_entry[entry]

    def forget(self) -> None:
        """Memory is gone; nothing is on its way that anybody waits for. O(1)."""
        self.held, self.by_entry, self.cumulative = {}, {}, None

    # ---- on the way

    def comes(self, record: Record) -> None:
        """An acknowledgement is on its way. O(its parts)."""
        if record.cumulative:
            self.coming_cumulative.append(record)
            return
        for entry, leaves in record.parts:
            self.coming.setdefault(entry, []).append(leaves)

    def came(self, record: Record) -> None:
        """The first acknowledgement on its way came to the log, or did not. O(its parts).

        Of a store that stops the last ones go before the first; nobody asks then which of them are left.
        """
        if record.cumulative:
            self.coming_cumulative.popleft()
            return
        for entry, leaves in record.parts:
            coming = self.coming[entry]
            coming.remove(leaves)
            if not coming:
                del self.coming[entry]

    # ---- the model's form

    def holders(self) -> tuple[Holder, ...]:
        """The holders with their parts in order of entries. O(n log n)."""
        return tuple([Holder(txn, tuple([Part(*part) for part in sorted(p.items())])) for txn, p in self.held.items()])

    def load(self, held: tuple[Holder, ...], cumulative: Cumulative | None) -> None:
        """Takes over what is held."""
        self.forget()
        self.cumulative = cumulative
        for txn, parts in held:
            for entry, leaves in parts:
                self.hold(txn, entry, leaves)

    def check(self) -> list[str]:
        """What is wrong with the structure, one line each."""
        wrong = []
        turned: dict[int, dict[int, Leaves]] = {}
        for txn, parts in self.held.items():
            if not parts:
                wrong.append("a transaction holds nothing and is a holder")
            for entry, leaves in parts.items():
                turned.setdefault(entry, {})[txn] = leaves
        if turned != self.by_entry:
            wrong.append("the entries do not know their holders")
        if any(not coming for coming in self.coming.values()):
            wrong.append("an entry waits for nothing")
        return wrong
