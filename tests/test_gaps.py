"""Recordings with gaps: verdicts equal those of a search of all states, the budget, corrupted recordings."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.run.gaps import Agreement, GapSearch
from fuzz.run.generate import generate, plan_trace
from fuzz.target import resolve
from fuzz.trace.agreement import replayer_of
from fuzz.trace.file import ABSENT, ENGINE_KEY, BadTrace, Operation, Trace, write_traces
from fuzz.trace.recording import mappings, recorded_traces
from model.machine import plain
from tests.conftest import RECORDINGS
from tests.test_cli import keeps_to_schema

Item = tuple[str, int] | int  # an operation of a counter, or the size of a gap


def search(items: list[Item], budget: int = 1000) -> Any:
    """Searches the gaps in a recording of a counter. A call in a gap adds 1 or 10 to the counter."""

    def outcomes(operation: tuple[str, int], state: int) -> list[tuple[int, int]]:
        return [(state + operation[1], state + operation[1])] if operation[0] == "add" else [(state, state)]

    def judge(operation: tuple[str, int], after: int, outcome: int) -> tuple[str, int] | None:
        return None if operation[0] == "add" or outcome == operation[1] else ("result", outcome)

    return GapSearch(
        items, lambda state: (state + 1, state + 10), outcomes, judge,
        gap_of=lambda item: item if isinstance(item, int) else None, budget=budget,
    ).run(0)  # fmt: skip


@pytest.mark.parametrize(
    ("items", "agreement", "possible"),
    [
        ([2, ("read", 11)], Agreement.AGREES, set()),
        ([2, ("read", 0)], Agreement.AGREES, set()),
        ([2, ("read", 12)], Agreement.DISAGREES, {0, 1, 2, 10, 11, 20}),
        ([1, ("add", 5), 1, ("read", 16)], Agreement.AGREES, set()),
        ([1, ("read", 10), 1, ("read", 1)], Agreement.DISAGREES, {10, 11, 20}),
        ([1], Agreement.AGREES, set()),
        ([("read", 1), 1], Agreement.DISAGREES, {0}),
    ],
)
def test_small_recordings(items: list[Item], agreement: Agreement, possible: set[int]) -> None:
    verdict = search(items)
    assert (verdict.agreement, set(verdict.possible)) == (agreement, possible)


def test_verdicts_equal_those_of_a_search_of_all_states() -> None:
    chance, results = random.Random(3), []
    for _ in range(200):
        items: list[Item] = []
        reads = sorted(chance.sample((0, 1, 2, 3, 10, 11, 12, 20, 21, 22, 30), 3))
        for each in reads:
            items += [chance.randrange(1, 4), ("read", each)]
        states = {0}
        for item in items:
            if isinstance(item, int):
                for _ in range(item):
                    states |= {each + n for each in states for n in (1, 10)}
            else:
                states &= {item[1]}
        verdict = search(items)
        assert (verdict.agreement is Agreement.AGREES) == bool(states)
        results.append(bool(states))
    assert 20 < sum(results) < 180


def test_a_budget_ends_the_search() -> None:
    for items, budget in (([2, ("read", 12)], 4), ([40, ("read", 10**6)], 500)):
        verdict = search(items, budget=budget)
        assert (verdict.agreement, verdict.steps) == (Agreement.UNDECIDED, budget)


# ---- traces -------------------------------------------------------------------------------------------


def recorded(name: str, seed: int, steps: int = 60) -> Trace:
    """Returns a trace of the model with every outcome, and the observation after every eighth operation."""
    target = resolve(name)
    machine, cfg = target.subject.machine, plan_trace(target.subject, target.config, seed)[0].config
    state, operations = machine.start(cfg), []
    for i, call in enumerate(generate(target.subject, target.config, seed, steps)):
        state, outcome = machine.step(cfg, state, *call)
        seen = plain(machine.observe(cfg, state)) if i % 8 == 7 else ABSENT
        named = machine.actions[call.action].named(call.arguments)
        operations.append(Operation(call.action, named, plain(outcome), seen, i + 2))
    return Trace(f"{name}/{seed}", name, plain(cfg), operations, {ENGINE_KEY: "0"})


def with_gap(trace: Trace, at: int, size: int) -> Trace:
    gap = Operation("gap", {}, ABSENT, ABSENT, trace.operations[at].line, gap=size)
    return replace(trace, operations=[*trace.operations[:at], gap, *trace.operations[at + size :]])


def corrupted(trace: Trace, after: int, chance: random.Random) -> Trace | None:
    """Returns the trace with one result after the gap replaced by a different result of the same action, or None."""
    operations = list(trace.operations)
    for at in chance.sample(range(after + 1, len(operations)), len(operations) - after - 1):
        one = operations[at]
        others = [each.result for each in operations if each.op == one.op and each.result != one.result]
        if others:
            operations[at] = one._replace(result=chance.choice(others))
            return replace(trace, operations=operations)
    return None


def verdict_of(trace: Trace) -> str:
    mismatches = replayer_of(trace).replay(trace).mismatches
    return mismatches[0].labels[0] if mismatches else "agrees"


def detected(name: str, size: int, seeds: range) -> float:
    """Returns the share of corrupted recordings that disagree. Recordings that are not corrupted must agree.

    A corrupted recording may agree, because another call in the gap can explain the wrong result. Seeds with wide values
    are left out: their gap may need arguments that the search does not try.
    """
    found, target = [], resolve(name)
    for seed in [each for each in seeds if not plan_trace(target.subject, target.config, each)[0].wide]:
        chance = random.Random(seed)
        trace = recorded(name, seed)
        at = chance.randrange(len(trace.operations) - 20)
        right = with_gap(trace, at, size)
        assert verdict_of(right) == "agrees", (name, seed)
        wrong = corrupted(right, at, chance)
        found += [] if wrong is None else [verdict_of(wrong)]
    assert len(found) >= 0.5 * len(seeds)
    assert found.count("undecided") <= 0.1 * len(found)
    return (found.count("result") + found.count("observe")) / len(found)


@pytest.mark.parametrize("name", ["ack_set", "active_cursors", "negative_acks"])
def test_most_corrupted_recordings_with_gaps_are_detected(name: str) -> None:
    assert detected(name, 1, range(12)) >= 0.9


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["ack_set", "active_cursors", "negative_acks"])
def test_most_corrupted_recordings_of_many_seeds_are_detected(name: str) -> None:
    assert detected(name, 1, range(100)) >= 0.9


def test_the_command_replays_a_recording_with_a_gap(brokerproof: Any) -> None:
    """A recording of the real class, without one of its operations."""
    traces = recorded_traces(RECORDINGS / "active_cursor_container.jsonl.gz")
    trace = next(each for each in traces if len(each.operations) >= 40)
    short = replace(trace, operations=trace.operations[:40], header={})
    write_traces(Path("gap.jsonl"), [with_gap(short, 20, 1)])
    assert b'\n{"gap":1}\n' in Path("gap.jsonl").read_bytes()
    data = keeps_to_schema("replay", brokerproof("replay", "gap.jsonl", "--json"))
    assert (data["operations"], data["agreed"], data["differences"]) == (39, 1, [])
    at = next(i for i in range(30, 40) if short.operations[i].result is not ABSENT)
    short.operations[at] = short.operations[at]._replace(result=[99])
    write_traces(Path("wrong.jsonl"), [with_gap(short, 20, 1)])
    ran = brokerproof("replay", "wrong.jsonl", "--json")
    [row] = keeps_to_schema("replay", ran)["differences"]
    assert (ran.code, row["line"], row["fields"], row["expected"]) == (1, at + 2, ["result"], [99])
    assert "states after the gap fits" in row["message"]


def test_an_action_whose_calls_cannot_be_listed_excludes_no_other_action() -> None:
    """`cursor_updated` has too many possible arguments; `remove_cursor` explains the gap."""
    added = Operation("add_cursor", {"cursor": 3, "position": [1, 0], "durable": True}, ABSENT, ABSENT, 2)
    gap = Operation("gap", {}, ABSENT, ABSENT, 3, gap=1)
    for size, verdict in ((0, "agrees"), (1, "agrees"), (3, "result")):
        operations = [added, gap, Operation("size", {}, size, ABSENT, 4)]
        assert verdict_of(Trace("t", "active_cursors", {"cursors": 2**133}, operations, {ENGINE_KEY: "0"})) == verdict


def test_the_command_shows_the_operations_before_a_difference_after_a_gap(brokerproof: Any) -> None:
    """The trace has actions of the model, and no explanation, which would have to make the calls of the gap."""
    added = Operation("add_cursor", {"cursor": 3, "position": [1, 0], "durable": True}, ABSENT, ABSENT, 2)
    gap, size = Operation("gap", {}, ABSENT, ABSENT, 3, gap=1), Operation("size", {}, 3, ABSENT, 4)
    write_traces(Path("gap.jsonl"), [Trace("t", "active_cursors", {}, [added, gap, size], {ENGINE_KEY: "0"})])
    [row] = keeps_to_schema("replay", brokerproof("replay", "gap.jsonl", "--json"))["differences"]
    assert (row["explanation"], [each["op"] for each in row["before"]]) == (None, ["add_cursor", "gap", "size"])


def test_a_recording_whose_results_depend_on_earlier_operations_has_no_gaps() -> None:
    mapping = next(each for each in mappings() if each.fold is not None)
    operations = [Operation("gap", {}, ABSENT, ABSENT, 2, gap=1), Operation("tombstone", {}, ABSENT, ABSENT, 3)]
    trace = Trace("t", mapping.component, {"brokers": []}, operations, path="t.jsonl", line=1)
    with pytest.raises(BadTrace, match=r"t\.jsonl:1: .* can have no gaps and no threads"):
        replayer_of(trace).replay(trace)


def test_a_bad_gap_is_one_line(brokerproof: Any) -> None:
    opening = '{"trace": "t", "component": "canary", "config": {}, "brokerproof": "0"}\n'
    for gap in ("0", "true", '"2"', '2, "op": "add"'):
        Path("bad.jsonl").write_text(f'{opening}{{"gap": {gap}}}\n')
        ran = brokerproof("replay", "bad.jsonl")
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert "bad.jsonl:2: a gap needs the largest number of operations in it" in ran.err


def test_states_without_an_order_are_never_compared() -> None:
    """Two states on the agenda of the search may have equal priority. The states here (None, 1, "x") have no order."""
    chance, values = random.Random(1), (None, 1, "x", 3)
    for _ in range(1500):
        after = {each: [chance.choice(values) for _ in range(2)] for each in values}
        allowed = [
            {each: [chance.choice(values) for _ in range(chance.randrange(3))] for each in values} for _ in "abc"
        ]
        items = [chance.choice(("0", "1", "2", 1, 2)) for _ in range(6)]
        GapSearch(
            items, after.__getitem__, lambda i, s, allowed=allowed: [(each, 0) for each in allowed[int(i)][s]],
            lambda *_: None if chance.random() < 0.7 else ("result", 1),
            gap_of=lambda item: item if isinstance(item, int) else None, budget=2000,
        ).run(None)  # fmt: skip
