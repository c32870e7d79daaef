"""Acknowledgements of a cursor, with indexes.

Implements the `reference` rules and all settings of `model/batch_acks`. As there, entries are numbered from 0 across
all ledgers, and a record is what a write stores. There are l ledgers, n ranges of deleted entries after the mark-delete
position, and k entries with an ack set:

    deleted   ranges in order, none across the end of a ledger, as two lists: an acknowledgement is a binary search, and
              ranges that the mark-delete position passes are cut off in front
    ack sets  a dictionary from entry to mask, and a sorted list of its entries, from which records are built
    counts    the number of messages before an entry is computed without a scan, so a cumulative ack visits only the
              ranges and ack sets that it drops
    records   are built when a write starts, O(n + k) up to the configured limits, never by an ack

Complexities count an insertion into a list, or a removal, as one step.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from impl.ack_set import mask_of, words_of
from model.ack_set import AckSet
from model.batch_acks.machine import Ack, Delivered, WriteResult
from model.batch_acks.state import Acks, Config, Partial, Queued, Reset, State, Write
from model.machine import Refused
from model.positions import Position


class Snapshot(NamedTuple):
    """A record: the first entry that is not deleted, ranges [first, end) of deleted entries, and ack sets, in order."""

    first_unacked: int
    firsts: Sequence[int]
    ends: Sequence[int]
    ack_sets: Sequence[tuple[int, int]]  # entries, each with the mask of its remaining messages

    def view(self) -> Acks:
        """Returns the model's form. O(n + k)."""
        deleted = 0
        for first, end in zip(self.firsts, self.ends, strict=True):
            deleted |= (1 << end) - (1 << first)
        return Acks(self.first_unacked, deleted, tuple([Partial(*each) for each in self.ack_sets]))


def after_reset(reset: Reset) -> Snapshot:
    """Returns the acknowledgements after a reset. O(1)."""
    return Snapshot(reset.entry, (), (), () if reset.remaining is None else ((reset.entry, reset.remaining),))


class Ledgers:
    """The ledgers: `counts` has the number of entries of each, `firsts` the entry that is or will be its first."""

    __slots__ = ("counts", "firsts", "total")

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts = list(counts)
        self.firsts = list(accumulate(self.counts, initial=0))[:-1]
        self.total = sum(self.counts)

    def add(self) -> Position:
        """Adds an entry; returns its position. O(1)."""
        self.counts[-1] += 1
        self.total += 1
        return Position(len(self.counts), self.counts[-1] - 1)

    def roll(self) -> int:
        """Adds a ledger; returns its id. O(1)."""
        self.counts.append(0)
        self.firsts.append(self.total)
        return len(self.counts)

    def number(self, position: Position) -> int | None:
        """Returns the number of the entry at a position; None if no entry is there. O(1)."""
        ledger, entry = position
        if 0 < ledger <= len(self.counts) and 0 <= entry < self.counts[ledger - 1]:
            return self.firsts[ledger - 1] + entry
        return None

    def is_after_last_entry(self, position: Position) -> bool:
        """Returns whether a position is after the last entry. O(log l)."""
        return position > (self.position(self.total - 1) if self.total else (1, -1))

    def position(self, number: int) -> Position:
        """Returns the position of an entry; for the number `total`, that of the next entry. O(log l)."""
        at = (bisect_right(self.firsts, number) if number < self.total else len(self.firsts)) - 1
        return Position(at + 1, number - self.firsts[at])


