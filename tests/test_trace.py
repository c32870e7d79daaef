"""Files of traces: what is written is read again, and an error in a file is one line."""

from __future__ import annotations

import copy
import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.platform.json import NotJSON, from_json, to_json
from fuzz.trace.agreement import Replayer, replayer_of
from fuzz.trace.file import ABSENT, ENGINE_KEY, BadTrace, Operation, Trace, read_traces, write_traces
from fuzz.trace.parallel import replay_files
from fuzz.trace.recording import mappings, recorded_traces
from tests.conftest import RECORDINGS

RECORDED = sorted({each.component for each in mappings()})
OPEN = '{"trace":"t","component":"range_cache","config":{"caches":["c0"],"max_requeue_times":1,"extend_ttl_of_recently_accessed":false,"start_ns":0}}\n'
CLEAR = '{"op":"clear","args":{"cache":"c0","now_ns":5},"result":{"removed_entries":0,"removed_bytes":0}}\n'


def test_what_is_absent_stays_absent_in_another_process(tmp_path: Path) -> None:
    assert copy.deepcopy(ABSENT) is ABSENT
    operations = [Operation("clear", {"cache": 0}, ABSENT, ABSENT, 0), Operation("clear", {"cache": 0}, -1, ABSENT, 0)]
    config = {"caches": 1}
    write_traces(tmp_path / "t.jsonl", [Trace(x, "range_cache", config, operations, {ENGINE_KEY: ""}) for x in "ab"])
    found = list(replay_files([tmp_path / "t.jsonl"], None, jobs=2))
    assert len(found) == 2
    for replayed in found:
        assert [each.labels for each in replayed.mismatches] == [["result"]]
        assert replayed.trace is not None
        assert replayed.trace.operations[0].result is ABSENT


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    operations = [Operation("put", {"position": [1, 2]}, None, ABSENT, 0), Operation("get", {}, {"x": 1}, [1, None], 0)]
    for name in ("t.jsonl", "t.jsonl.gz"):
        write_traces(tmp_path / name, [Trace("a", "c", {"x": 1}, operations, {"seed": 3}), Trace("b", "c", {}, [])])
        first, second = read_traces(tmp_path / name)
        assert [o[:4] for o in first.operations] == [o[:4] for o in operations]
        assert (first.id, first.config, first.header) == ("a", {"x": 1}, {"seed": 3})
        assert second.operations == []


HUGE = 2**64, -(2**63) - 1, 10**40, 2**63 - 1, -(2**63), 0


def test_integers_of_any_size_are_read_again_as_they_were(tmp_path: Path) -> None:
    written = {"of a batch": list(HUGE), "text": "1" * 30 + "é\n"}
    for indent in (False, True):
        assert from_json(to_json(written, indent=indent)) == written
        assert b"\n" in to_json(written, indent=indent) if indent else b"\n" not in to_json(written)
    write_traces(
        tmp_path / "t.jsonl", [Trace("a", "c", written, [Operation("put", {"set": HUGE[0]}, HUGE[2], ABSENT, 0)])]
    )
    [trace] = read_traces(tmp_path / "t.jsonl")
    assert trace.config == written
    assert [o[:3] for o in trace.operations] == [("put", {"set": HUGE[0]}, HUGE[2])]


@pytest.mark.parametrize("data", [b"{", b"NaN", b'"\xff"', b"[" + b"1" * 30, b"[" + b"1" * 30 + b",Infinity]", ""])
def test_what_is_no_json_is_refused_with_large_numbers_in_it_or_without(data: bytes | str) -> None:
    with pytest.raises(NotJSON):
        from_json(data)


