"""Translations with unconstrained results, to detect statements that say nothing about the program.

Inside `unconstrained_results()`, every value that a `Reader` returns has its usual shape, but each term in it is
replaced by a fresh constant. Path conditions are dropped. A statement that Z3 still proves holds of any program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, get_args, get_origin

import z3  # type: ignore[import-untyped]

from invariants.proofs.symbolic.values import FORGETS, Double, Maybe, Rec, Seq, Word
from model.values import fields_of


@contextmanager
def unconstrained_results() -> Iterator[None]:
    """Inside the `with` statement, readers return unconstrained values."""
    token = FORGETS.set(True)
    try:
        yield
    finally:
        FORGETS.reset(token)


def maybe_forgotten(value: Any) -> Any:
    """Returns a value unchanged, or, inside `unconstrained_results`, an unconstrained value of the same shape."""
    return _forgotten(value, _fresh) if FORGETS.get() else value


def maybe_forgotten_names(names: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of names, each as `maybe_forgotten` returns it."""
    return {name: maybe_forgotten(value) for name, value in names.items()}


def _fresh(sort: Any, _: str) -> Any:
    return z3.FreshConst(sort, "any")


def _forgotten(value: Any, leaf: Callable[[Any, str], Any], path: str = "") -> Any:
    """Returns the value with each term replaced by a leaf of its sort; `path` identifies the leaf in the value."""
    if isinstance(value, Maybe):
        return Maybe(leaf(z3.BoolSort(), f"{path}?"), _forgotten(value.value, leaf, f"{path}!"))
    if isinstance(value, Word):
        return Word(leaf(z3.IntSort(), path))
    if isinstance(value, Double):
        return Double(leaf(z3.RealSort(), path))
    if isinstance(value, Rec):
        fields = {
            # an int in a field that is not annotated as int is a bit mask; `merged` needs its value to make a mask
            name: each
            if type(each) is int and not _is_int(value.kind, name)
            else _forgotten(each, leaf, f"{path}.{name}")
            for name, each in value.fields.items()
        }
        return Rec(value.kind, fields)
    if isinstance(value, Seq):
        return _forgotten_seq(value)
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        return tuple([_forgotten(each, leaf, f"{path}[{i}]") for i, each in enumerate(value)])
    if isinstance(value, bool | int):
        return leaf(z3.BoolSort() if isinstance(value, bool) else z3.IntSort(), path)
    return leaf(value.sort(), path) if z3.is_expr(value) else value


def _is_int(kind: Any, field: str) -> bool:
    of = fields_of(kind).get(field)
    return of is int or (get_origin(of) is Annotated and get_args(of)[0] is int)


def _forgotten_seq(seq: Seq) -> Seq:
    columns: dict[str, Any] = {}

    def at(index: Any) -> Any:
        def column(sort: Any, path: str) -> Any:
            if path not in columns:
                columns[path] = z3.FreshFunction(z3.IntSort(), sort)
            return columns[path](index)

        return _forgotten(seq.at(index), column)

    totals = {name: z3.FreshFunction(z3.IntSort(), z3.IntSort()) for name in seq.totals}
    return Seq(seq.kind, z3.FreshInt("any"), at, totals, seq.measures, seq.roots, seq.origin)
