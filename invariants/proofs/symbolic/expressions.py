"""Symbolic evaluation of expressions; statements, paths and loops are in `reader.py`."""

from __future__ import annotations

import ast
import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn, cast, get_args, get_origin, get_type_hints

import z3  # type: ignore[import-untyped]

from invariants.proofs.symbolic import bitmasks, operators
from invariants.proofs.symbolic.forgetting import handed_out
from invariants.proofs.symbolic.values import (
    FORGETS,
    SUM,
    Choice,
    Chosen,
    Maybe,
    Rec,
    Seq,
    Tally,
    UnsupportedError,
    as_term,
    coerced,
    equal,
    homes,
    lifted,
    merged,
    truth,
    unknown,
)

#: The key in `Path.names` of the set of parameters that were not assigned. No program has a variable of this name.
HANDED_IN = ""


class PathCondition(z3.BoolRef):  # type: ignore[misc]
    """A condition from the source of the function, in contrast to an assumption of the caller of the reader."""

    @staticmethod
    def of(condition: Any) -> Any:
        """Returns the condition as a PathCondition."""
        term = as_term(condition)
        return PathCondition(term.as_ast(), term.ctx)


class Path:
    """A path through a function: its conditions, the values of its names, and how it ends."""

    def __init__(self, names: Mapping[str, Any], when: Sequence[Any] = (), how: str = "next", value: Any = None):
        """`how` is next, return, break or continue; `value` is the returned value."""
        self.names, self.when, self.how, self.value = dict(names), list(when), how, value

    def also(self, condition: Any) -> Path:
        """Returns the path with one more condition, which is not marked as a path condition."""
        return Path(self.names, [*self.when, condition], self.how, self.value)

    def conditions(self) -> list[Any]:
        """Returns the path conditions. For given inputs, exactly one path of a function has only true ones."""
        return [each for each in self.when if isinstance(each, PathCondition)]

    def branch(self, condition: Any) -> Path:
        """Returns the path with one more path condition."""
        return self.also(PathCondition.of(condition))

    def named(self, name: str, value: Any) -> Path:
        """Returns the path after an assignment to a name."""
        own = {HANDED_IN: self.names.get(HANDED_IN, frozenset()) - {name}}
        return Path({**self.names, **own, name: value}, self.when, self.how, self.value)


class Place:
    """The context of an expression: its path, the module's names, and the conditions under which it is evaluated."""

    def __init__(self, path: Path, space: Mapping[str, Any], extra: tuple[Any, ...] = (), index: tuple[Any, ...] = ()):
        """`index` has the index in the sequence over which a comprehension iterates, if there is one."""
        self.path, self.space, self.extra, self.index = path, space, extra, index

    def also(self, condition: Any) -> Place:
        """Returns the context with one more condition."""
        return Place(self.path, self.space, (*self.extra, as_term(condition)), self.index)

    def learn(self, fact: Any) -> None:
        """Adds a fact to the path conditions, under the conditions of this context."""
        self.path.when.append(PathCondition.of(z3.Implies(z3.And(*self.extra), fact) if self.extra else fact))


class Some(NamedTuple):
    """The facts about an `any`: an index with a true element if it is true; `fact(i)`: it is true if element i is."""

    where: Any
    fact: Callable[[Any], Any]


