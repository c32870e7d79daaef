"""Claims about ranks, the slowest position and the grace period, for any number of cursors.

A rank is a sum over all cursors. What is claimed of it is shown place by place: it holds of the sum over no cursors,
and of one cursor more if it holds so far. Cursors are found by name, and no two have one name.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.induction import Induction, Invariant, Names
from invariants.proofs.symbolic import (
    AT,
    OVER,
    Maybe,
    Path,
    Reader,
    Rec,
    Seq,
    Tally,
    as_term,
    bind,
    equal,
    evaluate,
    evaluator,
    ordered,
    unknown,
)
from model.active_cursors import machine as model
from model.active_cursors.machine import Config, Cursor, State
from model.positions import Position

MODEL = "model.active_cursors.machine"


def is_before(one: Rec, other: Rec, order: str = "<=") -> Any:
    """Whether a position is at another or before it (with another order: strictly before it)."""
    return ordered(order, one, other)


class Cursors:
    """Any cursors, some of them known by where they stand: `i`, `j` and `m` are both names and places."""

    def __init__(self) -> None:
        self.proof = Proof()
        self.cfg, self.s = unknown(Config, "cfg"), unknown(State, "s")
        self.cursors: Seq = self.s.fields["cursors"]
        self.places = {name: z3.Int(name) for name in ("i", "j", "m")}
        self.names = {name: z3.Int(f"name of {name}") for name in self.places}
        self.reader = Reader(stubs={model.find: self._found, model.with_cursor: self._with})

    def _found(self, s: Rec, name: Any) -> Maybe:
        """Stands in for `find`, which gives the cursor of the name: `found_by_name` shows it."""
        place, *_ = [*[self.places[each] for each, of in self.names.items() if of.eq(name)], z3.FreshInt("place")]
        return Maybe(z3.BoolVal(True), s.fields["cursors"].at(place))

    def _with(self, s: Rec, new: Rec) -> Seq:
        """Stands in for `with_cursor` where the name of `m` has a cursor: `put_in_its_place` shows it."""
        cursors: Seq = s.fields["cursors"]
        return cursors.replaced(self.places["m"], new)

    def inside(self, *names: str) -> list[Any]:
        """The places of these are inside."""
        return [z3.And(self.places[n] >= 0, self.places[n] < self.cursors.length) for n in names]

    def position(self, name: str, s: Rec | None = None) -> Maybe:
        """Where a cursor stands."""
        position: Maybe = (s or self.s).fields["cursors"].at(self.places[name]).fields["position"]
        return position

    def rank(self, name: str, s: Rec | None = None) -> tuple[Any, Tally]:
        """The rank of a cursor as the rule says it, and the sum that it is if the cursor is tracked."""
        said = self.reader.call(model.rank_of, s or self.s, self.names[name])
        return as_term(said), self.reader.chosen[-1].tally()

    def everywhere(self, what: str, relation: Callable[[Any], Any], sums: Sequence[Tally], given: list[Any]) -> Any:
        """Shows a relation of sums for the cursors before any place; what it says of all of them is returned."""
        n, none = z3.Int("n"), z3.IntVal(0)
        begun = [each.upto(0) == 0 for each in sums]
        self.proof.lemma(f"{what}, of no cursors", relation(none), [*given, *begun])
        known_here = [*given, n >= 0, n < self.cursors.length, *[fact for each in sums for fact in each.facts(n)]]
        self.proof.possible(f"one cursor more where {what}", [*known_here, relation(n)])
        self.proof.show(f"{what}, of one cursor more", relation(n + 1), [*known_here, relation(n)])
        return relation(self.cursors.length)


# ---- names ------------------------------------------------------------------------------------------------


def by_name(cursors: Seq) -> Invariant:
    """Cursors stand in the order of their names, each name once."""

    def ordered(_: Names, one: Any, other: Any) -> Any:
        inside = z3.And(one >= 0, one < other, other < cursors.length)
        return z3.Implies(inside, _name_at(cursors, one) < _name_at(cursors, other))

    return Invariant("names are in order", ordered, 2)


def _name_at(cursors: Seq, place: Any) -> Any:
    return cursors.at(as_term(place)).fields["cursor"]


def found_by_name(it: Cursors) -> None:
    """`find` gives the cursor of a name that there is, and so the stand-in."""
    name, place = it.names["i"], it.places["i"]
    head = {"s": it.s, "cursor": name, OVER: it.cursors, AT: z3.Int("at")}
    for way in _returns(it, model.find, head, "i", lambda other: other != name):
        there = equal(way.value, it.cursors.at(place))
        it.proof.show("the cursor of a name", as_term(there), [*way.when, *_named(it, "i", head)])


def put_in_its_place(it: Cursors) -> None:
    """`with_cursor` puts a cursor in the place of the one that has its name, and so the stand-in."""
    new, place, at = unknown(Cursor, "new", item=True), it.places["m"], z3.Int("any0")
    head = {"s": it.s, "new": new, "cursors": it.cursors, "name": new.fields["cursor"], OVER: it.cursors}
    head[AT], name = z3.Int("at"), new.fields["cursor"]
    for way in _returns(it, model.with_cursor, head, "m", lambda other: other < name, name):
        wanted = it.cursors.replaced(place, new)
        same = z3.Implies(z3.And(at >= 0, at < wanted.length), as_term(equal(way.value.at(at), wanted.at(at))))
        goal = z3.And(way.value.length == wanted.length, same)
        it.proof.show("a cursor in the place of another", goal, [*way.when, *_named(it, "m", head, name)])


def _named(it: Cursors, which: str, head: Names, name: Any = None) -> list[Any]:
    """The name is at its place, and the order of names says so of the place that a loop has come to."""
    place = it.places[which]
    name = it.names[which] if name is None else name
    ordered = by_name(it.cursors)
    pairs = [ordered.holds(head, place, head[AT]), ordered.holds(head, head[AT], place)]
    return [*it.inside(which), _name_at(it.cursors, place) == name, *pairs]


def _returns(
    it: Cursors, function: Callable[..., Any], head: Names, which: str, passed: Callable[[Any], Any], name: Any = None
) -> list[Path]:
    """The ways out of a search, which passes only what is `passed`, and which never comes to its end."""
    place = it.places[which]

    def so_far(n: Names, i: Any) -> Any:
        inside = z3.And(n[AT] >= 0, n[AT] <= it.cursors.length)
        return z3.And(inside, z3.Implies(z3.And(i >= 0, i < n[AT]), passed(_name_at(it.cursors, i))))

    loop = Reader([head[AT] >= 0]).loop(function)
    induction = Induction(it.proof, loop, head, [Invariant("what is passed is another", so_far, 1)])
    induction.begins(loop.begin(it.s, head["new"] if "new" in head else head["cursor"]))
    end, *ways = induction.goes_round()
    known_there = [*end.when, *_named(it, which, head, name), so_far(head, place)]
    it.proof.show(f"{function.__name__} finds the name", z3.BoolVal(False), known_there)
    return [way.also(so_far(head, place)) for way in ways]


# ---- ranks ------------------------------------------------------------------------------------------------


@claim(
    "a-rank-counts-oneself-and-the-others",
    "z3",
    "For any number of cursors, in the order of their names: the rank of a tracked cursor is one more than the number "
    "of other tracked cursors that stand at its position or before it; that of a cursor that is not tracked is 0.",
    Control(
        "only those before the cursor count",
        MODEL,
        "return sum([1 for p in positions(s) if p <= own])",
        "return sum([1 for p in positions(s) if p < own])",
        refutes="a rank counts the others and oneself, of one cursor more",
    ),
)
def rank_counts() -> Answer:
    """The "Expected Read Count" strategy of PIP-430: an entry is expected to be read by whoever has not passed it."""
    it = Cursors()
    found_by_name(it)
    rank, total = it.rank("i")
    own, place = it.position("i"), it.places["i"]

    def other(at: Any) -> tuple[Any, list[Any]]:
        there = it.cursors.at(at).fields["position"]
        return z3.If(z3.And(at != place, there.defined, is_before(there.value, own.value)), 1, 0), []

    others = Tally("others", it.cursors.length, other)
    given = [*it.inside("i"), own.defined]
    counted = it.everywhere(
        "a rank counts the others and oneself",
        lambda n: total.upto(n) == others.upto(n) + z3.If(n > place, 1, 0),
        [total, others],
        given,
    )
    it.proof.show("the rank", rank == 1 + others.whole(), [*given, counted])
    it.proof.show("untracked", z3.Implies(z3.Not(own.defined), rank == 0), it.inside("i"))
    _against_sums(it, total)
    for s in states(300):
        for c in s.cursors:
            beside = [o.position for o in s.cursors if o is not c and o.position is not None]
            expected = 0 if c.position is None else 1 + len([p for p in beside if p <= c.position])
            it.proof.run(f"rank of {c.cursor}", model.rank_of(s, c.cursor) == expected, plain(s))
    return it.proof.answer()


def _against_sums(it: Cursors, total: Tally) -> None:
    """Compares the sum, step by step, with what the rule runs to."""
    at = z3.Int("(place)")
    step = evaluator(total.step(at)[0])
    for s in states(60):
        bound: dict[str, Any] = {}
        bind(State, "s", s, bound)
        for place, c in enumerate(s.cursors):
            if c.position is not None:
                steps = [step({**bound, "i": place, "(place)": n}) for n in range(len(s.cursors))]
                it.proof.compare(f"rank of {c.cursor} in {plain(s)}", sum(steps), model.rank_of(s, c.cursor))


@claim(
    "ranks-follow-positions",
    "z3",
    "For any number of cursors: of two tracked cursors, the one whose position is smaller has the smaller rank, and "
    "two at one position have the same rank.",
    Control(
        "those at the cursor's position do not count, but all others do",
        MODEL,
        "return sum([1 for p in positions(s) if p <= own])",
        "return sum([1 for p in positions(s) if p != own])",
        refutes="a rank further on is larger, of one cursor more",
    ),
)
def ranks_follow() -> Answer:
    """All cursors at one position get the same number: the interface of PIP-430's container says so."""
    it = Cursors()
    (low, of_low), (high, of_high) = it.rank("i"), it.rank("j")
    one, other = it.position("i"), it.position("j")
    given = [*it.inside("i", "j"), one.defined, other.defined]
    equals = [*given, as_term(equal(one.value, other.value))]
    sums = [of_low, of_high]
    same = it.everywhere(
        "ranks at one position are the same", lambda n: of_low.upto(n) == of_high.upto(n), sums, equals
    )
    it.proof.show("two at one position", low == high, [*equals, same])
    before = [*given, is_before(one.value, other.value, "<")]
    more = it.everywhere(
        "a rank further on is larger",
        lambda n: of_low.upto(n) + z3.If(n > it.places["j"], 1, 0) <= of_high.upto(n),
        sums,
        before,
    )
    it.proof.show("one before the other", low < high, [*before, more])
    for s in states(300):
        pairs = [(c.position, model.rank_of(s, c.cursor)) for c in s.cursors if c.position is not None]
        follow = all((p < q) == (a < b) for p, a in pairs for q, b in pairs)
        it.proof.run(f"positions and ranks {pairs}", follow, plain(s))
    return it.proof.answer()


