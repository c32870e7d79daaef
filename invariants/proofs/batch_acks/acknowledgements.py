"""Individual and cumulative acknowledgements of batch indexes.

The list of partly acknowledged entries is treated as a map; see `shared/cursor.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.shared.cursor import (
    Cursor,
    acknowledgements,
    given_there,
    histories,
    left_of,
    map_is_the_list,
    remaining_of,
    up_to_is_as_said,
)
from invariants.proofs.symbolic import Maybe, Reader, Rec, bitmasks, unknown
from model import ack_set as sets
from model.batch_acks import machine as model
from model.batch_acks import state
from model.batch_acks.state import State
from model.positions import Position

STATE = "model.batch_acks.state"


# ---- one acknowledgement ----------------------------------------------------------------------------------


@claim(
    "an-entry-is-deleted-when-nothing-of-it-is-left",
    "z3",
    "For batches of any size, masks of any length and any entries, deleted or in part: after an individual "
    "acknowledgement, exactly what was left of its entry and is left in its set is left, and of every other entry what "
    "was left before; and an entry is deleted exactly when no message of it is left.",
    Control(
        "an entry is only deleted by a set in which nothing is left",
        STATE,
        "    if remaining == 0:\n        return whole(acks, entry)",
        "    if given == 0:\n        return whole(acks, entry)",
        refutes="deleted when nothing is left",
    ),
)
def deleted_when_nothing_left() -> Answer:
    """The cursor keeps the sets of a batch's entries and deletes an entry when its last message is: PIP-54."""
    it = Cursor()
    entry, given, e, i = z3.Int("entry"), it.given("given"), it.e, it.i
    known = it.sound(entry, e)
    for way in Reader(known, stubs=it.stubs).paths(model.acked, it.cfg, True, it.acks, entry, given):
        after = way.value
        there = [*known, *way.when]
        it.proof.possible("an acknowledgement", there)
        counts = z3.Or(e != entry, z3.Not(given.defined), given.value[i])
        left = it.is_left(after, e, i) == z3.And(it.is_left(it.acks, e, i), counts)
        it.proof.show("what is left", left, there, direct=True)
        it.proof.show("what is known makes sense", it.sense(after, e), there)
        bit = z3.Int("(any bit)")
        nothing = z3.Not(z3.Exists([bit], z3.And(bit >= 0, it.is_left(after, e, bit))))
        it.proof.show("deleted when nothing is left", it.deleted(after, e) == nothing, there, direct=True)
    map_is_the_list(it.proof)
    for cfg, acks, entry_, mask in acknowledgements(300):
        after_ = model.acked(cfg, True, acks, entry_, sets.words_of(mask) or (0,))
        left_ = [left_of(cfg, acks, n) & (mask if n == entry_ else -1) for n in range(6)]
        same = left_ == [left_of(cfg, after_, n) for n in range(6)]
        gone = all((rest == 0) == state.is_deleted(after_, n) for n, rest in enumerate(left_))
        it.proof.run(f"{mask:b} of entry {entry_}", same and gone, acks)
    return it.proof.answer()


@claim(
    "individual-acks-commute",
    "z3",
    "For batches of any size, masks of any length and any two individual acknowledgements, of one entry or of two: in "
    "either order the same entries are deleted, and of the same entries the same messages are left.",
    Control(
        "of two sets of an entry the later counts",
        STATE,
        "    remaining = given & (",
        "    remaining = given if old is not None else given & (",
        refutes="the same are deleted",
    ),
)
def acks_commute() -> Answer:
    """Consumers of a shared subscription acknowledge in any order: PIP-54."""
    it = Cursor()
    first, second = (z3.Int("first"), it.given("one")), (z3.Int("second"), it.given("other"))
    known = [*it.sound(first[0], second[0]), it.e >= 0]
    reader = Reader(known, stubs=it.stubs)

    def after(*acks: tuple[Any, Maybe]) -> Rec:
        result = it.acks
        for entry, given in acks:
            result = reader.call(model.acked, it.cfg, True, result, entry, given)
        return result

    one, other = after(first, second), after(second, first)
    it.proof.possible("two acknowledgements", known)
    it.proof.show("the same mark", one.fields["first_unacked"] == other.fields["first_unacked"], known, direct=True)
    same = it.deleted(one, it.e) == it.deleted(other, it.e)
    it.proof.show("the same are deleted", same, known, direct=True)
    left, right = remaining_of(one, it.e), remaining_of(other, it.e)
    it.proof.show("the same are in part", left.defined == right.defined, known, direct=True)
    bits = z3.Implies(left.defined, left.value[it.i] == right.value[it.i])
    it.proof.show("the same is left of them", bits, known, direct=True)
    map_is_the_list(it.proof)
    draw = random.Random(54)  # noqa: S311
    for cfg, acks, entry_, mask in acknowledgements(300):
        pairs = [(entry_, mask), (draw.choice((entry_, draw.randrange(6))), draw.randrange(16))]
        results = []
        for order in (pairs, pairs[::-1]):
            now = acks
            for n, each in order:
                now = model.acked(cfg, True, now, n, sets.words_of(each & sets.all_of(state.size_of(cfg, n))) or (0,))
            results.append(now)
        it.proof.run(f"{pairs}", results[0] == results[1], acks)
    return it.proof.answer()


