"""Mutants: each applies and is killed, and seeding one leaves the original modules alone."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.campaign.worker import Spec, Task, run_task
from fuzz.mutation.kill_matrix import (
    Job,
    _is_slow_only,
    is_of_model,
    job_from_json,
    job_to_json,
    jobs_of,
    kill_causes,
    run_job,
    undetected_corruption,
    unique_kills,
    unmasked_findings,
)
from fuzz.mutation.model_checks import _last_answer, killer
from fuzz.mutation.operators import code_lines, generated_of, parts_of, source_with
from fuzz.platform.json import from_json, to_json
from fuzz.run.checks import all_but
from fuzz.run.finding import Cause, Difference, Kind
from fuzz.run.lockstep import Lockstep
from fuzz.seeding import (
    Mutant,
    _dependents,
    equivalents_of,
    find_mutant,
    modules_of,
    mutants_of,
    mutated_source,
    seed_bug,
    seed_source,
    source_of,
)
from fuzz.subject import find_profile, find_subject, subject_names
from fuzz.target import Target, resolve
from model.machine import BadValue
from tests.conftest import ROOT

ALL = [m for name in subject_names() for m in mutants_of(name)]

#: The generated mutants of a module, kept because it takes a second to generate them.
made_of = functools.cache(generated_of)


#: The first mutant of each component's model and implementation; the nightly tests kill every mutant.
FIRST = {(m.subject, is_of_model(m)): m.id for m in reversed(ALL)}.values()


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(m, id=m.id, marks=[pytest.mark.nightly] * (m.id not in FIRST)) for m in ALL],
)
def test_every_mutant_is_killed(mutant: Mutant) -> None:
    killed = run_job(Job(mutant.subject, mutant.id, None, 60.0, 0))
    assert killed.killed, f"{mutant.id} survived"
    if is_of_model(mutant):
        assert killed.killed_by.startswith("fuzz property:")


@pytest.mark.nightly
@pytest.mark.parametrize("subject", sorted({m.subject for m in ALL if is_of_model(m)}))
def test_every_property_is_the_only_killer_of_a_mutant_or_has_a_reason(subject: str) -> None:
    causes = {m.id: kill_causes(m) for m in mutants_of(subject) if is_of_model(m)}
    for name, row in unique_kills(find_subject(subject), causes).items():
        # either, not both: a reason for a property that is the only killer would be superfluous
        assert bool(row["only_killer_of"]) != bool(row["stays"]), f"{name}: {row}"


@pytest.mark.parametrize("method", ["load", "check"])
@pytest.mark.parametrize("problem", ["raise IndexError", "while True: pass"])
def test_an_implementation_that_fails_on_a_wrong_state_has_noticed_it(
    method: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception or a hang of `load` or `check` in a corrupted state detects the corruption, as a line of `check` does."""
    monkeypatch.setattr("fuzz.mutation.kill_matrix.HANG_SECONDS", 0.05)
    monkeypatch.setattr("fuzz.mutation.kill_matrix._CORRUPTED_TRACES", 2)
    original = find_subject("range_cache")
    signature = {"load": "def load(cls, cfg: Config, state: State)", "check": "def check(self)"}[method]
    head, found, body = source_of("impl.range_cache").partition(f"    {signature} -> ")
    assert found
    first, _, rest = body.partition(":\n")
    failing = seed_source("range_cache", "impl.range_cache", f"{head}{found}{first}:\n        {problem}\n{rest}")
    assert undetected_corruption(failing) is None
    assert undetected_corruption(original) is None
    deaf = type("Deaf", (original.implementation,), {"check": lambda self: []})
    assert undetected_corruption(replace(original, implementation=deaf)) in original.corrupt


def test_unmasked_findings_are_all_findings_of_a_trace() -> None:
    """A trace that violates several properties gives a finding of each. A finding of another kind ends the trace."""
    subject = find_subject("range_cache")
    lockstep = Lockstep(Target(subject, find_profile(subject, "pulsar-2026-07")))
    findings = list(unmasked_findings(lockstep, range(40)))
    names = [f.broken_property for f in findings]
    assert len(names) == len(set(names)) == len(lockstep.skipped) > 2
    assert len(names) > len({f.seed for f in findings}), "one of the traces shows more than one"
    wrong = seed_bug(find_mutant("replay-is-lost"))
    seeds = [f.seed for f in unmasked_findings(Lockstep(Target(wrong, find_profile(wrong, "reference"))), range(20))]
    assert seeds == sorted(set(seeds))
    assert seeds


def test_a_finding_behind_another_defect_is_shrunk() -> None:
    """The canary has two bugs: neither may keep the other from being reproduced."""
    part = run_task(Task(Spec("canary"), 0, 64))
    assert {f.cause: (f.reproduced, f.shrunk_length) for f in part.findings} == {
        "property:at_most_four_tokens_are_taken": (True, 4),
        "view:tokens": (True, 3),
    }


