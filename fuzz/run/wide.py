"""Wide values: integers near the constants of a component's source and near the limits of common integer widths.

The dictionary of a component has the value of every constant integer expression of its implementation and its model,
2^n for every shift by n, the limits of common widths, and the neighbours of all these. For a subject with a seeded bug
in the model or in the implementation, the dictionary also has the numbers of the changed module.

In the settings of a wide trace, and of a trace with bursts (`fuzz/run/generate.py`), some integers are replaced by
numbers of the dictionary. The calls of a wide trace are drawn like those of any other trace; then integers in their
arguments change. An integer has the name of its argument or field, such as `ledger` or `nanos`. For each name, one of
these changes is drawn once for the trace:

    kept      the integers of this name are unchanged (half of the names)
    shifted   a number is added to each integer, the same number for all names. So equal values stay equal, and
              consecutive ids cross a limit. A time is shifted by this number of milliseconds
    replaced  some integers are replaced by 0, or by one of two numbers of the dictionary

An argument whose domain depends on the state is never shifted; its change is drawn separately from that of a fixed
domain with the same name. The annotated type of an argument determines the legal numbers, within signed 64 bits, and
the unit of a time. The subject's `largest` bounds numbers whose size costs time or memory. A change to a number that is
not allowed is left out.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from fuzz.run.call import Arguments
from fuzz.seeding import modules_of, source_of
from fuzz.subject import Subject
from model.values import UNITS_PER_MS, BadValue, InUnit, fields_in_bounds, fields_of, fitter

#: Common integer widths in bits: bytes, words, pages, doubles.
WIDTHS = (6, 7, 8, 15, 16, 31, 32, 40, 53, 63)
#: The fraction of the names whose integers a trace keeps, and the fraction of the names whose integers a trace shifts.
#: The integers of the other names are replaced.
_KEPT, _SHIFTED = 0.5, 0.25
#: Fraction of the values that are replaced, for a fixed domain and for one that depends on the state.
_REPLACED, _REPLACED_IN_STATE = 0.25, 0.1
#: Number of replacements for one name in a trace, besides 0.
_PALETTE = 2
#: Fraction of the integers in a trace's settings that are replaced.
_SETTINGS = 0.25
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
#: The operators of constant expressions.
_UNARY: dict[type[ast.unaryop], Callable[[int], int]] = {ast.USub: int.__neg__, ast.Invert: int.__invert__}
_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: int.__add__,
    ast.Sub: int.__sub__,
    ast.Mult: int.__mul__,
    ast.FloorDiv: int.__floordiv__,
    ast.Mod: int.__mod__,
    ast.BitAnd: int.__and__,
    ast.BitOr: int.__or__,
    ast.BitXor: int.__xor__,
    ast.LShift: int.__lshift__,
    ast.RShift: int.__rshift__,
    ast.Pow: int.__pow__,
}


# ---- the dictionary -----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def dictionary(component: str, seeded_source: tuple[str, str] | None = None) -> tuple[int, ...]:
    """Returns the wide values of a component, sorted.

    `seeded_source` is `Subject.seeded_source`: the name and the source of the module that has the seeded bug, or None.
    """
    texts = [source_of(m) for layer in ("model", "impl") for m in modules_of(layer, component)]
    if seeded_source is not None and seeded_source[0].startswith(("model.", "impl.")):
        texts.append(seeded_source[1])
    found = {number for text in texts for number in numbers_in(text)} | {1 << width for width in WIDTHS}
    near = {number + delta for number in found for delta in (-1, 0, 1)} | {-1, -(2**31), -(2**31) - 1, _LOWEST}
    return tuple(sorted(n for n in near if _LOWEST <= n <= _HIGHEST))


@functools.lru_cache(maxsize=256)
def numbers_in(text: str) -> frozenset[int]:
    """Returns the integers in a module: the values of its constant expressions, and 2^n for each shift by n.

    A constant expression consists of literals, operators, and names of the module's constants.
    """
    tree, constants = ast.parse(text), dict[str, int]()
    for target, value in _assignments(tree):
        number = _constant(value, constants)
        if number is not None and isinstance(target, ast.Name):
            constants[target.id] = number
    found = set[int]()
    for expression in (node for node in ast.walk(tree) if isinstance(node, ast.expr)):
        number = _constant(expression, constants)
        if number is not None:
            found.add(number)
        if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.LShift | ast.RShift):
            width = _constant(expression.right, constants)
            if width is not None and 0 <= width < 64:
                found.add(1 << width)
    return frozenset(found)


def _assignments(tree: ast.Module) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yields the assignments of a module outside its functions and classes: target and value."""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            yield node.target, node.value
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    yield from zip(target.elts, node.value.elts, strict=False)
                else:
                    yield target, node.value


