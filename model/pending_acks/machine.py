"""Pending-ack handle of one subscription: acknowledgements made inside transactions (PIP-160, PIP-153).

An ack inside a transaction is pending until the transaction coordinator commits or aborts the transaction. The handle
keeps the pending acks of all transactions of a subscription in memory. It also logs every ack, commit and abort, and
replays the log when it is opened. A commit passes the pending acks to the subscription's cursor; after an abort,
messages are redelivered. An ack of a message that another transaction has acked is a conflict, and is rejected.

Models `PendingAckHandleImpl` (the handle), `MLPendingAckStore` (its log) and `LogIndexLagBackoff` (the distance between
the keys of the log's index). In every profile, the subscription's cursor follows the reference rules of
`model/batch_acks`, with one exception: the rule `empty_ack_set_acks_entry` of this component. One step is one request,
one flush, one log entry that is appended or replayed, one consumer's ack without a transaction, one write of the
cursor, one opening or close, the end of a replay, or one failure.

A message is *acknowledged* if the cursor has its ack. A message becomes *pending* in a transaction when the
transaction's ack of the message is applied: when the ack's record is durable, or when a replay reads it. The message
stays pending until a commit or abort of the transaction is applied, or the handle is no longer open.

    individual ack   a list of positions with optional ack sets; either all become pending, or none (`conflicts.py`)
    cumulative ack   up to a position, optionally inside a batch; at most one transaction has a cumulative ack, which
                     only advances
    commit           applies the transaction's pending acks to the cursor, then removes them
    abort            removes the transaction's pending acks; redelivers the messages that the transaction acked
                     individually and that are now neither acknowledged nor pending
    low watermark    a transaction id that every commit and abort carries: the coordinator has ended all transactions up
                     to this id. The handle aborts those that still have pending acks
    log              every accepted request appends one record. Records are buffered; a flush appends them as one log
                     entry. When the entry is durable, its records are applied and the futures of the requests complete,
                     in order
    trimming         a prefix of the log is mark-deleted if all its acks are at or before the cursor's persisted
                     mark-delete position. A sparse index lists the prefixes that come into question (`log_index.py`)
    status           none (not opened yet), initializing (a replay runs, requests are queued), ready, error, or closed

A message is pending in at most one transaction, whatever the ack types (apache/pulsar#4265). An ack set is a mask, in
which a clear bit is an acked message. In requests, an empty ack set acks the whole entry. Any entry can be acked.

Main differences from shipped brokers (each a rule of `Config`, with its reason; see `fuzz/defects/pending_acks.toml`):
  * an ack also conflicts with pending acks of the other type;
  * conflicts are detected before the append;
  * after a failed append, whose outcome is unknown, or a commit that the cursor rejects, the status is error until the
    handle is reopened;
  * a commit or abort covers both ack types: all acks that its transaction has pending when the record becomes durable;
  * after every commit or abort, the handle aborts every transaction that has pending acks and an id at or below the low
    watermark;
  * a replay reads the whole log or fails, and drops only acks that the persisted cursor has.
As in the shipped broker, a commit or abort deletes no records. In PIP-160's text (profile `pip-160`), a commit or abort
deletes the records of its transaction.

Kinds of unsuccessful outcomes: `conflict` is `TransactionConflictException`, `not_ready` is
`ServiceUnitNotReadyException`. The other kinds are not errors of Pulsar: `illegal_argument` is an argument that the
model excludes, such as a list with the same entry twice; `not_enabled` is a step that cannot happen in the state;
`no_progress` is a replay that waits forever.

Not modelled:
  * the log: when the buffer is flushed (see `model/txn_writer`), ledgers, the name of the log's topic (#25727), the
    delay between failed reads, and the delay until the log cursor's mark-delete position is persisted;
  * several coordinators, and `pendingAckHandleCompletableFuture`;
  * consumers and dispatchers. After an abort, the dispatcher of a Shared subscription redelivers whole entries, without
    their acknowledged and pending messages; a dispatcher with a single active consumer rewinds to the mark-delete
    position. Messages of an aborted cumulative ack are redelivered only if a consumer asks for them (#14371);
  * that a shipped broker appends no record of an abort if no cumulative ack is pending and no individual ack ever was;
  * `individualAckPositions`: a shipped handle keeps committed batch indexes, and those acked without a transaction,
    until the entry is deleted or the handle is reopened. Until then, it rejects acks of the whole entry and, if the
    cursor stores no ack sets, further acks of these batch indexes.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from model.machine import Failed, Machine, Step, refused
from model.pending_acks.conflicts import (
    buffered_or_in_flight,
    conflict,
    first_position_after,
    has_batch_index_of_pending_entry,
    pending_cumulative_ack,
    redeliveries,
    with_pending,
)
from model.pending_acks.log_index import with_entry, without_acked
from model.pending_acks.replay import (
    EndedAcks,
    ended_acks,
    with_committed_acks,
    with_replayed,
    without_ended_acks,
    without_ended_records,
)
from model.pending_acks.state import (
    INTERNAL,
    Config,
    CumulativeAck,
    LogEntry,
    LogRecord,
    PositionAck,
    Redelivery,
    Request,
    State,
    acked_messages,
    all_messages,
    deleted_entries,
    last_acked_entry,
    log_index_backoff,
    messages_of,
    start,
    with_individual_acks,
    without_memory,
    without_prefix,
)
from model.values import AtLeast

pending_acks = Machine(
    "pending_acks",
    Config,
    start,
    source="PIP-160, PIP-153",
    java={
        "PendingAckHandleImpl": (
            "individualAcknowledgeMessage",
            "cumulativeAcknowledgeMessage",
            "commitTxn",
            "abortTxn",
            "initPendingAckStore",
            "completeHandleFuture",
            "closeAsync",
        ),
        "MLPendingAckStore": ("appendCommon",),
        "PendingAckReplay": (),
        "FillEntryQueueCallback": (),
        "PersistentSubscription": ("acknowledgeMessage",),
        "LogIndexLagBackoff": (),
        "TxnLogBufferedWriter": (),
        "ManagedCursorImpl": ("persistPositionToLedger",),
    },
)

Txn = Annotated[int, AtLeast(1)]
Number = Annotated[int, AtLeast(0)]


class AckArgument(NamedTuple):
    """One position of an individual ack."""

    entry: Number
    ack_set: Number | None  # None or 0: the ack is for the whole entry


class Reply(NamedTuple):
    """The result of a request. `queued`: the request's future completes in a later step."""

    request: int
    result: Literal["queued", "done", "conflict", "failed"]


