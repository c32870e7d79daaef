"""Proofs about the negative-ack tracker: buckets, timer, repeated nacks, equivalence with the implementation."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, get_type_hints

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.induction import Induction, Invariant, Names
from invariants.proofs.symbolic import TOKEN, Reader, Rec, Seq, as_term, evaluate, lifted, unknown
from model.negative_acks import machine as model
from model.negative_acks import message_ids
from model.negative_acks.delay import Backoff
from model.negative_acks.machine import Bucket, Config, State
from model.negative_acks.message_ids import NackedId
from model.positions import Position
from model.values import UNITS_PER_MS

MODEL, DELAYS = "model.negative_acks.machine", "model.negative_acks.delay"

#: The precisions that the setting allows.
BITS = range(41)


def tracker(**rules: Any) -> tuple[Rec, Rec]:
    """Returns any config with these rules, and any state, whose AVL tree is not read."""
    cfg = unknown(Config, "cfg").replace({name: lifted(value) for name, value in rules.items()})
    kinds = get_type_hints(State, localns={"Node": object}, include_extras=True)
    return cfg, Rec(State, {f: unknown(kind, f"s.{f}") for f, kind in kinds.items()})


# ---- buckets ----------------------------------------------------------------------------------------------


@claim(
    "bucket-time-is-early-by-less-than-its-length",
    "z3",
    "For every due time, every precision from 0 to 40 bits, and clocks of milliseconds or nanoseconds: the length of a "
    "bucket is 2^bits milliseconds, or 2^bits units of the clock if the bits are trimmed from the clock's time. The "
    "bucket time is a multiple of the length; it is at the due time, or before it by less than the length.",
    Control(
        "bucket times are rounded up",
        DELAYS,
        "return time // length * length",
        "return -(-time // length) * length",
        refutes="1 bits of milliseconds, in ms",
    ),
)
def buckets_are_early() -> Answer:
    """PIP-393, "TimeStamp Bucket"."""
    proof, due = Proof(), z3.Int("due")
    draw = random.Random(393)  # noqa: S311
    for clock_unit in ("ms", "ns"):
        for precision_unit in ("milliseconds", "clock_units"):
            for bits in BITS:
                rules = {"clock_unit": clock_unit, "precision_unit": precision_unit}
                cfg = tracker(**rules)[0].replace({"precision_bits": bits})
                bucket = as_term(Reader().call(model.bucket_time, cfg, due))
                length = (UNITS_PER_MS[clock_unit] if precision_unit == "milliseconds" else 1) * 2**bits
                goal = z3.And(bucket <= due, due < bucket + length, bucket % length == 0)
                proof.show(f"{bits} bits of {precision_unit}, in {clock_unit}", goal, direct=True)
                plain = Config(**rules, precision_bits=bits)  # type: ignore[arg-type]
                time = draw.randint(-(2**10), 2 ** draw.randint(1, 62))
                proof.compare(f"{plain}, {time}", evaluate(bucket, {"due": time}), model.bucket_time(plain, time))
    return proof.answer()


@claim(
    "bucket-is-due-at-its-timer",
    "z3",
    "For all times, every offset of the wall clock and both rules of when a bucket is due: a bucket is due at the time "
    "for which its timer is armed, and not between now and that time. Under the reference rule, a bucket is due from "
    "its bucket time on, and not before.",
    Control(
        "a bucket is due only after its time",
        MODEL,
        "return time <= clock if cfg.due_at_bucket_time else time < clock",
        "return time < clock",
        refutes="due at the deadline",
    ),
)
def due_at_timer() -> Answer:
    """`NegativeAcksTracker.triggerRedelivery`. A timer that is armed too early would redeliver nothing."""
    proof, (cfg, s), (time, other) = Proof(), tracker(), z3.Ints("time other")
    reader = Reader()

    def due_at(now: Any) -> Any:
        return as_term(reader.call(model.is_due, cfg, s.replace({"now": now}), time))

    armed = as_term(reader.call(model.timer_for_bucket, cfg, s, time))
    proof.show("due at the deadline", due_at(armed), direct=True)
    earlier = [other >= s.fields["now"], other < armed]
    proof.possible("an earlier time", earlier)
    proof.show("not before it", z3.Not(due_at(other)), earlier, direct=True)
    exact = due_at(other) == (time <= other + s.fields["wall_offset"])
    proof.show("due at its time", z3.Implies(as_term(cfg.fields["due_at_bucket_time"]), exact), direct=True)
    draw = random.Random(394)  # noqa: S311
    for _ in range(200):
        plain = Config(due_at_bucket_time=draw.random() < 0.5)
        now, offset, at = draw.randint(0, 9), draw.randint(-5, 5), draw.randint(-2, 12)
        state = model.start(plain)._replace(now=now, wall_offset=offset)
        bound = {"cfg.due_at_bucket_time": plain.due_at_bucket_time, "s.now": now, "s.wall_offset": offset}
        bound |= {"time": at, "other": now}
        proof.compare(f"timer for {at} in {state}", evaluate(armed, bound), model.timer_for_bucket(plain, state, at))
        proof.compare(f"{at} in {state}", evaluate(due_at(other), bound), model.is_due(plain, state, at))
    return proof.answer()


# ---- timer ------------------------------------------------------------------------------------------------


def armed_in_time(cfg: Rec, s: Rec) -> Invariant:
    """Returns the invariant: if there are buckets, the timer is armed.

    Its time is at most the time at which any bucket is due, or now.
    """

    def covered(n: Names, index: Any) -> Any:
        buckets, timer, now = (n["s"].fields[name] for name in ("buckets", "timer", "now"))
        at = buckets.at(index).fields["time"] - n["s"].fields["wall_offset"]
        at = z3.If(as_term(cfg.fields["due_at_bucket_time"]), at, at + 1)
        armed = z3.And(timer.defined, timer.value <= z3.If(at > now, at, now))
        return z3.Implies(z3.And(index >= 0, index < buckets.length), armed)

    return Invariant("the timer is armed in time", covered, 1)


def is_armed_in_time(cfg: Config, s: State) -> bool:
    """Returns whether `armed_in_time` holds of a concrete state."""
    late = 0 if cfg.due_at_bucket_time else 1
    return all(s.timer is not None and s.timer <= max(b.time - s.wall_offset + late, s.now) for b in s.buckets)


@claim(
    "timer-deadline-is-at-most-first-bucket",
    "z3",
    "For any number of buckets and entries, every delay and precision and every constant offset of the wall clock, "
    "under the reference's rules of timer, repeated nacks, due buckets and close: while there are buckets, the timer "
    "is armed for at most the time at which the first one is due, or now if that is later. Every nack, every run of "
    "the timer that leaves buckets in order of time, and the passing of time preserve this. Two facts are tested, not "
    "proved: adding an entry adds at most the bucket of its time, and a run changes the buckets and the timer as "
    "`split_due` and `timer_after_run` return them.",
    Control(
        "the timer is armed only if it is not armed, as in the Java client after PIP-393",
        MODEL,
        "return at if s.timer is None or at < s.timer else s.timer",
        "return at if s.timer is None else s.timer",
        refutes="after a nack",
    ),
)
def timer_is_in_time() -> Answer:
    """PIP-393, "Redelivery time is not accurate"; apache/pulsar#23600 does not implement it for backoffs."""
    proof = Proof()
    cfg, s = tracker(timer="first_bucket", repeated_nack="both", due_buckets="all", after_close="final")
    covered = armed_in_time(cfg, s)
    _nacks_in_time(proof, cfg, s, covered)
    _runs_in_time(proof, cfg, s, covered)
    later, index = z3.Int("later"), z3.Int("any0")
    given = [covered.holds({"s": s}, index), later >= s.fields["now"]]
    proof.lemma("as time elapses", covered.holds({"s": s.replace({"now": later})}, index), given)
    proof.need("the invariant holds at the start", is_armed_in_time(Config(), model.start(Config())))
    for plain, step, was, now in histories(40, 60):
        proof.run(step, is_armed_in_time(plain, now) or not is_armed_in_time(plain, was), was)
        left = model.split_due(plain, was)[1]
        after = model.trigger_redelivery(plain, was)[0]
        wanted = model.timer_after_run(plain, was, left), left
        proof.compare(f"a run of {was}", (after.timer, after.buckets), wanted)
    return proof.answer()


