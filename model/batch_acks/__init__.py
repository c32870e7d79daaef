"""Cursor with batch-index acknowledgements (PIP-54)."""
