"""The pending acks of transactions, which acks conflict with them, and which messages an abort redelivers.

Models the maps and checks of `PendingAckHandleImpl`. In the reference, conflicts are detected before the append (rule
`conflict_check`), and acks whose records are buffered or in flight count as pending.

A function whose name has `conflict` or `overlap` returns why an ack conflicts, or '' if the ack does not conflict; only
`overlaps` returns a Boolean.
"""

from __future__ import annotations

from model.ack_set import bits_below, lowest_set_bit, words_of
from model.batch_acks.state import is_deleted
from model.pending_acks.state import (
    Config,
    CumulativeAck,
    LogRecord,
    PositionAck,
    Redelivery,
    Request,
    State,
    TxnAcks,
    acked_messages,
    all_messages,
    messages_of,
)

# ---- pending individual acks --------------------------------------------------------------------------


def acks_of(s: State, txn: int) -> tuple[PositionAck, ...]:
    """Returns the pending individual acks of a transaction."""
    for each in s.individual_acks:
        if each.txn == txn:
            return each.acks
    return ()


def merged(acks: tuple[PositionAck, ...], new: PositionAck) -> tuple[PositionAck, ...]:
    """`PositionAckSetUtil.andAckSet`: returns the acks, which are in order of entries, with one more ack.

    The ack sets of two acks of the same entry are intersected: the result acks what either ack acks. If one of the two
    acks is for the whole entry, the result is for the whole entry.
    """
    for i, old in enumerate(acks):
        if old.entry == new.entry:
            both = None if old.ack_set is None or new.ack_set is None else old.ack_set & new.ack_set
            return (*acks[:i], PositionAck(old.entry, both), *acks[i + 1 :])
        if old.entry > new.entry:
            return (*acks[:i], new, *acks[i:])
    return (*acks, new)


def merged_all(acks: tuple[PositionAck, ...], new: tuple[PositionAck, ...]) -> tuple[PositionAck, ...]:
    """Returns the acks with several more acks."""
    for ack in new:
        acks = merged(acks, ack)
    return acks


def with_pending(pending: tuple[TxnAcks, ...], txn: int, acks: tuple[PositionAck, ...]) -> tuple[TxnAcks, ...]:
    """`handleIndividualAck`: returns the pending acks with more acks of one transaction."""
    for i, each in enumerate(pending):
        if each.txn == txn:
            return (*pending[:i], TxnAcks(txn, merged_all(each.acks, acks)), *pending[i + 1 :])
    return (*pending, TxnAcks(txn, merged_all((), acks))) if acks else pending


def without_txn(pending: tuple[TxnAcks, ...], txn: int) -> tuple[TxnAcks, ...]:
    """Returns the pending acks without those of one transaction."""
    return tuple([each for each in pending if each.txn != txn])


# ---- requests whose records are buffered or in flight -------------------------------------------------


def buffered_or_in_flight(s: State) -> list[Request]:
    """Returns the requests whose records are in flight or buffered, in log order."""
    return [*[request for entry in s.in_flight for request in entry], *s.buffer]


def buffered_or_in_flight_acks(cfg: Config, s: State, *, cumulative: bool) -> list[LogRecord]:
    """Returns the ack records of one type that are in flight or buffered, in log order.

    Returns an empty list if conflicts are detected after the append: these acks then do not count as pending.
    """
    if cfg.conflict_check == "after_append":
        return []
    records = [request.record for request in buffered_or_in_flight(s)]
    return [each for each in records if each.op == "ack" and each.cumulative == cumulative]


def pending_acks_of_entry(cfg: Config, s: State, entry: int) -> list[PositionAck]:
    """Returns all transactions' individual acks of an entry that are pending or count as pending."""
    acks = [ack for each in s.individual_acks for ack in each.acks if ack.entry == entry]
    return acks + [
        ack for each in buffered_or_in_flight_acks(cfg, s, cumulative=False) for ack in each.acks if ack.entry == entry
    ]


