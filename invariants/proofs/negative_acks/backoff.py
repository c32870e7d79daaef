"""Proofs about redelivery delays: `MultiplierRedeliveryBackoff`, and the delay of a nack with any backoff."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.induction import Induction, Invariant, Names
from invariants.proofs.shared.rounding import WHOLE, prove_rounding_facts, rounding_facts
from invariants.proofs.symbolic import (
    INDEX,
    ITERATED,
    Reader,
    Seq,
    as_term,
    bind,
    evaluate,
    lifted,
    power,
    rounded,
    unknown,
)
from model.negative_acks import delay as delays
from model.negative_acks import machine as model
from model.negative_acks.delay import Backoff
from model.negative_acks.machine import Config
from model.values import UNITS_PER_MS

DELAYS = "model.negative_acks.delay"


class Table:
    """Any arguments of `multiplier_backoff`, and its list of delays after any number of iterations."""

    def __init__(self) -> None:
        self.minimum, self.maximum, self.at = z3.Ints("minimum maximum at")
        self.multiplier = unknown(float, "multiplier")
        self.valid = [self.minimum >= 1, self.minimum <= self.maximum, self.minimum <= WHOLE, self.multiplier.real > 1]
        last = z3.Int("last")
        stubs: dict[Callable[..., Any], Callable[..., Any]] = {
            math.log: lambda _: lifted(1.0),
            math.floor: lambda _: last,  # the list has any length
        }
        self.reader = Reader([self.at >= 0, last >= 0], stubs=stubs, lists={"table": (int, {})})
        self.loop = self.reader.loop(delays.multiplier_backoff)
        self.head: dict[str, Any] = {"minimum": self.minimum, "maximum": self.maximum, "multiplier": self.multiplier}
        self.head |= {"last": last + 1, "table": Seq.unknown(int, "table"), INDEX: self.at}
        self.head[ITERATED] = self.loop.over(self.head)

    def exact(self, count: Any) -> Any:
        """Returns the product whose integer part, capped by the maximum, is the delay."""
        return rounded(rounded(z3.ToReal(self.minimum)) * power(self.multiplier.real, as_term(count)))

    def delay(self, count: Any) -> Any:
        """Returns the expected delay of a redelivery count."""
        whole = z3.ToInt(self.exact(count))
        return z3.If(whole < self.maximum, whole, self.maximum)

    def facts(self) -> list[Any]:
        """Returns the assumptions: powers start at 1 and never decrease; products and rounding are monotone.

        That products are monotone is proved as a lemma. `prove_rounding_facts` proves that rounding is monotone up
        to 2**53. Above, it is assumed.
        """
        here, then, none = (power(self.multiplier.real, as_term(n)) for n in (self.at, self.at + 1, 0))
        minimum = rounded(z3.ToReal(self.minimum))
        grows = [none == 1, here >= 1, here <= then, minimum * here <= minimum * then, minimum <= minimum * here]
        return [*grows, *rounding_facts(*[self.exact(n) for n in (self.at, self.at + 1, 0)])]

    def invariants(self) -> list[Invariant]:
        """Returns the invariants: the last delay is that of its count; delays are within their bounds, and in order."""

        def last(n: Names) -> Any:
            table = n["table"]
            here = table.at(table.length - 1) == self.delay(n[INDEX])
            return z3.And(as_term(n[INDEX]) >= 0, table.length == n[INDEX] + 1, here)

        def within(n: Names, i: Any) -> Any:
            return is_within(n["table"], i, self.minimum, self.maximum)

        return [
            Invariant("the last delay is that of its count", last),
            Invariant("delays are within their bounds", within, 1),
            Invariant("delays never decrease", lambda n, i, j: is_in_order(n["table"], i, j), 2),
        ]


def is_within(table: Seq, i: Any, minimum: Any, maximum: Any) -> Any:
    """Returns the condition that the delay at an index is within the bounds."""
    return z3.Implies(z3.And(i >= 0, i < table.length), z3.And(table.at(i) >= minimum, table.at(i) <= maximum))


def is_in_order(table: Seq, i: Any, j: Any) -> Any:
    """Returns the condition that the delay at a smaller index is not longer."""
    return z3.Implies(z3.And(i >= 0, i <= j, j < table.length), table.at(i) <= table.at(j))


@claim(
    "multiplier-backoff-is-monotone",
    "z3",
    "For every minimum delay from 1 to 2**53, every maximum at or above it and every multiplier above 1: the delays "
    "never decrease with the redelivery count, are between minimum and maximum, and the last one is the maximum. "
    "It is assumed that floating-point powers start at 1 and never decrease, and that rounding is monotonic above "
    "2**53, too.",
    Control(
        "the product overflows 64 bits, as the shift in the Go client does",
        DELAYS,
        "table.append(min(int(minimum * multiplier**count), maximum))",
        "table.append(min((int(minimum * multiplier**count) + 2**63) % 2**64 - 2**63, maximum))",
        refutes="after an iteration, the last delay is that of its count",
    ),
)
def backoff_never_decreases() -> Answer:
    """`MultiplierRedeliveryBackoff`; Go's default backoff overflows from redelivery count 34 on."""
    it, proof = Table(), Proof()
    induction = Induction(proof, it.loop, it.head, it.invariants(), [*it.valid, *it.facts()])
    paths = [path for path in it.loop.begin(it.minimum, it.maximum, it.multiplier) if path.exit == "next"]
    for path in paths:
        proof.show("the arguments are valid", z3.And(*it.valid), [*path.when, it.minimum <= WHOLE])
    induction.base_case(paths)
    for end in induction.exit_paths(induction.step_case()):
        table, indexes = end.value, [z3.Int("any0"), z3.Int("any1")]
        induction.show("the delays are in order", end, lambda i, j, t=table: is_in_order(t, i, j), indexes)
        within = (lambda i, t=table: is_within(t, i, it.minimum, it.maximum), indexes[:1])
        induction.show("the delays are within their bounds", end, *within)
        induction.show("the maximum is last", end, lambda t=table: t.at(t.length - 1) == it.maximum)
    a, p, q = z3.Reals("a p q")
    proof.lemma("products are monotone", a * p <= a * q, [a >= 0, p <= q])
    prove_rounding_facts(proof)
    for minimum, maximum, multiplier in parameters():
        made = delays.multiplier_backoff(minimum, maximum, multiplier)
        holds = all(a <= b for a, b in pairwise(made)) and made[0] >= minimum and made[-1] == maximum
        proof.run(f"{minimum} to {maximum} by {multiplier}", holds, made)
        powers = [multiplier**n for n in range(len(made))]
        rises = powers[0] == 1 and all(a <= b for a, b in pairwise(powers))
        proof.compare(f"powers of {multiplier} increase", rises, True)
    return proof.answer()