class Effects(NamedTuple):
    """What a step does for callers, consumers and the log."""

    replies: tuple[Reply, ...]  # of the requests whose futures complete
    redelivered: tuple[Redelivery, ...]
    trimmed: int  # number of log entries that are mark-deleted


NOTHING = Effects((), (), 0)

# ---- requests -----------------------------------------------------------------------------------------


def with_append(cfg: Config, s: State, request: Request) -> State:
    """Returns the state with the request's record in the buffer, or in flight as a log entry of its own."""
    if cfg.batched_writes:
        return s._replace(buffer=(*s.buffer, request))
    return s._replace(in_flight=(*s.in_flight, (request,)))


def taken(cfg: Config, s: State, request: Request) -> tuple[State, Reply, str]:
    """Takes a request in a ready handle: appends its record, or rejects an ack that conflicts.

    Returns the state, the reply, and why the request conflicts, or ''. Models
    `internal{Individual,Cumulative}AcknowledgeMessage`, `internalCommitTxn` and `internalAbortTxn`.
    """
    record = request.record
    if record.op == "ack":
        why = conflict(cfg, s, record) if cfg.conflict_check == "before_append" else ""
        if why:
            return s, Reply(request.number, "conflict"), why
        return with_append(cfg, s, request), Reply(request.number, "queued"), ""
    # A commit or abort record has an ack type, too: Cumulative if the transaction has the latest cumulative ack. In the
    # reference, the type has no effect.
    latest = pending_cumulative_ack(cfg, s)
    is_cumulative = latest is not None and latest.txn == record.txn
    # In a shipped broker, if another transaction has a cumulative ack, a commit completes without a record
    # (`internalCommitTxn`), and an abort is logged with ack type Cumulative (`internalAbortTxn`).
    if latest is not None and not is_cumulative and not cfg.commit_and_abort_cover_both_types:
        if record.op == "commit":
            return s, Reply(request.number, "done"), ""
        is_cumulative = True
    request = request._replace(record=record._replace(cumulative=is_cumulative))
    return with_append(cfg, s, request), Reply(request.number, "queued"), ""


