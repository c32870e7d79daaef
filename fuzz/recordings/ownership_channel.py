"""Maps recorded decision tables, and the records of a real channel, to functions of `ownership_channel`.

The records come from the topic of the channel, or from the log of a broker. The model must accept each record as the
successor of the last accepted record of its bundle. A writer of the topic is not informed of a conflict, so two kinds
of rejected records are normal in the topic, and are reported by name:

    stale_version             two brokers wrote at the same time, and every reader keeps the first record
    assigned_while_releasing  a lookup assigned a bundle that is being released; the client that looked up retries
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from fuzz.trace.file import ABSENT, Operation
from fuzz.trace.recording import Folded, Form, TraceMapping
from model.machine import BadValue, Failed
from model.ownership_channel.records import BLANK, Config, Data, follows, is_blank, state_of
from model.ownership_channel.state import State

Row = Mapping[str, Any]

#: The components of the two tables: the resolver of conflicts, and the transitions of states.
CONFLICT, TRANSITION = "service_unit_state_conflict", "service_unit_state_transition"
#: Text in a table -> argument.
STORAGES = {"SystemTopic": "system_topic", "MetadataStore": "metadata_store"}
BROKERS = {"null": None, "empty": BLANK, "A": 0, "B": 1}


def record(row: Row, side: str) -> Row | None:
    """Returns the record in the columns `from_...` or `to_...` of a row as an argument; None if there is none."""
    if row[f"{side}_state"] == "none":
        return None
    brokers = {name: BROKERS[row[f"{side}_{name}"]] for name in ("dst_broker", "source_broker")}
    force = row[f"{side}_force"] == "true"
    return {"state": row[f"{side}_state"], **brokers, "version_id": int(row[f"{side}_version"]), "force": force}


def actions(cfg: Config, s: State, operation: Operation, recorded: Row) -> Sequence[tuple[str, Row]]:
    """Returns the call that a row of a table records."""
    row = operation.args
    storage = STORAGES[row["storage_type"]]
    if operation.op == TRANSITION:
        return [("is_valid_transition", {"storage": storage, "old": row["from_state"], "new": row["to_state"]})]
    sides = {"left": record(row, "from"), "right": record(row, "to")}
    return [("should_keep_left", {"storage": storage, "check_brokers": row["check_brokers"] == "true", **sides})]


def result(cfg: Config, op: str, outcome: Any, recorded: Row) -> Row:
    """Returns an outcome as the texts of the result columns."""
    if op == TRANSITION:
        values = {"valid_transition": outcome[0], "to_in_flight": outcome[1], "to_active": outcome[2]}
    else:
        values = {"keep_left": outcome}
    return {name: v.kind if isinstance(v, Failed) else str(v).lower() for name, v in values.items()}


# ---- records of a real channel --------------------------------------------------------------------------

#: The component's name in traces that are made from records.
CHANNEL = "service_unit_state_channel"
#: The fields of `ServiceUnitStateData` that decide whether a record is accepted.
FIELDS = ("state", "dstBroker", "sourceBroker", "force", "versionId")
#: A field and its value in the `toString` of the class.
_IN_TEXT = re.compile(rf"\b({'|'.join(FIELDS)})=([^,\]]*)")
_ACCEPTED = "accepted"
#: Kinds of rejections that are normal in the topic.
_STALE, _RELEASED = "stale_version", "assigned_while_releasing"


def topic_record(line: Mapping[str, Any]) -> tuple[str, Operation]:
    """Returns the bundle and the record of a message of the topic: `key`, and `value`, which is null in a tombstone.

    Raises BadValue if `operation_of` does.
    """
    return operation_of(line["key"], line["value"])


def logged_record(line: Mapping[str, Any]) -> tuple[str, Operation] | None:
    """Returns the bundle and the record of a log event with `serviceUnit` and `data`; None for any other event.

    The two attributes are in `Attributes`, as in the layout that Pulsar documents, or beside `Body` in a flat log.
    Warnings and errors are skipped. Raises BadValue, or KeyError for a missing field.
    """
    attributes = line.get("Attributes", line)
    if not isinstance(attributes, Mapping):
        raise BadValue("Attributes must be an object")
    if not {"serviceUnit", "data"} <= attributes.keys() or line.get("SeverityText") in ("WARN", "ERROR", "FATAL"):
        return None
    data = attributes["data"]
    if not isinstance(data, str):
        return operation_of(attributes["serviceUnit"], data)
    fields: dict[str, Any] = {k: None if v == "null" else v for k, v in _IN_TEXT.findall(data)}
    if not fields and data not in ("", "null"):
        raise BadValue(f"data must be ServiceUnitStateData[state=..., ...], got {data[:60]}")
    if fields:
        version = str(fields["versionId"])
        if not re.fullmatch(r"-?\d{1,19}", version):
            raise BadValue(f"versionId must be a number, got {version[:60]}")
        fields |= {"force": fields["force"] == "true", "versionId": int(version)}
    return operation_of(attributes["serviceUnit"], fields or None)


def logged_time(line: Mapping[str, Any]) -> datetime | None:
    """Returns the time of a log event; None if the time is not in ISO 8601. A time without a time zone is in UTC."""
    try:
        time = datetime.fromisoformat(str(line.get("Timestamp")))
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def operation_of(bundle: Any, value: Any) -> tuple[str, Operation]:
    """Returns a bundle, and a record of the bundle as an operation. Raises BadValue for a wrong record."""
    if not isinstance(bundle, str):
        raise BadValue(f"the bundle must be a text, got {bundle}")
    if value is None:
        return bundle, Operation("tombstone", {}, _ACCEPTED, ABSENT, 0)
    if not isinstance(value, Mapping):
        raise BadValue("the record must be an object or null")
    missing = [name for name in FIELDS if name not in value and name not in ("dstBroker", "sourceBroker", "force")]
    if missing:
        raise BadValue(f"the record lacks {missing[0]}")
    fields = {"dstBroker": None, "sourceBroker": None, "force": False} | {n: value[n] for n in FIELDS if n in value}
    for name in ("dstBroker", "sourceBroker"):
        if not isinstance(fields[name], str | None):
            raise BadValue(f"{name} must be a text or null, got {fields[name]}")
    return bundle, Operation("record", fields, _ACCEPTED, ABSENT, 0)


def named_brokers(operations: Sequence[Operation]) -> Mapping[str, Any]:
    """Returns the recorded config of a trace: the brokers that its records name, in the order of the records."""
    names = [each.args.get(name) for each in operations for name in ("dstBroker", "sourceBroker")]
    return {"brokers": list(dict.fromkeys(name for name in names if name))}


class View(NamedTuple):
    """What a reader of a bundle's records knows."""

    data: Row | None  # the last accepted record, as an argument; None: there is none, or a tombstone was accepted
    brokers: Mapping[str, int]  # the numbers of the brokers by name


