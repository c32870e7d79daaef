"""Claims about the range caches, for queues of any length."""

from __future__ import annotations

from invariants.proofs.claim import claims_in
from invariants.proofs.range_cache import accounting, agreement, eviction, watermark

claims = claims_in(accounting, eviction, watermark, agreement)
