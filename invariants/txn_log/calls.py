"""Which calls of the transaction log are rejected, and what the accepted calls change."""

from __future__ import annotations

from itertools import accumulate

from invariants.properties import Event, always
from model.batch_acks.state import Acks
from model.machine import Failed, Refused
from model.txn_log.machine import txn_log
from model.txn_log.state import Completion, Config, Entry, Record, State

REQUESTS = ("new_transaction", "add_participant", "update_status")
#: A transaction with one of these statuses has ended.
ENDED = {"COMMITTED", "ABORTED"}


def has_next_entry(s: State) -> bool:
    """Whether there is an undeleted entry that the replay has not read."""
    entries = range(max(s.read_position, s.acks.first_unacked), s.first_entry + len(s.log))
    return any(not s.acks.deleted >> n & 1 for n in entries)


def fits_in_position_info(cfg: Config, s: State) -> bool:
    """Whether one persisted `PositionInfo` of the cursor can hold all deletions in memory.

    A deleted range that spans two ledgers is stored as two ranges.
    """
    range_starts = s.acks.deleted & ~(s.acks.deleted << 1)
    # a deleted first entry of a ledger starts another range
    for first in accumulate(s.ledgers[:-1], initial=s.first_entry) if range_starts else ():
        range_starts |= s.acks.deleted & 1 << first
    return range_starts.bit_count() <= cfg.max_ranges and len(s.acks.partial) <= cfg.max_ack_sets


def closes_cleanly(before: State, event: Event) -> bool:
    """Whether the event is a `reopen` whose close persists the deletions."""
    is_reopened = event.name == "reopen" and not isinstance(event.outcome, Refused)
    return is_reopened and before.deletions_succeed and before.ledger != "fenced"


def deleted_entries(acks: Acks) -> int:
    """Returns the mask of all deleted entries."""
    return acks.deleted | (1 << acks.first_unacked) - 1


