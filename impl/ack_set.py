"""Ack sets. The bit set of an open batch is one Python integer. A change or a search is linear in its length.

Implements the `reference` rules and all settings of `model/ack_set`.
"""

from __future__ import annotations

from itertools import zip_longest

from model.ack_set import AckPosition, AckSet, Batch, Config, State, Updated
from model.machine import Refused

_ALL = 2**64 - 1


def mask_of(words: AckSet) -> int:
    """Returns an ack set as one integer, bit i for message i. O(words)."""
    if len(words) == 1:
        return words[0] & _ALL
    return int.from_bytes(b"".join([word.to_bytes(8, "little", signed=True) for word in words]), "little")


def words_of(bits: int) -> AckSet:
    """Returns an integer as an ack set without zero words at the end. O(words)."""
    if bits < 2**63:
        return (bits,) if bits else ()
    count = (bits.bit_length() + 63) // 64
    data = bits.to_bytes(8 * count, "little")
    return tuple([int.from_bytes(data[at : at + 8], "little", signed=True) for at in range(0, 8 * count, 8)])


def trimmed(words: list[int]) -> AckSet:
    """Returns the words without zeros at the end. O(words)."""
    while words and not words[-1]:
        words.pop()
    return tuple(words)


def first_bit(words: AckSet | None) -> int:
    """Returns the index of the first set bit; -1 if no bit is set, or without an ack set. O(words before the bit)."""
    for at, word in enumerate(words or ()):
        if word:
            return 64 * at + (word & -word).bit_length() - 1
    return -1


