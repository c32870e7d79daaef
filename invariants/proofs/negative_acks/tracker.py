"""Negative acknowledgement tracker: buckets, the timer, and entries that are nacked again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, get_type_hints

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim, explored
from invariants.proofs.induction import Induction, Invariant, Names
from invariants.proofs.negative_acks import contracts
from invariants.proofs.symbolic import TOKEN, Reader, Rec, Seq, as_term, evaluate, lifted, unknown
from model.negative_acks import ids as nacked_ids
from model.negative_acks import machine as model
from model.negative_acks.ids import Told
from model.negative_acks.machine import Config, Slot, State
from model.positions import Position

MODEL, DELAYS = "model.negative_acks.machine", "model.negative_acks.delay"

#: The precisions that the setting allows.
BITS = range(41)


def tracker(**rules: Any) -> tuple[Rec, Rec]:
    """Any config with these rules, and any state; into a tree of slots nobody looks."""
    cfg = unknown(Config, "cfg").replace({name: lifted(value) for name, value in rules.items()})
    kinds = get_type_hints(State, localns={"Node": object}, include_extras=True)
    return cfg, Rec(State, {f: unknown(kind, f"s.{f}") for f, kind in kinds.items()})


# ---- slots ------------------------------------------------------------------------------------------------


def units_in(unit: str, precision_of: str) -> int:
    """In how many units of the clock one unit of the precision is."""
    return 1_000_000 if (unit, precision_of) == ("ns", "milliseconds") else 1


@claim(
    "a-slot-is-less-than-its-length-early",
    "z3",
    "For every due time, every precision from 0 to 40 bits, on clocks of milliseconds and of nanoseconds: the slot of "
    "a due time is at that time or before it by less than 2^bits milliseconds (2^bits nanoseconds where the bits are "
    "those of nanoseconds), and it is a multiple of that length.",
    Control(
        "slots are rounded up",
        DELAYS,
        "return time // grain * grain",
        "return -(-time // grain) * grain",
    ),
)
def slots_are_early() -> Answer:
    """The low bits of a timestamp are trimmed, so that a message comes back a little early: PIP-393, "Design"."""
    proof, due = Proof(), z3.Int("due")
    draw = random.Random(393)  # noqa: S311
    for unit in ("ms", "ns"):
        for precision_of in ("milliseconds", "units"):
            for bits in BITS:
                rules = {"unit": unit, "precision_of": precision_of}
                cfg = tracker(**rules)[0].replace({"precision_bits": bits})
                slot = as_term(Reader().call(model.slot_time, cfg, due))
                length = units_in(unit, precision_of) * 2**bits
                goal = z3.And(slot <= due, due < slot + length, slot % length == 0)
                proof.show(f"{bits} bits of {precision_of}, in {unit}", goal, direct=True)
                plain = Config(**rules, precision_bits=bits)  # type: ignore[arg-type]
                time = draw.randint(-(2**10), 2 ** draw.randint(1, 62))
                proof.compare(f"{plain}, {time}", evaluate(slot, {"due": time}), model.slot_time(plain, time))
    return proof.answer()


@claim(
    "a-slot-is-due-when-the-timer-wakes",
    "z3",
    "For all times, every distance of the wall clock and both rules: a slot is due at the time for which its timer is "
    "set, and at no earlier time from now on; where slots are due at their time, exactly from that time on.",
    Control(
        "a slot is only due behind its time",
        MODEL,
        "return time <= clock if cfg.due_at_its_time else time < clock",
        "return time < clock",
    ),
)
def due_when_awake() -> Answer:
    """A timer that fires before its slot is due would have to be set again, at once: PIP-393, "Design"."""
    proof, (cfg, s), (time, other) = Proof(), tracker(), z3.Ints("time other")
    reader = Reader()

    def due_at(now: Any) -> Any:
        return as_term(reader.call(model.is_due, cfg, s.replace({"now": now}), time))

    wake = as_term(reader.call(model.wake_up, cfg, s, time))
    proof.show("due at the deadline", due_at(wake), direct=True)
    earlier = [other >= s.fields["now"], other < wake]
    proof.possible("an earlier time", earlier)
    proof.show("not before it", z3.Not(due_at(other)), earlier, direct=True)
    exact = due_at(other) == (time <= other + s.fields["skew"])
    proof.show("due at its time", z3.Implies(as_term(cfg.fields["due_at_its_time"]), exact), direct=True)
    draw = random.Random(394)  # noqa: S311
    for _ in range(200):
        plain = Config(due_at_its_time=draw.random() < 0.5)
        now, skew, at = draw.randint(0, 9), draw.randint(-5, 5), draw.randint(-2, 12)
        state = model.start(plain)._replace(now=now, skew=skew)
        bound = {"cfg.due_at_its_time": plain.due_at_its_time, "s.now": now, "s.skew": skew, "time": at, "other": now}
        proof.compare(f"wake-up of {at} in {state}", evaluate(wake, bound), model.wake_up(plain, state, at))
        proof.compare(f"{at} in {state}", evaluate(due_at(other), bound), model.is_due(plain, state, at))
    return proof.answer()


# ---- the timer --------------------------------------------------------------------------------------------


def in_time(cfg: Rec, s: Rec) -> Invariant:
    """A timer is set, for no later than a slot is due, or for no later than now."""

    def covered(n: Names, place: Any) -> Any:
        slots, timer, now = (n["s"].fields[name] for name in ("slots", "timer", "now"))
        at = slots.at(place).fields["time"] - n["s"].fields["skew"]
        at = z3.If(as_term(cfg.fields["due_at_its_time"]), at, at + 1)
        set_for = z3.And(timer.defined, timer.value <= z3.If(at > now, at, now))
        return z3.Implies(z3.And(place >= 0, place < slots.length), set_for)

    return Invariant("the timer is set in time", covered, 1)


def runs_in_time(cfg: Config, s: State) -> bool:
    """The same of a running state."""
    late = 0 if cfg.due_at_its_time else 1
    return all(s.timer is not None and s.timer <= max(slot.time - s.skew + late, s.now) for slot in s.slots)


@claim(
    "the-timer-is-never-later-than-the-first-slot",
    "z3",
    "For any number of pending slots and entries, every delay and precision and every distance of the wall clock that "
    "stays, where the timer is set for the first slot and an entry may be pending twice: if the timer is set, for no "
    "later than each slot is due, or for now at the latest, so it is after every nack, after every run's new setting "
    "of the timer, and as time passes. That adding an entry brings no slot but the one of its time, and what a run "
    "does beside leaving slots and setting the timer, was run and not shown.",
    Control(
        "the timer is only set when none is, as in the Java client after PIP-393",
        MODEL,
        "return at if s.timer is None or at < s.timer else s.timer",
        "return at if s.timer is None else s.timer",
    ),
)
def timer_is_in_time() -> Answer:
    """A shorter delay behind a longer one waited for the longer: PIP-393, "Design", and apache/pulsar#23600."""
    proof, rules = Proof(), {"timer": "first_slot", "again": "both", "walk": "complete"}
    cfg, s = tracker(**rules)
    covered = in_time(cfg, s)
    _nacks_in_time(proof, cfg, s, covered)
    _runs_in_time(proof, cfg, s, covered)
    later, place = z3.Int("later"), z3.Int("any0")
    given = [covered.holds({"s": s}, place), later >= s.fields["now"]]
    proof.show("as time passes", covered.holds({"s": s.replace({"now": later})}, place), given)
    proof.need("it is not so at the start", runs_in_time(Config(), model.start(Config())))
    for plain, step, was, now in histories(40, 60):
        proof.run(step, runs_in_time(plain, now) or not runs_in_time(plain, was), was)
        left = model.taken(plain, was)[1]
        after = model.run(plain, was)[0]
        wanted = model.timer_after_run(plain, was, left), left
        proof.compare(f"a run of {was}", (after.timer, after.slots), wanted)
    return proof.answer()


