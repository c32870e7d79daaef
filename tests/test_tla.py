"""TLC on the twins: equal counts, equal steps, the violations that must come, and that differences are found."""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.explore.search import Bounded, bounded
from fuzz.platform.json import from_json
from fuzz.subject import Offset, Scope, find_subject
from fuzz.tlc import runs as engine
from fuzz.tlc.manifest import Run, chosen, read_manifest, space_of
from fuzz.tlc.module import camel, read_module
from fuzz.tlc.process import Job, distinct_states_of, find_jar, result_of, run_tlc
from fuzz.tlc.runs import MODULES, Result, make_run
from fuzz.tlc.values import Function, ModelValue, parse_state, parse_value, read_dump, tla
from model.machine import BadValue
from model.positions import Position
from tests.conftest import ROOT, altered_twin

RUNS = {run.name: run for run in read_manifest(MODULES)}
#: Fast enough for every change; the others are left to the nightly tests.
QUICK = [
    "smoke",
    "other_actions",
    "recorded_keeps_the_first_counter",
    "recorded_loses_bytes",
    "endless_access",
    "recycled_uncleared_edges",
    *[
        run.name
        for run in RUNS.values()
        if run.module == "CacheSteps" and run.scope == "smoke" and not run.distinct_states
    ],
    "entries_permits",
    "entries_at_once",
    "entries_recorded_erases_the_mark",
    "entries_recorded_keeps_the_first_counter",
    "entries_recorded_counts_undelivered_as_read",
    "entries_never_answered",
    "cursors_smoke",
    "cursors_recorded_miscounts_at_the_tail",
    "cursors_recorded_loses_the_list",
    "cursors_recorded_set_keeps_old_items",
    "nacks_smoke",
    "nacks_one_entry",
    "nacks_recorded_waits_for_the_longer",
    "nacks_before_393_moves_the_first",
    "nacks_go_passes_slots_over",
    "nacks_cpp_puts_the_timer_off",
    "batch_smoke",
    "batch_shipped_forgets_acks",
    "batch_shipped_drops_resets",
    "rollout_smoke",
    "rollout_shipped_meets_a_batch",
    "rollout_older_never_ends",
    "txn_log_smoke",
    "txn_log_cursor",
    "txn_log_trimmed",
    "txn_log_half_an_order",
    "txn_log_shipped_returns",
    "txn_log_later_returns",
    "pending_smoke",
    "pending_rejected_comes_back",
    "pending_set_is_not_live",
    "pending_replay_spins",
    "writer_smoke",
    "writer_at_once",
    "writer_escapes_forgets_the_large",
    "writer_exception_to_the_caller",
    "writer_second_close_returns",
    "writer_closed_buffer_is_stale",
    "writer_poisoned_goes_in_the_end",
    "writer_escapes_stays",
]


def makes(run: Run, tmp_path: Path, folder: Path = MODULES, space: Bounded | None = None) -> Result:
    return make_run(run, space or space_of(run), folder, tmp_path / "build")


# ---- the runs of the manifest -------------------------------------------------------------------------


def holds_to_the_manifest(run: Run, result: Result) -> None:
    assert result.differences == []
    assert result.result == run.expected
    if run.expected == "success":
        assert run.distinct_states == result.distinct_states > 0
        assert result.model_distinct_states in (None, result.distinct_states)
        assert (result.edges_checked > result.distinct_states) == run.edges


@pytest.mark.parametrize("name", QUICK)
def test_a_run_gives_what_the_manifest_says(name: str, tmp_path: Path) -> None:
    holds_to_the_manifest(RUNS[name], makes(RUNS[name], tmp_path))


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in RUNS if name not in QUICK])
def test_a_longer_run_gives_what_the_manifest_says(name: str, tmp_path: Path) -> None:
    holds_to_the_manifest(RUNS[name], makes(RUNS[name], tmp_path))


def test_every_success_has_an_exact_count() -> None:
    assert [run.name for run in RUNS.values() if (run.expected == "success") != (run.distinct_states is not None)] == []


