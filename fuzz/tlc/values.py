"""Converts TLA+ values to Python values and back, and reads the state graph that TLC writes.

    integer, boolean, string    int, bool, str
    None                        None: the model value `None` represents an absent value
    another model value         ModelValue
    <<a, b>>                    a tuple
    {a, b}, a..b                a frozenset
    [name |-> a], (k :> a)      a Function: a record is a function whose domain is a set of strings

`as_model` converts these further to the types of a model: a twin may represent a bit mask as a set, for example.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from model.machine import BadValue
from model.values import fields_of

#: TLC's integers have 32 bits.
MAX_INTEGER = 2**31 - 1
_TOKEN = re.compile(r'\s*(?:(-?\d+)|"((?:[^"\\]|\\.)*)"|([A-Za-z]\w*)|(\|->|:>|@@|<<|>>|\.\.|/\\|[][{}(),=]))')


class ModelValue(NamedTuple):
    """A model value of TLC: it equals only itself."""

    name: str


class Function(dict[Any, Any]):
    """A finite function. It is hashable, so it must not be changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __getattr__(self, name: str) -> Any:
        """The field of a record."""
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


# ---- reading ------------------------------------------------------------------------------------------


def parse_value(text: str) -> Any:
    """Returns the value of a text that TLC printed. Raises BadValue for invalid text. Cost: O(length)."""
    reader = _Reader(text)
    value = reader.value()
    reader.end()
    return value


def parse_state(text: str) -> dict[str, Any]:
    """Returns the variables of a printed state, by name. Raises BadValue for invalid text.

    TLC prints a line `/\\ name = value` for each variable, without `/\\` if there is only one.
    """
    reader = _Reader(text)
    variables = {}
    while not reader.at_end():
        reader.skip("/\\")
        name = reader.word()
        reader.expect("=")
        variables[name] = reader.value()
    return variables


