"""Proofs about the order of records, for any number of brokers, bundles and steps, and about conflict resolution.

The resolver, and the write to both storages, are translated from the model's source. The transition table and the check
of brokers may return any value, because the order of versions does not depend on them.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import z3  # type: ignore[import-untyped]

from impl import ownership_channel as implementation
from invariants.proofs.claim import Answer, Control, Proof, claim, contract
from invariants.proofs.symbolic import Reader, Rec, Seq, as_term, equal, lifted, unknown
from model.ownership_channel import records as model
from model.ownership_channel import recovery, requests
from model.ownership_channel import state as channel
from model.ownership_channel.records import MAX_VERSION, Config, Data
from model.ownership_channel.state import Broker, State

MODEL = "model.ownership_channel.records"
#: Functions that may return any value.
HAVOC = (model.follows, model.disagrees_on_brokers, model.is_owner_compared)
STORAGES: tuple[model.Storage, ...] = ("system_topic", "metadata_store")
STATES = ("Init", "Free", "Owned", "Assigning", "Releasing", "Splitting", "Deleted")


class Write:
    """A write of any record by any broker in any state, before the versions of Java's `long` are used up."""

    def __init__(self, storage: model.Storage) -> None:
        self.s: Rec = unknown(State, "s").replace(
            {"settled": Seq.unknown(Data | None, "settled"), "brokers": Seq.unknown(Broker, "brokers")}
        )
        self.bundle, self.broker, self.new = z3.Int("bundle"), z3.Int("broker"), unknown(Data, "new")
        self.old = self.s.fields["settled"].at(self.bundle)
        self.version, self.old_version = self.new.fields["version_id"], self.old.value.fields["version_id"]
        self.known = [self.bundle >= 0, self.bundle < self.s.fields["settled"].length]
        self.known += [self.broker >= 0, self.broker < self.s.fields["brokers"].length]
        self.known += [self.old_version < MAX_VERSION, self.version <= MAX_VERSION]
        cfg = lifted(Config(storage=storage))
        rejected = Reader(self.known, havoc=HAVOC).call(model.is_rejected, cfg, self.old, self.new)
        session = self.s.fields["brokers"].at(self.broker).fields["session"]
        has_session = z3.Or(storage == "system_topic", session.code != lifted("Unstable").code)
        self.accepted = z3.And(z3.Not(as_term(rejected)), has_session)
        stubs: dict[Any, Any] = {
            model.is_rejected: lambda cfg, left, right: rejected,
            channel.notified: lambda cfg, s, broker, bundle: s,
        }
        self.paths = Reader(self.known, stubs=stubs).paths(channel.put, cfg, self.s, self.broker, self.bundle, self.new)

    def after(self, path: Any, bundle: Any) -> Any:
        """Returns the stored record of a bundle after the write, on a path."""
        return path.value.fields["settled"].at(bundle)


