"""Claims about transaction ids: the low watermark, and that no id in the log is reused."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim, contract
from invariants.proofs.symbolic import Reader, Rec, Seq, UnsupportedError, as_term, lifted, unknown
from model.batch_acks import state as cursor
from model.batch_acks.state import Acks
from model.machine import Refused
from model.txn_log import machine as model
from model.txn_log import replay
from model.txn_log.state import Config, Op, Record, State, Target, Txn, find_txn, start

MODEL = "model.txn_log.machine"


# ---- the low watermark --------------------------------------------------------------------------------


@claim(
    "low-watermark-is-below-ongoing-transactions",
    "z3",
    "For any number of ongoing transactions in id order: the low watermark is one below the first id, hence below all "
    "of them and below every id assigned later. The highest reported low watermark stays below all of them.",
    Control(
        "the low watermark is the first ongoing id",
        MODEL,
        "return s.txns[0].id - 1",
        "return s.txns[0].id",
        refutes="below all",
    ),
)
def watermark_is_below_all() -> Answer:
    """Participants abort their pending transactions up to the low watermark, which every commit and abort carries."""
    proof, i = Proof(), z3.Int("i")
    txns = Seq.unknown(Txn, "txns")
    s: Rec = unknown(State, "s").replace({"txns": txns})
    first, any_, reported = txns.at(0).fields["id"], txns.at(i).fields["id"], s.fields["reported_watermark"]
    known = [txns.length > 0, i >= 0, i < txns.length, z3.Implies(i > 0, first < any_), reported < first]
    known += [
        any_ <= s.fields["last_id"],
        first <= s.fields["last_id"],
        s.fields["status"].code == lifted("ready").code,
    ]
    reader = Reader(known)
    paths = reader.paths(model.low_watermark, lifted(Config()), s)
    for path in paths:
        after, watermark = path.value[0].fields, as_term(path.value[1])
        premises = [*known, *path.when]
        proof.possible("a watermark", premises)
        proof.show("below all", watermark < any_, premises, direct=True)
        proof.show("next to the first", watermark == first - 1, premises, direct=True)
        proof.show("the reported low watermark", after["reported_watermark"] < any_, premises, direct=True)
        for record, then in records_of(known, model.new_transaction, s, z3.Int("timeout")):
            later = z3.And(watermark < record["txn"], record["txn"] == then["last_id"])
            proof.show("new ids are above the watermark", later, premises, direct=True)
    proof.need("a ready store returns a low watermark", len(paths) > 0)
    for cfg, was in histories(30, 60):
        low_watermark = model.low_watermark(cfg, was)[1]
        if not isinstance(low_watermark, Refused):
            proof.run("a store", all(low_watermark < t.id for t in was.txns), (low_watermark, [t.id for t in was.txns]))
    return proof.answer()


@contract(
    "empty-store-low-watermark-is-below-future-transactions",
    "For any last id of the log, taken from the ledger properties, and any one or two pending NEW records: without "
    "ongoing transactions, the low watermark is the last id of the log, or one below the first pending id if that is "
    "lower.",
    Control(
        "a pending id is reported as ended",
        MODEL,
        "*[txn - 1 for txn in pending]",
        "*[txn + 1 for txn in pending]",
    ),
)
def empty_store_watermark_is_below_future_ids(last: int, first: int, second: int, in_flight: bool) -> bool:
    """A pending id may become ongoing, and an id that is not in the log may be assigned again after a crash.

    pre: 0 <= last and 0 <= first and first < second
    post: _
    """
    s = start(Config())._replace(ledger_property_id=last, last_id=second, buffer=(Record(second, "NEW", second),))
    if in_flight:
        s = s._replace(in_flight=((Record(0, "UPDATE", first, to="COMMITTED"), Record(first, "NEW", first)),))
    watermark = model.low_watermark_of(Config(), s)
    return watermark == min(last, (first if in_flight else second) - 1)


# ---- no id in the log twice --------------------------------------------------------------------------------------


class Records(NamedTuple):
    """Stands for a log entry; only its last record is represented."""

    last: Record

    @staticmethod
    def item_of(entry: Rec, index: Any) -> Any:
        """Returns the record at the index -1, the last one. Raises UnsupportedError for any other index."""
        if index != -1:
            raise UnsupportedError(f"record {index} of an entry")
        return entry.fields["last"]


def records_of(given: Sequence[Any], action: Callable[..., Any], s: Rec, *arguments: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the record that an action appends on each path, with the state that it is appended to."""
    made: list[tuple[Any, Any]] = []

    def appended(cfg: Any, then: Rec, record: Rec) -> tuple[Rec, tuple[()]]:
        made.append((record.fields, then.fields))
        return then, ()

    found = unknown(Txn, "found").replace({"id": arguments[0]})
    stubs: dict[Callable[..., Any], Callable[..., Any]] = {
        model.append: appended,
        find_txn: lambda txns, txn: found,
    }
    Reader(given, stubs=stubs).paths(action, lifted(Config()), s, *arguments)
    yield from made


