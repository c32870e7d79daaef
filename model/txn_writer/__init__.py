"""Buffered writer of the transaction logs (PIP-160)."""
