"""The channel: transfers, overrides, what a broker does when it applies a record, and crashes of brokers.

Every reader skips a record that was computed from a stale view. Therefore the model computes transfers and overrides
only from the newest record. A duty is a record that a broker still has to append. If the broker's view is stale when it
appends the record, readers skip the record, and the duty ends.
"""

from __future__ import annotations

from typing import Annotated

from model.bundle_transfer.state import (
    PREPARING,
    Broker,
    Command,
    Config,
    Duty,
    Record,
    RecordState,
    State,
    Topic,
    TopicObject,
    bundle_transfer,
    view_of,
    with_broker,
    with_command_to_attached,
    without_connection,
)
from model.machine import Refused, Step, refused
from model.values import Below

BrokerNumber = Annotated[int, Below("brokers")]

IN_FLIGHT = ("acquiring", "releasing", "assigning")
DOWN = Refused("not_ready", "the broker is down")


def appended(s: State, r: Record) -> State:
    """Returns the state with a record at the end of the channel."""
    return s._replace(records=(*s.records, r))


@bundle_transfer.action
def transfer(cfg: Config, s: State, dst: BrokerNumber) -> Step[State, None]:
    """`ServiceUnitStateChannelImpl.publishUnloadEventAsync`: starts the transfer of the bundle to another broker.

    The owner and the destination must be registered. The leader, or a broker that an operator calls, appends Releasing;
    in V1b and V2 it appends acquiring.
    """
    r = s.records[-1]
    if r.state != "owned" or dst == r.dst:
        return refused(s, "illegal_state", "the bundle is in transfer or owned by the destination")
    if not s.brokers[dst].registered or not s.brokers[r.dst].registered:
        return refused(s, "illegal_state", "the destination or the owner is not registered")
    return appended(s, Record("acquiring" if cfg.variant in PREPARING else "releasing", dst, r.dst, False)), None


@bundle_transfer.action
def deliver(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, str]:
    """`ServiceUnitStateChannelImpl.handleEvent`: a broker applies the next record of the channel and acts on it.

    Returns the record's state.
    """
    b = s.brokers[broker]
    if not b.alive:
        return s, DOWN
    if b.view + 1 == len(s.records):
        return refused(s, "not_enabled", "the broker has applied every record")
    return applied(cfg, s, broker, b.view + 1), s.records[b.view + 1].state


@bundle_transfer.fault
def jump(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, str]:
    """`ServiceUnitStateChannelImpl.handleEvent`: a slow broker applies the newest record and misses earlier records.

    The channel's topic was compacted, or notifications of the metadata store were coalesced. Returns the state of the
    newest record.
    """
    b = s.brokers[broker]
    if not b.alive:
        return s, DOWN
    if b.view + 2 >= len(s.records):
        return refused(s, "not_enabled", "the broker has no record to miss")
    return applied(cfg, s, broker, len(s.records) - 1), s.records[-1].state


def applied(cfg: Config, s: State, broker: int, view: int) -> State:
    """Returns the state after a broker applied the record at the index `view`: the record determines the broker's duty.

    The source of Releasing fences its topics (phase 1): clients stay attached, and their sends and acks are ignored. In
    V2, the source of acquiring pauses its clients. In V2, a broker that gets the bundle back by an override sends its
    clients close commands with its own address, so that paused clients connect to this broker again.
    """
    r, b = s.records[view], s.brokers[broker]
    duty: Duty = ""
    if r.dst == broker:
        # Releasing and Owned leave the destination without duty
        duty = "prepare" if r.state == "acquiring" else "own" if r.state == "assigning" else ""
    if r.source == broker and r.state == "releasing":
        duty = "release"
        s = s._replace(topics=tuple([fenced(cfg, t, broker) for t in s.topics]))
    if cfg.variant == "V2" and r.source == broker and r.state == "acquiring":
        s = sent_to_all(s, broker, Command("prepare", r.dst))
    # a forced Owned record without source: an override returned the bundle to its last owner
    if cfg.variant == "V2" and r == Record("owned", broker, None, True):
        s = sent_to_all(s, broker, Command("close", broker))
    # only an Owned record changes the flag
    is_named = r.source == broker if r.state == "owned" else b.named_source
    named_source = cfg.stale_topics_closed_on == "owner_names_source" and is_named
    return with_broker(s, broker, b._replace(view=view, duty=duty, named_source=named_source))


