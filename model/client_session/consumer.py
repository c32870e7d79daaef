"""The consumer: permits, receiver queue, grouped acks and redelivery; and how the broker delivers entries."""

from __future__ import annotations

from typing import Annotated

from model.client_session.state import (
    Config,
    Reply,
    State,
    client_session,
    merged,
    messages_of,
    unacked,
    with_reply,
)
from model.machine import Refused, Step, refused
from model.values import AtLeast

NOT_TAKEN = Refused("illegal_argument", "the application has not received the message")
NOTHING = Refused("not_enabled", "the broker has no entry to deliver, no permit or no session")
Message = Annotated[int, AtLeast(0)]


# ---- permits -------------------------------------------------------------------------------------------


def subscribed(cfg: Config, s: State) -> State:
    """`ConsumerImpl.connectionOpened`: returns the state after SUCCESS: FLOW for the whole receiver queue is sent."""
    c = s.consumer
    return s._replace(consumer=c._replace(permits=cfg.receiver_queue_size if c.link.session == "open" else 0))


def with_more_permits(cfg: Config, s: State, permits: int) -> State:
    """`ConsumerImpl.increaseAvailablePermits`: returns the state after the consumer got permits to return.

    A ready consumer sends FLOW once the permits to return are half of the receiver queue, rounded down, and at least 1.
    """
    c = s.consumer
    available = c.available_permits + permits
    if c.link.phase != "ready" or available < max(1, cfg.receiver_queue_size // 2):
        return s._replace(consumer=c._replace(available_permits=available))
    granted = available if c.link.session == "open" else 0
    return s._replace(consumer=c._replace(available_permits=0, permits=c.permits + granted))


# ---- the broker ----------------------------------------------------------------------------------------


def next_entry(cfg: Config, s: State) -> int | None:
    """Returns the entry that the broker delivers next; None if there is no entry, no session or no permit."""
    c = s.consumer
    if c.link.session != "open" or c.permits <= 0:
        return None
    return first_unacked(cfg, s)


def first_unacked(cfg: Config, s: State) -> int | None:
    """Returns the first unacknowledged entry of `replay`, else of the log from the read position on; or None."""
    return next((e for e in (*s.consumer.replay, *range(s.consumer.read, len(s.log))) if unacked(cfg, s, e)), None)


def delivered(cfg: Config, s: State, entry: int, *, corrupt: bool) -> State:
    """`Consumer.sendMessages`: returns the state after the broker sent an entry.

    The broker charges a permit for each unacknowledged message of the entry.
    """
    c, messages = s.consumer, unacked(cfg, s, entry)
    replay = tuple([e for e in c.replay if e != entry])
    c = c._replace(permits=c.permits - len(messages), replay=replay, read=max(c.read, entry + 1))
    return with_reply(s._replace(consumer=c), "consumer", Reply("corrupt" if corrupt else "message", entry, messages))


@client_session.action
def dispatch(cfg: Config, s: State) -> Step[State, int]:
    """`Consumer.sendMessages`: the broker delivers the next entry that has unacknowledged messages.

    The command MESSAGE has the ack set of the entry. Returns the entry.
    """
    entry = next_entry(cfg, s)
    return (s, NOTHING) if entry is None else (delivered(cfg, s, entry, corrupt=False), entry)


@client_session.fault
def dispatch_corrupt(cfg: Config, s: State) -> Step[State, int]:
    """`Consumer.sendMessages`: the broker delivers an entry whose checksum is wrong. Returns the entry."""
    entry = next_entry(cfg, s)
    return (s, NOTHING) if entry is None else (delivered(cfg, s, entry, corrupt=True), entry)


@client_session.action
def acknowledge_elsewhere(cfg: Config, s: State, message: Message) -> Step[State, None]:
    """`ServerCnx.handleAck`: another consumer acknowledges a message of the subscription.

    Refused while this client's consumer has a session, and if the message does not exist or is already acknowledged.
    """
    if s.consumer.link.session == "open" or message >= len(s.log) * cfg.batch_size or message in s.acked:
        return refused(s, "not_enabled", "the message does not exist or is acknowledged, or this consumer has it")
    return s._replace(acked=merged(s.acked, (message,))), None


def acked_at_broker(cfg: Config, s: State, messages: tuple[int, ...]) -> State:
    """`ServerCnx.handleAck`: returns the state after an ack reached the broker, which ignores it without a session."""
    if s.consumer.link.session != "open":
        return s
    s = s._replace(acked=merged(s.acked, messages))
    replay = tuple([e for e in s.consumer.replay if unacked(cfg, s, e)])
    return s._replace(consumer=s.consumer._replace(replay=replay))


# ---- delivery ------------------------------------------------------------------------------------------


def message_received(cfg: Config, s: State, reply: Reply) -> tuple[State, str]:
    """`ConsumerImpl.messageReceived`: returns the state after MESSAGE, and "queued" or "dropped".

    The messages of the ack set are queued, except those whose ack is grouped or that a cumulative ack covers: these are
    dropped, and their permits are returned. "dropped" means that no message was queued.
    """
    c, entry = s.consumer, reply.value
    fresh = tuple([m for m in reply.messages if m not in c.grouped and m > max(c.cumulative, c.covered)])
    tracked = c.tracked
    if fresh and not cfg.index_acks:
        # the batch gets a new tracker; with `tracker_uses_ack_set`, the messages that the ack set excludes are
        # acknowledged in the new tracker
        excluded = [m for m in messages_of(cfg, entry) if m not in reply.messages and cfg.tracker_uses_ack_set]
        tracked = merged(tuple([m for m in tracked if m not in messages_of(cfg, entry)]), excluded)
    dropped = len(reply.messages) - len(fresh)
    # the C++ client also returns permits for excluded messages, for which the broker has charged none
    if cfg.filtered_messages_return_permits:
        dropped += cfg.batch_size - len(reply.messages)
    s = s._replace(consumer=c._replace(queue=(*c.queue, *fresh), tracked=tracked))
    return with_more_permits(cfg, s, dropped), "queued" if fresh else "dropped"


def corrupt_received(cfg: Config, s: State, reply: Reply) -> tuple[State, str]:
    """`ConsumerImpl.discardCorruptedMessage`: returns the state after a corrupt entry was discarded, and "discarded".

    The client acks the entry with a validation error, and returns permits.
    """
    s = acked_at_broker(cfg, s, reply.messages)
    return with_more_permits(cfg, s, len(reply.messages) if cfg.corrupt_batch_returns_all_permits else 1), "discarded"


@client_session.action
def receive(cfg: Config, s: State) -> Step[State, int]:
    """`ConsumerImpl.receive`: the application takes the next message of the receiver queue. Returns the message."""
    c = s.consumer
    if not c.queue or c.link.phase == "crashed":
        return refused(s, "not_enabled", "the receiver queue is empty")
    s = s._replace(consumer=c._replace(queue=c.queue[1:], taken=merged(c.taken, c.queue[:1])))
    return with_more_permits(cfg, s, 1), c.queue[0]


# ---- acknowledgements ----------------------------------------------------------------------------------


def covers(acks: tuple[int, ...], batch: range) -> bool:
    """Whether these acknowledged messages include every message of a batch."""
    return all(m in acks for m in batch)


@client_session.action
def acknowledge(cfg: Config, s: State, message: Message) -> Step[State, bool]:
    """`ConsumerImpl.acknowledgeAsync`: the application acknowledges a message; the ack is grouped until the next flush.

    Without index acks, only whole entries are acknowledged: the ack is grouped when all messages of the entry are
    acknowledged. Returns whether an ack is grouped.
    """
    c = s.consumer
    if message not in c.taken:
        return s, NOT_TAKEN
    c = c._replace(taken=tuple([m for m in c.taken if m != message]))
    batch = messages_of(cfg, message // cfg.batch_size)
    tracked = merged(c.tracked, (message,))
    if cfg.index_acks:
        c = c._replace(grouped=merged(c.grouped, (message,)))
    elif covers(tracked, batch):
        tracked = tuple([m for m in tracked if m not in batch])
        c = c._replace(tracked=tracked, grouped=merged(c.grouped, batch))
    else:
        return s._replace(consumer=c._replace(tracked=tracked)), False
    return s._replace(consumer=c), True


@client_session.action
def acknowledge_cumulative(cfg: Config, s: State, message: Message) -> Step[State, int]:
    """`ConsumerImpl.acknowledgeCumulativeAsync`: the application acknowledges a message and all before it.

    Only the highest cumulative ack is grouped. Without index acks, the ack covers the message's entry only if all
    messages of the entry are acknowledged; otherwise it covers the entries before. Returns the last message that the
    ack covers, -1 if it covers none.
    """
    c = s.consumer
    if cfg.shared:
        return refused(s, "unsupported", "a shared subscription has no cumulative acks")
    if message not in c.taken:
        return s, NOT_TAKEN
    taken = tuple([m for m in c.taken if m > message])
    last, tracked = message, c.tracked
    if not cfg.index_acks:
        batch = messages_of(cfg, message // cfg.batch_size)
        tracked = merged(tracked, [m for m in batch if m <= message])
        last = batch[-1] if covers(tracked, batch) else batch[0] - 1
    tracked = tuple([m for m in tracked if m > last])
    grouped = tuple([m for m in c.grouped if m > last])
    c = c._replace(taken=taken, tracked=tracked, grouped=grouped, cumulative=max(c.cumulative, last))
    return s._replace(consumer=c), last


@client_session.action
def flush(cfg: Config, s: State) -> Step[State, None]:
    """`PersistentAcknowledgmentsGroupingTracker.flush`: sends the cumulative ack and the individual acks.

    While the consumer is not ready, all acks stay grouped. Without `flush_waits_for_session`, a consumer that has not
    failed or crashed sends them nevertheless, and they are lost unless the broker has already opened the session.
    """
    c = s.consumer
    waits = c.link.phase != "ready" and (cfg.flush_waits_for_session or c.link.phase in ("failed", "crashed"))
    if waits or (not c.grouped and c.cumulative < 0):
        return refused(s, "not_enabled", "no ack is grouped, or the consumer is not ready")
    s = acked_at_broker(cfg, s, merged(c.grouped, range(c.cumulative + 1)))
    covered = max(c.covered, c.cumulative) if cfg.cumulative_ack_hides_for_ever else -1
    return s._replace(consumer=s.consumer._replace(grouped=(), cumulative=-1, covered=covered)), None


@client_session.action
def negative_acknowledge(cfg: Config, s: State, message: Message) -> Step[State, None]:
    """`ConsumerImpl.negativeAcknowledge`: the application nacks a message, and the client requests its redelivery.

    Shared: the client sends REDELIVER with the message's entry. Exclusive: it sends REDELIVER without ids, and the
    broker redelivers all unacknowledged messages. The client then drops the messages in its receiver queue and in
    flight, and returns their permits; without `redelivery_of_all_clears_queue` it drops nothing. A consumer that is not
    ready sends nothing.
    """
    c = s.consumer
    if message not in c.taken:
        return s, NOT_TAKEN
    c = c._replace(taken=tuple([m for m in c.taken if m != message]))
    s = s._replace(consumer=c)
    if c.link.phase != "ready":
        return s, None
    if cfg.shared:
        return redelivering(cfg, s, message // cfg.batch_size), None
    if c.link.session == "open":
        s = s._replace(consumer=c._replace(read=0))
    return (emptied(cfg, s) if cfg.redelivery_of_all_clears_queue else s), None


def redelivering(cfg: Config, s: State, entry: int) -> State:
    """Returns the state after REDELIVER of an entry reached the broker.

    The broker ignores the command without a session, if it has not delivered the entry yet (`read`), and if the entry
    is acknowledged.
    """
    c = s.consumer
    if c.link.session != "open" or entry >= c.read or not unacked(cfg, s, entry):
        return s
    return s._replace(consumer=c._replace(replay=merged(c.replay, (entry,))))


def emptied(cfg: Config, s: State) -> State:
    """`ConsumerImpl.redeliverUnacknowledgedMessages`: returns the state without receiver queue and messages in flight.

    Each REDELIVER without ids begins a new consumer epoch. The messages in flight have the epoch before, and are
    dropped. The permits of all dropped messages are returned.
    """
    c = s.consumer
    permits = len(c.queue) + sum([len(reply.messages) for reply in c.link.down])
    kept = tuple([reply for reply in c.link.down if reply.kind not in ("message", "corrupt")])
    return with_more_permits(cfg, s._replace(consumer=c._replace(link=c.link._replace(down=kept), queue=())), permits)
