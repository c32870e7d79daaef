"""Claims about the eviction passes of the range caches: removed entries, remaining entries, and termination."""

from __future__ import annotations

from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Control, Proof, claim
from invariants.proofs.induction import Invariant, Names, facts_of
from invariants.proofs.range_cache.passes import (
    MODEL,
    PREDICATES,
    Pass,
    Run,
    field_at,
    in_order,
    live_at,
    ordered_before,
    predicate_against,
    predicate_arguments,
    queue_of,
    stays_counted,
)
from invariants.proofs.symbolic import Measures, Reader, Rec, Seq, equal
from model import range_cache as model

# ---- time passes ------------------------------------------------------------------------------------------


@claim(
    "time-pass-removes-nothing-younger",
    "z3",
    "For a queue of any length: a time pass neither removes nor requeues an entry whose timestamp is at or after the "
    "threshold.",
    Control(
        "an entry as old as the threshold is expired",
        MODEL,
        "return timestamp_ns < threshold_ns",
        "return timestamp_ns <= threshold_ns",
        refutes="after an iteration, removed entries are older than the limit",
    ),
)
def removes_nothing_younger() -> Answer:
    """An entry whose age is exactly the TTL stays."""
    it = Pass(model.time_pass_predicate)

    def is_old(n: Names, i: Any) -> Any:
        gone = n["gone"]
        inside = z3.And(i >= 0, i < gone.length)
        return z3.Implies(inside, gone.at(i).fields["timestamp_ns"] < n["limit"])

    it.show([Invariant("removed entries are older than the limit", is_old, 1)])
    queue, head = it.head["queue"], it.head["head"]
    for path in it.loop.iteration(it.head, [head >= 0]):
        moved = z3.And(queue.at(head).defined, path.names["head"] > head)
        old = field_at(queue, head, "timestamp_ns") < it.limit
        it.proof.show("an entry that is moved is old", z3.Implies(moved, old), path.when)
    it.check_on_runs("time_pass", _only_older)
    return it.proof.answer()


def _only_older(run: Run) -> bool:
    young = [e for e in run.before.queue if e is not None and e.timestamp_ns >= run.limit]
    return all(e in run.after.queue for e in young)


@claim(
    "time-pass-leaves-nothing-older",
    "z3",
    "For a queue of any length ordered by timestamp, and a threshold that is not in the future: after a time pass no "
    "timestamp is before the threshold.",
    Control(
        "an entry that is due for requeue stops the pass",
        MODEL,
        '    if should_requeue(s, e):\n        return "REQUEUE"',
        '    if should_requeue(s, e):\n        return "STOP"',
        refutes="at the end",
    ),
)
def leaves_nothing_older() -> Answer:
    """Violated before the removal queue (PIP-430, "Motivation"): old entries stayed behind young ones."""
    it = Pass(model.time_pass_predicate)

    def young(after: Rec, removed: Rec, i: Any) -> Any:
        seq = queue_of({"s": after})
        return z3.Implies(live_at(seq, i), field_at(seq, i, "timestamp_ns") >= it.limit)

    not_future = it.limit <= it.s.fields["now_ns"]
    it.show([in_order("head")], young, indexes=1, given=(not_future,), assumed=(ordered_before(),))
    it.check_on_runs("time_pass", lambda run: all(e is None or e.timestamp_ns >= run.limit for e in run.after.queue))
    return it.proof.answer()


@claim(
    "time-pass-visits-a-slot-once",
    "z3",
    "For a queue of any length, and a threshold that is not in the future: a time pass takes only slots from the queue "
    "that were in the queue at the start, so it visits each slot at most once.",
    Control(
        "a requeued entry keeps its timestamp",
        MODEL,
        "e._replace(timestamp_ns=s.now_ns, accessed=False,",
        "e._replace(accessed=False,",
        refutes="after an iteration, requeued entries have the current timestamp",
    ),
)
def visits_once() -> Answer:
    """A requeued entry has the current time as timestamp, so the pass stops before it visits the entry again."""
    it = Pass(model.time_pass_predicate)

    def requeued_are_new(n: Names, i: Any) -> Any:
        queue, slots = n["queue"], queue_of({"s": n["s"]}).length
        is_requeued = z3.And(i >= slots, i < queue.length)
        new = z3.And(queue.at(i).defined, field_at(queue, i, "timestamp_ns") == n["s"].fields["now_ns"])
        return z3.And(n["head"] <= slots, slots <= queue.length, z3.Implies(is_requeued, new))

    not_future = it.limit <= it.s.fields["now_ns"]
    exit_paths = it.show(
        [Invariant("requeued entries have the current timestamp", requeued_are_new, 1)], given=(not_future,)
    )
    for end in exit_paths:
        slots = it.s.fields["queue"].length
        it.proof.show("visits", end.names["head"] <= slots, [*end.when, requeued_are_new(it.head, it.head["head"])])
    it.check_on_runs("time_pass", lambda run: run.visits <= len(run.before.queue))
    return it.proof.answer()