@claim(
    "logged-transaction-ids-are-not-reused",
    "z3",
    "For any log and store: a new transaction gets the id after the last assigned one. Every record carries the last "
    "assigned id, which is at least its transaction's. A reopened store continues from the last id of the log; if the "
    "last ledger has entries, this id is at least the one that the newest entry carries. The last id of the log is not "
    "decreased by a new ledger, nor by an entry that carries at least this id.",
    Control(
        "a reopened store reads only the ledger properties",
        "model.txn_log.replay",
        "return s.log[-1][-1].last_id if s.ledgers[-1] else s.ledger_property_id",
        "return s.ledger_property_id",
        refutes="an entry is appended",
    ),
)
def no_id_twice() -> Answer:
    """PIP-160: each record carries max_local_txn_id, and so do the ledger properties, for a ledger without records."""
    proof, cfg = Proof(), lifted(Config())
    log, ledgers = Seq.unknown(Records, "log"), Seq.unknown(int, "ledgers")
    s: Rec = unknown(State, "s").replace({"log": log, "ledgers": ledgers})
    last_id, count = s.fields["last_id"], ledgers.at(ledgers.length - 1)
    known = [ledgers.length > 0, log.length >= 0, count >= 0, z3.Implies(count > 0, log.length > 0)]
    _records_carry_the_last_id(proof, s)
    reader = Reader(known, stubs={cursor.with_mark_delete_advanced: lambda acks: acks})

    def recovered(then: Rec, *given: Any) -> Any:
        return Reader([*known, *given]).call(replay.recovered_id, then)

    was = recovered(s)
    entry: Rec = unknown(Records, "entry")
    newest = entry.fields["last"].fields["last_id"]
    in_order = [*known, newest >= was, last_id >= was, last_id >= newest]
    proof.possible("a store", in_order)
    for path in reader.paths(model.append_to_log, s, entry):
        found = recovered(path.value, *in_order, *path.when)
        proof.show("an entry is appended", z3.And(found == newest, found >= was), [*in_order, *path.when], direct=True)
    for path in reader.paths(model.with_new_ledger, s):
        found = recovered(path.value, *in_order, *path.when)
        proof.show("a new ledger", z3.And(found >= was, found <= last_id), [*in_order, *path.when], direct=True)
    for path in reader.paths(replay.opened, cfg, s, unknown(Acks, "stored"), z3.Bool("batched")):
        premises, after = [*in_order, *path.when], path.value
        again = recovered(after, *premises)
        opened = z3.And(after.fields["last_id"] == was, again == was)
        proof.show("a store is opened", opened, premises, direct=True)
        above = z3.Implies(
            count > 0, after.fields["last_id"] >= log.at(log.length - 1).fields["last"].fields["last_id"]
        )
        proof.show("above what the log has", above, premises, direct=True)
    counts: set[tuple[int, int]] = set()
    for number, (_, now) in enumerate(histories(30, 60)):
        ids = [r.txn for each in now.log for r in each if r.op == "NEW"]
        last = replay.recovered_id(now)
        knows = len(ids) == len(set(ids)) and last >= max([now.confirmed_id, *ids])
        proof.run(f"a log whose last id is {last}", knows, (now.confirmed_id, ids))
        counts.add((number, len(ids)))
    proof.need("some histories have transactions", any(count_ > 2 for _, count_ in counts))
    return proof.answer()


def _records_carry_the_last_id(proof: Proof, s: Rec) -> None:
    """Proves that the record of each request carries the last assigned id."""
    txn, last_id = z3.Int("txn"), s.fields["last_id"]
    calls: dict[Callable[..., Any], tuple[Any, ...]] = {
        model.new_transaction: (z3.Int("timeout"),),
        model.add_participant: (txn, unknown(Op, "op"), z3.Int("name")),
        model.update_status: (txn, unknown(Target, "to")),
    }
    for action, arguments in calls.items():
        premises = [] if len(arguments) == 1 else [txn <= last_id]
        records = [*records_of(premises, action, s, *arguments)]
        proof.need(f"{action.__name__} makes a record", bool(records))
        for record, then in records:
            is_new = then["last_id"] == last_id + (len(arguments) == 1)
            carries = z3.And(record["last_id"] == then["last_id"], record["txn"] <= then["last_id"], is_new)
            proof.show(f"the record of {action.__name__}", carries, premises, direct=True)


def histories(count: int, steps: int) -> Iterator[tuple[Config, State]]:
    """Yields states of random runs with failures, crashes and trimmed ledgers; always the same sequence."""
    draw = random.Random(2022)  # noqa: S311
    for _ in range(count):
        cfg = Config(max_records=draw.choice((0, 2, 3)), max_ranges=draw.randrange(3))
        s = start(cfg)
        for _ in range(steps):
            name, arguments = _call(draw, s)
            s, _ = model.txn_log.step(cfg, s, name, arguments)
            yield cfg, s


def _call(draw: random.Random, s: State) -> tuple[str, tuple[Any, ...]]:
    """Returns a step that is likely to have an effect: the action and its arguments."""
    if s.status == "replaying":
        return ("replay_entry", ()) if replay.next_entry(s) is not None else ("complete_replay", ())
    if s.status != "ready" or draw.random() < 0.03:
        return draw.choice([("crash", (draw.randrange(2),)), ("reopen", (draw.random() < 0.5,))])
    if s.in_flight and draw.random() < 0.7:
        return draw.choice([*[("complete_write", ())] * 8, ("fail_write", (draw.randrange(2),))])
    if s.txns and draw.random() < 0.7:
        t = draw.choice(s.txns)
        to = {"OPEN": draw.choice(("COMMITTING", "ABORTING")), "COMMITTING": "COMMITTED"}.get(t.status, "ABORTED")
        return "update_status", (t.id, to)
    plain: list[tuple[str, tuple[Any, ...]]] = [("new_transaction", (5,)), ("flush", ()), ("persist", ())]
    return draw.choice([*plain, ("trim", ()), ("roll_ledger", ())])
