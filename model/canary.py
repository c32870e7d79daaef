"""A canary: a store of tokens whose implementation is wrong on purpose.

Source: none; it models nothing of a broker. The implementation in `impl/` loses a token in one situation, and the
property in `invariants/` is broken in another. A pipeline that does not report both is itself broken: every engine is
run on this component, which is never among the honest ones.

    add      puts tokens in, up to the most that the store holds
    take     takes tokens out, as many as there are

State: the tokens, and how many were ever taken.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from model.machine import Machine, Step, refused
from model.values import AtLeast, record


class Config(NamedTuple):
    """How much the store holds."""

    #: the most tokens that there can be
    most: Annotated[int, AtLeast(1)] = 8


@record
class State(NamedTuple):
    """The store."""

    tokens: int
    taken: int


def start(cfg: Config) -> State:
    """An empty store."""
    return State(0, 0)


canary = Machine("canary", Config, start, source="nothing of a broker")


@canary.action
def add(cfg: Config, s: State, tokens: Annotated[int, AtLeast(1)]) -> Step[State, int]:
    """Tokens go in, unless there would be too many; the outcome is how many there are."""
    if s.tokens + tokens > cfg.most:
        return refused(s, "illegal_argument", "the store cannot hold so many")
    return s._replace(tokens=s.tokens + tokens), s.tokens + tokens


@canary.action
def take(cfg: Config, s: State, tokens: Annotated[int, AtLeast(1)]) -> Step[State, int]:
    """Tokens come out, as many as there are; the outcome is how many came."""
    given = min(tokens, s.tokens)
    return s._replace(tokens=s.tokens - given, taken=s.taken + given), given


@canary.canonical_form
def canonical(cfg: Config, s: State) -> State:
    """How many were taken matters up to the limit that the broken property names."""
    return s._replace(taken=min(s.taken, 6))


reference = canary.profile("reference", "the only one", Config())
