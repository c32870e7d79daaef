"""Plain data, and its conversion to and from annotated Python types.

An argument in a trace, a setting on the command line and an outcome in a report are plain data: null, booleans,
integers, floats, strings, lists and string-keyed objects. A *kind* is an annotated Python type, such as that of a
parameter or of a config field.

    fit(kind, data, ...)    plain data -> value of the kind; raises BadValue if the data does not fit
    plain(value)            value -> plain data

Kinds are int, float, bool and str; `None` as part of a union; literals of strings; `tuple[T, ...]`; named tuples;
unions and annotated forms of these.

Bounds are annotations of an argument or field:

    Annotated[int, AtLeast(0)]         an integer of zero or more
    Annotated[int, Below("caches")]    at least zero and less than the config field `caches`
    Annotated[float, Between(0, 1)]    from 0 to 1, both included
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

N = TypeVar("N", bound="type[tuple[Any, ...]]")


class BadValue(ValueError):
    """A value that does not fit. The message names the value, the rule and the fix."""


class BadComponent(BadValue, TypeError):
    """A mistake in the definition of a component. The message names the mistake, the rule and the fix."""


class AtLeast(NamedTuple):
    """The number is `low` or more."""

    low: int


class Below(NamedTuple):
    """The number is at least zero and less than the value of the config field `setting`."""

    setting: str


class Between(NamedTuple):
    """The number is from `low` to `high`, ends included."""

    low: float
    high: float


#: The releases of Pulsar whose default settings are known, oldest first.
RELEASES = ("4.0", "4.1", "4.2", "5.0")

#: The number of units per millisecond, by the name of the unit.
UNITS_PER_MS = {"ms": 1, "ns": 1_000_000}


class InUnit(NamedTuple):
    """The number is a time. Its unit is the value of the config field `setting`, a key of `UNITS_PER_MS`."""

    setting: str


class Setting(NamedTuple):
    """Marks a config field as a setting of Pulsar's broker or client.

    `broker_name` is the name of the setting in Pulsar. `default` is Pulsar's default, in Pulsar's unit. A number times
    `per_unit` is in the unit of the field. If the default is no fixed number or Boolean, `default` is a text that
    describes it. If the default differs between releases, `default` is a tuple of pairs, oldest release first: a
    release, and the default from this release on. Releases before the first pair do not have the setting.
    """

    broker_name: str
    default: Any
    per_unit: int = 1

    def default_in(self, release: str) -> Any:
        """Returns the default in one of `RELEASES`, in Pulsar's unit; None if the release has no such setting."""
        if not isinstance(self.default, tuple):
            return self.default
        order = RELEASES.index(release)
        # the last pair whose release is not after this one
        return next((value for since, value in self.default[::-1] if RELEASES.index(since) <= order), None)


class Origin(StrEnum):
    """How we know a rule of a shipped version."""

    RECORDED = "recorded"  # traces of the real class agree with the rule
    OBSERVED = "observed"  # a real client or broker was seen to follow the rule
    READ = "read"  # the rule was read in the source
    INFERRED = "inferred"  # the rule follows from other rules


