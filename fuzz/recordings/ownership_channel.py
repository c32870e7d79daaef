"""Maps the recorded decision tables of the ownership channel to its functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fuzz.trace.file import Operation
from fuzz.trace.recording import Recording
from model.machine import Failed
from model.ownership_channel.records import BLANK, Config
from model.ownership_channel.state import State

Row = Mapping[str, Any]

CONFLICT, TRANSITION = "service_unit_state_conflict", "service_unit_state_transition"
STORAGES = {"SystemTopic": "system_topic", "MetadataStore": "metadata_store"}
BROKERS = {"null": None, "empty": BLANK, "A": 0, "B": 1}


def record(row: Row, side: str) -> Row | None:
    """Returns the record of one side of a row."""
    if row[f"{side}_state"] == "none":
        return None
    brokers = {name: BROKERS[row[f"{side}_{name}"]] for name in ("dst_broker", "source_broker")}
    force = row[f"{side}_force"] == "true"
    return {"state": row[f"{side}_state"], **brokers, "version_id": int(row[f"{side}_version"]), "force": force}


def actions(cfg: Config, s: State, operation: Operation, recorded: Row) -> Sequence[tuple[str, Row]]:
    """Returns the function of a row."""
    row = operation.args
    storage = STORAGES[row["storage_type"]]
    if operation.op == TRANSITION:
        return [("is_valid_transition", {"storage": storage, "old": row["from_state"], "new": row["to_state"]})]
    sides = {"left": record(row, "from"), "right": record(row, "to")}
    return [("should_keep_left", {"storage": storage, "check_brokers": row["check_brokers"] == "true", **sides})]


def result(cfg: Config, op: str, outcome: Any, recorded: Row) -> Row:
    """Returns an outcome as the result columns."""
    if op == TRANSITION:
        values = {"valid_transition": outcome[0], "to_in_flight": outcome[1], "to_active": outcome[2]}
    else:
        values = {"keep_left": outcome}
    return {name: v.kind if isinstance(v, Failed) else str(v).lower() for name, v in values.items()}


recordings = tuple(
    [
        Recording(
            component=component,
            subject="ownership_channel",
            profile="pulsar-2026-07",
            settings=lambda recorded: {"brokers": 2},
            actions=actions,
            result=result,
            observation=lambda cfg, seen, recorded: None,
            results=results,
            defects=defects,
        )
        for component, results, defects in (
            (CONFLICT, frozenset({"keep_left"}), {"owned-without-destination-fails": "table"}),
            (TRANSITION, frozenset({"valid_transition", "to_in_flight", "to_active"}), {}),
        )
    ]
)
