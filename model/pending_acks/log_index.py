"""The sparse index of the pending-ack log: which prefix of the log may go when the subscription's mark moves.

Source: PIP-153. A key says: every acknowledgement in the log up to this entry of it is of the topic's entries up to
that one. A key is made only when enough records came since the last one; the more keys, the more records it takes. So
the number of keys grows as the square root of the number of records.

    counted   an entry of the log with so many records has come; perhaps a key
    cleared   the subscription's mark has moved: the keys before it go, and with them a prefix of the log

Entries of the log are counted from the first one that is kept: trimming moves the numbers of all others.
"""

from __future__ import annotations

from typing import NamedTuple

from model.values import record


class Key(NamedTuple):
    """Up to the entry `at` of the log, itself included, no entry of the topic after `entry` is acknowledged."""

    entry: int
    at: int


@record
class LogIndex(NamedTuple):
    """The index, and what decides when it grows."""

    lag: int  # records since the last key was made
    max_lag: int  # with so many a key is made
    max_ack: int  # the last entry of the topic that is acknowledged in the log; -1: none is
    keys: tuple[Key, ...]  # in order, in both columns


def next_lag(min_lag: int, keys: int) -> int:
    """After how many records a key is made when there are so many keys."""
    return min_lag * max(keys, 1)


def empty_index(min_lag: int) -> LogIndex:
    """Nothing was counted yet."""
    return LogIndex(0, next_lag(min_lag, 0), -1, ())


def counted(min_lag: int, index: LogIndex, records: int, entry: int, at: int) -> LogIndex:
    """The index when one more entry of the log, with so many records, stands at `at`.

    `entry` is the last entry of the topic that they acknowledge; with -1, there is none, and no key is made.
    """
    lag, max_ack = index.lag + records, max(index.max_ack, entry)
    if entry < 0 or lag < index.max_lag:
        return LogIndex(lag, index.max_lag, max_ack, index.keys)
    keys = index.keys
    if keys and keys[-1].entry == max_ack:
        keys = keys[:-1]
    keys = (*keys, Key(max_ack, at))
    return LogIndex(0, next_lag(min_lag, len(keys)), max_ack, keys)


def cleared(min_lag: int, index: LogIndex, mark: int) -> tuple[LogIndex, int]:
    """The index without the keys before the subscription's durable mark, and how many entries of the log go."""
    gone = sum([key.entry < mark for key in index.keys])
    if not gone:
        return index, 0
    trimmed = index.keys[gone - 1].at + 1
    keys = tuple([Key(key.entry, key.at - trimmed) for key in index.keys[gone:]])
    return index._replace(max_lag=next_lag(min_lag, len(keys)), keys=keys), trimmed
