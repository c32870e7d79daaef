"""Known deviations of real clients: the rows of `fuzz/scenarios/known.toml`.

profile     the client that deviates
scenario    where its schedule runs
contract    the contract that it breaks
settings    what the deviation needs; settings that are not named do not matter
trigger     kinds of steps that it needs, in this order, perhaps with others between; `|` separates alternatives
steps       the shrunk schedule
symptom, mechanism, consequence, severity, versions, link, origin    as in `fuzz/defects/table.py`
"""

from __future__ import annotations

import functools
import tomllib
from importlib.resources import files
from typing import Any

import msgspec

from fuzz.client.schedule import Schedule
from fuzz.defects.table import Severity
from model.machine import BadValue
from model.values import Origin

_PATH = "fuzz/scenarios/known.toml"
#: The profile without deviations.
REFERENCE = "reference"
#: The client that is tested.
CLIENT = "cpp-4.2.0"


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A known deviation."""

    id: str
    profile: str
    scenario: str
    contract: str
    trigger: tuple[str, ...]
    steps: tuple[tuple[Any, ...], ...]
    symptom: str
    mechanism: str
    consequence: str
    severity: Severity
    versions: str
    settings: dict[str, Any] = {}
    link: str = ""
    origin: Origin = Origin.OBSERVED

    def schedule(self) -> Schedule:
        """The shrunk schedule."""
        return Schedule(dict(self.settings), self.steps)

    def explains(self, contract: str, schedule: Schedule) -> bool:
        """Whether a violated contract of a schedule is due to this deviation: the schedule triggers it."""
        if contract != self.contract or any(schedule.settings.get(k, v) != v for k, v in self.settings.items()):
            return False
        kinds = iter([name for name, *_ in schedule.steps])
        return all(any(kind in wanted.split("|") for kind in kinds) for wanted in self.trigger)


def profiles() -> list[str]:
    """The profiles of clients."""
    return [REFERENCE, *dict.fromkeys([CLIENT, *[row.profile for row in known_deviations()]])]


@functools.cache
def known_deviations() -> tuple[Known, ...]:
    """All rows. Raises BadValue for an invalid one."""
    try:
        tables = tomllib.loads((files("fuzz") / "scenarios" / "known.toml").read_text(encoding="utf-8"))
        return tuple(msgspec.convert({"id": name, **row}, Known) for name, row in tables.items())
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as problem:
        raise BadValue(f"{_PATH}: {problem}") from None
