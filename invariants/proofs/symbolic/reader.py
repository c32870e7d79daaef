"""Symbolic execution of Python source: translates a function of the model into Z3 terms, so that a proof is about the
code that runs.

All inputs are followed at once. An `if` on a symbolic condition forks into two paths (`Path`), each with its path
condition. Calls are inlined; inside an expression, the paths of a call are merged into one value. An operation that
could raise, such as a field of None or an index out of range, must be proved safe where it occurs. Source outside the
subset raises UnsupportedError.

Loops are not unrolled: `Reader.loop` gives the paths before the loop, through one iteration from any state, and after
the loop, for an induction.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast, get_args

import z3  # type: ignore[import-untyped]

from invariants.proofs.symbolic.expressions import HANDED_IN, Expressions, Path, PathCondition, Place, refuse, uncached
from invariants.proofs.symbolic.forgetting import handed_out, handed_out_names
from invariants.proofs.symbolic.values import (
    FORGETS,
    Heard,
    Listener,
    Maybe,
    Measures,
    Rec,
    Seq,
    UnsupportedError,
    as_term,
)

__all__ = ["AT", "OVER", "Loop", "Path", "Reader", "source_of"]

#: Depth of nested calls; a deeper one is taken for a recursion.
DEEPEST = 20
#: names for the sequence that a `for` iterates over and the current index; no program has such names
OVER, AT = "(over)", "(at)"


class Reader(Expressions):
    """Executes functions symbolically under given facts."""

    def __init__(
        self,
        given: Sequence[Any] = (),
        *,
        havoc: Sequence[Callable[..., Any]] = (),
        stubs: Mapping[Callable[..., Any], Callable[..., Any]] | None = None,
        lists: Mapping[str, tuple[Any, Measures]] | None = None,
    ) -> None:
        """The result of a `havoc` function is any value of its type. `stubs` replaces functions by functions on terms.
        `lists` has the element type and measures of local lists, by name.
        """
        super().__init__(given, havoc, stubs or {})
        self.lists = dict(lists or {})
        self._depth = 0

    def paths(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        when: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
    ) -> list[Path]:
        """Returns the feasible paths through a function; `named` are its keyword arguments. Raises UnsupportedError."""
        ways = self.follow(function, arguments, when, named)
        if not ways:
            raise UnsupportedError(f"no path through {uncached(function).__name__} is feasible under the given facts")
        return self.assuming(ways)

    def assuming(self, ways: Sequence[Path]) -> list[Path]:
        """Returns the paths with the reader's facts, which are assumptions of every statement about a path."""
        made = []
        for way in ways:
            when = [each for each in way.when if not (FORGETS.get() and isinstance(each, PathCondition))]
            there = {each.get_id() for each in map(as_term, when)}
            more = [fact for fact in map(as_term, self.given) if fact.get_id() not in there]
            made.append(Path(handed_out_names(way.names), [*when, *more], way.how, handed_out(way.value)))
        return made

    def follow(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        when: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
    ) -> list[Path]:
        """Returns the feasible paths through an inlined function."""
        function = uncached(function)
        tree = source_of(function)
        if self._depth == DEEPEST:
            raise UnsupportedError(f"{function.__name__} calls itself, or too deep")
        self._depth += 1
        ways = self.run(tree.body, _start(function, arguments, when, named), _space(function))
        self._depth -= 1
        return [Path(w.names, w.when, "return", w.value) for w in ways]

    def loop(self, function: Callable[..., Any], which: int = 0) -> Loop:
        """Returns the outermost loop with index `which`. Raises UnsupportedError if there is none."""
        body = source_of(function).body
        found = [i for i, node in enumerate(body) if isinstance(node, ast.While | ast.For)]
        if len(found) <= which:
            raise UnsupportedError(f"{function.__name__} has {len(found)} loops")
        return Loop(self, function, body, found[which])

    # ---- statements

    def run(self, statements: Sequence[ast.stmt], path: Path, space: Mapping[str, Any]) -> list[Path]:
        """Returns the feasible paths through the statements."""
        going: list[Path] = [path]
        ended: list[Path] = []
        for statement in statements:
            ways = [w for p in going for w in self._told(statement, p, space) or self._statement(statement, p, space)]
            going = [w for w in ways if w.how == "next"]
            ended += [w for w in ways if w.how != "next"]
        return ended + going

    def _statement(self, node: ast.stmt, path: Path, space: Mapping[str, Any]) -> list[Path]:
        match node:
            case ast.Expr(ast.Constant()) | ast.Pass():
                return [path]
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "append"), [item])) if name in path.names:
                _check_own(name, path, node)
                return [self._appended(name, v, way, space, node) for way, v in self._ways(item, path, space)]
            case ast.Assign([target], value) | ast.AnnAssign(target, _, ast.expr() as value):
                return [self.assigned(target, v, way, space) for way, v in self._ways(value, path, space)]
            case ast.AugAssign(target, operator, value):
                change = ast.BinOp(_read_target(target), operator, value)
                return [self.assigned(target, v, way, space) for way, v in self._ways(change, path, space)]
            case ast.Raise():
                return []  # claims are about calls that return
            case ast.Assert():
                condition = self.condition(node.test, Place(path, space))
                return [path.branch(condition)]  # execution continues only if it holds
            case ast.If():
                return self._split(node, path, space)
            case ast.For(ast.Name(name), over, body, []):
                items = self.value(over, Place(path, space))
                if isinstance(items, tuple) and not hasattr(items, "_fields"):
                    return self._unrolled(name, items, body, path, space)
                return refuse(node, "a loop over any number of elements, in the middle of a function")
            case ast.Return(ast.Name(name)) if name in path.names and name not in path.names.get(HANDED_IN, ()):
                return [
                    Path(path.names, path.when, "return", path.names[name])
                ]  # no other name refers to it after the return
            case ast.Return(ast.expr() as value):
                return [Path(way.names, way.when, "return", v) for way, v in self._ways(value, path, space)]
            case ast.Return() | ast.Break() | ast.Continue():
                return [Path(path.names, path.when, type(node).__name__.lower())]
        return refuse(node, "this statement is not supported")

    def _ways(self, node: ast.expr, path: Path, space: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
        """Yields the values of an expression by path; paths of a call that is the whole expression stay apart."""
        way = Path(path.names, path.when)
        place = Place(way, space)
        plain = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords
        if isinstance(node, ast.Call) and plain and self.is_followed(function := self.value(node.func, place)):
            arguments = [self.value(a, place) for a in node.args]
            for inner in self.follow(function, arguments, way.when):
                yield Path(path.names, inner.when), inner.value
        elif isinstance(node, ast.IfExp):
            yield from self._either_way(node, path, space)
        else:
            value = self.value(node, place)
            if isinstance(node, ast.Name) and isinstance(value, Seq):
                refuse(node, "a second name for a sequence")  # aliasing: a change to one would change the other
            yield way, value

    def _either_way(self, node: ast.IfExp, path: Path, space: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
        """Yields a conditional expression, merged if both branches are feasible and have a common form."""
        condition = as_term(self.condition(node.test, Place(path, space)))
        cases = [(condition, node.body), (z3.Not(condition), node.orelse)]
        cases = [(case, branch) for case, branch in cases if self.can_be([*path.when, case])]
        if len(cases) == 2:
            way = Path(path.names, path.when)
            try:
                value = self.value(node, Place(way, space))
            except UnsupportedError:
                pass
            else:
                yield way, value
                return
        for case, branch in cases:
            yield from self._ways(branch, path.branch(case), space)

    def _told(self, node: ast.stmt, path: Path, space: Mapping[str, Any]) -> list[Path]:
        """Records a call on a listener and returns the path after it; returns [] for any other statement."""
        match node:
            case ast.Expr(ast.Call(ast.Attribute() as target, arguments, [])):
                what = ast.unparse(target)
            case ast.AugAssign(ast.Attribute() as target, ast.Add(), value):
                what, arguments = f"{ast.unparse(target)} +=", [value]
            case _:
                return []
        listener = _listener(target, path)
        if listener is None:
            return []
        way = Path(path.names, path.when)
        values = tuple([self.value(each, Place(way, space)) for each in arguments])
        listener.heard.append(
            Heard(what.partition(".")[2], handed_out(values), [handed_out(each) for each in way.when])
        )
        return [way]

    def _appended(self, name: str, item: Any, path: Path, space: Mapping[str, Any], node: ast.AST) -> Path:
        value = path.names[name]
        if not isinstance(value, Seq):
            return path.named(name, (*value, item))
        if isinstance(item, Maybe) and type(None) not in get_args(value.kind):
            item = self.not_none(item, Place(path, space), node)
        return path.named(name, value.appended(item))

    def _split(self, node: ast.If, path: Path, space: Mapping[str, Any]) -> list[Path]:
        condition = self.condition(node.test, Place(path, space))
        if isinstance(condition, bool):
            return self.run(node.body if condition else node.orelse, path, space)
        return [
            way
            for case, statements in ((condition, node.body), (z3.Not(condition), node.orelse))
            if self.can_be([*path.when, case])
            for way in self.run(statements, path.branch(case), space)
        ]

    def _unrolled(
        self, name: str, items: Sequence[Any], body: Sequence[ast.stmt], path: Path, space: Mapping[str, Any]
    ) -> list[Path]:
        """Unrolls a loop over a tuple of known length."""
        going, ended = [path], []
        for item in items:
            ways = [w for p in going for w in self.run(body, p.named(name, item), space)]
            ended += [w for w in ways if w.how == "return"]
            ended += [Path(w.names, w.when) for w in ways if w.how == "break"]
            going = [Path(w.names, w.when) for w in ways if w.how in ("next", "continue")]
        return ended + going

    def assigned(self, target: ast.expr, value: Any, path: Path, space: Mapping[str, Any]) -> Path:
        """Returns the path after an assignment. Raises UnsupportedError."""
        match target:
            case ast.Name(name):
                if name in self.lists and isinstance(value, tuple):
                    items, value = value, Seq.empty(*self.lists[name])
                    for item in items:
                        value = value.appended(item)
                return path.named(name, value)
            case ast.Tuple(targets) if isinstance(value, Rec) and len(value.fields) == len(targets):
                return self.assigned(target, tuple(value.fields.values()), path, space)
            case ast.Tuple(targets) if isinstance(value, tuple) and len(value) == len(targets):
                for each, v in zip(targets, value, strict=True):
                    path = self.assigned(each, v, path, space)
                return path
            case ast.Subscript(ast.Name(name), index) if isinstance(path.names.get(name), Seq):
                _check_own(name, path, target)
                where = self.inside(index, path.names[name], Place(path, space), target)
                return path.named(name, path.names[name].replaced(where, value))
        return refuse(target, "this assignment is not supported")


class Loop:
    """A loop of a function in three parts: the code before it, one iteration, and the code after it.

    For a `for`, the names OVER and AT are the sequence that it iterates over and the current index.
    """

    def __init__(self, reader: Reader, function: Callable[..., Any], body: Sequence[ast.stmt], at: int) -> None:
        self.reader, self.function, self.space = reader, function, _space(function)
        self.before, self.after = body[:at], body[at + 1 :]
        self.node = cast(Any, body[at])
        if self.node.orelse:
            refuse(self.node, "this loop is not supported")

    def begin(self, *arguments: Any) -> list[Path]:
        """Returns the paths to the loop head."""
        ways = self.reader.run(self.before, _start(self.function, arguments), self.space)
        if not isinstance(self.node, ast.While):
            ways = [
                w.named(OVER, self.over(w.names, w.when)).named(AT, z3.IntVal(0)) if w.how == "next" else w
                for w in ways
            ]
        return self.reader.assuming(ways)

    def over(self, names: Mapping[str, Any], when: Sequence[Any] = ()) -> Seq:
        """Returns the sequence that a `for` iterates over, also in `enumerate`. Raises UnsupportedError for others."""
        node = self._counted() or self.node.iter
        value = self.reader.value(node, Place(Path(names, when), self.space))
        return value if isinstance(value, Seq) else refuse(self.node, "this loop is not supported")

    def _counted(self) -> ast.expr | None:
        """Returns the argument of `enumerate`, if the loop iterates over one."""
        match self.node.iter:
            case ast.Call(ast.Name("enumerate"), [inner], []):
                return inner
        return None

    def goes_on(self, names: Mapping[str, Any]) -> Any:
        """Returns the loop condition."""
        if isinstance(self.node, ast.For):
            return names[AT] < names[OVER].length
        return as_term(self.reader.condition(self.node.test, Place(Path(names), self.space)))

    def round(self, names: Mapping[str, Any], when: Sequence[Any] = ()) -> list[Path]:
        """Returns the paths through one iteration from these names; those that reach the loop head end in `next`."""
        path = Path(names, when).branch(self.goes_on(names))
        if isinstance(self.node, ast.For):
            path = self._with_item(path)
        ways = self.reader.run(self.node.body, path, self.space)
        ways = [Path(w.names, w.when, "next" if w.how == "continue" else w.how, w.value) for w in ways]
        return self.reader.assuming(ways)

    def _with_item(self, path: Path) -> Path:
        at, item = path.names[AT], path.names[OVER].at(path.names[AT])
        match self.node.target:
            case ast.Name(name) if not self._counted():
                path = path.named(name, item)
            case ast.Tuple([ast.Name(number), ast.Name(name)]) if self._counted():
                path = path.named(number, at).named(name, item)
            case ast.Tuple() if not self._counted():
                path = self.reader.assigned(self.node.target, item, path, self.space)
            case _:
                refuse(self.node, "this loop is not supported")
        return path.named(AT, at + 1)

    def end(self, names: Mapping[str, Any], when: Sequence[Any] = ()) -> list[Path]:
        """Returns the paths from the end of the loop to the end of the function."""
        return self.reader.assuming(self.reader.run(self.after, Path(names, when), self.space))


def source_of(function: Callable[..., Any]) -> ast.FunctionDef:
    """Parses the source of a module-level function. Raises UnsupportedError for anything else."""
    if not isinstance(function, types.FunctionType) or function.__closure__:
        raise UnsupportedError(f"{function} is not a function of a module")
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise UnsupportedError(f"{function.__name__} is not a plain function")
    return tree


def _space(function: Any) -> Mapping[str, Any]:
    space: Mapping[str, Any] = function.__globals__
    return space


def _start(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    when: Sequence[Any] = (),
    named: Mapping[str, Any] | None = None,
) -> Path:
    """Returns the path at the start of a function, with its arguments bound."""
    bound = inspect.signature(function).bind(*arguments, **(named or {}))
    bound.apply_defaults()
    return Path({**bound.arguments, HANDED_IN: frozenset(bound.arguments)}, when)


def _listener(node: ast.expr, path: Path) -> Listener | None:
    """Returns the listener whose method is called, or one of whose attributes' methods, if any."""
    while isinstance(node, ast.Attribute):
        node = node.value
    owner = path.names.get(node.id) if isinstance(node, ast.Name) else None
    return owner if isinstance(owner, Listener) else None


def _check_own(name: str, path: Path, node: ast.AST) -> None:
    """Rejects a change to a list argument: the caller would see it."""
    if name in path.names.get(HANDED_IN, ()):
        refuse(node, f"{name} is an argument")


def _read_target(target: ast.expr) -> ast.expr:
    """Returns the target of an assignment as an expression."""
    read: ast.expr = ast.parse(ast.unparse(target), mode="eval").body
    return read