def _nacks_in_time(proof: Proof, cfg: Rec, s: Rec, covered: Invariant) -> None:
    """After every way through a nack the timer is in time, whatever the delay, wherever its slot may be."""
    is_own, origin = z3.Function("is own", z3.IntSort(), z3.BoolSort()), z3.Function("of", z3.IntSort(), z3.IntSort())
    slots, place = s.fields["slots"], z3.Int("any0")

    def with_entry(before: Seq, time: Any, _: Any) -> Seq:
        """Slots of which each is at that time, or at the time of one that was there: `_adding_is_as_said` runs it."""

        def at(where: Any) -> Rec:
            other = before.at(origin(as_term(where))).fields["time"]
            entries = z3.Function("entries", z3.IntSort(), TOKEN)(as_term(where))
            return Rec(Slot, {"time": z3.If(is_own(as_term(where)), time, other), "entries": entries})

        return Seq(Slot, z3.Int("slots after"), at, {}, {})

    anything = (model.delay_of, model.slot_time, nacked_ids.kept_of)
    reader = Reader(havoc=anything, stubs={model.with_entry: with_entry})
    entry, count, told = unknown(Position, "entry"), unknown(int | None, "count"), unknown(Told, "told")
    was_there = z3.And(origin(place) >= 0, origin(place) < slots.length)
    given = [z3.Or(is_own(place), was_there), covered.holds({"s": s}, place)]
    given.append(covered.holds({"s": s}, origin(place)))
    taken = []
    for way in reader.paths(model.nack, cfg, s, entry, count, told):
        after = way.value[0]
        proof.show("after a nack", covered.holds({"s": after}, place), [*given, *way.when])
        if after is not s:
            taken.append(z3.And(*given, *way.when))
    proof.possible("a nack that is taken", [z3.Or(*taken)])
    _adding_is_as_said(proof)


