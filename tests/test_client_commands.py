"""The commands for real clients: known deviations are replayed, campaigns merge findings, and bad input is named."""

from __future__ import annotations

import contextlib
import socket
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fuzz.campaign.driver import Inline, run_campaign
from fuzz.campaign.folder import Plan, open_campaign, read_plan, read_state
from fuzz.campaign.store import MemoryStore
from fuzz.campaign.worker import FindingRow, Spec
from fuzz.client import wire
from fuzz.client.harness import DriverFailed, Harness
from fuzz.client.known import CLIENT_PROFILE, REFERENCE, known_deviations
from fuzz.client.schedule import find_scenario, generate, read_schedule, write_schedule
from fuzz.commands import schema_of
from fuzz.commands.campaign import explained_findings, write_report


def test_the_command_names_a_known_deviation_and_replays_it(brokerproof: Any) -> None:
    row = known_deviations()[0]
    path = Path("schedule.json")
    write_schedule(path, row.scenario, row.schedule())
    options = ("client", row.scenario, "--trace", path, "--seconds", 0.01, "--json")
    ran = brokerproof(*options)
    jsonschema.validate(ran.json, schema_of("client"))
    finding, *_ = ran.json["findings"]
    assert (ran.code, finding["defect"]["id"]) == (0, row.defect.id)
    assert finding["replays"] == {"shown": 3, "of": 3}
    assert (finding["trace"], ran.json["traces"]) == (str(path), 1)
    assert brokerproof(*options, "--profile", "reference").code == 1


class Cut(Inline):
    """Runs tasks in this process, and divides the work among them as for a number of slots."""

    def __init__(self, slots: int) -> None:
        super().__init__()
        self.slots = slots


def campaign(
    seed: int, traces: int, slots: int = 1, profile: str = CLIENT_PROFILE
) -> tuple[MemoryStore, list[FindingRow]]:
    store, plan = MemoryStore(), Plan((Spec("client.producer", profile),), seed)
    opened = open_campaign(store, plan)
    return store, run_campaign(store, plan, opened, Cut(slots), traces=traces, partitions=slots).merge_findings()


CRASH = "client_does_not_crash: cpp-foreign-checksum-error-crashes"


def test_a_campaign_finds_a_known_deviation_and_says_how_often_it_replays(tmp_path: Path) -> None:
    store, [found] = campaign(8, 8)
    assert (found.signature, found.seed, found.replays, found.reproduced) == (CRASH, 9, 3, True)
    plan = read_plan(store)
    state = read_state(store, plan)
    assert state.merge_findings() == [found]
    [shown] = explained_findings(store, state)
    assert shown.defect is not None
    assert shown.explanation.guarantee.startswith("Whatever a broker answers")
    (tmp_path / "schedule").write_text(found.trace)
    assert read_schedule(tmp_path / "schedule", find_scenario("producer")) == generate(find_scenario("producer"), 9)
    write_report(store, plan, state, [shown])
    assert b"shown in 3 of 3 replays" in store.files["report.html"]


@pytest.mark.nightly
def test_a_campaign_finds_the_same_however_its_schedules_are_cut() -> None:
    found = campaign(4, 20)[1]
    assert len(found) == 2
    assert campaign(4, 20, slots=3)[1] == found


@pytest.mark.nightly
def test_a_campaign_shrinks_what_its_profile_does_not_know() -> None:
    [found] = campaign(8, 8, profile=REFERENCE)[1]
    assert found.signature == "client_does_not_crash after defer send send checksum"
    assert (found.shrunk_length, found.reproduced) == (4, True)


