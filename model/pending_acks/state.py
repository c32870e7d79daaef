"""Pending acks of one subscription: settings, rules and state, and functions on the cursor and the log.

Entries of the topic are numbered from 0. The ack type of an ack is individual or cumulative.

An ack set (in Pulsar an array of words, here a mask) has a bit for each message of a batch: bit i is batch index i. A
clear bit acks the message; a set bit leaves the message unacknowledged. An ack with an ack set is a *batch-index ack*;
an ack without one (None) acks the whole entry. An ack set is *empty* if it is 0: every batch index is acked. A request
with an empty ack set is treated as a request without one. So the ack set of a pending ack is empty only after several
batch-index acks of one transaction were merged (AND of the ack sets).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

from model.batch_acks import state as cursor
from model.batch_acks.state import (
    Acks,
    is_deleted,
    remaining_of,
    with_ack_set,
    with_entry_deleted,
    with_mark_delete_advanced,
    with_mark_delete_at,
)
from model.machine import Setting
from model.pending_acks.log_index import LagBackoff, LogIndex, empty_index
from model.values import AtLeast, Origin, Rule, record

# ---- configuration ------------------------------------------------------------------------------------


class Config(NamedTuple):
    """Broker settings, then the rules in which versions and proposals differ."""

    #: batch sizes of the topic's entries: entry n has `batch_sizes[n % len(batch_sizes)]` messages
    batch_sizes: tuple[Annotated[int, AtLeast(1)], ...] = (4, 1, 3)
    #: whether the cursor stores ack sets
    batch_index_acks: Annotated[
        bool, Setting("acknowledgmentAtBatchIndexLevelEnabled", (("4.0", False), ("4.1", True)))
    ] = True
    #: whether records are buffered and share a log entry
    batched_writes: Annotated[bool, Setting("transactionPendingAckBatchedWriteEnabled", False)] = True
    #: the log index gets its first key at the first log entry with acks that reaches this number of records
    min_lag: Annotated[int, AtLeast(1), Setting("transactionPendingAckLogIndexMinLag", 500)] = 500
    #: maximum of the `LogIndexLagBackoff`; None: no maximum (`MLPendingAckStore` passes `Long.MAX_VALUE`)
    max_lag: Annotated[int, AtLeast(1)] | None = None
    #: exponent of `LogIndexLagBackoff`; `MLPendingAckStore` passes 1
    lag_exponent: Annotated[int, AtLeast(1)] = 1
    #: number of failed reads in a row at which a replay fails, if `failed_reads_are_bounded`
    max_failed_reads: Annotated[int, AtLeast(1)] = 3

    #: Whether an ack conflicts with another transaction's pending acks of the other ack type. Otherwise both
    #: transactions can commit the same message, or one can commit what the other aborts (apache/pulsar#4265).
    cross_type_conflicts: Annotated[
        bool,
        Rule(
            Origin.READ,
            {False: "PendingAckHandleImpl.internal{Individual,Cumulative}AcknowledgeMessage, master 2026-07"},
        ),
    ] = True
    #: When conflicts are detected: before or after the append of the record. With `after_append`, the log also has the
    #: records of rejected acks. A replay checks every record again. But if the reason for the rejection was an
    #: acknowledgement that the cursor has lost in a crash, the replay makes the rejected ack pending.
    conflict_check: Annotated[
        Literal["before_append", "after_append"],
        Rule(
            Origin.READ, {"after_append": "PendingAckHandleImpl.internalIndividualAcknowledgeMessage, master 2026-07"}
        ),
    ] = "before_append"
    #: What happens after a failed append. The record may be durable: BookKeeper can recover an entry whose write was
    #: reported as failed, also after a fence. `fail_handle`: the status becomes error; a reopened handle replays what
    #: is durable. `apply`: the status stays ready, an ack becomes pending all the same (`with_failed_ack` has the
    #: exceptions), a commit or abort changes nothing. Memory can then differ from the log until the next replay.
    failed_append: Annotated[
        Literal["fail_handle", "apply"],
        Rule(
            Origin.READ,
            {"apply": "PendingAckHandleImpl.internal{Individual,Cumulative}AcknowledgeMessage, master 2026-07"},
        ),
    ] = "fail_handle"
    #: What happens to a commit if the cursor rejects the acks of the transaction. `fail_handle`: the commit fails, and
    #: the status becomes error. The record is durable, so a replay applies the commit. `keep_pending`: the commit
    #: fails, the handle stays ready, and the acks stay pending (#25528, in master since May 2026). The log has the
    #: record of the commit all the same: if the transaction is then aborted, the acks are no longer pending, but a
    #: replay commits them. `drop`: the commit completes, and the pending acks are removed although the cursor does not
    #: have them.
    rejected_commit: Annotated[
        Literal["fail_handle", "keep_pending", "drop"],
        Rule(
            Origin.READ,
            {
                "drop": "PendingAckHandleImpl.internalCommitTxn before apache/pulsar#25528",
                "keep_pending": "since #25528",
            },
        ),
    ] = "fail_handle"
    #: Whether a commit or abort applies to the pending acks of both types that its transaction has when the record
    #: becomes durable. Otherwise it applies to the acks of one type, which the handle chooses just before it appends
    #: the record: Individual if no cumulative ack is pending, Cumulative if the transaction has the pending cumulative
    #: ack. If another transaction has that ack, a commit completes without a record and without effect, and an abort
    #: gets the type Cumulative: the individual acks of its transaction stay pending.
    commit_and_abort_cover_both_types: Annotated[
        bool, Rule(Origin.READ, {False: "PendingAckHandleImpl.internal{CommitTxn,AbortTxn}, master 2026-07"})
    ] = True
    #: Whether a batch-index ack conflicts if the entry is pending as a whole. Otherwise, the ack's future never
    #: completes (`conflict_check` "after_append"), or the ack becomes pending ("before_append").
    batch_index_of_pending_entry_conflicts: Annotated[
        bool, Rule(Origin.READ, {False: "PositionAckSetUtil.isAckSetOverlap with a null ack set, master 2026-07"})
    ] = True
    #: In which batch indexes an overlap of a batch-index ack with the pending acks of its entry is detected.
    #: `every_batch_index`: in all. `trimmed_words`: Pulsar merges the pending acks into one ack set of 64-bit words,
    #: and trims its zero words at the end. All messages of a trimmed word are pending, but an overlap in them is not
    #: detected. (Not modelled: the same holds for an overlap with the cursor's ack set.)
    overlap_check: Annotated[
        Literal["every_batch_index", "trimmed_words"],
        Rule(
            Origin.READ,
            {"trimmed_words": "PositionAckSetUtil.isAckSetOverlap on individualAckPositions, master 2026-07"},
        ),
    ] = "every_batch_index"
    #: Whether an empty ack set acks the whole entry if the cursor stores no ack sets (#24406, June 2025); otherwise the
    #: cursor ignores the ack.
    empty_ack_set_acks_entry: Annotated[
        bool, Rule(Origin.READ, {False: "ManagedCursorImpl.asyncDelete before apache/pulsar#24406"})
    ] = True
    #: Which transactions with pending acks a low watermark aborts, and when. `all`: after any commit or abort, all
    #: transactions with an id at or below the low watermark. `from_first`: after a commit or abort of individual acks,
    #: the first transaction of `State.individual_acks`, if its id is at or below the low watermark. When this abort is
    #: applied, the new first transaction is checked in the same way.
    low_watermark_aborts: Annotated[
        Literal["all", "from_first"],
        Rule(Origin.READ, {"from_first": "PendingAckHandleImpl.handleLowWaterMark, master 2026-07"}),
    ] = "all"
    #: Whether a replay starts after the log's mark-delete position (assumed since #26369); otherwise it starts at the
    #: read position of the log's cursor. We assume that a broker keeps this cursor until it crashes. So the replay of a
    #: reopened handle skips the entries that an earlier replay has read. If there is no later entry, the replay waits
    #: forever (#16240; #26368 after a ledger was trimmed).
    replay_rewinds: Annotated[
        bool, Rule(Origin.READ, {False: "MLPendingAckStore.PendingAckReplay before apache/pulsar#26369"})
    ] = True
    #: Whether a replay fails if its reads stop early; otherwise the replay completes with the records that it has read.
    stopped_replay_fails: Annotated[
        bool,
        Rule(Origin.READ, {False: "MLPendingAckStore.PendingAckReplay and FillEntryQueueCallback, master 2026-07"}),
    ] = True
    #: Whether `max_failed_reads` bounds the failed reads of a replay; otherwise a read is retried forever (#26374).
    failed_reads_are_bounded: Annotated[
        bool, Rule(Origin.READ, {False: "MLPendingAckStore.FillEntryQueueCallback.readEntriesFailed, master 2026-07"})
    ] = True
    #: Which acks a replay drops because the cursor has them. `acked_positions`: each position of an individual ack
    #: whose messages are all acknowledged in the persisted cursor, and a cumulative ack whose entry is at or before the
    #: persisted mark-delete position. `record`: the whole record, if one of its positions conflicts with the cursor in
    #: memory.
    replay_drops: Annotated[
        Literal["acked_positions", "record"],
        Rule(Origin.READ, {"record": "PendingAckHandleImpl.handleIndividualAckRecover, master 2026-07"}),
    ] = "acked_positions"
    #: Whether a replay keeps the ack set of a cumulative ack; otherwise the replayed ack acks the whole entry.
    replay_keeps_cumulative_ack_set: Annotated[
        bool, Rule(Origin.READ, {False: "MLPendingAckReplyCallBack.handleMetadataEntry, since 2021"})
    ] = True
    #: Whether a replayed commit or abort checks that the pending cumulative ack is of its own transaction; otherwise a
    #: commit or abort of type Cumulative applies to the cumulative ack of any transaction.
    replay_checks_cumulative_owner: Annotated[
        bool, Rule(Origin.READ, {False: "PendingAckHandleImpl.handle{Commit,Abort}, master 2026-07"})
    ] = True
    #: Which records of the log are deleted. `acked_prefix` (PIP-153): a prefix of the log, when the persisted
    #: mark-delete position has reached all acks in this prefix (`log_index.py`). `ended_transactions` (PIP-160's text):
    #: the records of a transaction when the transaction ends. This is too early: until the cursor is persisted, the
    #: acks that a commit applied are durable in the log only.
    log_deletion: Annotated[
        Literal["acked_prefix", "ended_transactions"],
        Rule(Origin.READ, {"ended_transactions": "PIP-160, Aggregate multiple records and write to Bookies"}),
    ] = "acked_prefix"


def log_index_backoff(cfg: Config) -> LagBackoff:
    """Returns the parameters of `LogIndexLagBackoff`, which decides when the log index gets a key."""
    return LagBackoff(cfg.min_lag, cfg.max_lag, cfg.lag_exponent)


# ---- state --------------------------------------------------------------------------------------------


class PositionAck(NamedTuple):
    """An ack of one entry, whole or by ack set."""

    entry: int
    ack_set: int | None  # mask of the messages that the ack leaves unacknowledged; None: the ack is for the whole entry


class Redelivery(NamedTuple):
    """Messages of an entry that are redelivered."""

    entry: int
    batch_indexes: int  # mask: a set bit is a redelivered message


@record
class LogRecord(NamedTuple):
    """A record of the log (`PendingAckMetadataEntry`). A cumulative ack has one position."""

    op: Literal["ack", "commit", "abort"]
    cumulative: bool  # whether the ack type is Cumulative; False in a commit or abort that waits in `accept_queue`
    txn: int
    acks: tuple[PositionAck, ...]  # empty for a commit or abort


#: One entry of the log: the records that were flushed together.
LogEntry = tuple[LogRecord, ...]

#: The request number of an abort that the handle itself starts because of a low watermark. The abort has no caller.
INTERNAL = 0


@record
class Request(NamedTuple):
    """A request that is not complete."""

    number: int  # counts from 1; or INTERNAL
    record: LogRecord
    low_watermark: int  # the coordinator has ended all transactions up to this id; 0 in the request of an ack


class TxnAcks(NamedTuple):
    """Pending individual acks of a transaction, in order of entries."""

    txn: int
    acks: tuple[PositionAck, ...]


class CumulativeAck(NamedTuple):
    """The pending cumulative ack; a subscription has at most one."""

    txn: int
    ack: PositionAck


@record
class State(NamedTuple):
    """The subscription's cursor, the log, and the handle.

    The handle is open while it is initializing or ready. In any other status, the fields whose comment begins with
    `memory` are empty. In status `none` a request is queued and starts the replay; in `initializing` it is queued. In
    `ready` it is accepted or rejected. In `error` and `closed` it fails.
    """

    cursor: Acks  # the subscription's cursor
    durable_cursor: Acks  # the subscription's cursor as persisted
    log: tuple[LogEntry, ...]  # entries after the log's mark-delete position
    read_position: int  # index in `log` of the next entry that the log's cursor reads; = `replayed` if `replay_rewinds`
    log_index: LogIndex  # memory
    status: Literal["none", "initializing", "ready", "error", "closed"]
    replayed: int  # index in `log` of the entry after the last one that the replay processed (`currentLoadPosition`)
    failed_reads: int  # consecutive failed reads of the replay
    accept_queue: tuple[Request, ...]  # requests that wait until the handle is ready (`acceptQueue`)
    buffer: tuple[Request, ...]  # requests whose records are in the buffered writer
    in_flight: tuple[tuple[Request, ...], ...]  # log entries that are being appended
    individual_acks: tuple[TxnAcks, ...]  # memory: in order of first acks (`individualAckOfTransaction`)
    cumulative_ack: CumulativeAck | None  # memory (`cumulativeAckOfTransaction`)
    low_watermark: int  # memory: the highest low watermark that a commit or abort applied (`lowWaterMarks`)
    next_request: int


def start(cfg: Config) -> State:
    """Returns a subscription without acks whose handle has not been opened."""
    return State(
        cursor=Acks(),
        durable_cursor=Acks(),
        log=(),
        read_position=0,
        log_index=empty_index(log_index_backoff(cfg)),
        status="none",
        replayed=0,
        failed_reads=0,
        accept_queue=(),
        buffer=(),
        in_flight=(),
        individual_acks=(),
        cumulative_ack=None,
        low_watermark=0,
        next_request=1,
    )


# ---- the subscription's cursor ------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _cursor_config(batch_sizes: tuple[int, ...]) -> cursor.Config:
    return cursor.Config(batch_sizes=batch_sizes)


def all_messages(cfg: Config, entry: int) -> int:
    """Returns the mask of all messages of an entry."""
    return (1 << cfg.batch_sizes[entry % len(cfg.batch_sizes)]) - 1


def acked_messages(cfg: Config, acks: Acks, entry: int) -> int:
    """Returns the mask of the acknowledged messages of an entry."""
    if is_deleted(acks, entry):
        return all_messages(cfg, entry)
    remaining = remaining_of(acks, entry)
    return 0 if remaining is None else all_messages(cfg, entry) & ~remaining


def deleted_entries(acks: Acks) -> list[int]:
    """Returns the individually deleted entries, in order."""
    return [entry for entry, bit in enumerate(reversed(f"{acks.deleted:b}")) if bit == "1"]


def messages_of(cfg: Config, ack: PositionAck) -> int:
    """Returns the mask of the messages that an ack is for."""
    return all_messages(cfg, ack.entry) & ~(ack.ack_set or 0)


def acks_whole_entry(cfg: Config, ack_set: int | None) -> bool:
    """Returns whether an ack with this ack set deletes its entry, whatever was acked before (`asyncDelete`)."""
    return ack_set is None or (ack_set == 0 and (cfg.batch_index_acks or cfg.empty_ack_set_acks_entry))


def with_ack(cfg: Config, acks: Acks, ack: PositionAck) -> Acks:
    """Returns the cursor with one more individual ack; the mark-delete position does not advance here.

    A cursor that stores no ack sets ignores a batch-index ack, unless it deletes the entry (`acks_whole_entry`).
    """
    if is_deleted(acks, ack.entry):
        return acks
    if acks_whole_entry(cfg, ack.ack_set):
        return with_entry_deleted(acks, ack.entry)
    if ack.ack_set is None or not cfg.batch_index_acks:  # the test of None is for mypy only
        return acks
    return with_ack_set(_cursor_config(cfg.batch_sizes), acks, ack.entry, ack.ack_set)


def with_individual_acks(cfg: Config, acks: Acks, individual: tuple[PositionAck, ...]) -> Acks:
    """Returns the cursor with more individual acks; the mark-delete position advances."""
    for ack in individual:
        acks = with_ack(cfg, acks, ack)
    return with_mark_delete_advanced(acks)


def with_cumulative_ack(cfg: Config, acks: Acks, ack: PositionAck) -> Acks:
    """Returns the cursor with a cumulative ack: the entries before the ack's entry are deleted.

    The ack's entry is acked as by an individual ack. Then the mark-delete position advances over deleted entries.
    """
    # the ack deletes every entry before `first`
    first = ack.entry + acks_whole_entry(cfg, ack.ack_set)
    acks = with_mark_delete_at(acks, first) if first > acks.first_unacked else acks
    return with_individual_acks(cfg, acks, (ack,))


# ---- the log ------------------------------------------------------------------------------------------


def last_acked_entry(log_entry: LogEntry) -> int:
    """Returns the last entry of the topic that a log entry acks; -1 if the log entry has no acks."""
    return max([ack.entry for each in log_entry for ack in each.acks], default=-1)


def without_prefix(s: State, count: int) -> State:
    """Returns the state without the first `count` log entries."""
    if not count:
        return s
    read, replayed = max(s.read_position - count, 0), max(s.replayed - count, 0)
    return s._replace(log=s.log[count:], read_position=read, replayed=replayed)


def without_memory(cfg: Config, s: State) -> State:
    """Returns the state without the handle's memory and without the progress of a replay.

    Without `replay_rewinds`, the read position of the log's cursor stays.
    """
    return s._replace(
        read_position=0 if cfg.replay_rewinds else s.read_position,
        log_index=empty_index(log_index_backoff(cfg)),
        replayed=0,
        failed_reads=0,
        individual_acks=(),
        cumulative_ack=None,
        low_watermark=0,
    )
