"""The types of a finding: a difference, the difference's cause, and the counterexample."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from fuzz.run.call import Call


class Kind(StrEnum):
    """The kind of a difference."""

    OUTCOME = "outcome"  # model and second side return different outcomes
    VIEW = "view"  # the second side is in another state than the model
    STRUCTURE = "structure"  # the implementation's own `check` reports a violation
    LOAD = "load"  # a copy that `load` makes from a `view` differs, or `view` or the copy changes the original
    PROPERTY = "property"  # an `always` property is violated
    STUTTER = "stutter"  # a refused action of the model returned another state object
    CRASH = "crash"  # an exception of the model, the second side, a property, a goal or the generation of a call
    HANG = "hang"  # a step did not return in time
    PROTOCOL = "protocol"  # a foreign program did not keep to the protocol
    UNSTABLE = "unstable"  # a difference or hang was seen once, and a replay with every step checked does not show it
    EVENTUALLY = "eventually"  # an `eventually` property fails under its fairness
    CANONICAL = "canonical"  # the canonical form maps two states with different steps to one


class Cause(NamedTuple):
    """What failed, without the step and the values. Findings of one cause are probably one bug.

    `what` depends on the kind:

        OUTCOME, STUTTER       the action
        VIEW                   the field of the state or of the observation
        STRUCTURE              the violated invariant, in the words of `check`
        LOAD                   what differs: an action, a field, an invariant or "state". For an exception of a copy:
                               "load", an action or "state"; of the first instance: where it was raised, and its class
        PROPERTY, EVENTUALLY   the property
        CRASH                  where the exception was raised, and its class. Where: the action, "start" (the initial
                               state), "load", in the explorer also the property. If no replay shows the exception: the
                               Python function
        HANG                   the action; in the explorer, "property" if a property hung
        CANONICAL              the action, or "step" (`fuzz.explore.search.MergedStates`)
        PROTOCOL, UNSTABLE     a short text

    For a foreign program, CRASH, HANG and PROTOCOL have a short text such as "no reply", usually after the action.
    """

    kind: Kind
    what: str

    def __str__(self) -> str:
        """Returns the cause as text, for tables, files and messages."""
        return f"{self.kind}:{self.what}"

    @property
    def broken_property(self) -> str | None:
        """The name of the violated `always` property; None if the cause is of another kind."""
        return self.what if self.kind is Kind.PROPERTY else None


class Difference(NamedTuple):
    """What is wrong at one step: cause, message, expected value and actual value."""

    cause: Cause
    message: str
    expected: Any = None
    actual: Any = None


class Misbehaved(Exception):
    """Raised by a second side to report a difference of its own, such as a violation of the protocol."""

    def __init__(self, difference: Difference) -> None:
        super().__init__(difference.message)
        self.difference = difference


class Finding(NamedTuple):
    """A counterexample: a config, calls, and the difference that they lead to.

    The calls end with the step at which the difference shows. If the difference shows only after the trace (LOAD) or in
    no replay (UNSTABLE, and some CRASHes), the finding has all calls of the trace. `seed` is None if the calls do not
    come from a seed.
    """

    config: Any
    calls: tuple[Call, ...]
    difference: Difference
    seed: int | None = None

    @property
    def cause(self) -> Cause:
        """The cause of the difference."""
        return self.difference.cause

    @property
    def broken_property(self) -> str | None:
        """The name of the violated `always` property; None if the cause is of another kind."""
        return self.difference.cause.broken_property

    @property
    def signature(self) -> str:
        """The cause and the names of the actions. Findings with the same signature count as one."""
        return f"{self.cause} after {' '.join(call.action for call in self.calls)}"
