"""How to drive a client's session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuzz.subject import Scope, Subject
from fuzz.tlc.values import as_model
from impl.client_session import ClientSession
from invariants import client_session as invariants
from invariants.client_session.guarantees import FAIR
from model.client_session.machine import client_session
from model.client_session.state import Config, State


def messages(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns the messages that the application may ack, twice; the first, the last, and one that does not exist."""
    end = len(s.log) * cfg.batch_size
    return (*s.consumer.taken, *s.consumer.taken, 0, max(end - 1, 0), end)


def sequences(cfg: Config, s: State) -> tuple[int, ...]:
    """Returns the sequence ids before, of and after the oldest pending message (or the next one), and the next id."""
    p = s.producer
    oldest = p.pending[0] if p.pending else p.next_sequence_id
    return (max(oldest - 1, 0), oldest, oldest + 1, p.next_sequence_id)


def situation(cfg: Config, s: State) -> str:
    """Returns the first of these situations that the state is in; "" if none.

    failed    a handler has failed
    new       neither handler has been created
    waiting   a handler waits for the answer to PRODUCER or SUBSCRIBE
    grouped   acks are grouped, and not yet sent
    """
    phases = (s.producer.link.phase, s.consumer.link.phase)
    if "failed" in phases:
        return "failed"
    if not (s.producer.link.created or s.consumer.link.created):
        return "new"
    if "waiting" in phases:
        return "waiting"
    return "grouped" if s.consumer.grouped or s.consumer.cumulative >= 0 else ""


def coverage_key(cfg: Config, s: State) -> tuple[object, ...]:
    """Returns phases, sessions and commands of both handlers, and capped numbers of messages."""
    p, c = s.producer, s.consumer
    return (
        tuple(
            (link.phase, link.created, link.session, tuple(r.kind for r in link.down[:2])) for link in (p.link, c.link)
        ),
        (min(len(p.pending), 2), min(len(p.up), 2), p.results[-2:]),
        (min(c.permits, 1), bool(c.replay), min(len(c.queue), 2), bool(c.available_permits)),
        (bool(c.taken), bool(c.tracked), bool(c.grouped), c.cumulative >= 0),
    )


# ---- measures that scopes bound ------------------------------------------------------------------------


def entries(s: State) -> int:
    """Returns the number of entries of the log."""
    return len(s.log)


def sent(s: State) -> int:
    """Returns the number of messages that the application sent."""
    return len(s.producer.results) + len(s.producer.pending)


# ---- scopes --------------------------------------------------------------------------------------------

#: Actions on the connections of both handlers, of the producer only, and of the consumer only.
HANDLER_ACTIONS = (
    "connect",
    "accept",
    "handle",
    "refuse",
    "close",
    "fail_redirect",
    "late_success",
    "break_connection",
)
PRODUCER_ACTIONS = ("send", "store", "finish_transfer")
CONSUMER_ACTIONS = ("dispatch", "receive", "acknowledge", "flush")

SMOKE = Scope(
    actions=(*HANDLER_ACTIONS, *PRODUCER_ACTIONS, "send_error", "ignore_sends", "time_out"),
    settings={"deduplication": True},
    domains={
        "handler": ("producer",),
        "redirect": (False, True),
        "retryable": (False, True),
        "checksum": (False, True),
        "kind": ("receipt", "checksum_error"),
        "sequence": (0, 1, 2),
        "message": (0, 1),
    },
    bounds={"sent": 2, "entries": 2},
    reasons={
        "actions": "the producer and its broker; stray replies are in the scope stray",
        "deduplication": "enabled; it is disabled in the scope stray",
        "handler": "the producer; the consumer shares only the log and the connection with it",
        "redirect": "a CLOSE with and without a URL",
        "retryable": "retryable and final refusals",
        "checksum": "true: the checksum is wrong; false: the write fails",
        "kind": "a stray receipt, and a stray ChecksumError",
        "sequence": "those of two messages, and one that no message has",
        "message": "the messages of two entries, or of one batch",
        "sent": "two messages: the smallest number that can be reordered",
        "entries": "two entries: with deduplication there are no more",
    },
)

