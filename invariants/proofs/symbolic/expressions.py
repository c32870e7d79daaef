"""Symbolic evaluation of expressions; statements, paths and loops are in `reader.py`.

An expression is evaluated in a `Context`: its path, and the conditions of the operators around it. In `x is not None
and x.size`, the field is read under the condition that x is not None. An operation that could raise an exception must
be proved safe under all these conditions (`require`).
"""

from __future__ import annotations

import ast
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn, cast, get_args, get_origin, get_type_hints

import z3  # type: ignore[import-untyped]

from invariants.proofs.symbolic import bitmasks, operators
from invariants.proofs.symbolic.forgetting import maybe_forgotten
from invariants.proofs.symbolic.values import (
    FORGETS,
    SUM,
    Choice,
    Filtered,
    Maybe,
    Rec,
    RecursiveSum,
    Seq,
    UnsupportedError,
    as_term,
    coerced,
    column_indexes,
    equal,
    lifted,
    merged,
    truth,
    unknown,
)

#: A key of `Path.names` that is no variable's name. Its value is the set of parameters that the path has not assigned.
UNASSIGNED_PARAMETERS = ""
#: The solver's two limits for one question about a path. `rlimit` limits the work that Z3 counts, to about a second; so
#: the answer does not depend on the load of the machine. The timeout, in milliseconds, is for work that Z3 does not
#: count.
_WORK, _WAITING_MS = 30_000_000, 5_000


def can_hold(facts: Sequence[Any]) -> bool:
    """Returns whether the facts are satisfiable, or the solver cannot tell."""
    solver = z3.Solver()
    solver.set("rlimit", _WORK)
    solver.set("timeout", _WAITING_MS)
    solver.add(*facts)
    return bool(solver.check() != z3.unsat)


class PathCondition(z3.BoolRef):  # type: ignore[misc]
    """A condition from the source of the function. Any other condition of a path is an assumption of the proof."""

    @staticmethod
    def of(condition: Any) -> Any:
        """Returns the condition as a PathCondition."""
        term = as_term(condition)
        return PathCondition(term.as_ast(), term.ctx)


class Path:
    """A path through a function: its conditions, the values of its names, and how it ends."""

    def __init__(self, names: Mapping[str, Any], when: Sequence[Any] = (), exit: str = "next", value: Any = None):
        """`exit` is next, return, break or continue; `value` is the returned value."""
        self.names, self.when, self.exit, self.value = dict(names), list(when), exit, value

    def also(self, condition: Any) -> Path:
        """Returns the path with one more condition, which is not marked as a path condition."""
        return Path(self.names, [*self.when, condition], self.exit, self.value)

    def conditions(self) -> list[Any]:
        """Returns the path conditions. For given inputs, exactly one path of a function has only true ones."""
        return [each for each in self.when if isinstance(each, PathCondition)]

    def branch(self, condition: Any) -> Path:
        """Returns the path with one more path condition."""
        return self.also(PathCondition.of(condition))

    def named(self, name: str, value: Any) -> Path:
        """Returns the path after an assignment to a name."""
        own = {UNASSIGNED_PARAMETERS: self.names.get(UNASSIGNED_PARAMETERS, frozenset()) - {name}}
        return Path({**self.names, **own, name: value}, self.when, self.exit, self.value)


class Context:
    """The context of an expression: its path, the module's names, and the conditions under which it is evaluated."""

    def __init__(
        self, path: Path, globals_: Mapping[str, Any], extra: tuple[Any, ...] = (), index: tuple[Any, ...] = ()
    ):
        """`extra` are the conditions of the operators. `index` has the index of a comprehension's element, or nothing.

        Fresh values inside a comprehension are functions of this index.
        """
        self.path, self.globals_, self.extra, self.index = path, globals_, extra, index

    def also(self, condition: Any) -> Context:
        """Returns the context with one more condition."""
        return Context(self.path, self.globals_, (*self.extra, as_term(condition)), self.index)

    def add_fact(self, fact: Any) -> None:
        """Adds a fact to the path conditions, under the conditions of this context."""
        self.path.when.append(PathCondition.of(z3.Implies(z3.And(*self.extra), fact) if self.extra else fact))


