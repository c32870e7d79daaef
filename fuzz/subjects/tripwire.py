"""How to drive the tripwire, which must fail: see `model/tripwire.py`."""

from __future__ import annotations

from fuzz.subject import Scope, Subject
from impl.tripwire import TokenStore
from invariants import tripwire as invariants
from model.tripwire import State, tripwire


def taken(s: State) -> int:
    """Tokens taken so far."""
    return s.taken


subject = Subject(
    tripwire,
    TokenStore,
    invariants,
    domains={"tokens": (1, 2, 3)},
    abstract=lambda cfg, s: (s.tokens, min(s.taken, 6)),
    measures={"taken": taken},
    scopes={
        "smoke": Scope(
            actions=("add", "take"),
            settings={"most": 8},
            domains={"tokens": (1, 2, 3)},
            most={"taken": 6},
            because={
                "actions": "all that there are",
                "most": "enough for five tokens and more",
                "tokens": "one, two and three at a time",
                "taken": "the canonical form counts no further",
            },
        )
    },
    steps=64,
    honest=False,
)
