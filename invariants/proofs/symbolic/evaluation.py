"""Evaluates symbolic values for given inputs, to compare a translation with a run of the function.

bind, bind_seq       assign a Python value to the Z3 constants of a value that `unknown` returned
evaluate, evaluator  return the Python value of a symbolic value under such an assignment
LoopEvaluator        runs a loop by evaluating the paths of one iteration

An unconstrained sequence has a Z3 function from index to value for each field of its elements: a column.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, Literal, get_args, get_origin

import z3  # type: ignore[import-untyped]

from invariants.proofs.symbolic.expressions import Path
from invariants.proofs.symbolic.values import (
    FORGETS,
    TOKEN,
    Double,
    Maybe,
    Rec,
    Seq,
    UnsupportedError,
    Word,
    code_of,
    word_of,
)
from model.values import fields_of

#: Values of constants by name; for a column of a sequence, its values by index.
Bound = dict[str, Any]


def bind(kind: Any, name: str, value: Any, bound: Bound, *, element: bool = False) -> None:
    """Assigns a value to the constants of `unknown(kind, name)`, in `bound`.

    A tuple in an `element` of a sequence is one constant, otherwise a sequence.
    """
    origin = get_origin(kind)
    if origin is Annotated:
        bind(get_args(kind)[0], name, value, bound, element=element)
    elif type(None) in get_args(kind):
        bound[f"{name}.defined"] = value is not None
        if value is not None:
            [inner] = [k for k in get_args(kind) if k is not type(None)]
            bind(inner, name, value, bound, element=element)
    elif hasattr(kind, "_fields"):
        for field, of in fields_of(kind).items():
            bind(of, f"{name}.{field}", getattr(value, field), bound, element=element)
    elif origin is Literal:
        bound[name] = code_of(value)
    elif origin is tuple and get_args(kind)[1:] == (...,) and not element:
        bind_seq(get_args(kind)[0], name, value, bound)
    else:
        bound[name] = Fraction(value) if kind is float else value


def bind_seq(kind: Any, name: str, values: Sequence[Any], bound: Bound) -> None:
    """Assigns a sequence of values to the constants of `Seq.unknown(kind, name)`, in `bound`."""
    bound[f"{name}.length"] = len(values)
    columns: dict[str, dict[int, Any]] = {}
    for i, each in enumerate(values):
        cells: Bound = {}
        bind(kind, name, each, cells, element=True)
        for column, cell in cells.items():
            columns.setdefault(column, {})[i] = cell
    bound.update(columns)


#: Returns a value for given values of the constants.
Evaluator = Callable[[Mapping[str, Any]], Any]

#: the index in a sequence whose elements are evaluated
_INDEX = z3.Int("(index)")
_NUMBER = re.compile(r"#\d+")


def evaluate(value: Any, bound: Mapping[str, Any]) -> Any:
    """Returns the Python value of a symbolic value. Raises UnsupportedError for a constant without a value."""
    return evaluator(value)(bound)


def evaluator(value: Any) -> Evaluator:
    """Compiles a symbolic value to a function that evaluates it, for repeated use."""
    if FORGETS.get():  # unconstrained values have no Python value, and comparisons with runs are not used
        return lambda bound: None
    if isinstance(value, Maybe):
        defined, inner = evaluator(value.defined), evaluator(value.value)
        return lambda bound: inner(bound) if defined(bound) else None
    if isinstance(value, Word):
        code = evaluator(value.code)
        return lambda bound: word_of(code(bound))
    if isinstance(value, Double):
        real = evaluator(value.real)
        return lambda bound: float(real(bound))
    if isinstance(value, Rec):
        fields = {f: evaluator(v) for f, v in value.fields.items()}
        return lambda bound: value.kind(**{f: of(bound) for f, of in fields.items()})
    if isinstance(value, Seq):
        length, element = evaluator(value.length), evaluator(value.at(_INDEX))
        return lambda bound: tuple([element({**bound, "(index)": i}) for i in range(length(bound))])
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        each = [evaluator(v) for v in value]
        return lambda bound: tuple([of(bound) for of in each])
    return _term(value) if z3.is_expr(value) else lambda bound: value


def _term(term: Any) -> Evaluator:
    """Compiles a term. Only the selected branch of an if-then-else is evaluated, as in the program."""
    if z3.is_int_value(term) or z3.is_rational_value(term):
        number = term.as_long() if z3.is_int_value(term) else term.as_fraction()
        return lambda bound: number
    operator, parts = term.decl().kind(), [_term(part) for part in term.children()]
    if operator == z3.Z3_OP_ITE:
        condition, then, other = parts
        return lambda bound: then(bound) if condition(bound) else other(bound)
    if operator == z3.Z3_OP_AND:
        return lambda bound: all(part(bound) for part in parts)
    if operator == z3.Z3_OP_OR:
        return lambda bound: any(part(bound) for part in parts)
    if operator == z3.Z3_OP_UNINTERPRETED:
        return _named(term.decl().name(), parts, _nothing(term.sort()))
    if operator not in _OPERATORS:
        raise UnsupportedError(f"not supported: {term.decl().name()}")
    of = _OPERATORS[operator]
    return lambda bound: of(*[part(bound) for part in parts])


def _named(name: str, parts: list[Evaluator], nothing: Any) -> Evaluator:
    """Compiles a constant, or the application of a column of a sequence to an index.

    A constant that a reader created, such as `found#3.bytes`, may also be bound without its number.
    """
    plain = _NUMBER.sub("", name)
    if name in _OF_TERMS:
        of = _OF_TERMS[name]
        return lambda bound: of(*[part(bound) for part in parts])
    if parts:
        [index] = parts
        return lambda bound: bound.get(name, {}).get(index(bound), nothing)

    def constant(bound: Mapping[str, Any]) -> Any:
        if name not in bound and plain not in bound:
            raise UnsupportedError(f"no value is bound to {name}")
        return bound[name if name in bound else plain]

    return constant


def _nothing(sort: Any) -> Any:
    """Returns the value of a column where it has none: outside its sequence, or for an element that is None.

    A sound translation does not depend on it.
    """
    return False if sort == z3.BoolSort() else () if sort == TOKEN else 0


#: the Python functions of the uninterpreted Z3 functions of `values.py`, by name
_OF_TERMS: dict[str, Callable[..., Any]] = {
    "rounded": lambda exact: Fraction(float(exact)),
    "power": lambda base, exponent: Fraction(float(base) ** exponent),
    "is_not_empty": bool,
    "empty": tuple,
}

_OPERATORS: dict[Any, Callable[..., Any]] = {
    z3.Z3_OP_TRUE: lambda: True,
    z3.Z3_OP_FALSE: lambda: False,
    z3.Z3_OP_NOT: lambda a: not a,
    z3.Z3_OP_IMPLIES: lambda a, b: not a or b,
    z3.Z3_OP_EQ: lambda a, b: a == b,
    z3.Z3_OP_DISTINCT: lambda a, b: a != b,
    z3.Z3_OP_LE: lambda a, b: a <= b,
    z3.Z3_OP_LT: lambda a, b: a < b,
    z3.Z3_OP_GE: lambda a, b: a >= b,
    z3.Z3_OP_GT: lambda a, b: a > b,
    z3.Z3_OP_ADD: lambda *each: sum(each),
    z3.Z3_OP_SUB: lambda a, *rest: a - sum(rest),
    z3.Z3_OP_MUL: lambda *each: math.prod(each),
    z3.Z3_OP_UMINUS: lambda a: -a,
    z3.Z3_OP_IDIV: lambda a, b: a // b if b > 0 else -(a // -b),  # the remainder is never negative
    z3.Z3_OP_DIV: lambda a, b: Fraction(a) / b,
    z3.Z3_OP_MOD: lambda a, b: a % abs(b),
    z3.Z3_OP_TO_REAL: Fraction,
    z3.Z3_OP_TO_INT: math.floor,
}


class LoopEvaluator:
    """Runs a loop by evaluating the paths through one iteration.

    `condition` is the loop condition and `paths` are these paths, both for arbitrary values of the variables at the
    loop head. `kinds` has the type of each variable that the loop changes, list[...] for a sequence.
    """

    def __init__(self, condition: Any, paths: Sequence[Path], kinds: Mapping[str, Any]) -> None:
        self.kinds = kinds
        self._condition = evaluator(condition)
        self._paths = [
            ([evaluator(each) for each in path.conditions()], path.exit, self._changed(path)) for path in paths
        ]

    def _changed(self, path: Path) -> dict[str, Evaluator]:
        return {name: evaluator(path.names[name]) for name in self.kinds}

    def run(self, bound: Mapping[str, Any], names: Mapping[str, Any], max_iterations: int = 1000) -> dict[str, Any]:
        """Returns the values of the variables in `kinds` at the loop's exit; `names` has their values before the loop.

        `bound` has the values of all other constants.

        Raises UnsupportedError if not exactly one path is feasible, or after more than `max_iterations` iterations.
        """
        now = dict(names)
        if FORGETS.get():
            return now
        for _ in range(max_iterations):
            here = dict(bound)
            for name, kind in self.kinds.items():
                if get_origin(kind) is list:
                    bind_seq(get_args(kind)[0], name, now[name], here)
                else:
                    bind(kind, name, now[name], here)
            if not self._condition(here):
                return now
            feasible = [(end, changed) for when, end, changed in self._paths if all(each(here) for each in when)]
            if len(feasible) != 1:
                raise UnsupportedError(f"{len(feasible)} paths are feasible with {now}")
            [(end, changed)] = feasible
            now = {name: of(here) for name, of in changed.items()}
            if end != "next":
                return now
        raise UnsupportedError(f"more than {max_iterations} iterations")
