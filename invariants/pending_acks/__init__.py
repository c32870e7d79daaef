"""Guarantees of the pending-ack store."""