def _nacks_in_time(proof: Proof, cfg: Rec, s: Rec, covered: Invariant) -> None:
    """Proves the invariant after every path through a nack, for any delay and any bucket time."""
    is_own, origin = z3.Function("is own", z3.IntSort(), z3.BoolSort()), z3.Function("of", z3.IntSort(), z3.IntSort())
    buckets, index = s.fields["buckets"], z3.Int("any0")

    def with_entry(before: Seq, time: Any, _: Any) -> Seq:
        """Returns buckets, each at `time` or at the time of a bucket in `before`; `_run_with_entry` tests this."""

        def at(where: Any) -> Rec:
            other = before.at(origin(as_term(where))).fields["time"]
            entries = z3.Function("entries", z3.IntSort(), TOKEN)(as_term(where))
            return Rec(Bucket, {"time": z3.If(is_own(as_term(where)), time, other), "entries": entries})

        return Seq(Bucket, z3.Int("buckets after"), at, {}, {})

    anything = (model.delay_of, model.bucket_time, message_ids.retained_after_nack)
    reader = Reader(havoc=anything, stubs={model.with_entry: with_entry})
    entry, count = unknown(Position, "entry"), unknown(int | None, "redelivery_count")
    was_there = z3.And(origin(index) >= 0, origin(index) < buckets.length)
    given = [z3.Or(is_own(index), was_there), covered.holds({"s": s}, index)]
    given.append(covered.holds({"s": s}, origin(index)))
    accepted = []
    for path in reader.paths(model.nack, cfg, s, entry, count, unknown(NackedId, "message_id")):
        after = path.value[0]
        proof.show("after a nack", covered.holds({"s": after}, index), [*given, *path.when])
        if after is not s:
            accepted.append(z3.And(*given, *path.when))
    proof.possible("an accepted nack", [z3.Or(*accepted)])
    _run_with_entry(proof)


