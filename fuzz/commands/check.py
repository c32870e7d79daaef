"""`brokerproof check`: the checks of a tier, for continuous integration.

A check runs another command on one thing. For example, it fuzzes one component, or explores one scope. If a check
passes without findings, its result is cached: the same tier runs this check again only after a change of a file on
which the check depends.
"""

from __future__ import annotations

import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.markup import escape

from fuzz.campaign.local import Request
from fuzz.campaign.store import check_writable_file
from fuzz.campaign.worker import Spec
from fuzz.client.harness import is_installed
from fuzz.client.known import known_deviations
from fuzz.client.schedule import scenario_names
from fuzz.commands import Record, Result, Seconds, client, evidence, explore, fuzz, mutants, prove, replay, tla
from fuzz.defects.table import defects_of
from fuzz.explore.counts import all_counts
from fuzz.platform.files import write_whole
from fuzz.platform.json import NotJSON, from_json, to_json
from fuzz.platform.processes import usable_cores
from fuzz.platform.progress import showing
from fuzz.platform.sources import ROOT, changed_since, components_used_by, digest_of, files_of, has_deleted_source
from fuzz.prove import claims_about
from fuzz.seeding import mutants_of
from fuzz.subject import Subject, find_subject, subject_names
from fuzz.trace.recording import mapping_of, mappings, recorded_traces
from model.machine import BadValue

#: The default file of the cache: the checks that passed without findings.
CACHE = Path("build/check/passed.json")


class Kind(StrEnum):
    """What a check runs. Checks run in the order of the kinds."""

    REPLAY = "replay"
    FUZZ = "fuzz"
    EXPLORE = "explore"
    PROVE = "prove"
    MUTANTS = "mutants"  # the seeded bugs
    TLA = "tla"
    EVIDENCE = "evidence"
    CLIENT = "client"
    GENERATED = "generated"  # the generated mutants of an implementation

    @property
    def min_tier_rank(self) -> int:
        """The rank of the shortest tier that has checks of this kind: 0 quick, 1 full, 2 nightly."""
        if self in (Kind.TLA, Kind.EVIDENCE, Kind.GENERATED):
            return 2
        return 1 if self in (Kind.PROVE, Kind.MUTANTS, Kind.CLIENT) else 0


class Tier(StrEnum):
    """How long the checks take: about two minutes, half an hour, or a night."""

    QUICK = "quick"
    FULL = "full"
    NIGHTLY = "nightly"

    @property
    def rank(self) -> int:
        """The index of the tier, shortest first."""
        return list(Tier).index(self)

    @property
    def fuzz_seconds(self) -> float:
        """The seconds to fuzz each component, summed over the processes; also for each client scenario."""
        return (2.0, 30.0, 120.0)[self.rank]

    @property
    def max_transitions(self) -> float:
        """The limit for the transitions of a scope. A scope with more, or without stored counts, is not explored."""
        return (50_000, 1_000_000, float("inf"))[self.rank]


class CheckRow(Record):
    """The result of a check. `findings` has all findings, `known` those of them that are in the baseline.

    If the check passed, `message` is that of its `Outcome`. Otherwise, `message` has the findings that are not in the
    baseline, and the failure.
    """

    name: str
    passed: bool
    seconds: Seconds
    message: str
    cached: bool
    findings: list[str]
    known: list[str]


class CheckResult(Result):
    """A row for each check that was selected."""

    tier: Tier
    checks: list[CheckRow]

    @property
    def found(self) -> bool:
        """Whether a check failed."""
        return not all(check.passed for check in self.checks)


class Options(NamedTuple):
    """The options of the command line."""

    tier: Tier = Tier.QUICK
    since: str | None = None  # a git revision
    baseline: Path | None = None  # the output of an earlier `check --json`: its findings fail no check
    junit: Path | None = None  # the JUnit file to write
    cache: Path = CACHE
    kinds: Collection[Kind] = tuple(Kind)


class Outcome(NamedTuple):
    """What a check found. A check passes if it has no `failure`, and if each of its findings is in the baseline.

    `failure` is not a finding, so no baseline can excuse it: for example, a coverage goal that was not reached.
    `message` is shown if the check passes.
    """

    message: str
    findings: list[str]
    failure: str = ""


