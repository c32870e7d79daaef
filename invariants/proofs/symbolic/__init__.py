"""Symbolic reading of a subset of Python, for Z3."""