@claim(
    "each-version-is-accepted-once",
    "z3",
    "For any number of brokers, bundles and steps, in either storage, any transition table and any writer, as long as "
    "the stored version is below the largest `long`: a write changes no other bundle's record, and an accepted record "
    "has a larger version than the one that it replaces. So all versions accepted since a bundle's record was last "
    "removed are at most the stored one, and each has one accepted writer.",
    Control(
        "a record of the same version is accepted",
        MODEL,
        "is_gap = left.version_id < right.version_id",
        "is_gap = left.version_id <= right.version_id",
        refutes="each version once",
    ),
)
def each_version_is_accepted_once() -> Answer:
    """Inductive invariant: the versions accepted since the last tombstone are at most the stored version."""
    proof, was_accepted, any_version = Proof(), z3.Function("was accepted", z3.IntSort(), z3.BoolSort()), z3.Int("v")
    for storage in STORAGES:
        it = Write(storage)
        at_most = z3.And(it.old.defined, any_version <= it.old_version)
        invariant = z3.Implies(was_accepted(any_version), at_most)
        of_new = z3.Implies(was_accepted(it.version), z3.And(it.old.defined, it.version <= it.old_version))
        other = z3.Int("other")
        apart = [other >= 0, other < it.s.fields["settled"].length, other != it.bundle]
        once = z3.Implies(it.accepted, z3.Not(was_accepted(it.version)))
        for path in it.paths:
            known = [*it.known, *path.when]
            after = it.after(path, it.bundle)
            stored = z3.If(it.accepted, it.version, it.old_version)
            accepted = z3.Or(was_accepted(any_version), z3.And(it.accepted, any_version == it.version))
            kept = z3.Implies(accepted, z3.And(after.defined, any_version <= after.value.fields["version_id"]))
            of_other = equal(it.after(path, other), it.s.fields["settled"].at(other))
            proof.possible("a write", known)
            proof.show("each version once", once, [*known, of_new], direct=True)
            proof.show(
                "the stored version", after.value.fields["version_id"] == stored, [*known, after.defined], direct=True
            )
            proof.show("the invariant is kept", kept, [*known, invariant, of_new], direct=True)
            proof.show("other bundles", as_term(of_other), [*known, *apart], direct=True)
    for left, right, storage in random_records(300):
        rejected = model.is_rejected(Config(storage=storage), left, right)
        grows = left is None or right.version_id > left.version_id
        proof.run(f"{right} over {left} in {storage}", rejected or grows, rejected)
    return proof.answer()


@claim(
    "accepted-versions-are-consecutive",
    "z3",
    "If a broker's view is at most as new as the stored record, a record that the broker writes is accepted only with "
    "the version after the stored one, although a topic also accepts versions after a gap. Handlers and overrides "
    "write the version after that of the record on which they act.",
    Control(
        "a writer skips a version",
        MODEL,
        "return VERSION_ID_INIT if data is None else data.version_id + 1",
        "return VERSION_ID_INIT if data is None else data.version_id + 2",
        refutes="the next version",
    ),
)
def accepted_versions_are_consecutive() -> Answer:
    """Reader and writer decide alike.

    Assumes, as in explored scopes, that no view is newer than the stored record, and that versions are positive.
    """
    proof = Proof()
    for storage in STORAGES:
        it = Write(storage)
        view = Seq.unknown(Data | None, "view").at(0)
        written = as_term(Reader(it.known).call(model.next_version, view))
        not_newer = z3.Implies(view.defined, z3.And(it.old.defined, view.value.fields["version_id"] <= it.old_version))
        positive = z3.Implies(it.old.defined, it.old_version >= 1)
        known = [*it.known, not_newer, positive, it.version == written]
        proof.possible("a writer", [*known, it.accepted])
        following = z3.If(it.old.defined, it.old_version + 1, 1)
        proof.show("the next version", it.version == following, [*known, it.accepted], direct=True)
    data, cfg = unknown(Data, "data"), lifted(Config())
    for path in Reader([]).paths(requests.next_record, cfg, data):
        if path.value is not None and getattr(path.value, "fields", None):
            proof.show(
                "next record", path.value.fields["version_id"] == data.fields["version_id"] + 1, path.when, direct=True
            )
    target, dst = unknown(int | None, "target"), unknown(int | None, "dst")
    for graceful in (True, False):
        named = {"is_graceful": lifted(graceful)}
        for path in Reader([]).paths(recovery.replacement, data, target, dst, named=named):
            following = path.value.fields["version_id"] == data.fields["version_id"] + 1
            proof.show("an override", z3.And(following, as_term(path.value.fields["force"])), path.when, direct=True)
    for view, record, storage in random_records(300):
        new = record._replace(version_id=model.next_version(view))
        accepted = not model.is_rejected(Config(storage=storage), view, new)
        following = 1 if view is None else view.version_id + 1
        proof.run(f"{new} over {view}", not accepted or new.version_id == following, accepted)
    return proof.answer()


