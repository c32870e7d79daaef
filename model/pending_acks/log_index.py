"""Sparse index of the pending-ack log: the prefixes of the log that can be mark-deleted (PIP-153).

Models `MLPendingAckStore.pendingAckLogIndex` and `LogIndexLagBackoff`. The index maps positions in the topic to
positions in the log: no record up to the log position acks an entry after the topic position. When the subscription's
persisted mark-delete position reaches the topic position, the log is mark-deleted at the log position. The index is
checked only when a log entry is appended or replayed.

The index counts the records that are appended or replayed after it got its last key. If this count is `max_index_lag`
or more after a log entry with acks, the index gets a key for this log entry. `max_index_lag` grows with the number of
keys (`LogIndexLagBackoff`): with exponent 1, n records have in the order of sqrt(n) keys.

Log positions count from the first entry after the log's mark-delete position; a mark-delete shifts them.
"""

from __future__ import annotations

from typing import NamedTuple

from model.values import record


class LagBackoff(NamedTuple):
    """Parameters of `LogIndexLagBackoff`; None as `maximum` stands for `Long.MAX_VALUE`."""

    minimum: int
    maximum: int | None = None
    exponent: int = 1


class Key(NamedTuple):
    """A key of the index (`ack_position`) with its value (`log_position`).

    No record of the log up to and including `log_position` acks an entry of the topic after `ack_position`.
    """

    ack_position: int
    log_position: int


@record
class LogIndex(NamedTuple):
    """The index and the counters that decide when a key is added."""

    current_lag: int  # number of records since the last key was added (`currentIndexLag`)
    max_index_lag: int  # lowest value of `current_lag` at which a log entry with acks adds a key (`maxIndexLag`)
    max_ack_position: int  # last entry of the topic that any record so far acks; -1 if none (`maxAckPosition`)
    keys: tuple[Key, ...]  # ascending in both positions


def next_lag(backoff: LagBackoff, keys: int) -> int:
    """`LogIndexLagBackoff.next`: returns `max_index_lag` of an index with the given number of keys.

    Without keys, the result is `minimum`. Otherwise it is the lower of `minimum * keys ** exponent` and `maximum`.
    """
    if keys == 0:
        return backoff.minimum
    records = backoff.minimum * int(keys**backoff.exponent)
    return records if backoff.maximum is None else min(records, backoff.maximum)


def empty_index(backoff: LagBackoff) -> LogIndex:
    """Returns the index of an empty log."""
    return LogIndex(0, next_lag(backoff, 0), -1, ())


def with_entry(backoff: LagBackoff, index: LogIndex, records: int, ack_position: int, log_position: int) -> LogIndex:
    """`MLPendingAckStore.handleMetadataEntry`: returns the index with one more log entry, of `records` records.

    `ack_position` is the last entry of the topic that these records ack; -1 if they are only commits and aborts. Such a
    log entry adds no key. A new key replaces a key with the same `ack_position`.
    """
    current, max_ack = index.current_lag + records, max(index.max_ack_position, ack_position)
    if ack_position < 0 or current < index.max_index_lag:
        return LogIndex(current, index.max_index_lag, max_ack, index.keys)
    keys = index.keys
    if keys and keys[-1].ack_position == max_ack:
        keys = keys[:-1]
    keys = (*keys, Key(max_ack, log_position))
    return LogIndex(0, next_lag(backoff, len(keys)), max_ack, keys)


def without_acked(backoff: LagBackoff, index: LogIndex, first_unacked: int) -> tuple[LogIndex, int]:
    """`MLPendingAckStore.clearUselessLogData`: removes the keys that the persisted mark-delete position has reached.

    `first_unacked` is the first entry after this position. Returns the index, and the number of log entries
    to mark-delete: those up to the log position of the last removed key.
    """
    removed = sum([key.ack_position < first_unacked for key in index.keys])
    if not removed:
        return index, 0
    deleted = index.keys[removed - 1].log_position + 1
    keys = tuple([Key(key.ack_position, key.log_position - deleted) for key in index.keys[removed:]])
    return index._replace(max_index_lag=next_lag(backoff, len(keys)), keys=keys), deleted
