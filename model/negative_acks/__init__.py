"""Negative acknowledgements tracker (PIP-393)."""
