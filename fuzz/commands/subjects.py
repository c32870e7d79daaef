"""`brokerproof subjects`: the components, their configuration, and what checks them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from fuzz.commands import Record, Result
from fuzz.report.text import first_sentence, text_of
from fuzz.seeding import mutants_of
from fuzz.subject import Subject, find_subject, introduction_of, profile_names, subject_names
from model.machine import plain
from model.values import RELEASES, describe, rule_of, setting_of


class PropertyRow(Record):
    """A property, by kind: always (safety), sometimes (coverage goal), eventually (liveness)."""

    name: str
    kind: str
    guarantee: str


class ProfileRow(Record):
    """A profile, and the fields of the config in which it differs from the reference."""

    name: str
    about: str
    differs: dict[str, Any]


class RuleRow(Record):
    """A config field whose value differs between versions or proposals. `origin` says how the values are known."""

    name: str
    kind: str  # the possible values, in words
    reference: Any
    origin: str
    source: str


class SettingRow(Record):
    """A config field that is no rule, and the values that a trace may draw.

    `broker_name` is the name of the setting in Pulsar. It is empty for a field that only the model has: a size, such as
    the number of brokers.
    """

    name: str
    kind: str  # the possible values, in words
    default: Any
    broker_name: str
    broker_defaults: dict[str, Any]  # release -> Pulsar's default; null if the release lacks the setting
    drawn: list[Any]


class SubjectRow(Record):
    """A component and what checks it."""

    name: str
    about: str  # the first paragraph of its model's header
    source: str
    canary: bool
    profiles: dict[str, str]  # name -> description
    profile_details: list[ProfileRow]
    releases: dict[str, str]  # release, such as 4.1 -> the name of its profile
    rules: list[RuleRow]
    settings: list[SettingRow]
    actions: list[str]
    properties: list[PropertyRow]
    proofs: list[str]  # the ids of the claims
    mutants: list[str]  # the ids of the seeded bugs
    tla: list[str]  # the module of the twin, if there is one


class SubjectsResult(Result):
    """All components, or those that were named."""

    subjects: list[SubjectRow]


def run(names: Sequence[str]) -> SubjectsResult:
    """Describes the named components, by default all. Raises BadValue for an unknown name."""
    return SubjectsResult(subjects=[row_of(find_subject(name)) for name in names or subject_names()])


def row_of(subject: Subject) -> SubjectRow:
    """Returns a component's row."""
    machine = subject.machine
    return SubjectRow(
        name=subject.name,
        about=introduction_of(subject.name).title,
        source=machine.source,
        canary=subject.canary,
        profiles={name: profile.about for name, profile in machine.profiles.items()},
        profile_details=[_profile(subject, name) for name in machine.profiles],
        releases=machine.releases,
        rules=[_rule(subject, name) for name in machine.rules],
        settings=[_setting(subject, name) for name in machine.fields if name not in machine.rules],
        actions=list(machine.actions),
        properties=[PropertyRow(name=p.name, kind=p.kind, guarantee=p.guarantee) for p in subject.properties],
        proofs=_claims_of(subject.name),
        mutants=[m.id for m in mutants_of(subject.name)],
        tla=[subject.tla] if subject.tla else [],
    )


def _default(subject: Subject, name: str) -> Any:
    return plain(subject.machine.config._field_defaults.get(name))


def _profile(subject: Subject, name: str) -> ProfileRow:
    profile = subject.machine.profiles[name]
    values = {field: plain(getattr(profile.config, field)) for field in subject.machine.fields}
    differs = {field: value for field, value in values.items() if value != _default(subject, field)}
    return ProfileRow(name=name, about=profile.about, differs=differs)


def _rule(subject: Subject, name: str) -> RuleRow:
    kind = subject.machine.fields[name]
    rule = rule_of(kind)
    assert rule is not None
    reference = _default(subject, name)
    return RuleRow(name=name, kind=describe(kind), reference=reference, origin=rule.origin, source=rule.text)


def _setting(subject: Subject, name: str) -> SettingRow:
    kind = subject.machine.fields[name]
    mark = setting_of(kind)
    drawn = [plain(value) for value in subject.settings.get(name, ())]
    distinct = [value for i, value in enumerate(drawn) if value not in drawn[:i]]
    return SettingRow(
        name=name,
        kind=describe(kind),
        default=_default(subject, name),
        broker_name=mark.broker_name if mark is not None else "",
        broker_defaults={release: mark.default_in(release) for release in RELEASES} if mark is not None else {},
        drawn=distinct,
    )


