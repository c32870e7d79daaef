"""How recordings of ack sets map to the machine: a batch as a bit set, and functions on sets that are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fuzz.trace.file import Operation
from fuzz.trace.recording import Deviation, Recording, error_or
from model.ack_set import Config, State
from model.machine import plain

Names = Mapping[str, Any]

#: The actions whose names in a recording are those of a Java bit set.
ACTIONS = {"set": "set_index", "clear": "clear_index", "get": "get_index", "and": "and_with"}
#: The arguments that have other names here.
ARGUMENTS = {"from": "begin", "to": "end"}


def settings(recorded: Names) -> Names:
    """The settings of the machine; the functions are not told how large a batch is."""
    return {"batch_size": recorded.get("batch_size", 0)}


def actions(cfg: Config, s: State, operation: Operation, recorded: Names) -> Sequence[tuple[str, Names]]:
    """The action of an operation; the one batch of a recording is opened first."""
    arguments = {ARGUMENTS.get(name, name): value for name, value in operation.args.items()}
    if recorded["kind"] != "bit_set":
        return [(operation.op, arguments)]
    opened: Sequence[tuple[str, Names]] = [] if s.batches else [("open_batch", {})]
    return [*opened, (ACTIONS.get(operation.op, operation.op), {"batch": 1, **arguments})]


def result(cfg: Config, op: str, outcome: Any, recorded: Names) -> Any:
    """An outcome as it was recorded."""
    return error_or(outcome, plain)


def observation(cfg: Config, seen: Any, recorded: Names) -> Any:
    """What an observer saw; nobody observes functions."""
    return seen[0] if recorded["kind"] == "bit_set" else None


def of_kind(kind: str) -> Callable[[Names], bool]:
    """Which recordings are of a kind."""
    return lambda config: config.get("kind") == kind


def recording(kind: str, *deviations: Deviation) -> Recording:
    """The recordings of one kind."""
    return Recording(
        component="ack_set",
        subject="ack_set",
        profile="pulsar-2026-07",
        settings=settings,
        actions=actions,
        result=result,
        observation=observation,
        kind=of_kind(kind),
        deviations=deviations,
    )


recordings = (
    recording("bit_set"),
    recording(
        "ack_set_functions",
        Deviation(
            "an_overlap_in_a_fully_acknowledged_last_word_is_missed",
            ("overlap",),
            "an_overlap_is_exact",
            "ack_set/dev/functions/1",
        ),
    ),
)
