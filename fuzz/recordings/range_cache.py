"""How recordings of the broker's RangeCache and RangeCacheRemovalQueue map to the machine.

Caches have names in a recording and numbers in the machine. A recorded operation carries the time at which it
happened; the clock is moved there first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fuzz.recording import Deviation, Recording, error_or
from fuzz.trace import Operation
from model.machine import plain
from model.range_cache import Config, State

#: recorded operation -> action, and recorded arguments that are named otherwise in the machine
RENAMED = {
    "release_read": "release",
    "increment_expected_reads": "replay",
    "evict_before_timestamp": "time_pass",
    "evict_by_size": "size_pass",
    "set_extend_ttl_of_recently_accessed": "set_extend_ttl",
}
SAME = (
    "put", "put_mismatched", "get", "get_range", "exists", "mark_read", "remove_range", "clear",
    "non_evictable_size", "set_max_requeue_times",
)  # fmt: skip


def settings(recorded: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of the machine, from those of a recording."""
    return {
        "caches": len(recorded["caches"]),
        "max_requeue_times": recorded["max_requeue_times"],
        "extend_ttl_of_recently_accessed": recorded["extend_ttl_of_recently_accessed"],
    }


def actions(
    cfg: Config, s: State, operation: Operation, recorded: Mapping[str, Any]
) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """The clock moves to the operation's time, then the operation happens."""
    arguments = dict(operation.args)
    now = arguments.pop("now_ns")
    if "cache" in arguments:
        arguments["cache"] = recorded["caches"].index(arguments["cache"])
    if "ledger" in arguments:
        arguments["position"] = [arguments.pop("ledger"), arguments.pop("entry")]
    if "value_ledger" in arguments:
        arguments["value_position"] = [arguments.pop("value_ledger"), arguments.pop("value_entry")]
    if "read_id" in arguments:
        arguments["copy"] = arguments.pop("read_id")
    if "timestamp_ns" in arguments:
        arguments["threshold_ns"] = arguments.pop("timestamp_ns")
    name = operation.op if operation.op in SAME else RENAMED.get(operation.op, operation.op + " (recorded)")
    if name == "release":
        arguments["delivered"] = True
    if now > s.now_ns:
        return ("advance", {"nanos": now - s.now_ns}), (name, arguments)
    if now < s.now_ns:
        return ("step_clock_back", {"nanos": s.now_ns - now}), (name, arguments)
    return ((name, arguments),)


def hit(h: Any) -> dict[str, Any]:
    """A hit as recorded; the number of the copy only if one is held."""
    found = {
        "ledger": h.position.ledger,
        "entry": h.position.entry,
        "bytes": h.bytes,
        "expected_reads": h.expected_reads,
    }
    return found if h.copy is None else {**found, "read_id": h.copy}


def removed(r: Any) -> dict[str, int]:
    """What a removal took away, as recorded."""
    return {"removed_entries": r.entries, "removed_bytes": r.bytes}


RESULTS = {
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
    """An outcome as it was recorded."""
    return error_or(outcome, RESULTS.get(op, plain))


def observation(cfg: Config, seen: Any, recorded: Mapping[str, Any]) -> Any:
    """What an observer saw, with the caches' names."""
    names = recorded["caches"]
    return {
        "caches": dict(zip(names, seen["caches"], strict=True)),
        "removal_queue": [slot and [names[slot[0]], *slot[1:]] for slot in seen["removal_queue"]],
        "open_reads": seen["open_copies"],
    }


recordings = (
    Recording(
        component="range_cache",
        subject="range_cache",
        profile="pulsar-2026-07",
        settings=settings,
        actions=actions,
        result=result,
        observation=observation,
        deviations=(
            Deviation("a_duplicate_put_keeps_the_first_counter", ("duplicate_put",), "latest_put_sets_the_counter", ""),
            Deviation("an_inverted_range_is_an_error", ("inverted_range",), "an_inverted_range_is_empty", ""),
            Deviation(
                "leaving_the_cache_counts_as_a_read", ("leaving_counts_as_read",), "only_delivery_lowers_a_counter", ""
            ),
        ),
    ),
)
