"""Schedules: generated from a seed, executed on the real client, judged by contracts.

A schedule has settings, and a list of steps of brokers and application. A scenario says which settings and steps its
schedules may have, and which contracts the client must keep. The value `scenario` of a module of `fuzz/scenarios/` is a
scenario, and has the module's name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec

from fuzz.answers.judge import differences
from fuzz.client.contracts import Contract
from fuzz.client.harness import Harness, HarnessFailed
from fuzz.client.run import PATIENCE, Observed, Run, observe
from fuzz.platform.json import from_json, to_json
from fuzz.trace.file import content_name
from model.machine import BadValue


class StepKind(NamedTuple):
    """A kind of step that a schedule may have."""

    run: Callable[..., None]  # (run, *arguments) -> None; executes the step
    domains: tuple[tuple[Any, ...], ...] = ()  # the domain of each argument, the simplest value first
    weight: int = 1  # relative frequency


class Scenario(NamedTuple):
    """A kind of schedule: the settings and steps that a schedule may have, and the contracts of the client."""

    name: str
    settings: Mapping[str, tuple[Any, ...]]  # the domain of each setting, the simplest value first
    steps: Mapping[str, StepKind]
    begin: Callable[[Run], None]  # is called before the first step
    end: Callable[[Run], None]  # is called after the last step
    contracts: tuple[Contract, ...]  # the most severe contract first
    length: int = 12  # the maximum number of steps in a schedule
    #: whether contracts on times judge a run; if not, because the machine was busy, these contracts are not violated
    judges_times: Callable[[Observed], bool] = lambda seen: True

    @property
    def about(self) -> str:
        """The first line of the scenario's module."""
        return (_module(self.name).__doc__ or "").partition("\n")[0]


class Schedule(NamedTuple):
    """Settings, and steps with their arguments."""

    settings: dict[str, Any]
    steps: tuple[tuple[Any, ...], ...]  # each step: its name, then its arguments

    def text(self) -> list[str]:
        """Returns the steps as texts such as `send(3)`."""
        return [f"{name}({', '.join(str(each) for each in arguments)})" for name, *arguments in self.steps]


class File(msgspec.Struct, forbid_unknown_fields=True):
    """The content of a schedule's file. Only a finding of a campaign has the last three fields."""

    scenario: str
    settings: dict[str, Any]
    steps: list[list[Any]]
    trace: str = ""  # the finding's id
    contract: str = ""  # the contract that the schedule violates
    defect: str | None = None  # the id of the known defect that explains the violation; None: none does


def write_schedule(path: Path, scenario: str, schedule: Schedule) -> None:
    """Writes a schedule of a scenario as JSON. Creates the folders of the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(to_json({"scenario": scenario, **schedule._asdict()}, indent=True))


def schedule_text(scenario: str, schedule: Schedule, contract: str, defect: str | None) -> str:
    """Returns a schedule that violates a contract as a line of JSON, for a campaign. `File` describes the arguments."""
    about = {"scenario": scenario, **schedule._asdict(), "contract": contract, "defect": defect}
    return to_json({"trace": f"{scenario}/{content_name(to_json(about))}", **about}).decode() + "\n"


def parse_schedule(text: bytes | str) -> File:
    """Returns the content of a schedule's file. Raises ValueError if it is no JSON object with these fields."""
    return msgspec.convert(from_json(text), File)


def read_schedule(path: Path, scenario: Scenario) -> Schedule:
    """Reads a schedule of a scenario. Raises BadValue if the file cannot be read or has no such schedule."""
    try:
        file = parse_schedule(path.read_bytes())
        if file.scenario != scenario.name:
            raise ValueError(f"it is a schedule of {file.scenario}")
        for name, value in file.settings.items():
            if name not in scenario.settings:
                raise ValueError(f"{scenario.name} has no setting {name}")
            if value not in scenario.settings[name]:
                raise ValueError(f"{name} is one of {scenario.settings[name]}, got {value}")
        for step in file.steps:
            name, *arguments = step or [""]
            if not isinstance(name, str) or name not in scenario.steps:
                raise ValueError(f"{scenario.name} has no step {name}")
            domains = scenario.steps[name].domains
            if len(arguments) != len(domains) or any(a not in d for a, d in zip(arguments, domains, strict=True)):
                raise ValueError(f"{name} takes values of {domains}, got {arguments}")
    except OSError as problem:
        raise BadValue(f"{path}: cannot be read: {problem.strerror}") from None
    except ValueError as problem:
        raise BadValue(f"{path}: no schedule of {scenario.name}: {problem}") from None
    return Schedule(file.settings, tuple(tuple(step) for step in file.steps))


class Violation(NamedTuple):
    """A contract that a run violates, and how."""

    contract: Contract
    message: str


def scenario_names() -> list[str]:
    """Returns the names of the scenarios."""
    names = [each.name for each in pkgutil.iter_modules(importlib.import_module("fuzz.scenarios").__path__)]
    return [name for name in names if hasattr(_module(name), "scenario")]


def _module(name: str) -> Any:
    return importlib.import_module(f"fuzz.scenarios.{name}")


def find_scenario(name: str) -> Scenario:
    """Returns the scenario of that name. Raises BadValue if there is none."""
    if name not in scenario_names():
        raise BadValue(f"there is no scenario {name}; there are {', '.join(scenario_names())} and all")
    scenario: Scenario = _module(name).scenario
    return scenario


def generate(scenario: Scenario, seed: int) -> Schedule:
    """Returns the schedule of a seed.

    The steps are drawn from the scenario's first kind of step and about half of its other kinds. So a kind of step that
    triggers a frequent defect is missing in about half of the schedules, and other defects show.
    """
    random = Random(seed)  # noqa: S311
    settings = {name: random.choice(values) for name, values in scenario.settings.items()}
    first, *others = scenario.steps
    kinds = [first, *[name for name in others if random.random() < 0.5]]
    weights = [scenario.steps[name].weight for name in kinds]
    names = random.choices(kinds, weights, k=random.randint(3, scenario.length))
    steps = [(name, *[random.choice(domain) for domain in scenario.steps[name].domains]) for name in names]
    return Schedule(settings, tuple(steps))


def execute(harness: Harness, scenario: Scenario, schedule: Schedule, patience: float = PATIENCE) -> Observed:
    """Runs a schedule. Returns the observation. A setting that the schedule lacks has its simplest value.

    The run waits for an effect for at most `patience` seconds. A crash or hang of the client is in the observation.
    Raises HarnessFailed if the brokers or the driver fail, or if a decision of the brokers differs from the models'.
    """
    settings = {name: values[0] for name, values in scenario.settings.items()} | schedule.settings

    def function_of(name: str, *arguments: Any) -> Callable[[Run], None]:
        return lambda run: scenario.steps[name].run(run, *arguments)

    steps = [function_of(*step) for step in schedule.steps]
    observed = observe(harness, settings, [scenario.begin, *steps, scenario.end], patience)
    wrong = differences(observed.report, deduplication=bool(settings.get("deduplication")))
    if wrong:
        raise HarnessFailed(f"the brokers differ from the models in {schedule}: {wrong[0]}")
    return observed


def violations(scenario: Scenario, observed: Observed) -> list[Violation]:
    """Returns the violations of a run; only the first one if the client crashed or hung."""
    found = []
    for contract in scenario.contracts:
        message = contract.check(observed)
        if message:
            found.append(Violation(contract, message))
            if observed.crash or observed.hang:
                break
    return found
