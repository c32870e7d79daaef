"""Symbolic execution of the range caches' actions, except eviction passes, on caches of any size.

An edit is one path that changes the state: through an action without a loop, or through one iteration of a loop. Three
functions iterate over any number of entries:

    function            called by                                effect
    look_up             get, get_range                           sets `accessed`; with `hold`, makes a copy
    change_read_count   release, replay                          changes the read count that an open copy shares
    remove_entries      remove_range, invalidate_ledger, clear   removes entries; their wrappers stay in the queue

`passes.py` has the proofs about eviction passes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Proof
from invariants.proofs.induction import Invariant, Names, follows
from invariants.proofs.shared.range_caches import add_orphaned_copies
from invariants.proofs.symbolic import (
    INDEX,
    ITERATED,
    SUM,
    Evaluator,
    Measures,
    Path,
    Reader,
    Rec,
    Seq,
    bind,
    evaluator,
    unknown,
)
from model import range_cache as model
from model.machine import Param
from model.positions import Position
from model.range_cache import Config, Entry, Hit, OrphanedCopies, Removed, State

#: Actions without edits: the passes, and `non_evictable_size`, which only drops wrappers of removed entries.
LEFT_OUT = ("time_pass", "size_pass", "evict_to_watermark", "non_evictable_size")


#: The functions that iterate over any number of entries. Some actions end in a call of one.
INNER = (model.look_up, model.change_read_count, model.remove_entries)


class Edit(NamedTuple):
    """One path through an action, or through one iteration of a loop, with the final state and the outcome."""

    name: str
    path: Path
    after: Rec
    outcome: Any


class Edits:
    """All edits of an unconstrained state. `measures` are the measures that the queue sums over its slots."""

    def __init__(self, measures: Measures | None = None) -> None:
        self.proof = Proof()
        self.measures = measures
        self.cfg, self.s = unknown(Config, "cfg"), self.any_state("s")
        self.arguments: dict[str, Any] = {}
        self.paths: dict[str, list[Path]] = {}  # paths of the actions that call no function of INNER, by name
        cache = self.argument("cache", int)
        self.given = [cache >= 0, cache < self.s.fields["sizes"].length]

    def any_state(self, name: str) -> Rec:
        """Returns an unconstrained state."""
        queue = Seq.unknown(Entry | None, f"{name}.queue", self.measures)
        sizes = Seq.unknown(int, f"{name}.sizes", {SUM: lambda n: n})
        state: Rec = unknown(State, name).replace({"queue": queue, "sizes": sizes})
        return state

    def argument(self, name: str, kind: Any) -> Any:
        """Returns the symbolic value of an argument; arguments with equal names share it."""
        return self.arguments.setdefault(name, unknown(kind, f"arg.{name}"))

    def all(self) -> Iterator[Edit]:
        """Yields every edit."""
        yield from self.action_edits()
        yield from self.look_up_edits()
        yield from self.read_count_edits(model.marked_read)
        yield from self.removal_edits()

    def action_edits(self) -> Iterator[Edit]:
        """Yields the paths of the actions that change the state outside the functions of `INNER`.

        A path that calls one of these functions ends at the call: `after` is the state that is passed to the call. If
        this state is unchanged, the path is no edit.
        """
        # A stub replaces each of these functions. Called with an unchanged state, it returns `unchanged`. Otherwise it
        # returns a new arbitrary state, for which `changed` has the state at the call.
        unchanged = self.s.replace({})
        for name, action in model.range_cache.actions.items():
            if name in LEFT_OUT:
                continue
            changed: list[tuple[Rec, Rec]] = []  # what a stub returned, and the state that it was given

            def ends_in(*given: Any, changed: list[tuple[Rec, Rec]] = changed, **_: Any) -> tuple[Rec, None]:
                [s] = [each for each in given if isinstance(each, Rec) and each.kind is State]
                if s is self.s:
                    return unchanged, None
                changed.append((self.any_state(f"between#{len(changed)}"), s))
                return changed[-1][0], None

            stubs: dict[Callable[..., Any], Callable[..., Any]] = dict.fromkeys(INNER, ends_in)
            stubs[model.add_orphaned_copies] = add_orphaned_copies
            reader = Reader(self.given, havoc=(model.find, model.entries_in_range), stubs=stubs)
            arguments = [self.argument(p.name, p.annotation) for p in action.params]
            paths = reader.paths(action.run, self.cfg, self.s, *arguments)
            if not changed and all(path.value[0] is not unchanged for path in paths):
                self.paths[name] = paths
            for path in paths:
                after, outcome = path.value
                after = next((s for returned, s in changed if returned is after), after)
                if after is not unchanged and after is not self.s:
                    yield Edit(name, path, after, outcome)

    def look_up_edits(self) -> Iterator[Edit]:
        """Yields the paths of one iteration of `look_up`."""
        loop = Reader().loop(model.look_up)
        found, hits = Seq.unknown(Entry, "found"), Seq.unknown(Hit, "hits")
        names = {
            "s": self.s,
            "found": found,
            "hold": z3.Bool("hold"),
            "hits": hits,
            ITERATED: found,
            INDEX: z3.Int("at"),
        }
        for path in loop.iteration(names):
            yield Edit("look_up", path, path.names["s"], path.names["hits"])

    def read_count_edits(self, change: Any) -> Iterator[Edit]:
        """Yields the paths that change a read count: that of a cached entry, or of `OrphanedCopies`.

        `change` is the function from the old read count to the new one.
        """
        names = {"s": self.s, "copy": z3.Int("copy"), "change": change, "keep_copy": z3.Bool("keep_copy")}
        reader = Reader(stubs={model.add_orphaned_copies: add_orphaned_copies})
        for which in (0, 1):
            loop = reader.loop(model.change_read_count, which)
            over = loop.over(names)
            for path in loop.iteration({**names, ITERATED: over, INDEX: z3.Int("at")}, [z3.Int("at") >= 0]):
                if path.exit == "return":
                    after, outcome = path.value
                    yield Edit("change_read_count", path, after, outcome)

    def removal_edits(self) -> Iterator[Edit]:
        """Yields the paths of `remove_entries`, for any entries."""

        def account_for_removed(cfg: Rec, s: Rec, gone: Any) -> tuple[Rec, Rec]:
            """Stub: the sizes, the orphaned copies and the outcome are arbitrary."""
            left = {
                "sizes": Seq.unknown(int, "left.sizes"),
                "orphaned_copies": Seq.unknown(OrphanedCopies, "left.orphaned_copies"),
            }
            return s.replace(left), unknown(Removed, "removed")

        reader = Reader(stubs={model.account_for_removed: account_for_removed})
        for path in reader.paths(model.remove_entries, self.cfg, self.s, Seq.unknown(Entry, "gone")):
            yield Edit("remove_entries", path, *path.value)

    def show(self, edits: Iterator[Edit], kept: Invariant, given: Sequence[Any] = ()) -> None:
        """Proves that every edit preserves an invariant of the state, which is the name `s`."""
        anywhere = [z3.Int(f"any{i}") for i in range(kept.indexes)]
        for edit in edits:
            self.follows(
                edit, kept.about, lambda *at, edit=edit: kept.holds({"s": edit.after}, *at), anywhere, kept, given
            )

    def follows(
        self,
        edit: Edit,
        what: str,
        goal: Any,
        indexes: Sequence[Any],
        kept: Invariant | None = None,
        given: Sequence[Any] = (),
    ) -> None:
        """Proves a goal about the state after an edit."""
        names: Names = {"s": self.s}
        values = (self.s, edit.after, edit.outcome, *[v for v in edit.path.names.values() if isinstance(v, Seq)])
        known = [*self.given, *given, *edit.path.when]
        follows(self.proof, f"{edit.name}: {what}", goal, indexes, (kept,) if kept else (), names, known, values)

    # ---- comparison with runs of the program

    def check_on_runs(self, holds: Callable[[Config, State], bool]) -> None:
        """Checks the claim on random traces, and compares the paths in `paths` with each step of their actions."""
        compiled = {name: [self._compiled(path) for path in paths] for name, paths in self.paths.items()}
        for history in histories(20, 60):
            for cfg, before, name, arguments, after, outcome in history:
                self.proof.run(f"{name}{arguments}", holds(cfg, after), before)
                if name in compiled:
                    bound = self._bound(cfg, before, name, arguments)
                    taken = [value for when, value in compiled[name] if all(each(bound) for each in when)]
                    evaluated = [(_canonical(value(bound)[0]), value(bound)[1]) for value in taken]
                    self.proof.compare(f"{name}{arguments}", evaluated, [(_canonical(after), outcome)])

    def _compiled(self, path: Path) -> tuple[list[Evaluator], Evaluator]:
        """Returns evaluators of a path's conditions and of its value."""
        return [evaluator(each) for each in path.conditions()], evaluator(path.value)

    def _bound(self, cfg: Config, s: State, name: str, arguments: tuple[Any, ...]) -> dict[str, Any]:
        """Returns the values of the names in the terms of an action, including the results of `find` and `index`."""
        bound: dict[str, Any] = {}
        bind(Config, "cfg", cfg, bound)
        bind(State, "s", s, bound)
        given = dict(zip(model.range_cache.actions[name].params, arguments, strict=True))
        for param, value in given.items():
            bind(param.annotation, f"arg.{param.name}", value, bound)
        named = {param.name: value for param, value in given.items()}
        if "cache" in named and "position" in named:
            present = model.find(s, named["cache"], named["position"])
            bind(Entry | None, "find", present, bound, element=True)
            bound["in"] = present in s.queue
            bound["index"] = s.queue.index(present) if present in s.queue else 0
        return bound