# ---- size passes ------------------------------------------------------------------------------------------


@claim(
    "size-pass-reaches-its-goal",
    "z3",
    "For a queue of any length: a size pass frees at least the requested bytes, or all that can be freed.",
    Control(
        "the bytes of a requeued entry count as freed",
        MODEL,
        '        if result == "REQUEUE":\n',
        '        if result == "REQUEUE":\n            freed += e.bytes\n',
        refutes="after an iteration, freed and remaining bytes add up",
    ),
)
def reaches_its_goal() -> Answer:
    """An entry whose bytes stay in the size frees nothing."""
    it = Pass(model.size_pass_predicate)

    def adds_up(n: Names) -> Any:
        both = n["gone"].total("freed") + n["queue"].total("freed", n["head"])
        return z3.And(n["freed"] == n["gone"].total("freed"), both == queue_of({"s": n["s"]}).total("freed"))

    def enough(after: Rec, removed: Rec) -> Any:
        freed, freeable = removed.fields["bytes"], queue_of({"s": it.s}).total("freed")
        return z3.Or(freed >= it.limit, freed == freeable)

    it.show([Invariant("freed and remaining bytes add up", adds_up)], enough)
    it.check_on_runs("size_pass", lambda run: run.removed.bytes >= min(run.limit, run.freeable()))
    return it.proof.answer()


@claim(
    "size-pass-takes-one-entry-too-much-at-most",
    "z3",
    "For a queue of any length: without the last entry that it removed, a size pass would have freed fewer bytes "
    "than requested.",
    Control(
        "the pass stops only when more than the requested bytes are freed",
        MODEL,
        '    if freed >= bytes_to_free:\n        return "STOP"',
        '    if freed > bytes_to_free:\n        return "STOP"',
        refutes="after an iteration, the last removal was needed",
    ),
)
def takes_no_more() -> Answer:
    """The pass does not remove more entries than needed."""
    it = Pass(model.size_pass_predicate)

    def needed(n: Names) -> Any:
        gone = n["gone"]
        last = z3.If(stays_counted(it.cfg, gone.at(gone.length - 1)), 0, gone.at(gone.length - 1).fields["bytes"])
        return z3.And(n["freed"] == gone.total("freed"), z3.Implies(gone.length > 0, n["freed"] - last < it.limit))

    exit_paths = it.show([Invariant("the last removal was needed", needed)])
    for end in exit_paths:
        _, removed = end.value
        gone = end.names["gone"]
        same = removed.fields["bytes"] == z3.If(gone.length > 0, end.names["freed"], 0)
        it.proof.show(
            "the reported bytes are the counted bytes", same, [*end.when, *facts_of((gone,), same, *end.when)]
        )
    it.check_on_runs("size_pass", _last_was_needed)
    return it.proof.answer()


def _last_was_needed(run: Run) -> bool:
    last = 0 if run.last is None or model.stays_counted(run.cfg, run.last) else run.last.bytes
    return run.last is None or run.removed.bytes - last < run.limit


def _extra_visits(cfg: Rec, s: Rec) -> Measures:
    """Returns the measure `extra`: by the claim, how often a size pass that empties the queue requeues an entry."""

    def of(e: Rec) -> Any:
        count, f = e.fields["expected_reads"], e.fields
        by_access = z3.If(z3.And(s.fields["extend_ttl_of_recently_accessed"], f["accessed"]), 1, 0)
        left = s.fields["max_requeue_times"] - f["requeue_count"]
        expects = z3.And(count.defined, count.value >= 1, left > 0)
        by_reads = z3.If(expects, left, 0)
        both = z3.If(by_access > by_reads, by_access, by_reads)
        return z3.If(cfg.fields["access_requeue_counts"], both, by_access + by_reads)

    return {"extra": of}


@claim(
    "size-pass-visit-bound",
    "z3",
    "For a queue of any length, with `size_pass_requeues_expired`: the number of visits of a size pass is at most the "
    "sum of n + 1 over all slots. Here n is 0 for a removed entry, otherwise max(a, b), where a is 1 if the entry is "
    "due for recent access, else 0, and b is the number of requeues left for its expected reads; without "
    "`access_requeue_counts`, n is a + b. A pass that empties the queue makes all these visits.",
    Control(
        "the maximum is compared with <=",
        MODEL,
        "e.requeue_count < s.max_requeue_times",
        "e.requeue_count <= s.max_requeue_times",
        refutes="after an iteration, each visit uses up a requeue",
    ),
)
def visit_bound() -> Answer:
    """A size pass ends: each visit uses up one of finitely many requeues."""
    it = Pass(model.size_pass_predicate, _extra_visits)
    _sums_are_not_negative(it.proof)
    before = queue_of({"s": it.s})

    def used_up(n: Names) -> Any:
        queue, head = n["queue"], n["head"]
        left = queue.length - head + queue.total("extra", head)
        return head + left == before.length + before.total("extra")

    given = (it.cfg.fields["size_pass_requeues_expired"],)
    exit_paths = it.show([Invariant("each visit uses up a requeue", used_up)], given=given)
    most = before.length + before.total("extra")
    for end in exit_paths:
        queue, head = end.names["queue"], end.names["head"]
        not_negative = queue.total("extra", head) >= 0
        bound = z3.And(head <= most, z3.Implies(head == queue.length, head == most))
        it.proof.show("the bound", bound, [*end.when, not_negative])
    it.check_on_runs("size_pass", _within_bound)
    return it.proof.answer()


