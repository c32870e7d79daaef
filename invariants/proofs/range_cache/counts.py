"""The proof that read counts are conserved. The proof covers every step that writes or moves a read count:

put                          gives an entry a read count, or none
mark_read, most releases     decrement the read count; `undelivered_release_marks_read` decides about the release of a
                             copy that was not delivered
replay                       increments the read count
look-up, requeue, removal    keep the read count of the entry and of its open copies
"""

from __future__ import annotations

from typing import Any

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Answer, Proof
from invariants.proofs.induction import Invariant, Names
from invariants.proofs.range_cache.edits import Edit, Edits, histories
from invariants.proofs.range_cache.passes import PREDICATES, Pass, live_at, queue_of
from invariants.proofs.shared.range_caches import add_orphaned_copies
from invariants.proofs.symbolic import INDEX, ITERATED, Choice, Maybe, Reader, Rec, Seq, as_term, equal, merged, unknown
from model import range_cache as model
from model.range_cache import Config, Entry, OrphanedCopies, State


def _lowered(count: Maybe) -> Maybe:
    return Maybe(count.defined, count.value - 1)


def _raised(count: Maybe) -> Maybe:
    return Maybe(count.defined, count.value + 1)


def _same(count: Maybe) -> Maybe:
    return count


def _count_of(e: Any) -> Maybe:
    """Returns the read count of an entry, a slot, or `OrphanedCopies`."""
    count: Maybe = (e.value if isinstance(e, Maybe) else e).fields["expected_reads"]
    return count


def reads_are_conserved() -> Answer:
    """Proves that each step changes read counts by its rule, and checks the sum on random traces."""
    edits = Edits()
    _counters_by_rule(edits)
    _edits_keep_counts(edits)
    for change, rule in ((model.marked_read, _lowered), (model.replayed, _raised), (model.unchanged, _same)):
        for edit in edits.read_count_edits(change):
            _change_follows(edits, edit, rule)
    _passes_keep_counts(edits.proof)
    _removal_keeps_counts(edits.proof)
    edits.check_on_runs(lambda cfg, s: True)  # compares the terms; `_conserved_in` checks the claim
    for history in histories(60, 60):
        _conserved_in(edits.proof, history)
    return edits.proof.answer()


def _counters_by_rule(edits: Edits) -> None:
    """Proves the results of the functions that change a read count, and which of them a release and a replay apply.

    By the claim, a read count is the initial value plus the replays minus the releases. The lemmas say: if this holds
    before a replay, or a release that counts, it holds afterwards.
    """
    proof, reader = edits.proof, Reader()
    count, expected = unknown(int | None, "count"), z3.Int("expected")
    for function, rule in ((model.marked_read, _lowered), (model.replayed, _raised), (model.unchanged, _same)):
        proof.show(function.__name__, equal(reader.call(function, count), rule(count)), direct=True)
    initial = Maybe(z3.And(edits.cfg.fields["counts_reads"], expected > 0), expected)
    proof.show("initial_count", equal(reader.call(model.initial_count, edits.cfg, expected), initial), direct=True)
    changes: list[Any] = []

    def changed(s: Rec, copy: Any, change: Any, keep_copy: bool) -> Any:
        changes.append((change, keep_copy))
        return s, None

    reader = Reader(stubs={model.change_read_count: changed})
    delivered, copy = z3.Bool("delivered"), z3.Int("copy")
    reader.call(model.release, edits.cfg, edits.s, copy, delivered)
    reader.call(model.replay, edits.cfg, edits.s, copy)
    (released, release_keeps), (replayed, replay_keeps) = changes
    proof.need("a replay keeps the copy, and a release does not", replay_keeps is True and release_keeps is False)
    proof.show("a replay", equal(_applied(replayed, count), _raised(count)))
    counts = z3.Or(delivered, edits.cfg.fields["undelivered_release_marks_read"])
    proof.show("a release", equal(_applied(released, count), merged(counts, _lowered(count), count)))
    value, first, replays, releases = z3.Ints("value first replays releases")
    known = [value == first + replays - releases]
    proof.lemma("a release that counts", value - 1 == first + replays - (releases + 1), known)
    proof.lemma("a replay adds one", value + 1 == first + (replays + 1) - releases, known)


def _applied(change: Any, count: Maybe) -> Any:
    """Returns the read count after a change: a function, or a choice of two."""
    if isinstance(change, Choice):
        return merged(change.when, _applied(change.then, count), _applied(change.other, count))
    return Reader().call(change, count)


