"""Claims about the delays of backoffs: the table that the Java client's makes, and what a tracker makes of a table."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.induction import Induction, Invariant, Names
from invariants.proofs.shared.rounding import WHOLE, about_rounding, rounding_is_as_said
from invariants.proofs.symbolic import AT, OVER, Reader, Seq, as_term, bind, evaluate, lifted, power, rounded, unknown
from model.negative_acks import delay as delays
from model.negative_acks import machine as model
from model.negative_acks.machine import Config

DELAYS = "model.negative_acks.delay"


class Table:
    """Any least and most delay and any multiplier, as `multiplier_backoff` takes them; and the table, so far."""

    def __init__(self) -> None:
        self.least, self.most, self.at = z3.Ints("least most at")
        self.multiplier = unknown(float, "multiplier")
        self.sense = [self.least >= 1, self.least <= self.most, self.least <= WHOLE, self.multiplier.real > 1]
        last = z3.Int("last")
        stubs: dict[Callable[..., Any], Callable[..., Any]] = {
            math.log: lambda _: lifted(1.0),
            math.floor: lambda _: last,  # so that the table is of any length
        }
        self.reader = Reader([self.at >= 0, last >= 0], stubs=stubs, lists={"table": (int, {})})
        self.loop = self.reader.loop(delays.multiplier_backoff)
        self.head: dict[str, Any] = {"least": self.least, "most": self.most, "multiplier": self.multiplier}
        self.head |= {"last": last + 1, "table": Seq.unknown(int, "table"), AT: self.at}
        self.head[OVER] = self.loop.over(self.head)

    def exact(self, count: Any) -> Any:
        """The product of which a delay is the whole part."""
        return rounded(rounded(z3.ToReal(self.least)) * power(self.multiplier.real, as_term(count)))

    def delay(self, count: Any) -> Any:
        """The delay of a redelivery count, as the table is to have it."""
        whole = z3.ToInt(self.exact(count))
        return z3.If(whole < self.most, whole, self.most)

    def facts(self) -> list[Any]:
        """What is taken for known: powers of more than one grow from one on, and rounding keeps the order."""
        here, then, none = (power(self.multiplier.real, as_term(n)) for n in (self.at, self.at + 1, 0))
        least = rounded(z3.ToReal(self.least))
        grows = [none == 1, here >= 1, here <= then, least * here <= least * then, least <= least * here]
        return [*grows, *about_rounding(*[self.exact(n) for n in (self.at, self.at + 1, 0)])]

    def invariants(self) -> list[Invariant]:
        """The last delay is that of its count; delays are within their bounds, and in order."""

        def last(n: Names) -> Any:
            table = n["table"]
            here = table.at(table.length - 1) == self.delay(n[AT])
            return z3.And(as_term(n[AT]) >= 0, table.length == n[AT] + 1, here)

        def within(n: Names, i: Any) -> Any:
            return is_within(n["table"], i, self.least, self.most)

        return [
            Invariant("the last delay is that of its count", last),
            Invariant("delays are within their bounds", within, 1),
            Invariant("delays never decrease", lambda n, i, j: is_in_order(n["table"], i, j), 2),
        ]


def is_within(table: Seq, i: Any, least: Any, most: Any) -> Any:
    """The delay at a place is within the bounds."""
    return z3.Implies(z3.And(i >= 0, i < table.length), z3.And(table.at(i) >= least, table.at(i) <= most))


def is_in_order(table: Seq, i: Any, j: Any) -> Any:
    """Of two places, the first has no longer delay."""
    return z3.Implies(z3.And(i >= 0, i <= j, j < table.length), table.at(i) <= table.at(j))


@claim(
    "a-multiplied-backoff-never-decreases",
    "z3",
    "For every least delay from 1 to 2**53, every longer or equal most delay and every multiplier above 1: the delays "
    "of the table never decrease with the redelivery count, are never less than the least nor more than the most, and "
    "the last one is the most. What the platform gives for a power is taken to begin at 1 and never to decrease.",
    Control(
        "a shift or product that overflows 64 bits, as in the Go client",
        DELAYS,
        "table.append(min(int(least * multiplier**count), most))",
        "table.append(min((int(least * multiplier**count) + 2**63) % 2**64 - 2**63, most))",
    ),
)
def backoff_never_decreases() -> Answer:
    """The Java client's MultiplierRedeliveryBackoff; the Go client's default overflows from redelivery count 34 on."""
    it, proof = Table(), Proof()
    induction = Induction(proof, it.loop, it.head, it.invariants(), [*it.sense, *it.facts()])
    ways = [way for way in it.loop.begin(it.least, it.most, it.multiplier) if way.how == "next"]
    for way in ways:
        proof.show("the bounds make sense", z3.And(*it.sense), [*way.when, it.least <= WHOLE])
    induction.begins(ways)
    for end in induction.ends(induction.goes_round()):
        table, places = end.value, [z3.Int("any0"), z3.Int("any1")]
        induction.show("the table is in order", end, lambda i, j, t=table: is_in_order(t, i, j), places)
        within = (lambda i, t=table: is_within(t, i, it.least, it.most), places[:1])
        induction.show("the table is within its bounds", end, *within)
        induction.show("the most comes last", end, lambda t=table: t.at(t.length - 1) == it.most)
    a, p, q = z3.Reals("a p q")
    proof.show("a product with more is more", a * p <= a * q, [a >= 0, p <= q])
    rounding_is_as_said(proof)
    for least, most, multiplier in parameters():
        made = delays.multiplier_backoff(least, most, multiplier)
        holds = all(a <= b for a, b in pairwise(made)) and made[0] >= least and made[-1] == most
        proof.run(f"{least} to {most} by {multiplier}", holds, made)
        powers = [multiplier**n for n in range(len(made))]
        rises = powers[0] == 1 and all(a <= b for a, b in pairwise(powers))
        proof.compare(f"powers of {multiplier} rise", rises, True)
    return proof.answer()


def parameters() -> list[tuple[int, int, float]]:
    """Bounds and multipliers, always the same."""
    draw = random.Random(64)  # noqa: S311
    made = []
    for _ in range(200):
        least = draw.choice((1, 100, 1000, draw.randint(1, 10**9)))
        most = least + draw.choice((0, 59_000, 2**62, 2 ** draw.randint(1, 62)))
        made.append((least, most, draw.choice((2.0, 1.5, 3.7, 1000.0, 1 + draw.random() * 3 + 0.01))))
    return made


@claim(
    "delays-keep-to-their-bounds",
    "z3",
    "For every backoff of any length whose delays never decrease and lie between zero and a most: the delay of a "
    "tracker never decreases with the redelivery count, however large, is at least the least delay, and at most the "
    "most or, if that is more, the least delay; where the least delay holds for all.",
    Control(
        "a backoff's delays may be shorter than the least, as in the Java clients",
        "model.negative_acks.machine",
        'return least if 0 <= delay < least and cfg.least_delay_holds_for == "all" else delay',
        "return delay",
    ),
)
def delays_keep_to_bounds() -> Answer:
    """The least delay of 100 ms holds, in the Java client, for the fixed delay only: NegativeAcksTracker."""
    proof, cfg = Proof(), unknown(Config, "cfg").replace({"least_delay_holds_for": lifted("all")})
    few, more, most = z3.Ints("few more most")
    table = cfg.fields["backoff"]
    given = [table.length > 0, few >= 0, few <= more, most >= 0, as_term(cfg.fields["least_delay_ms"]) >= 0]
    of_unit = z3.Or(*[cfg.fields["unit"].code == lifted(unit).code for unit in delays.UNITS_OF])
    given.append(of_unit)
    reader = Reader(given)
    one, other = (reader.call(model.delay_of, cfg, n) for n in (few, more))
    places = [z3.If(n < table.length - 1, n, table.length - 1) for n in (few, more)]
    given += [is_within(table, place, 0, most) for place in places] + [is_in_order(table, *places)]
    in_ns = cfg.fields["unit"].code == lifted("ns").code
    least = cfg.fields["least_delay_ms"] * z3.If(in_ns, 1_000_000, 1)
    proof.possible("a backoff", [*given, table.at(places[1]) > 0])
    proof.show("no decrease", _value(one) <= _value(other), given, direct=True)
    proof.show("not less than the least", _value(one) >= least, given, direct=True)
    proof.show("not more than the most", _value(one) <= z3.If(most > least, most, least), given, direct=True)
    draw = random.Random(65)  # noqa: S311
    for _ in range(200):
        backoff = tuple(sorted(draw.randint(0, 300) for _ in range(draw.randint(1, 4))))
        plain = Config(unit=draw.choice(("ms", "ns")), backoff=backoff, least_delay_ms=draw.choice((0, 100)))
        bound: dict[str, Any] = {"few": draw.randint(0, 5)}
        bind(Config, "cfg", plain, bound)
        proof.compare(f"{bound['few']} of {plain}", evaluate(one, bound), model.delay_of(plain, bound["few"]))
    return proof.answer()


def _value(delay: Any) -> Any:
    """A delay that is there: with a backoff there always is one."""
    return delay.value if hasattr(delay, "defined") else as_term(delay)


claims = (backoff_never_decreases, delays_keep_to_bounds)
