"""Guarantees of a pending-ack handle."""

from __future__ import annotations

from invariants.pending_acks import calls, guarantees

__all__ = ["calls", "guarantees"]