@pytest.mark.parametrize("name", ["range_cache", "entry_cache", "cache_steps", "txn_log", "pending_acks", "txn_writer"])
def test_every_scope_has_a_run(name: str) -> None:
    subject = find_subject(name)
    plain = {run.scope for run in RUNS.values() if run.module == subject.tla and run.profile == "reference"}
    assert plain == set(subject.scopes)


@pytest.mark.parametrize(
    ("name", "without"),
    [
        # copies and outcomes are not modelled
        ("range_cache", {"a_copy_has_one_counter", "a_lookup_gives_what_was_asked"}),
        (
            "entry_cache",
            {
                "a_read_gets_what_it_asked_for",
                "every_request_is_answered_once",
                "an_eviction_says_what_left",
                "misses_are_counted_by_entry",
                "nobody_who_waits_for_permits_fails_early",
            },
        ),
        ("cache_steps", set()),
        (
            "active_cursors",
            {
                "the_size_counts_untracked_cursors_too",
                "caching_goes_on_for_the_grace_period",
                "the_version_tells_changes",
            },
        ),
        (
            "negative_acks",
            {
                # slots are a set of pairs
                "slots_are_in_order_and_hold_something",
                # ids and chunked messages are not modelled
                "a_chunked_message_comes_back_whole",
                "pieces_are_redelivered_once",
                "a_traced_id_comes_back",
                "the_latest_traced_id_is_kept",
                "pieces_are_remembered",
            },
        ),
        ("batch_acks", {"every_reset_is_answered"}),  # tickets have no numbers
        ("txn_rollout", set()),
        ("pending_acks", set()),
        ("txn_log", set()),
        ("txn_writer", set()),
    ],
)
def test_every_promise_has_a_twin(name: str, without: set[str]) -> None:
    subject = find_subject(name)
    module = read_module(MODULES, str(subject.tla))
    promises = [p for p in subject.properties if p.kind in ("always", "eventually")]
    assert {p.name for p in promises if camel(p.name) not in module.operators} == without


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("range_cache", {"step_clock_back"}),  # see test_the_clock_and_inverted_ranges
        ("entry_cache", set()),
        ("active_cursors", set()),
        ("cache_steps", set()),
        # chunked messages are not modelled; see test_the_wall_clock_of_nacks
        ("negative_acks", {"remember_chunks", "wall_clock_jumps"}),
        ("batch_acks", set()),
        ("txn_rollout", set()),
        ("pending_acks", set()),
        ("txn_log", set()),
        ("txn_writer", set()),
    ],
)
def test_every_action_is_driven_by_a_run_that_compares_steps(name: str, without: set[str]) -> None:
    subject = find_subject(name)
    of_twin = [run for run in RUNS.values() if run.module == subject.tla and run.edges]
    driven = {action for run in of_twin if (space := space_of(run)) for action in space.scope.actions}
    assert set(subject.machine.actions) - driven == without


# ---- differences are found ----------------------------------------------------------------------------

#: A run that is over soon, without properties: what differs is found by comparison alone.
BARE = RUNS["smoke"]._replace(checks=(), distinct_states=None, only={"position": [[1, 0]]})