class Deleted:
    """Ranges [first, end) of deleted entries in order; none crosses the end of a ledger."""

    __slots__ = ("_ledgers", "ends", "firsts")

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers
        self.firsts: list[int] = []
        self.ends: list[int] = []

    def has(self, entry: int) -> bool:
        """Returns whether a range contains an entry. O(log n)."""
        at = bisect_right(self.firsts, entry) - 1
        return at >= 0 and entry < self.ends[at]

    def add(self, entry: int) -> None:
        """Adds an entry that no range contains; joins adjacent ranges of a ledger. O(log n + log l)."""
        firsts, ends = self.firsts, self.ends
        at = bisect_right(firsts, entry)
        joins_before = at > 0 and ends[at - 1] == entry and not self._begins_ledger(entry)
        joins_after = at < len(firsts) and firsts[at] == entry + 1 and not self._begins_ledger(entry + 1)
        if joins_before and joins_after:
            ends[at - 1] = ends[at]
            del firsts[at], ends[at]
        elif joins_before:
            ends[at - 1] = entry + 1
        elif joins_after:
            firsts[at] = entry
        else:
            firsts.insert(at, entry)
            ends.insert(at, entry + 1)

    def _begins_ledger(self, entry: int) -> bool:
        at = bisect_left(self._ledgers.firsts, entry)
        return at < len(self._ledgers.firsts) and self._ledgers.firsts[at] == entry

    def cut(self, first_unacked: int) -> int:
        """Drops the ranges that begin at or before an entry, and those adjacent to them. O(dropped).

        Returns the first entry from the given one on that is not deleted.
        """
        firsts, ends, at = self.firsts, self.ends, 0
        while at < len(firsts) and firsts[at] <= first_unacked:
            first_unacked = max(first_unacked, ends[at])
            at += 1
        if at:
            del firsts[:at], ends[:at]
        return first_unacked

    def load(self, firsts: Sequence[int], ends: Sequence[int]) -> None:
        """Replaces the ranges. O(n)."""
        self.firsts, self.ends = list(firsts), list(ends)


class EntryAckSets:
    """Entries with an ack set: the mask of the remaining messages of each, and the entries in order."""

    __slots__ = ("masks", "order")

    def __init__(self) -> None:
        self.masks: dict[int, int] = {}
        self.order: list[int] = []

    def put(self, entry: int, remaining: int) -> None:
        """Sets the remaining messages of an entry. O(log k) for a new one, else O(1)."""
        if entry not in self.masks:
            insort(self.order, entry)
        self.masks[entry] = remaining

    def drop(self, entry: int) -> None:
        """Drops the ack set of an entry. O(log k)."""
        if self.masks.pop(entry, None) is not None:
            del self.order[bisect_left(self.order, entry)]

    def cut(self, first_unacked: int) -> None:
        """Drops the ack sets before an entry. O(log k + dropped)."""
        if self.order and self.order[0] < first_unacked:
            at = bisect_left(self.order, first_unacked)
            for entry in self.order[:at]:
                del self.masks[entry]
            del self.order[:at]

    def load(self, ack_sets: Sequence[tuple[int, int]]) -> None:
        """Replaces the ack sets. O(k)."""
        self.masks = dict(ack_sets)
        self.order = [entry for entry, _ in ack_sets]


