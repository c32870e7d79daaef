"""Guarantees of the entry cache."""

from __future__ import annotations

from invariants.entry_cache import guarantees, names, permits, reads, settings

__all__ = ["guarantees", "names", "permits", "reads", "settings"]
