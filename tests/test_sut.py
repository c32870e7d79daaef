"""Foreign programs: the protocol, its limits, the adapters, and programs that misbehave."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.campaign.worker import FindingRow, Spec
from fuzz.platform.java import java_home
from fuzz.report.finding import parse_trace
from fuzz.run.checks import all_but
from fuzz.run.finding import Cause, Kind, Misbehaved
from fuzz.run.generate import plan_trace
from fuzz.run.link import Limits, Link
from fuzz.run.lockstep import Lockstep
from fuzz.subject import subject_names
from fuzz.sut.hunt import Hunted, Hunter, _is_hopeless, shrunk
from fuzz.sut.program import Hello, HelloCause, Program, Reply, _object, agrees, introduction, outcome_data
from fuzz.target import Target, resolve
from fuzz.trace.agreement import cause_of
from model.machine import BadValue, Failed, Refused
from model.values import AnyOrder
from tests.conftest import ROOT, ticking, wait_for
from tests.programs import hostile
from tests.test_cli import keeps_to_schema

PROGRAMS = ROOT / "tests" / "programs"
ADAPTER = (sys.executable, "-m", "fuzz.sut.serve")
JAVA = java_home() / "bin"
#: Long enough on any machine for a program to start.
PATIENT = ("--reply-seconds", 120.0)
ACK_SETS = (JAVA / "java", PROGRAMS / "AckSets.java")


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def driven(subject: str, *command: str, traces: int = 8, limits: Limits | None = None) -> tuple[Target, Hunted]:
    """Runs traces against a program."""
    named = resolve(subject)
    program = Program(command, named.subject, limits)
    target = replace(named, program=program)
    try:
        return target, Hunter(target).run(0, traces, None)
    finally:
        program.close()


# ---- adapters -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["negative_acks", "txn_log"])
def test_the_python_adapter_agrees(name: str) -> None:
    target, hunted = driven(name, *ADAPTER, name, limits=Limits(120.0))
    steps = sum(plan_trace(target.subject, target.config, seed)[0].steps for seed in range(8))
    assert (hunted.traces, hunted.steps, hunted.findings) == (8, steps, [])


@pytest.mark.nightly
@pytest.mark.parametrize("name", subject_names(without_canaries=True))
def test_the_python_adapter_agrees_for_every_component(name: str) -> None:
    assert driven(name, *ADAPTER, name, traces=100, limits=Limits(120.0))[1].findings == []


#: An adapter of `negative_acks` that reverses a list in each outcome of `advance_time`.
REVERSING = """
from fuzz.sut import serve
plain = serve.outcome_data
def reversed_lists(outcome):
    data = plain(outcome)
    if isinstance(data, dict) and "redeliveries" in data:
        {reverse}
    return data
serve.outcome_data = reversed_lists
serve.main("negative_acks")
"""


def test_a_program_may_list_the_members_of_a_set_in_any_order() -> None:
    def hunted(reverse: str) -> Hunted:
        command = (sys.executable, "-c", REVERSING.format(reverse=reverse))
        return driven("negative_acks", *command, limits=Limits(120.0))[1]

    assert hunted("[command['ids'].reverse() for command in data['redeliveries']]").findings == []
    [finding] = hunted("data['redeliveries'].reverse()").findings
    assert finding.cause == Cause(Kind.OUTCOME, "advance_time")


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second of a command is 50 readings of the clock, so a busy machine runs and shrinks as much as an idle one."""
    clock = ticking(0.02)
    for module in ("fuzz.commands.sut", "fuzz.sut.hunt", "fuzz.run.shrink"):
        monkeypatch.setattr(f"{module}.time", clock)


