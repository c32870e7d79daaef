"""Claims about the limiter of reads in flight: what it promises to whom, for any number of requests.

The rules are read from `model/entry_cache/reads_limiter.py`. A limiter is sound if its free permits are between 0 and
the maximum, and free and held permits add up to the maximum.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.induction import Induction, Invariant, Names, facts_of
from invariants.proofs.symbolic import (
    AT,
    OVER,
    Loop,
    LoopEvaluator,
    Path,
    Reader,
    Rec,
    Seq,
    as_term,
    bind,
    equal,
    evaluate,
    unknown,
)
from model.entry_cache import reads_limiter as model
from model.entry_cache.reads_limiter import Grant, Limiter, Rules, Waiting

MODEL = "model.entry_cache.reads_limiter"
PERMITS = {"permits": lambda grant: grant.fields["permits"]}


class Limits:
    """Any rules and any limiter, with the sum of what is granted."""

    def __init__(self) -> None:
        self.rules, self.limiter = unknown(Rules, "rules"), limiter_named("before")
        self.free, self.most = self.limiter.fields["free"], self.rules.fields["max_bytes"]
        self.permits, self.request, self.now = z3.Ints("permits request now")

    def terms(self, *values: Any) -> list[Any]:
        """Terms of rules that work on any of them."""
        return [as_term(Reader().call(function, *arguments)) for function, *arguments in values]


def limiter_named(name: str) -> Rec:
    """Any limiter."""
    limiter: Rec = unknown(Limiter, name)
    grants = Seq.unknown(Grant, f"{name}.grants", PERMITS)
    return limiter.replace({"grants": grants})


def is_sound(rules: Rec, limiter: Rec) -> Any:
    """The free permits are between nothing and the maximum; with those that are held they are the maximum."""
    free, most = limiter.fields["free"], rules.fields["max_bytes"]
    return z3.And(free >= 0, free <= most, free + limiter.fields["grants"].total("permits") == most)


def holds_together(rules: Rules, limiter: Limiter) -> bool:
    """The same of running limiters."""
    return 0 <= limiter.free <= rules.max_bytes == limiter.free + sum(g.permits for g in limiter.grants)


# ---- who fits ---------------------------------------------------------------------------------------------


@claim(
    "permits-fitting-is-monotone",
    "z3",
    "For every limiter whose free permits are at most its maximum: a request that fits also fits when more are "
    "free, and so does one that wants less; so nobody whom a smaller one has overtaken would have fitted.",
    Control(
        "a request that is too large fits only when exactly the maximum is wanted",
        MODEL,
        "permits > rules.max_bytes and free == rules.max_bytes",
        "permits > rules.max_bytes and free != rules.max_bytes",
        refutes="when more are free",
    ),
)
def fitting_is_monotone() -> Answer:
    """The limiter's queue after apache/pulsar#23901: what is too large waits for all permits (#23524)."""
    it, proof = Limits(), Proof()
    more, less = z3.Ints("more less")
    fits, at_more, of_less = it.terms(
        (model.fits, it.rules, it.free, it.permits),
        (model.fits, it.rules, more, it.permits),
        (model.fits, it.rules, it.free, less),
    )
    given = [it.free >= 0, it.free <= more, more <= it.most, less <= it.permits, less >= 0, fits]
    proof.possible("a request that fits", given)
    proof.show("when more are free", at_more, given, direct=True)
    proof.show("when less is wanted", of_less, given, direct=True)
    fits_against(proof, fits)
    return proof.answer()


@claim(
    "permits-idle-fits-everything",
    "z3",
    "For every limiter all of whose permits are free: every request fits, however much it wants.",
    Control(
        "what is larger than the maximum never fits",
        MODEL,
        "return free >= permits or (permits > rules.max_bytes and free == rules.max_bytes)",
        "return free >= permits",
        refutes="an idle limiter",
    ),
)
def idle_fits_everything() -> Answer:
    """A request larger than the maximum was never granted: apache/pulsar#23524."""
    it, proof = Limits(), Proof()
    [fits] = it.terms((model.fits, it.rules, it.most, it.permits))
    proof.show("an idle limiter", fits, [it.most >= 0, it.permits >= 0], direct=True)
    [any_fits] = it.terms((model.fits, it.rules, it.free, it.permits))
    fits_against(proof, any_fits)
    return proof.answer()


