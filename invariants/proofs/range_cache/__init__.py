"""Claims about the range caches, for queues of any length."""

from __future__ import annotations

from invariants.proofs.range_cache import accounting, agreement, eviction, watermark

claims = (*accounting.claims, *eviction.claims, *watermark.claims, *agreement.claims)
