"""What a proved claim must show of itself, so that a proof that has become weaker is noticed.

no statement is empty     a statement fails where nothing is known of the program's results; a lemma, which is about
                          no program, fails without its premises
no premise is impossible  for each statement, the premises of one path at least can hold
no premise is too narrow  the assumptions of a claim, without the program's own conditions, exclude no reachable state
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import chain
from typing import Any, NamedTuple

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Proof, Statement, recorded
from invariants.proofs.symbolic import PathCondition, bind, forgotten_results

#: Milliseconds that the solver may take to find a statement empty or an assumption too narrow.
SCRUTINY_MS = 1_000
#: Characters of the longest assumption that is listed.
SHORT = 90
#: Parts of the largest term that is written down.
SMALL = 30


class Sample(NamedTuple):
    """A reachable state of the component."""

    cfg: Any
    state: Any


def objection(check: Callable[[], Answer], proofs: Sequence[Proof], samples: Sequence[Sample]) -> str | None:
    """Why a proof of that check shows less than it says, if it does."""
    steps = _by_name(proofs)
    with forgotten_results(), recorded() as again, suppress(Exception):
        check()  # it may end early: claims go on with results that now have any value
    return next(chain(_impossible(steps), _empty(steps, _by_name(again)), _out_of_reach(steps, samples)), None)


def _by_name(proofs: Sequence[Proof]) -> dict[str, list[Statement]]:
    found: dict[str, list[Statement]] = {}
    for proof in proofs:
        for each in proof.statements:
            found.setdefault(each.what, []).append(each)
    return found


def assumptions(statement: Statement) -> list[Any]:
    """The premises of a statement that are not the program's own conditions."""
    return [each for each in statement.given if not isinstance(each, PathCondition)]


def listed(proofs: Sequence[Proof]) -> list[str]:
    """The assumptions of proofs that are short enough to be read: all but instances of invariants, and of sums."""
    facts = {fact.get_id(): fact for p in proofs for s in p.statements for fact in assumptions(s)}
    found = {" ".join(str(fact).split()) for fact in facts.values() if _is_small(fact)}
    return sorted(
        text for text in found if len(text) <= SHORT and "!" not in text
    )  # names with ! differ from run to run


def _is_small(term: Any) -> bool:
    """Whether a term has few parts: writing down a large one takes long."""
    count, todo = 0, [term]
    while todo and count <= SMALL:
        part = todo.pop()
        count += 1
        todo += part.children()
    return count <= SMALL


def _can_hold(facts: Sequence[Any]) -> bool:
    """Whether the solver cannot rule the facts out."""
    solver = z3.Solver()
    solver.set("timeout", SCRUTINY_MS)
    solver.add(*facts)
    return bool(solver.check() != z3.unsat)


def _impossible(steps: dict[str, list[Statement]]) -> Iterator[str]:
    for what, each in steps.items():
        if z3.is_false(each[0].goal):  # that its premises exclude each other is what is shown
            possible = any(_can_hold(assumptions(s)) for s in each)
        else:
            possible = any(_can_hold(s.given) for s in each)
        if not possible:
            yield f"the premises are impossible where {what}"


def _empty(steps: dict[str, list[Statement]], forgotten: dict[str, list[Statement]]) -> Iterator[str]:
    for what, each in steps.items():
        lemmas = [s for s in each if s.is_lemma]
        if any(not _can_hold([z3.Not(s.goal)]) or any(s.goal.eq(g) for g in s.given) for s in lemmas):
            yield f"the lemma needs no premises: {what}"
        if not lemmas and what not in forgotten:
            yield f"the statement was not reached without knowledge of the program: {what}"
        if not lemmas and not any(_can_hold([*assumptions(s), z3.Not(s.goal)]) for s in forgotten.get(what, [])):
            yield f"the statement holds of any program: {what}"


def _out_of_reach(steps: dict[str, list[Statement]], samples: Sequence[Sample]) -> Iterator[str]:
    bounds = [_bound(sample) for sample in samples]
    for what, each in steps.items():
        of_programs = [assumptions(s) for s in each if not s.is_lemma]
        pairs = ((facts, bound) for facts in of_programs for bound in bounds)
        if of_programs and not any(_can_hold([*facts, *_values(facts, bound)]) for facts, bound in pairs):
            yield f"no reachable state meets the premises where {what}"


def _bound(sample: Sample) -> dict[str, Any]:
    bound: dict[str, Any] = {}
    for name, value in (("cfg", sample.cfg), ("s", sample.state)):
        with suppress(
            NameError, TypeError, ValueError
        ):  # a type that is not read as a whole: what came before it counts
            bind(type(value), name, value, bound)
    return bound


def _values(facts: Sequence[Any], bound: dict[str, Any]) -> Iterator[Any]:
    """What the constants in some facts are in a sample, as equations."""
    seen, todo = set(), list(facts)
    while todo:
        term = todo.pop()
        if term.get_id() in seen:
            continue
        seen.add(term.get_id())
        todo += term.children()
        if not z3.is_app(term) or term.decl().kind() != z3.Z3_OP_UNINTERPRETED or term.decl().name() not in bound:
            continue
        value, function = bound[term.decl().name()], term.decl()
        if function.arity() == 0:
            yield from _equation(term, value)


def _equation(term: Any, value: Any) -> Iterator[Any]:
    if isinstance(value, bool):
        if z3.is_bool(term):
            yield term == value
    elif isinstance(value, int) and z3.is_int(term):
        yield term == value
    elif isinstance(value, Fraction) and z3.is_real(term):
        yield term == z3.Q(value.numerator, value.denominator)
