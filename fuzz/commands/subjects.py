"""What there is: the components, and what covers each."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from fuzz.mutation.seeding import mutants_of
from fuzz.subject import Subject, find_subject, subject_names


def overview() -> list[dict[str, Any]]:
    """One row for each subject, as `brokerproof subjects` gives it."""
    return [row_of(find_subject(name)) for name in subject_names()]


def row_of(subject: Subject) -> dict[str, Any]:
    """A subject's row."""
    return {
        "name": subject.name,
        "source": subject.machine.source,
        "canary": subject.canary,
        "profiles": {name: profile.about for name, profile in subject.machine.profiles.items()},
        "actions": list(subject.machine.actions),
        "properties": [{"name": p.name, "kind": p.kind, "guarantee": p.guarantee} for p in subject.properties],
        "proofs": claims_of(subject.name),
        "mutants": [m.id for m in mutants_of(subject.name)],
        "tla": [subject.tla] if subject.tla else [],
    }


def claims_of(subject: str) -> list[str]:
    """The ids of what a solver is asked about a component."""
    module = f"invariants.proofs.{subject}"
    if importlib.util.find_spec(module) is None:
        return []
    return [claim.id for claim in importlib.import_module(module).claims]
