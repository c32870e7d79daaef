"""Whole numbers as sets of the places of their bits, for masks of any length.

A mask is a truth for each place: bit i of the number. No bit stands below place 0, and of a number that is below zero
all bits from some place on are set. So `&`, `|`, `^`, `~` and shifts are said of any number at once, and without an
end. A sum or difference is not, but for one less than a mask.
"""

from __future__ import annotations

import ast
from typing import Any

import z3  # type: ignore[import-untyped]

#: what a solver works on
MASK = z3.ArraySort(z3.IntSort(), z3.BoolSort())
NONE = z3.K(z3.IntSort(), z3.BoolVal(False))


def is_mask(value: Any) -> bool:
    """Whether a term is a mask."""
    return bool(z3.is_expr(value) and value.sort() == MASK)


def made(place: Any, holds: Any) -> Any:
    """The mask of the places from 0 on of which something holds."""
    return z3.Lambda([place], z3.And(place >= 0, holds))


def unknown_mask(name: str) -> Any:
    """Any mask."""
    place = z3.Int("(bit)")
    return made(place, z3.Const(name, MASK)[place])


def below(end: Any) -> Any:
    """The bits before a place."""
    place = z3.Int("(bit)")
    return made(place, place < end)


def from_on(first: Any) -> Any:
    """The bits from a place on."""
    place = z3.Int("(bit)")
    return made(place, place >= first)


def of_number(number: int) -> Any:
    """The mask of a known number, which is not below zero."""
    mask = NONE
    for place in range(number.bit_length()):
        if number >> place & 1:
            mask = z3.Store(mask, place, True)
    return mask


def number_in(value: Any) -> int | None:
    """The number that is known, if it is, and if it is not below zero."""
    if z3.is_expr(value) and z3.is_int_value(value):
        value = value.as_long()
    return value if isinstance(value, int) and value >= 0 else None


def as_mask(value: Any) -> Any:
    """A mask as it is, a known number as a mask; None for anything else."""
    if is_mask(value):
        return value
    number = number_in(value)
    return None if number is None else of_number(number)


def binary(operator: ast.operator, left: Any, right: Any) -> Any:
    """The value of an operation on masks; None for one that is not understood."""
    place = z3.Int("(bit)")
    if isinstance(operator, ast.LShift | ast.RShift):
        mask = as_mask(left)
        if mask is None or is_mask(right):
            return None
        if isinstance(operator, ast.RShift):
            return made(place, mask[place + right])
        if number_in(left) == 1:
            return z3.Store(NONE, right, True)
        return made(place, z3.And(place >= right, mask[place - right]))
    if isinstance(operator, ast.Sub) and is_mask(left) and number_in(right) == 1:
        return one_less(left)
    one, other = as_mask(left), as_mask(right)
    if one is None or other is None:
        return None
    few = number_in(right) if number_in(left) is None else number_in(left)
    if isinstance(operator, ast.BitAnd) and few is not None:
        return _picked(other if is_mask(right) else one, few)
    match operator:
        case ast.BitAnd():
            return made(place, z3.And(one[place], other[place]))
        case ast.BitOr():
            return made(place, z3.Or(one[place], other[place]))
        case ast.BitXor():
            return made(place, one[place] != other[place])
    return None


def one_less(mask: Any) -> Any:
    """The number before: its first bit is taken away, and all bits before that one are set."""
    place, lower = z3.Int("(bit)"), z3.Int("(lower bit)")
    is_behind = z3.Exists([lower], z3.And(lower >= 0, lower < place, mask[lower]))
    return made(place, mask[place] == is_behind)


def _picked(mask: Any, number: int) -> Any:
    """The bits of a mask that are those of a known number, too: so few that each is named."""
    chosen = NONE
    for place in range(number.bit_length()):
        if number >> place & 1:
            chosen = z3.Store(chosen, place, mask[place])
    return chosen


def inverted(mask: Any) -> Any:
    """All bits but those of the mask."""
    place = z3.Int("(bit)")
    return made(place, z3.Not(mask[place]))
