"""Guarantees of a pending-ack handle (PIP-153, PIP-160), stated message by message instead of ack by ack.

The first two properties compute the pending and the committed acks from the records of the log. They compare the
pending acks with the handle's memory, and the committed acks with the subscription's cursor.

The log has an index. A key of the index says that no log entry up to the key's `log_position` acks an entry of the
topic after the key's `ack_position`.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from invariants.pending_acks.messages import (
    APPENDS,
    NOTHING_PENDING,
    Messages,
    Pending,
    acked_by,
    acknowledged,
    all_messages,
    appended_requests,
    applied_records,
    covered,
    in_memory,
    is_error,
    logged,
    messages_to_redeliver,
    open_numbers,
    open_requests,
    pending_of,
    results,
    unacknowledged,
)
from invariants.properties import Event, always, eventually
from model.machine import Failed, Refused
from model.pending_acks.log_index import Key
from model.pending_acks.machine import Effects, pending_acks
from model.pending_acks.state import Config, LogEntry, LogRecord, PositionAck, Redelivery, State

# ---- memory and the log -------------------------------------------------------------------------------


@always(pending_acks)
def pending_acks_equal_replay_of_log(cfg: Config, s: State) -> bool:
    """The pending acks of a ready handle are those that result from the records of the log, also after a replay.

    Acknowledged messages are not compared. Nor are batch-index acks if the cursor stores no ack sets
    (`Pending.commit_messages`).
    """
    if s.status != "ready" or (not s.log and not s.individual_acks and s.cumulative_ack is None):
        return True
    expected, actual = logged(s).pending, in_memory(s)
    for txn in expected.keys() | actual.keys():
        one, other = (
            each.get(txn, NOTHING_PENDING).commit_messages(cfg, s.cursor.first_unacked) for each in (expected, actual)
        )
        if one != other and unacknowledged(cfg, s.cursor, one) != unacknowledged(cfg, s.cursor, other):
            return False
    return True


@always(pending_acks)
def committed_ack_stays_acknowledged(cfg: Config, s: State) -> bool:
    """While the handle is ready, all messages that a commit in the log has committed are acknowledged."""
    if s.status != "ready":
        return True
    return not any(
        unacknowledged(cfg, s.cursor, p.commit_messages(cfg, s.cursor.first_unacked)) for p in logged(s).committed
    )


@always(pending_acks)
def message_is_pending_in_at_most_one_transaction(cfg: Config, s: State) -> bool:
    """A message is pending in at most one transaction, whatever the types of the acks (apache/pulsar#4265)."""
    seen: Messages = {}
    cumulative = s.cumulative_ack
    for each in s.individual_acks:
        for ack in each.acks:
            messages = acked_by(cfg, ack)
            if seen.get(ack.entry, 0) & messages:
                return False
            if (
                cumulative is not None
                and cumulative.txn != each.txn
                and messages & covered(cfg, cumulative.ack, ack.entry)
            ):
                return False
            seen[ack.entry] = seen.get(ack.entry, 0) | messages
    return True


@always(pending_acks)
def pending_acks_are_ordered_by_entry(cfg: Config, s: State) -> bool:
    """The individual acks of a transaction are in order of entries, with at most one ack per entry.

    `State.individual_acks` has no transaction without acks.
    """
    acks = [[ack.entry for ack in each.acks] for each in s.individual_acks]
    return all(entries and entries == sorted(set(entries)) for entries in acks)


@always(pending_acks)
def handle_that_is_not_open_has_no_memory(cfg: Config, s: State) -> bool:
    """A handle that is neither initializing nor ready has no pending acks and no buffered or queued requests.

    Its low watermark is 0, and its index is that of an empty log. Only a ready handle has buffered requests. In every
    status but initializing, no request is queued, and the counters `replayed` and `failed_reads` are 0. With the rule
    `replay_rewinds`, `read_position` is 0, too.
    """
    has_misplaced_requests = (bool(s.buffer) and s.status != "ready") or (
        bool(s.accept_queue) and s.status != "initializing"
    )
    has_acks = bool(s.individual_acks) or s.cumulative_ack is not None
    has_memory = has_acks or s.log_index != (0, cfg.min_lag, -1, ()) or s.low_watermark != 0
    if s.status != "initializing" and (s.replayed or s.failed_reads or (cfg.replay_rewinds and s.read_position)):
        return False
    return not has_misplaced_requests and (s.status in ("ready", "initializing") or not has_memory)


# ---- requests -----------------------------------------------------------------------------------------


@always(pending_acks)
def every_request_completes_exactly_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Every request completes exactly once, unless the broker crashes first.

    A request whose future fails also completes. After a crash, no request is left.
    """
    if event.name == "crash":
        return is_error(event) or not open_numbers(after)
    is_same = before.in_flight is after.in_flight and before.accept_queue is after.accept_queue
    if before.next_request == after.next_request and is_same and before.buffer is after.buffer:
        return not results(event)  # the same requests are open as before
    new = [before.next_request] if after.next_request > before.next_request else []
    replies = event.outcome.replies if isinstance(event.outcome, Effects) else ()
    completed = [reply.request for reply in replies] or list(results(event))  # twice if there are two replies
    return sorted([*completed, *open_numbers(after)]) == sorted([*open_numbers(before), *new])


@always(pending_acks)
def requests_are_logged_in_order(cfg: Config, s: State) -> bool:
    """Requests stay in the order of their arrival (#13481).

    Requests in flight arrived before buffered requests, and buffered requests before queued requests.
    """
    return all(one < other for one, other in pairwise(open_numbers(s)))


@always(pending_acks, on=("ack_individual", "ack_cumulative"))
def ack_is_rejected_iff_it_conflicts(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A ready handle rejects an ack if and only if the ack conflicts with acknowledged messages or with pending acks.

    An individual ack conflicts with a pending individual ack of one of its messages, and with another transaction's
    cumulative ack of one of its messages. An ack with an ack set also conflicts if one of the messages that it acks is
    acknowledged; an ack of a whole entry, if all messages of the entry are acknowledged.

    A cumulative ack conflicts with any cumulative ack of another transaction, with individual acks of other
    transactions up to its position, with a cumulative ack of its own transaction at or after its position, and with a
    mark-delete position at or after its entry. Acks whose records are not durable yet count as pending. A handle that
    detects conflicts after the append rejects nothing here.
    """
    if before.status != "ready" or isinstance(event.outcome, Refused):
        return True
    is_early = cfg.conflict_check == "before_append"
    return isinstance(event.outcome, Failed) == (is_early and conflicts(cfg, before, event))


def conflicts(cfg: Config, s: State, event: Event) -> bool:
    """Returns whether the requested ack conflicts with acknowledged messages or pending acks."""
    txn = event.arguments["txn"]
    records = [request.record for request in open_requests(s) if request.record.op == "ack"]
    cumulative = [(s.cumulative_ack.txn, s.cumulative_ack.ack)] if s.cumulative_ack is not None else []
    cumulative += [(record.txn, record.acks[0]) for record in records if record.cumulative]
    individual = [(each.txn, ack) for each in s.individual_acks for ack in each.acks]
    individual += [(record.txn, ack) for record in records if not record.cumulative for ack in record.acks]
    if event.name == "ack_cumulative":
        return cumulative_conflicts(cfg, s, event, cumulative, individual)
    for entry, ack_set in event.arguments["acks"]:
        messages, already_acked = all_messages(cfg, entry) & ~(ack_set or 0), acknowledged(cfg, s.cursor, entry)
        if already_acked == all_messages(cfg, entry) or (ack_set and messages & already_acked):
            return True
        if any(other.entry == entry and messages & acked_by(cfg, other) for _, other in individual):
            return True
        if any(owner != txn and messages & covered(cfg, other, entry) for owner, other in cumulative):
            return True
    return False


def cumulative_conflicts(
    cfg: Config,
    s: State,
    event: Event,
    cumulative: list[tuple[int, PositionAck]],
    individual: list[tuple[int, PositionAck]],
) -> bool:
    """Returns whether a cumulative ack conflicts with the mark-delete position or with a pending ack.

    `cumulative` and `individual` are the pending acks of all transactions, each with its transaction; the latest
    cumulative ack is the last one.
    """
    txn, entry = event.arguments["txn"], event.arguments["entry"]
    ack = PositionAck(entry, event.arguments["ack_set"])
    if entry < s.cursor.first_unacked or any(owner != txn for owner, _ in cumulative):
        return True
    # All cumulative acks are of this transaction. The new ack conflicts if it covers no message beyond the latest one.
    # To find such a message, the last entries of both acks suffice: the acks cover every earlier entry completely.
    for _, own in cumulative[-1:]:
        if all(not covered(cfg, ack, n) & ~covered(cfg, own, n) for n in (own.entry, entry)):
            return True
    return any(owner != txn and acked_by(cfg, other) & covered(cfg, ack, other.entry) for owner, other in individual)


@always(pending_acks)
def rejected_ack_is_not_logged(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The log has no record of a request that is rejected with a conflict: a replay could apply such a record."""
    is_append = event.name in APPENDS and before.in_flight
    numbers = [request.number for request in before.in_flight[0]] if is_append else []
    return not any(result == "conflict" and number in numbers for number, result in results(event).items())


@always(pending_acks, on=("written",))
def message_of_successful_ack_is_not_pending_elsewhere(cfg: Config, before: State, event: Event, after: State) -> bool:
    """When an individual ack succeeds, its messages are not pending individually in another transaction.

    `message_is_pending_in_at_most_one_transaction` checks every state, and cumulative acks too.
    """
    for applied in applied_records(cfg, before, event, after):
        record = applied.request.record
        acks = record.acks if record.op == "ack" and not record.cumulative else ()
        for ack in acks:
            for txn, other in applied.pending.items():
                old = other.individual.get(ack.entry)
                if txn != record.txn and old is not None and acked_by(cfg, ack) & acked_by(cfg, old):
                    return False
    return True


@always(pending_acks, on=("written",))
def successful_commit_has_acknowledged_its_messages(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A successful commit ends all pending acks of its transaction, and the cursor acknowledges what it can store.

    A cursor that stores no ack sets ignores an ack with an ack set, unless the ack set is empty.
    """
    return commits_are_complete(cfg, before, event, after)


@always(pending_acks, on=("written",))
def commit_covers_both_ack_types(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The commit of a transaction with a cumulative ack also applies the individual acks of the transaction.

    Only commits whose record has ack type Cumulative are checked.
    """
    return commits_are_complete(cfg, before, event, after, with_cumulative=True)


def commits_are_complete(
    cfg: Config, before: State, event: Event, after: State, *, with_cumulative: bool = False
) -> bool:
    """Returns whether the messages of each successful commit are acknowledged, and its transaction has no pending acks.

    If the log entry has an ack of the transaction after the commit, the transaction may have pending acks.
    `with_cumulative`: only commits with ack type Cumulative, of transactions that have a cumulative ack pending, are
    checked.
    """
    ended: set[int] = set()
    for applied in applied_records(cfg, before, event, after):
        record, pending = applied.request.record, pending_of(applied)
        if record.op == "ack":
            ended.discard(record.txn)
        elif record.op == "commit" and (not with_cumulative or (record.cumulative and pending.cumulative is not None)):
            ended.add(record.txn)
            if unacknowledged(cfg, after.cursor, pending.commit_messages(cfg, before.cursor.first_unacked)):
                return False
    return not ended & in_memory(after).keys()


@always(pending_acks, on=("written",))
def commit_of_every_batch_index_deletes_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A commit of acks that together are for all messages of a batch deletes the entry.

    Log entries with a record of ack type Cumulative are not checked, nor is any log entry while a cumulative ack is
    pending.
    """
    appended = appended_requests(before, event)
    if before.cumulative_ack is not None or any(request.record.cumulative for request in appended):
        return True
    for applied in applied_records(cfg, before, event, after):
        # a transaction's acks of an entry are merged; an ack set of None or 0 leaves no batch index
        whole = [ack.entry for ack in pending_of(applied).individual.values() if not ack.ack_set]
        is_commit = applied.request.record.op == "commit"
        if is_commit and any(acknowledged(cfg, after.cursor, n) != all_messages(cfg, n) for n in whole):
            return False
    return True


@always(pending_acks, on=("commit",))
def commit_succeeds_only_after_record_is_durable(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A commit of a transaction with pending acks succeeds only after its record is durable."""
    return is_error(event) or event.outcome.result == "queued" or event.arguments["txn"] not in in_memory(before)


@always(pending_acks)
def handle_is_not_open_after_failed_append(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a failed append, the handle is neither ready nor initializing: it must be opened again."""
    return event.name != "write_fails" or is_error(event) or after.status not in ("ready", "initializing")


@always(pending_acks, on=("cursor_refuses",))
def rejected_commit_does_not_succeed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A commit does not succeed if the cursor rejects its acks, unless all their messages are acknowledged already."""
    for applied in applied_records(cfg, before, event, after):
        messages = pending_of(applied).commit_messages(cfg, before.cursor.first_unacked)
        if applied.request.record.op == "commit" and unacknowledged(cfg, after.cursor, messages):
            return False
    return True


@always(pending_acks)
def acknowledgement_is_permanent(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Only a crash undoes an acknowledgement in the cursor's memory; nothing undoes a persisted one."""
    for old, new in ((before.cursor, after.cursor), (before.durable_cursor, after.durable_cursor)):
        if old is new or (event.name == "crash" and old is before.cursor):
            continue
        # the entries after the mark-delete position that may have acknowledged messages
        deleted = [entry for entry, bit in enumerate(reversed(f"{old.deleted:b}")) if bit == "1"]
        entries = [n for n in (*deleted, *[p.entry for p in old.partial]) if n >= old.first_unacked]
        lost = any(acknowledged(cfg, old, n) & ~acknowledged(cfg, new, n) for n in entries)
        if new.first_unacked < old.first_unacked or lost:
            return False
    return True


# ---- aborts -------------------------------------------------------------------------------------------


@always(pending_acks, on=APPENDS)
def aborted_acks_are_redelivered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An abort redelivers exactly the messages of its individual acks that are neither acknowledged nor still pending.

    `aborted_cumulative_ack_is_not_redelivered` checks transactions with a cumulative ack.
    """
    ended = acks_of_abort_with_wrong_redelivery(cfg, before, event, after)
    return ended is None or ended.cumulative is not None


@always(pending_acks, on=APPENDS)
def aborted_cumulative_ack_is_not_redelivered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An abort does not redeliver the messages of the transaction's cumulative ack.

    The abort redelivers exactly the messages that the transaction acked individually and that are neither acknowledged
    nor pending in another transaction. The cumulatively acked messages are redelivered when a consumer asks for
    redelivery, and then in order (#14371).
    """
    ended = acks_of_abort_with_wrong_redelivery(cfg, before, event, after)
    return ended is None or ended.cumulative is None


def acks_of_abort_with_wrong_redelivery(cfg: Config, before: State, event: Event, after: State) -> Pending | None:
    """Returns the acks ended by the first abort that redelivers the wrong messages; None if all redeliveries are right.

    The redeliveries of a step are in the order of the aborts of its log entry. If redeliveries are left over, the last
    abort is taken to be wrong.
    """
    if all(request.record.op != "abort" for request in appended_requests(before, event)):
        return None
    found, ended = list(event.outcome.redelivered), None
    for applied in applied_records(cfg, before, event, after):
        if applied.request.record.op != "abort":
            continue
        expected = [Redelivery(*each) for each in sorted(messages_to_redeliver(cfg, before, applied).items())]
        ended = pending_of(applied)
        if found[: len(expected)] != expected:
            return ended
        del found[: len(expected)]
    return ended if found else None


@always(pending_acks, on=APPENDS)
def pending_or_acknowledged_message_is_not_redelivered(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A redelivered message is neither acknowledged nor pending in another transaction.

    A redelivered message is compared with the messages that are acknowledged or pending before the log entry is
    applied. Transactions with a commit or abort in the log entry are left out. If the handle is no longer ready
    afterwards, nothing is checked.
    """
    if is_error(event) or not event.outcome.redelivered or after.status != "ready":
        return True
    ended = {request.record.txn for request in before.in_flight[0] if request.record.op != "ack"}
    others = [
        each.commit_messages(cfg, before.cursor.first_unacked)
        for txn, each in in_memory(before).items()
        if txn not in ended
    ]
    return not any(
        messages & (acknowledged(cfg, before.cursor, entry) | other.get(entry, 0))
        for entry, messages in event.outcome.redelivered
        for other in (*others, {})  # {}: acknowledged messages are compared even if nothing else is pending
    )


@always(pending_acks, on=APPENDS)
def transactions_up_to_low_watermark_are_aborted(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A commit or abort makes the handle abort all transactions with pending acks up to the low watermark.

    After the append, an abort of each of them is buffered or in flight. A transaction whose first ack follows the last
    commit or abort of the log entry is not checked.
    """
    if after.status != "ready" or all(r.record.op == "ack" for r in appended_requests(before, event)):
        return True
    watermarks: list[int] = []
    new: set[int] = set()  # transactions without acks at the last commit or abort
    for request, pending, _ in applied_records(cfg, before, event, after):
        if request.record.op != "ack":
            watermarks.append(request.low_watermark)
            new = set()
        elif request.record.txn not in pending:
            new.add(request.record.txn)
    aborting = {request.record.txn for request in open_requests(after) if request.record.op == "abort"}
    highest = max(after.low_watermark, *watermarks) if watermarks else -1  # -1: no commit or abort was applied
    return all(txn > highest or txn in aborting for txn in in_memory(after).keys() - new)


# ---- the log and its index ----------------------------------------------------------------------------


def log_with_in_flight(s: State) -> tuple[LogEntry, ...]:
    """Returns the log followed by all entries in flight.

    Properties need both, because an entry can become durable and be deleted in one step.
    """
    return s.log + tuple([tuple([request.record for request in requests]) for requests in s.in_flight])


@always(pending_acks)
def deleted_records_are_durably_acknowledged(cfg: Config, before: State, event: Event, after: State) -> bool:
    """An ack record is deleted only if its transaction was aborted, or if its acks are durable.

    Durable means that all entries of the acks are at or before the subscription's persisted mark-delete position.
    """
    is_append = event.name in APPENDS and not is_error(event)
    old = log_with_in_flight(before)[: len(before.log) + 1] if is_append else before.log
    if after.log[: len(old)] == old:
        return True
    deleted = Counter(record for entry in old for record in entry)
    deleted -= Counter(record for entry in after.log for record in entry)
    return all(
        ack.entry < before.durable_cursor.first_unacked or is_aborted(old, record)
        for record in deleted
        for ack in record.acks
    )


def is_aborted(log: tuple[LogEntry, ...], record: LogRecord) -> bool:
    """Returns whether the transaction of a record was aborted: its first commit or abort from the record on decides."""
    records = [each for entry in log for each in entry]
    ends = [each.op for each in records[records.index(record) :] if each.txn == record.txn and each.op != "ack"]
    return ends[:1] == ["abort"]


@always(pending_acks)
def log_is_trimmed_by_whole_entries_from_front(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The log grows at its end and is trimmed at its front, by whole entries; no record changes."""
    if before.log is after.log:
        return True
    whole = log_with_in_flight(before)
    new = len(before.in_flight) if event.name == "crash" else event.name in (*APPENDS, "write_fails")
    # at most `new` entries are added, then the log is trimmed. The lengths that the log can have before it is trimmed:
    lengths = range(max(len(before.log), len(after.log)), len(before.log) + new + 1)
    return any(whole[length - len(after.log) : length] == after.log for length in lengths)


@always(pending_acks)
def log_index_keys_and_values_ascend(cfg: Config, s: State) -> bool:
    """In the log's index, the keys (acked positions) ascend, and so do the values (positions in the log).

    Every `log_position` is that of an entry of the log.
    """
    keys = s.log_index.keys
    ascending = all(a.ack_position < b.ack_position and a.log_position < b.log_position for a, b in pairwise(keys))
    return ascending and (not keys or (keys[-1].log_position < len(s.log) and keys[0].log_position >= 0))


@always(pending_acks)
def log_index_is_sparse(cfg: Config, s: State) -> bool:
    """Between two keys of the log's index is a minimum of records, which grows with the number of earlier keys.

    Between the log positions of the n-th key and the next key (n = 1, 2, ...), the log has at least
    `min(min_lag * n ** lag_exponent, max_lag)` records, the next key's entry included. If `max_lag` is None, there is
    no maximum.
    """
    keys = s.log_index.keys
    for count, (one, other) in enumerate(pairwise(keys), 1):
        least = cfg.min_lag * count**cfg.lag_exponent
        least = least if cfg.max_lag is None else min(least, cfg.max_lag)
        if sum(len(entry) for entry in s.log[one.log_position + 1 : other.log_position + 1]) < least:
            return False
    return True


@always(pending_acks)
def log_index_key_covers_all_earlier_entries(cfg: Config, s: State) -> bool:
    """No record up to the `log_position` of an index key acks an entry after the key's `ack_position`."""
    acked = [max([ack.entry for record in entry for ack in record.acks], default=-1) for entry in s.log]
    return all(max(acked[: key.log_position + 1]) <= key.ack_position for key in s.log_index.keys)


def trims_by_index(cfg: Config) -> bool:
    """Returns whether the log is trimmed by its index."""
    return cfg.log_deletion == "acked_prefix"


@always(pending_acks, given=trims_by_index)
def current_lag_counts_records_after_last_key(cfg: Config, s: State) -> bool:
    """`current_lag` is the number of log records after the last key of the log's index.

    If the index has no key, all records of the log count. During a replay, only replayed records count.
    """
    if s.status not in ("ready", "initializing"):
        return True
    keys = s.log_index.keys
    known = s.log if s.status == "ready" else s.log[: s.replayed]
    first = keys[-1].log_position + 1 if keys else 0
    return s.log_index.current_lag == sum(len(entry) for entry in known[first:])


@always(pending_acks, given=trims_by_index)
def max_index_lag_follows_number_of_keys(cfg: Config, s: State) -> bool:
    """`max_index_lag`, the distance to the next index key, is `min(min_lag * keys ** lag_exponent, max_lag)`.

    `max_index_lag` is the number of records that must follow the last key before a key is added. While the index has no
    key, `max_index_lag` is `min_lag`.
    """
    keys = len(s.log_index.keys)
    if keys == 0:
        return s.log_index.max_index_lag == cfg.min_lag
    records = cfg.min_lag * keys**cfg.lag_exponent
    return bool(s.log_index.max_index_lag == (records if cfg.max_lag is None else min(records, cfg.max_lag)))


@always(pending_acks, on=(*APPENDS, "read_entry"), given=trims_by_index)
def key_is_added_when_max_index_lag_is_reached(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A log entry with acks adds a key to the index if and only if `max_index_lag` records or more follow the last key.

    The log entry is appended or replayed; its records count, too. The key's `ack_position` is the highest entry of the
    topic that is acked by a record of this log entry or an earlier one; its `log_position` is that of the log entry.
    The key replaces a key with the same `ack_position`. Keys up to the subscription's persisted mark-delete position
    are removed, and the log is trimmed up to the last removed key.
    """
    if is_error(event) or after.status not in ("ready", "initializing"):
        return True
    is_append = event.name in APPENDS
    entry = log_with_in_flight(before)[len(before.log)] if is_append else before.log[before.read_position]
    position = len(before.log) if is_append else before.read_position
    old, new = before.log_index, after.log_index
    last = max([ack.entry for record in entry for ack in record.acks], default=-1)
    highest, current = max(old.max_ack_position, last), old.current_lag + len(entry)
    is_reached = last >= 0 and current >= old.max_index_lag
    if new.max_ack_position != highest or new.current_lag != (0 if is_reached else current):
        return False
    keys = [key for key in old.keys if not is_reached or key.ack_position != highest]
    keys += [Key(highest, position)] if is_reached else []
    first = after.durable_cursor.first_unacked
    trimmed = max([key.log_position + 1 for key in keys if key.ack_position < first], default=0)
    kept = [(key.ack_position, key.log_position - trimmed) for key in keys if key.ack_position >= first]
    return list(new.keys) == kept and bool(trimmed == (event.outcome.trimmed if is_append else event.outcome))


@always(pending_acks, on=("written", "read_entry"))
def deletable_prefix_is_trimmed_on_append_and_replay(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a log entry is appended or replayed, every index key is after the persisted mark-delete position.

    `key_is_added_when_max_index_lag_is_reached` also checks an append with a commit that the cursor rejects.
    """
    is_open = not is_error(event) and after.status in ("ready", "initializing")
    return not is_open or all(key.ack_position >= after.durable_cursor.first_unacked for key in after.log_index.keys)


# ---- replay -------------------------------------------------------------------------------------------


@always(pending_acks, on=("read_fails",))
def stopped_replay_fails(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay whose reads stop early does not make the handle ready."""
    return is_error(event) or after.status != "ready"


@always(pending_acks, on=("read_fails",))
def failed_reads_are_bounded(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay fails at a read that is not retried, or at the configured number of failed reads in a row.

    Any other failed read is counted, and changes nothing else. `stopped_replay_fails` checks a handle that becomes
    ready.
    """
    if is_error(event) or after.status == "ready":
        return True
    is_last = event.arguments["stops"] or before.failed_reads + 1 >= cfg.max_failed_reads
    if is_last or after.status == "error":
        return is_last and after.status == "error"
    return after == before._replace(failed_reads=before.failed_reads + 1)


@always(pending_acks, on=("read_entry",))
def replay_step_reads_an_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """As long as a replay is not complete, there is an entry to read."""
    return not isinstance(event.outcome, Failed)


@always(pending_acks, on=("read_entry",))
def replayed_commit_or_abort_applies_to_its_transaction_only(
    cfg: Config, before: State, event: Event, after: State
) -> bool:
    """A replayed commit or abort does not change the pending acks of other transactions.

    Transactions that themselves have a record in the log entry are not checked.
    """
    if is_error(event):
        return True
    txns = {record.txn for record in before.log[before.read_position]}
    old, new = in_memory(before), in_memory(after)
    return all(new.get(txn) == pending for txn, pending in old.items() if txn not in txns)


@always(pending_acks, on=("read_entry",))
def replay_drops_only_acknowledged_positions(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A replay drops a position of an individual ack if and only if the persisted cursor has acknowledged its messages.

    These are the messages that the ack acks at this position. A log entry with several records is not checked. Nor is
    an ack if one of its entries already has a pending individual ack, or is at or before the pending cumulative ack.
    """
    records = () if is_error(event) else before.log[before.read_position]
    if len(records) != 1 or records[0].op != "ack" or records[0].cumulative:
        return True
    record, cumulative = records[0], before.cumulative_ack
    pending = {ack.entry for each in before.individual_acks for ack in each.acks}
    if pending & {ack.entry for ack in record.acks}:
        return True
    if cumulative is not None and any(ack.entry <= cumulative.ack.entry for ack in record.acks):
        return True
    durable = before.durable_cursor
    left = {ack.entry for ack in record.acks if acked_by(cfg, ack) & ~acknowledged(cfg, durable, ack.entry)}
    return left == {ack.entry for each in after.individual_acks for ack in each.acks} - pending


@always(pending_acks, on=("read_entry",))
def replayed_cumulative_ack_keeps_its_ack_set(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A cumulative ack that a replay makes pending has the position and the ack set of a record of its transaction."""
    if is_error(event) or after.cumulative_ack is None or after.cumulative_ack == before.cumulative_ack:
        return True
    txn, ack = after.cumulative_ack
    records = [record for entry in before.log for record in entry if record.op == "ack" and record.cumulative]
    return any(record.txn == txn and record.acks == (ack,) for record in records)


@eventually(pending_acks, fair=("read_entry", "end_replay"))
def replay_ends(cfg: Config, s: State) -> bool:
    """Every replay whose reads succeed ends."""
    return s.status != "initializing"


@eventually(pending_acks, fair=("read_fails",))
def replay_with_failing_reads_ends(cfg: Config, s: State) -> bool:
    """If every read fails, every replay that has entries to read ends."""
    return s.status != "initializing" or s.replayed == len(s.log)


@eventually(pending_acks, fair=("flush", "written", "read_entry", "end_replay"))
def requests_complete_eventually(cfg: Config, s: State) -> bool:
    """Every request completes if buffers are flushed, appends succeed and replays continue."""
    return not open_numbers(s)
