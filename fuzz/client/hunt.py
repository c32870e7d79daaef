"""Runs the schedules of a scenario, and shrinks and replays findings.

A finding is a pair: a contract that a schedule violates, and the known deviation that explains the violation, or none.
The first schedule of each pair is shrunk: steps are removed in chunks, then arguments and settings are simplified, as
long as a run shows the same pair. Two runs of a schedule on a real client can differ, so a finding has the number of
its replays, and the number of those that showed it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from fuzz.client.harness import Harness
from fuzz.client.known import Known
from fuzz.client.run import PATIENCE, Observed
from fuzz.client.schedule import Scenario, Schedule, Violation, execute, generate, violations

#: The largest and the smallest number of replays of a finding. Between the two, time decides.
REPLAYS, _FEWEST = 20, 3
#: Seconds to wait for an effect while shrinking. A run of a candidate may wait for several effects that do not come.
_SHRINK_PATIENCE = 1.2


class Effort(NamedTuple):
    """For how long a finding is shrunk and replayed, and which findings are shrunk."""

    shrink_seconds: float = 40.0
    replay_seconds: float = 15.0  # findings that are not shrunk are replayed `_FEWEST` times
    shrinks_known: bool = True  # whether findings that a known deviation explains are shrunk, too


_EFFORT = Effort()


class Found(NamedTuple):
    """A finding: a schedule that violates a contract."""

    scenario: str
    violation: Violation
    seed: int  # 0 if the schedule is from a file
    schedule: Schedule  # as generated
    shrunk: Schedule
    replays: tuple[int, int]  # the number of replays that showed the finding, and the number of replays
    known: Known | None  # the known deviation that explains the violation


class Hunted(NamedTuple):
    """The result of running schedules."""

    schedules: int  # number of schedules that ran, or of the runs of one schedule
    messages: int  # number of callbacks and of received messages
    seconds: float
    findings: list[Found]


class Sought(NamedTuple):
    """What shrinking and replays look for: a violation of a contract with the same explanation."""

    scenario: Scenario
    contract: str
    known: tuple[Known, ...]  # all known deviations
    deviation: Known | None  # the known deviation that must explain the violation; None: there must be none

    def violation(self, harness: Harness, schedule: Schedule, patience: float = PATIENCE) -> Violation | None:
        """Runs a schedule. Returns the violation, or None if the run does not show it."""
        observed = execute(harness, self.scenario, schedule, patience)
        found = [each for each in violations(self.scenario, observed) if each.contract.name == self.contract]
        if not found:
            return None
        deviation = explanation(self.known, self.scenario.name, self.contract, observed)
        return found[0] if _defect_of(deviation) == _defect_of(self.deviation) else None


def _defect_of(deviation: Known | None) -> str:
    """Returns the id of a known deviation's defect; an empty string for None."""
    return deviation.defect.id if deviation else ""


def explanation(known: Iterable[Known], scenario: str, contract: str, observed: Observed) -> Known | None:
    """Returns the first known deviation that explains how a run violates a contract; None if none does."""
    return next((deviation for deviation in known if deviation.explains(scenario, contract, observed)), None)


def hunt(
    harness: Harness,
    scenario: Scenario,
    known: Iterable[Known],
    seeds: Iterator[int],
    until: float | None,
    progress: Callable[[int, int], None] = lambda schedules, findings: None,
    effort: Effort = _EFFORT,
) -> Hunted:
    """Runs the schedules of seeds until `until` (of `time.monotonic()`), then shrinks and replays the findings.

    `progress` is called after each schedule, with the numbers of schedules and findings. Raises as `execute`.
    """
    known, started = tuple(known), time.monotonic()
    #: contract and defect -> the first finding
    firsts: dict[tuple[str, str], tuple[int, Schedule, Violation, Known | None]] = {}
    schedules = messages = 0
    for seed in seeds:
        schedule = generate(scenario, seed)
        observed = execute(harness, scenario, schedule)
        schedules += 1
        messages += len(observed.results) + len(observed.received)
        for violation in violations(scenario, observed):
            name = violation.contract.name
            deviation = explanation(known, scenario.name, name, observed)
            firsts.setdefault((name, _defect_of(deviation)), (seed, schedule, violation, deviation))
        progress(schedules, len(firsts))
        if until is not None and time.monotonic() >= until:
            break
    seconds = time.monotonic() - started
    findings = []
    for seed, schedule, violation, deviation in firsts.values():
        sought = Sought(scenario, violation.contract.name, known, deviation)
        is_shrunk = deviation is None or effort.shrinks_known
        shrunk = shrink(harness, sought, schedule, effort.shrink_seconds) if is_shrunk else schedule
        shown, total, last = replays(harness, sought, shrunk, REPLAYS, effort.replay_seconds if is_shrunk else 0.0)
        findings.append(Found(scenario.name, last or violation, seed, schedule, shrunk, (shown, total), deviation))
    return Hunted(schedules, messages, seconds, findings)


