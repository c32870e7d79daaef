"""Proofs about the loop of `lowest_ranges` (`model/batch_acks/state.py`), which limits a cursor record's ranges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Proof
from invariants.proofs.symbolic import Reader, bitmasks, unknown
from model import ack_set as sets
from model.batch_acks import state


class LowestRanges:
    """Any iteration of the loop of `lowest_ranges`. An iteration takes one range of deleted entries into the record.

    `starts` are the first entries of all ranges; `cut_off` are those from the entry `cut` on, which are not taken yet.
    `requested` is the number of ranges to take, and `left` is how many of these are not taken yet. `count` maps an
    entry to the number of starts before it. `lowest` is the lowest start that is not taken yet, `i` any entry.
    """

    def __init__(self, proof: Proof) -> None:
        self.proof = proof
        self.starts, self.deleted = bitmasks.unknown_mask("first starts"), bitmasks.unknown_mask("deleted")
        self.cut, self.lowest, self.i = z3.Ints("cut lowest i")
        self.requested, self.left = z3.Ints("most left")
        self.count = z3.Function("starts before", z3.IntSort(), z3.IntSort())
        self.cut_off = bitmasks.satisfying(
            z3.Int("(bit)"), z3.And(self.starts[z3.Int("(bit)")], z3.Int("(bit)") >= self.cut)
        )
        stubs: dict[Callable[..., Any], Callable[..., Any]] = {
            state.range_starts: lambda ledgers, deleted: self.starts,
            sets.bits_below: bitmasks.below,
            sets.lowest_set_bit: lambda mask: self.lowest,
        }
        self.loop = Reader(stubs=stubs).loop(state.lowest_ranges)
        self.head = {"ledgers": unknown(tuple[int, ...], "ledgers"), "deleted": self.deleted}
        self.head |= {"starts": self.cut_off, "limit": self.left}
        taken = self.count(self.cut) == self.requested - self.left
        self.preconditions = [self.left >= 0, self.left <= self.requested, self.cut >= 0, self.i >= 0, taken]

    def count_is_constant_in_gap(self) -> None:
        """Proves by induction that the number of earlier starts is constant between two starts."""
        n, step = z3.Int("n"), self.count(z3.Int("n") + 1)
        grows = step == self.count(n) + z3.If(self.starts[n], 1, 0)
        so_far = self.count(n) == self.count(self.cut)
        self.proof.lemma("a gap one longer", step == self.count(self.cut), [grows, so_far, z3.Not(self.starts[n])])

    def lowest_start_facts(self) -> list[Any]:
        """Returns the facts about the lowest start from `cut` on, if there is one."""
        bit, at = z3.Int("(any bit)"), self.lowest
        gap = z3.ForAll([bit], z3.Implies(z3.And(bit >= self.cut, bit < at), z3.Not(self.starts[bit])))
        return [at >= self.cut, self.starts[at], gap, self.count(at) == self.count(self.cut)]

    def show(self) -> None:
        """Proves that the taken entries are deleted, and have the requested number of starts or all starts."""
        proof, i = self.proof, self.i
        self.count_is_constant_in_gap()
        for path in self.loop.begin(self.head["ledgers"], self.deleted, self.requested):
            same = z3.And(path.names["starts"][i] == self.starts[i], path.names["limit"] == self.requested)
            proof.show("at loop entry", same, [*path.when, i >= 0])
        known = [*self.preconditions, *self.lowest_start_facts()]
        one_more = self.count(self.lowest + 1) == self.count(self.lowest) + 1
        for path in self.loop.iteration(self.head, self.preconditions):
            proof.possible("an iteration", [*path.when, *known])
            rest = path.names["starts"][i] == z3.And(self.starts[i], i >= self.lowest + 1)
            fewer = self.count(self.lowest + 1) == self.requested - path.names["limit"]
            proof.show("an iteration takes one start", rest, [*path.when, *known])
            proof.show("an iteration counts", z3.And(fewer, path.names["limit"] >= 0), [*path.when, *known, one_more])
        is_over = z3.Not(self.loop.condition(self.head))
        for path in self.loop.end(self.head, [is_over, *self.preconditions]):
            kept = path.value
            none_left, bit = self.head["starts"] == bitmasks.NONE, z3.Int("(any bit)")
            end = z3.If(none_left, self.cut, self.lowest)
            premises = [*path.when, z3.Or(none_left, z3.And(*self.lowest_start_facts()))]
            empty = z3.Implies(none_left, z3.ForAll([bit], z3.Not(self.cut_off[bit])))
            proof.possible("the taken entries", [*premises, empty])
            proof.show("taken entries are deleted", z3.Implies(kept[i], self.deleted[i]), premises)
            proof.show(
                "starts before the end", z3.Implies(z3.And(kept[i], self.starts[i]), i < end), [*premises, empty]
            )
            proof.lemma("at most the requested number of starts", self.count(end) <= self.requested, premises)
            proof.lemma(
                "all starts, or the requested number", z3.Or(none_left, self.count(end) == self.requested), premises
            )
