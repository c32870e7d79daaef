"""`brokerproof client`: a real Pulsar client against loopback brokers that answer as the models do.

The client is `pulsar-client`, or the one that the user's own driver runs (`fuzz/client/driver.py` has the protocol).

A scenario generates schedules: steps of the brokers and of the application. A contract says what the client must do in
every schedule of the scenario. A finding is a schedule in which the client violates a contract.
"""

from __future__ import annotations

import contextlib
import itertools
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape

from fuzz.campaign.store import check_writable
from fuzz.client.harness import DRIVER, DriverFailed, Harness, is_installed
from fuzz.client.hunt import Found, check_schedule, hunt
from fuzz.client.known import CLIENT_PROFILE, REFERENCE, known_of, profiles
from fuzz.client.schedule import Scenario, find_scenario, read_schedule, scenario_names, write_schedule
from fuzz.commands import Count, PerSecond, Record, Result, Seconds
from fuzz.platform.processes import termination_as_interrupt
from fuzz.platform.progress import showing
from fuzz.platform.version import code_version
from fuzz.report.finding import defect_record
from fuzz.report.records import KnownDefect
from model.machine import BadValue

#: Folder of the schedules of findings.
OUT = Path("build/client")
ALL = "all"


class Options(NamedTuple):
    """The options of the command."""

    scenario: str
    #: by default that of `pulsar-client`; with `driver`, the reference, which has no known deviations
    profile: str | None = None
    seed: int = 0  # the first seed of each scenario
    traces: int | None = None  # the number of schedules of each scenario
    #: the time limit of the schedules of all scenarios together, without shrinking; with `trace`, of the replays
    seconds: float | None = None
    trace: Path | None = None  # replay only the schedule in this file
    out: Path | None = None
    driver: Sequence[str] = ()  # the command of the user's own driver


class Replays(Record):
    """The number of replays that showed a finding, of all replays."""

    shown: Count
    of: Count


class ClientFinding(Record):
    """A contract that the client violated, and the shrunk schedule. `defect` is the known deviation, or null."""

    scenario: str
    signature: str
    contract: str
    guarantee: str
    seed: Count
    length: Count
    shrunk_length: Count
    settings: dict[str, Any]
    steps: list[str]
    message: str
    trace: str
    replays: Replays
    defect: KnownDefect | None


class ClientResult(Result):
    """The result of a run. `messages` is the number of callbacks of the client and of messages that it received."""

    scenario: str
    client: str
    profile: str
    seed: Count
    traces: Count  # the number of schedules, without those that shrink or replay a finding
    messages: Count
    seconds: Seconds
    messages_per_second: PerSecond
    findings: list[ClientFinding]
    version: str

    @property
    def found(self) -> bool:
        """Whether there is a finding that no known deviation of the profile explains."""
        return any(finding.defect is None for finding in self.findings)


@termination_as_interrupt()
def run(options: Options, console: Console) -> ClientResult:
    """Runs one scenario, or all. Writes the schedules of findings, unless `trace` names a schedule.

    Raises BadValue for unknown names, if the client is not installed, for a schedule or folder that cannot be used, and
    if the user's own driver cannot be started or cannot execute a request.
    """
    if not options.driver and not is_installed():
        raise BadValue("the package pulsar-client is missing: `make setup` installs it")
    profile = options.profile or (REFERENCE if options.driver else CLIENT_PROFILE)
    if profile not in profiles():
        raise BadValue(f"--profile {profile} is unknown; the client has {', '.join(profiles())}")
    names = scenario_names() if options.scenario == ALL else [options.scenario]
    scenarios = [find_scenario(name) for name in names]
    if options.trace is not None and len(scenarios) > 1:
        raise BadValue("--trace replays a schedule of one scenario: name it instead of all")
    schedule = None if options.trace is None else read_schedule(options.trace, scenarios[0])
    check_writable(options.out or OUT)
    known = known_of(profile)
    result = ClientResult(
        scenario=options.scenario,
        client="",
        profile=profile,
        seed=options.seed,
        traces=0,
        messages=0,
        seconds=0.0,
        messages_per_second=0.0,
        findings=[],
        version=code_version(),
    )
    with _harness(options) as harness, showing(console, "starting") as update:
        for scenario in scenarios:
            share = None if options.seconds is None else options.seconds / len(scenarios)
            end = None if options.traces is None else options.seed + options.traces
            seeds = itertools.count(options.seed) if end is None else iter(range(options.seed, end))
            until = None if share is None else time.monotonic() + share

            def progress(schedules: int, findings: int, scenario: Scenario = scenario) -> None:
                update(schedules, options.traces, f"{scenario.name}: {schedules:,} schedules  {findings} findings")

            if schedule is not None:
                done = check_schedule(harness, scenario, known, schedule, options.seconds)
            else:
                done = hunt(harness, scenario, known, seeds, until, progress)
            result.traces += done.runs
            result.messages += done.messages
            result.seconds += done.seconds
            result.findings += [_finding(each, options) for each in done.findings]
        result.client = harness.version
    result.messages_per_second = result.messages / result.seconds if result.seconds else 0.0
    return result


