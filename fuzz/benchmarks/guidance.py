"""Measures whether guidance helps: the steps to kill seeded bugs, with a kind of guidance and without it.

Guidance is a deviation of random traces from uniformly random calls:

    weights      actions are not equally likely
    situations   the weights of actions depend on the situation
    swarms       a trace may draw other weights, so that it has fewer actions, and more calls of each
    corpus       a trace may begin with an earlier trace that reached a new abstract state

A component keeps a kind of guidance only if this kind helps; the field `guidance` of its subject says which, and why.
Steps are counted, not seconds, because the number of steps is the same on every machine. Each seeded bug, of the
implementation or of the model, counts with its median over the seeds.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from fuzz.mutation.kill_matrix import is_of_model
from fuzz.run.call import Call
from fuzz.run.generate import plan_trace, possible_calls
from fuzz.run.lockstep import CHECK_EVERY
from fuzz.run.pair import Depth, Pair
from fuzz.run.watchdog import Hang, watchdog
from fuzz.seeding import mutants_of, seed_bug
from fuzz.subject import Subject, find_profile
from fuzz.target import Target

#: The first seeds of the searches for each seeded bug. A search runs consecutive seeds.
SEEDS = tuple(range(0, 10_000_000, 1_000_000))
#: A search begins no trace after this number of steps. If it has not killed the bug then, it counts with this number.
MOST_STEPS = 200_000
#: Seconds of processor time after which a trace counts as a hang, which kills the bug.
_HANG_SECONDS = 0.2
#: The probability that a trace begins with a trace of the corpus, if the corpus is not empty.
_FROM_CORPUS = 0.5


class Effect(NamedTuple):
    """The median steps to kill with a kind of guidance and without, over all bugs."""

    kind: str
    with_it: float
    without: float
    ratio: float  # geometric mean over the bugs of (steps without / steps with); above 1 if the guidance helps


#: How a subject is changed, and whether a corpus is used.
Variant = tuple[Callable[[Subject], Subject], bool]

#: Each kind of guidance: the variants with this kind and without. Swarms and situations are factors of weights, so the
#: variant without weights has neither.
KINDS: dict[str, tuple[Variant, Variant]] = {
    "weights": ((lambda s: s, False), (lambda s: replace(s, weights={}, swarms={}, in_situation={}), False)),
    "situations": ((lambda s: s, False), (lambda s: replace(s, in_situation={}), False)),
    "swarms": ((lambda s: s, False), (lambda s: replace(s, swarms={}), False)),
    "corpus": ((lambda s: s, True), (lambda s: s, False)),
}


def effect(subject: str, kind: str) -> Effect:
    """Measures a kind of guidance on the seeded bugs of a component under `reference`. Cost: up to minutes."""
    bugs = [m for m in mutants_of(subject) if m.profile == "reference"]
    with_it, without = [
        [median_steps(vary(seed_bug(bug)), is_of_model(bug), uses_corpus) for bug in bugs]
        for vary, uses_corpus in KINDS[kind]
    ]
    logs = [math.log(b / a) for a, b in zip(with_it, without, strict=True)]
    mean = math.exp(statistics.fmean(logs))
    return Effect(kind, statistics.median(with_it), statistics.median(without), mean)


def kinds_of(subject: Subject) -> list[str]:
    """Returns the kinds of guidance that a subject has, and `corpus`, which every subject can have."""
    has = {"weights": subject.weights, "situations": subject.in_situation, "swarms": subject.swarms, "corpus": True}
    return [kind for kind in KINDS if has[kind]]


def median_steps(subject: Subject, of_model: bool, uses_corpus: bool) -> float:
    """Returns the median over `SEEDS` of the steps until a seeded bug is killed."""
    return statistics.median(steps_to_kill(subject, of_model, uses_corpus, seed) for seed in SEEDS)


def steps_to_kill(subject: Subject, of_model: bool, uses_corpus: bool, seed: int) -> int:
    """Returns the steps until a seeded bug is killed, in traces of the seeds from `seed` on.

    Returns MOST_STEPS if no trace that begins before this step kills the bug. Only properties can kill a bug of the
    model (`of_model`), because the model then runs alone.
    """
    config, taken, corpus = find_profile(subject, "reference"), 0, _Corpus(subject, of_model, seed)
    while taken < MOST_STEPS:
        run = corpus.next_run(config, seed, uses_corpus)
        try:
            with watchdog(_HANG_SECONDS):
                for _ in run:
                    taken += 1
        except (Hang, _Found):
            return taken + 1  # the last step was not yielded
        seed += 1
    return MOST_STEPS


class _Found(Exception):
    """The seeded bug is killed."""


class _Corpus:
    """Runs traces. Keeps the beginning of each trace up to a step that reached an abstract state for the first time."""

    def __init__(self, subject: Subject, of_model: bool, seed: int) -> None:
        self.subject = subject
        self.of_model = of_model
        self.chance = random.Random(seed)  # noqa: S311
        self.runs: list[tuple[Any, list[Call]]] = []
        self.seen: set[Any] = set()

    def next_run(self, config: Any, seed: int, uses_corpus: bool) -> Iterator[None]:
        """Runs the trace of a seed, which draws settings of the config. Yields after each step.

        With `uses_corpus`, the trace may begin with a kept one, and then has its config. Raises _Found at the step that
        kills the bug.
        """
        subject = self.subject
        plan, rng = plan_trace(subject, config, seed)
        cfg, begun = plan.config, list[Call]()
        if uses_corpus and self.runs and self.chance.random() < _FROM_CORPUS:
            cfg, begun = self.runs[self.chance.randrange(len(self.runs))]
        choose = possible_calls(subject, cfg).chooser(cfg, plan.swarm, rng)
        pair, done = Pair(Target(subject, cfg, model_only=self.of_model)), list[Call]()
        for step in range(plan.steps):
            call = begun[step] if step < len(begun) else _called(choose(pair.state))
            if pair.step(call, Depth.ALL if step % CHECK_EVERY == CHECK_EVERY - 1 else Depth.OUTCOME) is not None:
                raise _Found
            done.append(call)
            if uses_corpus:
                self.keep(cfg, done, pair.state)
            yield

    def keep(self, cfg: Any, done: list[Call], state: Any) -> None:
        """Keeps the trace so far if it reached a new abstract state."""
        abstract = self.subject.abstract(cfg, state)
        if abstract not in self.seen:
            self.seen.add(abstract)
            self.runs.append((cfg, list(done)))


def _called(chosen: Any) -> Call:
    action, arguments = chosen
    return Call(action.name, arguments)
