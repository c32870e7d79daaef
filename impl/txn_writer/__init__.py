"""Buffered writer of the transaction logs, its metrics, and the wire format of records and entries."""
