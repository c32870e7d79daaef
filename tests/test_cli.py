"""The command line: exit codes, and JSON that matches the schema of its result type."""

from __future__ import annotations

import gzip
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from xml.etree import ElementTree

import jsonschema
import msgspec
import pytest
from rich.console import Console

from fuzz.cli import app
from fuzz.commands import check, result_type, schema_of
from fuzz.defects.table import defects_of
from fuzz.explore.counts import all_counts
from fuzz.platform.json import from_json
from fuzz.platform.processes import Workers
from fuzz.platform.sources import files_of
from fuzz.platform.version import code_version
from fuzz.seeding import mutants_of
from fuzz.subject import find_subject, subject_names
from fuzz.tlc.manifest import all_runs, chosen
from fuzz.tlc.runs import MODULES
from fuzz.trace.recording import mappings
from fuzz.workloads import workload_names
from model.machine import BadValue
from tests.conftest import RECORDINGS, ROOT, NoWorkers, Ran, descendants, planned_steps, ticking, wait_for

COMMANDS = sorted(str(c.name or c.callback.__name__) for c in app.registered_commands if c.callback)


def keeps_to_schema(command: str, ran: Ran) -> Any:
    """Returns the JSON of a command, which must match the schema of its result type."""
    jsonschema.Draft202012Validator(schema_of(command)).validate(ran.json)
    assert msgspec.json.decode(ran.out, type=result_type(command)) is not None
    return ran.json


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_schema(command: str) -> None:
    schema = schema_of(command)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["title"] == f"brokerproof {command} --json"
    for definition in schema["$defs"].values():
        is_record = definition.get("additionalProperties") is False
        assert not is_record or set(definition["required"]) == set(definition["properties"]), "no key is optional"


def test_subjects(brokerproof: Any) -> None:
    data = keeps_to_schema("subjects", brokerproof("subjects", "--json"))
    assert [s["name"] for s in data["subjects"]] == subject_names()
    shown = brokerproof("subjects")
    assert shown.code == 0
    assert (
        "range_cache (PIP-430)\n  Range caches of a broker and the removal queue that they share (PIP-430).\n"
        in shown.out
    )


def test_a_named_component_shows_profiles_rules_settings_and_properties(brokerproof: Any) -> None:
    data = keeps_to_schema("subjects", brokerproof("subjects", "active_cursors", "--json"))
    [row] = data["subjects"]
    machine = find_subject("active_cursors").machine
    assert [profile["name"] for profile in row["profile_details"]] == list(machine.profiles)
    assert [rule["name"] for rule in row["rules"]] == list(machine.rules)
    assert {each["name"] for each in row["rules"] + row["settings"]} == set(machine.fields)
    shown = brokerproof("subjects", "active_cursors").out
    for heading in ("profiles", "rules", "settings", "safety properties", "coverage goals"):
        assert f"\n  {heading}" in shown
    assert all(rule["source"] in shown for rule in row["rules"])


def test_version(brokerproof: Any) -> None:
    ran = brokerproof("--version")
    assert (ran.code, ran.out) == (0, f"brokerproof {code_version()}\n")


def test_fuzz_finds_nothing_in_the_implementation(brokerproof: Any) -> None:
    ran = brokerproof("fuzz", "range_cache", "--traces", 40, "--seed", 7, "--json")
    data = keeps_to_schema("fuzz", ran)
    assert ran.code == 0
    steps = planned_steps("range_cache", range(7, 47))
    assert (data["traces"], data["steps"], data["seed"], data["findings"]) == (40, steps, 7, [])
    assert data["steps_per_second"] * data["fuzzing_seconds"] == pytest.approx(steps)
    assert 0 < data["fuzzing_seconds"] <= data["seconds"]
    assert (data["processes"], data["compared_with"]) == (1, "implementation")
    assert data["missed_coverage"] == []
    assert not data.keys() & data["coverage"].keys()  # a key has one meaning
    assert ran.err == ""


def test_fuzz_prints_no_difference_only_if_something_was_compared(brokerproof: Any) -> None:
    ran = brokerproof("fuzz", "legacy_cache", "--profile", "pulsar-4.0", "--traces", 1, "--steps", 1)
    assert "no violated property in 1 steps of 1 traces (seed 0)" in ran.out
    assert "no difference" not in ran.out


