"""Compressed buckets of pending entries.

    open buckets    the buckets that were created last. While the entries of a ledger are evenly spaced and arrive in
                    order, they are a progression (first, step, last); otherwise a bitmap, or a set if an entry id does
                    not fit in 32 bits
    sealed buckets  older buckets, packed into pages. A page is bytes, with its buckets in order of time
    reopened        a nack for a sealed bucket creates an open bucket of the same time, which may be sealed, too. When
                    buckets are read, the parts of a bucket are merged

The more pages there are, the more buckets may be open, and the larger pages become. A page is read from its front, one
bucket at a time. In a page, the entries of a ledger have one of these forms:

    progression    first, step, count; if the entries are evenly spaced. Otherwise the shortest of the other forms:
    gaps           one byte per gap. A gap of 255 or more is a byte 255 for each 255 in the gap, then the remainder
    varints        gaps in groups of seven bits, for few entries that are far apart
    bitmap         a Roaring bitmap with run containers where they are smaller; only from `_DENSE` entries on, and if
                   the last id minus the first one fits in 32 bits

Complexities count a dictionary operation or an addition to a bitmap as one, and ignore the logarithm of sorting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import accumulate, pairwise, repeat
from typing import Any

from pyroaring import BitMap

#: When a bucket is to be opened while `_STAY` + `_LEAST` buckets are open, all but the latest `_STAY` are sealed first.
#: This limit rises by one for every four pages, at most by `_MOST`.
_STAY, _LEAST, _MOST = 4, 8, 256
#: With fewer entries, no bitmap is tried.
_DENSE = 64

_PROGRESSION, _GAPS, _VARINTS, _BITMAP = range(4)

#: Entries of a ledger in an open bucket: [first, step, last] (step 0: one entry), a bitmap, or a set.
Ids = Any
#: A bucket's ledgers, in order, each with its entries, in order.
Entries = list[tuple[int, list[int]]]


class Page:
    """Sealed buckets, read from the front."""

    __slots__ = ("at", "blob", "time")

    def __init__(self, time: int, blob: bytes, at: int = 0) -> None:
        self.time = time  # of the next bucket
        self.blob = blob
        self.at = at  # offset of the next bucket

    def __lt__(self, other: Page) -> bool:
        return self.time < other.time

    def read(self) -> Entries:
        """Returns the next bucket, and moves `at` and `time` to the bucket after it. O(entries of the bucket)."""
        blob, at, ledger, bucket = self.blob, self.at, 0, []
        ledgers, at = number_at(blob, at)
        for _ in range(ledgers):
            step, at = number_at(blob, at)
            ledger += signed(step)
            entries, at = entries_at(blob, at)
            bucket.append((ledger, entries))
        difference, self.at = number_at(blob, at)
        self.time += difference
        return bucket

    def is_read(self) -> bool:
        """Returns whether all buckets were read."""
        return self.at == len(self.blob)


# ---- numbers and entries as bytes ---------------------------------------------------------------------


def put_number(blob: bytearray, number: int) -> None:
    """Appends a nonnegative number as a varint: seven bits per byte, the lowest first."""
    while number > 127:
        blob.append(number & 127 | 128)
        number >>= 7
    blob.append(number)


def number_at(blob: bytes, at: int) -> tuple[int, int]:
    """Returns the varint at an offset, and the offset after it."""
    byte = blob[at]
    number, shift = byte & 127, 7
    while byte > 127:
        at += 1
        byte = blob[at]
        number |= (byte & 127) << shift
        shift += 7
    return number, at + 1


def unsigned(number: int) -> int:
    """Returns the zigzag encoding of an integer: nonnegative, and small for numbers near zero."""
    return 2 * number if number >= 0 else -2 * number - 1


def signed(number: int) -> int:
    """Returns the integer of a zigzag encoding."""
    return number >> 1 if number & 1 == 0 else -(number + 1 >> 1)


def put_entries(blob: bytearray, ids: Ids) -> None:
    """Appends the entries of a ledger. O(entries).

    A progression is the first entry, a header, and the step if there are more entries. Any other form is the first
    entry, a header, the length of the packed gaps or bitmap in bytes, and these bytes. The header is the number of gaps
    and, in its lowest 2 bits, the form.
    """
    if type(ids) is list:
        first, step, last = ids
        put_progression(blob, first, step, (last - first) // step + 1 if step else 1)  # step 0: one entry
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
    """Appends evenly spaced entries."""
    put_number(blob, unsigned(first))
    put_number(blob, count - 1 << 2 | _PROGRESSION)
    if count > 1:
        put_number(blob, step)


def packed_gaps(gaps: list[int]) -> tuple[int, bytes]:
    """Returns the shorter form of the gaps, `_GAPS` or `_VARINTS`, and the gaps in this form."""
    if max(gaps) < 255:
        return _GAPS, bytes(gaps)
    numbers = bytearray()
    for gap in gaps:
        put_number(numbers, gap)
    if sum([gap // 255 for gap in gaps]) + len(gaps) > len(numbers):
        return _VARINTS, bytes(numbers)
    return _GAPS, b"".join([b"\xff" * (gap // 255) + bytes((gap % 255,)) for gap in gaps])


def entries_at(blob: bytes, at: int) -> tuple[list[int], int]:
    """Returns the entries at an offset, in order, and the offset after them. O(entries)."""
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
        # a byte that is not 255 ends a gap: the sum up to it is an entry
        sums = accumulate(packed, initial=first)
        next(sums)
        return [first, *[entry for byte, entry in zip(packed, sums, strict=True) if byte != 255]], at
    entries, read = [first], 0
    while read < length:
        gap, read = number_at(packed, read)
        entries.append(entries[-1] + gap)
    return entries, at


# ---- open buckets -------------------------------------------------------------------------------------


def entries_of(ids: Ids) -> list[int]:
    """Returns the entries of a ledger in an open bucket, in order. O(entries)."""
    if type(ids) is list:
        first, step, last = ids
        return list(range(first, last + 1, step or 1))
    return sorted(ids)


def with_irregular(ids: list[int], entry: int) -> Ids:
    """Returns the entries of a progression and one more entry, which is not its next one. O(entries).

    The result is `ids` if they have the entry; a progression if `ids` is one entry, and the new one is later; otherwise
    a bitmap or set.
    """
    first, step, last = ids
    if first <= entry <= last and (entry - first) % (step or 1) == 0:
        return ids
    if step == 0 and entry > first:
        return [first, entry - first, entry]
    return with_entry(entries_of(ids), entry)


def with_entry(entries: Iterable[int], entry: int) -> Ids:
    """Returns the entries and one more entry as a bitmap, or as a set if an id does not fit in 32 bits."""
    every = [*entries, entry]
    is_wide = min(every) < 0 or max(every) >= 2**32
    return set(every) if is_wide else BitMap(every)


class Buckets:
    """Pending entries by bucket time and ledger; a bucket holds an entry once."""

    def __init__(self) -> None:
        self._open: dict[int, dict[int, Ids]] = {}  # in order of creation
        self._pages: list[Page] = []  # a heap, by the time of the next bucket
        self._first: int | None = None  # the time of the earliest open bucket

    def first(self) -> int | None:
        """Returns the earliest bucket time, or None. O(1)."""
        if self._pages and (self._first is None or self._pages[0].time < self._first):
            return self._pages[0].time
        return self._first

    def add(self, time: int, ledger: int, entry: int) -> None:
        """Adds an entry to a bucket. O(1) amortised.

        O(entries) if the entry ends a progression, or if it opens a bucket and others are sealed first.
        """
        bucket = self._open.get(time)
        if bucket is None:
            bucket = self._opened(time)
        ids = bucket.get(ledger)
        if ids is None:
            bucket[ledger] = [entry, 0, entry]
        elif type(ids) is not list:
            try:
                ids.add(entry)
            except OverflowError:
                bucket[ledger] = with_entry(ids, entry)
        elif ids[1] and entry == ids[2] + ids[1]:
            ids[2] = entry
        else:
            bucket[ledger] = with_irregular(ids, entry)

    def _opened(self, time: int) -> dict[int, Ids]:
        """Returns a new open bucket. If there are many open buckets, seals all but the last `_STAY` of them."""
        if len(self._open) >= _STAY + _LEAST + min(len(self._pages) // 4, _MOST):
            self._seal(len(self._open) - _STAY)
        bucket: dict[int, Ids] = {}
        self._open[time] = bucket
        if self._first is None or time < self._first:
            self._first = time
        return bucket

    def _seal(self, count: int) -> None:
        """Packs the `count` open buckets that were created first into a page. O(entries of these buckets).

        A bucket in a page is: the number of ledgers; for each ledger, the difference to the previous ledger id, and the
        entries; then the difference to the time of the next bucket, 0 in the last one.
        """
        times = sorted([time for _, time in zip(range(count), self._open, strict=False)])
        blob = bytearray()
        for time, next_time in pairwise([*times, times[-1]]):
            bucket, ledger = self._open.pop(time), 0
            put_number(blob, len(bucket))
            for each in sorted(bucket):
                put_number(blob, unsigned(each - ledger))
                put_entries(blob, bucket[each])
                ledger = each
            put_number(blob, next_time - time)
        heappush(self._pages, Page(times[0], bytes(blob)))
        self._first = min(self._open, default=None)

    def seal(self) -> int:
        """Packs all open buckets and returns the number of unread bytes of all pages. O(open entries + pages)."""
        if self._open:
            self._seal(len(self._open))
        return sum(len(page.blob) - page.at for page in self._pages)

    def take(self, limit: int) -> list[tuple[int, Entries]]:
        """Removes and returns all buckets up to a time, in order. O(removed entries + open buckets)."""
        parts: list[tuple[int, Entries]] = []
        while self._pages and self._pages[0].time <= limit:
            page = heappop(self._pages)
            while not page.is_read() and page.time <= limit:
                parts.append((page.time, page.read()))
            if not page.is_read():
                heappush(self._pages, page)
        if self._first is not None and self._first <= limit:
            for time in [time for time in self._open if time <= limit]:
                parts.append((time, entries_by_ledger(self._open.pop(time))))
            self._first = min(self._open, default=None)
        return joined(parts)

    def items(self) -> list[tuple[int, Entries]]:
        """Returns all buckets, in order. O(all)."""
        parts = [(time, entries_by_ledger(bucket)) for time, bucket in self._open.items()]
        for page in self._pages:
            parts += parts_of(page)
        return joined(parts)

    def check(self) -> list[str]:
        """Returns the violated structural invariants, one line each. O(all)."""
        wrong = []
        if self._first != min(self._open, default=None):
            wrong.append("the earliest open bucket is not the recorded one")
        if any(self._pages[i] < self._pages[(i - 1) // 2] for i in range(1, len(self._pages))):
            wrong.append("the heap of pages is out of order")
        parts = [part for page in self._pages for part in parts_of(page)]
        parts += [(time, entries_by_ledger(bucket)) for time, bucket in self._open.items()]
        if not all(bucket and all(entries for _, entries in bucket) for _, bucket in parts):
            wrong.append("a bucket, or a ledger in one, is empty")
        if any(a >= b for _, bucket in parts for _, entries in bucket for a, b in pairwise(entries)):
            wrong.append("entries are not sorted and distinct")
        return wrong


def entries_by_ledger(bucket: dict[int, Ids]) -> Entries:
    """Returns the entries of an open bucket, by ledger, in order."""
    return [(ledger, entries_of(bucket[ledger])) for ledger in sorted(bucket)]


def parts_of(page: Page) -> Iterator[tuple[int, Entries]]:
    """Yields the buckets of a page, and leaves the page unchanged."""
    copy = Page(page.time, page.blob, page.at)
    while not copy.is_read():
        time = copy.time
        yield time, copy.read()


def joined(parts: list[tuple[int, Entries]]) -> list[tuple[int, Entries]]:
    """Returns the buckets in order, from their parts in any order. O(parts + entries of buckets with several parts)."""
    whole: dict[int, Entries] = {}
    for time, bucket in parts:
        whole[time] = merged(whole[time], bucket) if time in whole else bucket
    return [(time, whole[time]) for time in sorted(whole)]


def merged(one: Entries, other: Entries) -> Entries:
    """Returns the union of two parts of a bucket."""
    ledgers = dict(one)
    for ledger, entries in other:
        ledgers[ledger] = sorted({*ledgers.get(ledger, ()), *entries})
    return sorted(ledgers.items())
