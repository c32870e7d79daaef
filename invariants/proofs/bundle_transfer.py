"""Proofs that fencing gives each topic one accepted writer, for any number of brokers, topics, clients and steps.

Every action is translated from the model's source. What brokers believe is arbitrary: the proofs assume nothing
about the owner of the bundle, the registered brokers, or the delay of a view. They cover every value of the rules in
`Config`.

A topic object is a handle of the topic's ledger. `writable` says whether the bookies confirm the adds of the handle.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.symbolic import (
    INDEX,
    ITERATED,
    Maybe,
    Measures,
    Path,
    Reader,
    Rec,
    Seq,
    as_term,
    equal,
    lifted,
    unknown,
)
from model.bundle_transfer import channel, state, topics
from model.bundle_transfer.machine import bundle_transfer
from model.bundle_transfer.state import Add, Client, Command, Config, State, Topic
from model.machine import Failed, Refused

TOPICS = "model.bundle_transfer.topics"
#: Functions that may return any value: entries that recovery may find, and conditions over all topics.
HAVOC = (topics.unconfirmed_in, channel.is_prepared, channel.is_closing, channel.waits_at)
#: The element type of local lists.
LISTS: dict[str, tuple[Any, Measures]] = {"commands": (Command, {})}


class Bundle:
    """Any state with any number of brokers, topics and clients.

    `topic`, `broker` and `client` are arguments of the action. `some_topic` is any topic, `p` and `q` are any brokers,
    and `e` is any index of a log.
    """

    def __init__(self, proof: Proof) -> None:
        self.proof, self.fresh = proof, itertools.count()
        self.cfg, s = unknown(Config, "cfg"), unknown(State, "s", nested=True)
        self.brokers = s.fields["brokers"].length
        self.topic, self.broker, self.client = z3.Int("topic"), z3.Int("broker"), z3.Int("client")
        self.some_topic, self.p, self.q, self.e = z3.Int("some topic"), z3.Int("p"), z3.Int("q"), z3.Int("e")
        self.s: Rec = s.replace({"topics": self.with_slots(s.fields["topics"])})
        self.known = [self.brokers >= 1, s.fields["records"].length >= 1, *self.inside(self.topic, "topics")]
        for each in (self.broker, z3.Int("dst"), z3.Int("owner"), self.p, self.q):
            self.known += self.is_broker(each)
        self.known += [z3.Int("kept") >= 0, *self.inside(self.some_topic, "topics")]
        newest = s.fields["records"].length - 1
        for index in (newest, self.view(self.broker), self.view(self.peer.value)):
            self.known += self.names_brokers(self.s, index)
        self.known += [self.has_view(self.s, each) for each in (self.broker, self.p, self.peer.value)]
        self.known += [z3.Implies(self.peer.defined, z3.And(*self.is_broker(self.peer.value)))]

    def with_slots(self, of: Seq) -> Seq:
        """Returns the topics, each with a slot for every broker."""

        def at(index: Any) -> Rec:
            t: Rec = of.at(index)
            return t.replace({"objects": dataclasses.replace(t.fields["objects"], length=self.brokers)})

        return dataclasses.replace(of, at=at)

    @property
    def peer(self) -> Maybe:
        """The peer of the client that acts."""
        found: Maybe = self.s.fields["topics"].at(self.topic).fields["clients"].at(self.client).fields["peer"]
        return found

    def inside(self, index: Any, field: str) -> list[Any]:
        """Returns the conditions that a number is an index of a sequence of the state."""
        return [index >= 0, index < self.s.fields[field].length]

    def is_broker(self, broker: Any) -> list[Any]:
        """Returns the conditions that a number is that of a broker."""
        return [broker >= 0, broker < self.brokers]

    def view(self, broker: Any) -> Any:
        """Returns the index of the last record that a broker applied."""
        return self.s.fields["brokers"].at(broker).fields["view"]

    def has_view(self, s: Rec, broker: Any) -> Any:
        """Returns the condition that a broker's view is the index of a record."""
        view = s.fields["brokers"].at(broker).fields["view"]
        return z3.And(view >= 0, view < s.fields["records"].length)

    def names_brokers(self, s: Rec, index: Any) -> list[Any]:
        """Returns the conditions that a record's destination and source, if any, are brokers."""
        r = s.fields["records"].at(index).fields
        source = z3.Implies(r["source"].defined, z3.And(*self.is_broker(r["source"].value)))
        return [*self.is_broker(r["dst"]), source]

    def command_facts(self) -> list[Any]:
        """Returns the conditions on the oldest command to the client.

        The command is of a known kind, and a close names a broker or none.
        """
        command = self.s.fields["topics"].at(self.topic).fields["clients"].at(self.client).fields["down"].at(0)
        kind, value = command.fields["kind"], command.fields["value"]
        kinds = ("success", "receipt", "message", "close", "prepare")
        is_close = z3.And(as_term(equal(kind, "close")), value.defined)
        known = z3.Or(*[as_term(equal(kind, each)) for each in kinds])
        return [known, z3.Implies(is_close, z3.And(*self.is_broker(value.value)))]

    def add_facts(self) -> list[Any]:
        """Returns the conditions that the producer of the broker's oldest add in flight is a client of the topic."""
        t = self.s.fields["topics"].at(self.topic).fields
        producer = t["objects"].at(self.broker).value.fields["adds"].at(0).fields["entry"].fields["producer"]
        return [producer >= 0, producer < t["clients"].length]

    def after_commands(self, t: Rec) -> Rec:
        """Returns a topic after commands to its clients: clients and adds in flight are arbitrary.

        `show_commands` proves that nothing else changes.
        """
        name, objects = f"commands#{next(self.fresh)}", t.fields["objects"]

        def at(index: Any) -> Maybe:
            o = objects.at(index)
            adds = unknown(tuple[Add, ...], f"{name}.adds", as_term(index), nested=True)
            return Maybe(o.defined, o.value.replace({"adds": adds}))

        clients = unknown(tuple[Client, ...], f"{name}.clients", nested=True)
        clients = dataclasses.replace(clients, length=t.fields["clients"].length)
        return t.replace({"objects": dataclasses.replace(objects, at=at), "clients": clients})

    def steps(self, *names: str) -> Iterator[tuple[str, Path, Rec]]:
        """Yields each path through these actions (default: all) that changes the state: action, path, state after."""
        stubs = {state.with_command_to_attached: lambda t, *_: self.after_commands(t)}
        facts = {"receive": self.command_facts(), "confirm": self.add_facts()}
        for name in names or bundle_transfer.actions:
            action = bundle_transfer.actions[name]
            known = [*self.known, *facts.get(name, [])]
            reader = Reader(known, havoc=HAVOC, stubs=stubs, lists=LISTS)
            arguments = [z3.Int(param) for param in action.names]
            for path in reader.paths(action.run, self.cfg, self.s, *arguments):
                if path.value[0] is not self.s:
                    yield name, path, path.value[0]

    def handle(self, s: Rec, broker: Any) -> Maybe:
        """Returns the topic object that a broker has of the arbitrary topic `some_topic`."""
        found: Maybe = s.fields["topics"].at(self.some_topic).fields["objects"].at(broker)
        return found

    def writes(self, s: Rec, broker: Any) -> Any:
        """Returns whether the bookies confirm a broker's adds to `some_topic`."""
        o = self.handle(s, broker)
        return z3.And(o.defined, o.value.fields["writable"])

    def log(self, s: Rec) -> Seq:
        """Returns the log of `some_topic`."""
        found: Seq = s.fields["topics"].at(self.some_topic).fields["log"]
        return found

    def show_commands(self) -> None:
        """Proves that one iteration of `with_command_to_attached` changes no ledger, and of a handle only the adds."""
        before = self.s.fields["topics"].at(self.some_topic)
        over: Seq = dataclasses.replace(before.fields["clients"])
        loop = Reader([self.brokers >= 1, *self.is_broker(self.broker)]).loop(state.with_command_to_attached)
        names = {"t": before, "broker": self.broker, "command": unknown(Command, "command")}
        # no argument was assigned (`UNASSIGNED_PARAMETERS`)
        head = {**names, ITERATED: over, INDEX: z3.Int("at"), "": frozenset(names)}
        inside = [z3.Int("at") >= 0, z3.Int("at") < over.length, *self.is_broker(self.p)]
        for path in loop.iteration(head, inside):
            after = path.names["t"]
            was, now = before.fields["objects"].at(self.p), after.fields["objects"].at(self.p)
            same = [now.defined == was.defined, after.fields["objects"].length == self.brokers]
            for field in ("phase", "writable", "cursor", "older"):
                same.append(as_term(equal(now.value.fields[field], was.value.fields[field])))
            kept = z3.And(same[0], same[1], z3.Implies(was.defined, z3.And(*same[2:])))
            for field in ("log", "abandoned"):
                old, new = before.fields[field], after.fields[field]
                element = z3.Implies(self.in_log(old), as_term(equal(new.at(self.e), old.at(self.e))))
                kept = z3.And(kept, new.length == old.length, element)
            kept = z3.And(kept, after.fields["clients"].length == over.length)
            self.proof.possible("a command to a client", path.when)
            self.proof.show("commands leave the ledger alone", kept, path.when, direct=True)
        for path in loop.end(head):
            self.proof.need("the loop's topic is the result", path.value is before)

    def in_log(self, of: Seq) -> Any:
        """Returns the condition that the arbitrary number `e` is an index of a sequence."""
        return z3.And(self.e >= 0, self.e < of.length)


