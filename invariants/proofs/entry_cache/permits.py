"""Claims about `InflightReadsLimiter`, for any number of requests.

A limiter is sound if its free permits are between 0 and the maximum, and free and granted permits add up to the
maximum.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.induction import Induction, Invariant, Names, facts_of
from invariants.proofs.symbolic import (
    INDEX,
    ITERATED,
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
from model.entry_cache.reads_limiter import Grant, Limiter, Settings, Waiting

MODEL = "model.entry_cache.reads_limiter"
PERMITS = {"permits": lambda grant: grant.fields["permits"]}


class Limits:
    """Any settings and any limiter, with the sum of the granted permits."""

    def __init__(self) -> None:
        self.settings, self.limiter = unknown(Settings, "cfg"), limiter_named("before")
        self.free, self.most = self.limiter.fields["free"], self.settings.fields["max_bytes"]
        self.permits, self.request, self.now = z3.Ints("permits request now")

    def terms(self, *values: Any) -> list[Any]:
        """Returns the results of calls as terms; each call is a tuple of a function of the model and its arguments."""
        return [as_term(Reader().call(function, *arguments)) for function, *arguments in values]


def limiter_named(name: str) -> Rec:
    """Returns an unconstrained limiter, whose constants' names begin with `name`."""
    limiter: Rec = unknown(Limiter, name)
    grants = Seq.unknown(Grant, f"{name}.grants", PERMITS)
    return limiter.replace({"grants": grants})


def is_sound(settings: Rec, limiter: Rec) -> Any:
    """Returns whether a symbolic limiter is sound."""
    free, most = limiter.fields["free"], settings.fields["max_bytes"]
    return z3.And(free >= 0, free <= most, free + limiter.fields["grants"].total("permits") == most)


def is_sound_limiter(settings: Settings, limiter: Limiter) -> bool:
    """Returns whether a concrete limiter is sound."""
    return 0 <= limiter.free <= settings.max_bytes == limiter.free + sum(g.permits for g in limiter.grants)


# ---- fits ---------------------------------------------------------------------------------------------


@claim(
    "permit-fit-is-monotone",
    "z3",
    "For every limiter whose free permits are at most its maximum: a request that fits also fits if more permits are "
    "free, and every smaller request fits as well.",
    Control(
        "an oversized request fits only if some permits are not free",
        MODEL,
        "permits > settings.max_bytes and free == settings.max_bytes",
        "permits > settings.max_bytes and free != settings.max_bytes",
        refutes="when more are free",
    ),
)
def fitting_is_monotone() -> Answer:
    """apache/pulsar#23901; a request above the maximum waits for all permits (#23524)."""
    it, proof = Limits(), Proof()
    more, less = z3.Ints("more less")
    fits, at_more, of_less = it.terms(
        (model.fits, it.settings, it.free, it.permits),
        (model.fits, it.settings, more, it.permits),
        (model.fits, it.settings, it.free, less),
    )
    given = [it.free >= 0, it.free <= more, more <= it.most, less <= it.permits, less >= 0, fits]
    proof.possible("a request that fits", given)
    proof.show("when more are free", at_more, given, direct=True)
    proof.show("when less is wanted", of_less, given, direct=True)
    fits_against(proof, fits)
    return proof.answer()


@claim(
    "idle-limiter-grants-every-request",
    "z3",
    "For every limiter whose permits are all free: every request fits, whatever its size.",
    Control(
        "a request above the maximum never fits",
        MODEL,
        "return free >= permits or (permits > settings.max_bytes and free == settings.max_bytes)",
        "return free >= permits",
        refutes="an idle limiter",
    ),
)
def idle_fits_everything() -> Answer:
    """A request larger than the maximum was never granted: apache/pulsar#23524."""
    it, proof = Limits(), Proof()
    [fits] = it.terms((model.fits, it.settings, it.most, it.permits))
    proof.show("an idle limiter", fits, [it.most >= 0, it.permits >= 0], direct=True)
    [any_fits] = it.terms((model.fits, it.settings, it.free, it.permits))
    fits_against(proof, any_fits)
    return proof.answer()


def fits_against(proof: Proof, fits: Any) -> None:
    """Compares the term of `fits` with the rule on random numbers around its thresholds."""
    draw = random.Random(23524)  # noqa: S311
    for _ in range(300):
        most = draw.randint(0, 6)
        free, permits = draw.randint(0, most), draw.randint(0, 8)
        bound = {"cfg.max_bytes": most, "before.free": free, "permits": permits}
        proof.compare(f"fits({bound})", evaluate(fits, bound), model.fits(Settings(most, 1, 1), free, permits))


