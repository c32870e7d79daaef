"""Coverage goals of a pending-ack handle."""

from __future__ import annotations

from invariants.pending_acks.messages import (
    APPENDS,
    acknowledged,
    all_messages,
    appended_requests,
    applied_records,
    in_memory,
    is_error,
    logged,
    messages_to_redeliver,
    open_requests,
    results,
    unacknowledged,
)
from invariants.properties import Event, sometimes
from model.machine import Failed
from model.pending_acks.machine import pending_acks
from model.pending_acks.state import INTERNAL, Config, State


@sometimes(pending_acks, on=("crash",))
def crash_loses_committed_acks_of_cursor(cfg: Config, before: State, event: Event, after: State) -> bool:
    """In a crash, the cursor loses acks whose commit is in the log."""
    committed = [each.commit_messages(cfg, after.cursor.first_unacked) for each in logged(before).committed]
    return any(unacknowledged(cfg, after.cursor, m) != unacknowledged(cfg, before.cursor, m) for m in committed)


@sometimes(pending_acks, on=("crash",))
def in_flight_entry_survives_crash(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a crash, the log has an entry whose requests had not completed."""
    return len(after.log) > len(before.log)


@sometimes(pending_acks, on=("read_entry",))
def replay_drops_acked_positions_of_a_list(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay reads an ack of several entries, some of which the persisted cursor has deleted already, but not all."""
    if is_error(event):
        return False
    lists = [each.acks for each in before.log[before.read_position] if each.op == "ack" and len(each.acks) > 1]
    durable = before.durable_cursor
    known = [[acknowledged(cfg, durable, ack.entry) == all_messages(cfg, ack.entry) for ack in acks] for acks in lists]
    return any(any(each) and not all(each) for each in known)


@sometimes(pending_acks, on=APPENDS)
def several_keys_are_removed_at_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An append removes several keys of the log's index at once: the cursor has persisted the acks that they cover."""
    return len(before.log_index.keys) > len(after.log_index.keys) + 1 and after.status == "ready"


@sometimes(pending_acks)
def deletable_prefix_is_not_yet_trimmed(cfg: Config, s: State) -> bool:
    """The cursor has persisted all acks in the first part of the log, which is not trimmed yet."""
    return s.status == "ready" and any(key.ack_position < s.durable_cursor.first_unacked for key in s.log_index.keys)


@sometimes(pending_acks, on=APPENDS)
def aborted_transaction_shares_an_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An abort redelivers messages of an entry, of which another individual ack is pending."""
    if is_error(event) or not event.outcome.redelivered:
        return False
    entries = {ack.entry for each in after.individual_acks for ack in each.acks}
    return any(n in entries for n, _ in event.outcome.redelivered)


@sometimes(pending_acks, on=APPENDS)
def log_entry_has_ack_and_its_abort(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A log entry has an ack and the abort of its transaction; the abort redelivers the acked messages."""
    aborts = [each for each in applied_records(cfg, before, event, after) if each.request.record.op == "abort"]
    return any(
        messages_to_redeliver(cfg, before, each) for each in aborts if each.request.record.txn not in in_memory(before)
    )


@sometimes(pending_acks, on=APPENDS)
def low_watermark_aborts_transaction(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The handle itself has started to abort a transaction that the coordinator has ended (low watermark)."""
    return not is_error(event) and any(request.number == INTERNAL for request in open_requests(after))


@sometimes(pending_acks, on=("end_replay",))
def queued_requests_are_accepted_after_replay(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a replay, several requests that arrived during it are buffered or in flight."""
    return len(before.accept_queue) > 1 and len(open_requests(after)) > 1


@sometimes(pending_acks, on=("ack_individual",))
def individual_ack_conflicts_with_cumulative_ack(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An individual ack is rejected because of a cumulative ack of another transaction."""
    return isinstance(event.outcome, Failed) and "has a cumulative ack of entry" in event.outcome.why


@sometimes(pending_acks, on=("ack_cumulative",))
def cumulative_ack_conflicts_with_individual_ack(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A cumulative ack is rejected because of an individual ack of another transaction."""
    return isinstance(event.outcome, Failed) and "has a pending ack at or before" in event.outcome.why


@sometimes(pending_acks, on=("cursor_refuses",))
def cursor_rejects_commit(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The cursor rejects the acks of a commit."""
    return "failed" in results(event).values() and bool(appended_requests(before, event))


def committed_txns(before: State, event: Event) -> list[int]:
    """Returns the transactions with a commit in the log entry whose append ends in this step."""
    return [request.record.txn for request in appended_requests(before, event) if request.record.op == "commit"]


@sometimes(pending_acks, on=("written",))
def cumulative_ack_inside_batch_is_committed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A commit applies a cumulative ack that ends inside a batch: the ack leaves messages of the batch."""
    cumulative = before.cumulative_ack
    if cumulative is None or cumulative.ack.ack_set is None or cumulative.txn not in committed_txns(before, event):
        return False
    return after.cumulative_ack is None and after.status == "ready" and after.cursor != before.cursor


@sometimes(pending_acks, on=("written",))
def entry_acked_by_batch_indexes_is_committed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A commit applies several acks that together are for all messages of a batch."""
    commits = committed_txns(before, event)
    # an ack set 0 results only from the AND of several ack sets
    has_entry = any(ack.ack_set == 0 for each in before.individual_acks if each.txn in commits for ack in each.acks)
    return has_entry and after.status == "ready" and after.cursor is not before.cursor


@sometimes(pending_acks, on=("written",))
def entry_is_appended_after_failed_one(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An append succeeds after the handle has failed (status error): the requests fail, but the records are durable."""
    return before.status == "error" and not is_error(event)