def fenced(cfg: Config, t: Topic, broker: int) -> Topic:
    """Returns the topic after a broker fenced its topic object for a transfer.

    With `load_checks_ownership_again` the broker gives up a load in progress; otherwise the load goes on.
    """
    o = t.objects[broker]
    if o is None or o.phase not in ("open", "failed", "loading"):
        return t
    changed: TopicObject | None = o._replace(phase="closing")
    if o.phase == "loading":
        changed = None if cfg.load_checks_ownership_again else o
    return t._replace(objects=(*t.objects[:broker], changed, *t.objects[broker + 1 :]))


def sent_to_all(s: State, broker: int, command: Command) -> State:
    """Returns the state after a broker sent a command to its attached clients of all topics."""
    return s._replace(topics=tuple([with_command_to_attached(t, broker, command) for t in s.topics]))


@bundle_transfer.action
def publish(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, bool]:
    """`ServiceUnitStateChannelImpl.handleReleaseEvent`, `handleAssignEvent`: a broker appends the next record.

    Returns whether readers accept the record. The broker does not learn whether they do.

    prepare   the destination of acquiring appends Releasing, once it has begun to load every topic (V1b, V2)
    release   the source appends Assigning (V4: Owned), once it has closed the ledger of every topic; with
              `source_parks`, once also no client waits for its answer
    own       the destination of Assigning appends Owned
    """
    b = s.brokers[broker]
    if not b.duty:
        return refused(s, "not_enabled", "the broker has nothing to append")
    if b.duty == "prepare" and not is_prepared(s, broker):
        return refused(s, "not_enabled", "the load of a topic has not begun")
    if b.duty == "release" and is_closing(s, broker):
        return refused(s, "not_enabled", "a ledger is open")
    if b.duty == "release" and cfg.source_parks and waits_at(s, broker):
        return refused(s, "not_enabled", "a client waits for the source's answer")
    return published(cfg, s, broker)


def is_prepared(s: State, broker: int) -> bool:
    """Whether the broker has begun to load every topic, and has opened none."""
    objects = [t.objects[broker] for t in s.topics]
    return all(o is not None and o.phase == "loading" for o in objects)


def is_closing(s: State, broker: int) -> bool:
    """Whether the broker still has a ledger to close."""
    objects = [t.objects[broker] for t in s.topics]
    return any(o is not None and o.phase == "closing" for o in objects)


def waits_at(s: State, broker: int) -> bool:
    """Whether a client has sent `PRODUCER` or `SUBSCRIBE` to the broker, and has not received the answer."""
    return any(c.phase == "waiting" and c.peer == broker for t in s.topics for c in t.clients)


def published(cfg: Config, s: State, broker: int) -> tuple[State, bool]:
    """Returns the state after a broker appended the next record, and whether readers accept the record."""
    b, r = s.brokers[broker], view_of(s, broker)
    is_accepted = b.view + 1 == len(s.records)
    following: RecordState = "owned"
    if r.state == "acquiring":
        following = "releasing"
    elif r.state == "releasing" and cfg.variant != "V4":
        following = "assigning"
    if is_accepted:
        s = appended(s, r._replace(state=following))
    return with_broker(s, broker, s.brokers[broker]._replace(duty="")), is_accepted


@bundle_transfer.fault
def fail_publish(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, None]:
    """`ServiceUnitStateChannelImpl.pubAsync`: a broker fails to append the next record, and does not retry."""
    b = s.brokers[broker]
    if not b.duty:
        return refused(s, "not_enabled", "the broker has nothing to append")
    return with_broker(s, broker, b._replace(duty="")), None


@bundle_transfer.fault
def close_timeout(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, bool]:
    """`BrokerService.unloadServiceUnit`: closing the topics exceeds `namespaceBundleUnloadingTimeoutMs`.

    With `close_timeout_publishes` the source appends the record of its duty; otherwise it goes on closing its topics.
    Returns whether the source appends a record that readers accept.
    """
    if s.brokers[broker].duty != "release":
        return refused(s, "not_enabled", "the broker closes no ledgers")
    return published(cfg, s, broker) if cfg.close_timeout_publishes else (s, False)


# ---- overrides -----------------------------------------------------------------------------------------


def overridden(s: State, dst: int) -> State:
    """Returns the state after the leader appended a forced Owned record that assigns the bundle to a broker."""
    r = s.records[-1]
    source = r.dst if r.state == "owned" else r.source  # the last owner
    return appended(s, Record("owned", dst, None if source == dst else source, True))


