"""How recordings of three negative-ack trackers map to the machine.

The clock's unit and the retained ids of a version come with its recordings, as the settings do: no guarantee depends on
them. All other rules on which a version differs from the reference are deviations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fuzz.trace.file import Operation
from fuzz.trace.recording import Deviation, Recording, error_or
from model.machine import plain
from model.negative_acks.delay import UNITS_PER_MS, go_default_backoff, multiplier_backoff
from model.negative_acks.machine import Config, Elapsed, Nacked, Redelivery, State
from model.negative_acks.message_ids import MessageId

Names = Mapping[str, Any]

# ---- operations -----------------------------------------------------------------------------------------


def java_backoff(recorded: Names) -> Names:
    """Returns the delays of the recorded `MultiplierRedeliveryBackoff`."""
    backoff = recorded["backoff"]
    if backoff is None:
        return {"delays": []}
    table = multiplier_backoff(backoff["min_delay_ms"], backoff["max_delay_ms"], backoff["multiplier"])
    return {"delays": list(table)}


def go_backoff(recorded: Names) -> Any:
    """Returns the Go client's default backoff, or the recorded delays."""
    backoff = recorded["backoff"] or {"kind": "table", "delays_ms": []}
    return plain(go_default_backoff()) if backoff["kind"] == "default" else {"delays": backoff["delays_ms"]}


def actions(cfg: Config, s: State, operation: Operation, recorded: Names) -> Sequence[tuple[str, Names]]:
    """Returns the actions of an operation: the clock advances to its time without a timer run, then it happens."""
    arguments = dict(operation.args)
    now = arguments.pop(f"now_{cfg.clock_unit}", s.now)
    moved: list[tuple[str, Names]] = []
    if now != s.now and operation.op != "start":
        moved = [("advance_time", {"by": now - s.now, "timer_lag": now})]
    return [*moved, action_of(cfg, s, operation.op, arguments)]


def action_of(cfg: Config, s: State, op: str, recorded: dict[str, Any]) -> tuple[str, Names]:
    """Returns the action of an operation."""
    if op == "advance_time":
        unit = cfg.clock_unit
        lag = recorded.get(f"timer_lag_{unit}", recorded.get(f"tick_lag_{unit}"))
        return op, {"by": recorded[f"to_{unit}"] - s.now, "timer_lag": lag}
    if op == "nack":
        nacked = {"kind": recorded.get("kind", "plain"), "partition": max(recorded["partition"], -1)}
        nacked |= {name: recorded[name] for name in ("traced", "first_chunk", "batch_index") if name in recorded}
        entry = [recorded["ledger"], recorded["entry"]]
        return op, {"entry": entry, "redelivery_count": recorded.get("redelivery_count"), "message_id": nacked}
    if op == "remember_chunks":
        last = [recorded["ledger"], recorded["entry"]]
        arguments = {"last_chunk": last, "partition": recorded["partition"], "chunks": recorded["chunks"]}
        return "receive_chunks", arguments
    return {"start": "run_timer_task", "timer_task_runs": "run_timer_task"}.get(op, op), recorded


# ---- results --------------------------------------------------------------------------------------------


def message(id: MessageId) -> Names:
    """Returns a redelivered id in the form of the Java recordings."""
    fields = {**id.position._asdict(), "partition": id.partition, "kind": id.kind}
    rest = {"first_chunk": id.first_chunk, "batch_index": id.batch_index}
    return {**fields, **{name: plain(value) for name, value in rest.items() if value is not None}}


def in_text_order(id: MessageId) -> tuple[Any, ...]:
    """Returns the sort key of an id in a recorded command, whose ids are in the order of their texts."""
    return id.position, str(id.partition), id.kind


def redelivered(cfg: Config, redeliveries: Sequence[Redelivery], form: Callable[[MessageId], Any]) -> list[Any]:
    """Returns redelivery commands in recorded form."""
    ids = [[form(i) for i in sorted(each.ids, key=in_text_order)] for each in redeliveries]
    return [{f"at_{cfg.clock_unit}": each.at, "messages": m} for each, m in zip(redeliveries, ids, strict=True)]


def java_result(cfg: Config, op: str, outcome: Any, recorded: Names) -> Any:
    """Returns an outcome in the form of the Java recordings; only those before PIP-393 count timer runs."""

    def form(outcome: Any) -> Any:
        if isinstance(outcome, Nacked):
            return {"timer_scheduled": outcome.timer_changed}
        if isinstance(outcome, Elapsed):
            runs = {} if cfg.clock_unit == "ms" else {"timer_runs": outcome.timer_runs}
            return {**runs, "redeliveries": redelivered(cfg, outcome.redeliveries, message)}
        return plain(outcome)

    return error_or(outcome, form)


