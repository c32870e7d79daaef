"""Claims about counts, the slowest position and the grace period, for any number of cursors.

The count of a cursor (`rank_of`) is a sum over all cursors. Claims about it are proved by induction over the index of
the cursor. Cursors are sorted by name, and names are unique.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.induction import Induction, Invariant, Names
from invariants.proofs.symbolic import (
    INDEX,
    ITERATED,
    Maybe,
    Path,
    Reader,
    Rec,
    RecursiveSum,
    Seq,
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


def is_ordered(one: Rec, other: Rec, order: str = "<=") -> Any:
    """Returns whether two positions are in this order; by default, the first is at the second or before it."""
    return ordered(order, one, other)


class Cursors:
    """An unconstrained state; `i`, `j` and `m` are three of its cursors, each with an index and a name."""

    def __init__(self) -> None:
        self.proof = Proof()
        self.cfg, self.s = unknown(Config, "cfg"), unknown(State, "s")
        self.cursors: Seq = self.s.fields["cursors"]
        self.indices = {name: z3.Int(name) for name in ("i", "j", "m")}
        self.names = {name: z3.Int(f"name of {name}") for name in self.indices}
        self.reader = Reader(stubs={model.find: self._found, model.with_cursor: self._with})

    def _found(self, s: Rec, name: Any) -> Maybe:
        """Stub of `find`; `found_by_name` proves that `find` returns the cursor of the name."""
        # the index of the cursor with this name; for any other name, an arbitrary index
        index, *_ = [*[self.indices[each] for each, of in self.names.items() if of.eq(name)], z3.FreshInt("index")]
        return Maybe(z3.BoolVal(True), s.fields["cursors"].at(index))

    def _with(self, s: Rec, new: Rec) -> Seq:
        """Stub of `with_cursor` for the name of `m`; `replaced_by_name` proves that the two have the same result."""
        cursors: Seq = s.fields["cursors"]
        return cursors.replaced(self.indices["m"], new)

    def inside(self, *names: str) -> list[Any]:
        """Returns the condition that the indices of these cursors are in range."""
        return [z3.And(self.indices[n] >= 0, self.indices[n] < self.cursors.length) for n in names]

    def position(self, name: str, s: Rec | None = None) -> Maybe:
        """Returns the position of a cursor."""
        position: Maybe = (s or self.s).fields["cursors"].at(self.indices[name]).fields["position"]
        return position

    def rank(self, name: str, s: Rec | None = None) -> tuple[Any, RecursiveSum]:
        """Returns the result of `rank_of` for a cursor, and the sum that it equals if the cursor is tracked."""
        rank = self.reader.call(model.rank_of, s or self.s, self.names[name])
        return as_term(rank), self.reader.filtered[-1].recursive_sum()

    def by_induction(
        self, what: str, relation: Callable[[Any], Any], sums: Sequence[RecursiveSum], given: list[Any]
    ) -> Any:
        """Proves a relation of sums up to an index by induction over the index. Returns the relation of whole sums."""
        n, none = z3.Int("n"), z3.IntVal(0)
        begun = [each.before(0) == 0 for each in sums]
        self.proof.lemma(f"{what}, of no cursors", relation(none), [*given, *begun])
        known_here = [*given, n >= 0, n < self.cursors.length, *[fact for each in sums for fact in each.facts(n)]]
        self.proof.possible(f"one cursor more where {what}", [*known_here, relation(n)])
        self.proof.show(f"{what}, of one cursor more", relation(n + 1), [*known_here, relation(n)])
        return relation(self.cursors.length)


# ---- names ------------------------------------------------------------------------------------------------


def by_name(cursors: Seq) -> Invariant:
    """Returns the invariant that cursors are sorted by name, and names are unique."""

    def ordered(_: Names, one: Any, other: Any) -> Any:
        inside = z3.And(one >= 0, one < other, other < cursors.length)
        return z3.Implies(inside, _name_at(cursors, one) < _name_at(cursors, other))

    return Invariant("names are in order", ordered, 2)


def _name_at(cursors: Seq, index: Any) -> Any:
    return cursors.at(as_term(index)).fields["cursor"]


def found_by_name(it: Cursors) -> None:
    """Proves that `find` returns the cursor of a known name, as its stub does."""
    name, index = it.names["i"], it.indices["i"]
    head = {"s": it.s, "cursor": name, ITERATED: it.cursors, INDEX: z3.Int("at")}
    for path in _returns(it, model.find, head, "i", lambda other: other != name):
        is_it = equal(path.value, it.cursors.at(index))
        it.proof.show("the cursor of a name", as_term(is_it), [*path.when, *_named(it, "i", head)])


def replaced_by_name(it: Cursors) -> None:
    """Proves that `with_cursor` replaces the cursor of the same name, as its stub does."""
    new, index, at = unknown(Cursor, "new", item=True), it.indices["m"], z3.Int("any0")
    head = {"s": it.s, "new": new, "cursors": it.cursors, "name": new.fields["cursor"], ITERATED: it.cursors}
    head[INDEX], name = z3.Int("at"), new.fields["cursor"]
    for path in _returns(it, model.with_cursor, head, "m", lambda other: other < name, name):
        wanted = it.cursors.replaced(index, new)
        same = z3.Implies(z3.And(at >= 0, at < wanted.length), as_term(equal(path.value.at(at), wanted.at(at))))
        goal = z3.And(path.value.length == wanted.length, same)
        it.proof.show("a replaced cursor", goal, [*path.when, *_named(it, "m", head, name)])


def _named(it: Cursors, which: str, head: Names, name: Any = None) -> list[Any]:
    """Returns two facts about a cursor: it has its name, and names are sorted at its index and the loop's index."""
    index = it.indices[which]
    name = it.names[which] if name is None else name
    ordered = by_name(it.cursors)
    pairs = [ordered.holds(head, index, head[INDEX]), ordered.holds(head, head[INDEX], index)]
    return [*it.inside(which), _name_at(it.cursors, index) == name, *pairs]


