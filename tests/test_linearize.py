"""Concurrent histories (the calls of several threads, with times): which are linearizable, and how they are recorded."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fuzz.run.call import Call
from fuzz.run.generate import generate, plan_trace
from fuzz.run.linearize import CoarseModel, Result, Tally, Timed, Verdict, linearize
from fuzz.subject import Subject, find_profile, find_subject, subject_names
from fuzz.target import resolve
from fuzz.trace.agreement import Replayer, replayer_of
from fuzz.trace.file import ABSENT, ENGINE_KEY, BadTrace, Operation, Span, Trace, read_traces, write_traces
from fuzz.trace.recording import action_mapping
from fuzz.trace.threads import LostUpdate, Recorder, run_threads
from model.canary import Config as CanaryConfig
from model.canary import State, canary
from model.machine import BadValue, Failed, Machine, plain, refused
from tests.test_cli import keeps_to_schema

COMPONENTS = ("range_cache", "active_cursors", "negative_acks")
Register = tuple[str, int]  # write or read, and the value


def steps(operation: Register, state: int) -> list[int]:
    kind, value = operation
    return [value] if kind == "write" else [state] if state == value else []


def history(*operations: tuple[str, float, float, Register]) -> list[Timed]:
    return [Timed(*each) for each in operations]


WRITES = (("a", 0, 3, ("write", 1)), ("b", 1, 5, ("write", 2)))


@pytest.mark.parametrize(
    ("operations", "result", "blocked"),
    [
        ((*WRITES, ("c", 4, 6, ("read", 2)), ("c", 7, 8, ("read", 2))), Result.LINEARIZABLE, None),
        ((*WRITES, ("c", 4, 6, ("read", 1)), ("c", 7, 8, ("read", 2))), Result.LINEARIZABLE, None),
        ((*WRITES, ("c", 4, 6, ("read", 2)), ("c", 7, 8, ("read", 1))), Result.NOT_LINEARIZABLE, 8),
        ((*WRITES, ("c", 4, 6, ("read", 3)), ("c", 7, 8, ("read", 1))), Result.NOT_LINEARIZABLE, 6),
        ((("a", 0, inf, ("write", 1)), ("b", 1, 2, ("read", 1))), Result.LINEARIZABLE, None),
        ((("a", 0, inf, ("write", 1)), ("b", 1, 2, ("read", 0))), Result.LINEARIZABLE, None),
        ((("a", 3, inf, ("write", 1)), ("b", 1, 2, ("read", 1))), Result.NOT_LINEARIZABLE, 2),
        ((), Result.LINEARIZABLE, None),
    ],
)
def test_small_histories(operations: Any, result: Result, blocked: float | None) -> None:
    verdict = linearize(history(*operations), 0, steps)
    assert (verdict.result, verdict.blocked.returned if verdict.blocked else None) == (result, blocked)
    if result is Result.LINEARIZABLE:
        assert is_linearization(history(*operations), verdict)


def is_linearization(given: list[Timed], verdict: Verdict) -> bool:
    state, placed = 0, verdict.order
    for at, each in enumerate(placed):
        if not steps(each.operation, state) or any(later.returned < each.invoked for later in placed[at:]):
            return False
        [state] = steps(each.operation, state)
    return {each for each in given if each.returned < inf} <= set(placed)


def test_verdicts_equal_those_of_trying_all_orders() -> None:
    chance, results = random.Random(5), []
    for _ in range(300):
        given = []
        for thread in "abc":
            times = sorted(chance.sample(range(40), 4))
            for invoked, returned in (times[:2], times[2:]):
                operation = (chance.choice(("write", "read")), chance.randrange(2))
                given.append(Timed(thread, invoked, returned, operation))
        verdict = linearize(given, 0, steps)
        early = linearize(given, 0, steps, is_read=lambda operation: operation[0] == "read")
        assert (early.result, early.blocked) == (verdict.result, verdict.blocked)
        orders = (Verdict(Result.LINEARIZABLE, order) for order in itertools.permutations(given))
        expected = any(is_linearization(given, each) for each in orders)
        assert (verdict.result is Result.LINEARIZABLE) == expected
        assert not expected or is_linearization(given, verdict)
        results.append(expected)
    assert 60 < sum(results) < 240


def test_a_reduction_and_a_tally_change_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of the register is its value and its number of changes.

    The number is a tally: no outcome shows it. The reduction drops a value that no later operation reads.
    """

    def counting(operation: Register, state: tuple[int, int]) -> list[tuple[int, int]]:
        return [(value, state[1] + (value != state[0])) for value in steps(operation, state[0])]

    def reduction(later: Iterable[Register]) -> Callable[[Any], Any]:
        read = {value for kind, value in later if kind == "read"}
        return lambda state: (state[0] if state[0] in read else -1, 0)

    def decided(given: list[Timed], count: int, **options: Any) -> Verdict:
        return linearize(given, (0, 0), counting, accepts=lambda state: state[1] == count, **options)

    def changes(order: Sequence[Timed]) -> int:
        values = [0, *[each.operation[1] for each in order if each.operation[0] == "write"]]
        return sum(one != other for one, other in itertools.pairwise(values))

    monkeypatch.setattr("fuzz.run.linearize._MOST_POINTS", (1, 2, inf))
    monkeypatch.setattr("fuzz.run.linearize._MOST_REDUCED", (3, inf))
    # the search asks for the reduction at every return, with the operations after this return
    monkeypatch.setattr("fuzz.run.linearize._MOST_NODES", -1000)
    chance, results = random.Random(7), list[tuple[Result, bool]]()
    tally = Tally(lambda state: state[1], lambda state, number: (state[0], number))
    for _ in range(400):
        given = []
        for thread in "abc":
            times = sorted(chance.sample(range(30), 4))
            for invoked, returned in (times[:2], times[2:]):
                given.append(Timed(thread, invoked, returned, (chance.choice(("write", "read")), chance.randrange(2))))
        orders = (Verdict(Result.UNDECIDED, order) for order in itertools.permutations(given))
        count, counts = chance.randrange(4), {changes(each.order) for each in orders if is_linearization(given, each)}
        plainly, reduced = decided(given, count), decided(given, count, reduction=reduction)
        assert plainly.result is (Result.LINEARIZABLE if count in counts else Result.NOT_LINEARIZABLE)
        assert (reduced.result, reduced.blocked) == (plainly.result, plainly.blocked)
        tallied = decided(given, count, tally=tally)
        assert (tallied.result, tallied.blocked) == (plainly.result, plainly.blocked)
        if tallied.result is Result.LINEARIZABLE:
            assert is_linearization(given, tallied)
            assert changes(tallied.order) == count
        elif tallied.blocked is None:
            assert {each[1] for each in tallied.states} == counts
        results.append((reduced.result, reduced.blocked is None))
    assert len(set(results)) == 3
    assert min(results.count(each) for each in set(results)) > 20


