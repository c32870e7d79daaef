"""Runs TLC on the twins and compares states and steps with the explorer's.

The runs are derived from the scopes and the defect table, or written beside the modules: see `fuzz/tlc/manifest.py`.
A run's constants, bounds and actions are generated from the subject's scope into a module that extends the twin. The
result is compared with the explorer's in the same scope:

    counts    the numbers of distinct states are equal
    edges     the steps between different states, each with its action, are equal: those of TLC's state graph and those
              of the explorer's

Conventions of a twin, so that no engine knows a component:

    constants    a setting of the config, by its name, or `start_` and its name where a variable has that name; the
                 domain of an argument, by `<argument>` or `<action>_<argument>`; of an `Offset` the offsets
    actions      Init, vars, and an operator for each action: the action's name in CamelCase
    bounds       for each measure that a scope bounds, an operator such as SlotsAtMost(n)
    properties   operators with the names of `always` and `eventually` properties in CamelCase, in the module itself
                 or in `<Module>Properties`

Liveness: in any state the system may switch to the fair actions alone. Each of them is weakly fair, and they may exceed
the scope's bounds by LIVENESS_MARGIN. TLC counts the states before and those after the switch, and so does the
comparison.
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
from fuzz.tlc.process import SUCCESS, VIOLATED, Job, Outcome, run_tlc
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
    """The result of a run, and its differences from the expected result."""

    run: Run
    result: str
    distinct_states: int
    model_distinct_states: int | None
    edges_checked: int
    seconds: float
    differences: list[str]
    log: str

    @property
    def passed(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    def row(self) -> dict[str, Any]:
        """The result as plain data."""
        run, kept = self.run, self._asdict()
        kept.pop("run")
        names = {"module": run.module, "run": run.name, "scope": run.scope, "profile": run.profile}
        return {**names, "expected_result": expected_of(run), **kept}


def expected_of(run: Run) -> str:
    """The expected result of a run."""
    return f"{VIOLATED} {run.violates}" if run.violates else SUCCESS


# ---- running ------------------------------------------------------------------------------------------


def run_tla(modules: list[str], scope: str | None, console: Console, folder: Path | None = None) -> list[Result]:
    """Makes the runs of these modules in this scope, one after the other. Raises BadValue for unknown names.

    The folder has the modules and their runs (default: the project's).
    """
    folder = folder or MODULES
    runs = chosen(all_runs(folder), modules, scope)
    results = []
    with showing(console, "starting TLC") as update:
        for number, run in enumerate(runs):

            def progress(text: str, run: Run = run, number: int = number) -> None:
                update(number, len(runs), f"{run.module} {run.name}: {text}")

            progress("starting TLC")
            results.append(make_run(run, folder, OUTPUT, progress=progress))
    return results


def make_run(
    run: Run,
    folder: Path = MODULES,
    output: Path = OUTPUT,
    *,
    space: Space | None = None,
    progress: Progress = lambda text: None,
) -> Result:
    """Runs TLC once. Compares the result with the expected one and with the model in the space (default: the run's)."""
    space = space or run.space()
    twin = Twin(read_module(folder, run.module), space, run.wanted, run.fair)
    expected = expected_of(run)

    def launch(checks: tuple[str, ...]) -> Outcome:
        name = f"MC_{run.id}"
        text, config = twin.text(name, checks)
        job = Job(name, text, config, folder, output / run.id, _is_long(run), run.edges, _TIMEOUT_SECONDS)
        return run_tlc(job, lambda seconds, message: progress(f"TLC {seconds:.0f} s {message}"))

    outcome = _with_violated_name(launch, twin.checks)
    differences = []
    if outcome.result != expected:
        differences.append(f"{run.id}: {outcome.result}, expected {expected}; see {outcome.log}")
    model_states, edges = None, 0
    if expected == SUCCESS == outcome.result:
        model_states, graph = _model_states(run, space, twin, progress)
        if model_states != outcome.distinct_states:
            differences.append(
                f"{run.id}: TLC finds {outcome.distinct_states:,} distinct states, the model has {model_states:,}"
            )
        if graph is not None and outcome.dump is None:
            differences.append(f"{run.id}: TLC wrote no state graph to compare; see {outcome.log}")
        elif graph is not None and outcome.dump is not None:
            progress("comparing the steps")
            edges, found = compare_graphs(space, graph, outcome.dump)
            differences += [f"{run.id}: {line}" for line in found]
    found_states = (outcome.distinct_states, model_states, edges, outcome.seconds)
    return Result(run, outcome.result, *found_states, differences, str(outcome.log))


def _is_long(run: Run) -> bool:
    """Whether a run visits all states of a large scope, so that several workers and an optimising compiler pay off."""
    counts = counts_of(run.component, run.scope)
    return not run.violates and (counts is None or counts.distinct_states > _MAX_STATES_OF_SHORT_RUN)


def _model_states(run: Run, space: Space, twin: Twin, progress: Progress) -> tuple[int, Graph | None]:
    """The number of the model's states, and its graph if the steps are compared.

    A scope compared by counts alone is not explored: the count is the stored one.
    """
    if run.counts is not None and not run.edges:
        return run.counts.distinct_states, None
    graph = _explored(space, progress)
    states = len(graph.states) + _states_after_switch(space, graph, twin.fair_actions)
    return states, graph if run.edges else None


def _with_violated_name(launch: Callable[[tuple[str, ...]], Outcome], checks: tuple[str, ...]) -> Outcome:
    """The outcome of a run; if it violates a liveness property, with the property's name, which TLC does not print.

    Several properties are then checked one by one.
    """
    together = launch(checks)
    if together.result != VIOLATED:
        return together
    for each in checks:
        outcome = together if len(checks) == 1 else launch((each,))
        if outcome.result == VIOLATED:
            return outcome._replace(result=f"{VIOLATED} {each}")
    return together


def _explored(space: Space, progress: Progress) -> Graph:
    """The explorer's graph of a space, cached because several runs may share one."""
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
            message = found.violations[0].finding.difference.message
            raise BadValue(f"the model {space.subject.name} fails in this scope, see `brokerproof explore`: {message}")
        assert found.graph is not None, "an exploration on this machine keeps its graph"
        _graphs[key] = found.graph
    return _graphs[key]


_GRAPHS_KEPT = 2
_graphs: dict[Any, Graph] = {}


def _states_after_switch(space: Space, graph: Graph, actions: tuple[str, ...]) -> int:
    """The number of states after the switch to these fair actions: those of the graph, and those that they reach.

    0 without fair actions: then there is no switch.
    """
    if not actions:
        return 0
    states = list(graph.states)
    seen = set(states)
    for state in states:  # grows while it is walked over
        for name, act, _, arguments in space.moves(state):
            if name in actions:
                form = space.machine.canonical(space.cfg, act(space.cfg, state, *arguments)[0])
                if form not in seen and space.within(form, LIVENESS_MARGIN):
                    seen.add(form)
                    states.append(form)
    return len(states)


# ---- comparing graphs ---------------------------------------------------------------------------------


def compare_graphs(space: Space, graph: Graph, dump: Path) -> tuple[int, list[str]]:
    """The number of equal steps, and a line for the first difference of each kind.

    A step is two different states and an action's name. Cost: some tens of microseconds for each of TLC's states, and
    one or two for each step.
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
    unknown = sorted({state for state in read.values() if state not in numbers}, key=str)
    states = [*graph.states, *unknown]
    numbers |= {state: len(graph.states) + i for i, state in enumerate(unknown)}
    known = {fingerprint: numbers[state] for fingerprint, state in read.items()}
    found = []
    if [known[each] for each in dumped.initial] != [0]:
        found.append("TLC and the model have different initial states")
    if unknown:
        found.append(f"TLC reaches {len(unknown):,} states that the model does not, such as {unknown[0]}")
    actions = {f"MC_{camel(name)}": i for i, name in enumerate(space.scope.actions)}
    theirs = {
        (known[source], actions[action], known[target])
        for source, action, target in dumped.edges
        if known[source] != known[target]
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
    """The explorer's steps between different states: numbers of state, action and state."""
    actions = {name: i for i, name in enumerate(space.scope.actions)}
    for source, state in enumerate(graph.states):
        first = graph.offsets[source]
        for i, move in enumerate(space.moves(state)):
            target = graph.targets[first + i]
            if target not in (OUTSIDE, source):
                yield source, actions[move[0]], target
