"""How recordings of the shipped buffered writer map to the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fuzz.trace.file import Operation
from fuzz.trace.recording import Deviation, Recording, error_or
from model.txn_writer.state import Answer, Config, State, Told

Names = Mapping[str, Any]

REASONS = {"records": "records_count", "size": "bytes_size", "large": "large_single_data", "delay": "max_delay"}
FAILURES = {"closed": "writer_closed"}
#: What a recorded operation's number is called there.
COUNTED = {"add": "record", "run_writer_tasks": "ran", "advance_time": "timer_fired"}


def settings(recorded: Names) -> Names:
    """The settings of the machine; limits below zero, which mean what zero means, are taken for it."""
    return {
        "batching": recorded["batch_enabled"],
        "max_records": max(recorded["max_records"], 0),
        "max_bytes": max(recorded["max_bytes"], 0),
        "max_delay_ms": recorded["max_delay_ms"],
        "start": recorded["start_ms"],
        "header_bytes": recorded["batch_header_bytes"],
        "thread": recorded["writer_thread"],
        "writes": "at_once" if recorded["ledger_writes"] == "complete_immediately" else recorded["ledger_writes"],
    }


def actions(cfg: Config, s: State, operation: Operation, recorded: Names) -> Sequence[tuple[str, Names]]:
    """The clock moves on to the operation's time, and the operation happens."""
    arguments = dict(operation.args)
    now = arguments.pop("now_ms", s.now)
    if operation.op == "advance_time":
        return [("advance_time", {"by": arguments["to_ms"] - s.now})]
    moved: list[tuple[str, Names]] = [("advance_time", {"by": now - s.now})] if now != s.now else []
    return [*moved, (operation.op, arguments_of(s, operation.op, arguments))]


def arguments_of(s: State, op: str, recorded: dict[str, Any]) -> Names:
    """The arguments of an operation. Raises ValueError for a write that is not the first in flight, or a ledger."""
    if op == "add":
        return {"size": recorded["bytes"], "fails_on": recorded.get("serializer_fails_on") or "nothing"}
    if op in ("complete_write", "fail_write"):
        first = s.in_flight[0].number if s.in_flight else None
        if recorded["write"] != first:
            raise ValueError(f"write {recorded['write']} is not the first in flight, {first}")
        return {"durable": False} if op == "fail_write" else {}
    if op == "roll_ledger":
        if recorded["ledger"] != s.ledger + 1:
            raise ValueError(f"ledger {recorded['ledger']} does not follow {s.ledger}")
        return {}
    return recorded


def callback(answer: Answer) -> Names:
    """What a record's callback was told, as recorded."""
    if answer.position is None:
        reason = FAILURES.get(answer.outcome, answer.outcome)
        return {"record": answer.record, "outcome": "failed", "reason": reason}
    place = {"batch_index": answer.place, "batch_size": answer.batch}
    return {"record": answer.record, "outcome": "ok", **answer.position._asdict(), **place}


def result(cfg: Config, op: str, outcome: Any, recorded: Names) -> Any:
    """An outcome as it was recorded."""

    def happened(told: Told) -> Names:
        kinds = {True: "batch", False: "single"}
        found: dict[str, Any] = {COUNTED[op]: told.number} if op in COUNTED else {}
        found["writes"] = [
            {"write": w.number, "kind": kinds[w.batched], "records": list(w.records), "bytes": w.size}
            for w in told.writes
        ]
        found["callbacks"] = [callback(answer) for answer in told.answers]
        if op == "close":
            found["already_done"] = told.number == 1
        if told.closed:
            found["close_completed"] = True
        if told.thrown:
            found["error"] = "exception_to_caller"
        return found

    return error_or(outcome, happened)


def observation(cfg: Config, seen: Any, recorded: Names) -> Any:
    """What an observer saw, as it was recorded: nobody looked into the ledger."""
    names = ("records", "bytes", "oldest_waited_ms")
    flushes = [
        {"reason": REASONS.get(reason, reason), **dict(zip(names, numbers, strict=True))}
        for reason, *numbers in seen["flushes"]
    ]
    return {**{name: value for name, value in seen.items() if name != "entries"}, "flushes": flushes}


def deviation(name: str, setting: str, breaks: str, smallest: str) -> Deviation:
    """A deviation of one rule; its smallest trace is named by set and name, or empty."""
    return Deviation(name, (setting,), breaks, smallest and f"txn_log_buffered_writer/dev/{smallest}")


recordings = (
    Recording(
        component="txn_log_buffered_writer",
        subject="txn_writer",
        profile="pulsar-2026-07",
        settings=settings,
        actions=actions,
        result=result,
        observation=observation,
        deviations=(
            deviation(
                "a_batch_that_cannot_be_serialised_stays",
                "unserialisable_batch",
                "the_buffer_is_below_its_limits",
                "edge/batch_serializer_fails_poisons_buffer",
            ),
            deviation(
                "an_exception_takes_the_place_of_the_callback",
                "unserialisable_alone",
                "no_caller_gets_an_exception",
                "edge/single_serializer_fails_unbatched",
            ),
            deviation("a_second_close_returns_at_once", "second_close", "a_close_is_done_when_it_says_so", ""),
            deviation(
                "a_closed_writer_keeps_what_it_held",
                "closed_buffer",
                "a_closed_writer_holds_nothing",
                "edge/close_then_timer_task",
            ),
        ),
    ),
)