def received(cfg: Config, s: State, record: LogRecord, low_watermark: int) -> Step[State, Reply]:
    """Returns the step in which a request arrives.

    A ready handle takes the request. An initializing handle queues the request. In status none, the handle queues the
    request and starts the replay. In status error or closed, the request fails with `ServiceUnitNotReadyException`.
    """
    if s.status in ("error", "closed"):
        return refused(s, "not_ready", "the status of the handle is error or closed; open it first")
    request = Request(s.next_request, record, low_watermark)
    if s.status == "ready":
        after, reply, why = taken(cfg, s, request)
        return (s, Failed("conflict", why)) if why else (after._replace(next_request=request.number + 1), reply)
    if s.status == "none":
        s = initializing(cfg, s)
    queued = s._replace(accept_queue=(*s.accept_queue, request), next_request=request.number + 1)
    return queued, Reply(request.number, "queued")


def ack_set_error(cfg: Config, entry: int, ack_set: int | None) -> str:
    """Returns why an ack set is invalid, or ''."""
    if ack_set is not None and ack_set >= all_messages(cfg, entry):
        return f"the ack set of entry {entry} acks nothing or has a bit after the batch"
    return ""


@pending_acks.action
def ack_individual(cfg: Config, s: State, txn: Txn, acks: tuple[AckArgument, ...]) -> Step[State, Reply]:
    """`PendingAckHandleImpl.individualAcknowledgeMessage`: a transaction acks positions individually.

    The request fails with `TransactionConflictException` if one of its messages is pending individually in any
    transaction, including its own, or pending cumulatively in another transaction. The request also fails if an ack set
    acks a message that is acknowledged, or if an entry is completely acknowledged. An ack of a whole entry does not
    conflict with acknowledgements of some of its messages.
    """
    if not acks:
        return refused(s, "illegal_argument", "acks is empty")
    positions = tuple([PositionAck(entry, ack_set or None) for entry, ack_set in acks])
    invalid = next((why for why in [ack_set_error(cfg, *ack) for ack in positions] if why), "")
    if len({ack.entry for ack in positions}) < len(positions):
        invalid = invalid or "acks names an entry twice"
    if invalid:
        return refused(s, "illegal_argument", invalid)
    return received(cfg, s, LogRecord("ack", False, txn, positions), 0)


@pending_acks.action
def ack_cumulative(cfg: Config, s: State, txn: Txn, entry: Number, ack_set: Number | None) -> Step[State, Reply]:
    """`PendingAckHandleImpl.cumulativeAcknowledgeMessage`: a transaction acks everything up to a position.

    The request fails with `TransactionConflictException` if the entry is at or before the mark-delete position, if
    another transaction has a cumulative ack, if the transaction itself already has a cumulative ack at or after the
    position, or if another transaction has a message up to the position pending individually. The set bits of
    `ack_set`, the unacked messages, must be the tail of the batch.
    """
    ack, everything = PositionAck(entry, ack_set or None), all_messages(cfg, entry)
    invalid = ack_set_error(cfg, entry, ack_set)
    # `(ack_set & -ack_set) - 1`: all bits below the lowest set bit. A tail and these bits together are the whole batch
    if not invalid and ack.ack_set is not None and ack.ack_set | (ack.ack_set & -ack.ack_set) - 1 != everything:
        invalid = f"ack_set is {ack_set}, which does not leave the tail of the batch"
    if invalid:
        return refused(s, "illegal_argument", invalid)
    return received(cfg, s, LogRecord("ack", True, txn, (ack,)), 0)


@pending_acks.action
def commit(cfg: Config, s: State, txn: Txn, low_watermark: Number) -> Step[State, Reply]:
    """`PendingAckHandleImpl.commitTxn`: the coordinator commits a transaction, and reports the low watermark."""
    return received(cfg, s, LogRecord("commit", False, txn, ()), low_watermark)


