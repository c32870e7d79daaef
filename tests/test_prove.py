"""Claims: each one holds, its control is refuted by the statement that it names, and weakened proofs are noticed.

Each claim is a test of its own, run as the command runs it. One quick claim about each component is tried on every
change, all claims nightly. The symbolic library is tested in `test_terms.py` and `test_reading.py`.
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

import msgspec
import pytest
import z3  # type: ignore[import-untyped]

from fuzz.commands.prove import LedgerRow, ProveResult
from fuzz.ledger import claims_implying, ledger_row
from fuzz.prove import LIMIT, ask, changed, claims_about, holds, row_of, sampled, statement_to_refute
from fuzz.run.lockstep import Lockstep
from fuzz.seeding import seed_source
from fuzz.subject import find_subject, subject_names
from fuzz.target import Target
from invariants.proofs import scrutiny
from invariants.proofs.claim import Claim, Control, Proof, answer, recorded
from invariants.proofs.symbolic import Reader
from model.machine import BadValue
from tests.conftest import ROOT

MODEL, IMPL, WATERMARK = "model.range_cache", "impl.range_cache", "model.watermark"

#: What each claim assumes; `UPDATE_ASSUMPTIONS=1 pytest -n0 tests/test_prove.py` rewrites them.
ASSUMPTIONS = ROOT / "invariants" / "proofs" / "assumptions"

#: Claims that take several seconds on an idle machine.
SLOW = frozenset(
    [
        "entry-is-deleted-with-its-last-message",
        "individual-acks-commute",
        "total-equals-sizes-and-pending-changes",
        "eviction-is-in-progress-for-one-task",
        "total-equals-sum-of-cache-sizes",
        "triggered-eviction-starts-or-frees-bytes",
        "read-to-join-agrees",
        "size-accounting",
        "passes-report-what-left",
        "queue-times-never-decrease",
        "read-counts-are-conserved",
        "size-pass-visit-bound",
        "watermark-share-is-within",
        "over-the-trigger-there-is-something-to-evict",
        "eviction-aims-at-the-watermark",
        "a-full-cache-is-over-the-trigger",
        "time-pass-over-one-entry-agrees",
        "size-pass-over-two-entries-agrees",
        "pages-agree",
        "linked-list-move-keeps-counts",
        "counts-agree",
        "bucket-time-is-early-by-less-than-its-length",
        "nack-agrees-with-implementation",
        "multiplier-backoff-is-monotone",
        "topic-has-one-accepted-writer",
        "fenced-handle-never-stores",
        "permits-are-conserved",
    ]
)

CLAIMS = [(name, claim) for name in subject_names() for claim in claims_about(name)]
QUICK = {claim.id for name in subject_names() for claim in [c for c in claims_about(name) if c.id not in SLOW][:1]}


# ---- the claims -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "claim"),
    [pytest.param(*pair, id=pair[1].id, marks=[pytest.mark.nightly] * (pair[1].id not in QUICK)) for pair in CLAIMS],
)
def test_a_claim_holds_and_its_control_is_refuted(subject: str, claim: Claim) -> None:
    row = row_of(subject, claim)
    expected = {"proved"} if claim.tool == "z3" else {"confirmed_over_all_paths", "no_counterexample"}
    assert row["verdict"] in expected, row["detail"]
    # CrossHair tries every path of its claims, except of this one
    assert row["verdict"] != "no_counterexample" or claim.id == "pages-agree"
    assert row["control_refuted"], row["control_detail"]
    assert row["control_detail"], "a refutation shows its counterexample"
    if claim.tool == "crosshair":
        assert row["paths"] >= 2
    else:
        assert row["steps"] >= 1
        assert row["compared"] >= 100
    assert row["seconds"] < LIMIT
    assert_listed(subject, claim, row["assumes"])


def shape(assumption: str) -> str:
    """Returns an assumption without its names, so that a renaming changes nothing."""
    if "digest" in assumption:
        return assumption
    return re.sub(r"(?!(?:And|Or|Not|Implies|If|True|False)\b)[A-Za-z_][\w.#' ]*(?<! )", "_", assumption)


def assert_listed(subject: str, claim: Claim, assumes: list[str]) -> None:
    """Asserts that a claim has the listed assumptions: who changes an assumption must change the list, too."""
    lists = listed_assumptions(subject)
    if os.environ.get("UPDATE_ASSUMPTIONS"):
        lists = {c.id: lists.get(c.id, []) for c in claims_about(subject)} | {claim.id: assumes}
        text = "\n\n".join("\n".join([f"[{name}]", *lines]) for name, lines in lists.items())
        (ASSUMPTIONS / f"{subject}.txt").write_text(f"{text}\n")
    assert sorted(map(shape, lists[claim.id])) == sorted(map(shape, assumes)), assumes


def listed_assumptions(subject: str) -> dict[str, list[str]]:
    """Returns the listed assumptions of the claims about a component."""
    path = ASSUMPTIONS / f"{subject}.txt"
    parts = path.read_text().strip().split("\n\n") if path.exists() else []
    return {head[1:-1]: lines for head, *lines in map(str.splitlines, parts)}


@pytest.mark.parametrize("subject", [name for name in subject_names() if claims_about(name)])
def test_claims_are_sentences_and_controls_apply(subject: str) -> None:
    claims = claims_about(subject)
    assert list(listed_assumptions(subject)) == [c.id for c in claims], "UPDATE_ASSUMPTIONS=1 lists assumptions"
    assert len({c.id for c in claims}) == len(claims)
    assert any(c.id not in SLOW for c in claims), "every component keeps quick claims"
    for c in claims:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", c.id)
        assert c.says.endswith(".")
        assert c.source
        assert c.control.about
        assert statement_to_refute(c), "a control names the statement that it refutes"
        assert c.control.replace in changed(c.id, c.control)


# ---- weakened proofs --------------------------------------------------------------------------------------


def half(n: int) -> int:
    return n // 2 if n > 3 else n - 1


def weakened(*statements: str) -> str | None:
    """Returns the objection to a proof about `half` that consists of these statements; None if there is none.

    A statement is the name of a goal and, if it needs more than n > 0, the name of its premises.
    """

    def check() -> Any:
        n, proof = z3.Int("n"), Proof()
        given = {"": [n > 0], "narrow": [n > 0, z3.Bool("s.open")], "impossible": [n > 0, n < 0]}
        for each in statements:
            about, _, premises = each.partition(" ")
            for path in Reader(given[premises]).paths(half, n):
                goals = {"less": path.value < n, "tautology": z3.Or(path.value < n, path.value >= n), "assumed": n > 0}
                proof.show(each, goals[about], path.when)
        proof.lemma("a lemma", z3.Or(n > 1, n < 1), [n != 1])
        return proof.answer()

    with recorded() as proofs:
        said = answer(check)
    if said.verdict != "proved":
        return said.detail
    samples = [scrutiny.Sample(Rules(), State(open=False))]  # so the premise `s.open` excludes every reachable state
    return scrutiny.objection(check, proofs, samples)


class Rules(NamedTuple):
    """No settings."""


class State(NamedTuple):
    """A state of which one field is known."""

    open: bool


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("tautology", "the statement holds of any program"),
        ("assumed", "the statement holds of any program"),
        ("less impossible", "the source cannot be read: no path through half is feasible"),
        ("less narrow", "no reachable state meets the premises"),
    ],
)
def test_a_weakened_statement_is_noticed(statement: str, said: str) -> None:
    assert weakened("less") is None
    found = weakened("less", statement)
    assert found is not None
    assert found.startswith(said)


def test_a_narrowed_premise_changes_the_list_and_another_name_does_not() -> None:
    def listed(name: str, most: int) -> list[str]:
        n, sizes = z3.FreshInt(name), z3.Array(f"{name}s", z3.IntSort(), z3.IntSort())
        small, large = n < most, z3.And(*[z3.Select(sizes, n + k) <= most for k in range(40)])
        with recorded() as proofs:
            Proof().show("anything", n < 100, [small, large])
        return scrutiny.listed(proofs)

    texts = listed("n", 7)
    assert texts[0] == "n! < 7"
    assert texts[1].startswith("longer: 1, digest ")
    assert len(texts) == 2
    assert listed("n", 7) == texts
    assert listed("m", 7) == ["m! < 7", texts[1]]
    assert not set(listed("n", 6)) & set(texts)


def test_premises_that_exclude_each_other_are_noticed() -> None:
    n = z3.Int("n")
    with recorded() as proofs:
        Proof().show("anything", n == 7, [n > 0, n < 0])
    assert scrutiny.objection(Proof().answer, proofs, []) == "the premises are impossible where anything"


def test_a_lemma_needs_its_premises() -> None:
    n = z3.Int("n")
    for goal, given in ((z3.Or(n > 0, n <= 0), [n > 0]), (n > 0, [n > 0])):
        with recorded() as proofs:
            Proof().lemma("some", goal, given)
        assert scrutiny.objection(Proof().answer, proofs, []) == "the lemma needs no premises: some"


def test_a_control_that_fails_for_another_reason_does_not_count() -> None:
    [claim, *_] = [c for c in claims_about("legacy_cache") if c.tool == "z3"]
    other = claim._replace(control=claim.control._replace(refutes="another statement"))
    row = row_of("legacy_cache", other)
    assert not row["control_refuted"]
    assert "not by 'another statement'" in row["control_detail"]


def test_sampled_states_are_always_the_same() -> None:
    samples = sampled("legacy_cache")
    assert samples == sampled("legacy_cache")
    assert len({sample.state for sample in samples}) > 5


# ---- seeded bugs ------------------------------------------------------------------------------------------


class Seeded(NamedTuple):
    """A bug that is not the claim's own control."""

    claim: str
    module: str
    find: str
    replace: str
    subject: str = "range_cache"


