"""Range cache: sizes, reports of passes, queue times and read counts.

Claims about a pass are proved for its loop, translated from the model, over a queue of any length (`passes.py`). Claims
about other actions are proved for each action, or for one iteration of its loop (`edits.py`), so they hold in every
trace. Passes are those of the config `retention` "requeue".
"""

from __future__ import annotations

from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.induction import Invariant, Names
from invariants.proofs.range_cache.counts import reads_are_conserved
from invariants.proofs.range_cache.edits import Edits
from invariants.proofs.range_cache.passes import MODEL, Pass, Run, in_order, ordered_before, queue_of
from invariants.proofs.symbolic import Maybe, Rec
from model import range_cache as model
from model.range_cache import Config, State

# ---- size accounting --------------------------------------------------------------------------------------


def _size_is_sum(n: Names) -> Any:
    return queue_of(n).total("bytes") == n["s"].fields["sizes"].at(z3.Int("cache"))


@claim(
    "size-accounting",
    "z3",
    "For caches of any size, without `released_value_stays_counted`: if each cache's size is the sum of its entries' "
    "bytes, it still is after any put, lookup, change of a read count, time pass or size pass.",
    Control(
        "the bytes of a deallocated value stay in the size under every rule",
        MODEL,
        "return e.released and cfg.released_value_stays_counted",
        "return e.released",
        refutes="after an iteration, removed bytes are subtracted",
    ),
)
def size_accounting() -> Answer:
    """Violated by apache/pulsar#10016, #17908, and by `RangeCache.removeEntry`, 4.1 to master 2026-09.

    The proof shows that a removal by position subtracts the bytes of the entries that it removes. Other engines check
    that it removes these entries from the queue.
    """
    cache = z3.Int("cache")
    bytes_of = {"bytes": lambda slot: z3.If(z3.And(slot.defined, slot.value.fields["cache"] == cache), _bytes(slot), 0)}
    edits = Edits(bytes_of)
    known = (cache >= 0, cache < edits.s.fields["sizes"].length)
    kept = Invariant("sizes are sums", _size_is_sum)
    edits.show((e for e in edits.all() if e.name != "remove_entries"), kept, known)
    for predicate, action in ((model.time_pass_predicate, "time_pass"), (model.size_pass_predicate, "size_pass")):
        it = Pass(predicate, proof=edits.proof)

        def adds_up(n: Names) -> Any:
            return n["gone"].total("bytes") + n["queue"].total("bytes", n["head"]) == queue_of({"s": n["s"]}).total(
                "bytes"
            )

        given = (z3.Not(it.cfg.fields["released_value_stays_counted"]), _size_is_sum({"s": it.s}))
        invariant = Invariant("removed and remaining bytes add up, by cache", adds_up)
        it.show([invariant], lambda after, removed: _size_is_sum({"s": after}), given=given)
        it.check_on_runs(action, _sizes_are_sums)
    edits.check_on_runs(_sizes_add_up)
    return edits.proof.answer()


def _bytes(slot: Maybe) -> Any:
    return slot.value.fields["bytes"]


def _sizes_are_sums(run: Run) -> bool:
    return run.cfg.released_value_stays_counted or _sizes_add_up(run.cfg, run.after)


def _sizes_add_up(cfg: Config, s: State) -> bool:
    sums = [sum(e.bytes for e in s.queue if e is not None and e.cache == c) for c in range(cfg.caches)]
    return tuple(sums) == s.sizes


@claim(
    "passes-report-what-left",
    "z3",
    "For a queue of any length: a pass returns exactly the number and bytes of the entries that it removed. An entry "
    "whose bytes stay in the size is not counted.",
    Control(
        "one entry is returned, whatever was removed",
        MODEL,
        "            entries += 1",
        "            entries = 1",
        refutes="after an iteration, removed bytes are subtracted",
    ),
)
def passes_report() -> Answer:
    """Violated by apache/pulsar#10016 and #17908: passes reported other entries or bytes than they removed."""
    proof = Proof()

    def adds_up(n: Names) -> Any:
        sums = [
            n["gone"].total(m) + n["queue"].total(m, n["head"]) == queue_of({"s": n["s"]}).total(m)
            for m in ("entries", "freed")
        ]
        return z3.And(n["freed"] == n["gone"].total("freed"), *sums)

    for predicate, action in ((model.time_pass_predicate, "time_pass"), (model.size_pass_predicate, "size_pass")):
        it = Pass(predicate, proof=proof)

        def reported(after: Rec, removed: Rec, it: Pass = it) -> Any:
            lost = [queue_of({"s": it.s}).total(m) - queue_of({"s": after}).total(m) for m in ("entries", "freed")]
            return z3.And(removed.fields["entries"] == lost[0], removed.fields["bytes"] == lost[1])

        it.show([Invariant("removed and remaining bytes add up", adds_up)], reported)
        it.check_on_runs(action, _reported)
    return proof.answer()


def _reported(run: Run) -> bool:
    counted = [e for e in run.gone() if not model.stays_counted(run.cfg, e)]
    return run.removed == (len(counted), sum(e.bytes for e in counted))


# ---- order of timestamps ------------------------------------------------------------------------------------


@claim(
    "queue-times-never-decrease",
    "z3",
    "For a queue of any length: if from head to tail timestamps never decrease and none is later than now, the same "
    "holds after any action, except if the clock is set back. The action `non_evictable_size` is not covered.",
    Control(
        "a requeued entry keeps its timestamp",
        MODEL,
        "e._replace(timestamp_ns=s.now_ns, accessed=False,",
        "e._replace(accessed=False,",
        refutes="after an iteration, the queue is in the order of time",
    ),
)
def times_never_decrease() -> Answer:
    """Otherwise a pass could stop at an unexpired entry before an expired one."""
    edits = Edits()
    forwards = [edits.argument("nanos", int) >= 0]
    edits.show((e for e in edits.all() if e.name != "step_clock_back"), in_order(), forwards)
    for predicate, action in ((model.time_pass_predicate, "time_pass"), (model.size_pass_predicate, "size_pass")):
        it = Pass(predicate, proof=edits.proof)
        it.show(
            [in_order("head")],
            lambda after, removed, i, j: in_order().holds({"s": after}, i, j),
            indexes=2,
            assumed=(ordered_before(),),
        )
        it.check_on_runs(action, _in_order)
    edits.check_on_runs(lambda cfg, s: _times_in_order(s))
    return edits.proof.answer()


def _in_order(run: Run) -> bool:
    return _times_in_order(run.after)


def _times_in_order(s: State) -> bool:
    times = [e.timestamp_ns for e in s.queue if e is not None]
    return [*times, s.now_ns] == sorted([*times, s.now_ns])


# ---- read counts ---------------------------------------------------------------------------------------


@claim(
    "read-counts-are-conserved",
    "z3",
    "For caches of any size and traces of any length, if removal from the cache does not decrement read counts: the "
    "read count of an entry is its initial value plus the replays, minus the `mark_read` calls and the releases that "
    "decrement it. An entry without a handler never gets a read count.",
    Control(
        "a read count is not decremented below zero",
        MODEL,
        "count is None else count - 1",
        "count is None else max(count - 1, 0)",
        refutes="marked_read",
    ),
)
def read_counts() -> Answer:
    """The counts by which a pass requeues entries with expected reads."""
    return reads_are_conserved()
