"""The recordings of the real system, and how the reference differs from them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from fuzz.run.call import Call
from fuzz.run.checks import broken_properties, event_of
from fuzz.run.pair import Depth, Pair
from fuzz.subject import find_profile, find_subject
from fuzz.target import Target
from fuzz.trace.agreement import Replayer
from fuzz.trace.file import ABSENT, Trace
from fuzz.trace.recording import TraceMapping, mapping_of, mappings, recorded_traces
from tests.conftest import RECORDINGS

#: Each file with its numbers of traces and of operations.
FILES = {
    "entry_cache_manager.jsonl.gz": (77, 7_786),
    "range_cache.jsonl.gz": (115, 11_623),
    "legacy_cache.jsonl.gz": (109, 10_064),
    "active_cursor_container.jsonl.gz": (156, 15_667),
    "active_cursor_container_ties.jsonl.gz": (1, 81),
    "active_cursor_heap.jsonl.gz": (49, 2_018),
    "ack_set.jsonl.gz": (20, 4_034),
    "negative_acks_tracker.jsonl.gz": (64, 6_356),
    "negative_acks_tracker_before_393.jsonl.gz": (71, 6_314),
    "negative_acks_tracker_go.jsonl.gz": (110, 6_351),
    "service_unit_state_conflict.csv.gz": (1, 47_660),
    "service_unit_state_transition.csv.gz": (1, 98),
    "txn_log_buffered_writer.jsonl.gz": (79, 6_874),
}
#: Deviations that violate no property: the recorded version has another design.
BY_DESIGN = {"added_entries_are_not_cached_after_the_last_cursor_left"}


@functools.cache
def traces(name: str) -> list[Trace]:
    return list(recorded_traces(RECORDINGS / name))


@pytest.mark.parametrize("name", FILES)
def test_every_operation_agrees_under_the_recorded_version(name: str) -> None:
    """The model has the recorded result and observation of every operation, and no operation lacks both."""
    count = operations = 0
    for trace in traces(name):
        mapping = mapping_of(trace)
        replayed = Replayer(mapping, find_subject(mapping.subject)).replay(trace)
        assert replayed.mismatches == []
        count, operations = count + 1, operations + replayed.operations
        assert all(o.result is not ABSENT or o.observe is not ABSENT for o in trace.operations), trace.id
    assert (count, operations) == FILES[name], "the numbers that the recordings were made with"


def shown(mapping: TraceMapping) -> dict[str, list[tuple[int, str]]]:
    """Returns by deviation the traces that show it under the reference, with the number of operations until then."""
    found: dict[str, list[tuple[int, str]]] = {}
    for name in FILES:
        for trace in traces(name):
            if mapping_of(trace) is mapping:
                for m in Replayer(mapping, find_subject(mapping.subject), "reference").replay(trace).mismatches:
                    found.setdefault(str(m.known_deviation), []).append((m.line - trace.line, trace.id))
    return found


@pytest.mark.parametrize("mapping", mappings(), ids=lambda r: f"{r.component}-{r.subject}-{r.profile}")
def test_the_reference_departs_in_exactly_the_pinned_ways(mapping: TraceMapping) -> None:
    """The recordings show the deviations of the mapping that have a `smallest` trace, and no others.

    This trace shows the deviation after the fewest operations.
    """
    found = shown(mapping)
    pinned = {d.name: d.smallest for d in mapping.deviations if d.smallest}
    assert {name: min(shortest)[1] for name, shortest in found.items()} == pinned


@pytest.mark.parametrize("mapping", mappings(), ids=lambda r: f"{r.component}-{r.subject}-{r.profile}")
def test_a_deviation_breaks_the_property_that_it_names(mapping: TraceMapping) -> None:
    """Under the recorded version's profile the property is broken in the smallest trace; under the reference it is not."""
    subject = find_subject(mapping.subject)
    always = {p.name for p in subject.properties if p.kind == "always"}
    for deviation in mapping.deviations:
        assert (deviation.breaks in always) is (deviation.name not in BY_DESIGN)
        flags = deviation.fields
        reference, recorded = (find_profile(subject, p) for p in ("reference", mapping.profile))
        assert all(getattr(reference, f) != getattr(recorded, f) for f in flags)
        if deviation.smallest:
            [trace] = [t for name in FILES for t in traces(name) if t.id == deviation.smallest]
            broken = broken_in(mapping, trace, mapping.profile)
            if deviation.name in BY_DESIGN:
                assert broken == set(), "a design that breaks a property is a defect, and names the property"
            else:
                assert deviation.breaks in broken
            assert deviation.breaks not in broken_in(mapping, trace, "reference")


