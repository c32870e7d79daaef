"""Proofs about the steps of range caches, for any number of threads, caches, wrappers and entries.

Each step is executed symbolically from an arbitrary state, in which every number of a wrapper or key that a thread
holds is in range. Unconstrained are the bytes of an entry, the cache of a key and which locks are held.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.induction import facts_of
from invariants.proofs.symbolic import INDEX, SUM, Maybe, Path, Reader, Rec, Seq, as_term, equal, unknown
from model.cache_steps import machine as model
from model.cache_steps.state import (
    REFERENCE_RULES,
    Config,
    Insert,
    Removal,
    State,
    Wrapper,
    bytes_of,
    cache_of,
    is_locked,
    key_of,
    start,
)
from model.machine import Action

MODEL = "model.cache_steps.machine"
ACTIONS = model.cache_steps.actions

BYTES = z3.Function("bytes of", z3.IntSort(), z3.IntSort())
KEYS = z3.Function("key of", z3.IntSort(), z3.IntSort(), z3.IntSort())
CACHES = z3.Function("cache of", z3.IntSort(), z3.IntSort())


def bytes_at(key: Any) -> Any:
    """Returns the bytes of the entry with a key; 0 for no key."""
    if key is None:
        return z3.IntVal(0)
    return z3.If(key.defined, BYTES(key.value), 0) if isinstance(key, Maybe) else BYTES(as_term(key))


def is_at(thread: Rec, *steps: str) -> Any:
    """Returns whether the next step of a thread is one of these."""
    return z3.Or(*[as_term(equal(thread.fields["at"], step)) for step in steps])


def counted_not_in_total(insert: Rec) -> Any:
    """Returns the bytes that an insert has added to its cache's size, but not yet to the total."""
    return z3.If(is_at(insert, "total"), bytes_at(insert.fields["key"]), 0)


def not_yet_reported(removal: Rec) -> Any:
    """Returns the bytes that a removal has subtracted from its cache's size, but not yet from the total."""
    return z3.If(is_at(removal, "report"), removal.fields["removed"], 0)


def live_bytes(wrapper: Rec) -> Any:
    """Returns the bytes of the live entry of a wrapper; 0 if there is none."""
    return z3.If(wrapper.fields["pooled"], 0, bytes_at(wrapper.fields["key"]))


class Steps:
    """An arbitrary state, and every path of every step."""

    def __init__(self) -> None:
        self.proof = Proof()
        self.cfg, state = unknown(Config, "cfg").replace(REFERENCE_RULES), unknown(State, "s")
        self.s: Rec = state.replace(
            {
                "sizes": Seq.unknown(int, "s.sizes", {SUM: lambda n: n}),
                "wrappers": Seq.unknown(Wrapper, "s.wrappers", {"live": live_bytes}),
                "inserts": Seq.unknown(Insert, "s.inserts", {"owed": counted_not_in_total}),
                "removals": Seq.unknown(Removal, "s.removals", {"owed": not_yet_reported}),
            }
        )
        self.arguments = {p.name: unknown(p.annotation, f"arg.{p.name}") for a in ACTIONS.values() for p in a.params}
        self._seen: dict[str, list[Any]] = {}

    def at(self, threads_of: str, name: str) -> Rec:
        """Returns the thread or wrapper whose number is the argument `name` of the step."""
        thread: Rec = self.s.fields[threads_of].at(self.arguments[name])
        return thread

    def _inside(self, of: str, held: Any) -> Any:
        """Returns whether a number, if it is not None, is an index of the sequence `of` of the state."""
        if isinstance(held, Maybe):
            return z3.Implies(held.defined, self._inside(of, held.value))
        return z3.And(held >= 0, held < self.s.fields[of].length)

    def _preconditions(self, action: Action) -> list[Any]:
        """Returns the preconditions: wrapper and key numbers are in range, and a queue to be popped is not empty.

        "In range" is instantiated for the threads of the step, and for the keys that the step looks up in `mapped`.
        """
        eviction = self.s.fields["eviction"]
        holders, known = [eviction], [self.s.fields[of].length > 0 for of in ("sizes", "mapped")]
        for of, name in (("inserts", "inserter"), ("removals", "remover"), ("lookups", "reader")):
            if name in [p.name for p in action.params]:
                known.append(self._inside(of, self.arguments[name]))
                holders.append(self.at(of, name))
        if "wrapper" in [p.name for p in action.params]:
            known.append(self._inside("wrappers", self.arguments["wrapper"]))
        for each in holders:
            held = {"key": "mapped", "last": "mapped", "wrapper": "wrappers"}  # field -> the sequence that it indexes
            known += [self._inside(of, each.fields[field]) for field, of in held.items() if field in each.fields]
        at, mapped = z3.Int("at"), self.s.fields["mapped"]
        indexes = [KEYS(self.arguments["cache"], self.arguments["position"]), at]
        indexes += [each.fields["key"].value for each in holders]
        indexes.append(holders[-1].fields["key"].value + at)  # iteration `at` of `find_next`
        found = [mapped.at(clamped(index, mapped)) for index in indexes]
        known += [self._inside("wrappers", mapped.at(index)) for index in indexes]
        known += [self._inside("wrappers", each) for each in found]
        takes_head = is_at(eviction, "requeue", "pop")
        queue: Seq = self.s.fields["queue"]
        return [*known, z3.Implies(takes_head, queue.length > 0), queue.length >= 0]

    def paths(self, *only: str) -> Iterator[tuple[str, Path, Rec]]:
        """Yields the paths of these steps (default: all) under the reference rules, each with the state after it."""
        for name in only or ACTIONS:
            action = ACTIONS[name]
            given = self._preconditions(action)
            stubs: dict[Callable[..., Any], Callable[..., Any]] = {
                bytes_of: lambda cfg, key: BYTES(number(key)),
                key_of: lambda cfg, c, p: clamped(KEYS(as_term(c), as_term(p)), self.s.fields["mapped"]),
                cache_of: lambda cfg, key: clamped(CACHES(number(key)), self.s.fields["sizes"]),
            }
            reader = Reader(given, havoc=(is_locked,), stubs=stubs)
            arguments = [self.cfg, self.s, *[self.arguments[p.name] for p in action.params]]
            for path in _paths(reader, action, arguments):
                yield name, Path(path.names, [*given, *path.when], "return", path.value), path.value[0]

    def show(self, name: str, goal: Any, path: Path, after: Rec, given: Sequence[Any], *, direct: bool = False) -> None:
        """Proves a goal after a step; `direct` if it is claimed for every state that satisfies the assumptions."""
        known = [*given, *path.when]
        facts = facts_of((self.s, after), goal, *known)
        self.proof.show(f"after {name}", goal, [*known, *facts], direct=direct)
        self._seen.setdefault(name, []).append(z3.And(*known))

    def answer(self) -> Answer:
        """Returns the verdict; each step must be possible under its assumptions."""
        for name, paths in self._seen.items():
            self.proof.possible(name, [z3.Or(*paths)])
        return self.proof.answer()


