"""Runs the schedules of a scenario, and shrinks and replays findings.

A schedule that violates a contract is a finding. If a known deviation (`known.py`) explains the violation, the defect
of this deviation is the *explanation*. Of the schedules that violate one contract with the same explanation, or without
one, only the first is a finding. A run *shows* a finding if it violates the same contract with the same explanation.

A finding is shrunk: steps are removed in chunks, then arguments and settings are simplified. A smaller schedule is kept
if its run shows the finding. Two runs of a schedule on a real client can differ. So every finding is replayed, and has
the number of its replays and the number of replays that showed the finding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from fuzz.client.harness import Harness
from fuzz.client.known import Known
from fuzz.client.run import PATIENCE, Observed
from fuzz.client.schedule import Scenario, Schedule, Violation, execute, generate, violations

#: The minimum and the maximum number of replays of a finding. After the minimum, replaying also ends when the time for
#: the replays is over.
_MIN_REPLAYS, _MAX_REPLAYS = 3, 20
#: The maximum number of runs of a schedule until a run violates a contract, or until times can be judged.
_MAX_RUNS = 3
#: Seconds to wait for an effect while shrinking. This is less than `PATIENCE`, because a run of a smaller schedule may
#: wait for several effects that do not come.
_SHRINK_PATIENCE = 1.2


class Effort(NamedTuple):
    """For how long a finding is shrunk and replayed, and which findings are shrunk."""

    shrink_seconds: float = 40.0  # of the first attempt; `shrink` makes a second, longer attempt if the first one fails
    replay_seconds: float = 15.0  # `hunt` replays findings that it does not shrink only `_MIN_REPLAYS` times
    shrinks_known: bool = True  # whether findings that a known deviation explains are shrunk, too


_EFFORT = Effort()


class Found(NamedTuple):
    """A finding: a schedule that violates a contract."""

    scenario: str
    violation: Violation  # of the last replay that showed the finding; if none did, of the run that found it
    seed: int  # 0 if the schedule is from a file
    schedule: Schedule  # before shrinking
    shrunk: Schedule
    replays: tuple[int, int]  # the number of replays that showed the finding, and the number of replays
    deviation: Known | None  # the known deviation that explains the violation


class Hunted(NamedTuple):
    """The result of `hunt` or of `check_schedule`."""

    runs: int  # without the runs that shrink or replay a finding
    messages: int  # number of callbacks and of received messages in these runs
    seconds: float  # the time of these runs
    findings: list[Found]


class Sought(NamedTuple):
    """What a run must show when a finding is shrunk or replayed: a violation of the contract, and its explanation."""

    scenario: Scenario
    contract: str
    known: tuple[Known, ...]  # the known deviations of the profile
    #: a known deviation of this defect must explain the violation; None: no known deviation may explain it
    deviation: Known | None

    def reproduce(self, harness: Harness, schedule: Schedule, patience: float = PATIENCE) -> Violation | None:
        """Runs a schedule. Returns the violation of the contract, or None if the run does not show the finding.

        A run without the violation is repeated if the machine was too busy for times to be judged, `_MAX_RUNS` runs in
        all.
        """
        for _ in range(_MAX_RUNS):
            observed = execute(harness, self.scenario, schedule, patience)
            found = [each for each in violations(self.scenario, observed) if each.contract.name == self.contract]
            if found or self.scenario.judges_times(observed):
                break
        if not found:
            return None
        deviation = explaining_deviation(self.known, self.scenario.name, self.contract, observed)
        return found[0] if _defect_id(deviation) == _defect_id(self.deviation) else None


def _defect_id(deviation: Known | None) -> str:
    """Returns the id of a known deviation's defect; an empty string for None."""
    return deviation.defect.id if deviation else ""


def explaining_deviation(known: Iterable[Known], scenario: str, contract: str, observed: Observed) -> Known | None:
    """Returns the first known deviation that explains why a run violates a contract; None if none does."""
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
    """Runs the schedules of the seeds, then shrinks and replays the findings.

    After the time `until` (of `time.monotonic()`), no further seed is run; the first seed is always run. If `until` is
    None, all seeds are run. `effort` says which findings are shrunk. `progress` is called after each schedule, with the
    numbers of schedules and findings. Raises as `execute`.
    """
    known, started = tuple(known), time.monotonic()
    #: contract and id of the defect -> seed, schedule and violation of the finding, and the explaining deviation
    firsts: dict[tuple[str, str], tuple[int, Schedule, Violation, Known | None]] = {}
    runs = messages = 0
    for seed in seeds:
        schedule = generate(scenario, seed)
        observed = execute(harness, scenario, schedule)
        runs += 1
        messages += len(observed.results) + len(observed.received)
        for violation in violations(scenario, observed):
            name = violation.contract.name
            deviation = explaining_deviation(known, scenario.name, name, observed)
            firsts.setdefault((name, _defect_id(deviation)), (seed, schedule, violation, deviation))
        progress(runs, len(firsts))
        if until is not None and time.monotonic() >= until:
            break
    seconds = time.monotonic() - started
    findings = []
    for seed, schedule, violation, deviation in firsts.values():
        sought = Sought(scenario, violation.contract.name, known, deviation)
        is_shrunk = deviation is None or effort.shrinks_known
        shrunk = shrink(harness, sought, schedule, effort.shrink_seconds) if is_shrunk else schedule
        shown, total, last = replay(harness, sought, shrunk, effort.replay_seconds if is_shrunk else 0.0)
        findings.append(Found(scenario.name, last or violation, seed, schedule, shrunk, (shown, total), deviation))
    return Hunted(runs, messages, seconds, findings)


