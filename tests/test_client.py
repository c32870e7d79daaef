"""Real clients: the brokers agree with the models, contracts find violations, and known deviations replay."""

from __future__ import annotations

import os
import signal
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fuzz.answers.judge import differences
from fuzz.client import wire
from fuzz.client.contracts import PRODUCER, permits_are_conserved
from fuzz.client.harness import RUST_DRIVER, ClientDied, DriverFailed, Harness
from fuzz.client.hunt import Sought, explaining_deviation, hunt, shrink
from fuzz.client.known import Known, known_deviations
from fuzz.client.run import SUBSCRIPTION, TOPIC, Observed, Run, observe
from fuzz.client.schedule import (
    Scenario,
    Schedule,
    StepKind,
    execute,
    find_scenario,
    generate,
    scenario_names,
    violations,
)
from fuzz.scenarios import experiments, negative_acks
from fuzz.scenarios.ack_contracts import ack_sets_are_exact, entries_acknowledged_by_id, messages_not_removed
from fuzz.scenarios.evidence import (
    segmentation_fault_after_checksum_error,
    sequence_ids_restart_before_first_receipt,
)
from fuzz.seeding import replaced_source

EXPERIMENTS = tomllib.loads((Path(__file__).parents[1] / "fuzz/scenarios/experiments.toml").read_text())["experiment"]
#: The beginning of the programs BROKERS and CLIENTS, which start the brokers, or the client's process, with a seeded bug.
SEEDED = """
import sys
from fuzz.seeding import replaced_source, use_source

module, find, replace = sys.argv[1:]
use_source(module, replaced_source("the bug", module, find, replace))
"""
BROKERS = (
    SEEDED
    + """
import asyncio
from fuzz.client.broker import serve
asyncio.run(serve())
"""
)
CLIENTS = (
    SEEDED
    + """
from fuzz.client.driver import Driver, main
main(Driver())
"""
)


def seeded(start: str, module: str, find: str, replace: str) -> tuple[str, ...]:
    return (sys.executable, "-c", start, module, find, replace)


@pytest.fixture(scope="module")
def harness() -> Iterator[Harness]:
    with Harness() as started:
        yield started


def violated(scenario: Any, observed: Any) -> list[str]:
    """Returns the names of the contracts that an observation violates."""
    return [each.contract.name for each in violations(scenario, observed)]


def test_a_checksum_is_castagnoli_s() -> None:
    assert wire.crc32c(b"123456789") == 0xE3069283


def test_frames_may_arrive_in_any_pieces() -> None:
    commands = [wire.command_of(wire.Type.FLOW, consumer_id=i, permits=i) for i in range(3)]
    received, found = bytearray(), []
    for byte in b"".join(wire.frame(each, b"x" * i) for i, each in enumerate(commands)):
        received.append(byte)
        found += wire.frames(received)
    assert found == [(each, b"x" * i) for i, each in enumerate(commands)]


def test_a_frame_that_is_too_long_is_refused() -> None:
    with pytest.raises(wire.BadFrame, match="a frame of 4294967295 bytes has a command of 4294967295"):
        list(wire.frames(bytearray(b"\xff" * 8)))


@pytest.mark.parametrize(
    "read",
    [
        lambda: list(wire.frames(bytearray(b"\0\0\0\7\0\0\0\3\xff\xff\xff"))),
        lambda: wire.parts_of(b"\x0e"),
        lambda: wire.parts_of(b"\0\0\0\3\xff\xff\xff"),
        lambda: wire.payloads_of(wire.Parts(True, wire.Metadata(num_messages_in_batch=2), b"")),
        lambda: wire.parts_of(b"\0\0\0\3"),
        lambda: wire.payloads_of(wire.Parts(True, wire.Metadata(num_messages_in_batch=1), b"\0\0\0\2\x18\x05ab")),
        lambda: wire.payloads_of(
            wire.Parts(True, wire.Metadata(num_messages_in_batch=1), b"\0\0\0\x0b\x18" + b"\xff" * 9 + b"\x01ab")
        ),
    ],
    ids=["command", "length", "metadata", "batch", "no metadata", "long payload", "negative payload"],
)
def test_garbage_of_a_client_is_a_bad_frame(read: Any) -> None:
    with pytest.raises(wire.BadFrame, match="cannot be read"):
        read()


def test_a_client_keeps_its_contracts_in_a_schedule_without_known_triggers(harness: Harness) -> None:
    scenario = find_scenario("producer")
    steps = (("send", 3), ("hold",), ("send", 2), ("drop",), ("send", 1), ("release", "in_order"), ("repeat",))
    observed = execute(harness, scenario, Schedule({"deduplication": True}, steps))
    assert violated(scenario, observed) == []
    assert observed.log == list(range(6))


