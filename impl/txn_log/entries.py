"""Entries of a transaction log in their wire format, serialised and parsed lazily.

An entry keeps its records in memory until the store is closed or crashes. Then only the bytes are kept, and the records
are parsed when they are needed. So what a replay applies has gone through the wire format.

In the model, the name of a participant is a number, and a record adds one participant. On the wire, a partition is a
topic name with this number, and a subscription is a topic and a subscription name with this number.
"""

from __future__ import annotations

from functools import lru_cache

from impl.txn_writer.records import Subscription, TransactionRecord, batched_entry, plain_entry, read_entry
from model.machine import BadValue
from model.txn_log.state import Entry, Record, Target

_TOPIC = "persistent://public/default/topic-partition-"
_SUBSCRIPTION = "subscription-"
#: new status of an update -> the expected status: the one that the update replaces
_EXPECTED: dict[Target, str] = {
    "COMMITTING": "OPEN",
    "COMMITTED": "COMMITTING",
    "ABORTING": "OPEN",
    "ABORTED": "ABORTING",
}
#: (expected status, new status) -> new status
_TARGETS: dict[tuple[str | None, str | None], Target] = {(expected, to): to for to, expected in _EXPECTED.items()}


def to_wire(record: Record) -> TransactionRecord:
    """Returns a record in its wire form, without the fields that its op does not use. O(1)."""
    txn, op, last_id, name, to, start_ms, timeout_ms = record
    if op == "NEW":
        return TransactionRecord(
            op,
            txn,
            timeout_ms=timeout_ms,
            start_time=start_ms,
            last_modification_time=start_ms,
            max_local_txn_id=last_id,
        )
    if to is not None:
        return TransactionRecord(op, txn, expected_status=_EXPECTED[to], new_status=to, max_local_txn_id=last_id)
    if op == "ADD_PARTITION":
        return TransactionRecord(op, txn, partitions=(f"{_TOPIC}{name}",), max_local_txn_id=last_id)
    subscription = Subscription(f"{_TOPIC}{name}", f"{_SUBSCRIPTION}{name}")
    return TransactionRecord(op, txn, subscriptions=(subscription,), max_local_txn_id=last_id)


def from_wire(record: TransactionRecord) -> Record:
    """Returns the record of a wire form: the inverse of `to_wire`. O(1).

    Raises BadValue if the last id is missing, if an update has other statuses than those of `_EXPECTED`, or if a record
    that adds a participant does not have exactly one of its kind, with a name as `to_wire` writes it. The topic of a
    subscription is not read.
    """
    txn, last_id = record.txnid_least_bits, record.max_local_txn_id
    if last_id is None:
        raise BadValue(f"a record of transaction {txn} lacks the last id")
    if record.op == "NEW":
        return Record(txn, "NEW", last_id, start_ms=record.start_time or 0, timeout_ms=record.timeout_ms or 0)
    if record.op == "UPDATE":
        to = _TARGETS.get((record.expected_status, record.new_status))
        if to is None:
            raise BadValue(f"an update of transaction {txn} from {record.expected_status} to {record.new_status}")
        return Record(txn, "UPDATE", last_id, to=to)
    names = record.partitions if record.op == "ADD_PARTITION" else [s.subscription for s in record.subscriptions]
    if len(names) != 1:
        raise BadValue(f"a record of transaction {txn} has {len(names)} participants, not 1")
    if record.op == "ADD_PARTITION":
        return Record(txn, "ADD_PARTITION", last_id, name=_number(names[0], _TOPIC))
    return Record(txn, "ADD_SUBSCRIPTION", last_id, name=_number(names[0], _SUBSCRIPTION))


def _number(name: str, prefix: str) -> int:
    """Returns the number after the prefix of a name. Raises BadValue if the name is not this prefix and a number."""
    head, found, digits = name.partition(prefix)
    if head or not found or not digits.isdecimal():
        raise BadValue(f"the name {name} is not {prefix} and a number")
    return int(digits)


@lru_cache(maxsize=1 << 15)
def serialize(records: Entry, batched: bool) -> bytes:
    """Returns the bytes of an entry: a batch of one or more records, or a plain record. O(records)."""
    if batched:
        return batched_entry([to_wire(each) for each in records])
    [record] = records
    return plain_entry(to_wire(record))


@lru_cache(maxsize=1 << 15)
def parse(data: bytes) -> Entry:
    """Returns the records of an entry, a batch or a plain record. O(bytes)."""
    return tuple([from_wire(each) for each in read_entry(TransactionRecord, data).records])


class LogEntry:
    """A log entry: its records, or its bytes, or both."""

    __slots__ = ("_batched", "_data", "_known", "size")

    def __init__(self, records: Entry, batched: bool) -> None:
        self.size = len(records)
        self._known: Entry | None = records  # the records; None after `forget`, until they are parsed
        self._batched = batched
        self._data: bytes | None = None  # None until the first `forget`

    @property
    def records(self) -> Entry:
        """Returns the records. O(1), or O(bytes) for the first use after `forget`, which parses them."""
        if self._known is None:
            assert self._data is not None
            self._known = parse(self._data)
        return self._known

    def forget(self) -> None:
        """Keeps only the bytes: the store is closed or crashes. O(records) the first time, then O(1)."""
        if self._known is not None:
            if self._data is None:
                self._data = serialize(self._known, self._batched)
            self._known = None
