"""`brokerproof explore`: every reachable state of a scope."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape

from fuzz.campaign.store import LocalStore, check_writable
from fuzz.campaign.worker import Spec, trace_of
from fuzz.commands import Count, PerSecond, Record, Result, Seconds
from fuzz.explore.counts import counts_of
from fuzz.explore.edge_cover import cover
from fuzz.explore.search import explore
from fuzz.explore.spark import SpaceNames, explore_on_spark
from fuzz.platform.progress import counter, showing
from fuzz.platform.spark import session, slots
from fuzz.platform.version import code_version
from fuzz.report.explain import explain
from fuzz.report.records import Explanation
from fuzz.report.terminal import show_explanation
from fuzz.run.finding import Cause, Difference, Finding, Kind
from fuzz.target import Target
from fuzz.trace.file import content_name
from model.machine import BadValue

#: Folder of the traces of violations.
OUT = Path("build/explore")


class Violation(Record):
    """A counterexample, the shortest of its cause unless `--cover` found it or it violates a liveness property."""

    signature: str
    cause: str
    kind: Kind  # of the cause
    length: Count
    message: str
    trace: str
    explanation: Explanation


class Covered(Record):
    """Runs from the initial state (`edge_cover.cover`). Unless one has a finding, they take every transition."""

    transitions: Count
    runs: Count
    steps: Count


class ExploreResult(Result):
    """The result of an exploration. `hides` is `Scope.exclusions`: what the scope excludes, or why nothing.

    `expected_states` and `expected_transitions` are the stored counts of the scope. They are null for another profile
    than the reference, for a mutant, and for a scope without stored counts.
    """

    subject: str
    scope: str
    profile: str
    distinct_states: Count
    transitions: Count
    expected_states: Count | None
    expected_transitions: Count | None
    depth: Count  # the largest number of steps of a shortest trace to a state
    seconds: Seconds
    states_per_second: PerSecond
    covered: Covered | None
    violations: list[Violation]
    hides: dict[str, str]
    version: str

    @property
    def found(self) -> bool:
        """Whether there is a violation, or the counts differ from the stored ones."""
        return bool(self.violations) or self.counts_differ

    @property
    def counts_differ(self) -> bool:
        """Whether the scope has stored counts that differ from the result."""
        expected = (self.expected_states, self.expected_transitions)
        return self.expected_states is not None and expected != (self.distinct_states, self.transitions)


class Options(NamedTuple):
    """The options of the command line."""

    subject: str
    scope: str = "smoke"
    profile: str = "reference"
    mutant: str | None = None
    spark: bool = False
    master: str | None = None
    cover: bool = False
    out: Path = OUT


def run(options: Options, console: Console) -> ExploreResult:
    """Visits every state of a scope, on this machine or on Spark. Writes a trace for each violation.

    On Spark, liveness properties are not checked. Raises BadValue for unknown names, for `--spark` with `--cover`, and
    if the folder cannot be written.
    """
    if options.spark and options.cover:
        raise BadValue("--cover needs the graph in this machine's memory: use --spark or --cover, not both")
    names = SpaceNames(options.subject, options.scope, options.profile, options.mutant)
    space = names.build()
    check_writable(options.out)
    with contextlib.ExitStack() as stack:
        update = stack.enter_context(showing(console, f"exploring {options.subject} {options.scope}"))
        progress = counter(update, "states")
        if options.spark:
            spark = stack.enter_context(session("brokerproof explore", options.master))
            found = explore_on_spark(names, spark, 2 * slots(spark), progress)  # two partitions for each slot
        else:
            found = explore(space, progress=progress)
        findings = list(found.violations)
        covered = None
        if options.cover and found.graph is not None:
            walked = cover(space, found.graph, counter(update, "transitions"))
            covered = Covered(transitions=walked.transitions, runs=walked.runs, steps=walked.steps)
            known = {finding.signature for finding in findings}
            findings += [walked.finding] if walked.finding and walked.finding.signature not in known else []
    for lasso in found.lassos:  # counterexamples of liveness properties
        # True is the expected value of the property, False the actual one
        difference = Difference(Cause(Kind.EVENTUALLY, lasso.name), f"{lasso.name}: {lasso.guarantee}", True, False)
        findings.append(Finding(space.cfg, tuple(lasso.calls), difference))
    spec = Spec(options.subject, options.profile, None, options.mutant)
    is_reference = options.profile == "reference" and options.mutant is None
    counts = counts_of(options.subject, options.scope) if is_reference else None
    return ExploreResult(
        subject=options.subject,
        scope=options.scope,
        profile=options.profile,
        distinct_states=found.distinct_states,
        transitions=found.transitions,
        expected_states=counts.distinct_states if counts else None,
        expected_transitions=counts.transitions if counts else None,
        depth=found.depth,
        seconds=found.seconds,
        states_per_second=found.distinct_states / found.seconds,
        covered=covered,
        violations=[_violation(space.target, spec, finding, options.out) for finding in findings],
        hides=space.scope.exclusions(),
        version=code_version(),
    )


def _violation(target: Target, spec: Spec, finding: Finding, out: Path) -> Violation:
    """Writes the trace of a finding to a file. Returns the violation."""
    trace = trace_of(target, spec, finding)
    data, store = b"".join(trace.lines()), LocalStore(out)
    name = f"{content_name(data)}.jsonl"
    store.write(name, data)
    return Violation(
        signature=finding.signature,
        cause=str(finding.cause),
        kind=finding.cause.kind,
        length=len(finding.calls),
        message=finding.difference.message,
        trace=store.path(name),
        explanation=explain(trace),
    )


def show(console: Console, result: ExploreResult) -> None:
    """Prints the violations step by step, then what was visited and what the bounds exclude."""
    for each in result.violations:
        console.print(f"[bold red]violated[/]  [bold]{escape(each.cause)}[/]  {each.length} steps")
        show_explanation(console, each.explanation, each.message)
        console.print(f"  {'replay':>11}  brokerproof replay {escape(each.trace)}")
        console.print()
    verdict = "visited" if result.violations else "exhausted"
    has_hung = any(each.kind is Kind.HANG for each in result.violations)
    extent = "a part (a step hung) of" if has_hung else "the whole of"
    console.print(
        f"{verdict}: {result.distinct_states:,} states, {extent} scope {result.scope} of {result.subject}, profile "
        f"{result.profile} ({result.transitions:,} transitions, depth {result.depth}, {result.seconds:.1f} s)"
    )
    if result.counts_differ:
        expected = f"{result.expected_states:,} states and {result.expected_transitions:,} transitions"
        console.print(f"[bold red]differs[/]  fuzz/explore/counts.toml has {expected}")
    if result.covered is not None:
        runs, steps = result.covered.runs, result.covered.steps
        ran = f"{result.covered.transitions:,} transitions in {runs:,} runs ({steps:,} steps)"
        console.print(f"run from the initial state: {ran}")
    console.print("the bounds: why they suffice, or what they exclude")
    for name, reason in result.hides.items():
        console.print(f"  {name}: {escape(reason)}", style="dim")