@claim(
    "request-that-fails-at-release-fails-at-timer",
    "z3",
    "For every queued request and every time: a request that fails at a release also fails at the timer. The two "
    "conditions differ only for a request that has waited exactly the timeout.",
    Control(
        "the timer waits one nanosecond too long",
        MODEL,
        "return now_ns - waiting.since_ns >= timeout_ns",
        "return now_ns - waiting.since_ns > timeout_ns + 1",
        refutes="a request that fails at a release fails at the timer",
    ),
)
def failing_at_release_is_failing_at_timer() -> Answer:
    """apache/pulsar#23901. The comparison is strict at a release and not strict at the timer."""
    proof = Proof()
    waiting, timeout, now = unknown(Waiting, "waiting"), z3.Int("timeout"), z3.Int("now")
    reader = Reader()
    at_release, at_timer = (
        as_term(reader.call(rule, waiting, now, timeout)) for rule in (model.fails_at_release, model.fails_at_timer)
    )
    exactly = now - waiting.fields["since_ns"] == timeout
    valid = [timeout >= 0, now >= waiting.fields["since_ns"], waiting.fields["since_ns"] >= 0]
    fails_at_both = z3.Implies(at_release, at_timer)
    proof.show("a request that fails at a release fails at the timer", fails_at_both, valid, direct=True)
    proof.show("the conditions differ", (at_release != at_timer) == exactly, valid, direct=True)
    draw = random.Random(60)  # noqa: S311
    for _ in range(200):
        some, at, wait = Waiting(1, 1, draw.randint(0, 5)), draw.randint(0, 12), draw.randint(0, 6)
        bound: dict[str, Any] = {"now": at, "timeout": wait}
        bind(Waiting, "waiting", some, bound)
        program = (model.fails_at_release(some, at, wait), model.fails_at_timer(some, at, wait))
        proof.compare(f"{bound}", evaluate((at_release, at_timer), bound), program)
    return proof.answer()


# ---- conservation -----------------------------------------------------------------------------------------


@claim(
    "permits-are-conserved",
    "z3",
    "For any number of requests with nonnegative sizes and at most one grant each: if free permits are between 0 and "
    "the maximum, and free and granted permits add up to the maximum, both still hold after every acquire, release, "
    "grant of queued requests and run of the timer.",
    Control(
        "an oversized request is granted more than the maximum",
        MODEL,
        "taken = min(permits, settings.max_bytes)",
        "taken = permits",
        refutes="after a request",
    ),
)
def permits_are_conserved() -> Answer:
    """apache/pulsar#23901, #26296, in which permits were lost or granted twice."""
    it, proof = Limits(), Proof()
    given = [is_sound(it.settings, it.limiter), it.permits >= 0]
    for path in Reader().paths(model.acquire, it.settings, it.limiter, it.request, it.permits, it.now):
        after, _ = path.value
        _show_sound(proof, "a request", path, it, after, given)
    _free_permits(proof, it)
    _expire(proof, it)
    _grant_queued(proof, it)
    for settings, limiter, now in limiters(200):
        _run_operations(proof, settings, limiter, now)
    return proof.answer()


def _show_sound(proof: Proof, what: str, path: Path, it: Limits, after: Rec, given: list[Any]) -> None:
    """Proves that the limiter after a path is sound."""
    goal = is_sound(it.settings, after)
    proof.show(f"after {what}", goal, [*given, *path.when, *facts_of((it.limiter, after), goal, *given, *path.when)])