def test_negative_acks_come_by_the_timing_law_and_not_after_close(harness: Harness) -> None:
    """Two nacks are redelivered by one command. The C++ client accepts a nack after close, a known deviation."""
    scenario = find_scenario("negative_acks")
    observed = execute(harness, scenario, Schedule({}, (("nack", 2, 0), ("acknowledge",))))
    assert violated(scenario, observed) == []
    assert [len(about["ids"]) for _, _, kind, about in observed.report["commands"] if kind == "REDELIVER"] == [2]
    observed = execute(harness, scenario, Schedule({}, (("nack", 1, 0), ("close",))))
    assert violated(scenario, observed) == ["nack_after_close_is_rejected"]


def test_a_client_that_is_held_up_is_late_and_violates_nothing(harness: Harness) -> None:
    """The client's process is stopped while a nack is pending. Only the brokers can observe this."""
    scenario, run = find_scenario("negative_acks"), Run(harness, {"delay": 300, "kind": 1})
    negative_acks.begin(run)
    negative_acks.nack(run, 1, 0)
    assert harness.client_process is not None
    os.kill(harness.client_process, signal.SIGSTOP)
    assert not run.broker("wait", what="commands", value=["REDELIVER", 1], seconds=0.6)
    os.kill(harness.client_process, signal.SIGCONT)
    assert run.wait("commands", ["REDELIVER", 1])
    run.observed.report = run.broker("report")
    assert run.observed.report["lateness"] > 0.5 > run.observed.lateness
    assert violated(scenario, run.observed) == []
    run.observed.report["lateness"] = 0.0
    assert "redelivery_is_in_time" in violated(scenario, run.observed)
    run.client("close")


def test_ack_sets_are_those_of_the_batch_at_each_flush(harness: Harness) -> None:
    """Ack sets of 65 messages have two words. After a reconnection, a cumulative ack goes up to the middle."""
    scenario = find_scenario("batch_acks")
    steps = (("batch",), ("acknowledge", "first"), ("acknowledge", "last"), ("drop",), ("cumulative", "middle"))
    observed = execute(harness, scenario, Schedule({"size": 65}, steps))
    assert violated(scenario, observed) == []
    sets = [about["ids"][0][2] for _, _, kind, about in observed.report["commands"] if kind == "ACK"]
    assert sets == [[-2, 1], [-2], [-(2**33), 1]]  # after the reconnection the client's set is full again


def test_a_consumer_conserves_permits(harness: Harness) -> None:
    """The receiver queue is used up and granted again, an ack is lost, and an entry has a wrong checksum."""
    scenario = find_scenario("consumer")
    steps = (("send", 8), ("receive", 7), ("corrupt", 1), ("lose",))
    observed = execute(harness, scenario, Schedule({"kind": 1}, steps))
    assert violated(scenario, observed) == []
    assert observed.report["corrupted"] == [8]
    assert observed.report["counts"]["FLOW"] >= 3


def test_messages_that_come_again_at_the_end_are_received_before_permits_are_judged(harness: Harness) -> None:
    """The crash loses the acks of all messages. The next session has them in its receiver queue."""
    scenario = find_scenario("transfer")
    steps = (("subscribe",), ("send", 5), ("receive", 3), ("receive", 3), ("crash",))
    observed = execute(harness, scenario, Schedule({"receiver_queue": 10, "kind": 1}, steps))
    assert violated(scenario, observed) == []
    assert sorted({int(each[0]) for each in observed.received}) == list(range(6))


def test_a_message_loss_is_found(harness: Harness) -> None:
    row = known_deviations()[0]
    assert row.contract == "acknowledged_message_is_stored"
    scenario = find_scenario(row.scenario)
    assert row.contract in violated(scenario, execute(harness, scenario, row.schedule()))


#: Seeded bugs of the brokers: module, text, replacement; scenario, settings, and steps that show the bug.
BUGS = {
    "stores-behind-an-ignored-message": (
        (
            "fuzz.client.cluster",
            "            producer.is_fenced = True\n            self.journal",
            "            self.journal",
        ),
        ("producer", {}, (("send", 1), ("ignore",), ("send", 1), ("release", "in_order"), ("send", 1))),
    ),
    "stores-a-duplicate": (
        ("fuzz.client.topic", "send.highest <= self.highest_sequence", "send.highest < self.highest_sequence"),
        ("producer", {"deduplication": True}, (("hold",), ("send", 1), ("drop",))),
    ),
    "forgets-what-a-lost-consumer-held": (
        (
            "fuzz.client.topic",
            "for number in consumer.pending:\n            self.add",
            "for number in ():\n            self.add",
        ),
        ("consumer", {}, (("send", 1), ("lose",))),
    ),
    "answers-lookups-with-the-wrong-broker": (
        ("fuzz.client.cluster", "owner = self.ownership.answer(connection.broker)", "owner = 0"),
        ("transfer", {}, (("move",), ("drop",), ("send", 1))),
    ),
}


