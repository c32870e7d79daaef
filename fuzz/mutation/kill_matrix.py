"""The kill matrix: which mutants the engines kill, what kills them, and how fast.

    seeded bug in impl/         1. lockstep of the model and the mutated implementation, under the bug's profile
                                2. corrupted states are loaded: the mutated `check` must detect them
                                3. the explorer exhausts the smoke scope; then every transition runs on the mutant
    generated mutant in impl/   the same, in lockstep under every profile with the reference's rules
    seeded bug in model/        the properties, on traces of the mutated model under the bug's profile
    generated mutant in model/  1. the properties under every profile. Profiles other than `reference` violate some, so
                                   a finding under them counts only if the original model has none in the same trace
                                2. the checks of `fuzz/mutation/model_checks.py`; its check `twin` only with `--twin`,
                                   or if the mutant changes the canonical form, which only explorers use

The checks of a mutant run in order until one kills it. A survivor shows a missing check, or is equivalent to the
original: then a row `[[equivalent]]` in the component's file has the reason.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from typing import Any, NamedTuple

from fuzz.defects.table import defects_of
from fuzz.explore.edge_cover import cover
from fuzz.explore.search import explore, find_space
from fuzz.mutation import Check
from fuzz.mutation.model_checks import killer
from fuzz.mutation.operators import Generated, generated_of, source_with
from fuzz.platform.json import from_json, to_json
from fuzz.platform.processes import Workers
from fuzz.platform.sources import is_imported
from fuzz.run.checks import NONE_SKIPPED
from fuzz.run.finding import Finding, Kind
from fuzz.run.generate import generate, plan_trace
from fuzz.run.lockstep import Lockstep
from fuzz.run.replay import replay
from fuzz.run.watchdog import HANG_SECONDS, Hang, watchdog
from fuzz.seeding import (
    Mutant,
    equivalents_of,
    modules_of,
    mutants_of,
    mutated_source,
    reasons_to_keep,
    seed_bug,
    seed_source,
)
from fuzz.subject import Subject, find_profile, find_subject
from fuzz.target import Target
from model.machine import BadValue

#: Number of traces in a block of `killers`.
_PROPERTY_TRACES = 512
#: Maximum number of blocks that `killers` runs.
_MAX_BLOCKS = 32
#: Number of traces whose final states are corrupted.
_CORRUPTED_TRACES = 32
#: Interval, in steps, at which the properties of a mutated model are checked.
_CHECK_EVERY = 4
#: The scope that is explored if fuzzing does not kill a mutant.
_SCOPE = "smoke"
#: The number of jobs, on average, after which a process is replaced.
_JOBS_OF_A_PROCESS = 40


class Kill(NamedTuple):
    """The result for one mutant: killed or survived."""

    id: str
    subject: str
    origin: str
    check: Check | None  # None if the mutant survived
    cause: str  # what the check found
    seconds_to_kill: float | None  # wall-clock time
    steps_to_kill: int | None  # of fuzzing, in all traces
    length: int | None  # steps of the trace that kills it, not shrunk
    excuse: str  # the reason of its row `[[equivalent]]`; empty if there is none
    path: str  # of the module; with the line for a generated mutant

    @property
    def killed(self) -> bool:
        """Whether a check killed the mutant."""
        return self.check is not None

    @property
    def killed_by(self) -> str:
        """The check and the cause; empty if the mutant survived."""
        return f"{self.check or ''} {self.cause}".strip()


class Job(NamedTuple):
    """A seeded bug (the id `mutant`) or a generated mutant, in a form that can be sent to a worker."""

    subject: str
    mutant: str | None
    generated: Generated | None
    seconds: float  # processor time of fuzzing
    seed: int  # of the first trace
    twin: bool = False  # compare the state graphs of the mutated and the original model


# ---- one mutant ---------------------------------------------------------------------------------------


def run_job(job: Job) -> Kill:
    """Tries to kill a mutant. Returns the result. Cost: at most the job's seconds of fuzzing, then the other checks."""
    if job.generated is not None:
        return _kill_generated(job, job.generated)
    [mutant] = [m for m in mutants_of(job.subject) if m.id == job.mutant]
    return _kill(mutant, mutant.origin, seed_bug(mutant), (mutant.profile,), job)


def is_of_model(mutant: Mutant | Generated) -> bool:
    """Returns whether a mutant is in `model/`."""
    return mutant.module.startswith("model.")


def _path_of(mutant: Mutant | Generated) -> str:
    path = mutant.module.replace(".", "/") + ".py"
    return f"{path}:{mutant.line}" if isinstance(mutant, Generated) else path


