"""Topic objects and their ledgers: loading, adding entries, both phases of closing, and their failures."""

from __future__ import annotations

from typing import Annotated

from model.bundle_transfer.channel import BrokerNumber
from model.bundle_transfer.state import (
    DISCONNECTED_BEFORE_OWNED,
    LOADED_BEFORE_OWNED,
    Add,
    Command,
    Config,
    Entry,
    State,
    Topic,
    TopicObject,
    bundle_transfer,
    owner_in,
    view_of,
    with_broker,
    with_command,
    with_command_to_attached,
    with_object,
    with_topic,
)
from model.machine import Failed, Refused, Step, refused
from model.values import AtLeast, Below

TopicNumber = Annotated[int, Below("topics")]

NO_OBJECT = Refused("not_enabled", "the broker has no topic object in this phase")

# ---- loading -------------------------------------------------------------------------------------------


def may_load(cfg: Config, s: State, broker: int) -> bool:
    """Whether the broker may load topics: it is registered, and owns the bundle in its view.

    With `unregistered_uses_view`, an unregistered broker may load topics if the record in its view names it as `dst`:
    the owner or, during a transfer, the destination.
    """
    r = view_of(s, broker)
    if not s.brokers[broker].registered:
        return cfg.unregistered_uses_view and r.dst == broker
    return owner_in(r) == broker


def is_wanted(cfg: Config, s: State, topic: int, broker: int) -> bool:
    """Whether a broker should begin to load a topic.

    A broker loads a topic if a client waits for the topic at this broker, and `may_load` holds (in V1a and V2, also if
    the broker is the registered destination of Releasing or Assigning). In V1b and V2 the destination of acquiring
    loads topics without a waiting client: in V1b every topic, in V2 a topic with a paused client.
    """
    t, r, b = s.topics[topic], view_of(s, broker), s.brokers[broker]
    if b.duty == "prepare":
        return cfg.variant == "V1b" or any(c.paused for c in t.clients)
    # a waiting client with commands in `down` has got its answer, success
    waits = any(c.phase == "waiting" and c.peer == broker and not c.down for c in t.clients)
    is_dst = r.dst == broker and r.state in ("releasing", "assigning") and b.registered
    return waits and ((is_dst and cfg.variant in LOADED_BEFORE_OWNED) or may_load(cfg, s, broker))


@bundle_transfer.action
def begin_load(cfg: Config, s: State, topic: TopicNumber, broker: BrokerNumber) -> Step[State, None]:
    """`BrokerService.loadOrCreatePersistentTopic`: a broker begins to load a topic (`is_wanted`); nothing is fenced."""
    t = s.topics[topic]
    o = t.objects[broker]
    if not s.brokers[broker].alive or not is_wanted(cfg, s, topic, broker):
        return refused(s, "not_enabled", "no client waits for the topic here, or the broker does not own it")
    # a disconnected topic object does not prevent a load, unless the clean-up of an older one is pending, too
    if o is not None and (o.phase != "disconnected" or o.older):
        return refused(s, "not_enabled", "the topic is in the cache")
    loading = TopicObject("loading", writable=False, adds=(), cursor=0, older=0 if o is None else 1)
    return with_topic(s, topic, with_object(t, broker, loading)), None


@bundle_transfer.action
def open_topic(
    cfg: Config, s: State, topic: TopicNumber, broker: BrokerNumber, kept: Annotated[int, AtLeast(0)]
) -> Step[State, int]:
    """`ManagedLedgerImpl.initialize`: the broker opens the topic's managed ledger.

    Recovery fences the last ledger, and keeps the first `kept` of its unconfirmed entries. A new ledger accepts writes.
    With `load_checks_ownership_again`, a broker for which `may_load` does not hold opens nothing: the registered
    destination of a transfer waits, and at any other broker the step fails and ends the load. Returns the length of the
    log.
    """
    t = s.topics[topic]
    o = t.objects[broker]
    if o is None or o.phase != "loading":
        return s, NO_OBJECT
    if cfg.load_checks_ownership_again and not may_load(cfg, s, broker):
        if view_of(s, broker).dst == broker and s.brokers[broker].registered:
            return refused(s, "not_enabled", "the broker does not own the bundle yet")
        given_up = with_topic(s, topic, with_object(t, broker, None))
        return given_up, Failed("not_ready", "the broker does not own the bundle any more")
    unconfirmed = unconfirmed_in(t)
    if kept > len(unconfirmed):
        return refused(s, "illegal_argument", "the ledger has fewer unconfirmed entries")
    log = (*t.log, *unconfirmed[:kept])
    objects = tuple([each if each is None else each._replace(writable=False) for each in t.objects])
    opened = o._replace(phase="open", writable=True, cursor=t.cursor)
    t = with_object(t._replace(log=log, abandoned=(), objects=objects), broker, opened)
    return with_topic(s, topic, t), len(log)