def replayed(
    harness: Harness, scenario: Scenario, known: Iterable[Known], schedule: Schedule, seconds: float | None
) -> Hunted:
    """Runs one schedule until a run violates a contract, at most `_FEWEST` times. Replays each violation of that run.

    The replays of a violation take `seconds`; None: the seconds of the default effort. Raises as `execute`.
    """
    started, known = time.monotonic(), tuple(known)
    observed, runs = execute(harness, scenario, schedule), 1
    while not violations(scenario, observed) and runs < _FEWEST:
        observed, runs = execute(harness, scenario, schedule), runs + 1
    findings = []
    limit = _EFFORT.replay_seconds if seconds is None else seconds
    for each in violations(scenario, observed):
        deviation = explanation(known, scenario.name, each.contract.name, observed)
        sought = Sought(scenario, each.contract.name, known, deviation)
        shown, total, last = replays(harness, sought, schedule, REPLAYS, limit)
        findings.append(Found(scenario.name, last or each, 0, schedule, schedule, (shown, total), deviation))
        runs += total
    messages = len(observed.results) + len(observed.received)
    return Hunted(runs, messages, time.monotonic() - started, findings)


def replays(
    harness: Harness, sought: Sought, schedule: Schedule, count: int, seconds: float
) -> tuple[int, int, Violation | None]:
    """Replays a schedule for `seconds`, at least `_FEWEST` times and at most `count` times.

    Returns the number of replays that show the violation, the number of replays, and the last violation.
    """
    shown, done, last = 0, 0, None
    until = time.monotonic() + seconds
    while done < count and (done < _FEWEST or time.monotonic() < until):
        again = sought.violation(harness, schedule)
        done += 1
        if again is not None:
            shown, last = shown + 1, again
    return shown, done, last


# ---- shrinking ----------------------------------------------------------------------------------------


def shrink(harness: Harness, sought: Sought, schedule: Schedule, seconds: float) -> Schedule:
    """Returns a smaller schedule that shows the same violation. If time suffices, none of its steps can be removed.

    At first, runs wait `_SHRINK_PATIENCE` for an effect. An effect that is only late can then look like a violation. So
    if the result does not show the violation with `PATIENCE`, shrinking starts again with `PATIENCE`.
    """
    found = _shrunk(harness, sought, schedule, _SHRINK_PATIENCE, seconds)
    if sought.violation(harness, found) is None:
        found = _shrunk(harness, sought, schedule, PATIENCE, seconds * PATIENCE / _SHRINK_PATIENCE)
    return found


def _shrunk(harness: Harness, sought: Sought, schedule: Schedule, patience: float, seconds: float) -> Schedule:
    """Returns the smallest schedule that shrinking finds within the seconds. Runs wait `patience` for an effect."""
    until = time.monotonic() + seconds
    tried: list[Schedule] = [schedule]

    def shows(candidate: Schedule) -> bool:
        """Returns whether a run of a new candidate shows the violation; False if the time is over."""
        if candidate in tried or time.monotonic() > until:
            return False
        tried.append(candidate)
        return sought.violation(harness, candidate, patience) is not None

    best, is_shorter = schedule, True
    while is_shorter:
        size = len(best.steps)
        for candidates in (_shorter, _simpler):
            best = _descend(best, lambda now, c=candidates: c(sought.scenario, now), shows)  # type: ignore[misc]
        is_shorter = len(best.steps) < size
    return best


def _descend(
    best: Schedule, candidates: Callable[[Schedule], Iterator[Schedule]], shows: Callable[[Schedule], bool]
) -> Schedule:
    """Replaces the schedule by its first candidate that shows the violation, as long as there is one. Returns it."""
    while (found := next((each for each in candidates(best) if shows(each)), None)) is not None:
        best = found
    return best


def _shorter(_: Scenario, schedule: Schedule) -> Iterator[Schedule]:
    """Yields the schedule without a chunk of its steps, the largest chunks first."""
    size = len(schedule.steps) // 2
    while size:
        for start in range(0, len(schedule.steps) - size + 1, size):
            yield schedule._replace(steps=schedule.steps[:start] + schedule.steps[start + size :])
        size //= 2


def _simpler(scenario: Scenario, schedule: Schedule) -> Iterator[Schedule]:
    """Yields the schedule with one argument or setting closer to the front of its domain."""
    for name, values in scenario.settings.items():
        for value in values[: values.index(schedule.settings[name])]:
            yield schedule._replace(settings={**schedule.settings, name: value})
    for at, (name, *arguments) in enumerate(schedule.steps):
        for i, domain in enumerate(scenario.steps[name].domains):
            for value in domain[: domain.index(arguments[i])]:
                step = (name, *arguments[:i], value, *arguments[i + 1 :])
                yield schedule._replace(steps=(*schedule.steps[:at], step, *schedule.steps[at + 1 :]))
