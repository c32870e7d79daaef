"""Opening and replay of a transaction log (`MLTransactionLogImpl.TransactionLogReplayer`).

Opening recovers the cursor's deletions and the last assigned id. The replay then reads every entry that is not deleted,
in order, and applies those of its records that are not deleted.
"""

from __future__ import annotations

from typing import NamedTuple

from model.batch_acks.state import Acks, is_deleted, with_mark_delete_advanced
from model.machine import Failed
from model.txn_log.state import (
    ENDED,
    EXPECTED,
    Acknowledged,
    Config,
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


class Open(NamedTuple):
    """A recovered OPEN transaction and its deadline, for the timeout tracker."""

    txn: int
    deadline_ms: int


class Recovered(NamedTuple):
    """The transactions that a replay passes to `TransactionRecoverTracker`, by id."""

    to_commit: tuple[int, ...]
    to_abort: tuple[int, ...]
    open: tuple[Open, ...]


# ---- opening ------------------------------------------------------------------------------------------


def recovered_id(s: State) -> int:
    """The last assigned id as an open recovers it (`MLTransactionSequenceIdGenerator`).

    It is `max_local_txn_id` of the last record of the last ledger, or the ledger property if that ledger is empty.
    """
    return s.log[-1][-1].last_id if s.ledgers[-1] else s.ledger_property_id


def opened(cfg: Config, s: State, found: Acks, batching: bool) -> State:
    """A store just opened on its log: the map is empty and the replay starts at the mark-delete position.

    Appends go to a new ledger, unless the last one is empty. Where batch index deletion is disabled, stored ack sets
    are not recovered.
    """
    last_id = recovered_id(s)
    acks = with_mark_delete_advanced(found if deletes_batch_indexes(cfg, batching) else found._replace(partial=()))
    return s._replace(
        status="replaying",
        ledger="open",
        batching=batching,
        cursor_works=True,
        buffer=(),
        in_flight=(),
        ledgers=(*s.ledgers, 0) if s.ledgers[-1] else s.ledgers,
        ledger_property_id=last_id,
        txns=(),
        last_id=last_id,
        acks=acks,
        durable=found,
        dirty=False,
        read_position=acks.first_unacked,
    )


# ---- replay of records --------------------------------------------------------------------------------


def next_entry(s: State) -> int | None:
    """The entry that the replay reads next; None at the end of the log."""
    for entry in range(s.read_position, next_entry_number(s)):
        if not is_deleted(s.acks, entry):
            return entry
    return None


def replayed(cfg: Config, s: State, entry: int) -> tuple[State, int]:
    """Reads one entry and applies its undeleted records. Returns their number."""
    records = s.log[entry - s.first_entry]
    remaining = remaining_records(s.acks, entry, len(records))
    s = s._replace(read_position=entry + 1)
    for index, record in enumerate(records):
        if remaining >> index & 1:
            s = with_replayed(cfg, s, record, RecordPosition(entry, index))
    return s, remaining.bit_count()


def with_replayed(cfg: Config, s: State, record: Record, position: RecordPosition) -> State:
    """Applies one record at replay (`MLTransactionMetadataStore.handleMetadataEntry`).

    The deadline is start time plus timeout. In master of 2026-07, an ended transaction stays in `txnMetaMap` if its
    records cannot be deleted.
    """
    effect = apply_record(s.txns, record, position, record.start_ms + record.timeout_ms)
    txns = effect.txns
    if effect.result == "success" and record.to in ENDED:
        s = s._replace(acknowledged=with_end(s.acknowledged, record.txn, record.to))
        ending = find_txn(s.txns, record.txn)
        if ending is not None and not cfg.replay_removes_ended_first and not s.cursor_works:
            txns = put_txn(txns, ending._replace(status=record.to, positions=(*ending.positions, position)))
    return delete_positions(cfg, s._replace(txns=txns), effect.deleted)


# ---- end of the replay --------------------------------------------------------------------------------


def completed(s: State) -> tuple[State, Recovered]:
    """The replay completes: the store is ready and passes the recovered transactions to `TransactionRecoverTracker`."""
    outcome = Recovered(
        tuple([t.id for t in s.txns if t.status == "COMMITTING"]),
        tuple([t.id for t in s.txns if t.status == "ABORTING"]),
        tuple([Open(t.id, t.deadline_ms) for t in s.txns if t.status == "OPEN"]),
    )
    acknowledged = recovered_history(s.acknowledged, s.txns)
    return s._replace(status="ready", read_position=0, acknowledged=acknowledged), outcome


def stopped(cfg: Config, s: State) -> tuple[State, Recovered | Failed]:
    """Reading stops early: the store fails to open, or (master of 2026-07) is ready with partial state."""
    if cfg.incomplete_replay == "reports_complete":
        return completed(s)
    return s._replace(status="failed", read_position=0), Failed("read_failed", "the log could not be read to its end")


# ---- history variables --------------------------------------------------------------------------------


def history_of(t: Txn) -> Acknowledged:
    """The history entry of an ongoing transaction."""
    return Acknowledged(t.id, t.status, t.partitions, t.subscriptions)


def with_acknowledged(known: tuple[Acknowledged, ...], new: Acknowledged) -> tuple[Acknowledged, ...]:
    """The history after a new status or participant of a transaction was confirmed."""
    if not known or known[-1].id < new.id:
        return (*known, new)
    return tuple([p for p in known if p.id < new.id]) + (new,) + tuple([p for p in known if p.id > new.id])


def with_end(known: tuple[Acknowledged, ...], txn: int, end: Target) -> tuple[Acknowledged, ...]:
    """The history after a replayed record ended a transaction, if its confirmed status allows that end."""
    return tuple([p._replace(status=end) if p.id == txn and may_end(p.status, end) else p for p in known])


def may_end(status: Status, end: Target) -> bool:
    """Whether a transaction with this confirmed status can end with that status."""
    return status in ("OPEN", EXPECTED[end], end)


def recovered_history(known: tuple[Acknowledged, ...], txns: tuple[Txn, ...]) -> tuple[Acknowledged, ...]:
    """The history after a replay: the recovered transactions, and those that had ended."""
    ongoing = {t.id for t in txns}
    ended = [p for p in known if p.status in ENDED and p.id not in ongoing]
    return tuple(sorted(ended + [history_of(t) for t in txns]))
