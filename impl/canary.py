"""A bounded store of tokens, which is wrong on purpose: see `model/canary.py`."""

from __future__ import annotations

from model.canary import Config, State
from model.machine import Refused


class TokenStore:
    """Loses a token when three of at least five tokens are taken at once."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self.tokens = 0
        self.taken = 0

    def add(self, tokens: int) -> int | Refused:
        """Adds tokens, unless the sum would exceed the capacity. O(1)."""
        if self.tokens + tokens > self.cfg.capacity:
            return Refused("illegal_argument", "the tokens exceed the capacity")
        self.tokens += tokens
        return self.tokens

    def take(self, tokens: int) -> int:
        """Removes tokens; in one case one too many, on purpose. O(1)."""
        given = min(tokens, self.tokens)
        self.tokens -= given + (given == 3 and self.tokens >= 5)
        self.taken += given
        return given

    def check(self) -> list[str]:
        """Returns the violated structural invariants, one line each. O(1)."""
        return [] if 0 <= self.tokens <= self.cfg.capacity else ["the number of tokens is out of range"]

    def view(self) -> State:
        """Returns the model's state. O(1)."""
        return State(self.tokens, self.taken)

    @classmethod
    def load(cls, cfg: Config, state: State) -> TokenStore:
        """Returns an implementation in the given state. O(1)."""
        self = cls(cfg)
        self.tokens, self.taken = state
        return self