@pytest.mark.usefixtures("limited")
def test_a_seeded_bug_is_found_shrunk_and_replayed(brokerproof: Any) -> None:
    program = (*ADAPTER, "range_cache", "replay-is-lost")
    ran = brokerproof(
        "sut", "range_cache", "--traces", 30, "--seconds", 4, *PATIENT, "--out", "found", "--json", "--", *program
    )
    assert ran.code == 1
    data = keeps_to_schema("sut", ran)
    [finding] = data["findings"]
    assert finding["signature"].startswith("outcome:replay after put ")
    assert (finding["shrunk_length"], finding["reproduced"]) == (3, True)
    assert finding["explanation"]["steps"][-1]["outcome"] == {"expected_reads": 2}
    assert finding["explanation"]["steps"][-1]["other_outcome"] == {"expected_reads": 1}
    assert (data["protocol"]["version"], data["protocol"]["actions"]) == (1, None)
    again = brokerproof("sut", "range_cache", "--trace", finding["trace"], *PATIENT, "--", *program)
    assert again.code == 1
    assert "1 finding in 3 steps of 1 traces" in again.out
    fixed = brokerproof("sut", "range_cache", "--trace", finding["trace"], *PATIENT, "--", *ADAPTER, "range_cache")
    assert (fixed.code, "no difference in 3 steps" in fixed.out) == (0, True)
    other = brokerproof("sut", "ack_set", "--trace", finding["trace"], *PATIENT, "--", *ADAPTER, "ack_set")
    assert (other.code, "has a trace of range_cache, not of ack_set" in other.err) == (2, True)


needs_a_compiler = pytest.mark.skipif(
    not (JAVA / "javac").exists(), reason=f"no compiler in {JAVA}: the adapter in Java needs a JDK"
)


@needs_a_compiler
def test_the_java_adapter_agrees_with_the_reference(brokerproof: Any) -> None:
    ran = brokerproof("sut", "ack_set", "--traces", 200, *PATIENT, "--json", "--", *ACK_SETS)
    data = keeps_to_schema("sut", ran)
    assert (ran.code, data["traces"], data["findings"]) == (0, 200, [])
    assert (data["protocol"]["name"], data["protocol"]["settings"]) == ("ack sets in Java", ["batch_size"])


@pytest.mark.nightly
@needs_a_compiler
def test_the_java_adapter_differs_from_the_shipped_class(brokerproof: Any) -> None:
    shipped = ("--profile", "pulsar-2026-07", "--traces", 40, "--seconds", 2, "--reply-seconds", 60)
    ran = brokerproof("sut", "ack_set", *shipped, "--json", "--", *ACK_SETS)
    assert {finding["cause"] for finding in ran.json["findings"]} == {"outcome:is_ack_set_overlap"}
    assert ran.json["findings"][0]["shrunk_length"] == 1


def test_the_schema_has_bounds_of_64_bits_in_full() -> None:
    arguments = introduction(resolve("ack_set").subject)["actions"]["and_with"]["arguments"]
    assert "integer from -9223372036854775808 to 9223372036854775807" in arguments["words"]


# ---- partial abilities, allowed outcomes --------------------------------------------------------------


def test_a_program_may_leave_out_actions_settings_and_fields() -> None:
    subject = resolve("active_cursors").subject
    actions, observes = ("add_cursor", "remove_cursor", "size"), ("size",)
    kept = [n for n in subject.machine.actions if n in actions]
    part = Hello("partial", actions, (), observes).restricted(subject)
    assert list(part.machine.actions) == kept
    assert part.settings == {}
    assert list(subject.machine.actions) != kept, "the subject itself is unchanged"
    for wrong in (Hello("", ("fly",)), Hello("", None, ("wings",)), Hello("", None, None, ("colour",)), Hello("", ())):
        with pytest.raises(BadValue, match="the program has"):
            wrong.restricted(subject)


@pytest.mark.parametrize(
    "name",
    ["cache_steps", *[pytest.param(n, marks=pytest.mark.nightly) for n in subject_names() if n != "cache_steps"]],
)
def test_a_program_may_have_one_action(name: str) -> None:
    """This holds also for an action that needs another one first, or that has weight 0 in a swarm or situation.

    Settings that bound the size of a state keep their usual values.
    """
    subject, config = resolve(name).subject, resolve(name).config
    for action in subject.machine.actions:
        one = Hello("", (action,)).restricted(subject)
        model = Lockstep(Target(one, config, model_only=True), steps=25)
        model.skipped, model.may_end_early = all_but(one, None), True
        assert [model.run(seed) for seed in (0, 4, 12)] == [None, None, None], action
        for seed in range(16):
            sizes, usual = (plan_trace(each, config, seed)[0].config for each in (one, subject))
            assert all(getattr(sizes, n) == getattr(usual, n) for n in subject.machine.bounds - subject.largest.keys())


def test_a_program_whose_actions_are_never_possible_is_wrong_usage(brokerproof: Any) -> None:
    program = PARTIAL.replace('["add"]', '["release"]').replace('["tokens"]', "[]")
    ran = brokerproof("sut", "range_cache", "--traces", 5, *PATIENT, "--", sys.executable, "-c", program)
    said = "brokerproof: the program has the actions release, and none can be taken in the first state\n"
    assert (ran.code, ran.err) == (2, said)