def test_fuzz_prints_a_verdict(brokerproof: Any) -> None:
    ran = brokerproof("fuzz", "legacy_cache", "--traces", 20, "--steps", 50)
    assert ran.code == 0
    assert "no difference in 1,000 steps of 20 traces (seed 0)" in ran.out
    assert "legacy_cache, profile reference: model and implementation in lockstep\n" in ran.out
    [numbers] = re.findall(r"^([\d.]+) s of fuzzing \(([\d,]+) steps/s of 1 process\)$", ran.out, re.MULTILINE)
    assert all(float(number.replace(",", "")) >= 0 for number in numbers)


def test_a_finding_is_a_file_that_replays(brokerproof: Any) -> None:
    ran = brokerproof("fuzz", "range_cache", "--traces", 30, "--mutant", "replay-is-lost", "--out", "found", "--json")
    assert ran.code == 1
    [finding] = keeps_to_schema("fuzz", ran)["findings"]
    assert re.fullmatch("outcome:replay after put (get|get_range) replay", finding["signature"])
    assert finding["shrunk_length"] == 3
    again = brokerproof("replay", finding["trace"], "--json")
    assert again.code == 1
    [difference] = keeps_to_schema("replay", again)["differences"]
    assert (difference["op"], difference["line"]) == ("replay", 4)
    assert (difference["expected"], difference["actual"]) == ({"expected_reads": 2}, {"expected_reads": 1})
    by_seed = brokerproof(
        "fuzz", "range_cache", "--traces", 1, "--seed", finding["seed"], "--mutant", "replay-is-lost", "--json"
    )
    assert [f["signature"] for f in by_seed.json["findings"]] == [finding["signature"]]


def test_a_finding_does_not_show_without_the_seeded_bug(brokerproof: Any) -> None:
    [finding] = brokerproof("fuzz", "range_cache", "--traces", 30, "--mutant", "replay-is-lost", "--json").json[
        "findings"
    ]
    text = Path(finding["trace"]).read_text().replace(',"mutant":"replay-is-lost"', "")
    Path("unchanged.jsonl").write_text(text)
    assert brokerproof("replay", "unchanged.jsonl").code == 0


def test_a_corpus_is_kept_and_replays(brokerproof: Any) -> None:
    assert brokerproof("fuzz", "range_cache", "--traces", 30, "--out", "run").code == 0
    files = sorted(Path("run/corpus").glob("*.jsonl.gz"))
    assert len(files) > 5
    ran = brokerproof("replay", *files, "--json")
    assert ran.code == 0
    assert ran.json["traces"] == len(files)
    assert brokerproof("fuzz", "range_cache", "--traces", 30, "--out", "run").code == 0
    assert sorted(Path("run/corpus").glob("*.jsonl.gz")) == files, "the same run adds nothing"


def test_one_profile_against_another(brokerproof: Any) -> None:
    ran = brokerproof("fuzz", "range_cache", "--against", "stash", "--traces", 20, "--json")
    data = keeps_to_schema("fuzz", ran)
    assert ran.code == 1
    assert all(f["signature"].startswith(("view:", "outcome:")) for f in data["findings"])
    assert brokerproof("replay", data["findings"][0]["trace"]).code == 1


def test_a_shipped_version_shows_its_defects(brokerproof: Any) -> None:
    ran = brokerproof("fuzz", "range_cache", "--profile", "pulsar-2026-07", "--traces", 400, "--json")
    assert ran.code == 1
    causes = {f["signature"].split(" ")[0] for f in ran.json["findings"]}
    assert {
        "property:latest_put_sets_expected_read_count",
        "property:only_reads_and_replays_change_read_count",
        "property:cache_size_equals_sum_of_entry_sizes",
    } <= causes


