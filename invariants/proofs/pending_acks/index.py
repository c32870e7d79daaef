"""Claims about the sparse index of the pending-ack log: its keys are in order, and it trims nothing too early.

The log is any: of each of its entries the last entry of the topic is known that it acknowledges, or that there is none.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.symbolic import Reader, Rec, Seq, Tally, as_term, lifted, unknown
from model.pending_acks import log_index as model
from model.pending_acks import machine as pending_acks
from model.pending_acks import state as pending_acks_state
from model.pending_acks.log_index import LogIndex
from model.pending_acks.state import Config, State

MODEL = "model.pending_acks.log_index"
#: the last entry of the topic that an entry of the log acknowledges; -1: none
LAST = z3.Function("last ack", z3.IntSort(), z3.IntSort())


def in_order(keys: Seq, p: Any, q: Any) -> Any:
    """Of two keys, the first one is the lower in both columns."""
    one, other = keys.at(p).fields, keys.at(q).fields
    inside = z3.And(p >= 0, p < q, q < keys.length)
    return z3.Implies(inside, z3.And(one["entry"] < other["entry"], one["at"] < other["at"]))


class Index:
    """Any index over the first entries of a log, of which `end` were counted; places of keys, and one of the log."""

    def __init__(self) -> None:
        self.proof, self.cfg = Proof(), lifted(Config())
        self.index: Rec = unknown(LogIndex, "index")
        self.keys: Seq = self.index.fields["keys"]
        self.p, self.q, self.j, self.end = z3.Ints("p q j end")
        self.mark, self.min_lag, self.records = z3.Ints("mark min_lag records")
        self.known = [self.keys.length >= 0, self.min_lag >= 1, self.records >= 1, self.end >= 0]

    def holds(self, index: Rec, end: Any, log: Any, p: Any, q: Any, j: Any) -> Any:
        """The invariant, of two keys and one entry of the log."""
        keys: Seq = index.fields["keys"]
        key, newest = keys.at(p).fields, index.fields["max_ack"]
        inside = z3.And(p >= 0, p < keys.length)
        counted = z3.And(j >= 0, j < end)
        return z3.And(
            in_order(keys, p, q),
            z3.Implies(inside, z3.And(key["entry"] <= newest, key["at"] >= 0, key["at"] < end)),
            z3.Implies(z3.And(inside, counted, j <= key["at"]), log(j) <= key["entry"]),
            z3.Implies(counted, log(j) <= newest),
        )

    def assumed(self, places: Sequence[Any], entries: Sequence[Any]) -> list[Any]:
        """The invariant, of the places and entries that a step looks at."""
        held = [self.holds(self.index, self.end, LAST, p, q, j) for p in places for q in places for j in entries]
        return [*self.known, *held]

    def counted(self) -> Iterator[tuple[Rec, list[Any]]]:
        """One more entry of the log, at its end: the index after it, and what holds."""
        last, n = LAST(self.end), self.keys.length
        given = self.assumed((self.p, self.q, n - 1), (self.j,))
        reader = Reader(self.known)
        for way in reader.paths(model.counted, self.min_lag, self.index, self.records, last, self.end):
            yield way.value, [*given, *way.when, last >= -1]

    def cleared(self) -> Iterator[tuple[Rec, Any, list[Any]]]:
        """The mark of the topic has moved: the index then, how much of the log goes, and what holds."""
        reader = Reader(self.known)
        for way in reader.paths(model.cleared, self.min_lag, self.index, self.mark):
            count = reader.sums[0]
            gone = count.whole()
            places = (self.p, self.q, self.p + gone, self.q + gone, gone - 1)
            index, trimmed = way.value[0], as_term(way.value[1])
            given = self.assumed(places, (self.j, self.j + trimmed))
            before = [gone >= 0, *[self._is_prefix(count, self.keys.length, place) for place in places]]
            yield index, trimmed, [*given, *way.when, *before]

    def _is_prefix(self, count: Tally, upto: Any, place: Any) -> Any:
        """Of the keys up to some place, those that are counted are the first, as many as are counted."""
        is_counted = count.step(place)[0] == 1
        inside = z3.And(place >= 0, place < upto)
        return z3.Implies(inside, is_counted == (place < count.upto(upto)))

    def count_is_the_place(self) -> None:
        """Shows, key by key, that of keys in order the first ones are those that the mark counts."""
        reader, n, k = Reader(self.known), z3.Int("n"), z3.Int("k")
        reader.paths(model.cleared, self.min_lag, self.index, self.mark)
        count = reader.sums[0]

        def so_far(upto: Any, place: Any) -> Any:
            return z3.And(count.upto(upto) >= 0, count.upto(upto) <= upto, self._is_prefix(count, upto, place))

        places = (k, n, count.upto(n))
        given = [n >= 0, n < self.keys.length, *count.facts(n), *[so_far(n, place) for place in places]]
        given += [in_order(self.keys, p, q) for p in places for q in places]
        self.proof.possible("a key", given)
        self.proof.show("no key", so_far(z3.IntVal(0), k), count.facts(n))
        self.proof.show("one more key", so_far(n + 1, k), given)


class Run(NamedTuple):
    """An index after some entries of a log and some moves of the mark."""

    said: str
    after: LogIndex
    log: tuple[int, ...]  # what is left of it: of each entry the last acknowledgement
    lost: tuple[int, ...]  # what went
    mark: int


def runs(count: int) -> Iterator[Run]:
    """Random logs, each step by step; always the same."""
    draw = random.Random(153)  # noqa: S311
    for _ in range(count):
        min_lag = draw.choice((1, 1, 2, 5))
        index, mark, steps = model.empty_index(min_lag), 0, ""
        log: tuple[int, ...] = ()
        for _ in range(12):
            last = draw.randrange(-1, 6)
            index = model.counted(min_lag, index, draw.randint(1, 3), last, len(log))
            log = (*log, last)
            mark += draw.choice((0, 0, 1, 2))
            index, trimmed = model.cleared(min_lag, index, mark)
            steps += f"{last} "
            yield Run(f"{steps}up to {mark}", index, log[trimmed:], log[:trimmed], mark)
            log = log[trimmed:]


@claim(
    "keys-of-the-index-are-in-order",
    "z3",
    "For any log, any lag and any moves of the topic's mark: of two keys of the index the first one has the lower "
    "entry of the topic and the lower entry of the log; so a mark finds the keys before it in front.",
    Control(
        "a key has the last acknowledgement of its own entry of the log",
        MODEL,
        "keys = (*keys, Key(max_ack, at))",
        "keys = (*keys, Key(entry, at))",
    ),
)
def keys_are_in_order() -> Answer:
    """PIP-153: the index is two columns, of which each grows."""
    it = Index()
    it.count_is_the_place()
    for index, there in it.counted():
        it.proof.possible("one more entry of the log", there)
        it.proof.show("one more key", in_order(index.fields["keys"], it.p, it.q), there, direct=True)
    for index, _, there in it.cleared():
        it.proof.show("fewer keys", in_order(index.fields["keys"], it.p, it.q), there, direct=True)
    for run in runs(40):
        keys = run.after.keys
        columns = [key.entry for key in keys], [key.at for key in keys]
        it.proof.run(run.said, all(list(each) == sorted(set(each)) for each in columns), keys)
    return it.proof.answer()


@claim(
    "what-is-trimmed-is-acknowledged",
    "z3",
    "For any log, any lag and any moves of the topic's durable mark: every acknowledgement in the part of the log that "
    "goes is of an entry of the topic before the mark, so that no replay needs it; and the index of what is left says "
    "of each key what holds of what is left.",
    Control(
        "the key at the mark goes, too",
        MODEL,
        "gone = sum([key.entry < mark for key in index.keys])",
        "gone = sum([key.entry <= mark for key in index.keys])",
    ),
)
def trimmed_is_acknowledged() -> Answer:
    """PIP-153: the log may be deleted up to a key whose acknowledgements are all up to the mark-delete position."""
    it = Index()
    it.count_is_the_place()
    _mark_is_the_durable_one(it)
    p, q, j = it.p, it.q, it.j
    empty: Rec = lifted(model.empty_index(1))
    nothing = empty.replace({"keys": Seq.empty(model.Key)})
    it.proof.show("an empty index", it.holds(nothing, z3.IntVal(0), LAST, p, q, j))
    for index, there in it.counted():
        it.proof.show("one more entry", it.holds(index, it.end + 1, LAST, p, q, j), [*there, LAST(it.end) >= -1])
    for index, trimmed, there in it.cleared():
        it.proof.possible("a move of the mark", there)
        lost = z3.Implies(z3.And(j >= 0, j < trimmed), LAST(j) < it.mark)
        it.proof.show("what goes is acknowledged", lost, there)
        it.proof.show("nothing after the end goes", z3.And(trimmed >= 0, trimmed <= it.end), there)
        rest = it.holds(index, it.end - trimmed, lambda at, by=trimmed: LAST(at + by), p, q, j)
        it.proof.show("the index of what is left", rest, there)
    for run in runs(60):
        first = all(last < run.mark for last in run.lost)
        said = all(last <= key.entry for key in run.after.keys for last in run.log[: key.at + 1])
        it.proof.run(run.said, first and said, (run.lost, run.after.keys))
    return it.proof.answer()


def _mark_is_the_durable_one(it: Index) -> None:
    """Shows that the log is trimmed by what storage has of the topic's mark, and counts its entries as they are."""
    asked: list[tuple[str, tuple[Any, ...]]] = []
    last, gone = z3.Int("last"), z3.Int("gone")
    found: Rec = unknown(LogIndex, "found")

    def counted(*arguments: Any) -> Rec:
        asked.append(("counted", arguments))
        return found

    def cleared(*arguments: Any) -> tuple[Rec, Any]:
        asked.append(("cleared", arguments))
        return found, gone

    stubs: Any = {
        model.counted: counted,
        model.cleared: cleared,
        pending_acks_state.last_ack: lambda entry: last,
        pending_acks_state.trimmed: lambda s, index, count: s,
    }
    s, entry = unknown(State, "s"), Seq.unknown(pending_acks_state.Record, "entry")
    Reader(stubs=stubs).paths(pending_acks.indexed, it.cfg, s, entry, it.end)
    by_name = dict(asked)
    _, _, records, entry_, at = by_name["counted"]
    _, index, mark = by_name["cleared"]
    same = z3.And(records == entry.length, entry_ == last, at == it.end, mark == s.fields["durable"].fields["mark"])
    it.proof.show("what is counted, and up to where it is cleared", same, direct=True)
    it.proof.need("what was counted is cleared", index is found and len(asked) == 2)


claims: Sequence[Any] = (keys_are_in_order, trimmed_is_acknowledged)
