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
    """Returns whether two values are equal, and their parts have the same classes: 1 differs from 1.0 and from True.

    Equal values with equal MessagePack encodings count as the same, because encodings are compared fast. An encoding
    does not distinguish a part that is a named tuple from the tuple of its fields, or a set from a frozenset: `exact`
    does. If the encodings differ, or a value has none, `_same_types` compares the classes.
    """
    if a is b:
        return True
    kind = a.__class__
    if kind is not b.__class__ or a != b:
        return False
    if kind in _ATOMS:
        return True
    try:
        return _encoded(a) == _encoded(b) or _same_types(a, b)  # equal sets may have encodings in different orders
    except (TypeError, OverflowError):
        return _same_types(a, b)


def exact(a: Any, b: Any) -> bool:
    """Returns whether two values are `same` and their parts have the same classes: a tuple is not a named tuple."""
    return a is b or (same(a, b) and _same_types(a, b))


def _same_types(a: Any, b: Any) -> bool:
    """Returns whether equal values have parts of the same classes, and zeros of the same sign."""
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
    """Returns whether equal sets, or the keys of equal dicts, have members of the same classes."""
    of_b = {each: each for each in b}
    return all(each is of_b[each] or _same_types(each, of_b[each]) for each in a)


def refusal_returned_other_state(before: Any, outcome: Any, after: Any) -> bool:
    """Returns whether an action of the model was refused and returned another state object, possibly an equal one."""
    return outcome.__class__ is Refused and after is not before


def stutter_difference(action: str, before: Any, after: Any) -> Difference:
    """Returns the difference for a refused action of the model that returned another state object."""
    what = "changed the state" if after != before else "returned a copy of the state, and must return the state itself"
    return Difference(Cause(Kind.STUTTER, action), f"{action} was refused and {what}", plain(before), plain(after))


def outcome_difference(action: str, ours: Any, theirs: Any) -> Difference:
    """Returns the difference for two outcomes that do not agree: the model's (`ours`) and the second side's."""
    expected, actual = _distinguishable(ours, theirs)
    return Difference(Cause(Kind.OUTCOME, action), f"{action} returns different outcomes", expected, actual)


def state_difference(state: Any, view: Any, equal: Callable[[Any, Any], bool] = same) -> Difference | None:
    """Returns the difference in the first field in which view and model's state differ; None if they are equal."""
    if equal(state, view):
        return None
    fields = getattr(state, "_fields", ())
    field = next((f for f in fields if not equal(getattr(view, f, None), getattr(state, f))), "state")
    # "state" is no field: the difference then has the whole states
    expected, actual = _distinguishable(*(getattr(s, field, s) for s in (state, view)))
    message = f"{field} differs between model and implementation"
    return Difference(Cause(Kind.VIEW, field), message, expected, actual)


def observation_difference(
    ours: Any, theirs: Any, between: str = "the two profiles", equal: Callable[[Any, Any], bool] = same
) -> Difference | None:
    """Returns how two observations differ: the model's (`ours`) and the second side's; None if they are equal.

    `between` names what is compared, for the message.
    """
    if equal(ours, theirs):
        return None
    field = "observation"
    if isinstance(ours, dict) and isinstance(theirs, dict):
        field = next((k for k in ours if k not in theirs or not equal(ours[k], theirs[k])), field)
    return Difference(Cause(Kind.VIEW, field), f"{field} differs between {between}", ours, theirs)


def _distinguishable(ours: Any, theirs: Any) -> tuple[Any, Any]:
    """Returns two values as plain data, or the `repr` of each if they are equal as plain data."""
    expected, actual = as_data(ours), as_data(theirs)
    return (repr(ours), repr(theirs)) if same(expected, actual) else (expected, actual)


def as_data(value: Any) -> Any:
    """Returns a value as plain data, or its `repr` if it has no plain form: implementations may return anything."""
    try:
        return plain(value)
    except TypeError:
        return repr(value)
