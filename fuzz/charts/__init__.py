"""Sequence charts: how the steps of a component's traces are drawn.

The module `fuzz/charts/<component>.py` has the chart of a component, `chart`. The report and
`python -m fuzz.report.sequence` draw traces with it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from invariants.properties import Event


@dataclass(frozen=True)
class Chart:
    """The actors of a component's traces, and the sender and receiver of each action.

    A role, such as `peer`, names an actor of a step. If sender and receiver are one actor, the arrow is a loop.
    """

    #: (config, the trace's actions with arguments) -> the actors in the order of their lifelines, with their headings
    actors: Callable[[Any, Sequence[tuple[str, Mapping[str, Any]]]], Mapping[str, str]]
    #: by action, the roles of sender and receiver
    arrows: Mapping[str, tuple[str, str]]
    #: (config, state before, arguments) -> the actor of each role
    roles: Callable[[Any, Any, Mapping[str, Any]], Mapping[str, str]]
    #: (config, state before, event, state after) -> the text at the arrow
    text: Callable[[Any, Any, Event, Any], str]
    #: outcomes of a message that has no effect; the arrow of such a message is dashed
    without_effect: tuple[str, ...] = ()


def chart_of(component: str) -> Chart | None:
    """Returns the chart of a component, if it has one."""
    if component not in [module.name for module in pkgutil.iter_modules(__path__)]:
        return None
    chart: Chart = importlib.import_module(f"{__name__}.{component}").chart
    return chart
