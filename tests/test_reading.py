"""`Reader`, which translates Python functions to Z3 terms: loops, sums, listeners, records in place of tuples."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import pytest
import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Proof
from invariants.proofs.symbolic import Listener, Reader, Seq, UnsupportedError, bind, evaluate, evaluator, unknown


class Pair(NamedTuple):
    """A record for small functions."""

    left: int
    right: int | None


@functools.lru_cache(maxsize=8)
def one_more(n: int) -> int:
    return n + 1


def among(pair: Pair, at: int) -> int:
    first = one_more(pair.left)
    limits = [first] if pair.right is None else [first - 5, first, at]
    limits.append(7)
    return (first, 5, min(limits))[at % 3]


def test_loop_over_known_elements_is_unrolled() -> None:
    paths = Reader().paths(among, unknown(Pair, "pair"), z3.Int("at"))
    assert len(paths) == 2, "lists of different lengths are separate paths"
    for at in range(3):
        for pair in (Pair(1, None), Pair(1, -4), Pair(9, 8)):
            bound: dict[str, Any] = {"at": at}
            bind(Pair, "pair", pair, bound)
            [path] = [path for path in paths if all(evaluator(each)(bound) for each in path.when)]
            assert evaluate(path.value, bound) == among(pair, at)
    with pytest.raises(UnsupportedError, match="cannot show that the index is in range"):
        Reader().call(one_of_two, z3.Int("at"))


def one_of_two(at: int) -> int:
    return (4, 5)[at]


def with_all(pairs: list[Pair]) -> int:
    count = 0
    for left, right in pairs:
        count += left if right is None else right
    return count


def test_a_loop_over_records_takes_them_apart() -> None:
    pairs, at = Seq.unknown(Pair, "pairs"), z3.Int("at")
    loop = Reader([at >= 0]).loop(with_all)
    [begun] = loop.begin(pairs)
    [path] = loop.iteration({**begun.names, "(at)": at, "count": z3.Int("count")}, begun.when)
    item = pairs.at(at).fields
    added = z3.If(item["right"].defined, item["right"].value, item["left"])
    assert Proof().show("one more", path.names["count"] == z3.Int("count") + added, path.when)


def some_or_all(numbers: tuple[int, ...], all_of_them: bool) -> int:
    chosen = numbers if all_of_them else (3,)
    return len(chosen)


def test_a_tuple_that_is_known_may_stand_for_a_sequence() -> None:
    numbers, flag = Seq.unknown(int, "numbers"), z3.Bool("flag")
    [path] = Reader().paths(some_or_all, numbers, flag)
    assert Proof().show("how many", path.value == z3.If(flag, numbers.length, 1), path.when)


def count_above(numbers: tuple[int, ...], least: int) -> int:
    return sum([number > least for number in numbers])


def test_sum_without_measure_grows_step_by_step() -> None:
    numbers, least, n = Seq.unknown(int, "numbers"), z3.Int("least"), z3.Int("n")
    reader, proof = Reader(), Proof()
    [path] = reader.paths(count_above, numbers, least)
    [count] = reader.sums
    assert proof.show("not more than there are", z3.And(path.value >= 0, path.value <= numbers.length), path.when)
    given = [n >= 0, n < numbers.length, *count.facts(n)]
    grows = count.before(n + 1) == count.before(n) + z3.If(numbers.at(n) > least, 1, 0)
    assert proof.show("one more", grows, given)
    assert not proof.show("any number", path.value == 0, path.when)


def scaled(n: int, *, by: int = 2) -> int:
    return n * by


def scaled_twice(n: int) -> int:
    return scaled(scaled(n), by=3)


def test_keywords_are_handed_on() -> None:
    n = z3.Int("n")
    assert evaluate(Reader().call(scaled_twice, n), {"n": 5}) == scaled_twice(5) == 30
    [path] = Reader().paths(scaled, n, named={"by": 7})
    assert evaluate(path.value, {"n": 3}) == scaled(3, by=7)


def tells(pair: Pair, out: Any) -> int:
    out.begin(pair.left)
    if pair.right is None:
        out.numbers.append(pair.left)
        return tells(Pair(*(pair.left, 0)), out)
    parts = (pair.left, pair.right)
    out.numbers += [each + 1 for each in parts]
    return pair.right


def test_listener_records_calls_and_their_paths() -> None:
    out, pair, proof = Listener(), unknown(Pair, "pair"), Proof()
    left, right = pair.fields["left"], pair.fields["right"]
    paths = Reader().paths(tells, pair, out)
    assert len(paths) == 2
    assert [each.arguments for each in out.calls_of("begin")] == [(left,), (left,)], "once for each call"
    [alone] = out.calls_of("numbers.append")
    assert proof.show("where none is", z3.Not(right.defined), alone.when)
    assert [len(each.arguments[0]) for each in out.calls_of("numbers +=")] == [2, 2]
    for call in out.calls_of("numbers +="):
        assert proof.show("one more each", call.arguments[0][0] == left + 1, call.when)


def with_places(numbers: list[int]) -> list[int]:
    return [index + number for index, number in enumerate(numbers)]


def test_comprehension_over_enumerate_is_translated() -> None:
    numbers, at = Seq.unknown(int, "numbers"), z3.Int("at")
    [path] = Reader().paths(with_places, numbers)
    assert Proof().show("a place", path.value.at(at) == at + numbers.at(at), path.when)
    assert evaluate(Reader().call(with_places, (4, 5)), {}) == (4, 6)


def has_above(numbers: tuple[int, ...], least: int) -> bool:
    return any(number > least for number in numbers)


def test_any_has_a_witness() -> None:
    numbers, least, at = Seq.unknown(int, "numbers"), z3.Int("least"), z3.Int("at")
    reader, proof = Reader(), Proof()
    [path] = reader.paths(has_above, numbers, least)
    [of] = reader.any_facts
    none = z3.And(numbers.length == 1, numbers.at(0) <= least)
    assert proof.show("none", z3.Implies(none, z3.Not(path.value)), path.when)
    is_above = z3.And(at >= 0, at < numbers.length, numbers.at(at) > least)
    assert proof.show("one", z3.Implies(is_above, path.value), [*path.when, of.fact(at)])
    assert not proof.show("one that is not looked at", z3.Implies(is_above, path.value), path.when)


class Ends(NamedTuple):
    """Replaces a tuple of which a function reads only the last value."""

    last: int

    @staticmethod
    def item_of(exit_paths: Any, index: int) -> Any:
        """Returns the last value for the index -1, otherwise None."""
        return exit_paths.fields["last"] if index == -1 else None


def last_of_all(rows: tuple[tuple[int, ...], ...]) -> int:
    return rows[-1][-1]


def test_a_record_may_stand_for_a_tuple() -> None:
    rows = Seq.unknown(Ends, "rows")
    last = Reader([rows.length > 0]).call(last_of_all, rows)
    assert last.eq(rows.at(rows.length + -1).fields["last"])


class Row(NamedTuple):
    """A record with a sequence."""

    pairs: tuple[Pair, ...]


def without_first(rows: tuple[Row | None, ...], at: int) -> tuple[Row | None, ...]:
    row = rows[at]
    if row is None or not row.pairs:
        return (*rows[:at], None, *rows[at + 1 :])
    return (*rows[:at], row._replace(pairs=row.pairs[1:]), *rows[at + 1 :])


def test_sequences_inside_elements_have_any_length() -> None:
    rows, at, index, other = unknown(tuple[Row | None, ...], "rows", nested=True), *z3.Ints("at place other")
    proof, gone = Proof(), []
    for path in Reader([at >= 0, at < rows.length]).paths(without_first, rows, at):
        before, after = rows.at(at), path.value.at(at)
        pairs, left = before.value.fields["pairs"], after.value.fields["pairs"]
        inside = [*path.when, index >= 0, index < left.length, after.defined]
        moved = pairs.at(index + 1).fields["left"] == left.at(index).fields["left"]
        assert proof.show("the rest", z3.And(moved, left.length == pairs.length - 1), inside)
        kept = path.value.at(other).value.fields["pairs"].length == rows.at(other).value.fields["pairs"].length
        assert proof.show("another row", kept, [*path.when, other != at, rows.at(other).defined])
        gone.append(proof.show("no row", z3.Not(after.defined), path.when))
    assert sorted(gone) == [False, True]


def all_below(pair: Pair, end: int) -> bool:
    return all(each is None or each < end for each in (pair.left, pair.right))


def test_all_looks_at_each_of_a_known_tuple() -> None:
    term = Reader().call(all_below, unknown(Pair, "pair"), z3.Int("end"))
    for pair in (Pair(1, None), Pair(9, None), Pair(1, 8), Pair(1, 2)):
        bound: dict[str, Any] = {"end": 5}
        bind(Pair, "pair", pair, bound)
        assert evaluate(term, bound) == all_below(pair, 5)
    with pytest.raises(UnsupportedError, match="all of Seq"):
        Reader().call(all_positive, unknown(tuple[int, ...], "numbers"))


def all_positive(numbers: tuple[int, ...]) -> bool:
    return all(each > 0 for each in numbers)


def divided(at: int) -> int:
    return 7 // at


def quotients(items: list[int]) -> list[int]:
    return [7 // each for each in items]


def test_source_that_is_refused_leaves_no_trace_in_the_reader() -> None:
    reader, items = Reader(), Seq.unknown(int, "items")
    for _ in range(30):
        with pytest.raises(UnsupportedError, match="the divisor is not zero"):
            reader.call(divided, z3.Int("at"))
        with pytest.raises(UnsupportedError, match="the divisor is not zero"):
            reader.call(quotients, items).at(z3.Int("i"))
    assert str(reader.fresh(int, "new")).startswith("new#"), "fresh names are no longer those of elements"
    assert len(reader.paths(among, unknown(Pair, "pair"), z3.Int("at"))) == 2