def _returns(
    it: Cursors, function: Callable[..., Any], head: Names, which: str, passed: Callable[[Any], Any], name: Any = None
) -> list[Path]:
    """Proves that a search by name finds the cursor `which`, and that all cursors it skips have `passed` names.

    Returns the paths that return from the loop.
    """
    index = it.indices[which]

    def so_far(n: Names, i: Any) -> Any:
        inside = z3.And(n[INDEX] >= 0, n[INDEX] <= it.cursors.length)
        return z3.And(inside, z3.Implies(z3.And(i >= 0, i < n[INDEX]), passed(_name_at(it.cursors, i))))

    loop = Reader([head[INDEX] >= 0]).loop(function)
    induction = Induction(it.proof, loop, head, [Invariant("skipped cursors have other names", so_far, 1)])
    induction.base_case(loop.begin(it.s, head["new"] if "new" in head else head["cursor"]))
    end, *paths = induction.step_case()
    # by contradiction: the loop does not end with the cursor skipped
    known_there = [*end.when, *_named(it, which, head, name), so_far(head, index)]
    it.proof.show(f"{function.__name__} finds the name", z3.BoolVal(False), known_there)
    return [path.also(so_far(head, index)) for path in paths]


# ---- counts ------------------------------------------------------------------------------------------------


