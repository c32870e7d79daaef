"""Symbolic execution of Python source: translates functions into Z3 terms, path by path.

An `if` on a symbolic condition forks into two paths (`Path`), each with its path condition. Calls are inlined; inside
an expression, the paths of a call are merged into one value. An operation that could raise, such as a field of None or
an index out of range, must be proved safe where it occurs. Source outside the subset raises UnsupportedError.

A loop over a tuple of known length is unrolled. For any other loop, `Reader.loop` gives three sets of paths: those
before the loop, those through one iteration from any state, and those after the loop. A proof about the loop needs an
induction (`invariants/proofs/induction.py`).
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast, get_args

import z3  # type: ignore[import-untyped]

from invariants.proofs.symbolic.expressions import (
    UNASSIGNED_PARAMETERS,
    Context,
    Expressions,
    Path,
    PathCondition,
    refuse,
    uncached,
)
from invariants.proofs.symbolic.forgetting import maybe_forgotten, maybe_forgotten_names
from invariants.proofs.symbolic.values import (
    FORGETS,
    Listener,
    ListenerCall,
    Maybe,
    Measures,
    Rec,
    Seq,
    UnsupportedError,
    as_term,
)

__all__ = ["INDEX", "ITERATED", "Loop", "Path", "Reader", "source_of"]

#: Maximum depth of nested calls; a deeper call counts as recursion.
MAX_DEPTH = 20
#: names for the sequence that a `for` iterates over and the current index; no program has such names
ITERATED, INDEX = "(over)", "(at)"


class Reader(Expressions):
    """Executes functions symbolically under given facts.

    Every reader numbers its fresh constants from 1, so two readers may give one name to different constants. Combine
    values of two readers in a statement only if the names of their fresh constants differ.
    """

    def __init__(
        self,
        given: Sequence[Any] = (),
        *,
        havoc: Sequence[Callable[..., Any]] = (),
        stubs: Mapping[Callable[..., Any], Callable[..., Any]] | None = None,
        lists: Mapping[str, tuple[Any, Measures]] | None = None,
    ) -> None:
        """`given` are facts that hold on every path. A call of a `havoc` function returns any value of its type.

        `stubs` maps functions to the functions on terms that replace them. `lists` has, by name, the element type and
        the measures of local lists.
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
        """Returns the feasible paths through a function with symbolic or Python arguments.

        `when` are conditions at its start, `named` its keyword arguments. Raises UnsupportedError, also if no path is
        feasible.
        """
        paths = self.inline(function, arguments, when, named)
        if not paths:
            raise UnsupportedError(f"no path through {uncached(function).__name__} is feasible under the given facts")
        return self.assuming(paths)

    def assuming(self, paths: Sequence[Path]) -> list[Path]:
        """Returns the paths with the given facts added, and forgotten inside `unconstrained_results`."""
        made = []
        for path in paths:
            when = [each for each in path.when if not (FORGETS.get() and isinstance(each, PathCondition))]
            there = {each.get_id() for each in map(as_term, when)}
            more = [fact for fact in map(as_term, self.given) if fact.get_id() not in there]
            made.append(Path(maybe_forgotten_names(path.names), [*when, *more], path.exit, maybe_forgotten(path.value)))
        return made

    def inline(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        when: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
    ) -> list[Path]:
        """Returns the feasible paths through a function, without the given facts. Raises UnsupportedError."""
        function = uncached(function)
        tree = source_of(function)
        if self._depth == MAX_DEPTH:
            raise UnsupportedError(f"{function.__name__} is recursive, or nested calls are too deep")
        self._depth += 1
        try:
            paths = self.run(tree.body, _start(function, arguments, when, named), _globals_of(function))
        finally:
            self._depth -= 1
        return [Path(each.names, each.when, "return", each.value) for each in paths]

    def loop(self, function: Callable[..., Any], which: int = 0) -> Loop:
        """Returns the loop of index `which` among the loops that are statements of the function's body.

        Raises UnsupportedError if there is none.
        """
        body = source_of(function).body
        found = [i for i, node in enumerate(body) if isinstance(node, ast.While | ast.For)]
        if len(found) <= which:
            raise UnsupportedError(f"{function.__name__} has {len(found)} loops")
        return Loop(self, function, body, found[which])

    # ---- statements

    def run(self, statements: Sequence[ast.stmt], path: Path, globals_: Mapping[str, Any]) -> list[Path]:
        """Returns the feasible paths through the statements. A path that returns, breaks or continues ends there."""
        going: list[Path] = [path]
        ended: list[Path] = []
        for statement in statements:
            paths = [
                each
                for p in going
                for each in self._recorded_call(statement, p, globals_) or self._statement(statement, p, globals_)
            ]
            going = [each for each in paths if each.exit == "next"]
            ended += [each for each in paths if each.exit != "next"]
        return ended + going

    def _statement(self, node: ast.stmt, path: Path, globals_: Mapping[str, Any]) -> list[Path]:
        """Returns the feasible paths through one statement. Raises UnsupportedError."""
        match node:
            case ast.Expr(ast.Constant()) | ast.Pass():
                return [path]
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "append"), [item])) if name in path.names:
                _check_own(name, path, node)
                return [
                    self._appended(name, v, after, globals_, node)
                    for after, v in self._values_by_path(item, path, globals_)
                ]
            case ast.Assign([target], value) | ast.AnnAssign(target, _, ast.expr() as value):
                return [
                    self.assigned(target, v, after, globals_)
                    for after, v in self._values_by_path(value, path, globals_)
                ]
            case ast.AugAssign(target, operator, value):
                change = ast.BinOp(_read_target(target), operator, value)
                return [
                    self.assigned(target, v, after, globals_)
                    for after, v in self._values_by_path(change, path, globals_)
                ]
            case ast.Raise():
                return []  # claims are about calls that return
            case ast.Assert():
                condition = self.condition(node.test, Context(path, globals_))
                return [path.branch(condition)]  # execution continues only if the condition holds
            case ast.If():
                return self._split(node, path, globals_)
            case ast.For(ast.Name(name), over, body, []):
                items = self.value(over, Context(path, globals_))
                if isinstance(items, tuple) and not hasattr(items, "_fields"):
                    return self._unrolled(name, items, body, path, globals_)
                return refuse(node, "a loop over a sequence of unknown length is supported by Reader.loop only")
            case ast.Return(ast.Name(name)) if name in path.names and name not in path.names.get(
                UNASSIGNED_PARAMETERS, ()
            ):
                # after the return, no other name refers to the value
                return [Path(path.names, path.when, "return", path.names[name])]
            case ast.Return(ast.expr() as value):
                return [
                    Path(after.names, after.when, "return", v)
                    for after, v in self._values_by_path(value, path, globals_)
                ]
            case ast.Return() | ast.Break() | ast.Continue():
                return [Path(path.names, path.when, type(node).__name__.lower())]
        return refuse(node, "this statement is not supported")

    def _values_by_path(self, node: ast.expr, path: Path, globals_: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
        """Yields the value of an expression on each path. If it is a single call, the call's paths are not merged."""
        after = Path(path.names, path.when)
        context = Context(after, globals_)
        plain = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords
        if isinstance(node, ast.Call) and plain and self.is_inlined(function := self.value(node.func, context)):
            arguments = [self.value(a, context) for a in node.args]
            for inner in self.inline(function, arguments, after.when):
                yield Path(path.names, inner.when), inner.value
        elif isinstance(node, ast.IfExp):
            yield from self._conditional_by_path(node, path, globals_)
        else:
            value = self.value(node, context)
            if isinstance(node, ast.Name) and isinstance(value, Seq):
                refuse(node, "an alias of a sequence is not supported")  # a change to one name would change the other
            yield after, value

    def _conditional_by_path(
        self, node: ast.IfExp, path: Path, globals_: Mapping[str, Any]
    ) -> Iterator[tuple[Path, Any]]:
        """Yields a conditional expression, merged if both branches are feasible and have a common form."""
        condition = as_term(self.condition(node.test, Context(path, globals_)))
        cases = [(condition, node.body), (z3.Not(condition), node.orelse)]
        cases = [(case, branch) for case, branch in cases if self.is_possible([*path.when, case])]
        if len(cases) == 2:
            after = Path(path.names, path.when)
            try:
                value = self.value(node, Context(after, globals_))
            except UnsupportedError:
                pass
            else:
                yield after, value
                return
        for case, branch in cases:
            yield from self._values_by_path(branch, path.branch(case), globals_)

    def _recorded_call(self, node: ast.stmt, path: Path, globals_: Mapping[str, Any]) -> list[Path]:
        """Records a call on a listener and returns the path after it; returns [] for any other statement."""
        match node:
            case ast.Expr(ast.Call(ast.Attribute() as target, arguments, [])):
                operator = ""
            case ast.AugAssign(ast.Attribute() as target, ast.Add(), value):
                operator, arguments = " +=", [value]
            case _:
                return []
        listener, name = _listener(target, path)
        if listener is None:
            return []
        after = Path(path.names, path.when)
        values = tuple([self.value(each, Context(after, globals_)) for each in arguments])
        listener.calls.append(
            ListenerCall(name + operator, maybe_forgotten(values), [maybe_forgotten(each) for each in after.when])
        )
        return [after]

    def _appended(self, name: str, item: Any, path: Path, globals_: Mapping[str, Any], node: ast.AST) -> Path:
        value = path.names[name]
        if not isinstance(value, Seq):
            return path.named(name, (*value, item))
        if isinstance(item, Maybe) and type(None) not in get_args(value.kind):
            item = self.not_none(item, Context(path, globals_), node)
        return path.named(name, value.appended(item))

    def _split(self, node: ast.If, path: Path, globals_: Mapping[str, Any]) -> list[Path]:
        condition = self.condition(node.test, Context(path, globals_))
        if isinstance(condition, bool):
            return self.run(node.body if condition else node.orelse, path, globals_)
        return [
            after
            for case, statements in ((condition, node.body), (z3.Not(condition), node.orelse))
            if self.is_possible([*path.when, case])
            for after in self.run(statements, path.branch(case), globals_)
        ]

    def _unrolled(
        self, name: str, items: Sequence[Any], body: Sequence[ast.stmt], path: Path, globals_: Mapping[str, Any]
    ) -> list[Path]:
        """Unrolls a loop over a tuple of known length."""
        going, ended = [path], []
        for item in items:
            paths = [each for p in going for each in self.run(body, p.named(name, item), globals_)]
            ended += [each for each in paths if each.exit == "return"]
            ended += [Path(each.names, each.when) for each in paths if each.exit == "break"]
            going = [Path(each.names, each.when) for each in paths if each.exit in ("next", "continue")]
        return ended + going

    def assigned(self, target: ast.expr, value: Any, path: Path, globals_: Mapping[str, Any]) -> Path:
        """Returns the path after an assignment. Raises UnsupportedError."""
        match target:
            case ast.Name(name):
                if name in self.lists and isinstance(value, tuple):
                    items, value = value, Seq.empty(*self.lists[name])
                    for item in items:
                        value = value.appended(item)
                return path.named(name, value)
            case ast.Tuple(targets) if isinstance(value, Rec) and len(value.fields) == len(targets):
                return self.assigned(target, tuple(value.fields.values()), path, globals_)
            case ast.Tuple(targets) if isinstance(value, tuple) and len(value) == len(targets):
                for each, v in zip(targets, value, strict=True):
                    path = self.assigned(each, v, path, globals_)
                return path
            case ast.Subscript(ast.Name(name), index) if isinstance(path.names.get(name), Seq):
                _check_own(name, path, target)
                element_index = self.inside(index, path.names[name], Context(path, globals_), target)
                return path.named(name, path.names[name].replaced(element_index, value))
        return refuse(target, "this assignment is not supported")


class Loop:
    """A loop of a function in three parts: the code before it, one iteration, and the code after it.

    In a `for` loop, the names ITERATED and INDEX have the sequence that the loop iterates over, and the current index.
    """

    def __init__(self, reader: Reader, function: Callable[..., Any], body: Sequence[ast.stmt], at: int) -> None:
        """`body` has the statements of the function; the loop is the statement of index `at`."""
        self.reader, self.function, self.globals_ = reader, function, _globals_of(function)
        self.before, self.after = body[:at], body[at + 1 :]
        self.node = cast(Any, body[at])
        if self.node.orelse:
            refuse(self.node, "this loop is not supported")

    def begin(self, *arguments: Any) -> list[Path]:
        """Returns the paths from the start of the function, with these arguments, to the loop head."""
        paths = self.reader.run(self.before, _start(self.function, arguments), self.globals_)
        if not isinstance(self.node, ast.While):
            paths = [
                each.named(ITERATED, self.over(each.names, each.when)).named(INDEX, z3.IntVal(0))
                if each.exit == "next"
                else each
                for each in paths
            ]
        return self.reader.assuming(paths)

    def over(self, names: Mapping[str, Any], when: Sequence[Any] = ()) -> Seq:
        """Returns the sequence that a `for` iterates over, also in `enumerate`. Raises UnsupportedError for others."""
        node = self._counted() or self.node.iter
        value = self.reader.value(node, Context(Path(names, when), self.globals_))
        return value if isinstance(value, Seq) else refuse(self.node, "this loop is not supported")

    def _counted(self) -> ast.expr | None:
        """Returns the argument of `enumerate`, if the loop iterates over one."""
        match self.node.iter:
            case ast.Call(ast.Name("enumerate"), [inner], []):
                return inner
        return None

    def condition(self, names: Mapping[str, Any]) -> Any:
        """Returns the loop condition as a term, for these values of the names at the loop head."""
        if isinstance(self.node, ast.For):
            return names[INDEX] < names[ITERATED].length
        return as_term(self.reader.condition(self.node.test, Context(Path(names), self.globals_)))

    def iteration(self, names: Mapping[str, Any], when: Sequence[Any] = ()) -> list[Path]:
        """Returns the paths through one iteration from these names; those that reach the loop head end in `next`."""
        path = Path(names, when).branch(self.condition(names))
        if isinstance(self.node, ast.For):
            path = self._with_item(path)
        paths = self.reader.run(self.node.body, path, self.globals_)
        paths = [
            Path(each.names, each.when, "next" if each.exit == "continue" else each.exit, each.value) for each in paths
        ]
        return self.reader.assuming(paths)

    def _with_item(self, path: Path) -> Path:
        at, item = path.names[INDEX], path.names[ITERATED].at(path.names[INDEX])
        match self.node.target:
            case ast.Name(name) if not self._counted():
                path = path.named(name, item)
            case ast.Tuple([ast.Name(number), ast.Name(name)]) if self._counted():
                path = path.named(number, at).named(name, item)
            case ast.Tuple() if not self._counted():
                path = self.reader.assigned(self.node.target, item, path, self.globals_)
            case _:
                refuse(self.node, "this loop is not supported")
        return path.named(INDEX, at + 1)

    def end(self, names: Mapping[str, Any], when: Sequence[Any] = ()) -> list[Path]:
        """Returns the paths from the end of the loop to the end of the function."""
        return self.reader.assuming(self.reader.run(self.after, Path(names, when), self.globals_))


def source_of(function: Callable[..., Any]) -> ast.FunctionDef:
    """Parses the source of a module-level function. Raises UnsupportedError for anything else."""
    if not isinstance(function, types.FunctionType) or function.__closure__:
        raise UnsupportedError(f"{function} is not a function of a module")
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise UnsupportedError(f"{function.__name__} is not a plain function")
    return tree


def _globals_of(function: Any) -> Mapping[str, Any]:
    names: Mapping[str, Any] = function.__globals__
    return names


def _start(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    when: Sequence[Any] = (),
    named: Mapping[str, Any] | None = None,
) -> Path:
    """Returns the path at the start of a function, with its arguments bound."""
    bound = inspect.signature(function).bind(*arguments, **(named or {}))
    bound.apply_defaults()
    return Path({**bound.arguments, UNASSIGNED_PARAMETERS: frozenset(bound.arguments)}, when)


def _listener(node: ast.expr, path: Path) -> tuple[Listener | None, str]:
    """Returns the listener in an expression such as `out.answers.append`, and the rest of it: `answers.append`.

    The listener is None if the expression does not begin with one.
    """
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    owner = path.names.get(node.id) if isinstance(node, ast.Name) else None
    return owner if isinstance(owner, Listener) else None, ".".join(names)


def _check_own(name: str, path: Path, node: ast.AST) -> None:
    """Rejects a change of a list argument, because the caller would see the change."""
    if name in path.names.get(UNASSIGNED_PARAMETERS, ()):
        refuse(node, f"{name} is an argument: a change of it is not supported")


def _read_target(target: ast.expr) -> ast.expr:
    """Returns the target of an assignment as an expression."""
    read: ast.expr = ast.parse(ast.unparse(target), mode="eval").body
    return read
