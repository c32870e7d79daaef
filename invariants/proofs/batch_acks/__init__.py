"""Claims about acknowledgements of entries and batch indexes, for batches of any size."""

from __future__ import annotations

from invariants.proofs.batch_acks import acknowledgements, records
from invariants.proofs.claim import claims_in

claims = claims_in(acknowledgements, records)