def parameters() -> list[tuple[int, int, float]]:
    """Returns bounds and multipliers; always the same."""
    draw = random.Random(64)  # noqa: S311
    made = []
    for _ in range(200):
        minimum = draw.choice((1, 100, 1000, draw.randint(1, 10**9)))
        maximum = minimum + draw.choice((0, 59_000, 2**62, 2 ** draw.randint(1, 62)))
        made.append((minimum, maximum, draw.choice((2.0, 1.5, 3.7, 1000.0, 1 + draw.random() * 3 + 0.01))))
    return made


@claim(
    "nack-delay-is-monotone-and-bounded",
    "z3",
    "For every backoff of any length whose delays never decrease and lie between 0 and a maximum, in the unit of the "
    "clock, if the minimum delay applies to all delays: the delay of a nack never decreases with the redelivery count. "
    "The delay is at least the minimum delay, and at most the maximum, or the minimum delay if that is larger.",
    Control(
        "the minimum delay does not apply to a backoff, as in the Java client",
        "model.negative_acks.machine",
        'return minimum if 0 <= delay < minimum and cfg.min_delay_applies_to == "all" else delay',
        "return delay",
        refutes="at least the minimum in ms",
    ),
)
def delays_keep_to_bounds() -> Answer:
    """`MIN_NACK_DELAY_MS`, which in the Java client applies to the fixed delay only."""
    proof, few = Proof(), z3.Int("few")
    for each in UNITS_PER_MS:
        _delays_in(proof, each)
    terms = {each: Reader([few >= 0]).call(model.delay_of, config_in(each), few) for each in UNITS_PER_MS}
    draw = random.Random(65)  # noqa: S311
    for _ in range(200):
        unit: delays.Unit = draw.choice(("ms", "ns"))
        listed = tuple(sorted(draw.randint(0, 300) for _ in range(draw.randint(1, 4))))
        plain = Config(clock_unit=unit, backoff=Backoff(unit, listed), min_delay_ms=draw.choice((0, 100)))
        bound: dict[str, Any] = {"few": draw.randint(0, 5)}
        bind(Config, "cfg", plain, bound)
        proof.compare(f"{bound['few']} of {plain}", evaluate(terms[unit], bound), model.delay_of(plain, bound["few"]))
    return proof.answer()


def config_in(unit: str) -> Any:
    """Returns any config whose clock and backoff have this unit and whose minimum delay applies to all."""
    cfg = unknown(Config, "cfg")
    backoff = cfg.fields["backoff"].replace({"unit": lifted(unit)})
    return cfg.replace({"min_delay_applies_to": lifted("all"), "clock_unit": lifted(unit), "backoff": backoff})


def _delays_in(proof: Proof, unit: str) -> None:
    """Proves the claim for a clock and a backoff in this unit."""
    few, more, maximum = z3.Ints("few more maximum")  # two redelivery counts, and the largest delay
    cfg = config_in(unit)
    table = cfg.fields["backoff"].fields["delays"]
    given = [table.length > 0, few >= 0, few <= more, maximum >= 0, as_term(cfg.fields["min_delay_ms"]) >= 0]
    reader = Reader(given)
    one, other = (reader.call(model.delay_of, cfg, n) for n in (few, more))
    indexes = [z3.If(n < table.length - 1, n, table.length - 1) for n in (few, more)]
    given += [is_within(table, index, 0, maximum) for index in indexes] + [is_in_order(table, *indexes)]
    minimum = cfg.fields["min_delay_ms"] * UNITS_PER_MS[unit]
    proof.possible(f"a backoff in {unit}", [*given, table.at(indexes[1]) > 0])
    proof.show(f"monotone in {unit}", _value(one) <= _value(other), given, direct=True)
    proof.show(f"at least the minimum in {unit}", _value(one) >= minimum, given, direct=True)
    bound = z3.If(maximum > minimum, maximum, minimum)
    proof.show(f"at most the maximum in {unit}", _value(one) <= bound, given, direct=True)


def _value(delay: Any) -> Any:
    """Returns a delay that is not None: with a backoff it never is."""
    return delay.value if hasattr(delay, "defined") else as_term(delay)
