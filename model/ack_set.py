"""Ack sets: which messages of one batch are still to be acknowledged, and what pending acks ask of such sets.

Source: PIP-54, used by PIP-160. Step grain: one call.

An ack set is written as 64-bit words, the first one first, each a signed integer. Bit i is message i of the batch:

    1   not yet acknowledged
    0   acknowledged; words that are missing at the end are zeros

    and       acknowledged in either: bit by bit; zero words at the end are cut
    empty     every message is acknowledged
    overlap   some message of the batch is acknowledged in both: two transactions would acknowledge it
    compare   positions first; in one entry, who has acknowledged more messages from the first one on. All of them, and
              an entry without ack set, which is all of it, are the most

State: the sets of some batches, as they are kept while a consumer acknowledges them one message after the other; each
is opened, used under its number and given back. The number of messages is a setting; 0 says that it is not known, and
then a set is as long as it is. A bit beyond the batch is refused wherever it comes in.

Here words become masks, integers of any length, with one bit a message. `model/batch_acks/machine.py` uses these functions.
Not modelled: how much memory a set has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

from model.machine import Machine, Step, refused
from model.positions import Position
from model.values import AtLeast, Between, record

#: A word of an ack set: 64 bits, read as a signed number.
Word = Annotated[int, Between(-(2**63), 2**63 - 1)]
AckSet = tuple[Word, ...]
Index = Annotated[int, AtLeast(0)]

_WORD = 64
_ALL = 2**64 - 1
_SIGN = 2**63

# ---- words and masks ----------------------------------------------------------------------------------


def mask_of(words: AckSet) -> int:
    """The words of a set as one number, in which bit i is message i."""
    if len(words) == 1:
        return words[0] & _ALL
    mask = 0
    for i, word in enumerate(words):
        mask |= (word & _ALL) << (_WORD * i)
    return mask


def words_of(mask: int) -> AckSet:
    """A number as words, without zero words at the end."""
    words = []
    while mask:
        word = mask & _ALL
        words.append(word - 2 * _SIGN if word >= _SIGN else word)
        mask >>= _WORD
    return tuple(words)


def all_of(size: int) -> int:
    """The mask of a batch of which nothing is acknowledged."""
    return (1 << size) - 1


def first_of(mask: int) -> int:
    """The first message that is not acknowledged; -1 if there is none."""
    return (mask & -mask).bit_length() - 1


def acked_in_both(one: int, other: int, size: int) -> int:
    """The messages of a batch that both sets acknowledge, as a mask."""
    return ~(one | other) & all_of(size)


# ---- settings and state -------------------------------------------------------------------------------


class Config(NamedTuple):
    """The batch, and the rule on which versions differ."""

    #: how many messages the batch has; 0 if that is not known
    batch_size: Annotated[int, AtLeast(0)] = 10
    #: where an overlap is looked for: in the batch, or in the words that both sets have when zeros at the end are cut
    overlap: Literal["within_batch", "words_of_both"] = "within_batch"


class Batch(NamedTuple):
    """A batch that is being acknowledged."""

    batch: int  # its number, given when it was opened
    bits: int  # a mask: what is not yet acknowledged


@record
class State(NamedTuple):
    """The batches that are open."""

    batches: tuple[Batch, ...]  # in order of numbers
    next_batch: int


def start(cfg: Config) -> State:
    """No batch is open."""
    return State((), 1)


class AckPosition(NamedTuple):
    """A position as consumers name it: an entry, and perhaps a part of its batch."""

    ledger: int
    entry: int
    carries_ack_set: bool  # whether it is of the kind that can
    ack_set: AckSet | None


class Updated(NamedTuple):
    """What a position carries after its set was combined with another one's."""

    current_ack_set: AckSet | None


ack_set = Machine("ack_set", Config, start, source="PIP-54")


Name = Annotated[int, AtLeast(1)]


def bits_of(s: State, batch: int) -> int | None:
    """What is left of a batch; None if it is not open."""
    for each in s.batches:
        if each.batch == batch:
            return each.bits
    return None