def unconfirmed_in(t: Topic) -> tuple[Entry, ...]:
    """Returns the unconfirmed entries of the last ledger. Recovery may keep any number of them, from the first on."""
    writers = [o for o in t.objects if o is not None and o.writable]
    return (*t.abandoned, *[add.entry for o in writers for add in o.adds])


# ---- adding entries ------------------------------------------------------------------------------------


@bundle_transfer.action
def confirm(cfg: Config, s: State, topic: TopicNumber, broker: BrokerNumber) -> Step[State, int]:
    """`OpAddEntry.addComplete`: the bookies confirm the oldest add in flight.

    If the session of the add is still attached, the broker sends the producer a receipt. If another broker has fenced
    the ledger, the add fails instead (`after_failed_add`); but without `recovery_seals_ledger`, an entry that recovery
    did not find is confirmed, although the entry is lost. With `drained_topic_reopens`, the last add of a closing topic
    opens the topic again. Returns the sequence id.
    """
    t = s.topics[topic]
    o = t.objects[broker]
    if o is None or not o.adds:
        return refused(s, "not_enabled", "no add is in flight")
    entry, live = o.adds[0]
    if not o.writable and (cfg.recovery_seals_ledger or entry in t.log):
        return after_failed_add(cfg, s, topic, broker)
    phase = o.phase
    if cfg.drained_topic_reopens and phase == "closing" and len(o.adds) == 1:
        phase = "open"
    log = (*t.log, entry) if o.writable else t.log
    t = with_object(t._replace(log=log), broker, o._replace(phase=phase, adds=o.adds[1:]))
    if live:
        receipt = Command("receipt", entry.sequence)
        t = with_command(t, entry.producer, receipt)
    return with_topic(s, topic, t), entry.sequence


@bundle_transfer.fault
def fail_add(cfg: Config, s: State, topic: TopicNumber, broker: BrokerNumber) -> Step[State, None]:
    """`OpAddEntry.addComplete`: the oldest add in flight fails at the bookies, and so do all later adds."""
    o = s.topics[topic].objects[broker]
    if o is None or not o.adds:
        return refused(s, "not_enabled", "no add is in flight")
    return after_failed_add(cfg, s, topic, broker)


def after_failed_add(cfg: Config, s: State, topic: int, broker: int) -> tuple[State, Failed]:
    """Returns the state after all adds in flight failed.

    An open topic is removed from the cache, and its clients get a close command without address. (In Pulsar only if the
    ledger was fenced; after any other failure the topic stays, and only its producers are disconnected.) With
    `sends_ignored_while` "fenced", an open topic is fenced instead. The clients of a topic in transfer get no answer;
    with `failed_write_disconnects`, they get a close command.
    """
    t = s.topics[topic]
    o = t.objects[broker]
    assert o is not None, "an add belongs to a topic object"
    failed = Failed("write", "the add failed")
    is_open = o.phase in ("open", "failed")  # otherwise the topic is in transfer
    if is_open and cfg.sends_ignored_while == "fenced":
        return with_topic(s, topic, with_object(t, broker, o._replace(phase="failed", adds=()))), failed
    if is_open or cfg.failed_write_disconnects:
        t = with_command_to_attached(t, broker, Command("close"))
    o = t.objects[broker]  # read again: a close command changes the adds of its session
    assert o is not None, "an add belongs to a topic object"
    if not is_open:
        if not cfg.failed_write_completes:
            b = s.brokers[broker]
            s = with_broker(s, broker, b._replace(leaked=b.leaked + len(o.adds)))
        return with_topic(s, topic, with_object(t, broker, o._replace(adds=()))), failed
    return with_topic(s, topic, with_object(with_adds_abandoned(t, o), broker, None)), failed


def with_adds_abandoned(t: Topic, o: TopicObject) -> Topic:
    """Returns the topic after a topic object was removed with its ledger open: its unconfirmed entries stay stored."""
    return t._replace(abandoned=tuple([add.entry for add in o.adds])) if o.writable else t


# ---- closing -------------------------------------------------------------------------------------------


@bundle_transfer.action
def close_ledger(cfg: Config, s: State, topic: TopicNumber, broker: BrokerNumber) -> Step[State, int]:
    """`PersistentTopic.close`: phase 1 ends: the ledger is closed at its last confirmed entry, the cursor is persisted.

    Adds in flight get no answer. Returns the number of these adds.
    """
    t = s.topics[topic]
    o = t.objects[broker]
    if o is None or o.phase != "closing":
        return s, NO_OBJECT
    if cfg.cursor_close_checks_ownership and owner_in(view_of(s, broker)) is None:
        return refused(s, "not_enabled", "closing the cursor waits for the bundle's owner")
    if o.adds and not cfg.failed_write_completes:
        b = s.brokers[broker]
        s = with_broker(s, broker, b._replace(leaked=b.leaked + len(o.adds)))
    return with_topic(s, topic, with_object(with_cursor_persisted(t, o), broker, shut(o, "closed"))), len(o.adds)


