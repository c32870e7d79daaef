"""Proofs about the range caches of branch 4.0."""

from __future__ import annotations

import random
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.induction import Induction, Invariant, Names
from invariants.proofs.symbolic import INDEX, ITERATED, Reader, Seq, evaluate
from model import legacy_cache as model
from model.legacy_cache import Entry
from model.positions import Position

MODEL = "model.legacy_cache"


@claim(
    "legacy-size-pass-takes-what-it-needs",
    "z3",
    "For a cache of any number of entries: the eviction by size of releases before PIP-430 frees at least the "
    "requested bytes, or all bytes. Without the last entry that it removes, it would free less than requested.",
    Control(
        "the pass stops only when more than the requested bytes are freed",
        MODEL,
        "        if freed >= bytes_to_free:",
        "        if freed > bytes_to_free:",
        refutes="after an iteration, passed entries are counted, and were needed",
    ),
)
def takes_what_it_needs() -> Answer:
    """The policy that PIP-430 replaces ("Motivation"): by position, regardless of age and access."""
    proof = Proof()
    entries = Seq.unknown(Entry, "entries", {"bytes": lambda e: e.fields["bytes"]})
    wanted, at, freed = z3.Ints("wanted at freed")

    def bytes_of_first(count: Any) -> Any:
        return entries.total("bytes", 0, count)

    def counted(n: Names) -> Any:
        here = z3.And(n[INDEX] >= 0, n[INDEX] <= entries.length, n["freed"] == bytes_of_first(n[INDEX]))
        return z3.And(here, z3.Implies(n[INDEX] > 0, bytes_of_first(n[INDEX] - 1) < wanted))

    loop = Reader().loop(model.count_to_free)
    head = {"entries": entries, "bytes_to_free": wanted, "freed": freed, ITERATED: entries, INDEX: at}
    induction = Induction(proof, loop, head, [Invariant("passed entries are counted, and were needed", counted)])
    induction.base_case(loop.begin(entries, wanted))
    for end in induction.exit_paths(induction.step_case()):
        taken = end.value
        enough = z3.Or(bytes_of_first(taken) >= wanted, taken == entries.length)
        needed = z3.Implies(taken > 0, bytes_of_first(taken - 1) < wanted)
        induction.show("at the end", end, lambda enough=enough, needed=needed: z3.And(enough, needed))
    draw = random.Random(49)  # noqa: S311
    for _ in range(300):
        sizes = [draw.randint(0, 3) for _ in range(draw.randint(0, 6))]
        asked = draw.randint(1, 8)
        some = tuple(Entry(Position(1, i), size, 0) for i, size in enumerate(sizes))
        count = model.count_to_free(some, asked)
        fits = (sum(sizes[:count]) >= asked or count == len(sizes)) and (not count or sum(sizes[: count - 1]) < asked)
        proof.run(f"{asked} of {sizes}", fits)
    return proof.answer()


@claim(
    "legacy-shares-are-within",
    "z3",
    "For every amount of bytes to free, every positive total size, and every cache whose size is at most the total: "
    "the cache's integer share of the amount is between 0 and the amount, and equals the amount if the cache's size is "
    "the total size.",
    Control(
        "shares are rounded up",
        MODEL,
        "bytes_to_free * size // total if",
        "bytes_to_free * size // total + 1 if",
        refutes="a share",
    ),
)
def shares_are_within() -> Answer:
    """The policy that PIP-430 replaces ("Motivation"): the shares of the largest caches are truncated to integers."""
    proof = Proof()
    amount, part, whole = z3.Ints("amount part whole")
    given = [amount >= 0, part >= 0, part <= whole, whole > 0]
    share = Reader(given).call(model.share_of, amount, part, whole, "integers")
    proof.show("a share", z3.And(share >= 0, share <= amount), given, direct=True)
    proof.show("the whole", z3.Implies(part == whole, share == amount), given, direct=True)
    draw = random.Random(50)  # noqa: S311
    for _ in range(300):
        a, w = draw.randint(0, 2**40), draw.randint(1, 2**40)
        p = draw.randint(0, w)
        bound = {"amount": a, "part": p, "whole": w}
        proof.compare(f"{p}/{w} of {a}", evaluate(share, bound), model.share_of(a, p, w, "integers"))
    return proof.answer()


claims = (takes_what_it_needs, shares_are_within)
