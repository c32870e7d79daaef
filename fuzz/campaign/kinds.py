"""The two kinds of specs (`fuzz/campaign/worker.py`): a seed is a trace of a component, or a real client's schedule.

The subject of a spec is the name of a component, or `client.SCENARIO`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fuzz.campaign import schedules, worker
from fuzz.campaign.worker import Spec, Task, TaskResult

#: Steps per second of lockstep assumed before the first measurement.
_ASSUMED_STEPS = 10_000.0


class Kind(NamedTuple):
    """The functions and defaults by which a campaign runs specs of one kind."""

    check: Callable[[Spec], object]  # raises BadValue for an unknown name, or if the client is not installed here
    run: Callable[[Task], TaskResult]  # runs the seeds of a task
    block: int  # seeds in a block; a task has whole blocks, except for the last block of a campaign
    warm_up: int  # seeds that every slot runs before the first round, to measure its speed; their results are dropped
    speed: Callable[[Spec], float]  # seeds per second of one slot, assumed before the first measurement
    default_profile: str


def _assumed_speed(spec: Spec) -> float:
    return _ASSUMED_STEPS / (spec.steps or worker.target_of(spec).subject.steps)


TRACES = Kind(worker.target_of, worker.run_task, worker.BLOCK, worker.BLOCK, _assumed_speed, "reference")
SCHEDULES = Kind(schedules.scenario_of, schedules.run_task, schedules.BLOCK, 1, lambda _: 1.0, schedules.CLIENT_PROFILE)


def kind_of(subject: str) -> Kind:
    """Returns the kind of the specs with this subject."""
    return SCHEDULES if is_scenario(subject) else TRACES


def is_scenario(subject: str) -> bool:
    """Returns whether a spec's subject is a scenario of a real client."""
    return subject.startswith(schedules.PREFIX)


def run_task(task: Task) -> TaskResult:
    """Runs the seeds of a task. Raises BadValue as `check` of its kind."""
    return kind_of(task.spec.subject).run(task)