def _edits_keep_counts(edits: Edits) -> None:
    """Proves that only two actions write a read count directly: mark_read decrements it, and a put sets it."""
    at, before = z3.Int("any0"), queue_of({"s": edits.s})
    expected = edits.argument("expected_reads", int)
    initial = Maybe(z3.And(edits.cfg.fields["counts_reads"], expected > 0), expected)
    for edit in (*edits.action_edits(), *edits.look_up_edits()):
        present = edit.path.names.get("present")
        puts = edit.name in ("put", "put_mismatched")

        def written(i: Any, edit: Edit = edit, puts: bool = puts) -> Any:
            after = queue_of({"s": edit.after})
            was, now = _count_of(before.at(i)), _count_of(after.at(i))
            rules = (
                [equal(now, was)]
                + [equal(now, initial)] * puts
                + [equal(now, _lowered(was))] * (edit.name == "mark_read")
            )
            # an entry that was queued keeps its count, or changes it by a rule; a new entry has the initial count
            return z3.Implies(live_at(after, i), z3.If(live_at(before, i), z3.Or(*rules), equal(now, initial)))

        edits.follows(edit, "a read count changes by its rule", written, [at])
        orphaned_copies, more = edits.s.fields["orphaned_copies"], edit.after.fields["orphaned_copies"]
        if more is not orphaned_copies and isinstance(present, Maybe):
            kept = equal(_count_of(more.at(orphaned_copies.length)), _count_of(present))
            edits.follows(edit, "copies of an entry that is put again keep their count", lambda kept=kept: kept, [])
        if edit.name == "mark_read" and isinstance(edit.outcome, Rec) and isinstance(present, Maybe):
            _writes(edits, edit, present, _lowered(_count_of(present)))


def _writes(edits: Edits, edit: Edit, holder: Any, ruled: Maybe) -> None:
    """Proves that the outcome has the changed read count `ruled`, and that the holder has it in the queue.

    The holder is a cached entry, or a group of orphaned copies. The queue does not contain such a group, so for a group
    only the outcome is tested. It is assumed that no two slots have the same entry, and that the stash is empty.
    """
    edits.follows(edit, "the reported count", lambda: equal(_count_of(edit.outcome), ruled), [])
    before, after = queue_of({"s": edits.s}), queue_of({"s": edit.after})

    def once(n: Names, i: Any, j: Any) -> Any:
        both = z3.And(live_at(before, i), live_at(before, j), as_term(equal(before.at(i), before.at(j))))
        return z3.Implies(both, i == j)

    def has_count(i: Any) -> Any:
        is_it = z3.And(live_at(before, i), as_term(equal(before.at(i), holder)))
        return z3.Implies(is_it, equal(_count_of(after.at(i)), ruled))

    if "group" not in edit.path.names:
        stash = [edits.s.fields["stash"].length == 0]
        edits.follows(edit, "the count of the entry", has_count, [z3.Int("any0")], Invariant("", once, 2), stash)


def _change_follows(edits: Edits, edit: Edit, rule: Any) -> None:
    """Proves that `change_read_count` changes only the read count of its copy, by the rule, and returns the result."""
    # the first loop finds the copy of a cached entry `e`, the second one a copy of a group of orphaned copies
    holder = edit.path.names["group" if "group" in edit.path.names else "e"]
    before, after, at = queue_of({"s": edits.s}), queue_of({"s": edit.after}), z3.Int("any0")
    ruled = rule(_count_of(holder))
    _writes(edits, edit, holder, ruled)

    def written(i: Any) -> Any:
        was, now = before.at(i), after.at(i)
        changed = z3.And(equal(was, holder), equal(_count_of(now), ruled)) if holder is not None else False
        return z3.Implies(live_at(after, i), z3.Or(equal(_count_of(was), _count_of(now)), as_term(changed)))

    if "group" in edit.path.names:
        orphaned_copies = edit.after.fields["orphaned_copies"]
        edits.follows(
            edit,
            "the count of orphaned copies",
            lambda: equal(_count_of(orphaned_copies.at(orphaned_copies.length - 1)), ruled),
            [],
        )
        edits.proof.need("a change of orphaned copies leaves the queue unchanged", after is before)
    else:
        edits.follows(edit, "the counts of all entries", written, [at])


