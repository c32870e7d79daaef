"""Message ids of negative acks: which ids the tracker retains, and the chunks of chunked messages.

Models the id handling of the Java client's `NegativeAcksTracker` and
`ConsumerImpl.unAckedChunkedMessageIdSequenceMap`. The tracker (model/negative_acks/machine.py) calls
`retained_after_nack` for every nack and `ids_to_redeliver` for every redelivery command.

    plain id      ledger and entry; the tracker drops partition and batch index
    retained id   an id that the tracker keeps for an entry: by default, if the id is traced or of a chunked message.
                  The next redelivery of the entry has this id; then the tracker drops it. Without a retained id, a
                  redelivery has the plain id
    chunks        when the last chunk of a chunked message is redelivered, all chunks of the message are redelivered,
                  and the message is removed from `unAckedChunkedMessageIdSequenceMap`
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple

from model.positions import Position
from model.values import AtLeast, record

#: The class of a message id: `MessageIdImpl`, `BatchMessageIdImpl`, `TopicMessageIdImpl`, `ChunkMessageIdImpl`.
Kind = Literal["message_id", "batch", "topic", "chunk"]

#: `DUMMY_PARTITION_INDEX`: the partition of an id that the tracker builds from ledger and entry. (Not modelled: in the
#: C++ client this partition is -1, and in the Go client 0.)
DUMMY_PARTITION = -2


class NackedId(NamedTuple):
    """A nacked message id without ledger id and entry id. A chunked message is nacked by the id of its last chunk."""

    kind: Kind = "message_id"
    partition: Annotated[int, AtLeast(-1)] = -1  # -1: the topic is not partitioned
    traced: bool = False  # whether the id has a span (`TraceableMessageId`)
    first_chunk: Position | None = None  # of a chunked message
    batch_index: Annotated[int, AtLeast(0)] | None = None  # None: not the id of a message in a batch


@record
class MessageId(NamedTuple):
    """A message id passed to `redeliverUnacknowledgedMessages`."""

    position: Position
    partition: int = DUMMY_PARTITION
    kind: Kind = "message_id"
    first_chunk: Position | None = None  # of a chunked message
    batch_index: int | None = None  # of a retained id only


class ChunkedMessage(NamedTuple):
    """A received chunked message: its id and the positions of its chunks."""

    id: MessageId
    chunks: tuple[Position, ...]


def order_in_command(each: MessageId) -> tuple[object, ...]:
    """Returns the sort key of an id in a command: its fields in their order. None comes before any value."""
    return *each[:3], each.first_chunk or (), -1 if each.batch_index is None else each.batch_index


def retained_after_nack(
    rule: str, retained: tuple[MessageId, ...], position: Position, nacked: NackedId
) -> tuple[MessageId, ...]:
    """Returns the retained ids after a nack. A newly retained id replaces the retained id of the same entry.

    `rule` is `Config.retained_ids`. "traced": only the id of a traced or chunked message is retained. "with_partition":
    ledger, entry and partition of every id are retained. "none": no id is retained.
    """
    if rule == "traced" and (nacked.traced or nacked.kind == "chunk"):
        new = MessageId(position, nacked.partition, nacked.kind, nacked.first_chunk, nacked.batch_index)
        return with_id(retained, new)
    return with_id(retained, MessageId(position, nacked.partition)) if rule == "with_partition" else retained


def with_id(retained: tuple[MessageId, ...], new: MessageId) -> tuple[MessageId, ...]:
    """Returns the retained ids, sorted by position. `new` replaces the retained id of the same entry."""
    others = [each for each in retained if each.position != new.position]
    return tuple(sorted([*others, new]))


def with_chunked_message(messages: tuple[ChunkedMessage, ...], new: ChunkedMessage) -> tuple[ChunkedMessage, ...]:
    """Returns the chunked messages, sorted by id. `new` replaces a chunked message with the same id."""
    others = [each for each in messages if each.id != new.id]
    return tuple(sorted([*others, new]))


def ids_to_redeliver(retained: tuple[MessageId, ...], entries: list[Position], unique: str) -> list[MessageId]:
    """Returns the ids of one redelivery command for the entries of the due buckets.

    An entry that is in several due buckets occurs several times in `entries`. `unique` is `Config.unique_in_command`.
    `entry`: the command has one id for each entry. `message_id`: each id once; if an entry with a retained id is in two
    due buckets, the command has its retained id and its plain id. `nothing`: one id for each due bucket that has the
    entry; the first one is the retained id.
    """
    if not retained and unique != "nothing":
        return [MessageId(entry) for entry in dict.fromkeys(entries)]
    by_position = {each.position: each for each in retained}
    if unique == "entry":
        return [by_position.get(entry) or MessageId(entry) for entry in dict.fromkeys(entries)]
    ids = [by_position.pop(entry) if entry in by_position else MessageId(entry) for entry in entries]
    return ids if unique == "nothing" else list(dict.fromkeys(ids))


def is_found(rule: str, message: ChunkedMessage, ids: list[MessageId]) -> bool:
    """Returns whether the lookup of the redelivered ids in `unAckedChunkedMessageIdSequenceMap` finds this message.

    `rule` is `Config.chunks_found_by`.
    """
    if rule == "message_id":
        return message.id in ids
    return any(each.position == message.id.position for each in ids)


def without(retained: tuple[MessageId, ...], positions: Iterable[Position]) -> tuple[MessageId, ...]:
    """Returns the retained ids of all entries but those at these positions."""
    removed = set(positions)
    return tuple([each for each in retained if each.position not in removed])
