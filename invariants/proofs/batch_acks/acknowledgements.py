"""Individual and cumulative acknowledgements of batch indexes.

The proofs represent the list of ack sets by a map (`shared/cursor.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.shared.cursor import (
    Cursor,
    left_of,
    present,
    random_acks,
    random_steps,
    remaining_of,
    run_map_against_list,
    show_with_mark_delete_at,
)
from invariants.proofs.symbolic import Maybe, Reader, Rec, bitmasks, unknown
from model import ack_set as sets
from model.batch_acks import machine as model
from model.batch_acks import state
from model.batch_acks.state import State
from model.positions import Position

STATE = "model.batch_acks.state"


# ---- individual acks --------------------------------------------------------------------------------------


@claim(
    "entry-is-deleted-with-its-last-message",
    "z3",
    "For batches of any size, ack sets of any length and any entries, deleted or with an ack set: after an individual "
    "ack, a message of its entry is unacknowledged exactly if it was so before, and its bit is set in the ack's set. "
    "Other entries are unchanged. An entry is deleted if and only if all its messages are acknowledged.",
    Control(
        "an entry is deleted only by a set without remaining messages",
        STATE,
        "    if remaining == 0:\n        return with_entry_deleted(acks, entry)",
        "    if given == 0:\n        return with_entry_deleted(acks, entry)",
        refutes="deleted if and only if nothing remains",
    ),
)
def entry_is_deleted_with_last_message() -> Answer:
    """`ManagedCursorImpl.asyncDelete` (PIP-54)."""
    it = Cursor()
    entry, given, e, i = z3.Int("entry"), it.requested("given"), it.e, it.i
    known = it.valid(entry, e)
    for path in Reader(known, stubs=it.stubs).paths(model.with_individual_ack, it.cfg, True, it.acks, entry, given):
        after = path.value
        premises = [*known, *path.when]
        it.proof.possible("an ack", premises)
        counts = z3.Or(e != entry, z3.Not(given.defined), given.value[i])
        left = it.is_left(after, e, i) == z3.And(it.is_left(it.acks, e, i), counts)
        it.proof.show("the remaining messages", left, premises, direct=True)
        it.proof.show("ack sets stay consistent", it.is_consistent(after, e), premises)
        bit = z3.Int("(any bit)")
        nothing = z3.Not(z3.Exists([bit], z3.And(bit >= 0, it.is_left(after, e, bit))))
        it.proof.show("deleted if and only if nothing remains", it.deleted(after, e) == nothing, premises, direct=True)
    run_map_against_list(it.proof)
    for cfg, acks, entry_, mask in random_acks(300):
        after_ = model.with_individual_ack(cfg, True, acks, entry_, sets.words_of(mask) or (0,))
        left_ = [left_of(cfg, acks, n) & (mask if n == entry_ else -1) for n in range(6)]  # -1 has every bit
        same = left_ == [left_of(cfg, after_, n) for n in range(6)]
        gone = all((rest == 0) == state.is_deleted(after_, n) for n, rest in enumerate(left_))
        it.proof.run(f"{mask:b} of entry {entry_}", same and gone, acks)
    return it.proof.answer()


@claim(
    "individual-acks-commute",
    "z3",
    "For batches of any size, ack sets of any length and any two individual acks, of one entry or of two: both orders "
    "delete the same entries and leave the same ack sets.",
    Control(
        "the later ack set of an entry replaces the earlier one",
        STATE,
        "    remaining = given & stored\n",
        "    remaining = given if old is not None else given & stored\n",
        refutes="the same entries are deleted",
    ),
)
def acks_commute() -> Answer:
    """Consumers of a shared subscription acknowledge in any order (PIP-54)."""
    it = Cursor()
    first, second = (z3.Int("first"), it.requested("one")), (z3.Int("second"), it.requested("other"))
    known = [*it.valid(first[0], second[0]), it.e >= 0]
    reader = Reader(known, stubs=it.stubs)

    def after(*acks: tuple[Any, Maybe]) -> Rec:
        result = it.acks
        for entry, given in acks:
            result = reader.call(model.with_individual_ack, it.cfg, True, result, entry, given)
        return result

    one, other = after(first, second), after(second, first)
    it.proof.possible("two acks", known)
    it.proof.show(
        "equal mark-delete positions", one.fields["first_unacked"] == other.fields["first_unacked"], known, direct=True
    )
    same = it.deleted(one, it.e) == it.deleted(other, it.e)
    it.proof.show("the same entries are deleted", same, known, direct=True)
    left, right = remaining_of(one, it.e), remaining_of(other, it.e)
    it.proof.show("the same entries have ack sets", left.defined == right.defined, known, direct=True)
    bits = z3.Implies(left.defined, left.value[it.i] == right.value[it.i])
    it.proof.show("equal ack sets", bits, known, direct=True)
    run_map_against_list(it.proof)
    draw = random.Random(54)  # noqa: S311
    for cfg, acks, entry_, mask in random_acks(300):
        pairs = [(entry_, mask), (draw.choice((entry_, draw.randrange(6))), draw.randrange(16))]
        results = []
        for order in (pairs, pairs[::-1]):
            now = acks
            for n, each in order:
                now = model.with_individual_ack(
                    cfg, True, now, n, sets.words_of(each & sets.bits_below(state.size_of(cfg, n))) or (0,)
                )
            results.append(now)
        it.proof.run(f"{pairs}", results[0] == results[1], acks)
    return it.proof.answer()


# ---- cumulative acks and the mark-delete position ---------------------------------------------------------


@claim(
    "cumulative-ack-keeps-earlier-acks",
    "z3",
    "For batches of any size, ack sets of any length and any entries: after a cumulative ack, with or without an ack "
    "set, every message that was acknowledged before is still acknowledged; the mark-delete position does not move "
    "back; and if the ack is accepted, every entry before its own is deleted.",
    Control(
        "the ack set replaces that of the entry, as shipped",
        STATE,
        '] = "and"',
        '] = "replace_if_further"',
        refutes="earlier acks are kept",
    ),
)
def cumulative_ack_keeps_earlier_acks() -> Answer:
    """`ManagedCursorImpl.asyncMarkDelete`; apache/pulsar#18042."""
    it = Cursor()
    entry, given, e, i = Maybe(z3.Bool("is there"), z3.Int("entry")), it.requested("given"), it.e, it.i
    s = unknown(State, "s").replace({"acks": it.acks})
    known = it.valid(entry.value, e)
    stubs: dict[Callable[..., Any], Callable[..., Any]]
    stubs = {
        **it.stubs,
        state.entry_number: lambda ledgers, position: entry,
        model.with_ack_set_replaced_if_further: _any_ack_set,
    }
    anything = (model.ack_error, state.unacked_count, state.future_entry_number)
    reader, accepted = Reader(known, havoc=anything, stubs=stubs), []
    for path in reader.paths(model.ack_cumulative, it.cfg, s, unknown(Position, "position"), given):
        after, premises = path.value[0].fields["acks"], [*known, *path.when, *it.facts]
        back = z3.And(it.is_left(after, e, i), z3.Not(it.is_left(it.acks, e, i)))
        it.proof.show("earlier acks are kept", z3.Not(back), premises)
        it.proof.show(
            "the mark-delete position does not move back",
            after.fields["first_unacked"] >= it.acks.fields["first_unacked"],
            premises,
        )
        if after is not it.acks:
            before = z3.Implies(e < entry.value, it.deleted(after, e))
            it.proof.show("entries before its own are deleted", before, premises)
            accepted.append(z3.And(*premises))
    it.proof.possible("a cumulative ack", [z3.Or(*accepted)])
    run_map_against_list(it.proof)
    show_with_mark_delete_at(it.proof)
    for cfg, step, was, now in random_steps(40, 40):
        left = [(left_of(cfg, was.acks, n), left_of(cfg, now.acks, n)) for n in range(sum(was.ledgers))]
        it.proof.run(
            step, all(b & ~a == 0 for a, b in left) and now.acks.first_unacked >= was.acks.first_unacked, was.acks
        )
    return it.proof.answer()


