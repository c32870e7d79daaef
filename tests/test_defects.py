"""The defect table: every row is complete, is found by fuzzing, and is on the generated page."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fuzz.commands.evidence import (
    MOST_STEPS,
    SHORT_ENOUGH,
    EvidenceRow,
    key_of,
    result_of,
    results_in,
    run,
    search_for,
    table_of,
)
from fuzz.defects import table
from fuzz.defects.page import BEGIN, END, WORST, page_of, shown_reports, table_in, worst_of, write_into
from fuzz.defects.table import (
    Defect,
    Severity,
    Suspected,
    all_defects,
    defects_of,
    find_defect,
    not_expressible,
    suspected,
)
from fuzz.run.lockstep import Lockstep
from fuzz.seeding import find_mutant
from fuzz.subject import find_profile, find_subject, subject_names
from fuzz.target import Target
from model.machine import BadValue
from tests.conftest import ROOT

EVIDENCE = ROOT / "fuzz" / "defects" / "EVIDENCE.md"
ROWS = all_defects()
ROW = """[sizes]
profile = "pulsar-2026-07"
property = "cache_size_equals_sum_of_entry_sizes"
rules = ["duplicate_put"]
symptom = "s"
mechanism = "m"
consequence = "c"
severity = "wrong metric"
versions = "master"
"""


#: By defect, the number of steps until it is found, from EVIDENCE.md.
STEPS = {key: int(result.split()[0].replace(",", "")) for key, result in results_in(EVIDENCE).items()}
#: Of each component the defect that is found in the fewest steps, unless it needs more than 100,000. The nightly tests
#: search every defect.
SOONEST = [
    row
    for name in dict.fromkeys(row.component for row in ROWS)
    for row in [min(defects_of(name), key=lambda row: STEPS.get(key_of(row), MOST_STEPS))]
    if STEPS.get(key_of(row), MOST_STEPS) <= 100_000
]


#: The defects whose shortest trace has more than SHORT_ENOUGH steps, with the length of this trace, which the explorer
#: finds. No scope reaches `stale-owner-loads-topic-again` and the defects of the managed ledger: for these, the length of
#: the shortest known trace.
SHORTEST = {
    "clean-up-by-name-removes-new-topic": 11,
    "late-confirmation-of-fenced-add": 12,
    "old-replay-read-is-sent-again": 11,
    "replayed-entry-overtakes-its-key": 20,
    "stale-owner-loads-topic-again": 11,
}


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=f"{row.component}-{row.id}", marks=[pytest.mark.nightly] * (row not in SOONEST))
        for row in ROWS
    ],
)
def test_a_defect_is_found_and_its_trace_is_short(row: Defect) -> None:
    """The found trace may have one step more than the shortest."""
    shown = search_for(row, MOST_STEPS)
    assert shown.steps is not None
    assert 0 < (shown.length or 0) <= max(SHORT_ENOUGH, SHORTEST.get(row.id, 0) + 1)


@pytest.mark.nightly
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.component}-{row.id}")
def test_a_profile_shows_its_defects(row: Defect) -> None:
    """Random traces violate the row's property under the whole profile: no other defect of the profile hides it."""
    subject = find_subject(row.component)
    lockstep = Lockstep(Target(subject, find_profile(subject, row.profile)))
    lockstep.check_only(row.property)
    seeds = itertools.takewhile(lambda _: lockstep.coverage.steps < MOST_STEPS, itertools.count())
    findings = (finding for finding in map(lockstep.run, seeds) if finding is not None)
    assert any(finding.broken_property == row.property for finding in findings)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.component}-{row.id}")
def test_a_row_is_complete(row: Defect) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", row.id)
    assert row.symptom
    assert row.mechanism
    assert row.consequence
    assert row.versions
    one = r"(apache/pulsar(-client-[a-z]+)?#\d+|PIP-\d+)"
    assert re.fullmatch(rf"({one}(, {one})*)?", row.link), "issues, pull requests and proposals, or nothing"


def test_the_most_severe_defects_come_first() -> None:
    """`find_defect` finds a defect by its component and id."""
    order = list(Severity)
    assert [row.severity for row in ROWS] == sorted((row.severity for row in ROWS), key=order.index)
    assert find_defect(ROWS[0].component, ROWS[0].id) == ROWS[0]
    with pytest.raises(BadValue, match="has no defect nope; it has "):
        find_defect("range_cache", "nope")


def test_the_page_is_what_its_generator_writes() -> None:
    assert (ROOT / "fuzz" / "defects" / "README.md").read_text() == page_of(ROWS) + "\n"


def test_no_report_is_both_shown_and_not_expressible() -> None:
    """Of the reports about the load manager and its clients, 50 or more are shown: by defects, seeded bugs or tests."""
    names = ("ownership_channel", "bundle_transfer", "client_session")
    shown = {report for name in names for report in shown_reports(name)}
    assert not shown & {report for name in names for report in not_expressible(name)}
    assert len(shown) >= 50
    assert shown_reports("bundle_transfer")["apache/pulsar#24722"] == ["late-confirmation-of-fenced-add"]