PARTIAL = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if "brokerproof" in request:
        print(json.dumps({"brokerproof": 1, "actions": ["add"], "settings": [], "observes": ["tokens"]}), flush=True)
        continue
    tokens = 0 if "config" in request else tokens
    outcomes = []
    for _, count in request["calls"]:
        fits = tokens + count <= 8
        tokens += count if fits else 0
        outcomes.append(float(tokens) if fits else {"refused": "illegal_argument", "why": "full"})
    print(json.dumps({"id": request["id"], "outcomes": outcomes, "observed": {"tokens": tokens}}), flush=True)
"""


def test_only_what_a_program_can_do_is_driven(brokerproof: Any) -> None:
    ran = brokerproof("sut", "canary", "--traces", 5, *PATIENT, "--json", "--", sys.executable, "-c", PARTIAL)
    data = keeps_to_schema("sut", ran)
    assert (ran.code, data["findings"]) == (0, [])
    assert data["coverage"]["actions"]["take"]["taken"] == 0
    assert data["coverage"]["actions"]["add"]["taken"] == data["steps"]
    wrong = PARTIAL.replace('["add"]', '["fly"]')
    ran = brokerproof("sut", "canary", *PATIENT, "--", sys.executable, "-c", wrong)
    assert (ran.code, ran.err) == (2, "brokerproof: the program has the action fly, canary has add, take\n")


def test_a_command_with_braces_is_shown_as_it_is(brokerproof: Any) -> None:
    wrong = PARTIAL.replace("<= 8", "<= 9")
    ran = brokerproof("sut", "canary", "--traces", 20, *PATIENT, "--json", "--", sys.executable, "-c", wrong)
    assert ran.code == 1
    [finding, *_] = ran.json["findings"]
    assert finding["trace"] in finding["replay"]
    assert finding["replay"].endswith(shlex.join([sys.executable, "-c", wrong]))


def test_a_program_with_other_abilities_is_ended(brokerproof: Any, tmp_path: Path) -> None:
    """The program would outlive brokerproof, because it does not notice the end of its input."""
    wrong = PARTIAL.replace('["add"]', '["fly"]').replace("import json, sys", "import json, os, sys, time")
    left = tmp_path / "pid"
    program = f"open({str(left)!r}, 'w').write(str(__import__('os').getpid()))\n{wrong}\ntime.sleep(600)"
    ran = brokerproof("sut", "canary", *PATIENT, "--", sys.executable, "-c", program)
    assert ran.code == 2
    with pytest.raises(ProcessLookupError):
        os.kill(int(left.read_text()), 0)


@pytest.mark.parametrize(
    ("outcome", "theirs", "is_same"),
    [
        (Refused("illegal_state", "why"), {"refused": "illegal_state"}, True),
        (Refused("illegal_state", "why"), {"refused": "illegal_state", "why": "another sentence"}, True),
        (Refused("illegal_state", "why"), {"refused": "illegal_argument"}, False),
        (Refused("illegal_state", "why"), {"failed": "illegal_state"}, False),
        (Failed("timeout", "why"), {"failed": "timeout"}, True),
        ((1, (2, 3)), [1, [2, 3]], True),
        ((1, 2), [1, 2, 3], False),
        (1, 1.0, True),
        (1, True, False),
        (None, False, False),
        (2**70, 2**70, True),
    ],
)
def test_outcomes_are_compared_as_json_has_them(outcome: Any, theirs: Any, is_same: bool) -> None:
    assert agrees(outcome_data(outcome), theirs) == is_same


def test_a_difference_names_a_field_that_does_not_agree() -> None:
    program = Program(("never started",), resolve("ack_set").subject)
    different = program.difference({"a": 1, "b": 2}, Reply([], {"a": 1.0, "b": 3}))
    assert different is not None
    assert different.cause == Cause(Kind.VIEW, "b")
    assert program.difference({"a": 1, "b": 2}, Reply([], {"b": 2, "a": 1.0})) is None


@pytest.mark.parametrize(
    ("expected", "theirs", "is_same"),
    [
        ([AnyOrder([1, 2, 2])], [[2, 1, 2]], True),
        ({"ids": AnyOrder([{"a": 1}, {"a": 2}])}, {"ids": [{"a": 2.0}, {"a": 1}]}, True),
        (AnyOrder([1, 2, 2]), [1, 1, 2], False),
        (AnyOrder([1, 2]), [2, 1, 1], False),
        ([AnyOrder([1, 2]), AnyOrder([3])], [[3], [2, 1]], False),
    ],
)
def test_members_of_a_set_are_compared_in_any_order(expected: Any, theirs: Any, is_same: bool) -> None:
    assert agrees(expected, theirs) == is_same


# ---- hostile programs ---------------------------------------------------------------------------------

EVERY = {**hostile.INSTEAD, **hostile.CHANGED}
#: changed replies: none to the hello, which has neither id nor outcomes nor state; none to the first request, for speed
HOSTILE = [
    (behaviour, moment)
    for moment in hostile.MOMENTS
    for behaviour in EVERY
    if moment not in ("hello", "first request") or behaviour in hostile.INSTEAD
]


def judged(behaviour: str, moment: str) -> tuple[Hunted, FindingRow]:
    """Returns the run of a hostile program, and its first finding, shrunk. A hanging program gets a short limit."""
    seconds = 1.0 if EVERY[behaviour][1] == Kind.HANG else PATIENT[-1]
    command = (sys.executable, "-IS", str(PROGRAMS / "hostile.py"), behaviour, moment)
    target, hunted = driven("canary", *command, limits=Limits(seconds, 1 << 20))
    found = shrunk(target, Spec("canary"), hunted.findings[0], 0.0)
    target.program.close()
    return hunted, found


def test_a_hundred_hostile_programs_end_in_findings() -> None:
    """A finding is `unstable` if the program behaves well when the calls of its trace are repeated one by one."""
    assert len(HOSTILE) >= 100
    assert (
        driven(
            "canary", sys.executable, "-IS", str(PROGRAMS / "hostile.py"), "none", "never", limits=Limits(PATIENT[-1])
        )[1].findings
        == []
    )
    with ThreadPoolExecutor(12) as pool:  # most of the programs wait
        results = list(pool.map(lambda each: judged(*each), HOSTILE))
    for (behaviour, moment), (hunted, found) in zip(HOSTILE, results, strict=True):
        cause = cause_of(parse_trace(found.trace))
        assert cause is not None
        kind = cause.kind
        kinds = {Kind(EVERY[behaviour][1])}
        if moment not in ("hello", "every request"):
            kinds |= {Kind.UNSTABLE}
        assert kind in kinds, (behaviour, moment, found.cause, found.message)
        assert found.message
        assert hunted.traces <= 8


def test_the_message_says_what_a_program_did() -> None:
    def message(behaviour: str) -> str:
        return judged(behaviour, "every request")[1].message

    assert message("failure").endswith(": the program ended with exit code 3; it said: out of luck")
    assert message("segmentation fault").endswith(": the program was ended by SIGSEGV")
    assert "a reply of more than 1,048,576 bytes" in message("endless line")
    assert re.search("the reply must have id \\d+, got -1", message("wrong id"))
    assert "more than 100 nested lists and objects" in message("nested")


def test_a_reply_has_at_most_100_nested_lists_and_objects() -> None:
    def reply(lists: int) -> bytes:
        return b'{"id":' + b"[" * lists + b"]" * lists + b"}"

    assert "id" in _object(reply(99))
    with pytest.raises(Misbehaved, match="more than 100 nested lists and objects"):
        _object(reply(100))


def test_a_failure_of_an_action_named_hello_is_no_failure_of_the_hello() -> None:
    program = Program((sys.executable, "-ISc", "print(7)"), resolve("canary").subject, Limits(PATIENT[-1]))
    with pytest.raises(Misbehaved) as failed:
        program.start()
    assert failed.value.difference.cause == HelloCause(Kind.PROTOCOL, "hello no object")
    assert _is_hopeless(HelloCause(Kind.CRASH, "hello error"))
    assert not _is_hopeless(Cause(Kind.CRASH, "hello error"))


def test_the_last_words_of_a_program_control_no_terminal() -> None:
    trace = b"\x1b[2JCaused by: \xffx\n    at A.b(A.java:1)\n"
    link = Link((sys.executable, "-ISc", f"import os; os.write(2, {trace!r}); os._exit(3)"), Limits(PATIENT[-1]))
    with pytest.raises(Misbehaved, match=r"exit code 3; it said: .\[2JCaused by: .x$"):
        link.receive()
    link.close()


def test_the_last_reply_of_a_program_that_has_ended_is_received(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program does not read its input. It ends before its reply is read, or after a read that found no reply."""
    written = tmp_path / "pid"
    code = f"import os, pathlib; os.write(1, b'reply\\n'); pathlib.Path({str(written)!r}).write_text(str(os.getpid()))"
    for is_unseen in (False, True):
        link = Link((sys.executable, "-ISc", code), Limits(PATIENT[-1]))
        link.send(b"x" * (1 << 22) + b"\n")
        while not written.exists() or not written.read_text() or is_running(int(written.read_text())):
            time.sleep(0.01)
        written.unlink()
        if is_unseen:
            looks, exchange = iter([False]), link._exchange
            monkeypatch.setattr(link, "_exchange", lambda seconds, e=exchange, i=looks: next(i, True) and e(seconds))
        assert link.receive() == b"reply", is_unseen
        with pytest.raises(Misbehaved, match="ended with exit code 0"):
            link.receive()
        link.close()


