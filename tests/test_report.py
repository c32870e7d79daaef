"""The report and the explanation of findings: the same record for the terminal, JSON and HTML."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from rich.console import Console

import fuzz.campaign.summary
import fuzz.report.campaign
from fuzz.campaign.driver import Inline, run_campaign
from fuzz.campaign.folder import Plan, State, open_campaign, read_plan
from fuzz.campaign.store import MemoryStore
from fuzz.campaign.summary import compared, missed_by_campaign
from fuzz.campaign.worker import BLOCK, FindingRow, Spec, Task, run_task, trace_of
from fuzz.commands import replay as replay_command
from fuzz.commands.campaign import explained_findings, specs_of
from fuzz.commands.replay import ReplayResult
from fuzz.defects.table import defects_of
from fuzz.report.campaign import line_style, render, speed_of
from fuzz.report.changes import Change, changes
from fuzz.report.diagram import all_diagrams
from fuzz.report.explain import explain, readable
from fuzz.report.finding import known_defect, parse_trace, related_defect
from fuzz.report.in_pulsar import java_of
from fuzz.report.records import ExplainedFinding
from fuzz.report.sequence import charts, sequence_chart
from fuzz.report.terminal import show_explanation, show_findings
from fuzz.report.text import first_sentence
from fuzz.report.why import why
from fuzz.run.call import Call
from fuzz.run.checks import all_but
from fuzz.run.coverage import Row, Total
from fuzz.run.finding import Cause, Kind
from fuzz.run.replay import replay
from fuzz.run.watchdog import time_limit, watchdog
from fuzz.subject import find_profile, find_subject, introduction_of, module_of, subject_names
from fuzz.target import Target, resolve
from fuzz.trace.agreement import replayer_of
from fuzz.trace.file import ABSENT, ENGINE_KEY, Operation, Trace
from impl.range_cache import RangeCaches
from invariants.properties import Event, always, history
from model.machine import BadValue, Refused, plain
from model.values import Origin, Rule
from tests.conftest import ROOT, planned_steps

Ran = tuple[Plan, State, list[ExplainedFinding]]


def run(spec: Spec, traces: int) -> Ran:
    store, plan = MemoryStore(), Plan((spec,), 0)
    state = run_campaign(store, plan, open_campaign(store, plan), Inline(), traces=traces)
    return plan, state, explained_findings(store, state)


@pytest.fixture(scope="module")
def seeded() -> Ran:
    return run(Spec("range_cache", mutant="duplicate-put-leaves-slot-in-queue"), BLOCK)


@pytest.fixture(scope="module")
def shipped() -> Ran:
    return run(Spec("range_cache", profile="pulsar-2026-07"), BLOCK)


def printed(findings: list[ExplainedFinding]) -> str:
    text = io.StringIO()
    show_findings(Console(file=text, width=160, soft_wrap=True, highlight=False), findings)
    return text.getvalue()


# ---- two campaigns ----------------------------------------------------------------------------------------


def test_two_campaigns_are_compared_by_signature_and_coverage(seeded: Ran) -> None:
    seeded_plan, state, findings = seeded
    plan, plain_state, _ = run(Spec("range_cache"), BLOCK // 2)
    signatures = sorted(f.signature for f in findings)
    mended = compared((plan, plain_state), (plan, state), "older")  # as if the bug was in the older code
    assert (mended.new, mended.gone, mended.known) == ([], signatures, [])
    broken = compared((plan, state), (plan, plain_state), "older")
    assert (broken.new, broken.gone, broken.known) == (signatures, [], [])
    gained = [line for line in broken.coverage_gained if " abstract states" not in line]
    assert all(line.startswith("range_cache: ") for line in gained)
    same = compared((plan, state), (plan, state), "older")
    assert (same.new, same.gone, same.known, same.coverage_gained) == ([], [], signatures, [])
    html = render(*seeded, [], broken)
    assert "Since the campaign in older" in html
    for older in (Plan((Spec("ack_set"),), 0), seeded_plan):
        with pytest.raises(
            BadValue,
            match="older ran none of this campaign's components under the same profile and with the same mutant",
        ):
            compared((plan, plain_state), (older, State()), "older")


def test_equal_signatures_of_two_components_are_two_findings() -> None:
    names = ("ack_set", "canary")
    plan = Plan(tuple(Spec(name) for name in names), 0)
    first, second = (State(findings=[FindingRow(n, "reference", "same", "c", 0, 1, 1, "", 2, 2, "")]) for n in names)
    changed = compared((plan, second), (plan, first), "older")
    assert (changed.new, changed.gone, changed.known) == (["same"], ["same"], [])


def test_coverage_gained_is_named() -> None:
    older, newer = State(coverage={"canary": Total()}), State(coverage={"canary": Total()})
    for row in (
        Row("goal", "full", 0, 3),
        Row("pair", "put take", 2, -1),
        Row("pair", " put", 1, -1),
        Row("abstract", "[1]", 0, 5),
    ):
        newer.coverage["canary"].add(row)
    plan = Plan((Spec("canary"),), 0)
    found = compared((plan, newer), (plan, older), "older").coverage_gained
    pairs = ["canary: first action put", "canary: pair put take"]
    assert found == ["canary: goal full", *pairs, "canary: 1 abstract states"]
    assert compared((plan, older), (plan, newer), "older").coverage_gained == []


# ---- HTML -------------------------------------------------------------------------------------------------


def test_the_report_is_one_file_without_links_to_others(seeded: Ran) -> None:
    html = render(*seeded, [])
    assert re.findall(r'(?:src|href)="(?!data:|#)', html) == []
    assert "<script" not in html
    assert "http" not in re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", html)


def test_the_report_names_the_version_that_ran(seeded: Ran) -> None:
    plan, state, findings = seeded
    assert "page was written later" not in render(plan, state, findings, [])
    store = MemoryStore()
    open_campaign(store, plan._replace(version="0.1.0+older"))
    old = read_plan(store)
    assert old.version == "0.1.0+older"
    html = render(old, state, findings, [])
    assert "brokerproof <code>0.1.0+older</code>; this page was written later, by <code>" in html


def test_the_report_shows_a_finding_step_by_step(seeded: Ran) -> None:
    html = render(*seeded, [])
    assert "view:queue after put put" in html
    assert "with a seeded bug: duplicate-put-leaves-slot-in-queue" in html
    for heading in ("action", "outcome", "changes of the state", "Model and implementation after the last step"):
        assert heading in html
    assert html.count("data:image/png") == 3, "heat map, saturation, throughput"
    assert "`" not in re.sub(r"<pre>.*?</pre>", "", html, flags=re.DOTALL), "text between backticks is code"


def test_a_broken_property_is_shown_with_the_condition_that_is_false(shipped: Ran) -> None:
    html = render(*shipped, [])
    sections = re.findall(r'<section id="finding-.*?</section>', html, re.DOTALL)
    assert len(sections) == len({(f.subject, f.cause) for f in shipped[2]}) > 0
    for section in sections:
        assert "Why the property is false" in section
        assert "implementation:" not in section, "the model runs alone under this profile"


def test_the_speed_of_a_worker_is_that_of_fuzzing_alone(seeded: Ran) -> None:
    found, clean = (run_task(Task(spec, 0, BLOCK)) for spec in (seeded[0].specs[0], Spec("range_cache")))
    assert 0 < found.shrinking_seconds < found.seconds
    assert clean.shrinking_seconds < 0.01 * clean.seconds
    rows = [
        {"steps": 900, "seconds": 10.0, "shrinking_seconds": 9.0},
        {"steps": 100, "seconds": 1.0, "shrinking_seconds": 0.0},
    ]
    assert speed_of(rows) == 500.0
    assert 0 < seeded[1].shrinking_share < 1
    assert State().shrinking_share == 0.0


def test_the_report_says_what_ran(seeded: Ran, shipped: Ran) -> None:
    assert "Model and implementation ran in lockstep: both executed the same steps." in render(*seeded, [])
    assert "The model ran alone" not in render(*seeded, [])
    assert "The model ran alone for range_cache" in render(*shipped, [])
    assert "in lockstep" not in render(*shipped, [])


def test_a_goal_that_was_not_reached_is_listed_and_red_if_the_campaign_is_long_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan, state, findings = run(Spec("range_cache"), BLOCK)
    goal = sorted(state.coverage["range_cache"].of("goal"))[0]
    state.coverage["range_cache"].seen.pop(("goal", goal))
    short = render(plan, state, findings, [])
    assert f'<td class="mono ">{goal}</td>' in short
    assert "This is not a failure: a campaign must reach all goals" in short
    real = fuzz.report.campaign.target_of

    def demanding(spec: Spec) -> Any:
        target = real(spec)
        return replace(target, subject=replace(target.subject, min_steps_for_coverage=1))

    monkeypatch.setattr(fuzz.report.campaign, "target_of", demanding)
    long = render(plan, state, findings, [])
    assert f'<td class="mono red">{goal}</td>' in long
    assert "This is not a failure" not in long


@pytest.mark.parametrize("name", subject_names())
def test_a_section_begins_with_what_the_component_is(name: str) -> None:
    title, picture = introduction_of(name)
    assert title.endswith(".")
    assert picture.endswith(".")
    assert 100 < len(picture) < 720, "a few sentences"
    assert "`" not in picture, "no names of code"


def test_a_campaign_without_findings_says_so_in_verdict_words() -> None:
    plan, state, findings = run(Spec("range_cache"), 2 * BLOCK)
    words = re.sub(r"<[^>]+>", "", render(plan, state, findings, missed_by_campaign(plan, state)))
    assert f"No finding in {planned_steps('range_cache', range(2 * BLOCK)):,} steps of 128 traces" in words
    assert "verified" not in words.lower()


def test_a_run_that_was_long_enough_and_missed_a_goal_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, state, findings = run(Spec("range_cache"), BLOCK)
    assert missed_by_campaign(plan, state) == [], "too short to say"
    real = fuzz.campaign.summary.target_of

    def demanding(spec: Spec) -> Any:
        target = real(spec)
        return replace(target, subject=replace(target.subject, min_steps_for_coverage=1))

    monkeypatch.setattr(fuzz.campaign.summary, "target_of", demanding)
    total: Total = state.coverage["range_cache"]
    goal = sorted(total.of("goal"))[0]
    total.seen.pop(("goal", goal))
    missed = f"range_cache: {goal} not reached in {planned_steps('range_cache', range(BLOCK)):,} steps"
    assert missed in missed_by_campaign(plan, state)
    assert f"{goal} not reached" in render(plan, state, findings, missed_by_campaign(plan, state))


def test_no_two_components_are_drawn_alike() -> None:
    styles = [tuple(line_style(index).items()) for index in range(30)]
    assert len(set(styles)) == 30 > len(subject_names())


def test_each_of_several_components_is_linked_from_the_top() -> None:
    store, plan = MemoryStore(), Plan((Spec("txn_log"), Spec("pending_acks")), 0)
    state = run_campaign(store, plan, open_campaign(store, plan), Inline(), traces=BLOCK)
    html = render(plan, state, [], [])
    for name in ("txn_log", "pending_acks"):
        assert f'<a href="#{name}">' in html
        assert html.count(f'id="{name}"') == 1


# ---- findings ---------------------------------------------------------------------------------------------


def test_the_steps_of_a_trace_end_with_the_difference(seeded: Ran) -> None:
    _, state, findings = seeded
    explanation = explain(parse_trace(state.merge_findings()[0].trace))
    assert [step.action for step in explanation.steps] == ["put", "put"]
    assert (explanation.kind, explanation.field, explanation.problem) == ("view", "queue", "")
    assert "differs  model -> implementation: queue" in printed(findings)
    assert explanation == findings[0].explanation


def test_a_finding_is_printed_with_actions_outcomes_and_changes(shipped: Ran) -> None:
    text = printed(shipped[2])
    assert "finding 1 of " in text
    assert text.count(" guarantee ") == len({f.cause for f in shipped[2]})
    assert re.search(r"\d  put\(cache=0, position=\[", text)
    assert "returns true" in text
    assert "queue[0] added: {cache=0" in text
    assert "brokerproof replay " in text
    assert "known " in text, "the row of the defect table"
    assert "expected true" not in text.lower()


def test_findings_of_one_cause_are_printed_once(shipped: Ran) -> None:
    first = shipped[2][0]
    longer = msgspec.structs.replace(first, seed=99, shrunk_length=first.shrunk_length + 1, replay="replay longer")
    text = printed([longer, first])
    assert text.count("finding ") == text.count(" guarantee ") == 1
    assert f"also  seed 99, {first.shrunk_length + 1} steps: replay longer" in text


def test_a_trace_of_another_version_is_explained_as_such(seeded: Ran) -> None:
    text = seeded[1].merge_findings()[0].trace.replace('"op":"put"', '"op":"put_before"')
    explanation = explain(parse_trace(text))
    assert "range_cache has no action put_before" in explanation.problem


def test_a_hang_is_explained_and_reproduced(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(RangeCaches):
        def clear(self, cache: int) -> Any:
            while True:
                pass

    subject = replace(find_subject("range_cache"), implementation=Endless)
    target = Target(subject, find_profile(subject, "reference"))
    finding = replay(target, [Call("clear", (0,))], hang_seconds=0.1)
    assert finding is not None
    trace = trace_of(target, Spec("range_cache"), finding)
    monkeypatch.setattr("fuzz.report.explain.subject_or_mutant", lambda name, mutant: subject)
    with watchdog(20):
        explanation = explain(trace)
        [mismatch] = replayer_of(trace, subject=subject).replay(trace).mismatches
    assert (explanation.kind, [step.action for step in explanation.steps]) == ("hang", ["clear"])
    assert replay_command._is_cause(trace, mismatch)
    assert mismatch.message == f"the replay did not end within {time_limit(1):g} s of processor time"
    console = Console(record=True, file=io.StringIO(), width=200)
    show_explanation(console, explanation, mismatch.message)
    assert f" actual  {mismatch.message}\n" in console.export_text()


def test_a_difference_of_outcomes_shows_no_condition_of_a_property(monkeypatch: pytest.MonkeyPatch) -> None:
    """History variables are not updated at a step whose outcomes differ, so a property of them could seem false."""
    canary = find_subject("canary")

    class Wrong(canary.implementation):  # type: ignore[misc]
        def add(self, tokens: int) -> Any:
            return super().add(tokens) + 1

    @history(canary.machine, initial=lambda cfg: 0)
    def added(cfg: Any, value: int, before: Any, event: Event, after: Any) -> int:
        """The number of tokens that were added."""
        return value + max(0, after.tokens - before.tokens)

    @always(canary.machine, history=(added,))
    def tokens_were_added(cfg: Any, s: Any, added: int) -> bool:
        """There are no more tokens than were added."""
        return bool(s.tokens <= added)

    properties = ModuleType("properties")
    vars(properties)["tokens_were_added"] = tokens_were_added
    subject = replace(canary, implementation=Wrong, invariants=properties)
    monkeypatch.setattr("fuzz.report.explain.subject_or_mutant", lambda name, mutant: subject)
    explanation = explain(Trace("t", "canary", {}, [Operation("add", {"tokens": 1}, 1, ABSENT, 2)], {ENGINE_KEY: "0"}))
    assert (explanation.problem, explanation.kind, explanation.conditions) == ("", "outcome", [])


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1, "b": [1, 2]}, {"a": 2, "b": [1, 3]}, [("a", "changed"), ("b", "changed")]),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, [("a.b", "changed")]),
        ({"q": [{"x": 1}, {"x": 2}]}, {"q": [{"x": 2}]}, [("q[0]", "removed")]),
        ({"q": [{"x": 1}]}, {"q": [{"x": 1}, {"x": 3}]}, [("q[1]", "added")]),
        ({"q": [{"x": 1}]}, {"q": [{"x": 4}]}, [("q[0].x", "changed")]),
        ({"q": [[1]]}, {"q": []}, [("q[0]", "removed")]),
        ({"q": [{"x": 1}, {"x": 2}]}, {"q": [{"x": 2}, {"x": 3}]}, [("q[0]", "removed"), ("q[1]", "added")]),
        ({"b": [{"x": 1}, {"x": 1}]}, {"b": [{"x": 2}, {"x": 1}]}, [("b[0].x", "changed")]),
        ({"b": [{"x": 1}, None, None]}, {"b": [None, None, None]}, [("b[0]", "changed")]),
        (None, {"a": 1}, [("", "changed")]),
        ({"a": 1}, {"a": 1}, []),
    ],
)
def test_changes_name_the_smallest_part(before: Any, after: Any, expected: list[tuple[str, str]]) -> None:
    found: list[Change] = list(changes(before, after))
    assert [(change.path, change.kind) for change in found] == expected


def test_a_guarantee_is_cut_after_its_first_sentence() -> None:
    assert first_sentence("A holds. B breaks it.") == "A holds."
    assert first_sentence("Version 1.5 holds") == "Version 1.5 holds"


# ---- where to look in Pulsar ------------------------------------------------------------------------------

BROKEN = "added_entry_is_unacknowledged"


@pytest.fixture(scope="module")
def lost_ack() -> Trace:
    """A finding like that of the README. Its first step already violates another property."""
    target, spec = resolve("batch_acks", "pulsar-2026-07"), Spec("batch_acks", "pulsar-2026-07")
    call = {"position": [1, 4], "ack_set": [14]}
    actions = target.subject.machine.actions
    calls = (
        Call("ack_cumulative", actions["ack_cumulative"].arguments(call, target.config)),
        Call("add_entry", actions["add_entry"].arguments({}, target.config)),
    )
    first = replay(target, calls)
    assert first is not None
    assert (first.broken_property, len(first.calls)) == ("ack_set_has_some_but_not_all_messages", 1)
    found = replay(target, calls, skipped=all_but(target.subject, BROKEN))
    assert found is not None
    return trace_of(target, spec, found)


def replayed(trace: Trace, folder: Path) -> tuple[ReplayResult, str]:
    path = folder / "finding.jsonl"
    path.write_bytes(b"".join(trace.lines()))
    text = io.StringIO()
    console = Console(file=text, width=160, soft_wrap=True, highlight=False)
    result = replay_command.run(replay_command.Options([str(path)]), console)
    replay_command.show(console, result)
    return result, text.getvalue()


def test_the_readme_shows_what_its_command_prints(brokerproof: Any) -> None:
    """Each line of the README's finding is a line of the command's output, in this order."""
    readme = (ROOT / "README.md").read_text()
    [command] = re.findall(r"^    brokerproof (fuzz batch_acks .*--stop-at-first)$", readme, re.MULTILINE)
    ran = brokerproof(*command.split(), "--seconds", "60")
    shown = readme[
        readme.index("\n    ", readme.index("Shortened, the output of `fuzz` is:")) : readme.index("\n\n1. ")
    ]
    expected = [" ".join(line.split()) for line in shown.strip().splitlines()]
    printed = iter([" ".join(line.split()) for line in ran.out.splitlines()])
    assert ran.code == 1
    assert len(expected) > 10
    assert [line for line in expected if line not in printed] == []


def test_a_replay_checks_the_property_that_the_finding_names(lost_ack: Trace, tmp_path: Path) -> None:
    result, text = replayed(lost_ack, tmp_path)
    [row] = result.differences
    assert (row.op, row.fields, row.reproduced) == ("add_entry", [f"property:{BROKEN}"], True)
    assert row.explanation is not None
    assert [step.action for step in row.explanation.steps] == ["ack_cumulative", "add_entry"]
    assert f"line 3: add_entry, property:{BROKEN}" in text
    assert "1 finding reproduced" in text


def test_a_replay_checks_all_properties_if_the_one_that_the_finding_names_holds(
    lost_ack: Trace, tmp_path: Path
) -> None:
    other = replace(lost_ack, header=lost_ack.header | {"cause": "property:completed_reset_takes_effect"})
    result, text = replayed(other, tmp_path)
    [row] = result.differences
    assert (row.op, row.reproduced) == ("ack_cumulative", False)
    assert row.fields == ["property:ack_set_has_some_but_not_all_messages"]
    assert row.explanation is not None
    assert [step.action for step in row.explanation.steps] == ["ack_cumulative"]
    assert "reproduced" not in text


def test_a_finding_names_the_java_methods_of_its_steps_and_the_rules_that_it_needs(lost_ack: Trace) -> None:
    explanation = explain(lost_ack)
    assert [step.java for step in explanation.steps] == [["ManagedCursorImpl.asyncMarkDelete"], ["OpAddEntry"]]
    assert explanation.classes == ["ManagedCursorImpl", "OpAddEntry"]
    [row] = [row for row in defects_of("batch_acks") if row.property == BROKEN]
    assert {rule.name for rule in explanation.rules} == set(row.rules), "found without the defect table"
    assert all("ManagedCursorImpl.asyncMarkDelete" in rule.source for rule in explanation.rules)
    path, line = explanation.source.split(":")
    assert f"def {BROKEN}(" in "".join((ROOT / path).read_text().splitlines(keepends=True)[int(line) - 1 :][:3])


@pytest.mark.parametrize("name", subject_names(without_canaries=True))
def test_the_rules_that_a_finding_needs_choose_its_known_defect(name: str) -> None:
    """Several rows may have one profile and property. A trace that needs none of their rules shows a new defect."""
    subject = find_subject(name)
    for row in defects_of(name):
        config, cause = plain(find_profile(subject, row.profile)), Cause(Kind.PROPERTY, row.property)
        found = known_defect(name, config, cause, [*row.rules, "another_rule"])
        assert found is not None
        assert found.id == row.id or {*found.rules} <= {*row.rules}
        assert known_defect(name, config, cause, ["another_rule"]) is None
        assert known_defect(name, config, cause, []) is not None
        assert known_defect(name, plain(find_profile(subject, "reference")), cause, row.rules) is None


def test_a_finding_without_a_row_shows_the_defect_of_its_rules(shipped: Ran) -> None:
    """Otherwise a reader of the finding would report a known defect again."""
    for found in shipped[2]:
        assert found.related is None or found.defect is None
    config = plain(find_profile(find_subject("batch_acks"), "pulsar-2026-07"))
    found = related_defect("batch_acks", config, ["another_rule", "cumulative_ack_is_validated_first"])
    assert found is not None
    assert found.id == "rejected-cumulative-ack-set-is-kept"
    both = ["cumulative_sets", "cumulative_ack_is_validated_first"]
    kept = Cause(Kind.PROPERTY, "acknowledged_message_stays_acknowledged")
    assert related_defect("batch_acks", config, both) == found, "the row with both rules"
    assert known_defect("batch_acks", config, kept, both) is None
    assert known_defect("batch_acks", config, kept, both[:1]) is not None
    assert related_defect("batch_acks", config, ["another_rule"]) is None
    assert related_defect("batch_acks", config, []) is None


def test_a_defect_is_known_under_the_profile_of_a_release() -> None:
    [row] = [row for row in defects_of("batch_acks") if row.property == BROKEN]
    assert row.profile != "pulsar-4.1"
    released = plain(find_profile(find_subject("batch_acks"), "pulsar-4.1"))
    assert known_defect("batch_acks", released, Cause(Kind.PROPERTY, BROKEN), row.rules) == row


def test_a_campaign_of_a_release_has_every_component_that_was_compared_with_it() -> None:
    specs = {spec.subject: spec.profile for spec in specs_of([], "pulsar-4.1", None)}
    assert specs == {
        name: find_subject(name).machine.releases["4.1"]
        for name in subject_names(without_canaries=True)
        if "4.1" in find_subject(name).machine.releases
    }
    assert (specs["active_cursors"], specs["range_cache"]) == ("pulsar-2026-07", "pulsar-4.1")
    assert "Profile pulsar-2026-07: " in render(*run(specs_of(["active_cursors"], "pulsar-4.1", None)[0], 1), [])


def test_a_rule_has_a_source_and_an_origin_for_each_value() -> None:
    sources = {"first": "A.add; B.add", "last": "A.add; B.add", True: "C"}
    rule = Rule(Origin.RECORDED, sources, {Origin.OBSERVED: {"none": "D"}})
    assert rule.text == "first, last: A.add; B.add; true: C; observed, not recorded: none, D"
    assert rule.source_of("last") == (Origin.RECORDED, "A.add; B.add"), "the whole source, with its semicolon"
    assert rule.source_of("none") == (Origin.OBSERVED, "D")
    assert rule.source_of("other") == (Origin.RECORDED, rule.text)


def test_a_finding_of_a_seeded_bug_needs_no_rule(seeded: Ran) -> None:
    assert all(each.explanation.rules == [] for each in seeded[2])
    assert seeded[2][0].explanation.steps[0].java == ["RangeCache.put"]


@pytest.mark.parametrize("name", subject_names(without_canaries=True))
def test_the_java_methods_of_a_component_are_those_that_its_actions_name(name: str) -> None:
    machine = find_subject(name).machine
    named = {each for action in machine.actions for each in java_of(machine, action)}
    assert {f"{owner}.{each}" for owner, methods in machine.java.items() for each in methods} <= named
    assert machine.java or name == "txn_rollout", "steps of an operator, no class"
    text = " ".join([module_of(name).__doc__ or "", *[action.docstring for action in machine.actions.values()]])
    assert all(owner in text or machine.java[owner] for owner in machine.java)


# ---- why a predicate is false -----------------------------------------------------------------------------


def all_small(limit: int, values: tuple[int, ...]) -> bool:
    return limit > 0 and all(value < limit or value == 100 for value in values)


def by_loop(limit: int, values: tuple[int, ...]) -> bool:
    for value in values:
        if value >= limit:
            return False
    return bool(values)


def by_call(limit: int, values: tuple[int, ...]) -> bool:
    return not any(not all_small(limit, values) for _ in range(1))


def by_branch(limit: int, values: tuple[int, ...]) -> bool:
    return len(values) == limit if limit < 3 else bool(sum(values) <= limit)


def by_variable(limit: int, values: tuple[int, ...]) -> bool:
    is_small = sum(values) <= limit
    return bool(values) and not (limit < 0 or not is_small)


def is_less(count: int, limit: int) -> bool:
    return count < limit


def by_call_with_expression(limit: int, values: tuple[int, ...]) -> bool:
    return is_less(len(values) + 1, limit)


@pytest.mark.parametrize(
    ("predicate", "condition", "shown"),
    [
        (all_small, "value < limit", {"value": 9, "limit": 4}),
        (by_loop, "value >= limit", {"value": 9, "limit": 4}),
        (by_call, "value < limit", {"value": 9, "limit": 4}),
        (by_branch, "sum(values) <= limit", {"sum(values)": 12, "limit": 4, "values": (1, 2, 9)}),
        (by_variable, "sum(values) <= limit", {"sum(values)": 12, "limit": 4, "values": (1, 2, 9)}),
        (by_call_with_expression, "count < limit", {"count": 4, "limit": 4, "len(values) + 1": 4}),
    ],
)
def test_the_deciding_condition_is_found(predicate: Any, condition: str, shown: dict[str, Any]) -> None:
    assert predicate(4, (1, 2, 9)) is False
    reasons = why(predicate, (4, (1, 2, 9)))
    [reason] = [each for each in reasons if each.condition == condition]
    assert dict(reason.operands) == shown


def is_full(limit: int | None, values: tuple[int, ...]) -> bool:
    return limit is not None and limit.bit_length() >= 9 and sum(values) >= limit


def grows(count: int, values: tuple[int, ...]) -> bool:
    return count > sum(values) or count > len(values)


def test_operands_after_the_deciding_one_are_not_evaluated() -> None:
    [reason] = why(is_full, (None, (1, 2)))
    assert (reason.condition, reason.holds) == ("limit is not None", False)


def test_the_operands_are_in_the_order_of_the_source() -> None:
    first, second = why(grows, (1, (1, 2)))
    assert [text for text, _ in first.operands] == ["count", "sum(values)", "values"]
    assert [text for text, _ in second.operands] == ["count", "len(values)", "values"]


def test_sets_and_keys_of_any_type_are_shown_as_plain_data() -> None:
    value = {(1, 2): {Refused("b", "c"), Refused("a", "c")}, "k": (frozenset({2, 1}), 3)}
    expected = {"[1, 2]": [{"kind": "a", "why": "c"}, {"kind": "b", "why": "c"}], "k": [[1, 2], 3]}
    assert readable(value) == expected


def test_a_predicate_without_source_has_no_reasons() -> None:
    assert why(eval("lambda a: a > 1"), (0,)) == []


def test_why_answers_for_most_properties_that_hold() -> None:
    asked = answered = 0
    for name in subject_names():
        subject = find_subject(name)
        cfg = subject.machine.profiles["reference"].config
        state = subject.machine.start(cfg)
        for each in subject.properties:
            if each.kind == "always" and not each.of_step and not each.histories and each.given(cfg):
                reasons = why(each.holds, (cfg, state))
                assert all(reason.holds in (True, False) for reason in reasons)
                assert each.holds(cfg, state)
                asked, answered = asked + 1, answered + bool(reasons)
    assert answered > 0.8 * asked > 80


def test_the_document_has_the_state_diagrams_of_the_machines() -> None:
    said = (ROOT / "model" / "README.md").read_text()
    assert all_diagrams() in said
    assert all_diagrams().count("stateDiagram") == sum(len(find_subject(n).machine.diagrams) for n in subject_names())
    assert "Splitting --> Deleted" in said


def test_the_report_draws_state_diagrams() -> None:
    text = render(*run(Spec("ownership_channel"), 1), [])
    assert text.count('alt="state diagrams of ownership_channel"') == 1


def test_the_document_has_the_sequence_chart_of_its_trace() -> None:
    """`python -m fuzz.report.sequence model/bundle_transfer/happy_path.jsonl` writes the picture."""
    path = ROOT / "model" / "bundle_transfer" / "happy_path.jsonl"
    [drawn] = charts([path]).values()
    assert path.with_suffix(".svg").read_text() == drawn
    assert "bundle_transfer/happy_path.svg" in (ROOT / "model" / "README.md").read_text()
    for said in ("source (broker 0)", "destination (broker 1)", "message 1: ignored", "close, connect to 1"):
        assert drawn.count(f">{said}</text>") >= 1
    assert drawn.count('class="n"') == 37
    assert "spare" not in drawn, "the spare broker takes no part"
    assert "url(#red)" not in drawn


def test_a_finding_of_the_transfer_is_drawn_with_its_last_step_in_red() -> None:
    plan, state, found = run(Spec("bundle_transfer", mutant="destination-answers-lookup-in-transfer"), BLOCK)
    text = render(plan, state, found, [])
    first = min(found, key=lambda each: (each.shrunk_length, each.seed))
    drawn = sequence_chart(first.explanation)
    assert drawn in text
    arrows = [step.arrow for step in first.explanation.steps if step.arrow is not None]
    assert arrows
    assert {name for arrow in arrows for name in (arrow.source, arrow.target)} <= first.explanation.actors.keys()
    assert 'class="t' in drawn.splitlines()[-2]
    assert " bad" in drawn.splitlines()[-2]
    without_arrow = msgspec.structs.replace(first.explanation.steps[-1], arrow=None)
    more = msgspec.structs.replace(first.explanation, steps=[*first.explanation.steps, without_arrow])
    assert " bad" not in sequence_chart(more).splitlines()[-2], "an earlier step is not the failing one"


def test_a_component_without_chart_is_not_drawn(tmp_path: Path, shipped: Ran) -> None:
    assert sequence_chart(shipped[2][0].explanation) == ""
    path = tmp_path / "trace.jsonl"
    path.write_text('{"trace": "one", "component": "canary", "config": {}}\n')
    with pytest.raises(BadValue, match="canary has no module in fuzz/charts/"):
        charts([path])
