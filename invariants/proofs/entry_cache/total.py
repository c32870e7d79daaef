"""Claims about the total size of the entry cache and the eviction that it triggers.

Every eviction pass and every removal by position ends in `account_for_removed`. This function is proved to decrease the
sizes of the range caches by the bytes that it reports. In the other proofs, this effect replaces passes and removals.
The claims about `range_cache` say which entries are removed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.induction import Induction, Invariant, Names, facts_of
from invariants.proofs.shared.range_caches import add_orphaned_copies
from invariants.proofs.shared.rounding import WHOLE, prove_rounding_facts, rounding_facts
from invariants.proofs.symbolic import INDEX, ITERATED, SUM, Path, Reader, Rec, Seq, as_term, equal, exact, unknown
from model import range_cache as ranges
from model import watermark
from model.entry_cache import eviction, reads
from model.entry_cache import machine as model
from model.entry_cache.shared_reads import StorageRead
from model.entry_cache.state import ABSENT, DISABLED, Config, Derived, State, derived, start
from model.positions import Position
from model.range_cache import Entry, OrphanedCopies, Removed

EVICTION = "model.entry_cache.eviction"


def sizes_of(s: Rec) -> Seq:
    """Returns the sizes of the range caches."""
    sizes: Seq = s.fields["ranges"].fields["sizes"]
    return sizes


def is_sum(s: Rec) -> Any:
    """Returns whether the total size is the sum of the sizes of the range caches."""
    return s.fields["total_bytes"] == sizes_of(s).total(SUM)


class Caches:
    """Any entry cache, and the paths through the functions of the model that change its total size."""

    def __init__(self) -> None:
        self.proof = Proof()
        self.cfg, self.derived = unknown(Config, "cfg"), unknown(Derived, "derived")
        state: Rec = unknown(State, "s")
        sizes = Seq.unknown(int, "s.sizes", {SUM: lambda n: n})
        self.s = state.replace({"ranges": state.fields["ranges"].replace({"sizes": sizes})})
        self.cache = z3.Int("cache")
        topic_caches = state.fields["topic_caches"]
        range_cache = topic_caches.at(self.cache)
        known = z3.Or(
            range_cache == ABSENT, range_cache == DISABLED, z3.And(range_cache >= 0, range_cache < sizes.length)
        )
        numbered = [state.fields["owners"].length == sizes.length, sizes.length >= 0]
        self.given = [self.cache >= 0, self.cache < topic_caches.length, known, *numbered]
        self.reached: list[Any] = []  # for each size pass: it frees its goal, or all bytes
        self._passes = 0
        self._paths_of: dict[str, list[Any]] = {}

    def reader(self, given: Sequence[Any] = ()) -> Reader:
        """Returns a reader that replaces passes and removals by their proved effect."""
        stubs: dict[Callable[..., Any], Callable[..., Any]] = {
            derived: lambda cfg: self.derived,
            ranges.evict_entries: lambda cfg, s, predicate, limit: self._passed(s, predicate, limit),
            ranges.remove_entries: lambda cfg, s, gone: self._taken(s),
            ranges.add_orphaned_copies: add_orphaned_copies,
        }
        return Reader([*self.given, *given], havoc=(ranges.find,), stubs=stubs)

    def _passed(self, s: Rec, predicate: Any, limit: Any) -> tuple[Rec, Rec]:
        """Replaces a pass by its proved effect, and adds what a size pass reaches to `reached`."""
        after, removed = self._taken(s)
        if predicate is ranges.size_pass_predicate:
            freed = removed.fields["bytes"]
            self.reached.append(z3.Or(freed >= limit, freed >= s.fields["sizes"].total(SUM)))
        return after, removed

    def _taken(self, s: Rec) -> tuple[Rec, Rec]:
        """Replaces a pass or removal by the effect that `sizes_decrease_by_reported_bytes` proves."""
        self._passes += 1
        return after_removal(s, f"left#{self._passes}")

    def paths(self) -> Iterator[tuple[str, Path, Rec]]:
        """Yields every path that changes the total size, and the state after it."""
        cfg, s, reader = self.cfg, self.s, self.reader()
        position, entry = unknown(Position, "position"), unknown(Entry, "entry", item=True)
        size, expected, range_cache = z3.Int("bytes"), z3.Int("expected"), z3.Int("range_cache")
        for path in reader.paths(model.insert, cfg, s, self.cache, position, size, expected):
            yield "insert", path, path.value[0]
        for path in reader.paths(model.run_eviction_task, cfg, s):
            yield "run_eviction_task", path, path.value[0]
        for path in reader.paths(model.do_cache_eviction, cfg, s):
            yield "do_cache_eviction", path, path.value[0]
        for path in reader.paths(eviction.remove, cfg, s, Seq.unknown(Entry, "gone")):
            yield "a removal", path, path.value
        read: Rec = unknown(StorageRead, "read", item=True)
        count, copies = unknown(int | None, "count"), unknown(tuple[int, ...], "copies", item=True)
        inside = [range_cache >= 0, range_cache < sizes_of(s).length]
        into = read.replace({"range_cache": range_cache})
        reader = self.reader(inside)
        for path in reader.paths(reads.insert_read_entry, cfg, s, into, z3.Int("id"), size, count, copies, when=inside):
            yield "an entry from storage", path, path.value
        for path in reader.paths(eviction.entry_added, cfg, s, entry.replace({"cache": range_cache}), when=inside):
            yield "an entry that is cached", path, path.value

    def show(self, name: str, goal: Any, path: Path, after: Rec, given: Sequence[Any] = ()) -> None:
        """Proves a goal at the end of a path. The given facts may exclude the path."""
        known = [*self.given, *given, *path.when]
        self.proof.show(f"after {name}", goal, [*known, *facts_of((self.s, after), goal, *known)])
        self._paths_of.setdefault(name, []).append(z3.And(*known))

    def answer(self) -> Answer:
        """Returns the verdict; at least one path of each name must be possible."""
        for name, paths in self._paths_of.items():
            self.proof.possible(name, [z3.Or(*paths)])
        return self.proof.answer()


def sizes_decrease_by_reported_bytes(proof: Proof) -> None:
    """Proves that passes and removals decrease the sizes by the bytes that they report."""
    cfg, state = unknown(ranges.Config, "cfg"), unknown(ranges.State, "s")
    s = state.replace({"sizes": Seq.unknown(int, "s.sizes", {SUM: lambda n: n})})
    gone, at = Seq.unknown(Entry, "gone"), z3.Int("at")
    head = {
        "cfg": cfg,
        "s": s,
        "gone": gone,
        "sizes": Seq.unknown(int, "sizes", {SUM: lambda n: n}),
        "orphaned_copies": Seq.unknown(OrphanedCopies, "orphaned_copies"),
        "entries": z3.Int("entries"),
        "freed": z3.Int("freed"),
        ITERATED: gone,
        INDEX: at,
    }

    def adds_up(n: Names) -> Any:
        sizes, at_first = n["sizes"], n["s"].fields["sizes"]
        same = sizes.length == at_first.length
        return z3.And(n[INDEX] >= 0, same, sizes.total(SUM) + n["freed"] == at_first.total(SUM))

    def fits(n: Names, i: Any) -> Any:
        cache, caches = gone.at(i).fields["cache"], n["s"].fields["sizes"].length
        return z3.Implies(z3.And(i >= 0, i < gone.length), z3.And(cache >= 0, cache < caches))

    loop = Reader(stubs={ranges.add_orphaned_copies: add_orphaned_copies}).loop(ranges.account_for_removed)
    caches_exist = Invariant("caches of removed entries exist", fits, 1)
    induction = Induction(
        proof, loop, head, [Invariant("sizes decrease by the freed bytes", adds_up), caches_exist], [fits(head, at)]
    )
    induction.base_case(loop.begin(cfg, s, gone), (caches_exist,))
    for end in induction.exit_paths(induction.step_case()):
        after, removed = end.value
        adds = after.fields["sizes"].total(SUM) + removed.fields["bytes"] == s.fields["sizes"].total(SUM)
        same = after.fields["sizes"].length == s.fields["sizes"].length
        induction.show("removed bytes are reported", end, lambda adds=adds, same=same: z3.And(adds, same))
    _ends_in_account_for_removed(proof, cfg, s)


def _ends_in_account_for_removed(proof: Proof, cfg: Rec, s: Rec) -> None:
    """Proves that passes and removals change the sizes only in `account_for_removed`, at their end."""

    def removal(_: Rec, state: Rec, __: Seq) -> tuple[Rec, Rec]:
        return after_removal(state, "left")

    reader = Reader(stubs={ranges.account_for_removed: removal}, lists={"gone": (Entry, {})})
    predicate, loop = ranges.size_pass_predicate, reader.loop(ranges.evict_entries)
    queue, gone = Seq.unknown(Entry | None, "queue"), Seq.unknown(Entry, "gone")
    numbers = {"freed": z3.Int("freed"), "head": z3.Int("head"), "limit": z3.Int("limit")}
    names = {"cfg": cfg, "s": s, "predicate": predicate, "queue": queue, "gone": gone, **numbers}
    inside = [numbers["head"] >= 0, numbers["head"] <= queue.length]
    for path in loop.iteration(names, inside):
        proof.need("an iteration of a pass leaves the state unchanged", path.names["s"] is s)
    for path in loop.end(names, inside) + reader.paths(ranges.remove_entries, cfg, s, gone):
        after, removed = path.value
        sizes, at_first = after.fields["sizes"], s.fields["sizes"]
        adds = sizes.total(SUM) + as_term(removed.fields["bytes"]) == at_first.total(SUM)
        goal = z3.And(adds, sizes.length == at_first.length)
        proof.show("bytes removed by a pass are reported", goal, [*path.when, *facts_of((s, after), goal, *path.when)])


def after_removal(s: Rec, name: str) -> tuple[Rec, Rec]:
    """Returns a state whose sizes are in total smaller by the reported bytes, with any queue; and the report."""
    left, removed = s.fields["sizes"].reordered(f"{name}.sizes"), unknown(Removed, f"{name}.removed")
    removed = removed.replace({"bytes": z3.If(left.length > 0, removed.fields["bytes"], 0)})  # without caches, no bytes

    def total(index: Any) -> Any:
        return left.totals[SUM](index) - z3.If(index >= left.length, removed.fields["bytes"], 0)

    sizes = Seq(int, left.length, left.at, {SUM: total}, left.measures, left.roots)
    return s.replace({"sizes": sizes, "queue": Seq.unknown(Entry | None, f"{name}.queue")}), removed


# ---- the claims -------------------------------------------------------------------------------------------


@claim(
    "total-equals-sum-of-cache-sizes",
    "z3",
    "For any number of range caches and entries: if the total size is the sum of the sizes of the range caches, it "
    "still is after an insert, an entry from storage, a removal by position, an eviction task and the "
    "periodic eviction.",
    Control(
        "the bytes of a single removed entry are not subtracted",
        EVICTION,
        "total_bytes=s.total_bytes - removed.bytes",
        "total_bytes=s.total_bytes - (removed.bytes if removed.entries > 1 else 0)",
        refutes="after insert",
    ),
)
def total_is_the_sum() -> Answer:
    """apache/pulsar#10016, #10225, #17908, in which the size became negative or did not return to 0."""
    it = Caches()
    sizes_decrease_by_reported_bytes(it.proof)
    for name, path, after in it.paths():
        it.show(name, is_sum(after), path, after, [is_sum(it.s)])
    for cfg, name, was, now in histories(25, 60):
        it.proof.run(name, now.total_bytes == sum(now.ranges.sizes), (was, cfg))
    return it.answer()


