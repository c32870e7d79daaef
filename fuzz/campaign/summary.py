"""What a run reached and missed, and the differences from an older campaign."""

from __future__ import annotations

from typing import Any, NamedTuple

from fuzz.campaign.folder import Plan, State
from fuzz.campaign.kinds import is_scenario
from fuzz.campaign.worker import Spec, target_of
from fuzz.run.coverage import RowKind, Total
from fuzz.run.generate import recipe
from model.machine import BadValue

#: Number of seeds whose configs decide which coverage goals are expected.
_SEEDS = 256


def coverage_of(spec: Spec, seed: int, total: Total) -> dict[str, Any]:
    """The coverage of a component as one object."""
    return total.summary(target_of(spec).subject, configs_of(spec, seed))


def configs_of(spec: Spec, seed: int) -> list[Any]:
    """The configs of a run's first seeds. Only goals that apply to one of them are expected."""
    target = target_of(spec)
    return list({recipe(target.subject, target.config, seed + i)[0].config for i in range(_SEEDS)})


def failures(spec: Spec, seed: int, total: Total, steps: int) -> list[str]:
    """Coverage goals not reached and actions that never succeeded within `min_steps_for_coverage` steps.

    Empty for a run against another profile or with a seeded bug: such a run searches for a difference.
    """
    subject = target_of(spec).subject
    if spec.mutant is not None or spec.against is not None or steps < subject.min_steps_for_coverage:
        return []
    never = coverage_of(spec, seed, total)["never"]
    return [f"{spec.subject}: {name} not reached in {steps:,} steps" for name in never]


def campaign_failures(plan: Plan, state: State) -> list[str]:
    """The failures of all components of a campaign; a scenario has no coverage goals."""
    found = []
    for spec in plan.specs:
        if is_scenario(spec.subject):
            continue
        steps = sum(row["steps"] for row in state.runs if row["subject"] == spec.subject)
        found += failures(spec, plan.seed, state.coverage.get(spec.subject, Total()), steps)
    return found


# ---- two campaigns ------------------------------------------------------------------------------------


class Compared(NamedTuple):
    """The differences between two campaigns: signatures of findings, and coverage that only the newer one has.

    `known` has the signatures of findings of both.
    """

    older: str
    version: str
    subjects: list[str]
    new: list[str]
    gone: list[str]
    known: list[str]
    coverage_gained: list[str]


def compared(newer: tuple[Plan, State], older: tuple[Plan, State], name: str) -> Compared:
    """Compares two campaigns on the components that both ran under one profile; `name` is the older one's folder.

    Raises BadValue if they have no component with the same profile in common.
    """
    before = {(s.subject, s.profile, s.against) for s in older[0].specs}
    common = {s.subject for s in newer[0].specs if (s.subject, s.profile, s.against) in before}
    if not common:
        raise BadValue(f"{name} ran none of this campaign's components under the same profile")
    now, then = _signatures(newer[1], common), _signatures(older[1], common)
    new, gone, known = (sorted(text for _, text in each) for each in (now - then, then - now, now & then))
    return Compared(
        name,
        older[0].version,
        sorted(common),
        new,
        gone,
        known,
        [line for subject in sorted(common) for line in _gained(subject, newer[1], older[1])],
    )


def _signatures(state: State, subjects: set[str]) -> set[tuple[str, str]]:
    """The signatures of the findings of some components, each with its component."""
    return {(found.subject, found.signature) for found in state.merged_findings() if found.subject in subjects}


def _gained(subject: str, newer: State, older: State) -> list[str]:
    """The coverage goals, refused actions and pairs of actions that only the newer campaign reached.

    Of abstract states only the number is given: their keys are long.
    """
    now, then = (state.coverage.get(subject, Total()) for state in (newer, older))
    lines = []
    kinds: dict[RowKind, str] = {"goal": "goal", "refused": "refusal of", "pair": "pair"}
    for kind, what in kinds.items():
        lines += [f"{subject}: {what} {key.strip()}" for key in sorted(now.of(kind).keys() - then.of(kind).keys())]
    states = len(now.of("abstract").keys() - then.of("abstract").keys())
    return [*lines, f"{subject}: {states:,} abstract states"] if states else lines
