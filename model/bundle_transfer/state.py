"""State of a bundle transfer, settings, rules, and the machine; the other modules of this package add its actions.

    records   the channel (PIP-192): the ownership records of the bundle, in one order. If a writer's view is stale, its
              append succeeds, but every reader skips the record. `records` does not contain skipped records
    brokers   of each broker: whether it is alive, whether it is registered with the metadata store, its view (the last
              record that it applied), and its duty (the record that it still has to append)
    topics    of each topic: what the bookies store; a topic object in the cache of each broker that loaded it; the
              clients

A client is a producer or the consumer of the topic's subscription. It has one connection at a time, with a FIFO queue
of commands in each direction. When a connection ends, the commands in both queues are lost. The position of an entry is
its index in the topic's log.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from model.machine import Machine, Setting
from model.values import AtLeast, Between, Origin, Rule, record

Variant = Literal["V0", "V1a", "V1b", "V2", "V3", "V4"]

#: The states of `ServiceUnitState` that a transfer needs, and acquiring, with which V1b and V2 begin a transfer.
RecordState = Literal["owned", "acquiring", "releasing", "assigning"]
#: The record that a broker still has to append (`channel.publish`); empty if it has none to append. prepare: Releasing;
#: release: Assigning, in V4 Owned; own: Owned.
Duty = Literal["", "prepare", "release", "own"]

#: Variants with acquiring: the destination begins to load topics before the source fences them.
PREPARING = ("V1b", "V2")
#: Variants in which the source disconnects a client as soon as the topic's ledger is closed.
DISCONNECTED_BEFORE_OWNED = ("V1a", "V1b", "V2", "V3")
#: Variants in which a client's `PRODUCER` or `SUBSCRIBE` makes the destination begin to load the topic, before the
#: destination owns the bundle.
LOADED_BEFORE_OWNED = ("V1a", "V2")


class Config(NamedTuple):
    """Sizes, settings of brokers and clients, the variant of the protocol, then the rules in which versions differ."""

    #: number of brokers; broker 0 owns the bundle at the start
    brokers: Annotated[int, Between(2, 4)] = 3
    #: number of topics in the bundle
    topics: Annotated[int, Between(1, 4)] = 1
    #: number of producers of each topic. Clients are numbered from 0: first the producers, then the consumer
    producers: Annotated[int, Between(1, 4)] = 2
    #: number of consumers of each topic: 0 or 1
    consumers: Annotated[int, Between(0, 1)] = 1
    #: maximum number of pending messages of a producer
    window: Annotated[int, AtLeast(1), Setting("maxPendingMessages", "0 (unbounded)")] = 2
    deduplication: Annotated[bool, Setting("brokerDeduplicationEnabled", False)] = False

    #: V0   PIP-307 as merged
    #: V1a  the source sends the close command as soon as the ledger is closed
    #: V1b  as V1a; but first the destination begins to load every topic, and only then does the source fence the topics
    #: V2   as V1b; but first the source pauses its clients, which connect to the destination. The destination begins to
    #:      load a topic only for a paused client
    #: V3   as V1a, but the close command has no address, so the client looks the topic up. A send or an ack that
    #:      reaches a fenced topic closes the sessions of the topic's clients
    #: V4   as V0, but the source appends Owned in place of Assigning
    variant: Annotated[
        Variant,
        Rule(
            Origin.INFERRED,
            dict.fromkeys(("V1a", "V1b", "V2", "V3"), "review of apache/pulsar#20748") | {"V4": "apache/pulsar#19683"},
        ),
    ] = "V0"
    #: after which Owned records a broker disconnects the clients of its stale topics (see `machine.py`): after all, or
    #: only after records that name the broker as source
    stale_topics_closed_on: Annotated[
        Literal["any_owner", "owner_names_source"],
        Rule(Origin.READ, {"owner_names_source": "ServiceUnitStateChannelImpl.handleOwnEvent"}),
    ] = "any_owner"
    #: whether the source appends the record of its duty (Assigning, in V4 Owned) when the close of its topics times out
    close_timeout_publishes: Annotated[bool, Rule(Origin.READ, {True: "BrokerService.unloadServiceUnit"})] = False
    #: whether a topic whose close fails in phase 1, before the ledger is closed, is removed from the cache, although
    #: its clients stay attached
    failed_close_evicts: Annotated[
        bool, Rule(Origin.READ, {True: "PersistentTopic.close, BrokerService.cleanUnloadedTopicFromCache"})
    ] = False
    #: whether an unregistered broker answers requests from its view, and parks (`deferGetOwner`) none. false: an
    #: unregistered broker rejects requests
    unregistered_uses_view: Annotated[
        bool, Rule(Origin.READ, {True: "ServiceUnitStateChannelImpl.getActiveOwnerAsync"})
    ] = False
    #: what follows when a broker loses its metadata session. refresh: its view is refreshed when it registers again;
    #: stale: its view is not refreshed then; shutdown: the broker shuts down
    session_loss: Annotated[
        Literal["refresh", "stale", "shutdown"],
        Rule(
            Origin.READ,
            {
                "stale": "MetadataStoreTableViewImpl, master 2026-09",
                "shutdown": "zookeeperSessionExpiredPolicy",
            },
        ),
    ] = "refresh"
    #: which topics ignore sends. transferring: topics in transfer; fenced: all fenced topics, also after a failed write
    #: (with "transferring", a failed write removes the topic from the cache)
    sends_ignored_while: Annotated[
        Literal["transferring", "fenced"], Rule(Origin.READ, {"fenced": "apache/pulsar#21408, before #21668"})
    ] = "transferring"
    #: whether a write that fails during the transfer disconnects the topic's clients
    failed_write_disconnects: Annotated[bool, Rule(Origin.READ, {True: "apache/pulsar#21408, before #21668"})] = False
    #: whether the callback of a write that fails during the transfer is invoked. The callback lowers the number of
    #: writes that are pending on the connection
    failed_write_completes: Annotated[bool, Rule(Origin.READ, {False: "before apache/pulsar#25554"})] = True
    #: whether a client that cannot connect to the address of a redirect looks the topic up. false: it tries the address
    #: again
    address_is_used_once: Annotated[bool, Rule(Origin.READ, {False: "apache/pulsar#25929, before #26009"})] = True
    #: whether a restarted broker handles the newest record (`handleExisting`) like a record that is delivered to it. In
    #: Pulsar since #25379, only an Assigning record; the model does not make this distinction
    restart_acts_on_record: Annotated[bool, Rule(Origin.READ, {False: "before apache/pulsar#25379"})] = True
    #: whether the clean-up of a closed topic object removes only this object. false: it removes the object that the
    #: cache has under the topic's name
    removal_compares_instance: Annotated[bool, Rule(Origin.READ, {False: "before apache/pulsar#26145"})] = True
    #: whether a topic that is closing opens again when its last pending write completes
    drained_topic_reopens: Annotated[bool, Rule(Origin.READ, {True: "before apache/pulsar#7735"})] = False
    #: whether the source also parks requests during the transfer. A parked `PRODUCER` or `SUBSCRIBE` waits for a record
    #: after Releasing, and the source appends this record only when no client waits at the source: a deadlock
    source_parks: Annotated[bool, Rule(Origin.READ, {True: "before apache/pulsar#22112"})] = False
    #: whether closing a cursor waits until the bundle has an owner
    cursor_close_checks_ownership: Annotated[bool, Rule(Origin.READ, {True: "before apache/pulsar#21332"})] = False
    #: whether a broker answers a client that connects while the topic is closing
    closing_topic_answers: Annotated[bool, Rule(Origin.INFERRED, {False: "reported in apache/pulsar#6872, #9792"})] = (
        True
    )
    #: whether a broker gives up the load of a topic if it does not own the bundle any more
    load_checks_ownership_again: Annotated[bool, Rule(Origin.READ, {False: "reported in apache/pulsar#20540"})] = True
    #: true: an entry that ledger recovery does not find is never confirmed. false: it may be confirmed after recovery
    recovery_seals_ledger: Annotated[bool, Rule(Origin.INFERRED, {False: "before apache/pulsar#24722"})] = True


# ---- the channel and the brokers -----------------------------------------------------------------------


@record
class Record(NamedTuple):
    """An ownership record (`ServiceUnitStateData`)."""

    state: RecordState
    dst: int  # the owner; during a transfer, the next owner
    source: int | None  # the previous owner, unless it is `dst`; in acquiring (V1b, V2), the present owner
    forced: bool  # an override by the leader


@record
class Broker(NamedTuple):
    """A broker."""

    alive: bool
    registered: bool
    view: int  # index in `State.records` of the last record that the broker applied; 0 if the broker is down
    duty: Duty
    #: the last Owned record that the broker applied names this broker as source; always false unless
    #: `stale_topics_closed_on` is `owner_names_source`
    named_source: bool
    leaked: int  # number of failed writes that still count as pending on the broker's connections


# ---- topics --------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """A message as stored: producer and sequence id."""

    producer: int
    sequence: int


@record
class Add(NamedTuple):
    """An entry that was sent to the bookies and is not confirmed."""

    entry: Entry
    live: bool  # the session that sent the entry is still attached, and gets the receipt


@record
class TopicObject(NamedTuple):
    """A topic object in a broker's cache (`PersistentTopic`)."""

    #: loading: its ledger is not open yet
    #: open: it serves clients
    #: closing: in phase 1 (see `machine.py`), fenced and `transferring`; its ledger is still open
    #: closed: at the end of phase 1; its ledger is closed
    #: failed: fenced by a failed write
    #: disconnected: in phase 2; its clients got the close command, and only its clean-up is pending
    phase: Literal["loading", "open", "closing", "closed", "failed", "disconnected"]
    writable: bool  # its ledger is open, and no other broker has fenced the ledger
    adds: tuple[Add, ...]  # in flight to the bookies, oldest first
    cursor: int  # number of acknowledged entries: the mark-delete position is the last of them
    older: int  # number of older topic objects of this topic at this broker whose clean-up is pending


