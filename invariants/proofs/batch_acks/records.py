"""Claims about the record of a cursor: what it holds of the acknowledgements, and what a recovery finds."""

from __future__ import annotations

import random
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.induction import facts_of
from invariants.proofs.shared.cursor import Cursor, acknowledgements, left_of, map_is_the_list, up_to_is_as_said
from invariants.proofs.shared.lowest_ranges import Lowest
from invariants.proofs.symbolic import Reader, as_term, bitmasks, equal, lifted, unknown
from model.batch_acks import machine as model
from model.batch_acks import state
from model.batch_acks.state import Acks, Config, State

STATE = "model.batch_acks.state"


@claim(
    "a-record-keeps-to-its-caps",
    "z3",
    "For any number of entries, ranges and parts, and all caps: a record has the mark of memory, only entries that are "
    "deleted in memory, of the ranges as many as its cap or all, and of the parts the lowest, at most as many as its "
    "cap, each as it is in memory. Where ranges start is left open; that a cut between two makes no new one was run.",
    Control(
        "a record holds one range more, as shipped",
        STATE,
        "ranges = cfg.max_ranges + (not cfg.range_cap_is_exact)",
        "ranges = cfg.max_ranges + 1",
        refutes="as many ranges as the cap",
    ),
)
def record_keeps_caps() -> Answer:
    """managedLedgerMaxUnackedRangesToPersist and managedLedgerMaxBatchDeletedIndexToPersist."""
    proof, place = Proof(), z3.Int("place")
    Lowest(proof).show()
    ranges, parts = z3.Ints("ranges parts")
    cfg = lifted(Config()).replace({"max_ranges": ranges, "max_batch_records": parts})
    acks = unknown(Acks, "acks").replace({"deleted": bitmasks.unknown_mask("deleted")})
    kept, asked = bitmasks.unknown_mask("kept"), []
    partial = acks.fields["partial"]

    def lowest_ranges(_: Any, __: Any, most: Any) -> Any:
        asked.append(as_term(most))
        return kept

    given = [ranges >= 0, parts >= 0, partial.length >= 0]
    reader = Reader(given, stubs={state.lowest_ranges: lowest_ranges})
    bit = z3.Int("(any bit)")
    only = z3.ForAll([bit], z3.Implies(kept[bit], acks.fields["deleted"][bit]))
    for way in reader.paths(state.capped, cfg, unknown(tuple[int, ...], "ledgers"), acks):
        record, there = way.value.fields, [*given, *way.when, only]
        proof.possible("a record", there)
        proof.show("as many ranges as the cap", z3.And(*[most == ranges for most in asked]), there, direct=True)
        deleted = z3.Implies(record["deleted"][place], acks.fields["deleted"][place])
        proof.show("only what is deleted", deleted, [*there, place >= 0])
        proof.show("the mark", record["first_unacked"] == acks.fields["first_unacked"], there, direct=True)
        held = record["partial"]
        proof.show("as many parts as the cap", held.length <= parts, there, direct=True)
        same = z3.Implies(z3.And(place >= 0, place < held.length), as_term(equal(held.at(place), partial.at(place))))
        proof.show("the lowest parts", same, [*there, *facts_of((held,), same)], direct=True)
    draw = random.Random(10_000)  # noqa: S311
    for _ in range(300):
        ledgers = tuple([draw.randrange(4) for _ in range(draw.randint(1, 4))])
        plain = Config(max_ranges=draw.randrange(4), max_batch_records=draw.randrange(3))
        memory = Acks(0, draw.getrandbits(sum(ledgers) or 1) & ((1 << sum(ledgers)) - 1), ())
        found = state.capped(plain, ledgers, memory)
        count, all_ranges = (ranges_in(ledgers, each.deleted) for each in (found, memory))
        fits = count == min(plain.max_ranges, all_ranges) and found.deleted & ~memory.deleted == 0
        proof.run(f"{memory.deleted:b} in {ledgers}", fits, (plain.max_ranges, found.deleted))
    return proof.answer()


def ranges_in(ledgers: tuple[int, ...], deleted: int) -> int:
    """How many ranges there are, each in one ledger: counted entry by entry."""
    count, n = 0, 0
    for entries in ledgers:
        was = False
        for _ in range(entries):
            now = bool(deleted >> n & 1)
            count += now and not was
            was, n = now, n + 1
    return count


@claim(
    "a-recovery-invents-nothing",
    "z3",
    "For batches of any size, masks of any length and any entries: a cursor that recovers from a record, which has the "
    "mark of memory, some of its deleted entries and some of its parts (as a-record-keeps-to-its-caps shows), whether "
    "parts count then or not, has left every message that was left in memory.",
    Control(
        "where parts do not count any more, the first entry behind the mark is taken for deleted",
        "model.batch_acks.machine",
        "acks = settled(durable if batch_acks else durable._replace(partial=()))",
        "acks = settled(durable._replace(first_unacked=durable.first_unacked + (not batch_acks)))",
        refutes="what was left is left",
    ),
)
def recovery_invents_nothing() -> Answer:
    """After a crash messages may come again; none may be lost: PIP-54."""
    it = Cursor()
    has = it.acks.fields["partial"].fields["has"]
    bit = z3.Int("(bit)")
    some = [
        bitmasks.made(bit, z3.And(of[bit], z3.Const(name, bitmasks.MASK)[bit]))
        for of, name in ((it.acks.fields["deleted"], "deleted in the record"), (has, "parts in the record"))
    ]
    record = it.acks.replace({"deleted": some[0], "partial": it.acks.fields["partial"].replace({"has": some[1]})})
    s, batch_acks = unknown(State, "s"), z3.Bool("parts count")
    known = it.sound(it.e)
    for way in Reader(known, stubs=it.stubs).paths(model.recovered, s, record, batch_acks):
        after, there = way.value.fields["acks"], [*known, *way.when, *it.learnt]
        it.proof.possible("a recovery", there)
        back = z3.Implies(it.is_left(it.acks, it.e, it.i), it.is_left(after, it.e, it.i))
        it.proof.show("what was left is left", back, there, direct=True)
    up_to_is_as_said(it.proof)
    map_is_the_list(it.proof)
    draw = random.Random(55)  # noqa: S311
    for plain, acks, _, _mask in acknowledgements(300):
        cfg = plain._replace(max_ranges=draw.randrange(3), max_batch_records=draw.randrange(3))
        found = model.recovered(state.start(cfg), state.capped(cfg, (6,), acks), draw.random() < 0.5).acks
        kept = all(left_of(cfg, acks, n) & ~left_of(cfg, found, n) == 0 for n in range(6))
        it.proof.run(f"{acks}", kept, found)
    return it.proof.answer()


claims = (record_keeps_caps, recovery_invents_nothing)