class Expressions:
    """Evaluates expressions symbolically, under the assumptions `given`."""

    def __init__(
        self,
        given: Sequence[Any],
        havoc: Sequence[Callable[..., Any]],
        stubs: Mapping[Callable[..., Any], Callable[..., Any]],
    ) -> None:
        self.given, self.havoc = list(given), tuple([uncached(each) for each in havoc])
        self.stubs = {uncached(each): other for each, other in stubs.items()}
        self._made, self._prefix = 0, ""
        self.chosen: list[Chosen] = []  # comprehensions with a condition, in the order of the source
        self.anys: list[Some] = []  # each `any` over a sequence, in the order of the source
        self.sums: list[Tally] = []  # each `sum` without a prefix sum, in the order of the source
        self._handlers: dict[type[ast.expr], Callable[[Any, Place], Any]] = {
            ast.Constant: lambda node, place: node.value,
            ast.Name: self._name,
            ast.Attribute: lambda node, place: self._attribute(self.value(node.value, place), node.attr, node, place),
            ast.Tuple: self._tuple,
            ast.List: self._tuple,
            ast.BoolOp: self._and_or_value,
            ast.UnaryOp: self._unary,
            ast.BinOp: self._binary,
            ast.Compare: self._compared,
            ast.IfExp: self._either,
            ast.Subscript: self._subscript,
            ast.JoinedStr: lambda node, place: self.fresh(object, "text", place),  # unconstrained
            ast.ListComp: self._comprehended,
            ast.Call: self._called,
        }

    def follow(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        when: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
    ) -> list[Path]:
        """Returns the feasible paths through a function; `Reader` implements it."""
        raise NotImplementedError

    def call(self, function: Callable[..., Any], *arguments: Any, when: Sequence[Any] = ()) -> Any:
        """Returns the value of a call, merged from all paths. Raises UnsupportedError."""
        return handed_out(_merged_paths(self.follow(function, arguments, when), len(when)))

    def can_be(self, conditions: Sequence[Any]) -> bool:
        """Returns whether the conditions are satisfiable, or the solver cannot tell."""
        solver = z3.Solver()
        solver.set("timeout", 1000)
        solver.add(*self.given, *conditions)
        return bool(solver.check() != z3.unsat)

    def require(self, condition: Any, place: Place, node: ast.AST, what: str) -> None:
        """Raises UnsupportedError unless the condition is proved in this context."""
        if not FORGETS.get() and self.can_be([*place.path.when, *place.extra, z3.Not(as_term(condition))]):
            refuse(node, f"cannot show that {what}")

    def fresh(self, kind: Any, about: str, place: Place | None = None) -> Any:
        """Returns a fresh unconstrained value of a type; in a comprehension it is a function of the index."""
        self._made += 1
        item = get_origin(kind) not in (list, tuple)
        return unknown(kind, f"{self._prefix}{about}#{self._made}", *(place.index if place else ()), item=item)

    def value(self, node: ast.expr, place: Place) -> Any:
        """Returns the value of an expression. Raises UnsupportedError."""
        handler = self._handlers.get(type(node))
        return handler(node, place) if handler else refuse(node, "this expression is not supported")

    def _binary(self, node: ast.BinOp, place: Place) -> Any:
        left = self.not_none(self.value(node.left, place), place, node)
        right = self.not_none(self.value(node.right, place), place, node)
        if isinstance(node.op, ast.LShift | ast.RShift) and z3.is_expr(right):
            self.require(right >= 0, place, node, "the shift is not negative")
        if isinstance(node.op, ast.Div | ast.FloorDiv):
            self.require(operators.compared(ast.NotEq(), right, 0, node), place, node, "the divisor is not zero")
        return operators.binary(node.op, left, right, node)

    def not_none(self, value: Any, place: Place, node: ast.AST) -> Any:
        """Returns the value of a Maybe. Raises UnsupportedError unless it is proved not to be None."""
        if isinstance(value, Maybe):
            self.require(value.defined, place, node, "this is not None")
            return value.value
        return value

    # ---- names, fields, indexes

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
        joined: Seq | None = None
        for part in node.elts:
            value = self.value(part.value if isinstance(part, ast.Starred) else part, place)
            if isinstance(part, ast.Starred) and isinstance(value, Seq):
                before = self._with_all(joined or Seq.empty(value.kind, value.measures), values, place, node)
                joined, values = (before.joined(value) if joined or values else value), []
            elif isinstance(part, ast.Starred) and not isinstance(value, tuple):
                return self.fresh(object, "tuple", place)  # a token: its elements are not known
            else:
                values += value if isinstance(part, ast.Starred) else [value]
        return self._with_all(joined, values, place, node) if joined else tuple(values)

    def _with_all(self, seq: Seq, values: Sequence[Any], place: Place, node: ast.AST) -> Seq:
        """Returns a sequence with values appended; they may be None only if the element type is optional."""
        may_be_none = type(None) in get_args(seq.kind)
        for each in values:
            seq = seq.appended(each if may_be_none else self.not_none(each, place, node))
        return seq

    def inside(self, index: ast.expr, seq: Seq, place: Place, node: ast.AST) -> Any:
        """Returns an index. Raises UnsupportedError unless it is proved to be within the sequence."""
        where = self._place_in(index, seq, place)
        self.require(z3.And(where >= 0, where < seq.length), place, node, "the place is inside")
        return where

    def _place_in(self, index: ast.expr, seq: Seq, place: Place) -> Any:
        """Returns an index; a negative literal counts from the end."""
        where = as_term(self.not_none(self.value(index, place), place, index))
        match index:
            case ast.UnaryOp(ast.USub(), ast.Constant(int(number))) if number > 0:
                return seq.length + where
        return where

    def _end_in(self, index: ast.expr, seq: Seq, place: Place) -> Any:
        """Returns the end of a slice, at most the length of the sequence."""
        end = self._place_in(index, seq, place)
        if not self.can_be([*place.path.when, *place.extra, end > seq.length]):
            return end
        return z3.If(end < seq.length, end, seq.length)

    def _subscript(self, node: ast.Subscript, place: Place) -> Any:
        value, index = self.value(node.value, place), node.slice
        if isinstance(value, dict) and value:
            return self._looked_up(value, self.value(index, place), place, node)
        if isinstance(value, tuple) and value and not isinstance(index, ast.Slice):
            return self._one_of(value, self.value(index, place), place, node)
        if isinstance(value, Rec) and hasattr(value.kind, "item_of"):  # represents a tuple
            return value.kind.item_of(value, self.value(index, place))
        if isinstance(value, Seq) and isinstance(index, ast.Slice) and index.step is None:
            first = as_term(0) if index.lower is None else self._place_in(index.lower, value, place)
            end = value.length if index.upper is None else self._end_in(index.upper, value, place)
            self.require(z3.And(first >= 0, first <= end, end <= value.length), place, node, "the part is inside")
            return value.part(first, end)
        if isinstance(value, Seq) and not isinstance(index, ast.Slice):
            return value.at(self.inside(index, value, place, node))
        return refuse(node, "this index is not supported")

    def _looked_up(self, table: Mapping[Any, Any], key: Any, place: Place, node: ast.AST) -> Any:
        """Returns the value for a key of a dict constant. Raises UnsupportedError unless the key is proved present."""
        is_key = [as_term(equal(key, each)) for each in table]
        self.require(z3.Or(*is_key), place, node, "the key is there")
        *others, found = table.values()
        for here, value in zip(reversed(is_key[:-1]), reversed(others), strict=True):
            found = merged(here, value, found)
        return found

    def _one_of(self, values: Sequence[Any], index: Any, place: Place, node: ast.AST) -> Any:
        """Returns an element of a tuple of known length. Raises UnsupportedError unless the index is proved valid."""
        if isinstance(index, int) and -len(values) <= index < len(values):
            return values[index]
        if not z3.is_expr(index):
            return refuse(node, "this index is not supported")
        self.require(z3.And(index >= 0, index < len(values)), place, node, "the place is inside")
        found = values[-1]
        for i, value in reversed([*enumerate(values[:-1])]):
            found = merged(index == i, value, found)
        return found

    # ---- conditions

    def _unary(self, node: ast.UnaryOp, place: Place) -> Any:
        if isinstance(node.op, ast.Not):
            said = self.condition(node.operand, place)
            return not said if isinstance(said, bool) else z3.Not(said)
        value = self.not_none(self.value(node.operand, place), place, node)
        if isinstance(node.op, ast.Invert) and bitmasks.is_mask(value):
            return bitmasks.inverted(value)
        return -value if isinstance(node.op, ast.USub) else refuse(node, "this operation is not supported")

    def condition(self, node: ast.expr, place: Place) -> Any:
        """Returns the truth value of an expression."""
        return self._and_or_truth(node, place) if isinstance(node, ast.BoolOp) else truth(self.value(node, place))

    def _and_or_value(self, node: ast.BoolOp, place: Place) -> Any:
        """Returns the value of `and` or `or`: the operand that was evaluated last, a bool only if all operands are."""
        is_all, at, values = isinstance(node.op, ast.And), place, []
        for part in node.values:
            values.append(self.value(part, at))
            said = as_term(truth(values[-1]))
            at = at.also(said if is_all else z3.Not(said))
        if all(isinstance(each, bool) or (z3.is_bool(each) and not bitmasks.is_mask(each)) for each in values):
            return self._and_or_truth(node, place)
        *before, last = [int(v) if isinstance(v, bool) else operators.as_number(v) for v in values]
        for value in reversed(before):
            known = value.value if isinstance(value, Maybe) and not is_all else value  # a true operand is not None
            said = truth(value)
            last = merged(said, last, known) if is_all else merged(said, known, last)
        return last

    def _and_or_truth(self, node: ast.BoolOp, place: Place) -> Any:
        """Returns the truth value of `and` or `or`. Operands are evaluated with short-circuiting."""
        is_all, said = isinstance(node.op, ast.And), []
        for part in node.values:
            one = self.condition(part, place)
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
                inside = self.fresh(bool, "in", place)  # in a sequence of any length: unconstrained
                said.append(inside if isinstance(operator, ast.In) else z3.Not(inside))
            elif isinstance(operator, ast.Is | ast.IsNot) and isinstance(right, Rec | Maybe):
                same = self._same_object(left, right, place)
                said.append(same if isinstance(operator, ast.Is) else z3.Not(same))
            elif isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                left, right = self.not_none(left, place, node), self.not_none(right, place, node)
                said.append(operators.compared(operator, left, right, node))
            else:
                said.append(operators.compared(operator, left, right, node))
            left = right
        return said[0] if len(said) == 1 else z3.And(*[as_term(each) for each in said])

    def _same_object(self, left: Any, right: Any, place: Place) -> Any:
        """Returns `left is right` for records. Identity implies equality; elements at the same index are identical."""
        if left is right:
            return z3.BoolVal(True)
        same = self.fresh(bool, "is", place)
        place.learn(z3.Implies(same, as_term(equal(left, right))))
        ours, theirs = homes(left), homes(right)
        if ours and list(ours) == list(theirs):
            one, other = next(iter(ours.values())), next(iter(theirs.values()))
            there = as_term(equal(left, right)) if isinstance(left, Maybe) or isinstance(right, Maybe) else True
            place.learn(z3.Implies(z3.And(one == other, there), same))
        return same

    def _either(self, node: ast.IfExp, place: Place) -> Any:
        condition = self.condition(node.test, place)
        if isinstance(condition, bool):
            return self.value(node.body if condition else node.orelse, place)
        yes, no = place.also(condition), place.also(z3.Not(condition))
        for branch, other, never in ((node.body, yes, no), (node.orelse, no, yes)):
            if not self.can_be([*place.path.when, *never.extra]):
                return self.value(branch, other)
        return merged(condition, self.value(node.body, yes), self.value(node.orelse, no))

    # ---- comprehensions and calls

    def _comprehended(self, node: ast.ListComp | ast.GeneratorExp, place: Place) -> Any:
        """Returns the sequence of a comprehension: element by element, or, with a condition, see `_chosen`."""
        [generator, *more] = node.generators
        inner, number, name = _iterated(generator)
        over = self.value(inner, place)
        if more or place.index or not name:
            return refuse(node, "this comprehension is not supported")

        def named(item: Any, where: Any) -> Path:
            path = place.path.named(name, item)
            return path.named(number, as_term(where)) if number else path

        if isinstance(over, tuple) and not generator.ifs:
            places = [Place(named(each, i), place.space, place.extra) for i, each in enumerate(over)]
            return tuple([self.value(node.elt, each) for each in places])
        if not isinstance(over, Seq | Chosen):
            return self.fresh(object, "tuple", place) if z3.is_expr(over) else refuse(node, "over what is not known")
        self._made += 1
        about = f"{self._prefix}each#{self._made}"
        if generator.ifs or isinstance(over, Chosen):
            if number:
                return refuse(node, "this comprehension is not supported")
            return self._chosen(node, about, over, place)

        def at(where: Any) -> Any:
            kept = self._made, self._prefix  # fresh values of an element depend on its index only
            self._made, self._prefix = 0, f"{about}."
            inner = Place(named(over.at(where), where), place.space, place.extra, (as_term(where),))
            element = coerced(over.kind, self.value(node.elt, inner))
            self._made, self._prefix = kept
            return element

        return Seq(over.kind, over.length, at, {}, {}, over.roots)

    def _chosen(self, node: ast.ListComp | ast.GeneratorExp, about: str, over: Seq | Chosen, place: Place) -> Any:
        """Returns the result of a comprehension with a condition. Elements are evaluated only on demand."""
        [generator] = node.generators
        target = cast(ast.Name, generator.target)
        seen: dict[str, tuple[Any, Any, list[Any]]] = {}

        def look(where: Any) -> tuple[Any, Any, list[Any]]:
            where = as_term(where)
            text = where.sexpr()
            if text not in seen:
                kept = self._made, self._prefix  # as above
                self._made, self._prefix = 0, f"{about}."
                seen[text] = self._chosen_at(node, target.id, over, where, place)
                self._made, self._prefix = kept
            return seen[text]

        chosen = Chosen(over if isinstance(over, Seq) else over.over, look, about)
        self.chosen.append(chosen)
        if isinstance(node.elt, ast.Name) and node.elt.id == target.id and isinstance(over, Seq):
            return replace(Seq.unknown(over.kind, about), origin=chosen)
        return chosen

    def _chosen_at(
        self, node: ast.ListComp | ast.GeneratorExp, name: str, over: Seq | Chosen, where: Any, place: Place
    ) -> tuple[Any, Any, list[Any]]:
        """Returns whether an element is included, the resulting element, and the facts about both."""
        was, element, known = (True, over.at(where), []) if isinstance(over, Seq) else over.look(where)
        inner = Place(place.path.named(name, element), place.space, (*place.extra, as_term(was)), (where,))
        before, conditions = len(inner.path.when), [as_term(was)]
        for each in node.generators[0].ifs:
            conditions.append(as_term(self.condition(each, inner)))
            inner = inner.also(conditions[-1])
        item = self.value(node.elt, inner)
        if isinstance(item, Maybe) and not self.can_be([*inner.path.when, *inner.extra, z3.Not(item.defined)]):
            item = item.value
        return handed_out(z3.And(*conditions)), handed_out(item), [*known, *inner.path.when[before:]]

    def is_followed(self, function: Any) -> bool:
        """Returns whether calls of a function are inlined."""
        return isinstance(function, types.FunctionType) and function not in self.stubs and function not in self.havoc

    def _called(self, node: ast.Call, place: Place) -> Any:
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("_replace", "index"):
            return self._method(self.value(node.func.value, place), node.func.attr, node, place)
        function = uncached(self.value(node.func, place))
        if len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            if function in (operators.BUILT_IN["tuple"], operators.BUILT_IN["list"]):
                return self._comprehended(node.args[0], place)
            if function not in (operators.ANY_OF, operators.ALL_OF):
                return refuse(node, "this call is not supported")
            arguments = [self._comprehended(node.args[0], place)]
        else:
            arguments = [value for each in node.args for value in self._argument(each, place)]
        named = {k.arg or "": self.value(k.value, place) for k in node.keywords}
        if isinstance(function, type) and hasattr(function, "_fields"):
            fields = inspect.signature(function).bind(*arguments, **named)
            fields.apply_defaults()
            return Rec(function, dict(fields.arguments))
        if function is operators.SORTED and isinstance(arguments[0], Seq) and not named:
            self._made += 1
            return arguments[0].reordered(f"{self._prefix}sorted#{self._made}")
        if function is operators.SUM_OF and isinstance(arguments[0], Seq) and SUM not in arguments[0].totals:
            return self._summed(arguments[0], place)
        if function is operators.ANY_OF and isinstance(arguments[0], Seq):
            return self._any_of(arguments[0], place, node)
        if isinstance(function, operators.BuiltIn) and named.keys() <= {"default"}:
            if not function.takes_none:
                arguments = [self.not_none(each, place, node) for each in arguments]
            return function.of(*arguments, **named)
        return self._result(function, arguments, named, node, place)

    def _argument(self, node: ast.expr, place: Place) -> Sequence[Any]:
        """Returns the value of an argument, or the values of a starred one."""
        if not isinstance(node, ast.Starred):
            return [self.value(node, place)]
        several = self.value(node.value, place)
        if isinstance(several, Rec):
            return [*several.fields.values()]
        return several if isinstance(several, tuple) else refuse(node, "how many these are is not known")

    def _summed(self, seq: Seq, place: Place) -> Any:
        """Returns a fresh integer for a sum without a prefix sum; `sums` has its recursive definition."""
        any_item = seq.at(z3.Int("(place)"))
        if place.index or not z3.is_expr(operators.as_number(any_item)) or bitmasks.is_mask(any_item):
            return self.fresh(int, "sum", place)
        self._made += 1
        tally = Tally(f"{self._prefix}sum#{self._made}", seq.length, lambda at: (operators.as_number(seq.at(at)), []))
        self.sums.append(tally)
        if z3.is_bool(any_item):
            place.learn(z3.And(tally.whole() >= 0, tally.whole() <= seq.length))
        return tally.whole()

    def _any_of(self, seq: Seq, place: Place, node: ast.AST) -> Any:
        """Returns a fresh bool for `any` over a sequence; `anys` has the facts about it."""
        if place.index:
            return refuse(node, "any in a comprehension")
        said, where = self.fresh(bool, "any", place), self.fresh(int, "any at", place)

        def is_true(at: Any) -> Any:
            return z3.And(at >= 0, at < seq.length, as_term(truth(seq.at(at))))

        place.learn(z3.Implies(said, is_true(where)))
        self.anys.append(Some(where, lambda at: z3.Implies(is_true(as_term(at)), said)))
        return said

    def _result(
        self, function: Any, arguments: list[Any], named: Mapping[str, Any], node: ast.Call, place: Place
    ) -> Any:
        if isinstance(function, Choice):
            yes, no = place.also(function.when), place.also(z3.Not(function.when))
            then = self._result(function.then, arguments, named, node, yes)
            return merged(function.when, then, self._result(function.other, arguments, named, node, no))
        if not isinstance(function, types.FunctionType):
            if callable(function) and not z3.is_expr(function) and function in self.stubs:
                return self.stubs[function](*arguments, **named)
            return refuse(node, "this call is not supported")
        bound = inspect.signature(function).bind(*arguments, **named)
        bound.apply_defaults()
        if function in self.stubs:
            return self.stubs[function](*handed_out(bound.args), **bound.kwargs)
        if function in self.havoc:
            return self.fresh(get_type_hints(function, include_extras=True)["return"], function.__name__, place)
        when = [*place.path.when, *place.extra]
        ways = self.follow(function, bound.args, when, bound.kwargs)
        if any(len(way.when) > len(when) for way in ways):
            place.learn(z3.Or(*[z3.And(*way.when[len(when) :]) for way in ways]))  # one of them was taken
        return _merged_paths(ways, len(when))

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


def _iterated(generator: ast.comprehension) -> tuple[ast.expr, str, str]:
    """Returns the sequence of a comprehension, its index name if it enumerates, and its element name; '' for none."""
    match generator.iter, generator.target:
        case ast.Call(ast.Name("enumerate"), [inner], []), ast.Tuple([ast.Name(number), ast.Name(name)]):
            return inner, number, name
        case inner, ast.Name(name):
            return inner, "", name
    return generator.iter, "", ""


def _merged_paths(ways: Sequence[Path], known: int) -> Any:
    """Returns the merged value of several paths. The first `known` conditions of each are known to hold."""
    if not ways:
        raise UnsupportedError("a function that never comes to an end")
    value = ways[-1].value
    for way in reversed(ways[:-1]):
        value = merged(z3.And(*way.when[known:]), way.value, value)
    return value


def uncached(function: Any) -> Any:
    """Returns the function behind `lru_cache`, or the function itself."""
    return function.__wrapped__ if isinstance(function, functools._lru_cache_wrapper) else function


def refuse(node: ast.AST, why: str) -> NoReturn:
    """Raises UnsupportedError with the offending source."""
    raise UnsupportedError(f"{why}: {ast.unparse(node)}")
