"""Guarantees of the pending-ack handle."""
