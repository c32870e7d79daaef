"""Rounding to the nearest double: the facts that proofs assume, and a proof for numbers of up to 107 bits."""

from __future__ import annotations

from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Proof
from invariants.proofs.symbolic import as_term, rounded

#: every nonnegative integer up to this one is a double
WHOLE = 2**53


def rounding_facts(*terms: Any) -> list[Any]:
    """Returns facts about the roundings in terms: rounding is monotonic, and integers up to WHOLE are unchanged."""
    wholes = {as_term(0).sexpr(): z3.RealVal(0)}
    products: dict[str, Any] = {}
    todo = list(terms)
    while todo:
        term = todo.pop()
        todo += term.children()
        if z3.is_app(term) and term.decl().eq(rounded):
            [of] = term.children()
            (wholes if of.decl().kind() == z3.Z3_OP_TO_REAL else products)[of.sexpr()] = of
    facts = [z3.Implies(z3.And(w >= 0, w <= WHOLE), rounded(w) == w) for w in wholes.values()]
    both = [*wholes.values(), *products.values()]
    return facts + [z3.Implies(a <= b, rounded(a) <= rounded(b)) for a in both for b in both if a is not b]


def prove_rounding_facts(proof: Proof) -> None:
    """Proves the facts of `rounding_facts` for numbers from 0 to WHOLE with 107 significant bits. Cost: about 3 s.

    The exact product of two doubles, of 53 significant bits each, has at most 106. The proof is by bit-blasting: the
    operations on numbers become boolean formulas over their bits, for a SAT solver.
    """
    wide = z3.FPSort(12, 107)
    a, b = z3.FPs("a b", wide)
    zero, largest = z3.FPVal(0.0, wide), z3.FPVal(float(WHOLE), wide)

    def nearest(x: Any) -> Any:
        return z3.fpFPToFP(z3.RNE(), x, z3.Float64())

    in_range = [z3.fpLEQ(zero, a), z3.fpLEQ(a, largest)]
    in_order = [z3.fpLEQ(zero, a), z3.fpLEQ(a, b), z3.fpLEQ(b, largest)]
    bits = z3.Then("simplify", "fpa2bv", "simplify", "bit-blast", "sat")
    proof.lemma("rounding keeps the order", z3.fpLEQ(nearest(a), nearest(b)), in_order, solver=bits.solver())
    is_whole = z3.fpEQ(z3.fpRoundToIntegral(z3.RNE(), a), a)
    same = z3.fpEQ(z3.fpFPToFP(z3.RNE(), nearest(a), wide), a)
    proof.lemma("whole numbers are doubles", same, [*in_range, is_whole], solver=bits.solver())
