"""A finding with its explanation, and with the row of the defect table that it shows, if there is one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fuzz.campaign.worker import FindingRow
from fuzz.defects.table import Defect, defects_of
from fuzz.report.explain import explain
from fuzz.report.records import ExplainedFinding, Explanation, KnownDefect
from fuzz.run.finding import Cause
from fuzz.trace.agreement import cause_of
from fuzz.trace.file import Fetched, Trace, read_traces
from model.machine import plain


def explained(found: FindingRow, path: str, replay: str = "brokerproof replay {}") -> ExplainedFinding:
    """Returns a finding with its explanation.

    `path` is the file of the finding's trace. `replay` is the command that replays this file, with `{}` for the path.
    Cost: up to two replays with every step checked, and one for each rule in which the trace's config is not the
    reference.
    """
    trace = parse_trace(found.trace)
    explanation, defect, related = explain(trace), None, None
    if "mutant" not in trace.header:
        needed = {rule.name for rule in explanation.rules}
        defect = known_defect(found.subject, trace.config, cause_of(trace), needed)
        related = None if defect is not None else related_defect(found.subject, trace.config, needed)
    return with_explanation(found, path, explanation, defect, replay.replace("{}", path, 1), related)


def with_explanation(
    found: FindingRow,
    path: str,
    explanation: Explanation,
    defect: Defect | None,
    replay: str,
    related: Defect | None = None,
) -> ExplainedFinding:
    """Returns a finding with the given explanation, defects and command."""
    fields = found._asdict() | {"trace": path, "reproduced": found.reproduced}
    known, similar = (None if row is None else defect_record(row) for row in (defect, related))
    return ExplainedFinding(**fields, defect=known, related=similar, explanation=explanation, replay=replay)


def parse_trace(text: str) -> Trace:
    """Returns the trace that a text in the trace format contains."""
    return next(read_traces(Fetched("trace.jsonl", text.encode())))


def known_defect(
    subject: str, config: Mapping[str, Any], cause: Cause | None, needed: Collection[str]
) -> Defect | None:
    """Returns the row of the defect table that explains a violated property; None if there is none.

    `needed` are the rules that the trace needs (`needed_rules`). A row applies if the trace's config has the row's
    values of its rules (`Defect.changes`). The candidates are the rows that apply and name the violated property. The
    result is the first candidate of which all rules are needed, else the first of which a rule is needed. If no rule is
    needed (each of several suffices), the result is the first candidate.

    Exception: if rows that apply have exactly the needed rules, and none of them names the violated property, the
    result is None. The finding is then another consequence of their defects.
    """
    name = None if cause is None else cause.broken_property
    candidates = [row for row in _rows_of(subject, config) if row.property == name]
    exact = [row for row in _rows_of(subject, config) if set(row.rules) == set(needed)]
    if exact and not any(row.property == name for row in exact):
        return None
    has_only_needed, has_a_needed = set(needed).issuperset, set(needed).intersection
    for fits in (has_only_needed, has_a_needed, lambda _: not needed):
        for row in candidates:
            if fits(row.rules):
                return row
    return None


def related_defect(subject: str, config: Mapping[str, Any], needed: Collection[str]) -> Defect | None:
    """Returns a row of the defect table, of any property, with a rule that the trace needs; None if there is none.

    The finding may be another consequence of this defect. Rows of which all rules are needed are preferred, then rows
    with more rules.
    """
    rows = [row for row in _rows_of(subject, config) if not set(row.rules).isdisjoint(needed)]
    return min(rows, key=lambda row: (not set(row.rules).issubset(needed), -len(row.rules)), default=None)


def _rows_of(subject: str, config: Mapping[str, Any]) -> list[Defect]:
    """Returns the rows of a component's defect table that apply to a trace with this config (`known_defect`)."""
    rows = defects_of(subject)
    return [row for row in rows if all(config.get(rule) == value for rule, value in plain(row.changes()).items())]


def defect_record(row: Defect) -> KnownDefect:
    """Returns a row of the defect table as a record of a finding."""
    return KnownDefect(row.id, row.symptom, row.mechanism, row.consequence, row.severity, row.versions, row.link)


def grouped(findings: Iterable[ExplainedFinding]) -> list[list[ExplainedFinding]]:
    """Returns the findings in groups of one component, profile and cause. The shortest finding of a group is first."""
    groups: dict[tuple[str, str, str], list[ExplainedFinding]] = {}
    for each in sorted(findings, key=lambda f: (f.shrunk_length, f.seed)):
        groups.setdefault((each.subject, each.profile, each.cause), []).append(each)
    return [group for _, group in sorted(groups.items())]
