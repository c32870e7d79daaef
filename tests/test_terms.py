"""`Reader`, which translates Python functions to Z3 terms: terms equal the program, unsupported source is refused."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Proof
from invariants.proofs.range_cache.passes import random_config, random_state
from invariants.proofs.symbolic import (
    Reader,
    Seq,
    UnsupportedError,
    bind,
    bitmasks,
    evaluate,
    evaluator,
    lifted,
    unknown,
)
from model import range_cache as model
from model import watermark
from model.positions import Position
from model.range_cache import Config, Entry, State

# ---- terms and program ------------------------------------------------------------------------------------

_UNKNOWN: dict[str, Any] = {
    "cfg": Config,
    "s": State,
    "e": Entry,
    "slot": Entry | None,
    "count": int | None,
    "position": Position,
    "first": Position,
    "last": Position,
    "flag": bool,
    "number": int,
    "limit": int,
}

DECISIONS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "initial_count": (model.initial_count, ("cfg", "number")),
    "marked_read": (model.marked_read, ("count",)),
    "replayed": (model.replayed, ("count",)),
    "unchanged": (model.unchanged, ("count",)),
    "has_expected_reads": (model.has_expected_reads, ("count",)),
    "should_requeue": (model.should_requeue, ("s", "e")),
    "requeue_count_after": (model.requeue_count_after, ("cfg", "s", "e")),
    "is_expired": (model.is_expired, ("number", "limit")),
    "is_removed_as_expired": (model.is_removed_as_expired, ("cfg", "s", "e")),
    "must_be_stashed": (model.must_be_stashed, ("cfg", "s", "e")),
    "stays_counted": (model.stays_counted, ("cfg", "e")),
    "is_in_range": (model.is_in_range, ("position", "first", "last", "flag")),
    "time_pass_predicate": (model.time_pass_predicate, ("cfg", "s", "slot", "number", "limit")),
    "size_pass_predicate": (model.size_pass_predicate, ("cfg", "s", "slot", "number", "limit")),
}


def drawn(draw: random.Random) -> dict[str, Any]:
    """Returns a value for every kind of argument."""
    s = random_state(draw)
    e = draw.choice([e for e in s.queue if e is not None] or [Entry(0, Position(1, 0), 1, 1, (), 0, 0, True, True)])
    positions = [Position(draw.randint(0, 2), draw.randint(0, 2)) for _ in range(3)]
    return {
        "cfg": random_config(draw)._replace(counts_reads=draw.random() < 0.5),
        "s": s,
        "e": e,
        "slot": draw.choice((e, None)),
        "count": draw.choice((None, -1, 0, 1, 2)),
        **dict(zip(("position", "first", "last"), positions, strict=True)),
        "flag": draw.random() < 0.5,
        "number": draw.randint(-2, 9),
        "limit": draw.randint(-2, 9),
    }


@pytest.mark.parametrize("name", DECISIONS)
def test_the_terms_of_a_decision_are_the_decision(name: str) -> None:
    function, needs = DECISIONS[name]
    terms = Reader().call(function, *[unknown(_UNKNOWN[n], n, item=n in ("e", "slot")) for n in needs])
    draw, seen = random.Random(7), set()
    for _ in range(400):
        values = drawn(draw)
        bound: dict[str, Any] = {}
        for n in needs:
            bind(_UNKNOWN[n], n, values[n], bound, element=n in ("e", "slot"))
        expected = function(*[values[n] for n in needs])
        assert evaluate(terms, bound) == expected
        seen.add(expected)
    assert len(seen) >= 2, "every decision has at least two results"


def test_the_terms_of_the_watermark_round_as_doubles_do() -> None:
    total, most = z3.Ints("total most")
    share = unknown(float, "share")
    terms = Reader().call(watermark.bytes_to_evict, total, most, share)
    draw = random.Random(8)
    for _ in range(400):
        values = {"total": draw.randint(0, 2**60), "most": draw.randint(0, 2**60)}
        part = draw.choice((draw.random(), 0.9, 0.1, 1.0))
        bound: dict[str, Any] = dict(values)
        bind(float, "share", part, bound)
        assert evaluate(terms, bound) == watermark.bytes_to_evict(values["total"], values["most"], part)


def test_sequences_keep_their_sums() -> None:
    draw = random.Random(9)
    for _ in range(40):
        first, second = ([draw.randint(-3, 3) for _ in range(draw.randint(1, 5))] for _ in range(2))
        index, value, cut = draw.randrange(len(first)), draw.randint(-3, 3), draw.randint(0, len(first))
        a, b = (Seq.unknown(int, name, {"it": lambda n: n}) for name in ("a", "b"))
        bound: dict[str, Any] = {}
        for name, numbers in (("a", first), ("b", second)):
            bound |= {f"{name}.length": len(numbers), name: dict(enumerate(numbers))}
            bound[f"{name} sum of it"] = {i: sum(numbers[:i]) for i in range(len(numbers) + 1)}
        cases = [
            (a.appended(value), [*first, value]),
            (a.replaced(index, value), [*first[:index], value, *first[index + 1 :]]),
            (a.part(cut, len(first)), first[cut:]),
            (a.joined(b), first + second),
            (a.part(0, cut).appended(value).joined(a.part(cut, len(first))), [*first[:cut], value, *first[cut:]]),
        ]
        for terms, expected in cases:
            assert evaluate(terms, bound) == tuple(expected)
            for end in range(len(expected) + 1):
                assert evaluate(terms.total("it", 0, end), bound) == sum(expected[:end])


class Row(NamedTuple):
    """An element of a sequence."""

    name: int
    height: int | None


def count_lower(rows: tuple[Row, ...], height: int) -> int:
    return sum([1 for h in [r.height for r in rows if r.height is not None] if h < height])


def lowest(rows: tuple[Row, ...]) -> int | None:
    return min([r.height for r in rows if r.height is not None], default=None)


def all_but_the_first(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    first = rows[0]
    return tuple(r for r in rows if r is not first)


def is_the_first(rows: tuple[Row, ...], i: int) -> tuple[bool, bool]:
    first = rows[0]
    return rows[i] is first, rows[i]._replace(name=rows[i].name) is first


def joined_in_order(rows: tuple[Row, ...], flag: bool) -> Any:
    more = (*rows[:1], Row(5, 5), *rows[1:])
    assert len(rows) > 1
    return len(tuple(sorted(more))) + flag, more[1]


def highest(rows: tuple[Row, ...]) -> int | None:
    return max([r.height for r in rows if r.height is not None], default=None)


def has_some(rows: tuple[Row, ...]) -> bool:
    return bool(rows)


def around_the_last(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    rest = (*rows[:-1], rows[-0])
    if len(rest) == 1:
        return rest
    return rest[1:]


def numbered_to(n: int, i: int) -> tuple[int, int]:
    numbers = tuple(range(n))
    return len(numbers), numbers[i] if 0 <= i < len(numbers) else -1


def test_a_range_begins_at_zero() -> None:
    terms = Reader().call(numbered_to, z3.Int("n"), z3.Int("i"))
    for n in range(-2, 4):
        for i in range(-1, 4):
            assert evaluate(terms, {"n": n, "i": i}) == numbered_to(n, i)


def the_last(rows: tuple[Row, ...]) -> Row:
    return rows[-1]


def drawn_rows(draw: random.Random) -> tuple[Row, ...]:
    return tuple(Row(i, draw.choice((None, *range(4)))) for i in range(draw.randint(1, 5)))


def test_sum_over_filtered_elements_grows_step_by_step() -> None:
    draw, rows = random.Random(10), Seq.unknown(Row, "rows")
    reader = Reader()
    assert reader.call(count_lower, rows, z3.Int("height")).eq(reader.filtered[-1].recursive_sum().whole())
    tally = reader.filtered[-1].recursive_sum()
    step = evaluator(tally.step(z3.Int("(place)"))[0])
    for _ in range(40):
        some, height = drawn_rows(draw), draw.randint(0, 4)
        bound: dict[str, Any] = {}
        bind(tuple[Row, ...], "rows", some, bound)
        for i in range(len(some)):
            steps = [step({**bound, "height": height, "(place)": j}) for j in range(i + 1)]
            assert sum(steps) == count_lower(some[: i + 1], height)


@pytest.mark.parametrize("most", [False, True], ids=["least", "most"])
def test_extreme_of_filtered_elements_exists_and_bounds_the_others(most: bool) -> None:
    rows, index = Seq.unknown(Row, "rows"), z3.Int("place")
    reader = Reader()
    first = reader.call(highest if most else lowest, rows)
    [(where, fact)] = reader.filtered[-1].firsts
    row, found = rows.at(index).fields["height"], rows.at(where).fields["height"]
    given = [fact(index), index >= 0, index < rows.length, row.defined]
    goals = (
        (first.defined, True),
        (z3.And(found.defined, found.value == first.value), True),
        (first.value <= row.value, not most),
        (first.value >= row.value, most),
    )
    for goal, holds_ in goals:
        assert Proof().show("the first", goal, given) is holds_
    assert not Proof().show("there is one", first.defined, [fact(where)])


def test_element_is_identical_to_itself_and_perhaps_to_an_equal_one() -> None:
    rows, index = Seq.unknown(Row, "rows"), z3.Int("place")
    reader = Reader([rows.length > 0])
    kept, _, known_of = reader.call(all_but_the_first, rows).origin.element_at(index)
    proof = Proof()
    assert proof.show("the first goes", z3.Not(kept), [*known_of, index == 0])
    same = z3.And(rows.at(index).fields["name"] == rows.at(z3.IntVal(0)).fields["name"])
    assert proof.show("another one stays", kept, [*known_of, z3.Not(same)])
    assert not proof.show("one that equals it", kept, [*known_of, index != 0])
    assert not proof.show("one that equals it", z3.Not(kept), [*known_of, index != 0])


def test_negative_indexes_count_from_the_end() -> None:
    rows = Seq.unknown(Row, "rows")
    reader, draw = Reader([rows.length > 0]), random.Random(11)
    terms = tuple([reader.call(rule, rows) for rule in (around_the_last, the_last, has_some)])
    for _ in range(40):
        some = drawn_rows(draw)
        bound: dict[str, Any] = {}
        bind(tuple[Row, ...], "rows", some, bound)
        assert evaluate(terms, bound) == (around_the_last(some), the_last(some), True)


def test_identity_of_a_copy_is_unknown() -> None:
    rows, i = Seq.unknown(Row, "rows"), z3.Int("i")
    [path] = Reader([i >= 0, i < rows.length]).paths(is_the_first, rows, i)
    (same, copied), proof = path.value, Proof()
    assert proof.show("the first is itself", same, [*path.when, i == 0])
    assert not proof.show("a copy of it", copied, [*path.when, i == 0])
    assert not proof.show("a copy of it", z3.Not(copied), [*path.when, i == 0])


def test_sequences_are_joined_and_put_in_order() -> None:
    rows = Seq.unknown(Row, "rows", {"names": lambda row: row.fields["name"]})
    reader = Reader([rows.length > 0])
    [path] = reader.paths(joined_in_order, rows, z3.Bool("flag"))
    length, second = path.value
    proof = Proof()
    assert proof.show(
        "what is between", z3.And(second.fields["name"] == 5, second.fields["height"].value == 5), path.when
    )
    assert proof.show("how many", length == rows.length + 1 + z3.If(z3.Bool("flag"), 1, 0), path.when)
    assert proof.show("what was asserted", rows.length > 1, path.when)
    more = rows.part(0, 1).appended(unknown(Row, "row")).joined(rows.part(1, rows.length)).reordered("in order")
    assert proof.show("the sum", more.total("names") == rows.total("names") + z3.Int("row.name"), path.when)
    assert not proof.show("the first", more.at(z3.IntVal(0)).fields["name"] == rows.at(z3.IntVal(0)).fields["name"])


# ---- unsupported source -----------------------------------------------------------------------------------


class Pair(NamedTuple):
    """A record for small functions."""

    left: int
    right: int | None


def tries(n: int) -> int:
    try:
        return n
    except ValueError:
        return 0


def repeats(n: int) -> int:
    while n > 0:
        n = n - 1
    return n


def makes_a_function(n: int) -> Any:
    return lambda: n


def formats(n: int) -> str:
    return f"{n}"


#: a table of the module
UNITS = {"ms": 1, "us": 1_000, "ns": 1_000_000}


def in_units(unit: Literal["ms", "us", "ns"], bits: int) -> int:
    grain = UNITS[unit] << 3
    return bits % 2**4 + grain


def keeps_looking(numbers: list[int]) -> int:
    return 1 if [n + 1 for n in numbers if n > 0] else 0


def grows_by(least: int, share: float, count: int) -> int:
    if share <= 1 or least < 1:
        raise ValueError("nothing grows by that")
    return int(least * share**count / 3) + int(least / 7)


def looks_up(n: int) -> Any:
    return {n: n}[n]


def may_be_none(pair: Pair) -> int:
    return pair.right + 1  # type: ignore[operator]


def may_be_outside(numbers: list[int], n: int) -> int:
    return numbers[n]


def negative_index(numbers: list[int]) -> int:
    return numbers[-1]


def calls_itself(n: int) -> int:
    return calls_itself(n - 1)


def another_name(numbers: list[int]) -> Any:
    others = list(numbers)
    same = others
    others.append(1)
    return same


def returns_its_argument(numbers: list[int]) -> Any:
    return numbers


def appends_what_may_be_none(numbers: list[int], pair: Pair) -> Any:
    return (*numbers, pair.right)


def minimum_with_none(pair: Pair) -> int:
    return min(pair.left, pair.right)  # type: ignore[type-var, return-value]


def index_may_be_none(numbers: list[int], pair: Pair) -> int:
    return numbers[pair.right]  # type: ignore[index]


def first_of_them(numbers: tuple[int, ...], pair: Pair) -> int | None:
    if pair.right is None or pair.left < 0 or pair.right > len(numbers):
        return None
    for i in range(pair.left, pair.right):
        if numbers[i] == 0:
            return i
    return None


def mutates_its_argument(numbers: list[int]) -> Any:
    numbers.append(1)
    return numbers


def divides(n: int, m: int) -> int:
    return n // m


def adds_masks(one: int, index: int) -> int:
    return one + (1 << index)


def shifts_back(one: int, index: int) -> int:
    return one >> index - 1


def has_no_value(n: int) -> int:
    return n.bit_length()


def writes_a_field(pair: Any) -> Any:
    pair.left = 1
    return pair


def returns_two_types(n: int) -> Any:
    return n if n > 0 else "none"


def global_state(n: int) -> int:
    global UNITS  # noqa: PLW0603
    UNITS = {}
    return n


UNSUPPORTED: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (tries, (int,), "this statement is not supported"),
    (repeats, (int,), "this statement is not supported"),
    (makes_a_function, (int,), "this expression is not supported: lambda"),
    (keeps_looking, (list[int],), "the truth value of a comprehension"),
    (looks_up, (int,), "this expression is not supported"),
    (may_be_none, (Pair,), "cannot show that this is not None"),
    (may_be_outside, (list[int], int), "cannot show that the index is in range"),
    (negative_index, (list[int],), "cannot show that the index is in range"),
    (calls_itself, (int,), "is recursive"),
    (another_name, (list[int],), "an alias of a sequence"),
    (returns_its_argument, (list[int],), "an alias of a sequence"),
    (appends_what_may_be_none, (list[int], Pair), "cannot show that this is not None"),
    (minimum_with_none, (Pair,), "cannot show that this is not None"),
    (index_may_be_none, (list[int], Pair), "cannot show that this is not None"),
    (mutates_its_argument, (list[int],), "numbers is an argument"),
    (divides, (int, int), "cannot show that the divisor is not zero"),
    (adds_masks, (int, int), "cannot show that the shift is not negative"),
    (has_no_value, (int,), "there is no attribute bit_length"),
    (writes_a_field, (Pair,), "this assignment is not supported"),
    (returns_two_types, (int,), "no common form"),
    (global_state, (int,), "this statement is not supported"),
]


@pytest.mark.parametrize(("function", "kinds", "said"), UNSUPPORTED, ids=lambda v: getattr(v, "__name__", ""))
def test_source_outside_the_subset_is_refused(function: Callable[..., Any], kinds: tuple[Any, ...], said: str) -> None:
    arguments = [unknown(kind, f"a{i}") for i, kind in enumerate(kinds)]
    with pytest.raises(UnsupportedError, match=re.escape(said)):
        Reader().call(function, *arguments)


def test_guarded_operations_are_translated() -> None:
    n, m = z3.Ints("n m")
    assert evaluate(Reader([m > 0]).call(divides, n, m), {"n": -7, "m": 2}) == -4
    numbers = Seq.unknown(int, "numbers")
    given = [n >= 0, n < numbers.length]
    assert Reader(given).call(may_be_outside, numbers, n).eq(numbers.at(n))


def test_a_loop_over_a_range_is_a_loop_over_its_numbers() -> None:
    numbers, pair, at = Seq.unknown(int, "numbers"), unknown(Pair, "pair"), z3.Int("at")
    loop = Reader().loop(first_of_them)
    [begun] = [path for path in loop.begin(numbers, pair) if path.exit == "next"]
    left, right = pair.fields["left"], pair.fields["right"].value
    proof = Proof()
    length = z3.If(right > left, right - left, 0)
    assert proof.show("how many", begun.names["(over)"].length == length, begun.when)
    [found] = [w for w in loop.iteration({**begun.names, "(at)": at}, [*begun.when, at >= 0]) if w.exit == "return"]
    assert proof.show("where", z3.And(found.value == left + at, numbers.at(found.value) == 0), found.when)
    assert proof.show("inside", z3.And(found.value < right, found.value >= left), found.when)


def bits_of(one: int, other: int, index: int) -> tuple[int, ...]:
    return (
        one & other,
        one | other,
        one ^ other,
        ~one & other,
        one & 5,
        one | 1 << index,
        one >> index << index,
        other << index,
        one & (one - 1),
        other - 1,
        1 if one >> index & 1 else 0,
        1 if one & other == 0 else 0,
    )


def test_masks_are_not_added_and_not_shifted_back() -> None:
    one, index = bitmasks.unknown_mask("one"), z3.Int("place")
    with pytest.raises(UnsupportedError, match="this operation is not supported"):
        Reader([index >= 0]).call(adds_masks, one, index)
    with pytest.raises(UnsupportedError, match="cannot show that the shift is not negative"):
        Reader([index >= 0]).call(shifts_back, one, index)


def test_masks_are_numbers_by_their_bits() -> None:
    one, other, index, bit = (
        bitmasks.unknown_mask("one"),
        bitmasks.unknown_mask("other"),
        z3.Int("place"),
        z3.Int("bit"),
    )
    [path] = Reader([index >= 0]).paths(bits_of, one, other, index)
    draw, proof = random.Random(12), Proof()
    for _ in range(25):
        numbers, at, here = (draw.getrandbits(6), draw.getrandbits(6) + 1), draw.randrange(5), draw.randrange(9)
        known_of = [
            one == bitmasks.of_number(numbers[0]),
            other == bitmasks.of_number(numbers[1]),
            index == at,
            bit == here,
        ]
        for terms, number in zip(path.value, bits_of(*numbers, at), strict=True):
            said = terms[bit] == bool(number >> here & 1) if bitmasks.is_mask(terms) else terms == number
            proof.show(f"{numbers} at {at}, {here}", said, known_of)
            proof.show("no bit is below place 0", z3.Not(terms[-1]) if bitmasks.is_mask(terms) else True)
    assert proof.answer().verdict == "proved"
    assert not Proof().show("some", one != bitmasks.NONE)


def either_number(first: int, second: int | None) -> tuple[int, int, bool, bool]:
    more = first or first > -1 or True
    return first or 7, second or first, bool(first > 0 or first < -3), bool(more)


def test_or_returns_the_operand_that_decides() -> None:
    [path] = Reader().paths(either_number, z3.Int("first"), unknown(int | None, "second"))
    for first in (-5, 0, 4):
        for second in (None, 0, 3):
            bound: dict[str, Any] = {"first": first}
            bind(int | None, "second", second, bound)
            assert evaluate(path.value, bound) == either_number(first, second)


def up_to_some(numbers: tuple[int, ...], end: int) -> tuple[int, ...]:
    return numbers[:end] if end >= 0 else ()


def unpacked(pair: Pair) -> int:
    left, right = pair
    return left if right is None else right


def test_slices_end_with_their_sequence_and_records_are_unpacked() -> None:
    numbers, end = Seq.unknown(int, "numbers"), z3.Int("end")
    terms = Reader([numbers.length >= 0]).call(up_to_some, numbers, end), Reader().call(unpacked, unknown(Pair, "pair"))
    for some in ((), (4,), (4, 5, 6)):
        for there in (-1, 0, 2, 9):
            bound: dict[str, Any] = {"end": there, "numbers.length": len(some), "numbers": dict(enumerate(some))}
            bind(Pair, "pair", Pair(1, None if there < 0 else there), bound)
            assert evaluate(terms, bound) == (up_to_some(some, there), unpacked(Pair(1, None if there < 0 else there)))


def test_formatted_text_is_unconstrained() -> None:
    assert not Proof().show("a text", Reader().call(formats, z3.Int("n")) == unknown(object, "text"))


def test_tables_of_a_module_are_looked_up() -> None:
    with pytest.raises(UnsupportedError, match="cannot show that the key is present"):
        Reader().call(in_units, unknown(Literal["ms", "us", "ns"], "unit"), z3.Int("bits"))
    unit: Literal["ms", "us", "ns"]
    for unit in ("ms", "us", "ns"):
        for bits in (-9, 0, 7, 8, 20_000_000):
            terms = Reader().call(in_units, lifted(unit), z3.Int("bits"))
            assert evaluate(terms, {"bits": bits}) == in_units(unit, bits)


def test_path_that_raises_is_dropped_and_the_others_exclude_its_condition() -> None:
    least, count, share = z3.Int("least"), z3.Int("count"), unknown(float, "share")
    [path] = Reader().paths(grows_by, least, share, count)
    assert Proof().show("what was not refused", z3.And(share.real > 1, least >= 1), path.when)
    for number, part, times in ((1, 1.5, 3), (10**15 + 1, 3.7, 9), (7, 1.1, 0)):
        bound: dict[str, Any] = {"least": number, "count": times}
        bind(float, "share", part, bound)
        assert evaluate(path.value, bound) == grows_by(number, part, times)


def test_a_function_without_a_file_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="is not a function of a module"):
        Reader().call(Path("x").exists)
