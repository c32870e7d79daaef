"""What the commands do, apart from talking to a person."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from fuzz.campaign.driver import (
    Inline,
    Live,
    Plan,
    Processes,
    SparkWorkers,
    State,
    Workers,
    check_folder,
    finding_rows,
    open_campaign,
    read_plan,
    run_campaign,
)
from fuzz.campaign.store import HadoopStore, LocalStore, MemoryStore, Store, is_local, local_path
from fuzz.campaign.worker import Spec, target_of, trace_of
from fuzz.mutation.seeding import find_mutant, mutants_of, subject_or_mutant
from fuzz.platform.progress import counter, showing
from fuzz.platform.version import code_version
from fuzz.run.finding import Cause, Difference, Finding, Kind
from fuzz.run.generate import recipe
from fuzz.subject import find_profile, find_subject, subject_names
from fuzz.target import Target
from fuzz.trace import corpus
from fuzz.trace.file import BadTrace, Trace, content_name, read_traces
from fuzz.trace.recording import OWN, Replayer, recording_of, recordings
from model.machine import BadValue, plain

# ---- progress -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def run_shown(console: Console, traces: int | None, seconds: float | None, before: State) -> Iterator[Any]:
    """Shows how a run of seeds goes on: traces, steps a second, findings, remaining time."""
    started = before.seconds, before.traces

    with showing(console, "starting") as update:

        def progress(state: State, live: Live) -> None:
            import time

            now = time.perf_counter()
            progress.first = getattr(progress, "first", now)  # type: ignore[attr-defined]
            elapsed = max(now - progress.first, 1e-9)  # type: ignore[attr-defined]
            done = started[1] + live.traces
            words = f"{done:,} traces  {live.steps / elapsed:,.0f} steps/s  {len(state.findings)} findings"
            if traces is not None:
                update(done, traces, words)
            else:
                update(min(elapsed, seconds or elapsed), seconds, words)

        yield progress


# ---- fuzz ---------------------------------------------------------------------------------------------


def run_fuzz(
    spec: Spec, seed: int, traces: int | None, seconds: float | None, jobs: int, out: Path | None, console: Console
) -> dict[str, Any]:
    """Fuzzes one subject on this machine. Raises BadValue for names that there are not."""
    if spec.against == spec.profile:
        raise BadValue("--against names the same profile as --profile: there is nothing to tell apart")
    target_of(spec)
    plan = Plan((spec,), seed)
    tables = MemoryStore()
    state = open_campaign(tables, plan)
    workers: Workers = Inline() if jobs == 1 else Processes(jobs)
    try:
        with run_shown(console, traces, seconds, state) as progress:
            run_campaign(tables, plan, state, workers, traces=traces, seconds=seconds, progress=progress)
    finally:
        if isinstance(workers, Processes):
            workers.close()
    folder = LocalStore(out or Path("build/fuzz"))
    for name, data in tables.files.items():
        if name.startswith("traces/"):
            folder.write(name, data)
    coverage = coverage_of(plan, state)[spec.subject]
    if out is not None and spec.against is None:
        seeds = corpus.seeds_worth_keeping(state.coverage[spec.subject])
        corpus.add(out / "corpus", corpus.collect(spec, seeds))
    failed = failures(plan, state)
    return {
        "subject": spec.subject,
        "profile": spec.profile,
        "seed": seed,
        "traces": state.traces,
        "steps": state.steps,
        "seconds": state.seconds,
        "steps_per_second": state.steps / state.seconds if state.seconds else 0.0,
        "coverage": coverage,
        "never": failed,
        "failed": bool(failed),
        "findings": finding_rows(folder, state.merged_findings()),
        "version": code_version(),
    }


def coverage_of(plan: Plan, state: State) -> dict[str, dict[str, Any]]:
    """The coverage of each subject, as one object."""
    from fuzz.run.coverage import Total

    return {
        spec.subject: state.coverage.get(spec.subject, Total()).summary(
            target_of(spec).subject, configs_of(spec, plan.seed)
        )
        for spec in plan.specs
    }


def configs_of(spec: Spec, seed: int) -> list[Any]:
    """Configs that a run of seeds draws: enough of them to know which coverage goals can be reached."""
    target = target_of(spec)
    return list({recipe(target.subject, target.config, seed + i)[0].config for i in range(256)})


def failures(plan: Plan, state: State) -> list[str]:
    """Coverage goals not reached and actions that never succeeded although the run was long enough: a failed run.

    Not asked of a run against another profile or with a planted bug: it is to find that, and may stop there.
    """
    missing = []
    for spec in plan.specs:
        subject = target_of(spec).subject
        steps = sum(r["steps"] for r in state.runs if r["subject"] == spec.subject)
        if spec.mutant is None and spec.against is None and steps >= subject.min_steps_for_coverage:
            never = coverage_of(plan, state)[spec.subject]["never"]
            missing += [f"{spec.subject}: {name} never came in {steps:,} steps" for name in never]
    return missing


# ---- campaign -----------------------------------------------------------------------------------------


def run_spark_campaign(
    names: list[str],
    profile: str,
    seed: int,
    traces: int | None,
    seconds: float | None,
    *,
    master: str | None,
    partitions: int | None,
    mutant: str | None,
    out: str | None,
    console: Console,
) -> dict[str, Any]:
    """Fuzzes on Spark, or goes on where the same command stopped. Raises BadValue before anything is written."""
    from fuzz.platform.spark import session, slots

    specs = campaign_specs(names, profile, mutant)
    plan = Plan(specs, seed)
    place = out or default_out(plan, names)
    if is_local(place):
        check_place(local_path(place))  # what is wrong with it is said before Spark starts
        check_folder(LocalStore(local_path(place)), plan)
    with contextlib.ExitStack() as stack:
        with showing(console, "starting Spark"):
            spark = stack.enter_context(session("brokerproof campaign", master))
            workers = SparkWorkers(spark, slots(spark), partitions)
            speed = workers.warm_up(specs)
        store: Store = LocalStore(local_path(place)) if is_local(place) else HadoopStore(spark, place)
        state = open_campaign(store, plan)
        resumed = state.rounds > 0
        state.speed = {**speed, **state.speed}
        with run_shown(console, traces and traces * len(specs), seconds, state) as progress:
            run_campaign(
                store, plan, state, workers, traces=traces, seconds=seconds, partitions=partitions, progress=progress
            )
        html = write_report(store, plan, state)
        failed = failures(plan, state)
        return {
            "out": place,
            "subjects": [s.subject for s in specs],
            "seed": seed,
            "traces": state.traces,
            "steps": state.steps,
            "seconds": state.seconds,
            "findings": finding_rows(store, state.merged_findings()),
            "resumed": resumed,
            "never": failed,
            "failed": bool(failed),
            "report": html,
            "version": code_version(),
        }


def campaign_specs(names: list[str], profile: str, mutant: str | None) -> tuple[Spec, ...]:
    """What a campaign runs: the named subjects, the planted bug's, or all honest ones that have the profile."""
    if mutant is not None:
        found = find_mutant(mutant, names or None)
        names = [found.subject]
    elif not names:
        every = subject_names(without_canaries=True)
        names = [n for n in every if profile in find_subject(n).machine.profiles]
        if not names:
            raise BadValue(f"no subject has a profile {profile}; `brokerproof subjects` lists them")
    specs = tuple(Spec(name, profile, None, mutant) for name in dict.fromkeys(names))
    for spec in specs:
        target_of(spec)
    return specs