def _free_permits(proof: Proof, it: Limits) -> None:
    """Proves that a limiter is sound after a return of permits.

    By induction over the index of a grant, the permits of the other grants are all permits minus the returned ones.
    """
    reader = Reader()
    loop = reader.loop(model.free_permits)
    grants, at = it.limiter.fields["grants"], z3.Int("at")
    names = {"limiter": it.limiter, "request": it.request, ITERATED: grants, INDEX: at}
    for path in loop.iteration(names, [at >= 0]):
        if path.exit == "next":
            proof.need("an iteration leaves the limiter unchanged", path.names["limiter"] is it.limiter)
            continue
        after, others = path.value, path.value.fields["grants"]
        tally = others.origin.recursive_sum(lambda grant: grant.fields["permits"])
        index = z3.Int("index")
        held = grants.at(at).fields["permits"]

        def adds_up(n: Any, tally: Any = tally, held: Any = held) -> Any:
            rest = grants.total("permits", 0, n) - z3.If(n > at, held, 0)
            return z3.And(tally.before(n) == rest, rest >= 0)

        same_request = equal(grants.at(index).fields["request"], grants.at(at).fields["request"])
        once = z3.Implies(z3.And(index >= 0, index < grants.length, as_term(same_request)), index == at)
        some = grants.at(index).fields["permits"] >= 0  # grants are nonnegative
        inside = [index >= 0, index < grants.length, once, some, *path.when, *tally.facts(index)]
        facts = [*grants.roots[0].facts([index, at]), tally.before(0) == 0]
        proof.lemma("at loop entry, the others add up", adds_up(z3.IntVal(0)), [*path.when, *facts])
        proof.possible("a grant beside the returned one", [*inside, *facts, index != at])
        proof.show("at the next index, the others add up", adds_up(index + 1), [*inside, *facts, adds_up(index)])
        rest = after.fields["free"] + tally.whole() == it.most
        sums = [adds_up(grants.length), is_sound(it.settings, it.limiter)]
        bounds = z3.And(after.fields["free"] >= 0, after.fields["free"] <= it.most)
        proof.show("after a return", z3.And(rest, bounds), [*sums, held >= 0, *path.when, *facts])
    for end in loop.end(names):
        proof.need("a request without a grant returns no permits", end.value is it.limiter)


def _expire(proof: Proof, it: Limits) -> None:
    """Proves that the timer changes no permits."""
    reader = Reader(lists={"failed": (int, {})})
    loop = reader.loop(model.expire)
    names = {"settings": it.settings, "limiter": it.limiter, "now_ns": it.now, "failed": Seq.unknown(int, "failed")}
    for path in loop.iteration(names):
        after = path.names["limiter"]
        same = after.fields["free"] is it.free and after.fields["grants"] is it.limiter.fields["grants"]
        proof.need("the timer leaves the permits unchanged", same)


def _grant_queued(proof: Proof, it: Limits) -> None:
    """Proves that a limiter stays sound when queued requests are granted."""
    loop, head = _granting(it)
    sound = Invariant("permits are conserved", lambda n: is_sound(n["settings"], n["limiter"]))
    wants = Invariant("sizes are nonnegative", _sizes_are_nonnegative, 1)
    induction = Induction(proof, loop, head, [sound, wants], [_sizes_are_nonnegative(head, z3.IntVal(0))])
    induction.base_case(loop.begin(it.settings, it.limiter, it.now), [sound, wants])
    for end in induction.exit_paths(induction.step_case()):
        induction.show("after queued requests are granted", end, lambda end=end: is_sound(it.settings, end.value[0]))


def _sizes_are_nonnegative(n: Names, i: Any) -> Any:
    waiting = n["limiter"].fields["waiting"]
    return z3.Implies(z3.And(i >= 0, i < waiting.length), waiting.at(i).fields["permits"] >= 0)


def _granting(it: Limits) -> tuple[Loop, dict[str, Any]]:
    """Returns the loop of `grant_queued`, and arbitrary values of its variables."""
    reader = Reader(lists={"granted": (int, {}), "failed": (int, {})})
    granted, failed = Seq.unknown(int, "granted"), Seq.unknown(int, "failed")
    names = {
        "settings": it.settings,
        "limiter": limiter_named("limiter"),
        "now_ns": it.now,
        "granted": granted,
        "failed": failed,
    }
    return reader.loop(model.grant_queued), names


# ---- queue order -------------------------------------------------------------------------------------------