class AckSets:
    """The bit sets of open batches, and functions of ack sets. Methods are named as the actions."""

    def __init__(self, cfg: Config) -> None:
        self._batches: dict[int, int] = {}  # number of the batch -> its bits, in order of numbers
        self._next_batch = 1
        #: the batch size, the largest valid end of a range; None if the size is unknown
        self._end = cfg.batch_size or None

    # ---- bit sets of batches

    def open_batch(self) -> int:
        batch = self._next_batch
        self._batches[batch] = 0
        self._next_batch = batch + 1
        return batch

    def recycle(self, batch: int) -> Refused | None:
        return self._not_open(batch) if self._batches.pop(batch, None) is None else None

    def _not_open(self, batch: int) -> Refused:
        """Returns the refusal of a call on a batch that is not open."""
        return Refused("not_open", f"batch {batch} is not open")

    def _mask(self, batch: int, begin: int, end: int) -> int | Refused:
        """Returns the mask of a range, or the refusal of the call."""
        if batch not in self._batches:
            return self._not_open(batch)
        if begin > end:
            return Refused("illegal_argument", f"begin is {begin}, after its end {end}")
        if self._end is not None and end > self._end:
            return Refused("illegal_argument", f"end is {end}, beyond the batch of {self._end}")
        return (1 << end) - (1 << begin)

    def _bit(self, batch: int, index: int) -> int | Refused:
        """Returns the mask of a message, or the refusal of the call."""
        if batch not in self._batches:
            return self._not_open(batch)
        if self._end is not None and index >= self._end:
            return Refused("illegal_argument", f"index is {index}, beyond the batch of {self._end}")
        return 1 << index

    def set_range(self, batch: int, begin: int, end: int) -> Refused | None:
        """Sets a range. O(words)."""
        mask = self._mask(batch, begin, end)
        if isinstance(mask, Refused):
            return mask
        self._batches[batch] |= mask
        return None

    def clear_range(self, batch: int, begin: int, end: int) -> Refused | None:
        """Clears a range. O(words)."""
        mask = self._mask(batch, begin, end)
        if isinstance(mask, Refused):
            return mask
        self._batches[batch] &= ~mask
        return None

    def flip_range(self, batch: int, begin: int, end: int) -> Refused | None:
        """Flips a range. O(words)."""
        mask = self._mask(batch, begin, end)
        if isinstance(mask, Refused):
            return mask
        self._batches[batch] ^= mask
        return None

    def set_index(self, batch: int, index: int) -> Refused | None:
        """Sets a bit. O(words)."""
        bit = self._bit(batch, index)
        if isinstance(bit, Refused):
            return bit
        self._batches[batch] |= bit
        return None

    def clear_index(self, batch: int, index: int) -> Refused | None:
        """Clears a bit. O(words)."""
        bit = self._bit(batch, index)
        if isinstance(bit, Refused):
            return bit
        self._batches[batch] &= ~bit
        return None

    def and_with(self, batch: int, words: AckSet) -> Refused | None:
        """Clears the bits that are clear in an ack set: acknowledges the messages that it acknowledges. O(words)."""
        mask = mask_of(words)
        if batch not in self._batches:
            return self._not_open(batch)
        if self._end is not None and mask >> self._end:
            return Refused("illegal_argument", f"words have a bit beyond the batch of {self._end}")
        self._batches[batch] &= mask
        return None

    def get_index(self, batch: int, index: int) -> bool | Refused:
        """Returns whether a message is unacknowledged. O(words)."""
        bit = self._bit(batch, index)
        return bit if isinstance(bit, Refused) else self._batches[batch] & bit != 0

    def next_set_bit(self, batch: int, begin: int) -> int | Refused:
        """Returns the index of the first set bit from `begin` on; -1 if there is none. O(words)."""
        if batch not in self._batches:
            return self._not_open(batch)
        rest = self._batches[batch] >> begin
        return begin + (rest & -rest).bit_length() - 1 if rest else -1

    def next_clear_bit(self, batch: int, begin: int) -> int | Refused:
        """Returns the index of the first clear bit from `begin` on. O(words)."""
        if batch not in self._batches:
            return self._not_open(batch)
        rest = ~(self._batches[batch] >> begin)
        return begin + (rest & -rest).bit_length() - 1

    # ---- functions of ack sets

    def and_ack_set(self, first: AckSet, second: AckSet) -> AckSet:
        """Returns the AND of two ack sets; a missing word is zero. O(words)."""
        return trimmed([a & b for a, b in zip(first, second, strict=False)])

    def and_position_ack_set(self, current: AckPosition | None, other: AckPosition | None) -> Updated | Refused | None:
        """Returns the ack set that `current` has after the call: the AND of both. O(words)."""
        if current is None:
            return None
        if other is None:
            return Updated(current.ack_set)
        if not (current.carries_ack_set and other.carries_ack_set):
            return Refused("illegal_state", "a position of this kind carries no ack set")
        if current.ack_set is None or other.ack_set is None:
            return Refused("null_pointer", "the position has no ack set")
        return Updated(self.and_ack_set(current.ack_set, other.ack_set))

    def is_ack_set_empty(self, ack_set: AckSet) -> bool:
        """Returns whether all messages are acknowledged. O(words)."""
        return not any(ack_set)

    def is_ack_set_overlap(self, current: AckSet | None, other: AckSet | None) -> bool:
        """Returns whether a message is acknowledged by both ack sets. O(words)."""
        if current is None or other is None:
            return False
        if self._end is None:
            # a word other than -1 has a clear bit: a message that both acknowledge
            return any((a | b) != -1 for a, b in zip_longest(current, other, fillvalue=0))
        mask = (1 << self._end) - 1
        return (mask_of(current) | mask_of(other)) & mask != mask

    def compare_with_ack_set(self, current: AckPosition | None, other: AckPosition | None) -> int | Refused:
        """Compares positions, then first unacknowledged messages. O(words before the first set bits)."""
        if current is None or other is None:
            return Refused("illegal_argument", "a position is missing")
        if current.ledger != other.ledger:
            return -1 if current.ledger < other.ledger else 1
        if current.entry != other.entry:
            return -1 if current.entry < other.entry else 1
        ours, theirs = first_bit(current.ack_set), first_bit(other.ack_set)
        # -1 (no set bit, or no ack set): the whole entry is acknowledged. -1 must be larger than every index, so the
        # difference is taken the other way round
        return theirs - ours if ours < 0 or theirs < 0 else ours - theirs

    # ---- for the engines

    def check(self) -> list[str]:
        wrong = []
        if any(bits < 0 for bits in self._batches.values()):
            wrong.append("a bit set is negative")
        if self._end is not None and any(bits >> self._end for bits in self._batches.values()):
            wrong.append("a bit is beyond the batch")
        if list(self._batches) != sorted(self._batches) or self._next_batch <= max(self._batches, default=0):
            wrong.append("the batches are out of order, or the next number is in use")
        return wrong

    def view(self) -> State:
        return State(tuple([Batch(*item) for item in self._batches.items()]), self._next_batch)

    @classmethod
    def load(cls, cfg: Config, state: State) -> AckSets:
        self = cls(cfg)
        self._batches = dict(state.batches)
        self._next_batch = state.next_batch
        return self