def test_the_final_state_is_judged_and_a_budget_ends_the_search() -> None:
    given = history(("a", 0, 3, ("write", 1)), ("b", 1, 5, ("write", 2)))
    assert linearize(given, 0, steps, accepts=lambda state: state == 1).result is Result.LINEARIZABLE
    assert linearize([], 0, steps, accepts=lambda state: state == 1).result is Result.NOT_LINEARIZABLE
    tally = Tally(lambda state: state, lambda state, number: number)
    assert linearize([], 0, steps, accepts=lambda state: state == 1, tally=tally).result is Result.NOT_LINEARIZABLE
    verdict = linearize(given, 0, steps, accepts=lambda state: state == 0)
    assert (verdict.result, verdict.blocked, set(verdict.states)) == (Result.NOT_LINEARIZABLE, None, {1, 2})
    undecided = linearize(given, 0, steps, budget=1)
    assert (undecided.result, undecided.steps) == (Result.UNDECIDED, 1)


def test_independent_parts_are_decided_one_by_one() -> None:
    """Twelve concurrent writes have 12! orders. If each is a part of its own, each part has one order.

    In a single register, the twelve reads contradict each other.
    """
    given = [Timed(i, 0, 9, ("write", i)) for i in range(12)] + [Timed(i, 10, 11, ("read", i)) for i in range(12)]
    parted = linearize(given, 0, steps, part_of=lambda operation: operation[1])
    assert (parted.result, parted.steps < 100) == (Result.LINEARIZABLE, True)
    assert linearize(given, 0, steps).result is Result.NOT_LINEARIZABLE


