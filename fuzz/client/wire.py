"""Pulsar's binary protocol: frames, checksums, and protobuf messages built from a table of field numbers.

A frame is the length of all that follows, the length of a command, and the command. Lengths have four bytes,
big-endian. After the command, SEND and MESSAGE have headers and payload: optionally the magic number 0x0e01 and the
CRC32C of all bytes that follow, then the length of the metadata, the metadata, and the payload. Functions here take
headers and payload as `message`; `topic.py` calls them `headers_and_payload`. The payload of a batch has for each of
its messages the length of the `SingleMessageMetadata`, the `SingleMessageMetadata`, and the message's own payload.

The names are those of `PulsarApi.proto`, some of them shortened: LOOKUP is `CommandLookupTopic`, REDELIVER is
`CommandRedeliverUnacknowledgedMessages`, `ledger` is `ledgerId`, `ack_words` is the ack set. In `BaseCommand`, the
number of the field with a command's body is the number of the command's type.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

_PACKAGE = "wire"


class _Field(NamedTuple):
    """A field of a protobuf message. `type` is a key of `_SCALARS` or `_MESSAGES`; enums are int32, as on the wire."""

    name: str
    number: int
    type: str
    is_repeated: bool = False


#: The fields of each message.
_MESSAGES: dict[str, tuple[_Field, ...]] = {
    "MessageId": (
        _Field("ledger", 1, "uint64"),
        _Field("entry", 2, "uint64"),
        _Field("partition", 3, "int32"),
        _Field("batch_index", 4, "int32"),
        _Field("ack_words", 5, "int64", is_repeated=True),
        _Field("batch_size", 6, "int32"),
    ),
    "KeyValue": (_Field("key", 1, "string"), _Field("value", 2, "string")),
    "Metadata": (
        _Field("producer_name", 1, "string"),
        _Field("sequence_id", 2, "uint64"),
        _Field("publish_time", 3, "uint64"),
        _Field("properties", 4, "KeyValue", is_repeated=True),
        _Field("partition_key", 6, "string"),
        _Field("compression", 8, "int32"),
        _Field("num_messages_in_batch", 11, "int32"),
        _Field("highest_sequence_id", 24, "uint64"),
        _Field("uuid", 26, "string"),
        _Field("num_chunks", 27, "int32"),
        _Field("total_chunk_size", 28, "int32"),
        _Field("chunk_id", 29, "int32"),
    ),
    "SingleMetadata": (
        _Field("properties", 1, "KeyValue", is_repeated=True),
        _Field("partition_key", 2, "string"),
        _Field("payload_size", 3, "int32"),
        _Field("compacted_out", 4, "bool"),
        _Field("sequence_id", 8, "uint64"),
    ),
    "FeatureFlags": (_Field("supports_auth_refresh", 1, "bool"), _Field("supports_broker_entry_metadata", 2, "bool")),
    "CONNECT": (
        _Field("client_version", 1, "string"),
        _Field("protocol_version", 4, "int32"),
        _Field("auth_method_name", 5, "string"),
        _Field("feature_flags", 10, "FeatureFlags"),
    ),
    "CONNECTED": (
        _Field("server_version", 1, "string"),
        _Field("protocol_version", 2, "int32"),
        _Field("max_message_size", 3, "int32"),
        _Field("feature_flags", 4, "FeatureFlags"),
    ),
    "SUBSCRIBE": (
        _Field("topic", 1, "string"),
        _Field("subscription", 2, "string"),
        _Field("type", 3, "int32"),
        _Field("consumer_id", 4, "uint64"),
        _Field("request_id", 5, "uint64"),
        _Field("consumer_name", 6, "string"),
        _Field("priority_level", 7, "int32"),
        _Field("durable", 8, "bool"),
        _Field("start_message_id", 9, "MessageId"),
        _Field("read_compacted", 11, "bool"),
        _Field("initial_position", 13, "int32"),
        _Field("consumer_epoch", 19, "uint64"),
    ),
    "PRODUCER": (
        _Field("topic", 1, "string"),
        _Field("producer_id", 2, "uint64"),
        _Field("request_id", 3, "uint64"),
        _Field("producer_name", 4, "string"),
        _Field("encrypted", 5, "bool"),
        _Field("epoch", 8, "uint64"),
        _Field("user_provided_producer_name", 9, "bool"),
        _Field("access_mode", 10, "int32"),
    ),
    "SEND": (
        _Field("producer_id", 1, "uint64"),
        _Field("sequence_id", 2, "uint64"),
        _Field("num_messages", 3, "int32"),
        _Field("highest_sequence_id", 6, "uint64"),
        _Field("is_chunk", 7, "bool"),
    ),
    "SEND_RECEIPT": (
        _Field("producer_id", 1, "uint64"),
        _Field("sequence_id", 2, "uint64"),
        _Field("message_id", 3, "MessageId"),
        _Field("highest_sequence_id", 4, "uint64"),
    ),
    "SEND_ERROR": (
        _Field("producer_id", 1, "uint64"),
        _Field("sequence_id", 2, "uint64"),
        _Field("error", 3, "int32"),
        _Field("message", 4, "string"),
    ),
    "MESSAGE": (
        _Field("consumer_id", 1, "uint64"),
        _Field("message_id", 2, "MessageId"),
        _Field("redelivery_count", 3, "uint32"),
        _Field("ack_words", 4, "int64", is_repeated=True),
        _Field("consumer_epoch", 5, "uint64"),
    ),
    "ACK": (
        _Field("consumer_id", 1, "uint64"),
        _Field("ack_type", 2, "int32"),
        _Field("message_id", 3, "MessageId", is_repeated=True),
        _Field("validation_error", 4, "int32"),
        _Field("request_id", 8, "uint64"),
    ),
    "FLOW": (_Field("consumer_id", 1, "uint64"), _Field("permits", 2, "uint32")),
    "UNSUBSCRIBE": (_Field("consumer_id", 1, "uint64"), _Field("request_id", 2, "uint64"), _Field("force", 3, "bool")),
    "SUCCESS": (_Field("request_id", 1, "uint64"),),
    "ERROR": (_Field("request_id", 1, "uint64"), _Field("error", 2, "int32"), _Field("message", 3, "string")),
    "CLOSE_PRODUCER": (
        _Field("producer_id", 1, "uint64"),
        _Field("request_id", 2, "uint64"),
        _Field("broker_url", 3, "string"),
        _Field("broker_url_tls", 4, "string"),
    ),
    "CLOSE_CONSUMER": (
        _Field("consumer_id", 1, "uint64"),
        _Field("request_id", 2, "uint64"),
        _Field("broker_url", 3, "string"),
        _Field("broker_url_tls", 4, "string"),
    ),
    "PRODUCER_SUCCESS": (
        _Field("request_id", 1, "uint64"),
        _Field("producer_name", 2, "string"),
        _Field("last_sequence_id", 3, "int64"),
        _Field("schema_version", 4, "bytes"),
        _Field("topic_epoch", 5, "uint64"),
        _Field("producer_ready", 6, "bool"),
    ),
    "PING": (),
    "PONG": (),
    "REDELIVER": (
        _Field("consumer_id", 1, "uint64"),
        _Field("message_ids", 2, "MessageId", is_repeated=True),
        _Field("consumer_epoch", 3, "uint64"),
    ),
    "PARTITIONED_METADATA": (_Field("topic", 1, "string"), _Field("request_id", 2, "uint64")),
    "PARTITIONED_METADATA_RESPONSE": (
        _Field("partitions", 1, "uint32"),
        _Field("request_id", 2, "uint64"),
        _Field("response", 3, "int32"),
        _Field("error", 4, "int32"),
        _Field("message", 5, "string"),
    ),
    "LOOKUP": (
        _Field("topic", 1, "string"),
        _Field("request_id", 2, "uint64"),
        _Field("authoritative", 3, "bool"),
        _Field("listener", 7, "string"),
    ),
    "LOOKUP_RESPONSE": (
        _Field("url", 1, "string"),
        _Field("url_tls", 2, "string"),
        _Field("response", 3, "int32"),
        _Field("request_id", 4, "uint64"),
        _Field("authoritative", 5, "bool"),
        _Field("error", 6, "int32"),
        _Field("message", 7, "string"),
    ),
    "CONSUMER_STATS": (_Field("request_id", 1, "uint64"), _Field("consumer_id", 4, "uint64")),
    "CONSUMER_STATS_RESPONSE": (_Field("request_id", 1, "uint64"),),
    "REACHED_END_OF_TOPIC": (_Field("consumer_id", 1, "uint64"),),
    "SEEK": (
        _Field("consumer_id", 1, "uint64"),
        _Field("request_id", 2, "uint64"),
        _Field("message_id", 3, "MessageId"),
        _Field("publish_time", 4, "uint64"),
    ),
    "GET_LAST_MESSAGE_ID": (_Field("consumer_id", 1, "uint64"), _Field("request_id", 2, "uint64")),
    "GET_LAST_MESSAGE_ID_RESPONSE": (
        _Field("last_message_id", 1, "MessageId"),
        _Field("request_id", 2, "uint64"),
        _Field("mark_delete", 3, "MessageId"),
    ),
    "ACTIVE_CONSUMER_CHANGE": (_Field("consumer_id", 1, "uint64"), _Field("is_active", 2, "bool")),
    "ACK_RESPONSE": (
        _Field("consumer_id", 1, "uint64"),
        _Field("error", 4, "int32"),
        _Field("message", 5, "string"),
        _Field("request_id", 6, "uint64"),
    ),
    "TOPIC_MIGRATED": (_Field("resource_id", 1, "uint64"), _Field("type", 2, "int32"), _Field("url", 3, "string")),
}


class Type(IntEnum):
    """Types of commands. The number is also that of the field in `BaseCommand` that has the command's body."""

    CONNECT = 2
    CONNECTED = 3
    SUBSCRIBE = 4
    PRODUCER = 5
    SEND = 6
    SEND_RECEIPT = 7
    SEND_ERROR = 8
    MESSAGE = 9
    ACK = 10
    FLOW = 11
    UNSUBSCRIBE = 12
    SUCCESS = 13
    ERROR = 14
    CLOSE_PRODUCER = 15
    CLOSE_CONSUMER = 16
    PRODUCER_SUCCESS = 17
    PING = 18
    PONG = 19
    REDELIVER = 20
    PARTITIONED_METADATA = 21
    PARTITIONED_METADATA_RESPONSE = 22
    LOOKUP = 23
    LOOKUP_RESPONSE = 24
    CONSUMER_STATS = 25
    CONSUMER_STATS_RESPONSE = 26
    REACHED_END_OF_TOPIC = 27
    SEEK = 28
    GET_LAST_MESSAGE_ID = 29
    GET_LAST_MESSAGE_ID_RESPONSE = 30
    ACTIVE_CONSUMER_CHANGE = 31
    ACK_RESPONSE = 38
    TOPIC_MIGRATED = 68


