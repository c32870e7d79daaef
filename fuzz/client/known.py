"""Known deviations of the real client: how each shows on the wire. They are the rows of `fuzz/scenarios/known.toml`.

Symptom, mechanism and consequence of a deviation are in a row of a defect table. The key `component` of the file names
the component of that table. Deviations that no model can show are in the file's own table `not_expressible`. A row of
the file has

    defect      the id of the row of the defect table, or of `not_expressible`
    scenario    the scenario of the schedule
    component   the component of the defect table, if not the file's
    contract    the contract that the deviation violates
    evidence    a function of `fuzz/scenarios/evidence.py`: whether the deviation explains all of a violation
    settings, steps    the shrunk schedule
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
#: The profile of the client that is tested, and the one without deviations.
CLIENT = "cpp-4.2.0"
REFERENCE = "reference"
#: Columns of the defect table that are the same in every row of `not_expressible`.
_NOT_EXPRESSIBLE = {"profile": CLIENT, "rules": (), "origin": Origin.OBSERVED}


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A known deviation. The module describes the fields."""

    defect: Defect
    scenario: str
    contract: str
    evidence: str
    steps: tuple[tuple[Any, ...], ...]
    settings: dict[str, Any] = {}

    def __str__(self) -> str:
        return f"{self.scenario}-{self.defect.id}"

    def schedule(self) -> Schedule:
        """The shrunk schedule."""
        return Schedule(dict(self.settings), self.steps)

    def explains(self, scenario: str, contract: str, observed: Observed) -> bool:
        """Whether this deviation explains all of a run's violation of a contract in a scenario, by its evidence."""
        if (scenario, contract) != (self.scenario, self.contract):
            return False
        evidence = getattr(importlib.import_module("fuzz.scenarios.evidence"), self.evidence)
        return bool(evidence(observed))


def profiles() -> list[str]:
    """The profiles: the reference, which has no deviation, and that of the tested client."""
    return [REFERENCE, CLIENT]


def known_of(profile: str) -> tuple[Known, ...]:
    """The deviations that a profile, one of `profiles`, has."""
    return () if profile == REFERENCE else known_deviations()


@functools.cache
def known_deviations() -> tuple[Known, ...]:
    """All deviations, in the order of the file. Raises BadValue if the file has an invalid row."""
    try:
        tables = tomllib.loads((files("fuzz") / "scenarios" / "known.toml").read_text(encoding="utf-8"))
        component = tables.pop("component")
        rows, others = tables["deviation"], tables["not_expressible"]
        for row in rows:
            name = row["defect"]
            if name in others:
                row["defect"] = {**_NOT_EXPRESSIBLE, "component": component, "id": name, **others[name]}
            else:
                row["defect"] = find_defect(row.pop("component", component), name)
        return tuple(msgspec.convert(row, Known) for row in rows)
    except (KeyError, tomllib.TOMLDecodeError, msgspec.ValidationError) as problem:
        raise BadValue(f"{_PATH}: {problem}") from None