def test_no_outline_judges_a_part_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coarse model allows a read only after a write. The write and the read are in different parts."""
    monkeypatch.setattr("fuzz.run.linearize._MOST_POINTS", (0, inf))
    given = history(("a", 0, 1, ("write", 0)), ("b", 2, 3, ("read", 0)))
    coarse = CoarseModel(0, lambda operation, state: [1] if operation[0] == "write" or state else [])
    for part_of in (lambda operation: operation[0], lambda operation: None):
        verdict = linearize(given, 0, steps, part_of=part_of, coarse_models=[coarse])
        assert verdict.result is Result.LINEARIZABLE


# ---- recorded threads ---------------------------------------------------------------------------------


def verdict_of(trace: Trace) -> str:
    mismatches = replayer_of(trace).replay(trace).mismatches
    return mismatches[0].labels[0] if mismatches else "agrees"


def corrupted(trace: Trace, seed: int) -> Trace:
    """Returns the history with one result replaced by a different result of the same action."""
    chance, operations = random.Random(seed), list(trace.operations)
    while True:
        at = chance.randrange(len(operations))
        one = operations[at]
        others = [each.result for each in operations if each.op == one.op and each.result != one.result]
        if others:
            operations[at] = one._replace(result=chance.choice(others))
            return Trace(trace.id, trace.component, trace.config, operations, trace.header)


@pytest.mark.parametrize("name", [*COMPONENTS, "ack_set"])
def test_threads_behind_a_lock_are_linearizable_and_a_lost_update_is_found(name: str) -> None:
    """The lost update is found in at least one of four histories."""
    locked = run_threads(resolve(name), threads=4, calls_per_thread=100, seed=1)
    assert {each.span.thread for each in locked.operations if each.span is not None} == {"0", "1", "2", "3"}
    assert verdict_of(locked) == "agrees"
    races = [
        run_threads(resolve(name), threads=4, calls_per_thread=60, seed=seed, make_guard=LostUpdate)
        for seed in range(4)
    ]
    assert {verdict_of(each) for each in races} & {"order", "final"}


def verdict_of_corrupted(trace: Trace) -> str:
    """Returns the verdict, or `possible` if the history has an order even with the replaced result."""
    found: list[Verdict] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fuzz.trace.agreement.linearize", lambda *a, **k: found.append(linearize(*a, **k)) or found[-1])
        verdict = verdict_of(trace)
    return "possible" if verdict == "agrees" and is_order_of(trace, found[-1].order) else verdict


def is_order_of(trace: Trace, order: Sequence[Timed]) -> bool:
    """Returns whether an order has all operations, respects their times, and gives the recorded outcomes and end."""
    machine = find_subject(trace.component).machine
    cfg = machine.configure(trace.config)
    state, earliest = machine.start(cfg), inf
    for each in reversed(order):
        if each.invoked > earliest:
            return False
        earliest = min(earliest, each.returned)
    for each in order:
        operation = each.operation
        state, outcome = machine.step(
            cfg, state, operation.op, machine.actions[operation.op].arguments(operation.args, cfg)
        )
        if plain(outcome) != operation.result:
            return False
    is_complete = Counter(id(each.operation) for each in order) == Counter(map(id, trace.operations))
    return is_complete and plain(machine.observe(cfg, state)) == trace.header["final"]


def test_a_wrong_order_of_a_history_is_no_order() -> None:
    trace = run_threads(resolve("active_cursors"), threads=2, calls_per_thread=40, seed=3)
    order = [Timed(each.span.thread, each.span.invoked, each.span.returned, each) for each in trace.operations]
    order.sort(key=lambda each: each.returned)
    assert verdict_of_corrupted(trace) == "possible"
    assert not is_order_of(trace, order[1:])
    assert not is_order_of(trace, order[::-1])
    wrong = corrupted(trace, 1)
    same = {id(old): new for old, new in zip(trace.operations, wrong.operations, strict=True)}
    assert not is_order_of(wrong, [each._replace(operation=same[id(each.operation)]) for each in order])


@pytest.mark.nightly
@pytest.mark.parametrize("name", COMPONENTS)
def test_long_histories_are_decided_and_corrupted_ones_refuted(name: str) -> None:
    """The bound is the default budget of steps, not a time: a busy machine gives the same verdict."""
    count = 200
    recorded = [run_threads(resolve(name), threads=4, calls_per_thread=1000, seed=seed) for seed in range(count)]
    verdicts = [verdict_of(each) for each in recorded]
    assert set(verdicts) <= {"agrees", "undecided"}
    assert verdicts.count("agrees") >= 0.95 * count
    of_corrupted = Counter(verdict_of_corrupted(corrupted(each, seed)) for seed, each in enumerate(recorded))
    assert of_corrupted["possible"] <= 0.1 * count
    refuted = of_corrupted["order"] + of_corrupted["final"]
    assert refuted >= 0.99 * (count - of_corrupted["possible"]), of_corrupted


WITH_COARSE_MODELS = [name for name in subject_names() if find_subject(name).coarse_models is not None]


@pytest.mark.parametrize("name", WITH_COARSE_MODELS)
def test_a_coarse_model_allows_what_the_model_allows(name: str) -> None:
    subject, seen = find_subject(name), set[Any]()
    coarse = subject.coarse_models
    assert coarse is not None
    for profile in subject.machine.profiles:
        base = find_profile(subject, profile)
        for seed in range(12):
            cfg = plan_trace(subject, base, seed)[0].config
            state, keys = subject.machine.start(cfg), dict[Any, None]() if coarse.key_of else {None: None}
            for action, arguments in generate(subject, base, seed):
                key = coarse.key_of and coarse.key_of(action, arguments)
                keys |= {key: None} if key is not None else {}
                before, of_keys = state, list(keys)[:24]
                state, outcome = subject.machine.step(cfg, state, action, arguments)
                about = action, arguments, plain(outcome)
                for key in of_keys:
                    now, then = (coarse.of(cfg, each, key) for each in (before, state))
                    if coarse.concerns(cfg, key, *about):
                        assert then in coarse.after(cfg, now, key, *about), (profile, about)
                        seen.add((now, then))
                    else:
                        assert then == now, (profile, about)
    assert len(seen) > 2


def test_an_outline_refutes_what_has_too_many_orders() -> None:
    """Sixty pairs of concurrent appends leave 2 ** 60 sequences. None has an odd length after the last pair."""

    def sets(operation: tuple[str, int], state: tuple[int, ...]) -> list[tuple[int, ...]]:
        kind, value = operation
        if kind == "add":
            return [(*state, value)]
        return [state] if len(state) % 2 == value else []

    given = [Timed(thread, 10 * i, 10 * i + 5, ("add", i)) for i in range(60) for thread in "ab"]
    given[1::2] = [each._replace(operation=("add", -1 - i)) for i, each in enumerate(given[1::2])]
    wrong = Timed("c", 700, 701, ("parity", 1))
    coarse = CoarseModel(0, lambda call, state: [1 - state] if call[0] == "add" else [state] * (state == call[1]))
    found = linearize([*given, wrong], (), sets, coarse_models=[coarse], budget=20_000)
    assert (found.result, found.blocked, found.order[-1] in given) == (Result.NOT_LINEARIZABLE, wrong, True)
    assert linearize([*given, wrong], (), sets, budget=20_000).result is Result.UNDECIDED
    found = linearize(
        [*given, wrong], (), sets, reduction=lambda later: lambda state: (0,) * (len(state) % 2), budget=50_000
    )
    assert (found.result, found.blocked) == (Result.NOT_LINEARIZABLE, wrong)
    right = wrong._replace(operation=("parity", 0))
    assert linearize([*given, right], (), sets, coarse_models=[coarse], budget=20_000).result is Result.LINEARIZABLE


REDUCED = [name for name in subject_names() if find_subject(name).reduction is not None]


def disagreement(subject: Subject, reduction: Any, seed: int, profile: str) -> tuple[str, int]:
    """Returns the first action that distinguishes a state from its representative, or "" if no action does.

    Also returns how many states differ from their representatives.
    """
    base, differing = find_profile(subject, profile), 0
    cfg, machine, calls = (
        plan_trace(subject, base, seed)[0].config,
        subject.machine,
        list(generate(subject, base, seed)),
    )
    later = [(call.action, machine.actions[call.action].named(call.arguments)) for call in calls]
    state = reduced = machine.start(cfg)
    for at, call in enumerate(calls):
        if at % 8 == 0:
            representative = reduction(cfg, later[at:])
            reduced = representative(reduced)
        differing += state != reduced
        state, outcome = machine.step(cfg, state, *call)
        after, same_outcome = machine.step(cfg, reduced, *call)
        reduced = representative(after)
        if outcome != same_outcome or reduced != representative(state):
            return call.action, differing
    return "", differing


@pytest.mark.parametrize("name", REDUCED)
def test_no_later_action_tells_a_state_and_its_representative_apart(name: str) -> None:
    subject = find_subject(name)
    found = [
        disagreement(subject, subject.reduction, seed, profile)
        for profile in subject.machine.profiles
        for seed in range(8)
    ]
    assert {action for action, _ in found} == {""}
    assert sum(differing for _, differing in found) > 1000


@pytest.mark.parametrize("name", [name for name in subject_names() if find_subject(name).tally is not None])
def test_no_outcome_depends_on_a_tally(name: str) -> None:
    subject, numbers = find_subject(name), set[int]()
    field, machine = subject.tally, subject.machine
    assert field is not None
    for profile in machine.profiles:
        base = find_profile(subject, profile)
        for seed in range(8):
            cfg = plan_trace(subject, base, seed)[0].config
            state = machine.start(cfg)
            number = getattr(state, field)
            for call in generate(subject, base, seed):
                other, expected = machine.step(cfg, state._replace(**{field: getattr(state, field) + 7}), *call)
                state, outcome = machine.step(cfg, state, *call)
                earlier, number = number, getattr(state, field)
                assert number >= earlier
                assert (outcome, other) == (expected, state._replace(**{field: number + 7}))
                numbers.add(number)
    assert len(numbers) > 20


def test_a_reduction_that_merges_too_much_is_found() -> None:
    """Without the later actions, the reduction of range_cache drops times and the order, which passes depend on."""
    subject = find_subject("range_cache")
    reduction = subject.reduction
    assert reduction is not None
    blind = [disagreement(subject, lambda cfg, later: reduction(cfg, ()), seed, "reference")[0] for seed in range(16)]
    assert {"time_pass", "size_pass"} <= set(blind)


def test_the_outline_of_the_tracker_refutes_wrong_times_delays_and_rejections() -> None:
    target = resolve("negative_acks")
    coarse, cfg = target.subject.coarse_models, target.config
    assert coarse is not None
    machine = target.subject.machine
    start, plain_id = machine.start(cfg), {"kind": "message_id", "partition": 0}
    closed = coarse.of(cfg, machine.step(cfg, start, "close", ())[0], None)
    delay = {"delay": cfg.redelivery_delay_ms, "backoff_used": False, "timer_changed": False}

    def is_possible(state: Any, name: str, outcome: Any, **given: Any) -> bool:
        arguments = machine.actions[name].arguments(given, cfg)
        return any(coarse.after(cfg, state, None, name, arguments, outcome))

    nack = {"entry": [1, 0], "redelivery_count": None, "message_id": plain_id}
    rejected = plain(machine.step(cfg, closed, "nack", machine.actions["nack"].arguments(nack, cfg))[1])
    for timer_changed in (False, True):
        assert is_possible(start, "nack", {**delay, "timer_changed": timer_changed}, **nack)
    assert is_possible(closed, "nack", rejected, **nack)
    for state, outcome in ((closed, delay), (start, rejected), (start, {**delay, "delay": 1}), (start, None)):
        assert not is_possible(state, "nack", outcome, **nack)
    for at, expected in ((0, True), (7, True), (8, False), (-1, False)):
        elapsed = {"timer_runs": 1, "redeliveries": [{"at": at, "ids": []}]}
        assert is_possible(start, "advance_time", elapsed, by=7, timer_lag=0) is expected
    assert not is_possible(start, "advance_time", {"raised": "IndexError"}, by=7, timer_lag=0)
    assert [is_possible(start, "run_timer_task", r) for r in (None, {"at": 0, "ids": []}, {"at": 1, "ids": []})] == [
        True,
        True,
        False,
    ]


DECLARED = [name for name in subject_names() if find_subject(name).unchanged is not Subject.unchanged]


@pytest.mark.parametrize("name", DECLARED)
def test_an_outcome_that_a_subject_declares_unchanged_changes_no_state(name: str) -> None:
    subject, count = find_subject(name), 0
    for profile in subject.machine.profiles:
        base = find_profile(subject, profile)
        for seed in range(4):
            cfg = plan_trace(subject, base, seed)[0].config
            state = subject.machine.start(cfg)
            for action, arguments in generate(subject, base, seed):
                after, outcome = subject.machine.step(cfg, state, action, arguments)
                if subject.unchanged(cfg, action, plain(outcome)):
                    assert after == state, (profile, action, outcome)
                    count += 1
                state = after
    assert count > 100


def test_an_operation_that_changes_nothing_is_placed_at_once() -> None:
    """Twelve concurrent reads have 12! orders, which all lead to one state."""
    given = [Timed(i, 0, 99, ("read", 0)) for i in range(12)] + [Timed("w", 0, 99, ("write", 1))]
    verdict = linearize(given, 0, steps, is_read=lambda operation: operation[0] == "read")
    assert (verdict.result, verdict.steps < 200) == (Result.LINEARIZABLE, True)
    assert is_linearization(given, verdict)
    assert linearize(given, 0, steps).steps > 10 * verdict.steps


def test_replay_recognises_a_history(brokerproof: Any) -> None:
    trace = run_threads(resolve("active_cursors"), threads=3, calls_per_thread=50, seed=2)
    write_traces(Path("right.jsonl.gz"), [trace])
    [read] = read_traces(Path("right.jsonl.gz"))
    assert [each.span for each in read.operations] == [each.span for each in trace.operations]
    ran = brokerproof("replay", "right.jsonl.gz", "--json")
    data = keeps_to_schema("replay", ran)
    assert (ran.code, data["traces"], data["operations"], data["agreed"]) == (0, 1, 150, 1)
    at = next(i for i, each in enumerate(trace.operations) if each.op == "size")
    trace.operations[at] = trace.operations[at]._replace(result=99)
    write_traces(Path("wrong.jsonl"), [trace])
    ran = brokerproof("replay", "wrong.jsonl", "--json")
    [row] = keeps_to_schema("replay", ran)["differences"]
    assert (ran.code, row["op"], row["line"], row["fields"], row["actual"]) == (1, "size", at + 2, ["order"], 99)
    assert all(isinstance(each, int) for each in row["expected"])
    assert "no order of this call and the calls that returned before it has the recorded results" in row["message"]
    assert row["before"][-1]["result"] == 99
    shown = brokerproof("replay", "wrong.jsonl").out
    assert f"line {at + 2}: size, order" in shown


def test_an_exception_in_a_thread_is_a_result_that_no_order_has() -> None:
    target = resolve("canary")

    def failing(action: str, arguments: Any) -> Any:
        raise IndexError(action)

    recorder = Recorder(failing)
    with pytest.raises(IndexError):
        recorder.call(Call("add", (1,)))
    assert verdict_of(recorder.history("one", target)) == "order"


def test_a_call_that_has_not_returned_is_in_the_history() -> None:
    """Another call observes the effect of this call."""
    target = resolve("canary")
    tokens, entered, leave = [0], threading.Event(), threading.Event()

    def stays(action: str, arguments: Any) -> Any:
        tokens[0] += arguments[0]
        if arguments[0] == 1:
            entered.set()
            leave.wait()
        return tokens[0]

    recorder = Recorder(stays)
    thread = threading.Thread(target=recorder.call, args=(Call("add", (1,)),), daemon=True)
    thread.start()
    entered.wait()
    recorder.call(Call("add", (2,)))
    pending, returned = recorder.history("one", target).operations
    leave.set()
    assert (pending.result, pending.span and pending.span.returned) == (ABSENT, None)
    assert returned.result == 3
    thread.join()
    assert [each.result for each in recorder.history("one", target).operations] == [3, 3]


def test_an_outcome_is_recorded_as_it_was_at_the_return() -> None:
    shared: list[int] = []
    recorder = Recorder(lambda action, arguments: shared.append(arguments[0]) or shared)
    for tokens in (1, 2):
        recorder.call(Call("add", (tokens,)))
    assert [each.result for each in recorder.history("one", resolve("canary")).operations] == [[1], [1, 2]]


def test_no_thread_waits_for_one_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, list[threading.Thread]()

    def fails(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("no thread is left")
        started.append(thread)
        thread.daemon = True
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fails)
    with pytest.raises(RuntimeError, match="no thread is left"):
        run_threads(resolve("canary"), threads=2, calls_per_thread=1, seed=1)
    started[0].join(60.0)
    assert not started[0].is_alive()


def test_a_bad_span_is_reported_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    opening = '{"trace": "t", "component": "canary", "config": {}, "brokerproof": "0"}\n'
    operation = '{"op": "add", "args": {"tokens": 1}, "result": 1'
    Path("bad.jsonl").write_text(f'{opening}{operation}, "thread": "a", "invoked": 5, "returned": 4}}\n')
    with pytest.raises(BadTrace, match=r"bad\.jsonl:2: an operation of a thread needs"):
        list(read_traces(Path("bad.jsonl")))
    Path("bad.jsonl").write_text(
        f'{opening}{operation}}}\n{operation}, "thread": 1, "invoked": 1, "returned": null}}\n'
    )
    [trace] = read_traces(Path("bad.jsonl"))
    with pytest.raises(BadTrace, match=r"bad\.jsonl:2: this operation needs thread"):
        replayer_of(trace).replay(trace)


def test_the_final_state_of_a_history_of_independent_parts_is_judged() -> None:
    def write(operation: tuple[str, int], state: Any) -> list[Any]:
        return [tuple(sorted({**dict(state), operation[0]: operation[1]}.items()))]

    given = [Timed("a", 0, 9, ("x", 1)), Timed("b", 1, 8, ("x", 2)), Timed("c", 2, 7, ("y", 3))]
    for end, result in (((1, 3), True), ((2, 3), True), ((1, 4), False)):
        accepted = (("x", end[0]), ("y", end[1]))
        verdict = linearize(given, (), write, accepts=accepted.__eq__, part_of=lambda operation: operation[0])
        assert verdict.result is (Result.LINEARIZABLE if result else Result.NOT_LINEARIZABLE)


def test_data_of_a_subject_about_its_actions_is_not_applied_to_other_operations() -> None:
    """A mapping may map an operation with the name of an action to other actions, or to several."""
    subject = replace(
        find_subject("canary"),
        unchanged=lambda cfg, action, outcome: action == "query",
        partition=lambda action, arguments: arguments["part"],
    )
    actions = {
        "put": [("add", {"tokens": 1})],
        "query": [("add", {"tokens": 1})],
        "fill": [("add", {"tokens": 5}), ("add", {"tokens": 5})],
        "drain": [("take", {"tokens": 8})],
    }
    mapping = replace(action_mapping("canary"), actions=lambda cfg, state, operation, config: actions[operation.op])
    refusal = plain(canary.step(canary.configure({}), State(7, 0), "add", (5,))[1])
    calls = (("put", "a", 1), ("query", "a", 2), ("put", "b", 3), ("fill", "a", refusal), ("drain", "a", 8))
    operations = [
        Operation(op, {"part": part}, result, ABSENT, i + 2, Span("t", 2 * i, 2 * i + 1))
        for i, (op, part, result) in enumerate(calls)
    ]
    trace = Trace("t", "canary", {}, operations)
    assert Replayer(mapping, subject).replay(trace).mismatches == []
    operations[-1] = operations[-1]._replace(result=7)
    [mismatch] = Replayer(mapping, subject).replay(trace).mismatches
    assert (mismatch.labels, mismatch.expected, mismatch.actual) == (["order"], [8], 7)


def test_operations_of_one_thread_may_overlap() -> None:
    """A caller may be asynchronous, or continue after a call that did not return."""
    overlapping = history(("a", 0, 10, ("read", 1)), ("a", 2, 5, ("write", 1)))
    assert linearize(overlapping, 0, steps).result is Result.LINEARIZABLE
    pending = history(("a", 0, inf, ("write", 1)), ("a", 2, 5, ("read", 0)), ("a", 6, 7, ("read", 1)))
    assert linearize(pending, 0, steps).result is Result.LINEARIZABLE


def test_a_search_that_takes_longer_than_a_step_may_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search is limited by its budget. The limit of processor time for a step does not apply."""
    target = resolve("canary")
    recorder = Recorder(lambda action, arguments: None)
    for tokens in (1, 2, 3):
        recorder.call(Call("add", (tokens,)))
    trace = recorder.history("t", target)
    operations = [
        each._replace(result=ABSENT, span=each.span and each.span._replace(thread=i, invoked=i, returned=100 + i))
        for i, each in enumerate(trace.operations * 2)
    ]
    trace.operations = [*operations, operations[0]._replace(result=77, span=Span("z", 200, 201))]
    monkeypatch.setattr("fuzz.trace.agreement.time_limit", lambda steps: 0.001)
    [mismatch] = replayer_of(trace).replay(trace).mismatches
    assert mismatch.labels == ["order"]