def check_place(place: Path) -> None:
    """Raises BadValue when no folder can be written there. Writes nothing."""
    there = next(each for each in (place.absolute(), *place.absolute().parents) if each.exists())
    if not there.is_dir():
        raise BadValue(f"{place} cannot be written: {there} is no folder; choose another --out")
    if not os.access(there, os.W_OK | os.X_OK):
        raise BadValue(f"{place} cannot be written: {there} is closed to writing; choose another --out")


def default_out(plan: Plan, names: list[str]) -> str:
    """A folder of its own for each plan and version of the code."""
    what = "-".join(s.subject for s in plan.specs) if names or plan.specs[0].mutant else "all"
    parts = [
        what,
        plan.specs[0].mutant or "",
        plan.specs[0].profile,
        f"seed{plan.seed}",
        code_version().rpartition("+")[2],
    ]
    return "build/campaigns/" + re.sub(r"[^A-Za-z0-9_.-]", "_", "-".join(p for p in parts if p))


# ---- report -------------------------------------------------------------------------------------------


def write_report(store: Store, plan: Plan, state: State) -> str:
    """Writes the report into the campaign's folder; where it lies."""
    from fuzz.report.campaign import render

    store.write("report.html", render(plan, state, failures(plan, state)).encode())
    return store.path("report.html")


