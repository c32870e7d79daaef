"""A canary: a bounded store of tokens, which is wrong on purpose.

Source: none; it is not a part of Pulsar. The implementation loses a token in one situation, and the model violates a
property in another. Every engine must report both, or the engine is broken. Campaigns do not include canaries by
default.

    add      adds tokens, unless the sum would exceed the capacity
    take     removes the given number of tokens, or all if there are fewer

State: the number of tokens, and the number of tokens taken so far.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from model.machine import Machine, Step, refused
from model.values import AtLeast, record


class Config(NamedTuple):
    """The capacity of the store."""

    #: the maximum number of tokens
    capacity: Annotated[int, AtLeast(1)] = 8


@record
class State(NamedTuple):
    """The store."""

    tokens: int
    taken: int


def start(cfg: Config) -> State:
    """Returns an empty store."""
    return State(0, 0)


canary = Machine("canary", Config, start, source="not a part of Pulsar")


@canary.action
def add(cfg: Config, s: State, tokens: Annotated[int, AtLeast(1)]) -> Step[State, int]:
    """Adds tokens, unless the sum would exceed the capacity; the outcome is the number of tokens after that."""
    if s.tokens + tokens > cfg.capacity:
        return refused(s, "illegal_argument", "the tokens exceed the capacity")
    return s._replace(tokens=s.tokens + tokens), s.tokens + tokens


@canary.action
def take(cfg: Config, s: State, tokens: Annotated[int, AtLeast(1)]) -> Step[State, int]:
    """Removes the given number of tokens, or all if there are fewer; the outcome is the number removed."""
    given = min(tokens, s.tokens)
    return s._replace(tokens=s.tokens - given, taken=s.taken + given), given


@canary.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """Makes the number of states finite: more than 6 tokens taken count as 6. The violated property allows 4."""
    return s._replace(taken=min(s.taken, 6))


reference = canary.profile("reference", "the only profile of the canary", Config())
