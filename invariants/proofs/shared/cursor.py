"""Symbolic acknowledgements of a cursor, stubs of the functions on ack sets, and random acks.

An ack set is a bit mask of any length (`symbolic/bitmasks.py`), so a batch has any number of messages. Batch sizes are
arbitrary. The list of ack sets is represented by a map from entries to masks. Random lists test that the stubs on the
map agree with the functions on the list. This is not proved.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Proof
from invariants.proofs.symbolic import MASK, Maybe, Reader, Rec, Seq, as_term, bitmasks, lifted, unknown
from model import ack_set as sets
from model.batch_acks import machine as model
from model.batch_acks import state
from model.batch_acks.state import Acks, Config, Partial, State
from model.positions import Position

SIZE = z3.Function("size of", z3.IntSort(), z3.IntSort())


class AckSetMap(NamedTuple):
    """The ack sets as a map: the entries that have one (`has`), and the remaining messages of each (`left`)."""

    has: object
    left: object

    @staticmethod
    def none() -> Rec:
        """Returns the empty map."""
        return Rec(AckSetMap, {"has": bitmasks.NONE, "left": z3.K(z3.IntSort(), bitmasks.NONE)})

    @staticmethod
    def has_any(parts: Rec) -> Any:
        """Returns whether the map has an entry."""
        return parts.fields["has"] != bitmasks.NONE


def present(value: Any) -> Any:
    """Returns the value of an argument that is not None, which mypy checks."""
    return value.value if isinstance(value, Maybe) else as_term(value)


def remaining_of(acks: Rec, entry: Any) -> Maybe:
    """Stub of `remaining_of` on the map."""
    (has, left), entry = acks.fields["partial"].fields.values(), present(entry)
    return Maybe(has[entry], left[entry])


def without(partial: Rec, entry: Any) -> Rec:
    """Stub of `without` on the map."""
    return partial.replace({"has": z3.Store(partial.fields["has"], present(entry), False)})


def with_remaining(partial: Rec, entry: Any, remaining: Any) -> Rec:
    """Stub of `with_remaining` on the map."""
    (has, left), entry, remaining = partial.fields.values(), present(entry), present(remaining)
    return Rec(AckSetMap, {"has": z3.Store(has, entry, True), "left": z3.Store(left, entry, remaining)})


class Cursor:
    """Arbitrary acknowledgements, an arbitrary entry `e`, and an arbitrary message `i` of it."""

    def __init__(self) -> None:
        self.proof, self.cfg = Proof(), lifted(Config())
        self.e, self.i = z3.Int("e"), z3.Int("i")
        partial = Rec(
            AckSetMap, {"has": bitmasks.unknown_mask("has"), "left": z3.Const("left", z3.ArraySort(z3.IntSort(), MASK))}
        )
        self.acks = Rec(
            Acks,
            {"first_unacked": z3.Int("first_unacked"), "deleted": bitmasks.unknown_mask("deleted"), "partial": partial},
        )
        self.facts: list[Any] = []
        self._made = 0
        self.stubs: dict[Callable[..., Any], Callable[..., Any]] = {
            state.remaining_of: remaining_of,
            state.without_ack_set: without,
            state.with_remaining: with_remaining,
            state.size_of: lambda cfg, entry: SIZE(present(entry)),
            sets.bits_below: bitmasks.below,
            state.requested_mask: lambda cfg, on, requested: requested,
            state.with_mark_delete_at: self._with_mark_delete_at,
            state.with_mark_delete_advanced: self._with_mark_delete_advanced,
        }

    def requested(self, name: str) -> Maybe:
        """Returns the requested mask of an ack: any mask, or None if the ack has no effect."""
        return Maybe(z3.Bool(f"{name} has effect"), bitmasks.unknown_mask(name))

    def _with_mark_delete_at(self, acks: Rec, first_unacked: Any) -> Rec:
        """Stub of `with_mark_delete_at`; `show_with_mark_delete_at` proves its facts."""
        self._made += 1
        then, (has, left) = z3.Int(f"first_unacked#{self._made}"), acks.fields["partial"].fields.values()
        deleted, not_passed = acks.fields["deleted"], bitmasks.at_or_above(then)
        passed = z3.Implies(z3.And(first_unacked <= self.e, self.e < then), deleted[self.e])
        self.facts += [then >= first_unacked, z3.Not(deleted[then]), passed]
        bit = z3.Int("(bit)")
        cut = [bitmasks.satisfying(bit, z3.And(mask[bit], not_passed[bit])) for mask in (deleted, has)]
        return Rec(
            Acks, {"first_unacked": then, "deleted": cut[0], "partial": Rec(AckSetMap, {"has": cut[1], "left": left})}
        )

    def _with_mark_delete_advanced(self, acks: Rec) -> Rec:
        """Stub of `with_mark_delete_advanced`: the result of `with_mark_delete_at`, or the acks unchanged."""
        moved, moves = self._with_mark_delete_at(acks, acks.fields["first_unacked"]), z3.Bool(f"moves#{self._made}")
        fields = {f: z3.If(moves, moved.fields[f], acks.fields[f]) for f in ("first_unacked", "deleted")}
        has = z3.If(moves, *[each.fields["partial"].fields["has"] for each in (moved, acks)])
        return Rec(Acks, {**fields, "partial": acks.fields["partial"].replace({"has": has})})

    def deleted(self, acks: Rec, entry: Any) -> Any:
        """Returns whether an entry is deleted."""
        return z3.Or(entry < acks.fields["first_unacked"], acks.fields["deleted"][entry])

    def is_left(self, acks: Rec, entry: Any, bit: Any) -> Any:
        """Returns whether a message of an entry is unacknowledged."""
        part = remaining_of(acks, entry)
        of_part = z3.If(part.defined, part.value[bit], bit < SIZE(entry))
        return z3.And(z3.Not(self.deleted(acks, entry)), of_part)

    def is_consistent(self, acks: Rec, entry: Any) -> Any:
        """Returns whether the ack set of an undeleted entry has a remaining message, and none beyond the batch."""
        part, bit = remaining_of(acks, entry), z3.Int("(any bit)")
        some = z3.Exists([bit], z3.And(bit >= 0, part.value[bit]))
        inside = z3.ForAll([bit], z3.Implies(part.value[bit], z3.And(bit >= 0, bit < SIZE(entry))))
        return z3.Implies(z3.And(part.defined, z3.Not(self.deleted(acks, entry))), z3.And(some, inside))

    def valid(self, *entries: Any) -> list[Any]:
        """Returns the preconditions: entry numbers are at least 0, entries have messages and consistent ack sets."""
        sizes = [z3.And(n >= 0, SIZE(n) >= 1) for n in entries]
        return [
            *sizes,
            *[self.is_consistent(self.acks, n) for n in entries],
            self.acks.fields["first_unacked"] >= 0,
            self.i >= 0,
        ]


def show_with_mark_delete_at(proof: Proof) -> None:
    """Proves the facts of the stub of `with_mark_delete_at`, on the list of ack sets."""
    acks = unknown(Acks, "acks").replace({"deleted": bitmasks.unknown_mask("deleted")})
    deleted, partial, index = acks.fields["deleted"], acks.fields["partial"], z3.Int("index")
    first_unacked, first, e = z3.Ints("first_unacked first e")
    gap: list[Any] = []  # facts about `first`: entries that are not deleted begin `first` entries after `first_unacked`

    def lowest_set_bit(mask: Any) -> Any:
        """Stub of `lowest_set_bit`. The mask of the entries that are not deleted has a bit: deletions are finite."""
        gap.extend(
            [
                first >= 0,
                mask[first],
                z3.Implies(z3.And(e - first_unacked >= 0, e - first_unacked < first), z3.Not(mask[e - first_unacked])),
            ]
        )
        return first

    reader = Reader([first_unacked >= 0, first >= 0, partial.length >= 0], stubs={sets.lowest_set_bit: lowest_set_bit})
    for path in reader.paths(state.with_mark_delete_at, acks, first_unacked):
        after, kept = path.value.fields, path.value.fields["partial"]
        premises = [*gap, *path.when, first_unacked >= 0, e >= 0]
        then = after["first_unacked"]
        passed = z3.Implies(z3.And(first_unacked <= e, e < then), deleted[e])
        proof.show(
            "only deleted entries are passed", z3.And(then >= first_unacked, z3.Not(deleted[then]), passed), premises
        )
        rest = after["deleted"][e] == z3.And(deleted[e], e >= then)
        proof.show("later deletions stay", rest, premises)
        if isinstance(kept, Seq) and kept.origin is not None:
            chosen, _, more = kept.origin.element_at(index)
            inside = z3.And(index >= 0, index < partial.length)
            is_kept = partial.at(index).fields["entry"] >= then
            proof.show("later ack sets stay", chosen == is_kept, [*premises, *more, inside])


def run_map_against_list(proof: Proof) -> None:
    """Runs the functions on the list of ack sets against the map."""
    for cfg, acks, entry, mask in random_acks(100):
        as_map = {p.entry: p.remaining for p in acks.partial}
        one = {p.entry: p.remaining for p in state.without_ack_set(acks.partial, entry)}
        new = state.with_remaining(acks.partial, entry, mask)
        wanted = tuple(Partial(n, r) for n, r in sorted({**as_map, entry: mask}.items()))
        proof.compare(f"{entry} without {acks}", one, {n: r for n, r in as_map.items() if n != entry})
        proof.compare(f"{entry} with {mask} in {acks}", new, wanted)
        proof.compare(f"{entry} in {acks}", state.remaining_of(acks, entry), as_map.get(entry))
        then = state.with_mark_delete_at(acks, entry)
        rest = tuple(p for p in acks.partial if p.entry >= then.first_unacked)
        proof.compare(f"{acks} up to {entry} of {cfg.entries}", then.partial, rest)
        advances = acks.deleted >> acks.first_unacked & 1
        proof.compare(
            f"{acks} advanced",
            state.with_mark_delete_advanced(acks),
            state.with_mark_delete_at(acks, acks.first_unacked) if advances else acks,
        )


# ---- random acks ------------------------------------------------------------------------------------------


def left_of(cfg: Config, acks: Acks, entry: int) -> int:
    """Returns the mask of the remaining messages of an entry, from the definition."""
    if entry < acks.first_unacked or acks.deleted >> entry & 1:
        return 0
    parts = {p.entry: p.remaining for p in acks.partial}
    return parts.get(entry, -1) & ((1 << cfg.batch_sizes[entry % len(cfg.batch_sizes)]) - 1)


def random_acks(count: int) -> Iterator[tuple[Config, Acks, int, int]]:
    """Yields acknowledgements of six entries, one of the entries, and a requested mask; always the same sequence."""
    draw = random.Random(540)  # noqa: S311
    for _ in range(count):
        cfg = Config(batch_sizes=draw.choice(((4, 1, 3), (2,), (1, 70))), entries=6)
        first_unacked, parts, deleted = draw.randrange(3), [], 0
        for n in range(first_unacked + 1, 6):
            size = state.size_of(cfg, n)
            part = draw.randrange(1, 2 ** min(size, 20))
            if draw.random() < 0.3:
                deleted |= 1 << n
            elif draw.random() < 0.6 and part != sets.bits_below(size):
                parts.append(Partial(n, part))
        entry = draw.randrange(6)
        mask = draw.randrange(2 ** state.size_of(cfg, entry))
        yield cfg, Acks(first_unacked, deleted, tuple(parts)), entry, draw.choice((mask, mask, 0))


def random_steps(count: int, steps: int) -> Iterator[tuple[Config, str, State, State]]:
    """Yields the steps of random individual and cumulative acks; always the same sequence."""
    draw = random.Random(18042)  # noqa: S311
    for _ in range(count):
        cfg = Config(batch_sizes=draw.choice(((4, 1, 3), (5,))), entries=6)
        s = state.start(cfg)
        for _ in range(steps):
            entry = draw.randrange(7)
            size = state.size_of(cfg, entry)
            words = draw.choice((None, sets.words_of(draw.randrange(2**size)) or (0,)))
            if draw.random() < 0.7:
                name, arguments = "ack_individual", ((model.Ack(Position(1, entry), words),),)
            else:
                name, arguments = "ack_cumulative", (Position(1, entry), words)  # type: ignore[assignment]
            after, _ = model.batch_acks.step(cfg, s, name, arguments)
            yield cfg, f"{name}{arguments}", s, after
            s = after