def with_cursor_persisted(t: Topic, o: TopicObject) -> Topic:
    """Returns the topic after a topic object closed its ledger. The cursor is persisted if the ledger is not fenced."""
    return t._replace(cursor=max(t.cursor, o.cursor)) if o.writable else t


def shut(o: TopicObject, phase: str) -> TopicObject:
    """Returns the topic object in a phase in which its ledger is closed."""
    return o._replace(phase=phase, writable=False, adds=())  # type: ignore[arg-type]


@bundle_transfer.fault
def fail_close(cfg: Config, s: State, topic: TopicNumber, broker: BrokerNumber) -> Step[State, str]:
    """`PersistentTopic.close`: phase 1 fails before the ledger is closed, for example if a replicator does not stop.

    The source keeps the topic in its cache and retries the close. With `failed_close_evicts` the topic is removed
    (`BrokerService.cleanUnloadedTopicFromCache`), and the source appends nothing. Pulsar ignores a failure of
    `ManagedLedger.asyncClose`, so the model has no such failure. Returns "retried" or "evicted".
    """
    t = s.topics[topic]
    o = t.objects[broker]
    if o is None or o.phase != "closing":
        return s, NO_OBJECT
    if not cfg.failed_close_evicts:
        return s, "retried"
    s = with_broker(s, broker, s.brokers[broker]._replace(duty=""))
    return with_topic(s, topic, with_object(with_adds_abandoned(t, o), broker, None)), "evicted"


@bundle_transfer.action
def disconnect(cfg: Config, s: State, topic: TopicNumber, broker: BrokerNumber) -> Step[State, int | None]:
    """`ServiceUnitStateChannelImpl.handleOwnEvent`: in phase 2, a broker closes a topic that it has to give up.

    A broker that knows the new owner gives up its stale topics. A topic is stale if it is fenced for a transfer, or if
    its broker does not own the bundle. With `stale_topics_closed_on` "owner_names_source", a broker closes a stale
    topic only if the broker is the source in the last Owned record that it applied. In V1a, V1b, V2 and V3 the source
    may also close its topic before there is a new owner: after it has closed the ledger, and before it applies the next
    record. Every attached client gets a close command with the address of the owner or destination; in V3 without
    address. Returns the address.
    """
    t, r = s.topics[topic], view_of(s, broker)
    o = t.objects[broker]
    if o is None or o.phase == "disconnected":
        return s, NO_OBJECT
    is_closed_source = o.phase == "closed" and r.state == "releasing" and r.source == broker
    is_early = cfg.variant in DISCONNECTED_BEFORE_OWNED and is_closed_source
    is_stale = r.state == "owned" and (r.dst != broker or o.phase in ("closing", "closed"))
    if cfg.stale_topics_closed_on == "owner_names_source":
        is_stale = is_stale and s.brokers[broker].named_source
    if not is_early and not is_stale:
        return refused(s, "not_enabled", "the topic is not stale, or no owner is known yet")
    address = None if cfg.variant == "V3" else r.dst
    t = with_command_to_attached(with_cursor_persisted(t, o), broker, Command("close", address))
    return with_topic(s, topic, with_object(t, broker, shut(o, "disconnected"))), address


@bundle_transfer.action
def clean_up(cfg: Config, s: State, topic: TopicNumber, broker: BrokerNumber) -> Step[State, bool]:
    """`BrokerService.removeTopicFromCache`: the clean-up of a closed topic object removes it from the cache.

    If the broker has loaded the topic again, the clean-up removes nothing; without `removal_compares_instance`, it
    removes the younger topic object. Returns whether a topic object was removed.
    """
    t = s.topics[topic]
    o = t.objects[broker]
    if o is None or (o.phase != "disconnected" and not o.older):
        return s, NO_OBJECT
    if o.older and cfg.removal_compares_instance:
        return with_topic(s, topic, with_object(t, broker, o._replace(older=0))), False
    return with_topic(s, topic, with_object(with_adds_abandoned(t, o), broker, None)), True


# ---- sends ---------------------------------------------------------------------------------------------


def added(cfg: Config, t: Topic, broker: int, client: int, sequence: int) -> tuple[Topic, str]:
    """`MessageDeduplication.isDuplicate`: returns the topic after a send, and "added", "duplicate" or "in_doubt".

    A send is a duplicate if its sequence id is at most the highest persisted sequence id of the producer. Otherwise the
    send is in doubt (`MessageDupStatus.Unknown`) if its sequence id is at most the highest received sequence id.
    Without `deduplication` every send is added.
    """
    o = t.objects[broker]
    assert o is not None, "a send is added by a topic object"
    if cfg.deduplication:
        if any(e.producer == client and e.sequence >= sequence for e in t.log):
            return t, "duplicate"
        if any(add.entry.producer == client and add.entry.sequence >= sequence for add in o.adds):
            return t, "in_doubt"
    return with_object(t, broker, o._replace(adds=(*o.adds, Add(Entry(client, sequence), True)))), "added"
