"""Runs TLC on the twins, and compares states and steps with the explorer's.

The runs are derived from the scopes and the defect table, or written beside the modules: see `fuzz/tlc/manifest.py`.
For each run, a module is generated that extends the twin: it has the constants, bounds and actions of the subject's
scope. TLC's result is compared with the explorer's in the same scope:

    counts    the numbers of distinct states are equal
    edges     the steps between different states, each with its action, are equal in the two state graphs

A twin follows these conventions, so no engine needs to know a component:

    constants    a setting of the config has its name, or `start_` and its name if a variable has that name; the domain
                 of an argument has the name `<argument>` or `<action>_<argument>`, and is the offsets of an `Offset`
    actions      Init, vars, and an operator for each action: the action's name in CamelCase
    bounds       for each measure that a scope bounds, an operator such as SlotsAtMost(n)
    properties   operators with the names of `always` and `eventually` properties in CamelCase, in the module itself
                 or in `<Module>Properties`

Liveness: in any state, the system may switch to a mode in which only the fair actions occur. There, each of them is
weakly fair (unless `Run.fair` is empty), and may exceed the scope's bounds by LIVENESS_MARGIN. A liveness property is a
predicate that must hold at some time after the switch. TLC counts the states before and after the switch, and so does
the comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from fuzz.explore.counts import counts_of
from fuzz.explore.search import LIVENESS_MARGIN, OUTSIDE, Graph, Space, explore
from fuzz.platform.progress import showing
from fuzz.tlc.manifest import Run, all_runs, chosen
from fuzz.tlc.module import Twin, camel, read_module
from fuzz.tlc.process import Finished, Job, TlcResult, Verdict, run_tlc
from fuzz.tlc.values import parse_state, read_dump
from model.machine import BadValue

#: The modules of this project.
MODULES = Path(__file__).parents[2] / "tla"
#: The folder of TLC's files.
OUTPUT = Path("build/tla")
_TIMEOUT_SECONDS = 3600.0
#: One worker visits this many states in the time that two workers take to start.
_MAX_STATES_OF_SHORT_RUN = 10_000

#: Called with a line of progress.
Progress = Callable[[str], None]


class Result(NamedTuple):
    """The result of a run, and a line for each difference from what is expected."""

    run: Run
    result: TlcResult
    distinct_states: int  # that TLC found
    model_distinct_states: int | None  # None unless TLC succeeded, as expected
    edges_checked: int  # number of steps that are equal in the two state graphs; 0 if they are not compared
    seconds: float  # of TLC
    differences: list[str]
    log: str

    @property
    def passed(self) -> bool:
        """Whether there is no difference."""
        return not self.differences

    def row(self) -> dict[str, Any]:
        """Returns the result as plain data."""
        run, kept = self.run, self._asdict() | {"result": str(self.result)}
        kept.pop("run")
        names = {"module": run.module, "run": run.name, "scope": run.scope, "profile": run.profile}
        return {**names, "expected_result": str(expected_of(run)), **kept}


def expected_of(run: Run) -> TlcResult:
    """Returns the expected result of a run: success, or a violated property."""
    return TlcResult(Verdict.VIOLATED, run.violates) if run.violates else TlcResult(Verdict.SUCCESS)


# ---- running ------------------------------------------------------------------------------------------


def run_tla(modules: list[str], scope: str | None, console: Console, *, nightly: bool = False) -> list[Result]:
    """Makes the runs that `chosen` selects, one after the other. Returns their results.

    Raises BadValue for unknown names, for an invalid run, and if there is no Java or no TLC.
    """
    runs = chosen(all_runs(MODULES), modules, scope, nightly=nightly)
    results = []
    with showing(console, "starting TLC") as update:
        for number, run in enumerate(runs):

            def progress(text: str, run: Run = run, number: int = number) -> None:
                update(number, len(runs), f"{run.module} {run.name}: {text}")

            progress("starting TLC")
            results.append(make_run(run, MODULES, OUTPUT, progress=progress))
    return results


def make_run(
    run: Run,
    folder: Path = MODULES,
    output: Path = OUTPUT,
    *,
    space: Space | None = None,
    progress: Progress = lambda text: None,
) -> Result:
    """Runs TLC. Compares the result with the expected one, and the states and steps with those of the model in `space`.

    The default of `space` is `run.space()`. `folder` has the modules, `output` receives TLC's files. Raises BadValue
    for an invalid run, and if there is no Java or no TLC.
    """
    space = space or run.space()
    twin = Twin(read_module(folder, run.module), space, run.wanted, run.fair)
    expected = expected_of(run)

    def launch(checks: tuple[str, ...]) -> Finished:
        name = f"MC_{run.id}"
        text, config = twin.text(name, checks)
        job = Job(name, text, config, folder, output / run.id, _is_long(run), run.compares_edges, _TIMEOUT_SECONDS)
        return run_tlc(job, lambda seconds, message: progress(f"TLC {seconds:.0f} s {message}"))

    finished = _with_violated_name(launch, twin.checks)
    differences = []
    if finished.result != expected:
        differences.append(f"{run.id}: {finished.result}, expected {expected}; see {finished.log}")
    model_states, edges = None, 0
    if expected == finished.result and not run.violates:
        model_states, graph = _model_states(run, space, twin, progress)
        if model_states != finished.distinct_states:
            differences.append(
                f"{run.id}: TLC finds {finished.distinct_states:,} distinct states, the model has {model_states:,}"
            )
        if graph is not None and finished.dump is None:
            differences.append(f"{run.id}: TLC wrote no state graph to compare; see {finished.log}")
        elif graph is not None and finished.dump is not None:
            progress("comparing the steps")
            edges, found = compare_graphs(space, graph, finished.dump)
            differences += [f"{run.id}: {line}" for line in found]
    measured = (finished.distinct_states, model_states, edges, finished.seconds)
    return Result(run, finished.result, *measured, differences, str(finished.log))


def _is_long(run: Run) -> bool:
    """Returns whether a run must visit all states of a scope that is large or has no stored counts.

    Several workers and optimising compilation make such a run faster.
    """
    counts = counts_of(run.component, run.scope)
    return not run.violates and (counts is None or counts.distinct_states > _MAX_STATES_OF_SHORT_RUN)


def _model_states(run: Run, space: Space, twin: Twin, progress: Progress) -> tuple[int, Graph | None]:
    """Returns the number of states that TLC must find, and the model's graph if the steps are compared.

    The number includes the states after the switch to fair actions. If only counts are compared and the run has stored
    counts, the model is not explored.
    """
    if run.counts is not None and not run.compares_edges:
        return run.counts.distinct_states, None
    graph = _explored(space, progress)
    states = len(graph.states) + _states_after_switch(space, graph, twin.fair_actions)
    return states, graph if run.compares_edges else None


def _with_violated_name(launch: Callable[[tuple[str, ...]], Finished], checks: tuple[str, ...]) -> Finished:
    """Runs TLC with these checks. The result names a violated liveness property, whose name TLC does not print.

    If a liveness property is violated and there are several checks, TLC runs again with one check at a time.
    """
    together = launch(checks)
    unnamed = TlcResult(Verdict.VIOLATED)
    if together.result != unnamed:
        return together
    for each in checks:
        alone = together if len(checks) == 1 else launch((each,))
        if alone.result == unnamed:
            return alone._replace(result=TlcResult(Verdict.VIOLATED, each))
    return together


def _explored(space: Space, progress: Progress) -> Graph:
    """Returns the explorer's graph of a space. The last `_GRAPHS_KEPT` graphs are cached, because runs may share one.

    Raises BadValue if the model raises an exception or hangs.
    """
    key = (space.subject, str(space.cfg), space.scope.actions, str(space.scope.bounds), str(space.scope.domains))
    if key not in _graphs:
        while len(_graphs) >= _GRAPHS_KEPT:
            _graphs.pop(next(iter(_graphs)))
        found = explore(
            space,
            implementation=False,
            properties=False,
            progress=lambda done, known: progress(f"exploring {done:,} of {known:,} states"),
        )
        if found.violations:
            message = found.violations[0].difference.message
            raise BadValue(f"the model {space.subject.name} fails in this scope, see `brokerproof explore`: {message}")
        assert found.graph is not None, "an exploration on this machine keeps its graph"
        _graphs[key] = found.graph
    return _graphs[key]


_GRAPHS_KEPT = 2
_graphs: dict[Any, Graph] = {}


def _states_after_switch(space: Space, graph: Graph, actions: tuple[str, ...]) -> int:
    """Returns the number of states after the switch to the fair `actions`.

    They are the states of the graph, and all that the fair actions reach from them. If there are no fair actions, there
    is no switch, and the number is 0.
    """
    if not actions:
        return 0
    states = list(graph.states)
    seen = set(states)
    for state in states:  # the list grows in the loop
        for name, act, _, arguments in space.moves(state):
            if name in actions:
                form = space.machine.canonical(space.cfg, act(space.cfg, state, *arguments)[0])
                if form not in seen and space.within(form, LIVENESS_MARGIN):
                    seen.add(form)
                    states.append(form)
    return len(states)


# ---- comparing graphs ---------------------------------------------------------------------------------


def compare_graphs(space: Space, graph: Graph, dump: Path) -> tuple[int, list[str]]:
    """Returns the number of equal steps, and a line for each kind of difference.

    The kinds are: other initial states, states that only TLC reaches, steps that only TLC takes, and steps that only
    the model takes. A step is two different states and the name of an action. Raises BadValue if the subject has no
    `from_tla`. Cost: some tens of microseconds for each of TLC's states, and one or two for each step.
    """
    reads = space.subject.from_tla
    if reads is None:
        raise BadValue(
            f"the subject {space.subject.name} has no `from_tla`, which converts a TLA+ state to the model's"
        )
    dumped = read_dump(dump)
    read = {
        fingerprint: space.machine.canonical(space.cfg, reads(space.cfg, parse_state(text)))
        for fingerprint, text in dumped.states.items()
    }
    numbers = {state: number for number, state in enumerate(graph.states)}
    only_tlc = sorted({state for state in read.values() if state not in numbers}, key=str)
    states = [*graph.states, *only_tlc]
    numbers |= {state: len(graph.states) + i for i, state in enumerate(only_tlc)}
    number_of = {fingerprint: numbers[state] for fingerprint, state in read.items()}
    found = []
    if [number_of[each] for each in dumped.initial] != [0]:  # the initial state is state 0 of the explorer's graph
        found.append("TLC and the model have different initial states")
    if only_tlc:
        found.append(f"TLC reaches {len(only_tlc):,} states that the model does not, such as {only_tlc[0]}")
    actions = {f"MC_{camel(name)}": i for i, name in enumerate(space.scope.actions)}
    theirs = {
        (number_of[source], actions[action], number_of[target])
        for source, action, target in dumped.edges
        if number_of[source] != number_of[target]
    }
    ours = set(_edges(space, graph))
    for who, steps in (
        ("TLC takes a step that the model does not", theirs - ours),
        ("the model takes a step that TLC does not", ours - theirs),
    ):
        if steps:
            source, action, target = min(steps)
            found.append(
                f"{who} ({len(steps):,} of them): {space.scope.actions[action]} "
                f"from {states[source]} to {states[target]}"
            )
    return len(theirs & ours), found


def _edges(space: Space, graph: Graph) -> Iterator[tuple[int, int, int]]:
    """Yields the explorer's steps between different states: numbers of the state, the action and the next state."""
    actions = {name: i for i, name in enumerate(space.scope.actions)}
    for source, state in enumerate(graph.states):
        first = graph.offsets[source]
        for i, move in enumerate(space.moves(state)):
            target = graph.targets[first + i]
            if target not in (OUTSIDE, source):
                yield source, actions[move[0]], target