def _constant(node: ast.expr, constants: Mapping[str, int]) -> int | None:
    """Returns the value of a constant integer expression, or None for any other expression.

    None also for a power or shift of a number beyond 2^64, or by a number that is not from 0 to 64, and for a division
    by 0.
    """
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        number = _constant(node.operand, constants)
        return None if number is None else _UNARY[type(node.op)](number)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _constant(node.left, constants), _constant(node.right, constants)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.LShift | ast.RShift | ast.Pow) and not (abs(left) <= 2**64 and 0 <= right <= 64):
            return None
        with contextlib.suppress(ZeroDivisionError):
            return _BINARY[type(node.op)](left, right)
    return None


# ---- integers inside values ---------------------------------------------------------------------------


class Leaf(NamedTuple):
    """An integer inside a value: its path, the name of its argument or field, its annotated type (`kind`)."""

    path: tuple[int, ...]
    name: str
    kind: Any
    value: int


def leaves(kind: Any, value: Any, name: str, path: tuple[int, ...] = ()) -> Iterator[Leaf]:
    """Yields the integers inside a value of an annotated type. `name` and `path` are those of the value."""
    if value.__class__ is int:
        yield Leaf(path, name, kind, value)
    elif isinstance(value, tuple):
        for i, (part_kind, part_name) in enumerate(_parts(kind, value, name)):
            yield from leaves(part_kind, value[i], part_name, (*path, i))


def with_leaf(value: Any, path: tuple[int, ...], number: int) -> Any:
    """Returns a copy of the value with another integer at a path: the indices of nested tuples, outermost first."""
    if not path:
        return number
    parts = list(value)
    parts[path[0]] = with_leaf(parts[path[0]], path[1:], number)
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


def is_legal(kind: Any, number: int, cfg: Any) -> bool:
    """Returns whether an annotated type allows a number under a config."""
    try:
        fitter(kind)(number, "", cfg)
    except BadValue:
        return False
    return True


def _parts(kind: Any, value: tuple[Any, ...], name: str) -> Iterable[tuple[Any, str]]:
    """Returns the annotated type and the name of each part of a tuple. Each part of an unnamed tuple has `name`."""
    if hasattr(value, "_fields"):
        return _fields(type(value))
    return [(_item(kind), name)] * len(value)


@functools.lru_cache(maxsize=256)
def _fields(cls: type) -> tuple[tuple[Any, str], ...]:
    return tuple([(kind, name) for name, kind in fields_of(cls).items()])


@functools.lru_cache(maxsize=256)
def _item(kind: Any) -> Any:
    """Returns the annotated type of the items of a tuple of any length; None if the type is no such tuple."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _item(parts[0])
    if origin is Union or origin is types.UnionType:
        return next((_item(each) for each in parts if _item(each) is not None), None)
    return parts[0] if origin is tuple else None


def units_per_ms(kind: Any, cfg: Any) -> int:
    """Returns the number of units of a time in a millisecond, by its annotated type; 1 for a type without a unit."""
    unit = next((each.setting for each in getattr(kind, "__metadata__", ()) if isinstance(each, InUnit)), None)
    return 1 if unit is None else UNITS_PER_MS[getattr(cfg, unit)]


def largest(subject: Subject, cfg: Any, action: str, name: str) -> int:
    """Returns the largest number that may be drawn for an integer of an argument; of a setting if `action` is empty.

    `name` is the name of the integer: that of the argument, of the setting or of a field inside it.
    """
    bound = subject.largest.get(f"{action}.{name}", subject.largest.get(name, _HIGHEST))
    return bound(cfg) if callable(bound) else bound


# ---- one trace ----------------------------------------------------------------------------------------


class _Part:
    """An argument, a setting, or a field or item inside one. For an integer, the part knows which values are allowed.

    `action` is empty for a part of a setting. `is_fixed` says whether the domain of the argument is fixed.
    """

    def __init__(self, wide: Wide, kind: Any, name: str, action: str, is_fixed: bool) -> None:
        self.wide = wide
        self.kind = kind
        self.name = name
        self.action = action
        self.is_fixed = is_fixed
        self._fields: dict[type, list[_Part]] = {}

    @functools.cached_property
    def units_per_ms(self) -> int:
        """The number of units of the integer in a millisecond if it is a time, otherwise 1."""
        return units_per_ms(self.kind, self.wide.cfg)

    @functools.cached_property
    def largest(self) -> int:
        """The largest number that may be drawn for the integer."""
        return largest(self.wide.subject, self.wide.cfg, self.action, self.name)

    @functools.cached_property
    def legal(self) -> tuple[int, ...]:
        """The numbers of the dictionary that are allowed for the integer; for a time, converted from milliseconds."""
        limits = [(name, getattr(self.wide.cfg, name)) for name in _limits(self.kind)]
        return _legal(self.wide.dictionary, self.kind, self.units_per_ms, self.largest, tuple(limits))

    def is_allowed(self, number: int) -> bool:
        """Returns whether the integer may have this value."""
        return number <= self.largest and is_legal(self.kind, number, self.wide.cfg)

    def parts(self, value: tuple[Any, ...]) -> list[_Part]:
        """Returns the parts of a value of this part: the fields of a named tuple, or the items of another tuple."""
        if not hasattr(value, "_fields"):
            return [self._item] * len(value)
        fields = self._fields.get(type(value))
        if fields is None:
            fields = [_Part(self.wide, kind, name, self.action, self.is_fixed) for kind, name in _fields(type(value))]
            self._fields[type(value)] = fields
        return fields

    @functools.cached_property
    def _item(self) -> _Part:
        return _Part(self.wide, _item(self.kind), self.name, self.action, self.is_fixed)


@functools.lru_cache(maxsize=256)
def _limits(kind: Any) -> tuple[str, ...]:
    """Returns the names of the settings on which an annotated type's bounds depend."""
    return tuple(sorted(fields_in_bounds(kind)))