@claim(
    "permits-are-granted-in-queue-order",
    "z3",
    "For a queue of any length: `grant_queued` removes requests from the head of the queue only, grants or fails each "
    "of them, and keeps the order of the others. Afterwards the request at the head has not timed out and does not "
    "fit, so no request waits without need.",
    Control(
        "a request that does not fit is removed and never completes",
        MODEL,
        "        else:\n            break\n    return limiter, granted, failed",
        "        else:\n            limiter = limiter._replace(waiting=rest)\n    return limiter, granted, failed",
        refutes="after an iteration, remaining requests are a suffix of the queue",
    ),
)
def granted_in_order() -> Answer:
    """apache/pulsar#23901, which replaced a retry loop by a queue."""
    it, proof = Limits(), Proof()
    loop, head = _granting(it)
    at_first = it.limiter.fields["waiting"]

    def is_rest(n: Names, i: Any) -> Any:
        waiting = n["limiter"].fields["waiting"]
        gone = at_first.length - waiting.length
        counted = n["granted"].length + n["failed"].length == gone
        same = z3.Implies(z3.And(i >= 0, i < waiting.length), equal(waiting.at(i), at_first.at(i + gone)))
        return z3.And(gone >= 0, counted, same)

    rest = Invariant("remaining requests are a suffix of the queue", is_rest, 1)
    induction = Induction(proof, loop, head, [rest])
    induction.base_case(loop.begin(it.settings, it.limiter, it.now))
    reader = Reader()
    for end in induction.exit_paths(induction.step_case()):
        after, granted, failed = end.value
        waiting = after.fields["waiting"]
        first = waiting.at(z3.IntVal(0))
        timed_out, fits = (
            as_term(reader.call(model.fails_at_release, first, it.now, it.settings.fields["timeout_ns"])),
            as_term(reader.call(model.fits, it.settings, after.fields["free"], first.fields["permits"])),
        )
        stuck = z3.Implies(waiting.length > 0, z3.And(z3.Not(timed_out), z3.Not(fits)))
        induction.show("the request at the head", end, lambda stuck=stuck: stuck)
        names = {"limiter": after, "granted": granted, "failed": failed}
        induction.show("the remaining requests", end, lambda i, names=names: is_rest(names, i), [z3.Int("any0")])
    _compare_loop(proof, it, loop, head)
    for settings, limiter, now in limiters(300):
        proof.run(f"grant_queued at {now} of {limiter}", _in_order(settings, limiter, now), settings)
    return proof.answer()


def _in_order(settings: Settings, limiter: Limiter, now: int) -> bool:
    """Returns whether the claim holds for a run of `grant_queued` on a concrete limiter."""
    after, granted, failed = model.grant_queued(settings, limiter, now)
    answered = len(granted) + len(failed)
    in_front = [w.request for w in limiter.waiting[:answered]]
    stuck = all(
        not model.fits(settings, after.free, w.permits) and not model.fails_at_release(w, now, settings.timeout_ns)
        for w in after.waiting[:1]
    )
    return sorted(granted + failed) == sorted(in_front) and after.waiting == limiter.waiting[answered:] and stuck


def _compare_loop(proof: Proof, it: Limits, loop: Loop, head: Names) -> None:
    """Compares the terms of the loop, evaluated for each iteration, with runs of the function."""
    kinds = {"limiter": Limiter, "granted": list[int], "failed": list[int]}
    terms = LoopEvaluator(loop.condition(head), loop.iteration(head), kinds)
    for settings, limiter, now in limiters(60):
        bound: dict[str, Any] = {"now": now}
        bind(Settings, "cfg", settings, bound)
        left = terms.run(bound, {"limiter": limiter, "granted": (), "failed": ()})
        after, granted, failed = model.grant_queued(settings, limiter, now)
        evaluated = left["limiter"].free, left["limiter"].waiting, list(left["granted"]), list(left["failed"])
        proof.compare(f"grant_queued of {limiter}", evaluated, (after.free, after.waiting, granted, failed))


# ---- running limiters -------------------------------------------------------------------------------------


def limiters(count: int) -> Iterator[tuple[Settings, Limiter, int]]:
    """Yields sound limiters with up to four queued requests, each with a time; always the same sequence."""
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
        yield Settings(most, draw.randint(0, 5), draw.randint(0, 6)), Limiter(free, waiting, tuple(grants)), 6


def _run_operations(proof: Proof, settings: Settings, limiter: Limiter, now: int) -> None:
    """Runs every operation on a concrete limiter, which must stay sound."""
    for permits in (0, 1, settings.max_bytes, settings.max_bytes + 1):
        after, _ = model.acquire(settings, limiter, 5, permits, now)
        proof.run(f"acquire({permits})", is_sound_limiter(settings, after), limiter)
    for grant in limiter.grants:
        after = model.free_permits(limiter, grant.request)
        proof.run(f"free_permits({grant.request})", is_sound_limiter(settings, after), limiter)
        after, _, _ = model.grant_queued(settings, after, now)
        proof.run(f"free_permits({grant.request}), then grant_queued", is_sound_limiter(settings, after), limiter)
    after, _ = model.expire(settings, limiter, now)
    proof.run("expire", is_sound_limiter(settings, after), limiter)