def test_the_canary_is_left_out_on_request() -> None:
    assert "canary" in subject_names()
    assert "canary" not in subject_names(without_canaries=True)


def test_every_part_of_a_module_has_mutants_even_if_two_have_one_name() -> None:
    parts = parts_of("def f():\n    return 1\n\n\ndef f():\n    return 2\n")
    assert [(name, part.name, part.first) for name, part in parts.items()] == [("f", "f", 0), ("f #2", "f #2", 4)]


def test_generated_mutants_differ_and_are_deterministic() -> None:
    made = generated_of("impl.canary")
    assert len(made) > 15
    assert generated_of("impl.canary") == made
    assert len({m.id for m in made}) == len(made)
    texts = {source_with(m) for m in made}
    assert source_of("impl.canary") not in texts
    assert len(texts) == len(made)
    assert not any("int |" in m.id and "def " in m.id for m in made), "annotations are no mutants"


def test_a_generated_mutant_is_valid_python() -> None:
    made = generated_of("model.pending_acks.replay")
    assert made
    for mutant in made:
        ast.parse(source_with(mutant))


def test_a_generated_mutant_that_no_longer_applies_is_an_error() -> None:
    gone = generated_of("impl.canary")[0]._replace(occurrence=99)
    with pytest.raises(BadValue, match="no longer applies"):
        source_with(gone)


@pytest.mark.parametrize("name", [n for n in subject_names() if equivalents_of(n)])
def test_every_equivalent_quotes_a_line_of_its_function(name: str) -> None:
    for module, mutant_id in equivalents_of(name):
        within = [each for each in parts_of(source_of(module)).values() if mutant_id.startswith(f"{each.name}: ")]
        assert any(
            mutant_id.removeprefix(f"{each.name}: ").split(" =>")[0]
            in " ".join(line.strip() for line in code_lines(each.text))
            for each in within
        ), (module, mutant_id)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [n for n in subject_names() if equivalents_of(n)])
def test_every_equivalent_is_a_generated_mutant(name: str) -> None:
    modules = sorted({module for module, _ in equivalents_of(name)})
    made = [each for module in modules for each in made_of(module)]
    assert set(equivalents_of(name)) <= {(m.module, key) for m in made for key in (m.id, m.id_prefix)}


def test_an_equivalent_that_is_no_longer_made_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = {("model.ack_set", "nowhere: a => b"): "a reason"}
    monkeypatch.setattr("fuzz.mutation.kill_matrix.equivalents_of", lambda _name: gone)
    with pytest.raises(BadValue, match=r"ack_set.toml: model.ack_set has no generated mutant nowhere: a => b"):
        jobs_of(["ack_set"], generated=True, seconds=1.0, seed=0, model=True)


def test_a_model_without_a_first_state_is_rejected() -> None:
    made = generated_of("model.legacy_manager")
    mutant = next(m for m in made if m.part == "start" and ",) // cfg.caches" in m.id)
    assert run_job(Job("legacy_manager", None, mutant, 1.0, 0)).killed_by == "fuzz crash TypeError"


@pytest.mark.parametrize("share", [0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95])
def test_a_sample_of_generated_mutants_is_killed(share: float) -> None:
    made = made_of("impl.range_cache")
    mutant = made[int(share * len(made))]
    killed = run_job(Job("range_cache", None, mutant, 20.0, 0))
    assert killed.killed or killed.excuse, mutant.id


@pytest.mark.parametrize(
    ("find", "replace", "judge"),
    [
        ("if len(words) == 1:", "if len(words) != 1:", "recordings"),
        ("Batch(number, b.bits)", "Batch(number, 0)", "twin"),
        ("(no replacement)", "", None),
    ],
)
def test_a_wrong_model_is_rejected_without_implementation_and_properties(
    find: str, replace: str, judge: str | None
) -> None:
    text = source_of("model.ack_set").replace(find, replace)
    killed_by = killer(seed_source("ack_set", "model.ack_set", text), "model.ack_set", text, twin=True)
    assert (killed_by and killed_by[0]) == judge


def test_a_check_that_ends_its_process_kills_by_its_own_name() -> None:
    text = source_of("model.ack_set").replace("    if len(words) == 1:\n", "    if __import__('os')._exit(3):\n")
    assert killer(find_subject("ack_set"), "model.ack_set", text) == ("recordings", "crash")


def test_source_of_an_imported_module_is_an_internal_error() -> None:
    with pytest.raises(RuntimeError, match=r"model\.values has been imported before"):
        killer(find_subject("ack_set"), "model.values", source_of("model.values"))


