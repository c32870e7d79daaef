"""Pending acks indexed by transaction and by entry.

Of all individual acks, a new one is compared only with those of its entry. A commit or abort removes the acks of its
transaction from both maps, without a scan. An ack is *unlogged* while its record is buffered or in flight. Unlogged
acks are kept apart: new acks conflict with them, but no commit or abort applies to them.

h is the number of acks of one entry, pending or unlogged.
"""

from __future__ import annotations

from collections import deque

from model.pending_acks.state import CumulativeAck, LogRecord, PositionAck, TxnAcks

#: The mask of the messages that an ack leaves unacknowledged; None: the whole entry is acked.
AckSet = int | None


class PendingAcksIndex:
    """Pending and unlogged acks."""

    __slots__ = ("by_entry", "by_txn", "cumulative", "first_entry", "unlogged", "unlogged_acks", "unlogged_cumulative")

    def __init__(self) -> None:
        self.by_txn: dict[int, dict[int, AckSet]] = {}  # by transaction, in order of first acks; then by entry
        self.by_entry: dict[int, dict[int, AckSet]] = {}  # the same acks by entry, then by transaction
        self.first_entry: dict[int, int] = {}  # by transaction: the lowest entry of its pending individual acks
        self.cumulative: CumulativeAck | None = None
        self.unlogged: dict[int, list[tuple[int, AckSet]]] = {}  # by entry: transaction and ack set
        self.unlogged_acks: deque[LogRecord] = deque()  # the records of individual acks, in order
        self.unlogged_cumulative: deque[LogRecord] = deque()  # the records of cumulative acks, in order

    # ---- pending acks

    def add(self, txn: int, entry: int, ack_set: AckSet) -> None:
        """Adds an individual ack; ack sets of a transaction for the same entry are intersected. O(1)."""
        acks = self.by_txn.get(txn)
        if acks is None:
            acks = self.by_txn[txn] = {}
            self.first_entry[txn] = entry
        elif entry < self.first_entry[txn]:
            self.first_entry[txn] = entry
        if entry in acks:
            old = acks[entry]
            ack_set = None if old is None or ack_set is None else old & ack_set
        acks[entry] = ack_set
        txns = self.by_entry.get(entry)
        if txns is None:
            self.by_entry[entry] = {txn: ack_set}
        else:
            txns[txn] = ack_set

    def remove(self, txn: int) -> None:
        """Removes the individual acks of a transaction. O(its acks)."""
        for entry in self.by_txn.pop(txn, ()):
            txns = self.by_entry[entry]
            del txns[txn]
            if not txns:
                del self.by_entry[entry]
        self.first_entry.pop(txn, None)

    def clear_memory(self) -> None:
        """Removes the pending acks; unlogged acks stay. O(1)."""
        self.by_txn, self.by_entry, self.first_entry, self.cumulative = {}, {}, {}, None

    def has_other_up_to(self, txn: int, entry: int, messages: int) -> bool:
        """Returns whether another transaction than `txn` has an individual ack that a cumulative ack would overlap.

        This is an ack, pending or unlogged, of an entry before `entry`, or of one of the given messages of `entry`.
        O(h + transactions with pending acks + positions of unlogged acks).
        """
        if any(first < entry for other, first in self.first_entry.items() if other != txn):
            return True
        for other, ack_set in self.by_entry.get(entry, {}).items():
            if other != txn and messages & ~(ack_set or 0):
                return True
        for record in self.unlogged_acks:
            if record.txn != txn:
                for position, ack_set in record.acks:
                    if position < entry or (position == entry and messages & ~(ack_set or 0)):
                        return True
        return False

    # ---- unlogged acks

    def submit(self, record: LogRecord) -> None:
        """Adds an ack whose record is now buffered or in flight. O(its positions)."""
        if record.cumulative:
            self.unlogged_cumulative.append(record)
            return
        self.unlogged_acks.append(record)
        for entry, ack_set in record.acks:
            self.unlogged.setdefault(entry, []).append((record.txn, ack_set))

    def complete(self, record: LogRecord) -> None:
        """Removes an ack whose append has ended, or will not begin because the handle stops. O(its positions * h).

        Appends end in order, so the ack is the first one in its queue, `unlogged_acks` or `unlogged_cumulative`.
        Exception: when a handle stops, it completes its buffered acks first, and the queue loses acks in flight
        instead. No one reads this queue: a stopped handle is opened only after all appends have ended. Then the queue
        is empty.
        """
        if record.cumulative:
            self.unlogged_cumulative.popleft()
            return
        self.unlogged_acks.popleft()
        for entry, ack_set in record.acks:
            acks = self.unlogged[entry]
            acks.remove((record.txn, ack_set))
            if not acks:
                del self.unlogged[entry]

    # ---- the model's form

    def view(self) -> tuple[TxnAcks, ...]:
        """Returns the pending individual acks in the model's form. O(n log n) for n acks."""
        return tuple(
            [
                TxnAcks(txn, tuple([PositionAck(*ack) for ack in sorted(acks.items())]))
                for txn, acks in self.by_txn.items()
            ]
        )

    def load(self, pending: tuple[TxnAcks, ...], cumulative: CumulativeAck | None) -> None:
        """Loads pending acks from the model's form."""
        self.clear_memory()
        self.cumulative = cumulative
        for txn, acks in pending:
            for entry, ack_set in acks:
                self.add(txn, entry, ack_set)

    def check(self) -> list[str]:
        """Returns the violated structural invariants, one line each."""
        wrong = []
        inverse: dict[int, dict[int, AckSet]] = {}
        for txn, acks in self.by_txn.items():
            if not acks:
                wrong.append(f"transaction {txn} has no acks")
            elif self.first_entry.get(txn) != min(acks):
                wrong.append(f"the first entry of transaction {txn} is wrong")
            for entry, ack_set in acks.items():
                inverse.setdefault(entry, {})[txn] = ack_set
        if inverse != self.by_entry or self.first_entry.keys() != self.by_txn.keys():
            wrong.append("the maps by transaction and by entry differ")
        if any(not acks for acks in self.unlogged.values()):
            wrong.append("an entry without acks is in the map of unlogged acks")
        return wrong
