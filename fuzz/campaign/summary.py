"""What a run covered, and which coverage goals it missed although it was long enough."""

from __future__ import annotations

from typing import Any

from fuzz.campaign.driver import Plan, State
from fuzz.campaign.worker import Spec, target_of
from fuzz.run.coverage import Total
from fuzz.run.generate import recipe

#: Seeds whose configs are looked at: enough to draw every config that matters for the coverage goals.
_SEEDS = 256


def coverage_of(spec: Spec, seed: int, total: Total) -> dict[str, Any]:
    """The coverage of a component as one object."""
    return total.summary(target_of(spec).subject, configs_of(spec, seed))


def configs_of(spec: Spec, seed: int) -> list[Any]:
    """Configs that the seeds of a run draw: coverage goals that none of them can reach are not expected."""
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
    """The failures of all components of a campaign."""
    found = []
    for spec in plan.specs:
        steps = sum(row["steps"] for row in state.runs if row["subject"] == spec.subject)
        found += failures(spec, plan.seed, state.coverage.get(spec.subject, Total()), steps)
    return found