def run_report(place: str) -> dict[str, Any]:
    """Writes the report of a campaign's folder. Raises BadValue when it holds none."""
    from fuzz.campaign.driver import read_state
    from fuzz.platform.spark import session

    if is_local(place):
        store: Store = LocalStore(local_path(place))
        plan = read_plan(store)
        return {"html": write_report(store, plan, read_state(store, plan))}
    with session("brokerproof report") as spark:
        store = HadoopStore(spark, place)
        plan = read_plan(store)
        return {"html": write_report(store, plan, read_state(store, plan))}


# ---- replay -------------------------------------------------------------------------------------------


#: Files that together have at least this many bytes are replayed on all cores.
_WORTH_SHARING = 100_000


def run_replay(paths: list[Path], profile: str | None, console: Console) -> dict[str, Any]:
    """Replays every trace of the files, on all cores if it is worth it.

    Raises BadTrace at the first line that makes no sense.
    """
    sizes = [path.stat().st_size if path.is_file() else 0 for path in paths]
    jobs = os.cpu_count() or 1 if sum(sizes) >= _WORTH_SHARING else 1
    if jobs > 1 and threading.active_count() == 1 and "fork" in multiprocessing.get_all_start_methods():
        for recording in recordings():
            find_subject(recording.subject)  # imported here, so that the processes have it when they begin
        context = multiprocessing.get_context("fork")
        with context.Pool(jobs, initializer=_begin_replaying) as pool, showing(console, "replaying"):
            shares = pool.starmap(replay_share, [(paths, profile, part, jobs) for part in range(jobs)])
    else:
        with showing(console, "replaying") as update:
            shares = [replay_share(paths, profile, 0, 1, update)]
    together = sorted((each for share in shares for each in share), key=lambda each: each.place)
    problems = [each.problem for each in together if each.problem]
    if problems:
        raise BadValue(problems[0])
    return {
        "traces": len(together),
        "operations": sum(each.operations for each in together),
        "agreed": sum(not each.differences for each in together),
        "differences": [d for each in together for d in each.differences],
    }


def _begin_replaying() -> None:
    """In a process of the pool: it does not live long enough to collect, and an interrupt is its parent's business."""
    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class ReplayedTrace(NamedTuple):
    """What came of one trace, as plain data; or what is wrong with the file at that place."""

    place: tuple[int, int]  # file and line
    operations: int
    differences: list[dict[str, Any]]
    problem: str = ""


def replay_share(
    paths: list[Path], profile: str | None, part: int, parts: int, update: Callable[..., None] | None = None
) -> list[ReplayedTrace]:
    """Replays a part of the traces of the files; ends at the first that makes no sense."""
    replayers: dict[tuple[str, str | None, Any], Replayer] = {}
    done: list[ReplayedTrace] = []
    operations = 0
    for number, path in enumerate(paths):
        try:
            for trace in read_traces(path, part, parts):
                replayed = _replayer(replayers, trace, profile).replay(trace)
                differences = [{**plain(each), "message": trace.header.get("message")} for each in replayed.mismatches]
                done.append(ReplayedTrace((number, trace.line), replayed.operations, differences))
                operations += replayed.operations
                if update is not None:
                    update(len(done), None, f"{len(done):,} traces  {operations:,} operations")
        except BadTrace as problem:
            return [*done, ReplayedTrace((number, problem.line), 0, [], str(problem))]
    return done


def _replayer(made: dict[tuple[str, str | None, Any], Replayer], trace: Trace, profile: str | None) -> Replayer:
    """The replayer of a trace's component, made once for each; with the trace's planted bug, if it says one."""
    mutant = trace.header.get("mutant") if OWN in trace.header else None
    recording = recording_of(trace)
    key = f"{recording.component} {recording.subject} {recording.profile}", mutant, OWN in trace.header
    if key not in made:
        try:
            subject = subject_or_mutant(recording.subject, mutant)
            if profile is not None:
                find_profile(subject, profile)
        except BadValue as problem:
            raise BadTrace(trace.path, trace.line, str(problem)) from None
        made[key] = Replayer(recording, subject, profile)
    return made[key]


# ---- explore ------------------------------------------------------------------------------------------


