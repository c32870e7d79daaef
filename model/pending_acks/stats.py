"""Admin statistics of pending acks: what commands of `pulsar-admin transactions` return, as JSON objects.

`batch_log_stat` is a command of PIP-160's text that never shipped (`model/txn_writer/wire.py`); the other commands
shipped. The model has one coordinator, coordinator 0.
"""

from __future__ import annotations

from model.ack_set import lowest_set_bit
from model.batch_acks.state import is_deleted
from model.pending_acks.conflicts import covered_messages
from model.pending_acks.state import Config, State, acked_messages, messages_of
from model.txn_writer import wire

#: The ledger of the topic; entries of the model are numbered from 0.
LEDGER = 1

_HANDLE_STATES = {
    "none": "None",
    "initializing": "Initializing",
    "ready": "Ready",
    "error": "Error",
    "closed": "Close",
}


def batch_log_stat(cfg: Config, s: State, topic: str, subscription: str) -> dict[str, object]:
    """Returns the response of `--get-txn-pending-ack-batch-log-stat` (PIP-160).

    The response lists the opened handles; there is none while the status of the handle is none.
    """
    opened = {} if s.status == "none" else {f"{topic}-{subscription}": cfg.batched_writes}
    return wire.batch_log_stat("pending_ack", cfg.batched_writes, opened)


def pending_ack_stats(cfg: Config, s: State) -> dict[str, object]:
    """Returns the response of `pending-ack-stats` (`TransactionPendingAckStats`), without recovery times.

    `ongoingTxnSize` counts only the transactions with individual acks. `lowWaterMarks` maps a coordinator to its low
    watermark; null if the low watermark is 0.
    """
    watermarks = {"0": s.low_watermark} if s.low_watermark else None
    return {"state": _HANDLE_STATES[s.status], "lowWaterMarks": watermarks, "ongoingTxnSize": len(s.individual_acks)}


def transaction_stats(cfg: Config, s: State, txn: int) -> dict[str, object]:
    """Returns the response of `transaction-in-pending-ack-stats` (`TransactionInPendingAckStats`).

    If the cumulative ack ends inside a batch, the position has the batch index of the last acked message.
    """
    cumulative = s.cumulative_ack
    if cumulative is None or cumulative.txn != txn:
        return {"cumulativeAckPosition": None}
    ack_set = cumulative.ack.ack_set
    index = "" if ack_set is None else f":{lowest_set_bit(ack_set) - 1}"
    return {"cumulativeAckPosition": f"{LEDGER}:{cumulative.ack.entry}{index}"}


def position_stats(cfg: Config, s: State, entry: int, batch_index: int | None) -> dict[str, object]:
    """Returns the response of `position-stats-in-pending-ack` (`PositionInPendingAckStats`, #15682).

    With `cross_type_conflicts`, messages of a cumulative ack are also reported as `PendingAck`; a shipped broker looks
    at individual acks only. Not modelled: a shipped broker reports `MarkDelete` only up to the persisted mark-delete
    position, and reports `InvalidPosition` for a batch index after the batch.
    """
    if s.status != "ready":
        return {"state": "PendingAckNotReady"}
    asked = -1 if batch_index is None else 1 << batch_index  # mask of the messages asked about; -1: all messages
    if is_deleted(s.cursor, entry) or (batch_index is not None and acked_messages(cfg, s.cursor, entry) & asked):
        return {"state": "MarkDelete"}
    pending = 0  # mask of the pending messages of the entry
    if cfg.cross_type_conflicts:
        pending |= covered_messages(cfg, s.cumulative_ack, entry)
    for each in s.individual_acks:
        for ack in each.acks:
            pending |= messages_of(cfg, ack) if ack.entry == entry else 0
    return {"state": "PendingAck" if pending & asked else "NotInPendingAck"}
