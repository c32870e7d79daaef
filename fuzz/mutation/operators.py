"""Generated mutants: the mutation operators of cosmic-ray, applied at every node of a module's syntax tree.

The mutation operators change comparisons, arithmetic, bit operations, logic, numbers, loops, exceptions and decorators.
An operator of Python is replaced by at most three others (`_REPLACED_BY`). A test that kills these mutants usually
kills those of the other replacements, too. A unary operator is only deleted.

Changes of annotations, aliases of annotated types, docstrings, defaults of settings, cache decorators and `strict` of
`zip` make no mutants. Neither do changes between equivalent comparisons (`_UNORDERED`, `_OF_EMPTY`).

The id of a mutant is `PART: OLD => NEW`: the name of its part (`Part`), and the changed lines before and after the
change. The id has no comments, indentation or line number, so it stays valid when comments change or lines move. If a
part has equal lines, `#2`, `#3`, ... at the end of the id say which of them is changed.
"""

from __future__ import annotations

import ast
import difflib
import io
import itertools
import textwrap
import tokenize
from collections.abc import Container
from functools import lru_cache
from typing import NamedTuple

from fuzz.seeding import source_of
from model.machine import BadValue

#: Operator of Python -> the operators that replace it.
_REPLACED_BY = {
    "Add": ("Sub",),
    "Sub": ("Add",),
    "Mul": ("FloorDiv",),
    "FloorDiv": ("Mul",),
    "Div": ("Mul",),
    "Mod": ("FloorDiv",),
    "Pow": ("Mul",),
    "BitAnd": ("BitOr",),
    "BitOr": ("BitAnd",),
    "BitXor": ("BitOr",),
    "LShift": ("RShift",),
    "RShift": ("LShift",),
    "Eq": ("NotEq", "LtE", "GtE"),
    "NotEq": ("Eq", "Lt", "Gt"),
    "Is": ("IsNot",),
    "IsNot": ("Is",),
    "Lt": ("LtE", "GtE"),
    "LtE": ("Lt", "Gt"),
    "Gt": ("GtE", "LtE"),
    "GtE": ("Gt", "Lt"),
}


class Generated(NamedTuple):
    """A generated mutant: one of the changes that a mutation operator can make in a part."""

    id: str
    id_prefix: str  # `PART: OLD =>`, with which the ids of all mutants of the same source line begin
    module: str
    part: str  # `Part.name`
    operator: str
    occurrence: int  # the index of this change among those of the operator in the part, from 0
    line: int  # the first changed line of the module, from 1


class Part(NamedTuple):
    """A function, a method, or a statement outside of functions. Each is parsed and mutated alone, for speed."""

    name: str
    first: int  # index of the first line in the module, from 0
    end: int  # index of the line after the last
    indent: str
    text: str  # dedented
    is_setting: bool  # a field of `Config` that is no rule: changes of its default make no mutants


def generated_of(module: str) -> list[Generated]:
    """Returns the generated mutants of a module. Takes seconds.

    Changes of one line to the same text are one mutant. Raises BadValue if cosmic-ray is not installed or there is no
    such module.
    """
    found: dict[str, Generated] = {}
    changes = set[tuple[str, int]]()  # id without `#2`, line
    for part in parts_of(source_of(module)).values():
        if part.is_setting:
            continue
        original = _relevant_tree(part.text)
        for operator, count in _occurrences(part.text):
            for occurrence in range(count):
                changed = _mutated(part.text, operator, occurrence)
                if _relevant_tree(changed) not in (original, None):
                    prefix, name, line = _id_and_line(part, changed)
                    if (name, line) not in changes:
                        changes.add((name, line))
                        unique = _unique(name, found)
                        found[unique] = Generated(unique, prefix, module, part.name, operator, occurrence, line)
    return list(found.values())


def _unique(name: str, taken: Container[str]) -> str:
    """Returns the name. If the name is taken, returns the first free one of `NAME #2`, `NAME #3`, ..."""
    names = itertools.chain([name], (f"{name} #{i}" for i in itertools.count(2)))
    return next(each for each in names if each not in taken)


def source_with(mutant: Generated) -> str:
    """Returns the source of the mutated module. Raises BadValue if the operator no longer applies."""
    source = source_of(mutant.module)
    part = parts_of(source).get(mutant.part)
    if part is None or dict(_occurrences(part.text)).get(mutant.operator, 0) <= mutant.occurrence:
        raise BadValue(f"{mutant.operator} no longer applies to {mutant.part} of {mutant.module}")
    changed = textwrap.indent(_mutated(part.text, mutant.operator, mutant.occurrence), part.indent)
    lines = source.splitlines(keepends=True)
    return "".join([*lines[: part.first], changed, *lines[part.end :]])