def _paths(reader: Reader, action: Action, arguments: list[Any]) -> Iterator[Path]:
    """Yields the paths of a step; for `find_next`, those before its loop, through one iteration, and after the loop."""
    if action.run is not model.find_next:
        yield from reader.paths(action.run, *arguments)
        return
    loop, at = reader.loop(action.run), z3.Int("at")
    for path in loop.begin(*arguments):
        if path.exit != "next":
            yield path
            continue
        names = {**path.names, INDEX: at}
        yield from [each for each in loop.iteration(names, [*path.when, at >= 0]) if each.exit == "return"]
        yield from loop.end(names, path.when)


def number(key: Any) -> Any:
    """Returns the number of a key that is not None, which mypy checks."""
    return key.value if isinstance(key, Maybe) else as_term(key)


def clamped(index: Any, seq: Seq) -> Any:
    """Returns the index if it is in the sequence, otherwise 0.

    By this, the stubs of `key_of` and `cache_of` return arbitrary values that are in range.
    """
    return z3.If(z3.And(index >= 0, index < seq.length), index, 0)


# ---- the total --------------------------------------------------------------------------------------------


def total_matches_sizes(s: Rec) -> Any:
    """Returns whether the total is the sum of the sizes, except for bytes that threads have not yet reported.

    Inserts have still to add bytes to the total; removals and the eviction have still to subtract bytes from it.
    """
    inserts, removals, eviction = (s.fields[name] for name in ("inserts", "removals", "eviction"))
    still = removals.total("owed") + eviction.fields["freed"]
    return s.fields["total"] + inserts.total("owed") == s.fields["sizes"].total(SUM) + still


def counted_insert_is_detached(s: Rec, index: Any) -> Any:
    """Returns whether an insert that is idle, or has added its bytes to its cache's size, holds no wrapper."""
    insert = s.fields["inserts"].at(index)
    inside = z3.And(index >= 0, index < s.fields["inserts"].length)
    without = z3.And(inside, is_at(insert, "idle", "total", "schedule", "retry"))
    return z3.Implies(without, as_term(equal(insert.fields["wrapper"], None)))


def ended_pass_freed_nothing(s: Rec) -> Any:
    """Returns whether a pass that has ended, or has not begun, has no freed bytes to report."""
    eviction = s.fields["eviction"]
    return z3.Implies(is_at(eviction, "idle", "measure", "end"), eviction.fields["freed"] == 0)


