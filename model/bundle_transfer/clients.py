"""Clients: lookups, connections, sends and acknowledgements, and how brokers answer them."""

from __future__ import annotations

from model.bundle_transfer.channel import DOWN, IN_FLIGHT, BrokerNumber
from model.bundle_transfer.state import (
    Client,
    Command,
    Config,
    State,
    Topic,
    bundle_transfer,
    is_attached,
    is_producer,
    owner_in,
    view_of,
    with_client,
    with_command,
    with_command_to_attached,
    with_object,
    with_topic,
    without_connection,
    without_session,
)
from model.bundle_transfer.topics import TopicNumber, added, may_load
from model.machine import Failed, Refused, Step, refused

ClientNumber = int

NO_CLIENT = Refused("illegal_argument", "the topic has no such client")
OTHER_PHASE = Refused("not_enabled", "the client is not in this phase")


def found(s: State, topic: int, client: int) -> tuple[Topic, Client | None]:
    """Returns a topic and one of its clients; None if the topic has no such client."""
    t = s.topics[topic]
    return t, t.clients[client] if 0 <= client < len(t.clients) else None


def replaced(s: State, topic: int, client: int, changed: Client) -> State:
    """Returns the state with one client replaced."""
    return with_topic(s, topic, with_client(s.topics[topic], client, changed))


# ---- finding the owner ---------------------------------------------------------------------------------


def answer_of(cfg: Config, s: State, broker: int) -> int | None:
    """Returns a broker's answer to a lookup, the owner or destination in its view; None if the lookup is parked.

    If the view has an owner, the answer is the owner; the lookup is parked if the owner is not registered. During a
    transfer, the destination parks the lookup (with `source_parks` also the source), and every other broker answers
    with the destination. An unregistered broker parks nothing.
    """
    r, is_registered = view_of(s, broker), s.brokers[broker].registered
    owner = owner_in(r)
    if owner is not None:
        return owner if s.brokers[owner].registered or not is_registered else None
    parks = r.dst == broker or (cfg.source_parks and r.source == broker)
    return None if parks and is_registered else r.dst


@bundle_transfer.action
def lookup(cfg: Config, s: State, topic: TopicNumber, client: ClientNumber, broker: BrokerNumber) -> Step[State, str]:
    """`ServerCnx.handleLookup`: a client without address looks its topic up at a broker.

    The broker answers from its view, or parks the lookup (`answer_of`). With `unregistered_uses_view` false, a broker
    that is not registered rejects the lookup. Returns "answered" or "parked".
    """
    _, c = found(s, topic, client)
    if c is None or c.phase != "lookup":
        return s, NO_CLIENT if c is None else OTHER_PHASE
    b = s.brokers[broker]
    if not b.alive:
        return s, DOWN
    if not b.registered and not cfg.unregistered_uses_view:
        return refused(s, "not_ready", "the broker has lost its registration")
    owner = answer_of(cfg, s, broker)
    if owner is None:
        return replaced(s, topic, client, c._replace(phase="parked", peer=broker)), "parked"
    return replaced(s, topic, client, c._replace(phase="directed", peer=owner)), "answered"


@bundle_transfer.action
def answer(cfg: Config, s: State, topic: TopicNumber, client: ClientNumber) -> Step[State, int]:
    """`ServiceUnitStateChannelImpl.handleOwnEvent`: a broker answers a parked lookup once its view has an answer.

    The answer is a registered owner, or the destination of a transfer to another broker (`answer_of`). If the answering
    broker has lost its registration, the lookup fails; with `unregistered_uses_view`, it is answered from the view.
    Returns the answer.
    """
    _, c = found(s, topic, client)
    if c is None or c.phase != "parked" or c.peer is None:
        return s, NO_CLIENT if c is None else OTHER_PHASE
    if not s.brokers[c.peer].registered and not cfg.unregistered_uses_view:
        failed = Failed("not_ready", "the broker has lost its registration")
        return replaced(s, topic, client, without_connection(c, "lookup")), failed
    owner = answer_of(cfg, s, c.peer)
    if owner is None:
        return refused(s, "not_enabled", "the bundle has no registered owner yet")
    return replaced(s, topic, client, c._replace(phase="directed", peer=owner)), owner