SEEDED = {
    "ack sets overlap where either acknowledges": Seeded(
        "overlap-is-exact-and-symmetric",
        "model.ack_set",
        "return ~(one | other) & bits_below(size)",
        "return ~(one & other) & bits_below(size)",
        "ack_set",
    ),
    "a count includes the cursors after the cursor": Seeded(
        "count-includes-own-cursor-and-those-before",
        "model.active_cursors.machine",
        "if p <= own",
        "if p >= own",
        "active_cursors",
    ),
    "the grace period runs from the start": Seeded(
        "grace-period-is-exclusive",
        "model.active_cursors.machine",
        "cfg.grace_ms > 0 and s.now_ms - s.last_removal_ms < cfg.grace_ms",
        "cfg.grace_ms > 0 and s.now_ms < cfg.grace_ms",
        "active_cursors",
    ),
    "an ack set restores messages": Seeded(
        "entry-is-deleted-with-its-last-message",
        "model.batch_acks.state",
        "    remaining = given & stored\n",
        "    remaining = given | stored\n",
        "batch_acks",
    ),
    "a handle that is closed can write": Seeded(
        "topic-has-one-accepted-writer",
        "model.bundle_transfer.topics",
        "return o._replace(phase=phase, writable=False, adds=())",
        "return o._replace(phase=phase, writable=True, adds=())",
        "bundle_transfer",
    ),
    "the next message gets the same sequence id": Seeded(
        "pending-sequence-ids-ascend",
        "model.client_session.producer",
        "p._replace(next_sequence_id=sequence + 1, pending=",
        "p._replace(next_sequence_id=sequence, pending=",
        "client_session",
    ),
    "an entry that is put back is not released": Seeded(
        "entry-put-back-for-replay-keeps-its-count",
        "model.managed_ledger.dispatcher",
        "    s = released(cfg, s, entry)\n    return with_subscription(s, subscription, added_to_replay",
        "    return with_subscription(s, subscription, added_to_replay",
        "managed_ledger",
    ),
    "a removal counts one byte more": Seeded(
        "removal-counts-what-it-removes",
        "model.cache_steps.machine",
        "removed += bytes_of(cfg, r.key)",
        "removed += bytes_of(cfg, r.key) + 1",
        "cache_steps",
    ),
    "a request of the maximum needs one byte more": Seeded(
        "idle-limiter-grants-every-request",
        "model.entry_cache.reads_limiter",
        "return free >= permits or (",
        "return free > permits or (",
        "entry_cache",
    ),
    "a legacy size pass counts the last entry only": Seeded(
        "legacy-size-pass-takes-what-it-needs",
        "model.legacy_cache",
        "        freed += e.bytes",
        "        freed = e.bytes",
        "legacy_cache",
    ),
    "the minimum delay adds to a backoff": Seeded(
        "nack-delay-is-monotone-and-bounded",
        "model.negative_acks.machine",
        'return minimum if 0 <= delay < minimum and cfg.min_delay_applies_to == "all" else delay',
        'return delay + minimum if 0 <= delay < minimum and cfg.min_delay_applies_to == "all" else delay',
        "negative_acks",
    ),
    "a version follows itself": Seeded(
        "each-version-is-accepted-once",
        "model.ownership_channel.records",
        "old == MAX_VERSION else old + 1)",
        "old == MAX_VERSION else old)",
        "ownership_channel",
    ),
    "one log entry too many is deleted": Seeded(
        "deleted-log-prefix-is-acknowledged",
        "model.pending_acks.log_index",
        "index.keys[removed - 1].log_position + 1",
        "index.keys[removed - 1].log_position + 2",
        "pending_acks",
    ),
    "the bit of the next record is cleared": Seeded(
        "ack-set-deletes-exactly-one-record",
        "model.txn_log.state",
        "words_of(bits_below(size) & ~(1 << batch_index))",
        "words_of(bits_below(size) & ~(1 << (batch_index + 1)))",
        "txn_log",
    ),
    "callbacks of a plain entry have the next position": Seeded(
        "callback-has-batch-index",
        "model.txn_writer.machine",
        "position, batch_size = Position(s.ledger, s.next_entry), len(write.records)",
        "position, batch_size = Position(s.ledger, s.next_entry + 1), len(write.records)",
        "txn_writer",
    ),
    "a put leaves the size": Seeded("size-accounting", MODEL, "(s.sizes[cache] + bytes,)", "(s.sizes[cache],)"),
    "a put takes the time of the start": Seeded(
        "queue-times-never-decrease", MODEL, "count, (), s.now_ns, requeue", "count, (), 0, requeue"
    ),
    "a clear sets the clock back before it removes": Seeded(
        "queue-times-never-decrease",
        MODEL,
        "return remove_entries(cfg, s, [e for e in s.queue + s.stash if",
        "return remove_entries(cfg, s._replace(now_ns=0), [e for e in s.queue + s.stash if",
    ),
    "a requeued entry leaves, too": Seeded(
        "passes-report-what-left",
        MODEL,
        '        if result == "REQUEUE":\n',
        '        if result == "REQUEUE":\n            gone.append(e)\n',
    ),
    "expiry is asked of the next threshold": Seeded(
        "time-pass-removes-nothing-younger",
        MODEL,
        'is_expired(e.timestamp_ns, threshold_ns):\n        return "STOP"',
        'is_expired(e.timestamp_ns, threshold_ns + 1):\n        return "STOP"',
    ),
    "an undelivered copy counts": Seeded(
        "read-counts-are-conserved", MODEL, "marked_read if is_counted else unchanged,", "marked_read,"
    ),
    "access does not extend": Seeded(
        "due-entries-are-not-removed", MODEL, "(s.extend_ttl_of_recently_accessed and e.accessed) or (", "False or ("
    ),
    "the trigger is lower than the watermark may be": Seeded(
        "over-the-trigger-there-is-something-to-evict", WATERMARK, "TRIGGER_SHARE = 0.98", "TRIGGER_SHARE = 0.5"
    ),
    "the implementation raises by two": Seeded("counters-agree", IMPL, "self.expected += 1", "self.expected += 2"),
}


