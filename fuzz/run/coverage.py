"""Coverage of traces: the actions, abstract states and coverage goals of the model that they reached.

Coverage has keys of four kinds, each with a count or with the first seed that reached it:

    pair      two consecutive actions (`pair_key`): how often they occurred
    refused   an action: how often it was refused
    abstract  an abstract state, which is `subject.abstract` of a state, as JSON: its first seed
    goal      a coverage goal: its first seed

Abstract states are recorded at the checked steps only (`fuzz/run/lockstep.py`), keys of other kinds at every step. The
coverage of several tasks can be merged in any order, because counts are added and the smallest first seed is kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import Any, Literal, NamedTuple

from fuzz.platform.json import to_json
from fuzz.subject import Subject
from model.machine import plain

RowKind = Literal["pair", "refused", "abstract", "goal"]


def pair_key(previous: str, action: str) -> str:
    """Returns the key of two consecutive actions. `previous` is empty for the first action of a trace."""
    return f"{previous} {action}"


class Row(NamedTuple):
    """A coverage key, its count `times` (0 if its kind has none) and its first seed (-1 if its kind has none)."""

    kind: str
    key: str
    times: int
    first_seed: int


class Coverage:
    """The coverage of the traces of one subject."""

    def __init__(self, subject: Subject) -> None:
        self.actions = list(subject.machine.actions)
        size = len(self.actions)
        #: counts of pairs; the index is previous action * number of actions + action. In a trace's first step, the
        #: number of actions stands for the previous action, which does not exist
        self.pairs = [0] * (size * (size + 1))
        #: counts of refusals, by the index of the action
        self.refused = [0] * size
        #: abstract state -> its first seed
        self.abstract: dict[tuple[Any, ...], int] = {}
        #: name of a coverage goal that was reached -> its first seed
        self.goals: dict[str, int] = {}
        self.traces = 0
        self.steps = 0

    def rows(self) -> Iterator[Row]:
        """Yields the coverage as rows of a table, in a fixed order."""
        names = [*self.actions, ""]
        size = len(self.actions)
        for pair, count in enumerate(self.pairs):
            if count:
                yield Row("pair", pair_key(names[pair // size], names[pair % size]), count, -1)
        for action, count in enumerate(self.refused):
            if count:
                yield Row("refused", names[action], count, -1)
        keyed = sorted((to_json(plain(key)).decode(), seed) for key, seed in self.abstract.items())
        for text, seed in keyed:
            yield Row("abstract", text, 0, seed)
        for name, seed in sorted(self.goals.items()):
            yield Row("goal", name, 0, seed)


class Total:
    """Coverage merged from rows."""

    def __init__(self) -> None:
        #: kind and key -> count and first seed
        self.seen: dict[tuple[str, str], tuple[int, int]] = {}

    def add(self, row: Row) -> None:
        """Adds one row: counts are added, the smallest first seed is kept."""
        key = row.kind, row.key
        count, first = self.seen.get(key, (0, row.first_seed))
        self.seen[key] = count + row.times, min(first, row.first_seed)

    def rows(self) -> list[Row]:
        """Returns all rows, in a fixed order."""
        return [Row(kind, key, *self.seen[kind, key]) for kind, key in sorted(self.seen)]

    def of(self, kind: RowKind) -> dict[str, tuple[int, int]]:
        """Returns the count and the first seed of each key of one kind."""
        return {key: value for (each, key), value in self.seen.items() if each == kind}

    def pairs(self, actions: Collection[str]) -> dict[tuple[str, str], int]:
        """Returns how often each pair of these actions occurred, without pairs that did not occur.

        The first of a pair is empty for the first action of a trace.
        """
        seen, possible = self.of("pair"), itertools.product(("", *actions), actions)
        return {pair: seen[key][0] for pair in possible if (key := pair_key(*pair)) in seen}

    def taken(self, actions: Collection[str]) -> dict[str, int]:
        """Returns the number of times that each of these actions was taken, refusals included."""
        counts = dict.fromkeys(actions, 0)
        for (_, action), count in self.pairs(actions).items():
            counts[action] += count
        return counts

    def summary(self, subject: Subject, configs: list[Any]) -> dict[str, Any]:
        """Returns the coverage as plain data. `never` has what `unreached` returns for these configs."""
        names, refused = subject.machine.actions, self.of("refused")
        taken = self.taken(names)
        return {
            "actions": {n: {"taken": taken[n], "refused": refused.get(n, (0, 0))[0]} for n in names},
            "pairs": len([previous for previous, _ in self.pairs(names) if previous]),  # without first actions
            "abstract_states": len(self.of("abstract")),
            "goals": sorted(self.of("goal")),
            "never": sorted(self.unreached(subject, configs)),
        }

    def unreached(self, subject: Subject, configs: list[Any]) -> list[str]:
        """Returns the coverage goals that were not reached, and the actions that were never taken or only refused.

        Goals that apply under none of `configs` are left out. Actions with an argument whose domain is empty are left
        out, too.
        """
        seen = self.of("goal")
        wanted = [p for p in subject.properties if p.kind == "sometimes" and any(p.given(c) for c in configs)]
        missing = [p.name for p in wanted if p.name not in seen]
        taken, refused = self.taken(subject.machine.actions), self.of("refused")
        for name, action in subject.machine.actions.items():
            drivable = all(subject.domain(name, p.name) != () for p in action.params)
            if drivable and taken[name] == refused.get(name, (0, 0))[0]:
                missing.append(name)
        return missing


def total_of(coverage: Coverage) -> Total:
    """Returns a total that has the rows of one coverage."""
    total = Total()
    for row in coverage.rows():
        total.add(row)
    return total
