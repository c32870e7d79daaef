"""The kill matrix: which mutants the engines kill, what kills them, and how fast.

    bug in impl/      model and implementation are compared, as in any run; generated mutants under every profile; then
                      states made wrong are loaded, which the implementation's own check must notice; then the explorer
                      visits a small scope, and runs every transition of it from the first state
    bug in model/     the properties alone, without those that the profile breaks anyway; the implementation is left out
    generated bug     likewise under every profile; also recordings, which the model must still replay; the graph of a
      in model/       small scope, which must be the twin's; and the worked examples of the component's tests

A mutant that nothing kills is a gap, or is equivalent: then its file says why.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from fuzz.defects.table import defects_of
from fuzz.explore.edge_cover import cover
from fuzz.explore.search import bounded, explore
from fuzz.mutation.operators import Generated, generated_of, source_with
from fuzz.mutation.specification import killer
from fuzz.platform.json import from_json, to_json
from fuzz.run.checks import NONE_SKIPPED
from fuzz.run.finding import Finding
from fuzz.run.generate import generate, recipe
from fuzz.run.lockstep import Lockstep
from fuzz.run.watchdog import HANG_SECONDS, Hang, watchdog
from fuzz.seeding import (
    Mutant,
    modules_of,
    mutants_of,
    mutated_source,
    reasons_of,
    seed_bug,
    seed_source,
)
from fuzz.subject import Subject, find_profile, find_subject
from fuzz.target import Target
from model.machine import BadValue

#: Traces in which the properties that a bug of the specification breaks are gathered.
_PROPERTY_TRACES = 512
#: Traces at whose ends states are made wrong.
_CORRUPTED_TRACES = 32
#: The scope for what fuzzing lets live.
_SCOPE = "smoke"


class Kill(NamedTuple):
    """What became of one mutant."""

    id: str
    subject: str
    origin: str
    killed: bool
    killed_by: str  # engine and cause
    seconds_to_kill: float | None
    steps_to_kill: int | None
    length: int | None  # steps of the trace that shows it, not shrunk
    excuse: str  # why a survivor is equivalent, if its file says so


class Job(NamedTuple):
    """One mutant to kill: seeded or generated, by names, as it travels to a worker."""

    subject: str
    mutant: str | None
    generated: Generated | None
    seconds: float
    seed: int


# ---- one mutant ---------------------------------------------------------------------------------------


def run_job(job: Job) -> Kill:
    """Kills one mutant, or not. Cost: at most the job's seconds, and the smoke scope for a survivor."""
    if job.generated is not None:
        return _kill_generated(job, job.generated)
    [mutant] = [m for m in mutants_of(job.subject) if m.id == job.mutant]
    return _kill(mutant.id, mutant.origin, seed_bug(mutant), (mutant.profile,), is_of_model(mutant), job)


def is_of_model(mutant: Mutant | Generated) -> bool:
    """Whether a mutant is a bug of the specification."""
    return mutant.module.startswith("model.")


def _kill_generated(job: Job, generated: Generated) -> Kill:
    excuse = excuse_of(job.subject, generated)
    text = source_with(generated)
    try:
        subject = seed_source(job.subject, generated.module, text)
    except Exception as problem:
        by = f"import {type(problem).__name__}"
        return Kill(generated.id, job.subject, generated.operator, True, by, 0.0, 0, 0, excuse)
    if is_of_model(generated):
        return _kill_specification(job, generated, subject, text)._replace(excuse=excuse)
    profiles = ("reference", *[p for p in subject.machine.profiles if p != "reference"])
    return _kill(generated.id, generated.operator, subject, profiles, False, job)._replace(excuse=excuse)


def excuse_of(subject: str, generated: Generated) -> str:
    """Why a survivor is equivalent: the reason of a key of the component's file that its id is, or begins with."""
    reasons = reasons_of(subject, "survivors_in_model" if is_of_model(generated) else "survivors")
    return next((reason for key, reason in reasons.items() if generated.id.startswith(key)), "")