@claim(
    "total-equals-sizes-and-pending-changes",
    "z3",
    "For any number of threads, caches and entries of any bytes, where wrapper and key numbers of threads are in "
    "range, under the reference rules: the total differs from the sum of the caches' sizes only by the bytes that a "
    "thread has added to, or subtracted from, a size but not yet the total. This invariant is inductive together with "
    "two others: an insert that has added its bytes holds no wrapper, and an ended eviction pass has no bytes to "
    "report. So the total is the sum of the sizes when all threads are idle.",
    Control(
        "a removal reports all bytes that its cache has counted",
        MODEL,
        'reports = r.size_at_start if cfg.removal_reports == "size_at_start" else r.removed',
        'reports = s.sizes[cache] + r.removed if cfg.removal_reports == "removed" else r.size_at_start',
        refutes="after subtract",
    ),
)
def total_equals_sizes() -> Answer:
    """apache/pulsar#10016, corrected by #10225, violates the claim: the used size of all caches drifts."""
    steps = Steps()
    index, inserter = z3.Int("any0"), steps.arguments["inserter"]
    given = [
        total_matches_sizes(steps.s),
        ended_pass_freed_nothing(steps.s),
        counted_insert_is_detached(steps.s, index),
        counted_insert_is_detached(steps.s, inserter),
    ]
    for name, path, after in steps.paths():
        if after is not steps.s:
            steps.show(
                name,
                z3.And(
                    total_matches_sizes(after),
                    ended_pass_freed_nothing(after),
                    counted_insert_is_detached(after, index),
                ),
                path,
                after,
                given,
            )
    _show_idle_total(steps)
    steps.proof.need("the invariant holds initially", concrete_total_matches(Config(), start(Config())))
    for cfg, step, _, was, now in histories(25, 400):
        steps.proof.run(step, concrete_total_matches(cfg, now) or not concrete_total_matches(cfg, was), was)
    return steps.answer()


def _show_idle_total(steps: Steps) -> None:
    """Proves that the total is the sum of the sizes when all threads are idle, by induction over the threads."""
    n = z3.Int("n")
    for name in ("inserts", "removals"):
        of: Seq = steps.s.fields[name]
        facts = [*of.roots[0].facts([n]), n >= 0, n < of.length]
        idle = is_at(of.at(n), "idle")
        step = [*facts, idle, of.total("owed", 0, n) == 0]
        steps.proof.lemma(f"idle {name} owe nothing", of.total("owed", 0, n + 1) == 0, step)
    idle = [steps.s.fields[name].total("owed") == 0 for name in ("inserts", "removals")]
    rest = [
        *idle,
        is_at(steps.s.fields["eviction"], "idle"),
        total_matches_sizes(steps.s),
        ended_pass_freed_nothing(steps.s),
    ]
    steps.proof.lemma("at rest", steps.s.fields["total"] == steps.s.fields["sizes"].total(SUM), rest)


def concrete_total_matches(cfg: Config, s: State) -> bool:
    """Evaluates the invariant in a concrete state."""
    counted = sum(bytes_of(cfg, i.key) for i in s.inserts if i.at == "total" and i.key is not None)
    reports = sum(r.removed for r in s.removals if r.at == "report")
    return s.total + counted == sum(s.sizes) + reports + s.eviction.freed


# ---- removals ------------------------------------------------------------------------------------------


@claim(
    "removal-counts-what-it-removes",
    "z3",
    "For any number of threads, wrappers and entries of any bytes, where no pooled wrapper has a key, under the "
    "reference rules: the step of a removal that marks a wrapper as removed counts exactly the bytes of the live entry "
    "that the wrapper had. The step tests the key under the lock, and neither marks nor counts a wrapper with another "
    "key.",
    Control(
        "the removal does not test the key under the lock",
        MODEL,
        "if not stays_counted(cfg, w) and (w.key == r.key or not cfg.removal_rechecks_key):",
        "if not stays_counted(cfg, w):",
        refutes="after mark_removed",
    ),
)
def removal_counts_what_it_removes() -> Answer:
    """apache/pulsar#10433, corrected by #22789, violates the claim: an entry is removed and counted twice."""
    steps = Steps()
    wrappers: Seq = steps.s.fields["wrappers"]
    removal = steps.at("removals", "remover")
    held = wrappers.at(removal.fields["wrapper"].value)
    free = z3.Implies(held.fields["pooled"], z3.Not(held.fields["key"].defined))
    for name, path, after in steps.paths("mark_removed"):
        if after is not steps.s:
            now = after.fields["removals"].at(steps.arguments["remover"])
            counted = now.fields["removed"] - removal.fields["removed"]
            lost = wrappers.total("live") - after.fields["wrappers"].total("live")
            other = z3.Not(as_term(equal(held.fields["key"], removal.fields["key"])))
            left = after.fields["wrappers"].at(removal.fields["wrapper"].value)
            stays = z3.Implies(other, z3.And(counted == 0, as_term(equal(left, held))))
            steps.show(name, z3.And(counted == lost, stays), path, after, [free], direct=True)
    for cfg, step, arguments, before, then in histories(150, 400):
        if step == "mark_removed":
            gone = _concrete_live_bytes(cfg, before) - _concrete_live_bytes(cfg, then)
            more = sum(r.removed for r in then.removals) - sum(r.removed for r in before.removals)
            steps.proof.run(f"{step}{arguments}", more == gone, before)
    return steps.answer()


