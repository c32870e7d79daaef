"""What solvers are asked: every claim stands, and every control falls.

The claims' checks run as the command runs them, once for all tests. The reader of sources is in `test_terms.py` and `test_reading.py`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any, NamedTuple

import jsonschema
import pytest
import z3  # type: ignore[import-untyped]

from fuzz.commands import schema_of
from fuzz.platform.json import from_json
from fuzz.prove import LIMIT, ask, changed, claims_about, holds
from fuzz.subject import subject_names
from invariants.proofs.claim import Control, Proof
from model.machine import BadValue
from tests.conftest import ROOT

MODEL, IMPL, WATERMARK = "model.range_cache", "impl.range_cache", "model.watermark"

EXPECTED = {
    "legacy-size-pass-takes-what-it-needs": "proved",
    "legacy-shares-are-within": "proved",
    "size-accounting": "proved",
    "passes-report-what-left": "proved",
    "queue-times-never-decrease": "proved",
    "time-pass-removes-nothing-younger": "proved",
    "time-pass-leaves-nothing-older": "proved",
    "time-pass-visits-a-slot-once": "proved",
    "size-pass-reaches-its-goal": "proved",
    "size-pass-takes-one-entry-too-much-at-most": "proved",
    "size-pass-visit-bound": "proved",
    "due-entries-are-not-removed": "proved",
    "detached-slots-are-drained": "proved",
    "read-counts-are-conserved": "proved",
    "watermark-share-is-within": "proved",
    "over-the-trigger-there-is-something-to-evict": "proved",
    "eviction-aims-at-the-watermark": "proved",
    "a-full-cache-is-over-the-trigger": "proved",
    "counters-keep-to-their-rule": "confirmed_over_all_paths",
    "requeues-keep-to-their-rule": "confirmed_over_all_paths",
    "counters-agree": "confirmed_over_all_paths",
    "should-requeue-agrees": "confirmed_over_all_paths",
    "first-put-agrees": "confirmed_over_all_paths",
    "time-pass-over-one-entry-agrees": "confirmed_over_all_paths",
    "size-pass-over-two-entries-agrees": "confirmed_over_all_paths",
    "pages-keep-the-order": "confirmed_over_all_paths",
    "pages-agree": "no_counterexample",
    "the-total-is-the-sum-of-sizes": "proved",
    "a-triggered-eviction-frees-something": "proved",
    "at-most-one-eviction-task-waits": "proved",
    "permits-fitting-is-monotone": "proved",
    "permits-idle-fits-everything": "proved",
    "permits-overdue-is-expired": "proved",
    "permits-are-conserved": "proved",
    "permits-are-handed-on-in-turn": "proved",
    "a-joined-range-is-covered-once": "proved",
    "a-read-to-join-is-a-fit-one": "confirmed_over_all_paths",
    "an-answer-is-taken-as-far-as-it-was-asked-for": "proved",
    "the-read-to-join-agrees": "confirmed_over_all_paths",
    "complete-parts-agree": "confirmed_over_all_paths",
    "permit-requests-agree": "confirmed_over_all_paths",
    "permits-handed-on-agree": "confirmed_over_all_paths",
    "a-rank-counts-oneself-and-the-others": "proved",
    "ranks-follow-positions": "proved",
    "a-move-changes-another-rank-by-one-at-most": "proved",
    "the-slowest-is-the-minimum": "proved",
    "the-grace-period-is-strict": "proved",
    "a-removal-keeps-the-heap": "proved",
    "additions-and-moves-keep-the-heap": "proved",
    "the-first-of-a-heap-is-the-slowest": "proved",
    "a-move-in-the-list-keeps-its-counts": "confirmed_over_all_paths",
    "moves-in-the-shipped-list-agree": "confirmed_over_all_paths",
    "ranks-agree": "confirmed_over_all_paths",
    "what-threads-owe-is-in-the-total": "proved",
    "a-removal-counts-what-it-clears": "proved",
    "one-task-has-the-marker": "proved",
    "a-slot-is-less-than-its-length-early": "proved",
    "a-slot-is-due-when-the-timer-wakes": "proved",
    "the-timer-is-never-later-than-the-first-slot": "proved",
    "a-multiplied-backoff-never-decreases": "proved",
    "delays-keep-to-their-bounds": "proved",
    "repeated-nack-follows-its-rule": "confirmed_over_all_paths",
    "slots-and-wake-ups-agree": "confirmed_over_all_paths",
    "an-entry-is-deleted-when-nothing-of-it-is-left": "proved",
    "individual-acks-commute": "proved",
    "a-cumulative-ack-brings-nothing-back": "proved",
    "the-mark-moves-over-deleted-entries-only": "proved",
    "a-record-keeps-to-its-caps": "proved",
    "a-recovery-invents-nothing": "proved",
    "overlap-is-exact-and-symmetric": "proved",
    "a-conjunction-leaves-what-both-leave": "proved",
    "positions-with-sets-are-in-one-order": "proved",
    "an-ack-set-deletes-one-record": "proved",
    "an-entry-goes-with-its-last-record": "proved",
    "a-record-cut-by-its-caps-keeps-the-order": "proved",
    "a-record-is-known-by-its-index-in-its-batch": "proved",
    "an-end-deletes-all-records-of-its-transaction": "proved",
    "no-ended-transaction-returns": "proved",
    "transactions-go-where-they-may": "proved",
    "the-watermark-is-below-all-that-live": "proved",
    "the-watermark-of-an-empty-store-is-below-all-to-come": "confirmed_over_all_paths",
    "no-id-is-given-twice": "proved",
    "keys-of-the-index-are-in-order": "proved",
    "what-is-trimmed-is-acknowledged": "proved",
    "an-overlap-of-pending-acks-is-a-common-message": "proved",
    "who-is-let-through-takes-what-nobody-has": "proved",
    "an-acknowledgement-adds-its-messages-and-no-others": "proved",
    "an-end-frees-exactly-what-its-transaction-held": "proved",
    "a-batch-is-less-than-two-limits": "proved",
    "records-are-counted-before-bytes": "proved",
    "each-record-is-told-its-place-in-its-batch": "proved",
    "what-makes-a-batch-be-written-agrees": "confirmed_over_all_paths",
}


# ---- the claims -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def proved(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Any]:
    """Exit code and JSON of `brokerproof prove`, run once."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", "prove", "--json"],
        cwd=tmp_path_factory.mktemp("prove"),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.count("\n") == 1, done.stderr
    return done.returncode, from_json(done.stdout)


