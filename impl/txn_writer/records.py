"""Records and entries of the transaction log and of the pending-ack store as real bytes (PIP-160).

A *record* is one step of a transaction. An *entry* is what a ledger keeps, in one of two forms:

    plain    the record's protobuf bytes, and nothing else; what every broker before PIP-160 writes and reads
    batched  magic 0x0e01, version 1 (two bytes each, big-endian), then a message with all records of the batch

A reader looks at the first two bytes. No plain entry begins with the magic: its first byte is a protobuf tag, and
0x0e would be field 1 with wire type 6, which there is not. That is also why a broker before PIP-160 fails loudly
on a batch (`old_read_entry`) instead of misreading it.

Where PIP-160 leaves a choice:

* A batch of one record is framed, too. A batch of none is never written; read, it is an entry without records.
* An unknown version is refused. The shipped reader skips the version: `any_version=True` does so, too.
* An entry shorter than the magic is damaged, and so is one with the magic and no version.
* The message around the records holds records and nothing else in version 1: anything else in it is damage.
* A record may have fields that are unknown here, as protobuf has it: `owner` came late. A field that is known, with
  a wire type or a word that is none of its own, is damage; protobuf would take it for unknown, and the record for
  another one (a transaction number of zero).

Nothing in the format notices an entry that was cut where a field or a record ends. The ledger's checksums do.
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

OPS = tuple(ENUMS["TransactionMetadataOp"])
STATUSES = tuple(ENUMS["TxnStatus"])
PENDING_ACK_OPS = tuple(ENUMS["PendingAckOp"])
ACK_TYPES = tuple(ENUMS["AckType"])


class BadEntry(BadValue):
    """Bytes that are no entry, or a record that cannot be written as one; the message says what is wrong."""


class Subscription(NamedTuple):
    """A subscription that takes part in a transaction."""

    topic: str
    subscription: str


class TransactionRecord(NamedTuple):
    """A step of a transaction in its coordinator's log. Times in milliseconds; None: the field is not there.

    NEW needs `timeout_ms` and `start_time`, UPDATE needs both statuses: a coordinator cannot go on without.
    """

    op: str  # one of OPS
    txnid_least_bits: int = 0  # the number of the transaction at its coordinator
    txnid_most_bits: int = 0  # the coordinator
    expected_status: str | None = None  # one of STATUSES
    new_status: str | None = None
    partitions: tuple[str, ...] = ()
    subscriptions: tuple[Subscription, ...] = ()
    timeout_ms: int | None = None
    start_time: int | None = None
    last_modification_time: int | None = None
    max_local_txn_id: int | None = None
    owner: str | None = None


class PendingAck(NamedTuple):
    """A position acknowledged in a transaction. In the words of `ack_set`, a bit of zero is acknowledged."""

    ledger_id: int
    entry_id: int
    ack_set: tuple[int, ...] = ()  # 64-bit words, signed
    batch_size: int | None = None


class PendingAckRecord(NamedTuple):
    """A step of a transaction in the pending-ack log of a subscription; only an ACK has positions."""

    op: str  # one of PENDING_ACK_OPS
    ack_type: str  # one of ACK_TYPES
    txnid_least_bits: int
    txnid_most_bits: int
    positions: tuple[PendingAck, ...] = ()


Record = TransactionRecord | PendingAckRecord
R = TypeVar("R", TransactionRecord, PendingAckRecord)


class Entry(NamedTuple, Generic[R]):
    """What an entry holds, in the order in which it was added; a plain entry holds one record."""

    batched: bool
    records: tuple[R, ...]


# ---- writing ----


def plain_entry(record: Record) -> bytes:
    """The record alone, as every broker writes it whose batching is off. Raises BadEntry for no possible record."""
    kind = _kind(type(record))
    message = kind.message()
    _written(lambda: kind.fill(message, record), record)
    data: bytes = _written(message.SerializeToString, record)
    return data


def batched_entry(records: Sequence[Record]) -> bytes:
    """Records of one kind in one entry, framed also when there is but one. O(bytes).

    Raises BadEntry when there is none, for a mixture of kinds, and for no possible record.
    """
    if not records:
        raise BadEntry("a batch has one record at least, this one has none")
    of = type(records[0])
    kind = _kind(of)
    batch = kind.batch()
    added = getattr(batch, kind.field)
    for record in records:
        if type(record) is not of:
            raise BadEntry(f"a batch has records of one kind, not {of.__name__} and {type(record).__name__}")
        _written(functools.partial(kind.fill, added.add(), record), record)
    data: bytes = _written(batch.SerializeToString, records[0])
    return HEADER + data


def record_size(record: Record) -> int:
    """The bytes of the record itself, which is what `maxSize` of a buffered writer counts. Raises as `plain_entry`."""
    return len(plain_entry(record))


def framing_overhead(sizes: Iterable[int]) -> int:
    """The bytes that a batched entry has beside its records of these sizes: the header, and a tag and a length each."""
    return len(HEADER) + sum([1 + _varint_size(size) for size in sizes])


def entry_size(sizes: Sequence[int]) -> int:
    """The bytes of the batched entry that holds records of these sizes."""
    return framing_overhead(sizes) + sum(sizes)


def _varint_size(number: int) -> int:
    return max(1, (number.bit_length() + 6) // 7)


def _written(write: Callable[[], Any], record: Record) -> Any:
    """What `write` gives; what protobuf cannot write is said in one line."""
    try:
        return write()
    except (TypeError, ValueError, KeyError, EncodeError) as error:
        if isinstance(error, BadEntry):
            raise
        raise BadEntry(f"{type(record).__name__} cannot be written: {_line(error)}") from None


# ---- reading ----


def is_batched(data: bytes) -> bool:
    """Whether an entry is a batch, by its first two bytes. Raises BadEntry when it has not as many."""
    if len(data) < len(MAGIC):
        raise BadEntry(f"an entry has 2 bytes at least, this one has {len(data)}")
    return data[:2] == MAGIC


def read_entry(kind: type[R], data: bytes, *, any_version: bool = False) -> Entry[R]:
    """The records of an entry of the log of that kind: TransactionRecord or PendingAckRecord. O(bytes).

    With `any_version`, the version is skipped as the shipped reader does. Raises BadEntry for what is no entry.
    """
    if not is_batched(data):
        return Entry(False, (_read_plain(kind, data),))
    if len(data) < len(HEADER):
        raise BadEntry(f"a batched entry has a version after the magic, this one ends after {len(data)} bytes")
    version = int.from_bytes(data[2:4], "big")
    if version != VERSION and not any_version:
        raise BadEntry(f"a batched entry of version {version}, only version {VERSION} can be read")
    described = _kind(kind)
    batch = _parsed(described.batch, data[4:], f"a batch of {kind.__name__}")
    return Entry(True, tuple([described.read(message) for message in getattr(batch, described.field)]))


def old_read_entry(kind: type[R], data: bytes) -> R:
    """The record of an entry as a broker before PIP-160 reads it, which knows of no batch.

    Raises BadEntry for a batched entry, whatever is in it, as that broker's coordinator does when it recovers.
    """
    return _read_plain(kind, data)


def _read_plain(kind: type[R], data: bytes) -> R:
    described = _kind(kind)
    record: R = described.read(_parsed(described.message, data, kind.__name__))
    return record


def _parsed(message_class: Any, data: bytes, name: str) -> Any:
    """The message, in which every field is one that it knows or, in a record, one of a number that it does not know."""
    message = message_class()
    try:
        message.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError):
        raise BadEntry(f"{name} cannot be read from {len(data)} bytes: {_damage(data)}") from None
    if not message.IsInitialized():
        raise BadEntry(f"{name} lacks {', '.join(message.FindInitializationErrors())}")
    size = message.ByteSize()
    message.DiscardUnknownFields()
    if message.ByteSize() != size:
        again = message_class()
        again.ParseFromString(data)
        _refuse_unknown(again, name)
    return message


def _damage(data: bytes) -> str:
    """Why bytes are no message: the first tag, where that is it."""
    if data and data[0] & 7 > 5:
        return f"field {data[0] >> 3} has wire type {data[0] & 7}, which does not exist"
    return "truncated, or not protobuf"


def _refuse_unknown(message: Any, name: str) -> None:
    """Refuses damaged fields, which protobuf takes for unknown, in the message and in all messages in it."""
    known = {field.number: field.name for field in MESSAGES[message.DESCRIPTOR.name]}
    batch = message.DESCRIPTOR.name.startswith("Batched")
    fields: Any = UnknownFieldSet(message)
    for unknown in fields:
        number = unknown.field_number
        if number in known:
            wire = unknown.wire_type
            value = f"{unknown.data}, which it cannot be" if wire == 0 else f"wire type {wire}, which it has not"
            raise BadEntry(f"{name}.{known[number]} has {value}")
        if batch:
            raise BadEntry(f"{name} has a field {number}; a batch of version {VERSION} has field {BATCH_FIELD} only")
    for described, value in message.ListFields():
        if described.message_type is not None:
            for inner in value:
                _refuse_unknown(inner, described.message_type.name)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


# ---- the two kinds ----

_OP_NUMBERS = ENUMS["TransactionMetadataOp"]
_OP_WORDS = {number: word for word, number in _OP_NUMBERS.items()}
_STATUS_NUMBERS = ENUMS["TxnStatus"]
_STATUS_WORDS = {number: word for word, number in _STATUS_NUMBERS.items()}
_PENDING_NUMBERS = ENUMS["PendingAckOp"]
_PENDING_WORDS = {number: word for word, number in _PENDING_NUMBERS.items()}
_TYPE_NUMBERS = ENUMS["AckType"]
_TYPE_WORDS = {number: word for word, number in _TYPE_NUMBERS.items()}
_NUMBERS = ("timeout_ms", "start_time", "last_modification_time", "max_local_txn_id")
#: what a record of an op must have, or whoever replays it cannot go on
_NEEDED = {"NEW": ("timeout_ms", "start_time"), "UPDATE": ("expected_status", "new_status")}


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
    for name in _NUMBERS:
        number = getattr(record, name)
        if number is not None:
            setattr(message, name, number)
    if record.owner is not None:
        message.owner = record.owner
    _complete(record)


def _read_transaction(message: Any) -> TransactionRecord:
    has = message.HasField
    if not has("metadata_op"):
        raise BadEntry("TransactionRecord lacks metadata_op")
    subscriptions = [
        Subscription(_text(each.topic, "topic"), _text(each.subscription, "subscription"))
        for each in message.subscriptions
    ]
    record = TransactionRecord(
        _OP_WORDS[message.metadata_op],
        message.txnid_least_bits,
        message.txnid_most_bits,
        _STATUS_WORDS[message.expected_status] if has("expected_status") else None,
        _STATUS_WORDS[message.new_status] if has("new_status") else None,
        tuple([_text(each, "partitions") for each in message.partitions]),
        tuple(subscriptions),
        message.timeout_ms if has("timeout_ms") else None,
        message.start_time if has("start_time") else None,
        message.last_modification_time if has("last_modification_time") else None,
        message.max_local_txn_id if has("max_local_txn_id") else None,
        _text(message.owner, "owner") if has("owner") else None,
    )
    _complete(record)
    return record


def _complete(record: TransactionRecord) -> None:
    for name in _NEEDED.get(record.op, ()):
        if getattr(record, name) is None:
            raise BadEntry(f"TransactionRecord {record.op} lacks {name}")


def _fill_pending(message: Any, record: PendingAckRecord) -> None:
    message.pending_ack_op = _number(_PENDING_NUMBERS, record.op, "op")
    message.ack_type = _number(_TYPE_NUMBERS, record.ack_type, "ack_type")
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
        _PENDING_WORDS[message.pending_ack_op],
        _TYPE_WORDS[message.ack_type],
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


def _number(numbers: dict[str, int], word: str, name: str) -> int:
    number = numbers.get(word) if isinstance(word, str) else None
    if number is None:
        raise BadEntry(f"{name} is {word!r}, must be one of {', '.join(numbers)}")
    return number


def _text(value: Any, name: str) -> str:
    """The text of a field; some builds of protobuf hand out bytes where they are not UTF-8."""
    if isinstance(value, str):
        return value
    raise BadEntry(f"TransactionRecord.{name} is not UTF-8")


class _Kind(NamedTuple):
    """How records of a kind are written and read."""

    message: Any  # the class of the message that is a record
    fill: Callable[[Any, Any], None]
    read: Callable[[Any], Any]
    batch: Any  # the class of the message that holds records
    field: str  # and its field that does


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
    try:
        return _KINDS[kind]
    except (KeyError, TypeError):
        raise BadEntry(f"{kind!r} is no kind of record; there are {', '.join(k.__name__ for k in _KINDS)}") from None
