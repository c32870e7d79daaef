"""Known deviations of real clients: how each row of a defect table shows on the wire.

Symptom, mechanism and consequence are in the defect table of the `component` that `fuzz/scenarios/known.toml` names.
Its table `not_expressible` has those of deviations that no model can show: rows without profile and rules.

    defect      the id of a row of the defect table
    scenario    where its schedule runs
    component   where its row is, if in another component's table
    contract    the contract that it breaks
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
    """A known deviation."""

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
        """Whether this deviation explains how a run violates a contract: all of it, with its evidence."""
        if (scenario, contract) != (self.scenario, self.contract):
            return False
        evidence = getattr(importlib.import_module("fuzz.scenarios.evidence"), self.evidence)
        return bool(evidence(observed))


def profiles() -> list[str]:
    """The profiles: the reference, which has no deviation, and that of the tested client."""
    return [REFERENCE, CLIENT]


def known_of(profile: str) -> tuple[Known, ...]:
    """The deviations that a profile has."""
    return () if profile == REFERENCE else known_deviations()


@functools.cache
def known_deviations() -> tuple[Known, ...]:
    """All rows. Raises BadValue for an invalid one."""
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
