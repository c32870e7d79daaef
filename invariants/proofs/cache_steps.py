"""Proofs about the steps of range caches, for any number of threads, caches, wrappers and entries.

Every step is read from the model's source, one after the other, from any state in which threads hold numbers of
wrappers and keys that there are. What an entry's bytes are, and to which cache a key belongs, is left open: it may be
anything. Whether a lock is free is left open, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.induction import facts_of
from invariants.proofs.symbolic import AT, SUM, Maybe, Path, Reader, Rec, Seq, as_term, equal, unknown
from model.cache_steps import machine as model
from model.cache_steps import threads
from model.cache_steps.threads import RIGHT, Config, Insert, Removal, State, Wrapper
from model.machine import Action

MODEL = "model.cache_steps.machine"
ACTIONS = model.cache_steps.actions

BYTES = z3.Function("bytes of", z3.IntSort(), z3.IntSort())
KEYS = z3.Function("key of", z3.IntSort(), z3.IntSort(), z3.IntSort())
HOMES = z3.Function("cache of", z3.IntSort(), z3.IntSort())


def bytes_at(key: Any) -> Any:
    """The bytes of the entry at a key; 0 without a key."""
    if key is None:
        return z3.IntVal(0)
    return z3.If(key.defined, BYTES(key.value), 0) if isinstance(key, Maybe) else BYTES(as_term(key))


def stands(thread: Rec, *steps: str) -> Any:
    """Whether a thread is at one of these steps."""
    return z3.Or(*[as_term(equal(thread.fields["at"], step)) for step in steps])


def counted_not_in_total(insert: Rec) -> Any:
    """The bytes that an insert has counted in its cache, but not yet in the total."""
    return z3.If(stands(insert, "total"), bytes_at(insert.fields["key"]), 0)


def to_be_reported(removal: Rec) -> Any:
    """The bytes that a removal has subtracted from its cache, but not yet from the total."""
    return z3.If(stands(removal, "report"), removal.fields["removed"], 0)


def live_bytes(wrapper: Rec) -> Any:
    """The bytes of the live entry of a wrapper, else 0."""
    return z3.If(wrapper.fields["pooled"], 0, bytes_at(wrapper.fields["key"]))


class Steps:
    """An arbitrary state, and every path of every step."""

    def __init__(self) -> None:
        self.proof = Proof()
        self.cfg, state = unknown(Config, "cfg").replace(RIGHT), unknown(State, "s")
        self.s: Rec = state.replace(
            {
                "sizes": Seq.unknown(int, "s.sizes", {SUM: lambda n: n}),
                "wrappers": Seq.unknown(Wrapper, "s.wrappers", {"live": live_bytes}),
                "inserts": Seq.unknown(Insert, "s.inserts", {"owed": counted_not_in_total}),
                "removals": Seq.unknown(Removal, "s.removals", {"owed": to_be_reported}),
            }
        )
        self.arguments = {p.name: unknown(p.kind, f"arg.{p.name}") for a in ACTIONS.values() for p in a.params}
        self._seen: dict[str, list[Any]] = {}

    def at(self, threads_of: str, name: str) -> Rec:
        """The thread, or the wrapper, that an argument names."""
        thread: Rec = self.s.fields[threads_of].at(self.arguments[name])
        return thread

    def _inside(self, of: str, held: Any) -> Any:
        if isinstance(held, Maybe):
            return z3.Implies(held.defined, self._inside(of, held.value))
        return z3.And(held >= 0, held < self.s.fields[of].length)

    def _sense(self, action: Action) -> list[Any]:
        """Numbers of wrappers and keys are in range; the evicting thread has peeked the head that it pops."""
        eviction = self.s.fields["eviction"]
        holders, known = [eviction], [self.s.fields[of].length > 0 for of in ("sizes", "mapped")]
        for of, name in (("inserts", "inserter"), ("removals", "remover"), ("lookups", "reader")):
            if name in [p.name for p in action.params]:
                known.append(self._inside(of, self.arguments[name]))
                holders.append(self.at(of, name))
        if "wrapper" in [p.name for p in action.params]:
            known.append(self._inside("wrappers", self.arguments["wrapper"]))
        for each in holders:
            held = {"key": "mapped", "last": "mapped", "wrapper": "wrappers"}
            known += [self._inside(of, each.fields[field]) for field, of in held.items() if field in each.fields]
        at, mapped = z3.Int("at"), self.s.fields["mapped"]
        places = [KEYS(self.arguments["cache"], self.arguments["position"]), at]
        places += [each.fields["key"].value for each in holders]
        places.append(holders[-1].fields["key"].value + at)
        found = [mapped.at(clamped(place, mapped)) for place in places]
        known += [self._inside("wrappers", mapped.at(place)) for place in places]
        known += [self._inside("wrappers", each) for each in found]
        takes_head = stands(eviction, "requeue", "pop")
        queue: Seq = self.s.fields["queue"]
        return [*known, z3.Implies(takes_head, queue.length > 0), queue.length >= 0]

    def ways(self, *only: str) -> Iterator[tuple[str, Path, Rec]]:
        """Every path of every step, or of some, under the reference rules, and the state after it."""
        for name in only or ACTIONS:
            action = ACTIONS[name]
            given = self._sense(action)
            stand_ins: dict[Callable[..., Any], Callable[..., Any]] = {
                threads.bytes_of: lambda cfg, key: BYTES(number(key)),
                threads.key_of: lambda cfg, c, p: clamped(KEYS(as_term(c), as_term(p)), self.s.fields["mapped"]),
                threads.cache_of: lambda cfg, key: clamped(HOMES(number(key)), self.s.fields["sizes"]),
            }
            reader = Reader(given, havoc=(threads.is_locked,), stubs=stand_ins)
            arguments = [self.cfg, self.s, *[self.arguments[p.name] for p in action.params]]
            for way in _ways(reader, action, arguments):
                yield name, Path(way.names, [*given, *way.when], "return", way.value), way.value[0]

    def show(self, name: str, goal: Any, way: Path, after: Rec, given: Sequence[Any], *, direct: bool = False) -> None:
        """Shows a goal after a step; `direct` if it is claimed for every state that satisfies the assumptions."""
        known = [*given, *way.when]
        facts = facts_of((self.s, after), goal, *known)
        self.proof.show(f"after {name}", goal, [*known, *facts], direct=direct)
        self._seen.setdefault(name, []).append(z3.And(*known))

    def answer(self) -> Answer:
        """The answer; every step that was read must be possible under its assumptions."""
        for name, ways in self._seen.items():
            self.proof.possible(name, [z3.Or(*ways)])
        return self.proof.answer()


def _ways(reader: Reader, action: Action, arguments: list[Any]) -> Iterator[Path]:
    """The paths of a step; the one that searches is read as the parts before, in and after its loop."""
    if action.run is not model.find_next:
        yield from reader.paths(action.run, *arguments)
        return
    loop, at = reader.loop(action.run), z3.Int("at")
    for way in loop.begin(*arguments):
        if way.how != "next":
            yield way
            continue
        names = {**way.names, AT: at}
        yield from [each for each in loop.round(names, [*way.when, at >= 0]) if each.how == "return"]
        yield from loop.end(names, way.when)


def number(key: Any) -> Any:
    """A key as an argument of a function whose parameter cannot be None."""
    return key.value if isinstance(key, Maybe) else as_term(key)


def clamped(place: Any, seq: Seq) -> Any:
    """The index if it is in the sequence, else 0."""
    return z3.If(z3.And(place >= 0, place < seq.length), place, 0)


# ---- the total --------------------------------------------------------------------------------------------


def owed(s: Rec) -> Any:
    """The total plus the bytes that inserts will add is the sum of sizes plus the bytes that threads will subtract."""
    inserts, removals, eviction = (s.fields[name] for name in ("inserts", "removals", "eviction"))
    still = removals.total("owed") + eviction.fields["freed"]
    return s.fields["total"] + inserts.total("owed") == s.fields["sizes"].total(SUM) + still


def lets_go(s: Rec, place: Any) -> Any:
    """An insert that has counted in its cache, or is idle, holds no wrapper."""
    insert = s.fields["inserts"].at(place)
    inside = z3.And(place >= 0, place < s.fields["inserts"].length)
    without = z3.And(inside, stands(insert, "idle", "total", "schedule", "look"))
    return z3.Implies(without, as_term(equal(insert.fields["wrapper"], None)))


def reported(s: Rec) -> Any:
    """A pass that has ended, or has not begun, has no freed bytes to report."""
    eviction = s.fields["eviction"]
    return z3.Implies(stands(eviction, "idle", "measure", "end"), eviction.fields["freed"] == 0)


@claim(
    "what-threads-owe-is-in-the-total",
    "z3",
    "For any number of threads, caches and entries of any bytes, where threads hold numbers of wrappers and keys in "
    "range, under the reference rules: the total, plus the bytes that inserts have counted in their cache only, is the "
    "sum of all sizes, plus the bytes that removals and the eviction have subtracted from the sizes only. The "
    "invariant includes that an insert which has counted holds no wrapper, and that an ended pass has nothing to "
    "report. It is inductive. So the total is the sum of the sizes when all threads are idle.",
    Control(
        "a removal reports all bytes that its cache has counted",
        MODEL,
        'reports = r.present if cfg.removal_reports == "present" else r.removed',
        'reports = s.sizes[cache] + r.removed if cfg.removal_reports == "removed" else r.present',
        refutes="after subtract",
    ),
)
def total_is_owed() -> Answer:
    """Violated by apache/pulsar#10225 and #17908: the used size of all caches drifted."""
    it = Steps()
    place, inserter = z3.Int("any0"), it.arguments["inserter"]
    given = [owed(it.s), reported(it.s), lets_go(it.s, place), lets_go(it.s, inserter)]
    for name, way, after in it.ways():
        if after is not it.s:
            it.show(name, z3.And(owed(after), reported(after), lets_go(after, place)), way, after, given)
    _at_rest(it)
    it.proof.need("the invariant does not hold initially", runs_owed(Config(), threads.start(Config())))
    for cfg, step, was, now in histories(25, 400):
        it.proof.run(step, runs_owed(cfg, now) or not runs_owed(cfg, was), was)
    return it.answer()


