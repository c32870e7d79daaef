"""Claims about the places of records: by what a record is known, and which ones are deleted, live and at replay."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.symbolic import AT, OVER, Path, Reader, Rec, Seq, as_term, bitmasks, equal, lifted, unknown
from invariants.proofs.txn_log.ids import histories
from invariants.proofs.txn_log.replays import Transaction, map_is_as_said, random_record
from model.txn_log import machine as model
from model.txn_log import replay, state
from model.txn_log.state import Config, Effect, Entry, Place, Record, State, Txn


def entries(length: Any, records: Seq) -> Seq:
    """Any number of entries, of which one is looked at, whichever it is: it has these records."""
    return Seq(Entry, length, lambda place: records, {}, {})


class Doing:
    """Stands in for what a record does, and notes which record it was, where it stands, and where that is so."""

    def __init__(self) -> None:
        self.done: list[tuple[Rec, Rec]] = []
        self.then: Rec = unknown(State, "then")

    def live(self, _cfg: Any, _s: Rec, record: Rec, place: Rec) -> tuple[Rec, Any]:
        """A record is durable."""
        self.done.append((record, place))
        return self.then, z3.Int("answer")

    def again(self, _cfg: Any, _s: Rec, record: Rec, place: Rec) -> Rec:
        """A record is read again."""
        self.done.append((record, place))
        return self.then


@claim(
    "a-record-is-known-by-its-index-in-its-batch",
    "z3",
    "For any log and an entry of any number of records: when it is durable, each record does its part with the number "
    "of its entry and its index in it, one after the other; when it is read again, exactly those records do theirs "
    "that are not deleted, with the same number and the same index.",
    Control(
        "places in an entry that is read again are counted from its end",
        "model.txn_log.replay",
        "s = with_replayed(cfg, s, record, Place(entry, index))",
        "s = with_replayed(cfg, s, record, Place(entry, len(records) - 1 - index))",
    ),
)
def known_by_its_index() -> Answer:
    """PIP-160: a record's position is its entry with its batch index, by which it is deleted."""
    proof, records, k = Proof(), Seq.unknown(Record, "records"), z3.Int("k")
    count, length, first = z3.Int("in flight"), z3.Int("log.length"), z3.Int("first")
    s: Rec = unknown(State, "s")
    s = s.replace({"first": first, "log": entries(length, records), "in_flight": entries(count, records)})
    known = [count > 0, length >= 0, first >= 0, records.length > 0, k >= 0, k < records.length]
    known.append(s.fields["ledgers"].length > 0)
    cfg = lifted(Config())

    live = Doing()
    loop = Reader(known, stubs={model.with_effect: live.live}).loop(model.written)
    for begun in [way for way in loop.begin(cfg, s) if way.how == "next"]:
        proof.need("an entry's records are gone over", begun.names[OVER] is records)
        for way in loop.round({**begun.names, AT: k}, [*known, *begun.when]):
            _does_its_part(proof, live, way, records, k, first + length)

    entry, left = z3.Int("entry"), bitmasks.unknown_mask("left")
    again = Doing()
    inside = [*known, entry >= first, entry < first + length]
    stubs: dict[Callable[..., Any], Callable[..., Any]] = {
        replay.with_replayed: again.again,
        state.live_of: lambda acks, number, size: left,
    }
    loop = Reader(inside, stubs=stubs).loop(replay.replayed)
    [begun] = loop.begin(cfg, s, entry)
    proof.need("an entry's records are read", begun.names[OVER] is records)
    for way in loop.round({**begun.names, AT: k}, [*inside, *begun.when]):
        does = way.names["s"] is again.then
        proof.show("exactly what is left is done", left[k] == does, way.when, direct=True)
        if does:
            _does_its_part(proof, again, way, records, k, entry)
    for _, after in histories(20, 60):
        told = {t.id: t.places for t in after.txns}
        right = all(after.log[n - after.first][at].txn == txn for txn, places in told.items() for n, at in places)
        proof.run("a history", right, told)
    return proof.answer()