@pytest.mark.parametrize("bug", [pytest.param(b, marks=[pytest.mark.nightly] * (i > 0)) for i, b in enumerate(BUGS)])
def test_a_bug_of_the_brokers_is_found_by_the_models_and_by_a_contract(bug: str) -> None:
    change, (name, settings, steps) = BUGS[bug]
    scenario = find_scenario(name)
    made = [lambda run, s=step: scenario.steps[s[0]].run(run, *s[1:]) for step in steps]  # type: ignore[misc]
    settings = {"deduplication": False} | {key: values[0] for key, values in scenario.settings.items()} | settings
    with Harness(broker=seeded(BROKERS, *change)) as harness:
        observed = observe(harness, settings, [scenario.begin, *made, scenario.end], 0.5)
    assert differences(observed.report, deduplication=settings["deduplication"])
    assert violated(scenario, observed)


#: Seeded bugs of the client in schedules of known deviations: text of the driver, replacement; scenario, settings, steps,
#: and the contract that both the deviation and the bug violate.
CLIENT_BUGS = {
    "send-is-reported-and-not-sent": (
        (
            "                self.producer.send_async(payload.zfill",
            '                self.completed(payload, "Ok", "") if payload == "1" else self.producer.send_async(payload.zfill',
        ),
        ("producer", {"deduplication": True}, (("ignore",), ("send", 1), ("drop",), ("send", 1))),
        "acknowledged_message_is_stored",
    ),
    "acknowledgement-is-not-sent": (
        ("            method(self.received[consumer][index])\n", "            pass\n"),
        ("consumer", {"kind": 0}, (("send", 1), ("lose",), ("send", 1))),
        "acknowledged_log_leaves_no_backlog",
    ),
    "first-nack-is-forgotten": (
        (
            "                method(self.pulsar.MessageId.deserialize",
            "                number and method(self.pulsar.MessageId.deserialize",
        ),
        ("negative_acks", {}, (("nack", 8, 60),)),
        "later_nack_postpones_no_redelivery",
    ),
}


def test_seeded_bugs_apply() -> None:
    for bug, (change, _) in BUGS.items():
        assert replaced_source(bug, *change)
    for bug, (change, _, _) in CLIENT_BUGS.items():
        assert replaced_source(bug, "fuzz.client.driver", *change)


@pytest.mark.parametrize(
    "bug", [pytest.param(b, marks=[pytest.mark.nightly] * (i > 0)) for i, b in enumerate(CLIENT_BUGS)]
)
def test_another_bug_in_the_schedule_of_a_known_deviation_is_reported(harness: Harness, bug: str) -> None:
    """A known deviation violates the same contract in the same schedule, but it does not explain the bug's violation."""
    change, (name, settings, steps), contract = CLIENT_BUGS[bug]
    scenario, schedule = find_scenario(name), Schedule(settings, steps)
    known = execute(harness, scenario, schedule)
    assert contract in violated(scenario, known)
    assert explaining_deviation(known_deviations(), name, contract, known)
    with Harness(driver=seeded(CLIENTS, "fuzz.client.driver", *change)) as other:
        observed = execute(other, scenario, schedule)
    assert contract in violated(scenario, observed)
    assert explaining_deviation(known_deviations(), name, contract, observed) is None


def test_a_driver_that_does_not_start_is_no_finding() -> None:
    with (
        Harness(driver=(sys.executable, "-c", "raise SystemExit(3)")) as harness,
        pytest.raises(DriverFailed, match="did not answer hello: the program ended with exit code 3"),
    ):
        harness.client("open", url="")


#: A driver whose client sends nothing. Its answer to one request is an expression, the second argument.
HOSTILE = """
import json, os, signal, sys, time
request, answer = sys.argv[1:]
answers = {"hello": "idle 1", "open": None, "send": [], "results": []}
for line in sys.stdin:
    do = json.loads(line)["do"]
    reply = eval(answer) if do == request else json.dumps(answers.get(do, ""))
    print(reply, flush=True)
"""
VIOLATED = "violated the driver protocol "


