"""The records of a finding and its explanation. Terminal, JSON output and HTML report show the same records."""

from __future__ import annotations

from typing import Any

import msgspec

from fuzz.report.changes import Change
from fuzz.report.confirm import NeededRule
from fuzz.run.finding import Kind

#: Kinds of findings whose expected and actual values are states, or parts of states.
OF_STATES = (Kind.VIEW, Kind.LOAD, Kind.STUTTER)


class Arrow(msgspec.Struct, frozen=True):
    """An arrow in a sequence chart: its two actors and its text. A lost message has no effect."""

    source: str
    target: str
    text: str
    is_lost: bool
    is_fault: bool


class Step(msgspec.Struct, frozen=True):
    """One step of a trace. `other_outcome` is the second side's outcome, set only if it differs.

    `java` has the classes and methods of Pulsar that the action models.
    """

    action: str
    arguments: dict[str, Any]
    outcome: Any
    other_outcome: Any
    differs: bool
    changes: list[Change]
    arrow: Arrow | None = None  # of a component with a chart, unless the step was refused
    java: list[str] = []


class Condition(msgspec.Struct, frozen=True):
    """A part of a property's expression, its truth value, and the values of its subexpressions."""

    text: str
    value: bool
    values: dict[str, Any]


class KnownDefect(msgspec.Struct, frozen=True):
    """The row of the defect table that a finding shows."""

    id: str
    symptom: str
    mechanism: str
    consequence: str
    severity: str
    versions: str
    link: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of a trace. `kind` is None if the replay shows no difference."""

    kind: Kind | None
    guarantee: str
    steps: list[Step]
    conditions: list[Condition]  # why a violated property is false
    expected: Any = None
    actual: Any = None
    field: str = ""  # of the state, whose values `expected` and `actual` are; empty if they are something else
    state: Any = None  # the model's, after the last step
    other: str = "implementation"  # the second side: implementation or other profile
    problem: str = ""  # if there was no replay: why not, or what the real client did
    actors: dict[str, str] = {}  # of the sequence chart, in order, with their headings
    classes: list[str] = []  # of Pulsar, which the component models, the main one first
    source: str = ""  # file and line of the violated property
    rules: list[NeededRule] = []


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with its explanation."""

    subject: str
    profile: str
    signature: str
    cause: str
    seed: int
    length: int
    shrunk_length: int
    reproduced: bool
    shown: int  # in how many of how many replays
    replays: int
    trace: str  # path or URI
    message: str
    defect: KnownDefect | None
    related: KnownDefect | None  # if `defect` is None: a row with rules that the trace needs
    explanation: Explanation
    replay: str  # the command that replays it
