"""Corpora: the traces that together reach all that a run has covered.

A corpus is a folder of trace files named by their content, so that two corpora are merged by copying one over
the other, from any number of workers. Each trace is cut after the step at which it last reached something new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fuzz.campaign.worker import Spec, prepared, trace_of
from fuzz.run.coverage import Total
from fuzz.run.generate import Arguments, generate, recipe
from fuzz.run.lockstep import Difference, Finding, checks_for, event_of
from fuzz.subject import Subject
from fuzz.trace.file import Trace, read_traces, write_traces
from invariants.properties import Property

Goal = tuple[str, Any]
_NO_DIFFERENCE = Difference("none", "", "", None, None)


def goals_of_seed(
    subject: Subject, profile_config: Any, seed: int, steps: int | None = None
) -> Iterator[tuple[int, Goal]]:
    """What a seed's trace reaches at each step: kinds of states and witnesses. Cost: a step of the model each."""
    plan, _ = recipe(subject, profile_config, seed, steps)
    cfg, machine = plan.config, subject.machine
    checks, state = checks_for(subject, cfg), machine.start(cfg)
    places = {name: i for i, name in enumerate(machine.actions)}
    for step, (name, arguments) in enumerate(generate(subject, profile_config, seed, steps)):
        before = state
        state, outcome = machine.step(cfg, before, name, arguments)
        yield step, ("abstract", subject.abstract(cfg, state))
        event = event_of(subject, name, arguments, outcome)
        for p in (*checks.state_witnesses, *checks.step_witnesses[places[name]]):
            if _holds(p, cfg, before, event, state):
                yield step, ("witness", p.name)


def _holds(p: Property, cfg: Any, before: Any, event: Any, after: Any) -> bool:
    return p.holds(cfg, before, event, after) if p.of_step else p.holds(cfg, after)


def collect(spec: Spec, seeds: Iterable[int]) -> list[Trace]:
    """Traces of the given seeds that together reach all that these seeds reach; none that adds nothing.

    Greedy, in the order of the seeds. Cost: one run of the model for each seed.
    """
    subject, profile_config, _ = prepared(spec)
    reached: set[Goal] = set()
    traces = []
    for seed in seeds:
        last = -1
        for step, goal in goals_of_seed(subject, profile_config, seed, spec.steps):
            if goal not in reached:
                reached.add(goal)
                last = step
        if last >= 0:
            traces.append(_cut(subject, spec, profile_config, seed, last + 1))
    return traces


def seeds_worth_keeping(total: Total) -> list[int]:
    """The seeds at which something was seen first, in order."""
    firsts = [*total.of("abstract").values(), *total.of("witness").values()]
    return sorted({first for _, first in firsts if first >= 0})


def _cut(subject: Subject, spec: Spec, profile_config: Any, seed: int, length: int) -> Trace:
    """The first steps of a seed's trace."""
    plan, _ = recipe(subject, profile_config, seed, spec.steps)
    actions: list[tuple[str, Arguments]] = []
    for action in generate(subject, profile_config, seed, spec.steps):
        actions.append(action)
        if len(actions) == length:
            break
    nothing = Finding(plan.config, tuple(actions), _NO_DIFFERENCE, seed)
    trace = trace_of(subject, spec, nothing)
    for key in ("signature", "message", "expected", "actual"):
        trace.header.pop(key, None)
    return trace


def add(folder: Path, traces: Iterable[Trace]) -> int:
    """Writes traces that are not there yet; how many that were."""
    new = 0
    for trace in traces:
        path = folder / (trace.id.replace("/", "-") + ".jsonl.gz")
        if not path.exists():
            write_traces(path, [trace])
            new += 1
    return new


def read(folder: Path) -> Iterator[Trace]:
    """The traces of a corpus, in the order of their names. Raises BadTrace."""
    for path in sorted(folder.glob("*.jsonl*")):
        yield from read_traces(path)