class Check(NamedTuple):
    """A check.

    `of` names what is checked: a file of recordings, a scenario, a scope, a TLA+ module, or a component. The check
    depends on the files of `components`.
    """

    kind: Kind
    of: str
    components: tuple[str, ...]
    run: Callable[[Console], Outcome]

    @property
    def name(self) -> str:
        """The kind, and the name of what is checked."""
        return f"{self.kind}.{self.of}"


# ---- discovery ----------------------------------------------------------------------------------------


def checks_of(tier: Tier, kinds: Collection[Kind] = tuple(Kind)) -> Iterator[Check]:
    """Yields the checks of a tier, of these kinds.

    There is a check for each file of recordings, each scenario of a client, and each scope that the tier explores. Each
    other kind has a check for each component that it applies to.
    """
    for kind in Kind:
        if kind in kinds and tier.rank >= kind.min_tier_rank:
            if kind is Kind.REPLAY:
                yield from _replay_checks()
            elif kind is Kind.CLIENT:
                yield from _client_checks(tier)
            else:
                for name in subject_names():
                    yield from _CHECKS_OF_COMPONENT[kind](find_subject(name), tier)


def _replay_checks() -> Iterator[Check]:
    """Yields a check for each file of recordings.

    All traces of a file record the same thing, such as a class of Pulsar: `Trace.component` names it. Mappings
    (`fuzz/trace/recording.py`) map this thing to components of ours. The check depends on each of these components.
    """
    for path in sorted((ROOT / "tests" / "recordings").glob("*.gz")):
        first = next(recorded_traces(path))
        mapped = (each.subject for each in mappings() if each.component == first.component)
        # the mapping of a trace of actions is not in `mappings`
        components = tuple(dict.fromkeys([mapping_of(first).subject, *mapped]))
        yield Check(Kind.REPLAY, path.name.partition(".")[0], components, partial(_replay, path))


def _client_checks(tier: Tier) -> Iterator[Check]:
    """Yields a check for each scenario of a real client, if the client is installed.

    All these checks depend on the components whose models answer the client, and on those whose defect tables have
    known deviations of the client.
    """
    used = components_used_by("fuzz.answers", subject_names())
    components = tuple(dict.fromkeys([*used, *(each.defect.component for each in known_deviations())]))
    for name in scenario_names() if is_installed() else ():

        def run(console: Console, name: str = name) -> Outcome:
            result = client.run(client.Options(name, seconds=tier.fuzz_seconds), console)
            unknown = [f"{f.scenario} {f.contract}" for f in result.findings if f.defect is None]
            return Outcome(f"no difference in {result.traces:,} schedules (seed {result.seed})", unknown)

        yield Check(Kind.CLIENT, name, components, run)


def _fuzz_checks(subject: Subject, tier: Tier) -> Iterator[Check]:
    """Yields the check that fuzzes a component. The check of a canary passes if there is a finding."""

    def run(console: Console) -> Outcome:
        jobs = usable_cores() if tier is Tier.NIGHTLY else 1
        request = Request(Spec(subject.name), 0, seconds=tier.fuzz_seconds / jobs, jobs=jobs)
        result = fuzz.run(request, None, console)
        ran = f"{result.steps:,} steps of {result.traces:,} traces (seed {result.seed})"
        if subject.canary:
            return Outcome(f"found in {ran}", []) if result.findings else Outcome("", [], f"canary not found in {ran}")
        findings = [f"{f.subject} {f.profile} {f.cause}" for f in result.findings]
        return Outcome(f"no difference in {ran}", findings, "; ".join(result.missed_coverage))

    yield Check(Kind.FUZZ, subject.name, (subject.name,), run)


def _explore_checks(subject: Subject, tier: Tier) -> Iterator[Check]:
    for scope in subject.scopes if not subject.canary else ():
        counts = all_counts().get((subject.name, scope))
        if counts is not None and counts.transitions <= tier.max_transitions:

            def run(console: Console, scope: str = scope) -> Outcome:
                result = explore.run(explore.Options(subject.name, scope), console)
                visited = f"{result.distinct_states:,} states and {result.transitions:,} transitions"
                wrong = f"{visited} differ from fuzz/explore/counts.toml" if result.counts_differ else ""
                findings = [f"{subject.name} {scope} {violation.cause}" for violation in result.violations]
                return Outcome(f"exhausted: {result.distinct_states:,} states", findings, wrong)

            yield Check(Kind.EXPLORE, f"{subject.name}.{scope}", (subject.name,), run)


