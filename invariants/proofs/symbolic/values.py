"""Symbolic values: the values of variables in symbolic execution.

    int, bool         a Z3 term, or the Python value where it is known
    T | None          `Maybe`: whether there is a value, and the value
    NamedTuple        `Rec`: its fields
    tuple, list       `Seq`: a length and a function from index to element
    str, Literal      `Word`: a number that encodes the text
    float             `Double`: a real number, rounded where the program rounds
    output object     `Listener`: records the calls made on it
    anything else     a term of the uninterpreted sort TOKEN: only equality and emptiness are known

A measure is an integer for each element of a sequence, such as the element's bytes. A prefix sum of a measure is its
sum over all elements before an index. Each operation on sequences, such as `appended`, computes the prefix sums of its
result, so proofs about sums over any number of elements need no quantifiers.

`unknown` returns an unconstrained value of an annotated type.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import z3  # type: ignore[import-untyped]

from invariants.proofs.symbolic import bitmasks
from model.values import fields_of

TOKEN = z3.DeclareSort("Token")
is_not_empty = z3.Function("is_not_empty", TOKEN, z3.BoolSort())
EMPTY = z3.Const("empty", TOKEN)
#: The double nearest to a real number: IEEE 754 rounds the exact result of an operation once. Uninterpreted: Z3 knows
#: nothing about the function, and a proof adds the facts that it needs.
rounded = z3.Function("rounded", z3.RealSort(), z3.RealSort())
#: the platform's double for a float to an integer power; uninterpreted
power = z3.Function("power", z3.RealSort(), z3.IntSort(), z3.RealSort())

#: measures by name; a measure is a function from an element to an integer
Measures = Mapping[str, Callable[[Any], Any]]

#: the measure of integer elements: the element itself
SUM = "sum"


#: whether readers return unconstrained values (`forgetting.py`)
FORGETS: ContextVar[bool] = ContextVar("FORGETS", default=False)


class UnsupportedError(Exception):
    """The source is outside the subset, or an operation is not proved safe."""


@dataclass(frozen=True, eq=False)
class Maybe:
    """None, or a value."""

    defined: Any
    value: Any


@dataclass(frozen=True, eq=False)
class Rec:
    """A named tuple of type `kind`, with the symbolic values of its fields."""

    kind: Any
    fields: Mapping[str, Any]
    is_element: bool = False  # an unmodified element of an unconstrained sequence

    def replace(self, changes: Mapping[str, Any]) -> Rec:
        """Returns a copy with some fields replaced. Raises UnsupportedError for a field that does not exist."""
        for name in changes:
            if name not in self.fields:
                raise UnsupportedError(f"{self.kind.__name__} has no field {name}")
        return Rec(self.kind, {**self.fields, **changes})


@dataclass(frozen=True, eq=False)
class Word:
    """A string, encoded as an integer."""

    code: Any


@dataclass(frozen=True, eq=False)
class Double:
    """A float, represented by its real value."""

    real: Any


class ListenerCall(NamedTuple):
    """A call on a listener: its name, its arguments and the path condition."""

    what: str
    arguments: tuple[Any, ...]
    when: list[Any]


class Listener:
    """A write-only object, such as a collector of effects. It records the calls made on it."""

    def __init__(self) -> None:
        self.calls: list[ListenerCall] = []

    def calls_of(self, what: str) -> list[ListenerCall]:
        """Returns the calls of that name, such as `answers.append`."""
        return [each for each in self.calls if each.what == what]


@dataclass(frozen=True, eq=False)
class Choice:
    """A function: `then` if the condition `when` holds, otherwise `other`."""

    when: Any
    then: Any
    other: Any


def code_of(word: str) -> int:
    """Returns the integer that encodes a string: its bytes. The empty string is 0."""
    return int.from_bytes(word.encode())


def word_of(code: int) -> str:
    """Returns the string that an integer encodes."""
    return code.to_bytes((code.bit_length() + 7) // 8).decode()


class Root:
    """An unconstrained sequence: a function of the index for each field of its elements and each prefix sum."""

    def __init__(self, kind: Any, name: str, measures: Measures) -> None:
        self.kind, self.name, self.measures = kind, name, measures
        self.length = z3.Int(f"{name}.length")
        self._elements: dict[str, Any] = {}
        self._facts: dict[str, list[Any]] = {}

    def at(self, index: Any) -> Any:
        """Returns the element at an index."""
        index = as_term(index)
        text = index.sexpr()
        if text not in self._elements:
            self._elements[text] = unknown(self.kind, self.name, index)
        return self._elements[text]

    def total(self, measure: str, index: Any) -> Any:
        """Returns the sum of a measure over the elements before an index."""
        return z3.Function(f"{self.name} sum of {measure}", z3.IntSort(), z3.IntSort())(as_term(index))

    def facts(self, indexes: Iterable[Any]) -> list[Any]:
        """Returns the definitions of the prefix sums at some indexes, and that the length is nonnegative."""
        facts = [self.length >= 0, *[self.total(measure, 0) == 0 for measure in self.measures]]
        for index in indexes:
            text = index.sexpr()
            if text not in self._facts:
                self._facts[text] = [self._fact(m, of, index) for m, of in self.measures.items()]
            facts += self._facts[text]
        return facts

    def _fact(self, measure: str, of: Callable[[Any], Any], index: Any) -> Any:
        """Returns the recursive case of a prefix sum at an index."""
        more = self.total(measure, index) + of(self.at(index))
        return z3.Implies(z3.And(index >= 0, index < self.length), self.total(measure, index + 1) == more)

    def has_function(self, name: str) -> bool:
        """Returns whether the Z3 function of this name gives elements or prefix sums of this sequence."""
        return name == self.name or name.startswith((f"{self.name}.", f"{self.name} sum of "))


def applications(*terms: Any) -> list[tuple[str, Any]]:
    """Returns the applications of unary uninterpreted functions in terms: name and argument, without duplicates."""
    found: list[tuple[str, Any]] = []
    seen: set[int] = set()
    todo = list(terms)
    while todo:
        part = todo.pop()
        if part.get_id() not in seen:
            seen.add(part.get_id())
            inner = part.children()
            todo += inner
            if len(inner) == 1 and part.decl().kind() == z3.Z3_OP_UNINTERPRETED:
                found.append((part.decl().name(), inner[0]))
    return found


@dataclass(frozen=True, eq=False)
class Seq:
    """A tuple or list of any length: its elements and prefix sums by index."""

    kind: Any  # the type of its elements
    length: Any
    at: Callable[[Any], Any]  # index -> element
    totals: Mapping[str, Callable[[Any], Any]]  # measure -> (index -> sum over the elements before it)
    measures: Measures
    roots: tuple[Root, ...] = ()  # the unconstrained sequences that it is made of
    origin: Filtered | None = None  # the comprehension that made it, if one did

    @staticmethod
    def unknown(kind: Any, name: str, measures: Measures | None = None) -> Seq:
        """Returns an unconstrained sequence of elements of a type."""
        root = Root(kind, name, measures or {})
        totals = {m: (lambda index, m=m: root.total(m, index)) for m in root.measures}
        return Seq(kind, root.length, root.at, totals, root.measures, (root,))

    @staticmethod
    def empty(kind: Any, measures: Measures | None = None) -> Seq:
        """Returns an empty sequence."""
        measures = measures or {}
        return Seq(
            kind, z3.IntVal(0), lambda _: unknown(kind, "nothing", item=True), dict.fromkeys(measures, _zero), measures
        )

    def total(self, measure: str, first: Any = 0, end: Any = None) -> Any:
        """Returns the sum of a measure over the indexes in [first, end), by default over all."""
        end = self.length if end is None else end
        return self.totals[measure](as_term(end)) - self.totals[measure](as_term(first))

    def appended(self, value: Any) -> Seq:
        """Returns the sequence with one more element at the end."""
        n, value = self.length, coerced(self.kind, value)

        def at(index: Any) -> Any:
            return merged(as_term(index) == n, value, self.at(index))

        def more(m: str) -> Callable[[Any], Any]:
            whole = self.totals[m](n) + self.measures[m](value)
            return lambda index: z3.If(index <= n, self.totals[m](index), whole)

        return Seq(self.kind, n + 1, at, {m: more(m) for m in self.totals}, self.measures, self.roots)

    def replaced(self, target: Any, value: Any) -> Seq:
        """Returns the sequence with one element replaced; the index must be within the sequence."""
        target, value = as_term(target), coerced(self.kind, value)

        def at(index: Any) -> Any:
            return merged(as_term(index) == target, value, self.at(index))

        def changed(m: str) -> Callable[[Any], Any]:
            more = self.measures[m](value) - self.measures[m](self.at(target))
            return lambda index: self.totals[m](index) + z3.If(index <= target, 0, more)

        return Seq(self.kind, self.length, at, {m: changed(m) for m in self.totals}, self.measures, self.roots)

    def part(self, first: Any, end: Any) -> Seq:
        """Returns the slice [first, end); both must be within the sequence."""
        first = as_term(first)

        def of(m: str) -> Callable[[Any], Any]:
            return lambda index: self.totals[m](first + index) - self.totals[m](first)

        totals = {m: of(m) for m in self.totals}
        return Seq(
            self.kind, as_term(end) - first, lambda p: self.at(first + as_term(p)), totals, self.measures, self.roots
        )

    def joined(self, other: Seq) -> Seq:
        """Returns the concatenation with another sequence."""
        n = self.length

        def at(index: Any) -> Any:
            index = as_term(index)
            return merged(index < n, self.at(index), other.at(index - n))

        def of(m: str) -> Callable[[Any], Any]:
            return lambda index: z3.If(
                index <= n, self.totals[m](index), self.totals[m](n) + other.totals[m](index - n)
            )

        totals = {m: of(m) for m in self.totals if m in other.totals}
        return Seq(self.kind, n + other.length, at, totals, self.measures, (*self.roots, *other.roots))

    def reordered(self, name: str) -> Seq:
        """Returns some permutation: elements are unconstrained, the total of each measure is unchanged."""
        n, at = self.length, Root(self.kind, name, {}).at

        def of(m: str) -> Callable[[Any], Any]:
            part, whole = z3.Function(f"{name} sum of {m}", z3.IntSort(), z3.IntSort()), self.totals[m](n)
            return lambda index: z3.If(index <= 0, 0, z3.If(index >= n, whole, part(index)))

        return Seq(self.kind, n, at, {m: of(m) for m in self.totals}, self.measures, self.roots)


@dataclass(frozen=True, eq=False)
class Filtered:
    """A comprehension with a condition over a sequence.

    `element_at` returns for an index of the sequence whether its element is included, the resulting element, and the
    facts about both.
    """

    over: Seq
    element_at: Callable[[Any], tuple[Any, Any, list[Any]]]
    name: str
    #: for each call of `first_by`: the index in the sequence, and a function from an index to facts
    firsts: list[tuple[Any, Callable[[Any], Any]]] = field(default_factory=list)

    def recursive_sum(self, measure: Callable[[Any], Any] = lambda item: item) -> RecursiveSum:
        """Returns the sum of a measure over the included elements."""

        def step(index: Any) -> tuple[Any, list[Any]]:
            kept, item, known = self.element_at(index)
            return z3.If(as_term(kept), as_term(measure(item)), 0), known

        return RecursiveSum(self.name, self.over.length, step)

    def first_by(self, order: Callable[[Any, Any], Any]) -> Maybe:
        """Returns the first included element by an order, or None. Adds the facts about the result to `firsts`."""
        name = f"{self.name} first#{len(self.firsts)}"
        first, found = z3.Int(f"{name} at"), z3.Bool(f"{name} found")
        kept, value, known = self.element_at(first)
        is_there = z3.And(first >= 0, first < self.over.length, as_term(kept), *known)

        def fact(index: Any) -> Any:
            here, item, more = self.element_at(index)
            chosen = z3.And(index >= 0, index < self.over.length, as_term(here))
            not_before = z3.Implies(chosen, z3.And(found, z3.Not(as_term(order(item, value)))))
            return z3.And(z3.Implies(found, is_there), not_before, *more)

        self.firsts.append((first, fact))
        return Maybe(found, value)


class RecursiveSum:
    """A prefix sum over the indexes of a sequence, defined by recursion, for proofs by induction."""

    def __init__(self, name: str, length: Any, step: Callable[[Any], tuple[Any, list[Any]]]) -> None:
        """`step` gives for an index the term that it adds, and the facts about that term."""
        self.name, self.length, self.step = f"{name} up to", length, step

    def before(self, index: Any) -> Any:
        """Returns the sum over all indexes before this one."""
        return z3.Function(self.name, z3.IntSort(), z3.IntSort())(as_term(index))

    def whole(self) -> Any:
        """Returns the sum over all indexes."""
        return self.before(self.length)

    def facts(self, index: Any) -> list[Any]:
        """Returns the base case and the recursive case at an index."""
        more, known = self.step(index)
        grows = self.before(index + 1) == self.before(index) + more
        return [self.before(0) == 0, z3.Implies(z3.And(index >= 0, index < self.length), z3.And(grows, *known))]


def _zero(_: Any) -> Any:
    return z3.IntVal(0)


# ---- constructing and merging values ------------------------------------------------------------------------


def unknown(kind: Any, name: str, *index: Any, item: bool = False, nested: bool = False) -> Any:
    """Returns an unconstrained value of an annotated type; with `index`, the element of the sequence `name` at it.

    A tuple is a `Seq`. But inside an element of a sequence, and inside an `item`, which may become such an element, a
    tuple is a token; with `nested`, it is a `Seq` whose length and elements are functions of all indexes. Raises
    UnsupportedError for a union of several types.
    """
    origin = get_origin(kind)
    if origin is Annotated:
        return unknown(get_args(kind)[0], name, *index, item=item, nested=nested)
    if origin is Union or origin is types.UnionType:
        inner = [k for k in get_args(kind) if k is not type(None)]
        if len(inner) != 1:
            raise UnsupportedError(f"{name} may be of several types")
        defined = _leaf(f"{name}.defined", z3.BoolSort(), index)
        return Maybe(defined, unknown(inner[0], name, *index, item=item, nested=nested))
    if origin is Literal:
        return Word(_leaf(name, z3.IntSort(), index))
    if kind in (int, bool):
        return _leaf(name, z3.IntSort() if kind is int else z3.BoolSort(), index)
    if kind is float:
        return Double(_leaf(name, z3.RealSort(), index))
    if hasattr(kind, "_fields"):
        kinds = _fields_of(kind).items()
        fields = {f: unknown(k, f"{name}.{f}", *index, item=item, nested=nested) for f, k in kinds}
        return Rec(kind, fields, is_element=bool(index) and not nested)
    if nested and origin is tuple and get_args(kind)[1:] == (...,):
        return _nested(get_args(kind)[0], name, index)
    if origin is list or (origin is tuple and get_args(kind)[1:] == (...,) and not (index or item)):
        return Seq.unknown(get_args(kind)[0], name)
    return _leaf(name, TOKEN, index)


def _nested(kind: Any, name: str, index: Sequence[Any]) -> Seq:
    """Returns an unconstrained sequence inside elements of other sequences, at the indexes of these elements."""
    length = _leaf(f"{name}.length", z3.IntSort(), index)
    return Seq(kind, length, lambda at: unknown(kind, name, *index, as_term(at), nested=True), {}, {})


def column_indexes(value: Any) -> dict[str, Any]:
    """Returns the column functions of an element of an unconstrained sequence by name, each with the element's index.

    Returns an empty dict for any other value.
    """
    value = value.value if isinstance(value, Maybe) else value
    if not (isinstance(value, Rec) and value.is_element):
        return {}
    return {column.decl().name(): column.arg(0) for column in _columns(value)}


def _columns(value: Any) -> list[Any]:
    """Returns the terms of an element: applications of column functions to its index."""
    if isinstance(value, Rec):
        return [column for field in value.fields.values() for column in _columns(field)]
    if isinstance(value, Maybe):
        return [value.defined, *_columns(value.value)]
    return [value.code if isinstance(value, Word) else value.real if isinstance(value, Double) else value]


@functools.cache
def _fields_of(kind: Any) -> dict[str, Any]:
    return fields_of(kind)


def _leaf(name: str, sort: Any, index: Sequence[Any]) -> Any:
    """Returns the constant of this name; with indexes, the function of this name applied to them."""
    return z3.Function(name, *[z3.IntSort() for _ in index], sort)(*index) if index else z3.Const(name, sort)


def as_term(value: Any) -> Any:
    """Returns an int or bool as a Z3 term; returns terms unchanged."""
    if isinstance(value, bool):
        return z3.BoolVal(value)
    return z3.IntVal(value) if isinstance(value, int) else value


def exact(value: Any) -> Any:
    """Returns the real value of a float, or of an integer cast to float; the cast rounds."""
    if isinstance(value, Double):
        return value.real
    if isinstance(value, float):
        fraction = Fraction(value)
        return z3.Q(fraction.numerator, fraction.denominator)
    return rounded(z3.ToReal(as_term(value)))


def lifted(value: Any) -> Any:
    """Returns the symbolic form of a Python value."""
    if isinstance(value, str):
        return Word(z3.IntVal(code_of(value)))
    if isinstance(value, float):
        return Double(exact(value))
    if hasattr(value, "_fields"):
        return Rec(type(value), {f: getattr(value, f) for f in value._fields})
    return as_term(value)


def coerced(kind: Any, value: Any) -> Any:
    """Returns a value in the form of the elements of a sequence of type `kind`."""
    optional = type(None) in get_args(kind)
    if value is None and optional:
        return Maybe(z3.BoolVal(False), unknown(kind, "nothing", item=True).value)
    if isinstance(value, Maybe):
        if not optional:
            raise UnsupportedError(f"a sequence of {kind.__name__} may contain None")
        return value
    return Maybe(z3.BoolVal(True), lifted(value)) if optional else lifted(value)


def merged(when: Any, then: Any, other: Any) -> Any:
    """Returns `then` if the condition holds, else `other`. Raises UnsupportedError if they have no common form."""
    if when is True or when is False:
        return then if when else other
    if then is other:
        return then
    if then is None or other is None or isinstance(then, Maybe) or isinstance(other, Maybe):
        return _merged_maybe(when, then, other)
    if callable(then) and callable(other) and not z3.is_expr(then):
        return Choice(when, then, other)
    if isinstance(then, tuple) and isinstance(other, tuple) and not hasattr(then, "_fields") and then:
        if len(then) == len(other):
            return tuple(merged(when, a, b) for a, b in zip(then, other, strict=True))
        raise UnsupportedError("no common form of tuples of different lengths")
    then, other = _alike(lifted(then), other), _alike(lifted(other), then)
    if isinstance(then, Word) and isinstance(other, Word):
        return Word(z3.If(when, then.code, other.code))
    if isinstance(then, Double) and isinstance(other, Double):
        return Double(z3.If(when, then.real, other.real))
    if isinstance(then, Rec) and isinstance(other, Rec) and then.kind is other.kind:
        return Rec(then.kind, {f: merged(when, then.fields[f], other.fields[f]) for f in then.fields})
    if isinstance(then, Seq) and isinstance(other, Seq):
        return _merged_seq(when, then, other)
    if z3.is_expr(then) and z3.is_expr(other) and then.sort() == other.sort():
        return z3.If(when, then, other)
    if FORGETS.get():
        return other if bitmasks.is_mask(other) else then
    raise UnsupportedError(f"no common form of {type(then).__name__} and {type(other).__name__}")


def _alike(value: Any, other: Any) -> Any:
    """Returns a value in the form of `other`, or unchanged if the value has no such form.

    If `other` is a mask, a known integer becomes a mask. If `other` is a `Seq`, a tuple becomes a `Seq`. An empty tuple
    becomes a token, or a record that represents a tuple: a `Rec` whose type has `has_any` and `none`, and optionally
    `length_of` or `item_of`.
    """
    if bitmasks.is_mask(other):
        mask = bitmasks.as_mask(value)
        return value if mask is None else mask
    if not isinstance(value, tuple) or hasattr(value, "_fields"):
        return value
    if isinstance(other, Seq):
        made = Seq.empty(other.kind, other.measures)
        for each in value:
            made = made.appended(each)
        return made
    if value:
        return value
    if z3.is_expr(other) and other.sort() == TOKEN:
        return EMPTY
    return other.kind.none() if isinstance(other, Rec) and hasattr(other.kind, "none") else value


def _merged_maybe(when: Any, then: Any, other: Any) -> Maybe:
    def parts(value: Any, second: Any) -> tuple[Any, Any]:
        """Returns whether `value` is defined, and its value. The value of None is that of `second`, for its form."""
        if value is None:
            return z3.BoolVal(False), second.value if isinstance(second, Maybe) else second
        if isinstance(value, Maybe) and z3.is_false(value.defined) and second is not None:
            return value.defined, second.value if isinstance(second, Maybe) else second  # `value` is None
        return (value.defined, value.value) if isinstance(value, Maybe) else (z3.BoolVal(True), value)

    a, b = parts(then, other), parts(other, then)
    return Maybe(z3.If(when, a[0], b[0]), merged(when, a[1], b[1]))


def _merged_seq(when: Any, then: Seq, other: Seq) -> Seq:
    def of(m: str) -> Callable[[Any], Any]:
        return lambda index: z3.If(when, then.totals[m](index), other.totals[m](index))

    totals = {m: of(m) for m in then.totals if m in other.totals}
    length = z3.If(when, then.length, other.length)
    roots = (*then.roots, *other.roots)
    return Seq(then.kind, length, lambda p: merged(when, then.at(p), other.at(p)), totals, then.measures, roots)


def equal(a: Any, b: Any) -> Any:
    """Returns whether two values are equal, as a term or a bool. Raises UnsupportedError for sequences."""
    if a is None or b is None or isinstance(a, Maybe) or isinstance(b, Maybe):
        return _equal_maybe(a, b)
    a, b = _alike(lifted(a), b), _alike(lifted(b), a)
    if isinstance(a, Word) and isinstance(b, Word):
        return a.code == b.code
    if isinstance(a, Double) or isinstance(b, Double):
        x, y = (each.real if isinstance(each, Double) else z3.ToReal(each) for each in (a, b))
        return x == y
    if isinstance(a, Rec) and isinstance(b, Rec) and a.kind is b.kind:
        return z3.And(*[equal(a.fields[f], b.fields[f]) for f in a.fields])
    if z3.is_expr(a) and z3.is_expr(b) and a.sort() == b.sort():
        return a == b
    raise UnsupportedError(f"not supported: {type(a).__name__} == {type(b).__name__}")


def _equal_maybe(a: Any, b: Any) -> Any:
    if a is None or b is None:
        value = b if a is None else a
        return z3.Not(value.defined) if isinstance(value, Maybe) else value is None
    if isinstance(a, Maybe) and isinstance(b, Maybe):
        both = z3.And(a.defined, b.defined, equal(a.value, b.value))
        return z3.Or(both, z3.And(z3.Not(a.defined), z3.Not(b.defined)))
    maybe, value = (a, b) if isinstance(a, Maybe) else (b, a)
    return z3.And(maybe.defined, equal(maybe.value, value))


def truth(value: Any) -> Any:
    """Returns the truth value of a value, as `bool` does."""
    if isinstance(value, Maybe):
        return z3.And(value.defined, as_term(truth(value.value)))
    if isinstance(value, Seq):
        return value.length > 0
    if isinstance(value, Rec):
        return value.kind.has_any(value) if hasattr(value.kind, "has_any") else bool(value.fields)
    if isinstance(value, Word):
        return value.code != code_of("")
    if isinstance(value, Double):
        return value.real != 0
    if isinstance(value, Filtered):
        raise UnsupportedError("not supported: the truth value of a comprehension with a condition")
    if not z3.is_expr(value):
        return bool(value)
    if bitmasks.is_mask(value):  # tested before `is_bool`, which is also true of a function to Bool
        return value != bitmasks.NONE
    if z3.is_bool(value):
        return value
    return is_not_empty(value) if value.sort() == TOKEN else value != 0
