"""Range caches of branch 4.0, before PIP-430, with indexes.

Implements the `reference` rules and all settings of `model/legacy_cache`. A cache is a sorted list of positions, and a
dictionary from position to entry. A lookup is O(1). An insertion costs a binary search, and a shift of the list. A
removal costs the same, and O(entries removed).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

from model.legacy_cache import Config, Entry, Eviction, Hit, State
from model.machine import Refused
from model.positions import Position
from model.range_cache import NOTHING, Removed


class OrderedCache:
    """The entries of one topic, ordered by position, and their size."""

    __slots__ = ("bytes", "entries", "positions")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries = {e.position: e for e in entries}
        self.positions = sorted(self.entries)
        self.bytes = sum([e.bytes for e in self.entries.values()])

    def add(self, position: Position, size: int, timestamp_ns: int) -> bool:
        """Stores an entry unless its position is cached; returns whether it was stored. O(log n), and a shift."""
        if position in self.entries:
            return False
        self.entries[position] = Entry(position, size, timestamp_ns)
        insort(self.positions, position)
        self.bytes += size
        return True

    def take(self, low: int, high: int) -> Removed:
        """Removes the entries with index from `low` to `high` - 1. O(removed), and a shift."""
        if low >= high:
            return NOTHING
        freed = sum([self.entries.pop(position).bytes for position in self.positions[low:high]])
        del self.positions[low:high]
        self.bytes -= freed
        return Removed(high - low, freed)

    def take_until_free(self, bytes_to_free: int) -> Removed:
        """Removes the lowest positions until enough bytes are freed. O(removed), and a shift."""
        freed = count = 0
        for position in self.positions:
            if freed >= bytes_to_free:
                break
            freed += self.entries[position].bytes
            count += 1
        return self.take(0, count)

    def take_expired(self, threshold_ns: int) -> Removed:
        """Removes the lowest positions before the first unexpired entry. O(removed), and a shift."""
        count = 0
        for position in self.positions:
            if self.entries[position].timestamp_ns > threshold_ns:
                break
            count += 1
        return self.take(0, count)

    def count_before(self, position: Position, inclusive: bool) -> int:
        """Returns the number of entries before a position; if `inclusive`, also counts the entry there. O(log n)."""
        return bisect_right(self.positions, position) if inclusive else bisect_left(self.positions, position)

    def view(self) -> tuple[Entry, ...]:
        """Returns the entries in order. O(n)."""
        return tuple([self.entries[position] for position in self.positions])

    def check(self) -> list[str]:
        """Returns the violated structural invariants, one line each. O(n)."""
        wrong = []
        if self.positions != sorted(self.entries):
            wrong.append("the sorted positions are not those of the entries")
        if self.bytes != sum([e.bytes for e in self.entries.values()]):
            wrong.append("the size of a cache is not the sum of its entries' bytes")
        if any(position != e.position for position, e in self.entries.items()):
            wrong.append("an entry is stored at another position than its own")
        return wrong


def proportional_shares(sizes: list[tuple[int, int]], bytes_to_free: int) -> list[tuple[int, int]]:
    """Returns the fewest, largest caches that hold half of all bytes (rounded down), each with the bytes to free in it.

    The shares are proportional to the sizes. `sizes` has each cache with its size. A cache with a share of 0 is left
    out. O(n log n).
    """
    half = sum([size for _, size in sizes]) // 2
    by_size = sorted(sizes, key=lambda each: each[1], reverse=True)
    total = count = 0
    while total < half:
        total += by_size[count][1]
        count += 1
    asked = [(cache, bytes_to_free * size // total) for cache, size in by_size[:count]]
    return [each for each in asked if each[1]]


class LegacyCaches:
    """All caches of a broker, evicted separately. Methods are named as the actions."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self.now_ns = 0
        self._caches = [OrderedCache() for _ in range(cfg.caches)]

    def put(self, cache: int, position: Position, bytes: int, timestamp_ns: int) -> bool:
        """Stores an entry unless its position is cached. Complexity of OrderedCache.add."""
        return self._caches[cache].add(position, bytes, timestamp_ns)

    def put_mismatched(self, cache: int, position: Position, value_position: Position, bytes: int) -> bool | Refused:
        """Stores an entry, created now, unless the value has another position. Complexity of OrderedCache.add."""
        if value_position != position:
            return Refused("illegal_argument", "the value's position is not the key")
        return self._caches[cache].add(position, bytes, self.now_ns)

    def get(self, cache: int, position: Position) -> Hit | None:
        found = self._caches[cache].entries.get(position)
        return None if found is None else Hit(position, found.bytes)

    def get_range(self, cache: int, first: Position, last: Position) -> tuple[Hit, ...]:
        """Looks up every entry from first to last. O(log n + found)."""
        home = self._caches[cache]
        positions = home.positions[home.count_before(first, False) : home.count_before(last, True)]
        return tuple([Hit(position, home.entries[position].bytes) for position in positions])

    def exists(self, cache: int, position: Position) -> bool:
        return position in self._caches[cache].entries

    def remove_range(self, cache: int, first: Position, last: Position, last_inclusive: bool) -> Removed:
        """Removes a range. Complexity of OrderedCache.take."""
        home = self._caches[cache]
        return home.take(home.count_before(first, False), home.count_before(last, last_inclusive))

    def invalidate_ledger(self, cache: int, ledger: int) -> Removed:
        """Removes the entries of a ledger. Complexity of OrderedCache.take."""
        home = self._caches[cache]
        return home.take(
            home.count_before(Position(ledger, 0), False), home.count_before(Position(ledger + 1, 0), False)
        )

    def clear(self, cache: int) -> Removed:
        """Removes all entries. O(n)."""
        home = self._caches[cache]
        return home.take(0, len(home.positions))

    def time_pass(self, cache: int, threshold_ns: int) -> Removed:
        """Removes the entries before the first unexpired entry. Complexity of OrderedCache.take."""
        return self._caches[cache].take_expired(threshold_ns)

    def size_pass(self, cache: int, bytes_to_free: int) -> Removed | Refused:
        """Removes the lowest positions until enough bytes are freed. Complexity of OrderedCache.take."""
        if bytes_to_free <= 0:
            return Refused("illegal_argument", "the bytes to free must be more than zero")
        return self._caches[cache].take_until_free(bytes_to_free)

    def evict_proportionally(self, caches: tuple[int, ...], bytes_to_free: int) -> tuple[Eviction, ...] | Refused:
        """Runs the policy over several caches. O(caches log caches), and OrderedCache.take for each chosen cache."""
        if bytes_to_free <= 0 or not caches:
            return Refused("illegal_argument", "the policy needs bytes to free and at least one cache")
        if len(set(caches)) < len(caches):
            return Refused("illegal_argument", "the policy is given each cache once")
        sizes = [(c, self._caches[c].bytes) for c in caches]
        asked = proportional_shares(sizes, bytes_to_free)
        return tuple([Eviction(cache, share, self._caches[cache].take_until_free(share)) for cache, share in asked])

    def advance(self, nanos: int) -> None:
        self.now_ns += nanos

    def check(self) -> list[str]:
        return [line for home in self._caches for line in home.check()]

    def view(self) -> State:
        return State(self.now_ns, tuple([home.view() for home in self._caches]))

    @classmethod
    def load(cls, cfg: Config, state: State) -> LegacyCaches:
        self = cls(cfg)
        self.now_ns = state.now_ns
        self._caches = [OrderedCache(entries) for entries in state.caches]
        return self