def test_the_json_keeps_to_its_schema(proved: tuple[int, Any]) -> None:
    schema = schema_of("prove")
    jsonschema.Draft202012Validator(schema).validate(proved[1])


def test_every_claim_has_its_verdict(proved: tuple[int, Any]) -> None:
    code, data = proved
    rows = {row["id"]: row for row in data["claims"]}
    details = {name: row["detail"] for name, row in rows.items() if row["detail"]}
    assert {name: row["verdict"] for name, row in rows.items()} == EXPECTED, details
    assert code == 0


def test_every_control_is_refuted(proved: tuple[int, Any]) -> None:
    not_refuted = {r["id"]: r["control_detail"] for r in proved[1]["claims"] if not r["control_refuted"]}
    assert not_refuted == {}
    assert all(row["control_detail"] for row in proved[1]["claims"]), "a refutation shows its counterexample"


def test_every_claim_did_something(proved: tuple[int, Any]) -> None:
    for row in proved[1]["claims"]:
        if row["tool"] == "crosshair":
            assert row["paths"] >= 2, row["id"]
        else:
            assert row["steps"] >= 1, row["id"]
            assert row["compared"] >= 100, row["id"]
        assert row["seconds"] < LIMIT / 2, row["id"]


@pytest.mark.parametrize("subject", [name for name in subject_names() if claims_about(name)])
def test_claims_are_sentences_and_controls_apply(subject: str) -> None:
    claims = claims_about(subject)
    assert len({c.id for c in claims}) == len(claims)
    for c in claims:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", c.id)
        assert c.says.endswith(".")
        assert c.source
        assert c.control.about
        assert c.control.replace in changed(c.id, c.control)


# ---- seeded bugs -----------------------------------------------------------------------------------------