def test_a_program_ends_with_a_command_that_is_terminated(tmp_path: Path) -> None:
    """`timeout` and CI systems terminate commands. The program does not notice the end of its input."""
    left = tmp_path / "pid"
    code = f"import os, pathlib, time; pathlib.Path({str(left)!r}).write_text(str(os.getpid())); time.sleep(600)"
    command = (sys.executable, "-m", "fuzz", "sut", "canary", *map(str, PATIENT), "--", sys.executable, "-ISc", code)
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) as running:
        wait_for(lambda: left.exists() and left.read_text(), running)
        running.terminate()
        said = running.communicate()[1]
    assert (running.returncode, said.count(b"Traceback")) == (130, 0)
    assert not is_running(int(left.read_text()))


def test_all_processes_of_a_program_are_ended() -> None:
    """This includes a helper in another process group, which `timeout` and the job control of a shell create."""
    pids = []
    for then in ("time.sleep(60)", "os._exit(0)"):
        code = f"import hostile, os, time; hostile.with_helper(then=lambda: {then})"
        paths = f"import sys; sys.path.insert(0, {str(PROGRAMS)!r}); {code}"
        link = Link((sys.executable, "-ISc", paths), Limits(PATIENT[-1]))
        pids.append(json.loads(link.receive())["pid"])
        link.close()
    limit = time.monotonic() + PATIENT[-1]
    while any(map(is_running, pids)):
        assert time.monotonic() < limit
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Returns whether a process runs. A zombie, which has ended, does not."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_slow_program_is_not_replayed_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reply is in time, but the calls of a trace one by one would take minutes."""
    monkeypatch.setattr("fuzz.sut.program._TRACE_FACTOR", 0.0)
    hunted = driven("canary", sys.executable, "-c", PARTIAL.replace("float(tokens) if", "-1 if"))[1]
    [finding] = hunted.findings
    assert finding.cause.kind is Kind.UNSTABLE
    assert finding.difference.message.endswith("single steps took more than 0 s")
    assert finding.difference.actual == -1