def viewed(view: View | None, recorded: Row) -> View:
    """Returns the given view; for None, the view of a reader without a record."""
    return view or View(None, {name: number for number, name in enumerate(recorded["brokers"])} | {"": BLANK})


def written(view: View, operation: Operation) -> Row | None:
    """Returns the record of an operation as an argument; None for a tombstone."""
    fields = operation.args
    if not fields:
        return None
    dst, source = (None if fields[n] is None else view.brokers[fields[n]] for n in ("dstBroker", "sourceBroker"))
    record = {"state": fields["state"], "dst_broker": dst, "source_broker": source}
    return {**record, "version_id": fields["versionId"], "force": fields["force"]}


def offered(cfg: Config, view: View | None, operation: Operation, recorded: Row) -> Sequence[tuple[str, Row]]:
    """Returns the call that decides whether a record is accepted."""
    view = viewed(view, recorded)
    right = written(view, operation)
    arguments = {"storage": "system_topic", "check_brokers": True, "left": view.data, "right": right}
    return [("should_keep_left", arguments)]


def kept(cfg: Config, view: View | None, operation: Operation, outcome: Any, recorded: Row) -> Folded:
    """Returns the view after a record, and its result: `accepted`, or the kind of the rejection with the reason.

    A broker logs a record whenever a handler of the record begins or ends, so in a log a repetition counts as accepted.
    In the topic, two kinds of rejections are known deviations.
    """
    view = viewed(view, recorded)
    right = written(view, operation)
    # the outcome of `should_keep_left` is whether the new record is rejected
    if outcome is False or (right == view.data and recorded["form"] == LOG.name):
        return Folded(view._replace(data=right), _ACCEPTED)
    if isinstance(outcome, Failed):
        return Folded(view, f"{outcome.kind}: {outcome.why}")
    left, new = (None if each is None else Data(**each) for each in (view.data, right))
    states = state_of(left), state_of(new)
    # the last accepted record releases the bundle without a new owner; a lookup writes an assignment without a source
    is_release = left is not None and states == ("Releasing", "Assigning") and is_blank(left.dst_broker)
    if left is not None and new is not None and new.version_id <= left.version_id:
        kind, why = _STALE, f"version {new.version_id} after version {left.version_id}"
    else:
        kind = _RELEASED if is_release and new is not None and is_blank(new.source_broker) else "rejected"
        is_valid = follows(cfg, "system_topic", *states)
        why = "the brokers do not fit the record before" if is_valid else "invalid transition"
        why = f"{states[0]} -> {states[1]}, {why}"
    is_known = kind in (_STALE, _RELEASED) and recorded["form"] == TOPIC.name
    return Folded(view, f"{kind}: {why}", kind if is_known else None)


TOPIC = Form(
    name="topic of the service unit state channel",
    recognises=lambda line: {"key", "value"} <= line.keys(),
    read=topic_record,
    config=named_brokers,
    empty="there is no record",
)
LOG = Form(
    name="log of a broker",
    recognises=lambda line: {"Timestamp", "SeverityText", "Body"} <= line.keys(),
    read=logged_record,
    config=named_brokers,
    empty="no event has the attributes serviceUnit and data",
    among_text=True,
    time=logged_time,
)

mappings = (
    TraceMapping(
        component=CHANNEL,
        subject="ownership_channel",
        profile="pulsar-2026-09",
        settings=lambda recorded: {"brokers": max(1, len(recorded["brokers"]))},
        actions=offered,
        result=lambda cfg, op, outcome, recorded: None,
        observation=lambda cfg, seen, recorded: None,
        forms=(TOPIC, LOG),
        fold=kept,
    ),
    *[
        TraceMapping(
            component=component,
            subject="ownership_channel",
            profile="pulsar-2026-07",
            settings=lambda recorded: {"brokers": 2},  # A and B
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
    ],
)
