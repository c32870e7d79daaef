"""Claims about pending acks, for logs and batches of any length."""

from __future__ import annotations

from invariants.proofs.claim import claims_in
from invariants.proofs.pending_acks import acks, index

claims = claims_in(index, acks)
