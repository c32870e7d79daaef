"""Claims about pending acks, for logs and batches of any length."""

from __future__ import annotations

from invariants.proofs.pending_acks import acks, index

claims = (*index.claims, *acks.claims)
