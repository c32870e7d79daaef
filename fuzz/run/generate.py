"""Generates the trace of a seed: a call is drawn in each state, by a random number generator with this seed.

Each argument has a domain of values, which may depend on the state (`fuzz/subject.py`). So a call is drawn in the state
in which it is executed. `PossibleCalls` draws a call for a trace, lists every call for the explorer, and gives the
Hypothesis state machine the domains in a state.

Most seeds give ordinary traces. A seed modulo 16, 32 or 64 selects the others: wide traces, in which some integers are
near limits (`fuzz/run/wide.py`); traces with bursts, which repeat a call, or a few calls in turn, 65 to 300 times
(`Bursts`); and long traces, of more than a thousand steps. A trace may be wide and have bursts. A trace with bursts has
wide values in its settings, but only a wide trace has them in its arguments.

The first numbers of a seed's generator choose the settings and the swarm (factors of the actions' weights,
`fuzz/subject.py`). The later numbers choose actions and arguments. Python's generator returns the same numbers for a
seed in every version of Python, so equal code gives equal traces.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from fuzz.run.call import Arguments, Call, copy_of
from fuzz.run.wide import Wide, is_legal, largest, leaves, with_leaf
from fuzz.subject import Domain, Subject
from model.machine import Action, BadValue, plain
from model.values import fit

#: The random number generator of a trace.
Rng = random.Random

#: The largest number of combinations of an action's arguments with fixed domains. They are listed, so that one draw
#: selects a combination.
_MAX_COMBINATIONS = 20_000
#: Length of the table from which a call is drawn, as a power of 2. Weights are rounded to multiples of 1 / length, and
#: every action with a positive weight has at least one entry. A longer table would not fit into the processor's cache.
_TABLE_BITS = 10
_TABLE = 1 << _TABLE_BITS

#: Divisor and remainders of the seeds of wide traces, of traces with bursts, and of long traces.
_WIDE = (16, (4, 15))
_BURSTS = (32, (12, 31))
_LONG = (64, (21,))
#: The kinds of traces repeat after this many seeds.
KINDS_EVERY = 64
#: The minimum number of steps of a long trace, and the number that bursts add to the subject's number of steps.
_LONG_STEPS, _BURST_STEPS = 1024, 640
#: Numbers of repetitions in a burst, near sizes of words, pages and queues. Half of the bursts draw one of these
#: numbers, the others any number from the smallest to the largest.
_REPETITIONS = (65, 100, 129, 200, 255, 256, 257, 300)
#: The largest number of calls that a burst repeats in turn, and the largest number of steps of a burst.
MAX_IN_TURN, _MAX_BURST = 3, 600
#: The probability that a burst begins at a step outside bursts.
_BEGINS = 1 / 64
#: The probabilities that a burst repeats several calls in turn, and that every second call of a burst is a step of the
#: system, such as the completion of a write.
_SEVERAL, _WITH_STEPS = 0.25, 0.25
#: The probabilities that the arguments of a repeated call are consecutive, and that they are drawn each time; otherwise
#: they are constant. Consecutive: one integer grows by 1 each time; with probability `_ALL`, every integer that can
#: grow does. If none can grow, the arguments are drawn.
_CONSECUTIVE, _ALL, _DRAWN = 0.6, 0.25, 0.25
#: The probability that a trace with bursts has the largest value of a drawn setting, if the setting bounds an argument,
#: as the number of transactions does, and the subject limits the setting (`largest`).
_LARGEST_SIZE = 0.25


class NoCall(BadValue):
    """Raised if no call can be drawn: no action has arguments in the state, or all weights are 0."""


class TracePlan(NamedTuple):
    """The choices before the first step of a trace."""

    seed: int
    config: Any
    swarm: str  # "" for none
    steps: int
    wide: bool = False  # whether some integers of the calls become wide values
    bursts: bool = False  # whether some calls are repeated


class ActionCalls:
    """The calls of one action.

    `fixed` has the domains that are the same in every state, `free` those that depend on the state, `listed` every
    combination of values of the fixed domains.
    """

    __slots__ = ("fixed", "free", "index", "listed", "name", "permutation", "run")

    def __init__(self, action: Action, index: int, domains: Sequence[Domain]) -> None:
        self.name = action.name
        self.run = action.run
        self.index = index
        self.fixed = [d for d in domains if isinstance(d, tuple)]
        self.free = [d for d in domains if not isinstance(d, tuple)]
        count = math.prod(len(d) for d in self.fixed)
        if count > _MAX_COMBINATIONS:
            raise BadValue(
                f"{action.name} has {count} combinations of fixed values, more than {_MAX_COMBINATIONS}; "
                "use smaller domains"
            )
        self.listed: list[Arguments] = [copy_of(each) for each in itertools.product(*self.fixed)]
        fixed_first = sorted(range(len(domains)), key=lambda i: not isinstance(domains[i], tuple))
        #: for each parameter, its index in a list with the fixed domains first, then the free ones; None if this is the
        #: order of the parameters
        self.permutation = (
            None if fixed_first == sorted(fixed_first) else [fixed_first.index(i) for i in range(len(domains))]
        )

    def domains(self, cfg: Any, state: Any) -> list[tuple[Any, ...]]:
        """Returns the values that each argument can take in this state, in the order of the parameters."""
        values = [*self.fixed, *[d(cfg, state) for d in self.free]]
        return values if self.permutation is None else [values[i] for i in self.permutation]

    def draw(self, cfg: Any, state: Any, rng: Rng) -> Arguments | None:
        """Returns drawn arguments for the action in this state; None if a free domain is empty.

        Raises IndexError if a fixed domain is empty.
        """
        arguments = self.listed[int(rng.random() * len(self.listed))]
        for domain in self.free:
            values = domain(cfg, state)
            if not values:
                return None
            arguments = (*arguments, values[int(rng.random() * len(values))])
        return arguments if self.permutation is None else tuple([arguments[i] for i in self.permutation])


#: A function that chooses a call in a state: it returns the action and the arguments.
Chooser = Callable[[Any], tuple[ActionCalls, Arguments]]
#: One entry of a table: an action and its arguments; None if the arguments are drawn later.
Choice = tuple[ActionCalls, Arguments | None]


def usable(domain: Domain, kind: Any, cfg: Any) -> Domain:
    """Returns a fixed domain without the values that the argument's annotated type does not allow.

    Bounds of the type may be settings of the config. A domain that depends on the state is returned unchanged.
    """
    if not isinstance(domain, tuple):
        return domain

    def fits(value: Any) -> bool:
        try:
            fit(kind, plain(value), "", cfg)
        except BadValue:
            return False
        return True

    return tuple(v for v in domain if fits(v))


class PossibleCalls:
    """Lists and draws the calls of a subject that are possible in a state.

    `domains` has the domain of each parameter of each action, in the machine's order. Configs under which the fixed
    domains have the same legal values share an instance.
    """

    def __init__(self, subject: Subject, domains: tuple[tuple[Domain, ...], ...]) -> None:
        self.subject = subject
        self.actions = {
            action.name: ActionCalls(action, i, domains[i]) for i, action in enumerate(subject.machine.actions.values())
        }
        self._tables: dict[tuple[str, str], list[Choice]] = {}

    def chooser(self, cfg: Any, swarm: str, rng: Rng) -> Chooser:
        """Returns a function that draws a call in a state, with the weights of a swarm ("" for none).

        The function raises NoCall if none of a thousand drawn actions has arguments in the state, or if all weights are
        0.
        """
        situation_of, bits = self.subject.situation, rng.getrandbits
        tables = _Tables(self, swarm)

        def choose(state: Any) -> tuple[ActionCalls, Arguments]:
            table = tables[situation_of(cfg, state)]
            choice = table[bits(_TABLE_BITS)]
            return choice if choice[1] is not None else draw(state, choice[0], table)  # type: ignore[return-value]

        def draw(state: Any, action: ActionCalls, table: list[Choice]) -> tuple[ActionCalls, Arguments]:
            arguments = action.draw(cfg, state, rng)
            attempts = 0
            while arguments is None:
                action, arguments = table[bits(_TABLE_BITS)]
                arguments = action.draw(cfg, state, rng) if arguments is None else arguments
                attempts += 1
                if attempts > 1000:
                    raise NoCall(f"{self.subject.name}: no action can be taken in {state}")
            return action, arguments

        return choose

    def every(self, cfg: Any, state: Any, names: tuple[str, ...] = ()) -> Iterator[Call]:
        """Yields every possible call in a state. With `names`, only the calls of the actions of these names."""
        for name, action in self.actions.items():
            if not names or name in names:
                for arguments in itertools.product(*action.domains(cfg, state)) if action.free else action.listed:
                    yield Call(name, arguments)

    def table(self, swarm: str, situation: str) -> list[Choice]:
        """Returns the table of `_TABLE` choices for a swarm and a situation: each action in proportion to its weight.

        If all domains of an action are fixed and their combinations fit into the action's share of the table, its
        choices have each combination in turn; otherwise their arguments are None. Raises NoCall if all weights are 0.
        """
        key = swarm, situation
        if key not in self._tables:
            self._tables[key] = self._make_table(swarm, situation)
        return self._tables[key]

    def _make_table(self, swarm: str, situation: str) -> list[Choice]:
        factors = [self.subject.swarms.get(swarm, {}), self.subject.in_situation.get(situation, {})]
        weights = {
            name: self.subject.weights.get(name, 1.0) * math.prod(f.get(name, 1.0) for f in factors)
            for name, action in self.actions.items()
            if action.listed  # empty if a fixed domain is empty
        }
        total = sum(weights.values())
        if not total:
            raise NoCall(f"{self.subject.name}: the weights of swarm {swarm or 'none'} leave no action")
        shares = {name: max(1, round(weight / total * _TABLE)) for name, weight in weights.items() if weight > 0}
        while sum(shares.values()) > _TABLE:
            shares[max(shares, key=lambda name: shares[name])] -= 1
        table: list[Choice] = []
        for name, share in shares.items():
            action = self.actions[name]
            is_listed = not action.free and len(action.listed) <= share
            arguments = itertools.cycle(action.listed) if is_listed else itertools.repeat(None)
            table += [(action, copy_of(next(arguments))) for _ in range(share)]
        # rounded shares may add up to less than `_TABLE`: the first entries are repeated
        return list(itertools.islice(itertools.cycle(table), _TABLE))


class _Tables(dict[str, list[Choice]]):
    """The tables of one swarm by situation, each made on first use."""

    def __init__(self, calls: PossibleCalls, swarm: str) -> None:
        self.calls = calls
        self.swarm = swarm

    def __missing__(self, situation: str) -> list[Choice]:
        self[situation] = table = self.calls.table(self.swarm, situation)
        return table


def possible_calls(subject: Subject, cfg: Any) -> PossibleCalls:
    """Returns the possible calls of a subject under a config. Cached, because making them takes milliseconds.

    Raises BadValue if an argument has no domain, or if an action has too many combinations of fixed values.
    """
    bounds = _bounds(subject)
    return _calls_within(subject, tuple([(name, getattr(cfg, name)) for name in bounds]))


@lru_cache(maxsize=64)
def _bounds(subject: Subject) -> tuple[str, ...]:
    """Returns the settings that bound an argument. The usable domains depend on no other field of the config."""
    return tuple(sorted(subject.machine.bounds))


@lru_cache(maxsize=256)
def _calls_within(subject: Subject, bounds: tuple[tuple[str, Any], ...]) -> PossibleCalls:
    cfg = SimpleNamespace(**dict(bounds))
    domains = [
        tuple([usable(subject.domain(action.name, p.name), p.annotation, cfg) for p in action.params])
        for action in subject.machine.actions.values()
    ]
    return _calls_of(subject, tuple(domains))


@lru_cache(maxsize=64)
def _calls_of(subject: Subject, domains: tuple[tuple[Domain, ...], ...]) -> PossibleCalls:
    return PossibleCalls(subject, domains)


def plan_trace(subject: Subject, profile_config: Any, seed: int, steps: int | None = None) -> tuple[TracePlan, Rng]:
    """Draws the choices before the first step. Returns them, and the random number generator for all later choices.

    A setting is drawn only if the profile leaves it at its default. `steps` replaces the trace's number of steps.
    """
    rng = random.Random(seed)  # noqa: S311
    drawn: dict[str, Any] = {name: values[int(rng.random() * len(values))] for name, values in subject.settings.items()}
    drawn = {name: drawn[name] for name in subject.drawn_settings(profile_config)}
    swarms = ["", *subject.swarms]
    swarm = swarms[int(rng.random() * len(swarms))]
    wide, bursts, is_long = [seed % divisor in remainders for divisor, remainders in (_WIDE, _BURSTS, _LONG)]
    if wide or bursts:
        # a setting that bounds an argument becomes wide only if the subject limits how large the setting may be
        kept = [name for name in _bounds(subject) if name not in subject.largest]
        others = {name: value for name, value in drawn.items() if name not in kept}
        drawn |= Wide(subject, profile_config, rng).settings(others)
    for name in drawn if bursts else ():
        if name in _bounds(subject) and name in subject.largest and rng.random() < _LARGEST_SIZE:
            drawn[name] = largest(subject, profile_config, "", name)
    usual = max(subject.steps, _LONG_STEPS) if is_long else subject.steps + _BURST_STEPS * bursts
    return TracePlan(seed, profile_config._replace(**drawn), swarm, steps or usual, wide, bursts), rng


def chooser(subject: Subject, plan: TracePlan, rng: Rng) -> Chooser:
    """Returns the function that draws the calls of a planned trace, with wide values and bursts if the plan has them.

    The function raises NoCall as described at `PossibleCalls.chooser`.
    """
    calls = possible_calls(subject, plan.config)
    choose = calls.chooser(plan.config, plan.swarm, rng)
    if plan.wide:
        choose = widened(choose, Wide(subject, plan.config, rng))
    return Bursts(subject, plan.config, calls, choose, rng).choose if plan.bursts else choose


def widened(choose: Chooser, wide: Wide) -> Chooser:
    """Returns a chooser that changes some integers in another chooser's arguments to wide values."""

    def choose_wide(state: Any) -> tuple[ActionCalls, Arguments]:
        action, arguments = choose(state)
        return action, wide.arguments(action.name, arguments) if arguments else arguments

    return choose_wide


