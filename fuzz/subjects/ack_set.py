"""How to drive ack sets."""

from __future__ import annotations

from fuzz.subject import Scope, Subject
from impl.ack_set import AckSets
from invariants import ack_set as invariants
from model.ack_set import AckPosition, Batch, Config, State, ack_set

#: nothing, one word and two, zeros at the end and before it, ends of words, all of batches of 10, 64, 65 and 128
SETS = ((), (0,), (1,), (1023,), (682,), (-1,), (-(2**63),), (-2,), (-1, 0), (0, 1), (-1, 1), (-1, -1), (0, 0), (5, -8))
#: no set at all, either way, and one of each kind; in one entry mostly
POSITIONS = (
    None,
    AckPosition(1, 0, False, None),
    *[AckPosition(1, 0, True, words) for words in (None, (), (0,), (-1,), (4,), (6,), (0, 1), (0, 6))],
    AckPosition(1, 1, True, (4,)),
    AckPosition(2, 0, True, None),
)
#: the ends of batches and words, and one beyond each
INDICES = (0, 1, 2, 9, 10, 63, 64, 65, 127, 128, 130)


def batches(cfg: Config, s: State) -> tuple[int, ...]:
    """The open batches, each more often than one that is not."""
    known = tuple([b.batch for b in s.batches])
    return *known, *known, *known, s.next_batch


def situation(cfg: Config, s: State) -> str:
    """What the next action should depend on."""
    return "" if 0 < len(s.batches) < 4 else "many" if s.batches else "none"


def kind_of_state(cfg: Config, s: State) -> tuple[object, ...]:
    """How many batches are open; of the first, how many are left, in how many words, and whether ends of a word are."""
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
    """How many batches are open."""
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
        "open_batches": "two: one, and another that must not change",
        "actions": "all that there are",
        "batch_size": "four messages: two inner ones and two at the ends; hides what happens at the ends of words",
        "batch": "two that may be open, and one more; hides nothing: batches are alike",
        "index": "both ends, one within, and one beyond",
        "begin": "both ends, one within, and none left",
        "end": "both ends, one within, all, and one beyond",
        "words": "nothing, a gap, a prefix, and one beyond the batch",
        "first": "all acknowledged in two ways, and two that share a message",
        "second": "all acknowledged, and two messages left",
        "ack_set": "empty in two ways, and not",
        "current": "missing, with a set, and of the kind without",
        "other": "missing, with a set, without, and in another entry",
        "is_ack_set_overlap.current": "missing, all acknowledged, a gap, and another one",
        "is_ack_set_overlap.other": "missing, all acknowledged, some, and none",
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
        "open_batches": "one; hides what others do to it",
        "actions": "what changes a batch, and a search over it",
        "batch_size": "two messages in a second word",
        "batch": "the only one; what others do to it is in the scope smoke",
        "index": "the ends of both words",
        "begin": "the ends of both words; what lies between moves as one",
        "end": "behind the ends of both words",
        "words": "two words, one, and one that leaves all but the ends",
    },
)


# ---- states that `check` must not let pass ------------------------------------------------------------


def a_bit_far_beyond(s: State) -> State | None:
    """A message that no batch here has."""
    return s._replace(batches=(*s.batches[:-1], Batch(s.batches[-1].batch, 1 << 200))) if s.batches else None


def no_end(s: State) -> State | None:
    """All messages that there could ever be, but those that are left."""
    return s._replace(batches=(Batch(s.batches[0].batch, ~s.batches[0].bits), *s.batches[1:])) if s.batches else None


def a_number_not_given(s: State) -> State | None:
    """The highest number of a batch is still to be given."""
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
        "words": SETS,
        "first": SETS,
        "second": SETS,
        "ack_set": SETS,
        "current": POSITIONS,
        "other": POSITIONS,
        "is_ack_set_overlap.current": (None, *SETS),
        "is_ack_set_overlap.other": (None, *SETS),
    },
    settings={"batch_size": (10, 1, 64, 65, 128)},
    weights={
        "open_batch": 0.5,
        "give_back": 0.5,
        "set_range": 3,
        "clear_range": 2,
        "clear_index": 2,
        "and_with": 1.5,
        "is_ack_set_overlap": 3,
        "compare_with_ack_set": 2,
    },
    situation=situation,
    in_situation={"none": {"open_batch": 20, "give_back": 0.2}, "many": {"open_batch": 0.1}},
    swarms={
        "acknowledging": {"set_range": 0.3, "set_index": 0.1, "flip_range": 0.1, "clear_range": 0.3, "and_with": 0.3},
        "questions": {"is_ack_set_overlap": 4, "compare_with_ack_set": 4, "and_position_ack_set": 3},
    },
    abstract=kind_of_state,
    scopes={"smoke": SMOKE, "words": WORDS},
    measures={"open_batches": open_batches},
    corrupt={"a_bit_far_beyond": a_bit_far_beyond, "no_end": no_end, "a_number_not_given": a_number_not_given},
    names=("batch",),
    steps=64,
)
