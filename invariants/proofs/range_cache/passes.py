"""An eviction pass of the range caches as terms, over a queue of any length, and random states for runs.

A pass is the loop of `evict_entries`, which asks a predicate what to do with the slot at the head of the queue: remove
or requeue its entry, drop the wrapper of a removed entry, or stop. At its end, `account_for_removed` subtracts the
removed bytes from the sizes. Both functions are translated from the model's source. The terms of the loop are evaluated
for each iteration, and compared with passes on random states.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Proof
from invariants.proofs.induction import Induction, Invariant, Names
from invariants.proofs.symbolic import (
    INDEX,
    ITERATED,
    LoopEvaluator,
    Maybe,
    Measures,
    Path,
    Reader,
    Rec,
    Seq,
    Word,
    bind,
    equal,
    evaluator,
    truth,
    unknown,
)
from model import range_cache as model
from model.machine import Refused
from model.positions import Position
from model.range_cache import Config, Entry, OrphanedCopies, Removed, State

#: Number of random passes on which a claim is checked, and of those with which the terms are compared, too.
RUNS, COMPARED_RUNS = 400, 25

MODEL = "model.range_cache"
PREDICATES = (model.time_pass_predicate, model.size_pass_predicate)

_reader = Reader()


def stays_counted(cfg: Rec, e: Rec) -> Any:
    """Returns the term of `stays_counted`, as the model computes it."""
    return truth(_reader.call(model.stays_counted, cfg, e))


def of_live(measure: Callable[[Rec], Any]) -> Callable[[Any], Any]:
    """Returns a measure of entries as a measure of slots. The wrapper of a removed entry counts as 0."""
    return lambda slot: z3.If(slot.defined, measure(slot.value), 0)


class Pass:
    """A pass over a queue of any length. `limit` is the argument of the action: a threshold, or bytes to free.

    The queue and the list of removed entries sum these measures, and those that `measures` returns for the config and
    the state:

    bytes      the bytes of the entries of an arbitrary cache, `self.cache`
    freed      the bytes that a removal subtracts from the size
    entries    1 for each entry whose bytes a removal subtracts
    """

    def __init__(
        self,
        predicate: Callable[..., Any],
        measures: Callable[[Rec, Rec], Measures] | None = None,
        proof: Proof | None = None,
    ) -> None:
        self.predicate, self.proof = predicate, proof or Proof()
        self.cfg, state = unknown(Config, "cfg"), unknown(State, "s")
        self.limit, self.cache = z3.Int("limit"), z3.Int("cache")
        given = {
            "bytes": lambda e: z3.If(e.fields["cache"] == self.cache, e.fields["bytes"], 0),
            "freed": lambda e: z3.If(stays_counted(self.cfg, e), 0, e.fields["bytes"]),
            "entries": lambda e: z3.If(stays_counted(self.cfg, e), 0, 1),
        }
        self.of_entries: Measures = {**given, **(measures(self.cfg, state) if measures else {})}
        self.of_slots: Measures = {name: of_live(of) for name, of in self.of_entries.items()}
        self.s = state.replace({"queue": Seq.unknown(Entry | None, "s.queue", self.of_slots)})
        self.reader = Reader(
            stubs={model.account_for_removed: self._account_for_removed_stub}, lists={"gone": (Entry, self.of_entries)}
        )
        self.loop = self.reader.loop(model.evict_entries)
        self.head: Names = {
            "cfg": self.cfg,
            "s": self.s,
            "predicate": predicate,
            "limit": self.limit,
            "queue": Seq.unknown(Entry | None, "queue", self.of_slots),
            "gone": Seq.unknown(Entry, "gone", self.of_entries),
            "freed": z3.Int("freed"),
            "head": z3.Int("head"),
        }
        self._prove_stub()

    def show(
        self,
        invariants: list[Invariant],
        goal: Callable[..., Any] | None = None,
        *,
        indexes: int = 0,
        given: tuple[Any, ...] = (),
        assumed: tuple[Invariant, ...] = (),
    ) -> list[Path]:
        """Proves the invariants of the loop by induction, and a goal at the end. Returns the paths at the end.

        The goal is a predicate over the state after the pass, its outcome, and `indexes` arbitrary indexes. `given` are
        assumptions about the config, the state before and the limit; `assumed` are invariants of the state before.
        """
        fits = Invariant("cache numbers of queued entries are in range", self._fits("queue"), 1)
        all_invariants = [
            *self._plain(),
            fits,
            Invariant("cache numbers of removed entries are in range", self._fits("gone"), 1),
        ]
        induction = Induction(self.proof, self.loop, self.head, [*all_invariants, *invariants], given)
        # `fits` for the queue before the pass, which is the queue of the state
        before = Invariant("", lambda n, i: self._fits("queue")({**n, "queue": n["s"].fields["queue"]}, i), 1)
        induction.base_case(self.loop.begin(self.cfg, self.s, self.predicate, self.limit), (before, *assumed))
        exit_paths = induction.exit_paths(induction.step_case())
        if goal is None:
            return exit_paths
        anywhere = [z3.Int(f"any{i}") for i in range(indexes)]
        for end in exit_paths:
            after, removed = end.value
            induction.show(
                "at the end",
                end,
                lambda *at, after=after, removed=removed: goal(after, removed, *at),
                anywhere,
                assumed=[*induction.invariants, before, *assumed],
            )
        return exit_paths

    def _plain(self) -> list[Invariant]:
        """Returns invariants of every pass: the head is in the queue, and nothing changes before the first step."""

        def in_range(n: Names) -> Any:
            return z3.And(n["head"] >= 0, n["head"] <= n["queue"].length, n["gone"].length <= n["head"])

        def untouched(n: Names, i: Any) -> Any:
            queue, at_first = n["queue"], n["s"].fields["queue"]
            same = z3.And(queue.length == at_first.length, equal(queue.at(i), at_first.at(i)))
            return z3.Implies(n["head"] == 0, same)

        return [
            Invariant("the head is in the queue", in_range),
            Invariant("nothing changes before the first step", untouched, 1),
        ]

    def _fits(self, name: str) -> Callable[..., Any]:
        """Returns the predicate that the cache number of an entry in a sequence, by its name, is in range."""

        def fits(n: Names, i: Any) -> Any:
            seq, caches = n[name], n["s"].fields["sizes"].length
            item = seq.at(i)
            live, e = (True, item) if isinstance(item, Rec) else (item.defined, item.value)
            inside = z3.And(e.fields["cache"] >= 0, e.fields["cache"] < caches)
            return z3.Implies(z3.And(i >= 0, i < seq.length, live), inside)

        return fits

    # ---- the end of a pass

    def _account_for_removed_stub(self, cfg: Rec, s: Rec, gone: Seq) -> tuple[Rec, Rec]:
        """Stub of `account_for_removed`; `_prove_stub` proves its facts.

        Of the sizes, only that of `self.cache` is known, and only without `released_value_stays_counted`.
        """
        sizes = s.fields["sizes"]
        kept = cfg.fields["released_value_stays_counted"]
        rest = z3.If(kept, z3.Int("left.size"), sizes.at(self.cache) - gone.total("bytes"))

        def left_at(i: Any) -> Any:
            return z3.If(i == self.cache, rest, unknown(int, "left.other", i))

        left = Seq(int, sizes.length, left_at, {}, {}, sizes.roots)
        after = s.replace({"sizes": left, "orphaned_copies": Seq.unknown(OrphanedCopies, "left.orphaned_copies")})
        return after, Rec(Removed, {"entries": gone.total("entries"), "bytes": gone.total("freed")})

    def _prove_stub(self) -> None:
        """Proves the facts of `_account_for_removed_stub`, by induction over the removed entries."""
        reader = Reader(havoc=(model.add_orphaned_copies,))
        loop = reader.loop(model.account_for_removed)
        gone = Seq.unknown(Entry, "gone", self.of_entries)
        head = {
            "cfg": self.cfg,
            "s": self.s,
            "gone": gone,
            "sizes": Seq.unknown(int, "sizes"),
            "orphaned_copies": Seq.unknown(OrphanedCopies, "orphaned_copies"),
            "entries": z3.Int("entries"),
            "freed": z3.Int("freed"),
            ITERATED: gone,
            INDEX: z3.Int("at"),
        }

        def adds_up(n: Names) -> Any:
            at, cfg = n[INDEX], n["cfg"].fields
            size = n["s"].fields["sizes"].at(self.cache) - gone.total("bytes", 0, at)
            return z3.And(
                at >= 0,
                at <= gone.length,
                n["sizes"].length == n["s"].fields["sizes"].length,
                n["entries"] == gone.total("entries", 0, at),
                n["freed"] == gone.total("freed", 0, at),
                z3.Or(cfg["released_value_stays_counted"], n["sizes"].at(self.cache) == size),
            )

        inside = Invariant("cache numbers of removed entries are in range", self._fits("gone"), 1)
        adding = Invariant("removed bytes are subtracted", adds_up)
        # the cache number of the removed entry is in range at the index that an iteration reads
        here = self._fits("gone")(head, head[INDEX])
        induction = Induction(self.proof, loop, head, [adding, inside], [here])
        induction.base_case(loop.begin(self.cfg, self.s, gone), (inside,))
        for end in induction.exit_paths(induction.step_case()):
            after, removed = end.value
            same = [f for f in after.fields if f not in ("sizes", "orphaned_copies")]
            self.proof.need(
                "a removal changes only sizes and orphaned copies",
                all(after.fields[f] is self.s.fields[f] for f in same),
            )
            stub_state, stub_report = self._account_for_removed_stub(self.cfg, self.s, gone)
            induction.show(
                "account_for_removed has the effect of its stub",
                end,
                lambda after=after, removed=removed, stub_state=stub_state, stub_report=stub_report: z3.And(
                    equal(removed, stub_report),
                    z3.Or(
                        self.cfg.fields["released_value_stays_counted"],
                        after.fields["sizes"].at(self.cache) == stub_state.fields["sizes"].at(self.cache),
                    ),
                ),
            )

    # ---- comparison with the program

    def check_on_runs(self, action: str, holds: Callable[[Run], bool]) -> None:
        """Checks a claim on random passes of an action, and compares the terms with some of them."""
        self._is_the_action(action)
        kinds = {"queue": list[Entry | None], "gone": list[Entry], "freed": int, "head": int}
        loop = LoopEvaluator(
            self.loop.condition(self.head), self.loop.iteration(self.head, [self.head["head"] >= 0]), kinds
        )
        for i, run in enumerate(runs(action, self.predicate)):
            self.proof.run(f"{action}({run.limit})", holds(run), run.seen())
            if i < COMPARED_RUNS:
                bound: dict[str, Any] = {"limit": run.limit}
                bind(Config, "cfg", run.cfg, bound)
                bind(State, "s", run.before, bound)
                at_first = {"queue": run.before.queue, "gone": (), "freed": 0, "head": 0}
                left = loop.run(bound, at_first)
                worked_out = (left["queue"][left["head"] :], left["freed"], left["head"])
                self.proof.compare(action, worked_out, (run.after.queue, run.removed.bytes, run.visits))

    def _is_the_action(self, action: str) -> None:
        """Proves that, under `retention` "requeue", the action is refused or is one call of `evict_entries`."""
        result, calls = (self.s.replace({}), unknown(Removed, "walked")), []

        def evict_entries(*arguments: Any) -> tuple[Rec, Rec]:
            """Stub: records its arguments, and returns a result by which a call is recognised."""
            calls.append(arguments)
            return result

        reader = Reader([equal(self.cfg.fields["retention"], "requeue")], stubs={model.evict_entries: evict_entries})
        paths = reader.paths(model.range_cache.actions[action].run, self.cfg, self.s, self.limit)
        others = [path.value for path in paths if path.value is not result]
        refused = all(state is self.s and outcome.kind is Refused for state, outcome in others)
        wanted = (self.cfg, self.s, self.predicate, self.limit)
        itself = len(calls) == 1 and all(a is b for a, b in zip(calls[0], wanted, strict=True))
        self.proof.need(f"{action} is one call of `evict_entries` with its predicate", refused and itself)


def queue_of(n: Names) -> Seq:
    """Returns the queue among the names: that of a pass, or that of the state."""
    queue: Seq = n["queue"] if "queue" in n else n["s"].fields["queue"]
    return queue


def live_at(seq: Seq, i: Any) -> Any:
    """Returns whether an index is in a queue and its slot has an entry."""
    return z3.And(i >= 0, i < seq.length, seq.at(i).defined)


def field_at(seq: Seq, i: Any, field: str) -> Any:
    """Returns a field of the entry at an index of a queue."""
    return seq.at(i).value.fields[field]


def in_order(first: str | None = None) -> Invariant:
    """Returns the invariant that the queue is ordered by timestamp, and no timestamp is later than now.

    With `first`, this is said only of the queue from the index with that name on.
    """

    def holds(n: Names, i: Any, j: Any) -> Any:
        seq, now = queue_of(n), n["s"].fields["now_ns"]
        both = z3.And(live_at(seq, i), live_at(seq, j), i <= j, i >= (n[first] if first else 0))
        earlier, later = field_at(seq, i, "timestamp_ns"), field_at(seq, j, "timestamp_ns")
        return z3.Implies(both, z3.And(earlier <= later, later <= now))

    return Invariant("the queue is in the order of time", holds, 2)


def ordered_before() -> Invariant:
    """Returns `in_order` of the queue before the pass."""
    return Invariant("", lambda n, i, j: in_order().holds({"s": n["s"]}, i, j), 2)


def predicate_against(proof: Proof, predicate: Callable[..., Any], result: Word) -> None:
    """Compares a predicate with `result`, its term for the arguments `predicate_arguments()`, on random states."""
    draw, terms = random.Random(63), evaluator(result)  # noqa: S311
    for _ in range(100):
        cfg, s = random_config(draw), random_state(draw)
        freed, limit = draw.randint(0, 3), draw.randint(0, 8)
        for slot in s.queue:
            bound: dict[str, Any] = {"freed": freed, "limit": limit}
            bind(Config, "cfg", cfg, bound)
            bind(State, "s", s, bound)
            bind(Entry | None, "slot", slot, bound, element=True)
            proof.compare(predicate.__name__, terms(bound), predicate(cfg, s, slot, freed, limit))


def predicate_arguments() -> tuple[Rec, Rec, Maybe, Any, Any]:
    """Returns unconstrained arguments of a predicate: config, state, slot, bytes freed so far, and limit."""
    slot: Maybe = unknown(Entry | None, "slot", item=True)
    return unknown(Config, "cfg"), unknown(State, "s"), slot, z3.Int("freed"), z3.Int("limit")


# ---- running passes ---------------------------------------------------------------------------------------


class Run(NamedTuple):
    """One executed pass. `visits` is the number of slots that it took from the queue, `last` the last removed entry."""

    cfg: Config
    before: State
    limit: int
    after: State
    removed: Removed
    visits: int
    last: Entry | None

    def seen(self) -> str:
        """Returns the state before, and the config fields that differ from their default, as text."""
        settings = {f: v for f, v in self.cfg._asdict().items() if v != Config._field_defaults[f]}
        return f"{self.before} with {settings}"

    def gone(self) -> list[Entry]:
        """Returns the removed entries, in the order of the queue before."""
        kept = {e.position for e in self.after.queue if e is not None}
        return [e for e in self.before.queue if e is not None and e.position not in kept]

    def freeable(self) -> int:
        """Returns the bytes that a pass could free."""
        return sum(e.bytes for e in self.before.queue if e is not None and not model.stays_counted(self.cfg, e))


def runs(action: str, predicate: Callable[..., Any], count: int = RUNS) -> Iterator[Run]:
    """Yields random passes of an action; always the same. Thresholds are at most now, bytes to free are positive."""
    draw = random.Random(430)  # noqa: S311
    for _ in range(count):
        cfg, s = random_config(draw), random_state(draw)
        limit = draw.randint(1, sum(s.sizes) + 2) if action == "size_pass" else s.now_ns - draw.randint(0, 6)
        visits, last = 0, None

        def counted(cfg: Config, s: State, slot: Entry | None, *limits: int) -> Any:
            nonlocal visits, last
            result = predicate(cfg, s, slot, *limits)
            visits += result != "STOP"
            last = slot if result == "REMOVE" else last
            return result

        model.evict_entries(cfg, s, counted, limit)
        after, removed = model.range_cache.step(cfg, s, action, (limit,))
        yield Run(cfg, s, limit, after, removed, visits, last)


def random_config(draw: random.Random) -> Config:
    """Returns a config with random rules, and `retention` "requeue"."""
    return Config(
        ttl_ns=draw.randint(0, 4),
        released_value_stays_counted=draw.random() < 0.2,
        removal_marks_read=draw.random() < 0.3,
        access_requeue_counts=draw.random() < 0.7,
        size_pass_requeues_expired=draw.random() < 0.7,
    )


def random_state(draw: random.Random) -> State:
    """Returns a state with up to seven slots, ordered by timestamp, and sizes that match them."""
    now = draw.randint(0, 8)
    times = sorted(draw.randint(now - 6, now) for _ in range(draw.randint(0, 7)))
    slots: list[Entry | None] = []
    copies = 1
    for i, time in enumerate(times):
        held = tuple(range(copies, copies + draw.choice((0, 0, 1, 2))))
        copies += len(held)
        count = draw.choice((None, -1, 0, 1, 2))
        flags = draw.random() < 0.4, draw.random() < 0.1
        e = Entry(draw.randint(0, 1), Position(1, i), draw.randint(0, 3), count, held, time, draw.randint(0, 3), *flags)
        slots.append(e if draw.random() < 0.8 else None)
    sizes = tuple(sum(e.bytes for e in slots if e is not None and e.cache == c) for c in (0, 1))
    return State(now, tuple(slots), (), sizes, (), copies, draw.randint(0, 3), draw.random() < 0.5)