@claim(
    "triggered-eviction-starts-or-frees-bytes",
    "z3",
    "For every total size, every maximum up to 2**53 bytes and every watermark from 0 to 0.98: if the total is above "
    "the trigger and no eviction is in progress, `triggerEvictionWhenNeeded` schedules a task and sets "
    "`evictionInProgress`; if tasks run immediately, it reduces the total size instead. In other states it changes "
    "nothing.",
    Control(
        "eviction is triggered one byte early, at which the size check does nothing",
        EVICTION,
        "if s.eviction_in_progress or not watermark.is_over_threshold(s.total_bytes, s.max_bytes):",
        "if s.eviction_in_progress or not watermark.is_over_threshold(s.total_bytes + 1, s.max_bytes):",
        refutes="after a trigger",
    ),
)
def trigger_frees() -> Answer:
    """ "High Level Design" of PIP-430. The claim size-pass-reaches-its-goal of the range caches is assumed."""
    it = Caches()
    fields = it.s.fields
    total, most, share = fields["total_bytes"], fields["max_bytes"], fields["watermark"]
    reader = it.reader()
    over = as_term(reader.call(watermark.is_over_threshold, total, most))
    is_immediate = as_term(equal(it.cfg.fields["eviction_task"], "immediate"))
    valid = [most >= 0, most <= WHOLE, share.real >= 0, share.real <= exact(0.98), is_sum(it.s)]
    for path in reader.paths(eviction.trigger_eviction, it.cfg, it.s):
        after: Rec = path.value
        at_once = z3.And(
            after.fields["total_bytes"] < total,
            as_term(after.fields["eviction_in_progress"]) == fields["eviction_in_progress"],
        )
        begun = z3.And(as_term(after.fields["eviction_in_progress"]), after.fields["tasks"] == fields["tasks"] + 1)
        triggers = z3.And(over, z3.Not(fields["eviction_in_progress"]))
        goal = z3.If(triggers, z3.If(is_immediate, at_once, begun), after is it.s)
        known = rounding_facts(goal, *path.when, *it.reached)
        it.proof.show("after a trigger", goal, [*it.given, *valid, *it.reached, *known, *path.when])
    example = [over, z3.Not(fields["eviction_in_progress"]), most == 100, share.real == exact(0.5)]
    it.proof.possible("a trigger", [*it.given, *valid, *example, *it.reached, *rounding_facts(over, *it.reached)])
    prove_rounding_facts(it.proof)
    for cfg, was, now in _triggers():
        triggers = watermark.is_over_threshold(was.total_bytes, was.max_bytes) and not was.eviction_in_progress
        begun = now.eviction_in_progress and now.tasks == was.tasks + 1
        done = begun if cfg.eviction_task == "queued" else now.total_bytes < was.total_bytes
        it.proof.run("trigger", done if triggers else now == was, (was, cfg.eviction_task))
    return it.answer()


