"""Transaction log of a transaction coordinator (PIP-31, PIP-160)."""