@dataclass(frozen=True, eq=False)  # an annotation must be hashable
class Rule:
    """Marks a config field as a rule: a behaviour that differs between versions or proposals, and is no `Setting`.

    The default of the field is the value of the reference profile. `sources` maps each other value to the class,
    version or proposal that has the value. `origin` says how these values are known. `others` has, by origin, the
    sources of values that are known in another way.
    """

    origin: Origin
    sources: Mapping[Any, str]
    others: Mapping[Origin, Mapping[Any, str]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All sources as text, such as "false: CLASS; observed, not read: true, OTHER".

        In this example, the value false was read in CLASS, and the value true was observed in OTHER.
        """
        values: dict[str, list[str]] = {}  # source -> values
        for value, source in self.sources.items():
            values.setdefault(source, []).append(_value_text(value))
        found = [f"{', '.join(each)}: {source}" for source, each in values.items()]
        for origin, sources in self.others.items():
            found += [
                f"{origin}, not {self.origin}: {_value_text(value)}, {source}" for value, source in sources.items()
            ]
        return "; ".join(found)

    def source_of(self, value: Any) -> tuple[Origin, str]:
        """Returns the origin and the source of a value. Returns `origin` and `text` for a value without a source."""
        for origin, sources in ((self.origin, self.sources), *self.others.items()):
            if value in sources:
                return origin, sources[value]
        return self.origin, self.text


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else str(value).lower()


def record(cls: N) -> N:
    """Class decorator: gives a NamedTuple a `_replace` that takes a third of the time of the standard one.

    A model makes a new state at every step, so `_replace` is the hottest function of the project. This `_replace`
    raises TypeError for an unknown field name. Before Python 3.13, the standard one raises ValueError.
    """
    fields: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
    parameters = ", ".join(f"{name}=_same" for name in fields)
    values = ", ".join(f"self[{i}] if {name} is _same else {name}" for i, name in enumerate(fields))
    space: dict[str, Any] = {"_same": object(), "_new": tuple.__new__, "_cls": cls}
    exec(f"def _replace(self, {parameters}):\n    return _new(_cls, ({values},))", space)  # noqa: S102
    cls._replace = space["_replace"]  # type: ignore[attr-defined]
    return cls


class AnyOrder(list[Any]):
    """A list, in the plain form of an outcome, whose order has no meaning: Pulsar returns a set or any order.

    A program under test may return the items in another order than the model (`fuzz/sut/program.py`).
    """


def plain(value: Any) -> Any:
    """Returns a value as plain data. A named tuple becomes an object, any other tuple a list.

    The keys of a dict become texts. A tuple with a method `as_plain` becomes what this method returns. Raises TypeError
    for a value that has no plain form, such as a set. Cost: O(size of the value).
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tuple):
        as_plain = getattr(value, "as_plain", None)
        if as_plain is not None:
            return as_plain()
        fields = getattr(value, "_fields", None)
        if fields is None:
            return [plain(v) for v in value]
        return {name: plain(v) for name, v in zip(fields, value, strict=True)}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    raise TypeError(f"{type(value).__name__} has no plain form")


#: Turns plain data into a value: (data, label in error messages, config) -> value; raises BadValue.
Fitter = Callable[[Any, str, Any], Any]


def fit(kind: Any, data: Any, label: str, cfg: Any = None) -> Any:
    """Returns plain data as a value of a kind. Raises BadValue if the data does not fit.

    `label` names the argument or setting in the error message. `cfg` is the config whose fields `Below` names.
    Cost: O(size of the data).
    """
    return fitter(kind)(data, label, cfg)


@functools.lru_cache(maxsize=4096)
def fitter(kind: Any) -> Fitter:
    """Returns the function that fits data to a kind. The result is cached: a long trace fits millions of arguments."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:  # other annotations, such as `Setting`, do not restrict the value
        bounds = [b for b in parts[1:] if isinstance(b, AtLeast | Below | Between)]
        return _bounded_fitter(parts[0], bounds)
    if origin is Union or origin is types.UnionType:
        return _union_fitter([fitter(k) for k in parts if k is not type(None)], type(None) in parts)
    if origin is Literal:
        return _literal_fitter(parts)
    if origin is tuple:
        item = fitter(parts[0])
        return lambda data, label, cfg: tuple(
            [item(each, f"{label}[{i}]", cfg) for i, each in enumerate(_list(data, label))]
        )
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _named_tuple_fitter(kind, {name: fitter(k) for name, k in fields_of(kind).items()})
    return _scalar_fitter(kind)


def describe(kind: Any) -> str:
    """Returns a kind in words, for help texts and the specification's pages."""
    origin = get_origin(kind)
    if origin is Annotated:
        base, *bounds = get_args(kind)
        words = [w for w in (_bound_in_words(b) for b in bounds) if w]
        return " ".join([describe(base), *words])
    if origin is Union or origin is types.UnionType:
        return " or ".join(describe(k) for k in get_args(kind))
    if origin is Literal:
        return " or ".join(get_args(kind))
    if origin is tuple:
        return f"list of {describe(get_args(kind)[0])}"
    if kind is type(None):
        return "nothing"
    plain_words: dict[Any, str] = {int: "integer", bool: "true or false", float: "number", str: "text"}
    return plain_words.get(kind) or str(kind.__name__).lower()


def rule_of(kind: Any) -> Rule | None:
    """Returns the `Rule` in the annotated type of a config field; None if the field is no rule."""
    return next((each for each in getattr(kind, "__metadata__", ()) if isinstance(each, Rule)), None)


def setting_of(kind: Any) -> Setting | None:
    """Returns the `Setting` in the annotated type of a config field; None if the field is no setting of Pulsar."""
    return next((each for each in getattr(kind, "__metadata__", ()) if isinstance(each, Setting)), None)


