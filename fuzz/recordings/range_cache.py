"""Maps recordings of `RangeCache` and `RangeCacheRemovalQueue` to `range_cache`.

A recording names its caches, the model numbers them. A recorded operation has a time. The model's clock moves to this
time before the operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fuzz.trace.file import Operation
from fuzz.trace.recording import TraceMapping
from model.machine import Refused, plain
from model.range_cache import Config, State

#: recorded operation -> action, where the names differ
RENAMED = {
    "release_read": "release",
    "increment_expected_reads": "replay",
    "evict_before_timestamp": "time_pass",
    "evict_by_size": "size_pass",
    "set_extend_ttl_of_recently_accessed": "set_extend_ttl",
}
#: action -> recorded argument and argument, where the names differ
ARGUMENTS = {
    "release": (("read_id", "copy"),),
    "replay": (("read_id", "copy"),),
    "time_pass": (("timestamp_ns", "threshold_ns"),),
}


def settings(recorded: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the settings of the model for a recorded config."""
    return {
        "caches": len(recorded["caches"]),
        "max_requeue_times": recorded["max_requeue_times"],
        "extend_ttl_of_recently_accessed": recorded["extend_ttl_of_recently_accessed"],
    }


def actions(
    cfg: Config, s: State, operation: Operation, recorded: Mapping[str, Any]
) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """Returns the actions of an operation: a clock step to its time, forwards or backwards, then the operation."""
    name = RENAMED.get(operation.op, operation.op)
    arguments = dict(operation.args)
    now = arguments.pop("now_ns")
    if "cache" in arguments:
        arguments["cache"] = recorded["caches"].index(arguments["cache"])
        if "entry" in arguments:
            arguments["position"] = [arguments.pop("ledger"), arguments.pop("entry")]
        if "value_entry" in arguments:
            arguments["value_position"] = [arguments.pop("value_ledger"), arguments.pop("value_entry")]
    for recorded_name, own in ARGUMENTS.get(name, ()):
        arguments[own] = arguments.pop(recorded_name)
    if name == "release":
        arguments["delivered"] = True  # not recorded; in the profile, both kinds of releases count as reads
    if now == s.now_ns:
        return ((name, arguments),)
    moved = ("advance", {"nanos": now - s.now_ns}) if now > s.now_ns else ("step_clock_back", {"nanos": s.now_ns - now})
    return moved, (name, arguments)


def hit(h: Any) -> dict[str, Any]:
    """Returns a hit in recorded form, with the number of the copy if the reader has one."""
    found = {
        "ledger": h.position.ledger,
        "entry": h.position.entry,
        "bytes": h.bytes,
        "expected_reads": h.expected_reads,
    }
    return found if h.copy is None else {**found, "read_id": h.copy}


def removed(r: Any) -> dict[str, int]:
    """Returns the outcome of a removal in recorded form."""
    return {"removed_entries": r.entries, "removed_bytes": r.bytes}


#: Recorded operation -> its outcome in recorded form, unless that is the plain outcome.
RESULTS: dict[str, Callable[[Any], Any]] = {
    "put": lambda o: {"inserted": o},
    "put_mismatched": lambda o: {"inserted": o},
    "get": lambda o: None if o is None else hit(o),
    "get_range": lambda o: [hit(h) for h in o],
    "remove_range": removed,
    "clear": removed,
    "evict_before_timestamp": removed,
    "evict_by_size": removed,
    "non_evictable_size": lambda o: {"entries": o.entries, "bytes": o.bytes},
}


def result(cfg: Config, op: str, outcome: Any, recorded: Mapping[str, Any]) -> Any:
    """Returns an outcome in recorded form."""
    if isinstance(outcome, Refused):
        return {"error": outcome.kind}
    return RESULTS.get(op, plain)(outcome)


def observation(cfg: Config, seen: Any, recorded: Mapping[str, Any]) -> Any:
    """Returns an observation in recorded form, with the names of caches. Changes `seen`."""
    names = recorded["caches"]
    for slot in seen["removal_queue"]:
        if slot is not None:
            slot[0] = names[slot[0]]
    caches = dict(zip(names, seen["caches"], strict=True))
    return {"caches": caches, "removal_queue": seen["removal_queue"], "open_reads": seen["open_copies"]}


mappings = (
    TraceMapping(
        component="range_cache",
        subject="range_cache",
        profile="pulsar-2026-07",
        settings=settings,
        actions=actions,
        result=result,
        observation=observation,
        defects={
            "duplicate-put-keeps-first-read-count": "edge/duplicate_put",
            "inverted-range-is-an-error": "random/76",
            "removal-marks-read": "edge/removed_while_read_open",
        },
    ),
)
