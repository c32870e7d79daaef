"""How to drive the transfer of a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuzz.subject import Scope, Subject
from fuzz.tlc.values import as_model
from impl.bundle_transfer import BundleTransfer
from invariants import bundle_transfer as invariants
from model.bundle_transfer.machine import bundle_transfer
from model.bundle_transfer.state import (
    Config,
    Entry,
    State,
    is_attached,
)


def brokers(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns every broker."""
    return tuple(range(cfg.brokers))


def stale_owner(s: State) -> int | None:
    """Returns a running broker that owns the bundle in its view only: the newest record names another owner.

    Returns None if there is no such broker.
    """
    newest = s.records[-1]
    for broker, each in enumerate(s.brokers):
        r = s.records[each.view]
        if each.alive and newest.state == r.state == "owned" and r.dst == broker != newest.dst:
            return broker
    return None


def has_writer(s: State, broker: int) -> bool:
    """Returns whether the broker has a topic object that can write."""
    return any(o is not None and o.writable for t in s.topics for o in (t.objects[broker],))


def brokers_that_apply(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns every broker, and the destination of the newest record 4 more times, or 24 if there is a stale owner.

    So the destination mostly applies the record first, and the other brokers lag.
    """
    return (*range(cfg.brokers), *(s.records[-1].dst,) * (4 if stale_owner(s) is None else 24))


def lookup_brokers(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns every broker, for a lookup. If there is a stale owner, one broker is more frequent.

    As long as the new owner cannot write, this is the new owner; afterwards it is the stale owner.
    """
    stale, dst = stale_owner(s), s.records[-1].dst
    return (*range(cfg.brokers), *(() if stale is None else (stale if has_writer(s, dst) else dst,) * 6))


def topics(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns every topic."""
    return tuple(range(cfg.topics))


def clients(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns every client, and one that does not exist."""
    return tuple(range(len(s.topics[0].clients) + 1))


def situation(cfg: Config, s: State) -> str:
    """Returns the first of these situations that the state is in. The first four are races.

    fenced adds    a broker has unconfirmed entries, and can no longer write
    stale owner    a broker owns the bundle in its view only, and the new owner cannot write yet
    two owners     a broker owns the bundle in its view only, and the new owner can write
    reload         at the owner, a topic object is disconnected, or an older object of the topic is not cleaned up
    broken         a broker is not registered
    calm           a broker owns the bundle
    transfer       the bundle is in transfer
    """
    newest = s.records[-1]
    objects = [o for t in s.topics for o in t.objects if o is not None]
    if any(o.adds and not o.writable for o in objects):
        return "fenced adds"
    if stale_owner(s) is not None:
        return "two owners" if has_writer(s, newest.dst) else "stale owner"
    at_owner = [t.objects[newest.dst] for t in s.topics]
    if newest.state == "owned" and any(o is not None and (o.older or o.phase == "disconnected") for o in at_owner):
        return "reload"
    if not all(b.registered for b in s.brokers):
        return "broken"
    return "calm" if newest.state == "owned" else "transfer"


def coverage_key(cfg: Config, s: State) -> tuple[object, ...]:
    """Returns the newest record, the brokers, and the phases of the first topic's objects and first client."""
    t = s.topics[0]
    return (
        s.records[-1].state,
        s.records[-1].forced,
        tuple((b.alive, b.registered, b.duty, min(len(s.records) - b.view, 3)) for b in s.brokers),
        tuple(o and (o.phase, o.writable, bool(o.adds)) for o in t.objects),
        tuple((c.phase, c.peer, bool(c.up), bool(c.down)) for c in t.clients[:1]),
    )


# ---- measures that scopes bound ------------------------------------------------------------------------


def entries(s: State) -> int:
    """Returns the number of entries, including unconfirmed ones, of the topic that has most."""
    return max(len(t.log) + len(t.abandoned) + sum([len(o.adds) for o in t.objects if o]) for t in s.topics)


def messages(s: State) -> int:
    """Returns the largest `Client.begun`: of messages that a producer sent, or of entries that a consumer was sent."""
    return max(c.begun for t in s.topics for c in t.clients)


def records(s: State) -> int:
    """Returns the number of records. A canonical state has only the records from the oldest view on."""
    return len(s.records)


# ---- scopes --------------------------------------------------------------------------------------------

#: Actions of every scope: the protocol without faults. `FAIR` has the actions that the liveness properties assume fair.
PROTOCOL = ("transfer", "send", *invariants.FAIR)

SMOKE = Scope(
    actions=(*PROTOCOL, "break_connection"),
    settings={"brokers": 2, "topics": 1, "producers": 1, "consumers": 0, "window": 2},
    domains={
        "broker": (0, 1),
        "dst": (1,),
        "owner": (0, 1),
        "topic": (0,),
        "client": (0,),
        "kept": (0, 1),
    },
    bounds={"messages": 2, "entries": 2},
    reasons={
        "actions": "the protocol and broken connections; the scopes crash and session have crashes and lost sessions",
        "brokers": "two: source and destination; excludes a third broker",
        "topics": "one: topics share only the records; two are in the scope topics",
        "producers": "one: producers share only the log",
        "consumers": "none; the scope consumer has one",
        "window": "two: a message may be accepted after one was ignored",
        "broker": "both brokers of the scope",
        "dst": "the destination only; transfers back are in the scope back",
        "owner": "both brokers of the scope",
        "topic": "the only one",
        "client": "the only producer of the scope",
        "kept": "of the unconfirmed entries of a fenced ledger, none or one is kept; excludes several",
        "messages": "two: the smallest number that can be reordered",
        "entries": "two: one for each message; excludes most duplicates, which need a third entry",
    },
)

CRASH = Scope(
    actions=(*PROTOCOL, "crash"),
    settings=SMOKE.settings,
    domains=SMOKE.domains,
    bounds={"messages": 1, "entries": 2, "records": 4},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "the protocol, and crashes of any broker at any step, any number of them",
        "messages": "one: a message can be lost or duplicated; order is in the scope smoke",
        "entries": "two: the message can be stored twice",
        "records": "four: a broker can lag by a whole transfer",
    },
)

SESSION = Scope(
    actions=(*PROTOCOL, "lose_session", "override_stuck", "jump"),
    settings=SMOKE.settings,
    domains=dict(SMOKE.domains) | {"kept": (0,), "lose_session.broker": (0,)},
    bounds={"messages": 0, "entries": 0, "records": 2},
    reasons=dict(CRASH.reasons)
    | {
        "actions": "the protocol, lost sessions, overrides of stuck transfers, and missed records",
        "kept": "none: nothing is sent",
        "lose_session.broker": "the source; lost sessions of the destination are left to fuzzing",
        "messages": "none: the scope is about ownership, lookups and topic objects",
        "entries": "none: nothing is sent",
        "records": "two: a broker lags by one record",
    },
)

BACK = Scope(
    actions=PROTOCOL,
    settings=SMOKE.settings,
    domains=dict(SMOKE.domains) | {"dst": (0, 1), "kept": (0,)},
    bounds={"messages": 0, "entries": 0, "records": 3},
    reasons=dict(SESSION.reasons)
    | {
        "actions": "the protocol without faults",
        "dst": "both directions, any number of transfers",
        "records": "three: a broker lags by two records",
    },
)

CONSUMER = SMOKE.changed(
    actions=(*PROTOCOL, "dispatch"),
    settings={"consumers": 1},
    domains={"client": (0, 1)},
    bounds={"messages": 1, "entries": 1},
    reasons={
        "actions": "the protocol without faults, with deliveries to the consumer",
        "consumers": "one: the maximum of the model",
        "client": "the producer and the consumer",
        "messages": "one: the consumer gets one message",
        "entries": "one entry, without duplicates",
    },
)

TOPICS = Scope(
    actions=PROTOCOL,
    settings=dict(SMOKE.settings) | {"topics": 2},
    domains=dict(SMOKE.domains) | {"topic": (0, 1)},
    bounds={"messages": 1, "entries": 1},
    reasons=dict(CRASH.reasons)
    | {
        "actions": "the protocol without faults",
        "topics": "two, which share the records",
        "topic": "both topics of the scope",
        "messages": "one in each topic: a message can be lost; order is in the scope smoke",
        "entries": "one in each topic: excludes duplicates",
    },
)

# ---- the TLA+ twin -------------------------------------------------------------------------------------


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """Returns the state for the twin's variables. The twin's `members` are `brokers`, its `bundle` is `topics`."""
    fields = {"records": "records", "brokers": "members", "topics": "bundle"}
    found: State = as_model(State, {field: variables[name] for field, name in fields.items()})
    return found


# ---- corrupted states that `check` must report ---------------------------------------------------------


def former_writer_has_unconfirmed_entries(_cfg: Config, s: State) -> State | None:
    """A topic has unconfirmed entries of a former writer, although another broker can write to it."""
    t = s.topics[0]
    if not any(o is not None and o.writable for o in t.objects):
        return None
    return s._replace(topics=(t._replace(abandoned=(Entry(0, 0),)), *s.topics[1:]))


def two_writers(_cfg: Config, s: State) -> State | None:
    """Two brokers can write to the topic."""
    t = s.topics[0]
    writer = next((o for o in t.objects if o is not None and o.writable), None)
    if writer is None or t.objects[1] is not None:
        return None
    return s._replace(topics=(t._replace(objects=(t.objects[0], writer, *t.objects[2:])), *s.topics[1:]))


def registered_broker_is_down(_cfg: Config, s: State) -> State | None:
    """A broker is registered and down."""
    if s.brokers[0].alive:
        return None
    return s._replace(brokers=(s.brokers[0]._replace(registered=True), *s.brokers[1:]))


def view_is_ahead(_cfg: Config, s: State) -> State | None:
    """A broker has applied a record that does not exist."""
    if not s.brokers[0].alive:
        return None
    return s._replace(brokers=(s.brokers[0]._replace(view=len(s.records)), *s.brokers[1:]))


def lookup_has_peer(_cfg: Config, s: State) -> State | None:
    """A client that has to look up the address has a peer."""
    t = s.topics[0]
    c = t.clients[0]
    if c.phase == "lookup" or is_attached(c, c.peer or 0):  # the change would also end a session
        return None
    changed = t._replace(clients=(c._replace(phase="lookup", up=(), down=()), *t.clients[1:]))
    return s._replace(topics=(changed, *s.topics[1:]))


def receipt_for_nothing(_cfg: Config, s: State) -> State:
    """A producer has more receipts than sent messages."""
    t = s.topics[0]
    changed = t._replace(clients=(t.clients[0]._replace(done=t.clients[0].begun + 1), *t.clients[1:]))
    return s._replace(topics=(changed, *s.topics[1:]))


subject = Subject(
    bundle_transfer,
    BundleTransfer,
    invariants,
    domains={
        "broker": brokers,
        "deliver.broker": brokers_that_apply,
        "lookup.broker": lookup_brokers,
        "dst": brokers,
        "owner": brokers,
        "topic": topics,
        "client": clients,
        "kept": (0, 1, 1, 2),
    },
    settings={
        "brokers": (3, 2),
        "topics": (1, 1, 2),
        "producers": (1, 2),
        "consumers": (1, 0),
        "window": (2, 1, 3),
        "deduplication": (False, True),
    },
    weights={
        "transfer": 2,
        "jump": 1,
        "override": 4,
        "override_stuck": 0.3,
        "crash": 0.15,
        "restart": 2,
        "lose_session": 0.15,
        "register": 0.5,
        "fail_publish": 0.2,
        "close_timeout": 0.3,
        "fail_close": 0.3,
        "fail_add": 0.2,
        "break_connection": 0.3,
        "deliver": 10,
        "publish": 5,
        "send": 5,
        "process": 6,
        "confirm": 4,
        "receive": 8,
        "lookup": 4,
        "connect": 5,
        "admit": 8,
        "open_topic": 5,
        "close_ledger": 4,
        "disconnect": 4,
        "dispatch": 2,
        "begin_load": 4,
    },
    situation=situation,
    in_situation={
        "transfer": {"send": 2, "override_stuck": 2},
        "broken": {"transfer": 0.2},
        "stale owner": {
            "deliver": 0.6,
            "break_connection": 20,
            "lookup": 4,
            "connect": 3,
            "begin_load": 2,
            "open_topic": 2,
            "confirm": 0.2,
            **dict.fromkeys(("jump", "transfer", "lose_session", "crash", "restart", "override"), 0.1),
        },
        "two owners": {
            "register": 8,
            "deliver": 0.05,
            "break_connection": 20,
            "lookup": 4,
            "connect": 3,
            "begin_load": 3,
            "open_topic": 3,
            "confirm": 3,
            "answer": 0.1,
            **dict.fromkeys(("jump", "transfer", "lose_session", "crash", "restart", "override", "disconnect"), 0.1),
        },
        "fenced adds": {"deliver": 0.1, "confirm": 4, "crash": 0, "disconnect": 0.2, "fail_add": 0.1, "register": 4},
        "reload": {"clean_up": 1, "transfer": 0.1, "crash": 0, "begin_load": 4, "open_topic": 4, "admit": 2},
    },
    swarms={
        "moves back": {"transfer": 4, "override_stuck": 20, "clean_up": 0.1, "close_ledger": 3, "disconnect": 4},
        "moves": {"transfer": 5, "deliver": 4, "publish": 3, "close_ledger": 3},
        "no faults": dict.fromkeys(invariants.FAULTS, 0),
        "one transfer": {**dict.fromkeys(invariants.FAULTS, 0), "override": 0, "override_stuck": 0, "transfer": 0.1},
        "slow channel": {"deliver": 0.3, "jump": 2, "transfer": 3, "lookup": 3},
        "slow bookies": {
            "confirm": 0.05,
            "send": 3,
            "process": 4,
            "crash": 1.5,
            "override": 2,
            "break_connection": 4,
            "admit": 3,
        },
        "lost sessions": {
            **dict.fromkeys(invariants.FAULTS, 0),
            "lose_session": 12,
            "break_connection": 2,
            "transfer": 0,
            "override": 4,
            "register": 0.5,
            "deliver": 0.5,
            "confirm": 0.1,
            "send": 3,
            "process": 3,
        },
        "crashes": {"crash": 8, "restart": 6, "override": 0.2, "transfer": 3},
        "broken connections": {
            "break_connection": 4,
            "transfer": 0.2,
            "send": 3,
            "process": 3,
            "confirm": 3,
            "admit": 2,
        },
        "failures": {
            "confirm": 0.3,
            "fail_add": 10,
            "fail_close": 8,
            "close_timeout": 8,
            "fail_publish": 4,
            "override_stuck": 4,
        },
    },
    abstract=coverage_key,
    measures={"entries": entries, "messages": messages, "records": records},
    scopes={
        "smoke": SMOKE,
        "crash": CRASH,
        "session": SESSION,
        "back": BACK,
        "consumer": CONSUMER,
        "topics": TOPICS,
    },
    corrupt={
        "former_writer_has_unconfirmed_entries": former_writer_has_unconfirmed_entries,
        "two_writers": two_writers,
        "registered_broker_is_down": registered_broker_is_down,
        "view_is_ahead": view_is_ahead,
        "lookup_has_peer": lookup_has_peer,
        "receipt_for_nothing": receipt_for_nothing,
    },
    tla="BundleTransfer",
    from_tla=from_tla,
    steps=192,
)