@functools.lru_cache(maxsize=1024)
def _legal(
    dictionary: tuple[int, ...], kind: Any, unit: int, most: int, limits: tuple[tuple[str, Any], ...]
) -> tuple[int, ...]:
    """Returns number * unit for each number of the dictionary, if legal and at most `most`.

    `limits` has the settings on which the bounds of `kind` depend.
    """
    cfg = types.SimpleNamespace(**dict(limits))
    return tuple([n for number in dictionary if (n := number * unit) <= most and is_legal(kind, n, cfg)])


class Wide:
    """The changes of one trace: for each name, how the integers of this name change."""

    def __init__(self, subject: Subject, cfg: Any, rng: Any) -> None:
        self.subject = subject
        self.cfg = cfg
        self.random = rng.random
        self.dictionary = dictionary(subject.name, subject.seeded_source)
        # up to 3 below a number of the dictionary, so that small consecutive integers cross this number
        self.shift = self._one_of([n for n in self.dictionary if n >= 32]) - int(self.random() * 4)
        #: name of integers, whether their domain is fixed -> the replacements; () if they are kept, None if shifted
        self._changes: dict[tuple[str, bool], tuple[int, ...] | None] = {}
        #: action -> its arguments
        self._arguments: dict[str, list[_Part]] = {}

    def arguments(self, action: str, arguments: Arguments) -> Arguments:
        """Returns the arguments of an action with some integers changed."""
        if action not in self._arguments:
            domain, params = self.subject.domain, self.subject.machine.actions[action].params
            self._arguments[action] = [
                _Part(self, p.annotation, p.name, action, isinstance(domain(action, p.name), tuple)) for p in params
            ]
        parts = self._arguments[action]
        return tuple([self._changed(part, a) for part, a in zip(parts, arguments, strict=True)])

    def settings(self, drawn: dict[str, Any]) -> dict[str, Any]:
        """Returns those of the drawn settings in which an integer changes, with their new values."""
        changed: dict[str, Any] = {}
        for name, value in drawn.items():
            for leaf in leaves(self.subject.machine.fields[name], value, name):
                if self.random() < _SETTINGS and (legal := _Part(self, leaf.kind, name, "", True).legal):
                    changed[name] = with_leaf(changed.get(name, value), leaf.path, self._one_of(legal))
        return changed

    def _changed(self, part: _Part, value: Any) -> Any:
        if value.__class__ is int:
            return self._number(part, value)
        if not isinstance(value, tuple):
            return value
        changed = [self._changed(inner, each) for inner, each in zip(part.parts(value), value, strict=True)]
        return type(value)(*changed) if hasattr(value, "_fields") else tuple(changed)

    def _number(self, part: _Part, value: int) -> int:
        """Returns an integer after the change of its name; unchanged if the new value is not allowed."""
        key = part.name, part.is_fixed
        if key not in self._changes:
            self._changes[key] = self._change_of(part)
        numbers = self._changes[key]
        if numbers == ():
            return value
        if numbers is None:
            number = value + self.shift * part.units_per_ms
        elif self.random() < (_REPLACED if part.is_fixed else _REPLACED_IN_STATE):
            number = self._one_of(numbers)
        else:
            return value
        return number if part.is_allowed(number) else value

    def _change_of(self, part: _Part) -> tuple[int, ...] | None:
        """Draws how the integers of a name change: their replacements, () to keep them, None to shift them."""
        sample = self.random()
        if sample < _KEPT:
            return ()
        if part.is_fixed and sample < _KEPT + _SHIFTED:
            return None
        legal = part.legal
        zero = [0] if 0 in legal else []
        return (*zero, *[self._one_of(legal) for _ in range(_PALETTE)]) if legal else ()

    def _one_of(self, numbers: Any) -> int:
        return numbers[int(self.random() * len(numbers))]  # type: ignore[no-any-return]
