"""`brokerproof check`: the checks of a tier, for continuous integration.

The checks are discovered from the components' files. After a check has passed without findings, it is skipped until a
file changes on which the check depends.
"""

from __future__ import annotations

import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape

from fuzz.campaign.local import Request
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
from fuzz.platform.sources import ROOT, changed_since, digest_of, files_of, has_deleted_source
from fuzz.prove import claims_about
from fuzz.seeding import mutants_of
from fuzz.subject import Subject, find_subject, subject_names
from fuzz.trace.recording import recorded_traces, recording_of
from model.machine import BadValue

#: The default file of the cache of passed checks.
CACHE = Path("build/check/passed.json")


class Kind(StrEnum):
    """What a check runs. Checks run in the order of the kinds."""

    REPLAY = "replay"
    FUZZ = "fuzz"
    EXPLORE = "explore"
    PROVE = "prove"
    MUTANTS = "mutants"
    TLA = "tla"
    EVIDENCE = "evidence"
    CLIENT = "client"
    GENERATED = "generated"

    @property
    def smallest_tier(self) -> int:
        """The rank of the shortest tier that has checks of this kind: 0 quick, 1 full, 2 nightly."""
        if self in (Kind.TLA, Kind.EVIDENCE, Kind.GENERATED):
            return 2
        return 1 if self in (Kind.PROVE, Kind.MUTANTS, Kind.CLIENT) else 0


class Tier(StrEnum):
    """How much is checked: what takes about two minutes, half an hour, or a night."""

    QUICK = "quick"
    FULL = "full"
    NIGHTLY = "nightly"

    @property
    def rank(self) -> int:
        """The index of the tier, shortest first."""
        return list(Tier).index(self)

    @property
    def fuzz_seconds(self) -> float:
        """Seconds of fuzzing for each component, of all processes together."""
        return (2.0, 30.0, 120.0)[self.rank]

    @property
    def max_transitions(self) -> float:
        """The number of transitions of the largest scope that is explored."""
        return (50_000, 1_000_000, float("inf"))[self.rank]


class CheckRow(Record):
    """A check. `known` are the findings that are in the baseline."""

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
    since: str | None = None
    baseline: Path | None = None
    junit: Path | None = None
    cache: Path = CACHE
    kinds: Collection[Kind] = tuple(Kind)


class Outcome(NamedTuple):
    """The findings of a check. `message` is shown if the check passed. A `failure` fails it even with a baseline."""

    message: str
    findings: list[str]
    failure: str = ""


class Check(NamedTuple):
    """A check of one component. `of` is what is checked: a recording, a scenario, a TLA+ module or the component."""

    kind: Kind
    of: str
    component: str
    run: Callable[[Console], Outcome]

    @property
    def name(self) -> str:
        """The kind and what is checked."""
        return f"{self.kind}.{self.of}"


# ---- discovery ----------------------------------------------------------------------------------------


def checks_of(tier: Tier, kinds: Collection[Kind] = tuple(Kind)) -> Iterator[Check]:
    """Yields the checks of a tier and of some kinds: recordings by file, clients by scenario, others by component."""
    for kind in Kind:
        if kind in kinds and tier.rank >= kind.smallest_tier:
            if kind is Kind.REPLAY:
                yield from _replay_checks()
            elif kind is Kind.CLIENT:
                yield from _client_checks(tier)
            else:
                for name in subject_names():
                    yield from _KINDS[kind](find_subject(name), tier)


def _replay_checks() -> Iterator[Check]:
    for path in sorted((ROOT / "tests" / "recordings").glob("*.gz")):
        component = recording_of(next(recorded_traces(path))).subject
        yield Check(Kind.REPLAY, path.name.partition(".")[0], component, partial(_replay, path))


