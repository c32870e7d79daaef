"""State of a bundle transfer, settings, rules, and the machine; the other modules of this package add its actions.

    records   the channel (PIP-192): the ownership records of the bundle, in one order. The append of a writer with a
              stale view succeeds, but every reader skips its record; `records` does not contain it
    brokers   of each: whether it is alive, whether it is registered with the metadata store, its view (the last record
              that it applied), and its duty (the record that it still has to append)
    topics    what the bookies store; a topic object in the cache of each broker; the clients

A client is a producer or the consumer of the topic's subscription, with one connection at a time: a FIFO queue of
commands in each direction. A connection that ends empties both.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from model.machine import Machine, Setting
from model.values import AtLeast, Between, Origin, Rule, record

Variant = Literal["V0", "V1a", "V1b", "V2", "V3", "V4"]

RecordState = Literal["owned", "acquiring", "releasing", "assigning"]
#: The record that a broker still has to append (`channel.publish`); empty if none. prepare: Releasing; release:
#: Assigning, in V4 Owned; own: Owned.
Duty = Literal["", "prepare", "release", "own"]

#: Variants with Acquiring: the destination begins to load topics before the source fences them.
PREPARING = ("V1b", "V2")
#: Variants in which the source disconnects a client as soon as the topic's ledger is closed.
EARLY = ("V1a", "V1b", "V2", "V3")
#: Variants in which a client's `PRODUCER` or `SUBSCRIBE` lets the destination load the topic before it owns the bundle.
LOADED_BEFORE_OWNED = ("V1a", "V2")


class Config(NamedTuple):
    """The cluster, broker and client settings, then the protocol's variant and the rules on which versions differ."""

    #: number of brokers; broker 0 owns the bundle at the start
    brokers: Annotated[int, Between(2, 4)] = 3
    #: number of topics in the bundle
    topics: Annotated[int, Between(1, 4)] = 1
    #: number of producers of each topic; they are its first clients
    producers: Annotated[int, Between(1, 4)] = 2
    #: number of consumers of each topic: 0 or 1
    consumers: Annotated[int, Between(0, 1)] = 1
    #: maximum number of pending messages of a producer
    window: Annotated[int, AtLeast(1), Setting("maxPendingMessages", "0 (unbounded)")] = 2
    deduplication: Annotated[bool, Setting("brokerDeduplicationEnabled", False)] = False

    #: V0: PIP-307 as merged. V1a: the source sends the close command as soon as the ledger is closed; also in V1b, V2
    #: and V3. V1b: the destination begins to load every topic before the source fences it. V2: as V1b, and clients
    #: pause and connect to the destination in advance. V3: the close command has no address; the client looks the topic
    #: up. V4: there is no Assigning
    variant: Annotated[
        Variant,
        Rule(
            Origin.INFERRED,
            dict.fromkeys(("V1a", "V1b", "V2", "V3"), "review of apache/pulsar#20748") | {"V4": "apache/pulsar#19683"},
        ),
    ] = "V0"
    #: which Owned record lets a broker disconnect the clients of its stale topics (fenced, or of a bundle that it does
    #: not own): any, or only one that names the broker as source
    stale_topics_closed_on: Annotated[
        Literal["any_owner", "owner_names_source"],
        Rule(Origin.READ, {"owner_names_source": "ServiceUnitStateChannelImpl.handleOwnEvent"}),
    ] = "any_owner"
    #: whether the source appends the record of its duty (Assigning, in V4 Owned) when closing the topics has timed out
    close_timeout_publishes: Annotated[bool, Rule(Origin.READ, {True: "BrokerService.unloadServiceUnit"})] = False
    #: whether a topic is removed from the cache if phase 1 of its close fails before the ledger is closed, although its
    #: clients stay attached
    failed_close_evicts: Annotated[
        bool, Rule(Origin.READ, {True: "PersistentTopic.close, BrokerService.cleanUnloadedTopicFromCache"})
    ] = False
    #: whether a broker without registration answers from its view, and parks no request. A broker that parks a request
    #: (`deferGetOwnerRequest`) answers when its view has an owner
    unregistered_uses_view: Annotated[
        bool, Rule(Origin.READ, {True: "ServiceUnitStateChannelImpl.getActiveOwnerAsync"})
    ] = False
    #: after a metadata session loss: the view is refreshed, stays stale, or the broker shuts down
    session_loss: Annotated[
        Literal["refresh", "stale", "shutdown"],
        Rule(
            Origin.READ,
            {
                "stale": "MetadataStoreTableViewImpl before apache/pulsar#24478",
                "shutdown": "zookeeperSessionExpiredPolicy",
            },
        ),
    ] = "refresh"
    #: which topics ignore sends. transferring: those in transfer; fenced: all fenced ones, also after a failed write
    sends_ignored_while: Annotated[
        Literal["transferring", "fenced"], Rule(Origin.READ, {"fenced": "apache/pulsar#21408, before #21668"})
    ] = "transferring"
    #: whether a write that fails during the transfer disconnects the topic's clients
    failed_write_disconnects: Annotated[bool, Rule(Origin.READ, {True: "apache/pulsar#21408, before #21668"})] = False
    #: whether the callback of a write that fails during the transfer is invoked; it lowers the number of writes that
    #: are pending on the connection
    failed_write_completes: Annotated[bool, Rule(Origin.READ, {False: "before apache/pulsar#25554"})] = True
    #: whether a client that cannot connect to its address looks the topic up again
    address_is_used_once: Annotated[bool, Rule(Origin.READ, {False: "apache/pulsar#25929, before #26009"})] = True
    #: whether the leader also reassigns an Owned bundle whose source (previous owner) is not registered
    unregistered_source_makes_orphan: Annotated[bool, Rule(Origin.READ, {True: "before apache/pulsar#23064"})] = False
    #: whether a restarted broker handles the newest record (`handleExisting`) as if it had just been delivered
    restart_acts_on_record: Annotated[bool, Rule(Origin.READ, {False: "before apache/pulsar#25379"})] = True
    #: whether the clean-up of a closed topic compares the topic object, and not only the name
    removal_compares_instance: Annotated[bool, Rule(Origin.READ, {False: "before apache/pulsar#26145"})] = True
    #: whether a topic that is closing opens again when its last pending write completes
    drained_topic_reopens: Annotated[bool, Rule(Origin.READ, {True: "before apache/pulsar#7735"})] = False
    #: whether the source, too, parks requests during the transfer, and appends the record of its duty only when no
    #: client waits at it (a deadlock)
    source_parks: Annotated[bool, Rule(Origin.READ, {True: "before apache/pulsar#22112"})] = False
    #: whether closing a cursor waits until the bundle has an owner
    cursor_close_checks_ownership: Annotated[bool, Rule(Origin.READ, {True: "before apache/pulsar#21332"})] = False
    #: whether a broker answers a client that connects while the topic is closing
    closing_topic_answers: Annotated[bool, Rule(Origin.INFERRED, {False: "reported in apache/pulsar#6872, #9792"})] = (
        True
    )
    #: whether a broker gives up a load if it no longer owns the bundle
    load_checks_ownership_again: Annotated[bool, Rule(Origin.READ, {False: "reported in apache/pulsar#20540"})] = True
    #: whether an entry that ledger recovery did not find cannot be confirmed later
    recovery_seals_ledger: Annotated[bool, Rule(Origin.INFERRED, {False: "before apache/pulsar#24722"})] = True