@bundle_transfer.action
def connect(cfg: Config, s: State, topic: TopicNumber, client: ClientNumber) -> Step[State, None]:
    """`ConnectionHandler.grabCnx`: a client connects to its address and sends `PRODUCER` or `SUBSCRIBE`.

    If the broker is down, the client looks the topic up again; without `address_is_used_once`, it keeps the address.
    """
    _, c = found(s, topic, client)
    if c is None or c.phase != "directed" or c.peer is None:
        return s, NO_CLIENT if c is None else OTHER_PHASE
    if s.brokers[c.peer].alive:
        return replaced(s, topic, client, c._replace(phase="waiting")), None
    failed = Failed("not_connected", "the broker is down")
    if not cfg.address_is_used_once:
        return s, failed
    return replaced(s, topic, client, without_connection(c, "lookup")), failed


@bundle_transfer.action
def admit(cfg: Config, s: State, topic: TopicNumber, client: ClientNumber) -> Step[State, str]:
    """`ServerCnx.handleProducer`, `handleSubscribe`: a broker answers `PRODUCER` or `SUBSCRIBE` from its view.

    The owner answers with success once it has loaded the topic, and with an error while the topic is fenced (without
    `closing_topic_answers`, not at all). During a transfer, a registered destination, with `source_parks` also the
    source, parks the request until its view has an Owned record. Any other broker answers with an error. The step is
    refused while the broker gives no answer.
    """
    t, c = found(s, topic, client)
    # a waiting client with commands in `down` has got its answer, success
    if c is None or c.phase != "waiting" or c.peer is None or c.down:
        return s, NO_CLIENT if c is None else OTHER_PHASE
    broker, r, o = c.peer, view_of(s, c.peer), t.objects[c.peer]
    is_dst = r.dst == broker and r.state in IN_FLIGHT and s.brokers[broker].registered
    if may_load(cfg, s, broker):
        if o is None or o.phase in ("disconnected", "loading"):
            return refused(s, "not_enabled", "the topic is not loaded yet")
        if o.phase == "open":
            return with_topic(s, topic, with_client(t, client, admitted(cfg, s, t, client))), "success"
        if not cfg.closing_topic_answers:
            return refused(s, "not_enabled", "the topic is closing")
    elif is_dst or (cfg.source_parks and r.source == broker and r.state in IN_FLIGHT):
        return refused(s, "not_enabled", "the bundle has no owner yet")
    rejected = Failed("not_ready", "the broker does not serve the topic")
    return replaced(s, topic, client, without_connection(c, "lookup")), rejected


def admitted(cfg: Config, s: State, t: Topic, client: int) -> Client:
    """Returns the client after its broker sent success, in V2 during acquiring also prepare.

    A consumer continues at the cursor.
    """
    c = t.clients[client]
    assert c.peer is not None, "a waiting client has a peer"
    o, r = t.objects[c.peer], view_of(s, c.peer)
    commands = [Command("success")]
    if r.state == "acquiring" and cfg.variant == "V2":
        commands.append(Command("prepare", r.dst))
    begun = c.begun if is_producer(cfg, client) or o is None else o.cursor
    return c._replace(begun=begun, down=tuple(commands))


# ---- commands of the client ----------------------------------------------------------------------------


def pending(cfg: Config, c: Client, client: int) -> tuple[int, ...]:
    """Returns the sequence ids for which a producer has no receipt; none for a consumer."""
    return tuple(range(c.done, c.begun)) if is_producer(cfg, client) else ()


@bundle_transfer.action
def send(cfg: Config, s: State, topic: TopicNumber, client: ClientNumber) -> Step[State, int]:
    """`ProducerImpl.sendAsync`: the application sends a message. Returns the message's sequence id.

    The step is refused while the window of pending messages is full. A producer that is not ready, or that is paused,
    keeps the message until it is attached again.
    """
    _, c = found(s, topic, client)
    if c is None or not is_producer(cfg, client):
        return s, NO_CLIENT
    if c.begun - c.done >= cfg.window:
        return refused(s, "not_enabled", "the window of pending messages is full")
    up = (*c.up, c.begun) if c.phase == "ready" and not c.paused else c.up
    return replaced(s, topic, client, c._replace(begun=c.begun + 1, up=up)), c.begun


