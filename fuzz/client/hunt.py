"""Runs the schedules of a scenario, and shrinks, replays and names what they find.

A finding is a contract that a schedule violates. Of the findings that one known deviation explains, and of the others
of one contract, the first is shrunk: steps are removed in chunks, then arguments and settings are simplified, as long
as the same contract is violated. Runs of a real client are not all alike, so a finding says how often it replays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from fuzz.client.harness import Harness
from fuzz.client.known import Known
from fuzz.client.run import PATIENCE, Observed
from fuzz.client.schedule import Scenario, Schedule, Violation, execute, generate, violations

#: Replays of a finding, if there is time; and the least number.
REPLAYS, _FEWEST = 20, 3
#: The patience while shrinking: most candidates that fail cost it twice.
_SHRINK_PATIENCE = 1.2


class Effort(NamedTuple):
    """What is done about a finding."""

    shrink_seconds: float = 40.0
    replay_seconds: float = 15.0
    of_known: bool = True  # findings that a known deviation explains are shrunk, too


_EFFORT = Effort()


class Found(NamedTuple):
    """A finding: its schedule as generated and shrunk, and in how many of how many replays it showed."""

    scenario: str
    violation: Violation
    seed: int
    schedule: Schedule
    shrunk: Schedule
    replays: tuple[int, int]
    known: Known | None


class Hunted(NamedTuple):
    """What a run of schedules did."""

    schedules: int
    messages: int  # sent and received
    seconds: float
    findings: list[Found]


def explanation(known: Iterable[Known], scenario: str, contract: str, schedule: Schedule) -> Known | None:
    """The known deviation that explains a violated contract, if any."""
    return next((row for row in known if row.explains(scenario, contract, schedule)), None)


def hunt(
    harness: Harness,
    scenario: Scenario,
    known: Iterable[Known],
    seeds: Iterator[int],
    until: float | None,
    progress: Callable[[int, int], None] = lambda schedules, findings: None,
    effort: Effort = _EFFORT,
) -> Hunted:
    """Runs the schedules of seeds until a monotonic time. Shrinking of what is found then may take longer."""
    known, started = tuple(known), time.monotonic()
    firsts: dict[tuple[str, str], tuple[int, Schedule, Violation, Known | None]] = {}
    schedules = messages = 0
    for seed in seeds:
        schedule = generate(scenario, seed)
        observed = execute(harness, scenario, schedule)
        schedules += 1
        messages += len(observed.results) + len(observed.received)
        for violation in violations(scenario, observed):
            name = violation.contract.name
            row = explanation(known, scenario.name, name, schedule)
            firsts.setdefault((name, row.defect.id if row else ""), (seed, schedule, violation, row))
        progress(schedules, len(firsts))
        if until is not None and time.monotonic() >= until:
            break
    seconds = time.monotonic() - started
    findings = []
    for seed, schedule, violation, row in firsts.values():
        is_shrunk, shrunk = row is None or effort.of_known, schedule
        if is_shrunk:
            shrunk = shrink(harness, scenario, schedule, violation.contract.name, effort.shrink_seconds)
        limit = effort.replay_seconds if is_shrunk else 0.0
        shown, of, violation = replays(harness, scenario, shrunk, violation, REPLAYS, limit)  # noqa: PLW2901
        row = row or explanation(known, scenario.name, violation.contract.name, shrunk)  # noqa: PLW2901
        findings.append(Found(scenario.name, violation, seed, schedule, shrunk, (shown, of), row))
    return Hunted(schedules, messages, seconds, findings)


def replayed(
    harness: Harness, scenario: Scenario, known: Iterable[Known], schedule: Schedule, seconds: float | None
) -> Hunted:
    """Replays one schedule. Findings are the contracts that its first run violates."""
    started = time.monotonic()
    observed = execute(harness, scenario, schedule)
    findings, runs = [], 1
    for each in violations(scenario, observed):
        row = explanation(known, scenario.name, each.contract.name, schedule)
        limit = _EFFORT.replay_seconds if seconds is None else seconds
        shown, of, violation = replays(harness, scenario, schedule, each, REPLAYS, limit)
        findings.append(Found(scenario.name, violation, 0, schedule, schedule, (shown, of), row))
        runs += of
    messages = len(observed.results) + len(observed.received)
    return Hunted(runs, messages, time.monotonic() - started, findings)


def violated(
    harness: Harness, scenario: Scenario, schedule: Schedule, contract: str, patience: float = PATIENCE
) -> tuple[Observed, Violation | None]:
    """Runs a schedule, and returns how it violates a contract, if it does."""
    observed = execute(harness, scenario, schedule, patience)
    found = [each for each in violations(scenario, observed) if each.contract.name == contract]
    return observed, found[0] if found else None


def replays(
    harness: Harness, scenario: Scenario, schedule: Schedule, violation: Violation, count: int, seconds: float
) -> tuple[int, int, Violation]:
    """Replays a schedule. Returns in how many of how many runs it violates the contract, and the last violation."""
    shown = done = 0
    until = time.monotonic() + seconds
    while done < count and (done < _FEWEST or time.monotonic() < until):
        _, again = violated(harness, scenario, schedule, violation.contract.name)
        done += 1
        if again is not None:
            shown, violation = shown + 1, again
    return shown, done, violation


# ---- shrinking ----------------------------------------------------------------------------------------


def shrink(harness: Harness, scenario: Scenario, schedule: Schedule, contract: str, seconds: float) -> Schedule:
    """A schedule that violates the same contract, from which no step can be left out.

    Impatient runs come first. If the result only shows that an effect is late, patient ones follow.
    """
    found = _shrunk(harness, scenario, schedule, contract, _SHRINK_PATIENCE, seconds)
    if violated(harness, scenario, found, contract)[1] is None:
        found = _shrunk(harness, scenario, schedule, contract, PATIENCE, seconds * PATIENCE / _SHRINK_PATIENCE)
    return found


def _shrunk(
    harness: Harness, scenario: Scenario, schedule: Schedule, contract: str, patience: float, seconds: float
) -> Schedule:
    until = time.monotonic() + seconds
    tried: list[Schedule] = [schedule]

    def shows(candidate: Schedule) -> bool:
        if candidate in tried or time.monotonic() > until:
            return False
        tried.append(candidate)
        return violated(harness, scenario, candidate, contract, patience)[1] is not None

    best, size = schedule, None
    while size != (size := len(best.steps)):
        for candidates in (_shorter, _simpler):
            best = _descend(best, lambda now, c=candidates: c(scenario, now), shows)  # type: ignore[misc]
    return best


def _descend(
    best: Schedule, candidates: Callable[[Schedule], Iterator[Schedule]], shows: Callable[[Schedule], bool]
) -> Schedule:
    """The schedule after the first candidate that shows the finding has replaced it, as often as there is one."""
    while (found := next((each for each in candidates(best) if shows(each)), None)) is not None:
        best = found
    return best


def _shorter(_: Scenario, schedule: Schedule) -> Iterator[Schedule]:
    """The schedule without a chunk of its steps, the largest chunks first."""
    size = len(schedule.steps) // 2
    while size:
        for start in range(0, len(schedule.steps) - size + 1, size):
            yield schedule._replace(steps=schedule.steps[:start] + schedule.steps[start + size :])
        size //= 2


def _simpler(scenario: Scenario, schedule: Schedule) -> Iterator[Schedule]:
    """The schedule with one argument or setting closer to the front of its domain."""
    for name, values in scenario.settings.items():
        for value in values[: values.index(schedule.settings[name])]:
            yield schedule._replace(settings={**schedule.settings, name: value})
    for at, (name, *arguments) in enumerate(schedule.steps):
        for i, domain in enumerate(scenario.steps[name].domains):
            for value in domain[: domain.index(arguments[i])]:
                step = (name, *arguments[:i], value, *arguments[i + 1 :])
                yield schedule._replace(steps=(*schedule.steps[:at], step, *schedule.steps[at + 1 :]))
