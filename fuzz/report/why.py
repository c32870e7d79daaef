"""Why a predicate is false, or true: the part of its expression that determines the result, with its values.

A predicate, such as a property, is an ordinary function. It is called again under a tracer, which records the executed
`return`. The returned expression is decomposed in the order in which Python evaluates it. If the expression is false,
the reason is:

    a and b           the reason of the first operand that is false
    all(... for x)    the reason of the condition for the first x with a false condition
    p(f(x))           the reason of p, and the value of f(x), if p is a Python function that returns a bool
    variable          the reason of the expression that was assigned to the variable, if the variable is a bool
    a <= b            this comparison, and the values of a and b

If the expression is true, `or` and `any` take the places of `and` and `all`. Predicates have no side effects, so their
parts may be evaluated again.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple

#: Maximum depth of nested calls that are decomposed.
_DEPTH = 3
#: Names whose values are not listed: those of config, states and event are long.
_NOT_SHOWN = frozenset({"_", "cfg", "config", "s", "state", "before", "after", "event"})

Environment = dict[str, Any]


class Reason(NamedTuple):
    """A condition that determines a result."""

    condition: str  # the source text
    holds: bool
    operands: tuple[tuple[str, Any], ...]  # subexpressions: source text and value
    is_guard: bool = False  # whether the condition is a comparison with None


def why(predicate: Callable[..., Any], arguments: Sequence[Any]) -> list[Reason]:
    """Returns the conditions that determine the predicate's result.

    The list is empty if the predicate has no source, if a part cannot be evaluated on its own, or if the predicate
    returns a constant outside of any `if`. Cost: a few evaluations of the predicate.
    """
    try:
        return list(_explain_function(predicate, tuple(arguments), 0))
    except Exception:  # outdated source, or an expression that cannot be decomposed
        return []


class _Returned(NamedTuple):
    """The variables in scope, line and value of an executed `return`."""

    environment: Environment
    line: int
    value: Any


def _traced_call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> _Returned:
    """Calls a function under a tracer. Returns the `return` that it executed."""
    code, returned = function.__code__, list[_Returned]()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code is not code or returned:
            return None
        if event == "return":
            returned.append(_Returned({**frame.f_globals, **frame.f_locals}, frame.f_lineno, argument))
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(previous)
    return returned[0]


def _explain_function(function: Callable[..., Any], arguments: tuple[Any, ...], depth: int) -> Iterator[Reason]:
    """Yields the reasons for the result of a function with these arguments."""
    function = inspect.unwrap(function)
    returned = _traced_call(function, arguments)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and node.value and node.lineno <= returned.line <= (node.end_lineno or 0):
            environment = returned.environment
            assigned = _assigned_conditions(tree, environment)
            expression = _inlined(node.value, assigned)
            if bool(_evaluate(expression, environment)) != bool(returned.value):
                return  # the second evaluation has another result, for example because an iterator is exhausted
            if isinstance(expression, ast.Constant):
                yield from _explain_return(node, parents, assigned, environment, depth)
            else:
                yield from _reasons(expression, environment, depth)
            return


def _assigned_conditions(tree: ast.AST, environment: Environment) -> dict[str, ast.expr]:
    """Returns the expression of each variable that is no parameter, is assigned once, and has a bool as its value.

    Leaves out an expression that no longer has this value, for example because its other variables have changed.
    """
    stored = [node.id for node in _names(tree) if isinstance(node.ctx, ast.Store)]
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if stored.count(name) == 1 and isinstance(environment.get(name), bool):
                found[name] = node.value
    parameters = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return {
        name: value
        for name, value in found.items()
        if name not in parameters and _evaluate(value, environment) is environment[name]
    }


def _inlined(node: ast.expr, assigned: dict[str, ast.expr]) -> ast.expr:
    """Returns the expression with variables replaced by the expressions in `assigned`.

    Replaced are the operands of `and`, `or`, `not` and `if`, and the expression itself if it is a variable.
    """
    if isinstance(node, ast.Name) and node.id in assigned:
        return _inlined(assigned[node.id], assigned)
    if isinstance(node, ast.BoolOp):
        return ast.copy_location(ast.BoolOp(node.op, [_inlined(each, assigned) for each in node.values]), node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ast.copy_location(ast.UnaryOp(node.op, _inlined(node.operand, assigned)), node)
    if isinstance(node, ast.IfExp):
        test, body, orelse = (_inlined(each, assigned) for each in (node.test, node.body, node.orelse))
        return ast.copy_location(ast.IfExp(test, body, orelse), node)
    return node


def _explain_return(
    node: ast.AST,
    parents: dict[ast.AST, ast.AST],
    assigned: dict[str, ast.expr],
    environment: Environment,
    depth: int,
) -> Iterator[Reason]:
    """Yields the reasons for a constant `return`: those of the innermost `if` around it; none if there is no `if`."""
    while node in parents:
        parent = parents[node]
        if isinstance(parent, ast.If) and node is not parent.test:
            yield from _reasons(_inlined(parent.test, assigned), environment, depth)
            return
        node = parent


def _reasons(node: ast.expr, environment: Environment, depth: int) -> Iterator[Reason]:
    """Yields the parts that determine the truth value of an expression, decomposed as in the module's header."""
    value = bool(_evaluate(node, environment))
    if isinstance(node, ast.BoolOp):
        one_suffices = value if isinstance(node.op, ast.Or) else not value  # for a true `or`, a false `and`
        for operand in node.values:
            if bool(_evaluate(operand, environment)) == value:
                yield from _reasons(operand, environment, depth)
                if one_suffices:
                    return
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield from _reasons(node.operand, environment, depth)
    elif isinstance(node, ast.IfExp):
        yield from _reasons(node.body if _evaluate(node.test, environment) else node.orelse, environment, depth)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "bool":
        yield from _reasons(node.args[0], environment, depth)
    elif isinstance(node, ast.Call) and (found := _witness(node, value, environment)) is not None:
        condition, bound = found
        reasons = list(_reasons(condition, {**environment, **bound}, depth))
        shown = tuple((name, each) for name, each in bound.items() if name not in _NOT_SHOWN)
        yield from [reason._replace(operands=_distinct(reason.operands + shown)) for reason in reasons]
    elif isinstance(node, ast.Call) and depth < _DEPTH and (inner := list(_explain_call(node, environment, depth))):
        given = [each for each in node.args if not isinstance(each, ast.Name | ast.Constant)]
        shown = tuple((ast.unparse(each), _evaluate(each, environment)) for each in given)
        yield from [reason._replace(operands=_distinct(reason.operands + shown)) for reason in inner]
    else:
        yield Reason(ast.unparse(node), value, _distinct(tuple(_values(node, environment))), _is_guard(node))