@claim(
    "a-move-changes-another-rank-by-one-at-most",
    "z3",
    "For any number of cursors, kept as the definition says: when one of them moves, or is no longer tracked, or "
    "begins to be, the rank of each other that is tracked grows by one if the mover comes from behind it, or from "
    "nowhere, to its position or before it; it shrinks by one the other way round; and else it stays.",
    Control(
        "the cursor's old position stays beside its new one",
        MODEL,
        "return cursors[:i] + (new,) + cursors[i + (c.cursor == name) :]",
        "return cursors[:i] + (new,) + cursors[i + (c.cursor > name) :]",
        refutes="a cursor in the place of another",
    ),
)
def moves_change_by_one() -> Answer:
    """PIP-430's container tells each cursor's number at any time; its shipped list works these changes out lazily."""
    it = Cursors()
    put_in_its_place(it)
    new = unknown(Position | None, "new position")
    given = [*it.inside("i", "m"), it.places["i"] != it.places["m"], it.position("i").defined]
    given.append(as_term(equal(it.cfg.fields["container"], "definition")))
    given.append(it.cfg.fields["update_starts_tracking"])
    rank, before = it.rank("i")
    ways = it.reader.paths(model.update_cursor, it.cfg, it.s, it.names["m"], new, when=given)
    old, own = it.position("m"), it.position("i").value
    changed = 0
    for way in ways:
        after = way.value[0]
        if after is it.s:
            continue
        changed += 1
        rank_then, then = it.rank("i", after)
        here, there = (z3.If(z3.And(p.defined, is_before(p.value, own)), 1, 0) for p in (old, new))
        relation = _moved(then, before, it.places["m"], there - here)
        counted = it.everywhere("a rank after a move", relation, [before, then], way.when)
        it.proof.show("after a move", rank_then == rank + there - here, [*way.when, counted])
    it.proof.need("an update moves nobody", changed > 0)
    for cfg, s, mover, position in updates(300):
        after, _ = model.update_cursor(cfg, s, mover.cursor, position)
        for c in s.cursors:
            if c is not mover and c.position is not None:
                was, now = (p is not None and p <= c.position for p in (mover.position, position))
                expected = model.rank_of(s, c.cursor) + now - was
                here = f"rank of {c.cursor} when {mover.cursor} moves to {position}"
                it.proof.run(here, model.rank_of(after, c.cursor) == expected, plain(s))
    return it.proof.answer()


