"""Ack sets: which messages of a batch are not yet acknowledged (PIP-54), and how two of them are combined and compared.

Models `BitSetRecyclable` as the cursor uses it for batch indexes, and `PositionAckSetUtil`. One step is one call.

An ack set is an array of 64-bit words, each a signed integer; word 0 has the batch indexes 0 to 63. A set bit is a
message that is not acknowledged, a clear bit is one that is. Words that are missing at the end are zeros.

    and       acknowledges a message if either set does: bitwise AND; zero words at the end are trimmed
    empty     whether all messages are acknowledged
    overlap   whether both sets acknowledge the same message of the batch: two transactions would acknowledge it
    compare   by position; within an entry by the first message that is not acknowledged. A position without an ack
              set, or with an empty one, acknowledges the whole entry and is the largest

State: the bit sets in use, one for each open batch. `open_batch` creates one, later calls name it by its number,
`recycle` removes it. The batch size is a setting; 0 means that it is unknown, and then an ack set is as long as its
words. Calls that set or clear bits beyond the batch are rejected.

A mask is an ack set as one integer of any length, without sign. `model/batch_acks` and the transaction models use the
functions on masks.

Difference from `isAckSetOverlap` in master 2026-07: an overlap is determined within the batch (rule `overlap`).

Not modelled: the pool of bit sets, and their memory.
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
    """Returns the words as one integer, whose bit i is message i."""
    if len(words) == 1:
        return words[0] & _ALL
    mask = 0
    for i, word in enumerate(words):
        mask |= (word & _ALL) << (_WORD * i)
    return mask


def words_of(mask: int) -> AckSet:
    """Returns an integer as words, without zero words at the end (`toLongArray`)."""
    words = []
    while mask:
        word = mask & _ALL
        words.append(word - 2 * _SIGN if word >= _SIGN else word)
        mask >>= _WORD
    return tuple(words)


def all_of(size: int) -> int:
    """Returns the mask of the first `size` messages, all of them unacknowledged."""
    return (1 << size) - 1


def first_of(mask: int) -> int:
    """Returns the first message that is not acknowledged, or -1."""
    return (mask & -mask).bit_length() - 1


def acked_in_both(one: int, other: int, size: int) -> int:
    """Returns the mask of the messages of a batch that both sets acknowledge."""
    return ~(one | other) & all_of(size)


# ---- settings and state -------------------------------------------------------------------------------


class Config(NamedTuple):
    """The batch, and the rule on which versions differ."""

    #: number of messages of the batch; 0 if unknown
    batch_size: Annotated[int, AtLeast(0)] = 10
    #: the bits in which an overlap is determined: those of the batch, or the words that both sets have after trimming
    overlap: Annotated[
        Literal["within_batch", "words_of_both"],
        Rule(Origin.RECORDED, {"words_of_both": "PositionAckSetUtil.isAckSetOverlap, master 2026-07"}),
    ] = "within_batch"


class Batch(NamedTuple):
    """The bit set of an open batch."""

    batch: int  # its number
    bits: int  # mask of the messages that are not acknowledged


@record
class State(NamedTuple):
    """The open batches."""

    batches: tuple[Batch, ...]  # in order of numbers
    next_batch: int


def start(cfg: Config) -> State:
    """Returns the state without open batches."""
    return State((), 1)


class AckPosition(NamedTuple):
    """A position with or without an ack set (`AckSetState`)."""

    ledger: int
    entry: int
    carries_ack_set: bool  # whether the position supports the extension `AckSetState`; then `ack_set` may still be null
    ack_set: AckSet | None


class Updated(NamedTuple):
    """Outcome of `andAckSet` of two positions: the ack set of the first one."""

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


Name = Annotated[int, AtLeast(1)]


def bits_of(s: State, batch: int) -> int | None:
    """Returns the bits of a batch, or None if it is not open."""
    for each in s.batches:
        if each.batch == batch:
            return each.bits
    return None


def updated(s: State, batch: int, wrong: str, change: Callable[[int], int]) -> Step[State, None]:
    """Updates the bits of one batch. Rejects the call if the batch is not open or `wrong` names an error."""
    bits = bits_of(s, batch)
    if bits is None:
        return refused(s, "not_open", f"batch {batch} is not open")
    if wrong:
        return refused(s, "illegal_argument", wrong)
    new = change(bits)
    return s._replace(batches=tuple([Batch(batch, new) if b.batch == batch else b for b in s.batches])), None


def beyond(cfg: Config, mask: int) -> bool:
    """Returns whether a bit of the mask is beyond the batch."""
    return cfg.batch_size > 0 and mask > all_of(cfg.batch_size)


def range_beyond(cfg: Config, begin: int, end: int) -> str:
    """Returns the error of a range [begin, end), or an empty string."""
    if begin > end:
        return f"begin is {begin}, after its end {end}"
    if cfg.batch_size and end > cfg.batch_size:
        return f"end is {end}, beyond the batch of {cfg.batch_size}"
    return ""


def index_beyond(cfg: Config, index: int) -> str:
    """Returns the error of an index, or an empty string."""
    return f"index is {index}, beyond the batch of {cfg.batch_size}" if 0 < cfg.batch_size <= index else ""


def between(begin: int, end: int) -> int:
    """Returns the mask of the range [begin, end)."""
    return all_of(end) & ~all_of(begin)


# ---- bit sets of batches ------------------------------------------------------------------------------


@ack_set.action
def open_batch(cfg: Config, s: State) -> Step[State, int]:
    """Creates a bit set without set bits (`BitSetRecyclable.create`), returns its number; the caller sets its range."""
    number = s.next_batch
    return State((*s.batches, Batch(number, 0)), number + 1), number


@ack_set.action
def recycle(cfg: Config, s: State, batch: Name) -> Step[State, None]:
    """Recycles the bit set (`BitSetRecyclable.recycle`). The next one created is empty."""
    if bits_of(s, batch) is None:
        return refused(s, "not_open", f"batch {batch} is not open")
    return s._replace(batches=tuple([b for b in s.batches if b.batch != batch])), None


@ack_set.action
def set_range(cfg: Config, s: State, batch: Name, begin: Index, end: Index) -> Step[State, None]:
    """Sets the bits [begin, end) (`BitSetRecyclable.set`): these messages are not acknowledged."""
    return updated(s, batch, range_beyond(cfg, begin, end), lambda bits: bits | between(begin, end))


@ack_set.action
def clear_range(cfg: Config, s: State, batch: Name, begin: Index, end: Index) -> Step[State, None]:
    """Clears the bits [begin, end) (`BitSetRecyclable.clear`): these messages are acknowledged."""
    return updated(s, batch, range_beyond(cfg, begin, end), lambda bits: bits & ~between(begin, end))


@ack_set.action
def flip_range(cfg: Config, s: State, batch: Name, begin: Index, end: Index) -> Step[State, None]:
    """Flips the bits [begin, end) (`BitSetRecyclable.flip`)."""
    return updated(s, batch, range_beyond(cfg, begin, end), lambda bits: bits ^ between(begin, end))


@ack_set.action
def set_index(cfg: Config, s: State, batch: Name, index: Index) -> Step[State, None]:
    """Sets a bit (`BitSetRecyclable.set`): the message is not acknowledged."""
    return updated(s, batch, index_beyond(cfg, index), lambda bits: bits | 1 << index)


@ack_set.action
def clear_index(cfg: Config, s: State, batch: Name, index: Index) -> Step[State, None]:
    """Clears a bit (`BitSetRecyclable.clear`): the message is acknowledged."""
    return updated(s, batch, index_beyond(cfg, index), lambda bits: bits & ~(1 << index))


@ack_set.action
def and_with(cfg: Config, s: State, batch: Name, words: AckSet) -> Step[State, None]:
    """Adds the acks of another ack set (`BitSetRecyclable.and`). Acknowledged messages stay acknowledged."""
    mask = mask_of(words)
    wrong = f"words have a bit beyond the batch of {cfg.batch_size}" if beyond(cfg, mask) else ""
    return updated(s, batch, wrong, lambda bits: bits & mask)


@ack_set.action
def get_index(cfg: Config, s: State, batch: Name, index: Index) -> Step[State, bool]:
    """Returns whether the message is not acknowledged (`BitSetRecyclable.get`)."""
    wrong, bits = index_beyond(cfg, index), bits_of(s, batch)
    if bits is None:
        return refused(s, "not_open", f"batch {batch} is not open")
    if wrong:
        return refused(s, "illegal_argument", wrong)
    return s, bool(bits >> index & 1)


@ack_set.action
def next_set_bit(cfg: Config, s: State, batch: Name, begin: Index) -> Step[State, int]:
    """Returns the first message from `begin` on that is not acknowledged, or -1 (`BitSetRecyclable.nextSetBit`)."""
    bits = bits_of(s, batch)
    if bits is None:
        return refused(s, "not_open", f"batch {batch} is not open")
    for i in range(begin, bits.bit_length()):
        if bits >> i & 1:
            return s, i
    return s, -1


@ack_set.action
def next_clear_bit(cfg: Config, s: State, batch: Name, begin: Index) -> Step[State, int]:
    """Returns the first clear bit from `begin` on (`BitSetRecyclable.nextClearBit`), perhaps beyond the batch."""
    bits, i = bits_of(s, batch), begin
    if bits is None:
        return refused(s, "not_open", f"batch {batch} is not open")
    while bits >> i & 1:
        i += 1
    return s, i


# ---- functions of ack sets ----------------------------------------------------------------------------


@ack_set.action
def and_ack_set(cfg: Config, s: State, first: AckSet, second: AckSet) -> Step[State, AckSet]:
    """Returns the messages that neither set acknowledges, trimmed (`andAckSet`)."""
    return s, words_of(mask_of(first) & mask_of(second))


@ack_set.action
def and_position_ack_set(
    cfg: Config, s: State, current: AckPosition | None, other: AckPosition | None
) -> Step[State, Updated | None]:
    """Replaces the current position's ack set by the AND of both (`andAckSet`), also if the entries differ.

    A null position changes nothing. A position that is no `AckSetState`, or has a null ack set, is an error.
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
    """Returns whether two ack sets acknowledge the same message (`isAckSetOverlap`).

    False if one of them is null, although a position without ack set acknowledges its whole entry. If the batch size is
    unknown, it is the length of the longer array.
    """
    if current is None or other is None:
        return s, False
    return s, acked_in_both(mask_of(current), mask_of(other), compared_bits(cfg, current, other)) != 0