def _concrete_live_bytes(cfg: Config, s: State) -> int:
    """Returns the bytes of all live entries."""
    return sum(bytes_of(cfg, w.key) for w in s.wrappers if w.key is not None and not w.pooled)


# ---- eviction in progress -------------------------------------------------------------------------------------------


def one_task(s: Rec) -> Any:
    """Returns whether the number of scheduled and running tasks is 1 if `eviction_in_progress` is set, otherwise 0.

    A periodic eviction is no such task.
    """
    eviction = s.fields["eviction"]
    runs = z3.And(z3.Not(is_at(eviction, "idle")), z3.Not(eviction.fields["periodic"]))
    tasks = s.fields["scheduled"]
    return z3.And(tasks >= 0, tasks + z3.If(runs, 1, 0) == z3.If(s.fields["eviction_in_progress"], 1, 0))


def concrete_one_task(s: State) -> bool:
    """Evaluates the invariant in a concrete state."""
    return s.scheduled + (s.eviction.at != "idle" and not s.eviction.periodic) == s.eviction_in_progress


@claim(
    "eviction-is-in-progress-for-one-task",
    "z3",
    "For any number of threads that trigger an eviction, where wrapper and key numbers of threads are in range, under "
    "the reference rules: every step preserves that exactly one eviction task is scheduled or running if the field "
    "`eviction_in_progress` is set, and none otherwise.",
    Control(
        "a late trigger erases the future of the first",
        MODEL,
        'if cfg.late_trigger == "keeps":',
        'if cfg.late_trigger == "erases":',
        refutes="after schedule",
    ),
)
def eviction_is_in_progress_for_one_task() -> Answer:
    """`triggerEvictionWhenNeeded` schedules an eviction only if none is in progress."""
    steps = Steps()
    for name, path, after in steps.paths():
        if after is not steps.s:
            steps.show(name, one_task(after), path, after, [one_task(steps.s)])
    steps.proof.need("the invariant holds initially", concrete_one_task(start(Config())))
    for _, step, _, was, now in histories(25, 400):
        steps.proof.run(step, concrete_one_task(now) or not concrete_one_task(was), was)
    return steps.answer()


# ---- random traces ------------------------------------------------------------------------------------


#: Weight of each step; removals have more than the default of 2, lookups less.
WEIGHTS = {
    "find_next": 6,
    "take": 8,
    "unmap": 8,
    "mark_removed": 8,
    "find": 1,
    "compare": 1,
    "set_accessed": 1,
    "retain": 1,
}


def histories(count: int, tries: int) -> Iterator[tuple[Config, str, tuple[Any, ...], State, State]]:
    """Yields the steps of random traces that change the state, without faults; always the same sequence.

    A step is config, action, arguments, state before, state after.
    """
    draw = random.Random(25987)  # noqa: S311
    actions = {name: action for name, action in ACTIONS.items() if not action.fault}
    names = [name for name in sorted(actions) for _ in range(WEIGHTS.get(name, 2))]
    for _ in range(count):
        cfg = Config(caches=draw.randint(1, 2), inserters=2, removers=draw.randint(1, 2), pool=4)
        s = start(cfg)
        for _ in range(tries):
            name = draw.choice(names)
            arguments = tuple([draw.choice(_domain(cfg, p.name)) for p in actions[name].params])
            after, _ = model.cache_steps.step(cfg, s, name, arguments)
            if after is not s:
                yield cfg, name, arguments, s, after
            s = after


def _domain(cfg: Config, name: str) -> Sequence[Any]:
    sizes: Mapping[str, int] = {
        "inserter": cfg.inserters,
        "remover": cfg.removers,
        "reader": cfg.readers,
        "cache": cfg.caches,
        "wrapper": cfg.pool,
    }
    return (False, True) if name == "expired" else range(sizes.get(name, cfg.positions))


claims = (total_equals_sizes, removal_counts_what_it_removes, eviction_is_in_progress_for_one_task)