class Bursts:
    """A chooser that sometimes repeats one action, or a few actions in turn, 65 to 300 times."""

    def __init__(self, subject: Subject, cfg: Any, calls: PossibleCalls, choose: Chooser, rng: Rng) -> None:
        self.subject = subject
        self.cfg = cfg
        self.actions = [action for action in calls.actions.values() if action.listed]
        self.is_fault = {name: action.fault for name, action in subject.machine.actions.items()}
        self.choose_one = choose
        self.rng = rng
        self.random = rng.random
        self.left = 0  # the number of steps left in the burst; 0 outside bursts
        self.repeated: list[Chooser] = []  # the choosers of the burst, which are called in turn

    def choose(self, state: Any) -> tuple[ActionCalls, Arguments]:
        """Returns the next call of the burst. Outside a burst, begins one or returns a call of the wrapped chooser."""
        if not self.left:
            if self.random() >= _BEGINS:
                return self.choose_one(state)
            self._begin(state)
        self.left -= 1
        return self.repeated[self.left % len(self.repeated)](state)

    def _begin(self, state: Any) -> None:
        """Begins a burst: draws the number of repetitions, and one or more calls to repeat in turn."""
        any_number = range(_REPETITIONS[0], _REPETITIONS[-1] + 1)
        repetitions = self._one_of(_REPETITIONS if self.random() < 0.5 else any_number)
        self.repeated = [self._repeating(*self._call_to_repeat(state), repetitions)]
        sample = self.random()
        if sample < _SEVERAL:
            for _ in range(1 + int(self.random() * (MAX_IN_TURN - 1))):
                self.repeated.append(self._repeating(*self.choose_one(state), repetitions))
        elif sample < _SEVERAL + _WITH_STEPS:
            self.repeated.append(self._step_of_the_system)
        self.left = min(repetitions * len(self.repeated), _MAX_BURST)

    def _step_of_the_system(self, state: Any) -> tuple[ActionCalls, Arguments]:
        """Draws eight calls. Returns the first without arguments that is no fault: usually a step of the system.

        If there is none, returns the first of the eight.
        """
        calls = [self.choose_one(state) for _ in range(8)]
        return next((call for call in calls if not call[1] and not self.is_fault[call[0].name]), calls[0])

    def _call_to_repeat(self, state: Any) -> tuple[ActionCalls, Arguments]:
        """Returns a call of any action, with equal weights, or with probability 1/2 a call of the wrapped chooser.

        If the drawn action has no arguments in the state, also returns a call of the wrapped chooser.
        """
        if self.random() < 0.5:
            action = self._one_of(self.actions)
            arguments = action.draw(self.cfg, state, self.rng)
            if arguments is not None:
                return action, arguments
        return self.choose_one(state)

    def _repeating(self, action: ActionCalls, arguments: Arguments, repetitions: int) -> Chooser:
        """Returns a chooser that repeats an action, with consecutive, drawn or constant arguments.

        Drawn arguments are replaced by `arguments` in a state in which a domain is empty.
        """
        sample = self.random()
        if arguments and sample < _CONSECUTIVE:
            paths = list(self._integers(action.name, arguments, repetitions))
            if paths:
                return _consecutive(action, arguments, paths if self.random() < _ALL else [self._one_of(paths)])
        if arguments and sample < _CONSECUTIVE + _DRAWN:
            return lambda state: (action, action.draw(self.cfg, state, self.rng) or arguments)
        return lambda state: (action, copy_of(arguments))

    def _integers(self, action: str, arguments: Arguments, increments: int) -> Iterator[tuple[int, ...]]:
        """Yields the paths of the integers in arguments that may grow by this number of increments."""
        for i, (param, argument) in enumerate(zip(self.subject.machine.actions[action].params, arguments, strict=True)):
            for leaf in leaves(param.annotation, argument, param.name):
                top = leaf.value + increments
                if top <= largest(self.subject, self.cfg, action, leaf.name) and is_legal(leaf.kind, top, self.cfg):
                    yield (i, *leaf.path)

    def _one_of(self, values: Sequence[Any]) -> Any:
        return values[int(self.random() * len(values))]


def _consecutive(action: ActionCalls, arguments: Arguments, paths: Sequence[tuple[int, ...]]) -> Chooser:
    """Returns a chooser that repeats an action and increments the integers at these paths of its arguments."""
    times = itertools.count()

    def choose(_state: Any) -> tuple[ActionCalls, Arguments]:
        given, by = arguments, next(times)
        for path in paths:
            number: Any = arguments
            for i in path:
                number = number[i]
            given = with_leaf(given, path, number + by)
        return action, given

    return choose


def generate(subject: Subject, profile_config: Any, seed: int, steps: int | None = None) -> Iterator[Call]:
    """Yields the calls of a seed's trace. Only the model executes them; an exception of the model is raised.

    Lockstep generates the same calls in its own loop.
    """
    plan, rng = plan_trace(subject, profile_config, seed, steps)
    choose = chooser(subject, plan, rng)
    state = subject.machine.start(plan.config)
    for _ in range(plan.steps):
        chosen, arguments = choose(state)
        yield Call(chosen.name, arguments)
        state, _outcome = chosen.run(plan.config, state, *arguments)
