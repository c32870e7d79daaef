"""How recordings of three trackers of negative acknowledgements map to the machine.

What a version tells of ids, and in which units it counts, comes with a recording as its settings do: nobody is promised
otherwise. The rules on which the versions differ from the reference are the deviations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fuzz.trace.file import Operation
from fuzz.trace.recording import Deviation, Recording, error_or
from model.machine import plain
from model.negative_acks.delay import UNITS_OF, go_backoff, multiplier_backoff
from model.negative_acks.ids import MessageId
from model.negative_acks.machine import Config, Nacked, Passed, Redelivery, State

Names = Mapping[str, Any]

# ---- what happened --------------------------------------------------------------------------------------


def java_backoff(recorded: Names, unit: str) -> tuple[int, ...]:
    """The table of the multiplier backoff that was recorded with, in units of the clock."""
    backoff = recorded["backoff"]
    if backoff is None:
        return ()
    table = multiplier_backoff(backoff["min_delay_ms"], backoff["max_delay_ms"], backoff["multiplier"])
    return tuple([delay * UNITS_OF[unit] for delay in table])


def go_table(recorded: Names) -> tuple[int, ...]:
    """The Go client's default backoff, or the table that was recorded with, in nanoseconds."""
    backoff = recorded["backoff"] or {"kind": "table", "delays_ms": []}
    if backoff["kind"] == "default":
        return go_backoff()
    return tuple([delay * UNITS_OF["ns"] for delay in backoff["delays_ms"]])


def actions(cfg: Config, s: State, operation: Operation, recorded: Names) -> Sequence[tuple[str, Names]]:
    """The clock moves on to the operation's time, without a run of the timer, and the operation happens."""
    arguments = dict(operation.args)
    now = arguments.pop(f"now_{cfg.unit}", s.now)
    moved: list[tuple[str, Names]] = []
    if now != s.now and operation.op != "start":
        moved = [("advance_time", {"by": now - s.now, "lag": now})]
    return [*moved, action_of(cfg, s, operation.op, arguments)]


def action_of(cfg: Config, s: State, op: str, recorded: dict[str, Any]) -> tuple[str, Names]:
    """An operation as an action."""
    if op == "advance_time":
        lag = recorded.get(f"timer_lag_{cfg.unit}", recorded.get(f"tick_lag_{cfg.unit}"))
        return op, {"by": recorded[f"to_{cfg.unit}"] - s.now, "lag": lag}
    if op == "nack":
        told = {"kind": recorded.get("kind", "plain"), "partition": max(recorded["partition"], -1)}
        told |= {name: recorded[name] for name in ("traced", "first_chunk", "batch_index") if name in recorded}
        entry = [recorded["ledger"], recorded["entry"]]
        return op, {"entry": entry, "count": recorded.get("redelivery_count"), "told": told}
    if op == "remember_chunks":
        last = [recorded["ledger"], recorded["entry"]]
        return op, {"last": last, "partition": recorded["partition"], "pieces": recorded["chunks"]}
    return "timer_task_runs" if op == "start" else op, recorded


# ---- what was told --------------------------------------------------------------------------------------


def message(id: MessageId) -> Names:
    """A redelivered id, as the Java recordings have it."""
    told = {**id.position._asdict(), "partition": id.partition, "kind": id.kind}
    rest = {"first_chunk": id.first_chunk, "batch_index": id.batch_index}
    return {**told, **{name: plain(value) for name, value in rest.items() if value is not None}}


def in_text_order(id: MessageId) -> tuple[Any, ...]:
    """The place of an id among those of a command, which are recorded in the order of their texts."""
    return id.position, str(id.partition), id.kind


def redelivered(cfg: Config, redeliveries: Sequence[Redelivery], form: Callable[[MessageId], Any]) -> list[Any]:
    """Commands for redelivery, as recorded."""
    ids = [[form(i) for i in sorted(each.ids, key=in_text_order)] for each in redeliveries]
    return [{f"at_{cfg.unit}": each.at, "messages": m} for each, m in zip(redeliveries, ids, strict=True)]


def java_result(cfg: Config, op: str, outcome: Any, recorded: Names) -> Any:
    """An outcome as the Java client's recordings have it; only those before PIP-393 count runs."""

    def told(outcome: Any) -> Any:
        if isinstance(outcome, Nacked):
            return {"timer_scheduled": outcome.timer_set}
        if isinstance(outcome, Passed):
            runs = {} if cfg.unit == "ms" else {"timer_runs": outcome.runs}
            return {**runs, "redeliveries": redelivered(cfg, outcome.redeliveries, message)}
        return plain(outcome)

    return error_or(outcome, told)


