"""Python's operators and built-in functions on symbolic values.

Integers are Z3's unbounded integers. A float is a `Double`: a real number that is rounded after every operation. A
caller may instead pass Z3 floating-point numbers and, for integers, 64-bit vectors. Vectors could overflow, so there is
no arithmetic on them: they can be compared, and cast to or from a floating-point number.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import z3  # type: ignore[import-untyped]

from invariants.proofs.symbolic import bitmasks
from invariants.proofs.symbolic.values import (
    SUM,
    Double,
    Filtered,
    Rec,
    Seq,
    UnsupportedError,
    as_term,
    equal,
    exact,
    lifted,
    merged,
    power,
    rounded,
    truth,
)

NEAREST, TOWARDS_ZERO = z3.RNE(), z3.RTZ()


@dataclass(frozen=True, eq=False)
class BuiltIn:
    """A built-in function of Python on symbolic values. Its arguments may be None only if `takes_none` is true."""

    of: Callable[..., Any]
    takes_none: bool = False


def binary(operator: ast.operator, left: Any, right: Any, node: ast.AST) -> Any:
    """Returns the value of a binary operation. Raises UnsupportedError."""
    if isinstance(left, Seq) and isinstance(right, Seq | tuple) and isinstance(operator, ast.Add):
        if isinstance(right, Seq):
            return left.joined(right)
        for each in right:
            left = left.appended(each)
        return left
    if bitmasks.is_mask(left) or bitmasks.is_mask(right) or _shifts_by_unknown(operator, right):
        result = bitmasks.binary(operator, left, right)
        return _refuse(node) if result is None else result
    if _is_float(left) or _is_float(right):
        return _of_floats(operator, left, right, node)
    left, right = as_number(left), as_number(right)
    if _is_whole(left) and _is_whole(right) and not (z3.is_bv(left) or z3.is_bv(right)):  # a bit vector could overflow
        return _of_wholes(operator, left, right, node)
    return _refuse(node)


def _shifts_by_unknown(operator: ast.operator, right: Any) -> bool:
    """Returns whether an operation is a shift by a number that is not known. Such a shift results in a mask."""
    return isinstance(operator, ast.LShift | ast.RShift) and z3.is_expr(right) and bitmasks.number_in(right) is None


def _of_wholes(operator: ast.operator, left: Any, right: Any, node: ast.AST) -> Any:
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.FloorDiv():
            return _floor(left, right)
        case ast.RShift() if isinstance(right, int) and right >= 0:
            return as_term(left) / 2**right if z3.is_expr(left) else left >> right
        case ast.LShift() if isinstance(right, int) and right >= 0:
            return left * 2**right
        case ast.Mod() if isinstance(right, int) and right > 0:
            return left % right  # nonnegative, as in Python
        case ast.Pow() if isinstance(left, int) and isinstance(right, int) and right >= 0:
            return left**right
        case ast.Div():
            return Double(rounded(z3.ToReal(as_term(left)) / z3.ToReal(as_term(right))))  # rounded once
    return _refuse(node)


def as_number(value: Any) -> Any:
    """Returns a bool as 1 or 0, anything else unchanged."""
    is_truth = z3.is_expr(value) and z3.is_bool(value) and not bitmasks.is_mask(value)
    return z3.If(value, z3.IntVal(1), z3.IntVal(0)) if is_truth else value


def _floor(left: Any, right: Any) -> Any:
    """Returns `left // right`, rounded down. Z3 rounds down only if the divisor is positive."""
    if not (z3.is_expr(left) or z3.is_expr(right)):
        return left // right
    a, b = as_term(left), as_term(right)
    return z3.If(b > 0, a / b, (-a) / (-b))


def _is_float(value: Any) -> bool:
    return isinstance(value, float | Double) or z3.is_fp(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) or (z3.is_expr(value) and (z3.is_int(value) or z3.is_bv(value)))


def _of_floats(operator: ast.operator, left: Any, right: Any, node: ast.AST) -> Any:
    """Returns the value of a float operation, rounded to nearest. An integer operand is cast to a float first."""
    if any(z3.is_fp(each) or z3.is_bv(each) for each in (left, right)):
        a, b = _as_fp(left), _as_fp(right)
        match operator:
            case ast.Mult():
                return z3.fpMul(NEAREST, a, b)
            case ast.Add():
                return z3.fpAdd(NEAREST, a, b)
            case ast.Sub():
                return z3.fpSub(NEAREST, a, b)
        return _refuse(node)
    if isinstance(operator, ast.Pow) and _is_whole(right):
        return Double(power(exact(left), as_term(right)))
    x, y = exact(left), exact(right)
    match operator:
        case ast.Mult():
            return Double(rounded(x * y))
        case ast.Div():
            return Double(rounded(x / y))
        case ast.Add():
            return Double(rounded(x + y))
        case ast.Sub():
            return Double(rounded(x - y))
    return _refuse(node)


def _as_fp(value: Any) -> Any:
    if isinstance(value, int | float):
        return z3.FPVal(float(value), z3.Float64())
    return z3.fpSignedToFP(NEAREST, value, z3.Float64()) if z3.is_bv(value) else value


def compared(operator: ast.cmpop, left: Any, right: Any, node: ast.AST) -> Any:
    """Returns the truth value of a comparison. Raises UnsupportedError."""
    match operator:
        case ast.Is() | ast.IsNot() if right is None:
            result = equal(left, None)
            return result if isinstance(operator, ast.Is) else _not(result)
        case ast.Eq():
            return equal(left, right)
        case ast.NotEq():
            return _not(equal(left, right))
        case ast.In() | ast.NotIn() if isinstance(right, tuple):
            is_member = z3.Or(*[as_term(equal(left, each)) for each in right])
            return is_member if isinstance(operator, ast.In) else z3.Not(is_member)
    if type(operator) in _ORDERS:
        return _ordered(type(operator), left, right, node)
    return _refuse(node)


def ordered(symbol: str, left: Any, right: Any) -> Any:
    """Returns the term of `left < right`, or of <=, > or >=."""
    node = ast.parse(f"left {symbol} right", mode="eval").body
    return as_term(compared(node.ops[0], left, right, node))  # type: ignore[attr-defined]


def _not(result: Any) -> Any:
    return not result if isinstance(result, bool) else z3.Not(result)


_ORDERS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}


def _ordered(order: type[ast.cmpop], left: Any, right: Any, node: ast.AST) -> Any:
    if _is_whole(left) and _is_whole(right):
        return _ORDERS[order](left, right)
    a, b = _as_double(left, right), _as_double(right, left)
    if isinstance(a, Double) and isinstance(b, Double):
        return _ORDERS[order](a.real, b.real)
    if isinstance(a, Rec) and isinstance(b, Rec) and a.kind is b.kind:
        return _in_order_of_fields(order, [*a.fields.values()], [*b.fields.values()], node)
    return _refuse(node)


def _as_double(value: Any, other: Any) -> Any:
    """Returns an operand of a comparison. An integer that is compared with a float is not rounded."""
    if _is_whole(value) and not z3.is_bv(value) and isinstance(other, Double | float):
        return Double(z3.ToReal(as_term(value)))
    return lifted(value)


def _in_order_of_fields(order: type[ast.cmpop], left: list[Any], right: list[Any], node: ast.AST) -> Any:
    """Returns the lexicographic comparison of two tuples."""
    if not left:
        return order in (ast.LtE, ast.GtE)
    strict = ast.Lt if order in (ast.Lt, ast.LtE) else ast.Gt
    first = as_term(_ordered(strict, left[0], right[0], node))
    rest = as_term(_in_order_of_fields(order, left[1:], right[1:], node))
    return z3.Or(first, z3.And(as_term(equal(left[0], right[0])), rest))


# ---- functions --------------------------------------------------------------------------------------------


def _whole_part(value: Any) -> Any:
    """Returns `int(value)`: a float is truncated towards zero."""
    if z3.is_fp(value):
        return z3.fpToSBV(TOWARDS_ZERO, value, z3.BitVecSort(64))
    if isinstance(value, Double):
        real = value.real
        return z3.If(real >= 0, z3.ToInt(real), -z3.ToInt(-real))
    if isinstance(value, int | float):
        return int(value)
    return as_number(value)


def _length(value: Any) -> Any:
    if isinstance(value, Rec) and hasattr(value.kind, "length_of"):  # represents a tuple
        return value.kind.length_of(value)
    return value.length if isinstance(value, Seq) else len(value)


def _sum(value: Any) -> Any:
    if isinstance(value, Seq) and SUM in value.totals:
        return value.total(SUM)
    if isinstance(value, Filtered):
        return value.recursive_sum().whole()
    raise UnsupportedError(f"not supported: a sum over {type(value).__name__}")


def _extreme(order: type[ast.cmpop]) -> Callable[..., Any]:
    """Returns `max` for the order Gt, `min` for Lt. Of equal arguments, Python returns the first."""

    def before(a: Any, b: Any) -> Any:
        return _ordered(order, a, b, ast.Constant(order.__name__))

    def of(*values: Any, default: Any = ...) -> Any:
        if len(values) == 1 and isinstance(values[0], Filtered) and default is None:
            return values[0].first_by(before)
        if len(values) == 1 and isinstance(values[0], tuple) and values[0] and default is ...:
            values = values[0]
            if len(values) == 1:
                return values[0]
        if len(values) < 2 or default is not ...:
            raise UnsupportedError(
                "not supported: min or max of a sequence, except of a comprehension with a condition and default=None"
            )
        best = values[0]
        for each in values[1:]:
            best = merged(_ORDERS[order](each, best), each, best)
        return best

    return of


def _same(value: Any = ()) -> Any:
    """Returns `tuple(value)` or `list(value)`: the sequence itself, because symbolic sequences are immutable."""
    if isinstance(value, Seq | tuple | list):
        return tuple(value) if isinstance(value, list) else value
    raise UnsupportedError(f"not supported: a sequence made of {type(value).__name__}")


def _sorted(value: Any) -> Any:
    raise UnsupportedError(f"not supported: sorted {type(value).__name__}")


def _range(first: Any, end: Any = None) -> Seq:
    """Returns `range(first, end)`; with one argument, `range(end)`."""
    first, end = (as_term(0), as_term(first)) if end is None else (as_term(first), as_term(end))
    length = z3.If(end > first, end - first, 0)
    return Seq(int, length, lambda index: first + as_term(index), {}, {})


#: `sorted`: `Expressions` returns an unconstrained sequence with the same total of each measure.
SORTED = BuiltIn(_sorted)


def _any(value: Any) -> Any:
    if isinstance(value, tuple):
        return z3.Or(*[as_term(truth(each)) for each in value])
    raise UnsupportedError(f"not supported: any of {type(value).__name__}")


#: `any`: over a sequence of unknown length, `Expressions` returns a fresh bool and adds its facts to `any_facts`.
ANY_OF = BuiltIn(_any)


def _all(value: Any) -> Any:
    if isinstance(value, tuple):
        return z3.And(*[as_term(truth(each)) for each in value])
    raise UnsupportedError(f"not supported: all of {type(value).__name__}")


#: `all`: over a tuple of known length.
ALL_OF = BuiltIn(_all)

#: `sum`: over a sequence without a prefix sum, `Expressions` returns a fresh integer and adds it to `sums`.
SUM_OF = BuiltIn(_sum)

#: The built-in functions that are supported.
BUILT_IN: dict[str, Any] = {
    "bool": BuiltIn(truth, takes_none=True),
    "int": BuiltIn(_whole_part),
    "len": BuiltIn(_length),
    "sum": SUM_OF,
    "any": ANY_OF,
    "all": ALL_OF,
    "max": BuiltIn(_extreme(ast.Gt)),
    "min": BuiltIn(_extreme(ast.Lt)),
    "tuple": BuiltIn(_same),
    "list": BuiltIn(_same),
    "range": BuiltIn(_range),
    "sorted": SORTED,
}


def _refuse(node: ast.AST) -> NoReturn:
    raise UnsupportedError(f"this operation is not supported: {ast.unparse(node)}")
