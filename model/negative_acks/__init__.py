"""Negative-ack tracker (PIP-393)."""