def test_wrong_names_in_a_campaign_of_a_scenario_are_named(brokerproof: Any) -> None:
    assert "there is no scenario nothing; there are " in brokerproof("campaign", "client.nothing").err
    assert (
        "client.producer has no profile nobody" in brokerproof("campaign", "client.producer", "--profile", "nobody").err
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "truncated"),
        ('{"scenario": "producer", "settings": {}, "steps": [["vanish"]]}', "no step vanish"),
        ('{"scenario": "producer", "settings": {"speed": 1}, "steps": []}', "no setting speed"),
        (
            '{"scenario": "producer", "settings": {"batching": 3}, "steps": []}',
            "batching is one of (False, True), got 3",
        ),
        ('{"scenario": "producer", "settings": {}, "steps": [["send", "all"]]}', "send takes values of"),
        ('{"scenario": "producer", "settings": {}, "steps": [[["send"]]]}', "no step ['send']"),
        ('{"scenario": "producer", "settings": {}, "steps": [[]]}', "producer has no step"),
        ('{"scenario": "transfer", "settings": {}, "steps": []}', "a schedule of transfer"),
    ],
)
def test_an_error_in_a_schedule_is_named(brokerproof: Any, text: str, why: str) -> None:
    Path("bad.json").write_text(text)
    ran = brokerproof("client", "producer", "--trace", "bad.json")
    assert ran.code == 2
    assert ran.err.startswith("brokerproof: bad.json: ")
    assert why in ran.err


def test_an_error_for_an_unknown_name_lists_the_known_names(brokerproof: Any) -> None:
    assert "producer" in brokerproof("client", "nothing").err
    assert "reference" in brokerproof("client", "producer", "--profile", "nobody").err


def test_a_client_of_ones_own_is_judged_without_known_deviations(brokerproof: Any) -> None:
    """The driver of `pulsar-client` as if it were one's own: a known deviation fails the run."""
    row = next(each for each in known_deviations() if each.defect.id == "cpp-foreign-checksum-error-crashes")
    path = Path("schedule.json")
    write_schedule(path, row.scenario, row.schedule())
    options = ("client", row.scenario, "--trace", str(path), "--seconds", "0.01", "--json")
    ran = brokerproof(*options, "--", sys.executable, "-m", "fuzz.client.driver")
    assert (ran.code, ran.json["profile"], ran.json["findings"][0]["defect"]) == (1, REFERENCE, None)
    ran = brokerproof(*options, "--profile", CLIENT_PROFILE, "--", sys.executable, "-m", "fuzz.client.driver")
    assert (ran.code, ran.json["profile"], ran.json["findings"][0]["defect"]["id"]) == (
        0,
        CLIENT_PROFILE,
        row.defect.id,
    )


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("./missing",), "./missing cannot be started: No such file or directory"),
        (
            (sys.executable, "-c", "raise SystemExit(3)"),
            "the driver did not answer hello: the program ended with exit code 3",
        ),
        ((sys.executable, "-m", "fuzz.client.rust_driver"), "the driver failed at open: TypeError"),
    ],
)
def test_a_driver_that_cannot_run_a_scenario_is_named(brokerproof: Any, command: tuple[str, ...], why: str) -> None:
    ran = brokerproof("client", "producer", "--traces", "1", "--", *command)
    assert ran.code == 2
    assert ran.err.splitlines()[-1].startswith(f"brokerproof: {why}")


def test_a_broker_that_ends_a_connection_does_not_blame_the_client_for_the_end() -> None:
    """A command that the brokers do not answer is no violation of the protocol; it ends the run with one line."""
    with Harness() as harness:
        url = harness.broker("reset")[0]
        unknown = wire.command_of(wire.Type.PING)
        unknown.type = 39  # GET_OR_CREATE_SCHEMA
        connect = wire.frame(wire.command_of(wire.Type.CONNECT, client_version="x", protocol_version=20))
        reports = []
        for sent in (connect + b"\0\0\0\x09\0\0\0\x63" + bytes(5), connect + wire.frame(unknown)):
            with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=30) as connection:
                connection.sendall(sent)
                with contextlib.suppress(ConnectionResetError):
                    while connection.recv(1 << 16):
                        pass
            try:
                reports.append(harness.broker("report"))
            except DriverFailed as problem:
                reports.append(str(problem))
        assert (len(reports[0]["problems"]), [each[2] for each in reports[0]["commands"]]) == (1, ["CONNECT", "ENDED"])
        assert reports[1] == "the client sent a command of type 39, which these brokers do not answer"
        assert [each[2] for each in harness.broker("report")["commands"]] == ["CONNECT", "ENDED"] * 2