def fits_against(proof: Proof, fits: Any) -> None:
    """Compares the term of `fits` with the rule, on random numbers at its edges."""
    draw = random.Random(23524)  # noqa: S311
    for _ in range(300):
        most = draw.randint(0, 6)
        free, permits = draw.randint(0, most), draw.randint(0, 8)
        bound = {"rules.max_bytes": most, "before.free": free, "permits": permits}
        proof.compare(f"fits({bound})", evaluate(fits, bound), model.fits(Rules(most, 1, 1), free, permits))


@claim(
    "permits-overdue-is-expired",
    "z3",
    "For every request that waits, and every time: whoever has waited too long at a release has waited long enough "
    "at the timer, and the two differ only in who has waited exactly the timeout.",
    Control(
        "the timer waits one nanosecond too long",
        MODEL,
        "return now_ns - waiting.since_ns >= timeout_ns",
        "return now_ns - waiting.since_ns > timeout_ns + 1",
        refutes="who is overdue",
    ),
)
def overdue_is_expired() -> Answer:
    """The limiter's two ways to time out after apache/pulsar#23901: at a release strictly, at the timer not."""
    proof = Proof()
    waiting, timeout, now = unknown(Waiting, "waiting"), z3.Int("timeout"), z3.Int("now")
    reader = Reader()
    overdue, expired = (
        as_term(reader.call(rule, waiting, now, timeout)) for rule in (model.is_overdue, model.is_expired)
    )
    exactly = now - waiting.fields["since_ns"] == timeout
    sense = [timeout >= 0, now >= waiting.fields["since_ns"], waiting.fields["since_ns"] >= 0]
    proof.show("who is overdue", z3.Implies(overdue, expired), sense, direct=True)
    proof.show("who differs", (overdue != expired) == exactly, sense, direct=True)
    draw = random.Random(60)  # noqa: S311
    for _ in range(200):
        some, at, wait = Waiting(1, 1, draw.randint(0, 5)), draw.randint(0, 12), draw.randint(0, 6)
        bound: dict[str, Any] = {"now": at, "timeout": wait}
        bind(Waiting, "waiting", some, bound)
        program = (model.is_overdue(some, at, wait), model.is_expired(some, at, wait))
        proof.compare(f"{bound}", evaluate((overdue, expired), bound), program)
    return proof.answer()


# ---- what is held -----------------------------------------------------------------------------------------


@claim(
    "permits-are-conserved",
    "z3",
    "For any number of requests, none of which wants less than nothing or holds permits twice: if the free permits "
    "are between nothing and the maximum, and with those that are held they are the maximum, then so it is after any "
    "request, any return, any handing on and any timer.",
    Control(
        "more than the maximum is taken for a request that wants more",
        MODEL,
        "taken = min(permits, rules.max_bytes)",
        "taken = permits",
        refutes="after a request",
    ),
)
def permits_are_conserved() -> Answer:
    """Permits were lost, or promised twice: apache/pulsar#23901, #26296."""
    it, proof = Limits(), Proof()
    given = [is_sound(it.rules, it.limiter), it.permits >= 0]
    for way in Reader().paths(model.acquire, it.rules, it.limiter, it.request, it.permits, it.now):
        after, _ = way.value
        _shown(proof, "a request", way, it, after, given)
    _give_back(proof, it)
    _expire(proof, it)
    _hand_on(proof, it)
    for rules, limiter, now in limiters(200):
        _runs(proof, rules, limiter, now)
    return proof.answer()


def _shown(proof: Proof, what: str, way: Path, it: Limits, after: Rec, given: list[Any]) -> None:
    goal = is_sound(it.rules, after)
    proof.show(f"after {what}", goal, [*given, *way.when, *facts_of((it.limiter, after), goal, *given, *way.when)])


