"""TLC on the twins: as many states as the model has, and the same steps between them.

A manifest beside the TLA+ modules lists the runs: a module, a scope, what is expected, the exact number of distinct
states. Where a subject names the module as its twin, the run's constants, bounds and actions are generated from the
subject's scope into a thin module, and what TLC finds is compared with what the explorer finds in the same scope:

    counts    as many distinct states
    edges     every step of TLC's graph is one of the explorer's, and the other way round; steps that change nothing
              are not compared

How a twin is written, so that this works without knowing it:

    constants    a setting of the config, by its name, or `start_` and its name where a variable has that name; an
                 argument's values, by `<argument>` or `<action>_<argument>`; of an `Offset` the offsets
    actions      Init, vars, and an operator for each action, called as the action in CamelCase
    bounds       for each measure that a scope bounds an operator such as SlotsAtMost(n)
    properties   operators with the names of `always` and `eventually` properties in CamelCase, in the module itself
                 or in the one called `<Module>Properties`

What must come in the end is asked of a system that at any moment goes over to the fair actions alone, each of them
weakly fair and a little beyond the scope's bounds. TLC sees every state before and after that moment, and what the
fair actions make of it; the model's states are counted likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from fuzz.explore.search import OUTSIDE, Bounded, Graph, explore
from fuzz.platform.progress import showing
from fuzz.tlc.manifest import Run, chosen, read_manifest, space_of
from fuzz.tlc.module import BEYOND, Twin, camel, read_module
from fuzz.tlc.process import SUCCESS, VIOLATED, Job, Outcome, run_tlc
from fuzz.tlc.values import parse_state, read_dump
from model.machine import BadValue

#: The modules of this project.
MODULES = Path(__file__).parents[2] / "tla"
#: Where TLC's files go.
PLACE = Path("build/tla")
_TIMEOUT_SECONDS = 3600.0

#: Told of progress: words.
Tell = Callable[[str], None]


class Result(NamedTuple):
    """What came of a run."""

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
        """Whether everything was as expected."""
        return not self.differences

    def row(self) -> dict[str, Any]:
        """The result as plain data."""
        run = self.run
        return {
            "module": run.module,
            "run": run.name,
            "scope": run.scope,
            "profile": run.profile,
            "distinct_states": self.distinct_states,
            "model_distinct_states": self.model_distinct_states,
            "edges_checked": self.edges_checked,
            "expected_result": run.expected,
            "result": self.result,
            "seconds": self.seconds,
            "differences": self.differences,
            "log": self.log,
        }


# ---- running ------------------------------------------------------------------------------------------


def run_tla(
    modules: list[str], scope: str | None, console: Console, folder: Path | None = None, place: Path = PLACE
) -> list[Result]:
    """Makes the runs of the modules and the scope, one after the other. Raises BadValue for what there is not.

    The modules and their manifest are in the folder (default: the project's); TLC's files go to the place.
    """
    folder = folder or MODULES
    runs = chosen(read_manifest(folder), modules, scope)
    results = []
    with showing(console, "starting TLC") as update:
        for number, run in enumerate(runs):

            def tell(words: str, run: Run = run, number: int = number) -> None:
                update(number, len(runs), f"{run.module} {run.name}: {words}")

            tell("starting TLC")
            results.append(make_run(run, space_of(run), folder, place, tell))
    return results


def make_run(run: Run, space: Bounded | None, folder: Path, place: Path, tell: Tell = lambda words: None) -> Result:
    """Makes one run, and compares what TLC found with what was expected and with the model in its space."""
    twin = Twin(read_module(folder, run.module), run, space)

    def launch(checks: tuple[str, ...]) -> Outcome:
        name = f"MC_{run.name}"
        text, config = twin.text(name, checks)
        job = Job(name, text, config, folder, place / run.name, run.expected == SUCCESS, run.edges, _TIMEOUT_SECONDS)
        return run_tlc(job, lambda seconds, said: tell(f"TLC {seconds:.0f} s {said}"))

    outcome = _named(launch, twin.checks)
    differences = []
    if outcome.result != run.expected:
        differences.append(f"{run.name}: {outcome.result}, expected {run.expected}; see {outcome.log}")
    counted = run.expected == SUCCESS == outcome.result
    if counted and run.distinct_states is not None and outcome.distinct_states != run.distinct_states:
        differences.append(f"{run.name}: {outcome.distinct_states:,} distinct states, expected {run.distinct_states:,}")
    model_states, edges = None, 0
    if counted and space is not None:
        graph = _explored(space, tell)
        model_states = len(graph.states) + _states_at_the_end(space, graph, twin.going_on)
        if model_states != outcome.distinct_states:
            differences.append(
                f"{run.name}: TLC finds {outcome.distinct_states:,} distinct states, the model has {model_states:,}"
            )
        if run.edges and outcome.dump is None:
            differences.append(f"{run.name}: TLC wrote no state graph to compare; see {outcome.log}")
        elif run.edges and outcome.dump is not None:
            tell("comparing the steps")
            edges, found = compare_graphs(space, graph, outcome.dump)
            differences += [f"{run.name}: {line}" for line in found]
    return Result(
        run,
        outcome.result,
        outcome.distinct_states,
        model_states,
        edges,
        outcome.seconds,
        differences,
        str(outcome.log),
    )


def _named(launch: Callable[[tuple[str, ...]], Outcome], checks: tuple[str, ...]) -> Outcome:
    """The outcome, with the name of the violated property: TLC does not say which of several in the end it was."""
    outcome = launch(checks)
    if outcome.result != VIOLATED:
        return outcome
    for each in checks:
        outcome = launch((each,))
        if outcome.result == VIOLATED:
            return outcome._replace(result=f"{VIOLATED} {each}")
    return outcome


def _explored(space: Bounded, tell: Tell) -> Graph:
    """The explorer's graph of a space; the last ones are kept, for several runs may share one."""
    key = (space.subject.name, str(space.cfg), space.scope.actions, str(space.scope.bounds), str(space.scope.domains))
    if key not in _graphs:
        while len(_graphs) >= _GRAPHS_KEPT:
            _graphs.pop(next(iter(_graphs)))
        found = explore(
            space,
            implementation=False,
            properties=False,
            tell=lambda done, known: tell(f"exploring {done:,} of {known:,} states"),
        )
        assert found.graph is not None, "an exploration on this machine keeps its graph"
        _graphs[key] = found.graph
    return _graphs[key]


_GRAPHS_KEPT = 2
_graphs: dict[Any, Graph] = {}


def _states_at_the_end(space: Bounded, graph: Graph, actions: tuple[str, ...]) -> int:
    """How many states there are when only these actions go on, from any state, a little beyond the bounds."""
    if not actions:
        return 0
    states = list(graph.states)
    seen = set(states)
    for state in states:  # grows while it is walked over
        for name, act, _, arguments in space.moves(state):
            if name in actions:
                form = space.machine.canonical(space.cfg, act(space.cfg, state, *arguments)[0])
                if form not in seen and space.within(form, BEYOND):
                    seen.add(form)
                    states.append(form)
    return len(states)


# ---- comparing graphs ---------------------------------------------------------------------------------


def compare_graphs(space: Bounded, graph: Graph, dump: Path) -> tuple[int, list[str]]:
    """How many steps were compared, and the first difference of each kind as a readable line.

    A step is two different states and an action's name. Cost: some tens of microseconds for each of TLC's states,
    and a microsecond or two for each step on either side.
    """
    reads = space.subject.from_tla
    if reads is None:
        raise BadValue(f"the subject {space.subject.name} does not say how a TLA+ state reads as one of the model's")
    dumped = read_dump(dump)
    read = {
        fingerprint: space.machine.canonical(space.cfg, reads(space.cfg, parse_state(text)))
        for fingerprint, text in dumped.states.items()
    }
    numbers = {state: number for number, state in enumerate(graph.states)}
    strangers = sorted({state for state in read.values() if state not in numbers}, key=str)
    states = [*graph.states, *strangers]
    numbers |= {state: len(graph.states) + i for i, state in enumerate(strangers)}
    known = {fingerprint: numbers[state] for fingerprint, state in read.items()}
    found = []
    if [known[each] for each in dumped.initial] != [0]:
        found.append("TLC does not begin where the model does")
    if strangers:
        found.append(f"TLC reaches {len(strangers):,} states that the model does not, such as {strangers[0]}")
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


def _edges(space: Bounded, graph: Graph) -> Iterator[tuple[int, int, int]]:
    """The explorer's steps between different states: numbers of state, action and state."""
    actions = {name: i for i, name in enumerate(space.scope.actions)}
    for source, state in enumerate(graph.states):
        first = graph.offsets[source]
        for i, move in enumerate(space.moves(state)):
            target = graph.targets[first + i]
            if target not in (OUTSIDE, source):
                yield source, actions[move[0]], target
