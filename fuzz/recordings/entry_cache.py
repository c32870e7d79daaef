"""Maps recordings of the broker's entry cache to `entry_cache`.

A recording names its caches, the model numbers them. A recorded operation has a time. The model's clock advances to
this time before the operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fuzz.trace.file import Operation
from fuzz.trace.recording import TraceMapping, error_or
from model.entry_cache.state import Config, State
from model.machine import plain

#: recorded operation -> action, if the names differ
RENAMED = {
    "release_read": "release",
    "increment_expected_reads": "replay",
    "set_extend_ttl_of_recently_accessed": "set_extend_ttl",
}


def settings(recorded: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the settings of the model for a recorded config."""
    caches = recorded["caches"]
    stored = [
        {"cache": caches.index(cache), "ledger": int(ledger), "entry_bytes": sizes}
        for cache, ledgers in recorded["entry_bytes"].items()
        for ledger, sizes in ledgers.items()
    ]
    return {
        "caches": len(caches),
        "stored": stored,
        "storage_reads": recorded["storage_reads"],
        "eviction_task": recorded["eviction_task"],
        "ttl_ns": recorded["eviction_time_threshold_ns"],
        "max_requeue_times": recorded["max_requeue_times"],
        "extend_ttl_of_recently_accessed": recorded["extend_ttl_of_recently_accessed"],
        "max_bytes": recorded["max_cache_bytes"],
        "watermark": recorded["eviction_watermark"],
    }


def actions(
    cfg: Config, s: State, operation: Operation, recorded: Mapping[str, Any]
) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """Returns the actions of an operation: an advance of the clock to its time, then the operation."""
    name = RENAMED.get(operation.op, operation.op)
    arguments = dict(operation.args)
    passed = arguments.pop("now_ns") - s.ranges.now_ns
    if "cache" in arguments:
        arguments["cache"] = recorded["caches"].index(arguments["cache"])
        if "entry" in arguments:
            arguments["position"] = [arguments.pop("ledger"), arguments.pop("entry")]
    if "read_id" in arguments:
        arguments["copy"] = arguments.pop("read_id")
    moved = [("advance", {"nanos": passed})] if passed else []
    return (*moved, (name, arguments))


def read_result(outcome: Any, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the outcome of a read in recorded form: the issued storage reads, and the completed requests."""
    names = recorded["caches"]
    issued = [[i.number, names[i.cache], i.ledger, i.first, i.last] for i in outcome.issued]
    answered = [
        {
            "request": a.request,
            "outcome": "ok" if a.ok else "failed",
            "entries": [[*e.position, e.bytes, e.expected_reads, e.copy] for e in a.entries],
        }
        for a in outcome.answered
    ]
    request = {} if outcome.request is None else {"request": outcome.request}
    return {**request, "storage_reads": issued, "completed": answered}


#: Recorded operation -> its outcome in recorded form, unless that is the plain outcome.
RESULTS: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "insert": lambda o, recorded: {"inserted": o},
    "read": read_result,
    "read_one": read_result,
    "complete_storage_read": read_result,
    "release_read": lambda o, recorded: {"expected_reads": o.expected_reads},
    "run_eviction_task": lambda o, recorded: {"evicted_entries": o},
    "do_cache_eviction": lambda o, recorded: {"evicted_entries": o},
}


def result(cfg: Config, op: str, outcome: Any, recorded: Mapping[str, Any]) -> Any:
    """Returns an outcome in recorded form."""
    return error_or(outcome, lambda o: RESULTS[op](o, recorded) if op in RESULTS else plain(o))


def observation(cfg: Config, seen: Any, recorded: Mapping[str, Any]) -> Any:
    """Returns an observation in recorded form, with the names of caches. An empty slot of the queue is None."""
    names = recorded["caches"]
    return {
        "total_bytes": seen["total_bytes"],
        "caches": dict(zip(names, seen["caches"], strict=True)),
        "removal_queue": [slot and [names[slot[0]], *slot[1:]] for slot in seen["removal_queue"]],
        "open_reads": seen["open_copies"],
        **{name: seen[name] for name in ("eviction_in_progress", "queued_eviction_tasks")},
        **{name: seen[name] for name in ("outstanding_storage_reads", "counters")},
    }


mappings = (
    TraceMapping(
        component="entry_cache_manager",
        subject="entry_cache",
        profile="pulsar-2026-07",
        settings=settings,
        actions=actions,
        result=result,
        observation=observation,
        defects={
            "duplicate-insert-keeps-first-read-count": "random/42",
            "removal-marks-read": "random/11",
            "undelivered-entries-count-as-read": "edge/partial_hit_storage_fails",
            "rejected-insert-marks-read": "edge/partial_hit_storage_fails",
            "periodic-eviction-clears-mark-of-scheduled-task": "random/45",
        },
    ),
)