def run_explore(
    subject: str,
    scope: str,
    profile: str,
    mutant: str | None,
    *,
    on_spark: bool,
    covered: bool,
    master: str | None,
    out: Path,
    console: Console,
) -> dict[str, Any]:
    """Visits every state of a scope, here or on Spark. Raises BadValue for names that there are not."""
    from fuzz.explore.edge_cover import cover
    from fuzz.explore.search import explore
    from fuzz.explore.spark import Where, explore_on_spark
    from fuzz.platform.spark import session, slots

    if on_spark and covered:
        raise BadValue("--cover needs the graph in this machine's memory: leave out --spark, or --cover")
    where = Where(subject, scope, profile, mutant)
    space = where.build()
    findings = []
    with contextlib.ExitStack() as stack:
        progress = counter(stack.enter_context(showing(console, f"exploring {subject} {scope}")))
        if on_spark:
            spark = stack.enter_context(session("brokerproof explore", master))
            found = explore_on_spark(where, spark, 2 * slots(spark), progress)
        else:
            found = explore(space, progress=progress)
        findings = [each.finding for each in found.violations]
        steps = None
        if covered and found.graph is not None:
            walked = cover(space, found.graph, progress)
            steps = {"transitions": walked.transitions, "runs": walked.runs, "steps": walked.steps}
            findings += [walked.finding] if walked.finding is not None else []
    spec = Spec(subject, profile, None, mutant)
    violations = [_violation(space.target, spec, finding, out) for finding in findings]
    for lasso in found.lassos:
        difference = Difference(Cause(Kind.EVENTUALLY, lasso.name), f"{lasso.name}: {lasso.guarantee}", True, False)
        violations.append(_violation(space.target, spec, Finding(space.cfg, tuple(lasso.calls), difference), out))
    return {
        "subject": subject,
        "scope": scope,
        "profile": profile,
        "distinct_states": found.distinct_states,
        "transitions": found.transitions,
        "depth": found.depth,
        "seconds": found.seconds,
        "states_per_second": found.distinct_states / found.seconds,
        "covered": steps,
        "violations": violations,
        "hides": space.scope.exclusions(),
        "version": code_version(),
    }


def _violation(target: Target, spec: Spec, finding: Finding, out: Path) -> dict[str, Any]:
    """A violation with its trace written to a file."""
    trace = trace_of(target, spec, finding)
    data = b"".join(trace.lines())
    path = out / f"{content_name(data)}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return {
        "signature": finding.signature,
        "cause": str(finding.cause),
        "length": len(finding.calls),
        "message": finding.difference.message,
        "trace": str(path),
    }


# ---- mutants ------------------------------------------------------------------------------------------


def run_mutants(
    names: list[str],
    *,
    seconds: float,
    seed: int,
    generated: bool,
    jobs: int | None,
    on_spark: bool,
    master: str | None,
    console: Console,
) -> dict[str, Any]:
    """Runs the kill matrix. Raises BadValue for names that there are not and mutants that no longer apply."""
    from fuzz.mutation import kill_matrix as kill
    from fuzz.platform.spark import session, slots

    planted = [n for n in subject_names(without_canaries=True) if mutants_of(n)]
    chosen = names or planted
    for name in chosen:
        find_subject(name)
        if not generated and name not in planted:
            raise BadValue(f"no bugs are planted in {name}; there are some in {', '.join(planted)}")
    kill.check_all_apply(chosen)
    work = kill.jobs_of(chosen, generated=generated, seconds=seconds, seed=seed)
    with contextlib.ExitStack() as stack:
        update = stack.enter_context(showing(console, "killing mutants"))
        if on_spark:
            spark = stack.enter_context(session("brokerproof mutants", master))
            done = iter(kill.run_on_spark(work, spark, slots(spark)))
        else:
            done = kill.run_here(work, jobs or kill.default_processes())
        kills = kill.in_order(work, done, lambda n, of: update(n, of, f"{n:,} of {of:,} mutants"))
        properties = {} if generated else _property_kills(chosen, update)
    alive = [k for k in kills if not k.killed and not k.excuse]
    idle = [f"{s}.{name}" for s, each in properties.items() for name, row in each.items() if not any(row.values())]
    return {
        "subjects": chosen,
        "mutants": [k._asdict() for k in kills],
        "killed": sum(k.killed for k in kills),
        "survivors": [k.id for k in alive],
        "properties": properties,
        "idle_properties": idle,
        "seed": seed,
        "version": code_version(),
    }


def _property_kills(names: list[str], update: Callable[..., None]) -> dict[str, dict[str, dict[str, Any]]]:
    """Which property is the only killer of which bug of the specification; of subjects that have such bugs."""
    from fuzz.mutation import kill_matrix as kill

    table = {}
    for name in names:
        bugs = [m for m in mutants_of(name) if kill.is_of_model(m)]
        if bugs:
            killed_by = {}
            for done, mutant in enumerate(bugs):
                update(done, len(bugs), f"properties of {name}")
                killed_by[mutant.id] = kill.killers(mutant)
            table[name] = kill.lonely_properties(find_subject(name), killed_by)
    return table
