"""How recordings of the three containers of active cursors map to the machine.

A cursor has a name in a recording and a number in the machine. Where cursors are equal, the shipped list takes them in
the order of a Java hash map, and the machine in the order of their numbers: so a number begins with the bucket of its
name in a table of 32, and then holds the name itself.

An observer who asks after every operation brings a lazy list up to date each time; so before an operation, the
questions of the observer who came before it are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fuzz.trace.file import Operation
from fuzz.trace.recording import Deviation, Recording, error_or
from model.active_cursors.machine import Config, State
from model.machine import plain

Names = Mapping[str, Any]

#: A name has no more bytes than this.
_BYTES = 16
_BUCKETS = 32


def number_of(name: str) -> int:
    """The number of a name. Raises ValueError for one that is too long."""
    letters = name.encode()
    if len(letters) > _BYTES:
        raise ValueError(f"the cursor's name {name} has more than {_BYTES} bytes")
    return bucket_of(name) << (8 * _BYTES) | int.from_bytes(letters, "big")


def name_of(number: int) -> str:
    """The name of a number."""
    return (number & ((1 << (8 * _BYTES)) - 1)).to_bytes(_BYTES, "big").lstrip(b"\0").decode()


def bucket_of(name: str) -> int:
    """Where a Java hash map with a table of 32 lists a string: the hash with its upper half folded into the lower."""
    code = 0
    for letter in name:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF
    return (code ^ code >> 16) % _BUCKETS


def settings(recorded: Names) -> Names:
    """The settings of the machine, from those of a recording; some recordings use the container as no broker does."""
    return {
        "cursors": _BUCKETS << (8 * _BYTES),
        "start_ms": recorded["start_ms"],
        "grace_ms": recorded.get("continue_caching_after_last_cursor_leaves_ms", 0),
        "calls": "any",
    }


def actions(cfg: Config, s: State, operation: Operation, recorded: Names) -> Sequence[tuple[str, Names]]:
    """What the observer asked before, if anything; the clock moves to the operation's time; the operation happens."""
    happened: list[tuple[str, Names]] = []
    if recorded["observe"] == "after_every_operation" and s.nodes is not None:
        happened = [("number_at_same_position_or_before", {"cursor": c.cursor}) for c in s.cursors]
        happened.append(("slowest_position", {}))
    arguments = dict(operation.args)
    now = arguments.pop("now_ms")
    if now != s.now_ms:
        happened.append(("advance", {"millis": now - s.now_ms}))
    if "cursor" in arguments:
        arguments["cursor"] = number_of(arguments["cursor"])
    happened.append(("slowest_position" if operation.op == "observe_all" else operation.op, arguments))
    return happened


RESULTS: dict[str, Callable[[Any], Any]] = {
    "add_cursor": lambda o: None,
    "get_cursor": lambda o: o and name_of(o.cursor),
    "cursor_updated": lambda o: o and {"previous_slowest": plain(o.previous), "new_slowest": plain(o.new)},
    "observe_all": lambda o: None,
}


def result(cfg: Config, op: str, outcome: Any, recorded: Names) -> Any:
    """An outcome as it was recorded."""
    return error_or(outcome, RESULTS.get(op, plain))


def observation(cfg: Config, seen: Any, recorded: Names) -> Any:
    """What an observer saw, with the cursors' names."""
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
    """What was recorded of that; of several slowest cursors any may be named."""
    chosen = {key: value for key, value in seen.items() if key in recorded}
    for key in {"slowest_cursor", "oldest"} & set(chosen):
        possible = chosen[key]
        chosen[key] = recorded[key] if recorded[key] in possible else next(iter(possible), None)
    return chosen


def recording(container: str, profile: str, *deviations: Deviation) -> Recording:
    """The recordings of one container."""
    return Recording(
        component="active_cursor_container",
        subject="active_cursors",
        profile=profile,
        settings=settings,
        actions=actions,
        result=result,
        observation=observation,
        as_recorded=as_recorded,
        kind=lambda config: config.get("container") == container,
        deviations=deviations,
    )


def added_again(container: str) -> Deviation:
    """What a present cursor was tracked by stays when it is added again."""
    return Deviation(
        "a_replaced_cursor_is_still_tracked",
        ("container", "adding_leaves_old_item"),
        "nothing_is_kept_of_replaced_cursors",
        f"active_cursor_container/dev/edge/{container}/add_same_name_twice",
    )


recordings = (
    recording(
        "linked_list",
        "pulsar-2026-07",
        Deviation(
            "the_last_cursor_leaves_or_joins_a_group_uncounted",
            ("container", "tail_keeps_counts"),
            "a_rank_counts_all_at_or_before",
            "active_cursor_container/dev/edge/linked_list/last_cursor_leaves_group",
        ),
        Deviation(
            "an_untracked_cursor_keeps_its_position",
            ("container", "untracked_keeps_position"),
            "a_rank_counts_all_at_or_before",
            "active_cursor_container/dev/edge/linked_list/add_same_name_twice",
        ),
        Deviation(
            "adding_a_cursor_leaves_it_to_be_untracked",
            ("container", "adding_keeps_removal"),
            "a_rank_counts_all_at_or_before",
            "",
        ),
        Deviation(
            "a_name_that_is_added_again_gives_the_old_cursor",
            ("container", "readding_keeps_object"),
            "a_name_gives_the_cursor_added_last",
            "",
        ),
        Deviation(
            "removed_cursors_are_remembered_until_a_question",
            ("container", "drops_removed_nodes"),
            "little_is_kept_of_removed_cursors",
            "",
        ),
    ),
    recording(
        "heap",
        "pulsar-2026-07-heap",
        Deviation(
            "a_removal_from_the_middle_leaves_the_heap_out_of_order",
            ("container", "removal_only_sinks"),
            "an_update_tells_the_slowest",
            "active_cursor_container/dev/edge/heap/removal_then_update_reports_wrong_slowest",
        ),
        Deviation(
            "an_untracked_cursor_stays_so",
            ("update_begins_tracking",),
            "an_update_sets_the_position",
            "active_cursor_container/dev/edge/heap/untracked_cursors",
        ),
        added_again("heap"),
    ),
    recording("navigable_set", "pulsar-2026-07-set", added_again("navigable_set")),
)
