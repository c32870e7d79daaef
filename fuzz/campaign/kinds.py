"""The two kinds of specs (`fuzz/campaign/worker.py`): `TRACES` and `SCHEDULES`.

If the subject of a spec is the name of a component, a seed stands for a trace. If the subject is `client.SCENARIO`, a
seed stands for a schedule of a real client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fuzz.campaign import schedules, worker
from fuzz.campaign.worker import Spec, Task, TaskResult

#: Assumed speed of lockstep in steps per second, before the first measurement.
_ASSUMED_SPEED = 10_000.0


class Kind(NamedTuple):
    """The functions and defaults by which a campaign runs specs of one kind."""

    check: Callable[[Spec], object]  # raises BadValue for an unknown name, or if the client is not installed here
    run: Callable[[Task], TaskResult]  # runs the seeds of a task
    block: int  # seeds in a block (`fuzz/campaign/worker.py`)
    warm_up: int  # seeds that every slot of Spark runs before the first round, to measure the speed
    speed: Callable[[Spec], float]  # seeds per second of one slot, assumed before the first measurement
    default_profile: str


def _assumed_speed(spec: Spec) -> float:
    return _ASSUMED_SPEED / (spec.steps or worker.target_of(spec).subject.steps)


TRACES = Kind(
    check=worker.target_of,
    run=worker.run_task,
    block=worker.BLOCK,
    warm_up=worker.BLOCK,
    speed=_assumed_speed,
    default_profile="reference",
)
SCHEDULES = Kind(
    check=schedules.scenario_of,
    run=schedules.run_task,
    block=schedules.BLOCK,
    warm_up=1,
    speed=lambda _: 1.0,
    default_profile=schedules.CLIENT_PROFILE,
)


def kind_of(subject: str) -> Kind:
    """Returns the kind of the specs with this subject."""
    return SCHEDULES if is_scenario(subject) else TRACES


def is_scenario(subject: str) -> bool:
    """Returns whether a spec's subject is a scenario of a real client."""
    return subject.startswith(schedules.PREFIX)


def run_task(task: Task) -> TaskResult:
    """Runs the seeds of a task. Raises BadValue if `check` of the task's kind does."""
    return kind_of(task.spec.subject).run(task)
