"""Connections of producer and consumer: requests, refusals, CLOSE commands, lost connections."""

from __future__ import annotations

from model.client_session.consumer import corrupt_received, message_received, subscribed
from model.client_session.producer import checksum_error, failed_pending, opened, receipted
from model.client_session.state import (
    Config,
    Handler,
    Reply,
    State,
    client_session,
    disconnected,
    last_sequence_id,
    link_of,
    with_link,
    with_reply,
)
from model.machine import Refused, Step, refused

NOT_NOW = Refused("not_enabled", "the handler is not in this phase")
NO_SESSION = Refused("not_enabled", "the broker has no such session of the handler")


@client_session.action
def connect(cfg: Config, s: State, handler: Handler) -> Step[State, str]:
    """`ConnectionHandler.grabCnx`: a handler connects to a broker and sends PRODUCER or SUBSCRIBE.

    The broker is the one in the URL of a redirect, or the result of a lookup. A consumer first drops its receiver
    queue, and the permits that it has to return. Returns "redirect" or "lookup".
    """
    link = link_of(s, handler)
    if link.phase not in ("lookup", "redirected"):
        return s, NOT_NOW
    s = with_link(s, handler, link._replace(phase="waiting", session="requested"))
    if handler == "consumer":
        s = s._replace(consumer=s.consumer._replace(queue=(), available_permits=0))
    return s, "redirect" if link.phase == "redirected" else "lookup"


@client_session.fault
def fail_redirect(cfg: Config, s: State, handler: Handler) -> Step[State, None]:
    """`ConnectionHandler.handleConnectionError`: a handler cannot connect to a redirect's URL; a lookup is next."""
    link = link_of(s, handler)
    if link.phase != "redirected":
        return s, NOT_NOW
    return with_link(s, handler, link._replace(phase="lookup")), None


@client_session.action
def accept(cfg: Config, s: State, handler: Handler) -> Step[State, int]:
    """`ServerCnx.handleProducer`, `ServerCnx.handleSubscribe`: the broker answers PRODUCER_SUCCESS or SUCCESS.

    Returns the last sequence id, which PRODUCER_SUCCESS has; 0 for a consumer.
    """
    if link_of(s, handler).session != "requested":
        return s, NO_SESSION
    last = last_sequence_id(cfg, s) if handler == "producer" else 0
    return with_reply(s, handler, Reply("success", last), "open"), last


@client_session.action
def refuse(cfg: Config, s: State, handler: Handler, retryable: bool) -> Step[State, None]:
    """`ServerCnx.handleProducer`, `ServerCnx.handleSubscribe`: the broker refuses PRODUCER or SUBSCRIBE.

    ServiceNotReady is an error that is retryable. TopicTerminated is not retryable for a producer, and TopicNotFound is
    not retryable for a consumer.
    """
    if link_of(s, handler).session != "requested":
        return s, NO_SESSION
    return with_reply(s, handler, Reply("refused", int(retryable)), "none"), None


@client_session.action
def close(cfg: Config, s: State, handler: Handler, redirect: bool) -> Step[State, None]:
    """`Producer.disconnect`, `Consumer.disconnect`: the broker closes a session or an unanswered request.

    With `redirect`, the command CLOSE_PRODUCER or CLOSE_CONSUMER has the URL of another broker.
    """
    session = link_of(s, handler).session
    if session not in ("requested", "open"):
        return s, NO_SESSION
    return with_reply(s, handler, Reply("close", int(redirect)), "closed" if session == "requested" else "none"), None


@client_session.action
def finish_transfer(cfg: Config, s: State, handler: Handler, redirect: bool) -> Step[State, None]:
    """`Producer.disconnect`: the broker closes a session whose sends it ignores.

    The broker ignores sends after it has rejected one, or during a transfer. In a transfer, this step is phase 2 of
    PIP-307. With `redirect`, the command CLOSE_PRODUCER has the URL of another broker.
    """
    if link_of(s, handler).session != "ignoring":
        return s, NO_SESSION
    return with_reply(s, handler, Reply("close", int(redirect)), "none"), None