@always(txn_log)
def call_is_rejected_iff_not_allowed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A call is rejected if and only if the state of the store, ledger, cursor or transaction does not allow the call.

    Requests and queries (`low_watermark`, `expired`) need a ready store; `add_participant` and `update_status` also
    need an ongoing transaction. If a positive `max_active` is reached, `new_transaction` is rejected with `too_many`,
    whatever the status of the store. `complete_write` and `fail_write` need an entry in flight; `reopen` is rejected
    while an entry is in flight. `roll_ledger` and `fail_ledger_creation` need an open ledger, `roll_ledger` also a
    ledger that is not empty. `fence` and `persist` need a ledger that is not fenced, `persist` and `break_cursor` a
    cursor whose deletions succeed. The steps of a replay need a store that is replaying; `replay_entry` needs an entry
    to read, `complete_replay` none.
    """
    s, must_reject = before, False
    match event.name:
        case "new_transaction":
            too_many = 0 < cfg.max_active <= len(s.txns)
            must_reject = too_many or s.status != "ready"
            if isinstance(event.outcome, Refused) and (event.outcome.kind == "too_many") != too_many:
                return False
        case "add_participant" | "update_status":
            must_reject = s.status != "ready" or event.arguments["txn"] not in [t.id for t in s.txns]
        case "low_watermark" | "expired":
            must_reject = s.status != "ready"
        case "complete_write" | "fail_write":
            must_reject = s.in_flight == ()
        case "reopen":
            must_reject = s.in_flight != ()
        case "roll_ledger" | "fail_ledger_creation":
            must_reject = s.ledger != "open" or (event.name == "roll_ledger" and s.ledgers[-1] == 0)
        case "fence":
            must_reject = s.ledger == "fenced"
        case "persist":
            must_reject = s.ledger == "fenced" or not s.deletions_succeed
        case "break_cursor":
            must_reject = not s.deletions_succeed
        case "replay_entry" | "complete_replay":
            must_reject = s.status != "replaying" or has_next_entry(s) == (event.name == "complete_replay")
        case "fail_read":
            must_reject = s.status != "replaying"
    return isinstance(event.outcome, Refused) == must_reject


def requested(s: State, event: Event) -> Record | None:
    """Returns the record that a request appends; None for a flush."""
    a = event.arguments
    match event.name:
        case "new_transaction":
            return Record(s.last_id + 1, "NEW", s.last_id + 1, start_ms=s.now_ms, timeout_ms=a["timeout_ms"])
        case "add_participant":
            return Record(a["txn"], a["op"], s.last_id, name=a["name"])
        case "update_status":
            return Record(a["txn"], "UPDATE", s.last_id, to=a["to"])
    return None


def completed(entries: tuple[Entry, ...], result: str) -> tuple[Completion, ...]:
    """Returns the completions of the futures of all records of these entries, all with one result."""
    return tuple([Completion(r.txn, r.op, result) for entry in entries for r in entry])  # type: ignore[arg-type]


@always(txn_log, on=(*REQUESTS, "flush"))
def request_is_appended_as_made(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A request appends one record, which has the arguments of the call.

    The record joins the batch; a full or flushed batch is submitted as one entry. Without batching, each record is
    submitted as an entry. A closed ledger is first replaced by a new one. A ledger that is fenced or in `WriteFailed`
    fails the entry. An update to the status that the transaction already has succeeds without a record.
    """
    if isinstance(event.outcome, Refused):
        return after == before
    record = requested(before, event)
    if record is not None and record.to in [t.status for t in before.txns if t.id == record.txn]:
        return after == before and bool(event.outcome == (Completion(record.txn, "UPDATE", "success"),))
    buffer = before.buffer if record is None else (*before.buffer, record)
    wanted = before if record is None else before._replace(last_id=max(before.last_id, record.last_id), buffer=buffer)
    # a flush without buffered records, or a request whose record does not fill the batch
    if not buffer or (record is not None and before.batching and len(buffer) < cfg.max_records):
        return after == wanted and event.outcome == ()
    # `result` is None if the ledger accepts the entry
    wanted, result = wanted._replace(buffer=()), {"fenced": "fenced", "write_failed": "not_written"}.get(before.ledger)
    if before.ledger == "closed":
        ledgers = (*before.ledgers, 0) if before.ledgers[-1] else before.ledgers
        wanted = wanted._replace(ledger="open", ledgers=ledgers, ledger_property_id=wanted.last_id)
    elif before.ledger == "write_failed":
        wanted = wanted._replace(ledger="closed")
    if result is None:
        return after == wanted._replace(in_flight=(*before.in_flight, buffer)) and event.outcome == ()
    return after == wanted and bool(event.outcome == completed((buffer,), result))