# ---- random runs ----------------------------------------------------------------------------------------


def random_steps(count: int) -> Iterator[tuple[str, dict[str, int], State, State, Any]]:
    """Yields the steps of random runs that are not refused, under three profiles; always the same sequence.

    A step is action, arguments, state before, state after, outcome.
    """
    draw = random.Random(307)  # noqa: S311
    profiles = [bundle_transfer.profiles[name].config for name in ("reference", "pulsar-2025-04", "V1b")]
    numbers = {"topic": 2, "kept": 3, "client": 3}
    for number in range(count):
        cfg = profiles[number % 3]._replace(topics=2, brokers=draw.choice((2, 3, 7)))
        s = bundle_transfer.start(cfg)
        for _ in range(400):
            name, action = draw.choice(list(bundle_transfer.actions.items()))
            arguments = [draw.randrange(numbers.get(param, cfg.brokers)) for param in action.names]
            after, outcome = action.run(cfg, s, *arguments)
            if not isinstance(outcome, Refused):
                yield name, dict(zip(action.names, arguments, strict=True)), s, after, outcome
                s = after


def writers(t: Topic) -> list[int]:
    """Returns the brokers that have an open ledger of the topic that no other broker has fenced."""
    return [broker for broker, o in enumerate(t.objects) if o is not None and o.writable]