@client_session.fault
def late_success(cfg: Config, s: State, handler: Handler) -> Step[State, None]:
    """`ServerCnx.handleProducer`, `handleSubscribe`: the broker answers success to a request that it has closed.

    The broker opens no session.
    """
    if link_of(s, handler).session != "closed":
        return s, NO_SESSION
    last = last_sequence_id(cfg, s) if handler == "producer" else 0
    return with_reply(s, handler, Reply("success", last), "none"), None


@client_session.fault
def break_connection(cfg: Config, s: State, handler: Handler) -> Step[State, None]:
    """`ConnectionHandler.connectionClosed`: the connection of one handler breaks, and a lookup is next.

    The commands in flight to and from the handler are lost.
    """
    if link_of(s, handler).phase not in ("waiting", "ready"):
        return s, NOT_NOW
    return disconnected(s, handler), None


@client_session.action
def end_of_topic(cfg: Config, s: State) -> Step[State, str]:
    """`Consumer.reachedEndOfTopic`: the broker sends the consumer REACHED_END_OF_TOPIC.

    The client ignores the command. With `unknown_command_disconnects`, it closes the connection; here producer and
    consumer have one connection, so both lose it. Returns "ignored" or "disconnected".
    """
    if s.consumer.link.phase != "ready" or s.consumer.link.session != "open":
        return s, NO_SESSION
    if not cfg.unknown_command_disconnects:
        return s, "ignored"
    s = disconnected(s, "consumer")
    if s.producer.link.phase in ("waiting", "ready"):
        s = disconnected(s, "producer")
    return s, "disconnected"


@client_session.action
def handle(cfg: Config, s: State, handler: Handler) -> Step[State, str]:
    """`ClientCnx`: a handler handles the next command of its broker. Returns what the handler does.

    The results, by command:

    success         "ready": a producer sends all pending messages again, oldest first; a consumer sends FLOW for its
                    whole receiver queue
    refused         "retried" if the refusal is retryable: the handler looks the topic up. Otherwise "failed": the
                    handler and its pending messages fail. Without `first_subscribe_is_retried`, every refusal of the
                    first SUBSCRIBE is final
    close           "closed": the handler connects to the URL, or looks the topic up if there is none. "kept": without
                    `close_cancels_request`, a reconnecting handler ignores the command, and waits for the answer to
                    its request
    receipt         see `receipted`
    send_error      "disconnected": the handler closes its connection, and sends all pending messages again later
    checksum_error  see `checksum_error`
    message         "queued", or "dropped" if acks cover every message (`message_received`)
    corrupt         "discarded": the client acks the entry with a validation error, and drops the entry's messages
    """
    link = link_of(s, handler)
    if not link.down or link.phase in ("failed", "crashed"):
        return refused(s, "not_enabled", "no command is in flight")
    reply, is_reconnection = link.down[0], link.created
    s = with_link(s, handler, link._replace(down=link.down[1:]))
    if reply.kind == "success":
        s = with_link(s, handler, link_of(s, handler)._replace(phase="ready", created=True))
        return (opened(cfg, s, reply, is_reconnection) if handler == "producer" else subscribed(cfg, s)), "ready"
    if reply.kind == "refused":
        return refused_by_broker(cfg, s, handler, bool(reply.value))
    if reply.kind == "close":
        if link.phase == "waiting" and is_reconnection and not cfg.close_cancels_request:
            return s, "kept"
        return disconnected(s, handler, "redirected" if reply.value else "lookup"), "closed"
    if reply.kind == "receipt":
        return receipted(cfg, s, reply.value)
    if reply.kind == "checksum_error":
        return checksum_error(cfg, s, reply.value)
    if reply.kind == "message":
        return message_received(cfg, s, reply)
    if reply.kind == "corrupt":
        return corrupt_received(cfg, s, reply)
    return disconnected(s, handler), "disconnected"  # send_error


def refused_by_broker(cfg: Config, s: State, handler: Handler, retryable: bool) -> tuple[State, str]:
    """Returns the state after the broker refused a request, and whether the handler "retried" or "failed"."""
    is_first_subscribe = handler == "consumer" and not s.consumer.link.created
    if retryable and (cfg.first_subscribe_is_retried or not is_first_subscribe):
        return disconnected(s, handler), "retried"
    s = disconnected(s, handler, "failed")
    return (failed_pending(s) if handler == "producer" else s), "failed"
