"""Guarantees of a client's session: those of its user, and what each step of the protocol does."""

from __future__ import annotations

from invariants.client_session import guarantees, steps

__all__ = ["guarantees", "steps"]
