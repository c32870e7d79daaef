"""Pending-ack handle of a subscription (PIP-160, PIP-153)."""