def _adding_is_as_said(proof: Proof) -> None:
    """Runs `with_entry`: it brings the slot of its time, and no other."""
    for _, _, was, now in histories(20, 40):
        for time in (was.now, now.now + 1):
            wanted = sorted({time, *[slot.time for slot in was.slots]})
            after = model.with_entry(was.slots, time, Position(1, 0))
            proof.compare(f"{time} in {was.slots}", wanted, [slot.time for slot in after])


def _runs_in_time(proof: Proof, cfg: Rec, s: Rec, covered: Invariant) -> None:
    """A run takes slots from the front, and sets the timer anew by what is left."""
    slots, due, place = s.fields["slots"], z3.Int("due"), z3.Int("any0")
    reader = Reader([due >= 0, slots.length >= 0])
    loop = reader.loop(model.taken)

    def inside(n: Names) -> Any:
        return z3.And(as_term(n["due"]) >= 0, as_term(n["due"]) <= n["s"].fields["slots"].length)

    head = {"cfg": cfg, "s": s, "due": due}
    induction = Induction(proof, loop, head, [Invariant("what is due is inside", inside)], [slots.length >= 0])
    induction.begins(loop.begin(cfg, s))
    for end in induction.ends(induction.goes_round()):
        left = end.value[1]
        timer = reader.call(model.timer_after_run, cfg, s, left, when=end.when)
        after = s.replace({"slots": left, "timer": timer})
        at, first = left.at(place).fields["time"], left.at(z3.IntVal(0)).fields["time"]
        in_order = z3.Implies(z3.And(place >= 0, place < left.length), first <= at)
        proof.possible("a run that leaves something", [*end.when, in_order, left.length > 1, place == 1])
        proof.show("after a run", covered.holds({"s": after}, place), [*end.when, in_order])


# ---- the rest ---------------------------------------------------------------------------------------------


@claim(
    "a-pending-entry-is-nacked-again-by-the-rule",
    "crosshair",
    "An entry that is pending in any slot and is then nacked for any other: it is pending in both, in the earlier one, "
    "in the later nack's or in the first nack's, by the rule; and an entry that was beside it stays where it is.",
    Control(
        "the earlier time gives way",
        MODEL,
        'cfg.again == "earliest" and min(pending) <= time',
        'cfg.again == "earliest" and min(pending) > time',
    ),
)
def again_by_rule() -> Answer:
    """Source: PIP-393, which keeps both; before it the Java client kept the later, and the Go client the first one."""
    return explored(contracts.again_keeps_to_its_rule)


@claim(
    "slots-and-wake-ups-agree",
    "crosshair",
    "When an entry is nacked at any time, with any delay from 0 on, with a precision of 0 or 3 bits, while the "
    "timer is set for any time or not at all, and with both rules of when a slot is due: implementation and model put "
    "it in the same slot and set the timer for the same time.",
    Control(
        "the implementation rounds up",
        "impl.negative_acks.tracker",
        "time = due - due % self._grain",
        "time = due + -due % self._grain",
    ),
)
def slots_agree() -> Answer:
    """Equivalence of the implementation with the model."""
    return explored(contracts.nacks_agree)


# ---- running trackers -------------------------------------------------------------------------------------


def histories(count: int, steps: int) -> Iterator[tuple[Config, str, State, State]]:
    """The steps of random runs whose timers are set for the first slot, always the same."""
    draw = random.Random(395)  # noqa: S311
    for _ in range(count):
        cfg = Config(
            redelivery_delay_ms=draw.choice((0, 5, 9)),
            precision_bits=draw.choice((0, 0, 2)),
            backoff=draw.choice(((), (8, 3, 20))),
            least_delay_ms=draw.choice((0, 2)),
            due_at_its_time=draw.random() < 0.7,
            clock="wall",
        )
        s = model.start(cfg)._replace(skew=draw.choice((0, -3, 4)))
        for _ in range(steps):
            name = draw.choice(("nack", "nack", "advance_time", "timer_task_runs"))
            arguments: tuple[Any, ...] = ()
            if name == "nack":
                arguments = Position(1, draw.randint(0, 3)), draw.choice((None, 0, 1, 2, 9)), Told()
            elif name == "advance_time":
                arguments = draw.choice((1, 2, 5)), draw.choice((0, 0, 1))
            after, _ = model.negative_acks.step(cfg, s, name, arguments)
            yield cfg, f"{name}{arguments}", s, after
            s = after


claims = (slots_are_early, due_when_awake, timer_is_in_time, again_by_rule, slots_agree)
