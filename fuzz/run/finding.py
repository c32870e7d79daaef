"""Findings: what a comparison can find wrong, as types."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from fuzz.run.call import Call


class Kind(StrEnum):
    """What is wrong at a step."""

    OUTCOME = "outcome"  # model and second side return different outcomes
    VIEW = "view"  # the second side is in another state than the model
    STRUCTURE = "structure"  # the implementation's own check fails
    LOAD = "load"  # an implementation loaded during the trace differs from the model after the later calls
    PROPERTY = "property"  # an `always` property is broken
    STUTTER = "stutter"  # a refused action changed the state
    CRASH = "crash"  # model, second side, a property, a coverage goal or the generation of a call raised an exception
    HANG = "hang"  # a step did not return in time
    PROTOCOL = "protocol"  # a foreign program did not keep to the protocol
    UNSTABLE = "unstable"  # a replay does not show the difference or hang
    EVENTUALLY = "eventually"  # an `eventually` property fails under its fairness
    CANONICAL = "canonical"  # the canonical form maps two different states to one


class Cause(NamedTuple):
    """What failed, without the step and the values. Findings of one cause are probably one bug.

    `what` is the name of the action, field, property or structural rule. Of a crash it is the action and the exception;
    if only the fast loop raised it, the function and the exception.
    """

    kind: Kind
    what: str

    def __str__(self) -> str:
        """The cause as text, for tables, files and messages."""
        return f"{self.kind}:{self.what}"

    @staticmethod
    def parse(text: str) -> Cause:
        """The inverse of `str`. Raises ValueError for an unknown kind."""
        kind, _, what = text.partition(":")
        return Cause(Kind(kind), what)

    @property
    def broken_property(self) -> str | None:
        """The name of the broken property, if a property is what failed."""
        return self.what if self.kind is Kind.PROPERTY else None


class Difference(NamedTuple):
    """What is wrong at one step: cause, message, expected value and actual value."""

    cause: Cause
    message: str
    expected: Any = None
    actual: Any = None


class Misbehaved(Exception):
    """The second side failed in a way that it describes itself."""

    def __init__(self, difference: Difference) -> None:
        super().__init__(difference.message)
        self.difference = difference


class Finding(NamedTuple):
    """A counterexample: the calls up to and including the step at which the difference shows."""

    config: Any
    calls: tuple[Call, ...]
    difference: Difference
    seed: int | None = None

    @property
    def cause(self) -> Cause:
        """What failed, without where."""
        return self.difference.cause

    @property
    def broken_property(self) -> str | None:
        """The name of the broken property, if a property is what failed."""
        return self.difference.cause.broken_property

    @property
    def signature(self) -> str:
        """The cause and the actions: findings with the same signature count as one."""
        return f"{self.cause} after {' '.join(call.action for call in self.calls)}"
