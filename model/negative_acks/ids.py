"""What a redelivered message id tells beside ledger and entry, and the pieces of chunked messages.

Source: the consumers of the Java client. A side model: `model/negative_acks/machine.py` tells it of every negative
acknowledgement and asks it for the ids of what is due.

    kept     an id that is traced, or that of a chunked message, is kept and given back once, the latest of an entry
             before PIP-393, the partition of the last negative acknowledgement is kept, and nothing else
    pieces   of a chunked message whose last entry is due, all pieces are redelivered, and then forgotten

Batch indexes are dropped: an entry is redelivered as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple

from model.positions import Position
from model.values import AtLeast, record

Kind = Literal["plain", "batch", "topic", "chunk"]

#: The partition of an id that does not tell.
NOT_TOLD = -2


class Told(NamedTuple):
    """What the id of a negatively acknowledged message tells beside ledger and entry of its last piece."""

    kind: Kind = "plain"
    partition: Annotated[int, AtLeast(-1)] = -1
    traced: bool = False
    first_chunk: Position | None = None  # of a chunk's id
    batch_index: Annotated[int, AtLeast(0)] | None = None  # of a message in a batch


@record
class MessageId(NamedTuple):
    """An id as it is handed to the consumer for redelivery."""

    position: Position
    partition: int = NOT_TOLD
    kind: Kind = "plain"
    first_chunk: Position | None = None
    batch_index: int | None = None  # told only by an id that is kept


class Chunks(NamedTuple):
    """The pieces of a chunked message that was received, under the id of the whole."""

    whole: MessageId
    pieces: tuple[Position, ...]


def kept_of(rule: str, kept: tuple[MessageId, ...], position: Position, told: Told) -> tuple[MessageId, ...]:
    """The ids that are kept, after one more negative acknowledgement."""
    if rule == "traced" and (told.traced or told.kind == "chunk"):
        return with_id(kept, MessageId(position, told.partition, told.kind, told.first_chunk, told.batch_index))
    return with_id(kept, MessageId(position, told.partition)) if rule == "with_partition" else kept


def with_id(kept: tuple[MessageId, ...], new: MessageId) -> tuple[MessageId, ...]:
    """The ids, by position, with another one for its entry."""
    others = [each for each in kept if each.position != new.position]
    return tuple(sorted([*others, new]))


def with_chunks(chunks: tuple[Chunks, ...], new: Chunks) -> tuple[Chunks, ...]:
    """The chunked messages, by id, with another one."""
    others = [each for each in chunks if each.whole != new.whole]
    return tuple(sorted([*others, new]))


def ids_of(kept: tuple[MessageId, ...], entries: list[Position], rule: str) -> list[MessageId]:
    """The ids under which the entries of some slots are redelivered, in which an entry may stand more than once.

    By the rule, an entry is in the command once; or its kept id is and what else it would be, or it for each slot.
    """
    if not kept and rule != "slots":
        return [MessageId(entry) for entry in dict.fromkeys(entries)]
    told = {each.position: each for each in kept}
    if rule == "entries":
        return [told.get(entry) or MessageId(entry) for entry in dict.fromkeys(entries)]
    ids = [told.pop(entry) if entry in told else MessageId(entry) for entry in entries]
    return ids if rule == "slots" else list(dict.fromkeys(ids))


def is_found(rule: str, chunks: Chunks, ids: list[MessageId]) -> bool:
    """Whether redelivered ids find the pieces of a chunked message: by its last entry, or only by its own id."""
    if rule == "id":
        return chunks.whole in ids
    return any(each.position == chunks.whole.position for each in ids)


def without(kept: tuple[MessageId, ...], positions: Iterable[Position]) -> tuple[MessageId, ...]:
    """The ids that are kept after some entries were redelivered."""
    gone = set(positions)
    return tuple([each for each in kept if each.position not in gone])