@always(txn_log, on=("advance_time", "break_cursor", "roll_ledger", "persist", "trim"))
def call_changes_only_its_fields(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An advance of the clock, a failure of the cursor, a rollover, a persist and a trim change only their own fields.

    An advance changes the time, and a failure makes deletions fail. A rollover adds an empty ledger, and returns the
    number of ledgers. A persist makes a dirty cursor clean, and returns whether the cursor was dirty; the persisted
    deletions are not checked here. A trim removes all ledgers up to the persisted mark-delete position, except the last
    ledger, and returns the number of removed ledgers. An ended transaction is removed from `confirmed` when its last
    record is trimmed. A rollover, and a trim that removes a ledger, write the last assigned id to the ledger
    properties.
    """
    if isinstance(event.outcome, Refused):
        return True
    match event.name:
        case "advance_time":
            return after == before._replace(now_ms=before.now_ms + event.arguments["by_ms"])
        case "break_cursor":
            return after == before._replace(deletions_succeed=False)
        case "roll_ledger":
            wanted = before._replace(ledgers=(*before.ledgers, 0), ledger_property_id=before.last_id)
            return after == wanted and bool(event.outcome == len(after.ledgers))
        case "persist":
            wanted = before._replace(durable=after.durable, dirty=False) if before.dirty else before
            return after == wanted and event.outcome is before.dirty
    count, first = len(before.ledgers) - len(after.ledgers), after.first_entry
    trimmed = sum(before.ledgers[:count])
    ids_in_log = {record.txn for entry in before.log[trimmed:] for record in entry}
    wanted = before._replace(
        ledgers=before.ledgers[count:],
        first_entry=before.first_entry + trimmed,
        log=before.log[trimmed:],
        ledger_property_id=before.last_id,
        confirmed=tuple([p for p in before.confirmed if p.id in ids_in_log or p.status not in ENDED]),
    )
    is_maximal = len(after.ledgers) == 1 or first + after.ledgers[0] > after.durable.first_unacked
    return after == (wanted if count else before) and is_maximal and bool(event.outcome == count)


@always(txn_log, on=("fail_write", "fail_ledger_creation", "fence", "reopen", "crash"))
def failure_and_restart_keep_log_and_durable_entries(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A failure or restart keeps the log, adds the durable entries in flight to the log, and drops the others.

    A failure completes the requests of all entries in flight with one result. If this result is `unknown`, a ready
    store stops (rule `ambiguous_append`). A failure leaves the ledger in `WriteFailed` or, if another broker took the
    log, fenced. If the creation of a ledger fails while no entry is in flight, the ledger is closed.

    After a restart, the store has exactly the persisted deletions; without batch index deletion, it has only deletions
    of whole entries. The store replays from the mark-delete position on, can delete, and has an empty last ledger. The
    last assigned id is that of the last record or, if the last ledger was empty, that of the ledger properties. A
    `reopen` completes the buffered requests with the result `closed`; a crash keeps the persisted deletions.
    """
    if isinstance(event.outcome, Refused):
        return True
    kept = before.in_flight[: event.arguments.get("durable", 0)]
    ledgers = (*before.ledgers[:-1], before.ledgers[-1] + len(kept))
    if after.log != (*before.log, *kept) or after.in_flight != () or after.now_ms != before.now_ms:
        return False
    if event.name in ("reopen", "crash"):
        last_id = after.log[-1][-1].last_id if ledgers[-1] else before.ledger_property_id
        batching = event.arguments.get("batching", before.batching)
        closed = completed((before.buffer,), "closed") if event.name == "reopen" else None
        is_empty = (after.buffer, after.txns, after.dirty, after.deletions_succeed) == ((), (), False, True)
        is_open = (after.status, after.ledger, after.batching, after.last_id) == (
            "replaying",
            "open",
            batching,
            last_id,
        )
        has_sets = cfg.batch_index_deletion == "always" or cfg.batch_index_acks or (batching and cfg.max_records > 1)
        stored = deleted_entries(after.durable), after.durable.partial if has_sets else ()
        recovers_stored = (deleted_entries(after.acks), after.acks.partial) == stored
        replays_all = after.read_position == after.acks.first_unacked
        is_kept = event.name == "reopen" or after.durable == before.durable
        # a last ledger that has entries is followed by a new one; the ledger properties have the recovered id
        is_new = after.ledgers == ((*ledgers, 0) if ledgers[-1] else ledgers) and after.ledger_property_id == last_id
        is_opened = is_empty and is_open and recovers_stored and replays_all and is_kept and is_new
        return is_opened and bool(event.outcome == closed)
    may_be_durable, has_failed = event.name != "fail_ledger_creation", bool(before.in_flight)
    stops = may_be_durable and has_failed and before.status == "ready" and cfg.ambiguous_append == "stops_store"
    wanted = before._replace(status="stopped" if stops else before.status, in_flight=(), log=after.log, ledgers=ledgers)
    # only a failed creation of a ledger without entries in flight makes the ledger closed
    if after.ledger != ("fenced" if event.name == "fence" else "write_failed" if has_failed else "closed"):
        return False
    return after._replace(ledger=before.ledger) == wanted and bool(
        event.outcome == completed(before.in_flight, "unknown" if may_be_durable else "not_written")
    )


@always(txn_log, on=("replay_entry", "complete_replay", "fail_read"))
def replay_reads_next_undeleted_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A step of the replay reads the next undeleted entry, and returns the number of the entry's undeleted records.

    When a replay ends or fails, the read position is 0.
    """
    if isinstance(event.outcome, Refused) or event.name != "replay_entry":
        return isinstance(event.outcome, Refused) or after.read_position == 0
    deleted = deleted_entries(before.acks)
    entry = next(n for n in range(before.read_position, before.first_entry + len(before.log)) if not deleted >> n & 1)
    size = len(before.log[entry - before.first_entry])
    remaining = next((p.remaining for p in before.acks.partial if p.entry == entry), (1 << size) - 1)
    assert not isinstance(event.outcome, Failed)
    return after.read_position == entry + 1 and bool(event.outcome == remaining.bit_count())
