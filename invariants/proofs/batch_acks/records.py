"""Claims about cursor records: what a record contains, and what a recovery from a record acknowledges."""

from __future__ import annotations

import random
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.induction import facts_of
from invariants.proofs.shared.cursor import Cursor, left_of, random_acks, run_map_against_list, show_with_mark_delete_at
from invariants.proofs.shared.lowest_ranges import LowestRanges
from invariants.proofs.symbolic import Reader, as_term, bitmasks, equal, lifted, unknown
from model.batch_acks import machine as model
from model.batch_acks import state
from model.batch_acks.state import Acks, Config, State

STATE = "model.batch_acks.state"


@claim(
    "record-respects-configured-limits",
    "z3",
    "For any number of entries, ranges and ack sets, and all limits: a record has the mark-delete position of memory, "
    "only entries that are deleted in memory, the lowest ranges up to the limit, and the lowest ack sets up to the "
    "limit, each as in memory. It is tested, not proved, that a cut between two ranges adds no range.",
    Control(
        "a record holds one range more, as shipped",
        STATE,
        "ranges = cfg.max_ranges + (not cfg.range_cap_is_exact)",
        "ranges = cfg.max_ranges + 1",
        refutes="ranges up to the limit",
    ),
)
def record_respects_limits() -> Answer:
    """`managedLedgerMaxUnackedRangesToPersist` and `managedLedgerMaxBatchDeletedIndexToPersist`."""
    proof, index = Proof(), z3.Int("index")
    LowestRanges(proof).show()
    ranges, parts = z3.Ints("ranges parts")
    cfg = lifted(Config()).replace({"max_ranges": ranges, "max_ack_sets": parts})
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
    for path in reader.paths(state.capped, cfg, unknown(tuple[int, ...], "ledgers"), acks):
        record, premises = path.value.fields, [*given, *path.when, only]
        proof.possible("a record", premises)
        proof.show("ranges up to the limit", z3.And(*[most == ranges for most in asked]), premises, direct=True)
        deleted = z3.Implies(record["deleted"][index], acks.fields["deleted"][index])
        proof.show("only deleted entries", deleted, [*premises, index >= 0])
        proof.show(
            "the mark-delete position", record["first_unacked"] == acks.fields["first_unacked"], premises, direct=True
        )
        held = record["partial"]
        fitting = z3.If(partial.length < parts, partial.length, parts)
        proof.show("ack sets up to the limit", held.length == fitting, premises, direct=True)
        same = z3.Implies(z3.And(index >= 0, index < held.length), as_term(equal(held.at(index), partial.at(index))))
        proof.show("the lowest ack sets", same, [*premises, *facts_of((held,), same)], direct=True)
    draw = random.Random(10_000)  # noqa: S311
    for _ in range(300):
        ledgers = tuple([draw.randrange(4) for _ in range(draw.randint(1, 4))])
        plain = Config(max_ranges=draw.randrange(4), max_ack_sets=draw.randrange(3))
        memory = Acks(0, draw.getrandbits(sum(ledgers) or 1) & ((1 << sum(ledgers)) - 1), ())
        found = state.capped(plain, ledgers, memory)
        count, all_ranges = (ranges_in(ledgers, each.deleted) for each in (found, memory))
        fits = count == min(plain.max_ranges, all_ranges) and found.deleted & ~memory.deleted == 0
        proof.run(f"{memory.deleted:b} in {ledgers}", fits, (plain.max_ranges, found.deleted))
    return proof.answer()


def ranges_in(ledgers: tuple[int, ...], deleted: int) -> int:
    """Returns the number of ranges, each within one ledger, counted entry by entry."""
    count, n = 0, 0
    for entries in ledgers:
        was = False
        for _ in range(entries):
            now = bool(deleted >> n & 1)
            count += now and not was
            was, n = now, n + 1
    return count


@claim(
    "recovery-invents-no-acknowledgement",
    "z3",
    "For batches of any size, ack sets of any length and any entries: a record has the mark-delete position of memory, "
    "and some of the deleted entries and ack sets of memory (see record-respects-configured-limits). After recovery "
    "from such a record, with or without batch-index acks, every message that was unacknowledged in memory is "
    "unacknowledged.",
    Control(
        "without batch-index acks, recovery deletes the entry after the mark-delete position",
        "model.batch_acks.machine",
        "acks = with_mark_delete_advanced(durable if batch_acks else durable._replace(partial=()))",
        "acks = with_mark_delete_advanced(durable._replace(first_unacked=durable.first_unacked + (not batch_acks)))",
        refutes="unacknowledged messages stay unacknowledged",
    ),
)
def recovery_invents_nothing() -> Answer:
    """`ManagedCursorImpl.recover` (PIP-54): acks may be lost in a crash, messages may not."""
    it = Cursor()
    has = it.acks.fields["partial"].fields["has"]
    bit = z3.Int("(bit)")
    some = [
        bitmasks.satisfying(bit, z3.And(of[bit], z3.Const(name, bitmasks.MASK)[bit]))
        for of, name in ((it.acks.fields["deleted"], "deleted in the record"), (has, "ack sets in the record"))
    ]
    record = it.acks.replace({"deleted": some[0], "partial": it.acks.fields["partial"].replace({"has": some[1]})})
    s, batch_acks = unknown(State, "s"), z3.Bool("batch-index acks")
    known = it.valid(it.e)
    for path in Reader(known, stubs=it.stubs).paths(model.recovered, s, record, batch_acks):
        after, premises = path.value.fields["acks"], [*known, *path.when, *it.facts]
        it.proof.possible("a recovery", premises)
        stays = z3.Implies(it.is_left(it.acks, it.e, it.i), it.is_left(after, it.e, it.i))
        it.proof.show("unacknowledged messages stay unacknowledged", stays, premises, direct=True)
    show_with_mark_delete_at(it.proof)
    run_map_against_list(it.proof)
    draw = random.Random(55)  # noqa: S311
    for plain, acks, _, _mask in random_acks(300):
        cfg = plain._replace(max_ranges=draw.randrange(3), max_ack_sets=draw.randrange(3))
        found = model.recovered(state.start(cfg), state.capped(cfg, (6,), acks), draw.random() < 0.5).acks
        kept = all(left_of(cfg, acks, n) & ~left_of(cfg, found, n) == 0 for n in range(6))
        it.proof.run(f"{acks}", kept, found)
    return it.proof.answer()
