"""Integers as sets of bit positions, for bit masks of any length.

A mask maps each bit position to a bool; it is false at negative positions. A negative integer has an infinite mask, as
in two's complement: every bit from some position on is true. Supported are `&`, `|`, `^`, `~`, shifts, and the
subtraction of 1.
"""

from __future__ import annotations

import ast
from typing import Any

import z3  # type: ignore[import-untyped]

#: the Z3 sort of a mask
MASK = z3.ArraySort(z3.IntSort(), z3.BoolSort())
#: the mask of 0: no bit is set
NONE = z3.K(z3.IntSort(), z3.BoolVal(False))


def is_mask(value: Any) -> bool:
    """Returns whether a term is a mask."""
    return bool(z3.is_expr(value) and value.sort() == MASK)


def satisfying(bit: Any, holds: Any) -> Any:
    """Returns the mask of the nonnegative positions for which `holds` is true."""
    return z3.Lambda([bit], z3.And(bit >= 0, holds))


def unknown_mask(name: str) -> Any:
    """Returns an unconstrained mask."""
    bit = z3.Int("(bit)")
    return satisfying(bit, z3.Const(name, MASK)[bit])


def below(end: Any) -> Any:
    """Returns the mask of all positions below `end`."""
    bit = z3.Int("(bit)")
    return satisfying(bit, bit < end)


def at_or_above(first: Any) -> Any:
    """Returns the mask of all positions at or above `first`."""
    bit = z3.Int("(bit)")
    return satisfying(bit, bit >= first)


def of_number(number: int) -> Any:
    """Returns the mask of a known nonnegative integer."""
    mask = NONE
    for bit in range(number.bit_length()):
        if number >> bit & 1:
            mask = z3.Store(mask, bit, True)
    return mask


def number_in(value: Any) -> int | None:
    """Returns the value of a known nonnegative integer, or None for anything else."""
    if z3.is_expr(value) and z3.is_int_value(value):
        value = value.as_long()
    return value if isinstance(value, int) and value >= 0 else None


def as_mask(value: Any) -> Any:
    """Returns a mask unchanged, a known nonnegative integer as a mask, and None for anything else."""
    if is_mask(value):
        return value
    number = number_in(value)
    return None if number is None else of_number(number)


def binary(operator: ast.operator, left: Any, right: Any) -> Any:
    """Returns the result of an operation on masks, or None if it is not supported."""
    bit = z3.Int("(bit)")
    if isinstance(operator, ast.LShift | ast.RShift):
        mask = as_mask(left)
        if mask is None or is_mask(right):
            return None
        if isinstance(operator, ast.RShift):
            return satisfying(bit, mask[bit + right])
        if number_in(left) == 1:
            return z3.Store(NONE, right, True)
        return satisfying(bit, z3.And(bit >= right, mask[bit - right]))
    if isinstance(operator, ast.Sub) and is_mask(left) and number_in(right) == 1:
        return minus_one(left)
    one, other = as_mask(left), as_mask(right)
    if one is None or other is None:
        return None
    known = number_in(right) if number_in(left) is None else number_in(left)  # the value of a known operand, or None
    if isinstance(operator, ast.BitAnd) and known is not None:
        return _and_known(other if is_mask(right) else one, known)
    match operator:
        case ast.BitAnd():
            return satisfying(bit, z3.And(one[bit], other[bit]))
        case ast.BitOr():
            return satisfying(bit, z3.Or(one[bit], other[bit]))
        case ast.BitXor():
            return satisfying(bit, one[bit] != other[bit])
    return None


def minus_one(mask: Any) -> Any:
    """Returns the mask minus 1: the lowest set bit and all bits below it are inverted."""
    bit, lower = z3.Int("(bit)"), z3.Int("(lower bit)")
    has_lower = z3.Exists([lower], z3.And(lower >= 0, lower < bit, mask[lower]))
    return satisfying(bit, mask[bit] == has_lower)  # a bit above the lowest set bit keeps its value


def _and_known(mask: Any, number: int) -> Any:
    """Returns `mask & number` for a known number, as one store for each of its bits."""
    chosen = NONE
    for bit in range(number.bit_length()):
        if number >> bit & 1:
            chosen = z3.Store(chosen, bit, mask[bit])
    return chosen


def inverted(mask: Any) -> Any:
    """Returns the complement of a mask."""
    bit = z3.Int("(bit)")
    return satisfying(bit, z3.Not(mask[bit]))
