"""Maps recordings of three negative-ack trackers to `negative_acks`: Java's before and after PIP-393, and Go's.

If a recorded version differs from the reference in a rule, this is a deviation. There are four exceptions, which the
mappings set as the version has them: `clock_unit`, `precision_unit`, `retained_ids` and `redelivery_count_of_id`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fuzz.trace.file import Operation
from fuzz.trace.recording import Deviation, TraceMapping, error_or
from model.machine import plain
from model.negative_acks.delay import go_default_backoff, multiplier_backoff
from model.negative_acks.machine import Config, Elapsed, Nacked, Redelivery, State
from model.negative_acks.message_ids import MessageId
from model.values import UNITS_PER_MS

Names = Mapping[str, Any]

#: The kind of a `MessageIdImpl` in the recordings; the model's is "message_id".
PLAIN = "plain"

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
    """Returns the actions of an operation: an advance of the clock to its time without a timer run, then the operation.

    The operation `start` has no advance.
    """
    arguments = dict(operation.args)
    now = arguments.pop(f"now_{cfg.clock_unit}", s.now)
    moved: list[tuple[str, Names]] = []
    if now != s.now and operation.op != "start":
        # the timer runs `timer_lag` after its deadline: with this lag, after `now`
        moved = [("advance_time", {"by": now - s.now, "timer_lag": now})]
    return [*moved, action_of(cfg, s, operation.op, arguments)]


def action_of(cfg: Config, s: State, op: str, args: dict[str, Any]) -> tuple[str, Names]:
    """Returns the action of an operation, with its arguments. `args` are the recorded arguments."""
    if op == "advance_time":
        unit = cfg.clock_unit
        lag = args.get(f"timer_lag_{unit}", args.get(f"tick_lag_{unit}"))  # Go's timer is a ticker
        return op, {"by": args[f"to_{unit}"] - s.now, "timer_lag": lag}
    if op == "nack":
        kind = args.get("kind", PLAIN)
        # the model has no partition below -1, which means that the topic is not partitioned
        nacked = {"kind": "message_id" if kind == PLAIN else kind, "partition": max(args["partition"], -1)}
        nacked |= {name: args[name] for name in ("traced", "first_chunk", "batch_index") if name in args}
        entry = [args["ledger"], args["entry"]]
        return op, {"entry": entry, "redelivery_count": args.get("redelivery_count"), "message_id": nacked}
    if op == "remember_chunks":
        last = [args["ledger"], args["entry"]]
        return "receive_chunks", {"last_chunk": last, "partition": args["partition"], "chunks": args["chunks"]}
    return {"start": "run_timer_task", "timer_task_runs": "run_timer_task"}.get(op, op), args


# ---- results --------------------------------------------------------------------------------------------


def recorded_kind(id: MessageId) -> str:
    """Returns the kind of an id in the Java recordings."""
    return PLAIN if id.kind == "message_id" else id.kind


def message(id: MessageId) -> Names:
    """Returns a redelivered id in the form of the Java recordings."""
    fields = {**id.position._asdict(), "partition": id.partition, "kind": recorded_kind(id)}
    rest = {"first_chunk": id.first_chunk, "batch_index": id.batch_index}
    return {**fields, **{name: plain(value) for name, value in rest.items() if value is not None}}


def in_text_order(id: MessageId) -> tuple[Any, ...]:
    """Returns the sort key of an id. Recorded commands sort by position, then by the texts of partition and kind."""
    return id.position, str(id.partition), recorded_kind(id)


def redelivered(cfg: Config, redeliveries: Sequence[Redelivery], form: Callable[[MessageId], Any]) -> list[Any]:
    """Returns redelivery commands in recorded form; `form` returns an id in recorded form."""
    ids = [[form(i) for i in sorted(each.ids, key=in_text_order)] for each in redeliveries]
    return [{f"at_{cfg.clock_unit}": each.at, "messages": m} for each, m in zip(redeliveries, ids, strict=True)]


def java_result(cfg: Config, op: str, outcome: Any, recorded: Names) -> Any:
    """Returns an outcome in the form of the Java recordings. Only recordings before PIP-393 have the timer runs."""

    def form(outcome: Any) -> Any:
        if isinstance(outcome, Nacked):
            return {"timer_scheduled": outcome.timer_changed}
        if isinstance(outcome, Elapsed):
            runs = {} if cfg.clock_unit == "ms" else {"timer_runs": outcome.timer_runs}  # ms: after PIP-393
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

#: In an observation: null or empty, because a version may have either.
NONE_OR_EMPTY = "none or empty"


def null_without_buckets(cfg: Config, seen: Any, content: Any) -> Any:
    """Returns the content of the buckets in recorded form; without content, None or NONE_OR_EMPTY.

    If a nack reopens a closed tracker (`after_close`), there are no buckets before the first nack and after `close`:
    then null is recorded. Otherwise, null or empty may be recorded if there is no content.
    """
    if cfg.after_close == "reopens":
        return content if seen["created"] else None
    return content or NONE_OR_EMPTY


def as_recorded(seen: Any, recorded: Any) -> Any:
    """Returns an observation in which NONE_OR_EMPTY is replaced by the recorded value, if that is null or empty."""
    if seen is None or recorded is None:
        return seen
    same = {"slots", "entries", "nacked_entries"} & set(recorded)
    empty = {name for name in same if seen[name] == NONE_OR_EMPTY and not recorded[name]}
    return {**seen, **{name: recorded[name] for name in empty}}


def java_observation(cfg: Config, seen: Any, recorded: Names) -> Any:
    """Returns the observation of a Java tracker after PIP-393 in recorded form."""
    slots = null_without_buckets(cfg, seen, seen["buckets"])
    return {"nacked_entries": seen["nacked_entries"], "slots": slots, "next_timer_ms": seen["timer"]}


def before_393_observation(cfg: Config, seen: Any, recorded: Names) -> Any:
    """Returns the observation of a Java tracker before PIP-393 in recorded form: its entries, and their number."""
    partitions = {(ledger, entry): partition for ledger, entry, partition in seen["retained_ids"]}
    due = [(*entry, time) for time, entries in seen["buckets"] for entry in entries]
    entries = sorted([ledger, entry, partitions.get((ledger, entry)), time] for ledger, entry, time in due)
    count = null_without_buckets(cfg, seen, seen["nacked_entries"])
    return {
        "nacked_entries": count,
        "entries": null_without_buckets(cfg, seen, entries),
        "next_timer_ns": seen["timer"],
    }


def go_observation(cfg: Config, seen: Any, recorded: Names) -> Any:
    """Returns the observation of Go's tracker in recorded form; None if its construction failed."""
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
    """Returns the settings of a Java tracker before PIP-393. It has exact due times: precision 0."""
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
    """Returns the settings of a Go tracker. A negative precision means 0."""
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


