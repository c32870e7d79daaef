"""Summaries: the coverage of a run, the coverage goals that the run missed, and the differences of two campaigns."""

from __future__ import annotations

from typing import Any, NamedTuple

from fuzz.campaign.folder import Plan, State
from fuzz.campaign.kinds import is_scenario
from fuzz.campaign.worker import Spec, target_of
from fuzz.run.coverage import RowKind, Total
from fuzz.run.generate import plan_trace
from model.machine import BadValue

#: A run must reach the coverage goals that apply under the config of at least one of its first traces, this many.
_CONFIG_SEEDS = 256


def coverage_of(spec: Spec, seed: int, total: Total) -> dict[str, Any]:
    """Returns the coverage of a component as one object (`Total.summary`). `seed` is the first seed of the run."""
    return total.summary(target_of(spec).subject, configs_of(spec, seed))


def configs_of(spec: Spec, seed: int) -> list[Any]:
    """Returns the distinct configs of the traces with the seeds `seed` to `seed + _CONFIG_SEEDS - 1`."""
    target = target_of(spec)
    return list({plan_trace(target.subject, target.config, seed + i)[0].config for i in range(_CONFIG_SEEDS)})


def missed_coverage(spec: Spec, seed: int, total: Total, steps: int) -> list[str]:
    """Returns a line for each coverage goal that was not reached, and each action that was never taken or only refused.

    Returns no lines if the run has fewer `steps` than the subject's `min_steps_for_coverage`. Returns no lines for a
    comparison with another profile or for a seeded bug, because such a run searches for a difference.
    """
    subject = target_of(spec).subject
    if spec.mutant is not None or spec.against is not None or steps < subject.min_steps_for_coverage:
        return []
    unreached = coverage_of(spec, seed, total)["never"]
    return [f"{spec.subject}: {name} not reached in {steps:,} steps" for name in unreached]


def missed_by_campaign(plan: Plan, state: State) -> list[str]:
    """Returns the lines of `missed_coverage` for all components of a campaign. A scenario has no coverage goals."""
    missed = []
    for spec in plan.specs:
        if is_scenario(spec.subject):
            continue
        steps = sum(row["steps"] for row in state.runs if row["subject"] == spec.subject)
        missed += missed_coverage(spec, plan.seed, state.coverage.get(spec.subject, Total()), steps)
    return missed


# ---- two campaigns ------------------------------------------------------------------------------------


class Compared(NamedTuple):
    """The differences between two campaigns on the subjects that both ran with the same `Spec`."""

    older: str  # the folder of the older campaign
    version: str  # the version of the code that ran the older campaign
    subjects: list[str]  # the subjects that both ran with the same `Spec`
    new: list[str]  # signatures of findings that only the newer campaign has
    gone: list[str]  # signatures of findings that only the older campaign has
    known: list[str]  # signatures of findings that are in both campaigns, with or without a known defect
    coverage_gained: list[str]  # lines for the coverage keys that only the newer campaign reached


def compared(newer: tuple[Plan, State], older: tuple[Plan, State], name: str) -> Compared:
    """Compares two campaigns on the subjects that both ran with the same `Spec`.

    `name` is the folder of the older campaign. Raises BadValue if there is no such subject.
    """
    common = {spec.subject for spec in set(newer[0].specs) & set(older[0].specs)}
    if not common:
        raise BadValue(f"{name} ran none of this campaign's components under the same profile and with the same mutant")
    now, then = _signatures(newer[1], common), _signatures(older[1], common)
    new, gone, in_both = (sorted(text for _, text in each) for each in (now - then, then - now, now & then))
    return Compared(
        name,
        older[0].version,
        sorted(common),
        new,
        gone,
        in_both,
        [line for subject in sorted(common) for line in _gained(subject, newer[1], older[1])],
    )


def _signatures(state: State, subjects: set[str]) -> set[tuple[str, str]]:
    """Returns the signatures of the findings of some subjects, each with its subject."""
    return {(found.subject, found.signature) for found in state.merge_findings() if found.subject in subjects}


def _gained(subject: str, newer: State, older: State) -> list[str]:
    """Returns a line for each coverage goal, refused action and pair of actions that only the newer campaign reached.

    A pair key that begins with a space is the first action of a trace (`pair_key`). Abstract states together get one
    line with their number, because their keys are long.
    """
    now, then = (state.coverage.get(subject, Total()) for state in (newer, older))
    lines = []
    kinds: dict[RowKind, str] = {"goal": "goal", "refused": "refusal of", "pair": "pair"}
    for kind, what in kinds.items():
        gained = sorted(now.of(kind).keys() - then.of(kind).keys())
        lines += [f"{subject}: first action{key}" if key[0] == " " else f"{subject}: {what} {key}" for key in gained]
    states = len(now.of("abstract").keys() - then.of("abstract").keys())
    return [*lines, f"{subject}: {states:,} abstract states"] if states else lines
