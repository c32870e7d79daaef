"""Settings, rules and state of a client's session, and the machine that the modules beside this one add actions to.

    log        the entries of the topic as stored; each is a batch of `batch_size` messages
    acked      messages that the subscription's cursor has acknowledged
    handler    the producer or the consumer: its phase, what the broker has of it, and the replies on their way to it

A message of the consumer is a number: entry * `batch_size` + batch index. A message of the producer is the number of
its `send`; the producer sends one entry with each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple

from model.machine import Machine, Setting
from model.values import AtLeast, Between, Origin, Rule, record

Handler = Literal["producer", "consumer"]
#: lookup: it looks the topic up next; redirected: it has a URL to connect to; waiting: it sent `PRODUCER` or
#: `SUBSCRIBE`; ready: it got success; failed: a refusal ended it; crashed: the process is dead
Phase = Literal["lookup", "redirected", "waiting", "ready", "failed", "crashed"]
#: requested: the request is not answered; closed: `CLOSE` was sent before the answer; ignoring: sends are dropped
Served = Literal["none", "requested", "closed", "open", "ignoring"]

_CPP = "Pulsar-CPP 4.2.0 under Python 3.13.0"
_OBSERVED = Origin.OBSERVED


class Config(NamedTuple):
    """The settings of topic, producer and consumer, then the rules on which clients differ."""

    deduplication: Annotated[bool, Setting("brokerDeduplicationEnabled", False)] = False
    #: entries of an earlier session of the same producer name, with sequence ids from 0
    stored: Annotated[int, AtLeast(0)] = 0
    #: -1: unset, and the producer continues after the broker's `last_sequence_id`
    initial_sequence_id: Annotated[int, AtLeast(-1), Setting("initialSequenceId", "none")] = -1
    max_pending_messages: Annotated[int, AtLeast(1), Setting("maxPendingMessages", 1000)] = 3
    receiver_queue_size: Annotated[int, AtLeast(1), Setting("receiverQueueSize", 1000)] = 2
    #: messages of each entry
    batch_size: Annotated[int, Between(1, 64)] = 1
    index_acks: Annotated[bool, Setting("batchIndexAckEnabled", False)] = False
    #: subscription type Shared, otherwise Exclusive
    shared: Annotated[bool, Setting("subscriptionType", "Exclusive")] = False

    #: whether a reconnection before the first receipt starts the sequence ids again
    reconnection_restarts_sequence_ids: Annotated[bool, Rule(_OBSERVED, f"true: {_CPP}")] = False
    #: whether a ChecksumError for another message takes the oldest one out of the queue
    checksum_error_takes_oldest: Annotated[bool, Rule(_OBSERVED, f"true: {_CPP}")] = False
    #: whether a send that fails its checksum ends the session, at the broker and at the client
    checksum_error_ends_session: Annotated[
        bool, Rule(Origin.READ, "false: Producer.publishMessage; Pulsar-CPP 4.2.0")
    ] = True
    #: whether a command that the client does not know, REACHED_END_OF_TOPIC for one, closes the connection
    unknown_command_disconnects: Annotated[bool, Rule(_OBSERVED, f"true: {_CPP}")] = False
    #: whether the consumer drops for its whole life what a cumulative ack covered
    cumulative_ack_hides_for_ever: Annotated[bool, Rule(_OBSERVED, f"true: {_CPP}")] = False
    #: whether the ack set of a redelivered batch counts for what the client has still to acknowledge
    tracker_uses_ack_set: Annotated[bool, Rule(_OBSERVED, f"false: {_CPP}")] = True
    #: whether messages that the ack set excludes return permits, which the broker did not charge
    filtered_messages_return_permits: Annotated[
        bool, Rule(_OBSERVED, f"true: {_CPP}; charge: Consumer.sendMessages")
    ] = False
    #: whether CLOSE cancels a request of a reconnection that has no answer yet
    close_cancels_request: Annotated[bool, Rule(_OBSERVED, f"false: {_CPP}")] = True
    #: whether a batch with a wrong checksum returns a permit for each message, otherwise one
    corrupt_batch_returns_all_permits: Annotated[bool, Rule(_OBSERVED, f"false: {_CPP}")] = True
    #: whether the first SUBSCRIBE is sent again after a retryable refusal
    first_subscribe_is_retried: Annotated[bool, Rule(_OBSERVED, f"false: {_CPP}")] = True
    #: whether a request to redeliver everything empties the receiver queue
    redelivery_of_all_clears_queue: Annotated[bool, Rule(_OBSERVED, f"false: {_CPP}")] = True


class Entry(NamedTuple):
    """An entry as stored: the number of the producer's message, -1 for an earlier session's, and its sequence id."""

    message: int
    sequence: int


@record
class Reply(NamedTuple):
    """A command of the broker on its way to a handler.

    `value` is a sequence id of success (the last one), receipt, send_error and checksum_error, the entry of a message
    or corrupt message, 1 for a close with URL and a retryable refusal; `messages` are those of the ack set.
    """

    kind: Literal["success", "refused", "close", "receipt", "send_error", "checksum_error", "message", "corrupt"]
    value: int
    messages: tuple[int, ...] = ()


@record
class Link(NamedTuple):
    """A handler and its connection (`HandlerBase`)."""

    phase: Phase
    created: bool  # it was ready before
    served: Served  # what the broker has of it
    down: tuple[Reply, ...]  # replies on their way to it


@record
class Producer(NamedTuple):
    """The producer (`ProducerImpl`)."""

    link: Link
    published: int  # last sequence id known to be stored (`lastSequenceIdPublished`)
    next_sequence_id: int
    pending: tuple[int, ...]  # sequence ids of the messages without result, oldest first
    results: tuple[bool, ...]  # of the messages before those: whether the callback reported them stored
    up: tuple[Entry, ...]  # sends on their way to the broker
    damaged: bool  # a ChecksumError took the oldest message away; only under `checksum_error_takes_oldest`


@record
class Consumer(NamedTuple):
    """The consumer (`ConsumerImpl`) and its subscription. Sets of messages are sorted tuples."""

    link: Link
    permits: int  # at the broker; below 0 after a batch larger than what was left
    read: int  # the broker's next entry
    replay: tuple[int, ...]  # entries that the broker delivers again
    queue: tuple[int, ...]  # receiver queue (`incomingMessages`)
    returned: int  # permits to return with the next FLOW (`availablePermits`)
    taken: tuple[int, ...]  # the application received them, and has neither acknowledged nor negatively acknowledged
    tracked: tuple[int, ...]  # acknowledged messages of batches that are not complete; without index acks
    grouped: tuple[int, ...]  # individual acks that the next flush sends
    cumulative: int  # cumulative ack that the next flush sends; -1: none
    covered: int  # the highest cumulative ack sent; only under `cumulative_ack_hides_for_ever`, else -1


@record
class State(NamedTuple):
    """Topic, subscription, producer and consumer."""

    log: tuple[Entry, ...]
    acked: tuple[int, ...]
    producer: Producer
    consumer: Consumer


def start(cfg: Config) -> State:
    """The client has neither producer nor consumer; the topic has the entries of an earlier session."""
    link = Link("lookup", False, "none", ())
    log = tuple([Entry(-1, sequence) for sequence in range(cfg.stored)])
    producer = Producer(link, -1, 0, (), (), (), False)
    return State(log, (), producer, Consumer(link, 0, 0, (), (), 0, (), (), (), -1, -1))


client_session = Machine("client_session", Config, start, source="Pulsar's binary protocol, PIP-54 and PIP-307")
client_session.diagrams["handler"] = {
    "lookup": ("waiting",),
    "redirected": ("waiting", "lookup"),
    "waiting": ("ready", "lookup", "redirected", "failed"),
    "ready": ("lookup", "redirected"),
}


@client_session.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """The state without what no step reads.

    The broker delivers no acknowledged entries, so its read position is past them; without a session it has neither
    position nor permits. The last published sequence id matters to one rule only.
    """
    if not cfg.reconnection_restarts_sequence_ids and s.producer.published != -1:
        s = s._replace(producer=s.producer._replace(published=-1))
    c, read = s.consumer, s.consumer.read
    if c.link.served != "open":
        return s._replace(consumer=c._replace(permits=0, read=0, replay=()))
    while read < len(s.log) and not unacked(cfg, s, read):
        read += 1
    return s._replace(consumer=c._replace(read=read))


# ---- reading and changing states -----------------------------------------------------------------------


def link_of(s: State, handler: Handler) -> Link:
    """The link of a handler."""
    return s.producer.link if handler == "producer" else s.consumer.link


def with_link(s: State, handler: Handler, link: Link) -> State:
    """The state with the link of a handler replaced."""
    if handler == "producer":
        return s._replace(producer=s.producer._replace(link=link))
    return s._replace(consumer=s.consumer._replace(link=link))


def with_reply(s: State, handler: Handler, reply: Reply, served: Served | None = None) -> State:
    """The state after the broker sent a reply, and what it then has of the handler."""
    link = link_of(s, handler)
    return with_link(s, handler, link._replace(down=(*link.down, reply), served=served or link.served))


def disconnected(s: State, handler: Handler, phase: Phase = "lookup") -> State:
    """The state after a handler left its broker: what is on its way in either direction is lost."""
    link = link_of(s, handler)._replace(phase=phase, served="none", down=())
    s = with_link(s, handler, link)
    if handler == "producer":
        return s._replace(producer=s.producer._replace(up=()))
    return s._replace(consumer=s.consumer._replace(permits=0, read=0, replay=()))


def last_sequence_id(cfg: Config, s: State) -> int:
    """The highest sequence id that the broker knows of the producer: without deduplication it keeps none."""
    return max([entry.sequence for entry in s.log], default=-1) if cfg.deduplication else -1


def merged(messages: tuple[int, ...], others: Iterable[int]) -> tuple[int, ...]:
    """Two sets of messages as one."""
    return tuple(sorted({*messages, *others}))


def messages_of(cfg: Config, entry: int) -> range:
    """The messages of an entry."""
    return range(entry * cfg.batch_size, (entry + 1) * cfg.batch_size)


def unacked(cfg: Config, s: State, entry: int) -> tuple[int, ...]:
    """The messages of an entry that the subscription has not acknowledged."""
    return tuple([m for m in messages_of(cfg, entry) if m not in s.acked])
