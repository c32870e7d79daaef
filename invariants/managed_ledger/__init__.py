"""Guarantees of a managed ledger with its dispatchers and entry cache."""

from __future__ import annotations

from invariants.managed_ledger import counts, guarantees, steps

__all__ = ["counts", "guarantees", "steps"]