# ---- the channel and the brokers -----------------------------------------------------------------------


@record
class Record(NamedTuple):
    """An ownership record (`ServiceUnitStateData`). In acquiring (V1b, V2) the source still owns the bundle."""

    state: RecordState
    dst: int  # the owner, or the broker that shall own the bundle
    source: int | None  # the previous owner
    forced: bool  # an override by the leader


@record
class Broker(NamedTuple):
    """A broker: its view of the channel, and its duty."""

    alive: bool
    registered: bool
    view: int  # the index of the last record that it applied; 0 if it is down
    duty: Duty
    #: the last Owned record that it applied names it as source; always false without `owner_names_source`
    named_source: bool
    leaked: int  # failed writes that still count as pending on its connections


# ---- topics --------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """A message as stored: producer and sequence id."""

    producer: int
    sequence: int


@record
class Add(NamedTuple):
    """An entry sent to the bookies, not confirmed yet. `live`: the session that sent it is still attached."""

    entry: Entry
    live: bool


@record
class TopicObject(NamedTuple):
    """A topic object in a broker's cache (`PersistentTopic`)."""

    #: closing: fenced and `transferring`, its ledger is still open; closed: the same, its ledger is closed (the end of
    #: phase 1, see `machine.py`); failed: fenced by a failed write; disconnected: its clients got the close command
    #: (phase 2), and only its clean-up is pending
    phase: Literal["loading", "open", "closing", "closed", "failed", "disconnected"]
    writable: bool  # its ledger is open and no other broker has fenced it
    adds: tuple[Add, ...]  # in the order in which they were sent
    cursor: int  # number of acknowledged entries: the mark-delete position plus 1
    older: int  # number of older topic objects whose clean-up is pending


