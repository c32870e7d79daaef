"""Claims about record positions: the record that a position names, and the positions that are deleted.

A record is applied live when it becomes durable, and applied again by a replay of the log.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.symbolic import (
    INDEX,
    ITERATED,
    Path,
    Reader,
    Rec,
    Seq,
    as_term,
    bitmasks,
    equal,
    lifted,
    unknown,
)
from invariants.proofs.txn_log.ids import histories
from invariants.proofs.txn_log.replays import Transaction, random_record, run_map_stubs
from model.txn_log import machine as model
from model.txn_log import replay, state
from model.txn_log.state import Config, Effect, Entry, Record, RecordPosition, State, Txn


def entries(length: Any, records: Seq) -> Seq:
    """Returns a log of this length in which every entry has these records."""
    return Seq(Entry, length, lambda position: records, {}, {})


class AppliedRecords:
    """Stubs of the functions that apply a record. They collect the records and their positions."""

    def __init__(self) -> None:
        self.applied: list[tuple[Rec, Rec]] = []
        self.then: Rec = unknown(State, "then")

    def apply_live(self, _cfg: Any, _s: Rec, record: Rec, position: Rec) -> tuple[Rec, Any]:
        """Stub for a record that becomes durable."""
        self.applied.append((record, position))
        return self.then, z3.Int("answer")

    def apply_replayed(self, _cfg: Any, _s: Rec, record: Rec, position: Rec) -> Rec:
        """Stub for a record that is replayed."""
        self.applied.append((record, position))
        return self.then


@claim(
    "record-position-is-entry-and-batch-index",
    "z3",
    "For any log and an entry with any number of records: when the entry becomes durable, each record is applied once, "
    "in order, with its entry and batch index. At replay, exactly the undeleted records are applied, with the same "
    "entry and batch index.",
    Control(
        "replayed batch indexes count from the end of the entry",
        "model.txn_log.replay",
        "s = with_replayed(cfg, s, record, RecordPosition(entry, index))",
        "s = with_replayed(cfg, s, record, RecordPosition(entry, len(records) - 1 - index))",
        refutes="applied with its entry and batch index",
    ),
)
def position_is_entry_and_index() -> Answer:
    """PIP-160: a record's position is its entry and batch index, by which it is deleted."""
    proof, records, k = Proof(), Seq.unknown(Record, "records"), z3.Int("k")
    count, length, first = z3.Int("in flight"), z3.Int("log.length"), z3.Int("first")
    s: Rec = unknown(State, "s")
    s = s.replace({"first_entry": first, "log": entries(length, records), "in_flight": entries(count, records)})
    known = [count > 0, length >= 0, first >= 0, records.length > 0, k >= 0, k < records.length]
    known.append(s.fields["ledgers"].length > 0)
    cfg = lifted(Config())

    live = AppliedRecords()
    loop = Reader(known, stubs={model.with_effect: live.apply_live}).loop(model.complete_write)
    for begun in [path for path in loop.begin(cfg, s) if path.exit == "next"]:
        proof.need("the loop iterates over the records of the entry", begun.names[ITERATED] is records)
        for path in loop.iteration({**begun.names, INDEX: k}, [*known, *begun.when]):
            _show_applied(proof, live, path, records, k, first + length)

    entry, left = z3.Int("entry"), bitmasks.unknown_mask("left")
    again = AppliedRecords()
    inside = [*known, entry >= first, entry < first + length]
    stubs: dict[Callable[..., Any], Callable[..., Any]] = {
        replay.with_replayed: again.apply_replayed,
        state.remaining_records: lambda acks, number, size: left,
    }
    loop = Reader(inside, stubs=stubs).loop(replay.replayed)
    [begun] = loop.begin(cfg, s, entry)
    proof.need("the replay iterates over the records of the entry", begun.names[ITERATED] is records)
    for path in loop.iteration({**begun.names, INDEX: k}, [*inside, *begun.when]):
        is_applied = path.names["s"] is again.then
        proof.show("exactly the undeleted records are applied", left[k] == is_applied, path.when, direct=True)
        if is_applied:
            _show_applied(proof, again, path, records, k, entry)
    for _, after in histories(20, 60):
        positions_of = {t.id: t.positions for t in after.txns}
        where = [(txn, n - after.first_entry, at) for txn, positions in positions_of.items() for n, at in positions]
        right = all(after.log[n][at].txn == txn for txn, n, at in where)
        proof.run("a history", right, positions_of)
    return proof.answer()