@pytest.mark.parametrize(
    ("request_", "answer", "observed"),
    [
        ("send", "'nonsense'", VIOLATED + "(the reply is nonsense: "),
        ("send", "7", VIOLATED + "(the reply is 7: Expected `array`, got `int`)"),
        ("send", "'[' * 100_000", VIOLATED + "(the reply is [["),
        ("send", "'x' * (1 << 25)", VIOLATED + "(a reply of more than 16,777,216 bytes)"),
        ("send", "os.close(1) or time.sleep(60)", VIOLATED + "(the program closed its standard output)"),
        ("send", "sys.exit(0)", "ended with exit code 0"),
        ("send", "os.kill(os.getpid(), signal.SIGSEGV)", "was ended by SIGSEGV"),
        ("create_producer", "'null'", VIOLATED + "(the reply is null: Expected `str`, got `null`)"),
        ("results", """'[["one", "Ok", ""]]'""", VIOLATED + """(the reply is [["one", "Ok", ""]]: Expected `str`"""),
        ("results", "'[' + 9999 * '[],' + '[]]'", VIOLATED + "(the reply is [[],"),
    ],
)
def test_a_hostile_driver_is_a_finding(request_: str, answer: str, observed: str) -> None:
    scenario = find_scenario("producer")
    with Harness(driver=(sys.executable, "-c", HOSTILE, request_, answer)) as harness:
        ran = execute(harness, scenario, Schedule({}, (("send", 1), ("drop",))), patience=0.2)
    assert violated(scenario, ran) == ["client_does_not_crash"]
    assert f"the client's process {observed}" in ran.crash
    assert len(ran.crash) < 400


def test_a_driver_that_lies_or_hangs_is_a_finding() -> None:
    """The driver reports messages as stored that it never sent. The other one does not answer, and is killed in time."""
    scenario, schedule = find_scenario("producer"), Schedule({}, (("send", 2),))
    with Harness(
        driver=(sys.executable, "-c", HOSTILE, "results", """'[["0", "Ok", ""], ["1", "Ok", ""]]'""")
    ) as harness:
        assert "acknowledged_message_is_stored" in violated(
            scenario, execute(harness, scenario, schedule, patience=0.2)
        )
    with Harness(driver=(sys.executable, "-c", HOSTILE, "send", "time.sleep(60)")) as harness:
        assert violated(scenario, execute(harness, scenario, schedule, patience=0.2)) == ["client_does_not_hang"]


def test_a_second_real_client_understands_the_brokers() -> None:
    """The Rust client: a lookup that names the other broker, a producer, a consumer, permits and acks."""
    with Harness(driver=RUST_DRIVER) as harness:
        urls = harness.broker("reset", deduplication=True)
        assert harness.broker("begin_transfer")
        harness.broker("finish_transfer")
        harness.client("open", url=urls[0])
        harness.client("subscribe", topic=TOPIC, subscription=SUBSCRIPTION)
        harness.client("create_producer", topic=TOPIC)
        harness.client("send", first=0, count=20)
        received: list[Any] = []
        while len(received) < 20:
            messages = harness.client("receive", count=20 - len(received), seconds=5.0)
            assert messages, "nothing for five seconds"
            received += messages
        assert harness.broker("wait", what="acknowledged", value=None, seconds=5.0)
        report = harness.broker("report")
    assert [int(payload) for payload, *_ in received] == list(range(20))
    assert [(broker, *payloads) for broker, _, _, _, payloads, *_ in report["log"]] == [(1, str(n)) for n in range(20)]
    assert differences(report, deduplication=True) == []
    assert report["commands"][0][3].startswith("pulsar-rs")


def seen(**fields: Any) -> Observed:
    """Returns an observation. `log` has the stored messages, `acknowledged` the messages reported as stored."""
    report = {"log": [[0, "p", 1, n, [str(n)], 1, n] for n in fields.pop("log", ())], **fields.pop("report", {})}
    results = [[str(n), "Ok", ""] for n in fields.pop("acknowledged", ())]
    fields.setdefault("settings", {})
    return Observed(**{"results": results, **fields}, report=report)


def acked(*ids: Any, left: Any = (), mark_delete: int = -1, kind: str = "acknowledge") -> Observed:
    """Returns an observation: the application acks messages 0 and 1 of an entry of three, the client sends `ids`.

    `kind` is the application's call, `left` the messages that must stay unacknowledged, `mark_delete` the entry id of
    the cursor's mark-delete position.
    """
    calls = [[kind, 0.0, 0.0, 1, 0, index, ""] for index in (0, 1)]
    report = {
        "started": 0.0,
        "log": [[0, "p", 1, 0, ["0", "1", "2"], 1, 0]],
        "cursors": {"s": {"individually_deleted": [], "mark_delete_position": [1, mark_delete], "batch_sets": []}},
        "commands": [[1.0, 1, "ACK", {"ids": list(ids)}]],
    }
    return Observed(settings={}, calls=calls, left=list(left), report=report)