@claim(
    "at-most-one-eviction-task",
    "z3",
    "For any number of range caches and entries: the number of queued eviction tasks is 1 if `evictionInProgress` is "
    "set, otherwise 0. Every insert, entry from storage, removal, eviction task and periodic eviction preserves this, "
    "unless the periodic eviction clears `evictionInProgress`.",
    Control(
        "an eviction is triggered although one is in progress",
        EVICTION,
        "if s.eviction_in_progress or not watermark",
        "if not watermark",
        refutes="after insert",
    ),
)
def one_task() -> Answer:
    """`RangeEntryCacheManagerImpl.triggerEvictionWhenNeeded`."""
    it = Caches()

    def one(s: Rec) -> Any:
        return s.fields["tasks"] == z3.If(s.fields["eviction_in_progress"], 1, 0)

    rule = z3.Not(it.cfg.fields["periodic_eviction_clears_in_progress"])
    for name, path, after in it.paths():
        it.show(name, one(after), path, after, [one(it.s), rule])
    for cfg, name, was, now in histories(25, 60):
        it.proof.run(name, now.tasks == now.eviction_in_progress, (was, cfg))
    return it.answer()


# ---- random traces ------------------------------------------------------------------------------------

#: Relative frequencies of actions.
WEIGHTS = {"insert": 6, "read": 4, "complete_storage_read": 4, "run_eviction_task": 2}
POSITIONS = (Position(1, 0), Position(1, 1), Position(1, 3), Position(2, 0))