def _run_with_entry(proof: Proof) -> None:
    """Tests that `with_entry` adds at most the bucket of its time."""
    for _, _, was, now in histories(20, 40):
        for time in (was.now, now.now + 1):
            wanted = sorted({time, *[bucket.time for bucket in was.buckets]})
            after = model.with_entry(was.buckets, time, Position(1, 0))
            proof.compare(f"{time} in {was.buckets}", wanted, [bucket.time for bucket in after])


def _runs_in_time(proof: Proof, cfg: Rec, s: Rec, covered: Invariant) -> None:
    """Proves the invariant after a run, which removes a prefix of the buckets and re-arms the timer."""
    buckets, due, index = s.fields["buckets"], z3.Int("due"), z3.Int("any0")
    reader = Reader([due >= 0, buckets.length >= 0])
    loop = reader.loop(model.split_due)

    def inside(n: Names) -> Any:
        return z3.And(as_term(n["due"]) >= 0, as_term(n["due"]) <= n["s"].fields["buckets"].length)

    head = {"cfg": cfg, "s": s, "due": due}
    in_range = Invariant("the number of due buckets is in range", inside)
    induction = Induction(proof, loop, head, [in_range], [buckets.length >= 0])
    induction.base_case(loop.begin(cfg, s))
    for end in induction.exit_paths(induction.step_case()):
        left = end.value[1]
        timer = reader.call(model.timer_after_run, cfg, s, left, when=end.when)
        after = s.replace({"buckets": left, "timer": timer})
        at, first = left.at(index).fields["time"], left.at(z3.IntVal(0)).fields["time"]
        in_order = z3.Implies(z3.And(index >= 0, index < left.length), first <= at)
        proof.possible("a run that leaves buckets", [*end.when, in_order, left.length > 1, index == 1])
        proof.show("after a run", covered.holds({"s": after}, index), [*end.when, in_order])


# ---- random traces ----------------------------------------------------------------------------------------


def histories(count: int, steps: int) -> Iterator[tuple[Config, str, State, State]]:
    """Yields the steps of random traces under the reference timer rule; always the same sequence."""
    draw = random.Random(395)  # noqa: S311
    for _ in range(count):
        cfg = Config(
            redelivery_delay_ms=draw.choice((0, 5, 9)),
            precision_bits=draw.choice((0, 0, 2)),
            backoff=Backoff("ms", draw.choice(((), (8, 3, 20)))),
            min_delay_ms=draw.choice((0, 2)),
            due_at_bucket_time=draw.random() < 0.7,
            due_clock="wall",
        )
        s = model.start(cfg)._replace(wall_offset=draw.choice((0, -3, 4)))
        for _ in range(steps):
            name = draw.choice(("nack", "nack", "advance_time", "run_timer_task"))
            arguments: tuple[Any, ...] = ()
            if name == "nack":
                arguments = Position(1, draw.randint(0, 3)), draw.choice((None, 0, 1, 2, 9)), NackedId()
            elif name == "advance_time":
                arguments = draw.choice((1, 2, 5)), draw.choice((0, 0, 1))
            after, _ = model.negative_acks.step(cfg, s, name, arguments)
            yield cfg, f"{name}{arguments}", s, after
            s = after