def _canonical(s: State) -> State:
    """Returns the state with `orphaned_copies` sorted, and without empty groups."""
    return s._replace(orphaned_copies=tuple(sorted(g for g in s.orphaned_copies if g.copies)))


# ---- random traces ----------------------------------------------------------------------------------------

POSITIONS = (Position(1, 0), Position(1, 1), Position(2, 0))


def histories(count: int, steps: int) -> Iterator[Iterator[tuple[Config, State, str, tuple[Any, ...], State, Any]]]:
    """Yields random traces without faults, each as an iterator over its steps. The seed is fixed."""
    draw = random.Random(54)  # noqa: S311
    for _ in range(count):
        yield _history(draw, steps)


def _history(draw: random.Random, steps: int) -> Iterator[tuple[Config, State, str, tuple[Any, ...], State, Any]]:
    cfg = Config(
        ttl_ns=3,
        max_bytes=5,
        duplicate_put=draw.choice(("keep", "latest_handler")),
        undelivered_release_marks_read=draw.random() < 0.3,
    )
    s = model.start(cfg)
    names = [name for name, action in model.range_cache.actions.items() if not action.fault]
    for _ in range(steps):
        name = draw.choice([*names, *["put", "get", "release", "replay"] * 3])
        arguments = tuple(_drawn(draw, s, p) for p in model.range_cache.actions[name].params)
        after, outcome = model.range_cache.step(cfg, s, name, arguments)
        yield cfg, s, name, arguments, after, outcome
        s = after


def _drawn(draw: random.Random, s: State, param: Param) -> Any:
    """Returns a random value for a parameter, small or close to values in the state."""
    name = param.name
    if name in ("position", "value_position", "first", "last"):
        return draw.choice(POSITIONS)
    if param.annotation is bool:
        return draw.random() < 0.6
    domains = {
        "cache": (0, 1),
        "ledger": (1, 2),
        "bytes": (0, 1, 2, 3),
        "copy": tuple(range(max(1, s.next_copy - 6), s.next_copy + 1)),
        "expected_reads": (-1, 0, 1, 2),
        "threshold_ns": (s.now_ns - 3, s.now_ns),
        "bytes_to_free": (1, 2, 5),
    }
    return draw.choice(domains.get(name, (0, 1, 2)))