STRAY = Scope(
    actions=(
        *(a for a in HANDLER_ACTIONS if a not in ("late_success", "refuse")),
        *PRODUCER_ACTIONS,
        "stray_reply",
        "time_out",
    ),
    settings={"deduplication": False},
    domains=SMOKE.domains,
    bounds={"sent": 2, "entries": 3},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "the producer, with stray receipts and errors; refused requests are in the scope smoke",
        "deduplication": "disabled: a message that is sent again is stored again",
        "entries": "three: one message can be stored twice",
    },
)

CONSUMERS = Scope(
    actions=(*HANDLER_ACTIONS, *CONSUMER_ACTIONS, "acknowledge_cumulative", "negative_acknowledge", "end_of_topic"),
    settings={"stored": 2},
    domains=dict(SMOKE.domains) | {"handler": ("consumer",)},
    bounds={},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "the consumer and its broker; corrupt entries are in the scope batches",
        "stored": "two entries: the smallest number that can be reordered; no entry is added later",
        "handler": "the consumer; the producer shares only the log and the connection with it",
    },
)

BATCHES = CONSUMERS.changed(
    actions=(
        *(a for a in HANDLER_ACTIONS if a not in ("late_success", "refuse", "fail_redirect")),
        *CONSUMER_ACTIONS,
        "acknowledge_cumulative",
        "negative_acknowledge",
        "dispatch_corrupt",
        "acknowledge_elsewhere",
    ),
    settings={"stored": 1, "batch_size": 2, "receiver_queue_size": 3},
    domains={"redirect": (False,)},
    reasons={
        "actions": "the consumer with batches, also corrupt ones; refusals and redirects are in the scope consumers",
        "stored": "one entry; permits of several batches are left to fuzzing",
        "batch_size": "two messages: an entry can be partly acknowledged",
        "receiver_queue_size": "three messages: a batch and a half",
        "redirect": "no URL: redirects are in the scope consumers",
    },
)

SHARED = Scope(
    actions=tuple(a for a in BATCHES.actions if a != "acknowledge_cumulative"),
    settings=dict(BATCHES.settings) | {"shared": True, "index_acks": True},
    domains=BATCHES.domains,
    bounds={},
    reasons=dict(BATCHES.reasons)
    | {
        "actions": "those of the scope batches, except cumulative acks, which a Shared subscription does not have",
        "shared": "Shared: single entries are redelivered",
        "index_acks": "enabled: messages of a batch are acknowledged one by one",
    },
)

#: Sessions from the first request to the last ack, with the weakly fair actions of the liveness properties.
BOTH = Scope(
    actions=(*FAIR, "send", "ignore_sends", "close", "fail_redirect", "end_of_topic"),
    settings={"receiver_queue_size": 1},
    domains=dict(SMOKE.domains) | {"handler": ("producer", "consumer"), "message": (0,)},
    bounds={"sent": 1, "entries": 1},
    reasons=dict(SMOKE.reasons)
    | {
        "actions": "both handlers with CLOSE; broken connections, refusals and errors are in the scopes of one handler",
        "receiver_queue_size": "one: the smallest queue",
        "handler": "both handlers at once",
        "message": "the message of the only entry",
        "sent": "one message from the producer to its ack",
        "entries": "one entry: excludes a message that is stored twice",
    },
)


# ---- the TLA+ twin -------------------------------------------------------------------------------------


def from_tla(cfg: Config, variables: Mapping[str, Any]) -> State:
    """Returns the state for the twin's variables. The twin's sets of messages are sorted tuples of the model."""
    found: State = as_model(State, {field: variables[field] for field in State._fields})
    return found


# ---- corrupted states that `check` must report ---------------------------------------------------------


def lost_permit(_cfg: Config, s: State) -> State | None:
    """The broker has one permit too few for the connected consumer."""
    link = s.consumer.link
    if link.phase != "ready" or link.session != "open":
        return None
    return s._replace(consumer=s.consumer._replace(permits=s.consumer.permits - 1))


