"""Maps recordings of the three containers of active cursors to `active_cursors`: linked list, heap and navigable set.

A cursor has a name in a recording and a number in the model. When the linked list is rebuilt, Pulsar iterates over a
`HashMap` of names, and the model over numbers in ascending order. The orders must be the same. So the high bits of a
number are the name's bucket in a `HashMap` of 32 buckets. The low bits are the name.

The recorder observed the container by queries of every cursor, and a query flushes pending updates of the linked list.
So if there was an observation after every operation, the model makes these queries, too: before the next operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fuzz.trace.file import Operation
from fuzz.trace.recording import Deviation, TraceMapping, error_or
from model.active_cursors.machine import Config, State
from model.machine import plain

Names = Mapping[str, Any]

#: The maximum length of a cursor's name.
_BYTES = 16
#: The number of buckets of the `HashMap`.
_BUCKETS = 32


def number_of(name: str) -> int:
    """Returns the number that encodes a cursor's name. Raises ValueError for a name that is too long."""
    letters = name.encode()
    if len(letters) > _BYTES:
        raise ValueError(f"the cursor's name {name} has more than {_BYTES} bytes")
    return bucket_of(name) << (8 * _BYTES) | int.from_bytes(letters, "big")


def name_of(number: int) -> str:
    """Returns the cursor's name that a number encodes."""
    return (number & ((1 << (8 * _BYTES)) - 1)).to_bytes(_BYTES, "big").lstrip(b"\0").decode()


def bucket_of(name: str) -> int:
    """Returns the bucket of a string in a `java.util.HashMap` with 32 buckets."""
    code = 0
    for letter in name:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF
    return (code ^ code >> 16) % _BUCKETS


def settings(recorded: Names) -> Names:
    """Returns the settings of the model for a recorded config."""
    given = {"cursors": _BUCKETS << (8 * _BYTES), "start_ms": recorded["start_ms"]}  # more than any `number_of`
    if "continue_caching_after_last_cursor_leaves_ms" in recorded:
        given["grace_ms"] = recorded["continue_caching_after_last_cursor_leaves_ms"]
    return given


def actions(cfg: Config, s: State, operation: Operation, recorded: Names) -> Sequence[tuple[str, Names]]:
    """Returns the queries of the previous observation, the advance of the clock, and the operation."""
    happened: list[tuple[str, Names]] = []
    if recorded["observe"] == "after_every_operation" and s.nodes is not None:  # None: not the linked list
        happened = [("number_at_same_position_or_before", {"cursor": c.cursor}) for c in s.cursors]
        happened.append(("slowest_position", {}))
    arguments = dict(operation.args)
    now = arguments.pop("now_ms")
    if now != s.now_ms:
        happened.append(("advance", {"millis": now - s.now_ms}))
    if "cursor" in arguments:
        arguments["cursor"] = number_of(arguments["cursor"])
    # `observe_all` consists of queries. The first one flushes all pending updates, so one query stands for all
    happened.append(("slowest_position" if operation.op == "observe_all" else operation.op, arguments))
    return happened


#: Recorded operation -> its outcome in recorded form, unless that is the plain outcome. An outcome None stays None.
RESULTS: dict[str, Callable[[Any], Any]] = {
    "add_cursor": lambda o: None,
    "get_cursor": lambda o: o and name_of(o.cursor),
    "cursor_updated": lambda o: o and {"previous_slowest": plain(o.previous), "new_slowest": plain(o.new)},
    "observe_all": lambda o: None,
}


def result(cfg: Config, op: str, outcome: Any, recorded: Names) -> Any:
    """Returns an outcome in recorded form."""
    return error_or(outcome, RESULTS.get(op, plain))


def observation(cfg: Config, seen: Any, recorded: Names) -> Any:
    """Returns an observation in recorded form, with all cursors that may be the slowest."""
    ranks = seen["at_same_position_or_before"] or []
    slowest = [name_of(number) for number in seen["slowest_cursors"]]
    oldest = [{"cursor": name, "position": seen["slowest_position"], "version": seen["version"]} for name in slowest]
    return {
        **{key: seen[key] for key in ("size", "empty", "cache_added_entries", "has_durable", "slowest_position")},
        "cursors": sorted(name_of(number) for number in seen["cursors"]),
        "at_same_position_or_before": {name_of(number): rank for number, rank in ranks},
        "slowest_cursor": slowest,
        "oldest": oldest,
    }


def as_recorded(seen: Any, recorded: Any) -> Any:
    """Returns the part of an observation that was recorded.

    If several cursors are the slowest, a container may name any of them. The result names the recorded cursor if it is
    one of the slowest, otherwise the first of them.
    """
    chosen = {key: value for key, value in seen.items() if key in recorded}
    for key in {"slowest_cursor", "oldest"} & set(chosen):
        possible = chosen[key]
        chosen[key] = recorded[key] if recorded[key] in possible else next(iter(possible), None)
    return chosen


def mapping(container: str, profile: str, defects: Mapping[str, str], *others: Deviation) -> TraceMapping:
    """Returns the mapping of the recordings of one container."""
    return TraceMapping(
        component="active_cursor_container",
        subject="active_cursors",
        profile=profile,
        settings=settings,
        actions=actions,
        result=result,
        observation=observation,
        as_recorded=as_recorded,
        applies=lambda config: config.get("container") == container,
        defects=defects,
        others=others,
    )


def no_grace_period(smallest: str) -> Deviation:
    """Returns the deviation of the heap and the set: added entries are cached only while there are active cursors.

    This design violates no property. `smallest` is as in `Deviation`.
    """
    return Deviation("added_entries_are_not_cached_after_the_last_cursor_left", ("has_grace_period",), "", smallest)


mappings = (
    mapping(
        "linked_list",
        "pulsar-2026-07-any-call",
        {
            "tail-move-keeps-counts": "edge/linked_list/last_cursor_leaves_group",
            "readded-cursor-is-untracked-by-old-removal": "",
            "readded-cursor-is-the-old-object": "",
            "removed-cursors-stay-until-a-query": "",
        },
        Deviation(
            "an_untracked_cursor_keeps_its_position",
            ("container", "untracked_keeps_position"),
            "expected_read_count_equals_cursors_at_or_before",
            "edge/linked_list/add_same_name_twice",
        ),
    ),
    mapping(
        "heap",
        "pulsar-2026-07-heap-any-call",
        {
            "heap-slowest-too-large-after-removal": "edge/heap/removal_then_update_reports_wrong_slowest",
            "heap-ignores-first-position-of-untracked-cursor": "edge/heap/untracked_cursors",
            "heap-readd-keeps-old-item": "edge/heap/add_same_name_twice",
        },
        no_grace_period("backward_and_removal/heap/18"),
    ),
    mapping(
        "navigable_set",
        "pulsar-2026-07-set",
        {"heap-readd-keeps-old-item": "edge/navigable_set/add_same_name_twice"},
        no_grace_period("edge/navigable_set/empty_and_single"),
    ),
)
