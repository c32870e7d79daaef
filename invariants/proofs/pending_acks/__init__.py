"""What solvers have shown about pending acknowledgements, for logs and masks of any length."""

from __future__ import annotations

from invariants.proofs.pending_acks import index, parts

claims = (*index.claims, *parts.claims)