def acks_of_others(cfg: Config, s: State, txn: int) -> list[PositionAck]:
    """Returns the other transactions' individual acks that are pending or count as pending."""
    acks = [ack for each in s.individual_acks if each.txn != txn for ack in each.acks]
    return acks + [
        ack for each in buffered_or_in_flight_acks(cfg, s, cumulative=False) if each.txn != txn for ack in each.acks
    ]


def pending_cumulative_ack(cfg: Config, s: State) -> CumulativeAck | None:
    """Returns the latest cumulative ack that is pending or counts as pending, of any transaction."""
    # in log order: first the pending ack, then the records in flight and buffered
    records = buffered_or_in_flight_acks(cfg, s, cumulative=True)
    return CumulativeAck(records[-1].txn, records[-1].acks[0]) if records else s.cumulative_ack


def first_position_after(ack: PositionAck) -> tuple[int, int]:
    """Returns the first message after a cumulative ack, as (entry, batch index).

    After an ack of a whole entry, the result is (next entry, -1), which is before every message of the next entry. Of
    two acks, the one with the greater result acks more (`PositionAckSetUtil.compareToWithAckSet`).
    """
    first = lowest_set_bit(ack.ack_set or 0)
    return (ack.entry, first) if first >= 0 else (ack.entry + 1, -1)


def covered_messages(cfg: Config, cumulative: CumulativeAck | None, entry: int) -> int:
    """Returns the mask of the messages of an entry that a cumulative ack covers."""
    if cumulative is None or entry > cumulative.ack.entry:
        return 0
    return all_messages(cfg, entry) if entry < cumulative.ack.entry else messages_of(cfg, cumulative.ack)


# ---- conflicts ----------------------------------------------------------------------------------------


def union_of(acks: list[PositionAck]) -> list[PositionAck]:
    """Returns the acks of one entry, merged into one ack (`individualAckPositions`); an empty list if there is none."""
    return list(merged_all((), tuple(acks)))


def overlaps(cfg: Config, ack: PositionAck, pending: PositionAck) -> bool:
    """`PositionAckSetUtil.isAckSetOverlap`: returns whether a batch-index ack overlaps a pending ack of the same entry.

    If the pending ack is for the whole entry, the result is the value of the rule
    `batch_index_of_pending_entry_conflicts`.
    """
    if pending.ack_set is None:
        return cfg.batch_index_of_pending_entry_conflicts
    both = messages_of(cfg, ack) & messages_of(cfg, pending)
    if cfg.overlap_check == "trimmed_words":  # the words of the pending ack set without the zero words at the end
        both &= bits_below(64 * len(words_of(pending.ack_set)))
    return both != 0


def overlap_with_individual_acks(cfg: Config, s: State, ack: PositionAck) -> str:
    """Returns why an individual ack conflicts with the pending individual acks of its entry, or ''."""
    pending = pending_acks_of_entry(cfg, s, ack.entry)
    if ack.ack_set is None:
        return f"entry {ack.entry} is pending" if pending else ""
    if cfg.overlap_check == "trimmed_words":
        pending = union_of(pending)
    if any(overlaps(cfg, ack, each) for each in pending):
        return f"a message of entry {ack.entry} is pending"
    return ""


def overlap_with_cumulative_ack(cfg: Config, s: State, txn: int, ack: PositionAck) -> str:
    """Returns why an individual ack conflicts with another transaction's cumulative ack, or ''."""
    other = pending_cumulative_ack(cfg, s)
    if not cfg.cross_type_conflicts or other is None or other.txn == txn:
        return ""
    if messages_of(cfg, ack) & covered_messages(cfg, other, ack.entry):
        return f"transaction {other.txn} has a cumulative ack of entry {ack.entry}"
    return ""


def individual_conflict(cfg: Config, s: State, txn: int, ack: PositionAck) -> str:
    """`internalIndividualAcknowledgeMessage`: returns why an individual ack of one position conflicts, or ''."""
    if is_deleted(s.cursor, ack.entry):
        return f"entry {ack.entry} is acknowledged"
    if ack.ack_set is not None and messages_of(cfg, ack) & acked_messages(cfg, s.cursor, ack.entry):
        return f"a message of entry {ack.entry} is acknowledged"
    return overlap_with_individual_acks(cfg, s, ack) or overlap_with_cumulative_ack(cfg, s, txn, ack)


