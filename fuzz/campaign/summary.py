"""Summaries: the coverage of a run, the coverage goals that the run missed, and the differences of two campaigns."""

from __future__ import annotations

from typing import Any, NamedTuple

from fuzz.campaign.folder import Plan, State
from fuzz.campaign.kinds import is_scenario
from fuzz.campaign.worker import Spec, target_of
from fuzz.run.coverage import RowKind, Total
from fuzz.run.generate import plan_trace
from model.machine import BadValue

#: Number of seeds whose configs decide which coverage goals are expected.
_SEEDS = 256


def coverage_of(spec: Spec, seed: int, total: Total) -> dict[str, Any]:
    """Returns the coverage of a component as one object (`Total.summary`). `seed` is the first of the run."""
    return total.summary(target_of(spec).subject, configs_of(spec, seed))


def configs_of(spec: Spec, seed: int) -> list[Any]:
    """Returns the distinct configs of `_SEEDS` traces, whose seeds begin with `seed`.

    A coverage goal is expected if it applies under one of these configs.
    """
    target = target_of(spec)
    return list({plan_trace(target.subject, target.config, seed + i)[0].config for i in range(_SEEDS)})


def failures(spec: Spec, seed: int, total: Total, steps: int) -> list[str]:
    """Returns a line for each coverage goal that a run did not reach, and for each action that never succeeded.

    Returns no lines if the run has fewer `steps` than the subject's `min_steps_for_coverage`. Returns no lines for a
    comparison with another profile or for a seeded bug, because such a run searches for a difference.
    """
    subject = target_of(spec).subject
    if spec.mutant is not None or spec.against is not None or steps < subject.min_steps_for_coverage:
        return []
    never = coverage_of(spec, seed, total)["never"]
    return [f"{spec.subject}: {name} not reached in {steps:,} steps" for name in never]


def campaign_failures(plan: Plan, state: State) -> list[str]:
    """Returns the `failures` of all components of a campaign. A scenario has no coverage goals."""
    found = []
    for spec in plan.specs:
        if is_scenario(spec.subject):
            continue
        steps = sum(row["steps"] for row in state.runs if row["subject"] == spec.subject)
        found += failures(spec, plan.seed, state.coverage.get(spec.subject, Total()), steps)
    return found


# ---- two campaigns ------------------------------------------------------------------------------------


class Compared(NamedTuple):
    """The differences between two campaigns on the subjects that both ran."""

    older: str  # the folder of the older campaign
    version: str  # the version of the code that ran the older campaign
    subjects: list[str]  # the subjects that both ran
    new: list[str]  # signatures of findings that only the newer campaign has
    gone: list[str]  # signatures of findings that only the older campaign has
    known: list[str]  # signatures of findings that both campaigns have
    coverage_gained: list[str]  # lines for the coverage keys that only the newer campaign reached


def compared(newer: tuple[Plan, State], older: tuple[Plan, State], name: str) -> Compared:
    """Compares two campaigns on the subjects that both ran under the same profile and against the same other profile.

    `name` is the folder of the older campaign. Raises BadValue if there is no such subject.
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
    """Returns the signatures of the findings of some subjects, each with its subject."""
    return {(found.subject, found.signature) for found in state.merged_findings() if found.subject in subjects}


def _gained(subject: str, newer: State, older: State) -> list[str]:
    """Returns a line for each coverage goal, refused action and pair of actions that only the newer campaign reached.

    Abstract states together get one line with their number, because their keys are long.
    """
    now, then = (state.coverage.get(subject, Total()) for state in (newer, older))
    lines = []
    kinds: dict[RowKind, str] = {"goal": "goal", "refused": "refusal of", "pair": "pair"}
    for kind, what in kinds.items():
        lines += [f"{subject}: {what} {key.strip()}" for key in sorted(now.of(kind).keys() - then.of(kind).keys())]
    states = len(now.of("abstract").keys() - then.of("abstract").keys())
    return [*lines, f"{subject}: {states:,} abstract states"] if states else lines