def histories(count: int, steps: int) -> Iterator[tuple[Config, str, State, State]]:
    """Yields the steps of random traces of all actions except faults; always the same sequence."""
    draw = random.Random(430)  # noqa: S311
    actions = {name: action for name, action in model.entry_cache.actions.items() if not action.fault}
    names = [name for name in actions for _ in range(WEIGHTS.get(name, 1))]
    for _ in range(count):
        cfg = Config(
            ttl_ns=3,
            max_bytes=draw.choice((20, 50)),
            max_reads_in_flight_bytes=draw.choice((0, 200)),
            storage_reads=draw.choice(("immediate", "queued")),
            eviction_task=draw.choice(("immediate", "queued")),
        )
        s = start(cfg)
        for _ in range(steps):
            name = draw.choice(names)
            arguments = tuple(_drawn(draw, s, p.name) for p in actions[name].params)
            after, _ = model.entry_cache.step(cfg, s, name, arguments)
            yield cfg, f"{name}{arguments}", s, after
            s = after


def _drawn(draw: random.Random, s: State, name: str) -> Any:
    domains: dict[str, Sequence[Any]] = {
        "cache": (0, 1),
        "position": POSITIONS,
        "ledger": (1, 2),
        "first": (0, 1),
        "last": (1, 2, 3),
        "storage_read": tuple(r.number for r in s.reads) or (1,),
        "success": (True, True, False),
        "copy": tuple(range(max(1, s.ranges.next_copy - 6), s.ranges.next_copy + 1)),
        "nanos": (0, 1, 5),
        "value": (0, 1),
        "bytes": (1, 5, 10),
    }
    return draw.choice(domains.get(name, (0, 1, 2)))


def _triggers() -> Iterator[tuple[Config, State, State]]:
    """Yields configs and states before and after a trigger, with total sizes around the threshold."""
    draw = random.Random(980)  # noqa: S311
    for _ in range(300):
        most = draw.choice((draw.randint(1, 200), draw.randint(1, WHOLE)))
        share = draw.choice((0.0, 0.9, 0.98, draw.random() * 0.98))
        cfg = Config(max_bytes=most, watermark=share, eviction_task=draw.choice(("immediate", "queued")))
        total = max(0, watermark.share_of(most, watermark.TRIGGER_SHARE) + draw.randint(-1, 2))
        s = start(cfg)
        entry = Entry(0, Position(1, 0), total, None, (), 0, 0, False, False)
        full = s.ranges._replace(queue=(entry,), sizes=(total, 0))
        in_progress = draw.random() < 0.2
        s = s._replace(ranges=full, total_bytes=total, eviction_in_progress=in_progress, tasks=int(in_progress))
        yield cfg, s, eviction.trigger_eviction(cfg, s)
