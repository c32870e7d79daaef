"""What solvers have shown about pending acknowledgements, for logs and masks of any length."""

from __future__ import annotations

from invariants.proofs import pending_acks_index as index
from invariants.proofs import pending_acks_parts as parts

claims = (*index.claims, *parts.claims)
