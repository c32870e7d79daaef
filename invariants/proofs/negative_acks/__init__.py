"""Proofs about the negative-ack tracker (PIP-393) and its backoffs."""

from __future__ import annotations

from invariants.proofs.claim import claims_in
from invariants.proofs.negative_acks import agreement, backoff, tracker

claims = claims_in(tracker, backoff, agreement)
