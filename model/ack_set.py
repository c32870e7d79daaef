"""Ack sets (PIP-54): which messages of a batch are not yet acknowledged; how ack sets are combined and compared.

A producer can send several messages as one batch, which is one entry of the topic. Consumers may acknowledge the
messages of a batch one by one. For such an entry, the broker keeps an ack set: one bit for each message, in words of 64
bits. A set bit is an unacknowledged message, and a clear bit is an acknowledged message. The operations of this
component change an ack set, combine or compare two, or compare two positions with ack sets.

Models `BitSetRecyclable` as the broker uses it for batch indexes, and `PositionAckSetUtil`. One step is one call.
(Until apache/pulsar#23833, the values of `ManagedCursorImpl.batchDeletedIndexes` were of type `BitSetRecyclable`.)

Each word is a signed integer; word 0 has the batch indexes 0 to 63. Missing words at the end count as zeros.

    and       acknowledges the messages that either ack set acknowledges: bitwise AND. Zero words at the end are trimmed
    empty     whether all messages are acknowledged
    overlap   whether a message of the batch is acknowledged by both ack sets. If the ack sets are those of two
              transactions, the transactions conflict
    compare   by position; within an entry by the first unacknowledged message. A position without an ack set, or with
              an empty one, acknowledges the whole entry and is the largest of the entry

State: the bit sets in use, one for each open batch. `open_batch` creates a bit set and returns the number of the batch;
later calls take this number. `recycle` removes the bit set. All batches have the same size, `batch_size`; 0 means that
the size is unknown. If the size is known, the calls that take a number reject an index, a range or words beyond the
batch; only `next_set_bit` and `next_clear_bit` may begin there. The other calls take ack sets of any length.

A mask is an ack set as one non-negative integer of any length: bit i is message i. `model/batch_acks` and the
transaction models use the functions on masks.

Difference from `isAckSetOverlap` in master 2026-07: an overlap is determined within the batch (rule `overlap`).

Not modelled: the pool of bit sets, and its memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

from model.machine import Machine, Step, refused
from model.positions import Position
from model.values import AtLeast, Between, Origin, Rule, record

#: A word of an ack set: a signed 64-bit integer.
Word = Annotated[int, Between(-(2**63), 2**63 - 1)]
AckSet = tuple[Word, ...]
Index = Annotated[int, AtLeast(0)]

_WORD = 64
_ALL = 2**64 - 1
_SIGN = 2**63

# ---- words and masks ----------------------------------------------------------------------------------


def mask_of(words: AckSet) -> int:
    """Returns an ack set as a mask."""
    if len(words) == 1:
        return words[0] & _ALL
    mask = 0
    for i, word in enumerate(words):
        mask |= (word & _ALL) << (_WORD * i)
    return mask


def words_of(mask: int) -> AckSet:
    """Returns a mask as an ack set without zero words at the end (`BitSetRecyclable.toLongArray`)."""
    words = []
    while mask:
        word = mask & _ALL
        words.append(word - 2 * _SIGN if word >= _SIGN else word)
        mask >>= _WORD
    return tuple(words)


def bits_below(size: int) -> int:
    """Returns the mask whose bits 0 to `size` - 1 are set: that of a batch without acknowledged messages."""
    return (1 << size) - 1


def lowest_set_bit(mask: int) -> int:
    """Returns the index of the lowest set bit, the first unacknowledged message; -1 if no bit is set."""
    return (mask & -mask).bit_length() - 1


def acked_in_both(one: int, other: int, size: int) -> int:
    """Returns a mask whose set bits are the messages of a batch that both masks acknowledge."""
    return ~(one | other) & bits_below(size)


# ---- settings and state -------------------------------------------------------------------------------


class Config(NamedTuple):
    """The batch size, and the rule in which versions differ."""

    #: number of messages of each batch; 0 if unknown
    batch_size: Annotated[int, AtLeast(0)] = 10
    #: the bits in which an overlap is determined. `within_batch`: the bits of the batch. `words_of_both`: the bits of
    #: the words that both ack sets have after zero words at the end are trimmed
    overlap: Annotated[
        Literal["within_batch", "words_of_both"],
        Rule(Origin.RECORDED, {"words_of_both": "PositionAckSetUtil.isAckSetOverlap, master 2026-07"}),
    ] = "within_batch"


class Batch(NamedTuple):
    """The bit set of an open batch."""

    batch: int  # number of the batch
    bits: int  # mask: a set bit is an unacknowledged message


@record
class State(NamedTuple):
    """The open batches."""

    batches: tuple[Batch, ...]  # in order of numbers
    next_batch: int  # number of the next batch


def start(cfg: Config) -> State:
    """Returns the state without open batches."""
    return State((), 1)


class AckPosition(NamedTuple):
    """A position with or without an ack set (`AckSetState`)."""

    ledger: int
    entry: int
    carries_ack_set: bool  # whether the position has the extension `AckSetState`
    ack_set: AckSet | None  # None (null) is also possible with the extension


class Updated(NamedTuple):
    """Outcome of `andAckSet` of two positions: the ack set of the position `current` after the call."""

    current_ack_set: AckSet | None


ack_set = Machine(
    "ack_set",
    Config,
    start,
    source="PIP-54",
    java={
        "BitSetRecyclable": ("create", "recycle", "set", "clear", "flip", "and", "get", "nextSetBit", "nextClearBit"),
        "PositionAckSetUtil": ("andAckSet", "isAckSetEmpty", "isAckSetOverlap", "compareToWithAckSet"),
    },
)


BatchNumber = Annotated[int, AtLeast(1)]


def bits_of(s: State, batch: int) -> int | None:
    """Returns the mask of a batch, or None if the batch is not open."""
    for each in s.batches:
        if each.batch == batch:
            return each.bits
    return None


def updated(s: State, batch: int, wrong: str, change: Callable[[int], int]) -> Step[State, None]:
    """Returns the step of a call that changes the bits of a batch.

    The call is rejected if the batch is not open, or if `wrong` is not empty: `wrong` is the error of the arguments.
    """
    bits = bits_of(s, batch)
    if bits is None:
        return refused(s, "not_open", f"batch {batch} is not open")
    if wrong:
        return refused(s, "illegal_argument", wrong)
    new = change(bits)
    return s._replace(batches=tuple([Batch(batch, new) if b.batch == batch else b for b in s.batches])), None


def exceeds_batch(cfg: Config, mask: int) -> bool:
    """Returns whether a bit of a mask is beyond the batch; False if the batch size is unknown."""
    return cfg.batch_size > 0 and mask > bits_below(cfg.batch_size)


def range_error(cfg: Config, begin: int, end: int) -> str:
    """Returns the error of a range [begin, end), or an empty string."""
    if begin > end:
        return f"begin is {begin}, after its end {end}"
    if cfg.batch_size and end > cfg.batch_size:
        return f"end is {end}, beyond the batch of {cfg.batch_size}"
    return ""


def index_error(cfg: Config, index: int) -> str:
    """Returns the error of an index, or an empty string."""
    return f"index is {index}, beyond the batch of {cfg.batch_size}" if 0 < cfg.batch_size <= index else ""


def range_mask(begin: int, end: int) -> int:
    """Returns the mask of the range [begin, end)."""
    return bits_below(end) & ~bits_below(begin)


# ---- bit sets of batches ------------------------------------------------------------------------------


@ack_set.action
def open_batch(cfg: Config, s: State) -> Step[State, int]:
    """Creates an empty bit set for a batch (`BitSetRecyclable.create`), and returns the number of the batch.

    The caller then sets the range of the batch.
    """
    number = s.next_batch
    return State((*s.batches, Batch(number, 0)), number + 1), number


@ack_set.action
def recycle(cfg: Config, s: State, batch: BatchNumber) -> Step[State, None]:
    """Recycles a bit set (`BitSetRecyclable.recycle`). The next bit set that is created is empty."""
    if bits_of(s, batch) is None:
        return refused(s, "not_open", f"batch {batch} is not open")
    return s._replace(batches=tuple([b for b in s.batches if b.batch != batch])), None


@ack_set.action
def set_range(cfg: Config, s: State, batch: BatchNumber, begin: Index, end: Index) -> Step[State, None]:
    """Sets the bits [begin, end) (`BitSetRecyclable.set`): these messages are unacknowledged."""
    return updated(s, batch, range_error(cfg, begin, end), lambda bits: bits | range_mask(begin, end))


@ack_set.action
def clear_range(cfg: Config, s: State, batch: BatchNumber, begin: Index, end: Index) -> Step[State, None]:
    """Clears the bits [begin, end) (`BitSetRecyclable.clear`): these messages are acknowledged."""
    return updated(s, batch, range_error(cfg, begin, end), lambda bits: bits & ~range_mask(begin, end))


@ack_set.action
def flip_range(cfg: Config, s: State, batch: BatchNumber, begin: Index, end: Index) -> Step[State, None]:
    """Flips the bits [begin, end) (`BitSetRecyclable.flip`)."""
    return updated(s, batch, range_error(cfg, begin, end), lambda bits: bits ^ range_mask(begin, end))


@ack_set.action
def set_index(cfg: Config, s: State, batch: BatchNumber, index: Index) -> Step[State, None]:
    """Sets a bit (`BitSetRecyclable.set`): the message is unacknowledged."""
    return updated(s, batch, index_error(cfg, index), lambda bits: bits | 1 << index)


@ack_set.action
def clear_index(cfg: Config, s: State, batch: BatchNumber, index: Index) -> Step[State, None]:
    """Clears a bit (`BitSetRecyclable.clear`): the message is acknowledged."""
    return updated(s, batch, index_error(cfg, index), lambda bits: bits & ~(1 << index))


@ack_set.action
def and_with(cfg: Config, s: State, batch: BatchNumber, words: AckSet) -> Step[State, None]:
    """Clears the bits that are clear in `words` (`BitSetRecyclable.and`). Acknowledged messages stay acknowledged."""
    mask = mask_of(words)
    wrong = f"words have a bit beyond the batch of {cfg.batch_size}" if exceeds_batch(cfg, mask) else ""
    return updated(s, batch, wrong, lambda bits: bits & mask)


@ack_set.action
def get_index(cfg: Config, s: State, batch: BatchNumber, index: Index) -> Step[State, bool]:
    """Returns whether a bit is set (`BitSetRecyclable.get`): whether the message is unacknowledged."""
    wrong, bits = index_error(cfg, index), bits_of(s, batch)
    if bits is None:
        return refused(s, "not_open", f"batch {batch} is not open")
    if wrong:
        return refused(s, "illegal_argument", wrong)
    return s, bool(bits >> index & 1)


@ack_set.action
def next_set_bit(cfg: Config, s: State, batch: BatchNumber, begin: Index) -> Step[State, int]:
    """Returns the first unacknowledged message from `begin` on, -1 if none (`BitSetRecyclable.nextSetBit`)."""
    bits = bits_of(s, batch)
    if bits is None:
        return refused(s, "not_open", f"batch {batch} is not open")
    for i in range(begin, bits.bit_length()):
        if bits >> i & 1:
            return s, i
    return s, -1


@ack_set.action
def next_clear_bit(cfg: Config, s: State, batch: BatchNumber, begin: Index) -> Step[State, int]:
    """Returns the first clear bit from `begin` on (`BitSetRecyclable.nextClearBit`); it may be beyond the batch."""
    bits, i = bits_of(s, batch), begin
    if bits is None:
        return refused(s, "not_open", f"batch {batch} is not open")
    while bits >> i & 1:
        i += 1
    return s, i


# ---- functions of ack sets ----------------------------------------------------------------------------


@ack_set.action
def and_ack_set(cfg: Config, s: State, first: AckSet, second: AckSet) -> Step[State, AckSet]:
    """Returns the bitwise AND of two ack sets, without zero words at the end (`andAckSet`)."""
    return s, words_of(mask_of(first) & mask_of(second))


@ack_set.action
def and_position_ack_set(
    cfg: Config, s: State, current: AckPosition | None, other: AckPosition | None
) -> Step[State, Updated | None]:
    """Replaces the ack set of `current` by the AND of the ack sets of `current` and `other` (`andAckSet`).

    The positions need not be of the same entry. If a position is null, nothing changes. Two positions are rejected if
    one of them has no `AckSetState` or a null ack set. Returns the ack set of `current` after the call; None if
    `current` is null.
    """
    if current is None:
        return s, None
    if other is None:
        return s, Updated(current.ack_set)
    if not (current.carries_ack_set and other.carries_ack_set):
        return refused(s, "illegal_state", "a position of this kind carries no ack set")
    if current.ack_set is None or other.ack_set is None:
        return refused(s, "null_pointer", "the position has no ack set")
    return s, Updated(words_of(mask_of(current.ack_set) & mask_of(other.ack_set)))


@ack_set.action
def is_ack_set_empty(cfg: Config, s: State, ack_set: AckSet) -> Step[State, bool]:
    """Returns whether all messages are acknowledged (`isAckSetEmpty`)."""
    return s, not any(ack_set)


@ack_set.action
def is_ack_set_overlap(cfg: Config, s: State, current: AckSet | None, other: AckSet | None) -> Step[State, bool]:
    """Returns whether a message is acknowledged by both ack sets (`isAckSetOverlap`).

    Returns False if an ack set is null, although a position without ack set acknowledges its whole entry.
    """
    if current is None or other is None:
        return s, False
    return s, acked_in_both(mask_of(current), mask_of(other), compared_bits(cfg, current, other)) != 0


def compared_bits(cfg: Config, current: AckSet, other: AckSet) -> int:
    """Returns the number of bits, from bit 0 on, in which an overlap is determined (`Config.overlap`).

    A batch of unknown size is taken to be as long as the longer array.
    """
    if cfg.overlap == "words_of_both":
        return _WORD * min(len(words_of(mask_of(current))), len(words_of(mask_of(other))))
    return cfg.batch_size or _WORD * max(len(current), len(other))


@ack_set.action
def compare_with_ack_set(
    cfg: Config, s: State, current: AckPosition | None, other: AckPosition | None
) -> Step[State, int]:
    """Returns a negative number, 0 or a positive number if `current` is smaller than, equal to or larger than `other`.

    Within an entry, the result is the difference of the first unacknowledged messages (`compareToWithAckSet`). A
    position that acknowledges the whole entry has no unacknowledged message and is the largest.
    """
    if current is None or other is None:
        return refused(s, "illegal_argument", "a position is missing")
    ours, theirs = Position(current.ledger, current.entry), Position(other.ledger, other.entry)
    if ours != theirs:
        return s, -1 if ours < theirs else 1
    one, two = lowest_set_bit(mask_of(current.ack_set or ())), lowest_set_bit(mask_of(other.ack_set or ()))
    # -1: no message is unacknowledged, and the position is the largest. Reversing the sign orders it last
    return s, one - two if one >= 0 and two >= 0 else two - one


# ---- canonical form and observation -------------------------------------------------------------------


@ack_set.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Renumbers the open batches from 1, in the order in which they were opened."""
    return State(tuple([Batch(number, b.bits) for number, b in enumerate(s.batches, 1)]), len(s.batches) + 1)


@ack_set.observation
def observe(cfg: Config, s: State) -> list[dict[str, object]]:
    """Returns the words, cardinality and length of each open bit set, and whether all its bits are clear."""
    return [
        {
            "words": list(words_of(b.bits)),
            "cardinality": b.bits.bit_count(),
            "length": b.bits.bit_length(),
            "empty": not b.bits,
        }
        for b in s.batches
    ]


# ---- profiles -----------------------------------------------------------------------------------------

reference = ack_set.profile("reference", "Pulsar's behaviour with its known defects corrected", Config())

shipped = ack_set.profile(
    "pulsar-2026-07",
    "recorded from Apache Pulsar master of 2026-07-23",
    Config(overlap="words_of_both"),
)
