"""The defect table: which version breaks which guarantee, and by which rules.

The files `fuzz/defects/<component>.toml` are the defect table. A row is one defect, under its id in kebab-case:

    profile         a profile that has the defect
    property        the property that this profile violates
    rules           the fields of `Config` that cause the defect. If only these fields of `reference` get the profile's
                    values, the property is violated
    symptom, mechanism, consequence
    severity, versions
    link            optional: the upstream issue, pull request or proposal
    origin          how the mechanism is known (default: the origin of its least certain rule)
    tlc             optional: keys of a run of TLC that finds the defect, as in `tla/runs/` (default: `scope = "smoke"`)

Two further keys of a file are no rows. `not_expressible` has reports about the component that its machine cannot show,
each with the reason. `suspected` has suspicions about Pulsar, each with our decision (`Suspected`).

The defect table determines the expected violations of TLC, the known deviations of recordings, the searches of
`brokerproof evidence`, the table in the README, and the page `fuzz/defects/README.md`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib.resources import files
from typing import Any

import msgspec

from fuzz.subject import Subject, find_profile, find_subject, subject_names
from model.machine import BadValue
from model.values import Origin, rule_of

#: Shown instead of the link of a defect that has none.
NO_REPORT = "no report known"
#: The keys of a file that are no rows.
_NOT_EXPRESSIBLE, _SUSPECTED = "not_expressible", "suspected"


class Severity(StrEnum):
    """The consequence for a user of the broker; the worst first."""

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
    origin: Origin
    link: str = ""
    tlc: Mapping[str, Any] = {}

    def command(self) -> str:
        """Returns the command that finds the defect."""
        return f"brokerproof fuzz {self.component} --profile {self.profile} --property {self.property}"

    def changes(self) -> dict[str, Any]:
        """Returns the profile's values of the rules."""
        cfg = find_profile(find_subject(self.component), self.profile)
        return {rule: getattr(cfg, rule) for rule in self.rules}

    def config(self) -> Any:
        """Returns the reference with the profile's values of the rules."""
        return find_profile(find_subject(self.component), "reference")._replace(**self.changes())


class Suspected(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A suspected defect of Pulsar, the decision, and what shows the decision: at least one list is not empty."""

    component: str
    suspicion: str
    decision: str
    defects: tuple[str, ...] = ()  # rows of the component's table, whose traces show the suspected behaviour
    mutants: tuple[str, ...] = ()  # seeded bugs of the component
    tests: tuple[str, ...] = ()  # functions of `tests/test_<component>.py`
    scopes: tuple[str, ...] = ()  # scopes of which no state violates a property

    def commands(self) -> list[str]:
        """Returns the commands that show the decision."""
        return [
            *[f"brokerproof evidence {self.component} --defect {each}" for each in self.defects],
            *[f"brokerproof fuzz {self.component} --mutant {each}" for each in self.mutants],
            *[f"python -m pytest tests/test_{self.component}.py -k {each}" for each in self.tests],
            *[f"brokerproof explore {self.component} --scope {each}" for each in self.scopes],
        ]


def defects_of(component: str) -> list[Defect]:
    """Returns a component's rows in the order of the file; none without a file. Raises BadValue for an invalid row."""
    rows, path = _tables_of(component), f"fuzz/defects/{component}.toml"
    others = (_NOT_EXPRESSIBLE, _SUSPECTED)
    return [_defect_of(component, n, row, f"{path}: {n}") for n, row in rows.items() if n not in others]


def not_expressible(component: str) -> dict[str, str]:
    """Returns the reports about a component that its machine cannot show, each with the reason."""
    return {str(report): str(why) for report, why in _tables_of(component).get(_NOT_EXPRESSIBLE, {}).items()}


def suspected(component: str) -> list[Suspected]:
    """Returns the suspected defects of a component. Raises BadValue for an invalid item."""
    where, known = f"fuzz/defects/{component}.toml: {_SUSPECTED}", {row.id for row in defects_of(component)}
    try:
        rows = [{"component": component} | row for row in _tables_of(component).get(_SUSPECTED, ())]
        found = [msgspec.convert(row, Suspected) for row in rows]
    except (TypeError, msgspec.ValidationError) as problem:
        raise BadValue(f"{where}: {problem}") from None
    for row in found:
        wrong = [*({*row.defects} - known), *({*row.scopes} - {*find_subject(component).scopes})]
        if wrong:
            raise BadValue(f"{where}: {row.suspicion}: no defect or scope {wrong[0]}")
        if not row.commands():
            raise BadValue(f"{where}: {row.suspicion}: nothing shows it")
    return found


def _tables_of(component: str) -> dict[str, Any]:
    resource = files("fuzz") / "defects" / f"{component}.toml"
    if not resource.is_file():
        return {}
    try:
        return tomllib.loads(resource.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as problem:
        raise BadValue(f"fuzz/defects/{component}.toml: {problem}") from None


def all_defects() -> list[Defect]:
    """Returns the rows of all components, the most severe first."""
    order = list(Severity)
    found = [defect for name in subject_names() for defect in defects_of(name)]
    return sorted(found, key=lambda defect: order.index(defect.severity))


def find_defect(component: str, defect_id: str) -> Defect:
    """Returns the row of that id. Raises BadValue, naming the ids of the component, if there is none."""
    rows = defects_of(component)
    for defect in rows:
        if defect.id == defect_id:
            return defect
    raise BadValue(f"{component} has no defect {defect_id}; it has {', '.join(d.id for d in rows) or 'none'}")


def _defect_of(component: str, name: str, row: dict[str, Any], where: str) -> Defect:
    """Returns a row as a defect. Raises BadValue for an invalid row; `where` is the beginning of the message."""
    subject = find_subject(component)
    try:
        derived = {"origin": _origin_of(subject, row.get("rules", ())), "component": component, "id": name}
        defect = msgspec.convert(derived | row, Defect)
    except (AttributeError, TypeError, msgspec.ValidationError) as problem:
        raise BadValue(f"{where}: {problem}") from None
    broken, reference = find_profile(subject, defect.profile), find_profile(subject, "reference")
    if defect.property not in {p.name for p in subject.properties}:
        raise BadValue(f"{where}: {component} has no property {defect.property}")
    for rule in defect.rules:
        if rule not in subject.machine.fields:
            raise BadValue(f"{where}: the config of {component} has no field {rule}")
        if getattr(broken, rule) == getattr(reference, rule):
            raise BadValue(f"{where}: {defect.profile} has the reference's value of {rule}")
    if not defect.rules:
        raise BadValue(f"{where}: rules must name at least one config field")
    return defect


def _origin_of(subject: Subject, rules: Sequence[str]) -> Origin:
    """Returns the origin of the least certain of these config fields; the least certain origin if none is a rule."""
    order = list(Origin)  # the most certain first
    found = [rule_of(subject.machine.fields.get(name)) for name in rules]
    return max((rule.origin for rule in found if rule is not None), key=order.index, default=order[-1])