class AnyFacts(NamedTuple):
    """The facts about a call of `any`."""

    element_index: Any  # if the result is true, the index of a true element
    fact: Callable[[Any], Any]  # for an index i: if the i-th element is true, the result is true


class Expressions:
    """Evaluates expressions symbolically. `Reader` documents the arguments."""

    def __init__(
        self,
        given: Sequence[Any],
        havoc: Sequence[Callable[..., Any]],
        stubs: Mapping[Callable[..., Any], Callable[..., Any]],
    ) -> None:
        self.given, self.havoc = list(given), tuple([uncached(each) for each in havoc])
        self.stubs = {uncached(each): other for each, other in stubs.items()}
        self._fresh_count, self._prefix = 0, ""
        # in the order of evaluation:
        self.filtered: list[Filtered] = []  # each comprehension with a condition
        self.any_facts: list[AnyFacts] = []  # the facts about each `any` over a sequence
        self.sums: list[RecursiveSum] = []  # each `sum` over a sequence that has no prefix sum
        self._handlers: dict[type[ast.expr], Callable[[Any, Context], Any]] = {
            ast.Constant: lambda node, context: node.value,
            ast.Name: self._name,
            ast.Attribute: lambda node, context: self._attribute(
                self.value(node.value, context), node.attr, node, context
            ),
            ast.Tuple: self._tuple,
            ast.List: self._tuple,
            ast.BoolOp: self._and_or_value,
            ast.UnaryOp: self._unary,
            ast.BinOp: self._binary,
            ast.Compare: self._compared,
            ast.IfExp: self._either,
            ast.Subscript: self._subscript,
            ast.JoinedStr: lambda node, context: self.fresh(object, "text", context),  # unconstrained
            ast.ListComp: self._comprehended,
            ast.Call: self._called,
        }

    def inline(
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
        return maybe_forgotten(_merged_paths(self.inline(function, arguments, when), len(when)))

    def is_possible(self, conditions: Sequence[Any]) -> bool:
        """Returns whether the conditions are satisfiable, or the solver cannot tell."""
        return can_hold([*self.given, *conditions])

    def require(self, condition: Any, context: Context, node: ast.AST, what: str) -> None:
        """Raises UnsupportedError unless the condition is proved in this context; `what` names it in the message."""
        if not FORGETS.get() and self.is_possible([*context.path.when, *context.extra, z3.Not(as_term(condition))]):
            refuse(node, f"cannot show that {what}")

    def fresh(self, kind: Any, about: str, context: Context | None = None) -> Any:
        """Returns a fresh unconstrained value of a type; `about` begins its name.

        In the context of a comprehension, the value is a function of the comprehension's index.
        """
        self._fresh_count += 1
        item = get_origin(kind) not in (list, tuple)
        return unknown(
            kind, f"{self._prefix}{about}#{self._fresh_count}", *(context.index if context else ()), item=item
        )

    @contextmanager
    def _names_of_elements(self, about: str) -> Iterator[None]:
        """In the `with` body, fresh values are numbered from 1, and their names begin with `about`.

        A comprehension evaluates its element once for each index that a proof asks for. The names are the same each
        time, so a fresh value is one function of the index.
        """
        kept = self._fresh_count, self._prefix
        self._fresh_count, self._prefix = 0, f"{about}."
        try:
            yield
        finally:
            self._fresh_count, self._prefix = kept

    def value(self, node: ast.expr, context: Context) -> Any:
        """Returns the value of an expression. Raises UnsupportedError if it is not supported or not safe."""
        handler = self._handlers.get(type(node))
        return handler(node, context) if handler else refuse(node, "this expression is not supported")

    def _binary(self, node: ast.BinOp, context: Context) -> Any:
        left = self.not_none(self.value(node.left, context), context, node)
        right = self.not_none(self.value(node.right, context), context, node)
        if isinstance(node.op, ast.LShift | ast.RShift) and z3.is_expr(right):
            self.require(right >= 0, context, node, "the shift is not negative")
        if isinstance(node.op, ast.Div | ast.FloorDiv):
            self.require(operators.compared(ast.NotEq(), right, 0, node), context, node, "the divisor is not zero")
        return operators.binary(node.op, left, right, node)

    def not_none(self, value: Any, context: Context, node: ast.AST) -> Any:
        """Returns the value of a Maybe. Raises UnsupportedError unless it is proved not to be None."""
        if isinstance(value, Maybe):
            self.require(value.defined, context, node, "this is not None")
            return value.value
        return value

    # ---- names, fields, indexes

    def _name(self, node: ast.Name, context: Context) -> Any:
        for globals_ in (context.path.names, context.globals_, operators.BUILT_IN):
            if node.id in globals_:
                value = globals_[node.id]
                return lifted(value) if hasattr(value, "_fields") and isinstance(value, tuple) else value
        return refuse(node, f"the name {node.id} is not defined here")

    def _attribute(self, value: Any, name: str, node: ast.expr, context: Context) -> Any:
        value = self.not_none(value, context, node)
        if isinstance(value, Rec) and name in value.fields:
            return value.fields[name]
        if isinstance(value, types.ModuleType):
            return getattr(value, name)
        return refuse(node, f"there is no attribute {name}")

    def _tuple(self, node: ast.Tuple | ast.List, context: Context) -> Any:
        """Returns a tuple of known length, or with a starred sequence a `Seq`: `joined`, followed by `values`."""
        values: list[Any] = []
        joined: Seq | None = None
        for part in node.elts:
            value = self.value(part.value if isinstance(part, ast.Starred) else part, context)
            if isinstance(part, ast.Starred) and isinstance(value, Seq):
                before = self._with_all(joined or Seq.empty(value.kind, value.measures), values, context, node)
                joined, values = (before.joined(value) if joined or values else value), []
            elif isinstance(part, ast.Starred) and not isinstance(value, tuple):
                return self.fresh(object, "tuple", context)  # a token: its elements are not known
            else:
                values += value if isinstance(part, ast.Starred) else [value]
        return self._with_all(joined, values, context, node) if joined else tuple(values)

    def _with_all(self, seq: Seq, values: Sequence[Any], context: Context, node: ast.AST) -> Seq:
        """Returns a sequence with values appended; they may be None only if the element type is optional."""
        may_be_none = type(None) in get_args(seq.kind)
        for each in values:
            seq = seq.appended(each if may_be_none else self.not_none(each, context, node))
        return seq

    def inside(self, index: ast.expr, seq: Seq, context: Context, node: ast.AST) -> Any:
        """Returns an index. Raises UnsupportedError unless it is proved to be within the sequence."""
        element_index = self._index_in(index, seq, context)
        self.require(z3.And(element_index >= 0, element_index < seq.length), context, node, "the index is in range")
        return element_index

    def _index_in(self, index: ast.expr, seq: Seq, context: Context) -> Any:
        """Returns an index; a negative literal counts from the end."""
        element_index = as_term(self.not_none(self.value(index, context), context, index))
        match index:
            case ast.UnaryOp(ast.USub(), ast.Constant(int(number))) if number > 0:
                return seq.length + element_index
        return element_index

    def _end_in(self, index: ast.expr, seq: Seq, context: Context) -> Any:
        """Returns the end of a slice, at most the length of the sequence."""
        end = self._index_in(index, seq, context)
        if not self.is_possible([*context.path.when, *context.extra, end > seq.length]):
            return end
        return z3.If(end < seq.length, end, seq.length)

    def _subscript(self, node: ast.Subscript, context: Context) -> Any:
        """Returns an element or a slice. Raises UnsupportedError unless the index is proved to be in range."""
        value, index = self.value(node.value, context), node.slice
        if isinstance(value, dict) and value:
            return self._looked_up(value, self.value(index, context), context, node)
        if isinstance(value, tuple) and value and not isinstance(index, ast.Slice):
            return self._one_of(value, self.value(index, context), context, node)
        if isinstance(value, Rec) and hasattr(value.kind, "item_of"):  # represents a tuple
            return value.kind.item_of(value, self.value(index, context))
        if isinstance(value, Seq) and isinstance(index, ast.Slice) and index.step is None:
            first = as_term(0) if index.lower is None else self._index_in(index.lower, value, context)
            end = value.length if index.upper is None else self._end_in(index.upper, value, context)
            self.require(z3.And(first >= 0, first <= end, end <= value.length), context, node, "the slice is in range")
            return value.part(first, end)
        if isinstance(value, Seq) and not isinstance(index, ast.Slice):
            return value.at(self.inside(index, value, context, node))
        return refuse(node, "this index is not supported")

    def _looked_up(self, table: Mapping[Any, Any], key: Any, context: Context, node: ast.AST) -> Any:
        """Returns the value for a key of a module's dict. Raises UnsupportedError unless the key is proved present."""
        is_key = [as_term(equal(key, each)) for each in table]
        self.require(z3.Or(*is_key), context, node, "the key is present")
        *others, found = table.values()
        for here, value in zip(reversed(is_key[:-1]), reversed(others), strict=True):
            found = merged(here, value, found)
        return found

    def _one_of(self, values: Sequence[Any], index: Any, context: Context, node: ast.AST) -> Any:
        """Returns an element of a tuple of known length. Raises UnsupportedError unless the index is proved valid."""
        if isinstance(index, int) and -len(values) <= index < len(values):
            return values[index]
        if not z3.is_expr(index):
            return refuse(node, "this index is not supported")
        self.require(z3.And(index >= 0, index < len(values)), context, node, "the index is in range")
        found = values[-1]
        for i, value in reversed([*enumerate(values[:-1])]):
            found = merged(index == i, value, found)
        return found

    # ---- conditions

    def _unary(self, node: ast.UnaryOp, context: Context) -> Any:
        if isinstance(node.op, ast.Not):
            result = self.condition(node.operand, context)
            return not result if isinstance(result, bool) else z3.Not(result)
        value = self.not_none(self.value(node.operand, context), context, node)
        if isinstance(node.op, ast.Invert) and bitmasks.is_mask(value):
            return bitmasks.inverted(value)
        return -value if isinstance(node.op, ast.USub) else refuse(node, "this operation is not supported")

    def condition(self, node: ast.expr, context: Context) -> Any:
        """Returns the truth value of an expression."""
        return self._and_or_truth(node, context) if isinstance(node, ast.BoolOp) else truth(self.value(node, context))

    def _and_or_value(self, node: ast.BoolOp, context: Context) -> Any:
        """Returns the value of `and` or `or`: the operand that was evaluated last, a bool only if all operands are."""
        is_all, at, values = isinstance(node.op, ast.And), context, []
        for part in node.values:
            values.append(self.value(part, at))
            result = as_term(truth(values[-1]))
            at = at.also(result if is_all else z3.Not(result))
        if all(isinstance(each, bool) or (z3.is_bool(each) and not bitmasks.is_mask(each)) for each in values):
            return self._and_or_truth(node, context)
        *before, last = [int(v) if isinstance(v, bool) else operators.as_number(v) for v in values]
        for value in reversed(before):
            known = value.value if isinstance(value, Maybe) and not is_all else value  # a true operand is not None
            result = truth(value)
            last = merged(result, last, known) if is_all else merged(result, known, last)
        return last

    def _and_or_truth(self, node: ast.BoolOp, context: Context) -> Any:
        """Returns the truth value of `and` or `or`. Operands are evaluated with short-circuiting."""
        is_all, result = isinstance(node.op, ast.And), []
        for part in node.values:
            one = self.condition(part, context)
            if isinstance(one, bool) and one is not is_all:
                result.append(z3.BoolVal(one))
                break
            if not isinstance(one, bool):
                result.append(one)
                context = context.also(one if is_all else z3.Not(one))
        if not result:
            return is_all
        return z3.And(*result) if is_all else z3.Or(*result)

    def _compared(self, node: ast.Compare, context: Context) -> Any:
        result, left = [], self.value(node.left, context)
        for operator, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.value(comparator, context)
            if isinstance(operator, ast.In | ast.NotIn) and not isinstance(right, tuple):
                inside = self.fresh(bool, "in", context)  # membership in a sequence of any length: unconstrained
                result.append(inside if isinstance(operator, ast.In) else z3.Not(inside))
            elif isinstance(operator, ast.Is | ast.IsNot) and isinstance(right, Rec | Maybe):
                same = self._same_object(left, right, context)
                result.append(same if isinstance(operator, ast.Is) else z3.Not(same))
            elif isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                left, right = self.not_none(left, context, node), self.not_none(right, context, node)
                result.append(operators.compared(operator, left, right, node))
            else:
                result.append(operators.compared(operator, left, right, node))
            left = right
        return result[0] if len(result) == 1 else z3.And(*[as_term(each) for each in result])

    def _same_object(self, left: Any, right: Any, context: Context) -> Any:
        """Returns `left is right` for records: any value, except for two facts.

        Identical records are equal. Elements of one sequence at the same index are identical.
        """
        if left is right:
            return z3.BoolVal(True)
        same = self.fresh(bool, "is", context)
        context.add_fact(z3.Implies(same, as_term(equal(left, right))))
        ours, theirs = column_indexes(left), column_indexes(right)
        if ours and list(ours) == list(theirs):
            one, other = next(iter(ours.values())), next(iter(theirs.values()))
            there = as_term(equal(left, right)) if isinstance(left, Maybe) or isinstance(right, Maybe) else True
            context.add_fact(z3.Implies(z3.And(one == other, there), same))
        return same

    def _either(self, node: ast.IfExp, context: Context) -> Any:
        condition = self.condition(node.test, context)
        if isinstance(condition, bool):
            return self.value(node.body if condition else node.orelse, context)
        yes, no = context.also(condition), context.also(z3.Not(condition))
        for branch, here, elsewhere in ((node.body, yes, no), (node.orelse, no, yes)):
            if not self.is_possible([*context.path.when, *elsewhere.extra]):
                return self.value(branch, here)
        return merged(condition, self.value(node.body, yes), self.value(node.orelse, no))

    # ---- comprehensions and calls

    def _comprehended(self, node: ast.ListComp | ast.GeneratorExp, context: Context) -> Any:
        """Returns the sequence of a comprehension; with a condition, the result of `_filtered`."""
        [generator, *more] = node.generators
        inner, number, name = _iterated(generator)
        over = self.value(inner, context)
        if more or context.index or not name:
            return refuse(node, "this comprehension is not supported")

        def named(item: Any, element_index: Any) -> Path:
            path = context.path.named(name, item)
            return path.named(number, as_term(element_index)) if number else path

        if isinstance(over, tuple) and not generator.ifs:
            contexts = [Context(named(each, i), context.globals_, context.extra) for i, each in enumerate(over)]
            return tuple([self.value(node.elt, each) for each in contexts])
        if z3.is_expr(over):
            return self.fresh(object, "tuple", context)  # the elements of a token are not known
        if not isinstance(over, Seq | Filtered):
            return refuse(node, "the iterated value is not a sequence")
        self._fresh_count += 1
        about = f"{self._prefix}each#{self._fresh_count}"
        if generator.ifs or isinstance(over, Filtered):
            if number:
                return refuse(node, "this comprehension is not supported")
            return self._filtered(node, about, over, context)

        def at(element_index: Any) -> Any:
            with self._names_of_elements(about):
                path, index = named(over.at(element_index), element_index), (as_term(element_index),)
                inner = Context(path, context.globals_, context.extra, index)
                return coerced(over.kind, self.value(node.elt, inner))

        return Seq(over.kind, over.length, at, {}, {}, over.roots)

    def _filtered(
        self, node: ast.ListComp | ast.GeneratorExp, about: str, over: Seq | Filtered, context: Context
    ) -> Any:
        """Returns the result of a comprehension with a condition, and adds a `Filtered` to `filtered`.

        The result is the `Filtered`; but for `[x for x in xs if ...]`, with unchanged elements, it is an unconstrained
        sequence whose `origin` is the `Filtered`.
        """
        [generator] = node.generators
        target = cast(ast.Name, generator.target)
        seen: dict[str, tuple[Any, Any, list[Any]]] = {}

        def element_at(element_index: Any) -> tuple[Any, Any, list[Any]]:
            element_index = as_term(element_index)
            text = element_index.sexpr()
            if text not in seen:
                with self._names_of_elements(about):
                    seen[text] = self._filtered_at(node, target.id, over, element_index, context)
            return seen[text]

        filtered = Filtered(over if isinstance(over, Seq) else over.over, element_at, about)
        self.filtered.append(filtered)
        if isinstance(node.elt, ast.Name) and node.elt.id == target.id and isinstance(over, Seq):
            return replace(Seq.unknown(over.kind, about), origin=filtered)
        return filtered

    def _filtered_at(
        self,
        node: ast.ListComp | ast.GeneratorExp,
        name: str,
        over: Seq | Filtered,
        element_index: Any,
        context: Context,
    ) -> tuple[Any, Any, list[Any]]:
        """Returns whether an element is included, the resulting element, and the facts about both."""
        # `was` is whether `over` includes the element, if `over` is a `Filtered` itself
        was, element, known = (
            (True, over.at(element_index), []) if isinstance(over, Seq) else over.element_at(element_index)
        )
        inner = Context(
            context.path.named(name, element), context.globals_, (*context.extra, as_term(was)), (element_index,)
        )
        before, conditions = len(inner.path.when), [as_term(was)]
        for each in node.generators[0].ifs:
            conditions.append(as_term(self.condition(each, inner)))
            inner = inner.also(conditions[-1])
        item = self.value(node.elt, inner)
        if isinstance(item, Maybe) and not self.is_possible([*inner.path.when, *inner.extra, z3.Not(item.defined)]):
            item = item.value
        return maybe_forgotten(z3.And(*conditions)), maybe_forgotten(item), [*known, *inner.path.when[before:]]

    def is_inlined(self, function: Any) -> bool:
        """Returns whether calls of a function are inlined."""
        return isinstance(function, types.FunctionType) and function not in self.stubs and function not in self.havoc

    def _called(self, node: ast.Call, context: Context) -> Any:
        """Returns the value of a call: of a method, a constructor, a built-in function, or a function of a module."""
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("_replace", "index"):
            return self._method(self.value(node.func.value, context), node.func.attr, node, context)
        function = uncached(self.value(node.func, context))
        if len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            if function in (operators.BUILT_IN["tuple"], operators.BUILT_IN["list"]):
                return self._comprehended(node.args[0], context)
            if function not in (operators.ANY_OF, operators.ALL_OF):
                return refuse(node, "this call is not supported")
            arguments = [self._comprehended(node.args[0], context)]
        else:
            arguments = [value for each in node.args for value in self._argument(each, context)]
        named = {k.arg or "": self.value(k.value, context) for k in node.keywords}
        if isinstance(function, type) and hasattr(function, "_fields"):
            fields = inspect.signature(function).bind(*arguments, **named)
            fields.apply_defaults()
            return Rec(function, dict(fields.arguments))
        if function is operators.SORTED and isinstance(arguments[0], Seq) and not named:
            self._fresh_count += 1
            return arguments[0].reordered(f"{self._prefix}sorted#{self._fresh_count}")
        if function is operators.SUM_OF and isinstance(arguments[0], Seq) and SUM not in arguments[0].totals:
            return self._summed(arguments[0], context)
        if function is operators.ANY_OF and isinstance(arguments[0], Seq):
            return self._any_of(arguments[0], context, node)
        if isinstance(function, operators.BuiltIn) and named.keys() <= {"default"}:
            if not function.takes_none:
                arguments = [self.not_none(each, context, node) for each in arguments]
            return function.of(*arguments, **named)
        return self._result(function, arguments, named, node, context)

    def _argument(self, node: ast.expr, context: Context) -> Sequence[Any]:
        """Returns the value of an argument, or the values of a starred one."""
        if not isinstance(node, ast.Starred):
            return [self.value(node, context)]
        several = self.value(node.value, context)
        if isinstance(several, Rec):
            return [*several.fields.values()]
        return several if isinstance(several, tuple) else refuse(node, "the number of starred arguments is not known")

    def _summed(self, seq: Seq, context: Context) -> Any:
        """Returns a fresh integer for a sum without a prefix sum; `sums` has its recursive definition.

        There is no definition in a comprehension, and none if the elements are not numbers.
        """
        any_item = seq.at(z3.Int("(index)"))
        if context.index or not z3.is_expr(operators.as_number(any_item)) or bitmasks.is_mask(any_item):
            return self.fresh(int, "sum", context)
        self._fresh_count += 1
        recursive_sum = RecursiveSum(
            f"{self._prefix}sum#{self._fresh_count}", seq.length, lambda at: (operators.as_number(seq.at(at)), [])
        )
        self.sums.append(recursive_sum)
        if z3.is_bool(any_item):
            context.add_fact(z3.And(recursive_sum.whole() >= 0, recursive_sum.whole() <= seq.length))
        return recursive_sum.whole()

    def _any_of(self, seq: Seq, context: Context, node: ast.AST) -> Any:
        """Returns a fresh bool for `any` over a sequence; `any_facts` has the facts about it."""
        if context.index:
            return refuse(node, "`any` in a comprehension is not supported")
        result, element_index = self.fresh(bool, "any", context), self.fresh(int, "any at", context)

        def is_true(at: Any) -> Any:
            return z3.And(at >= 0, at < seq.length, as_term(truth(seq.at(at))))

        context.add_fact(z3.Implies(result, is_true(element_index)))
        self.any_facts.append(AnyFacts(element_index, lambda at: z3.Implies(is_true(as_term(at)), result)))
        return result

    def _result(
        self, function: Any, arguments: list[Any], named: Mapping[str, Any], node: ast.Call, context: Context
    ) -> Any:
        """Returns the value of a call: that of the function's stub; else any value, if the function is in `havoc`.

        The source of any other function is inlined.
        """
        if isinstance(function, Choice):
            yes, no = context.also(function.when), context.also(z3.Not(function.when))
            then = self._result(function.then, arguments, named, node, yes)
            return merged(function.when, then, self._result(function.other, arguments, named, node, no))
        if not isinstance(function, types.FunctionType):
            if callable(function) and not z3.is_expr(function) and function in self.stubs:
                return self.stubs[function](*arguments, **named)
            return refuse(node, "this call is not supported")
        bound = inspect.signature(function).bind(*arguments, **named)
        bound.apply_defaults()
        if function in self.stubs:
            return self.stubs[function](*maybe_forgotten(bound.args), **bound.kwargs)
        if function in self.havoc:
            return self.fresh(get_type_hints(function, include_extras=True)["return"], function.__name__, context)
        when = [*context.path.when, *context.extra]
        paths = self.inline(function, bound.args, when, bound.kwargs)
        if any(len(path.when) > len(when) for path in paths):
            context.add_fact(z3.Or(*[z3.And(*path.when[len(when) :]) for path in paths]))  # one of the paths was taken
        return _merged_paths(paths, len(when))

    def _method(self, value: Any, name: str, node: ast.Call, context: Context) -> Any:
        value = self.not_none(value, context, node)
        if name == "_replace" and isinstance(value, Rec) and not node.args:
            return value.replace({k.arg or "": self.value(k.value, context) for k in node.keywords})
        if name == "index" and isinstance(value, Seq) and len(node.args) == 1:
            # claims are about calls that return, so `index` finds the item; which one of several is not determined
            element_index, item = self.fresh(int, "index", context), self.value(node.args[0], context)
            is_there = z3.And(
                element_index >= 0, element_index < value.length, as_term(equal(value.at(element_index), item))
            )
            context.add_fact(is_there)
            return element_index
        return refuse(node, f"the method {name} is not supported")


def _iterated(generator: ast.comprehension) -> tuple[ast.expr, str, str]:
    """Returns the sequence of a comprehension, its index name if it enumerates, and its element name; '' for none."""
    match generator.iter, generator.target:
        case ast.Call(ast.Name("enumerate"), [inner], []), ast.Tuple([ast.Name(number), ast.Name(name)]):
            return inner, number, name
        case inner, ast.Name(name):
            return inner, "", name
    return generator.iter, "", ""


def _merged_paths(paths: Sequence[Path], known: int) -> Any:
    """Returns the merged value of several paths. The first `known` conditions of each are known to hold."""
    if not paths:
        raise UnsupportedError("no path through a function returns")
    value = paths[-1].value
    for path in reversed(paths[:-1]):
        value = merged(z3.And(*path.when[known:]), path.value, value)
    return value


def uncached(function: Any) -> Any:
    """Returns the function behind `lru_cache`, or the function itself."""
    return function.__wrapped__ if isinstance(function, functools._lru_cache_wrapper) else function


def refuse(node: ast.AST, why: str) -> NoReturn:
    """Raises UnsupportedError with the offending source."""
    raise UnsupportedError(f"{why}: {ast.unparse(node)}")
