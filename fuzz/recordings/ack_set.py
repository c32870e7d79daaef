"""Maps recordings of the bit set of a batch, and of functions of ack sets, to `ack_set`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fuzz.trace.file import Operation
from fuzz.trace.recording import TraceMapping, error_or
from model.ack_set import Config, State
from model.machine import plain

Names = Mapping[str, Any]

#: Recorded operation, a method of `java.util.BitSet` -> action, where the names differ.
ACTIONS = {"set": "set_index", "clear": "clear_index", "get": "get_index", "and": "and_with"}
#: Recorded argument -> argument, where the names differ.
ARGUMENTS = {"from": "begin", "to": "end"}


def settings(recorded: Names) -> Names:
    """Returns the settings for a recorded config. Recordings of functions have no batch size: 0 means unknown."""
    return {"batch_size": recorded.get("batch_size", 0)}


def actions(cfg: Config, s: State, operation: Operation, recorded: Names) -> Sequence[tuple[str, Names]]:
    """Returns the action of an operation. The first operation of a bit set has the action `open_batch` before it."""
    arguments = {ARGUMENTS.get(name, name): value for name, value in operation.args.items()}
    if recorded["kind"] != "bit_set":
        return [(operation.op, arguments)]
    opened: Sequence[tuple[str, Names]] = [] if s.batches else [("open_batch", {})]
    # a recording has one bit set, and the first batch that the model opens has the number 1
    return [*opened, (ACTIONS.get(operation.op, operation.op), {"batch": 1, **arguments})]


def result(cfg: Config, op: str, outcome: Any, recorded: Names) -> Any:
    """Returns an outcome in recorded form."""
    return error_or(outcome, plain)


def observation(cfg: Config, seen: Any, recorded: Names) -> Any:
    """Returns the observation of the only batch in recorded form; None in a recording of functions."""
    return seen[0] if recorded["kind"] == "bit_set" else None


def of_kind(kind: str) -> Callable[[Names], bool]:
    """Returns a predicate for recordings of a kind."""
    return lambda config: config.get("kind") == kind


mappings = tuple(
    [
        TraceMapping(
            component="ack_set",
            subject="ack_set",
            profile="pulsar-2026-07",
            settings=settings,
            actions=actions,
            result=result,
            observation=observation,
            applies=of_kind(kind),
            defects=defects,
        )
        for kind, defects in (
            ("bit_set", {}),
            ("ack_set_functions", {"overlap-in-trimmed-words-is-missed": "functions/1"}),
        )
    ]
)