def test_seeded_bugs_apply() -> None:
    for bug, (claim, module, find, replace, _) in SEEDED.items():
        assert changed(claim, Control(bug, module, find, replace))


@pytest.mark.nightly
@pytest.mark.parametrize("bug", SEEDED)
def test_a_seeded_bug_refutes_the_claim(bug: str) -> None:
    claim, module, find, replace, subject = SEEDED[bug]
    [own] = [each.control for each in claims_about(subject) if each.id == claim]
    assert (module, replace) != (own.module, own.replace)
    said = ask(subject, claim, Control(bug, module, find, replace))
    assert said.verdict == "refuted", said
    assert said.detail


def test_every_component_with_claims_has_a_seeded_bug() -> None:
    assert {each.subject for each in SEEDED.values()} == {name for name, _ in CLAIMS}


# ---- changed source ---------------------------------------------------------------------------------


def test_a_change_that_breaks_nothing_refutes_nothing() -> None:
    same = Control("turned round", MODEL, "return timestamp_ns < threshold_ns", "return threshold_ns > timestamp_ns")
    assert ask("range_cache", "time-pass-removes-nothing-younger", same).verdict == "proved"


def test_unsupported_source_leaves_the_claim_unknown() -> None:
    clever = Control(
        "clever", MODEL, "return timestamp_ns < threshold_ns", "return sorted([timestamp_ns])[0] < threshold_ns"
    )
    said = ask("range_cache", "time-pass-removes-nothing-younger", clever)
    assert said.verdict == "unknown"
    assert "the source cannot be read" in said.detail
    assert "sorted" in said.detail