def go_result(cfg: Config, op: str, outcome: Any, recorded: Names) -> Any:
    """Returns an outcome in the form of the Go recordings."""

    def form(outcome: Any) -> Any:
        if isinstance(outcome, Nacked):
            return {"delay_ns": outcome.delay} if outcome.backoff_used else None
        if isinstance(outcome, Elapsed):
            ids = redelivered(cfg, outcome.redeliveries, lambda i: i.position.as_plain())
            return {"ticks": outcome.timer_runs, "redeliveries": ids}
        return plain(outcome)

    return error_or(outcome, form)


# ---- observations ---------------------------------------------------------------------------------------

#: Matches null and the empty list, where only some versions have null buckets.
NONE_OR_EMPTY = "none or empty"


def or_null(cfg: Config, seen: Any, content: Any) -> Any:
    """Returns the content of the buckets, or None before the first nack and after close if the tracker reopens."""
    if cfg.after_close == "reopens":
        return content if seen["created"] else None
    return content or NONE_OR_EMPTY


def as_recorded(seen: Any, recorded: Any) -> Any:
    """Returns an observation with null and empty buckets as recorded."""
    if seen is None or recorded is None:
        return seen
    same = {"slots", "entries", "nacked_entries"} & set(recorded)
    empty = {name for name in same if seen[name] == NONE_OR_EMPTY and not recorded[name]}
    return {**seen, **{name: recorded[name] for name in empty}}


def java_observation(cfg: Config, seen: Any, recorded: Names) -> Any:
    """Returns the recorded observation of a tracker after PIP-393."""
    slots = or_null(cfg, seen, seen["buckets"])
    return {"nacked_entries": seen["nacked_entries"], "slots": slots, "next_timer_ms": seen["timer"]}


def before_393_observation(cfg: Config, seen: Any, recorded: Names) -> Any:
    """Returns the recorded observation of a tracker before PIP-393: its entries by position, and their number."""
    partitions = {(ledger, entry): partition for ledger, entry, partition in seen["retained_ids"]}
    due = [(*entry, time) for time, entries in seen["buckets"] for entry in entries]
    entries = sorted([ledger, entry, partitions.get((ledger, entry)), time] for ledger, entry, time in due)
    count = or_null(cfg, seen, seen["nacked_entries"])
    return {"nacked_entries": count, "entries": or_null(cfg, seen, entries), "next_timer_ns": seen["timer"]}


