"""Settings, rules and state of a client's session, and the machine; the other modules of this package add its actions.

    log        the entries of the topic as stored; each is a batch of `batch_size` messages
    acked      the messages that are acknowledged in the subscription's cursor
    handler    the producer or the consumer. Its `Link` has its phase, its session at the broker, and the commands in
               flight to it

Messages are numbers. A message of the consumer is entry * `batch_size` + batch index. A message of the producer is the
number of its `send`, counted from 0: one `send` stands for one entry, whatever the batch size.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple

from model.machine import Machine, Setting
from model.values import AtLeast, Between, Origin, Rule, record

Handler = Literal["producer", "consumer"]
#: The phase of a handler (in parentheses, `HandlerState.State` of Java).
#: lookup      the next step is a lookup of the topic (Connecting)
#: redirected  the next step is a connection to the URL of a CLOSE command (Connecting)
#: waiting     PRODUCER or SUBSCRIBE is sent and not answered (Connecting)
#: ready       it has received success (Ready)
#: failed      its request was refused, and is not sent again (Failed)
#: crashed     the client's process has crashed; only with `checksum_error_takes_oldest`
Phase = Literal["lookup", "redirected", "waiting", "ready", "failed", "crashed"]
#: The session of a handler at the broker.
#: none       no session
#: requested  no session yet: the broker has not answered PRODUCER or SUBSCRIBE
#: closed     no session: the broker sent CLOSE_PRODUCER or CLOSE_CONSUMER before it answered the request
#: open       a session
#: ignoring   a session whose sends the broker ignores
Session = Literal["none", "requested", "closed", "open", "ignoring"]

_CPP = "Pulsar-CPP 4.2.0 under Python 3.13.0"
_OBSERVED = Origin.OBSERVED


class Config(NamedTuple):
    """The settings of topic, producer and consumer, then the rules in which clients differ."""

    deduplication: Annotated[bool, Setting("brokerDeduplicationEnabled", False)] = False
    #: number of entries that an earlier producer of the same name stored, with sequence ids from 0
    stored: Annotated[int, AtLeast(0)] = 0
    #: -1: unset; the producer continues after the broker's last sequence id (`last_sequence_id`)
    initial_sequence_id: Annotated[int, AtLeast(-1), Setting("initialSequenceId", "none")] = -1
    #: 1000 is the default of the C++ client; Java has no limit by default since 2.10 (PIP-120)
    max_pending_messages: Annotated[int, AtLeast(1), Setting("maxPendingMessages", 1000)] = 3
    receiver_queue_size: Annotated[int, AtLeast(1), Setting("receiverQueueSize", 1000)] = 2
    #: number of messages of each entry
    batch_size: Annotated[int, Between(1, 64)] = 1
    #: whether the broker can acknowledge single messages of an entry
    index_acks: Annotated[bool, Setting("batchIndexAckEnabled", False)] = False
    #: true: the subscription type is Shared; false: Exclusive
    shared: Annotated[bool, Setting("subscriptionType", "Exclusive")] = False

    #: whether a reconnection before the first receipt restarts the sequence ids after the broker's last sequence id. No
    #: effect if `initial_sequence_id` is set, or if the first PRODUCER_SUCCESS had a sequence id (not -1)
    reconnection_restarts_sequence_ids: Annotated[
        bool, Rule(_OBSERVED, {True: f"{_CPP}, ProducerImpl::handleCreateProducer"})
    ] = False
    #: whether a ChecksumError that does not name the oldest pending message moves this oldest message out of the queue
    #: and leaves a null element (`Producer.damaged`)
    checksum_error_takes_oldest: Annotated[
        bool, Rule(_OBSERVED, {True: f"{_CPP}, ProducerImpl::removeCorruptMessage"})
    ] = False
    #: whether a send with a wrong checksum ends the session, at the broker and at the client. If the session ends, no
    #: later message is stored before the rejected message fails or is sent again
    checksum_error_ends_session: Annotated[
        bool, Rule(Origin.READ, {False: "Producer.publishMessage; Pulsar-CPP 4.2.0"})
    ] = True
    #: whether a command that the client does not know, such as REACHED_END_OF_TOPIC, closes the connection
    unknown_command_disconnects: Annotated[
        bool, Rule(_OBSERVED, {True: f"{_CPP}, ClientConnection::handleIncomingCommand"})
    ] = False
    #: whether the consumer drops messages up to its last cumulative ack for ever, even if the broker redelivers them
    cumulative_ack_hides_for_ever: Annotated[
        bool, Rule(_OBSERVED, {True: f"{_CPP}, AckGroupingTrackerEnabled::isDuplicate"})
    ] = False
    #: whether the client's tracker of a batch counts the messages that the ack set of MESSAGE excludes as acknowledged
    tracker_uses_ack_set: Annotated[
        bool, Rule(_OBSERVED, {False: f"{_CPP}, ConsumerImpl::receiveIndividualMessagesFromBatch"})
    ] = True
    #: whether the client returns a permit for each message that the ack set excludes. The broker charges none for them
    filtered_messages_return_permits: Annotated[
        bool,
        Rule(
            _OBSERVED,
            {True: f"{_CPP}, ConsumerImpl::receiveIndividualMessagesFromBatch; charge: Consumer.sendMessages"},
        ),
    ] = False
    #: whether a flush waits until the consumer is ready. false: without a connection the client drops the flushed acks,
    #: and a broker that has not answered the SUBSCRIBE ignores them
    flush_waits_for_session: Annotated[bool, Rule(_OBSERVED, {False: f"{_CPP}, AckGroupingTrackerEnabled::flush"})] = (
        True
    )
    #: whether a CLOSE from the broker cancels the unanswered PRODUCER or SUBSCRIBE of a reconnection
    close_cancels_request: Annotated[bool, Rule(_OBSERVED, {False: f"{_CPP}, HandlerBase::grabCnx"})] = True
    #: whether the client returns a permit for each message of a batch with a wrong checksum. false: one permit
    corrupt_batch_returns_all_permits: Annotated[
        bool, Rule(_OBSERVED, {False: f"{_CPP}, ConsumerImpl::discardCorruptedMessage"})
    ] = True
    #: whether the first SUBSCRIBE is sent again after a retryable refusal
    first_subscribe_is_retried: Annotated[
        bool, Rule(_OBSERVED, {False: f"{_CPP}, ConsumerImpl::handleCreateConsumer, HandlerBase::grabCnx"})
    ] = True
    #: whether a request to redeliver all messages empties the receiver queue
    redelivery_of_all_clears_queue: Annotated[
        bool, Rule(_OBSERVED, {False: f"{_CPP}, ConsumerImpl::redeliverUnacknowledgedMessages"})
    ] = True


class Entry(NamedTuple):
    """An entry as stored."""

    message: int  # the producer's message; -1: sent by an earlier producer of the same name
    sequence: int  # sequence id


@record
class Reply(NamedTuple):
    """A command of the broker in flight to a handler. The meaning of `value` depends on the kind:

    success                                the last sequence id of the producer, 0 for a consumer
    refused                                1 if the refusal is retryable, else 0
    close                                  1 if the command has the URL of another broker, else 0
    receipt, send_error, checksum_error    the sequence id of the send
    message, corrupt                       the entry. `messages` are the entry's unacknowledged messages (its ack set)
    """

    kind: Literal["success", "refused", "close", "receipt", "send_error", "checksum_error", "message", "corrupt"]
    value: int
    messages: tuple[int, ...] = ()


@record
class Link(NamedTuple):
    """A handler and its connection (`ConnectionHandler`; in C++ `HandlerBase`)."""

    phase: Phase
    created: bool  # the handler has been ready at least once
    session: Session  # at the broker
    down: tuple[Reply, ...]  # commands in flight from the broker to the handler, oldest first


@record
class Producer(NamedTuple):
    """The producer (`ProducerImpl`)."""

    link: Link
    #: last sequence id with a receipt (`lastSequenceIdPublished`). Before a receipt: `initial_sequence_id`, or the
    #: broker's last sequence id; -1: none
    published: int
    next_sequence_id: int
    pending: tuple[int, ...]  # sequence ids of the messages without result, oldest first
    results: tuple[bool, ...]  # by message, for messages that have a result: whether the message was reported stored
    up: tuple[Entry, ...]  # sends in flight to the broker, oldest first
    damaged: bool  # the first element of the pending queue is null; only with `checksum_error_takes_oldest`


@record
class Consumer(NamedTuple):
    """The consumer (`ConsumerImpl`) and its subscription. Sets of messages are sorted tuples."""

    link: Link
    permits: int  # at the broker; negative after a batch with more messages than permits
    read: int  # read position of the broker
    replay: tuple[int, ...]  # entries that the broker redelivers
    queue: tuple[int, ...]  # receiver queue (`incomingMessages`)
    available_permits: int  # permits that the next FLOW command grants to the broker (`availablePermits`)
    taken: tuple[int, ...]  # received by the application, and neither acknowledged nor negatively acknowledged
    tracked: tuple[int, ...]  # acknowledged messages of partly acknowledged batches; only without index acks
    grouped: tuple[int, ...]  # individual acks that the next flush sends
    cumulative: int  # cumulative ack that the next flush sends; -1: none
    covered: int  # the highest cumulative ack that was sent; -1 unless `cumulative_ack_hides_for_ever`


@record
class State(NamedTuple):
    """Topic, subscription, producer and consumer."""

    log: tuple[Entry, ...]
    acked: tuple[int, ...]
    producer: Producer
    consumer: Consumer


def start(cfg: Config) -> State:
    """Returns the initial state: neither handler has connected, and the log has the entries of an earlier producer."""
    link = Link(phase="lookup", created=False, session="none", down=())
    log = tuple([Entry(-1, sequence) for sequence in range(cfg.stored)])
    producer = Producer(link, published=-1, next_sequence_id=0, pending=(), results=(), up=(), damaged=False)
    consumer = Consumer(
        link,
        permits=0,
        read=0,
        replay=(),
        queue=(),
        available_permits=0,
        taken=(),
        tracked=(),
        grouped=(),
        cumulative=-1,
        covered=-1,
    )
    return State(log, (), producer, consumer)


client_session = Machine(
    "client_session",
    Config,
    start,
    source="Pulsar's binary protocol, PIP-54 and PIP-307",
    java={
        "ProducerImpl": ("sendAsync",),
        "ConsumerImpl": ("acknowledgeAsync", "acknowledgeCumulativeAsync", "negativeAcknowledge"),
        "ConnectionHandler": ("grabCnx",),
        "PersistentAcknowledgmentsGroupingTracker": (),
        "ServerCnx": ("handleSend", "handleProducer", "handleSubscribe"),
        "Producer": (),
        "Consumer": (),
        "ClientCnx": ("handleSendReceipt", "handleSendError"),
    },
)
#: Without `crashed`, which the reference does not reach.
client_session.diagrams["handler"] = {
    "lookup": ("waiting",),
    "redirected": ("waiting", "lookup"),
    "waiting": ("ready", "lookup", "redirected", "failed"),
    "ready": ("lookup", "redirected"),
}


@client_session.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Returns the state in which each value that no later step reads is reset.

    The read position of a ready consumer is moved past acknowledged entries, which the broker does not deliver. Without
    a session, read position, permits and entries to redeliver are reset. `published` is kept only if a rule reads it.
    """
    if not cfg.reconnection_restarts_sequence_ids and s.producer.published != -1:
        s = s._replace(producer=s.producer._replace(published=-1))
    c, read = s.consumer, s.consumer.read
    if c.link.session != "open":
        return s._replace(consumer=c._replace(permits=0, read=0, replay=()))
    while c.link.phase == "ready" and read < len(s.log) and not unacked(cfg, s, read):
        read += 1
    return s._replace(consumer=c._replace(read=read))