def _kill_specification(job: Job, generated: Generated, subject: Subject, text: str) -> Kill:
    """Half of the seconds are the reference's, the other profiles share the rest."""
    started, steps, finding, by = time.perf_counter(), 0, None, ""
    others = [name for name in subject.machine.profiles if name != "reference"]
    shares = {"reference": 0.5, **{name: 0.5 / len(others) for name in others}}
    try:
        for profile, share in shares.items():
            finding, taken = hunt(subject, profile, of_model=True, seconds=job.seconds * share, seed=job.seed)
            steps += taken
            if finding is not None:
                by = f"fuzz {finding.cause}" + (f" of {profile}" if profile != "reference" else "")
                break
    except Exception as problem:  # a first state that cannot be made
        by = f"fuzz crash {type(problem).__name__}"
    by = by or killer(subject, generated.module, text)
    seconds = time.perf_counter() - started
    row = Kill(generated.id, job.subject, generated.operator, bool(by), by, seconds, steps, None, "")
    if finding is not None:
        return row._replace(length=len(finding.calls))
    return row if by else row._replace(seconds_to_kill=None, steps_to_kill=None)


def _kill(mutant: str, origin: str, subject: Subject, profiles: tuple[str, ...], of_model: bool, job: Job) -> Kill:
    started, steps, finding = time.perf_counter(), 0, None
    for profile in profiles:
        finding, taken = hunt(subject, profile, of_model=of_model, seconds=job.seconds / len(profiles), seed=job.seed)
        steps += taken
        by = "fuzz"
        if finding is not None:
            break
    unnoticed = None if finding is not None or of_model else let_pass(subject)
    if unnoticed is not None:
        seconds = time.perf_counter() - started
        return Kill(mutant, subject.name, origin, True, f"check lets {unnoticed} pass", seconds, steps, 0, "")
    if finding is None and not of_model and _SCOPE in subject.scopes:
        finding, by = _explored(subject)
    seconds = time.perf_counter() - started
    if finding is None:
        return Kill(mutant, subject.name, origin, False, "", None, None, None, "")
    return Kill(mutant, subject.name, origin, True, f"{by} {finding.cause}", seconds, steps, len(finding.calls), "")


def hunt(
    subject: Subject, profile: str, *, of_model: bool, seconds: float, seed: int = 0
) -> tuple[Finding | None, int]:
    """Fuzzes a subject with a bug until the first finding; returns it and the steps taken until then.

    A bug in `impl/` is judged by properties under the reference only, a bug in `model/` under every profile by those
    that the profile does not break without the bug.
    """
    cfg = find_profile(subject, profile)
    lockstep = Lockstep(Target(subject, cfg, model_only=of_model))
    if profile != "reference":
        every = frozenset(p.name for p in subject.properties)
        lockstep.skipped = _broken_without_bug(subject.name, profile) if of_model else every
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        finding = lockstep.run(seed)
        if finding is not None:
            return finding, lockstep.coverage.steps + len(finding.calls)
        seed += 1
    return None, lockstep.coverage.steps


@functools.cache
def _broken_without_bug(name: str, profile: str) -> frozenset[str]:
    """The properties that a profile breaks: as rows of the defect table say, or in the traces of the first seeds."""
    subject = find_subject(name)
    cfg = find_profile(subject, profile)
    rows = {d.property for d in defects_of(name) if all(getattr(cfg, k) == v for k, v in d.changes().items())}
    findings = one_by_one(Lockstep(Target(subject, cfg, model_only=True)), range(_PROPERTY_TRACES))
    return frozenset(rows | {f.broken_property for f in findings if f.broken_property is not None})


def let_pass(subject: Subject) -> str | None:
    """A way of making a state wrong that the implementation's own check does not notice, if there is one.

    An implementation that cannot be loaded with such a state, or whose check fails or hangs on it, has noticed.
    """
    profile = find_profile(subject, "reference")
    for seed in range(_CORRUPTED_TRACES):
        cfg = recipe(subject, profile, seed)[0].config
        state = subject.machine.start(cfg)
        for name, arguments in generate(subject, profile, seed):
            state, _ = subject.machine.step(cfg, state, name, arguments)
        for name, spoil in subject.corrupt.items():
            wrong = spoil(state)
            if wrong is not None and not _notices(subject, cfg, wrong):
                return name
    return None


def _notices(subject: Subject, cfg: Any, wrong: Any) -> bool:
    try:
        with watchdog(HANG_SECONDS):
            return bool(subject.implementation.load(cfg, wrong).check())
    except (Hang, Exception):
        return True


def _explored(subject: Subject) -> tuple[Finding | None, str]:
    space = bounded(subject, _SCOPE)
    found = explore(space)
    if found.violations:
        return found.violations[0].finding, "explore"
    assert found.graph is not None
    return cover(space, found.graph).finding, "walk"


# ---- which properties kill what -----------------------------------------------------------------------