@contextlib.contextmanager
def _harness(options: Options) -> Iterator[Harness]:
    """Starts the processes, and ends them. Raises BadValue if the user's own driver fails."""
    try:
        with Harness(driver=options.driver or DRIVER) as harness:
            yield harness
    except DriverFailed as problem:
        if not options.driver:
            raise
        raise BadValue(f"{problem}; the driver is {shlex.join(options.driver)}") from None


def _finding(found: Found, options: Options) -> ClientFinding:
    """Returns a finding as a record. Writes its schedule, unless the schedule is from a file."""
    deviation, contract = found.deviation, found.violation.contract
    names = [name for name, *_ in found.shrunk.steps]
    path = options.trace
    if path is None:
        path = (options.out or OUT) / f"{found.scenario}-{contract.name}-{found.seed}.json"
        write_schedule(path, found.scenario, found.shrunk)
    return ClientFinding(
        scenario=found.scenario,
        signature=f"{contract.name}: {' '.join(names)}",
        contract=contract.name,
        guarantee=contract.guarantee,
        seed=found.seed,
        length=len(found.schedule.steps),
        shrunk_length=len(names),
        settings=found.shrunk.settings,
        steps=found.shrunk.text(),
        message=found.violation.message,
        trace=str(path),
        replays=Replays(shown=found.replays[0], of=found.replays[1]),
        defect=defect_record(deviation.defect) if deviation else None,
    )


def show(console: Console, result: ClientResult) -> None:
    """Prints the findings step by step, then the totals."""
    for number, each in enumerate(result.findings, 1):
        colour = "yellow" if each.defect else "bold red"
        heading = f"[{colour}]finding {number} of {len(result.findings)}[/]  [bold]{escape(each.contract)}[/]"
        lengths = f"{each.length} steps, shrunk to {each.shrunk_length}"
        shown = f"shown in {each.replays.shown} of {each.replays.of} replays"
        console.print(f"{heading}  {each.scenario}, seed {each.seed}, {lengths}, {shown}")
        settings = ", ".join(f"{name}={value}" for name, value in each.settings.items())
        lines = [("guarantee", each.guarantee), ("settings", settings)]
        if each.defect:
            row = each.defect
            known = f"{row.symptom} ({row.severity}; {row.versions})"
            lines = [("known", known), ("mechanism", row.mechanism), ("consequence", row.consequence), *lines]
        lines += [(str(index), step) for index, step in enumerate(each.steps, 1)]
        lines += [("observed", each.message), ("schedule", each.trace)]
        for name, text in lines:
            console.print(f"{name:>13}  {escape(text)}")
        console.print()
    speed = f"{result.messages:,} messages, {result.messages_per_second:,.0f} messages/s, {result.seconds:.1f} s"
    console.print(f"{result.scenario}, {result.client}, profile {result.profile}: {speed}")
    ran = f"{result.traces:,} schedules (seed {result.seed})"
    new = sum(each.defect is None for each in result.findings)
    if new:
        console.print(f"[bold red]{new} unknown {'finding' if new == 1 else 'findings'}[/] in {ran}")
    else:
        console.print(f"no unknown finding in {ran}")
