"""The ownership channel: which broker owns a bundle (PIP-192)."""
