"""Containers of active cursors (PIP-430)."""