def _kill_generated(job: Job, generated: Generated) -> Kill:
    """Tries to kill a generated mutant. A mutant that cannot be imported is killed."""
    reasons, module = equivalents_of(job.subject), generated.module
    excuse = reasons.get((module, generated.id)) or reasons.get((module, generated.id_prefix), "")
    text = source_with(generated)
    try:
        subject = seed_source(job.subject, generated.module, text)
    except Exception as problem:
        cause, path = type(problem).__name__, _path_of(generated)
        return Kill(generated.id, job.subject, generated.operator, Check.IMPORT, cause, 0.0, 0, 0, excuse, path)
    if is_of_model(generated):
        return _kill_model_mutant(job, generated, subject, text)._replace(excuse=excuse)
    machine = subject.machine
    others = [p for p in machine.profiles if p != "reference" and machine.is_reference(find_profile(subject, p))]
    return _kill(generated, generated.operator, subject, ("reference", *others), job)._replace(excuse=excuse)


def _kill_model_mutant(job: Job, generated: Generated, subject: Subject, text: str) -> Kill:
    """Tries to kill a generated mutant of a model; `text` is the mutated source.

    Fuzzing under the reference takes half of the seconds; the other profiles share the other half.
    """
    started, steps, finding, cause = time.perf_counter(), 0, None, ""
    others = [p for p in subject.machine.profiles if p != "reference"]
    try:
        finding, steps = fuzz_mutant(subject, "reference", of_model=True, seconds=job.seconds / 2, seed=job.seed)
        cause = str(finding.cause) if finding is not None else ""
        for profile in others if finding is None else ():
            finding, taken = _fuzz_model_under(subject, profile, seconds=job.seconds / 2 / len(others), seed=job.seed)
            steps += taken
            if finding is not None:
                cause = f"{finding.cause} of {profile}"
                break
    except Exception as problem:  # the initial state cannot be created
        cause = f"crash {type(problem).__name__}"
    in_canonical = generated.part == find_subject(job.subject).machine.canonical.__name__
    found = (Check.FUZZ, cause) if cause else killer(subject, generated.module, text, twin=job.twin or in_canonical)
    seconds, length = time.perf_counter() - started, len(finding.calls) if finding is not None else None
    row = Kill(generated.id, job.subject, generated.operator, None, "", None, None, length, "", _path_of(generated))
    if found is None:
        return row
    return row._replace(check=found[0], cause=found[1], seconds_to_kill=seconds, steps_to_kill=steps)


#: (subject, profile) -> the properties that the original model violated in a trace.
_broken_in_original: dict[tuple[str, str], frozenset[str]] = {}


def _fuzz_model_under(subject: Subject, profile: str, *, seconds: float, seed: int) -> tuple[Finding | None, int]:
    """Fuzzes a mutated model under a profile. Returns the finding that kills it, or None, and the number of steps.

    A finding kills the mutant if a replay of its trace on the original model finds nothing. A property that the
    original model violates is skipped from then on, also for later mutants in this process.
    """
    key, original = (subject.name, profile), find_subject(subject.name)
    lockstep = Lockstep(Target(subject, find_profile(subject, profile), model_only=True))
    lockstep.skipped, lockstep.check_every = _broken_in_original.get(key, NONE_SKIPPED), _CHECK_EVERY
    end = time.process_time() + seconds
    while time.process_time() < end:
        finding = lockstep.run(seed)
        seed += 1
        if finding is None or _is_slow_only(lockstep, finding):
            continue
        config = type(find_profile(original, profile))(*finding.config)
        in_original = replay(Target(original, config, model_only=True), finding.calls, skipped=lockstep.skipped)
        if in_original is None:
            return finding, lockstep.coverage.steps + len(finding.calls)
        lockstep.skipped |= {in_original.broken_property} if in_original.broken_property else NONE_SKIPPED
        _broken_in_original[key] = lockstep.skipped
    return None, lockstep.coverage.steps


def _kill(mutant: Mutant | Generated, origin: str, subject: Subject, profiles: tuple[str, ...], job: Job) -> Kill:
    """Tries to kill a mutant of an implementation, or a seeded bug of a model. `subject` has the mutant."""
    started, steps, finding, of_model = time.perf_counter(), 0, None, is_of_model(mutant)
    for profile in profiles:
        finding, taken = fuzz_mutant(
            subject, profile, of_model=of_model, seconds=job.seconds / len(profiles), seed=job.seed
        )
        steps += taken
        if finding is not None:
            break
    undetected = None if finding is not None or of_model else undetected_corruption(subject)
    check = Check.FUZZ
    if finding is None and undetected is None and not of_model and _SCOPE in subject.scopes:
        finding, check = _explored(subject)
    seconds = time.perf_counter() - started
    row = Kill(mutant.id, subject.name, origin, None, "", None, None, None, "", _path_of(mutant))
    killed = row._replace(check=check, seconds_to_kill=seconds, steps_to_kill=steps)
    if undetected is not None:
        return killed._replace(check=Check.CHECK, cause=f"misses {undetected}", length=0)
    return row if finding is None else killed._replace(cause=str(finding.cause), length=len(finding.calls))


