"""Proofs about permits and sequence ids, for any number of messages, entries, replies and steps.

Every action is translated from the model's source. The topic, the acknowledged messages, the entry that the broker
delivers next, and its unacknowledged messages are arbitrary.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.symbolic import Path, Reader, Rec, Seq, as_term, equal, lifted, unknown
from model.client_session import consumer, state
from model.client_session.machine import client_session
from model.client_session.state import Config, Reply, State
from model.machine import Refused

CONSUMER, PRODUCER = "model.client_session.consumer", "model.client_session.producer"
#: Functions that may return any value.
HAVOC = (state.merged, state.unacked, state.last_sequence_id, consumer.first_unacked, consumer.covers)
#: The kinds of replies that a handler gets.
KINDS = {
    "producer": ("success", "refused", "close", "receipt", "send_error", "checksum_error"),
    "consumer": ("success", "refused", "close", "message", "corrupt"),
}
#: the number of messages in the replies before an index
BEFORE = z3.Function("messages before", z3.IntSort(), z3.IntSort())


def size(value: Any) -> Any:
    """Returns the length of a sequence."""
    return len(value) if isinstance(value, tuple) else value.length


def message_count(reply: Rec) -> Any:
    """Returns the number of messages of a reply."""
    return as_term(size(reply.fields["messages"]))


def is_whole(s: Rec) -> Any:
    """Returns the condition that the pending queue is not damaged. Under the reference, no ChecksumError damages it."""
    return z3.Not(as_term(lifted(s.fields["producer"].fields["damaged"])))


class Session:
    """Any state under any settings and the reference's rules."""

    def __init__(self) -> None:
        self.cfg: Rec = unknown(Config, "cfg")
        self.cfg = self.cfg.replace({rule: lifted(getattr(Config(), rule)) for rule in client_session.rules})
        self.s: Rec = unknown(State, "s", nested=True)
        at = {"messages": lambda index: BEFORE(as_term(index))}
        self.down = Seq(Reply, z3.Int("down.length"), self.reply, at, {"messages": message_count})
        c = self.s.fields["consumer"]
        link = c.fields["link"].replace({"down": self.down})
        self.s = self.s.replace({"consumer": c.replace({"link": link})})
        self.known = [self.cfg.fields["batch_size"] >= 1, self.cfg.fields["receiver_queue_size"] >= 1]
        self.known += [is_whole(self.s), c.fields["queue"].length >= 0, self.down.length >= 0]
        self.known.append(self.s.fields["producer"].fields["pending"].length >= 0)

    @staticmethod
    def reply(index: Any) -> Rec:
        """Returns the consumer's reply at an index."""
        found: Rec = unknown(Reply, "down", as_term(index), nested=True)
        return found

    def steps(self, stubs: Any = None) -> Iterator[tuple[str, str, Path]]:
        """Yields each path through the actions that changes the state: action, handler (or ""), path."""
        for name, action in client_session.actions.items():
            takes_handler = "handler" in action.names
            for handler in KINDS if takes_handler else ("",):
                arguments = [
                    lifted(handler) if p.name == "handler" else unknown(p.annotation, p.name) for p in action.params
                ]
                known = [*self.known, *(self.replied(handler) if name == "handle" else [])]
                for path in Reader(known, havoc=HAVOC, stubs=stubs or {}).paths(
                    action.run, self.cfg, self.s, *arguments
                ):
                    if path.value[0] is not self.s:
                        yield name, handler, path

    def replied(self, handler: str) -> list[Any]:
        """Returns the assumptions about the oldest reply in flight to a handler.

        Its kind is one that the handler gets. Success answers the handler's request, and messages come after success.
        """
        link = self.s.fields[handler].fields["link"].fields
        kind = link["down"].at(0).fields["kind"]
        known = z3.Or(*[as_term(equal(kind, each)) for each in KINDS[handler]])
        waits, requested = as_term(equal(link["phase"], "waiting")), as_term(equal(link["session"], "requested"))
        is_message = z3.Or(*[as_term(equal(kind, each)) for each in ("message", "corrupt")])
        answers = z3.Implies(as_term(equal(kind, "success")), z3.And(waits, z3.Not(requested)))
        return [known, answers, z3.Implies(is_message, as_term(equal(link["phase"], "ready")))]


def random_states(count: int) -> Iterator[State]:
    """Yields states of random runs under the reference; always the same sequence."""
    draw = random.Random(307)  # noqa: S311
    values: dict[str, Callable[[], Any]] = {
        "handler": lambda: draw.choice(("producer", "consumer")),
        "kind": lambda: draw.choice(("receipt", "checksum_error")),
        "sequence": lambda: draw.randrange(4),
        "message": lambda: draw.randrange(6),
    }
    for _ in range(count):
        cfg = Config(stored=draw.randrange(3), batch_size=draw.randrange(1, 4), shared=draw.random() < 0.5)
        s = client_session.start(cfg)
        for _ in range(150):
            action = draw.choice(list(client_session.actions.values()))
            arguments = [values.get(name, lambda: draw.random() < 0.5)() for name in action.names]
            s, outcome = action.run(cfg, s, *arguments)
            if not isinstance(outcome, Refused):
                yield s