class BatchAcks:
    """A cursor. Methods are named as the actions."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self._ledgers = Ledgers((cfg.entries,))
        self._deleted = Deleted(self._ledgers)
        self._ack_sets = EntryAckSets()
        self._first_unacked = self._read_position = 0
        self._durable = Snapshot(0, (), (), ())
        self._dirty = False
        self._writing: tuple[Snapshot, tuple[Reset, ...], Reset | None] | None = None
        self._queued: list[Queued] = []  # None is a flush
        self._reading = False
        self._batch_acks = cfg.batch_acks
        self._next_ticket = 1
        self._sizes = cfg.batch_sizes
        self._before = list(accumulate(self._sizes, initial=0))  # messages before each index of batch_sizes

    # ---- the topic

    def add_entry(self) -> Position:
        return self._ledgers.add()

    def roll_ledger(self) -> int:
        return self._ledgers.roll()

    # ---- acknowledgements

    def _size(self, entry: int) -> int:
        return self._sizes[entry % len(self._sizes)]

    def _messages_before(self, entry: int) -> int:
        """Returns the number of messages before an entry. O(1)."""
        rounds, index = divmod(entry, len(self._sizes))
        return rounds * self._before[-1] + self._before[index]

    def _left(self, entry: int) -> int:
        """Returns the number of unacknowledged messages of an entry that is not deleted. O(1)."""
        size, remaining = self._size(entry), self._ack_sets.masks.get(entry)
        return size if remaining is None else (remaining & ((1 << size) - 1)).bit_count()

    def _is_deleted(self, entry: int) -> bool:
        return entry < self._first_unacked or self._deleted.has(entry)

    def _ack_set_error(self, entry: int, given: int, path: str) -> Refused | None:
        """Returns the refusal of an ack set with a bit beyond the batch; None if there is no such bit."""
        size = self._size(entry)
        if given >> size:
            return Refused("illegal_argument", f"{path}ack_set has a bit beyond the batch of {size}")
        return None

    def _missing(self, position: Position, path: str) -> Refused | None:
        """Returns the refusal of a position where no entry is.

        Returns None for a position after the last entry, which the caller refuses. `path` is the path of the ack in the
        arguments, for the message.
        """
        if self._ledgers.is_after_last_entry(position):
            return None
        return Refused("illegal_argument", f"{path}position is {list(position)}, where no entry is")

    def _requested_mask(self, mask: int) -> int | None:
        """Returns the mask of the messages that an ack leaves unacknowledged; 0 if the ack is for the whole entry.

        Returns None if the ack has an ack set and the cursor stores none: then the ack leaves its entry unchanged.
        """
        return mask if mask == 0 or self._batch_acks else None

    def ack_individual(self, acks: tuple[Ack, ...]) -> int | Refused:
        """Acknowledges all entries of a list, or none.

        The error is that of a position after the last entry only if nothing else is wrong with the list. O(log n +
        log k + log l) for each entry, and the ranges and ack sets that the mark-delete position passes.
        """
        planned: list[tuple[int, int | None]] = []
        after_last = None  # the error of the first position after the last entry
        for i, (position, ack_set) in enumerate(acks):
            entry, mask = self._ledgers.number(position), mask_of(ack_set) if ack_set else 0
            if entry is None:
                refusal = self._missing(position, f"acks[{i}].")
                if after_last is None:
                    after_last = f"acks[{i}].position is {list(position)}, after the last entry"
            else:
                refusal = self._ack_set_error(entry, mask, f"acks[{i}].") if mask else None
                if after_last is None:
                    planned.append((entry, self._requested_mask(mask)))
            if refusal is not None:
                return refusal
        if after_last is not None:
            return Refused("illegal_argument", after_last)
        newly_acked = changes = 0
        for entry, requested in planned:
            changed, count = self._ack(entry, requested)
            changes += changed
            newly_acked += count
        self._dirty = self._dirty or changes > 0
        self._advance_mark_delete(self._first_unacked)
        return newly_acked

    def _ack(self, entry: int, requested: int | None) -> tuple[bool, int]:
        """Acknowledges one entry; the mark-delete position stays.

        Returns whether the entry changed, and the number of newly acknowledged messages.
        """
        if requested is None or self._is_deleted(entry):
            return False, 0
        masks, everything = self._ack_sets.masks, (1 << self._size(entry)) - 1
        old, left = masks.get(entry), self._left(entry)
        remaining = requested if old is None else requested & old
        if remaining == 0:
            self._ack_sets.drop(entry)
            self._deleted.add(entry)
        elif remaining == (everything if old is None else old):  # no message is newly acknowledged
            return False, 0
        elif remaining == everything:  # the old ack set had a bit beyond the batch
            self._ack_sets.drop(entry)
        else:
            self._ack_sets.put(entry, remaining)
        return True, left - (remaining & everything).bit_count()

    def _advance_mark_delete(self, first_unacked: int) -> None:
        """Acknowledges every entry before `first_unacked`, and advances the mark-delete position. O(dropped).

        The mark-delete position also passes the deleted entries that follow. The read position advances if it would be
        at or before the mark-delete position.
        """
        self._first_unacked = self._deleted.cut(first_unacked)
        self._ack_sets.cut(self._first_unacked)
        self._read_position = max(self._read_position, self._first_unacked)

    def ack_cumulative(self, position: Position, ack_set: AckSet | None) -> int | Refused:
        """Acknowledges everything before an entry, and the entry, whole or by ack set.

        O(log n + log k + log l), and the ranges and ack sets that the mark-delete position passes.
        """
        entry, mask = self._ledgers.number(position), mask_of(ack_set) if ack_set else 0
        refusal = self._missing(position, "") if entry is None else self._ack_set_error(entry, mask, "")
        if refusal is not None:
            return refusal
        requested = self._requested_mask(mask)
        if entry is None:
            return Refused("illegal_argument", "position is after the last entry")
        # `entry + (requested == 0)` is the first entry after the new mark-delete position
        if entry + (requested == 0) < self._first_unacked:
            return Refused("illegal_argument", "the mark-delete position would move back")
        begin, ack_sets, target = self._first_unacked, len(self._ack_sets.order), entry + (requested == 0)
        newly_acked = self._newly_acked_before(target)
        self._advance_mark_delete(target)
        changed = self._first_unacked != begin or len(self._ack_sets.order) != ack_sets
        if requested and not self._is_deleted(entry):
            is_entry_changed, count = self._ack(entry, requested)
            changed, newly_acked = changed or is_entry_changed, newly_acked + count
            self._advance_mark_delete(self._first_unacked)
        self._dirty = self._dirty or changed
        return newly_acked

    def _newly_acked_before(self, target: int) -> int:
        """Returns the number of unacknowledged messages before an entry. O(ranges and ack sets before it)."""
        newly_acked = self._messages_before(target) - self._messages_before(self._first_unacked)
        newly_acked -= self._messages_deleted_before(target)
        for entry in self._ack_sets.order:
            if entry >= target:
                break
            if not self._is_deleted(entry):
                newly_acked -= self._size(entry) - self._left(entry)
        return newly_acked

    def _messages_deleted_before(self, target: int) -> int:
        """Returns the number of messages of individually deleted entries before an entry. O(ranges before it)."""
        count = 0
        for first, end in zip(self._deleted.firsts, self._deleted.ends, strict=True):
            if first >= target:
                break
            count += self._messages_before(min(end, target)) - self._messages_before(first)
        return count

    # ---- reads

    def begin_read(self) -> Refused | None:
        if self._reading:
            return Refused("illegal_state", "a read is in flight")
        self._reading = True
        return None

    def end_read(self) -> Delivered | Refused | None:
        """Delivers the next entry that is not deleted. O(log n + log l + ledgers passed); queued operations start."""
        if not self._reading:
            return Refused("illegal_state", "no read is in flight")
        self._reading = False
        entry, deleted = self._read_position, self._deleted
        at = bisect_right(deleted.firsts, entry) - 1
        while 0 <= at < len(deleted.firsts) and deleted.firsts[at] <= entry < deleted.ends[at]:
            entry = deleted.ends[at]
            at += 1
        delivered = None
        if entry < self._ledgers.total:
            remaining = self._ack_sets.masks.get(entry)
            delivered = Delivered(self._ledgers.position(entry), None if remaining is None else words_of(remaining))
            self._read_position = entry + 1
        self._start_queued()
        return delivered

    # ---- writes

    def _record(self, to_apply: Reset | None) -> Snapshot:
        """Returns the record of memory, or of the state after a reset. O(n + k), up to the configured limits."""
        ranges, ack_sets = self.cfg.max_ranges, self.cfg.max_ack_sets
        if to_apply is not None:
            after = after_reset(to_apply)
            return after._replace(ack_sets=after.ack_sets[:ack_sets])
        held = [(entry, self._ack_sets.masks[entry]) for entry in self._ack_sets.order[:ack_sets]]
        return Snapshot(self._first_unacked, self._deleted.firsts[:ranges], self._deleted.ends[:ranges], held)

    def _start_write(self, operations: Sequence[Queued]) -> None:
        """Starts one write for all given operations, and empties the queue. O(n + k)."""
        resets = tuple([each for each in operations if each is not None])
        to_apply = resets[-1] if resets else None
        self._writing = self._record(to_apply), resets, to_apply
        self._queued = []
        if to_apply is None:
            self._dirty = False

    def _start_queued(self) -> None:
        """Starts the queued operations if nothing is in flight. A flush alone is dropped if nothing is dirty."""
        if self._queued and not self._reading and self._writing is None:
            if self._dirty or self._queued != [None]:
                self._start_write(self._queued)
            else:
                self._queued = []

    def flush(self) -> bool:
        """Starts a write if memory is dirty, or queues it. Returns whether a write started. O(n + k)."""
        if not self._dirty:
            return False
        if self._reading or self._writing is not None:
            if not self._queued or self._queued[-1] is not None:
                self._queued.append(None)
            return False
        self._start_write((None,))
        return True

    def written(self) -> WriteResult | Refused:
        """Completes the write. O(1), and queued operations start."""
        if self._writing is None:
            return Refused("illegal_state", "no write is in flight")
        return self._stored(self._writing, self._writing[0])

    def _stored(self, write: tuple[Snapshot, tuple[Reset, ...], Reset | None], durable: Snapshot) -> WriteResult:
        """Completes a write whose record is durable. O(1), and queued operations start."""
        _, resets, to_apply = write
        self._durable, self._writing = durable, None
        if to_apply is not None:
            self._take(after_reset(to_apply))
            self._dirty = False
        self._start_queued()
        return WriteResult(True, tuple([each.ticket for each in resets]))

    def _take(self, snapshot: Snapshot) -> None:
        """Replaces memory by a record; reading restarts after the mark-delete position. O(n + k)."""
        self._deleted.load(snapshot.firsts, snapshot.ends)
        self._ack_sets.load(snapshot.ack_sets)
        self._first_unacked = self._read_position = snapshot.first_unacked

    def write_fails(self, stored_in_metadata: bool) -> WriteResult | Refused:
        """Fails the write, or stores its record in the metadata store. O(1), and queued operations start."""
        if self._writing is None:
            return Refused("illegal_state", "no write is in flight")
        record, resets, to_apply = self._writing
        if stored_in_metadata:
            return self._stored(self._writing, record)
        self._writing = None
        self._dirty = self._dirty or to_apply is None
        self._start_queued()
        return WriteResult(False, tuple([each.ticket for each in resets]))

    def is_fully_persistable(self) -> bool:
        fits = len(self._ack_sets.order) <= self.cfg.max_ack_sets
        return fits and len(self._deleted.firsts) <= self.cfg.max_ranges

    def reset(self, position: Position, ack_set: AckSet | None) -> int | Refused:
        """Starts a reset, or queues it. O(log l), and O(n + k) for the record."""
        ledgers, given = self._ledgers, mask_of(ack_set) if ack_set else None
        to = ledgers.number(position)
        if to is None and not ack_set and position == ledgers.position(ledgers.total):
            to = ledgers.total
        if to is None:
            return Refused("illegal_argument", "position is not that of an entry, nor the next one")
        refusal = self._ack_set_error(to, given or 0, "")
        if refusal is not None:
            return refusal
        if given == 0:
            return Refused("illegal_argument", "ack_set leaves nothing of the entry")
        # None: all messages of the entry remain
        if not self._batch_acks or given == (1 << self._size(to)) - 1:
            given = None
        requested = Reset(self._next_ticket, to, given)
        self._next_ticket += 1
        if self._reading or self._writing is not None:
            self._queued.append(requested)
        else:
            self._start_write((requested,))
        return requested.ticket

    # ---- crash, close and reopen

    def _recover(self, durable: Snapshot, batch_acks: bool) -> None:
        """Recovers from a record. O(n + k)."""
        self._take(durable if batch_acks else durable._replace(ack_sets=()))
        self._advance_mark_delete(self._first_unacked)
        self._durable, self._batch_acks = durable, batch_acks
        self._read_position = self._first_unacked
        self._dirty = self._reading = False
        self._writing, self._queued = None, []

    def crash(self, write_survives: bool) -> Refused | None:
        """Loses memory, and recovers the durable record or the record in flight. O(n + k)."""
        if not write_survives:
            self._recover(self._durable, self._batch_acks)
        elif self._writing is None:
            return Refused("illegal_state", "no write is in flight")
        else:
            self._recover(self._writing[0], self._batch_acks)
        return None

    def reopen(self, batch_acks: bool) -> Refused | None:
        """Closes and opens the cursor. O(n + k).

        Whether the record is in the cursor ledger or in the metadata store has no effect on what is recovered.
        """
        if self._reading or self._writing is not None:
            return Refused("illegal_state", "a read or a write is in flight")
        self._recover(self._record(None), batch_acks)
        return None

    # ---- check, view and load

    def check(self) -> list[str]:
        wrong = []
        firsts, ends, ack_sets = self._deleted.firsts, self._deleted.ends, self._ack_sets
        if any(first >= end for first, end in zip(firsts, ends, strict=True)):
            wrong.append("a range is empty")
        for end, first in zip(ends, firsts[1:], strict=False):
            if end > first or (end == first and not self._deleted._begins_ledger(first)):
                wrong.append("two ranges of a ledger overlap or touch")
        if firsts and (firsts[0] <= self._first_unacked):
            wrong.append("a range is not after the mark-delete position")
        if ends and ends[-1] > self._ledgers.total:
            wrong.append("a deleted entry does not exist")
        if ack_sets.order != sorted(ack_sets.masks):
            wrong.append("the entries with ack sets are not in order")
        if any(self._is_deleted(entry) for entry in ack_sets.order):
            wrong.append("a deleted entry has an ack set")
        if self._read_position < self._first_unacked:
            wrong.append("the read position is before the mark-delete position")
        if self._queued and not self._reading and self._writing is None:
            wrong.append("an operation is queued with nothing in flight")
        return wrong

    def view(self) -> State:
        ack_sets = self._ack_sets
        acks = Snapshot(
            self._first_unacked,
            self._deleted.firsts,
            self._deleted.ends,
            [(entry, ack_sets.masks[entry]) for entry in ack_sets.order],
        )
        write = None
        if self._writing is not None:
            record, resets, to_apply = self._writing
            write = Write(record.view(), resets, to_apply)
        return State(
            tuple(self._ledgers.counts),
            acks.view(),
            self._read_position,
            self._durable.view(),
            self._dirty,
            write,
            tuple(self._queued),
            self._reading,
            self._batch_acks,
            self._next_ticket,
        )

    def _snapshot(self, acks: Acks) -> Snapshot:
        """Returns acknowledgements in the model's form as a record. O(entries)."""
        ranges = Deleted(self._ledgers)
        for entry in range(acks.deleted.bit_length()):
            if acks.deleted >> entry & 1:
                ranges.add(entry)
        return Snapshot(acks.first_unacked, ranges.firsts, ranges.ends, [(p.entry, p.remaining) for p in acks.partial])

    @classmethod
    def load(cls, cfg: Config, state: State) -> BatchAcks:
        loaded = cls(cfg)
        loaded._ledgers = Ledgers(state.ledgers)
        loaded._deleted = Deleted(loaded._ledgers)
        loaded._take(loaded._snapshot(state.acks))
        loaded._read_position = state.read_position
        loaded._durable = loaded._snapshot(state.durable)
        loaded._dirty = state.dirty
        if state.writing is not None:
            loaded._writing = loaded._snapshot(state.writing.record), state.writing.resets, state.writing.to_apply
        loaded._queued = list(state.queued)
        loaded._reading = state.reading
        loaded._batch_acks = state.batch_acks
        loaded._next_ticket = state.next_ticket
        return loaded