def _does_its_part(proof: Proof, doing: Doing, way: Path, records: Seq, k: Any, number: Any) -> None:
    """The record at a place was done once, with its number and its index."""
    proof.possible("a record of an entry", way.when)
    proof.need("a record does its part once", len(doing.done) == 1 and doing.done[0][0] is records.at(k))
    place = doing.done[0][1].fields
    proof.show("by its entry and its index", z3.And(place["entry"] == number, place["at"] == k), way.when, direct=True)


@claim(
    "an-end-deletes-all-records-of-its-transaction",
    "z3",
    "For any transaction with records at any number of places and any record of it, by the rule that is the same live "
    "and at replay: a record that has an effect adds its place behind the others, or, if it is the end, deletes all of "
    "them and itself at once; one that comes too late deletes itself alone, and no other record deletes any.",
    Control(
        "the record that ends a transaction is not deleted with the others",
        "model.txn_log.state",
        "return Effect(without_txn(txns, t.id), (*t.places, place)",
        "return Effect(without_txn(txns, t.id), t.places",
    ),
)
def end_deletes_all() -> Answer:
    """PIP-160: when a transaction has ended, the positions of all its records are deleted from the log."""
    it, k = Transaction(), z3.Int("k")
    proof, was = it.proof, it.slot("txn")
    places: Seq = was.value.fields["places"]
    given = [*it.known, it.is_its, places.length >= 0, k >= 0]
    new = it.map_of(was)
    for way in it.reader.paths(state.effect_of, new, it.record, it.place, z3.Int("deadline"), when=[it.is_its]):
        effect, there = way.value.fields, [*given, *way.when]
        then, deleted = effect["txns"].fields["here"], _as_seq(effect["deleted"])
        done = as_term(equal(effect["told"], "done"))
        ends = z3.And(done, was.defined, z3.Not(then.defined))
        proof.possible("a record", there)
        count = z3.If(ends, places.length + 1, z3.If(done, 0, 1))
        proof.show("how many are deleted", deleted.length == count, there, direct=True)
        itself = as_term(equal(deleted.at(deleted.length - 1), it.place))
        proof.show("itself, if any", z3.Implies(deleted.length > 0, itself), there, direct=True)
        others = z3.Implies(z3.And(ends, k < places.length), as_term(equal(deleted.at(k), places.at(k))))
        proof.show("and all others", others, there, direct=True)
        after: Seq = then.value.fields["places"]
        before = z3.If(was.defined, places.length, 0)
        adds = z3.And(after.length == before + 1, as_term(equal(after.at(before), it.place)))
        stays = z3.Implies(k < before, as_term(equal(after.at(k), places.at(k))))
        proof.show("its place is kept", z3.Implies(z3.And(done, then.defined), z3.And(adds, stays)), there, direct=True)
    map_is_as_said(proof)
    for record, before_, effect_ in effects(60):
        places_ = before_.places if before_ is not None else ()
        if effect_.told != "done":
            wanted: tuple[Place, ...] = (Place(99, 0),)
        else:
            wanted = () if effect_.txns else (*places_, Place(99, 0))
        proof.run(f"{record.to or record.op} of {before_}", effect_.deleted == wanted, effect_.deleted)
    return proof.answer()


def _as_seq(places: Any) -> Seq:
    """Places that are known one by one, as any others."""
    if isinstance(places, Seq):
        return places
    seq = Seq.empty(Place)
    for each in places:
        seq = seq.appended(each)
    return seq


def effects(count: int) -> Iterator[tuple[Record, Txn | None, Effect]]:
    """What records at random do to a transaction; always the same."""
    draw = random.Random(160)  # noqa: S311
    for _ in range(count):
        txns: tuple[Txn, ...] = ()
        for n in range(6):
            record = random_record(draw, 1)
            yield record, state.txn_of(txns, 1), state.effect_of(txns, record, Place(99, 0), 0)
            txns = state.effect_of(txns, record, Place(n, 0), 0).txns


claims: Sequence[Any] = (known_by_its_index, end_deletes_all)
