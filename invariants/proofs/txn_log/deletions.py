"""Claims about deletions in a transaction log: one record of an entry, all of them, and what a record of them keeps.

Entries have any number of records, masks any length. The list of partly deleted entries is taken as a map; see
`shared/cursor.py`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.shared.cursor import SIZE, Cursor, Parts, map_is_the_list, up_to_is_as_said
from invariants.proofs.shared.lowest_ranges import Lowest
from invariants.proofs.symbolic import AT, Loop, Maybe, Reader, Rec, Seq, as_term, bitmasks, lifted, unknown
from model import ack_set as sets
from model.batch_acks import state as cursor
from model.batch_acks.state import Acks, Partial
from model.txn_log import state as model
from model.txn_log.state import Config, Place, Record, State

STATE = "model.txn_log.state"

#: what makes words of masks and masks of words: here a mask is both
AS_MASKS: dict[Callable[..., Any], Callable[..., Any]] = {
    sets.all_of: bitmasks.below,
    sets.words_of: lambda mask: mask,
    sets.mask_of: lambda words: words.value if isinstance(words, Maybe) else words,
}


class Records(NamedTuple):
    """An entry of the log, of which only the number of its records is looked at."""

    records: int

    @staticmethod
    def length_of(entry: Rec) -> Any:
        """How many records it has."""
        return entry.fields["records"]


def masks_are_words(proof: Proof) -> None:
    """Runs what there are stand-ins for, and the ack sets of records by the bits of their words."""
    draw = random.Random(160)  # noqa: S311
    for size in (*range(2, 70), 128, 129, 1000):
        at = draw.randrange(size)
        words = model.ack_set_of(size, at) or ()
        bits = [i for i in range(64 * len(words)) if words[i // 64] >> i % 64 & 1]
        proof.run(f"record {at} of {size}", bits == [i for i in range(size) if i != at], words)
        mask = draw.getrandbits(size)
        proof.compare(f"words of {mask}", sets.mask_of(sets.words_of(mask)), mask)
        proof.compare(f"all of {size}", sets.all_of(size), sum(1 << i for i in range(size)))


@claim(
    "an-ack-set-deletes-one-record",
    "z3",
    "For an entry of any number of records and any one of them: the ack set that deletes it has the bits of all other "
    "records set, and no others; an entry of one record is deleted whole, and no other is.",
    Control(
        "the bit of the record is set, and not those of the others",
        STATE,
        "words_of(all_of(size) & ~(1 << index))",
        "words_of(1 << index)",
    ),
)
def ack_set_deletes_one() -> Answer:
    """PIP-160 deletes the records of a transaction by their index in the batch; in an ack set of PIP-54 a set bit is a
    message that is left, which apache/pulsar#16685 had the other way round.
    """
    proof = Proof()
    size, at, i = z3.Ints("size at i")
    known = [size >= 1, at >= 0, at < size]
    for way in Reader(known, stubs=AS_MASKS).paths(model.ack_set_of, size, at):
        given = way.value
        there = [*known, *way.when]
        proof.possible("a record of an entry", there)
        is_part = given.defined if isinstance(given, Maybe) else z3.BoolVal(given is not None)
        proof.show("whole if it is alone", is_part == (size > 1), there, direct=True)
        mask = given.value if isinstance(given, Maybe) else given
        bits = z3.Implies(is_part, mask[i] == z3.And(i >= 0, i < size, i != at))
        proof.show("all bits but one", bits, there, direct=True)
    masks_are_words(proof)
    return proof.answer()


class Deletions:
    """The loop that deletes records in any state of a log."""

    def __init__(self) -> None:
        self.it = Cursor()
        self.cfg, self.log = lifted(Config()), Seq.unknown(Records, "log")
        self.places = Seq.unknown(Place, "places")
        parts = {
            "has": bitmasks.unknown_mask("had"),
            "left": z3.Const("left before", z3.ArraySort(z3.IntSort(), bitmasks.MASK)),
        }
        had = {
            "mark": z3.Int("first mark"),
            "deleted": bitmasks.unknown_mask("deleted before"),
            "partial": Rec(Parts, parts),
        }
        self.before = Rec(Acks, had)  # `it.acks` are those anywhere in the loop
        self.s: Rec = unknown(State, "s").replace({"acks": self.before, "log": self.log})
        at = z3.Int("k")
        self.place = self.places.at(at).fields
        entry, index = self.place["entry"], self.place["at"]
        known = [at >= 0, at < self.places.length, *self.it.sound(entry, self.it.e)]
        known += [*self.inside(entry), *self.inside(self.it.e), index >= 0, index < self.size(entry)]
        self.known = [*known, self.it.acks.fields["mark"] >= self.s.fields["first"]]
        self.at = at
        left_alone = {cursor.what_it_leaves, cursor.size_of}
        stubs = {each: of for each, of in self.it.stubs.items() if each not in left_alone}
        self.reader = Reader(self.known, stubs={**stubs, **AS_MASKS})
        self.loop: Loop = self.reader.loop(model.with_deleted)

    def size(self, entry: Any) -> Any:
        """How many records an entry has."""
        return self.log.at(entry - self.s.fields["first"]).fields["records"]

    def inside(self, entry: Any) -> list[Any]:
        """It is an entry of the log, and the cursor knows its size from there."""
        first = self.s.fields["first"]
        there = [entry >= first, entry < first + self.log.length, SIZE(entry) == self.size(entry)]
        return [*there, first >= 0, self.size(entry) >= 1]


@claim(
    "an-entry-goes-with-its-last-record",
    "z3",
    "For any log, entries of any number of records and any list of records to delete, in any order and one of them "
    "several times: each deletes itself and nothing else, so that after all of them exactly the others are left; and "
    "an entry is deleted exactly when no record of it is left, be the log batched or not.",
    Control(
        "the record at the end of an entry takes the entry along",
        STATE,
        "return None if size == 1 else",
        "return None if index == size - 1 else",
    ),
)
def entry_goes_with_last_record() -> Answer:
    """PIP-160: an entry may be deleted when all transactions of its records have ended."""
    d = Deletions()
    it, proof = d.it, d.it.proof
    e, i = it.e, it.i
    entry, index = d.place["entry"], d.place["at"]
    bit = z3.Int("(any bit)")

    def gone_when_none_left(acks: Rec) -> Any:
        some = z3.Exists([bit], z3.And(bit >= 0, it.is_left(acks, e, bit)))
        return it.deleted(acks, e) == z3.Not(some)

    begins = [way for way in d.loop.begin(d.cfg, d.s, d.places) if way.how == "next"]
    proof.need("the loop is reached", len(begins) == 1)
    for way in begins:
        proof.need("it begins with what is deleted", way.names["acks"] is d.before)
        for round_ in d.loop.round({**way.names, "acks": it.acks, AT: d.at}, [*d.known, *way.when]):
            after, there = round_.names["acks"], [*d.known, *round_.when]
            proof.possible("a deletion", there)
            is_it = z3.And(e == entry, i == index)
            left = it.is_left(after, e, i) == z3.And(it.is_left(it.acks, e, i), z3.Not(is_it))
            proof.show("exactly the record is deleted", left, there, direct=True)
            proof.show("what is known makes sense", it.sense(after, e), there)
            proof.show("an entry is deleted when nothing is left", gone_when_none_left(after), there, direct=True)
        for end in d.loop.end({**way.names, "acks": it.acks}, [*d.known, *way.when]):
            after, there = end.value.fields["acks"], [*d.known, *end.when, *it.learnt]
            proof.show(
                "the mark moves over deleted entries", it.is_left(after, e, i) == it.is_left(it.acks, e, i), there
            )
    map_is_the_list(proof)
    up_to_is_as_said(proof)
    draw = random.Random(31)  # noqa: S311
    for _ in range(200):
        _run_of_deletions(proof, draw)
    return proof.answer()


def _run_of_deletions(proof: Proof, draw: random.Random) -> None:
    """Deletes records of a log at random, one after the other."""
    cfg = Config(max_records=draw.choice((0, 2)))
    sizes = [draw.choice((1, 2, 3, 65)) for _ in range(draw.randint(1, 4))]
    log = tuple([tuple([Record(1, "NEW", 1)] * size) for size in sizes])
    s = model.start(cfg)._replace(log=log, ledgers=(len(log),), batching=draw.random() < 0.5)
    all_of_them = [Place(n, at) for n, size in enumerate(sizes) for at in range(size)]
    order = draw.sample(all_of_them, draw.randrange(len(all_of_them) + 1))
    done: set[Place] = set()
    for place in order:
        s = model.with_deleted(cfg, s, (place, *([place] if draw.random() < 0.1 else [])))
        done.add(place)
        left = [sum(1 << at for at in range(size) if (n, at) not in done) for n, size in enumerate(sizes)]
        found = [model.live_of(s.acks, n, size) for n, size in enumerate(sizes)]
        gone = [n for n in range(len(sizes)) if cursor.is_deleted(s.acks, n)]
        same = found == left and gone == [n for n, mask in enumerate(left) if not mask]
        proof.run(f"{sorted(done)} of {sizes}", same, found)


# ---- what a record of the cursor keeps ----------------------------------------------------------------


class Kept:
    """Any deletions, any caps, and the record of the cursor that `snapshot` makes of them."""

    def __init__(self) -> None:
        self.proof = Proof()
        ranges, parts, cut = z3.Ints("ranges parts cut")
        self.cfg = lifted(Config()).replace({"max_ranges": ranges, "max_batch_records": parts})
        self.acks: Rec = unknown(Acks, "acks").replace({"deleted": bitmasks.unknown_mask("deleted")})
        self.partial: Seq = self.acks.fields["partial"]
        self.one, self.other = z3.Ints("one other")  # entries
        self.known = [ranges >= 0, parts >= 0, self.acks.fields["mark"] >= 0, self.partial.length >= 0]
        self.known += [self.one >= 0, self.other >= self.one]
        self.firsts: list[Any] = []
        bit = z3.Int("(bit)")
        kept = bitmasks.made(bit, z3.And(self.acks.fields["deleted"][bit], bit < cut))
        stubs: dict[Callable[..., Any], Callable[..., Any]] = {
            **AS_MASKS,
            cursor.lowest_ranges: lambda ledgers, deleted, most: kept,
            sets.first_of: self._first_of,
        }
        self.reader = Reader(self.known, stubs=stubs)

    def _first_of(self, mask: Any) -> Any:
        """Stands in for the first bit of a mask that has any."""
        first = z3.Int(f"first#{len(self.firsts)}")
        before = [z3.Implies(z3.And(n >= 0, n < first), z3.Not(mask[n])) for n in (self.one, self.other)]
        self.firsts.append(z3.Implies(mask != bitmasks.NONE, z3.And(first >= 0, mask[first], *before)))
        return first

    def whole(self, acks: Rec, entry: Any) -> Any:
        """Whether an entry is deleted."""
        return z3.Or(entry < acks.fields["mark"], acks.fields["deleted"][entry])

    def in_order(self, *places: Any) -> list[Any]:
        """The parts in memory are in order of entries."""
        entry = {p.get_id(): self.partial.at(p).fields["entry"] for p in places}
        return [
            z3.Implies(z3.And(p >= 0, p < q, q < self.partial.length), entry[p.get_id()] < entry[q.get_id()])
            for p, q in itertools.permutations(places, 2)
        ]


def _is_kept(record: Rec, partial: Seq, place: Any) -> tuple[Any, list[Any]]:
    """Whether the part at a place in memory is in a record, and what is known of that."""
    kept: Seq = record.fields["partial"]
    if kept.origin is None:
        return z3.And(place >= 0, place < kept.length), []
    chosen, item, known = kept.origin.look(place)
    same = item.fields["remaining"] == partial.at(place).fields["remaining"]
    return z3.And(place >= 0, place < kept.origin.over.length, as_term(chosen), same), known


def lowest_ranges_are_a_beginning(proof: Proof) -> None:
    """Shows that the lowest ranges are the deleted entries before some entry, or all."""
    ranges = Lowest(proof)
    i, j = z3.Ints("i j")
    is_over = z3.Not(ranges.loop.goes_on(ranges.head))
    for way in ranges.loop.end(ranges.head, [is_over]):
        before = z3.Implies(z3.And(way.value[i], j >= 0, j < i, ranges.deleted[j]), way.value[j])
        proof.show(
            "the lowest ranges", z3.And(before, z3.Implies(way.value[i], ranges.deleted[i])), [*way.when, i >= 0]
        )


@claim(
    "a-record-cut-by-its-caps-keeps-the-order",
    "z3",
    "For any deletions, any caps and any two records of the log, of which one stands in an entry before the other's or "
    "in the same: if the cursor's record has the deletion of the later one, it has that of the earlier one, provided "
    "memory has both. So whatever memory deletes at once a restart finds up to some entry: never a transaction's end "
    "without its beginning.",
    Control(
        "ranges and parts are cut each on their own, as shipped",
        STATE,
        'caps_keep: Literal["prefix", "each_its_own"] = "prefix"',
        'caps_keep: Literal["prefix", "each_its_own"] = "each_its_own"',
    ),
)
def caps_keep_the_order() -> Answer:
    """managedLedgerMaxUnackedRangesToPersist and managedLedgerMaxBatchDeletedIndexToPersist cut ranges and parts, and
    a transaction whose end is deleted and whose beginning is not comes back: PIP-160.
    """
    k = Kept()
    proof, acks, partial = k.proof, k.acks, k.partial
    lowest_ranges_are_a_beginning(proof)
    p, q = z3.Ints("p q")  # places of parts in memory
    pairs = ((p, k.one), (q, k.other))
    s = unknown(State, "s").replace({"acks": acks})
    part = {at.get_id(): [at >= 0, at < partial.length, partial.at(at).fields["entry"] == n] for at, n in pairs}
    for way in k.reader.paths(model.snapshot, k.cfg, s):
        record = way.value
        (kept_p, of_p), (kept_q, of_q) = (_is_kept(record, partial, at) for at in (p, q))
        held = record.fields["partial"]
        end = held.length if held.origin is None else held.origin.over.length
        there = [*k.known, *way.when, *k.firsts, *of_p, *of_q, *k.in_order(p, q, end)]
        proof.possible("a record", there)
        later = {"an entry": [k.whole(record, k.other)], "a part": [*part[q.get_id()], kept_q]}
        for name, is_deleted in later.items():
            earlier = z3.Implies(k.whole(acks, k.one), k.whole(record, k.one))
            proof.show(f"{name}, and an entry before it", earlier, [*there, *is_deleted], direct=True)
            given = [*there, *is_deleted, *part[p.get_id()], z3.Not(k.whole(acks, k.one))]
            proof.show(f"{name}, and a part before it", kept_p, given, direct=True)
    draw = random.Random(10_000)  # noqa: S311
    for _ in range(400):
        _run_of_caps(proof, draw)
    return proof.answer()


def _run_of_caps(proof: Proof, draw: random.Random) -> None:
    """Makes a record of deletions at random, by a write and by a close, and looks for a gap in it."""
    count = draw.randint(1, 8)
    mark = draw.randrange(count)
    kinds = [draw.choice(("kept", "part", "whole")) for _ in range(mark + 1, count)]
    deleted = sum(1 << n for n, kind in enumerate(kinds, mark + 1) if kind == "whole")
    parts = [Partial(n, draw.choice((1, 2, 6))) for n, kind in enumerate(kinds, mark + 1) if kind == "part"]
    acks = Acks(mark, deleted, tuple(parts))
    cfg = Config(max_ranges=draw.randrange(4), max_batch_records=draw.randrange(4))
    log = tuple([(Record(1, "NEW", 1),) * 3 for _ in range(count)])
    s = model.start(cfg)._replace(log=log, ledgers=_ledgers(draw, count), acks=acks)
    for record in (model.snapshot(cfg, s), model.closed_cursor(cfg, s)):
        lost = [model.live_of(record, n, 3) & ~model.live_of(acks, n, 3) for n in range(count)]
        found = [model.live_of(record, n, 3) != 7 for n in range(count)]
        first = next((n for n in range(count) if lost[n]), count)
        proof.run(f"{acks} with {cfg.max_ranges}, {cfg.max_batch_records}", not any(found[first:]), record)


def _ledgers(draw: random.Random, count: int) -> tuple[int, ...]:
    """So many entries in some ledgers."""
    first = draw.randrange(count + 1)
    return (first, count - first) if first else (count,)


claims: Sequence[Any] = (ack_set_deletes_one, entry_goes_with_last_record, caps_keep_the_order)
