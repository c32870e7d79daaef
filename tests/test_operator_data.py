"""Data that an operator has without a recorder: the topic of the service unit state channel, and logs in JSON."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from fuzz.run.generate import generate, plan_trace
from fuzz.subject import find_profile, find_subject
from fuzz.trace.agreement import Mismatch, replayer_of
from fuzz.trace.file import BadTrace
from fuzz.trace.recording import recorded_traces
from tests.test_cli import keeps_to_schema

BUNDLE = "public/default/0x00000000_0x40000000"
BROKERS = ("a:8080", "b:8080", "c:8080")
#: The known deviations that the topic of a healthy cluster shows.
NORMAL = {"stale_version", "assigned_while_releasing"}
Line = dict[str, Any]


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def message(state: str | None, dst: str | None, source: str | None, version: int, force: bool = False) -> Line:
    fields = {"state": state, "dstBroker": dst, "sourceBroker": source, "force": force, "versionId": version}
    more = {"splitServiceUnitToDestBroker": {}, "timestamp": 1_700_000_000_000}
    return {"key": BUNDLE, "value": None if state is None else fields | more}


def event(line: Line, **more: Any) -> Line:
    """Returns the event that a broker logs for a record. The event has the record as a text, as Java prints it."""
    fields, order = line["value"], ("state", "dstBroker", "sourceBroker", "splitServiceUnitToDestBroker", "force")
    parts = [f"{name}={java(fields[name])}" for name in (*order, "timestamp", "versionId")] if fields else []
    data = f"ServiceUnitStateData[{', '.join(parts)}]" if parts else ""
    attributes = {"thread.name": "t", "serviceUnit": line["key"], "data": data}
    first = {"Timestamp": "2026-01-01T00:00:00.000Z", "SeverityText": "INFO", "Body": "x"}
    return {**first, "Attributes": attributes, **more}


def java(value: Any) -> str:
    """Returns the value as Java prints it."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def write(lines: Iterable[Line], name: str = "data.jsonl") -> Path:
    path = Path(name)
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def differences(path: Path) -> list[Mismatch]:
    return [m for trace in recorded_traces(path) for m in replayer_of(trace).replay(trace).mismatches]


TRANSFER = (
    message("Assigning", "a:8080", None, 1),
    message("Owned", "a:8080", None, 2),
    message("Releasing", "b:8080", "a:8080", 3),
    message("Assigning", "b:8080", "a:8080", 4),
    message("Owned", "b:8080", "a:8080", 5),
)
SPLIT = (*TRANSFER, message("Splitting", None, "b:8080", 6), message("Deleted", None, "b:8080", 7))


@pytest.mark.parametrize(
    ("lines", "line", "says"),
    [
        ((*SPLIT, message(None, None, None, 0), message("Owned", "c:8080", None, 1)), 0, ""),
        ((*TRANSFER, message("Free", None, "b:8080", 6, force=True)), 0, ""),
        (TRANSFER[2:], 0, ""),  # a compacted topic, or one whose beginning was trimmed
        ((*TRANSFER[:3], message("Owned", "b:8080", "a:8080", 4)), 4, "Releasing -> Owned, invalid transition"),
        ((*TRANSFER[:3], message("Assigning", "c:8080", "a:8080", 4)), 4, "the brokers do not fit"),
        ((*TRANSFER[:2], message("Releasing", "b:8080", "", 3)), 3, "the brokers do not fit"),
        ((*TRANSFER[:2], message("Assigning", "c:8080", None, 2)), 3, "stale_version: version 2 after version 2"),
    ],
)
def test_records_of_a_topic(lines: tuple[Line, ...], line: int, says: str) -> None:
    found = differences(write(lines))
    assert [each.line for each in found] == ([line] if line else [])
    assert all(says in each.actual for each in found)
    assert {each.known_deviation for each in found} <= {None, *NORMAL}


def test_a_log_has_the_attributes_in_an_object_or_flat_and_repeats_records() -> None:
    other = {"Timestamp": "2026-01-01T00:00:00.000Z", "SeverityText": "INFO", "Body": "started", "Attributes": {}}
    events = [other, *[event(each) for each in TRANSFER for _ in range(2)], event(message(None, None, None, 0))]
    assert differences(write(events, "broker.log")) == []
    flat = [{**each, **each["Attributes"]} for each in events]
    for each in flat:
        del each["Attributes"]
    assert differences(write(flat)) == []
    [found] = differences(write([*events[:-1], event(TRANSFER[1])]))
    assert (found.line, found.known_deviation) == (12, None), "a broker does not accept an old version"
    assert [len(trace.operations) for trace in recorded_traces(Path("data.jsonl"))] == [11]


@pytest.mark.parametrize("severity", ["WARN", "ERROR", "FATAL"])
def test_a_warning_or_error_of_a_log_is_no_record(severity: str) -> None:
    events = [event(each) for each in TRANSFER]
    assert differences(write([*events, event(TRANSFER[1], SeverityText=severity)])) == []


def test_a_log_of_a_container_has_other_lines_too() -> None:
    """The output of the start script, and a rotated file that begins in the middle of a line."""
    events = [json.dumps(event(each)) for each in TRANSFER]
    path = Path("broker.log.1")
    path.write_text(
        "\n".join(['dstBroker=a"}', "[conf/broker.conf] Applying config x = 1", *events, "\tat A.b(A.java:1)", ""])
    )
    assert differences(path) == []
    assert [trace.line for trace in recorded_traces(path)] == [3]
    path.write_text("\n".join([*events, events[1][:40]]))
    with pytest.raises(BadTrace, match=r"broker.log.1:6: not JSON .*the file seems to be cut off here"):
        differences(path)
    write([{"key": BUNDLE, "value": None}]).write_text("x\n" + json.dumps(TRANSFER[0]))
    with pytest.raises(BadTrace, match=r"data.jsonl:1: not JSON"):
        differences(Path("data.jsonl"))  # a script that writes a topic writes nothing else


