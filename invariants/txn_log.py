"""Guarantees of the coordinator's transaction log.

Most are measured against the whole log, read from its first record by transition rules that are restated here.
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

from invariants.properties import Event, always, eventually, once_per_state, sometimes
from model.batch_acks.state import Acks
from model.machine import Failed, Refused
from model.txn_log.machine import txn_log
from model.txn_log.replay import Recovered
from model.txn_log.state import Acknowledged, Config, Entry, Record, RecordPosition, State, Txn

RESTARTS = ("reopen", "crash")
APPENDS = ("new_transaction", "add_participant", "update_status", "flush")
FAILURES = ("fail_write", "fail_ledger_creation", "fence")
REPLAY = ("replay_entry", "complete_replay", "fail_read")

#: The legal status transitions.
TRANSITIONS = {("OPEN", "COMMITTING"), ("OPEN", "ABORTING"), ("COMMITTING", "COMMITTED"), ("ABORTING", "ABORTED")}
FINAL = {"COMMITTED", "ABORTED"}
COMMITS, ABORTS = {"COMMITTING", "COMMITTED"}, {"ABORTING", "ABORTED"}


class LoggedTxn(NamedTuple):
    """A transaction as the log describes it, with the positions of its effective records."""

    status: str
    partitions: frozenset[int]
    subscriptions: frozenset[int]
    positions: tuple[RecordPosition, ...]


def names_of(mask: int) -> frozenset[int]:
    """The names in a mask."""
    return frozenset([n for n in range(mask.bit_length()) if mask >> n & 1])


def logged_after(logged: LoggedTxn, record: Record, position: RecordPosition) -> LoggedTxn:
    """The logged transaction after one more of its records; unchanged if the record has no effect."""
    positions = (*logged.positions, position)
    if record.op == "NEW":
        return logged._replace(positions=positions)
    if record.to is not None:
        if (logged.status, record.to) in TRANSITIONS:
            return logged._replace(status=record.to, positions=positions)
    elif logged.status == "OPEN":
        field = "partitions" if record.op == "ADD_PARTITION" else "subscriptions"
        return logged._replace(**{field: getattr(logged, field) | {record.name}, "positions": positions})
    return logged


@once_per_state
def logged_transactions(s: State) -> dict[int, LoggedTxn]:
    """Every transaction whose NEW record is in the log, as all its records describe it, deleted or not."""
    found: dict[int, LoggedTxn] = {}
    for number, entry in enumerate(s.log, s.first_entry):
        for index, record in enumerate(entry):
            position = RecordPosition(number, index)
            if record.txn in found:
                found[record.txn] = logged_after(found[record.txn], record, position)
            elif record.op == "NEW":
                found[record.txn] = LoggedTxn("OPEN", frozenset(), frozenset(), (position,))
    return found


def logged_form(t: Txn) -> LoggedTxn:
    """A transaction of the store in the form of the log."""
    return LoggedTxn(t.status, names_of(t.partitions), names_of(t.subscriptions), t.positions)


def ongoing(logged: dict[int, LoggedTxn]) -> dict[int, LoggedTxn]:
    """The transactions that have not ended."""
    return {txn: each for txn, each in logged.items() if each.status not in FINAL}


def remaining(acks: Acks, entry: int, size: int) -> int:
    """The mask of the records of an entry that are not deleted."""
    if entry < acks.first_unacked or acks.deleted >> entry & 1:
        return 0
    return {p.entry: p.remaining for p in acks.partial}.get(entry, (1 << size) - 1)


def remaining_in(s: State, acks: Acks) -> list[int]:
    """The masks of undeleted records of all entries in the log."""
    return [remaining(acks, n, len(entry)) for n, entry in enumerate(s.log, s.first_entry)]


def fits_in_one_record(cfg: Config, s: State) -> bool:
    """Whether one cursor record can hold all deletions. A range ends with its ledger."""
    starts = s.acks.deleted & ~(s.acks.deleted << 1)
    for first in accumulate(s.ledgers[:-1], initial=s.first_entry) if starts else ():
        starts |= s.acks.deleted & 1 << first
    return starts.bit_count() <= cfg.max_ranges and len(s.acks.partial) <= cfg.max_batch_records


def needed_records(s: State) -> list[int]:
    """The mask, for each entry, of the records that belong to an ongoing transaction."""
    masks = [0] * len(s.log)
    for t in s.txns:
        for entry, index in t.positions:
            masks[entry - s.first_entry] |= 1 << index
    return masks


def can_delete(s: State) -> bool:
    """Whether the store is ready and its cursor works."""
    return s.status == "ready" and s.cursor_works


def is_error(event: Event) -> bool:
    """Whether the call was rejected or failed."""
    return isinstance(event.outcome, Refused | Failed)


def is_recovered(event: Event) -> bool:
    """Whether the event made a store ready."""
    return isinstance(event.outcome, Recovered)


def pending_records(s: State) -> list[Record]:
    """The records whose requests are pending, in write order."""
    return [record for entry in (*s.in_flight, s.buffer) for record in entry]


def may_reach(before: str, after: str) -> bool:
    """Whether legal transitions lead from one status to the other."""
    return before == after or any(a == before and may_reach(b, after) for a, b in TRANSITIONS)


# ---- durability ---------------------------------------------------------------------------------------


@always(txn_log)
def acknowledged_operation_is_durable(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A request succeeds only after its record is in the log.

    A request that needs no record succeeds only if the transaction already has the requested status.
    """
    if is_error(event) or event.name not in (*APPENDS, *FAILURES, "complete_write", "reopen"):
        return True
    done = [answer for answer in event.outcome if answer.result == "success"]
    if event.name == "update_status" and done:
        txn, to = event.arguments["txn"], event.arguments["to"]
        return after is before and [t.status for t in before.txns if t.id == txn] == [to]
    if event.name != "complete_write":
        return not done
    entry = before.in_flight[0]
    completed = [(answer.txn, answer.op) for answer in event.outcome]
    return (
        after.log[-1] == entry and len(after.log) == len(before.log) + 1 and completed == [(r.txn, r.op) for r in entry]
    )