def _at_rest(it: Steps) -> None:
    """Idle threads have no bytes left to count or report: by induction over the threads."""
    n = z3.Int("n")
    for name in ("inserts", "removals"):
        of: Seq = it.s.fields[name]
        facts = [*of.roots[0].facts([n]), n >= 0, n < of.length]
        idle = stands(of.at(n), "idle")
        step = [*facts, idle, of.total("owed", 0, n) == 0]
        it.proof.lemma(f"idle {name} owe nothing", of.total("owed", 0, n + 1) == 0, step)
    idle = [it.s.fields[name].total("owed") == 0 for name in ("inserts", "removals")]
    rest = [*idle, stands(it.s.fields["eviction"], "idle"), owed(it.s), reported(it.s)]
    it.proof.lemma("at rest", it.s.fields["total"] == it.s.fields["sizes"].total(SUM), rest)


def runs_owed(cfg: Config, s: State) -> bool:
    """The same of a concrete state."""
    counted = sum(threads.bytes_of(cfg, i.key) for i in s.inserts if i.at == "total" and i.key is not None)
    reports = sum(r.removed for r in s.removals if r.at == "report")
    return s.total + counted == sum(s.sizes) + reports + s.eviction.freed


# ---- removals ------------------------------------------------------------------------------------------


@claim(
    "a-removal-counts-what-it-clears",
    "z3",
    "For any number of threads, wrappers and entries of any bytes, where no pooled wrapper has a key, under the "
    "reference rules: when a removal clears a wrapper, it counts exactly the bytes that live entries lose, because it "
    "tests the key under the lock; a wrapper with another key is neither cleared nor counted.",
    Control(
        "the removal does not test the key under the lock",
        MODEL,
        "if not stays_counted(cfg, w) and (w.key == r.key or not cfg.removal_rechecks_key):",
        "if not stays_counted(cfg, w):",
        refutes="after clear",
    ),
)
def clears_what_it_counts() -> Answer:
    """Violated by apache/pulsar#10480: an entry was removed and counted twice."""
    it = Steps()
    wrappers: Seq = it.s.fields["wrappers"]
    removal = it.at("removals", "remover")
    held = wrappers.at(removal.fields["wrapper"].value)
    free = z3.Implies(held.fields["pooled"], z3.Not(held.fields["key"].defined))
    for name, way, after in it.ways("clear"):
        if after is not it.s:
            now = after.fields["removals"].at(it.arguments["remover"])
            counted = now.fields["removed"] - removal.fields["removed"]
            lost = wrappers.total("live") - after.fields["wrappers"].total("live")
            other = z3.Not(as_term(equal(held.fields["key"], removal.fields["key"])))
            left = after.fields["wrappers"].at(removal.fields["wrapper"].value)
            stays = z3.Implies(other, z3.And(counted == 0, as_term(equal(left, held))))
            it.show(name, z3.And(counted == lost, stays), way, after, [free], direct=True)
    for cfg, step, before, then in histories(150, 400):
        if step.startswith("clear("):
            gone = _runs_live(cfg, before) - _runs_live(cfg, then)
            more = sum(r.removed for r in then.removals) - sum(r.removed for r in before.removals)
            it.proof.run(step, more == gone, before)
    return it.answer()