def scratch(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    """A copy of the modules with some text of RangeCache.tla replaced."""
    return altered_twin(tmp_path / "tla", "RangeCache", *changes)


def test_an_altered_expiry_is_a_difference(tmp_path: Path) -> None:
    """As many states as the model, and yet not the same steps."""
    folder = scratch(tmp_path, ("e.timestamp_ns < threshold", "e.timestamp_ns <= threshold"))
    result = makes(BARE, tmp_path, folder)
    assert result.distinct_states == result.model_distinct_states
    [line] = result.differences
    assert "the model takes a step that TLC does not" in line
    assert "time_pass from State(" in line


def test_a_missing_step_is_a_difference(tmp_path: Path) -> None:
    folder = scratch(tmp_path, ("Clear == \\E c \\in cache : Become(AfterClear(c))", "Clear == UNCHANGED vars"))
    counted, stepped = makes(BARE._replace(distinct_states=7), tmp_path, folder).differences
    assert counted == "smoke: 75 distinct states, expected 7"
    assert "the model takes a step that TLC does not" in stepped
    assert "clear from" in stepped


def test_a_state_too_many_is_a_difference(tmp_path: Path) -> None:
    folder = scratch(tmp_path, ("expected_reads |-> InitialCount(n), copies", "expected_reads |-> n + 1, copies"))
    counted, reached, taken, *_ = makes(BARE, tmp_path, folder).differences
    assert re.search(r"TLC finds [\d,]+ distinct states, the model has [\d,]+", counted)
    assert "states that the model does not, such as State(" in reached
    assert "TLC takes a step that the model does not" in taken
    assert "put from State(" in taken


def test_another_start_is_a_difference(tmp_path: Path) -> None:
    at_first = "max_requeue_times = start_max_requeue_times"
    folder = scratch(tmp_path, (f"/\\ {at_first}", "/\\ max_requeue_times = start_max_requeue_times + 1"))
    assert any("does not begin where the model does" in line for line in makes(BARE, tmp_path, folder).differences)


def test_a_wrong_expectation_is_a_difference(tmp_path: Path) -> None:
    run = RUNS["recorded_loses_bytes"]._replace(expected="violated OneEntryPerPosition")
    [line] = makes(run, tmp_path).differences
    assert "violated SizesAreSums, expected violated OneEntryPerPosition" in line


def test_what_tlc_cannot_read_is_said(tmp_path: Path) -> None:
    folder = scratch(tmp_path, ("Exists == UNCHANGED vars", "Exists == UNCHANGED"))
    result = makes(BARE, tmp_path, folder)
    assert result.result.startswith("error: ")
    assert "tlc.log" in result.differences[0]


def test_the_clock_and_inverted_ranges(tmp_path: Path) -> None:
    """What no scope of the subject has: the fault of the clock, and ranges that end before they begin."""
    subject = find_subject("range_cache")
    subject = replace(subject, measures={**subject.measures, "ahead": ahead})
    positions = (Position(1, 0), Position(2, 0))
    scope = Scope(
        actions=("put", "get_range", "remove_range", "time_pass", "advance", "step_clock_back"),
        settings={"caches": 1, "ttl_ns": 1, "inverted_range": "illegal_argument"},
        domains={
            "position": positions,
            "first": positions,
            "last": positions,
            "last_inclusive": (True, False),
            "bytes": (1,),
            "expected_reads": (0,),
            "hold": (False,),
            "threshold_ns": Offset("now_ns", (0,)),
            "advance.nanos": (1,),
            "step_clock_back.nanos": (1, 2),
        },
        bounds={"slots": 2, "age": 2, "ahead": 2, "requeues": 1},
        reasons={},
    )
    further = "AheadAtMost(n) == LET Holds(e) == e.timestamp_ns <= n IN OfAll(Holds)\n"
    folder = scratch(tmp_path, ("OpenCopies ==", further + "OpenCopies =="))
    run = BARE._replace(checks=("AnInvertedRangeIsEmpty",), expected="violated AnInvertedRangeIsEmpty")
    space = Bounded(subject, "reference", scope)
    assert makes(run, tmp_path, folder, space).differences == []
    result = makes(BARE, tmp_path, folder, space)
    assert result.differences == []
    assert result.edges_checked > result.distinct_states > 100


def ahead(s: Any) -> int:
    """How far in the future an entry's time is, after the clock has gone back."""
    return max([e.timestamp_ns - s.now_ns for e in s.queue if e is not None], default=0)


def test_the_wall_clock_of_nacks(tmp_path: Path) -> None:
    """What only the scope with chunked messages has: the fault of the wall clock, which the recorded client follows."""
    subject = find_subject("negative_acks")
    smoke = subject.scopes["smoke"]
    scope = replace(
        smoke,
        actions=(*smoke.actions, "wall_clock_jumps"),
        domains={**smoke.domains, "entry": (Position(1, 0),), "wall_clock_jumps.by": (1, -3)},
        bounds={"pending": 2, "overdue": 1, "reach": 9},
    )
    run = RUNS["nacks_recorded"]._replace(distinct_states=None, only={})
    result = makes(run, tmp_path, space=Bounded(subject, "pulsar-2026-07", scope))
    assert result.differences == []
    assert result.edges_checked > result.distinct_states > 100


# ---- values -------------------------------------------------------------------------------------------

NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True).filter(lambda n: n not in ("None", "TRUE", "FALSE"))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**31) + 1, 2**31 - 1)
    | st.text(st.characters(codec="ascii"), max_size=8)
    | NAMES.map(ModelValue)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4).map(tuple)
        | st.frozensets(inner, max_size=4)
        | st.dictionaries(NAMES, inner, min_size=1, max_size=4).map(Function)
        | st.dictionaries(st.integers(-5, 5), inner, min_size=1, max_size=4).map(Function)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_values_come_back(value: Any) -> None:
    assert parse_value(tla(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<<>>", ()),
        ("{}", frozenset()),
        ("<< <<1, -2>>, {TRUE}, None >>", ((1, -2), frozenset({True}), None)),
        ("[a |-> 1, b |-> [c |-> <<>>]]", {"a": 1, "b": {"c": ()}}),
        ("(0 :> 2 @@ 1 :> w1)", {0: 2, 1: ModelValue("w1")}),
        ("(<<1, None>> :> 1)", {(1, None): 1}),
        ("1..3", frozenset({1, 2, 3})),
        (r'"say \"no\" \\"', r'say "no" \ '.rstrip(" ")),
    ],
)
def test_what_tlc_prints(text: str, value: Any) -> None:
    assert parse_value(text) == value


