"""A store of tokens that is wrong on purpose: see `model/canary.py`."""

from __future__ import annotations

from model.canary import Config, State
from model.machine import Refused


class TokenStore:
    """Loses a token when it gives out the last three of five or more at a time."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self.tokens = 0
        self.taken = 0

    def add(self, tokens: int) -> int | Refused:
        """Puts tokens in. O(1)."""
        if self.tokens + tokens > self.cfg.most:
            return Refused("illegal_argument", "the store cannot hold so many")
        self.tokens += tokens
        return self.tokens

    def take(self, tokens: int) -> int:
        """Takes tokens out, and one too many on purpose. O(1)."""
        given = min(tokens, self.tokens)
        self.tokens -= given + (given == 3 and self.tokens >= 5)
        self.taken += given
        return given

    def check(self) -> list[str]:
        """Structural invariants that do not hold. O(1)."""
        return [] if 0 <= self.tokens <= self.cfg.most else ["there are fewer tokens than none, or too many"]

    def view(self) -> State:
        """The model's state of which this is an implementation. O(1)."""
        return State(self.tokens, self.taken)

    @classmethod
    def load(cls, cfg: Config, state: State) -> TokenStore:
        """A store in the given state. O(1)."""
        self = cls(cfg)
        self.tokens, self.taken = state
        return self