def test_a_log_is_in_the_order_of_time_in_any_zone() -> None:
    """A search engine exports the newest event first. At the end of summer time, later times are smaller numbers."""
    times = ("02:59:59.000+02:00", "02:00:00.000+01:00", "02:10:00.000+0100", "01:20:00.000Z", "01:30:00.000")
    events = [event(each, Timestamp=f"2026-10-25T{time}") for each, time in zip(TRANSFER, times, strict=True)]
    assert differences(write(events)) == []
    assert differences(write([{**each, "Timestamp": "now"} for each in events])) == []
    with pytest.raises(BadTrace, match=r"data.jsonl:5: log of a broker: the last record is older than the first; sort"):
        differences(write(reversed(events)))


def logged(seed: int) -> list[Line]:
    """Returns a dump of the messages that the model appends to the topic in the trace of a seed."""
    subject = find_subject("ownership_channel")
    base = find_profile(subject, "pulsar-2026-09")
    cfg = plan_trace(subject, base, seed)[0].config
    state = subject.machine.start(cfg)
    for call in generate(subject, base, seed):
        state, _ = subject.machine.step(cfg, state, *call)
    names = {None: None, -1: "", **dict(enumerate(BROKERS))}
    lines = []
    for bundle, d in state.log:
        fields = (None, None, None, 0) if d is None else (d.state, names[d.dst_broker], names[d.source_broker])
        record = message(*fields) if d is None else message(*fields, d.version_id, d.force)
        lines.append({**record, "key": f"{BUNDLE}{bundle}"})
    return lines


def corrupted(lines: list[Line], chance: random.Random) -> list[Line]:
    """Returns the dump with another state or broker in one record."""
    lines = [json.loads(json.dumps(each)) for each in lines]
    at = chance.choice([i for i, each in enumerate(lines) if each["value"]])
    value, kind = lines[at]["value"], chance.choice(("state", "dstBroker", "sourceBroker"))
    domain = {"state": ("Free", "Owned", "Assigning", "Releasing", "Splitting", "Deleted")}.get(kind, (None, *BROKERS))
    value[kind] = chance.choice([each for each in domain if each != value[kind]])
    return lines


def test_topics_of_the_model_agree_and_corrupted_ones_do_not() -> None:
    """A corruption shows unless the next record is forced, absent or of a version that is not checked."""
    dumps = [lines for lines in map(logged, range(90)) if any(each["value"] for each in lines)]
    assert len(dumps) > 30
    known = [differences(write(lines)) for lines in dumps]
    assert {each.known_deviation for found in known for each in found} == NORMAL, "and no difference without a name"
    chance = random.Random(1)
    changed = [differences(write(corrupted(lines, chance))) for lines in dumps]
    detected = sum(found != names for found, names in zip(changed, known, strict=True))
    assert detected >= 0.5 * len(dumps), f"{detected} of {len(dumps)}"


BAD = {
    "no record": ([{"key": BUNDLE, "value": 3}], "data.jsonl:1: topic of the service unit state channel: the record must be"),
    "no version": ([TRANSFER[0], {"key": BUNDLE, "value": {"state": "Free"}}], "data.jsonl:2: topic of the service unit state channel: the record lacks versionId"),
    "no value": ([TRANSFER[0], {"key": BUNDLE}], "data.jsonl:2: topic of the service unit state channel: lacks 'value'"),
    "state": ([message("Ownd", "a:8080", None, 1)], "data.jsonl:1: operation record: should_keep_left.right.state is 'Ownd'"),
    "broker": ([message("Owned", 5, None, 1)], "data.jsonl:1: topic of the service unit state channel: dstBroker must be a text"),  # type: ignore[arg-type]
    "log": ([event(TRANSFER[0], Attributes={})], "data.jsonl: log of a broker: no event has the attributes serviceUnit and data"),
    "data": ([event(TRANSFER[0], Attributes={"serviceUnit": BUNDLE, "data": "x"})], "data.jsonl:1: log of a broker: data must be"),
    "attributes": ([event(TRANSFER[0], Attributes=["serviceUnit", "data"])], "data.jsonl:1: log of a broker: Attributes must be"),
    "version": ([event(TRANSFER[0], Attributes={"serviceUnit": BUNDLE, "data": "X[state=Free, force=false, versionId=x]"})], "data.jsonl:1: log of a broker: versionId must be a number, got x"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_records_are_one_line_that_names_file_and_line(case: str, brokerproof: Any) -> None:
    lines, said = BAD[case]
    ran = brokerproof("replay", write(lines))
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert said in ran.err


def test_the_command_gives_a_verdict_for_each_bundle(brokerproof: Any) -> None:
    other = [{**each, "key": "public/default/0x40000000_0x80000000"} for each in TRANSFER]
    race = message("Assigning", "c:8080", None, 2)
    ran = brokerproof("replay", write([*TRANSFER[:2], race, *TRANSFER[2:], *other]), "--json")
    data = keeps_to_schema("replay", ran)
    assert (ran.code, data["traces"], data["operations"], data["agreed"]) == (0, 2, 11, 1)
    ran = brokerproof(
        "replay", write([*TRANSFER, TRANSFER[1] | {"value": {**TRANSFER[1]["value"], "versionId": 6}}, *other])
    )
    assert ran.code == 1
    assert f"{BUNDLE}, line 6: record, result" in ran.out
    assert "rejected: Owned -> Owned, invalid transition" in ran.out
    assert "1 of 2 traces agree (11 operations)" in ran.out