def test_arguments_that_depend_on_the_state_may_fit_one_order_only() -> None:
    def actions(cfg: Any, state: State, operation: Operation, config: Any) -> Any:
        return [("add", {"tokens": operation.args["to"] - state.tokens})]

    def replayed(*spans: tuple[int, int]) -> list[Any]:
        calls = zip((5, 3), spans, strict=True)
        operations = [Operation("fill", {"to": n}, n, ABSENT, n, Span(str(n), *span)) for n, span in calls]
        return Replayer(mapping, find_subject("canary")).replay(Trace("t", "canary", {}, operations)).mismatches

    mapping = replace(action_mapping("canary"), actions=actions)
    assert replayed((0, 9), (1, 8)) == []
    with pytest.raises(BadTrace, match=r":3: operation fill: add\.tokens is -2"):
        replayed((0, 1), (2, 3))


def test_an_operation_that_is_refused_in_one_state_may_change_another() -> None:
    """The model refuses `reset` at zero. Otherwise `reset` fails with the same message, and the state becomes zero."""
    machine: Machine[Any, Any] = Machine("canary", CanaryConfig, lambda cfg: State(0, 0), source="test")

    @machine.action
    def reset(cfg: Any, s: State) -> Any:
        """Sets the number of tokens to zero."""
        return refused(s, "failed", "reset") if s.tokens == 0 else (State(0, 0), Failed("failed", "reset"))

    @machine.action
    def fill(cfg: Any, s: State) -> Any:
        """Sets the number of tokens to one."""
        return State(1, 0), None

    @machine.action
    def read(cfg: Any, s: State) -> Any:
        """Returns the number of tokens."""
        return s, s.tokens

    machine.profile("reference", "the only profile", CanaryConfig())
    calls = (("reset", {"kind": "failed", "why": "reset"}, 0, 9), ("fill", None, 1, 8), ("read", 0, 10, 11))
    operations = [Operation(op, {}, result, ABSENT, 2, Span(op, *span)) for op, result, *span in calls]
    trace = Trace("t", "canary", {}, operations, {ENGINE_KEY: "0"})
    subject = Subject(machine, None, ModuleType("none"), {})
    assert Replayer(action_mapping("canary"), subject).replay(trace).mismatches == []


def test_a_tally_that_decreases_is_an_error_in_one_line() -> None:
    tally = Tally(lambda state: state, lambda state, number: number)
    given = history(("a", 0, 3, ("write", 1)), ("b", 1, 5, ("write", -2)))
    with pytest.raises(BadValue, match=r"the tally decreases by 2 at \('write', -2\)"):
        linearize(given, 0, steps, accepts=lambda state: state == 5, tally=tally)
