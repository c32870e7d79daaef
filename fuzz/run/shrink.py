"""Shrinking: finds a short counterexample with the cause of a finding (`Cause`, `fuzz/run/finding.py`).

Delta debugging over calls, arguments and settings. An argument whose domain depends on the state is represented by its
rank in the domain ("the second open transaction"), because generated names change when an earlier call is removed.
These changes of the counterexample are tried, in this order, until none is accepted:

    remove calls     repetitions, as bursts have them; chunks of calls, from half of the trace down to single calls
    move earlier     move one call to an earlier index, if the cause then shows earlier
    simplify         each argument and setting to a value earlier in its domain, in one call or in all calls with this
                     value; wide integers (`fuzz/run/wide.py`) to small ones
    remove pairs     of calls
    merge            replace two neighbouring calls by any one call; not in very short counterexamples, where
                     "substitute" does this, too
    end earlier      replace a call by any other, and remove all calls after it
    trade            remove one call, and change one argument of another call, or one setting
    fewer arguments  replace a call by one of an action with fewer arguments
    order            swap neighbouring calls into the machine's order of actions, so that equal causes get equal
                     signatures
    substitute       remove one call, and replace another call by any other; in very short counterexamples only

"Merge", "fewer arguments" and "order" leave the last call, which shows the cause, as it is. A change is accepted if the
changed counterexample has the same cause. The budget counts executed steps, not time, so equal findings give equal
shrunk traces, unless a deadline ends shrinking early or a step needs about as much time as a hang.

Shrinking ends in a local minimum, unless the budget or the deadline ends it earlier. `shortest` also shrinks findings
of the same cause from other seeds, and returns the shortest.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from fuzz.run.call import Arguments, Call
from fuzz.run.finding import Cause, Finding, Kind
from fuzz.run.generate import MAX_IN_TURN, possible_calls
from fuzz.run.lockstep import Lockstep
from fuzz.run.pair import Pair, load_difference
from fuzz.run.replay import replay, skipped_for
from fuzz.run.watchdog import HANG_SECONDS, Hang, time_limit, watchdog
from fuzz.run.wide import WIDTHS, Leaf, is_legal, leaves, with_leaf
from fuzz.target import Target

#: The number of steps after which shrinking one finding ends: a few seconds.
BUDGET_STEPS = 120_000
#: `HANG_SECONDS` while a hang is shrunk. This time is shorter, because each candidate that hangs takes this long.
_HANG_SECONDS_OF_A_HANG = HANG_SECONDS / 20
#: Calls are substituted only in counterexamples with at most this many steps: each call has hundreds of substitutes.
_MAX_STEPS_TO_SUBSTITUTE = 6
#: The changes "move earlier", "merge", "end earlier", "trade", "fewer arguments" and "order" are tried in
#: counterexamples with at most this many steps.
_MAX_STEPS_TO_TRADE = 24
#: A repetition is a row of consecutive calls in which every call, every second or every third (up to `MAX_IN_TURN`) is
#: of one action, and which has at least this many calls. Shrinking first tries to remove the whole repetition.
_MIN_REPETITION = 16
#: Limits of `shortest`: steps of the search for further findings, number of findings that are shrunk, steps for each.
_SEARCH_STEPS, _SEARCH_FINDINGS, _SEARCH_BUDGET = 50_000, 6, 20_000
#: Integers towards which wide ones are shrunk, the smallest first.
_SIMPLE = tuple(sorted({0, 1, 2, *[(1 << width) + by for width in WIDTHS for by in (-1, 0, 1)]}))


class Rank(NamedTuple):
    """Stands for the value that has this index in the argument's domain, in the state before the call."""

    rank: int


#: The name of an action and its arguments. A rank stands for an argument whose domain depends on the state.
SymbolicCall = tuple[str, Arguments]


class Candidate(NamedTuple):
    """A changed counterexample, which is tried: a config and calls."""

    config: Any
    steps: tuple[SymbolicCall, ...]


class _BudgetExhausted(Exception):
    """The budget is used up, or the deadline has passed."""


