"""TLC on the transaction log: bugs that are planted in the twin, and a commit that a restart loses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fuzz.explore.search import Bounded
from fuzz.subject import find_subject
from fuzz.tlc.manifest import read_manifest, space_of
from fuzz.tlc.module import camel
from fuzz.tlc.runs import MODULES, make_run
from tests.conftest import altered_twin

RUN = next(run for run in read_manifest(MODULES) if run.name == "txn_log_no_order")

#: Bugs in TxnLog.tla: the scope in which each breaks a promise, the promise, and what is replaced by what.
BUGS = [
    ("smoke", "EveryCallerIsToldOnce", 'Answers(s.buffer, "closed")', "<<>>"),
    ("smoke", "AcknowledgedMeansDurable", "Taken(joined, <<>>)", 'Taken(joined, <<AnswerTo(r, "done")>>)'),
    ("failures", "OnlyWhatIsWrittenIsInTheLog", "Head(s.in_flight)), Next)", "Last(s.in_flight)), Next)"),
    ("smoke", "DeletionsOnlyGrow", "!.stored = Snapshot(s)", "!.known = s.stored"),
    ("ids", "OnlyStoredDeletionsAreTrimmed", "SumTo(s.ledgers, j) <= s.stored", "SumTo(s.ledgers, j) <= s.known"),
    ("smoke", "WhenAllEndedAllIsDeletable", "Members(places), told", "Members(t.places), told"),
    ("smoke", "TheOrderHoldsInMemory", "Members(places), told", "{place}, told"),
    ("smoke", "TheOrderIsWhyNothingReturns", "THEN [txns |-> ts \\ mine", "THEN [txns |-> ts"),
    ("failures", "ReplayMakesNoIllegalMove", "t.status # Expected[r.to]", "FALSE"),
    ("smoke", "ASecondReplayChangesNothing", "/\\ ~metadata_keeps_sets", "/\\ TRUE"),
    ("times", "WhatIsRecoveredGoesOn", "r.start_ms + r.timeout_ms)", "s.now_ms + r.timeout_ms)"),
    ("times", "ADeadlineIsNeverEarly", "place, s.now_ms + r.timeout_ms)", "place, r.start_ms)"),
    ("times", "ADeadlineIsNeverEarly", "place, s.now_ms + r.timeout_ms)", "place, s.now_ms + r.timeout_ms + 1)"),
    ("failures", "AReplayIsCompleteOrFails", '!.status = "failed", !.read_next = 0', "!.ledger = @"),
    ("times", "ExactlyWhatIsLateExpires", "t.deadline_ms < u.deadline_ms", "t.id < u.id"),
    (
        "times",
        "ANewOneIsRefusedWhenEnoughLive",
        "Cardinality(s.txns) >= max_active",
        "Cardinality(s.txns) > max_active",
    ),
    ("ids", "IdsAreNeverUsedAgain", "!.last_id = RecoveredId(s)", "!.last_id = -1"),
    ("ids", "TheLogKnowsTheLastId", ", !.ledger_id = s.last_id]", "]"),
    (
        "smoke",
        "OnlyDurableRecordsChangeTheMap",
        "THEN Taken(s, <<AnswerTo",
        "THEN Taken([s EXCEPT !.txns = {}], <<AnswerTo",
    ),
    ("smoke", "RecoveredPositionsAreTheLiveOnes", "!.status = r.to, !.places = places", "!.status = r.to"),
    (
        "failures",
        "OnlyACompleteStoreServes",
        'IN IF s.status # "ready" \\/ OfId(id, s.txns) = {}',
        "IN IF OfId(id, s.txns) = {}",
    ),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("scope", "promise", "old", "new"), BUGS)
def test_a_bug_breaks_a_promise(scope: str, promise: str, old: str, new: str, tmp_path: Path) -> None:
    folder = altered_twin(tmp_path / "tla", "TxnLog", (old, new))
    run = RUN._replace(scope=scope, checks=(promise,), expected=f"violated {promise}")
    assert make_run(run, space_of(run), folder, tmp_path / "build").differences == []


def test_every_promise_is_broken_somewhere() -> None:
    """By a rule that is shipped, a missing assumption, or a bug."""
    runs = [run for run in read_manifest(MODULES) if run.module == "TxnLog"]
    broken = {run.expected.removeprefix("violated ") for run in runs} | {promise for _, promise, *_ in BUGS}
    promises = {camel(p.name) for p in find_subject("txn_log").properties if p.kind in ("always", "eventually")}
    assert promises <= broken


@pytest.mark.parametrize(
    ("rule", "expected"), [("goes_on", "violated RecoveryGivesWhatWasPromised"), ("reopens", "success")]
)
def test_an_acknowledged_commit_that_a_restart_loses(rule: str, expected: str, tmp_path: Path) -> None:
    """It needs one ledger more than the subject's scope of failures has: one that was lost, one after it, a third."""
    subject = find_subject("txn_log")
    failures = subject.scopes["failures"]
    scope = replace(
        failures,
        actions=(
            "new_transaction",
            "update_status",
            "written",
            "write_fails",
            "crash",
            "replay_entry",
            "replay_completes",
        ),
        settings={**failures.settings, "unknown_outcome": rule},
        domains={**failures.domains, "to": ("COMMITTING", "ABORTING")},
        bounds={**failures.most, "ledgers": 3, "in_flight": 1},
    )
    run = RUN._replace(checks=("RecoveryGivesWhatWasPromised",), expected=expected)
    result = make_run(run, Bounded(subject, "reference", scope), MODULES, tmp_path / "build")
    assert result.differences == []
    assert result.distinct_states > 100
