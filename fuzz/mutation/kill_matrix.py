"""The kill matrix: which mutants the engines kill, what kills them, and how fast. The checks of a mutant, in order:

    seeded bug in impl/         1. lockstep of the model and the mutated implementation, under the bug's profile
                                2. corrupted states are loaded: the mutated `check` must detect them
                                3. the explorer exhausts the smoke scope; then every transition runs on the mutant
    generated mutant in impl/   the same, but in lockstep under every profile with the reference's rules
    seeded bug in model/        traces of the mutated model, with the properties, under the bug's profile
    generated mutant in model/  1. the same under every profile. Profiles other than `reference` violate some
                                   properties, so a finding under them counts only if the original model has no finding
                                   in the same trace
                                2. the checks of `fuzz/mutation/model_checks.py`. The check `twin` runs only with
                                   `--twin`, or if the mutant is in the function that returns the canonical form, which
                                   traces do not use

The checks run until one kills the mutant. A generated mutant that cannot be imported is killed by the check `import`.
A survivor shows a missing check, or is equivalent to the original. For an equivalent generated mutant, a row
`[[equivalent]]` of `fuzz/mutants/<component>.toml` has the reason.
"""

from __future__ import annotations

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

#: Number of traces in a block of `kill_causes`.
_TRACES_PER_BLOCK = 512
#: Maximum number of blocks that `kill_causes` runs.
_MAX_BLOCKS = 32
#: Number of traces whose final states are corrupted.
_CORRUPTED_TRACES = 32
#: Interval, in steps, at which `run_job` checks the properties of a mutated model.
_CHECK_EVERY = 4
#: The scope that is explored if neither fuzzing nor corrupted states kill a mutant of an implementation.
_SCOPE = "smoke"
#: The number of jobs, on average, after which a child process is replaced.
_JOBS_PER_PROCESS = 40


class MutantVerdict(NamedTuple):
    """The result for one mutant: killed or survived."""

    id: str
    subject: str
    origin: str  # of a seeded bug: `Mutant.origin`; of a generated mutant: the mutation operator
    check: Check | None  # the check that killed the mutant; None if the mutant survived
    cause: str  # what the check found; empty if the mutant survived
    seconds_to_kill: float | None  # wall-clock time of all checks up to the kill; None if the mutant survived
    steps_to_kill: int | None  # steps of all fuzzed traces up to the kill; None if the mutant survived
    length: int | None  # steps of the trace that kills the mutant, not shrunk; 0 or None if no trace kills it
    excuse: str  # the reason of the mutant's row `[[equivalent]]`; empty if there is no row
    path: str  # the path of the module; for a generated mutant also the line

    @property
    def killed(self) -> bool:
        """Whether a check killed the mutant."""
        return self.check is not None

    @property
    def killed_by(self) -> str:
        """The check and the cause; empty if the mutant survived."""
        return f"{self.check or ''} {self.cause}".strip()


class Job(NamedTuple):
    """One mutant to kill, in a form that can be sent to another process.

    A seeded bug has a `mutant_id`, a generated mutant has `generated`.
    """

    subject: str
    mutant_id: str | None
    generated: Generated | None
    seconds: float  # processor time of fuzzing
    seed: int  # the seed of the first trace
    twin: bool = False  # whether the check `twin` runs, whatever function of the model the mutant is in


# ---- one mutant ---------------------------------------------------------------------------------------


def run_job(job: Job) -> MutantVerdict:
    """Tries to kill a mutant. Returns the verdict. Cost: the job's seconds of fuzzing, then the other checks."""
    if job.generated is not None:
        return _kill_generated(job, job.generated)
    [mutant] = [m for m in mutants_of(job.subject) if m.id == job.mutant_id]
    return _kill(mutant, mutant.origin, seed_bug(mutant), (mutant.profile,), job)


def is_of_model(mutant: Mutant | Generated) -> bool:
    """Returns whether a mutant is in `model/`."""
    return mutant.module.startswith("model.")


def _path_of(mutant: Mutant | Generated) -> str:
    path = mutant.module.replace(".", "/") + ".py"
    return f"{path}:{mutant.line}" if isinstance(mutant, Generated) else path