@always(txn_log)
def every_request_completes_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Every request completes exactly once, in the order of the requests.

    A request that a failed ledger rejects at once may overtake those in flight. A crash completes none.
    """
    if event.name == "crash" or is_error(event):
        return event.name != "crash" or not pending_records(after)
    pending = [(r.txn, r.op) for r in pending_records(before)]
    if event.name == "new_transaction":
        pending.append((before.last_id + 1, "NEW"))
    elif event.name == "add_participant":
        pending.append((event.arguments["txn"], event.arguments["op"]))
    elif event.name == "update_status":
        pending.append((event.arguments["txn"], "UPDATE"))
    completes = event.name in (*APPENDS, *FAILURES, "complete_write", "reopen")
    completed = [(a.txn, a.op) for a in event.outcome] if completes else []
    still_pending = [(r.txn, r.op) for r in pending_records(after)]
    if after.ledger in ("fenced", "closed") or event.name == "update_status":
        return sorted(pending) == sorted(completed + still_pending)
    return pending == completed + still_pending


@always(txn_log)
def log_contains_submitted_entries_in_order(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Entries are appended whole and in the order of submission. Only trimming removes entries."""
    if after.log is before.log:
        return True
    if event.name == "trim":
        return after.log == before.log[after.first_entry - before.first_entry :]
    new = after.log[len(before.log) :]
    return after.log[: len(before.log)] == before.log and new == before.in_flight[: len(new)]


# ---- deletions ----------------------------------------------------------------------------------------


@always(txn_log)
def entry_is_deleted_iff_all_its_records_are(cfg: Config, s: State) -> bool:
    """In a ready store, exactly the records without an ongoing transaction are deleted.

    An entry is deleted as a whole exactly when none of its records remains.
    """
    if not can_delete(s):
        return True
    gone = [
        n
        for n in range(s.first_entry, s.first_entry + len(s.log))
        if n < s.acks.first_unacked or s.acks.deleted >> n & 1
    ]
    needed = needed_records(s)
    return remaining_in(s, s.acks) == needed and gone == [
        n for n, mask in enumerate(needed, s.first_entry) if mask == 0
    ]