def _give_back(proof: Proof, it: Limits) -> None:
    """The sum over the others is the sum over all but what is given back: shown place by place."""
    reader = Reader()
    loop = reader.loop(model.give_back)
    grants, at = it.limiter.fields["grants"], z3.Int("at")
    names = {"limiter": it.limiter, "request": it.request, OVER: grants, AT: at}
    for way in loop.round(names, [at >= 0]):
        if way.how == "next":
            proof.need("a round changes the limiter", way.names["limiter"] is it.limiter)
            continue
        after, others = way.value, way.value.fields["grants"]
        tally = others.origin.tally(lambda grant: grant.fields["permits"])
        place = z3.Int("place")
        held = grants.at(at).fields["permits"]

        def adds_up(n: Any, tally: Any = tally, held: Any = held) -> Any:
            rest = grants.total("permits", 0, n) - z3.If(n > at, held, 0)
            return z3.And(tally.upto(n) == rest, rest >= 0)

        same_request = equal(grants.at(place).fields["request"], grants.at(at).fields["request"])
        once = z3.Implies(z3.And(place >= 0, place < grants.length, as_term(same_request)), place == at)
        some = grants.at(place).fields["permits"] >= 0  # nobody holds less than nothing
        inside = [place >= 0, place < grants.length, once, some, *way.when, *tally.facts(place)]
        facts = [*grants.roots[0].facts([place, at]), tally.upto(0) == 0]
        proof.lemma("at first, the others add up", adds_up(z3.IntVal(0)), [*way.when, *facts])
        proof.possible("a grant beside the one that is given back", [*inside, *facts, place != at])
        proof.show("one place on, the others add up", adds_up(place + 1), [*inside, *facts, adds_up(place)])
        rest = after.fields["free"] + tally.whole() == it.most
        sums = [adds_up(grants.length), is_sound(it.rules, it.limiter)]
        bounds = z3.And(after.fields["free"] >= 0, after.fields["free"] <= it.most)
        proof.show("after a return", z3.And(rest, bounds), [*sums, held >= 0, *way.when, *facts])
    for end in loop.end(names):
        proof.need("who holds nothing gives nothing back", end.value is it.limiter)


def _expire(proof: Proof, it: Limits) -> None:
    """The timer takes nobody's permits."""
    reader = Reader(lists={"failed": (int, {})})
    loop = reader.loop(model.expire)
    names = {"rules": it.rules, "limiter": it.limiter, "now_ns": it.now, "failed": Seq.unknown(int, "failed")}
    for way in loop.round(names):
        after = way.names["limiter"]
        same = after.fields["free"] is it.free and after.fields["grants"] is it.limiter.fields["grants"]
        proof.need("the timer touches permits", same)


def _hand_on(proof: Proof, it: Limits) -> None:
    loop, head = _handing_on(it)
    sound = Invariant("permits are conserved", lambda n: is_sound(n["rules"], n["limiter"]))
    wants = Invariant("nobody wants less than nothing", _wants_something, 1)
    induction = Induction(proof, loop, head, [sound, wants], [_wants_something(head, z3.IntVal(0))])
    induction.begins(loop.begin(it.rules, it.limiter, it.now), [sound, wants])
    for end in induction.ends(induction.goes_round()):
        induction.show("after handing on", end, lambda end=end: is_sound(it.rules, end.value[0]))


def _wants_something(n: Names, i: Any) -> Any:
    waiting = n["limiter"].fields["waiting"]
    return z3.Implies(z3.And(i >= 0, i < waiting.length), waiting.at(i).fields["permits"] >= 0)


def _handing_on(it: Limits) -> tuple[Loop, dict[str, Any]]:
    """The loop of `hand_on`, and the names at its head, of which nothing is known."""
    reader = Reader(lists={"granted": (int, {}), "failed": (int, {})})
    granted, failed = Seq.unknown(int, "granted"), Seq.unknown(int, "failed")
    names = {
        "rules": it.rules,
        "limiter": limiter_named("limiter"),
        "now_ns": it.now,
        "granted": granted,
        "failed": failed,
    }
    return reader.loop(model.hand_on), names


# ---- handing on -------------------------------------------------------------------------------------------