def _prove_checks(subject: Subject, _tier: Tier) -> Iterator[Check]:
    def run(console: Console) -> Outcome:
        claims = prove.run([subject.name], console).claims
        return Outcome(f"{len(claims)} claims hold", [f"{subject.name} {c.id}" for c in claims if not c.holds])

    if claims_about(subject.name):
        yield Check(Kind.PROVE, subject.name, (subject.name,), run)


def _mutant_checks(subject: Subject, _tier: Tier) -> Iterator[Check]:
    if mutants_of(subject.name) and not subject.canary:
        run = _mutants_run(mutants.Options([subject.name]))
        yield Check(Kind.MUTANTS, subject.name, (subject.name,), run)


def _generated_checks(subject: Subject, _tier: Tier) -> Iterator[Check]:
    if not subject.canary:
        run = _mutants_run(mutants.Options([subject.name], seconds=20.0, generated=True))
        yield Check(Kind.GENERATED, subject.name, (subject.name,), run)


def _mutants_run(options: mutants.Options) -> Callable[[Console], Outcome]:
    def run(console: Console) -> Outcome:
        result = mutants.run(options, console)
        findings = [f"{options.names[0]} {name}" for name in (*result.survivors, *result.idle_properties)]
        return Outcome(f"{result.killed:,} of {len(result.mutants):,} mutants killed", findings)

    return run


def _tla_checks(subject: Subject, _tier: Tier) -> Iterator[Check]:
    def run(console: Console) -> Outcome:
        runs = tla.run([subject.tla or ""], None, console, nightly=True).modules
        return Outcome(f"{len(runs)} runs as expected", [line for each in runs for line in each.differences])

    if subject.tla:
        yield Check(Kind.TLA, subject.tla, (subject.name,), run)


def _evidence_checks(subject: Subject, _tier: Tier) -> Iterator[Check]:
    def run(console: Console) -> Outcome:
        rows = evidence.run([subject.name], evidence.MOST_STEPS, None, console).defects
        return Outcome(f"{len(rows)} defects found", [f"{subject.name} {r.id}" for r in rows if r.steps is None])

    if defects_of(subject.name):
        yield Check(Kind.EVIDENCE, subject.name, (subject.name,), run)


#: By kind: (component, tier) -> the checks of the component. Recordings and clients are not listed by component.
_CHECKS_OF_COMPONENT: dict[Kind, Callable[[Subject, Tier], Iterator[Check]]] = {
    Kind.FUZZ: _fuzz_checks,
    Kind.EXPLORE: _explore_checks,
    Kind.PROVE: _prove_checks,
    Kind.MUTANTS: _mutant_checks,
    Kind.TLA: _tla_checks,
    Kind.EVIDENCE: _evidence_checks,
    Kind.GENERATED: _generated_checks,
}


def _replay(path: Path, console: Console) -> Outcome:
    result = replay.run(replay.Options([str(path)]), console)
    unknown = [row for row in result.differences if row.known_deviation is None]
    agreed = f"{result.agreed:,} of {result.traces:,} traces agree"
    return Outcome(agreed, [f"{path.name} {row.trace} line {row.line}" for row in unknown])


# ---- running ------------------------------------------------------------------------------------------


def run(options: Options, console: Console) -> CheckResult:
    """Runs the checks of a tier, except those that are cached. Returns a row for each check, cached ones included.

    With `since`, selects only checks that depend on a file that changed since that revision. If a source file was
    deleted since then, selects all checks, because nothing says which checks depended on the deleted file. A check that
    passes because its findings are in the baseline is not cached. Raises BadValue for an unknown revision, for an
    unreadable baseline, and if the cache or the JUnit file cannot be written.
    """
    if options.junit is not None:
        check_writable_file("--junit", options.junit)
    baseline = _findings_in(options.baseline) if options.baseline is not None else frozenset[str]()
    changed = changed_since(options.since) if options.since is not None else None
    files = {name: files_of(name, find_subject(name).tla) for name in subject_names()}
    chosen = list(checks_of(options.tier, options.kinds))
    if changed is not None and not has_deleted_source(changed):
        chosen = [check for check in chosen if any(changed & files[name] for name in check.components)]
    cache, rows = _read_cache(options.cache), list[CheckRow]()
    with showing(console, "starting") as update:
        for number, check in enumerate(chosen):
            update(number, len(chosen), check.name)
            depends_on = {path for name in check.components for path in files[name]}
            digest = digest_of(depends_on, check.name, options.tier.value)
            key = f"{options.tier} {check.name}"
            message = cache.get(key, {}).get(digest)
            if message is not None:
                row = CheckRow(
                    name=check.name, passed=True, seconds=0.0, message=message, cached=True, findings=[], known=[]
                )
                rows.append(row)
                continue
            rows.append(_run_check(check, baseline))
            if rows[-1].passed and not rows[-1].findings:
                cache[key] = {digest: rows[-1].message}
                _write_cache(options.cache, cache)
    result = CheckResult(tier=options.tier, checks=rows)
    if options.junit is not None:
        _write_junit(options.junit, chosen, result)
    return result


