"""The records of a finding and its explanation. Terminal, JSON output and HTML report show the same records."""

from __future__ import annotations

from typing import Any

import msgspec

from fuzz.report.changes import Change
from fuzz.report.in_pulsar import NeededRule
from fuzz.run.finding import Kind

#: Kinds of findings of which the changes from the expected to the actual value are shown: mostly (parts of) states.
OF_STATES = (Kind.VIEW, Kind.LOAD, Kind.STUTTER)


class Arrow(msgspec.Struct, frozen=True):
    """An arrow in a sequence chart."""

    source: str  # an actor
    target: str  # an actor; the source if the arrow is a loop
    text: str
    is_lost: bool  # whether the step is a message without effect
    is_fault: bool  # whether the step is a fault, or failed


class Step(msgspec.Struct, frozen=True):
    """One step of a trace."""

    action: str
    arguments: dict[str, Any]
    outcome: Any  # the model's outcome
    other_outcome: Any  # the second side's outcome; None if the outcomes do not differ
    differs: bool  # whether the outcomes differ
    changes: list[Change]
    arrow: Arrow | None = None  # None if the component has no chart, or if the chart does not show the step
    java: list[str] = []  # the classes and methods of Pulsar that the action models


class Condition(msgspec.Struct, frozen=True):
    """A part of a property's expression that determines the property's value."""

    text: str
    value: bool  # whether the part is true
    values: dict[str, Any]  # source text of a subexpression -> its value


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
    """The explanation of a trace.

    `kind`, `expected` and `actual` are those of the difference that the replay shows. If the replay shows none, they
    are those in the header of a finding's trace, and None for any other trace.
    """

    kind: Kind | None
    guarantee: str
    steps: list[Step]
    conditions: list[Condition]  # why a violated property is false
    expected: Any = None
    actual: Any = None
    field: str = ""  # the field of the state that has the values `expected` and `actual`; empty if there is none
    state: Any = None  # the model's state after the last step
    other: str = "implementation"  # the second side: "other profile", or "implementation" (also for a foreign program)
    problem: str = ""  # why there was no replay, or what a real client did; empty after a replay
    actors: dict[str, str] = {}  # the actors of the sequence chart -> their headings, in the order of the lifelines
    classes: list[str] = []  # the classes of Pulsar that the component models, the main class first
    source: str = ""  # file and line of the violated property
    rules: list[NeededRule] = []  # the rules that the violation of a property needs


class ExplainedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with its explanation."""

    subject: str
    profile: str
    signature: str
    cause: str
    seed: int
    length: int
    shrunk_length: int
    reproduced: bool
    shown: int  # the number of replays that showed the finding
    replays: int
    trace: str  # path or URI
    message: str
    defect: KnownDefect | None  # the known defect that the finding shows
    related: KnownDefect | None  # if `defect` is None: a known defect with rules that the trace needs
    explanation: Explanation
    replay: str  # the command that replays the finding
