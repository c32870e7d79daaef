"""How to drive ack sets."""

from __future__ import annotations

from fuzz.subject import Scope, Subject
from impl.ack_set import AckSets
from invariants import ack_set as invariants
from model.ack_set import AckPosition, Batch, Config, State, ack_set

#: empty, one, two and four words, zero words at the end and before it, word boundaries, full batches of 10, 64, 65, 128
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
#: null, without and with an ack set; mostly of one entry
POSITIONS = (
    None,
    AckPosition(1, 0, False, None),
    *[AckPosition(1, 0, True, words) for words in (None, (), (0,), (-1,), (4,), (6,), (0, 1), (0, 6))],
    AckPosition(1, 1, True, (4,)),
    AckPosition(2, 0, True, None),
)
#: the first and last index of batches and words, and one beyond each
INDICES = (0, 1, 2, 9, 10, 63, 64, 65, 127, 128, 130, 192, 199)


def batches(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns the open batches, three times; a recycled batch, if there is one; and one that was not opened."""
    known = tuple([b.batch for b in s.batches])
    recycled = tuple([n for n in range(1, s.next_batch) if n not in known])[-1:]
    return *known, *known, *known, *recycled, s.next_batch


def situation(cfg: Config, s: State) -> str:
    """Returns whether no, some or many batches are open."""
    return "" if 0 < len(s.batches) < 4 else "many" if s.batches else "none"


def coverage_key(cfg: Config, s: State) -> tuple[object, ...]:
    """Returns the number of open batches; of the first one the cardinality, the words, and bits at word boundaries."""
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
        "open_batches": "two: one, and another that must not change; excludes more",
        "actions": "all actions of the model",
        "batch_size": "four messages: two inner ones and two at the ends; excludes word boundaries",
        "batch": "two that may be open, and one that is not; batches are symmetric",
        "index": "both ends, one within, and one beyond",
        "begin": "both ends, one within, and none left",
        "end": "both ends, one within, all, and one beyond",
        "words": "empty, a gap, a prefix, and one beyond the batch",
        "first": "all acknowledged in two forms, and two sets with a common message",
        "second": "all acknowledged, and two messages unacknowledged",
        "ack_set": "empty in two forms, and not empty",
        "current": "null, with an ack set, and of a class without",
        "other": "null, with an ack set, without, and of another entry",
        "is_ack_set_overlap.current": "null, all acknowledged, a gap, and another one",
        "is_ack_set_overlap.other": "null, all acknowledged, some, and none",
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
        "batch_size": "two messages in a second word",
        "batch": "the only one; two batches are in the scope smoke",
        "index": "first and last bit of both words",
        "begin": "first and last bit of both words; bits between them change together",
        "end": "after the first and last bit of both words",
        "words": "two words, one, and one without the first and last bit",
    },
)


# ---- corrupted states, which `check` must detect ------------------------------------------------------


def bit_is_beyond_the_batch(cfg: Config, s: State) -> State | None:
    """A bit beyond the batch is set."""
    if not cfg.batch_size or not s.batches:
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
    largest={"batch_size": 300, "index": 1024, "begin": 1024, "end": 1024},  # a message is a bit
    abstract=coverage_key,
    scopes={"smoke": SMOKE, "words": WORDS},
    measures={"open_batches": open_batches},
    corrupt={each.__name__: each for each in (bit_is_beyond_the_batch, bit_set_is_negative, next_number_is_in_use)},
    partition=lambda action, arguments: "batch" in arguments or action == "open_batch",  # or a function of ack sets
    steps=64,
)
