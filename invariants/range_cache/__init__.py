"""Guarantees of the range caches and their removal queue."""

from __future__ import annotations

from invariants.range_cache import goals, guarantees

__all__ = ["goals", "guarantees"]