@pending_acks.action
def abort(cfg: Config, s: State, txn: Txn, low_watermark: Number) -> Step[State, Reply]:
    """`PendingAckHandleImpl.abortTxn`: the coordinator aborts a transaction, and reports the low watermark."""
    return received(cfg, s, LogRecord("abort", False, txn, ()), low_watermark)


# ---- the subscription ---------------------------------------------------------------------------------


@pending_acks.action
def acknowledge(cfg: Config, s: State, entry: Number, ack_set: Number | None) -> Step[State, None]:
    """`PersistentSubscription.acknowledgeMessage`: a consumer acks an entry or batch indexes without a transaction.

    Pending acks do not conflict with this ack. Cumulative acks without a transaction are not modelled.
    """
    invalid = ack_set_error(cfg, entry, ack_set)
    if invalid:
        return refused(s, "illegal_argument", invalid)
    acks = with_individual_acks(cfg, s.cursor, (PositionAck(entry, ack_set or None),))
    return (s if acks == s.cursor else s._replace(cursor=acks)), None


@pending_acks.action
def persist(cfg: Config, s: State) -> Step[State, bool]:
    """`ManagedCursorImpl.persistPositionToLedger`: persists the cursor; returns whether the stored cursor changed."""
    return (s, False) if s.durable_cursor == s.cursor else (s._replace(durable_cursor=s.cursor), True)


# ---- the log ------------------------------------------------------------------------------------------


@pending_acks.action
def flush(cfg: Config, s: State) -> Step[State, int]:
    """`TxnLogBufferedWriter`: appends the buffered records as one log entry, now in flight; returns their number."""
    if not s.buffer:
        return refused(s, "not_enabled", "the buffer is empty")
    return s._replace(buffer=(), in_flight=(*s.in_flight, s.buffer)), len(s.buffer)


def applied(cfg: Config, s: State, request: Request, cursor_rejects: bool) -> tuple[State, str, tuple[Redelivery, ...]]:
    """Returns the state after a durable record is applied, the result of the request, and the redelivered messages.

    `cursor_rejects`: the cursor rejects the acks that a commit applies. The result is '' if the request's future never
    completes.
    """
    record = request.record
    if record.op == "ack":
        after, result = with_applied_ack(cfg, s, record)
        return after, result, ()
    ended = ended_acks(cfg, s, record, replayed=False)
    after = without_ended_acks(s, record.txn, ended)
    redelivered: tuple[Redelivery, ...] = ()
    if record.op == "abort":
        redelivered = redeliveries(cfg, after, ended.individual)
    elif not cursor_rejects or ended == EndedAcks((), None):
        after = with_committed_acks(cfg, after, ended)
    elif cfg.rejected_commit != "drop":  # the commit fails; with "drop", the acks are removed and the commit completes
        return s._replace(status="error" if cfg.rejected_commit == "fail_handle" else "ready"), "failed", ()
    return with_low_watermark(cfg, after, request.low_watermark, ended.individual != ()), "done", redelivered


def with_applied_ack(cfg: Config, s: State, record: LogRecord) -> tuple[State, str]:
    """Returns the state after a durable ack record is applied, and the result of the request.

    Versions that append before they check detect conflicts here. The result is '' if the request's future never
    completes.
    """
    if cfg.conflict_check == "after_append":
        if conflict(cfg, s, record):
            return s, "conflict"
        if not record.cumulative and has_batch_index_of_pending_entry(s, record):
            return s, ""
    return with_pending_ack(s, record), "done"


def with_pending_ack(s: State, record: LogRecord) -> State:
    """Returns the state in which an ack is pending (`handleIndividualAck`, `handleCumulativeAck`)."""
    if record.cumulative:
        return s._replace(cumulative_ack=CumulativeAck(record.txn, record.acks[0]))
    return s._replace(individual_acks=with_pending(s.individual_acks, record.txn, record.acks))


