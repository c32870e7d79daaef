"""The loop of `lowest_ranges` (`model/batch_acks/state.py`), by which a record of a cursor keeps within its cap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Proof
from invariants.proofs.symbolic import Reader, bitmasks, unknown
from model import ack_set as sets
from model.batch_acks import state


class Lowest:
    """The loop that takes the lowest ranges: `first` starts of ranges, of which those from `cut` on are still there."""

    def __init__(self, proof: Proof) -> None:
        self.proof = proof
        self.starts, self.deleted = bitmasks.unknown_mask("first starts"), bitmasks.unknown_mask("deleted")
        self.cut, self.lowest, self.i = z3.Ints("cut lowest i")
        self.bounds, self.left = z3.Ints("most left")
        self.count = z3.Function("starts before", z3.IntSort(), z3.IntSort())
        self.cut_off = bitmasks.made(z3.Int("(bit)"), z3.And(self.starts[z3.Int("(bit)")], z3.Int("(bit)") >= self.cut))
        stubs: dict[Callable[..., Any], Callable[..., Any]] = {
            state.range_starts: lambda ledgers, deleted: self.starts,
            sets.all_of: bitmasks.below,
            sets.first_of: lambda mask: self.lowest,
        }
        self.loop = Reader(stubs=stubs).loop(state.lowest_ranges)
        self.head = {"ledgers": unknown(tuple[int, ...], "ledgers"), "deleted": self.deleted}
        self.head |= {"starts": self.cut_off, "most": self.left}
        taken = self.count(self.cut) == self.bounds - self.left
        self.sense = [self.left >= 0, self.left <= self.bounds, self.cut >= 0, self.i >= 0, taken]

    def a_gap_counts_nothing(self) -> None:
        """No start in a gap, so as many starts before its end as before it: by induction over the gap."""
        n, step = z3.Int("n"), self.count(z3.Int("n") + 1)
        grows = step == self.count(n) + z3.If(self.starts[n], 1, 0)
        so_far = self.count(n) == self.count(self.cut)
        self.proof.lemma("a gap one longer", step == self.count(self.cut), [grows, so_far, z3.Not(self.starts[n])])

    def first_of_the_rest(self) -> list[Any]:
        """What is known of the lowest start from the cut on, if there is any; the gap before it counts nothing."""
        bit, at = z3.Int("(any bit)"), self.lowest
        gap = z3.ForAll([bit], z3.Implies(z3.And(bit >= self.cut, bit < at), z3.Not(self.starts[bit])))
        return [at >= self.cut, self.starts[at], gap, self.count(at) == self.count(self.cut)]

    def show(self) -> None:
        """What is taken is deleted, and has as many starts as asked for, or all."""
        proof, i = self.proof, self.i
        self.a_gap_counts_nothing()
        for way in self.loop.begin(self.head["ledgers"], self.deleted, self.bounds):
            same = z3.And(way.names["starts"][i] == self.starts[i], way.names["most"] == self.bounds)
            proof.show("at first", same, [*way.when, i >= 0])
        known = [*self.sense, *self.first_of_the_rest()]
        one_more = self.count(self.lowest + 1) == self.count(self.lowest) + 1
        for way in self.loop.round(self.head, self.sense):
            proof.possible("a round", [*way.when, *known])
            rest = way.names["starts"][i] == z3.And(self.starts[i], i >= self.lowest + 1)
            fewer = self.count(self.lowest + 1) == self.bounds - way.names["most"]
            proof.show("a round takes one start", rest, [*way.when, *known])
            proof.show("a round counts", z3.And(fewer, way.names["most"] >= 0), [*way.when, *known, one_more])
        is_over = z3.Not(self.loop.goes_on(self.head))
        for way in self.loop.end(self.head, [is_over, *self.sense]):
            kept = way.value
            none_left, bit = self.head["starts"] == bitmasks.NONE, z3.Int("(any bit)")
            end = z3.If(none_left, self.cut, self.lowest)
            there = [*way.when, z3.Or(none_left, z3.And(*self.first_of_the_rest()))]
            empty = z3.Implies(none_left, z3.ForAll([bit], z3.Not(self.cut_off[bit])))
            proof.possible("what is taken", [*there, empty])
            proof.show("what is taken is deleted", z3.Implies(kept[i], self.deleted[i]), there)
            proof.show("starts before the end", z3.Implies(z3.And(kept[i], self.starts[i]), i < end), [*there, empty])
            proof.lemma("as many as asked for", self.count(end) <= self.bounds, there)
            proof.lemma("or all", z3.Or(none_left, self.count(end) == self.bounds), there)