def test_change_that_does_not_apply_is_reported() -> None:
    with pytest.raises(BadValue, match="control of size-accounting no longer applies: its text occurs 0 times"):
        ask("range_cache", "size-accounting", Control("nothing", MODEL, "no such text", ""))


def test_a_check_that_takes_too_long_is_stopped() -> None:
    said = ask("range_cache", "size-accounting", limit=0.01)
    assert (said.verdict, said.detail) == ("unknown", "no answer within 0.01 s")


def test_the_command_says_what_there_is_to_ask(brokerproof: Any) -> None:
    ran = brokerproof("prove", "nope")
    assert ran.code == 2
    assert "there is no subject nope" in ran.err
    bare = next(name for name in subject_names() if not claims_about(name))
    ran = brokerproof("prove", bare)
    assert ran.code == 2
    others = ", ".join(name for name in subject_names() if claims_about(name))
    assert f"there are no claims about {bare}; there are claims about {others}" in ran.err
    assert "legacy_cache, managed_ledger, negative_acks" in others


def test_the_command_shows_a_person_what_was_shown(brokerproof: Any) -> None:
    ran = brokerproof("prove", "legacy_cache")
    assert ran.code == 0, ran.err
    assert "legacy-shares-are-within  proved by Z3" in ran.out
    assert "control" not in ran.out
    assert ran.err == ""