class ServerError(IntEnum):
    """The error codes that the loopback brokers answer with."""

    METADATA_ERROR = 1
    PERSISTENCE_ERROR = 2
    CONSUMER_BUSY = 5
    SERVICE_NOT_READY = 6
    CHECKSUM_ERROR = 9
    PRODUCER_BUSY = 16
    NOT_ALLOWED = 22


#: Scalar type -> its number in `FieldDescriptorProto.Type`.
_SCALARS = {"int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "bytes": 12, "uint32": 13}
#: The type of a field that is a message, and two values of `FieldDescriptorProto.Label`.
_MESSAGE, _OPTIONAL, _REPEATED = 11, 1, 3


def _classes() -> dict[str, Any]:
    """Returns the protobuf class of each message of the table, by name. The classes have their own descriptor pool."""
    file = descriptor_pb2.FileDescriptorProto(name="wire.proto", package=_PACKAGE, syntax="proto2")
    bodies = [_Field(each.name, each.value, each.name) for each in Type]
    for name, fields in {**_MESSAGES, "BaseCommand": (_Field("type", 1, "int32"), *bodies)}.items():
        message = file.message_type.add(name=name)
        for field in fields:
            described = message.field.add(name=field.name, number=field.number)
            described.label = _REPEATED if field.is_repeated else _OPTIONAL  # type: ignore[assignment]
            described.type = _SCALARS.get(field.type, _MESSAGE)  # type: ignore[assignment]
            if field.type not in _SCALARS:
                described.type_name = f".{_PACKAGE}.{field.type}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    names = [*_MESSAGES, "BaseCommand"]
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in names}