def test_a_cumulative_ack_by_a_deserialized_id_is_an_ack_by_id() -> None:
    """A cumulative ack covers the messages up to its own. The client may send it in place of all earlier acks."""
    kept = acked(left=[(0, 2)], kind="acknowledge_cumulative_id")
    assert messages_not_removed(kept, by_id=True) == [(0, 0), (0, 1)]
    assert messages_not_removed(kept, by_id=False) == []
    later = acked(kind="acknowledge_cumulative_id")
    later.calls = [["acknowledge_cumulative_id", 0.0, 0.0, 1, 2, 0, ""]]
    assert entries_acknowledged_by_id(later) == {0, 1, 2}
    exact = acked([1, 0, [4]], kind="acknowledge_cumulative_id")
    del exact.calls[0]  # the ack of index 1 also acknowledges index 0
    assert ack_sets_are_exact.check(exact) == ""
    exact.calls[0][0] = "acknowledge_id"
    assert ack_sets_are_exact.check(exact)


def nacked(*nacks: tuple[int, int], commands: Any = (), delay: int = 300, closed: int = 0, after: int = 0) -> Observed:
    """Returns an observation of nacks (milliseconds, entry) and redelivery commands (milliseconds, entries).

    The consumer is closed after `closed` milliseconds (0: never), and then gets `after` more nacks.
    """
    calls: list[list[Any]] = [["negative_acknowledge", at / 1000, at / 1000, 1, n, -1, ""] for at, n in nacks]
    if closed:
        calls.append(["close", closed / 1000, closed / 1000, 0, 0, -1, ""])
    calls += [["negative_acknowledge", 1.0, 1.0, 1, 0, -1, ""]] * after
    redeliver = [[at, 1, "REDELIVER", {"consumer": 0, "ids": [[1, n, None] for n in ids]}] for at, *ids in commands]
    return seen(calls=calls, settings={"delay": delay}, report={"started": 0.0, "commands": redeliver})


#: For each contract, an observation that violates it.
VIOLATING = {
    "client_does_not_crash": seen(crash="SIGSEGV", crashed_by="was ended by SIGSEGV"),
    "client_does_not_hang": seen(hang="close"),
    "operation_succeeds_while_brokers_serve": seen(failed=["subscribe failed: Timeout"]),
    "client_keeps_its_connection": seen(report={"commands": [[1.0, 1, "LOST", 0]]}),
    "client_frames_are_valid": seen(report={"problems": ["the client sent a frame of 9 bytes has a command of 99"]}),
    "acknowledged_message_is_stored": seen(begun=2, acknowledged=[0, 1], log=[0]),
    "log_has_order_of_sending": seen(begun=2, acknowledged=[0, 1], log=[1, 0]),
    "deduplicated_log_has_no_duplicates": seen(begun=1, settings={"deduplication": True}, log=[0, 0], acknowledged=[0]),
    "callbacks_have_order_of_sending": seen(begun=2, acknowledged=[1, 0], log=[0, 1]),
    "sequence_id_stands_for_one_message": seen(
        report={"commands": [[1.0, 1, "SEND", [0, 7, "0"]], [2.0, 2, "SEND", [0, 7, "1"]]]}
    ),
    "resent_message_keeps_its_sequence_id": seen(
        report={"commands": [[1.0, 1, "SEND", [0, 7, "0"]], [2.0, 2, "SEND", [0, 8, "0"]]]}
    ),
    "every_send_completes": seen(begun=2, acknowledged=[0], log=[0]),
    "send_fails_only_if_refused": seen(begun=1, results=[["0", "Timeout", ""]]),
    "stored_message_is_delivered": seen(consumers=1, log=[0, 1], received=[["0", 1, 0, -1, 0]]),
    "first_deliveries_have_order_of_log": seen(consumers=1, received=[["1", 1, 1, -1, 0], ["0", 1, 0, -1, 0]]),
    "permits_are_conserved": seen(settings={"receiver_queue": 10}, report={"permits": [["c", 10, 6, 4]]}),
    "redirect_needs_no_lookup": seen(redirect_lookups=1),
    "flow_returns_half_the_queue": seen(
        settings={"receiver_queue": 10},
        report={"commands": [[1.0, 1, "SUBSCRIBE", []], [2.0, 1, "FLOW", [0, 10]], [3.0, 1, "FLOW", [0, 1]]]},
    ),
    "acknowledged_log_leaves_no_backlog": seen(
        log=[0],
        report={
            "cursors": {
                "s": {
                    "not_acknowledged": 1,
                    "individually_deleted": [],
                    "mark_delete_position": [1, -1],
                    "batch_sets": [],
                }
            }
        },
    ),
    "unacknowledged_message_stays": acked(left=[(0, 2)], mark_delete=0),
    "acknowledgement_reaches_cursor": acked(left=[(0, 2)]),
    "acknowledgement_by_id_reaches_cursor": acked(left=[(0, 2)], kind="acknowledge_id"),
    "ack_sets_are_exact": acked([1, 0, [3]], left=[(0, 0), (0, 1), (0, 2)]),
    "redelivery_has_what_is_left": seen(redelivered=[[[[0, 1]], [[0, 0], [0, 1]]]]),
    "redelivery_command_has_due_entries": nacked((0, 0), commands=((300, 0, 0),)),
    "redelivery_follows_timing_law": nacked((0, 0), (50, 1), commands=((301, 0), (351, 1))),
    "later_nack_postpones_no_redelivery": nacked((0, 0), (260, 1), commands=((360, 0), (560, 1))),
    "redelivery_is_in_time": nacked((0, 0), delay=500, commands=((664.3, 0),)),
    "closed_consumer_redelivers_nothing": nacked((0, 0), closed=290, commands=((320, 0),)),
    "nack_after_close_is_rejected": nacked((0, 0), closed=10, after=1),
    "queued_message_is_received_once": seen(queued=[1], received=[["1", 1, 1, -1, 0]] * 2),
}


