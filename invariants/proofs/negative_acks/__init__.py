"""Proofs about the negative-ack tracker (PIP-393) and its backoffs."""

from __future__ import annotations

from invariants.proofs.negative_acks import backoff, tracker

claims = (*tracker.claims, *backoff.claims)