def _kill_generated(job: Job, generated: Generated) -> MutantVerdict:
    """Tries to kill a generated mutant. A mutant that cannot be imported is killed."""
    reasons, module = equivalents_of(job.subject), generated.module
    excuse = reasons.get((module, generated.id)) or reasons.get((module, generated.id_prefix), "")
    source = source_with(generated)
    try:
        subject = seed_source(job.subject, generated.module, source)
    except Exception as problem:
        cause, path = type(problem).__name__, _path_of(generated)
        return MutantVerdict(
            generated.id, job.subject, generated.operator, Check.IMPORT, cause, 0.0, 0, 0, excuse, path
        )
    if is_of_model(generated):
        return _kill_model_mutant(job, generated, subject, source)._replace(excuse=excuse)
    machine = subject.machine
    others = [p for p in machine.profiles if p != "reference" and machine.is_reference(find_profile(subject, p))]
    return _kill(generated, generated.operator, subject, ("reference", *others), job)._replace(excuse=excuse)


def _kill_model_mutant(job: Job, generated: Generated, subject: Subject, source: str) -> MutantVerdict:
    """Tries to kill a generated mutant of a model. `source` is the text of the mutated module.

    The reference gets half of the seconds of fuzzing; the other profiles get equal shares of the other half.
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
    except Exception as problem:  # for example, the model cannot create an initial state
        cause = f"crash {type(problem).__name__}"
    in_canonical = generated.part == find_subject(job.subject).machine.canonical.__name__
    found = (Check.FUZZ, cause) if cause else killer(subject, generated.module, source, twin=job.twin or in_canonical)
    seconds, length = time.perf_counter() - started, len(finding.calls) if finding is not None else None
    row = MutantVerdict(
        generated.id, job.subject, generated.operator, None, "", None, None, length, "", _path_of(generated)
    )
    if found is None:
        return row
    return row._replace(check=found[0], cause=found[1], seconds_to_kill=seconds, steps_to_kill=steps)


#: (subject, profile) -> the names of the properties that the original model violated in some trace of this process.
_broken_in_original: dict[tuple[str, str], frozenset[str]] = {}


def _fuzz_model_under(subject: Subject, profile: str, *, seconds: float, seed: int) -> tuple[Finding | None, int]:
    """Fuzzes a mutated model under a profile. Returns the finding that kills it, or None, and the number of steps.

    A finding kills the mutant if a replay of its trace on the original model finds nothing. A property that this replay
    violates is skipped from then on under this profile, also for later mutants in this process. A hang does not count
    if the mutated model is only slow.
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
        # the finding's config is of a class of the mutated model
        config = type(find_profile(original, profile))(*finding.config)
        in_original = replay(Target(original, config, model_only=True), finding.calls, skipped=lockstep.skipped)
        if in_original is None:
            return finding, lockstep.coverage.steps
        lockstep.skipped |= {in_original.broken_property} if in_original.broken_property else NONE_SKIPPED
        _broken_in_original[key] = lockstep.skipped
    return None, lockstep.coverage.steps


def _kill(
    mutant: Mutant | Generated, origin: str, subject: Subject, profiles: tuple[str, ...], job: Job
) -> MutantVerdict:
    """Tries to kill a mutant of an implementation, or a seeded bug of a model. `subject` is built with the mutant.

    Each profile gets an equal share of the seconds of fuzzing.
    """
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
    row = MutantVerdict(mutant.id, subject.name, origin, None, "", None, None, None, "", _path_of(mutant))
    if_killed = row._replace(check=check, seconds_to_kill=seconds, steps_to_kill=steps)
    if undetected is not None:
        return if_killed._replace(check=Check.CHECK, cause=f"misses {undetected}", length=0)
    return row if finding is None else if_killed._replace(cause=str(finding.cause), length=len(finding.calls))


