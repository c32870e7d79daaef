"""How a coordinator's transaction log is opened, and what a replay makes of its records.

A store that is opened knows three things: which records are deleted, as the cursor has it, the last id that was given,
and its log. It reads every entry that is not deleted, in order, and does what its records say that are not.
"""

from __future__ import annotations

from typing import NamedTuple

from model.batch_acks.state import Acks, is_deleted, settled
from model.machine import Failed
from model.txn_log.state import (
    ENDED,
    EXPECTED,
    Config,
    Place,
    Promise,
    Record,
    State,
    Status,
    Target,
    Txn,
    deletes_parts,
    effect_of,
    end_of,
    live_of,
    txn_of,
    with_deleted,
    with_txn,
)


class Open(NamedTuple):
    """A transaction that was open when the log was closed, and when its time is over."""

    txn: int
    deadline_ms: int


class Recovered(NamedTuple):
    """A store that is ready again: what is to be committed and aborted at once, and what is open, by id."""

    to_commit: tuple[int, ...]
    to_abort: tuple[int, ...]
    open: tuple[Open, ...]


# ---- the beginning ------------------------------------------------------------------------------------


def recovered_id(s: State) -> int:
    """The last id that was given: of the last ledger's last record, or of its properties if it has none."""
    return s.log[-1][-1].last_id if s.ledgers[-1] else s.ledger_id


def opened(cfg: Config, s: State, found: Acks, batching: bool) -> State:
    """A store that has just been opened: it knows no transaction yet, and the replay begins at the mark.

    The log goes on in a new ledger, unless the last one is empty. Where parts of entries cannot be deleted, those that
    were stored are not found, either.
    """
    last_id = recovered_id(s)
    acks = settled(found if deletes_parts(cfg, batching) else found._replace(partial=()))
    return s._replace(
        status="replaying",
        ledger="open",
        batching=batching,
        cursor_works=True,
        buffer=(),
        in_flight=(),
        ledgers=(*s.ledgers, 0) if s.ledgers[-1] else s.ledgers,
        ledger_id=last_id,
        txns=(),
        last_id=last_id,
        acks=acks,
        durable=found,
        dirty=False,
        read_next=acks.mark,
    )


# ---- records ------------------------------------------------------------------------------------------


def next_entry(s: State) -> int | None:
    """The entry that the replay reads next; None at the end."""
    for entry in range(s.read_next, end_of(s)):
        if not is_deleted(s.acks, entry):
            return entry
    return None


def replayed(cfg: Config, s: State, entry: int) -> tuple[State, int]:
    """One entry is read: what its records say that are not deleted is done. How many these were."""
    records = s.log[entry - s.first]
    live = live_of(s.acks, entry, len(records))
    s = s._replace(read_next=entry + 1)
    for index, record in enumerate(records):
        if live >> index & 1:
            s = with_replayed(cfg, s, record, Place(entry, index))
    return s, live.bit_count()


def with_replayed(cfg: Config, s: State, record: Record, place: Place) -> State:
    """What a record says is done again; its deadline counts from when the transaction was begun.

    As shipped, a transaction that ends stays in the map as ended when its records cannot be deleted.
    """
    effect = effect_of(s.txns, record, place, record.start_ms + record.timeout_ms)
    txns = effect.txns
    if effect.told == "done" and record.to in ENDED:
        s = s._replace(promised=with_end(s.promised, record.txn, record.to))
        ending = txn_of(s.txns, record.txn)
        if ending is not None and not cfg.replay_removes_first and not s.cursor_works:
            txns = with_txn(txns, ending._replace(status=record.to, places=(*ending.places, place)))
    return with_deleted(cfg, s._replace(txns=txns), effect.deleted)


# ---- the end ------------------------------------------------------------------------------------------


def completed(s: State) -> tuple[State, Recovered]:
    """The store is ready, and callers may see what it has found."""
    outcome = Recovered(
        tuple([t.id for t in s.txns if t.status == "COMMITTING"]),
        tuple([t.id for t in s.txns if t.status == "ABORTING"]),
        tuple([Open(t.id, t.deadline_ms) for t in s.txns if t.status == "OPEN"]),
    )
    return s._replace(status="ready", read_next=0, promised=promised_from(s.promised, s.txns)), outcome


def stopped(cfg: Config, s: State) -> tuple[State, Recovered | Failed]:
    """Reading came to an end before the log did. As shipped, that is taken for the end of the log."""
    if cfg.stopped_replay == "complete":
        return completed(s)
    return s._replace(status="failed", read_next=0), Failed("read_failed", "the log could not be read to its end")


# ---- what callers know --------------------------------------------------------------------------------


def promise_of(t: Txn) -> Promise:
    """What is known of a transaction that lives."""
    return Promise(t.id, t.status, t.partitions, t.subscriptions)


def with_promise(promised: tuple[Promise, ...], new: Promise) -> tuple[Promise, ...]:
    """What is known, with so much of one transaction."""
    if not promised or promised[-1].id < new.id:
        return (*promised, new)
    return tuple([p for p in promised if p.id < new.id]) + (new,) + tuple([p for p in promised if p.id > new.id])


def with_end(promised: tuple[Promise, ...], txn: int, end: Target) -> tuple[Promise, ...]:
    """A transaction has ended as a durable record says; one that could not end so is known as before."""
    return tuple([p._replace(status=end) if p.id == txn and may_end(p.status, end) else p for p in promised])


def may_end(status: Status, end: Target) -> bool:
    """Whether a transaction in a status that callers know can end in this way."""
    return status in ("OPEN", EXPECTED[end], end)


def promised_from(promised: tuple[Promise, ...], txns: tuple[Txn, ...]) -> tuple[Promise, ...]:
    """What is known once a store is open: what it has, and what had ended."""
    living = {t.id for t in txns}
    ended = [p for p in promised if p.status in ENDED and p.id not in living]
    return tuple(sorted(ended + [promise_of(t) for t in txns]))
