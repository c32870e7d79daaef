"""Induction over the iterations of a loop, for sequences of any length.

A loop invariant is a predicate over the local variables at the loop head. An invariant with index parameters says that
the predicate holds for all indexes. Three statements are proved: the invariants hold when the loop is entered; an
iteration preserves the invariants; where the loop exits, the claim follows from the invariants. For each statement the
solver also finds a model of the premises, because contradictory premises imply anything.

The solver gets no quantifiers. To prove an invariant for all indexes, it is proved for a fresh constant, about which
nothing is assumed. As a premise, an invariant is instantiated at every index that occurs in the statement.
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
    """A loop invariant: a predicate over the local variables and `indexes` arbitrary indexes."""

    about: str  # its name in statements
    holds: Callable[..., Any]  # (names, *indexes) -> term
    indexes: int = 0  # the number of index parameters


class Induction:
    """An induction over one loop. Statements are added to `proof`."""

    def __init__(
        self, proof: Proof, loop: Loop, head: Names, invariants: Sequence[Invariant], given: Sequence[Any] = ()
    ) -> None:
        """`head` has unconstrained values of the local variables at the loop head; `given` are premises throughout."""
        self.proof, self.loop, self.head, self.invariants, self.given = proof, loop, dict(head), invariants, list(given)

    def base_case(self, paths: Iterable[Path], assumed: Sequence[Invariant] = ()) -> None:
        """Proves the invariants at the end of the paths to the loop head; `assumed` ones are premises, not proved."""
        for path in paths:
            for each in (i for i in self.invariants if i not in assumed):
                self.show(
                    f"at loop entry, {each.about}",
                    path,
                    *_goal_of(each, path.names),
                    assumed=assumed,
                    names=path.names,
                )

    def step_case(self) -> list[Path]:
        """Proves that every iteration preserves the invariants. Returns the paths on which the loop exits.

        The first of them is the path on which the loop condition is false.
        """
        plain = [as_term(i.holds(self.head)) for i in self.invariants if not i.indexes]
        exits = [
            Path(self.head, [*self.given, *plain, PathCondition.of(z3.Not(self.loop.condition(self.head)))], "break")
        ]
        for path in self.loop.iteration(self.head, [*self.given, *plain]):
            if path.exit != "next":
                exits.append(path)
                continue
            for each in self.invariants:
                self.show(f"after an iteration, {each.about}", path, *_goal_of(each, path.names))
        return exits

    def exit_paths(self, exits: Iterable[Path]) -> list[Path]:
        """Returns the paths to the end of the function from the loop's `exits`, which `step_case` returns."""
        return [
            end for path in exits for end in (self.loop.end(path.names, path.when) if path.exit == "break" else [path])
        ]

    def show(
        self,
        what: str,
        path: Path,
        goal: Callable[..., Any],
        indexes: Sequence[Any] = (),
        *,
        assumed: Sequence[Invariant] | None = None,
        names: Names | None = None,
    ) -> None:
        """Proves a goal, a predicate over indexes, at the end of a path.

        The premises are the path's conditions and the invariants at the loop head. `assumed` replaces the invariants,
        `names` the values of the local variables at the loop head.
        """
        names = self.head if names is None else names
        assumed = self.invariants if assumed is None else assumed
        given = [*self.given, *path.when]
        follows(self.proof, what, goal, indexes, assumed, names, given, (self.head, path.names, path.value))


def follows(
    proof: Proof,
    what: str,
    goal: Callable[..., Any],
    indexes: Sequence[Any],
    assumed: Sequence[Invariant],
    names: Names,
    given: Sequence[Any],
    values: tuple[Any, ...],
) -> None:
    """Proves a goal, a predicate over indexes, from the terms `given` and the `assumed` invariants over `names`.

    The goal is about `values`. The definitions of the prefix sums (`symbolic/values.py`) of the sequences in `values`
    are premises, too. Also checks that the premises are satisfiable.
    """
    goal_term = as_term(goal(*indexes))
    values = (*values, names)
    indexes = indexes_of({root.name: root for root in roots_of(values)}.values(), goal_term, *given)
    known = [*given, *instances(assumed, names, indexes), *facts_of(values, goal_term, *given)]
    proof.possible(f"the premises of: {what}", known)
    proof.show(what, goal_term, known)


def indexes_of(roots: Collection[Root], *terms: Any) -> list[Any]:
    """Returns the indexes at which terms read one of the sequences, without duplicates."""
    found = applications(*map(as_term, terms))
    # the names of the functions that belong to one of the sequences
    about = {name for name in {name for name, _ in found} if any(root.has_function(name) for root in roots)}
    return list({index.get_id(): index for name, index in found if name in about}.values())


def facts_of(values: tuple[Any, ...], *terms: Any) -> list[Any]:
    """Returns the definitions of the prefix sums of the values' sequences, at the indexes that the terms read."""
    roots = {root.name: root for root in roots_of(values)}
    indexes = indexes_of(roots.values(), *terms)
    return [fact for root in roots.values() for fact in root.facts(indexes)]


def instances(assumed: Iterable[Invariant], names: Names, indexes: Sequence[Any]) -> list[Any]:
    """Returns the invariants instantiated at the given indexes."""
    return [
        as_term(each.holds(names, *chosen))
        for each in assumed
        for chosen in itertools.product(indexes, repeat=each.indexes)
    ]


def roots_of(value: Any) -> list[Root]:
    """Returns the unconstrained sequences that a value is built from."""
    if isinstance(value, Seq):
        return list(value.roots)
    if isinstance(value, Maybe):
        return roots_of(value.value)
    if isinstance(value, Rec):
        return [root for each in value.fields.values() for root in roots_of(each)]
    if isinstance(value, Mapping):
        return [root for each in value.values() for root in roots_of(each)]
    return [root for each in value for root in roots_of(each)] if isinstance(value, tuple) else []


def _goal_of(each: Invariant, names: Names) -> tuple[Callable[..., Any], list[Any]]:
    """Returns the goal for an invariant: the invariant at fresh constants."""
    return lambda *indexes: each.holds(names, *indexes), [z3.Int(f"any{i}") for i in range(each.indexes)]
