"""Entry cache of the broker (PIP-430)."""