class Shrinker:
    """Shrinks one finding of a target. `budget_steps` and `until` are those of `shrink`."""

    def __init__(self, target: Target, finding: Finding, budget_steps: int, until: float | None) -> None:
        self.target = target
        self.subject = subject = target.subject
        self.cause: Cause = finding.cause
        self.skipped = skipped_for(target, finding)
        self.seed = finding.seed
        self.steps_left = budget_steps
        self.until = until
        self.hang_seconds = _HANG_SECONDS_OF_A_HANG if finding.cause.kind is Kind.HANG else HANG_SECONDS
        #: action -> its index in the machine's order
        self.order_of = {name: i for i, name in enumerate(subject.machine.actions)}
        #: the settings that may change: another value of a setting of the profile would show something else
        self.settings = subject.drawn_settings(target.config)
        self.tried: set[Candidate] = set()
        self.original = finding
        #: the last accepted counterexample, as a finding and as a candidate
        self.best = finding
        self.candidate = Candidate(finding.config, self._symbolic(finding))

    def run(self) -> Finding:
        """Returns the shrunk finding, or the original one if a replay does not confirm the shrunk one."""
        try:
            self._accept(self.candidate)
            before = None
            while before != (before := self.candidate):  # until a round of all changes has accepted none
                self._remove_repetitions()
                self._remove_chunks()
                self._move_earlier()
                self._simplify()
                self._remove_pairs()
                self._merge()
                self._end_earlier()
                self._trade()
                self._use_fewer_arguments()
                self._order()
                self._substitute()
        except _BudgetExhausted:
            pass
        final = replay(self.target.with_config(self.best.config), self.best.calls, seed=self.seed, skipped=self.skipped)
        return final if final is not None and final.cause == self.cause else self.original

    # ---- trying

    def _accept(self, candidate: Candidate, *, only_shorter: bool = False) -> bool:
        """Executes a candidate, and keeps it if its cause is the same. Returns whether the candidate was kept.

        A candidate that was tried before is not executed and not kept. With `only_shorter`, the candidate is kept only
        if its cause shows after fewer steps than the cause of the best one.
        """
        if candidate in self.tried:
            return False
        self.tried.add(candidate)
        finding = self._execute(candidate)
        if finding is None or finding.cause != self.cause:
            return False
        if only_shorter and len(finding.calls) >= len(self.candidate.steps):
            self.tried.discard(candidate)  # `_order` may try this candidate again
            return False
        self.best = finding
        self.candidate = Candidate(candidate.config, self._symbolic(finding))
        self.tried.add(self.candidate)
        return True

    def _execute(self, candidate: Candidate) -> Finding | None:
        """Executes a candidate with every step checked. Returns the finding, or None.

        Ranks are replaced by the values at these indices; a call is left out if the domain of a rank is empty. Raises
        _BudgetExhausted if the deadline has passed before, or if there is no finding and the budget is used up.
        """
        if self.until is not None and time.monotonic() >= self.until:
            raise _BudgetExhausted
        calls: list[Call] = []
        target = self.target.with_config(candidate.config)
        try:
            with watchdog(time_limit(len(candidate.steps), self.hang_seconds)):
                pair = Pair(target, self.skipped)
                for name, symbolic in candidate.steps:
                    arguments = self._arguments(candidate.config, pair.state, name, symbolic)
                    if arguments is None:
                        continue
                    self.steps_left -= 1
                    calls.append(Call(name, arguments))
                    difference = pair.step(calls[-1].copy())
                    if difference is not None:
                        return Finding(candidate.config, tuple(calls), difference, self.seed)
                if self.cause.kind is Kind.LOAD and calls:
                    difference = load_difference(target, calls)
                    if difference is not None:
                        return Finding(candidate.config, tuple(calls), difference, self.seed)
        except Hang:  # the replay says whether the candidate hangs again, and at which call
            if calls and self.steps_left > 0:
                return replay(target, calls, seed=self.seed, hang_seconds=self.hang_seconds, skipped=self.skipped)
        if self.steps_left <= 0:
            raise _BudgetExhausted
        return None

    def _arguments(self, cfg: Any, state: Any, name: str, symbolic: Arguments) -> Arguments | None:
        """Returns the arguments with each rank replaced by its value in a state; None if the domain of a rank is empty.

        A rank beyond the end of the domain stands for the last value.
        """
        if not any(isinstance(a, Rank) for a in symbolic):
            return symbolic
        values = []
        for argument, domain in zip(
            symbolic, possible_calls(self.subject, cfg).actions[name].domains(cfg, state), strict=True
        ):
            if not isinstance(argument, Rank):
                values.append(argument)
            elif domain:
                values.append(domain[min(argument.rank, len(domain) - 1)])
            else:
                return None
        return tuple(values)

    def _symbolic(self, finding: Finding) -> tuple[SymbolicCall, ...]:
        """Returns the calls of a finding, with a rank for each argument from a domain that depends on the state."""
        machine, cfg = self.subject.machine, finding.config
        actions = possible_calls(self.subject, cfg).actions
        steps, state = [], machine.start(cfg)
        for number, (name, arguments) in enumerate(finding.calls, 1):
            action = actions[name]
            if action.free:
                free = [not isinstance(self.subject.domain(name, p.name), tuple) for p in machine.actions[name].params]
                domains = action.domains(cfg, state)
                ranked = [
                    Rank(values.index(a)) if is_free and a in values else a
                    for a, values, is_free in zip(arguments, domains, free, strict=True)
                ]
                steps.append((name, tuple(ranked)))
            else:
                steps.append((name, arguments))
            if number < len(finding.calls):  # at the last call, the model itself may raise or hang
                state, _ = machine.step(cfg, state, name, arguments)
        return tuple(steps)

    def _state_before(self, base: Candidate, index: int) -> Any:
        """Returns the model's state before the call at an index; None if the model raises or hangs before it."""
        state = self.subject.machine.start(base.config)
        try:
            with watchdog(time_limit(index, self.hang_seconds)):
                for name, symbolic in base.steps[:index]:
                    arguments = self._arguments(base.config, state, name, symbolic)
                    if arguments is not None:
                        state, _ = self.subject.machine.step(base.config, state, name, arguments)
        except (Hang, Exception):
            return None
        return state

    # ---- removing

    def _without(self, removed: Iterable[int]) -> Candidate:
        dropped = set(removed)
        steps = tuple(s for i, s in enumerate(self.candidate.steps) if i not in dropped)
        return self.candidate._replace(steps=steps)

    def _remove_repetitions(self) -> None:
        """Removes repetitions, from the last one to the first. Shortens by bisection those that cannot be removed."""
        for start, end in reversed(self._repetitions()):
            self._accept(self._without(range(start, end)))
        for start, end in reversed(self._repetitions()):
            left, size = end - start, (end - start) // 2
            while size and start + left <= len(self.candidate.steps):
                if self._accept(self._without(range(start + left - size, start + left))):
                    left -= size
                size //= 2

    def _repetitions(self) -> list[tuple[int, int]]:
        """Returns the bounds [start, end) of each repetition."""
        names = [name for name, _ in self.candidate.steps]
        found, start = [], 0
        while start < len(names):
            ends = (_end_of_repetition(names, start, interval) for interval in range(1, MAX_IN_TURN + 1))
            end = next((each for each in ends if each - start >= _MIN_REPETITION), None)
            if end is not None:
                found.append((start, end))
            start = start + 1 if end is None else end
        return found

    def _end_earlier(self) -> None:
        """Finds the earliest call in whose place another call shows the cause. Ends the trace with that other call."""
        if len(self.candidate.steps) <= _MAX_STEPS_TO_TRADE:
            for index in range(len(self.candidate.steps) - 1):
                if any(self._accept(c._replace(steps=c.steps[: index + 1])) for c in self._replacements(index, None)):
                    return

    def _remove_chunks(self) -> None:
        """Removes chunks of consecutive calls, from half of the trace down to single calls.

        Chunks of one size are tried from the end of the trace to its beginning.
        """
        size = max(1, len(self.candidate.steps) // 2)
        while size:
            start = len(self.candidate.steps) - size
            while start >= 0:
                self._accept(self._without(range(start, start + size)))
                start -= size
                start = min(start, len(self.candidate.steps) - size)
            size //= 2

    def _remove_pairs(self) -> None:
        """Removes pairs of calls, also of calls that are not neighbours, if the budget suffices to try all pairs."""
        again = True
        while again:
            count = len(self.candidate.steps)
            if count**3 > self.steps_left:  # the steps of all pairs' candidates are about count**3 / 2
                return
            pairs = itertools.combinations(range(count), 2)
            again = any(self._accept(self._without(pair)) for pair in pairs)

    def _move_earlier(self) -> None:
        """Moves one call to an earlier index, if the cause then shows after fewer steps.

        The calls after the step that shows the cause are removed.
        """
        again = len(self.candidate.steps) <= _MAX_STEPS_TO_TRADE
        while again:
            steps = self.candidate.steps
            moved = (
                self.candidate._replace(steps=(*steps[:to], steps[at], *steps[to:at], *steps[at + 1 :]))
                for at in reversed(range(1, len(steps)))
                for to in range(at)
            )
            again = any(self._accept(each, only_shorter=True) for each in moved)

    # ---- simplifying

    def _simplify(self) -> None:
        """Simplifies the settings, then values in all calls, then the arguments of each call."""
        for name, values in self.settings.items():
            any(self._accept(c) for c in self._simpler_setting(name, values))  # ends at the first that is accepted
        while any(self._accept(c) for c in self._renamed()):
            pass
        index = 0
        while index < len(self.candidate.steps):
            improved = True
            while improved and index < len(self.candidate.steps):
                improved = any(self._accept(c) for c in self._variants(self.candidate, index, only_simpler=True))
            index += 1

    def _simpler_setting(self, name: str, values: tuple[Any, ...]) -> Iterator[Candidate]:
        """Yields candidates with a simpler value of a setting: an earlier one of `values`.

        If `values` lacks the setting's value, a wide one, yields all `values`, and copies of the value with a smaller
        integer.
        """
        now = getattr(self.candidate.config, name)
        others = (
            values[: values.index(now)]
            if now in values
            else (*values, *self._with_simpler_integers(self._type_of(name), now))
        )
        for value in others:
            yield self.candidate._replace(config=self.candidate.config._replace(**{name: value}))

    def _type_of(self, setting: str) -> Any:
        return self.subject.machine.fields[setting]

    def _with_simpler_integers(self, kind: Any, value: Any) -> Iterator[Any]:
        """Yields copies of a value in which one wide integer is replaced by a simpler legal one."""
        for leaf in leaves(kind, value, ""):
            for number in simpler(leaf.value):
                if is_legal(leaf.kind, number, self.candidate.config):
                    yield with_leaf(value, leaf.path, number)

    def _renamed(self) -> Iterator[Candidate]:
        """Yields candidates in which one argument value is replaced in all calls by an earlier value of its domain.

        A tuple, such as a position, is replaced in all arguments, any other value only in arguments of the same name.
        Then yields the candidates of `_renumbered`.
        """
        used: dict[tuple[str, Any], Any] = {}
        for name, arguments in self.candidate.steps:
            for param, value in zip(self.subject.machine.actions[name].params, arguments, strict=True):
                domain = self.subject.domain(name, param.name)
                if isinstance(domain, tuple) and value in domain:
                    used.setdefault((param.name, value), domain[: domain.index(value)])
        for (param_name, old), earlier in used.items():
            for new in earlier:
                yield self.candidate._replace(
                    steps=tuple(self._rename(s, param_name, old, new) for s in self.candidate.steps)
                )
        yield from self._renumbered()

    def _renumbered(self) -> Iterator[Candidate]:
        """Yields candidates in which all wide integers of one name and value are replaced by a simpler integer."""
        used = {(leaf.name, leaf.value): None for step in self.candidate.steps for _, leaf in self._wide_integers(step)}
        for name, number in used:
            for new in simpler(number):
                steps = tuple(self._with_number(step, name, number, new) for step in self.candidate.steps)
                yield self.candidate._replace(steps=steps)

    def _wide_integers(self, step: SymbolicCall) -> Iterator[tuple[int, Leaf]]:
        """Yields the integers in those arguments that are not in their domain, each with the index of the argument."""
        name, arguments = step
        for i, (param, value) in enumerate(zip(self.subject.machine.actions[name].params, arguments, strict=True)):
            domain = self.subject.domain(name, param.name)
            if not isinstance(value, Rank) and not (isinstance(domain, tuple) and value in domain):
                for leaf in leaves(param.annotation, value, param.name):
                    yield i, leaf

    def _with_number(self, step: SymbolicCall, name: str, old: int, new: int) -> SymbolicCall:
        """Returns a call with the wide integers of this name and value replaced, where the new value is legal."""
        action, arguments = step
        for i, leaf in self._wide_integers(step):
            if (leaf.name, leaf.value) == (name, old) and is_legal(leaf.kind, new, self.candidate.config):
                arguments = (*arguments[:i], with_leaf(arguments[i], leaf.path, new), *arguments[i + 1 :])
        return action, arguments

    def _rename(self, step: SymbolicCall, param_name: str, old: Any, new: Any) -> SymbolicCall:
        """Returns a call with a value replaced as in `_renamed`, in the arguments whose domain has the new value."""
        name, arguments = step
        params = self.subject.machine.actions[name].params

        def is_meant(param: str, value: Any) -> bool:
            if type(value) is not type(old) or value != old or not (isinstance(old, tuple) or param == param_name):
                return False
            domain = self.subject.domain(name, param)
            return isinstance(domain, tuple) and new in domain

        return name, tuple([new if is_meant(p.name, a) else a for p, a in zip(params, arguments, strict=True)])

    def _variants(self, base: Candidate, index: int, *, only_simpler: bool) -> Iterator[Candidate]:
        """Yields candidates with one argument of the call at an index changed to another value of its domain.

        The values are all of a fixed domain, and the first eight of a domain that depends on the state. With
        `only_simpler`, they are those before the argument in its domain. An argument that is not in its domain has wide
        integers: then `only_simpler` excludes no value, and the argument with a smaller integer is tried, too.
        """
        name, arguments = base.steps[index]
        params = self.subject.machine.actions[name].params
        for i, (param, now) in enumerate(zip(params, arguments, strict=True)):
            domain = self.subject.domain(name, param.name)
            if isinstance(domain, tuple):
                values: Iterable[Any] = domain[: domain.index(now)] if only_simpler and now in domain else domain
            else:
                values = [Rank(r) for r in range(now.rank if isinstance(now, Rank) and only_simpler else 8)]
            if only_simpler and not isinstance(now, Rank) and not (isinstance(domain, tuple) and now in domain):
                values = itertools.chain(values, self._with_simpler_integers(param.annotation, now))
            for value in values:
                changed = (name, (*arguments[:i], value, *arguments[i + 1 :]))
                if value != now:
                    yield base._replace(steps=(*base.steps[:index], changed, *base.steps[index + 1 :]))

    def _trade(self) -> None:
        """Removes one call and changes one argument or setting: another value can save a call."""
        again = len(self.candidate.steps) <= _MAX_STEPS_TO_TRADE
        while again:
            again = False
            for removed in reversed(range(len(self.candidate.steps))):
                shorter = self._without([removed])
                variants = (
                    v for index in range(len(shorter.steps)) for v in self._variants(shorter, index, only_simpler=False)
                )
                if any(self._accept(v) for v in itertools.chain(self._other_settings(shorter), variants)):
                    again = True
                    break

    def _other_settings(self, base: Candidate) -> Iterator[Candidate]:
        """Yields candidates with another value of one setting. This can save an action that changes the setting."""
        for name, values in self.settings.items():
            for value in values:
                if value != getattr(base.config, name):
                    yield base._replace(config=base.config._replace(**{name: value}))

    def _use_fewer_arguments(self) -> None:
        """Replaces calls by calls of actions with fewer arguments, in short counterexamples."""
        if len(self.candidate.steps) > _MAX_STEPS_TO_TRADE:
            return
        actions = self.subject.machine.actions
        for index in reversed(range(len(self.candidate.steps) - 1)):
            again = True
            while again and index < len(self.candidate.steps) - 1:
                count = len(actions[self.candidate.steps[index][0]].params)
                again = any(self._accept(c) for c in self._replacements(index, count))

    def _replacements(self, index: int, fewer_than: int | None) -> Iterator[Candidate]:
        """Yields candidates with the call at an index replaced by each possible call.

        If `fewer_than` is not None, only calls with fewer arguments than this number replace the call.
        """
        base = self.candidate
        state = self._state_before(base, index)
        if state is None:
            return
        actions = self.subject.machine.actions.items()
        names = tuple(n for n, a in actions if fewer_than is None or len(a.params) < fewer_than)
        for call in possible_calls(self.subject, base.config).every(base.config, state, names) if names else ():
            yield base._replace(steps=(*base.steps[:index], call, *base.steps[index + 1 :]))

    def _merge(self) -> None:
        """Replaces two neighbouring calls by any possible call. Very short counterexamples are left to `_substitute`.

        Ends when trying all possible calls would take more than a quarter of the budget that is left.
        """
        again = _MAX_STEPS_TO_SUBSTITUTE < len(self.candidate.steps) <= _MAX_STEPS_TO_TRADE
        while again:
            indices = reversed(range(len(self.candidate.steps) - 2))
            candidates = [c for index in indices for c in self._substitutes(index + 1, index)]
            if len(candidates) * len(self.candidate.steps) > self.steps_left // 4:
                return
            again = any(self._accept(c) for c in candidates)

    def _substitute(self) -> None:
        """Removes one call and replaces another by any possible call. Begins with the last calls of the trace."""
        while 2 < len(self.candidate.steps) <= _MAX_STEPS_TO_SUBSTITUTE:
            count = len(self.candidate.steps)
            indices = [
                (removed, index) for index in reversed(range(count - 1)) for removed in reversed(range(count - 1))
            ]
            if not any(self._accept(c) for removed, index in indices for c in self._substitutes(removed, index)):
                return

    def _substitutes(self, removed: int, index: int) -> Iterator[Candidate]:
        """Yields candidates without one call, and with each possible call at one index of the rest."""
        base = self._without([removed])
        state = self._state_before(base, index)
        if state is None:
            return
        for call in possible_calls(self.subject, base.config).every(base.config, state):
            yield base._replace(steps=(*base.steps[:index], call, *base.steps[index + 1 :]))

    def _order(self) -> None:
        """Swaps neighbouring calls into the machine's order of actions if the cause stays the same."""
        again = len(self.candidate.steps) <= _MAX_STEPS_TO_TRADE
        while again:
            again = False
            for i in range(len(self.candidate.steps) - 2):
                steps = self.candidate.steps
                if i + 1 < len(steps) and self.order_of[steps[i][0]] > self.order_of[steps[i + 1][0]]:
                    swapped = (*steps[:i], steps[i + 1], steps[i], *steps[i + 2 :])
                    again = self._accept(self.candidate._replace(steps=swapped)) or again


def shrink(
    target: Target, finding: Finding, *, budget_steps: int = BUDGET_STEPS, until: float | None = None
) -> Finding:
    """Returns a shorter or simpler counterexample with the same cause, or the finding itself.

    Shrinking ends after about `budget_steps` executed steps, or at `until`, a time of `time.monotonic`. A candidate
    that was begun is completed. An unstable finding is returned unchanged.
    """
    if finding.cause.kind is Kind.UNSTABLE:
        return finding
    return Shrinker(target, finding, budget_steps, until).run()


def shortest(target: Target, finding: Finding, *, until: float | None = None) -> Finding:
    """Returns the shortest counterexample with the finding's cause that shrinking finds, from its seed or later seeds.

    No later seeds are searched if the shrunk finding is very short, or if the finding is a hang, unstable or without a
    seed. The result has the seed of the finding, even if its calls come from a later seed, because `shortest` finds the
    result again from the finding's seed. Cost: that of `shrink`, about `_SEARCH_STEPS` steps, and `_SEARCH_FINDINGS`
    times `_SEARCH_BUDGET` steps.
    """
    best = shrink(target, finding, until=until)
    if (
        finding.seed is None
        or len(best.calls) <= _MAX_STEPS_TO_SUBSTITUTE
        or best.cause.kind in (Kind.UNSTABLE, Kind.HANG)
    ):
        return best
    lockstep, shrunk = Lockstep(target), 0
    lockstep.skipped = skipped_for(target, finding)
    for seed in itertools.count(finding.seed + 1):
        is_over = until is not None and time.monotonic() >= until
        if is_over or shrunk == _SEARCH_FINDINGS or lockstep.coverage.steps >= _SEARCH_STEPS:
            return best
        found = lockstep.run(seed)
        if found is not None and found.cause == finding.cause:
            shrunk += 1
            other = shrink(target, found, budget_steps=_SEARCH_BUDGET, until=until)
            if len(other.calls) < len(best.calls):
                best = other._replace(seed=finding.seed)
    raise AssertionError("seeds do not end")


def _end_of_repetition(names: list[str], start: int, interval: int) -> int:
    """Returns the end of a repetition: the calls from `start` on, in which every `interval`-th call is of one action.

    The end is the index after the last call of the repetition.
    """
    end = start
    while end < len(names) and names[end] == names[start]:
        end += interval
    return min(end, len(names))


def simpler(number: int) -> Iterator[int]:
    """Yields the integers by which shrinking replaces `number`, the smallest first; none for -2 to 2."""
    if not -2 <= number <= 2:
        yield from (each for each in _SIMPLE if each < abs(number))