def _sums_are_not_negative(proof: Proof) -> None:
    """Proves by induction over the end that a sum over a slice of a sequence is not negative, if no number is."""
    numbers = Seq.unknown(int, "numbers", {"it": lambda n: n})
    first, end = z3.Int("first"), z3.Int("end")
    item = numbers.at(end)
    inside = [first >= 0, first <= end, end < numbers.length, item >= 0]
    facts = numbers.roots[0].facts([end])
    proof.lemma(
        "one more", numbers.total("it", first, end + 1) >= 0, [*inside, *facts, numbers.total("it", first, end) >= 0]
    )


def _within_bound(run: Run) -> bool:
    if not run.cfg.size_pass_requeues_expired:
        return True
    s, bound = run.before, len(run.before.queue)
    for e in s.queue:
        if e is not None:
            a = 1 if s.extend_ttl_of_recently_accessed and e.accessed else 0
            b = max(0, s.max_requeue_times - e.requeue_count) if model.has_expected_reads(e.expected_reads) else 0
            bound += max(a, b) if run.cfg.access_requeue_counts else a + b
    return run.visits <= bound and (run.after.queue != () or run.visits == bound)


# ---- single visits ----------------------------------------------------------------------------------------


@claim(
    "due-entries-are-not-removed",
    "z3",
    "No visit of a time pass removes an entry that is due for requeue. An entry is due if it was accessed and access "
    "extends the TTL, or if it has expected reads and was requeued fewer than the maximum number of times. The same "
    "holds for a size pass with `size_pass_requeues_expired`.",
    Control(
        "an entry is requeued only once",
        MODEL,
        "has_expected_reads(e.expected_reads) and e.requeue_count < s.max_requeue_times",
        "has_expected_reads(e.expected_reads) and e.requeue_count < min(s.max_requeue_times, 1)",
        refutes="a due entry is not removed",
    ),
)
def due_are_not_removed() -> Answer:
    """An entry without a handler is never requeued for expected reads."""
    proof, reader = Proof(), Reader()
    cfg, s, slot, freed, limit = predicate_arguments()
    f, count = slot.value.fields, slot.value.fields["expected_reads"]
    by_access = z3.And(s.fields["extend_ttl_of_recently_accessed"], f["accessed"])
    by_reads = z3.And(count.defined, count.value >= 1, f["requeue_count"] < s.fields["max_requeue_times"])
    # without the rule `spares`, a size pass removes a due entry that is expired
    due, spares = z3.Or(by_access, by_reads), cfg.fields["size_pass_requeues_expired"]
    for predicate in PREDICATES:
        result = reader.call(predicate, cfg, s, slot, freed, limit)
        predicate_against(proof, predicate, result)
        removed, requeued = equal(result, "REMOVE"), equal(result, "REQUEUE")
        given = [slot.defined] if predicate is model.time_pass_predicate else [slot.defined, spares]
        proof.show("a due entry is not removed", z3.Implies(due, z3.Not(removed)), given, direct=True)
        proof.show("only a due entry is requeued", z3.Implies(requeued, due), [slot.defined], direct=True)
    return proof.answer()


@claim(
    "detached-slots-are-drained",
    "z3",
    "Every visit of either pass to the wrapper of a removed entry drops the wrapper from the queue, even if the pass "
    "would stop at an entry.",
    Control(
        "whether enough bytes are freed is tested before whether the entry was removed",
        MODEL,
        '    if e is None:\n        return "MISSING"\n    if freed >= bytes_to_free:\n        return "STOP"\n',
        '    if freed >= bytes_to_free:\n        return "STOP"\n    if e is None:\n        return "MISSING"\n',
        refutes="size_pass_predicate of a detached slot",
    ),
)
def detached_are_drained() -> Answer:
    """Wrappers of removed entries use memory until a pass visits them."""
    proof, reader = Proof(), Reader()
    cfg, s, slot, freed, limit = predicate_arguments()
    for predicate in PREDICATES:
        result = reader.call(predicate, cfg, s, slot, freed, limit)
        predicate_against(proof, predicate, result)
        missing = equal(result, "MISSING")
        proof.show(f"{predicate.__name__} of a detached slot", missing == z3.Not(slot.defined), direct=True)
    return proof.answer()