def _run_check(check: Check, baseline: frozenset[str]) -> CheckRow:
    """Runs one check, without showing its progress. Returns its row.

    A finding in `baseline` does not fail the check. If the check raises BadValue, the check fails with the message of
    the exception.
    """
    started = time.monotonic()
    try:
        outcome = check.run(Console(quiet=True))
    except BadValue as problem:
        outcome = Outcome("", [], str(problem))
    new = [each for each in outcome.findings if each not in baseline]
    wrong = [*new, outcome.failure] if outcome.failure else new
    return CheckRow(
        name=check.name,
        passed=not wrong,
        seconds=round(time.monotonic() - started, 3),
        message="; ".join(wrong) if wrong else outcome.message,
        cached=False,
        findings=outcome.findings,
        known=[each for each in outcome.findings if each in baseline],
    )


def _findings_in(path: Path) -> frozenset[str]:
    """Returns the findings in the output of an earlier `check --json`. Raises BadValue for another file."""
    try:
        data = from_json(path.read_bytes())
        return frozenset(str(each) for row in data["checks"] for each in row["findings"])
    except OSError as problem:
        raise BadValue(f"--baseline {path} cannot be read: {problem.strerror}") from None
    except (NotJSON, KeyError, TypeError):
        raise BadValue(f"--baseline {path} is not the output of `brokerproof check --json`") from None


def _read_cache(path: Path) -> dict[str, dict[str, str]]:
    """Returns the cache; an empty cache if there is no readable file.

    The key is the tier and the name of a check, the value has one item: digest of the check and its files -> message.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, str]])
    except (OSError, msgspec.DecodeError):
        return {}


def _write_cache(path: Path, cache: dict[str, dict[str, str]]) -> None:
    try:
        write_whole(path, to_json(cache))
    except OSError as problem:
        raise BadValue(f"{path} cannot be written: {problem.strerror}") from None


def _write_junit(path: Path, checks: Sequence[Check], result: CheckResult) -> None:
    """Writes the result of checks as JUnit XML, one test case for each check."""
    failed = [row for row in result.checks if not row.passed]
    suite = ET.Element("testsuite", name=f"brokerproof {result.tier}", tests=str(len(result.checks)))
    suite.set("failures", str(len(failed)))
    suite.set("time", f"{sum(row.seconds for row in result.checks):.3f}")
    for check, row in zip(checks, result.checks, strict=True):
        about = {"classname": f"brokerproof.{check.kind}", "name": check.of, "time": f"{row.seconds:.3f}"}
        case = ET.SubElement(suite, "testcase", about)
        if not row.passed:
            ET.SubElement(case, "failure", message=row.message)
    try:
        ET.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)
    except OSError as problem:
        raise BadValue(f"--junit {path} cannot be written: {problem.strerror}") from None


def show(console: Console, result: CheckResult) -> None:
    """Prints a line for each check, and its findings that are in the baseline. Then prints how many checks passed."""
    for row in result.checks:
        verdict = "[green]passed[/]" if row.passed else "[bold red]failed[/]"
        took = "cached" if row.cached else f"{row.seconds:.1f} s"
        console.print(f"{verdict}  {row.name:38} {took:>8}  {escape(row.message)}")
        for each in row.known:
            console.print(f"        known: {escape(each)}", style="dim")
    passed = sum(row.passed for row in result.checks)
    console.print(f"{passed:,} of {len(result.checks):,} checks of tier {result.tier} passed")