class Command(NamedTuple):
    """A command from a broker to a client."""

    kind: Literal["success", "receipt", "message", "close", "prepare"]
    #: receipt: a sequence id; message: the position of an entry; close, prepare: the broker whose address is in the
    #: command
    value: int | None = None


@record
class Client(NamedTuple):
    """A producer or consumer handler and its connection."""

    #: lookup: it has no address
    #: parked: the peer has parked its lookup
    #: directed: it has the peer's address
    #: waiting: it has sent `PRODUCER` or `SUBSCRIBE` to the peer
    #: ready: it has received success
    phase: Literal["lookup", "parked", "directed", "waiting", "ready"]
    #: parked: the broker that parked the lookup; directed: the broker of the address; waiting, ready: the broker of the
    #: connection; lookup: None
    peer: int | None
    paused: bool  # V2: it has received prepare and sends nothing; its connection to the destination is not modelled
    #: producer: number of messages that the application sent; consumer: position of the next entry to dispatch
    begun: int
    #: producer: number of messages with a receipt; consumer: position after the last entry that it processed
    done: int
    #: in flight to the peer: a producer's sends (sequence ids), or a consumer's acks (numbers of acknowledged entries)
    up: tuple[int, ...]
    down: tuple[Command, ...]  # commands in flight from the peer, oldest first