class _Reader:
    """Reads a text as tokens from left to right.

    A token is (kind, text). The kinds are the groups of `_TOKEN`: 1 integer, 2 string, 3 word, 4 symbol. The methods of
    the reader raise BadValue for text that they do not expect.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[int, str]] = []
        position = 0
        end = len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                raise BadValue(f"not a TLA+ value, at {text[position : position + 20]!r}")
            kind = match.lastindex or 0
            self.tokens.append((kind, match.group(kind)))
            position = match.end()
        self.next = 0

    def at_end(self) -> bool:
        return self.next == len(self.tokens)

    def end(self) -> None:
        if not self.at_end():
            raise BadValue(f"text after the end of a TLA+ value: {self.text[:60]!r}")

    def take(self) -> tuple[int, str]:
        if self.at_end():
            raise BadValue(f"incomplete TLA+ value: {self.text[-60:]!r}")
        self.next += 1
        return self.tokens[self.next - 1]

    def skip(self, symbol: str) -> bool:
        """Consumes the symbol if it is next. Returns whether it was."""
        if not self.at_end() and self.tokens[self.next] == (4, symbol):
            self.next += 1
            return True
        return False

    def expect(self, symbol: str) -> None:
        kind, token = self.take()
        if (kind, token) != (4, symbol):
            raise BadValue(f"expected {symbol}, got {token} in the TLA+ value {self.text[:60]!r}")

    def word(self) -> str:
        kind, token = self.take()
        if kind != 3:
            raise BadValue(f"expected a name, got {token} in the TLA+ value {self.text[:60]!r}")
        return token

    def value(self) -> Any:
        kind, token = self.take()
        if kind == 1:
            return self.integers(int(token))
        if kind == 2:
            return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m.group(1), m.group(1)), token)
        if kind == 3:
            words = {"TRUE": True, "FALSE": False, "None": None}
            return words[token] if token in words else ModelValue(token)
        if token == "<<":  # noqa: S105
            return tuple(self.items(">>"))
        if token == "{":  # noqa: S105
            return frozenset(self.items("}"))
        if token == "[":  # noqa: S105
            return Function(self.pairs("|->", ",", "]"))
        if token == "(":  # noqa: S105
            return self.function()
        raise BadValue(f"expected a TLA+ value, got {token}: {self.text[:60]!r}")

    def integers(self, first: int) -> Any:
        """Returns an integer, or the set of a range a..b. `first` is the integer that was consumed last."""
        if not self.skip(".."):
            return first
        _, last = self.take()
        return frozenset(range(first, int(last) + 1))

    def items(self, closing: str) -> Iterator[Any]:
        """Yields values, separated by commas, up to the symbol `closing`."""
        if self.skip(closing):
            return
        while True:
            yield self.value()
            if self.skip(closing):
                return
            self.expect(",")

    def pairs(self, arrow: str, between: str, closing: str) -> Iterator[tuple[Any, Any]]:
        """Yields the pairs of KEY `arrow` VALUE, separated by `between`, up to the symbol `closing`."""
        while True:
            key = self.word() if arrow == "|->" else self.value()
            self.expect(arrow)
            yield key, self.value()
            if self.skip(closing):
                return
            self.expect(between)

    def function(self) -> Any:
        """Returns the function (k :> v @@ ...). TLC prints a function on 1..n as a tuple."""
        return Function(self.pairs(":>", "@@", ")"))


# ---- writing ------------------------------------------------------------------------------------------


def tla(value: Any) -> str:
    """Returns a TLA+ expression for a value. Raises BadValue for a value that TLC does not support, such as 2^31.

    A list becomes a tuple, a mapping whose keys are names becomes a record, any other mapping a function. An expression
    with a function needs a module that extends TLC.
    """
    if value is None or isinstance(value, ModelValue):
        return "None" if value is None else value.name
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise BadValue(f"TLC's integers are at most {MAX_INTEGER}, got {value}")
        return str(value)
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list | tuple):
        return f"<<{', '.join(map(tla, value))}>>"
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(map(tla, value))) + "}"
    if isinstance(value, Mapping):
        return _mapping(value)
    raise BadValue(f"{type(value).__name__} has no TLA+ form")


def _mapping(value: Mapping[Any, Any]) -> str:
    """Returns the expression of a record or a function."""
    if value and all(isinstance(key, str) and key.isidentifier() for key in value):
        return "[" + ", ".join(f"{key} |-> {tla(each)}" for key, each in value.items()) + "]"
    pairs = [f"{tla(key)} :> {tla(each)}" for key, each in value.items()]
    return f"({' @@ '.join(pairs)})" if pairs else "<<>>"


# ---- TLC's state graph --------------------------------------------------------------------------------

_STATE = re.compile(r'(-?\d+) \[label="((?:[^"\\]|\\.)*)"(,style = filled)?')
_EDGE = re.compile(r'(-?\d+) -> (-?\d+) \[label="([^"]*)"')


class Dump(NamedTuple):
    """The state graph of a run of TLC. States are identified by their fingerprints."""

    initial: list[int]
    states: dict[int, str]  # fingerprint -> the text of the state
    edges: set[tuple[int, str, int]]  # state, action, next state


def read_dump(path: Path) -> Dump:
    """Reads a file that TLC wrote with `-dump dot,actionlabels`. Cost: O(size); a million edges take some seconds."""
    initial: list[int] = []
    states: dict[int, str] = {}
    edges: set[tuple[int, str, int]] = set()
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            edge = _EDGE.match(line)
            if edge is not None:
                edges.add((int(edge[1]), edge[3], int(edge[2])))
                continue
            state = _STATE.match(line)
            if state is not None:
                states[int(state[1])] = unescaped(state[2])
                if state[3]:
                    initial.append(int(state[1]))
    return Dump(initial, states, edges)


def unescaped(label: str) -> str:
    """Returns the text of a label with backslash escapes."""
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], label)


# ---- as the model's values ----------------------------------------------------------------------------


def as_model(kind: Any, value: Any, **given: Any) -> Any:
    """Returns a value of a twin as a value of an annotated type of the model (`kind`).

    A record or tuple becomes a named tuple if the type is one; a set becomes a bit mask if the type is int, or a sorted
    tuple; a function of numbers becomes a tuple. A field that the twin lacks has its default. `given` has the values of
    fields of the outermost record that the twin lacks or represents differently; `value` must then have all others.
    """
    if not given:
        return _converter_to(kind)(value)
    return kind(**{n: given[n] if n in given else _converter_to(part)(value[n]) for n, part in fields_of(kind).items()})


def _in_order(value: Any) -> Any:
    """Returns the values of a function of numbers in the order of the numbers; a tuple or a set unchanged."""
    return [value[n] for n in sorted(value)] if isinstance(value, Function) else value


@functools.cache
def _converter_to(kind: Any) -> Callable[[Any], Any]:
    """Returns the function that converts a twin's values to a type."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _converter_to(parts[0])
    if kind is int:
        return lambda value: sum(1 << n for n in value) if isinstance(value, frozenset) else value
    if hasattr(kind, "_fields"):
        fields = {name: _converter_to(part) for name, part in fields_of(kind).items()}

        def read(value: Any) -> Any:
            if isinstance(value, Function | dict):
                return kind(**{name: of(value[name]) for name, of in fields.items() if name in value})
            return kind(*[of(item) for of, item in zip(fields.values(), value, strict=True)])

        return read
    if origin is tuple and parts[1:] == (Ellipsis,):
        item = _converter_to(parts[0])

        def read_all(value: Any) -> Any:
            found = [item(each) for each in _in_order(value)]
            return tuple(sorted(found) if isinstance(value, frozenset) else found)

        return read_all
    others = [part for part in parts if part is not NoneType]
    if origin in (Union, UnionType) and len(others) == 1:
        other = _converter_to(others[0])
        return lambda value: None if value is None else other(value)
    return lambda value: value
