"""Claims about pending acks: overlaps, conflicts, what an ack adds, and what a commit or abort removes.

A batch has any number of messages. An ack set is the mask of the messages that an ack leaves unacknowledged.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.shared.ack_sets import Sets
from invariants.proofs.shared.cursor import SIZE, Cursor
from invariants.proofs.symbolic import INDEX, Maybe, Reader, Rec, Seq, as_term, bitmasks, equal, lifted, unknown
from model import ack_set as sets
from model.pending_acks import conflicts as model
from model.pending_acks import replay
from model.pending_acks.state import (
    Config,
    CumulativeAck,
    LogRecord,
    PositionAck,
    State,
    TxnAcks,
    acked_messages,
    messages_of,
    start,
    with_individual_acks,
)

STATE, CONFLICTS = "model.pending_acks.state", "model.pending_acks.conflicts"


# ---- overlaps -----------------------------------------------------------------------------------------


@claim(
    "overlap-is-a-common-message",
    "z3",
    "For batches of any size and ack sets of any length: a batch-index ack overlaps a pending ack of its entry exactly "
    "if the pending ack is for the whole entry, or both acks have a message of the batch in common.",
    Control(
        "ack sets are compared in the words of the pending one, without trailing zero words",
        STATE,
        '] = "every_batch_index"',
        '] = "trimmed_words"',
        refutes="a common message is an overlap",
    ),
)
def overlap_is_a_common_message() -> Answer:
    """`isAckSetOverlap`: two transactions must not ack one message."""
    it = Sets()
    size, i = it.cfg.fields["batch_size"], it.index

    def words_of(mask: Any) -> Rec:
        words: Rec = it._words_of(mask.value if isinstance(mask, Maybe) else mask)
        return words

    stubs: dict[Callable[..., Any], Callable[..., Any]] = {sets.bits_below: bitmasks.below, sets.words_of: words_of}
    cfg, entry = lifted(Config()).replace({"batch_sizes": (size,)}), z3.Int("entry")
    asked, pending = bitmasks.unknown_mask("asked"), bitmasks.unknown_mask("pending")
    has_set = z3.Bool("has set")
    ack = Rec(PositionAck, {"entry": entry, "ack_set": asked})
    other = Rec(PositionAck, {"entry": entry, "ack_set": Maybe(has_set, pending)})
    known, bit = [*it.known, size >= 1, entry >= 0], z3.Int("(any bit)")
    overlaps = as_term(Reader(known, stubs=stubs).call(model.overlaps, cfg, ack, other))
    known += it.known
    common = z3.And(i < size, z3.Not(asked[i]), z3.Not(pending[i]))
    some = z3.Exists([bit], z3.substitute(z3.And(bit >= 0, common), (i, bit)))
    it.proof.possible("two acks", known)
    it.proof.show("a pending whole entry", z3.Implies(z3.Not(has_set), overlaps), known, direct=True)
    it.proof.show("a common message is an overlap", z3.Implies(common, overlaps), known, direct=True)
    it.proof.show("an overlap is a common message", z3.Implies(z3.And(has_set, overlaps), some), known, direct=True)
    draw = random.Random(160)  # noqa: S311
    for _ in range(300):
        count = draw.choice((1, 3, 64, 70, 130))
        plain = Config(batch_sizes=(count,))
        one, two = (draw.getrandbits(count) & draw.choice((-1, 2**64 - 1, 5)) for _ in range(2))
        found = model.overlaps(plain, PositionAck(0, one), PositionAck(0, two))
        both = [n for n in range(count) if not (one | two) >> n & 1]
        it.proof.run(f"{one:x} and {two:x} of {count}", found == bool(both), (found, both[:3]))
        whole = model.overlaps(plain, PositionAck(0, one), PositionAck(0, None))
        it.proof.run(f"{one:x} of {count}", whole, "a whole entry")
    return it.proof.answer()


@claim(
    "accepted-individual-ack-is-for-free-messages",
    "z3",
    "For batches of any size, ack sets of any length, any cursor and any number of pending acks of an entry: a "
    "batch-index ack is accepted exactly if none of its messages is acknowledged, pending individually, or covered by "
    "a cumulative ack of another transaction. An ack of the whole entry is accepted exactly if the entry is not "
    "deleted, has no pending individual ack, and no cumulative ack of another transaction covers a message of it.",
    Control(
        "a whole entry does not overlap pending batch indexes",
        CONFLICTS,
        'return f"entry {ack.entry} is pending" if pending else ""',
        'return ""',
        refutes="no message is pending",
    ),
)
def accepted_ack_is_for_free_messages() -> Answer:
    """Conflicts are decided by messages where acks have ack sets, and by entries where they have none (PIP-54)."""
    it = Cursor()
    proof, i, index, bit = it.proof, it.i, z3.Int("place"), z3.Int("(any bit)")
    size, pending = z3.Int("size"), any_acks()
    entry, ack_set = it.e, Maybe(z3.Bool("has set"), bitmasks.unknown_mask("ack set"))
    cfg = lifted(Config()).replace({"batch_sizes": (size,)})
    ack = Rec(PositionAck, {"entry": entry, "ack_set": ack_set})
    known = [*it.valid(entry), SIZE(entry) == size, pending.length >= 0]
    stubs = {**it.stubs, model.pending_acks_of_entry: lambda cfg, s, number: pending}
    reader = Reader(known, stubs=stubs)
    paths = reader.paths(model.overlap_with_individual_acks, cfg, unknown(State, "s"), ack)

    def is_pending(at: Any, message: Any) -> Any:
        return z3.And(message < size, is_for(ack, entry, message), is_for_at(pending, at, entry, message))

    found = [any_.element_index for any_ in reader.any_facts]
    same_entry = [ENTRY(at) == entry for at in (index, *found)]
    for path in paths:
        premises = [*known, *same_entry, *path.when, *[any_.fact(index) for any_ in reader.any_facts]]
        proof.possible("an ack", premises)
        inside = z3.And(index >= 0, index < pending.length)
        if isinstance(path.value, str):
            free = z3.And(z3.Not(is_pending(index, i)), z3.Implies(z3.Not(ack_set.defined), z3.Not(inside)))
            proof.show("no message is pending", free, premises, direct=True)
            continue
        some = [z3.And(bit >= 0, is_pending(at, bit)) for at in found]
        whole = [z3.And(is_for_at(pending, at, entry, 0), z3.Not(HAS_SET(at))) for at in found]
        why = z3.Or(
            z3.And(ack_set.defined, z3.Exists([bit], z3.Or(*some))),
            z3.And(ack_set.defined, z3.Or(*whole)),
            z3.And(z3.Not(ack_set.defined), pending.length > 0),
        )
        proof.show("an overlap has its reason", why, premises, direct=True)
    proof.need("some overlap, and some do not", len({isinstance(path.value, str) for path in paths}) == 2)
    _show_cursor(it, cfg, ack)
    _show_cumulative(it, cfg, ack)
    draw = random.Random(16)  # noqa: S311
    for _ in range(300):
        _run_of_conflicts(proof, draw)
    return proof.answer()


def _show_cursor(it: Cursor, cfg: Rec, ack: Rec) -> None:
    """Proves that an ack without overlaps is accepted exactly if the cursor has acknowledged none of its messages."""
    entry, ack_set = it.e, ack.fields["ack_set"]
    s: Rec = unknown(State, "s").replace({"cursor": it.acks})
    stubs: dict[Any, Any] = dict(it.stubs)
    stubs |= {model.overlap_with_individual_acks: lambda *_: "", model.overlap_with_cumulative_ack: lambda *_: ""}
    known, bit = [*it.valid(entry), SIZE(entry) == cfg.fields["batch_sizes"][0]], z3.Int("(any bit)")
    paths = Reader(known, stubs=stubs).paths(model.individual_conflict, cfg, s, z3.Int("txn"), ack)
    for path in paths:
        premises = [*known, *path.when]
        it.proof.possible("an ack and a cursor", premises)
        left = it.is_left(it.acks, entry, it.i)
        if isinstance(path.value, str):
            mine = z3.And(ack_set.defined, is_for(ack, entry, it.i), it.i < SIZE(entry))
            it.proof.show("its messages are not acknowledged", z3.Implies(mine, left), premises, direct=True)
            it.proof.show("its entry is not deleted", z3.Not(it.deleted(it.acks, entry)), premises, direct=True)
            continue
        inside = z3.And(bit >= 0, bit < SIZE(entry), is_for(ack, entry, bit))
        gone = z3.Exists([bit], z3.And(inside, z3.Not(it.is_left(it.acks, entry, bit))))
        why = z3.Or(it.deleted(it.acks, entry), z3.And(ack_set.defined, gone))
        it.proof.show("a rejection has its reason in the cursor", why, premises, direct=True)
    it.proof.need("the cursor rejects some, and not all", len({isinstance(path.value, str) for path in paths}) == 2)


def _show_cumulative(it: Cursor, cfg: Rec, ack: Rec) -> None:
    """Proves that an ack is rejected exactly if a cumulative ack of another transaction covers a message of it."""
    entry, txn, bit = it.e, z3.Int("txn"), z3.Int("(any bit)")
    size = cfg.fields["batch_sizes"][0]
    end = Rec(PositionAck, {"entry": z3.Int("end"), "ack_set": Maybe(z3.Bool("inside"), bitmasks.unknown_mask("end"))})
    other = Maybe(z3.Bool("has other"), Rec(CumulativeAck, {"txn": z3.Int("other"), "ack": end}))
    known = [entry >= 0, end.fields["entry"] >= 0, size >= 1]
    stubs = {**it.stubs, model.pending_cumulative_ack: lambda cfg, s: other}
    paths = Reader(known, stubs=stubs).paths(model.overlap_with_cumulative_ack, cfg, unknown(State, "s"), txn, ack)

    def is_covered(message: Any) -> Any:
        before_end = z3.Or(end.fields["entry"] > entry, is_for(end, entry, message))
        foreign = z3.And(other.defined, other.value.fields["txn"] != txn)
        return z3.And(message >= 0, message < size, is_for(ack, entry, message), before_end, foreign)

    for path in paths:
        premises = [*known, *path.when]
        it.proof.possible("an ack and a cumulative one", premises)
        if isinstance(path.value, str):
            it.proof.show("no message is covered", z3.Not(is_covered(it.i)), premises, direct=True)
        else:
            it.proof.show("a message is covered", z3.Exists([bit], is_covered(bit)), premises, direct=True)
    it.proof.need("some are covered, and some not", len({isinstance(path.value, str) for path in paths}) == 2)


def _run_of_conflicts(proof: Proof, draw: random.Random) -> None:
    """Checks the claim on an ack of transaction 9 and random pending acks of both types, message by message."""
    cfg, ack_sets = Config(batch_sizes=(3,)), (None, 1, 2, 3, 4, 5, 6)
    pending: tuple[TxnAcks, ...] = ()
    for txn in range(1, draw.randint(1, 4)):
        pending = model.with_pending(pending, txn, (PositionAck(draw.randrange(2), draw.choice(ack_sets)),))
    cursor = with_individual_acks(cfg, start(cfg).cursor, (PositionAck(0, draw.choice((3, 6, 7))),))
    end = PositionAck(draw.randrange(2), draw.choice((None, 4, 6)))
    cumulative = draw.choice((None, CumulativeAck(draw.choice((9, 10)), end)))
    s = start(cfg)._replace(individual_acks=pending, cursor=cursor, cumulative_ack=cumulative)
    ack = PositionAck(0, draw.choice(ack_sets))
    mine = messages_of(cfg, ack)
    others = [each for txn_acks in pending for each in txn_acks.acks if each.entry == 0]
    taken = 0
    for each in others:
        taken |= messages_of(cfg, each)
    covered = 0
    if cumulative is not None and cumulative.txn != 9:
        covered = messages_of(cfg, end) if end.entry == 0 else 0b111
    acknowledged = acked_messages(cfg, cursor, 0)
    free = not others if ack.ack_set is None else not mine & (taken | acknowledged)
    found = model.individual_conflict(cfg, s, 9, ack)
    proof.run(f"{ack} with {pending}, {cumulative}", (free and not mine & covered) == (found == ""), found)


# ---- pending acks of a transaction --------------------------------------------------------------------

ENTRY = z3.Function("entry", z3.IntSort(), z3.IntSort())
HAS_SET = z3.Function("has set", z3.IntSort(), z3.BoolSort())
ACK_SET = z3.Function("ack set", z3.IntSort(), bitmasks.MASK)


def any_acks() -> Seq:
    """Returns any number of acks, each of a whole entry or with an ack set."""

    def at(index: Any) -> Rec:
        index = as_term(index)
        return Rec(PositionAck, {"entry": ENTRY(index), "ack_set": Maybe(HAS_SET(index), ACK_SET(index))})

    return Seq(PositionAck, z3.Int("acks.length"), at, {}, {})


def is_for(ack: Rec, entry: Any, bit: Any) -> Any:
    """Returns whether an ack is for a message of an entry."""
    ack_set = ack.fields["ack_set"]
    return z3.And(ack.fields["entry"] == entry, z3.Or(z3.Not(ack_set.defined), z3.Not(ack_set.value[bit])))


def is_for_at(acks_: Seq, index: Any, entry: Any, bit: Any) -> Any:
    """Returns whether the ack with that index is for a message of an entry."""
    return z3.And(index >= 0, index < acks_.length, is_for(acks_.at(index), entry, bit))


def in_order(acks_: Seq, p: Any, q: Any) -> Any:
    """Returns the condition that acks are in order of entries, and each entry has one."""
    inside = z3.And(p >= 0, p < q, q < acks_.length)
    return z3.Implies(inside, acks_.at(p).fields["entry"] < acks_.at(q).fields["entry"])


@claim(
    "ack-adds-exactly-its-messages",
    "z3",
    "For any ordered acks of any number of entries, and ack sets of any length: after one more ack, the acked messages "
    "are exactly those acked before and those of the new ack. The acks stay ordered, with one per entry.",
    Control(
        "the later of two ack sets replaces the earlier",
        CONFLICTS,
        "is None else old.ack_set & new.ack_set",
        "is None else new.ack_set",
        refutes="all that was acked",
    ),
)
def ack_adds_its_messages() -> Answer:
    """`handleIndividualAck` with `andAckSet`: the acks of a transaction add up (PIP-54)."""
    proof, old = Proof(), any_acks()
    ack_set = Maybe(z3.Bool("new has set"), bitmasks.unknown_mask("new"))
    new = Rec(PositionAck, {"entry": z3.Int("new.entry"), "ack_set": ack_set})
    at, p, q, r, e, i = z3.Ints("at p q r e i")
    known = [old.length >= 0, at >= 0, at <= old.length, i >= 0]
    loop = Reader(known).loop(model.merged)
    [begun] = [path for path in loop.begin(old, new) if path.exit == "next"]
    head = {**begun.names, INDEX: at}
    # the result may have the new ack at `at`, and each later ack one index higher than `old` has it
    indexes = (p, q, r, p - 1, q - 1, r - 1, at)
    smaller = [z3.Implies(z3.And(n >= 0, n < at), ENTRY(n) < new.fields["entry"]) for n in indexes]
    given = [*known, *smaller, *[in_order(old, one, other) for one in indexes for other in indexes]]
    paths = loop.iteration(head, given)
    exit_paths = [path for path in paths if path.exit == "return"]
    for path in paths:
        if path.exit == "next":
            next_ = z3.Implies(z3.And(r >= 0, r < at + 1), ENTRY(r) < new.fields["entry"])
            proof.show("entries so far are lower", next_, path.when)
    exit_paths += loop.end(head, [*given, z3.Not(loop.condition(head))])
    proof.need("the loop has three ends", len(exit_paths) == 3)
    for path in exit_paths:
        after: Seq = path.value
        proof.possible("one more ack", path.when)
        was = [is_for_at(old, index, e, i) for index in (r, r - 1)]
        mixed = z3.Or(*was, is_for(new, e, i), z3.And(is_for_at(old, at, e, i), e == new.fields["entry"]))
        proof.show("no other message", z3.Implies(is_for_at(after, r, e, i), mixed), path.when)
        still = z3.Or(*[is_for_at(after, index, e, i) for index in (p, p + 1)])
        proof.show("all that was acked", z3.Implies(is_for_at(old, p, e, i), still), path.when)
        adds = z3.Implies(is_for(new, e, i), is_for_at(after, at, e, i))
        proof.show("all that the ack is for", adds, path.when)
        proof.show("in order", in_order(after, p, q), path.when)
    draw = random.Random(54)  # noqa: S311
    for _ in range(300):
        _run_of_acks(proof, draw)
    return proof.answer()


def _run_of_acks(proof: Proof, draw: random.Random) -> None:
    """Checks the claim on random acks that are merged, message by message."""
    merged: tuple[PositionAck, ...] = ()
    cfg, expected = Config(batch_sizes=(3,)), set()
    for _ in range(5):
        ack = PositionAck(draw.randrange(3), draw.choice((None, 0, 1, 2, 3, 4, 5, 6)))
        merged = model.merged(merged, ack)
        expected |= {(ack.entry, n) for n in range(3) if messages_of(cfg, ack) >> n & 1}
        found = [(each.entry, n) for each in merged for n in range(3) if messages_of(cfg, each) >> n & 1]
        in_order = [each.entry for each in merged] == sorted({each.entry for each in merged})
        proof.run(f"with {ack}", set(found) == expected and in_order, merged)


# ---- commit and abort ---------------------------------------------------------------------------------


@claim(
    "commit-or-abort-removes-exactly-its-transactions-acks",
    "z3",
    "For any pending acks: a commit or abort, live or replayed, applies to the cumulative ack exactly if this ack is "
    "of the same transaction. Afterwards the acks of the other transactions are pending, unchanged, and no others.",
    Control(
        "a replayed commit or abort applies to the cumulative ack of any transaction",
        STATE,
        'Rule(Origin.READ, {False: "PendingAckHandleImpl.handle{Commit,Abort}, master 2026-07"})\n    ] = True',
        'Rule(Origin.READ, {False: "PendingAckHandleImpl.handle{Commit,Abort}, master 2026-07"})\n    ] = False',
        refutes="a commit or abort applies to its own cumulative ack",
    ),
)
def end_removes_its_own_acks() -> Answer:
    """PIP-31: an abort undoes the acks of its transaction, and of no other."""
    proof, index, cfg = Proof(), z3.Int("place"), lifted(Config())
    s, end, own = unknown(State, "s"), unknown(LogRecord, "end"), Seq.unknown(PositionAck, "own")
    pending, cumulative, txn = s.fields["individual_acks"], s.fields["cumulative_ack"], end.fields["txn"]
    is_own = z3.And(cumulative.defined, cumulative.value.fields["txn"] == txn)
    for has_acks in (own.length > 0, own.length == 0):
        known = [has_acks, pending.length >= 0]
        reader = Reader(known, stubs={model.acks_of: lambda state, of: own})
        for path in reader.paths(replay.ended_acks, cfg, s, end, named={"replayed": z3.Bool("replayed")}):
            ended = path.value.fields["cumulative"]
            applies = as_term(ended.defined) if isinstance(ended, Maybe) else z3.BoolVal(ended is not None)
            premises = [*known, *path.when]
            proof.possible("a commit or abort", premises)
            proof.show("a commit or abort applies to its own cumulative ack", applies == is_own, premises, direct=True)
            for after in reader.paths(replay.without_ended_acks, s, txn, path.value, when=premises):
                _show_rest(proof, pending, after.value, cumulative, is_own, txn, index, after.when)
    draw = random.Random(31)  # noqa: S311
    for _ in range(200):
        _run_of_ends(proof, draw)
    return proof.answer()


def _show_rest(
    proof: Proof, pending: Seq, after: Rec, cumulative: Maybe, is_own: Any, txn: Any, index: Any, when: Sequence[Any]
) -> None:
    """Proves which acks are pending after a commit or abort."""
    rest, left = after.fields["individual_acks"], after.fields["cumulative_ack"]
    removed = z3.Not(as_term(left.defined)) if isinstance(left, Maybe) else z3.BoolVal(left is None)
    expected = z3.Or(is_own, z3.Not(cumulative.defined))
    proof.show("the cumulative ack of another transaction stays", removed == expected, when, direct=True)
    if isinstance(left, Maybe):
        same = z3.Implies(left.defined, as_term(equal(left, cumulative)))
        proof.show("it is unchanged", same, when, direct=True)
    if rest is pending:  # the transaction had no acks
        return
    stays, item, known = rest.origin.element_at(index) if rest.origin else (z3.FreshBool("stays"), rest.at(index), [])
    inside = [index >= 0, index < pending.length, *known]
    others = as_term(stays) == (pending.at(index).fields["txn"] != txn)
    proof.show("exactly the other transactions stay", others, [*when, *inside], direct=True)
    proof.show("their acks are unchanged", as_term(equal(item, pending.at(index))), [*when, *inside], direct=True)


def _run_of_ends(proof: Proof, draw: random.Random) -> None:
    """Checks the claim on the commit or abort of one of several random transactions."""
    txns = draw.sample(range(1, 5), draw.randrange(4))
    pending = tuple([TxnAcks(n, (PositionAck(n, draw.choice((None, 1))),)) for n in txns])
    mine = draw.randrange(1, 5)
    own, other = CumulativeAck(mine, PositionAck(0, None)), CumulativeAck(draw.randrange(1, 5), PositionAck(2, 1))
    cumulative = draw.choice((None, own, other))
    s = start(Config())._replace(individual_acks=pending, cumulative_ack=cumulative)
    end = LogRecord(draw.choice(("commit", "abort")), draw.random() < 0.5, mine, ())
    ended = replay.ended_acks(Config(), s, end, replayed=draw.random() < 0.5)
    after = replay.without_ended_acks(s, mine, ended)
    rest = cumulative if cumulative is not None and cumulative.txn != mine else None
    others = tuple([each for each in pending if each.txn != mine])
    kept = after.individual_acks == others and after.cumulative_ack == rest
    proof.run(f"{end.op} of {mine} with {cumulative}", kept, after.cumulative_ack)
