"""Seeded bugs and the kill matrix."""
