"""TLC on the buffered writer: bugs that are planted in the twin, each found by the promise that it breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.subject import find_subject
from fuzz.tlc.manifest import Run, read_manifest, space_of
from fuzz.tlc.module import camel
from fuzz.tlc.runs import MODULES, make_run
from tests.conftest import altered_twin

RUNS = {run.name: run for run in read_manifest(MODULES) if run.module == "TxnWriter"}
SUBJECT = find_subject("txn_writer")

#: The tick is set again only if it found something, so that nothing flushes what comes after an idle one.
IDLE = ('t.status = "open" /\\ (delay_from = "tick" \\/ t.buffer # <<>>)', 't.status = "open" /\\ s.buffer # <<>>')
#: The run in whose scope a bug breaks a promise, the promise, and what is replaced by what.
BUGS = [
    ("writer_smoke", "ACallbackIsToldOnce", "ELSE [s EXCEPT !.unanswered = SelectSeq(@, IsLeft)]", "ELSE s"),
    ("writer_smoke", "WhatIsToldIsWhatIsStored", "THEN k - 1 ELSE None", "THEN k ELSE None"),
    (
        "writer_smoke",
        "AnEndReachesEveryRecordOfItsEntryAndNoOther",
        'write.records, "write_failed")',
        '<<write.records[1]>>, "write_failed")',
    ),
    (
        "writer_smoke",
        "SuccessesComeInTheOrderOfPositions",
        "|-> AnswerTo(k)]",
        "|-> AnswerTo(Len(write.records) + 1 - k)]",
    ),
    (
        "writer_smoke",
        "RecordsAreStoredInTheOrderOfTheirCalls",
        "IF reason = None THEN Then(s)",
        'IF reason # "size" THEN Then(s)',
    ),
    ("writer_ledgers", "EntriesHavePositionsInOrder", ", !.next_entry = 0]", "]"),
    ("writer_smoke", "AnEntryIsOneRecordOrABatchWithinItsLimits", ">= max_records THEN", "> max_records THEN"),
    (
        "writer_smoke",
        "WhatIsLargeGoesAloneAndWhatIsSmallInABatch",
        "is_large == record.size >= max_bytes",
        "is_large == record.size > max_bytes",
    ),
    ("writer_batches_of_one", "WithoutBatchingNothingHasAHeader", "max_records > 1", "max_records > 0"),
    ("writer_smoke", "ThereIsOneTimerOrTickAtMost", *IDLE),
    ("writer_smoke", "ThereIsOneTimerOrTickAtMost", "EXCEPT !.timer = None], Tick", "EXCEPT !.timer = 1], Tick"),
    ("writer_smoke", "ARecordWaitsNoLongerThanTheDelay", *IDLE),
    (
        "writer_smoke",
        "AWriterThatClosesWritesNothing",
        'IF s.status # "open" THEN Failed(s, <<record.number>>, "closed")',
        'IF s.status = "closed" THEN Failed(s, <<record.number>>, "closed")',
    ),
    ("writer_failures", "ACloseFailsWhatHasNotGone", 'NumbersOf(gone.buffer), "closed")', "<<>>, None)"),
    ("writer_smoke", "ACloseLeavesAloneWhatIsInFlight", "!.closers = 0,\n", "!.closers = 0, !.in_flight = <<>>,\n"),
    ("writer_failures", "WhoeverClosesIsTold", "!.closed = @ + s.closers", "!.closed = 1"),
    (
        "writer_smoke",
        "TimeAndStatusNeverGoBack",
        's.status = "closed" -> [s EXCEPT !.is_done = TRUE]',
        's.status = "closed" -> [s EXCEPT !.status = "closing"]',
    ),
    ("writer_ci", "AFencedLedgerTakesNothing", "IF s.fenced THEN Failed", "IF FALSE THEN Failed"),
]


def breaks(name: str, promise: str, old: str, new: str, tmp_path: Path) -> None:
    """A copy of the twin, with a text replaced that is there once, breaks the promise in the scope of the run."""
    folder = altered_twin(tmp_path / "tla", "TxnWriter", (old, new))
    run: Run = RUNS[name]._replace(checks=(promise,), edges=False, distinct_states=None, expected=f"violated {promise}")
    assert make_run(run, space_of(run), folder, tmp_path / "build").differences == []


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "promise", "old", "new"), BUGS)
def test_a_bug_breaks_a_promise(name: str, promise: str, old: str, new: str, tmp_path: Path) -> None:
    breaks(name, promise, old, new, tmp_path)


def test_a_tick_that_stops_when_it_is_idle_leaves_a_record_for_ever(tmp_path: Path) -> None:
    """A lasso: time passes, the thread runs, and a record stays in the buffer of an open writer."""
    breaks("writer_small_goes_in_the_end", "WhatIsBufferedGoes", *IDLE, tmp_path)


def test_every_promise_is_broken_somewhere() -> None:
    """By a rule that is shipped, another option, a missing assumption, or a bug."""
    broken = {run.expected.removeprefix("violated ") for run in RUNS.values() if run.distinct_states is None}
    broken |= {promise for _, promise, *_ in BUGS}
    assert broken == {camel(p.name) for p in SUBJECT.properties if p.kind in ("always", "eventually")}


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("unserialisable_batch", "escapes"),
        ("unserialisable_alone", "exception"),
        ("second_close", "returns"),
        ("closed_buffer", "stale"),
    ],
)
def test_each_shipped_rule_has_runs_of_its_own(rule: str, value: str) -> None:
    """With that rule alone, besides settings that are no rules, some promise is broken."""
    shipped = SUBJECT.machine.profiles["pulsar-2026-07"].config
    assert getattr(shipped, rule) == value
    alone = [
        run.expected
        for run in RUNS.values()
        if run.profile == "reference" and {rule: value} == {k: v for k, v in run.settings.items() if k != "batching"}
    ]
    assert alone
    assert all(expected.startswith("violated ") for expected in alone)