def with_low_watermark(cfg: Config, s: State, low_watermark: int, had_individual_acks: bool) -> State:
    """`handleLowWaterMark`: raises the low watermark and starts the aborts of `stale_txns` (#15530, #15592).

    `had_individual_acks`: the commit or abort that carries the low watermark has ended individual acks. Otherwise, with
    `low_watermark_aborts` "from_first", nothing happens.
    """
    if cfg.low_watermark_aborts == "from_first" and not had_individual_acks:
        return s
    if low_watermark > s.low_watermark:
        s = s._replace(low_watermark=low_watermark)
    for txn in stale_txns(cfg, s):
        s, *_ = taken(cfg, s, Request(INTERNAL, LogRecord("abort", False, txn, ()), s.low_watermark))
    return s


def stale_txns(cfg: Config, s: State) -> list[int]:
    """Returns the transactions that are now to be aborted: they have pending acks, and an id up to the low watermark.

    With `low_watermark_aborts` "all", transactions whose abort is buffered or in flight are left out. With
    "from_first", only the first transaction of `individual_acks` is considered, and none while an internal abort is
    buffered or in flight.
    """
    txns = [each.txn for each in s.individual_acks]
    aborts = [request for request in buffered_or_in_flight(s) if request.record.op == "abort"]
    if cfg.low_watermark_aborts == "from_first":
        is_aborting = any(request.number == INTERNAL for request in aborts)
        return [txn for txn in txns[:1] if txn <= s.low_watermark and not is_aborting]
    if s.cumulative_ack is not None and s.cumulative_ack.txn not in txns:
        txns.append(s.cumulative_ack.txn)
    aborted = [request.record.txn for request in aborts]
    return [txn for txn in txns if txn <= s.low_watermark and txn not in aborted]


def stopped(cfg: Config, s: State, status: Literal["error", "closed"]) -> tuple[State, tuple[Reply, ...]]:
    """Stops the handle: returns the state, and the replies to the queued and buffered requests, which fail."""
    failed = tuple(
        [Reply(request.number, "failed") for request in (*s.accept_queue, *s.buffer) if request.number != INTERNAL]
    )
    return without_memory(cfg, s)._replace(status=status, accept_queue=(), buffer=()), failed


def with_indexed_entry(cfg: Config, s: State, entry: LogEntry, log_position: int) -> tuple[State, int]:
    """Updates the index for an appended or replayed log entry, then trims the log.

    Returns the state, and the number of log entries that are mark-deleted. With `log_deletion` "ended_transactions",
    there is no index, and a ready handle deletes the records of ended transactions.
    """
    if cfg.log_deletion == "ended_transactions":
        return without_ended(s) if s.status == "ready" else (s, 0)
    backoff = log_index_backoff(cfg)
    index = with_entry(backoff, s.log_index, len(entry), last_acked_entry(entry), log_position)
    index, count = without_acked(backoff, index, s.durable_cursor.first_unacked)
    return without_prefix(s, count)._replace(log_index=index), count


def without_ended(s: State) -> tuple[State, int]:
    """Returns the state without the records of ended transactions, and the number of deleted log entries (PIP-160)."""
    log = without_ended_records(s.log)
    return s._replace(log=log), len(s.log) - len(log)


def appended(s: State, is_durable: bool) -> tuple[State, tuple[Request, ...]]:
    """Ends the append of the first entry in flight: returns the state, and the requests of the entry.

    If `is_durable`, the entry is added to the log.
    """
    requests, *rest = s.in_flight
    log = (*s.log, tuple([request.record for request in requests])) if is_durable else s.log
    return s._replace(in_flight=tuple(rest), log=log), requests


def completed(cfg: Config, s: State, cursor_rejects: bool) -> Step[State, Effects]:
    """Returns the step in which the first entry in flight becomes durable, and its records are applied in order.

    `cursor_rejects`: the cursor rejects all acks that the records commit.
    """
    if not s.in_flight:
        return refused(s, "not_enabled", "no entry is in flight")
    s, requests = appended(s, True)
    replies: list[Reply] = []
    redelivered: tuple[Redelivery, ...] = ()
    was_ready = s.status == "ready"
    for request in requests:
        # the request fails if the handle was not ready, or if an earlier commit of the entry has stopped the handle
        result = "failed"
        if s.status == "ready":
            s, result, more = applied(cfg, s, request, cursor_rejects)
            redelivered += more
        replies += reply_to(request, result)
    if s.status == "ready":
        s, count = with_indexed_entry(cfg, s, s.log[-1], len(s.log) - 1)
        return s, Effects(tuple(replies), redelivered, count)
    failed: tuple[Reply, ...] = ()
    if was_ready:
        s, failed = stopped(cfg, s, "error")
    return s, Effects((*replies, *failed), redelivered, 0)