def sequence_ids_descend(_cfg: Config, s: State) -> State | None:
    """The pending messages are in reverse order."""
    if len(s.producer.pending) < 2:
        return None
    return s._replace(producer=s.producer._replace(pending=s.producer.pending[::-1]))


def next_sequence_id_is_used(_cfg: Config, s: State) -> State | None:
    """The next sequence id is that of a pending message."""
    if not s.producer.pending:
        return None
    return s._replace(producer=s.producer._replace(next_sequence_id=s.producer.pending[-1]))


def acknowledged_beyond_log(_cfg: Config, s: State) -> State:
    """A message that is not in the log is acknowledged."""
    return s._replace(acked=tuple(range(64 * len(s.log) + 1)))  # a batch has at most 64 messages


subject = Subject(
    client_session,
    ClientSession,
    invariants,
    domains={
        "handler": ("producer", "consumer"),
        "redirect": (False, True),
        "retryable": (True, True, True, False),
        "checksum": (False, True),
        "kind": ("receipt", "checksum_error"),
        "sequence": sequences,
        "message": messages,
    },
    settings={
        "deduplication": (False, True),
        "stored": (0, 2, 1),
        "initial_sequence_id": (-1, -1, -1, 0, 2),
        "max_pending_messages": (3, 1, 5),
        "receiver_queue_size": (2, 1, 3, 5),
        "batch_size": (1, 1, 2, 3),
        "index_acks": (False, True),
        "shared": (False, True),
    },
    weights={
        "connect": 6,
        "accept": 5,
        "handle": 12,
        "refuse": 0.3,
        "close": 0.5,
        "finish_transfer": 2,
        "fail_redirect": 0.5,
        "late_success": 1,
        "break_connection": 0.5,
        "end_of_topic": 0.2,
        "send": 3,
        "store": 4,
        "send_error": 0.3,
        "ignore_sends": 0.3,
        "time_out": 0.3,
        "stray_reply": 0.3,
        "dispatch": 6,
        "dispatch_corrupt": 0.3,
        "receive": 5,
        "acknowledge": 3,
        "acknowledge_cumulative": 1,
        "negative_acknowledge": 0.7,
        "acknowledge_elsewhere": 0.5,
        "flush": 2,
    },
    situation=situation,
    in_situation={
        "failed": {"refuse": 0},
        "new": {"send": 0.1, "receive": 0, "flush": 0, "acknowledge_elsewhere": 2},
        "waiting": {"close": 3, "late_success": 3},
        "grouped": {"close": 3, "negative_acknowledge": 3},
    },
    swarms={
        "producer": {"dispatch": 0, "receive": 0, "send": 3, "acknowledge": 0, "flush": 0, "acknowledge_cumulative": 0},
        "consumer": {"send": 0.3, "store": 0.5, "time_out": 0, "stray_reply": 0},
        "steady": {"refuse": 0, "close": 0.1, "break_connection": 0.1, "ignore_sends": 0.2, "send_error": 0.1},
        "breaks": {"break_connection": 8, "close": 3},
        "closes": {"close": 10, "late_success": 4, "fail_redirect": 4, "finish_transfer": 2},
        "errors": {"send_error": 6, "stray_reply": 6, "time_out": 4, "send": 2},
        "slow application": {"receive": 0.2, "acknowledge": 0.3, "dispatch": 2},
        "slow flushes": {"flush": 0.1, "negative_acknowledge": 3, "acknowledge": 2},
    },
    abstract=coverage_key,
    measures={"entries": entries, "sent": sent},
    scopes={
        "smoke": SMOKE,
        "stray": STRAY,
        "consumers": CONSUMERS,
        "batches": BATCHES,
        "shared": SHARED,
        "both": BOTH,
    },
    corrupt={
        "lost_permit": lost_permit,
        "sequence_ids_descend": sequence_ids_descend,
        "next_sequence_id_is_used": next_sequence_id_is_used,
        "acknowledged_beyond_log": acknowledged_beyond_log,
    },
    largest={"stored": 1_000, "batch_size": 64},
    tla="ClientSession",
    from_tla=from_tla,
    steps=192,
)
