"""Claims about `evictionTriggerThreshold` and the bytes that a size pass shall free.

The broker multiplies a long by a double, and truncates the product to a long. In the proofs, the product is the exact
product of real numbers, rounded to the nearest double, as IEEE 754 defines it. Two facts about rounding are used: it is
monotonic, and does not change integers up to 2**53. `shared/rounding.py` proves them for products up to 2**53. One
claim uses Z3's floating-point multiplication instead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.shared.rounding import WHOLE, prove_rounding_facts, rounding_facts
from invariants.proofs.symbolic import (
    SUM,
    Double,
    Reader,
    Rec,
    Seq,
    as_term,
    bind,
    equal,
    evaluate,
    exact,
    unknown,
)
from model import range_cache as model
from model import watermark
from model.positions import Position
from model.range_cache import Config, State

WATERMARK = "model.watermark"


class Amounts:
    """Any total, maximum (`most`) and watermark (`share`), and the terms of the model's functions of them."""

    def __init__(self) -> None:
        self.proof, self.reader = Proof(), Reader()
        self.total, self.most = z3.Ints("total most")
        self.share = Double(z3.Real("share"))
        self.valid = [self.most >= 0, self.most <= WHOLE, self.share.real >= 0, self.share.real <= 1]
        self.share_of = self.reader.call(watermark.share_of, self.most, self.share)
        self.wanted = self.reader.call(watermark.bytes_to_evict, self.total, self.most, self.share)
        self.over = self.reader.call(watermark.is_over_threshold, self.total, self.most)

    def show(self, what: str, goal: Any) -> None:
        """Proves a goal for a maximum up to 2**53 and a watermark from 0 to 1, and the facts about rounding."""
        if self.proof.show(what, goal, [*self.valid, *rounding_facts(goal)]):
            prove_rounding_facts(self.proof)

    def check_on_runs(self, holds: Callable[[int, int, float], bool]) -> Answer:
        """Checks a claim, and compares the terms with the program, on random numbers. Returns the verdict."""
        for total, most, share in random_amounts():
            self.proof.run(f"{total} of {most} at {share}", holds(total, most, share))
            bound: dict[str, Any] = {"total": total, "most": most}
            bind(float, "share", share, bound)
            terms = [evaluate(term, bound) for term in (self.share_of, self.wanted, self.over)]
            program = [
                watermark.share_of(most, share),
                watermark.bytes_to_evict(total, most, share),
                watermark.is_over_threshold(total, most),
            ]
            self.proof.compare(f"{total} of {most} at {share}", terms, program)
        return self.proof.answer()


def random_amounts() -> Iterator[tuple[int, int, float]]:
    """Yields totals, maxima and watermarks, always the same. Many totals are at the trigger or next to it."""
    draw = random.Random(98)  # noqa: S311
    for _ in range(300):
        most = draw.choice((draw.randint(0, 200), draw.randint(0, WHOLE), 2 ** draw.randint(0, 53)))
        trigger = watermark.share_of(most, watermark.TRIGGER_SHARE)
        total = draw.choice((draw.randint(0, most + 2), trigger + draw.randint(-1, 1), most))
        yield total, most, draw.choice((draw.random(), draw.randint(0, 100) / 100, 0.0, 0.98, 1.0))


@claim(
    "watermark-share-is-within",
    "z3",
    "For every maximum up to 2**53 bytes and every watermark from 0 to 1: the share is between 0 and the maximum.",
    Control(
        "the product is rounded up",
        WATERMARK,
        "return int(max_bytes * share)",
        "return int(max_bytes * share) + 1",
        refutes="the share",
    ),
)
def share_is_within() -> Answer:
    """The broker truncates a double product to a long."""
    it = Amounts()
    it.show("the share", z3.And(it.share_of >= 0, it.share_of <= it.most))
    return it.check_on_runs(lambda total, most, share: 0 <= watermark.share_of(most, share) <= most)


@claim(
    "over-the-trigger-there-is-something-to-evict",
    "z3",
    "For every total, every maximum up to 2**53 bytes and every watermark from 0 to 0.98: if the total is above the "
    "trigger, there is at least one byte to evict.",
    Control(
        "eviction starts at the trigger",
        WATERMARK,
        "return total_bytes > share_of(",
        "return total_bytes >= share_of(",
        refutes="the amount",
    ),
)
def something_to_evict() -> Answer:
    """The trigger is strict, and 0.98 is a constant of the broker."""
    it = Amounts()
    low = it.share.real <= exact(0.98)
    it.show("the amount", z3.Implies(z3.And(low, it.over), it.wanted > 0))
    return it.check_on_runs(_has_something_to_evict)


