"""The pending acks to which a commit or abort applies, and how the records of the log are replayed.

Models `PendingAckHandleImpl.internalCommitTxn`, `internalAbortTxn` and the `handle...Recover` methods that
`MLPendingAckReplyCallBack` calls. In the reference, a replay compares an ack with the persisted cursor, not with the
cursor in memory: an acknowledgement that the cursor has only in memory can still be lost (rule `replay_drops`).
"""

from __future__ import annotations

from typing import NamedTuple

from model.pending_acks.conflicts import (
    acks_of,
    conflict,
    has_batch_index_of_pending_entry,
    pending_conflict,
    with_pending,
    without_txn,
)
from model.pending_acks.state import (
    Config,
    CumulativeAck,
    LogEntry,
    LogRecord,
    PositionAck,
    State,
    acked_messages,
    messages_of,
    with_cumulative_ack,
    with_individual_acks,
)


class EndedAcks(NamedTuple):
    """The pending acks to which a commit or abort applies."""

    individual: tuple[PositionAck, ...]
    cumulative: CumulativeAck | None


def ended_acks(cfg: Config, s: State, record: LogRecord, *, replayed: bool) -> EndedAcks:
    """`internalCommitTxn`, `internalAbortTxn`: returns the acks to which a commit or abort applies.

    In the reference, these are all pending acks of the transaction. In master 2026-07, the ack type of the record
    selects individual or cumulative acks, and a replayed commit or abort of type Cumulative applies to the cumulative
    ack of any transaction (`handleCommit`, `handleAbort`).
    """
    acks, cumulative = acks_of(s, record.txn), s.cumulative_ack
    any_owner = replayed and record.cumulative and not cfg.replay_checks_cumulative_owner
    if cumulative is not None and cumulative.txn != record.txn and not any_owner:
        cumulative = None
    if cfg.commit_and_abort_cover_both_types:
        return EndedAcks(acks, cumulative)
    return EndedAcks((), cumulative) if record.cumulative else EndedAcks(acks, None)


def without_ended_acks(s: State, txn: int, ended: EndedAcks) -> State:
    """Returns the state without the acks to which the commit or abort of a transaction applies."""
    pending = without_txn(s.individual_acks, txn) if ended.individual else s.individual_acks
    return s._replace(
        individual_acks=pending, cumulative_ack=None if ended.cumulative is not None else s.cumulative_ack
    )


def with_committed_acks(cfg: Config, s: State, ended: EndedAcks) -> State:
    """`individualAckCommitCommon`: returns the state in which the subscription's cursor has the committed acks."""
    after = with_individual_acks(cfg, s.cursor, ended.individual)
    if ended.cumulative is not None:
        after = with_cumulative_ack(cfg, after, ended.cumulative.ack)
    return s._replace(cursor=after)


def with_replayed(cfg: Config, s: State, record: LogRecord) -> State:
    """`MLPendingAckReplyCallBack.handleMetadataEntry`: returns the state after one record is replayed."""
    if record.op == "ack":
        return with_replayed_cumulative(cfg, s, record) if record.cumulative else with_replayed_acks(cfg, s, record)
    ended = ended_acks(cfg, s, record, replayed=True)
    s = without_ended_acks(s, record.txn, ended)
    return with_committed_acks(cfg, s, ended) if record.op == "commit" else s


def with_replayed_acks(cfg: Config, s: State, record: LogRecord) -> State:
    """`handleIndividualAckRecover`: returns the state after an individual ack is replayed.

    A record that conflicts with pending acks is dropped: with `conflict_check` "after_append", the log has records of
    rejected acks. A record with a batch-index ack of an entry that is pending as a whole is always dropped. What is
    dropped because of the cursor depends on `replay_drops`.
    """
    if has_batch_index_of_pending_entry(s, record) or pending_conflict(cfg, s, record):
        return s
    acks = record.acks
    if cfg.replay_drops == "record":
        # the record has no conflict with pending acks (see above), so `conflict` finds only those with the cursor
        acks = () if conflict(cfg, s, record) else acks
    else:
        durable = s.durable_cursor
        acks = tuple([ack for ack in acks if messages_of(cfg, ack) & ~acked_messages(cfg, durable, ack.entry)])
    return s._replace(individual_acks=with_pending(s.individual_acks, record.txn, acks))


def with_replayed_cumulative(cfg: Config, s: State, record: LogRecord) -> State:
    """`handleCumulativeAckRecover`: returns the state after a cumulative ack is replayed.

    The record is dropped if its entry is at or before the persisted mark-delete position, or if the ack conflicts with
    pending acks; with `replay_drops` "record", also if it conflicts with the cursor in memory.
    """
    ack = record.acks[0]
    if ack.entry < s.durable_cursor.first_unacked or pending_conflict(cfg, s, record):
        return s
    if cfg.replay_drops == "record" and conflict(cfg, s, record):
        return s
    if not cfg.replay_keeps_cumulative_ack_set:
        ack = ack._replace(ack_set=None)
    return s._replace(cumulative_ack=CumulativeAck(record.txn, ack))


def without_ended_records(log: tuple[LogEntry, ...]) -> tuple[LogEntry, ...]:
    """Returns the log without the records of ended transactions (PIP-160).

    Of each transaction, the last commit or abort is removed, and the transaction's records before it. Log entries
    without remaining records are removed.
    """
    kept: list[LogEntry] = []
    ended: set[int] = set()
    for entry in reversed(log):
        records = []
        for record in reversed(entry):
            if record.op != "ack":
                ended.add(record.txn)
            if record.txn not in ended:
                records.append(record)
        if records:
            kept.append(tuple(reversed(records)))
    return tuple(reversed(kept))