@record
class Topic(NamedTuple):
    """A topic."""

    log: tuple[Entry, ...]  # entries of closed ledgers and confirmed entries of the last ledger
    abandoned: tuple[Entry, ...]  # unconfirmed entries of the last ledger if its writer is gone
    cursor: int  # number of acknowledged entries, as persisted
    objects: tuple[TopicObject | None, ...]  # by broker; None: the topic is not in the broker's cache
    clients: tuple[Client, ...]  # the producers, then the consumer


@record
class State(NamedTuple):
    """The records of the bundle, the brokers, and the topics of the bundle."""

    records: tuple[Record, ...]
    brokers: tuple[Broker, ...]
    topics: tuple[Topic, ...]


def start(cfg: Config) -> State:
    """Returns the initial state: broker 0 owns the bundle and serves every topic; all clients are attached to it."""
    client = Client(phase="ready", peer=0, paused=False, begun=0, done=0, up=(), down=())
    clients = (client,) * (cfg.producers + cfg.consumers)
    serving = TopicObject(phase="open", writable=True, adds=(), cursor=0, older=0)
    objects = (serving, *(None,) * (cfg.brokers - 1))
    topic = Topic(log=(), abandoned=(), cursor=0, objects=objects, clients=clients)
    broker = Broker(alive=True, registered=True, view=0, duty="", named_source=False, leaked=0)
    owned = Record("owned", dst=0, source=None, forced=False)
    return State((owned,), (broker,) * cfg.brokers, (topic,) * cfg.topics)


