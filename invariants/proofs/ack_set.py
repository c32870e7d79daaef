"""Proofs about ack sets of any length: overlap, AND, and the order of positions.

An ack set is represented by the mask of its bits (`symbolic/bitmasks.py`). Random sets test that words and masks
represent the same set. This is not proved.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.shared.ack_sets import Sets, Words, mask_of
from invariants.proofs.symbolic import Maybe, Rec, as_term, unknown
from model import ack_set as model
from model.ack_set import AckPosition, AckSet, Config

MODEL = "model.ack_set"


def random_sets(count: int) -> Iterator[tuple[Config, AckSet, AckSet]]:
    """Yields configs, each with two ack sets of up to three words, some with a zero word added; always the same."""
    draw = random.Random(160)  # noqa: S311
    for _ in range(count):
        size = draw.choice((1, 10, 64, 100, 130))
        pair = []
        for _ in range(2):
            part = draw.getrandbits(size) & draw.choice((-1, draw.getrandbits(size), 2**64 - 1, 7))
            pair.append(model.words_of(part) + (0,) * draw.choice((0, 0, 1)))
        yield Config(batch_size=draw.choice((size, size, 0))), pair[0], pair[1]


def words_are_masks(proof: Proof) -> None:
    """Tests the functions on words and masks that the proofs replace by stubs, on random sets."""
    for _, one, _other in random_sets(100):
        mask = model.mask_of(one)
        bits = [i for i in range(64 * len(one)) if one[i // 64] >> i % 64 & 1]
        proof.compare(f"the mask of {one}", [i for i in range(mask.bit_length()) if mask >> i & 1], bits)
        words = model.words_of(mask)
        cut = len(one) - next((i for i, word in enumerate(reversed(one)) if word), len(one))
        proof.compare(f"the words of {mask}", words, one[:cut])
        proof.compare(f"the first of {mask}", model.lowest_set_bit(mask), min(bits, default=-1))
        proof.compare(f"all of {len(bits)}", model.bits_below(len(bits)), sum(1 << i for i in range(len(bits))))


# ---- claims -----------------------------------------------------------------------------------------------


@claim(
    "overlap-is-exact-and-symmetric",
    "z3",
    "For any two ack sets and any batch size: the sets overlap if and only if a message of the batch is acknowledged "
    "in both, and their order makes no difference. If the batch size is unknown, the batch has as many messages as the "
    "longer array has bits. A null set overlaps with none.",
    Control(
        "an overlap is determined in the words that both sets have after trimming, as shipped",
        MODEL,
        '    ] = "within_batch"',
        '    ] = "words_of_both"',
        refutes="a message of both is an overlap",
    ),
    proves=("overlap_iff_message_acknowledged_in_both",),
)
def overlap_is_exact() -> Answer:
    """`isAckSetOverlap`, which pending acks use to detect conflicts (PIP-160)."""
    it = Sets()
    one, other, i = it.any_set("one"), it.any_set("other"), it.index
    is_there = z3.Bool("is there")
    state = unknown(model.State, "s")

    def overlap(first: Any, second: Any) -> Any:
        [outcome] = [path.value[1] for path in it.reader.paths(model.is_ack_set_overlap, it.cfg, state, first, second)]
        return as_term(outcome)

    overlapping, swapped = overlap(one, other), overlap(other, one)
    size = it.cfg.fields["batch_size"]
    lengths = [Words.length_of(words) for words in (one, other)]
    longer = 64 * z3.If(lengths[0] > lengths[1], *lengths)
    in_both = z3.And(z3.Not(mask_of(one)[i]), z3.Not(mask_of(other)[i]), i < z3.If(size > 0, size, longer))
    bit = z3.Int("(any bit)")
    some = z3.Exists([bit], z3.substitute(z3.And(bit >= 0, in_both), (i, bit)))
    it.proof.possible("two sets", it.known)
    it.proof.show("a message of both is an overlap", z3.Implies(in_both, overlapping), it.known, direct=True)
    it.proof.show("an overlap is a message of both", z3.Implies(overlapping, some), it.known, direct=True)
    it.proof.show("in either order", overlapping == swapped, it.known, direct=True)
    for missing in (Maybe(is_there, one), other), (other, Maybe(is_there, one)):
        for path in it.reader.paths(model.is_ack_set_overlap, it.cfg, state, *missing):
            none = z3.Implies(z3.Not(is_there), z3.Not(as_term(path.value[1])))
            it.proof.show("a missing set", none, [*it.known, *path.when], direct=True)
    words_are_masks(it.proof)
    for cfg, a, b in random_sets(300):
        count = cfg.batch_size or 64 * max(len(a), len(b))
        both = any(not (model.mask_of(a) | model.mask_of(b)) >> n & 1 for n in range(count))
        ran = [model.is_ack_set_overlap(cfg, model.start(cfg), *pair)[1] for pair in ((a, b), (b, a))]
        it.proof.run(f"{a} and {b} of {count}", ran == [both, both], ran)
    return it.proof.answer()


@claim(
    "and-is-intersection",
    "z3",
    "For any two ack sets of any length: a message is unacknowledged in their AND if and only if it is in both; so AND "
    "is commutative and idempotent, and no acknowledged message becomes unacknowledged.",
    Control(
        "OR instead of AND",
        MODEL,
        "return s, words_of(mask_of(first) & mask_of(second))",
        "return s, words_of(mask_of(first) | mask_of(second))",
        refutes="the intersection",
    ),
)
def and_is_intersection() -> Answer:
    """`andAckSet` (PIP-160)."""
    it = Sets()
    one, other, i, state = it.any_set("one"), it.any_set("other"), it.index, unknown(model.State, "s")

    def both(first: Rec, second: Rec) -> Any:
        [path] = it.reader.paths(model.and_ack_set, it.cfg, state, first, second)
        return path.value[1]

    result, swapped = both(one, other), both(other, one)
    again = both(result, other)
    left, of_one, of_other = mask_of(result)[i], mask_of(one)[i], mask_of(other)[i]
    it.proof.possible("two sets", it.known)
    it.proof.show("the intersection", left == z3.And(of_one, of_other), it.known, direct=True)
    it.proof.show("in either order", left == mask_of(swapped)[i], it.known, direct=True)
    it.proof.show("idempotent", left == mask_of(again)[i], it.known, direct=True)
    words_are_masks(it.proof)
    for cfg, a, b in random_sets(200):
        ran = [model.and_ack_set(cfg, model.start(cfg), *pair)[1] for pair in ((a, b), (b, a))]
        wanted = model.words_of(model.mask_of(a) & model.mask_of(b))
        it.proof.run(f"{a} and {b}", ran == [wanted, wanted], ran)
    return it.proof.answer()


def position(name: str, ack_set: Any) -> Rec:
    """Returns an arbitrary position with this ack set."""
    made: Rec = unknown(AckPosition, name).replace({"ack_set": ack_set})
    return made


@claim(
    "positions-are-totally-preordered",
    "z3",
    "For any three positions with ack sets of any length or without: a comparison with the positions swapped has the "
    "opposite sign, and the order is transitive. A position of an earlier entry is smaller. No position of an entry is "
    "larger than one without an ack set, which acknowledges the whole entry.",
    Control(
        "a whole entry is smaller than its parts",
        MODEL,
        "return s, one - two if one >= 0 and two >= 0 else two - one",
        "return s, one - two",
        refutes="a whole entry is the largest",
    ),
)
def positions_are_ordered() -> Answer:
    """`compareToWithAckSet`: a transaction's cumulative ack only moves forward (PIP-160)."""
    it = Sets()
    of = [position(name, Maybe(z3.Bool(f"{name} has a set"), it.any_set(f"set of {name}"))) for name in ("a", "b", "c")]
    state = unknown(model.State, "s")

    def compared(x: int, y: int) -> Any:
        return as_term(_result(it, state, of[x], of[y]))

    a_b, b_a, b_c, a_c = compared(0, 1), compared(1, 0), compared(1, 2), compared(0, 2)
    known = it.known
    it.proof.possible("three positions", [*known, a_b < 0, b_c < 0])
    it.proof.show("antisymmetric", z3.And((a_b < 0) == (b_a > 0), (a_b == 0) == (b_a == 0)), known, direct=True)
    transitive = z3.Implies(z3.And(a_b <= 0, b_c <= 0), z3.And(a_c <= 0, z3.Implies(a_c == 0, a_b == 0)))
    it.proof.show("transitive", transitive, known, direct=True)
    a, b = of[0].fields, of[1].fields
    same_ledger = a["ledger"] == b["ledger"]
    earlier = z3.Or(a["ledger"] < b["ledger"], z3.And(same_ledger, a["entry"] < b["entry"]))
    it.proof.show("an earlier entry is smaller", z3.Implies(earlier, a_b < 0), known, direct=True)
    all_of_it = z3.And(same_ledger, a["entry"] == b["entry"], z3.Not(b["ack_set"].defined))
    it.proof.show("a whole entry is the largest", z3.Implies(all_of_it, a_b <= 0), known, direct=True)
    words_are_masks(it.proof)
    for cfg, one, other in random_sets(200):
        p, q = (AckPosition(1, 0, True, each) for each in (one, other))
        whole = AckPosition(1, 0, True, None)
        ran = [_run(cfg, *pair) for pair in ((p, q), (q, p), (p, whole), (whole, p))]
        signs = (ran[0] > 0) == (ran[1] < 0) and (ran[0] == 0) == (ran[1] == 0) and ran[2] <= 0 <= ran[3]
        it.proof.run(f"{one} and {other}", signs, ran)
    return it.proof.answer()


def _result(it: Sets, state: Rec, one: Rec, other: Rec) -> Any:
    """Returns the outcome of a comparison as one term."""
    paths = it.reader.paths(model.compare_with_ack_set, it.cfg, state, one, other)
    value = paths[-1].value[1]
    for path in reversed(paths[:-1]):
        value = z3.If(z3.And(*path.when), as_term(path.value[1]), as_term(value))
    return value


def _run(cfg: Config, one: AckPosition, other: AckPosition) -> int:
    outcome = model.compare_with_ack_set(cfg, model.start(cfg), one, other)[1]
    assert isinstance(outcome, int)
    return outcome


claims = (overlap_is_exact, and_is_intersection, positions_are_ordered)
