"""Managed ledger of a topic with its dispatchers and entry cache (PIP-430)."""
