"""Guarantees of the transfer of a bundle between brokers (PIP-307, reviewed as PIP-281).

`model/bundle_transfer/machine.py` describes the protocol, `state.py` beside it the records, views, duties and variants.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from invariants.properties import Event, always, eventually, history, sometimes
from model.bundle_transfer.machine import bundle_transfer
from model.bundle_transfer.state import Client, Config, Record, State, Topic
from model.machine import Failed, Refused

#: All actions except faults, and except `send`, `dispatch` and `transfer`, which begin new work. The scopes that check
#: liveness have no `fail_publish`: after it, only the fault `override_stuck` ends the transfer.
FAIR = (
    "deliver",
    "publish",
    "begin_load",
    "open_topic",
    "confirm",
    "close_ledger",
    "disconnect",
    "clean_up",
    "lookup",
    "answer",
    "connect",
    "admit",
    "process",
    "receive",
    "override",
    "restart",
    "register",
)

# ---- accessors -----------------------------------------------------------------------------------------


def newest(s: State) -> Record:
    """Returns the newest record of the channel."""
    return s.records[-1]


def seen_by(s: State, broker: int) -> Record:
    """Returns the last record that a broker applied."""
    return s.records[s.brokers[broker].view]


def attached(t: Topic) -> Iterator[tuple[int, int]]:
    """Yields the number of each attached client, and the broker of the client's session.

    The broker has answered success, and has sent no close command since.
    """
    for number, c in enumerate(t.clients):
        kinds = {command.kind for command in c.down}
        if c.peer is not None and "close" not in kinds and (c.phase == "ready" or "success" in kinds):
            yield number, c.peer


def sequences(t: Topic, producer: int) -> list[int]:
    """Returns the sequence ids of a producer in the order of the log."""
    return [e.sequence for e in t.log if e.producer == producer]


def happened(event: Event) -> bool:
    """Whether an action succeeded: it was not refused and did not fail."""
    return not isinstance(event.outcome, Refused | Failed)


def writers(t: Topic) -> list[int]:
    """Returns the brokers that have an open ledger of the topic that no other broker has fenced."""
    return [broker for broker, o in enumerate(t.objects) if o is not None and o.writable]


# ---- the log -------------------------------------------------------------------------------------------


@always(bundle_transfer)
def topic_has_at_most_one_writer(cfg: Config, s: State) -> bool:
    """For each topic, at most one broker has an open ledger that no other broker has fenced."""
    return all(len(writers(t)) <= 1 for t in s.topics)


@always(bundle_transfer)
def receipted_message_is_in_log(cfg: Config, s: State) -> bool:
    """Every message with a receipt is in the log."""
    return all(
        set(range(c.done)) <= set(sequences(t, number))
        for t in s.topics
        for number, c in enumerate(t.clients[: cfg.producers])
    )


@always(bundle_transfer)
def log_keeps_producer_order(cfg: Config, s: State) -> bool:
    """The messages of a producer are in the log in order and without gap; a resend may repeat messages, in order."""
    for t in s.topics:
        for number in range(cfg.producers):
            found = sequences(t, number)
            for previous, following in zip([-1, *found], found, strict=False):
                if following > previous + 1:
                    return False
    return True


@always(bundle_transfer, given=lambda cfg: cfg.deduplication)
def deduplicated_log_has_no_duplicate(cfg: Config, s: State) -> bool:
    """With deduplication, every message is in the log at most once."""
    return all(len(set(t.log)) == len(t.log) for t in s.topics)


@always(bundle_transfer)
def cursor_is_within_log(cfg: Config, s: State) -> bool:
    """Each mark-delete position is within the log, and the consumer has processed every entry up to this position.

    One mark-delete position is persisted, and each topic object has one in memory.
    """
    for t in s.topics:
        cursors = [t.cursor, *[o.cursor for o in t.objects if o is not None]]
        consumed = [c.done for c in t.clients[cfg.producers :]] or [0]
        if max(cursors) > min(len(t.log), *consumed):
            return False
    return True


@always(bundle_transfer)
def consumer_skips_no_entry(cfg: Config, s: State) -> bool:
    """The entries in flight to a consumer are the last dispatched ones, in order; all earlier entries are processed."""
    for t in s.topics:
        for c in t.clients[cfg.producers :]:
            if c.phase == "ready" or "success" in {command.kind for command in c.down}:
                in_flight = [command.value for command in c.down if command.kind == "message"]
                first = c.begun - len(in_flight)
                if first > c.done or in_flight != list(range(first, c.begun)):
                    return False
    return True


@always(bundle_transfer, on=("close_ledger", "disconnect", "open_topic"))
def acknowledgements_survive_transfer(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A broker that closes a topic persists the mark-delete position; a broker that opens one starts at this position.

    A broker whose ledger another broker has fenced may close the topic and persist nothing.
    """
    topic, broker = event.arguments["topic"], event.arguments["broker"]
    o, new = before.topics[topic].objects[broker], after.topics[topic].objects[broker]
    if not happened(event) or o is None:
        return True
    if event.name == "open_topic":
        return new is not None and new.cursor == before.topics[topic].cursor
    return not o.writable or after.topics[topic].cursor >= o.cursor