@pytest.mark.parametrize(
    ("written", "ends", "last"),
    [
        (b'["","defects","crash"]\n["","recordings","7"]\n', True, ("", "recordings", "7")),
        (b'["","defects","crash"]\n', True, ("", "defects", "crash")),
        (b'["","defects","crash"]\n', False, ("", "defects", "timeout")),
        (b"", True, ("a forked process did not start its checks", "", "")),
    ],
)
def test_the_last_line_is_the_answer(
    written: bytes, ends: bool, last: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a check, the process writes that the check crashed: this line is the last if the check ends the process.

    If the process has not ended in time, the answer is a timeout of the check in the last line.
    """
    monkeypatch.setattr("fuzz.mutation.model_checks._WAITING_SECONDS", 0.05)
    reader, writer = os.pipe()
    os.write(writer, written)
    other = os.dup(writer) if not ends else reader
    os.close(writer)
    try:
        assert _last_answer(reader) == last
    finally:
        for each in {reader, other}:
            os.close(each)


def test_time_limit_of_a_mutated_model_is_processor_time() -> None:
    """The test starts its own server, whose forked process has one second."""
    code = "import fuzz.mutation.model_checks as s; s._SECONDS = 1; s._serve()"
    command = [sys.executable, "-c", code]
    text = source_of("model.ack_set").replace(
        "if len(words) == 1:", "while len(words) == 1:\n        pass\n    if False:"
    )
    request = to_json({"subject": "ack_set", "module": "model.ack_set", "source": text}) + b"\n"
    ran = subprocess.run(command, input=request, cwd=ROOT, capture_output=True, check=True)
    assert from_json(ran.stdout)[2] == "timeout"


def test_every_module_of_a_model_is_mutated() -> None:
    modules = {
        job.generated.module for job in jobs_of(["txn_rollout"], generated=True, seconds=1.0, seed=0, model=True)
    }
    assert modules == set(modules_of("model", "txn_rollout"))
    assert modules_of("impl", "nowhere") == []
    assert set(modules_of("model", "txn_log")) > {"model.txn_log", "model.txn_log.machine"}


def test_jobs_are_serialised_as_text() -> None:
    for job in jobs_of(["canary"], generated=True, seconds=1.0, seed=3)[:5]:
        assert job_from_json(job_to_json(job)) == job
    assert job_from_json(job_to_json(Job("range_cache", "replay-is-lost", None, 1.0, 0))).mutant_id == "replay-is-lost"


@pytest.mark.parametrize("name", subject_names(without_canaries=True))
def test_every_mutant_applies(name: str) -> None:
    for mutant in mutants_of(name):
        assert mutated_source(mutant) != source_of(mutant.module)


@pytest.mark.parametrize("which", ["first", pytest.param("all", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", subject_names(without_canaries=True))
def test_seeding_leaves_the_original_modules_alone(name: str, which: str) -> None:
    before = find_subject(name)
    for mutant in [m for m in mutants_of(name) if which == "all" or m.id in FIRST]:
        seeded = seed_bug(mutant)
        assert seeded is not before
        assert seeded.implementation is not before.implementation or seeded.machine is not before.machine
    assert find_subject(name) is before
    lockstep = Lockstep(Target(before, find_profile(before, "reference")))
    assert [lockstep.run(seed) for seed in range(30)] == [None] * 30


def test_a_mutant_that_no_longer_applies_is_an_error() -> None:
    mutant = mutants_of("range_cache")[0]
    with pytest.raises(BadValue, match="occurs 0 times"):
        mutated_source(mutant._replace(find="there is no such text"))
    with pytest.raises(BadValue, match=rf"occurs \d+ times in {re.escape(mutant.module)}, expected once"):
        mutated_source(mutant._replace(find="self"))
    with pytest.raises(BadValue, match="changes nothing"):
        mutated_source(mutant._replace(replace=mutant.find + "  # a comment"))


def test_a_mutant_of_no_module_or_no_python_is_an_error() -> None:
    mutant = find_mutant("replay-is-lost")
    for module in ("impl.nowhere", "nowhere.range_cache", "nowhere"):
        with pytest.raises(BadValue, match=f"there is no module {module}"):
            mutated_source(mutant._replace(module=module))
    with pytest.raises(BadValue, match=r"replay-is-lost leaves a syntax error in impl.range_cache: .*"):
        mutated_source(mutant._replace(replace="(" + mutant.find))


def test_a_mutant_has_an_origin_and_a_unique_id() -> None:
    assert all(m.origin and m.about and m.id == m.id.lower() for m in ALL)
    assert len({m.id for m in ALL}) == len(ALL)
    assert [m.id for m in ALL if m.id.startswith("spec-") != is_of_model(m)] == []


def test_an_unknown_mutant_names_the_known_ones() -> None:
    with pytest.raises(BadValue, match="there is no mutant nope of range_cache; similar are "):
        find_mutant("nope", ["range_cache"])


def test_a_bug_in_the_model_alone_is_found() -> None:
    """Lockstep compares model and implementation, so it finds a bug of either."""
    text = "    return timestamp_ns < threshold_ns\n"
    assert source_of("model.range_cache").count(text) == 1
    mutant = Mutant(
        "inclusive-expiry", "range_cache", "synthetic", "", "model.range_cache", text, text.replace("<", "<=")
    )
    subject = seed_bug(mutant)
    lockstep = Lockstep(Target(subject, find_profile(subject, "reference")))
    assert any(lockstep.run(seed) for seed in range(100))


def test_every_module_of_a_seeded_subject_is_imported_again() -> None:
    """A module that is not imported again would use the original classes, whose instances never equal the new ones."""
    original = find_subject("range_cache")
    for mutant in {m.module: m for m in mutants_of("range_cache")}.values():
        subject = seed_bug(mutant)
        assert subject.invariants is not original.invariants
        assert subject.machine is not original.machine
        modules = [vars(each.invariants.guarantees) for each in (subject, original)]
        assert modules[0]["Count"] is not modules[1]["Count"]
        [state_class] = {type(subject.machine.start(find_profile(subject, "reference")))}
        assert modules[0]["State"] is state_class
    assert find_subject("range_cache") is original


def test_a_bug_can_be_seeded_in_a_property() -> None:
    text = "    return tuple(sums) == s.sizes\n"
    mutant = Mutant(
        "x", "range_cache", "synthetic", "", "invariants.range_cache.guarantees", text, "    return not any(sums)\n"
    )
    subject = seed_bug(mutant)
    lockstep = Lockstep(Target(subject, find_profile(subject, "reference")))
    finding = next(f for f in map(lockstep.run, range(20)) if f is not None)
    assert str(finding.cause) == "property:cache_size_equals_sum_of_entry_sizes"


def test_equal_lines_have_mutants_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def f(x):\n    if x:\n        return 1 + x\n    x = 2\n    return 1 + x\n"
    monkeypatch.setattr("fuzz.mutation.operators.source_of", lambda module: source)
    made = [each for each in generated_of("m") if "=> return 1 - x" in each.id]
    assert [(each.id.rpartition("=> ")[2], each.line) for each in made] == [("return 1 - x", 3), ("return 1 - x #2", 5)]
    assert source_with(made[1]) == source[:-6] + "1 - x\n"


def test_a_slow_trace_kills_no_mutant() -> None:
    """A hang is only slow if a replay with more time finds nothing. The replay skips the properties lockstep skips."""
    lockstep = Lockstep(resolve("batch_acks", "pulsar-2026-07"))
    failing = next(each for each in map(lockstep.run, range(200)) if each is not None)
    slow = failing._replace(difference=Difference(Cause(Kind.HANG, failing.calls[-1].action), "slow"))
    assert not _is_slow_only(lockstep, slow)
    lockstep.skipped = all_but(lockstep.subject, None)
    assert _is_slow_only(lockstep, slow)


def test_a_module_that_the_subject_does_not_import_has_no_generated_mutants(monkeypatch: pytest.MonkeyPatch) -> None:
    """No trace executes the module, so each of its mutants would survive."""
    asked = list[str]()
    monkeypatch.setattr("fuzz.mutation.kill_matrix.generated_of", lambda module: asked.append(module) or [])
    monkeypatch.setattr("fuzz.mutation.kill_matrix.equivalents_of", lambda name: {})
    assert jobs_of(["txn_writer", "txn_log"], generated=True, seconds=1.0, seed=0) == []
    assert {"impl.txn_writer.writer", "impl.txn_log.entries"} <= set(asked)
    assert not {"impl.txn_writer.records", "impl.txn_writer.schema"} & set(asked)


def test_a_bug_in_a_module_that_is_not_imported_is_an_error() -> None:
    with pytest.raises(BadValue, match=r"canary does not import impl\.ack_set"):
        seed_source("canary", "impl.ack_set", source_of("impl.ack_set") + "\nchanged = True\n")


def test_a_module_that_uses_only_the_module_itself_is_a_dependent() -> None:
    """A module may have `from model import range_cache`, and no global that was defined in that module."""
    find_subject("managed_ledger")
    assert {"model.entry_cache.state", "model.managed_ledger.state"} <= set(_dependents({"model.range_cache"}))


def test_a_trace_of_a_removed_mutant_is_one_line(brokerproof: Any) -> None:
    Path("t.jsonl").write_text(
        '{"trace":"t","component":"range_cache","config":{},"brokerproof":"0","mutant":"long-gone"}\n'
    )
    ran = brokerproof("replay", "t.jsonl")
    assert ran.code == 2
    assert "t.jsonl:1: there is no mutant long-gone" in ran.err
