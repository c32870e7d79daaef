"""Containers of active cursors."""
