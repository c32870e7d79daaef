"""Claims about reads that are shared, and about what storage brings: ranges of any length, and any answer."""

from __future__ import annotations

import random
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim, explored
from invariants.proofs.entry_cache import contracts
from invariants.proofs.induction import Induction, Invariant, Names
from invariants.proofs.symbolic import (
    AT,
    OVER,
    Loop,
    Reader,
    Rec,
    Seq,
    as_term,
    bind,
    equal,
    evaluate,
    evaluator,
    unknown,
)
from model.entry_cache import machine as model
from model.entry_cache import shared_reads
from model.entry_cache.shared_reads import StorageRead
from model.positions import Position

MODEL, READS, IMPL = "model.entry_cache.machine", "model.entry_cache.shared_reads", "impl.entry_cache.shared_reads"

# ---- joining ----------------------------------------------------------------------------------------------


@claim(
    "a-joined-range-is-covered-once",
    "z3",
    "For every range of entry ids and every outstanding read that overlaps it: what is missing on the left, what "
    "both have in common and what is missing on the right hold every entry of the range exactly once, and nothing "
    "else; what they have in common is not empty, and is all of the range that the read brings.",
    Control(
        "what is missing on the right begins where the read ends",
        READS,
        "(low, high), (high + 1, last)",
        "(low, high), (high, last)",
        refutes="how often an entry is there",
    ),
)
def covered_once() -> Answer:
    """How a range joins a read that overlaps it: apache/pulsar#15955."""
    proof, reader = Proof(), Reader()
    read = unknown(StorageRead, "read")
    first, last, entry = z3.Ints("first last entry")
    overlaps = as_term(reader.call(shared_reads.overlaps, read, first, last))
    parts = reader.call(shared_reads.split, read, first, last)
    given = [first <= last, read.fields["first"] <= read.fields["last"], overlaps]
    left, common, right = [z3.And(low <= entry, entry <= high) for low, high in parts]
    asked, brought = z3.And(first <= entry, entry <= last), _brought(read, entry)
    times = sum(z3.If(part, 1, 0) for part in (left, common, right))
    proof.possible("a range that overlaps a read", given)
    proof.show("how often an entry is there", times == z3.If(asked, 1, 0), given, direct=True)
    proof.show("what they have in common", common == z3.And(asked, brought), given, direct=True)
    proof.show("that it is not empty", parts[1][0] <= parts[1][1], given, direct=True)
    draw = random.Random(15955)  # noqa: S311
    for _ in range(200):
        low, high = sorted(draw.randint(0, 6) for _ in range(2))
        begin, end = sorted(draw.randint(0, 6) for _ in range(2))
        some = StorageRead(1, 0, 0, 1, begin, end, 0, True, ())
        bound: dict[str, Any] = {"first": low, "last": high}
        bind(StorageRead, "read", some, bound)
        proof.compare(f"{low} to {high} of {some}", evaluate(parts, bound), shared_reads.split(some, low, high))
    return proof.answer()


def _brought(read: Rec, entry: Any) -> Any:
    return z3.And(read.fields["first"] <= entry, entry <= read.fields["last"])


@claim(
    "a-read-to-join-is-a-fit-one",
    "crosshair",
    "Of any two outstanding reads, the one to join is joinable, of the same cache and ledger, and overlaps the range; "
    "it includes the range if one of them does that could be joined; and there is none only if none could be joined.",
    Control(
        "reads of another ledger are joined",
        READS,
        "read.joinable and read.store == store and read.ledger == ledger and overlaps",
        "read.joinable and read.store == store and overlaps",
    ),
)
def fit_to_join() -> Answer:
    """Outstanding reads that are shared: apache/pulsar#12258, #15955."""
    return explored(contracts.joins_a_fit_one)


# ---- what storage brings ----------------------------------------------------------------------------------