@pytest.mark.parametrize("jobs", [1, 2])
def test_seconds_bound_a_run_with_shrinking(brokerproof: Any, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading of the clock advances it. A run may exceed its seconds by a reading or two for each cause."""
    clock = ticking(0.005)
    for module in ("fuzz.commands.fuzz", "fuzz.campaign.local", "fuzz.run.shrink"):
        monkeypatch.setattr(f"{module}.time", clock)
    monkeypatch.setattr("fuzz.campaign.local.Workers", NoWorkers)
    arguments = ("active_cursors", "--profile", "pulsar-2026-07", "--seconds", 2, "--jobs", jobs)
    data = keeps_to_schema("fuzz", brokerproof("fuzz", *arguments, "--json"))
    assert data["findings"]
    assert 1 < data["seconds"] < 2.5
    assert (data["processes"], data["compared_with"]) == (jobs, "none")
    assert data["steps_per_second"] * data["fuzzing_seconds"] == pytest.approx(data["steps"])


@pytest.mark.nightly
def test_processes_end_after_their_seconds(brokerproof: Any) -> None:
    """The margin is wide, because a step that has begun is finished, and a busy machine is slow."""
    arguments = ("active_cursors", "--profile", "pulsar-2026-07", "--seconds", 4, "--jobs", 2)
    assert brokerproof("fuzz", *arguments, "--json").json["seconds"] < 120


@pytest.mark.nightly
def test_fuzz_shows_each_defect_of_a_profile_once(brokerproof: Any) -> None:
    """A frequent defect does not hide a rare one, and a printed seed shows its finding by itself."""
    seeds = ("--seed", 540, "--traces", 128)
    ran = brokerproof("fuzz", "active_cursors", "--profile", "pulsar-2026-07", *seeds, "--json")
    causes = [finding["cause"] for finding in ran.json["findings"]]
    assert len(set(causes)) == len(causes)
    defects = {f"property:{d.property}" for d in defects_of("active_cursors") if d.profile == "pulsar-2026-07"}
    assert defects <= set(causes)
    for finding in ran.json["findings"]:
        seed = ("--traces", 1, "--seed", finding["seed"])
        again = brokerproof("fuzz", "active_cursors", "--profile", "pulsar-2026-07", *seed, "--json")
        assert finding["signature"] in [each["signature"] for each in again.json["findings"]]


def test_the_number_of_processes_changes_no_cause(brokerproof: Any) -> None:
    run = ("fuzz", "range_cache", "--profile", "pulsar-2026-07", "--traces", 256, "--json")
    one, two = (brokerproof(*run, "--jobs", jobs).json for jobs in (1, 2))
    assert {f["cause"] for f in one["findings"]} == {f["cause"] for f in two["findings"]}
    assert one["traces"] == two["traces"] == 256


def test_one_property_alone(brokerproof: Any) -> None:
    run = ("fuzz", "range_cache", "--profile", "pulsar-2026-07", "--traces", 64)
    ran = brokerproof(*run, "--property", "cache_size_equals_sum_of_entry_sizes", "--json")
    assert ran.code == 1
    assert [finding["cause"] for finding in ran.json["findings"]] == ["property:cache_size_equals_sum_of_entry_sizes"]
    assert brokerproof(*run, "--property", "position_is_cached_at_most_once").code == 0


def test_stop_at_first(brokerproof: Any) -> None:
    ran = brokerproof("fuzz", "range_cache", "--profile", "pulsar-2026-07", "--traces", 64, "--stop-at-first", "--json")
    assert ran.code == 1
    assert ran.json["traces"] < 64


def test_a_finding_is_printed_step_by_step(brokerproof: Any) -> None:
    ran = brokerproof("fuzz", "range_cache", "--traces", 30, "--mutant", "replay-is-lost", "--out", "found")
    assert ran.code == 1
    assert "finding 1 of 1  outcome:replay" in ran.out
    assert "model returns {expected_reads=2}" in ran.out
    assert "implementation returns {expected_reads=1}" in ran.out
    [file] = Path("found/traces").iterdir()
    again = brokerproof("replay", file)
    assert "model returns {expected_reads=2}" in again.out


def test_replay_of_recordings(brokerproof: Any, tmp_path: Path) -> None:
    [mapping] = [each for each in mappings() if each.component == "range_cache"]
    smallest = {deviation.smallest for deviation in mapping.deviations}
    lines = gzip.decompress((RECORDINGS / "range_cache.jsonl.gz").read_bytes()).decode().splitlines(keepends=True)
    starts = [i for i, line in enumerate(lines) if "trace" in from_json(line)]
    path = tmp_path / "smallest.jsonl"
    path.write_text(
        "".join(
            line
            for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)
            if from_json(lines[start])["trace"] in smallest
            for line in lines[start:end]
        )
    )
    ran = brokerproof("replay", path, "--profile", "reference", "--json")
    data = keeps_to_schema("replay", ran)
    assert data["traces"] == len(smallest) == 3
    assert all(row["explanation"] is None and row["before"] for row in data["differences"])
    shown = brokerproof("replay", path, "--profile", "reference")
    names = {row["known_deviation"] for row in data["differences"]}
    assert names == {deviation.name for deviation in mapping.deviations}
    assert names <= {defect.id for defect in defects_of("range_cache")}
    assert all(f"known deviation {name}: " in shown.out for name in names)


def test_explore(brokerproof: Any) -> None:
    ran = brokerproof("explore", "range_cache", "--json")
    data = keeps_to_schema("explore", ran)
    assert ran.code == 0
    assert (data["subject"], data["scope"], data["violations"]) == ("range_cache", "smoke", [])
    assert "slots" in data["hides"]


def test_explore_hands_out_a_shortest_trace_that_replays(brokerproof: Any) -> None:
    ran = brokerproof("explore", "range_cache", "--profile", "pulsar-2026-07", "--json")
    assert ran.code == 1
    [violation] = keeps_to_schema("explore", ran)["violations"]
    assert violation["signature"] == "property:latest_put_sets_expected_read_count after put put"
    assert brokerproof("replay", violation["trace"]).code == 1
    shown = brokerproof("explore", "range_cache", "--profile", "pulsar-2026-07")
    assert "visited: 3,693 states, the whole of scope smoke" in shown.out


def test_mutants(brokerproof: Any) -> None:
    ran = brokerproof("mutants", "canary", "--generated", "--seconds", 2, "--jobs", 1, "--json")
    data = keeps_to_schema("mutants", ran)
    assert ran.code == 0
    assert data["killed"] == len(data["mutants"]) > 15
    assert data["survivors"] == []


def test_evidence(brokerproof: Any) -> None:
    ran = brokerproof("evidence", "ack_set", "--json")
    data = keeps_to_schema("evidence", ran)
    assert ran.code == 0
    assert [row["id"] for row in data["defects"]] == [row.id for row in defects_of("ack_set")]
    for row in data["defects"]:
        again = brokerproof(*row["command"].split()[1:], "--stop-at-first", "--json").json
        assert [finding["cause"] for finding in again["findings"]] == [f"property:{row['property']}"]
    assert brokerproof("evidence", "nobody").code == 2


def test_evidence_of_one_defect_is_its_trace(brokerproof: Any) -> None:
    ran = brokerproof("evidence", "batch_acks", "--defect", "rejected-cumulative-ack-set-is-kept")
    assert ran.code == 0
    assert re.search(r"1  ack_cumulative\(.*\)  ManagedCursorImpl.asyncMarkDelete\n(.*\n)+ +2  add_entry\(\)", ran.out)
    assert len(re.findall("^\\| ", ran.out, re.MULTILINE)) == 2, "heading and row"
    for arguments, complaint in (
        (("batch_acks", "--defect", "nope"), "batch_acks has no defect nope"),
        (("--defect", "nope"), "--defect needs exactly one SUBJECT, got 0"),
    ):
        wrong = brokerproof("evidence", *arguments)
        assert (wrong.code, wrong.err.count("\n")) == (2, 1)
        assert complaint in wrong.err


def test_a_page_of_benchmarks_has_the_plots_whose_results_are_there(tmp_path: Path) -> None:
    from fuzz.benchmarks.runner import all_benchmarks
    from fuzz.report.bench import declared_plots, write_report

    plots = declared_plots()
    assert plots
    measured = {p.result for plot in plots for line in plot.lines for p in line.points}
    assert measured <= {each.name for each in all_benchmarks()}  # a plot of what is never measured would never be seen
    results = [{"name": name, "value": 2.0, "baseline": 8.0, "ratio": 4.0, "unit": "bytes"} for name in measured]
    write_report(tmp_path / "all.html", results)
    page = (tmp_path / "all.html").read_text()
    assert page.count("data:image/png;base64,") == len(plots)
    assert all(name in page for name in measured)
    write_report(tmp_path / "fewer.html", results[1:])
    assert (tmp_path / "fewer.html").read_text().count("data:image/png;base64,") < len(plots)
    with pytest.raises(BadValue, match="cannot be written"):
        write_report(tmp_path, results)


def test_bench(brokerproof: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the form of the result is tested. `make bench` measures."""
    from fuzz.benchmarks import range_cache

    for name, value in {"_TURNS": 1, "_CYCLES": 1, "ENTRIES": 2_000, "EXPIRED": 200, "MANY": 1_000}.items():
        monkeypatch.setattr(range_cache, name, value)
    data = keeps_to_schema("bench", brokerproof("bench", "eviction", "--json"))
    assert [r["name"] for r in data["results"]] == ["eviction", *(f"eviction.{n}" for n in range_cache.TOPICS)]


def test_the_explorer_is_timed_with_its_start_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """TLC is timed with its start-up, too. The clock of this test advances only when a process is run."""
    from fuzz.benchmarks import runner

    now, run = [10.0], subprocess.run

    def timed(*arguments: Any, **options: Any) -> Any:
        now[0] += 3
        return run(*arguments, **options)

    monkeypatch.setattr(runner, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(runner, "subprocess", SimpleNamespace(run=timed))
    monkeypatch.setattr(runner, "_SCOPE", "smoke")
    assert runner._explored_speed(find_subject("range_cache"), checked=False) == 3_693 / 3


# ---- check --------------------------------------------------------------------------------------------------


def test_checks_are_discovered_for_every_component() -> None:
    names = {tier: {each.name for each in check.checks_of(tier)} for tier in check.Tier}
    assert names[check.Tier.QUICK] < names[check.Tier.FULL] < names[check.Tier.NIGHTLY]
    assert {f"fuzz.{name}" for name in subject_names()} <= names[check.Tier.QUICK]
    seeded = [name for name in subject_names(without_canaries=True) if mutants_of(name)]
    assert {f"mutants.{name}" for name in seeded} <= names[check.Tier.FULL]
    assert {f"replay.{path.name.split('.')[0]}" for path in RECORDINGS.glob("*.jsonl.gz")} <= names[check.Tier.QUICK]
    scopes = {f"explore.{name}.{scope}" for name, scope in all_counts() if name != "canary"}
    assert scopes <= names[check.Tier.NIGHTLY]
    two = [each.name for each in check.checks_of(check.Tier.NIGHTLY, [check.Kind.GENERATED, check.Kind.FUZZ])]
    generated = [f"generated.{name}" for name in subject_names(without_canaries=True)]
    assert two == [*(f"fuzz.{name}" for name in subject_names()), *generated]


def test_the_nightly_tier_makes_every_run_of_tlc(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, made = all_runs(MODULES), list[str]()

    def run_tla(modules: list[str], scope: str | None, _console: Console, **options: bool) -> list[Any]:
        made.extend(run.id for run in chosen(runs, modules, scope, **options))
        return []

    monkeypatch.setattr("fuzz.commands.tla.run_tla", run_tla)
    for each in check.checks_of(check.Tier.NIGHTLY, [check.Kind.TLA]):
        each.run(Console(quiet=True))
    assert sorted(made) == sorted(run.id for run in runs)


@pytest.fixture
def two_checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replaces the checks of a tier by one that passes and one with a finding. Returns the list of those that ran."""
    ran: list[str] = []

    def passes(console: Any) -> check.Outcome:
        ran.append("passes")
        return check.Outcome("all agree", [])

    def finds(console: Any) -> check.Outcome:
        ran.append("finds")
        return check.Outcome("nothing", ["range_cache reference outcome:put"])

    every = [
        check.Check(check.Kind.FUZZ, "canary", ("canary",), passes),
        check.Check(check.Kind.FUZZ, "range_cache", ("range_cache",), finds),
    ]
    monkeypatch.setattr(check, "checks_of", lambda tier, kinds: (each for each in every if each.kind in kinds))
    return ran


def test_check_fails_with_a_finding_and_keeps_what_passed(brokerproof: Any, two_checks: list[str]) -> None:
    ran = brokerproof("check", "--junit", "out.xml", "--json")
    data = keeps_to_schema("check", ran)
    assert (ran.code, data["tier"], two_checks) == (1, "quick", ["passes", "finds"])
    assert [(row["name"], row["passed"], row["message"]) for row in data["checks"]] == [
        ("fuzz.canary", True, "all agree"),
        ("fuzz.range_cache", False, "range_cache reference outcome:put"),
    ]
    junit = ElementTree.parse("out.xml").getroot()
    assert (junit.get("tests"), junit.get("failures")) == ("2", "1")
    again = brokerproof("check", "--json").json
    assert [row["cached"] for row in again["checks"]] == [True, False]
    assert two_checks == ["passes", "finds", "finds"]
    brokerproof("check", "--tier", "full")
    assert [row["cached"] for row in brokerproof("check", "--json").json["checks"]] == [True, False]
    check.CACHE.write_text('{"quick fuzz.canary": 3}')
    assert [row["cached"] for row in brokerproof("check", "--json").json["checks"]] == [False, False]
    assert brokerproof("check", "--kind", "tla", "--kind", "prove", "--json").json["checks"] == []
    assert "--kind must be replay, fuzz, " in brokerproof("check", "--kind", "nope").err


def test_findings_of_the_baseline_do_not_fail_a_check(brokerproof: Any, two_checks: list[str]) -> None:
    Path("baseline.json").write_text(brokerproof("check", "--json").out)
    ran = brokerproof("check", "--baseline", "baseline.json", "--json")
    assert ran.code == 0
    assert ran.json["checks"][1]["known"] == ["range_cache reference outcome:put"]
    Path("baseline.json").write_text("{}")
    ran = brokerproof("check", "--baseline", "baseline.json")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "baseline.json is not the output of `brokerproof check --json`" in ran.err


def test_since_checks_only_what_a_change_affects(
    brokerproof: Any, two_checks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for changed, expected in (
        ("model/canary.py", ["fuzz.canary"]),
        ("invariants/range_cache/goals.py", ["fuzz.range_cache"]),
        ("fuzz/mutants/range_cache.toml", ["fuzz.range_cache"]),
        ("model/machine.py", ["fuzz.canary", "fuzz.range_cache"]),
        ("fuzz/run/pair.py", ["fuzz.canary", "fuzz.range_cache"]),
        ("requirements.lock", ["fuzz.canary", "fuzz.range_cache"]),
        ("model/deleted.py", ["fuzz.canary", "fuzz.range_cache"]),
        ("README.md", []),
    ):
        monkeypatch.setattr(check, "changed_since", lambda revision, path=changed: frozenset([Path(path)]))
        ran = brokerproof("check", "--since", "HEAD", "--json")
        assert [row["name"] for row in ran.json["checks"]] == expected, changed
    monkeypatch.undo()
    ran = brokerproof("check", "--since", "no-such-revision")
    assert (ran.code, ran.err.count("\n")) == (2, 1)


def test_a_component_depends_on_the_components_that_it_imports() -> None:
    entry_cache = {str(path) for path in files_of("entry_cache", "EntryCache")}
    assert {"model/range_cache.py", "impl/range_cache.py", "fuzz/run/pair.py", "tla/EntryCache.tla"} <= entry_cache
    assert "model/txn_rollout.py" not in entry_cache
    assert "fuzz/mutants/txn_log.toml" not in entry_cache
    assert {"fuzz/defects/table.py", "fuzz/benchmarks/runner.py"} <= entry_cache
    assert {"tla/ManagedLedger.tla", "tla/EntryCacheState.tla"} <= {str(p) for p in files_of("canary", "ManagedLedger")}
    assert {"tla/CursorHeap.tla", "tla/CursorList.tla"} <= {str(p) for p in files_of("canary", "ActiveCursors")}


def test_a_check_depends_on_every_component_that_it_uses() -> None:
    kinds = (check.Kind.REPLAY, check.Kind.CLIENT)
    of = {each.name: set(each.components) for each in check.checks_of(check.Tier.FULL, kinds)}
    assert of["replay.legacy_cache"] == {"legacy_cache", "legacy_manager"}
    assert {"client_session", "batch_acks", "negative_acks", "bundle_transfer"} <= of["client.producer"]
    assert "txn_log" not in of["client.producer"]


def test_a_defect_of_our_own_is_not_called_a_finding(brokerproof: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import fuzz.commands.subjects

    def broken(names: Any) -> Any:
        raise RuntimeError("oh")

    monkeypatch.setattr(fuzz.commands.subjects, "run", broken)
    ran = brokerproof("subjects")
    assert ran.code == 3
    assert "this is a defect of brokerproof itself" in ran.err


CORES = os.cpu_count() or 1
EVERY_RECORDING = [str(path) for path in sorted(RECORDINGS.glob("*.gz"))]
#: Commands that are interrupted: their arguments, and the number of their worker processes.
LONG = {
    "fuzz": (("fuzz", "range_cache", "--seconds", "600"), 0),
    "fuzz in processes": (("fuzz", "range_cache", "--seconds", "600", "--jobs", "2"), 2),
    "replay": (("replay", *EVERY_RECORDING * 2 * CORES), CORES if CORES > 1 else 0),
    "mutants": (("mutants", "range_cache", "--jobs", "2"), 2),
}


def processor_seconds(process: int) -> float:
    """Returns the processor time of a process so far."""
    ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("seconds", [0.01, 0.5, pytest.param(1.5, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("command", LONG)
def test_an_interrupt_is_one_line_and_a_code_of_its_own(command: str, seconds: float, tmp_path: Path) -> None:
    """After `seconds` of processor time, the whole process group gets the signal, as from the keyboard."""
    arguments, workers = LONG[command]
    script = """if True:
        import signal, sys
        from fuzz import cli
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print("ready", flush=True)
        sys.exit(cli.run(sys.argv[1:]))
    """
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )

    def has_come_so_far() -> bool:
        spent = sorted([processor_seconds(each) for each in descendants(process.pid) if each != process.pid])
        own = processor_seconds(process.pid) - started
        return own > seconds if workers == 0 else len(spent) >= workers and spent[-workers] > seconds

    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        started = processor_seconds(process.pid)
        wait_for(has_come_so_far, process)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert err.startswith("brokerproof: stopped before its end; ")
    assert err.count("\n") == 1, err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", ["spawn", "fork"])
def test_a_worker_never_sees_an_interrupt(how: str) -> None:
    """The first worker is tested: with it, Python starts its resource tracker, and the tracker unblocks the signal."""
    code = f"""if True:
        import signal
        from fuzz.platform.processes import Workers
        with Workers(1, "{how}") as workers:
            blocked = workers.submit(signal.pthread_sigmask, signal.SIG_BLOCK, []).result()
        print(signal.SIGINT in blocked, signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    """
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout == "True False\n"


@pytest.mark.parametrize("how", ["spawn", "fork"])
def test_a_worker_that_dies_ends_the_command(how: Literal["fork", "spawn"]) -> None:
    """No worker is left, and none is left after an exception in the command's own process."""
    before = set(multiprocessing.active_children())

    def run(ending: Callable[[Workers], object]) -> None:
        with Workers(2, how) as workers:
            assert {each.result() for each in [workers.submit(time.sleep, 0.1) for _ in range(4)]} == {None}
            workers.submit(time.sleep, 60)
            ending(workers)

    with pytest.raises(BadValue, match="a process ended early"):
        run(lambda workers: workers.submit(signal.raise_signal, signal.SIGKILL).result())

    def interrupt(workers: Workers) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(interrupt)
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("subjects", "canary"), 0),
        (("fuzz", "canary", "--traces", "5"), 1),
        (("fuzz", "canary", "--traces=5", "--json"), 1),
    ],
)
def test_a_reader_that_closes_the_pipe_changes_no_exit_code(
    arguments: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command, environment = [sys.executable, "-m", "fuzz", *arguments], os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path, env=environment, check=False)
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (code, b"")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_the_json_option_and_default_paths(command: str, brokerproof: Any) -> None:
    ran = brokerproof(command, "--help")
    assert ran.code == 0
    assert "--json" in ran.out
    folder = {"fuzz": "build/fuzz", "campaign": "build/campaigns/", "explore": "build/explore", "tla": "build/tla"}
    assert folder.get(command, "") in re.sub(r"[│\s]+", " ", ran.out).replace("/ ", "/")


def test_help_names_every_workload(brokerproof: Any) -> None:
    words = brokerproof("compare", "--help").out.replace("`", " ").replace(",", " ").replace(".", " ").split()
    assert set(workload_names()) <= set(words)


def test_help_explains_the_exit_codes(brokerproof: Any) -> None:
    assert "Exit codes" in brokerproof("--help").out
