"""Workloads of `brokerproof compare`: each module has a `workload`, which measures policies.

`Workload.measure` yields rows: records of a type of the workload, whose first field is the policy. The command prints
the rows of any workload as a table, as JSON and as a plot. The package `caches` simulates the entry cache for all
workloads except `transfer`. The module `file` has a function `of` in place of a `workload`: it makes the workload
`file:PATH` of a file.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from model.machine import BadValue

#: Parameters that must be above 0: divisors, and parameters with which a workload does nothing if they are 0.
_POSITIVE = {
    *("scale", "seconds", "rate", "topics", "partitions", "fan_out", "subscriptions", "consumers", "keys", "drain"),
    *("size", "least_size", "most_size", "queue", "leave_s", "every_s", "stall_every_ms"),
}


class Cell(NamedTuple):
    """One measurement: a workload under a policy, with a size, a seed and parameters."""

    workload: str
    policy: str
    size: int  # bytes of the cache, or topics of a bundle: `Workload.size` names it
    seed: int
    parameters: Any  # of the workload's type


@dataclass(frozen=True)
class Workload:
    """One comparison of policies."""

    name: str
    about: str
    policies: tuple[str, ...]
    default: tuple[str, ...]  # the policies that run if none is named
    size: str  # the field of a row that has the size; the x axis of the plot
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
        """Returns the default parameters, with those of `settings` replaced. The values of `settings` are texts.

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