def test_an_absent_result_is_not_null(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(OPEN + '{"op":"a","args":{}}\n{"op":"b","args":{},"result":null}\n')
    [trace] = read_traces(path)
    assert [o.result for o in trace.operations] == [ABSENT, None]


BAD = {
    "not JSON": (OPEN + '{"op":"clear","args":\n', "t.jsonl:2: not JSON"),
    "cut off": (OPEN + '{"op":"clear","ar', "the file seems to be cut off here"),
    "no object": (OPEN + "[1]\n", "t.jsonl:2: a line must be a JSON object"),
    "no trace": (CLEAR, "t.jsonl:1: the first line must open a trace"),
    "empty": ("", "t.jsonl: there is no trace in this file"),
    "no component": ('{"trace":"t","config":{}}\n', "t.jsonl:1: the line that opens a trace needs component, a text"),
    "no op": (OPEN + '{"args":{}}\n', "t.jsonl:2: an operation needs op"),
    "not a number": (OPEN + '{"op":"clear","args":{"x":NaN}}\n', "t.jsonl:2: not JSON"),
    "unknown component": (
        OPEN.replace("range_cache", "nope"),
        f"no mapping for the component nope; there are mappings for {', '.join(RECORDED)}\n",
    ),
    "unknown operation": (
        OPEN + CLEAR.replace('"clear"', '"explode"'),
        "t.jsonl:2: operation explode: range_cache has no action explode",
    ),
    "unknown key": (
        OPEN + CLEAR.replace('"result"', '"resutl"'),
        "t.jsonl:2: an operation has no key resutl; its keys are op, args, result, observe, thread, invoked, returned",
    ),
    "missing time": (OPEN + CLEAR.replace(',"now_ns":5', ""), "t.jsonl:2: operation clear: lacks 'now_ns'"),
    "unknown cache": (OPEN + CLEAR.replace('"cache":"c0"', '"cache":"c9"'), "t.jsonl:2: operation clear: "),
    "wrong type": (OPEN + CLEAR.replace('"now_ns":5', '"now_ns":"x"'), "t.jsonl:2: operation clear: "),
    "time as float": (OPEN + CLEAR.replace('"now_ns":5', '"now_ns":5.5'), "must be integer"),
    "extra argument": (OPEN + CLEAR.replace('"now_ns":5', '"now_ns":5,"x":1'), "clear has no argument x"),
    "bad config": (
        OPEN.replace('"max_requeue_times":1', '"max_requeue_times":-1') + CLEAR,
        "max_requeue_times is -1, must be integer of 0 or more",
    ),
    "config lacks": (OPEN.replace('"max_requeue_times":1,', "") + CLEAR, "lacks 'max_requeue_times'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_that_names_file_and_line(case: str, tmp_path: Path, brokerproof: Any) -> None:
    text, said = BAD[case]
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    ran = brokerproof("replay", path)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.count("\n") == 1, ran.err
    assert said in ran.err, ran.err


def test_damaged_gzip_is_one_line(tmp_path: Path, brokerproof: Any) -> None:
    whole = (RECORDINGS / "range_cache.jsonl.gz").read_bytes()
    for data in (whole[: len(whole) // 2], whole[:1000] + b"\0" * 50 + whole[1050:]):
        path = tmp_path / "cut.jsonl.gz"
        path.write_bytes(data)
        ran = brokerproof("replay", path)
        assert ran.code == 2
        assert ran.err.count("\n") == 1, ran.err
        assert "cut.jsonl.gz" in ran.err


def test_a_file_that_another_program_packed_is_one_line(brokerproof: Any) -> None:
    Path("log.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfdx\n")
    ran = brokerproof("replay", "log.jsonl.zst")
    assert (ran.code, ran.err) == (
        2,
        "brokerproof: log.jsonl.zst: is packed with zstd; unpack it, or pack it with gzip\n",
    )


def test_a_missing_file_is_one_line(brokerproof: Any) -> None:
    ran = brokerproof("replay", "nowhere.jsonl")
    assert (ran.code, ran.err) == (2, "brokerproof: nowhere.jsonl: cannot be read: No such file or directory\n")


def test_a_trace_that_lost_its_end_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_traces(path, [Trace("a", "c", {}, [Operation("x", {}, ABSENT, ABSENT, 0)] * 3)])
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(BadTrace, match="should have 3 operations and has 2"):
        list(read_traces(path))


def test_a_trace_never_executes_code(tmp_path: Path, brokerproof: Any) -> None:
    """Names in a trace are looked up among the actions, never anywhere else."""
    path = tmp_path / "t.jsonl"
    for name in ("__init__", "load", "view", "check", "__class__", "_unmap"):
        opening = '{"trace":"t","component":"range_cache","brokerproof":"0","config":{}}\n'
        path.write_text(opening + '{"op":"' + name + '","args":{}}\n')
        ran = brokerproof("replay", path)
        assert ran.code == 2
        assert f"has no action {name}" in ran.err


def test_writing_leaves_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    write_traces(path, [Trace("a", "c", {}, [])])
    assert [p.name for p in tmp_path.iterdir()] == ["t.jsonl.gz"]
    assert gzip.decompress(path.read_bytes()).endswith(b"\n")


@pytest.mark.parametrize("text", ["", "a,b\n"])
def test_a_table_without_rows_is_no_trace(text: str, tmp_path: Path) -> None:
    path = tmp_path / "service_unit_state_conflict.csv"
    path.write_text(text)
    with pytest.raises(BadTrace, match="the table has no row"):
        list(recorded_traces(path))


def test_an_observation_of_another_type_is_named() -> None:
    observed = {"tokens": True, "taken": 0}
    operation = Operation("add", {"tokens": 1}, 1, observed, 2)
    trace = Trace("t", "canary", {"capacity": 8}, [operation], {ENGINE_KEY: "test"})
    [mismatch] = replayer_of(trace).replay(trace).mismatches
    assert (mismatch.labels, mismatch.expected, mismatch.actual) == (
        ["observe.tokens"],
        {"tokens": True},
        {"tokens": 1},
    )


@pytest.mark.parametrize(("profile", "runs"), [(None, 1), ("reference", 1 + 2**5 - 1)])
def test_deviations_that_the_profile_has_are_not_tried(
    profile: str | None, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No set of deviations explains the mismatch. Each set that changes the config is tried once."""
    trace = next(recorded_traces(RECORDINGS / "active_cursor_container.jsonl.gz"))
    trace = replace(trace, operations=[trace.operations[0]._replace(result="no such result")])
    replayer = replayer_of(trace, profile)
    assert len(replayer.mapping.deviations) == 5
    tried = list[Any]()
    original = Replayer.first_mismatch
    monkeypatch.setattr(Replayer, "first_mismatch", lambda self, *a: tried.append(a) or original(self, *a))
    [mismatch] = replayer.replay(trace).mismatches
    assert (mismatch.labels, mismatch.known_deviation, len(tried)) == (["result"], None, runs)