def check_schedule(
    harness: Harness, scenario: Scenario, known: Iterable[Known], schedule: Schedule, seconds: float | None
) -> Hunted:
    """Runs a schedule until a run violates a contract, at most `_MAX_RUNS` times.

    Each violation of the last run is a finding. `seconds` is the time for the replays of each finding; None stands for
    the time in the default effort. Raises as `execute`.
    """
    started, known = time.monotonic(), tuple(known)
    runs = [execute(harness, scenario, schedule)]
    while not violations(scenario, runs[-1]) and len(runs) < _MAX_RUNS:
        runs.append(execute(harness, scenario, schedule))
    elapsed, observed, findings = time.monotonic() - started, runs[-1], []
    limit = _EFFORT.replay_seconds if seconds is None else seconds
    for each in violations(scenario, observed):
        deviation = explaining_deviation(known, scenario.name, each.contract.name, observed)
        sought = Sought(scenario, each.contract.name, known, deviation)
        shown, total, last = replay(harness, sought, schedule, limit)
        findings.append(Found(scenario.name, last or each, 0, schedule, schedule, (shown, total), deviation))
    messages = sum(len(each.results) + len(each.received) for each in runs)
    return Hunted(len(runs), messages, elapsed, findings)


def replay(harness: Harness, sought: Sought, schedule: Schedule, seconds: float) -> tuple[int, int, Violation | None]:
    """Replays a schedule for `seconds`, at least `_MIN_REPLAYS` and at most `_MAX_REPLAYS` times.

    Returns the number of replays that showed the finding, the number of replays, and the violation of the last replay
    that showed the finding (None if no replay did).
    """
    shown, done, last = 0, 0, None
    until = time.monotonic() + seconds
    while done < _MAX_REPLAYS and (done < _MIN_REPLAYS or time.monotonic() < until):
        again = sought.reproduce(harness, schedule)
        done += 1
        if again is not None:
            shown, last = shown + 1, again
    return shown, done, last


# ---- shrinking ----------------------------------------------------------------------------------------


def shrink(harness: Harness, sought: Sought, schedule: Schedule, seconds: float) -> Schedule:
    """Returns a smaller or simpler schedule that shows the finding; the given schedule if shrinking finds none.

    The first attempt takes up to `seconds`, and its runs wait `_SHRINK_PATIENCE` for an effect. An effect that is only
    late can then look like a violation. So the result is run with `PATIENCE`. If this run does not show the finding, a
    second attempt shrinks the given schedule. Its runs wait `PATIENCE`, and its time is longer in proportion.
    """
    found = _shrunk(harness, sought, schedule, _SHRINK_PATIENCE, seconds)
    if sought.reproduce(harness, found) is None:
        found = _shrunk(harness, sought, schedule, PATIENCE, seconds * PATIENCE / _SHRINK_PATIENCE)
    return found


def _shrunk(harness: Harness, sought: Sought, schedule: Schedule, patience: float, seconds: float) -> Schedule:
    """Returns the smallest schedule that shrinking finds within the seconds. Runs wait `patience` for an effect.

    A round removes steps, then simplifies arguments and settings. Shrinking ends with the first round that changes
    nothing.
    """
    until = time.monotonic() + seconds
    tried: list[Schedule] = [schedule]

    def shows(candidate: Schedule) -> bool:
        """Runs a candidate. Returns whether the run shows the finding.

        Returns False, without a run, for a candidate that was tried before, and if the time is over.
        """
        if candidate in tried or time.monotonic() > until:
            return False
        tried.append(candidate)
        return sought.reproduce(harness, candidate, patience) is not None

    best, before = schedule, None
    while best != before:
        before = best
        for candidates in (_shorter, _simpler):
            best = _descend(best, lambda now, c=candidates: c(sought.scenario, now), shows)  # type: ignore[misc]
    return best


def _descend(
    schedule: Schedule, candidates: Callable[[Schedule], Iterator[Schedule]], shows: Callable[[Schedule], bool]
) -> Schedule:
    """Replaces a schedule by the first of its candidates that shows the finding, until no candidate does.

    Returns the last schedule.
    """
    while (found := next((each for each in candidates(schedule) if shows(each)), None)) is not None:
        schedule = found
    return schedule


def _shorter(_: Scenario, schedule: Schedule) -> Iterator[Schedule]:
    """Yields the schedule without a chunk of its steps, the largest chunks (half of the steps) first."""
    size = max(1, len(schedule.steps) // 2)
    while size:
        for start in range(0, len(schedule.steps) - size + 1, size):
            yield schedule._replace(steps=schedule.steps[:start] + schedule.steps[start + size :])
        size //= 2


def _simpler(scenario: Scenario, schedule: Schedule) -> Iterator[Schedule]:
    """Yields schedules that have one setting or argument closer to the front of its domain, the settings first."""
    for name, values in scenario.settings.items():
        for value in values[: values.index(schedule.settings[name])]:
            yield schedule._replace(settings={**schedule.settings, name: value})
    for at, (name, *arguments) in enumerate(schedule.steps):
        for i, domain in enumerate(scenario.steps[name].domains):
            for value in domain[: domain.index(arguments[i])]:
                step = (name, *arguments[:i], value, *arguments[i + 1 :])
                yield schedule._replace(steps=(*schedule.steps[:at], step, *schedule.steps[at + 1 :]))
