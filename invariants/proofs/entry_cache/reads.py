"""Claims about shared reads and answers of storage, for ranges and answers of any length."""

from __future__ import annotations

import random
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.induction import Induction, Invariant, Names
from invariants.proofs.symbolic import (
    INDEX,
    ITERATED,
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
    "joined-range-is-covered-once",
    "z3",
    "For every range of entry ids and every outstanding read that overlaps it: the part before the read, the common "
    "part and the part after the read contain every entry of the range exactly once, and no other entry. The common "
    "part is the nonempty intersection of range and read.",
    Control(
        "the part after the read begins at its last entry",
        READS,
        "(low, high), (high + 1, last)",
        "(low, high), (high, last)",
        refutes="each entry is covered once",
    ),
)
def covered_once() -> Answer:
    """`PendingReadsManager`, apache/pulsar#17241."""
    proof, reader = Proof(), Reader()
    read = unknown(StorageRead, "read")
    first, last, entry = z3.Ints("first last entry")
    overlaps = as_term(reader.call(shared_reads.overlaps, read, first, last))
    parts = reader.call(shared_reads.split, read, first, last)
    given = [first <= last, read.fields["first"] <= read.fields["last"], overlaps]
    left, common, right = [z3.And(low <= entry, entry <= high) for low, high in parts]
    requested, read_entry = z3.And(first <= entry, entry <= last), _contains(read, entry)
    times = sum(z3.If(part, 1, 0) for part in (left, common, right))
    proof.possible("a range that overlaps a read", given)
    proof.show("each entry is covered once", times == z3.If(requested, 1, 0), given, direct=True)
    proof.show("the common part is the intersection", common == z3.And(requested, read_entry), given, direct=True)
    proof.show("the common part is nonempty", parts[1][0] <= parts[1][1], given, direct=True)
    draw = random.Random(15955)  # noqa: S311
    for _ in range(200):
        low, high = sorted(draw.randint(0, 6) for _ in range(2))
        begin, end = sorted(draw.randint(0, 6) for _ in range(2))
        some = StorageRead(1, 0, 0, 1, begin, end, 0, True, ())
        bound: dict[str, Any] = {"first": low, "last": high}
        bind(StorageRead, "read", some, bound)
        proof.compare(f"{low} to {high} of {some}", evaluate(parts, bound), shared_reads.split(some, low, high))
    return proof.answer()


def _contains(read: Rec, entry: Any) -> Any:
    return z3.And(read.fields["first"] <= entry, entry <= read.fields["last"])


# ---- answers of storage ----------------------------------------------------------------------------------


@claim(
    "only-requested-prefix-is-accepted",
    "z3",
    "For every storage read and every answer of any length: the accepted entries are the longest prefix of the answer "
    "whose entries equal the requested ones, in order.",
    Control(
        "entries after the last requested one are accepted as well",
        MODEL,
        "if position != Position(r.ledger, r.first + i) or position.entry > r.last:",
        "if position != Position(r.ledger, r.first + i):",
        refutes="after an iteration, earlier entries were requested",
    ),
)
def prefix_is_accepted() -> Answer:
    """Test `testMixedReadDiscardsUnexpectedStorageEntries`."""
    proof = Proof()
    read, positions = unknown(StorageRead, "read"), Seq.unknown(Position, "positions")
    at, first, last = z3.Int("at"), read.fields["first"], read.fields["last"]

    def is_asked(i: Any) -> Any:
        asked = Rec(Position, {"ledger": read.fields["ledger"], "entry": first + i})
        return z3.And(as_term(equal(positions.at(i), asked)), first + i <= last)

    def so_far(n: Names, i: Any) -> Any:
        inside = z3.And(n[INDEX] >= 0, n[INDEX] <= positions.length)
        return z3.And(inside, z3.Implies(z3.And(i >= 0, i < n[INDEX]), is_asked(i)))

    loop = Reader().loop(model.accepted_entries)
    head = {"r": read, "positions": positions, ITERATED: positions, INDEX: at}
    induction = Induction(proof, loop, head, [Invariant("earlier entries were requested", so_far, 1)], [first <= last])
    induction.base_case(loop.begin(read, positions))
    for end in induction.exit_paths(induction.step_case()):
        accepted = as_term(end.value)
        next_is_wrong = z3.Implies(accepted < positions.length, z3.Not(is_asked(accepted)))
        within = z3.And(accepted >= 0, accepted <= positions.length, accepted <= last - first + 1)
        ends_inside = z3.Implies(accepted > 0, is_asked(accepted - 1))
        fits = z3.And(within, ends_inside, next_is_wrong)
        induction.show("the number of accepted entries", end, lambda fits=fits: fits)
        induction.show(
            "the accepted entries",
            end,
            lambda i, accepted=accepted: z3.Implies(z3.And(i >= 0, i < accepted), is_asked(i)),
            [z3.Int("any0")],
        )
    _answers_against(proof, loop)
    return proof.answer()


def _answers_against(proof: Proof, loop: Loop) -> None:
    """Checks the claim, and compares the terms of one iteration, on random answers of storage, correct and wrong."""
    draw = random.Random(32)  # noqa: S311
    read, position, at = unknown(StorageRead, "r"), unknown(Position, "position"), z3.Int("at")
    one = Seq(Position, z3.IntVal(1), lambda _: position, {}, {})
    names = {"r": read, "positions": one, ITERATED: one, INDEX: z3.IntVal(0), "i": at}
    passes = [path for path in loop.iteration(names) if path.exit == "next"]
    condition = evaluator(z3.Or(*[z3.And(*path.when) for path in passes]))
    for _ in range(300):
        r = StorageRead(1, 0, 0, 1, first := draw.randint(0, 3), first + draw.randint(0, 3), 0, True, ())
        asked = [Position(1, r.first + i) for i in range(draw.randint(0, 5))]
        odd = Position(draw.randint(1, 2), draw.randint(0, 6))
        answer = [odd if draw.random() < 0.1 else each for each in asked]
        accepted = model.accepted_entries(r, answer)
        wanted = [each == Position(1, r.first + i) and each.entry <= r.last for i, each in enumerate(answer)]
        # the first False is at the length of the longest correct prefix
        proof.run(f"{answer} for {r}", accepted == (*wanted, False).index(False))
        # the terms say whether a read accepts `odd` as its first entry; the read begins at the answer's first entry
        bound: dict[str, Any] = {}
        bind(StorageRead, "r", r._replace(first=answer[0].entry if answer else 0), bound)
        bind(Position, "position", odd, bound)
        alone = model.accepted_entries(r._replace(first=answer[0].entry if answer else 0), [odd])
        proof.compare(f"{odd} for {r}", condition(bound), alone)
