"""The messages of the transaction log and of the pending-ack store as protobuf classes.

The classes are built on import from the tables of `model/txn_writer/wire.py`; no code is generated. They have their own
descriptor pool, so messages of the same name in another library do not collide.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from model.txn_writer.wire import ENUMS, MESSAGES, PACKAGE

#: The numbers of labels and types in `FieldDescriptorProto`.
_LABELS = {"optional": 1, "required": 2, "repeated": 3}
_SCALARS = {"uint64": 4, "int64": 3, "int32": 5, "string": 9}
_ENUM, _MESSAGE = 14, 11


def _classes() -> dict[str, Any]:
    """Builds a file descriptor from the tables, and classes from the descriptor."""
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


#: message -> class; mypy does not see the fields, which come from the tables
CLASSES: dict[str, Any] = _classes()
