"""Contracts of acknowledgements of batches. A `Message` is the number of an entry, and a batch index.

The application acknowledges by a message, or by a deserialized id: the message's id, serialized and deserialized again.
"""

from __future__ import annotations

from typing import Any

from fuzz.answers.batches import Message
from fuzz.client.contracts import contract
from fuzz.client.driver import METHODS
from fuzz.client.run import Observed
from model.ack_set import mask_of, words_of


def left_at_brokers(seen: Observed) -> set[Message]:
    """Returns the messages that the brokers' cursors have not acknowledged. All entries are in one ledger."""
    found: set[Message] = set()
    for each in seen.report.get("cursors", {}).values():
        deleted = {entry for _, entry in each["individually_deleted"]} | set(range(each["mark_delete_position"][1] + 1))
        sets = {entry: mask_of(tuple(words)) for (_, entry), words in each["batch_sets"]}
        for *_, payloads, _, entry in seen.report["log"]:
            mask = 0 if entry in deleted else sets.get(entry, -1)  # -1: no ack set, all bits are set
            found |= {(entry, index) for index in range(len(payloads)) if mask >> index & 1}
    return found


def _shown(messages: list[Message]) -> str:
    """Returns messages as text: the first three, and the number of the others."""
    first = ", ".join(f"entry {entry} index {index}" for entry, index in messages[:3])
    return f"{first} and {len(messages) - 3} more" if len(messages) > 3 else first


@contract
def unacknowledged_message_stays(seen: Observed) -> str:
    """A message that the application has not acknowledged stays in the backlog.

    Without index acks, an acknowledged message stays, too, until its whole entry is acknowledged.
    """
    lost = sorted({(entry, index) for entry, index in seen.left} - left_at_brokers(seen))
    return f"gone from the backlog: {_shown(lost)}" if lost else ""


@contract
def acknowledgement_reaches_cursor(seen: Observed) -> str:
    """An acknowledged message of an entry without acks by deserialized ids leaves the backlog.

    With index acks, the message leaves at once. Without them, it leaves when its whole entry is acknowledged.
    """
    return _still_in_backlog(seen, by_id=False)


@contract
def acknowledgement_by_id_reaches_cursor(seen: Observed) -> str:
    """An acknowledged message of an entry that has acks by deserialized ids leaves the backlog."""
    return _still_in_backlog(seen, by_id=True)


def _still_in_backlog(seen: Observed, *, by_id: bool) -> str:
    """Returns a text about `messages_not_removed`; empty if there are none."""
    messages = messages_not_removed(seen, by_id=by_id)
    return f"still in the backlog: {_shown(messages)}" if messages else ""


def messages_not_removed(seen: Observed, *, by_id: bool) -> list[Message]:
    """Returns the messages that are in the backlog although the application's acks should have removed them, sorted.

    With `by_id`, returns only messages of entries with acks by deserialized ids; otherwise, only the others.
    """
    entries = entries_acknowledged_by_id(seen)
    found = left_at_brokers(seen) - {(entry, index) for entry, index in seen.left}
    return sorted([each for each in found if (each[0] in entries) == by_id])


def entries_acknowledged_by_id(seen: Observed) -> set[int]:
    """Returns the entries that the application acknowledged by deserialized ids, individually or cumulatively."""
    found = set[int]()
    for kind, _, _, _, entry, *_ in seen.calls:
        method, by_id = METHODS[kind]
        if by_id:
            found |= set(range(entry + 1)) if method == "acknowledge_cumulative" else {entry}
    return found


@contract
def ack_sets_are_exact(seen: Observed) -> str:
    """An ack set has no bit beyond its batch, no zero words at the end, and clear bits only for acknowledged messages.

    All ack sets of an entry in one command are equal: each is the ack set of the entry at the time of sending.
    """
    # `sizes`: entry -> number of messages
    start, sizes = seen.report.get("started", 0.0), {each[6]: len(each[4]) for each in seen.report.get("log", ())}
    for at, _, kind, about in seen.report.get("commands", ()):
        sets: dict[int, list[int]] = {}
        for _, entry, words in about["ids"] if kind == "ACK" else ():
            if words is None or entry not in sizes:  # no ack set, or an ack of the entry before the first
                continue
            mask = mask_of(tuple(words))
            acked = _acked_by_calls(seen.calls, entry, start + at / 1000)
            wrong = [i for i in range(sizes[entry]) if not mask >> i & 1 and i not in acked]
            if tuple(words) != words_of(mask) or mask >> sizes[entry] or wrong:
                return f"entry {entry} of {sizes[entry]} messages has the ack set {words}"
            if sets.setdefault(entry, words) != words:
                return f"entry {entry} has the ack sets {sets[entry]} and {words} in one command"
    return ""


def _acked_by_calls(calls: list[list[Any]], entry: int, until: float) -> set[int]:
    """Returns the batch indexes that calls for this entry, made at the monotonic time `until` or before, acknowledge.

    Cumulative calls for later entries do not count.
    """
    found: set[int] = set()
    for kind, before, _, _, called_for, index, _ in calls:
        if called_for == entry and before <= until:
            found |= set(range(index + 1)) if METHODS[kind][0] == "acknowledge_cumulative" else {index}
    return found


@contract
def redelivery_has_what_is_left(seen: Observed) -> str:
    """After a reconnection, the application receives the unacknowledged messages, in order, and no others."""
    wrong = [(left, got) for left, got in seen.redelivered if left != got]
    return f"{len(wrong[0][0])} messages were left; received were {wrong[0][1]}" if wrong else ""
