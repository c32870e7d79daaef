"""Comparison of values, outcomes and states: the same functions for every engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from fuzz.run.finding import Cause, Difference, Kind
from model.machine import Refused, plain

#: Types without parts: equal values of one of these types are the same.
_ATOMS = frozenset([int, str, bool, type(None), bytes])
_encoded = msgspec.msgpack.Encoder().encode


def same(a: Any, b: Any) -> bool:
    """Whether two values and all their parts are equal and of one type: 1.0 is not 1, and True is not 1.

    Encodings are compared first, which is 30 times faster than a comparison part by part. If they differ (sets have no
    order) or do not exist, the parts are compared. Parts that are equal and have one encoding count as the same: a
    named tuple and the tuple of its fields, a set and a frozenset. Only `exact` distinguishes them.
    """
    if a is b:
        return True
    kind = a.__class__
    if kind is not b.__class__ or a != b:
        return False
    if kind in _ATOMS:
        return True
    try:
        return _encoded(a) == _encoded(b) or _same_types(a, b)
    except (TypeError, OverflowError):
        return _same_types(a, b)


def exact(a: Any, b: Any) -> bool:
    """Whether two values are `same` and their parts have the same classes: a tuple differs from a named tuple."""
    return a is b or (same(a, b) and _same_types(a, b))


def _same_types(a: Any, b: Any) -> bool:
    """Whether equal values and their parts are of the same classes."""
    if a.__class__ is not b.__class__:
        return False
    if isinstance(a, tuple | list):
        return all(x is y or _same_types(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return _same_members(a, b) and all(_same_types(value, b[key]) for key, value in a.items())
    if isinstance(a, frozenset | set):
        return _same_members(a, b)
    return not isinstance(a, float) or repr(a) == repr(b)  # 0.0 equals -0.0


def _same_members(a: Any, b: Any) -> bool:
    """Whether equal sets, or the keys of equal dicts, have members of the same types."""
    theirs = {each: each for each in b}
    return all(each is theirs[each] or _same_types(each, theirs[each]) for each in a)


def refusal_changed_state(before: Any, outcome: Any, after: Any) -> bool:
    """Whether a refused action of the model returned another state object than it received."""
    return outcome.__class__ is Refused and after is not before


def stutter_difference(action: str, before: Any, after: Any) -> Difference:
    """The difference for a refused action that returned another state."""
    what = "changed the state" if after != before else "returned a copy of the state, and must return the state itself"
    return Difference(Cause(Kind.STUTTER, action), f"{action} was refused and {what}", plain(before), plain(after))


def outcome_difference(action: str, ours: Any, theirs: Any) -> Difference:
    """The difference for two outcomes that are not the same."""
    expected, actual = _distinguishable(ours, theirs)
    return Difference(Cause(Kind.OUTCOME, action), f"{action} returns different outcomes", expected, actual)


def state_difference(state: Any, view: Any, equal: Callable[[Any, Any], bool] = same) -> Difference | None:
    """The difference for the first field of an implementation's view that is not the model's; None if there is none."""
    if equal(state, view):
        return None
    fields = getattr(state, "_fields", ())
    field = next((f for f in fields if not equal(getattr(view, f, None), getattr(state, f))), "state")
    expected, actual = _distinguishable(*(getattr(s, field, s) for s in (state, view)))
    message = f"{field} differs between model and implementation"
    return Difference(Cause(Kind.VIEW, field), message, expected, actual)


def observation_difference(ours: Any, theirs: Any, between: str = "the two profiles") -> Difference | None:
    """The difference between the observations of two sides, or None."""
    if same(ours, theirs):
        return None
    field = "observation"
    if isinstance(ours, dict) and isinstance(theirs, dict):
        field = next((k for k in ours if k not in theirs or not same(ours[k], theirs[k])), field)
    return Difference(Cause(Kind.VIEW, field), f"{field} differs between {between}", ours, theirs)


def _distinguishable(ours: Any, theirs: Any) -> tuple[Any, Any]:
    """Two values as plain data, or as `repr` if they are equal as plain data."""
    expected, actual = shown(ours), shown(theirs)
    return (repr(ours), repr(theirs)) if same(expected, actual) else (expected, actual)


def shown(value: Any) -> Any:
    """A value as plain data, or its `repr`: an implementation under test may return anything."""
    try:
        return plain(value)
    except TypeError:
        return repr(value)