def _moved(then: Tally, before: Tally, mover: Any, by: Any) -> Callable[[Any], Any]:
    return lambda n: then.upto(n) == before.upto(n) + z3.If(n > mover, by, 0)


# ---- the slowest, and the grace period --------------------------------------------------------------------


@claim(
    "the-slowest-is-the-minimum",
    "z3",
    "For any number of cursors: the slowest position is at or before that of every tracked cursor, a tracked cursor "
    "stands there, and there is none only if no cursor is tracked; where the cursors are kept as the definition says.",
    Control(
        "the fastest is given",
        MODEL,
        "return min(positions(s), default=None)",
        "return max(positions(s), default=None)",
        refutes="nobody is before it",
    ),
)
def slowest_is_least() -> Answer:
    """What lies before the slowest position is read by everybody: it decides what may go."""
    it = Cursors()
    place = z3.Int("place")
    given = [as_term(equal(it.cfg.fields["container"], "definition"))]
    [way] = it.reader.paths(model.slowest_position, it.cfg, it.s, when=given)
    after, slowest = way.value
    it.proof.need("asking changes the cursors", after is it.s)
    [(where, fact)] = it.reader.chosen[-1].firsts
    there = it.cursors.at(place).fields["position"]
    inside = [place >= 0, place < it.cursors.length, there.defined, *way.when, fact(place)]
    it.proof.possible("a tracked cursor", inside)
    it.proof.show("there is a slowest", slowest.defined, inside)
    it.proof.show("nobody is before it", is_before(slowest.value, there.value), inside)
    at = it.cursors.at(where).fields["position"]
    attained = z3.And(where >= 0, where < it.cursors.length, at.defined, as_term(equal(at.value, slowest.value)))
    it.proof.show("somebody stands there", z3.Implies(slowest.defined, attained), [*way.when, fact(where)])
    for s in states(300):
        slowest_one = model.slowest_position(Config(), s)[1]
        tracked = [c.position for c in s.cursors if c.position is not None]
        holds = all(slowest_one <= p for p in tracked) and slowest_one in tracked if tracked else slowest_one is None
        it.proof.run(f"the slowest {slowest_one}", holds, plain(s))
    return it.proof.answer()


