"""Claims about the buffered log writer, for any number of records."""

from __future__ import annotations

from invariants.proofs.claim import claims_in
from invariants.proofs.txn_writer import agreement, batching

claims = claims_in(batching, agreement)