def fuzz_mutant(
    subject: Subject, profile: str, *, of_model: bool, seconds: float, seed: int = 0
) -> tuple[Finding | None, int]:
    """Fuzzes a mutated subject under a profile. Returns the first finding, or None, and the number of steps.

    `seconds` is processor time, so that the load of the machine matters little. `seed` is the seed of the first trace.
    For a mutant in `impl/` (`of_model` is false), properties are checked under the reference only, because other
    profiles violate some.
    """
    cfg = find_profile(subject, profile)
    lockstep = Lockstep(Target(subject, cfg, model_only=of_model))
    if profile != "reference" and not of_model:
        lockstep.skipped = frozenset(p.name for p in subject.properties)
    if of_model:
        lockstep.check_every = _CHECK_EVERY
    end = time.process_time() + seconds
    while time.process_time() < end:
        finding = lockstep.run(seed)
        if finding is not None and not _is_slow_only(lockstep, finding):
            return finding, lockstep.coverage.steps + len(finding.calls)
        seed += 1
    return None, lockstep.coverage.steps


def _is_slow_only(lockstep: Lockstep, finding: Finding) -> bool:
    """Returns whether a finding is a hang whose trace has no finding if it gets ten times as much processor time."""
    if finding.cause.kind is not Kind.HANG:
        return False
    target, limit = lockstep.target.with_config(finding.config), 10 * HANG_SECONDS
    return replay(target, finding.calls, hang_seconds=limit, skipped=lockstep.skipped) is None


def undetected_corruption(subject: Subject) -> str | None:
    """Returns the name of a corruption that the implementation's own check does not detect, or None.

    Each corruption in `subject.corrupt` is applied to the final states of some traces, where it applies. It is detected
    if `check` reports a violation, or if `load` or `check` raises an exception or hangs.
    """
    profile = find_profile(subject, "reference")
    for seed in range(_CORRUPTED_TRACES):
        cfg = plan_trace(subject, profile, seed)[0].config
        state = subject.machine.start(cfg)
        for name, arguments in generate(subject, profile, seed):
            state, _ = subject.machine.step(cfg, state, name, arguments)
        for name, corrupted in subject.corrupt.items():
            wrong = corrupted(cfg, state)
            if wrong is not None and not _detects(subject, cfg, wrong):
                return name
    return None


def _detects(subject: Subject, cfg: Any, wrong: Any) -> bool:
    try:
        with watchdog(HANG_SECONDS):
            return bool(subject.implementation.load(cfg, wrong).check())
    except (Hang, Exception):
        return True


def _explored(subject: Subject) -> tuple[Finding | None, Check]:
    """Explores the smoke scope, then covers its transitions. Returns the first finding or None, and the check that ran.

    If the exploration finds nothing, the check is COVER.
    """
    space = find_space(subject, _SCOPE)
    found = explore(space)
    if found.violations:
        return found.violations[0], Check.EXPLORE
    assert found.graph is not None
    return cover(space, found.graph).finding, Check.COVER


# ---- which properties kill what -----------------------------------------------------------------------


def killers(mutant: Mutant) -> list[str]:
    """Returns what kills a seeded bug in `model/`: the names of violated properties, and causes of other kinds, sorted.

    Runs blocks of traces up to the first block with a finding. Properties are checked at every 16th step, so a property
    that fails rarely, and for a single step, may be missing.
    """
    subject = seed_bug(mutant)
    lockstep = Lockstep(Target(subject, find_profile(subject, mutant.profile), model_only=True))
    for first in range(0, _MAX_BLOCKS * _PROPERTY_TRACES, _PROPERTY_TRACES):
        findings = list(all_findings(lockstep, range(first, first + _PROPERTY_TRACES)))
        if findings:
            return sorted({finding.broken_property or str(finding.cause) for finding in findings})
    return []


def all_findings(lockstep: Lockstep, seeds: Iterable[int]) -> Iterator[Finding]:
    """Yields all findings of the seeds. A property is skipped after its first violation, which would hide others."""
    for seed in seeds:
        while (finding := lockstep.run(seed)) is not None:
            name = finding.broken_property
            lockstep.skipped |= {name} if name is not None else NONE_SKIPPED
            yield finding
            if name is None:  # not a property, so it cannot be skipped
                break


