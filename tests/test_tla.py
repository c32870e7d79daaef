"""TLC on the twins: equal counts, equal steps, expected violations. The comparison finds altered twins."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from fuzz.commands import schema_of
from fuzz.defects.table import Defect, defects_of
from fuzz.explore.counts import Counts, counts_of
from fuzz.explore.search import Space, find_space
from fuzz.subject import Offset, Scope, find_subject
from fuzz.tlc import process
from fuzz.tlc import runs as engine
from fuzz.tlc.manifest import Run, all_runs, chosen
from fuzz.tlc.module import Twin, camel, read_module
from fuzz.tlc.process import Finished, Job, TlcResult, Verdict, distinct_states_of, find_jar, result_of, run_tlc
from fuzz.tlc.runs import MODULES, expected_of, make_run
from fuzz.tlc.values import Function, ModelValue, parse_state, parse_value, read_dump, tla
from model.machine import BadValue
from model.positions import Position
from tests.conftest import altered_twin

RUNS = {run.id: run for run in all_runs(MODULES)}
TWINS = sorted({run.component for run in RUNS.values()})
#: Violations that TLC finds late although their scope is small.
LATE = {
    "active_cursors_heap_removal_only_sifts_down",
    "active_cursors_tail_move_keeps_counts",
}
#: Of each component, a run in the smallest scope without violation, and one with an expected violation. The nightly
#: tests make the other runs.
QUICK = {
    min(
        (
            r
            for r in RUNS.values()
            if r.component == component and (r.violates if violated else r.counts) and r.id not in LATE
        ),
        key=lambda r: counts_of(r.component, r.scope),
    ).id
    for component in TWINS
    for violated in (False, True)
}
#: Actions that no run executes: a twin models no chunked messages and no functions, and no scope sets the clock back
#: (see test_the_clock_and_inverted_ranges).
NOT_EXECUTED = {
    "negative_acks": {"receive_chunks"},
    "ownership_channel": {"is_valid_transition", "should_keep_left"},
    "range_cache": {"step_clock_back"},
}


# ---- the runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.nightly]) for n in RUNS])
def test_a_run_gives_the_expected_result(name: str, tmp_path: Path) -> None:
    run = RUNS[name]
    result = make_run(run, MODULES, tmp_path)
    assert result.differences == []
    assert result.result == expected_of(run)
    if not run.violates:
        assert result.model_distinct_states == result.distinct_states > 0
        assert run.counts is None or run.counts.distinct_states == result.distinct_states
        # each state but the first is reached by an edge
        least = result.distinct_states - 1 if run.compares_edges else 0
        assert result.edges_checked >= least
        assert run.compares_edges or not result.edges_checked


@pytest.mark.parametrize("name", TWINS)
def test_the_twin_has_every_operator_that_a_run_needs(name: str) -> None:
    """This includes the nightly runs. If an operator is missing, `Twin` raises BadValue."""
    for run in RUNS.values():
        if run.component == name:
            twin = Twin(read_module(MODULES, run.module), run.space(), run.wanted, run.fair)
            text, config = twin.text(f"MC_{run.id}", twin.checks)
            assert f"EXTENDS {run.module}" in text
            assert [check for check in twin.checks if check not in config] == []


@pytest.mark.parametrize("name", TWINS)
def test_every_scope_has_a_run(name: str) -> None:
    scopes = find_subject(name).scopes
    possible = {s for s, scope in scopes.items() if not NOT_EXECUTED.get(name, set()) & set(scope.actions)}
    assert possible <= {run.name for run in RUNS.values() if run.component == name and run.counts}


@pytest.mark.parametrize("name", TWINS)
def test_every_liveness_property_is_checked_and_has_a_control(name: str) -> None:
    liveness = {camel(p.name) for p in find_subject(name).properties if p.kind == "eventually"}
    runs = [run for run in RUNS.values() if run.component == name]
    assert liveness <= {check for run in runs for check in run.wanted if not run.violates}
    assert liveness <= {run.violates for run in runs}


@pytest.mark.parametrize("name", TWINS)
def test_a_run_violates_every_invariant(name: str) -> None:
    operators = read_module(MODULES, str(find_subject(name).tla)).operators
    stated = {camel(p.name) for p in find_subject(name).properties if p.kind == "always"} & operators
    assert stated <= {run.violates for run in RUNS.values() if run.component == name}


@pytest.mark.parametrize("name", TWINS)
def test_every_operator_that_states_a_property_has_its_name(name: str) -> None:
    """An operator with another name, for example because the property was renamed, would be checked by no run."""
    top, others = str(find_subject(name).tla), {str(find_subject(each).tla) for each in TWINS if each != name}
    comment = re.compile(r"\(\*.*?\*\)|\\\*[^\n]*", re.DOTALL)
    texts = {path.stem: comment.sub("", path.read_text()) for path in MODULES.glob("*.tla")}
    own = [text for stem, text in texts.items() if not stem.startswith(tuple(others))]
    uses = Counter(re.findall(r"\w+", "".join(own)))
    defined = re.findall(r"^(\w+)(?:\([^=]*\))? ==", texts[f"{top}Properties"], flags=re.MULTILINE)
    of_properties = {camel(p.name) for p in find_subject(name).properties}
    in_runs = {check for run in RUNS.values() for check in run.wanted}
    assert of_properties & set(defined)
    assert [each for each in defined if each not in of_properties | in_runs and uses[each] == 1] == []


@pytest.mark.parametrize("row", [d for name in TWINS for d in defects_of(name)], ids=lambda d: f"{d.component}-{d.id}")
def test_a_defect_whose_property_the_twin_states_has_a_run(row: Defect) -> None:
    stated = camel(row.property) in read_module(MODULES, str(find_subject(row.component).tla)).operators
    assert stated == any(run.violates == camel(row.property) for run in RUNS.values() if run.component == row.component)


@pytest.mark.parametrize("name", TWINS)
def test_every_action_is_driven_by_a_run_that_compares_steps(name: str) -> None:
    compared = [run for run in RUNS.values() if run.component == name and run.compares_edges]
    driven = {action for run in compared for action in run.space().scope.actions}
    assert set(find_subject(name).machine.actions) - driven == NOT_EXECUTED.get(name, set())


# ---- differences are found ----------------------------------------------------------------------------

#: A short run without properties: only the comparison finds differences.
BARE = Run(component="range_cache", name="bare", scope="smoke", checks=(), only={"position": [[1, 0]]})


def scratch(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    """Returns a copy of the modules with some text of RangeCache.tla replaced."""
    return altered_twin(tmp_path / "tla", "RangeCache", *changes)


def test_an_altered_expiry_is_a_difference(tmp_path: Path) -> None:
    """The twin has as many states as the model, but other steps."""
    folder = scratch(tmp_path, ("e.timestamp_ns < threshold", "e.timestamp_ns <= threshold"))
    result = make_run(BARE, folder, tmp_path / "build")
    assert result.distinct_states == result.model_distinct_states
    [line] = result.differences
    assert "the model takes a step that TLC does not" in line
    assert "time_pass from State(" in line


def test_a_missing_step_is_a_difference(tmp_path: Path) -> None:
    folder = scratch(tmp_path, ("Clear == \\E c \\in cache : Become(AfterClear(c))", "Clear == UNCHANGED vars"))
    [stepped] = make_run(BARE, folder, tmp_path / "build").differences
    assert "the model takes a step that TLC does not" in stepped
    assert "clear from" in stepped


def test_a_state_too_many_is_a_difference(tmp_path: Path) -> None:
    folder = scratch(tmp_path, ("expected_reads |-> InitialCount(n), copies", "expected_reads |-> n + 1, copies"))
    counted, reached, taken, *_ = make_run(BARE, folder, tmp_path / "build").differences
    assert re.search(r"TLC finds [\d,]+ distinct states, the model has [\d,]+", counted)
    assert "states that the model does not, such as State(" in reached
    assert "TLC takes a step that the model does not" in taken
    assert "put from State(" in taken


def test_another_start_is_a_difference(tmp_path: Path) -> None:
    at_first = "max_requeue_times = start_max_requeue_times"
    folder = scratch(tmp_path, (f"/\\ {at_first}", "/\\ max_requeue_times = start_max_requeue_times + 1"))
    assert any("different initial states" in line for line in make_run(BARE, folder, tmp_path / "build").differences)


def test_another_count_is_a_difference(tmp_path: Path) -> None:
    run = structs.replace(BARE, counts=Counts(100_000, 1, 1), only={})
    [line] = make_run(run, MODULES, tmp_path).differences
    assert line == "range_cache_bare: TLC finds 3,693 distinct states, the model has 100,000"


def test_a_wrong_expectation_is_a_difference(tmp_path: Path) -> None:
    run = structs.replace(BARE, profile="pulsar-2026-07", violates="InvertedRangeIsEmpty")
    [line] = make_run(run, MODULES, tmp_path).differences
    assert "range_cache_bare: success, expected violated InvertedRangeIsEmpty" in line


def test_a_violation_stays_one_if_no_property_shows_it_alone() -> None:
    """TLC does not name the violated liveness property, so each property is run alone. Such a run may time out."""
    of_all = Finished(TlcResult(Verdict.VIOLATED), 1, 1.0, Path("log"), None)

    def launch(checks: tuple[str, ...]) -> Finished:
        return of_all if checks == ("A", "B") else of_all._replace(result=TlcResult(alone[checks[0]]))

    alone = {"A": Verdict.SUCCESS, "B": Verdict.VIOLATED}
    assert str(engine._with_violated_name(launch, ("A", "B")).result) == "violated B"
    assert str(engine._with_violated_name(launch, ("B",)).result) == "violated B"
    alone = {"A": Verdict.SUCCESS, "B": Verdict.TIMEOUT}
    assert engine._with_violated_name(launch, ("A", "B")) == of_all


def test_module_that_tlc_cannot_read_is_reported(tmp_path: Path) -> None:
    folder = scratch(tmp_path, ("Exists == UNCHANGED vars", "Exists == UNCHANGED"))
    result = make_run(BARE, folder, tmp_path / "build")
    assert result.result.verdict is Verdict.ERROR
    assert "tlc.log" in result.differences[0]


def test_the_clock_and_inverted_ranges(tmp_path: Path) -> None:
    """No scope of the subject has them: the clock is set back, and ranges end before they begin."""
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
    run = structs.replace(BARE, violates="InvertedRangeIsEmpty", only={})
    space = Space(subject, "reference", scope)
    assert make_run(run, folder, tmp_path / "build", space=space).differences == []
    result = make_run(BARE, folder, tmp_path / "build", space=space)
    assert result.differences == []
    assert result.edges_checked > result.distinct_states > 100


def ahead(s: Any) -> int:
    """Returns how far in the future the latest timestamp of an entry is, after the clock was set back."""
    return max([e.timestamp_ns - s.now_ns for e in s.queue if e is not None], default=0)


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
def test_invalid_values_are_rejected(text: str) -> None:
    with pytest.raises(BadValue, match="TLA\\+ value"):
        parse_value(text)


@pytest.mark.parametrize("value", [2**31, -(2**31), 0.5, object()])
def test_values_without_a_form_in_tla_are_rejected(value: Any) -> None:
    with pytest.raises(BadValue, match=r"TLC's integers are at most|has no TLA\+ form"):
        tla(value)


def test_a_state_and_a_graph(tmp_path: Path) -> None:
    assert parse_state('/\\ a = <<1,\n  2>>\n/\\ b_c = [d |-> "x"]') == {
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
    """Returns a message as TLC prints it with `-tool`: its number, its severity (0 is none), its text."""
    return f"@!@!@STARTMSG {number}:{badness} @!@!@\n{text}\n@!@!@ENDMSG {number} @!@!@\n"


def test_output_of_tlc_is_read() -> None:
    counts = said(2199, 0, "1,234 states generated, 567 distinct states found, 0 states left on queue.")
    assert str(result_of(said(2193, 0, "Model checking completed. No error has been found.") + counts)) == "success"
    assert distinct_states_of(counts) == 567
    assert str(result_of(said(2110, 1, "Invariant Good is violated.") + counts)) == "violated Good"
    assert str(result_of(said(2107, 1, "Invariant Good is violated by the initial state:\nx = 1"))) == "violated Good"
    assert str(result_of(said(2112, 1, "Action property Good is violated."))) == "violated Good"
    assert str(result_of(said(2116, 1, "Temporal properties were violated."))) == "violated"
    assert str(result_of(said(2103, 1, "TLC threw\nsomething."))) == "error: TLC threw something."
    assert str(result_of("java: not found\n")) == "error: java: not found"
    assert str(result_of("")) == "error: TLC printed nothing"


COUNTER = """---- MODULE Counter ----
EXTENDS Naturals
VARIABLE n
Init == n = 0
Next == n' = n + 1
====
"""


def test_tlc_does_not_run_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still until TLC has begun."""
    log = tmp_path / "run" / "tlc.log"
    has_begun = lambda: log.exists() and "@!@!@ENDMSG" in log.read_text()  # noqa: E731
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: 3.0 * has_begun()))
    job = Job("Counter", COUNTER, "INIT Init\nNEXT Next\n", tmp_path, tmp_path / "run", True, False, 2.0)
    outcome = run_tlc(job)
    assert outcome.result == TlcResult(Verdict.TIMEOUT)
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