def go_observation(cfg: Config, seen: Any, recorded: Names) -> Any:
    """Returns the recorded observation of Go's tracker, with bucket times in ms; None if its construction failed."""
    if "tick_period_ns" not in recorded:
        return None
    slots = [[time // UNITS_PER_MS["ns"], entries] for time, entries in seen["buckets"]]
    return {"nacked_entries": seen["nacked_entries"], "slots": slots, "next_tick_ns": seen["timer"]}


# ---- the recordings -------------------------------------------------------------------------------------


def java_settings(recorded: Names) -> Names:
    """Returns the settings of a Java tracker after PIP-393."""
    return {
        "initial_time": recorded["start_ms"],
        "redelivery_delay_ms": recorded["redelivery_delay_ms"],
        "precision_bits": recorded["precision_bits"],
        "backoff": java_backoff(recorded),
    }


def before_393_settings(recorded: Names) -> Names:
    """Returns the settings of a Java tracker before PIP-393, whose due times are exact."""
    return {
        "clock_unit": "ns",
        "initial_time": recorded["start_ns"],
        "redelivery_delay_ms": recorded["redelivery_delay_ms"],
        "precision_bits": 0,
        "precision_unit": "clock_units",
        "backoff": java_backoff(recorded),
        "retained_ids": "with_partition",
    }


def go_settings(recorded: Names) -> Names:
    """Returns the settings of a Go tracker, for which a negative precision means 0."""
    return {
        "clock_unit": "ns",
        "initial_time": recorded["start_ns"],
        "redelivery_delay_ms": recorded["redelivery_delay_ms"],
        "precision_bits": max(recorded["precision_bits"], 0),
        "backoff": go_backoff(recorded),
        "redelivery_count_of_id": 1,
        "retained_ids": "none",
    }


JAVA, BEFORE_393, GO = "negative_acks_tracker", "negative_acks_tracker_before_393", "negative_acks_tracker_go"


def deviation(component: str, name: str, settings: tuple[str, ...], breaks: str, smallest: str) -> Deviation:
    """Returns a deviation; its shortest trace is named by set and name, or empty."""
    return Deviation(name, settings, breaks, smallest and f"{component}/dev/{smallest}")


JAVA_DEVIATIONS = (
    deviation(
        JAVA,
        "shorter_nack_waits_for_longer_one",
        ("timer",),
        "timer_deadline_is_at_most_first_bucket",
        "edge/close_cancels",
    ),
    deviation(
        JAVA,
        "minimum_delay_does_not_apply_to_backoff",
        ("min_delay_applies_to",),
        "nack_delay_is_requested_or_minimum",
        "random/1",
    ),
    deviation(JAVA, "closed_tracker_reopens", ("after_close",), "close_is_final", "edge/close_cancels"),
    deviation(
        JAVA,
        "timer_task_after_close_fails",
        ("task_without_buckets", "after_close"),
        "timer_task_after_close_is_a_no_op",
        "edge/timer_task_already_running_when_closed",
    ),
    deviation(
        JAVA,
        "retained_id_beside_plain_id",
        ("unique_in_command",),
        "redelivery_command_has_one_id_per_entry",
        "random/46",
    ),
    deviation(
        JAVA,
        "chunks_found_by_message_id_only",
        ("chunks_found_by",),
        "chunked_message_is_redelivered_whole",
        "random/25",
    ),
    deviation(JAVA, "due_times_follow_wall_clock", ("due_clock",), "wall_clock_step_moves_no_due_time", ""),
    deviation(JAVA, "negative_ids_are_tracked", ("negative_ids",), "negative_message_id_is_rejected", ""),
)

BEFORE_393_DEVIATIONS = (
    deviation(
        BEFORE_393,
        "timer_period_of_a_third_of_the_delay",
        ("timer",),
        "redelivery_is_not_late",
        "edge/backoff_minimum_0ms",
    ),
    deviation(
        BEFORE_393,
        "minimum_delay_does_not_apply_to_backoff",
        ("min_delay_applies_to",),
        "nack_delay_is_requested_or_minimum",
        "edge/backoff_minimum_0ms",
    ),
    deviation(
        BEFORE_393,
        "repeated_nack_replaces_first",
        ("repeated_nack",),
        "nack_leaves_other_nacks_pending",
        "edge/second_nack_brings_forward_or_delays",
    ),
    deviation(
        BEFORE_393,
        "nack_due_at_a_run_waits_for_the_next",
        ("due_at_bucket_time",),
        "redelivery_is_not_late",
        "edge/due_exactly_at_timer_run_waits_for_next_run",
    ),
    deviation(BEFORE_393, "closed_tracker_reopens", ("after_close",), "close_is_final", "edge/close_cancels"),
    deviation(
        BEFORE_393,
        "timer_task_after_close_fails",
        ("task_without_buckets", "after_close"),
        "timer_task_after_close_is_a_no_op",
        "edge/timer_task_already_running_when_closed",
    ),
    deviation(
        BEFORE_393,
        "chunks_are_never_found",
        ("chunks_found_by",),
        "chunked_message_is_redelivered_whole",
        "edge/chunk_with_other_partition_not_found",
    ),
    deviation(
        BEFORE_393,
        "negative_entry_ids_are_tracked",
        ("negative_ids",),
        "negative_message_id_is_rejected",
        "edge/negative_ledger_refused",
    ),
)

GO_DEVIATIONS = (
    deviation(
        GO,
        "ticker_runs_with_nothing_pending",
        ("timer",),
        "timer_is_armed_iff_nacks_are_pending",
        "edge/10_slots_due_at_one_tick",
    ),
    deviation(
        GO,
        "avl_walk_skips_due_buckets",
        ("due_buckets",),
        "timer_run_leaves_no_due_bucket",
        "edge/3_slots_in_mixed_order",
    ),
    deviation(
        GO, "no_minimum_delay", ("min_delay_applies_to",), "tracker_starts_with_any_delay", "edge/first_backoff_is_zero"
    ),
    deviation(
        GO,
        "negative_delay_is_accepted",
        ("negative_delay",),
        "nack_delay_is_nonnegative",
        "edge/default_backoff_redelivery_count_34",
    ),
    deviation(
        GO,
        "message_without_backoff_fails",
        ("message_without_backoff",),
        "valid_nack_is_accepted",
        "edge/message_without_backoff",
    ),
    deviation(
        GO,
        "entry_of_two_buckets_is_redelivered_twice",
        ("unique_in_command",),
        "redelivery_command_has_no_duplicate_id",
        "random/22",
    ),
    deviation(
        GO,
        "closed_tracker_keeps_nacks",
        ("after_close",),
        "close_is_final",
        "edge/close_keeps_entries_but_never_redelivers",
    ),
    deviation(
        GO, "negative_ids_are_tracked", ("negative_ids",), "negative_message_id_is_rejected", "edge/negative_ids"
    ),
    deviation(GO, "due_times_follow_wall_clock", ("due_clock",), "wall_clock_step_moves_no_due_time", ""),
)

recordings = (
    Recording(
        JAVA,
        "negative_acks",
        "pulsar-2026-07",
        java_settings,
        actions,
        java_result,
        java_observation,
        as_recorded,
        deviations=JAVA_DEVIATIONS,
    ),
    Recording(
        BEFORE_393,
        "negative_acks",
        "java-before-393",
        before_393_settings,
        actions,
        java_result,
        before_393_observation,
        as_recorded,
        deviations=BEFORE_393_DEVIATIONS,
    ),
    Recording(
        GO,
        "negative_acks",
        "go",
        go_settings,
        actions,
        go_result,
        go_observation,
        as_recorded,
        deviations=GO_DEVIATIONS,
    ),
)
