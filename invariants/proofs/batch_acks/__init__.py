"""Claims about acknowledgements of entries and batch indexes, for batches of any size."""

from __future__ import annotations

from invariants.proofs.batch_acks import acknowledgements, records

claims = (*acknowledgements.claims, *records.claims)