# ---- the ledger -------------------------------------------------------------------------------------------

PROVING = [(name, claim, each) for name, claim in CLAIMS for each in claim.proves]


@pytest.mark.parametrize(("subject", "claim", "name"), [pytest.param(*row, id=row[2]) for row in PROVING])
def test_the_control_of_a_claim_violates_the_property_that_the_claim_proves(
    subject: str, claim: Claim, name: str
) -> None:
    [proved] = [each for each in find_subject(subject).properties if each.name == name]
    assert proved.kind == "always"
    assert proved.given(find_subject(subject).machine.config())
    control = claim.control
    broken = seed_source(subject, control.module, changed(claim.id, control))
    lockstep = Lockstep(Target(broken, broken.machine.config(), model_only=True))
    lockstep.check_only(name)
    findings = (finding for finding in map(lockstep.run, range(600)) if finding is not None)
    assert any(each.broken_property == name for each in findings), "the property does not say what the claim says"


def test_the_ledger_has_the_strongest_verdict_on_each_property() -> None:
    subject = find_subject("active_cursors")
    proved, counted, of_list = (
        next(each for each in subject.properties if each.name == name)
        for name in (
            "slowest_position_is_smallest_tracked_position",
            "expected_read_count_equals_cursors_at_or_before",
            "flush_is_not_observable",
        )
    )
    [claim] = claims_implying(subject, proved)
    checked = {"id": claim.id, "verdict": "proved", "control_refuted": True, "seconds": 1.0}
    rows = [
        ledger_row(subject, proved, [checked]),
        ledger_row(subject, proved, [{**checked, "control_refuted": False}]),
        ledger_row(subject, counted, []),
        ledger_row(subject, of_list, []),
        ledger_row(subject, proved, [{**checked, "verdict": "no_counterexample"}]),
    ]
    assert [row["status"] for row in rows] == ["proved", "exhausted", "exhausted", "sampled", "exhausted"]
    assert [row["control_refuted"] for row in rows] == [True, False, None, None, True]
    assert rows.pop()["how"].endswith(f"; claim {claim.id}: no_counterexample")
    assert rows[1]["lemmas"] == [claim.id]
    assert rows[1]["how"] == f"177,147 states, the whole of scope nightly; claim {claim.id}: its control is not refuted"
    assert rows[2]["scopes"] == ["smoke", "ci", "nightly", "lazy"]
    assert rows[3]["how"] == "random traces: it does not apply under the reference's defaults"
    result = ProveResult(claims=[], ledger=[msgspec.convert(row, LedgerRow) for row in rows])
    assert result.found, "the second row: a claim does not hold"
    assert not ProveResult(claims=[], ledger=result.ledger[:1]).found


