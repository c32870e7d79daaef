"""Opening and replay of a transaction log (`MLTransactionLogImpl.initialize`, `TransactionLogReplayer`).

Opening recovers the cursor's deletions and the last assigned id (`MLTransactionSequenceIdGenerator`). The replay then
reads every entry that is not deleted, in order, and applies its undeleted records.
"""

from __future__ import annotations

from typing import NamedTuple

from model.batch_acks.state import Acks, is_deleted, with_mark_delete_advanced
from model.machine import Failed
from model.txn_log.state import (
    ENDED,
    EXPECTED,
    Config,
    Confirmed,
    Record,
    RecordPosition,
    State,
    Status,
    Target,
    Txn,
    apply_record,
    delete_positions,
    deletes_batch_indexes,
    find_txn,
    next_entry_number,
    put_txn,
    remaining_records,
)


class OpenTxn(NamedTuple):
    """A recovered OPEN transaction and its deadline, for the timeout tracker."""

    txn: int
    deadline_ms: int


class Recovered(NamedTuple):
    """The transactions that `TransactionRecoverTracker` has when a replay completes, each tuple in order of ids.

    The tracker ends COMMITTING and ABORTING transactions, and passes OPEN transactions to the timeout tracker.
    """

    to_commit: tuple[int, ...]  # COMMITTING
    to_abort: tuple[int, ...]  # ABORTING
    open: tuple[OpenTxn, ...]


# ---- opening ------------------------------------------------------------------------------------------


def recovered_id(s: State) -> int:
    """`MLTransactionSequenceIdGenerator`: returns the last assigned id that an opening of the log recovers.

    This id is `max_local_txn_id` of the last record, deleted or not. If the last ledger is empty, the id is the managed
    ledger's property of that name.
    """
    return s.log[-1][-1].last_id if s.ledgers[-1] else s.ledger_property_id


def opened(cfg: Config, s: State, stored: Acks, batching: bool) -> State:
    """Returns a newly opened store: `txnMetaMap` is empty, and the replay starts after the mark-delete position.

    `stored` is the deletions that the recovery of the cursor reads. If batch index deletion is disabled, the cursor
    ignores the ack sets. Appends go to a new ledger, which replaces an empty last ledger. The last assigned id is
    written to the managed ledger's properties.
    """
    last_id = recovered_id(s)
    acks = with_mark_delete_advanced(stored if deletes_batch_indexes(cfg, batching) else stored._replace(partial=()))
    return s._replace(
        status="replaying",
        ledger="open",
        batching=batching,
        deletions_succeed=True,
        buffer=(),
        in_flight=(),
        ledgers=(*s.ledgers, 0) if s.ledgers[-1] else s.ledgers,
        ledger_property_id=last_id,
        txns=(),
        last_id=last_id,
        acks=acks,
        durable=stored,
        dirty=False,
        read_position=acks.first_unacked,
    )


# ---- replay of records --------------------------------------------------------------------------------


def next_entry(s: State) -> int | None:
    """Returns the number of the entry that the replay reads next; None at the end of the log."""
    for entry in range(s.read_position, next_entry_number(s)):
        if not is_deleted(s.acks, entry):
            return entry
    return None


def replayed(cfg: Config, s: State, entry: int) -> tuple[State, int]:
    """Reads one entry and applies its undeleted records. Returns the state, and the number of these records."""
    records = s.log[entry - s.first_entry]
    remaining = remaining_records(s.acks, entry, len(records))
    s = s._replace(read_position=entry + 1)
    for index, record in enumerate(records):
        if remaining >> index & 1:
            s = with_replayed(cfg, s, record, RecordPosition(entry, index))
    return s, remaining.bit_count()


def with_replayed(cfg: Config, s: State, record: Record, position: RecordPosition) -> State:
    """`TransactionLogReplayCallback.handleMetadataEntry`, in `MLTransactionMetadataStore.init`: applies one record.

    The deadline of a new transaction is its start time plus its timeout. If `replay_removes_ended_first` is false and
    deletions fail, a transaction that ends stays in `txnMetaMap`.
    """
    effect = apply_record(s.txns, record, position, record.start_ms + record.timeout_ms)
    txns = effect.txns
    if effect.result == "success" and record.to in ENDED:
        s = s._replace(confirmed=with_ended(s.confirmed, record.txn, record.to))
        ending = find_txn(s.txns, record.txn)
        if ending is not None and not cfg.replay_removes_ended_first and not s.deletions_succeed:
            txns = put_txn(txns, ending._replace(status=record.to, positions=(*ending.positions, position)))
    return delete_positions(cfg, s._replace(txns=txns), effect.to_delete)


# ---- end of the replay --------------------------------------------------------------------------------


def completed(s: State) -> tuple[State, Recovered]:
    """`replayComplete`: the store becomes ready. Returns the transactions that `TransactionRecoverTracker` has."""
    recovered = Recovered(
        tuple([t.id for t in s.txns if t.status == "COMMITTING"]),
        tuple([t.id for t in s.txns if t.status == "ABORTING"]),
        tuple([OpenTxn(t.id, t.deadline_ms) for t in s.txns if t.status == "OPEN"]),
    )
    confirmed = recovered_history(s.confirmed, s.txns)
    return s._replace(status="ready", read_position=0, confirmed=confirmed), recovered


def replay_interrupted(cfg: Config, s: State) -> tuple[State, Recovered | Failed]:
    """Reading stops before the end of the log: the store fails or, with `reports_complete`, becomes ready."""
    if cfg.incomplete_replay == "reports_complete":
        return completed(s)
    return s._replace(status="failed", read_position=0), Failed("read_failed", "the log could not be read to its end")


# ---- history variables: used by properties only -------------------------------------------------------


def as_confirmed(t: Txn) -> Confirmed:
    """Returns the element of `State.confirmed` for an ongoing transaction."""
    return Confirmed(t.id, t.status, t.partitions, t.subscriptions)


def with_confirmed(confirmed: tuple[Confirmed, ...], new: Confirmed) -> tuple[Confirmed, ...]:
    """Returns the elements of `State.confirmed`, in order of ids, after one is added or replaced."""
    if not confirmed or confirmed[-1].id < new.id:
        return (*confirmed, new)
    return tuple([c for c in confirmed if c.id < new.id]) + (new,) + tuple([c for c in confirmed if c.id > new.id])


def with_ended(confirmed: tuple[Confirmed, ...], txn: int, to: Target) -> tuple[Confirmed, ...]:
    """Returns the elements of `State.confirmed` after the replay of a transaction's COMMITTED or ABORTED record.

    `to` is the new status. If `may_end` is false, the transaction's element does not change.
    """
    return tuple([c._replace(status=to) if c.id == txn and may_end(c.status, to) else c for c in confirmed])


def may_end(status: Status, to: Target) -> bool:
    """Whether the log can legally have an UPDATE to `to` for a transaction with the confirmed status `status`.

    `to` is COMMITTED or ABORTED. The log may have a COMMITTING or ABORTING record that is not confirmed: then the
    confirmed status is still OPEN.
    """
    return status in ("OPEN", EXPECTED[to], to)


def recovered_history(confirmed: tuple[Confirmed, ...], txns: tuple[Txn, ...]) -> tuple[Confirmed, ...]:
    """Returns `State.confirmed` after a replay: the recovered transactions, and the ended ones that it already has.

    A transaction that had not ended and was not recovered is dropped.
    """
    ongoing = {t.id for t in txns}
    ended = [c for c in confirmed if c.status in ENDED and c.id not in ongoing]
    return tuple(sorted(ended + [as_confirmed(t) for t in txns]))