@pytest.mark.parametrize("mapping", mappings(), ids=lambda r: f"{r.component}-{r.subject}-{r.profile}")
def test_a_recorded_config_overrides_no_rule_of_its_profile(mapping: TraceMapping) -> None:
    """Otherwise replay would compare with rules that no profile has."""
    machine = find_subject(mapping.subject).machine
    profile = find_profile(find_subject(mapping.subject), mapping.profile)
    configs = {str(t.config): t.config for name in FILES for t in traces(name) if mapping_of(t) is mapping}
    for config in configs.values():
        cfg = machine.configure(dict(mapping.settings(config)), profile)
        assert {rule: getattr(cfg, rule) for rule in machine.rules} == {r: getattr(profile, r) for r in machine.rules}


def broken_in(mapping: TraceMapping, trace: Trace, profile: str) -> set[str]:
    """Returns the properties that a trace's actions violate under a profile."""
    subject, broken = find_subject(mapping.subject), set[str]()
    cfg = subject.machine.configure(dict(mapping.settings(trace.config)), find_profile(subject, profile))
    start: Any = subject.machine.start(cfg)
    if "start_ns" in trace.config and hasattr(start, "now_ns"):
        start = start._replace(now_ns=trace.config["start_ns"])
    pair = Pair(Target(subject, cfg, model_only=True), start=start)
    indexes = {name: i for i, name in enumerate(subject.machine.actions)}
    for operation in trace.operations:
        for name, data in mapping.actions(cfg, pair.state, operation, trace.config):
            call = Call(name, subject.machine.actions[name].arguments(data, cfg))
            before, values = pair.state, pair.values
            assert pair.step(call, Depth.OUTCOME) is None
            event = event_of(subject, *call, pair.outcome)
            every = broken_properties(pair.checks, cfg, before, event, indexes[name], pair.state, values, pair.values)
            broken |= {each.name for each in every}
    return broken


def test_every_recording_is_listed() -> None:
    assert {path.name for path in RECORDINGS.glob("*.gz")} == set(FILES)


def replayed_by_command(brokerproof: Any, names: list[str]) -> None:
    ran = brokerproof("replay", *[RECORDINGS / name for name in names], "--json")
    assert ran.code == 0
    count, operations = (sum(FILES[name][i] for name in names) for i in (0, 1))
    assert ran.json == {"traces": count, "operations": operations, "agreed": count, "differences": [], "out": None}


def test_the_command_replays_several_files(brokerproof: Any) -> None:
    """Each file is small; together they are large enough to be replayed by several processes."""
    replayed_by_command(
        brokerproof, ["ack_set.jsonl.gz", "active_cursor_container_ties.jsonl.gz", "active_cursor_heap.jsonl.gz"]
    )


@pytest.mark.nightly
def test_the_command_replays_every_file(brokerproof: Any) -> None:
    replayed_by_command(brokerproof, sorted(FILES))


@pytest.mark.parametrize(
    ("name", "deviations"),
    [
        ("ack_set.jsonl.gz", {"overlap-in-trimmed-words-is-missed"}),
        (
            "range_cache.jsonl.gz",
            {"duplicate-put-keeps-first-read-count", "inverted-range-is-an-error", "removal-marks-read"},
        ),
    ],
)
def test_replay_under_the_reference_names_every_difference(brokerproof: Any, name: str, deviations: set[str]) -> None:
    ran = brokerproof("replay", RECORDINGS / name, "--profile", "reference", "--json")
    assert ran.code == 0, "every difference has a pinned name"
    assert {d["known_deviation"] for d in ran.json["differences"]} == deviations
    differing = {d["trace"] for d in ran.json["differences"]}
    assert ran.json["agreed"] == FILES[name][0] - len(differing), "a trace with any difference has not agreed"


def test_a_changed_recording_does_not_agree(brokerproof: Any, tmp_path: Path) -> None:
    """The check can fail: one number of one result is changed."""
    import gzip

    text = gzip.decompress((RECORDINGS / "range_cache.jsonl.gz").read_bytes()).decode()
    changed = text.replace('"removed_bytes":17', '"removed_bytes":18', 1)
    assert changed != text
    path = tmp_path / "changed.jsonl"
    path.write_text(changed)
    ran = brokerproof("replay", path, "--json")
    assert ran.code == 1
    [difference] = ran.json["differences"]
    assert difference["op"] == "evict_before_timestamp"
    assert difference["fields"] == ["result"]
    assert difference["known_deviation"] is None
    assert difference["expected"] == {"removed_entries": 1, "removed_bytes": 18}
    assert difference["actual"] == {"removed_entries": 1, "removed_bytes": 17}