bundle_transfer = Machine(
    "bundle_transfer",
    Config,
    start,
    source="PIP-307 and PIP-192; PIP-307 was PIP-281 in its review, apache/pulsar#20748",
    java={
        "ServiceUnitStateChannelImpl": (
            "handleEvent",
            "handleReleaseEvent",
            "handleAssignEvent",
            "doCleanup",
            "monitorOwnerships",
            "publishUnloadEventAsync",
        ),
        "ServerCnx": ("handleSend", "handleProducer", "handleSubscribe", "handleLookup"),
        "BrokerService": ("loadOrCreatePersistentTopic",),
        "PersistentTopic": ("close",),
        "ManagedLedgerImpl": (),
        "OpAddEntry": (),
        "Consumer": (),
        "ProducerImpl": (),
        "ConnectionHandler": (),
        "ClientCnx": (),
        "BrokerRegistryImpl": (),
    },
)


@bundle_transfer.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Returns the state without the records that precede the views of all running brokers."""
    first = min([b.view for b in s.brokers if b.alive], default=len(s.records) - 1)
    if not first:
        return s
    brokers = tuple([b._replace(view=b.view - first) if b.alive else b for b in s.brokers])
    return s._replace(records=s.records[first:], brokers=brokers)


# ---- reading and changing states -----------------------------------------------------------------------


def view_of(s: State, broker: int) -> Record:
    """Returns the last record that a broker applied."""
    return s.records[s.brokers[broker].view]


def owner_in(r: Record) -> int | None:
    """Returns the broker that owns the bundle according to a record, or None."""
    if r.state == "owned":
        return r.dst
    return r.source if r.state == "acquiring" else None


def with_broker(s: State, broker: int, changed: Broker) -> State:
    """Returns the state with one broker replaced."""
    return s._replace(brokers=(*s.brokers[:broker], changed, *s.brokers[broker + 1 :]))


def with_topic(s: State, topic: int, changed: Topic) -> State:
    """Returns the state with one topic replaced."""
    return s._replace(topics=(*s.topics[:topic], changed, *s.topics[topic + 1 :]))


def with_object(t: Topic, broker: int, changed: TopicObject | None) -> Topic:
    """Returns the topic with the topic object of one broker replaced."""
    return t._replace(objects=(*t.objects[:broker], changed, *t.objects[broker + 1 :]))


def with_client(t: Topic, client: int, changed: Client) -> Topic:
    """Returns the topic with one client replaced."""
    return t._replace(clients=(*t.clients[:client], changed, *t.clients[client + 1 :]))


def is_producer(cfg: Config, client: int) -> bool:
    """Whether a client is a producer."""
    return client < cfg.producers


def is_attached(c: Client, broker: int) -> bool:
    """Whether the broker has a session of the client: the broker sent success, and has sent no close command since."""
    kinds = [command.kind for command in c.down]
    return c.peer == broker and "close" not in kinds and (c.phase == "ready" or "success" in kinds)


def with_command(t: Topic, client: int, command: Command) -> Topic:
    """Returns the topic after a broker sent a client a command. A close command ends the client's session at once."""
    c = t.clients[client]
    t = with_client(t, client, c._replace(down=(*c.down, command)))
    return without_session(t, client) if command.kind == "close" else t


def with_command_to_attached(t: Topic, broker: int, command: Command) -> Topic:
    """Returns the topic after a broker sent a command to every client that is attached to this broker."""
    for number, c in enumerate(t.clients):
        if is_attached(c, broker):
            t = with_command(t, number, command)
    return t


def without_session(t: Topic, client: int) -> Topic:
    """Returns the topic after a client's session ended: the session's adds in flight get no receipt any more."""
    return t._replace(objects=tuple([o and o._replace(adds=without_live(o.adds, client)) for o in t.objects]))


def without_live(adds: tuple[Add, ...], client: int) -> tuple[Add, ...]:
    """Returns the adds after a producer's session ended: the adds of this producer are not live any more."""
    return tuple([add._replace(live=add.live and add.entry.producer != client) for add in adds])


def without_connection(c: Client, phase: Literal["lookup", "directed", "waiting"], peer: int | None = None) -> Client:
    """Returns a client in a new phase after its connection ended: the commands in flight are lost."""
    return c._replace(phase=phase, peer=peer, paused=False, up=(), down=())