@pytest.mark.parametrize(
    "text", ["", "<<1,", "<<1 2>>", "[a |->]", "[1 |-> 2]", "{1} 2", "@", ",", "(1 :> )", "[a -> 1]"]
)
def test_what_is_no_value(text: str) -> None:
    with pytest.raises(BadValue):
        parse_value(text)


@pytest.mark.parametrize("value", [2**31, -(2**31), 0.5, object()])
def test_what_tla_cannot_hold(value: Any) -> None:
    with pytest.raises(BadValue):
        tla(value)


def test_a_state_and_a_graph(tmp_path: Path) -> None:
    assert parse_state('/\\ a = <<1,\n  2>>\n/\\ b_c = [d |-> "/\\"]'.replace('"/\\"', '"x"')) == {
        "a": (1, 2),
        "b_c": {"d": "x"},
    }
    assert parse_state("only = 1") == {"only": 1}
    graph = tmp_path / "graph.dot"
    graph.write_text(
        "strict digraph DiskGraph {\n"
        '-5 [label="/\\\\ x = \\"a\\"\\n/\\\\ y = 1",style = filled]\n'
        '-5 -> 7 [label="Go",color="black",fontcolor="black"];\n'
        '7 [label="/\\\\ x = \\"b\\"\\n/\\\\ y = 2"];\n'
        "{rank = same; -5;7;}\n}\n"
    )
    dump = read_dump(graph)
    assert (dump.initial, dump.edges) == ([-5], {(-5, "Go", 7)})
    assert {name: parse_state(text) for name, text in dump.states.items()} == {
        -5: {"x": "a", "y": 1},
        7: {"x": "b", "y": 2},
    }


# ---- TLC ----------------------------------------------------------------------------------------------


def said(number: int, badness: int, text: str) -> str:
    return f"@!@!@STARTMSG {number}:{badness} @!@!@\n{text}\n@!@!@ENDMSG {number} @!@!@\n"


def test_what_tlc_says_is_understood() -> None:
    counts = said(2199, 0, "1,234 states generated, 567 distinct states found, 0 states left on queue.")
    assert result_of(said(2193, 0, "Model checking completed. No error has been found.") + counts) == "success"
    assert distinct_states_of(counts) == 567
    assert result_of(said(2110, 1, "Invariant Good is violated.") + counts) == "violated Good"
    assert result_of(said(2107, 1, "Invariant Good is violated by the initial state:\nx = 1")) == "violated Good"
    assert result_of(said(2112, 1, "Action property Good is violated.")) == "violated Good"
    assert result_of(said(2116, 1, "Temporal properties were violated.")) == "violated"
    assert result_of(said(2103, 1, "TLC threw\nsomething.")) == "error: TLC threw something."
    assert result_of("java: not found\n") == "error: java: not found"
    assert result_of("") == "error: TLC said nothing"