def changed(s: State, batch: int, wrong: str, change: Callable[[int], int]) -> Step[State, None]:
    """What is left of one batch changes, unless something is wrong with the call."""
    bits = bits_of(s, batch)
    if bits is None:
        return refused(s, "not_open", f"batch {batch} is not open")
    if wrong:
        return refused(s, "illegal_argument", wrong)
    new = change(bits)
    return s._replace(batches=tuple([Batch(batch, new) if b.batch == batch else b for b in s.batches])), None


def beyond(cfg: Config, mask: int) -> bool:
    """A bit of the mask is not of the batch."""
    return cfg.batch_size > 0 and mask > all_of(cfg.batch_size)


def range_beyond(cfg: Config, begin: int, end: int) -> str:
    """What is wrong with a range of messages of which the last is excluded; empty if nothing is."""
    if begin > end:
        return f"begin is {begin}, after its end {end}"
    if cfg.batch_size and end > cfg.batch_size:
        return f"end is {end}, beyond the batch of {cfg.batch_size}"
    return ""


def index_beyond(cfg: Config, index: int) -> str:
    """What is wrong with the index of a message; empty if nothing is."""
    return f"index is {index}, beyond the batch of {cfg.batch_size}" if 0 < cfg.batch_size <= index else ""


def between(begin: int, end: int) -> int:
    """The mask of the messages from one up to another, which is excluded."""
    return all_of(end) & ~all_of(begin)


# ---- batches as sets ----------------------------------------------------------------------------------


@ack_set.action
def open_batch(cfg: Config, s: State) -> Step[State, int]:
    """Another set, with nothing in it: who opens one sets the range of its batch. The outcome is its number."""
    number = s.next_batch
    return State((*s.batches, Batch(number, 0)), number + 1), number


@ack_set.action
def give_back(cfg: Config, s: State, batch: Name) -> Step[State, None]:
    """The set is not used any more; its memory may serve another batch, which begins with nothing."""
    if bits_of(s, batch) is None:
        return refused(s, "not_open", f"batch {batch} is not open")
    return s._replace(batches=tuple([b for b in s.batches if b.batch != batch])), None


@ack_set.action
def set_range(cfg: Config, s: State, batch: Name, begin: Index, end: Index) -> Step[State, None]:
    """These messages, the last excluded, are not acknowledged."""
    return changed(s, batch, range_beyond(cfg, begin, end), lambda bits: bits | between(begin, end))


@ack_set.action
def clear_range(cfg: Config, s: State, batch: Name, begin: Index, end: Index) -> Step[State, None]:
    """These messages, the last excluded, are acknowledged."""
    return changed(s, batch, range_beyond(cfg, begin, end), lambda bits: bits & ~between(begin, end))


@ack_set.action
def flip_range(cfg: Config, s: State, batch: Name, begin: Index, end: Index) -> Step[State, None]:
    """Of these messages, the last excluded, the acknowledged are not any more, and the others are."""
    return changed(s, batch, range_beyond(cfg, begin, end), lambda bits: bits ^ between(begin, end))


@ack_set.action
def set_index(cfg: Config, s: State, batch: Name, index: Index) -> Step[State, None]:
    """The message is not acknowledged."""
    return changed(s, batch, index_beyond(cfg, index), lambda bits: bits | 1 << index)


@ack_set.action
def clear_index(cfg: Config, s: State, batch: Name, index: Index) -> Step[State, None]:
    """The message is acknowledged."""
    return changed(s, batch, index_beyond(cfg, index), lambda bits: bits & ~(1 << index))


@ack_set.action
def and_with(cfg: Config, s: State, batch: Name, words: AckSet) -> Step[State, None]:
    """Another set's acknowledgements are added to this one's: what was acknowledged stays so."""
    mask = mask_of(words)
    wrong = f"words have a bit beyond the batch of {cfg.batch_size}" if beyond(cfg, mask) else ""
    return changed(s, batch, wrong, lambda bits: bits & mask)


