"""Claims about active cursors, for any number of them."""

from __future__ import annotations

from invariants.proofs.active_cursors import agreement, heap, ranks
from invariants.proofs.claim import claims_in

claims = claims_in(ranks, heap, agreement)