# ---- permits -------------------------------------------------------------------------------------------


def messages_in_flight(s: Rec) -> Any:
    """Returns the number of messages in flight to the consumer."""
    down = s.fields["consumer"].fields["link"].fields["down"]
    return z3.Sum([z3.IntVal(0), *map(message_count, down)]) if isinstance(down, tuple) else down.total("messages")


def permits(s: Rec) -> Any:
    """Returns the consumer's permits, which are in four places.

    They are at the broker, with messages in flight, with messages in the receiver queue, or to be returned.
    """
    c = s.fields["consumer"].fields
    return c["permits"] + messages_in_flight(s) + size(c["queue"]) + c["available_permits"]


def conserves(cfg: Rec, s: Rec) -> Any:
    """Returns the invariant: a ready consumer with a session has all its permits.

    A consumer whose request is not answered is not ready. A consumer that is not ready has no permits at the broker and
    no messages in flight. While a consumer waits for an answer to its request, it has no messages in its queue and no
    permits to return.
    """
    c = s.fields["consumer"].fields
    link = c["link"].fields
    ready, waiting = (as_term(equal(link["phase"], phase)) for phase in ("ready", "waiting"))
    is_open, requested = (as_term(equal(link["session"], session)) for session in ("open", "requested"))
    return z3.And(
        z3.Implies(requested, z3.Not(ready)),
        z3.Implies(z3.And(ready, is_open), permits(s) == cfg.fields["receiver_queue_size"]),
        z3.Implies(z3.Not(ready), z3.And(c["permits"] == 0, messages_in_flight(s) == 0)),
        z3.Implies(waiting, z3.And(as_term(size(c["queue"])) == 0, c["available_permits"] == 0)),
    )


def emptied(cfg: Rec, s: Rec) -> Any:
    """Stub of the model's `emptied`: no message is in the receiver queue or in flight, and all permits are returned.

    `show_emptied` proves its facts.
    """
    c = s.fields["consumer"]
    kept = Seq(
        Reply, z3.Int("kept.length"), Session.reply, {"messages": lambda _: z3.IntVal(0)}, {"messages": message_count}
    )
    link = c.fields["link"].replace({"down": kept})
    returned = c.fields["queue"].length + messages_in_flight(s)
    empty = s.replace({"consumer": c.replace({"link": link, "queue": Seq.empty(int)})})
    return Reader().call(consumer.with_more_permits, cfg, empty, returned)


def show_emptied(proof: Proof, it: Session) -> None:
    """Proves the facts of the stub `emptied`, by induction over the replies."""
    reader, n = Reader(it.known), z3.Int("n")
    for path in reader.paths(consumer.emptied, it.cfg, it.s):
        whole = reader.sums[0]
        kept = path.value.fields["consumer"].fields["link"].fields["down"].origin.recursive_sum(message_count)
        kind = it.reply(n).fields["kind"]
        has_messages = z3.Or(as_term(equal(kind, "message")), as_term(equal(kind, "corrupt")))
        only = z3.Implies(z3.Not(has_messages), message_count(it.reply(n)) == 0)
        inside = [n >= 0, n < it.down.length, *facts(it, n), *whole.facts(n), *kept.facts(n), only]

        def adds_up(n: Any, whole: Any = whole, kept: Any = kept) -> Any:
            return z3.And(whole.before(n) == BEFORE(n), kept.before(n) == 0)

        proof.possible("a reply", [*path.when, *inside])
        first = [each(z3.IntVal(0)) == 0 for each in (BEFORE, whole.before, kept.before)]
        proof.lemma("no reply yet", adds_up(z3.IntVal(0)), first)
        proof.show("one more reply", adds_up(n + 1), [*path.when, *inside, adds_up(n)])
        c = path.value.fields["consumer"].fields
        left = c["permits"] + kept.whole() + size(c["queue"]) + c["available_permits"]
        before = it.s.fields["consumer"].fields["link"].fields
        is_open = as_term(equal(before["session"], "open"))
        sums = [adds_up(it.down.length), BEFORE(z3.IntVal(0)) == 0]
        proof.show("all permits are returned", left == permits(it.s), [*path.when, *sums, is_open], direct=True)


def facts(it: Session, index: Any) -> list[Any]:
    """Returns the definition of the prefix sum of messages at an index, and that the sums do not decrease."""
    more = BEFORE(index + 1) == BEFORE(index) + message_count(it.reply(index))
    rest = z3.Implies(it.down.length > index, BEFORE(it.down.length) >= BEFORE(index + 1))
    return [BEFORE(z3.IntVal(0)) == 0, it.down.length >= 0, message_count(it.reply(index)) >= 0, more, rest]