def _passes_keep_counts(proof: Proof) -> None:
    """Proves that an entry that a pass requeues or removes keeps its read count and its copies."""
    for predicate in PREDICATES:
        it = Pass(predicate, proof=proof)
        queue, gone, head = it.head["queue"], it.head["gone"], it.head["head"]
        held = queue.at(head).value.fields
        for path in it.loop.iteration(it.head, [head >= 0]):
            queue_after, gone_after = path.names["queue"], path.names["gone"]
            requeued, removed = queue_after.at(queue.length).value.fields, gone_after.at(gone.length).fields
            for what, kept, is_added in (
                ("requeued", requeued, queue_after.length > queue.length),
                ("removed", removed, gone_after.length > gone.length),
            ):
                same = z3.And(
                    equal(kept["expected_reads"], held["expected_reads"]), equal(kept["copies"], held["copies"])
                )
                proof.show(f"the read count of an entry that is {what}", z3.Implies(is_added, same), path.when)


def _removal_keeps_counts(proof: Proof) -> None:
    """Proves that the copies of a removed entry keep its read count, which `removal_marks_read` decrements by one."""
    edits = Edits()
    loop = Reader(edits.given, stubs={model.add_orphaned_copies: add_orphaned_copies}).loop(model.account_for_removed)
    gone, orphaned_copies = Seq.unknown(Entry, "gone"), Seq.unknown(OrphanedCopies, "orphaned_copies")
    numbers = {"entries": z3.Int("entries"), "freed": z3.Int("freed"), INDEX: z3.Int("at")}
    sizes = Seq.unknown(int, "sizes")
    names = {
        "cfg": edits.cfg,
        "s": edits.s,
        "gone": gone,
        "sizes": sizes,
        "orphaned_copies": orphaned_copies,
        ITERATED: gone,
        **numbers,
    }
    e = gone.at(numbers[INDEX])
    inside = [numbers[INDEX] >= 0, e.fields["cache"] >= 0, e.fields["cache"] < sizes.length]
    counts = edits.cfg.fields["removal_marks_read"]
    for path in loop.iteration(names, inside):
        more = path.names["orphaned_copies"]
        count = _count_of(more.at(orphaned_copies.length))
        kept = z3.And(
            z3.Implies(z3.Not(counts), equal(count, _count_of(e))),
            z3.Implies(counts, equal(count, _lowered(_count_of(e)))),
        )
        adds = more.length > orphaned_copies.length
        proof.show("the read count of copies of a removed entry", z3.Implies(adds, kept), path.when)


class Cell:
    """The history of one read count: the initial value, and the numbers of replays and of decrements."""

    def __init__(self, first: int | None) -> None:
        self.first, self.replays, self.releases = first, 0, 0

    def value(self) -> int | None:
        """Returns the read count by the claim."""
        return None if self.first is None else self.first + self.replays - self.releases


def _conserved_in(proof: Proof, history: Any) -> None:
    """Checks after each step of a trace that every read count equals the value of its cell."""
    cells: dict[Any, Cell] = {}  # by cache and position of an entry, and by the number of a copy
    for cfg, before, name, arguments, after, outcome in history:
        _update_cells(cells, cfg, before, name, arguments, outcome)
        held = {(e.cache, e.position): e.expected_reads for e in after.queue if e is not None}
        held |= {c: e.expected_reads for e in (*after.queue, *after.orphaned_copies) if e is not None for c in e.copies}
        cells = {key: cell for key, cell in cells.items() if key in held}
        wrong = [key for key, count in held.items() if key not in cells or cells[key].value() != count]
        proof.run(f"{name}{arguments} of {wrong}", not wrong, before)


def _update_cells(cells: dict[Any, Cell], cfg: Config, before: State, name: str, arguments: Any, outcome: Any) -> None:
    """Updates the cells for a step."""
    if name == "put_mismatched" and arguments[1] == arguments[2]:
        name, arguments = "put", (*arguments[:2], *arguments[3:])
    if name == "put" and (outcome or cfg.duplicate_put == "latest_handler"):
        expected = arguments[3]
        cells[arguments[0], arguments[1]] = Cell(expected if cfg.counts_reads and expected > 0 else None)
    if name in ("get", "get_range") and outcome:
        for hit in (outcome,) if name == "get" else outcome:
            if hit.copy is not None:
                cells[hit.copy] = cells[arguments[0], hit.position]
    if name == "mark_read" and outcome is not None:
        cells[arguments[0], arguments[1]].releases += 1
    if name in ("release", "replay") and arguments[0] in cells:
        cell = cells[arguments[0]]
        cell.replays += name == "replay"
        cell.releases += name == "release" and (arguments[1] or cfg.undelivered_release_marks_read)
