"""Guarantees of a managed ledger with its dispatchers and entry cache."""
