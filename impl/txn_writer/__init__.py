"""Buffered writer of the transaction logs: records, metrics."""
