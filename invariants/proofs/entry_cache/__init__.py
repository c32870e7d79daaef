"""Claims about the entry cache, for any number of requests, reads and range caches."""

from __future__ import annotations

from invariants.proofs.claim import claims_in
from invariants.proofs.entry_cache import agreement, permits, reads, total

claims = claims_in(total, permits, reads, agreement)
