"""Pending-ack handle of a subscription."""
