"""Maps recordings of the shipped `TxnLogBufferedWriter` to `txn_writer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fuzz.trace.file import Operation
from fuzz.trace.recording import TraceMapping, error_or
from model.txn_writer.state import Callback, Config, Effects, State

Names = Mapping[str, Any]

#: Trigger of a flush -> its recorded name.
TRIGGERS = {"records": "records_count", "size": "bytes_size", "large": "large_single_data", "delay": "max_delay"}
#: Outcome of a failed callback -> its recorded name, where the names differ.
FAILURES = {"closed": "writer_closed"}
#: Recorded operation -> the recorded name of `Effects.number`.
COUNTED = {"add": "record", "run_writer_tasks": "ran", "advance_time": "timer_fired"}


def settings(recorded: Names) -> Names:
    """Returns the settings of the model for a recorded config. A recorded limit below 0 means 0."""
    return {
        "batching": recorded["batch_enabled"],
        "max_records": max(recorded["max_records"], 0),
        "max_bytes": max(recorded["max_bytes"], 0),
        "max_delay_ms": recorded["max_delay_ms"],
        "start": recorded["start_ms"],
        "header_bytes": recorded["batch_header_bytes"],
        "executor": recorded["writer_thread"],
        "writes": "immediate" if recorded["ledger_writes"] == "complete_immediately" else recorded["ledger_writes"],
    }


def actions(cfg: Config, s: State, operation: Operation, recorded: Names) -> Sequence[tuple[str, Names]]:
    """Returns the actions of an operation: an advance of the clock to its time, then the operation."""
    arguments = dict(operation.args)
    now = arguments.pop("now_ms", s.now)
    if operation.op == "advance_time":
        return [("advance_time", {"by": arguments["to_ms"] - s.now})]
    moved: list[tuple[str, Names]] = [("advance_time", {"by": now - s.now})] if now != s.now else []
    return [*moved, (operation.op, arguments_of(s, operation.op, arguments))]


def arguments_of(s: State, op: str, args: dict[str, Any]) -> Names:
    """Returns the model's arguments for the recorded ones (`args`).

    Raises ValueError if a write or ledger number is not the next one.
    """
    if op == "add":
        return {"size": args["bytes"], "fails_on": args.get("serializer_fails_on") or "nothing"}
    if op in ("complete_write", "fail_write"):
        first = s.in_flight[0].number if s.in_flight else None
        if args["write"] != first:
            raise ValueError(f"write {args['write']} is not the first in flight, {first}")
        return {"durable": False} if op == "fail_write" else {}  # not recorded: assumed not to be stored
    if op == "roll_ledger":
        if args["ledger"] != s.ledger + 1:
            raise ValueError(f"ledger {args['ledger']} does not follow {s.ledger}")
        return {}
    return args


def callback(answer: Callback) -> Names:
    """Returns a completed callback in recorded form."""
    if answer.position is None:
        reason = FAILURES.get(answer.outcome, answer.outcome)
        return {"record": answer.record, "outcome": "failed", "reason": reason}
    batch = {"batch_index": answer.batch_index, "batch_size": answer.batch_size}
    return {"record": answer.record, "outcome": "ok", **answer.position._asdict(), **batch}


def result(cfg: Config, op: str, outcome: Any, recorded: Names) -> Any:
    """Returns an outcome in recorded form."""

    def recorded_form(effects: Effects) -> Names:
        kinds = {True: "batch", False: "single"}  # by `Write.batched`
        found: dict[str, Any] = {COUNTED[op]: effects.number} if op in COUNTED else {}
        found["writes"] = [
            {"write": w.number, "kind": kinds[w.batched], "records": list(w.records), "bytes": w.size}
            for w in effects.writes
        ]
        found["callbacks"] = [callback(each) for each in effects.callbacks]
        if op == "close":
            found["already_done"] = effects.number == 1  # 1: the returned future is complete
        if effects.closed:
            found["close_completed"] = True
        if effects.thrown:
            found["error"] = "exception_to_caller"
        return found

    return error_or(outcome, recorded_form)


def observation(cfg: Config, seen: Any, recorded: Names) -> Any:
    """Returns an observation in recorded form, which does not have the entries of the ledgers."""
    names = ("records", "bytes", "oldest_waited_ms")
    flushes = [
        {"reason": TRIGGERS.get(trigger, trigger), **dict(zip(names, numbers, strict=True))}
        for trigger, *numbers in seen["flushes"]
    ]
    return {**{name: value for name, value in seen.items() if name != "entries"}, "flushes": flushes}


mappings = (
    TraceMapping(
        component="txn_log_buffered_writer",
        subject="txn_writer",
        profile="pulsar-2026-07",
        settings=settings,
        actions=actions,
        result=result,
        observation=observation,
        defects={
            "unserialisable-batch-stays-buffered": "edge/batch_serializer_fails_poisons_buffer",
            "unserialisable-record-throws": "edge/single_serializer_fails_unbatched",
            "second-close-completes-early": "",
            "closed-writer-keeps-recycled-context": "edge/close_then_timer_task",
        },
    ),
)