TASK_AFTER_CLOSE = Deviation(
    "timer_task_after_close_fails",
    ("task_without_buckets", "after_close"),
    "timer_task_after_close_is_a_no_op",
    "edge/timer_task_already_running_when_closed",
)
SHORTER_NACK = Deviation(
    "shorter_nack_waits_for_longer_one", ("timer",), "timer_deadline_is_at_most_first_bucket", "edge/close_cancels"
)
NACK_DUE_AT_A_RUN = Deviation(
    "nack_due_at_a_run_waits_for_the_next",
    ("due_at_bucket_time",),
    "redelivery_is_not_late",
    "edge/due_exactly_at_timer_run_waits_for_next_run",
)
IDLE_TICKER = Deviation(
    "ticker_runs_with_nothing_pending",
    ("timer",),
    "timer_is_armed_iff_nacks_are_pending",
    "edge/10_slots_due_at_one_tick",
)
NO_MINIMUM_DELAY = Deviation(
    "no_minimum_delay", ("min_delay_applies_to",), "tracker_starts_with_any_delay", "edge/first_backoff_is_zero"
)

mappings = (
    TraceMapping(
        JAVA,
        "negative_acks",
        "pulsar-2026-07",
        java_settings,
        actions,
        java_result,
        java_observation,
        as_recorded,
        defects={
            "java-backoff-is-below-minimum-delay": "random/1",
            "java-nack-after-close-reopens-tracker": "edge/close_cancels",
            "java-retained-id-beside-plain-id": "random/46",
            "java-chunked-message-is-redelivered-in-part": "random/25",
            "java-wall-clock-step-moves-redelivery": "",
            "java-negative-ids-are-tracked": "",
        },
        others=(SHORTER_NACK, TASK_AFTER_CLOSE),
    ),
    TraceMapping(
        BEFORE_393,
        "negative_acks",
        "java-before-393",
        before_393_settings,
        actions,
        java_result,
        before_393_observation,
        as_recorded,
        defects={
            "java-before-393-redelivery-is-late-by-a-third": "edge/backoff_minimum_0ms",
            "java-backoff-is-below-minimum-delay": "edge/backoff_minimum_0ms",
            "java-before-393-second-nack-replaces-first": "edge/second_nack_brings_forward_or_delays",
            "java-nack-after-close-reopens-tracker": "edge/close_cancels",
            "java-chunked-message-is-redelivered-in-part": "edge/chunk_with_other_partition_not_found",
            "java-negative-ids-are-tracked": "edge/negative_ledger_refused",
        },
        others=(NACK_DUE_AT_A_RUN, TASK_AFTER_CLOSE),
    ),
    TraceMapping(
        GO,
        "negative_acks",
        "go",
        go_settings,
        actions,
        go_result,
        go_observation,
        as_recorded,
        defects={
            "go-tick-skips-due-buckets": "edge/3_slots_in_mixed_order",
            "go-backoff-overflows": "edge/default_backoff_redelivery_count_34",
            "go-message-without-backoff-panics": "edge/message_without_backoff",
            "go-entry-of-two-buckets-is-redelivered-twice": "random/22",
            "go-closed-tracker-keeps-nacks": "edge/close_keeps_entries_but_never_redelivers",
            "java-negative-ids-are-tracked": "edge/negative_ids",
            "java-wall-clock-step-moves-redelivery": "",
        },
        others=(IDLE_TICKER, NO_MINIMUM_DELAY),
    ),
)