def reply_to(request: Request, result: str) -> list[Reply]:
    """Returns the reply to a request; none if it is internal, or if its future never completes (result '')."""
    return [Reply(request.number, result)] if request.number != INTERNAL and result else []  # type: ignore[arg-type]


@pending_acks.action
def written(cfg: Config, s: State) -> Step[State, Effects]:
    """`MLPendingAckStore.appendCommon`: the first entry in flight is durable; its records are applied in order.

    The futures of the requests complete in the same order. If the handle is not ready, the futures fail, and the next
    replay applies the records.
    """
    return completed(cfg, s, False)


@pending_acks.fault
def cursor_refuses(cfg: Config, s: State) -> Step[State, Effects]:
    """`MLPendingAckStore.appendCommon` succeeds, but the cursor rejects the acks that the records commit."""
    return completed(cfg, s, True)


@pending_acks.fault
def write_fails(cfg: Config, s: State, durable: bool) -> Step[State, Effects]:
    """`MLPendingAckStore.appendCommon` fails for the first entry in flight: the futures of its requests fail.

    `durable`: the entry is in the log all the same. The status of a ready handle becomes error, and the buffered
    requests also fail. With `failed_append` "apply", the handle stays ready, and the failed acks become pending
    (`with_failed_ack`).
    """
    if not s.in_flight:
        return refused(s, "not_enabled", "no entry is in flight")
    s, requests = appended(s, durable)
    if cfg.failed_append == "apply" and s.status == "ready":
        replies: list[Reply] = []
        for request in requests:
            s, result = with_failed_ack(s, request.record)
            replies += reply_to(request, result)
        return s, Effects(tuple(replies), (), 0)
    replies = [reply for request in requests for reply in reply_to(request, "failed")]
    failed: tuple[Reply, ...] = ()
    if s.status == "ready":
        s, failed = stopped(cfg, s, "error")
    return s, Effects((*replies, *failed), (), 0)


def with_failed_ack(s: State, record: LogRecord) -> tuple[State, str]:
    """Returns the state of master 2026-07 after a failed append, and the result of the request.

    A cumulative ack becomes pending if no cumulative ack is pending, or if the pending one is of the same transaction
    and before it. An individual ack becomes pending without a check for conflicts. Exception: if it has a batch-index
    ack of an entry that is pending as a whole, nothing changes, and the request's future never completes (result '').
    A commit or abort changes nothing.
    """
    if record.op != "ack":
        return s, "failed"
    if not record.cumulative:
        return (s, "") if has_batch_index_of_pending_entry(s, record) else (with_pending_ack(s, record), "failed")
    other = s.cumulative_ack
    if other is None or (
        other.txn == record.txn and first_position_after(record.acks[0]) > first_position_after(other.ack)
    ):
        s = with_pending_ack(s, record)
    return s, "failed"


# ---- open, replay, close, crash -----------------------------------------------------------------------


def initializing(cfg: Config, s: State) -> State:
    """Returns the state in which a replay starts."""
    return s._replace(status="initializing", read_position=0 if cfg.replay_rewinds else s.read_position)


@pending_acks.action
def open_store(cfg: Config, s: State) -> Step[State, None]:
    """`initPendingAckStore`: the handle is opened or reopened, and a replay starts. No entry may be in flight."""
    if s.status in ("initializing", "ready"):
        return refused(s, "not_enabled", "the handle is open")
    if s.in_flight:
        return refused(s, "not_enabled", "entries are in flight")
    return initializing(cfg, s), None


def replay_is_complete(s: State) -> bool:
    """Returns whether the replay has processed the whole log."""
    return s.replayed == len(s.log)


