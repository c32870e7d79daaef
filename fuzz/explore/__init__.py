"""Exhaustive exploration of a scope."""
