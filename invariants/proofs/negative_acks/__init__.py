"""Claims about the negative acknowledgement tracker and its backoff."""

from __future__ import annotations

from invariants.proofs.negative_acks import backoff, tracker

claims = (*tracker.claims, *backoff.claims)
