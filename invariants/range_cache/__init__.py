"""Guarantees of the range caches and their removal queue."""
