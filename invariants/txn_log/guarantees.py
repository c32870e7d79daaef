"""Guarantees of a coordinator's transaction log.

Several properties compare the store with what the records of the log describe; `logged_after` restates the transition
rules for this comparison. A status or participant is *confirmed* if its request succeeded or a replay of the store
recovered it. A transaction id is confirmed if a request that wrote a record of the transaction succeeded. Deletions
are acks of the log's cursor (`Acks`).
"""

from __future__ import annotations

from typing import NamedTuple

from invariants.properties import Event, always, eventually, once_per_state, sometimes
from invariants.txn_log.calls import ENDED, closes_cleanly, fits_in_position_info
from model.batch_acks.state import Acks
from model.machine import Failed, Refused
from model.txn_log.machine import txn_log
from model.txn_log.replay import Recovered
from model.txn_log.state import Config, Confirmed, Entry, Record, RecordPosition, State, Txn

RESTARTS = ("reopen", "crash")
#: Actions that can append records.
APPENDS = ("new_transaction", "add_participant", "update_status", "flush")
FAILURES = ("fail_write", "fail_ledger_creation", "fence")
#: Actions whose outcome has the requests that they complete.
COMPLETING = (*APPENDS, *FAILURES, "complete_write", "reopen")
REPLAY = ("replay_entry", "complete_replay", "fail_read")

#: The legal status transitions.
TRANSITIONS = {("OPEN", "COMMITTING"), ("OPEN", "ABORTING"), ("COMMITTING", "COMMITTED"), ("ABORTING", "ABORTED")}
COMMITS, ABORTS = {"COMMITTING", "COMMITTED"}, {"ABORTING", "ABORTED"}


class LoggedTxn(NamedTuple):
    """A transaction as the log describes it, with the positions of the records that changed it."""

    status: str
    partitions: frozenset[int]
    subscriptions: frozenset[int]
    positions: tuple[RecordPosition, ...]


def bits_of(mask: int) -> frozenset[int]:
    """Returns the numbers of the bits that are set in a mask of participants."""
    return frozenset([n for n in range(mask.bit_length()) if mask >> n & 1])


def logged_after(logged: LoggedTxn, record: Record, position: RecordPosition) -> LoggedTxn:
    """Returns the logged transaction after one more of its records; unchanged if the record has no effect.

    A second NEW record of a transaction only adds its position.
    """
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
    """Returns, by id, every transaction whose NEW record is in the log. Deleted records count like any other."""
    found: dict[int, LoggedTxn] = {}
    for number, entry in enumerate(s.log, s.first_entry):
        for index, record in enumerate(entry):
            position = RecordPosition(number, index)
            if record.txn in found:
                found[record.txn] = logged_after(found[record.txn], record, position)
            elif record.op == "NEW":
                found[record.txn] = LoggedTxn("OPEN", frozenset(), frozenset(), (position,))
    return found


def as_logged(t: Txn) -> LoggedTxn:
    """Returns a transaction of the store as a `LoggedTxn`, for comparison with the log."""
    return LoggedTxn(t.status, bits_of(t.partitions), bits_of(t.subscriptions), t.positions)


def ongoing(logged: dict[int, LoggedTxn]) -> dict[int, LoggedTxn]:
    """Returns the transactions that have not ended."""
    return {txn: each for txn, each in logged.items() if each.status not in ENDED}


def remaining_in(s: State, acks: Acks) -> list[int]:
    """Returns, for each entry of the log, the mask of its undeleted records: bit i is the record at batch index i."""
    ack_sets = {p.entry: p.remaining for p in acks.partial}
    return [
        0 if n < acks.first_unacked or acks.deleted >> n & 1 else ack_sets.get(n, (1 << len(entry)) - 1)
        for n, entry in enumerate(s.log, s.first_entry)
    ]


def needed_records(s: State) -> list[int]:
    """Returns, for each entry of the log, the mask of the records whose positions an ongoing transaction has."""
    masks = [0] * len(s.log)
    for t in s.txns:
        for entry, index in t.positions:
            masks[entry - s.first_entry] |= 1 << index
    return masks


