"""Maps recordings of the caches before the central removal queue to `legacy_cache` and `legacy_manager`.

A recording has a kind. Recordings of the kind `range_cache` are of caches without a common limit (`legacy_cache`),
those of the kind `manager` of caches with a common limit (`legacy_manager`). A recording names its caches, the models
number them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fuzz.trace.file import Operation
from fuzz.trace.recording import Deviation, TraceMapping, error_or
from model.machine import plain

Names = Mapping[str, Any]

#: Recorded operation -> action, where the names differ.
RENAMED = {
    "evict_before_timestamp": "time_pass",
    "evict_by_size": "size_pass",
    "do_eviction": "evict_proportionally",
    "set_max_cache_bytes": "set_max_bytes",
    "set_eviction_watermark": "set_watermark",
    "remove_entry_cache_only": "remove_entry_cache",
}


def actions(cfg: Any, s: Any, operation: Operation, recorded: Names) -> Sequence[tuple[str, Names]]:
    """Returns the actions of an operation: an advance of the clock to its time, then the operation."""
    arguments = dict(operation.args)
    now = arguments.pop("now_ns")
    names = recorded["caches"]
    name = RENAMED.get(operation.op, operation.op)
    if "cache" in arguments:
        arguments["cache"] = names.index(arguments["cache"])
    if "caches" in arguments:
        arguments["caches"] = [names.index(each) for each in arguments["caches"]]
    if "entry" in arguments:
        arguments["position"] = [arguments.pop("ledger"), arguments.pop("entry")]
    if "value_ledger" in arguments:
        arguments["value_position"] = [arguments.pop("value_ledger"), arguments.pop("value_entry")]
    if name in ("time_pass", "size_pass") and "timestamp_ns" in arguments:
        arguments["threshold_ns"] = arguments.pop("timestamp_ns")
    if name == "fail_next_storage_reads":
        arguments["number"] = arguments.pop("count")
    happened = (name, arguments)
    return (happened,) if now == s.now_ns else (("advance", {"nanos": now - s.now_ns}), happened)


def removed(r: Any) -> dict[str, int]:
    """Returns the outcome of a removal in recorded form."""
    return {"removed_entries": r.entries, "removed_bytes": r.bytes}


def with_cache_names(observed: Any, recorded: Names) -> Any:
    """Returns an observation in recorded form, with the names of caches."""
    return {**observed, "caches": dict(zip(recorded["caches"], observed["caches"], strict=True))}


# ---- caches without a common limit


def cache_settings(recorded: Names) -> Names:
    """Returns the settings of `legacy_cache` for a recorded config."""
    return {"caches": len(recorded["caches"])}


def hit(h: Any) -> dict[str, int]:
    """Returns a hit in recorded form."""
    return {"ledger": h.position.ledger, "entry": h.position.entry, "bytes": h.bytes}


def cache_result(cfg: Any, op: str, outcome: Any, recorded: Names) -> Any:
    """Returns an outcome of `legacy_cache` in recorded form."""
    form = CACHE_RESULTS.get(op)
    return error_or(outcome, lambda o: form(o, recorded["caches"]) if form else plain(o))


#: Recorded operation -> its outcome in recorded form, unless that is the plain outcome. `names` has the caches' names.
CACHE_RESULTS: dict[str, Callable[[Any, Sequence[str]], Any]] = {
    "put": lambda o, names: {"inserted": o},
    "put_mismatched": lambda o, names: {"inserted": o},
    "get": lambda o, names: None if o is None else hit(o),
    "get_range": lambda o, names: [hit(h) for h in o],
    "remove_range": lambda o, names: removed(o),
    "clear": lambda o, names: removed(o),
    "evict_before_timestamp": lambda o, names: removed(o),
    "evict_by_size": lambda o, names: removed(o),
    "do_eviction": lambda o, names: {
        "evictions": [{"cache": names[e.cache], "bytes_to_free": e.bytes_to_free, **removed(e.removed)} for e in o]
    },
}

# ---- caches under a common limit


def manager_settings(recorded: Names) -> Names:
    """Returns the settings of `legacy_manager` for a recorded config.

    `storage` has the bytes of each entry, by cache, ledger (from 1) and entry.
    """
    sizes = recorded["entry_bytes"]
    ledgers = [sizes[name] for name in recorded["caches"]]
    return {
        "caches": len(recorded["caches"]),
        "max_bytes": recorded["max_cache_bytes"],
        "watermark": recorded["eviction_watermark"],
        "eviction_task": recorded["eviction_task"],
        "storage": [[each[str(number)] for number in range(1, len(each) + 1)] for each in ledgers],
    }


def manager_result(cfg: Any, op: str, outcome: Any, recorded: Names) -> Any:
    """Returns an outcome of `legacy_manager` in recorded form."""
    form = MANAGER_RESULTS.get(op)
    return error_or(outcome, lambda o: form(o, recorded["caches"]) if form else plain(o))


def read_result(o: Any, names: Sequence[str]) -> dict[str, Any]:
    """Returns the outcome of a read in recorded form."""
    return {
        "outcome": o.outcome,
        "entries": [[*position, size] for position, size in o.entries],
        "storage_reads": [[r.number, names[r.cache], r.ledger, r.first, r.last] for r in o.storage_reads],
    }


#: As `CACHE_RESULTS`.
MANAGER_RESULTS: dict[str, Callable[[Any, Sequence[str]], Any]] = {
    "insert": lambda o, names: {"inserted": o},
    "read": read_result,
    "read_one": read_result,
    "run_eviction_task": lambda o, names: {"evicted_entries": o},
    "evict_before_timestamp": lambda o, names: {"evicted_entries": o},
    "evict_by_size": lambda o, names: removed(o),
}

mappings = (
    TraceMapping(
        component="legacy_cache",
        subject="legacy_cache",
        profile="pulsar-4.0",
        settings=cache_settings,
        actions=actions,
        result=cache_result,
        observation=lambda cfg, observed, recorded: with_cache_names(observed, recorded),
        applies=lambda config: config.get("kind") == "range_cache",
        defects={"share-truncated-by-a-byte": "random/range_cache/4"},
        others=(
            Deviation(
                "inverted-range-is-an-error",
                ("inverted_range",),
                "inverted_range_is_empty",
                "random/range_cache/14",
            ),
        ),
    ),
    TraceMapping(
        component="legacy_cache",
        subject="legacy_manager",
        profile="pulsar-4.0",
        settings=manager_settings,
        actions=actions,
        result=manager_result,
        observation=lambda cfg, observed, recorded: with_cache_names(observed, recorded),
        applies=lambda config: config.get("kind") == "manager",
        defects={"share-truncated-by-a-byte": ""},
    ),
)
