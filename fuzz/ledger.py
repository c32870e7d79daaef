"""The strongest verdict on each safety property of a component under the reference rules.

proved      a claim implies the property (`Claim.proves`) and is proved, and the claim's control is refuted
exhausted   the explorer checked the property on every state and step of a scope that is recorded in
            `fuzz/explore/counts.toml`; tests and `brokerproof explore` search these scopes again
sampled     only traces checked the property, because the explorer checks it in no recorded scope: the property takes a
            history variable, or no recorded scope has one of its actions and a config under which it applies
"""

from __future__ import annotations

from typing import Any

from rich.console import Console

from fuzz.explore.counts import counts_of
from fuzz.explore.search import find_space
from fuzz.platform.progress import showing
from fuzz.prove import PROOFS, claims_about, holds, row_of
from fuzz.subject import Subject, find_subject, subject_names
from invariants.proofs.claim import Claim
from invariants.properties import Property
from model.machine import BadValue


def run_ledger(names: list[str], console: Console) -> list[dict[str, Any]]:
    """Checks the claims that prove properties of the named components, by default of all but canaries.

    Returns a row for each safety property: the keys of `brokerproof prove --ledger`. Raises BadValue for an unknown
    component or a canary. Cost: seconds for each claim; scopes are not searched.
    """
    subjects = [find_subject(name) for name in names or subject_names(without_canaries=True)]
    for subject in subjects:
        if subject.canary:
            raise BadValue(f"{subject.name} violates a property on purpose; name another component")
    claims = [(subject.name, claim) for subject in subjects for claim in claims_about(subject.name) if claim.proves]
    checked: dict[str, dict[str, Any]] = {}
    with showing(console, "starting") as update:
        for number, (name, claim) in enumerate(claims, 1):
            update(number - 1, len(claims), f"{name}: {claim.id}")
            checked[claim.id] = row_of(name, claim)
    return [
        ledger_row(subject, each, [checked[claim.id] for claim in claims_implying(subject, each)])
        for subject in subjects
        for each in subject.properties
        if each.kind == "always"
    ]


def claims_implying(subject: Subject, judged: Property) -> list[Claim]:
    """Returns the claims that imply the property `judged` of the subject."""
    return [claim for claim in claims_about(subject.name) if judged.name in claim.proves]


def ledger_row(subject: Subject, judged: Property, claims: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the ledger's row of the property `judged`. `claims` are the rows of the claims that imply `judged`."""
    scopes = scopes_of(subject, judged)
    proofs = [claim["id"] for claim in claims if _is_proof(claim)]
    failed = "".join(f"; claim {claim['id']}: {_failure(claim)}" for claim in claims if not _is_proof(claim))
    status = "proved" if proofs else "exhausted" if scopes else "sampled"
    largest = max(scopes, key=lambda name: scopes[name], default="")
    how = {
        "proved": f"claim {', '.join(proofs)}",
        "exhausted": f"{scopes.get(largest, 0):,} states, the whole of scope {largest}",
        "sampled": _why_not_exhausted(subject, judged),
    }
    return {
        "subject": subject.name,
        "property": judged.name,
        "status": status,
        "how": how[status] + failed,
        "scopes": list(scopes),
        "lemmas": [claim["id"] for claim in claims],
        "control_refuted": all(claim["control_refuted"] for claim in claims) if claims else None,
        "seconds": round(sum(claim["seconds"] for claim in claims), 3),
    }


def _is_proof(claim: dict[str, Any]) -> bool:
    return holds(claim) and claim["verdict"] in PROOFS


def _failure(claim: dict[str, Any]) -> str:
    return "its control is not refuted" if claim["verdict"] in PROOFS else str(claim["verdict"])


def scopes_of(subject: Subject, judged: Property) -> dict[str, int]:
    """Returns the number of states of each recorded scope in which the explorer checks the property `judged`.

    The explorer checks no property with history variables, and no property that does not apply under the scope's
    config. It checks a property about certain actions only in a scope that has one of these actions.
    """
    found = {}
    for name, scope in subject.scopes.items():
        counts = counts_of(subject.name, name)
        has_action = not judged.on or not set(judged.on).isdisjoint(scope.actions)
        if counts is not None and has_action and not judged.histories and judged.given(find_space(subject, name).cfg):
            found[name] = counts.distinct_states
    return found


def _why_not_exhausted(subject: Subject, judged: Property) -> str:
    if judged.histories:
        return "random traces: the explorer folds no history variables"
    if not judged.given(subject.machine.config()):
        return "random traces: it does not apply under the reference's defaults"
    return "random traces: no recorded scope has one of its actions and a config under which it applies"
