"""`brokerproof campaign`: fuzzing on Spark, resumable."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape

from fuzz.campaign.driver import Live, Progress, SparkWorkers, run_campaign
from fuzz.campaign.folder import Plan, State, check_folder, open_campaign, trace_name
from fuzz.campaign.kinds import is_scenario, kind_of
from fuzz.campaign.store import HadoopStore, LocalStore, Store, check_writable, is_local, local_path
from fuzz.campaign.summary import Compared, missed_by_campaign
from fuzz.campaign.worker import Spec
from fuzz.commands import Count, Result, Seconds
from fuzz.commands.fuzz import show_verdict
from fuzz.platform.progress import showing
from fuzz.platform.spark import session, slots
from fuzz.platform.version import code_version
from fuzz.report import schedule
from fuzz.report.campaign import render
from fuzz.report.finding import explained
from fuzz.report.records import ExplainedFinding
from fuzz.report.terminal import show_findings
from fuzz.seeding import find_mutant
from fuzz.subject import find_subject, profile_name, subject_names
from model.machine import BadValue


class CampaignResult(Result):
    """The results of all committed rounds of a campaign, added up, including those that earlier commands committed."""

    out: str
    subjects: list[str]
    seed: Count
    traces: Count
    steps: Count
    seconds: Seconds  # wall-clock time of the rounds; a command's first round counts from the start of its work
    shrinking_share: float  # of the workers' time, for replaying and shrinking findings
    rounds: Count
    findings: list[ExplainedFinding]
    resumed: bool
    missed_coverage: list[str]  # as in `FuzzResult`
    report: str
    version: str

    @property
    def found(self) -> bool:
        """Whether there is missed coverage, or a finding that is no known deviation of a real client."""
        unexpected = [each for each in self.findings if not (each.defect and is_scenario(each.subject))]
        return bool(self.missed_coverage or unexpected)


class Options(NamedTuple):
    """The options of the command line."""

    names: list[str]
    profile: str | None = None  # None: `reference`; for a scenario, the profile of the real client
    seed: int = 0
    traces: int | None = None  # of each subject, including those of earlier commands
    seconds: float | None = None
    master: str | None = None
    partitions: int | None = None
    mutant: str | None = None
    out: str | None = None


def run(options: Options, console: Console) -> CampaignResult:
    """Starts or resumes a campaign, and writes its report.

    Raises BadValue before anything is written if an option is wrong, the folder holds another campaign, or the workers
    cannot run this code. Raises BadValue later if `run_campaign` does.
    """
    specs = specs_of(options.names, options.profile, options.mutant)
    plan = Plan(specs, options.seed)
    out = options.out or default_out(plan, options)
    if is_local(out):
        check_writable(local_path(out))  # reported before Spark starts, which takes seconds
        check_folder(LocalStore(local_path(out)), plan)
    with contextlib.ExitStack() as stack:
        with showing(console, "starting Spark"):
            spark = stack.enter_context(session("brokerproof campaign", options.master))
            workers = SparkWorkers(spark, slots(spark), options.partitions)
            speed = workers.warm_up(specs)
        store: Store = LocalStore(local_path(out)) if is_local(out) else HadoopStore(spark, out)
        state = open_campaign(store, plan)
        resumed = state.rounds > 0
        state.speed = {**speed, **state.speed}  # those of committed rounds are more exact
        total = None if options.traces is None else options.traces * len(specs)
        with _progress(console, total, options.seconds, state) as progress:
            run_campaign(
                store,
                plan,
                state,
                workers,
                traces=options.traces,
                seconds=options.seconds,
                partitions=options.partitions,
                progress=progress,
            )
        findings = explained_findings(store, state)
        return CampaignResult(
            out=out,
            subjects=[s.subject for s in specs],
            seed=options.seed,
            traces=state.traces,
            steps=state.steps,
            seconds=state.seconds,
            shrinking_share=state.shrinking_share,
            rounds=state.rounds,
            findings=findings,
            resumed=resumed,
            missed_coverage=missed_by_campaign(plan, state),
            report=write_report(store, plan, state, findings),
            version=code_version(),
        )


def explained_findings(store: Store, state: State) -> list[ExplainedFinding]:
    """Returns the findings of a campaign, explained."""
    return [
        (schedule.explained if is_scenario(found.subject) else explained)(
            found, store.path(f"traces/{trace_name(found)}")
        )
        for found in state.merge_findings()
    ]


def write_report(
    store: Store, plan: Plan, state: State, findings: list[ExplainedFinding], against: Compared | None = None
) -> str:
    """Writes the report, with the comparison `against` an older campaign. Returns its path or URI."""
    store.write("report.html", render(plan, state, findings, missed_by_campaign(plan, state), against).encode())
    return store.path("report.html")


@contextlib.contextmanager
def _progress(console: Console, most_traces: int | None, seconds: float | None, before: State) -> Iterator[Progress]:
    """Shows traces, steps a second and findings while a campaign runs. `before` is the state at its start."""
    started, traces_before = time.perf_counter(), before.traces
    with showing(console, "starting") as update:

        def progress(state: State, live: Live) -> None:
            elapsed = max(time.perf_counter() - started, 1e-9)
            done = traces_before + live.traces
            text = f"{done:,} traces  {live.steps / elapsed:,.0f} steps/s  {len(state.findings)} findings"
            if most_traces is not None:
                update(done, most_traces, text)
            else:
                update(min(elapsed, seconds or elapsed), seconds, text)

        yield progress


def specs_of(names: list[str], profile: str | None, mutant: str | None) -> tuple[Spec, ...]:
    """Returns the specs of a campaign, each with the profile and the mutant.

    With a mutant, there is one spec, for the mutant's component. Otherwise, there is a spec for each named component or
    scenario. Without names, there is a spec for each component that has the profile and is no canary. Raises BadValue
    for unknown names, if no component has the profile, and for a scenario if the client is not installed.
    """
    if mutant is not None:
        names = [find_mutant(mutant, names or None).subject]
    elif not names:
        every = subject_names(without_canaries=True)
        names = [n for n in every if profile is None or profile_name(find_subject(n), profile)]
        if not names:
            raise BadValue(f"no component has a profile {profile}; `brokerproof subjects` lists them")
    specs = [Spec(name, profile or kind_of(name).default_profile, mutant=mutant) for name in dict.fromkeys(names)]
    for spec in specs:
        kind_of(spec.subject).check(spec)
    return tuple(spec if is_scenario(spec.subject) else _with_profile_name(spec) for spec in specs)


def _with_profile_name(spec: Spec) -> Spec:
    """Returns the spec with the name of a profile. The given spec may have a release instead, such as 4.1."""
    return spec._replace(profile=profile_name(find_subject(spec.subject), spec.profile) or spec.profile)


def default_out(plan: Plan, options: Options) -> str:
    """Returns the default folder for a plan and this version of the code."""
    what = "-".join(s.subject for s in plan.specs) if options.names or options.mutant else "all"
    version = code_version().rpartition("+")[2]  # the digest of the code
    parts = [what, options.mutant or "", options.profile or plan.specs[0].profile, f"seed{plan.seed}", version]
    return "build/campaigns/" + re.sub(r"[^A-Za-z0-9_.-]", "_", "-".join(p for p in parts if p))


def show(console: Console, result: CampaignResult) -> None:
    """Prints the findings step by step, then the totals."""
    show_findings(console, result.findings)
    for line in result.missed_coverage:
        console.print(f"[red]failed[/] {escape(line)}")
    speed = result.steps / result.seconds if result.seconds else 0.0
    time = f"{result.seconds:,.0f} s in {result.rounds:,} complete {'round' if result.rounds == 1 else 'rounds'}"
    work = f"workers replayed and shrank findings in {result.shrinking_share:.0%} of their time"
    console.print(f"{', '.join(result.subjects)}: {speed:,.0f} steps/s of all workers together; {time}; {work}")
    show_verdict(console, result.findings, result.steps, result.traces, result.seed, "no finding")
    console.print(f"report: {escape(result.report)}")