@claim(
    "the-grace-period-is-strict",
    "z3",
    "For every grace period and all times: without cursors, new entries are cached just until as many milliseconds "
    "have passed since the last removal as the grace period has, and not at that moment; not at all if it is 0 or "
    "less, or under a rule without grace period; and with cursors always.",
    Control(
        "the grace period's last millisecond is one more",
        MODEL,
        "s.now_ms - s.last_removal_ms < cfg.grace_ms",
        "s.now_ms - s.last_removal_ms <= cfg.grace_ms",
        refutes="what is cached",
    ),
)
def grace_is_strict() -> Answer:
    """managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis, of which -1 is twice the TTL."""
    it = Cursors()
    grace, now, since = it.cfg.fields["grace_ms"], it.s.fields["now_ms"], it.s.fields["last_removal_ms"]
    [way] = it.reader.paths(model.should_cache_added_entries, it.cfg, it.s)
    after, cached = way.value
    it.proof.need("asking changes something", after is it.s)
    has_grace = it.cfg.fields["has_grace_period"]
    inside = z3.And(has_grace, grace >= 1, now < since + grace)
    given = [now >= since, it.cursors.length >= 0]
    wanted = z3.Or(it.cursors.length > 0, inside)
    it.proof.show("what is cached", as_term(cached) == wanted, given, direct=True)
    off = z3.And(z3.Or(grace <= 0, z3.Not(has_grace)), it.cursors.length == 0)
    it.proof.show("switched off", z3.Implies(off, z3.Not(as_term(cached))), given, direct=True)
    draw = random.Random(2000)  # noqa: S311
    for _ in range(200):
        cfg = Config(grace_ms=draw.choice((-1, 0, 1, 2, 5)), has_grace_period=draw.random() < 0.8)
        s = model.start(Config())
        s = s._replace(now_ms=draw.randint(0, 6))
        bound: dict[str, Any] = {}
        bind(Config, "cfg", cfg, bound)
        bind(State, "s", s, bound)
        program = model.should_cache_added_entries(cfg, s)[1]
        it.proof.compare(f"{s.now_ms} of {cfg.grace_ms}", evaluate(cached, bound), program)
    return it.proof.answer()


