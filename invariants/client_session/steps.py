"""What each step of the protocol changes, what it returns, and when it is refused, under the rules of the reference.

These properties determine the links, producer, consumer and subscription after every step. They do not determine

    * the permits (`guarantees.py` has their sum);
    * `published`, `damaged` and `covered`, which only rules of the C++ client read;
    * `read` and `replay` of a ready consumer whose session the broker has ended.

`guarantees.py` has the guarantees to the application.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

from invariants.properties import Event, always
from model.client_session.machine import client_session
from model.client_session.state import Config, Entry, Handler, Link, Reply, State
from model.machine import Refused

HANDLERS: tuple[Handler, ...] = get_args(Handler)
DISPATCHES = ("dispatch", "dispatch_corrupt")
#: The steps without argument `handler` that belong to the producer. The other steps without it belong to the consumer.
OF_PRODUCER = ("send", "time_out", "store", "send_error", "ignore_sends", "stray_reply")
#: Phases of a handler that has no connection.
DISCONNECTED = ("lookup", "redirected", "failed")

# ---- accessors -----------------------------------------------------------------------------------------


def happened(event: Event) -> bool:
    """Whether an action was not refused."""
    return not isinstance(event.outcome, Refused)


def links(s: State) -> tuple[Link, Link]:
    """Returns the links of both handlers."""
    return s.producer.link, s.consumer.link


def handler_of(event: Event) -> Handler:
    """Returns the handler of a step."""
    named: Handler | None = event.arguments.get("handler")
    return named or ("producer" if event.name in OF_PRODUCER else "consumer")


def handled_reply(before: State, event: Event) -> Reply | None:
    """Returns the reply that a step handles, also a stray reply; None if the step was refused or handles no reply."""
    if not happened(event):
        return None
    if event.name == "stray_reply":
        return Reply(event.arguments["kind"], event.arguments["sequence"])
    return links(before)[HANDLERS.index(handler_of(event))].down[0] if event.name == "handle" else None


def handled(before: State, event: Event) -> str:
    """Returns the kind of the reply that the step `handle` handled; an empty string for other and refused steps."""
    reply = handled_reply(before, event)
    return reply.kind if reply is not None and event.name == "handle" else ""


def batch_of(cfg: Config, entry: int) -> range:
    """Returns the messages of an entry."""
    first = entry * cfg.batch_size
    return range(first, first + cfg.batch_size)


def left_in(cfg: Config, s: State, entry: int) -> tuple[int, ...]:
    """Returns the messages of an entry that the subscription has not acknowledged."""
    return tuple(m for m in batch_of(cfg, entry) if m not in s.acked)


def next_to_deliver(cfg: Config, s: State) -> int | None:
    """Returns the first unacknowledged entry of `replay`, else of the log from the read position on; or None."""
    c = s.consumer
    return next((e for e in (*c.replay, *range(c.read, len(s.log))) if left_in(cfg, s, e)), None)


def last_stored(cfg: Config, s: State) -> int:
    """Returns the highest sequence id that the broker has stored; -1 without deduplication."""
    return max((e.sequence for e in s.log if cfg.deduplication), default=-1)


# ---- refusals and outcomes -----------------------------------------------------------------------------

#: By step: whether it can happen, given the config, the state, the step's arguments, and the link of its handler.
POSSIBLE: dict[str, Callable[[Config, State, Mapping[str, Any], Link], bool]] = {
    "connect": lambda cfg, s, arguments, link: link.phase in ("lookup", "redirected"),
    "fail_redirect": lambda cfg, s, arguments, link: link.phase == "redirected",
    "break_connection": lambda cfg, s, arguments, link: link.phase in ("waiting", "ready"),
    "handle": lambda cfg, s, arguments, link: link.down != (),
    "accept": lambda cfg, s, arguments, link: link.session == "requested",
    "refuse": lambda cfg, s, arguments, link: link.session == "requested",
    "close": lambda cfg, s, arguments, link: link.session in ("requested", "open"),
    "finish_transfer": lambda cfg, s, arguments, link: link.session == "ignoring",
    "late_success": lambda cfg, s, arguments, link: link.session == "closed",
    "end_of_topic": lambda cfg, s, arguments, link: (link.phase, link.session) == ("ready", "open"),
    "send": lambda cfg, s, arguments, link: (
        link.created and link.phase != "failed" and len(s.producer.pending) < cfg.max_pending_messages
    ),
    "time_out": lambda cfg, s, arguments, link: s.producer.pending != (),
    "store": lambda cfg, s, arguments, link: link.session == "open" and s.producer.up != (),
    "send_error": lambda cfg, s, arguments, link: link.session == "open" and s.producer.up != (),
    "ignore_sends": lambda cfg, s, arguments, link: link.session == "open",
    "stray_reply": lambda cfg, s, arguments, link: (
        link.phase == "ready" and s.producer.pending[:1] != (arguments["sequence"],)
    ),
    **dict.fromkeys(
        DISPATCHES,
        lambda cfg, s, arguments, link: (
            link.session == "open" and s.consumer.permits > 0 and next_to_deliver(cfg, s) is not None
        ),
    ),
    "acknowledge_elsewhere": lambda cfg, s, arguments, link: (
        link.session != "open"
        and arguments["message"] < len(s.log) * cfg.batch_size
        and arguments["message"] not in s.acked
    ),
    "receive": lambda cfg, s, arguments, link: s.consumer.queue != (),
    "acknowledge": lambda cfg, s, arguments, link: arguments["message"] in s.consumer.taken,
    "acknowledge_cumulative": lambda cfg, s, arguments, link: (
        not cfg.shared and arguments["message"] in s.consumer.taken
    ),
    "negative_acknowledge": lambda cfg, s, arguments, link: arguments["message"] in s.consumer.taken,
    "flush": lambda cfg, s, arguments, link: (
        link.phase == "ready" and (s.consumer.grouped != () or s.consumer.cumulative >= 0)
    ),
}


@always(client_session, given=client_session.is_reference)
def step_is_refused_exactly_if_it_cannot_happen(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A step is refused if and only if it cannot happen in the state (`POSSIBLE`)."""
    link = links(before)[HANDLERS.index(handler_of(event))]
    return happened(event) == POSSIBLE[event.name](cfg, before, event.arguments, link)