def compared_bits(cfg: Config, current: AckSet, other: AckSet) -> int:
    """Returns the number of bits in which an overlap is determined."""
    if cfg.overlap == "words_of_both":
        return _WORD * min(len(words_of(mask_of(current))), len(words_of(mask_of(other))))
    return cfg.batch_size or _WORD * max(len(current), len(other))


@ack_set.action
def compare_with_ack_set(
    cfg: Config, s: State, current: AckPosition | None, other: AckPosition | None
) -> Step[State, int]:
    """Returns a negative number, 0 or a positive number as the current position is smaller, equal or larger.

    Within an entry, it is the difference of the first messages that are not acknowledged (`compareToWithAckSet`). A
    position that acknowledges the whole entry has no such message, -1, and is the largest.
    """
    if current is None or other is None:
        return refused(s, "illegal_argument", "a position is missing")
    ours, theirs = Position(current.ledger, current.entry), Position(other.ledger, other.entry)
    if ours != theirs:
        return s, -1 if ours < theirs else 1
    one, two = first_of(mask_of(current.ack_set or ())), first_of(mask_of(other.ack_set or ()))
    return s, one - two if one >= 0 and two >= 0 else two - one


# ---- canonical form and observation -------------------------------------------------------------------


@ack_set.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Renumbers the open batches in the order in which they were opened."""
    return State(tuple([Batch(number, b.bits) for number, b in enumerate(s.batches, 1)]), len(s.batches) + 1)


@ack_set.observation
def observe(cfg: Config, s: State) -> list[dict[str, object]]:
    """Returns words, cardinality and length of each open batch, and whether it is empty."""
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
