"""The messages of the transaction log and of the pending-ack store (PIP-160), as protobuf classes made from a table.

The layout on the wire is proto2: a field is known by its number and its type; names and enumerations are for people.
What PIP-160 added are the two messages that hold many records of a kind, told by `BATCH_FIELD`, their only field.

The classes are made when this module is imported, in a pool of their own: nothing is generated or registered
elsewhere, and another library's messages of the same names do no harm. Source: PIP-160 (protocol changes), PIP-31.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "pulsar.proto"

#: what each word of an enumeration is on the wire
ENUMS: dict[str, dict[str, int]] = {
    "TransactionMetadataOp": {"NEW": 0, "ADD_PARTITION": 1, "ADD_SUBSCRIPTION": 2, "UPDATE": 3},
    "TxnStatus": {"OPEN": 0, "COMMITTING": 1, "COMMITTED": 2, "ABORTING": 3, "ABORTED": 4},
    "PendingAckOp": {"ACK": 1, "COMMIT": 2, "ABORT": 3},
    "AckType": {"Individual": 0, "Cumulative": 1},
}


class Field(NamedTuple):
    """A field of a message: its number, its name, how often it may be there, and the name of its type."""

    number: int
    name: str
    label: str
    kind: str
    default: str = ""


#: the number of the only field of a message that holds many records
BATCH_FIELD = 1

MESSAGES: dict[str, tuple[Field, ...]] = {
    "Subscription": (
        Field(1, "topic", "required", "string"),
        Field(2, "subscription", "required", "string"),
    ),
    "TransactionMetadataEntry": (
        Field(1, "metadata_op", "optional", "TransactionMetadataOp"),
        Field(2, "txnid_least_bits", "optional", "uint64", default="0"),
        Field(3, "txnid_most_bits", "optional", "uint64", default="0"),
        Field(4, "expected_status", "optional", "TxnStatus"),
        Field(5, "new_status", "optional", "TxnStatus"),
        Field(6, "partitions", "repeated", "string"),
        Field(7, "subscriptions", "repeated", "Subscription"),
        Field(8, "timeout_ms", "optional", "uint64"),
        Field(9, "start_time", "optional", "uint64"),
        Field(10, "last_modification_time", "optional", "uint64"),
        Field(11, "max_local_txn_id", "optional", "uint64"),
        Field(12, "owner", "optional", "string"),
    ),
    "PendingAckMetadata": (
        Field(1, "ledgerId", "required", "uint64"),
        Field(2, "entryId", "required", "uint64"),
        Field(3, "ack_set", "repeated", "int64"),
        Field(4, "batch_size", "optional", "int32"),
    ),
    "PendingAckMetadataEntry": (
        Field(1, "pending_ack_op", "optional", "PendingAckOp"),
        Field(2, "ack_type", "optional", "AckType"),
        Field(3, "txnid_least_bits", "optional", "uint64"),
        Field(4, "txnid_most_bits", "optional", "uint64"),
        Field(5, "pending_ack_metadata", "repeated", "PendingAckMetadata"),
    ),
    "BatchedTransactionMetadataEntry": (
        Field(BATCH_FIELD, "transaction_logs", "repeated", "TransactionMetadataEntry"),
    ),
    "BatchedPendingAckMetadataEntry": (Field(BATCH_FIELD, "pending_ack_logs", "repeated", "PendingAckMetadataEntry"),),
}

_LABELS = {"optional": 1, "required": 2, "repeated": 3}
_SCALARS = {"uint64": 4, "int64": 3, "int32": 5, "string": 9}
_ENUM, _MESSAGE = 14, 11


def _classes() -> dict[str, Any]:
    """The table as a description of a file, and the description as classes."""
    file = descriptor_pb2.FileDescriptorProto(name="transactions.proto", package=PACKAGE, syntax="proto2")
    for name, words in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for word, number in words.items():
            enum.value.add(name=word, number=number)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields:
            described = message.field.add(name=field.name, number=field.number)
            described.label = _LABELS[field.label]  # type: ignore[assignment]
            if field.kind in _SCALARS:
                described.type = _SCALARS[field.kind]  # type: ignore[assignment]
            else:
                described.type = _ENUM if field.kind in ENUMS else _MESSAGE  # type: ignore[assignment]
                described.type_name = f".{PACKAGE}.{field.kind}"
            if field.default:
                described.default_value = field.default
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    full = {name: pool.FindMessageTypeByName(f"{PACKAGE}.{name}") for name in MESSAGES}
    return {name: message_factory.GetMessageClass(described) for name, described in full.items()}


#: the class of each message; mypy does not see their fields, which come from the table
CLASSES: dict[str, Any] = _classes()