@pending_acks.action
def read_entry(cfg: Config, s: State) -> Step[State, int]:
    """`PendingAckReplay`: the replay processes the next log entry; returns the number of log entries mark-deleted.

    Without `replay_rewinds`, the read position may be after the last entry; then the replay waits forever (#16240).
    """
    if s.status != "initializing" or replay_is_complete(s):
        return refused(s, "not_enabled", "there is nothing to read")
    if s.read_position >= len(s.log):
        return s, Failed("no_progress", "the read position is after the last entry of the log")
    entry, position = s.log[s.read_position], s.read_position
    for record in entry:
        s = with_replayed(cfg, s, record)
    s = s._replace(read_position=position + 1, replayed=position + 1, failed_reads=0)
    return with_indexed_entry(cfg, s, entry, position)


def ready(cfg: Config, s: State) -> tuple[State, Effects]:
    """`handleCacheRequest`: returns the step in which the handle becomes ready.

    The handle takes the queued requests in order (#13481). Without `replay_rewinds`, the next replay starts at the read
    position of this replay.
    """
    queue = s.accept_queue
    s = s._replace(status="ready", replayed=0, failed_reads=0, accept_queue=())
    if cfg.replay_rewinds:
        s = s._replace(read_position=0)
    count, replies = 0, []
    if cfg.log_deletion == "ended_transactions":
        s, count = without_ended(s)
    for request in queue:
        s, reply, _ = taken(cfg, s, request)
        if reply.result != "queued":  # the caller got the reply "queued" when the request arrived
            replies.append(reply)
    return s, Effects(tuple(replies), (), count)


@pending_acks.action
def end_replay(cfg: Config, s: State) -> Step[State, Effects]:
    """`completeHandleFuture`: the whole log is replayed; the handle is ready and takes the queued requests."""
    if s.status != "initializing" or not replay_is_complete(s):
        return refused(s, "not_enabled", "no replay is complete")
    return ready(cfg, s)


@pending_acks.fault
def read_fails(cfg: Config, s: State, stops: bool) -> Step[State, Effects]:
    """`FillEntryQueueCallback`: a read of the replay fails. `stops`: it is not retried, and the replay stops early.

    A replay that stops early fails; without `stopped_replay_fails`, the handle becomes ready with the records read so
    far. With `failed_reads_are_bounded`, the replay also fails at the `max_failed_reads`-th failed read in a row. If
    the replay fails, the queued requests fail.
    """
    if s.status != "initializing" or replay_is_complete(s):
        return refused(s, "not_enabled", "there is nothing to read")
    if stops and not cfg.stopped_replay_fails:
        return ready(cfg, s)
    if not stops and not cfg.failed_reads_are_bounded:
        return s, NOTHING
    if not stops and s.failed_reads + 1 < cfg.max_failed_reads:
        return s._replace(failed_reads=s.failed_reads + 1), NOTHING
    s, failed = stopped(cfg, s, "error")
    return s, Effects(failed, (), 0)


@pending_acks.action
def close(cfg: Config, s: State) -> Step[State, Effects]:
    """`PendingAckHandleImpl.closeAsync`: the handle is closed; queued and buffered requests fail.

    Appends in flight continue. When they end, the futures of their requests fail.
    """
    if s.status not in ("initializing", "ready"):
        return refused(s, "not_enabled", "the handle is not open")
    s, failed = stopped(cfg, s, "closed")
    return s, Effects(failed, (), 0)


@pending_acks.fault
def crash(cfg: Config, s: State, survive: Number) -> Step[State, None]:
    """The broker crashes: the persisted cursor is recovered, and the first `survive` entries in flight are durable.

    The log's cursor is not kept: the next replay starts after the log's mark-delete position.
    """
    if survive > len(s.in_flight):
        return refused(s, "not_enabled", f"fewer than {survive} entries are in flight")
    durable = tuple([tuple([request.record for request in entry]) for entry in s.in_flight[:survive]])
    restarted = without_memory(cfg, s)._replace(status="none", accept_queue=(), buffer=(), in_flight=())
    return restarted._replace(cursor=s.durable_cursor, log=s.log + durable, read_position=0), None


# ---- canonical form and observation -------------------------------------------------------------------