@pytest.mark.parametrize("row", [row for name in subject_names() for row in suspected(name)], ids=lambda r: r.suspicion)
def test_what_decides_a_suspicion_exists(row: Suspected) -> None:
    for mutant in row.mutants:
        find_mutant(mutant, [row.component])
    text = (ROOT / "tests" / f"test_{row.component}.py").read_text()
    assert [name for name in row.tests if f"def {name}(" not in text] == []
    assert len(row.commands()) == len(row.defects) + len(row.mutants) + len(row.tests) + len(row.scopes)


def test_the_readme_has_the_worst_defects() -> None:
    readme = (ROOT / "README.md").read_text()
    assert readme[readme.index(BEGIN) + len(BEGIN) : readme.index(END)].strip() == worst_of(ROWS, WORST)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (ROW.replace("symptom =", "sign ="), r"range_cache.toml: sizes: Object .*`sign`"),
        ("sizes = 1", "range_cache.toml: sizes: "),
        (ROW.replace("wrong metric", "bad"), "Invalid enum value 'bad'"),
        (ROW.replace("cache_size_equals_sum_of_entry_sizes", "no_such"), "range_cache has no property no_such"),
        (ROW.replace("duplicate_put", "no_such"), "the config of range_cache has no field no_such"),
        (ROW.replace("duplicate_put", "caches"), "pulsar-2026-07 has the reference's value of caches"),
        (ROW.replace("pulsar-2026-07", "pulsar-1"), "range_cache has no profile pulsar-1"),
        (ROW.replace('"duplicate_put"', ""), "rules must name at least one config field"),
        (ROW + ROW, r"range_cache.toml: Cannot declare \('sizes',\) twice"),
        ("[sizes", "range_cache.toml: "),
    ],
)
def test_an_invalid_row_is_an_error(text: str, complaint: str, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "defects").mkdir()
    (tmp_path / "defects" / "range_cache.toml").write_text(text)
    monkeypatch.setattr(table, "files", lambda package: tmp_path)
    with pytest.raises(BadValue, match=complaint):
        defects_of("range_cache")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('decision = "d"\nscopes = ["smoke"]', "Object missing required field `suspicion`"),
        ('suspicion = "s"\ndecision = "d"', "s: nothing shows it"),
        ('suspicion = "s"\ndecision = "d"\nscopes = ["nope"]', "s: no defect or scope nope"),
        ('suspicion = "s"\ndecision = "d"\ndefects = ["nope"]', "s: no defect or scope nope"),
    ],
)
def test_an_invalid_suspicion_is_an_error(text: str, complaint: str, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "defects").mkdir()
    (tmp_path / "defects" / "range_cache.toml").write_text(f"[[suspected]]\n{text}\n")
    monkeypatch.setattr(table, "files", lambda package: tmp_path)
    with pytest.raises(BadValue, match=complaint):
        suspected("range_cache")


def test_the_table_is_written_between_its_marks(tmp_path: Path) -> None:
    fields: Any = {
        "symptom": "A lease is lost.",
        "severity": Severity.STUCK,
        "versions": "1.0",
        "link": "apache/pulsar#1",
    }
    names: Any = {"subject": "lease", "id": "lease-lost", "profile": "shipped", "property": "kept"}
    found = EvidenceRow(
        **names, **fields, command="brokerproof fuzz lease", steps=1250, seconds=0.1, length=3, explanation=None
    )
    text = table_of([found], {key_of(found): result_of(found)})
    path = tmp_path / "doc.md"
    path.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_into(path, text)
    link = "[apache/pulsar#1](https://github.com/apache/pulsar/issues/1)"
    row = f"| `lease`: `lease-lost` | A lease is lost. | stuck | 1.0 | {link} | 1,250 | 3 |"
    assert path.read_text() == f"before\n{BEGIN}\n{text}\n{END}\nafter\n"
    assert text.endswith(row)
    assert results_in(path) == {key_of(found): "1,250 | 3"}
    path.write_text("no marks")
    with pytest.raises(BadValue, match="needs the lines"):
        write_into(path, text)
    assert path.read_text() == "no marks"


def test_a_result_in_the_file_is_kept_and_a_missing_one_is_added(tmp_path: Path) -> None:
    path = tmp_path / "doc.md"
    path.write_text(f"{BEGIN}\n{END}\n")
    both = defects_of("ack_set")
    assert [row.id for row in run(["ack_set"], MOST_STEPS, path, Console(quiet=True)).defects] == [d.id for d in both]
    first, full = key_of(both[0]), results_in(path)
    assert full.keys() == {key_of(d) for d in both}
    line = next(each for each in path.read_text().splitlines() if each.startswith(f"| {first} "))
    path.write_text(path.read_text().replace(line, line.replace(f"{full[first]} |", "not shown | |")))
    again = run(["ack_set"], MOST_STEPS, path, Console(quiet=True))
    assert [row.id for row in again.defects] == [both[0].id]
    assert results_in(path) == full


def test_the_evidence_is_what_its_generator_writes() -> None:
    known = results_in(EVIDENCE)
    assert {key_of(row) for row in ROWS} == known.keys(), "make evidence"
    assert table_in(EVIDENCE) == table_of(ROWS, known), "make evidence"


def test_every_file_belongs_to_a_component() -> None:
    present = {path.stem for path in (ROOT / "fuzz" / "defects").glob("*.toml")}
    assert present <= set(subject_names())
