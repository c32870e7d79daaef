"""Wrong input of the command line: one line, the exit code 2, and nothing written."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fuzz.seeding import mutants_of
from fuzz.subject import subject_names
from model.machine import BadValue
from tests.conftest import ROOT

SEEDED = [name for name in subject_names(without_canaries=True) if mutants_of(name)]
WRONG = {
    "unknown subject": (("fuzz", "nope"), "there is no subject nope; there are "),
    "unknown subject of a campaign": (("campaign", "nope"), "there is no subject nope; there are "),
    "unknown profile": (
        ("fuzz", "range_cache", "--profile", "x"),
        "range_cache has no profile x; it has reference, pulsar-2026-07",
    ),
    "unknown profile of all": (("campaign", "--profile", "x"), "no component has a profile x"),
    "unknown other profile": (("fuzz", "range_cache", "--against", "x"), "range_cache has no profile x"),
    "unknown mutant": (("fuzz", "range_cache", "--mutant", "x"), "there is no mutant x of range_cache; similar are "),
    "unknown option": (("fuzz", "range_cache", "--nope"), "No such option: --nope"),
    "unknown command": (("nope",), "No such command 'nope'"),
    "no subject": (("fuzz",), "Missing argument 'subject'"),
    "negative seed": (("fuzz", "range_cache", "--seed", "-1"), "--seed"),
    "huge seed": (("fuzz", "range_cache", "--seed", str(2**63)), "less than or equal to 1000000000000000000. "),
    "huge trace": (("fuzz", "range_cache", "--steps", str(10**20)), "--steps"),
    "huge number of processes": (("fuzz", "range_cache", "--jobs", "999999999"), "--jobs"),
    "a bug of an implementation that does not run": (
        ("fuzz", "range_cache", "--mutant", "clear-keeps-size", "--profile", "stash"),
        "clear-keeps-size is a bug of the implementation, which would not run: ",
    ),
    "a bug of the implementation for a property": (
        ("fuzz", "range_cache", "--mutant", "clear-keeps-size", "--property", "put_appends_entry_as_given"),
        "clear-keeps-size is a bug of the implementation, which would not run: ",
    ),
    "unknown profile of a component with releases": (("fuzz", "batch_acks", "--profile", "x"), ", pulsar-5.0\n"),
    "no traces": (("fuzz", "range_cache", "--traces", "0"), "equal to 1. Try brokerproof fuzz --help.\n"),
    "text for a number": (("fuzz", "range_cache", "--traces", "many"), "--traces"),
    "no report": (("report", "nowhere"), "nowhere holds no campaign: there is no campaign.json"),
    "no benchmark": (("bench", "nope"), "there is no benchmark nope; their names begin with lockstep, campaign, "),
    "unknown scope": (("explore", "range_cache", "--scope", "x"), "range_cache has no scope x; it has smoke, ci, "),
    "cover on Spark": (("explore", "range_cache", "--spark", "--cover"), "--cover needs the graph"),
    "unknown subject of mutants": (("mutants", "nope"), "there is no subject nope; there are "),
    "a twin without mutants of the model": (
        ("mutants", "range_cache", "--generated", "--twin"),
        "--twin applies to mutants of the model only: add --model\n",
    ),
    "no mutants": (("mutants", "legacy_cache"), f"legacy_cache has no mutants; these have: {', '.join(SEEDED)}\n"),
    "a profile against itself": (("fuzz", "range_cache", "--against", "reference"), "must name another profile"),
    "no profile": (("fuzz", "range_cache", "--profile"), "The profiles of range_cache are reference, pulsar-2026-07, "),
    "unknown property": (("fuzz", "range_cache", "--property", "x"), "range_cache has no property x; it has "),
    "a coverage goal as property": (
        ("fuzz", "range_cache", "--property", "copy_outlives_its_entry"),
        "copy_outlives_its_entry is a coverage goal, --property takes a safety property: ",
    ),
    "a property against a profile": (
        ("fuzz", "range_cache", "--property", "cache_size_equals_sum_of_entry_sizes", "--against", "stash"),
        "use --against or --property, not both",
    ),
    "no file": (("replay", "nowhere.jsonl"), "nowhere.jsonl: cannot be read"),
    "no schedule": (("client", "producer", "--trace", "nowhere.json"), "nowhere.json: cannot be read"),
    "no path of a workload": (("compare", "file:"), "there is no workload file:; there are catch_up, "),
    "no name of a parameter": (("compare", "tailing", "--set", "=1"), "--set =1 must be NAME=VALUE"),
    "no defect": (("evidence", "canary", "--defect", "x"), "canary has no defect x; it has none\n"),
    "no folder for the results of tests": (
        ("check", "--junit", "nowhere/out.xml"),
        "--junit nowhere/out.xml cannot be written: there is no folder ",
    ),
    "an option of git as a revision": (
        ("check", "--since", "--output=x"),
        "--since --output=x: fatal: bad revision '--output=x'",
    ),
    "a folder without traces": (("replay", "."), "no file below this folder ends in .jsonl, "),
    "a table that exists": (("replay", "x.jsonl", "--out", "."), ". exists; choose another --out"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_is_one_line_and_exit_code_two(case: str, brokerproof: Any) -> None:
    arguments, said = WRONG[case]
    ran = brokerproof(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("brokerproof: ")
    assert ran.err.count("\n") == 1, ran.err
    assert said in ran.err, ran.err
    assert not list(Path().iterdir()), "nothing is written"


def test_a_campaign_folder_of_other_parameters_is_refused_before_spark_starts(brokerproof: Any) -> None:
    Path("out").mkdir()
    Path("out/campaign.json").write_text('{"brokerproof":"0.0.1+older","seed":0,"block":64,"specs":[]}')
    ran = brokerproof("campaign", "range_cache", "--out", "out")
    assert ran.code == 2
    assert "holds a campaign of another version" in ran.err
    assert ran.err.count("\n") == 1
    assert [p.name for p in Path("out").iterdir()] == ["campaign.json"]


def test_an_output_that_cannot_be_written_is_one_line(brokerproof: Any) -> None:
    Path("file").write_text("in the way")
    ran = brokerproof(
        "fuzz",
        "range_cache",
        "--traces",
        1,
        "--mutant",
        "max-requeue-setting-ignored-at-start",
        "--seed",
        2,
        "--out",
        "file",
    )
    assert ran.code == 2
    assert "cannot be written" in ran.err
    assert ran.err.count("\n") == 1, ran.err
    assert Path("file").read_text() == "in the way"


@pytest.mark.parametrize("command", [("fuzz", "range_cache"), ("explore", "canary"), ("sut", "ack_set", "--", "true")])
def test_an_output_that_cannot_be_written_is_reported_before_the_run(
    command: tuple[str, ...], brokerproof: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: Any, **_options: Any) -> Any:
        raise AssertionError("the run was started")

    for work in ("fuzz.run_request", "explore.explore", "sut.Program"):
        monkeypatch.setattr(f"fuzz.commands.{work}", started)
    Path("file").write_text("in the way")
    ran = brokerproof(*command[:2], "--out", "file", *command[2:])
    assert (ran.code, ran.err.count("\n")) == (2, 1), ran.err
    assert "file is not a folder; choose another --out" in ran.err


def test_a_folder_that_is_named_as_a_plot_is_reported_before_the_run(brokerproof: Any) -> None:
    Path("x.svg").mkdir()
    ran = brokerproof("compare", "transfer", "--policy", "V0", "--size", "1", "--out", "x.svg")
    assert (ran.code, ran.err) == (2, "brokerproof: --out x.svg cannot be written: it is a folder\n")


def test_a_document_that_is_no_text_is_one_line(brokerproof: Any) -> None:
    Path("page.md").write_bytes(b"\xe0\x00")
    ran = brokerproof("evidence", "canary", "--write", "page.md")
    assert (ran.code, ran.err.count("\n")) == (2, 1), ran.err
    assert "page.md: is no text in UTF-8" in ran.err


@pytest.mark.parametrize("command", ["explore", "mutants"])
def test_a_spark_master_implies_spark(command: str, brokerproof: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(name: str, master: str) -> Any:
        raise BadValue(f"started {master}")

    monkeypatch.setattr(f"fuzz.commands.{command}.session", started)
    assert "started spark://here:7077" in brokerproof(command, "ack_set", "--master", "spark://here:7077").err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--out", "file"), "file is not a folder; choose another --out"),
        (("--out", "file/below"), "file is not a folder; choose another --out"),
        (("--mutant", "nope"), "there is no mutant nope"),
        (("--profile", "nope"), "range_cache has no profile nope"),
    ],
)
def test_wrong_input_of_a_campaign_is_reported_before_spark_starts(
    arguments: tuple[str, ...], said: str, brokerproof: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: Any) -> Any:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("fuzz.commands.campaign.session", started)
    Path("file").write_text("in the way")
    ran = brokerproof("campaign", "range_cache", *arguments)
    assert (ran.code, ran.err.count("\n")) == (2, 1), ran.err
    assert said in ran.err
    assert [p.name for p in Path().iterdir()] == ["file"]


MISTAKES = {
    "an action without a docstring": (
        "model/canary.py",
        '    """Removes the given number of tokens, or all if there are fewer; the outcome is the number removed."""\n',
        "",
        "canary.take has no docstring; the docstring must say what the action does",
    ),
    "a method that is missing": (
        "impl/canary.py",
        "def take(",
        "def taken(",
        "impl.canary.TokenStore has no method take, which model.canary requires",
    ),
    "a file of mutants that does not parse": (
        "fuzz/mutants/canary.toml",
        "",
        "[mutant.x\n",
        "fuzz/mutants/canary.toml: ",
    ),
    "a mutant whose text is gone": (
        "fuzz/mutants/canary.toml",
        "",
        '[mutant.x]\nabout="a"\nfind="gone"\nreplace="g"\n',
        "the mutant x no longer applies: its text occurs 0 times in impl.canary",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_an_author_s_mistake_is_one_line_and_exit_code_two(case: str, tmp_path: Path) -> None:
    """Runs `fuzz` in a copy of the layers with one changed file."""
    name, before, after, said = MISTAKES[case]
    for layer in ("model", "impl", "invariants", "fuzz"):
        shutil.copytree(ROOT / layer, tmp_path / layer, ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / name
    text = path.read_text() if path.exists() else ""
    assert before in text
    path.write_text(text.replace(before, after, 1))
    command = [sys.executable, "-m", "fuzz", "fuzz", "canary", "--traces", "1"]
    command += ["--mutant", "x"] if path.suffix == ".toml" else []
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith("brokerproof: " + said)
    assert done.stderr.count("\n") == 1, done.stderr