@claim(
    "count-includes-own-cursor-and-those-before",
    "z3",
    "For any number of cursors: the count of a tracked cursor is one more than the number of other tracked cursors at "
    "its position or before; the count of an untracked cursor is 0.",
    Control(
        "only cursors before the position are counted",
        MODEL,
        "return sum([1 for p in positions(s) if p <= own])",
        "return sum([1 for p in positions(s) if p < own])",
        refutes="a count includes the others and the cursor itself, of one cursor more",
    ),
)
def rank_counts() -> Answer:
    """PIP-430, "Expected Read Count", `getNumberOfCursorsAtSamePositionOrBefore`."""
    it = Cursors()
    found_by_name(it)
    rank, total = it.rank("i")
    own, index = it.position("i"), it.indices["i"]

    def other(at: Any) -> tuple[Any, list[Any]]:
        position = it.cursors.at(at).fields["position"]
        return z3.If(z3.And(at != index, position.defined, is_ordered(position.value, own.value)), 1, 0), []

    others = RecursiveSum("others", it.cursors.length, other)
    given = [*it.inside("i"), own.defined]
    counted = it.by_induction(
        "a count includes the others and the cursor itself",
        lambda n: total.before(n) == others.before(n) + z3.If(n > index, 1, 0),
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


def _against_sums(it: Cursors, total: RecursiveSum) -> None:
    """Compares the sum, evaluated for random states, with `rank_of`."""
    at = z3.Int("(index)")
    step = evaluator(total.step(at)[0])
    for s in states(60):
        bound: dict[str, Any] = {}
        bind(State, "s", s, bound)
        for index, c in enumerate(s.cursors):
            if c.position is not None:
                steps = [step({**bound, "i": index, "(index)": n}) for n in range(len(s.cursors))]
                it.proof.compare(f"rank of {c.cursor} in {plain(s)}", sum(steps), model.rank_of(s, c.cursor))


@claim(
    "counts-increase-with-positions",
    "z3",
    "For any number of cursors: of two tracked cursors, the one with the smaller position has the smaller count, and "
    "two cursors at one position have equal counts.",
    Control(
        "all cursors at other positions are counted",
        MODEL,
        "return sum([1 for p in positions(s) if p <= own])",
        "return sum([1 for p in positions(s) if p != own])",
        refutes="a count at a larger position is larger, of one cursor more",
    ),
)
def ranks_follow() -> Answer:
    """Javadoc of `ActiveManagedCursorContainer`: cursors at the same position have the same number."""
    it = Cursors()
    (low, of_low), (high, of_high) = it.rank("i"), it.rank("j")
    one, other = it.position("i"), it.position("j")
    given = [*it.inside("i", "j"), one.defined, other.defined]
    equals = [*given, as_term(equal(one.value, other.value))]
    sums = [of_low, of_high]
    same = it.by_induction(
        "counts at one position are equal", lambda n: of_low.before(n) == of_high.before(n), sums, equals
    )
    it.proof.show("two at one position", low == high, [*equals, same])
    before = [*given, is_ordered(one.value, other.value, "<")]
    more = it.by_induction(
        "a count at a larger position is larger",
        lambda n: of_low.before(n) + z3.If(n > it.indices["j"], 1, 0) <= of_high.before(n),
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
    "move-changes-other-counts-by-at-most-one",
    "z3",
    "For any number of cursors in the container 'definition', if updates start tracking: an accepted update of one "
    "cursor, also to or from no position, increases the count of another tracked cursor by one if the new position is "
    "at or before that cursor and the old one is not, decreases the count by one in the opposite case, and otherwise "
    "keeps it.",
    Control(
        "the cursor's old position is kept beside its new one",
        MODEL,
        "return cursors[:i] + (new,) + cursors[i + (c.cursor == name) :]",
        "return cursors[:i] + (new,) + cursors[i + (c.cursor > name) :]",
        refutes="a replaced cursor",
    ),
)
def moves_change_by_one() -> Answer:
    """PIP-430; `ActiveManagedCursorContainerImpl` applies these changes lazily."""
    it = Cursors()
    replaced_by_name(it)
    new = unknown(Position | None, "new position")
    given = [*it.inside("i", "m"), it.indices["i"] != it.indices["m"], it.position("i").defined]
    given.append(as_term(equal(it.cfg.fields["container"], "definition")))
    given.append(it.cfg.fields["update_starts_tracking"])
    rank, before = it.rank("i")
    paths = it.reader.paths(model.update_cursor, it.cfg, it.s, it.names["m"], new, when=given)
    old, own = it.position("m"), it.position("i").value
    changed = 0
    for path in paths:
        after = path.value[0]
        if after is it.s:
            continue
        changed += 1
        rank_then, then = it.rank("i", after)
        # 1 if the position counts for cursor i, else 0
        at_old, at_new = (z3.If(z3.And(p.defined, is_ordered(p.value, own)), 1, 0) for p in (old, new))
        relation = _moved(then, before, it.indices["m"], at_new - at_old)
        counted = it.by_induction("a count after a move", relation, [before, then], path.when)
        it.proof.show("after a move", rank_then == rank + at_new - at_old, [*path.when, counted])
    it.proof.need("a path moves a cursor", changed > 0)
    for cfg, s, mover, position in updates(300):
        after, _ = model.update_cursor(cfg, s, mover.cursor, position)
        for c in s.cursors:
            if c is not mover and c.position is not None:
                was, now = (p is not None and p <= c.position for p in (mover.position, position))
                expected = model.rank_of(s, c.cursor) + now - was
                here = f"rank of {c.cursor} when {mover.cursor} moves to {position}"
                it.proof.run(here, model.rank_of(after, c.cursor) == expected, plain(s))
    return it.proof.answer()


def _moved(then: RecursiveSum, was: RecursiveSum, mover: Any, by: Any) -> Callable[[Any], Any]:
    """Returns the relation that the sums up to an index differ by `by` if they include the cursor at index `mover`."""
    return lambda n: then.before(n) == was.before(n) + z3.If(n > mover, by, 0)


# ---- slowest position and grace period --------------------------------------------------------------------


@claim(
    "slowest-position-is-minimum",
    "z3",
    "For any number of cursors in the container 'definition': the slowest position is the position of a tracked cursor "
    "and at or before that of every tracked cursor; it is None only if no cursor is tracked.",
    Control(
        "the largest position is returned",
        MODEL,
        "return min(positions(s), default=None)",
        "return max(positions(s), default=None)",
        refutes="no tracked cursor is before it",
    ),
    proves=("slowest_position_is_smallest_tracked_position",),
)
def slowest_is_least() -> Answer:
    """`getSlowestCursorPosition`; all active cursors have read the entries before it."""
    it = Cursors()
    index = z3.Int("index")
    given = [as_term(equal(it.cfg.fields["container"], "definition"))]
    [path] = it.reader.paths(model.slowest_position, it.cfg, it.s, when=given)
    after, slowest = path.value
    it.proof.need("the query leaves the state unchanged", after is it.s)
    [(where, fact)] = it.reader.filtered[-1].firsts
    position = it.cursors.at(index).fields["position"]
    inside = [index >= 0, index < it.cursors.length, position.defined, *path.when, fact(index)]
    it.proof.possible("a tracked cursor", inside)
    it.proof.show("the slowest position is defined", slowest.defined, inside)
    it.proof.show("no tracked cursor is before it", is_ordered(slowest.value, position.value), inside)
    at = it.cursors.at(where).fields["position"]
    attained = z3.And(where >= 0, where < it.cursors.length, at.defined, as_term(equal(at.value, slowest.value)))
    it.proof.show("a tracked cursor is at it", z3.Implies(slowest.defined, attained), [*path.when, fact(where)])
    for s in states(300):
        slowest_one = model.slowest_position(Config(), s)[1]
        tracked = [c.position for c in s.cursors if c.position is not None]
        holds = all(slowest_one <= p for p in tracked) and slowest_one in tracked if tracked else slowest_one is None
        it.proof.run(f"the slowest {slowest_one}", holds, plain(s))
    return it.proof.answer()


@claim(
    "grace-period-is-exclusive",
    "z3",
    "For every grace period and all times from the last removal on: with cursors, added entries are always cached. "
    "Without cursors, they are cached while less than the grace period has passed since the last removal. They are "
    "not cached if the grace period is 0 or less, or if the container has no grace period.",
    Control(
        "entries are still cached when exactly the grace period has passed",
        MODEL,
        "s.now_ms - s.last_removal_ms < cfg.grace_ms",
        "s.now_ms - s.last_removal_ms <= cfg.grace_ms",
        refutes="added entries are cached",
    ),
)
def grace_is_strict() -> Answer:
    """managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis."""
    it = Cursors()
    grace, now, since = it.cfg.fields["grace_ms"], it.s.fields["now_ms"], it.s.fields["last_removal_ms"]
    [path] = it.reader.paths(model.should_cache_added_entries, it.cfg, it.s)
    after, cached = path.value
    it.proof.need("the query leaves the state unchanged", after is it.s)
    has_grace = it.cfg.fields["has_grace_period"]
    inside = z3.And(has_grace, grace >= 1, now < since + grace)
    given = [now >= since, it.cursors.length >= 0]
    wanted = z3.Or(it.cursors.length > 0, inside)
    it.proof.show("added entries are cached", as_term(cached) == wanted, given, direct=True)
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


# ---- random cursors --------------------------------------------------------------------------------------


def states(count: int) -> Iterator[State]:
    """Yields states of up to six cursors, tracked or not; always the same sequence."""
    draw = random.Random(430)  # noqa: S311
    for _ in range(count):
        names = sorted(draw.sample(range(8), draw.randint(0, 6)))
        offsets = [draw.choice((None, *range(4))) for _ in names]
        cursors = tuple(
            Cursor(name, None if offset is None else Position(1 + offset // 3, offset % 3), False, number)
            for number, (name, offset) in enumerate(zip(names, offsets, strict=True), 1)
        )
        yield model.start(Config())._replace(cursors=cursors, next_object=len(cursors) + 1)


def updates(count: int) -> Iterator[tuple[Config, State, Cursor, Position | None]]:
    """Yields states with one of their cursors and its new position."""
    draw = random.Random(431)  # noqa: S311
    for s in states(count):
        if s.cursors:
            offset = draw.choice((None, *range(4)))
            to = None if offset is None else Position(1 + offset // 3, offset % 3)
            yield Config(), s, draw.choice(s.cursors), to


def plain(s: State) -> list[tuple[int, list[int] | None]]:
    """Returns names and positions, for messages."""
    return [(c.cursor, None if c.position is None else c.position.as_plain()) for c in s.cursors]