def _claims_of(subject: str) -> list[str]:
    """Returns the ids of the claims about a component, without starting a solver."""
    module = f"invariants.proofs.{subject}"
    if importlib.util.find_spec(module) is None:
        return []
    return [claim.id for claim in importlib.import_module(module).claims]


# ---- showing ------------------------------------------------------------------------------------------


def show(console: Console, result: SubjectsResult, *, in_full: bool) -> None:
    """Prints a summary of each component, or everything about it."""
    for row in result.subjects:
        mark = "  [dim]wrong on purpose; every engine must report it[/]" if row.canary else ""
        console.print(f"[bold]{row.name}[/] ({escape(row.source)}){mark}")
        console.print(f"  {escape(row.about)}")
        if in_full:
            _show_in_full(console, row)
        else:
            _show_summary(console, row)


_KINDS = {"always": "safety properties", "sometimes": "coverage goals", "eventually": "liveness properties"}
_SINGULAR = {
    "safety properties": "safety property",
    "coverage goals": "coverage goal",
    "liveness properties": "liveness property",
}


def _show_summary(console: Console, row: SubjectRow) -> None:
    numbers = {words: sum(p.kind == kind for p in row.properties) for kind, words in _KINDS.items()}
    counts = [f"{n} {words if n != 1 else _SINGULAR[words]}" for words, n in numbers.items()]
    _show_line(console, "profiles", ", ".join(profile_names(find_subject(row.name))))
    _show_line(console, "actions", ", ".join(row.actions))
    _show_line(console, "properties", ", ".join(counts))
    _show_line(console, "claims", str(len(row.proofs)))
    _show_line(console, "mutants", str(len(row.mutants)))
    _show_line(console, "TLA+ twin", ", ".join(row.tla) or "-")


def _show_in_full(console: Console, row: SubjectRow) -> None:
    console.print("\n  [bold]profiles[/] (`--profile NAME`)")
    width = max(len(profile.name) for profile in row.profile_details)
    for profile in row.profile_details:
        _show_line(console, profile.name, profile.about, width)
        for name, value in profile.differs.items():
            console.print(f"      {escape(f'{name} = {text_of(value)}')}", style="dim")
    for release, name in row.releases.items():
        if name != f"pulsar-{release}":
            _show_line(console, f"pulsar-{release}", f"the same as {name}", width)
    console.print("\n  [bold]rules[/] on which versions or proposals differ (origins: see model/README.md)")
    width = max((len(rule.name) for rule in row.rules), default=0)
    for rule in row.rules:
        _show_line(console, rule.name, f"{rule.kind}; reference: {text_of(rule.reference)}", width)
        console.print(f"      {escape(f'{rule.source} ({rule.origin})')}", style="dim")
    console.print("\n  [bold]settings[/]")
    width = max((len(setting.name) for setting in row.settings), default=0)
    for setting in row.settings:
        broker = f" ({setting.broker_name}: {_by_release(setting.broker_defaults)})" if setting.broker_name else ""
        drawn = f"; fuzzed with {', '.join(text_of(v) for v in setting.drawn)}" if setting.drawn else ""
        _show_line(console, setting.name, f"{setting.kind}{broker}, default {text_of(setting.default)}{drawn}", width)
    console.print("\n  [bold]actions[/]")
    console.print(f"  {', '.join(row.actions)}")
    for kind, words in _KINDS.items():
        console.print(f"\n  [bold]{words}[/]" + (" (`--property NAME`)" if kind == "always" else ""))
        chosen = [each for each in row.properties if each.kind == kind]
        for each in chosen:
            _show_line(console, each.name, first_sentence(each.guarantee), max(len(p.name) for p in chosen))
    for words, names in (
        ("claims[/] (`prove SUBJECT`)", row.proofs),
        ("mutants[/] (`--mutant ID`)", row.mutants),
        ("TLA+ twin[/] (`tla MODULE`)", row.tla),
    ):
        console.print(f"\n  [bold]{words}")
        console.print(f"  {escape(', '.join(names) or '-')}")
    console.print()


def _by_release(defaults: dict[str, Any]) -> str:
    """Returns Pulsar's defaults as text, oldest first, each with the release in which it became the default."""
    known = [(release, default) for release, default in defaults.items() if default is not None]
    changes = [each for i, each in enumerate(known) if i == 0 or each[1] != known[i - 1][1]]
    return ", ".join(f"{text_of(default)} from {release}" for release, default in changes)


def _show_line(console: Console, heading: str, text: str, width: int = 11) -> None:
    console.print(f"  {heading:{width}}  {escape(text)}")
