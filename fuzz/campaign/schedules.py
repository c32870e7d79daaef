"""Tasks about a real client: each seed stands for a schedule of a scenario (`fuzz/client/`).

Brokers and client are processes of their own, with a time limit for each request. The first finding of each cause in
a block is replayed. If a known deviation explains the finding, its signature names the deviation. Otherwise the finding
is shrunk, and its signature has the names of the shrunk schedule's steps. Two runs of a schedule on a real client can
differ, so a finding says how many of its replays showed it.
"""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise

from fuzz.campaign.worker import Found, Spec, Task, TaskResult
from fuzz.client import hunt
from fuzz.client.harness import BrokerFailed, Harness, is_installed
from fuzz.client.hunt import Effort, Hunted
from fuzz.client.known import CLIENT_PROFILE, known_of, profiles
from fuzz.client.schedule import Scenario, find_scenario, generate, schedule_text
from fuzz.run.coverage import Row, pair_key
from model.machine import BadValue

#: The subject of a spec is this prefix and the name of a scenario.
PREFIX = "client."
#: Schedules in a block. One takes about a second.
BLOCK = 8
_EFFORT = Effort(shrink_seconds=20.0, replay_seconds=10.0, of_known=False)

__all__ = ["BLOCK", "CLIENT_PROFILE", "PREFIX", "run_task", "scenario_of"]


def scenario_of(spec: Spec) -> Scenario:
    """Returns the scenario of a spec.

    Raises BadValue for an unknown scenario or profile, or if the client is not installed.
    """
    if not is_installed():
        raise BadValue("the package pulsar-client is missing: pip install 'brokerproof[client]'")
    if spec.profile not in profiles():
        raise BadValue(f"{spec.subject} has no profile {spec.profile}; it has {', '.join(profiles())}")
    return find_scenario(spec.subject.removeprefix(PREFIX))


def run_task(task: Task) -> TaskResult:
    """Runs the schedules of a task, block by block. Cost: a second for each, up to a minute for each new finding.

    Raises BadValue as `scenario_of`, and BrokerFailed if the brokers fail twice in a block.
    """
    scenario, started = scenario_of(task.spec), time.perf_counter()
    found, taken, steps, raw = list[Found](), Counter[str](), 0, 0
    for first in range(task.first_seed, task.first_seed + task.traces, BLOCK):
        seeds = range(first, min(first + BLOCK, task.first_seed + task.traces))
        findings = _run_block(task.spec, scenario, seeds).findings
        raw += len(findings)
        found += [_found_of(task.spec, each) for each in findings]
        for schedule in [generate(scenario, seed) for seed in seeds]:
            names = ["", *[name for name, *_ in schedule.steps]]
            taken.update([pair_key(before, name) for before, name in pairwise(names)])
            steps += len(schedule.steps)
    rows = tuple([Row("pair", pair, taken[pair], -1) for pair in sorted(taken)])
    return TaskResult(task, task.traces, 0, steps, time.perf_counter() - started, raw, tuple(found), rows)


def _run_block(spec: Spec, scenario: Scenario, seeds: range) -> Hunted:
    """Runs a block. If the brokers fail, which may be due to the machine, runs it once more with new processes."""
    for last in (False, True):
        try:
            with Harness() as harness:
                return hunt.hunt(harness, scenario, known_of(spec.profile), iter(seeds), None, effort=_EFFORT)
        except BrokerFailed:
            if last:
                raise
    raise AssertionError("the second failure is raised")


def _found_of(spec: Spec, found: hunt.Found) -> Found:
    """Returns a finding as a table row."""
    contract, deviation = found.violation.contract.name, found.known
    kinds = " ".join([name for name, *_ in found.shrunk.steps])
    shown, total = found.replays
    return Found(
        spec.subject,
        spec.profile,
        f"{contract}: {deviation.defect.id}" if deviation else f"{contract} after {kinds}",
        f"contract:{contract}" + (f", {deviation.defect.id}" if deviation else ""),
        found.seed,
        len(found.schedule.steps),
        len(found.shrunk.steps),
        found.violation.message,
        shown,
        total,
        schedule_text(found.scenario, found.shrunk, contract, deviation.defect.id if deviation else None),
    )