# ---- the claims -----------------------------------------------------------------------------------------


@claim(
    "opening-a-topic-fences-other-handles",
    "z3",
    "For any number of brokers, topics and clients, and any rules: a broker that opens a topic can write to it, and no "
    "other broker can. Every confirmed entry stays in the log. Recovery keeps or drops every unconfirmed entry whose "
    "writer is gone.",
    Control(
        "the opened topic cannot write",
        TOPICS,
        'opened = o._replace(phase="open", writable=True, cursor=t.cursor)',
        'opened = o._replace(phase="open", cursor=t.cursor)',
        refutes="the opener writes",
    ),
)
def opening_a_topic_fences_other_handles() -> Answer:
    """`ManagedLedgerImpl.initialize` opens the last ledger with recovery, which fences it."""
    proof = Proof()
    it = Bundle(proof)
    old, was_writable = it.log(it.s), it.handle(it.s, it.broker).value.fields["writable"]
    for _, path, after in it.steps("open_topic"):
        is_open = not isinstance(path.value[1], Rec)  # the only outcome with fields is `Failed`: the load is given up
        known = [*path.when, it.some_topic == it.topic, z3.Not(was_writable)]
        writes, is_mine = it.writes(after, it.p), it.p == it.broker
        abandoned = after.fields["topics"].at(it.topic).fields["abandoned"]
        proof.possible("an opened topic", known)
        kept = z3.And(it.log(after).length >= old.length, as_term(equal(it.log(after).at(it.e), old.at(it.e))))
        proof.show("confirmed entries are kept", kept, [*known, it.in_log(old)], direct=True)
        if is_open:
            proof.show("the opener writes", z3.Implies(is_mine, writes), known, direct=True)
            proof.show("no other broker writes", z3.Implies(writes, is_mine), known, direct=True)
            proof.show("no abandoned entry is left", abandoned.length == 0, known, direct=True)
        else:
            proof.show("a load that is given up opens nothing", z3.Implies(is_mine, z3.Not(writes)), known, direct=True)
    for name, arguments, _, s, outcome in random_steps(24):
        is_open = name == "open_topic" and not isinstance(outcome, Failed)
        only = not is_open or writers(s.topics[arguments["topic"]]) == [arguments["broker"]]
        proof.run(f"{name}({arguments})", only, s)
    return proof.answer()