@ack_set.action
def get_index(cfg: Config, s: State, batch: Name, index: Index) -> Step[State, bool]:
    """Whether the message is still to be acknowledged."""
    wrong, bits = index_beyond(cfg, index), bits_of(s, batch)
    if bits is None:
        return refused(s, "not_open", f"batch {batch} is not open")
    if wrong:
        return refused(s, "illegal_argument", wrong)
    return s, bool(bits >> index & 1)


@ack_set.action
def next_set_bit(cfg: Config, s: State, batch: Name, begin: Index) -> Step[State, int]:
    """The first message from this one on that is not acknowledged; -1 if there is none."""
    bits = bits_of(s, batch)
    if bits is None:
        return refused(s, "not_open", f"batch {batch} is not open")
    for i in range(begin, bits.bit_length()):
        if bits >> i & 1:
            return s, i
    return s, -1


@ack_set.action
def next_clear_bit(cfg: Config, s: State, batch: Name, begin: Index) -> Step[State, int]:
    """The first index from this one on that is acknowledged, or that lies behind all the others."""
    bits, i = bits_of(s, batch), begin
    if bits is None:
        return refused(s, "not_open", f"batch {batch} is not open")
    while bits >> i & 1:
        i += 1
    return s, i


# ---- sets that are given ------------------------------------------------------------------------------


@ack_set.action
def and_ack_set(cfg: Config, s: State, first: AckSet, second: AckSet) -> Step[State, AckSet]:
    """What both leave to be acknowledged; nothing at all is an empty array."""
    return s, words_of(mask_of(first) & mask_of(second))


@ack_set.action
def and_position_ack_set(
    cfg: Config, s: State, current: AckPosition | None, other: AckPosition | None
) -> Step[State, Updated | None]:
    """The current position then carries what both sets leave; the entries need not be the same.

    A missing position changes nothing. One that cannot carry a set, or that could and does not, is an error.
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
    """Whether every message is acknowledged."""
    return s, not any(ack_set)


@ack_set.action
def is_ack_set_overlap(cfg: Config, s: State, current: AckSet | None, other: AckSet | None) -> Step[State, bool]:
    """Whether two sets acknowledge the same message; a missing set acknowledges none.

    Of a batch of unknown size, the longer array says how many messages there may be.
    """
    if current is None or other is None:
        return s, False
    return s, acked_in_both(mask_of(current), mask_of(other), compared(cfg, current, other)) != 0


def compared(cfg: Config, current: AckSet, other: AckSet) -> int:
    """How many bits are looked at for an overlap."""
    if cfg.overlap == "words_of_both":
        return _WORD * min(len(words_of(mask_of(current))), len(words_of(mask_of(other))))
    return cfg.batch_size or _WORD * max(len(current), len(other))


@ack_set.action
def compare_with_ack_set(
    cfg: Config, s: State, current: AckPosition | None, other: AckPosition | None
) -> Step[State, int]:
    """Less than 0 if the current position comes first, 0 if none does, more than 0 if the other one does.

    In one entry it is the difference of the first messages that are not acknowledged; all of it comes last.
    """
    if current is None or other is None:
        return refused(s, "illegal_argument", "a position is missing")
    ours, theirs = Position(current.ledger, current.entry), Position(other.ledger, other.entry)
    if ours != theirs:
        return s, -1 if ours < theirs else 1
    one, two = first_of(mask_of(current.ack_set or ())), first_of(mask_of(other.ack_set or ()))
    return s, one - two if one >= 0 and two >= 0 else two - one


# ---- names and observers ------------------------------------------------------------------------------


@ack_set.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Open batches are numbered in the order in which they were opened."""
    return State(tuple([Batch(number, b.bits) for number, b in enumerate(s.batches, 1)]), len(s.batches) + 1)


@ack_set.observation
def observe(cfg: Config, s: State) -> list[dict[str, object]]:
    """Of each open batch the words, how many messages are left, and one more than the last of them."""
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

reference = ack_set.profile("reference", "what this specification holds to be right", Config())

shipped = ack_set.profile(
    "pulsar-2026-07",
    "as recorded from Apache Pulsar master, 2026-07-23",
    Config(overlap="words_of_both"),
)