#: The protobuf class of each message, by name. mypy does not know the fields, because they come from the table.
CLASSES = _classes()
BaseCommand = CLASSES["BaseCommand"]
Metadata = CLASSES["Metadata"]
_SingleMetadata = CLASSES["SingleMetadata"]

# ---- frames -------------------------------------------------------------------------------------------

#: Length in bytes of the longest frame that is read.
_LONGEST = 6 << 20
_TWO = struct.Struct(">II")  # the two lengths of a frame
_ONE = struct.Struct(">I")  # the length of the metadata of a message, or of one message in a batch
_CHECKED = struct.Struct(">HI")  # the magic number, and the checksum
_CHECKSUM_MAGIC = 0x0E01


class BadFrame(ValueError):
    """Received bytes that break the protocol; the message says how."""


def command_of(kind: Type, **fields: Any) -> Any:
    """Returns a command. A field that is a message takes a mapping of its fields."""
    return BaseCommand(type=kind, **{kind.name: fields})


def frame(command: Any, message: bytes = b"") -> bytes:
    """Returns the bytes of a frame with a command, and with the message behind the command, if there is one."""
    body = command.SerializeToString()
    return b"".join((_TWO.pack(4 + len(body) + len(message), len(body)), body, message))


def frames(received: bytearray) -> Iterator[tuple[Any, bytes]]:
    """Yields the command of each complete frame, and the message behind the command, which may be empty.

    Removes the frames that it has yielded from `received`. Raises BadFrame.
    """
    at, end = 0, len(received)
    data = bytes(received)
    try:
        while end - at >= 8:
            total, size = _TWO.unpack_from(data, at)
            if total > _LONGEST or size + 4 > total:
                raise BadFrame(f"a frame of {total} bytes has a command of {size}")
            if end - at < 4 + total:
                break
            body, at = at + 8, at + 4 + total
            yield BaseCommand.FromString(data[body : body + size]), data[body + size : at]
    except DecodeError as problem:
        raise BadFrame(f"a command that cannot be read: {problem}") from None
    finally:
        del received[:at]


