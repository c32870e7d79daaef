"""How to drive ack sets."""

from __future__ import annotations

from fuzz.subject import Scope, Subject
from impl.ack_set import AckSets
from invariants import ack_set as invariants
from model.ack_set import AckPosition, Batch, Config, State, ack_set

#: ack sets of no, one, two and four words; zero words at the end, and before a word that is not zero; bits at word
#: boundaries; batches of 10, 64, 65 and 128 messages, all unacknowledged
ACK_SETS = (
    (),
    (0,),
    (1,),
    (1023,),
    (682,),
    (-1,),
    (-(2**63),),
    (-2,),
    (-1, 0),
    (0, 1),
    (-1, 1),
    (-1, -1),
    (0, 0),
    (5, -8),
    (0, 0, 0, 129),
)
#: null, and positions without and with an ack set; most are of one entry
POSITIONS = (
    None,
    AckPosition(1, 0, False, None),
    *[AckPosition(1, 0, True, words) for words in (None, (), (0,), (-1,), (4,), (6,), (0, 1), (0, 6))],
    AckPosition(1, 1, True, (4,)),
    AckPosition(2, 0, True, None),
)
#: indices at the ends of batches and words, and beyond them
INDICES = (0, 1, 2, 9, 10, 63, 64, 65, 127, 128, 130, 192, 199)