def parts_of(source: str) -> dict[str, Part]:
    """Returns the parts of a module by name, in source order. The second part of a name is called `NAME #2`."""
    lines = source.splitlines(keepends=True)
    parts: dict[str, Part] = {}

    def add(node: ast.stmt, name: str, is_field_of_config: bool = False) -> None:
        first = min([node.lineno, *[d.lineno for d in getattr(node, "decorator_list", [])]]) - 1
        end = node.end_lineno or first + 1
        text = "".join(lines[first:end])
        unique, is_setting = _unique(name, parts), is_field_of_config and "Rule(" not in text
        parts[unique] = Part(unique, first, end, " " * node.col_offset, textwrap.dedent(text), is_setting)

    def visit(body: list[ast.stmt], within: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{within}{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                add(node, f"{within}{node.name}")
            elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                add(node, f"{within}line of {ast.unparse(node).splitlines()[0]}", within == "Config.")

    visit(ast.parse(source).body, "")
    return parts


@lru_cache(maxsize=1)
def _operators() -> tuple[str, ...]:
    """Returns the sorted names of the mutation operators that are applied. None of them has a parameter."""
    try:
        from cosmic_ray import plugins
    except ImportError:
        raise BadValue("generated mutants need the package cosmic-ray: pip install cosmic-ray") from None
    usable = []
    for name in sorted(plugins.operator_names()):
        try:
            plugins.get_operator(name)()
        except TypeError:
            continue
        # A name is KIND, or KIND_OLD_NEW such as core/ReplaceBinaryOperator_Add_Sub. A name without NEW is usable, and
        # a name whose NEW may replace OLD. Of the names of unary operators, only KIND_Delete_OLD is usable.
        kind, _, rest = str(name).rpartition("/")[2].partition("_")
        old, _, new = rest.partition("_")
        is_unary = kind == "ReplaceUnaryOperator"
        if old == "Delete" if is_unary else not new or new in _REPLACED_BY[old]:
            usable.append(str(name))
    return tuple(usable)


def _occurrences(text: str) -> list[tuple[str, int]]:
    """Returns the mutation operators that apply to a source text, each with its number of occurrences."""
    from cosmic_ray import plugins
    from cosmic_ray.ast import ast_nodes, get_ast

    nodes = list(ast_nodes(get_ast(text)))
    found = []
    for name in _operators():
        operator = plugins.get_operator(name)()
        count = sum(sum(1 for _ in operator.mutation_positions(node)) for node in nodes)
        if count:
            found.append((name, count))
    return found


def _mutated(text: str, operator: str, occurrence: int) -> str:
    """Returns the source text with a mutation operator applied at one occurrence."""
    from cosmic_ray import plugins
    from cosmic_ray.mutating import mutate_code

    return str(mutate_code(text, plugins.get_operator(operator)(), occurrence))


#: No tuple is less than the empty one: if the right side is `()`, `<=` is equivalent to `==`, and `>` to `!=`.
_OF_EMPTY: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.LtE: ast.Eq, ast.Gt: ast.NotEq}
#: The order of strings has no meaning: next to a string literal, `<=` and `>=` count as `==`, `<` and `>` as `!=`.
_UNORDERED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.LtE: ast.Eq,
    ast.GtE: ast.Eq,
    ast.Lt: ast.NotEq,
    ast.Gt: ast.NotEq,
}


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _relevant_tree(source: str) -> str | None:
    """Returns a source's syntax tree as text, without what makes no mutant; None if the source is not valid Python."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # for example because `*` in a parameter list became `/`
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            node.decorator_list = [each for each in node.decorator_list if "cache" not in ast.unparse(each)]
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        if isinstance(node, ast.keyword) and node.arg == "strict":
            node.value = ast.Constant(None)
        if isinstance(node, ast.Compare) and any(_is_text(each) for each in (node.left, *node.comparators)):
            node.ops = [_UNORDERED.get(type(op), type(op))() for op in node.ops]
        if isinstance(node, ast.Compare) and isinstance(last := node.comparators[-1], ast.Tuple) and not last.elts:
            node.ops[-1] = _OF_EMPTY.get(type(node.ops[-1]), type(node.ops[-1]))()
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Annotated["):
            node.value = ast.Constant(None)
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            body[0].value = ast.Constant(None)
    return ast.dump(tree)


def code_lines(source: str) -> list[str]:
    """Returns the lines of a source without their comments: the ids of mutants consist of such lines."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    return lines


def _id_and_line(part: Part, changed: str) -> tuple[str, str, int]:
    """Returns the id prefix of a mutant, its id, and its first changed line, from 1.

    `changed` is the mutated text of the part.
    """
    before, after = code_lines(part.text), code_lines(changed)
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    _, i1, i2, j1, j2 = next(each for each in blocks if each[0] != "equal")
    old = " ".join(line.strip() for line in before[i1:i2])
    new = " ".join(line.strip() for line in after[j1:j2])
    prefix = f"{part.name}: {old} =>"
    return prefix, f"{prefix} {new}", part.first + i1 + 1
