"""Integers as sets of bit positions, for bit masks of any length.

A mask is a function from bit position to bool (two's complement). It is false at negative positions. For a negative
integer it is true from some position on. `&`, `|`, `^`, `~` and shifts are therefore supported without a bound on the
length. The only arithmetic operation is the subtraction of 1.
"""

from __future__ import annotations

import ast
from typing import Any

import z3  # type: ignore[import-untyped]

#: the Z3 sort of a mask
MASK = z3.ArraySort(z3.IntSort(), z3.BoolSort())
NONE = z3.K(z3.IntSort(), z3.BoolVal(False))


def is_mask(value: Any) -> bool:
    """Returns whether a term is a mask."""
    return bool(z3.is_expr(value) and value.sort() == MASK)


def made(place: Any, holds: Any) -> Any:
    """Returns the mask of the nonnegative positions for which `holds` is true."""
    return z3.Lambda([place], z3.And(place >= 0, holds))


def unknown_mask(name: str) -> Any:
    """Returns an unconstrained mask."""
    place = z3.Int("(bit)")
    return made(place, z3.Const(name, MASK)[place])


def below(end: Any) -> Any:
    """Returns the mask of all positions below `end`."""
    place = z3.Int("(bit)")
    return made(place, place < end)


def from_on(first: Any) -> Any:
    """Returns the mask of all positions at or above `first`."""
    place = z3.Int("(bit)")
    return made(place, place >= first)


def of_number(number: int) -> Any:
    """Returns the mask of a nonnegative integer constant."""
    mask = NONE
    for place in range(number.bit_length()):
        if number >> place & 1:
            mask = z3.Store(mask, place, True)
    return mask


def number_in(value: Any) -> int | None:
    """Returns the value of a nonnegative integer constant, or None for anything else."""
    if z3.is_expr(value) and z3.is_int_value(value):
        value = value.as_long()
    return value if isinstance(value, int) and value >= 0 else None


def as_mask(value: Any) -> Any:
    """Returns a mask unchanged, a nonnegative constant as a mask, and None for anything else."""
    if is_mask(value):
        return value
    number = number_in(value)
    return None if number is None else of_number(number)


def binary(operator: ast.operator, left: Any, right: Any) -> Any:
    """Returns the result of an operation on masks, or None if it is not supported."""
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
    """Returns the mask minus 1: the lowest bit is cleared, and all bits below it are set."""
    place, lower = z3.Int("(bit)"), z3.Int("(lower bit)")
    is_behind = z3.Exists([lower], z3.And(lower >= 0, lower < place, mask[lower]))
    return made(place, mask[place] == is_behind)


def _picked(mask: Any, number: int) -> Any:
    """Returns `mask & number` for a constant, as one store for each bit of the constant."""
    chosen = NONE
    for place in range(number.bit_length()):
        if number >> place & 1:
            chosen = z3.Store(chosen, place, mask[place])
    return chosen


def inverted(mask: Any) -> Any:
    """Returns the complement of a mask."""
    place = z3.Int("(bit)")
    return made(place, z3.Not(mask[place]))
