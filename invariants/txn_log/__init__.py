"""Guarantees of a coordinator's transaction log."""

from __future__ import annotations

from invariants.txn_log import calls, guarantees

__all__ = ["calls", "guarantees"]
