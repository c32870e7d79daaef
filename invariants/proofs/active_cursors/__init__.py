"""Claims about active cursors, for any number of them."""

from __future__ import annotations

from invariants.proofs.active_cursors import agreement, heap, ranks

claims = (*ranks.claims, *heap.claims, *agreement.claims)