@bundle_transfer.action
def process(cfg: Config, s: State, topic: TopicNumber, client: ClientNumber) -> Step[State, str]:
    """`ServerCnx.handleSend`, `ServerCnx.handleAck`: a broker processes the next send or ack of an attached client.

    If the topic is not open, the broker ignores the command: the client gets neither a receipt nor an error. In V3 the
    broker then closes the sessions of all clients of the topic. A duplicate send gets a receipt, and a send in doubt
    ends the session (see `added`). Returns "added", "duplicate", "in_doubt", "acknowledged" or "ignored".
    """
    t, c = found(s, topic, client)
    if c is None:
        return s, NO_CLIENT
    if not c.up or c.peer is None or not is_attached(c, c.peer):
        return refused(s, "not_enabled", "no command is in flight, or the broker has closed the session")
    value, broker, o = c.up[0], c.peer, t.objects[c.peer]
    t = with_client(t, client, c._replace(up=c.up[1:]))
    if o is None or o.phase != "open":
        if cfg.variant == "V3":
            t = with_command_to_attached(t, broker, Command("close"))
        return with_topic(s, topic, t), "ignored"
    if not is_producer(cfg, client):
        return with_topic(s, topic, with_object(t, broker, o._replace(cursor=max(o.cursor, value)))), "acknowledged"
    t, outcome = added(cfg, t, broker, client, value)
    if outcome != "added":
        command = Command("receipt", value) if outcome == "duplicate" else Command("close")
        t = with_command(t, client, command)
    return with_topic(s, topic, t), outcome


@bundle_transfer.action
def dispatch(cfg: Config, s: State, topic: TopicNumber, client: ClientNumber) -> Step[State, int]:
    """`Consumer.sendMessages`: the broker sends the consumer the next entry. Returns the position of the entry."""
    t, c = found(s, topic, client)
    if c is None or is_producer(cfg, client):
        return s, NO_CLIENT
    o = None if c.peer is None or not is_attached(c, c.peer) else t.objects[c.peer]
    if o is None or o.phase != "open" or c.begun >= len(t.log):
        return refused(s, "not_enabled", "the consumer is not attached, or has got every entry")
    down = (*c.down, Command("message", c.begun))
    return replaced(s, topic, client, c._replace(begun=c.begun + 1, down=down)), c.begun


# ---- commands of the broker ----------------------------------------------------------------------------


@bundle_transfer.action
def receive(cfg: Config, s: State, topic: TopicNumber, client: ClientNumber) -> Step[State, int]:
    """`ClientCnx`: a client handles the next command of its broker. The command may end the session or connection.

    Then the client's own commands that are still in flight to the broker are lost. Returns their number.

    success   a producer sends all pending messages again, oldest first
    receipt   the oldest pending message is complete. A receipt of an earlier message is ignored. A receipt of a later
              message makes the client end the connection
    message   the consumer processes the entry and acknowledges it
    close     the client connects to the address; without an address it looks the topic up. A paused client is connected
              to the address already, unless that broker is down
    prepare   the client is paused: it stops sending, and connects to the destination
    """
    _, c = found(s, topic, client)
    if c is None or not c.down:
        return s, NO_CLIENT if c is None else OTHER_PHASE
    kind, value = c.down[0]
    left = c._replace(down=c.down[1:])
    if kind == "success":
        left = left._replace(phase="ready", up=(*c.up, *pending(cfg, c, client)))
    elif kind == "message" and value is not None:
        left = left._replace(done=max(c.done, value + 1), up=(*c.up, value + 1))
    elif kind == "prepare":
        left = left._replace(paused=True)
    elif kind == "receipt" and value is not None and value <= c.done:
        # `c.done` is the sequence id of the oldest pending message
        left = left._replace(done=c.done + (value == c.done))
    elif kind == "receipt":
        return broken(s, topic, client), len(c.up)
    elif value is None:
        left = without_connection(c, "lookup")
    elif c.paused and s.brokers[value].alive:
        left = without_connection(c, "waiting", value)
    else:
        left = without_connection(c, "directed", value)
    return replaced(s, topic, client, left), len(c.up) if kind == "close" else 0


@bundle_transfer.fault
def break_connection(cfg: Config, s: State, topic: TopicNumber, client: ClientNumber) -> Step[State, None]:
    """`ConnectionHandler.connectionClosed`: a connection breaks.

    Commands in flight in both directions are lost, and the client looks the topic up again.
    """
    _, c = found(s, topic, client)
    if c is None or c.phase not in ("waiting", "ready"):
        return s, NO_CLIENT if c is None else OTHER_PHASE
    return broken(s, topic, client), None


def broken(s: State, topic: int, client: int) -> State:
    """Returns the state after a client's connection ended: the session's adds in flight get no receipt any more."""
    t = s.topics[topic]
    c = t.clients[client]
    return with_topic(s, topic, with_client(without_session(t, client), client, without_connection(c, "lookup")))