def fuzz_mutant(
    subject: Subject, profile: str, *, of_model: bool, seconds: float, seed: int = 0
) -> tuple[Finding | None, int]:
    """Fuzzes a mutated subject under a profile. Returns the first finding, or None, and the number of steps.

    A hang does not count as a finding if the subject is only slow. `seconds` is processor time, because the load of the
    machine changes it little. `seed` is the seed of the first trace. For a mutant in `impl/` (`of_model` is false),
    properties are checked under the reference only, because other profiles violate some.
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
            return finding, lockstep.coverage.steps
        seed += 1
    return None, lockstep.coverage.steps


def _is_slow_only(lockstep: Lockstep, finding: Finding) -> bool:
    """Returns whether a finding is a hang, but a replay with ten times the limit of processor time finds nothing."""
    if finding.cause.kind is not Kind.HANG:
        return False
    target, limit = lockstep.target.with_config(finding.config), 10 * HANG_SECONDS
    return replay(target, finding.calls, hang_seconds=limit, skipped=lockstep.skipped) is None


def undetected_corruption(subject: Subject) -> str | None:
    """Returns the name of a corruption that the implementation's own check does not detect, or None.

    Each corruption in `subject.corrupt` is applied to the final states of some traces under the reference, except to
    states for which it returns None. A corruption is detected if `check` reports a violation, or if `load` or `check`
    raises an exception or hangs.
    """
    profile = find_profile(subject, "reference")
    for seed in range(_CORRUPTED_TRACES):
        cfg = plan_trace(subject, profile, seed)[0].config
        state = subject.machine.start(cfg)
        for name, arguments in generate(subject, profile, seed):
            state, _ = subject.machine.step(cfg, state, name, arguments)
        for name, corrupt in subject.corrupt.items():
            corrupted = corrupt(cfg, state)
            if corrupted is not None and not _detects(subject, cfg, corrupted):
                return name
    return None


def _detects(subject: Subject, cfg: Any, corrupted: Any) -> bool:
    try:
        with watchdog(HANG_SECONDS):
            return bool(subject.implementation.load(cfg, corrupted).check())
    except (Hang, Exception):
        return True


def _explored(subject: Subject) -> tuple[Finding | None, Check]:
    """Explores the smoke scope. If that finds nothing, runs every transition. Returns the first finding, and its check.

    Without a finding, returns None and COVER.
    """
    space = find_space(subject, _SCOPE)
    found = explore(space)
    if found.violations:
        return found.violations[0], Check.EXPLORE
    assert found.graph is not None
    return cover(space, found.graph).finding, Check.COVER


# ---- which properties kill what -----------------------------------------------------------------------


def kill_causes(mutant: Mutant) -> list[str]:
    """Returns all causes that kill a seeded bug in `model/`, sorted: names of violated properties, and other causes.

    Runs blocks of traces up to the first block with a finding. Properties are checked at every 16th step
    (`CHECK_EVERY`). So a property that is violated rarely, and only for a single step, may be missing.
    """
    subject = seed_bug(mutant)
    lockstep = Lockstep(Target(subject, find_profile(subject, mutant.profile), model_only=True))
    for first in range(0, _MAX_BLOCKS * _TRACES_PER_BLOCK, _TRACES_PER_BLOCK):
        findings = list(unmasked_findings(lockstep, range(first, first + _TRACES_PER_BLOCK)))
        if findings:
            return sorted({finding.broken_property or str(finding.cause) for finding in findings})
    return []


def unmasked_findings(lockstep: Lockstep, seeds: Iterable[int]) -> Iterator[Finding]:
    """Yields the findings in the traces of these seeds. A property has at most one finding: its first violation.

    After a violation, adds the property to `lockstep.skipped` and runs the seed again, because the violation may hide
    findings at later steps. A finding of another kind cannot be skipped: the next seed follows.
    """
    for seed in seeds:
        while (finding := lockstep.run(seed)) is not None:
            name = finding.broken_property
            lockstep.skipped |= {name} if name is not None else NONE_SKIPPED
            yield finding
            if name is None:  # no property is violated, so nothing can be skipped
                break


def unique_kills(subject: Subject, causes: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
    """Returns for each `always` property the mutants that nothing else kills, and a reason to keep the property.

    `causes` has the result of `kill_causes` for each mutant. A row has the keys `only_killer_of` (the mutants) and
    `stays` (the reason). The reason is from the component's table `stays`. If the table has none, and the property is
    no mutant's only killer, the reason is a known defect that violates the property. Otherwise `stays` is empty.
    """
    broken_by = {d.property: f"the defect {d.id} breaks it" for d in defects_of(subject.name)}
    rows: dict[str, dict[str, Any]] = {}
    for name in (p.name for p in subject.properties if p.kind == "always"):
        only = [m for m, found in causes.items() if found == [name]]
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
    """Returns jobs for the seeded bugs of the subjects, or if `generated`, for generated mutants instead.

    Generated mutants are of the subjects' implementations; with `model`, of their models. A module of an implementation
    that the subject does not import has no mutants here, because no check of the kill matrix could kill them; that
    module has its own tests. `sample` limits the number of generated mutants of each subject, and selects them evenly;
    0 means all. Raises BadValue if a row `[[equivalent]]` of a mutated module names a mutant that is not generated.
    """
    jobs = []
    for name in names:
        if generated:
            modules = modules_of("model" if model else "impl", name)
            if not model:
                modules = [module for module in modules if is_imported(module, name)]
            made = [each for module in modules for each in generated_of(module)]
            ids = {(each.module, key) for each in made for key in (each.id, each.id_prefix)}
            for module, unknown in [e for e in equivalents_of(name) if e[0] in modules and e not in ids]:
                raise BadValue(f"fuzz/mutants/{name}.toml: {module} has no generated mutant {unknown}")
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
        for kept in reasons_to_keep(name):
            if kept not in known:
                raise BadValue(f"fuzz/mutants/{name}.toml: there is no property {kept}")


def run_here(jobs: Sequence[Job], processes: int) -> Iterator[MutantVerdict]:
    """Runs jobs in this process, or in several child processes. Yields the verdicts as they complete.

    Child processes are replaced after each batch of jobs, which frees their memory.
    """
    if processes == 1:
        yield from map(run_job, jobs)
        return
    batch = _JOBS_PER_PROCESS * processes
    for first in range(0, len(jobs), batch):
        with Workers(processes, "spawn") as pool:
            for done in as_completed([pool.submit(run_job, job) for job in jobs[first : first + batch]]):
                yield done.result()


def run_on_spark(jobs: Sequence[Job], spark: Any, slots: int) -> list[MutantVerdict]:
    """Runs jobs on a Spark cluster with this number of `slots`, several jobs in each task. Returns the verdicts."""
    texts = [job_to_json(job) for job in jobs]
    pieces = max(1, min(len(texts), 4 * slots))

    def work(each: Iterable[str]) -> Iterator[str]:
        for text in each:
            yield to_json(run_job(job_from_json(text))._asdict()).decode()

    lines = spark.sparkContext.parallelize(texts, pieces).mapPartitions(work).collect()
    verdicts = [MutantVerdict(**from_json(line)) for line in lines]
    return [each if each.check is None else each._replace(check=Check(each.check)) for each in verdicts]


def job_to_json(job: Job) -> str:
    """Returns a job as JSON."""
    generated = job.generated._asdict() if job.generated is not None else None
    return to_json({**job._asdict(), "generated": generated}).decode()


def job_from_json(text: str) -> Job:
    """Returns the job that a JSON text encodes."""
    data = from_json(text)
    generated = Generated(**data["generated"]) if data["generated"] is not None else None
    return Job(**{**data, "generated": generated})


def in_order(
    jobs: Sequence[Job], verdicts: Iterable[MutantVerdict], progress: Callable[[int, int], None]
) -> list[MutantVerdict]:
    """Returns the verdicts in the order of the jobs. Calls `progress` with the numbers of verdicts and of jobs."""
    indices = {(j.subject, j.mutant_id or (j.generated.id if j.generated else "")): i for i, j in enumerate(jobs)}
    done: list[MutantVerdict] = []
    for verdict in verdicts:
        done.append(verdict)
        progress(len(done), len(jobs))
    return sorted(done, key=lambda each: indices[each.subject, each.id])
