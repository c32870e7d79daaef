"""Tasks of a real client: each seed stands for a schedule of a scenario (`fuzz/client/`).

Brokers and client are processes of their own, with a time limit for each request. A violation of a contract is a
finding. A known deviation (`fuzz/client/known.py`) may explain the violation. For each contract, a block has at most
one finding for each known deviation, and at most one that no known deviation explains. Only the latter is shrunk. The
signature of a finding names the contract and the defect of the known deviation or, without one, the steps.

Every finding is replayed. Two runs of a schedule on a real client can differ, so a row has the number of replays that
showed the finding.
"""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise

from fuzz.campaign.worker import FindingRow, Spec, Task, TaskResult
from fuzz.client import hunt
from fuzz.client.harness import Harness, HarnessFailed, is_installed
from fuzz.client.hunt import Effort, Hunted
from fuzz.client.known import CLIENT_PROFILE, known_of, profiles
from fuzz.client.schedule import Scenario, find_scenario, generate, schedule_text
from fuzz.run.coverage import Row, pair_key
from model.machine import BadValue

#: The subject of a spec is this prefix and the name of a scenario.
PREFIX = "client."
#: Schedules in a block. One takes about a second.
BLOCK = 8
_EFFORT = Effort(shrink_seconds=20.0, replay_seconds=10.0, shrinks_known=False)

__all__ = ["BLOCK", "CLIENT_PROFILE", "PREFIX", "run_task", "scenario_of"]


def scenario_of(spec: Spec) -> Scenario:
    """Returns the scenario of a spec.

    Raises BadValue for an unknown scenario or profile, or if the client is not installed.
    """
    if not is_installed():
        raise BadValue("the package pulsar-client is missing: `make setup` installs it")
    if spec.profile not in profiles():
        raise BadValue(f"{spec.subject} has no profile {spec.profile}; it has {', '.join(profiles())}")
    return find_scenario(spec.subject.removeprefix(PREFIX))


def run_task(task: Task) -> TaskResult:
    """Runs the schedules of a task, block by block.

    Raises BadValue if `scenario_of` does, and HarnessFailed if the brokers fail twice in a block. Cost: a second for
    each schedule, up to a minute for each finding that no known deviation explains.
    """
    scenario, started = scenario_of(task.spec), time.perf_counter()
    found, pairs, steps = list[FindingRow](), Counter[str](), 0
    for first in range(task.first_seed, task.first_seed + task.traces, BLOCK):
        seeds = range(first, min(first + BLOCK, task.first_seed + task.traces))
        found += [_finding_row(task.spec, each) for each in _run_block(task.spec, scenario, seeds).findings]
        for schedule in [generate(scenario, seed) for seed in seeds]:
            names = ["", *[name for name, *_ in schedule.steps]]  # "" precedes the first step (`pair_key`)
            pairs.update([pair_key(before, name) for before, name in pairwise(names)])
            steps += len(schedule.steps)
    return TaskResult(
        task,
        traces=task.traces,
        skipped_traces=0,
        steps=steps,
        seconds=time.perf_counter() - started,
        raw_findings=len(found),
        findings=tuple(found),
        coverage=tuple([Row("pair", pair, pairs[pair], -1) for pair in sorted(pairs)]),  # -1: pairs have no first seed
    )


def _run_block(spec: Spec, scenario: Scenario, seeds: range) -> Hunted:
    """Runs the schedules of a block.

    A failure of the brokers may be due to the machine. So the block is then run once more, with new processes.
    """
    for is_second_attempt in (False, True):
        try:
            with Harness() as harness:
                return hunt.hunt(harness, scenario, known_of(spec.profile), iter(seeds), None, effort=_EFFORT)
        except HarnessFailed:
            if is_second_attempt:
                raise
    raise AssertionError("the second failure is raised")


def _finding_row(spec: Spec, found: hunt.Found) -> FindingRow:
    """Returns a finding as a table row."""
    contract = found.violation.contract.name
    defect = found.deviation.defect.id if found.deviation else None
    steps = " ".join([name for name, *_ in found.shrunk.steps])
    shown, replays = found.replays
    return FindingRow(
        subject=spec.subject,
        profile=spec.profile,
        signature=f"{contract}: {defect}" if defect else f"{contract} after {steps}",
        cause=f"contract:{contract}" + (f", {defect}" if defect else ""),
        seed=found.seed,
        length=len(found.schedule.steps),
        shrunk_length=len(found.shrunk.steps),
        message=found.violation.message,
        shown=shown,
        replays=replays,
        trace=schedule_text(found.scenario, found.shrunk, contract, defect),
    )
