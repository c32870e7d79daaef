"""Generates the trace of a seed.

One decoder turns choices into calls. A seeded generator makes the choices in the fast loop, Hypothesis in its state
machine, and the explorer takes all of them. The domains of arguments depend on the state, so a trace is generated while
it runs.

The first numbers of a seed's generator choose the settings and the swarm; the others choose actions and arguments, one
or two numbers a step. Python documents that a seeded generator returns the same floats in every version, so a seed
gives the same trace wherever the code is the same.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from fuzz.run.call import Arguments, Call, copy_of
from fuzz.subject import Domain, Subject
from model.machine import Action, BadValue, plain
from model.values import fit, settings_named

#: The source of choices: a seeded generator, or a substitute.
Chance = random.Random

#: The largest number of combinations of fixed arguments; all are listed, so that one draw chooses among them.
_MOST_LISTED = 20_000
#: Length of the table from which a call is drawn; weights are rounded to multiples of 1 / length. A longer table does
#: not fit the processor's cache.
_TABLE_BITS = 10
_TABLE = 1 << _TABLE_BITS


class Recipe(NamedTuple):
    """The choices of a trace that precede its first step."""

    seed: int
    config: Any
    swarm: str
    steps: int


class ActionPlan:
    """Draws the arguments of one action: fixed domains are listed, the others are evaluated in the state."""

    __slots__ = ("fixed", "free", "index", "listed", "name", "order", "run")

    def __init__(self, action: Action, index: int, domains: Sequence[Domain]) -> None:
        self.name = action.name
        self.run = action.run
        self.index = index
        self.fixed = [d for d in domains if isinstance(d, tuple)]
        self.free = [d for d in domains if not isinstance(d, tuple)]
        count = math.prod(len(d) for d in self.fixed)
        if count > _MOST_LISTED:
            raise BadValue(
                f"{action.name} has {count} fixed argument lists, more than {_MOST_LISTED}; give it smaller domains"
            )
        self.listed: list[Arguments] = [copy_of(each) for each in itertools.product(*self.fixed)]
        fixed_first = sorted(range(len(domains)), key=lambda i: not isinstance(domains[i], tuple))
        #: where each parameter's value stands when the fixed ones come first; None if they do anyway
        self.order = None if fixed_first == sorted(fixed_first) else [fixed_first.index(i) for i in range(len(domains))]

    def domains(self, cfg: Any, state: Any) -> list[tuple[Any, ...]]:
        """The values that each argument can take in this state, in the order of the parameters."""
        values = [*self.fixed, *[d(cfg, state) for d in self.free]]
        return values if self.order is None else [values[i] for i in self.order]

    def draw(self, cfg: Any, state: Any, chance: Chance) -> Arguments | None:
        """Arguments for the action in this state, or None if it has none to take."""
        arguments = self.listed[int(chance.random() * len(self.listed))]
        for domain in self.free:
            values = domain(cfg, state)
            if not values:
                return None
            arguments = (*arguments, values[int(chance.random() * len(values))])
        return arguments if self.order is None else tuple([arguments[i] for i in self.order])


#: One entry of a table: an action, and its arguments unless they are to be drawn from the state.
Choice = tuple[ActionPlan, Arguments | None]


def usable(domain: Domain, kind: Any, cfg: Any) -> Domain:
    """The domain of an argument; of a fixed one, only the values that the config allows."""
    if not isinstance(domain, tuple):
        return domain

    def fits(value: Any) -> bool:
        try:
            fit(kind, plain(value), "", cfg)
        except BadValue:
            return False
        return True

    return tuple(v for v in domain if fits(v))


class Decoder:
    """Turns choices into actions of one subject, for all configs that allow the same fixed arguments."""

    def __init__(self, subject: Subject, domains: tuple[tuple[Domain, ...], ...]) -> None:
        self.subject = subject
        self.plans = {
            action.name: ActionPlan(action, i, domains[i]) for i, action in enumerate(subject.machine.actions.values())
        }
        self._tables: dict[tuple[str, str], list[Choice]] = {}

    def chooser(self, cfg: Any, swarm: str, chance: Chance) -> Callable[[Any], tuple[ActionPlan, Arguments]]:
        """A function from a state to an action's plan and its arguments.

        It raises BadValue when no action has arguments in a state.
        """
        situation_of, bits = self.subject.situation, chance.getrandbits
        tables = _Tables(self, swarm)

        def choose(state: Any) -> tuple[ActionPlan, Arguments]:
            choice = tables[situation_of(cfg, state)][bits(_TABLE_BITS)]
            return choice if choice[1] is not None else draw(state, choice[0])  # type: ignore[return-value]

        def draw(state: Any, plan: ActionPlan) -> tuple[ActionPlan, Arguments]:
            arguments = plan.draw(cfg, state, chance)
            attempts = 0
            while arguments is None:
                plan, arguments = tables[situation_of(cfg, state)][bits(_TABLE_BITS)]
                arguments = plan.draw(cfg, state, chance) if arguments is None else arguments
                attempts += 1
                if attempts > 1000:
                    raise BadValue(f"{self.subject.name}: no action can be taken in {state}")
            return plan, arguments

        return choose

    def every(self, cfg: Any, state: Any, actions: tuple[str, ...] = ()) -> Iterator[Call]:
        """Every action with every combination of arguments that the domains give in this state."""
        for name, plan in self.plans.items():
            if not actions or name in actions:
                for arguments in itertools.product(*plan.domains(cfg, state)) if plan.free else plan.listed:
                    yield Call(name, arguments)

    def table(self, swarm: str, situation: str) -> list[Choice]:
        """What to draw from: every action as often as its weight says, with each of its fixed arguments in turn."""
        key = swarm, situation
        if key not in self._tables:
            self._tables[key] = self._make_table(swarm, situation)
        return self._tables[key]

    def _make_table(self, swarm: str, situation: str) -> list[Choice]:
        factors = [self.subject.swarms.get(swarm, {}), self.subject.in_situation.get(situation, {})]
        weights = {
            name: self.subject.weights.get(name, 1.0) * math.prod(f.get(name, 1.0) for f in factors)
            for name, plan in self.plans.items()
            if plan.listed
        }
        total = sum(weights.values())
        if not total:
            raise BadValue(f"{self.subject.name}: the weights of swarm {swarm or 'none'} leave no action")
        table: list[Choice] = []
        for name, weight in weights.items():
            if weight > 0:
                plan, share = self.plans[name], max(1, round(weight / total * _TABLE))
                is_listed = not plan.free and len(plan.listed) <= share
                arguments = itertools.cycle(plan.listed) if is_listed else itertools.repeat(None)
                table += [(plan, copy_of(next(arguments))) for _ in range(share)]
        return list(itertools.islice(itertools.cycle(table), _TABLE))


class _Tables(dict[str, list[Choice]]):
    """The tables of one swarm by situation, each made when it is first asked for."""

    def __init__(self, decoder: Decoder, swarm: str) -> None:
        self.decoder = decoder
        self.swarm = swarm

    def __missing__(self, situation: str) -> list[Choice]:
        self[situation] = table = self.decoder.table(self.swarm, situation)
        return table


def decoder(subject: Subject, cfg: Any) -> Decoder:
    """The decoder of a subject under a config. Making one costs milliseconds, so they are kept."""
    bounds = _bounds(subject)
    return _decoder_within(subject, tuple([(name, getattr(cfg, name)) for name in bounds]))


@lru_cache(maxsize=64)
def _bounds(subject: Subject) -> tuple[str, ...]:
    """The settings that bound an argument: a decoder depends on no others."""
    kinds = [p.kind for a in subject.machine.actions.values() for p in a.params]
    return tuple(sorted({name for kind in kinds for name in settings_named(kind)}))


@lru_cache(maxsize=256)
def _decoder_within(subject: Subject, bounds: tuple[tuple[str, Any], ...]) -> Decoder:
    cfg = SimpleNamespace(**dict(bounds))
    actions = subject.machine.actions.values()
    return _decoder(
        subject, tuple(tuple(usable(subject.domain(a.name, p.name), p.kind, cfg) for p in a.params) for a in actions)
    )


@lru_cache(maxsize=64)
def _decoder(subject: Subject, domains: tuple[tuple[Domain, ...], ...]) -> Decoder:
    return Decoder(subject, domains)


def recipe(subject: Subject, profile_config: Any, seed: int, steps: int | None = None) -> tuple[Recipe, random.Random]:
    """What the seed decides before the first step, and the generator that decides the rest.

    A setting is drawn only where the profile leaves it at its default: what a profile says, stays.
    """
    rng = random.Random(seed)  # noqa: S311
    drawn: Mapping[str, Any] = {
        name: values[int(rng.random() * len(values))] for name, values in subject.settings.items()
    }
    defaults = subject.machine.config._field_defaults
    drawn = {name: value for name, value in drawn.items() if getattr(profile_config, name) == defaults[name]}
    swarms = ["", *subject.swarms]
    swarm = swarms[int(rng.random() * len(swarms))]
    return Recipe(seed, profile_config._replace(**drawn), swarm, steps or subject.steps), rng


def generate(subject: Subject, profile_config: Any, seed: int, steps: int | None = None) -> Iterator[Call]:
    """The actions of a seed, run on the model alone. The lockstep engine does the same in its own loop."""
    plan, rng = recipe(subject, profile_config, seed, steps)
    choose = decoder(subject, plan.config).chooser(plan.config, plan.swarm, rng)
    state = subject.machine.start(plan.config)
    for _ in range(plan.steps):
        chosen, arguments = choose(state)
        yield Call(chosen.name, arguments)
        state, _outcome = chosen.run(plan.config, state, *arguments)