def _runs_live(cfg: Config, s: State) -> int:
    """The bytes of all live entries."""
    return sum(threads.bytes_of(cfg, w.key) for w in s.wrappers if w.key is not None and not w.pooled)


# ---- the marker -------------------------------------------------------------------------------------------


def one_task(s: Rec) -> Any:
    """One task is scheduled or running while the marker is set, else none."""
    eviction = s.fields["eviction"]
    runs = z3.And(z3.Not(stands(eviction, "idle")), z3.Not(eviction.fields["periodic"]))
    tasks = s.fields["scheduled"]
    return z3.And(tasks >= 0, tasks + z3.If(runs, 1, 0) == z3.If(s.fields["marker"], 1, 0))


def runs_marked(s: State) -> bool:
    """The same of a concrete state."""
    return s.scheduled + (s.eviction.at != "idle" and not s.eviction.periodic) == s.marker


@claim(
    "one-task-has-the-marker",
    "z3",
    "For any number of threads that trigger at once, where threads hold numbers of wrappers and keys in range, "
    "under the reference rules: if one eviction task is scheduled or running while the marker is set, and none while "
    "it is not, the same holds after every step.",
    Control(
        "a late trigger erases the marker",
        MODEL,
        'if cfg.late_trigger == "leaves_the_marker":',
        'if cfg.late_trigger == "erases_the_marker":',
        refutes="after schedule",
    ),
)
def one_task_is_marked() -> Answer:
    """The broker schedules an eviction only if none is in progress (triggerEvictionWhenNeeded)."""
    it = Steps()
    for name, way, after in it.ways():
        if after is not it.s:
            it.show(name, one_task(after), way, after, [one_task(it.s)])
    it.proof.need("the invariant does not hold initially", runs_marked(threads.start(Config())))
    for _, step, was, now in histories(25, 400):
        it.proof.run(step, runs_marked(now) or not runs_marked(was), was)
    return it.answer()


# ---- random traces ------------------------------------------------------------------------------------


#: Weight of each step: removals above the others, lookups below.
WEIGHTS = {"find_next": 6, "take": 8, "unmap": 8, "clear": 8, "find": 1, "compare": 1, "mark": 1, "retain": 1}


def histories(count: int, tries: int) -> Iterator[tuple[Config, str, State, State]]:
    """The steps of random traces of all actions but faults, from a fixed seed, without refused steps."""
    draw = random.Random(25987)  # noqa: S311
    actions = {name: action for name, action in ACTIONS.items() if not action.fault}
    names = [name for name in sorted(actions) for _ in range(WEIGHTS.get(name, 2))]
    for _ in range(count):
        cfg = Config(caches=draw.randint(1, 2), inserters=2, removers=draw.randint(1, 2), pool=4)
        s = threads.start(cfg)
        for _ in range(tries):
            name = draw.choice(names)
            arguments = tuple([draw.choice(_domain(cfg, p.name)) for p in actions[name].params])
            after, _ = model.cache_steps.step(cfg, s, name, arguments)
            if after is not s:
                yield cfg, f"{name}{arguments}", s, after
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


claims = (total_is_owed, clears_what_it_counts, one_task_is_marked)