def _explain_call(node: ast.Call, environment: Environment, depth: int) -> Iterator[Reason]:
    """Returns the reasons for the result of a call; none if the function cannot be decomposed or returns no bool."""
    function = inspect.unwrap(_evaluate(node.func, environment))
    if not inspect.isfunction(function) or node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
        return iter(())
    arguments = tuple(_evaluate(each, environment) for each in node.args)
    if not isinstance(function(*arguments), bool):
        return iter(())
    try:
        return iter(list(_explain_function(function, arguments, depth + 1)))
    except (OSError, TypeError, SyntaxError):
        return iter(())


def _witness(node: ast.Call, value: bool, environment: Environment) -> tuple[ast.expr, Environment] | None:
    """Returns the element expression of a false `all` or a true `any`, and the loop variables of the first witness.

    Returns None for any other call, and for an argument that is no comprehension.
    """
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name not in ("all", "any") or value != (name == "any") or len(node.args) != 1:
        return None
    [each] = node.args
    if not isinstance(each, ast.GeneratorExp | ast.ListComp):
        return None
    for bound in _bindings(each.generators, environment):
        if bool(_evaluate(each.elt, {**environment, **bound})) == value:
            return each.elt, bound
    return None


def _bindings(generators: list[ast.comprehension], environment: Environment) -> Iterator[Environment]:
    """Yields the loop variables of a comprehension for each combination that passes its `if`s."""
    if not generators:
        yield {}
        return
    first, rest = generators[0], generators[1:]
    for item in _evaluate(first.iter, environment):
        bound = _bound(first.target, item)
        inner = {**environment, **bound}
        if all(_evaluate(test, inner) for test in first.ifs):
            for more in _bindings(rest, inner):
                yield {**bound, **more}


def _bound(target: ast.expr, item: Any) -> Environment:
    """Returns the variables that assigning `item` to a target such as `i, (a, b)` binds."""
    if isinstance(target, ast.Name):
        return {target.id: item}
    assert isinstance(target, ast.Tuple | ast.List)
    return {k: v for part, each in zip(target.elts, item, strict=True) for k, v in _bound(part, each).items()}


def _values(node: ast.expr, environment: Environment) -> Iterator[tuple[str, Any]]:
    """Yields source text and value of the operands of a comparison, then of each name and `name.field` in the node."""
    operands = [node.left, *node.comparators] if isinstance(node, ast.Compare) else [node]
    for operand in operands:
        if not isinstance(operand, ast.Constant | ast.Tuple) and operand is not node:
            yield ast.unparse(operand), _evaluate(operand, environment)
    comprehensions = [each for each in ast.walk(node) if isinstance(each, ast.comprehension)]
    bound_here = {name.id for each in comprehensions for name in _names(each.target)}
    for each in ast.walk(node):
        is_field = isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name)
        is_name = isinstance(each, ast.Name) and each.id not in _NOT_SHOWN and not each.id.isupper()
        if (is_field or is_name) and not bound_here & {name.id for name in _names(each)}:
            value = _evaluate(each, environment)  # type: ignore[arg-type]
            if not callable(value) and not inspect.ismodule(value) and ast.unparse(each) != "event.arguments":
                yield ast.unparse(each), value


def _is_guard(node: ast.expr) -> bool:
    """Returns whether a condition is `... is None` or `... is not None`."""
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[-1], ast.Is | ast.IsNot)
        and isinstance(last := node.comparators[-1], ast.Constant)
        and last.value is None
    )


def _names(node: ast.AST) -> list[ast.Name]:
    return [each for each in ast.walk(node) if isinstance(each, ast.Name)]


def _distinct(values: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    """Returns the values without repeated source texts: the first of each, in order."""
    first: dict[str, Any] = {}
    for text, value in values:
        first.setdefault(text, value)
    return tuple(first.items())


def _evaluate(node: ast.expr, environment: Environment) -> Any:
    return eval(compile(ast.Expression(node), "<property>", "eval"), dict(environment))  # noqa: S307