COUNTER = """---- MODULE Counter ----
EXTENDS Naturals
VARIABLE n
Init == n = 0
Next == n' = n + 1
====
"""


def test_tlc_does_not_run_for_ever(tmp_path: Path) -> None:
    started = time.monotonic()
    job = Job("Counter", COUNTER, "INIT Init\nNEXT Next\n", tmp_path, tmp_path / "run", True, False, 2.0)
    outcome = run_tlc(job)
    assert outcome.result == "timeout"
    assert time.monotonic() - started < 20
    assert outcome.log.read_text().startswith("@!@!@STARTMSG")


def test_the_jar_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = find_jar()
    assert packaged.name == "tla2tools.jar"
    copy = tmp_path / "other.jar"
    shutil.copy(packaged, copy)
    monkeypatch.setenv("TLA2TOOLS", str(copy))
    assert find_jar() == copy
    monkeypatch.setenv("TLA2TOOLS", str(tmp_path / "none.jar"))
    with pytest.raises(BadValue, match=r"TLA2TOOLS names .*none\.jar, which is no file"):
        find_jar()


# ---- the manifest and the command line ----------------------------------------------------------------


def only_runs(folder: Path, text: str) -> None:
    """Replaces the folder's lists of runs by one."""
    shutil.rmtree(folder / "runs", ignore_errors=True)
    (folder / "runs").mkdir()
    (folder / "runs" / "one.toml").write_text(text)


ONE = '[[run]]\nname = "one"\nmodule = "RangeCache"\nscope = "smoke"\nabout = "one"\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[run", "one.toml: "),
        (ONE + ONE, "the run one is there twice"),
        (ONE.replace("about", "abuot"), "a run has no abuot"),
        (ONE.replace('scope = "smoke"\n', ""), "the run one lacks scope"),
        (ONE.replace('"one"', '"o ne"', 1), "o ne is no name for a run"),
        (ONE + 'edges = "yes"', "the run one: edges is 'yes', must be of type bool"),
        (ONE + 'expected = "violated"', "must be success or violated and a property's name"),
        (ONE + 'scope = "huge"', "Cannot overwrite"),
        (ONE.replace("smoke", "huge"), "range_cache has no scope huge"),
        (ONE + 'profile = "x"', "range_cache has no profile x"),
        (ONE + 'actions = ["fly"]', "drives fly, which range_cache does not have"),
        (ONE + "only = { bytes = [77] }", "has only [77] of bytes"),
        (ONE + "only = { copy = [1] }", "some values of copy, which has no fixed ones"),
        (ONE + "settings = { speed = 1 }", "range_cache has no setting speed"),
        (ONE + 'checks = ["Good"]', "RangeCacheProperties has no operator Good"),
        (ONE + 'checks = ["eventually"]\nactions = ["evict_to_watermark"]', "have different fair actions"),
        (ONE.replace("RangeCache", "Nothing"), "there is no module Nothing.tla"),
    ],
)
def test_a_manifest_that_makes_no_sense(
    text: str, complaint: str, tmp_path: Path, monkeypatch: Any, brokerproof: Any
) -> None:
    folder = scratch(tmp_path)
    only_runs(folder, text)
    monkeypatch.setattr(engine, "MODULES", folder)
    ran = brokerproof("tla")
    assert ran.code == 2
    assert complaint in ran.err
    assert ran.err.count("\n") == 1


def test_a_scope_that_tlc_cannot_be_given(tmp_path: Path) -> None:
    space = bounded(find_subject("range_cache"), "smoke")
    by_state = replace(space.scope, domains={**space.scope.domains, "bytes_to_free": lambda cfg, s: (1,)})
    run = BARE._replace(scope="by_state")
    with pytest.raises(BadValue, match=r"size_pass.bytes_to_free depends on the state"):
        makes(run, tmp_path, space=Bounded(space.subject, "reference", by_state))
    two = replace(space.scope, domains={**space.scope.domains, "get.position": (Position(1, 0),)})
    with pytest.raises(BadValue, match="different domains, and RangeCacheProperties one constant, position"):
        makes(run, tmp_path, space=Bounded(space.subject, "reference", two))