# ---- ownership -----------------------------------------------------------------------------------------


@always(bundle_transfer, on=("open_topic",))
def topic_is_opened_by_its_owner(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A broker opens a topic only if the broker is registered, and is the owner of the bundle in its own view.

    The source of an acquiring record (V1b, V2) still owns the bundle.
    """
    broker = event.arguments["broker"]
    r = seen_by(before, broker)
    is_owner = r.state == "owned" and r.dst == broker
    is_acquired_from = r.state == "acquiring" and r.source == broker
    return not happened(event) or (before.brokers[broker].registered and (is_owner or is_acquired_from))


@always(bundle_transfer, on=("open_topic",))
def load_fences_no_owner(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A broker that has read every override, and opens a topic, does not fence the ledger of the newest owner."""
    r, broker = newest(before), event.arguments["broker"]
    fenced = [b for b in writers(before.topics[event.arguments["topic"]]) if b != broker]
    has_unread_override = any(unread.forced for unread in before.records[before.brokers[broker].view + 1 :])
    return not happened(event) or r.state != "owned" or r.dst not in fenced or has_unread_override


@always(bundle_transfer, on=("publish", "close_timeout"))
def source_releases_after_ledgers_are_closed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The source hands the bundle over, by its next record, only after it has closed the ledger of every topic.

    A ledger that another broker has fenced counts as closed.
    """
    broker = event.arguments["broker"]
    if not happened(event) or before.brokers[broker].duty != "release" or after.brokers[broker].duty == "release":
        return True
    return not any(broker in writers(t) for t in after.topics)


@always(bundle_transfer, on=("publish", "close_timeout"))
def owned_is_appended_by_destination(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Except for overrides, only the destination appends the record Owned; in variant V4, only the source does."""
    r, broker = newest(after), event.arguments["broker"]
    if event.outcome is not True or r.state != "owned":
        return True
    return bool(broker == (r.source if cfg.variant == "V4" else r.dst))


@always(bundle_transfer, on=("override",))
def override_spares_registered_owner(cfg: Config, before: State, event: Event, after: State) -> bool:
    """If the newest record is Owned, `override` replaces the owner only if the owner is not registered."""
    r = newest(before)
    return not happened(event) or r.state != "owned" or not before.brokers[r.dst].registered


# ---- clients and topic objects -------------------------------------------------------------------------


@always(bundle_transfer)
def attached_client_has_topic_object(cfg: Config, s: State) -> bool:
    """The broker of an attached client has the client's topic, neither loading nor disconnected."""
    phases = ("open", "closing", "closed", "failed")
    for t in s.topics:
        for _, broker in attached(t):
            o = t.objects[broker]
            if o is None or o.phase not in phases:
                return False
    return True


@always(bundle_transfer)
def topic_in_transfer_stays_closed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A topic object that was fenced for a transfer never opens again."""
    if before.topics is after.topics:
        return True
    for old, new in zip(before.topics, after.topics, strict=True):
        for was, is_ in zip(old.objects, new.objects, strict=True):
            if was is not None and was.phase in ("closing", "closed") and is_ is not None and is_.phase == "open":
                return False
    return True


@always(bundle_transfer, on=("process", "confirm", "fail_add", "close_ledger"), given=lambda cfg: cfg.variant != "V3")
def topic_in_transfer_ends_no_session(cfg: Config, before: State, event: Event, after: State) -> bool:
    """While a topic is fenced for a transfer, no send, ack, failed write or ledger close ends a client's session."""
    topic = event.arguments["topic"]
    old, new = before.topics[topic], after.topics[topic]
    in_transfer = {b for b, o in enumerate(old.objects) if o is not None and o.phase in ("closing", "closed")}
    return {(c, b) for c, b in attached(old) if b in in_transfer} <= set(attached(new))


@always(bundle_transfer, on=("disconnect",))
def redirect_names_owner(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A redirect names the owner in the broker's view; in a transfer of variants V1a, V1b and V2, the next owner."""
    r = seen_by(before, event.arguments["broker"])
    if not happened(event) or event.outcome is None:
        return True
    return bool(event.outcome == r.dst) and (r.state == "owned" or cfg.variant in ("V1a", "V1b", "V2"))


@always(bundle_transfer, on=("connect",))
def failed_address_is_dropped(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A client whose connection attempt fails looks the topic up again."""
    clients = after.topics[event.arguments["topic"]].clients
    return not isinstance(event.outcome, Failed) or clients[event.arguments["client"]].phase == "lookup"


@always(bundle_transfer)
def no_pending_write_is_leaked(cfg: Config, s: State) -> bool:
    """No failed write still counts as pending on its connection."""
    return all(b.leaked == 0 for b in s.brokers)


# ---- no step is blocked --------------------------------------------------------------------------------


@always(bundle_transfer, on=("disconnect",))
def stale_topic_can_be_closed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A broker that last applied an Owned record can close each topic that it has to give up (stale).

    A topic is stale if it is fenced for a transfer, or if its broker does not own the bundle.
    """
    t, broker = before.topics[event.arguments["topic"]], event.arguments["broker"]
    r, o = seen_by(before, broker), t.objects[broker]
    if o is None or o.phase == "disconnected" or r.state != "owned":
        return True
    return happened(event) or (r.dst == broker and o.phase not in ("closing", "closed"))


@always(bundle_transfer, on=("publish",))
def release_waits_for_ledgers_only(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The source can hand the bundle over as soon as it has closed the ledger of every topic."""
    broker = event.arguments["broker"]
    objects = [t.objects[broker] for t in before.topics]
    is_closing = any(o is not None and o.phase == "closing" for o in objects)
    return happened(event) or is_closing or before.brokers[broker].duty != "release"


@always(bundle_transfer, on=("close_ledger",))
def closing_ledger_can_be_closed(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The ledger of a topic that is closing can be closed at any time."""
    o = before.topics[event.arguments["topic"]].objects[event.arguments["broker"]]
    return happened(event) or o is None or o.phase != "closing"


@always(bundle_transfer, on=("admit",))
def owner_answers_while_topic_is_closing(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The owner answers a connecting client also while the topic is closing, closed, or fenced by a failed write."""
    topic, client = event.arguments["topic"], event.arguments["client"]
    if not isinstance(event.outcome, Refused) or not 0 <= client < len(before.topics[topic].clients):
        return True
    c = before.topics[topic].clients[client]
    if c.phase != "waiting" or c.peer is None or c.down:
        return True
    r, o = seen_by(before, c.peer), before.topics[topic].objects[c.peer]
    is_owner = r.state == "owned" and r.dst == c.peer
    return not is_owner or o is None or o.phase not in ("closing", "closed", "failed")


@always(bundle_transfer, on=("process",))
def only_topic_in_transfer_ignores_sends(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A send or an ack is ignored only by a topic that is in transfer."""
    if not happened(event) or event.outcome != "ignored":
        return True
    t = before.topics[event.arguments["topic"]]
    peer = t.clients[event.arguments["client"]].peer
    o = None if peer is None else t.objects[peer]
    return o is not None and o.phase in ("closing", "closed")


@always(bundle_transfer, on=("restart",))
def restarted_broker_resumes_its_duty(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A restarted broker continues a transfer if the newest record is Assigning to it or Releasing from it."""
    r, broker = newest(before), event.arguments["broker"]
    must_act = (r.state == "assigning" and r.dst == broker) or (r.state == "releasing" and r.source == broker)
    return not happened(event) or not must_act or after.brokers[broker].duty != ""


# ---- sessions ------------------------------------------------------------------------------------------

#: By topic and client: the sequence id after the last send that the broker processed in the client's session, or None
#: before the session's first send; and whether the broker ignored a send of the session. In the first session, the
#: expected id is 0 from the start. The elements of consumers are not used.
Sessions = tuple[tuple[tuple[int | None, bool], ...], ...]


def initial_sessions(cfg: Config) -> Sessions:
    """Returns the sessions in the initial state: each producer is attached, and sends sequence id 0 first."""
    return (((0, False),) * (cfg.producers + cfg.consumers),) * cfg.topics


@history(bundle_transfer, initial=initial_sessions, on=("process", "receive"))
def sessions(cfg: Config, value: Sessions, before: State, event: Event, after: State) -> Sessions:
    """The next expected sequence id of each client's session, and whether the broker ignored a send of the session."""
    topic, client = event.arguments["topic"], event.arguments["client"]
    if not happened(event):
        return value
    c: Client = before.topics[topic].clients[client]
    if event.name == "receive":
        if c.down[0].kind != "success":
            return value
        changed: tuple[int | None, bool] = (None, False)
    else:
        changed = (c.up[0] + 1, value[topic][client][1] or event.outcome == "ignored")
    row = (*value[topic][:client], changed, *value[topic][client + 1 :])
    return (*value[:topic], row, *value[topic + 1 :])


def is_send(cfg: Config, event: Event) -> bool:
    """Whether a broker processed a producer's send."""
    return happened(event) and event.arguments["client"] < cfg.producers


@always(bundle_transfer, on=("process",), history=(sessions,))
def ignored_sends_are_a_suffix(cfg: Config, before: State, event: Event, after: State, values: Sessions) -> bool:
    """In one session of a producer, every send after an ignored send is ignored."""
    has_ignored = is_send(cfg, event) and values[event.arguments["topic"]][event.arguments["client"]][1]
    return bool(not has_ignored or event.outcome == "ignored")


@always(bundle_transfer, on=("process",), history=(sessions,))
def session_sends_in_order(cfg: Config, before: State, event: Event, after: State, values: Sessions) -> bool:
    """In one session of a producer, each send has the sequence id after that of the previous send."""
    if not is_send(cfg, event):
        return True
    topic, client = event.arguments["topic"], event.arguments["client"]
    expected = values[topic][client][0]
    return expected is None or before.topics[topic].clients[client].up[0] == expected


@history(bundle_transfer, initial=lambda cfg: False, on=("override", "override_stuck"))
def overridden(cfg: Config, value: bool, before: State, event: Event, after: State) -> bool:
    """Whether the leader has appended an override in this trace."""
    return value or happened(event)


@always(bundle_transfer, on=("open_topic",), history=(overridden,))
def load_fences_only_after_override(
    cfg: Config, before: State, event: Event, after: State, was_overridden: bool
) -> bool:
    """Without an override, every ledger is closed before another broker opens the topic: fencing is never needed."""
    fenced = [b for b in writers(before.topics[event.arguments["topic"]]) if b != event.arguments["broker"]]
    return not happened(event) or was_overridden or not fenced


#: First, by broker: the index of the record that was the newest one when the broker last registered. Second: whether a
#: broker has opened a topic while its view was older than that record.
Registrations = tuple[tuple[int, ...], bool]


@history(
    bundle_transfer,
    initial=lambda cfg: ((0,) * cfg.brokers, False),
    on=("register", "restart", "open_topic"),
)
def registrations(cfg: Config, value: Registrations, before: State, event: Event, after: State) -> Registrations:
    """The newest record when each broker last registered, and whether a broker opened a topic with an older view."""
    newest_at, opened_with_older_view = value
    broker = event.arguments["broker"]
    if not happened(event):
        return value
    if event.name == "open_topic":
        return newest_at, opened_with_older_view or before.brokers[broker].view < newest_at[broker]
    return (*newest_at[:broker], len(after.records) - 1, *newest_at[broker + 1 :]), opened_with_older_view


@always(bundle_transfer, history=(registrations,))
def broker_reads_channel_before_it_opens_topic(cfg: Config, s: State, value: Registrations) -> bool:
    """A broker opens a topic only after it has read all records from before its last registration."""
    _, opened_with_older_view = value
    return not opened_with_older_view


#: The names of all faults.
FAULTS = tuple(a.name for a in bundle_transfer.actions.values() if a.fault)


@history(bundle_transfer, initial=lambda cfg: 0, on=(*FAULTS, "transfer", "override"))
def disturbance(cfg: Config, value: int, before: State, event: Event, after: State) -> int:
    """0: no transfer so far; 1: one transfer, without faults and overrides; 2 or more: any other trace."""
    if isinstance(event.outcome, Refused):
        return value
    return value + 1 if event.name == "transfer" else 2


def parks_redirected_clients(cfg: Config) -> bool:
    """Whether the destination always parks the requests of redirected clients until it owns the bundle.

    A destination that has applied a record of the transfer parks requests. In V0, V1b and V2, the destination applies
    such a record before a client gets a close command with the destination's address. In V1a and V4, a destination that
    has applied no such record rejects the client, and the client looks the topic up. In V3, clients get no address.
    """
    return cfg.variant in ("V0", "V1b", "V2")


@always(bundle_transfer, on=("lookup",), given=parks_redirected_clients, history=(disturbance,))
def undisturbed_transfer_needs_no_lookup(cfg: Config, before: State, event: Event, after: State, level: int) -> bool:
    """In a single transfer without faults and overrides, no client looks its topic up."""
    return level > 1 or isinstance(event.outcome, Refused)


@always(bundle_transfer, on=("receive",), given=parks_redirected_clients, history=(disturbance,))
def undisturbed_transfer_closes_sessions_at_source_only(
    cfg: Config, before: State, event: Event, after: State, level: int
) -> bool:
    """In a single transfer without faults and overrides, only the source, broker 0, closes sessions of clients.

    So each client reconnects at most once: the destination closes no session, and without a lookup no client returns
    to the source (`undisturbed_transfer_needs_no_lookup`).
    """
    c = before.topics[event.arguments["topic"]].clients[event.arguments["client"]] if happened(event) else None
    return level > 1 or c is None or c.down[0].kind != "close" or c.peer == 0


@always(
    bundle_transfer,
    on=("confirm", "open_topic"),
    history=(disturbance,),
    given=lambda cfg: cfg.variant != "V3",
)
def undisturbed_transfer_duplicates_nothing(cfg: Config, before: State, event: Event, after: State, level: int) -> bool:
    """In a single transfer without faults and overrides, no message is stored twice, even without deduplication.

    Not required of variant V3: its source ends a session whose sends are still confirmed, and the producer sends again.
    """
    return level > 1 or all(len(set(t.log)) == len(t.log) for t in after.topics)


# ---- coverage goals ------------------------------------------------------------------------------------


@sometimes(bundle_transfer, on=("process",))
def send_is_ignored(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A broker ignores a producer's send, because the topic is in transfer."""
    return bool(event.outcome == "ignored") and event.arguments["client"] < cfg.producers


@sometimes(bundle_transfer, on=("process",), given=lambda cfg: cfg.deduplication)
def resent_message_is_duplicate(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A producer sends a message again, and deduplication recognises that the message is stored."""
    return bool(event.outcome == "duplicate")


@sometimes(bundle_transfer, on=("open_topic",))
def recovery_keeps_unconfirmed_entry(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A broker opens a topic, and ledger recovery keeps an entry whose write had not been confirmed."""
    return happened(event) and event.arguments["kept"] > 0


@sometimes(bundle_transfer, on=("admit",), given=lambda cfg: cfg.variant == "V0")
def request_waits_for_owner(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A client's `PRODUCER` or `SUBSCRIBE` waits at a broker until the bundle has an owner."""
    return isinstance(event.outcome, Refused) and event.outcome.why == "the bundle has no owner yet"


@sometimes(bundle_transfer, on=("publish",))
def stale_append_is_skipped(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A broker appends an outdated record to the channel, and all brokers skip the record."""
    return event.outcome is False


# ---- liveness ------------------------------------------------------------------------------------------


@eventually(bundle_transfer, fair=FAIR)
def bundle_is_owned_by_registered_broker(cfg: Config, s: State) -> bool:
    """The bundle is eventually owned by a registered broker: transfers end, and unregistered owners are replaced."""
    return newest(s).state == "owned" and s.brokers[newest(s).dst].registered


@eventually(bundle_transfer, fair=FAIR)
def views_converge(cfg: Config, s: State) -> bool:
    """Every running broker eventually applies the newest record."""
    return all(b.view == len(s.records) - 1 for b in s.brokers if b.alive)


@eventually(bundle_transfer, fair=FAIR)
def pending_messages_are_receipted(cfg: Config, s: State) -> bool:
    """Every message that was sent eventually gets its receipt."""
    return all(c.done == c.begun for t in s.topics for c in t.clients[: cfg.producers])


@eventually(bundle_transfer, fair=FAIR)
def clients_are_attached_to_owner(cfg: Config, s: State) -> bool:
    """Every client is eventually attached to the owner, whose topic is open. Then no lookup is parked."""
    for t in s.topics:
        o = t.objects[newest(s).dst]
        if newest(s).state != "owned" or o is None or o.phase != "open":
            return False
        if dict(attached(t)) != dict.fromkeys(range(len(t.clients)), newest(s).dst):
            return False
    return True


@eventually(bundle_transfer, fair=FAIR)
def client_leaves_closed_topic(cfg: Config, s: State) -> bool:
    """No client stays attached for ever to a topic that is not open."""
    return not any(
        o is None or o.phase != "open" for t in s.topics for _, broker in attached(t) for o in (t.objects[broker],)
    )


@eventually(bundle_transfer, fair=FAIR)
def only_owner_has_topic_object(cfg: Config, s: State) -> bool:
    """Eventually only the owner has topic objects, and these are open or loading."""
    objects: Any = [(b, o) for t in s.topics for b, o in enumerate(t.objects) if o is not None]
    return newest(s).state == "owned" and all(b == newest(s).dst and o.phase in ("open", "loading") for b, o in objects)