@claim(
    "permits-are-conserved",
    "z3",
    "For any receiver queue, batch size, subscription type and number of steps: while a consumer is connected, the "
    "permits at the broker, the messages in flight, the receiver queue and the permits to return add up to "
    "`receiverQueueSize`. It is assumed, and explored in scopes, which replies a handler gets in which phase, and that "
    "only deliveries, intact or corrupt, contain messages.",
    Control(
        "a message that is dropped because its ack is grouped returns no permit",
        CONSUMER,
        "    return with_more_permits(cfg, s, dropped),",
        "    return with_more_permits(cfg, s, 0),",
        refutes="permits are conserved",
    ),
    proves=("permits_are_conserved",),
)
def permits_are_conserved() -> Answer:
    """Inductive invariant of all actions: without connection, the broker has no permits and no message is in flight."""
    proof, it = Proof(), Session()
    show_emptied(proof, it)
    before, first = conserves(it.cfg, it.s), facts(it, z3.IntVal(0))
    kind = it.reply(z3.IntVal(0)).fields["kind"]
    has_messages = z3.Or(as_term(equal(kind, "message")), as_term(equal(kind, "corrupt")))
    only = z3.Implies(z3.And(it.down.length > 0, z3.Not(has_messages)), message_count(it.reply(z3.IntVal(0))) == 0)
    for _, _, path in it.steps({consumer.emptied: emptied}):
        given = [*path.when, *first, only, before]
        proof.possible("a step", given)
        proof.show("the pending queue is not damaged", is_whole(path.value[0]), path.when, direct=True)
        proof.show("permits are conserved", conserves(it.cfg, path.value[0]), given, direct=True)
    first_state = client_session.start(Config()).consumer
    is_idle = first_state.link.phase != "ready" and first_state.permits == 0 and first_state.link.down == ()
    proof.need(
        "the invariant holds at the start", is_idle and first_state.queue == () and first_state.available_permits == 0
    )
    for s in random_states(30):
        c = s.consumer
        is_connected = c.link.phase == "ready" and c.link.session == "open"
        held = c.permits + sum([len(reply.messages) for reply in c.link.down]) + len(c.queue) + c.available_permits
        proof.run("a random run", not is_connected or held == Config().receiver_queue_size, s)
    return proof.answer()


# ---- sequence ids --------------------------------------------------------------------------------------


def ascends(s: Rec, p: Any, q: Any) -> Any:
    """Returns the invariant for two indexes p and q of the pending queue.

    Pending sequence ids ascend, and are below the next id. Before the first success no message is pending.
    """
    producer = s.fields["producer"].fields
    pending = producer["pending"]
    created = as_term(producer["link"].fields["created"])
    if isinstance(pending, tuple):
        return z3.BoolVal(not pending)
    inside = [z3.And(each >= 0, each < pending.length) for each in (p, q)]
    return z3.And(
        z3.Implies(z3.And(*inside, p < q), as_term(pending.at(p)) < as_term(pending.at(q))),
        z3.Implies(inside[0], as_term(pending.at(p)) < producer["next_sequence_id"]),
        z3.Implies(z3.Not(created), pending.length == 0),
    )


@claim(
    "pending-sequence-ids-ascend",
    "z3",
    "For any settings, number of messages and number of steps: the sequence ids of pending messages ascend, and the "
    "next message gets a larger one. So deduplication treats no pending message as a duplicate of another. It is "
    "assumed, and explored in scopes, which replies a handler gets, and that success only answers a request.",
    Control(
        "every reconnection starts the sequence ids again",
        PRODUCER,
        "elif not is_reconnection or (cfg.reconnection_restarts_sequence_ids and p.published == -1 and not is_set):",
        "elif not is_reconnection or (p.published == -1 and not is_set):",
        refutes="sequence ids ascend",
    ),
    proves=("pending_sequence_ids_ascend",),
)
def pending_sequence_ids_ascend() -> Answer:
    """Inductive invariant of all actions."""
    proof, it = Proof(), Session()
    p, q = z3.Ints("p q")
    indexes = (p, q, p + 1, q + 1)
    before = [ascends(it.s, a, b) for a in indexes for b in indexes]
    for _, _, path in it.steps({consumer.emptied: emptied}):
        given = [*path.when, *before]
        proof.possible("a step", given)
        proof.show("sequence ids ascend", ascends(path.value[0], p, q), given, direct=True)
    proof.need("no message is pending at the start", client_session.start(Config()).producer.pending == ())
    for s in random_states(30):
        ids = [*s.producer.pending, s.producer.next_sequence_id]
        proof.run("a random run", all(a < b for a, b in itertools.pairwise(ids)), s)
    return proof.answer()


claims = (permits_are_conserved, pending_sequence_ids_ascend)
