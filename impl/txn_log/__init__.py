"""Transaction log of a transaction coordinator."""