# ---- lists of runs and the command line ---------------------------------------------------------------

ONE = '[one]\nscope = "smoke"\nabout = "one"\n'


def listing(folder: Path, text: str) -> Path:
    """Replaces the runs in a copy of the modules with these runs of range_cache."""
    shutil.rmtree(folder / "runs", ignore_errors=True)
    (folder / "runs").mkdir()
    (folder / "runs" / "range_cache.toml").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[run", "range_cache.toml: "),
        (ONE + ONE, "range_cache.toml: Cannot declare"),
        (ONE.replace("about", "abuot"), "the run one: Object contains unknown field `abuot`"),
        (ONE.replace('scope = "smoke"\n', ""), "the run one: Object missing required field `scope`"),
        (ONE.replace("[one]", '["o ne"]', 1), "a run's name has letters, digits and _, got o ne"),
        (ONE + 'nightly = "yes"', "the run one: Expected `bool`, got `str`"),
        (ONE.replace("smoke", "huge"), "range_cache has no scope huge"),
        (ONE + 'profile = "x"', "range_cache has no profile x"),
        (ONE + 'actions = ["fly"]', "the run range_cache_one names the action fly, which range_cache does not have"),
        (ONE + 'without = ["fly"]', "names the action fly, "),
        (ONE + 'fair = ["fly"]', "names the action fly, "),
        (ONE + "bounds = { height = 1 }", "the run range_cache_one bounds height; measures are "),
        ("one = 1", "range_cache.toml: "),
        (ONE + "only = { bytes = [77] }", "`only` has [77] for bytes"),
        (ONE + "only = { copy = [1] }", "`only` cannot restrict copy"),
        (ONE + "settings = { speed = 1 }", "range_cache has no setting speed"),
        (ONE + 'checks = ["Good"]', "RangeCacheProperties has no operator Good"),
        (ONE + 'checks = ["eventually"]\nactions = ["evict_to_watermark"]', "have different fair actions"),
        (ONE + 'checks = ["eventually"]\nwithout = ["advance"]', "states no property of the kind eventually"),
    ],
)
def test_an_invalid_run_is_an_error(text: str, complaint: str, tmp_path: Path) -> None:
    folder = listing(scratch(tmp_path), text)
    with pytest.raises(BadValue, match=re.escape(complaint)):
        make_run(next(run for run in all_runs(folder) if run.name == "one"), folder, tmp_path / "build")