def unique_kills(subject: Subject, killed_by: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
    """Returns for each `always` property the mutants that no other property kills, and a reason to keep the property.

    `killed_by` has the result of `killers` for each mutant. The keys of a row are `only_killer_of` and `stays`, the
    reason. It is the one in the component's table `stays`. If the table has none and the property is no mutant's only
    killer, the reason is a known defect that violates the property. Otherwise `stays` is empty.
    """
    broken_by = {d.property: f"the defect {d.id} breaks it" for d in defects_of(subject.name)}
    rows: dict[str, dict[str, Any]] = {}
    for name in (p.name for p in subject.properties if p.kind == "always"):
        only = [m for m, names in killed_by.items() if names == [name]]
        reason = reasons_to_keep(subject.name).get(name) or ("" if only else broken_by.get(name, ""))
        rows[name] = {"only_killer_of": only, "stays": reason}
    return rows


# ---- many mutants -------------------------------------------------------------------------------------


def jobs_of(
    names: Sequence[str],
    *,
    generated: bool,
    seconds: float,
    seed: int,
    model: bool = False,
    sample: int = 0,
    twin: bool = False,
) -> list[Job]:
    """Returns jobs for the seeded bugs of the subjects; if `generated`, for generated mutants of their implementations.

    With `model`, the generated mutants are of their models. A module of the implementation that the subject does not
    import has no mutants here, because no check of the kill matrix could kill them; that module has its own tests.
    `sample` limits the number of generated mutants of each subject, which are then evenly spread; 0 means all. Raises
    BadValue if a row `[[equivalent]]` names a mutant that is not generated.
    """
    jobs = []
    for name in names:
        if generated:
            modules = modules_of("model" if model else "impl", name)
            if not model:
                modules = [module for module in modules if is_imported(module, name)]
            made = [each for module in modules for each in generated_of(module)]
            ids = {(each.module, key) for each in made for key in (each.id, each.id_prefix)}
            for module, gone in [e for e in equivalents_of(name) if e[0] in modules and e not in ids]:
                raise BadValue(f"fuzz/mutants/{name}.toml: {module} has no generated mutant {gone}")
            count = min(sample, len(made)) if sample else len(made)
            chosen = [made[i * len(made) // count] for i in range(count)]
            jobs += [Job(name, None, each, seconds, seed, twin) for each in chosen]
        else:
            jobs += [Job(name, m.id, None, seconds, seed) for m in mutants_of(name)]
    return jobs


def check_all_apply(names: Sequence[str]) -> None:
    """Raises BadValue if a seeded bug no longer applies, or the table `stays` names an unknown property."""
    for name in names:
        known = [p.name for p in find_subject(name).properties]
        for mutant in mutants_of(name):
            mutated_source(mutant)
        for stays in reasons_to_keep(name):
            if stays not in known:
                raise BadValue(f"fuzz/mutants/{name}.toml: there is no property {stays}")


def run_here(jobs: Sequence[Job], processes: int) -> Iterator[Kill]:
    """Runs jobs in this process, or in several. Yields the results as they complete.

    Several processes are replaced after each batch of jobs, which frees their memory.
    """
    if processes == 1:
        yield from map(run_job, jobs)
        return
    batch = _JOBS_OF_A_PROCESS * processes
    for first in range(0, len(jobs), batch):
        with Workers(processes, "spawn") as pool:
            for done in as_completed([pool.submit(run_job, job) for job in jobs[first : first + batch]]):
                yield done.result()


def run_on_spark(jobs: Sequence[Job], spark: Any, slots: int) -> list[Kill]:
    """Runs jobs on a Spark cluster with this number of `slots`, several jobs in each task. Returns the results."""
    texts = [job_to_json(job) for job in jobs]
    pieces = max(1, min(len(texts), 4 * slots))

    def work(each: Iterable[str]) -> Iterator[str]:
        for text in each:
            yield to_json(run_job(job_from_json(text))._asdict()).decode()

    lines = spark.sparkContext.parallelize(texts, pieces).mapPartitions(work).collect()
    kills = [Kill(**from_json(line)) for line in lines]
    return [kill if kill.check is None else kill._replace(check=Check(kill.check)) for kill in kills]


def job_to_json(job: Job) -> str:
    """Returns a job as JSON."""
    generated = job.generated._asdict() if job.generated is not None else None
    return to_json({**job._asdict(), "generated": generated}).decode()


def job_from_json(text: str) -> Job:
    """Returns the job that a JSON text encodes."""
    data = from_json(text)
    generated = Generated(**data["generated"]) if data["generated"] is not None else None
    return Job(**{**data, "generated": generated})


def in_order(jobs: Sequence[Job], kills: Iterable[Kill], progress: Callable[[int, int], None]) -> list[Kill]:
    """Returns the results in the order of the jobs. Calls `progress` with the numbers of results and of jobs."""
    indices = {(j.subject, j.mutant or (j.generated.id if j.generated else "")): i for i, j in enumerate(jobs)}
    done: list[Kill] = []
    for kill in kills:
        done.append(kill)
        progress(len(done), len(jobs))
    return sorted(done, key=lambda k: indices[k.subject, k.id])


def default_processes() -> int:
    """Returns the number of cores."""
    return os.cpu_count() or 1
