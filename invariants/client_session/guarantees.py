"""Guarantees of a client to its application.

A handler is the producer or the consumer. Its link has its phase, its session at the broker, and the commands in flight
to it (`down`). Acks are grouped until a flush sends them.
"""

from __future__ import annotations

from invariants.client_session.steps import HANDLERS, handled, happened, links
from invariants.properties import Event, always, eventually, history, sometimes
from model.client_session.machine import client_session
from model.client_session.state import Config, State

#: Steps of the client, of its application, and of a broker that accepts every request and has no faults.
FAIR = ("connect", "accept", "handle", "store", "finish_transfer", "dispatch", "receive", "acknowledge", "flush")

# ---- accessors -----------------------------------------------------------------------------------------


def pending_messages(s: State) -> range:
    """Returns the producer's messages without result."""
    first = len(s.producer.results)
    return range(first, first + len(s.producer.pending))


def stored_messages(s: State) -> list[int]:
    """Returns the messages of this producer in the order of the log; a message that is stored twice is there twice."""
    return [entry.message for entry in s.log if entry.message >= 0]


def reused_count(cfg: Config) -> int:
    """Returns how many messages, from the first on, get a sequence id that an earlier producer has stored.

    This happens if `initialSequenceId` is below the last stored sequence id. The broker acknowledges these messages as
    duplicates, and does not store them. A result below 0 means the same as 0.
    """
    return cfg.stored - cfg.initial_sequence_id - 1 if cfg.deduplication and cfg.initial_sequence_id >= 0 else 0


def entry_of(cfg: Config, message: int) -> int:
    """Returns the entry of a consumer's message."""
    return message // cfg.batch_size


# ---- the producer --------------------------------------------------------------------------------------


@always(client_session)
def reported_message_is_stored(cfg: Config, s: State) -> bool:
    """Every message that was reported stored is in the log, except a message with a reused sequence id.

    An application reuses sequence ids if it sets `initialSequenceId` below the last sequence id of an earlier producer.
    """
    stored = set(stored_messages(s))
    return all(m in stored for m, is_stored in enumerate(s.producer.results) if is_stored and m >= reused_count(cfg))


@always(client_session)
def log_keeps_send_order(cfg: Config, s: State) -> bool:
    """The first copies of the stored messages are in the order in which the messages were sent."""
    first = list(dict.fromkeys(stored_messages(s)))
    return first == sorted(first)


@always(client_session)
def stored_message_leaves_no_gap(cfg: Config, s: State) -> bool:
    """No message is stored while an earlier message is pending and is not stored.

    An earlier message with a reused sequence id does not count: the broker never stores such a message.
    """
    stored = stored_messages(s)
    missing = next((m for m in pending_messages(s) if m not in stored and m >= reused_count(cfg)), None)
    return missing is None or max(stored, default=-1) < missing


@always(client_session, given=lambda cfg: cfg.deduplication)
def deduplicated_log_has_no_duplicate(cfg: Config, s: State) -> bool:
    """With deduplication, every message and every sequence id is in the log at most once."""
    stored, sequences = stored_messages(s), [entry.sequence for entry in s.log]
    return len(set(stored)) == len(stored) and len(set(sequences)) == len(sequences)


@always(client_session)
def pending_sequence_ids_ascend(cfg: Config, s: State) -> bool:
    """The sequence ids of pending messages ascend, and the next sequence id is above them."""
    ids = [*s.producer.pending, s.producer.next_sequence_id]
    return all(ids[i] < ids[i + 1] for i in range(len(ids) - 1))