def _any_ack_set(cfg: Any, s: Rec, entry: Any, given: Any) -> Rec:
    """Stub of the shipped replacement: the entry has any ack set."""
    left = z3.Store(s.fields["acks"].fields["partial"].fields["left"], present(entry), bitmasks.unknown_mask("new"))
    acks: Rec = s.fields["acks"]
    return acks.replace({"partial": acks.fields["partial"].replace({"left": left})})


@claim(
    "mark-delete-position-passes-deleted-entries-only",
    "z3",
    "For any number of entries and ack sets: if all entries before some entry are acknowledged cumulatively, the "
    "mark-delete position advances from there over deleted entries only, up to the first entry that is not deleted. "
    "Later deletions are kept. If the first ack set is at or before the new position, exactly the later ones are kept.",
    Control(
        "the mark-delete position passes one entry that is not deleted",
        STATE,
        "first_unacked += lowest_set_bit(~(acks.deleted >> first_unacked))",
        "first_unacked += lowest_set_bit(~(acks.deleted >> first_unacked)) + 1",
        refutes="only deleted entries are passed",
    ),
)
def mark_delete_passes_deleted_only() -> Answer:
    """`ManagedCursorImpl.setAcknowledgedPosition` (PIP-54)."""
    proof = Proof()
    show_with_mark_delete_at(proof)
    for cfg, acks, index, _ in random_acks(300):
        entry = max(index, acks.first_unacked)
        then = state.with_mark_delete_at(acks, entry)
        rest = [left_of(cfg, acks, n) if n >= entry else 0 for n in range(6)]
        same = rest == [left_of(cfg, then, n) for n in range(6)]
        first = next((n for n, left in enumerate([*rest, 1]) if left and n >= entry), entry)
        proof.run(f"up to {entry}", same and then.first_unacked == first, acks)
    return proof.answer()
