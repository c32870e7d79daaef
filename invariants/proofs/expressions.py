"""What an expression of a rule stands for, said in terms; see `reading.py`."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, get_origin, get_type_hints

import z3  # type: ignore[import-untyped]

from invariants.proofs import operators
from invariants.proofs.terms import (
    Choice,
    Maybe,
    NotUnderstoodError,
    Rec,
    Seq,
    as_term,
    coerced,
    equal,
    lifted,
    merged,
    truth,
    unknown,
)

#: under this name, which no program has, a path keeps the parameters that still are what was handed in
HANDED_IN = ""


class Path:
    """One way through a function: what it assumes, what its names stand for, and how it ends."""

    def __init__(self, names: Mapping[str, Any], when: Sequence[Any] = (), how: str = "next", value: Any = None):
        """`how` is next, return, break or continue; `value` is what is returned."""
        self.names, self.when, self.how, self.value = dict(names), list(when), how, value

    def also(self, condition: Any) -> Path:
        """The same way under one more condition."""
        return Path(self.names, [*self.when, condition], self.how, self.value)

    def named(self, name: str, value: Any) -> Path:
        """The same way with another value for a name."""
        own = {HANDED_IN: self.names.get(HANDED_IN, frozenset()) - {name}}
        return Path({**self.names, **own, name: value}, self.when, self.how, self.value)


class Place:
    """Where an expression stands: the path, the module's names, and the conditions that hold just there."""

    def __init__(self, path: Path, space: Mapping[str, Any], extra: tuple[Any, ...] = (), index: tuple[Any, ...] = ()):
        """`index` is the place in the sequence that a comprehension goes over."""
        self.path, self.space, self.extra, self.index = path, space, extra, index

    def also(self, condition: Any) -> Place:
        """The same place, where a condition holds."""
        return Place(self.path, self.space, (*self.extra, as_term(condition)), self.index)

    def learn(self, fact: Any) -> None:
        """A fact without which the program would have stopped here with an error."""
        self.path.when.append(z3.Implies(z3.And(*self.extra), fact) if self.extra else fact)