#: Another violation of some contracts: a known deviation could have caused the one in `VIOLATING`, but not this one.
OTHERWISE = {
    "later_nack_postpones_no_redelivery": nacked((0, 0), (260, 1), commands=((420, 0), (560, 1))),
    "redelivery_is_in_time": nacked((0, 0), delay=500, commands=((720, 0),)),
    "nack_after_close_is_rejected": nacked((0, 0), closed=10, after=1, commands=((320, 0),)),
}


@pytest.mark.parametrize(("by", "is_explained"), [("was ended by SIGSEGV", True), ("ended with exit code 139", False)])
def test_the_evidence_of_a_crash_is_its_signal(by: str, is_explained: bool) -> None:
    def dies(run: Any) -> None:
        raise ClientDied(by, "SIGSEGV")  # the request is only in the message

    harness: Any = SimpleNamespace(broker=lambda do: {"refused": [1]})
    observed = observe(harness, {}, [dies])
    assert segmentation_fault_after_checksum_error(observed) == is_explained
    assert observed.crash == f"the client's process {by} during `SIGSEGV`"


@pytest.mark.parametrize("row", known_deviations(), ids=str)
def test_no_known_deviation_explains_a_violation_without_its_evidence(row: Known) -> None:
    observed = (VIOLATING | OTHERWISE)[row.contract]
    assert row.contract in violated(find_scenario(row.scenario), observed)
    assert not row.explains(row.scenario, row.contract, observed)


def sent(*sessions: tuple[tuple[int, int], ...]) -> Observed:
    """Returns an observation of messages with sequence ids, by session of the producer."""
    commands: list[Any] = []
    for session in sessions:
        commands.append([0.0, 1, "PRODUCER", [0, 0, ""]])
        commands += [[0.0, 1, "SEND", [0, sequence, str(message)]] for message, sequence in session]
    return seen(report={"commands": commands})


@pytest.mark.parametrize(
    ("sessions", "restart"),
    [
        ((((0, 0),), ((0, 0), (1, 0))), True),
        (((), ((0, 0), (1, 0))), True),  # message 0 was pending
        (((), ((0, 0), (1, 1), (2, 0), (3, 1))), True),
        (((), ((0, 0), (1, 1)), ((2, 0), (3, 1))), True),  # in a later session
        (((), ((0, 0), (1, 1)), ((2, 0), (3, 0))), False),
        ((((0, 0),), ((0, 0), (1, 1), (2, 0))), True),
        ((((0, 0), (1, 0)),), False),  # no reconnection
        (((), ((0, 0), (1, 0), (2, 0))), False),  # two restarts in a session
        ((((0, 0),), ((1, 0),)), False),  # message 0 is not sent again
        (((), ((0, 1), (1, 0))), False),  # no id is reused
        (((), ((0, 0), (1, 1))), False),
        ((((0, 0),), ((0, 0), (1, 0)), ((0, 0), (1, 0), (2, 0))), True),  # two restarts, each at a reconnection
        ((((0, 0),), ((0, 0), (1, 0)), ((1, 0), (2, 0))), False),  # the second one after a receipt
        ((((0, 0),), ((0, 0), (1, 0), (2, 1), (3, 0))), False),  # a second one without a reconnection
        ((((0, 0), (1, 0)), ((0, 0), (1, 0))), False),  # before the reconnection
        ((((0, 0),), ((0, 1), (1, 1))), False),  # message 0 gets another id
    ],
)
def test_a_restart_of_sequence_ids_shows_at_a_reconnection(sessions: Any, restart: bool) -> None:
    assert sequence_ids_restart_before_first_receipt(sent(*sessions)) == restart