def go_result(cfg: Config, op: str, outcome: Any, recorded: Names) -> Any:
    """An outcome as the Go client's recordings have it."""

    def told(outcome: Any) -> Any:
        if isinstance(outcome, Nacked):
            return {"delay_ns": outcome.delay} if outcome.asked_backoff else None
        if isinstance(outcome, Passed):
            ids = redelivered(cfg, outcome.redeliveries, lambda i: i.position.as_plain())
            return {"ticks": outcome.runs, "redeliveries": ids}
        return plain(outcome)

    return error_or(outcome, told)


# ---- what was seen --------------------------------------------------------------------------------------

#: What is seen of a tracker that holds nothing, where only some versions have no slots at all then.
NONE_OR_EMPTY = "none or empty"


def slots_of(cfg: Config, seen: Any, slots: Any) -> Any:
    """Slots, or None before the first nack and after close, where the version is one that drops them."""
    if cfg.close == "forgets":
        return slots if seen["is_made"] else None
    return slots or NONE_OR_EMPTY


def as_recorded(seen: Any, recorded: Any) -> Any:
    """An observation, where a tracker without slots and one with no slot in it are the same."""
    if seen is None or recorded is None:
        return seen
    same = {"slots", "entries", "nacked_entries"} & set(recorded)
    empty = {name for name in same if seen[name] == NONE_OR_EMPTY and not recorded[name]}
    return {**seen, **{name: recorded[name] for name in empty}}


def java_observation(cfg: Config, seen: Any, recorded: Names) -> Any:
    """What was recorded of a tracker after PIP-393."""
    slots = slots_of(cfg, seen, seen["slots"])
    return {"nacked_entries": seen["nacked_entries"], "slots": slots, "next_timer_ms": seen["timer"]}


def before_393_observation(cfg: Config, seen: Any, recorded: Names) -> Any:
    """What was recorded of a tracker before PIP-393: its entries by position, and how many they are."""
    partitions = {(ledger, entry): partition for ledger, entry, partition in seen["kept"]}
    due = [(*entry, time) for time, entries in seen["slots"] for entry in entries]
    entries = sorted([ledger, entry, partitions.get((ledger, entry)), time] for ledger, entry, time in due)
    count = slots_of(cfg, seen, seen["nacked_entries"])
    return {"nacked_entries": count, "entries": slots_of(cfg, seen, entries), "next_timer_ns": seen["timer"]}