class Planted(NamedTuple):
    """A bug that is not the claim's own control."""

    claim: str
    module: str
    find: str
    replace: str


SEEDED = {
    "a put leaves the size": Planted("size-accounting", MODEL, "(s.sizes[cache] + bytes,)", "(s.sizes[cache],)"),
    "a put takes the time of the start": Planted(
        "queue-times-never-decrease", MODEL, "count, (), s.now_ns, 0,", "count, (), 0, 0,"
    ),
    "a requeued entry leaves, too": Planted(
        "passes-report-what-left",
        MODEL,
        '        if result == "REQUEUE":\n',
        '        if result == "REQUEUE":\n            gone.append(e)\n',
    ),
    "expiry is asked of the next threshold": Planted(
        "time-pass-removes-nothing-younger",
        MODEL,
        'is_expired(e.timestamp_ns, threshold_ns):\n        return "STOP"',
        'is_expired(e.timestamp_ns, threshold_ns + 1):\n        return "STOP"',
    ),
    "an undelivered copy counts": Planted(
        "read-counts-are-conserved", MODEL, "marked_read if counts else unchanged,", "marked_read,"
    ),
    "access does not extend": Planted(
        "due-entries-are-not-removed", MODEL, "(s.extend_ttl_of_recently_accessed and e.accessed) or (", "False or ("
    ),
    "the trigger is lower than the watermark may be": Planted(
        "over-the-trigger-there-is-something-to-evict", WATERMARK, "TRIGGER_SHARE = 0.98", "TRIGGER_SHARE = 0.5"
    ),
    "the implementation raises by two": Planted("counters-agree", IMPL, "self.expected += 1", "self.expected += 2"),
}


@pytest.mark.parametrize("bug", SEEDED)
def test_a_planted_bug_refutes_the_claim(bug: str) -> None:
    claim, module, find, replace = SEEDED[bug]
    said = ask("range_cache", claim, Control(bug, module, find, replace))
    assert said.verdict == "refuted", said
    assert said.detail


def test_a_change_that_breaks_nothing_refutes_nothing() -> None:
    same = Control("turned round", MODEL, "return timestamp_ns < threshold_ns", "return threshold_ns > timestamp_ns")
    assert ask("range_cache", "time-pass-removes-nothing-younger", same).verdict == "proved"


def test_source_that_is_not_understood_leaves_the_claim_open() -> None:
    clever = Control(
        "clever", MODEL, "return timestamp_ns < threshold_ns", "return sorted([timestamp_ns])[0] < threshold_ns"
    )
    said = ask("range_cache", "time-pass-removes-nothing-younger", clever)
    assert said.verdict == "unknown"
    assert "cannot be put into terms" in said.detail
    assert "sorted" in said.detail


def test_a_change_that_does_not_apply_is_said() -> None:
    with pytest.raises(BadValue, match="control of size-accounting no longer applies: its text stands 0 times"):
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
    assert f"nothing is claimed about {bare}; there are claims about {others}" in ran.err
    assert "legacy_cache, negative_acks" in others


def test_the_command_shows_a_person_what_was_shown(brokerproof: Any) -> None:
    ran = brokerproof("prove", "legacy_cache")
    assert ran.code == 0
    assert "legacy-shares-are-within  proved by Z3" in ran.out
    assert "control" not in ran.out
    assert ran.err == ""


# ---- verdicts ---------------------------------------------------------------------------------------------


def test_a_proof_is_what_was_shown_and_what_ran() -> None:
    x = z3.Int("x")
    proof = Proof()
    proof.show("a square", x * x >= 0)
    proof.run("two", True)
    proof.compare("three", 3, 3)
    assert proof.answer() == ("proved", "", None, 1, 2)


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
    assert vacuous.answer().verdict == "unknown", "a run breaks what every step was shown of"
    x = z3.Int("x")
    impossible = Proof()
    impossible.possible("numbers", [x > 0])
    assert impossible.answer().verdict == "proved"
    impossible.possible("numbers above and below", [x > 0, x < 0])
    assert impossible.answer().detail == "there is no example of numbers above and below"
    assert not holds({"verdict": "unknown", "control_refuted": True})
    assert not holds({"verdict": "proved", "control_refuted": False})