@claim(
    "an-answer-is-taken-as-far-as-it-was-asked-for",
    "z3",
    "For every read and every answer of storage, of any length: what is taken are the answer's first entries; they "
    "are those that were asked for, each at its place, and no more than were asked for; and the entry behind them, "
    "if there is one, is not the one that was asked for there.",
    Control(
        "what comes behind the last entry is taken, too",
        MODEL,
        "if position != Position(r.ledger, r.first + i) or position.entry > r.last:",
        "if position != Position(r.ledger, r.first + i):",
        refutes="after a round, what was passed was asked for",
    ),
)
def taken_as_asked() -> Answer:
    """Foreign and extra entries in an answer: the test `testMixedReadDiscardsUnexpectedStorageEntries`."""
    proof = Proof()
    read, positions = unknown(StorageRead, "read"), Seq.unknown(Position, "positions")
    at, first, last = z3.Int("at"), read.fields["first"], read.fields["last"]

    def is_asked(i: Any) -> Any:
        asked = Rec(Position, {"ledger": read.fields["ledger"], "entry": first + i})
        return z3.And(as_term(equal(positions.at(i), asked)), first + i <= last)

    def so_far(n: Names, i: Any) -> Any:
        inside = z3.And(n[AT] >= 0, n[AT] <= positions.length)
        return z3.And(inside, z3.Implies(z3.And(i >= 0, i < n[AT]), is_asked(i)))

    loop = Reader().loop(model.accepted)
    head = {"r": read, "positions": positions, OVER: positions, AT: at}
    induction = Induction(proof, loop, head, [Invariant("what was passed was asked for", so_far, 1)], [first <= last])
    induction.begins(loop.begin(read, positions))
    for end in induction.ends(induction.goes_round()):
        taken = as_term(end.value)
        behind = z3.Implies(taken < positions.length, z3.Not(is_asked(taken)))
        within = z3.And(taken >= 0, taken <= positions.length, taken <= last - first + 1)
        ends_inside = z3.Implies(taken > 0, is_asked(taken - 1))
        fits = z3.And(within, ends_inside, behind)
        induction.show("how much is taken", end, lambda fits=fits: fits)
        induction.show(
            "what is taken",
            end,
            lambda i, taken=taken: z3.Implies(z3.And(i >= 0, i < taken), is_asked(i)),
            [z3.Int("any0")],
        )
    _answers_against(proof, loop)
    return proof.answer()


def _answers_against(proof: Proof, loop: Loop) -> None:
    """Holds the claim against random answers, good and odd ones, and the terms of a round against some."""
    draw = random.Random(32)  # noqa: S311
    read, position, at = unknown(StorageRead, "r"), unknown(Position, "position"), z3.Int("at")
    one = Seq(Position, z3.IntVal(1), lambda _: position, {}, {})
    names = {"r": read, "positions": one, OVER: one, AT: z3.IntVal(0), "i": at}
    passes = [way for way in loop.round(names) if way.how == "next"]
    goes_on = evaluator(z3.Or(*[z3.And(*way.when) for way in passes]))
    for _ in range(300):
        r = StorageRead(1, 0, 0, 1, first := draw.randint(0, 3), first + draw.randint(0, 3), 0, True, ())
        asked = [Position(1, r.first + i) for i in range(draw.randint(0, 5))]
        odd = Position(draw.randint(1, 2), draw.randint(0, 6))
        answer = [odd if draw.random() < 0.1 else each for each in asked]
        taken = model.accepted(r, answer)
        wanted = [each == Position(1, r.first + i) and each.entry <= r.last for i, each in enumerate(answer)]
        proof.run(f"{answer} for {r}", taken == (*wanted, False).index(False))
        bound: dict[str, Any] = {}
        bind(StorageRead, "r", r._replace(first=answer[0].entry if answer else 0), bound)
        bind(Position, "position", odd, bound)
        alone = model.accepted(r._replace(first=answer[0].entry if answer else 0), [odd])
        proof.compare(f"{odd} for {r}", goes_on(bound), alone)


# ---- model and implementation, by CrossHair ---------------------------------------------------------------


@claim(
    "the-read-to-join-agrees",
    "crosshair",
    "Of up to three joinable reads of a ledger that do not overlap, however they were added, model and "
    "implementation join the same one.",
    Control(
        "of reads inside the range the implementation joins the first, not the latest",
        IMPL,
        "return max(self.reads[at:end], key=lambda read: read.number)",
        "return self.reads[at]",
    ),
)
def joining_agrees() -> Answer:
    """Equivalence of `Joinable.best` with the model's candidate."""
    return explored(contracts.joining_agrees, seconds=8.0)


@claim(
    "complete-parts-agree",
    "crosshair",
    "Model and implementation hold the same parts of a request complete, whatever kind they are, with up to three "
    "entries at hand.",
    Control(
        "the implementation does not count the last entry of a range",
        IMPL,
        "len(self.held) == self.last - self.first + 1",
        "len(self.held) == self.last - self.first",
    ),
)
def complete_agrees() -> Answer:
    """Equivalence of `Wanted.is_complete` with the model's: a hole in an answer, the test `OpReadEntryNullSlotTest`."""
    return explored(contracts.complete_agrees)


claims = (covered_once, fit_to_join, taken_as_asked, joining_agrees, complete_agrees)