# ---- cumulative acknowledgements --------------------------------------------------------------------------


@claim(
    "a-cumulative-ack-brings-nothing-back",
    "z3",
    "For batches of any size, masks of any length and any entries: after a cumulative acknowledgement of an entry or "
    "of a part of it, no message is left that was acknowledged before; the mark-delete position does not move "
    "backwards; and if it was taken, every entry before its own is deleted.",
    Control(
        "the set of the acknowledgement takes the place of the entry's own, as shipped",
        STATE,
        '] = "and"',
        '] = "replace_if_further"',
        refutes="nothing comes back",
    ),
)
def cumulative_brings_nothing_back() -> Answer:
    """An acknowledgement is a promise; a cumulative one made acknowledged messages come again: apache/pulsar#18042."""
    it = Cursor()
    entry, given, e, i = Maybe(z3.Bool("is there"), z3.Int("entry")), it.given("given"), it.e, it.i
    s = unknown(State, "s").replace({"acks": it.acks})
    known = it.sound(entry.value, e)
    stubs: dict[Callable[..., Any], Callable[..., Any]]
    stubs = {**it.stubs, state.number_of: lambda ledgers, position: entry, model.replaced: _anything}
    anything = (model.wrong_ack, state.left_of, state.number_to_come)
    reader, taken = Reader(known, havoc=anything, stubs=stubs), []
    for way in reader.paths(model.ack_cumulative, it.cfg, s, unknown(Position, "position"), given):
        after, there = way.value[0].fields["acks"], [*known, *way.when, *it.learnt]
        back = z3.And(it.is_left(after, e, i), z3.Not(it.is_left(it.acks, e, i)))
        it.proof.show("nothing comes back", z3.Not(back), there)
        it.proof.show(
            "the mark stays or moves on", after.fields["first_unacked"] >= it.acks.fields["first_unacked"], there
        )
        if after is not it.acks:
            before = z3.Implies(e < entry.value, it.deleted(after, e))
            it.proof.show("what is before is deleted", before, there)
            taken.append(z3.And(*there))
    it.proof.possible("a cumulative acknowledgement", [z3.Or(*taken)])
    map_is_the_list(it.proof)
    up_to_is_as_said(it.proof)
    for cfg, step, was, now in histories(40, 40):
        left = [(left_of(cfg, was.acks, n), left_of(cfg, now.acks, n)) for n in range(sum(was.ledgers))]
        it.proof.run(
            step, all(b & ~a == 0 for a, b in left) and now.acks.first_unacked >= was.acks.first_unacked, was.acks
        )
    return it.proof.answer()


def _anything(cfg: Any, s: Rec, entry: Any, given: Any) -> Rec:
    """Stands in for the shipped replacement: of the entry, anything may be left."""
    left = z3.Store(s.fields["acks"].fields["partial"].fields["left"], given_there(entry), bitmasks.unknown_mask("new"))
    acks: Rec = s.fields["acks"]
    return acks.replace({"partial": acks.fields["partial"].replace({"left": left})})


@claim(
    "the-mark-moves-over-deleted-entries-only",
    "z3",
    "For any number of entries and parts: when everything before an entry is deleted, the mark is at it or moves on, "
    "over deleted entries only, to the first that is not; what is deleted behind it stays, and of the parts exactly "
    "those from there on.",
    Control(
        "the mark moves over the first entry that is not deleted, too",
        STATE,
        "first_unacked += first_of(~(acks.deleted >> first_unacked))",
        "first_unacked += first_of(~(acks.deleted >> first_unacked)) + 1",
        refutes="the mark moves over what is deleted",
    ),
)
def mark_moves_over_deleted() -> Answer:
    """The mark-delete position: every message at it or before it is acknowledged, and no other is taken along."""
    proof = Proof()
    up_to_is_as_said(proof)
    for cfg, acks, place, _ in acknowledgements(300):
        entry = max(place, acks.first_unacked)
        then = state.up_to(acks, entry)
        rest = [left_of(cfg, acks, n) if n >= entry else 0 for n in range(6)]
        same = rest == [left_of(cfg, then, n) for n in range(6)]
        first = next((n for n, left in enumerate([*rest, 1]) if left and n >= entry), entry)
        proof.run(f"up to {entry}", same and then.first_unacked == first, acks)
    return proof.answer()


claims = (deleted_when_nothing_left, acks_commute, cumulative_brings_nothing_back, mark_moves_over_deleted)