def test_an_error_of_null_is_no_error(brokerproof: Any) -> None:
    program = PARTIAL.replace('"outcomes": outcomes', '"error": None, "outcomes": outcomes')
    assert program != PARTIAL
    assert brokerproof("sut", "canary", "--traces", 5, *PATIENT, "--", sys.executable, "-c", program).code == 0


def test_a_program_that_cannot_be_started_is_wrong_usage(brokerproof: Any) -> None:
    ran = brokerproof("sut", "canary", "--", "./no-such-program")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "./no-such-program cannot be started" in ran.err
    assert brokerproof("sut", "canary").code == 2


@pytest.mark.usefixtures("limited")
def test_a_run_ends_after_its_seconds(brokerproof: Any) -> None:
    ran = brokerproof("sut", "canary", "--seconds", 0.2, *PATIENT, "--json", "--", sys.executable, "-c", PARTIAL)
    assert (ran.code, 1 < ran.json["traces"] <= 10) == (0, True)
    assert ran.json["operations_per_second"] == ran.json["steps_per_second"] > 0


def test_programs_are_small_enough_to_read() -> None:
    assert len((ROOT / "fuzz" / "sut" / "serve.py").read_text().splitlines()) < 60
    assert len(Path(PROGRAMS / "AckSets.java").read_text().splitlines()) < 320
