"""Properties of a client's session: the guarantees to its application, and what each step of the protocol does."""

from __future__ import annotations

from invariants.client_session import guarantees, steps

__all__ = ["guarantees", "steps"]
