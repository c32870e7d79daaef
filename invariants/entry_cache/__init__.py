"""Guarantees of the entry cache."""
