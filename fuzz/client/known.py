"""Known deviations of the real client from its contracts: the file `fuzz/scenarios/known.toml`.

Each `[[deviation]]` of the file is a way in which a defect of the client shows in a scenario:

    scenario    the scenario of the schedule
    contract    the contract that the deviation violates
    evidence    the function of `fuzz/scenarios/evidence.py` that decides whether the deviation alone caused a violation
    settings, steps    the smallest schedule that is known to show the deviation
    defect      the id of the defect's description: symptom, mechanism and consequence
    component   the component whose defect table has the description; by default the file's key `component`

If no model can show the defect, the description is in the file's table `not_expressible`, not in a defect table.
"""

from __future__ import annotations

import functools
import importlib
import tomllib
from importlib.resources import files
from typing import Any

import msgspec

from fuzz.client.run import Observed
from fuzz.client.schedule import Schedule
from fuzz.defects.table import Defect, find_defect
from model.machine import BadValue
from model.values import Origin

_PATH = "fuzz/scenarios/known.toml"
#: The profile of the tested client.
CLIENT_PROFILE = "cpp-4.2.0"
#: The profile without deviations.
REFERENCE = "reference"
#: Fields of `Defect` that the entries of `not_expressible` omit.
_NOT_EXPRESSIBLE_FIELDS = {"profile": CLIENT_PROFILE, "rules": (), "origin": Origin.OBSERVED}


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A known deviation. The module describes the keys of the file; `defect` is the description itself."""

    defect: Defect
    scenario: str
    contract: str
    evidence: str
    steps: tuple[tuple[Any, ...], ...]
    settings: dict[str, Any] = {}

    def __str__(self) -> str:
        return f"{self.scenario}-{self.defect.id}"

    def schedule(self) -> Schedule:
        """Returns the smallest schedule that is known to show the deviation."""
        return Schedule(dict(self.settings), self.steps)

    def explains(self, scenario: str, contract: str, observed: Observed) -> bool:
        """Returns whether this deviation alone explains the violation of a contract, as `evidence` decides.

        Returns False for another scenario or contract.
        """
        if (scenario, contract) != (self.scenario, self.contract):
            return False
        evidence = getattr(importlib.import_module("fuzz.scenarios.evidence"), self.evidence)
        return bool(evidence(observed))


def profiles() -> list[str]:
    """Returns the profiles: the reference, which has no deviation, and the profile of the tested client."""
    return [REFERENCE, CLIENT_PROFILE]


def known_of(profile: str) -> tuple[Known, ...]:
    """Returns the known deviations of a profile, which is one of `profiles()`."""
    return () if profile == REFERENCE else known_deviations()


@functools.cache
def known_deviations() -> tuple[Known, ...]:
    """Returns all known deviations, in the order of the file. Raises BadValue if the file is invalid."""
    try:
        tables = tomllib.loads((files("fuzz") / "scenarios" / "known.toml").read_text(encoding="utf-8"))
        component = tables.pop("component")
        deviations, not_expressible = tables["deviation"], tables["not_expressible"]
        for each in deviations:
            defect_id = each["defect"]
            if defect_id in not_expressible:
                own = {"component": component, "id": defect_id, **not_expressible[defect_id]}
                each["defect"] = {**_NOT_EXPRESSIBLE_FIELDS, **own}
            else:
                each["defect"] = find_defect(each.pop("component", component), defect_id)
        return tuple(msgspec.convert(each, Known) for each in deviations)
    except (KeyError, tomllib.TOMLDecodeError, msgspec.ValidationError) as problem:
        raise BadValue(f"{_PATH}: {problem}") from None