def is_ready_and_can_delete(s: State) -> bool:
    """Whether the store is ready and deletions succeed."""
    return s.status == "ready" and s.deletions_succeed


def is_error(event: Event) -> bool:
    """Whether the call was rejected or failed."""
    return isinstance(event.outcome, Refused | Failed)


def completes_recovery(event: Event) -> bool:
    """Whether the event made a replaying store ready."""
    return isinstance(event.outcome, Recovered)


def pending_records(s: State) -> list[Record]:
    """Returns the records whose requests are pending, in write order."""
    return [record for entry in (*s.in_flight, s.buffer) for record in entry]


def may_reach(before: str, after: str) -> bool:
    """Whether legal transitions lead from one status to the other."""
    return before == after or any(a == before and may_reach(b, after) for a, b in TRANSITIONS)


# ---- durability ---------------------------------------------------------------------------------------


@always(txn_log)
def confirmed_operation_is_durable(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A request succeeds only after its record is in the log, or if its transaction already has the requested status.

    In the latter case, no record is written. A completed write appends the first entry in flight, and completes exactly
    the requests of this entry's records, in order.
    """
    if is_error(event) or event.name not in COMPLETING:
        return True
    succeeded = [completion for completion in event.outcome if completion.result == "success"]
    if event.name == "update_status" and succeeded:
        txn, to = event.arguments["txn"], event.arguments["to"]
        return after is before and [t.status for t in before.txns if t.id == txn] == [to]
    if event.name != "complete_write":
        return not succeeded
    entry = before.in_flight[0]
    completed = [(completion.txn, completion.op) for completion in event.outcome]
    return (
        after.log[-1] == entry and len(after.log) == len(before.log) + 1 and completed == [(r.txn, r.op) for r in entry]
    )


@always(txn_log)
def every_request_completes_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """In every step but a crash, each pending request completes or stays pending, and submitted ones complete in order.

    An append that a ledger rejects at once (fenced or in `WriteFailed`) and an `update_status` without a record are not
    submitted, and may complete before earlier requests. A crash discards all pending requests.
    """
    if event.name == "crash" or is_error(event):  # a rejected or failed call completes no request
        return event.name != "crash" or not pending_records(after)
    pending = [(r.txn, r.op) for r in pending_records(before)]
    if event.name == "new_transaction":
        pending.append((before.last_id + 1, "NEW"))
    elif event.name == "add_participant":
        pending.append((event.arguments["txn"], event.arguments["op"]))
    elif event.name == "update_status":
        pending.append((event.arguments["txn"], "UPDATE"))
    completions = event.outcome if event.name in COMPLETING else ()
    completed = [(completion.txn, completion.op) for completion in completions]
    still_pending = [(r.txn, r.op) for r in pending_records(after)]
    # In these cases a request may complete before earlier ones; `request_is_appended_as_made` states which. An append
    # in `WriteFailed` leaves the ledger closed.
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
    """In a ready store whose deletions succeed, an entry is deleted if and only if all its records are deleted.

    A record is deleted if and only if no ongoing transaction has its position. So a record without effect is deleted.
    """
    if not is_ready_and_can_delete(s):
        return True
    deleted = [
        n
        for n in range(s.first_entry, s.first_entry + len(s.log))
        if n < s.acks.first_unacked or s.acks.deleted >> n & 1
    ]
    needed = needed_records(s)
    return remaining_in(s, s.acks) == needed and deleted == [
        n for n, mask in enumerate(needed, s.first_entry) if mask == 0
    ]


@always(txn_log, on=("complete_write",))
def ended_transaction_records_are_deleted(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When a transaction ends, the records whose positions it had are deleted, unless deletions fail."""
    ongoing_ids = {t.id for t in after.txns}
    ended = [t for t in before.txns if t.id not in ongoing_ids] if after.deletions_succeed else []
    masks = remaining_in(after, after.acks) if ended else []
    return not any(masks[p.entry - after.first_entry] >> p.batch_index & 1 for t in ended for p in t.positions)


@always(txn_log)
def deletions_are_monotone(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A deleted record stays deleted while the store is open."""
    if event.name in RESTARTS or after.acks is before.acks:
        return True
    trimmed = after.first_entry - before.first_entry
    pairs = zip(remaining_in(before, before.acks)[trimmed:], remaining_in(after, after.acks), strict=False)
    # every record that remains after the step remained before
    return all(remaining_after & ~remaining_before == 0 for remaining_before, remaining_after in pairs)


@always(txn_log)
def new_record_is_durably_deleted_first(cfg: Config, s: State) -> bool:
    """If a record that changed an ended transaction is durably deleted, so is the transaction's NEW record.

    Otherwise a replay after a crash could read the NEW record without the COMMITTED or ABORTED record, and the
    transaction would be ongoing again.
    """
    masks = remaining_in(s, s.durable)
    for logged in logged_transactions(s).values():
        first, others = logged.positions[0], logged.positions[1:]
        new_remains = masks[first.entry - s.first_entry] >> first.batch_index & 1
        if (
            logged.status in ENDED
            and new_remains
            and not all(masks[p.entry - s.first_entry] >> p.batch_index & 1 for p in others)
        ):
            return False
    return True


@always(txn_log)
def clean_cursor_has_persisted_all_deletions(cfg: Config, s: State) -> bool:
    """A cursor with nothing to write has persisted all deletions, provided that they fit in one `PositionInfo`."""
    if s.dirty or not fits_in_position_info(cfg, s):
        return True
    pairs = zip(remaining_in(s, s.acks), remaining_in(s, s.durable), strict=True)
    return all(remaining_persisted & ~remaining_in_memory == 0 for remaining_in_memory, remaining_persisted in pairs)


@always(txn_log, on=("reopen",))
def clean_close_preserves_deletions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A clean close and reopen with batching preserves all deletions, provided that they fit in one `PositionInfo`."""
    applies = closes_cleanly(before, event) and event.arguments["batching"] and fits_in_position_info(cfg, before)
    return after.acks == before.acks or not applies


@always(txn_log, on=("persist", "reopen"))
def persisted_position_info_is_prefix_of_deletions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A persisted cursor that cannot hold all deletions has all of them below some entry, and none from it on.

    If the `PositionInfo` also had the deletions of this entry, it would exceed a limit.
    """
    # Without `metadata_ack_sets_are_recovered`, `after.durable` may lack ack sets that the close has persisted.
    is_close = closes_cleanly(before, event) and cfg.metadata_ack_sets_are_recovered
    if not is_close and (event.name == "reopen" or event.outcome is not True):
        return True
    acks = before.acks
    # `in_memory` and `persisted` are masks of undeleted records. `cut` is the index of the first entry of which the
    # `PositionInfo` omits a deletion.
    in_memory, persisted = remaining_in(after, acks), remaining_in(after, after.durable)
    cut = next((n for n, mask in enumerate(in_memory) if mask != persisted[n]), len(in_memory))
    if any(mask != (1 << len(entry)) - 1 for entry, mask in zip(after.log[cut:], persisted[cut:], strict=True)):
        return False
    last = after.first_entry + cut
    deleted = acks.deleted & (1 << last + 1) - 1
    larger = Acks(acks.first_unacked, deleted, tuple([p for p in acks.partial if p.entry <= last]))
    return cut == len(in_memory) or not fits_in_position_info(cfg, after._replace(acks=larger))


@always(txn_log)
def only_durably_deleted_ledgers_are_trimmed(cfg: Config, s: State) -> bool:
    """Only whole ledgers up to the persisted mark-delete position are trimmed, and never the last ledger."""
    return s.first_entry <= s.durable.first_unacked and len(s.ledgers) > 0 and sum(s.ledgers) == len(s.log)


@always(txn_log)
def mark_delete_reaches_log_end_without_ongoing_transactions(cfg: Config, s: State) -> bool:
    """In a ready store without ongoing transactions, the mark-delete position is at the last entry of the log.

    The guarantee holds while deletions succeed. Once the position is persisted, all but the last ledger can be trimmed.
    """
    return bool(s.txns) or not is_ready_and_can_delete(s) or s.acks.first_unacked == s.first_entry + len(s.log)


# ---- recovery -----------------------------------------------------------------------------------------


@always(txn_log)
def ready_store_equals_log(cfg: Config, s: State) -> bool:
    """A ready store has exactly the ongoing transactions of the log, with their status, participants and positions."""
    if s.status != "ready":
        return True
    return {t.id: as_logged(t) for t in s.txns} == ongoing(logged_transactions(s))


@always(txn_log, on=REPLAY)
def recovery_preserves_confirmed_state(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Recovery finds every confirmed transaction that has not ended, with all its confirmed participants.

    The recovered status is the confirmed one, or legal transitions lead from the confirmed status to the recovered one.
    """
    if not completes_recovery(event):
        return True
    found = {t.id: t for t in after.txns}
    return all(
        known.status in ENDED or (known.id in found and preserves(known, found[known.id])) for known in before.confirmed
    )


def preserves(known: Confirmed, t: Txn) -> bool:
    """Whether a recovered transaction has all confirmed participants, and a status that the confirmed one can reach."""
    participants = known.partitions & ~t.partitions == 0 and known.subscriptions & ~t.subscriptions == 0
    return participants and may_reach(known.status, t.status)


@always(txn_log, on=("complete_replay",))
def ended_transaction_is_not_recovered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A transaction whose COMMITTED or ABORTED status was confirmed is not ongoing after any later complete replay."""
    if not completes_recovery(event):
        return True
    found = {t.id for t in after.txns if t.status not in ENDED}
    return not any(known.status in ENDED and known.id in found for known in before.confirmed)


@always(txn_log)
def confirmed_decision_is_final(cfg: Config, s: State) -> bool:
    """The records of the log never lead to the opposite of a confirmed commit or abort decision.

    The log may contain a record of the opposite decision that has no effect.
    """
    logged = logged_transactions(s)
    decided = [{p.status, logged[p.id].status} for p in s.confirmed if p.id in logged]
    return not any(pair & COMMITS and pair & ABORTS for pair in decided)


@always(txn_log)
def ended_transaction_leaves_the_map(cfg: Config, s: State) -> bool:
    """The map of a ready store (`txnMetaMap`) has no COMMITTED or ABORTED transaction, even if deletions fail."""
    return s.status != "ready" or not any(t.status in ENDED for t in s.txns)


@always(txn_log, on=REPLAY)
def recovered_positions_equal_effective_records(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a replay, a transaction has exactly the positions of the records that changed it, in log order."""
    if not completes_recovery(event):
        return True
    logged = logged_transactions(after)
    return all(t.id in logged and t.positions == logged[t.id].positions for t in after.txns)


@always(txn_log, on=("complete_replay",))
def replay_deletes_orphan_records(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a replay with a working cursor, no undeleted record belongs to an unknown transaction."""
    if not completes_recovery(event) or not after.deletions_succeed:
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
    """Replay takes only legal transitions, adds participants to OPEN transactions only, and removes no participant.

    An entry may hold several records of a transaction, so a step may take several transitions.
    """
    for t in before.txns:
        for later in [each for each in after.txns if each.id == t.id]:
            changed = (t.partitions, t.subscriptions) != (later.partitions, later.subscriptions)
            lost = t.partitions & ~later.partitions | t.subscriptions & ~later.subscriptions
            if lost or not may_reach(t.status, later.status) or (changed and t.status != "OPEN"):
                return False
    return True


def found_by_replay(s: State, acks: Acks) -> dict[int, LoggedTxn]:
    """Returns the ongoing transactions that a replay of the undeleted records would find."""
    found: dict[int, LoggedTxn] = {}
    for number, (entry, mask) in enumerate(zip(s.log, remaining_in(s, acks), strict=True), s.first_entry):
        for index, record in enumerate(entry):
            position = RecordPosition(number, index)
            if mask >> index & 1 and record.txn in found:
                found[record.txn] = logged_after(found[record.txn], record, position)
            elif mask >> index & 1 and record.op == "NEW":
                found[record.txn] = LoggedTxn("OPEN", frozenset(), frozenset(), (position,))
            if record.txn in found and found[record.txn].status in ENDED:
                del found[record.txn]
    return found


@always(txn_log, on=("complete_replay",))
def replay_is_idempotent(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A second replay would recover the same transactions, from the deletions in memory and from the persisted ones."""
    if not completes_recovery(event):
        return True
    recovered = {t.id: as_logged(t) for t in after.txns}
    return all(found_by_replay(after, acks) == recovered for acks in (after.acks, after.durable))


@always(txn_log, on=REPLAY)
def store_is_ready_only_after_complete_replay(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A store becomes ready only after reading its log to the end. A read that fails for good ends the replay."""
    if not completes_recovery(event):
        return event.name != "fail_read" or after.status != "replaying"
    first = max(before.read_position - before.first_entry, 0)  # the index in `log` at which the replay would go on
    return not any(remaining_in(before, before.acks)[first:])


def logged_deadlines(s: State) -> dict[int, int]:
    """Returns start time plus timeout, by id, of the transactions whose NEW record is in the log."""
    # reversed: of several NEW records of a transaction, the one in the earliest entry counts
    return {r.txn: r.start_ms + r.timeout_ms for entry in reversed(s.log) for r in entry if r.op == "NEW"}


@always(txn_log, on=REPLAY)
def recovered_transactions_are_passed_to_tracker(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Recovery passes each recovered transaction to `TransactionRecoverTracker` exactly once.

    The tracker gets COMMITTING and ABORTING transactions to end them, and OPEN ones with their deadline: start time
    plus timeout.
    """
    if not completes_recovery(event):
        return True
    deadlines = logged_deadlines(after)
    statuses = {t.id: t.status for t in after.txns}
    return (
        list(event.outcome.to_commit) == [txn for txn in statuses if statuses[txn] == "COMMITTING"]
        and list(event.outcome.to_abort) == [txn for txn in statuses if statuses[txn] == "ABORTING"]
        and list(event.outcome.open) == [(txn, deadlines.get(txn)) for txn in statuses if statuses[txn] == "OPEN"]
    )


# ---- ids, low watermark, deadlines ---------------------------------------------------------------------


@always(txn_log, on=("new_transaction",))
def confirmed_transaction_id_is_never_reused(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A new transaction id is higher than every confirmed id, and than every id assigned since the last restart."""
    return is_error(event) or after.last_id > max(before.confirmed_id, before.last_id)


@always(txn_log)
def recoverable_id_covers_confirmed_ids(cfg: Config, s: State) -> bool:
    """The last assigned id that a restart would recover is at least every confirmed id."""
    return recoverable_id(s) >= s.confirmed_id


def recoverable_id(s: State) -> int:
    """Returns the last assigned id that a reopened store recovers.

    The id is in the last record or, if the last ledger is empty, in the managed ledger's properties.
    """
    return s.log[-1][-1].last_id if s.ledgers[-1] else s.ledger_property_id


@always(txn_log)
def low_watermark_is_below_ongoing_transactions(cfg: Config, s: State) -> bool:
    """In a ready store, every ongoing transaction is above every low watermark that was returned."""
    return s.status != "ready" or not s.txns or s.txns[0].id > s.reported_watermark


@always(txn_log, on=("low_watermark",))
def low_watermark_is_monotone_and_maximal(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The low watermark is the highest id below every transaction that is ongoing or may begin, and never decreases.

    While transactions are ongoing, the low watermark is one below the first ongoing id. Otherwise the low watermark is
    one below the lower of two ids: that of the first pending NEW record, and the first that a restart could assign.
    """
    if is_error(event):
        return True
    ongoing_ids = [t.id for t in before.txns]
    pending_ids = [r.txn for r in pending_records(before) if r.op == "NEW"]
    highest = min(ongoing_ids or [*pending_ids, recoverable_id(before) + 1]) - 1
    return bool(before.reported_watermark <= event.outcome == highest == after.reported_watermark)


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
    """The deadline of a transaction is never before its start time plus its timeout.

    When the NEW record becomes durable, the deadline is set to the current time plus the timeout, exactly. Until a
    restart, no later record changes the deadline.
    """
    if after.txns is before.txns:
        return True
    if event.name == "complete_write":
        expected = {r.txn: before.now_ms + r.timeout_ms for r in before.in_flight[0] if r.op == "NEW"}
        expected |= {t.id: t.deadline_ms for t in before.txns}
        return all(t.deadline_ms == expected.get(t.id) for t in after.txns)
    earliest = logged_deadlines(after)
    return all(t.deadline_ms >= earliest.get(t.id, t.deadline_ms) for t in after.txns)


# ---- statuses -----------------------------------------------------------------------------------------


@always(txn_log, on=(*APPENDS, "complete_write", *FAILURES, "persist", "trim", "roll_ledger"))
def only_durable_records_change_transactions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Outside restart and replay, transactions change only when an entry becomes durable, by its records in order.

    A request succeeds if and only if its record has an effect; the new status and participants are then confirmed.
    """
    if event.name != "complete_write" or is_error(event):
        return after.txns == before.txns
    expected, confirmed_txns = {t.id: as_logged(t) for t in before.txns}, confirmed_in(before)
    number = before.first_entry + len(before.log)
    has_effect = []
    for index, record in enumerate(before.in_flight[0]):
        position = RecordPosition(number, index)
        previous = expected.get(record.txn)
        if previous is not None and previous.status not in ENDED:
            expected[record.txn] = logged_after(previous, record, position)
        elif record.op == "NEW":
            expected[record.txn] = LoggedTxn("OPEN", frozenset(), frozenset(), (position,))
        has_effect.append(expected.get(record.txn) is not previous)  # `logged_after` returns a new object on an effect
        if has_effect[-1]:
            confirmed_txns[record.txn] = expected[record.txn][:3]  # status, partitions and subscriptions
    succeeded = [completion.result == "success" for completion in event.outcome]
    is_confirmed = confirmed_in(after) == confirmed_txns and len(after.confirmed) == len(confirmed_txns)
    return is_confirmed and {t.id: as_logged(t) for t in after.txns} == ongoing(expected) and succeeded == has_effect


def confirmed_in(s: State) -> dict[int, tuple[str, frozenset[int], frozenset[int]]]:
    """Returns the confirmed status and participants of each transaction."""
    return {p.id: (p.status, bits_of(p.partitions), bits_of(p.subscriptions)) for p in s.confirmed}


@always(txn_log, on=FAILURES)
def store_stops_after_ambiguous_append(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After an append with unknown outcome (it failed, but may be durable), the store stops until it is reopened."""
    is_ambiguous = not is_error(event) and any(completion.result == "unknown" for completion in event.outcome)
    return not is_ambiguous or after.status == "stopped"


# ---- coverage goals ------------------------------------------------------------------------


def has_several_transactions(entry: Entry) -> bool:
    """Whether an entry has records of several transactions."""
    return len({record.txn for record in entry}) > 1


@sometimes(txn_log)
def shared_entry_is_partially_deleted(cfg: Config, s: State) -> bool:
    """In an entry with records of several transactions, some records are deleted and others are not."""
    masks = remaining_in(s, s.acks)
    return any(
        has_several_transactions(entry) and 0 < mask < (1 << len(entry)) - 1
        for entry, mask in zip(s.log, masks, strict=True)
    )


@sometimes(txn_log, on=("crash",))
def crash_loses_deletions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A crash loses deletions of records that were not persisted."""
    return remaining_in(before, before.acks) != remaining_in(after, after.acks)[: len(before.log)]


@sometimes(txn_log, on=("crash",))
def crash_interrupts_replay(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A crash interrupts a replay: some entries were replayed, but not all."""
    is_within = before.read_position > before.durable.first_unacked and before.read_position < before.first_entry + len(
        before.log
    )
    return before.status == "replaying" and is_within


@sometimes(txn_log, on=("fail_write", "fence"))
def ambiguous_append_is_durable(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An append fails for its caller, but its records are in the log."""
    return len(after.log) > len(before.log)


@sometimes(txn_log, on=("replay_entry",))
def replay_finds_unconfirmed_update(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay finds a status update that was never confirmed to its caller."""
    confirmed = {p.id: p.status for p in before.confirmed}
    found = [(confirmed[t.id], t.status) for t in after.txns if t.id in confirmed]
    return any(status != confirmed_status and may_reach(confirmed_status, status) for confirmed_status, status in found)


@sometimes(txn_log, on=("replay_entry",))
def replay_ends_transaction(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay reads the end (COMMITTED or ABORTED) of a transaction that the replay has found before."""
    found = {t.id for t in after.txns}
    return any(t.id not in found for t in before.txns)


@sometimes(txn_log, on=("replay_entry",))
def replay_deletes_record_without_effect(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay deletes a record without effect: its transaction is unknown or not in the required status."""
    return not is_error(event) and event.outcome > 0 and after.txns == before.txns and after.acks != before.acks


@sometimes(txn_log, on=("complete_write",))
def participant_of_ended_transaction_is_rejected(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A participant is not added, because an earlier record of the same entry has ended the transaction."""
    if is_error(event):
        return False
    ended: set[int] = set()
    for record, completion in zip(before.in_flight[0], event.outcome, strict=True):
        if record.to in ENDED and completion.result == "success":
            ended.add(record.txn)
        elif record.txn in ended and record.to is None and completion.result == "invalid_status":
            return True
    return False


@sometimes(txn_log, on=("trim",))
def ledger_is_trimmed_below_ongoing_transaction(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A ledger is trimmed while a transaction is ongoing."""
    return after.first_entry > before.first_entry and after.txns != ()


@sometimes(txn_log, on=("new_transaction",))
def transaction_begins_in_fully_trimmed_log(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A transaction begins after earlier ones, when all entries of the log have been trimmed."""
    return not is_error(event) and before.log == () and before.confirmed_id >= 0


@sometimes(txn_log, on=("persist",))
def persisted_position_info_is_truncated(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The cursor is persisted, but its `PositionInfo` leaves out some deletions."""
    return event.outcome is True and remaining_in(after, after.durable) != remaining_in(after, after.acks)


@sometimes(txn_log, on=("update_status",))
def status_update_is_retried(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An update to the status that a transaction already has is confirmed without a record."""
    return not is_error(event) and any(completion.result == "success" for completion in event.outcome)


@sometimes(txn_log, on=("new_transaction", "flush"))
def ledger_is_created_after_failure(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An append creates a ledger, because a failure has closed the previous one."""
    return before.ledger == "closed" and after.ledger == "open"


@sometimes(txn_log, on=("expired",))
def transactions_expire_out_of_id_order(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Two transactions expire, the one with the higher id first."""
    return not is_error(event) and len(event.outcome) > 1 and event.outcome[0] > event.outcome[1]


@sometimes(txn_log, on=("reopen",))
def batching_is_disabled_with_partially_deleted_batches(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A log in which batches are partially deleted is reopened with batching switched off."""
    return not is_error(event) and before.batching and not after.batching and before.acks.partial != ()


# ---- liveness ------------------------------------------------------------------------


@eventually(txn_log, fair=("flush", "complete_write"))
def every_request_completes(cfg: Config, s: State) -> bool:
    """If flushes and write completions are fair, every pending request completes."""
    return s.buffer == () and s.in_flight == ()


@eventually(txn_log, fair=("replay_entry", "complete_replay"))
def replay_terminates(cfg: Config, s: State) -> bool:
    """If the steps of a replay are fair, every replay completes."""
    return s.status != "replaying"


@eventually(txn_log, fair=("fail_read",))
def failing_replay_terminates(cfg: Config, s: State) -> bool:
    """If failures of reads are fair, every replay ends, perhaps because the store fails."""
    return s.status != "replaying"


@eventually(txn_log, fair=("persist", "trim"))
def fully_deleted_ledgers_are_trimmed(cfg: Config, s: State) -> bool:
    """Without ongoing transactions, every ledger but the last is trimmed, if cursor writes and trims are fair.

    The guarantee holds for a ready store that is not fenced and whose deletions succeed.
    """
    is_idle = is_ready_and_can_delete(s) and s.ledger != "fenced" and s.txns == ()
    return not is_idle or len(s.ledgers) == 1
