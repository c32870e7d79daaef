"""`brokerproof compare`: the measured costs, and the plot. `compare transfer` simulates one topic of each kind."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from fuzz.cli import run
from fuzz.commands.compare import CompareResult
from fuzz.run.generate import generate, plan_trace
from fuzz.subject import find_profile, find_subject
from fuzz.workloads import transfer
from fuzz.workloads.transfer import measured
from model.bundle_transfer.state import Config

SUBJECT = find_subject("bundle_transfer")
#: The first argument of an action of a topic.
OF_A_TOPIC = ("topic",)


def test_json_has_a_row_for_each_policy_and_size(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plot = tmp_path / "transfer.svg"
    names = [word for policy in ("V0", "V3") for word in ("--policy", policy)]
    assert run(["compare", "transfer", *names, "--size", "1", "--size", "2", "--out", str(plot), "--json"]) == 0
    result = msgspec.json.decode(capsys.readouterr().out, type=CompareResult)
    plain = [(r["policy"], r["topics"], r["client_lookups"]) for r in result.policies if not r["deduplication"]]
    assert plain == [("V0", 1, 0), ("V3", 1, 2), ("V0", 2, 0), ("V3", 2, 4)]
    assert plot.read_text().startswith("<?xml")


def test_the_heading_of_the_gap_says_what_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", "transfer", "--policy", "V0", "--size", "1"]) == 0
    words = capsys.readouterr().out.split()
    assert "rounds" in words
    assert "steps" not in words


@pytest.mark.parametrize(
    ("policy", "costs"),
    [
        ("V0", (0, 12, 6, 3)),
        ("V1a", (0, 9, 3, 3)),
        ("V1b", (0, 8, 3, 4)),
        ("V2", (0, 10, 0, 4)),
        ("V3", (2, 9, 3, 3)),
        ("V4", (0, 10, 4, 2)),
    ],
)
def test_costs_of_one_topic(policy: str, costs: tuple[int, ...]) -> None:
    """The costs are lookups, publish gap, ignored sends and appends.

    A crash of source or destination before any round duplicates no message.
    """
    row = measured(policy, 1, deduplication=True)
    assert (row.client_lookups, row.publish_gap_steps, row.ignored_sends, row.channel_appends) == costs
    assert row.worst_duplicates == 0
    assert len(row.exposure) > 2 * row.channel_appends  # of two brokers, before more rounds than there are appends


def test_a_transfer_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "_MOST", 3)
    with pytest.raises(AssertionError, match="V0: a producer has no message confirmed in 3 rounds"):
        measured("V0", 1, deduplication=True)


def test_more_loads_than_a_broker_begins_at_once_lengthen_the_gap_unless_they_are_prepared() -> None:
    gaps = {policy: [measured(policy, n, False).publish_gap_steps for n in (100, 10_000)] for policy in ("V0", "V1b")}
    assert gaps == {"V0": [12, 13], "V1b": [8, 8]}


@pytest.mark.parametrize("variant", ["V0", "V2"])
def test_topic_step_depends_on_its_own_topic_only(variant: str) -> None:
    """So one simulated topic stands for all topics of its kind."""
    taken = 0
    for seed in range(20):
        config = find_profile(SUBJECT, variant if variant != "V0" else "reference")._replace(topics=2)
        state = SUBJECT.machine.start(plan_trace(SUBJECT, config, seed)[0].config)
        cfg: Config = plan_trace(SUBJECT, config, seed)[0].config
        for name, arguments in generate(SUBJECT, config, seed, 150):
            after, outcome = SUBJECT.machine.step(cfg, state, name, arguments)
            if SUBJECT.machine.actions[name].names[:1] == OF_A_TOPIC:
                topic = arguments[0]
                alone = state._replace(topics=(state.topics[topic],))
                alone, again = SUBJECT.machine.step(cfg, alone, name, (0, *arguments[1:]))
                assert (again, alone.topics[0]) == (outcome, after.topics[topic])
                assert (after.records, after.brokers) == (state.records, state.brokers)
                taken += 1
            state = after
    assert taken > 1000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nope"], "there is no workload nope; there are catch_up"),
        (["transfer", "--policy", "V9"], "transfer has no policy V9; it has V0, V1a"),
        (["transfer", "--out", "plot.txt"], "--out plot.txt must be a .png, .svg or .pdf file, or a folder"),
    ],
)
def test_wrong_input(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *arguments]) == 2
    assert said in capsys.readouterr().err