# ---- messages -----------------------------------------------------------------------------------------


class Parts(NamedTuple):
    """The parts of a message."""

    is_intact: bool  # whether the checksum is right; True if there is no checksum
    metadata: Any
    payload: bytes


def parts_of(message: bytes, *, check: bool = True) -> Parts:
    """Returns the parts of a message. Raises BadFrame. Without `check`, every message counts as intact."""
    at, intact = 0, True
    try:
        magic, checksum = _CHECKED.unpack_from(message)
        if magic == _CHECKSUM_MAGIC:
            at = _CHECKED.size
            intact = not check or crc32c(message[at:]) == checksum
        size = _ONE.unpack_from(message, at)[0]
        at += _ONE.size
        if at + size > len(message):
            raise BadFrame(f"a message that cannot be read: {size} bytes of metadata in {len(message)} bytes")
        return Parts(intact, Metadata.FromString(message[at : at + size]), message[at + size :])
    except (struct.error, DecodeError) as problem:
        raise BadFrame(f"a message that cannot be read: {problem}") from None


def payloads_of(parts: Parts) -> tuple[bytes, ...]:
    """Returns the payloads of the messages of a batch, or of a single message. Raises BadFrame."""
    if not parts.metadata.HasField("num_messages_in_batch"):
        return (parts.payload,)
    found, at = [], 0
    try:
        for _ in range(parts.metadata.num_messages_in_batch):
            size = _ONE.unpack_from(parts.payload, at)[0]
            at += _ONE.size
            single = _SingleMetadata.FromString(parts.payload[at : at + size])
            at += size
            end = at + single.payload_size
            if not at <= end <= len(parts.payload):
                raise BadFrame(f"a batch that cannot be read: {single.payload_size} bytes in {len(parts.payload)}")
            found.append(parts.payload[at:end])
            at = end
    except (struct.error, DecodeError) as problem:
        raise BadFrame(f"a batch that cannot be read: {problem}") from None
    return tuple(found)


def _crc_table() -> tuple[int, ...]:
    """Returns the table by which `crc32c` processes a byte. 0x82F63B78 is the Castagnoli polynomial, bits reversed."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # noqa: PLW2901
        table.append(byte)
    return tuple(table)


_CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """Returns the CRC32C (Castagnoli) of bytes. Cost: O(bytes), about 20 MB/s."""
    crc, table = 0xFFFFFFFF, _CRC_TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
