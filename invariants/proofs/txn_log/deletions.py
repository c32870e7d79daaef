"""Claims about deletions in a transaction log: one record, a list of records, and the truncated cursor record.

Entries have any number of records and masks any length. The proofs represent the list of partially deleted entries by a
map (`shared/cursor.py`).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.shared.cursor import SIZE, AckSetMap, Cursor, run_map_against_list, show_with_mark_delete_at
from invariants.proofs.shared.lowest_ranges import LowestRanges
from invariants.proofs.symbolic import INDEX, Loop, Maybe, Reader, Rec, Seq, as_term, bitmasks, lifted, unknown
from model import ack_set as sets
from model.batch_acks import state as cursor
from model.batch_acks.state import Acks, Partial
from model.txn_log import state as model
from model.txn_log.state import Config, Record, RecordPosition, State

STATE = "model.txn_log.state"

#: stubs of the functions between words and masks: a mask represents both
AS_MASKS: dict[Callable[..., Any], Callable[..., Any]] = {
    sets.bits_below: bitmasks.below,
    sets.words_of: lambda mask: mask,
    sets.mask_of: lambda words: words.value if isinstance(words, Maybe) else words,
}


class Records(NamedTuple):
    """Stands for a log entry; only its number of records is represented."""

    records: int

    @staticmethod
    def length_of(entry: Rec) -> Any:
        """Returns the number of records of an entry."""
        return entry.fields["records"]


def masks_are_words(proof: Proof) -> None:
    """Compares the mask functions with their stubs, and the ack sets of records with the bits of their words."""
    draw = random.Random(160)  # noqa: S311
    for size in (*range(2, 70), 128, 129, 1000):
        at = draw.randrange(size)
        words = model.deletion_ack_set(size, at) or ()
        bits = [i for i in range(64 * len(words)) if words[i // 64] >> i % 64 & 1]
        proof.run(f"record {at} of {size}", bits == [i for i in range(size) if i != at], words)
        mask = draw.getrandbits(size)
        proof.compare(f"words of {mask}", sets.mask_of(sets.words_of(mask)), mask)
        proof.compare(f"all of {size}", sets.bits_below(size), sum(1 << i for i in range(size)))


@claim(
    "ack-set-deletes-exactly-one-record",
    "z3",
    "For any batch size and batch index: the ack set that deletes the record has every bit set except the record's "
    "own. A batch of one record is deleted as a whole entry, and no other batch is.",
    Control(
        "only the bit of the record itself is set",
        STATE,
        "words_of(bits_below(size) & ~(1 << batch_index))",
        "words_of(1 << batch_index)",
        refutes="all bits but one",
    ),
)
def ack_set_deletes_one() -> Answer:
    """PIP-160 deletes the records of a transaction by batch index.

    In an ack set of PIP-54 a set bit is an undeleted message (apache/pulsar#16685).
    """
    proof = Proof()
    size, at, i = z3.Ints("size at i")
    known = [size >= 1, at >= 0, at < size]
    for path in Reader(known, stubs=AS_MASKS).paths(model.deletion_ack_set, size, at):
        given = path.value
        premises = [*known, *path.when]
        proof.possible("a record of an entry", premises)
        is_part = given.defined if isinstance(given, Maybe) else z3.BoolVal(given is not None)
        proof.show("deleted as a whole if it is the only record", is_part == (size > 1), premises, direct=True)
        mask = given.value if isinstance(given, Maybe) else given
        bits = z3.Implies(is_part, mask[i] == z3.And(i >= 0, i < size, i != at))
        proof.show("all bits but one", bits, premises, direct=True)
    masks_are_words(proof)
    return proof.answer()


class Deletions:
    """The loop of `delete_positions`, in any state of a log."""

    def __init__(self) -> None:
        self.it = Cursor()
        self.cfg, self.log = lifted(Config()), Seq.unknown(Records, "log")
        self.positions = Seq.unknown(RecordPosition, "positions")
        parts = {
            "has": bitmasks.unknown_mask("had"),
            "left": z3.Const("left before", z3.ArraySort(z3.IntSort(), bitmasks.MASK)),
        }
        had = {
            "first_unacked": z3.Int("first_unacked"),
            "deleted": bitmasks.unknown_mask("deleted before"),
            "partial": Rec(AckSetMap, parts),
        }
        self.before = Rec(Acks, had)  # the acks before the loop; `it.acks` are the acks at the loop head
        self.s: Rec = unknown(State, "s").replace({"acks": self.before, "log": self.log})
        at = z3.Int("k")
        self.position = self.positions.at(at).fields
        entry, index = self.position["entry"], self.position["batch_index"]
        known = [at >= 0, at < self.positions.length, *self.it.valid(entry, self.it.e)]
        known += [*self.inside(entry), *self.inside(self.it.e), index >= 0, index < self.size(entry)]
        self.known = [*known, self.it.acks.fields["first_unacked"] >= self.s.fields["first_entry"]]
        self.at = at
        not_stubbed = {cursor.requested_mask, cursor.size_of}
        stubs = {each: of for each, of in self.it.stubs.items() if each not in not_stubbed}
        self.reader = Reader(self.known, stubs={**stubs, **AS_MASKS})
        self.loop: Loop = self.reader.loop(model.delete_positions)

    def size(self, entry: Any) -> Any:
        """Returns the number of records of an entry of the log."""
        return self.log.at(entry - self.s.fields["first_entry"]).fields["records"]

    def inside(self, entry: Any) -> list[Any]:
        """Returns the condition that an entry is in the log, and that the cursor has its size."""
        first = self.s.fields["first_entry"]
        in_log = [entry >= first, entry < first + self.log.length, SIZE(entry) == self.size(entry)]
        return [*in_log, first >= 0, self.size(entry) >= 1]


@claim(
    "entry-is-deleted-with-its-last-record",
    "z3",
    "For any log, batch sizes and list of positions, in any order and with duplicates: each position deletes its own "
    "record and no other. An entry is deleted exactly when none of its records remains, whether the log is batched or "
    "not.",
    Control(
        "deleting the last batch index deletes the entry",
        STATE,
        "return None if size == 1 else",
        "return None if batch_index == size - 1 else",
        refutes="exactly the record is deleted",
    ),
)
def entry_is_deleted_with_last_record() -> Answer:
    """PIP-160: an entry can be deleted when all transactions of its records have ended."""
    d = Deletions()
    it, proof = d.it, d.it.proof
    e, i = it.e, it.i
    entry, index = d.position["entry"], d.position["batch_index"]
    bit = z3.Int("(any bit)")

    def gone_when_none_left(acks: Rec) -> Any:
        some = z3.Exists([bit], z3.And(bit >= 0, it.is_left(acks, e, bit)))
        return it.deleted(acks, e) == z3.Not(some)

    begins = [path for path in d.loop.begin(d.cfg, d.s, d.positions) if path.exit == "next"]
    proof.need("the loop is reached", len(begins) == 1)
    for path in begins:
        proof.need("the loop begins with the deletions so far", path.names["acks"] is d.before)
        for one in d.loop.iteration({**path.names, "acks": it.acks, INDEX: d.at}, [*d.known, *path.when]):
            after, premises = one.names["acks"], [*d.known, *one.when]
            proof.possible("a deletion", premises)
            is_it = z3.And(e == entry, i == index)
            left = it.is_left(after, e, i) == z3.And(it.is_left(it.acks, e, i), z3.Not(is_it))
            proof.show("exactly the record is deleted", left, premises, direct=True)
            proof.show("the assumed state is consistent", it.is_consistent(after, e), premises)
            proof.show("an entry is deleted when nothing is left", gone_when_none_left(after), premises, direct=True)
        for end in d.loop.end({**path.names, "acks": it.acks}, [*d.known, *path.when]):
            after, premises = end.value.fields["acks"], [*d.known, *end.when, *it.facts]
            proof.show(
                "the mark-delete position passes deleted entries",
                it.is_left(after, e, i) == it.is_left(it.acks, e, i),
                premises,
            )
    run_map_against_list(proof)
    show_with_mark_delete_at(proof)
    draw = random.Random(31)  # noqa: S311
    for _ in range(200):
        _run_of_deletions(proof, draw)
    return proof.answer()


def _run_of_deletions(proof: Proof, draw: random.Random) -> None:
    """Checks the claim on random records of a log that are deleted one by one."""
    cfg = Config(max_records=draw.choice((0, 2)))
    sizes = [draw.choice((1, 2, 3, 65)) for _ in range(draw.randint(1, 4))]
    log = tuple([tuple([Record(1, "NEW", 1)] * size) for size in sizes])
    s = model.start(cfg)._replace(log=log, ledgers=(len(log),), batching=draw.random() < 0.5)
    all_of_them = [RecordPosition(n, at) for n, size in enumerate(sizes) for at in range(size)]
    order = draw.sample(all_of_them, draw.randrange(len(all_of_them) + 1))
    done: set[RecordPosition] = set()
    for position in order:
        s = model.delete_positions(cfg, s, (position, *([position] if draw.random() < 0.1 else [])))
        done.add(position)
        left = [sum(1 << at for at in range(size) if (n, at) not in done) for n, size in enumerate(sizes)]
        found = [model.remaining_records(s.acks, n, size) for n, size in enumerate(sizes)]
        gone = [n for n in range(len(sizes)) if cursor.is_deleted(s.acks, n)]
        same = found == left and gone == [n for n, mask in enumerate(left) if not mask]
        proof.run(f"{sorted(done)} of {sizes}", same, found)


# ---- what a record of the cursor keeps ----------------------------------------------------------------


class TruncatedRecord:
    """Any deletions, any limits of a cursor record, and the record that `cursor_snapshot` makes of them."""

    def __init__(self) -> None:
        self.proof = Proof()
        ranges, parts, cut = z3.Ints("ranges parts cut")
        self.cfg = lifted(Config()).replace({"max_ranges": ranges, "max_ack_sets": parts})
        self.acks: Rec = unknown(Acks, "acks").replace({"deleted": bitmasks.unknown_mask("deleted")})
        self.partial: Seq = self.acks.fields["partial"]
        self.one, self.other = z3.Ints("one other")  # entries
        self.known = [ranges >= 0, parts >= 0, self.acks.fields["first_unacked"] >= 0, self.partial.length >= 0]
        self.known += [self.one >= 0, self.other >= self.one]
        self.firsts: list[Any] = []
        bit = z3.Int("(bit)")
        kept = bitmasks.satisfying(bit, z3.And(self.acks.fields["deleted"][bit], bit < cut))
        stubs: dict[Callable[..., Any], Callable[..., Any]] = {
            **AS_MASKS,
            cursor.lowest_ranges: lambda ledgers, deleted, most: kept,
            sets.lowest_set_bit: self._first_of,
        }
        self.reader = Reader(self.known, stubs=stubs)

    def _first_of(self, mask: Any) -> Any:
        """Stub of `lowest_set_bit`."""
        first = z3.Int(f"first#{len(self.firsts)}")
        before = [z3.Implies(z3.And(n >= 0, n < first), z3.Not(mask[n])) for n in (self.one, self.other)]
        self.firsts.append(z3.Implies(mask != bitmasks.NONE, z3.And(first >= 0, mask[first], *before)))
        return first

    def whole(self, acks: Rec, entry: Any) -> Any:
        """Returns whether an entry is deleted as a whole."""
        return z3.Or(entry < acks.fields["first_unacked"], acks.fields["deleted"][entry])

    def in_order(self, *positions: Any) -> list[Any]:
        """Returns the condition that the ack sets in memory are ordered by entry."""
        entry = {p.get_id(): self.partial.at(p).fields["entry"] for p in positions}
        return [
            z3.Implies(z3.And(p >= 0, p < q, q < self.partial.length), entry[p.get_id()] < entry[q.get_id()])
            for p, q in itertools.permutations(positions, 2)
        ]


def _is_kept(record: Rec, partial: Seq, index: Any) -> tuple[Any, list[Any]]:
    """Returns whether an ack set in memory is in the cursor record, and facts about that."""
    kept: Seq = record.fields["partial"]
    if kept.origin is None:
        return z3.And(index >= 0, index < kept.length), []
    chosen, item, known = kept.origin.element_at(index)
    same = item.fields["remaining"] == partial.at(index).fields["remaining"]
    return z3.And(index >= 0, index < kept.origin.over.length, as_term(chosen), same), known


def lowest_ranges_are_a_beginning(proof: Proof) -> None:
    """Proves that the lowest ranges have only deleted entries, and all deleted entries below any entry they have."""
    ranges = LowestRanges(proof)
    i, j = z3.Ints("i j")
    is_over = z3.Not(ranges.loop.condition(ranges.head))
    for path in ranges.loop.end(ranges.head, [is_over]):
        before = z3.Implies(z3.And(path.value[i], j >= 0, j < i, ranges.deleted[j]), path.value[j])
        proof.show(
            "the lowest ranges", z3.And(before, z3.Implies(path.value[i], ranges.deleted[i])), [*path.when, i >= 0]
        )


@claim(
    "truncated-cursor-record-preserves-deletion-order",
    "z3",
    "For any deletions, any limits and any two records of the log that are deleted in memory: if the later one is "
    "deleted in the persisted cursor record, so is the earlier one. So a restart never finds a COMMITTED or ABORTED "
    "record deleted without its NEW record.",
    Control(
        "ranges and ack sets are truncated independently, as shipped",
        STATE,
        '] = "prefix"',
        '] = "independent"',
        refutes="an entry, and a part before it",
    ),
)
def caps_keep_the_order() -> Answer:
    """managedLedgerMaxUnackedRangesToPersist and managedLedgerMaxBatchDeletedIndexToPersist truncate ranges and ack
    sets. A transaction whose COMMITTED or ABORTED record stays deleted without its NEW record would be ongoing again.
    """
    k = TruncatedRecord()
    proof, acks, partial = k.proof, k.acks, k.partial
    lowest_ranges_are_a_beginning(proof)
    p, q = z3.Ints("p q")  # indexes of ack sets in memory
    pairs = ((p, k.one), (q, k.other))
    s = unknown(State, "s").replace({"acks": acks})
    part = {at.get_id(): [at >= 0, at < partial.length, partial.at(at).fields["entry"] == n] for at, n in pairs}
    for path in k.reader.paths(model.cursor_snapshot, k.cfg, s):
        record = path.value
        (kept_p, of_p), (kept_q, of_q) = (_is_kept(record, partial, at) for at in (p, q))
        held = record.fields["partial"]
        end = held.length if held.origin is None else held.origin.over.length
        premises = [*k.known, *path.when, *k.firsts, *of_p, *of_q, *k.in_order(p, q, end)]
        proof.possible("a record", premises)
        later = {"an entry": [k.whole(record, k.other)], "a part": [*part[q.get_id()], kept_q]}
        for name, is_deleted in later.items():
            earlier = z3.Implies(k.whole(acks, k.one), k.whole(record, k.one))
            proof.show(f"{name}, and an entry before it", earlier, [*premises, *is_deleted], direct=True)
            given = [*premises, *is_deleted, *part[p.get_id()], z3.Not(k.whole(acks, k.one))]
            proof.show(f"{name}, and a part before it", kept_p, given, direct=True)
    draw = random.Random(10_000)  # noqa: S311
    for _ in range(400):
        _run_of_caps(proof, draw)
    return proof.answer()


def _run_of_caps(proof: Proof, draw: random.Random) -> None:
    """Checks the claim on records of random deletions, made by a write and by a close."""
    count = draw.randint(1, 8)
    first_unacked = draw.randrange(count)
    kinds = [draw.choice(("kept", "part", "whole")) for _ in range(first_unacked + 1, count)]
    deleted = sum(1 << n for n, kind in enumerate(kinds, first_unacked + 1) if kind == "whole")
    parts = [Partial(n, draw.choice((1, 2, 6))) for n, kind in enumerate(kinds, first_unacked + 1) if kind == "part"]
    acks = Acks(first_unacked, deleted, tuple(parts))
    cfg = Config(max_ranges=draw.randrange(4), max_ack_sets=draw.randrange(4))
    log = tuple([(Record(1, "NEW", 1),) * 3 for _ in range(count)])
    s = model.start(cfg)._replace(log=log, ledgers=_ledgers(draw, count), acks=acks)
    for record in (model.cursor_snapshot(cfg, s), model.closed_cursor(cfg, s)):
        lost = [model.remaining_records(record, n, 3) & ~model.remaining_records(acks, n, 3) for n in range(count)]
        found = [model.remaining_records(record, n, 3) != 7 for n in range(count)]
        first = next((n for n in range(count) if lost[n]), count)
        proof.run(f"{acks} with {cfg.max_ranges}, {cfg.max_ack_sets}", not any(found[first:]), record)


def _ledgers(draw: random.Random, count: int) -> tuple[int, ...]:
    """Returns the sizes of one or two ledgers with `count` entries in all."""
    first = draw.randrange(count + 1)
    return (first, count - first) if first else (count,)