def test_a_canary_has_no_ledger(brokerproof: Any) -> None:
    ran = brokerproof("prove", "--ledger", "canary")
    assert (ran.code, ran.out) == (2, "")
    assert "canary violates a property on purpose" in ran.err


@pytest.mark.nightly
def test_the_command_shows_the_ledger(brokerproof: Any) -> None:
    ledger = brokerproof("prove", "--ledger", "ack_set", "--json").json["ledger"]
    statuses = {row["property"]: row["status"] for row in ledger}
    assert statuses["overlap_iff_message_acknowledged_in_both"] == "proved"
    assert set(statuses) == {each.name for each in find_subject("ack_set").properties if each.kind == "always"}


# ---- verdicts ---------------------------------------------------------------------------------------------


def test_a_proof_is_what_was_shown_and_what_ran() -> None:
    x = z3.Int("x")
    proof = Proof()
    proof.show("a square", x * x >= 0)
    proof.run("two", True)
    proof.compare("three", 3, 3)
    # verdict, detail, paths (of CrossHair), steps of the proof, comparisons with runs
    assert proof.answer()[:5] == ("proved", "", None, 1, 2)


def test_a_step_that_fails_is_a_refutation_only_with_a_counterexample() -> None:
    x = z3.Int("x")
    direct, open_, run = Proof(), Proof(), Proof()
    assert not direct.show("positive", x > 0, [x > -1], direct=True)
    assert direct.answer().verdict == "refuted"
    assert direct.answer().detail == "positive: x = 0"
    assert not open_.show("positive", x > 0, [x > -1])
    assert open_.answer().verdict == "unknown"
    run.show("positive", x > 0, [x > -1])
    run.run("x", False, "a long example")
    run.run("x", False, "short")
    assert run.answer().verdict == "refuted"
    assert run.answer().detail.startswith("x: short; not shown: positive: ")


def test_terms_that_are_not_the_program_prove_nothing() -> None:
    differs, vacuous = Proof(), Proof()
    differs.show("nothing", True)
    differs.compare("f(1)", 1, 2)
    assert differs.answer().verdict == "unknown"
    assert "the terms are not the program" in differs.answer().detail
    vacuous.show("nothing", True)
    vacuous.run("f(1)", False)
    assert vacuous.answer().verdict == "unknown", "every step was shown, but a run contradicts the claim"
    x = z3.Int("x")
    impossible = Proof()
    impossible.possible("numbers", [x > 0])
    assert impossible.answer().verdict == "proved"
    impossible.possible("numbers above and below", [x > 0, x < 0])
    assert impossible.answer().detail == "there is no example of numbers above and below"
    assert not holds({"verdict": "unknown", "control_refuted": True})
    assert not holds({"verdict": "proved", "control_refuted": False})