@claim(
    "topic-has-one-accepted-writer",
    "z3",
    "For any number of brokers, topics, clients and steps, any rules, and whatever each broker believes about the "
    "owner: for each topic, at most one broker has an open ledger that no other broker has fenced. It is also proved "
    "that every topic keeps one slot for each broker, that a view is the index of a record, and that records name "
    "brokers. It is assumed, and explored in scopes, that a client's peer and the address of a redirect are brokers, "
    "and that the producer of an add is a client.",
    Control(
        "opening a topic does not fence the handles of other brokers",
        TOPICS,
        "each if each is None else each._replace(writable=False) for each",
        "each for each",
        refutes="one writer",
    ),
    proves=("topic_has_at_most_one_writer",),
)
def topic_has_one_accepted_writer() -> Answer:
    """Inductive invariant of all actions: BookKeeper fences the last ledger when another broker opens the topic."""
    proof = Proof()
    it = Bundle(proof)
    it.show_commands()
    apart, index = it.p != it.q, z3.Int("index")
    one = z3.Not(z3.And(it.writes(it.s, it.p), it.writes(it.s, it.q)))
    for _, path, after in it.steps():
        records, known = after.fields["records"], [*path.when, apart]
        proof.possible("a step", [*known, one])
        still = z3.Not(z3.And(it.writes(after, it.p), it.writes(after, it.q)))
        proof.show("one writer", still, [*known, one], direct=True)
        slots = after.fields["topics"].at(it.some_topic).fields["objects"].length
        same = z3.And(after.fields["brokers"].length == it.brokers, slots == it.brokers)
        proof.show("a slot for each broker", same, known, direct=True)
        proof.show("views are records", it.has_view(after, it.p), known, direct=True)
        new = z3.Implies(index == records.length - 1, z3.And(*it.names_brokers(after, index)))
        proof.show("records name brokers", new, known, direct=True)
    for brokers in range(1, 40):
        first = bundle_transfer.start(Config()._replace(brokers=brokers, topics=brokers))
        proof.run(f"{brokers} brokers at the start", all(writers(t) == [0] for t in first.topics), first)
    for name, arguments, _, s, _ in random_steps(24):
        proof.run(f"{name}({arguments})", all(len(writers(t)) <= 1 for t in s.topics), s)
    return proof.answer()


@claim(
    "fenced-handle-never-stores",
    "z3",
    "For any number of brokers, topics, clients and steps, and any rules: a fenced handle stays fenced. Only a "
    "confirmed add of a handle that is not fenced, and the recovery when a topic is opened, add to the log. Nothing is "
    "removed from the log. If recovery seals the ledger, an add of a fenced handle gets no receipt.",
    Control(
        "an add is stored after the fence",
        TOPICS,
        "log = (*t.log, entry) if o.writable else t.log",
        "log = (*t.log, entry)",
        refutes="only a writer stores",
    ),
)
def fenced_handle_never_stores() -> Answer:
    """BookKeeper: the bookies of a fenced ledger reject adds; recovery decides once what the ledger contains."""
    proof = Proof()
    it = Bundle(proof)
    it.show_commands()
    was, old = it.handle(it.s, it.p), it.log(it.s)
    is_loading = as_term(equal(was.value.fields["phase"], "loading"))
    fenced = z3.And(was.defined, z3.Not(was.value.fields["writable"]), z3.Not(is_loading))
    mine = [it.some_topic == it.topic, it.p == it.broker]
    for name, path, after in it.steps():
        new = it.log(after)
        proof.possible("a step after the fence", [*path.when, fenced])
        proof.show("a fenced handle stays fenced", z3.Not(it.writes(after, it.p)), [*path.when, fenced], direct=True)
        kept = z3.And(new.length >= old.length, as_term(equal(new.at(it.e), old.at(it.e))))
        proof.show("the log is kept", kept, [*path.when, it.in_log(old)], direct=True)
        if name != "open_topic":
            stores = z3.And(name == "confirm", it.some_topic == it.topic, it.writes(it.s, it.broker))
            same = z3.Or(new.length == old.length, z3.And(stores, new.length == old.length + 1))
            proof.show("only a writer stores", same, path.when, direct=True)
        outcome = path.value[1]
        if name == "confirm" and not (isinstance(outcome, Rec) and outcome.kind in (Failed, Refused)):
            sealed = [*path.when, *mine, as_term(lifted(it.cfg.fields["recovery_seals_ledger"]))]
            proof.show("a fenced add gets no receipt", it.writes(it.s, it.p), sealed, direct=True)
    for name, arguments, before, s, _ in random_steps(24):
        for number, (t, changed) in enumerate(zip(before.topics, s.topics, strict=True)):
            is_mine = arguments.get("topic") == number
            stores = name == "open_topic" or (name == "confirm" and writers(t) == [arguments["broker"]])
            grows = changed.log[: len(t.log)] == t.log and (changed.log == t.log or (is_mine and stores))
            proof.run(f"{name}({arguments})", grows, (t.log, changed.log))
    return proof.answer()


claims = (opening_a_topic_fences_other_handles, topic_has_one_accepted_writer, fenced_handle_never_stores)