def batches(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns the open batches, three times; the newest recycled batch, if there is one; the next batch number."""
    known = tuple([b.batch for b in s.batches])
    recycled = tuple([n for n in range(1, s.next_batch) if n not in known])[-1:]
    return *known, *known, *known, *recycled, s.next_batch


def situation(cfg: Config, s: State) -> str:
    """Returns "none" if no batch is open, "many" if four or more are open, otherwise ""."""
    return "" if 0 < len(s.batches) < 4 else "many" if s.batches else "none"


def coverage_key(cfg: Config, s: State) -> tuple[object, ...]:
    """Returns the batch size and the number of open batches, and some facts about the first open batch.

    These are its number of set bits (0, 1, 2, some or all), its number of words, its first bit, and the two bits at the
    first word boundary.
    """
    bits = s.batches[0].bits if s.batches else 0
    count = bits.bit_count()
    return (
        cfg.batch_size,
        len(s.batches),
        count if count < 3 else "some" if count < cfg.batch_size else "all",
        (bits.bit_length() + 63) // 64,
        bits & 1,
        bits >> 63 & 3,
    )


def open_batches(s: State) -> int:
    """Returns the number of open batches."""
    return len(s.batches)


SMOKE = Scope(
    actions=tuple(ack_set.actions),
    settings={"batch_size": 4},
    domains={
        "batch": (1, 2, 3),
        "index": (0, 1, 3, 4),
        "begin": (0, 1, 3, 4),
        "end": (0, 1, 3, 4, 5),
        "words": ((), (5,), (7,), (16,)),
        "first": ((), (0,), (5,), (3,)),
        "second": ((0,), (6,)),
        "ack_set": ((), (0,), (4,)),
        "current": (None, AckPosition(1, 0, True, (5,)), AckPosition(1, 0, False, None)),
        "other": (None, AckPosition(1, 0, True, (6,)), AckPosition(1, 0, True, None), AckPosition(1, 1, True, ())),
        "is_ack_set_overlap.current": (None, (), (5,), (11,)),
        "is_ack_set_overlap.other": (None, (0,), (6,), (15,)),
    },
    bounds={"open_batches": 2},
    reasons={
        "open_batches": "two: the one of the call, and one that must not change",
        "actions": "all actions of the model",
        "batch_size": "four messages: the first, the last and two between them; excludes word boundaries",
        "batch": "two that may be open, and one that is not; batches are symmetric",
        "index": "the first and last message, one between them, and one beyond the batch",
        "begin": "the first and last message, one between them, and the end of the batch",
        "end": "before and after the first and last message, and beyond the batch",
        "words": "no words, two messages acknowledged, the last one acknowledged, and a bit beyond the batch",
        "first": "all acknowledged (no words, a zero word), and two sets with one unacknowledged message in common",
        "second": "all acknowledged, and two messages unacknowledged",
        "ack_set": "all acknowledged (no words, a zero word), and one message unacknowledged",
        "current": "null, a position with an ack set, and a position of a class without ack sets",
        "other": "null; the same entry, with and without an ack set; another entry",
        "is_ack_set_overlap.current": "null, all messages acknowledged, two of them, and another one",
        "is_ack_set_overlap.other": "null, all messages acknowledged, two of them, and none",
    },
)

WORDS = Scope(
    actions=(
        "open_batch",
        "set_range",
        "clear_range",
        "flip_range",
        "set_index",
        "clear_index",
        "and_with",
        "next_set_bit",
    ),
    settings={"batch_size": 66},
    domains={
        "batch": (1,),
        "index": (0, 63, 64, 65),
        "begin": (0, 63, 64),
        "end": (1, 64, 65, 66),
        "words": ((1, 1), (-1,), (-2, 2)),
    },
    bounds={"open_batches": 1},
    reasons={
        "open_batches": "one; excludes effects of other batches",
        "actions": "updates of a batch, and a search",
        "batch_size": "66 messages: two are in the second word",
        "batch": "the only one; two batches are in the scope smoke",
        "index": "the first and last bit of each word",
        "begin": "the first bit of the batch, and both bits at the word boundary; bits between them change together",
        "end": "after the first and last bit of each word",
        "words": "the first bit of each word; the whole first word; all bits but the first of each word",
    },
)


# ---- corrupted states, which `check` must detect ------------------------------------------------------


def bit_is_beyond_the_batch(cfg: Config, s: State) -> State | None:
    """The last batch has one bit only, and that bit is beyond its size."""
    if not cfg.batch_size or not s.batches:  # batch size 0: the size is unknown, so no bit is beyond the batch
        return None
    return s._replace(batches=(*s.batches[:-1], Batch(s.batches[-1].batch, 1 << cfg.batch_size)))


def bit_set_is_negative(_cfg: Config, s: State) -> State | None:
    """The mask of a batch is negative."""
    return s._replace(batches=(Batch(s.batches[0].batch, ~s.batches[0].bits), *s.batches[1:])) if s.batches else None


def next_number_is_in_use(_cfg: Config, s: State) -> State | None:
    """The next batch number is that of an open batch."""
    return s._replace(next_batch=s.batches[-1].batch) if s.batches else None


subject = Subject(
    ack_set,
    AckSets,
    invariants,
    domains={
        "batch": batches,
        "index": INDICES,
        "begin": INDICES,
        "end": INDICES,
        "words": ACK_SETS,
        "first": ACK_SETS,
        "second": ACK_SETS,
        "ack_set": ACK_SETS,
        "current": POSITIONS,
        "other": POSITIONS,
        "is_ack_set_overlap.current": (None, *ACK_SETS),
        "is_ack_set_overlap.other": (None, *ACK_SETS),
    },
    settings={"batch_size": (10, 1, 64, 65, 128, 200, 0)},
    weights={
        "open_batch": 0.5,
        "recycle": 0.5,
        "set_range": 3,
        "clear_range": 2,
        "clear_index": 2,
        "and_with": 1.5,
        "is_ack_set_overlap": 3,
        "compare_with_ack_set": 2,
    },
    situation=situation,
    in_situation={"none": {"open_batch": 20, "recycle": 0.2}, "many": {"open_batch": 0.1}},
    swarms={
        "acknowledging": {"set_range": 0.3, "set_index": 0.1, "flip_range": 0.1, "clear_range": 0.3, "and_with": 0.3},
        "queries": {"is_ack_set_overlap": 4, "compare_with_ack_set": 4, "and_position_ack_set": 3},
    },
    largest={"batch_size": 300, "index": 1024, "begin": 1024, "end": 1024},  # a larger value makes larger bit sets
    abstract=coverage_key,
    scopes={"smoke": SMOKE, "words": WORDS},
    measures={"open_batches": open_batches},
    corrupt={each.__name__: each for each in (bit_is_beyond_the_batch, bit_set_is_negative, next_number_is_in_use)},
    # two parts: True has the bit sets of all batches. False has no state: these actions use only their arguments
    partition=lambda action, arguments: "batch" in arguments or action == "open_batch",
    steps=64,
)