def test_a_folder_without_runs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="has no runs; the TLA"):
        all_runs(tmp_path)
    listing(tmp_path, ONE)
    with pytest.raises(BadValue, match=r"there is no module RangeCache\.tla"):
        all_runs(tmp_path)


def test_a_scope_that_tlc_cannot_be_given(tmp_path: Path) -> None:
    space = find_space(find_subject("range_cache"), "smoke")
    by_state = replace(space.scope, domains={**space.scope.domains, "bytes_to_free": lambda cfg, s: (1,)})
    with pytest.raises(BadValue, match=r"size_pass.bytes_to_free depends on the state"):
        make_run(BARE, MODULES, tmp_path, space=Space(space.subject, "reference", by_state))
    two = replace(space.scope, domains={**space.scope.domains, "get.position": (Position(1, 0),)})
    with pytest.raises(BadValue, match="different domains, and RangeCacheProperties one constant, position"):
        make_run(BARE, MODULES, tmp_path, space=Space(space.subject, "reference", two))


def test_runs_are_chosen() -> None:
    runs = list(RUNS.values())
    assert {run.id for run in chosen(runs, [], None)} == {run.id for run in runs if not run.nightly}
    assert chosen(runs, [], None, nightly=True) == runs
    assert [run.name for run in chosen(runs, ["RangeCache"], "nightly")] == ["nightly"]
    assert {run.module for run in chosen(runs, ["CacheSteps"], None)} == {"CacheSteps"}
    for modules, scope, said in (
        (["None"], None, "there are ActiveCursors, BatchAcks, "),
        (["CacheSteps"], "permits", "there are smoke, ci"),
    ):
        with pytest.raises(BadValue, match=said):
            chosen(runs, modules, scope)


def test_the_command(tmp_path: Path, monkeypatch: Any, brokerproof: Any) -> None:
    control = structs.replace(BARE, profile="pulsar-2026-07", violates="LatestPutSetsExpectedReadCount")
    wrong = structs.replace(control, name="wrong", violates="InvertedRangeIsEmpty")
    monkeypatch.setattr(engine, "OUTPUT", tmp_path)
    monkeypatch.setattr(engine, "all_runs", lambda folder: [control])
    ran = brokerproof("tla", "RangeCache", "--scope", "smoke", "--json")
    assert ran.code == 0
    schema = schema_of("tla")
    jsonschema.Draft202012Validator(schema).validate(ran.json)
    [row] = ran.json["modules"]
    assert (row["module"], row["scope"], row["result"]) == ("RangeCache", "smoke", f"violated {control.violates}")
    assert Path(row["log"]).exists()
    monkeypatch.setattr(engine, "all_runs", lambda folder: [wrong])
    ran = brokerproof("tla")
    assert ran.code == 1
    assert "RangeCache wrong: differs" in ran.out
    assert "expected violated InvertedRangeIsEmpty" in ran.out