def _client_checks(tier: Tier) -> Iterator[Check]:
    """Yields a check for each scenario of a real client, if the client is installed."""
    component = known_deviations()[0].defect.component
    for name in scenario_names() if is_installed() else ():

        def run(console: Console, name: str = name) -> Outcome:
            result = client.run(client.Options(name, seconds=tier.fuzz_seconds), console)
            new = [f"{f.scenario} {f.contract}" for f in result.findings if f.defect is None]
            return Outcome(f"no difference in {result.traces:,} schedules (seed {result.seed})", new)

        yield Check(Kind.CLIENT, name, component, run)


def _fuzz_checks(subject: Subject, tier: Tier) -> Iterator[Check]:
    def run(console: Console) -> Outcome:
        jobs = usable_cores() if tier is Tier.NIGHTLY else 1
        request = Request(Spec(subject.name), 0, seconds=tier.fuzz_seconds / jobs, jobs=jobs)
        result = fuzz.run(request, None, console)
        ran = f"{result.steps:,} steps of {result.traces:,} traces (seed {result.seed})"
        if subject.canary:
            return Outcome(f"found in {ran}", []) if result.findings else Outcome("", [], f"canary not found in {ran}")
        findings = [f"{f.subject} {f.profile} {f.cause}" for f in result.findings]
        return Outcome(f"no difference in {ran}", findings, "; ".join(result.never))

    yield Check(Kind.FUZZ, subject.name, subject.name, run)


def _explore_checks(subject: Subject, tier: Tier) -> Iterator[Check]:
    for scope in subject.scopes if not subject.canary else ():
        counts = all_counts().get((subject.name, scope))
        if counts is not None and counts.transitions <= tier.max_transitions:

            def run(console: Console, scope: str = scope) -> Outcome:
                result = explore.run(explore.Options(subject.name, scope), console)
                wrong = f"expected {result.expected_states:,} states" if result.counts_differ else ""
                findings = [f"{subject.name} {scope} {violation.cause}" for violation in result.violations]
                return Outcome(f"exhausted: {result.distinct_states:,} states", findings, wrong)

            yield Check(Kind.EXPLORE, f"{subject.name}.{scope}", subject.name, run)


def _prove_checks(subject: Subject, _tier: Tier) -> Iterator[Check]:
    def run(console: Console) -> Outcome:
        claims = prove.run([subject.name], console).claims
        return Outcome(f"{len(claims)} claims hold", [f"{subject.name} {c.id}" for c in claims if not c.holds])

    if claims_about(subject.name):
        yield Check(Kind.PROVE, subject.name, subject.name, run)


def _mutant_checks(subject: Subject, _tier: Tier) -> Iterator[Check]:
    if mutants_of(subject.name) and not subject.canary:
        run = _mutants_run(mutants.Options([subject.name]))
        yield Check(Kind.MUTANTS, subject.name, subject.name, run)


def _generated_checks(subject: Subject, _tier: Tier) -> Iterator[Check]:
    if not subject.canary:
        run = _mutants_run(mutants.Options([subject.name], seconds=20.0, generated=True))
        yield Check(Kind.GENERATED, subject.name, subject.name, run)


def _mutants_run(options: mutants.Options) -> Callable[[Console], Outcome]:
    def run(console: Console) -> Outcome:
        result = mutants.run(options, console)
        survived = [f"{options.names[0]} {name}" for name in (*result.survivors, *result.idle_properties)]
        return Outcome(f"{result.killed:,} of {len(result.mutants):,} mutants killed", survived)

    return run


def _tla_checks(subject: Subject, _tier: Tier) -> Iterator[Check]:
    def run(console: Console) -> Outcome:
        rows = tla.run([subject.tla or ""], None, console).modules
        return Outcome(f"{len(rows)} runs as expected", [line for row in rows for line in row.differences])

    if subject.tla:
        yield Check(Kind.TLA, subject.tla, subject.name, run)


def _evidence_checks(subject: Subject, _tier: Tier) -> Iterator[Check]:
    def run(console: Console) -> Outcome:
        rows = evidence.run([subject.name], evidence.MOST_STEPS, None, console).defects
        return Outcome(f"{len(rows)} defects found", [f"{subject.name} {r.id}" for r in rows if r.steps is None])

    if defects_of(subject.name):
        yield Check(Kind.EVIDENCE, subject.name, subject.name, run)


