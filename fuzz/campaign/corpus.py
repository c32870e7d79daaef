"""Corpora: few and short traces that together reach everything that the traces of some seeds reach.

A trace reaches keys: abstract states and coverage goals. The seeds run one after the other. A key is new if no earlier
trace, and no earlier step of the same trace, reached this key. A trace without a new key is left out. Each other trace
is cut after the last step with a new key.

A corpus is a folder of trace files. The name of a file has the component and a digest of the config and the calls, so
two corpora are merged by copying one into the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fuzz.campaign.worker import Spec, target_of, trace_of
from fuzz.run.call import Call
from fuzz.run.checks import event_of, is_reached
from fuzz.run.coverage import Total
from fuzz.run.finding import Cause, Difference, Finding, Kind
from fuzz.run.generate import generate, plan_trace
from fuzz.run.pair import Depth, Pair
from fuzz.run.watchdog import HANG_SECONDS, Hang, time_limit, watchdog
from fuzz.target import Target
from fuzz.trace.file import Trace, read_traces, write_traces

#: ("abstract", state) or ("goal", name).
CoverageKey = tuple[str, Any]
#: A placeholder: `trace_of` takes a finding, but a trace of a corpus shows no difference.
_NO_DIFFERENCE = Difference(Cause(Kind.UNSTABLE, ""), "")


def keys_of_seed(target: Target, seed: int, steps: int | None = None) -> Iterator[tuple[int, CoverageKey]]:
    """Runs a seed on the model alone. Yields a pair for each key that a step reaches: the step's index, and the key.

    `steps` is the length of the trace; None means the default of the seed. The model executes each call twice: to
    generate the next call, and to compute the keys.
    """
    subject = target.subject
    cfg = plan_trace(subject, target.config, seed, steps)[0].config
    pair = Pair(Target(subject, cfg, model_only=True))
    checks, indices = pair.checks, {name: i for i, name in enumerate(subject.machine.actions)}
    for step, call in enumerate(generate(subject, target.config, seed, steps)):
        before, values = pair.state, pair.values
        pair.step(call, Depth.OUTCOME)
        yield step, ("abstract", subject.abstract(cfg, pair.state))
        event = event_of(subject, call.action, call.arguments, pair.outcome)
        for goal in (*checks.state_goals, *checks.step_goals[indices[call.action]]):
            if is_reached(goal, cfg, before, event, pair.state, values, pair.values):
                yield step, ("goal", goal[1].name)  # goal[1] is the property


def collect(spec: Spec, seeds: Iterable[int]) -> list[Trace]:
    """Returns traces that together reach every key of the given seeds. Each reaches a key that no earlier one reaches.

    If the model raises an exception or hangs at a step, the trace of this seed ends there. Raises BadValue if
    `target_of` does. Cost: two runs of the model for each seed, and two more for each trace that is returned.
    """
    target = target_of(spec)
    limit = time_limit(spec.steps or target.subject.steps, 10 * HANG_SECONDS)  # computing the keys takes time, too
    reached: set[CoverageKey] = set()
    traces = []
    for seed in seeds:
        last = -1
        with contextlib.suppress(Hang, Exception), watchdog(limit):
            for step, key in keys_of_seed(target, seed, spec.steps):
                if key not in reached:
                    reached.add(key)
                    last = step
        if last >= 0:
            traces.append(_cut(target, spec, seed, last + 1))
    return traces


def first_seeds(total: Total) -> list[int]:
    """Returns the seeds that were the first to reach some abstract state or some coverage goal, ascending."""
    firsts = [*total.of("abstract").values(), *total.of("goal").values()]
    return sorted({first for _, first in firsts})


def _cut(target: Target, spec: Spec, seed: int, length: int) -> Trace:
    """Returns the first `length` steps of a seed's trace, without the header keys that describe a finding."""
    plan, _ = plan_trace(target.subject, target.config, seed, spec.steps)
    calls: list[Call] = []
    for call in generate(target.subject, target.config, seed, spec.steps):
        calls.append(call)
        if len(calls) == length:
            break
    trace = trace_of(target, spec, Finding(plan.config, tuple(calls), _NO_DIFFERENCE, seed))
    for key in ("cause", "signature", "message", "expected", "actual"):
        trace.header.pop(key, None)
    return trace


def add(folder: Path, traces: Iterable[Trace]) -> int:
    """Writes the traces that a corpus lacks into its folder, each as a file. Returns the number of files written."""
    written = 0
    for trace in traces:
        path = folder / (trace.id.replace("/", "-") + ".jsonl.gz")
        if not path.exists():
            write_traces(path, [trace])
            written += 1
    return written


def read(folder: Path) -> Iterator[Trace]:
    """Yields the traces of a corpus, ordered by file name. Raises BadTrace for a file that is no trace file."""
    for path in sorted(folder.glob("*.jsonl*")):
        yield from read_traces(path)