def test_runs_are_chosen() -> None:
    runs = list(RUNS.values())
    assert {run.name for run in chosen(runs, [], None)} == {run.name for run in runs if not run.nightly}
    assert [run.name for run in chosen(runs, ["RangeCache"], "nightly")] == ["nightly"]
    assert {run.module for run in chosen(runs, ["CacheSteps"], None)} == {"CacheSteps"}
    for modules, scope in ((["None"], None), (["CacheSteps"], "permits")):
        with pytest.raises(BadValue, match=r"there are smoke, ci|it has ActiveCursors, BatchAcks, "):
            chosen(runs, modules, scope)


TOKENS = """---- MODULE Tokens ----
EXTENDS Integers, FiniteSets, TLC
CONSTANTS tokens, most
VARIABLE taken
Symmetry == Permutations(tokens)
Init == taken = {}
Next == \\E t \\in tokens : Cardinality(taken) < most /\\ taken' = taken \\cup {t}
NeverTwo == Cardinality(taken) # 2
====
"""
#: Of four tokens up to three: as many states as there are numbers of tokens, for the tokens are interchangeable.
OF_TOKENS = """
[defaults.Tokens]
symmetry = "Symmetry"
model_values = { tokens = ["a", "b", "c", "d"] }
[defaults.Tokens.constants]
most = 3
[[run]]
name = "three"
module = "Tokens"
scope = "four"
about = "a module of its own"
distinct_states = 4
[[run]]
name = "two"
module = "Tokens"
scope = "four"
about = "what two runs share stands in the defaults"
expected = "violated NeverTwo"
checks = ["NeverTwo"]
[[run]]
name = "one"
module = "Tokens"
scope = "four"
about = "a constant over its default"
distinct_states = 2
checks = ["NeverTwo"]
constants = { most = 1 }
"""


def test_a_module_that_is_no_subjects_twin(tmp_path: Path, monkeypatch: Any, brokerproof: Any) -> None:
    (tmp_path / "Tokens.tla").write_text(TOKENS)
    only_runs(tmp_path, OF_TOKENS)
    monkeypatch.setattr(engine, "MODULES", tmp_path)
    ran = brokerproof("tla", "--json")
    assert ran.code == 0
    found = [(row["result"], row["distinct_states"], row["model_distinct_states"]) for row in ran.json["modules"]]
    assert found == [("success", 4, None), ("violated NeverTwo", found[1][1], None), ("success", 2, None)]
    only_runs(tmp_path, OF_TOKENS.replace("most = 3", "least = 3"))
    ran = brokerproof("tla")
    assert ran.code == 2
    assert "the run gives no value for the constant most of Tokens" in ran.err


def test_the_command(tmp_path: Path, monkeypatch: Any, brokerproof: Any) -> None:
    folder = scratch(tmp_path)
    ending = 'profile = "pulsar-2026-07"\nexpected = "violated LatestPutSetsTheCounter"\nchecks = ["always"]\n'
    only_runs(folder, ONE + ending)
    monkeypatch.setattr(engine, "MODULES", folder)
    ran = brokerproof("tla", "RangeCache", "--scope", "smoke", "--json")
    assert ran.code == 0
    schema = from_json((ROOT / "fuzz" / "schemas" / "tla.json").read_bytes())
    jsonschema.Draft202012Validator(schema).validate(ran.json)
    [row] = ran.json["modules"]
    assert (row["module"], row["scope"], row["result"]) == ("RangeCache", "smoke", "violated LatestPutSetsTheCounter")
    assert Path(row["log"]).exists()
    only_runs(folder, ONE + ending.replace("LatestPut", "FirstPut"))
    ran = brokerproof("tla")
    assert ran.code == 1
    assert "RangeCache one: differs" in ran.out
    assert "violated LatestPutSetsTheCounter, expected violated FirstPutSetsTheCounter" in ran.out
