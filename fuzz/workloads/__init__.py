"""Workloads of `brokerproof compare`: each module has a `workload`, which measures policies of a component.

A workload is data and one generator. Its rows are records of its own type, whose first field is the policy; the command
prints them as a table, as JSON and as a plot, and knows none of them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from model.machine import BadValue


@dataclass(frozen=True)
class Workload:
    """One comparison. `run(policies, sizes)` yields a row for each policy and size."""

    name: str
    about: str
    policies: tuple[str, ...]
    size: str  # the row's field for the size, which is the plot's x axis
    sizes: tuple[int, ...]
    measures: tuple[str, ...]  # the numeric fields that are shown and plotted
    meanings: Mapping[str, str]  # of each policy, and of each field that is shown; printed below the table
    run: Callable[[tuple[str, ...], tuple[int, ...]], Iterator[msgspec.Struct]]


def workload_names() -> list[str]:
    """The names of all workloads, in order."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def find_workload(name: str) -> Workload:
    """The workload of that name. Raises BadValue, naming the ones there are, when there is none."""
    if name not in workload_names():
        raise BadValue(f"there is no workload {name}; there are {', '.join(workload_names())}")
    workload: Workload = importlib.import_module(f"{__name__}.{name}").workload
    return workload