@pending_acks.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Renumbers the requests that are not complete from 1, in the order in flight, buffered, queued."""
    numbers = [request.number for request in (*buffered_or_in_flight(s), *s.accept_queue) if request.number != INTERNAL]
    if s.next_request == len(numbers) + 1 and numbers == list(range(1, s.next_request)):
        return s
    new = {INTERNAL: INTERNAL} | {number: i for i, number in enumerate(numbers, 1)}

    def renumbered(requests: tuple[Request, ...]) -> tuple[Request, ...]:
        return tuple([request._replace(number=new[request.number]) for request in requests])

    return s._replace(
        accept_queue=renumbered(s.accept_queue),
        buffer=renumbered(s.buffer),
        in_flight=tuple([renumbered(entry) for entry in s.in_flight]),
        next_request=len(numbers) + 1,
    )


@pending_acks.observation
def observe(cfg: Config, s: State) -> dict[str, object]:
    """Returns the status, the acknowledged and pending messages as masks, the log's size and index, and open requests.

    `acknowledged` has only messages after the mark-delete position. `requests` counts also internal ones.
    """
    acked = {*deleted_entries(s.cursor), *[p.entry for p in s.cursor.partial]}
    entries = sorted([n for n in acked if n >= s.cursor.first_unacked])
    cumulative = s.cumulative_ack
    return {
        "status": s.status,
        "first_unacked": s.cursor.first_unacked,
        "durable_first_unacked": s.durable_cursor.first_unacked,
        "acknowledged": [[n, acked_messages(cfg, s.cursor, n)] for n in entries if acked_messages(cfg, s.cursor, n)],
        "pending": [[t.txn, [[a.entry, messages_of(cfg, a)] for a in t.acks]] for t in s.individual_acks],
        "cumulative": cumulative and [cumulative.txn, cumulative.ack.entry, messages_of(cfg, cumulative.ack)],
        "log_entries": len(s.log),
        "index": [[key.ack_position, key.log_position] for key in s.log_index.keys],
        "requests": len(s.accept_queue) + len(buffered_or_in_flight(s)),
    }


# ---- profiles -----------------------------------------------------------------------------------------

reference = pending_acks.profile("reference", "Pulsar's behaviour with its known defects corrected", Config())

pip_160 = pending_acks.profile(
    "pip-160",
    "PIP-160 as written: the records of a transaction are deleted when it ends",
    Config(log_deletion="ended_transactions"),
)

master = pending_acks.profile(
    "pulsar-2026-07",
    "Apache Pulsar master of 2026-07-23; a reopened handle replays from the read position of the log's cursor",
    Config(
        cross_type_conflicts=False,
        conflict_check="after_append",
        failed_append="apply",
        rejected_commit="keep_pending",
        commit_and_abort_cover_both_types=False,
        batch_index_of_pending_entry_conflicts=False,
        overlap_check="trimmed_words",
        low_watermark_aborts="from_first",
        replay_rewinds=False,
        stopped_replay_fails=False,
        failed_reads_are_bounded=False,
        replay_drops="record",
        replay_keeps_cumulative_ack_set=False,
        replay_checks_cumulative_owner=False,
    ),
)

before_25528 = pending_acks.profile(
    "pulsar-2026-04",
    "pulsar-2026-07 before apache/pulsar#25528: a commit removes the pending acks before the cursor has taken them",
    master.config._replace(rejected_commit="drop"),
)

before_24406 = pending_acks.profile(
    "pulsar-2025-05",
    "pulsar-2026-04 before apache/pulsar#24406: an empty ack set is ignored if the cursor stores no ack sets",
    before_25528.config._replace(empty_ack_set_acks_entry=False),
)

pulsar_4_0 = pending_acks.release("4.0", rules=before_24406.config, about="4.0.0 (October 2024), before #24406")
pulsar_4_1 = pending_acks.release("4.1", "4.2", rules=before_25528.config, about="4.1.0 and 4.2.0, before #25528")
pulsar_5_0 = pending_acks.release(
    "5.0", rules=master.config._replace(replay_rewinds=True), about="5.0.0 (September 2026), with #26369"
)