_KINDS: dict[Kind, Callable[[Subject, Tier], Iterator[Check]]] = {
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
    """Runs the checks of a tier. With `since`, runs only checks that depend on a file changed since that revision.

    If a source file was deleted, all checks run, because the checks that depended on this file are not known. Raises
    BadValue for an unknown revision or an unreadable baseline.
    """
    known = _baseline(options.baseline) if options.baseline is not None else frozenset[str]()
    changed = changed_since(options.since) if options.since is not None else None
    files = {name: files_of(name, find_subject(name).tla) for name in subject_names()}
    chosen = list(checks_of(options.tier, options.kinds))
    if changed is not None and not has_deleted_source(changed):
        chosen = [check for check in chosen if changed & files[check.component]]
    passed, rows = _read_cache(options.cache), list[CheckRow]()
    with showing(console, "starting") as update:
        for number, check in enumerate(chosen):
            update(number, len(chosen), check.name)
            digest = digest_of(files[check.component], check.name, options.tier.value)
            cached_as = f"{options.tier} {check.name}"
            message = passed.get(cached_as, {}).get(digest)
            if message is not None:
                cached = CheckRow(
                    name=check.name, passed=True, seconds=0.0, message=message, cached=True, findings=[], known=[]
                )
                rows.append(cached)
                continue
            rows.append(_row(check, known))
            if rows[-1].passed and not rows[-1].findings:
                passed[cached_as] = {digest: rows[-1].message}
                _write_cache(options.cache, passed)
    result = CheckResult(tier=options.tier, checks=rows)
    if options.junit is not None:
        _write_junit(options.junit, chosen, result)
    return result


def _row(check: Check, known: frozenset[str]) -> CheckRow:
    """Runs one check, without showing its progress. Returns its row."""
    started = time.monotonic()
    try:
        outcome = check.run(Console(quiet=True))
    except BadValue as problem:
        outcome = Outcome("", [], str(problem))
    new = [each for each in outcome.findings if each not in known]
    wrong = [*new, outcome.failure] if outcome.failure else new
    return CheckRow(
        name=check.name,
        passed=not wrong,
        seconds=round(time.monotonic() - started, 3),
        message="; ".join(wrong) if wrong else outcome.message,
        cached=False,
        findings=outcome.findings,
        known=[each for each in outcome.findings if each in known],
    )


def _baseline(path: Path) -> frozenset[str]:
    """Returns the findings in the JSON output of an earlier run."""
    try:
        data = from_json(path.read_bytes())
        return frozenset(str(each) for row in data["checks"] for each in row["findings"])
    except OSError as problem:
        raise BadValue(f"--baseline {path} cannot be read: {problem.strerror}") from None
    except (NotJSON, KeyError, TypeError):
        raise BadValue(f"--baseline {path} is not the output of `brokerproof check --json`") from None


def _read_cache(path: Path) -> dict[str, dict[str, str]]:
    try:
        data = from_json(path.read_bytes())
    except (OSError, NotJSON):
        return {}
    return data if isinstance(data, dict) else {}


def _write_cache(path: Path, passed: dict[str, dict[str, str]]) -> None:
    try:
        write_whole(path, to_json(passed))
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
    """Prints a line for each check and its known findings, then the number of checks that passed."""
    for row in result.checks:
        verdict = "[green]passed[/]" if row.passed else "[bold red]failed[/]"
        took = "cached" if row.cached else f"{row.seconds:.1f} s"
        console.print(f"{verdict}  {row.name:38} {took:>8}  {escape(row.message)}")
        for each in row.known:
            console.print(f"        known: {escape(each)}", style="dim")
    passed = sum(row.passed for row in result.checks)
    console.print(f"{passed:,} of {len(result.checks):,} checks of tier {result.tier} passed")
