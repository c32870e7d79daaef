"""How to drive the canary, which must fail: see `model/canary.py`."""

from __future__ import annotations

from fuzz.subject import Scope, Subject
from impl.canary import TokenStore
from invariants import canary as invariants
from model.canary import State, canary


def taken(s: State) -> int:
    """Returns the number of tokens that were taken."""
    return s.taken


subject = Subject(
    canary,
    TokenStore,
    invariants,
    domains={"tokens": (1, 2, 3)},
    abstract=lambda cfg, s: (s.tokens, min(s.taken, 6)),
    measures={"taken": taken},
    scopes={
        "smoke": Scope(
            actions=("add", "take"),
            settings={"capacity": 8},
            domains={"tokens": (1, 2, 3)},
            bounds={"taken": 6},
            reasons={
                "actions": "all actions of the model",
                "capacity": "eight: the store can hold the five tokens at which the implementation is wrong",
                "tokens": "one, two and three at a time",
                "taken": "six: the canonical form does not distinguish larger numbers",
            },
        )
    },
    steps=64,
    canary=True,
)
