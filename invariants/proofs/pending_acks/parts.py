"""Claims about what transactions hold: overlaps, what an acknowledgement adds, and what an end takes away.

A batch has any number of messages. What an acknowledgement leaves of an entry is the mask of the places of its bits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.shared.ack_sets import Sets
from invariants.proofs.shared.cursor import SIZE, Cursor
from invariants.proofs.symbolic import AT, Maybe, Reader, Rec, Seq, as_term, bitmasks, equal, lifted, unknown
from model import ack_set as sets
from model.pending_acks import replay
from model.pending_acks import state as model
from model.pending_acks.state import Config, Cumulative, Holder, Part, Record, State

STATE = "model.pending_acks.state"


# ---- overlaps -----------------------------------------------------------------------------------------


@claim(
    "an-overlap-of-pending-acks-is-a-common-message",
    "z3",
    "For batches of any size and masks of any length: an acknowledgement of a part of an entry overlaps with what a "
    "transaction holds of the entry exactly if that is the whole entry or they have a message of the batch in common. "
    "So who is let through holds no message that another one holds.",
    Control(
        "an overlap is looked for in the words of the pending set when zeros at its end are cut, as shipped",
        STATE,
        'overlap: Literal["within_batch", "words_of_pending"] = "within_batch"',
        'overlap: Literal["within_batch", "words_of_pending"] = "words_of_pending"',
    ),
)
def overlap_is_a_common_message() -> Answer:
    """Two transactions must not acknowledge one message: PIP-160 asks isAckSetOverlap of pending acknowledgements."""
    it = Sets()
    size, i = it.cfg.fields["batch_size"], it.place

    def words_of(mask: Any) -> Rec:
        said: Rec = it._words_of(mask.value if isinstance(mask, Maybe) else mask)
        return said

    stubs: dict[Callable[..., Any], Callable[..., Any]] = {sets.all_of: bitmasks.below, sets.words_of: words_of}
    cfg, entry = lifted(Config()).replace({"batch_sizes": (size,)}), z3.Int("entry")
    leaves, claimed = bitmasks.unknown_mask("leaves"), bitmasks.unknown_mask("claimed")
    is_part = z3.Bool("is part")
    part = Rec(Part, {"entry": entry, "leaves": leaves})
    held = Rec(Part, {"entry": entry, "leaves": Maybe(is_part, claimed)})
    known, bit = [*it.known, size >= 1, entry >= 0], z3.Int("(any bit)")
    said = as_term(Reader(known, stubs=stubs).call(model.overlaps, cfg, part, held))
    known += it.known
    common = z3.And(i < size, z3.Not(leaves[i]), z3.Not(claimed[i]))
    some = z3.Exists([bit], z3.substitute(z3.And(bit >= 0, common), (i, bit)))
    it.proof.possible("two acknowledgements", known)
    it.proof.show("what is wholly pending", z3.Implies(z3.Not(is_part), said), known, direct=True)
    it.proof.show("a common message is an overlap", z3.Implies(common, said), known, direct=True)
    it.proof.show("an overlap is a common message", z3.Implies(z3.And(is_part, said), some), known, direct=True)
    draw = random.Random(160)  # noqa: S311
    for _ in range(300):
        count = draw.choice((1, 3, 64, 70, 130))
        plain = Config(batch_sizes=(count,))
        one, other = (draw.getrandbits(count) & draw.choice((-1, 2**64 - 1, 5)) for _ in range(2))
        ran = model.overlaps(plain, Part(0, one), Part(0, other))
        both = [n for n in range(count) if not (one | other) >> n & 1]
        it.proof.run(f"{one:x} and {other:x} of {count}", ran == bool(both), (ran, both[:3]))
        it.proof.run(f"{one:x} of {count}", model.overlaps(plain, Part(0, one), Part(0, None)), "a whole entry")
    return it.proof.answer()


@claim(
    "who-is-let-through-takes-what-nobody-has",
    "z3",
    "For batches of any size, masks of any length and any number of transactions that hold something of an entry: an "
    "acknowledgement of a part of it is let through exactly if none of its messages is acknowledged in the "
    "subscription, and none is held; one of the whole entry exactly if the entry is not acknowledged as a whole, and "
    "nothing of it is held.",
    Control(
        "a whole entry is let through though parts of it are pending",
        STATE,
        'return f"entry {part.entry} is pending" if claims else ""',
        'return ""',
    ),
)
def takes_what_nobody_has() -> Answer:
    """PIP-160: a conflict is found by messages, not by entries, where acknowledgements are of parts of batches."""
    it = Cursor()
    proof, i, place, bit = it.proof, it.i, z3.Int("place"), z3.Int("(any bit)")
    size, claims_ = z3.Int("size"), any_parts()
    entry, leaves = it.e, Maybe(z3.Bool("a part"), bitmasks.unknown_mask("leaves"))
    cfg, part = lifted(Config()).replace({"batch_sizes": (size,)}), Rec(Part, {"entry": entry, "leaves": leaves})
    s: Rec = unknown(State, "s").replace({"acks": it.acks})
    known = [*it.sound(entry), SIZE(entry) == size, claims_.length >= 0]
    stubs = {**it.stubs, model.claims_on: lambda cfg, s, number: claims_}
    reader = Reader(known, stubs=stubs)
    ways = reader.paths(model.conflict_of_part, cfg, s, part)
    own = acks(part, entry, i)

    def is_held(at: Any, message: Any) -> Any:
        return z3.And(message < size, acks(part, entry, message), acks_at(claims_, at, entry, message))

    found = [any_.where for any_ in reader.anys]
    same_entry = [ENTRY(at) == entry for at in (place, *found)]
    for way in ways:
        there = [*known, *same_entry, *way.when, *[any_.fact(place) for any_ in reader.anys]]
        proof.possible("an acknowledgement", there)
        inside = z3.And(place >= 0, place < claims_.length)
        if isinstance(way.value, str):
            free = z3.And(z3.Not(is_held(place, i)), z3.Implies(z3.Not(leaves.defined), z3.Not(inside)))
            proof.show("nobody has it", free, there, direct=True)
            acked = z3.And(leaves.defined, own, i < size, z3.Not(it.is_left(it.acks, entry, i)))
            proof.show("it is not acknowledged", z3.Not(acked), there, direct=True)
            proof.show("the entry is not acknowledged", z3.Not(it.deleted(it.acks, entry)), there, direct=True)
            continue
        gone = z3.And(bit >= 0, bit < size, acks(part, entry, bit), z3.Not(it.is_left(it.acks, entry, bit)))
        held = [z3.And(bit >= 0, is_held(at, bit)) for at in found]
        wholly = [z3.And(acks_at(claims_, at, entry, 0), z3.Not(IS_PART(at))) for at in found]
        why = z3.Or(
            it.deleted(it.acks, entry),
            z3.And(leaves.defined, z3.Exists([bit], z3.Or(gone, *held))),
            z3.And(leaves.defined, z3.Or(*wholly)),
            z3.And(z3.Not(leaves.defined), claims_.length > 0),
        )
        proof.show("a conflict has its reason", why, there, direct=True)
    proof.need("some are let through, and some are not", len({isinstance(way.value, str) for way in ways}) == 2)
    draw = random.Random(16)  # noqa: S311
    for _ in range(300):
        _run_of_conflicts(proof, draw)
    return proof.answer()


def _run_of_conflicts(proof: Proof, draw: random.Random) -> None:
    """Lets an acknowledgement through or not, and looks for its messages one by one."""
    cfg, sets_of = Config(batch_sizes=(3,)), (None, 1, 2, 3, 4, 5, 6)
    held: tuple[Holder, ...] = ()
    for txn in range(1, draw.randint(1, 4)):
        held = model.holding(held, txn, (Part(draw.randrange(2), draw.choice(sets_of)),))
    acked = model.with_parts(cfg, model.start(cfg).acks, (Part(0, draw.choice((3, 6, 7))),))
    s = model.start(cfg)._replace(held=held, acks=acked)
    part = Part(0, draw.choice(sets_of))
    mine = {n for n in range(3) if model.bits_of(cfg, part) >> n & 1}
    theirs = [each for holder in held for each in holder.parts if each.entry == 0]
    taken = {n for n in range(3) for each in theirs if model.bits_of(cfg, each) >> n & 1}
    gone = {n for n in range(3) if model.acked_of(cfg, acked, 0) >> n & 1}
    free = not theirs if part.leaves is None else not mine & (taken | gone)
    proof.run(f"{part} where {held} hold", free == (model.conflict_of_part(cfg, s, part) == ""), gone)


# ---- what a transaction holds -------------------------------------------------------------------------

ENTRY = z3.Function("entry", z3.IntSort(), z3.IntSort())
IS_PART = z3.Function("is part", z3.IntSort(), z3.BoolSort())
LEAVES = z3.Function("leaves", z3.IntSort(), bitmasks.MASK)


def any_parts() -> Seq:
    """What a transaction holds: any number of entries, each whole or in part."""

    def at(place: Any) -> Rec:
        place = as_term(place)
        return Rec(Part, {"entry": ENTRY(place), "leaves": Maybe(IS_PART(place), LEAVES(place))})

    return Seq(Part, z3.Int("parts.length"), at, {}, {})


def acks(part: Rec, entry: Any, bit: Any) -> Any:
    """Whether it acknowledges a message of an entry."""
    leaves = part.fields["leaves"]
    return z3.And(part.fields["entry"] == entry, z3.Or(z3.Not(leaves.defined), z3.Not(leaves.value[bit])))


def acks_at(parts: Seq, place: Any, entry: Any, bit: Any) -> Any:
    """Whether what stands at a place acknowledges a message of an entry."""
    return z3.And(place >= 0, place < parts.length, acks(parts.at(place), entry, bit))


def before(parts: Seq, p: Any, q: Any) -> Any:
    """Parts are in order of entries, of which each stands once."""
    inside = z3.And(p >= 0, p < q, q < parts.length)
    return z3.Implies(inside, parts.at(p).fields["entry"] < parts.at(q).fields["entry"])


@claim(
    "an-acknowledgement-adds-its-messages-and-no-others",
    "z3",
    "For any parts of any number of entries, in order, and masks of any length: with one more, exactly the messages "
    "are held that were held before or that it acknowledges, the entries are in order, and each stands once.",
    Control(
        "of two sets of an entry the later one counts",
        STATE,
        "is None else old.leaves & new.leaves",
        "is None else new.leaves",
    ),
)
def acknowledgement_adds_its_messages() -> Answer:
    """PIP-54: what a transaction has acknowledged of a batch are the messages of all its acknowledgements together."""
    proof, parts = Proof(), any_parts()
    new = Rec(
        Part, {"entry": z3.Int("new.entry"), "leaves": Maybe(z3.Bool("new is part"), bitmasks.unknown_mask("new"))}
    )
    at, p, q, r, e, i = z3.Ints("at p q r e i")
    known = [parts.length >= 0, at >= 0, at <= parts.length, i >= 0]
    loop = Reader(known).loop(model.with_held)
    [begun] = [way for way in loop.begin(parts, new) if way.how == "next"]
    head = {**begun.names, AT: at}
    places = (p, q, r, p - 1, q - 1, r - 1, at)
    smaller = [z3.Implies(z3.And(n >= 0, n < at), ENTRY(n) < new.fields["entry"]) for n in places]
    given = [*known, *smaller, *[before(parts, one, other) for one in places for other in places]]
    ways = loop.round(head, given)
    ends = [way for way in ways if way.how == "return"]
    for way in ways:
        if way.how == "next":
            next_ = z3.Implies(z3.And(r >= 0, r < at + 1), ENTRY(r) < new.fields["entry"])
            proof.show("entries so far are lower", next_, way.when)
    ends += loop.end(head, [*given, z3.Not(loop.goes_on(head))])
    proof.need("the loop has three ends", len(ends) == 3)
    for way in ends:
        after: Seq = way.value
        proof.possible("one more part", way.when)
        was = [acks_at(parts, place, e, i) for place in (r, r - 1)]
        mixed = z3.Or(*was, acks(new, e, i), z3.And(acks_at(parts, at, e, i), e == new.fields["entry"]))
        proof.show("no other message", z3.Implies(acks_at(after, r, e, i), mixed), way.when)
        still = z3.Or(*[acks_at(after, place, e, i) for place in (p, p + 1)])
        proof.show("all that was held", z3.Implies(acks_at(parts, p, e, i), still), way.when)
        adds = z3.Implies(acks(new, e, i), acks_at(after, at, e, i))
        proof.show("all that it acknowledges", adds, way.when)
        proof.show("in order", before(after, p, q), way.when)
    draw = random.Random(54)  # noqa: S311
    for _ in range(300):
        _run_of_parts(proof, draw)
    return proof.answer()


def _run_of_parts(proof: Proof, draw: random.Random) -> None:
    """Puts parts together at random, and counts messages one by one."""
    parts: tuple[Part, ...] = ()
    cfg, held = Config(batch_sizes=(3,)), set()
    for _ in range(5):
        part = Part(draw.randrange(3), draw.choice((None, 0, 1, 2, 3, 4, 5, 6)))
        parts = model.with_held(parts, part)
        held |= {(part.entry, n) for n in range(3) if model.bits_of(cfg, part) >> n & 1}
        found = [(each.entry, n) for each in parts for n in range(3) if model.bits_of(cfg, each) >> n & 1]
        in_order = [each.entry for each in parts] == sorted({each.entry for each in parts})
        proof.run(f"with {part}", set(found) == held and in_order, parts)


# ---- ends ---------------------------------------------------------------------------------------------


@claim(
    "an-end-frees-exactly-what-its-transaction-held",
    "z3",
    "For any holders and any pending cumulative acknowledgement: a commit or an abort, live or replayed, takes along "
    "the cumulative acknowledgement if and only if it is of its own transaction, and after it exactly the others hold "
    "what they held.",
    Control(
        "a replayed end of a cumulative acknowledgement takes along anybody's, as shipped",
        STATE,
        "replayed_ends_have_owners: bool = True",
        "replayed_ends_have_owners: bool = False",
    ),
)
def end_frees_its_own() -> Answer:
    """PIP-31: an aborted transaction's acknowledgements are as if they had not been, and nobody else's are."""
    proof, place, cfg = Proof(), z3.Int("place"), lifted(Config())
    s, end, own = unknown(State, "s"), unknown(Record, "end"), Seq.unknown(Part, "own")
    held, claim_, txn = s.fields["held"], s.fields["cumulative"], end.fields["txn"]
    is_own = z3.And(claim_.defined, claim_.value.fields["txn"] == txn)
    for has_parts in (own.length > 0, own.length == 0):
        known = [has_parts, held.length >= 0]
        reader = Reader(known, stubs={model.held_by: lambda state, of: own})
        for way in reader.paths(replay.taken_by, cfg, s, end, named={"replayed": z3.Bool("replayed")}):
            taken = way.value[1]
            took = as_term(taken.defined) if isinstance(taken, Maybe) else z3.BoolVal(taken is not None)
            there = [*known, *way.when]
            proof.possible("an end", there)
            proof.show("one's own cumulative one is taken", took == is_own, there, direct=True)
            for after in reader.paths(replay.without_ended, s, txn, way.value, when=there):
                _show_rest(proof, held, after.value, claim_, is_own, txn, place, after.when)
    draw = random.Random(31)  # noqa: S311
    for _ in range(200):
        _run_of_ends(proof, draw)
    return proof.answer()


def _show_rest(
    proof: Proof, held: Seq, after: Rec, claim_: Maybe, is_own: Any, txn: Any, place: Any, when: Sequence[Any]
) -> None:
    """What is left when a transaction has ended."""
    rest, left = after.fields["held"], after.fields["cumulative"]
    gone = z3.Not(as_term(left.defined)) if isinstance(left, Maybe) else z3.BoolVal(left is None)
    proof.show("others' cumulative one stays", gone == z3.Or(is_own, z3.Not(claim_.defined)), when, direct=True)
    if isinstance(left, Maybe):
        same = z3.Implies(left.defined, as_term(equal(left, claim_)))
        proof.show("as it was", same, when, direct=True)
    if rest.origin is None:
        proof.need("a transaction without parts leaves the others", rest is held)
        return
    stays, item, known = rest.origin.look(place)
    inside = [place >= 0, place < held.length, *known]
    others = as_term(stays) == (held.at(place).fields["txn"] != txn)
    proof.show("exactly the others stay", others, [*when, *inside], direct=True)
    proof.show("with what they held", as_term(equal(item, held.at(place))), [*when, *inside], direct=True)


def _run_of_ends(proof: Proof, draw: random.Random) -> None:
    """Ends one of some transactions that hold something."""
    txns = draw.sample(range(1, 5), draw.randrange(4))
    held = tuple([Holder(n, (Part(n, draw.choice((None, 1))),)) for n in txns])
    mine = draw.randrange(1, 5)
    cumulative = draw.choice((None, Cumulative(mine, Part(0, None)), Cumulative(draw.randrange(1, 5), Part(2, 1))))
    s = model.start(Config())._replace(held=held, cumulative=cumulative)
    end = Record(draw.choice(("commit", "abort")), draw.random() < 0.5, mine, ())
    replayed = draw.random() < 0.5
    after = replay.without_ended(s, mine, replay.taken_by(Config(), s, end, replayed=replayed))
    rest = cumulative if cumulative is not None and cumulative.txn != mine else None
    kept = after.held == tuple([each for each in held if each.txn != mine]) and after.cumulative == rest
    proof.run(f"{end.op} of {mine} with {cumulative}", kept, after.cumulative)


claims: Sequence[Any] = (
    overlap_is_a_common_message,
    takes_what_nobody_has,
    acknowledgement_adds_its_messages,
    end_frees_its_own,
)
