"""Guarantees of a pending-ack handle."""

from __future__ import annotations

from invariants.pending_acks import calls, goals, guarantees

__all__ = ["calls", "goals", "guarantees"]
