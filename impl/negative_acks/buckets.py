"""Slots of time with the entries that come back then, in little memory.

    open    a few slots, the latest made, hold for each ledger a progression (first, step, last) while its entries come
            evenly, as they do in a stream, and a bitmap from the first entry on that does not
    sealed  when more are open than that, all but the last few are packed into a page: bytes, in the order of time
    again   a nack for a slot that is sealed opens another piece of it; pieces are put together when they are read

The more pages there are, the more slots may be open, so that pages grow with what they hold. A page is read from its
front, a slot at a time. Of a ledger's entries in a slot, it holds the shortest of

    progression    first, step, how many
    gaps           a byte from one entry to the next, 255 and on where that is too little: near the entropy of a sample
    numbers        the same gaps in groups of seven bits, where entries are few and far apart
    bitmap         a Roaring bitmap with run containers where they pay, where entries are dense and uneven

Complexities count dictionary operations as one; n are the slots that are open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import accumulate, pairwise, repeat
from typing import Any

from pyroaring import BitMap

#: Slots that stay open when the others are sealed; how many more are sealed at a time, at least and at most.
_STAY, _LEAST, _MOST = 4, 8, 256
#: Entries for which a bitmap may be shorter than gaps.
_DENSE = 64

_PROGRESSION, _GAPS, _NUMBERS, _BITMAP = range(4)

#: Entries of a ledger in an open slot: [first, step, last], a bitmap, or a set.
Ids = Any
#: A slot's entries by ledger, each in order.
Entries = list[tuple[int, list[int]]]


class Page:
    """Sealed slots, read from the front."""

    __slots__ = ("at", "blob", "time")

    def __init__(self, time: int, blob: bytes, at: int = 0) -> None:
        self.time = time  # of the next slot
        self.blob = blob
        self.at = at

    def __lt__(self, other: Page) -> bool:
        return self.time < other.time

    def read(self) -> Entries:
        """The next slot; `at` is then that of the one after it, or the end. O(its entries)."""
        blob, at, ledger, slot = self.blob, self.at, 0, []
        ledgers, at = number_at(blob, at)
        for _ in range(ledgers):
            step, at = number_at(blob, at)
            ledger += signed(step)
            entries, at = entries_at(blob, at)
            slot.append((ledger, entries))
        later, self.at = number_at(blob, at)
        self.time += later
        return slot

    def is_read(self) -> bool:
        """Nothing is left."""
        return self.at == len(self.blob)


# ---- numbers and entries as bytes ---------------------------------------------------------------------


def put_number(blob: bytearray, number: int) -> None:
    """Appends a number of zero or more: seven bits a byte, the lowest first."""
    while number > 127:
        blob.append(number & 127 | 128)
        number >>= 7
    blob.append(number)


def number_at(blob: bytes, at: int) -> tuple[int, int]:
    """The number that stands there, and where the next thing does."""
    byte = blob[at]
    number, shift = byte & 127, 7
    while byte > 127:
        at += 1
        byte = blob[at]
        number |= (byte & 127) << shift
        shift += 7
    return number, at + 1


def unsigned(number: int) -> int:
    """Any integer as one of zero or more, small for those near zero."""
    return 2 * number if number >= 0 else -2 * number - 1


def signed(number: int) -> int:
    """Undoes `unsigned`."""
    return number >> 1 if number & 1 == 0 else -(number + 1 >> 1)


def put_entries(blob: bytearray, ids: Ids) -> None:
    """Appends a ledger's entries in the shortest form. O(entries)."""
    if type(ids) is list:
        first, step, last = ids
        put_progression(blob, first, step, (last - first) // step + 1 if step else 1)
        return
    entries = sorted(ids)
    gaps = [b - a for a, b in pairwise(entries)]
    if not gaps or min(gaps) == max(gaps):
        put_progression(blob, entries[0], gaps[0] if gaps else 0, len(entries))
        return
    put_number(blob, unsigned(entries[0]))
    form, packed = packed_gaps(gaps)
    if len(entries) >= _DENSE and entries[-1] - entries[0] < 2**32:
        bitmap = BitMap([entry - entries[0] for entry in entries])
        bitmap.run_optimize()
        serialized = bitmap.serialize()
        if len(serialized) < len(packed):
            form, packed = _BITMAP, serialized
    put_number(blob, len(gaps) << 2 | form)
    put_number(blob, len(packed))
    blob += packed


def put_progression(blob: bytearray, first: int, step: int, count: int) -> None:
    """Appends entries that come evenly."""
    put_number(blob, unsigned(first))
    put_number(blob, count - 1 << 2 | _PROGRESSION)
    if count > 1:
        put_number(blob, step)


def packed_gaps(gaps: list[int]) -> tuple[int, bytes]:
    """The gaps as bytes, and in which form."""
    if max(gaps) < 255:
        return _GAPS, bytes(gaps)
    numbers = bytearray()
    for gap in gaps:
        put_number(numbers, gap)
    if sum([gap // 255 for gap in gaps]) + len(gaps) > len(numbers):
        return _NUMBERS, bytes(numbers)
    return _GAPS, b"".join([b"\xff" * (gap // 255) + bytes((gap % 255,)) for gap in gaps])


def entries_at(blob: bytes, at: int) -> tuple[list[int], int]:
    """The entries that stand there, in order, and where the next thing does. O(entries)."""
    number, at = number_at(blob, at)
    first = signed(number)
    number, at = number_at(blob, at)
    gaps, form = number >> 2, number & 3
    if form == _PROGRESSION:
        step, at = number_at(blob, at) if gaps else (0, at)
        return list(accumulate(repeat(step, gaps), initial=first)), at
    length, at = number_at(blob, at)
    packed, at = blob[at : at + length], at + length
    if form == _BITMAP:
        return [first + entry for entry in BitMap.deserialize(packed)], at
    if form == _GAPS:
        sums = accumulate(packed, initial=first)
        next(sums)
        return [first, *[entry for byte, entry in zip(packed, sums, strict=True) if byte != 255]], at
    entries, place = [first], 0
    while place < length:
        gap, place = number_at(packed, place)
        entries.append(entries[-1] + gap)
    return entries, at


# ---- open slots ---------------------------------------------------------------------------------------


def entries_of(ids: Ids) -> list[int]:
    """The entries of a ledger in an open slot, in order. O(entries)."""
    if type(ids) is list:
        first, step, last = ids
        return list(range(first, last + 1, step or 1))
    return sorted(ids)


def uneven(ids: list[int], entry: int) -> Ids:
    """A progression with an entry that is not its next one: itself, if it has it; else a bitmap of both. O(entries)."""
    first, step, last = ids
    if first <= entry <= last and (entry - first) % (step or 1) == 0:
        return ids
    if step == 0 and entry > first:
        return [first, entry - first, entry]
    return with_entry(entries_of(ids), entry)


def with_entry(entries: Iterable[int], entry: int) -> Ids:
    """The entries and another one as a bitmap, or as a set where their numbers are too large for one."""
    every = [*entries, entry]
    is_wide = min(every) < 0 or max(every) >= 2**32
    return set(every) if is_wide else BitMap(every)


class Slots:
    """Entries by slot and ledger; an entry stands once in a slot."""

    def __init__(self) -> None:
        self._open: dict[int, dict[int, Ids]] = {}  # in the order in which they were made
        self._pages: list[Page] = []  # a heap, by the time of the next slot
        self._first: int | None = None  # the earliest open slot

    def __bool__(self) -> bool:
        return self._first is not None or bool(self._pages)

    def first(self) -> int | None:
        """The earliest slot, or None. O(1)."""
        if self._pages and (self._first is None or self._pages[0].time < self._first):
            return self._pages[0].time
        return self._first

    def add(self, time: int, ledger: int, entry: int) -> None:
        """An entry comes to a slot, where it may be already. O(1), and O(entries) for one in a thousand or so."""
        slot = self._open.get(time)
        if slot is None:
            slot = self._opened(time)
        ids = slot.get(ledger)
        if ids is None:
            slot[ledger] = [entry, 0, entry]
        elif type(ids) is not list:
            try:
                ids.add(entry)
            except OverflowError:
                slot[ledger] = with_entry(ids, entry)
        elif ids[1] and entry == ids[2] + ids[1]:
            ids[2] = entry
        else:
            slot[ledger] = uneven(ids, entry)

    def _opened(self, time: int) -> dict[int, Ids]:
        """A new open slot; the oldest ones are sealed if there are many."""
        if len(self._open) >= _STAY + _LEAST + min(len(self._pages) // 4, _MOST):
            self._seal(len(self._open) - _STAY)
        slot: dict[int, Ids] = {}
        self._open[time] = slot
        if self._first is None or time < self._first:
            self._first = time
        return slot

    def _seal(self, count: int) -> None:
        """Packs the slots that were opened first into a page. O(their entries)."""
        times = sorted([time for _, time in zip(range(count), self._open, strict=False)])
        blob = bytearray()
        for time, later in pairwise([*times, times[-1]]):
            slot, ledger = self._open.pop(time), 0
            put_number(blob, len(slot))
            for each in sorted(slot):
                put_number(blob, unsigned(each - ledger))
                put_entries(blob, slot[each])
                ledger = each
            put_number(blob, later - time)
        heappush(self._pages, Page(times[0], bytes(blob)))
        self._first = min(self._open, default=None)

    def seal(self) -> int:
        """Packs all open slots; how many bytes all pages are, without what is read of them. O(what is open + pages)."""
        if self._open:
            self._seal(len(self._open))
        return sum(len(page.blob) - page.at for page in self._pages)

    def take(self, limit: int) -> list[tuple[int, Entries]]:
        """Takes out all slots up to a time, in order. O(what is taken + n)."""
        pieces: list[tuple[int, Entries]] = []
        while self._pages and self._pages[0].time <= limit:
            page = heappop(self._pages)
            while not page.is_read() and page.time <= limit:
                pieces.append((page.time, page.read()))
            if not page.is_read():
                heappush(self._pages, page)
        if self._first is not None and self._first <= limit:
            for time in [time for time in self._open if time <= limit]:
                pieces.append((time, opened(self._open.pop(time))))
            self._first = min(self._open, default=None)
        return put_together(pieces)

    def items(self) -> list[tuple[int, Entries]]:
        """All slots, in order. O(all)."""
        pieces = [(time, opened(slot)) for time, slot in self._open.items()]
        for page in self._pages:
            pieces += pieces_of(page)
        return put_together(pieces)

    def check(self) -> list[str]:
        """Structural invariants that do not hold, one line each. O(all)."""
        wrong = []
        if self._first != min(self._open, default=None):
            wrong.append("the earliest open slot is not the one that is known")
        if any(self._pages[i] < self._pages[(i - 1) // 2] for i in range(1, len(self._pages))):
            wrong.append("the pages are not in order")
        pieces = [piece for page in self._pages for piece in pieces_of(page)]
        pieces += [(time, opened(slot)) for time, slot in self._open.items()]
        if not all(slot and all(entries for _, entries in slot) for _, slot in pieces):
            wrong.append("a slot or a ledger in it is empty")
        if any(a >= b for _, slot in pieces for _, entries in slot for a, b in pairwise(entries)):
            wrong.append("entries are not in order, each once")
        return wrong


def opened(slot: dict[int, Ids]) -> Entries:
    """An open slot's entries."""
    return [(ledger, entries_of(slot[ledger])) for ledger in sorted(slot)]


def pieces_of(page: Page) -> Iterator[tuple[int, Entries]]:
    """The slots of a page, which stays as it is."""
    copy = Page(page.time, page.blob, page.at)
    while not copy.is_read():
        time = copy.time
        yield time, copy.read()


def put_together(pieces: list[tuple[int, Entries]]) -> list[tuple[int, Entries]]:
    """Slots in order, of pieces in any order of which several may be of one slot. O(pieces), and their entries then."""
    whole: dict[int, Entries] = {}
    for time, slot in pieces:
        whole[time] = merged(whole[time], slot) if time in whole else slot
    return [(time, whole[time]) for time in sorted(whole)]


def merged(one: Entries, other: Entries) -> Entries:
    """Two pieces of a slot as one."""
    ledgers = dict(one)
    for ledger, entries in other:
        ledgers[ledger] = sorted({*ledgers.get(ledger, ()), *entries})
    return sorted(ledgers.items())