def batch_after_ack(cfg: Config, before: State, message: int, *, cumulative: bool) -> tuple[bool, set[int]]:
    """Returns whether an ack completes its batch, and the messages of the batch that are acknowledged after the ack.

    A cumulative ack also acknowledges the earlier messages of the batch.
    """
    batch = batch_of(cfg, message // cfg.batch_size)
    acks = {m for m in batch if m == message or m in before.consumer.tracked or (cumulative and m < message)}
    return len(acks) == len(batch), acks


def last_covered(cfg: Config, before: State, message: int) -> int:
    """Returns the last message that a cumulative ack covers. Without index acks, the ack covers only whole batches."""
    if cfg.index_acks:
        return message
    is_whole, _ = batch_after_ack(cfg, before, message, cumulative=True)
    # the last message of this batch if the ack completes the batch; otherwise the last message of the batch before
    return batch_of(cfg, message // cfg.batch_size + is_whole)[0] - 1


def outcome_of_reply(before: State, reply: Reply, after: State) -> str:
    """Returns what a handler does with a reply, which is the outcome of the step."""
    oldest = before.producer.pending[:1]
    if reply.kind == "receipt":
        if oldest == (reply.value,):
            return "stored"
        return "disconnected" if oldest and reply.value > oldest[0] else "ignored"
    return {
        "success": "ready",
        "refused": "retried" if reply.value else "failed",
        "close": "closed",
        "send_error": "disconnected",
        "checksum_error": "failed" if oldest == (reply.value,) else "disconnected",
        "message": "dropped" if after.consumer.queue == before.consumer.queue else "queued",
        "corrupt": "discarded",
    }[reply.kind]


#: By step that handles no reply: what it returns, given the config, the state before it, its event, and the state after
#: it. A step that is not in the table returns None.
RETURNS: dict[str, Callable[[Config, State, Event, State], object]] = {
    "connect": lambda cfg, before, event, after: (
        "redirect" if links(before)[HANDLERS.index(handler_of(event))].phase == "redirected" else "lookup"
    ),
    "accept": lambda cfg, before, event, after: last_stored(cfg, before) if handler_of(event) == "producer" else 0,
    "end_of_topic": lambda cfg, before, event, after: "ignored",
    "send": lambda cfg, before, event, after: before.producer.next_sequence_id,
    "time_out": lambda cfg, before, event, after: len(before.producer.pending),
    "store": lambda cfg, before, event, after: "duplicate" if after.log == before.log else "stored",
    "send_error": lambda cfg, before, event, after: before.producer.up[0].sequence,
    **dict.fromkeys(DISPATCHES, lambda cfg, before, event, after: next_to_deliver(cfg, before)),
    "receive": lambda cfg, before, event, after: before.consumer.queue[0],
    "acknowledge": lambda cfg, before, event, after: (
        cfg.index_acks or batch_after_ack(cfg, before, event.arguments["message"], cumulative=False)[0]
    ),
    "acknowledge_cumulative": lambda cfg, before, event, after: last_covered(cfg, before, event.arguments["message"]),
}


@always(client_session, given=client_session.is_reference)
def step_returns_what_it_did(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A step returns what it did: for a command that the client handles, what the handler did with it."""
    if not happened(event):
        return True
    reply = handled_reply(before, event)
    if reply is not None:
        return bool(event.outcome == outcome_of_reply(before, reply, after))
    expected = RETURNS[event.name](cfg, before, event, after) if event.name in RETURNS else None
    return bool(event.outcome == expected)


# ---- links ---------------------------------------------------------------------------------------------


@always(client_session, given=client_session.is_reference)
def handler_without_connection_has_no_session(cfg: Config, s: State) -> bool:
    """A handler without connection has no session, and no command is in flight to the handler.

    A producer that is not ready has no sends in flight. A consumer that is not ready has no permits, its read position
    is 0, and it has no entries to redeliver.
    """
    p, c = s.producer, s.consumer
    if any(link.phase in DISCONNECTED and (link.session != "none" or link.down) for link in links(s)):
        return False
    return (p.link.phase == "ready" or not p.up) and (
        c.link.phase == "ready" or (c.permits, c.read, c.replay) == (0, 0, ())
    )


@always(client_session, given=client_session.is_reference)
def handler_and_broker_follow_the_protocol(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A handler's phase, session and replies in flight change only by its own steps, as the protocol says.

    A handler loses its session by a broken connection, by any close, refusal or error, and by a receipt of a later
    message than the oldest pending one.
    """
    own = HANDLERS.index(handler_of(event))
    expected = list(links(before))
    if happened(event):
        expected[own] = _link_after(cfg, before, event, after, expected[own])
    return list(links(after)) == expected


def _link_after(cfg: Config, before: State, event: Event, after: State, link: Link) -> Link:
    """Returns the link that the step's handler must have after the step."""
    name, reply = event.name, handled_reply(before, event)
    sent = _sent(cfg, before, event)
    session = {
        "connect": "requested",
        "accept": "open",
        **dict.fromkeys(("refuse", "finish_transfer", "late_success"), "none"),
        "close": "closed" if link.session == "requested" else "none",
        **dict.fromkeys(("send_error", "ignore_sends"), "ignoring"),
    }.get(name, link.session)
    phase, down = link.phase, link.down[int(name == "handle") :]  # the step `handle` takes the first reply
    # a request to redeliver all messages drops the messages in flight, which have an older consumer epoch
    if name == "negative_acknowledge" and not cfg.shared and phase == "ready":
        down = tuple(each for each in down if each.kind not in ("message", "corrupt"))
    if name == "connect":
        phase = "waiting"
    elif name in ("fail_redirect", "break_connection"):
        phase = "lookup"
    elif reply is not None:
        does = outcome_of_reply(before, reply, after)
        if does in ("closed", "disconnected", "retried") or reply.kind == "checksum_error":
            phase = "redirected" if reply.kind == "close" and reply.value else "lookup"
        elif reply.kind in ("refused", "success"):
            phase = "failed" if reply.kind == "refused" else "ready"
    if phase in DISCONNECTED:
        return Link(phase, link.created, "none", ())
    return Link(phase, link.created or phase == "ready", session, (*down, *sent))  # type: ignore[arg-type]


def _sent(cfg: Config, before: State, event: Event) -> tuple[Reply, ...]:
    """Returns the reply that a step of the broker sends, as a tuple; an empty tuple if the step sends no reply."""
    arguments, up = event.arguments, before.producer.up
    if event.name in ("accept", "late_success"):
        return (Reply("success", last_stored(cfg, before) if handler_of(event) == "producer" else 0),)
    if event.name == "refuse":
        return (Reply("refused", int(arguments["retryable"])),)
    if event.name in ("close", "finish_transfer"):
        return (Reply("close", int(arguments["redirect"])),)
    if event.name == "store":
        return (Reply("receipt", up[0].sequence),)
    if event.name == "send_error":
        return (Reply("checksum_error" if arguments["checksum"] else "send_error", up[0].sequence),)
    if event.name in DISPATCHES:
        kind = "message" if event.name == "dispatch" else "corrupt"
        return (Reply(kind, event.outcome, left_in(cfg, before, event.outcome)),)  # type: ignore[arg-type]
    return ()


# ---- producer, subscription and consumer ---------------------------------------------------------------


@always(client_session, given=client_session.is_reference)
def producer_changes_only_by_its_steps(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The producer and the log change only as each step says.

    A send takes the next sequence id. A receipt or ChecksumError completes the oldest pending message. A timeout or a
    final refusal fails all pending messages. The first session sets the next sequence id. Every session sends all
    pending messages again. The broker stores or rejects the oldest send in flight. A connection that ends loses the
    sends in flight.
    """
    p, log, reply = before.producer, before.log, handled_reply(before, event)
    following, pending, results, up = p.next_sequence_id, p.pending, p.results, p.up
    if not happened(event) or handler_of(event) != "producer":
        pass
    elif event.name == "send":
        up = (*up, Entry(len(results) + len(pending), following))
        following, pending = following + 1, (*pending, following)
    elif event.name in ("store", "send_error"):
        is_new = event.name == "store" and up[0].sequence > last_stored(cfg, before)
        log, up = (*log, *up[:is_new]), up[1:]  # the first send in flight is stored if it is new
    # ("refused", 0) is a final refusal
    elif event.name == "time_out" or (reply is not None and reply[:2] == ("refused", 0)):
        results, pending = (*results, *[False for _ in pending]), ()
    elif reply is not None and reply.kind == "success":
        if not p.link.created:
            following = 1 + (reply.value if cfg.initial_sequence_id < 0 else cfg.initial_sequence_id)
        up = tuple(Entry(len(results) + i, sequence) for i, sequence in enumerate(pending))
    elif reply is not None and reply.kind in ("receipt", "checksum_error") and pending[:1] == (reply.value,):
        results, pending = (*results, reply.kind == "receipt"), pending[1:]
    now = after.producer
    kept = up if now.link.phase == "ready" else ()
    return (after.log, now.next_sequence_id, now.pending, now.results, now.up) == (
        log,
        following,
        pending,
        results,
        kept,
    )


@always(client_session, given=client_session.is_reference)
def subscription_changes_only_by_its_steps(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The subscription changes only by acks, deliveries and redeliveries.

    While the consumer has a session, the broker accepts the acks of a flush and of a corrupt entry, and delivers
    entries in order. A redelivery rewinds the read position of an exclusive consumer. For a shared consumer, it
    repeats one entry, unless the consumer's session has not delivered the entry yet. Acknowledged entries are not
    delivered again.
    """
    c, acked, reply = before.consumer, {*before.acked}, handled_reply(before, event)
    replay, read, message = {*c.replay}, c.read, event.arguments.get("message", 0)
    if not happened(event):
        pass
    elif event.name == "acknowledge_elsewhere":
        acked.add(message)
    elif c.link.session != "open":
        pass
    elif event.name == "flush":
        acked |= {*c.grouped, *range(c.cumulative + 1)}
    elif reply is not None and reply.kind == "corrupt":
        acked |= {*reply.messages}
    elif event.name in DISPATCHES:
        replay, read = replay - {event.outcome}, max(read, event.outcome + 1)
    elif event.name == "negative_acknowledge" and c.link.phase == "ready":
        entry = message // cfg.batch_size
        replay |= {entry} if cfg.shared and entry < read else set()
        read = read if cfg.shared else 0
    now = after.consumer
    if after.acked != tuple(sorted(acked)):
        return False
    expected_replay = tuple(e for e in sorted(replay) if left_in(cfg, after, e))
    return now.link.session != "open" or (now.read, now.replay) == (read, expected_replay)


@always(client_session, given=client_session.is_reference)
def consumer_changes_only_by_its_steps(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The consumer's queue, received messages and acks change only as each step says.

    The application receives the queued messages in order, and acknowledges or nacks each of them once. A connection
    attempt and a redelivery of all messages empty the queue. With index acks, each ack is grouped until the next flush.
    Without index acks, acknowledged messages are tracked until their batch is complete; then the batch's ack is
    grouped. When messages of a batch are queued, exactly the messages that its ack set excludes are tracked. A
    cumulative ack replaces the acks that it covers.
    """
    c, name, reply = before.consumer, event.name, handled_reply(before, event)
    queue, cumulative = c.queue, c.cumulative
    taken, tracked, grouped = {*c.taken}, {*c.tracked}, {*c.grouped}
    message: int = event.arguments.get("message", 0)
    batch = {*batch_of(cfg, message // cfg.batch_size)}
    if not happened(event) or handler_of(event) != "consumer":
        pass
    elif name == "connect" or (name == "negative_acknowledge" and not cfg.shared and c.link.phase == "ready"):
        queue, taken = (), taken - ({message} if name != "connect" else set())
    elif name == "negative_acknowledge":
        taken -= {message}
    elif reply is not None and reply.kind == "message":
        arrived = [m for m in reply.messages if m not in grouped and m > cumulative]
        queue = (*queue, *arrived)
        if arrived and not cfg.index_acks:
            whole = {*batch_of(cfg, reply.value)}
            tracked = (tracked - whole) | (whole - {*reply.messages})
    elif name == "receive":
        queue, taken = queue[1:], taken | {queue[0]}
    elif name == "acknowledge":
        is_whole, _ = batch_after_ack(cfg, before, message, cumulative=False)
        taken -= {message}
        if cfg.index_acks:
            grouped |= {message}
        else:
            grouped |= batch if is_whole else set()
            tracked = tracked - batch if is_whole else tracked | {message}
    elif name == "acknowledge_cumulative":
        last, (_, acks) = last_covered(cfg, before, message), batch_after_ack(cfg, before, message, cumulative=True)
        taken, grouped = {m for m in taken if m > message}, {m for m in grouped if m > last}
        tracked = {m for m in tracked | (set() if cfg.index_acks else acks) if m > last}
        cumulative = max(cumulative, last)
    elif name == "flush":
        grouped, cumulative = set(), -1
    now = after.consumer
    expected = tuple(sorted(taken)), tuple(sorted(tracked)), tuple(sorted(grouped))
    return (now.queue, now.cumulative) == (queue, cumulative) and (now.taken, now.tracked, now.grouped) == expected