def delivered(permits: int, *deliveries: tuple[Any, ...]) -> Observed:
    """Returns an observation of deliveries of a batch of 8 messages, with a receiver queue of 10.

    A delivery has the consumer's session, the ack set or None, and "corrupt" if the checksum was wrong. The session at
    the end is 2, in which the broker has `permits` permits.
    """
    journal: list[list[Any]] = []
    for session, words, *corrupt in deliveries:
        journal.append(["deliver", "s", session, 0, words])
        journal += [["corrupt", "s", session, 0]] if corrupt else []
    permit = {"permits": [["c", 10, 10 - permits, permits]], "dispatchers": {"s": [[2, permits, []]]}}
    batch = [[0, "p", 1, 0, [str(n) for n in range(8)], 1, 0]]
    return Observed(settings={"receiver_queue": 10}, report={"log": batch, "journal": journal, **permit})


@pytest.mark.parametrize(
    ("permits", "deliveries", "defect"),
    [
        (3, ((2, None, "corrupt"),), "cpp-corrupt-batch-loses-permits"),
        (4, ((2, [7], "corrupt"),), "cpp-corrupt-batch-loses-permits"),  # cost 3, returns 1
        (17, ((2, [1]),), "cpp-filtered-messages-return-permits"),  # cost 1, returns 8
        (13, ((2, [1]), (2, [1]), (2, None, "corrupt")), "cpp-filtered-messages-return-permits"),
        (0, ((2, [1]), (2, None, "corrupt"), (2, None, "corrupt")), "cpp-corrupt-batch-loses-permits"),
        (18, ((2, [1]),), ""),  # one more than was filtered
        (11, ((2, [1]), (2, None, "corrupt")), ""),  # together they change nothing
        (-3, ((2, None, "corrupt"),), ""),
        (11, ((1, [1]), (2, None)), ""),  # filtered in an earlier session
        (3, ((1, None, "corrupt"), (2, None)), ""),
        (23, (), ""),
    ],
)
def test_permits_are_explained_only_by_deliveries_of_their_session(permits: int, deliveries: Any, defect: str) -> None:
    observed = delivered(permits, *deliveries)
    assert permits_are_conserved.check(observed)
    found = explaining_deviation(known_deviations(), "consumer", permits_are_conserved.name, observed)
    assert (found.defect.id if found else "") == defect


