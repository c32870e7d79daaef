"""The producer: sequence ids, pending messages, receipts, errors and timeouts; and the broker's answers to sends."""

from __future__ import annotations

from typing import Annotated, Literal

from model.client_session.state import (
    Config,
    Entry,
    Producer,
    Reply,
    State,
    client_session,
    disconnected,
    last_sequence_id,
    with_link,
    with_reply,
)
from model.machine import Refused, Step, refused
from model.values import AtLeast

NO_SEND = Refused("not_enabled", "no send is in flight, or the broker ignores it")
Sequence = Annotated[int, AtLeast(0)]


# ---- the client ----------------------------------------------------------------------------------------


def oldest(p: Producer) -> int:
    """Returns the oldest pending message, which is the first message without a result."""
    return len(p.results)


def opened(cfg: Config, s: State, reply: Reply, is_reconnection: bool) -> State:
    """`ProducerImpl.connectionOpened`: returns the state after PRODUCER_SUCCESS: all pending messages are sent.

    The first PRODUCER_SUCCESS also sets the next sequence id. With `reconnection_restarts_sequence_ids`, a later one
    may set the next sequence id again. Pending messages keep their sequence ids.
    """
    # is_set: the application has set `initialSequenceId`
    p, is_set = s.producer, cfg.initial_sequence_id >= 0
    if not is_reconnection and is_set:
        p = p._replace(published=cfg.initial_sequence_id, next_sequence_id=cfg.initial_sequence_id + 1)
    elif not is_reconnection or (cfg.reconnection_restarts_sequence_ids and p.published == -1 and not is_set):
        p = p._replace(published=reply.value, next_sequence_id=reply.value + 1)
    first = oldest(p)
    return s._replace(producer=p._replace(up=tuple([Entry(first + i, each) for i, each in enumerate(p.pending)])))


@client_session.action
def send(cfg: Config, s: State) -> Step[State, int]:
    """`ProducerImpl.sendAsync`: a message gets the next sequence id, and is pending until it has a result.

    A producer that is not ready sends the message after its next PRODUCER_SUCCESS. Returns the sequence id.
    """
    p = s.producer
    if not p.link.created or p.link.phase in ("failed", "crashed"):
        return refused(s, "illegal_state", "the producer was not created, or has failed")
    if len(p.pending) >= cfg.max_pending_messages:
        return refused(s, "not_enabled", "the queue of pending messages is full")
    sequence = p.next_sequence_id
    up = (*p.up, Entry(oldest(p) + len(p.pending), sequence)) if p.link.phase == "ready" else p.up
    p = p._replace(next_sequence_id=sequence + 1, pending=(*p.pending, sequence), up=up)
    return s._replace(producer=p), sequence


@client_session.action
def time_out(cfg: Config, s: State) -> Step[State, int]:
    """`ProducerImpl.run`: the oldest pending message is older than `sendTimeoutMs`, so all pending messages fail.

    The broker may still store the messages that are in flight. Returns how many messages failed.
    """
    if not s.producer.pending or s.producer.link.phase == "crashed":
        return refused(s, "not_enabled", "no message is pending")
    return failed_pending(s), len(s.producer.pending)


def failed_pending(s: State) -> State:
    """Returns the state after all pending messages failed."""
    p = s.producer
    results = (*p.results, *[False for _ in p.pending])
    return s._replace(producer=p._replace(pending=(), results=results, damaged=False))


def receipted(cfg: Config, s: State, sequence: int) -> tuple[State, str]:
    """`ProducerImpl.ackReceived`: returns the state after a receipt, and what the client did.

    "stored": the receipt of the oldest pending message completes this message. "disconnected": the receipt of a later
    message closes the connection. "ignored": any other receipt. "crashed": the queue has a null element.
    """
    p = s.producer
    if p.damaged:
        s = with_link(s, "consumer", s.consumer.link._replace(phase="crashed"))
        return with_link(s, "producer", p.link._replace(phase="crashed")), "crashed"
    if not p.pending or sequence < p.pending[0]:
        return s, "ignored"
    if sequence > p.pending[0]:
        return disconnected(s, "producer"), "disconnected"
    p = p._replace(pending=p.pending[1:], results=(*p.results, True), published=max(p.published, sequence))
    return s._replace(producer=p), "stored"