def _has_something_to_evict(total: int, most: int, share: float) -> bool:
    wanted = watermark.bytes_to_evict(total, most, share)
    return share > 0.98 or not watermark.is_over_threshold(total, most) or wanted > 0


@claim(
    "eviction-aims-at-the-watermark",
    "z3",
    "For every total, maximum and watermark: the bytes to evict are the difference between the total and the "
    "watermark's share of the maximum. `evict_to_watermark` runs a size pass for these bytes if the total is above the "
    "trigger and the difference is positive; otherwise it changes nothing.",
    Control(
        "the amount is computed from the trigger",
        WATERMARK,
        "return total_bytes - share_of(max_bytes, watermark)",
        "return total_bytes - share_of(max_bytes, TRIGGER_SHARE)",
        refutes="the remaining bytes",
    ),
)
def aims_at_the_watermark() -> Answer:
    """The freed bytes are the difference to the watermark."""
    it = Amounts()
    it.proof.show("the remaining bytes", it.total - it.wanted == it.share_of)
    cfg, state = unknown(Config, "cfg"), unknown(State, "s")
    s = state.replace({"sizes": Seq.unknown(int, "s.sizes", {SUM: lambda n: n})})
    asked, passed = z3.Int("asked"), []

    def size_pass(cfg: Rec, s: Rec, bytes_to_free: Any) -> Any:
        """Stub of `size_pass`: changes some field of the state, so a path with the call does not return `s` itself."""
        passed.append(bytes_to_free)
        return s.replace({"next_copy": asked}), None

    paths = Reader(stubs={model.size_pass: size_pass}).paths(model.evict_to_watermark, cfg, s)
    settings = (cfg.fields["max_bytes"], cfg.fields["watermark"])
    total = s.fields["sizes"].total(SUM)
    over = it.reader.call(watermark.is_over_threshold, total, settings[0])
    wanted = total - it.reader.call(watermark.share_of, *settings)
    it.proof.need("the size check makes one size pass", len(passed) == 1)
    for path in paths:
        after, outcome = path.value
        evicts = z3.And(over, wanted > 0)
        it.proof.show("when it evicts", evicts == (after is not s), path.when)
        it.proof.show("the requested bytes", z3.Implies(evicts, passed[0] == wanted), path.when)
        it.proof.show("the outcome without an eviction", z3.Or(evicts, as_term(equal(outcome, _nothing()))), path.when)
    return it.check_on_runs(_aims)


def _aims(total: int, most: int, share: float) -> bool:
    """Returns whether the claim holds for these numbers, with a cache of one entry of `total` bytes."""
    wanted, trigger = total - watermark.share_of(most, share), watermark.share_of(most, watermark.TRIGGER_SHARE)
    cfg = Config(max_bytes=max(most, 1), watermark=share)
    s, _ = model.put(cfg, model.start(cfg), 0, Position(1, 0), max(total, 0), 0)
    _, removed = model.evict_to_watermark(cfg, s)
    evicts = most > 0 and total > trigger and wanted > 0
    return watermark.bytes_to_evict(total, most, share) == wanted and (removed.entries == 1) == evicts


def _nothing() -> Rec:
    """Returns the result of a removal without entries."""
    return Rec(model.Removed, {"entries": 0, "bytes": 0})


@claim(
    "a-full-cache-is-over-the-trigger",
    "z3",
    "For every maximum from 1 to 2**53 bytes: the trigger is at least 0 and below the maximum, so caches whose total "
    "is the maximum are above the trigger.",
    Control(
        "the trigger is the maximum",
        WATERMARK,
        "TRIGGER_SHARE = 0.98",
        "TRIGGER_SHARE = 1.0",
        refutes="the trigger",
    ),
)
def full_is_over() -> Answer:
    """64-bit longs and doubles in bit-vector and floating-point arithmetic, rounded to nearest."""
    proof, reader = Proof(), Reader()
    most = z3.BitVec("most", 64)
    trigger = reader.call(watermark.share_of, most, watermark.TRIGGER_SHARE)
    over = reader.call(watermark.is_over_threshold, most, most)
    given = [most >= 1, z3.ULE(most, WHOLE)]
    proof.show("the trigger", z3.And(trigger >= 0, trigger < most, over), given, direct=True)
    draw = random.Random(53)  # noqa: S311
    for _ in range(100):
        number = draw.choice((draw.randint(1, 200), draw.randint(1, WHOLE), 2 ** draw.randint(0, 53)))
        worked_out = z3.simplify(z3.substitute(trigger, (most, z3.BitVecVal(number, 64)))).as_signed_long()
        proof.compare(f"{number}", worked_out, watermark.share_of(number, watermark.TRIGGER_SHARE))
    return proof.answer()