def fields_in_bounds(kind: Any) -> set[str]:
    """Returns the names of the config fields in the `Below` bounds of a kind and of its parts."""
    named = {each.setting for each in getattr(kind, "__metadata__", ()) if isinstance(each, Below)}
    parts = fields_of(kind).values() if isinstance(kind, type) and hasattr(kind, "_fields") else get_args(kind)
    return named.union(*[fields_in_bounds(part) for part in parts])


def fields_of(owner: Any) -> dict[str, Any]:
    """Returns the annotated types of a named tuple's fields or of a function's parameters, by name, in their order."""
    hints = typing.get_type_hints(owner, include_extras=True)
    names = getattr(owner, "_fields", None) or [n for n in hints if n != "return"]
    return {name: hints[name] for name in names}


def _show(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= 60 else text[:57] + "..."


def _list(data: Any, label: str) -> list[Any]:
    if isinstance(data, (list, tuple)):
        return list(data)
    raise BadValue(f"{label} is {_show(data)}, must be a list")


def _scalar_fitter(kind: Any) -> Fitter:
    def fit_scalar(data: Any, label: str, cfg: Any) -> Any:
        if type(data) is kind:
            return data
        if kind is float and type(data) is int:
            return float(data)
        raise BadValue(f"{label} is {_show(data)}, must be {describe(kind)}")

    return fit_scalar


def _literal_fitter(words: tuple[str, ...]) -> Fitter:
    def fit_literal(data: Any, label: str, cfg: Any) -> Any:
        if isinstance(data, str) and data in words:
            return data
        raise BadValue(f"{label} is {_show(data)}, must be one of {', '.join(words)}")

    return fit_literal


def _union_fitter(fitters: list[Fitter], allows_none: bool) -> Fitter:
    def fit_union(data: Any, label: str, cfg: Any) -> Any:
        if data is None and allows_none:
            return None
        for fits in fitters[:-1]:
            try:
                return fits(data, label, cfg)
            except BadValue:
                pass
        return fitters[-1](data, label, cfg)  # the last kind raises the error

    return fit_union


def _named_tuple_fitter(kind: Any, fitters: dict[str, Fitter]) -> Fitter:
    field_kinds = list(fields_of(kind).values())

    def fit_named_tuple(data: Any, label: str, cfg: Any) -> Any:
        if type(data) is list and [type(each) for each in data] == field_kinds:  # all fields are scalars without bounds
            return kind(*data)
        if isinstance(data, dict):
            for name in data:
                if name not in fitters:
                    raise BadValue(f"{label} has no field {name}; it has {', '.join(fitters)}")
            for name in fitters:
                if name not in data and name not in kind._field_defaults:
                    raise BadValue(f"{label} lacks {name}")
            return kind(**{name: fitters[name](value, f"{label}.{name}", cfg) for name, value in data.items()})
        if not isinstance(data, list | tuple) or len(data) != len(fitters):
            raise BadValue(f"{label} is {_show(data)}, must be [{', '.join(fitters)}]")
        return kind(*[fits(value, label, cfg) for fits, value in zip(fitters.values(), data, strict=True)])

    return fit_named_tuple


def _bounded_fitter(kind: Any, bounds: list[Any]) -> Fitter:
    inner, words = fitter(kind), describe(kind)

    def fit_bounded(data: Any, label: str, cfg: Any) -> Any:
        value = inner(data, label, cfg)
        for bound in bounds:
            if not _within(bound, value, cfg):
                limit = f" ({getattr(cfg, bound.setting)})" if isinstance(bound, Below) else ""
                raise BadValue(f"{label} is {_show(value)}, must be {words} {_bound_in_words(bound)}{limit}")
        return value

    if kind is int and len(bounds) == 1 and isinstance(bounds[0], AtLeast):  # the common case, without a loop
        low = bounds[0].low
        return lambda data, label, cfg: data if type(data) is int and data >= low else fit_bounded(data, label, cfg)
    return fit_bounded


def _within(bound: Any, value: Any, cfg: Any) -> bool:
    if isinstance(bound, AtLeast):
        return bool(value >= bound.low)
    if isinstance(bound, Below):
        return bool(0 <= value < getattr(cfg, bound.setting))
    return bool(bound.low <= value <= bound.high)


def _bound_in_words(bound: Any) -> str:
    if isinstance(bound, AtLeast):
        return f"of {bound.low} or more"
    if isinstance(bound, Below):
        return f"from 0, below the setting {bound.setting}"
    if isinstance(bound, Between):
        return f"from {bound.low} to {bound.high}"
    return ""