def random_records(count: int) -> list[tuple[Data | None, Data, model.Storage]]:
    """Returns pairs of records with versions near each other, each with a storage; always the same."""
    draw = random.Random(192)  # noqa: S311

    def record() -> Data:
        brokers = draw.choice((None, 0, 1)), draw.choice((None, 0, 1))
        return Data(draw.choice(STATES), *brokers, draw.randint(1, 5), draw.random() < 0.3)  # type: ignore[arg-type]

    return [(draw.choice((None, record(), record())), record(), draw.choice(STORAGES)) for _ in range(count)]


# ---- conflict resolution --------------------------------------------------------------------------------

#: Each pair of states that may follow each other, with conditions of `restated` on the brokers of the new record. The
#: pairs of PAIRS are valid in both storages, the additional ones of TOPIC_PAIRS only in the topic.
PAIRS: dict[tuple[str, str], tuple[str, ...]] = {
    ("Owned", "Releasing"): ("source is old dst", "source", "moves"),
    ("Owned", "Splitting"): ("no dst", "source is old dst"),
    ("Assigning", "Owned"): ("same",),
    ("Releasing", "Free"): ("same",),
    ("Releasing", "Assigning"): ("dst", "same"),
    ("Splitting", "Deleted"): ("same",),
    ("Deleted", "Init"): (),
    ("Init", "Assigning"): (),
    ("Free", "Assigning"): ("dst", "no source"),
}
TOPIC_PAIRS = PAIRS | {("Free", "Init"): ()} | {("Init", to): () for to in STATES[1:]}


def restated(storage: str, check_brokers: bool, old: Data | None, new: Data | None) -> bool:
    """Returns whether the old record is kept. This function restates the resolver by tables."""
    is_topic = storage == "system_topic"
    if new is None:
        return False
    if old is None and not is_topic:
        return new.version_id != 1
    if old is not None:
        ahead = new.version_id - old.version_id
        if ahead != 1:
            return ahead <= 0 or not is_topic
    if new.force:
        return False
    pair = "Init" if old is None else old.state, new.state
    table = TOPIC_PAIRS if is_topic else PAIRS
    if pair not in table:
        return True
    if old is None or not check_brokers:
        return False
    fits = {
        "dst": new.dst_broker not in (None, -1),
        "no dst": new.dst_broker in (None, -1),
        "source": new.source_broker not in (None, -1),
        "no source": new.source_broker in (None, -1),
        "same": (old.dst_broker, old.source_broker) == (new.dst_broker, new.source_broker),
        "source is old dst": old.dst_broker is not None and old.dst_broker == new.source_broker,
        "moves": old.dst_broker != new.dst_broker,
    }
    return not all(fits[condition] for condition in table[pair])


#: Destinations and sources of records: of a fresh, a transferred and an unloaded bundle. The destination -1 is a blank
#: name (`records.BLANK`), which names no broker.
NAMED = ((0, None), (1, 0), (-1, 0))


@contract(
    "resolver-is-the-table",
    "For any two versions below the largest, forced or not, records in any two states with three pairs of brokers, and "
    "either storage: model and implementation keep the old record exactly if a restatement by tables does.",
    Control(
        "the destination of a split is not checked",
        MODEL,
        "return not is_blank(right.dst_broker) or left.dst_broker != right.source_broker",
        "return left.dst_broker != right.source_broker",
    ),
)
def resolver_is_the_table(old: int, new: int, force: bool) -> bool:
    """The checks of `shouldKeepLeft`, in order; all pairs of brokers are in the scope `resolver` and the recordings.

    pre: 0 <= old and old < 9223372036854775807 and 0 <= new
    post: _
    """
    for storage in STORAGES:
        for before, after in itertools.product(STATES, STATES):
            for one, other in itertools.product(NAMED, NAMED):
                left, right = Data(before, *one, old), Data(after, *other, new, force)  # type: ignore[arg-type]
                kept = model.keeps_left(Config(), storage, True, left, right)
                if kept != restated(storage, True, left, right):
                    return False
                if kept == implementation._accepts(storage, True, left, right):
                    return False
    return True


claims = (each_version_is_accepted_once, accepted_versions_are_consecutive, resolver_is_the_table)