@always(txn_log, on=("complete_write",))
def ended_transaction_records_are_deleted(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The end of a transaction deletes all its records, whether the store batches or not."""
    ongoing_ids = {t.id for t in after.txns}
    ended = [t for t in before.txns if t.id not in ongoing_ids] if after.cursor_works else []
    masks = remaining_in(after, after.acks) if ended else []
    return not any(masks[p.entry - after.first_entry] >> p.batch_index & 1 for t in ended for p in t.positions)


@always(txn_log)
def deletions_are_monotone(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A deleted record stays deleted while the store is open."""
    if event.name in RESTARTS or after.acks is before.acks:
        return True
    gone = after.first_entry - before.first_entry
    pairs = zip(remaining_in(before, before.acks)[gone:], remaining_in(after, after.acks), strict=False)
    return all(more & ~less == 0 for less, more in pairs)


@always(txn_log)
def record_is_durably_deleted_only_after_new_record(cfg: Config, s: State) -> bool:
    """In the persisted deletions, a record of an ended transaction is deleted only if its NEW record is.

    Otherwise a crash would revive the transaction without its closing record.
    """
    masks = remaining_in(s, s.durable)
    for logged in logged_transactions(s).values():
        first, others = logged.positions[0], logged.positions[1:]
        needs_all = logged.status in FINAL and masks[first.entry - s.first_entry] >> first.batch_index & 1
        if needs_all and not all(masks[p.entry - s.first_entry] >> p.batch_index & 1 for p in others):
            return False
    return True


@always(txn_log)
def clean_cursor_has_persisted_all_deletions(cfg: Config, s: State) -> bool:
    """A cursor that is not dirty has persisted all deletions that fit in one record."""
    if s.dirty or not fits_in_one_record(cfg, s):
        return True
    return all(
        found & ~known == 0 for found, known in zip(remaining_in(s, s.durable), remaining_in(s, s.acks), strict=True)
    )


@always(txn_log, on=("reopen",))
def clean_close_preserves_deletions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A clean close and reopen with batching preserves all deletions that fit in one record."""
    is_clean = not is_error(event) and before.cursor_works and before.ledger != "fenced"
    return after.acks == before.acks or not (
        is_clean and event.arguments["batching"] and fits_in_one_record(cfg, before)
    )


@always(txn_log, on=("persist",))
def persisted_cursor_record_is_prefix_of_deletions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A cursor record that cannot hold all deletions holds every deletion below some entry and none from there on."""
    if event.outcome is not True:
        return True
    pairs = list(zip(remaining_in(after, after.acks), remaining_in(after, after.durable), strict=True))
    lost = next((n for n, (known, found) in enumerate(pairs) if known != found), len(pairs))
    return all(found == (1 << len(entry)) - 1 for entry, (_, found) in zip(after.log[lost:], pairs[lost:], strict=True))


@always(txn_log)
def only_durably_deleted_ledgers_are_trimmed(cfg: Config, s: State) -> bool:
    """Only whole ledgers below the persisted mark-delete position are trimmed, and never the last one."""
    return s.first_entry <= s.durable.first_unacked and len(s.ledgers) > 0 and sum(s.ledgers) == len(s.log)


@always(txn_log)
def mark_delete_reaches_log_end_without_ongoing_transactions(cfg: Config, s: State) -> bool:
    """Without ongoing transactions, the mark-delete position is at the end of the log, so everything written can be
    trimmed.
    """
    return bool(s.txns) or not can_delete(s) or s.acks.first_unacked == s.first_entry + len(s.log)


# ---- recovery -----------------------------------------------------------------------------------------


@always(txn_log)
def ready_store_equals_log(cfg: Config, s: State) -> bool:
    """A ready store has exactly the ongoing transactions of the log, with their status, participants and positions."""
    if s.status != "ready":
        return True
    return {t.id: logged_form(t) for t in s.txns} == ongoing(logged_transactions(s))


@always(txn_log, on=REPLAY)
def recovery_preserves_acknowledged_state(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Recovery finds every acknowledged transaction that has not ended, with all its acknowledged participants.

    Its status is the acknowledged one or one reachable from it.
    """
    if not is_recovered(event):
        return True
    found = {t.id: t for t in after.txns}
    return all(
        known.status in FINAL or (known.id in found and preserves(known, found[known.id]))
        for known in before.acknowledged
    )


def preserves(known: Acknowledged, t: Txn) -> bool:
    """Whether a recovered transaction is compatible with what callers were told."""
    participants = known.partitions & ~t.partitions == 0 and known.subscriptions & ~t.subscriptions == 0
    return participants and may_reach(known.status, t.status)


@always(txn_log, on=("complete_replay",))
def ended_transaction_is_not_recovered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A transaction whose commit or abort was acknowledged is not ongoing after any later replay."""
    if not is_recovered(event):
        return True
    found = {t.id for t in after.txns if t.status not in FINAL}
    return not any(known.status in FINAL and known.id in found for known in before.acknowledged)


@always(txn_log)
def acknowledged_decision_is_final(cfg: Config, s: State) -> bool:
    """The log never contains the opposite of an acknowledged commit or abort decision.

    No restart can find another decision.
    """
    logged = logged_transactions(s)
    decided = [{p.status, logged[p.id].status} for p in s.acknowledged if p.id in logged]
    return not any(pair & COMMITS and pair & ABORTS for pair in decided)


@always(txn_log)
def ended_transaction_leaves_the_map(cfg: Config, s: State) -> bool:
    """A ready store has no COMMITTED or ABORTED transaction, whether its records could be deleted or not."""
    return s.status != "ready" or not any(t.status in FINAL for t in s.txns)


@always(txn_log, on=REPLAY)
def recovered_positions_equal_effective_records(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a replay, a transaction has the positions of exactly its effective records, in log order."""
    if not is_recovered(event):
        return True
    logged = logged_transactions(after)
    return all(t.id in logged and t.positions == logged[t.id].positions for t in after.txns)


@always(txn_log, on=("complete_replay",))
def replay_deletes_orphan_records(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a replay, no undeleted record belongs to an unknown transaction. Repeated restarts converge."""
    if not is_recovered(event) or not after.cursor_works:
        return True
    found = {t.id for t in after.txns}
    masks = remaining_in(after, after.acks)
    return not any(
        masks[n] >> index & 1 and record.txn not in found
        for n, entry in enumerate(after.log)
        for index, record in enumerate(entry)
    )


@always(txn_log, on=("replay_entry",))
def replay_takes_only_legal_transitions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Replay takes only legal status transitions, adds participants only to OPEN transactions, and removes none."""
    for t in before.txns:
        for then in [each for each in after.txns if each.id == t.id]:
            more = (t.partitions, t.subscriptions) != (then.partitions, then.subscriptions)
            lost = t.partitions & ~then.partitions | t.subscriptions & ~then.subscriptions
            if lost or not may_reach(t.status, then.status) or (more and t.status != "OPEN"):
                return False
    return True


def found_by_replay(s: State, acks: Acks) -> dict[int, LoggedTxn]:
    """The ongoing transactions that the records outside the deletions describe, read in log order."""
    found: dict[int, LoggedTxn] = {}
    for number, entry in enumerate(s.log, s.first_entry):
        mask = remaining(acks, number, len(entry))
        for index, record in enumerate(entry):
            position = RecordPosition(number, index)
            if mask >> index & 1 and record.txn in found:
                found[record.txn] = logged_after(found[record.txn], record, position)
            elif mask >> index & 1 and record.op == "NEW":
                found[record.txn] = LoggedTxn("OPEN", frozenset(), frozenset(), (position,))
            if record.txn in found and found[record.txn].status in FINAL:
                del found[record.txn]
    return found


@always(txn_log, on=("complete_replay",))
def replay_is_idempotent(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A second replay finds the same transactions, after a clean close and after a crash."""
    if not is_recovered(event):
        return True
    recovered = {t.id: logged_form(t) for t in after.txns}
    return all(found_by_replay(after, acks) == recovered for acks in (after.acks, after.durable))


@always(txn_log, on=REPLAY)
def store_is_ready_only_after_complete_replay(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A store becomes ready only after reading its log to the end. A read that fails for good ends the replay."""
    if not is_recovered(event):
        return event.name != "fail_read" or after.status != "replaying"
    rest = range(before.read_position, before.first_entry + len(before.log))
    return not any(remaining(before.acks, n, len(before.log[n - before.first_entry])) for n in rest)


@always(txn_log, on=REPLAY)
def recovered_transactions_are_handed_over(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Recovery hands over each COMMITTING and ABORTING transaction to be ended, and each OPEN one with its deadline,
    exactly once. The deadline is start time plus timeout.
    """
    if not is_recovered(event):
        return True
    begun = {r.txn: r.start_ms + r.timeout_ms for entry in reversed(after.log) for r in entry if r.op == "NEW"}
    logged = {t.id: t.status for t in after.txns}
    return (
        list(event.outcome.to_commit) == [txn for txn in logged if logged[txn] == "COMMITTING"]
        and list(event.outcome.to_abort) == [txn for txn in logged if logged[txn] == "ABORTING"]
        and list(event.outcome.open) == [(txn, begun.get(txn)) for txn in logged if logged[txn] == "OPEN"]
    )


# ---- ids, low watermark, deadlines ---------------------------------------------------------------------


@always(txn_log, on=("new_transaction",))
def transaction_ids_are_never_reused(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A new transaction id is higher than every acknowledged id, across restarts, rollovers and trimming."""
    return is_error(event) or after.last_id > max(before.acknowledged_id, before.last_id)


@always(txn_log)
def recoverable_id_covers_acknowledged_ids(cfg: Config, s: State) -> bool:
    """The id that a restart would recover is at least every acknowledged id."""
    return id_after_restart(s) >= s.acknowledged_id


def id_after_restart(s: State) -> int:
    """The last assigned id that a reopened store finds: in the last record of the last ledger, or in its properties."""
    return s.log[-1][-1].last_id if s.ledgers[-1] else s.ledger_property_id


@always(txn_log)
def low_watermark_is_below_ongoing_transactions(cfg: Config, s: State) -> bool:
    """In a ready store, every ongoing transaction is above every low watermark that was reported."""
    return s.status != "ready" or not s.txns or s.txns[0].id > s.reported_watermark


@always(txn_log, on=("low_watermark",))
def low_watermark_is_monotone_and_maximal(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The low watermark never decreases, and is the highest sound value.

    That is one below the first ongoing transaction, or else one below the first pending id or the first id that a
    restart could assign.
    """
    if is_error(event):
        return True
    ongoing_ids = [t.id for t in before.txns]
    coming = [r.txn for r in pending_records(before) if r.op == "NEW"]
    highest = min(ongoing_ids or [*coming, id_after_restart(before) + 1]) - 1
    return bool(before.reported_watermark <= event.outcome == highest)


@always(txn_log, on=("expired",))
def exactly_overdue_open_transactions_expire(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The expired transactions are exactly the OPEN ones past their deadline, earliest deadline first."""
    if is_error(event):
        return True
    late = [t for t in before.txns if t.status == "OPEN" and t.deadline_ms < before.now_ms]
    by_deadline = [t.deadline_ms for txn in event.outcome for t in late if t.id == txn]
    return sorted(event.outcome) == [t.id for t in late] and by_deadline == sorted(by_deadline)


@always(txn_log)
def deadline_is_exact_and_never_early(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A transaction has its full timeout, counted from the request.

    Live, the deadline is the time of durability plus the timeout, and no later record changes it.
    """
    if after.txns is before.txns:
        return True
    if event.name == "complete_write":
        wanted = {r.txn: before.now_ms + r.timeout_ms for r in before.in_flight[0] if r.op == "NEW"}
        wanted |= {t.id: t.deadline_ms for t in before.txns}
        return all(t.deadline_ms == wanted.get(t.id) for t in after.txns)
    begun = {r.txn: r.start_ms + r.timeout_ms for entry in reversed(after.log) for r in entry if r.op == "NEW"}
    return all(t.deadline_ms >= begun.get(t.id, t.deadline_ms) for t in after.txns)


# ---- statuses -----------------------------------------------------------------------------------------


@always(txn_log, on=(*APPENDS, "complete_write", *FAILURES, "persist", "trim", "roll_ledger"))
def only_durable_records_change_transactions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Transactions change only when an entry becomes durable, by its records in order.

    A record without effect fails its request.
    """
    if event.name != "complete_write" or is_error(event):
        return after.txns == before.txns
    logged = {t.id: logged_form(t) for t in before.txns}
    position = RecordPosition(before.first_entry + len(before.log), 0)
    done = []
    for index, record in enumerate(before.in_flight[0]):
        known = logged.get(record.txn)
        is_known = known is not None and known.status not in FINAL
        if not is_known and record.op == "NEW":
            logged[record.txn] = LoggedTxn("OPEN", frozenset(), frozenset(), (position._replace(batch_index=index),))
            done.append(True)
        else:
            then = (
                logged_after(known, record, position._replace(batch_index=index))
                if known is not None and is_known
                else known
            )
            done.append(then is not known)
            if then is not None:
                logged[record.txn] = then
    completed = [answer.result == "success" for answer in event.outcome]
    return {t.id: logged_form(t) for t in after.txns} == ongoing(logged) and completed == done


@always(txn_log, on=("new_transaction", "add_participant", "update_status", "low_watermark", "expired"))
def only_ready_store_serves_requests(cfg: Config, before: State, event: Event, after: State) -> bool:
    """No request is served before the replay is complete, or after an ambiguous append."""
    return before.status == "ready" or isinstance(event.outcome, Refused)


@always(txn_log, on=("new_transaction",))
def new_transaction_is_rejected_iff_limit_is_reached(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A new transaction is rejected as too many exactly when `max_active` transactions are ongoing.

    Pending ones do not count.
    """
    enough = 0 < cfg.max_active <= len(before.txns)
    completed = isinstance(event.outcome, Refused) and event.outcome.kind == "too_many"
    return completed is enough and (before.status != "ready" or isinstance(event.outcome, Refused) is enough)


@always(txn_log, on=FAILURES)
def store_stops_after_ambiguous_append(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After an append that failed but may be durable, the store serves nothing until it is reopened."""
    unknown = not is_error(event) and any(answer.result == "unknown" for answer in event.outcome)
    return not unknown or after.status == "stopped"


# ---- coverage goals ------------------------------------------------------------------------


def has_two(entry: Entry) -> bool:
    """Whether an entry has records of several transactions."""
    return len({record.txn for record in entry}) > 1


@sometimes(txn_log)
def shared_entry_is_partially_deleted(cfg: Config, s: State) -> bool:
    """An entry shared by transactions is partially deleted."""
    masks = remaining_in(s, s.acks)
    return any(has_two(entry) and 0 < mask < (1 << len(entry)) - 1 for entry, mask in zip(s.log, masks, strict=True))


@sometimes(txn_log, on=("crash",))
def crash_loses_deletions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A crash loses deletions that were not persisted."""
    return remaining_in(before, before.acks) != remaining_in(after, after.acks)[: len(before.log)]


@sometimes(txn_log, on=("crash",))
def crash_interrupts_replay(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A store crashes after replaying some entries, but not all."""
    is_within = before.read_position > before.durable.first_unacked and before.read_position < before.first_entry + len(
        before.log
    )
    return before.status == "replaying" and is_within


@sometimes(txn_log, on=FAILURES)
def ambiguous_append_is_durable(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A failed append is in the log."""
    return len(after.log) > len(before.log)


@sometimes(txn_log, on=("replay_entry",))
def replay_finds_unacknowledged_update(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay finds a status update that was never acknowledged."""
    known = {known.id: known.status for known in before.acknowledged}
    return any(t.id in known and t.status != known[t.id] and may_reach(known[t.id], t.status) for t in after.txns)


@sometimes(txn_log, on=("replay_entry",))
def replay_ends_transaction_again(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay ends a transaction again and deletes its records."""
    found = {t.id for t in after.txns}
    return any(t.id not in found for t in before.txns)


@sometimes(txn_log, on=("replay_entry",))
def replay_finds_orphan_record(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay finds a record of an unknown transaction."""
    return not is_error(event) and event.outcome > 0 and after.txns == before.txns and after.acks != before.acks


@sometimes(txn_log, on=("complete_write",))
def participant_is_added_after_end(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A participant is added to a transaction that ended earlier in the same batch."""
    if is_error(event):
        return False
    ended = [index for index, record in enumerate(before.in_flight[0]) if record.to in FINAL]
    late = [
        index
        for index, answer in enumerate(event.outcome)
        if answer.result == "invalid_status" and answer.op != "UPDATE"
    ]
    return bool(ended and late) and ended[0] < late[-1]


@sometimes(txn_log, on=("trim",))
def ledger_is_trimmed_below_ongoing_transaction(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A ledger is trimmed while a later transaction is ongoing."""
    return after.first_entry > before.first_entry and after.txns != ()


@sometimes(txn_log, on=("new_transaction",))
def transaction_begins_in_fully_trimmed_log(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A transaction, not the first one, begins in a log without entries."""
    return not is_error(event) and before.log == () and before.acknowledged_id >= 0


@sometimes(txn_log, on=("persist",))
def persisted_cursor_record_is_truncated(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A persisted cursor record omits some deletions."""
    return event.outcome is True and remaining_in(after, after.durable) != remaining_in(after, after.acks)


@sometimes(txn_log, on=("update_status",))
def status_update_is_retried(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An update to the current status succeeds without a record."""
    return not is_error(event) and any(answer.result == "success" for answer in event.outcome)


@sometimes(txn_log, on=("new_transaction", "flush"))
def ledger_is_created_after_failure(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An append creates a ledger after the last one was lost."""
    return before.ledger == "closed" and after.ledger == "open"


@sometimes(txn_log, on=("expired",))
def transactions_expire_out_of_id_order(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Two transactions expire, the one with the higher id first."""
    return not is_error(event) and len(event.outcome) > 1 and event.outcome[0] > event.outcome[1]


@sometimes(txn_log, on=("reopen",))
def batching_is_disabled_with_partially_deleted_batches(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A store with partially deleted batches is reopened without batching."""
    return not is_error(event) and before.batching and not after.batching and before.acks.partial != ()


# ---- liveness ------------------------------------------------------------------------


@eventually(txn_log, fair=("flush", "complete_write"))
def every_request_completes(cfg: Config, s: State) -> bool:
    """With fair flushes and write completions, every pending request completes."""
    return s.buffer == () and s.in_flight == ()


@eventually(txn_log, fair=("replay_entry", "complete_replay"))
def replay_terminates(cfg: Config, s: State) -> bool:
    """With fair reads, every replay completes."""
    return s.status != "replaying"


@eventually(txn_log, fair=("fail_read",))
def failing_replay_terminates(cfg: Config, s: State) -> bool:
    """With failing reads, every replay ends: the store fails to open."""
    return s.status != "replaying"


@eventually(txn_log, fair=("persist", "trim"))
def fully_deleted_ledgers_are_trimmed(cfg: Config, s: State) -> bool:
    """Without ongoing transactions and with fair cursor writes and trims, every ledger but the last is trimmed."""
    is_idle = can_delete(s) and s.ledger != "fenced" and s.txns == ()
    return not is_idle or len(s.ledgers) == 1