def checksum_error(cfg: Config, s: State, sequence: int) -> tuple[State, str]:
    """`ProducerImpl::removeCorruptMessage` of C++: returns the state after a ChecksumError, and what the client did.

    "failed": the error names the oldest pending message, which fails. "disconnected": any other error. Either way, the
    connection ends. Two rules change this:

    without `checksum_error_ends_session`  Only an error of a message after the oldest pending one ends the connection.
                                           An error of an earlier message, or while none is pending, is "ignored"
    with `checksum_error_takes_oldest`     While messages are pending, an error that does not name the oldest one
                                           damages the queue (`Producer.damaged`), and is "ignored"

    `ProducerImpl.recoverChecksumError` of Java differs: the message fails only if its buffer was changed after the
    checksum was computed; otherwise all pending messages are sent again.
    """
    p = s.producer
    if p.pending and sequence == p.pending[0]:
        s = s._replace(producer=p._replace(pending=p.pending[1:], results=(*p.results, False)))
        return (disconnected(s, "producer") if cfg.checksum_error_ends_session else s), "failed"
    if p.pending and cfg.checksum_error_takes_oldest:
        return s._replace(producer=p._replace(damaged=True)), "ignored"
    if cfg.checksum_error_ends_session or (p.pending and sequence > p.pending[0]):
        return disconnected(s, "producer"), "disconnected"
    return s, "ignored"


# ---- the broker ----------------------------------------------------------------------------------------


def is_processing(s: State) -> bool:
    """Whether the broker has a send to process."""
    return s.producer.link.session == "open" and bool(s.producer.up)


@client_session.action
def store(cfg: Config, s: State) -> Step[State, str]:
    """`ServerCnx.handleSend`: the broker stores the next send and answers with a receipt.

    With deduplication, a send is not stored if its sequence id is at most the highest stored sequence id. Returns
    "stored" or "duplicate".
    """
    if not is_processing(s):
        return s, NO_SEND
    entry = s.producer.up[0]
    is_duplicate = entry.sequence <= last_sequence_id(cfg, s)
    s = s._replace(producer=s.producer._replace(up=s.producer.up[1:]))
    s = with_reply(s, "producer", Reply("receipt", entry.sequence))
    return (s, "duplicate") if is_duplicate else (s._replace(log=(*s.log, entry)), "stored")


@client_session.action
def send_error(cfg: Config, s: State, checksum: bool) -> Step[State, int]:
    """`ServerCnx.handleSend`: the broker answers the next send with SEND_ERROR and does not store it.

    `checksum`: whether the checksum of the send is wrong; otherwise its write fails. After a failed write, the broker
    ignores later sends of the session: none of them is stored before the rejected send. After a wrong checksum, the
    broker ignores later sends only with `checksum_error_ends_session`. Returns the sequence id of the send.
    """
    if not is_processing(s):
        return s, NO_SEND
    sequence = s.producer.up[0].sequence
    s = s._replace(producer=s.producer._replace(up=s.producer.up[1:]))
    ends = cfg.checksum_error_ends_session or not checksum
    reply = Reply("checksum_error" if checksum else "send_error", sequence)
    return with_reply(s, "producer", reply, "ignoring" if ends else "open"), sequence


@client_session.action
def ignore_sends(cfg: Config, s: State) -> Step[State, None]:
    """`ServerCnx.handleSend`: the broker begins to ignore sends, in phase 1 of a transfer (PIP-307).

    The broker does not answer the ignored sends.
    """
    if s.producer.link.session != "open":
        return refused(s, "not_enabled", "the producer has no open session")
    return with_link(s, "producer", s.producer.link._replace(session="ignoring")), None


@client_session.fault
def stray_reply(
    cfg: Config, s: State, kind: Literal["receipt", "checksum_error"], sequence: Sequence
) -> Step[State, str]:
    """`ClientCnx.handleSendReceipt`, `handleSendError`: a reply does not name the oldest pending message.

    The reply is a receipt or a ChecksumError that is late, repeated or out of order. Returns what the client does (see
    `receipted` and `checksum_error`).
    """
    p = s.producer
    if p.link.phase != "ready" or (p.pending and sequence == p.pending[0]):
        return refused(s, "not_enabled", "the reply names the oldest pending message, or the producer is not ready")
    return receipted(cfg, s, sequence) if kind == "receipt" else checksum_error(cfg, s, sequence)