# ---- reading and changing states -----------------------------------------------------------------------


def link_of(s: State, handler: Handler) -> Link:
    """Returns the link of a handler."""
    return s.producer.link if handler == "producer" else s.consumer.link


def with_link(s: State, handler: Handler, link: Link) -> State:
    """Returns the state with the link of a handler replaced."""
    if handler == "producer":
        return s._replace(producer=s.producer._replace(link=link))
    return s._replace(consumer=s.consumer._replace(link=link))


def with_reply(s: State, handler: Handler, reply: Reply, session: Session | None = None) -> State:
    """Returns the state after the broker sent a handler a command. `session`: the new session, None if unchanged."""
    link = link_of(s, handler)
    return with_link(s, handler, link._replace(down=(*link.down, reply), session=session or link.session))


def disconnected(s: State, handler: Handler, phase: Phase = "lookup") -> State:
    """Returns the state after a handler lost or gave up its connection.

    The commands in flight in both directions are lost.
    """
    link = link_of(s, handler)._replace(phase=phase, session="none", down=())
    s = with_link(s, handler, link)
    if handler == "producer":
        return s._replace(producer=s.producer._replace(up=()))
    return s._replace(consumer=s.consumer._replace(permits=0, read=0, replay=()))


def last_sequence_id(cfg: Config, s: State) -> int:
    """`MessageDeduplication.getLastPublishedSequenceId`: the highest sequence id of the producer; -1: none.

    In Pulsar it is the highest id that the broker received. In the model it is the highest stored id, because a
    received send is stored in the same step, or fails. Without deduplication it is -1.
    """
    return max([entry.sequence for entry in s.log], default=-1) if cfg.deduplication else -1


def merged(messages: tuple[int, ...], others: Iterable[int]) -> tuple[int, ...]:
    """Returns the union of two sets of messages."""
    return tuple(sorted({*messages, *others}))


def messages_of(cfg: Config, entry: int) -> range:
    """Returns the messages of an entry."""
    return range(entry * cfg.batch_size, (entry + 1) * cfg.batch_size)


def unacked(cfg: Config, s: State, entry: int) -> tuple[int, ...]:
    """Returns the messages of an entry that the subscription has not acknowledged."""
    return tuple([m for m in messages_of(cfg, entry) if m not in s.acked])
