"""The explanation of a finding about a real client: its schedule, and the contract that it violates."""

from __future__ import annotations

import inspect

from fuzz.campaign.worker import FindingRow
from fuzz.client.known import known_deviations
from fuzz.client.schedule import Scenario, find_scenario, parse_schedule
from fuzz.report.finding import with_explanation
from fuzz.report.records import ExplainedFinding, Explanation, Step


def explained(found: FindingRow, path: str) -> ExplainedFinding:
    """Returns a finding of a campaign with its explanation. `path` is the file of its schedule."""
    file = parse_schedule(found.trace)
    scenario = find_scenario(file.scenario)
    guarantees = {each.name: each.guarantee for each in scenario.contracts}
    defects = {row.defect.id: row.defect for row in known_deviations()}
    # the settings are shown as a first step
    steps = [("begin", file.settings), *[(name, _named(scenario, name, values)) for name, *values in file.steps]]
    explanation = Explanation(
        kind=None,
        guarantee=guarantees.get(file.contract, ""),
        steps=[Step(name, arguments, None, None, differs=False, changes=[]) for name, arguments in steps],
        conditions=[],
        problem=found.message,
    )
    replay = f"brokerproof client {file.scenario} --trace {path}"
    return with_explanation(found, path, explanation, defects.get(file.defect or ""), replay)


def _named(scenario: Scenario, step: str, values: list[object]) -> dict[str, object]:
    """Returns the arguments of a step by name. The first parameter of its function is the run."""
    _, *names = inspect.signature(scenario.steps[step].run).parameters
    return dict(zip(names, values, strict=True))