class Command(NamedTuple):
    """A command from a broker to a client."""

    kind: Literal["success", "receipt", "message", "close", "prepare"]
    value: int | None = None  # a sequence id, the position of an entry, or the address of a broker


@record
class Client(NamedTuple):
    """A producer or consumer handler and its connection."""

    #: lookup: without address; parked: the peer parks its lookup; directed: it has the peer's address; waiting: it sent
    #: `PRODUCER` or `SUBSCRIBE`; ready: it has received success
    phase: Literal["lookup", "parked", "directed", "waiting", "ready"]
    peer: int | None
    paused: bool  # V2: it has received prepare and sends nothing; its connection to the destination is not modelled
    #: producer: number of messages that the application sent; consumer: position of the next entry to dispatch
    begun: int
    #: producer: number of messages with a receipt; consumer: position after the last entry that it processed
    done: int
    up: tuple[int, ...]  # in flight to the peer. producer: sequence ids; consumer: numbers of acknowledged entries
    down: tuple[Command, ...]  # commands in flight from the peer


@record
class Topic(NamedTuple):
    """A topic: what the bookies have, a topic object of each broker or None, and the clients."""

    log: tuple[Entry, ...]  # entries of closed ledgers and confirmed ones of the open ledger
    abandoned: tuple[Entry, ...]  # unconfirmed entries of a ledger whose writer is gone
    cursor: int  # number of acknowledged entries, as persisted
    objects: tuple[TopicObject | None, ...]
    clients: tuple[Client, ...]


@record
class State(NamedTuple):
    """The bundle."""

    records: tuple[Record, ...]
    brokers: tuple[Broker, ...]
    topics: tuple[Topic, ...]


def start(cfg: Config) -> State:
    """Broker 0 owns the bundle and serves every topic; all clients are attached to it."""
    client = Client("ready", 0, False, 0, 0, (), ())
    clients = (client,) * (cfg.producers + min(cfg.consumers, 1))
    serving = TopicObject("open", True, (), 0, 0)
    topic = Topic((), (), 0, (serving, *(None,) * (cfg.brokers - 1)), clients)
    broker = Broker(True, True, 0, "", False, 0)
    return State((Record("owned", 0, None, False),), (broker,) * cfg.brokers, (topic,) * cfg.topics)


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
    """Returns the state without the records before every running broker's view."""
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
    """Returns the broker that serves the bundle according to a record, if any."""
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
    """Whether the broker has the client's session: it answered success and sent no close since."""
    kinds = [command.kind for command in c.down]
    return c.peer == broker and "close" not in kinds and (c.phase == "ready" or "success" in kinds)


def with_command(t: Topic, client: int, command: Command) -> Topic:
    """Returns the topic after a broker sent a client a command; a close ends the session at once."""
    c = t.clients[client]
    t = with_client(t, client, c._replace(down=(*c.down, command)))
    return without_session(t, client) if command.kind == "close" else t


def to_attached(t: Topic, broker: int, command: Command) -> Topic:
    """Returns the topic after a broker sent a command to every client that is attached to it."""
    for number, c in enumerate(t.clients):
        if is_attached(c, broker):
            t = with_command(t, number, command)
    return t


def without_session(t: Topic, client: int) -> Topic:
    """Returns the topic after a client's session ended: its adds in flight get no receipt any more."""
    return t._replace(objects=tuple([o and o._replace(adds=without_live(o.adds, client)) for o in t.objects]))


def without_live(adds: tuple[Add, ...], client: int) -> tuple[Add, ...]:
    """Returns the adds after the session of a producer ended."""
    return tuple([add._replace(live=add.live and add.entry.producer != client) for add in adds])


def without_connection(c: Client, phase: Literal["lookup", "directed", "waiting"], peer: int | None = None) -> Client:
    """Returns a client after its connection ended."""
    return c._replace(phase=phase, peer=peer, paused=False, up=(), down=())