def killers(mutant: Mutant) -> list[str]:
    """The properties that a bug of the specification breaks, each looked for on its own; other causes by their name."""
    subject = seed_bug(mutant)
    cfg = find_profile(subject, mutant.profile)
    findings = one_by_one(Lockstep(Target(subject, cfg, model_only=True)), range(_PROPERTY_TRACES))
    return sorted({finding.broken_property or str(finding.cause) for finding in findings})


def one_by_one(lockstep: Lockstep, seeds: Iterable[int]) -> Iterator[Finding]:
    """All findings of the seeds' traces. A broken property is then skipped, so that it does not hide the next."""
    for seed in seeds:
        while (finding := lockstep.run(seed)) is not None:
            name = finding.broken_property
            lockstep.skipped |= {name} if name is not None else NONE_SKIPPED
            yield finding
            if name is None:  # nothing that could be skipped: the trace would show it again
                break


def lonely_properties(subject: Subject, killed_by: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
    """For each `always` property: the mutants that only it kills, or why it stays without one."""
    stays = reasons_of(subject.name, "stays")
    return {
        p.name: {
            "only_killer_of": [m for m, names in killed_by.items() if names == [p.name]],
            "stays": stays.get(p.name, ""),
        }
        for p in subject.properties
        if p.kind == "always"
    }


# ---- many mutants -------------------------------------------------------------------------------------


def jobs_of(names: Sequence[str], *, generated: bool, seconds: float, seed: int, model: bool = False) -> list[Job]:
    """The mutants of the subjects' tables, or those that operators make of their implementations or models."""
    jobs = []
    for name in names:
        if generated:
            made = [each for module in modules_of("model" if model else "impl", name) for each in generated_of(module)]
            jobs += [Job(name, None, each, seconds, seed) for each in made]
        else:
            jobs += [Job(name, m.id, None, seconds, seed) for m in mutants_of(name)]
    return jobs


def check_all_apply(names: Sequence[str]) -> None:
    """Raises BadValue when a mutant no longer applies, or a sentence speaks of what is not there."""
    for name in names:
        known = [p.name for p in find_subject(name).properties]
        for mutant in mutants_of(name):
            mutated_source(mutant)
        for stays in reasons_of(name, "stays"):
            if stays not in known:
                raise BadValue(f"fuzz/mutants/{name}.toml: there is no property {stays}")


def run_here(jobs: Sequence[Job], processes: int) -> Iterator[Kill]:
    """Runs jobs in processes of this machine, in any order. A process is renewed now and then, to give memory back."""
    if processes == 1:
        yield from map(run_job, jobs)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, initializer=leave_interrupts, maxtasksperchild=40) as pool:
        yield from pool.imap_unordered(run_job, jobs, chunksize=1)


def leave_interrupts() -> None:
    """In a process of a pool: an interrupt from the keyboard is its parent's business, which then ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run_on_spark(jobs: Sequence[Job], spark: Any, slots: int) -> list[Kill]:
    """Runs jobs on a cluster, a few to a task."""
    texts = [job_text(job) for job in jobs]
    pieces = max(1, min(len(texts), 4 * slots))

    def work(each: Iterable[str]) -> Iterator[str]:
        for text in each:
            yield to_json(run_job(job_from(text))._asdict()).decode()

    lines = spark.sparkContext.parallelize(texts, pieces).mapPartitions(work).collect()
    return [Kill(**from_json(line)) for line in lines]


def job_text(job: Job) -> str:
    """A job as JSON."""
    generated = job.generated._asdict() if job.generated is not None else None
    return to_json({**job._asdict(), "generated": generated}).decode()


def job_from(text: str) -> Job:
    """A job from JSON."""
    data = from_json(text)
    generated = Generated(**data["generated"]) if data["generated"] is not None else None
    return Job(**{**data, "generated": generated})


def in_order(jobs: Sequence[Job], kills: Iterable[Kill], tell: Callable[[int, int], None]) -> list[Kill]:
    """Kills in the order of their jobs, however they come."""
    places = {(j.subject, j.mutant or (j.generated.id if j.generated else "")): i for i, j in enumerate(jobs)}
    done: list[Kill] = []
    for kill in kills:
        done.append(kill)
        tell(len(done), len(jobs))
    return sorted(done, key=lambda k: places[k.subject, k.id])


def default_processes() -> int:
    """As many as there are cores."""
    return os.cpu_count() or 1
