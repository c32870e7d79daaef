"""Guarantees of the coordinator's transaction log."""
