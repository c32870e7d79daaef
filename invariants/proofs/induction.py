"""Induction over the rounds of a loop, for queues of any length.

An invariant is a truth about the names of a function at the head of its loop; it may speak of one place or two of
a sequence, and then holds for all of them. Three things are shown: the loop begins with the invariants; a round
that starts with them ends with them; and, where the loop is left, what the claim says follows from them. Of every
step it is shown, too, that what it assumes is possible: from what cannot be, anything would follow.

No quantifier reaches the solver. An invariant that is assumed of all places is assumed of those that the step at
hand looks at; one that is to be shown for all is shown for a place of which nothing is known.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Proof
from invariants.proofs.symbolic import Loop, Maybe, Path, PathCondition, Rec, Root, Seq, applications, as_term

Names = Mapping[str, Any]


class Invariant(NamedTuple):
    """What holds whenever the loop's head is reached: of the names, and of `places` arbitrary places."""

    about: str
    holds: Callable[..., Any]
    places: int = 0


class Induction:
    """An induction over one loop, whose head is reached with the names `head`, of which nothing is known."""

    def __init__(
        self, proof: Proof, loop: Loop, head: Names, invariants: Sequence[Invariant], given: Sequence[Any] = ()
    ) -> None:
        self.proof, self.loop, self.head, self.invariants, self.given = proof, loop, dict(head), invariants, list(given)

    def begins(self, ways: Iterable[Path], assumed: Sequence[Invariant] = ()) -> None:
        """Shows that every way to the loop brings the invariants with it; `assumed` holds of the names there."""
        for way in ways:
            for each in (i for i in self.invariants if i not in assumed):
                self.show(f"at first, {each.about}", way, *_shown_of(each, way.names), assumed=assumed, names=way.names)

    def goes_round(self) -> list[Path]:
        """Shows that every round keeps the invariants. The ways out of the loop, for what follows."""
        plain = [as_term(i.holds(self.head)) for i in self.invariants if not i.places]
        out = [Path(self.head, [*self.given, *plain, PathCondition.of(z3.Not(self.loop.goes_on(self.head)))], "break")]
        for way in self.loop.round(self.head, [*self.given, *plain]):
            if way.how != "next":
                out.append(way)
                continue
            for each in self.invariants:
                self.show(f"after a round, {each.about}", way, *_shown_of(each, way.names))
        return out

    def ends(self, out: Iterable[Path]) -> list[Path]:
        """The ways from where the loop is left to where the function is."""
        return [end for way in out for end in (self.loop.end(way.names, way.when) if way.how == "break" else [way])]

    def show(
        self,
        what: str,
        way: Path,
        goal: Callable[..., Any],
        places: Sequence[Any] = (),
        *,
        assumed: Sequence[Invariant] | None = None,
        names: Names | None = None,
    ) -> None:
        """Shows a goal at the end of a way, from the invariants at the loop's head (or from `assumed` of `names`)."""
        names = self.head if names is None else names
        assumed = self.invariants if assumed is None else assumed
        given = [*self.given, *way.when]
        follows(self.proof, what, goal, places, assumed, names, given, (self.head, way.names, way.value))


def follows(
    proof: Proof,
    what: str,
    goal: Callable[..., Any],
    places: Sequence[Any],
    assumed: Sequence[Invariant],
    names: Names,
    given: Sequence[Any],
    values: tuple[Any, ...],
) -> None:
    """Shows a goal, from what is given and what is assumed of `names`; `values` are what the goal speaks of."""
    said = as_term(goal(*places))
    values = (*values, names)
    places = places_of({root.name: root for root in roots_of(values)}.values(), said, *given)
    known = [*given, *instances(assumed, names, places), *facts_of(values, said, *given)]
    proof.possible(f"what is assumed where {what}", known)
    proof.show(what, said, known)


def places_of(roots: Collection[Root], *terms: Any) -> list[Any]:
    """Every place at which terms look at one of the sequences, once."""
    found = applications(*map(as_term, terms))
    about = {name for name in {name for name, _ in found} if any(root.is_looked_at(name) for root in roots)}
    return list({place.get_id(): place for name, place in found if name in about}.values())


def facts_of(values: tuple[Any, ...], *terms: Any) -> list[Any]:
    """What is known of the sums of sequences, at the places at which terms look at them."""
    roots = {root.name: root for root in roots_of(values)}
    places = places_of(roots.values(), *terms)
    return [fact for root in roots.values() for fact in root.facts(places)]


def instances(assumed: Iterable[Invariant], names: Names, places: Sequence[Any]) -> list[Any]:
    """Invariants, of the given places."""
    return [
        as_term(each.holds(names, *chosen))
        for each in assumed
        for chosen in itertools.product(places, repeat=each.places)
    ]


def roots_of(value: Any) -> list[Root]:
    """The unknown sequences that a value is made of."""
    if isinstance(value, Seq):
        return list(value.roots)
    if isinstance(value, Maybe):
        return roots_of(value.value)
    if isinstance(value, Rec):
        return [root for each in value.fields.values() for root in roots_of(each)]
    if isinstance(value, Mapping):
        return [root for each in value.values() for root in roots_of(each)]
    return [root for each in value for root in roots_of(each)] if isinstance(value, tuple) else []


def _shown_of(each: Invariant, names: Names) -> tuple[Callable[..., Any], list[Any]]:
    """What is to be shown of an invariant: it, at places of which nothing is known."""
    return lambda *places: each.holds(names, *places), [z3.Int(f"any{i}") for i in range(each.places)]
