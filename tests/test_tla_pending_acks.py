"""TLC on pending acks: shipped rules that no scope shows, and bugs that are planted in the twin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.explore.search import Bounded
from fuzz.subject import find_subject
from fuzz.tlc.manifest import Run, read_manifest, space_of
from fuzz.tlc.module import camel
from fuzz.tlc.runs import MODULES, make_run
from model.pending_acks.machine import AckOf
from tests.conftest import altered_twin

RUNS = {run.name: run for run in read_manifest(MODULES) if run.module == "PendingAcks"}
SUBJECT = find_subject("pending_acks")
SMOKE = SUBJECT.scopes["smoke"]

# ---- shipped rules that no scope shows ----------------------------------------------------------------

WHOLE, PART, BOTH = (AckOf(0, None),), (AckOf(0, 2),), (AckOf(0, None), AckOf(1, None))
#: A list of two entries, of which the cursor has the first one when it is read again.
LISTS: tuple[Any, ...] = (
    ("acknowledge",),
    {"batch_sizes": (1,), "batching": False},
    {"acks": (BOTH,), "entry": (0,), "leaves": (None,), "txn": (1,)},
    {"records": 2, "on_the_way": 1},
)
#: So many of the rules are looked at on every change, the others every night.
QUICK = 2
#: The promise that is broken, the shipped rules, and what is other than in the scope smoke.
RULES: list[tuple[Any, ...]] = [
    (
        "EveryRequestIsAnswered",
        {"parts_of_whole_entries_conflict": False, "conflicts_are_found": "in_the_log"},
        (),
        {},
        {"acks": (WHOLE, PART)},
        {"records": 2, "on_the_way": 1},
    ),
    ("ACommittedAckIsNotRedelivered", {"recovery_drops": "the_whole_record"}, *LISTS),
    ("AReplayDropsNoMessageThatIsLeft", {"recovery_drops": "the_whole_record"}, *LISTS),
    (
        "AnAbortedCumulativeAckIsRedelivered",
        {"cumulative_acks_hide_others": True, "conflicts_are_found": "in_the_log"},
        ("ack_cumulative", "abort"),
        {},
        {"acks": (PART,), "entry": (0,), "leaves": (2,), "txn": (1,)},
        {"records": 2, "on_the_way": 2},
    ),
    (
        "WhatIsTrimmedWasAcknowledged",
        {"failed_appends": "change_memory"},
        ("write_fails",),
        {"batch_sizes": (1,), "batching": False},
        {"acks": (WHOLE, (AckOf(1, None),)), "durable": (True,), "commit.txn": (2,)},
        {"records": 4, "on_the_way": 1},
    ),
]


@pytest.mark.parametrize(
    ("promise", "rules", "actions", "settings", "domains", "most"),
    [pytest.param(*each, marks=[] if i < QUICK else pytest.mark.nightly) for i, each in enumerate(RULES)],
)
def test_a_shipped_rule_breaks_what_the_reference_keeps(
    promise: str,
    rules: dict[str, Any],
    actions: tuple[str, ...],
    settings: dict[str, Any],
    domains: dict[str, Any],
    most: dict[str, int],
    tmp_path: Path,
) -> None:
    """Whole entries and parts of them, lists of which the cursor has one, an abort right after its acknowledgement,
    an entry of the log of which the index does not know.
    """
    scope = replace(
        SMOKE,
        actions=(*SMOKE.actions, *actions),
        settings={**SMOKE.settings, **settings},
        domains={**SMOKE.domains, **domains},
        most=most,
    )
    run = RUNS["pending_smoke"]._replace(checks=("always",), distinct_states=None)
    result = make_run(run, Bounded(SUBJECT, "reference", scope), MODULES, tmp_path / "build")
    assert result.differences == []
    assert result.edges_checked > result.distinct_states > 100
    scope = replace(scope, settings={**scope.settings, **rules})
    run = run._replace(checks=(promise,), edges=False, expected=f"violated {promise}")
    assert make_run(run, Bounded(SUBJECT, "reference", scope), MODULES, tmp_path / "build").differences == []


# ---- bugs ---------------------------------------------------------------------------------------------

#: The run in whose scope a bug breaks a promise, the promise, and what is replaced by what.
BUGS = [
    ("pending_ci", "OnlyAStoreThatIsOpenHasMemory", "!.queue = <<>>, !.buffer = <<>>]\nFail", "!.queue = <<>>]\nFail"),
    ("pending_ci", "OnlyAStoreThatIsOpenHasMemory", ", !.low_watermark = 0]", "]"),
    ("pending_smoke", "RequestsKeepTheirOrder", "!.buffer = Append(@, call)]", "!.buffer = <<call>> \\o @]"),
    ("pending_smoke", "EveryRequestIsAnswered", "FailureOf(s.queue \\o s.buffer)", "FailureOf(s.buffer)"),
    (
        "pending_cumulative",
        "OnlyAConflictIsAConflict",
        "other # None /\\ (other.txn # ack.txn \\/",
        "other # None /\\ (other.txn # ack.txn /\\",
    ),
    ("pending_smoke", "WhatIsAcknowledgedStaysSo", "!.durable = s.acks", "!.acks = s.durable"),
    ("pending_cumulative", "WhatIsPendingIsNotRedelivered", "EndedOf(n) \\ KeptOf(s,", "AllOf(n) \\ AckedOf(s.acks,"),
    ("pending_smoke", "WhatIsTrimmedWasAcknowledged", "keys[k].entry < mark})", "keys[k].entry <= mark})"),
    ("pending_ci", "WhatIsTrimmedWasAcknowledged", "at), s.durable.mark)", "at), s.acks.mark)"),
    ("pending_smoke", "NothingIsKeptThatTheIndexLetsGo", "keys[k].entry < mark})", "keys[k].entry < mark - 1})"),
    (
        "pending_smoke",
        "WholeEntriesAreTrimmed",
        "SubSeq(@, found.gone + 1, Len(@))",
        "SubSeq(@, 1, Len(@) - found.gone)",
    ),
    ("pending_smoke", "TheIndexGrowsInBothColumns", "Last(keys).entry = max_ack", "Last(keys).entry > max_ack"),
    ("pending_smoke", "AKeySpeaksOfAllBeforeIt", "[entry |-> max_ack, at |-> at]", "[entry |-> last, at |-> at]"),
    ("pending_sparse", "TheIndexStaysSparse", "lag < NextLag(Len(keys))", "lag < 1"),
    (
        "pending_nightly",
        "AnAbortedAckIsRedelivered",
        "\\cup back.redelivered]",
        "\\cup (IF found.answers = {} THEN back.redelivered ELSE {})]",
    ),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "promise", "old", "new"), BUGS)
def test_a_bug_breaks_a_promise(name: str, promise: str, old: str, new: str, tmp_path: Path) -> None:
    folder = altered_twin(tmp_path / "tla", "PendingAcks", (old, new))
    run: Run = RUNS[name]._replace(checks=(promise,), edges=False, distinct_states=None, expected=f"violated {promise}")
    assert make_run(run, space_of(run), folder, tmp_path / "build").differences == []


def test_every_promise_is_broken_somewhere() -> None:
    """By a rule that is shipped, a missing assumption, or a bug."""
    broken = {run.expected.removeprefix("violated ") for run in RUNS.values() if run.distinct_states is None}
    broken |= {promise for promise, *_ in RULES} | {promise for _, promise, *_ in BUGS}
    assert broken == {camel(p.name) for p in SUBJECT.properties if p.kind in ("always", "eventually")}