class Expressions:
    """Follows expressions. What it assumes of unknown values is in `given`."""

    def __init__(
        self,
        given: Sequence[Any],
        any_result: Sequence[Callable[..., Any]],
        instead: Mapping[Callable[..., Any], Callable[..., Any]],
    ) -> None:
        self.given, self.any_result, self.instead = list(given), tuple(any_result), dict(instead)
        self._made, self._prefix = 0, ""
        self._handlers: dict[type[ast.expr], Callable[[Any, Place], Any]] = {
            ast.Constant: lambda node, place: node.value,
            ast.Name: self._name,
            ast.Attribute: lambda node, place: self._attribute(self.value(node.value, place), node.attr, node, place),
            ast.Tuple: self._tuple,
            ast.List: self._tuple,
            ast.BoolOp: self._all_or_any,
            ast.UnaryOp: self._unary,
            ast.BinOp: self._binary,
            ast.Compare: self._compared,
            ast.IfExp: self._either,
            ast.Subscript: self._subscript,
            ast.ListComp: self._comprehended,
            ast.Call: self._called,
        }

    def paths(self, function: Callable[..., Any], *arguments: Any, when: Sequence[Any] = ()) -> list[Path]:
        """Every way through a function; the reader of statements knows."""
        raise NotImplementedError

    def call(self, function: Callable[..., Any], *arguments: Any, when: Sequence[Any] = ()) -> Any:
        """What a function returns, put together from all its paths. Raises NotUnderstoodError."""
        return _together(self.paths(function, *arguments, when=when), len(when))

    def can_be(self, conditions: Sequence[Any]) -> bool:
        """Whether the solver cannot rule the conditions out."""
        solver = z3.Solver()
        solver.set("timeout", 1000)
        solver.add(*self.given, *conditions)
        return bool(solver.check() != z3.unsat)

    def require(self, condition: Any, place: Place, node: ast.AST, what: str) -> None:
        """Raises NotUnderstoodError unless the condition holds here."""
        if self.can_be([*place.path.when, *place.extra, z3.Not(as_term(condition))]):
            refuse(node, f"cannot show that {what}")

    def fresh(self, kind: Any, about: str, place: Place | None = None) -> Any:
        """A new value of a type, of which nothing is known; in a comprehension it depends on the place."""
        self._made += 1
        item = get_origin(kind) not in (list, tuple)
        return unknown(kind, f"{self._prefix}{about}#{self._made}", *(place.index if place else ()), item=item)

    def value(self, node: ast.expr, place: Place) -> Any:
        """What an expression stands for. Raises NotUnderstoodError."""
        handler = self._handlers.get(type(node))
        return handler(node, place) if handler else refuse(node, "this expression is not understood")

    def _binary(self, node: ast.BinOp, place: Place) -> Any:
        left = self.not_none(self.value(node.left, place), place, node)
        right = self.not_none(self.value(node.right, place), place, node)
        if isinstance(node.op, ast.Div | ast.FloorDiv):
            self.require(operators.compared(ast.NotEq(), right, 0, node), place, node, "the divisor is not zero")
        return operators.binary(node.op, left, right, node)

    def not_none(self, value: Any, place: Place, node: ast.AST) -> Any:
        """A value, where None would be an error. Raises NotUnderstoodError unless it is shown not to be None."""
        if isinstance(value, Maybe):
            self.require(value.defined, place, node, "this is not None")
            return value.value
        return value

    # ---- names, fields, places

    def _name(self, node: ast.Name, place: Place) -> Any:
        for space in (place.path.names, place.space, operators.BUILT_IN):
            if node.id in space:
                value = space[node.id]
                return lifted(value) if hasattr(value, "_fields") and isinstance(value, tuple) else value
        return refuse(node, f"nothing is known of {node.id} here")

    def _attribute(self, value: Any, name: str, node: ast.expr, place: Place) -> Any:
        value = self.not_none(value, place, node)
        if isinstance(value, Rec) and name in value.fields:
            return value.fields[name]
        if isinstance(value, types.ModuleType):
            return getattr(value, name)
        return refuse(node, f"there is no {name}")

    def _tuple(self, node: ast.Tuple | ast.List, place: Place) -> Any:
        values: list[Any] = []
        for part in node.elts:
            value = self.value(part.value if isinstance(part, ast.Starred) else part, place)
            if isinstance(part, ast.Starred) and not isinstance(value, tuple):
                return self.fresh(object, "tuple", place)  # one that cannot be looked into
            values += value if isinstance(part, ast.Starred) else [value]
        return tuple(values)

    def inside(self, index: ast.expr, seq: Seq, place: Place, node: ast.AST) -> Any:
        """A place in a sequence. Raises NotUnderstoodError unless it is shown to be inside."""
        where = as_term(self.value(index, place))
        self.require(z3.And(where >= 0, where < seq.length), place, node, "the place is inside")
        return where

    def _subscript(self, node: ast.Subscript, place: Place) -> Any:
        value, index = self.value(node.value, place), node.slice
        if isinstance(value, tuple) and isinstance(index, ast.Constant) and isinstance(index.value, int):
            return value[index.value]
        if isinstance(value, Seq) and isinstance(index, ast.Slice) and index.step is None:
            first = as_term(0 if index.lower is None else self.value(index.lower, place))
            end = as_term(value.length if index.upper is None else self.value(index.upper, place))
            self.require(z3.And(first >= 0, first <= end, end <= value.length), place, node, "the part is inside")
            return value.part(first, end)
        if isinstance(value, Seq) and not isinstance(index, ast.Slice):
            return value.at(self.inside(index, value, place, node))
        return refuse(node, "this index is not understood")

    # ---- truths

    def _unary(self, node: ast.UnaryOp, place: Place) -> Any:
        value = self.value(node.operand, place)
        if isinstance(node.op, ast.Not):
            said = truth(value)
            return not said if isinstance(said, bool) else z3.Not(said)
        return -value if isinstance(node.op, ast.USub) else refuse(node, "this operation is not understood")

    def _all_or_any(self, node: ast.BoolOp, place: Place) -> Any:
        """`and`, `or`: what comes later is only worked out where what comes before lets it."""
        is_all, said = isinstance(node.op, ast.And), []
        for part in node.values:
            one = truth(self.value(part, place))
            if isinstance(one, bool) and one is not is_all:
                said.append(z3.BoolVal(one))
                break
            if not isinstance(one, bool):
                said.append(one)
                place = place.also(one if is_all else z3.Not(one))
        if not said:
            return is_all
        return z3.And(*said) if is_all else z3.Or(*said)

    def _compared(self, node: ast.Compare, place: Place) -> Any:
        said, left = [], self.value(node.left, place)
        for operator, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.value(comparator, place)
            if isinstance(operator, ast.In | ast.NotIn) and not isinstance(right, tuple):
                inside = self.fresh(bool, "in", place)  # in a sequence of any length: it may be so or not
                said.append(inside if isinstance(operator, ast.In) else z3.Not(inside))
            elif isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                left, right = self.not_none(left, place, node), self.not_none(right, place, node)
                said.append(operators.compared(operator, left, right, node))
            else:
                said.append(operators.compared(operator, left, right, node))
            left = right
        return said[0] if len(said) == 1 else z3.And(*[as_term(each) for each in said])

    def _either(self, node: ast.IfExp, place: Place) -> Any:
        condition = truth(self.value(node.test, place))
        if isinstance(condition, bool):
            return self.value(node.body if condition else node.orelse, place)
        yes, no = place.also(condition), place.also(z3.Not(condition))
        for branch, other, never in ((node.body, yes, no), (node.orelse, no, yes)):
            if not self.can_be([*place.path.when, *never.extra]):
                return self.value(branch, other)
        return merged(condition, self.value(node.body, yes), self.value(node.orelse, no))

    # ---- comprehensions and calls

    def _comprehended(self, node: ast.ListComp | ast.GeneratorExp, place: Place) -> Any:
        """A sequence made from another: element by element, or, if some are left out, any at all of that kind."""
        [generator, *more] = node.generators
        over = self.value(generator.iter, place)
        if more or place.index or not isinstance(generator.target, ast.Name):
            return refuse(node, "this comprehension is not understood")
        name = generator.target.id
        if not isinstance(over, Seq):
            return self.fresh(object, "tuple", place) if z3.is_expr(over) else refuse(node, "over what is not known")
        self._made += 1
        about = f"{self._prefix}each#{self._made}"
        if generator.ifs:
            if not (isinstance(node.elt, ast.Name) and node.elt.id == name):
                return refuse(node, "this comprehension is not understood")
            return Seq.unknown(over.kind, about)

        def at(where: Any) -> Any:
            kept = self._made, self._prefix  # what is unknown of an element depends on its place and on nothing else
            self._made, self._prefix = 0, f"{about}."
            inner = Place(place.path.named(name, over.at(where)), place.space, place.extra, (as_term(where),))
            element = coerced(over.kind, self.value(node.elt, inner))
            self._made, self._prefix = kept
            return element

        return Seq(over.kind, over.length, at, {}, {}, over.roots)

    def is_followed(self, function: Any) -> bool:
        """Whether a call of it goes into its source."""
        return (
            isinstance(function, types.FunctionType)
            and function not in self.instead
            and function not in self.any_result
        )

    def _called(self, node: ast.Call, place: Place) -> Any:
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("_replace", "index"):
            return self._method(self.value(node.func.value, place), node.func.attr, node, place)
        function = self.value(node.func, place)
        if len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            if function in (operators.BUILT_IN["tuple"], operators.BUILT_IN["list"]):
                return self._comprehended(node.args[0], place)
            return refuse(node, "this call is not understood")
        arguments = [self.value(a, place) for a in node.args]
        named = {k.arg or "": self.value(k.value, place) for k in node.keywords}
        if isinstance(function, type) and hasattr(function, "_fields"):
            fields = inspect.signature(function).bind(*arguments, **named)
            fields.apply_defaults()
            return Rec(function, dict(fields.arguments))
        if isinstance(function, operators.BuiltIn) and not named:
            return function.of(*arguments)
        return self._result(function, arguments, named, node, place)

    def _result(
        self, function: Any, arguments: list[Any], named: Mapping[str, Any], node: ast.Call, place: Place
    ) -> Any:
        if isinstance(function, Choice):
            yes, no = place.also(function.when), place.also(z3.Not(function.when))
            then = self._result(function.then, arguments, named, node, yes)
            return merged(function.when, then, self._result(function.other, arguments, named, node, no))
        if not isinstance(function, types.FunctionType):
            return refuse(node, "this call is not understood")
        bound = inspect.signature(function).bind(*arguments, **named)
        bound.apply_defaults()
        if function in self.instead:
            return self.instead[function](*bound.args, **bound.kwargs)
        if function in self.any_result:
            return self.fresh(get_type_hints(function, include_extras=True)["return"], function.__name__, place)
        when = [*place.path.when, *place.extra]
        ways = self.paths(function, *bound.args, when=when)
        if any(len(way.when) > len(when) for way in ways):
            place.learn(z3.Or(*[z3.And(*way.when[len(when) :]) for way in ways]))  # one of them was taken
        return _together(ways, len(when))

    def _method(self, value: Any, name: str, node: ast.Call, place: Place) -> Any:
        value = self.not_none(value, place, node)
        if name == "_replace" and isinstance(value, Rec) and not node.args:
            return value.replace({k.arg or "": self.value(k.value, place) for k in node.keywords})
        if name == "index" and isinstance(value, Seq) and len(node.args) == 1:
            where, item = self.fresh(int, "index", place), self.value(node.args[0], place)
            is_there = z3.And(where >= 0, where < value.length, as_term(equal(value.at(where), item)))
            place.learn(is_there)
            return where
        return refuse(node, f"{name} is not understood")


def _together(ways: Sequence[Path], known: int) -> Any:
    """The value of one of several ways, whichever is taken; their first so many conditions are known to hold."""
    value = ways[-1].value
    for way in reversed(ways[:-1]):
        value = merged(z3.And(*way.when[known:]), way.value, value)
    return value


def refuse(node: ast.AST, why: str) -> NoReturn:
    """Raises NotUnderstoodError with the source that it is about."""
    raise NotUnderstoodError(f"{why}: {ast.unparse(node)}")
