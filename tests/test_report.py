"""The report: one file that needs nothing else, with what was found step by step."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from fuzz.campaign.driver import Inline, Plan, State, open_campaign, read_plan, run_campaign
from fuzz.campaign.store import MemoryStore
from fuzz.campaign.worker import BLOCK, Spec, target_of
from fuzz.commands.core import failures
from fuzz.report.campaign import line_style, render, steps_of
from fuzz.run.coverage import Total
from fuzz.subject import find_subject, subject_names
from fuzz.trace.file import read_traces


def run(spec: Spec, traces: int) -> tuple[Plan, State]:
    store, plan = MemoryStore(), Plan((spec,), 0)
    return plan, run_campaign(store, plan, open_campaign(store, plan), Inline(), traces=traces)


@pytest.fixture(scope="module")
def planted() -> tuple[Plan, State]:
    return run(Spec("range_cache", mutant="duplicate-leaves-its-slot"), BLOCK)


def test_it_is_one_file_that_asks_for_nothing(planted: tuple[Plan, State]) -> None:
    html = render(*planted, [])
    assert re.findall(r'(?:src|href)="(?!data:|#)', html) == []
    assert "<script" not in html
    assert "http" not in re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", html)


def test_it_names_the_version_that_ran_and_not_only_the_one_that_shows(planted: tuple[Plan, State]) -> None:
    plan, state = planted
    assert "shown by" not in render(plan, state, [])
    store = MemoryStore()
    open_campaign(store, plan._replace(version="0.1.0+older"))
    old = read_plan(store)
    assert old.version == "0.1.0+older"
    html = render(old, state, [])
    assert "version <code>0.1.0+older</code> (shown by <code>" in html


def test_it_shows_what_was_found_step_by_step(planted: tuple[Plan, State]) -> None:
    html = render(*planted, [])
    assert "view:queue after put put" in html
    assert "with a planted bug: duplicate-leaves-its-slot" in html
    for column in ("state before", "action", "model", "other side", "expected", "actual"):
        assert column in html
    assert html.count("data:image/png") == 3, "heat map, saturation, throughput"


def test_a_broken_promise_is_shown_with_the_state_after_it_and_one_outcome() -> None:
    """Model and implementation agree on it: there is no other side to show."""
    plan, state = run(Spec("range_cache", profile="pulsar-2026-07"), BLOCK)
    html = render(plan, state, [])
    sections = re.findall(r'<section id="finding-.*?</section>', html, re.DOTALL)
    assert len(sections) == len(state.merged_findings()) > 0
    assert all(f.cause.startswith("property:") for f in state.findings)
    for section in sections:
        assert "<th>outcome</th>" in section
        assert "other side" not in section
        assert section.count("<b>state after</b>") == 1
        assert "expected</b>" not in section
    put_twice = next(s for s in sections if "property:latest_put_sets_the_counter after put put<" in s)
    rows = re.findall(r"<tr.*?</tr>", put_twice, re.DOTALL)
    assert len(rows) == 4, "a head, two steps, and the state after them"
    assert "queue: cache=" in re.sub(r"<[^>]+>", "", rows[-1])


def test_a_goal_that_was_never_reached_is_red(planted: tuple[Plan, State]) -> None:
    html = render(*planted, [])
    assert re.search(r'class="red">a negative count</td><td class="n red">never', html)


def test_an_honest_campaign_says_so_in_verdict_words() -> None:
    plan, state = run(Spec("range_cache"), 2 * BLOCK)
    html = render(plan, state, failures(plan, state))
    words = re.sub(r"<[^>]+>", "", html)
    assert "No difference in 32,768 steps of 128 traces (seed 0)" in words
    assert "verified" not in words.lower()


def test_a_run_that_was_long_enough_and_saw_too_little_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    import fuzz.commands.core

    plan, state = run(Spec("range_cache"), BLOCK)
    assert failures(plan, state) == [], "too short to say"
    short = replace(find_subject("range_cache"), min_steps_for_coverage=1)
    monkeypatch.setattr(fuzz.commands.core, "target_of", lambda spec: replace(target_of(spec), subject=short))
    state.coverage["range_cache"] = _without(state.coverage["range_cache"], "a_copy_outlives_its_entry")
    assert "range_cache: a_copy_outlives_its_entry never came in 16,384 steps" in failures(plan, state)
    assert "a_copy_outlives_its_entry never came" in render(plan, state, failures(plan, state))


def _without(total: Total, goal: str) -> Total:
    total.seen.pop(("goal", goal))
    return total


def test_the_steps_of_a_trace_end_with_what_is_wrong(planted: tuple[Plan, State], tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "t.jsonl"
    path.write_text(planted[1].merged_findings()[0].trace)
    [trace] = read_traces(path)
    steps, difference = steps_of(trace)
    assert [s["action"] for s in steps] == ["put", "put"]
    assert [s["same"] for s in steps] == [True, False]
    assert difference is not None
    assert difference["kind"] == "view"


def test_no_two_components_are_drawn_alike() -> None:
    styles = [tuple(line_style(place).items()) for place in range(30)]
    assert len(set(styles)) == 30 > len(subject_names())


def test_each_of_several_components_is_linked_from_the_top() -> None:
    store, plan = MemoryStore(), Plan((Spec("txn_log"), Spec("pending_acks")), 0)
    state = run_campaign(store, plan, open_campaign(store, plan), Inline(), traces=BLOCK)
    html = render(plan, state, [])
    for name in ("txn_log", "pending_acks"):
        assert f'<a href="#{name}">' in html
        assert html.count(f'id="{name}"') == 1
