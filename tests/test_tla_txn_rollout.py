"""TLC on upgrades and downgrades: bugs that are planted in the twin, each found by the promise that it breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.subject import find_subject
from fuzz.tlc.manifest import Run, read_manifest, space_of
from fuzz.tlc.module import camel
from fuzz.tlc.runs import MODULES, make_run
from tests.conftest import altered_twin

RUNS = {run.name: run for run in read_manifest(MODULES) if run.module == "TxnRollout"}

#: The promise that a bug breaks, and what is replaced by what.
BUGS = [
    (
        "ABrokerThatStopsHasNoStores",
        "THEN Closed(s.logs[k]) ELSE s.logs[k]",
        "THEN [s.logs[k] EXCEPT !.batching = FALSE] ELSE s.logs[k]",
    ),
    ("AFlagThatGoesOnMakesTheNotesVoid", "Void(Turned(s, {b}, TRUE))", "Turned(s, {b}, TRUE)"),
    ("ALedgerIsNotedOnce", "!.noted = Len(s.logs[k].ledgers)]", "!.noted = Len(s.logs[k].ledgers) - 1]"),
    (
        "ALedgerThatBeginsIsTheLast",
        "ELSE [log EXCEPT !.noted = IF @ = Len(log.ledgers) THEN @ - 1 ELSE @]",
        "ELSE log",
    ),
    ("AnEntryIsWrittenAsTheStoreDoes", "IF log.batching THEN <<", "IF log.batching /\\ n > 1 THEN <<"),
    ("AnOldBrokerHasNoFlag", "!.owner = None, !.batching = FALSE]", "!.owner = None]"),
    ("AnOpenTransactionIsNotLost", "Ended(log, ledger[i], ledger[i].open)", "Ended(log, ledger[i], 1)"),
    ("AnOpenedStoreWritesAsTheFlagSays", "!.batching = is_on, !.ledgers", "!.ledgers"),
    ("AnyMixtureIsRead", "IF parts THEN Left(e) ELSE", "IF parts THEN 1 ELSE"),
    (
        "LedgersAreInOrder",
        "SelectSeq([@ EXCEPT ![n + 1] = Ended(log, e, 1)], HasLeft)",
        "[@ EXCEPT ![n + 1].open = @ - 1]",
    ),
    ("OnlyWhatIsDeletedIsTrimmed", "IF k < Len(ledgers) /\\ ledgers[k]", "IF k < Len(ledgers) - 1 /\\ ledgers[k]"),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("promise", "old", "new"), BUGS)
def test_a_bug_breaks_a_promise(promise: str, old: str, new: str, tmp_path: Path) -> None:
    folder = altered_twin(tmp_path / "tla", "TxnRollout", (old, new))
    smoke = RUNS["rollout_smoke"]
    run: Run = smoke._replace(checks=(promise,), edges=False, distinct_states=None, expected=f"violated {promise}")
    assert make_run(run, space_of(run), folder, tmp_path / "build").differences == []


def test_every_promise_is_broken_somewhere() -> None:
    """By a rule that is shipped, operators who do as they like, a missing assumption, or a bug."""
    broken = {run.expected.removeprefix("violated ") for run in RUNS.values() if run.distinct_states is None}
    broken |= {promise for promise, *_ in BUGS}
    subject = find_subject("txn_rollout")
    assert {camel(p.name) for p in subject.properties if p.kind in ("always", "eventually")} <= broken