@always(client_session, on=("handle", "connect", "break_connection", "close", "accept"))
def pending_message_keeps_its_sequence_id(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A reconnection changes no pending message: each of them keeps its sequence id, or gets a result."""
    done = len(after.producer.results) - len(before.producer.results)
    return after.producer.pending == before.producer.pending[done:]


@always(client_session, on=("handle",))
def reconnected_producer_sends_all_pending_messages(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A producer that becomes ready sends every pending message, oldest first, with its sequence id."""
    if handled(before, event) != "success" or event.arguments["handler"] != "producer":
        return True
    sent = [(entry.message, entry.sequence) for entry in after.producer.up]
    return sent == list(zip(pending_messages(after), after.producer.pending, strict=True))


@always(client_session, on=("handle", "stray_reply"))
def only_receipt_of_oldest_message_reports_it_stored(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A message is reported stored only by the receipt of its sequence id, while it is the oldest pending message.

    No stray reply reports a message stored, because a stray reply does not name the oldest pending message.
    """
    results = after.producer.results[len(before.producer.results) :]
    if True not in results:
        return True
    sequence = before.producer.link.down[0].value if event.name == "handle" else event.arguments["sequence"]
    return results == (True,) and handled(before, event) == "receipt" and before.producer.pending[0] == sequence


@always(client_session, on=("handle", "stray_reply"))
def early_receipt_closes_connection(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A receipt closes the connection if and only if it is of a later message than the oldest pending one.

    A producer with a null element in the pending queue (`damaged`) is not checked.
    """
    if event.name == "stray_reply" and event.arguments["kind"] == "receipt" and happened(event):
        sequence = event.arguments["sequence"]
    elif handled(before, event) == "receipt":
        sequence = before.producer.link.down[0].value
    else:
        return True
    pending = before.producer.pending
    is_early = bool(pending) and sequence > pending[0]
    return before.producer.damaged or (after.producer.link.phase == "lookup") == is_early


@always(client_session)
def client_does_not_crash(cfg: Config, s: State) -> bool:
    """No answer of the broker ends the client's process."""
    return all(link.phase != "crashed" for link in links(s))


# ---- handlers ------------------------------------------------------------------------------------------


@always(client_session)
def ready_handler_has_session_or_learns_otherwise(cfg: Config, s: State) -> bool:
    """For every ready handler, the broker has a session, or a command that ends the session is in flight."""
    ends = ("close", "send_error", "checksum_error")
    return all(
        link.phase != "ready" or link.session in ("open", "ignoring") or any(reply.kind in ends for reply in link.down)
        for link in links(s)
    )


@always(client_session, on=("handle",))
def retryable_refusal_is_retried(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A refused handler looks the topic up again if and only if the refusal is retryable, also at its first request."""
    if handled(before, event) != "refused":
        return True
    i = HANDLERS.index(event.arguments["handler"])
    return (links(after)[i].phase == "lookup") == bool(links(before)[i].down[0].value)


@always(client_session, on=("handle",))
def final_refusal_fails_pending_messages(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A final refusal of the producer fails all its pending messages. Any other refusal fails no message."""
    if handled(before, event) != "refused":
        return True
    is_final = event.arguments["handler"] == "producer" and not before.producer.link.down[0].value
    return after.producer.pending == (() if is_final else before.producer.pending)


@always(client_session, on=("handle",))
def close_with_url_needs_no_lookup(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A handler whose session is closed connects to the URL of CLOSE, or looks the topic up if there is no URL."""
    if handled(before, event) != "close":
        return True
    i = HANDLERS.index(event.arguments["handler"])
    return links(after)[i].phase == ("redirected" if links(before)[i].down[0].value else "lookup")


@always(client_session, on=("fail_redirect", "break_connection"))
def redirect_is_used_once(cfg: Config, before: State, event: Event, after: State) -> bool:
    """After a failed attempt to connect to the URL, or a lost connection, a handler looks the topic up."""
    return not happened(event) or links(after)[HANDLERS.index(event.arguments["handler"])].phase == "lookup"


@always(client_session, on=("end_of_topic",))
def unknown_command_keeps_connection(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A command that the client does not know changes neither handler's phase nor session."""
    return links(before) == links(after)


# ---- permits and delivery ------------------------------------------------------------------------------


@always(client_session)
def permits_are_conserved(cfg: Config, s: State) -> bool:
    """Permits at the broker, messages in flight or queued, and permits to return add up to the receiver queue size.

    This holds while the consumer is ready and the broker has the session.
    """
    c = s.consumer
    if c.link.phase != "ready" or c.link.session != "open":
        return True
    in_flight = sum(len(reply.messages) for reply in c.link.down)
    return c.permits + in_flight + len(c.queue) + c.available_permits == cfg.receiver_queue_size


@always(client_session)
def half_a_queue_of_permits_is_returned(cfg: Config, s: State) -> bool:
    """A ready consumer holds back fewer permits than half of its receiver queue (rounded down, at least 1)."""
    return s.consumer.link.phase != "ready" or s.consumer.available_permits < max(1, cfg.receiver_queue_size // 2)


@always(client_session, given=lambda cfg: not cfg.shared)
def exclusive_queue_is_in_order(cfg: Config, s: State) -> bool:
    """The receiver queue of an exclusive consumer has each message once, in order."""
    queue = s.consumer.queue
    return all(queue[i] < queue[i + 1] for i in range(len(queue) - 1))


@always(client_session, given=lambda cfg: not cfg.shared)
def queued_message_is_not_sent_again(cfg: Config, s: State) -> bool:
    """The broker's read position of an exclusive consumer is after every message of the consumer's receiver queue."""
    c = s.consumer
    attached = c.link.phase == "ready" and c.link.session == "open"
    return not attached or all(entry_of(cfg, m) < c.read for m in c.queue)


@always(client_session)
def dropped_message_is_acknowledged(cfg: Config, s: State) -> bool:
    """If the client drops every delivery of a message, its ack is at the broker, or the client still has to send it.

    The client does so only with `cumulative_ack_hides_for_ever`: it drops every message up to its last cumulative ack.
    """
    c = s.consumer
    kept = {*s.acked, *c.grouped, *range(c.cumulative + 1)}
    return all(m in kept for m in range(c.covered + 1))


@always(client_session, on=("handle",))
def fresh_message_is_queued(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A message that arrives is queued if and only if neither a grouped ack nor a cumulative ack covers the message."""
    if handled(before, event) != "message":
        return True
    c = before.consumer
    arrived = [m for m in c.link.down[0].messages if m not in c.grouped and m > max(c.cumulative, c.covered)]
    return after.consumer.queue == (*c.queue, *arrived)


# ---- acknowledgements ----------------------------------------------------------------------------------


@history(
    client_session,
    initial=lambda cfg: frozenset(),
    on=("acknowledge", "acknowledge_cumulative", "acknowledge_elsewhere", "handle"),
)
def processed(cfg: Config, value: frozenset[int], before: State, event: Event, after: State) -> frozenset[int]:
    """The messages that an application has acknowledged, or that the client has discarded as corrupt."""
    if not happened(event):
        return value
    if event.name == "handle":
        return value | set(before.consumer.link.down[0].messages) if handled(before, event) == "corrupt" else value
    message = event.arguments["message"]
    return value | (set(range(message + 1)) if event.name == "acknowledge_cumulative" else {message})


@always(client_session, on=("flush", "handle"), history=(processed,))
def acknowledged_message_was_processed(
    cfg: Config, before: State, event: Event, after: State, values: frozenset[int]
) -> bool:
    """Each message that is acknowledged at the broker was acknowledged by an application, or discarded as corrupt."""
    discarded = before.consumer.link.down[0].messages if handled(before, event) == "corrupt" else ()
    return set(after.acked) <= values | set(discarded)


#: By entry, in ascending order: the messages of the entry that an ack set excluded (see the history `excluded`).
Excluded = tuple[tuple[int, frozenset[int]], ...]


@history(client_session, initial=lambda cfg: (), on=("handle",))
def excluded(cfg: Config, value: Excluded, before: State, event: Event, after: State) -> Excluded:
    """By entry: the messages that the ack set excluded at the last delivery that queued a message of the entry."""
    if handled(before, event) != "message" or event.outcome != "queued":
        return value
    reply = before.consumer.link.down[0]
    batch = range(reply.value * cfg.batch_size, (reply.value + 1) * cfg.batch_size)
    return tuple(sorted((dict(value) | {reply.value: frozenset(batch) - set(reply.messages)}).items()))


@always(client_session, on=("acknowledge",), given=lambda cfg: not cfg.index_acks, history=(excluded,))
def completed_batch_is_acknowledged(cfg: Config, before: State, event: Event, after: State, values: Excluded) -> bool:
    """The ack of an entry is grouped once the application has acknowledged all messages of its last delivery."""
    if not happened(event):
        return True
    message = event.arguments["message"]
    entry = entry_of(cfg, message)
    batch = set(range(entry * cfg.batch_size, (entry + 1) * cfg.batch_size))
    done = {*before.consumer.tracked, message, *dict(values).get(entry, ())}
    return not batch <= done or batch <= set(after.consumer.grouped)


@always(client_session, on=("flush",))
def flush_waits_until_consumer_is_ready(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Only a ready consumer sends its grouped acks: without a session, they are lost."""
    return not happened(event) or before.consumer.link.phase == "ready"


@always(client_session, on=("negative_acknowledge",))
def nacked_message_is_delivered_again(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The broker of a connected consumer will deliver a nacked message again if the message is not acknowledged."""
    c = after.consumer
    if not happened(event) or c.link.phase != "ready" or c.link.session != "open":
        return True
    message = event.arguments["message"]
    entry = entry_of(cfg, message)
    return message in after.acked or entry >= c.read or entry in c.replay


@always(client_session)
def acknowledgement_is_never_taken_back(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A message that the subscription has acknowledged stays acknowledged."""
    return set(before.acked) <= set(after.acked)


# ---- coverage goals ------------------------------------------------------------------------------------


@sometimes(client_session, on=("store",), given=lambda cfg: cfg.deduplication)
def resent_message_is_duplicate(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The broker recognises a send as a duplicate: the message is stored, or its sequence id is reused."""
    return bool(event.outcome == "duplicate")


@sometimes(client_session, on=("time_out",))
def timed_out_message_is_in_flight(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A message times out while a send is in flight to the broker."""
    return happened(event) and bool(after.producer.up)


@sometimes(client_session, on=("handle",))
def arriving_message_is_dropped(cfg: Config, before: State, event: Event, after: State) -> bool:
    """The client drops a delivery, because all its messages were acknowledged before."""
    return bool(event.outcome == "dropped")


@sometimes(client_session, on=("flush",))
def ack_is_lost(cfg: Config, before: State, event: Event, after: State) -> bool:
    """Acks are sent to a broker that has no session of the consumer."""
    return happened(event) and before.consumer.link.session != "open"


@sometimes(client_session, on=("handle",))
def close_meets_request(cfg: Config, before: State, event: Event, after: State) -> bool:
    """A handler receives a close command while it waits for the answer to its `PRODUCER` or `SUBSCRIBE`."""
    phases = [link.phase for link in links(before)]
    return handled(before, event) == "close" and phases[HANDLERS.index(event.arguments["handler"])] == "waiting"


# ---- liveness ------------------------------------------------------------------------------------------


@eventually(client_session, fair=FAIR)
def every_message_has_result(cfg: Config, s: State) -> bool:
    """Every message that was sent is eventually reported stored or failed."""
    return not s.producer.pending


@eventually(client_session, fair=FAIR)
def every_message_is_acknowledged(cfg: Config, s: State) -> bool:
    """Every stored message is eventually acknowledged, or the consumer has failed, or the client has crashed."""
    return len(s.acked) == len(s.log) * cfg.batch_size or s.consumer.link.phase in ("failed", "crashed")


@eventually(client_session, fair=FAIR)
def handlers_are_attached(cfg: Config, s: State) -> bool:
    """Every handler eventually is ready and has a session, or has failed, or the client has crashed."""
    return all(
        link.phase in ("failed", "crashed") or (link.phase == "ready" and link.session == "open") for link in links(s)
    )