def _show_applied(proof: Proof, stubs: AppliedRecords, path: Path, records: Seq, k: Any, number: Any) -> None:
    """Proves that the k-th record was applied once, with its entry `number` and batch index k."""
    proof.possible("a record of an entry", path.when)
    proof.need("a record is applied once", len(stubs.applied) == 1 and stubs.applied[0][0] is records.at(k))
    position = stubs.applied[0][1].fields
    is_there = z3.And(position["entry"] == number, position["batch_index"] == k)
    proof.show("applied with its entry and batch index", is_there, path.when, direct=True)


@claim(
    "ended-transaction-deletes-all-its-records",
    "z3",
    "For any transaction with any number of positions and any of its records, live and at replay: an effective record "
    "that ends the transaction deletes all positions of the transaction, and its own. Any other effective record "
    "appends its position to those of the transaction. A rejected record deletes only its own position.",
    Control(
        "the COMMITTED or ABORTED record is not deleted with the others",
        "model.txn_log.state",
        "return Effect(remove_txn(txns, t.id), (*t.positions, position)",
        "return Effect(remove_txn(txns, t.id), t.positions",
        refutes="the number of deleted positions",
    ),
)
def end_deletes_all() -> Answer:
    """PIP-160: when a transaction has ended, the positions of all its records are deleted."""
    it, k = Transaction(), z3.Int("k")
    proof, was = it.proof, it.slot("txn")
    positions: Seq = was.value.fields["positions"]
    given = [*it.known, it.is_its, positions.length >= 0, k >= 0]
    new = it.map_of(was)
    for path in it.reader.paths(state.apply_record, new, it.record, it.position, z3.Int("deadline"), when=[it.is_its]):
        effect, premises = path.value.fields, [*given, *path.when]
        then, deleted = effect["txns"].fields["here"], _as_seq(effect["to_delete"])
        applied = as_term(equal(effect["result"], "success"))
        ends = z3.And(applied, was.defined, z3.Not(then.defined))
        proof.possible("a record", premises)
        count = z3.If(ends, positions.length + 1, z3.If(applied, 0, 1))
        proof.show("the number of deleted positions", deleted.length == count, premises, direct=True)
        itself = as_term(equal(deleted.at(deleted.length - 1), it.position))
        proof.show("its own position, if any is deleted", z3.Implies(deleted.length > 0, itself), premises, direct=True)
        others = z3.Implies(z3.And(ends, k < positions.length), as_term(equal(deleted.at(k), positions.at(k))))
        proof.show("all positions of the transaction", others, premises, direct=True)
        after: Seq = then.value.fields["positions"]
        before = z3.If(was.defined, positions.length, 0)
        adds = z3.And(after.length == before + 1, as_term(equal(after.at(before), it.position)))
        stays = z3.Implies(k < before, as_term(equal(after.at(k), positions.at(k))))
        proof.show(
            "its position is kept",
            z3.Implies(z3.And(applied, then.defined), z3.And(adds, stays)),
            premises,
            direct=True,
        )
    run_map_stubs(proof)
    for record, before_, effect_ in effects(60):
        places_ = before_.positions if before_ is not None else ()
        # a rejected record deletes its own position, the end of the transaction deletes all, any other record none
        if effect_.result != "success":
            wanted: tuple[RecordPosition, ...] = (RecordPosition(99, 0),)
        else:
            wanted = () if effect_.txns else (*places_, RecordPosition(99, 0))
        proof.run(f"{record.to or record.op} of {before_}", effect_.to_delete == wanted, effect_.to_delete)
    return proof.answer()


def _as_seq(positions: Any) -> Seq:
    """Returns positions as a symbolic sequence."""
    if isinstance(positions, Seq):
        return positions
    seq = Seq.empty(RecordPosition)
    for each in positions:
        seq = seq.appended(each)
    return seq


def effects(count: int) -> Iterator[tuple[Record, Txn | None, Effect]]:
    """Yields random records of transaction 1, each with the transaction before and the effect; always the same."""
    draw = random.Random(160)  # noqa: S311
    for _ in range(count):
        txns: tuple[Txn, ...] = ()
        for n in range(6):
            record = random_record(draw, 1)
            yield record, state.find_txn(txns, 1), state.apply_record(txns, record, RecordPosition(99, 0), 0)
            txns = state.apply_record(txns, record, RecordPosition(n, 0), 0).txns
