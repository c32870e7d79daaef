"""Workloads of `brokerproof compare`: each module has a `workload`, which measures policies.

`Workload.measure` yields rows, which have the type `Workload.row`. The first field of a row is the policy. The command
prints the rows as a table, as JSON and as a plot. The package `caches` is no workload: it simulates the entry cache for
all workloads except `transfer`. The module `file` has no `workload`. Its function `of` returns the workload
`file:PATH`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from model.machine import BadValue

#: Parameters that must be above 0. If one of them is 0, the workload divides by 0 or does nothing.
_POSITIVE = {
    *("scale", "seconds", "rate", "topics", "partitions", "fan_out", "subscriptions", "consumers", "keys", "drain"),
    *("size", "least_size", "most_size", "queue", "leave_s", "every_s", "stall_every_ms"),
}


class Cell(NamedTuple):
    """One measurement: a workload under a policy, with a size, a seed and parameters."""

    workload: str
    policy: str
    size: int  # the number of bytes of the cache or, for `transfer`, of topics in the bundle
    seed: int
    parameters: Any  # of the workload's type


@dataclass(frozen=True)
class Workload:
    """One comparison of policies."""

    name: str
    about: str
    policies: tuple[str, ...]
    default: tuple[str, ...]  # the policies that run if none is named
    size: str  # the name of the field that has the size of the cell; the x axis of the plot
    sizes: Callable[[Any], tuple[int, ...]]  # parameters -> the default sizes
    measures: tuple[str, ...]  # the numeric fields that are shown and plotted
    meanings: Mapping[str, str]  # what each policy and each shown field means; printed below the table
    row: type[msgspec.Struct]
    parameters: Any  # a named tuple of numbers: the defaults
    check: Callable[[str], Any]  # raises BadValue for a policy that cannot run here
    measure: Callable[[Cell], Iterator[msgspec.Struct]]  # yields the rows of a cell
    titles: Mapping[str, str] = field(default_factory=dict)  # headings of fields whose names are no headings

    def title(self, name: str) -> str:
        """Returns the heading of a field of the rows."""
        return self.titles.get(name, name.replace("_", " "))

    def with_parameters(self, settings: Mapping[str, str]) -> Any:
        """Returns the default parameters, with the values of `settings` (texts, by name) in place of the defaults.

        Raises BadValue for an unknown name, or a value that is not a number in range.
        """
        changed: dict[str, int | float] = {}
        for name, text in settings.items():
            if name not in self.parameters._fields:
                there = ", ".join(self.parameters._fields) or "none"
                raise BadValue(f"{self.name} has no parameter {name}; it has {there}")
            kind = type(getattr(self.parameters, name))
            try:
                changed[name] = kind(text)
            except ValueError:
                changed[name] = -1  # no number: out of range
            if not 0 <= changed[name] <= 1 << 40 or (name in _POSITIVE and not changed[name]):
                wanted = "an integer" if kind is int else "a number"
                positive = "at least 1" if kind is int else "above 0"
                least = positive if name in _POSITIVE else "at least 0"
                raise BadValue(f"--set {name}={text}: {name} must be {wanted}, {least} and at most 2^40")
        return self.parameters._replace(**changed)


def workload_names() -> list[str]:
    """Returns the names of all workloads, sorted; a workload that takes an argument is NAME:PATH."""
    modules = [module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg]
    return sorted([f"{name}:PATH" if hasattr(_module(name), "of") else name for name in modules])


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}")


def find_workload(name: str) -> Workload:
    """Returns the workload of that name. Raises BadValue if there is none, or if `of` rejects the argument."""
    base, colon, argument = name.partition(":")
    if (f"{base}:PATH" if argument else name) not in workload_names():
        raise BadValue(f"there is no workload {name}; there are {', '.join(workload_names())}")
    workload: Workload = _module(base).of(argument) if colon else _module(base).workload
    return workload
