"""Properties of the canary, one of which the model violates on purpose (`model/canary.py`)."""

from __future__ import annotations

from invariants.properties import always, sometimes
from model.canary import Config, State, canary


@always(canary)
def tokens_are_within_capacity(cfg: Config, s: State) -> bool:
    """The number of tokens is between 0 and the capacity."""
    return 0 <= s.tokens <= cfg.capacity


@always(canary)
def at_most_four_tokens_are_taken(cfg: Config, s: State) -> bool:
    """At most four tokens are taken. The model violates this on purpose: every engine must report it."""
    return s.taken <= 4


@sometimes(canary)
def capacity_is_reached(cfg: Config, s: State) -> bool:
    """The number of tokens equals the capacity."""
    return s.tokens == cfg.capacity