def cumulative_conflict(cfg: Config, s: State, txn: int, ack: PositionAck) -> str:
    """`internalCumulativeAcknowledgeMessage`: returns why a cumulative ack conflicts with pending acks, or ''.

    The individual acks of the same transaction do not conflict.
    """
    other = pending_cumulative_ack(cfg, s)
    if other is not None and other.txn != txn:
        return f"transaction {other.txn} has a cumulative ack"
    if other is not None and first_position_after(ack) <= first_position_after(other.ack):
        return "the transaction has a cumulative ack at or after that position"
    if cfg.cross_type_conflicts:
        mine = CumulativeAck(txn, ack)
        for each in acks_of_others(cfg, s, txn):
            if messages_of(cfg, each) & covered_messages(cfg, mine, each.entry):
                return f"another transaction has a pending ack at or before entry {ack.entry}"
    return ""


def conflict(cfg: Config, s: State, record: LogRecord) -> str:
    """Returns why an ack record conflicts with acknowledged messages or pending acks, or ''.

    The request of a record that conflicts fails with `TransactionConflictException`.
    """
    if not record.cumulative:
        return next((why for why in [individual_conflict(cfg, s, record.txn, ack) for ack in record.acks] if why), "")
    ack = record.acks[0]
    if ack.entry < s.cursor.first_unacked:
        return f"entry {ack.entry} is acknowledged"
    return cumulative_conflict(cfg, s, record.txn, ack)


def pending_conflict(cfg: Config, s: State, record: LogRecord) -> str:
    """Returns why a replayed ack conflicts with pending acks, or ''. Acknowledged messages are not compared."""
    if record.cumulative:
        return cumulative_conflict(cfg, s, record.txn, record.acks[0])
    found = [
        overlap_with_individual_acks(cfg, s, ack) or overlap_with_cumulative_ack(cfg, s, record.txn, ack)
        for ack in record.acks
    ]
    return next((why for why in found if why), "")


def has_batch_index_of_pending_entry(s: State, record: LogRecord) -> bool:
    """Returns whether a record has a batch-index ack of an entry that is pending as a whole.

    Master 2026-07 never completes such a request: `PositionAckSetUtil.andAckSet` throws in `handleIndividualAck` when
    the append completes, and throws again when that exception is handled.

    Not modelled: when `andAckSet` throws, `handleIndividualAck` has added the earlier positions of the list to the
    pending acks and, if the entry is pending in another transaction, also this position to those of the transaction. In
    Pulsar, a replay of the record also throws, and the replay fails (`replayFailed`); here a replay drops the record.
    """
    entries = [ack.entry for each in s.individual_acks for ack in each.acks if ack.ack_set is None]
    return any(ack.ack_set is not None and ack.entry in entries for ack in record.acks)


# ---- redelivery ---------------------------------------------------------------------------------------


def acknowledged_or_pending(cfg: Config, s: State, entry: int) -> int:
    """Returns the mask of the messages of an entry that are acknowledged or pending."""
    messages = acked_messages(cfg, s.cursor, entry) | covered_messages(cfg, s.cumulative_ack, entry)
    for each in s.individual_acks:
        for ack in each.acks:
            messages |= messages_of(cfg, ack) if ack.entry == entry else 0
    return messages


def redeliveries(cfg: Config, s: State, acks: tuple[PositionAck, ...]) -> tuple[Redelivery, ...]:
    """Returns the messages of aborted individual acks that are neither acknowledged nor pending after the abort.

    `s` is the state after the abort. `PendingAckHandleImpl.internalAbortTxn` passes the positions to
    `redeliverUnacknowledgedMessages` (#14327, #19581).
    """
    found = [Redelivery(ack.entry, messages_of(cfg, ack) & ~acknowledged_or_pending(cfg, s, ack.entry)) for ack in acks]
    return tuple([each for each in found if each.batch_indexes])
