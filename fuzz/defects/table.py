"""The defect table: which version breaks which guarantee, by which rules.

Each row of `fuzz/defects/<component>.toml` is one mechanism:

    id              kebab-case, unique; recordings' known deviations refer to it
    profile         the version that has the defect
    property        the guarantee that it breaks
    rules           the smallest set of config fields that breaks it: the reference with the profile's values of these
    symptom, mechanism, consequence
    severity, versions, link, origin
    tlc             optional: where TLC finds it, as a run in `tla/runs/` says it (default: `scope = "smoke"`)

Derived from it: the evidence, TLC's expected violations, recordings' known deviations, the README's table and a page.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from enum import StrEnum
from importlib.resources import files
from typing import Any

import msgspec

from fuzz.subject import find_profile, find_subject, subject_names
from model.machine import BadValue
from model.values import Origin


class Severity(StrEnum):
    """What a user of the broker suffers; the worst first."""

    MESSAGE_LOSS = "message loss"
    DUPLICATE_DELIVERY = "duplicate delivery"
    STUCK = "stuck"
    UNBOUNDED_MEMORY = "unbounded memory"
    WRONG_RESULT = "wrong result"
    WRONG_METRIC = "wrong metric"
    PERFORMANCE = "performance"


class Defect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One defect of a shipped version or of a proposal."""

    component: str
    id: str
    profile: str
    property: str
    rules: tuple[str, ...]
    symptom: str
    mechanism: str
    consequence: str
    severity: Severity
    versions: str
    link: str
    origin: Origin
    tlc: Mapping[str, Any] = {}

    def changes(self) -> dict[str, Any]:
        """The profile's values of the rules."""
        cfg = find_profile(find_subject(self.component), self.profile)
        return {rule: getattr(cfg, rule) for rule in self.rules}

    def config(self) -> Any:
        """The reference with the profile's values of the rules."""
        return find_profile(find_subject(self.component), "reference")._replace(**self.changes())


def defects_of(component: str) -> list[Defect]:
    """The rows of a component's file, in its order; none without a file. Raises BadValue for an invalid row."""
    resource = files("fuzz") / "defects" / f"{component}.toml"
    if not resource.is_file():
        return []
    path = f"fuzz/defects/{component}.toml"
    try:
        rows = tomllib.loads(resource.read_text(encoding="utf-8")).get("defect", [])
    except tomllib.TOMLDecodeError as problem:
        raise BadValue(f"{path}: {problem}") from None
    found = [_defect_of(component, row, f"{path}: row {number}") for number, row in enumerate(rows, 1)]
    ids = [defect.id for defect in found]
    for each in ids:
        if ids.count(each) > 1:
            raise BadValue(f"{path}: the id {each} occurs twice")
    return found


def all_defects() -> list[Defect]:
    """The rows of all components, the most severe first."""
    order = list(Severity)
    found = [defect for name in subject_names() for defect in defects_of(name)]
    return sorted(found, key=lambda defect: order.index(defect.severity))


def find_defect(component: str, defect_id: str) -> Defect:
    """The row of that id. Raises BadValue, naming the ids of the component, if there is none."""
    rows = defects_of(component)
    for defect in rows:
        if defect.id == defect_id:
            return defect
    raise BadValue(f"{component} has no defect {defect_id}; it has {', '.join(d.id for d in rows)}")


def _defect_of(component: str, row: dict[str, Any], where: str) -> Defect:
    try:
        defect = msgspec.convert({**row, "component": component}, Defect)
    except msgspec.ValidationError as problem:
        raise BadValue(f"{where}: {problem}") from None
    subject = find_subject(component)
    broken, reference = find_profile(subject, defect.profile), find_profile(subject, "reference")
    if defect.property not in {p.name for p in subject.properties}:
        raise BadValue(f"{where}: {component} has no property {defect.property}")
    for rule in defect.rules:
        if rule not in subject.machine.settings:
            raise BadValue(f"{where}: the config of {component} has no field {rule}")
        if getattr(broken, rule) == getattr(reference, rule):
            raise BadValue(f"{where}: {defect.profile} has the reference's value of {rule}")
    if not defect.rules:
        raise BadValue(f"{where}: rules must name at least one config field")
    return defect
