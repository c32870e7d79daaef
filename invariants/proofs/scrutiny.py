"""Checks that a proved claim is not vacuous: its proof must depend on the program, and apply to states that occur.

The premises of a statement are path conditions of the program and assumptions. There is an objection to a proof if

    a statement is empty        It also holds if the program's results are unconstrained (`symbolic/forgetting.py`), or
                                the check with such results does not reach it. A lemma, which mentions no program, is
                                empty if its goal holds without the premises, or is one of them.
    premises are impossible     They cannot be satisfied on any path. A proof by contradiction has impossible premises
                                on purpose; there is an objection only if the assumptions alone are impossible.
    assumptions are too narrow  They hold in none of the sampled reachable states.

There is no objection where the solver cannot tell. Statements of one name count as one statement, on several paths.
`listed` returns the assumptions as text. A test compares them with `assumptions/<component>.txt`. If an assumption is
added or narrowed, the test fails.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import chain
from typing import Any, NamedTuple

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Proof, Statement, recorded
from invariants.proofs.symbolic import PathCondition, bind, can_hold, unconstrained_results

#: The maximum length of an assumption that is listed, in characters.
SHORT = 90
#: What Z3 appends to the name of a fresh constant.
FRESH = re.compile(r"!\d+")
#: The maximum size of a term that is printed, in subterms.
SMALL = 30


class Sample(NamedTuple):
    """A reachable state of the component."""

    cfg: Any
    state: Any


def objection(check: Callable[[], Answer], proofs: Sequence[Proof], samples: Sequence[Sample]) -> str | None:
    """Returns the first reason why the proofs that a check made are vacuous, or None if none was found.

    Runs the check again, with unconstrained results.
    """
    statements = _by_name(proofs)
    with unconstrained_results(), recorded() as again, suppress(Exception):
        check()  # may fail: a check may not expect an unconstrained result
    return next(
        chain(_impossible(statements), _empty(statements, _by_name(again)), _out_of_reach(statements, samples)), None
    )


def _by_name(proofs: Sequence[Proof]) -> dict[str, list[Statement]]:
    """Returns the statements of proofs by name."""
    found: dict[str, list[Statement]] = {}
    for proof in proofs:
        for each in proof.statements:
            found.setdefault(each.what, []).append(each)
    return found


def assumptions(statement: Statement) -> list[Any]:
    """Returns the premises of a statement that are not path conditions."""
    return [each for each in statement.given if not isinstance(each, PathCondition)]


def listed(proofs: Sequence[Proof]) -> list[str]:
    """Returns the assumptions of proofs as texts, sorted; of long ones (SHORT, SMALL), only the number and a digest.

    Long assumptions are mostly instances of invariants and of prefix sums. If one is narrowed, the digest changes.
    """
    facts = {fact.get_id(): fact for p in proofs for s in p.statements for fact in assumptions(s)}
    short, others = set[str](), set[str]()
    for fact in facts.values():
        # Z3 numbers fresh constants, whose names have a !, differently in each run
        text = FRESH.sub("!", " ".join(str(fact).split())) if _is_small(fact) else ""
        if text and len(text) <= SHORT:
            short.add(text)
        else:
            others.add(_digest(fact))
    rest = [f"longer: {len(others)}, digest {_hash(*sorted(others))}"] if others else []
    return sorted(short) + rest


def _digest(fact: Any) -> str:
    """Returns a digest of a term that does not depend on the names of its constants. Cost: linear in its subterms."""
    numbers: dict[int, int] = {}
    names: dict[str, int] = {}
    lines: list[str] = []
    todo = [(fact, False)]
    while todo:
        term, is_ready = todo.pop()
        if term.get_id() in numbers:
            continue
        if not is_ready:
            todo.append((term, True))
            todo += [(part, False) for part in term.children()]
            continue
        name = str(term) if not z3.is_app(term) or z3.is_int_value(term) else term.decl().name()
        if z3.is_app(term) and term.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            name = str(names.setdefault(name, len(names)))
        numbers[term.get_id()] = len(numbers)
        lines.append(f"{name} {term.sort()} {[numbers[part.get_id()] for part in term.children()]}")
    return _hash(*lines)


def _hash(*lines: str) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def _is_small(term: Any) -> bool:
    """Returns whether a term has at most SMALL subterms; printing a large one is slow."""
    count, todo = 0, [term]
    while todo and count <= SMALL:
        part = todo.pop()
        count += 1
        todo += part.children()
    return count <= SMALL


def _impossible(statements: dict[str, list[Statement]]) -> Iterator[str]:
    """Yields an objection for each statement whose premises are impossible."""
    for what, each in statements.items():
        if z3.is_false(each[0].goal):  # a proof by contradiction: its premises must be impossible
            possible = any(can_hold(assumptions(s)) for s in each)
        else:
            possible = any(can_hold(s.given) for s in each)
        if not possible:
            yield f"the premises are impossible where {what}"


def _empty(statements: dict[str, list[Statement]], forgotten: dict[str, list[Statement]]) -> Iterator[str]:
    """Yields an objection for each empty statement; `forgotten` has the statements with unconstrained results."""
    for what, each in statements.items():
        lemmas = [s for s in each if s.is_lemma]
        if any(not can_hold([z3.Not(s.goal)]) or any(s.goal.eq(g) for g in s.given) for s in lemmas):
            yield f"the lemma needs no premises: {what}"
        if not lemmas and what not in forgotten:
            yield f"the check with unconstrained results does not reach the statement: {what}"
        if not lemmas and not any(can_hold([*assumptions(s), z3.Not(s.goal)]) for s in forgotten.get(what, [])):
            yield f"the statement holds of any program: {what}"


def _out_of_reach(statements: dict[str, list[Statement]], samples: Sequence[Sample]) -> Iterator[str]:
    """Yields an objection for each statement whose assumptions hold in no sample."""
    bounds = [_bound(sample) for sample in samples]
    for what, each in statements.items():
        of_programs = [assumptions(s) for s in each if not s.is_lemma]
        pairs = ((facts, bound) for facts in of_programs for bound in bounds)
        if of_programs and not any(can_hold([*facts, *_values(facts, bound)]) for facts, bound in pairs):
            yield f"no reachable state meets the premises where {what}"


def _bound(sample: Sample) -> dict[str, Any]:
    """Returns the values of the constants of `cfg` and `s` in a sample."""
    bound: dict[str, Any] = {}
    for name, value in (("cfg", sample.cfg), ("s", sample.state)):
        # an unsupported type raises: the fields before it stay bound
        with suppress(NameError, TypeError, ValueError):
            bind(type(value), name, value, bound)
    return bound


def _values(facts: Sequence[Any], bound: dict[str, Any]) -> Iterator[Any]:
    """Yields an equation for each constant in the facts that has a value in the sample."""
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
    """Yields the equation of a term and a value, if the value has the sort of the term."""
    if isinstance(value, bool):
        if z3.is_bool(term):
            yield term == value
    elif isinstance(value, int) and z3.is_int(term):
        yield term == value
    elif isinstance(value, Fraction) and z3.is_real(term):
        yield term == z3.Q(value.numerator, value.denominator)