@bundle_transfer.action
def override(cfg: Config, s: State, owner: BrokerNumber) -> Step[State, None]:
    """`ServiceUnitStateChannelImpl.doCleanup`: the leader reassigns a bundle whose owner is not registered.

    The leader also reassigns a bundle in transfer whose source or destination is not registered.
    """
    r = s.records[-1]
    sides = [r.dst] if r.state == "owned" else [r.dst, r.source]
    if all(side is None or s.brokers[side].registered for side in sides):
        return refused(s, "not_enabled", "the brokers of the record are registered")
    if not s.brokers[owner].registered:
        return refused(s, "illegal_argument", "the new owner is not registered")
    return overridden(s, owner), None


@bundle_transfer.fault
def override_stuck(cfg: Config, s: State, owner: BrokerNumber) -> Step[State, None]:
    """`ServiceUnitStateChannelImpl.monitorOwnerships`: the leader reassigns a bundle whose transfer takes too long.

    Refused unless the source and the destination are registered. The new owner may be any registered broker, also one
    of these two.
    """
    r = s.records[-1]
    if r.state not in IN_FLIGHT or r.source is None:
        return refused(s, "not_enabled", "no transfer is in flight")
    if not all(s.brokers[each].registered for each in (owner, r.dst, r.source)):
        return refused(s, "illegal_argument", "a broker is not registered")
    return overridden(s, owner), None


# ---- crashes and lost sessions -------------------------------------------------------------------------


@bundle_transfer.fault
def crash(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, None]:
    """A broker stops: its registration, topic objects and connections are lost.

    The broker's unconfirmed entries stay stored at the bookies.
    """
    if not s.brokers[broker].alive:
        return s, DOWN
    return stopped(s, broker), None


def stopped(s: State, broker: int) -> State:
    """Returns the state after a broker stopped."""
    s = s._replace(topics=tuple([without_broker(t, broker) for t in s.topics]))
    return with_broker(s, broker, Broker(False, False, view=0, duty="", named_source=False, leaked=0))


def without_broker(t: Topic, broker: int) -> Topic:
    """Returns the topic after a broker stopped: the broker's clients look the topic up again.

    A client that has the broker's address and is not connected (`directed`) keeps the address.
    """
    o = t.objects[broker]
    abandoned = tuple([add.entry for add in o.adds]) if o is not None and o.writable else t.abandoned
    clients = [without_connection(c, "lookup") if c.peer == broker and c.phase != "directed" else c for c in t.clients]
    objects = (*t.objects[:broker], None, *t.objects[broker + 1 :])
    return t._replace(abandoned=abandoned, objects=objects, clients=tuple(clients))


@bundle_transfer.action
def restart(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, None]:
    """`ServiceUnitStateChannelImpl.handleExisting`: a broker starts, registers, and reads the newest record.

    With `restart_acts_on_record` the broker acts on the record as in `deliver`.
    """
    if s.brokers[broker].alive:
        return refused(s, "illegal_state", "the broker is running")
    s = with_broker(s, broker, Broker(True, True, view=len(s.records) - 1, duty="", named_source=False, leaked=0))
    return (applied(cfg, s, broker, s.brokers[broker].view) if cfg.restart_acts_on_record else s), None


@bundle_transfer.fault
def lose_session(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, None]:
    """`ServiceUnitStateChannelImpl.handleMetadataSessionEvent`: a running broker loses its session and registration.

    With `session_loss` "shutdown", the broker stops.
    """
    b = s.brokers[broker]
    if not b.registered:
        return refused(s, "illegal_state", "the broker is not registered")
    if cfg.session_loss == "shutdown":
        return stopped(s, broker), None
    return with_broker(s, broker, b._replace(registered=False)), None


@bundle_transfer.action
def register(cfg: Config, s: State, broker: BrokerNumber) -> Step[State, None]:
    """`BrokerRegistryImpl.registerAsync`: a running broker registers again.

    The broker first applies the newest record; with `session_loss` "stale", it keeps its view.
    """
    b = s.brokers[broker]
    if not b.alive or b.registered:
        return refused(s, "illegal_state", "the broker is down or registered")
    s = with_broker(s, broker, b._replace(registered=True))
    last = len(s.records) - 1
    if cfg.session_loss == "stale" or b.view == last:
        return s, None
    return applied(cfg, s, broker, last), None
