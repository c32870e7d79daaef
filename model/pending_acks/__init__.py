"""Pending-ack store of a subscription (PIP-160, PIP-153)."""
