"""Claims about the effects of records on transactions: live, when a record becomes durable, and at replay.

One transaction is followed through a log with any number of records of any transactions. The map of transactions is
represented by two slots: one for the followed transaction, one for the transaction of the current record. Stubs replace
`find_txn`, `put_txn` and `remove_txn`. Random maps test that these functions have the effect of their stubs. This is
not proved.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, get_args

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.symbolic import Maybe, Reader, Rec, as_term, bitmasks, code_of, equal, lifted, merged, unknown
from model.txn_log import replay
from model.txn_log import state as model
from model.txn_log.state import EXPECTED, Config, Effect, Op, Record, RecordPosition, State, Status, Target, Txn

STATE = "model.txn_log.state"
#: The transitions of a transaction's status: before, after.
STEPS = (("OPEN", "COMMITTING"), ("OPEN", "ABORTING"), ("COMMITTING", "COMMITTED"), ("ABORTING", "ABORTED"))
ENDS = ("COMMITTED", "ABORTED")


class Map(NamedTuple):
    """Stands for the map of transactions: the followed one (`here`), and that of the current record (`other`)."""

    id: int
    here: object
    other: object


def is_word(value: Any, *texts: str) -> Any:
    """Returns whether a symbolic string is one of these texts; None is not."""
    if isinstance(value, Maybe):
        return z3.And(value.defined, is_word(value.value, *texts))
    return z3.Or(*[value.code == code_of(text) for text in texts])


class Transaction:
    """Any record, and a transaction that it may belong to."""

    def __init__(self) -> None:
        self.proof, self.cfg, self.id = Proof(), lifted(Config()), z3.Int("id")
        self.record: Rec = unknown(Record, "record")
        self.position: Rec = unknown(RecordPosition, "place")
        record = self.record.fields
        self.is_its = record["txn"] == self.id
        self.known = [is_word(record["op"], *get_args(Op)), record["name"] >= 0]
        is_update = is_word(record["op"], "UPDATE")
        self.known += [
            record["to"].defined == is_update,
            z3.Implies(is_update, is_word(record["to"], *get_args(Target))),
        ]
        stubs: dict[Callable[..., Any], Callable[..., Any]] = {
            model.find_txn: _txn_of,
            model.put_txn: _with_txn,
            model.remove_txn: _without_txn,
            model.delete_positions: lambda cfg, s, positions: s,  # changes only deletions; no claim here reads them
            replay.with_ended: lambda confirmed, txn, to: confirmed,  # a history variable; no claim here reads it
        }
        self.reader = Reader(self.known, stubs=stubs)

    def slot(self, name: str) -> Maybe:
        """Returns the followed transaction in any status, or None."""
        txn: Rec = unknown(Txn, name).replace({"id": self.id})
        return Maybe(z3.Bool(f"{name} lives"), with_any_participants(txn, name))

    def map_of(self, here: Maybe) -> Rec:
        """Returns a map with this followed transaction and any other one."""
        other: Rec = with_any_participants(unknown(Txn, "other").replace({"id": self.record.fields["txn"]}), "other")
        return Rec(Map, {"id": self.id, "here": here, "other": Maybe(z3.Bool("other lives"), other)})

    def effects(self, here: Maybe) -> list[tuple[list[Any], Maybe, Any]]:
        """Returns the paths of applying the record live.

        A path is its conditions, the followed transaction after the record, and whether the record was effective.
        """
        paths = self.reader.paths(model.apply_record, self.map_of(here), self.record, self.position, z3.Int("deadline"))
        return [(path.when, _here(path.value.fields["txns"]), _is_effective(path.value)) for path in paths]

    def replays(self, here: Maybe, when: Sequence[Any] = ()) -> list[tuple[list[Any], Maybe]]:
        """Returns the paths of replaying the record, where deletions may succeed or fail.

        A path is its conditions, and the followed transaction after the record.
        """
        s = unknown(State, "s").replace({"txns": self.map_of(here)})
        paths = self.reader.paths(replay.with_replayed, self.cfg, s, self.record, self.position, when=when)
        return [(path.when, _here(path.value.fields["txns"])) for path in paths]


def with_any_participants(txn: Rec, name: str) -> Rec:
    """Returns the transaction with arbitrary participants."""
    return txn.replace({each: bitmasks.unknown_mask(f"{name} {each}") for each in ("partitions", "subscriptions")})


def _here(txns: Rec) -> Maybe:
    here: Maybe = txns.fields["here"]
    return here


def _is_effective(effect: Rec) -> Any:
    return as_term(equal(effect.fields["result"], "success"))


def _txn_of(txns: Rec, txn: Any) -> Any:
    """Stub of `find_txn` on the map."""
    return merged(txn == txns.fields["id"], txns.fields["here"], txns.fields["other"])


def _with_txn(txns: Rec, new: Rec) -> Rec:
    """Stub of `put_txn` on the map."""
    return txns.replace({"here": merged(new.fields["id"] == txns.fields["id"], new, txns.fields["here"])})


def _without_txn(txns: Rec, txn: Any) -> Rec:
    """Stub of `remove_txn` on the map."""
    here = txns.fields["here"]
    return txns.replace({"here": Maybe(z3.And(here.defined, txn != txns.fields["id"]), here.value)})


def run_map_stubs(proof: Proof) -> None:
    """Compares the three functions on the map with a dictionary, on random maps."""
    draw = random.Random(97)  # noqa: S311
    for _ in range(100):
        ids = sorted(draw.sample(range(8), draw.randrange(5)))
        txns = tuple([Txn(n, draw.choice(get_args(Status)), 0, 0, 0, ()) for n in ids])
        table, new = {t.id: t for t in txns}, Txn(draw.randrange(8), "OPEN", 1, 2, 3, ())
        proof.compare(f"{new.id} in {ids}", model.find_txn(txns, new.id), table.get(new.id))
        proof.compare(f"{new.id} put in {ids}", {t.id: t for t in model.put_txn(txns, new)}, {**table, new.id: new})
        rest = {n: t for n, t in table.items() if n != new.id}
        proof.compare(f"{new.id} out of {ids}", {t.id: t for t in model.remove_txn(txns, new.id)}, rest)


# ---- the table of statuses ----------------------------------------------------------------------------


def is_legal(before: Any, after: Any) -> Any:
    """Returns whether two statuses are equal, or the transition from the first to the second is legal."""
    moves = [z3.And(is_word(before, one), is_word(after, other)) for one, other in STEPS]
    return z3.Or(as_term(equal(before, after)), *moves)


@claim(
    "transactions-take-only-legal-transitions",
    "z3",
    "For any transaction and any record, live and at replay: the status goes from OPEN to COMMITTING or ABORTING, "
    "from COMMITTING to COMMITTED, from ABORTING to ABORTED, and in no other way. Participants are added only while "
    "OPEN, and none is removed. A record of another transaction changes neither status nor participants nor deadline; "
    "live, neither does a rejected record. Only NEW creates a transaction.",
    Control(
        "a record changes the status whatever it was",
        STATE,
        "if t.status != EXPECTED[record.to]:",
        "if t.status in ENDED:",
        refutes="a transaction is removed by its end only",
    ),
)
def transitions_are_legal() -> Answer:
    """Transaction statuses of PIP-31: OPEN, then COMMITTING and COMMITTED, or ABORTING and ABORTED."""
    it = Transaction()
    proof = it.proof
    proof.need("the table", sorted((before, to) for to, before in EXPECTED.items()) == sorted(STEPS))
    was = it.slot("txn")
    known = [*it.known, is_word(was.value.fields["status"], *get_args(Status))]
    live = [(when, then, reported) for when, then, reported in it.effects(was)]
    again = [(when, then, None) for when, then in it.replays(was)]
    for when, then, reported in (*live, *again):
        premises = [*known, *when]
        proof.possible("a record", premises)
        _show_transitions(it, was, then, premises)
        no_effect = z3.Not(it.is_its) if reported is None else z3.Or(z3.Not(reported), z3.Not(it.is_its))
        what = "a rejected record, or one of another transaction, changes nothing"
        proof.show(what, z3.Implies(no_effect, same(was, then)), premises, direct=True)
    run_map_stubs(proof)
    draw = random.Random(1970)  # noqa: S311
    for _ in range(200):
        _run_of_transitions(proof, draw)
    return proof.answer()


def is_ongoing(txn: Maybe) -> Any:
    """Returns whether the status of a transaction is OPEN, COMMITTING or ABORTING."""
    return is_word(txn.value.fields["status"], "OPEN", "COMMITTING", "ABORTING")


def same(one: Maybe, other: Maybe) -> Any:
    """Returns whether two transactions are equal apart from positions, or both are None."""
    names = ("status", "partitions", "subscriptions", "deadline_ms")
    alike = [as_term(equal(one.value.fields[name], other.value.fields[name])) for name in names]
    return z3.And(one.defined == other.defined, z3.Implies(one.defined, z3.And(*alike)))


def _show_transitions(it: Transaction, was: Maybe, then: Maybe, premises: Sequence[Any]) -> None:
    """Proves that a record has only allowed effects on the followed transaction."""
    proof, record, i = it.proof, it.record.fields, z3.Int("i")
    both = z3.And(was.defined, then.defined)
    before, after = was.value.fields, then.value.fields
    stays = z3.Implies(is_ongoing(was), is_ongoing(then))
    move = z3.Implies(both, z3.And(is_legal(before["status"], after["status"]), stays))
    proof.show("status transitions are legal", move, premises, direct=True)
    leaves = z3.And(was.defined, z3.Not(then.defined))
    by = z3.And(is_word(record["op"], "UPDATE"), is_word(record["to"], *ENDS), is_legal(before["status"], record["to"]))
    proof.show(
        "a transaction is removed by its end only", z3.Implies(leaves, z3.And(it.is_its, by)), premises, direct=True
    )
    comes = z3.And(z3.Not(was.defined), then.defined)
    begins = z3.And(it.is_its, is_word(record["op"], "NEW"), is_word(after["status"], "OPEN"))
    proof.show("a transaction is added by its beginning only", z3.Implies(comes, begins), premises, direct=True)
    for name in ("partitions", "subscriptions"):
        kept = z3.Implies(z3.And(both, before[name][i]), after[name][i])
        proof.show("no participant is lost", kept, premises, direct=True)
        open_ = z3.Implies(z3.And(both, after[name][i], z3.Not(before[name][i])), is_word(before["status"], "OPEN"))
        proof.show("participants are added only while it is open", open_, premises, direct=True)


def _run_of_transitions(proof: Proof, draw: random.Random) -> None:
    """Checks the claim on random records that are applied to a transaction."""
    txns: tuple[Txn, ...] = ()
    for n in range(12):
        record = random_record(draw, draw.choice((1, 1, 2)))
        effect = model.apply_record(txns, record, RecordPosition(n, 0), 0)
        was, then = (model.find_txn(each, 1) for each in (txns, effect.txns))
        if was is not None and then is not None:
            moved = was.status == then.status or (was.status, then.status) in STEPS
            proof.run(f"{record} in {was.status}", moved and then.status not in ENDS, then.status)
        elif was is not None:
            proof.run(f"{record} in {was.status}", (was.status, record.to) in STEPS and record.to in ENDS, "it leaves")
        txns = effect.txns


def random_record(draw: random.Random, txn: int, op: Op | None = None) -> Record:
    """Returns a random record of a transaction, with the given operation if any."""
    ops: tuple[Op, ...] = ("NEW", "ADD_PARTITION", "ADD_SUBSCRIPTION", "UPDATE", "UPDATE")
    chosen: Op = draw.choice(ops) if op is None else op
    to: Target | None = draw.choice(get_args(Target)) if chosen == "UPDATE" else None
    return Record(txn, chosen, txn, name=draw.randrange(3), to=to)


# ---- what a replay finds ------------------------------------------------------------------------------


class Run:
    """The followed transaction after any number of records: in the store (`live`), and in a replay of the undeleted
    records (`again`).

    `begun` and `has_ended` say whether its NEW record, and its COMMITTED or ABORTED record, took effect.
    """

    def __init__(self, name: str, it: Transaction) -> None:
        self.live, self.again = it.slot(f"{name} live"), it.slot(f"{name} again")
        self.begun, self.has_ended = z3.Bool(f"{name} begun"), z3.Bool(f"{name} ended")


def holds(run: Any, first_is_left: Any) -> Any:
    """Returns the invariant: a replay finds the live transaction if its NEW record is undeleted, otherwise none.

    `first_is_left` is whether the NEW record is undeleted.
    """
    live, again = run.live, run.again
    is_read = z3.And(run.begun, first_is_left)
    alike = [
        as_term(equal(live.value.fields[f], again.value.fields[f])) for f in ("status", "partitions", "subscriptions")
    ]
    return z3.And(
        live.defined == z3.And(run.begun, z3.Not(run.has_ended)),
        z3.Implies(run.has_ended, run.begun),
        z3.Implies(live.defined, is_ongoing(live)),
        again.defined == z3.And(live.defined, is_read),
        z3.Implies(again.defined, z3.And(*alike)),
    )


class After(NamedTuple):
    """The fields of `Run` after one more record."""

    live: Maybe
    again: Maybe
    begun: object
    has_ended: object


@claim(
    "ended-transaction-is-not-recovered",
    "z3",
    "For any log without duplicate ids, any transaction and any deletions, if no effective record is deleted without "
    "the transaction's NEW record: a replay finds the transaction exactly if it has not ended and its NEW record is "
    "undeleted. The replay then finds the transaction's status and participants. So no ended transaction returns, "
    "whether deletions succeed during the replay or not.",
    Control(
        "an ended transaction whose records cannot be deleted stays in the map at replay, as shipped",
        STATE,
        '#15472"},\n        ),\n    ] = True',
        '#15472"},\n        ),\n    ] = False',
        refutes="one more record",
    ),
)
def ended_transaction_is_not_recovered() -> Answer:
    """PIP-160 deletes the records of an ended transaction together.

    A truncated cursor record keeps such deletions up to some entry: if it keeps that of any record, it keeps that of
    the NEW record.
    """
    it = Transaction()
    proof, record = it.proof, it.record.fields
    run, first_is_left, is_left = Run("txn", it), z3.Bool("first is left"), z3.Bool("is left")
    known = [*it.known, holds(run, first_is_left)]
    begins = z3.And(it.is_its, is_word(record["op"], "NEW"))
    known += [z3.Not(z3.And(begins, run.begun)), z3.Implies(begins, first_is_left == is_left)]
    seen = []
    for when, live, in_time in it.effects(run.live):
        ends = z3.And(it.is_its, in_time, is_word(record["op"], "UPDATE"), is_word(record["to"], *ENDS))
        begun, has_ended = z3.Or(run.begun, begins), z3.Or(run.has_ended, ends)
        # by assumption, an effective record is deleted only if the NEW record is
        in_order = z3.Implies(z3.And(it.is_its, in_time, first_is_left), is_left)
        premises = [*known, *when, in_order]
        # a replay applies an undeleted record, and skips a deleted one
        reads = [([*premises, is_left, *paths], again) for paths, again in it.replays(run.again, premises)]
        for given, again in (*reads, ([*premises, z3.Not(is_left)], run.again)):
            then = After(live, again, begun, has_ended)
            proof.show("one more record", holds(then, first_is_left), given)
            proof.show("an ended transaction is not recovered", z3.Implies(has_ended, z3.Not(again.defined)), given)
            seen.append((z3.And(*given), ends))
    for what, more in {"a record": True, "an end": z3.Or(*[z3.And(*pair) for pair in seen])}.items():
        proof.possible(what, [z3.Or(*[given for given, _ in seen]), as_term(more)])
    at_first = z3.Bools("live again begun ended")
    first = After(Maybe(at_first[0], run.live.value), Maybe(at_first[1], run.again.value), *at_first[2:])
    proof.lemma("before the first record", holds(first, first_is_left), [z3.Not(each) for each in at_first])
    run_map_stubs(proof)
    draw = random.Random(160)  # noqa: S311
    for _ in range(400):
        _run_of_replay(proof, draw)
    for deleted, status in ((2, "COMMITTING"), (1, "OPEN")):
        found = found_in(Config(), LIFE, {deleted}, works=True)
        proof.need("without that order a transaction does return", [t.status for t in found] == [status])
    return proof.answer()


#: the records of a transaction that is committed
LIFE = (
    Record(1, "NEW", 1),
    Record(1, "UPDATE", 1, to="COMMITTING"),
    Record(1, "UPDATE", 1, to="COMMITTED"),
)


def found_in(cfg: Config, log: Sequence[Record], deleted: set[int], *, works: bool) -> tuple[Txn, ...]:
    """Returns the transactions that a replay of the undeleted records finds; `works`: whether deletions succeed."""
    s = model.start(cfg)._replace(log=tuple([(each,) for each in log]), ledgers=(len(log),), deletions_succeed=works)
    for n, record in enumerate(log):
        if n not in deleted:
            s = replay.with_replayed(cfg, s, record, RecordPosition(n, 0))
    return s.txns


def _run_of_replay(proof: Proof, draw: random.Random) -> None:
    """Checks the claim on a random log, in which an effective record is deleted only if the NEW record is."""
    log = [random_record(draw, 1, draw.choice(("ADD_PARTITION", "UPDATE", "UPDATE"))) for _ in range(draw.randrange(8))]
    log.insert(draw.randrange(len(log) + 1), Record(1, "NEW", 1))
    txns: tuple[Txn, ...] = ()
    effective: list[int] = []
    has_ended = False
    for n, record in enumerate(log):
        effect: Effect = model.apply_record(txns, record, RecordPosition(n, 0), 0)
        if effect.result == "success":
            effective.append(n)
            has_ended = record.to in ENDS
        txns = effect.txns
    first_goes = draw.random() < 0.5
    deletable = [n for n in range(len(log)) if first_goes or n not in effective]
    deleted = {n for n in deletable if draw.random() < 0.5 or (first_goes and n == effective[0])}
    found = found_in(Config(), log, deleted, works=draw.random() < 0.5)
    plain = [(t.status, t.partitions) for t in found]
    wanted = [(t.status, t.partitions) for t in txns if not first_goes]
    kinds = [r.to or r.op for r in log]
    proof.run(f"{kinds} without {sorted(deleted)}", plain == wanted and not (has_ended and found), plain)