def go_observation(cfg: Config, seen: Any, recorded: Names) -> Any:
    """What was recorded of the Go client's tracker: its slots in milliseconds; nothing of one whose start failed."""
    if "tick_period_ns" not in recorded:
        return None
    slots = [[time // UNITS_OF["ns"], entries] for time, entries in seen["slots"]]
    return {"nacked_entries": seen["nacked_entries"], "slots": slots, "next_tick_ns": seen["timer"]}


# ---- the recordings -------------------------------------------------------------------------------------


def java_settings(recorded: Names) -> Names:
    """The settings after PIP-393."""
    return {
        "start": recorded["start_ms"],
        "redelivery_delay_ms": recorded["redelivery_delay_ms"],
        "precision_bits": recorded["precision_bits"],
        "backoff": java_backoff(recorded, "ms"),
    }


def before_393_settings(recorded: Names) -> Names:
    """The settings before PIP-393: due times are exact."""
    return {
        "unit": "ns",
        "start": recorded["start_ns"],
        "redelivery_delay_ms": recorded["redelivery_delay_ms"],
        "precision_bits": 0,
        "precision_of": "units",
        "backoff": java_backoff(recorded, "ns"),
        "ids": "with_partition",
    }


def go_settings(recorded: Names) -> Names:
    """The settings of the Go client, which knows a precision below zero, too, and takes it for none."""
    return {
        "unit": "ns",
        "start": recorded["start_ns"],
        "redelivery_delay_ms": recorded["redelivery_delay_ms"],
        "precision_bits": max(recorded["precision_bits"], 0),
        "backoff": go_table(recorded),
        "count_of_an_id": 1,
        "ids": "none",
    }


JAVA, BEFORE_393, GO = "negative_acks_tracker", "negative_acks_tracker_before_393", "negative_acks_tracker_go"


def deviation(component: str, name: str, settings: tuple[str, ...], breaks: str, smallest: str) -> Deviation:
    """A deviation; its smallest trace is named by set and name, or empty."""
    return Deviation(name, settings, breaks, smallest and f"{component}/dev/{smallest}")


JAVA_DEVIATIONS = (
    deviation(
        JAVA,
        "a_shorter_nack_waits_for_a_longer_one",
        ("timer",),
        "the_timer_is_set_for_the_first_slot",
        "edge/close_cancels",
    ),
    deviation(
        JAVA,
        "a_backoff_may_be_shorter_than_the_least_delay",
        ("least_delay_holds_for",),
        "no_delay_is_shorter_than_the_least",
        "random/1",
    ),
    deviation(JAVA, "a_closed_tracker_starts_again", ("close",), "close_is_final", "edge/close_cancels"),
    deviation(
        JAVA,
        "a_task_after_close_fails",
        ("task_without_slots", "close"),
        "a_late_task_does_no_harm",
        "edge/timer_task_already_running_when_closed",
    ),
    deviation(
        JAVA, "a_kept_id_comes_beside_the_bare_one", ("command",), "an_entry_comes_once_in_a_command", "random/46"
    ),
    deviation(
        JAVA, "pieces_are_found_by_their_own_id_only", ("pieces_by",), "a_chunked_message_comes_back_whole", "random/25"
    ),
    deviation(JAVA, "due_times_are_the_wall_clock_s", ("clock",), "a_jump_of_the_wall_clock_moves_nothing", ""),
    deviation(JAVA, "ids_below_zero_are_tracked", ("negative_ids",), "only_what_can_be_stored_is_tracked", ""),
)

BEFORE_393_DEVIATIONS = (
    deviation(
        BEFORE_393, "a_wake_up_every_third_of_the_delay", ("timer",), "nothing_comes_late", "edge/backoff_minimum_0ms"
    ),
    deviation(
        BEFORE_393,
        "a_backoff_may_be_shorter_than_the_least_delay",
        ("least_delay_holds_for",),
        "no_delay_is_shorter_than_the_least",
        "edge/backoff_minimum_0ms",
    ),
    deviation(
        BEFORE_393,
        "a_second_nack_moves_the_first",
        ("again",),
        "a_nack_disturbs_no_other",
        "edge/second_nack_brings_forward_or_delays",
    ),
    deviation(
        BEFORE_393,
        "what_is_due_at_a_run_waits_for_the_next",
        ("due_at_its_time",),
        "nothing_comes_late",
        "edge/due_exactly_at_timer_run_waits_for_next_run",
    ),
    deviation(BEFORE_393, "a_closed_tracker_starts_again", ("close",), "close_is_final", "edge/close_cancels"),
    deviation(
        BEFORE_393,
        "a_task_after_close_fails",
        ("task_without_slots", "close"),
        "a_late_task_does_no_harm",
        "edge/timer_task_already_running_when_closed",
    ),
    deviation(
        BEFORE_393,
        "the_pieces_of_a_chunked_message_are_never_found",
        ("pieces_by",),
        "a_chunked_message_comes_back_whole",
        "edge/chunk_with_other_partition_not_found",
    ),
    deviation(
        BEFORE_393,
        "entries_below_zero_are_tracked",
        ("negative_ids",),
        "only_what_can_be_stored_is_tracked",
        "edge/negative_ledger_refused",
    ),
)

GO_DEVIATIONS = (
    deviation(
        GO,
        "a_ticker_ticks_whatever_is_pending",
        ("timer",),
        "the_timer_is_set_while_something_is_pending",
        "edge/10_slots_due_at_one_tick",
    ),
    deviation(
        GO,
        "a_walk_over_a_tree_leaves_slots_behind",
        ("walk",),
        "a_run_leaves_nothing_that_is_due",
        "edge/3_slots_in_mixed_order",
    ),
    deviation(
        GO, "there_is_no_least_delay", ("least_delay_holds_for",), "a_tracker_starts", "edge/first_backoff_is_zero"
    ),
    deviation(
        GO,
        "a_delay_below_zero_is_past",
        ("negative_delay",),
        "nobody_waits_for_less_than_nothing",
        "edge/default_backoff_redelivery_count_34",
    ),
    deviation(
        GO,
        "a_message_without_backoff_fails",
        ("count_without_backoff",),
        "every_sound_nack_is_taken",
        "edge/message_without_backoff",
    ),
    deviation(GO, "an_entry_of_two_slots_comes_twice", ("command",), "an_entry_comes_once_in_a_command", "random/22"),
    deviation(
        GO,
        "a_closed_tracker_keeps_and_stores",
        ("close",),
        "close_is_final",
        "edge/close_keeps_entries_but_never_redelivers",
    ),
    deviation(
        GO, "ids_below_zero_are_tracked", ("negative_ids",), "only_what_can_be_stored_is_tracked", "edge/negative_ids"
    ),
    deviation(GO, "due_times_are_the_wall_clock_s", ("clock",), "a_jump_of_the_wall_clock_moves_nothing", ""),
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