@claim(
    "permits-are-handed-on-in-turn",
    "z3",
    "For a queue of any length: handing permits on takes requests from its head only, each of them either granted or "
    "failed, and leaves the others in their order; whoever is at the head then has not waited too long, and does "
    "not fit, so that no wake-up is lost.",
    Control(
        "who does not fit is passed over, and never answered",
        MODEL,
        "        else:\n            break\n    return limiter, granted, failed",
        "        else:\n            limiter = limiter._replace(waiting=rest)\n    return limiter, granted, failed",
        refutes="after a round, who is left was behind who is answered",
    ),
)
def handed_on_in_turn() -> Answer:
    """The queue of apache/pulsar#23901 in place of a retry loop: nobody waits who could go on, except behind one who
    cannot."""
    it, proof = Limits(), Proof()
    loop, head = _handing_on(it)
    at_first = it.limiter.fields["waiting"]

    def is_rest(n: Names, i: Any) -> Any:
        waiting = n["limiter"].fields["waiting"]
        gone = at_first.length - waiting.length
        counted = n["granted"].length + n["failed"].length == gone
        same = z3.Implies(z3.And(i >= 0, i < waiting.length), equal(waiting.at(i), at_first.at(i + gone)))
        return z3.And(gone >= 0, counted, same)

    rest = Invariant("who is left was behind who is answered", is_rest, 1)
    induction = Induction(proof, loop, head, [rest])
    induction.begins(loop.begin(it.rules, it.limiter, it.now))
    reader = Reader()
    for end in induction.ends(induction.goes_round()):
        after, granted, failed = end.value
        waiting = after.fields["waiting"]
        first = waiting.at(z3.IntVal(0))
        overdue, fits = (
            as_term(reader.call(model.is_overdue, first, it.now, it.rules.fields["timeout_ns"])),
            as_term(reader.call(model.fits, it.rules, after.fields["free"], first.fields["permits"])),
        )
        stuck = z3.Implies(waiting.length > 0, z3.And(z3.Not(overdue), z3.Not(fits)))
        induction.show("who is at the head then", end, lambda stuck=stuck: stuck)
        names = {"limiter": after, "granted": granted, "failed": failed}
        induction.show("in the end, who is left", end, lambda i, names=names: is_rest(names, i), [z3.Int("any0")])
    _against_rounds(proof, it, loop, head)
    for rules, limiter, now in limiters(300):
        proof.run(f"hand_on at {now} of {limiter}", _in_turn(rules, limiter, now), rules)
    return proof.answer()


def _in_turn(rules: Rules, limiter: Limiter, now: int) -> bool:
    after, granted, failed = model.hand_on(rules, limiter, now)
    answered = len(granted) + len(failed)
    in_front = [w.request for w in limiter.waiting[:answered]]
    stuck = all(
        not model.fits(rules, after.free, w.permits) and not model.is_overdue(w, now, rules.timeout_ns)
        for w in after.waiting[:1]
    )
    return sorted(granted + failed) == sorted(in_front) and after.waiting == limiter.waiting[answered:] and stuck


def _against_rounds(proof: Proof, it: Limits, loop: Loop, head: Names) -> None:
    """Compares the loop with what it runs to, by working its terms out round by round."""
    kinds = {"limiter": Limiter, "granted": list[int], "failed": list[int]}
    rounds = LoopEvaluator(loop.goes_on(head), loop.round(head), kinds)
    for rules, limiter, now in limiters(60):
        bound: dict[str, Any] = {"now": now}
        bind(Rules, "rules", rules, bound)
        left = rounds.run(bound, {"limiter": limiter, "granted": (), "failed": ()})
        after, granted, failed = model.hand_on(rules, limiter, now)
        worked_out = left["limiter"].free, left["limiter"].waiting, list(left["granted"]), list(left["failed"])
        proof.compare(f"hand_on of {limiter}", worked_out, (after.free, after.waiting, granted, failed))


# ---- running limiters -------------------------------------------------------------------------------------


def limiters(count: int) -> Iterator[tuple[Rules, Limiter, int]]:
    """Sound limiters with up to four who wait, always the same, each with a time."""
    draw = random.Random(23901)  # noqa: S311
    for _ in range(count):
        most = draw.randint(1, 6)
        free, grants = most, []
        for request in range(draw.randint(0, 3)):
            taken = draw.randint(0, free)
            grants.append(Grant(request, taken, ()))
            free -= taken
        since = sorted(draw.randint(0, 6) for _ in range(draw.randint(0, 4)))
        waiting = tuple(Waiting(10 + i, draw.randint(0, most + 2), time) for i, time in enumerate(since))
        yield Rules(most, draw.randint(0, 5), draw.randint(0, 6)), Limiter(free, waiting, tuple(grants)), 6


def _runs(proof: Proof, rules: Rules, limiter: Limiter, now: int) -> None:
    """Every call on a running limiter leaves it sound."""
    for permits in (0, 1, rules.max_bytes, rules.max_bytes + 1):
        after, _ = model.acquire(rules, limiter, 5, permits, now)
        proof.run(f"acquire({permits})", holds_together(rules, after), limiter)
    for grant in limiter.grants:
        after = model.give_back(limiter, grant.request)
        proof.run(f"give_back({grant.request})", holds_together(rules, after), limiter)
        after, _, _ = model.hand_on(rules, after, now)
        proof.run(f"give_back({grant.request}), then hand_on", holds_together(rules, after), limiter)
    after, _ = model.expire(rules, limiter, now)
    proof.run("expire", holds_together(rules, after), limiter)


claims = (
    fitting_is_monotone,
    idle_fits_everything,
    overdue_is_expired,
    permits_are_conserved,
    handed_on_in_turn,
)