# ---- running cursors --------------------------------------------------------------------------------------


def states(count: int) -> Iterator[State]:
    """States of up to six cursors, tracked or not, always the same."""
    draw = random.Random(430)  # noqa: S311
    for _ in range(count):
        names = sorted(draw.sample(range(8), draw.randint(0, 6)))
        spots = [draw.choice((None, *range(4))) for _ in names]
        cursors = tuple(
            Cursor(name, None if spot is None else Position(1 + spot // 3, spot % 3), False, number)
            for number, (name, spot) in enumerate(zip(names, spots, strict=True), 1)
        )
        yield model.start(Config())._replace(cursors=cursors, next_object=len(cursors) + 1)


def updates(count: int) -> Iterator[tuple[Config, State, Cursor, Position | None]]:
    """States with one of their cursors, and where it goes."""
    draw = random.Random(431)  # noqa: S311
    for s in states(count):
        if s.cursors:
            spot = draw.choice((None, *range(4)))
            to = None if spot is None else Position(1 + spot // 3, spot % 3)
            yield Config(), s, draw.choice(s.cursors), to


def plain(s: State) -> list[tuple[int, list[int] | None]]:
    """Names and positions, as a person reads them."""
    return [(c.cursor, None if c.position is None else c.position.as_plain()) for c in s.cursors]


claims = (rank_counts, ranks_follow, moves_change_by_one, slowest_is_least, grace_is_strict)