@pytest.mark.parametrize(
    "steps",
    [
        (("hold",), ("send", 2), ("drop",), ("send", 1), ("release", "twice")),
        pytest.param(
            (("hold",), ("send", 2), ("drop",), ("release", "in_order"), ("defer",), ("send", 1), ("repeat",)),
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["twice", "repeat"],
)
def test_a_repeated_receipt_is_out_of_order_after_a_restart_of_sequence_ids(harness: Harness, steps: Any) -> None:
    """The receipt of id 1 is repeated while the client waits for the receipt of the second message with id 0."""
    scenario = find_scenario("producer")
    observed = execute(harness, scenario, Schedule({}, steps))
    assert observed.report["counts"]["ENDED"] == 3, "two by the schedule, and one by the client"
    assert violated(scenario, observed) == ["sequence_id_stands_for_one_message"]


@pytest.mark.parametrize(
    ("sessions", "explained"),
    [
        ((((0, 0),), ((0, 0), (1, 0))), True),
        ((((0, 0),), ((0, 0), (1, 1))), False),  # the refused message has an id of its own
        ((((0, 0), (1, 0)),), False),  # no reconnection
    ],
)
def test_a_checksum_error_is_taken_for_the_oldest_message_with_its_id(sessions: Any, explained: bool) -> None:
    """Message 1 is refused, message 0 fails, and message 1 is pending."""
    observed = sent(*sessions)
    observed.begun, observed.results, observed.report["refused"] = 2, [["0", "ChecksumError", ""]], [1]
    assert {"every_send_completes", "send_fails_only_if_refused"} <= set(violated(find_scenario("producer"), observed))
    for contract in ("every_send_completes", "send_fails_only_if_refused"):
        assert (explaining_deviation(known_deviations(), "producer", contract, observed) is not None) == explained


@pytest.mark.parametrize("name", scenario_names())
def test_every_contract_is_violated_by_an_observation_and_by_no_empty_one(name: str) -> None:
    scenario = find_scenario(name)
    assert scenario.contracts
    for each in scenario.contracts:
        assert each.check(seen()) == ""
        assert violated(scenario, VIOLATING[each.name]) == [each.name]


@pytest.mark.parametrize(
    ("shows", "steps"),
    [
        (lambda steps: ("wait", 0) in steps or {("wait", 1), ("drop",)} <= set(steps), (("wait", 0),)),
        (lambda steps: True, ()),
    ],
    ids=["a simpler argument saves a step", "no step is needed"],
)
def test_no_step_of_a_shrunk_schedule_can_be_removed(shows: Any, steps: Any) -> None:
    class Shows(Sought):
        def reproduce(self, harness: Any, schedule: Schedule, patience: float = 0.0) -> Any:
            return True if shows(schedule.steps) else None

    kinds = {"wait": StepKind(print, ((0, 1),)), "drop": StepKind(print)}
    sought = Shows(Scenario("test", {}, kinds, print, print, ()), "contract", (), None)
    none: Any = None
    assert shrink(none, sought, Schedule({}, (("wait", 1), ("drop",))), 9.0).steps == steps


def test_schedules_are_functions_of_their_seeds() -> None:
    for name in scenario_names():
        scenario = find_scenario(name)
        assert generate(scenario, 7) == generate(scenario, 7)
        assert len({str(generate(scenario, seed)) for seed in range(20)}) > 10


@pytest.mark.parametrize("row", known_deviations(), ids=str)
def test_a_known_deviation_names_what_exists(row: Known) -> None:
    """It does not explain a violation without evidence."""
    scenario = find_scenario(row.scenario)
    assert row.contract in {each.name for each in scenario.contracts}
    assert {name for name, *_ in row.steps} <= set(scenario.steps)
    assert not row.explains(row.scenario, PRODUCER[1].name, seen())


@pytest.mark.nightly
@pytest.mark.parametrize("name", scenario_names())
def test_a_scenario_finds_its_known_deviations_by_itself(harness: Harness, name: str) -> None:
    """It finds nothing else, and each finding is shrunk to at most four steps."""
    rows = [row for row in known_deviations() if row.scenario == name]
    found = hunt(harness, find_scenario(name), rows, iter(range(150)), None).findings
    unknown = [f"{each.violation.message}: {each.shrunk}" for each in found if each.deviation is None]
    assert unknown == []
    assert {str(each.deviation) for each in found} == {str(row) for row in rows}
    assert all(len(each.shrunk.steps) <= 4 for each in found)


def traced(observed: Observed) -> list[list[Any]]:
    """Returns for each redelivery command the milliseconds since the first call, and the number of entries."""
    commands, start = observed.report["commands"], observed.report["started"]
    first = (observed.calls[0][1] - start) * 1000
    return [[round(at - first), len(about["ids"])] for at, _, kind, about in commands if kind == "REDELIVER"]


def repeated(row: Any) -> list[Any]:
    """Returns an experiment once for each value of `*`."""
    return [
        row | {"steps": [[value if each == "*" else each for each in step] for step in row["steps"]]}
        for value in row.get("each", [None])
    ]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "row",
    [each for row in EXPERIMENTS for each in repeated(row)],
    ids=lambda row: f"{row['scenario']}-{row['steps']}-{row['settings']}",
)
def test_an_experiment_is_as_predicted_or_as_observed(harness: Harness, row: Any) -> None:
    """Of a redelivery, only the number of entries is compared: the contract `redelivery_follows_timing_law` checks the time."""
    scenario = find_scenario(row["scenario"])
    with_odd = scenario._replace(steps={**scenario.steps, **experiments.STEPS})
    observed = execute(harness, with_odd, Schedule(row["settings"], tuple(map(tuple, row["steps"]))))
    expected = row.get("observed", row["predicted"])
    if isinstance(expected, dict):
        found = {key: experiments.measured(scenario, observed, key) for key in expected}
        if "commands" in expected:
            found["commands"] = {kind: found["commands"].get(kind, 0) for kind in expected["commands"]}
        print(f"{row['steps']} {row['settings']}: predicted {row['predicted']}, observed {found}")
        assert found == expected
        return
    is_timed = scenario.name == "negative_acks"
    found = traced(observed) if is_timed else experiments.measured(scenario, observed, "acks")
    print(f"{row['steps']} {row['settings']}: predicted {row['predicted']}, observed {found}")
    if not is_timed:
        assert found == expected
    else:
        assert "redelivery_follows_timing_law" not in violated(scenario, observed)
        assert sum([count for _, count in found]) == sum([count for _, count in expected])


def test_a_run_on_a_busy_machine_is_repeated(harness: Harness) -> None:
    """In the first run the machine is too busy for times to be judged, in the second it is not."""
    judged = iter((False, True))
    scenario = find_scenario("negative_acks")._replace(judges_times=lambda seen: next(judged))
    sought = Sought(scenario, "redelivery_is_in_time", (), None)
    assert sought.reproduce(harness, Schedule({"delay": 300, "kind": 1}, (("queue", 1),)), patience=0.5) is None
    assert list(judged) == []


@pytest.mark.nightly
@pytest.mark.parametrize("row", known_deviations(), ids=str)
def test_a_known_deviation_shows_in_19_of_20_replays(harness: Harness, row: Known) -> None:
    """Its evidence shows, too."""
    sought = Sought(find_scenario(row.scenario), row.contract, known_deviations(), row)
    assert sum([sought.reproduce(harness, row.schedule()) is not None for _ in range(20)]) >= 19
