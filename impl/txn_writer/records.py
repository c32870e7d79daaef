"""Codec for records and entries of the transaction log and of the pending-ack store (PIP-160).

A record is one protobuf message about one transaction: `TransactionMetadataEntry` or `PendingAckMetadataEntry`. The
values of their enumerations are those of `ENUMS`. A ledger entry holds records in one of two forms:

    plain    the protobuf bytes of one record; the only form that brokers before PIP-160 write and read
    batched  magic 0x0e01 and version 1 (two bytes each, big-endian), then one message with all records of the batch

The first two bytes distinguish the two forms. No plain entry begins with the magic: its first byte is a protobuf tag,
and 0x0e is the tag of field 1 with wire type 6, which does not exist. For the same reason, a broker before PIP-160
rejects a batched entry (`old_read_entry`) and does not misread it.

Decisions where PIP-160 leaves a choice:

* A batch of one record is framed like any other batch. An empty batch is never written; reading one returns an entry
  without records.
* An unknown version is rejected. Pulsar's reader skips the version; `any_version=True` does the same.
* An entry shorter than the magic is corrupt. So is an entry with the magic and less than the version's two bytes.
* In version 1, the message of a batch holds records and nothing else. Any other field of this message is corruption.
* A record may have unknown fields, as protobuf allows: `owner` was added later. A known field with a wrong wire type or
  an undefined enum value is corruption. Protobuf would treat it as unknown and read another record, for example one
  with transaction id 0.

The format does not detect an entry that is truncated at the end of a field or record. BookKeeper's checksums do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from impl.txn_writer.schema import CLASSES
from model.machine import BadValue
from model.txn_writer.wire import BATCH_FIELD, ENUMS, HEADER, MAGIC, MESSAGES, VERSION


class BadEntry(BadValue):
    """Bytes that are not an entry, or a record that cannot be serialised. The message is one line."""


class Subscription(NamedTuple):
    """A subscription that is a participant of a transaction."""

    topic: str
    subscription: str


class TransactionRecord(NamedTuple):
    """A `TransactionMetadataEntry`. Times are in milliseconds; None means that the field is absent.

    NEW requires `timeout_ms` and `start_time`, UPDATE requires both statuses: replay reads them.
    """

    op: str  # `TransactionMetadataOp`
    txnid_least_bits: int = 0  # the transaction id within its coordinator
    txnid_most_bits: int = 0  # the coordinator id
    expected_status: str | None = None  # `TxnStatus`
    new_status: str | None = None
    partitions: tuple[str, ...] = ()
    subscriptions: tuple[Subscription, ...] = ()
    timeout_ms: int | None = None
    start_time: int | None = None
    last_modification_time: int | None = None
    max_local_txn_id: int | None = None
    owner: str | None = None


class PendingAck(NamedTuple):
    """A position acknowledged in a transaction. A clear bit of `ack_set` is an acknowledged batch index."""

    ledger_id: int
    entry_id: int
    ack_set: tuple[int, ...] = ()  # 64-bit words, signed
    batch_size: int | None = None


class PendingAckRecord(NamedTuple):
    """A `PendingAckMetadataEntry` of the pending-ack store of a subscription. Only an ACK has positions."""

    op: str  # `PendingAckOp`
    ack_type: str  # `AckType`
    txnid_least_bits: int
    txnid_most_bits: int
    positions: tuple[PendingAck, ...] = ()


Record = TransactionRecord | PendingAckRecord
R = TypeVar("R", TransactionRecord, PendingAckRecord)


class Entry(NamedTuple, Generic[R]):
    """The records of a ledger entry, in the order in which they were added. A plain entry has one record."""

    batched: bool
    records: tuple[R, ...]


# ---- writing ----


def plain_entry(record: Record) -> bytes:
    """Returns the plain entry of a record, as a broker without batching writes it. Raises BadEntry if it is invalid."""
    kind = _kind(type(record))
    message = kind.message()
    _written(lambda: kind.fill(message, record), record)
    data: bytes = _written(message.SerializeToString, record)
    return data


def batched_entry(records: Sequence[Record]) -> bytes:
    """Returns the batched entry of records of one kind. O(bytes).

    Raises BadEntry for an empty batch, for records of several kinds, and for an invalid record.
    """
    if not records:
        raise BadEntry("a batch must have at least 1 record, got 0")
    of = type(records[0])
    kind = _kind(of)
    batch = kind.batch()
    added = getattr(batch, kind.field)
    for record in records:
        if type(record) is not of:
            raise BadEntry(f"a batch must have records of one kind, got {of.__name__} and {type(record).__name__}")
        _written(functools.partial(kind.fill, added.add(), record), record)
    data: bytes = _written(batch.SerializeToString, records[0])
    return HEADER + data


def record_size(record: Record) -> int:
    """Returns the size in bytes of a record, as `TxnLogBufferedWriter` counts it. Raises as `plain_entry`."""
    return len(plain_entry(record))


def framing_overhead(sizes: Iterable[int]) -> int:
    """Returns the bytes of a batched entry besides its records: the header, and a tag and a length per record."""
    return len(HEADER) + sum([1 + _varint_size(size) for size in sizes])


def entry_size(sizes: Sequence[int]) -> int:
    """Returns the size in bytes of the batched entry of records of these sizes."""
    return framing_overhead(sizes) + sum(sizes)


def _varint_size(number: int) -> int:
    return max(1, (number.bit_length() + 6) // 7)


def _written(write: Callable[[], Any], record: Record) -> Any:
    """Returns the result of `write`. Raises BadEntry if protobuf cannot serialise the record."""
    try:
        return write()
    except (TypeError, ValueError, KeyError, EncodeError) as error:
        if isinstance(error, BadEntry):
            raise
        raise BadEntry(f"{type(record).__name__} cannot be written: {_line(error)}") from None


# ---- reading ----


def is_batched(data: bytes) -> bool:
    """Whether an entry is batched, by its first two bytes. Raises BadEntry if the entry has fewer bytes."""
    if len(data) < len(MAGIC):
        raise BadEntry(f"an entry must have at least 2 bytes, got {len(data)}")
    return data[:2] == MAGIC


def read_entry(kind: type[R], data: bytes, *, any_version: bool = False) -> Entry[R]:
    """Reads an entry whose records are of this kind: TransactionRecord or PendingAckRecord. O(bytes).

    With `any_version`, the version is skipped, as Pulsar's reader does. Raises BadEntry if the bytes are not an entry.
    """
    if not is_batched(data):
        return Entry(False, (_read_plain(kind, data),))
    if len(data) < len(HEADER):
        raise BadEntry(f"a batched entry must have {len(HEADER)} bytes of magic and version, got {len(data)} bytes")
    version = int.from_bytes(data[2:4], "big")
    if version != VERSION and not any_version:
        raise BadEntry(f"a batched entry must have version {VERSION}, got {version}")
    described = _kind(kind)
    batch = _parsed(described.batch, data[4:], f"a batch of {kind.__name__}")
    return Entry(True, tuple([described.read(message) for message in getattr(batch, described.field)]))


def old_read_entry(kind: type[R], data: bytes) -> R:
    """Reads an entry as a broker before PIP-160 does, which expects a plain entry.

    Raises BadEntry for every batched entry; the coordinator of such a broker fails to recover.
    """
    return _read_plain(kind, data)


def _read_plain(kind: type[R], data: bytes) -> R:
    described = _kind(kind)
    record: R = described.read(_parsed(described.message, data, kind.__name__))
    return record


def _parsed(message_class: Any, data: bytes, name: str) -> Any:
    """Parses a message. Rejects known fields with a wrong wire type or enum value, and unknown fields of a batch."""
    message = message_class()
    try:
        message.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError):
        raise BadEntry(f"{name} cannot be read from {len(data)} bytes: {_corruption(data)}") from None
    if not message.IsInitialized():
        raise BadEntry(f"{name} lacks {', '.join(message.FindInitializationErrors())}")
    # protobuf keeps corrupt fields as unknown fields; if there are any, the message becomes smaller without them
    size = message.ByteSize()
    message.DiscardUnknownFields()
    if message.ByteSize() != size:
        again = message_class()
        again.ParseFromString(data)
        _reject_corrupt_fields(again, name)
    return message


def _corruption(data: bytes) -> str:
    """Returns the reason why the bytes cannot be parsed."""
    if data and data[0] & 7 > 5:
        return f"field {data[0] >> 3} has wire type {data[0] & 7}, which does not exist"
    return "truncated, or not protobuf"


def _reject_corrupt_fields(message: Any, name: str) -> None:
    """Rejects corrupt fields, which protobuf treats as unknown, in the message and all nested messages.

    Other unknown fields are rejected in a batch only.
    """
    known = {field.number: field.name for field in MESSAGES[message.DESCRIPTOR.name]}
    is_batch = message.DESCRIPTOR.name.startswith("Batched")
    fields: Any = UnknownFieldSet(message)
    for unknown in fields:
        number = unknown.field_number
        if number in known:
            wire = unknown.wire_type
            value = f"undefined value {unknown.data}" if wire == 0 else f"wrong wire type {wire}"
            raise BadEntry(f"{name}.{known[number]} has {value}")
        if is_batch:
            raise BadEntry(f"{name} must have only field {BATCH_FIELD} in version {VERSION}, got field {number}")
    for described, value in message.ListFields():
        if described.message_type is not None:
            for inner in value:
                _reject_corrupt_fields(inner, described.message_type.name)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


# ---- the two kinds of records ----

_OP_NUMBERS = ENUMS["TransactionMetadataOp"]
_OPS_BY_NUMBER = {number: name for name, number in _OP_NUMBERS.items()}
_STATUS_NUMBERS = ENUMS["TxnStatus"]
_STATUSES_BY_NUMBER = {number: name for name, number in _STATUS_NUMBERS.items()}
_PENDING_OP_NUMBERS = ENUMS["PendingAckOp"]
_PENDING_OPS_BY_NUMBER = {number: name for name, number in _PENDING_OP_NUMBERS.items()}
_ACK_TYPE_NUMBERS = ENUMS["AckType"]
_ACK_TYPES_BY_NUMBER = {number: name for name, number in _ACK_TYPE_NUMBERS.items()}
_INTEGER_FIELDS = ("timeout_ms", "start_time", "last_modification_time", "max_local_txn_id")
#: the fields, by op, without which a record cannot be replayed
_REQUIRED = {"NEW": ("timeout_ms", "start_time"), "UPDATE": ("expected_status", "new_status")}


def _fill_transaction(message: Any, record: TransactionRecord) -> None:
    message.metadata_op = _number(_OP_NUMBERS, record.op, "op")
    message.txnid_least_bits = record.txnid_least_bits
    message.txnid_most_bits = record.txnid_most_bits
    for name in ("expected_status", "new_status"):
        status = getattr(record, name)
        if status is not None:
            setattr(message, name, _number(_STATUS_NUMBERS, status, name))
    message.partitions.extend(record.partitions)
    for topic, subscription in record.subscriptions:
        message.subscriptions.add(topic=topic, subscription=subscription)
    for name in _INTEGER_FIELDS:
        number = getattr(record, name)
        if number is not None:
            setattr(message, name, number)
    if record.owner is not None:
        message.owner = record.owner
    _require_fields(record)


def _read_transaction(message: Any) -> TransactionRecord:
    has = message.HasField
    if not has("metadata_op"):
        raise BadEntry("TransactionRecord lacks metadata_op")
    subscriptions = [
        Subscription(_text(each.topic, "topic"), _text(each.subscription, "subscription"))
        for each in message.subscriptions
    ]
    record = TransactionRecord(
        _OPS_BY_NUMBER[message.metadata_op],
        message.txnid_least_bits,
        message.txnid_most_bits,
        _STATUSES_BY_NUMBER[message.expected_status] if has("expected_status") else None,
        _STATUSES_BY_NUMBER[message.new_status] if has("new_status") else None,
        tuple([_text(each, "partitions") for each in message.partitions]),
        tuple(subscriptions),
        message.timeout_ms if has("timeout_ms") else None,
        message.start_time if has("start_time") else None,
        message.last_modification_time if has("last_modification_time") else None,
        message.max_local_txn_id if has("max_local_txn_id") else None,
        _text(message.owner, "owner") if has("owner") else None,
    )
    _require_fields(record)
    return record


def _require_fields(record: TransactionRecord) -> None:
    """Raises BadEntry if a field is absent that the op requires."""
    for name in _REQUIRED.get(record.op, ()):
        if getattr(record, name) is None:
            raise BadEntry(f"TransactionRecord {record.op} lacks {name}")


def _fill_pending(message: Any, record: PendingAckRecord) -> None:
    message.pending_ack_op = _number(_PENDING_OP_NUMBERS, record.op, "op")
    message.ack_type = _number(_ACK_TYPE_NUMBERS, record.ack_type, "ack_type")
    message.txnid_least_bits = record.txnid_least_bits
    message.txnid_most_bits = record.txnid_most_bits
    for ledger_id, entry_id, ack_set, batch_size in record.positions:
        added = message.pending_ack_metadata.add(ledgerId=ledger_id, entryId=entry_id)
        added.ack_set.extend(ack_set)
        if batch_size is not None:
            added.batch_size = batch_size


def _read_pending(message: Any) -> PendingAckRecord:
    for name in ("pending_ack_op", "ack_type", "txnid_least_bits", "txnid_most_bits"):
        if not message.HasField(name):
            raise BadEntry(f"PendingAckRecord lacks {name}")
    return PendingAckRecord(
        _PENDING_OPS_BY_NUMBER[message.pending_ack_op],
        _ACK_TYPES_BY_NUMBER[message.ack_type],
        message.txnid_least_bits,
        message.txnid_most_bits,
        tuple(
            [
                PendingAck(
                    each.ledgerId,
                    each.entryId,
                    tuple(each.ack_set),
                    each.batch_size if each.HasField("batch_size") else None,
                )
                for each in message.pending_ack_metadata
            ]
        ),
    )


def _number(numbers: dict[str, int], value: str, name: str) -> int:
    """Returns the number of an enum value of the field `name`."""
    number = numbers.get(value) if isinstance(value, str) else None
    if number is None:
        raise BadEntry(f"{name} must be one of {', '.join(numbers)}, got {value!r}")
    return number


def _text(value: Any, name: str) -> str:
    """Returns the string of a field. For a string that is not UTF-8, some builds of protobuf return bytes."""
    if isinstance(value, str):
        return value
    raise BadEntry(f"TransactionRecord.{name} is not UTF-8")


class _Kind(NamedTuple):
    """The protobuf classes of one kind of record, and its conversions."""

    message: Any  # the message class of a record
    fill: Callable[[Any, Any], None]
    read: Callable[[Any], Any]
    batch: Any  # the message class of a batch
    field: str  # the batch's field with the records


_KINDS: dict[type, _Kind] = {
    TransactionRecord: _Kind(
        CLASSES["TransactionMetadataEntry"],
        _fill_transaction,
        _read_transaction,
        CLASSES["BatchedTransactionMetadataEntry"],
        "transaction_logs",
    ),
    PendingAckRecord: _Kind(
        CLASSES["PendingAckMetadataEntry"],
        _fill_pending,
        _read_pending,
        CLASSES["BatchedPendingAckMetadataEntry"],
        "pending_ack_logs",
    ),
}


def _kind(kind: Any) -> _Kind:
    """Returns the classes and conversions of a class of records. Raises BadEntry for anything else."""
    try:
        return _KINDS[kind]
    except (KeyError, TypeError):
        raise BadEntry(
            f"a record must be one of {', '.join(k.__name__ for k in _KINDS)}, got {getattr(kind, '__name__', kind)}"
        ) from None
